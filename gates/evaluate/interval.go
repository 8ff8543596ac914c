package evaluate

import (
	"encoding/json"
	"fmt"
	"math"
)

// DefaultConfidence is the confidence of intervals and promises where the caller gives none. 95 % is what most readers expect of an
// interval without a label.
const DefaultConfidence = 0.95

// Proportion is a count of a total with a two-sided confidence interval.
type Proportion struct {
	// Count of Of trials. Of is 0 where there was nothing to count; Low and High are then 0 and 1.
	Count, Of int
	// Low and High bound the true rate with the report's confidence.
	Low, High float64
}

// Rate is Count/Of, NaN where Of is 0.
func (p Proportion) Rate() float64 { return float64(p.Count) / float64(p.Of) }

type proportionJSON struct {
	Count int      `json:"count"`
	Of    int      `json:"of"`
	Rate  *float64 `json:"rate"`
	Low   float64  `json:"low"`
	High  float64  `json:"high"`
}

// MarshalJSON writes count, of, rate (null where of is 0), low, high.
func (p Proportion) MarshalJSON() ([]byte, error) {
	j := proportionJSON{Count: p.Count, Of: p.Of, Low: p.Low, High: p.High}
	if p.Of > 0 {
		r := p.Rate()
		j.Rate = &r
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote; rate is ignored, since count and of hold it.
func (p *Proportion) UnmarshalJSON(data []byte) error {
	var j proportionJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*p = Proportion{Count: j.Count, Of: j.Of, Low: j.Low, High: j.High}
	return nil
}

// ClopperPearson returns count/of with its exact two-sided interval (Clopper and Pearson 1934, Biometrika 26): the ends are the
// beta quantiles B(α/2; k, n−k+1) and B(1−α/2; k+1, n−k), α = 1 − confidence. It covers the true rate of independent trials with at
// least the confidence, whatever the rate. It panics unless 0 ≤ count ≤ of and 0 < confidence < 1.
func ClopperPearson(count, of int, confidence float64) Proportion {
	checkCounts(count, of, confidence)
	low, high := betaInterval(float64(count), float64(of), confidence)
	return Proportion{Count: count, Of: of, Low: low, High: high}
}

// UpperBound is the exact one-sided upper bound on the rate behind count of independent trials: B(confidence; k+1, n−k), and 1 for no
// trials. It is below [ClopperPearson]'s High at the same confidence, which leaves half of α to the other side.
func UpperBound(count, of int, confidence float64) float64 {
	checkCounts(count, of, confidence)
	if count == of {
		return 1
	}
	return betaQuantile(confidence, float64(count)+1, float64(of-count))
}

// LowerBound is the exact one-sided lower bound: one minus the upper bound on the rate of failures.
func LowerBound(count, of int, confidence float64) float64 {
	checkCounts(count, of, confidence)
	if count == 0 {
		return 0
	}
	return betaQuantile(1-confidence, float64(count), float64(of-count)+1)
}

// betaInterval is Clopper-Pearson for counts that need not be whole.
func betaInterval(k, n, confidence float64) (low, high float64) {
	tail := (1 - confidence) / 2
	high = 1
	if k > 0 {
		low = betaQuantile(tail, k, n-k+1)
	}
	if k < n {
		high = betaQuantile(1-tail, k+1, n-k)
	}
	return low, high
}

func checkCounts(count, of int, confidence float64) {
	if count < 0 || count > of {
		panic(fmt.Sprintf("evaluate: %d of %d is no proportion", count, of))
	}
	if !(confidence > 0 && confidence < 1) {
		panic(fmt.Sprintf("evaluate: confidence %v is outside 0…1", confidence))
	}
}

// cluster is what one turn adds to a proportion: count of its of trials.
type cluster struct{ count, of int }

// clustered returns the pooled proportion of trials that come in clusters (the chunks of one turn), with the interval of Korn and
// Graubard (1998, Survey Methodology 24): Clopper-Pearson at the effective sample size n* = n / deff · (t_{n−1} / t_{m−1})², where
// deff is the variance of the pooled rate over m clusters (Taylor linearisation of the ratio, Cochran 1977, section 6.3)
// over that of n independent trials. n* is at most n, and m where all trials came out alike and no variance can be seen.
func clustered(parts []cluster, confidence float64) Proportion {
	var p Proportion
	m := 0
	for _, c := range parts {
		p.Count += c.count
		p.Of += c.of
		if c.of > 0 {
			m++
		}
	}
	if p.Of == 0 {
		p.High = 1
		return p
	}
	n, rate := float64(p.Of), p.Rate()
	effective := float64(m)
	if m > 1 && p.Count > 0 && p.Count < p.Of {
		var squares float64
		for _, c := range parts {
			d := float64(c.count) - rate*float64(c.of)
			squares += d * d
		}
		variance := float64(m) / float64(m-1) * squares / (n * n)
		t := studentQuantile(confidence, n-1) / studentQuantile(confidence, float64(m-1))
		effective = n
		if variance > 0 {
			effective = min(n, rate*(1-rate)/variance*t*t)
		}
		// Two clusters of opposite outcomes can leave less than one trial's worth, for which the beta form means nothing.
		effective = max(effective, 1)
	}
	p.Low, p.High = betaInterval(rate*effective, effective, confidence)
	return p
}

// Mean is an average over turns with a two-sided interval by Student's t.
type Mean struct {
	// Mean of N values, 0 where N is 0. Low and High equal Mean where N is under 2, as no spread can be seen then.
	Mean float64 `json:"mean"`
	N    int     `json:"n"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func meanOf(values []float64, confidence float64) Mean {
	n := float64(len(values))
	if n == 0 {
		return Mean{}
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	mean := sum / n
	out := Mean{Mean: mean, N: len(values), Low: mean, High: mean}
	if len(values) > 1 {
		var squares float64
		for _, v := range values {
			squares += (v - mean) * (v - mean)
		}
		half := studentQuantile(confidence, n-1) * math.Sqrt(squares/(n-1)/n)
		out.Low, out.High = mean-half, mean+half
	}
	return out
}

// SamplesNeeded returns the smallest number n of independent trials for which [UpperBound] of ⌈rate·n⌉ failures is at most limit: how
// much data a promise takes when failures come at that rate. With rate 0 it is ⌈ln(1−confidence)/ln(1−limit)⌉. It returns 0 where no
// number is enough, which is when rate ≥ limit, and where it would be beyond 10⁹.
func SamplesNeeded(rate, limit, confidence float64) int {
	const beyond = 1_000_000_000
	if !(rate >= 0 && rate < limit && limit < 1 && confidence > 0 && confidence < 1) {
		return 0
	}
	// trials is the smallest n at which k failures are few enough; for one k, more trials only help.
	trials := func(k int) int {
		enough := func(n int) bool { return regularizedBeta(limit, float64(k)+1, float64(n-k)) >= confidence }
		lo, hi := k, 2*k+1
		for hi < beyond && !enough(hi) {
			lo, hi = hi, 2*hi
		}
		for hi-lo > 1 {
			if mid := lo + (hi-lo)/2; enough(mid) {
				hi = mid
			} else {
				lo = mid
			}
		}
		return hi
	}
	if rate == 0 {
		return trials(0)
	}
	// k failures are what up to k/rate trials bring. trials(k) grows as (k + c·√k)/limit, so from some k on it is within k/rate.
	const slack = 1e-9 // k/rate of decimal rates is seldom exact
	fits := func(k int) bool { return float64(trials(k))*rate <= float64(k)+slack }
	lo, hi := 0, 1
	for !fits(hi) {
		lo, hi = hi, 2*hi
		if float64(hi) > rate*beyond {
			return 0
		}
	}
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; fits(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return trials(hi)
}
