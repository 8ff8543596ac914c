package readme

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ragate/internal/hubtest"
	"ragate/internal/testenv"
)

// startLimit is how long a server may take to become ready on a machine that does other things besides; a hang, not a speed, is caught.
const startLimit = 5 * time.Minute

// commands reads the indented blocks of README.md.
func commands(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.SplitSeq(string(b), "\n") {
		if cmd, ok := strings.CutPrefix(line, "    "); ok && strings.TrimSpace(cmd) != "" {
			out = append(out, cmd)
		}
	}
	return out
}

// shell is where the commands run: a folder that looks like a clone in use.
type shell struct {
	t    *testing.T
	dir  string
	env  []string
	port string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	root := testenv.ModuleRoot(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	data := testenv.Store(t)
	return &shell{t: t, dir: root, port: port, env: append(os.Environ(),
		"RAGATE_LISTEN=127.0.0.1:"+port, "RAGATE_DATA_DIR="+data, "RAGATE_LOG_FORMAT=json",
		"no_proxy=127.0.0.1", "NO_PROXY=127.0.0.1")} // for curl, on machines that go out through a proxy
}

// text replaces the documented address by the test's.
func (s *shell) text(cmd string) string {
	return strings.ReplaceAll(cmd, "localhost:8080", "127.0.0.1:"+s.port)
}

func (s *shell) command(cmd string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(s.t.Context(), startLimit)
	s.t.Cleanup(cancel)
	c := exec.CommandContext(ctx, "sh", "-c", s.text(cmd))
	c.Dir, c.Env = s.dir, s.env
	// make starts the server as a child: signals go to the whole group.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// output runs a command to its end and returns what it printed.
func (s *shell) output(cmd string) string {
	s.t.Helper()
	c := s.command(cmd)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		s.t.Fatalf("%s: %v\n%s%s", cmd, err, out.Bytes(), errs.Bytes())
	}
	return out.String()
}

// server starts a command that serves, waits until it is ready, and stops it at the end.
func (s *shell) server(cmd string) (stop func()) {
	s.t.Helper()
	c := s.command(cmd)
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	deadline := time.Now().Add(startLimit)
	for {
		resp, err := http.Get("http://127.0.0.1:" + s.port + "/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case err := <-ended:
			s.t.Fatalf("%s ended: %v\n%s", cmd, err, log.Bytes())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			s.t.Fatalf("%s is not ready after %v\n%s", cmd, startLimit, log.Bytes())
		}
	}
	return func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				s.t.Errorf("%s: %v", cmd, err)
			}
		case <-time.After(startLimit):
			syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			s.t.Errorf("%s does not stop", cmd)
		}
	}
}

