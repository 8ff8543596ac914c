package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/tokenize"
)

// ids are the tokens of a text, without special ones.
func ids(text string) []int32 { return stubTokenizer().AppendIDs(nil, text) }

const cls, sep = 2, 3

// single and pair are the rows that a text and a pair make when nothing is cut.
func single(text ...int32) ort.Row {
	row := append(append([]int32{cls}, text...), sep)
	return ort.Row{IDs: row, TypeOneAt: len(row)}
}

func pair(a, b []int32) ort.Row {
	row := slices.Concat([]int32{cls}, a, []int32{sep}, b, []int32{sep})
	return ort.Row{IDs: row, TypeOneAt: len(a) + 2}
}

// stubLogit is what the stub reranker says of a row.
func stubLogit(r ort.Row) float32 {
	v := make([]float32, 1)
	stubVector(v, r)
	return v[0]
}

var smallRows = shape{pad: 16, maxRows: noRowLimit, maxCols: 40}

func embedder(t *testing.T, form models.Form) *Model {
	t.Helper()
	e, ms := started(t, EngineConfig{}, 2, newStubModel(t, form, 8, smallRows))
	t.Cleanup(func() { closeNow(t, e) })
	return ms[0]
}

func reranker(t *testing.T) *Model {
	t.Helper()
	e, ms := started(t, EngineConfig{}, 2, newStubModel(t, models.FormScores, 1, smallRows))
	t.Cleanup(func() { closeNow(t, e) })
	return ms[0]
}

// parallel says whether a is b times a positive factor, as far as float32 tells.
func parallel(a, b []float32) bool {
	d := Drift{MinCosine: 1}
	d.compare(models.FormVector, a, b)
	return d.MinCosine > 1-1e-6
}

func length(v []float32) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

func TestEmbedKeepsTheOrderOfItsTexts(t *testing.T) {
	for _, form := range []models.Form{models.FormTokens, models.FormVector} {
		m := embedder(t, form)
		var texts []string
		for i := range 50 {
			texts = append(texts, words(7*i, 1+i*13%36))
		}
		got, err := m.Embed(t.Context(), EmbedRequest{Texts: texts})
		if err != nil {
			t.Fatal(err)
		}
		if got.Dim != 8 || len(got.Values) != 50*8 {
			t.Fatalf("%d values of %d dimensions for 50 texts", len(got.Values), got.Dim)
		}
		tokens := 0
		for i, text := range texts {
			row := single(ids(text)...)
			tokens += len(row.IDs)
			want := make([]float32, 8)
			stubVector(want, row)
			if v := got.Row(i); !parallel(v, want) || math.Abs(length(v)-1) > 1e-6 {
				t.Errorf("form %d, text %d: %v of length %v, want the direction of %v", form, i, v, length(v), want)
			}
		}
		if got.Usage.Tokens != tokens || len(got.Usage.Cut) != 0 {
			t.Errorf("usage %+v, want %d tokens and nothing cut", got.Usage, tokens)
		}
		if got.Timing.Tokenize <= 0 || got.Timing.Inference <= 0 {
			t.Errorf("timing %+v", got.Timing)
		}
	}
}

func TestSkipNormalizeLeavesThePooledVector(t *testing.T) {
	m := embedder(t, models.FormTokens)
	got, err := m.Embed(t.Context(), EmbedRequest{Texts: []string{"w5 w6", "w7"}, SkipNormalize: true})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, 8)
	stubVector(want, single(ids("w7")...))
	for i, x := range got.Row(1) {
		if math.Abs(float64(x-want[i])) > 1e-2 {
			t.Fatalf("got %v, want %v", got.Row(1), want)
		}
	}
}

func TestPromptsStandInFrontOfTheText(t *testing.T) {
	m := embedder(t, models.FormVector)
	for prompt, text := range map[string]string{"": "w1 w2", "query": "query: w1 w2", "passage": "passage: w1 w2"} {
		got, err := m.Embed(t.Context(), EmbedRequest{Texts: []string{"w1 w2"}, Prompt: prompt})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, 8)
		row := single(ids(text)...)
		stubVector(want, row)
		if !parallel(got.Values, want) || got.Usage.Tokens != len(row.IDs) {
			t.Errorf("prompt %q is not that of the text %q", prompt, text)
		}
	}
	_, err := m.Embed(t.Context(), EmbedRequest{Texts: []string{"w1"}, Prompt: "title"})
	var unknown *UnknownPromptError
	if !errors.As(err, &unknown) || unknown.Prompt != "title" || !slices.Equal(unknown.Known, []string{"passage", "query"}) {
		t.Errorf("prompt title: %v", err)
	}
}

