// Command gatebench measures the two gates over HTTP against the raw sessions: the same models on the same plan, in one run on one machine,
// taking turns. It prints a table and writes the figures as JSON. It fails when something could not be measured or an answer is wrong, and
// never because of a figure: those depend on the machine.
//
//	gatebench --ragate bin/ragate --data-dir .ragate [--out FILE] [--rounds N] [--phases queries,chunks,budgets]
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"ragate/benchmarks"
	"ragate/benchmarks/program"
	"ragate/inference"
	"ragate/inference/ort"
)

// The workloads of the gates. Ten and twenty chunks of about 128 tokens with the query.
var (
	gateQuery  = benchmarks.Workload{Name: "gate-query", Kind: inference.KindEmbedder, Texts: 1}
	gateChunks = benchmarks.Workload{Name: "gate-chunks-10x128", Kind: inference.KindReranker, Texts: 10, Low: 120, High: 128}
	gateBudget = benchmarks.Workload{Name: "gate-chunks-20x128-budget", Kind: inference.KindReranker, Texts: 20, Low: 120, High: 128}
)

const (
	budget       = 100 * time.Millisecond // of the budget phases
	unbounded    = 600_000                // ms: no budget
	queryClients = 16
	budgetMany   = 8
	warm         = 3 * time.Second
	window       = 3 * time.Second
	rawQueries   = 500
	latencyJobs  = 8
	timingProbes = 40
	wholeTries   = 5
)

// phaseNames are what --phases chooses from, in the order in which they run.
var phaseNames = []string{"queries", "chunks", "budgets"}

func main() {
	f := program.Flags{Seed: 20240608, Rounds: 5}
	phases := flag.String("phases", strings.Join(phaseNames, ","), "which to run")
	program.Main("gatebench", "gates.json", &f, func(ctx context.Context) error {
		return run(ctx, f.Program, f.DataDir, f.Out, f.Seed, f.Rounds, strings.Split(*phases, ","))
	})
}

// bench is what the phases share.
type bench struct {
	*benchmarks.Bench
	rounds int
}

func run(ctx context.Context, program, dataDir, out string, seed uint64, rounds int, phases []string) (err error) {
	for _, p := range phases {
		if !slices.Contains(phaseNames, p) {
			return fmt.Errorf("--phases: there is no phase %q; there are %s", p, strings.Join(phaseNames, ", "))
		}
	}
	opened, err := benchmarks.OpenBench(ctx, program, dataDir, seed)
	if err != nil {
		return err
	}
	defer func() { err = opened.Close(err) }()
	b := &bench{opened, rounds}
	b.Report.Settings = map[string]any{"rounds": rounds, "window_seconds": window.Seconds(), "budget_ms": budget.Milliseconds()}
	for i, phase := range []func(context.Context) error{b.queries, b.chunks, b.budgets} {
		if !slices.Contains(phases, phaseNames[i]) {
			continue
		}
		if err := phase(ctx); err != nil {
			return err
		}
	}
	if err := b.Report.Print(os.Stdout); err != nil {
		return err
	}
	return b.Report.Write(out)
}

// query and chunks are the gates' dialects. The pattern stage never takes these texts: they are questions of the corpus.
func query(_ inference.Kind, w benchmarks.Work) (string, any, string) {
	return "/v1/gate/query", map[string]any{"query": w.Texts[0], "budget_ms": unbounded}, `"stage":"semantic"`
}

func chunks(ms int) benchmarks.Dialect {
	return func(_ inference.Kind, w benchmarks.Work) (string, any, string) {
		list := make([]map[string]any, len(w.Texts))
		for i, t := range w.Texts {
			list[i] = map[string]any{"id": i, "text": t}
		}
		return "/v1/gate/chunks", map[string]any{"query": w.Query, "chunks": list, "budget_ms": ms, "explain": true, "return_text": false}, `"decision":`
	}
}

