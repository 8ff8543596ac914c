package tokenize

import (
	"strings"
	"unicode/utf8"

	"ragate/tokenize/internal/trie"
)

// addedToken is an entry of the file's added_tokens: found in a text before anything else happens to it.
type addedToken struct {
	id         int32
	content    string
	special    bool
	singleWord bool // only where no word character stands on either side
	lstrip     bool // takes the white space before it along
	rstrip     bool // and after it
	normalized bool // found in the normalised text
}

// matcher finds added tokens: leftmost first, of those the longest, never overlapping.
type matcher struct {
	tokens []addedToken
	trie   *trie.Trie // content → index in tokens
	first  string     // the distinct first bytes, when there are few of them
	starts [256]bool
	word   runeSet
	space  runeSet
}

// maxFirstBytes is how many first bytes are looked for one at a time, which is much faster per byte of text.
const maxFirstBytes = 3

// newMatcher returns nil when there is nothing to find. patterns[i] is what tokens[i] looks like in the text.
func newMatcher(tokens []addedToken, patterns []string, table *charTable) (*matcher, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	m := &matcher{tokens: tokens, word: table.word, space: table.space}
	keys := make([]trie.Key, len(tokens))
	for i, p := range patterns {
		keys[i] = trie.Key{Key: p, ID: int32(i)}
		if !m.starts[p[0]] {
			m.starts[p[0]] = true
			m.first += p[:1]
		}
	}
	var err error
	if m.trie, err = trie.New(keys); err != nil {
		return nil, &UnsupportedError{"added_tokens", err.Error(), "fewer of them"}
	}
	return m, nil
}

// match is an added token in a text.
type match struct {
	token       *addedToken
	start, stop int // with the white space that it takes along; the token counts only where start < stop
	end         int // without; the next match starts here at the earliest
}

// next finds the first match that starts in text[from:until]. Without one, it says where the search may go on: at until, or
// behind a candidate that reached beyond it. floor is where the previous match stopped.
func (m *matcher) next(text string, from, until, floor int, escapeSpecial bool) (found match, ok bool, resume int) {
	for from < until {
		at := m.candidate(text, from, until)
		if at < 0 {
			return match{}, false, until
		}
		i, n := m.trie.Longest(unsafeBytes(text[at:]))
		if n == 0 {
			from = at + 1
			continue
		}
		t := &m.tokens[i]
		end := at + n
		from = end
		if escapeSpecial && t.special || t.singleWord && !m.stands(text, at, end) {
			continue // what it covers is not searched again
		}
		found = match{token: t, start: at, stop: end, end: end}
		// A token that begins with white space can start before floor, in what the match before it took along. With lstrip
		// nothing is left of it then.
		if t.lstrip {
			found.start = m.spaceBefore(text, at, floor)
		}
		if t.rstrip {
			found.stop = m.spaceAfter(text, max(end, floor))
		}
		return found, true, end
	}
	return match{}, false, from
}

// candidate is the first position in text[from:until] whose byte begins some token, or -1.
func (m *matcher) candidate(text string, from, until int) int {
	if len(m.first) <= maxFirstBytes {
		best := -1
		for i := range len(m.first) {
			if at := strings.IndexByte(text[from:until], m.first[i]); at >= 0 {
				best = from + at
				until = best
			}
		}
		return best
	}
	for i := from; i < until; i++ {
		if m.starts[text[i]] {
			return i
		}
	}
	return -1
}

// stands says whether no word character touches text[start:end].
func (m *matcher) stands(text string, start, end int) bool {
	if start > 0 {
		if r, _ := utf8.DecodeLastRuneInString(text[:start]); m.word.has(r) {
			return false
		}
	}
	if end < len(text) {
		if r, _ := utf8.DecodeRuneInString(text[end:]); m.word.has(r) {
			return false
		}
	}
	return true
}

// spaceBefore goes back over white space, but not beyond floor.
func (m *matcher) spaceBefore(text string, at, floor int) int {
	for at > floor {
		r, n := utf8.DecodeLastRuneInString(text[:at])
		if !m.space.has(r) {
			return at
		}
		at -= n
	}
	return floor
}

func (m *matcher) spaceAfter(text string, at int) int {
	for at < len(text) {
		r, n := utf8.DecodeRuneInString(text[at:])
		if !m.space.has(r) {
			break
		}
		at += n
	}
	return at
}
