package harness

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func base64Of(v ...float32) string {
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return `"` + base64.StdEncoding.EncodeToString(raw) + `"`
}

// Bodies are what the servers' own documentation shows.
func TestRequestsOfEachDialect(t *testing.T) {
	q := Question{Model: "m", Query: "q", Texts: []string{"a", "b"}, BudgetMS: 100}
	for _, c := range []struct {
		dialect    string
		task       Task
		path, body string
	}{
		{"ragate", EmbedQueries, "/v1/embeddings", `{"encoding_format":"base64","input":["a","b"],"input_type":"query","model":"m"}`},
		{"ragate", Rerank, "/v1/rerank", `{"documents":["a","b"],"model":"m","query":"q","raw_scores":true}`},
		{"ragate", GateQuery, "/v1/gate/query", `{"query":"a"}`},
		{"ragate", GateChunks, "/v1/gate/chunks", `{"budget_ms":100,"chunks":[{"id":0,"text":"a"},{"id":1,"text":"b"}],"explain":true,"query":"q","return_text":false}`},
		{"tei", EmbedQueries, "/embed", `{"inputs":["query: a","query: b"],"truncate":true}`},
		{"tei", Rerank, "/rerank", `{"query":"q","raw_scores":true,"texts":["a","b"],"truncate":true}`},
		{"infinity", EmbedQueries, "/embeddings", `{"encoding_format":"float","input":["query: a","query: b"],"model":"m"}`},
		{"infinity", Rerank, "/rerank", `{"documents":["a","b"],"model":"m","query":"q"}`},
		{"jina", Rerank, "/v1/rerank", `{"documents":["a","b"],"model":"m","query":"q"}`},
		{"cohere", EmbedQueries, "/v2/embed", `{"embedding_types":["float"],"input_type":"search_query","model":"m","texts":["a","b"]}`},
		{"cohere", Rerank, "/v2/rerank", `{"documents":["a","b"],"model":"m","query":"q"}`},
		{"openai", EmbedPassages, "/v1/embeddings", `{"encoding_format":"float","input":["query: a","query: b"],"model":"m"}`},
	} {
		d, err := DialectNamed(c.dialect)
		if err != nil {
			t.Fatal(err)
		}
		prefix := ""
		if c.task == EmbedQueries || c.task == EmbedPassages {
			prefix = "query: "
		}
		r, err := d.request(c.task, q, prefix)
		if err != nil || r.Path != c.path || string(r.Body) != c.body {
			t.Errorf("%s, %s: %s %s, %v; want %s %s", c.dialect, c.task, r.Path, r.Body, err, c.path, c.body)
		}
	}
	if d, _ := DialectNamed("openai"); d.Does(Rerank) || d.Does(GateQuery) || !d.Does(EmbedPassages) {
		t.Error("openai has embeddings and nothing else")
	}
	if _, err := DialectNamed("soap"); err == nil || !strings.Contains(err.Error(), "infinity") {
		t.Errorf("an unknown dialect: %v", err)
	}
}