func TestRerankScoresEachPair(t *testing.T) {
	m := reranker(t)
	docs := []string{"w1", words(100, 20), "", "w1", words(3, 10)}
	got, err := m.Rerank(t.Context(), RerankRequest{Query: "w50 w51", Documents: docs})
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for i, doc := range docs {
		row := pair(ids("w50 w51"), ids(doc))
		tokens += len(row.IDs)
		if want := stubLogit(row); got.Logits[i] != want {
			t.Errorf("document %d: logit %v, want %v", i, got.Logits[i], want)
		}
	}
	if len(got.Logits) != len(docs) || got.Usage.Tokens != tokens || len(got.Usage.Cut) != 0 {
		t.Errorf("%d logits, usage %+v; want %d tokens", len(got.Logits), got.Usage, tokens)
	}
}

// TestEveryPairIsCutAsByTheTokenizer compares each way to cut with the tokenizer's own, given both texts whole.
func TestEveryPairIsCutAsByTheTokenizer(t *testing.T) {
	m := reranker(t)
	lengths := []int{0, 1, 17, 18, 19, 20, 34, 35, 36, 37, 38, 40, 41, 90, 91}
	n := 0
	for _, side := range []tokenize.Side{Right, Left} {
		for _, limit := range []int{0, 4, 39, 40} {
			for _, perDoc := range []int{0, 1, 18, 35, 60} {
				for _, q := range lengths {
					query := words(0, q)
					var docs []string
					var want []float32
					var cut []int
					for i, d := range lengths {
						docs = append(docs, words(500, d))
						doc, shortened := ids(docs[i]), false
						if perDoc > 0 && d > perDoc {
							shortened = true
							if doc = doc[:perDoc]; side == Left {
								doc = ids(docs[i])[d-perDoc:]
							}
						}
						most := limit
						if limit == 0 {
							most = smallRows.maxCols
						}
						enc, err := stubTokenizer().Pair(nil, ids(query), doc, tokenize.Options{MaxTokens: most, Side: side})
						if err != nil {
							t.Fatal(err)
						}
						want = append(want, stubLogit(ort.Row{IDs: enc.IDs, TypeOneAt: enc.TypeOneAt}))
						if shortened || enc.Cut() > 0 {
							cut = append(cut, i)
						}
					}
					got, err := m.Rerank(t.Context(), RerankRequest{
						Query: query, Documents: docs, MaxTokensPerDoc: perDoc, Truncation: Truncation{Side: side, MaxTokens: limit},
					})
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got.Logits, want) || !slices.Equal(got.Usage.Cut, cut) {
						t.Errorf("side %d, limit %d, %d tokens per document, query of %d: logits %v cut %v, want %v and %v",
							side, limit, perDoc, q, got.Logits, got.Usage.Cut, want, cut)
					}
					n++
				}
			}
		}
	}
	t.Logf("%d requests", n)
}

func TestEveryTextIsCutAsByTheTokenizer(t *testing.T) {
	m := embedder(t, models.FormVector)
	for _, side := range []tokenize.Side{Right, Left} {
		for _, limit := range []int{0, 2, 3, 17, 40, 1000} {
			var texts []string
			var cut []int
			for i, n := range []int{0, 1, 15, 16, 37, 38, 39, 40, 41, 200} {
				texts = append(texts, words(100*i, n))
				if most := min(max(limit, 0), smallRows.maxCols); n+2 > most && most > 0 || n+2 > smallRows.maxCols {
					cut = append(cut, i)
				}
			}
			got, err := m.Embed(t.Context(), EmbedRequest{Texts: texts, Truncation: Truncation{Side: side, MaxTokens: limit}})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Usage.Cut, cut) {
				t.Errorf("side %d, limit %d: cut %v, want %v", side, limit, got.Usage.Cut, cut)
			}
			most := smallRows.maxCols
			if limit > 0 {
				most = min(most, limit)
			}
			for i, text := range texts {
				x := ids(text)
				if keep := most - 2; len(x) > keep {
					if side == Left {
						x = x[len(x)-keep:]
					} else {
						x = x[:keep]
					}
				}
				want := make([]float32, 8)
				stubVector(want, single(x...))
				if !parallel(got.Row(i), want) {
					t.Errorf("side %d, limit %d: text %d was not cut to %v", side, limit, i, x)
				}
			}
		}
	}
}

