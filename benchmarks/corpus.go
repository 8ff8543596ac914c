package benchmarks

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// Abstracts and questions of the Cranfield collection (aerodynamics, 1960s), one a line.
var (
	//go:embed testdata/passages.txt.gz
	passagesGzip []byte
	//go:embed testdata/queries.txt.gz
	queriesGzip []byte
)

// Texts writes English texts of a wanted number of tokens, no two of them alike: each begins with a made-up word that no other
// has, so that no cache of texts, prefixes or scores can help. The same seed gives the same texts. Not safe for concurrent use.
type Texts struct {
	words   []string // of all passages, in order
	tokens  []int    // of words
	starts  []int    // positions in words where a passage begins
	queries []string
	count   func(string) int
	rng     *rand.Rand
	serial  uint64
}

// NewTexts makes a source of texts out of the corpus that the program holds. count gives a text's tokens without special ones; texts of words must add up, as they do in WordPiece.
func NewTexts(seed uint64, count func(text string) int) (*Texts, error) {
	passages, err := lines(passagesGzip)
	if err != nil {
		return nil, fmt.Errorf("benchmarks: passages: %w", err)
	}
	queries, err := lines(queriesGzip)
	if err != nil {
		return nil, fmt.Errorf("benchmarks: queries: %w", err)
	}
	return NewTextsOf(seed, passages, queries, count)
}

// NewTextsOf is NewTexts with other passages and queries, of which there must be some.
func NewTextsOf(seed uint64, passages, queries []string, count func(text string) int) (*Texts, error) {
	t := &Texts{count: count, queries: queries, rng: rand.New(rand.NewPCG(seed, 0))}
	known := map[string]int{}
	for _, p := range passages {
		t.starts = append(t.starts, len(t.words))
		for w := range strings.FieldsSeq(p) {
			n, ok := known[w]
			if !ok {
				n = count(w)
				known[w] = n
			}
			t.words = append(t.words, w)
			t.tokens = append(t.tokens, n)
		}
	}
	if len(t.words) == 0 || len(t.queries) == 0 {
		return nil, fmt.Errorf("benchmarks: %d words in %d passages, and %d queries: there must be some of each", len(t.words), len(passages), len(t.queries))
	}
	return t, nil
}

func lines(gz []byte) ([]string, error) {
	r, err := gzip.NewReader(bytes.NewReader(gz))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	out := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(out) < 2 {
		return nil, errors.New("the corpus is empty")
	}
	return out, nil
}

// unique is a word that no other text of this run has: its letters spell the text's number, behind one that is drawn.
func (t *Texts) unique() string {
	t.serial++
	b := []byte{byte('a' + t.rng.IntN(26))}
	for n := t.serial; n > 0; n /= 26 {
		b = append(b, byte('a'+n%26))
	}
	return string(b)
}

// Passage writes a text of about the given number of tokens (special tokens aside, and at most the last word's tokens fewer): a unique word,
// then prose from the beginning of a passage or from inside it, going on into the next where it is too short.
func (t *Texts) Passage(tokens int) string {
	var b strings.Builder
	u := t.unique()
	b.WriteString(u)
	at := t.starts[t.rng.IntN(len(t.starts))] + t.rng.IntN(80)
	for n := t.count(u); ; at++ {
		at %= len(t.words)
		n += t.tokens[at]
		if n > tokens {
			return b.String()
		}
		b.WriteByte(' ')
		b.WriteString(t.words[at])
	}
}

// Query writes a question of the corpus behind a unique word: 5 to 50 tokens, 20 on average.
func (t *Texts) Query() string {
	return t.unique() + " " + t.queries[t.rng.IntN(len(t.queries))]
}

// Between draws a whole number from low to high, both included.
func (t *Texts) Between(low, high int) int { return low + t.rng.IntN(high-low+1) }
