package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ragate/gates"
	"ragate/gates/pattern"
	"ragate/gates/policy"
	"ragate/gates/quality"
	"ragate/gates/semantic"
	"ragate/inference"
)

// gateEmbedder and gateScorer make the stub models into the gates' models.
type gateEmbedder struct{ *stubModel }

func (g gateEmbedder) EmbedQueries(ctx context.Context, texts []string) ([]float32, int, gates.ModelUse, error) {
	e, err := g.Embed(ctx, inference.EmbedRequest{Texts: texts})
	if err != nil {
		return nil, 0, gates.ModelUse{}, gateError(err)
	}
	return e.Values, e.Dim, stubUse(g.stubModel, len(texts), e.Usage, e.Timing), nil
}

type gateScorer struct {
	*stubModel
	limit int // texts that there is time for; 0: all

	mu       sync.Mutex
	deadline time.Time
	options  gates.ScoreOptions
}

func (g *gateScorer) Score(ctx context.Context, query string, texts []string, o gates.ScoreOptions) ([]gates.ChunkScore, gates.ModelUse, error) {
	g.mu.Lock()
	g.deadline, g.options = o.Deadline, o
	g.mu.Unlock()
	r := inference.RerankRequest{Query: query, Documents: texts, Truncation: inference.Truncation{MaxTokens: 16}}
	s, err := g.Rerank(ctx, r)
	if err != nil {
		return nil, gates.ModelUse{}, gateError(err)
	}
	out := make([]gates.ChunkScore, len(texts))
	for i := range out {
		out[i] = gates.ChunkScore{Logit: s.Logits[i], Scored: g.limit == 0 || i < g.limit, Tokens: len(strings.Fields(texts[i]))}
		if out[i].Scored && slices.Contains(s.Usage.Cut, i) {
			out[i].Cut = 1
		}
	}
	return out, stubUse(g.stubModel, len(texts), s.Usage, s.Timing), nil
}

func stubUse(m *stubModel, items int, u inference.Usage, t inference.Timing) gates.ModelUse {
	return gates.ModelUse{Model: m.Info().ID, Items: items, Tokens: u.Tokens, Cut: u.Cut, Tokenize: t.Tokenize, Queue: t.Queue, Inference: t.Inference}
}

func gateError(err error) error {
	var o *inference.OverloadedError
	if errors.As(err, &o) {
		return fmt.Errorf("%w: %w", gates.ErrOverloaded, err)
	}
	return err
}

const testReferences = `version: "3"
conversational_words: {en: [fine]}
methods:
  default: top1
  calibrated_for: stub
  top1: {threshold: 0.9999}
categories:
  - id: weather
    kind: non_retrieval
    references: {en: [what a fine evening this is]}
  - id: leave
    kind: knowledge
    references: {en: [how many days of leave are there]}
`

// testRules is one small pattern file: the built-in ones take a while to compile.
var testRules = []pattern.File{{Name: "en.yaml", Data: []byte(`language: en
fillers: []
conversational: [hello, thanks]
glossary: []
rules:
  - id: en.thanks
    about: gratitude
    phrases: [thanks, thank you]
    not_after_question: false
    examples: ["thanks!"]
    counter_examples: ["thanks, and my leave?"]
  - id: en.more
    about: asks for more of an answer
    phrases: [go on]
    needs_history: true
    examples: ["go on"]
    counter_examples: ["go on leave"]
`)}}

// gateServer is a stubServer with gates: of the policy default, and of strict, which drops what is deprecated and wants 0.9.
func gateServer(t testing.TB, change func(*Config)) (*Server, *stubModel, *stubModel, *gateScorer) {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	e, r := stubEmbedder(), stubReranker()
	scorer := &gateScorer{stubModel: r}
	noon := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return noon }
	set, err := semantic.Parse([]byte(testReferences))
	if err != nil {
		t.Fatal(err)
	}
	refs, _, err := gates.EmbedReferences(t.Context(), set, gateEmbedder{e}, "stub")
	if err != nil {
		t.Fatal(err)
	}
	strict := policy.Default()
	strict.Name = "strict"
	strict.Chunks.Thresholds = quality.Thresholds{FAQ: 0.9, Lookup: 0.9, Broad: 0.9, Comparison: 0.9}
	strict.Chunks.Rules = []quality.Rule{{ID: "old", Field: "deprecated", Equals: true, Action: quality.ActionDrop}}
	g := Gates{Query: map[string]*gates.QueryGate{}, Chunks: map[string]*gates.ChunkGate{}}
	for _, p := range []policy.Policy{policy.Default(), strict} {
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		q, err := gates.NewQueryGate(p, testRules, gateEmbedder{e}, clock, "stub")
		if err != nil {
			t.Fatal(err)
		}
		if err := q.SetReferences(refs); err != nil {
			t.Fatal(err)
		}
		g.Query[p.Name], g.Chunks[p.Name] = q, gates.NewChunkGate(p, scorer, clock, "stub").Noting(gates.Languages{Detector: firstWord{}, Model: "stub", Of: r.info.Languages})
	}
	g.Reload = func(ctx context.Context) (ReferenceSet, error) {
		if e.before != nil {
			if err, ok := e.before(ctx, []string{reloadCommand}); ok {
				return ReferenceSet{}, err
			}
		}
		return ReferenceSet{Version: "3", Fingerprint: refs.Fingerprint[:16], References: 2, Categories: 2}, nil
	}
	s.SetReady(Engine{Models: []Model{e, r}, Gates: g, Stats: func() inference.Stats { return inference.Stats{MaxQueuedTokens: 262144} }})
	return s, e, r, scorer
}

// firstWord takes a query for the language that its first word names: "lang:nl what". Others it does not know.
type firstWord struct{}

