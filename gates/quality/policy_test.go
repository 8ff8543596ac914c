package quality

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

func TestResolve(t *testing.T) {
	own := DefaultPolicy()
	own.Thresholds = Thresholds{FAQ: 0.5, Lookup: 0.55, Broad: 0.3, Comparison: 0.45}
	own.EverythingThreshold, own.MinChunks, own.MaxChunks, own.MaxContextTokens = 0.1, 3, 8, 1000
	own.Fallback, own.LongChunk, own.Floor = FallbackExpand, LongMaxPassage, 0.2
	everything := own
	everything.Mode = ModeEverything

	type want struct {
		threshold Relevance
		min, max  int
		from      string
	}
	for _, c := range []struct {
		name   string
		policy Policy
		o      Overrides
		q      QueryType
		want   want
	}{
		{"defaults", DefaultPolicy(), Overrides{}, FAQ, want{0.6, 2, 5, "the policy for faq queries"}},
		{"lookup", DefaultPolicy(), Overrides{}, Lookup, want{0.6, 2, 5, "the policy for lookup queries"}},
		{"comparison", DefaultPolicy(), Overrides{}, Comparison, want{0.6, 2, 5, "the policy for comparison queries"}},
		{"broad", DefaultPolicy(), Overrides{}, Broad, want{0.4, 2, 5, "the policy for broad queries"}},
		{"own policy", own, Overrides{}, Broad, want{0.3, 3, 8, "the policy for broad queries"}},
		{"own policy, lookup", own, Overrides{}, Lookup, want{0.55, 3, 8, "the policy for lookup queries"}},
		{"own policy, comparison", own, Overrides{}, Comparison, want{0.45, 3, 8, "the policy for comparison queries"}},
		{"request's threshold", own, Overrides{Threshold: ptr[Relevance](0.9)}, Broad, want{0.9, 3, 8, "the request"}},
		{"threshold 0", own, Overrides{Threshold: ptr[Relevance](0)}, Broad, want{0, 3, 8, "the request"}},
		{"threshold 1", own, Overrides{Threshold: ptr[Relevance](1)}, Broad, want{1, 3, 8, "the request"}},
		{"low maximum bends the minimum", DefaultPolicy(), Overrides{MaxChunks: ptr(1)}, FAQ, want{0.6, 1, 1, "the policy for faq queries"}},
		{"high minimum bends the maximum", DefaultPolicy(), Overrides{MinChunks: ptr(9)}, FAQ, want{0.6, 9, 9, "the policy for faq queries"}},
		{"maximum that fits bends nothing", DefaultPolicy(), Overrides{MaxChunks: ptr(20)}, FAQ, want{0.6, 2, 20, "the policy for faq queries"}},
		{"minimum 0", DefaultPolicy(), Overrides{MinChunks: ptr(0)}, FAQ, want{0.6, 0, 5, "the policy for faq queries"}},
		{"both", DefaultPolicy(), Overrides{MinChunks: ptr(7), MaxChunks: ptr(7)}, FAQ, want{0.6, 7, 7, "the policy for faq queries"}},
		{"everything", DefaultPolicy(), Overrides{Mode: ptr(ModeEverything)}, FAQ, want{0.05, 2, All, "everything mode"}},
		{"everything, own", own, Overrides{Mode: ptr(ModeEverything)}, Broad, want{0.1, 3, All, "everything mode"}},
		{"everything with a threshold", DefaultPolicy(), Overrides{Mode: ptr(ModeEverything), Threshold: ptr[Relevance](0.7)}, FAQ, want{0.7, 2, All, "the request"}},
		{"everything with a maximum", DefaultPolicy(), Overrides{Mode: ptr(ModeEverything), MaxChunks: ptr(1)}, FAQ, want{0.05, 1, 1, "everything mode"}},
		{"everything with a minimum", DefaultPolicy(), Overrides{Mode: ptr(ModeEverything), MinChunks: ptr(50)}, FAQ, want{0.05, 50, All, "everything mode"}},
		{"policy of everything", everything, Overrides{}, FAQ, want{0.1, 3, All, "everything mode"}},
		{"back to default", everything, Overrides{Mode: ptr(ModeDefault)}, FAQ, want{0.5, 3, 8, "the policy for faq queries"}},
	} {
		r, err := Resolve(c.policy, c.o, c.q)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := (want{r.Threshold, r.MinChunks, r.MaxChunks, r.ThresholdFrom}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if r.QueryType != c.q {
			t.Errorf("%s: query type %q", c.name, r.QueryType)
		}
	}

	r, err := Resolve(own, Overrides{}, FAQ)
	if err != nil || r.Fallback != FallbackExpand || r.LongChunk != LongMaxPassage || r.Floor != 0.2 || r.MaxContextTokens != 1000 || r.ReturnContext {
		t.Errorf("the policy's own settings: %+v, %v", r, err)
	}
	r, err = Resolve(own, Overrides{Fallback: ptr(FallbackKeyword), LongChunk: ptr(LongTruncate), MaxContextTokens: ptr(7), ReturnContext: true}, FAQ)
	if err != nil || r.Fallback != FallbackKeyword || r.LongChunk != LongTruncate || r.MaxContextTokens != 7 || !r.ReturnContext {
		t.Errorf("the request's settings: %+v, %v", r, err)
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		o     Overrides
		names []string // in the message
	}{
		"threshold over 1":   {Overrides{Threshold: ptr[Relevance](1.5)}, []string{"threshold", "1.5", "0…1", "request"}},
		"threshold under 0":  {Overrides{Threshold: ptr[Relevance](-0.01)}, []string{"threshold", "-0.01"}},
		"threshold NaN":      {Overrides{Threshold: ptr(Relevance(math.NaN()))}, []string{"threshold", "NaN"}},
		"negative minimum":   {Overrides{MinChunks: ptr(-1)}, []string{"min_chunks", "-1", "0"}},
		"maximum 0":          {Overrides{MaxChunks: ptr(0)}, []string{"max_chunks", "0", "at least 1"}},
		"minimum over max":   {Overrides{MinChunks: ptr(3), MaxChunks: ptr(2)}, []string{"min_chunks 3", "max_chunks 2", "request"}},
		"no context":         {Overrides{MaxContextTokens: ptr(0)}, []string{"max_context_tokens", "at least 1"}},
		"unknown fallback":   {Overrides{Fallback: ptr(Fallback("nothing"))}, []string{"fallback", "nothing", "top, keyword, expand, insufficient"}},
		"empty fallback":     {Overrides{Fallback: ptr(Fallback(""))}, []string{"fallback", `""`}},
		"unknown mode":       {Overrides{Mode: ptr(Mode("all"))}, []string{"mode", "all", "default, everything"}},
		"unknown long_chunk": {Overrides{LongChunk: ptr(LongChunk("split"))}, []string{"long_chunk", "split", "truncate, max_passage"}},
		"two at once":        {Overrides{Threshold: ptr[Relevance](2), Mode: ptr(Mode("x"))}, []string{"threshold", "mode"}},
	} {
		_, err := Resolve(DefaultPolicy(), c.o, FAQ)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range c.names {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}

	_, err := Resolve(DefaultPolicy(), Overrides{Threshold: ptr[Relevance](1.5)}, FAQ)
	var re *RangeError
	if !errors.As(err, &re) || *re != (RangeError{Source: "request", Field: "threshold", Value: 1.5, Min: 0, Max: 1}) {
		t.Errorf("facts of the range error: %+v", re)
	}
	_, err = Resolve(DefaultPolicy(), Overrides{MinChunks: ptr(3), MaxChunks: ptr(2)}, FAQ)
	var mm *MinMaxError
	if !errors.As(err, &mm) || *mm != (MinMaxError{Source: "request", MinChunks: 3, MaxChunks: 2}) {
		t.Errorf("facts of the minimum and maximum error: %+v", mm)
	}
}

func TestValidateReportsEverything(t *testing.T) {
	p := DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Fatalf("the default policy: %v", err)
	}
	bad := Policy{
		Thresholds:          Thresholds{FAQ: -1, Lookup: 2, Broad: Relevance(math.NaN()), Comparison: 1.0001},
		EverythingThreshold: 3, Floor: -2, MinChunks: 6, MaxChunks: 5, MaxContextTokens: -1,
		Mode: "m", Fallback: "f", LongChunk: "l",
		Rules: []Rule{
			{},
			{ID: "a", Field: "x", Equals: true, Action: ActionDrop},
			{ID: "a", Field: "x", Equals: true, OlderThanDays: 3, Action: "hide"},
			{ID: "b", Field: "x", Equals: []any{1}, Action: ActionDrop},
			{ID: "c", Field: "x", OlderThanDays: -3, Action: ActionDemote},
			{ID: "d", Field: "x", OlderThanDays: maxDays + 1, Action: ActionDemote},
		},
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"space", "thresholds.faq", "thresholds.lookup", "thresholds.broad", "thresholds.comparison", "everything_threshold",
		"insufficient_below", "min_chunks 6 is above max_chunks 5 in the policy", "max_context_tokens", "mode", "fallback", "long_chunk",
		"rules[0] (\"\"): id is missing", "rules[0] (\"\"): field is missing", "rules[0] (\"\"): action", "rules[0] (\"\"): it has no condition",
		"rules[2] (\"a\"): id is already that of rules[1]", "rules[2] (\"a\"): action is \"hide\"", "two conditions", "equals is a []interface {}",
		"older_than_days is -3", "older_than_days is 3652426"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 22 {
		t.Errorf("%d problems reported, want 22:\n%v", n, err)
	}
	var re *RuleError
	if !errors.As(err, &re) || re.Index != 0 {
		t.Errorf("no rule error within: %+v", re)
	}
	bad = DefaultPolicy()
	bad.MaxChunks = 0
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "max_chunks") != 1 {
		t.Errorf("a maximum of 0 should be said once: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	p := DefaultPolicy()
	if w := p.Warnings(); len(w) != 0 {
		t.Errorf("the default policy warns: %q", w)
	}
	p.Thresholds = Thresholds{FAQ: 0.39, Lookup: 0.4, Broad: 0.8, Comparison: 0.81}
	w := p.Warnings()
	if len(w) != 2 || !strings.Contains(w[0], "thresholds.faq is 0.39, under 0.4") || !strings.Contains(w[1], "thresholds.comparison is 0.81, over 0.8") {
		t.Errorf("%q", w)
	}
}
