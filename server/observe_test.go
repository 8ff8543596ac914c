package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"ragate/inference"
)

// mixed is a request of every kind, with %s where a text of a user may stand, also where none should. The status is of a gateServer whose
// models fail on command.
var mixed = []struct {
	method, path, body string
	status             int
	work               bool // it came as far as being admitted
}{
	{"POST", "/v1/embeddings", `{"input":"%s","user":"%s"}`, 200, true},
	{"POST", "/v1/rerank", `{"query":"%s","documents":["%s",{"text":"%s"}],"return_documents":true}`, 200, true},
	{"POST", "/v2/rerank", `{"query":"%s","documents":["%s"]}`, 200, true},
	{"POST", "/v1/embed", `{"texts":["%s"]}`, 200, true},
	{"POST", "/v2/embed", `{"texts":["%s"]}`, 200, true},
	{"POST", "/", `{"inputs":"%s"}`, 200, true},
	{"POST", "/embed", `{"inputs":["%s","b"]}`, 200, true},
	{"POST", "/rerank", `{"query":"%s","texts":["%s"],"return_text":true}`, 200, true},
	{"POST", "/similarity", `{"inputs":{"source_sentence":"%s","sentences":["%s"]}}`, 200, true},
	{"POST", "/tokenize", `{"inputs":"%s"}`, 200, true},
	{"POST", "/v1/gate/query", `{"query":"%s","history":[{"role":"user","content":"%s"}],"memory_node_id":"%s"}`, 200, true},
	{"POST", "/v1/gate/query", `{"query":"thanks"}`, 200, true},
	{"POST", "/v1/gate/chunks", `{"query":"%s","chunks":[{"id":"%s","text":"%s","metadata":{"note":"%s"}},{"text":"b"}],"return_context":true}`, 200, true},
	{"POST", "/v1/gate/references/reload", ``, 200, true},
	{"POST", "/v2/models/stub/embedder/infer", `{"id":"%s","inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["%s"]}]}`, 200, true},
	{"POST", "/v2/models/stub/reranker/infer", `{"inputs":[{"name":"query","datatype":"BYTES","shape":[1],"data":["%s"]},{"name":"documents","datatype":"BYTES","shape":[1],"data":["%s"]}]}`, 200, true},
	// A text where a name belongs.
	{"POST", "/v2/models/stub/embedder/infer", `{"inputs":[{"name":"%s","datatype":"BYTES","shape":[1],"data":["a"]}]}`, 400, true},
	{"POST", "/v2/models/stub/embedder/infer", `{"inputs":[{"name":"text","datatype":"%s","shape":[1],"data":["a"]}]}`, 400, true},
	{"POST", "/v2/models/stub/embedder/infer", `{"inputs":[{"name":"text","datatype":"BYTES","shape":["%s"],"data":["a"]}]}`, 400, true},
	{"POST", "/v2/models/stub/embedder/infer", `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":[{"%s":1}]}]}`, 400, true},
	{"POST", "/v2/models/stub/embedder/infer", `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["a"]}],"outputs":[{"name":"%s"}]}`, 400, true},
	{"POST", "/v1/embeddings", `{"input":"a","model":"%s"}`, 404, true},
	{"POST", "/v1/embeddings", `{"input":"a","encoding_format":"%s"}`, 400, true},
	{"POST", "/v1/embeddings", `{"input":"a","input_type":"%s"}`, 400, true},
	{"POST", "/v1/embeddings", `{"input":"a","dimensions":"%s"}`, 400, true},
	{"POST", "/v1/embeddings", `{"%s":"a"}`, 400, true},
	{"POST", "/v1/rerank", `{"query":"a","documents":["b"],"model":"%s"}`, 404, true},
	{"POST", "/v1/rerank", `{"query":{"%s":1},"documents":["%s"]}`, 400, true},
	{"POST", "/v2/embed", `{"texts":["a"],"embedding_types":["%s"]}`, 400, true},
	{"POST", "/v2/embed", `{"texts":["a"],"truncate":"%s"}`, 400, true},
	{"POST", "/embed", `{"inputs":"a","prompt_name":"%s"}`, 422, true},
	{"POST", "/embed", `{"inputs":"a","truncation_direction":"%s"}`, 422, true},
	{"POST", "/tokenize", `{"inputs":"a","prompt_name":"%s"}`, 422, true},
	{"POST", "/v1/gate/query", `{"query":"a","policy":"%s"}`, 404, true},
	{"POST", "/v1/gate/query", `{"query":"a","%s":1}`, 400, true},
	{"POST", "/v1/gate/query", `{"query":"a","history":[{"role":"%s","content":1}]}`, 400, true},
	{"POST", "/v1/gate/chunks", `{"query":"a","chunks":[{"text":"b","%s":1}]}`, 400, true},
	{"POST", "/v1/gate/chunks", `{"query":"a","chunks":[{"text":"b"}],"mode":"%s"}`, 400, true},
	{"POST", "/v1/gate/chunks", `{"query":"a","chunks":[{"text":"b"}],"fallback":"%s","threshold":7}`, 400, true},
	{"POST", "/v1/gate/chunks", `{"query":"a","chunks":[{"text":"b"}],"long_chunk":"%s"}`, 400, true},
	// Bodies that are none, and models that fail.
	{"POST", "/embed", `{"inputs":"%s`, 400, true},
	{"POST", "/embed", `{"inputs":"%s"} %s`, 400, true},
	{"POST", "/embed", `"%s"`, 422, true},
	{"POST", "/v1/embeddings", `{"input":["%s","!overloaded"]}`, 429, true},
	{"POST", "/v1/embeddings", `{"input":["%s","!row"]}`, 500, true},
	{"POST", "/v1/embeddings", `{"input":["%s","!panic"]}`, 500, true},
	{"POST", "/v1/rerank", `{"query":"%s","documents":["%s","!broken"]}`, 500, true},
	{"POST", "/v1/gate/query", `{"query":"!broken","history":[{"role":"user","content":"%s"}]}`, 200, true},
	{"POST", "/v1/gate/chunks", `{"query":"%s","chunks":[{"text":"!row"},{"text":"%s"}]}`, 200, true},
	{"PUT", "/embed", `{"inputs":"%s"}`, 405, false},
	{"POST", "/nope", `{"inputs":"%s"}`, 404, false},
	{"GET", "/v1/models/nope", ``, 404, false},
	{"GET", "/v1/models", ``, 200, false},
	{"GET", "/info", ``, 200, false},
	{"GET", "/v2", ``, 200, false},
	{"GET", "/v2/models/stub/embedder", ``, 200, false},
	{"GET", "/openapi.json", ``, 200, false},
	{"GET", "/docs", ``, 200, false},
	{"GET", "/health", ``, 200, false},
	{"GET", "/ready", ``, 200, false},
}

