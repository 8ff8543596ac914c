package semantic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// plane has one reference per line: a category and an angle in degrees, on a circle, so that every similarity is known.
func plane(t testing.TB, s *Set, degrees ...float64) *Index {
	t.Helper()
	var flat []float32
	for _, d := range degrees {
		flat = append(flat, at(d)...)
	}
	x, err := NewIndex(s, flat, 2)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func at(degrees float64) []float32 {
	return []float32{float32(math.Cos(degrees * math.Pi / 180)), float32(math.Sin(degrees * math.Pi / 180))}
}

func cos(degrees float64) float64 { return math.Cos(degrees * math.Pi / 180) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-5 }

// The five references of minimal: thanks 0° and 10°, follow_up 40°, hr 60° and 90°.
func minimalIndex(t testing.TB) *Index { return plane(t, parse(t, minimal), 0, 10, 40, 60, 90) }

func TestFeatures(t *testing.T) {
	x := minimalIndex(t)
	f := x.Features(Query{Text: "thanks", Vector: at(12)})
	if !near(f.Top1, cos(2)) || !near(f.Contrast, cos(2)-cos(28)) || !near(f.Margin, cos(2)-cos(28)) || !near(f.MarginReference, cos(2)-cos(12)) ||
		!near(f.ContrastMean(2), (cos(2)+cos(12))/2-(cos(28)+cos(48))/2) || f.NovelWords != 0 || f.NeedsHistory {
		t.Errorf("%+v", f)
	}
	if f.Top.Reference != "thanks a lot" || f.Top.Category != "thanks" || f.Top.Language != "en" || f.RunnerUp.Category != "follow_up" || !near(f.RunnerUp.Similarity, cos(28)) {
		t.Errorf("top %+v, runner-up %+v", f.Top, f.RunnerUp)
	}
	// Inside a conversation follow-ups are on the near side.
	f = x.Features(Query{Text: "go on", Vector: at(38), History: true})
	if !near(f.Top1, cos(2)) || !near(f.Contrast, cos(2)-cos(22)) || f.NeedsHistory {
		t.Errorf("inside: %+v", f)
	}
	f = x.Features(Query{Text: "go on", Vector: at(38)})
	if !near(f.Top1, cos(28)) || !near(f.Contrast, cos(28)-cos(2)) || !f.NeedsHistory {
		t.Errorf("outside: %+v", f)
	}
	// The nearest is knowledge.
	f = x.Features(Query{Text: "x", Vector: at(61), History: true})
	if !near(f.Margin, cos(21)-cos(1)) || !near(f.MarginReference, cos(21)-cos(1)) || f.Top.Category != "hr" || f.RunnerUp.Category != "follow_up" {
		t.Errorf("knowledge: %+v", f)
	}
}

// TestFeaturesAgainstReference compares with a plain computation by definition, on random sets.
func TestFeaturesAgainstReference(t *testing.T) {
	const seed = 4
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := parse(t, minimal)
	for range 2000 {
		var degrees [5]float64
		for i := range degrees {
			degrees[i] = float64(rng.IntN(24)) * 15 // coarse, so that ties happen
		}
		x := plane(t, s, degrees[:]...)
		q := Query{Text: "x", Vector: at(float64(rng.IntN(24)) * 15), History: rng.IntN(2) == 0}
		f := x.Features(q)
		sims := x.matrix.AppendDots(nil, q.Vector)
		best := func(keep func(row, category int) bool) float64 {
			b := -2.0
			for i, v := range sims {
				if c := s.References[i].Category; keep(i, c) {
					b = max(b, float64(v))
				}
			}
			return b
		}
		nearSide := func(c int) bool { return c == 0 || c == 1 && q.History }
		n, k := best(func(_, c int) bool { return nearSide(c) }), best(func(_, c int) bool { return !nearSide(c) })
		if f.Top1 != n || f.Contrast != n-k {
			t.Fatalf("%v, query %v: %+v, want %v and %v", degrees, q, f, n, n-k)
		}
		own := -1
		for i, v := range sims {
			if nearSide(s.References[i].Category) && float64(v) == n {
				own = s.References[i].Category
				break
			}
		}
		if want := n - best(func(_, c int) bool { return c != own }); f.Margin != want {
			t.Fatalf("%v, query %v: margin %v, want %v", degrees, q, f.Margin, want)
		}
		if want := best(func(_, c int) bool { return s.Categories[c].ID != f.Top.Category }); f.RunnerUp.Similarity != want {
			t.Fatalf("%v, query %v: runner-up %+v, want %v", degrees, q, f.RunnerUp, want)
		}
	}
}

// plainFeatures looks at one reference after the other: the reference for the faster way.
func plainFeatures(s *Set, sims []float32, q Query, leave skip) Features {
	f := Features{History: q.History}
	top, second, other := none, none, none
	heldBest := float32(math.Inf(-1))
	for i, v := range sims {
		r := s.References[i]
		if i == leave.row || r.Category == leave.category {
			continue
		}
		c := &s.Categories[r.Category]
		near, held := c.side(q)
		if near {
			f.near.offer(v, i)
		} else {
			f.far.offer(v, i)
		}
		if held && v > heldBest {
			heldBest = v
		}
		switch {
		case v > top.value:
			if top.row >= 0 && top.category != r.Category {
				other = top
			}
			top, second = candidate{v, i, r.Category}, top
		case v > second.value:
			second = candidate{v, i, r.Category}
			if r.Category != top.category && v > other.value {
				other = second
			}
		case r.Category != top.category && v > other.value:
			other = candidate{v, i, r.Category}
		}
	}
	(&Index{set: s}).derive(&f, top, second, other, heldBest)
	return f
}

func TestFeaturesInBlocks(t *testing.T) {
	const seed = 11
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for trial := range 400 {
		s := &Set{}
		for c := range 1 + rng.IntN(9) {
			s.Categories = append(s.Categories, Category{ID: fmt.Sprint(c), Kind: []Kind{NonRetrieval, Knowledge}[rng.IntN(2)],
				NeedsHistory: rng.IntN(4) == 0, NotAfterQuestion: rng.IntN(4) == 0})
			for range 1 + rng.IntN(70) {
				s.References = append(s.References, Reference{Category: c, Text: fmt.Sprint(len(s.References))})
			}
		}
		if trial%5 == 0 { // categories in pieces
			rng.Shuffle(len(s.References), func(i, j int) { s.References[i], s.References[j] = s.References[j], s.References[i] })
		}
		x := &Index{set: s, blocks: blocksOf(s.References)}
		sims := make([]float32, len(s.References))
		for range 20 {
			steps := []int{3, 40, 1 << 20}[rng.IntN(3)] // with few, ties happen
			for i := range sims {
				sims[i] = float32(rng.IntN(steps))/float32(steps) - 0.25
				if trial%7 == 0 && rng.IntN(10) == 0 || trial == 100 {
					sims[i] = float32(math.NaN())
				}
			}
			q := Query{History: rng.IntN(2) == 0, AfterQuestion: rng.IntN(2) == 0}
			for _, leave := range []skip{noSkip, {rng.IntN(len(sims)), -1}, {-1, rng.IntN(len(s.Categories))}} {
				if got, want := x.features(sims, q, leave), plainFeatures(s, sims, q, leave); !reflect.DeepEqual(got, want) {
					t.Fatalf("trial %d, %+v, without %+v:\n%+v, want\n%+v", trial, q, leave, got, want)
				}
			}
		}
	}
}

func TestNewIndexErrors(t *testing.T) {
	s := parse(t, minimal)
	if _, err := NewIndex(s, make([]float32, 9), 2); err == nil || !strings.Contains(err.Error(), "need 10 values, and 9 were given") {
		t.Errorf("too few values: %v", err)
	}
	if _, err := NewIndex(s, nil, 0); err == nil {
		t.Error("no dimension: no error")
	}
	flat := make([]float32, 10)
	for i := range 5 {
		flat[2*i] = 1
	}
	flat[4] = float32(math.NaN())
	if _, err := NewIndex(s, flat, 2); err == nil || !strings.Contains(err.Error(), `"go on please" (follow_up)`) {
		t.Errorf("NaN: %v", err)
	}
	flat[4] = 0
	if _, err := NewIndex(s, flat, 2); err == nil {
		t.Error("a zero vector: no error")
	}
}

func TestIndexKeepsACopy(t *testing.T) {
	s := parse(t, minimal)
	flat := make([]float32, 10)
	for i := range 5 {
		flat[2*i] = 1
	}
	x, err := NewIndex(s, flat, 2)
	if err != nil {
		t.Fatal(err)
	}
	flat[0] = -1
	if f := x.Features(Query{Vector: at(0)}); f.Top1 != 1 {
		t.Errorf("%+v", f)
	}
}

func TestDecide(t *testing.T) {
	x := minimalIndex(t)
	m, err := x.Set().Method("")
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		q      Query
		bypass bool
		reason string
	}{
		{"near thanks", Query{Text: "thanks a lot", Vector: at(5)}, true, `nearest is "thank`},
		{"a single word", Query{Text: "thanks!", Vector: at(5)}, false, "a single word"},
		{"knowledge", Query{Text: "days off", Vector: at(62)}, false, "under the threshold"},
		{"between", Query{Text: "thanks", Vector: at(26)}, false, "under the threshold"},
		{"a follow-up alone", Query{Text: "go on", Vector: at(38)}, false, "no conversation before it"},
		{"a follow-up", Query{Text: "again please", Vector: at(20), History: true}, true, "retrieval cannot help"},
		{"a follow-up with content", Query{Text: "margins please", Vector: at(20), History: true}, false, "content of its own: margins"},
		{"NaN", Query{Text: "thanks", Vector: []float32{nan, nan}}, false, "not a number"},
		{"zero", Query{Text: "thanks", Vector: []float32{0, 0}}, false, "under the threshold"},
	} {
		v := m.Decide(x.Features(c.q))
		if v.Bypass != c.bypass || !strings.Contains(v.Reason, c.reason) || v.Method != Contrast || v.Threshold != 0.1 {
			t.Errorf("%s: %+v, want bypass %t and reason %q", c.name, v, c.bypass, c.reason)
		}
	}
	// The threshold is inclusive.
	f := x.Features(Query{Text: "thanks a lot", Vector: at(5)})
	m.Threshold = f.Contrast
	if v := m.Decide(f); !v.Bypass {
		t.Errorf("at the threshold: %+v", v)
	}
	m.Threshold = math.Nextafter(f.Contrast, 2)
	if v := m.Decide(f); v.Bypass {
		t.Errorf("just under the threshold: %+v", v)
	}
	if v := (&Method{}).Decide(f); v.Bypass {
		t.Errorf("the zero method bypasses: %+v", v)
	}
}

