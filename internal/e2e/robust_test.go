package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// metric reads one number of /metrics.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	for line := range strings.SplitSeq(string(s.ask("/metrics", nil).body), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return n
		}
	}
	s.t.Fatalf("/metrics has no %s", name)
	return 0
}

// TestClientsThatLeave: with the real engine, clients that leave while their texts are tokenised, wait and run leave nothing behind: no row in
// the queue, no request, no goroutine, no file.
func TestClientsThatLeave(t *testing.T) {
	s := start(t, environment(t, store(t)))
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	documents := make([]string, 60)
	for i := range documents {
		documents[i] = strings.Repeat(fmt.Sprintf("the wing of model %d has a span of %d metres ", i, 10+i), 10)
	}
	work := map[string]any{
		"/v1/rerank": map[string]any{"query": "which wing is the longest?", "documents": documents}, "/v1/embeddings": map[string]any{"input": documents},
		"/v1/gate/query": map[string]any{"query": "which wing is the longest?", "budget_ms": 600_000}, "/tokenize": map[string]any{"inputs": documents},
	}
	before := s.ask("/v1/embeddings", map[string]any{"input": "are you there?"})
	goroutines, files := s.metric("go_goroutines"), s.metric("process_open_fds")

	rng := rand.New(rand.NewPCG(1, 2))
	var g sync.WaitGroup
	var answered, left int
	var mu sync.Mutex
	for range 30 {
		for path, body := range work {
			b, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			patience := time.Duration(rng.Int64N(int64(800 * time.Millisecond)))
			g.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(b))
				if err != nil {
					t.Error(err)
					return
				}
				q.Header.Set("Content-Type", "application/json")
				p, err := client.Do(q)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					left++
					return
				}
				p.Body.Close() // and so is one who leaves while reading
				answered++
			})
		}
	}
	g.Wait()
	transport.CloseIdleConnections()
	if left < 20 {
		t.Errorf("%d clients left and %d were answered: this tests little", left, answered)
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		state := fmt.Sprintf("%v tokens and %v rows wait, %v requests in flight, %v goroutines (%v before), %v files (%v before)", s.metric("ragate_queue_tokens"),
			s.metric("ragate_queue_rows"), s.metric("ragate_http_requests_in_flight"), s.metric("go_goroutines"), goroutines, s.metric("process_open_fds"), files)
		if s.metric("ragate_queue_tokens") == 0 && s.metric("ragate_queue_rows") == 0 && s.metric("ragate_http_requests_in_flight") == 1 &&
			s.metric("go_goroutines") <= goroutines+2 && s.metric("process_open_fds") <= files+2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", state)
		}
	}
	if after := s.ask("/v1/embeddings", map[string]any{"input": "are you there?"}); !bytes.Equal(before.body, after.body) {
		t.Errorf("afterwards the same text has another vector:\n%.200s\n%.200s", before.body, after.body)
	}
}

// TestFilesRemovedWhileRunning: models are in memory once they are loaded. Removing their files, and all caches, changes no answer and no
// reload; the next start fetches them again, or says what is missing.
func TestFilesRemovedWhileRunning(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(store(t), "ort"), filepath.Join(dir, "ort")); err != nil {
		t.Fatal(err)
	}
	models := filepath.Join(dir, "models")
	if err := os.CopyFS(models, os.DirFS(filepath.Join(store(t), "models"))); err != nil {
		t.Fatal(err)
	}
	s := start(t, environment(t, dir))
	requests := map[string]map[string]any{
		"/v1/embeddings": {"input": []string{"the wing is long", "a"}}, "/rerank": {"query": "which wing?", "texts": []string{"the wing is long", "a shoe"}},
		"/tokenize": {"inputs": "the wing is long"},
	}
	before := map[string]reply{}
	for path, body := range requests {
		if before[path] = s.ask(path, body); before[path].status != http.StatusOK {
			t.Fatalf("%s: %v", path, before[path])
		}
	}
	for _, name := range []string{"models", "graphs", "references", "measured.json"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.signal(syscall.SIGHUP)
	s.line("references reloaded")
	for path, body := range requests {
		if r := s.ask(path, body); !bytes.Equal(r.body, before[path].body) {
			t.Errorf("%s: %v\nbefore: %v", path, r, before[path])
		}
	}
	if r := s.ask("/v1/gate/query", map[string]any{"query": "how long is the wing?", "budget_ms": 60_000}); r.status != http.StatusOK || !bytes.Contains(r.body, []byte(`"stage":"semantic"`)) {
		t.Errorf("the query gate: %v", r)
	}
	if r := s.ask("/ready", nil); r.status != http.StatusOK {
		t.Errorf("/ready: %v", r)
	}
	if strings.Contains(s.log(), `"level":"ERROR"`) {
		t.Error("the log has errors")
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// It would fetch them again; here it cannot.
	r := command(t, environment(t, dir, "PATH="+t.TempDir()), "", "serve", "--listen", "127.0.0.1:0", "--log-format", "json")
	if r.code != 1 || !strings.Contains(r.stderr, "Without pip or a network") || strings.Contains(r.stderr, "goroutine ") {
		t.Errorf("the next start: exit code %d, %s", r.code, r.stderr)
	}
}
