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

// New builds a trie of keys; of equal keys the last one counts. It sorts keys.
func New(keys []Key) (*Trie, error) {
	b := builder{head: none, tail: none, spare: make([]Key, len(keys))}
	b.extend() // base 0 stays unused, and with it the first block: it is the base of nodes without children
	for b.head != none {
		b.take(uint32(b.head))
	}
	root, err := b.place(keys, 0)
	if err != nil {
		return nil, err
	}
	return &Trie{units: slices.Clip(b.units), root: root}, nil
}

// builder places nodes one after the other, each where all of its children find free units. The children of a node stand in one
// block of 256 units, since they differ in the last byte of their index.
type builder struct {
	units    []unit
	baseUsed []bool
	// The free units that are still looked at, linked in ascending order.
	next, prev []int32
	head, tail int32
	spare      []Key
}

const (
	none = -1
	// Units far back are free because little fits there: searching them again and again would take quadratic time.
	lookBack = 16 * 256
)

// extend adds a block.
func (b *builder) extend() {
	for range 256 {
		at := int32(len(b.units))
		b.units = append(b.units, unit{id: -1})
		b.baseUsed = append(b.baseUsed, false)
		b.next, b.prev = append(b.next, none), append(b.prev, b.tail)
		if b.tail == none {
			b.head = at
		} else {
			b.next[b.tail] = at
		}
		b.tail = at
	}
	for int(b.head) < len(b.units)-lookBack {
		b.take(uint32(b.head))
	}
}

// take removes a unit from the list of free ones.
func (b *builder) take(at uint32) {
	next, prev := b.next[at], b.prev[at]
	if prev == none {
		if b.head != int32(at) {
			return // gone already
		}
		b.head = next
	} else {
		b.next[prev] = next
	}
	if next == none {
		b.tail = prev
	} else {
		b.prev[next] = prev
	}
	b.next[at], b.prev[at] = none, none
}

// place puts the children of the node whose keys (sharing their first depth bytes, all longer than that) are given, and all
// below them. It returns the node's base.
func (b *builder) place(keys []Key, depth int) (uint32, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	b.sort(keys, depth)
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
		b.take(base ^ uint32(c))
	}
	for len(keys) > 0 {
		c := keys[0].Key[depth]
		end := 1
		for end < len(keys) && keys[end].Key[depth] == c {
			end++
		}
		// Those that end here come to the front, in their order.
		below := keys[:end]
		id, longer := int32(-1), 0
		for i := len(below) - 1; i >= 0; i-- {
			if len(below[i].Key) > depth+1 {
				longer++
				below[len(below)-longer] = below[i]
			} else if id < 0 {
				id = below[i].ID
			}
		}
		childBase, err := b.place(below[len(below)-longer:], depth+1)
		if err != nil {
			return 0, err
		}
		b.units[base^uint32(c)] = unit{link: childBase<<9 | labelUsed | uint32(c), id: id}
		keys = keys[end:]
	}
	return base, nil
}

// sort sorts keys by one byte. Those with the same keep their order.
func (b *builder) sort(keys []Key, depth int) {
	if len(keys) <= 24 {
		for i := 1; i < len(keys); i++ {
			k := keys[i]
			j := i
			for ; j > 0 && keys[j-1].Key[depth] > k.Key[depth]; j-- {
				keys[j] = keys[j-1]
			}
			keys[j] = k
		}
		return
	}
	var starts [257]int
	for i := range keys {
		starts[int(keys[i].Key[depth])+1]++
	}
	for c := range 256 {
		starts[c+1] += starts[c]
	}
	spare := b.spare[:len(keys)]
	for i := range keys {
		c := keys[i].Key[depth]
		spare[starts[c]] = keys[i]
		starts[c]++
	}
	copy(keys, spare)
}

func (b *builder) findBase(labels []byte) (uint32, error) {
	for {
		for at := b.head; at != none; at = b.next[at] {
			base := uint32(at) ^ uint32(labels[0])
			if b.baseUsed[base] {
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
		if len(b.units) >= 1<<23-512 {
			return 0, fmt.Errorf("more than %d trie nodes", 1<<23-512)
		}
		b.extend()
	}
}
