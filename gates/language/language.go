package language

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"ragate/gates/textnorm"
)

// MaxBytes of a text are looked at: the first hundred words of a pasted page say as much as all of it.
const MaxBytes = 600

// MinLetters is how many letters a query needs. In less, a word is as likely an abbreviation.
const MinLetters = 6

// Multilingual in a model's languages says that it is for many, without naming them.
const Multilingual = "multilingual"

// Points of a word, and how many a language needs. A single short word is as likely a name, a borrowing or an abbreviation in an English query
// ("car rental", French for because; "NAS drive"), and no list of those is complete: so only English is told by one. A long one suffices. When all
// are particles, more are needed: a name has up to three ("Ursula von der Leyen and de Gaulle").
const (
	wordPoints     = 2
	particlePoints = 1
	fewest         = wordPoints + particlePoints
	allParticles   = 4
	longWord       = 6 // letters
)

// Detect returns the language of a query as a BCP 47 tag, or "" when it is not sure. A writing system of several languages is told as that:
// "und-Cyrl".
//
// Each word of the text counts for the languages that have it as a function word, unless English has it too, and for English only when no
// other has it. The language with the most points is the answer if it has a word that is no part of names, and a second one where that is short (or many that
// are part of names), no other has as many, and English at most a third as many. The same is asked of English.
func Detect(text string) string {
	text = head(text)
	if tag, latin := script(text); !latin {
		return tag
	}
	var points [len(known)]int
	var plain, long [len(known)]bool // has a word that is no particle; has a long one
	var buffer [32]string
	for _, w := range textnorm.AppendWords(buffer[:0], text) {
		in := lexicon[w]
		if in == 0 {
			continue
		}
		whole, part := in&(1<<half-1), in>>half
		if whole&(1<<english) != 0 && whole|part != 1<<english {
			continue // a word of English and of others
		}
		for i := range known {
			switch {
			case whole&^part&(1<<i) != 0:
				points[i] += wordPoints
				plain[i], long[i] = true, long[i] || utf8.RuneCountInString(w) >= longWord
			case part&(1<<i) != 0:
				points[i] += particlePoints
			}
		}
	}
	if strings.ContainsAny(text, "¿¡") {
		points[spanish] += wordPoints
		plain[spanish] = true
	}
	best, next := 0, 0
	for i, p := range points {
		switch {
		case p > points[best]:
			best, next = i, points[best]
		case i != best:
			next = max(next, p)
		}
	}
	switch {
	case points[best] == next || !plain[best] && points[best] < allParticles:
		return ""
	case best == english:
		if next > points[english]/3 {
			return ""
		}
	case points[best] < fewest && !long[best], points[english]*3 > points[best]:
		return ""
	}
	return known[best].tag
}

// head is the part of a text that is looked at.
func head(text string) string {
	if len(text) <= MaxBytes {
		return text
	}
	cut := MaxBytes
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// scripts are the writing systems that are told, with the language that alone writes in each, or the script's own tag.
var scripts = [...]struct {
	table *unicode.RangeTable
	tag   string
}{
	{unicode.Latin, ""}, {unicode.Cyrillic, "und-Cyrl"}, {unicode.Han, "zh"}, {unicode.Hiragana, "ja"}, {unicode.Katakana, "ja"}, {unicode.Hangul, "ko"},
	{unicode.Arabic, "und-Arab"}, {unicode.Hebrew, "he"}, {unicode.Greek, "el"}, {unicode.Thai, "th"}, {unicode.Devanagari, "und-Deva"},
	{unicode.Bengali, "und-Beng"}, {unicode.Tamil, "ta"}, {unicode.Telugu, "te"}, {unicode.Georgian, "ka"}, {unicode.Armenian, "hy"},
}

// script finds the writing system of most of a text's letters. latin is true where the words are to be asked; otherwise tag is the
// answer, "" for a text of too few letters or of a script that is not known.
func script(text string) (tag string, latin bool) {
	var counts [len(scripts)]int
	letters := 0
	for _, r := range text {
		if !unicode.IsLetter(r) {
			continue
		}
		letters++
		if r < 0x80 {
			counts[0]++
			continue
		}
		for i := range scripts {
			if unicode.Is(scripts[i].table, r) {
				counts[i]++
				break
			}
		}
	}
	most := 0
	for i, n := range counts {
		if n > counts[most] {
			most = i
		}
	}
	japanese := counts[3] + counts[4]
	switch {
	case most == 0:
		return "", letters >= MinLetters
	case 2*(counts[most]+japanese) <= letters:
		return "", false
	case scripts[most].tag == "zh" && japanese > 0:
		return "ja", false
	}
	return scripts[most].tag, false
}

// Covers says whether a model that is for languages, as its card states them, is for one that Detect told. Nothing stated, or nothing
// told, covers everything: only what is known to be wrong is worth a note. Regions and scripts of a language count as the language.
func Covers(languages []string, tag string) bool {
	if len(languages) == 0 || tag == "" {
		return true
	}
	want := language.Make(tag)
	base, confidence := want.Base()
	for _, l := range languages {
		if strings.EqualFold(l, Multilingual) {
			return true
		}
		has := language.Make(l)
		if confidence == language.No || strings.HasPrefix(tag, "und-") { // a writing system
			a, _ := has.Script()
			b, _ := want.Script()
			if a == b {
				return true
			}
			continue
		}
		if b, _ := has.Base(); b == base {
			return true
		}
	}
	return false
}

// Name is what a tag is called in an English sentence: "Dutch". A tag without a name here is its own.
func Name(tag string) string {
	base, _, _ := strings.Cut(tag, "-")
	for _, l := range known {
		if strings.EqualFold(base, l.tag) {
			return l.name
		}
	}
	if n, ok := names[tag]; ok {
		return n
	}
	return tag
}

// maxNamed is how many languages of a model a sentence names.
const maxNamed = 5

// Names puts a model's languages into a sentence: "English", "English and German", "English, German and 12 others".
func Names(tags []string) string {
	var list []string
	for _, t := range tags[:min(len(tags), maxNamed)] {
		list = append(list, Name(t))
	}
	if more := len(tags) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d others", more))
	}
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// Words is Detect as a detector that the gates can be given.
type Words struct{}

// Language is Detect.
func (Words) Language(query string) string { return Detect(query) }

var names = map[string]string{
	"und-Cyrl": "a language in Cyrillic script", "und-Arab": "a language in Arabic script", "und-Deva": "a language in Devanagari script",
	"und-Beng": "a language in Bengali script", "zh": "Chinese", "ja": "Japanese", "ko": "Korean", "he": "Hebrew", "el": "Greek", "th": "Thai", "ta": "Tamil",
	"te": "Telugu", "ka": "Georgian", "hy": "Armenian",
}
