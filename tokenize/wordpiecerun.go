package tokenize

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// The hot path. A run walks once over a text and appends ids. Two loops take turns:
//
//   - ascii takes whole words of ASCII letters and digits, up to 16 bytes at a time, as long as no other kind of character
//     touches them. Nearly all English text stays in it.
//   - word takes everything else one character at a time, until the word it started in has ended.
//
// Between them stands limit: the text before it holds no added token ("[SEP]"). It moves ahead in steps, so that a run that
// stops early never looks at the rest of the text.
type run struct {
	t     *Tokenizer
	text  string
	dst   []int32 // its capacity ends at stop, at the latest, so that one comparison sees both ends
	stop  int     // no more than this many elements of dst are wanted
	moved bool    // dst is no longer the caller's memory
	over  bool    // there was a token that stop left no room for

	pos   int
	limit int // no added token starts in text[pos:limit]
	hit   match
	found bool // hit starts at limit (or before pos, if white space was taken along)
	// seek is where the search for added tokens goes on, floor where the last one stopped.
	seek, floor int

	// The word that has begun: its normalised bytes, its number of characters (beyond the vocabulary's limit the bytes are
	// no longer kept: the word is unknown), and marks that are still to be sorted.
	buf     []byte
	chars   int
	pending []mark
}

// runs keeps runs for reuse: on the stack they cannot stay, because their buffers grow.
var runs = sync.Pool{New: func() any { return &run{buf: make([]byte, 16, 512)} }}

// window is how far the search for added tokens runs ahead, in bytes.
const window = 4096

// run appends ids until dst has stop elements. It says whether there would have been more.
func (t *Tokenizer) run(dst []int32, text string, stop int) (ids []int32, more bool) {
	if text == "" {
		return dst, false
	}
	r := runs.Get().(*run)
	*r = run{t: t, text: text, dst: dst[:len(dst):min(cap(dst), stop)], stop: stop, buf: r.buf[:0], pending: r.pending[:0]}
	if cap(dst) == len(dst) {
		// Of English text, more than three bytes make a token: usually the only allocation.
		r.reserve(len(text)/3 + 8)
	}
	r.all()
	ids, more = r.dst, r.over
	if !r.moved {
		ids = dst[:len(ids)] // with all of its capacity
	}
	*r = run{buf: r.buf, pending: r.pending} // nothing of the caller's stays behind
	runs.Put(r)
	return ids, more
}

// reserve moves dst to where n more ids fit, or as many as are wanted.
func (r *run) reserve(n int) {
	n = min(n, r.stop-len(r.dst))
	if n > cap(r.dst)-len(r.dst) {
		r.dst = append(make([]int32, 0, len(r.dst)+n), r.dst...)
		r.moved = true
	}
}

func (r *run) emit(id int32) {
	if len(r.dst) == cap(r.dst) && r.full() {
		return
	}
	r.dst = append(r.dst, id)
}

// full makes room for another id, if another is wanted.
func (r *run) full() bool {
	if len(r.dst) == r.stop {
		r.over = true
		return true
	}
	// No character yields more tokens than it has bytes, so this is the last allocation.
	r.reserve(len(r.text) - r.pos + len(r.buf) + 16)
	return false
}

func (r *run) all() {
	r.advance()
	for !r.over {
		if r.t.asciiWords {
			r.ascii()
		}
		if r.pos >= len(r.text) && !r.found || r.over {
			return
		}
		r.word()
	}
}

// advance moves limit ahead: to the next added token, or through one more window.
func (r *run) advance() {
	m := r.t.raw
	r.found = false
	if m == nil {
		r.limit = len(r.text)
		return
	}
	from := max(r.seek, r.limit)
	until := min(from+window, len(r.text))
	r.hit, r.found, r.seek = m.next(r.text, from, until, r.floor, r.t.escape)
	if r.found {
		r.limit = r.hit.start
	} else {
		r.limit = max(until, r.seek)
	}
}

// take emits the added token that starts at limit. No word is open.
func (r *run) take() {
	if r.hit.start < r.hit.stop {
		r.emit(r.hit.token.id)
	}
	r.pos = max(r.pos, r.hit.stop)
	r.floor = r.hit.stop
	r.limit = r.hit.end
	r.advance()
}

const (
	high  = 0x8080808080808080
	low7  = 0x7f7f7f7f7f7f7f7f
	ones  = 0x0101010101010101
	case1 = 0x2020202020202020
)

// alnum sets the high bit of each byte of w that is an ASCII letter or digit.
func alnum(w uint64) uint64 {
	// Adding moves a byte of 7 bits into its high bit when it reaches a bound; no carry leaves a byte.
	b := w & low7
	l := b | case1
	letter := (l + ones*(0x80-'a')) &^ (l + ones*(0x80-'z'-1))
	digit := (b + ones*(0x80-'0')) &^ (b + ones*(0x80-'9'-1))
	return (letter | digit) &^ w & high
}

