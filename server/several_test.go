package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"ragate/gates"
	"ragate/inference"
)

// named is a stub of a kind under a name of its own, whose answers differ from those of others by its number.
func namedStub(kind inference.Kind, name string, number float32, aliases ...string) *stubModel {
	m := stubEmbedder()
	if kind == inference.KindReranker {
		m = stubReranker()
		m.logits = []float32{number}
	} else {
		m.info.Dimensions, m.vector = 1, []float32{number}
	}
	m.info.ID, m.info.Aliases = name, aliases
	return m
}

func severalServer(t *testing.T, e Engine) func(path, body string) (int, string) {
	t.Helper()
	s, err := New(DefaultConfig(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	s.SetReady(e)
	return func(path, body string) (int, string) {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
}

// TestEveryDialectChoosesItsModel: by id, alias and default; an unknown one is a 404 that lists those loaded, one of another kind a refusal.
func TestEveryDialectChoosesItsModel(t *testing.T) {
	ask := severalServer(t, Engine{Models: []Model{
		namedStub(inference.KindEmbedder, "e1", 0.25, "org/e"), namedStub(inference.KindReranker, "r1", 1, "org/r"),
		namedStub(inference.KindEmbedder, "e2", 0.5), namedStub(inference.KindReranker, "r2", 2, "alias"),
	}})
	embedders := map[string]string{"": "0.25", "e1": "0.25", "org/e": "0.25", "e2": "0.5"}
	rerankers := map[string]string{"": "1", "r1": "1", "r2": "2", "alias": "2"}
	for _, c := range []struct {
		path, body string // %s: the member model
		answers    map[string]string
		format     string // of the part of the answer that says whose it is
		wrong      string // a model of the other kind
	}{
		{"/v1/embeddings", `{"input":"x"%s}`, embedders, `"embedding":[%s]`, "r1"},
		{"/v1/embed", `{"texts":["x"]%s}`, embedders, `[[%s]]`, "r1"},
		{"/v2/embed", `{"texts":["x"]%s}`, embedders, `[[%s]]`, "r1"},
		{"/embed", `{"inputs":"x","normalize":false%s}`, embedders, `[[%s]]`, "r1"},
		{"/", `{"inputs":"x","normalize":false%s}`, embedders, `[[%s]]`, "r1"},
		{"/v1/rerank", `{"query":"q","documents":["x"],"raw_scores":true%s}`, rerankers, `"relevance_score":%s`, "e1"},
		{"/v2/rerank", `{"query":"q","documents":["x"],"raw_scores":true%s}`, rerankers, `"relevance_score":%s`, "e1"},
		{"/rerank", `{"query":"q","texts":["x"],"raw_scores":true%s}`, rerankers, `"score":%s`, "e1"},
		{"/rerank", `{"query":"q","documents":["x"],"raw_scores":true%s}`, rerankers, `"relevance_score":%s`, "e1"},
	} {
		member := func(model string) string {
			if model == "" {
				return ""
			}
			return fmt.Sprintf(`,"model":%q`, model)
		}
		for model, answer := range c.answers {
			if code, body := ask(c.path, fmt.Sprintf(c.body, member(model))); code != 200 || !strings.Contains(body, fmt.Sprintf(c.format, answer)) {
				t.Errorf("%s, model %q: %d %s", c.path, model, code, body)
			}
		}
		loaded := []string{"e1", "e2"}
		if c.wrong == "e1" {
			loaded = []string{"r1", "r2"}
		}
		code, body := ask(c.path, fmt.Sprintf(c.body, member("nope")))
		if code != 404 || !strings.Contains(body, "nope") || !strings.Contains(body, loaded[0]) || !strings.Contains(body, loaded[1]) {
			t.Errorf("%s, an unknown model: %d %s", c.path, code, body)
		}
		if code, body := ask(c.path, fmt.Sprintf(c.body, member(c.wrong))); code != 400 && code != 422 || !strings.Contains(body, loaded[0]) {
			t.Errorf("%s, a model of another kind: %d %s", c.path, code, body)
		}
	}
	for _, c := range []struct{ path, body, want string }{
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b"]},"model":"e2"}`, "200 [1]"},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b"]},"model":"nope"}`, "404"},
		{"/", `{"inputs":{"source_sentence":"a","sentences":["b"]},"model":"nope"}`, "404"},
		{"/tokenize", `{"inputs":"a b","model":"r2"}`, "200 [[{"},
		{"/tokenize", `{"inputs":"a b","model":"e2"}`, "200 [[{"},
		{"/tokenize", `{"inputs":"a b","model":"nope"}`, "404"},
		{"/v2/models/e2/infer", `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["x"]}],"parameters":{"normalize":false}}`, `200 {"model_name":"e2","model_version":"1","outputs":[{"name":"embedding","datatype":"FP32","shape":[1,1],"data":[0.5]}]}`},
		{"/v2/models/alias/infer", `{"inputs":[{"name":"query","datatype":"BYTES","shape":[1],"data":["q"]},{"name":"documents","datatype":"BYTES","shape":[1],"data":["x"]}],"parameters":{"raw_scores":true}}`, `200 {"model_name":"r2"`},
		{"/v2/models/nope/infer", `{"inputs":[]}`, "404"},
		{"/v1/models/alias", "", `200 {"id":"r2"`},
	} {
		if code, body := ask(c.path, c.body); !strings.HasPrefix(fmt.Sprint(code, " ", body), c.want) {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, code, body, c.want)
		}
	}
	var list struct {
		Data []struct {
			ID      string
			Default bool
		}
	}
	_, body := ask("/v1/models", "")
	if err := json.Unmarshal([]byte(body), &list); err != nil || fmt.Sprint(list.Data) != "[{e1 true} {r1 true} {e2 false} {r2 false}]" {
		t.Errorf("/v1/models: %v %v", list.Data, err)
	}
}

// TestUnlisted: what is loaded for a gate alone is not offered, and answers by its name. /info has it.
func TestUnlisted(t *testing.T) {
	ask := severalServer(t, Engine{Models: []Model{namedStub(inference.KindEmbedder, "e1", 0.25), namedStub(inference.KindReranker, "r1", 1)}, Unlisted: []Model{namedStub(inference.KindEmbedder, "g1", 0.5, "org/g")}})
	for path, want := range map[string][]string{"/v1/models": {"e1", "r1"}, "/info": {"e1", "r1", "g1"}} {
		_, body := ask(path, "")
		var list struct{ Data, Models []struct{ ID string } }
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range append(list.Data, list.Models...) {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", path, got, want)
		}
	}
	if code, body := ask("/v1/models/org/g", ""); code != 200 || !strings.Contains(body, `"id":"g1"`) {
		t.Errorf("the model by its name: %d %s", code, body)
	}
	if code, body := ask("/v1/embeddings", `{"input":"x","model":"g1"}`); code != 200 || !strings.Contains(body, "0.5") {
		t.Errorf("a vector of it: %d %s", code, body)
	}
}

// TestAServerOfOneKind answers the other kind's routes with a 404 that says what is loaded.
func TestAServerOfOneKind(t *testing.T) {
	ask := severalServer(t, Engine{Models: []Model{namedStub(inference.KindEmbedder, "e1", 0.25)},
		Gates: Gates{Query: map[string]*gates.QueryGate{"default": nil}, Embedder: "e1"}})
	for _, c := range []struct{ path, body string }{
		{"/v1/rerank", `{"query":"q","documents":["x"]}`}, {"/v2/rerank", `{"query":"q","documents":["x"],"model":"rr"}`}, {"/rerank", `{"query":"q","texts":["x"]}`},
		{"/v1/gate/chunks", `{"query":"q","chunks":[{"text":"x"}]}`},
	} {
		code, body := ask(c.path, c.body)
		if code != 404 || !strings.Contains(body, "reranker") || !strings.Contains(body, "e1") {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
	}
	if code, body := ask("/v1/rerank", `{"query":"q","documents":["x"],"model":"e1"}`); code != 400 || !strings.Contains(body, "none is loaded") {
		t.Errorf("an embedder where a reranker belongs: %d %s", code, body)
	}
	var info struct {
		ModelID string `json:"model_id"`
		Gates   struct {
			Query  struct{ Embedder *string }
			Chunks struct{ Reranker *string }
		}
	}
	_, body := ask("/info", "")
	if err := json.Unmarshal([]byte(body), &info); err != nil || info.ModelID != "e1" || info.Gates.Query.Embedder == nil || *info.Gates.Query.Embedder != "e1" || info.Gates.Chunks.Reranker != nil {
		t.Errorf("/info: %s, %v", body, err)
	}
	if code, body := ask("/v1/embeddings", `{"input":"x"}`); code != 200 {
		t.Errorf("its own route: %d %s", code, body)
	}
}
