package evaluate

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// reference is testdata/reference.json, which testdata/reference.py makes with scipy.
type reference struct {
	Beta, Quantile, Upper, Student, Needed [][]float64
	ClopperPearson                         [][]float64 `json:"clopper_pearson"`
	NDCG                                   []struct {
		Ranked, Ideal []int
		K             int
		Gain          Gain
		Want          float64
	}
	KornGraubard []struct {
		Count, Of []int
		Low, High float64
	} `json:"korn_graubard"`
}

func readReference(t *testing.T) *reference {
	t.Helper()
	data, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"beta": len(r.Beta), "quantile": len(r.Quantile), "clopper_pearson": len(r.ClopperPearson), "upper": len(r.Upper),
		"student": len(r.Student), "needed": len(r.Needed), "ndcg": len(r.NDCG), "korn_graubard": len(r.KornGraubard)} {
		if n < 6 {
			t.Fatalf("the reference has %d cases of %s", n, name)
		}
	}
	return &r
}

// near compares relative to the wanted value.
func near(got, want, tolerance float64) bool {
	return got == want || math.Abs(got-want) <= tolerance*math.Abs(want)
}

func TestAgainstScipy(t *testing.T) {
	r := readReference(t)
	for _, c := range r.Beta {
		if got := regularizedBeta(c[0], c[1], c[2]); !near(got, c[3], 1e-9) {
			t.Errorf("I_%g(%g, %g) = %.12g, scipy says %.12g", c[0], c[1], c[2], got, c[3])
		}
	}
	for _, c := range r.Quantile {
		if got := betaQuantile(c[0], c[1], c[2]); !near(got, c[3], 1e-9) {
			t.Errorf("quantile %g of beta(%g, %g) = %.12g, scipy says %.12g", c[0], c[1], c[2], got, c[3])
		}
	}
	for _, c := range r.ClopperPearson {
		got := ClopperPearson(int(c[0]), int(c[1]), c[2])
		if !near(got.Low, c[3], 1e-9) || !near(got.High, c[4], 1e-9) {
			t.Errorf("%v of %v at %v: %.12g to %.12g, scipy says %.12g to %.12g", c[0], c[1], c[2], got.Low, got.High, c[3], c[4])
		}
	}
	for _, c := range r.Upper {
		k, n := int(c[0]), int(c[1])
		if got := UpperBound(k, n, c[2]); !near(got, c[3], 1e-9) {
			t.Errorf("upper bound of %d of %d at %v: %.12g, scipy says %.12g", k, n, c[2], got, c[3])
		}
		if got := LowerBound(n-k, n, c[2]); math.Abs(got-(1-c[3])) > 1e-12 {
			t.Errorf("lower bound of %d of %d at %v: %.12g, want %.12g", n-k, n, c[2], got, 1-c[3])
		}
	}
	for _, c := range r.Student {
		if got := studentQuantile(c[0], c[1]); !near(got, c[2], 1e-9) {
			t.Errorf("Student %g with %g degrees of freedom: %.12g, scipy says %.12g", c[0], c[1], got, c[2])
		}
	}
	for _, c := range r.Needed {
		if got := SamplesNeeded(c[0], c[1], c[2]); got != int(c[3]) {
			t.Errorf("needed at rate %g for %g with %g: %d, trying every number gives %g", c[0], c[1], c[2], got, c[3])
		}
	}
	for _, c := range r.NDCG {
		if got := NDCG(c.Ranked, c.Ideal, c.K, c.Gain); !near(got, c.Want, 1e-12) {
			t.Errorf("nDCG@%d (%s) of %v against %v = %v, want %v", c.K, c.Gain, c.Ranked, c.Ideal, got, c.Want)
		}
	}
	for _, c := range r.KornGraubard {
		parts := make([]cluster, len(c.Of))
		for i := range parts {
			parts[i] = cluster{c.Count[i], c.Of[i]}
		}
		got := clustered(parts, 0.95)
		if !near(got.Low, c.Low, 1e-9) || !near(got.High, c.High, 1e-9) {
			t.Errorf("clusters %v: %v to %v, want %v to %v", parts, got.Low, got.High, c.Low, c.High)
		}
	}
}

// Values that stand in printed tables and textbooks, to be independent of any program.
func TestClopperPearsonAgainstTables(t *testing.T) {
	for _, c := range []struct {
		count, of  int
		confidence float64
		low, high  float64 // as printed
	}{
		{0, 10, 0.95, 0, 0.3085},
		{1, 10, 0.95, 0.0025, 0.4450},
		{5, 10, 0.95, 0.1871, 0.8129},
		{0, 20, 0.95, 0, 0.1684},
		{10, 100, 0.95, 0.0490, 0.1762},
		{0, 100, 0.99, 0, 0.0516},
	} {
		p := ClopperPearson(c.count, c.of, c.confidence)
		if math.Abs(p.Low-c.low) > 5e-5 || math.Abs(p.High-c.high) > 5e-5 {
			t.Errorf("%d of %d: %.4f to %.4f, tables have %.4f to %.4f", c.count, c.of, p.Low, p.High, c.low, c.high)
		}
	}
	// The rule of three: no failure in n gives a 95 % bound of about 3/n.
	if got := UpperBound(0, 300, 0.95); math.Abs(got-3.0/300) > 1e-4 {
		t.Errorf("no failure in 300: %v", got)
	}
}

