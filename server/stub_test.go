package server

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"ragate/inference"
)

// stubModel is a small deterministic model for tests of the wire: words are tokens, a vector is a bag of hashed words, and a logit
// counts the words that query and document share. It cuts, refuses and counts as the real one promises to.
type stubModel struct {
	info inference.Info
	// before, when set, may answer in place of the model; ok false lets it go on.
	before func(ctx context.Context, texts []string) (err error, ok bool)
	logits []float32 // when set, the answer to every rerank request
	vector []float32 // when set, the vector of every text

	mu     sync.Mutex
	embeds []inference.EmbedRequest // seen
	ranks  []inference.RerankRequest
}

const stubDim = 8

func stubEmbedder() *stubModel {
	return &stubModel{info: inference.Info{
		ID: "stub/embedder", Source: "stub/embedder", Aliases: []string{"embedder"}, Kind: inference.KindEmbedder, Revision: "r1", SHA256: "aa11",
		Created: time.Unix(1700000000, 0), Dimensions: stubDim, MaxTokens: 512, Pooling: "mean",
		Prompts:  map[string]string{"query": "query: ", "passage": "passage: "},
		Provider: "cpu", Precision: "fp32", DType: "float32", Streams: 2, Threads: 1, BatchTokens: 4096,
		Drift: inference.Drift{MinCosine: 1, Rows: 16},
	}}
}

func stubReranker() *stubModel {
	return &stubModel{info: inference.Info{
		ID: "stub/reranker", Source: "stub/reranker", Aliases: []string{"reranker"}, Kind: inference.KindReranker, SHA256: "bb22",
		Created: time.Unix(1700000001, 0), Languages: []string{"en", "de-CH"}, MaxTokens: 512,
		Provider: "cpu", Precision: "int8", DType: "int8", Streams: 2, Threads: 1, BatchTokens: 4096,
		Drift: inference.Drift{MaxLogit: 0.001, Rows: 16}, Warnings: []string{"a warning"},
	}}
}

func (m *stubModel) Info() inference.Info { return m.info }

func (m *stubModel) limit(t inference.Truncation) int {
	if t.MaxTokens > 0 && t.MaxTokens < m.info.MaxTokens {
		return t.MaxTokens
	}
	return m.info.MaxTokens
}

func (m *stubModel) Embed(ctx context.Context, r inference.EmbedRequest) (*inference.Embeddings, error) {
	m.mu.Lock()
	m.embeds = append(m.embeds, r)
	m.mu.Unlock()
	defer m.record(ctx, len(r.Texts), time.Now())
	if m.before != nil {
		if err, ok := m.before(ctx, r.Texts); ok {
			return nil, err
		}
	}
	prefix, ok := m.info.Prompts[r.Prompt]
	if r.Prompt != "" && !ok {
		return nil, &inference.UnknownPromptError{Prompt: r.Prompt, Known: []string{"passage", "query"}}
	}
	e := &inference.Embeddings{Dim: m.info.Dimensions, Timing: inference.Timing{Tokenize: time.Millisecond, Queue: 2 * time.Millisecond, Inference: 3 * time.Millisecond}}
	for i, text := range r.Texts {
		words := strings.Fields(prefix + text)
		if n, limit := len(words)+2, m.limit(r.Truncation); n > limit {
			if r.Truncation.Refuse {
				return nil, &inference.TooLongError{Item: i, Tokens: n, Limit: limit}
			}
			words = cutWords(words, limit-2, r.Truncation.Side == inference.Left)
			e.Usage.Cut = append(e.Usage.Cut, i)
		}
		e.Usage.Tokens += len(words) + 2
		v := m.vector
		if v == nil {
			v = bag(words, m.info.Dimensions, !r.SkipNormalize)
		}
		e.Values = append(e.Values, v...)
	}
	return e, nil
}

