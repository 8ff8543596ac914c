package tokenize

import (
	_ "embed"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// What the reference does with code points follows several old versions of Unicode at once, so neither package unicode nor
// x/text can stand in for it, today or after their next update. chartable.txt records what was measured.
//
//go:embed chartable.txt
var charTableText string

var loadCharTable = sync.OnceValue(func() *charTable {
	t, err := parseCharTable(charTableText)
	if err != nil {
		panic("tokenize: chartable.txt: " + err.Error()) // the file is part of the package: cannot happen in a tested build
	}
	return t
})

type runeRange struct{ lo, hi rune } // both included

type runeSet []runeRange // ascending, disjoint

func (s runeSet) has(r rune) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].hi >= r })
	return i < len(s) && s[i].lo <= r
}

type charTable struct {
	removed    runeSet // by clean_text
	space      runeSet
	ideograph  runeSet // gets spaces around it by handle_chinese_chars
	punct      runeSet // a word of its own
	nonspacing runeSet // removed by strip_accents
	word       runeSet // \w of the reference
	class      map[rune]uint8
	lower      map[rune][]rune
	nfd        map[rune][]rune // without Hangul syllables
}

const (
	hangulFirst = 0xAC00
	hangulLast  = 0xD7A3
)

// hangulParts decomposes a Hangul syllable (The Unicode Standard, section 3.12); tail is 0 when there is none.
func hangulParts(r rune) (lead, vowel, tail rune) {
	const vowels, tails = 21, 28
	s := r - hangulFirst
	lead = 0x1100 + s/(vowels*tails)
	vowel = 0x1161 + s%(vowels*tails)/tails
	if t := s % tails; t != 0 {
		tail = 0x11A7 + t
	}
	return
}

// inWord says whether s can be (part of) one word: without white space, and without punctuation unless it is just that.
func (t *charTable) inWord(s string) bool {
	for i, r := range s {
		if t.space.has(r) || t.punct.has(r) && (i > 0 || len(s) > utf8.RuneLen(r)) {
			return false
		}
	}
	return true
}

// appendNFD appends the full canonical decomposition of r, not yet reordered.
func (t *charTable) appendNFD(dst []rune, r rune) []rune {
	if r >= hangulFirst && r <= hangulLast {
		l, v, tail := hangulParts(r)
		dst = append(dst, l, v)
		if tail != 0 {
			dst = append(dst, tail)
		}
		return dst
	}
	if d, ok := t.nfd[r]; ok {
		return append(dst, d...)
	}
	return append(dst, r)
}

// appendLower appends the lower case of r: one character, or several.
func (t *charTable) appendLower(dst []rune, r rune) []rune {
	if l, ok := t.lower[r]; ok {
		return append(dst, l...)
	}
	return append(dst, r)
}

func parseCharTable(text string) (*charTable, error) {
	t := &charTable{class: map[rune]uint8{}, lower: map[rune][]rune{}, nfd: map[rune][]rune{}}
	sets := map[string]*runeSet{"removed": &t.removed, "space": &t.space, "ideograph": &t.ideograph, "punct": &t.punct,
		"nonspacing": &t.nonspacing, "word": &t.word}
	section := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		if !strings.HasPrefix(line, " ") {
			section = strings.TrimSpace(line)
			continue
		}
		for item := range strings.FieldsSeq(line) {
			var err error
			if set := sets[section]; set != nil {
				var r runeRange
				r, err = parseRange(item)
				*set = append(*set, r)
			} else {
				err = t.parseItem(section, item)
			}
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", section, item, err)
			}
		}
	}
	for name, set := range sets {
		if len(*set) == 0 || !slices.IsSortedFunc(*set, func(a, b runeRange) int { return int(a.hi) - int(b.lo) }) {
			return nil, fmt.Errorf("%s is empty or out of order", name)
		}
	}
	return t, nil
}

func (t *charTable) parseItem(section, item string) error {
	key, value, several := strings.Cut(item, "=")
	switch section {
	case "class":
		class, err := strconv.ParseUint(key, 10, 8)
		if err != nil {
			return err
		}
		for part := range strings.SplitSeq(value, ",") {
			r, err := parseRange(part)
			if err != nil {
				return err
			}
			for c := r.lo; c <= r.hi; c++ {
				t.class[c] = uint8(class)
			}
		}
		return nil
	case "nfd", "lower":
		if !several {
			return t.parseLowerRun(item)
		}
		r, err := parseRange(key)
		if err != nil {
			return err
		}
		var to []rune
		for part := range strings.SplitSeq(value, "+") {
			c, err := parseRange(part)
			if err != nil {
				return err
			}
			to = append(to, c.lo)
		}
		if section == "nfd" {
			t.nfd[r.lo] = to
		} else {
			t.lower[r.lo] = to
		}
		return nil
	}
	return fmt.Errorf("unknown section")
}

// parseLowerRun reads "first-last/step:distance".
func (t *charTable) parseLowerRun(item string) error {
	run, distance, ok1 := strings.Cut(item, ":")
	span, stride, ok2 := strings.Cut(run, "/")
	if !ok1 || !ok2 {
		return fmt.Errorf("want first-last/step:distance")
	}
	r, err := parseRange(span)
	if err != nil {
		return err
	}
	step, err := strconv.Atoi(stride)
	if err != nil {
		return err
	}
	d, err := strconv.Atoi(distance)
	if err != nil {
		return err
	}
	for c := r.lo; c <= r.hi; c += rune(step) {
		t.lower[c] = []rune{c + rune(d)}
	}
	return nil
}

func parseRange(s string) (runeRange, error) {
	first, last, ok := strings.Cut(s, "-")
	lo, err := strconv.ParseUint(first, 16, 21)
	if err != nil {
		return runeRange{}, err
	}
	hi := lo
	if ok {
		if hi, err = strconv.ParseUint(last, 16, 21); err != nil {
			return runeRange{}, err
		}
	}
	return runeRange{rune(lo), rune(hi)}, nil
}
