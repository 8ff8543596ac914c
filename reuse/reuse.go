package reuse

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"ragate/cache"
	"ragate/inference"
)

// Inner is the model that computes.
type Inner interface {
	Info() inference.Info
	inference.Embedder
	inference.Reranker
	inference.Tokenizer
}

// Model answers from a cache what it can, and has the rest computed. It is safe for concurrent use.
type Model struct {
	Inner
	cache     *cache.Cache
	print     string
	kind      inference.Kind
	dim       int
	limit     int
	perClient bool
	similar   *similarity // nil: off
}

// Options say who shares answers.
type Options struct {
	// PerClient keeps the answers of each client (EmbedRequest.Client, RerankRequest.Client) apart. Otherwise all share them, and by the time of
	// an answer a client can tell whether somebody asked for this very text before, though never what others asked.
	PerClient bool
}

// New makes a model that answers from c.
func New(m Inner, c *cache.Cache, o Options) *Model {
	i := m.Info()
	return &Model{Inner: m, cache: c, print: i.Fingerprint, kind: i.Kind, dim: i.Dimensions, limit: i.MaxTokens, perClient: o.PerClient}
}

// owner is the part of a scope that keeps clients apart.
func (m *Model) owner(client string) string {
	if m.perClient {
		return client
	}
	return ""
}

// patience is until when a request waits for others that compute the same: half of its time, so that the other half is left to compute.
func patience(deadline time.Time) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	return time.Now().Add(time.Until(deadline) / 2)
}

// keys are those of the texts within a scope.
func keys(s cache.Scope, texts []string) []cache.Key {
	out := make([]cache.Key, len(texts))
	for i, text := range texts {
		out[i] = s.Key(text)
	}
	return out
}

// truncation is what of t an answer depends on.
func (m *Model) truncation(t inference.Truncation) string {
	limit := t.MaxTokens
	if limit >= m.limit {
		limit = 0
	}
	return strconv.Itoa(limit) + "|" + strconv.Itoa(int(t.Side)) + "|" + strconv.FormatBool(t.Refuse)
}

// Embed gives the model's answer. Errors are the model's; positions in them are those of the request.
func (m *Model) Embed(ctx context.Context, r inference.EmbedRequest) (*inference.Embeddings, error) {
	if m.kind != inference.KindEmbedder || len(r.Texts) == 0 {
		return m.Inner.Embed(ctx, r)
	}
	scope := cache.NewScope("embedding 1", m.print, m.owner(r.Client), r.Prompt, strconv.FormatBool(r.SkipNormalize), m.truncation(r.Truncation))
	// A single text that somebody waits for does not wait for the end of a list that holds it too: it would have overtaken it in the queue.
	a := cache.Ask{Kind: cache.Embedding, Keys: keys(scope, r.Texts), Group: strconv.Itoa(int(r.Lane)) + " " + r.Client}
	if deadline, ok := ctx.Deadline(); ok {
		a.Patience = patience(deadline)
	}
	out := &inference.Embeddings{Dim: m.dim, Values: make([]float32, len(r.Texts)*m.dim)}
	u := newUsage(len(r.Texts))
	var failed *inference.RowError
	err := m.cache.Do(ctx, a, func(i int, v []byte) bool {
		h, ok := u.accept(i, v, headBytes+4*m.dim)
		if ok {
			row := out.Row(i)
			for k := range row {
				row[k] = math.Float32frombits(binary.LittleEndian.Uint32(h[4*k:]))
			}
		}
		return ok
	}, func(missing []int) ([][]byte, error) {
		sub := r
		if len(missing) < len(r.Texts) {
			sub.Texts = pick(r.Texts, missing)
		}
		got, err := m.Inner.Embed(ctx, sub)
		var row *inference.RowError
		if err != nil && !errors.As(err, &row) {
			return nil, atItem(err, missing)
		}
		failed = merge(failed, row, missing)
		u.ran(missing, got.Usage, &out.Timing, got.Timing)
		values := make([][]byte, len(missing))
		for j, i := range missing {
			copy(out.Row(i), got.Row(j))
			if !finite(got.Row(j)) {
				continue
			}
			b := appendHead(make([]byte, 0, headBytes+4*m.dim), got.Usage, j)
			for _, v := range got.Row(j) {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			}
			values[j] = b
		}
		return values, nil
	})
	if err != nil {
		return nil, err
	}
	out.Usage = u.sum()
	if failed != nil {
		return out, failed
	}
	return out, nil
}

// Rerank gives the model's answer. Errors are the model's; positions in them are those of the request.
func (m *Model) Rerank(ctx context.Context, r inference.RerankRequest) (*inference.Scores, error) {
	return m.rerank(ctx, r, nil)
}

// scoreBytes are those of a kept score: the head, the logit, and the use of the document.
const scoreBytes = headBytes + 4 + 4 + 4 + 2 + 2

// conditions are what the scores of a request depend on, beside query and document.
func (m *Model) conditions(r inference.RerankRequest) []string {
	return []string{"score 1", m.print, m.owner(r.Client), m.truncation(r.Truncation), strconv.Itoa(r.MaxTokensPerDoc),
		strconv.FormatBool(r.Windows), strconv.FormatBool(r.Measure)}
}

