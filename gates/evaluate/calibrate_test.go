package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// gaussianTurns makes turns whose scores are normal: knowledge around 0, chitchat around 2. The true false-bypass rate of a
// threshold is then the normal tail.
func gaussianTurns(random *rand.Rand, knowledge, chitchat int) []QueryTurn {
	turns := make([]QueryTurn, 0, knowledge+chitchat)
	for i := range knowledge {
		turns = append(turns, QueryTurn{Label: Knowledge, Domain: fmt.Sprint("k", i%7), Score: random.NormFloat64()})
	}
	for i := range chitchat {
		turns = append(turns, QueryTurn{Label: Chitchat, Domain: fmt.Sprint("c", i%3), Score: 2 + random.NormFloat64()})
	}
	return turns
}

func normalTail(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }

// atMost says whether broken of runs is compatible with a true rate of at most rate: its exact lower bound at 99.9 % is not above it.
func atMost(broken, runs int, rate float64) bool { return LowerBound(broken, runs, 0.999) <= rate }

// The point of calibration: over many data sets the promise is broken no more often than it says. Choosing on the data alone, as
// one would by hand, breaks it about every second time, which shows that this test can fail.
func TestQueryPromiseIsKept(t *testing.T) {
	const runs = 400
	for _, c := range []struct {
		limit, confidence float64
		knowledge         int
	}{{0.05, 0.8, 400}, {0.02, 0.9, 600}, {0.01, 0.5, 500}} {
		random := rand.New(rand.NewPCG(21, 0))
		var broken, refusals, naive int
		var gain float64
		for run := range runs {
			turns := gaussianTurns(random, c.knowledge, 150)
			if p := newSweep(turns).at(c.limit, 0.95); normalTail(*p.Threshold) > c.limit {
				naive++
			}
			cal, err := CalibrateQuery(turns, c.limit, CalibrateOptions{Confidence: c.confidence, Seed: uint64(run)})
			if err != nil {
				var refused *RefusedError
				if !errors.As(err, &refused) {
					t.Fatal(err)
				}
				refusals++
				continue
			}
			if normalTail(cal.Threshold) > c.limit {
				broken++
			}
			gain += cal.Gain.Rate()
		}
		t.Logf("seed 21: at most %v with confidence %v: broken %d of %d (%d refused), by hand %d; mean bypass %.2f",
			c.limit, c.confidence, broken, runs, refusals, naive, gain/float64(runs-refusals))
		if !atMost(broken, runs, 1-c.confidence) {
			t.Errorf("at most %v with confidence %v was broken in %d of %d runs", c.limit, c.confidence, broken, runs)
		}
		if broken == 0 || naive < runs/3 {
			t.Errorf("broken %d, by hand %d: the simulation is too easy to show anything", broken, naive)
		}
		if refusals > runs/10 {
			t.Errorf("%d of %d refused", refusals, runs)
		}
	}
}

// clusteredTurns makes turns whose relevant chunks share the turn's luck: a relevant chunk scores (a+b)/2, a drawn per turn and b per
// chunk, both uniform, so that the expected recall lost at a threshold t up to a half is 2t².
func clusteredTurns(random *rand.Rand, n, most int) []ChunkTurn {
	turns := make([]ChunkTurn, n)
	for i := range turns {
		a := random.Float64()
		for range 1 + random.IntN(most) {
			turns[i].Chunks = append(turns[i].Chunks, chunk(1, max(1e-9, (a+random.Float64())/2), none, Kept))
		}
		for range 3 {
			turns[i].Chunks = append(turns[i].Chunks, chunk(0, max(1e-9, random.Float64()/2), none, Dropped))
		}
	}
	return turns
}

