package pattern

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"ragate/gates/internal/yamltext"
	"ragate/gates/textnorm"
)

//go:embed rules/*.yaml
var embedded embed.FS

// File is a rule file: its name, for errors, and its text.
type File struct {
	Name string
	Data []byte
}

// Default returns the rule files that come with the program: English, Dutch, German, French and Spanish. All five know greetings, thanks,
// confirmations, farewells and follow-ups; the first two have more wording than the others, above all of questions to the assistant.
func Default() []File {
	var files []File
	for _, l := range []string{"en", "nl", "de", "fr", "es"} {
		name := "rules/" + l + ".yaml"
		data, err := embedded.ReadFile(name)
		if err != nil {
			panic("pattern: " + err.Error()) // the list above and the embedded folder are one commit
		}
		files = append(files, File{Name: name, Data: data})
	}
	return files
}

// Error is one fault of a rule file.
type Error struct {
	File   string
	Line   int    // 0 when the fault has no place
	Rule   string // id, empty outside of rules
	Reason string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Rule != "" {
		fmt.Fprintf(&b, ": rule %s", e.Rule)
	}
	return b.String() + ": " + e.Reason
}

// Errors are all faults that New found, in the order of files and lines.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// Short names for what the files are made of.
type (
	text  = yamltext.Text
	texts = yamltext.Texts
)

type fileYAML struct {
	Language       text       `yaml:"language"`
	Fillers        texts      `yaml:"fillers"`
	Conversational texts      `yaml:"conversational"`
	Glossary       texts      `yaml:"glossary"`
	Rules          []ruleYAML `yaml:"rules"`
}

type ruleYAML struct {
	ID               text  `yaml:"id"`
	About            text  `yaml:"about"`
	NeedsHistory     bool  `yaml:"needs_history"`
	NotAfterQuestion bool  `yaml:"not_after_question"`
	Phrases          texts `yaml:"phrases"`
	Patterns         texts `yaml:"patterns"`
	Examples         texts `yaml:"examples"`
	CounterExamples  texts `yaml:"counter_examples"`
}

// New compiles rule files. Where two languages have the same phrase, the file that comes first names the rule. The error is an [Errors].
func New(files []File, o Options) (*Matcher, error) {
	l := load(files, o)
	if len(l.errs) == 0 { // examples mean nothing while rules are missing
		l.check(files, o)
	}
	if len(l.errs) > 0 {
		return nil, l.errs
	}
	return l.m, nil
}

// newLoader returns a loader without rules, with the words of the options.
func newLoader(o Options) *loader {
	l := &loader{
		m: &Matcher{
			length: o.Length, phrases: map[string]int{}, fillers: map[string]bool{}, conversational: map[string]bool{}, glossary: map[string]bool{},
		},
		defined: map[string]string{},
	}
	for _, g := range o.Glossary {
		for _, w := range spellings(g) {
			l.m.glossary[w] = true
		}
	}
	return l
}

// load compiles rule files without looking at their examples.
func load(files []File, o Options) *loader {
	l := newLoader(o)
	l.decoded = make([]fileYAML, len(files))
	switch o.Length {
	case "":
		l.m.length = LengthDefault
	case LengthDefault, LengthStrict, LengthOff:
	default:
		l.fail("options", 0, "", "length_rule %q is none of default, strict, off", o.Length)
	}
	if len(files) == 0 {
		l.fail("options", 0, "", "no rule files were given")
	}
	for i, f := range files {
		if l.decode(f, &l.decoded[i]) {
			l.add(f.Name, &l.decoded[i])
		}
	}
	l.compile()
	return l
}

type loader struct {
	m       *Matcher
	errs    Errors
	defined map[string]string // rule id → file:line
	decoded []fileYAML
}

func (l *loader) fail(file string, line int, rule, format string, args ...any) {
	l.errs = append(l.errs, &Error{File: file, Line: line, Rule: rule, Reason: fmt.Sprintf(format, args...)})
}

