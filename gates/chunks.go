package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"ragate/gates/language"
	"ragate/gates/policy"
	"ragate/gates/quality"
)

// ChunkGate decides which chunks deserve the context. It is safe for concurrent use.
type ChunkGate struct {
	policy      policy.Policy
	scorer      Scorer
	clock       Clock
	fingerprint string
	memo        Memo // nil: none
	ageless     bool // no rule looks at the time
	speaks      Languages
}

// Languages says what the model is for, so that a query in another language is noted. The zero value notes nothing.
type Languages struct {
	Detector LanguageDetector
	Model    string   // its id, for the note
	Of       []string // BCP 47 tags, or "multilingual"; empty: not stated, and nothing is noted
}

// NewChunkGate makes the gate of one policy. parts identify the model, for the fingerprint.
func NewChunkGate(p policy.Policy, s Scorer, clock Clock, parts ...string) *ChunkGate {
	g := &ChunkGate{policy: p, scorer: s, clock: clock, fingerprint: p.Fingerprint(parts...), ageless: true}
	for _, r := range p.Chunks.Rules {
		g.ageless = g.ageless && r.OlderThanDays == 0
	}
	return g
}

// SetMemo makes the gate remember its decisions. It must be called before the gate is used.
func (g *ChunkGate) SetMemo(m Memo) { g.memo = m }

// question is everything that a decision rests on, in parts; nil where the time is part of it, or the request cannot be written down.
func (g *ChunkGate) question(r ChunkRequest) []string {
	if !g.ageless {
		return nil
	}
	o, err := json.Marshal(r.Overrides)
	if err != nil {
		return nil
	}
	parts := append(make([]string, 0, 4+3*len(r.Chunks)), "chunks 1", g.fingerprint, string(o), r.Query)
	for _, c := range r.Chunks {
		similarity, metadata := "", ""
		if c.Similarity != nil {
			similarity = strconv.FormatFloat(*c.Similarity, 'g', -1, 64)
		}
		if len(g.policy.Chunks.Rules) > 0 && c.Metadata != nil { // nobody else looks at it
			j, ok := c.Metadata.(quality.JSON)
			if !ok {
				return nil
			}
			metadata = string(j)
		}
		parts = append(parts, c.Text, similarity, metadata)
	}
	return parts
}

// rememberedChunk is about what one chunk's result holds in memory.
const rememberedChunk = 320

// remember keeps a decision for which everything was scored, by this very query. The caller looks for chunks that were scored in part.
func (g *ChunkGate) remember(key [32]byte, d ChunkDecision) {
	if d.Err != nil || d.Stats.Unscored > 0 || d.Model.Similar > 0 {
		return
	}
	d.Decision = d.Detached()
	d.Model.Tokenize, d.Model.Queue, d.Model.Inference, d.Model.Reused = 0, 0, 0, d.Model.Items
	g.memo.Remember(key, d, 1024+rememberedChunk*len(d.Chunks)+rememberedChunk*len(d.Dropped)+len(d.Context)+len(d.ExpandedQuery))
}

// Noting returns a gate that decides as g does, and notes a query in a language that the model is not for.
func (g *ChunkGate) Noting(l Languages) *ChunkGate {
	c := *g
	c.speaks = l
	return &c
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
	// QueryLanguage is the query's language as a BCP 47 tag, "" where it is not known, and LanguageNote says what that means for the
	// scores, "" where it means nothing.
	QueryLanguage, LanguageNote string
	Err                         error // why nothing could be scored; nil when something was, or when the time was too short
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
	var key [32]byte
	keep := false
	if g.memo != nil {
		if parts := g.question(r); parts != nil {
			var known any
			var ok bool
			if key, known, ok = g.memo.Recall(ctx, parts); ok {
				d := known.(ChunkDecision)
				d.Deciding, d.Total = 0, g.clock().Sub(began)
				return d, nil
			}
			keep = true
		}
	}
	d := ChunkDecision{QueryTypeReason: why, Policy: g.Policy()}
	if s := g.speaks; s.Detector != nil && len(s.Of) > 0 {
		d.QueryLanguage = s.Detector.Language(r.Query)
		d.LanguageNote, p.Caveat = foreign(d.QueryLanguage, s)
	}
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
			keep = keep && !s.Partial // another window may be the best
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
	if keep {
		g.remember(key, d)
	}
	return d, nil
}

// foreign says that a query is in a language that the model is not for: as a note on the whole answer, and as what each reason that rests
// on a score says. Both are "" when it is not known to be.
func foreign(query string, model Languages) (note, caveat string) {
	if language.Covers(model.Of, query) {
		return "", ""
	}
	is, of := language.Name(query), language.Names(model.Of)
	note = fmt.Sprintf("the query looks like %s, and the reranker %s is for %s: its relevance means little here, relevant chunks may be dropped and others kept; "+
		"serve a multilingual reranker (--reranker, RAGATE_RERANKER)", is, model.Model, of)
	return note, fmt.Sprintf("the query looks like %s and the reranker is for %s, so its relevance is doubtful", is, of)
}
