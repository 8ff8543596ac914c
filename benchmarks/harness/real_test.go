package harness

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ragate/benchmarks"
	"ragate/internal/testenv"
	"ragate/models"
)

// The real program with the real models, asked in every dialect: it speaks them all, but for infinity's path of embeddings, which a proxy
// in front of it has. What is held is that right answers are found right, and that everything is measured; figures are the machine's business.
func TestEveryDialectAgainstTheRealServer(t *testing.T) {
	dir := testenv.Store(t)
	program := testenv.Program(t)
	const key = "bench-key-0123456789abcdef"
	ctx := context.Background()
	server, err := benchmarks.StartServer(ctx, benchmarks.ServerConfig{Program: program, Args: []string{"--data-dir", dir, "--api-key", key},
		Log: filepath.Join(t.TempDir(), "log"), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	behind, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(behind)
		if r.In.URL.Path == "/embeddings" {
			r.Out.URL.Path = "/v1/embeddings"
		}
	}})
	t.Cleanup(proxy.Close)

	e := encoders(t)
	store := &models.Store{Dir: dir}
	library, err := store.RuntimeLibrary()
	if err != nil {
		t.Fatal(err)
	}
	ceiling, err := OpenCeiling(ctx, library, filepath.Join(dir, "graphs"), server.Info, e.Embed.Manifest, e.Rerank.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ceiling.Close(); err != nil {
			t.Error(err)
		}
	})
	ceiling.Window = 50 * time.Millisecond
	small := map[Task]int{EmbedPassages: 2, Rerank: 2, GateChunks: 2}
	asked := 0
	for _, d := range Dialects() {
		x := Target{Name: d.Name, URL: server.URL, Dialect: d, PID: server.PID(), Header: http.Header{"Authorization": {"Bearer " + key}}}
		if d.Name == "infinity" {
			x.URL = proxy.URL
		}
		c := Config{Targets: []Target{x}, Rounds: 1, Window: 50 * time.Millisecond, Ramp: 10 * time.Millisecond, Timeout: 5 * time.Minute, Budget: time.Minute, Seed: 3, Encoders: e,
			Texts: func(seed uint64) (*benchmarks.Texts, error) { return benchmarks.NewTexts(seed, e.Rerank.Count) }}
		if d.Name == "ragate" {
			c.Ceiling = ceiling
		}
		for _, w := range Workloads() {
			if d.Does(w.Task) {
				if n, ok := small[w.Task]; ok {
					w.Texts, w.Low, w.High = n, 20, 40
				}
				c.Cases = append(c.Cases, Case{Workload: w, Clients: 1})
			}
		}
		r, err := Run(ctx, c)
		if err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		for i, got := range r.Cases {
			asked++
			s, task := got.Sides[0], c.Cases[i].Workload.Task
			if s.Requests < 1 || s.Failed() > 0 || s.Refused > 0 || s.TokensPerSecond == nil || s.PeakMB < 100 {
				t.Errorf("%s, %s: %+v", d.Name, got.Workload, s)
			}
			// Where the server counts tokens, it must come to what was counted here: the same texts, prefixes and special tokens.
			if s.UsageTokens != 0 && s.UsageTokens != s.CountedTokens {
				t.Errorf("%s, %s: the server ran %d tokens, counted were %d", d.Name, got.Workload, s.UsageTokens, s.CountedTokens)
			}
			if d.Name == "jina" && s.UsageTokens == 0 {
				t.Errorf("%s, %s: no usage was found", d.Name, got.Workload)
			}
			if model := task == EmbedQueries || task == EmbedPassages || task == Rerank; c.Ceiling != nil && model {
				if got.RawTokens == nil || got.OfRaw == nil || got.OfPeak < 0 || got.OfPeak > 1 {
					t.Errorf("%s: raw %v, share %v, of the peak %v", got.Workload, got.RawTokens, got.OfRaw, got.OfPeak)
				}
			}
			if task == GateChunks && s.Unscored > 0 {
				t.Errorf("%d of %d chunks unscored within a minute", s.Unscored, s.Items)
			}
		}
		wrong := x
		wrong.Header = nil
		if err := wrong.Probe(ctx, http.DefaultClient, EmbedQueries, ""); err == nil || !strings.Contains(err.Error(), "status 401") {
			t.Errorf("%s without a key: %v", d.Name, err)
		}
	}
	if asked != 6+4+4+4+4+2 {
		t.Errorf("%d cases were measured", asked)
	}
}
