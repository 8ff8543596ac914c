package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ragate/benchmarks"
)

// Clients wait as long as they are told to, and every try is counted as what it was.
func TestRetriesAreCounted(t *testing.T) {
	var mu sync.Mutex
	last := map[string]time.Time{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+floodKey {
			t.Errorf("%v, %v", err, r.Header)
		}
		mu.Lock()
		defer mu.Unlock()
		before, again := last[string(body)]
		last[string(body)] = time.Now()
		switch {
		case again && time.Since(before) < time.Second:
			t.Errorf("%s came back after %v", body, time.Since(before))
		case !again && strings.HasPrefix(string(body), "late"):
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.HasPrefix(string(body), "never"):
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.HasPrefix(string(body), "lost"):
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			io.WriteString(w, "item item")
		}
	}))
	defer s.Close()
	b := &bench{url: s.URL, seed: 1, client: s.Client()}
	ask := func(names ...string) []benchmarks.Request {
		var out []benchmarks.Request
		for _, n := range names {
			out = append(out, benchmarks.Request{Path: "/x", Body: []byte(n), Items: 2, Mark: []byte("item"), Tokens: 7})
		}
		return out
	}
	got, err := b.open(t.Context(), stream{key: floodKey, rate: 1000, tries: 2, span: time.Minute}, ask("a", "late1", "late2", "never"))
	if err != nil {
		t.Fatal(err)
	}
	if got.came != 4 || got.refused != 4 || got.retries != 3 || got.redeemed != 2 || len(got.answers) != 3 || got.longest != time.Second {
		t.Errorf("%+v", got)
	}
	if v := got.tokensBetween(0, 10*time.Second); v != 2.1 {
		t.Errorf("%v tokens a second, want 21 in ten", v)
	}
	if got.took(0.01) >= 1000 || got.took(1) < 1000 {
		t.Errorf("times from %v to %v ms: two of three waited a second", got.took(0.01), got.took(1))
	}
	if _, err := b.open(t.Context(), stream{key: floodKey, rate: 1000, tries: 2, span: time.Minute}, ask("lost")); err == nil || !strings.Contains(err.Error(), "without Retry-After") {
		t.Errorf("a refusal that says nothing of time: %v", err)
	}
	wrong := ask("b")
	wrong[0].Items = 3
	if _, err := b.open(t.Context(), stream{key: floodKey, rate: 1000, tries: 2, span: time.Minute}, wrong); err == nil {
		t.Error("an answer that lacks an item was taken")
	}
}