func (firstWord) Language(query string) string {
	word, _, _ := strings.Cut(query, " ")
	tag, ok := strings.CutPrefix(word, "lang:")
	if !ok {
		return ""
	}
	return tag
}

// A query in a language that the reranker is not for is noted in the metadata, and in the reason of what was scored.
func TestGateChunksLanguage(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	ask := func(query string) chunkAnswer {
		w := do(s, "POST", chunksRoute, `{"query":"`+query+`","chunks":[{"text":"a b c"},{"text":"d"}],"explain":true}`)
		var a chunkAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 || len(a.Chunks) != 2 {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		return a
	}
	a := ask("lang:nl a b")
	note, _ := a.Metadata["language_note"].(string)
	if a.Metadata["query_language"] != "nl" || !strings.Contains(note, "looks like Dutch, and the reranker stub is for English and German") {
		t.Errorf("%v", a.Metadata)
	}
	for _, c := range a.Chunks {
		if !strings.HasSuffix(c.Reason, "; the query looks like Dutch and the reranker is for English and German, so its relevance is doubtful") {
			t.Errorf("%s", c.Reason)
		}
	}
	for query, tag := range map[string]any{"lang:en a b": "en", "lang:de a b": "de", "a b": nil} {
		a := ask(query)
		if note, has := a.Metadata["language_note"]; has || a.Metadata["query_language"] != tag || strings.Contains(a.Chunks[0].Reason, "looks like") {
			t.Errorf("%s: %v, %v, %s", query, a.Metadata["query_language"], note, a.Chunks[0].Reason)
		}
	}
}

// reloadCommand is the text by which a stub's before knows a reload.
const reloadCommand = "!reload"

const queryRoute, chunksRoute, reloadRoute = "/v1/gate/query", "/v1/gate/chunks", "/v1/gate/references/reload"

func TestGateRefusals(t *testing.T) {
	s, _, r, _ := gateServer(t, func(c *Config) { c.MaxDocuments = 3 })
	long := strings.Repeat("x", 5000)
	types := map[string]string{"a string": `"a"`, "a number": `1`, "an object": `{}`, "an array": `[]`, "a boolean": `true`}
	refused := func(path, body string, status int, code string, words ...string) {
		t.Helper()
		w := do(s, "POST", path, body)
		if w.Code != status {
			t.Errorf("%s %s: %d %s, want %d", path, clip(body), w.Code, w.Body, status)
			return
		}
		msg := errorShape(t, dialectOpenAI, w.Body.Bytes())
		for _, word := range append(words, code) {
			if !strings.Contains(msg+w.Body.String(), word) {
				t.Errorf("%s %s: %s, want %q in it", path, clip(body), w.Body, word)
			}
		}
		if len(msg) > 600 {
			t.Errorf("%s %s: a message of %d bytes", path, clip(body), len(msg))
		}
	}
	// Every field refuses every type that is not its own, by its name.
	for _, f := range []struct{ path, body, name, takes string }{
		{queryRoute, `{"query":%s}`, "query", "a string"},
		{queryRoute, `{"query":"a","history":%s}`, "history", "an array"},
		{queryRoute, `{"query":"a","history":[{"role":"user","content":"b"},%s]}`, "history[1]", ""},
		{queryRoute, `{"query":"a","history":[{"role":%s,"content":"b"}]}`, "history[0].role", "a string"},
		{queryRoute, `{"query":"a","history":[{"role":"user","content":%s}]}`, "history[0].content", "a string"},
		{queryRoute, `{"query":"a","memory_node_id":%s}`, "memory_node_id", "a string"},
		{queryRoute, `{"query":"a","return_history":%s}`, "return_history", "a boolean"},
		{queryRoute, `{"query":"a","explain":%s}`, "explain", "a boolean"},
		{queryRoute, `{"query":"a","budget_ms":%s}`, "budget_ms", "a number"},
		{queryRoute, `{"query":"a","policy":%s}`, "policy", "a string"},
		{chunksRoute, `{"query":%s,"chunks":[]}`, "query", "a string"},
		{chunksRoute, `{"query":"a","chunks":%s}`, "chunks", "an array"},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b"},%s]}`, "chunks[1]", ""},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b"},{"text":%s}]}`, "chunks[1].text", "a string"},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b","id":%s}]}`, "chunks[0].id", "a string a number"},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b","similarity":%s}]}`, "chunks[0].similarity", "a number"},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b","metadata":%s}]}`, "chunks[0].metadata", "an object"},
		{chunksRoute, `{"query":"a","chunks":[],"threshold":%s}`, "threshold", "a number"},
		{chunksRoute, `{"query":"a","chunks":[],"min_chunks":%s}`, "min_chunks", "a number"},
		{chunksRoute, `{"query":"a","chunks":[],"max_chunks":%s}`, "max_chunks", "a number"},
		{chunksRoute, `{"query":"a","chunks":[],"max_context_tokens":%s}`, "max_context_tokens", "a number"},
		{chunksRoute, `{"query":"a","chunks":[],"mode":%s}`, "mode", "a string"},
		{chunksRoute, `{"query":"a","chunks":[],"fallback":%s}`, "fallback", "a string"},
		{chunksRoute, `{"query":"a","chunks":[],"long_chunk":%s}`, "long_chunk", "a string"},
		{chunksRoute, `{"query":"a","chunks":[],"return_context":%s}`, "return_context", "a boolean"},
		{chunksRoute, `{"query":"a","chunks":[],"budget_ms":%s}`, "budget_ms", "a number"},
		{chunksRoute, `{"query":"a","chunks":[],"return_text":%s}`, "return_text", "a boolean"},
		{chunksRoute, `{"query":"a","chunks":[],"explain":%s}`, "explain", "a boolean"},
		{chunksRoute, `{"query":"a","chunks":[],"policy":%s}`, "policy", "a string"},
	} {
		for typ, value := range types {
			if strings.Contains(f.takes, typ) || f.takes == "" && typ == "an object" {
				continue
			}
			refused(f.path, fmt.Sprintf(f.body, value), 400, "invalid_field", "`"+f.name+"` must be", typ)
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
		code       string
		words      []string
	}{
		{queryRoute, `{}`, 400, "invalid_field", []string{"`query` is required"}},
		{queryRoute, `{"query":null}`, 400, "invalid_field", []string{"`query`", "null"}},
		{queryRoute, `{"query":"a","histroy":[]}`, 400, "invalid_field", []string{"`histroy` is unknown", "`history`"}},
		{queryRoute, `{"query":"a","` + long + `":1}`, 400, "invalid_field", []string{"is unknown"}},
		{queryRoute, `{"query":"a","history":[{"role":"user","content":"b"},{"role":"user","content":"c","name":"Joe"}]}`, 400, "invalid_field", []string{"`history[1].name` is unknown", `"param":"history[1].name"`}},
		{queryRoute, `{"query":"a","history":[{"role":"user"}]}`, 400, "invalid_field", []string{"`history[0].content` is required"}},
		{queryRoute, `{"query":"a","history":[{"role":"user","content":null}]}`, 400, "invalid_field", []string{"`history[0].content`", "null"}},
		{queryRoute, `{"query":"a","history":[` + strings.Repeat(`{"role":"u","content":""},`, maxHistory) + `{}]}`, 413, "too_many_items", []string{"`history` has 1001 items, the limit is 1000"}},
		{queryRoute, `{"query":"a","budget_ms":0}`, 400, "out_of_range", []string{"`budget_ms` is 0"}},
		{queryRoute, `{"query":"a","budget_ms":-5}`, 400, "out_of_range", []string{"`budget_ms` is -5"}},
		{queryRoute, `{"query":"a","budget_ms":1.5}`, 400, "out_of_range", []string{"`budget_ms` is 1.5", "whole"}},
		{queryRoute, `{"query":"a","budget_ms":1e12}`, 400, "out_of_range", []string{"`budget_ms` is 1e12"}},
		{queryRoute, `{"query":"a","policy":"lax"}`, 404, "policy_not_found", []string{`"lax"`, `"default", "strict"`}},
		{queryRoute, `[]`, 400, "invalid_field", []string{"an array"}},
		{queryRoute, `{"query":"a"} x`, 400, "invalid_body", nil},
		{queryRoute, ``, 400, "invalid_body", nil},
		{chunksRoute, `{"query":"a"}`, 400, "invalid_field", []string{"`chunks` is required"}},
		{chunksRoute, `{"query":"a","documents":["b"]}`, 400, "invalid_field", []string{"`documents` is unknown"}},
		{chunksRoute, `{"query":"a","chunks":null}`, 400, "invalid_field", []string{"`chunks`", "null"}},
		{chunksRoute, `{"chunks":[]}`, 400, "invalid_field", []string{"`query` is required"}},
		{chunksRoute, `{"query":"a","chunks":[],"treshold":1}`, 400, "invalid_field", []string{"`treshold` is unknown", "`threshold`"}},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b"},{"text":"c","metdata":{}}]}`, 400, "invalid_field", []string{"`chunks[1].metdata` is unknown", `"param":"chunks[1].metdata"`}},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b","\u006detdata":{}}]}`, 400, "invalid_field", []string{"`chunks[0].metdata` is unknown"}},
		{chunksRoute, `{"query":"a","chunks":[{"id":1}]}`, 400, "invalid_field", []string{"`chunks[0].text` is required"}},
		{chunksRoute, `{"query":"a","chunks":[{"text":null}]}`, 400, "invalid_field", []string{"`chunks[0].text`", "null"}},
		{chunksRoute, `{"query":"a","chunks":["b"]}`, 400, "invalid_field", []string{"`chunks[0]` must be an object with `text`"}},
		{chunksRoute, `{"query":"a","chunks":[{"text":"a"},{"text":"b"},{"text":"c"},{}]}`, 413, "too_many_items", []string{"4", "3", "RAGATE_MAX_DOCUMENTS"}},
		{chunksRoute, `{"query":"a","chunks":[],"threshold":1.01}`, 400, "out_of_range", []string{"threshold is 1.01", "0…1", `"param":"threshold"`}},
		{chunksRoute, `{"query":"a","chunks":[],"threshold":-0.1}`, 400, "out_of_range", []string{"threshold is -0.1", "0…1"}},
		{chunksRoute, `{"query":"a","chunks":[],"threshold":1e999}`, 400, "out_of_range", []string{"`threshold` is 1e999"}},
		{chunksRoute, `{"query":"a","chunks":[],"min_chunks":3,"max_chunks":2}`, 400, "conflicting_fields", []string{"min_chunks 3", "max_chunks 2"}},
		{chunksRoute, `{"query":"a","chunks":[],"min_chunks":-1}`, 400, "out_of_range", []string{"min_chunks is -1"}},
		{chunksRoute, `{"query":"a","chunks":[],"max_chunks":0}`, 400, "out_of_range", []string{"max_chunks is 0"}},
		{chunksRoute, `{"query":"a","chunks":[],"max_chunks":2.5}`, 400, "out_of_range", []string{"`max_chunks` is 2.5"}},
		{chunksRoute, `{"query":"a","chunks":[],"max_chunks":9999999999}`, 400, "out_of_range", []string{"`max_chunks` is 9999999999"}},
		{chunksRoute, `{"query":"a","chunks":[],"max_context_tokens":0}`, 400, "out_of_range", []string{"max_context_tokens is 0"}},
		{chunksRoute, `{"query":"a","chunks":[],"threshold":2,"mode":"all","max_chunks":0}`, 400, "out_of_range", []string{"threshold is 2", "; max_chunks is 0", `; mode is \"all\"`}},
		{chunksRoute, `{"query":"a","chunks":[],"mode":"all"}`, 400, "invalid_field", []string{`mode is \"all\"`, "default, everything", `"param":"mode"`}},
		{chunksRoute, `{"query":"a","chunks":[],"mode":"` + long + `"}`, 400, "invalid_field", []string{"default, everything"}},
		{chunksRoute, `{"query":"a","chunks":[],"fallback":""}`, 400, "invalid_field", []string{"top, keyword, expand, insufficient"}},
		{chunksRoute, `{"query":"a","chunks":[],"long_chunk":"window"}`, 400, "invalid_field", []string{"truncate, max_passage"}},
		{chunksRoute, `{"query":"a","chunks":[],"budget_ms":0}`, 400, "out_of_range", []string{"`budget_ms` is 0"}},
		{chunksRoute, `{"query":"a","chunks":[],"policy":"` + long + `"}`, 404, "policy_not_found", []string{`"default", "strict"`}},
	} {
		refused(c.path, c.body, c.status, c.code, c.words...)
	}
	if len(r.ranks) > 0 {
		t.Errorf("%d refused requests reached the model", len(r.ranks))
	}
}