// A fast wrong server must not win: every answer that lacks something is an error.
func TestWrongAnswersAreErrors(t *testing.T) {
	one := base64Of(1, 2)
	for _, c := range []struct {
		name, dialect string
		task          Task
		answer, want  string // want "": it is right
	}{
		{"base64", "ragate", EmbedQueries, `{"data":[{"index":1,"embedding":` + one + `},{"index":0,"embedding":` + one + `}],"usage":{"prompt_tokens":9,"total_tokens":9}}`, ""},
		{"base64 with escapes", "openai", EmbedQueries, `{"data":[{"index":1,"embedding":"\/+\u0041AQA=="},{"index":0,"embedding":` + one + `}]}`, "has 1 values"},
		{"base64 that is no text", "openai", EmbedQueries, `{"data":[{"index":1,"embedding":"\\q"},{"index":0,"embedding":` + one + `}]}`, "neither a list"},
		{"floats", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1e-3, -2]},{"index":1,"embedding":[3,4]}]}`, ""},
		{"not JSON", "openai", EmbedQueries, `{"data":[`, "JSON"},
		{"one short", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1]}]}`, "1 results for 2"},
		{"twice the same", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, "twice"},
		{"index outside", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`, "index 2"},
		{"null in a vector", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1,null]},{"index":1,"embedding":[1,2]}]}`, "no finite number"},
		{"overflow", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1e99]},{"index":1,"embedding":[1]}]}`, "no finite number"},
		{"NaN in base64", "ragate", EmbedQueries, `{"data":[{"index":0,"embedding":` + base64Of(1, float32(math.NaN())) + `},{"index":1,"embedding":` + one + `}]}`, "no finite number"},
		{"infinite in base64", "ragate", EmbedQueries, `{"data":[{"index":0,"embedding":` + base64Of(1, float32(math.Inf(-1))) + `},{"index":1,"embedding":` + one + `}]}`, "no finite number"},
		{"broken base64", "ragate", EmbedQueries, `{"data":[{"index":0,"embedding":"AAAAA"},{"index":1,"embedding":` + one + `}]}`, "neither"},
		{"lengths differ", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`, "vector 1 has 2 values"},
		{"empty", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`, "vector 0 has 0 values"},
		{"zeros", "openai", EmbedQueries, `{"data":[{"index":0,"embedding":[1,1]},{"index":1,"embedding":[0,0]}]}`, "nothing but zeros"},
		{"TEI", "tei", EmbedQueries, `[[1,2],[3,4]]`, ""},
		{"TEI, one short", "tei", EmbedQueries, `[[1,2]]`, "1 vectors for 2"},
		{"Cohere", "cohere", EmbedQueries, `{"embeddings":{"float":[[1],[2]]}}`, ""},
		{"Cohere without floats", "cohere", EmbedQueries, `{"embeddings":{"int8":[[1],[2]]}}`, "0 vectors"},
		{"ranking", "jina", Rerank, `{"results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0}],"usage":{"total_tokens":5}}`, ""},
		{"TEI ranking", "tei", Rerank, `[{"index":1,"score":3.5},{"index":0,"score":-7}]`, ""},
		{"score is null", "jina", Rerank, `{"results":[{"index":1,"relevance_score":null},{"index":0,"relevance_score":0}]}`, "has no score"},
		{"no score", "tei", Rerank, `[{"index":1},{"index":0,"score":-7}]`, "has no score"},
		{"no index", "tei", Rerank, `[{"score":1},{"index":0,"score":-7}]`, "no index"},
		{"best only", "cohere", Rerank, `{"results":[{"index":1,"relevance_score":0.9}]}`, "1 results for 2"},
		{"an error with status 200", "cohere", Rerank, `{"message":"busy"}`, "0 results for 2"},
		{"turn", "ragate", GateQuery, `{"needs_retrieval":true,"stage":"semantic"}`, ""},
		{"turn without a decision", "ragate", GateQuery, `{"stage":"semantic"}`, "without needs_retrieval"},
		{"chunks", "ragate", GateChunks, `{"chunks":[{"index":1,"relevance":0.9}],"dropped":[{"index":0}]}`, ""},
		{"chunk lost", "ragate", GateChunks, `{"chunks":[{"index":1,"relevance":0.9}]}`, "1 results for 2"},
		{"relevance of 2", "ragate", GateChunks, `{"chunks":[{"index":1,"relevance":2}],"dropped":[{"index":0}]}`, "relevance 2"},
	} {
		d, err := DialectNamed(c.dialect)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.request(c.task, Question{Query: "q", Texts: []string{"a", "b"}}, "")
		if err != nil {
			t.Fatal(err)
		}
		switch _, err := r.Read([]byte(c.answer)); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

func TestAnswersAreInTheOrderOfTheQuestion(t *testing.T) {
	a, err := readRanking(3, []byte(`{"results":[{"index":2,"relevance_score":0.9},{"index":0,"relevance_score":0.5},{"index":1,"relevance_score":0.1}],"usage":{"total_tokens":12}}`))
	if err != nil || a.Scores[0] != 0.5 || a.Scores[1] != 0.1 || a.Scores[2] != 0.9 || a.Facts.Tokens != 12 {
		t.Errorf("%+v, %v", a, err)
	}
	c, err := readChunks(3, []byte(`{"chunks":[{"index":2,"relevance":0.9}],"dropped":[{"index":0,"relevance":0.5},{"index":1,"decision":"unscored"}]}`))
	if err != nil || c.Facts.Unscored != 1 || c.Scores[0] != 0.5 || c.Scores[2] != 0.9 || !math.IsNaN(c.Scores[1]) {
		t.Errorf("%+v, %v", c, err)
	}
	g, err := readTurn(1, []byte(`{"needs_retrieval":true,"stage":"default"}`))
	if err != nil || g.Facts.Unscored != 1 || g.Facts.Kind != "default" {
		t.Errorf("a decision that no stage made: %+v, %v", g, err)
	}
}

func FuzzVector(f *testing.F) {
	f.Add(`[1,2,3]`)
	f.Add(`"AACAPw=="`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		var v vector
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		for _, x := range v {
			if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
				t.Fatalf("%q gave %v", text, v)
			}
		}
	})
}
