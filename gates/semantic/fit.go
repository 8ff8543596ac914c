package semantic

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// FitOptions are the settings of [Fit].
type FitOptions struct {
	Features []string // of [FeatureNames]; nil means DefaultFeatures
	TopK     int      // 0 means DefaultTopK
	// Ridge is the weight of the squared standardised coefficients. 0 means DefaultRidge; it keeps the fit finite where the sides separate.
	Ridge float64
}

// Defaults of [Fit]. With e5-small-v2 and the embedded set, top_k of 3, 5, 8 and 12 bypassed within 2 % of each other's chitchat at equal
// error when they were chosen.
const (
	DefaultTopK  = 8
	DefaultRidge = 1.0
)

// DefaultFeatures returns the features that [Fit] uses unless told otherwise. Of the sets tried, this one lost least when the contrast
// references of a question's own domain were left out.
func DefaultFeatures() []string { return []string{"top1", "contrast_mean", "novel_words"} }

// FitReport says what a fit rests on.
type FitReport struct {
	NonRetrieval, Knowledge int // references used
	// NonRetrievalScores and KnowledgeScores are the probabilities of the references themselves under the fit, each compared with the
	// set without it (knowledge: without its whole category), ascending.
	NonRetrievalScores, KnowledgeScores []float64
}

// Bypassed returns the share of references of each kind at or above a threshold.
func (r *FitReport) Bypassed(threshold float64) (nonRetrieval, knowledge float64) {
	share := func(sorted []float64) float64 {
		i, _ := slices.BinarySearch(sorted, threshold)
		return float64(len(sorted)-i) / float64(max(1, len(sorted)))
	}
	return share(r.NonRetrievalScores), share(r.KnowledgeScores)
}

// Fit finds the combination by logistic regression over the references themselves, so that it needs no other data: every non-retrieval
// reference is compared with the set without it, every knowledge reference with the set without its whole category, as a question of a
// domain that nobody wrote references for (near misses are of no domain, and are left out alone). Categories that need history take no
// part. Both kinds weigh the same in total.
//
// The solution is that of iteratively reweighted least squares (Newton's method) on standardised features with a ridge; it is unique, and
// the same on every run.
func Fit(x *Index, o FitOptions) (Combination, FitReport, error) {
	if o.Features == nil {
		o.Features = DefaultFeatures()
	}
	if o.TopK == 0 {
		o.TopK = DefaultTopK
	}
	if o.Ridge == 0 {
		o.Ridge = DefaultRidge
	}
	c := Combination{TopK: o.TopK}
	if o.TopK < 1 || o.TopK > MaxTopK || !(o.Ridge > 0) || len(o.Features) == 0 {
		return c, FitReport{}, fmt.Errorf("top_k %d must be in 1…%d, ridge %v positive, and at least one feature chosen", o.TopK, MaxTopK, o.Ridge)
	}
	columns := make([]int, len(o.Features))
	for j, name := range o.Features {
		if columns[j] = slices.Index(featureNames[:], name); columns[j] < 0 {
			return c, FitReport{}, fmt.Errorf("unknown feature %q; there are %s", name, strings.Join(featureNames[:], ", "))
		}
	}

	var rows [][]float64
	var bypass []bool
	var held []Features
	for i := range x.set.References {
		f, kind, ok := x.leaveOut(i)
		if !ok {
			continue
		}
		v := f.vector(o.TopK)
		row := make([]float64, len(columns))
		for j, col := range columns {
			row[j] = v[col]
		}
		rows, bypass, held = append(rows, row), append(bypass, kind == NonRetrieval), append(held, f)
	}
	weights, intercept, err := logistic(rows, bypass, o.Ridge)
	if err != nil {
		return c, FitReport{}, err
	}
	for j, col := range columns {
		c.Weights[col] = weights[j]
	}
	c.Intercept = intercept

	var r FitReport
	for i := range held {
		if p := c.Probability(&held[i]); bypass[i] {
			r.NonRetrievalScores = append(r.NonRetrievalScores, p)
		} else {
			r.KnowledgeScores = append(r.KnowledgeScores, p)
		}
	}
	slices.Sort(r.NonRetrievalScores)
	slices.Sort(r.KnowledgeScores)
	r.NonRetrieval, r.Knowledge = len(r.NonRetrievalScores), len(r.KnowledgeScores)
	return c, r, nil
}