func (m *Model) rerank(ctx context.Context, r inference.RerankRequest, near *neighbours) (*inference.Scores, error) {
	if m.kind != inference.KindReranker || len(r.Documents) == 0 {
		return m.Inner.Rerank(ctx, r)
	}
	scope := cache.NewScope(append(m.conditions(r), r.Query)...)
	a := cache.Ask{Kind: cache.Score, Keys: keys(scope, r.Documents), Group: r.Client, Patience: patience(r.Deadline)}
	out := &inference.Scores{Logits: make([]float32, len(r.Documents))}
	if r.Measure {
		out.Documents = make([]inference.DocumentUse, len(r.Documents))
	}
	u := newUsage(len(r.Documents))
	accept := func(i int, v []byte) bool {
		b, ok := u.accept(i, v, scoreBytes)
		if !ok {
			return false
		}
		out.Logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		if r.Measure {
			out.Documents[i] = inference.DocumentUse{Tokens: int(binary.LittleEndian.Uint32(b[4:])), Cut: int(binary.LittleEndian.Uint32(b[8:])),
				Windows: int(binary.LittleEndian.Uint16(b[12:])), Window: int(binary.LittleEndian.Uint16(b[14:]))}
		}
		return true
	}
	var failed *inference.RowError
	err := m.cache.Do(ctx, a, accept, func(missing []int) ([][]byte, error) {
		values := make([][]byte, len(missing))
		asked := missing
		if near != nil {
			if asked = near.fill(ctx, scope, r, missing, accept, u); len(asked) == 0 {
				return values, nil
			}
		}
		sub := r
		if len(asked) < len(r.Documents) {
			sub.Documents = pick(r.Documents, asked)
		}
		got, err := m.Inner.Rerank(ctx, sub)
		var row *inference.RowError
		if err != nil && !errors.As(err, &row) {
			return nil, atItem(err, asked)
		}
		failed = merge(failed, row, asked)
		u.ran(asked, got.Usage, &out.Timing, got.Timing)
		for j, i := range asked {
			out.Logits[i] = got.Logits[j]
			if r.Measure {
				out.Documents[i] = got.Documents[j]
			}
			if _, ok := slices.BinarySearch(got.Unscored, j); ok {
				out.Unscored = append(out.Unscored, i)
				continue
			}
			if _, ok := slices.BinarySearch(got.Partial, j); ok {
				out.Partial = append(out.Partial, i)
				continue
			}
			// Of a document in windows it is not known whether one of them failed.
			if !finite(got.Logits[j:j+1]) || row != nil && r.Windows {
				continue
			}
			at, _ := slices.BinarySearch(missing, i) // asked are some of missing, both ascending
			values[at] = appendScore(got, j)
		}
		return values, nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(out.Unscored)
	slices.Sort(out.Partial)
	out.Usage = u.sum()
	if near != nil {
		near.learn(scope, out)
	}
	if failed != nil {
		return out, failed
	}
	return out, nil
}

func appendScore(s *inference.Scores, j int) []byte {
	b := appendHead(make([]byte, 0, scoreBytes), s.Usage, j)
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s.Logits[j]))
	var d inference.DocumentUse
	if s.Documents != nil {
		d = s.Documents[j]
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Tokens))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Cut))
	b = binary.LittleEndian.AppendUint16(b, uint16(d.Windows))
	return binary.LittleEndian.AppendUint16(b, uint16(d.Window))
}

// headBytes begin every kept answer: the tokens that ran, and whether some were cut.
const headBytes = 5

func appendHead(b []byte, u inference.Usage, j int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(u.Items[j]))
	if _, cut := slices.BinarySearch(u.Cut, j); cut {
		return append(b, 1)
	}
	return append(b, 0)
}

// usage collects item by item what the whole request used.
type usage struct {
	items []int32
	cut   []bool
	known []bool // from the cache
	like  []bool // from a similar query
}

func newUsage(items int) *usage {
	return &usage{make([]int32, items), make([]bool, items), make([]bool, items), make([]bool, items)}
}

// accept reads the head of a kept answer, which must have so many bytes, and returns what follows it.
func (u *usage) accept(i int, v []byte, length int) ([]byte, bool) {
	if len(v) != length || v[4] > 1 {
		return nil, false
	}
	u.items[i], u.cut[i], u.known[i] = int32(binary.LittleEndian.Uint32(v)), v[4] == 1, true
	return v[headBytes:], true
}

// ran notes what a call for some of the items used.
func (u *usage) ran(at []int, got inference.Usage, t *inference.Timing, took inference.Timing) {
	for j, i := range at {
		if j < len(got.Items) {
			u.items[i] = got.Items[j]
		}
	}
	for _, j := range got.Cut {
		u.cut[at[j]] = true
	}
	t.Tokenize += took.Tokenize
	t.Queue += took.Queue
	t.Inference += took.Inference
}

func (u *usage) sum() inference.Usage {
	out := inference.Usage{Items: u.items}
	for i, n := range u.items {
		out.Tokens += int(n)
		if u.cut[i] {
			out.Cut = append(out.Cut, i)
		}
		switch {
		case u.like[i]:
			out.Similar++
		case u.known[i]:
			out.Reused++
		}
	}
	return out
}

// merge makes of the failures of several calls one, at the first item that failed.
func merge(sum, row *inference.RowError, at []int) *inference.RowError {
	if row == nil {
		return sum
	}
	moved := *row
	moved.Item = at[row.Item]
	if sum == nil {
		return &moved
	}
	first := sum
	if moved.Item < sum.Item {
		first = &moved
	}
	return &inference.RowError{Item: first.Item, Failed: sum.Failed + moved.Failed, Err: first.Err}
}

// atItem puts the request's position into an error that names one of a part of it.
func atItem(err error, at []int) error {
	var long *inference.TooLongError
	if errors.As(err, &long) && long.Item < len(at) {
		moved := *long
		moved.Item = at[long.Item]
		return &moved
	}
	return err
}

func pick(texts []string, at []int) []string {
	out := make([]string, len(at))
	for j, i := range at {
		out[j] = texts[i]
	}
	return out
}

func finite(values []float32) bool {
	for _, v := range values {
		if v-v != 0 {
			return false
		}
	}
	return true
}