const canary = "canary-9d41 sings"

// failingServer is a gateServer whose models fail on command.
func failingServer(t testing.TB, log io.Writer, change func(*Config)) *Server {
	t.Helper()
	s, e, r, _ := gateServer(t, change)
	e.before, r.before = failOnCommand, failOnCommand
	s.log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return s
}

// sendMixed sends every mixed request and checks its status.
func sendMixed(t *testing.T, s *Server, each func(i int, w *httptest.ResponseRecorder), headers ...string) {
	t.Helper()
	for i, c := range mixed {
		w := do(s, c.method, c.path, strings.ReplaceAll(c.body, "%s", canary), headers...)
		if w.Code != c.status {
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.path, c.body, w.Code, w.Body, c.status)
		}
		each(i, w)
	}
}

// The log holds no text of any request, wherever in it the text stood; told to, it holds what was asked, shortened.
func TestTheLogHoldsNoText(t *testing.T) {
	var log bytes.Buffer
	s := failingServer(t, &log, nil)
	quoted := 0
	sendMixed(t, s, func(i int, w *httptest.ResponseRecorder) {
		if strings.Contains(log.String(), "canary") {
			t.Errorf("%s %s: %s", mixed[i].path, mixed[i].body, &log)
		}
		if w.Code >= 400 && strings.Contains(w.Body.String(), "canary") {
			quoted++
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%s: %d lines", mixed[i].path, n)
		}
		log.Reset()
	})
	if quoted < 10 {
		t.Errorf("only %d refusals quote the text to their client: this shows little", quoted)
	}

	s = failingServer(t, &log, func(c *Config) { c.LogText = true })
	long := canary + strings.Repeat("é", 4000)
	for path, body := range map[string]string{
		"/v1/embeddings": `{"input":["%s","b"]}`, "/v1/rerank": `{"query":"%s","documents":["x"]}`, "/rerank": `{"query":"%s","texts":["x"]}`,
		"/tokenize": `{"inputs":"%s"}`, queryRoute: `{"query":"%s"}`, chunksRoute: `{"query":"%s","chunks":[{"text":"x"}]}`, "/v2/embed": `{"texts":["%s"],"truncate":"END"}`,
	} {
		log.Reset()
		do(s, "POST", path, strings.ReplaceAll(body, "%s", long))
		var line struct{ Text string }
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(line.Text, canary+"é") || !strings.HasSuffix(line.Text, "…") || len(line.Text) > loggedMax+len("…") {
			t.Errorf("%s: the text is %q", path, line.Text)
		}
	}
	log.Reset()
	do(s, "POST", "/v1/embeddings", `{"input":"a","model":"`+canary+`"}`)
	if !strings.Contains(log.String(), canary) {
		t.Errorf("a log that may hold texts does not say which model: %s", &log)
	}
}

