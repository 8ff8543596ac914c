package inference

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ragate/inference/ort"
	"ragate/models"
)

var (
	nan32 = float32(math.NaN())
	inf32 = float32(math.Inf(1))
)

// TestPoolAgainstAPlainReference compares every pooling with sums in float64, at widths with and without a tail.
func TestPoolAgainstAPlainReference(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, width := range []int{1, 3, 4, 7, 8, 9, 384, 385} {
		for _, n := range []int{1, 2, 3, 128, 512} {
			tokens := make([]float32, n*width)
			for i := range tokens {
				tokens[i] = float32(r.NormFloat64())
			}
			got := make([]float32, width)
			for _, p := range []models.Pooling{models.PoolMean, models.PoolCLS, models.PoolMax, models.PoolLast} {
				for i := range got {
					got[i] = nan32 // what was there before must not matter
				}
				pool(got, tokens, p)
				for d := range width {
					sum, most := 0.0, math.Inf(-1)
					for k := range n {
						x := float64(tokens[k*width+d])
						sum, most = sum+x, max(most, x)
					}
					want := map[models.Pooling]float64{
						models.PoolMean: sum / float64(n), models.PoolCLS: float64(tokens[d]),
						models.PoolMax: most, models.PoolLast: float64(tokens[(n-1)*width+d]),
					}[p]
					if math.Abs(float64(got[d])-want) > 2e-6 {
						t.Fatalf("%s of %d × %d: dimension %d is %v, want %v", p, n, width, d, got[d], want)
					}
				}
			}
		}
	}
}

func TestReadTakesARowsOwnTokens(t *testing.T) {
	// Two rows of two dimensions, padded to three tokens; the first has one token, the second two.
	out := ort.Output{Shape: []int64{2, 3, 2}, Values: []float32{
		1, 2, nan32, nan32, nan32, nan32,
		3, 4, 5, -6, inf32, inf32,
	}}
	for pooling, want := range map[models.Pooling][2][]float32{
		models.PoolMean: {{1, 2}, {4, -1}},
		models.PoolMax:  {{1, 2}, {5, 4}},
		models.PoolCLS:  {{1, 2}, {3, 4}},
		models.PoolLast: {{1, 2}, {5, -6}},
	} {
		h := head{form: models.FormTokens, pooling: pooling, width: 2}
		if err := h.check(out, 2, 3); err != nil {
			t.Fatal(err)
		}
		for r, n := range []int{1, 2} {
			got := make([]float32, 2)
			if err := h.read(got, out, r, n, 3); err != nil || !slices.Equal(got, want[r]) {
				t.Errorf("%s, row %d: %v, %v; want %v", pooling, r, got, err, want[r])
			}
		}
	}
}

func TestReadScores(t *testing.T) {
	one := head{form: models.FormScores, width: 1, columns: 1}
	two := func(relevant int) head {
		return head{form: models.FormScores, width: 1, columns: 2, relevant: relevant}
	}
	for _, c := range []struct {
		h      head
		values []float32
		row    int
		want   float32
	}{
		{one, []float32{1, -2, 3}, 1, -2},
		{two(1), []float32{1, 5, 2, -2}, 0, 4},
		{two(1), []float32{1, 5, 2, -2}, 1, -4},
		{two(0), []float32{1, 5, 2, -2}, 1, 4},
	} {
		out := ort.Output{Values: c.values}
		got := make([]float32, 1)
		if err := c.h.check(out, len(c.values)/c.h.columns, 7); err != nil {
			t.Fatal(err)
		}
		if err := c.h.read(got, out, c.row, 5, 7); err != nil || got[0] != c.want {
			t.Errorf("row %d of %v with %d columns: %v, %v; want %v", c.row, c.values, c.h.columns, got[0], err, c.want)
		}
	}
}

