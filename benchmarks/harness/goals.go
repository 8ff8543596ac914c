package harness

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"ragate/benchmarks"
	"ragate/internal/page"
)

// Goal is a figure that the project wants to reach, beside what was measured.
type Goal struct {
	Name     string
	Goal     string   // ">= 0.92"
	Measured *float64 // nil where nothing measured it
	Note     string   // what the figure means, or why there is none
}

// Measurements are what goals are looked up in; any may be missing.
type Measurements struct {
	Server *benchmarks.Report // of servebench
	Wire   string             // what `go test -bench Vector -benchmem ./server` printed
	Rerank *Result            // ragate and text-embeddings-inference in turns, reranking
	Embed  *Result            // the same, embedding
}

const noServer = "servebench did not measure it"

// Goals lists them all.
func Goals(m Measurements) []Goal {
	const (
		mixed, job, query = "rerank-10-mixed, 16 clients", "rerank-10x128, 1 client", "embed-query, 1 client, while 8 clients rerank"
		byTurns           = "server : raw session, turn by turn"
	)
	server := func(goal Goal, section, name string, of func(benchmarks.Result) float64) Goal {
		if goal.Note == "" {
			goal.Note = noServer
		}
		if m.Server == nil {
			return goal
		}
		for _, r := range m.Server.Results {
			if r.Section == section && strings.HasPrefix(r.Name, name) {
				v := of(r)
				goal.Measured, goal.Note = &v, fmt.Sprintf("%s to %s in %d rounds", benchmarks.Digits(r.Min), benchmarks.Digits(r.Max), len(r.Rounds))
			}
		}
		return goal
	}
	median := func(r benchmarks.Result) float64 { return r.Median }
	against := func(name, goal, workload string, clients int, from *Result, flag string) Goal {
		g := Goal{Name: name, Goal: goal, Note: "needs a text-embeddings-inference server: make bench " + flag + "=URL"}
		if from == nil {
			return g
		}
		for _, c := range from.Cases {
			if c.Workload != workload || c.Clients != clients {
				continue
			}
			for _, r := range c.Ratios {
				if r.Metric == "requests/s" {
					g.Measured, g.Note = &r.Ratio.Value, "95 % interval "+interval(r.Ratio)
				}
			}
		}
		return g
	}
	p99 := server(Goal{Name: "rerank 10 × 128 at 1 client: p99, ms", Goal: "<= 100"}, job, "server, over HTTP, p99", median)
	raw := server(Goal{}, job, "raw session, one batch a stream", median)
	if raw.Measured != nil && *raw.Measured > 100 {
		p99.Goal, p99.Note = "", fmt.Sprintf("the raw session takes %s ms: this machine does not allow 100", benchmarks.Digits(*raw.Measured))
	}
	return []Goal{
		server(Goal{Name: "server : raw session at 16 clients, mixed lengths", Goal: ">= 0.92"}, mixed, byTurns, median),
		server(Goal{Name: "padding, of all tokens that ran", Goal: "<= 0.08"}, mixed, "padding, of all tokens that ran", median),
		against("against text-embeddings-inference: 10 passages of like length", ">= 1.5", "rerank-10x128", 1, m.Rerank, "TEI_RERANK"),
		against("against text-embeddings-inference: 20 passages of mixed length", ">= 3", "rerank-20-mixed", 1, m.Rerank, "TEI_RERANK"),
		against("against text-embeddings-inference: query embeddings at 16 clients", ">= 3", "embed-query", 16, m.Embed, "TEI_EMBED"),
		p99,
		server(Goal{Name: "query embedding beside 8 rerankers: p99 : (slice + 1.5 × its p50 alone)", Goal: "<= 1"}, query, "p99 : (one slice + 1.5 ×", median),
		server(Goal{Name: "CPU time of a rerank that is not the raw session's (HTTP, JSON, tokenising, queue)", Goal: "<= 0.05"},
			mixed, "raw session : server in CPU time a token", func(r benchmarks.Result) float64 { return 1 - r.Median }),
		m.wire("embeddings as floats: allocations a vector", "BenchmarkVector"),
		m.wire("embeddings in base64: allocations a vector", "BenchmarkVectorBase64"),
	}
}

// wire finds a benchmark's allocations: encoding by reflection makes some, and encoding into the answer's buffer none.
func (m Measurements) wire(name, benchmark string) Goal {
	g := Goal{Name: name, Goal: "<= 0", Note: "the benchmark of package server did not run"}
	for line := range strings.Lines(m.Wire) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.SplitN(f[0], "-", 2)[0] != benchmark {
			continue
		}
		for i, unit := range f {
			if unit == "allocs/op" {
				if v, err := strconv.ParseFloat(f[i-1], 64); err == nil {
					g.Measured, g.Note = &v, strings.Join(f[2:4], " ")
				}
			}
		}
	}
	return g
}

// WriteGoals prints the table.
func WriteGoals(w io.Writer, goals []Goal) error {
	t := page.Table{Columns: []page.Column{page.Left("Goal"), page.Right("Wanted"), page.Right("Measured"), page.Left(""), page.Left("")}}
	for _, g := range goals {
		measured, verdict := "–", "not measured"
		if g.Measured != nil {
			met, err := benchmarks.Result{Name: g.Name, Goal: g.Goal, Median: *g.Measured}.Met()
			if err != nil {
				return err
			}
			measured, verdict = benchmarks.Digits(*g.Measured), "MISSED"
			if met {
				verdict = "reached"
			}
			if g.Goal == "" {
				verdict = "no goal here"
			}
		}
		t.Rows = append(t.Rows, []string{g.Name, g.Goal, measured, verdict, g.Note})
	}
	return (&page.Page{Sections: []page.Section{{Title: "Goals", Tables: []page.Table{t}}}}).WriteText(w)
}
