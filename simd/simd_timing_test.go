package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/viterin/vek/vek32"
)

var (
	sinkFloat   float32
	sinkMatches []Match
)

// benchMatrix is larger than any cache: 100,000 × 384 is 154 MB.
func benchMatrix(dim, rows int) (m, queries *Matrix) {
	r := rand.New(rand.NewPCG(seed, 100))
	fill := func(n int) *Matrix {
		m := New(dim, n)
		for i := range m.values {
			m.values[i] = r.Float32() - 0.5
		}
		return m
	}
	return fill(rows), fill(64)
}

// loopDots is what one writes first: one sum, one multiplication after the other.
func loopDots(dst []float32, m *Matrix, q []float32) {
	for i := range dst {
		sum := float32(0)
		for j, x := range m.Row(i) {
			sum += x * q[j]
		}
		dst[i] = sum
	}
}

// touchLines reads one element of every cache line, which moves as much memory as reading all and computes next to nothing.
func touchLines(v []float32) float32 {
	const line = 16
	var a, b, c, d float32
	for len(v) > 4*line {
		a += v[0]
		b += v[line]
		c += v[2*line]
		d += v[3*line]
		v = v[4*line:]
	}
	return a + b + c + d
}

// BenchmarkAgainstMemory alternates, in one run, reading the matrix as fast as this machine can, searching it for one query, for batches,
// and in a plain loop. It reports the best time of each, as ratios: other programs only ever slow a run down.
func BenchmarkAgainstMemory(b *testing.B) {
	m, queries := benchMatrix(384, 100_000)
	size := float64(4 * len(m.values))
	dots := make([]float32, m.Rows())
	matches := make([]Match, 0, 10*queries.Rows())
	batches := []int{4, 16, 64}
	work := map[string]func(){
		"sum":   func() { sinkFloat = vek32.Sum(m.values) },
		"touch": func() { sinkFloat = touchLines(m.values) },
		"one":   func() { sinkMatches = m.AppendTopK(matches, queries.Row(0), 10) },
		"loop":  func() { loopDots(dots, m, queries.Row(0)) },
		"plain": func() { dotsPlain(dots, m.values, queries.Row(0)) },
	}
	for _, n := range batches {
		work[fmt.Sprint(n)] = func() { sinkMatches = m.AppendTopKBatch(matches, queries.Slice(0, n), 10) }
	}
	best := map[string]time.Duration{}
	for name := range work {
		best[name] = math.MaxInt64
	}
	b.ReportAllocs()
	for b.Loop() {
		for name, f := range work {
			start := time.Now()
			f()
			best[name] = min(best[name], time.Since(start))
		}
	}
	best["read"] = min(best["sum"], best["touch"])
	b.ReportMetric(size/best["read"].Seconds()/1e9, "read-GB/s")
	b.ReportMetric(size/best["one"].Seconds()/1e9, "search-GB/s")
	b.ReportMetric(float64(best["read"])/float64(best["one"]), "of-bandwidth")
	b.ReportMetric(float64(best["loop"])/float64(best["one"]), "x-loop")
	b.ReportMetric(float64(best["loop"])/float64(best["plain"]), "plain-x-loop")
	for _, n := range batches {
		b.ReportMetric(float64(best["one"])*float64(n)/float64(best[fmt.Sprint(n)]), fmt.Sprintf("x-batch%d", n))
	}
}

func BenchmarkDot(b *testing.B) {
	for _, dim := range []int{32, 100, 384, 1024} {
		m, q := benchMatrix(dim, 64)
		for name, k := range map[string]kernel{"plain": dotsPlain, "vek": dotsVek} {
			b.Run(fmt.Sprintf("%s/%d", name, dim), func(b *testing.B) {
				dst := make([]float32, m.Rows())
				b.SetBytes(int64(4 * len(m.values)))
				b.ReportAllocs()
				for b.Loop() {
					k(dst, m.values, q.Row(0))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m.Rows()), "ns/row")
			})
		}
	}
}

func BenchmarkTopK(b *testing.B) {
	for _, rows := range []int{200, 5_000} { // a gate's references
		for _, k := range []int{1, 10, 100} {
			m, q := benchMatrix(384, rows)
			b.Run(fmt.Sprintf("%dof%d", k, rows), func(b *testing.B) {
				dst := make([]Match, 0, k)
				b.ReportAllocs()
				for b.Loop() {
					sinkMatches = m.AppendTopK(dst, q.Row(0), k)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
			})
		}
	}
}