func TestRecallPromiseIsKept(t *testing.T) {
	const runs = 150
	for _, c := range []struct {
		recall, confidence float64
		turns, most        int
		sorted             bool
	}{{0.9, 0.8, 300, 5, false}, {0.95, 0.8, 400, 1, false}, {0.9, 0.7, 300, 4, true}} {
		random := rand.New(rand.NewPCG(22, 0))
		broken, refusals := 0, 0
		var dropped float64
		for run := range runs {
			turns := clusteredTurns(random, c.turns, c.most)
			if c.sorted { // hardest first, as an annotated file may come
				slices.SortFunc(turns, func(a, b ChunkTurn) int {
					if a.Chunks[0].Relevance < b.Chunks[0].Relevance {
						return -1
					}
					return 1
				})
			}
			cal, err := CalibrateChunks(turns, c.recall, CalibrateOptions{Confidence: c.confidence, Seed: uint64(run)})
			if err != nil {
				var refused *RefusedError
				if !errors.As(err, &refused) {
					t.Fatal(err)
				}
				refusals++
				continue
			}
			if want := map[bool]string{true: MethodClopperPearson, false: MethodBetting}[c.most == 1]; cal.Method != want {
				t.Fatalf("bound by %s, want %s", cal.Method, want)
			}
			if 2*cal.Threshold*cal.Threshold > 1-c.recall {
				broken++
			}
			dropped += cal.Gain.Rate()
		}
		t.Logf("seed 22: recall at least %v with confidence %v, up to %d relevant: broken %d of %d (%d refused); drops %.2f",
			c.recall, c.confidence, c.most, broken, runs, refusals, dropped/float64(runs-refusals))
		if !atMost(broken, runs, 1-c.confidence) {
			t.Errorf("recall at least %v with confidence %v was broken in %d of %d runs", c.recall, c.confidence, broken, runs)
		}
		if refusals > runs/10 {
			t.Errorf("%d of %d refused", refusals, runs)
		}
	}
}

// The bound itself, on losses of three shapes.
func TestMeanUpperBoundCovers(t *testing.T) {
	const runs, n, confidence = 400, 120, 0.9
	for name, c := range map[string]struct {
		mean float64
		draw func(*rand.Rand) float64
	}{
		"yes or no":    {0.05, func(r *rand.Rand) float64 { return map[bool]float64{true: 1}[r.Float64() < 0.05] }},
		"small shares": {0.1, func(r *rand.Rand) float64 { return r.Float64() / 5 }},
		"skewed":       {1.0 / 21, func(r *rand.Rand) float64 { return math.Pow(r.Float64(), 20) }},
	} {
		random := rand.New(rand.NewPCG(23, 0))
		missed, width := 0, 0.0
		for range runs {
			losses := make([]float64, n)
			for i := range losses {
				losses[i] = c.draw(random)
			}
			bound := MeanUpperBound(losses, confidence)
			if bound < c.mean {
				missed++
			}
			width += bound - c.mean
		}
		// Hoeffding's bound adds sqrt(ln 10/2n) = 0.098 whatever the spread.
		t.Logf("%s: missed %d of %d, mean distance %.4f", name, missed, runs, width/runs)
		if !atMost(missed, runs, 1-confidence) || width/runs > 0.07 {
			t.Errorf("seed 23, %s: missed %d of %d, mean distance %.4f", name, missed, runs, width/runs)
		}
	}
	if MeanUpperBound(nil, 0.95) != 1 {
		t.Error("no losses are bounded")
	}
	if b := MeanUpperBound([]float64{1, 1, 1}, 0.95); b != 1 {
		t.Errorf("total losses have a bound of %v", b)
	}
	// Without a loss it is a little above the exact bound for yes-or-no losses.
	if b, exact := MeanUpperBound(make([]float64, 100), 0.95), UpperBound(0, 100, 0.95); b < exact || b > 1.15*exact {
		t.Errorf("no loss in 100: %v, exact %v", b, exact)
	}
}