func TestReadRefusesWhatIsNotFinite(t *testing.T) {
	for name, c := range map[string]struct {
		h      head
		values []float32
		tokens int
	}{
		"NaN in a vector":          {head{form: models.FormVector, width: 3}, []float32{1, nan32, 2}, 1},
		"an infinity":              {head{form: models.FormVector, width: 3}, []float32{1, 2, -inf32}, 1},
		"NaN in a token":           {head{form: models.FormTokens, pooling: models.PoolMean, width: 1}, []float32{1, nan32}, 2},
		"NaN under max":            {head{form: models.FormTokens, pooling: models.PoolMax, width: 1}, []float32{nan32, 1}, 2},
		"a sum beyond float32":     {head{form: models.FormTokens, pooling: models.PoolMean, width: 1}, []float32{3e38, 3e38}, 2},
		"a logit":                  {head{form: models.FormScores, width: 1, columns: 1}, []float32{nan32}, 1},
		"two infinities' distance": {head{form: models.FormScores, width: 1, columns: 2}, []float32{inf32, inf32}, 1},
		"a row without tokens":     {head{form: models.FormTokens, pooling: models.PoolLast, width: 1}, []float32{1, 2}, 0},
		"no tokens, mean":          {head{form: models.FormTokens, pooling: models.PoolMean, width: 1}, []float32{1, 2}, 0},
	} {
		got := make([]float32, c.h.width)
		cols := len(c.values) / c.h.width
		if err := c.h.read(got, ort.Output{Values: c.values}, 0, c.tokens, cols); !errors.Is(err, ErrNotFinite) {
			t.Errorf("%s: %v", name, err)
		}
		for _, x := range got {
			if x == x {
				t.Errorf("%s: the result is %v, not NaN throughout", name, got)
			}
		}
	}
}

func TestCheckRefusesAnotherShape(t *testing.T) {
	for _, h := range []head{
		{form: models.FormTokens, width: 4},
		{form: models.FormVector, width: 4},
		{form: models.FormScores, width: 1, columns: 4},
	} {
		if h.check(ort.Output{Values: make([]float32, 13)}, 3, 5) == nil {
			t.Errorf("form %d accepts 13 values for a batch of 3 × 5", h.form)
		}
	}
}

func TestNormalize(t *testing.T) {
	for _, v := range [][]float32{{3, 4}, {1e-20, 2e-20}, {1e30, -1e30, 1e30}, {-7}} {
		w := slices.Clone(v)
		normalize(w)
		want := 1.0
		if n := length(v); n < minNorm {
			want = n / minNorm
		}
		if math.Abs(length(w)-want) > 1e-6 {
			t.Errorf("%v becomes %v, of length %v; want %v", v, w, length(w), want)
		}
	}
	zeros := []float32{0, 0, 0}
	if normalize(zeros); !slices.Equal(zeros, []float32{0, 0, 0}) {
		t.Errorf("zeros become %v", zeros)
	}
}

func TestSigmoid(t *testing.T) {
	for _, c := range []struct {
		logit float32
		want  float64
	}{
		{0, 0.5}, {1, 0.7310585786300049}, {-1, 0.2689414213699951}, {40, 1}, {1e30, 1}, {-1e30, 0}, {inf32, 1}, {-inf32, 0},
		{-40, 4.248354255291589e-18}, {-100, 3.720075976020836e-44},
	} {
		if got := Sigmoid(c.logit); math.Abs(got-c.want) > 1e-15*c.want {
			t.Errorf("sigmoid of %v is %v, want %v", c.logit, got, c.want)
		}
	}
	if got := Sigmoid(nan32); got == got {
		t.Errorf("sigmoid of NaN is %v", got)
	}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   []int
	}{
		{nil, []int{}},
		{[]float32{1, 3, 2}, []int{1, 2, 0}},
		{[]float32{2, 3, 2, 3}, []int{1, 3, 0, 2}},          // ties in the order they came
		{[]float32{40, 41, 39}, []int{1, 0, 2}},             // whose scores are all 1
		{[]float32{nan32, 1, nan32, -5}, []int{1, 3, 0, 2}}, // what failed comes last
		{[]float32{inf32, 1, -inf32, nan32}, []int{0, 1, 2, 3}},
		{[]float32{float32(math.Copysign(0, -1)), 0, 0}, []int{0, 1, 2}},
	} {
		if got := Order(c.logits); !slices.Equal(got, c.want) {
			t.Errorf("order of %v is %v, want %v", c.logits, got, c.want)
		}
	}
}
