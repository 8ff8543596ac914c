// Package charsmap normalises text by the character map that SentencePiece models carry ("precompiled_charsmap").
//
// Start with [Parse]. [Map.Append] is the fast way; [Map.Walk] yields part after part, for callers that keep track of places. A Map
// never changes and is safe for concurrent use.
//
// What it promises is what the reference does, which is not what SentencePiece does: the text is taken one grapheme cluster at a
// time. A cluster of less than six bytes that begins with a key is replaced as a whole, its rest lost; any other one is replaced
// character by character. Where one key begins another, the shorter counts.
package charsmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"ragate/tokenize/internal/graphemes"
	"ragate/tokenize/internal/trie"
)

// Map is a character map, ready to use.
type Map struct {
	pages  [0x110000 / 256]uint16
	data   []entry
	values []string
	multi  *trie.Trie // keys of several characters → index in values; nil when there are none
	plain  bool       // printable ASCII is left alone
}

// entry is what the map and the rules of clusters know about a code point: its class, whether keys of several characters begin
// with it, and one more than the index of what it becomes, or 0 when it stays.
type entry uint32

const (
	multiBit   = 1 << 8
	valueShift = 9
)

func (e entry) class() graphemes.Class { return graphemes.Class(e) }
func (e entry) multi() bool            { return e&multiBit != 0 }
func (e entry) value() int             { return int(e>>valueShift) - 1 }

// shortCluster is how many bytes a cluster may have that is looked up as a whole.
const shortCluster = 5

// Parse reads a map: the size of a Darts double-array trie in bytes, the trie in units of 32 bits, little endian, and the
// replacements, each ended by a NUL, that the trie's values are offsets into. With no bytes at all, the map leaves text alone.
// Errors say what is broken.
func Parse(b []byte) (*Map, error) {
	m := &Map{}
	chars := map[rune]int{}
	var keys []trie.Key
	if len(b) > 0 {
		if len(b) < 8 {
			return nil, errors.New("shorter than its header")
		}
		size := int(binary.LittleEndian.Uint32(b)) / 4
		if size == 0 || size > len(b)/4-1 {
			return nil, fmt.Errorf("a trie of %d units in %d bytes", size, len(b))
		}
		r := reader{m: m, blob: string(b[4+4*size:]), index: map[uint32]int{}, chars: chars}
		if !utf8.ValidString(r.blob) {
			return nil, errors.New("the replacements are not UTF-8")
		}
		r.units = make([]uint32, size)
		for i := range r.units {
			r.units[i] = binary.LittleEndian.Uint32(b[4+4*i:])
		}
		if err := r.walk(offset(r.units[0]), nil); err != nil {
			return nil, err
		}
		keys = r.keys
	}
	if len(keys) > 0 {
		var err error
		if m.multi, err = trie.New(keys); err != nil {
			return nil, err
		}
	}
	starts := map[rune]bool{}
	for _, k := range keys {
		c, _ := utf8.DecodeRuneInString(k.Key)
		starts[c] = true
	}
	m.fill(chars, starts)
	m.plain = true
	for c := rune(0x20); c < 0x7f; c++ {
		_, mapped := chars[c]
		m.plain = m.plain && !mapped
	}
	for _, k := range keys { // a cluster of plain characters is one character, so only what ends in others matters
		if len(k.Key) == 1 {
			m.plain = false
		}
	}
	return m, nil
}

func (m *Map) fill(chars map[rune]int, starts map[rune]bool) {
	var special [0x110000 / 256]bool
	for c := range chars {
		special[c>>8] = true
	}
	for c := range starts {
		special[c>>8] = true
	}
	plain := map[int]uint16{} // pages that the map leaves alone, by their classes
	for p := range m.pages {
		same := graphemes.SamePage(p)
		if at, ok := plain[same]; ok && !special[p] {
			m.pages[p] = at
			continue
		}
		at := uint16(len(m.data) / 256)
		if m.pages[p] = at; !special[p] {
			plain[same] = at
		}
		for c := rune(p << 8); c <= rune(p<<8|0xff); c++ {
			e := entry(graphemes.ClassOf(c))
			if special[p] {
				if v, ok := chars[c]; ok {
					e |= entry(v+1) << valueShift
				}
				if starts[c] {
					e |= multiBit
				}
			}
			m.data = append(m.data, e)
		}
	}
}

// reader walks the trie of a map.
type reader struct {
	m     *Map
	units []uint32
	blob  string
	index map[uint32]int // offset in blob → index in values
	chars map[rune]int
	keys  []trie.Key
	steps int
}

// The parts of a unit (Darts-clone): a label, whether a value hangs below, and the distance to the children.
func label(u uint32) uint32  { return u & (1<<31 | 0xff) }
func hasLeaf(u uint32) bool  { return u>>8&1 == 1 }
func offset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// longestKey is how long a key may be. Those in use have two or three characters.
const longestKey = 64

