package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	const kb = 1 << 10
	b := budget{limit: 8000 * kb}
	take := func(client string, holds, n int64, want bool) {
		t.Helper()
		if got := b.take(client, holds, n); got != want {
			t.Fatalf("%d more for %s beside %d of the request's own, %d held: %v", n, client, holds, b.held, got)
		}
	}
	take("a", 0, 6000*kb, true)           // 3/4 and more, since it is alone
	take("b", 0, 1001*kb, false)          // large: an eighth is kept for small ones
	take("b", 0, 256*kb, true)            // small: may have that
	take("b", 256*kb, 1001*kb, false)     // no longer small
	take("b", 0, 7000*kb, false)          // more than there is
	b.give("a", 6000*kb)                  // all
	b.give("b", 256*kb)                   //
	take("a", 0, 20_000*kb, true)         // alone, whatever its size
	take("a", 20_000*kb, 20_000*kb, true) // still alone
	take("b", 0, 1, false)                // nothing is left, even for the smallest
	b.give("a", 40_000*kb)                // and comes back
	if len(b.of) != 0 {
		t.Errorf("clients that hold nothing are remembered: %v", b.of)
	}

	// A client that floods leaves a quarter of what large requests may have; the next takes 3/4 of the rest.
	fill := func(client string) (total int64) {
		for b.take(client, 0, 500*kb) {
			total += 500 * kb
		}
		return total
	}
	if got := fill("a"); got != 5000*kb { // of 7000: 3/4 are 5250
		t.Errorf("a client that floods holds %d KiB", got/kb)
	}
	if got := fill("b"); got != 1500*kb {
		t.Errorf("a second client beside it holds %d KiB", got/kb)
	}
	take("c", 0, 300*kb, true)
	b.give("a", 5000*kb)
	b.give("b", 1500*kb)
	b.give("c", 300*kb)
	for range 8000 * kb / smallBytes {
		take("a", 0, smallBytes, true)
	}
	take("a", 0, smallBytes, false)
	if b.inUse() != b.limit/smallBytes*smallBytes {
		t.Errorf("%d held", b.inUse())
	}
}

// filler is a body of n bytes that costs its sender no memory.
func filler(prefix, suffix string, n int64) io.Reader {
	return io.MultiReader(strings.NewReader(prefix), io.LimitReader(letters{}, n-int64(len(prefix)+len(suffix))), strings.NewReader(suffix))
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "abcdefg "[i%8]
	}
	return len(p), nil
}

