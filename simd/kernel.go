package simd

import (
	"github.com/viterin/vek"
	"github.com/viterin/vek/vek32"
)

// A kernel writes to dst[i] the dot product of q and row i of the len(dst) rows, each len(q) long. Every row must be summed in the same
// order, so that equal rows score equal.
type kernel func(dst, rows, q []float32)

// accelerated tells whether vek has kernels for this processor. Its own fallback keeps one running sum per row and is several times slower
// than dotsPlain.
var accelerated = vek.Info().Acceleration

// best returns the kernel for this machine.
func best() kernel {
	if accelerated {
		return dotsVek
	}
	return dotsPlain
}

const (
	// blockFloats is how many elements of the matrix are handled at a time: 256 kB, which stays in a core's second-level cache while a
	// batch of queries passes over it.
	blockFloats = 64 << 10
	// vekSerial is the size of a product below which vek does it in the calling goroutine. Above, it starts goroutines of its own.
	vekSerial = 100_000
)

// The next line does not compile unless a block stays below vek's limit.
const _ = uint(vekSerial - 1 - blockFloats)

// blockRows is how many rows of dim elements make a block.
func blockRows(dim int) int { return max(1, blockFloats/dim) }

// dotsVek takes the matrix-vector product, not one Dot per row: one call for the block instead of one per row.
func dotsVek(dst, rows, q []float32) {
	if len(rows) >= vekSerial && len(dst) >= 4 {
		panic("simd: a block of rows is too large for one call") // blockRows keeps it smaller
	}
	vek32.MatMul_Into(dst, rows, q, len(q))
}

// dotsPlain is the reference and the fallback. Eight sums instead of one let the processor overlap the additions, and halve the rounding
// error's growth three times.
func dotsPlain(dst, rows, q []float32) {
	n := len(q)
	for i := range dst {
		dst[i] = dotPlain(rows[i*n:(i+1)*n:(i+1)*n], q)
	}
}

func dotPlain(x, y []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(x) >= 8 && len(y) >= 8 {
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		s4 += x[4] * y[4]
		s5 += x[5] * y[5]
		s6 += x[6] * y[6]
		s7 += x[7] * y[7]
		x, y = x[8:], y[8:]
	}
	for i, v := range x {
		s0 += v * y[i]
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}
