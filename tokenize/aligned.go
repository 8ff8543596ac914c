package tokenize

import (
	"slices"
	"unicode/utf8"
)

// The plain path: step by step as the reference does it, with the place in the input that each character comes from. It
// serves Tokens, and texts in which added tokens are looked for after normalising. Tests hold the hot path against it.

// aligned is a character of a normalised text and the bytes of the original that it stands for.
type aligned struct {
	r           rune
	start, stop int
}

// change is a character of a new version of the text: grow is 1 when it was inserted, 0 when it replaces the next
// character of the old version, and -n when it does so and n more old characters go with it.
type change struct {
	r    rune
	grow int
}

// transform gives every new character its place: an inserted one shares it with the old character before it. The first
// skip old characters are gone.
func transform(old []aligned, changes []change, skip int) []aligned {
	out := make([]aligned, 0, len(changes))
	at := skip
	for _, c := range changes {
		a := aligned{r: c.r}
		if c.grow > 0 {
			if at > 0 {
				a.start, a.stop = old[at-1].start, old[at-1].stop
			}
		} else {
			a.start, a.stop = old[at].start, old[at].stop
			at += 1 - c.grow
		}
		out = append(out, a)
	}
	return out
}

// align decodes text; a byte that is not UTF-8 counts as U+FFFD.
func align(text string) []aligned {
	out := make([]aligned, 0, len(text))
	for i, r := range text {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(text[i:])
		}
		out = append(out, aligned{r, i, i + size})
	}
	return out
}

func (n normalizer) normalize(text []aligned, t *charTable) []aligned {
	if n.cleanText {
		text = slices.DeleteFunc(text, func(a aligned) bool { return t.removed.has(a.r) })
		for i := range text {
			if t.space.has(text[i].r) {
				text[i].r = ' '
			}
		}
	}
	if n.ideographs {
		var to []change
		for _, a := range text {
			if t.ideograph.has(a.r) {
				to = append(to, change{' ', 0}, change{a.r, 1}, change{' ', 1})
			} else {
				to = append(to, change{a.r, 0})
			}
		}
		text = transform(text, to, 0)
	}
	if n.stripAccents {
		text = transform(text, t.decompose(text), 0)
		text = slices.DeleteFunc(text, func(a aligned) bool { return t.nonspacing.has(a.r) })
	}
	if n.lowercase {
		var to []change
		var lower []rune
		for _, a := range text {
			lower = t.appendLower(lower[:0], a.r)
			for i, l := range lower {
				to = append(to, change{l, min(i, 1)})
			}
		}
		text = transform(text, to, 0)
	}
	return text
}

// decompose is NFD: the full decomposition with every run of combining marks sorted by class.
func (t *charTable) decompose(text []aligned) []change {
	var to []change
	var parts []rune
	marks := 0 // of them, so many at the end are marks in a row
	sortMarks := func() {
		slices.SortStableFunc(to[len(to)-marks:], func(a, b change) int { return int(t.class[a.r]) - int(t.class[b.r]) })
		marks = 0
	}
	for _, a := range text {
		parts = t.appendNFD(parts[:0], a.r)
		for i, p := range parts {
			if t.class[p] == 0 {
				sortMarks()
				to = append(to, change{p, min(i, 1)})
			} else {
				to = append(to, change{p, min(i, 1)})
				marks++
			}
		}
	}
	sortMarks()
	return to
}

// piece is a token and the bytes of the original text that it stands for.
type piece struct {
	id          int32
	start, stop int
}

// pieces tokenises a whole text.
func (t *Tokenizer) pieces(text string) []piece {
	var out []piece
	t.split(t.raw, text, func(start, stop int, token *addedToken) {
		if token != nil {
			out = append(out, piece{token.id, start, stop})
			return
		}
		norm := t.norm.normalize(align(text[start:stop]), t.table)
		for i := range norm {
			norm[i].start += start
			norm[i].stop += start
		}
		out = t.normalizedPieces(out, norm)
	})
	return out
}

// split calls yield for each added token in text and for each stretch between them.
func (t *Tokenizer) split(m *matcher, text string, yield func(start, stop int, token *addedToken)) {
	floor := 0
	for seek := 0; m != nil; {
		var found match
		var ok bool
		if found, ok, seek = m.next(text, seek, len(text), floor, t.escape); !ok {
			break
		}
		if floor < found.start {
			yield(floor, found.start, nil)
		}
		yield(found.start, found.stop, found.token)
		floor = found.stop
	}
	if floor < len(text) {
		yield(floor, len(text), nil)
	}
}

// normalizedPieces finds the added tokens of a normalised text and splits what is between them into words.
func (t *Tokenizer) normalizedPieces(out []piece, text []aligned) []piece {
	if t.cooked == nil {
		return t.words(out, text)
	}
	var s []byte
	at := make([]int, 0, len(text)) // at[i] is the character that byte i of s belongs to
	for i, a := range text {
		s = utf8.AppendRune(s, a.r)
		for len(at) < len(s) {
			at = append(at, i)
		}
	}
	at = append(at, len(text))
	t.split(t.cooked, string(s), func(start, stop int, token *addedToken) {
		part := text[at[start]:at[stop]]
		if token != nil {
			out = append(out, piece{token.id, part[0].start, part[len(part)-1].stop})
			return
		}
		out = t.words(out, part)
	})
	return out
}

// words splits at white space and around punctuation.
func (t *Tokenizer) words(out []piece, text []aligned) []piece {
	start := 0
	for i, a := range text {
		space := t.table.space.has(a.r)
		if !space && !t.table.punct.has(a.r) {
			continue
		}
		out = t.wordPieces(out, text[start:i])
		if !space {
			out = t.wordPieces(out, text[i:i+1])
		}
		start = i + 1
	}
	return t.wordPieces(out, text[start:])
}

// wordPieces splits one word into the pieces of the vocabulary.
func (t *Tokenizer) wordPieces(out []piece, word []aligned) []piece {
	if len(word) == 0 {
		return out
	}
	first := len(out)
	unknown := piece{t.vocab.unk, word[0].start, word[len(word)-1].stop}
	if len(word) > t.vocab.max {
		return append(out, unknown)
	}
	var w []byte
	for _, a := range word {
		w = utf8.AppendRune(w, a.r)
	}
	for trie := t.vocab.first; len(w) > 0; trie = t.vocab.next {
		id, n := trie.longest(w)
		if n == 0 {
			return append(out[:first], unknown)
		}
		chars := utf8.RuneCount(w[:n])
		out = append(out, piece{id, word[0].start, word[chars-1].stop})
		w, word = w[n:], word[chars:]
	}
	return out
}