// TestEveryCommandOfTheReadme runs them in order. A command without a check here fails the test, and so does a check without a command.
func TestEveryCommandOfTheReadme(t *testing.T) {
	s := newShell(t)
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	type check struct {
		match string // of the whole command
		run   func(cmd string)
		seen  bool
	}
	checks := []*check{
		{match: `make run`, run: func(cmd string) { stop = s.server(cmd) }},
		{match: `curl -s localhost:8080/v1/rerank .*`, run: func(cmd string) {
			var got struct {
				Results []struct {
					Index int
					Score float64 `json:"relevance_score"`
				}
			}
			s.decode(cmd, &got)
			if len(got.Results) != 2 || got.Results[0].Index != 1 || got.Results[0].Score < 0.9 || got.Results[1].Score > 0.1 {
				t.Errorf("%s: %+v; want the passage about Paris first, above 0.9, and the other below 0.1; it printed %s", cmd, got, s.output(cmd))
			}
		}},
		{match: `curl -s localhost:8080/v1/gate/query .*`, run: func(cmd string) {
			var got struct {
				NeedsRetrieval *bool `json:"needs_retrieval"`
				Stage          string
			}
			s.decode(cmd, &got)
			if got.NeedsRetrieval == nil || *got.NeedsRetrieval || got.Stage != "pattern" {
				t.Errorf("%s: %+v; want a bypass by pattern", cmd, got)
			}
		}},
		{match: `curl -s localhost:8080/v1/gate/chunks .*`, run: func(cmd string) {
			var got struct {
				Chunks []struct {
					ID       int
					Decision string
				}
			}
			s.decode(cmd, &got)
			if len(got.Chunks) != 1 || got.Chunks[0].ID != 2 || got.Chunks[0].Decision != "kept" {
				t.Errorf("%s: %+v; want chunk 2 kept", cmd, got)
			}
		}},
		{match: `bin/ragate gate query "what is our refund policy"`, run: func(cmd string) {
			if out := s.output(cmd); !strings.HasPrefix(out, "retrieve\tsemantic\t") {
				t.Errorf("%s printed %q; want retrieval, by the semantic stage", cmd, out)
			}
		}},
		{match: `echo '.*' > my-model/ragate.json`, run: func(cmd string) {
			s.ownFolder()
			s.output(cmd)
		}},
		{match: `bin/ragate serve --embedder ./my-model`, run: func(cmd string) {
			stop()
			stop = s.server(cmd)
			var got struct{ Data []struct{ ID, Kind string } }
			s.decode("curl -s localhost:8080/v1/models", &got)
			if len(got.Data) != 2 || got.Data[0].ID != "my-model" || got.Data[0].Kind != "embedder" {
				t.Errorf("after %s the models are %+v", cmd, got)
			}
		}},
		{match: `curl -s localhost:8080/v1/embeddings .*`, run: func(cmd string) {
			var got struct {
				Data []struct{ Embedding []float64 }
			}
			s.decode(cmd, &got)
			if len(got.Data) != 1 {
				t.Fatalf("%s: %d embeddings", cmd, len(got.Data))
			}
			unitVector(t, cmd, got.Data[0].Embedding)
		}},
		{match: `curl -s localhost:8080/info`, run: func(cmd string) {
			var got struct{ Models []map[string]any }
			s.decode(cmd, &got)
			if len(got.Models) != 3 {
				t.Fatalf("%s: %d models", cmd, len(got.Models))
			}
			for _, m := range got.Models {
				for _, field := range []string{"provider", "precision", "batch_invariance"} {
					if m[field] == nil || m[field] == "" {
						t.Errorf("%s: a model without %s: %v", cmd, field, m)
					}
				}
			}
		}},
		{match: `bin/ragate bench --url http://localhost:8080 .*`, run: func(cmd string) {
			out := s.output(cmd)
			for _, want := range []string{"rerank-10x128, 1 client", "requests/s", "p99.9", "Cranfield"} {
				if !strings.Contains(out, want) {
					t.Errorf("%s does not show %q:\n%s", cmd, want, out)
				}
			}
		}},
		{match: `echo "some text" \| bin/ragate embed`, run: func(cmd string) {
			var v []float64
			s.decode(cmd, &v)
			unitVector(t, cmd, v)
		}},
		{match: `printf .* \| bin/ragate rerank .*`, run: func(cmd string) {
			lines := strings.Split(strings.TrimSpace(s.output(cmd)), "\n")
			if len(lines) != 2 || !strings.HasSuffix(lines[0], "\t1\tParis is the capital of France.") {
				t.Errorf("%s printed %q; want the line about Paris first", cmd, lines)
			}
		}},
		{match: `bin/ragate models list`, run: func(cmd string) {
			for _, id := range []string{"intfloat/e5-small-v2", "cross-encoder/ms-marco-MiniLM-L12-v2", "cross-encoder/ms-marco-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "intfloat/multilingual-e5-small"} {
				if out := s.output(cmd); !strings.Contains(out, id) {
					t.Errorf("%s does not list %s:\n%s", cmd, id, out)
				}
			}
		}},
		{match: `bin/ragate models inspect e5-small-v2`, run: func(cmd string) {
			out := s.output(cmd)
			for _, want := range []string{"d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad", "mean", "input_ids", "last_hidden_state", "query: "} {
				if !strings.Contains(out, want) {
					t.Errorf("%s does not show %q:\n%s", cmd, want, out)
				}
			}
		}},
		{match: `bin/ragate models verify`, run: func(cmd string) {
			if out := s.output(cmd); !strings.Contains(out, "model.onnx") || strings.Contains(out, "changed") {
				t.Errorf("%s:\n%s", cmd, out)
			}
		}},
		{match: `bin/ragate serve --reranker cross-encoder/ms-marco-MiniLM-L6-v2`, run: func(cmd string) {
			stop()
			stop = nil
			s.withHub()
			stop = s.server(cmd)
			var got struct{ Data []struct{ ID string } }
			s.decode("curl -s localhost:8080/v1/models", &got)
			if len(got.Data) != 2 || got.Data[1].ID != "cross-encoder/ms-marco-MiniLM-L6-v2" {
				t.Errorf("after %s the models are %+v", cmd, got)
			}
		}},
	}
	list := commands(t)
	if len(list) < len(checks) {
		t.Errorf("README.md shows %d commands, and %d are checked here", len(list), len(checks))
	}
	for _, cmd := range list {
		found := false
		for _, c := range checks {
			if regexp.MustCompile(`^(?:` + c.match + `)$`).MatchString(cmd) {
				found, c.seen = true, true
				c.run(cmd)
				break
			}
		}
		if !found {
			t.Errorf("README.md shows %q, which no check here runs", cmd)
		}
	}
	for _, c := range checks {
		if !c.seen {
			t.Errorf("README.md no longer shows a command like %q", c.match)
		}
	}
}

