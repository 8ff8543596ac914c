package evaluate

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

var none = math.NaN()

// randomTurns makes turns with few distinct scores, so that ties are common, and some without a score.
func randomTurns(random *rand.Rand, n int) []QueryTurn {
	turns := make([]QueryTurn, n)
	for i := range turns {
		t := &turns[i]
		t.Label = Knowledge
		if random.IntN(3) == 0 {
			t.Label = Chitchat
		}
		t.Domain = string(rune('a' + random.IntN(4)))
		t.Lang = []string{"en", "nl"}[random.IntN(2)]
		t.Score = float64(random.IntN(12)) / 10
		if t.Label == Chitchat {
			t.Score += 0.3
		}
		t.Bypassed, t.Stage = t.Score >= 0.9, "semantic"
		if random.IntN(10) == 0 {
			t.Score, t.Stage, t.Bypassed = none, "pattern", random.IntN(2) == 0
		}
	}
	return turns
}

// confusionAt is the plain reference: what a threshold decides, turn by turn.
func confusionAt(turns []QueryTurn, threshold float64) Confusion {
	var c Confusion
	for _, t := range turns {
		bypassed := t.Bypassed
		if !math.IsNaN(t.Score) {
			bypassed = t.Score >= threshold
		}
		c.add(t.Label, bypassed)
	}
	return c
}

