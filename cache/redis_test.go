//go:build redis

package cache

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// These tests speak to a real server of their own: REDIS_SERVER names its program (see make test-cache).

// server is a running Redis or Valkey.
type server struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
}

func startRedis(t *testing.T, args ...string) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	s := &server{t: t, addr: addr, args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	program := os.Getenv("REDIS_SERVER")
	if program == "" {
		s.t.Fatal("REDIS_SERVER names no program: run make test-cache")
	}
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(program, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir()}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 500 {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatal("the server does not listen")
}

func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) client(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// patience is long: it catches what hangs, not what is slow.
const patience = time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come to pass: %s", what)
		}
	}
}

func connected(t *testing.T, url string, timeout time.Duration) *asker {
	t.Helper()
	a := &asker{c: open4tests(t, Config{Remote: &Remote{URL: url, Prefix: DefaultPrefix, Timeout: timeout}})}
	eventually(t, "the server is reached", func() bool { return a.c.Stats().Remote.Up })
	return a
}

// generous is a time limit that a busy machine keeps.
const generous = 5 * time.Second

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, i)
	}
	return out
}

func TestRealServerVersion(t *testing.T) {
	s := startRedis(t)
	info, err := s.client(t).Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(info, "\r\n") {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			t.Logf("a real Redis was spoken to: version %s", v)
			return
		}
	}
	t.Fatalf("it tells no version: %q", info)
}

// TestSecondProcessHits: what one computed, the other has.
func TestSecondProcessHits(t *testing.T) {
	s := startRedis(t, "--requirepass", "pass word")
	url := "redis://:pass%20word@" + s.addr + "/3"
	one, two := connected(t, url, generous), connected(t, url, generous)
	texts := names("text ", 300) // several commands' worth
	if err := one.ask(t.Context(), "", texts...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are written", func() bool { return one.c.Stats().Remote.Written == 300 })
	if err := two.ask(t.Context(), "", append(names("text ", 300), "new", "text 7", "new")...); err != nil {
		t.Fatal(err)
	}
	two.check(t, texts...)
	st := two.c.Stats()
	if two.computed.Load() != 1 || st.Kinds[Score].Shared != 300 || st.Kinds[Score].Misses != 3 {
		t.Errorf("%d were computed; %+v", two.computed.Load(), st.Kinds[Score])
	}
}

// TestValuesEnd: what is in Redis has an age at which it goes.
func TestValuesEnd(t *testing.T) {
	s := startRedis(t)
	a := &asker{c: open4tests(t, Config{TTL: time.Minute, Remote: &Remote{URL: "redis://" + s.addr, Prefix: "p:", Timeout: generous}})}
	eventually(t, "up", func() bool { return a.c.Stats().Remote.Up })
	if err := a.ask(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "written", func() bool { return a.c.Stats().Remote.Written == 1 })
	c := s.client(t)
	keys := c.Keys(t.Context(), "p:*").Val()
	if len(keys) != 1 {
		t.Fatalf("the keys are %q", keys)
	}
	if ttl := c.PTTL(t.Context(), keys[0]).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("it has %s left", ttl)
	}
}

