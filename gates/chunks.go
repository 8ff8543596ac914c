package gates

import (
	"context"
	"errors"
	"time"

	"ragate/gates/policy"
	"ragate/gates/quality"
)

// ChunkGate decides which chunks deserve the context. It is safe for concurrent use.
type ChunkGate struct {
	policy      policy.Policy
	scorer      Scorer
	clock       Clock
	fingerprint string
}

// NewChunkGate makes the gate of one policy. parts identify the model, for the fingerprint.
func NewChunkGate(p policy.Policy, s Scorer, clock Clock, parts ...string) *ChunkGate {
	return &ChunkGate{policy: p, scorer: s, clock: clock, fingerprint: p.Fingerprint(parts...)}
}

// Policy names what decides.
func (g *ChunkGate) Policy() PolicyRef { return PolicyRef{g.policy.Name, g.fingerprint} }

// ChunkRequest is a query with what was retrieved for it.
type ChunkRequest struct {
	Query     string
	Chunks    []quality.Chunk // scores unset
	Overrides quality.Overrides
	Deadline  time.Time // when the answer must be there; zero for no limit
}

// ChunkDecision is what becomes of the chunks.
type ChunkDecision struct {
	quality.Decision
	QueryTypeReason string
	Policy          PolicyRef
	Model           ModelUse
	Deciding, Total time.Duration
	Err             error // why nothing could be scored; nil when something was, or when the time was too short
}

// Decide scores the chunks and decides on each. The error is one of quality.Resolve's: a request that contradicts itself. When scoring
// fails or there is no time, the decision is on the safe side and says so; Err then holds the reason.
func (g *ChunkGate) Decide(ctx context.Context, r ChunkRequest) (ChunkDecision, error) {
	began := g.clock()
	kind, why := quality.ClassifyQuery(r.Query)
	p, err := quality.Resolve(g.policy.Chunks, r.Overrides, kind)
	if err != nil {
		return ChunkDecision{}, err
	}
	d := ChunkDecision{QueryTypeReason: why, Policy: g.Policy()}
	order := quality.ScoringOrder(nil, p, r.Chunks, began)
	if len(order) > 0 {
		texts := make([]string, len(order))
		for i, at := range order {
			texts[i] = r.Chunks[at].Text
		}
		scores, use, err := g.scorer.Score(ctx, r.Query, texts, ScoreOptions{Deadline: r.Deadline, MaxPassage: p.LongChunk == quality.LongMaxPassage})
		d.Model, d.Err = use, err
		d.Model.Items, d.Model.Cut = 0, nil // below, by the chunks
		for i, s := range scores[:min(len(scores), len(order))] {
			c := &r.Chunks[order[i]]
			c.Logit, c.Scored, c.Tokens, c.Cut, c.Windows, c.Window = quality.Logit(s.Logit), s.Scored, s.Tokens, s.Cut, s.Windows, s.Window
			if s.Scored {
				d.Model.Items++
			}
			if s.Cut > 0 {
				d.Model.Cut = append(d.Model.Cut, order[i])
			}
		}
		switch {
		case err == nil || errors.Is(err, context.DeadlineExceeded):
		case errors.Is(err, ErrOverloaded):
			p.WhyUnscored = ErrOverloaded.Error()
		default:
			p.WhyUnscored = "the model could not be asked"
		}
	}
	deciding := g.clock()
	d.Decision = quality.Decide(p, r.Query, r.Chunks, began)
	d.Deciding, d.Total = g.clock().Sub(deciding), g.clock().Sub(began)
	return d, nil
}
