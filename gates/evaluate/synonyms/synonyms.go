package synonyms

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/unicode/norm"
)

//go:embed thesaurus.yaml
var builtin []byte

// The ways of rewording.
const (
	// Synonym exchanges words.
	Synonym = "synonym"
	// Contraction writes "what's" as "what is", and "do not" as "don't".
	Contraction = "contraction"
	// Framing puts the turn into a greeting, a thank-you or an announcement, which must not make a question look like small talk.
	Framing = "framing"
	// Typing is the turn as it is typed in a hurry: no capitals, no punctuation at the end.
	Typing = "typing"
)

// Variant is a reworded turn.
type Variant struct {
	// Kind is Synonym, Contraction, Framing or Typing.
	Kind string
	Text string
	// Changes are the replaced words, in the order of the text; empty for Framing and Typing.
	Changes []Change
}

// Change is one replacement as it stands in the texts.
type Change struct{ From, To string }

// Thesaurus is a parsed word list. It is immutable and safe for concurrent use.
type Thesaurus struct{ languages map[string]*language }

type language struct {
	code                       string
	groups                     int
	questionWords              map[string]bool
	framings, questionFramings []string
	synonyms, contractions     rows
}

// rows maps a phrase, as words in lower case with single spaces, to what may stand for it. Phrases to keep map to nothing.
type rows struct {
	targets map[string][]string
	// longest is the number of words of the longest phrase.
	longest int
}

// EntryError is one fault of a word list.
type EntryError struct{ Language, Group, Row, Problem string }

func (e *EntryError) Error() string {
	s := "language " + e.Language
	if e.Group != "" {
		s += ", group " + e.Group
	}
	if e.Row != "" {
		s += fmt.Sprintf(", %q", e.Row)
	}
	return s + ": " + e.Problem
}

// Default returns the built-in word list.
func Default() *Thesaurus {
	t, err := Parse(builtin)
	if err != nil {
		panic("synonyms: the built-in list: " + err.Error()) // the package's tests parse it
	}
	return t
}

type fileYAML struct {
	Version   int                     `yaml:"version"`
	Languages map[string]languageYAML `yaml:"languages"`
}

type languageYAML struct {
	QuestionWords    []string            `yaml:"question_words"`
	Framings         []string            `yaml:"framings"`
	QuestionFramings []string            `yaml:"question_framings"`
	Keep             []string            `yaml:"keep"`
	Contractions     []string            `yaml:"contractions"`
	Synonyms         map[string][]string `yaml:"synonyms"`
}

// Parse reads a word list in YAML; the built-in one, thesaurus.yaml, explains the format at its top. All faults are reported at
// once: [*EntryError] values joined with errors.Join.
func Parse(data []byte) (*Thesaurus, error) {
	var file fileYAML
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the word list is empty: it needs version and languages")
		}
		return nil, err
	}
	if file.Version != 1 {
		return nil, fmt.Errorf("version is %d: this program reads version 1", file.Version)
	}
	t := &Thesaurus{languages: map[string]*language{}}
	var faults []error
	for _, code := range slices.Sorted(maps.Keys(file.Languages)) {
		l, errs := newLanguage(code, file.Languages[code])
		faults = append(faults, errs...)
		t.languages[code] = l
	}
	if len(t.languages) == 0 {
		faults = append(faults, errors.New("languages is empty: it needs at least one"))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return t, nil
}

// textMark is what a framing has in place of the turn.
const textMark = "{text}"

func newLanguage(code string, y languageYAML) (*language, []error) {
	l := &language{code: code, groups: len(y.Synonyms), framings: y.Framings, questionFramings: y.QuestionFramings, questionWords: map[string]bool{}}
	var faults []error
	fault := func(group, row, problem string) {
		faults = append(faults, &EntryError{Language: code, Group: group, Row: row, Problem: problem})
	}
	if code == "" || code != base(code) {
		fault("", code, "want a lower-case code without a region, such as nl")
	}
	for _, w := range y.QuestionWords {
		l.questionWords[phrase(w)] = true
	}
	for _, f := range slices.Concat(y.Framings, y.QuestionFramings) {
		if strings.Count(f, textMark) != 1 || strings.TrimSpace(f) == textMark {
			fault("", f, "a framing has "+textMark+" once, and something beside it")
		}
	}
	add := func(r *rows, group, row string) {
		sources, targets, problem := parseRow(row)
		if problem != "" {
			fault(group, row, problem)
			return
		}
		for i, s := range sources {
			if _, taken := r.targets[s.key]; taken {
				fault(group, row, fmt.Sprintf("%q stands on the left of another row, or is to be kept", s.text))
				continue
			}
			// The next one of the row comes first, so that variants of "a = b = c" differ from each other for every source.
			var to []string
			for _, o := range append(slices.Clone(sources[i+1:]), sources[:i]...) {
				to = append(to, o.text)
			}
			for _, o := range targets {
				to = append(to, o.text)
			}
			r.put(s.key, to)
		}
	}
	l.synonyms.targets, l.contractions.targets = map[string][]string{}, map[string][]string{}
	for _, k := range y.Keep {
		if phrase(k) == "" {
			fault("keep", k, "has no word")
			continue
		}
		l.synonyms.put(phrase(k), nil)
	}
	for _, group := range slices.Sorted(maps.Keys(y.Synonyms)) {
		for _, row := range y.Synonyms[group] {
			add(&l.synonyms, group, row)
		}
	}
	for _, row := range y.Contractions {
		add(&l.contractions, "contractions", row)
	}
	return l, faults
}