func TestNoGatesNoPolicies(t *testing.T) {
	s, _, _ := stubServer(nil)
	for path, body := range map[string]string{queryRoute: `{"query":"a"}`, chunksRoute: `{"query":"a","chunks":[]}`, reloadRoute: ``} {
		if w := do(s, "POST", path, body); w.Code != 404 || !strings.Contains(w.Body.String(), "none") && path != reloadRoute {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// null counts as absent everywhere but in required fields, and absent fields have their defaults.
func TestGateNulls(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	for _, c := range []struct{ path, plain, nulls string }{
		{queryRoute, `{"query":"what a fine evening this is"}`,
			`{"query":"what a fine evening this is","history":null,"memory_node_id":null,"return_history":null,"explain":null,"budget_ms":null,"policy":null}`},
		{queryRoute, `{"query":"what a fine evening this is"}`, `{"query":"what a fine evening this is","history":[ ],"return_history":false,"memory_node_id":"","policy":""}`},
		{chunksRoute, `{"query":"a b","chunks":[{"text":"a b c"},{"text":"d"}]}`,
			`{"query":"a b","chunks":[{"text":"a b c","id":null,"similarity":null,"metadata":null},{"text":"d"}],"threshold":null,"min_chunks":null,"max_chunks":null,"mode":null,
			"fallback":null,"long_chunk":null,"max_context_tokens":null,"return_context":null,"budget_ms":null,"return_text":null,"explain":null,"policy":null}`},
	} {
		a, b := do(s, "POST", c.path, c.plain), do(s, "POST", c.path, c.nulls)
		if a.Code != 200 || b.Code != 200 || a.Body.String() != b.Body.String() {
			t.Errorf("%s\n%d %s\n%d %s", c.path, a.Code, a.Body, b.Code, b.Body)
		}
	}
}

type chunkAnswer struct {
	Chunks, Dropped []struct {
		ID, Metadata json.RawMessage
		Index        int
		Text         *string
		Relevance    *float64
		Logit        *float32
		Decision     string
		Reason       string
	}
	Insufficient bool   `json:"insufficient_context"`
	Why          string `json:"insufficient_reason"`
	Context      *string
	Expanded     *string `json:"expanded_query"`
	Metadata     map[string]any
	Policy       struct{ Name, Fingerprint string }
	Timings      map[string]float64 `json:"timings_ms"`
}

func askChunks(t *testing.T, s *Server, body string) (chunkAnswer, *httptest.ResponseRecorder) {
	t.Helper()
	w := do(s, "POST", chunksRoute, body)
	var a chunkAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return a, w
}

// Ids and metadata come back as the bytes they were.
func TestGateEchoesExactly(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	for _, id := range []string{`"a"`, `""`, `7`, `-0`, `1e400`, `12345678901234567890123`, `1.50`, `"é\u00e9\ud83d\ude00\/"`} {
		for _, metadata := range []string{`{}`, `{ "z" : 1.50 ,"a":[null, {"b":"\u00e9"}], "z":1e400 }`} {
			w := do(s, "POST", chunksRoute, `{"query":"a","explain":true,"min_chunks":1,"chunks":[{"id":`+id+`,"metadata":`+metadata+`,"text":"a"},{"text":"b","id":`+id+`}]}`)
			body := w.Body.String()
			if w.Code != 200 || strings.Count(body, `"id":`+id+`,"index":`) != 2 || !strings.Contains(body, `"metadata":`+metadata+`,"relevance"`) || !json.Valid(w.Body.Bytes()) {
				t.Errorf("id %s, metadata %s: %d %s", id, metadata, w.Code, body)
			}
		}
	}
	// Half a surrogate pair becomes U+FFFD, whole ones and escaped backslashes stay.
	for _, c := range [][2]string{{`"\ud83d"`, `"\ufffd"`}, {`"\uDE00\ud83dx\ud83d\ude00"`, `"\ufffd\ufffdx\ud83d\ude00"`}, {`"\\ud83d\n\u00e9"`, `"\\ud83d\n\u00e9"`},
		{`"\ud83d\u0041"`, `"\ufffd\u0041"`}, {`"\ud83d\ud83d\ude00"`, `"\ufffd\ud83d\ude00"`}} {
		w := do(s, "POST", chunksRoute, `{"query":"a","chunks":[{"text":"a","id":`+c[0]+`,"metadata":{`+c[0]+`:[`+c[0]+`]}}]}`)
		if !strings.Contains(w.Body.String(), `"id":`+c[1]+`,`) || !strings.Contains(w.Body.String(), `"metadata":{`+c[1]+`:[`+c[1]+`]}`) {
			t.Errorf("%s came back as %s, want %s", c[0], w.Body, c[1])
		}
	}
	// Texts, with what JSON must escape.
	text := "a \"\\\x00\u2028é\U0001F600"
	quoted, _ := json.Marshal(text)
	a, _ := askChunks(t, s, `{"query":"a","chunks":[{"text":`+string(quoted)+`}]}`)
	if *a.Chunks[0].Text != text || a.Chunks[0].ID != nil || a.Chunks[0].Metadata != nil {
		t.Errorf("got %+v", a.Chunks[0])
	}
}

func TestReturnTextAndExplain(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	const asked = `{"query":"a b c","chunks":[{"text":"a b c"},{"text":"a b c d"},{"text":"e"}]`
	a, _ := askChunks(t, s, asked+`}`)
	if len(a.Chunks) != 2 || a.Chunks[0].Text == nil || a.Dropped != nil || a.Context != nil || a.Expanded != nil {
		t.Errorf("by default: %+v", a)
	}
	a, _ = askChunks(t, s, asked+`,"return_text":false,"explain":true,"return_context":true}`)
	if a.Chunks[0].Text != nil || len(a.Dropped) != 1 || a.Dropped[0].Index != 2 || a.Dropped[0].Decision != "dropped" || a.Dropped[0].Relevance == nil ||
		a.Context == nil || *a.Context != "[Source 1]: a b c\n\n[Source 2]: a b c d" {
		t.Errorf("otherwise: %+v", a)
	}
	a, _ = askChunks(t, s, `{"query":"a","chunks":[],"explain":true,"return_context":true}`)
	if a.Context == nil || *a.Context != "" {
		t.Errorf("the context of no chunks, asked for: %v", a.Context)
	}
	if a.Chunks == nil || a.Dropped == nil || !a.Insufficient || a.Why == "" || a.Metadata["avg_relevance"] != nil {
		t.Errorf("no chunks: %+v", a)
	}
	a, _ = askChunks(t, s, `{"query":"a b c","policy":"strict","explain":true,"chunks":[{"text":"a b c"},{"text":"a b c","metadata":{"deprecated":true}}]}`)
	if a.Policy.Name != "strict" || a.Metadata["threshold"] != 0.9 || len(a.Dropped) != 1 || !strings.Contains(a.Dropped[0].Reason, `rule "old"`) {
		t.Errorf("another policy: %+v", a)
	}
}

func TestGateOverload(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		s, e, r, _ := gateServer(t, func(c *Config) { c.RefuseOnOverload = refuse })
		e.before, r.before = failOnCommand, failOnCommand
		q := do(s, "POST", queryRoute, `{"query":"!overloaded"}`)
		c := do(s, "POST", chunksRoute, `{"query":"a","explain":true,"chunks":[{"text":"!overloaded","similarity":0.1},{"text":"b","similarity":0.9},{"text":"c"}]}`)
		if refuse {
			for _, w := range []*httptest.ResponseRecorder{q, c} {
				if w.Code != 429 || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), "queue_full") {
					t.Errorf("%d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
				}
			}
			// Anything else that fails is on the safe side all the same.
			if w := do(s, "POST", queryRoute, `{"query":"!broken"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"needs_retrieval":true`) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			continue
		}
		if q.Code != 200 || !strings.Contains(q.Body.String(), `"needs_retrieval":true,"retrieval_bypassed":false,"stage":"default"`) || !strings.Contains(q.Body.String(), "the queue is full") {
			t.Errorf("%d %s", q.Code, q.Body)
		}
		var a chunkAnswer
		if err := json.Unmarshal(c.Body.Bytes(), &a); err != nil || c.Code != 200 {
			t.Fatalf("%d %s", c.Code, c.Body)
		}
		if len(a.Chunks) != 2 || a.Chunks[0].Index != 1 || a.Chunks[1].Index != 0 || a.Chunks[0].Decision != "fallback" || a.Chunks[0].Relevance != nil || a.Chunks[0].Logit != nil ||
			!strings.Contains(a.Chunks[0].Reason, "the queue is full") || a.Metadata["filtered"] != false || a.Metadata["scored_by"] != "similarity" || a.Metadata["chunks_unscored"] != 3.0 {
			t.Errorf("%s", c.Body)
		}
		// What the inside says stays inside, and shutting down or a row that failed is no error either.
		for _, command := range []string{"!broken", "!row", "!nan", "!closed"} {
			q := do(s, "POST", queryRoute, `{"query":"`+command+`"}`)
			c := do(s, "POST", chunksRoute, `{"query":"a","explain":true,"chunks":[{"text":"`+command+`"}]}`)
			if q.Code != 200 || c.Code != 200 || strings.Contains(q.Body.String()+c.Body.String(), "secret") {
				t.Errorf("%s: %d %s, %d %s", command, q.Code, q.Body, c.Code, c.Body)
			}
		}
	}
}

// A turn that finds no room in memory retrieves, as one that finds none in the queue: while its body is read, and before its history is
// repeated. The chunk gate could only answer without the chunks, so it refuses.
func TestGatesWithoutMemory(t *testing.T) {
	long := strings.Repeat("how do I park ", 10_000)
	for _, refuse := range []bool{false, true} {
		s, _, _, _ := gateServer(t, func(c *Config) { c.RefuseOnOverload, c.MaxInflightBytes = refuse, 4<<20 })
		for name, c := range map[string]struct {
			held int64
			body string
		}{
			"the body":    {4 << 20, `{"query":"` + long + `","policy":"nobody has read this"}`},
			"the history": {4<<20 - 600_000, `{"query":"thanks","history":[{"role":"user","content":"` + long + `"}],"return_history":true}`},
		} {
			if !s.memory.take("another", 0, c.held) {
				t.Fatal("no room at all")
			}
			w := do(s, "POST", queryRoute, c.body)
			if refuse {
				if w.Code != 429 || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), "memory_full") {
					t.Errorf("%s: %d, Retry-After %q, %.300s", name, w.Code, w.Header().Get("Retry-After"), w.Body)
				}
			} else if b := w.Body.String(); w.Code != 200 || w.Header().Get("X-Request-Id") == "" || strings.Contains(b, "conversation_history") ||
				!strings.Contains(b, `"needs_retrieval":true,"retrieval_bypassed":false,"stage":"default","reason":"other requests hold too much memory for this one, so the turn retrieves"`) {
				t.Errorf("%s: %d %.300s", name, w.Code, b)
			}
			s.memory.give("another", c.held)
		}
		s.memory.take("another", 0, 4<<20)
		w := do(s, "POST", chunksRoute, `{"query":"a","chunks":[{"text":"`+long+`"}]}`)
		if w.Code != 429 || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), "memory_full") {
			t.Errorf("chunks: %d %.300s", w.Code, w.Body)
		}
		if w := do(s, "POST", queryRoute, `{"query":`); w.Code != 400 { // small: it is read, and refused for what it is
			t.Errorf("a bad body: %d %.300s", w.Code, w.Body)
		}
		s.memory.give("another", 4<<20)
		if n := s.memory.inUse(); n != 0 {
			t.Errorf("%d bytes are still charged", n)
		}
		var turns int64
		for line := range strings.Lines(scrape(t, s)) {
			_, _ = fmt.Sscanf(line, `ragate_gate_queries_total{bypassed="false",policy="default",stage="default"} %d`, &turns)
		}
		if !refuse && turns != 2 {
			t.Errorf("%d turns are counted, not 2", turns)
		}
	}
}

