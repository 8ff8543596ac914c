//go:build redis

package e2e

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestSharedCache: what one server computed the other answers; with Redis gone both go on, and say so.
func TestSharedCache(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	redis := exec.Command(os.Getenv("REDIS_SERVER"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--requirepass", "hidden-word")
	redis.Dir = t.TempDir()
	if err := redis.Start(); err != nil {
		t.Fatalf("%v: run make test-cache, which names the program in REDIS_SERVER", err)
	}
	stop := func() {
		if redis != nil {
			redis.Process.Kill()
			redis.Wait()
			redis = nil
		}
	}
	t.Cleanup(stop)

	// A busy machine may be slow: how long a look-up may take is not what this is about.
	env := environment(t, store(t), "RAGATE_SCORE_CACHE=redis://:hidden-word@"+addr+"/1")
	args := []string{"--precision", "int8", "--cache-timeout", "5s"}
	one, two := start(t, env, args...), start(t, env, args...)
	for _, s := range []*server{one, two} {
		s.line("the shared cache is in use")
	}
	written := `ragate_cache_redis_writes_total{result="written"}`
	answers := make([]string, len(cacheRequests))
	for i, q := range cacheRequests {
		answers[i] = lasting(one.ask(q.path, q.body))
	}
	for end := time.Now().Add(patience); one.series(written) != one.series(lookups("score", "miss"))-one.series(lookups("score", "joined"))+
		one.series(lookups("embedding", "miss"))-one.series(lookups("embedding", "joined")); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("only %v values were written", one.series(written))
		}
	}
	before := two.ran()
	for i, q := range cacheRequests {
		if got := lasting(two.ask(q.path, q.body)); got != answers[i] {
			t.Errorf("%s %d: the second server says\n%s\nand the first\n%s", q.path, i, got, answers[i])
		}
	}
	if got := two.ran() - before; got != 0 {
		t.Errorf("%v rows ran on the second server", got)
	}
	if two.series(lookups("score", "shared")) == 0 || two.series(lookups("embedding", "shared")) == 0 {
		t.Error("nothing came from Redis")
	}

	stop()
	for i := 0; two.series("ragate_cache_redis_up") == 1; i++ {
		r := two.ask("/v1/rerank", object{"query": "without redis", "documents": []string{strings.Repeat("x", i+1)}})
		if r.status != 200 {
			t.Fatal(r)
		}
		if i > 100 {
			t.Fatal("after 100 requests Redis is still said to be up")
		}
	}
	for i, q := range cacheRequests { // what is in process stays
		if got := lasting(two.ask(q.path, q.body)); got != answers[i] {
			t.Errorf("%s %d: without Redis it says\n%s", q.path, i, got)
		}
	}
	info, err := decode[struct {
		Cache struct {
			Redis struct {
				Address   string
				Up        bool
				LastError string `json:"last_error"`
			}
		}
	}](two.ask("/info", nil))
	if r := info.Cache.Redis; err != nil || r.Up || r.Address != addr || r.LastError == "" {
		t.Errorf("/info says %+v (%v)", info.Cache.Redis, err)
	}
	if strings.Contains(two.log()+one.log(), "hidden-word") {
		t.Error("the password is in the log")
	}
}
