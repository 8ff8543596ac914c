// Command gatebench measures the two gates over HTTP against the raw sessions: the same models on the same plan, in one run on one machine,
// taking turns. It prints a table and writes the figures as JSON. It fails when something could not be measured or an answer is wrong, and
// never because of a figure: those depend on the machine.
//
//	gatebench --ragate bin/ragate --data-dir .ragate [--out FILE] [--rounds N]
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"ragate/benchmarks"
	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
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
	rawQueries   = 300
	latencyJobs  = 8
	timingProbes = 40
)

func main() {
	program := flag.String("ragate", "bin/ragate", "the program under test")
	dataDir := flag.String("data-dir", ".ragate", "the store that `make setup` fills")
	out := flag.String("out", "", "file for the figures as JSON (default: benchmarks/gates.json in the store)")
	seed := flag.Uint64("seed", 20240608, "of the texts")
	rounds := flag.Int("rounds", 5, "times that each phase is run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *out == "" {
		*out = filepath.Join(*dataDir, "benchmarks", "gates.json")
	}
	if err := run(ctx, *program, *dataDir, *out, *seed, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "gatebench:", err)
		os.Exit(1)
	}
}

// bench is what the phases share.
type bench struct {
	server        *benchmarks.Server
	texts         *benchmarks.Texts
	embed, rerank *benchmarks.Raw
	report        *benchmarks.Report
	rounds        int
}

