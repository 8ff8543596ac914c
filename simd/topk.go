package simd

import (
	"fmt"
	"slices"
)

// Match is a row that was found and its dot product with the query.
type Match struct {
	Index int
	Score float32
}

// AppendTopK appends the k rows with the largest dot products with q, or all when there are fewer, best first. Rows of equal score come
// in the order of their index, NaN after every number.
func (m *Matrix) AppendTopK(dst []Match, q []float32, k int) []Match {
	m.check(q)
	return m.appendTopK(dst, q, k)
}

// AppendTopKBatch does AppendTopK for every row of queries: it appends min(k, Rows()) matches for the first, then as many for the next.
// The matrix is read from memory once for all of them, and each result is what AppendTopK gives.
func (m *Matrix) AppendTopKBatch(dst []Match, queries *Matrix, k int) []Match {
	if queries.dim != m.dim {
		panic(fmt.Sprintf("simd: queries of %d elements for rows of %d", queries.dim, m.dim))
	}
	return m.appendTopK(dst, queries.values, k)
}

// appendTopK finds the best k for each query of a row-major list.
func (m *Matrix) appendTopK(dst []Match, queries []float32, k int) []Match {
	k = min(k, m.Rows())
	if k <= 0 {
		return dst
	}
	n := len(queries) / m.dim
	at := len(dst)
	dst = slices.Grow(dst, n*k)[:at+n*k]
	found := dst[at:]
	borrowed := m.scores()
	step := blockRows(m.dim)
	for first := 0; first < m.Rows(); first += step {
		end := min(first+step, m.Rows())
		scores := growTo(borrowed, end-first)
		rows := m.values[first*m.dim : end*m.dim]
		for i := range n {
			m.kernel(scores, rows, queries[i*m.dim:(i+1)*m.dim])
			offer(found[i*k:(i+1)*k], scores, first)
		}
	}
	m.scratch.Put(borrowed)
	for i := range n {
		slices.SortFunc(found[i*k:(i+1)*k], compare)
	}
	return dst
}

// growTo returns the borrowed room at length n; a matrix that grew since it was made needs more.
func growTo(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}

// offer puts the scores of rows first, first+1, … among the best. best is being filled while first is below its length, and from then on
// it is a heap with its worst match on top, which is all that most rows are compared with.
func offer(best []Match, scores []float32, first int) {
	i := 0
	for ; i < len(scores) && first+i < len(best); i++ {
		best[first+i] = Match{Index: first + i, Score: scores[i]}
		if first+i == len(best)-1 {
			for j := len(best)/2 - 1; j >= 0; j-- {
				sink(best, j)
			}
		}
	}
	for ; i < len(scores); i++ {
		// Rows come in the order of their index, so an equal score loses to the one that is there. The first comparison is false when
		// either is NaN; a number replaces a NaN.
		if s := scores[i]; s > best[0].Score || best[0].Score != best[0].Score && s == s {
			best[0] = Match{Index: first + i, Score: s}
			sink(best, 0)
		}
	}
}

// sink restores the heap below i.
func sink(h []Match, i int) {
	for {
		worst := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if compare(h[c], h[worst]) > 0 {
				worst = c
			}
		}
		if worst == i {
			return
		}
		h[i], h[worst] = h[worst], h[i]
		i = worst
	}
}

// compare orders matches best first.
func compare(a, b Match) int {
	aNaN, bNaN := a.Score != a.Score, b.Score != b.Score
	switch {
	case a.Score > b.Score, bNaN && !aNaN:
		return -1
	case a.Score < b.Score, aNaN && !bNaN:
		return 1
	}
	return a.Index - b.Index
}
