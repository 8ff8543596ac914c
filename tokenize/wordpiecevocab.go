package tokenize

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"ragate/tokenize/internal/trie"
)

// vocab looks up the pieces of words.
type vocab struct {
	ids    map[string]int32 // every token as the file spells it
	unk    int32
	prefix string // of tokens that continue a word
	max    int    // characters of a word; a longer one is unknown

	short shortTable // whole words of at most 8 bytes
	long  longTable  // whole words of 9 to 16 bytes
	first *trie.Trie // what can begin a word
	next  *trie.Trie // what can continue one, without the prefix
}

// shortTable and longTable are open-addressing hash tables keyed by the word's bytes as little-endian integers, zero padded.
// They are at most half full. Words that end in a NUL byte, which would look like padding, are left to the trie.
type shortTable struct {
	slots []shortSlot // a power of two
	shift uint8
}

type shortSlot struct {
	key uint64 // 0: free
	id  int32
}

type longTable struct {
	slots []longSlot
	shift uint8
}

type longSlot struct {
	lo, hi uint64 // hi is 0 in a free slot: the words here have more than 8 bytes
	id     int32
}

// hashMul is 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const hashMul = 0x9E3779B97F4A7C15

func hashShort(key uint64) uint64   { return (key ^ key>>32) * hashMul }
func hashLong(lo, hi uint64) uint64 { return (lo ^ bits.RotateLeft64(hi*hashMul, 29)) * hashMul }
func (t *shortTable) mask() uint64  { return uint64(len(t.slots) - 1) }
func (t *longTable) mask() uint64   { return uint64(len(t.slots) - 1) }
func tableSize(n int) (int, uint8)  { k := max(4, bits.Len(uint(2*n))); return 1 << k, uint8(64 - k) }
func newShortTable(n int) shortTable {
	size, s := tableSize(n)
	return shortTable{make([]shortSlot, size), s}
}
func newLongTable(n int) longTable {
	size, s := tableSize(n)
	return longTable{make([]longSlot, size), s}
}

func (t *shortTable) put(key uint64, id int32) {
	i := hashShort(key) >> t.shift
	for t.slots[i].key != 0 {
		i = (i + 1) & t.mask()
	}
	t.slots[i] = shortSlot{key, id}
}

// get returns the id of the word, or -1.
func (t *shortTable) get(key uint64) int32 {
	for i := hashShort(key) >> t.shift; ; i = (i + 1) & t.mask() {
		s := &t.slots[i&t.mask()]
		if s.key == key {
			return s.id
		}
		if s.key == 0 {
			return -1
		}
	}
}

func (t *longTable) put(lo, hi uint64, id int32) {
	i := hashLong(lo, hi) >> t.shift
	for t.slots[i].hi != 0 {
		i = (i + 1) & t.mask()
	}
	t.slots[i] = longSlot{lo, hi, id}
}

func (t *longTable) get(lo, hi uint64) int32 {
	for i := hashLong(lo, hi) >> t.shift; ; i = (i + 1) & t.mask() {
		s := &t.slots[i&t.mask()]
		if s.lo == lo && s.hi == hi {
			return s.id
		}
		if s.hi == 0 {
			return -1
		}
	}
}

// wordKeys packs a word of at most 16 bytes.
func wordKeys(w []byte) (lo, hi uint64) {
	var b [16]byte
	copy(b[:], w)
	return binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
}

// newVocab leaves out of its tables what no word can look like, which inWord says: most of all the continuing pieces as
// words of their own ("##ing" where "#" is punctuation).
func newVocab(ids map[string]int32, unk int32, prefix string, maxChars int, inWord func(string) bool) (*vocab, error) {
	v := &vocab{ids: ids, unk: unk, prefix: prefix, max: maxChars}
	var first, next []trie.Key
	for token, id := range ids {
		if token != "" && inWord(token) {
			first = append(first, trie.Key{Key: token, ID: id})
		}
		if rest, ok := strings.CutPrefix(token, prefix); ok && rest != "" && inWord(rest) {
			next = append(next, trie.Key{Key: rest, ID: id})
		}
	}
	// Files list common words first: give those the places where they are found at once.
	slices.SortFunc(first, func(a, b trie.Key) int { return int(a.ID) - int(b.ID) })
	var short, long []trie.Key
	for _, k := range first {
		switch {
		case strings.HasSuffix(k.Key, "\x00") || utf8.RuneCountInString(k.Key) > maxChars: // see shortTable; unknown anyway
		case len(k.Key) <= 8:
			short = append(short, k)
		case len(k.Key) <= 16:
			long = append(long, k)
		}
	}
	v.short, v.long = newShortTable(len(short)), newLongTable(len(long))
	for _, k := range short {
		lo, _ := wordKeys([]byte(k.Key))
		v.short.put(lo, k.ID)
	}
	for _, k := range long {
		lo, hi := wordKeys([]byte(k.Key))
		v.long.put(lo, hi, k.ID)
	}
	var err error
	if v.first, err = trie.New(first); err != nil {
		return nil, err
	}
	if v.next, err = trie.New(next); err != nil {
		return nil, err
	}
	return v, nil
}

// whole returns the id of a word that is in the vocabulary as it is, or -1.
func (v *vocab) whole(w []byte) int32 {
	if len(w) > 16 || w[len(w)-1] == 0 {
		return -1 // the trie finds it
	}
	lo, hi := wordKeys(w)
	if len(w) <= 8 {
		return v.short.get(lo)
	}
	return v.long.get(lo, hi)
}

// char is the id of a word of one character.
func (v *vocab) char(r rune) int32 {
	if id, ok := v.ids[string(r)]; ok && v.max > 0 {
		return id
	}
	return v.unk
}
