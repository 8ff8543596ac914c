package unigram

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// reference is the algorithm by the book: for each end the best start, all in one go.
func reference(v *Vocabulary, m *Model, word string) (tokens []Token) {
	type node struct {
		score float64
		id    int32
		start int
	}
	ids := map[string]int32{}
	for i := range v.Len() {
		p, _ := m.Piece(int32(i))
		ids[p] = int32(i)
	}
	best := make([]node, len(word)+1)
	for i := range best {
		best[i].start = -1
	}
	relax := func(from, to int, id int32, score float64) {
		if s := score + best[from].score; best[to].start < 0 || s > best[to].score {
			best[to] = node{s, id, from}
		}
	}
	for at := 0; at < len(word); {
		_, n := utf8.DecodeRuneInString(word[at:])
		single := false
		for to := at + 1; to <= min(len(word), at+m.longest); to++ {
			if id, ok := ids[word[at:to]]; ok {
				relax(at, to, id, v.Scores[id])
				single = single || to == at+n
			}
		}
		if !single {
			relax(at, at+n, m.unk, m.unkScore)
		}
		at += n
	}
	for at := len(word); at > 0; at = best[at].start {
		if last := len(tokens) - 1; last >= 0 && tokens[last].ID == m.unk && best[at].id == m.unk {
			tokens[last].Start = best[at].start
			continue
		}
		tokens = append(tokens, Token{best[at].id, best[at].start, at})
	}
	slices.Reverse(tokens)
	var out []Token
	for _, t := range tokens {
		if t.ID == m.unk {
			if id, ok := ids[word[t.Start:t.End]]; ok {
				t.ID = id
			} else if m.bytes != nil {
				var all []Token
				for _, c := range []byte(word[t.Start:t.End]) {
					if id, ok := ids[fmt.Sprintf("<0x%02X>", c)]; ok {
						all = append(all, Token{id, t.Start, t.End})
					}
				}
				if len(all) == t.End-t.Start {
					out = append(out, all...)
					continue
				}
			}
		}
		out = append(out, t)
	}
	return out
}

// Random vocabularies over few letters have many equally good spellings, and unknown characters in between.
func TestEncoderAgainstTheBook(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	letters := []rune("abcé中😀")
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteRune(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	for round := range 120 {
		v := &Vocabulary{}
		v.Add("<unk>", 0)
		for range 2 + rng.IntN(25) {
			v.Add(word(1+rng.IntN(4)), -float64(rng.IntN(6)))
		}
		fallback := round%3 == 0
		if fallback {
			for c := range 256 {
				if round%2 == 0 || c != 0xE4 {
					v.Add(fmt.Sprintf("<0x%02X>", c), -9)
				}
			}
		}
		m, err := New(v, 0, fallback)
		if err != nil {
			t.Fatal(err)
		}
		e := m.NewEncoder()
		for range 20 {
			w := word(rng.IntN(30))
			want := reference(v, m, w)
			e.Word = append(e.Word, w...)
			if got := e.Finish(); !slices.Equal(got, want) {
				t.Fatalf("round %d: %q: %v, want %v", round, w, got, want)
			}
			for range 2 { // the second time from the cache
				e.Word = append(e.Word, w...)
				ids := e.AppendWord([]int32{-5})
				for i, token := range want {
					if len(ids) != len(want)+1 || ids[i+1] != token.ID {
						t.Fatalf("round %d: %q: ids %v, want %v", round, w, ids, want)
					}
				}
			}
		}
		// A long word, written in parts.
		w := word(9000)
		var got []Token
		for rest := w; rest != ""; {
			n := min(len(rest), 1+rng.IntN(3000))
			for n < len(rest) && !utf8.RuneStart(rest[n]) {
				n++
			}
			e.Word = append(e.Word, rest[:n]...)
			rest = rest[n:]
			if e.Full() {
				got = append(got, e.Advance()...)
			}
		}
		got = append(got, e.Finish()...)
		if want := reference(v, m, w); !slices.Equal(got, want) {
			t.Fatalf("round %d: a long word has %d tokens in parts, want %d", round, len(got), len(want))
		}
	}
}

func TestModel(t *testing.T) {
	v := &Vocabulary{}
	for _, p := range []string{"<unk>", "a", "", "ab", "a"} {
		v.Add(p, -1)
	}
	m, err := New(v, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	for piece, want := range map[string]int32{"a": 4, "ab": 3, "b": -1, "abc": -1, "": -1} {
		if got := m.ID(piece); got != want {
			t.Errorf("%q is %d, want %d", piece, got, want)
		}
	}
	if p, ok := m.Piece(3); p != "ab" || !ok {
		t.Errorf("piece 3 is %q", p)
	}
	for _, unk := range []int{-1, 5} {
		if _, err := New(v, unk, false); err == nil {
			t.Errorf("an unknown piece of id %d was accepted", unk)
		}
	}
}
