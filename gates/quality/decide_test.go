package quality

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

const question = "how many vacation days do employees get"

// scored returns chunks with these logits; NaN stands for a failed row, absent for one that was not scored.
func scored(logits ...float64) []Chunk {
	chunks := make([]Chunk, len(logits))
	for i, l := range logits {
		chunks[i] = Chunk{Text: fmt.Sprintf("text %d", i), Logit: Logit(l), Scored: true, Tokens: 10}
		if l == absent {
			chunks[i].Logit, chunks[i].Scored = 0, false
		}
	}
	return chunks
}

const absent = 1e30

func withSimilarity(chunks []Chunk, s ...float64) []Chunk {
	for i := range s {
		if s[i] != absent {
			chunks[i].Similarity = &s[i]
		}
	}
	return chunks
}

func params(t testing.TB, o Overrides) Params {
	t.Helper()
	p, err := Resolve(DefaultPolicy(), o, FAQ)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outline writes a list as "index outcome", for comparison.
func outline(list []Result) string {
	var b strings.Builder
	for i, r := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d:%s", r.Index, r.Outcome)
	}
	return b.String()
}

func TestDecide(t *testing.T) {
	half := ptr[Relevance](0.5)
	for _, c := range []struct {
		name          string
		o             Overrides
		chunks        []Chunk
		kept, dropped string
		passed        int
		triggered     bool
		insufficient  string // part of the reason; "" for sufficient
		unscored      int
	}{
		{name: "ordinary: the three that pass, best first", o: Overrides{Threshold: half}, chunks: scored(-9, 4, -11, 6, -10, 5, -8, -12),
			kept: "3:kept 5:kept 1:kept", dropped: "6:dropped 0:dropped 4:dropped 2:dropped 7:dropped", passed: 3},
		{name: "threshold 0 lets all scored pass", o: Overrides{Threshold: ptr[Relevance](0), MaxChunks: ptr(8)}, chunks: scored(-80, 4, -110),
			kept: "1:kept 0:kept 2:kept", passed: 3},
		{name: "maximum cuts after sorting", o: Overrides{Threshold: half, MaxChunks: ptr(1)}, chunks: scored(1, 2, 3),
			kept: "2:kept", dropped: "1:dropped 0:dropped", passed: 3},
		{name: "default maximum", o: Overrides{Threshold: half}, chunks: scored(1, 2, 3, 4, 5, 6, 7),
			kept: "6:kept 5:kept 4:kept 3:kept 2:kept", dropped: "1:dropped 0:dropped", passed: 7},
		{name: "ties by index", o: Overrides{Threshold: half}, chunks: scored(2, 3, 2, 3), kept: "1:kept 3:kept 0:kept 2:kept", passed: 4},
		{name: "saturated relevances keep the order of logits", o: Overrides{Threshold: half}, chunks: scored(50, 60, 55), kept: "1:kept 2:kept 0:kept", passed: 3},

		{name: "top adds the best of the rest", o: Overrides{MinChunks: ptr(3)}, chunks: scored(-4, 3, -2, -3),
			kept: "1:kept 2:fallback 3:fallback", dropped: "0:dropped", passed: 1, triggered: true, insufficient: "average relevance"},
		{name: "top, average over the floor", o: Overrides{}, chunks: scored(-1, 3, -2), kept: "1:kept 0:fallback", dropped: "2:dropped",
			passed: 1, triggered: true},
		{name: "top, none passes", o: Overrides{}, chunks: scored(-9, -8, -7), kept: "2:fallback 1:fallback", dropped: "0:dropped",
			triggered: true, insufficient: "average relevance of 0.001, under the floor 0.4"},
		{name: "one chunk that passes is under the minimum", o: Overrides{}, chunks: scored(3), kept: "0:kept", passed: 1, triggered: true},
		{name: "minimum over the number", o: Overrides{MinChunks: ptr(5)}, chunks: scored(-9, -8), kept: "1:fallback 0:fallback", triggered: true, insufficient: "floor"},
		{name: "minimum 0 triggers nothing", o: Overrides{MinChunks: ptr(0)}, chunks: scored(-9, -8), dropped: "1:dropped 0:dropped"},
		{name: "insufficient adds nothing", o: Overrides{Fallback: ptr(FallbackInsufficient)}, chunks: scored(-9, 3, -8), kept: "1:kept",
			dropped: "2:dropped 0:dropped", passed: 1, triggered: true, insufficient: "1 of 3 chunks passed, and min_chunks is 2"},
		{name: "insufficient, enough pass", o: Overrides{Fallback: ptr(FallbackInsufficient)}, chunks: scored(4, 3), kept: "0:kept 1:kept", passed: 2},
		{name: "expand returns as top", o: Overrides{Fallback: ptr(FallbackExpand)}, chunks: scored(-9, -8, -7), kept: "2:fallback 1:fallback",
			dropped: "0:dropped", triggered: true, insufficient: "floor"},

		{name: "nothing given", chunks: nil, triggered: true, insufficient: "no chunk was given"},
		{name: "nothing given, minimum 0", o: Overrides{MinChunks: ptr(0)}, chunks: nil, insufficient: "no chunk was given"},
		{name: "nothing given, everything", o: Overrides{Mode: ptr(ModeEverything)}, chunks: nil, triggered: true, insufficient: "no chunk was given"},

		{name: "everything lifts the maximum", o: Overrides{Mode: ptr(ModeEverything)}, chunks: scored(1, 2, 3, 4, 5, 6, 7, -2.5, -3),
			kept: "6:kept 5:kept 4:kept 3:kept 2:kept 1:kept 0:kept 7:kept", dropped: "8:dropped", passed: 8},
		{name: "everything with the request's maximum", o: Overrides{Mode: ptr(ModeEverything), MaxChunks: ptr(2)}, chunks: scored(1, 2, 3),
			kept: "2:kept 1:kept", dropped: "0:dropped", passed: 3},

		{name: "nothing scored: by similarity", chunks: withSimilarity(scored(absent, absent, absent), 0.1, 0.9, 0.5), kept: "1:fallback 2:fallback",
			dropped: "0:unscored", triggered: true, unscored: 3},
		{name: "nothing scored, insufficient asked", o: Overrides{Fallback: ptr(FallbackInsufficient)}, chunks: scored(absent, absent, absent),
			kept: "0:fallback 1:fallback", dropped: "2:unscored", triggered: true, unscored: 3, insufficient: "0 of 3"},
		{name: "nothing scored, keyword asked", o: Overrides{Fallback: ptr(FallbackKeyword)}, chunks: withSimilarity(scored(absent, absent, absent), absent, 0.2, 0.3),
			kept: "2:fallback 1:fallback", dropped: "0:unscored", triggered: true, unscored: 3},
		{name: "nothing scored, minimum 0", o: Overrides{MinChunks: ptr(0)}, chunks: scored(absent), dropped: "0:unscored", unscored: 1,
			insufficient: "nothing was scored"},
		{name: "unscored stand behind the scored", chunks: withSimilarity(scored(absent, -9, absent, 3), 0.1, 0, 0.9), kept: "3:kept 1:fallback",
			dropped: "2:unscored 0:unscored", passed: 1, triggered: true, unscored: 2},
		{name: "too few scored: unscored fill up", chunks: withSimilarity(scored(absent, 3, absent), 0.1, 0, 0.9), kept: "1:kept 2:fallback", dropped: "0:unscored",
			passed: 1, triggered: true, unscored: 2},
		{name: "unscored without similarity in the given order, behind those with", o: Overrides{MinChunks: ptr(0)},
			chunks: withSimilarity(scored(absent, absent, absent, absent), absent, -0.5, absent, 0.5), dropped: "3:unscored 1:unscored 0:unscored 2:unscored",
			unscored: 4, insufficient: "nothing was scored"},
		{name: "similarity that is no number counts as none", o: Overrides{MinChunks: ptr(0)},
			chunks:  withSimilarity(scored(absent, absent, absent, absent), math.NaN(), math.Inf(1), math.Inf(-1), 0.5),
			dropped: "3:unscored 0:unscored 1:unscored 2:unscored", unscored: 4, insufficient: "nothing was scored"},
		{name: "similarity is not relevance", o: Overrides{MinChunks: ptr(1)}, chunks: withSimilarity(scored(-9, 3, -8), 0.99, 0.01, 0.9), kept: "1:kept",
			dropped: "2:dropped 0:dropped", passed: 1},

		{name: "NaN never passes", o: Overrides{Threshold: ptr[Relevance](0), MinChunks: ptr(1)}, chunks: scored(math.NaN(), -20), kept: "1:kept",
			dropped: "0:unscored", passed: 1, unscored: 1},
		{name: "nor does infinity", o: Overrides{Threshold: ptr[Relevance](0), MinChunks: ptr(1)}, chunks: scored(math.Inf(1), -20, math.Inf(-1)), kept: "1:kept",
			dropped: "0:unscored 2:unscored", passed: 1, unscored: 2},
		{name: "only NaN", chunks: withSimilarity(scored(math.NaN(), math.NaN(), math.NaN()), 0.1, 0.2, 0.3), kept: "2:fallback 1:fallback", dropped: "0:unscored",
			triggered: true, unscored: 3},

		{name: "context holds two", o: Overrides{Threshold: half, MaxContextTokens: ptr(29)}, chunks: scored(3, 2, 1), kept: "0:kept 1:kept", dropped: "2:dropped", passed: 3},
		{name: "context holds exactly three", o: Overrides{Threshold: half, MaxContextTokens: ptr(30)}, chunks: scored(3, 2, 1), kept: "0:kept 1:kept 2:kept", passed: 3},
		{name: "the first always fits", o: Overrides{Threshold: half, MaxContextTokens: ptr(1)}, chunks: scored(3, 2, 1), kept: "0:kept", dropped: "1:dropped 2:dropped", passed: 3},
		{name: "context cuts a fallback too", o: Overrides{MaxContextTokens: ptr(15)}, chunks: scored(-1, absent, -3), kept: "0:fallback", dropped: "2:dropped 1:unscored",
			triggered: true, unscored: 1, insufficient: "floor"},
	} {
		d := Decide(params(t, c.o), question, c.chunks, now)
		if got := outline(d.Chunks); got != c.kept {
			t.Errorf("%s: returned %s, want %s", c.name, got, c.kept)
		}
		if got := outline(d.Dropped); got != c.dropped {
			t.Errorf("%s: dropped %s, want %s", c.name, got, c.dropped)
		}
		s := d.Stats
		if s.Passed != c.passed || s.FallbackTriggered != c.triggered || s.Unscored != c.unscored || s.Retrieved != len(c.chunks) {
			t.Errorf("%s: %+v", c.name, s)
		}
		if d.InsufficientContext != (c.insufficient != "") || !strings.Contains(d.InsufficientReason, c.insufficient) ||
			d.InsufficientContext != (d.InsufficientReason != "") {
			t.Errorf("%s: insufficient context %v, %q", c.name, d.InsufficientContext, d.InsufficientReason)
		}
		if (d.ExpandedQuery != "") != (c.triggered && c.o.Fallback != nil && *c.o.Fallback == FallbackExpand) {
			t.Errorf("%s: expanded query %q", c.name, d.ExpandedQuery)
		}
	}
}

