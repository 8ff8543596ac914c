package tokenize

import (
	"strings"
	"sync"
	"unicode/utf8"

	"ragate/tokenize/internal/aligned"
	"ragate/tokenize/internal/charsmap"
	"ragate/tokenize/internal/unigram"
)

// sentencePiece is a Unigram model with what stands before it: normaliser and pre-tokeniser. Text goes through it in stretches, the
// text between two added tokens.
//
// There are two ways, with the same ids. pieces takes the reference's steps one after the other and keeps the places; it serves
// Tokens, and settings that the other cannot do. append (unigramrun.go) walks over the text once.
type sentencePiece struct {
	model *unigram.Model
	steps []step
	pre   metaspace
	space func(rune) bool

	// For append, where fast.
	fast   bool
	chars  *charsmap.Map
	spaces []step // the steps behind chars, which change nothing but white space
	runs   *sync.Pool

	oneSpace bool      // a single space in the middle of text goes through the steps as it is
	special  [256]bool // the bytes that white space and the mark begin with
}

// setFast finds out whether append can do the settings.
func (s *sentencePiece) setFast() {
	steps := s.steps
	if len(steps) > 0 && steps[0].chars != nil {
		s.chars, steps = steps[0].chars, steps[1:]
	}
	p := &s.pre
	s.oneSpace = true
	// Whether a text begins at 0 can depend on which character the first one left comes from.
	s.fast = p.prepend != first || !p.words
	for _, step := range steps {
		switch {
		case step.find != nil && step.onlySpace:
			if at, _ := step.find(" ", 0); at >= 0 {
				s.oneSpace = false
			}
			s.fast = s.fast && (p.prepend != first || step.with == " " || step.with == p.mark)
		case step.left || step.right:
			s.fast = s.fast && (p.prepend != first || !step.left)
		default:
			s.fast = false
		}
	}
	if s.chars == nil {
		s.chars, _ = charsmap.Parse(nil)
	}
	s.spaces = steps
	for _, c := range []byte{'\t', '\n', '\v', '\f', '\r', ' ', 0xC2, 0xE1, 0xE2, 0xE3} {
		s.special[c] = true
	}
	if p.mark != "" {
		s.special[p.mark[0]] = true
	}
	s.runs = newUnigramRuns(s)
}

// step is one normaliser.
type step struct {
	chars       *charsmap.Map // Precompiled
	find        func(text string, from int) (start, stop int)
	with        string // Replace: what find finds becomes this
	onlySpace   bool   // find finds nothing but white space, and decides by the run of it alone
	left, right bool   // Strip
	prepend     string // Prepend
}

// scheme says where metaspace puts its mark in front.
type scheme uint8

const (
	never scheme = iota
	first        // where the text begins
	always
)

// metaspace is a pre-tokeniser: WhitespaceSplit, Metaspace, or the one and then the other. The zero value does nothing.
type metaspace struct {
	words   bool   // WhitespaceSplit: white space ends a word and is removed
	mark    string // Metaspace: a space becomes this character; "" for none
	prepend scheme
	breaks  bool // a mark begins a word
}

func (s *step) apply(t *aligned.Text, space func(rune) bool) {
	switch {
	case s.chars != nil:
		var changes []aligned.Change
		modified := false
		s.chars.Walk(t.String(), func(part, becomes string, mapped bool) {
			changes = aligned.Parts(changes, part, becomes)
			modified = modified || mapped
		})
		if modified {
			t.Transform(changes)
		}
	case s.find != nil:
		t.Replace(s.find, s.with)
	case s.prepend != "":
		t.Prepend(s.prepend)
	default:
		t.Strip(s.left, s.right, space)
	}
}

func (s *sentencePiece) normalized(text string, base int) *aligned.Text {
	t := aligned.New(text, base)
	for i := range s.steps {
		s.steps[i].apply(t, s.space)
	}
	return t
}