func TestSplit(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 0))
	for range 100 {
		n := 1 + random.IntN(300)
		strata := make([]string, n)
		for i := range strata {
			strata[i] = fmt.Sprint(random.IntN(1 + random.IntN(n)))
		}
		share := 0.1 + 0.8*random.Float64()
		seed := random.Uint64()
		held := split(n, share, seed, func(i int) string { return strata[i] })
		if !slices.Equal(held, split(n, share, seed, func(i int) string { return strata[i] })) {
			t.Fatal("seed 24: a seed gave two splits")
		}
		counts := map[string][2]int{}
		total := 0
		for i, h := range held {
			c := counts[strata[i]]
			c[1]++
			if h {
				c[0]++
				total++
			}
			counts[strata[i]] = c
		}
		if math.Abs(float64(total)-share*float64(n)) > 1 {
			t.Fatalf("seed 24: %d of %d held out at a share of %v", total, n, share)
		}
		for s, c := range counts {
			if math.Abs(float64(c[0])-share*float64(c[1])) > 1 {
				t.Fatalf("seed 24: stratum %s has %d of %d held out at a share of %v", s, c[0], c[1], share)
			}
		}
	}
	// No turn is bound to one side, not even the only one of its stratum.
	sides := map[bool]int{}
	for seed := range uint64(200) {
		sides[split(1, 0.5, seed, func(int) string { return "only" })[0]]++
	}
	if sides[true] < 60 || sides[false] < 60 {
		t.Errorf("a single turn was held out %d times of 200", sides[true])
	}
}

