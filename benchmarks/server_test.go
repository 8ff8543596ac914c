package benchmarks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func TestMetricsAreRead(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("# HELP x y\n# TYPE x counter\nragate_batch_tokens_total{model=\"a/b\"} 1200\nragate_batch_padding_tokens_total{model=\"a/b\"} 3.5e+02\n" +
			"ragate_batch_rows_sum{model=\"a/b\"} 12\nragate_batch_rows_count{model=\"a/b\"} 4\nragate_inference_seconds_sum{model=\"a/b\"} 0.25\n"))
	}))
	defer h.Close()
	m, err := (&Server{URL: h.URL}).Metrics()
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Batches("a/b")
	if want := (BatchCounters{Tokens: 1200, Padding: 350, Batches: 4, Rows: 12, Seconds: 0.25}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if d := got.Minus(BatchCounters{Tokens: 200, Padding: 50, Batches: 1, Rows: 2, Seconds: 0.05}); d != (BatchCounters{1000, 300, 3, 10, 0.2}) {
		t.Errorf("difference %+v", d)
	}
	if _, err := m.Batches("a/c"); err == nil || !strings.Contains(err.Error(), "a/c") {
		t.Errorf("a model without counters: %v", err)
	}
}

func TestAProgramThatEndsBeforeItIsReadyIsAnError(t *testing.T) {
	_, err := StartServer(context.Background(), ServerConfig{Program: "/bin/false", Log: filepath.Join(t.TempDir(), "log")})
	if err == nil || !strings.Contains(err.Error(), "before it was ready") {
		t.Errorf("got %v", err)
	}
}
