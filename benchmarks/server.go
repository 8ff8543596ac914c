package benchmarks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ragate/inference"
)

// ServerConfig says how to start the program under test.
type ServerConfig struct {
	Program string   // path of ragate
	Args    []string // behind `serve`; --listen is added
	Log     string   // file for what it prints
	Key     string   // an API key of the server's, where Args give it some: for /info and /metrics
}

// Server is a ragate process that this one started and ends.
type Server struct {
	URL  string
	Info ServerInfo
	key  string
	cmd  *exec.Cmd
	log  string
	done chan error // what Wait returned
}

// ServerInfo is what /info says and the benchmark needs.
type ServerInfo struct {
	Version string      `json:"version"`
	Models  []ModelInfo `json:"models"`
}

// ModelInfo is how one model runs.
type ModelInfo struct {
	ID        string         `json:"id"`
	Kind      inference.Kind `json:"kind"`
	SHA256    string         `json:"sha256"`
	Provider  string         `json:"provider"`
	Precision string         `json:"precision"`
	Streams   int            `json:"streams"`
	Threads   int            `json:"threads"`
}

// Model finds the model of a kind.
func (i ServerInfo) Model(k inference.Kind) (ModelInfo, error) {
	for _, m := range i.Models {
		if m.Kind == k {
			return m, nil
		}
	}
	return ModelInfo{}, fmt.Errorf("the server has no %s", k)
}

// FetchInfo asks a running server for its /info. header is sent along: the key.
func FetchInfo(ctx context.Context, url string, header http.Header) (ServerInfo, error) {
	var info ServerInfo
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/info", nil)
	if err != nil {
		return info, err
	}
	for name, values := range header {
		ask.Header[name] = values
	}
	r, err := http.DefaultClient.Do(ask)
	if err != nil {
		return info, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return info, fmt.Errorf("GET %s/info: %s", url, r.Status)
	}
	if err := json.NewDecoder(r.Body).Decode(&info); err != nil {
		return info, fmt.Errorf("GET %s/info: %w", url, err)
	}
	return info, nil
}

// orNothing is a log, or that there is none.
func orNothing(log []byte) string {
	if text := strings.TrimSpace(string(log)); text != "" {
		return "\n" + text
	}
	return "nothing"
}

// StartServer starts the program on a free port and returns when it is ready. A process that ends before is an error with its last words.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	log, err := os.Create(cfg.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &Server{key: cfg.Key, log: cfg.Log, done: make(chan error, 1)}
	s.cmd = exec.Command(cfg.Program, append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--score-cache", "off"}, cfg.Args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.done <- s.cmd.Wait() }()
	for {
		url, err := readyURL(cfg.Log)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if url != "" {
			s.URL = url
			if err := s.getJSON("/info", &s.Info); err != nil {
				return nil, errors.Join(err, s.Close())
			}
			return s, nil
		}
		select {
		case err := <-s.done:
			s.done <- err
			how := "without an error"
			if err != nil {
				how = err.Error()
			}
			text, _ := os.ReadFile(cfg.Log)
			return nil, fmt.Errorf("%s serve ended before it was ready (%s); its log: %s", cfg.Program, how, orNothing(text))
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), s.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readyURL finds the address in the log line that says the server is ready; "" before that.
func readyURL(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var line struct{ Msg, URL string }
		if json.Unmarshal(sc.Bytes(), &line) == nil && line.Msg == "ready" && line.URL != "" {
			return line.URL, nil
		}
	}
	return "", nil
}

// PID is the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Close ends the server and waits for it. What it said is an error when it did not end well.
func (s *Server) Close() error {
	s.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended, which done tells better
	select {
	case err := <-s.done:
		s.done <- err
		if err != nil {
			return fmt.Errorf("the server ended with %w; its log is %s", err, s.log)
		}
		return nil
	case <-time.After(time.Minute):
		s.cmd.Process.Kill()
		return errors.New("the server did not end within a minute of SIGTERM, and was killed")
	}
}

func (s *Server) get(path string) ([]byte, error) {
	ask, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if s.key != "" {
		ask.Header.Set("Authorization", "Bearer "+s.key)
	}
	r, err := http.DefaultClient.Do(ask)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: status %d: %.200s", path, r.StatusCode, b)
	}
	return b, err
}

func (s *Server) getJSON(path string, v any) error {
	b, err := s.get(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// Rerank scores documents and returns their logits in the order of the request.
func (s *Server) Rerank(w Work) ([]float32, error) {
	path, body, _ := Ragate(inference.KindReranker, w)
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.Post(s.URL+path, "application/json", strings.NewReader(string(b)))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var answer struct {
		Results []struct {
			Index int     `json:"index"`
			Score float32 `json:"relevance_score"`
		} `json:"results"`
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(w.Texts) {
		return nil, fmt.Errorf("%s: status %d, %d results for %d documents", path, r.StatusCode, len(answer.Results), len(w.Texts))
	}
	logits := make([]float32, len(w.Texts))
	for _, x := range answer.Results {
		logits[x.Index] = x.Score
	}
	return logits, nil
}

// Metrics are the server's counters and gauges by name and labels, as in `name{label="value"}`.
type Metrics map[string]float64

// Metrics asks the server for them.
func (s *Server) Metrics() (Metrics, error) {
	b, err := s.get("/metrics")
	if err != nil {
		return nil, err
	}
	m := Metrics{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			m[line[:i]] = v
		}
	}
	return m, nil
}

// BatchCounters are the server's own counts of what ran for a model.
type BatchCounters struct {
	Tokens  float64 // useful
	Padding float64
	Batches float64
	Rows    float64
	Seconds float64 // streams were busy, all together
}

// Batches reads the counters of a model. A server without them is an error: they are what windows are measured by.
func (m Metrics) Batches(model string) (c BatchCounters, err error) {
	for _, x := range []struct {
		to   *float64
		name string
	}{
		{&c.Tokens, "batch_tokens_total"}, {&c.Padding, "batch_padding_tokens_total"}, {&c.Batches, "batch_rows_count"},
		{&c.Rows, "batch_rows_sum"}, {&c.Seconds, "inference_seconds_sum"},
	} {
		key := `ragate_` + x.name + `{model="` + model + `"}`
		v, ok := m[key]
		if !ok && !strings.HasSuffix(x.name, "_total") {
			v, ok = 0, true // a histogram has no series before its first value
		}
		if !ok {
			return c, fmt.Errorf("the server's metrics have no %s", key)
		}
		*x.to = v
	}
	return c, nil
}

// Minus is what was added since an earlier reading.
func (c BatchCounters) Minus(o BatchCounters) BatchCounters {
	return BatchCounters{c.Tokens - o.Tokens, c.Padding - o.Padding, c.Batches - o.Batches, c.Rows - o.Rows, c.Seconds - o.Seconds}
}
