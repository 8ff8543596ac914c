package unigram

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Encoder encodes one word after the other. A word is written by appending to Word; it may be of any length.
//
// The best path to each position of a word is found from left to right (Viterbi's algorithm), and its tokens are known only at the
// end of the word; but of a long word those are given out that the best paths to all positions still open have in common, so that
// memory stays small and a caller can stop early.
type Encoder struct {
	m *Model

	// Word is what has been written and not yet been given out. UTF-8; the caller appends to it between calls.
	Word []byte

	score []float64 // score[i] is that of the best path to position i of Word
	back  []step
	done  int // paths go on from all positions before this one
	tryAt int // bytes of Word at which Advance looks for tokens to give out

	base int // bytes of the word given out before Word

	// An unknown run that has been given out but may go on: its bytes, and where it began.
	unknown   []byte
	unknownAt int

	path   []Token // backwards
	out    []Token
	marked []bool

	cache *[cacheSize]cached
}

// step is the last one of a path.
type step struct {
	id    int32
	start int32 // -1: no path leads here
}

// Token is a piece and the bytes of the word that it stands for. Tokens from byte fallback stand for all bytes of their run.
type Token struct {
	ID         int32
	Start, End int
}

// firstTry is how many bytes of a word are kept before Advance looks for a common beginning of its paths.
const firstTry = 1 << 12

// keptBytes is up to which size of Word an encoder's memory is worth keeping for the next text.
const keptBytes = 1 << 16

// NewEncoder makes an encoder.
func (m *Model) NewEncoder() *Encoder {
	e := &Encoder{m: m, Word: make([]byte, 0, 512), score: make([]float64, 0, 512), back: make([]step, 0, 512), cache: new([cacheSize]cached)}
	e.Reset()
	return e
}

// Reset forgets the open word.
func (e *Encoder) Reset() {
	if cap(e.Word) > keptBytes || cap(e.out) > keptBytes || cap(e.unknown) > keptBytes {
		e.Word, e.score, e.back, e.path, e.out, e.unknown, e.marked = nil, nil, nil, nil, nil, nil, nil
	}
	e.Word, e.score, e.back = e.Word[:0], append(e.score[:0], 0), append(e.back[:0], step{start: -1})
	e.unknown, e.done, e.base, e.tryAt = e.unknown[:0], 0, 0, firstTry
}

// Empty says that nothing has been written since the last word.
func (e *Encoder) Empty() bool { return len(e.Word) == 0 && e.base == 0 }

// Full says that Advance may have tokens to give out.
func (e *Encoder) Full() bool { return len(e.Word) >= e.tryAt }

// Advance gives out the tokens that are certain whatever follows. They are valid until the next call.
func (e *Encoder) Advance() []Token {
	e.out = e.out[:0]
	e.search(len(e.Word) - e.m.longest)
	if at := e.common(); at > 0 {
		e.give(at)
		e.tryAt = max(firstTry, 2*len(e.Word))
	} else {
		e.tryAt = 2 * len(e.Word)
	}
	return e.out
}

// Finish gives out the rest of the word and resets the encoder. The tokens are valid until the next call.
func (e *Encoder) Finish() []Token {
	e.out = e.out[:0]
	if len(e.Word) > 0 {
		e.search(len(e.Word))
		e.give(len(e.Word))
	}
	e.closeUnknown(e.base)
	out := e.out
	e.Reset()
	return out
}

// search goes on with the paths from all positions before limit.
func (e *Encoder) search(limit int) {
	m, word := e.m, e.Word
	more := len(word) + 1 - len(e.back)
	e.score = slices.Grow(e.score, more)[:len(word)+1]
	e.back = slices.Grow(e.back, more)
	for range more {
		e.back = append(e.back, step{start: -1})
	}
	score, back := e.score[:len(word)+1], e.back[:len(word)+1]
	at := e.done
	for at < limit {
		here := score[at]
		width := charWidth(word[at])
		single := false
		node := m.trie.Root()
		for i := at; i < len(word); i++ {
			child, id, ok := m.trie.Step(node, word[i])
			if !ok {
				break
			}
			node = child
			if id < 0 {
				continue
			}
			if s := m.scores[id] + here; back[i+1].start < 0 || s > score[i+1] {
				score[i+1], back[i+1] = s, step{id, int32(at)}
			}
			if i+1-at == width {
				single = true
			}
		}
		if !single {
			to := at + width
			if s := m.unkScore + here; back[to].start < 0 || s > score[to] {
				score[to], back[to] = s, step{m.unk, int32(at)}
			}
		}
		at += width
	}
	e.done = max(e.done, at)
}

