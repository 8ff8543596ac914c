package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longRequest is a rerank of n documents of some 200 tokens each.
func longRequest(n int) map[string]any {
	documents := make([]string, n)
	for i := range documents {
		documents[i] = fmt.Sprintf("document %d: ", i) + strings.Repeat("the boundary layer on the plate thickens behind the shock . ", 17)
	}
	return map[string]any{"query": "why does the boundary layer thicken?", "documents": documents}
}

// inFlight sends a request from another goroutine and returns once the server has begun to work on it.
func (s *server) inFlight(path string, body any) <-chan outcome {
	s.t.Helper()
	answer := make(chan outcome, 1)
	go func() {
		r, err := s.send(path, body)
		answer <- outcome{r, err}
	}()
	deadline := time.Now().Add(patience)
	for !s.busy() {
		select {
		case a := <-answer:
			s.t.Fatalf("the request was over before the queue held it: %v, %v", a.reply, a.err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the request does not reach the queue")
		}
	}
	return answer
}

type outcome struct {
	reply reply
	err   error
}

// until polls a route until its status is as wanted.
func (s *server) until(path string, status int) reply {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		r := s.ask(path, nil)
		if r.status == status {
			return r
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s stays at %v, want %d", path, r, status)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	s := start(t, environment(t, store(t), "RAGATE_SHUTDOWN_GRACE="+patience.String()))
	if r := s.ask("/ready", nil); r.status != http.StatusOK {
		t.Fatalf("/ready: %v", r)
	}
	const documents = 60
	answer := s.inFlight("/v1/rerank", longRequest(documents))
	s.signal(syscall.SIGTERM)

	r := s.until("/ready", http.StatusServiceUnavailable)
	if !bytes.Contains(r.body, []byte(`"draining"`)) || r.header.Get("Retry-After") == "" {
		t.Errorf("/ready while draining: %v %v", r, r.header)
	}
	if r := s.ask("/health", nil); r.status != http.StatusOK {
		t.Errorf("/health while draining: %v", r)
	}
	if r := s.ask("/embed", map[string]any{"inputs": "late"}); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("new work while draining: %v %v", r, r.header)
	}
	a := <-answer
	if a.err != nil {
		t.Fatalf("the request in flight: %v", a.err)
	}
	got, err := decode[struct {
		Results []json.RawMessage `json:"results"`
	}](a.reply)
	if err != nil || len(got.Results) != documents {
		t.Errorf("the request in flight: %d results, %v", len(got.Results), err)
	}
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.log())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := start(t, environment(t, store(t), "RAGATE_SHUTDOWN_GRACE="+patience.String()))
	answer := s.inFlight("/v1/rerank", longRequest(1000))
	s.signal(syscall.SIGTERM)
	s.until("/ready", http.StatusServiceUnavailable)
	began := time.Now()
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	t.Logf("ended %d ms after the second signal", time.Since(began).Milliseconds())
	if a := <-answer; a.err == nil {
		t.Errorf("the request in flight was answered with %d: the server waited for it", a.reply.status)
	}
	// The log line of the request that was cut off may still come behind the program's own last word.
	var said []string
	for line := range strings.Lines(s.log()) {
		if strings.HasPrefix(line, "ragate: ") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if len(said) != 1 {
		t.Fatalf("the program said %q; want one line", said)
	}
	oneLine(t, said[0], "second signal")
}

// TestGraceEnds: requests that outlast the grace are cut off, and the exit code says so.
func TestGraceEnds(t *testing.T) {
	s := start(t, environment(t, store(t)), "--shutdown-grace", "50ms")
	answer := s.inFlight("/v1/rerank", longRequest(1000))
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if a := <-answer; a.err == nil && a.reply.status == http.StatusOK {
		t.Errorf("the request in flight finished within a grace of 50 ms")
	}
	oneLine(t, lastLine(s.log()), "shutdown")
}

func TestStopWhileStarting(t *testing.T) {
	s := launch(t, environment(t, privateStore(t)))
	r := s.ask("/ready", nil)
	if r.status != http.StatusServiceUnavailable || !bytes.Contains(r.body, []byte(`"starting"`)) {
		t.Errorf("/ready while starting: %v", r)
	}
	if r := s.ask("/embed", map[string]any{"inputs": "early"}); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("work while starting: %v %v", r, r.header)
	}
	if r := s.ask("/health", nil); r.status != http.StatusOK {
		t.Errorf("/health while starting: %v", r)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.log())
	}
}

