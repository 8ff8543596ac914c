package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"ragate/benchmarks"
	"ragate/benchmarks/harness"
	"ragate/inference"
	"ragate/internal/testenv"
)

// One short round with the real program and the real models. What is held here is that everything is measured and that the server's counts and
// answers are right (run checks those itself); the figures are the machine's business.
func TestOneRound(t *testing.T) {
	store := testenv.Store(t)
	cfg := defaults
	cfg.Program, cfg.DataDir, cfg.Rounds, cfg.clients, cfg.background = testenv.Program(t), store, 1, 3, 2
	cfg.window, cfg.warm, cfg.ramp, cfg.latency, cfg.rawWindow = 500*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	cfg.jobs, cfg.queries = 2, 4
	cfg.mixed = benchmarks.Workload{Name: "short", Kind: inference.KindReranker, Texts: 4, Low: 20, High: 60}
	cfg.job = benchmarks.Workload{Name: "shorter", Kind: inference.KindReranker, Texts: 3, Low: 30, High: 32}
	var said strings.Builder
	r, err := run(context.Background(), cfg, &said)
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if err := r.Print(io.Discard); err != nil {
		t.Fatal(err)
	}
	// The table of goals finds its figures by the names under which the full run writes them.
	full := *r
	full.Results = slices.Clone(r.Results)
	for i, x := range full.Results {
		x.Section = strings.NewReplacer("short, 3 clients", "rerank-10-mixed, 16 clients", "shorter, 1", "rerank-10x128, 1", "while 2 clients", "while 8 clients").Replace(x.Section)
		full.Results[i] = x
	}
	for _, g := range harness.Goals(harness.Measurements{Server: &full}) {
		if g.Measured == nil && !strings.Contains(g.Name, "against") && !strings.Contains(g.Name, "allocations") {
			t.Errorf("the table of goals does not find: %s", g.Name)
		}
	}
	for _, name := range []string{
		"server : raw session, turn by turn", "useful tokens of the server, over HTTP", "useful tokens of the raw session, at its best",
		"padding, of all tokens that ran", "CPU time of the server", "p99 : (one slice + 1.5 × its p50 without others), turn by turn",
		"resident memory of the server, at its peak",
	} {
		found := false
		for _, x := range r.Results {
			if x.Name == name {
				found = true
				if !(x.Median > 0) {
					t.Errorf("%s: %v", name, x.Median)
				}
			}
		}
		if !found {
			t.Errorf("the report has no %q", name)
		}
	}
}