// 200 clients send 8 MiB each at the same time, which would be 1.6 GB, or 3.2 GB with the texts read from them. The server holds no more
// than its budget, refuses the rest with advice, and goes on answering small requests.
func TestMemoryOfManyLargeBodies(t *testing.T) {
	const clients, size, limit = 200, 8 << 20, 96 << 20
	s, e, _ := stubServer(func(c *Config) { c.MaxBodyBytes, c.MaxInflightBytes, c.BodyTimeout = size, limit, 10*time.Minute })
	var held sync.WaitGroup // clients whose request is either refused or with the model
	held.Add(clients)
	release := make(chan struct{})
	e.before = func(ctx context.Context, texts []string) (error, bool) {
		if len(texts[0]) < 1000 {
			return nil, false
		}
		held.Done()
		<-release
		return context.DeadlineExceeded, true
	}
	addr := listen(t, s)
	goroutines := runtime.NumGoroutine()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 2 * time.Minute}

	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop := make(chan struct{})
	var sampler, senders sync.WaitGroup
	sampler.Go(func() {
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var refused, admitted atomic.Int64
	for i := range clients {
		senders.Go(func() {
			q, err := http.NewRequest("POST", "http://"+addr+"/embed", filler(`{"inputs":"`, `"}`, size))
			if err != nil {
				t.Error(err)
				return
			}
			q.Header.Set("Content-Type", "application/json")
			if i%2 == 0 {
				q.ContentLength = size
			}
			p, err := client.Do(q)
			if err != nil { // on a slow machine it was refused, and then not read on for as long as it took to send
				held.Done()
				return
			}
			defer p.Body.Close()
			b, _ := io.ReadAll(p.Body)
			switch p.StatusCode {
			case 500: // the stub was released
				admitted.Add(1)
			case 429:
				refused.Add(1)
				msg := errorShape(t, dialectTEI, b)
				for _, word := range []string{fmt.Sprint(limit), "RAGATE_MAX_INFLIGHT_BYTES", "--max-inflight-bytes"} {
					if !strings.Contains(msg, word) {
						t.Errorf("the refusal lacks %q: %s", word, msg)
					}
				}
				if p.Header.Get("Retry-After") != "2" {
					t.Errorf("Retry-After is %q", p.Header.Get("Retry-After"))
				}
				held.Done()
			default:
				t.Errorf("client %d: %d %.200s", i, p.StatusCode, b)
			}
		})
	}
	within(t, "200 uploads", held.Wait)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&now)
	for range 20 {
		if w := do(s, "POST", "/embed", `{"inputs":"a small one"}`); w.Code != 200 {
			t.Fatalf("a small request beside them: %d %s", w.Code, w.Body)
		}
	}
	if n := s.memory.inUse(); n > limit || n < 2*size {
		t.Errorf("%d bytes are charged, of %d", n, limit)
	}
	close(release)
	within(t, "the answers", senders.Wait)
	close(stop)
	sampler.Wait()
	live, most := int64(now.HeapAlloc)-int64(before.HeapAlloc), int64(peak.Load())-int64(before.HeapInuse)
	t.Logf("%d admitted, %d refused; live heap grew by %d MB with a budget of %d MB, the heap with its garbage by at most %d MB", admitted.Load(), refused.Load(), live>>20, limit>>20, most>>20)
	// Beside the budget: 4 KiB of buffers and a stack a connection, on both sides.
	if live > limit+clients*128<<10 {
		t.Errorf("live heap grew by %d MB, the budget is %d MB", live>>20, limit>>20)
	}
	// GOGC lets garbage grow to as much as is live.
	if most > 3*limit {
		t.Errorf("the heap grew by %d MB, the budget is %d MB", most>>20, limit>>20)
	}
	transport.CloseIdleConnections()
	settled(t, s, goroutines)
	var full, all int64
	for line := range strings.Lines(scrape(t, s)) {
		var status, n int64
		if _, err := fmt.Sscanf(line, `ragate_http_requests_total{method="POST",route="/embed",status="%d"} %d`, &status, &n); err == nil {
			all += n
		}
		_, _ = fmt.Sscanf(line, `ragate_refusals_total{reason="memory_full"} %d`, &full)
	}
	if n := admitted.Load(); n < 3 || full < clients/2 || all != clients+20 {
		t.Errorf("of %d clients %d were admitted and %d refused; with 20 small ones there were %d requests", clients, n, full, all)
	}
	if refused.Load() == 0 {
		t.Error("nobody saw the refusal")
	}
	if n := s.memory.inUse(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}

// Vectors are charged before they are computed, and given back whatever becomes of the request.
func TestMemoryOfVectors(t *testing.T) {
	s, e, _ := stubServer(func(c *Config) { c.MaxInflightBytes = 1 << 20 })
	e.info.Dimensions = 1024 // 512 texts are 2 MiB
	s.SetReady(Engine{Models: []Model{e}})
	e.vector = make([]float32, 1024)
	e.vector[0] = 1
	body := `{"input":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 512), ",") + `]}`
	if w := do(s, "POST", "/v1/embeddings", body); w.Code != 200 {
		t.Fatalf("a request that is alone: %d %.200s", w.Code, w.Body)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	e.before = func(_ context.Context, texts []string) (error, bool) {
		if len(texts) > 1 {
			once.Do(func() { close(entered) })
			<-release
			return context.DeadlineExceeded, true
		}
		return nil, false
	}
	done := make(chan int, 1)
	go func() { done <- do(s, "POST", "/v1/embeddings", body).Code }()
	<-entered
	for path, more := range map[string]string{"/v1/embeddings": body, "/embed": strings.Replace(body, "input", "inputs", 1), "/v2/embed": strings.Replace(body, "input", "texts", 1)} {
		w := do(s, "POST", path, more)
		if msg := errorShape(t, dialectOf(path), w.Body.Bytes()); w.Code != 429 || !strings.Contains(msg, "RAGATE_MAX_INFLIGHT_BYTES") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s beside it: %d %s", path, w.Code, msg)
		}
	}
	close(release)
	if code := <-done; code != 500 {
		t.Errorf("the model failed, and it is %d", code)
	}
	if n := s.memory.inUse(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
	if w := do(s, "POST", "/v1/embeddings", `{"input":"a"}`); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// A large answer is the same to the byte as a small one put together, in every shape that is sent in pieces.
func TestLargeAnswersAreSentInPieces(t *testing.T) {
	s, e, _ := stubServer(nil)
	e.info.Dimensions = 384
	s.SetReady(Engine{Models: []Model{e, stubReranker()}})
	addr := listen(t, s)
	texts := make([]string, 1000)
	for i := range texts {
		texts[i] = fmt.Sprintf("text %d \"quoted\" \u00e9 \u0001", i)
	}
	list, _ := json.Marshal(texts)
	for path, body := range map[string]string{
		"/v1/embeddings": `{"input":%s}`, "/embed": `{"inputs":%s}`, "/v1/embed": `{"texts":%s}`, "/v2/embed": `{"texts":%s,"embedding_types":["float","base64"]}`,
		"/v1/rerank": `{"query":"text","documents":%s,"return_documents":true}`, "/rerank": `{"query":"text","texts":%s,"return_text":true}`, "/tokenize": `{"inputs":%s}`,
		"/v2/models/embedder/infer": `{"inputs":[{"name":"text","datatype":"BYTES","shape":[1000],"data":%s}]}`,
	} {
		body = fmt.Sprintf(body, list)
		recorded := do(s, "POST", path, body)
		p, err := http.Post("http://"+addr+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(p.Body)
		p.Body.Close()
		if err != nil || p.StatusCode != 200 || !json.Valid(b) {
			t.Errorf("%s: %d, %v, JSON %v", path, p.StatusCode, err, json.Valid(b))
		}
		if len(b) < flushBytes || p.ContentLength >= 0 {
			t.Errorf("%s: %d bytes came with length %d: this tests nothing", path, len(b), p.ContentLength)
		}
		if p.Header.Get("Content-Type") != "application/json" || path != "/tokenize" && p.Header.Get("Server-Timing") == "" {
			t.Errorf("%s: headers %v", path, p.Header)
		}
		if got, want := uuid.ReplaceAllString(string(b), ""), uuid.ReplaceAllString(recorded.Body.String(), ""); got != want {
			t.Errorf("%s: two answers differ", path)
		}
		var n int
		switch path {
		case "/v1/rerank", "/rerank":
			n = strings.Count(string(b), `"index"`)
		case "/tokenize", "/embed":
			var v []json.RawMessage
			_ = json.Unmarshal(b, &v)
			n = len(v)
		case "/v1/embeddings":
			var v struct{ Data []json.RawMessage }
			_ = json.Unmarshal(b, &v)
			n = len(v.Data)
		case "/v2/models/embedder/infer":
			var v struct{ Outputs []struct{ Data []float32 } }
			if _ = json.Unmarshal(b, &v); len(v.Outputs) == 1 {
				n = len(v.Outputs[0].Data) / 384
			}
		default:
			var v struct{ Texts []string }
			_ = json.Unmarshal(b, &v)
			n = len(v.Texts)
			if n > 0 && v.Texts[999] != texts[999] {
				n = -1
			}
		}
		if n != len(texts) {
			t.Errorf("%s: %d items", path, n)
		}
	}
}
