package evaluate

import (
	"math"
	"slices"
)

// Histogram counts numbers by label in bins of equal width.
type Histogram struct {
	// Field is what was counted: "score", "relevance" or "logit".
	Field string `json:"field"`
	// Edges has one number more than there are bins. A bin holds what is at least its lower and under its upper edge; the last one
	// its upper edge too.
	Edges []float64 `json:"edges"`
	// Series are in the order of their labels.
	Series []HistogramSeries `json:"series"`
}

// HistogramSeries is the counts of one label.
type HistogramSeries struct {
	Label  string `json:"label"`
	Counts []int  `json:"counts"`
}

// bins is fine enough to see two humps and coarse enough for a phone.
const bins = 25

// newHistogram counts the values of each label between low and high; NaN and infinities are left out.
func newHistogram(field string, low, high float64, values map[string][]float64) *Histogram {
	if !(high > low) { // all values alike, or none
		low, high = low-0.5, low+0.5
	}
	h := &Histogram{Field: field, Edges: make([]float64, bins+1)}
	width := (high - low) / bins
	for i := range h.Edges {
		h.Edges[i] = low + float64(i)*width
	}
	h.Edges[bins] = high
	labels := make([]string, 0, len(values))
	for l := range values {
		labels = append(labels, l)
	}
	slices.Sort(labels)
	for _, l := range labels {
		s := HistogramSeries{Label: l, Counts: make([]int, bins)}
		for _, v := range values[l] {
			if math.IsNaN(v) || v < low || v > high {
				continue
			}
			// The division can land a value on the wrong side of an edge by one bit; the edges decide.
			i := min(max(int((v-low)/width), 0), bins-1)
			if v < h.Edges[i] {
				i--
			} else if i < bins-1 && v >= h.Edges[i+1] {
				i++
			}
			s.Counts[i]++
		}
		h.Series = append(h.Series, s)
	}
	return h
}

// span returns the smallest and the largest finite value, 0 and 0 where there is none.
func span(values map[string][]float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, vs := range values {
		for _, v := range vs {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if low > high {
		return 0, 0
	}
	return low, high
}

func queryHistogram(turns []QueryTurn) *Histogram {
	values := map[string][]float64{}
	for _, t := range turns {
		if !math.IsNaN(t.Score) {
			values[string(t.Label)] = append(values[string(t.Label)], t.Score)
		}
	}
	low, high := span(values)
	return newHistogram("score", low, high, values)
}