// leaveOut compares reference i with the others: those of other categories for knowledge that is no near miss, else all. ok is false
// for references that need a conversation.
func (x *Index) leaveOut(i int) (f Features, kind Kind, ok bool) {
	s := x.set
	r := s.References[i]
	c := s.Categories[r.Category]
	if c.NeedsHistory {
		return f, c.Kind, false
	}
	leave := skip{row: i, category: -1}
	if c.Kind == Knowledge && !c.NearMiss {
		leave = skip{row: -1, category: r.Category}
	}
	q := Query{Text: r.Text, Vector: x.matrix.Row(i)}
	f = x.features(x.matrix.AppendDots(nil, q.Vector), q, leave)
	f.NovelWords = s.novel(r.Text, contentForms(r.Text), c.Kind == NonRetrieval)
	return f, c.Kind, true
}

// logistic fits P(y) = 1/(1+exp(-(b + w·x))) with a ridge on the weights of standardised columns, both classes weighing the same.
func logistic(rows [][]float64, y []bool, ridge float64) (weights []float64, intercept float64, err error) {
	n, k := len(rows), 0
	positives := 0
	for i, row := range rows {
		k = len(row)
		if y[i] {
			positives++
		}
	}
	if positives == 0 || positives == n {
		return nil, 0, fmt.Errorf("%d of %d references are non-retrieval: a fit needs both kinds", positives, n)
	}
	mean, scale := make([]float64, k), make([]float64, k)
	for j := range k {
		for _, row := range rows {
			mean[j] += row[j] / float64(n)
		}
		for _, row := range rows {
			scale[j] += (row[j] - mean[j]) * (row[j] - mean[j]) / float64(n)
		}
		if scale[j] = math.Sqrt(scale[j]); scale[j] < 1e-12 {
			scale[j] = 1 // a constant column; its weight stays 0
		}
	}
	classWeight := func(positive bool) float64 {
		if positive {
			return float64(n) / (2 * float64(positives))
		}
		return float64(n) / (2 * float64(n-positives))
	}

	const (
		maxSteps  = 100
		converged = 1e-10
	)
	b := make([]float64, k+1) // the last is the intercept
	z := make([]float64, k+1)
	for range maxSteps {
		gradient := make([]float64, k+1)
		hessian := make([]float64, (k+1)*(k+1))
		for i, row := range rows {
			for j := range k {
				z[j] = (row[j] - mean[j]) / scale[j]
			}
			z[k] = 1
			var s float64
			for j := range z {
				s += b[j] * z[j]
			}
			p := 1 / (1 + math.Exp(-s))
			target := 0.0
			if y[i] {
				target = 1
			}
			w := classWeight(y[i])
			for j := range z {
				gradient[j] += w * (p - target) * z[j]
				for l := range z {
					hessian[j*(k+1)+l] += w * p * (1 - p) * z[j] * z[l]
				}
			}
		}
		for j := range k {
			gradient[j] += ridge * b[j]
			hessian[j*(k+1)+j] += ridge
		}
		hessian[(k+1)*(k+1)-1] += 1e-9 // all p at 0 or 1 would leave the intercept's row empty
		step, ok := solve(hessian, gradient, k+1)
		if !ok {
			return nil, 0, fmt.Errorf("the features of %d references determine no fit", n)
		}
		largest := 0.0
		for j := range b {
			b[j] -= step[j]
			largest = max(largest, math.Abs(step[j]))
		}
		if largest < converged {
			weights, intercept = make([]float64, k), b[k]
			for j := range k {
				weights[j] = b[j] / scale[j]
				intercept -= weights[j] * mean[j]
			}
			return weights, intercept, nil
		}
	}
	return nil, 0, fmt.Errorf("the fit did not settle in %d steps; a larger ridge helps", maxSteps)
}

// solve returns a⁻¹·v by Gaussian elimination with row pivots; a is n×n, row-major, and overwritten.
func solve(a, v []float64, n int) ([]float64, bool) {
	x := slices.Clone(v)
	for c := range n {
		pivot := c
		for r := c + 1; r < n; r++ {
			if math.Abs(a[r*n+c]) > math.Abs(a[pivot*n+c]) {
				pivot = r
			}
		}
		if p := a[pivot*n+c]; p == 0 || p != p {
			return nil, false
		}
		for j := range n {
			a[c*n+j], a[pivot*n+j] = a[pivot*n+j], a[c*n+j]
		}
		x[c], x[pivot] = x[pivot], x[c]
		for r := c + 1; r < n; r++ {
			factor := a[r*n+c] / a[c*n+c]
			for j := c; j < n; j++ {
				a[r*n+j] -= factor * a[c*n+j]
			}
			x[r] -= factor * x[c]
		}
	}
	for c := n - 1; c >= 0; c-- {
		for j := c + 1; j < n; j++ {
			x[c] -= a[c*n+j] * x[j]
		}
		x[c] /= a[c*n+c]
	}
	return x, true
}