// walk goes through all keys that begin with prefix. The reference takes the shortest key that a text begins with, so what is below
// a key is never looked at.
func (r *reader) walk(node uint32, prefix []byte) error {
	if r.steps++; r.steps > len(r.units) || len(prefix) > longestKey {
		return errors.New("the trie is not a tree of short keys")
	}
	for c := uint32(1); c < 256; c++ {
		at := node ^ c
		if int64(at) >= int64(len(r.units)) {
			return fmt.Errorf("the trie leads to unit %d of %d", at, len(r.units))
		}
		u := r.units[at]
		if label(u) != c {
			continue
		}
		key := append(prefix[:len(prefix):len(prefix)], byte(c))
		below := at ^ offset(u)
		if !hasLeaf(u) {
			if err := r.walk(below, key); err != nil {
				return err
			}
			continue
		}
		if int64(below) >= int64(len(r.units)) {
			return fmt.Errorf("the trie leads to unit %d of %d", below, len(r.units))
		}
		if err := r.add(string(key), r.units[below]&(1<<31-1)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) add(key string, value uint32) error {
	if !utf8.ValidString(key) {
		return fmt.Errorf("the key %q is not UTF-8", key)
	}
	i, ok := r.index[value]
	if !ok {
		if int64(value) > int64(len(r.blob)) || int64(value) < int64(len(r.blob)) && !utf8.RuneStart(r.blob[value]) {
			return fmt.Errorf("the replacement of %q stands at %d of %d, which is not the start of a character", key, value, len(r.blob))
		}
		end := int(value)
		for end < len(r.blob) && r.blob[end] != 0 {
			end++
		}
		i = len(r.m.values)
		if i >= 1<<(32-valueShift)-1 {
			return errors.New("too many replacements")
		}
		r.index[value] = i
		r.m.values = append(r.m.values, r.blob[value:end])
	}
	if c, n := utf8.DecodeRuneInString(key); n == len(key) {
		r.chars[c] = i
	} else if len(key) <= shortCluster {
		r.keys = append(r.keys, trie.Key{Key: key, ID: int32(i)})
	}
	return nil
}

func (m *Map) entry(c rune) entry { return m.data[int(m.pages[c>>8])<<8|int(c&0xff)] }

// Certain says whether text may be taken apart between two characters that stand beside each other.
func (m *Map) Certain(before, after rune) bool {
	return graphemes.Breaks(m.entry(before).class(), m.entry(after).class())
}

// Append appends what becomes of text, which must begin and end where clusters do. A byte that is not UTF-8 counts as U+FFFD.
func (m *Map) Append(dst []byte, text string) []byte {
	for pos := 0; pos < len(text); {
		if m.plain {
			end := plainEnd(text, pos)
			if end < len(text) && end > pos && text[end] >= utf8.RuneSelf {
				end-- // an accent may follow
			}
			dst = append(dst, text[pos:end]...)
			if pos = end; pos == len(text) {
				break
			}
		}
		c, n := decode(text, pos)
		e := m.entry(c)
		next := pos + n
		if next < len(text) {
			d, _ := decode(text, next)
			if !graphemes.Breaks(e.class(), m.entry(d).class()) {
				next = m.clusterEnd(text, pos)
				dst = m.appendCluster(dst, text[pos:next])
				pos = next
				continue
			}
		}
		dst = m.appendChar(dst, c, e)
		pos = next
	}
	return dst
}

// plainEnd is where the printable ASCII characters that begin at pos end.
func plainEnd(text string, pos int) int {
	for pos < len(text) && text[pos]-0x20 < 0x7f-0x20 {
		pos++
	}
	return pos
}

func decode(text string, pos int) (rune, int) {
	if c := text[pos]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(text[pos:])
}

func (m *Map) appendChar(dst []byte, c rune, e entry) []byte {
	if v := e.value(); v >= 0 {
		return append(dst, m.values[v]...)
	}
	return utf8.AppendRune(dst, c)
}

func (m *Map) clusterEnd(text string, pos int) int {
	var s graphemes.State
	for i, c := range text[pos:] {
		if s.Next(m.entry(c).class()) && i > 0 {
			return pos + i
		}
	}
	return len(text)
}

func (m *Map) appendCluster(dst []byte, cluster string) []byte {
	if v, ok := m.whole(cluster); ok {
		return append(dst, m.values[v]...)
	}
	for _, c := range cluster {
		dst = m.appendChar(dst, c, m.entry(c))
	}
	return dst
}

// whole finds what a cluster becomes as a whole.
func (m *Map) whole(cluster string) (value int, ok bool) {
	if len(cluster) > shortCluster {
		return 0, false
	}
	var buf [4 * shortCluster]byte
	b := buf[:0]
	var first entry
	for i, c := range cluster {
		if i == 0 {
			first = m.entry(c)
		}
		b = utf8.AppendRune(b, c) // three bytes for each that is not UTF-8
	}
	switch {
	case len(b) > shortCluster:
		return 0, false
	case first.value() >= 0:
		return first.value(), true
	case first.multi():
		if id, n := m.multi.Longest(b); n > 0 {
			return int(id), true
		}
	}
	return 0, false
}

// Walk yields the parts of text one after the other, what becomes of each, and whether the map has a say in it. The text must be
// UTF-8.
func (m *Map) Walk(text string, yield func(part, becomes string, mapped bool)) {
	for pos := 0; pos < len(text); {
		end := m.clusterEnd(text, pos)
		cluster := text[pos:end]
		pos = end
		if v, ok := m.whole(cluster); ok {
			yield(cluster, m.values[v], true)
			continue
		}
		for i, c := range cluster {
			part := cluster[i : i+utf8.RuneLen(c)]
			if v := m.entry(c).value(); v >= 0 {
				yield(part, m.values[v], true)
			} else {
				yield(part, part, false)
			}
		}
	}
}

// Bytes is the memory that the map takes.
func (m *Map) Bytes() int {
	n := 2*len(m.pages) + 4*len(m.data)
	for _, v := range m.values {
		n += 16 + len(v)
	}
	return n
}
