package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ragate/internal/testenv"
)

// patience is how long anything may take on a machine that does other things besides: it catches what hangs, not what is slow.
const patience = 5 * time.Minute

// scratch is a folder for the built program, removed at the end.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "ragate-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		defer os.RemoveAll(scratch)
		return m.Run()
	}())
}

// program returns the path of the program, which is built by the first test that asks.
func program(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatalf("building the program: %v", err)
	}
	return path
}

// built makes the program. Go remembers a passed test by the files it looked at, but the compiler is another process: so this looks at
// every source file, and a change of any runs the tests again. It must be called by a test: what comes before is not recorded.
var built = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	sources := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".mod", ".yaml", ".txt", ".html", ".js", ".css": // all but the first two may be embedded
			if !strings.HasSuffix(path, "_test.go") {
				sources++
				_, err = os.Stat(path)
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if sources < 20 {
		return "", fmt.Errorf("only %d source files below %s", sources, root)
	}
	path := filepath.Join(scratch, "ragate")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/ragate")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// environment is what the program sees: the store, an empty home, and nothing of the tester's own settings. Nothing is kept in a cache unless a test asks
// for it: most tests repeat a request to see it computed again.
func environment(t testing.TB, store string, more ...string) []string {
	t.Helper()
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "RAGATE_DATA_DIR=" + store, "RAGATE_SCORE_CACHE=off"}, more...)
}

// store is the data folder that setup filled, as an absolute path.
func store(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(testenv.Store(t))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// privateStore is a data folder of the test's own: the runtime and the models are the real ones, all that a server writes is new.
func privateStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"ort", "models"} {
		if err := os.Symlink(filepath.Join(store(t), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the program to its end. A program that does not end fails the test.
func command(t *testing.T, env []string, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program(t), args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, t.TempDir(), strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("ragate %q: %v\n%s", args, errors.Join(err, ctx.Err()), &errs)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// server is a running `ragate serve`.
type server struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	key  string       // sent with every request, when set
	via  *http.Client // http.DefaultClient when nil
	done chan struct{}

	mu     sync.Mutex
	grown  chan struct{} // closed and replaced when lines grows
	lines  []string      // of standard error
	exited error         // set before done is closed
}

// launch starts the server on a free port and returns once it listens. It is stopped when the test ends; how is checked only by tests
// that stop it themselves.
func launch(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	return launchUnder(t, nil, env, args...)
}

// launchUnder is launch by way of another program, which gets this one's path and arguments behind its own.
func launchUnder(t *testing.T, under []string, env []string, args ...string) *server {
	t.Helper()
	s := &server{t: t, done: make(chan struct{}), grown: make(chan struct{})}
	line := append(slices.Clone(under), program(t), "serve", "--listen", "127.0.0.1:0", "--log-format", "json")
	line = append(line, args...)
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Env, s.cmd.Dir = env, t.TempDir()
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r := bufio.NewScanner(stderr)
		r.Buffer(nil, 1<<20)
		for r.Scan() {
			s.mu.Lock()
			s.lines = append(s.lines, r.Text())
			close(s.grown)
			s.grown = make(chan struct{})
			s.mu.Unlock()
		}
		s.exited = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may be gone already
		select {
		case <-s.done:
		case <-time.After(patience):
			s.cmd.Process.Kill() //nolint:errcheck // as above
			<-s.done
			t.Error("the server did not end after SIGTERM and was killed")
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log())
		}
	})
	s.url = "http://" + s.line("listening; the models are being loaded")["address"].(string)
	return s
}

// start is launch, and waits until the server is ready.
func start(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	s := launch(t, env, args...)
	s.line("ready")
	return s
}

// line waits for a log line with that message.
func (s *server) line(msg string) map[string]any {
	s.t.Helper()
	deadline := time.After(patience)
	for seen := 0; ; {
		s.mu.Lock()
		fresh, grown := s.lines[seen:], s.grown
		s.mu.Unlock()
		for _, text := range fresh {
			seen++
			var fields map[string]any
			if json.Unmarshal([]byte(text), &fields) == nil && fields["msg"] == msg {
				return fields
			}
		}
		select {
		case <-grown:
		case <-s.done:
			s.t.Fatalf("the server ended (%v) before it said %q:\n%s", s.exited, msg, s.log())
		case <-deadline:
			s.t.Fatalf("the server did not say %q within %v:\n%s", msg, patience, s.log())
		}
	}
}

