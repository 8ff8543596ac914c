package quality

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"ragate/gates/textnorm"
)

// Constants of the expanded query. Few texts, because past the third best of a weak retrieval they are mostly off the topic;
// few terms, because each pulls the next retrieval away from the question.
const (
	expandTexts = 3
	expandTerms = 5
	minTermLen  = 3 // characters; shorter ones are mostly units and syllables
)

// Feedback is a text to learn terms from, with its weight: how far it is believed to be relevant.
type Feedback struct {
	Text   string
	Weight float64 // not negative
}

// ExpandQuery returns query with up to five terms of the given texts behind it, for the caller to retrieve again with. It is the
// query itself when the texts have nothing to add.
//
// Terms are ranked by the relevance model RM1, P(w|R) ∝ Σ over texts d of P(d)·tf(w,d)/|d|, with the weights of the texts as
// P(d) where the original has the query's likelihood: Lavrenko and Croft, "Relevance-Based Language Models", SIGIR 2001. RM3
// (Abdul-Jaleel and others, "UMass at TREC 2004") mixes that with the query's own terms, λ·P(w|Q) + (1−λ)·P(w|R). The result here
// is plain text in which every word counts once, so the mix comes down to keeping the whole query and adding the best of the rest.
// Function words, the query's words, words under three characters and bare numbers are not added. Equal terms come in alphabetical
// order.
func ExpandQuery(query string, texts []Feedback) string {
	inQuery := make(map[string]bool)
	for _, w := range textnorm.Words(query) {
		inQuery[w] = true
	}
	var total float64
	for _, f := range texts {
		total += f.Weight
	}
	type term struct {
		word   string
		weight float64
	}
	var terms []term
	place := make(map[string]int)
	var words []string
	for _, f := range texts {
		weight := f.Weight / total
		if total <= 0 {
			weight = 1 / float64(len(texts)) // nothing is known of any of them
		}
		words = textnorm.AppendWords(words[:0], f.Text)
		for _, w := range words {
			if inQuery[w] || isFunctionWord(w) || utf8.RuneCountInString(w) < minTermLen || isNumber(w) {
				continue
			}
			i, ok := place[w]
			if !ok {
				i = len(terms)
				place[w] = i
				terms = append(terms, term{word: w})
			}
			terms[i].weight += weight / float64(len(words))
		}
	}
	slices.SortFunc(terms, func(a, b term) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.word, b.word))
	})
	var b strings.Builder
	b.WriteString(query)
	for _, t := range terms[:min(len(terms), expandTerms)] {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.word)
	}
	return b.String()
}

func isNumber(w string) bool {
	return strings.TrimLeft(w, "0123456789.,%#$€£+") == ""
}