// Every answer has an id, whatever went wrong and however early.
func TestRequestIDOnEveryAnswer(t *testing.T) {
	s := failingServer(t, io.Discard, func(c *Config) {
		c.Keys, c.MaxBodyBytes, c.BodyTimeout = []Key{{"a", "k"}}, 5000, 200*time.Millisecond
	})
	sendMixed(t, s, func(i int, w *httptest.ResponseRecorder) {
		if id := w.Header().Get("X-Request-Id"); id != "my-id" {
			t.Errorf("%s %s: %q", mixed[i].method, mixed[i].path, id)
		}
	}, "X-API-Key", "k", "X-Request-Id", "my-id")
	addr := listen(t, s)
	head := "POST /embed HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nContent-Type: application/json\r\n"
	for request, want := range map[string]int{
		head + "Content-Length: 2\r\n\r\n{}":                                                          401,
		head + "X-API-Key: k\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat(" ", 9000):             413,
		head + "X-API-Key: k\r\nContent-Length: 90\r\n\r\n{":                                          408,
		head + "X-API-Key: k\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n":                             400,
		"OPTIONS /embed HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nX-API-Key: k\r\n\r\n":           204,
		"GET /embed/ HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nX-API-Key: k\r\n\r\n":              404,
		"HEAD /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\n\r\n":                             200,
		"GET /v1/embeddings HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nX-API-Key: k\r\n\r\n":       405,
		"GET //../info?a=b HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nX-API-Key: k\r\n\r\n":        404,
		"DELETE /v1/models/x HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nX-API-Key: k\r\n\r\n":      405,
		"BREW /pot HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nX-API-Key: k\r\n\r\n":                404,
		"POST /v1/gate/query HTTP/1.1\r\nHost: x\r\nX-Request-Id: my-id\r\nConnection: close\r\n\r\n": 401,
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%.40q: %v", request, err)
		}
		if id := resp.Header.Get("X-Request-Id"); id != "my-id" || resp.StatusCode != want {
			t.Errorf("%.40q: %d with id %q, want %d", request, resp.StatusCode, id, want)
		}
		conn.Close()
	}
}

// serverTimings is the header's grammar: W3C Server Timing, section 3, as far as it is used.
var serverTimings = regexp.MustCompile(`^[a-z]+;dur=[0-9]+\.[0-9]{3}(, [a-z]+;dur=[0-9]+\.[0-9]{3})*$`)

// stagesOf reads a Server-Timing header: the names in order, and the milliseconds.
func stagesOf(t *testing.T, header string) (names []string, ms map[string]float64) {
	t.Helper()
	if !serverTimings.MatchString(header) {
		t.Fatalf("Server-Timing %q is not in its grammar", header)
	}
	ms = map[string]float64{}
	for entry := range strings.SplitSeq(header, ", ") {
		name, value, _ := strings.Cut(entry, ";dur=")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		names, ms[name] = append(names, name), v
	}
	return names, ms
}

