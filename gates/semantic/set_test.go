package semantic

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const minimal = `version: "1"
conversational_words: {en: [please, again]}
methods:
  default: contrast
  contrast: {threshold: 0.1}
  combined: {threshold: 0.9, top_k: 2, intercept: -1, weights: {top1: 2, novel_words: -1}}
categories:
  - id: thanks
    kind: non_retrieval
    references: {en: [thank you so much, thanks a lot]}
  - id: follow_up
    kind: non_retrieval
    needs_history: true
    references: {en: [go on please]}
  - id: hr
    kind: knowledge
    references: {en: [how many days off], nl: [hoeveel vakantiedagen]}
`

func parse(t testing.TB, data string) *Set {
	t.Helper()
	s, err := Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDefaultSet checks what the documentation promises of the embedded file.
func TestDefaultSet(t *testing.T) {
	s := defaultSet(t)
	counts := map[Kind]int{}
	for i, c := range s.Categories {
		n := map[string]int{}
		for _, r := range s.References {
			if r.Category == i {
				n[r.Language]++
			}
		}
		if n["en"] < 15 || n["nl"] < 15 {
			t.Errorf("category %s has %v references, want at least 15 in each of en and nl", c.ID, n)
		}
		if c.About == "" {
			t.Errorf("category %s says nothing about itself", c.ID)
		}
		counts[c.Kind]++
	}
	if counts[NonRetrieval] < 15 || counts[Knowledge] < 12 {
		t.Errorf("%v categories, want at least 15 and 12", counts)
	}
	for _, name := range []string{"", Top1, Margin, MarginReference, Contrast, Combined} {
		if m, err := s.Method(name); err != nil || m.Name == "" {
			t.Errorf("method %q: %+v, %v", name, m, err)
		}
	}
	if i := slices.IndexFunc(s.Categories, func(c Category) bool { return c.ID == "follow_up" }); i < 0 || !s.Categories[i].NeedsHistory {
		t.Error("no category of follow-ups that needs a conversation")
	}
}

func TestParse(t *testing.T) {
	s := parse(t, minimal)
	if got, want := s.Texts(), []string{"thank you so much", "thanks a lot", "go on please", "how many days off", "hoeveel vakantiedagen"}; !slices.Equal(got, want) {
		t.Errorf("texts %q, want %q", got, want)
	}
	if m, err := s.Method(""); err != nil || m.Name != Contrast || m.Threshold != 0.1 {
		t.Errorf("default method %+v, %v", m, err)
	}
	if _, err := s.Method("best"); err == nil || !strings.Contains(err.Error(), "combined, contrast") {
		t.Errorf("unknown method: %v", err)
	}
	// YAML's words for booleans are words here.
	s = parse(t, strings.Replace(minimal, "thank you so much, thanks a lot", "no, yes, null, on", 1))
	if got := s.Texts()[:4]; !slices.Equal(got, []string{"no", "yes", "null", "on"}) {
		t.Errorf("texts %q", got)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"no version", `version: "1"`, "", []string{"version is missing"}},
		{"kind", "kind: knowledge", "kind: knowlege", []string{`line 15: category hr: kind is "knowlege"`, "no category of kind knowledge"}},
		{"id twice", "id: hr", "id: thanks", []string{"line 15: category thanks: the id is taken by the category at line 8"}},
		{"no id", "- id: hr\n    kind", "- kind", []string{"category number 3: id is missing"}},
		{"empty reference", "how many days off", "'?!'", []string{`line 17: category hr: reference "?!" holds no words`}},
		{"no references", "references: {en: [go on please]}", "references: {}", []string{"line 11: category follow_up: no references"}},
		{"flags on knowledge", "kind: knowledge", "kind: knowledge\n    needs_history: true", []string{"belong to non_retrieval"}},
		{"flag on non-retrieval", "needs_history: true", "near_miss: true", []string{"line 11: category follow_up: near_miss belongs to knowledge"}},
		{"unknown field", "needs_history: true", "need_history: true", []string{"line 13: field need_history not found"}},
		{"wrong type", "[go on please]", "[[go on please]]", []string{"line 14: a list or mapping where a text belongs"}},
		{"unknown default", "default: contrast", "default: best", []string{`line 4: methods: default is "best"`}},
		{"threshold missing", "contrast: {threshold: 0.1}", "contrast: {}", []string{"methods: contrast: threshold is missing"}},
		{"threshold range", "threshold: 0.1", "threshold: 40", []string{"threshold 40 is outside -2…2"}},
		{"NaN", "threshold: 0.1", "threshold: .nan", []string{"methods: contrast: threshold NaN"}},
		{"probability", "threshold: 0.9", "threshold: 1.5", []string{"threshold 1.5 is outside 0…1"}},
		{"top_k", "top_k: 2", "top_k: 99", []string{"top_k 99 is outside 1…16"}},
		{"feature", "novel_words: -1", "novelty: -1", []string{`unknown feature "novelty"; there are top1, margin`}},
		{"infinite weight", "novel_words: -1", "novel_words: .inf", []string{"the weight of novel_words is +Inf"}},
		{"two words", "[please, again]", "[please again]", []string{`line 2: conversational_words: "please again" is not one word`}},
		{"several", "kind: knowledge\n    references: {en: [how many days off]", "kind: x\n    references: {en: ['!']", []string{`kind is "x"`, `reference "!" holds no words`, "no category of kind knowledge"}},
	} {
		data := strings.Replace(minimal, c.from, c.to, 1)
		if data == minimal {
			t.Fatalf("%s changes nothing", c.name)
		}
		s, err := Parse([]byte(data))
		var errs Errors
		if s != nil || !errors.As(err, &errs) {
			t.Errorf("%s: no Errors but %v", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not hold %q", c.name, err, want)
			}
		}
	}
	for _, data := range []string{"", "a: [", "- 1"} {
		if _, err := Parse([]byte(data)); err == nil {
			t.Errorf("%q parses", data)
		}
	}
}