func TestQueriesCounts(t *testing.T) {
	turns := []QueryTurn{
		{Text: "hi", Label: Chitchat, Lang: "en", Domain: "greeting", Bypassed: true, Stage: "pattern", Score: none},
		{Text: "hi", Label: Chitchat, Lang: "en", Domain: "greeting", Bypassed: true, Stage: "pattern", Score: none},
		{Text: "how are you", Label: Chitchat, Lang: "en", Domain: "greeting", Bypassed: true, Stage: "semantic", Score: 0.9},
		{Text: "hoe gaat het", Label: Chitchat, Lang: "nl", Domain: "greeting", Stage: "semantic", Score: 0.4},
		{Text: "what is the VAT rate?", Label: Knowledge, Lang: "en", Domain: "tax", Stage: "semantic", Score: 0.1},
		{Text: "wat is het btw-tarief?", Label: Knowledge, Lang: "nl", Domain: "tax", Stage: "semantic", Score: 0.2},
		{Text: "thanks for nothing, where is my payslip", Label: Knowledge, Lang: "en", Domain: "pay", Bypassed: true, Stage: "semantic", Score: 0.7},
	}
	before := slices.Clone(turns)
	r, err := Queries(turns, QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range turns { // NaN is unequal to itself, so no reflect.DeepEqual
		if turns[i].Text != before[i].Text || turns[i].Bypassed != before[i].Bypassed {
			t.Fatalf("turn %d was changed", i)
		}
	}
	if want := (Confusion{ChitchatBypassed: 3, ChitchatRetrieved: 1, KnowledgeBypassed: 1, KnowledgeRetrieved: 2}); r.Overall.Confusion != want {
		t.Errorf("confusion %+v, want %+v", r.Overall.Confusion, want)
	}
	if r.Overall.Bypass != ClopperPearson(3, 4, 0.95) || r.Overall.FalseBypass != ClopperPearson(1, 3, 0.95) || r.Bypassed != ClopperPearson(4, 7, 0.95) {
		t.Errorf("rates %+v, bypassed %+v", r.Overall, r.Bypassed)
	}
	names := func(groups []QueryGroup) (n []string) {
		for _, g := range groups {
			n = append(n, g.Name)
		}
		return n
	}
	if got := names(r.ByLanguage); !slices.Equal(got, []string{"en", "nl"}) {
		t.Errorf("languages %v", got)
	}
	if got := names(r.ByStage); !slices.Equal(got, []string{"pattern", "semantic"}) {
		t.Errorf("stages %v", got)
	}
	if got := names(r.ByDomain); !slices.Equal(got, []string{"greeting", "pay", "tax"}) {
		t.Errorf("domains %v", got)
	}
	if g := r.ByLanguage[1]; g.Bypass.Of != 1 || g.FalseBypass.Of != 1 || g.FalseBypass.Count != 0 {
		t.Errorf("Dutch: %+v", g)
	}
	if r.Turns != 7 || r.Scored != 5 || r.DuplicateTexts != 1 {
		t.Errorf("turns %d, scored %d, duplicates %d", r.Turns, r.Scored, r.DuplicateTexts)
	}
	if len(r.FalseBypasses) != 1 || r.FalseBypasses[0].Text != turns[6].Text || *r.FalseBypasses[0].Score != 0.7 {
		t.Errorf("false bypasses %+v", r.FalseBypasses)
	}
	if len(r.Missed) != 1 || r.Missed[0].Text != "hoe gaat het" {
		t.Errorf("missed %+v", r.Missed)
	}
	if *r.AUC != 5.0/6 { // of six pairs, only 0.4 against 0.7 is the wrong way round
		t.Errorf("area %v", *r.AUC)
	}
	// Without scores of both labels there are counts and no curves.
	for i := range turns {
		turns[i].Score = none
	}
	r, err = Queries(turns, QueryOptions{Examples: -1})
	if err != nil || r.ROC != nil || r.AUC != nil || r.AtRate != nil || r.Overall.Confusion.ChitchatBypassed != 3 || r.FalseBypasses != nil {
		t.Errorf("without scores: %+v, %v", r, err)
	}
}

// Groups must add up to the whole, whatever the grouping.
func TestGroupsAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	for range 30 {
		turns := randomTurns(random, 1+random.IntN(60))
		r, err := Queries(turns, QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, groups := range [][]QueryGroup{r.ByDomain, r.ByLanguage, r.ByStage} {
			var sum Confusion
			for _, g := range groups {
				sum.ChitchatBypassed += g.Confusion.ChitchatBypassed
				sum.ChitchatRetrieved += g.Confusion.ChitchatRetrieved
				sum.KnowledgeBypassed += g.Confusion.KnowledgeBypassed
				sum.KnowledgeRetrieved += g.Confusion.KnowledgeRetrieved
			}
			if sum != r.Overall.Confusion {
				t.Fatalf("seed 3: groups add up to %+v, overall is %+v", sum, r.Overall.Confusion)
			}
		}
	}
}

func TestROCAgainstCounting(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 0))
	checked := 0
	for range 60 {
		turns := randomTurns(random, 5+random.IntN(80))
		points, err := ROC(turns)
		if err != nil {
			var input *InputError
			if !errors.As(err, &input) {
				t.Fatal(err)
			}
			continue // one label only
		}
		distinct := map[float64]bool{}
		for _, turn := range turns {
			if !math.IsNaN(turn.Score) {
				distinct[turn.Score] = true
			}
		}
		if len(points) != len(distinct)+1 {
			t.Fatalf("seed 4: %d points for %d distinct scores", len(points), len(distinct))
		}
		for i, p := range points {
			threshold := math.Inf(1)
			if (p.Threshold == nil) != (i == 0) {
				t.Fatalf("seed 4: threshold of point %d is %v", i, p.Threshold)
			}
			if p.Threshold != nil {
				threshold = *p.Threshold
			}
			c := confusionAt(turns, threshold)
			if p.Bypass != float64(c.ChitchatBypassed)/float64(c.ChitchatBypassed+c.ChitchatRetrieved) ||
				p.FalseBypass != float64(c.KnowledgeBypassed)/float64(c.KnowledgeBypassed+c.KnowledgeRetrieved) {
				t.Fatalf("seed 4: point %+v, counting gives %+v", p, c)
			}
			if i > 0 && (p.Bypass < points[i-1].Bypass || p.FalseBypass < points[i-1].FalseBypass) {
				t.Fatalf("seed 4: the curve falls at %d", i)
			}
			checked++
		}
	}
	if checked < 500 {
		t.Fatalf("only %d points were checked", checked)
	}
}

func TestLongCurveIsThinned(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 0))
	turns := make([]QueryTurn, 20_000)
	for i := range turns {
		turns[i] = QueryTurn{Label: Knowledge, Score: random.NormFloat64()}
		if i%4 == 0 {
			turns[i] = QueryTurn{Label: Chitchat, Score: 2 + random.NormFloat64()}
		}
	}
	points, err := ROC(turns)
	if err != nil {
		t.Fatal(err)
	}
	if len(points) > maxROCPoints || len(points) < maxROCPoints/3 {
		t.Errorf("%d points", len(points))
	}
	if last := points[len(points)-1]; last.Bypass != 1 || last.FalseBypass != 1 || points[0].Bypass != 0 {
		t.Errorf("the curve runs from %+v to %+v", points[0], last)
	}
	for i, p := range points[1:] {
		if step := p.Bypass - points[i].Bypass; step > 0.02 {
			t.Errorf("a step of %v in bypass was cut out at %+v", step, p)
		}
	}
}

