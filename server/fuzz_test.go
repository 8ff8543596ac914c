package server

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"
)

var workRoutes = []string{"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/v1/embed", "/v2/embed", "/", "/embed", "/rerank", "/similarity", "/tokenize", "/v2/models/embedder/infer", "/v2/models/reranker/infer", queryRoute, chunksRoute}

// FuzzBody: whatever the body, a route answers below 500 with strict JSON in its dialect, never panics, and the next request works.
func FuzzBody(f *testing.F) {
	for _, seed := range jsonSeeds {
		for i := range workRoutes {
			f.Add(byte(i), []byte(`{"input":`+seed+`,"inputs":`+seed+`,"texts":`+seed+`,"documents":`+seed+`,"query":"a","dimensions":`+seed+`}`))
		}
	}
	for _, seed := range jsonSeeds {
		for _, body := range []string{
			`{"query":"how do I park","history":` + seed + `,"return_history":true}`, `{"query":"a","history":[{"role":"user","content":` + seed + `}],"budget_ms":` + seed + `}`,
			`{"query":"how do I park","chunks":` + seed + `}`, `{"query":"a","chunks":[{"text":"a","id":` + seed + `}],"explain":true}`,
			`{"query":"a","chunks":[{"text":"a","metadata":` + seed + `,"similarity":` + seed + `}],"policy":"strict","threshold":` + seed + `}`,
			`{"query":"a","chunks":[{"text":"a"}],"mode":` + seed + `,"fallback":` + seed + `,"min_chunks":` + seed + `,"max_context_tokens":` + seed + `}`,
		} {
			f.Add(byte(len(workRoutes)-1), []byte(body))
			f.Add(byte(len(workRoutes)-2), []byte(body))
		}
	}
	for _, seed := range jsonSeeds {
		for _, body := range []string{
			`{"inputs":` + seed + `,"id":` + seed + `}`, `{"inputs":[` + seed + `],"outputs":` + seed + `}`,
			`{"inputs":[{"name":"text","datatype":"BYTES","shape":` + seed + `,"data":` + seed + `}],"parameters":` + seed + `}`,
			`{"inputs":[{"name":"query","datatype":"BYTES","shape":[1],"data":["a"]},{"name":"text","datatype":"BYTES","shape":[2,1],"data":[["a"],` + seed + `]}]}`,
		} {
			f.Add(byte(len(workRoutes)-3), []byte(body))
			f.Add(byte(len(workRoutes)-4), []byte(body))
		}
	}
	for _, body := range []string{
		`{"inputs":[{"name":"query","datatype":"BYTES","shape":[2],"data":["a","b"]},{"name":"documents","datatype":"BYTES","shape":[2],"data":["x","y"]}],"parameters":{"raw_scores":true}}`,
		`{"inputs":[{"name":"text","datatype":"BYTES","shape":[2,1],"data":[["a"],["b"]]}],"parameters":{"normalize":false,"dimensions":2},"outputs":[{"name":"embedding"}]}`,
		`{"query":"what a fine evening this is","history":[{"role":"user","content":"a"},{"role":"assistant","content":"b?"}],"memory_node_id":"n","return_history":true,"policy":"strict"}`,
		`{"query":"how do I park","chunks":[{"id":1e400,"text":"park","similarity":-1e300,"metadata":{"deprecated":true}},{"id":"x","text":"how do I park"}],"threshold":0.5,` +
			`"min_chunks":0,"max_chunks":1,"mode":"everything","fallback":"keyword","long_chunk":"max_passage","max_context_tokens":1,"return_context":true,"return_text":false,"explain":true}`,
		`{"query":"how do I park","chunks":[{"text":"a\ud800"},{"text":"\u0000"}],"fallback":"expand","budget_ms":1,"policy":"strict"}`,
		`{"input":["a","b"],"encoding_format":"base64","dimensions":2,"input_type":"query"}`,
		`{"query":"a","documents":["b",{"text":"c"}],"top_n":1,"return_documents":true,"raw_scores":true,"max_tokens_per_doc":3}`,
		`{"inputs":["a b c","d"],"truncate":false,"truncation_direction":"Left","normalize":false,"prompt_name":"query","add_special_tokens":false}`,
		`{"inputs":{"source_sentence":"a","sentences":["b"]},"parameters":{"truncate":true}}`,
		`{"texts":["a"],"embedding_types":["float","base64"],"truncate":"NONE","output_dimension":3,"query":"x","return_text":true}`,
	} {
		for i := range workRoutes {
			f.Add(byte(i), []byte(body))
		}
	}
	s, _, _, _ := gateServer(f, func(c *Config) { c.MaxItems, c.MaxDocuments, c.MaxBodyBytes, c.MaxTokens = 8, 8, 4096, 16 })
	f.Fuzz(func(t *testing.T, route byte, body []byte) {
		path := workRoutes[int(route)%len(workRoutes)]
		r := httptest.NewRequest("POST", path, bytes.NewReader(body))
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code >= 500 || w.Code < 200 {
			t.Fatalf("%s %q: %d %s", path, body, w.Code, w.Body)
		}
		if !json.Valid(w.Body.Bytes()) || !utf8.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %q: not JSON: %s", path, body, w.Body)
		}
		if w.Code >= 400 {
			d := dialectOf(path)
			if path == "/rerank" && strings.Contains(w.Body.String(), `"detail"`) {
				d = dialectCohere
			}
			if msg := errorShape(t, d, w.Body.Bytes()); len(msg) > 600 {
				t.Fatalf("%s %q: a message of %d bytes", path, body, len(msg))
			}
		} else if !json.Valid(body) {
			t.Fatalf("%s took what is not JSON: %q", path, body)
		}
	})
}