// The promise of an exact interval is its coverage: for every true rate the intervals hold it at least as often as they say.
func TestClopperPearsonCovers(t *testing.T) {
	for _, n := range []int{5, 40} {
		for _, confidence := range []float64{0.8, 0.95} {
			for rate := 0.005; rate < 1; rate += 0.0213 {
				var both, upper float64
				logN, _ := math.Lgamma(float64(n + 1))
				for k := 0; k <= n; k++ {
					logK, _ := math.Lgamma(float64(k + 1))
					logRest, _ := math.Lgamma(float64(n - k + 1))
					p := math.Exp(logN - logK - logRest + float64(k)*math.Log(rate) + float64(n-k)*math.Log1p(-rate))
					if ci := ClopperPearson(k, n, confidence); ci.Low <= rate && rate <= ci.High {
						both += p
					}
					if rate <= UpperBound(k, n, confidence) {
						upper += p
					}
				}
				if both < confidence || upper < confidence {
					t.Errorf("n %d, rate %.4f, confidence %v: two-sided covers %.4f, one-sided %.4f", n, rate, confidence, both, upper)
				}
			}
		}
	}
}

// Chunks of a turn share its fate; intervals that ignore it are far too narrow, the clustered ones hold about what they say.
func TestClusteredCoverage(t *testing.T) {
	const runs, turns, rate = 400, 80, 0.3
	random := rand.New(rand.NewPCG(11, 0))
	var covered, ignoring int
	for range runs {
		parts := make([]cluster, turns)
		var count, of int
		for i := range parts {
			parts[i].of = 1 + random.IntN(9)
			if random.Float64() < rate { // all chunks of the turn alike: the hardest case
				parts[i].count = parts[i].of
			}
			count, of = count+parts[i].count, of+parts[i].of
		}
		if p := clustered(parts, 0.95); p.Low <= rate && rate <= p.High {
			covered++
		}
		if p := ClopperPearson(count, of, 0.95); p.Low <= rate && rate <= p.High {
			ignoring++
		}
	}
	t.Logf("seed 11: clustered intervals cover %d of %d, those that ignore clusters %d", covered, runs, ignoring)
	if covered < runs*93/100 {
		t.Errorf("clustered intervals cover the rate in %d of %d runs", covered, runs)
	}
	if ignoring > runs*80/100 {
		t.Errorf("intervals that ignore clusters cover it in %d of %d runs: this test shows nothing", ignoring, runs)
	}
}

func TestClusteredEdges(t *testing.T) {
	if p := clustered(nil, 0.95); p.Of != 0 || p.Low != 0 || p.High != 1 {
		t.Errorf("no clusters: %+v", p)
	}
	if p := clustered([]cluster{{0, 0}, {0, 0}}, 0.95); p.Of != 0 || p.High != 1 {
		t.Errorf("empty clusters: %+v", p)
	}
	// Ten turns of a hundred chunks, all kept: no more is known than from ten trials.
	all := make([]cluster, 10)
	for i := range all {
		all[i] = cluster{100, 100}
	}
	if p, want := clustered(all, 0.95), ClopperPearson(10, 10, 0.95); p.Low != want.Low || p.High != 1 || p.Count != 1000 {
		t.Errorf("unanimous clusters: %+v, want the bounds of %+v", p, want)
	}
	if p := clustered([]cluster{{1, 1}, {0, 1}}, 0.95); !(p.Low < 0.1 && p.High > 0.9) {
		t.Errorf("two opposite clusters say next to nothing: %+v", p)
	}
}

func TestProportionJSON(t *testing.T) {
	for _, c := range []struct {
		p    Proportion
		want string
	}{
		{ClopperPearson(0, 0, 0.95), `{"count":0,"of":0,"rate":null,"low":0,"high":1}`},
		{Proportion{Count: 1, Of: 4, Low: 0.125, High: 0.75}, `{"count":1,"of":4,"rate":0.25,"low":0.125,"high":0.75}`},
	} {
		got, err := json.Marshal(c.p)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v", c.p, got, err)
		}
		var back Proportion
		if err := json.Unmarshal(got, &back); err != nil || back != c.p {
			t.Errorf("%s reads back as %+v, %v", got, back, err)
		}
	}
	var p Proportion
	if err := json.NewDecoder(bytes.NewReader([]byte(`{"count":"x"}`))).Decode(&p); err == nil {
		t.Error("a count that is no number was accepted")
	}
}

func TestBadCountsPanic(t *testing.T) {
	for _, f := range []func(){
		func() { ClopperPearson(2, 1, 0.95) },
		func() { UpperBound(-1, 1, 0.95) },
		func() { LowerBound(1, 2, 1) },
		func() { ClopperPearson(1, 2, math.NaN()) },
		func() { MeanUpperBound([]float64{0.5, 1.5}, 0.95) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}

func FuzzBetaQuantileInverts(f *testing.F) {
	f.Add(0.95, 3.0, 98.0)
	f.Add(1e-9, 0.4, 0.4)
	f.Fuzz(func(t *testing.T, p, a, b float64) {
		if !(p > 1e-12 && p < 1-1e-12 && a > 1e-2 && a < 1e6 && b > 1e-2 && b < 1e6) {
			t.Skip()
		}
		x := betaQuantile(p, a, b)
		if !(x >= 0 && x <= 1) {
			t.Fatalf("quantile %v of beta(%v, %v) is %v", p, a, b, x)
		}
		// x is the first float whose value reaches p; the one before is under it.
		below := math.Nextafter(x, 0)
		if at, before := regularizedBeta(x, a, b), regularizedBeta(below, a, b); at < p-1e-7 || before > p+1e-7 {
			t.Fatalf("quantile %v of beta(%v, %v) is %v, where the function goes from %v to %v", p, a, b, x, before, at)
		}
	})
}
