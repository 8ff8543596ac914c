package simd

import (
	"fmt"
	"slices"
	"sync"
)

// Matrix is a list of vectors of one length, kept row after row in one block of memory.
type Matrix struct {
	dim    int
	values []float32
	kernel kernel

	scratch sync.Pool // *[]float32, a block's scores
}

// New returns a matrix of zero rows, each dim elements long. dim must be positive.
func New(dim, rows int) *Matrix { return Wrap(dim, make([]float32, dim*rows)) }

// Wrap returns a matrix over values, row after row, sharing their memory.
func Wrap(dim int, values []float32) *Matrix {
	if dim <= 0 || len(values)%dim != 0 {
		panic(fmt.Sprintf("simd: %d values do not make rows of %d", len(values), dim))
	}
	return &Matrix{dim: dim, values: values, kernel: best()}
}

// Dim is the length of a row.
func (m *Matrix) Dim() int { return m.dim }

// Rows is the number of rows.
func (m *Matrix) Rows() int { return len(m.values) / m.dim }

// Row returns row i, sharing its memory.
func (m *Matrix) Row(i int) []float32 {
	return m.values[i*m.dim : (i+1)*m.dim : (i+1)*m.dim]
}

// Slice returns the rows from i up to, not including, j, sharing their memory. Index 0 of the result is row i.
func (m *Matrix) Slice(i, j int) *Matrix {
	return &Matrix{dim: m.dim, values: m.values[i*m.dim : j*m.dim : j*m.dim], kernel: m.kernel}
}

// Set copies v into row i.
func (m *Matrix) Set(i int, v []float32) {
	m.check(v)
	copy(m.Row(i), v)
}

// Append adds a copy of v as the last row and returns its index. It may move the rows: slices from Row and Slice then show the old ones.
func (m *Matrix) Append(v []float32) int {
	m.check(v)
	m.values = append(m.values, v...)
	return m.Rows() - 1
}

// Grow makes room for n more rows, so that appending them moves nothing.
func (m *Matrix) Grow(n int) { m.values = slices.Grow(m.values, n*m.dim) }

// Normalized returns a copy with every row scaled to length 1, as Normalize does. Its dot products with a normalised query are cosines.
func (m *Matrix) Normalized() *Matrix {
	n := &Matrix{dim: m.dim, values: make([]float32, len(m.values)), kernel: m.kernel}
	for i := range m.Rows() {
		Normalize(n.Row(i), m.Row(i))
	}
	return n
}

func (m *Matrix) check(v []float32) {
	if len(v) != m.dim {
		panic(fmt.Sprintf("simd: a vector of %d elements for rows of %d", len(v), m.dim))
	}
}

// AppendDots appends the dot product of q with every row, in their order.
func (m *Matrix) AppendDots(dst []float32, q []float32) []float32 {
	m.check(q)
	at := len(dst)
	dst = slices.Grow(dst, m.Rows())[:at+m.Rows()]
	out := dst[at:]
	for step := blockRows(m.dim); len(out) > 0; {
		first := m.Rows() - len(out)
		n := min(step, len(out))
		m.kernel(out[:n], m.values[first*m.dim:(first+n)*m.dim], q)
		out = out[n:]
	}
	return dst
}

// scores borrows room for the scores of one block.
func (m *Matrix) scores() *[]float32 {
	if s, ok := m.scratch.Get().(*[]float32); ok {
		return s
	}
	s := make([]float32, min(blockRows(m.dim), max(1, m.Rows())))
	return &s
}