// decode reads one file, and reports whether it was YAML of the right form.
func (l *loader) decode(f File, into *fileYAML) bool {
	dec := yaml.NewDecoder(strings.NewReader(string(f.Data)))
	dec.KnownFields(true)
	err := dec.Decode(into)
	var many *yaml.TypeError
	switch {
	case err == nil:
		var extra yaml.Node
		if err := dec.Decode(&extra); !errors.Is(err, io.EOF) {
			l.fail(f.Name, extra.Line, "", "a second document; one file holds one language")
			return false
		}
		return true
	case errors.Is(err, io.EOF):
		l.fail(f.Name, 0, "", "the file is empty")
	case errors.As(err, &many):
		for _, reason := range many.Errors {
			line, reason := splitLine(reason)
			reason, _, _ = strings.Cut(reason, " in type pattern.")
			reason, _, _ = strings.Cut(reason, " into pattern.")
			l.fail(f.Name, line, "", "%s", reason)
		}
		return true // the rest was decoded, and has its own faults to report
	default:
		line, reason := splitLine(strings.TrimPrefix(err.Error(), "yaml: "))
		l.fail(f.Name, line, "", "%s", reason)
	}
	return false
}

// add takes over the rules of one file, without what compile makes of all together.
func (l *loader) add(name string, f *fileYAML) {
	lang := f.Language.Value
	if lang == "" {
		l.fail(name, 1, "", "language is missing, for example: language: nl")
	}
	if len(f.Rules) == 0 {
		l.fail(name, 1, "", "rules is missing or empty")
	}
	words := func(list texts, into map[string]bool, field string, oneWord bool) {
		for _, t := range list {
			forms := spellings(t.Value)
			switch {
			case forms[0] == "":
				l.fail(name, t.Line, "", "%s: %q holds no letters", field, t.Value)
			case oneWord && strings.Contains(forms[0], " "):
				l.fail(name, t.Line, "", "%s: %q is more than one word", field, t.Value)
			default:
				for _, w := range forms {
					if !oneWord || !strings.Contains(w, " ") {
						into[w] = true
					}
				}
			}
		}
	}
	words(f.Fillers, l.m.fillers, "fillers", false)
	words(f.Conversational, l.m.conversational, "conversational", true)
	words(f.Glossary, l.m.glossary, "glossary", true)
	here := map[string]string{} // phrase → rule, to find one that stands twice in a file
	for i := range f.Rules {
		l.addRule(name, lang, &f.Rules[i], here)
	}
}

