package textnorm

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// wordSymbols are punctuation and symbols that are part of the word or number beside them. Currency signs (Sc) are too.
const wordSymbols = "#%&+@§=<>|‰"

// pictographs are the blocks in which emoji live, unassigned code points included: a later Unicode fills them with more emoji,
// and this program's tables should not decide whether a message is one. NFKC has already turned letters in circles and squares
// into letters. Other symbols, Braille above all, can be text and stay.
var pictographs = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00a9, Hi: 0x00a9, Stride: 1}, // ©
		{Lo: 0x00ae, Hi: 0x00ae, Stride: 1}, // ®
		{Lo: 0x2190, Hi: 0x21ff, Stride: 1}, // arrows
		{Lo: 0x2300, Hi: 0x23ff, Stride: 1}, // technical: watch, hourglass, keyboard
		{Lo: 0x2500, Hi: 0x27bf, Stride: 1}, // boxes, shapes, miscellaneous symbols, dingbats
		{Lo: 0x2900, Hi: 0x297f, Stride: 1}, // more arrows
		{Lo: 0x2b00, Hi: 0x2bff, Stride: 1}, // stars, squares, circles
	},
	R32: []unicode.Range32{
		{Lo: 0x1f000, Hi: 0x1faff, Stride: 1}, // tiles, cards, flags, pictographs, faces, skin tones
	},
	LatinOffset: 2,
}

// isOrnament reports whether r decorates a message rather than saying something: punctuation or an emoji.
func isOrnament(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f && !isASCIIAlnum(byte(r)) && r != '$' && !strings.ContainsRune(wordSymbols, r)
	}
	return unicode.In(r, unicode.P, pictographs) && !strings.ContainsRune(wordSymbols, r)
}

// isApostrophe reports whether r is typed as an apostrophe inside words.
func isApostrophe(r rune) bool {
	switch r {
	case '\'', '’', '‘', 'ʼ', '′', '`':
		return true
	}
	return false
}

// unspaced are the scripts that put no spaces between words.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.Yi, unicode.Thai, unicode.Lao, unicode.Khmer,
	unicode.Myanmar, unicode.Tibetan, unicode.Javanese, unicode.Balinese, unicode.Tai_Tham, unicode.Tai_Le, unicode.New_Tai_Lue,
	unicode.Nushu, unicode.Tangut,
}

// HasUnspacedScript reports whether text holds a character of a script in which the number of characters or of spaces says
// little about how much was said: those without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese and
// others), and Hangul, whose characters are syllables.
func HasUnspacedScript(text string) bool {
	if isASCII(text) {
		return false
	}
	for _, r := range norm.NFKC.String(text) { // NFKC, since ㍿ stands for four characters of Han
		if r >= 0x0e00 && (unicode.In(r, unspaced...) || unicode.Is(unicode.Hangul, r)) {
			return true
		}
	}
	return false
}

// HasDigit reports whether text holds a number in any script: digits, fractions, Roman numerals, circled numbers, keycaps, ㏠.
func HasDigit(text string) bool {
	if isASCII(text) {
		return strings.ContainsAny(text, "0123456789")
	}
	number := func(r rune) bool { return unicode.Is(unicode.N, r) }
	// Both forms, because NFKC makes a letter of Ⅴ and digits of ㏠.
	return strings.ContainsFunc(text, number) || strings.ContainsFunc(norm.NFKC.String(text), number)
}

// questionMarks of the world, as typed. The Greek one is known by its own code point only, since most people type the semicolon
// that NFKC makes of it.
const questionMarks = "?¿؟՞፧‽⁇⁈⁉⸮⸘？︖﹖꘏꛷᥅\u037e"

// HasQuestionMark reports whether text, as typed, holds a question mark of any script.
func HasQuestionMark(text string) bool {
	return strings.ContainsAny(text, questionMarks)
}

// Length of an acronym in letters. One capital is an initial or a lone "I"; longer than six is a shouted word.
const (
	minAcronym = 2
	maxAcronym = 6
)

// HasAcronym reports whether a word of text, as typed, is an acronym; see [IsAcronym].
func HasAcronym(text string) bool {
	for part := range strings.FieldsFuncSeq(Clean(text), func(r rune) bool {
		return r == ' ' || r != '.' && r != '&' && isOrnament(r)
	}) {
		if isAcronym(part) {
			return true
		}
	}
	return false
}

// IsAcronym reports whether word, in its original casing, reads as an acronym: two to six letters, all capitals, perhaps with
// digits, points or an ampersand between and a small plural s behind ("VAT", "SLAs", "B2B", "U.S.A.", "R&D"). Casing is all it
// sees: a shouted "OK" is one too, so ask the rules for known phrases first.
func IsAcronym(word string) bool {
	s := Clean(word)
	return isAcronym(strings.TrimFunc(s, func(r rune) bool { return r != '.' && isOrnament(r) }))
}

func isAcronym(s string) bool {
	s = strings.TrimRight(s, ".")
	if t, ok := strings.CutSuffix(s, "s"); ok {
		s = t
	}
	letters := 0
	for _, r := range s {
		switch {
		case unicode.IsUpper(r):
			if letters++; letters > maxAcronym {
				return false
			}
		case r == '.' || r == '&' || unicode.IsDigit(r) || unicode.Is(unicode.M, r):
		default:
			return false
		}
	}
	return letters >= minAcronym
}