// Every route that works says where the time went, the gates too; what was not admitted says nothing.
func TestServerTiming(t *testing.T) {
	s := failingServer(t, io.Discard, nil)
	sendMixed(t, s, func(i int, w *httptest.ResponseRecorder) {
		got := w.Header().Values("Server-Timing")
		if !mixed[i].work {
			if len(got) != 0 {
				t.Errorf("%s has %q", mixed[i].path, got)
			}
			return
		}
		if len(got) != 1 {
			t.Fatalf("%s %s: %d values", mixed[i].path, mixed[i].body, len(got))
		}
		names, _ := stagesOf(t, got[0])
		if names[len(names)-1] != "total" {
			t.Errorf("%s: %q", mixed[i].path, got[0])
		}
	})
	for _, c := range []struct{ path, body, want string }{
		{"/v1/embeddings", `{"input":"a"}`, "tokenize;dur=1.000, queue;dur=2.000, inference;dur=3.000, total"},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b"]}}`, "tokenize;dur=1.000, queue;dur=2.000, inference;dur=3.000, total"},
		{"/v2/rerank", `{"query":"a","documents":["b"]}`, "tokenize;dur=1.000, inference;dur=1.000, total"},
		{queryRoute, `{"query":"what a fine evening this is"}`, "tokenize;dur=1.000, queue;dur=2.000, inference;dur=3.000, total"},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b"}]}`, "tokenize;dur=1.000, inference;dur=1.000, total"},
	} {
		got := do(s, "POST", c.path, c.body).Header().Get("Server-Timing")
		if !strings.HasPrefix(got, c.want+";dur=") {
			t.Errorf("%s: %q, want %s", c.path, got, c.want)
		}
	}
	if names, _ := stagesOf(t, do(s, "POST", "/tokenize", `{"inputs":"a"}`).Header().Get("Server-Timing")); !slices.Equal(names, []string{"tokenize", "total"}) {
		t.Errorf("/tokenize: %q", names)
	}

	// With a clock, and so with times, of the gates' own stages too.
	x := &exchange{begun: time.Now().Add(-time.Second), timing: inference.Timing{Tokenize: time.Millisecond},
		stages: [2]stageTime{{"pattern", 1500 * time.Microsecond}, {"similarity", 250 * time.Microsecond}}}
	if got := x.serverTiming(); !strings.HasPrefix(got, "pattern;dur=1.500, tokenize;dur=1.000, similarity;dur=0.250, total;dur=1") {
		t.Errorf("%q", got)
	}

	// An answer that goes out in pieces has it up to the first.
	addr := listen(t, s)
	resp, err := http.Post("http://"+addr+"/tokenize", "application/json", strings.NewReader(`{"inputs":"`+strings.Repeat("word ", 20000)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	names, ms := stagesOf(t, resp.Header.Get("Server-Timing"))
	if !slices.Equal(names, []string{"tokenize", "total"}) || ms["tokenize"] <= 0 || ms["total"] < ms["tokenize"] {
		t.Errorf("the headers have %v", ms)
	}
}

// documented is a row of the table in docs/metrics.md.
type documented struct {
	kind   string
	labels []string
}

func documentedMetrics(t *testing.T) map[string]documented {
	t.Helper()
	b, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]documented{}
	for line := range strings.SplitSeq(string(b), "\n") {
		if !strings.HasPrefix(line, "| `ragate_") {
			continue
		}
		cells := strings.Split(line, "|")
		name := strings.Trim(cells[1], " `")
		if _, twice := rows[name]; twice || len(cells) != 6 || strings.TrimSpace(cells[4]) == "" {
			t.Fatalf("this row is there twice, or is none: %s", line)
		}
		labels := strings.Fields(strings.ReplaceAll(cells[3], "`", ""))
		slices.Sort(labels)
		rows[name] = documented{strings.TrimSpace(cells[2]), labels}
	}
	// Recipes speak of metrics that exist.
	for _, name := range regexp.MustCompile(`(ragate|process|go)_[a-z_0-9]+`).FindAllString(string(b), -1) {
		if _, ok := rows[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")]; !ok && strings.HasPrefix(name, "ragate_") {
			t.Errorf("docs/metrics.md speaks of %s, which its table lacks", name)
		}
	}
	return rows
}

// busyRegistry is that of a server which has seen requests of all kinds, with keys and traces.
func busyRegistry(t *testing.T) *metrics {
	t.Helper()
	s := failingServer(t, io.Discard, func(c *Config) {
		c.Keys = []Key{{"alice", "k"}, {"bob", "never-used"}}
		c.CertificateExpiry = func() time.Time { return time.Unix(2e9, 0) }
		c.Tracing.Spans = func() (exported, failed, dropped uint64) { return 5, 6, 7 }
	})
	s.life.mu.Lock()
	s.life.engine.Cache = func() CacheStats {
		return CacheStats{Kinds: []CacheCounts{{"score", 1, 2, 3, 4}}, Entries: 5, Bytes: 6, MaxBytes: 7, Redis: &RedisStats{Address: "r:1", Up: true}}
	}
	s.life.mu.Unlock()
	sendMixed(t, s, func(int, *httptest.ResponseRecorder) {}, "X-API-Key", "k")
	s.Observer().BatchDone(inference.BatchStats{Model: "stub/reranker", Rows: 6, Tokens: 500, PaddedTokens: 640, Inference: time.Millisecond})
	return s.metrics
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Every metric is in the documentation with its type and labels, and nothing else is; each is made as Prometheus' linter asks.
func TestMetricsAreDocumented(t *testing.T) {
	m, rows := busyRegistry(t), documentedMetrics(t)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		seen[name] = true
		if !strings.HasPrefix(name, "ragate_") {
			continue
		}
		row, ok := rows[name]
		if !ok {
			t.Errorf("%s is not in docs/metrics.md", name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != row.kind {
			t.Errorf("%s is a %s, documented as %s", name, kind, row.kind)
		}
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if slices.Sort(labels); !slices.Equal(labels, row.labels) {
				t.Errorf("%s has the labels %q, documented %q", name, labels, row.labels)
			}
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("docs/metrics.md has %s, which this run never showed", name)
	}
	// Also those that no request happened to bring forth.
	ch := make(chan *prometheus.Desc, 100)
	for _, c := range m.all {
		c.Describe(ch)
	}
	close(ch)
	described := 0
	for d := range ch {
		described++
		if name := fqName.FindStringSubmatch(d.String()); name == nil || !seen[name[1]] {
			t.Errorf("%v was not seen", d)
		}
	}
	if described < 30 {
		t.Errorf("only %d metrics are described", described)
	}
	for _, name := range []string{"process_resident_memory_bytes", "go_memstats_heap_inuse_bytes", "process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds", "go_goroutines"} {
		if !seen[name] {
			t.Errorf("docs/metrics.md names %s, which is not there", name)
		}
	}
}

// What clients make up makes no series.
func TestMetricsStayFew(t *testing.T) {
	s := failingServer(t, io.Discard, func(c *Config) { c.Keys = []Key{{"alice", "k"}} })
	round := func(n int) int {
		sendMixed(t, s, func(int, *httptest.ResponseRecorder) {}, "X-API-Key", "k")
		for i := range n {
			do(s, fmt.Sprintf("M%d", i), fmt.Sprintf("/path-%d", i), "", "X-API-Key", "k")
			do(s, "GET", fmt.Sprintf("/v1/models/m-%d", i), "", "X-API-Key", "k")
			do(s, "POST", "/v1/embeddings", fmt.Sprintf(`{"input":"a","model":"m-%d"}`, i), "X-API-Key", "k")
			do(s, "POST", queryRoute, fmt.Sprintf(`{"query":"text %d","policy":"p-%d"}`, i, i), "X-API-Key", "k")
			do(s, "POST", "/embed", `{"inputs":"a"}`, "X-API-Key", fmt.Sprintf("key-%d", i), "Traceparent", fmt.Sprintf("00-%032d-%016d-01", i+1, i+1))
		}
		n, err := testutil.GatherAndCount(s.metrics.registry)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, later := round(1), round(200)
	if later != first {
		t.Errorf("%d series after one round, %d after many", first, later)
	}
}

func TestReloadsAreCounted(t *testing.T) {
	s, e, _, _ := gateServer(t, nil)
	if _, err := s.ReloadReferences(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(s, "POST", reloadRoute, "")
	e.before = func(context.Context, []string) (error, bool) { return fmt.Errorf("a bad file"), true }
	do(s, "POST", reloadRoute, "")
	text := scrape(t, s)
	for _, line := range []string{`ragate_reloads_total{outcome="ok",what="references"} 2`, `ragate_reloads_total{outcome="failed",what="references"} 1`,
		`ragate_reload_success_timestamp_seconds{what="references"} 1.`} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%s is not there", line)
		}
	}
	early, err := New(DefaultConfig(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := early.ReloadReferences(t.Context()); err == nil {
		t.Error("a server without references reloaded them")
	}
}

func TestKeyAndModelMetrics(t *testing.T) {
	m := busyRegistry(t)
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, line := range []string{
		`ragate_key_requests_total{key="alice"} ` + strconv.Itoa(len(mixed)) + "\n", `ragate_key_requests_total{key="bob"} 0` + "\n",
		`ragate_model_drift{against="batch",measure="logit",model="stub/reranker"} 0.001` + "\n",
		`ragate_model_drift{against="batch",measure="cosine_distance",model="stub/embedder"} 0` + "\n",
		`ragate_trace_spans_total{outcome="exported"} 5` + "\n", `ragate_trace_spans_total{outcome="failed"} 6` + "\n", `ragate_trace_spans_total{outcome="dropped"} 7` + "\n",
		`ragate_workers 0` + "\n", `ragate_workers_busy 0` + "\n",
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%s is not there", line)
		}
	}
	if strings.Contains(text, "against=\"float32\"") {
		t.Error("a drift that was not measured has a value")
	}
}

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
)

// spansOf sends one request to a server that traces, and returns its spans: the request's first, then those below it.
func spansOf(t *testing.T, s *Server, spans *tracetest.SpanRecorder, method, path, body string, headers ...string) (*httptest.ResponseRecorder, sdk.ReadOnlySpan, []sdk.ReadOnlySpan) {
	t.Helper()
	spans.Reset()
	w := do(s, method, path, body, headers...)
	ended := spans.Ended()
	if len(ended) == 0 {
		return w, nil, nil
	}
	root := ended[len(ended)-1] // it ends last
	return w, root, ended[:len(ended)-1]
}

func tracingServer(t testing.TB, log io.Writer, o ...sdk.TracerProviderOption) (*Server, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	p := sdk.NewTracerProvider(append(o, sdk.WithSpanProcessor(spans))...)
	return failingServer(t, log, func(c *Config) { c.Tracing.Provider = p; c.Keys = []Key{{"alice", "k"}} }), spans
}

func attributesOf(s sdk.ReadOnlySpan) map[string]any {
	m := map[string]any{}
	for _, a := range s.Attributes() {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

// Each request has a span by the conventions for HTTP, under the caller's, and below it the stages that ran, within its time. No text
// is in any of them.
func TestSpans(t *testing.T) {
	var log bytes.Buffer
	s, spans := tracingServer(t, &log)
	for _, c := range mixed {
		log.Reset()
		w, root, children := spansOf(t, s, spans, c.method, c.path, strings.ReplaceAll(c.body, "%s", canary),
			"X-API-Key", "k", "X-Request-Id", "my-id", "Traceparent", "00-"+callerTrace+"-"+callerSpan+"-01", "Tracestate", "vendor=1")
		if open[c.path] {
			if root != nil {
				t.Errorf("%s has a span", c.path)
			}
			continue
		}
		if root == nil {
			t.Fatalf("%s has no span", c.path)
		}
		name, route := c.method+" "+c.path, any(c.path)
		switch {
		case w.Code == 404 && c.path == "/nope":
			name, route = c.method, nil
		case strings.HasPrefix(c.path, "/v1/models/"), strings.HasPrefix(c.path, "/v2/models/"):
			route = c.path[:len("/v1/models/")] + "*"
			name = fmt.Sprint(c.method, " ", route)
		}
		got := attributesOf(root)
		if root.Name() != name || root.SpanKind() != trace.SpanKindServer || got["http.route"] != route || got["http.request.method"] != c.method ||
			got["http.response.status_code"] != int64(w.Code) || got["ragate.request_id"] != "my-id" || got["ragate.key"] != "alice" {
			t.Errorf("%s %s: %s %v %v", c.method, c.path, root.Name(), root.SpanKind(), got)
		}
		if root.Parent().SpanID().String() != callerSpan || root.SpanContext().TraceID().String() != callerTrace || root.SpanContext().TraceState().Get("vendor") != "1" || !root.Parent().IsRemote() {
			t.Errorf("%s: parent %v", c.path, root.Parent())
		}
		if isError := root.Status().Code == codes.Error; isError != (w.Code >= 500) || (w.Code >= 400) != (got["error.type"] != nil) {
			t.Errorf("%s %s with %d: %v, error.type %v", c.path, c.body, w.Code, root.Status(), got["error.type"])
		}
		var line struct {
			TraceID string `json:"trace_id"`
			SpanID  string `json:"span_id"`
		}
		if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.TraceID != callerTrace || line.SpanID != root.SpanContext().SpanID().String() {
			t.Errorf("%s: the log has %+v, %v", c.path, line, err)
		}
		parents := map[trace.SpanID]sdk.ReadOnlySpan{root.SpanContext().SpanID(): root}
		for _, child := range children {
			parents[child.SpanContext().SpanID()] = child
		}
		for _, child := range children {
			p := parents[child.Parent().SpanID()]
			if p == nil || child.StartTime().Before(p.StartTime()) || child.EndTime().After(p.EndTime()) || child.EndTime().Before(child.StartTime()) {
				t.Errorf("%s: %s is not within a span of this request", c.path, child.Name())
			}
		}
		for _, span := range append(children, root) {
			if all := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status()); strings.Contains(all, "canary") {
				t.Errorf("%s %s: a text is in %s", c.path, c.body, all)
			}
		}
	}
}

// tree draws the spans below the request's: name(child child).
func tree(parent trace.SpanID, spans []sdk.ReadOnlySpan) string {
	var out []string
	for _, s := range spans {
		if s.Parent().SpanID() == parent {
			name := s.Name()
			if below := tree(s.SpanContext().SpanID(), spans); below != "" {
				name += "(" + below + ")"
			}
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

func TestSpanTree(t *testing.T) {
	s, spans := tracingServer(t, io.Discard)
	for _, c := range []struct{ path, body, want string }{
		{"/v1/embeddings", `{"input":["a","b"]}`, "tokenize queue inference"},
		{"/v1/rerank", `{"query":"a","documents":["b"]}`, "tokenize queue inference"},
		{"/tokenize", `{"inputs":"a"}`, "tokenize"},
		{"/v1/embeddings", `{}`, ""},
		{queryRoute, `{"query":"thanks"}`, "gate.pattern"},
		{queryRoute, `{"query":"what a fine evening this is"}`, "gate.pattern gate.semantic(tokenize queue inference)"}, // the gates' clock stands: no time for the similarity
		{queryRoute, `{"query":"!overloaded"}`, "gate.pattern gate.semantic(tokenize queue inference)"},
		{chunksRoute, `{"query":"a","chunks":[{"text":"b"},{"text":"c"}]}`, "gate.score(tokenize queue inference) gate.decide"},
		{chunksRoute, `{"query":"a","chunks":[]}`, "gate.decide"},
	} {
		_, root, children := spansOf(t, s, spans, "POST", c.path, c.body, "X-API-Key", "k")
		if got := tree(root.SpanContext().SpanID(), children); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, got, c.want)
		}
		if root.Parent().IsValid() {
			t.Errorf("%s has a parent that nobody named", c.path)
		}
	}
	_, root, children := spansOf(t, s, spans, "POST", "/v1/embeddings", `{"input":["a","b"]}`, "X-API-Key", "k")
	got, inner := attributesOf(root), attributesOf(children[2])
	for k, v := range map[string]any{"ragate.model": "stub/embedder", "ragate.items": int64(2), "ragate.tokens": int64(6)} {
		if got[k] != v {
			t.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
	for k, v := range map[string]any{"ragate.model": "stub/embedder", "ragate.rows": int64(2), "ragate.tokens": int64(10), "ragate.padded_tokens": int64(32), "ragate.lane": "bulk",
		"ragate.batches": int64(1), "ragate.batch.id": int64(7), "ragate.batch.rows": int64(3), "ragate.batch.tokens": int64(19), "ragate.batch.padded_tokens": int64(48)} {
		if inner[k] != v {
			t.Errorf("inference: %s is %v, want %v", k, inner[k], v)
		}
	}
	_, root, _ = spansOf(t, s, spans, "POST", queryRoute, `{"query":"thanks"}`, "X-API-Key", "k")
	if got := attributesOf(root); got["ragate.gate.stage"] != "pattern" || got["ragate.gate.retrieval_bypassed"] != true || got["ragate.gate.policy"] != "default" {
		t.Errorf("%v", got)
	}
	_, _, children = spansOf(t, s, spans, "POST", queryRoute, `{"query":"!overloaded"}`, "X-API-Key", "k")
	if got := attributesOf(children[1]); children[1].Name() != "gate.semantic" || got["error.type"] != "queue_full" {
		t.Errorf("%s: %v", children[1].Name(), got)
	}
}

// The stages of a call that did not come to its end.
func TestSpansOfCallsThatFailed(t *testing.T) {
	s, spans := tracingServer(t, io.Discard)
	at := time.Now().Add(-time.Second)
	ms := func(n int) time.Time { return at.Add(time.Duration(n) * time.Millisecond) }
	for _, c := range []struct {
		call inference.Call
		want string // name, milliseconds, error.type
	}{
		{inference.Call{Began: ms(0), Done: ms(5), Err: &inference.OverloadedError{}}, "tokenize 0-5 queue_full"},
		{inference.Call{Began: ms(0), Done: ms(5), Err: &inference.TooLongError{}}, "tokenize 0-5 text_too_long"},
		{inference.Call{Began: ms(0), Submitted: ms(2), Done: ms(9), Err: context.DeadlineExceeded}, "tokenize 0-2 <nil>; queue 2-9 deadline"},
		{inference.Call{Began: ms(0), Submitted: ms(2), FirstTaken: ms(3), LastTaken: ms(6), Done: ms(9), Err: context.Canceled}, "tokenize 0-2 <nil>; queue 2-6 <nil>; inference 3-9 client_gone"},
		{inference.Call{Began: ms(0), Submitted: ms(2), FirstTaken: ms(3), Done: ms(9), Err: &inference.RowError{Err: inference.ErrNotFinite}}, "tokenize 0-2 <nil>; queue 2-9 <nil>; inference 3-9 inference_failed"},
		{inference.Call{Began: ms(0), Submitted: ms(2), Done: ms(9), Err: inference.ErrClosed}, "tokenize 0-2 <nil>; queue 2-9 draining"},
		{inference.Call{Began: ms(0), Done: ms(9), Err: io.ErrUnexpectedEOF}, "tokenize 0-9 other"},
	} {
		spans.Reset()
		x := &exchange{s: s}
		x.traceCall(t.Context(), c.call)
		var got []string
		for _, span := range spans.Ended() {
			got = append(got, fmt.Sprint(span.Name(), " ", span.StartTime().Sub(at).Milliseconds(), "-", span.EndTime().Sub(at).Milliseconds(), " ", attributesOf(span)["error.type"]))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%v: %q, want %q", c.call.Err, got, c.want)
		}
	}
}

// A trace that its caller does not keep costs no spans below the request's, and the log has its ids all the same; so it has with tracing off.
func TestTraceIDsWithoutSpans(t *testing.T) {
	for name, header := range map[string]string{
		"kept": "00-" + callerTrace + "-" + callerSpan + "-01", "not kept": "00-" + callerTrace + "-" + callerSpan + "-00", "a later version": "cc-" + callerTrace + "-" + callerSpan + "-01-more",
		"none": "", "no ids": "00-" + strings.Repeat("0", 32) + "-" + callerSpan + "-01", "capitals": "00-" + strings.ToUpper(callerTrace) + "-" + callerSpan + "-01",
		"nonsense": canary, "version ff": "ff-" + callerTrace + "-" + callerSpan + "-01", "too short": "00-" + callerTrace + "-" + callerSpan,
	} {
		valid := name == "kept" || name == "not kept" || name == "a later version"
		for _, on := range []bool{false, true} {
			var log bytes.Buffer
			s, spans := tracingServer(t, &log, sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
			if !on {
				s.tracer = nil
			}
			w, _, children := spansOf(t, s, spans, "POST", "/v1/embeddings", `{"input":"a"}`, "X-API-Key", "k", "Traceparent", header)
			var line struct {
				TraceID string `json:"trace_id"`
				SpanID  string `json:"span_id"`
			}
			if err := json.Unmarshal(log.Bytes(), &line); err != nil || w.Code != 200 {
				t.Fatal(w.Code, err)
			}
			switch {
			case valid && line.TraceID != callerTrace, !valid && !on && line.TraceID != "", !valid && on && (line.TraceID == callerTrace || len(line.TraceID) != 32):
				t.Errorf("%s, tracing %v: trace id %q", name, on, line.TraceID)
			case valid && !on && line.SpanID != callerSpan, on && (line.SpanID == callerSpan || len(line.SpanID) != 16):
				t.Errorf("%s, tracing %v: span id %q", name, on, line.SpanID)
			}
			if kept := on && name != "not kept"; (len(children) > 0) != kept || (len(spans.Ended()) > 0) != kept {
				t.Errorf("%s, tracing %v: %d spans", name, on, len(spans.Ended()))
			}
		}
	}
}

// A client that leaves has a span too, with no status, as none was sent.
func TestSpanOfAClientThatLeaves(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	s, e, _ := stubServer(func(c *Config) { c.Tracing.Provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)) })
	ctx, cancel := context.WithCancel(t.Context())
	e.before = func(context.Context, []string) (error, bool) { cancel(); return context.Canceled, true }
	r := httptest.NewRequest("POST", "/embed", strings.NewReader(`{"inputs":"a"}`)).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	ended := spans.Ended()
	if len(ended) == 0 {
		t.Fatal("no span")
	}
	if got := attributesOf(ended[len(ended)-1]); got["http.response.status_code"] != nil || got["error.type"] != "client_gone" {
		t.Errorf("%v", got)
	}
}

// With tracing off, its hooks allocate nothing.
func TestTracingOffCostsNothing(t *testing.T) {
	s, _, _ := stubServer(nil)
	x := &exchange{s: s, r: httptest.NewRequest("POST", "/v1/embeddings", nil), route: "/v1/embeddings"}
	if n := testing.AllocsPerRun(1000, func() {
		x.startSpan()
		x.asked("text")
		if x.recording() || x.traceIDs().IsValid() {
			t.Error("tracing is on")
		}
		if inference.RecordOf(x.r.Context()) != nil {
			t.Error("there is a record")
		}
		x.endSpan(200)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a request costs outside the model with tracing off, on and not sampled, and on.
func BenchmarkTracing(b *testing.B) {
	for name, p := range map[string]trace.TracerProvider{
		"off": nil, "not-sampled": sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())), "on": sdk.NewTracerProvider(),
	} {
		b.Run(name, func(b *testing.B) {
			s, e, _ := stubServer(func(c *Config) { c.Tracing.Provider = p })
			b.ReportAllocs()
			for b.Loop() {
				if w := do(s, "POST", "/v1/embeddings", `{"input":"a"}`); w.Code != 200 {
					b.Fatal(w.Code)
				}
				e.embeds = e.embeds[:0]
			}
		})
	}
}