func (l *loader) addRule(name, lang string, r *ruleYAML, here map[string]string) {
	id, line := r.ID.Value, r.ID.Line
	if id == "" {
		if len(r.Phrases) > 0 {
			line = r.Phrases[0].Line
		}
		l.fail(name, line, "", "a rule without id")
		return
	}
	if other, twice := l.defined[id]; twice {
		l.fail(name, line, id, "the id is taken by the rule at %s", other)
		return
	}
	l.defined[id] = fmt.Sprintf("%s:%d", name, line)
	if lang != "" && !strings.HasPrefix(id, lang+".") {
		l.fail(name, line, id, "the id must begin with the file's language, %q", lang+".")
	}
	if len(r.Phrases)+len(r.Patterns) == 0 {
		l.fail(name, line, id, "neither phrases nor patterns")
	}
	if len(r.Examples) == 0 {
		l.fail(name, line, id, "no examples: write at least one message that must match")
	}
	if len(r.CounterExamples) == 0 {
		l.fail(name, line, id, "no counter_examples: write at least one message that must not match")
	}
	index := len(l.m.rules)
	l.m.rules = append(l.m.rules, rule{id: id, language: lang, about: r.About.Value, needsHistory: r.NeedsHistory, notAfterQuestion: r.NotAfterQuestion})
	for _, p := range r.Phrases {
		forms := spellings(p.Value)
		if forms[0] == "" {
			l.fail(name, p.Line, id, "phrase %q holds no letters", p.Value)
			continue
		}
		for i, key := range forms {
			if other, twice := here[key]; twice {
				if other != id && i == 0 {
					l.fail(name, p.Line, id, "phrase %q stands in rule %s too", p.Value, other)
				}
				continue // the same phrase under another spelling
			}
			here[key] = id
			if _, known := l.m.phrases[key]; !known {
				l.m.phrases[key] = index
			}
		}
	}
	for _, p := range r.Patterns {
		re, err := regexp.Compile(`^(?:` + p.Value + `)$`)
		switch {
		case err != nil:
			l.fail(name, p.Line, id, "pattern %q: %v", p.Value, err)
		case re.MatchString(""):
			l.fail(name, p.Line, id, "pattern %q matches the empty text", p.Value)
		case p.Value != strings.ToLower(p.Value) && !strings.Contains(p.Value, `\`):
			l.fail(name, p.Line, id, "pattern %q holds capitals, and messages are lower-cased first", p.Value)
		default:
			for b, begins := range firstBytes(p.Value) {
				if begins {
					l.m.beginning[b] = append(l.m.beginning[b], len(l.m.patterns))
				}
			}
			l.m.patterns = append(l.m.patterns, wordPattern{re, index})
		}
	}
}

// compile finishes the matcher once every rule is in it.
func (l *loader) compile() {
	m := l.m
	for p := range m.phrases {
		m.longest = max(m.longest, strings.Count(p, " ")+1)
		// A word that makes a whole message by itself is no subject.
		if !strings.Contains(p, " ") && !m.glossary[p] && !m.rules[m.phrases[p]].needsHistory {
			m.conversational[p] = true
		}
	}
	for f := range m.fillers {
		m.longestFiller = max(m.longestFiller, strings.Count(f, " ")+1)
	}
	for _, w := range slices.Sorted(maps.Keys(m.glossary)) {
		delete(m.conversational, w)
	}
}

// check runs the examples and counter-examples. An example must bypass among all rules, and by its own rule where its file is alone:
// languages share words, and which of them names the rule for "super" does not matter.
func (l *loader) check(files []File, o Options) {
	// The length rule is no rule of the file, and the strict one would swallow counter-examples: neither side may rely on it.
	o.Length = LengthOff
	for i, f := range files {
		one := newLoader(o)
		one.add(f.Name, &l.decoded[i])
		one.compile()
		alone := one.m
		for _, r := range l.decoded[i].Rules {
			id := r.ID.Value
			for _, e := range r.Examples {
				c := Context{History: r.NeedsHistory}
				got, ok := alone.Match(e.Value, c)
				switch {
				case !ok:
					l.fail(f.Name, e.Line, id, "its example %q does not match", e.Value)
				case got.Rule != id:
					l.fail(f.Name, e.Line, id, "its example %q is matched by rule %s", e.Value, got.Rule)
				default:
					if _, ok := l.m.Match(e.Value, c); !ok {
						l.fail(f.Name, e.Line, id, "its example %q does not match once the other files are there", e.Value)
					}
				}
			}
			for _, e := range r.CounterExamples {
				for _, c := range []Context{{}, {History: true}} {
					if got, ok := l.matchRules(e.Value, c); ok {
						l.fail(f.Name, e.Line, id, "its counter-example %q bypasses by rule %s (in a conversation: %t)", e.Value, got.Rule, c.History)
						break
					}
				}
			}
		}
	}
}

// matchRules is Match without the length rule.
func (l *loader) matchRules(text string, c Context) (Result, bool) {
	m := *l.m
	m.length = LengthOff
	return m.Match(text, c)
}

// spellings returns the folded forms in which people type a word or phrase, the usual one first: umlauts without their dots and as
// "ae", "oe", "ue"; an apostrophe left out, and with a space in its place ("d accord").
func spellings(s string) []string {
	plain := textnorm.Plain(s)
	forms := []string{fold(plain)}
	for _, r := range []*strings.Replacer{umlauts, apostrophes} {
		if other := r.Replace(plain); other != plain {
			forms = append(forms, fold(other))
		}
	}
	return forms
}

var (
	umlauts     = strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue")
	apostrophes = strings.NewReplacer("'", " ")
)

// splitLine takes the line number off an error of the decoder.
func splitLine(message string) (line int, reason string) {
	head, rest, found := strings.Cut(message, ": ")
	if n, err := fmt.Sscanf(head, "line %d", &line); !found || n != 1 || err != nil {
		return 0, message
	}
	return line, rest
}