// TestThresholdIsInclusive sends back the relevance that was printed for each chunk, as a caller would, and then the next float64 above it.
func TestThresholdIsInclusive(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		chunks := scored(rng.NormFloat64()*6, rng.NormFloat64()*6, rng.NormFloat64()*6)
		all := Decide(params(t, Overrides{Threshold: ptr[Relevance](0), MinChunks: ptr(0)}), question, chunks, now)
		for rank, r := range all.Chunks {
			at := Decide(params(t, Overrides{Threshold: ptr(r.Relevance), MinChunks: ptr(0)}), question, chunks, now)
			if at.Stats.Passed <= rank || at.Chunks[rank].Index != r.Index {
				t.Fatalf("seed %d: logit %v does not reach its own relevance %v", seed, r.Logit, r.Relevance)
			}
			above := Relevance(math.Nextafter(float64(r.Relevance), 2))
			if above > 1 {
				continue
			}
			if Decide(params(t, Overrides{Threshold: ptr(above), MinChunks: ptr(0)}), question, chunks, now).Stats.Passed > rank {
				t.Fatalf("seed %d: logit %v passes a threshold above its relevance", seed, r.Logit)
			}
		}
	}
}

func TestStatsArithmetic(t *testing.T) {
	chunks := withSimilarity(scored(2, absent, -1, math.NaN(), 0.5, -6), 0.3, 0.9, 0.2, 0.1, 0.4, 0.5)
	chunks[0].Cut, chunks[5].Cut = 3, 100
	s := Decide(params(t, Overrides{MinChunks: ptr(4)}), question, chunks, now).Stats
	// Returned: 2 and 0.5 pass 0.6 (0.8808, 0.6225), -1 (0.2689) and -6 (0.0025) are added.
	want := []float64{0.8807970779778823, 0.6224593312018546, 0.2689414213699951, 0.0024726231566347743}
	mean := (want[0] + want[1] + want[2] + want[3]) / 4
	if math.Abs(float64(s.AvgRelevance)-mean) > 1e-12 || math.Abs(float64(s.MaxRelevance)-want[0]) > 1e-12 || math.Abs(float64(s.MinRelevance)-want[3]) > 1e-12 {
		t.Errorf("average %v, maximum %v, minimum %v; want %v, %v, %v", s.AvgRelevance, s.MaxRelevance, s.MinRelevance, mean, want[0], want[3])
	}
	s.AvgRelevance, s.MinRelevance, s.MaxRelevance = 0, 0, 0
	if want := (Stats{Filtered: true, Retrieved: 6, Returned: 4, Passed: 2, FallbackTriggered: true, Threshold: 0.6, QueryType: FAQ, ScoredBy: ByReranker,
		Unscored: 2, Truncated: 2, HasRelevance: true}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}

	// An unscored chunk among the returned is not part of the average.
	s = Decide(params(t, Overrides{}), question, scored(2, absent), now).Stats
	if s.Returned != 2 || s.AvgRelevance != s.MaxRelevance || s.MinRelevance != s.MaxRelevance || math.Abs(float64(s.MaxRelevance)-want[0]) > 1e-12 {
		t.Errorf("%+v", s)
	}
	// No score, no average.
	s = Decide(params(t, Overrides{}), question, scored(absent, absent, absent), now).Stats
	if s.HasRelevance || s.Filtered || s.ScoredBy != ByOrder || s.Returned != 2 {
		t.Errorf("%+v", s)
	}
	s = Decide(params(t, Overrides{}), question, withSimilarity(scored(absent, absent), 0.1), now).Stats
	if s.ScoredBy != BySimilarity {
		t.Errorf("%+v", s)
	}
	if s = Decide(params(t, Overrides{MinChunks: ptr(0)}), question, scored(-9), now).Stats; s.HasRelevance || !s.Filtered {
		t.Errorf("%+v", s)
	}
	// The mean of equal numbers is that number.
	s = Decide(params(t, Overrides{Threshold: ptr[Relevance](0)}), question, scored(-2.2, -2.2, -2.2), now).Stats
	if s.AvgRelevance != s.MinRelevance || s.AvgRelevance != s.MaxRelevance {
		t.Errorf("%+v", s)
	}
}