func TestRefusedTruncationRunsNothing(t *testing.T) {
	sh := smallRows
	emb, rr := newStubModel(t, models.FormVector, 8, sh), newStubModel(t, models.FormScores, 1, sh)
	e, ms := started(t, EngineConfig{}, 1, emb, rr)
	defer closeNow(t, e)
	refuse := Truncation{Refuse: true}
	check := func(what string, err error, item, tokens, limit int) {
		t.Helper()
		var long *TooLongError
		if !errors.As(err, &long) || *long != (TooLongError{Item: item, Tokens: tokens, Limit: limit}) {
			t.Errorf("%s: %v, want item %d of %d tokens refused at %d", what, err, item, tokens, limit)
		}
	}
	_, err := ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w1", words(0, 38), words(0, 500)}, Truncation: refuse})
	check("a text of 502", err, 2, 502, 40)
	_, err = ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w1 w2"}, Truncation: Truncation{Refuse: true, MaxTokens: 3}})
	check("a text of 4 at a limit of 3", err, 0, 4, 3)
	_, err = ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{words(0, 36)}, Prompt: "query", Truncation: Truncation{Refuse: true, MaxTokens: 39}})
	check("a text that only its prompt makes too long", err, 0, 40, 39)
	_, err = ms[1].Rerank(t.Context(), RerankRequest{Query: words(0, 10), Documents: []string{words(0, 27), words(0, 28)}, Truncation: refuse})
	check("a pair of 41", err, 1, 41, 40)
	_, err = ms[1].Rerank(t.Context(), RerankRequest{Query: words(0, 100), Documents: []string{"w1"}, Truncation: Truncation{Refuse: true, Side: Left}})
	check("a query of 100", err, 0, 104, 40)
	if emb.runs+rr.runs != 0 {
		t.Errorf("%d runs for requests that were refused", emb.runs+rr.runs)
	}
	// Cutting documents to a length of their own is no truncation of the pair.
	got, err := ms[1].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{words(0, 500), "w2"}, MaxTokensPerDoc: 30, Truncation: refuse})
	if err != nil || !slices.Equal(got.Usage.Cut, []int{0}) || got.Logits[0] != stubLogit(pair(ids("w1"), ids(words(0, 30)))) {
		t.Errorf("documents cut to 30 tokens: %+v, %v", got, err)
	}
}

func TestALimitBelowTheSpecialTokensIsAnError(t *testing.T) {
	var limit *tokenize.LimitError
	if _, err := embedder(t, models.FormVector).Embed(t.Context(), EmbedRequest{Texts: []string{"w1"}, Truncation: Truncation{MaxTokens: 1}}); !errors.As(err, &limit) {
		t.Errorf("a limit of one token: %v", err)
	}
	if _, err := reranker(t).Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"w2"}, Truncation: Truncation{MaxTokens: 2}}); !errors.As(err, &limit) {
		t.Errorf("a limit of two tokens: %v", err)
	}
}

// A failed row costs its own item and nothing else, of this request or of another in the same batch.
func TestARowFailsAlone(t *testing.T) {
	emb, rr := newStubModel(t, models.FormTokens, 8, smallRows), newStubModel(t, models.FormScores, 1, smallRows)
	// The first run holds the device until all requests wait, so that they share batches.
	gate := make(chan struct{})
	var once sync.Once
	for _, m := range []*stubModel{emb, rr} {
		m.onRun = func(rows []ort.Row, cols int) { once.Do(func() { <-gate }) }
	}
	e, ms := started(t, EngineConfig{MaxBatchTokens: 4096}, 1, emb, rr)
	defer closeNow(t, e)
	var g sync.WaitGroup
	queued := func(rows int) {
		for e.Stats().QueuedRows != rows {
			time.Sleep(time.Millisecond)
		}
	}
	g.Go(func() { ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w1"}}) })
	for emb.begun() == 0 {
		time.Sleep(time.Millisecond)
	}
	g.Go(func() {
		got, err := ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w10 w11", "w12 nan", "w13", "bad w14", "w15"}})
		var row *RowError
		if !errors.As(err, &row) || row.Item != 1 || row.Failed != 2 || !errors.Is(err, ErrNotFinite) {
			t.Errorf("two rows of five failed: %v", err)
		}
		if got == nil {
			t.Error("no result beside the row's error")
			return
		}
		for i, text := range []string{"w10 w11", "", "w13", "", "w15"} {
			want := make([]float32, 8)
			stubVector(want, single(ids(text)...))
			switch v := got.Row(i); {
			case text == "" && !slices.ContainsFunc(v, func(x float32) bool { return x == x }):
			case text != "" && parallel(v, want):
			default:
				t.Errorf("row %d: %v", i, v)
			}
		}
	})
	queued(5)
	g.Go(func() {
		got, err := ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w20", "w21"}})
		if err != nil || slices.ContainsFunc(got.Values, func(x float32) bool { return x != x }) {
			t.Errorf("a batch mate of rows that failed: %v, %v", got, err)
		}
	})
	queued(7)
	g.Go(func() {
		got, err := ms[1].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"bad", "w2", "nan"}})
		var row *RowError
		if !errors.As(err, &row) || row.Item != 0 || row.Failed != 2 || !errors.Is(err, errBadRow) {
			t.Errorf("two documents of three failed: %v", err)
		}
		if got == nil || got.Logits[0] == got.Logits[0] || got.Logits[1] != stubLogit(pair(ids("w1"), ids("w2"))) || got.Logits[2] == got.Logits[2] {
			t.Errorf("beside them: %+v", got)
		}
	})
	queued(10)
	close(gate)
	g.Wait()
	// One run; seven rows together and one by one; three rows together and one by one.
	if emb.calls != 1+1+7 || rr.calls != 1+3 {
		t.Errorf("%d and %d runs: the rows did not share a batch", emb.calls, rr.calls)
	}
}

