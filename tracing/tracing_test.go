package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector as OTLP over HTTP describes it: it takes what the real exporter sends, and answers with a status of the test's.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	spans  []*otlp.ResourceSpans
	status int
	paths  []string
	header http.Header
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := io.Reader(q.Body)
		if q.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(q.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(b, &req); err != nil || q.Header.Get("Content-Type") != "application/x-protobuf" || q.Method != "POST" {
			t.Errorf("%s %s: %v", q.Method, q.Header.Get("Content-Type"), err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paths, r.header = append(r.paths, q.URL.Path), q.Header
		if r.status == http.StatusOK {
			r.spans = append(r.spans, req.ResourceSpans...)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// received returns the spans so far, with the attributes of the resource that the last came from.
func (r *receiver) received() (spans []*otlp.Span, resource map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource = map[string]string{}
	for _, rs := range r.spans {
		for _, a := range rs.Resource.Attributes {
			resource[a.Key] = a.Value.GetStringValue()
		}
		for _, s := range rs.ScopeSpans {
			spans = append(spans, s.Spans...)
		}
	}
	return spans, resource
}

// safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// opened is a tracer without anything of the tester's environment, and its log.
func opened(t *testing.T, cfg Config) (*Tracer, *safeBuffer) {
	t.Helper()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_TRACES_SAMPLER", "HTTP_PROXY", "http_proxy"} {
		if !strings.HasPrefix(t.Name(), "TestVariables") {
			t.Setenv(name, "")
		}
	}
	log := &safeBuffer{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	if cfg.Service == "" {
		cfg.Service, cfg.Version = "ragate", "v9"
	}
	tracer, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		tracer.Close(ctx)
	})
	return tracer, log
}

func closed(t *testing.T, tracer *Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := tracer.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// Spans arrive at a real receiver with their ids, parents, times and attributes, and Close delivers what waits.
func TestSpansArrive(t *testing.T) {
	r := newReceiver(t)
	tracer, log := opened(t, Config{Endpoint: r.URL})
	at := time.Now().Add(-time.Minute)
	tr := tracer.Provider().Tracer("test")
	ctx, parent := tr.Start(t.Context(), "POST /v1/rerank", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(at))
	_, child := tr.Start(ctx, "inference", trace.WithTimestamp(at.Add(time.Millisecond)), trace.WithAttributes(attribute.Int("ragate.rows", 3), attribute.String("ragate.lane", "bulk")))
	child.End(trace.WithTimestamp(at.Add(2 * time.Millisecond)))
	parent.End(trace.WithTimestamp(at.Add(3 * time.Millisecond)))
	closed(t, tracer)

	spans, resource := r.received()
	if len(spans) != 2 || r.paths[0] != "/v1/traces" {
		t.Fatalf("%d spans at %q", len(spans), r.paths)
	}
	c, p := spans[0], spans[1]
	pc := parent.SpanContext()
	if p.Name != "POST /v1/rerank" || p.Kind != otlp.Span_SPAN_KIND_SERVER || fmt.Sprintf("%x", p.TraceId) != pc.TraceID().String() || fmt.Sprintf("%x", p.SpanId) != pc.SpanID().String() || len(p.ParentSpanId) != 0 {
		t.Errorf("the parent: %v", p)
	}
	if c.Name != "inference" || !bytes.Equal(c.ParentSpanId, p.SpanId) || !bytes.Equal(c.TraceId, p.TraceId) ||
		c.StartTimeUnixNano != uint64(at.Add(time.Millisecond).UnixNano()) || c.EndTimeUnixNano != uint64(at.Add(2*time.Millisecond).UnixNano()) {
		t.Errorf("the child: %v", c)
	}
	got := map[string]string{}
	for _, a := range c.Attributes {
		got[a.Key] = a.Value.String()
	}
	if len(got) != 2 || !strings.Contains(got["ragate.rows"], "3") || !strings.Contains(got["ragate.lane"], "bulk") {
		t.Errorf("the child's attributes: %v", got)
	}
	if resource["service.name"] != "ragate" || resource["service.version"] != "v9" || resource["telemetry.sdk.language"] != "go" {
		t.Errorf("the resource: %v", resource)
	}
	if n := tracer.Counts(); n != (Counts{Exported: 2}) {
		t.Errorf("%+v", n)
	}
	if log.String() != "" {
		t.Errorf("the log: %s", log)
	}
}

// The standard variables choose collector, name, headers and sampling where the configuration says nothing.
func TestVariablesOfOpenTelemetry(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL+"/base")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_SERVICE_NAME", "search-gate")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	tracer, _ := opened(t, Config{})
	tr := tracer.Provider().Tracer("test")
	_, own := tr.Start(t.Context(), "begins here")
	own.End()
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	_, kept := tr.Start(trace.ContextWithRemoteSpanContext(t.Context(), caller), "kept by its caller")
	kept.End()
	closed(t, tracer)
	spans, resource := r.received()
	if len(spans) != 1 || spans[0].Name != "kept by its caller" || r.paths[0] != "/base/v1/traces" || r.header.Get("X-Tenant") != "blue" || r.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v at %q with %v", spans, r.paths, r.header)
	}
	if resource["service.name"] != "search-gate" || resource["deployment.environment.name"] != "test" || resource["service.version"] != "v9" {
		t.Errorf("%v", resource)
	}
}

// silent is an address where connections are taken and nothing is ever answered.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return "http://" + ln.Addr().String() // the system takes connections into its backlog
}