func TestFloorIsExclusive(t *testing.T) {
	p := params(t, Overrides{})
	p.Floor = Logit(-1).Relevance()
	if d := Decide(p, question, scored(-1, -1), now); d.InsufficientContext {
		t.Errorf("an average at the floor is insufficient: %s", d.InsufficientReason)
	}
	p.Floor = Relevance(math.Nextafter(float64(p.Floor), 1))
	d := Decide(p, question, scored(-1, -1), now)
	if !d.InsufficientContext || !strings.Contains(d.InsufficientReason, "0.2689414213699951, under the floor 0.26894142136999516") {
		t.Errorf("%v, %q", d.InsufficientContext, d.InsufficientReason)
	}
}

func TestKeywordFallback(t *testing.T) {
	texts := []string{
		"The office kitchen is cleaned on Fridays.",
		"The vacation days of employees are a topic that many books avoid, and so do we.",
		"Bananas are rich in potassium.",
		"Vacation photos",
		"Days of thunder",
	}
	build := func(logits ...float64) []Chunk {
		chunks := scored(logits...)
		for i := range chunks {
			chunks[i].Text = texts[i]
		}
		return chunks
	}
	for _, c := range []struct {
		name          string
		o             Overrides
		chunks        []Chunk
		kept, dropped string
	}{
		{"the best by words", Overrides{MinChunks: ptr(1)}, build(-1, -5, -2, -3, -4), "1:fallback", "0:dropped 2:dropped 3:dropped 4:dropped"},
		{"returned best first by logit", Overrides{MinChunks: ptr(3)}, build(-1, -5, -2, -3, -4), "3:fallback 4:fallback 1:fallback", "0:dropped 2:dropped"},
		{"what passed stays", Overrides{}, build(3, -5, -2, -3, -4), "0:kept 1:fallback", "2:dropped 3:dropped 4:dropped"},
		{"nothing shared: by rank", Overrides{MinChunks: ptr(4)}, build(-5, -4, -1, -2, -3), "2:fallback 3:fallback 4:fallback 1:fallback", "0:dropped"},
		{"an unscored one can be chosen", Overrides{MinChunks: ptr(1)}, build(-1, absent, -2, -3, -4), "1:fallback", "0:dropped 2:dropped 3:dropped 4:dropped"},
	} {
		c.o.Fallback = ptr(FallbackKeyword)
		d := Decide(params(t, c.o), question, c.chunks, now)
		if got := outline(d.Chunks); got != c.kept {
			t.Errorf("%s: returned %s, want %s", c.name, got, c.kept)
		}
		if got := outline(d.Dropped); got != c.dropped {
			t.Errorf("%s: dropped %s, want %s", c.name, got, c.dropped)
		}
	}
}