// charWidth is the length of the character that begins with a byte.
func charWidth(c byte) int {
	if c < 0x80 {
		return 1
	}
	return bits.LeadingZeros8(^c)
}

// common is the last position that the paths to all open positions go through: to those from done on.
func (e *Encoder) common() int {
	open := 0
	last := len(e.back) - 1
	if cap(e.marked) <= last {
		e.marked = make([]bool, 2*(last+1))
	}
	marked := e.marked[:last+1]
	clear(marked)
	for i := e.done; i <= last; i++ {
		if e.back[i].start >= 0 {
			marked[i] = true
			open++
		}
	}
	for i := last; i > 0; i-- {
		if !marked[i] {
			continue
		}
		if open == 1 {
			return i
		}
		open--
		if s := e.back[i].start; !marked[s] {
			marked[s] = true
			open++
		}
	}
	return 0
}

// give turns the path to a position into tokens and forgets what stands before it.
func (e *Encoder) give(to int) {
	e.path = e.path[:0]
	for i := to; i > 0; i = int(e.back[i].start) {
		e.path = append(e.path, Token{e.back[i].id, int(e.back[i].start), i})
	}
	e.out = slices.Grow(e.out, len(e.path)+1)
	for i := len(e.path) - 1; i >= 0; i-- {
		t := e.path[i]
		if t.ID == e.m.unk {
			if len(e.unknown) == 0 {
				e.unknownAt = e.base + t.Start
			}
			e.unknown = append(e.unknown, e.Word[t.Start:t.End]...)
			continue
		}
		e.closeUnknown(e.base + t.Start)
		e.out = append(e.out, Token{t.ID, e.base + t.Start, e.base + t.End})
	}
	e.Word = append(e.Word[:0], e.Word[to:]...)
	e.score = append(e.score[:0], e.score[to:]...)
	e.back = append(e.back[:0], e.back[to:]...)
	for i := range e.back {
		if e.back[i].start >= 0 {
			e.back[i].start -= int32(to) // never below 0, but for position 0 itself, whose path has been given out
		}
	}
	e.back[0].start = -1
	e.base += to
	e.done = max(0, e.done-to)
}

// closeUnknown gives out the run of unknown characters that ends here, if there is one: as one token, or as its bytes.
func (e *Encoder) closeUnknown(end int) {
	if len(e.unknown) == 0 {
		return
	}
	m := e.m
	run := e.unknown
	e.unknown = e.unknown[:0]
	if len(run) <= m.longest {
		// The reference looks the run up: it can be a piece after all, one whose score is worse than that of its characters.
		if id := m.ID(string(run)); id >= 0 {
			e.out = append(e.out, Token{id, e.unknownAt, end})
			return
		}
	}
	if m.bytes != nil {
		from := len(e.out)
		for _, b := range run {
			id := m.bytes[b]
			if id < 0 {
				e.out = append(e.out[:from], Token{m.unk, e.unknownAt, end})
				return
			}
			e.out = append(e.out, Token{id, e.unknownAt, end})
		}
		return
	}
	e.out = append(e.out, Token{m.unk, e.unknownAt, end})
}

// Short words come again and again: their ids are kept. A cache belongs to one encoder, so that no lock is needed.
const (
	cacheBits  = 11
	cacheSize  = 1 << cacheBits // words; 128 KiB
	cacheBytes = 24             // of a word
	cacheIDs   = 8              // of a word
)

type cached struct {
	key [3]uint64
	len uint8 // 0: free
	n   uint8
	ids [cacheIDs]int32
}

// AppendWord appends the ids of the word that has been written, as a whole, and resets the encoder. Nothing of the word may have
// been given out before.
func (e *Encoder) AppendWord(dst []int32) []int32 {
	n := len(e.Word)
	if n == 0 || n > cacheBytes || e.base > 0 {
		for _, t := range e.Finish() {
			dst = append(dst, t.ID)
		}
		return dst
	}
	var b [cacheBytes]byte
	copy(b[:], e.Word)
	key := [3]uint64{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
	const mul = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	h := (key[0]^bits.RotateLeft64(key[1]*mul, 29)^bits.RotateLeft64(key[2]*mul, 41))*mul ^ uint64(n)
	c := &e.cache[(h^h>>32)*mul>>(64-cacheBits)]
	if c.key == key && int(c.len) == n {
		e.Word = e.Word[:0]
		return append(dst, c.ids[:c.n]...)
	}
	tokens := e.Finish()
	if len(tokens) <= cacheIDs {
		c.key, c.len, c.n = key, uint8(n), uint8(len(tokens))
		for i, t := range tokens {
			c.ids[i] = t.ID
		}
	}
	for _, t := range tokens {
		dst = append(dst, t.ID)
	}
	return dst
}