func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code.
func (s *server) wait() int {
	s.t.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		s.t.Fatalf("the server did not end within %v:\n%s", patience, s.log())
		return -1
	}
}

// reply is an answer of the server.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// send sends one request: a POST of body as JSON, a GET when body is nil. Safe for any goroutine.
func (s *server) send(path string, body any) (reply, error) {
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		method, content = http.MethodPost, bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, s.url+path, content)
	if err != nil {
		return reply{}, err
	}
	q.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		q.Header.Set("Authorization", "Bearer "+s.key)
	}
	client := s.via
	if client == nil {
		client = http.DefaultClient
	}
	p, err := client.Do(q)
	if err != nil {
		return reply{}, err
	}
	defer p.Body.Close()
	b, err := io.ReadAll(p.Body)
	return reply{p.StatusCode, p.Header, b}, err
}

// ask sends one request and fails the test when no answer comes. Only for the test's own goroutine.
func (s *server) ask(path string, body any) reply {
	s.t.Helper()
	r, err := s.send(path, body)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return r
}

// decode reads the JSON of an answer with status 200.
func decode[T any](r reply) (v T, err error) {
	if r.status != http.StatusOK {
		return v, fmt.Errorf("status %v", r)
	}
	if err := json.Unmarshal(r.body, &v); err != nil {
		return v, fmt.Errorf("%w in %.200s", err, r.body)
	}
	return v, nil
}

// busy says whether tokens wait in the queue.
func (s *server) busy() bool {
	s.t.Helper()
	for line := range strings.SplitSeq(string(s.ask("/metrics", nil).body), "\n") {
		if value, ok := strings.CutPrefix(line, "ragate_queue_tokens "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return n > 0
		}
	}
	s.t.Fatal("/metrics has no ragate_queue_tokens")
	return false
}

// info is what these tests read of /info.
type info struct {
	Models []modelInfo `json:"models"`
}

type modelInfo struct {
	ID              string `json:"id"`
	Kind            string `json:"kind"`
	Provider        string `json:"provider"`
	Precision       string `json:"precision"`
	BatchInvariance struct {
		MaxLogit  *float64 `json:"max_logit"`
		MinCosine *float64 `json:"min_cosine"`
		Rows      int      `json:"rows"`
	} `json:"batch_invariance"`
	Languages []string `json:"languages"`
	Warnings  []string `json:"warnings"`
}

// info reads /info, whose models must be an embedder and a reranker, and behind them the gate's embedder where it is another.
func (s *server) info() (embedder, reranker modelInfo) {
	s.t.Helper()
	i, err := decode[info](s.ask("/info", nil))
	if err != nil {
		s.t.Fatal(err)
	}
	var kinds []string
	for _, m := range i.Models {
		kinds = append(kinds, m.Kind)
	}
	// The third is the query gate's, where it is not the first.
	if k := strings.Join(kinds, " "); k != "embedder reranker" && k != "embedder reranker embedder" {
		s.t.Fatalf("/info lists %+v", i.Models)
	}
	return i.Models[0], i.Models[1]
}

// resident is the server's resident memory in MB (10^6 bytes).
func (s *server) resident() float64 {
	s.t.Helper()
	pid := strconv.Itoa(s.cmd.Process.Pid)
	var kib string
	if runtime.GOOS == "linux" {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			s.t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(status), "\nVmRSS:")
		if !ok {
			s.t.Fatalf("no VmRSS in %s", status)
		}
		kib, _, _ = strings.Cut(rest, "kB")
	} else {
		out, err := exec.Command("ps", "-o", "rss=", "-p", pid).Output()
		if err != nil {
			s.t.Fatal(err)
		}
		kib = string(out)
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(kib), 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n * 1024 / 1e6
}

// hasBF16 says whether the processor multiplies bfloat16, from the system's own list of its features.
func hasBF16(t *testing.T) bool {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return false
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "\nflags")
	if !ok {
		t.Fatal("no flags in /proc/cpuinfo")
	}
	flags, _, _ := strings.Cut(rest, "\n")
	for _, f := range strings.Fields(flags) {
		if f == "avx512_bf16" || f == "amx_bf16" {
			return true
		}
	}
	return false
}
