package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

const seed = 20240607

func random(t testing.TB, stream uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d, stream %d", seed, stream)
	return rand.New(rand.NewPCG(seed, stream))
}

func vector(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// kernels are all that can run here. On a machine with AVX2 both must be among them, or half of the tests would be empty.
func kernels(t testing.TB) map[string]kernel {
	t.Helper()
	ks := map[string]kernel{"plain": dotsPlain, "vek": dotsVek}
	if !accelerated {
		t.Logf("no AVX2 here: vek runs its own fallback")
	}
	return ks
}

func withKernel(m *Matrix, k kernel) *Matrix {
	m.kernel = k
	return m
}

// dot64 returns the dot product in float64 and the sum of the absolute products, to which rounding errors are relative.
func dot64(x, y []float32) (sum, abs float64) {
	for i, a := range x {
		p := float64(a) * float64(y[i])
		sum += p
		abs += math.Abs(p)
	}
	return sum, abs
}

// bound is the most that a float32 dot product of n terms can be off, in any order of summation: n roundings of at most half a unit in the
// last place of the sum of absolute products, and for subnormal products half of the smallest float32 each.
func bound(n int, abs float64) float64 {
	const unit = 0x1p-24
	return float64(n)*unit/(1-float64(n)*unit)*abs + float64(n)*0x1p-150
}

func TestKernelsStayWithinRounding(t *testing.T) {
	for name, k := range kernels(t) {
		r := random(t, 1)
		for dim := 1; dim <= 130; dim++ {
			checkKernel(t, name, k, r, dim, 7, 1)
		}
		for _, dim := range []int{255, 256, 384, 385, 768, 1024, 4099} {
			checkKernel(t, name, k, r, dim, 5, 1)
		}
		for _, scale := range []float64{1e-30, 1e-22, 1e-19, 1e-10, 1e10, 1e16} { // 1e-22: every product is subnormal; 1e-30: they vanish
			checkKernel(t, fmt.Sprint(name, " at ", scale), k, r, 100, 5, scale)
		}
	}
}

func checkKernel(t *testing.T, name string, k kernel, r *rand.Rand, dim, rows int, scale float64) {
	t.Helper()
	m, q := vector(r, dim*rows), vector(r, dim)
	for _, v := range [][]float32{m, q} {
		for i := range v {
			v[i] *= float32(scale)
		}
	}
	dst := make([]float32, rows+1)
	for i := range dst {
		dst[i] = 99 // what was there must not count
	}
	k(dst[:rows], m, q)
	if dst[rows] != 99 {
		t.Fatalf("%s, %d: wrote past the end", name, dim)
	}
	for i := range rows {
		want, abs := dot64(m[i*dim:(i+1)*dim], q)
		if d := math.Abs(float64(dst[i]) - want); !(d <= bound(dim, abs)) {
			t.Fatalf("%s, %d elements, row %d: %v, want %v within %v", name, dim, i, dst[i], want, bound(dim, abs))
		}
	}
}

func TestExtremes(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	tiny, huge := float32(math.SmallestNonzeroFloat32), float32(math.MaxFloat32)
	for name, k := range kernels(t) {
		for _, dim := range []int{1, 8, 31, 32, 33, 64, 100, 384} {
			for at := range dim { // the unusual element in every lane and tail
				for _, c := range []struct{ x, q, want float32 }{
					{nan, 1, nan}, {1, nan, nan}, {nan, 0, nan}, {nan, inf, nan},
					{inf, 1, inf}, {inf, -1, -inf}, {-inf, -2, inf}, {inf, 0, nan}, {inf, inf, inf},
					{huge, 1, huge}, {huge, 2, inf}, {-huge, huge, -inf}, {huge, 0.5, huge / 2},
					{tiny, 1, tiny}, {-tiny, 3, -3 * tiny}, {tiny, 0.25, 0}, {tiny, tiny, 0},
					{0, 5, 0}, {3, 5, 15},
				} {
					row, q := make([]float32, dim), make([]float32, dim)
					row[at], q[at] = c.x, c.q
					got := []float32{7}
					k(got, row, q)
					if got[0] != c.want && !(isNaN(got[0]) && isNaN(c.want)) {
						t.Fatalf("%s, %d elements, %v·%v at %d: %v, want %v", name, dim, c.x, c.q, at, got[0], c.want)
					}
				}
			}
		}
	}
}

func isNaN(x float32) bool { return x != x }

// A row's score must not depend on where it lies, nor on the block it is in, nor on the function that is asked.
func TestScoreDependsOnRowAndQueryAlone(t *testing.T) {
	for name, k := range kernels(t) {
		r := random(t, 2)
		for _, dim := range []int{1, 3, 32, 50, 384, 1000} {
			row, q := vector(r, dim), vector(r, dim)
			rows := blockRows(dim) + 13
			if rows > 3000 {
				rows = 3000
			}
			m := withKernel(New(dim, 0), k)
			for range rows {
				m.Append(row)
			}
			want := m.AppendDots(nil, q)[0]
			for i, s := range m.AppendDots(nil, q) {
				if s != want {
					t.Fatalf("%s, %d elements: row %d scores %v, row 0 %v", name, dim, i, s, want)
				}
			}
			batch := Wrap(dim, slices.Concat(vector(r, dim), q, vector(r, dim)))
			for i, f := range m.AppendTopKBatch(nil, batch, 5)[5:10] {
				if f != (Match{i, want}) {
					t.Fatalf("%s, %d elements: match %d is %v, want score %v", name, dim, i, f, want)
				}
			}
			if d := Dot(row, q); accelerated == (name == "vek") && d != want {
				t.Errorf("%s, %d elements: Dot gives %v, the matrix %v", name, dim, d, want)
			}
		}
	}
}

func TestAppendDotsOverBlocks(t *testing.T) {
	for name, k := range kernels(t) {
		r := random(t, 3)
		for _, c := range []struct{ dim, rows int }{{1, 70_000}, {384, 170}, {384, 171}, {384, 513}, {7, 9363}, {30_000, 5}, {70_000, 3}, {5, 1}, {5, 0}} {
			m := withKernel(Wrap(c.dim, vector(r, c.dim*c.rows)), k)
			q := vector(r, c.dim)
			got := m.AppendDots([]float32{-1, -2}, q)
			if len(got) != c.rows+2 || got[0] != -1 || got[1] != -2 {
				t.Fatalf("%s, %+v: %d scores", name, c, len(got))
			}
			for i, s := range got[2:] {
				want, abs := dot64(m.Row(i), q)
				if d := math.Abs(float64(s) - want); !(d <= bound(c.dim, abs)) {
					t.Fatalf("%s, %+v, row %d: %v, want %v", name, c, i, s, want)
				}
			}
		}
	}
}

// sorted is the reference for top k: sort everything by what the documentation says.
func sorted(scores []float32, k int) []Match {
	all := make([]Match, len(scores))
	for i, s := range scores {
		all[i] = Match{i, s}
	}
	slices.SortStableFunc(all, func(a, b Match) int {
		switch {
		case isNaN(a.Score) && isNaN(b.Score):
			return 0
		case isNaN(b.Score) || a.Score > b.Score:
			return -1
		case isNaN(a.Score) || a.Score < b.Score:
			return 1
		}
		return 0
	})
	return all[:max(0, min(k, len(all)))]
}

func sameMatches(a, b []Match) bool {
	return slices.EqualFunc(a, b, func(x, y Match) bool {
		return x.Index == y.Index && (x.Score == y.Score || isNaN(x.Score) && isNaN(y.Score))
	})
}

func TestTopK(t *testing.T) {
	for name, k := range kernels(t) {
		r := random(t, 4)
		for range 300 {
			dim, rows := 1+r.IntN(40), r.IntN(400)
			m := withKernel(Wrap(dim, vector(r, dim*rows)), k)
			if r.IntN(2) == 0 { // many equal scores
				for i := range m.values {
					m.values[i] = float32(r.IntN(3) - 1)
				}
			}
			if rows > 0 {
				for range r.IntN(20) {
					m.Row(r.IntN(rows))[r.IntN(dim)] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32}[r.IntN(4)]
				}
			}
			queries := Wrap(dim, vector(r, dim*(1+r.IntN(5))))
			top := []int{-1, 0, 1, 2, 10, rows - 1, rows, rows + 3}[r.IntN(8)]
			batch := m.AppendTopKBatch([]Match{{-5, 5}}, queries, top)
			if batch[0] != (Match{-5, 5}) {
				t.Fatal("what was in front is gone")
			}
			batch = batch[1:]
			for i := range queries.Rows() {
				want := sorted(m.AppendDots(nil, queries.Row(i)), top)
				one := m.AppendTopK(nil, queries.Row(i), top)
				if !sameMatches(one, want) {
					t.Fatalf("%s, %d rows, best %d:\n%v, want\n%v", name, rows, top, one, want)
				}
				if !sameMatches(batch[:len(want)], want) {
					t.Fatalf("%s, %d rows, best %d, query %d of a batch:\n%v, want\n%v", name, rows, top, i, batch[:len(want)], want)
				}
				batch = batch[len(want):]
			}
			if len(batch) != 0 {
				t.Fatalf("%d matches too many", len(batch))
			}
		}
	}
}

