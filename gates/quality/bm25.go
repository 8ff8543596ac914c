package quality

import (
	"math"

	"ragate/gates/textnorm"
)

// BM25's constants, as Lucene and most search engines set them: K1 bounds what repeating a term can add, B how far long chunks
// are held back.
const (
	BM25K1 = 1.2
	BM25B  = 0.75
)

// BM25 scores each text against query, with the texts themselves as the collection:
//
//	score(d) = Σ over the query's terms t of  idf(t) · tf(t,d)·(K1+1) / (tf(t,d) + K1·(1 − B + B·|d|/avgdl))
//	idf(t)   = ln(1 + (N − n(t) + 0.5)/(n(t) + 0.5))
//
// Formula: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.4; the 1 within the
// logarithm keeps terms that most texts hold from counting against a text, as in Lucene. tf counts t in d, |d| is d's
// words, avgdl their mean, N the number of texts, n(t) those with t. Words are [textnorm.Words]; each query word counts once;
// function words are left out unless the query has no others, because in a collection of twenty texts a rare "do" would look
// as telling as a name. A score is 0 when nothing is shared, never negative.
func BM25(query string, texts []string) []float64 {
	scores := make([]float64, len(texts))
	terms := queryTerms(query)
	if len(terms) == 0 || len(texts) == 0 {
		return scores
	}
	counts := make([]int, len(texts)*len(terms)) // row by text
	lengths := make([]int, len(texts))
	holding := make([]int, len(terms))
	total := 0
	var words []string
	for d, text := range texts {
		words = textnorm.AppendWords(words[:0], text)
		lengths[d] = len(words)
		total += len(words)
		row := counts[d*len(terms) : (d+1)*len(terms)]
		for _, w := range words {
			if t, ok := terms[w]; ok {
				if row[t]++; row[t] == 1 {
					holding[t]++
				}
			}
		}
	}
	if total == 0 {
		return scores
	}
	n, mean := float64(len(texts)), float64(total)/float64(len(texts))
	idf := make([]float64, len(terms))
	for t, h := range holding {
		idf[t] = math.Log1p((n - float64(h) + 0.5) / (float64(h) + 0.5))
	}
	for d := range texts {
		norm := BM25K1 * (1 - BM25B + BM25B*float64(lengths[d])/mean)
		for t := range idf {
			if tf := float64(counts[d*len(terms)+t]); tf > 0 {
				scores[d] += idf[t] * tf * (BM25K1 + 1) / (tf + norm)
			}
		}
	}
	return scores
}

// maxTerms bounds the query's terms, and with them BM25's table. A query of more is a pasted document, whose first words do.
const maxTerms = 64

// queryTerms numbers the query's different words in order, without function words unless there are no others.
func queryTerms(query string) map[string]int {
	words := textnorm.Words(query)
	terms := make(map[string]int, min(len(words), maxTerms))
	add := func(functionWords bool) {
		for _, w := range words {
			if len(terms) == maxTerms {
				return
			}
			if _, ok := terms[w]; !ok && isFunctionWord(w) == functionWords {
				terms[w] = len(terms)
			}
		}
	}
	if add(false); len(terms) == 0 {
		add(true)
	}
	return terms
}
