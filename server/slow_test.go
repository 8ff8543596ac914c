package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// settled waits until nothing of the requests is left: no work, no request in flight, no memory charged, no slot taken, and no goroutine beyond before.
func settled(t *testing.T, s *Server, goroutines int) {
	t.Helper()
	state := func() string {
		s.life.mu.Lock()
		work := s.life.work
		s.life.mu.Unlock()
		inFlight := "unknown"
		for line := range strings.Lines(scrape(t, s)) {
			if v, ok := strings.CutPrefix(line, "ragate_http_requests_in_flight "); ok {
				inFlight = strings.TrimSpace(v)
			}
		}
		return fmt.Sprintf("work %d, in flight %s beside the scrape's own 1, charged %d, tokenizing %d, goroutines %v (%d before)",
			work, inFlight, s.memory.inUse(), len(s.tokenizing), runtime.NumGoroutine() <= goroutines, goroutines)
	}
	want := fmt.Sprintf("work 0, in flight 1 beside the scrape's own 1, charged 0, tokenizing 0, goroutines true (%d before)", goroutines)
	for end := time.Now().Add(2 * time.Minute); state() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("something is left: %s\n%s", state(), buf[:runtime.Stack(buf, true)])
		}
	}
}

// Clients that send a byte now and then are cut off when their time is up, however long they go on.
func TestClientsThatDrip(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) {
		c.HeaderTimeout, c.BodyTimeout, c.IdleTimeout = 400*time.Millisecond, 400*time.Millisecond, 400*time.Millisecond
	})
	addr := listen(t, s)
	before := runtime.NumGoroutine()
	head := "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	var wg sync.WaitGroup
	for _, c := range []struct {
		name, at, drip string
		want           int // 0: closed without an answer
	}{
		{"a request line", "", "POST /", 0},
		{"headers", head, "X-A: b\r\n", 0},
		{"a body", head + "Content-Length: 100000\r\n\r\n", " ", 408},
		{"chunks", head + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 408},
		{"half a chunk's size", head + "Transfer-Encoding: chunked\r\n\r\n1", "0", 0}, // 408, or 400 once the size is beyond what a chunk may have
		{"a body that is refused already", "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", " ", 404},
		{"a second request", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "G", 200},
	} {
		wg.Go(func() {
			conn := dial(t, addr)
			conn.write(c.at)
			stop := make(chan struct{})
			var dripping sync.WaitGroup
			dripping.Go(func() {
				for {
					for _, b := range []byte(c.drip) {
						if _, err := conn.conn.Write([]byte{b}); err != nil {
							return
						}
						select {
						case <-stop:
							return
						case <-time.After(20 * time.Millisecond):
						}
					}
				}
			})
			began := time.Now()
			status, text, _ := conn.read()
			if c.want != 0 && status != c.want {
				t.Errorf("%s, a byte at a time: %d %.200s, want %d", c.name, status, text, c.want)
			}
			_, _ = io.Copy(io.Discard, conn.conn) // until the server closes: conn has a deadline of its own, which is longer
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%s: the connection was open for %v", c.name, took)
			}
			close(stop)
			dripping.Wait()
			conn.conn.Close()
		})
	}
	within(t, "clients that drip", wg.Wait)
	settled(t, s, before)
	if w := do(s, "POST", "/embed", `{"inputs":"a"}`); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// Clients that do not read, or a little at a time, are cut off too: what they would not take is given up, with its memory and its slot.
