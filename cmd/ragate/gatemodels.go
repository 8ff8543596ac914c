package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ragate/gates"
	"ragate/inference"
	"ragate/reuse"
)

// gateModel is the embedder as the query gate needs it.
type gateModel struct{ m reuse.Inner }

// EmbedQueries implements gates.Embedder. A single text is somebody waiting; many are references.
func (g gateModel) EmbedQueries(ctx context.Context, texts []string) ([]float32, int, gates.ModelUse, error) {
	r := inference.EmbedRequest{Texts: texts, Lane: inference.LaneBulk, Client: inference.ClientOf(ctx)}
	if len(texts) == 1 {
		r.Lane = inference.LaneInteractive
	}
	if _, ok := g.m.Info().Prompts["query"]; ok {
		r.Prompt = "query"
	}
	e, err := g.m.Embed(ctx, r)
	if err != nil {
		return nil, 0, gates.ModelUse{}, modelError(err)
	}
	return e.Values, e.Dim, modelUse(g.m, len(texts), e.Usage, e.Timing), nil
}

func modelUse(m reuse.Inner, items int, u inference.Usage, t inference.Timing) gates.ModelUse {
	return gates.ModelUse{Model: m.Info().ID, Items: items, Tokens: u.Tokens, Cut: u.Cut, Tokenize: t.Tokenize, Queue: t.Queue, Inference: t.Inference, Reused: u.Reused, Similar: u.Similar}
}

// modelError lets the gates tell a full queue from other failures.
func modelError(err error) error {
	var o *inference.OverloadedError
	if errors.As(err, &o) {
		return fmt.Errorf("%w: %w", gates.ErrOverloaded, err)
	}
	return err
}

// scoringModel is the reranker as the chunk gate needs it.
type scoringModel struct{ m reuse.Inner }

// Score implements gates.Scorer. A row that failed has the logit NaN; the others have theirs.
func (s scoringModel) Score(ctx context.Context, query string, texts []string, o gates.ScoreOptions) ([]gates.ChunkScore, gates.ModelUse, error) {
	rerank := s.m.Rerank
	if m, ok := s.m.(*reuse.Model); ok {
		rerank = m.RerankSimilar
	}
	got, err := rerank(ctx, inference.RerankRequest{Query: query, Documents: texts, Deadline: o.Deadline, Windows: o.MaxPassage, Measure: true, Client: inference.ClientOf(ctx)})
	var row *inference.RowError
	if err != nil && !errors.As(err, &row) {
		return nil, gates.ModelUse{}, modelError(err)
	}
	out := make([]gates.ChunkScore, len(texts))
	for i := range out {
		d := got.Documents[i]
		out[i] = gates.ChunkScore{Logit: got.Logits[i], Scored: true, Tokens: d.Tokens, Cut: d.Cut, Windows: d.Windows, Window: d.Window}
	}
	for _, i := range got.Unscored {
		out[i].Scored, out[i].Cut = false, 0
	}
	for _, i := range got.Partial {
		out[i].Partial = true
	}
	if row != nil && o.MaxPassage { // of a text in windows it is not known whether one of them failed
		for i := range out {
			out[i].Partial = true
		}
	}
	return out, modelUse(s.m, 0, got.Usage, got.Timing), nil
}

// identity names everything of a model that changes its answers; what it is called here does not.
func identity(i inference.Info) string {
	return strings.Join([]string{i.Source, i.SHA256, i.Provider, i.Precision, fmt.Sprint(i.MaxTokens), i.Prompts["query"]}, "|")
}
