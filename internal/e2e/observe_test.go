package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collecting is a collector for traces, as OTLP over HTTP describes it.
type collecting struct {
	*httptest.Server
	mu    sync.Mutex
	spans map[string][]*otlp.Span // by trace id
	all   bytes.Buffer            // the bodies, in the text form of protocol buffers
}

func newCollector(t *testing.T) *collecting {
	t.Helper()
	c := &collecting{spans: map[string][]*otlp.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		fmt.Fprintln(&c.all, req.String())
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					id := hex.EncodeToString(s.TraceId)
					c.spans[id] = append(c.spans[id], s)
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// trace waits until a trace has its request's span, which ends and is sent last, and returns its spans.
func (c *collecting) trace(t *testing.T, id string) []*otlp.Span {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c.mu.Lock()
		spans := c.spans[id]
		c.mu.Unlock()
		for _, s := range spans {
			if s.Kind == otlp.Span_SPAN_KIND_SERVER {
				return spans
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the trace %s does not come", id)
		}
	}
}

// drawn is the tree of spans below one, and checks that each lies within its parent's time.
func drawn(t *testing.T, parent *otlp.Span, spans []*otlp.Span) string {
	t.Helper()
	var out []string
	for _, s := range spans {
		if !bytes.Equal(s.ParentSpanId, parent.SpanId) {
			continue
		}
		if s.StartTimeUnixNano < parent.StartTimeUnixNano || s.EndTimeUnixNano > parent.EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s from %d to %d is not within %s from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, parent.Name, parent.StartTimeUnixNano, parent.EndTimeUnixNano)
		}
		name := s.Name
		if below := drawn(t, s, spans); below != "" {
			name += "(" + below + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func valueOf(attributes []*common.KeyValue, key string) any {
	for _, a := range attributes {
		if a.Key == key {
			switch v := a.Value.Value.(type) {
			case *common.AnyValue_StringValue:
				return v.StringValue
			case *common.AnyValue_IntValue:
				return v.IntValue
			case *common.AnyValue_BoolValue:
				return v.BoolValue
			}
		}
	}
	return nil
}

// With real models: a real collector is sent each request's spans, under the caller's; no text gets into them or into the log; the profiles
// answer on their own listener alone; and with the collector gone requests and shutdown go on as before.
func TestSeenFromOutside(t *testing.T) {
	c := newCollector(t)
	env := environment(t, privateStore(t), "RAGATE_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_EXPORTER_OTLP_TIMEOUT=1000", "RAGATE_API_KEY=tester:k", "RAGATE_PPROF_LISTEN=127.0.0.1:0")
	s := start(t, env, "--log-level", "debug")
	s.key = "k"
	const canary = "the penguin of wolfgang sings"
	n := 0
	traced := func(path string, body any) (reply, []*otlp.Span, *otlp.Span) {
		t.Helper()
		n++
		id := fmt.Sprintf("%032x", n)
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer k")
		q.Header.Set("Traceparent", "00-"+id+"-00f067aa0ba902b7-01")
		p, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Body.Close()
		answer, err := io.ReadAll(p.Body)
		if err != nil {
			t.Fatal(err)
		}
		spans := c.trace(t, id)
		for _, span := range spans {
			if span.Kind == otlp.Span_SPAN_KIND_SERVER {
				if hex.EncodeToString(span.ParentSpanId) != "00f067aa0ba902b7" || span.Name != "POST "+path || valueOf(span.Attributes, "http.response.status_code") != int64(p.StatusCode) {
					t.Errorf("%s: %v", path, span)
				}
				return reply{p.StatusCode, p.Header, answer}, spans, span
			}
		}
		panic("not after trace")
	}
	docs := make([]string, 40)
	for i := range docs {
		docs[i] = fmt.Sprintf("%s, document %d %s", canary, i, strings.Repeat("and so on ", i))
	}
	for _, r := range []struct {
		path string
		body any
		tree string
	}{
		{"/v1/embeddings", map[string]any{"input": []string{canary, "b"}}, "tokenize queue inference"},
		{"/v1/rerank", map[string]any{"query": canary, "documents": docs}, "tokenize queue inference"},
		{"/v1/gate/query", map[string]any{"query": "thank you"}, "gate.pattern"},
		{"/v1/gate/query", map[string]any{"query": canary, "budget_ms": 60000}, "gate.pattern gate.semantic(tokenize queue inference gate.similarity)"},
		{"/v1/gate/chunks", map[string]any{"query": canary, "budget_ms": 60000, "chunks": []map[string]any{{"text": canary}, {"text": "b"}}}, "gate.score(tokenize queue inference) gate.decide"},
		{"/tokenize", map[string]any{"inputs": canary}, "tokenize"},
		{"/v1/embeddings", map[string]any{"input": canary, "model": canary}, ""},
		{"/v1/gate/query", map[string]any{"query": canary, canary: 1}, ""},
		{"/embed", map[string]any{"inputs": []any{canary, 1}}, ""},
	} {
		answer, spans, root := traced(r.path, r.body)
		if got := drawn(t, root, spans); got != r.tree {
			t.Errorf("%s: %s, want %s", r.path, got, r.tree)
		}
		timing := answer.header.Get("Server-Timing")
		if !regexp.MustCompile(`(^|, )total;dur=[0-9.]+$`).MatchString(timing) {
			t.Errorf("%s: Server-Timing %q", r.path, timing)
		}
		if r.path == "/v1/gate/query" && r.tree != "" && !strings.HasPrefix(timing, "pattern;dur=") {
			t.Errorf("%s: Server-Timing %q", r.path, timing)
		}
		for _, span := range spans {
			if span.Name != "inference" {
				continue
			}
			rows, tokens, padded := valueOf(span.Attributes, "ragate.rows"), valueOf(span.Attributes, "ragate.tokens"), valueOf(span.Attributes, "ragate.padded_tokens")
			batch, shared := valueOf(span.Attributes, "ragate.batch.id"), valueOf(span.Attributes, "ragate.batch.rows")
			if rows.(int64) < 1 || tokens.(int64) < 2*rows.(int64) || padded.(int64) < tokens.(int64) || batch.(int64) < 1 || shared.(int64) < 1 ||
				span.EndTimeUnixNano <= span.StartTimeUnixNano {
				t.Errorf("%s: %v", r.path, span)
			}
			if documents, ok := r.body.(map[string]any)["documents"]; ok && (rows != int64(len(documents.([]string))) || valueOf(span.Attributes, "ragate.batches").(int64) < 2) {
				t.Errorf("%s: %v", r.path, span)
			}
		}
	}
	c.mu.Lock()
	if strings.Contains(c.all.String(), "penguin") {
		t.Error("a text is in the traces")
	}
	c.mu.Unlock()
	if log := s.log(); strings.Contains(log, "penguin") || !strings.Contains(log, fmt.Sprintf(`"trace_id":"%032x"`, 1)) {
		t.Error("a text is in the log, or a trace id is not")
	}

	// Profiles.
	profiles := s.line("profiles are served")["url"].(string)
	for _, r := range []struct {
		url, host string
		status    int
	}{
		{profiles, "", 200}, {profiles + "goroutine?debug=1", "", 200}, {profiles + "heap", "localhost:6060", 200},
		{profiles, "pages.example:6060", 403},
		{s.url + "/debug/pprof/", "", 404}, {s.url + "/debug/pprof/heap", "", 404},
	} {
		q, err := http.NewRequestWithContext(t.Context(), "GET", r.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer k")
		q.Host = r.host
		p, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(p.Body)
		p.Body.Close()
		if err != nil || p.StatusCode != r.status {
			t.Errorf("%s as %q: %d %.200s %v, want %d", r.url, r.host, p.StatusCode, b, err, r.status)
		}
	}

	// Metrics.
	text := string(s.ask("/metrics", nil).body)
	for _, line := range []string{`ragate_key_requests_total{key="tester"} `, `ragate_trace_spans_total{outcome="dropped"} 0`, `ragate_gate_stage_seconds_count{gate="query",stage="similarity"} `,
		`ragate_model_drift{against="batch",measure="logit",`, `ragate_reloads_total{outcome="ok",what="references"} 0`} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if gauge := regexp.MustCompile(`(?m)^ragate_workers ([1-9][0-9]*)$`); !gauge.MatchString(text) {
		t.Error("/metrics has no workers")
	}
	s.signal(syscall.SIGHUP)
	s.line("references reloaded")
	if !strings.Contains(string(s.ask("/metrics", nil).body), "\n"+`ragate_reloads_total{outcome="ok",what="references"} 1`) {
		t.Error("a reload by signal is not counted")
	}

	// The collector goes.
	c.CloseClientConnections()
	c.Close()
	for range 20 {
		if r := s.ask("/v1/embeddings", map[string]any{"input": canary}); r.status != 200 {
			t.Errorf("without a collector: %v", r)
		}
	}
	s.line("traces cannot be delivered; requests are not affected")
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What was traced last is sent before the program ends, and texts are in the log when that was asked for.
func TestTracesAreFlushedAtTheEnd(t *testing.T) {
	c := newCollector(t)
	// OpenTelemetry's own variables do as well; a batch would wait an hour.
	s := start(t, environment(t, store(t), "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_SERVICE_NAME=blue", "OTEL_BSP_SCHEDULE_DELAY=3600000"), "--log-text")
	if r := s.ask("/v1/rerank", map[string]any{"query": "what is the notice period?", "documents": []string{"One month.", "Bring cake."}}); r.status != 200 {
		t.Fatal(r)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) != 1 || !regexp.MustCompile(`service.name.{1,40}"blue"`).MatchString(c.all.String()) {
		t.Errorf("%d traces: %s", len(c.spans), &c.all)
	}
	if !strings.Contains(s.log(), `"text":"what is the notice period?"`) {
		t.Error("the log lacks the query")
	}
}
