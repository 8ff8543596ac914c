package gates

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ragate/gates/policy"
	"ragate/gates/quality"
)

// memory is a Memo that forgets nothing.
type memory map[[32]byte]any

func (m memory) Recall(_ context.Context, parts []string) (key [32]byte, decision any, ok bool) {
	key = sha256.Sum256([]byte(fmt.Sprintf("%q", parts)))
	decision, ok = m[key]
	return key, decision, ok
}

func (m memory) Remember(key [32]byte, decision any, _ int) { m[key] = decision }

// remembering is a gate with a memory, and its scorer.
func remembering(p policy.Policy, m memory) (*ChunkGate, *fakeScorer) {
	s := &fakeScorer{logits: map[string]float32{"a": 3, "b": 2, "c": -3, "d": -4}, clock: newClock()}
	g := NewChunkGate(p, s, s.clock.Now, "model")
	g.SetMemo(m)
	return g, s
}

// TestDecisionsAreRememberedWhole: a decision that is recalled says what it said, of the texts that this request sent, and took no model's time.
func TestDecisionsAreRememberedWhole(t *testing.T) {
	g, s := remembering(policy.Default(), memory{})
	ask := func() ChunkDecision {
		d, err := g.Decide(t.Context(), ChunkRequest{Query: "how do I park", Chunks: chunksOf("c", "a", "b", "d"), Overrides: quality.Overrides{ReturnContext: true}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, second := ask(), ask()
	if s.calls != 1 {
		t.Fatalf("the model was asked %d times", s.calls)
	}
	reasons := func(d ChunkDecision) (out []string) {
		for _, r := range slices.Concat(d.Chunks, d.Dropped) {
			out = append(out, fmt.Sprintf("%d %s %v %v %s", r.Index, r.Outcome, r.Relevance, r.Logit, d.Reason(r)))
		}
		return out
	}
	if !slices.Equal(reasons(first), reasons(second)) || !reflect.DeepEqual(first.Stats, second.Stats) || first.Context != second.Context || first.Context == "" || first.Policy != second.Policy {
		t.Errorf("recalled:\n%q\n%+v\nfirst:\n%q\n%+v", reasons(second), second.Stats, reasons(first), first.Stats)
	}
	if m := second.Model; m.Tokenize+m.Queue+m.Inference != 0 || m.Reused != 4 || m.Items != 4 {
		t.Errorf("recalled, it used %+v", m)
	}
}

// TestWhatADecisionRestsOn: each of these is another question.
func TestWhatADecisionRestsOn(t *testing.T) {
	ruled := policy.Default()
	ruled.Chunks.Rules = []quality.Rule{{ID: "old", Field: "old", Equals: true, Action: quality.ActionDrop}}
	half, mode, fallback, long, one := quality.Relevance(0.5), quality.ModeEverything, quality.FallbackKeyword, quality.LongMaxPassage, 1
	base := func() ChunkRequest {
		return ChunkRequest{Query: "how do I park", Chunks: similar(chunksOf("a", "b", "c"), 0.3, 0.2, 0.1)}
	}
	for name, change := range map[string]func(*ChunkRequest){
		"the query":          func(r *ChunkRequest) { r.Query = "how do i park" },
		"a text":             func(r *ChunkRequest) { r.Chunks[2].Text = "d" },
		"the order":          func(r *ChunkRequest) { slices.Reverse(r.Chunks) },
		"one more":           func(r *ChunkRequest) { r.Chunks = append(r.Chunks, quality.Chunk{Text: "d"}) },
		"one less":           func(r *ChunkRequest) { r.Chunks = r.Chunks[:2] },
		"a similarity":       func(r *ChunkRequest) { *r.Chunks[0].Similarity = 0.9 },
		"no similarity":      func(r *ChunkRequest) { r.Chunks[0].Similarity = nil },
		"metadata":           func(r *ChunkRequest) { r.Chunks[0].Metadata = quality.JSON(`{"old":true}`) },
		"threshold":          func(r *ChunkRequest) { r.Overrides.Threshold = &half },
		"min_chunks":         func(r *ChunkRequest) { r.Overrides.MinChunks = &one },
		"max_chunks":         func(r *ChunkRequest) { r.Overrides.MaxChunks = &one },
		"max_context_tokens": func(r *ChunkRequest) { r.Overrides.MaxContextTokens = &one },
		"mode":               func(r *ChunkRequest) { r.Overrides.Mode = &mode },
		"fallback":           func(r *ChunkRequest) { r.Overrides.Fallback = &fallback },
		"long_chunk":         func(r *ChunkRequest) { r.Overrides.LongChunk = &long },
		"return_context":     func(r *ChunkRequest) { r.Overrides.ReturnContext = true },
	} {
		g, s := remembering(ruled, memory{})
		for round, want := range []int{1, 2, 2} {
			r := base()
			if round > 0 {
				change(&r)
			}
			if _, err := g.Decide(t.Context(), r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if s.calls != want {
				t.Errorf("%s, round %d: the model was asked %d times, not %d", name, round, s.calls, want)
			}
		}
	}
}

// TestPoliciesDoNotShareDecisions, equal as they may be: an answer names its own.
func TestPoliciesDoNotShareDecisions(t *testing.T) {
	m := memory{}
	other := policy.Default()
	other.Name = "other"
	for _, p := range []policy.Policy{policy.Default(), other} {
		g, _ := remembering(p, m)
		for range 2 {
			d, err := g.Decide(t.Context(), ChunkRequest{Query: "how do I park", Chunks: chunksOf("a")})
			if err != nil || d.Policy.Name != p.Name {
				t.Errorf("%s decided for %s (%v)", d.Policy.Name, p.Name, err)
			}
		}
	}
}

// TestOnlyWholeDecisionsAreRemembered: what was late, failed or read in part is asked again, and so is what depends on the time.
func TestOnlyWholeDecisionsAreRemembered(t *testing.T) {
	nan := float32(math.NaN())
	aged := policy.Default()
	aged.Chunks.Rules = []quality.Rule{{ID: "old", Field: "date", OlderThanDays: 7, Action: quality.ActionDrop}}
	for name, c := range map[string]struct {
		policy policy.Policy
		change func([]ChunkScore) []ChunkScore
		err    error
	}{
		"late":               {policy.Default(), func(s []ChunkScore) []ChunkScore { s[1] = ChunkScore{}; return s }, nil},
		"a row that failed":  {policy.Default(), func(s []ChunkScore) []ChunkScore { s[1].Logit = nan; return s }, nil},
		"too few scores":     {policy.Default(), func(s []ChunkScore) []ChunkScore { return s[:1] }, nil},
		"read in part":       {policy.Default(), func(s []ChunkScore) []ChunkScore { s[1].Partial = true; return s }, nil},
		"a model that fails": {policy.Default(), nil, ErrOverloaded},
		"an age":             {aged, nil, nil},
	} {
		m := memory{}
		g, s := remembering(c.policy, m)
		s.change, s.err = c.change, c.err
		for range 2 {
			if _, err := g.Decide(t.Context(), ChunkRequest{Query: "how do I park", Chunks: chunksOf("a", "b")}); err != nil {
				t.Fatal(err)
			}
		}
		if s.calls != 2 || len(m) != 0 {
			t.Errorf("%s: the model was asked %d times, %d decisions are kept", name, s.calls, len(m))
		}
	}
}

// TestQueryDecisionsAreRemembered: what the semantic stage said holds for the text, what is looked at of the conversation, and the references.
func TestQueryDecisionsAreRemembered(t *testing.T) {
	e := &fakeEmbedder{dim: 2, times: ModelUse{Items: 1, Inference: time.Millisecond}}
	g := queryGate(t, policy.Default(), e, newClock(), references(t, referencesYAML, "one", e))
	g.SetMemo(memory{})
	ask := func(r QueryRequest, runs bool) QueryDecision {
		t.Helper()
		before := len(e.sizes)
		d := g.Decide(t.Context(), r)
		if d.Stage != StageSemantic || (len(e.sizes) > before) != runs {
			t.Errorf("%+v: stage %s, %d texts embedded; runs: %v", r, d.Stage, len(e.sizes)-before, runs)
		}
		return d
	}
	r := QueryRequest{Text: "a most wonderful day to you"}
	first := ask(r, true)
	second := ask(r, false)
	if !reflect.DeepEqual(first.Semantic, second.Semantic) || first.Reason != second.Reason || first.NeedsRetrieval != second.NeedsRetrieval || second.Model.Inference != 0 || second.Model.Reused != 1 {
		t.Errorf("recalled %+v of %+v", second, first)
	}
	ask(QueryRequest{Text: strings.ToUpper(r.Text)}, true)
	r.History = []Turn{{"assistant", "It rains."}}
	ask(r, true)
	ask(QueryRequest{Text: r.Text, History: []Turn{{"assistant", "It pours."}}}, false) // of which nothing is looked at
	ask(QueryRequest{Text: r.Text, History: []Turn{{"assistant", "Does it rain?"}}}, true)
	// References of one more category, or of another model, or with another threshold decide anew.
	for i, c := range [][2]string{{referencesYAML, "two"}, {strings.ReplaceAll(referencesYAML, "0.9", "0.8"), "two"}, {referencesYAML + "  - id: more\n    kind: knowledge\n    references: {en: [where is the lift]}\n", "two"}} {
		if err := g.SetReferences(references(t, c[0], c[1], e)); err != nil {
			t.Fatal(err)
		}
		if d := ask(r, true); d.Policy.Fingerprint == first.Policy.Fingerprint {
			t.Errorf("references %d: the fingerprint is the same", i)
		}
		ask(r, false)
	}
	e.err = ErrOverloaded
	failing := QueryRequest{Text: "what does the lease say about pets"}
	if d := g.Decide(t.Context(), failing); d.Err == nil {
		t.Fatal("no failure")
	}
	e.err = nil
	ask(failing, true)
}
