package semantic

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"ragate/simd"
)

// MaxTopK bounds top_k, so that the nearest references fit on the stack.
const MaxTopK = 16

// unit is how far a vector's squared length may be from 1. Half precision moves it by 1e-3.
const unit = 0.01

// Index holds the vectors of a set's references.
type Index struct {
	set     *Set
	matrix  *simd.Matrix
	scratch sync.Pool // *[]float32, one similarity per reference
}

// NewIndex takes the vectors of [Set.Texts], row-major, dim elements each, scaled to length 1. It keeps a copy.
func NewIndex(s *Set, vectors []float32, dim int) (*Index, error) {
	if dim <= 0 || len(vectors) != len(s.References)*dim {
		return nil, fmt.Errorf("%d references of %d elements need %d values, and %d were given", len(s.References), dim, len(s.References)*max(dim, 0), len(vectors))
	}
	for i, r := range s.References {
		var sum float64
		for _, x := range vectors[i*dim : (i+1)*dim] {
			sum += float64(x) * float64(x)
		}
		if !(math.Abs(sum-1) <= unit) {
			return nil, fmt.Errorf("the vector of reference %q (%s) has length %.3g, not 1: embed it again", r.Text, s.Categories[r.Category].ID, math.Sqrt(sum))
		}
	}
	return &Index{set: s, matrix: simd.Wrap(dim, slices.Clone(vectors))}, nil
}

// Set returns the set of the index.
func (x *Index) Set() *Set { return x.set }

// Dim is the length of the vectors.
func (x *Index) Dim() int { return x.matrix.Dim() }

// Query is a message to compare.
type Query struct {
	Text          string
	Vector        []float32 // of length Dim, scaled to length 1
	History       bool      // there was a turn before this one
	AfterQuestion bool      // the message before is the assistant's and asks something
}

// Hit is a reference and its similarity to the query.
type Hit struct {
	Category   string
	Kind       Kind
	Language   string
	Reference  string
	Similarity float64
}

// Features are what the methods decide by; the package documentation defines them. Without any reference on one side, its similarities
// are -1.
type Features struct {
	Top1            float64
	Margin          float64
	MarginReference float64
	Contrast        float64
	NovelWords      int

	// Top is the nearest reference of all, RunnerUp the nearest one of another category.
	Top, RunnerUp Hit
	// NeedsHistory is true when the nearest non-retrieval reference of all would need a conversation, and there is none.
	NeedsHistory bool
	// History says that the message stands inside a conversation; Content then lists the words that are its own.
	History bool
	Content []string
	// OneWord says that the message is a single word.
	OneWord bool

	near, far side
}

// side is the nearest references of one side, best first.
type side struct {
	values [MaxTopK]float32
	rows   [MaxTopK]int32
	n      int
}

// offer keeps v among the largest. NaN never enters.
func (s *side) offer(v float32, row int) {
	if s.n == MaxTopK && !(v > s.values[MaxTopK-1]) || v != v {
		return
	}
	i := min(s.n, MaxTopK-1)
	for ; i > 0 && v > s.values[i-1]; i-- {
		s.values[i], s.rows[i] = s.values[i-1], s.rows[i-1]
	}
	s.values[i], s.rows[i] = v, int32(row)
	s.n = min(s.n+1, MaxTopK)
}

// best is the largest value, -1 when there is none.
func (s *side) best() float64 {
	if s.n == 0 {
		return -1
	}
	return float64(s.values[0])
}

// mean is the mean of the k largest, or of all when there are fewer.
func (s *side) mean(k int) float64 {
	if k = min(k, s.n); k == 0 {
		return -1
	}
	var sum float64
	for _, v := range s.values[:k] {
		sum += float64(v)
	}
	return sum / float64(k)
}

// Features compares a query with every reference.
func (x *Index) Features(q Query) Features {
	buf, _ := x.scratch.Get().(*[]float32)
	if buf == nil {
		buf = new([]float32)
	}
	sims := x.matrix.AppendDots((*buf)[:0], q.Vector)
	f := x.features(sims, q, noSkip)
	*buf = sims
	x.scratch.Put(buf)
	words := contentForms(q.Text)
	f.NovelWords = x.set.novel(q.Text, words, false)
	f.OneWord = len(words) == 1
	if q.History {
		f.Content = x.set.content(words)
	}
	return f
}

// skip leaves references out: one row, and all of a category.
type skip struct{ row, category int }

var noSkip = skip{-1, -1}

// features computes all features but those of words from the similarities of all references.
func (x *Index) features(sims []float32, q Query, leave skip) Features {
	f := Features{History: q.History}
	s := x.set
	top, second := none, none         // the two nearest of all references
	other := none                     // the nearest of another category than top's
	heldBest := float32(math.Inf(-1)) // the nearest reference that lacks its conversation
	for i, v := range sims {
		r := s.References[i]
		if i == leave.row || r.Category == leave.category {
			continue
		}
		c := &s.Categories[r.Category]
		held := c.NeedsHistory && !q.History
		if c.Kind == NonRetrieval && !held && !(c.NotAfterQuestion && q.AfterQuestion) {
			f.near.offer(v, i)
		} else {
			f.far.offer(v, i)
		}
		if held && v > heldBest {
			heldBest = v
		}
		switch {
		case v > top.value:
			if top.row >= 0 && top.category != r.Category {
				other = top
			}
			second = top
			top = candidate{v, i, r.Category}
		case v > second.value:
			second = candidate{v, i, r.Category}
			if r.Category != top.category && v > other.value {
				other = second
			}
		case r.Category != top.category && v > other.value:
			other = candidate{v, i, r.Category}
		}
	}
	f.Top1 = f.near.best()
	f.Contrast = f.near.best() - f.far.best()
	f.Top, f.RunnerUp = x.hit(top), x.hit(other)
	f.NeedsHistory = float64(heldBest) > f.near.best()
	if top.row >= 0 && second.row >= 0 {
		f.MarginReference = float64(top.value) - float64(second.value)
		if f.near.n == 0 || int(f.near.rows[0]) != top.row {
			f.MarginReference = -f.MarginReference
		}
	}
	f.Margin = -2
	if f.near.n > 0 {
		// The best of any category but the best non-retrieval one's: the nearest of all, unless that is of the same category.
		rival := top.value
		if s.References[f.near.rows[0]].Category == top.category {
			rival = other.value
		}
		f.Margin = f.near.best() - max(float64(rival), -1)
	}
	return f
}

// candidate is a row under consideration.
type candidate struct {
	value    float32
	row      int
	category int
}

var none = candidate{float32(math.Inf(-1)), -1, -1}

func (x *Index) hit(h candidate) Hit {
	if h.row < 0 {
		return Hit{}
	}
	r := x.set.References[h.row]
	c := x.set.Categories[r.Category]
	return Hit{Category: c.ID, Kind: c.Kind, Language: r.Language, Reference: r.Text, Similarity: float64(h.value)}
}