func run(ctx context.Context, program, dataDir, out string, seed uint64, rounds int) (err error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	store := &models.Store{Dir: dir}
	lib, err := store.RuntimeLibrary()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "gatebench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{report: benchmarks.NewReport(seed), rounds: rounds}
	b.server, err = benchmarks.StartServer(ctx, benchmarks.ServerConfig{Program: program, Args: []string{"--data-dir", dir}, Log: filepath.Join(tmp, "log")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.Close()) }()
	rt, err := ort.Open(lib)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	open := func(kind inference.Kind, name string) (*benchmarks.Raw, error) {
		info, err := b.server.Info.Model(kind)
		if err != nil {
			return nil, err
		}
		m, err := store.Resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		if m, err = m.As(models.Kind(kind)); err != nil {
			return nil, err
		}
		return benchmarks.OpenRaw(rt, filepath.Join(dir, "graphs"), m, info)
	}
	if b.embed, err = open(inference.KindEmbedder, models.DefaultEmbedder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.embed.Close()) }()
	if b.rerank, err = open(inference.KindReranker, models.DefaultReranker); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.rerank.Close()) }()
	b.report.Version, b.report.Runtime, b.report.Models = b.server.Info.Version, rt.Version(), b.server.Info.Models
	b.report.Settings = map[string]any{"rounds": rounds, "window_seconds": window.Seconds(), "budget_ms": budget.Milliseconds()}
	if b.texts, err = benchmarks.NewTexts(seed, b.rerank.Encoder.Count); err != nil {
		return err
	}
	for _, phase := range []func(context.Context) error{b.queries, b.chunks, b.budgets} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	if err := b.report.Print(os.Stdout); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return b.report.Write(out)
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
		return benchmarks.Dialect(query).Request(b.embed.Encoder, gateQuery.Write(b.texts))
	}}
	raw := func() (float64, error) {
		var rows []ort.Row
		for range rawQueries {
			r, err := b.embed.Encoder.Rows(gateQuery.Write(b.texts))
			if err != nil {
				return 0, err
			}
			rows = append(rows, r...)
		}
		var best time.Duration
		for _, tokens := range []int{0, 128, 256} { // the batch size that suits it best
			batches := b.embed.Alike(rows, tokens)
			if err := b.embed.Warm(batches); err != nil {
				return 0, err
			}
			took, err := b.embed.Run(batches)
			if err != nil {
				return 0, err
			}
			if best == 0 || took < best {
				best = took
			}
		}
		return rawQueries / best.Seconds(), nil
	}
	served := func(t time.Duration) (float64, error) {
		if err := pool.Fill(int(2 * 400 * t.Seconds())); err != nil {
			return 0, err
		}
		d := benchmarks.Drive(b.server.URL, benchmarks.Load{Clients: queryClients}, pool.Next)
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
	b.report.Add(section, "embeddings of the raw session, at its best", "1/s", "", raws)
	b.report.Add(section, "decisions over HTTP", "1/s", "", srvs)
	b.report.Add(section, "decisions : embeddings, turn by turn", "", ">= 0.85", ratios)

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
	b.report.Add(section, "similarity's share of a decision's time, one at a time", "", "<= 0.02", shares)
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
			w := gateChunks.Write(b.texts)
			rows, err := b.rerank.Encoder.Rows(w)
			if err != nil {
				return err
			}
			r, err := chunks(unbounded).Request(b.rerank.Encoder, w)
			if err != nil {
				return err
			}
			took, err := b.ask(http.DefaultClient, r, nil)
			if err != nil {
				return err
			}
			srv = append(srv, took.Seconds()*1e3)
			best := time.Duration(0)
			for _, batches := range [][]benchmarks.Batch{b.rerank.Split(rows), b.rerank.Alike(rows, 0)} {
				if err := b.rerank.Warm(batches); err != nil {
					return err
				}
				took, err := b.rerank.Run(batches)
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
	b.report.Add(section, "raw session, the better of two batches and single rows", "ms", "", raws)
	b.report.Add(section, "over HTTP", "ms", "", srvs)
	b.report.Add(section, "over HTTP : raw session", "", "<= 1.1", ratios)
	return nil
}

// budgets shows whether answers come in time, and how much is scored in it, of what the raw session could score.
func (b *bench) budgets(ctx context.Context) error {
	rate := func() (float64, error) { // rows per second
		var rows []ort.Row
		for range 2 {
			r, err := b.rerank.Encoder.Rows(gateBudget.Write(b.texts))
			if err != nil {
				return 0, err
			}
			rows = append(rows, r...)
		}
		batches := b.rerank.Alike(rows, 0)
		if err := b.rerank.Warm(batches); err != nil {
			return 0, err
		}
		took, err := b.rerank.Run(batches)
		return float64(len(rows)) / took.Seconds(), err
	}
	for _, clients := range []int{1, budgetMany} {
		var p50, p99, within, share []float64
		before, err := rate()
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
			after, err := rate()
			if err != nil {
				return err
			}
			if round > 0 {
				could := (before + after) / 2
				if clients == 1 { // between its answers the device is idle: what counts is the time it was given
					share = append(share, float64(scored)/(could*budget.Seconds()*float64(len(took))))
				} else {
					share = append(share, float64(scored)/(could*span.Seconds()))
				}
				slices.Sort(took)
				late := len(took)
				for i, t := range took {
					if t > budget+budget/10 {
						late = i
						break
					}
				}
				p50, p99 = append(p50, took[len(took)/2].Seconds()*1e3), append(p99, took[(len(took)-1)*99/100].Seconds()*1e3)
				within = append(within, float64(late)/float64(len(took)))
			}
			before = after
		}
		section := fmt.Sprintf("chunk gate, 20 chunks of about 128 tokens, budget %s, %d clients", budget, clients)
		b.report.Add(section, "answer, median", "ms", "", p50)
		b.report.Add(section, "answer, 99th percentile", "ms", "<= 110", p99)
		b.report.Add(section, "share of answers within budget + 10 %", "", "", within)
		goal := ">= 0.9"
		if clients > 1 {
			goal = ">= 0.7"
		}
		b.report.Add(section, "chunks scored, of what the raw session could score in that time", "", goal, share)
	}
	return nil
}

// budgetTurn lets clients ask for a while and returns each answer's time, the chunks scored, and the time from first to last.
func (b *bench) budgetTurn(clients int) (took []time.Duration, scored int, span time.Duration, err error) {
	type pending struct {
		r      benchmarks.Request
		chunks int
	}
	var queue []pending
	for range int(window/budget)*clients*12/10 + clients {
		w := gateBudget.Write(b.texts)
		r, err := chunks(int(budget.Milliseconds())).Request(b.rerank.Encoder, w)
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
	resp, err := client.Post(b.server.URL+r.Path, "application/json", bytes.NewReader(r.Body))
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