func TestRequestsWithoutItems(t *testing.T) {
	got, err := embedder(t, models.FormVector).Embed(t.Context(), EmbedRequest{})
	if err != nil || len(got.Values) != 0 || got.Dim != 8 || got.Usage.Tokens != 0 {
		t.Errorf("no texts: %+v, %v", got, err)
	}
	scores, err := reranker(t).Rerank(t.Context(), RerankRequest{Query: "w1"})
	if err != nil || len(scores.Logits) != 0 {
		t.Errorf("no documents: %+v, %v", scores, err)
	}
}

func TestAModelDoesWhatItsKindDoes(t *testing.T) {
	var kind *KindError
	if _, err := embedder(t, models.FormVector).Rerank(t.Context(), RerankRequest{}); !errors.As(err, &kind) || kind.Kind != KindEmbedder || kind.Wanted != KindReranker {
		t.Errorf("reranking with an embedder: %v", err)
	}
	if _, err := reranker(t).Embed(t.Context(), EmbedRequest{}); !errors.As(err, &kind) || kind.Kind != KindReranker || kind.Wanted != KindEmbedder {
		t.Errorf("embedding with a reranker: %v", err)
	}
}

func TestAContextThatHasEndedStopsARequestEarly(t *testing.T) {
	cause := errors.New("the client hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := embedder(t, models.FormVector).Embed(ctx, EmbedRequest{Texts: []string{"w1"}}); !errors.Is(err, cause) {
		t.Errorf("embed: %v", err)
	}
	if _, err := reranker(t).Rerank(ctx, RerankRequest{Query: "w1", Documents: []string{"w1"}}); !errors.Is(err, cause) {
		t.Errorf("rerank: %v", err)
	}
	e, ms := started(t, EngineConfig{}, 1, newStubModel(t, models.FormVector, 8, smallRows))
	defer closeNow(t, e)
	// While others hold the CPUs a text waits for its turn, and not longer than its context allows.
	e.tokenise.Acquire(t.Context(), 1)
	defer e.tokenise.Release(1)
	short, stop := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
	defer stop()
	if _, err := ms[0].Embed(short, EmbedRequest{Texts: []string{"w1"}}); !errors.Is(err, cause) {
		t.Errorf("embed without a CPU: %v", err)
	}
}

func TestLongQueriesAndDocumentsAreCut(t *testing.T) {
	m := reranker(t)
	long := strings.Repeat(words(0, 100), 200)
	got, err := m.Rerank(t.Context(), RerankRequest{Query: long, Documents: slices.Repeat([]string{long, "w1"}, 20)})
	if err != nil {
		t.Fatal(err)
	}
	if got.Usage.Tokens != 20*2*smallRows.maxCols || len(got.Usage.Cut) != 40 {
		t.Errorf("usage %d tokens, %d cut", got.Usage.Tokens, len(got.Usage.Cut))
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&KindError{"m", KindEmbedder, KindReranker}, []string{"m", "embedder", "reranker"}},
		{&TooLongError{3, 600, 512}, []string{"item 3", "600", "512"}},
		{&OverloadedError{Tokens: 5, Queued: 90, Limit: 93}, []string{"5", "90", "93"}},
		{&RowError{Item: 4, Failed: 1, Err: ErrNotFinite}, []string{"item 4", "not finite"}},
		{&UnknownPromptError{"x", []string{"query"}}, []string{"x", "query"}},
		{&UnavailableError{ort.CUDA, FP32, []error{errors.New("no library"), errors.New("no driver")}}, []string{"cuda", "fp32", "no library; no driver"}},
	} {
		for _, part := range c.want {
			if !strings.Contains(c.err.Error(), part) {
				t.Errorf("%T says %q, without %q", c.err, c.err, part)
			}
		}
	}
	if err := fmt.Errorf("outer: %w", &RowError{Err: ErrNotFinite}); !errors.Is(err, ErrNotFinite) {
		t.Error("a row's error hides its cause")
	}
}
