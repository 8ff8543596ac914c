package quality

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestRelevanceIsTheSigmoid(t *testing.T) {
	for _, c := range []struct {
		logit Logit
		want  float64
	}{
		{0, 0.5},
		{1, 0.7310585786300049},
		{-1, 0.2689414213699951},
		{1.0 / 16384, 0.5000152587890578},
		{10, 0.9999546021312976},
		{-10, 4.5397868702434395e-05},
		{-100, 3.720075976020836e-44},
		{40, 1},
		{math.MaxFloat32, 1},
		{-math.MaxFloat32, 0},
		{Logit(math.Inf(1)), 1},
		{Logit(math.Inf(-1)), 0},
	} {
		got := float64(c.logit.Relevance())
		if math.Abs(got-c.want) > 1e-15*c.want {
			t.Errorf("relevance of %v is %v, want %v", c.logit, got, c.want)
		}
	}
	if r := Logit(math.NaN()).Relevance(); !math.IsNaN(float64(r)) {
		t.Errorf("relevance of NaN is %v", r)
	}
}

// TestRelevanceNeverFallsWithTheLogit walks over neighbouring float32 numbers where rounding could put them out of order: around 0, where float64
// resolution is nearly used up, where relevance saturates, and at random.
func TestRelevanceNeverFallsWithTheLogit(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	starts := []float32{0, 1e-45, 3.7e-9, 3.725e-9, 1e-8, 1e-4, 1, 16, 17, 30, 36, 36.7, 37, 80, 87, 88, 103, 104, 700}
	for range 200 {
		starts = append(starts, float32(math.Exp(rng.Float64()*50-40)))
	}
	for _, start := range starts {
		for _, sign := range []float32{1, -1} {
			x := sign * start
			last := Logit(x).Relevance()
			for range 2000 {
				x = math.Nextafter32(x, float32(math.Inf(1)))
				r := Logit(x).Relevance()
				if r < last {
					t.Fatalf("seed %d: relevance falls from %v to %v at logit %v", seed, last, r, x)
				}
				last = r
			}
		}
	}
}

func TestScoreSpacesAreNotMixed(t *testing.T) {
	p := DefaultPolicy()
	for space, hint := range map[Space]string{"": "state space", SpaceLogit: "1/(1+e^-x)", SpaceSimilarity: "calibrate", "cosine@other": "calibrate"} {
		p.Space = space
		_, err := Resolve(p, Overrides{}, FAQ)
		var se *SpaceError
		if !errors.As(err, &se) || se.Got != space || se.Want != SpaceRelevance || !strings.Contains(err.Error(), hint) {
			t.Errorf("space %q: %v", space, err)
		}
	}
}
