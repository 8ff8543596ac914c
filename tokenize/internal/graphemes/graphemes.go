// Package graphemes finds extended grapheme clusters, what a reader sees as one character (Unicode Standard Annex 29).
//
// Start with [ClassOf] and [State]: a State is told the class of one code point after the other and says where a cluster begins.
// [Breaks] answers for two code points without what stands before them, where that suffices.
//
// Clusters are those of the reference's normaliser, with its version of Unicode: classes.txt records what was measured.
package graphemes

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Class is what the rules of the annex know about a code point.
type Class uint8

// The property Grapheme_Cluster_Break, with Extended_Pictographic and the consonants of Indic_Conjunct_Break beside it.
const (
	Other Class = iota
	CR
	LF
	Control
	Extend
	ZWJ
	SpacingMark
	Prepend
	L
	V
	T
	LV
	LVT
	Regional
	Pictographic
	Consonant

	kinds       = 1<<4 - 1
	linker      = 1 << 4 // Indic_Conjunct_Break=Linker
	conjunctExt = 1 << 5 // Indic_Conjunct_Break=Extend
)

//go:embed classes.txt
var classText string

type table struct {
	pages [0x110000 / 256]uint16
	data  []Class
}

var load = sync.OnceValue(func() *table {
	t, err := parse(classText)
	if err != nil {
		panic("graphemes: classes.txt: " + err.Error()) // the file is part of the package: cannot happen in a tested build
	}
	return t
})

// ClassOf returns the class of a code point.
func ClassOf(r rune) Class {
	t := load()
	return t.data[int(t.pages[r>>8])<<8|int(r&0xff)]
}

// SamePage says which pages of 256 code points have the same classes: those with the same number, which is small.
func SamePage(page int) int { return int(load().pages[page]) }

func parse(text string) (*table, error) {
	all := make([]Class, 0x110000)
	for s := 0; s < 11172; s++ { // Hangul syllables, by arithmetic (The Unicode Standard, section 3.12)
		all[0xAC00+s] = LVT
		if s%28 == 0 {
			all[0xAC00+s] = LV
		}
	}
	names := map[string]Class{"cr": CR, "lf": LF, "control": Control, "extend": Extend, "zwj": ZWJ, "spacing": SpacingMark, "prepend": Prepend,
		"l": L, "v": V, "t": T, "regional": Regional, "pictographic": Pictographic, "consonant": Consonant, "linker": linker,
		"conjunct": conjunctExt}
	var class Class
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case !strings.HasPrefix(line, " "):
			var ok bool
			if class, ok = names[strings.TrimSpace(line)]; !ok {
				return nil, fmt.Errorf("unknown class %q", line)
			}
		default:
			for item := range strings.FieldsSeq(line) {
				first, last, ok := strings.Cut(item, "-")
				if !ok {
					last = first
				}
				lo, err := strconv.ParseUint(first, 16, 21)
				if err != nil {
					return nil, err
				}
				hi, err := strconv.ParseUint(last, 16, 21)
				if err != nil || hi >= 0x110000 || lo > hi {
					return nil, fmt.Errorf("range %q", item)
				}
				for c := lo; c <= hi; c++ {
					all[c] |= class
				}
			}
		}
	}
	t := &table{}
	seen := map[[256]Class]uint16{}
	for p := range t.pages {
		page := [256]Class(all[p*256 : p*256+256])
		at, ok := seen[page]
		if !ok {
			at = uint16(len(t.data) / 256)
			seen[page] = at
			t.data = append(t.data, page[:]...)
		}
		t.pages[p] = at
	}
	return t, nil
}

// What must be known of the text before a pair of code points.
type verdict uint8

const (
	joins verdict = iota
	breaks
	conjunct // joins a consonant that linkers follow
	flag     // joins every second regional indicator
	emoji    // joins a pictograph and its extensions
)

// pair is the rules in order; each names those of the annex.
func pair(before, after Class) verdict {
	b, a := before&kinds, after&kinds
	switch {
	case b == CR && a == LF: // GB3
		return joins
	case b == Control || b == CR || b == LF || a == Control || a == CR || a == LF: // GB4, GB5
		return breaks
	case b == L && (a == L || a == V || a == LV || a == LVT): // GB6
		return joins
	case (b == LV || b == V) && (a == V || a == T): // GB7
		return joins
	case (b == LVT || b == T) && a == T: // GB8
		return joins
	case a == Extend || a == ZWJ || a == SpacingMark || b == Prepend: // GB9, GB9a, GB9b
		return joins
	case a == Consonant: // GB9c
		return conjunct
	case b == ZWJ && a == Pictographic: // GB11
		return emoji
	case b == Regional && a == Regional: // GB12, GB13
		return flag
	}
	return breaks // GB999
}

// Breaks says whether a cluster is sure to begin between two code points, whatever stands before them.
func Breaks(before, after Class) bool {
	switch pair(before, after) {
	case breaks:
		return true
	case conjunct:
		return before&(linker|conjunctExt) == 0
	}
	return false
}

// State is where a walk over a text is. The zero value stands before a text.
type State struct {
	started bool
	before  Class
	odd     bool  // an odd number of regional indicators stands before
	picture uint8 // 1: a pictograph and extensions stand before; 2: and a joiner behind them
	indic   uint8 // 1: a consonant and extensions stand before; 2: and a linker among them
}

// Next takes the next code point. It says whether a cluster begins with it.
func (s *State) Next(c Class) bool {
	begins := true
	if s.started {
		switch pair(s.before, c) {
		case joins:
			begins = false
		case conjunct:
			begins = s.indic != 2
		case flag:
			begins = !s.odd
		case emoji:
			begins = s.picture != 2
		}
	}
	s.started, s.before = true, c
	s.odd = c&kinds == Regional && !s.odd
	switch {
	case c&kinds == Pictographic:
		s.picture = 1
	case c&kinds == ZWJ && s.picture == 1:
		s.picture = 2
	case c&kinds != Extend || s.picture != 1:
		s.picture = 0
	}
	switch {
	case c&kinds == Consonant:
		s.indic = 1
	case c&linker != 0 && s.indic > 0:
		s.indic = 2
	case c&conjunctExt == 0:
		s.indic = 0
	}
	return begins
}
