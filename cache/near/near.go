// Package near finds among vectors that were seen before one that points in nearly the same direction, by random hyperplanes.
//
// Start at [New]. Not for exact search: a neighbour may be missed, with a probability that [Index.Recall] gives; what is returned is always as
// near as was asked, since its cosine is computed.
//
// What it promises: vectors of one group are never compared with those of another, and each group, and all together, are bounded.
package near

import (
	"math"
	"math/rand/v2"
	"sync"
)

// The hash of a vector in each of so many tables: on which side of so many hyperplanes through the origin it lies. Two vectors at the angle θ lie on
// the same side of one with probability 1-θ/π (Charikar, "Similarity estimation techniques from rounding algorithms", 2002), so that they share a
// bucket of some table with 1-(1-(1-θ/π)^bits)^tables: 0.97 for a cosine of 0.95, 0.72 for 0.8, and more above.
const (
	tables = 12
	bits   = 10
)

// Item is what a vector stands for.
type Item = [32]byte

// Index holds vectors in groups. It is safe for concurrent use.
type Index struct {
	dim       int
	planes    []float32 // tables × bits × dim
	maxGroups int
	perGroup  int

	mu     sync.Mutex
	groups map[string]*group
	clock  uint64
}

type group struct {
	used    uint64 // the index's clock when it was used last
	vectors []float32
	items   []Item
	hashes  [][tables]uint16
	at      map[Item]int
	next    int // the place that is written over next, once the group is full
	buckets [tables]map[uint16][]int32
}

// New makes an index of vectors of dim numbers: at most maxGroups groups, of which the one that was used longest ago goes, with at most perGroup
// vectors each, of which the oldest goes. seed chooses the hyperplanes.
func New(dim, maxGroups, perGroup int, seed [32]byte) *Index {
	x := &Index{dim: dim, maxGroups: maxGroups, perGroup: perGroup, groups: map[string]*group{}, planes: make([]float32, tables*bits*dim)}
	r := rand.New(rand.NewChaCha8(seed))
	for i := range x.planes {
		x.planes[i] = float32(r.NormFloat64())
	}
	return x
}

// Recall is the probability that a vector at this cosine is found.
func (x *Index) Recall(cosine float64) float64 {
	same := 1 - math.Acos(max(-1, min(1, cosine)))/math.Pi
	return 1 - math.Pow(1-math.Pow(same, bits), tables)
}

func (x *Index) hash(v []float32) (h [tables]uint16) {
	for t := range tables {
		for b := range bits {
			if dot(x.planes[(t*bits+b)*x.dim:], v) > 0 {
				h[t] |= 1 << b
			}
		}
	}
	return h
}

func dot(a, b []float32) float64 {
	var s float64
	for i, v := range b {
		s += float64(a[i]) * float64(v)
	}
	return s
}

// Find returns the item of the group whose vector is nearest to v, which has length 1, and their cosine, among those that are found with a cosine of at
// least min. not is left out.
func (x *Index) Find(name string, v []float32, min float64, not Item) (best Item, cosine float64, ok bool) {
	h := x.hash(v)
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.groups[name]
	if g == nil {
		return best, 0, false
	}
	x.clock++
	g.used = x.clock
	seen := make(map[int32]bool, 32)
	cosine = min
	for t := range tables {
		for _, i := range g.buckets[t][h[t]] {
			if seen[i] || g.items[i] == not {
				continue
			}
			seen[i] = true
			if c := dot(g.vectors[int(i)*x.dim:], v); c >= cosine {
				best, cosine, ok = g.items[i], c, true
			}
		}
	}
	return best, cosine, ok
}

// Add puts a vector of length 1 into a group. One whose item is there already is left as it is.
func (x *Index) Add(name string, v []float32, item Item) {
	h := x.hash(v)
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.groups[name]
	if g == nil {
		if len(x.groups) >= x.maxGroups {
			x.forget()
		}
		g = &group{at: map[Item]int{}}
		for t := range tables {
			g.buckets[t] = map[uint16][]int32{}
		}
		x.groups[name] = g
	}
	x.clock++
	g.used = x.clock
	if _, ok := g.at[item]; ok {
		return
	}
	i := len(g.items)
	if i < x.perGroup {
		g.vectors, g.items, g.hashes = append(g.vectors, v...), append(g.items, item), append(g.hashes, h)
	} else {
		i = g.next
		g.next = (g.next + 1) % x.perGroup
		g.drop(int32(i))
		copy(g.vectors[i*x.dim:], v)
		g.items[i], g.hashes[i] = item, h
	}
	g.at[item] = i
	for t := range tables {
		g.buckets[t][h[t]] = append(g.buckets[t][h[t]], int32(i))
	}
}

// drop takes place i out of the buckets.
func (g *group) drop(i int32) {
	delete(g.at, g.items[i])
	for t := range tables {
		h := g.hashes[i][t]
		b := g.buckets[t][h]
		for k, at := range b {
			if at == i {
				b[k] = b[len(b)-1]
				b = b[:len(b)-1]
				break
			}
		}
		if len(b) == 0 {
			delete(g.buckets[t], h)
		} else {
			g.buckets[t][h] = b
		}
	}
}

// forget removes the group that was used longest ago.
func (x *Index) forget() {
	var oldest string
	first := uint64(math.MaxUint64)
	for name, g := range x.groups {
		if g.used < first {
			oldest, first = name, g.used
		}
	}
	delete(x.groups, oldest)
}

// Len is how many vectors are held.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, g := range x.groups {
		n += len(g.items)
	}
	return n
}