func TestKeywordTiesGoByRank(t *testing.T) {
	chunks := scored(make([]float64, 60)...)
	for i := range chunks {
		chunks[i].Text, chunks[i].Logit = []string{"vacation", "bananas"}[i%2], Logit(-60+i%30)
	}
	d := Decide(params(t, Overrides{Fallback: ptr(FallbackKeyword), MinChunks: ptr(4)}), question, chunks, now)
	if got, want := outline(d.Chunks), "28:fallback 58:fallback 26:fallback 56:fallback"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestExpandFallback(t *testing.T) {
	chunks := scored(-3, -1, -2, -9)
	chunks[0].Text = "Part-time staff: allowance pro rata."
	chunks[1].Text = "Allowance of leave per calendar year; the allowance of 2024."
	chunks[2].Text = "Calendar of leave."
	chunks[3].Text = "zzz zzz zzz"
	p := params(t, Overrides{Fallback: ptr(FallbackExpand)})
	d := Decide(p, question, chunks, now)
	if want := question + " calendar leave allowance year part"; d.ExpandedQuery != want {
		t.Errorf("expanded to %q, want %q", d.ExpandedQuery, want)
	}
	if d := Decide(p, question, scored(3, 4), now); d.ExpandedQuery != "" {
		t.Errorf("expanded without need: %q", d.ExpandedQuery)
	}
	for i := range chunks {
		chunks[i].Scored = false
	}
	if d := Decide(p, "vacation", chunks, now); !strings.HasPrefix(d.ExpandedQuery, "vacation ") || outline(d.Chunks) != "0:fallback 1:fallback" {
		t.Errorf("nothing scored: %q, %s", d.ExpandedQuery, outline(d.Chunks))
	}
}

func TestContextIsAssembled(t *testing.T) {
	chunks := scored(1, 3, -2)
	chunks[0].Text, chunks[1].Text, chunks[2].Text = "second", "first\nline", "never"
	p := params(t, Overrides{ReturnContext: true, Threshold: ptr[Relevance](0.5)})
	if got, want := Decide(p, question, chunks, now).Context, "[Source 1]: first\nline\n\n[Source 2]: second"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.MaxContextTokens = 12
	if got, want := Decide(p, question, chunks, now).Context, "[Source 1]: first\nline"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Decide(p, question, nil, now).Context; got != "" {
		t.Errorf("%q without chunks", got)
	}
	p.ReturnContext = false
	if got := Decide(p, question, chunks, now).Context; got != "" {
		t.Errorf("%q without being asked", got)
	}
	many := make([]string, 12)
	if got := AssembleContext(many); !strings.HasSuffix(got, "\n\n[Source 12]: ") {
		t.Errorf("%q", got)
	}
}

func TestTokensAreEstimatedWhereUnknown(t *testing.T) {
	chunks := scored(3, 2, 1)
	for i := range chunks {
		chunks[i].Tokens, chunks[i].Text = 0, strings.Repeat("x", 30)
	}
	if d := Decide(params(t, Overrides{MaxContextTokens: ptr(20)}), question, chunks, now); len(d.Chunks) != 2 {
		t.Errorf("%d chunks of about 10 tokens in 20", len(d.Chunks))
	}
	chunks[0].Tokens, chunks[1].Tokens = math.MaxInt, math.MaxInt
	if d := Decide(params(t, Overrides{MaxContextTokens: ptr(math.MaxInt)}), question, chunks, now); len(d.Chunks) != 1 {
		t.Errorf("%d chunks: the sum ran over", len(d.Chunks))
	}
}

func TestScoringOrder(t *testing.T) {
	p := params(t, Overrides{})
	p.Rules = []Rule{{ID: "old", Field: "deprecated", Equals: true, Action: ActionDrop}, {ID: "draft", Field: "draft", Equals: true, Action: ActionDemote}}
	chunks := withSimilarity(scored(absent, absent, absent, absent, absent, absent), 0.2, absent, 0.9, 0.2, math.NaN(), 1)
	chunks[5].Metadata = JSON(`{"deprecated": true}`)
	chunks[2].Metadata = JSON(`{"draft": true}`)
	if got, want := ScoringOrder([]int{42}, p, chunks, now), []int{42, 2, 0, 3, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	many := scored(make([]float64, 100)...) // enough for a sort that is not stable to show it
	for i := range many {
		many[i].Similarity = ptr(float64(i%2) / 2)
	}
	for n, i := range ScoringOrder(nil, p, many, now) {
		if want := n*2%100 + 1 - n/50; i != want {
			t.Fatalf("equal similarities: place %d holds %d, want %d", n, i, want)
		}
	}
	if got := ScoringOrder(nil, p, nil, now); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// random makes a request of any shape. Values that callers should not send are among them.
func random(rng *rand.Rand) (Params, []Chunk) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, -math.MaxFloat32, 0, 1e-45, 40, -40}
	chunks := make([]Chunk, rng.IntN(13))
	for i := range chunks {
		c := &chunks[i]
		c.Text = strings.Repeat([]string{"vacation ", "banana ", "", "休", "days of thunder "}[rng.IntN(5)], rng.IntN(4))
		c.Scored = rng.IntN(5) > 0
		c.Logit = Logit(rng.IntN(9) - 4) // many ties
		if rng.IntN(6) == 0 {
			c.Logit = Logit(odd[rng.IntN(len(odd))])
		}
		if rng.IntN(2) == 0 {
			c.Similarity = ptr(float64(rng.IntN(4)) / 4)
			if rng.IntN(6) == 0 {
				c.Similarity = ptr(odd[rng.IntN(len(odd))])
			}
		}
		c.Tokens, c.Cut = rng.IntN(40), rng.IntN(3)
		if rng.IntN(2) == 0 {
			c.Metadata = JSON([]string{`{"deprecated":true}`, `{"draft":true}`, `{"updated_at":"2020-01-01"}`, `{}`, `{"updated_at":"soon"`, `7`}[rng.IntN(6)])
		}
	}
	p := Params{
		Threshold: Relevance(rng.Float64()), MinChunks: rng.IntN(5), Floor: 0.4, QueryType: QueryTypes()[rng.IntN(4)],
		Fallback:      []Fallback{FallbackTop, FallbackKeyword, FallbackExpand, FallbackInsufficient}[rng.IntN(4)],
		ReturnContext: rng.IntN(2) == 0,
	}
	p.MaxChunks = max(1, p.MinChunks) + rng.IntN(4)
	switch rng.IntN(8) {
	case 0:
		p.MaxChunks = All
	case 1:
		p.MinChunks, p.MaxChunks = 1<<40, 1<<41
	case 2:
		p.MinChunks, p.MaxChunks = -3, -7
	case 3:
		p.Threshold = Relevance(math.NaN())
	}
	if rng.IntN(3) == 0 {
		p.MaxContextTokens = rng.IntN(100)
	}
	if rng.IntN(2) == 0 {
		p.Rules = []Rule{{ID: "gone", Field: "deprecated", Equals: true, Action: ActionDrop}, {ID: "draft", Field: "draft", Equals: true, Action: ActionDemote},
			{ID: "old", Field: "updated_at", OlderThanDays: 365, Action: []Action{ActionDrop, ActionDemote}[rng.IntN(2)]}}
	}
	return p, chunks
}

// checkDecision holds what is true of every decision.
func checkDecision(t *testing.T, p Params, chunks []Chunk, d Decision) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf(format+"\nparams %+v\nreturned %s\ndropped %s\nstats %+v", append(args, p, outline(d.Chunks), outline(d.Dropped), d.Stats)...)
	}
	s := d.Stats
	seen := make([]bool, len(chunks))
	passing, unscored := 0, 0
	for n, r := range append(slices.Clone(d.Chunks), d.Dropped...) {
		returned := n < len(d.Chunks)
		if r.Index < 0 || r.Index >= len(chunks) || seen[r.Index] {
			fail("chunk %d twice or never given", r.Index)
			return
		}
		seen[r.Index] = true
		c := &chunks[r.Index]
		number := c.Scored && !math.IsNaN(float64(c.Logit)) && !math.IsInf(float64(c.Logit), 0)
		if r.Scored != number || number && (r.Logit != c.Logit || r.Relevance != c.Logit.Relevance()) {
			fail("chunk %d: its score is not its score", r.Index)
		}
		pass := number && r.Relevance >= p.Threshold
		if pass {
			passing++
		}
		ruledOut := r.Rule >= 0 && p.Rules[r.Rule].Action == ActionDrop
		if !number && !ruledOut {
			unscored++
		}
		switch r.Outcome {
		case Kept:
			if !returned || !pass {
				fail("chunk %d kept without having passed", r.Index)
			}
		case AddedFallback:
			if !returned || pass || !s.FallbackTriggered {
				fail("chunk %d added without need", r.Index)
			}
		case Dropped:
			if returned || !number && !ruledOut {
				fail("chunk %d dropped unseen", r.Index)
			}
		case Unscored:
			if returned || number {
				fail("chunk %d called unscored", r.Index)
			}
		default:
			fail("chunk %d: outcome %q", r.Index, r.Outcome)
		}
		if returned && ruledOut {
			fail("chunk %d returned against a rule", r.Index)
		}
		if reason := d.Reason(r); len(reason) < 10 || strings.Contains(reason, "%!") {
			fail("chunk %d: reason %q", r.Index, reason)
		}
	}
	if n := len(d.Chunks) + len(d.Dropped); n != len(chunks) || s.Retrieved != n || s.Returned != len(d.Chunks) || s.Passed != passing || s.Unscored != unscored {
		fail("counts do not add up: %d passing, %d unscored", passing, unscored)
	}
	if len(p.Rules) == 0 && s.FallbackTriggered != (passing < p.MinChunks) {
		fail("fallback")
	}
	if most := max(p.MaxChunks, p.MinChunks, 0); len(d.Chunks) > most {
		fail("%d returned, at most %d allowed", len(d.Chunks), most)
	}
	if p.MaxContextTokens == 0 && len(p.Rules) == 0 {
		if p.Fallback != FallbackInsufficient && len(d.Chunks) < min(p.MinChunks, len(chunks)) {
			fail("fewer than min_chunks, although there are more")
		}
		if want := min(passing, max(p.MaxChunks, p.MinChunks, 0)); want > len(d.Chunks) {
			fail("%d should be returned", want)
		}
	}
	for i := 1; i < len(d.Chunks); i++ {
		a, b := d.Chunks[i-1], d.Chunks[i]
		demoted := func(r Result) bool { return r.Rule >= 0 }
		switch {
		case a.Outcome != Kept && b.Outcome == Kept, !a.Scored && b.Scored:
			fail("%d before %d", a.Index, b.Index)
		case a.Outcome == b.Outcome && a.Scored == b.Scored && demoted(a) == demoted(b) && a.Scored:
			if a.Logit < b.Logit || a.Logit == b.Logit && a.Index > b.Index {
				fail("%d before %d", a.Index, b.Index)
			}
		}
	}
	if p.MaxContextTokens > 0 && len(d.Chunks) > 1 {
		sum := 0
		for _, r := range d.Chunks {
			sum += tokensOf(&chunks[r.Index])
		}
		if sum > p.MaxContextTokens {
			fail("%d tokens returned", sum)
		}
	}
	if s.HasRelevance && !(s.MinRelevance <= s.AvgRelevance && s.AvgRelevance <= s.MaxRelevance) {
		fail("average outside")
	}
	if len(chunks) == 0 && !d.InsufficientContext {
		fail("nothing is enough")
	}
}

