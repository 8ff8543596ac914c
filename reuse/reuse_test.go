package reuse

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"ragate/cache"
	"ragate/inference"
	"ragate/inference/ort"
	"ragate/internal/testenv"
	"ragate/models"
)

func newCache(t *testing.T) *cache.Cache {
	t.Helper()
	c, err := cache.New(cache.Config{Bytes: cache.DefaultBytes, TTL: cache.DefaultTTL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// scripted is a reranker whose documents say what becomes of them.
type scripted struct {
	Inner
	calls [][]string
	fail  error
}

func (s *scripted) Info() inference.Info {
	return inference.Info{Kind: inference.KindReranker, Fingerprint: "scripted", MaxTokens: 512}
}

func (s *scripted) Rerank(_ context.Context, r inference.RerankRequest) (*inference.Scores, error) {
	s.calls = append(s.calls, r.Documents)
	if s.fail != nil {
		return nil, s.fail
	}
	out := &inference.Scores{}
	var row *inference.RowError
	for i, d := range r.Documents {
		logit, tokens := float32(len(d)), int32(len(d)+3)
		switch {
		case strings.HasPrefix(d, "late"):
			logit, out.Unscored = float32(math.NaN()), append(out.Unscored, i)
		case strings.HasPrefix(d, "half"):
			out.Partial = append(out.Partial, i)
		case strings.HasPrefix(d, "fails"):
			logit = float32(math.NaN())
			if row == nil {
				row = &inference.RowError{Item: i, Err: inference.ErrNotFinite}
			}
			row.Failed++
		case strings.HasPrefix(d, "cut"):
			out.Usage.Cut = append(out.Usage.Cut, i)
		}
		out.Logits = append(out.Logits, logit)
		out.Usage.Items = append(out.Usage.Items, tokens)
		out.Usage.Tokens += int(tokens)
		out.Documents = append(out.Documents, inference.DocumentUse{Tokens: int(tokens) - 3, Cut: len(d) % 2, Windows: 3, Window: 2})
	}
	if row != nil {
		return out, row
	}
	return out, nil
}

// TestOnlyWhatIsWholeIsKept: positions in what comes back are the request's, and what was late, half read or failed runs again.
func TestOnlyWhatIsWholeIsKept(t *testing.T) {
	in := &scripted{}
	m := New(in, newCache(t), Options{})
	r := inference.RerankRequest{Query: "q", Documents: []string{"a", "late", "cut it", "fails 1", "half", "fails 2"}, Measure: true}
	for round := range 2 {
		got, err := m.Rerank(t.Context(), r)
		var row *inference.RowError
		if !errors.As(err, &row) || row.Item != 3 || row.Failed != 2 || !errors.Is(err, inference.ErrNotFinite) {
			t.Fatalf("round %d: error %v (%+v)", round, err, row)
		}
		if !slices.Equal(got.Unscored, []int{1}) || !slices.Equal(got.Partial, []int{4}) || !slices.Equal(got.Usage.Cut, []int{2}) {
			t.Errorf("round %d: unscored %v, partial %v, cut %v", round, got.Unscored, got.Partial, got.Usage.Cut)
		}
		if got.Logits[0] != 1 || got.Logits[2] != 6 || got.Logits[4] != 4 || !math.IsNaN(float64(got.Logits[1])) || !math.IsNaN(float64(got.Logits[3])) {
			t.Errorf("round %d: logits %v", round, got.Logits)
		}
		tokens := 0
		for i, d := range r.Documents {
			tokens += len(d) + 3
			if want := (inference.DocumentUse{Tokens: len(d), Cut: len(d) % 2, Windows: 3, Window: 2}); got.Documents[i] != want {
				t.Errorf("round %d: document %d used %+v, not %+v", round, i, got.Documents[i], want)
			}
		}
		if got.Usage.Tokens != tokens || got.Usage.Reused != 2*round {
			t.Errorf("round %d: usage %+v, not %d tokens", round, got.Usage, tokens)
		}
	}
	if want := [][]string{r.Documents, {"late", "fails 1", "half", "fails 2"}}; len(in.calls) != 2 || !slices.Equal(in.calls[0], want[0]) || !slices.Equal(in.calls[1], want[1]) {
		t.Errorf("the model was asked %q", in.calls)
	}
}

// TestWhatAnAnswerDependsOn: each of these asks the model again.
func TestWhatAnAnswerDependsOn(t *testing.T) {
	in := &scripted{}
	c := newCache(t)
	m, apart := New(in, c, Options{}), New(in, c, Options{PerClient: true})
	base := inference.RerankRequest{Query: "q", Documents: []string{"d"}, Client: "a"}
	ask := func(m *Model, change func(*inference.RerankRequest)) bool {
		t.Helper()
		before := len(in.calls)
		r := base
		if change != nil {
			change(&r)
		}
		if _, err := m.Rerank(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return len(in.calls) > before
	}
	if !ask(m, nil) || ask(m, nil) {
		t.Fatal("the plain request ran not once")
	}
	for name, change := range map[string]func(*inference.RerankRequest){
		"query":     func(r *inference.RerankRequest) { r.Query = "Q" },
		"document":  func(r *inference.RerankRequest) { r.Documents = []string{"D"} },
		"side":      func(r *inference.RerankRequest) { r.Truncation.Side = inference.Left },
		"limit":     func(r *inference.RerankRequest) { r.Truncation.MaxTokens = 100 },
		"refusal":   func(r *inference.RerankRequest) { r.Truncation.Refuse = true },
		"per doc":   func(r *inference.RerankRequest) { r.MaxTokensPerDoc = 9 },
		"windows":   func(r *inference.RerankRequest) { r.Windows = true },
		"measuring": func(r *inference.RerankRequest) { r.Measure = true },
	} {
		if !ask(m, change) {
			t.Errorf("%s: the answer is another's", name)
		}
		if ask(m, change) {
			t.Errorf("%s: it runs again", name)
		}
	}
	for name, change := range map[string]func(*inference.RerankRequest){
		"client":          func(r *inference.RerankRequest) { r.Client = "b" },
		"lane":            func(r *inference.RerankRequest) { r.Lane = inference.LaneInteractive },
		"deadline":        func(r *inference.RerankRequest) { r.Deadline = time.Now().Add(time.Hour) },
		"the model's own": func(r *inference.RerankRequest) { r.Truncation.MaxTokens = 512 },
	} {
		if ask(m, change) {
			t.Errorf("%s: it runs again", name)
		}
	}
	other := func(r *inference.RerankRequest) { r.Client = "b" }
	if !ask(apart, nil) || ask(apart, nil) || !ask(apart, other) || ask(apart, other) {
		t.Error("clients that are kept apart are not")
	}
}

// gated is an embedder whose lists do not end before the gate opens.
type gated struct {
	Inner
	open  chan struct{}
	lists chan struct{} // one for each list that runs
}

func (g *gated) Info() inference.Info {
	return inference.Info{Kind: inference.KindEmbedder, Fingerprint: "gated", MaxTokens: 512, Dimensions: 1}
}

func (g *gated) Embed(ctx context.Context, r inference.EmbedRequest) (*inference.Embeddings, error) {
	if len(r.Texts) > 1 {
		g.lists <- struct{}{}
		<-g.open
	}
	out := &inference.Embeddings{Dim: 1, Usage: inference.Usage{Items: make([]int32, len(r.Texts))}}
	for _, text := range r.Texts {
		out.Values = append(out.Values, float32(len(text)))
	}
	return out, nil
}

// TestNobodyWaitsForALongList who has less time, or a place in a faster lane, than it.
func TestNobodyWaitsForALongList(t *testing.T) {
	in := &gated{open: make(chan struct{}), lists: make(chan struct{}, 1)}
	m := New(in, newCache(t), Options{})
	done := make(chan error, 1)
	go func() {
		_, err := m.Embed(context.Background(), inference.EmbedRequest{Texts: []string{"now", "later"}, Client: "a"})
		done <- err
	}()
	<-in.lists
	limited, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		lane inference.Lane
	}{"a faster lane": {t.Context(), inference.LaneInteractive}, "a deadline": {limited, inference.LaneBulk}} {
		got, err := m.Embed(c.ctx, inference.EmbedRequest{Texts: []string{"now"}, Lane: c.lane, Client: "a"})
		if err != nil || got.Values[0] != 3 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	close(in.open)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestErrorsNameTheRequestsItem, although the model saw a part of the request.
func TestErrorsNameTheRequestsItem(t *testing.T) {
	in := &scripted{}
	m := New(in, newCache(t), Options{})
	if _, err := m.Rerank(t.Context(), inference.RerankRequest{Query: "q", Documents: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	in.fail = &inference.TooLongError{Item: 1, Tokens: 900, Limit: 512}
	_, err := m.Rerank(t.Context(), inference.RerankRequest{Query: "q", Documents: []string{"a", "new", "b", "long"}})
	var long *inference.TooLongError
	if !errors.As(err, &long) || long.Item != 3 {
		t.Errorf("it ends with %v", err)
	}
}

func gzipLines(t *testing.T, path string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(testenv.Gunzip(t, path))), "\n")
}

// TestSimilarQueries measures on the default models what a similar query's scores are worth: questions of the Cranfield collection, then the same ones in
// other words, each with the same abstracts. What it prints stands in docs/caching.md.
func TestSimilarQueries(t *testing.T) {
	store := models.Store{Dir: testenv.Store(t)}
	lib, err := store.RuntimeLibrary()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := ort.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	e := inference.NewEngine(inference.EngineConfig{Runtime: rt, Machine: inference.ThisMachine(), CacheDir: t.TempDir()})
	t.Cleanup(func() {
		if err := errors.Join(e.Close(context.Background()), rt.Close()); err != nil {
			t.Error(err)
		}
	})
	load := func(ref string, f func(context.Context, models.Manifest, inference.Settings) (*inference.Model, error)) *inference.Model {
		m, err := store.Resolve(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		// One row a run: a score depends on nothing but its pair.
		loaded, err := f(t.Context(), m, inference.Settings{Provider: ort.CPU, Precision: inference.INT8})
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	embedder, reranker := load(models.DefaultEmbedder, e.LoadEmbedder), load(models.DefaultReranker, e.LoadReranker)
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const questions, abstracts = 24, 8
	queries := gzipLines(t, "../benchmarks/testdata/queries.txt.gz")[:questions]
	passages := gzipLines(t, "../benchmarks/testdata/passages.txt.gz")[:abstracts]
	for i, p := range passages {
		passages[i] = p[:min(len(p), 300)]
	}
	reworded := func(q string) string {
		q = strings.NewReplacer(" the ", " ", "what are", "which are", "what is", "tell me", "has anyone", "did anybody", "how ", "in which way ").Replace(q)
		return "please, " + q
	}

	truth := New(reranker, newCache(t), Options{}) // remembers the true scores, so that each runs once
	vectors := New(embedder, newCache(t), Options{})
	for _, min := range []float64{0.90, 0.95, 0.98} {
		m := New(truth, newCache(t), Options{PerClient: true})
		m.AllowSimilar(func(ctx context.Context, q, client string) ([]float32, error) {
			v, err := vectors.Embed(ctx, inference.EmbedRequest{Texts: []string{q}, Prompt: "query", Client: client})
			if err != nil {
				return nil, err
			}
			return v.Values, nil
		}, embedder.Info().Dimensions, min, [32]byte{7})
		ask := func(q, client string) (got, want *inference.Scores) {
			t.Helper()
			r := inference.RerankRequest{Query: q, Documents: passages, Client: client}
			got, err := m.RerankSimilar(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if want, err = truth.Rerank(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			return got, want
		}
		for _, phase := range []struct {
			name, client string
			word         func(string) string
		}{{"other questions", "a", func(q string) string { return q }}, {"the same in other words", "a", reworded}, {"another client, the same in other words", "b", reworded}} {
			var errs []float64
			flips, pairs := 0, 0
			for _, q := range queries {
				got, want := ask(phase.word(q), phase.client)
				pairs += len(passages)
				for i := range passages {
					d := math.Abs(float64(got.Logits[i] - want.Logits[i]))
					if got.Usage.Similar == 0 && d != 0 {
						t.Fatalf("%s: a score of its own is off by %v", phase.name, d)
					}
					if got.Usage.Similar > 0 {
						errs = append(errs, d)
						// Relevance 0.6, the default threshold, is the logit 0.405.
						if (got.Logits[i] >= 0.405) != (want.Logits[i] >= 0.405) {
							flips++
						}
					}
				}
			}
			slices.Sort(errs)
			if len(errs) == 0 {
				t.Logf("cosine ≥ %.2f, %s: 0 of %d scores reused", min, phase.name, pairs)
			} else {
				t.Logf("cosine ≥ %.2f, %s: %d of %d scores reused; error in the logit: median %.2f, 95%% %.2f, largest %.2f; %d on the other side of 0.6", min, phase.name,
					len(errs), pairs, errs[len(errs)/2], errs[len(errs)*95/100], errs[len(errs)-1], flips)
			}
			if phase.word("what is it") != "what is it" && phase.client == "a" && min == 0.90 && len(errs) < pairs/2 {
				t.Errorf("of questions in other words only %d of %d scores were reused", len(errs), pairs)
			}
		}
	}
	// Another client has none of the first one's questions: its first one cannot be similar to anything.
	m := New(truth, newCache(t), Options{PerClient: true})
	one := make([]float32, 4)
	one[0] = 1
	m.AllowSimilar(func(context.Context, string, string) ([]float32, error) { return one, nil }, 4, 0.9, [32]byte{1})
	for client, similar := range map[string]int{"a": 0, "b": 0} {
		r := inference.RerankRequest{Query: queries[0], Documents: passages, Client: client}
		if got, err := m.RerankSimilar(t.Context(), r); err != nil || got.Usage.Similar != similar {
			t.Errorf("client %s: %v, %+v", client, err, got.Usage)
		}
		r.Query = queries[1]
		if got, err := m.RerankSimilar(t.Context(), r); err != nil || got.Usage.Similar != len(passages) {
			t.Errorf("client %s, the second question: %v, %+v", client, err, got.Usage)
		}
	}
}
