package evaluate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Decision is what the chunk gate did with one chunk, in the words of its answer.
type Decision string

// Kept chunks passed the threshold and Fallback chunks were handed on although they did not; both are returned. Dropped chunks were
// not, and Unscored ones were not for want of time.
const (
	Kept     Decision = "kept"
	Fallback Decision = "fallback"
	Dropped  Decision = "dropped"
	Unscored Decision = "unscored"
)

// Returned says whether a chunk with this decision reaches the context.
func (d Decision) Returned() bool { return d == Kept || d == Fallback }

// Chunk is one labelled chunk of a turn.
type Chunk struct {
	// Similarity is the retriever's number, NaN where it gave none.
	Similarity float64
	// Relevance is sigmoid(Logit), in 0…1. Both are NaN for a chunk that was not scored.
	Relevance, Logit float64
	// Grade is the label: 0 for not relevant or not judged, higher the better. With yes-or-no labels, 1 is relevant.
	Grade    int
	Decision Decision
}

// ChunkTurn is one query with its labelled chunks and what the chunk gate did.
type ChunkTurn struct {
	Query string
	// Type is the query type whose threshold was used ("faq", "lookup", "broad", "comparison").
	Type string
	// Threshold is the relevance that was asked for.
	Threshold float64
	// Chunks are in the retriever's order.
	Chunks []Chunk
	// FallbackTriggered and Insufficient are the answer's fallback_triggered and insufficient_context.
	FallbackTriggered, Insufficient bool
	// Ideal has the grades of every text of the collection that is relevant for the query, found or not: what nDCG is measured
	// against. Nil measures against the given chunks, which cannot show what the retriever missed.
	Ideal []int
}

// LostTo says why relevant chunks were not returned.
type LostTo struct {
	// Threshold: relevance under the threshold. Limit: it passed, but the maximum, the token budget or a metadata rule left it out.
	// Unscored: time ran out.
	Threshold int `json:"threshold"`
	Limit     int `json:"limit"`
	Unscored  int `json:"unscored"`
}

// ChunkRates is what became of the chunks of a set of turns. Rates over chunks have intervals that allow for the chunks of one
// turn being alike; rates over turns are Clopper-Pearson.
type ChunkRates struct {
	Turns int `json:"turns"`
	// RetrievedPrecision is the share of relevant chunks among all given: the precision without a gate.
	RetrievedPrecision Proportion `json:"retrieved_precision"`
	// Precision is the share of relevant ones among the returned, Recall the share of returned ones among the relevant given.
	Precision Proportion `json:"precision"`
	Recall    Proportion `json:"recall"`
	// FalseNegative is the share of relevant given chunks that were not returned, LostTo the reasons.
	FalseNegative Proportion `json:"false_negative"`
	LostTo        LostTo     `json:"lost_to"`
	// KeptPrecision and KeptRecall count only what passed the threshold, without fallbacks.
	KeptPrecision Proportion `json:"kept_precision"`
	KeptRecall    Proportion `json:"kept_recall"`
	// TurnRecall is the mean over turns of the recall within the turn, which is what [CalibrateChunks] promises.
	TurnRecall Mean `json:"turn_recall"`
	// GivenPerTurn and ReturnedPerTurn are chunks per turn.
	GivenPerTurn    Mean `json:"given_per_turn"`
	ReturnedPerTurn Mean `json:"returned_per_turn"`
	// Passed is the share of turns with enough chunks over the threshold, Fallback that of turns where a fallback had to help,
	// Abstained that of turns answered with insufficient context. The last two can both be true of a turn.
	Passed    Proportion `json:"passed"`
	Fallback  Proportion `json:"fallback"`
	Abstained Proportion `json:"abstained"`
	NoAnswer  NoAnswer   `json:"no_answer"`
}

// NoAnswer compares the share of turns whose context holds no relevant chunk, with and without the gate.
type NoAnswer struct {
	// Without the gate the context is the first chunks of the retriever ([ChunkOptions.TopK]); With is what the gate returned.
	Without Proportion `json:"without_gate"`
	With    Proportion `json:"with_gate"`
	// Raised is the share of turns where a relevant chunk was there without the gate and none with it: the price of the gate.
	// Lowered is the opposite, which only happens with a TopK, when the gate brought a relevant chunk up from behind.
	Raised  Proportion `json:"raised"`
	Lowered Proportion `json:"lowered"`
}

