// Package unigram splits words into the pieces of a SentencePiece Unigram vocabulary: of all ways to spell a word with pieces
// the one whose scores add up to most.
//
// Start with [New], then take an [Encoder] for each goroutine. A Model never changes and is safe for concurrent use; an Encoder
// is for one user at a time and keeps its memory for the next word.
//
// What it promises: the ids of the reference's Unigram model, bit for bit in its sums (float64, in its order), so that words with
// two equally good spellings come out the same too. Time and memory grow linearly with the word.
package unigram

import (
	"fmt"
	"math"

	"ragate/tokenize/internal/trie"
)

// Vocabulary lists the pieces; the place of one is its id.
type Vocabulary struct {
	Text   []byte    // the pieces behind each other
	Ends   []uint32  // where each ends in Text
	Scores []float64 // finite
}

// Add appends a piece.
func (v *Vocabulary) Add(piece string, score float64) {
	v.Text = append(v.Text, piece...)
	v.Ends = append(v.Ends, uint32(len(v.Text)))
	v.Scores = append(v.Scores, score)
}

// Len is the number of pieces.
func (v *Vocabulary) Len() int { return len(v.Ends) }

// Model is a vocabulary, ready to use.
type Model struct {
	text     string
	ends     []uint32
	scores   []float64
	trie     *trie.Trie
	longest  int // bytes of the longest piece, and at least those of any character
	unk      int32
	unkScore float64
	bytes    *[256]int32 // pieces for bytes of unknown characters, -1 for those there are none for; nil when not wanted
}

// unkPenalty is how much worse than the worst piece an unknown character is, in the reference.
const unkPenalty = 10

// New makes a model. unk is the id of the piece that stands for unknown characters. With byteFallback these become the pieces of
// their bytes ("<0xE2>"), if there are such for all of them.
func New(v *Vocabulary, unk int, byteFallback bool) (*Model, error) {
	if unk < 0 || unk >= v.Len() {
		return nil, fmt.Errorf("no piece has the id %d of the unknown piece: there are %d", unk, v.Len())
	}
	m := &Model{text: string(v.Text), ends: v.Ends, scores: v.Scores, longest: 4, unk: int32(unk)}
	keys := make([]trie.Key, 0, v.Len())
	least := math.Inf(1)
	for id, score := range v.Scores {
		least = min(least, score)
		if piece, _ := m.Piece(int32(id)); piece != "" {
			keys = append(keys, trie.Key{Key: piece, ID: int32(id)})
			m.longest = max(m.longest, len(piece))
		}
	}
	m.unkScore = least - unkPenalty
	var err error
	if m.trie, err = trie.New(keys); err != nil {
		return nil, err
	}
	if byteFallback {
		m.bytes = new([256]int32)
		for b := range m.bytes {
			m.bytes[b] = m.ID(fmt.Sprintf("<0x%02X>", b))
		}
	}
	return m, nil
}

// Len is the number of pieces.
func (m *Model) Len() int { return len(m.ends) }

// Piece is the piece with an id, and whether there is one.
func (m *Model) Piece(id int32) (string, bool) {
	if id < 0 || int(id) >= len(m.ends) {
		return "", false
	}
	start := uint32(0)
	if id > 0 {
		start = m.ends[id-1]
	}
	return m.text[start:m.ends[id]], true
}

// ID is the id of a piece, or -1. Of equal pieces the last one counts.
func (m *Model) ID(piece string) int32 {
	node, id := m.trie.Root(), int32(-1)
	for i := range len(piece) {
		var ok bool
		if node, id, ok = m.trie.Step(node, piece[i]); !ok {
			return -1
		}
	}
	return id
}

// Bytes is the memory that the model takes.
func (m *Model) Bytes() int { return len(m.text) + 4*len(m.ends) + 8*len(m.scores) + m.trie.Bytes() }
