package inference

// The engine on the real runtime and the default models.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ragate/inference/ort"
	"ragate/internal/testenv"
	"ragate/models"
	"ragate/models/graph"
)

// The library is loaded once for all tests of the package, and rewritten graphs and measurements are kept among them, in a folder that
// TestMain removes.
var (
	realRuntime   *ort.Runtime
	realCache     string
	realManifests = map[string]models.Manifest{}
	realMemory    = memory{}
)

type memory map[string]Measured

func (m memory) Recall(key string) (Measured, bool) { v, ok := m[key]; return v, ok }
func (m memory) Remember(key string, v Measured)    { m[key] = v }

func TestMain(m *testing.M) {
	code := m.Run()
	if realRuntime != nil {
		if err := realRuntime.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if realCache != "" {
		os.RemoveAll(realCache)
	}
	os.Exit(code)
}

func openRuntime(t testing.TB) *ort.Runtime {
	t.Helper()
	if realRuntime == nil {
		store := models.Store{Dir: testenv.Store(t)}
		lib, err := store.RuntimeLibrary()
		if err != nil {
			t.Fatal(err)
		}
		if realRuntime, err = ort.Open(lib); err != nil {
			t.Fatal(err)
		}
	}
	if realCache == "" {
		var err error
		if realCache, err = os.MkdirTemp("", "ragate-inference-test-"); err != nil {
			t.Fatal(err)
		}
	}
	return realRuntime
}

func manifest(t testing.TB, ref string) models.Manifest {
	t.Helper()
	m, ok := realManifests[ref]
	if !ok {
		store := models.Store{Dir: testenv.Store(t)}
		var err error
		if m, err = store.Resolve(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		realManifests[ref] = m
	}
	return m
}

// realEngine loads both default models and starts. The test closes it.
func realEngine(t testing.TB, set Settings, cfg EngineConfig) (e *Engine, emb, rr *Model) {
	t.Helper()
	cfg.Runtime, cfg.CacheDir = openRuntime(t), realCache
	if cfg.Machine == (Machine{}) {
		cfg.Machine = ThisMachine()
	}
	if cfg.Memory == nil {
		cfg.Memory = realMemory
	}
	e = NewEngine(cfg)
	fail := func(err error) {
		t.Helper()
		if err != nil {
			e.Close(context.Background())
			t.Fatal(err)
		}
	}
	var err error
	emb, err = e.LoadEmbedder(t.Context(), manifest(t, models.DefaultEmbedder), set)
	fail(err)
	rr, err = e.LoadReranker(t.Context(), manifest(t, models.DefaultReranker), set)
	fail(err)
	fail(e.Start(t.Context()))
	return e, emb, rr
}

// passages are texts of 3 to most words, cut out of English sentences.
func passages(r *rand.Rand, n, most int) []string {
	all := strings.Fields(probeText)
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for k, want := 0, 3+r.IntN(most-2); k < want; {
			from := r.IntN(len(all))
			for _, w := range all[from:min(from+1+r.IntN(12), len(all))] {
				b.WriteString(w + " ")
				k++
			}
		}
		out[i] = b.String()
	}
	return out
}

// precisions of this machine that promise answers which do not depend on others.
func steadyPrecisions() []Precision {
	p := []Precision{FP32, INT8}
	if ThisMachine().BF16 {
		p = append(p, BF16)
	}
	return p
}

// sample is what a precision says of a few documents.
type sample struct {
	precision Precision
	logits    []float32
	vectors   *Embeddings
}

// TestPrecisions runs the default models in every precision that keeps answers apart: the answers are right, they are those of
// float32 within the precision's bounds, and they do not depend on who else is asking.
func TestPrecisions(t *testing.T) {
	var all []sample
	for _, precision := range steadyPrecisions() {
		t.Run(string(precision), func(t *testing.T) {
			var o observer
			// Batches far larger than the default ones: they hold more unlike rows.
			e, emb, rr := realEngine(t, Settings{Precision: precision}, EngineConfig{MaxBatchTokens: 3000, Observer: &o})
			defer closeNow(t, e)
			checkTokens(t, emb)
			all = append(all, sampleOf(t, precision, emb, rr))
			checkIndependence(t, precision, emb, rr, &o)
		})
	}
	// Against float32, which comes first. The bounds are what was measured over hundreds of texts, with room.
	bounds := map[Precision]struct{ logit, cosine float64 }{BF16: {0.15, 0.9997}, INT8: {1, 0.995}}
	for _, a := range all[1:] {
		d := Drift{MinCosine: 1}
		for i := range a.logits {
			d.compare(models.FormScores, a.logits[i:i+1], all[0].logits[i:i+1])
			d.compare(models.FormVector, a.vectors.Row(i), all[0].vectors.Row(i))
		}
		t.Logf("%s against %s: logit within %.4f, cosine at least %.6f", a.precision, all[0].precision, d.MaxLogit, d.MinCosine)
		if b := bounds[a.precision]; d.MaxLogit > b.logit || d.MinCosine < b.cosine {
			t.Errorf("%s is not %s: logit off by %v, cosine %v", a.precision, all[0].precision, d.MaxLogit, d.MinCosine)
		}
	}
}

func sampleOf(t *testing.T, p Precision, emb, rr *Model) sample {
	docs := []string{"Bananas are rich in potassium.", "Paris is the capital and most populous city of France.", "France is a country in Europe."}
	s, err := rr.Rerank(t.Context(), RerankRequest{Query: "what is the capital of france", Documents: docs})
	if err != nil {
		t.Fatal(err)
	}
	v, err := emb.Embed(t.Context(), EmbedRequest{Texts: docs, Prompt: "passage"})
	if err != nil {
		t.Fatal(err)
	}
	if got := Order(s.Logits); !slices.Equal(got, []int{1, 2, 0}) {
		t.Errorf("order %v of logits %v", got, s.Logits)
	}
	for i := range docs {
		if n := length(v.Row(i)); math.Abs(n-1) > 1e-5 || v.Dim != 384 {
			t.Errorf("a vector of %d dimensions and length %v", v.Dim, n)
		}
	}
	return sample{p, s.Logits, v}
}

func checkTokens(t *testing.T, emb *Model) {
	got, err := emb.Embed(t.Context(), EmbedRequest{Texts: []string{"hello world", strings.Repeat("word ", 600)}, Prompt: "query"})
	if err != nil {
		t.Fatal(err)
	}
	// [CLS] query : hello world [SEP], and a row cut to the limit
	if got.Usage.Tokens != 6+512 || !slices.Equal(got.Usage.Cut, []int{1}) {
		t.Errorf("usage %+v, want 518 tokens and text 1 cut", got.Usage)
	}
	tokens := emb.Tokens("hello world", true)
	if len(tokens) != 4 || tokens[1].Text != "hello" || tokens[1].ID != 7592 || !tokens[0].Special {
		t.Errorf("tokens %+v", tokens)
	}
}

// checkIndependence asks for each text and pair alone, and then from 16 callers at once among random others.
func checkIndependence(t *testing.T, precision Precision, emb, rr *Model, o *observer) {
	const (
		seed    = 21
		callers = 16
		query   = "how many days of leave does an employee accrue in a month"
	)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	texts := append(passages(r, 16, 30), passages(r, 5, 130)...)
	vectors := make([][]float32, len(texts))
	logits := make([]float32, len(texts))
	for i, text := range texts {
		v, err := emb.Embed(t.Context(), EmbedRequest{Texts: []string{text}, Prompt: "passage"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := rr.Rerank(t.Context(), RerankRequest{Query: query, Documents: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		vectors[i], logits[i] = v.Values, s.Logits[0]
	}
	alone := len(o.batches())

	var mu sync.Mutex
	worst := Drift{MinCosine: 1}
	var g sync.WaitGroup
	for c := range callers {
		r := rand.New(rand.NewPCG(seed, uint64(c+1)))
		g.Go(func() {
			for k := range 2 {
				pick := make([]int, 1+r.IntN(6))
				some := make([]string, len(pick))
				for i := range pick {
					pick[i] = r.IntN(len(texts))
					some[i] = texts[pick[i]]
				}
				form := models.FormVector
				var got [][]float32
				if (c+k)%2 == 0 {
					v, err := emb.Embed(t.Context(), EmbedRequest{Texts: some, Prompt: "passage"})
					if err != nil {
						t.Error(err)
						return
					}
					got = slices.Collect(slices.Chunk(v.Values, v.Dim))
				} else {
					form = models.FormScores
					s, err := rr.Rerank(t.Context(), RerankRequest{Query: query, Documents: some})
					if err != nil {
						t.Error(err)
						return
					}
					got = slices.Collect(slices.Chunk(s.Logits, 1))
				}
				mu.Lock()
				for i, p := range pick {
					want := vectors[p]
					if form == models.FormScores {
						want = logits[p : p+1]
					}
					worst.compare(form, got[i], want)
				}
				worst.Rows += len(pick)
				mu.Unlock()
			}
		})
	}
	g.Wait()
	largest, padding := 0, 0
	for _, b := range o.batches()[alone:] {
		largest = max(largest, b.Rows)
		padding += b.PaddedTokens - b.Tokens
	}
	t.Logf("%s on %s: %d answers, logit within %.6f, cosine at least %.8f; up to %d rows in a batch", precision, emb.Info().Provider,
		worst.Rows, worst.MaxLogit, worst.MinCosine, largest)
	if worst.MaxLogit > 0.005 || worst.MinCosine < 0.99999 {
		t.Errorf("answers move with their batch mates: logit by %v, cosine %v", worst.MaxLogit, worst.MinCosine)
	}
	if batched := precision != INT8; batched && largest < 8 || !batched && (largest != 1 || padding != 0) {
		t.Errorf("%s ran batches of up to %d rows with %d tokens of padding", precision, largest, padding)
	}
}

// TestWhatRunsIsWhatIsReported holds what a model says of itself against the setting, and the drift that its self-test found against
// what the precision promises.
func TestWhatRunsIsWhatIsReported(t *testing.T) {
	here := ThisMachine()
	type want struct {
		provider, precision string
		drifts              bool
	}
	type testCase struct {
		name    string
		set     Settings
		machine Machine
		want    want
	}
	cases := []testCase{
		{"int8-batched", Settings{Precision: INT8Batched}, here, want{"cpu", "int8-batched", true}},
		{"auto without bf16", Settings{}, Machine{Name: "without bf16", CPUs: 2}, want{"cpu", "int8", false}},
	}
	if here.BF16 {
		cases = append(cases, testCase{"auto", Settings{}, here, want{"openvino", "bf16", false}})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, emb, rr := realEngine(t, c.set, EngineConfig{Machine: c.machine})
			defer closeNow(t, e)
			for _, m := range []*Model{emb, rr} {
				i := m.Info()
				t.Logf("%s: drift %+v, fidelity %+v, %d × %d threads, batches of %d tokens", i.ID, i.Drift, i.Fidelity, i.Streams, i.Threads, i.BatchTokens)
				if i.Provider != c.want.provider || i.Precision != c.want.precision {
					t.Errorf("%s runs %s on %s, want %+v", i.ID, i.Precision, i.Provider, c.want)
				}
				if i.Streams < 1 || i.Threads < 1 || i.BatchTokens < minBatchTokens || i.MaxTokens != 512 || i.DType != "int8" || i.Drift.Rows == 0 {
					t.Errorf("%s: %+v", i.ID, i)
				}
				warned := slices.ContainsFunc(i.Warnings, func(w string) bool { return strings.Contains(w, "share its batch") })
				drifts := i.Drift.MaxLogit > 0.05 || i.Kind == KindEmbedder && i.Drift.MinCosine < 0.9995
				if warned != c.want.drifts || drifts != c.want.drifts {
					t.Errorf("%s warns %q, and the self-test found a drift of %+v", i.ID, i.Warnings, i.Drift)
				}
				if got, ok := realMemory.Recall(m.core.key()); !ok || got.Drift != i.Drift || got.Fidelity != i.Fidelity || !(got.TokensPerSecond > 0) {
					t.Errorf("%s: remembered was %+v (%v)", i.ID, got, ok)
				}
			}
			if i := emb.Info(); i.Kind != KindEmbedder || i.Dimensions != 384 || i.Pooling != "mean" || i.Prompts["query"] != "query: " {
				t.Errorf("the embedder says %+v", i)
			}
			if i := rr.Info(); i.Kind != KindReranker || i.Dimensions != 0 {
				t.Errorf("the reranker says %+v", i)
			}
		})
	}
}

// A model whose measurements are known is not measured again.
func TestMeasurementsAreRecalled(t *testing.T) {
	known := Measured{Drift: Drift{MaxLogit: 0.125, MinCosine: 0.5, Rows: 3}, Fidelity: Drift{MinCosine: 0.25, Rows: 2}, TokensPerSecond: 123_450}
	e := NewEngine(EngineConfig{Runtime: openRuntime(t), CacheDir: realCache, Machine: ThisMachine(), Memory: recalls{known}})
	defer closeNow(t, e)
	m, err := e.LoadReranker(t.Context(), manifest(t, models.DefaultReranker), Settings{Precision: INT8})
	if err != nil {
		t.Fatal(err)
	}
	if i := m.Info(); i.Drift != known.Drift || i.Fidelity != known.Fidelity || i.BatchTokens != 2469 {
		t.Errorf("info %+v, want what was remembered and a slice of 2469 tokens", i)
	}
}

// recalls is a memory that knows everything.
type recalls struct{ Measured }

func (r recalls) Recall(string) (Measured, bool) { return r.Measured, true }
func (r recalls) Remember(string, Measured)      {}

// loadFails loads the default embedder and wants it refused.
func loadFails(t *testing.T, set Settings, m Machine) error {
	t.Helper()
	e := NewEngine(EngineConfig{Runtime: openRuntime(t), CacheDir: t.TempDir(), Machine: m})
	defer closeNow(t, e)
	_, err := e.LoadEmbedder(t.Context(), manifest(t, models.DefaultEmbedder), set)
	if err == nil {
		t.Fatalf("%+v on %+v: no error", set, m)
	}
	var un *UnavailableError
	if !errors.As(err, &un) || !strings.Contains(err.Error(), models.DefaultEmbedder) {
		t.Errorf("%+v on %+v: %v, want an UnavailableError that names the model", set, m, err)
	}
	return err
}

func TestWhatCannotRunIsRefused(t *testing.T) {
	var p *ort.ProviderError
	err := loadFails(t, Settings{Provider: ort.CUDA}, ThisMachine())
	if !errors.As(err, &p) || p.Provider != ort.CUDA || !strings.Contains(err.Error(), "libonnxruntime_providers_cuda") {
		t.Errorf("cuda by name: %v, want its library named", err)
	}
	err = loadFails(t, Settings{Precision: BF16}, Machine{Name: "Old CPU", CPUs: 2})
	for _, part := range []string{"AMX", "avx512_bf16", "Old CPU"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("bf16 without the hardware: %v, without %q", err, part)
		}
	}
	err = loadFails(t, Settings{Provider: ort.CPU, Precision: BF16}, Machine{CPUs: 2, BF16: true})
	if !strings.Contains(err.Error(), "openvino provider only") {
		t.Errorf("bf16 on the cpu provider: %v", err)
	}
}

func TestAModelOfTheOtherKindIsRefused(t *testing.T) {
	e := NewEngine(EngineConfig{Runtime: openRuntime(t), CacheDir: t.TempDir(), Machine: ThisMachine()})
	defer closeNow(t, e)
	var load *models.LoadError
	if _, err := e.LoadEmbedder(t.Context(), manifest(t, models.DefaultReranker), Settings{}); !errors.As(err, &load) {
		t.Errorf("a reranker as embedder: %v", err)
	}
	if _, err := e.LoadReranker(t.Context(), manifest(t, models.DefaultReranker), Settings{MaxTokens: 3}); err == nil || !strings.Contains(err.Error(), "special tokens") {
		t.Errorf("a limit that holds no text: %v", err)
	}
	m := manifest(t, models.DefaultEmbedder)
	m.TokenizerPath = m.GraphPath
	if _, err := e.LoadEmbedder(t.Context(), m, Settings{}); !errors.As(err, &load) || !strings.Contains(err.Error(), "tokenizer") {
		t.Errorf("a tokenizer that is none: %v", err)
	}
}

// TestCloseWhileRequestsRun closes in the midst of requests, at once and with some patience, closes the library, loads it again and
// answers again.
func TestCloseWhileRequestsRun(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	for _, patience := range []time.Duration{0, time.Minute} {
		e, emb, rr := realEngine(t, Settings{}, EngineConfig{})
		var g sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[string]int{}
		for c := range 8 {
			texts := passages(rand.New(rand.NewPCG(seed, uint64(c))), 20, 100)
			g.Go(func() {
				for {
					var err error
					if c%2 == 0 {
						_, err = emb.Embed(t.Context(), EmbedRequest{Texts: texts})
					} else {
						_, err = rr.Rerank(t.Context(), RerankRequest{Query: texts[0], Documents: texts})
					}
					mu.Lock()
					switch {
					case err == nil:
						outcomes["answered"]++
					case errors.Is(err, ErrClosed):
						outcomes["closed"]++
					default:
						t.Errorf("a request failed with %v", err)
					}
					mu.Unlock()
					if err != nil {
						return
					}
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := e.Close(ctx)
		cancel()
		if patience == time.Minute && err != nil || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close with %v of patience: %v", patience, err)
		}
		g.Wait()
		t.Logf("closed with %v of patience: %v; requests %v", patience, err, outcomes)
		if outcomes["closed"] != 8 {
			t.Errorf("%d of 8 callers were told that the engine closed", outcomes["closed"])
		}
		if err := realRuntime.Close(); err != nil {
			t.Fatalf("the library after the engine: %v", err)
		}
		realRuntime = nil
	}
	e, emb, _ := realEngine(t, Settings{}, EngineConfig{})
	defer closeNow(t, e)
	v, err := emb.Embed(t.Context(), EmbedRequest{Texts: []string{"loaded again"}})
	if err != nil || math.Abs(length(v.Values)-1) > 1e-5 {
		t.Errorf("after loading the library again: %v", err)
	}
}

// TestLoadingStops: a context that has ended ends the loading of a real model, whatever other ways of running it there are left to try, and
// the engine can still be closed. Its memory holds nothing of what was not measured to the end.
func TestLoadingStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	mem := &endsAtRecall{end: cancel}
	e := NewEngine(EngineConfig{Runtime: openRuntime(t), CacheDir: realCache, Machine: ThisMachine(), Memory: mem})
	if _, err := e.LoadReranker(ctx, manifest(t, models.DefaultReranker), Settings{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	if mem.recalled != 1 || mem.remembered != 0 {
		t.Errorf("%d ways were tried after the end, %d results kept", mem.recalled, mem.remembered)
	}
	closeNow(t, e)
}

// endsAtRecall is a memory that knows nothing, and ends a context when the first self-test begins.
type endsAtRecall struct {
	end                  func()
	recalled, remembered int
}

func (m *endsAtRecall) Recall(string) (Measured, bool) {
	m.recalled++
	m.end()
	return Measured{}, false
}
func (m *endsAtRecall) Remember(string, Measured) { m.remembered++ }

// TestAFullCache: where rewritten graphs cannot be kept, they go to the spare folder, and the model says so; without one it is refused.
func TestAFullCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := EngineConfig{Runtime: openRuntime(t), CacheDir: filepath.Join(file, "graphs"), SpareDir: filepath.Join(t.TempDir(), "spare"), Machine: ThisMachine()}
	known := Measured{TokensPerSecond: 10_000}
	cfg.Memory = recalls{known}
	e := NewEngine(cfg)
	m, err := e.LoadReranker(t.Context(), manifest(t, models.DefaultReranker), Settings{Precision: FP32})
	if err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(m.Info().Warnings, "\n"); !strings.Contains(w, "cannot keep a rewritten model") || !strings.Contains(w, file) {
		t.Errorf("warnings: %q", w)
	}
	made, err := filepath.Glob(filepath.Join(cfg.SpareDir, "*", "*.onnx"))
	if err != nil || len(made) != 1 {
		t.Errorf("in the spare folder: %v, %v", made, err)
	}
	closeNow(t, e)

	cfg.SpareDir = ""
	e = NewEngine(cfg)
	var full *graph.CacheError
	if _, err := e.LoadReranker(t.Context(), manifest(t, models.DefaultReranker), Settings{Precision: FP32}); !errors.As(err, &full) {
		t.Errorf("without a spare folder: %v", err)
	}
	closeNow(t, e)
}
