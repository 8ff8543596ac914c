package gates

import (
	"strings"
	"testing"

	"ragate/gates/policy"
	"ragate/gates/quality"
)

// told is a detector that knows one query.
type told map[string]string

func (t told) Language(query string) string { return t[query] }

func TestQueryInALanguageThatTheModelIsNotFor(t *testing.T) {
	detector := told{"waar parkeer ik": "nl", "how do I park": "en"}
	rule := policy.Default()
	rule.Chunks.Rules = []quality.Rule{{ID: "old", Field: "old", Equals: true, Action: quality.ActionDrop}}
	for _, c := range []struct {
		name     string
		query    string
		model    Languages
		language string
		noted    bool
	}{
		{"another language", "waar parkeer ik", Languages{detector, "m", []string{"en"}}, "nl", true},
		{"its own", "how do I park", Languages{detector, "m", []string{"en"}}, "en", false},
		{"one of several", "waar parkeer ik", Languages{detector, "m", []string{"en", "nl"}}, "nl", false},
		{"a multilingual model", "waar parkeer ik", Languages{detector, "m", []string{"multilingual"}}, "nl", false},
		{"a model whose card says nothing", "waar parkeer ik", Languages{detector, "m", nil}, "", false},
		{"not told", "parkeren", Languages{detector, "m", []string{"en"}}, "", false},
		{"turned off", "waar parkeer ik", Languages{}, "", false},
	} {
		s := &fakeScorer{logits: map[string]float32{"a": 3, "b": -3}, clock: newClock()}
		chunks := chunksOf("a", "b", "c")
		chunks[2].Metadata = quality.JSON(`{"old":true}`)
		g := NewChunkGate(rule, s, s.clock.Now, "model")
		plain := g.Policy()
		g = g.Noting(c.model)
		d, err := g.Decide(t.Context(), ChunkRequest{Query: c.query, Chunks: chunks})
		if err != nil {
			t.Fatal(err)
		}
		if d.QueryLanguage != c.language || (d.LanguageNote != "") != c.noted {
			t.Errorf("%s: language %q, note %q", c.name, d.QueryLanguage, d.LanguageNote)
		}
		if g.Policy() != plain {
			t.Errorf("%s: the fingerprint changed, and no decision does", c.name)
		}
		if got := outcomes(d); got != "0:kept 1:fallback | 2:dropped" {
			t.Errorf("%s: decided otherwise: %s", c.name, got)
		}
		for _, r := range append(d.Chunks, d.Dropped...) {
			const said = "; the query looks like Dutch and the reranker is for English, so its relevance is doubtful"
			if reason := d.Reason(r); strings.Contains(reason, said) != (c.noted && r.Scored) {
				t.Errorf("%s: chunk %d: %s", c.name, r.Index, reason)
			}
		}
		if c.noted {
			for _, want := range []string{"Dutch", "the reranker m is for English", "--reranker", "RAGATE_RERANKER"} {
				if !strings.Contains(d.LanguageNote, want) {
					t.Errorf("%s: the note lacks %q: %s", c.name, want, d.LanguageNote)
				}
			}
		}
	}
}

// TestNoCaveatWithoutAScore: a chunk that was not scored owes nothing to the model.
func TestNoCaveatWithoutAScore(t *testing.T) {
	s := &fakeScorer{err: ErrOverloaded, clock: newClock()}
	g := NewChunkGate(policy.Default(), s, s.clock.Now, "model").Noting(Languages{told{"x": "nl"}, "m", []string{"en"}})
	d, err := g.Decide(t.Context(), ChunkRequest{Query: "x", Chunks: chunksOf("a", "b")})
	if err != nil || len(d.Chunks) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, r := range d.Chunks {
		if reason := d.Reason(r); strings.Contains(reason, "Dutch") {
			t.Errorf("%s", reason)
		}
	}
}