func (r *rows) put(key string, targets []string) {
	r.targets[key] = targets
	r.longest = max(r.longest, strings.Count(key, " ")+1)
}

// entry is a phrase as it is looked up and as it is written.
type entry struct{ key, text string }

// parseRow splits "a = b > c" into what can be replaced and what can only replace.
func parseRow(row string) (sources, targets []entry, problem string) {
	left, right, oneWay := strings.Cut(row, ">")
	split := func(side string) (out []entry) {
		for part := range strings.SplitSeq(side, "=") {
			part = strings.TrimSpace(part)
			key := phrase(part)
			if key == "" {
				problem = "has a place without a word"
			}
			out = append(out, entry{key, part})
		}
		return out
	}
	sources = split(left)
	if oneWay {
		if strings.Contains(right, ">") {
			return nil, nil, "has > twice"
		}
		targets = split(right)
	}
	if problem == "" && len(sources)+len(targets) < 2 {
		problem = "says no second word: want a = b, or a > b"
	}
	seen := map[string]bool{}
	for _, e := range append(slices.Clone(sources), targets...) {
		if problem == "" && seen[e.key] {
			problem = fmt.Sprintf("has %q twice", e.text)
		}
		seen[e.key] = true
	}
	return sources, targets, problem
}

// Languages returns the codes of the languages, in their order.
func (t *Thesaurus) Languages() []string { return slices.Sorted(maps.Keys(t.languages)) }

// Groups returns the number of synonym groups of a language, 0 for one that is not there.
func (t *Thesaurus) Groups(lang string) int {
	if l := t.languages[base(lang)]; l != nil {
		return l.groups
	}
	return 0
}

// base returns the language of a tag: "nl" of "nl-BE".
func base(lang string) string {
	code, _, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(lang), "_", "-"), "-")
	return code
}

// Reword returns the variants of a turn in a language ("en", "nl-BE"): synonyms first, as many as the words replaced have others, then
// contractions, framings and typing. It returns nil for a language that is not in the list, and for a text without a letter. Invalid
// UTF-8 stays as it is.
func (t *Thesaurus) Reword(text, lang string) []Variant {
	l := t.languages[base(lang)]
	if l == nil || !strings.ContainsFunc(text, unicode.IsLetter) {
		return nil
	}
	var out []Variant
	seen := map[string]bool{text: true}
	add := func(v Variant) {
		if !seen[v.Text] {
			seen[v.Text] = true
			out = append(out, v)
		}
	}
	words := split(text)
	for _, kind := range []struct {
		name string
		rows *rows
	}{{Synonym, &l.synonyms}, {Contraction, &l.contractions}} {
		for n, more := 0, true; more; n++ {
			var v Variant
			v, more = l.exchange(text, words, kind.rows, n)
			v.Kind = kind.name
			add(v)
		}
	}
	framings := l.framings
	if l.isQuestion(text, words) {
		framings = slices.Concat(framings, l.questionFramings)
	}
	for _, f := range framings {
		add(Variant{Kind: Framing, Text: strings.Replace(f, textMark, strings.TrimSpace(text), 1)})
	}
	if typed := typing(text); typed != "" {
		add(Variant{Kind: Typing, Text: typed})
	}
	return out
}

func (l *language) isQuestion(text string, words []word) bool {
	return strings.ContainsAny(text, "?？") || len(words) > 0 && l.questionWords[words[0].key]
}

// typing returns the text in lower case without what ends sentences.
func typing(text string) string {
	return strings.TrimRightFunc(strings.ToLower(text), func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(".!?…", r) })
}

