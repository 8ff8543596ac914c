package server

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"
)

var workRoutes = []string{"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/v1/embed", "/v2/embed", "/", "/embed", "/rerank", "/similarity", "/tokenize"}

// FuzzBody: whatever the body, a route answers below 500 with strict JSON in its dialect, never panics, and the next request works.
func FuzzBody(f *testing.F) {
	for _, seed := range jsonSeeds {
		for i := range workRoutes {
			f.Add(byte(i), []byte(`{"input":`+seed+`,"inputs":`+seed+`,"texts":`+seed+`,"documents":`+seed+`,"query":"a","dimensions":`+seed+`}`))
		}
	}
	for _, body := range []string{
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
	s, _, _ := stubServer(func(c *Config) { c.MaxItems, c.MaxDocuments, c.MaxBodyBytes, c.MaxTokens = 8, 8, 4096, 16 })
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
