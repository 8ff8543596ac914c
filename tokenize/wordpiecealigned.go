package tokenize

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// The plain path: the reference's steps one after the other, with the place in the input that each character comes from. It
// serves Tokens, and tokenizers with added tokens that are looked for in the normalised text. Tests hold the hot path
// against it.

// span is a stretch of the input, in bytes.
type span struct{ start, stop int }

// alignedChar is a character of a normalised text and what it stands for in the input.
type alignedChar struct {
	r rune
	span
}

// aligner normalises a text character by character.
type aligner struct {
	norm  normalizer
	table *charTable
	yield func(alignedChar)

	// A run of combining marks, which NFD sorts by class. The reference then gives out places in the new order: each mark
	// that began a character of the input takes the place of the next such character, each further part of a
	// decomposition shares the place before it.
	marks  []alignedMark
	places []span
	last   span // the last place that was given out
	parts  []rune
}

type alignedMark struct {
	mark
	further bool // part of a decomposition, but not its first
}

// normalize yields the characters that become of text, whose first byte is at base. A byte that is not UTF-8 counts as
// U+FFFD.
func (a *aligner) normalize(text string, base int) {
	n, t := a.norm, a.table
	for i, r := range text {
		at := span{base + i, base + i + 1}
		if r < utf8.RuneSelf && isAlnum(byte(r)) {
			a.sortMarks()
			a.last = at
			a.lower(r, at)
			continue
		}
		if r != utf8.RuneError {
			at.stop = at.start + utf8.RuneLen(r)
		} else if strings.HasPrefix(text[i:], "\uFFFD") {
			at.stop = at.start + 3
		}
		if n.cleanText {
			if t.removed.has(r) {
				continue
			}
			if t.space.has(r) {
				r = ' '
			}
		}
		if n.ideographs && t.ideograph.has(r) {
			a.decompose(' ', at)
			a.decompose(r, at)
			a.decompose(' ', at)
			continue
		}
		a.decompose(r, at)
	}
	a.sortMarks()
}

func isAlnum(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

func (a *aligner) decompose(r rune, at span) {
	if !a.norm.stripAccents {
		a.lower(r, at)
		return
	}
	a.parts = a.table.appendNFD(a.parts[:0], r)
	for i, p := range a.parts {
		if class := a.table.class[p]; class != 0 {
			a.marks = append(a.marks, alignedMark{mark{p, class}, i > 0})
			if i == 0 {
				a.places = append(a.places, at)
			}
			continue
		}
		a.sortMarks()
		a.last = at
		a.strip(p, at)
	}
}

func (a *aligner) sortMarks() {
	if len(a.marks) == 0 {
		return
	}
	slices.SortStableFunc(a.marks, func(x, y alignedMark) int { return int(x.class) - int(y.class) })
	next := 0
	for _, m := range a.marks {
		if !m.further {
			a.last = a.places[next]
			next++
		}
		a.strip(m.r, a.last)
	}
	a.marks, a.places = a.marks[:0], a.places[:0]
}

func (a *aligner) strip(r rune, at span) {
	if !a.table.nonspacing.has(r) {
		a.lower(r, at)
	}
}

func (a *aligner) lower(r rune, at span) {
	switch {
	case !a.norm.lowercase:
		a.yield(alignedChar{r, at})
	case r < utf8.RuneSelf:
		if r >= 'A' && r <= 'Z' {
			r |= 0x20
		}
		a.yield(alignedChar{r, at})
	default:
		for _, l := range a.table.appendLower(nil, r) {
			a.yield(alignedChar{l, at})
		}
	}
}

// piece is a token and what it stands for in the input.
type piece struct {
	id int32
	span
}

// pieces tokenises a whole text.
func (t *Tokenizer) pieces(text string) []piece {
	if t.sp != nil {
		return t.sp.pieces(t, text)
	}
	w := words{t: t}
	a := aligner{norm: t.norm, table: t.table, yield: w.char}
	t.split(t.raw, text, func(at span, token *addedToken) {
		switch {
		case token != nil:
			w.out = append(w.out, piece{token.id, at})
		case t.cooked != nil:
			t.cookedPieces(&w, text, at)
		default:
			a.normalize(text[at.start:at.stop], at.start)
			w.flush()
		}
	})
	return w.out
}

// split calls yield for each added token in text and for each stretch between them.
func (t *Tokenizer) split(m *matcher, text string, yield func(at span, token *addedToken)) {
	floor := 0
	for seek := 0; m != nil; {
		var found match
		var ok bool
		if found, ok, seek = m.next(text, seek, len(text), floor, t.escape); !ok {
			break
		}
		if floor < found.start {
			yield(span{floor, found.start}, nil)
		}
		if found.start < found.stop {
			yield(span{found.start, found.stop}, found.token)
		}
		floor = found.stop
	}
	if floor < len(text) {
		yield(span{floor, len(text)}, nil)
	}
}

// cookedPieces finds the added tokens of a normalised text and splits what is between them into words.
func (t *Tokenizer) cookedPieces(w *words, text string, at span) {
	var all []alignedChar
	var s []byte
	var index []int // index[i] is the element of all that byte i of s belongs to
	a := aligner{norm: t.norm, table: t.table, yield: func(c alignedChar) {
		s = utf8.AppendRune(s, c.r)
		for len(index) < len(s) {
			index = append(index, len(all))
		}
		all = append(all, c)
	}}
	a.normalize(text[at.start:at.stop], at.start)
	index = append(index, len(all))
	t.split(t.cooked, string(s), func(at span, token *addedToken) {
		part := all[index[at.start]:index[at.stop]]
		if token != nil {
			w.out = append(w.out, piece{token.id, span{part[0].start, part[len(part)-1].stop}})
			return
		}
		for _, c := range part {
			w.char(c)
		}
		w.flush()
	})
}

// words splits normalised text at white space and around punctuation, and looks the words up.
type words struct {
	t   *Tokenizer
	out []piece

	// The open word. Beyond the characters that a word may have only its end matters.
	word  []alignedChar
	chars int
	stop  int
}

func (w *words) char(c alignedChar) {
	if c.r >= utf8.RuneSelf || !isAlnum(byte(c.r)) {
		space := w.t.table.space.has(c.r)
		if space || w.t.table.punct.has(c.r) {
			w.flush()
			if !space {
				w.add(c)
				w.flush()
			}
			return
		}
	}
	w.add(c)
}

func (w *words) add(c alignedChar) {
	if w.chars++; w.chars <= max(w.t.vocab.max, 1) {
		w.word = append(w.word, c)
	}
	w.stop = c.stop
}

func (w *words) flush() {
	if w.chars == 0 {
		return
	}
	if w.chars > w.t.vocab.max || !w.known() {
		w.out = append(w.out, piece{w.t.vocab.unk, span{w.word[0].start, w.stop}})
	}
	w.word, w.chars = w.word[:0], 0
}

// known appends the pieces of the open word, if the vocabulary has them all.
func (w *words) known() bool {
	first := len(w.out)
	var s []byte
	for _, c := range w.word {
		s = utf8.AppendRune(s, c.r)
	}
	word := w.word
	for trie := w.t.vocab.first; len(s) > 0; trie = w.t.vocab.next {
		id, n := trie.Longest(s)
		if n == 0 {
			w.out = w.out[:first]
			return false
		}
		chars := utf8.RuneCount(s[:n])
		w.out = append(w.out, piece{id, span{word[0].start, word[chars-1].stop}})
		s, word = s[n:], word[chars:]
	}
	return true
}
