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
	blocks  []block
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
	return &Index{set: s, matrix: simd.Wrap(dim, slices.Clone(vectors)), blocks: blocksOf(s.References)}, nil
}

// Set returns the set of the index.
func (x *Index) Set() *Set { return x.set }

// Dim is the length of the vectors.
func (x *Index) Dim() int { return x.matrix.Dim() }

// side says whether the references of the category speak for a bypass of the query, and whether they lack the conversation for it.
func (c *Category) side(q Query) (near, held bool) {
	held = c.NeedsHistory && !q.History
	return c.Kind == NonRetrieval && !held && !(c.NotAfterQuestion && q.AfterQuestion), held
}

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

// least is what a value must reach to be among the largest.
func (s *side) least() float32 {
	if s.n < MaxTopK {
		return float32(math.Inf(-1))
	}
	return s.values[MaxTopK-1]
}

// before says whether the i-th of s goes before the k-th of t.
func (s *side) before(i int, t *side, k int) bool {
	if s.values[i] != t.values[k] {
		return s.values[i] > t.values[k]
	}
	return s.rows[i] < t.rows[k]
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

// blockRows is how many references share a maximum. Most blocks hold none of the nearest references, and one comparison tells.
const blockRows = 16

// block is some references of one category, one after the other.
type block struct{ first, end, category int }

// blocksOf cuts the references into blocks, in their order.
func blocksOf(references []Reference) []block {
	var list []block
	for i, r := range references {
		if n := len(list) - 1; n >= 0 && list[n].category == r.Category && i-list[n].first < blockRows {
			list[n].end = i + 1
			continue
		}
		list = append(list, block{i, i + 1, r.Category})
	}
	return list
}

// features computes all features but those of words from the similarities of all references. It goes over them once for the maximum of each
// block, and then only into the blocks that may hold one of the MaxTopK nearest of their side: those whose maximum is not under that
// of MaxTopK blocks of that side.
func (x *Index) features(sims []float32, q Query, leave skip) Features {
	f := Features{History: q.History}
	s := x.set
	var room [256]float32 // on the stack, for sets of up to some thousand references
	maxima := room[:0]
	var nearBlocks, farBlocks side
	heldBest := float32(math.Inf(-1)) // the nearest reference that lacks its conversation
	for n, b := range x.blocks {
		best := float32(math.Inf(-1))
		if b.category != leave.category {
			for i, v := range sims[b.first:b.end] {
				if v > best && b.first+i != leave.row {
					best = v
				}
			}
		}
		maxima = append(maxima, best)
		near, held := s.Categories[b.category].side(q)
		if near {
			nearBlocks.offer(best, n)
		} else {
			farBlocks.offer(best, n)
		}
		if held && best > heldBest {
			heldBest = best
		}
	}
	nearLeast, farLeast := nearBlocks.least(), farBlocks.least()
	for n, b := range x.blocks {
		if maxima[n] < min(nearLeast, farLeast) || b.category == leave.category {
			continue
		}
		to, least := &f.far, farLeast
		if near, _ := s.Categories[b.category].side(q); near {
			to, least = &f.near, nearLeast
		}
		if maxima[n] < least {
			continue
		}
		for i, v := range sims[b.first:b.end] {
			if !(v < least) && b.first+i != leave.row {
				to.offer(v, b.first+i)
			}
		}
	}
	top, second := x.nearest(&f) // of all references
	other := none                // the nearest of another category than top's
	for n, b := range x.blocks {
		if b.category != top.category && maxima[n] > other.value {
			other = candidate{maxima[n], n, b.category} // the row follows
		}
	}
	if other.row >= 0 {
		b := x.blocks[other.row]
		for i := b.first; i < b.end; i++ {
			if sims[i] == other.value && i != leave.row {
				other.row = i
				break
			}
		}
	}
	x.derive(&f, top, second, other, heldBest)
	return f
}

// derive fills in what follows from the nearest of both sides, the two nearest of all, the nearest of another category than top's, and the
// best similarity that lacks its conversation.
func (x *Index) derive(f *Features, top, second, other candidate, heldBest float32) {
	s := x.set
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
}

// candidate is a row under consideration.
type candidate struct {
	value    float32
	row      int
	category int
}

var none = candidate{float32(math.Inf(-1)), -1, -1}

// nearest finds the two nearest references of both sides; of equal ones, the one that comes first in the file.
func (x *Index) nearest(f *Features) (top, second candidate) {
	top, second = none, none
	near, far := 0, 0
	for _, to := range []*candidate{&top, &second} {
		from, k := &f.near, &near
		if near == f.near.n || far < f.far.n && f.far.before(far, &f.near, near) {
			from, k = &f.far, &far
		}
		if *k == from.n || math.IsInf(float64(from.values[*k]), -1) {
			return top, second
		}
		row := int(from.rows[*k])
		*to = candidate{from.values[*k], row, x.set.References[row].Category}
		*k++
	}
	return top, second
}

func (x *Index) hit(h candidate) Hit {
	if h.row < 0 {
		return Hit{}
	}
	r := x.set.References[h.row]
	c := x.set.Categories[r.Category]
	return Hit{Category: c.ID, Kind: c.Kind, Language: r.Language, Reference: r.Text, Similarity: float64(h.value)}
}