// queries compares decisions over HTTP with the raw session's embeddings.
func (b *bench) queries(ctx context.Context) error {
	pool := &benchmarks.Pool{Make: func() (benchmarks.Request, error) {
		return benchmarks.Dialect(query).Request(b.Embed.Encoder, gateQuery.Write(b.Texts))
	}}
	sized := func(tokens int) (float64, error) { // embeddings per second in batches of so many padded tokens
		var rows []ort.Row
		for range rawQueries {
			r, err := b.Embed.Encoder.Rows(gateQuery.Write(b.Texts))
			if err != nil {
				return 0, err
			}
			rows = append(rows, r...)
		}
		batches := b.Embed.Alike(rows, tokens)
		if err := b.Embed.Warm(batches); err != nil {
			return 0, err
		}
		took, err := b.Embed.Run(batches)
		return rawQueries / took.Seconds(), err
	}
	// The batch size that suits the session best is chosen once, beforehand: the best of several in each turn would be the one that ran
	// while other programs disturbed it least, and the server's turn has no such choice. The largest is what the clients' queries fill
	// when two streams share them: 8 queries of 32 tokens.
	size, top := 0, 0.0
	for _, tokens := range []int{0, 128, 256} {
		v, err := sized(tokens)
		if err != nil {
			return err
		}
		if v > top {
			size, top = tokens, v
		}
	}
	raw := func() (float64, error) { return sized(size) }
	served := func(t time.Duration) (float64, error) {
		if err := pool.Fill(int(2 * 400 * t.Seconds())); err != nil {
			return 0, err
		}
		d := benchmarks.Drive(b.Server.URL, benchmarks.Load{Clients: queryClients}, pool.Next)
		time.Sleep(t / 6)
		began := time.Now()
		seen := d.Measure(t, 1)
		took := time.Since(began)
		if all := d.Stop(); all.Failed > 0 {
			return 0, fmt.Errorf("%d requests failed, the first one: %w", all.Failed, all.FirstError)
		}
		return float64(seen.Requests) / took.Seconds(), nil
	}
	if _, err := served(warm); err != nil {
		return err
	}
	var raws, srvs, ratios []float64
	before, err := raw()
	if err != nil {
		return err
	}
	for range b.rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s, err := served(window)
		if err != nil {
			return err
		}
		after, err := raw()
		if err != nil {
			return err
		}
		raws, srvs, ratios = append(raws, after), append(srvs, s), append(ratios, s/((before+after)/2))
		before = after
	}
	section := fmt.Sprintf("query gate, semantic decisions, %d clients", queryClients)
	b.Report.Add(section, fmt.Sprintf("embeddings of the raw session, batches of %d tokens", size), "1/s", "", raws)
	b.Report.Add(section, "decisions over HTTP", "1/s", "", srvs)
	b.Report.Add(section, "decisions : embeddings, turn by turn", "", ">= 0.85", ratios)

	var shares []float64
	for range timingProbes {
		var a struct {
			Timings struct{ Similarity, Total float64 } `json:"timings_ms"`
		}
		if _, err := b.ask(http.DefaultClient, pool.Next(), &a); err != nil {
			return err
		}
		shares = append(shares, a.Timings.Similarity/a.Timings.Total)
	}
	b.Report.Add(section, "similarity's share of a decision's time, one at a time", "", "<= 0.02", shares)
	return nil
}

// chunks compares one client's answer with the raw session's time for the same rows.
func (b *bench) chunks(ctx context.Context) error {
	var raws, srvs, ratios []float64
	for round := range b.rounds + 1 {
		var raw, srv []float64
		for range latencyJobs {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			w := gateChunks.Write(b.Texts)
			rows, err := b.Rerank.Encoder.Rows(w)
			if err != nil {
				return err
			}
			r, err := chunks(unbounded).Request(b.Rerank.Encoder, w)
			if err != nil {
				return err
			}
			took, err := b.ask(http.DefaultClient, r, nil)
			if err != nil {
				return err
			}
			srv = append(srv, took.Seconds()*1e3)
			best := time.Duration(0)
			for _, batches := range [][]benchmarks.Batch{b.Rerank.Split(rows), b.Rerank.Alike(rows, 0)} {
				if err := b.Rerank.Warm(batches); err != nil {
					return err
				}
				took, err := b.Rerank.Run(batches)
				if err != nil {
					return err
				}
				if best == 0 || took < best {
					best = took
				}
			}
			raw = append(raw, best.Seconds()*1e3)
		}
		if round > 0 { // the first is the warm-up
			raws, srvs = append(raws, benchmarks.Median(raw)), append(srvs, benchmarks.Median(srv))
			ratios = append(ratios, benchmarks.Median(srv)/benchmarks.Median(raw))
		}
	}
	section := "chunk gate, 10 chunks of about 128 tokens, 1 client"
	b.Report.Add(section, "raw session, the better of two batches and single rows", "ms", "", raws)
	b.Report.Add(section, "over HTTP", "ms", "", srvs)
	b.Report.Add(section, "over HTTP : raw session", "", "<= 1.1", ratios)
	return nil
}

