package evaluate

import (
	"cmp"
	"math"
	"slices"
)

// Gain is how much a text of a grade is worth in nDCG.
type Gain string

// The two gains in use. Numbers made with one cannot be compared with numbers made with the other.
const (
	// GainLinear is the grade itself (Järvelin and Kekäläinen 2002, ACM TOIS 20; trec_eval and the BEIR benchmark use it).
	GainLinear Gain = "linear"
	// GainExponential is 2^grade − 1 (Burges et al. 2005, ICML).
	GainExponential Gain = "exponential"
)

func (g Gain) of(grade int) float64 {
	if grade <= 0 {
		return 0
	}
	if g == GainExponential {
		return math.Exp2(float64(grade)) - 1
	}
	return float64(grade)
}

// NDCG returns the normalised discounted cumulative gain of the first k of a ranking: Σ gain(gradeᵢ)/log₂(i+1) over ranks i = 1…k,
// divided by the same sum for the ideal grades in falling order. ranked has the grades in ranked order, ideal those of every text
// that the query could have found, in any order. Grades of 0 and less are worth nothing. It returns NaN where ideal holds nothing of
// worth: such a query is left out of averages.
func NDCG(ranked, ideal []int, k int, gain Gain) float64 {
	best := slices.Clone(ideal)
	slices.SortFunc(best, func(a, b int) int { return cmp.Compare(b, a) })
	whole := dcg(best, k, gain)
	if whole == 0 {
		return math.NaN()
	}
	return dcg(ranked, k, gain) / whole
}

func dcg(grades []int, k int, gain Gain) float64 {
	var sum float64
	for i, g := range grades[:min(max(k, 0), len(grades))] {
		sum += gain.of(g) / math.Log2(float64(i)+2)
	}
	return sum
}

// retrieved returns the chunks' indexes as the retriever ranked them: by falling similarity, ties by index; in the given order where
// any chunk has no similarity, since numbers of only some cannot order all.
func retrieved(chunks []Chunk) []int {
	order := make([]int, len(chunks))
	for i := range order {
		order[i] = i
	}
	if slices.ContainsFunc(chunks, func(c Chunk) bool { return math.IsNaN(c.Similarity) }) {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(chunks[b].Similarity, chunks[a].Similarity) })
	return order
}

// reranked returns the chunks' indexes as the gate ranks them: by falling logit, ties by index; unscored ones behind, as retrieved.
func reranked(chunks []Chunk) []int {
	var scored, rest []int
	for i, c := range chunks {
		if !math.IsNaN(c.Logit) {
			scored = append(scored, i)
		}
	}
	slices.SortStableFunc(scored, func(a, b int) int { return cmp.Compare(chunks[b].Logit, chunks[a].Logit) })
	for _, i := range retrieved(chunks) {
		if math.IsNaN(chunks[i].Logit) {
			rest = append(rest, i)
		}
	}
	return append(scored, rest...)
}
