package e2e

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestQueueLimit: a request that does not fit behind another is refused whole, with the time to wait; one alone may be larger.
func TestQueueLimit(t *testing.T) {
	s := start(t, environment(t, store(t), "RAGATE_MAX_QUEUED_TOKENS=600"))
	answer := s.inFlight("/v1/rerank", longRequest(40)) // some 8,000 tokens
	r := s.ask("/v1/embeddings", map[string]any{"input": strings.Repeat("lift ", 700)})
	if r.status != http.StatusTooManyRequests || !bytes.Contains(r.body, []byte("RAGATE_MAX_QUEUED_TOKENS")) {
		t.Errorf("beside a request that fills the queue: %v", r)
	}
	if n, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After is %q", r.header.Get("Retry-After"))
	}
	if a := <-answer; a.err != nil || a.reply.status != http.StatusOK {
		t.Errorf("a request larger than the whole queue: %v, %v", a.reply, a.err)
	}
	if r := s.ask("/v1/embeddings", map[string]any{"input": "lift"}); r.status != http.StatusOK {
		t.Errorf("when the queue is empty again: %v", r)
	}
}

// TestTokenLimitAndKeys: one server with a small token limit and two keys.
func TestTokenLimitAndKeys(t *testing.T) {
	s := start(t, environment(t, store(t), "RAGATE_MAX_TOKENS=32", "RAGATE_API_KEY=desk:first-key, second-key"))
	long := strings.Repeat("lift ", 100)

	for _, key := range []string{"", "wrong", "desk", "first-key, second-key"} {
		s.key = key
		if r := s.ask("/embed", map[string]any{"inputs": "x"}); r.status != http.StatusUnauthorized || bytes.Contains(r.body, []byte("first-key")) {
			t.Errorf("key %q: %v", key, r)
		}
		for _, open := range []string{"/health", "/ready", "/metrics"} {
			if r := s.ask(open, nil); r.status != http.StatusOK {
				t.Errorf("%s with key %q: %d", open, key, r.status)
			}
		}
	}
	for _, key := range []string{"second-key", "first-key"} {
		s.key = key
		if r := s.ask("/embed", map[string]any{"inputs": "x"}); r.status != http.StatusOK {
			t.Errorf("key %q: %v", key, r)
		}
	}

	type answer struct {
		Usage struct {
			Total int `json:"total_tokens"`
		} `json:"usage"`
	}
	for path, body := range map[string]map[string]any{
		"/v1/embeddings": {"input": []string{"short", long}},
		"/v1/rerank":     {"query": "what is lift?", "documents": []string{"short", long}},
	} {
		r := s.ask(path, body)
		got, err := decode[answer](r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		short := map[string]int{"/v1/embeddings": 3, "/v1/rerank": 8}[path] // [CLS] short [SEP]; [CLS] what is lift ? [SEP] short [SEP]
		if got.Usage.Total != short+32 || r.header.Get("X-Ragate-Truncated") != "1" {
			t.Errorf("%s: %d tokens ran, want %d; X-Ragate-Truncated: %q", path, got.Usage.Total, short+32, r.header.Get("X-Ragate-Truncated"))
		}
	}
	if strings.Contains(s.log(), "first-key") || strings.Contains(s.log(), "second-key") {
		t.Error("the log holds a key")
	}
	if !strings.Contains(s.log(), `"desk"`) {
		t.Error("the log does not name the key that was used")
	}
}

// TestTruncateOff: longer texts are refused with the item, its tokens, the limit and the setting; nothing is computed.
func TestTruncateOff(t *testing.T) {
	s := start(t, environment(t, store(t), "RAGATE_TRUNCATE=false"))
	long := strings.Repeat("lift ", 600)
	for path, body := range map[string]map[string]any{
		"/v1/embeddings": {"input": []string{"short", long}},
		"/v1/rerank":     {"query": "what is lift?", "documents": []string{"short", long}},
		"/embed":         {"inputs": []string{"short", long}},
	} {
		r := s.ask(path, body)
		if r.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %v", path, r)
			continue
		}
		for _, part := range []string{"1", "512"} {
			if !bytes.Contains(r.body, []byte(part)) {
				t.Errorf("%s: the refusal lacks %q: %s", path, part, r.body)
			}
		}
		if path != "/embed" && !bytes.Contains(r.body, []byte("RAGATE_TRUNCATE")) {
			t.Errorf("%s: the refusal does not name its setting: %s", path, r.body)
		}
	}
	if r := s.ask("/embed", map[string]any{"inputs": long, "truncate": true}); r.status != http.StatusOK {
		t.Errorf("a request that asks for cutting: %v", r)
	}
	if r := s.ask("/v1/embeddings", map[string]any{"input": strings.Repeat("lift ", 510)}); r.status != http.StatusOK {
		t.Errorf("a text of exactly 512 tokens: %v", r)
	}
}
