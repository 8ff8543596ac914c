package pattern

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// TestOtherLanguages has, for each language beside English and Dutch, short questions of which none may bypass, and small talk that is no
// example of a rule, of which a share must. The shares are a little under what is reached.
func TestOtherLanguages(t *testing.T) {
	m := defaultMatcher(t)
	examples := map[string]bool{}
	for _, f := range load(Default(), Options{}).decoded {
		for _, r := range f.Rules {
			for _, e := range r.Examples {
				examples[e.Value] = true
			}
		}
	}
	for lang, floor := range map[string]float64{"de": 0.9, "fr": 0.9, "es": 0.9} {
		for _, q := range turns(t, "short_questions_"+lang+".txt", 100) {
			if r, ok := m.Match(q.text, q.context); ok {
				t.Errorf("%s: %q (%+v) bypasses by %s: %s", lang, q.text, q.context, r.Rule, r.Reason)
			}
			for _, opening := range []string{"ok ", "danke, ", "bonjour ", "hola, ", "thanks "} {
				if r, ok := m.Match(opening+q.text, q.context); ok {
					t.Errorf("%s: %q (%+v) bypasses by %s: %s", lang, opening+q.text, q.context, r.Rule, r.Reason)
				}
			}
		}
		talk := turns(t, "small_talk_"+lang+".txt", 60)
		bypassed, fresh := 0, 0
		for _, q := range talk {
			if examples[q.text] {
				continue
			}
			fresh++
			if _, ok := m.Match(q.text, q.context); ok {
				bypassed++
			} else {
				t.Logf("%s: %q passes on", lang, q.text)
			}
		}
		share := float64(bypassed) / float64(fresh)
		t.Logf("%s: %d of %d turns of small talk bypass (%.0f %%)", lang, bypassed, fresh, 100*share)
		if fresh < 60 || share < floor {
			t.Errorf("%s: %d of %d turns of small talk bypass, want %.0f %% of 60 and more", lang, bypassed, fresh, 100*floor)
		}
	}
}

// TestQuestionsPassEveryLanguage holds the questions of each language against the rules of all: the counter-examples with the length rule
// on, which New leaves out, and the knowledge turns of the gate's evaluation sets.
func TestQuestionsPassEveryLanguage(t *testing.T) {
	m := defaultMatcher(t)
	n := 0
	for _, f := range load(Default(), Options{}).decoded {
		for _, r := range f.Rules {
			for _, e := range r.CounterExamples {
				n++
				if got, ok := m.Match(e.Value, Context{}); ok {
					t.Errorf("counter-example %q of %s bypasses by %s: %s", e.Value, r.ID.Value, got.Rule, got.Reason)
				}
			}
		}
	}
	for _, name := range []string{"eval.jsonl", "hard.jsonl", "follow_ups.jsonl"} {
		f, err := os.Open("../semantic/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var row struct {
				Text, Label string
				History     []json.RawMessage
			}
			if err := json.Unmarshal(s.Bytes(), &row); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if row.Label != "knowledge" {
				continue
			}
			n++
			if r, ok := m.Match(row.Text, Context{History: len(row.History) > 0}); ok {
				t.Errorf("%s: %q bypasses by %s", name, row.Text, r.Rule)
			}
		}
	}
	if n < 3400 {
		t.Errorf("only %d questions were looked at", n)
	}
}

// TestSpellingsOfUmlautsAndElisions has ways in which people type one message.
func TestSpellingsOfUmlautsAndElisions(t *testing.T) {
	m := defaultMatcher(t)
	for rule, texts := range map[string][]string{
		"de.farewell":    {"Tschüss", "tschuess", "tschuss", "TSCHÜẞ", "Tschüß!"},
		"de.greeting":    {"Grüezi", "Gruezi", "grüß dich", "gruess dich", "gruss dich"},
		"de.affirm":      {"natürlich", "natuerlich", "naturlich"},
		"fr.wellbeing":   {"Ça va ?", "ca va", "ça va\u202f?", "Ça\u00a0va ?"},
		"fr.affirm":      {"C'est ça", "c’est ça", "c est ca", "cest ca", "C`est ça", "d'accord", "d’accord", "d accord"},
		"fr.acknowledge": {"il n'y a pas de quoi", "il n’y a pas de quoi", "il n y a pas de quoi"},
		"es.wellbeing":   {"¿Qué tal?", "que tal", "qué tal?", "¿¡Qué tal!?"},
		"es.greeting":    {"¡Buenos días!", "buenos dias", "BUENOS DÍAS", "buenos di\u0301as"},
		"es.uncertain":   {"no sé", "no se"},
	} {
		for _, text := range texts {
			if r, ok := m.Match(text, Context{}); !ok || r.Rule != rule {
				t.Errorf("%q: %+v %t, want rule %s", text, r, ok, rule)
			}
		}
	}
}
