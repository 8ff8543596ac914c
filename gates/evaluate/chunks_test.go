package evaluate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// chunk makes a scored chunk.
func chunk(grade int, relevance, similarity float64, d Decision) Chunk {
	return Chunk{Grade: grade, Relevance: relevance, Logit: math.Log(relevance / (1 - relevance)), Similarity: similarity, Decision: d}
}

// fourTurns is small enough to count by hand; the comments say what each is for.
func fourTurns() []ChunkTurn {
	return []ChunkTurn{
		// Two relevant, one kept, one under the threshold.
		{Query: "how many days of leave", Type: "lookup", Threshold: 0.6, Chunks: []Chunk{
			chunk(1, 0.9, 0.8, Kept), chunk(0, 0.7, 0.9, Kept), chunk(2, 0.5, 0.7, Dropped), chunk(0, 0.1, 0.6, Dropped)}},
		// One relevant passed but is over the maximum, one was not scored, one came back as a fallback.
		{Query: "leave", Type: "broad", Threshold: 0.4, FallbackTriggered: true, Chunks: []Chunk{
			chunk(1, 0.45, 0.5, Dropped), {Grade: 1, Relevance: none, Logit: none, Similarity: 0.4, Decision: Unscored}, chunk(1, 0.3, 0.3, Fallback)}},
		// The only relevant chunk is dropped: the gate raises the no-answer rate.
		{Query: "notice period", Type: "lookup", Threshold: 0.6, Insufficient: true, Chunks: []Chunk{
			chunk(0, 0.2, 0.9, Dropped), chunk(3, 0.3, 0.1, Dropped)}},
		// Nothing relevant was found: no answer with and without the gate.
		{Query: "lunch", Type: "lookup", Threshold: 0.6, FallbackTriggered: true, Insufficient: true, Chunks: []Chunk{
			chunk(0, 0.2, 0.9, Fallback), chunk(0, 0.1, 0.1, Fallback)}},
	}
}

