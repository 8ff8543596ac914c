package evaluate

import (
	"math"
	"math/rand/v2"
	"slices"
)

// This file chooses thresholds that keep a promise. The data is split in two. The selection part says which thresholds are worth
// having: those at which the gate does more than at the next more careful one. The held-out part decides: of these, the boldest is
// taken for which it and all more careful ones have a held-out bound within the promise.
//
// Why walking along the held-out part does not spoil the bound: the true failure rate only grows from careful to bold, and the walk
// stops at the first threshold whose bound is too high. To end at a threshold that breaks the promise, it must have passed the first
// of the candidates that breaks it, whose bound was then too low, which happens with probability at most 1 − confidence (fixed-
// sequence testing; Bates et al. 2021, "Distribution-free, risk-controlling prediction sets", J. ACM 68). The candidates do not
// depend on the held-out part.

// Defaults of calibration.
const (
	// DefaultHeldOut is the share of turns that decide. Half: both parts need the rare turns near the threshold.
	DefaultHeldOut = 0.5
	// maxCandidates bounds the thresholds that are looked at. Finer steps than a few hundredths of the chitchat gain nothing.
	maxCandidates = 200

	// Second words of the random generator, so that the split and the order within a part are separate draws of one seed.
	splitStream, orderStream = 1, 2
)

// Calibration is a threshold that keeps a promise, with its evidence.
type Calibration struct {
	Promise   Promise `json:"promise"`
	Threshold float64 `json:"threshold"`
	// Bound is the one-sided bound of the held-out part at the threshold: within the promise.
	Bound float64 `json:"bound"`
	// Method is how the bound was made: MethodClopperPearson or MethodBetting.
	Method string `json:"method"`
	// Failures are the held-out trials that fail at the threshold, with a two-sided interval: knowledge turns bypassed; for recall,
	// relevant chunks dropped of relevant chunks.
	Failures Proportion `json:"failures"`
	// Gain is what the threshold is for, on the held-out part: chitchat bypassed; chunks dropped of all chunks that are not relevant.
	Gain Proportion `json:"gain"`
	// ByLanguage is the held-out part at the threshold by language, false bypass only: one threshold serves them all, and the promise is
	// about all together. Empty where there is one language.
	ByLanguage []QueryGroup `json:"by_language,omitempty"`
	// HeldOut and Selection count the turns of the parts, Seed made the split.
	HeldOut   int    `json:"held_out_turns"`
	Selection int    `json:"selection_turns"`
	Seed      uint64 `json:"seed"`
	// Curve has the thresholds that were looked at, most careful first. Those bolder than the chosen one did not keep the promise.
	Curve []CurvePoint `json:"curve"`
}

// CurvePoint is one threshold that calibration looked at.
type CurvePoint struct {
	Threshold float64 `json:"threshold"`
	// Failure and Gain are rates on the held-out part, as in [Calibration]; for recall, Failure is one minus the mean recall of turns.
	Failure float64 `json:"failure"`
	Gain    float64 `json:"gain"`
	// Bound is the one-sided upper bound on the failure rate for false bypass, the lower bound on recall for recall.
	Bound float64 `json:"bound"`
	Keeps bool    `json:"keeps"`
}

// How a bound was made.
const (
	MethodClopperPearson = "clopper-pearson"
	MethodBetting        = "betting"
)

// CalibrateOptions are options of calibration; the zero value is ready to use.
type CalibrateOptions struct {
	// Confidence of the promise, DefaultConfidence where 0.
	Confidence float64
	// HeldOut is the share of turns that decide, DefaultHeldOut where 0.
	HeldOut float64
	// Seed makes the split; every seed, 0 too, gives one split for good. Choosing among seeds by their result voids the promise.
	Seed uint64
	// RelevantFrom is the lowest grade that counts as relevant, 1 where 0. Chunks only.
	RelevantFrom int
}

