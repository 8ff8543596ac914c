package quality

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestBestWindow(t *testing.T) {
	nan, inf := Logit(math.NaN()), Logit(math.Inf(1))
	for _, c := range []struct {
		name    string
		windows []Window
		best    int
		ok      bool
	}{
		{"none", nil, 0, false},
		{"one", []Window{{-3, true}}, 0, true},
		{"the best", []Window{{-3, true}, {2, true}, {1, true}}, 1, true},
		{"the first of equals", []Window{{-3, true}, {2, true}, {2, true}}, 1, true},
		{"not the unscored", []Window{{9, false}, {-2, true}}, 1, true},
		{"not those without a number", []Window{{nan, true}, {inf, true}, {-2, true}, {nan, true}}, 2, true},
		{"none with a score", []Window{{nan, true}, {4, false}}, 0, false},
	} {
		if best, ok := BestWindow(c.windows); best != c.best || ok != c.ok {
			t.Errorf("%s: %d, %v", c.name, best, ok)
		}
	}
}

func TestBM25Arithmetic(t *testing.T) {
	texts := []string{"red apple", "green apple apple tree", "blue sky", "", "The Apple!"}
	got := BM25("the apple, red apples", texts) // terms: apple, red, apples
	// N = 5; words 2, 4, 2, 0, 2; mean 2. apple is in three, red in one.
	mean := 2.0
	apple, red := math.Log(1+(5-3+0.5)/(3+0.5)), math.Log(1+(5-1+0.5)/(1+0.5))
	part := func(tf, length float64) float64 { return tf * 2.2 / (tf + 1.2*(0.25+0.75*length/mean)) }
	want := []float64{apple*part(1, 2) + red*part(1, 2), apple * part(2, 4), 0, 0, apple * part(1, 2)}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("text %d: %v, want %v", i, got[i], want[i])
		}
	}
	for name, scores := range map[string][]float64{
		"no texts":       BM25("apple", nil),
		"no words":       BM25("", []string{"apple"}),
		"empty texts":    BM25("apple", []string{"", "!"}),
		"nothing shared": BM25("pear", []string{"apple"}),
	} {
		for _, s := range scores {
			if s != 0 {
				t.Errorf("%s: %v", name, scores)
			}
		}
	}
	if s := BM25("who is it", []string{"who are you", "nobody"}); s[0] <= 0 || s[1] != 0 {
		t.Errorf("a query of function words alone: %v", s)
	}
	if s := BM25("休暇の日数", []string{"年次休暇は25日", "バナナ"}); s[0] <= s[1] {
		t.Errorf("without spaces: %v", s)
	}
	if s := BM25("Ｖａcation", []string{"vaca\u00adtion", "x"}); s[0] <= 0 {
		t.Errorf("spelling variants: %v", s)
	}
	if s := BM25("apple", []string{"apple pie", "apple pie", "apple"}); s[0] != s[1] || s[2] <= s[0] || s[0] <= 0 {
		t.Errorf("equal texts, a shorter one, and a word that all hold: %v", s)
	}
	if s := BM25(strings.Repeat("pear ", 10)+strings.Join(manyWords(500), " "), manyWords(500)); s[0] <= 0 || s[maxTerms+1] != 0 {
		t.Error("a long query should count its first words only")
	}
}