func TestDecisionsHoldTogether(t *testing.T) {
	const seed = 20250601
	for n := uint64(0); n < 20000 && !t.Failed(); n++ {
		p, chunks := random(rand.New(rand.NewPCG(seed, n)))
		d := Decide(p, "vacation days", chunks, now)
		if checkDecision(t, p, chunks, d); t.Failed() {
			t.Logf("seed %d, %d", seed, n)
		}
		if again := Decide(p, "vacation days", chunks, now); !reflect.DeepEqual(outlineAll(again), outlineAll(d)) {
			t.Fatalf("seed %d, %d: two decisions on the same differ", seed, n)
		}
	}
}

func outlineAll(d Decision) []string {
	return []string{outline(d.Chunks), outline(d.Dropped), d.Context, d.ExpandedQuery, d.InsufficientReason, fmt.Sprint(d.Stats)}
}

// TestThresholdIsMonotone: a higher threshold never lets more pass, and keeps no chunk that the lower one dropped as irrelevant.
func TestThresholdIsMonotone(t *testing.T) {
	const seed = 11
	for n := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, n))
		p, chunks := random(rng)
		p.Rules, p.MaxContextTokens = nil, 0
		high := p
		p.Threshold, high.Threshold = Relevance(rng.Float64()), Relevance(rng.Float64())
		if p.Threshold > high.Threshold {
			p, high = high, p
		}
		a, b := Decide(p, "", chunks, now), Decide(high, "", chunks, now)
		if b.Stats.Passed > a.Stats.Passed {
			t.Fatalf("seed %d, %d: %d pass %v, %d pass %v", seed, n, a.Stats.Passed, p.Threshold, b.Stats.Passed, high.Threshold)
		}
		kept := make(map[int]bool)
		for _, r := range a.Chunks {
			kept[r.Index] = r.Outcome == Kept
		}
		for _, r := range b.Chunks {
			if r.Outcome == Kept && !kept[r.Index] {
				t.Fatalf("seed %d, %d: chunk %d is kept at %v, not at %v", seed, n, r.Index, high.Threshold, p.Threshold)
			}
		}
	}
}