func TestFingerprint(t *testing.T) {
	base := parse(t, minimal).Fingerprint("model a")
	if again := parse(t, minimal).Fingerprint("model a"); again != base {
		t.Error("the same set has two fingerprints")
	}
	if other := parse(t, minimal).Fingerprint("model b"); other == base {
		t.Error("another model has the same fingerprint")
	}
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"thanks a lot", "thanks a lots", false}, {"id: hr", "id: pay", false}, {"[thank you so much, thanks a lot]", "[thanks a lot, thank you so much]", false},
		{`version: "1"`, `version: "2"`, false}, {"thank you so much, thanks", "'thank you so muchthanks', thanks", false},
		{"    needs_history: true\n", "", false}, {"threshold: 0.1", "threshold: 0.2", true}, // vectors do not depend on thresholds
	} {
		changed := strings.Replace(minimal, c.from, c.to, 1)
		if changed == minimal {
			t.Fatalf("%q is not there", c.from)
		}
		if got := parse(t, changed).Fingerprint("model a") == base; got != c.same {
			t.Errorf("%q for %q: equal fingerprint %t, want %t", c.to, c.from, got, c.same)
		}
	}
}

func TestWithout(t *testing.T) {
	s := parse(t, minimal)
	w := s.Without("thanks", "nothing")
	if len(w.Categories) != 2 || len(w.References) != 3 || w.Categories[w.References[0].Category].ID != "follow_up" || w.Categories[w.References[2].Category].ID != "hr" {
		t.Errorf("%+v", w)
	}
	if w.novel("thank", []string{"thank"}, false) != 1 || s.novel("thank", []string{"thank"}, false) != 0 {
		t.Error("the vocabulary still holds a dropped category's words")
	}
	if len(s.Categories) != 3 || len(s.References) != 5 {
		t.Error("Without changed its set")
	}
}

func TestWords(t *testing.T) {
	s := parse(t, minimal)
	for text, want := range map[string]int{
		"thanks a lot!": 0, "THANKS": 0, "payroll": 1, "a pay day": 0, "VAT": 1, "vat": 0, "rule 7": 2, "no. 7": 1, "thanks for the 7 payrolls": 2,
		"one four seventeen words that nobody wrote down": 4, "退款": 4, "": 0, "much much": 0,
	} {
		if got := s.novel(text, contentForms(text), false); got != want {
			t.Errorf("novel words of %q: %d, want %d", text, got, want)
		}
	}
	if got := s.novel("thanks a lot", contentForms("thanks a lot"), true); got != 1 { // "thanks" stands in no other reference
		t.Errorf("novel words of a reference without itself: %d, want 1", got)
	}
	for text, want := range map[string]string{"again, please!": "", "margins again": "margins", "by team": "by team", "a 7 x": "7", "EU": "eu"} {
		if got := strings.Join(s.content(contentForms(text)), " "); got != want {
			t.Errorf("content of %q: %q, want %q", text, got, want)
		}
	}
}

// A bare question for a fact brings content into a conversation, although its words are conversational; one to the assistant does not.
func TestContentOfQuestions(t *testing.T) {
	s := defaultSet(t)
	for text, want := range map[string]string{
		"when?": "when", "since when?": "when", "who?": "who", "which ones?": "which", "how many?": "many", "where": "where", "wie?": "wie",
		"sinds wanneer?": "sinds", "hoeveel?": "hoeveel", "welke?": "welke",
		"who are you?": "", "where do you live": "", "wie ben je": "", "why?": "", "shorter please": "", "go on": "", "waarom?": "",
	} {
		if got := strings.Join(s.content(contentForms(text)), " "); got != want {
			t.Errorf("content of %q: %q, want %q", text, got, want)
		}
	}
}
