package main

import (
	"context"
	"slices"
	"testing"

	"ragate/gates"
	"ragate/inference"
	"ragate/reuse"
)

// answering is a reranker with one answer.
type answering struct {
	reuse.Inner
	scores inference.Scores
	err    error
}

func (a answering) Info() inference.Info { return inference.Info{ID: "m"} }

func (a answering) Rerank(context.Context, inference.RerankRequest) (*inference.Scores, error) {
	return &a.scores, a.err
}

// TestScoresSayWhatIsWhole: the gate keeps no decision on windows of which one has no score, be it for want of time or since it failed.
func TestScoresSayWhatIsWhole(t *testing.T) {
	scores := inference.Scores{Logits: []float32{1, 2, 3}, Documents: make([]inference.DocumentUse, 3)}
	late := scores
	late.Partial = []int{1}
	failed := &inference.RowError{Item: 0, Failed: 1, Err: inference.ErrNotFinite}
	for name, c := range map[string]struct {
		model   answering
		windows bool
		want    []bool
	}{
		"whole":             {answering{scores: scores}, true, []bool{false, false, false}},
		"late":              {answering{scores: late}, true, []bool{false, true, false}},
		"a window failed":   {answering{scores: scores, err: failed}, true, []bool{true, true, true}},
		"a document failed": {answering{scores: scores, err: failed}, false, []bool{false, false, false}}, // its logit says so
	} {
		got, _, err := scoringModel{c.model}.Score(t.Context(), "q", []string{"a", "b", "c"}, gates.ScoreOptions{MaxPassage: c.windows})
		if err != nil {
			t.Fatal(err)
		}
		var partial []bool
		for _, s := range got {
			partial = append(partial, s.Partial)
		}
		if !slices.Equal(partial, c.want) {
			t.Errorf("%s: %v, not %v", name, partial, c.want)
		}
	}
}
