package harness

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// confidence of every interval.
const confidence = 0.95

// Estimate is a positive figure of several turns: their geometric mean, and the interval that holds the true one with 95 % confidence if
// turns scatter log-normally (Student's t on their logarithms). Low and High are 0 where there is one turn only.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
}

// Known says whether there is an interval.
func (e Estimate) Known() bool { return e.High > 0 }

// estimate is nil where there is no value, or one that has no logarithm.
func estimate(values []float64) *Estimate {
	logs, ok := logarithms(values)
	if !ok {
		return nil
	}
	mean, deviation := stat.MeanStdDev(logs, nil)
	n := float64(len(logs))
	e := &Estimate{Value: math.Exp(mean)}
	if len(logs) > 1 {
		half := quantileT(n-1) * deviation / math.Sqrt(n)
		e.Low, e.High = math.Exp(mean-half), math.Exp(mean+half)
	}
	return e
}

// pairedRatio is a : b of turns that lie side by side.
func pairedRatio(a, b []float64) *Estimate {
	if len(a) != len(b) {
		return nil
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return estimate(ratios)
}

// separateRatio is a : b of turns of two runs, which share nothing: Welch's interval on logarithms.
func separateRatio(a, b []float64) *Estimate {
	la, ok := logarithms(a)
	lb, okB := logarithms(b)
	if !ok || !okB {
		return nil
	}
	ma, mb := stat.Mean(la, nil), stat.Mean(lb, nil)
	e := &Estimate{Value: math.Exp(ma - mb)}
	if len(la) < 2 || len(lb) < 2 {
		return e
	}
	va, vb := stat.Variance(la, nil)/float64(len(la)), stat.Variance(lb, nil)/float64(len(lb))
	if va+vb == 0 {
		e.Low, e.High = e.Value, e.Value
		return e
	}
	// Welch–Satterthwaite: the degrees of freedom of a sum of two variances.
	freedom := (va + vb) * (va + vb) / (va*va/float64(len(la)-1) + vb*vb/float64(len(lb)-1))
	half := quantileT(freedom) * math.Sqrt(va+vb)
	e.Low, e.High = math.Exp(ma-mb-half), math.Exp(ma-mb+half)
	return e
}

func quantileT(freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1 - (1-confidence)/2)
}

func logarithms(values []float64) ([]float64, bool) {
	out := make([]float64, len(values))
	for i, v := range values {
		if !(v > 0) || math.IsInf(v, 1) {
			return nil, false
		}
		out[i] = math.Log(v)
	}
	return out, len(out) > 0
}
