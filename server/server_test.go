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
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ragate/inference"
)

// listen serves s on a loopback port until the test ends.
func listen(t *testing.T, s *Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// within runs fn and fails the test when it hangs.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute): // for a hang, not for a slow machine
		t.Fatalf("%s hangs", what)
	}
}

// The byte limit holds for a length that is announced, for chunks, and for what follows the object; the refusal arrives although the
// client is still sending, and the connection goes on where all was read.
func TestBodyLimit(t *testing.T) {
	const limit = 16384
	s, _, _ := stubServer(func(c *Config) { c.MaxBodyBytes = limit })
	addr := listen(t, s)
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	post := func(path, body string, chunked bool) (int, string) {
		t.Helper()
		var r io.Reader = strings.NewReader(body)
		if chunked {
			r = struct{ io.Reader }{r} // hides the length
		}
		resp, err := client.Post("http://"+addr+path, "application/json", r)
		if err != nil {
			t.Fatalf("%s, %d bytes, chunked %v: %v", path, len(body), chunked, err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode >= 400 {
			return resp.StatusCode, errorShape(t, dialectOf(path), b)
		}
		return resp.StatusCode, string(b)
	}
	pad := func(frame string, n int) string { // fills %s so that the whole has n bytes
		return fmt.Sprintf(frame, strings.Repeat("a", n-len(frame)+2))
	}
	for path, frame := range map[string]string{
		"/v1/embeddings": `{"input":"%s"}`, "/v1/rerank": `{"query":"q","documents":["%s"]}`, "/v2/rerank": `{"query":"q","documents":["x","%s"]}`,
		"/embed": `{"inputs":"%s"}`, "/": `{"inputs":"%s"}`, "/rerank": `{"query":"q","texts":["%s"]}`, "/tokenize": `{"inputs":"%s"}`,
		"/similarity": `{"inputs":{"source_sentence":"s","sentences":["%s"]}}`, "/v2/embed": `{"texts":["%s"]}`,
	} {
		for _, chunked := range []bool{false, true} {
			if code, body := post(path, pad(frame, limit), chunked); code != 200 {
				t.Errorf("%s with exactly the limit, chunked %v: %d %s", path, chunked, code, body)
			}
			for _, body := range []string{pad(frame, limit+1), pad(frame, 20*limit), fmt.Sprintf(frame, "a") + strings.Repeat(" ", limit)} {
				code, msg := post(path, body, chunked)
				size := fmt.Sprint(len(body))
				if chunked && len(body) > 2*limit+1 {
					size = fmt.Sprint("more than ", limit) // read on only as far as the limit again
				}
				for _, word := range []string{size, fmt.Sprint(limit), "RAGATE_MAX_BODY_BYTES", "--max-body-bytes"} {
					if code != 413 || !strings.Contains(msg, word) {
						t.Errorf("%s with %d bytes, chunked %v: %d %q lacks %q", path, len(body), chunked, code, msg, word)
					}
				}
			}
		}
	}
	if code, _ := post("/embed", `{"inputs":"are you there"}`, false); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}

// raw sends bytes over a connection of its own and returns the answer's status, or 0 when the server only closed.
func raw(t *testing.T, addr, request string, halfClose bool) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if halfClose {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func TestBodiesThatDoNotCome(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) {
		c.BodyTimeout, c.HeaderTimeout, c.MaxBodyBytes = 300*time.Millisecond, 300*time.Millisecond, 1000
	})
	addr := listen(t, s)
	head := "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for _, c := range []struct {
		name, request string
		halfClose     bool
		want          int
		word          string
	}{
		{"a body that stops", head + "Content-Length: 100\r\n\r\n{\"inputs\":", false, 408, "did not arrive"},
		{"a body that never begins, on an unknown route", "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", false, 404, "no route"},
		{"a client that hangs up half way", head + "Content-Length: 100\r\n\r\n{\"inputs\":", true, 499, "left"},
		{"a chunk that lies", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", false, 400, "malformed"},
		{"leave to send is not given to a body too long", head + "Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n", false, 413, "5000"},
		{"leave to send is given to others", head + "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n{\"inputs\":\"a\"}", false, 100, ""},
		{"a request that is no HTTP", "hello\r\n\r\n", false, 400, ""},
		{"headers that stop", "POST /embed HTTP/1.1\r\nHost:", false, 0, ""},
	} {
		within(t, c.name, func() {
			if code, body := raw(t, addr, c.request, c.halfClose); code != c.want || !strings.Contains(body, c.word) {
				t.Errorf("%s: %d %s, want %d with %q", c.name, code, body, c.want, c.word)
			}
		})
	}
	if w := do(s, "POST", "/embed", `{"inputs":"a"}`); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// A client that leaves cancels its work; neither a goroutine nor an admission stays behind, and it counts as 499.
func TestClientsThatLeave(t *testing.T) {
	s, e, _ := stubServer(nil)
	entered := make(chan struct{}, 100)
	e.before = func(ctx context.Context, texts []string) (error, bool) {
		if texts[0] != "wait" {
			return nil, false
		}
		entered <- struct{}{}
		<-ctx.Done()
		return fmt.Errorf("embedding: %w", ctx.Err()), true
	}
	addr := listen(t, s)
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/embed", strings.NewReader(`{"inputs":"wait"}`))
		req.Header.Set("Content-Type", "application/json")
		go func() { <-entered; cancel() }()
		client := &http.Client{Transport: &http.Transport{}}
		if resp, err := client.Do(req); err == nil {
			t.Errorf("an answer came: %d", resp.StatusCode)
		}
		client.CloseIdleConnections()
	}
	within(t, "the work that was left", func() {
		for {
			s.life.mu.Lock()
			work := s.life.work
			s.life.mu.Unlock()
			if work == 0 && strings.Contains(scrape(t, s), `ragate_http_requests_total{method="POST",route="/embed",status="499"} 20`) && runtime.NumGoroutine() <= before+2 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	if w := do(s, "POST", "/embed", `{"inputs":"a"}`); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

func scrape(t *testing.T, s *Server) string {
	t.Helper()
	w := do(s, "GET", "/metrics", "")
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("/metrics: %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

// From start to end: work is refused before the models are there and from the moment of the drain; what is in flight finishes.
func TestLifeCycle(t *testing.T) {
	cfg := DefaultConfig()
	cfg.RetryAfter = 2500 * time.Millisecond
	s, err := New(cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	base := "http://" + ln.Addr().String()
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	ask := func(method, path, body string) (int, string, http.Header) {
		t.Helper()
		req, _ := http.NewRequest(method, base+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), resp.Header
	}
	expect := func(when, method, path, body string, status int, words ...string) {
		t.Helper()
		code, text, h := ask(method, path, body)
		if code != status {
			t.Errorf("%s: %s is %d %s, want %d", when, path, code, text, status)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %s lacks %q: %s", when, path, w, text)
			}
		}
		if code == 503 && h.Get("Retry-After") != "3" {
			t.Errorf("%s: %s has Retry-After %q, want 3", when, path, h.Get("Retry-After"))
		}
	}
	work := map[string]string{"/v1/embeddings": `{"input":"a"}`, "/v1/rerank": `{"query":"a","documents":["b"]}`, "/embed": `{"inputs":"a"}`,
		"/rerank": `{"query":"a","texts":["b"]}`, "/tokenize": `{"inputs":"a"}`, "/similarity": `{"inputs":{"source_sentence":"a","sentences":["b"]}}`}

	s.SetStarting("the reranker is being warmed")
	expect("starting", "GET", "/health", "", 200, "ok")
	expect("starting", "GET", "/ready", "", 503, `"status":"starting"`, "the reranker is being warmed")
	expect("starting", "GET", "/info", "", 503, "warmed")
	expect("starting", "GET", "/v1/models", "", 503, "warmed")
	for path, body := range work {
		expect("starting", "POST", path, body, 503, "starting", "warmed")
	}

	e, r := stubEmbedder(), stubReranker()
	entered, release := make(chan struct{}), make(chan struct{})
	e.before = func(_ context.Context, texts []string) (error, bool) {
		if texts[0] == "slow" {
			close(entered)
			<-release
		}
		return nil, false
	}
	s.SetReady(Engine{Models: []Model{e, r}})
	expect("ready", "GET", "/ready", "", 200, `"status":"ready"`)
	for path, body := range work {
		expect("ready", "POST", path, body, 200)
	}

	slow := make(chan int, 1)
	go func() {
		resp, err := http.Post(base+"/embed", "application/json", strings.NewReader(`{"inputs":"slow"}`))
		if err != nil {
			slow <- 0
			return
		}
		resp.Body.Close()
		slow <- resp.StatusCode
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		stopped <- s.Shutdown(ctx)
	}()
	within(t, "the drain", func() {
		for {
			if _, p, _ := s.life.now(); p == phaseDraining {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	expect("draining", "GET", "/health", "", 200)
	expect("draining", "GET", "/ready", "", 503, `"status":"draining"`)
	expect("draining", "GET", "/info", "", 200, `"status":"draining"`)
	for path, body := range work {
		expect("draining", "POST", path, body, 503, "shutting down")
	}
	s.SetReady(Engine{Models: []Model{e, r}}) // too late
	expect("draining", "GET", "/ready", "", 503)
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown did not wait for the request in flight: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	within(t, "the end", func() {
		if code := <-slow; code != 200 {
			t.Errorf("the request in flight got %d", code)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// When the grace is spent, what still runs is cut off and Shutdown says so.
func TestShutdownCutsOff(t *testing.T) {
	s, e, _ := stubServer(nil)
	entered := make(chan struct{})
	e.before = func(ctx context.Context, _ []string) (error, bool) {
		close(entered)
		<-ctx.Done() // the engine waits for its native run; here only for the connection's end
		return ctx.Err(), true
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	go func() {
		if resp, err := http.Post("http://"+ln.Addr().String()+"/embed", "application/json", strings.NewReader(`{"inputs":"a"}`)); err == nil {
			resp.Body.Close()
		}
	}()
	<-entered
	within(t, "a shutdown without time", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); err == nil {
			t.Error("Shutdown says that all went well")
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// A port in use, or any listener that fails, is an error of Serve.
func TestServeReportsAFailedListener(t *testing.T) {
	s, _, _ := stubServer(nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := s.Serve(ln); err == nil {
		t.Error("serving on a closed listener ended without error")
	}
}

func TestKeys(t *testing.T) {
	keys, err := ParseKeys("alice:first-secret, second-secret")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, _, _ := stubServer(func(c *Config) { c.Keys = keys })
	s.log = slog.New(slog.NewJSONHandler(&log, nil))
	for _, c := range []struct {
		headers []string
		name    string // "" is refused
	}{
		{nil, ""},
		{[]string{"Authorization", "Bearer first-secret"}, "alice"},
		{[]string{"Authorization", "bearer  second-secret"}, "key-2"},
		{[]string{"X-API-Key", "second-secret"}, "key-2"},
		{[]string{"Authorization", "Bearer wrong", "X-API-Key", "first-secret"}, "alice"},
		{[]string{"Authorization", "Bearer wrong"}, ""},
		{[]string{"Authorization", "Bearer "}, ""},
		{[]string{"Authorization", "Bearer"}, ""},
		{[]string{"Authorization", "first-secret"}, ""},
		{[]string{"Authorization", "Basic first-secret"}, ""},
		{[]string{"Authorization", "Bearer first-secretx"}, ""},
		{[]string{"Authorization", "Bearer first-secre"}, ""},
		{[]string{"Authorization", "Bearer FIRST-SECRET"}, ""},
		{[]string{"X-API-Key", "alice"}, ""},
	} {
		for path, body := range map[string]string{"/v1/embeddings": `{"input":"a"}`, "/v1/rerank": `{"query":"a","documents":["b"]}`, "/embed": `{"inputs":"a"}`} {
			log.Reset()
			w := do(s, "POST", path, body, c.headers...)
			if c.name == "" {
				if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s with %q: %d", path, c.headers, w.Code)
				}
				if msg := errorShape(t, dialectOf(path), w.Body.Bytes()); strings.Contains(msg, "secret") {
					t.Errorf("the refusal tells a key: %s", msg)
				}
			} else if w.Code != 200 || !strings.Contains(log.String(), `"key":"`+c.name+`"`) {
				t.Errorf("%s with %q: %d, log %s", path, c.headers, w.Code, &log)
			}
			if strings.Contains(log.String(), "secret") {
				t.Errorf("the log tells a key: %s", &log)
			}
		}
	}
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/metrics": 200, "/info": 401, "/v1/models": 401, "/nope": 401} {
		if w := do(s, "GET", path, ""); w.Code != want {
			t.Errorf("%s without key: %d, want %d", path, w.Code, want)
		}
	}
}

func TestParseKeys(t *testing.T) {
	for list, want := range map[string]int{"": 0, "  ": 0, "abc": 1, "a:b,c:d , e": 3, "a:b:c": 1} {
		if keys, err := ParseKeys(list); err != nil || len(keys) != want {
			t.Errorf("%q: %v, %v", list, keys, err)
		}
	}
	for list, words := range map[string][]string{
		"a:,b": {"entry 1", "empty"}, "a,,b": {"entry 2", "empty"}, ":x": {"entry 1", "name"}, "a:s1,a:s2": {"entry 2", "name of entry 1"},
		"a:top-secret,b:top-secret": {"entry 2", "same key as entry 1"}, "a:top secret": {"entry 1", "header"}, "a:é,b:": {"entry 1", "entry 2"},
	} {
		_, err := ParseKeys(list)
		if err == nil {
			t.Errorf("%q passed", list)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %v, %q was expected and no key", list, err, w)
			}
		}
	}
}

// Validate reports all that is wrong at once, under the names that the settings have.
func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	bad := DefaultConfig()
	bad.MaxBodyBytes, bad.MaxItems, bad.MaxDocuments, bad.MaxTokens, bad.BodyTimeout, bad.Keys = 0, -1, 0, -5, 0, []Key{{"a", ""}}
	_, err := New(bad, quiet())
	if err == nil {
		t.Fatal("New took a bad config")
	}
	for _, word := range []string{"RAGATE_MAX_BODY_BYTES", "RAGATE_MAX_ITEMS", "RAGATE_MAX_DOCUMENTS", "RAGATE_MAX_TOKENS", "BodyTimeout", "RAGATE_API_KEY", "-1", "-5"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %v", word, err)
		}
	}
}

func TestRequestID(t *testing.T) {
	s, _, _ := stubServer(nil)
	for _, path := range []string{"/embed", "/nope", "/health"} {
		for given, echoed := range map[string]bool{
			"abc-123": true, "00-4bf92f3577b34da6a3ce929d0e0e4736-01": true, strings.Repeat("x", maxRequestIDSize): true,
			"": false, "a b": false, "a\tb": false, "é": false, strings.Repeat("x", maxRequestIDSize+1): false,
		} {
			w := do(s, "POST", path, `{"inputs":"a"}`, "X-Request-Id", given)
			got := w.Header().Get("X-Request-Id")
			if echoed && got != given || !echoed && (got == given || !visibleASCII(got) || len(got) != 36) {
				t.Errorf("%s with id %q: %q", path, given, got)
			}
		}
	}
	if a, b := newID(), newID(); a == b {
		t.Error("two ids are equal")
	}
}

// One line a request, with what it took, and never a text of it.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	s, e, r := stubServer(nil)
	s.log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e.before, r.before = failOnCommand, failOnCommand
	const secret = "the-private-text"
	for _, c := range []struct {
		method, path, body string
		level              string
		want               map[string]any
	}{
		{"POST", "/v1/embeddings", `{"input":["` + secret + `","b"],"user":"` + secret + `"}`, "INFO",
			map[string]any{"route": "/v1/embeddings", "status": 200.0, "model": "stub/embedder", "items": 2.0, "tokens": 6.0, "items_cut": 0.0, "queue_ms": 2.0}},
		{"POST", "/rerank", `{"query":"` + secret + `","texts":["` + secret + `"]}`, "INFO", map[string]any{"route": "/rerank", "items": 1.0}},
		{"POST", "/v1/rerank", `{"query":"` + secret + `","documents":["` + secret + `",1]}`, "INFO",
			map[string]any{"status": 400.0, "refused": "invalid_field"}},
		{"POST", "/embed", `{"inputs":"` + secret, "INFO", map[string]any{"status": 400.0, "refused": "invalid_body", "bytes_in": 27.0}},
		{"POST", "/embed", `{"inputs":["` + secret + `","!overloaded"]}`, "WARN", map[string]any{"status": 429.0, "refused": "queue_full"}},
		{"POST", "/embed", `{"inputs":["` + secret + `","!row"]}`, "ERROR", map[string]any{"status": 500.0, "cause": "item 1: the session failed"}},
		{"POST", "/embed", `{"inputs":["` + secret + `","!broken"]}`, "ERROR", map[string]any{"status": 500.0, "cause": "a secret of the inside"}},
		{"POST", "/" + secret, `{}`, "INFO", map[string]any{"route": "unmatched", "status": 404.0}},
		{"GET", "/health", "", "DEBUG", map[string]any{"route": "/health", "status": 200.0}},
	} {
		log.Reset()
		do(s, c.method, c.path, c.body, "X-Request-Id", "id-7")
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Fatalf("%s: %d lines: %s", c.path, n, &log)
		}
		var line map[string]any
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["level"] != c.level || line["request_id"] != "id-7" || line["method"] != c.method {
			t.Errorf("%s: %s", c.path, &log)
		}
		for k, v := range c.want {
			if line[k] != v {
				t.Errorf("%s: %s is %v, want %v", c.path, k, line[k], v)
			}
		}
		if strings.Contains(log.String(), secret) && c.path != "/"+secret {
			t.Errorf("%s: the log holds the text: %s", c.path, &log)
		}
	}
	log.Reset()
	do(s, "POST", "/embed", `{"inputs":"!panic"}`)
	if !strings.Contains(log.String(), "told to") || !strings.Contains(log.String(), "goroutine") {
		t.Errorf("a panic's stack is not in the log: %s", &log)
	}
}

func TestMetrics(t *testing.T) {
	s, e, r := stubServer(nil)
	e.before, r.before = failOnCommand, failOnCommand
	do(s, "POST", "/v1/embeddings", `{"input":["a","`+strings.Repeat("b ", 600)+`"]}`)
	do(s, "POST", "/v1/rerank", `{"query":"q","documents":["a","b","c"]}`)
	do(s, "POST", "/embed", `{"inputs":"!overloaded"}`)
	do(s, "POST", "/embed", `{}`)
	do(s, "BREW", "/some/unknown/path", "")
	do(s, "PUT", "/embed", "{}")
	s.Observer().BatchDone(inference.BatchStats{Model: "stub/reranker", Kind: inference.KindReranker, Rows: 6, Tokens: 500, PaddedTokens: 640,
		QueueWait: 20 * time.Millisecond, Inference: 90 * time.Millisecond, Failed: 1})
	s.Observer().BatchDone(inference.BatchStats{Model: "stub/embedder", Lane: inference.LaneInteractive, Rows: 1, Tokens: 9, PaddedTokens: 16})
	text := scrape(t, s)
	for _, line := range []string{
		`ragate_http_requests_total{method="POST",route="/v1/embeddings",status="200"} 1`,
		`ragate_http_requests_total{method="POST",route="/embed",status="429"} 1`,
		`ragate_http_requests_total{method="POST",route="/embed",status="422"} 1`,
		`ragate_http_requests_total{method="other",route="unmatched",status="404"} 1`,
		`ragate_http_requests_total{method="PUT",route="/embed",status="405"} 1`,
		`ragate_http_request_duration_seconds_count{route="/v1/rerank"} 1`,
		`ragate_http_requests_in_flight 1`, // the scrape
		`ragate_refusals_total{reason="queue_full"} 1`,
		`ragate_refusals_total{reason="invalid_field"} 1`,
		`ragate_items_total{model="stub/embedder"} 2`,
		`ragate_items_total{model="stub/reranker"} 3`,
		`ragate_tokens_total{model="stub/embedder"} 515`,
		`ragate_truncated_items_total{model="stub/embedder"} 1`,
		`ragate_batch_rows_sum{model="stub/reranker"} 6`,
		`ragate_batch_tokens_total{model="stub/reranker"} 500`,
		`ragate_batch_padding_tokens_total{model="stub/reranker"} 140`,
		`ragate_batch_failed_rows_total{model="stub/reranker"} 1`,
		`ragate_queue_wait_seconds_sum{lane="bulk",model="stub/reranker"} 0.02`,
		`ragate_queue_wait_seconds_count{lane="interactive",model="stub/embedder"} 1`,
		`ragate_inference_seconds_sum{model="stub/reranker"} 0.09`,
		`ragate_queue_tokens 7`, `ragate_queue_rows 3`, `ragate_queue_max_tokens 262144`, `ragate_tokens_per_second 1000`, `ragate_ready 1`,
		`ragate_model_info{dtype="int8",kind="reranker",model="stub/reranker",precision="int8",provider="cpu",revision="",sha256="bb22"} 1`,
		`ragate_model_max_tokens{model="stub/embedder"} 512`,
		`ragate_build_info{goversion="` + runtime.Version() + `",version="dev"} 1`,
		`process_resident_memory_bytes `, `go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%s is not there", line)
		}
	}
	if t.Failed() {
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "ragate_") && !strings.Contains(line, "_bucket") {
				t.Log(line)
			}
		}
	}
	s.Drain()
	if !strings.Contains(scrape(t, s), "\nragate_ready 0") {
		t.Error("a draining server says that it is ready")
	}
}

// Two servers share nothing, as registries and routers are their own.
func TestTwoServers(t *testing.T) {
	a, _, _ := stubServer(nil)
	b, _, _ := stubServer(nil)
	do(a, "POST", "/embed", `{"inputs":"a"}`)
	if strings.Contains(scrape(t, b), `route="/embed"`) {
		t.Error("a request to one server is counted by the other")
	}
}

// /health answers while every worker is busy and all models hang.
func TestHealthNeverWaits(t *testing.T) {
	s, e, _ := stubServer(nil)
	release := make(chan struct{})
	e.before = func(context.Context, []string) (error, bool) { <-release; return nil, false }
	var wg sync.WaitGroup
	for range 50 {
		wg.Add(1)
		go func() { defer wg.Done(); do(s, "POST", "/embed", `{"inputs":"a"}`) }()
	}
	for range 20 {
		within(t, "/health", func() {
			for _, path := range []string{"/health", "/ready", "/metrics", "/info", "/v1/models"} {
				if w := do(s, "GET", path, ""); w.Code != 200 {
					t.Errorf("%s: %d", path, w.Code)
				}
			}
		})
	}
	close(release)
	wg.Wait()
}

// A long token list is streamed and still one JSON document; the answer of a model that dies in its middle is broken off.
func TestTokenizeStreams(t *testing.T) {
	s, _, _ := stubServer(nil)
	addr := listen(t, s)
	body := `{"inputs":["` + strings.Repeat("word ", 20000) + `","b"]}`
	resp, err := http.Post("http://"+addr+"/tokenize", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var lists [][]struct{ ID, Start, Stop int }
	if err := json.NewDecoder(resp.Body).Decode(&lists); err != nil {
		t.Fatal(err)
	}
	if len(lists) != 2 || len(lists[0]) != 20002 || lists[0][20000].Stop != 99999 {
		t.Errorf("%d lists, the first of %d tokens", len(lists), len(lists[0]))
	}
	if resp.ContentLength != -1 {
		t.Errorf("the list was held whole: Content-Length %d", resp.ContentLength)
	}
}

// The answers of 16 clients at once are those of one.
func TestConcurrentAnswersAreTheirOwn(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) { c.Keys = []Key{{"a", "k"}} })
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range 40 {
				text := fmt.Sprintf("client %d request %d", c, n)
				for path, body := range map[string]string{
					"/v2/rerank": `{"query":"q","documents":["` + text + `"],"return_documents":true}`,
					"/v2/embed":  `{"texts":["` + text + `"]}`,
				} {
					req, _ := http.NewRequest("POST", srv.URL+path, strings.NewReader(body))
					req.Header.Set("Authorization", "Bearer k")
					req.Header.Set("X-Request-Id", fmt.Sprintf("%d-%d", c, n))
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					b, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != 200 || !bytes.Contains(b, []byte(`"`+text+`"`)) || resp.Header.Get("X-Request-Id") != req.Header.Get("X-Request-Id") {
						t.Errorf("%s %q: %d %s", path, text, resp.StatusCode, b)
					}
				}
			}
		}()
	}
	wg.Wait()
}

// The deadline for a body ends with the body: neither long work nor a quiet connection afterwards is cut by it.
func TestBodyTimeoutEndsWithTheBody(t *testing.T) {
	s, e, _ := stubServer(func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	e.before = func(ctx context.Context, _ []string) (error, bool) {
		select {
		case <-ctx.Done():
			return ctx.Err(), true
		case <-time.After(250 * time.Millisecond):
			return nil, false
		}
	}
	addr := listen(t, s)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for round := range 2 {
		resp, err := client.Post("http://"+addr+"/embed", "application/json", strings.NewReader(`{"inputs":"a"}`))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("round %d: %d", round, resp.StatusCode)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// What a rerank of 10 documents costs outside the model: routing, decoding, ordering, encoding, log and metrics.
func BenchmarkRerankRequest(b *testing.B) {
	s, _, r := stubServer(nil)
	r.logits = make([]float32, 10)
	doc := strings.Repeat("The contract may be ended with one month of notice. ", 10)
	body := `{"query":"how can I end the contract","documents":["` + strings.Join([]string{doc, doc, doc, doc, doc, doc, doc, doc, doc, doc}, `","`) + `"],"top_n":5}`
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if w := do(s, "POST", "/v1/rerank", body); w.Code != 200 {
			b.Fatal(w.Code)
		}
		r.ranks = r.ranks[:0]
	}
}