// A stub that leaves chunks unscored, or cuts them.
func TestGateBudgetAndTruncation(t *testing.T) {
	s, _, _, scorer := gateServer(t, func(c *Config) { c.Budget = 250 * time.Millisecond })
	before := time.Now()
	_, w := askChunks(t, s, `{"query":"a","chunks":[{"text":"a"}]}`)
	if left := scorer.deadline.Sub(before); left < 240*time.Millisecond || left > 20*time.Second || w.Header().Get("X-Ragate-Truncated") != "" {
		t.Errorf("with a budget of 250 ms the deadline is %v away", left)
	}
	for ms, least := range map[string]time.Duration{"1": 0, "1000": 900 * time.Millisecond, "2147483647": 24 * 24 * time.Hour} {
		before = time.Now()
		askChunks(t, s, `{"query":"a","budget_ms":`+ms+`,"chunks":[{"text":"a"}]}`)
		if left := scorer.deadline.Sub(before); left < least || left <= 0 {
			t.Errorf("with a budget of %s ms the deadline is %v away", ms, left)
		}
	}
	long := strings.Repeat("w ", 30)
	scorer.limit = 2
	a, w := askChunks(t, s, `{"query":"a","explain":true,"long_chunk":"max_passage","chunks":[{"text":"`+long+`"},{"text":"b","similarity":0.9},{"text":"`+long+`","similarity":0.5},{"text":"`+long+`","similarity":0.1}]}`)
	if w.Header().Get("X-Ragate-Truncated") != "1" || a.Metadata["chunks_truncated"] != 1.0 || a.Metadata["chunks_unscored"] != 2.0 || !scorer.options.MaxPassage {
		t.Errorf("truncated %q, %s", w.Header().Get("X-Ragate-Truncated"), w.Body)
	}
	if n := len(a.Dropped); n != 2 || a.Dropped[0].Index != 3 || a.Dropped[1].Index != 0 || a.Dropped[0].Decision != "unscored" || a.Dropped[0].Relevance != nil {
		t.Errorf("dropped: %s", w.Body)
	}
}

