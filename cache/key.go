package cache

import (
	"crypto/sha256"
	"encoding/binary"
)

// Key names a value by everything that it depends on. All 256 bits are kept: callers choose the texts, and a shorter or weaker hash would let
// one of them look for two texts with one key and so plant an answer for the other.
type Key [sha256.Size]byte

// Scope is what many keys have in common: the model, the settings, the query.
type Scope [sha256.Size]byte

// NewScope hashes the parts in order. Each is preceded by its length, so that no two lists of parts are written alike.
func NewScope(parts ...string) Scope {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return Scope(h.Sum(nil))
}

// Key is the key of one text within the scope.
func (s Scope) Key(text string) Key {
	// Room for most chunks without a second array.
	var room [2048]byte
	b := append(append(room[:0], s[:]...), text...)
	return sha256.Sum256(b)
}