func (m *stubModel) Rerank(ctx context.Context, r inference.RerankRequest) (*inference.Scores, error) {
	m.mu.Lock()
	m.ranks = append(m.ranks, r)
	m.mu.Unlock()
	defer m.record(ctx, len(r.Documents), time.Now())
	if m.before != nil {
		if err, ok := m.before(ctx, r.Documents); ok {
			return nil, err
		}
	}
	s := &inference.Scores{Timing: inference.Timing{Tokenize: time.Millisecond, Inference: time.Millisecond}}
	query := strings.Fields(r.Query)
	for i, doc := range r.Documents {
		words := strings.Fields(doc)
		cut := false
		if r.MaxTokensPerDoc > 0 && len(words) > r.MaxTokensPerDoc {
			words, cut = words[:r.MaxTokensPerDoc], true
		}
		q := query
		if n, limit := len(q)+len(words)+3, m.limit(r.Truncation); n > limit {
			if r.Truncation.Refuse {
				return nil, &inference.TooLongError{Item: i, Tokens: n, Limit: limit}
			}
			for cut = true; len(q)+len(words)+3 > limit; {
				if len(q) > len(words) {
					q = q[:len(q)-1]
				} else {
					words = words[:len(words)-1]
				}
			}
		}
		if cut {
			s.Usage.Cut = append(s.Usage.Cut, i)
		}
		s.Usage.Tokens += len(q) + len(words) + 3
		s.Logits = append(s.Logits, overlap(q, words))
	}
	if m.logits != nil {
		s.Logits = m.logits
	}
	return s, nil
}

// record tells the context's record of a call that was one batch with a row of somebody else's.
func (m *stubModel) record(ctx context.Context, items int, began time.Time) {
	if rec := inference.RecordOf(ctx); rec != nil {
		now := time.Now()
		rec.Add(inference.Call{Model: m.info.ID, Kind: m.info.Kind, Began: began, Submitted: began, FirstTaken: began, LastTaken: now, Done: now,
			Items: items, Rows: items, Tokens: 5 * items, PaddedTokens: 16 * items, Batches: 1,
			Batch: inference.Batch{ID: 7, Rows: items + 1, Tokens: 5*items + 9, PaddedTokens: 16 * (items + 1)}})
	}
}

// Tokens has a token for every word, with its place in characters.
func (m *stubModel) Tokens(text string, special bool) []inference.Token {
	var out []inference.Token
	if special {
		out = append(out, inference.Token{ID: 101, Text: "[CLS]", Special: true, Start: -1, Stop: -1})
	}
	at, start := 0, 0 // in bytes and in characters
	for _, word := range strings.Fields(text) {
		gap := strings.Index(text[at:], word)
		start += utf8.RuneCountInString(text[at : at+gap])
		at += gap
		out = append(out, inference.Token{ID: int32(hash(word) % 30000), Text: word, Start: start, Stop: start + utf8.RuneCountInString(word)})
		at += len(word)
		start += utf8.RuneCountInString(word)
	}
	if special {
		out = append(out, inference.Token{ID: 102, Text: "[SEP]", Special: true, Start: -1, Stop: -1})
	}
	return out
}

func cutWords(words []string, n int, left bool) []string {
	if left {
		return words[len(words)-n:]
	}
	return words[:n]
}

func hash(word string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, strings.ToLower(word))
	return h.Sum32()
}

func bag(words []string, dim int, normalize bool) []float32 {
	v := make([]float32, dim)
	v[0] = 0.5 // so that no text has a zero vector
	for _, w := range words {
		h := hash(w)
		v[h%uint32(dim)] += float32(h>>8%97)/97 + 0.1
	}
	if normalize {
		var sum float64
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		for i := range v {
			v[i] = float32(float64(v[i]) / math.Sqrt(sum))
		}
	}
	return v
}

func overlap(query, doc []string) float32 {
	seen := map[string]bool{}
	for _, w := range query {
		seen[strings.ToLower(w)] = true
	}
	logit := float32(-4)
	for _, w := range doc {
		if w = strings.ToLower(w); seen[w] {
			logit += 2
			delete(seen, w)
		}
	}
	return logit
}

// quiet is a logger for tests that do not look at the log.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// stubServer is a ready server over both stub models, with what change does to its config.
func stubServer(change func(*Config)) (*Server, *stubModel, *stubModel) {
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, quiet())
	if err != nil {
		panic(fmt.Sprintf("the test's config: %v", err))
	}
	e, r := stubEmbedder(), stubReranker()
	s.SetReady(Engine{Models: []Model{e, r}, Stats: func() inference.Stats {
		return inference.Stats{QueuedTokens: 7, QueuedRows: 3, MaxQueuedTokens: 262144, TokensPerSecond: 1000}
	}})
	return s, e, r
}