// findString finds what stands in a text.
func findString(what string) func(string, int) (int, int) {
	return func(text string, from int) (int, int) {
		at := strings.Index(text[from:], what)
		if at < 0 {
			return -1, -1
		}
		return from + at, from + at + len(what)
	}
}

// findSpaces finds runs of least and more spaces.
func findSpaces(least int) func(string, int) (int, int) {
	return func(text string, from int) (int, int) {
		for {
			at := strings.IndexByte(text[from:], ' ')
			if at < 0 {
				return -1, -1
			}
			start := from + at
			stop := start
			for stop < len(text) && text[stop] == ' ' {
				stop++
			}
			if stop-start >= least {
				return start, stop
			}
			from = stop
		}
	}
}

// split calls yield for every word of a normalised text.
func (m *metaspace) split(t *aligned.Text, space func(rune) bool, yield func(*aligned.Text)) {
	mark := func(t *aligned.Text) {
		if m.mark == "" {
			yield(t)
			return
		}
		t.Replace(findString(" "), m.mark)
		if !strings.HasPrefix(t.String(), m.mark) && (m.prepend == always || m.prepend == first && t.Place(0, 1).Start == 0) {
			t.Prepend(m.mark)
		}
		if !m.breaks {
			yield(t)
			return
		}
		s, from := t.String(), 0
		for {
			_, n := utf8.DecodeRuneInString(s[from:])
			at := strings.Index(s[from+n:], m.mark)
			if at < 0 {
				yield(t.Slice(from, len(s)))
				return
			}
			yield(t.Slice(from, from+n+at))
			from += n + at
		}
	}
	if !m.words {
		mark(t)
		return
	}
	s := t.String()
	for from := 0; from < len(s); {
		stop := from + strings.IndexFunc(s[from:], space)
		if stop < from {
			stop = len(s)
		}
		if from < stop {
			mark(t.Slice(from, stop))
		}
		if stop < len(s) {
			_, n := utf8.DecodeRuneInString(s[stop:])
			stop += n
		}
		from = stop
	}
}

// pieces tokenises a whole text.
func (s *sentencePiece) pieces(t *Tokenizer, text string) []piece {
	original := text
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // every byte that is not UTF-8 becomes U+FFFD
	}
	var out []piece
	e := s.model.NewEncoder()
	words := func(part *aligned.Text) {
		if part.Len() == 0 {
			return
		}
		s.pre.split(part, s.space, func(w *aligned.Text) {
			e.Word = append(e.Word, w.String()...)
			for _, token := range e.Finish() {
				p := w.Place(token.Start, token.End)
				out = append(out, piece{token.ID, span{int(p.Start), int(p.Stop)}})
			}
		})
	}
	t.split(t.raw, text, func(at span, token *addedToken) {
		if token != nil {
			out = append(out, piece{token.id, at})
			return
		}
		all := s.normalized(text[at.start:at.stop], at.start)
		if t.cooked == nil {
			words(all)
			return
		}
		t.split(t.cooked, all.String(), func(at span, token *addedToken) {
			if token == nil {
				words(all.Slice(at.start, at.stop))
				return
			}
			p := all.Place(at.start, at.stop)
			out = append(out, piece{token.id, span{int(p.Start), int(p.Stop)}})
		})
	})
	if len(original) != len(text) {
		backToBytes(out, original)
	}
	return out
}

// backToBytes turns places in a text with U+FFFD for every byte that is not UTF-8 into places in the text itself.
func backToBytes(pieces []piece, text string) {
	places := make([]int, 0, len(text)+4)
	for i, c := range text {
		n := utf8.RuneLen(c) // 3 for a byte that is not UTF-8
		for range n {
			places = append(places, i)
		}
	}
	places = append(places, len(text))
	for i := range pieces {
		pieces[i].start, pieces[i].stop = places[pieces[i].start], places[pieces[i].stop]
	}
}