func (o *CalibrateOptions) fill() error {
	if o.Confidence == 0 {
		o.Confidence = DefaultConfidence
	}
	if o.HeldOut == 0 {
		o.HeldOut = DefaultHeldOut
	}
	if o.RelevantFrom == 0 {
		o.RelevantFrom = 1
	}
	if !(o.HeldOut > 0 && o.HeldOut < 1) {
		return &InputError{Row: -1, Field: "held-out share", Value: format(o.HeldOut), Want: "between 0 and 1, such as 0.5"}
	}
	return checkConfidence(o.Confidence)
}

// split deals indexes 0…n−1 to the held-out part (true) or the selection part. Within each stratum the deal is random by seed; over
// strata, taken in the order of their names, the held-out share is kept to within one, also where strata are single turns.
func split(n int, share float64, seed uint64, stratum func(i int) string) []bool {
	strata := map[string][]int{}
	for i := range n {
		name := stratum(i)
		strata[name] = append(strata[name], i)
	}
	names := make([]string, 0, len(strata))
	for name := range strata {
		names = append(names, name)
	}
	slices.Sort(names)
	random := rand.New(rand.NewPCG(seed, splitStream))
	held := make([]bool, n)
	// The running remainder starts at a random point: with a fixed one, single turns would always fall on the same side.
	done, carry := 0, random.Float64()
	for _, name := range names {
		members := strata[name]
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		before := int(share*float64(done) + carry)
		done += len(members)
		for _, i := range members[:int(share*float64(done)+carry)-before] {
			held[i] = true
		}
	}
	return held
}

// CalibrateQuery chooses the threshold on the score that bypasses the most chitchat while at most maxFalseBypass of knowledge turns
// are bypassed, with the stated confidence. Turns are split by domain, label and language. Turns without a score count as they were
// decided, so that the promise is about the gate, not about one of its stages; of knowledge turns there may be no others, where rules and
// guards take care of them all.
//
// It returns a [*RefusedError] with the curve where no threshold keeps the promise, an [*InputError] for unusable records.
func CalibrateQuery(turns []QueryTurn, maxFalseBypass float64, o CalibrateOptions) (*Calibration, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if !(maxFalseBypass > 0 && maxFalseBypass < 1) {
		return nil, &InputError{Row: -1, Field: "largest false-bypass rate", Value: format(maxFalseBypass), Want: "between 0 and 1, such as 0.01"}
	}
	if err := checkTurns(turns); err != nil {
		return nil, err
	}
	held := split(len(turns), o.HeldOut, o.Seed, func(i int) string { return string(turns[i].Label) + "\x00" + turns[i].Domain + "\x00" + turns[i].Lang })
	var selection, decisive []QueryTurn
	for i, t := range turns {
		if held[i] {
			decisive = append(decisive, t)
		} else {
			selection = append(selection, t)
		}
	}
	pick, judge := newSweep(selection), newSweep(decisive)
	promise := Promise{Metric: MetricFalseBypass, Limit: maxFalseBypass, Confidence: o.Confidence}
	trials := judge.total[Knowledge]
	var points []CurvePoint
	last, bound := -1, 0.0
	for _, threshold := range pick.candidates() {
		at := judge.decide(threshold)
		if at.knowledge != last { // neighbours often fail alike
			last, bound = at.knowledge, UpperBound(at.knowledge, trials, o.Confidence)
		}
		points = append(points, CurvePoint{
			Threshold: threshold,
			Failure:   share(at.knowledge, trials),
			Gain:      share(at.chitchat, judge.total[Chitchat]),
			Bound:     bound,
			Keeps:     bound <= maxFalseBypass,
		})
	}
	refused := &RefusedError{Promise: promise, HeldOut: trials, Curve: points}
	chosen, err := boldest(points, refused, o.HeldOut, func(n int) float64 { return UpperBound(0, n, o.Confidence) })
	if err != nil {
		return nil, err
	}
	at := judge.decide(chosen.Threshold)
	if at.chitchat == judge.fixed.chitchat {
		refused.Reason = NothingToGain
		return nil, refused
	}
	return &Calibration{
		Promise: promise, Threshold: chosen.Threshold, Bound: chosen.Bound, Method: MethodClopperPearson, ByLanguage: languagesAt(decisive, chosen.Threshold, o.Confidence),
		Failures: ClopperPearson(at.knowledge, trials, o.Confidence),
		Gain:     ClopperPearson(at.chitchat, judge.total[Chitchat], o.Confidence),
		HeldOut:  len(decisive), Selection: len(selection), Seed: o.Seed, Curve: points,
	}, nil
}