func TestCalibrateQueryResult(t *testing.T) {
	random := rand.New(rand.NewPCG(25, 0))
	turns := gaussianTurns(random, 3000, 600)
	before := slices.Clone(turns)
	o := CalibrateOptions{Seed: 5}
	cal, err := CalibrateQuery(turns, 0.01, o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(turns, before) {
		t.Error("the turns were changed")
	}
	if again, err := CalibrateQuery(turns, 0.01, o); err != nil || !reflect.DeepEqual(cal, again) {
		t.Error("the same seed gave another result")
	}
	if cal.Bound > 0.01 || cal.Bound != UpperBound(cal.Failures.Count, cal.Failures.Of, 0.95) {
		t.Errorf("bound %v of %+v", cal.Bound, cal.Failures)
	}
	if cal.HeldOut != 1800 || cal.Selection != 1800 || cal.Failures.Of != 1500 || cal.Gain.Of != 300 {
		t.Errorf("parts %d and %d, %d knowledge and %d chitchat held out", cal.HeldOut, cal.Selection, cal.Failures.Of, cal.Gain.Of)
	}
	if cal.Gain.Rate() < 0.15 {
		t.Errorf("only %v of chitchat is bypassed, the tail allows %v", cal.Gain.Rate(), normalTail(2.33-2))
	}
	kept := 0
	for i, p := range cal.Curve {
		if i > 0 && !(p.Threshold < cal.Curve[i-1].Threshold && p.Failure >= cal.Curve[i-1].Failure && p.Bound >= cal.Curve[i-1].Bound) {
			t.Errorf("the curve does not go from careful to bold at %d", i)
		}
		if p.Keeps != (p.Bound <= 0.01) {
			t.Errorf("point %+v", p)
		}
		if p.Keeps {
			kept = i
		}
	}
	if cal.Curve[kept].Threshold != cal.Threshold || kept+1 == len(cal.Curve) {
		t.Errorf("%v was chosen, the boldest that keeps the promise is %v", cal.Threshold, cal.Curve[kept].Threshold)
	}
}

// Turns that another stage decided count against the promise, whatever the threshold.
func TestOtherStagesCount(t *testing.T) {
	random := rand.New(rand.NewPCG(26, 0))
	turns := gaussianTurns(random, 2000, 400)
	for i := range 60 { // a bad pattern rule: 3 % of knowledge
		turns[i].Score, turns[i].Bypassed, turns[i].Stage = none, true, "pattern"
	}
	_, err := CalibrateQuery(turns, 0.01, CalibrateOptions{})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Reason != NoThreshold || refused.NeededAtRate != 0 || len(refused.Curve) == 0 {
		t.Fatalf("a rule that breaks the promise alone: %v", err)
	}
	if !strings.Contains(err.Error(), "More data of this kind will not help") {
		t.Error(err)
	}
	if refused.Curve[0].Failure < 0.02 {
		t.Errorf("the most careful point fails at %v", refused.Curve[0].Failure)
	}
}

func TestRefusals(t *testing.T) {
	random := rand.New(rand.NewPCG(27, 0))
	var refused *RefusedError

	// 0.2 % at 95 % takes 1,497 held-out turns without a failure.
	_, err := CalibrateQuery(gaussianTurns(random, 1000, 100), 0.002, CalibrateOptions{})
	if !errors.As(err, &refused) || refused.Reason != TooFewSamples || refused.NeededHeldOut != 1497 || refused.NeededTotal != 2994 || refused.HeldOut != 500 {
		t.Fatalf("too few: %+v", err)
	}
	want := "cannot promise false bypass at most 0.2 % with 95 % confidence from 500 held-out knowledge turns: even with no failure among them the bound is 0.597 %. At least 1497 held-out, 2994 in all, are needed; or ask for less"
	if err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if len(refused.Curve) == 0 {
		t.Error("refused without a curve")
	}
	_, err = CalibrateQuery(gaussianTurns(random, 1000, 100), 0.002, CalibrateOptions{HeldOut: 0.75})
	if !errors.As(err, &refused) || refused.HeldOut != 750 || refused.NeededTotal != 1996 {
		t.Errorf("three quarters held out: %v", err)
	}

	// Scores that say nothing: chitchat as knowledge. The first useful threshold fails at about the rate it gains.
	turns := gaussianTurns(random, 2000, 400)
	for i := range turns {
		turns[i].Score = float64(random.IntN(3))
	}
	_, err = CalibrateQuery(turns, 0.01, CalibrateOptions{})
	if !errors.As(err, &refused) || refused.Reason != NoThreshold || refused.NeededAtRate != 0 {
		t.Errorf("useless scores: %v", err)
	}

	// A threshold that fails rarely enough, but not provably so on this many turns.
	turns = turns[:0]
	for i := range 800 {
		turns = append(turns, QueryTurn{Label: Knowledge, Score: map[bool]float64{true: 1}[i%200 == 0]})
	}
	for range 100 {
		turns = append(turns, QueryTurn{Label: Chitchat, Score: 1})
	}
	_, err = CalibrateQuery(turns, 0.01, CalibrateOptions{})
	if !errors.As(err, &refused) || refused.Reason != NoThreshold || refused.NeededAtRate < 1000 || !strings.Contains(err.Error(), "At the rate seen, about") {
		t.Errorf("not yet provable: %v", err)
	}

	// Recall with too few turns, and the same words for it.
	_, err = CalibrateChunks(clusteredTurns(random, 60, 1), 0.95, CalibrateOptions{})
	if !errors.As(err, &refused) || refused.Reason != TooFewSamples || refused.NeededHeldOut != 59 || refused.NeededTotal != 118 {
		t.Errorf("too few turns: %v", err)
	}
	if !strings.HasPrefix(err.Error(), "cannot promise recall at least 95 % with 95 % confidence from 30 held-out turns with a relevant chunk: even with no failure among them the bound is 90.5 %") {
		t.Error(err)
	}
	_, err = CalibrateChunks(clusteredTurns(random, 60, 3), 0.95, CalibrateOptions{})
	if !errors.As(err, &refused) || refused.NeededHeldOut < 59 || refused.NeededHeldOut > 75 ||
		1-MeanUpperBound(make([]float64, refused.NeededHeldOut), 0.95) < 0.95 {
		t.Errorf("too few turns for betting: %v", err)
	}

	// Only relevant chunks: nothing to drop.
	turnsOf := clusteredTurns(random, 300, 3)
	for i := range turnsOf {
		turnsOf[i].Chunks = slices.DeleteFunc(turnsOf[i].Chunks, func(c Chunk) bool { return c.Grade == 0 })
	}
	_, err = CalibrateChunks(turnsOf, 0.9, CalibrateOptions{})
	if !errors.As(err, &refused) || refused.Reason != NothingToGain || !strings.Contains(err.Error(), "without effect") {
		t.Errorf("nothing to drop: %v", err)
	}
}

func TestCalibrateInputErrors(t *testing.T) {
	random := rand.New(rand.NewPCG(28, 0))
	turns, chunkTurns := gaussianTurns(random, 50, 20), clusteredTurns(random, 20, 2)
	noRelevant := []ChunkTurn{{Chunks: []Chunk{chunk(0, 0.5, none, Dropped)}}}
	for name, f := range map[string]func() error{
		"limit 0":    func() error { _, err := CalibrateQuery(turns, 0, CalibrateOptions{}); return err },
		"limit 1":    func() error { _, err := CalibrateQuery(turns, 1, CalibrateOptions{}); return err },
		"share":      func() error { _, err := CalibrateQuery(turns, 0.1, CalibrateOptions{HeldOut: 1}); return err },
		"bad label":  func() error { _, err := CalibrateQuery([]QueryTurn{{}}, 0.1, CalibrateOptions{}); return err },
		"recall 1":   func() error { _, err := CalibrateChunks(chunkTurns, 1, CalibrateOptions{}); return err },
		"confidence": func() error { _, err := CalibrateChunks(chunkTurns, 0.9, CalibrateOptions{Confidence: 1}); return err },
		"no relevant": func() error {
			_, err := CalibrateChunks(noRelevant, 0.9, CalibrateOptions{})
			return err
		},
		"no turns": func() error { _, err := CalibrateChunks(nil, 0.9, CalibrateOptions{}); return err },
	} {
		var input *InputError
		if err := f(); !errors.As(err, &input) {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func TestRecallCandidates(t *testing.T) {
	// Relevant at 0.5 and 0.8, others at 0.1, 0.5, 0.6 and 0.9: 0.9 is above everything, 0.5 goes with the relevant chunk beside it.
	turns := []recallTurn{{relevant: []float64{0.5, none}, other: []float64{0.1, 0.9}}, {relevant: []float64{0.8}, other: []float64{0.6, 0.5, none}}}
	got := recallCandidates(turns)
	if len(got) != 3 {
		t.Fatalf("candidates %v", got)
	}
	for i, c := range []struct{ above, upTo float64 }{{0.1, 0.5}, {0.5, 0.6}, {0.6, 0.8}} {
		if !(got[i] > c.above && got[i] <= c.upTo) {
			t.Errorf("candidate %v, want one in (%v, %v]", got[i], c.above, c.upTo)
		}
	}
	if turns[0].relevant[0] != 0.5 || turns[1].other[0] != 0.6 {
		t.Error("the turns were sorted in place")
	}
}

// What the data lacks is a refusal with its reason, never a fault of the records; knowledge that the guards take care of at every threshold
// is no lack.
func TestCalibrateDegenerateData(t *testing.T) {
	make := func(label Label, n int, score func(i int) float64) []QueryTurn {
		turns := make([]QueryTurn, n)
		for i := range turns {
			turns[i] = QueryTurn{Label: label, Domain: "d", Score: score(i)}
		}
		return turns
	}
	guarded := func(int) float64 { return math.NaN() }
	spread := func(i int) float64 { return float64(i) / 1000 }
	alike := func(int) float64 { return 0.5 }
	for name, c := range map[string]struct {
		knowledge, chitchat []QueryTurn
		reason              string
	}{
		"all knowledge guarded": {make(Knowledge, 700, guarded), make(Chitchat, 100, spread), ""},
		"too few, all guarded":  {make(Knowledge, 100, guarded), make(Chitchat, 100, spread), TooFewSamples},
		"no knowledge":          {nil, make(Chitchat, 100, spread), TooFewSamples},
		"no chitchat":           {make(Knowledge, 700, spread), nil, NothingToGain},
		"no scored chitchat":    {make(Knowledge, 700, spread), make(Chitchat, 100, guarded), NothingToGain},
		"all scores alike":      {make(Knowledge, 700, alike), make(Chitchat, 100, alike), NoThreshold},
		"one turn":              {make(Knowledge, 1, spread), nil, TooFewSamples},
	} {
		cal, err := CalibrateQuery(append(c.knowledge, c.chitchat...), 0.01, CalibrateOptions{})
		var refused *RefusedError
		switch {
		case c.reason == "":
			if err != nil || cal.Failures.Count != 0 || cal.Gain.Count != cal.Gain.Of || cal.Bound > 0.01 {
				t.Errorf("%s: %+v, %v", name, cal, err)
			}
		case !errors.As(err, &refused) || refused.Reason != c.reason:
			t.Errorf("%s: %v, want a refusal for %s", name, err, c.reason)
		default:
			if _, err := json.Marshal(refused); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