// TestSecondStart: what the first start measured and rewrote is remembered, and the second needs neither network nor python3.
func TestSecondStart(t *testing.T) {
	dir := privateStore(t)
	type facts struct {
		measured []byte
		graphs   map[string]string
		info     map[string]any
		millis   float64
	}
	run := func(env []string) facts {
		s := start(t, env)
		f := facts{millis: s.line("ready")["start_ms"].(float64), graphs: map[string]string{}}
		var err error
		if f.info, err = decode[map[string]any](s.ask("/info", nil)); err != nil {
			t.Fatal(err)
		}
		if r := s.ask("/embed", map[string]any{"inputs": "a text"}); r.status != http.StatusOK {
			t.Fatal(r)
		}
		s.signal(syscall.SIGTERM)
		if code := s.wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		if f.measured, err = os.ReadFile(filepath.Join(dir, "measured.json")); err != nil {
			t.Fatal(err)
		}
		for _, sub := range []string{"graphs", "."} { // name and time of every file written by the server
			err := filepath.WalkDir(filepath.Join(dir, sub), func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err != nil || d.IsDir() {
					return err
				}
				i, err := d.Info()
				if err == nil && filepath.Base(filepath.Dir(path)) == "references" {
					f.graphs[path] = fmt.Sprint(i.Size()) // the time is that of the last use
				} else if err == nil {
					f.graphs[path] = fmt.Sprint(i.Size(), i.ModTime())
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	first := run(environment(t, dir))
	var measured map[string]any
	if err := json.Unmarshal(first.measured, &measured); err != nil || len(measured) != 3 {
		t.Fatalf("measured.json holds %d models, want 3: %v", len(measured), err)
	}
	// Nothing answers at port 9 of this machine, and no program is on this PATH.
	nowhere := "http://127.0.0.1:9"
	second := run(append(environment(t, dir), "PATH="+t.TempDir(), "HF_ENDPOINT="+nowhere, "HTTP_PROXY="+nowhere, "HTTPS_PROXY="+nowhere))
	t.Logf("ready after %.0f ms at the first start, %.0f ms at the second", first.millis, second.millis)
	if !reflect.DeepEqual(first.graphs, second.graphs) {
		t.Errorf("the second start wrote files:\n%v\n%v", first.graphs, second.graphs)
	}
	if !bytes.Equal(first.measured, second.measured) {
		t.Errorf("the second start measured again:\n%s\n%s", first.measured, second.measured)
	}
	// What a batch may hold follows from the pace, which every start measures anew, as it does the memory.
	for _, info := range []map[string]any{first.info, second.info} {
		models, _ := info["models"].([]any)
		for _, m := range append([]any{info}, models...) {
			if n, _ := m.(map[string]any)["max_batch_tokens"].(float64); n < 1 {
				t.Errorf("max_batch_tokens is %v in %v", n, m)
			}
			delete(m.(map[string]any), "max_batch_tokens")
			delete(m.(map[string]any), "memory_mb")
		}
		if len(models) != 3 {
			t.Errorf("/info lists %d models, want 3", len(models))
		}
		delete(info, "memory")
	}
	if !reflect.DeepEqual(first.info, second.info) {
		t.Errorf("/info differs:\n%v\n%v", first.info, second.info)
	}
}

// TestDamagedModel: a model whose files are not the pinned ones is refused with both hashes, by the server and by `models verify`.
func TestDamagedModel(t *testing.T) {
	const reranker = "cross-encoder--ms-marco-MiniLM-L12-v2"
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "models", reranker), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ort", "models/intfloat--e5-small-v2", "models/intfloat--multilingual-e5-small"} {
		if err := os.Symlink(filepath.Join(store(t), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	from, to := filepath.Join(store(t), "models", reranker), filepath.Join(dir, "models", reranker)
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	copyFile := func(name string, change func([]byte)) (before, after string) {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		before = sum(b)
		change(b)
		if err := os.WriteFile(filepath.Join(to, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return before, sum(b)
	}
	whole := func([]byte) {}
	for _, e := range entries {
		copyFile(e.Name(), whole)
	}
	env := environment(t, dir)
	for _, name := range []string{"model.onnx", "tokenizer.json"} {
		want, got := copyFile(name, func(b []byte) { b[len(b)/2] ^= 1 })
		r := command(t, env, "", "serve", "--listen", "127.0.0.1:0")
		if r.code != 1 {
			t.Errorf("%s: the server's exit code is %d", name, r.code)
		}
		oneLine(t, lastLine(r.stderr), name, want, got, "ragate models pull")

		r = command(t, env, "", "models", "verify")
		if r.code != 1 || !slices.ContainsFunc(splitLines(r.stdout), func(l string) bool {
			return strings.HasPrefix(l, "changed") && strings.Contains(l, name) && strings.Contains(l, want) && strings.Contains(l, got)
		}) {
			t.Errorf("models verify: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		oneLine(t, r.stderr, "1 of 4", "ragate setup")
		copyFile(name, whole)
	}
	if r := command(t, env, "", "models", "verify"); r.code != 0 || strings.Contains(r.stdout, "changed") {
		t.Errorf("models verify of whole files: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// TestAddressInUse: the second server says so in one line; the first goes on.
func TestAddressInUse(t *testing.T) {
	s := launch(t, environment(t, store(t)))
	address := strings.TrimPrefix(s.url, "http://")
	r := command(t, environment(t, store(t)), "", "serve", "--listen", address)
	if r.code != 2 || r.stdout != "" {
		t.Errorf("exit code %d, output %q", r.code, r.stdout)
	}
	oneLine(t, r.stderr, address, "--listen", "RAGATE_LISTEN")
	s.line("ready")
	if r := s.ask("/ready", nil); r.status != http.StatusOK {
		t.Errorf("the first server: %v", r)
	}
}