// languagesAt is what a threshold does in each language; nil where there is only one.
func languagesAt(turns []QueryTurn, threshold, confidence float64) []QueryGroup {
	decided := slices.Clone(turns)
	for i := range decided {
		if t := &decided[i]; !math.IsNaN(t.Score) {
			t.Bypassed = t.Score >= threshold
		}
	}
	groups := groupBy(decided, confidence, func(t *QueryTurn) string { return t.Lang })
	if len(groups) < 2 {
		return nil
	}
	return groups
}

// share is n of total, 0 of nothing.
func share(n, total int) float64 {
	if total == 0 {
		return 0
	}
	return float64(n) / float64(total)
}

// boldest returns the last point up to which all keep the promise, or refused with its reason filled in. best is the upper bound on
// the failure rate after n trials without a failure.
func boldest(points []CurvePoint, refused *RefusedError, share float64, best func(n int) float64) (CurvePoint, error) {
	if len(points) > 0 && points[0].Keeps {
		i := slices.IndexFunc(points, func(p CurvePoint) bool { return !p.Keeps })
		if i < 0 {
			i = len(points)
		}
		return points[i-1], nil
	}
	isRecall := refused.Promise.Metric == MetricRecall
	limit := refused.Promise.Limit
	if isRecall {
		limit = 1 - limit
	}
	total := func(held int) int { return int(math.Ceil(float64(held)/share - 1e-9)) }
	unfailing := best(refused.HeldOut)
	switch {
	case unfailing > limit:
		refused.Reason = TooFewSamples
		refused.BestBound = unfailing
		if isRecall {
			refused.BestBound = 1 - unfailing
		}
		// The exact number of trials where the bound is Clopper-Pearson's, a little under it for the betting bound: count up.
		refused.NeededHeldOut = SamplesNeeded(0, limit, refused.Promise.Confidence)
		for best(refused.NeededHeldOut) > limit {
			refused.NeededHeldOut++
		}
		refused.NeededTotal = total(refused.NeededHeldOut)
	case len(points) == 0:
		refused.Reason = NothingToGain
	default:
		refused.Reason = NoThreshold
		refused.BestBound = points[0].Bound
		refused.NeededAtRate = total(SamplesNeeded(points[0].Failure, limit, refused.Promise.Confidence))
	}
	return CurvePoint{}, refused
}

// candidates returns the thresholds worth having, falling: one for each step at which more chitchat is bypassed, thinned to steps of
// an even share of the chitchat.
func (s *sweep) candidates() []float64 {
	smallest := float64(s.scored[Chitchat]) / maxCandidates
	var out []float64
	taken := s.fixed.chitchat
	for i, st := range s.steps {
		if gained := float64(st.chitchat - taken); gained > 0 && gained >= smallest {
			out = append(out, s.threshold(i))
			taken = st.chitchat
		}
	}
	return out
}

// decide returns what is bypassed at a threshold.
func (s *sweep) decide(threshold float64) step {
	n, _ := slices.BinarySearchFunc(s.steps, threshold, func(st step, t float64) int {
		if st.score >= t {
			return -1
		}
		return 1
	})
	if n == 0 {
		return s.fixed
	}
	return s.steps[n-1]
}

// recallTurn is one turn with a relevant chunk: the relevances that decide what the threshold keeps of it.
type recallTurn struct {
	relevant, other []float64 // NaN where not scored
}