func TestAreaAgainstPairs(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 0))
	for range 40 {
		turns := randomTurns(random, 10+random.IntN(60))
		s := newSweep(turns)
		if s.bothLabels("data") != nil {
			continue
		}
		var wins, pairs float64
		for _, a := range turns {
			for _, b := range turns {
				if a.Label == Chitchat && b.Label == Knowledge && !math.IsNaN(a.Score) && !math.IsNaN(b.Score) {
					pairs++
					if a.Score > b.Score {
						wins++
					} else if a.Score == b.Score {
						wins += 0.5
					}
				}
			}
		}
		if got := s.auc(); math.Abs(got-wins/pairs) > 1e-12 {
			t.Fatalf("seed 6: area %v, by pairs %v", got, wins/pairs)
		}
	}
}

// The operating point must be the best one: no threshold at all bypasses more chitchat within the limit.
func TestOperatingPointIsTheBest(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0))
	reached, unreachable := 0, 0
	for range 200 {
		turns := randomTurns(random, 4+random.IntN(50))
		s := newSweep(turns)
		if s.total[Knowledge] == 0 || s.total[Chitchat] == 0 {
			continue
		}
		limit := float64(random.IntN(5)) / 20
		p := s.at(limit, 0.95)
		base := confusionAt(turns, math.Inf(1))
		best := base.ChitchatBypassed
		for _, turn := range turns {
			if math.IsNaN(turn.Score) {
				continue
			}
			c := confusionAt(turns, turn.Score)
			if float64(c.KnowledgeBypassed) <= limit*float64(s.total[Knowledge])+1e-9 {
				best = max(best, c.ChitchatBypassed)
			}
		}
		if p.Bypass.Count != best {
			t.Fatalf("seed 7: at %v bypasses %d, the best is %d", limit, p.Bypass.Count, best)
		}
		if p.Threshold == nil {
			unreachable++
			if best != base.ChitchatBypassed {
				t.Fatalf("seed 7: no threshold, though one bypasses %d", best)
			}
			continue
		}
		reached++
		c := confusionAt(turns, *p.Threshold)
		if c.ChitchatBypassed != p.Bypass.Count || c.KnowledgeBypassed != p.FalseBypass.Count {
			t.Fatalf("seed 7: %+v, but the threshold gives %+v", p, c)
		}
	}
	if reached < 50 || unreachable < 10 {
		t.Fatalf("%d reached, %d not: the cases are too alike", reached, unreachable)
	}
}

// A left-out domain's own turns must not touch its threshold.
func TestLeaveOneDomainOut(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 0))
	for range 40 {
		turns := randomTurns(random, 20+random.IntN(60))
		l, err := LeaveOneDomainOut(turns, 0.1, 0)
		if err != nil {
			t.Fatal(err)
		}
		var sum Confusion
		for _, d := range l.Domains {
			var rest, own []QueryTurn
			for _, turn := range turns {
				if turn.Domain == d.Domain {
					own = append(own, turn)
				} else {
					rest = append(rest, turn)
				}
			}
			threshold := math.Inf(1)
			if s := newSweep(rest); s.total[Knowledge] > 0 {
				if p := s.at(0.1, 0.95); p.Threshold != nil {
					threshold = *p.Threshold
				}
			}
			if (d.Threshold == nil) != math.IsInf(threshold, 1) || d.Threshold != nil && *d.Threshold != threshold {
				t.Fatalf("seed 8: threshold %v for %s, the others give %v", d.Threshold, d.Domain, threshold)
			}
			if c := confusionAt(own, threshold); c != d.Confusion {
				t.Fatalf("seed 8: %s has %+v, counting gives %+v", d.Domain, d.Confusion, c)
			}
			sum.ChitchatBypassed += d.Confusion.ChitchatBypassed
			sum.KnowledgeBypassed += d.Confusion.KnowledgeBypassed
		}
		if sum.ChitchatBypassed != l.Overall.Confusion.ChitchatBypassed || sum.KnowledgeBypassed != l.Overall.Confusion.KnowledgeBypassed {
			t.Fatalf("seed 8: domains add up to %+v, overall is %+v", sum, l.Overall.Confusion)
		}
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 0))
	turns := randomTurns(random, 300)
	a, err := Queries(turns, QueryOptions{Examples: -1})
	if err != nil {
		t.Fatal(err)
	}
	random.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	b, err := Queries(turns, QueryOptions{Examples: -1})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("seed 9: shuffling the records changed the result")
	}
}