func TestChunksCounts(t *testing.T) {
	r, err := Chunks(fourTurns(), ChunkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := r.Overall
	counts := func(p Proportion) [2]int { return [2]int{p.Count, p.Of} }
	for name, c := range map[string]struct{ got, want [2]int }{
		"retrieved precision": {counts(o.RetrievedPrecision), [2]int{6, 11}},
		"precision":           {counts(o.Precision), [2]int{2, 5}},
		"recall":              {counts(o.Recall), [2]int{2, 6}},
		"false negative":      {counts(o.FalseNegative), [2]int{4, 6}},
		"kept precision":      {counts(o.KeptPrecision), [2]int{1, 2}},
		"kept recall":         {counts(o.KeptRecall), [2]int{1, 6}},
		"passed":              {counts(o.Passed), [2]int{1, 4}},
		"fallback":            {counts(o.Fallback), [2]int{2, 4}},
		"abstained":           {counts(o.Abstained), [2]int{2, 4}},
		"no answer without":   {counts(o.NoAnswer.Without), [2]int{1, 4}},
		"no answer with":      {counts(o.NoAnswer.With), [2]int{2, 4}},
		"raised":              {counts(o.NoAnswer.Raised), [2]int{1, 4}},
		"lowered":             {counts(o.NoAnswer.Lowered), [2]int{0, 4}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if want := (LostTo{Threshold: 2, Limit: 1, Unscored: 1}); o.LostTo != want {
		t.Errorf("lost to %+v, want %+v", o.LostTo, want)
	}
	if want := (1.0/2 + 1.0/3 + 0) / 3; math.Abs(o.TurnRecall.Mean-want) > 1e-12 || o.TurnRecall.N != 3 {
		t.Errorf("recall per turn %+v, want %v of 3", o.TurnRecall, want)
	}
	if o.GivenPerTurn.Mean != 11.0/4 || o.ReturnedPerTurn.Mean != 5.0/4 || r.MedianGiven != 2.5 {
		t.Errorf("given %v, returned %v, median %v", o.GivenPerTurn.Mean, o.ReturnedPerTurn.Mean, r.MedianGiven)
	}
	if len(r.ByType) != 2 || r.ByType[0].Name != "broad" || r.ByType[0].Turns != 1 || r.ByType[1].FalseNegative.Count != 2 {
		t.Errorf("by type %+v", r.ByType)
	}
	if len(r.Losses) != 1 || r.Losses[0].Query != "notice period" || *r.Losses[0].BestRelevant != 0.3 || r.Losses[0].Relevant != 1 {
		t.Errorf("losses %+v", r.Losses)
	}
	sum := 0
	for _, s := range r.Relevance.Series {
		for _, c := range s.Counts {
			sum += c
		}
	}
	if sum != 10 || len(r.Logit.Series) != 4 {
		t.Errorf("the histogram holds %d of 10 scored chunks, %d grades", sum, len(r.Logit.Series))
	}

	// With a context of the first chunk only, the gate brings an answer to two turns and takes none: without it, turn 1 leads with a
	// chunk that is not relevant, and so does turn 3.
	r, err = Chunks(fourTurns(), ChunkOptions{TopK: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := r.Overall.NoAnswer
	if n.Without.Count != 3 || n.With.Count != 2 || n.Raised.Count != 0 || n.Lowered.Count != 1 {
		t.Errorf("against one chunk: %+v", n)
	}
	// Grades from 2 up: only two chunks are relevant, both dropped.
	r, err = Chunks(fourTurns(), ChunkOptions{RelevantFrom: 2})
	if err != nil {
		t.Fatal(err)
	}
	if r.Overall.Recall.Count != 0 || r.Overall.Recall.Of != 2 || r.Overall.NoAnswer.Raised.Count != 2 {
		t.Errorf("from grade 2: %+v", r.Overall)
	}
}

func TestNDCGByHand(t *testing.T) {
	// Järvelin and Kekäläinen's vector of grades, with the logarithm's discount from rank 2 on and linear gains.
	ranked := []int{3, 2, 3, 0, 0, 1, 2, 2, 3, 0}
	var want float64
	for i, g := range ranked {
		want += float64(g) / math.Log2(float64(i)+2)
	}
	best := 3 + 3/math.Log2(3) + 3/2.0 + 2/math.Log2(5) + 2/math.Log2(6) + 2/math.Log2(7) + 1/3.0
	if got := NDCG(ranked, ranked, 10, GainLinear); math.Abs(got-want/best) > 1e-12 {
		t.Errorf("nDCG %v, by hand %v", got, want/best)
	}
	for _, c := range []struct {
		ranked, ideal []int
		k             int
		want          float64
	}{
		{[]int{1, 0}, []int{1}, 10, 1},
		{[]int{0, 1}, []int{1}, 10, 1 / math.Log2(3)},
		{[]int{0, 1}, []int{1}, 1, 0},
		{nil, []int{1}, 10, 0},
		{[]int{0}, []int{0, -1}, 10, math.NaN()},
		{[]int{1}, nil, 10, math.NaN()},
		{[]int{-2, 1}, []int{1, -2}, 10, 1 / math.Log2(3)}, // negative grades are worth nothing, not less
	} {
		if got := NDCG(c.ranked, c.ideal, c.k, GainLinear); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%v against %v at %d: %v, want %v", c.ranked, c.ideal, c.k, got, c.want)
		}
	}
}

func TestOrders(t *testing.T) {
	chunks := []Chunk{
		{Similarity: 0.5, Logit: 1}, {Similarity: 0.9, Logit: none}, {Similarity: 0.5, Logit: 7}, {Similarity: 0.95, Logit: none}, {Similarity: 0.1, Logit: 1},
	}
	if got := retrieved(chunks); !slices.Equal(got, []int{3, 1, 0, 2, 4}) {
		t.Errorf("retrieved %v", got)
	}
	if got := reranked(chunks); !slices.Equal(got, []int{2, 0, 4, 3, 1}) {
		t.Errorf("reranked %v", got)
	}
	chunks[2].Similarity = none
	if got := retrieved(chunks); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
		t.Errorf("retrieved with a similarity missing %v", got)
	}
	if got := reranked(chunks); !slices.Equal(got, []int{2, 0, 4, 1, 3}) {
		t.Errorf("reranked with a similarity missing %v", got)
	}
}

func TestNDCGOfTurns(t *testing.T) {
	turns := fourTurns()
	r, err := Chunks(turns, ChunkOptions{Rank: 10})
	if err != nil {
		t.Fatal(err)
	}
	l := func(rank float64) float64 { return 1 / math.Log2(rank+1) }
	// Before: grades by similarity. After: by logit, the unscored one last.
	before := ((1*l(2)+2*l(3))/(2*l(1)+1*l(2)) + 1 + 3*l(2)/3) / 3
	after := ((1*l(1)+2*l(3))/(2*l(1)+1*l(2)) + 1 + 1) / 3
	n := r.NDCG
	if math.Abs(n.Before.Mean-before) > 1e-12 || math.Abs(n.After.Mean-after) > 1e-12 || math.Abs(n.Change.Mean-(after-before)) > 1e-12 {
		t.Errorf("nDCG %+v, want %v and %v", n, before, after)
	}
	if n.Without != 1 || n.Before.N != 3 || n.At != 10 {
		t.Errorf("nDCG %+v", n)
	}
	// Against the whole collection, what the retriever missed counts too.
	turns[2].Ideal = []int{3, 3}
	r2, err := Chunks(turns, ChunkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !(r2.NDCG.After.Mean < n.After.Mean) {
		t.Errorf("a missed text did not lower nDCG: %v, was %v", r2.NDCG.After.Mean, n.After.Mean)
	}
	turns[0].Ideal = []int{2}
	_, err = Chunks(turns, ChunkOptions{})
	var input *InputError
	if !errors.As(err, &input) || input.Row != 0 || input.Field != "ideal" {
		t.Errorf("an ideal without the given chunks: %v", err)
	}
}

func TestChunkInputErrors(t *testing.T) {
	turn := func(c Chunk) []ChunkTurn { return []ChunkTurn{{Threshold: 0.6, Chunks: []Chunk{c}}} }
	for name, c := range map[string]struct {
		turns []ChunkTurn
		o     ChunkOptions
		want  string
	}{
		"empty":     {nil, ChunkOptions{}, "data is empty: want at least one turn with labelled chunks"},
		"decision":  {turn(Chunk{Decision: "passed"}), ChunkOptions{}, `record 0: chunks[0].decision is "passed": want "kept", "fallback", "dropped" or "unscored"`},
		"relevance": {turn(Chunk{Decision: Kept, Relevance: 1.5}), ChunkOptions{}, "record 0: chunks[0].relevance is 1.5: want 0…1, or NaN where not scored"},
		"NaN kept":  {turn(Chunk{Decision: Kept, Relevance: none, Logit: none}), ChunkOptions{}, `record 0: chunks[0].decision is "kept": want a relevance, since NaN never passes`},
		"half NaN":  {turn(Chunk{Decision: Dropped, Relevance: none}), ChunkOptions{}, "record 0: chunks[0].logit is 0: want NaN exactly where relevance is"},
		"threshold": {[]ChunkTurn{{Threshold: none}}, ChunkOptions{}, "record 0: threshold is NaN: want 0…1"},
		"gain":      {turn(Chunk{Decision: Dropped}), ChunkOptions{Gain: "log"}, `gain is "log": want "linear" or "exponential"`},
		"rank":      {turn(Chunk{Decision: Dropped}), ChunkOptions{Rank: -1}, "rank is -1: want at least 1"},
		"grade":     {turn(Chunk{Decision: Dropped}), ChunkOptions{RelevantFrom: -1}, "lowest relevant grade is -1: want at least 1"},
	} {
		_, err := Chunks(c.turns, c.o)
		var input *InputError
		if !errors.As(err, &input) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// randomChunkTurns makes turns as a gate with a threshold, a maximum and a fallback would leave them.
func randomChunkTurns(random *rand.Rand, n int) []ChunkTurn {
	turns := make([]ChunkTurn, n)
	for i := range turns {
		t := &turns[i]
		t.Threshold, t.Type = 0.6, []string{"faq", "broad"}[random.IntN(2)]
		kept := 0
		for range random.IntN(8) {
			c := chunk(random.IntN(3), 0.01+0.98*random.Float64(), random.Float64(), Dropped)
			if random.IntN(8) == 0 {
				c.Relevance, c.Logit, c.Decision = none, none, Unscored
			} else if c.Relevance >= t.Threshold && kept < 3 {
				c.Decision = Kept
				kept++
			} else if random.IntN(4) == 0 {
				c.Decision, t.FallbackTriggered = Fallback, true
			}
			t.Chunks = append(t.Chunks, c)
		}
	}
	return turns
}

func TestChunkIdentities(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 0))
	for range 60 {
		turns := randomChunkTurns(random, 1+random.IntN(20))
		r, err := Chunks(turns, ChunkOptions{TopK: random.IntN(4)})
		if err != nil {
			t.Fatal(err)
		}
		o := r.Overall
		if o.Recall.Count+o.FalseNegative.Count != o.Recall.Of || o.Recall.Of != o.FalseNegative.Of || o.Recall.Of != o.RetrievedPrecision.Count {
			t.Fatalf("seed 12: recall %+v and false negatives %+v do not add up", o.Recall, o.FalseNegative)
		}
		if o.LostTo.Threshold+o.LostTo.Limit+o.LostTo.Unscored != o.FalseNegative.Count {
			t.Fatalf("seed 12: %+v does not add up to %d", o.LostTo, o.FalseNegative.Count)
		}
		if o.Precision.Count != o.Recall.Count || o.KeptPrecision.Count != o.KeptRecall.Count || o.KeptRecall.Count > o.Recall.Count {
			t.Fatalf("seed 12: hits differ: %+v", o)
		}
		n := o.NoAnswer
		if n.Without.Count+n.Raised.Count-n.Lowered.Count != n.With.Count {
			t.Fatalf("seed 12: %+v does not add up", n)
		}
		if r.TopK == 0 && n.Lowered.Count != 0 {
			t.Fatal("seed 12: the gate found what was not given")
		}
		turnsSum, lost := 0, 0
		for _, g := range r.ByType {
			turnsSum += g.Turns
			lost += g.FalseNegative.Count
		}
		if turnsSum != o.Turns || lost != o.FalseNegative.Count {
			t.Fatal("seed 12: types do not add up")
		}
		for _, p := range []Proportion{o.Precision, o.Recall, o.FalseNegative, n.Raised} {
			if p.Of > 0 && !(p.Low <= p.Rate()+1e-12 && p.Rate() <= p.High+1e-12 && p.Low >= 0 && p.High <= 1) {
				t.Fatalf("seed 12: interval %+v", p)
			}
		}
		for _, m := range []Mean{r.NDCG.Before, r.NDCG.After} {
			if m.Mean < 0 || m.Mean > 1+1e-12 {
				t.Fatalf("seed 12: nDCG %+v", m)
			}
		}
	}
}