// budgets shows whether answers come in time, and how much is scored in it, of what the raw session could score.
//
// With one client the device is idle between its answers, so what counts is the time of one answer. What could be scored in it is found by
// doing it: the raw session gets rows of one request, alone in their runs, and those that it has finished at the end of the budget are
// counted, on one stream and on all, whichever finishes more. That is a whole number, unlike the product of rate and time, of which
// a part would be for a chunk that is not finished; that figure is reported beside. With many clients the device is never idle, an
// answer's end is another's beginning, and so the rate is what counts.
func (b *bench) budgets(ctx context.Context) error {
	batches := func() ([]benchmarks.Batch, error) {
		rows, err := b.Rerank.Encoder.Rows(gateBudget.Write(b.Texts))
		if err != nil {
			return nil, err
		}
		all := b.Rerank.Alike(rows, 0)
		return all, b.Rerank.Warm(all)
	}
	rate := func() (float64, error) { // rows per second
		all, err := batches()
		if err != nil {
			return 0, err
		}
		took, err := b.Rerank.Run(all)
		return float64(len(all)) / took.Seconds(), err
	}
	whole := func() (float64, error) { // rows in one budget
		best := 0.0
		for _, streams := range []int{1, b.Rerank.Streams()} {
			var counts []float64
			for range wholeTries {
				all, err := batches()
				if err != nil {
					return 0, err
				}
				n, err := b.Rerank.Within(all, streams, budget)
				if err != nil {
					return 0, err
				}
				counts = append(counts, float64(n))
			}
			best = max(best, benchmarks.Mean(counts))
		}
		return best, nil
	}
	for _, clients := range []int{1, budgetMany} {
		var p50, p99, within, share, parts []float64
		measure := func() (perSecond, inBudget float64, err error) {
			if perSecond, err = rate(); err == nil && clients == 1 {
				inBudget, err = whole()
			}
			return perSecond, inBudget, err
		}
		rateBefore, wholeBefore, err := measure()
		if err != nil {
			return err
		}
		for round := range b.rounds + 1 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			took, scored, span, err := b.budgetTurn(clients)
			if err != nil {
				return err
			}
			rateAfter, wholeAfter, err := measure()
			if err != nil {
				return err
			}
			if round > 0 {
				rate, answers := (rateBefore+rateAfter)/2, float64(len(took))
				if clients == 1 {
					share = append(share, float64(scored)/answers/((wholeBefore+wholeAfter)/2))
					parts = append(parts, float64(scored)/answers/(rate*budget.Seconds()))
				} else {
					share = append(share, float64(scored)/(rate*span.Seconds()))
				}
				a := punctual(took, budget+budget/10)
				p50, p99, within = append(p50, a.median), append(p99, a.p99), append(within, a.within)
			}
			rateBefore, wholeBefore = rateAfter, wholeAfter
		}
		section := fmt.Sprintf("chunk gate, 20 chunks of about 128 tokens, budget %s, %d clients", budget, clients)
		b.Report.Add(section, "answer, median", "ms", "", p50)
		b.Report.Add(section, "answer, 99th percentile", "ms", "<= 110", p99)
		b.Report.Add(section, "share of answers within budget + 10 %", "", "", within)
		goal := ">= 0.9"
		if clients > 1 {
			goal = ">= 0.7"
		}
		b.Report.Add(section, "chunks scored, of what the raw session could score in that time", "", goal, share)
		if clients == 1 {
			b.Report.Add(section, "chunks scored, of the raw session's rate times the budget", "", "", parts)
		}
	}
	return nil
}

// punctuality is how long answers took, in milliseconds, and the share of them that came in time.
type punctuality struct{ median, p99, within float64 }

// punctual sums up at least one answer.
func punctual(took []time.Duration, limit time.Duration) punctuality {
	slices.Sort(took)
	late, _ := slices.BinarySearch(took, limit+1)
	at := func(i int) float64 { return took[i].Seconds() * 1e3 }
	return punctuality{at(len(took) / 2), at((len(took) - 1) * 99 / 100), float64(late) / float64(len(took))}
}

// budgetTurn lets clients ask for a while and returns each answer's time, the chunks scored, and the time from first to last.
func (b *bench) budgetTurn(clients int) (took []time.Duration, scored int, span time.Duration, err error) {
	type pending struct {
		r      benchmarks.Request
		chunks int
	}
	var queue []pending
	for range int(window/budget)*clients*12/10 + clients {
		w := gateBudget.Write(b.Texts)
		r, err := chunks(int(budget.Milliseconds())).Request(b.Rerank.Encoder, w)
		if err != nil {
			return nil, 0, 0, err
		}
		queue = append(queue, pending{r, len(w.Texts)})
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range clients {
		wg.Go(func() {
			for time.Since(began) < window {
				mu.Lock()
				if len(queue) == 0 || err != nil {
					mu.Unlock()
					return
				}
				p := queue[0]
				queue = queue[1:]
				mu.Unlock()
				var a struct {
					Metadata struct {
						Unscored int `json:"chunks_unscored"`
					}
				}
				t, e := b.ask(client, p.r, &a)
				mu.Lock()
				err = cmp.Or(err, e)
				took, scored = append(took, t), scored+p.chunks-a.Metadata.Unscored
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return took, scored, time.Since(began), err
}

// ask sends one request, checks the answer and decodes it into a, when a is not nil.
func (b *bench) ask(client *http.Client, r benchmarks.Request, a any) (time.Duration, error) {
	began := time.Now()
	resp, err := client.Post(b.Server.URL+r.Path, "application/json", bytes.NewReader(r.Body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if n := bytes.Count(body, r.Mark); resp.StatusCode != http.StatusOK || n != r.Items {
		return 0, fmt.Errorf("%s: status %d, %d of %d items: %.300s", r.Path, resp.StatusCode, n, r.Items, body)
	}
	if a != nil {
		err = json.Unmarshal(body, a)
	}
	return took, err
}
