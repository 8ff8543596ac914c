// Package aligned holds a text that is being normalised together with the place in the original that each byte comes from.
//
// Start with [New], then change the Text by its methods, and ask [Text.Place] where a stretch of it comes from. Places follow the
// reference's rules, odd ones included: what it calls the place of a token is part of what a client sees.
package aligned

import (
	"strings"
	"unicode/utf8"
)

// Span is a stretch of the original, in bytes.
type Span struct{ Start, Stop int32 }

// Text is a normalised text. Slices of one share nothing that changes.
type Text struct {
	s  string
	at []Span // of each byte of s
}

// New takes the stretch of an original that begins at byte base. It must be UTF-8.
func New(original string, base int) *Text {
	t := &Text{s: original, at: make([]Span, 0, len(original))}
	for i, c := range original {
		n := utf8.RuneLen(c)
		for range n {
			t.at = append(t.at, Span{int32(base + i), int32(base + i + n)})
		}
	}
	return t
}

// String is the text as it is now.
func (t *Text) String() string { return t.s }

// Len is the number of bytes of the text as it is now.
func (t *Text) Len() int { return len(t.s) }

// Place is where the bytes from start to stop, at least one, come from.
func (t *Text) Place(start, stop int) Span { return Span{t.at[start].Start, t.at[stop-1].Stop} }

// Slice is the text from start to stop.
func (t *Text) Slice(start, stop int) *Text { return &Text{t.s[start:stop], t.at[start:stop]} }

// Change says what becomes of the next characters of a text. With N 0 the character replaces the next one, with N 1 it is a new
// one, with a negative N it replaces the next one, and -N more are removed behind it.
type Change struct {
	Char rune
	N    int
}

// Transform applies changes to the text from its start. What they do not reach is cut off.
func (t *Text) Transform(changes []Change) {
	pos := 0
	skip := func(n int) {
		for ; n > 0 && pos < len(t.s); n-- {
			_, size := utf8.DecodeRuneInString(t.s[pos:])
			pos += size
		}
	}
	s := make([]byte, 0, len(t.s))
	at := make([]Span, 0, len(t.at))
	for _, c := range changes {
		var place Span
		if c.N > 0 {
			if pos > 0 {
				place = t.at[pos-1]
			}
		} else {
			if pos < len(t.at) {
				place = t.at[pos]
			}
			skip(1 - c.N)
		}
		s = utf8.AppendRune(s, c.Char)
		for len(at) < len(s) {
			at = append(at, place)
		}
	}
	t.s, t.at = string(s), at
}

// Parts are the changes that replace a part of a text by another one.
func Parts(changes []Change, part, becomes string) []Change {
	for _, c := range becomes {
		changes = append(changes, Change{Char: c})
	}
	diff := utf8.RuneCountInString(becomes) - utf8.RuneCountInString(part)
	switch {
	case diff > 0:
		for i := len(changes) - diff; i < len(changes); i++ {
			changes[i].N = 1
		}
	case diff < 0 && len(changes) > 0:
		changes[len(changes)-1].N += diff
	}
	return changes
}

// Prepend puts s in front. Its first character takes the place of the text's first one, the others come from there too.
func (t *Text) Prepend(s string) {
	if t.s == "" || s == "" {
		return
	}
	_, n := utf8.DecodeRuneInString(t.s)
	at := make([]Span, 0, len(s)+len(t.at))
	_, first := utf8.DecodeRuneInString(s)
	for i := range len(s) {
		if i < first {
			at = append(at, t.at[0])
		} else {
			at = append(at, t.at[n-1])
		}
	}
	for range n {
		at = append(at, t.at[n-1])
	}
	t.s, t.at = s+t.s, append(at, t.at[n:]...)
}

// Replace replaces what next finds, time after time: the first match in text from a position on, not empty, or a start of -1.
// What is put in its stead comes from where the match's last character came from.
func (t *Text) Replace(next func(text string, from int) (start, stop int), with string) {
	var s strings.Builder
	at := make([]Span, 0, len(t.at))
	last := 0
	for {
		start, stop := next(t.s, last)
		if start < 0 {
			break
		}
		s.WriteString(t.s[last:start])
		at = append(at, t.at[last:start]...)
		s.WriteString(with)
		for range len(with) {
			at = append(at, t.at[stop-1])
		}
		last = stop
	}
	s.WriteString(t.s[last:])
	t.s, t.at = s.String(), append(at, t.at[last:]...)
}

// Strip removes white space from the left and the right.
func (t *Text) Strip(left, right bool, space func(rune) bool) {
	start, stop := 0, len(t.s)
	if left {
		start = len(t.s) - len(strings.TrimLeftFunc(t.s, space))
	}
	if right {
		stop = start + len(strings.TrimRightFunc(t.s[start:], space))
	}
	*t = *t.Slice(start, stop)
}