// loss is the share of the turn's relevant chunks that a threshold drops.
func (t *recallTurn) loss(threshold float64) float64 {
	return float64(dropped(t.relevant, threshold)) / float64(len(t.relevant))
}

// dropped counts the values that do not reach the threshold; NaN never does.
func dropped(values []float64, threshold float64) int {
	n := 0
	for _, v := range values {
		if !(v >= threshold) {
			n++
		}
	}
	return n
}

// CalibrateChunks chooses the highest relevance threshold at which, with the stated confidence, the expected recall of a turn is at
// least minRecall. Recall of a turn is the share of its relevant chunks that reach the threshold; turns without a relevant chunk do
// not count. The threshold stands alone: maxima, budgets and fallbacks are not applied. Turns, not chunks, are split, by query
// type, and are the independent trials; their recalls lie anywhere in 0…1, for which the betting bound holds (see [MeanUpperBound]).
// Where each turn has just one relevant chunk the bound is Clopper-Pearson's, which is exact then.
//
// It returns a [*RefusedError] with the curve where no threshold that drops anything keeps the promise, an [*InputError] for unusable
// records.
func CalibrateChunks(turns []ChunkTurn, minRecall float64, o CalibrateOptions) (*Calibration, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if !(minRecall > 0 && minRecall < 1) {
		return nil, &InputError{Row: -1, Field: "smallest recall", Value: format(minRecall), Want: "between 0 and 1, such as 0.95"}
	}
	if err := checkChunkTurns(turns); err != nil {
		return nil, err
	}
	var usable []int
	parts := make([]recallTurn, len(turns))
	single := true
	for i, t := range turns {
		for _, c := range t.Chunks {
			if c.Grade >= o.RelevantFrom {
				parts[i].relevant = append(parts[i].relevant, c.Relevance)
			} else {
				parts[i].other = append(parts[i].other, c.Relevance)
			}
		}
		if n := len(parts[i].relevant); n > 0 {
			usable = append(usable, i)
			single = single && n == 1
		}
	}
	held := split(len(usable), o.HeldOut, o.Seed, func(i int) string { return turns[usable[i]].Type })
	var selection, decisive []recallTurn
	for at, i := range usable {
		if held[at] {
			decisive = append(decisive, parts[i])
		} else {
			selection = append(selection, parts[i])
		}
	}
	if len(selection) == 0 || len(decisive) == 0 {
		return nil, &InputError{Row: -1, Field: "turns with a relevant chunk", Value: format(float64(len(usable))), Want: "at least 2, to split them"}
	}
	promise := Promise{Metric: MetricRecall, Limit: minRecall, Confidence: o.Confidence}
	bound := func(losses []float64) float64 { return MeanUpperBound(losses, o.Confidence) }
	method := MethodBetting
	if single {
		method = MethodClopperPearson
		bound = func(losses []float64) float64 {
			failed := 0
			for _, l := range losses {
				failed += int(l)
			}
			return UpperBound(failed, len(losses), o.Confidence)
		}
	}
	// Records often come sorted, by topic or by difficulty; the bound wants them in an order that says nothing.
	random := rand.New(rand.NewPCG(o.Seed, orderStream))
	random.Shuffle(len(decisive), func(i, j int) { decisive[i], decisive[j] = decisive[j], decisive[i] })
	losses := make([]float64, len(decisive))
	var points []CurvePoint
	for _, threshold := range recallCandidates(selection) {
		p := CurvePoint{Threshold: threshold}
		var others, gone int
		for i := range decisive {
			losses[i] = decisive[i].loss(threshold)
			p.Failure += losses[i] / float64(len(decisive))
			others += len(decisive[i].other)
			gone += dropped(decisive[i].other, threshold)
		}
		if others > 0 {
			p.Gain = float64(gone) / float64(others)
		}
		p.Bound = 1 - bound(losses)
		p.Keeps = p.Bound >= minRecall
		points = append(points, p)
	}
	refused := &RefusedError{Promise: promise, HeldOut: len(decisive), Curve: points}
	chosen, err := boldest(points, refused, o.HeldOut, func(n int) float64 { return bound(make([]float64, n)) })
	if err != nil {
		return nil, err
	}
	var failures, gain []cluster
	for i := range decisive {
		failures = append(failures, cluster{dropped(decisive[i].relevant, chosen.Threshold), len(decisive[i].relevant)})
		gain = append(gain, cluster{dropped(decisive[i].other, chosen.Threshold), len(decisive[i].other)})
	}
	c := &Calibration{
		Promise: promise, Threshold: chosen.Threshold, Bound: chosen.Bound, Method: method,
		Failures: clustered(failures, o.Confidence), Gain: clustered(gain, o.Confidence),
		HeldOut: len(decisive), Selection: len(selection), Seed: o.Seed, Curve: points,
	}
	if c.Gain.Count == 0 {
		refused.Reason = NothingToGain
		return nil, refused
	}
	return c, nil
}

