package server

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"ragate/inference"
)

func TestRelevance(t *testing.T) {
	for _, c := range []struct{ logit, want, tol float64 }{
		{0, 0.5, 0}, {1, 0.7310585786300049, 1e-16}, {-1, 0.2689414213699951, 1e-16}, {8.5, 0.9997965730219448, 1e-16},
		{100, 1, 0}, {1000, 1, 0}, {-1000, 0, 0}, {-100, 3.720075976020836e-44, 1e-58},
	} {
		if got := inference.Sigmoid(float32(c.logit)); math.Abs(got-c.want) > c.tol {
			t.Errorf("Sigmoid(%v) = %v, want %v", c.logit, got, c.want)
		}
	}
}

// The order is by logit as float32, then by index, whatever the input; a prefix of it is what top asks for.
func TestRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for round := range 200 {
		logits := make([]float32, rng.IntN(60))
		for i := range logits {
			logits[i] = float32(rng.IntN(9)-4) * 10
		}
		want := make([]int, len(logits))
		for i := range want {
			want[i] = i
		}
		sort.SliceStable(want, func(i, j int) bool { return logits[want[i]] > logits[want[j]] })
		for _, top := range []int{0, 1, len(logits), len(logits) + 5} {
			got := rank(logits, top)
			n := len(logits)
			if top > 0 && top < n {
				n = top
			}
			if len(got) != n {
				t.Fatalf("seed %d round %d: top %d of %d gave %d", seed, round, top, len(logits), len(got))
			}
			for i, r := range got {
				if r.index != want[i] || r.logit != logits[r.index] {
					t.Fatalf("seed %d round %d: place %d has %+v, want index %d", seed, round, i, r, want[i])
				}
			}
		}
	}
	zero := rank([]float32{float32(math.Copysign(0, -1)), 0}, 0)
	if zero[0].index != 0 || zero[1].index != 1 {
		t.Error("-0 and 0 are not equal")
	}
}

func TestShorten(t *testing.T) {
	full := unitVector(3 * 16)
	rows := func() *inference.Embeddings { return &inference.Embeddings{Dim: 16, Values: slices.Clone(full)} }
	for _, dim := range []int{1, 5, 15} {
		for _, normalize := range []bool{true, false} {
			e := rows()
			shorten(e, dim, normalize)
			if e.Dim != dim || len(e.Values) != 3*dim {
				t.Fatalf("to %d: %d values of %d dimensions", dim, len(e.Values), e.Dim)
			}
			for i := range 3 {
				head := full[i*16 : i*16+dim]
				scale := 1.0
				if normalize {
					sum := 0.0
					for _, v := range head {
						sum += float64(v) * float64(v)
					}
					scale = 1 / math.Sqrt(sum)
				}
				for j, v := range e.Row(i) {
					if math.Abs(float64(v)-float64(head[j])*scale) > 1e-6 {
						t.Fatalf("to %d, scaled %v: row %d value %d is %v", dim, normalize, i, j, v)
					}
				}
			}
		}
	}
	for _, dim := range []int{0, 16} {
		e := rows()
		shorten(e, dim, true)
		if e.Dim != 16 || !slices.Equal(e.Values, full) {
			t.Errorf("to %d: the vectors changed", dim)
		}
	}
	e := &inference.Embeddings{Dim: 2, Values: []float32{0, 1}}
	shorten(e, 1, true)
	if e.Values[0] != 0 {
		t.Errorf("a vector of which nothing is left became %v", e.Values)
	}
}

func TestCosine(t *testing.T) {
	for _, c := range []struct {
		a, b []float32
		want float32
	}{
		{[]float32{1, 0}, []float32{2, 0}, 1}, {[]float32{1, 0}, []float32{0, 3}, 0}, {[]float32{1, 1}, []float32{-2, -2}, -1},
		{[]float32{0, 0}, []float32{1, 0}, 0}, {[]float32{3, 4}, []float32{4, 3}, 0.96},
	} {
		if got := cosine(c.a, c.b); math.Abs(float64(got-c.want)) > 1e-7 {
			t.Errorf("cosine(%v, %v) = %v", c.a, c.b, got)
		}
	}
	v := unitVector(384)
	if got := cosine(v, v); got > 1.0000001 || got < 0.9999999 {
		t.Errorf("a vector against itself: %v", got)
	}
}
