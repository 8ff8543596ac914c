package pattern

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// minimal is a rule file that loads, with one rule.
const minimal = `language: xx
rules:
  - id: xx.greeting
    phrases: [hi]
    examples: [hi]
    counter_examples: [hill]
`

func TestDefaultRules(t *testing.T) {
	m := defaultMatcher(t)
	ids := m.Rules()
	for _, want := range []string{"en.greeting", "en.thanks", "en.affirm", "en.farewell", "nl.greeting", "nl.thanks", "nl.affirm", "nl.farewell",
		"de.thanks", "fr.thanks", "es.thanks", "en.follow_up", "nl.follow_up"} {
		if !slices.Contains(ids, want) {
			t.Errorf("rule %s is missing from %v", want, ids)
		}
	}
}

func TestReplacedRules(t *testing.T) {
	m, err := New([]File{{Name: "xx.yaml", Data: []byte(minimal)}}, Options{Length: LengthOff})
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := m.Match("Hi!", Context{}); !ok || r.Rule != "xx.greeting" || r.Language != "xx" {
		t.Errorf("hi: %+v %t", r, ok)
	}
	if r, ok := m.Match("hello", Context{}); ok {
		t.Errorf("hello, which the replacing file does not list, bypasses: %+v", r)
	}
}

func TestBadFiles(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       []string // parts of the error, each on its own line
	}{
		{"bad expression", strings.Replace(minimal, "phrases: [hi]", "patterns: ['h(i']", 1), []string{"f.yaml:4: rule xx.greeting: pattern \"h(i\": error parsing regexp"}},
		{"no RE2", strings.Replace(minimal, "phrases: [hi]", `patterns: ['(?=h)i']`, 1), []string{"f.yaml:4: rule xx.greeting: pattern"}},
		{"empty match", strings.Replace(minimal, "phrases: [hi]", "patterns: ['h*']", 1), []string{"f.yaml:4: rule xx.greeting: pattern \"h*\" matches the empty text"}},
		{"capitals", strings.Replace(minimal, "phrases: [hi]", "patterns: ['Hi']", 1), []string{"holds capitals"}},
		{"example", strings.Replace(minimal, "examples: [hi]", "examples: [hello]", 1), []string{"f.yaml:5: rule xx.greeting: its example \"hello\" does not match"}},
		{"counter-example", strings.Replace(minimal, "[hill]", "[hi hi]", 1), []string{"f.yaml:6: rule xx.greeting: its counter-example \"hi hi\" bypasses by rule xx.greeting"}},
		{"no examples", "language: xx\nrules:\n  - id: xx.a\n    phrases: [hi]\n", []string{"f.yaml:3: rule xx.a: no examples", "f.yaml:3: rule xx.a: no counter_examples"}},
		{"nothing to match", "language: xx\nrules:\n  - id: xx.a\n    examples: [a]\n    counter_examples: [b]\n", []string{"f.yaml:3: rule xx.a: neither phrases nor patterns"}},
		{"id twice", minimal + "  - id: xx.greeting\n    phrases: [yo]\n    examples: [yo]\n    counter_examples: [b]\n", []string{"f.yaml:7: rule xx.greeting: the id is taken by the rule at f.yaml:3"}},
		{"phrase twice", minimal + "  - id: xx.b\n    phrases: [Hi!]\n    examples: [hi]\n    counter_examples: [b]\n", []string{"f.yaml:8: rule xx.b: phrase \"Hi!\" stands in rule xx.greeting too"}},
		{"foreign id", strings.ReplaceAll(minimal, "id: xx.", "id: yy."), []string{`the id must begin with the file's language, "xx."`}},
		{"no id", "language: xx\nrules:\n  - phrases: [hi]\n", []string{"f.yaml:3: a rule without id"}},
		{"unknown field", minimal + "    phrase: [hi]\n", []string{"f.yaml:7: field phrase not found"}},
		{"wrong type", strings.Replace(minimal, "phrases: [hi]", "phrases: {hi: 1}", 1), []string{"f.yaml:4:"}},
		{"not YAML", "rules: [", []string{"f.yaml:1: did not find"}},
		{"null is a word", strings.Replace(minimal, "examples: [hi]", "examples: [hi, null]", 1), []string{`its example "null" does not match`}},
		{"form and content", strings.Replace(minimal, "phrases: [hi]", "phrases: {a: b}\n    patterns: ['(']", 1), []string{"f.yaml:4: one value where a list belongs", "f.yaml:5: rule xx.greeting: pattern"}},
		{"empty", "", []string{"f.yaml: the file is empty"}},
		{"two documents", minimal + "---\n" + minimal, []string{"a second document"}},
		{"empty phrase", strings.Replace(minimal, "[hi]", "['!']", 1), []string{`phrase "!" holds no letters`}},
		{"two words", "conversational: [two words]\n" + minimal, []string{`f.yaml:1: conversational: "two words" is more than one word`}},
		{"no language", strings.Replace(minimal, "language: xx\n", "", 1), []string{"f.yaml:1: language is missing"}},
		{"all at once", "language: xx\nrules:\n  - id: xx.a\n    patterns: ['(']\n    examples: [a]\n    counter_examples: [b]\n  - id: xx.b\n    patterns: ['[']\n    examples: [a]\n    counter_examples: [b]\n",
			[]string{"f.yaml:4: rule xx.a", "f.yaml:8: rule xx.b"}},
	} {
		m, err := New([]File{{Name: "f.yaml", Data: []byte(c.data)}}, Options{})
		var errs Errors
		if m != nil || !errors.As(err, &errs) {
			t.Errorf("%s: a matcher %v and error %v", c.name, m != nil, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(errs) {
			t.Errorf("%s: %d lines for %d errors: %q", c.name, len(lines), len(errs), err)
		}
		for _, want := range c.want {
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
				t.Errorf("%s: no line of %q holds %q", c.name, err, want)
			}
		}
	}
	if _, err := New(nil, Options{Length: "never"}); err == nil || !strings.Contains(err.Error(), "default, strict, off") || !strings.Contains(err.Error(), "no rule files") {
		t.Errorf("bad options: %v", err)
	}
}

// TestErrorNamesItsFacts checks that what a caller may want to show is a field.
func TestErrorNamesItsFacts(t *testing.T) {
	_, err := New([]File{{Name: "f.yaml", Data: []byte(strings.Replace(minimal, "phrases: [hi]", "patterns: ['(']", 1))}}, Options{})
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != 1 {
		t.Fatalf("%v", err)
	}
	if e := errs[0]; e.File != "f.yaml" || e.Line != 4 || e.Rule != "xx.greeting" || e.Reason == "" {
		t.Errorf("%+v", e)
	}
}