// TestOrderOfChunksMattersOnlyForTies: chunks given in another order get the same outcomes, when no two scores are equal; equal
// ones come in the order given.
func TestOrderOfChunksMattersOnlyForTies(t *testing.T) {
	const seed = 5
	for n := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, n))
		p, chunks := random(rng)
		for i := range chunks {
			if rng.IntN(4) > 0 {
				chunks[i].Logit += Logit(i) / 1000
			}
			chunks[i].Similarity = ptr(rng.Float64())
			chunks[i].Text += fmt.Sprint(" word", i)
		}
		order := rng.Perm(len(chunks))
		moved := make([]Chunk, len(chunks))
		for to, from := range order {
			moved[to] = chunks[from]
		}
		a, b := Decide(p, "vacation days", chunks, now), Decide(p, "vacation days", moved, now)
		tie := func(x, y Result) bool {
			if x.Scored != y.Scored {
				return false
			}
			return x.Scored && x.Logit == y.Logit
		}
		for i, r := range append(slices.Clone(a.Chunks), a.Dropped...) {
			other := append(slices.Clone(b.Chunks), b.Dropped...)[i]
			if order[other.Index] != r.Index && !tie(r, other) {
				t.Fatalf("seed %d, %d: place %d holds chunk %d, after moving chunk %d", seed, n, i, r.Index, order[other.Index])
			}
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(uint64(1), uint64(2), "vacation days", "text", float32(1), 0.5)
	f.Fuzz(func(t *testing.T, a, b uint64, query, text string, logit float32, threshold float64) {
		p, chunks := random(rand.New(rand.NewPCG(a, b)))
		p.Threshold = Relevance(threshold)
		chunks = append(chunks, Chunk{Text: text, Logit: Logit(logit), Scored: true, Similarity: &threshold, Metadata: JSON(text)})
		checkDecision(t, p, chunks, Decide(p, query, chunks, now))
		checkDecision(t, p, nil, Decide(p, query, nil, now))
	})
}