// recallCandidates returns the thresholds worth having, rising: each drops more chunks that are not relevant than the one before it,
// by at least an even share of them.
func recallCandidates(turns []recallTurn) []float64 {
	var values, others []float64
	for _, t := range turns {
		values = append(append(values, t.relevant...), t.other...)
		others = append(others, t.other...)
	}
	sorted := func(v []float64) []float64 {
		v = slices.DeleteFunc(v, math.IsNaN)
		slices.Sort(v)
		return v
	}
	values, others = sorted(values), sorted(others)
	smallest := float64(len(others)) / maxCandidates
	var out []float64
	taken := 0
	for i, v := range others {
		gained := i + 1 - taken
		if i+1 < len(others) && others[i+1] == v || float64(gained) < smallest {
			continue
		}
		above, _ := slices.BinarySearchFunc(values, v, func(e, target float64) int {
			if e <= target {
				return -1
			}
			return 1
		})
		if above == len(values) {
			break // nothing is left above it that a threshold could keep
		}
		out = append(out, between(v, values[above]))
		taken = i + 1
	}
	return out
}

// MeanUpperBound returns an upper bound, with the given confidence, on the mean of independent losses in 0…1 of any distribution. It
// is the hedged-capital bound of Waudby-Smith and Ramdas (2023, JRSS-B 86, "Estimating means of bounded random variables by
// betting") in the one-sided form of Bates et al. (2021, J. ACM 68): a bettor stakes part of the capital on each
// loss being under m; if the mean is m or more the capital is a supermartingale and exceeds 1/(1−confidence) with probability at
// most 1−confidence (Ville's inequality). The bound is the smallest m that makes the bettor that rich. It uses the spread of the
// losses, which Hoeffding's bound does not. It is 1 for no losses, and panics on a loss outside 0…1.
func MeanUpperBound(losses []float64, confidence float64) float64 {
	checkCounts(0, 0, confidence)
	n := float64(len(losses))
	// Stakes depend on earlier losses only. They start from one imagined loss of a half and its variance of a quarter.
	stakes := make([]float64, len(losses))
	sum, squares := 0.5, 0.25
	for i, l := range losses {
		if !(l >= 0 && l <= 1) {
			panic("evaluate: loss " + format(l) + " is outside 0…1")
		}
		seen := float64(i + 1)
		stakes[i] = min(1, math.Sqrt(2*math.Log(1/(1-confidence))/(n*squares/seen)))
		sum += l
		d := l - sum/(seen+1)
		squares += d * d
	}
	rich := func(m float64) bool {
		capital, goal := 0.0, math.Log(1/(1-confidence))
		for i, l := range losses {
			capital += math.Log1p(stakes[i] * (m - l))
			if capital > goal {
				return true
			}
		}
		return false
	}
	if !rich(1) {
		return 1
	}
	lo, hi := 0.0, 1.0
	for range 36 { // 2⁻³⁶ is finer than anything that is printed, and the bound stays on the safe side
		if m := lo + (hi-lo)/2; rich(m) {
			hi = m
		} else {
			lo = m
		}
	}
	return hi
}