// ChunkGroup is the rates of the turns of one query type.
type ChunkGroup struct {
	Name string `json:"name"`
	ChunkRates
}

// NDCGResult is nDCG in the retriever's order and in the gate's.
type NDCGResult struct {
	At   int  `json:"at"`
	Gain Gain `json:"gain"`
	// Before, After and the Change from one to the other are means over the turns for which anything is relevant; the interval of
	// Change is that of the paired differences.
	Before Mean `json:"before"`
	After  Mean `json:"after"`
	Change Mean `json:"change"`
	// Without counts the turns left out because nothing is relevant for them.
	Without int `json:"turns_without_relevant"`
}

// ChunkResult is what [Chunks] found.
type ChunkResult struct {
	Confidence float64 `json:"confidence"`
	// RelevantFrom is the lowest grade that counts as relevant, TopK the context's size without a gate (0: all given chunks).
	RelevantFrom int          `json:"relevant_from"`
	TopK         int          `json:"top_k"`
	Overall      ChunkRates   `json:"overall"`
	ByType       []ChunkGroup `json:"by_type"`
	NDCG         NDCGResult   `json:"ndcg"`
	// Relevance and Logit are histograms of the scored chunks by grade; binary labels read "0" and "1".
	Relevance *Histogram `json:"relevance"`
	Logit     *Histogram `json:"logit"`
	// MedianGiven is the median number of chunks given.
	MedianGiven float64 `json:"median_given"`
	// Losses are turns that had a relevant chunk and got none, at most [ChunkOptions.Examples], the highest lost relevance last.
	Losses []ChunkExample `json:"losses,omitempty"`
}

// ChunkExample is a turn from which the gate took every relevant chunk.
type ChunkExample struct {
	Query string `json:"query"`
	Type  string `json:"type,omitempty"`
	// Given and Relevant count its chunks; BestRelevant is the highest relevance of a relevant one, nil where none was scored.
	Given        int      `json:"given"`
	Relevant     int      `json:"relevant"`
	BestRelevant *float64 `json:"best_relevant"`
	Threshold    float64  `json:"threshold"`
}

// ChunkOptions are options of [Chunks]; the zero value is ready to use.
type ChunkOptions struct {
	// Confidence of intervals, DefaultConfidence where 0.
	Confidence float64
	// RelevantFrom is the lowest grade that counts as relevant, 1 where 0.
	RelevantFrom int
	// TopK is how many of the retriever's chunks would be the context without a gate; 0: all.
	TopK int
	// Rank and Gain are those of nDCG, DefaultRank and GainLinear where zero.
	Rank int
	Gain Gain
	// Examples bounds the losses listed, DefaultExamples where 0; negative: none.
	Examples int
}

// DefaultRank is the k of nDCG@k that retrieval benchmarks state.
const DefaultRank = 10

func (o *ChunkOptions) fill() error {
	if o.Confidence == 0 {
		o.Confidence = DefaultConfidence
	}
	if o.RelevantFrom == 0 {
		o.RelevantFrom = 1
	}
	if o.Rank == 0 {
		o.Rank = DefaultRank
	}
	if o.Gain == "" {
		o.Gain = GainLinear
	}
	if o.Examples == 0 {
		o.Examples = DefaultExamples
	}
	if o.Gain != GainLinear && o.Gain != GainExponential {
		return &InputError{Row: -1, Field: "gain", Value: strconv.Quote(string(o.Gain)), Want: `"linear" or "exponential"`}
	}
	for _, f := range []struct {
		name       string
		value, min int
	}{{"lowest relevant grade", o.RelevantFrom, 1}, {"top k", o.TopK, 0}, {"rank", o.Rank, 1}} {
		if f.value < f.min {
			return &InputError{Row: -1, Field: f.name, Value: strconv.Itoa(f.value), Want: fmt.Sprintf("at least %d", f.min)}
		}
	}
	return checkConfidence(o.Confidence)
}