func manyWords(n int) []string {
	words := make([]string, n)
	for i := range words {
		words[i] = "w" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	return words
}

func TestExpandQueryArithmetic(t *testing.T) {
	texts := []Feedback{
		{"leave allowance allowance days", 0.6}, // allowance 0.6·2/4 = 0.3, leave 0.15
		{"leave calendar", 0.2},                 // leave and calendar 0.1
	}
	// With weights 0.75 and 0.25: allowance .375, leave .1875+.125 = .3125, calendar .125. "days" is in the query.
	if got, want := ExpandQuery("Vacation days?", texts), "Vacation days? allowance leave calendar"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	texts[0].Weight, texts[1].Weight = 0.1, 0.9
	if got, want := ExpandQuery("Vacation days?", texts), "Vacation days? leave calendar allowance"; got != want {
		t.Errorf("other weights: %q, want %q", got, want)
	}
	for _, c := range []struct{ name, query, text, want string }{
		{"at most five, the more frequent first", "q", "aaa bbb ccc ddd eee fff fff", "q fff aaa bbb ccc ddd"},
		{"equal ones by alphabet", "q", "zebra yak", "q yak zebra"},
		{"no function words, numbers, short words", "q", "the 2024 and is of ab 3.5% $50 het voor zebra", "q zebra"},
		{"nothing to add", "zebra", "Zebra, the zebra!", "zebra"},
		{"no text", "zebra", "", "zebra"},
		{"no query", "", "zebra", "zebra"},
	} {
		if got := ExpandQuery(c.query, []Feedback{{c.text, 1}}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := ExpandQuery("q", []Feedback{{"aaa", 0}, {"bbb bbb", 0}}); got != "q aaa bbb" {
		t.Errorf("weights of nothing: %q", got)
	}
	if got := ExpandQuery("q", nil); got != "q" {
		t.Errorf("%q", got)
	}
}

func TestRulesDecide(t *testing.T) {
	p := params(t, Overrides{})
	p.Rules = []Rule{
		{ID: "draft", Field: "state", Equals: "draft", Action: ActionDemote},
		{ID: "gone", Field: "deprecated", Equals: true, Action: ActionDrop},
		{ID: "old", Field: "updated_at", OlderThanDays: 365, Action: ActionDrop},
	}
	for _, c := range []struct {
		name          string
		metadata      []string
		logits        []float64
		kept, dropped string
		passed        int
		triggered     bool
		insufficient  bool
	}{
		{"no metadata", []string{"", ""}, []float64{3, 2}, "0:kept 1:kept", "", 2, false, false},
		{"a drop beats the best score", []string{`{"deprecated":true}`, "", ""}, []float64{9, 2, 1}, "1:kept 2:kept", "0:dropped", 3, false, false},
		{"what a rule drops does not fill the minimum", []string{`{"deprecated":true}`, "", ""}, []float64{9, 2, -9}, "1:kept 2:fallback", "0:dropped", 2, true, false},
		{"and is no fallback", []string{`{"deprecated":true}`, ""}, []float64{-1, -2}, "1:fallback", "0:dropped", 0, true, true},
		{"demoted last among those that passed", []string{`{"state":"draft"}`, "", ""}, []float64{9, 2, 1}, "1:kept 2:kept 0:kept", "", 3, false, false},
		{"demoted behind the better fallback", []string{`{"state":"draft"}`, "", ""}, []float64{-1, -2, -3}, "1:fallback 2:fallback", "0:dropped", 0, true, true},
		{"demoted, but passed, before a fallback", []string{`{"state":"draft"}`, ""}, []float64{9, -0.1}, "0:kept 1:fallback", "", 1, true, false},
		{"drop beats demote", []string{`{"state":"draft","deprecated":true}`, "", ""}, []float64{9, 2, 1}, "1:kept 2:kept", "0:dropped", 3, false, false},
		{"old", []string{`{"updated_at":"2024-05-31"}`, `{"updated_at":"2024-06-02"}`}, []float64{3, 2}, "1:kept", "0:dropped", 2, true, false},
		{"all dropped", []string{`{"deprecated":true}`, `{"deprecated":true}`}, []float64{3, absent}, "", "0:dropped 1:dropped", 1, true, true},
		{"unscored and demoted", []string{`{"state":"draft"}`, "", ""}, []float64{absent, absent, absent}, "1:fallback 2:fallback", "0:unscored", 0, true, false},
	} {
		chunks := scored(c.logits...)
		for i, m := range c.metadata {
			if m != "" {
				chunks[i].Metadata = JSON(m)
			}
		}
		d := Decide(p, question, chunks, now)
		if got := outline(d.Chunks); got != c.kept {
			t.Errorf("%s: returned %s, want %s", c.name, got, c.kept)
		}
		if got := outline(d.Dropped); got != c.dropped {
			t.Errorf("%s: dropped %s, want %s", c.name, got, c.dropped)
		}
		if d.Stats.Passed != c.passed || d.Stats.FallbackTriggered != c.triggered || d.InsufficientContext != c.insufficient {
			t.Errorf("%s: insufficient %v (%s), %+v", c.name, d.InsufficientContext, d.InsufficientReason, d.Stats)
		}
	}
	chunks := scored(3, 2, 1)
	chunks[0].Metadata, chunks[1].Metadata = JSON(`{"updated_at":"last week"}`), JSON(`{"updated_at":null}`)
	if d := Decide(p, question, chunks, now); d.Stats.UnreadableTimes != 2 || len(d.Chunks) != 3 {
		t.Errorf("a time that cannot be read keeps the chunk and is counted: %+v", d.Stats)
	}
}

func TestRuleEquality(t *testing.T) {
	for _, c := range []struct {
		want     any
		metadata string
		matches  bool
	}{
		{true, `{"f":true}`, true},
		{true, `{"f":false}`, false},
		{false, `{"f":false}`, true},
		{true, `{"f":"true"}`, false},
		{true, `{"f":1}`, false},
		{true, `{"f":null}`, false},
		{true, `{}`, false},
		{true, `{"g":true}`, false},
		{true, `not json`, false},
		{true, `[true]`, false},
		{"old", `{"f":"old"}`, true},
		{"old", `{"f":"Old"}`, false},
		{"old", `{"f":["old"]}`, false},
		{"", `{"f":""}`, true},
		{2, `{"f":2}`, true},
		{2, `{"f":2.0}`, true},
		{2.0, `{"f":2}`, true},
		{2, `{"f":2.5}`, false},
		{2.5, `{"f":2.5}`, true},
		{2, `{"f":"2"}`, false},
		{0, `{"f":false}`, false},
		{int64(9007199254740993), `{"f":9007199254740993}`, true},
		{int64(9007199254740993), `{"f":9007199254740992}`, false},
		{uint64(math.MaxUint64), `{"f":18446744073709551615}`, true},
		{2, `{"f":1e400}`, false},
		{"draft", `{"f":{"f":"draft"}}`, false},
	} {
		rules := []Rule{{ID: "r", Field: "f", Equals: c.want, Action: ActionDrop}}
		if err := (&Policy{Rules: rules}).Validate(); err != nil && strings.Contains(err.Error(), "rules[") {
			t.Errorf("%v: %v", c.want, err)
		}
		if got, _ := applyRules(rules, JSON(c.metadata), now); (got == 0) != c.matches {
			t.Errorf("%v (%T) and %s: %v", c.want, c.want, c.metadata, got == 0)
		}
	}
	if got, _ := applyRules([]Rule{{ID: "r", Field: "f", Equals: 7, Action: ActionDrop}}, fields{"f": json.Number("7")}, now); got != 0 {
		t.Error("fields of the caller's own kind")
	}
}

type fields map[string]any

func (f fields) Lookup(field string) (any, bool) { v, ok := f[field]; return v, ok }

func TestJSONPaths(t *testing.T) {
	j := JSON(`{"a":{"b":{"c":"deep"}},"a.b":"flat","x.y":{"z":"mixed"},"n":12345678901234567890}`)
	for field, want := range map[string]any{"a.b": "flat", "a.b.c": "deep", "n": json.Number("12345678901234567890")} {
		if got, ok := j.Lookup(field); !ok || got != want {
			t.Errorf("%s: %v, %v", field, got, ok)
		}
	}
	for _, field := range []string{"", ".", "a.x", "a.b.c.d", "b", "x.y.z", "n.n"} {
		if got, ok := j.Lookup(field); ok {
			t.Errorf("%q: %v", field, got)
		}
	}
}

func TestRuleAge(t *testing.T) {
	rules := []Rule{{ID: "old", Field: "t", OlderThanDays: 30, Action: ActionDrop}}
	for value, want := range map[any]string{
		"2025-05-02T11:59:59Z":              "old", // now is 2025-06-01 12:00 UTC
		"2025-05-02T12:00:00Z":              "new", // exactly 30 days is not older
		"2025-05-02T12:30:00+01:00":         "old",
		"2025-05-02T11:30:00-01:00":         "new",
		"2025-05-02":                        "old",
		"2025-05-03":                        "new",
		" 2025-05-02 11:59:59 ":             "old",
		"2025-05-02T11:59:59":               "old",
		"2025-05-02T11:59":                  "old",
		"2025-05-02 13:59:59+02:00":         "old",
		"2025-05-02T11:59:59.999999999Z":    "old",
		"2030-01-01":                        "new",
		json.Number("1746187199"):           "old", // the same moment in seconds, milliseconds and fractions
		json.Number("1746187200"):           "new",
		json.Number("1746187199999"):        "old",
		json.Number("1746187200000"):        "new",
		json.Number("1746187199.5"):         "old",
		float64(1746187199):                 "old",
		int64(0):                            "old",
		-5.5:                                "old",
		"":                                  "unreadable",
		"May 2025":                          "unreadable",
		"02-05-2025":                        "unreadable",
		true:                                "unreadable",
		nil:                                 "unreadable",
		json.Number("1e300"):                "unreadable",
		math.Inf(1):                         "unreadable",
		math.NaN():                          "unreadable",
		time.Unix(1746187199, 0):            "old",
		time.Unix(1746187200, 0).In(moscow): "new",
	} {
		rule, unreadable := applyRules(rules, fields{"t": value}, now)
		got := "new"
		if rule == 0 {
			got = "old"
		} else if unreadable == 1 {
			got = "unreadable"
		}
		if got != want {
			t.Errorf("%v (%T) is %s, want %s", value, value, got, want)
		}
	}
	if rule, _ := applyRules(rules, fields{}, now); rule != none {
		t.Error("a missing field matched")
	}
	ancient := []Rule{{ID: "x", Field: "t", OlderThanDays: maxDays, Action: ActionDrop}}
	if rule, _ := applyRules(ancient, fields{"t": "1000-01-01"}, now); rule != none {
		t.Error("ten thousand years overflowed")
	}
}

var moscow = time.FixedZone("UTC+3", 3*3600)

func FuzzRules(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"2024-01-01"},"c":1e999}`), "a.b", "2024-01-01", 3)
	f.Fuzz(func(t *testing.T, metadata []byte, field, want string, days int) {
		rules := []Rule{{ID: "e", Field: field, Equals: want, Action: ActionDemote}, {ID: "o", Field: field, OlderThanDays: days % maxDays, Action: ActionDrop}}
		rule, unreadable := applyRules(rules, JSON(metadata), now)
		if rule < none || rule > 1 || unreadable < 0 || unreadable > 1 {
			t.Errorf("%d, %d", rule, unreadable)
		}
		if v, ok := JSON(metadata).Lookup(field); ok && v == any(want) && rule == none {
			t.Error("an equal field did not match")
		}
	})
}