// More matches than a block has rows: the heap is filled over several blocks.
func TestTopKLargerThanABlock(t *testing.T) {
	r := random(t, 5)
	m := Wrap(1024, vector(r, 1024*300))
	q := vector(r, 1024)
	if blockRows(1024) >= 200 {
		t.Fatalf("a block has %d rows; this test needs fewer than 200", blockRows(1024))
	}
	if got, want := m.AppendTopK(nil, q, 200), sorted(m.AppendDots(nil, q), 200); !sameMatches(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNaNComesLast(t *testing.T) {
	nan := float32(math.NaN())
	m := Wrap(1, []float32{nan, -3, nan, float32(math.Inf(-1)), 2, nan})
	want := []Match{{4, 2}, {1, -3}, {3, float32(math.Inf(-1))}, {0, nan}, {2, nan}, {5, nan}}
	for k := range 8 {
		if got := m.AppendTopK(nil, []float32{1}, k); !sameMatches(got, want[:min(k, 6)]) {
			t.Errorf("best %d: %v", k, got)
		}
	}
	if got := m.AppendTopK(nil, []float32{nan}, 3); !sameMatches(got, []Match{{0, nan}, {1, nan}, {2, nan}}) {
		t.Errorf("a NaN query: %v", got)
	}
}

func TestCosineAndNormalize(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		x, y []float32
		want float32
	}{
		{[]float32{1, 0}, []float32{0, 2}, 0}, {[]float32{1, 1}, []float32{3, 3}, 1}, {[]float32{1, 1}, []float32{-3, -3}, -1},
		{[]float32{3, 4}, []float32{4, 3}, 0.96},
		{[]float32{0, 0}, []float32{1, 2}, 0}, {[]float32{1, 2}, []float32{0, 0}, 0}, {[]float32{0, 0}, []float32{0, 0}, 0}, {nil, nil, 0},
		{[]float32{nan, 1}, []float32{1, 2}, nan}, {[]float32{1, 2}, []float32{nan, 1}, nan}, {[]float32{0, 0}, []float32{nan, 1}, nan},
		{[]float32{inf, 1}, []float32{1, 2}, nan}, {[]float32{-inf, 1}, []float32{0, 0}, nan}, {[]float32{inf, 1}, []float32{inf, 1}, nan},
		{[]float32{3e38, 3e38}, []float32{3e38, 0}, 0.70710678}, {[]float32{3e-45, 0}, []float32{3e-45, 3e-45}, 0.70710678},
		{[]float32{3e38, 0}, []float32{3e-45, 0}, 1}, {[]float32{1e-25, 1e-25}, []float32{1, 1}, 1},
	} {
		if got := Cosine(c.x, c.y); !(math.Abs(float64(got-c.want)) < 1e-6) && !(isNaN(got) && isNaN(c.want)) {
			t.Errorf("cosine of %v and %v: %v, want %v", c.x, c.y, got, c.want)
		}
		// The same through normalised copies.
		if len(c.x) == 0 {
			continue
		}
		got := Wrap(len(c.x), c.x).Normalized().AppendDots(nil, Normalize(make([]float32, len(c.y)), c.y))[0]
		if !(math.Abs(float64(got-c.want)) < 1e-6) && !(isNaN(got) && isNaN(c.want)) {
			t.Errorf("normalised product of %v and %v: %v, want %v", c.x, c.y, got, c.want)
		}
	}
	r := random(t, 6)
	for dim := 1; dim <= 130; dim++ {
		for _, scale := range []float32{1, 1e-30, 1e30} {
			x, y := vector(r, dim), vector(r, dim)
			for i := range x {
				x[i] *= scale
			}
			got := float64(Cosine(x, y))
			if want := float64(cosinePlain(x, y)); !(math.Abs(got-want) <= 1e-6) || got > 1 || got < -1 {
				t.Fatalf("%d elements at %v: %v, want %v", dim, scale, got, want)
			}
			if self := Cosine(x, x); !(self <= 1 && self > 1-1e-6) {
				t.Fatalf("%d elements at %v: a vector's cosine to itself is %v", dim, scale, self)
			}
			n := Normalize(x, x) // in place
			if length, _ := dot64(n, n); math.Abs(length-1) > 1e-6 {
				t.Fatalf("%d elements at %v: squared length %v", dim, scale, length)
			}
		}
	}
	if z := Normalize(make([]float32, 3), []float32{0, 0, 0}); !slices.Equal(z, []float32{0, 0, 0}) {
		t.Errorf("normalised zero: %v", z)
	}
	if n := Normalize(make([]float32, 3), []float32{0, nan, 1}); !isNaN(n[0]) || !isNaN(n[1]) || !isNaN(n[2]) {
		t.Errorf("normalised NaN: %v", n)
	}
}

func TestMatrixHoldsItsRows(t *testing.T) {
	m := New(3, 2)
	m.Set(1, []float32{4, 5, 6})
	if i := m.Append([]float32{7, 8, 9}); i != 2 || m.Rows() != 3 || m.Dim() != 3 {
		t.Errorf("index %d, %d rows of %d", i, m.Rows(), m.Dim())
	}
	if !slices.Equal(m.values, []float32{0, 0, 0, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("%v", m.values)
	}
	m.Row(0)[1] = 2
	part := m.Slice(1, 3)
	if got := part.AppendTopK(nil, []float32{1, 0, 0}, 1); got[0] != (Match{1, 7}) || part.Rows() != 2 {
		t.Errorf("%v", got)
	}
	part.Append([]float32{1, 1, 1}) // must not grow into m's memory
	_ = append(m.Row(0), 99)
	if m.Row(1)[0] != 4 || m.Rows() != 3 {
		t.Errorf("a row was written past its end: %v", m.values)
	}
	n := m.Normalized()
	if m.Row(0)[1] != 2 || n.Row(0)[1] != 1 {
		t.Errorf("%v became %v", m.Row(0), n.Row(0))
	}
	shared := Wrap(3, m.values)
	shared.Set(0, []float32{1, 2, 3})
	if m.Row(0)[2] != 3 {
		t.Error("Wrap copied")
	}
	m.Grow(100)
	first := &m.values[0]
	for range 100 {
		m.Append([]float32{1, 2, 3})
	}
	if first != &m.values[0] {
		t.Error("Append moved rows that Grow had made room for")
	}
}

func TestMisfitsPanic(t *testing.T) {
	m := New(3, 2)
	for name, f := range map[string]func(){
		"dimension":   func() { New(0, 1) },
		"wrap":        func() { Wrap(3, make([]float32, 4)) },
		"set":         func() { m.Set(0, []float32{1}) },
		"append":      func() { m.Append([]float32{1}) },
		"row":         func() { m.Row(2) },
		"dots":        func() { m.AppendDots(nil, []float32{1}) },
		"top k":       func() { m.AppendTopK(nil, []float32{1}, 1) },
		"batch":       func() { m.AppendTopKBatch(nil, New(2, 0), 1) },
		"dot":         func() { Dot([]float32{1}, nil) },
		"cosine":      func() { Cosine([]float32{1}, nil) },
		"normalize":   func() { Normalize([]float32{1}, nil) },
		"a big block": func() { dotsVek(make([]float32, 100), make([]float32, 100_000), make([]float32, 1000)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestParallelReads(t *testing.T) {
	r := random(t, 7)
	m := Wrap(384, vector(r, 384*1000))
	queries := Wrap(384, vector(r, 384*8))
	want := m.AppendTopKBatch(nil, queries, 7)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var dst []Match
			for range 20 {
				dst = m.AppendTopKBatch(dst[:0], queries, 7)
				if !slices.Equal(dst, want) {
					t.Errorf("%v, want %v", dst, want)
					return
				}
				dst = m.AppendTopK(dst[:0], queries.Row(3), 7)
				if !slices.Equal(dst, want[21:28]) {
					t.Errorf("%v, want %v", dst, want[21:28])
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestQueriesAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates, and makes sync.Pool forget; the budget holds without it")
		return
	}
	r := random(t, 8)
	m := Wrap(384, vector(r, 384*1000))
	queries := Wrap(384, vector(r, 384*8))
	dots, matches := make([]float32, 0, 1000), make([]Match, 0, 8*10)
	for name, f := range map[string]func(){
		"AppendDots":      func() { m.AppendDots(dots, queries.Row(0)) },
		"AppendTopK":      func() { m.AppendTopK(matches, queries.Row(0), 10) },
		"AppendTopKBatch": func() { m.AppendTopKBatch(matches, queries, 10) },
		"Dot":             func() { Dot(m.Row(0), m.Row(1)) },
		"Cosine":          func() { Cosine(m.Row(0), m.Row(1)) },
		"Normalize":       func() { Normalize(dots[:384], m.Row(1)) },
	} {
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// FuzzTopK: whatever the numbers, the best k are those of sorting all scores.
func FuzzTopK(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 192, 127, 0, 0, 128, 255}, uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, dim, k uint8) {
		n := 1 + int(dim)%40
		var vs []float32
		for len(b) >= 4 {
			vs = append(vs, math.Float32frombits(uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24))
			b = b[4:]
		}
		if len(vs) < n {
			return
		}
		q, rows := vs[:n], vs[n:len(vs)/n*n]
		m := Wrap(n, rows)
		if got, want := m.AppendTopK(nil, q, int(k)), sorted(m.AppendDots(nil, q), int(k)); !sameMatches(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
