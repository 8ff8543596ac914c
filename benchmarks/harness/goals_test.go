package harness

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"ragate/benchmarks"
)

// The names that goals are looked up by are those that servebench writes: a recorded run has those of its phase of throughput, and the test of
// servebench looks for all of them.
func TestGoalsAreFoundInARecordedRun(t *testing.T) {
	b, err := os.ReadFile("../results/2026-11-30-epyc-server.json")
	if err != nil {
		t.Fatal(err)
	}
	var report benchmarks.Report
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	tei := sample(t, 2)
	tei.Cases[0].Clients = 1
	wire := "goos: linux\nBenchmarkVector-2         \t   88066\t      3383 ns/op\t 454.03 MB/s\t       0 B/op\t       0 allocs/op\n" +
		"BenchmarkVectorBase64-2   \t  855934\t       358.0 ns/op\t4290.06 MB/s\t       0 B/op\t       2 allocs/op\n"
	goals := Goals(Measurements{Server: &report, Wire: wire, Rerank: tei})
	measured := map[string]float64{}
	for _, g := range goals {
		if g.Measured != nil {
			measured[g.Name] = *g.Measured
		} else if !strings.Contains(g.Name, "20 passages") && !strings.Contains(g.Name, "query embeddings at 16") && !strings.HasPrefix(g.Note, noServer) {
			t.Errorf("%s: not found: %s", g.Name, g.Note)
		}
	}
	if v := measured["against text-embeddings-inference: 10 passages of like length"]; v < 1.99 || v > 2.01 {
		t.Errorf("against the other server: %v, want 2", v)
	}
	if v := measured["embeddings in base64: allocations a vector"]; v != 2 {
		t.Errorf("allocations: %v, want 2", v)
	}
	for name, least := range map[string]float64{"server : raw session at 16 clients, mixed lengths": 0.5, "padding, of all tokens that ran": 0.01} {
		if v, ok := measured[name]; !ok || v < least || v > 1.2 {
			t.Errorf("%s: %v", name, v)
		}
	}
	var text bytes.Buffer
	if err := WriteGoals(&text, goals); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reached", "MISSED", "not measured", "TEI_RERANK=URL", "TEI_EMBED=URL", "server : raw session at 16 clients"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &text)
		}
	}
	// Nothing measured is no failure either.
	text.Reset()
	if err := WriteGoals(&text, Goals(Measurements{})); err != nil || strings.Count(text.String(), "not measured") != len(goals) {
		t.Errorf("%v:\n%s", err, &text)
	}
}

// Where the raw session itself needs longer than the goal, the goal does not hold.
func TestTheRawSessionBoundsTheGoal(t *testing.T) {
	r := benchmarks.NewReport(1)
	r.Add("rerank-10x128, 1 client", "server, over HTTP, p99 of all 30", "ms", "", []float64{150})
	r.Add("rerank-10x128, 1 client", "raw session, one batch a stream", "ms", "", []float64{134})
	for _, g := range Goals(Measurements{Server: r}) {
		if strings.HasPrefix(g.Name, "rerank 10 × 128") && (g.Goal != "" || !strings.Contains(g.Note, "does not allow") || *g.Measured != 150) {
			t.Errorf("%+v", g)
		}
	}
}