func TestBetween(t *testing.T) {
	for _, c := range []struct{ lo, hi, want float64 }{
		{0.2, 0.9, 0.6}, // the middle is 0.55, and 0.6 is the shortest decimal that is nearest to it
		{0.82, 0.83, 0.825},
		{0.8199999, 0.8200001, 0.82},
		{-0.5, 0.1, 0},
		{-3, -1, -2},
		{5, 5.0000001, 5.0000001},
		{0, math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64},
		{-math.MaxFloat64, math.MaxFloat64, 0},
	} {
		got := between(c.lo, c.hi)
		if !(c.lo < got && got <= c.hi) {
			t.Errorf("between %v and %v: %v is outside", c.lo, c.hi, got)
		}
		if c.lo != 5 && got != c.want {
			t.Errorf("between %v and %v: %v, want %v", c.lo, c.hi, got, c.want)
		}
	}
}

func FuzzBetween(f *testing.F) {
	f.Add(0.1, 0.2)
	f.Add(-1e300, 1e300)
	f.Fuzz(func(t *testing.T, lo, hi float64) {
		if !(lo < hi) || math.IsInf(lo, 0) || math.IsInf(hi, 0) {
			t.Skip()
		}
		if got := between(lo, hi); !(lo < got && got <= hi) {
			t.Fatalf("between %v and %v: %v", lo, hi, got)
		}
	})
}

func TestQueryInputErrors(t *testing.T) {
	good := QueryTurn{Label: Knowledge, Score: 1}
	for name, c := range map[string]struct {
		turns []QueryTurn
		o     QueryOptions
		want  string
	}{
		"empty":      {nil, QueryOptions{}, "data is empty: want at least one labelled turn"},
		"label":      {[]QueryTurn{good, {Label: "smalltalk"}}, QueryOptions{}, `record 1: label is "smalltalk": want "knowledge" or "chitchat"`},
		"score":      {[]QueryTurn{{Label: Chitchat, Score: math.Inf(1)}}, QueryOptions{}, "record 0: score is +Inf: want a finite number, or NaN where no threshold decided"},
		"confidence": {[]QueryTurn{good}, QueryOptions{Confidence: 95}, "confidence is 95: want between 0 and 1, such as 0.95"},
		"rate":       {[]QueryTurn{good}, QueryOptions{FalseBypass: []float64{1}}, "false-bypass rate is 1: want 0 or more and under 1"},
	} {
		_, err := Queries(c.turns, c.o)
		var input *InputError
		if !errors.As(err, &input) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if _, err := ROC([]QueryTurn{good}); err == nil {
		t.Error("a curve of one label was drawn")
	}
	if _, err := LeaveOneDomainOut([]QueryTurn{good}, -1, 0); err == nil {
		t.Error("a negative limit was accepted")
	}
}

func TestHistogramCountsEverythingOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 0))
	for range 50 {
		values := map[string][]float64{"a": {none, math.Inf(1)}, "b": nil}
		n := 1 + random.IntN(200)
		for range n {
			values["a"] = append(values["a"], float64(random.IntN(40))/40*random.Float64())
		}
		low, high := span(values)
		h := newHistogram("score", low, high, values)
		sum := 0
		for i, c := range h.Series[0].Counts {
			sum += c
			in := 0
			for _, v := range values["a"] {
				if v >= h.Edges[i] && (v < h.Edges[i+1] || i == bins-1 && v == h.Edges[bins]) {
					in++
				}
			}
			if in != c {
				t.Fatalf("seed 10: bin %d has %d, its edges hold %d", i, c, in)
			}
		}
		if sum != n || len(h.Series) != 2 || h.Series[1].Label != "b" {
			t.Fatalf("seed 10: %d of %d values counted, series %+v", sum, n, h.Series)
		}
	}
	if h := newHistogram("score", 3, 3, map[string][]float64{"a": {3, 3}}); h.Edges[0] != 2.5 || h.Series[0].Counts[bins/2] != 2 {
		t.Errorf("values all alike: %+v", h)
	}
}
