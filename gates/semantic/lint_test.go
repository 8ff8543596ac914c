package semantic

import (
	"slices"
	"strings"
	"testing"
)

const lintable = `version: "1"
methods:
  default: contrast
  contrast: {threshold: 0.001}
categories:
  - id: thanks
    kind: non_retrieval
    references: {en: [thanks, "Thanks!", cheers, many thanks, payroll]}
  - id: bye
    kind: non_retrieval
    references: {en: [goodbye, bye now, cheers then]}
  - id: hr
    kind: knowledge
    references: {en: [days off, leave, salary, "THANKS", wages]}
`

func TestLint(t *testing.T) {
	s := parse(t, lintable)
	x := plane(t, s,
		0, 8, 16, 24, 100, // payroll lies among hr
		200, 208, 30, // "cheers then" lies by thanks
		90, 95, 105, 16.2, 110) // "THANKS" lies among thanks
	m, err := s.Method("")
	if err != nil {
		t.Fatal(err)
	}
	r := Lint(x, m, LintOptions{Duplicate: 0.9999, Gap: -1, Neighbours: 1})
	has := func(p Problem, text, other string) bool {
		return slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return f.Problem == p && f.Reference == text && (other == "" || f.OtherText == other)
		})
	}
	for _, c := range []struct {
		p           Problem
		text, other string
		want        bool
	}{
		{Duplicate, "thanks", "Thanks!", true},   // the same text but for case and punctuation
		{Conflict, "thanks", "THANKS", true},     // on both sides
		{Conflict, "cheers", "THANKS", true},     // nearly the same vector on both sides
		{WrongSide, "payroll", "", true},         // nearest are hr's
		{WrongSide, "THANKS", "cheers", true},    // and the other way round
		{OtherOwner, "cheers then", "", true},    // nearer to thanks than to bye
		{OtherOwner, "goodbye", "", false},       // with its own
		{WrongSide, "goodbye", "", false},        //
		{Dead, "many thanks", "", false},         // nearest to "cheers then"
		{Dead, "THANKS", "", false},              //
		{Duplicate, "goodbye", "bye now", false}, //
	} {
		if got := has(c.p, c.text, c.other); got != c.want {
			t.Errorf("%s of %q (%q): %t, want %t\n%v", c.p, c.text, c.other, got, c.want, r.Findings)
		}
	}
	if r.Tested != 13 || r.Missed == 0 || r.Bypassed == 0 || len(r.Errors) == 0 {
		t.Errorf("leave-one-out: %+v", r)
	}
	for _, f := range r.Findings {
		if text := f.String(); !strings.HasPrefix(text, string(f.Problem)+": \""+f.Reference) {
			t.Errorf("%q", text)
		}
	}
	if again := Lint(x, m, LintOptions{Duplicate: 0.9999, Gap: -1, Neighbours: 1}); !slices.Equal(again.Findings, r.Findings) || !slices.Equal(again.Errors, r.Errors) {
		t.Error("a second lint differs")
	}
}

func TestLintDead(t *testing.T) {
	s := parse(t, lintable)
	// many thanks lies alone, opposite to everything: nothing has it nearest.
	x := plane(t, s, 0, 1, 2, 270, 3, 40, 41, 42, 90, 91, 92, 93, 94)
	m, err := s.Method("")
	if err != nil {
		t.Fatal(err)
	}
	r := Lint(x, m, LintOptions{Neighbours: 1})
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem == Dead && f.Reference == "many thanks" }) {
		t.Errorf("%v", r.Findings)
	}
}

// TestDefaultSetIsClean: the embedded references have no duplicates and no conflicts, and few that lie on the wrong side. Contrast
// questions are near small talk on purpose, so some do.
func TestDefaultSetIsClean(t *testing.T) {
	x := fixture(t).index(t, defaultSet(t))
	m, err := x.Set().Method("")
	if err != nil {
		t.Fatal(err)
	}
	r := Lint(x, m, LintOptions{})
	count := map[Problem]int{}
	for _, f := range r.Findings {
		count[f.Problem]++
		if f.Problem == Duplicate || f.Problem == Conflict {
			t.Error(f)
		}
	}
	t.Logf("%v; leave-one-out over %d: %d missed, %d bypassed", count, r.Tested, r.Missed, r.Bypassed)
	if count[WrongSide] > r.Tested/50 {
		t.Errorf("%d of %d references are clearly nearer to the other kind", count[WrongSide], r.Tested)
	}
	if count[Dead] > r.Tested/20 {
		t.Errorf("%d of %d references are dead", count[Dead], r.Tested)
	}
	if float64(r.Bypassed) > 0.01*float64(r.Tested) {
		t.Errorf("%d of %d references are bypassed wrongly without themselves", r.Bypassed, r.Tested)
	}
}