func TestClientsThatDoNotRead(t *testing.T) {
	const wait = 500 * time.Millisecond
	s, e, r := stubServer(func(c *Config) { c.WriteTimeout, c.MaxInflightBytes = wait, 4<<30 }) // all are let in at once
	e.info.Dimensions = 4096
	e.vector = make([]float32, 4096)
	for i := range e.vector {
		e.vector[i] = 0.123456789
	}
	s.SetReady(Engine{Models: []Model{e, r}})
	addr := listen(t, s)
	before := runtime.NumGoroutine()
	list := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") }
	// Each answer is tens of MB, more than sockets buffer.
	bodies := map[string]string{
		"/v1/embeddings": `{"input":[` + list(1500) + `]}`, "/embed": `{"inputs":[` + list(1500) + `]}`, "/v2/embed": `{"texts":[` + list(1500) + `],"embedding_types":["base64","float"]}`,
		"/tokenize": `{"inputs":"` + strings.Repeat("a ", 400_000) + `"}`,
	}
	for round, reading := range []time.Duration{0, 20 * time.Millisecond} { // not at all; and faster than a piece in WriteTimeout, but slower than a unit
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for path, body := range bodies {
			for range tokenizeSlots + 1 {
				clients.Go(func() {
					conn, err := net.Dial("tcp", addr)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
					_, _ = io.WriteString(conn, post(path, body, jsonType))
					for buf := make([]byte, 8192); reading > 0; time.Sleep(reading) {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := conn.Read(buf); err != nil {
							return
						}
					}
					<-stop
				})
			}
		}
		// The client's end proves nothing: what lies in the system's buffers goes on to it. So the server says when it has given up.
		within(t, "clients that do not read", func() {
			for path := range bodies {
				line := fmt.Sprintf(`ragate_http_requests_total{method="POST",route="%s",status="499"} %d`, path, (round+1)*(tokenizeSlots+1))
				for !strings.Contains(scrape(t, s), line) {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
		close(stop)
		clients.Wait()
		settled(t, s, before)
	}
	if w := do(s, "POST", "/tokenize", `{"inputs":"a"}`); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// A thousand connections that do nothing, and a thousand that have done something, are in nobody's way and leave nothing.
func TestIdleConnections(t *testing.T) {
	const n = 1000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < 5*n { // both ends of each are this process's; Go raises the soft limit to the hard one by itself
		t.Fatalf("this process may open %d files, %d are needed: raise the hard limit (ulimit -Hn)", limit.Cur, 5*n)
	}
	s, _, _ := stubServer(nil)
	addr := listen(t, s)
	before := runtime.NumGoroutine()
	conns := make([]*wire, 2*n)
	for i := range conns {
		conns[i] = dial(t, addr)
		if i%2 == 1 {
			conns[i].write(post("/embed", `{"inputs":"a"}`, jsonType))
			if status, text, kept := conns[i].read(); status != 200 || !kept {
				t.Fatalf("connection %d: %d %s, kept %v", i, status, text, kept)
			}
		}
	}
	if w := do(s, "POST", "/v1/rerank", `{"query":"a","documents":["b"]}`); w.Code != 200 {
		t.Errorf("beside them: %d", w.Code)
	}
	fresh := dial(t, addr)
	fresh.write(post("/embed", `{"inputs":"a"}`, jsonType))
	if status, text, _ := fresh.read(); status != 200 {
		t.Errorf("a new connection beside them: %d %s", status, text)
	}
	for i := 1; i < len(conns); i += 100 { // those kept alive still serve
		conns[i].write(post("/embed", `{"inputs":"b"}`, jsonType))
		if status, text, _ := conns[i].read(); status != 200 {
			t.Errorf("connection %d, later: %d %s", i, status, text)
		}
	}
	fresh.conn.Close()
	for _, c := range conns {
		c.conn.Close()
	}
	settled(t, s, before)
}

// Clients leave in every phase of a request; what they had is free afterwards.
func TestClientsThatLeaveInEveryPhase(t *testing.T) {
	s, e, r, scorer := gateServer(t, nil)
	arrived := make(chan struct{}, 1000)
	wait := func(ctx context.Context, texts []string) (error, bool) {
		if !strings.HasPrefix(texts[0], "wait") {
			return nil, false
		}
		arrived <- struct{}{}
		<-ctx.Done() // in the queue, or in the native run's wake
		return fmt.Errorf("waiting: %w", context.Cause(ctx)), true
	}
	e.before, r.before, scorer.stubModel.before = wait, wait, wait
	addr := listen(t, s)
	before := runtime.NumGoroutine()
	bodies := map[string]string{
		"/v1/embeddings": `{"input":"wait"}`, "/v1/rerank": `{"query":"a","documents":["wait"]}`, "/v2/embed": `{"texts":["wait"]}`, "/embed": `{"inputs":"wait"}`,
		"/rerank": `{"query":"a","texts":["wait"]}`, "/similarity": `{"inputs":{"source_sentence":"wait","sentences":["b"]}}`,
		queryRoute: `{"query":"wait for it, is it there","budget_ms":60000}`, chunksRoute: `{"query":"a","chunks":[{"text":"wait"}],"budget_ms":60000}`,
	}
	leave := func(path, sent string, until func()) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, sent)
		until()
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset, as of a process that died
		conn.Close()
	}
	for path, body := range bodies {
		whole := post(path, body, jsonType)
		within(t, path, func() {
			for cut := 1; cut < len(whole); cut += 7 { // in the request line, in the headers, in the body
				leave(path, whole[:cut], func() {})
			}
			large := post(path, insert(body, `"x":"`+strings.Repeat("a", 1<<20)+`"`), jsonType) // when memory is charged
			leave(path, large[:len(large)/2], func() { time.Sleep(5 * time.Millisecond) })
			for range 5 {
				leave(path, whole, func() { <-arrived })
			}
		})
	}
	for range 20 {
		leave("/tokenize", post("/tokenize", `{"inputs":"`+strings.Repeat("a ", 100_000)+`"}`, jsonType), func() { time.Sleep(2 * time.Millisecond) })
	}
	settled(t, s, before)
	text := scrape(t, s)
	for path := range bodies {
		if !strings.Contains(text, `ragate_http_requests_total{method="POST",route="`+path+`",status="499"}`) {
			t.Errorf("%s: nothing counts as left", path)
		}
	}
	for _, other := range []string{"500", "400", "408"} {
		if strings.Contains(text, `status="`+other+`"`) {
			t.Errorf("a client that left counts as %s:\n%s", other, text)
		}
	}
	for path, good := range goodBodies {
		if w := do(s, http.MethodPost, path, good.body); w.Code != 200 {
			t.Errorf("%s afterwards: %d %s", path, w.Code, w.Body)
		}
	}
}
