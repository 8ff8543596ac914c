package textnorm

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxMarks bounds a run of combining marks; the rest of the run is dropped. Real orthographies stay under ten. Unbounded runs
// are a way to hide text, and from 30 on the normaliser inserts joiners of its own (UAX #15, stream-safe text), after which
// normalising twice would differ from normalising once.
const maxMarks = 12

// keycap is U+20E3, the box around the character before it. A keycap emoji counts as the character on it, as ① counts as 1:
// "option 1️⃣" holds a digit that matters.
const keycap = '\u20e3'

// Clean returns text in NFKC without what cannot be seen: format characters (soft hyphen, zero-width characters, joiners, tags,
// direction marks), variation selectors, fillers, controls. Runs of whitespace become one space; none is left at the ends.
// Casing stays.
func Clean(text string) string {
	if isASCII(text) {
		return collapse(text, false)
	}
	// Removal comes first, because an invisible character between a letter and its accent keeps them from composing.
	return collapse(nfkc(strip(text)), false)
}

// Normalize returns [Clean] with full case folding (Unicode, not of any one language): "Straße" and "STRASSE" are equal.
func Normalize(text string) string {
	if isASCII(text) {
		return collapse(text, true)
	}
	s := Clean(text)
	// Folding can undo normal form and the other way round; after the second round nothing moves any more (Unicode 3.13, D146,
	// folds twice for the same reason).
	fold := cases.Fold()
	for range 2 {
		f := fold.String(s)
		if f == s {
			break
		}
		s = nfkc(f)
	}
	return collapse(s, false)
}

// Bare returns [Normalize] without emoji, punctuation and ASCII smileys (":)", ":-D") at both ends, so that a whole message can be
// compared with a phrase. Symbols that belong to a word stay: "c++", "c#", "50%", "€". A message of nothing but emoji and
// punctuation becomes empty. Question marks go too: ask [HasQuestionMark] first.
func Bare(text string) string { return trimOrnaments(Normalize(text)) }

// Plain returns [Normalize] with every run of emoji and punctuation replaced by one space and none at the ends. An apostrophe
// between letters stays and becomes U+0027 ("what’s" gives "what's"); a point or comma between digits stays ("3.5").
func Plain(text string) string {
	s := trimOrnaments(Normalize(text))
	if plainAlready(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	var prev rune // last rune written, 0 at the start
	gap := false
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		next, _ := utf8.DecodeRuneInString(s[i+size:])
		i += size
		switch {
		case r == ' ':
			gap = true
			continue
		case isApostrophe(r) && !gap && unicode.IsLetter(baseOf(prev)) && unicode.IsLetter(next):
			r = '\''
		case (r == '.' || r == ',') && !gap && unicode.IsDigit(prev) && unicode.IsDigit(next):
		case isOrnament(r):
			gap = true
			continue
		case gap && unicode.Is(unicode.Mn, r): // it sat on what was removed
			continue
		}
		if gap && prev != 0 {
			b.WriteByte(' ')
		}
		gap = false
		b.WriteRune(r)
		prev = r
	}
	return b.String()
}

// baseOf lets a combining mark count as part of the letter that it sits on.
func baseOf(r rune) rune {
	if unicode.Is(unicode.M, r) {
		return 'a'
	}
	return r
}

// Words returns the words of [Plain]: those of its space-separated parts that hold a letter or a digit. In scripts without
// spaces between words (see [HasUnspacedScript]; Hangul has spaces and is left whole) each character with its marks is a word.
func Words(text string) []string { return AppendWords(nil, text) }

// AppendWords appends the words of text to dst; see [Words].
func AppendWords(dst []string, text string) []string {
	s := Plain(text)
	for len(s) > 0 {
		part := s
		if i := strings.IndexByte(s, ' '); i >= 0 {
			part, s = s[:i], s[i+1:]
		} else {
			s = ""
		}
		dst = appendWord(dst, part)
	}
	return dst
}

func appendWord(dst []string, part string) []string {
	start, found := 0, false // found: part[start:i] holds a letter or a digit
	single := false          // part[start:i] is one character of an unspaced script, perhaps with marks
	flush := func(end int) {
		if found {
			dst = append(dst, strings.Trim(part[start:end], "'"))
		}
		start, found, single = end, false, false
	}
	for i, r := range part {
		switch {
		case r < utf8.RuneSelf:
			if single {
				flush(i)
			}
			found = found || isASCIIAlnum(byte(r))
		case unicode.In(r, unspaced...) && !unicode.Is(unicode.M, r):
			flush(i)
			found, single = unicode.In(r, unicode.L, unicode.N), true
		case unicode.Is(unicode.M, r):
		default:
			if single && r != 'ー' { // the length mark of kana is in no one script
				flush(i)
			}
			found = found || unicode.In(r, unicode.L, unicode.N)
		}
	}
	flush(len(part))
	return dst
}