// explain: false leaves the evidence out of a query's answer, and nothing that decides or accounts for it.
func TestQueryWithoutExplanation(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	for _, query := range []string{"thanks", "what a fine evening this is", "how many days of leave are there"} {
		var with, without map[string]json.RawMessage
		for into, explain := range map[*map[string]json.RawMessage]string{&with: "true", &without: "false"} {
			w := do(s, "POST", queryRoute, `{"query":"`+query+`","explain":`+explain+`}`)
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != 200 {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
		}
		if with["chain"] == nil || (with["pattern"] == nil) == (with["semantic"] == nil) {
			t.Errorf("%s: explained by %v", query, with)
		}
		for _, evidence := range []string{"pattern", "semantic", "chain"} {
			delete(with, evidence)
		}
		delete(with, "timings_ms")
		if without["timings_ms"] == nil {
			t.Errorf("%s: no timings", query)
		}
		delete(without, "timings_ms")
		if !maps.EqualFunc(with, without, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			t.Errorf("%s: with an explanation %s, without %s", query, with, without)
		}
	}
}

// What the gates run is counted as what the other routes run, and a query that is cut is reported as a chunk is.
func TestGatesCountTheirModels(t *testing.T) {
	s, e, r, scorer := gateServer(t, nil)
	do(s, "POST", queryRoute, `{"query":"thanks"}`) // no model
	w := do(s, "POST", queryRoute, `{"query":"`+strings.Repeat("leave ", 600)+`"}`)
	if got := w.Header().Get("X-Ragate-Truncated"); got != "1" {
		t.Errorf("a query of 600 words: X-Ragate-Truncated %q, %s", got, w.Body)
	}
	if w := do(s, "POST", queryRoute, `{"query":"how many days of leave are there"}`); w.Header().Get("X-Ragate-Truncated") != "" {
		t.Errorf("a short query: X-Ragate-Truncated %q", w.Header().Get("X-Ragate-Truncated"))
	}
	scorer.limit = 2
	do(s, "POST", chunksRoute, `{"query":"a","chunks":[{"text":"a"},{"text":"b"},{"text":"c"}]}`)
	text := scrape(t, s)
	for name, least := range map[string]string{
		`ragate_items_total{model="` + e.Info().ID + `"} `: "2", `ragate_items_total{model="` + r.Info().ID + `"} `: "2", `ragate_truncated_items_total{model="` + e.Info().ID + `"} `: "1",
	} {
		if !strings.Contains(text, name+least+"\n") {
			t.Errorf("want %s%s in\n%s", name, least, text)
		}
	}
	for _, id := range []string{e.Info().ID, r.Info().ID} {
		if strings.Contains(text, `ragate_tokens_total{model="`+id+`"} 0`) {
			t.Errorf("no tokens of %s were counted", id)
		}
	}
}

// A budget that is spent retrieves.
func TestQueryBudget(t *testing.T) {
	s, e, _, _ := gateServer(t, nil)
	e.before = func(ctx context.Context, _ []string) (error, bool) {
		<-ctx.Done()
		return context.Cause(ctx), true
	}
	w := do(s, "POST", queryRoute, `{"query":"what a fine evening this is","budget_ms":1}`)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"needs_retrieval":true`) || !strings.Contains(w.Body.String(), "the budget was spent") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A client that has left gets no decision, and none is counted.
func TestGateClientsThatLeave(t *testing.T) {
	s, e, r, _ := gateServer(t, nil)
	for path, body := range map[string]string{queryRoute: `{"query":"what a fine evening this is"}`, chunksRoute: `{"query":"a","chunks":[{"text":"b"}]}`} {
		ctx, cancel := context.WithCancel(t.Context())
		e.before = func(context.Context, []string) (error, bool) { cancel(); return context.Canceled, true }
		r.before = e.before
		req := httptest.NewRequest("POST", path, strings.NewReader(body)).WithContext(ctx)
		req.Header.Set("Content-Type", "application/json")
		s.Handler().ServeHTTP(httptest.NewRecorder(), req)
	}
	if text := scrape(t, s); !strings.Contains(text, `route="/v1/gate/query",status="499"} 1`) || !strings.Contains(text, `route="/v1/gate/chunks",status="499"} 1`) ||
		strings.Contains(text, "\nragate_gate_") {
		t.Error("decisions were counted, or the leavings were not")
	}
}

func TestGateMetrics(t *testing.T) {
	s, e, r, _ := gateServer(t, nil)
	e.before, r.before = failOnCommand, failOnCommand
	for _, query := range []string{"thanks!", "thanks", "what a fine evening this is", "how many days of leave are there", "!overloaded"} {
		do(s, "POST", queryRoute, `{"query":"`+query+`"}`)
	}
	do(s, "POST", queryRoute, `{"query":"thanks","policy":"strict"}`)
	do(s, "POST", queryRoute, `{"query":"thanks","policy":"unknown"}`)
	do(s, "POST", chunksRoute, `{"query":"how do I park","chunks":[{"text":"how do I park"},{"text":"how do I park here"},{"text":"b"}]}`)
	do(s, "POST", chunksRoute, `{"query":"how do I park","chunks":[{"text":"how do I park"},{"text":"b"},{"text":"c"}]}`)
	do(s, "POST", chunksRoute, `{"query":"give me an overview of parking","chunks":[]}`)
	do(s, "POST", chunksRoute, `{"query":"parking","policy":"strict","chunks":[{"text":"!overloaded"},{"text":"b"},{"text":"c"}]}`)
	do(s, "POST", chunksRoute, `{"query":"parking","chunks":[{"id":1}]}`)
	text := scrape(t, s)
	for _, line := range []string{
		`ragate_gate_queries_total{bypassed="true",policy="default",stage="pattern"} 2`,
		`ragate_gate_queries_total{bypassed="true",policy="strict",stage="pattern"} 1`,
		`ragate_gate_queries_total{bypassed="true",policy="default",stage="semantic"} 1`,
		`ragate_gate_queries_total{bypassed="false",policy="default",stage="semantic"} 1`,
		`ragate_gate_queries_total{bypassed="false",policy="default",stage="default"} 1`,
		`ragate_gate_chunk_turns_total{fallback="false",insufficient="false",policy="default",query_type="faq"} 1`,
		`ragate_gate_chunk_turns_total{fallback="true",insufficient="false",policy="default",query_type="faq"} 1`,
		`ragate_gate_chunk_turns_total{fallback="true",insufficient="true",policy="default",query_type="broad"} 1`,
		`ragate_gate_chunk_turns_total{fallback="true",insufficient="false",policy="strict",query_type="lookup"} 1`,
		`ragate_gate_chunks_total{outcome="kept",policy="default",query_type="faq"} 3`,
		`ragate_gate_chunks_total{outcome="dropped",policy="default",query_type="faq"} 2`,
		`ragate_gate_chunks_total{outcome="fallback",policy="default",query_type="faq"} 1`,
		`ragate_gate_chunks_total{outcome="fallback",policy="strict",query_type="lookup"} 2`,
		`ragate_gate_chunks_total{outcome="unscored",policy="strict",query_type="lookup"} 1`,
		`ragate_refusals_total{reason="policy_not_found"} 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is not there", line)
		}
	}
	if n := strings.Count(text, "\nragate_gate_") - strings.Count(text, "\nragate_gate_stage_seconds") - strings.Count(text, "\nragate_gate_truncated"); n != 14 {
		t.Errorf("%d series of the gates beside their stages, want 14", n)
	}
	for _, line := range []string{
		`ragate_gate_stage_seconds_count{gate="query",stage="total"} 6`,
		`ragate_gate_stage_seconds_count{gate="query",stage="inference"} 2`, // of three turns that came to the model it refused one
		`ragate_gate_stage_seconds_sum{gate="query",stage="inference"} 0.006`,
		`ragate_gate_stage_seconds_count{gate="chunks",stage="total"} 4`,
		`ragate_gate_stage_seconds_sum{gate="chunks",stage="tokenize"} 0.002`,
		`ragate_gate_truncated_chunks_total{policy="default"} 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is not there", line)
		}
	}
	if t.Failed() {
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "ragate_gate") {
				t.Log(line)
			}
		}
	}
}

func TestGateLog(t *testing.T) {
	var log bytes.Buffer
	s, e, r, _ := gateServer(t, nil)
	s.log = slog.New(slog.NewJSONHandler(&log, nil))
	e.before, r.before = failOnCommand, failOnCommand
	const secret = "the-private-text"
	for _, c := range []struct {
		path, body string
		want       map[string]any
	}{
		{queryRoute, `{"query":"` + secret + `","history":[{"role":"user","content":"` + secret + `"}],"return_history":true}`,
			map[string]any{"stage": "semantic", "retrieval_bypassed": false, "policy": "default", "status": 200.0}},
		{queryRoute, `{"query":"thanks"}`, map[string]any{"stage": "pattern", "retrieval_bypassed": true}},
		{queryRoute, `{"query":"!broken"}`, map[string]any{"stage": "default", "retrieval_bypassed": false, "stage_error": "a secret of the inside"}},
		{chunksRoute, `{"query":"` + secret + `","return_context":true,"chunks":[{"id":"` + secret + `","text":"` + secret + `","metadata":{"a":"` + secret + `"}},{"text":"b"}]}`,
			map[string]any{"chunks": 2.0, "chunks_returned": 2.0, "chunks_unscored": 0.0, "fallback": true, "insufficient_context": true, "policy": "default"}},
		{chunksRoute, `{"query":"` + secret + `","chunks":[{"text":"!overloaded"}]}`, map[string]any{"chunks_unscored": 1.0, "fallback": true,
			"stage_error": "the queue is full: 262000 tokens wait, 261800 of them this client's, which may have 262144 waiting, and this request has 900"}},
		{chunksRoute, `{"query":"` + secret + `","chunks":[{"text":"` + secret + `","x":1}]}`, map[string]any{"status": 400.0, "refused": "invalid_field"}},
		{reloadRoute, ``, map[string]any{"references_version": "3", "references": 2.0}},
	} {
		log.Reset()
		do(s, "POST", c.path, c.body)
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, &log)
		}
		for k, v := range c.want {
			if line[k] != v {
				t.Errorf("%s: %s is %v, want %v: %s", c.path, k, line[k], v, &log)
			}
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s: the log holds the text: %s", c.path, &log)
		}
	}
}

func TestReloadReferences(t *testing.T) {
	s, e, _, _ := gateServer(t, func(c *Config) { c.Keys = []Key{{Name: "ops", Key: "k"}} })
	if w := do(s, "POST", reloadRoute, ""); w.Code != 401 {
		t.Errorf("without a key: %d %s", w.Code, w.Body)
	}
	w := do(s, "POST", reloadRoute, "", "X-API-Key", "k", "Content-Type", "")
	if w.Code != 200 || !regexp.MustCompile(`^\{"version":"3","fingerprint":"[0-9a-f]{16}","references":2,"categories":2\}$`).MatchString(w.Body.String()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, c := range []struct {
		err    error
		status int
		words  string
	}{
		{errors.New("line 4: kind is \"x\""), 400, "the old ones stay in use: line 4: kind is"},
		{fmt.Errorf("embed: %w", failures["!overloaded"]), 429, "queue_full"},
		{failures["!closed"], 503, "draining"},
	} {
		e.before = func(_ context.Context, texts []string) (error, bool) { return c.err, texts[0] == reloadCommand }
		if w := do(s, "POST", reloadRoute, "", "X-API-Key", "k"); w.Code != c.status || !strings.Contains(w.Body.String(), c.words) {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
	}
	if w := do(s, "GET", reloadRoute, "", "X-API-Key", "k"); w.Code != 405 {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
	e.before = nil
	if w := do(s, "POST", queryRoute, `{"query":"what a fine evening this is"}`, "X-API-Key", "k"); !strings.Contains(w.Body.String(), `"retrieval_bypassed":true`) {
		t.Errorf("after failed reloads: %s", w.Body)
	}
}

func TestGatesWhileStartingAndDraining(t *testing.T) {
	starting, err := New(DefaultConfig(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	draining, _, _, _ := gateServer(t, nil)
	draining.Drain()
	for word, s := range map[string]*Server{"starting": starting, "draining": draining} {
		for path, body := range map[string]string{queryRoute: `{"query":"thanks"}`, chunksRoute: `{"query":"a","chunks":[]}`, reloadRoute: ``} {
			if w := do(s, "POST", path, body); w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"code":"`+word+`"`) {
				t.Errorf("%s, %s: %d %s", word, path, w.Code, w.Body)
			}
		}
	}
}

func TestReturnHistory(t *testing.T) {
	s, _, _, _ := gateServer(t, nil)
	const history = `[{"role":"user","content":"a \"b\""},{"role":"assistant","content":""}]`
	for flag, want := range map[string]bool{`,"return_history":true`: true, `,"return_history":false`: false, ``: false} {
		w := do(s, "POST", queryRoute, `{"query":"go on","history":`+history+flag+`}`)
		if w.Code != 200 || strings.Contains(w.Body.String(), `"conversation_history":`+history) != want || strings.Contains(w.Body.String(), "conversation_history") != want {
			t.Errorf("%s: %d %s", flag, w.Code, w.Body)
		}
	}
	// With the conversation before it, it needs no retrieval; without, it does, and the wording says so.
	if w := do(s, "POST", queryRoute, `{"query":"go on"}`); !strings.Contains(w.Body.String(), `"needs_retrieval":true,"retrieval_bypassed":false,"stage":"pattern"`) {
		t.Errorf("%s", w.Body)
	}
}
