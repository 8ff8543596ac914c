package reuse

import (
	"context"

	"ragate/cache"
	"ragate/cache/near"
	"ragate/inference"
)

// An approximate answer: the score that a chunk had with another query of the same client, whose vector points in nearly the same direction. It is
// wrong by what the reranker makes of the difference (docs/caching.md has measurements), so it is never kept under the query it was used for: an
// error cannot be handed on from query to query.

// Bounds of the index. A client's last queries are what a paraphrase in its next ones can meet; with the largest vectors of the catalogue all take
// about 200 MB, with the default embedder's at most 100.
const (
	maxClients = 64
	perClient  = 1024
)

// Vectorizer gives the vector of a query, of length 1; it may keep them.
type Vectorizer func(ctx context.Context, query, client string) ([]float32, error)

type similarity struct {
	vector Vectorizer
	min    float64
	index  *near.Index
}

// AllowSimilar makes RerankSimilar use scores of queries whose cosine is at least min. dim is that of the vectors; seed should be nobody else's
// knowledge. It must be called before the model is used.
func (m *Model) AllowSimilar(v Vectorizer, dim int, min float64, seed [32]byte) {
	m.similar = &similarity{vector: v, min: min, index: near.New(dim, maxClients, perClient, seed)}
}

// RerankSimilar is Rerank, but that a document without a score may get the one it had with a nearly equal query of the same client, after
// AllowSimilar. Usage.Similar says how many did.
func (m *Model) RerankSimilar(ctx context.Context, r inference.RerankRequest) (*inference.Scores, error) {
	if m.similar == nil || m.kind != inference.KindReranker {
		return m.Rerank(ctx, r)
	}
	group := cache.NewScope(append(m.conditions(r), r.Client)...)
	return m.rerank(ctx, r, &neighbours{m: m, group: string(group[:])})
}

// neighbours is what one request has to do with its similar ones.
type neighbours struct {
	m      *Model
	group  string // of one client, model, and way of scoring
	vector []float32
}

// fill gives scores of the nearest query to those of the missing that have one, and returns the others.
func (n *neighbours) fill(ctx context.Context, own cache.Scope, r inference.RerankRequest, missing []int, accept func(int, []byte) bool, u *usage) (asked []int) {
	if n.vector == nil {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if !r.Deadline.IsZero() {
			limited, cancel = context.WithDeadline(ctx, patience(r.Deadline))
		}
		defer cancel()
		v, err := n.m.similar.vector(limited, r.Query, r.Client)
		if err != nil { // then the scores are computed, which says what is wrong if it is wrong there too
			return missing
		}
		n.vector = v
	}
	other, _, ok := n.m.similar.index.Find(n.group, n.vector, n.m.similar.min, near.Item(own))
	if !ok {
		return missing
	}
	for _, i := range missing {
		if v, ok := n.m.cache.Peek(cache.Scope(other).Key(r.Documents[i])); ok && accept(i, v) {
			u.like[i] = true
			continue
		}
		asked = append(asked, i)
	}
	return asked
}

// learn makes a query one that others may be similar to, once a document has a score of its own with it.
func (n *neighbours) learn(own cache.Scope, s *inference.Scores) {
	if n.vector != nil && s.Usage.Similar+len(s.Unscored) < len(s.Logits) {
		n.m.similar.index.Add(n.group, n.vector, near.Item(own))
	}
}