// TestGarbageIsAMiss: whatever stands under a key, the answer is right.
func TestGarbageIsAMiss(t *testing.T) {
	s := startRedis(t)
	c := s.client(t)
	a := connected(t, "redis://"+s.addr, generous)
	key := func(text string) string { return DefaultPrefix + string(keysOf(NewScope("test"), text)[0][:]) }
	good := seal(keysOf(NewScope("test"), "other")[0], valueOf("other"))
	texts := []string{"empty", "short", "noise", "of another key", "another version", "list", "long"}
	for text, v := range map[string]string{"empty": "", "short": "\x01", "noise": "not what we write", "of another key": string(good),
		"another version": "\x02" + string(good[1:]), "long": strings.Repeat("x", 1<<20)} {
		if err := c.Set(t.Context(), key(text), v, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.LPush(t.Context(), key("list"), "a").Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.ask(t.Context(), "", texts...); err != nil {
		t.Fatal(err)
	}
	a.check(t, texts...)
	st := a.c.Stats()
	if a.computed.Load() != int64(len(texts)) || st.Remote.Garbage != 6 || st.Kinds[Score].Shared != 0 {
		t.Errorf("computed %d; %+v", a.computed.Load(), st.Remote)
	}
	// They are written over, also the one of another type.
	eventually(t, "written", func() bool { return a.c.Stats().Remote.Written == uint64(len(texts)) })
	b := connected(t, "redis://"+s.addr, generous)
	if err := b.ask(t.Context(), "", texts...); err != nil || b.computed.Load() != 0 {
		t.Errorf("error %v, computed %d", err, b.computed.Load())
	}
}

// TestKilledMidRun: calls go on while the server dies, soon cost nothing for it, and it is used again when it is back.
func TestKilledMidRun(t *testing.T) {
	s := startRedis(t)
	a := connected(t, "redis://"+s.addr, generous)
	var n atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			mine := &asker{c: a.c}
			for {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprint("text ", n.Add(1))
				if err := mine.ask(t.Context(), "", text); err != nil {
					t.Error(err)
					return
				}
				mine.check(t, text)
				time.Sleep(time.Millisecond)
			}
		})
	}
	eventually(t, "some are written", func() bool { return a.c.Stats().Remote.Written > 50 })
	s.kill()
	eventually(t, "the breaker opens", func() bool { return !a.c.Stats().Remote.Up })
	sent := a.c.Stats().Remote.Lookups
	before := n.Load()
	eventually(t, "calls go on", func() bool { return n.Load() > before+100 })
	if again := a.c.Stats().Remote; again.Lookups != sent && !again.Up {
		t.Errorf("%d look-ups were sent to a server that is lost", again.Lookups-sent)
	}
	s.start()
	eventually(t, "it is reached again", func() bool { return a.c.Stats().Remote.Up })
	written := a.c.Stats().Remote.Written
	eventually(t, "and written to", func() bool { return a.c.Stats().Remote.Written > written })
	close(stop)
	wg.Wait()
}

// proxy passes bytes to a server, until it stalls.
func proxy(t *testing.T, to string) (addr string, stall *atomic.Bool) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stall = &atomic.Bool{}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	pass := func(dst, src net.Conn) {
		defer wg.Done()
		defer dst.Close()
		b := make([]byte, 4096)
		for {
			n, err := src.Read(b)
			if err != nil {
				return
			}
			for stall.Load() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if _, err := dst.Write(b[:n]); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			wg.Add(2)
			go pass(out, in)
			go pass(in, out)
		}
	})
	t.Cleanup(func() { cancel(); ln.Close(); wg.Wait() })
	return ln.Addr().String(), stall
}