// exchange replaces every phrase it knows by its n-th other, or by its last where it has fewer. more says whether a larger n would
// give another text.
func (l *language) exchange(text string, words []word, r *rows, n int) (v Variant, more bool) {
	var b strings.Builder
	done := 0 // bytes of text written
	shout := !strings.ContainsFunc(text, unicode.IsLower)
	for i := 0; i < len(words); {
		key, length := r.match(text, words[i:])
		to := r.targets[key]
		if len(to) == 0 {
			i += max(length, 1)
			continue
		}
		more = more || n+1 < len(to)
		start, end := words[i].start, words[i+length-1].end
		from := text[start:end]
		replacement := likeCase(to[min(n, len(to)-1)], from, shout)
		gap := text[done:start]
		// "a problem" becomes "an issue".
		if i > 0 && words[i-1].start >= done && l.code == "en" && strings.TrimSpace(text[words[i-1].end:start]) == "" {
			if article := articleFor(text[words[i-1].start:words[i-1].end], replacement); article != "" {
				gap = text[done:words[i-1].start] + article + text[words[i-1].end:start]
			}
		}
		b.WriteString(gap)
		b.WriteString(replacement)
		v.Changes = append(v.Changes, Change{From: from, To: replacement})
		done = end
		i += length
	}
	b.WriteString(text[done:])
	v.Text = b.String()
	return v, more
}

// match returns the longest known phrase at the start of words, as its key and its number of words; 0 words where there is none.
// The words of a phrase have nothing but blanks between them.
func (r *rows) match(text string, words []word) (key string, length int) {
	phrase := ""
	for i := range min(len(words), r.longest) {
		if i > 0 {
			if strings.Trim(text[words[i-1].end:words[i].start], " \t") != "" {
				break
			}
			phrase += " "
		}
		phrase += words[i].key
		if _, known := r.targets[phrase]; known {
			key, length = phrase, i+1
		}
	}
	return key, length
}

// likeCase writes the replacement as the replaced phrase was written: capital at the start, or all capitals in a text of capitals.
// Capitals of its own (ATM) stay.
func likeCase(replacement, from string, shout bool) string {
	if shout {
		return strings.ToUpper(replacement)
	}
	first, size := utf8.DecodeRuneInString(from)
	second, _ := utf8.DecodeRuneInString(from[size:])
	if !unicode.IsUpper(first) || unicode.IsUpper(second) { // an acronym's capitals do not carry over
		return replacement
	}
	r, size := utf8.DecodeRuneInString(replacement)
	return string(unicode.ToUpper(r)) + replacement[size:]
}

// articleFor returns the English indefinite article that next wants in place of article, in its case; "" where article is none.
func articleFor(article, next string) string {
	if lower := strings.ToLower(article); lower != "a" && lower != "an" {
		return ""
	}
	lower := strings.ToLower(next)
	an := strings.ContainsRune("aeiou", rune(lower[0]))
	// Spelling and sound part ways for these beginnings.
	for _, consonant := range []string{"uni", "use", "usu", "eu", "one"} {
		if strings.HasPrefix(lower, consonant) && !strings.HasPrefix(lower, "unin") && !strings.HasPrefix(lower, "unim") {
			an = false
		}
	}
	for _, silent := range []string{"hour", "honest", "heir"} {
		an = an || strings.HasPrefix(lower, silent)
	}
	out := article[:1]
	if an {
		if article == "AN" || article == "A" && strings.ToUpper(next) == next {
			return out + "N"
		}
		return out + "n"
	}
	return out
}

// word is a word of a text: its place in bytes and how it is looked up.
type word struct {
	start, end int
	key        string
}

// split returns the words of a text: letters, digits and marks, with apostrophes and hyphens inside ("what's", "wi-fi").
func split(text string) []word {
	var words []word
	start, end := -1, 0 // of the word being read
	for i, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && (start < 0 || !unicode.IsMark(r)) {
			continue
		}
		if start >= 0 && end != i && !isJoin(text[end:i]) {
			words = append(words, word{start, end, fold(text[start:end])})
			start = i
		}
		if start < 0 {
			start = i
		}
		end = i + utf8.RuneLen(r)
	}
	if start >= 0 {
		words = append(words, word{start, end, fold(text[start:end])})
	}
	return words
}

func isJoin(s string) bool { return s == "'" || s == "’" || s == "-" || s == "‑" }

// fold brings a word to the form in which it is looked up.
func fold(s string) string {
	return strings.NewReplacer("’", "'", "‑", "-").Replace(norm.NFC.String(strings.ToLower(s)))
}

// phrase returns the words of s as they are looked up, "" where there is none.
func phrase(s string) string {
	var keys []string
	for _, w := range split(s) {
		keys = append(keys, w.key)
	}
	return strings.Join(keys, " ")
}
