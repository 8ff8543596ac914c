// Package trie finds the keys that a text begins with, byte by byte, in a double array.
//
// Start with [New]. [Trie.Longest] is what a greedy matcher needs; [Trie.Root] and [Trie.Step] walk by hand, for those who want
// every key on the way. A Trie never changes and is safe for concurrent use.
package trie

import (
	"fmt"
	"slices"
)

// Trie is a double array over bytes: the child of a node by byte c stands at index base^c, and is a child of that node if
// it carries the label c, because no two nodes have the same base.
type Trie struct {
	units []unit // a multiple of 256
	root  uint32 // base of the root
}

type unit struct {
	link uint32 // base<<9 | labelUsed | label; a free unit has no labelUsed, so it matches no byte
	id   int32  // of the key that ends here, or -1
}

const (
	labelUsed = 1 << 8
	labelMask = 1<<9 - 1
)

// Longest finds the longest key that w starts with. It returns its id and length, or -1 and 0.
func (t *Trie) Longest(w []byte) (id int32, n int) {
	id = -1
	base := t.root
	for i, c := range w {
		u := t.units[base^uint32(c)]
		if u.link&labelMask != labelUsed|uint32(c) {
			break
		}
		if u.id >= 0 {
			id, n = u.id, i+1
		}
		base = u.link >> 9
	}
	return id, n
}

// Root is the node that all walks begin at.
func (t *Trie) Root() uint32 { return t.root }

// Step goes from a node to its child by c, if it has one. id is that of the key which ends at the child, or -1.
func (t *Trie) Step(node uint32, c byte) (child uint32, id int32, ok bool) {
	u := t.units[node^uint32(c)]
	return u.link >> 9, u.id, u.link&labelMask == labelUsed|uint32(c)
}

// Bytes is the memory that the trie takes.
func (t *Trie) Bytes() int { return 8 * len(t.units) }

// Key is a string with the id under which it is found.
type Key struct {
	Key string // not empty
	ID  int32  // not negative
}

// New builds a trie of keys; of equal keys the last one counts.
func New(keys []Key) (*Trie, error) {
	keys = slices.Clone(keys)
	slices.SortStableFunc(keys, func(a, b Key) int {
		switch {
		case a.Key < b.Key:
			return -1
		case a.Key > b.Key:
			return 1
		}
		return 0
	})
	b := builder{free: 256} // base 0 stays unused: it is the base of nodes without children
	b.extend(512)
	root, err := b.place(keys, 0)
	if err != nil {
		return nil, err
	}
	return &Trie{units: b.units, root: root}, nil
}

type builder struct {
	units    []unit
	baseUsed []bool
	free     uint32 // no free unit stands before it
}

func (b *builder) extend(n int) {
	for len(b.units) < n {
		b.units = append(b.units, unit{id: -1})
		b.baseUsed = append(b.baseUsed, false)
	}
}

// place puts the children of the node whose keys (sharing their first depth bytes, all longer than that) are given, and all
// below them. It returns the node's base.
func (b *builder) place(keys []Key, depth int) (uint32, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	var labels [256]byte
	n := 0
	for i := range keys {
		if c := keys[i].Key[depth]; n == 0 || labels[n-1] != c {
			labels[n] = c
			n++
		}
	}
	base, err := b.findBase(labels[:n])
	if err != nil {
		return 0, err
	}
	b.baseUsed[base] = true
	for _, c := range labels[:n] {
		b.units[base^uint32(c)].link = labelUsed | uint32(c)
	}
	for len(keys) > 0 {
		c := keys[0].Key[depth]
		end := 1
		for end < len(keys) && keys[end].Key[depth] == c {
			end++
		}
		below := keys[:end]
		id := int32(-1)
		for len(below) > 0 && len(below[0].Key) == depth+1 {
			id = below[0].ID
			below = below[1:]
		}
		childBase, err := b.place(below, depth+1)
		if err != nil {
			return 0, err
		}
		b.units[base^uint32(c)] = unit{link: childBase<<9 | labelUsed | uint32(c), id: id}
		keys = keys[end:]
	}
	return base, nil
}

func (b *builder) findBase(labels []byte) (uint32, error) {
	// Units far back are free because little fits there: searching them again and again would take quadratic time.
	const lookBack = 8 * 256
	if len(b.units) > lookBack {
		b.free = max(b.free, uint32(len(b.units)-lookBack))
	}
	for int(b.free) < len(b.units) && b.units[b.free].link != 0 {
		b.free++
	}
	for at := b.free; ; at++ {
		if at >= 1<<23-256 {
			return 0, fmt.Errorf("more than %d trie nodes", 1<<23-512)
		}
		if int(at) >= len(b.units) {
			b.extend((int(at)/256 + 1) * 256)
		}
		base := at ^ uint32(labels[0])
		if b.units[at].link != 0 || b.baseUsed[base] {
			continue
		}
		fits := true
		for _, c := range labels[1:] {
			if b.units[base^uint32(c)].link != 0 {
				fits = false
				break
			}
		}
		if fits {
			return base, nil
		}
	}
}