func checkChunkTurns(turns []ChunkTurn) error {
	if len(turns) == 0 {
		return &InputError{Row: -1, Field: "data", Value: "empty", Want: "at least one turn with labelled chunks"}
	}
	for i, t := range turns {
		if !(t.Threshold >= 0 && t.Threshold <= 1) {
			return &InputError{Row: i, Field: "threshold", Value: format(t.Threshold), Want: "0…1"}
		}
		if given, known := worth(t.Chunks, func(c Chunk) int { return c.Grade }), worth(t.Ideal, func(g int) int { return g }); t.Ideal != nil && given > known {
			return &InputError{Row: i, Field: "ideal", Value: fmt.Sprintf("%d grades above 0 for %d given chunks with one", known, given),
				Want: "the grade of every relevant text, those of the given chunks included"}
		}
		for j, c := range t.Chunks {
			fail := func(field, value, want string) error {
				return &InputError{Row: i, Field: fmt.Sprintf("chunks[%d].%s", j, field), Value: value, Want: want}
			}
			switch c.Decision {
			case Kept, Fallback, Dropped, Unscored:
			default:
				return fail("decision", strconv.Quote(string(c.Decision)), `"kept", "fallback", "dropped" or "unscored"`)
			}
			if c.Relevance < 0 || c.Relevance > 1 {
				return fail("relevance", format(c.Relevance), "0…1, or NaN where not scored")
			}
			if math.IsNaN(c.Relevance) != math.IsNaN(c.Logit) {
				return fail("logit", format(c.Logit), "NaN exactly where relevance is")
			}
			if math.IsNaN(c.Relevance) && c.Decision == Kept {
				return fail("decision", `"kept"`, "a relevance, since NaN never passes")
			}
		}
	}
	return nil
}

// worth counts the items with a grade above 0.
func worth[T any](items []T, grade func(T) int) int {
	n := 0
	for _, item := range items {
		if grade(item) > 0 {
			n++
		}
	}
	return n
}

// Chunks tabulates what the chunk gate did. It returns an [*InputError] for a turn or option that cannot be used.
func Chunks(turns []ChunkTurn, o ChunkOptions) (*ChunkResult, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := checkChunkTurns(turns); err != nil {
		return nil, err
	}
	r := &ChunkResult{Confidence: o.Confidence, RelevantFrom: o.RelevantFrom, TopK: o.TopK, NDCG: ndcgOf(turns, o)}
	groups := map[string][]*ChunkTurn{}
	all := make([]*ChunkTurn, len(turns))
	given := make([]int, len(turns))
	relevance, logits := map[string][]float64{}, map[string][]float64{}
	for i := range turns {
		t := &turns[i]
		all[i], given[i] = t, len(t.Chunks)
		groups[t.Type] = append(groups[t.Type], t)
		for _, c := range t.Chunks {
			if !math.IsNaN(c.Relevance) {
				grade := strconv.Itoa(c.Grade)
				relevance[grade] = append(relevance[grade], c.Relevance)
				logits[grade] = append(logits[grade], c.Logit)
			}
		}
	}
	r.Overall = chunkRates(all, o)
	for name, members := range groups {
		r.ByType = append(r.ByType, ChunkGroup{Name: name, ChunkRates: chunkRates(members, o)})
	}
	slices.SortFunc(r.ByType, func(a, b ChunkGroup) int { return cmp.Compare(a.Name, b.Name) })
	r.Relevance = newHistogram("relevance", 0, 1, relevance)
	low, high := span(logits)
	r.Logit = newHistogram("logit", low, high, logits)
	r.MedianGiven = median(given)
	r.Losses = losses(turns, o)
	return r, nil
}

func median(values []int) float64 {
	v := slices.Sorted(slices.Values(values))
	return float64(v[(len(v)-1)/2]+v[len(v)/2]) / 2
}

