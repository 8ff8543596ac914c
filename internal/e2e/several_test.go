package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// several is what these tests read of /info of a server with several models.
type several struct {
	ModelID string `json:"model_id"`
	Models  []struct {
		ID, Source, Kind, Precision string
		Aliases                     []string
		Default                     bool
		Streams                     int
		MaxTokens                   int `json:"max_tokens"`
		MemoryMB                    int `json:"memory_mb"`
	}
	Gates struct {
		Query  struct{ Embedder *string }
		Chunks struct{ Reranker *string }
	}
	Memory struct {
		ResidentMB int `json:"resident_mb"`
	}
}

// TestSeveralModels: two embedders and two rerankers of the same files in different precisions, under load over all of them at once: every answer is
// the reference's in that model's own precision.
func TestSeveralModels(t *testing.T) {
	ref := loadReference(t)
	const embedder, reranker = "intfloat/e5-small-v2", "cross-encoder/ms-marco-MiniLM-L12-v2"
	file := filepath.Join(t.TempDir(), "ragate.yaml")
	text := fmt.Sprintf(`models:
  - {name: exact, kind: embedder, model: %[1]s, precision: fp32, streams: 1}
  - {name: plain, kind: embedder, model: e5-small-v2, default: true}
  - {name: twin, kind: embedder, model: %[1]s}
  - {name: ranker, kind: reranker, model: %[2]s}
  - {name: exact-ranker, kind: reranker, model: %[2]s, precision: fp32, max-tokens: 512}
gate-embedder: exact
`, embedder, reranker)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := start(t, environment(t, store(t)), "--config", file)

	got, err := decode[several](srv.ask("/info", nil))
	if err != nil {
		t.Fatal(err)
	}
	auto, fp32 := modes(t)[0], modes(t)[1]
	var names []string
	for _, m := range got.Models {
		names = append(names, m.ID)
		want, source := auto.precision, embedder
		if strings.HasPrefix(m.ID, "exact") {
			want = fp32.precision
		}
		if m.Kind == "reranker" {
			source = reranker
		}
		if m.Precision != want || m.Source != source || m.Default != (m.ID == "plain" || m.ID == "ranker") || m.MaxTokens != 512 || m.MemoryMB < 1 || m.MemoryMB > got.Memory.ResidentMB {
			t.Errorf("/info says %+v", m)
		}
		if m.ID == "exact" && m.Streams != 1 || m.ID == "plain" && !slices.Contains(m.Aliases, "twin") {
			t.Errorf("/info says %+v", m)
		}
	}
	if !slices.Equal(names, []string{"plain", "ranker", "exact", "exact-ranker"}) || got.ModelID != "plain" || *got.Gates.Query.Embedder != "exact" || *got.Gates.Chunks.Reranker != "ranker" {
		t.Errorf("/info says %+v", got)
	}
	ready := srv.line("ready")
	for _, field := range []string{"resident_mb", "expected_mb", "limit_mb"} {
		if n, ok := ready[field].(float64); !ok || n < 1 {
			t.Errorf("the log says %s is %v", field, ready[field])
		}
	}
	if said := srv.line("gates ready"); said["embedder"] != "exact" || said["reranker"] != "ranker" {
		t.Errorf("the log says of the gates %v", said)
	}

	sessions := []*session{
		{mode: auto, embedder: "plain", reranker: "ranker"},
		{mode: fp32, embedder: "exact", reranker: "exact-ranker"},
	}
	errs := make(chan error, len(sessions))
	for _, s := range sessions {
		s.srv, s.ref = srv, ref
		go func() { errs <- s.crowd() }()
	}
	for range sessions {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, s := range sessions {
		if s.answers < 100 {
			t.Errorf("%s and %s answered %d times", s.embedder, s.reranker, s.answers)
		}
		s.report(t)
	}
	// The other name of a model that was loaded once.
	twin := &session{srv: srv, ref: ref, mode: auto, embedder: "twin"}
	if err := twin.embed([]int{0, 3, 7, 11}); err != nil {
		t.Error(err)
	}
	twin.report(t)
	t.Logf("%.0f MB resident with %d models", srv.resident(), len(got.Models))

	// Both gates decide, by the models that they say.
	for path, c := range map[string]struct {
		body any
		want string
	}{
		"/v1/gate/query":  {map[string]any{"query": "the capital of which country is Paris?"}, `"embedder":"exact"`},
		"/v1/gate/chunks": {map[string]any{"query": "what is the capital of france", "chunks": []any{map[string]any{"text": "Paris is the capital of France."}}, "budget_ms": 60000}, `"reranker":"ranker"`},
	} {
		if r := srv.ask(path, c.body); r.status != 200 || !strings.Contains(string(r.body), c.want) {
			t.Errorf("%s: %v, want %s", path, r, c.want)
		}
	}
	// A model that is not there, in every dialect.
	for path, body := range map[string]map[string]any{
		"/v1/embeddings": {"input": "x"}, "/v1/embed": {"texts": []string{"x"}}, "/v2/embed": {"texts": []string{"x"}}, "/embed": {"inputs": "x"}, "/": {"inputs": "x"},
		"/similarity": {"inputs": map[string]any{"source_sentence": "a", "sentences": []string{"b"}}}, "/tokenize": {"inputs": "x"},
		"/v1/rerank": {"query": "q", "documents": []string{"x"}}, "/v2/rerank": {"query": "q", "documents": []string{"x"}}, "/rerank": {"query": "q", "texts": []string{"x"}},
		"/v2/models/absent/infer": {"inputs": []any{}},
	} {
		body["model"] = "absent"
		want := "plain"
		if strings.HasSuffix(path, "rerank") {
			want = "exact-ranker"
		}
		if r := srv.ask(path, body); r.status != 404 || !strings.Contains(string(r.body), "absent") || !strings.Contains(string(r.body), want) {
			t.Errorf("%s: %v", path, r)
		}
	}
}

// TestEmbeddersOnly: a server without a reranker, told so, serves the rest and refuses the rest.
func TestEmbeddersOnly(t *testing.T) {
	env := environment(t, store(t), "RAGATE_MODELS=name=e,kind=embedder,model=intfloat/e5-small-v2")
	got := command(t, env, "", "serve")
	if got.code != 2 {
		t.Errorf("exit code %d", got.code)
	}
	oneLine(t, got.stderr, "set --gate-reranker (RAGATE_GATE_RERANKER) to none")

	srv := start(t, append(env, "RAGATE_GATE_RERANKER=none"))
	if r := srv.ask("/v1/embeddings", map[string]any{"input": "x"}); r.status != 200 || !strings.Contains(string(r.body), `"model":"e"`) {
		t.Errorf("an embedding: %v", r)
	}
	if r := srv.ask("/v1/gate/query", map[string]any{"query": "thank you so much for that"}); r.status != 200 {
		t.Errorf("the query gate: %v", r)
	}
	for path, body := range map[string]map[string]any{
		"/v1/rerank": {"query": "q", "documents": []string{"x"}}, "/rerank": {"query": "q", "texts": []string{"x"}},
		"/v1/gate/chunks": {"query": "q", "chunks": []any{map[string]any{"text": "x"}}},
	} {
		if r := srv.ask(path, body); r.status != 404 || !strings.Contains(string(r.body), "reranker") {
			t.Errorf("%s: %v", path, r)
		}
	}
}
