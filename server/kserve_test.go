package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Ids hold slashes and may end in a word of the protocol: what is loaded wins.
func TestModelPath(t *testing.T) {
	loaded := func(name string) bool {
		return slices.Contains([]string{"m", "org/m", "org/ready", "org/versions/1", "org/infer"}, name)
	}
	for path, want := range map[string]modelPath{
		"m":                      {"m", "", ""},
		"m/ready":                {"m", "", "ready"},
		"m/infer":                {"m", "", "infer"},
		"m/versions/1":           {"m", "1", ""},
		"m/versions/7/infer":     {"m", "7", "infer"},
		"org/m/versions/1/infer": {"org/m", "1", "infer"},
		"org/ready":              {"org/ready", "", ""},
		"org/ready/ready":        {"org/ready", "", "ready"},
		"org/infer/infer":        {"org/infer", "", "infer"},
		"org/versions/1":         {"org/versions/1", "", ""},
		"org/versions/1/infer":   {"org/versions/1", "", "infer"},
		"org/other":              {"org/other", "", ""},
		"org/other/infer":        {"org/other", "", "infer"},
		"m/versions/1/2":         {"m/versions/1/2", "", ""},
		"":                       {"", "", ""},
		"infer":                  {"infer", "", ""},
		"/infer":                 {"", "", "infer"},
	} {
		if got := parseModelPath(path, loaded); got != want {
			t.Errorf("%q: %+v, want %+v", path, got, want)
		}
	}
}

// Many queries of one request are scored together, each document against its own, and the answer is in the caller's order.
func TestInferManyQueries(t *testing.T) {
	s, _, r := stubServer(nil)
	const n = 200
	var queries, docs []string
	for i := range n {
		queries = append(queries, fmt.Sprintf("q%d", i%50))
		docs = append(docs, fmt.Sprintf("q%d and more", (i+i/100)%50)) // the first half match their query, of the others none
	}
	body := fmt.Sprintf(`{"inputs":[{"name":"query","datatype":"BYTES","shape":[%d],"data":["%s"]},{"name":"documents","datatype":"BYTES","shape":[%d],"data":["%s"]}],"parameters":{"raw_scores":true}}`,
		n, strings.Join(queries, `","`), n, strings.Join(docs, `","`))
	w := do(s, "POST", "/v2/models/reranker/infer", body)
	want := strings.TrimSuffix(strings.Repeat("-2,", n/2)+strings.Repeat("-4,", n/2), ",")
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"shape":[200],"data":[`+want+"]") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(r.ranks) != 50 {
		t.Errorf("50 distinct queries made %d calls", len(r.ranks))
	}
}

// A call that panics beside the request's own goroutine is that request's 500; an error of one query ends the others.
func TestInferManyQueriesFails(t *testing.T) {
	s, _, r := stubServer(nil)
	r.before = failOnCommand
	for text, want := range map[string]int{"!panic": 500, "!broken": 500, "!overloaded": 429, "!closed": 503, "fine": 200} {
		w := do(s, "POST", "/v2/models/reranker/infer", `{"inputs":[{"name":"query","datatype":"BYTES","shape":[3],"data":["a","b","c"]},`+
			`{"name":"documents","datatype":"BYTES","shape":[3],"data":["x","`+text+`","y"]}]}`)
		if w.Code != want || strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "panic") {
			t.Errorf("%s: %d %s, want %d", text, w.Code, w.Body, want)
		}
	}
}

// A large answer goes out in pieces, whole.
func TestInferLargeAnswer(t *testing.T) {
	s, e, _ := stubServer(nil)
	e.info.Dimensions = 384
	s.SetReady(Engine{Models: []Model{e}})
	texts := strings.TrimSuffix(strings.Repeat(`"some words",`, 500), ",")
	w := do(s, "POST", "/v2/models/embedder/infer", `{"inputs":[{"name":"text","datatype":"BYTES","shape":[500],"data":[`+texts+`]}]}`)
	var answer struct {
		Outputs []struct {
			Shape []int
			Data  []float32
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("%d %v %.200s", w.Code, err, w.Body)
	}
	if w.Header().Get("Content-Length") != "" {
		t.Error("it came whole")
	}
	if o := answer.Outputs[0]; !slices.Equal(o.Shape, []int{500, 384}) || len(o.Data) != 500*384 {
		t.Errorf("shape %v, %d numbers", o.Shape, len(o.Data))
	}
}

func TestKServeWhileNotReady(t *testing.T) {
	starting, err := New(DefaultConfig(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	draining, _, _ := stubServer(nil)
	draining.Drain()
	for _, c := range []struct {
		s            *Server
		method, path string
		want         int
	}{
		{starting, "GET", "/v2", 200}, {starting, "GET", "/v2/health/live", 200}, {starting, "GET", "/v2/health/ready", 503},
		{starting, "GET", "/v2/models/embedder", 503}, {starting, "GET", "/v2/models/embedder/ready", 503}, {starting, "POST", "/v2/models/embedder/infer", 503},
		{draining, "GET", "/v2/health/live", 200}, {draining, "GET", "/v2/health/ready", 503},
		{draining, "GET", "/v2/models/embedder", 200}, {draining, "GET", "/v2/models/embedder/ready", 503}, {draining, "POST", "/v2/models/embedder/infer", 503},
	} {
		w := do(c.s, c.method, c.path, "")
		if w.Code != c.want || (w.Code == 503) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%s %s: %d, want %d; %v %s", c.method, c.path, w.Code, c.want, w.Header(), w.Body)
		}
		if w.Code == 503 {
			errorShape(t, dialectKServe, w.Body.Bytes())
		}
	}
}

// The health routes are probes; all else wants the key, and the metrics tell probes from work.
func TestKServeKeysAndRoutes(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) { c.Keys = []Key{{"one", "k1"}} })
	infer := `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["a"]}]}`
	for path, want := range map[string]int{"/v2/health/live": 200, "/v2/health/ready": 200, "/v2": 401, "/v2/models/embedder": 401, "/v2/models/embedder/ready": 401} {
		if w := do(s, "GET", path, ""); w.Code != want {
			t.Errorf("%s without a key: %d, want %d", path, w.Code, want)
		}
	}
	if w := do(s, "POST", "/v2/models/embedder/infer", infer); w.Code != http.StatusUnauthorized {
		t.Errorf("infer without a key: %d", w.Code)
	} else {
		errorShape(t, dialectKServe, w.Body.Bytes())
	}
	if w := do(s, "POST", "/v2/models/embedder/infer", infer, "Authorization", "Bearer k1"); w.Code != 200 {
		t.Errorf("infer with a key: %d %s", w.Code, w.Body)
	}
	metrics := do(s, "GET", "/metrics", "").Body.String()
	if want := `ragate_http_requests_total{method="POST",route="/v2/models/*/infer",status="200"} 1`; !strings.Contains(metrics, want) {
		t.Errorf("the metrics lack %s", want)
	}
}
