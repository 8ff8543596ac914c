package tokenize

import (
	"bytes"
	"sync"
	"unicode/utf8"
	"unsafe"

	"ragate/tokenize/internal/unigram"
)

// The hot path of Unigram tokenizers. A unigramRun walks over a text once:
//
//   - The text is taken in windows in which no added token begins, cut where a grapheme cluster is sure to begin, so that nothing
//     behind the cut has a say in what stands before it but for white space that goes on.
//   - The character map turns a window into normal text; then runs of white space go through the steps that the file has for them, and
//     words are put together in the encoder.
//   - A word that ends yields its ids. Of a very long one the encoder gives out early what is certain.
type unigramRun struct {
	t     *Tokenizer
	s     *sentencePiece
	e     *unigram.Encoder
	dst   []int32 // its capacity ends at stop, at the latest
	stop  int
	moved bool // dst is no longer the caller's memory
	over  bool
	size  int // bytes of the text: seldom does it have more tokens

	open   bool // a stretch has begun
	atZero bool // at the start of the text
	fresh  bool // nothing of the stretch's normal text has come
	begin  bool // a word begins, between white space that is removed

	normal []byte
	spaces []byte    // a run of white space that may go on
	mapped [2][]byte // what becomes of it
	ids    []int32
}

func newUnigramRuns(s *sentencePiece) *sync.Pool {
	return &sync.Pool{New: func() any {
		return &unigramRun{s: s, e: s.model.NewEncoder(), normal: make([]byte, 0, 2*window), ids: make([]int32, 0, 64)}
	}}
}

// append is run for Unigram tokenizers.
func (s *sentencePiece) append(t *Tokenizer, dst []int32, text string, stop int) (ids []int32, more bool) {
	if text == "" {
		return dst, false
	}
	r := s.runs.Get().(*unigramRun)
	r.t, r.dst, r.stop, r.moved, r.over, r.size = t, dst[:len(dst):min(cap(dst), stop)], stop, false, false, len(text)
	if cap(dst) == len(dst) {
		r.reserve(len(text)/3 + 8)
	}
	r.all(text)
	ids, more = r.dst, r.over
	if !r.moved {
		ids = dst[:len(ids)] // with all of its capacity
	}
	r.t, r.dst, r.open = nil, nil, false
	r.spaces = r.spaces[:0]
	r.e.Reset()
	const kept = 1 << 16 // bytes that are worth keeping for the next text
	if cap(r.normal) > kept || cap(r.spaces) > kept || cap(r.ids) > kept {
		r.normal, r.spaces, r.mapped, r.ids = nil, nil, [2][]byte{}, nil
	}
	s.runs.Put(r)
	return ids, more
}

func (r *unigramRun) reserve(n int) {
	n = min(n, r.stop-len(r.dst))
	if n > cap(r.dst)-len(r.dst) {
		r.dst = append(make([]int32, 0, len(r.dst)+n), r.dst...)
		r.moved = true
	}
}

func (r *unigramRun) emit(ids ...int32) {
	if room := r.stop - len(r.dst); len(ids) > room {
		ids, r.over = ids[:room], true
	}
	if len(ids) > cap(r.dst)-len(r.dst) {
		// Few texts have more tokens than bytes: those whose characters the map makes longer. At most four steps reach any number.
		n := r.size - len(r.dst)
		if n < len(ids) {
			n = 4*len(r.dst) + len(ids)
		}
		r.reserve(n + 16)
	}
	r.dst = append(r.dst, ids...)
}

func (r *unigramRun) all(text string) {
	from, seek, floor := 0, 0, 0
	for !r.over {
		until := min(max(from, seek)+window, len(text))
		var hit match
		found := false
		if r.t.raw == nil {
			seek = until
		} else {
			hit, found, seek = r.t.raw.next(text, seek, until, floor, r.t.escape)
		}
		switch {
		case found:
			if from < hit.start {
				r.feed(text, from, hit.start)
			}
			r.close()
			if hit.start < hit.stop && !r.over {
				r.emit(hit.token.id)
			}
			from, floor = hit.stop, hit.stop
		case seek >= len(text):
			if from < len(text) {
				r.feed(text, from, len(text))
			}
			r.close()
			return
		default:
			if cut := r.cut(text, from, until); cut > from {
				r.feed(text, from, cut)
				from = cut
			}
		}
	}
}

// cut is the last place before until, and within a window of it, where the text may be taken apart; or from. Behind it stands
// something beside white space, so that no added token to come takes along white space from before it.
func (r *unigramRun) cut(text string, from, until int) int {
	letters := false
	for at := until - 1; at > from && at > until-window; at-- {
		if !utf8.RuneStart(text[at]) {
			continue
		}
		after, _ := utf8.DecodeRuneInString(text[at:])
		letters = letters || !r.s.space(after)
		if !letters {
			continue
		}
		if before, _ := utf8.DecodeLastRuneInString(text[:at]); r.s.chars.Certain(before, after) {
			return at
		}
	}
	return from
}

