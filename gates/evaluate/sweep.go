package evaluate

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// This file knows what every threshold on the score would have decided. Two conventions hold throughout: a threshold is inclusive,
// and a turn without a score keeps the decision it has.

// step is a distinct score with what would be bypassed at a threshold that lets it pass and nothing below it.
type step struct {
	score               float64
	knowledge, chitchat int
}

// sweep holds the steps from the highest score down, so that later steps bypass more.
type sweep struct {
	steps []step
	// fixed counts what is bypassed at every threshold.
	fixed step
	// total and scored count turns by label.
	total, scored map[Label]int
}

// byScore returns the turns with the highest scores first and those without a score last.
func byScore(turns []QueryTurn) []*QueryTurn {
	sorted := make([]*QueryTurn, len(turns))
	for i := range turns {
		sorted[i] = &turns[i]
	}
	slices.SortStableFunc(sorted, func(a, b *QueryTurn) int { return cmp.Compare(b.Score, a.Score) })
	return sorted
}

func newSweep(turns []QueryTurn) *sweep {
	return sweepOf(byScore(turns), func(*QueryTurn) bool { return true })
}

// sweepOf makes a sweep of those of the sorted turns that keep wants.
func sweepOf(sorted []*QueryTurn, keep func(*QueryTurn) bool) *sweep {
	s := &sweep{steps: make([]step, 0, len(sorted)), total: map[Label]int{}, scored: map[Label]int{}}
	var at step
	for _, t := range sorted {
		if !keep(t) {
			continue
		}
		s.total[t.Label]++
		count := &at
		if math.IsNaN(t.Score) {
			if !t.Bypassed {
				continue
			}
			count = &s.fixed
		} else {
			s.scored[t.Label]++
			if len(s.steps) == 0 || s.steps[len(s.steps)-1].score != t.Score {
				s.steps = append(s.steps, step{score: t.Score})
			}
		}
		if t.Label == Knowledge {
			count.knowledge++
		} else {
			count.chitchat++
		}
		if count == &at {
			last := &s.steps[len(s.steps)-1]
			last.knowledge, last.chitchat = at.knowledge, at.chitchat
		}
	}
	for i := range s.steps {
		s.steps[i].knowledge += s.fixed.knowledge
		s.steps[i].chitchat += s.fixed.chitchat
	}
	return s
}

// threshold returns a number that lets step i pass and not step i+1: the shortest decimal near their middle, so that it survives
// being written to a policy file and is not tied to the last bit of one score.
func (s *sweep) threshold(i int) float64 {
	if i+1 == len(s.steps) {
		return s.steps[i].score
	}
	return between(s.steps[i+1].score, s.steps[i].score)
}

// between returns the shortest decimal t nearest to the middle with lo < t ≤ hi.
func between(lo, hi float64) float64 {
	middle := lo/2 + hi/2 // hi − lo can overflow
	for digits := 0; digits <= 17; digits++ {
		t, err := strconv.ParseFloat(strconv.FormatFloat(middle, 'f', digits, 64), 64)
		if t += 0; err == nil && lo < t && t <= hi { // + 0 turns −0 into 0
			return t
		}
	}
	return hi
}

// most returns the index of the step that bypasses the most chitchat with at most allowed knowledge turns bypassed, the highest
// such score where several do; −1 where no threshold bypasses any chitchat within that.
func (s *sweep) most(allowed int) int {
	last := -1
	for i, st := range s.steps {
		if st.knowledge > allowed {
			break
		}
		last = i
	}
	if last < 0 || s.steps[last].chitchat == s.fixed.chitchat {
		return -1
	}
	for last > 0 && s.steps[last-1].chitchat == s.steps[last].chitchat {
		last--
	}
	return last
}

// allowed is how many of n may fail at a rate; the slack keeps 0.01 × 300 at 3.
func allowed(rate float64, n int) int { return int(math.Floor(rate*float64(n) + 1e-9)) }

// OperatingPoint is what the best threshold for a false-bypass rate does on the very turns it was chosen on. It describes these
// turns and promises nothing about others: that is what [LeaveOneDomainOut] and [CalibrateQuery] are for.
type OperatingPoint struct {
	// Limit is the false-bypass rate asked for.
	Limit float64 `json:"limit"`
	// Threshold is nil where no threshold bypasses any chitchat within the limit; the rates are then those of the turns that were
	// decided without a threshold.
	Threshold   *float64   `json:"threshold"`
	Bypass      Proportion `json:"bypass"`
	FalseBypass Proportion `json:"false_bypass"`
}

func (s *sweep) at(limit, confidence float64) OperatingPoint {
	i := s.most(allowed(limit, s.total[Knowledge]))
	p := OperatingPoint{Limit: limit}
	st := s.fixed
	if i >= 0 {
		st = s.steps[i]
		t := s.threshold(i)
		p.Threshold = &t
	}
	p.Bypass = ClopperPearson(st.chitchat, s.total[Chitchat], confidence)
	p.FalseBypass = ClopperPearson(st.knowledge, s.total[Knowledge], confidence)
	return p
}

// ROCPoint is the two rates at a threshold.
type ROCPoint struct {
	// Threshold is nil for the first point: a threshold above every score.
	Threshold   *float64 `json:"threshold"`
	FalseBypass float64  `json:"false_bypass"`
	Bypass      float64  `json:"bypass"`
}

// maxROCPoints keeps a curve readable in JSON and small in a page; steps smaller than it shows are left out.
const maxROCPoints = 400

