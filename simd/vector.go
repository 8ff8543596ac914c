package simd

import (
	"fmt"
	"math"

	"github.com/viterin/vek/vek32"
)

// Dot returns the dot product of two vectors of one length, summed in float32.
func Dot(x, y []float32) float32 {
	if len(x) != len(y) {
		panic(fmt.Sprintf("simd: dot product of vectors with %d and %d elements", len(x), len(y)))
	}
	if len(x) == 0 {
		return 0
	}
	if accelerated {
		return vek32.Dot(x, y)
	}
	return dotPlain(x, y)
}

// Squared lengths between these bounds were summed without overflow, and whatever underflowed is below float32's precision.
const (
	safeLow  = 0x1p-60
	safeHigh = 0x1p100
)

// Cosine returns the cosine of the angle between two vectors of one length, in [-1, 1]. It is 0 when either is zero and NaN when either
// holds a NaN or an infinity. For many comparisons normalise once and take dot products.
func Cosine(x, y []float32) float32 {
	xy, xx, yy := Dot(x, y), Dot(x, x), Dot(y, y)
	if xx > safeLow && xx < safeHigh && yy > safeLow && yy < safeHigh {
		return clamp(float64(xy) / math.Sqrt(float64(xx)*float64(yy)))
	}
	return cosinePlain(x, y)
}

// cosinePlain sums in float64, which holds the square of any float32.
func cosinePlain(x, y []float32) float32 {
	var xy, xx, yy float64
	for i, a := range x {
		a, b := float64(a), float64(y[i])
		xy += a * b
		xx += a * a
		yy += b * b
	}
	switch {
	case xx == 0 && finite(yy), yy == 0 && finite(xx):
		return 0
	case !finite(xx) || !finite(yy):
		return float32(math.NaN())
	}
	return clamp(xy / (math.Sqrt(xx) * math.Sqrt(yy)))
}

// Normalize writes to dst the vector of length 1 in the direction of v and returns dst. They have one length and may be the same memory.
// The zero vector stays zero; a vector with a NaN or an infinity becomes NaN throughout.
func Normalize(dst, v []float32) []float32 {
	if len(dst) != len(v) {
		panic(fmt.Sprintf("simd: a vector of %d elements normalised into %d", len(v), len(dst)))
	}
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	scale := 0.0
	switch {
	case !finite(sum):
		scale = math.NaN()
	case sum > 0:
		scale = 1 / math.Sqrt(sum)
	}
	for i, x := range v {
		dst[i] = float32(float64(x) * scale)
	}
	return dst
}

// clamp takes off what rounding put beyond a cosine's range; NaN stays.
func clamp(c float64) float32 { return float32(max(-1, min(1, c))) }

func finite(x float64) bool { return x-x == 0 }
