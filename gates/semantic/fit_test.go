package semantic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLogistic draws labels from known coefficients and finds them again; and the gradient of what it minimises is zero there.
func TestLogistic(t *testing.T) {
	const seed = 11
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	want, intercept := []float64{3, -0.02, 0}, 0.5
	var rows [][]float64
	var y []bool
	for range 20000 {
		row := []float64{rng.NormFloat64(), 100 * rng.NormFloat64(), rng.NormFloat64()} // of different sizes
		z := intercept
		for j := range row {
			z += want[j] * row[j]
		}
		rows, y = append(rows, row), append(y, rng.Float64() < 1/(1+math.Exp(-z)))
	}
	w, b, err := logistic(rows, y, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	// Both classes weigh the same, which moves the intercept by the log odds of the classes and nothing else.
	positives := 0
	for _, v := range y {
		if v {
			positives++
		}
	}
	b += math.Log(float64(positives) / float64(len(y)-positives))
	if math.Abs(w[0]-3) > 0.15 || math.Abs(w[1]+0.02) > 0.001 || math.Abs(w[2]) > 0.06 || math.Abs(b-0.5) > 0.06 {
		t.Errorf("weights %v, intercept %v; want %v and %v", w, b, want, intercept)
	}
	w2, b2, err := logistic(rows, y, 1e-6)
	if err != nil || !slices.Equal(w, w2) || b2+math.Log(float64(positives)/float64(len(y)-positives)) != b {
		t.Error("a second fit differs")
	}
}

func TestLogisticSeparable(t *testing.T) {
	w, b, err := logistic([][]float64{{-2, 7}, {-1, 7}, {1, 7}, {2, 7}}, []bool{false, false, true, true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !(w[0] > 0.3 && w[0] < 3) || math.Abs(w[1]) > 1e-9 || math.Abs(b) > 1e-6 {
		t.Errorf("weights %v, intercept %v", w, b)
	}
	if _, _, err := logistic([][]float64{{1}, {2}}, []bool{true, true}, 1); err == nil {
		t.Error("one class: no error")
	}
	if _, _, err := logistic([][]float64{{math.NaN()}, {2}}, []bool{true, false}, 1); err == nil {
		t.Error("NaN: no error")
	}
}

func TestFitOptions(t *testing.T) {
	x := minimalIndex(t)
	for _, o := range []FitOptions{{TopK: -1}, {TopK: MaxTopK + 1}, {Ridge: -1}, {Features: []string{}}, {Features: []string{"novelty"}}} {
		if _, _, err := Fit(x, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	c, r, err := Fit(x, FitOptions{Features: []string{"contrast"}, TopK: 1})
	// hr is the only knowledge category: its references have none but the follow-up left on their side.
	if err != nil || r.NonRetrieval != 2 || r.Knowledge != 2 || c.Weights[3] == 0 || c.Weights[0] != 0 {
		t.Errorf("%+v, %+v, %v", c, r, err)
	}
}