func TestReasons(t *testing.T) {
	p, err := Resolve(DefaultPolicy(), Overrides{MinChunks: ptr(3), MaxChunks: ptr(3), MaxContextTokens: ptr(100)}, Broad)
	if err != nil {
		t.Fatal(err)
	}
	p.Rules = []Rule{{ID: "outdated", Field: "updated_at", OlderThanDays: 90, Action: ActionDrop}, {ID: "draft", Field: "state", Equals: "draft", Action: ActionDemote}}
	check := func(name string, p Params, chunks []Chunk, want map[int]string) {
		t.Helper()
		d := Decide(p, question, chunks, now)
		got := make(map[int]string)
		for _, r := range append(slices.Clone(d.Chunks), d.Dropped...) {
			got[r.Index] = d.Reason(r)
		}
		for i, w := range want {
			if got[i] != w {
				t.Errorf("%s: chunk %d\n got %s\nwant %s", name, i, got[i], w)
			}
		}
	}

	chunks := scored(3, 2, 1, 0.5, -3, absent, math.NaN(), 4, 5)
	chunks[0].Cut = 7
	chunks[1].Windows, chunks[1].Window = 5, 2
	chunks[2].Metadata = JSON(`{"state":"draft"}`)
	chunks[7].Metadata = JSON(`{"updated_at":"2024-01-01"}`)
	chunks[8].Tokens = 85
	check("enough pass", p, chunks, map[int]string{
		8: "relevance 0.993 reaches the threshold 0.4 of the policy for broad queries",
		0: "relevance 0.953 reaches the threshold 0.4 of the policy for broad queries; 7 of its tokens were over the model's limit and not read",
		1: "relevance 0.881 (of window 3, the best of 5) reaches the threshold 0.4 of the policy for broad queries; its 10 tokens no longer fit into max_context_tokens 100, of which better chunks hold 95",
		2: `relevance 0.731 reaches the threshold 0.4 of the policy for broad queries, but max_chunks 3 are full of better ones; rule "draft" puts it last: state is draft`,
		4: "relevance 0.047 is under the threshold 0.4 of the policy for broad queries",
		5: "not scored: the time ran out; raise budget_ms or send fewer chunks to have all judged",
		6: "not scored: the model gave no number for it",
		7: `rule "outdated" drops it: updated_at is older than 90 days; relevance 0.982`,
	})
	check("top", p, scored(3, -1, absent), map[int]string{
		1: "relevance 0.269 is under the threshold 0.4 of the policy for broad queries; added because 1 passed and min_chunks is 3, as one of the best of the rest",
		2: "not scored: the time ran out; added because 1 passed and min_chunks is 3, as one of the best of the rest",
	})
	p.Fallback = FallbackKeyword
	chunks = scored(-1, -2)
	chunks[1].Text = "vacation"
	check("keyword", p, chunks, map[int]string{
		0: "relevance 0.269 is under the threshold 0.4 of the policy for broad queries; added because 0 passed and min_chunks is 3, by rank, as it shares no word with the query",
		1: "relevance 0.119 is under the threshold 0.4 of the policy for broad queries; added because 0 passed and min_chunks is 3, for the words it shares with the query (BM25 0.80)",
	})
	p.WhyUnscored = "the model failed"
	check("nothing scored", p, scored(absent), map[int]string{0: "not scored: the model failed; nothing was, so the first 3 by the given order are returned unjudged"})
	check("nothing scored", p, withSimilarity(scored(absent), 0.5), map[int]string{0: "not scored: the model failed; nothing was, so the first 3 by similarity are returned unjudged"})
	p.MinChunks = 0
	check("not scored", p, scored(absent), map[int]string{0: "not scored: the model failed"})
	p.Threshold, p.ThresholdFrom = 0.6000000001, "the request"
	near := scored(0.405465108)
	check("hair under", p, near, map[int]string{0: fmt.Sprintf("relevance %v is under the threshold 0.6000000001 of the request", near[0].Logit.Relevance())})
}