// ROC returns the curve of bypass over false bypass for falling thresholds, from a threshold above every score to one that lets
// every scored turn pass. Of long curves the points are kept that move it visibly, also on a logarithmic axis. It returns an
// [*InputError] for unusable turns and where the scored turns are not of both labels.
func ROC(turns []QueryTurn) ([]ROCPoint, error) {
	if err := checkTurns(turns); err != nil {
		return nil, err
	}
	s := newSweep(turns)
	if err := s.bothLabels("data"); err != nil {
		return nil, err
	}
	return s.roc(maxROCPoints), nil
}

func (s *sweep) bothLabels(part string) error {
	for _, l := range []Label{Knowledge, Chitchat} {
		if s.scored[l] == 0 {
			return &InputError{Row: -1, Field: "number of scored " + string(l) + " turns in the " + part, Value: "0", Want: "some of both labels"}
		}
	}
	return nil
}

func (s *sweep) roc(limit int) []ROCPoint {
	point := func(st step) ROCPoint {
		return ROCPoint{
			FalseBypass: float64(st.knowledge) / float64(s.total[Knowledge]),
			Bypass:      float64(st.chitchat) / float64(s.total[Chitchat]),
		}
	}
	// Progress along the curve: its own length, with false bypass on a logarithmic axis, where the interesting part is.
	length := func(a, b ROCPoint) float64 {
		log := func(v float64) float64 { return math.Log10(v + 1e-4) }
		return math.Abs(b.Bypass-a.Bypass) + (log(b.FalseBypass)-log(a.FalseBypass))/4
	}
	total := length(point(s.fixed), point(s.steps[len(s.steps)-1]))
	points := []ROCPoint{point(s.fixed)}
	for i, st := range s.steps {
		p := point(st)
		last := i+1 == len(s.steps)
		// Both terms only grow, so steps of total/limit give at most limit of them.
		if !last && len(s.steps) > limit && length(points[len(points)-1], p) < total/float64(limit-2) {
			continue
		}
		t := s.threshold(i)
		p.Threshold = &t
		points = append(points, p)
	}
	return points
}

// auc is the probability that a scored chitchat turn has a higher score than a scored knowledge turn, ties counted as half: the area
// under the curve of the scored turns (Hanley and McNeil 1982, Radiology 143).
func (s *sweep) auc() float64 {
	var wins float64
	before := s.fixed
	for _, st := range s.steps {
		c, k := float64(st.chitchat-before.chitchat), float64(st.knowledge-before.knowledge)
		above := float64(before.chitchat - s.fixed.chitchat)
		wins += k * (above + c/2)
		before = st
	}
	return wins / float64(s.scored[Knowledge]) / float64(s.scored[Chitchat])
}

// LeaveOneOut is what thresholds do on domains that they were not chosen on.
type LeaveOneOut struct {
	// Limit is the false-bypass rate that each threshold was chosen for.
	Limit float64 `json:"limit"`
	// Overall adds up the domains.
	Overall QueryRates `json:"overall"`
	// Domains are in the order of their names.
	Domains []LeftOut `json:"domains"`
}

// LeftOut is one domain under the threshold chosen on all others.
type LeftOut struct {
	Domain string `json:"domain"`
	// Threshold is nil where the others allow none: only turns decided without one are bypassed.
	Threshold *float64 `json:"threshold"`
	QueryRates
}

// LeaveOneDomainOut chooses, for each domain, the threshold that bypasses the most chitchat of all other domains at a false-bypass
// rate of at most limit, and applies it to that domain. The scores are taken as given: for an honest table of a method that uses
// reference texts or fitted weights, give scores that were computed without the turn's own domain.
func LeaveOneDomainOut(turns []QueryTurn, limit, confidence float64) (*LeaveOneOut, error) {
	o := QueryOptions{Confidence: confidence, FalseBypass: []float64{limit}}
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := checkTurns(turns); err != nil {
		return nil, err
	}
	return &leaveOneOut(turns, o.FalseBypass, o.Confidence)[0], nil
}

// leaveOneOut makes one table per limit.
func leaveOneOut(turns []QueryTurn, limits []float64, confidence float64) []LeaveOneOut {
	sorted := byScore(turns)
	domains := map[string][]*QueryTurn{}
	for _, t := range sorted {
		domains[t.Domain] = append(domains[t.Domain], t)
	}
	out := make([]LeaveOneOut, len(limits))
	all := make([]Confusion, len(limits))
	for name, members := range domains {
		others := sweepOf(sorted, func(t *QueryTurn) bool { return t.Domain != name })
		for i, limit := range limits {
			left := LeftOut{Domain: name}
			if others.total[Knowledge] > 0 {
				if at := others.most(allowed(limit, others.total[Knowledge])); at >= 0 {
					t := others.threshold(at)
					left.Threshold = &t
				}
			}
			var c Confusion
			for _, t := range members {
				bypassed := t.Bypassed
				if !math.IsNaN(t.Score) {
					bypassed = left.Threshold != nil && t.Score >= *left.Threshold
				}
				c.add(t.Label, bypassed)
				all[i].add(t.Label, bypassed)
			}
			left.QueryRates = c.rates(confidence)
			out[i].Domains = append(out[i].Domains, left)
		}
	}
	for i, limit := range limits {
		out[i].Limit = limit
		out[i].Overall = all[i].rates(confidence)
		slices.SortFunc(out[i].Domains, func(a, b LeftOut) int { return cmp.Compare(a.Domain, b.Domain) })
	}
	return out
}