// TestMakeTargetsThatAreNamedExist covers the commands that a test cannot run inside itself.
func TestMakeTargetsThatAreNamedExist(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`make ([a-z-]+)`").FindAllStringSubmatch(string(b), -1)
	if len(names) < 4 {
		t.Fatalf("README.md names %d make targets in its text", len(names))
	}
	for _, n := range names {
		c := exec.Command("make", "-n", n[1])
		c.Dir = testenv.ModuleRoot(t)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("make -n %s: %v\n%s", n[1], err, out)
		}
	}
}

// withHub gives the shell a model hub of its own, on loopback, that has the default reranker under the name of the smaller one.
func (s *shell) withHub() {
	s.t.Helper()
	dir := filepath.Join(testenv.Store(s.t), "models", "cross-encoder--ms-marco-MiniLM-L12-v2")
	content := map[string][]byte{
		"config.json": []byte(`{"model_type":"bert","architectures":["BertForSequenceClassification"],"max_position_embeddings":512,"hidden_size":384,"id2label":{"0":"LABEL_0"}}`),
	}
	for at, file := range map[string]string{"onnx/model.onnx": "model.onnx", "tokenizer.json": "tokenizer.json", "tokenizer_config.json": "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			s.t.Fatal(err)
		}
		content[at] = b
	}
	hub := hubtest.Start(s.t)
	commit := hubtest.Commit("first")
	repo := hub.Put("cross-encoder/ms-marco-MiniLM-L6-v2", commit, content)
	hub.Do(func() { repo.Branches["main"] = commit })

	// A data folder of its own, with the runtime and models of the store: the lock file must not end up there.
	data := s.t.TempDir()
	for _, name := range []string{"ort", "models", "graphs", "measured.json"} {
		if err := os.Symlink(filepath.Join(testenv.Store(s.t), name), filepath.Join(data, name)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.env = append(s.env, "RAGATE_DATA_DIR="+data, "HF_ENDPOINT="+hub.URL, "HF_HOME="+s.t.TempDir(), "HF_HUB_OFFLINE=0", "HF_TOKEN=")
}

// ownFolder moves the shell to a folder that holds bin and a copy of the default embedder as my-model, without what the catalogue knows of it.
func (s *shell) ownFolder() {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.Symlink(filepath.Join(testenv.ModuleRoot(s.t), "bin"), filepath.Join(dir, "bin")); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "my-model"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	for _, name := range []string{"model.onnx", "tokenizer.json"} {
		b, err := os.ReadFile(filepath.Join(testenv.Store(s.t), "models", "intfloat--e5-small-v2", name))
		if err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "my-model", name), b, 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	s.dir = dir
}

func (s *shell) decode(cmd string, into any) {
	s.t.Helper()
	out := s.output(cmd)
	dec := json.NewDecoder(strings.NewReader(out))
	if err := dec.Decode(into); err != nil {
		s.t.Fatalf("%s: %v in %.300s", cmd, err, out)
	}
	if _, err := dec.Token(); err != io.EOF {
		s.t.Errorf("%s printed more than one value", cmd)
	}
}

func unitVector(t *testing.T, cmd string, v []float64) {
	t.Helper()
	var sum float64
	for _, x := range v {
		sum += x * x
	}
	if len(v) != 384 || math.Abs(math.Sqrt(sum)-1) > 1e-4 {
		t.Errorf("%s: a vector of %d values and length %v; want 384 and 1", cmd, len(v), math.Sqrt(sum))
	}
}