func TestAllocations(t *testing.T) {
	chunks := benchChunks()
	p := params(t, Overrides{})
	const budget = 3 // rows, results, and one to spare
	if got := testing.AllocsPerRun(50, func() { Decide(p, question, chunks, now) }); got > budget {
		t.Errorf("%v allocations for %d chunks, budget %d", got, len(chunks), budget)
	}
}

func benchChunks() []Chunk {
	rng := rand.New(rand.NewPCG(3, 4))
	chunks := make([]Chunk, 20)
	for i := range chunks {
		chunks[i] = Chunk{Text: strings.Repeat("Full-time employees receive 25 vacation days per calendar year. ", 8), Logit: Logit(rng.NormFloat64() * 5), Scored: true,
			Tokens: 120, Similarity: ptr(rng.Float64()), Metadata: JSON(`{"source":"handbook.pdf","page":12,"updated_at":"2024-05-01T08:00:00Z"}`)}
	}
	return chunks
}

// BenchmarkDecide measures a decision on 20 chunks of 128 tokens, without scoring them.
func BenchmarkDecide(b *testing.B) {
	rule := []Rule{{ID: "old", Field: "updated_at", OlderThanDays: 365, Action: ActionDemote}}
	for _, c := range []struct {
		name  string
		o     Overrides
		rules []Rule
		texts bool
	}{
		{name: "plain"},
		{name: "reasons", texts: true},
		{name: "rule", rules: rule},
		{name: "context", o: Overrides{ReturnContext: true, MaxContextTokens: ptr(2000)}},
		{name: "keyword", o: Overrides{Threshold: ptr[Relevance](1), Fallback: ptr(FallbackKeyword)}},
		{name: "expand", o: Overrides{Threshold: ptr[Relevance](1), Fallback: ptr(FallbackExpand)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			chunks := benchChunks()
			p := params(b, c.o)
			p.Rules = c.rules
			b.ReportAllocs()
			for b.Loop() {
				d := Decide(p, question, chunks, now)
				if c.texts {
					for _, r := range d.Chunks {
						d.Reason(r)
					}
					for _, r := range d.Dropped {
						d.Reason(r)
					}
				}
			}
		})
	}
}

func BenchmarkClassifyQuery(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ClassifyQuery("Could you tell me how many vacation days I have left this year?")
	}
}