// A collector that is silent: ending spans does not wait, the queue holds what it may, and every other span is counted. Close gives up when
// its time does.
func TestASilentCollectorHoldsUpNothing(t *testing.T) {
	const max, n = 100, 5000
	tracer, _ := opened(t, Config{Endpoint: silent(t), MaxQueued: max})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				tr := tracer.Provider().Tracer("test")
				for range n / 8 {
					_, s := tr.Start(context.Background(), "x")
					s.End()
				}
			})
		}
		wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("spans wait for the collector")
	}
	if got := tracer.Counts(); got.Exported != 0 || got.Failed != 0 || got.Dropped != n-max {
		t.Errorf("%+v, want %d dropped", got, n-max)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	closing := make(chan error, 1)
	go func() { closing <- tracer.Close(ctx) }()
	select {
	case err := <-closing:
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprint(max, " spans")) {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
}

// A collector that refuses, is gone, and comes back: what it did not take is counted, and the log says when it goes and when it is back, once.
func TestACollectorThatGoesAndComesBack(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5") // ms
	r := newReceiver(t)
	r.answer(http.StatusBadRequest) // which is not tried again
	tracer, log := opened(t, Config{Endpoint: r.URL})
	tr := tracer.Provider().Tracer("test")
	until := func(what string, ok func(Counts) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(tracer.Counts()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, tracer.Counts())
			}
		}
	}
	for i := range uint64(3) {
		_, s := tr.Start(t.Context(), "lost")
		s.End()
		until("a refusal", func(c Counts) bool { return c.Failed == i+1 })
	}
	r.answer(http.StatusOK)
	_, s := tr.Start(t.Context(), "taken")
	s.End()
	until("an export", func(c Counts) bool { return c.Exported == 1 })
	closed(t, tracer)
	spans, _ := r.received()
	if got := tracer.Counts(); got != (Counts{Exported: 1, Failed: 3}) || len(spans) != 1 || spans[0].Name != "taken" {
		t.Errorf("%+v, %v", got, spans)
	}
	if strings.Count(log.String(), "cannot be delivered") != 1 || strings.Count(log.String(), "delivered again") != 1 {
		t.Errorf("the log: %s", log)
	}

	// Gone altogether.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	tracer, log = opened(t, Config{Endpoint: "http://" + ln.Addr().String()})
	_, s = tracer.Provider().Tracer("test").Start(t.Context(), "lost")
	s.End()
	closed(t, tracer)
	if got := tracer.Counts(); got != (Counts{Failed: 1}) || !strings.Contains(log.String(), "refused") {
		t.Errorf("%+v, log %s", got, log)
	}
}

func TestEndpoints(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:4318": "http://127.0.0.1:4318/v1/traces", "http://c:4318/": "http://c:4318/v1/traces", "https://c/otlp": "https://c/otlp/v1/traces",
		"https://c/otlp/v1/traces": "https://c/otlp/v1/traces", "http://[::1]:4318": "http://[::1]:4318/v1/traces",
	} {
		if got, err := parseEndpoint(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"127.0.0.1:4318", "localhost:4318", "grpc://c:4317", "http://", "http://c/?a=b", "http://c/#f", "::", "http://c:port"} {
		_, err := Open(t.Context(), Config{Endpoint: in, Log: slog.New(slog.DiscardHandler)})
		var bad *EndpointError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "4318") {
			t.Errorf("%s: %v", in, err)
		}
	}
	for _, in := range []string{"ftp://user:secret@c", "http://user:secret@c", "http://user:secret@c:port"} {
		if err := CheckEndpoint(in); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}

// What ending a span costs the request that makes it.
func BenchmarkSpan(b *testing.B) {
	tracer, err := Open(b.Context(), Config{Endpoint: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	tr := tracer.Provider().Tracer("bench")
	b.ReportAllocs()
	for b.Loop() {
		_, s := tr.Start(context.Background(), "x", trace.WithAttributes(attribute.Int("ragate.rows", 3)))
		s.End()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	tracer.Close(ctx)
}