// Len counts the characters of [Normalize](text) as a reader would, nearly: code points less combining marks.
func Len(text string) int {
	n := 0
	for _, r := range Normalize(text) {
		if !unicode.Is(unicode.M, r) {
			n++
		}
	}
	return n
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isASCIIAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z'
}

// invisible holds the tables of what Clean removes besides controls. Together with Cf the two properties make up Unicode's
// Default_Ignorable_Code_Point, and a little more.
var invisible = []*unicode.RangeTable{unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point}

// strip removes the invisible, and cuts long runs of marks. Whitespace stays, for collapse.
func strip(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	marks := 0
	for _, r := range s { // invalid bytes arrive as U+FFFD
		switch {
		case unicode.IsControl(r) && !unicode.IsSpace(r):
			continue
		case r < utf8.RuneSelf:
			marks = 0
		case r == '\u00b4': // typed for an apostrophe; NFKC would make it a space and a mark
			r, marks = '\'', 0
		case r == keycap || unicode.In(r, invisible...):
			continue
		case unicode.Is(unicode.M, r):
			if marks++; marks > maxMarks {
				continue
			}
		default:
			marks = 0
		}
		b.WriteRune(r)
	}
	return b.String()
}

func nfkc(s string) string { return norm.NFKC.String(s) }

// collapse makes runs of whitespace one space, trims, removes controls and marks that have no letter to sit on (NFKC makes ¨ a
// space and a mark), and lowers ASCII letters where asked.
func collapse(s string, lower bool) string {
	if collapsed(s, lower) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	gap := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			gap = true
			continue
		case unicode.IsControl(r), (gap || b.Len() == 0) && unicode.Is(unicode.Mn, r):
			continue
		case lower && r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		}
		if gap && b.Len() > 0 {
			b.WriteByte(' ')
		}
		gap = false
		b.WriteRune(r)
	}
	return b.String()
}

// collapsed reports whether collapse would return s as it is; most messages are so, and then nothing is copied. It may say no
// for text that would not change.
func collapsed(s string, lower bool) bool {
	space := true // a leading space counts as a second one
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == ' ':
			if space {
				return false
			}
			space = true
			continue
		case c < ' ' || c >= 0x7f, lower && c >= 'A' && c <= 'Z':
			return false
		}
		space = false
	}
	return !space || s == ""
}

// plainAlready reports whether Plain has nothing to do: lower-case ASCII words and single spaces.
func plainAlready(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isASCIIAlnum(c) && c != ' ' {
			return false
		}
	}
	return true
}

// trimOrnaments removes ornaments and spaces from both ends of normalised text, smileys of letters included.
func trimOrnaments(s string) string {
	for {
		t := cutSmileyRight(trimRight(s))
		if t == s {
			break
		}
		s = t
	}
	// From the left one mark at a time: it may be a smiley's eyes, and without its colon the letter of ":d" looks like a word.
	for {
		t := cutSmileyLeft(s)
		if t == s {
			r, size := utf8.DecodeRuneInString(s)
			if size == 0 || r != ' ' && !isOrnament(r) && !unicode.Is(unicode.Mn, r) {
				return s
			}
			t = s[size:]
		}
		s = t
	}
}

// trimRight removes ornaments and spaces, and the combining marks that sit on them.
func trimRight(s string) string {
	for s != "" {
		base := strings.TrimRightFunc(s, func(r rune) bool { return unicode.Is(unicode.Mn, r) })
		r, size := utf8.DecodeLastRuneInString(base)
		if size > 0 && r != ' ' && !isOrnament(r) {
			break
		}
		s = base[:len(base)-size]
	}
	return s
}

// longestSmiley is an eye, a nose and a mouth, each one byte. The two functions below look no further than that into the text,
// so that cutting smileys one by one stays linear.
const longestSmiley = 3

func cutSmileyRight(s string) string {
	tail := s[max(0, len(s)-longestSmiley-1):]
	i := strings.LastIndexByte(tail, ' ')
	if i < 0 && len(tail) < len(s) || !isSmiley(tail[i+1:]) {
		return s
	}
	return s[:len(s)-len(tail)+max(i, 0)]
}

func cutSmileyLeft(s string) string {
	i := strings.IndexByte(s[:min(len(s), longestSmiley+1)], ' ')
	if i < 0 {
		i = min(len(s), longestSmiley+1)
	}
	if !isSmiley(s[:i]) {
		return s
	}
	return s[i:]
}

// isSmiley knows the smileys that end in a letter: eyes, perhaps a nose, a mouth. Those of punctuation are ornaments anyway.
func isSmiley(s string) bool {
	if len(s) < 2 || s[0] != ':' && s[0] != ';' {
		return false
	}
	mouth := s[1:]
	if mouth[0] == '-' || mouth[0] == '\'' {
		mouth = mouth[1:]
	}
	return len(mouth) == 1 && strings.Contains("dpox", mouth)
}