// feed takes a part of a stretch.
func (r *unigramRun) feed(text string, from, to int) {
	if !r.open {
		r.open, r.atZero, r.fresh, r.begin = true, from == 0, true, true
	}
	r.normal = r.s.chars.Append(r.normal[:0], text[from:to])
	b := r.normal
	for i := 0; i < len(b) && !r.over; {
		start := i
		for i < len(b) && !r.s.special[b[i]] {
			i++
		}
		if i > start {
			r.letters(b[start:i])
			continue
		}
		c, n := utf8.DecodeRune(b[i:])
		switch {
		case r.s.space(c):
			if len(r.s.spaces) > 0 {
				r.spaces = append(r.spaces, b[i:i+n]...)
			} else {
				r.white(b[i : i+n])
			}
		default:
			r.letters(b[i : i+n])
		}
		i += n
	}
}

// letters takes normal text without white space: any number of characters that no mark is among, or one.
func (r *unigramRun) letters(b []byte) {
	if len(r.spaces) > 0 {
		r.flushSpaces(false)
	}
	r.put(b)
}

func (r *unigramRun) put(b []byte) {
	p := &r.s.pre
	if r.fresh || r.begin {
		isMark := p.mark != "" && string(b[:min(len(b), len(p.mark))]) == p.mark
		wanted := r.fresh && !p.words || r.begin && p.words
		if wanted && !isMark && p.mark != "" && (p.prepend == always || p.prepend == first && r.atZero) {
			r.e.Word = append(r.e.Word, p.mark...)
		}
		r.fresh, r.begin = false, false
	}
	if p.breaks && string(b) == p.mark {
		r.endWord()
	}
	r.e.Word = append(r.e.Word, b...)
	if r.e.Full() {
		r.take(r.e.Advance())
	}
}

// white takes one character of white space, after the steps.
func (r *unigramRun) white(b []byte) {
	p := &r.s.pre
	switch {
	case p.words:
		r.endWord()
		r.fresh, r.begin = false, true
	case p.mark != "" && len(b) == 1 && b[0] == ' ':
		r.put(unsafeBytes(p.mark))
	default:
		r.put(b)
	}
}

// flushSpaces takes the run of white space that has ended, through the steps that change it.
func (r *unigramRun) flushSpaces(atEnd bool) {
	b := r.spaces
	r.spaces = r.spaces[:0] // what it held stays as it is until feed goes on
	if len(b) == 1 && !atEnd && !r.fresh && r.s.oneSpace {
		r.white(b)
		return
	}
	out, other := &r.mapped[0], &r.mapped[1]
	for i := range r.s.spaces {
		step := &r.s.spaces[i]
		if step.find != nil {
			*out = appendReplaced((*out)[:0], b, step)
			b = *out
			out, other = other, out
			continue
		}
		if step.left && r.fresh {
			b = bytes.TrimLeftFunc(b, r.s.space)
		}
		if step.right && atEnd {
			b = bytes.TrimRightFunc(b, r.s.space)
		}
	}
	for i := 0; i < len(b) && !r.over; {
		c, n := utf8.DecodeRune(b[i:])
		if part := b[i : i+n]; r.s.space(c) {
			r.white(part)
		} else {
			r.put(part)
		}
		i += n
	}
}

// appendReplaced appends what a Replace makes of text.
func appendReplaced(dst, text []byte, step *step) []byte {
	s := unsafe.String(unsafe.SliceData(text), len(text)) // nobody writes to text while find reads it
	last := 0
	for {
		start, stop := step.find(s, last)
		if start < 0 {
			break
		}
		dst = append(dst, s[last:start]...)
		dst = append(dst, step.with...)
		last = stop
	}
	return append(dst, s[last:]...)
}

func (r *unigramRun) endWord() {
	if r.e.Empty() {
		return
	}
	r.ids = r.e.AppendWord(r.ids[:0])
	r.emit(r.ids...)
}

func (r *unigramRun) take(tokens []unigram.Token) {
	r.ids = r.ids[:0]
	for _, t := range tokens {
		r.ids = append(r.ids, t.ID)
	}
	r.emit(r.ids...)
}

// close ends the stretch.
func (r *unigramRun) close() {
	if !r.open || r.over {
		return
	}
	if len(r.spaces) > 0 {
		r.flushSpaces(true)
	}
	r.endWord()
	r.open = false
}