func chunkRates(turns []*ChunkTurn, o ChunkOptions) ChunkRates {
	r := ChunkRates{Turns: len(turns)}
	var retrievedParts, precision, recall, missing, keptPrecision, keptRecall []cluster
	var turnRecall, givenN, returnedN []float64
	var passed, fellBack, abstained, without, with, raised, lowered int
	for _, t := range turns {
		var relevant, returned, hits, kept, keptHits int
		for _, c := range t.Chunks {
			isRelevant := c.Grade >= o.RelevantFrom
			if isRelevant {
				relevant++
			}
			if c.Decision.Returned() {
				returned++
			}
			if c.Decision == Kept {
				kept++
			}
			switch {
			case !isRelevant:
			case c.Decision.Returned():
				hits++
				if c.Decision == Kept {
					keptHits++
				}
			case math.IsNaN(c.Relevance):
				r.LostTo.Unscored++
			case c.Relevance >= t.Threshold:
				r.LostTo.Limit++
			default:
				r.LostTo.Threshold++
			}
		}
		retrievedParts = append(retrievedParts, cluster{relevant, len(t.Chunks)})
		precision = append(precision, cluster{hits, returned})
		recall = append(recall, cluster{hits, relevant})
		missing = append(missing, cluster{relevant - hits, relevant})
		keptPrecision = append(keptPrecision, cluster{keptHits, kept})
		keptRecall = append(keptRecall, cluster{keptHits, relevant})
		if relevant > 0 {
			turnRecall = append(turnRecall, float64(hits)/float64(relevant))
		}
		givenN = append(givenN, float64(len(t.Chunks)))
		returnedN = append(returnedN, float64(returned))
		if t.FallbackTriggered {
			fellBack++
		}
		if t.Insufficient {
			abstained++
		}
		if !t.FallbackTriggered && !t.Insufficient {
			passed++
		}
		before, after := relevantOnTop(t, o), hits > 0
		if !before {
			without++
		}
		if !after {
			with++
		}
		if before && !after {
			raised++
		}
		if !before && after {
			lowered++
		}
	}
	share := func(n int) Proportion { return ClopperPearson(n, len(turns), o.Confidence) }
	pooled := func(parts []cluster) Proportion { return clustered(parts, o.Confidence) }
	r.RetrievedPrecision, r.Precision, r.Recall, r.FalseNegative = pooled(retrievedParts), pooled(precision), pooled(recall), pooled(missing)
	r.KeptPrecision, r.KeptRecall = pooled(keptPrecision), pooled(keptRecall)
	r.TurnRecall = meanOf(turnRecall, o.Confidence)
	r.GivenPerTurn, r.ReturnedPerTurn = meanOf(givenN, o.Confidence), meanOf(returnedN, o.Confidence)
	r.Passed, r.Fallback, r.Abstained = share(passed), share(fellBack), share(abstained)
	r.NoAnswer = NoAnswer{Without: share(without), With: share(with), Raised: share(raised), Lowered: share(lowered)}
	return r
}

// relevantOnTop says whether the context without a gate holds a relevant chunk.
func relevantOnTop(t *ChunkTurn, o ChunkOptions) bool {
	order := retrieved(t.Chunks)
	if o.TopK > 0 {
		order = order[:min(o.TopK, len(order))]
	}
	return slices.ContainsFunc(order, func(i int) bool { return t.Chunks[i].Grade >= o.RelevantFrom })
}

func ndcgOf(turns []ChunkTurn, o ChunkOptions) NDCGResult {
	r := NDCGResult{At: o.Rank, Gain: o.Gain}
	var before, after, change []float64
	for i := range turns {
		chunks := turns[i].Chunks
		grades := func(order []int) []int {
			g := make([]int, len(order))
			for at, index := range order {
				g[at] = chunks[index].Grade
			}
			return g
		}
		was := grades(retrieved(chunks))
		ideal := turns[i].Ideal
		if ideal == nil {
			ideal = was
		}
		b := NDCG(was, ideal, o.Rank, o.Gain)
		if math.IsNaN(b) {
			r.Without++
			continue
		}
		a := NDCG(grades(reranked(chunks)), ideal, o.Rank, o.Gain)
		before, after, change = append(before, b), append(after, a), append(change, a-b)
	}
	r.Before, r.After, r.Change = meanOf(before, o.Confidence), meanOf(after, o.Confidence), meanOf(change, o.Confidence)
	return r
}

func losses(turns []ChunkTurn, o ChunkOptions) []ChunkExample {
	var out []ChunkExample
	for i := range turns {
		t := &turns[i]
		if !relevantOnTop(t, o) {
			continue
		}
		e := ChunkExample{Query: t.Query, Type: t.Type, Given: len(t.Chunks), Threshold: t.Threshold}
		hit := false
		for _, c := range t.Chunks {
			if c.Grade < o.RelevantFrom {
				continue
			}
			e.Relevant++
			hit = hit || c.Decision.Returned()
			if !math.IsNaN(c.Relevance) && (e.BestRelevant == nil || c.Relevance > *e.BestRelevant) {
				e.BestRelevant = &c.Relevance
			}
		}
		if !hit {
			out = append(out, e)
		}
	}
	value := func(e ChunkExample) float64 {
		if e.BestRelevant == nil {
			return math.NaN()
		}
		return *e.BestRelevant
	}
	slices.SortStableFunc(out, func(a, b ChunkExample) int { return cmp.Compare(value(a), value(b)) })
	return out[:min(len(out), max(o.Examples, 0))]
}