// TestSlowServer: a server that takes connections and says nothing costs three time limits, and then nothing.
func TestSlowServer(t *testing.T) {
	s := startRedis(t)
	addr, stall := proxy(t, s.addr)
	a := connected(t, "redis://"+addr, 200*time.Millisecond)
	if err := a.ask(t.Context(), "", "warm"); err != nil {
		t.Fatal(err)
	}
	stall.Store(true)
	asked := 0
	for a.c.Stats().Remote.Up {
		text := fmt.Sprint("slow ", asked)
		if err := a.ask(t.Context(), "", text); err != nil {
			t.Fatal(err)
		}
		a.check(t, text)
		if asked++; asked > 10 {
			t.Fatalf("after %d calls the server is still asked", asked)
		}
	}
	st := a.c.Stats().Remote
	if st.Timeouts < failuresToOpen {
		t.Errorf("%d calls, and %+v", asked, st)
	}
	sent := st.Lookups
	for i := range 100 {
		if err := a.ask(t.Context(), "", fmt.Sprint("after ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if st := a.c.Stats().Remote; st.Lookups != sent || st.Skipped < 100 {
		t.Errorf("it is still asked: %+v", st)
	}
	stall.Store(false)
	eventually(t, "it is used again", func() bool { return a.c.Stats().Remote.Up })
}

// TestDeadlineBoundsTheWait: a request with little time left waits for half of it, and that is no mark against the server.
func TestDeadlineBoundsTheWait(t *testing.T) {
	s := startRedis(t)
	addr, stall := proxy(t, s.addr)
	a := connected(t, "redis://"+addr, time.Hour)
	stall.Store(true)
	for i := range 5 {
		computed := false
		err := a.c.Do(t.Context(), Ask{Keys: keysOf(NewScope("d"), fmt.Sprint(i)), Patience: time.Now().Add(100 * time.Millisecond)},
			func(int, []byte) bool { return true }, func(m []int) ([][]byte, error) { computed = true; return make([][]byte, len(m)), nil })
		if err != nil || !computed {
			t.Fatalf("error %v, computed %t", err, computed)
		}
	}
	if st := a.c.Stats().Remote; !st.Up || st.Timeouts != 5 {
		t.Errorf("%+v", st)
	}
}

func TestWrongPassword(t *testing.T) {
	s := startRedis(t, "--requirepass", "right")
	var told atomic.Pointer[string]
	a := &asker{c: open4tests(t, Config{Remote: &Remote{URL: "redis://:wrong-secret@" + s.addr, Prefix: "p:", Timeout: generous, Changed: func(up bool, err error) {
		text := fmt.Sprint(up, " ", err)
		told.Store(&text)
	}}})}
	eventually(t, "it is told", func() bool { return told.Load() != nil })
	if text := *told.Load(); !strings.HasPrefix(text, "false ") || !strings.Contains(text, "WRONGPASS") || strings.Contains(text, "secret") {
		t.Errorf("it is told %q", text)
	}
	if err := a.ask(t.Context(), "", "x", "y"); err != nil {
		t.Fatal(err)
	}
	a.check(t, "x", "y")
	if st := a.c.Stats().Remote; st.Up || st.Lookups != 0 || strings.Contains(st.Address, "secret") || strings.Contains(st.LastErr, "secret") {
		t.Errorf("%+v", st)
	}
}

// TestFullServer: one that takes no more values is still read.
func TestFullServer(t *testing.T) {
	s := startRedis(t)
	a := connected(t, "redis://"+s.addr, generous)
	if err := a.ask(t.Context(), "", "early"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "written", func() bool { return a.c.Stats().Remote.Written == 1 })
	if err := s.client(t).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.ask(t.Context(), "", "late"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the value is dropped", func() bool { st := a.c.Stats().Remote; return st.Dropped == 1 && st.Errors == 1 })
	if st := a.c.Stats().Remote; !st.Up || !strings.Contains(st.LastErr, "OOM") {
		t.Errorf("%+v", st)
	}
	b := connected(t, "redis://"+s.addr, generous)
	if err := b.ask(t.Context(), "", "early", "late"); err != nil {
		t.Fatal(err)
	}
	b.check(t, "early", "late")
	if b.computed.Load() != 1 {
		t.Errorf("%d were computed, not the late one alone", b.computed.Load())
	}
}

// TestNobodyThere: a start without a server, which comes later.
func TestNobodyThere(t *testing.T) {
	s := startRedis(t)
	s.kill()
	a := &asker{c: open4tests(t, Config{Remote: &Remote{URL: "redis://" + s.addr, Prefix: "p:", Timeout: generous}})}
	if err := a.ask(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	a.check(t, "x")
	s.start()
	eventually(t, "it is reached", func() bool { return a.c.Stats().Remote.Up })
}

// TestCloseWaits: nothing of a cache goes on after Close, whatever the server does.
func TestCloseWaits(t *testing.T) {
	s := startRedis(t)
	addr, stall := proxy(t, s.addr)
	a := connected(t, "redis://"+addr, 50*time.Millisecond)
	stall.Store(true)
	if err := a.ask(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- a.c.Close() }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close does not end")
	}
	if err := a.ask(t.Context(), "", "y"); err != nil || !bytes.Equal(a.got[0], valueOf("y")) {
		t.Errorf("after Close: error %v, value %q", err, a.got[0])
	}
}

// TestTLS: rediss:// speaks TLS, and refuses a certificate that nobody vouches for.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
		"-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert).CombinedOutput(); err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	startRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no", "--tls-ca-cert-file", cert)
	a := connected(t, "rediss://127.0.0.1:"+port+"?skip_verify=true", generous)
	if err := a.ask(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "written", func() bool { return a.c.Stats().Remote.Written == 1 })
	var told atomic.Pointer[string]
	open4tests(t, Config{Remote: &Remote{URL: "rediss://127.0.0.1:" + port, Timeout: generous, Changed: func(_ bool, err error) {
		text := fmt.Sprint(err)
		told.Store(&text)
	}}})
	eventually(t, "the certificate is refused", func() bool { return told.Load() != nil && strings.Contains(*told.Load(), "certificate") })
}