func TestAfterQuestion(t *testing.T) {
	s := parse(t, strings.Replace(minimal, "kind: non_retrieval\n    references", "kind: non_retrieval\n    not_after_question: true\n    references", 1))
	x := plane(t, s, 0, 10, 40, 60, 90)
	m, err := s.Method("")
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Text: "again please", Vector: at(5), History: true}
	if v := m.Decide(x.Features(q)); !v.Bypass {
		t.Errorf("after a statement: %+v", v)
	}
	q.AfterQuestion = true
	if v := m.Decide(x.Features(q)); v.Bypass {
		t.Errorf("after a question: %+v", v)
	}
}

func TestCombined(t *testing.T) {
	x := minimalIndex(t)
	m, err := x.Set().Method(Combined)
	if err != nil {
		t.Fatal(err)
	}
	f := x.Features(Query{Text: "payroll 7", Vector: at(5)})
	if want := 1 / (1 + math.Exp(-(-1 + 2*cos(5) - 2))); !near(m.Score(&f), want) {
		t.Errorf("score %v, want %v", m.Score(&f), want)
	}
	for name, want := range map[string]float64{Top1: f.Top1, Margin: f.Margin, MarginReference: f.MarginReference, Contrast: f.Contrast} {
		if got := (&Method{Name: name}).Score(&f); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestFeaturesAllocations(t *testing.T) {
	x := fixture(t).index(t, defaultSet(t))
	q := Query{Text: "thanks a lot", Vector: x.matrix.Row(7)}
	x.Features(q)
	// The words of the text; the similarities are borrowed.
	if n := testing.AllocsPerRun(200, func() { x.Features(q) }); n > 6 && !raceEnabled {
		t.Errorf("%v allocations a message, want at most 6", n)
	}
}

func BenchmarkFeatures(b *testing.B) {
	x := fixture(b).index(b, defaultSet(b))
	m, err := x.Set().Method("")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := i % len(x.set.References)
		m.Decide(x.Features(Query{Text: x.set.References[r].Text, Vector: x.matrix.Row(r)}))
	}
	b.ReportMetric(float64(len(x.set.References)), "references")
}