// ascii takes what it can and leaves pos in front of a character that needs word.
func (r *run) ascii() {
	t := r.t
	text := unsafeBytes(r.text)
	pos, limit := r.pos, r.limit
	for pos+17 < limit && !r.over {
		w := binary.LittleEndian.Uint64(text[pos:])
		n := bits.TrailingZeros64(alnum(w)^high) >> 3
		if n == 0 {
			switch c := text[pos]; t.asciiClass[c] {
			case asciiSpace:
				pos++
				continue
			case asciiAlone:
				r.pos = pos
				r.emit(t.asciiID[c&127])
				pos += 1 + int(t.asciiSkip[text[pos+1]])
				continue
			}
			break
		}
		var id int32
		var lo, hi uint64
		if n < 8 {
			lo = (w | t.caseBits) & (1<<(8*n&63) - 1)
			id = t.vocab.short.get(lo)
		} else {
			lo = w | t.caseBits
			w = binary.LittleEndian.Uint64(text[pos+8:])
			k := bits.TrailingZeros64(alnum(w)^high) >> 3
			n += k
			if k > 0 {
				hi = (w | t.caseBits) & (1<<(8*k) - 1)
				id = t.vocab.long.get(lo, hi)
			} else {
				id = t.vocab.short.get(lo)
			}
		}
		next := text[pos+n]
		if t.asciiClass[next] > asciiAlone {
			break
		}
		r.pos = pos
		if id >= 0 {
			r.emit(id)
		} else {
			r.pieces(lo, hi, n)
		}
		pos += n + int(t.asciiSkip[next])
	}
	r.pos = pos
}

// pieces emits an ASCII word of n bytes that is not in the vocabulary as a whole.
func (r *run) pieces(lo, hi uint64, n int) {
	if n > r.t.vocab.max {
		r.emit(r.t.vocab.unk)
		return
	}
	buf := (*[16]byte)(r.buf[:16])
	binary.LittleEndian.PutUint64(buf[:8], lo)
	binary.LittleEndian.PutUint64(buf[8:], hi)
	r.split(buf[:n])
}

// split emits the pieces of a word: again and again the longest known one. A word with an unknown rest is unknown as a whole.
func (r *run) split(w []byte) {
	start, over := len(r.dst), r.over
	id, n := r.t.vocab.first.Longest(w)
	for {
		if n == 0 {
			r.dst, r.over = r.dst[:start], over
			r.emit(r.t.vocab.unk)
			return
		}
		r.emit(id)
		if w = w[n:]; len(w) == 0 {
			return
		}
		id, n = r.t.vocab.next.Longest(w)
	}
}

// word goes on until a word has ended, or to the end of the text.
func (r *run) word() {
	for {
		if r.pos >= r.limit {
			switch {
			case r.found:
				r.flush()
				r.take()
				return
			case r.pos >= len(r.text):
				r.flush()
				return
			default:
				r.advance()
				continue
			}
		}
		c, size := rune(r.text[r.pos]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRuneInString(r.text[r.pos:])
		}
		e := r.t.chars.entry(c)
		ended := r.put(c, e)
		r.pos += size
		if ended {
			return
		}
	}
}

// put adds what became of c to the open word. It says whether that ended a word.
func (r *run) put(c rune, e charEntry) (ended bool) {
	switch e.kind() {
	case charSame:
		r.letter(c)
	case charWord:
		r.letter(rune(e.value()))
	case charDrop:
	case charBreak:
		r.sortMarks()
	case charSpace:
		r.flush()
		return true
	case charAlone:
		r.flush()
		r.emit(int32(e.value()))
		return true
	case charMark:
		if r.chars+len(r.pending) <= r.t.vocab.max {
			r.pending = append(r.pending, r.t.chars.marks[e.value()])
		}
	case charMulti:
		at, n := e.value()>>4, e.value()&15
		for _, part := range r.t.chars.multi[at : at+n] {
			ended = r.put(rune(part.value()), part)
		}
	case charHangul:
		lead, vowel, tail := hangulParts(c)
		r.letter(lead)
		r.letter(vowel)
		if tail != 0 {
			r.letter(tail)
		}
	}
	return ended
}

// letter adds a character that marks are not sorted across.
func (r *run) letter(c rune) {
	if len(r.pending) > 0 {
		r.sortMarks()
	}
	r.keep(c)
}

func (r *run) keep(c rune) {
	r.chars++
	if r.chars <= r.t.vocab.max {
		r.buf = utf8.AppendRune(r.buf, c)
	}
}

func (r *run) sortMarks() {
	if len(r.pending) == 0 {
		return
	}
	slices.SortStableFunc(r.pending, func(a, b mark) int { return int(a.class) - int(b.class) })
	for _, m := range r.pending {
		r.keep(m.r)
	}
	r.pending = r.pending[:0]
}

// flush emits the open word, if there is one.
func (r *run) flush() {
	r.sortMarks()
	if r.chars == 0 {
		return
	}
	v := r.t.vocab
	if r.chars > v.max {
		r.emit(v.unk)
	} else if id := v.whole(r.buf); id >= 0 {
		r.emit(id)
	} else {
		r.split(r.buf)
	}
	r.chars, r.buf = 0, r.buf[:0]
}

// unsafeBytes is s as bytes, which must not be written.
func unsafeBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// unlimited is a stop for runs that take the whole text.
const unlimited = math.MaxInt
