package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"ragate/benchmarks"
	"ragate/benchmarks/program"
	"ragate/inference"
	"ragate/inference/ort"
)

// config is one run.
type config struct {
	program.Flags
	clients        int           // reranking at once, throughput phase
	background     int           // reranking at once beside the single query
	window         time.Duration // measured, throughput phase
	warm           time.Duration // of the server before the first round
	ramp           time.Duration // from a phase's first request to the window
	latency        time.Duration // measured, each latency phase
	slice          time.Duration
	throughputOnly bool
	rawWindow      time.Duration // the raw session's turn, about
	jobs, queries  int           // that a latency phase has at least, on either side
	mixed, job     benchmarks.Workload
	extra          []string
}

var defaults = config{
	Flags: program.Flags{Seed: 20240607, Rounds: 5}, clients: 16, background: 8, window: 4 * time.Second, warm: 4 * time.Second, ramp: 500 * time.Millisecond,
	latency: 1500 * time.Millisecond, slice: 20 * time.Millisecond, rawWindow: 2500 * time.Millisecond, jobs: 6, queries: 50,
	mixed: benchmarks.Rerank10Mixed, job: benchmarks.Rerank10x128,
}

// budgets are the padded tokens of the raw session's batches that are tried; 0 runs every row alone. Larger ones gain
// nothing on a CPU, and cost a shape each.
var budgets = []int{0, 256, 512}

// maxLogitGap is how far the server's logit may be from the raw session's for the same pair: what batch mates may do in bf16, and more
// than that is another model.
const maxLogitGap = 0.005

// quietCPUs: with less than this in use by other processes, a turn is about the two that it compares.
const quietCPUs = 0.2

// session is what the phases share.
type session struct {
	config
	progress  io.Writer
	server    *benchmarks.Server
	meter     benchmarks.Meter
	writing   sync.Mutex // guards texts in pools: two drivers' pools may write at once when they run dry
	texts     *benchmarks.Texts
	rerank    *benchmarks.Raw
	embed     *benchmarks.Raw
	pools     struct{ mixed, jobs, query *benchmarks.Pool }
	report    *benchmarks.Report
	rate      float64 // tokens per second as last seen, from which phases are sized
	perMixed  float64 // tokens of a mixed request, about
	rawBudget int     // the best of budgets
}

func run(ctx context.Context, cfg config, progress io.Writer) (report *benchmarks.Report, err error) {
	s := &session{config: cfg, progress: progress}
	s.say("starting %s", cfg.Program)
	b, err := benchmarks.OpenBench(ctx, cfg.Program, cfg.DataDir, cfg.Seed, append([]string{"--slice", cfg.slice.String()}, cfg.extra...)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = b.Close(err) }()
	s.server, s.meter.Server, s.rerank, s.embed, s.texts, s.report = b.Server, b.Server, b.Rerank, b.Embed, b.Texts, b.Report
	s.report.Settings = map[string]any{
		"rounds": cfg.Rounds, "clients": cfg.clients, "window_seconds": cfg.window.Seconds(), "slice_ms": cfg.slice.Milliseconds(),
		"latency_seconds": cfg.latency.Seconds(), "background_clients": cfg.background, "raw_budgets": budgets,
		"workloads": []string{s.mixed.Name, s.job.Name, benchmarks.EmbedQuery.Name},
	}
	s.pools.mixed = s.pool(s.mixed, s.rerank.Encoder)
	s.pools.jobs = s.pool(s.job, s.rerank.Encoder)
	s.pools.query = s.pool(benchmarks.EmbedQuery, s.embed.Encoder)
	if err := s.sameAnswers(); err != nil {
		return nil, err
	}
	if err := s.calibrate(); err != nil {
		return nil, err
	}
	if err := s.throughput(ctx); err != nil {
		return nil, err
	}
	if !cfg.throughputOnly {
		if err := s.latencies(ctx); err != nil {
			return nil, err
		}
	}
	return s.report, s.finish()
}

func (s *session) say(format string, a ...any) { fmt.Fprintf(s.progress, format+"\n", a...) }

func (s *session) pool(w benchmarks.Workload, e *benchmarks.Encoder) *benchmarks.Pool {
	return &benchmarks.Pool{Make: func() (benchmarks.Request, error) {
		s.writing.Lock()
		defer s.writing.Unlock()
		return benchmarks.Dialect(benchmarks.Ragate).Request(e, w.Write(s.texts))
	}}
}

// rows are those of n requests.
func (s *session) rows(w benchmarks.Workload, e *benchmarks.Encoder, n int) ([]ort.Row, error) {
	var out []ort.Row
	for range n {
		rows, err := e.Rows(w.Write(s.texts))
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// sameAnswers makes sure that server and raw session compute the same thing.
func (s *session) sameAnswers() error {
	w := s.mixed.Write(s.texts)
	got, err := s.server.Rerank(w)
	if err != nil {
		return err
	}
	rows, err := s.rerank.Encoder.Rows(w)
	if err != nil {
		return err
	}
	for i, row := range rows {
		want, err := s.rerank.Logit(row)
		if err != nil {
			return err
		}
		if gap := math.Abs(float64(got[i] - want)); !(gap <= maxLogitGap) {
			return fmt.Errorf("pair %d of %d tokens: the server's logit is %v, the raw session's %v: they do not run the same model", i, len(row.IDs), got[i], want)
		}
	}
	return nil
}

// calibrate finds the batch size with which the raw session is fastest on the mixed rows.
func (s *session) calibrate() error {
	const passes = 3
	tried := budgets
	if s.rerank.Single {
		tried = budgets[:1]
	}
	// A first impression of the rate, from which the rows are counted.
	if err := s.requestRate(2); err != nil {
		return err
	}
	rows, err := s.rows(s.mixed, s.rerank.Encoder, s.rawRequests())
	if err != nil {
		return err
	}
	rates := make(map[int][]float64)
	for pass := range passes {
		for _, b := range tried {
			batches := s.rerank.Alike(rows, b)
			if pass == 0 {
				if err := s.rerank.Warm(batches); err != nil {
					return err
				}
			}
			took, err := s.rerank.Run(batches)
			if err != nil {
				return err
			}
			rates[b] = append(rates[b], float64(benchmarks.Tokens(rows))/took.Seconds())
		}
	}
	s.rawBudget = slices.MaxFunc(tried, func(a, b int) int {
		return cmp.Compare(benchmarks.Median(rates[a]), benchmarks.Median(rates[b]))
	})
	for _, b := range tried {
		name := fmt.Sprintf("raw session, batches of up to %d padded tokens of one length", b)
		if b == 0 {
			name = "raw session, every row alone"
		}
		s.report.Add("Finding the raw session's best, "+s.mixed.Name, name, "tokens/s", "", rates[b])
	}
	s.rate = benchmarks.Median(rates[s.rawBudget])
	s.say("raw session: best with budget %d, %.0f tokens/s", s.rawBudget, s.rate)
	return nil
}

// requestRate lets the raw session run some requests' rows alone, for a first impression.
func (s *session) requestRate(requests int) error {
	rows, err := s.rows(s.mixed, s.rerank.Encoder, requests)
	if err != nil {
		return err
	}
	batches := s.rerank.Alike(rows, 0)
	if err := s.rerank.Warm(batches); err != nil {
		return err
	}
	took, err := s.rerank.Run(batches)
	s.rate = float64(benchmarks.Tokens(rows)) / took.Seconds()
	s.perMixed = float64(benchmarks.Tokens(rows)) / float64(requests)
	return err
}

// rawRequests is how many requests' rows fill the raw session's turn.
func (s *session) rawRequests() int { return max(3, int(s.rate*s.rawWindow.Seconds()/s.perMixed)) }

// rawPhase is the raw session's turn: tokens per second, and CPU seconds per million tokens.
type rawPhase struct{ rate, cpu, others float64 }

func (s *session) rawTurn() (p rawPhase, err error) {
	rows, err := s.rows(s.mixed, s.rerank.Encoder, s.rawRequests())
	if err != nil {
		return p, err
	}
	batches := s.rerank.Alike(rows, s.rawBudget)
	if err := s.rerank.Warm(batches); err != nil {
		return p, err
	}
	runtime.GC() // the texts' garbage is not the session's
	before, err := s.meter.Read()
	if err != nil {
		return p, err
	}
	took, err := s.rerank.Run(batches)
	if err != nil {
		return p, err
	}
	after, err := s.meter.Read()
	if err != nil {
		return p, err
	}
	spent, tokens := after.Since(before), float64(benchmarks.Tokens(rows))
	return rawPhase{tokens / took.Seconds(), spent.Client / tokens * 1e6, spent.Others / spent.Seconds}, nil
}

// serverPhase is the server's turn under the clients' load.
type serverPhase struct {
	rate, cpu, client, others   float64
	padding, rows, tokens, idle float64
	p50, p99                    float64
	rss                         float64
}

func (s *session) serverTurn() (p serverPhase, err error) {
	model, err := s.server.Info.Model(inference.KindReranker)
	if err != nil {
		return p, err
	}
	seconds := (s.ramp + s.window).Seconds()
	if err := s.pools.mixed.Fill(2*s.clients + int(1.5*seconds*s.rate/s.perMixed)); err != nil {
		return p, err
	}
	runtime.GC()
	start, err := s.meter.Read()
	if err != nil {
		return p, err
	}
	d := benchmarks.Drive(s.server.URL, benchmarks.Load{Clients: s.clients}, s.pools.mixed.Next)
	defer d.Stop()
	time.Sleep(s.ramp)
	before, err := s.meter.Read()
	if err != nil {
		return p, err
	}
	seen := d.Measure(s.window, 1)
	after, err := s.meter.Read()
	if err != nil {
		return p, err
	}
	all := d.Stop()
	end, err := s.meter.Read()
	if err != nil {
		return p, err
	}
	if all.Failed > 0 {
		return p, fmt.Errorf("%d of %d requests failed, the first one: %w", all.Failed, all.Failed+all.Requests, all.FirstError)
	}
	var count [4]benchmarks.BatchCounters
	for i, r := range []benchmarks.Reading{start, before, after, end} {
		if count[i], err = r.Metrics.Batches(model.ID); err != nil {
			return p, err
		}
	}
	// The window is measured by the server's own counter, since a request lasts about as long as the window; so the counter must be right.
	if ran := count[3].Minus(count[0]); int(ran.Tokens) != all.Tokens || int(ran.Rows) != all.Items {
		return p, fmt.Errorf("the server says it ran %.0f tokens in %.0f rows, but it was sent %d tokens in %d rows", ran.Tokens, ran.Rows, all.Tokens, all.Items)
	}
	c, spent := count[2].Minus(count[1]), after.Since(before)
	s.rate = c.Tokens / spent.Seconds
	p = serverPhase{
		rate: s.rate, cpu: spent.Server / c.Tokens * 1e6, client: spent.Client / spent.Seconds, others: spent.Others / spent.Seconds,
		padding: c.Padding / (c.Padding + c.Tokens), rows: c.Rows / c.Batches, tokens: c.Tokens / c.Batches,
		idle: 1 - c.Seconds/spent.Seconds/float64(model.Streams), rss: float64(after.Server.RSS >> 20),
		p50: float64(seen.Latency.ValueAtQuantile(50)) / 1e3, p99: float64(seen.Latency.ValueAtQuantile(99)) / 1e3,
	}
	return p, nil
}

// throughput lets raw session and server take turns. Each server phase is held against the mean of the raw phases before and after it.
func (s *session) throughput(ctx context.Context) error {
	s.say("warming the server for %s", s.warm)
	d := benchmarks.Drive(s.server.URL, benchmarks.Load{Clients: s.clients}, s.pools.mixed.Next)
	time.Sleep(s.warm)
	if t := d.Stop(); t.Failed > 0 {
		return fmt.Errorf("%d requests failed, the first one: %w", t.Failed, t.FirstError)
	}
	raw := make([]rawPhase, s.Rounds+1)
	srv := make([]serverPhase, s.Rounds)
	var err error
	if raw[0], err = s.rawTurn(); err != nil {
		return err
	}
	for i := range srv {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if srv[i], err = s.serverTurn(); err != nil {
			return err
		}
		if raw[i+1], err = s.rawTurn(); err != nil {
			return err
		}
		s.say("round %d of %d: server %.0f tokens/s, raw session %.0f and %.0f; others took %.2f and %.2f CPUs",
			i+1, s.Rounds, srv[i].rate, raw[i].rate, raw[i+1].rate, srv[i].others, raw[i+1].others)
	}
	section := fmt.Sprintf("%s, %d clients", s.mixed.Name, s.clients)
	rawOf := func(f func(rawPhase) float64) (out []float64) {
		for _, p := range raw {
			out = append(out, f(p))
		}
		return out
	}
	of := func(f func(serverPhase) float64) (out []float64) {
		for _, p := range srv {
			out = append(out, f(p))
		}
		return out
	}
	pair := func(f func(srv serverPhase, raw rawPhase) float64) (out []float64) {
		for i, p := range srv {
			a, b := raw[i], raw[i+1]
			out = append(out, f(p, rawPhase{rate: (a.rate + b.rate) / 2, cpu: (a.cpu + b.cpu) / 2}))
		}
		return out
	}
	add := func(name, unit, goal string, v []float64) { s.report.Add(section, name, unit, goal, v) }
	add("useful tokens of the raw session, at its best", "tokens/s", "", rawOf(func(p rawPhase) float64 { return p.rate }))
	add("useful tokens of the server, over HTTP", "tokens/s", "", of(func(p serverPhase) float64 { return p.rate }))
	add("server : raw session, turn by turn", "", ">= 0.92", pair(func(p serverPhase, r rawPhase) float64 { return p.rate / r.rate }))
	var quiet []float64
	for i, p := range srv {
		if max(raw[i].others, p.others, raw[i+1].others) < quietCPUs {
			quiet = append(quiet, p.rate/((raw[i].rate+raw[i+1].rate)/2))
		}
	}
	if len(quiet) > 0 && len(quiet) < len(srv) {
		add(fmt.Sprintf("the same, %d of %d turns in which others used under %g CPUs", len(quiet), len(srv), quietCPUs), "", "", quiet)
	}
	add("CPU time of the raw session", "s per million tokens", "", rawOf(func(p rawPhase) float64 { return p.cpu }))
	add("CPU time of the server", "s per million tokens", "", of(func(p serverPhase) float64 { return p.cpu }))
	add("raw session : server in CPU time a token, turn by turn", "", ">= 0.95", pair(func(p serverPhase, r rawPhase) float64 { return r.cpu / p.cpu }))
	add("padding, of all tokens that ran", "", "<= 0.08", of(func(p serverPhase) float64 { return p.padding }))
	add("rows of a batch", "", "", of(func(p serverPhase) float64 { return p.rows }))
	add("useful tokens of a batch", "", "", of(func(p serverPhase) float64 { return p.tokens }))
	add("time that a stream was without a batch", "", "", of(func(p serverPhase) float64 { return p.idle }))
	add("latency, p50", "ms", "", of(func(p serverPhase) float64 { return p.p50 }))
	add("latency, p99", "ms", "", of(func(p serverPhase) float64 { return p.p99 }))
	add("resident memory of the server", "MB", "", of(func(p serverPhase) float64 { return p.rss }))
	add("the client's own use", "CPUs", "", of(func(p serverPhase) float64 { return p.client }))
	add("use by other processes of the machine, server's turns", "CPUs", "", of(func(p serverPhase) float64 { return p.others }))
	add("use by other processes of the machine, raw session's turns", "CPUs", "", rawOf(func(p rawPhase) float64 { return p.others }))
	return nil
}

// latencies measures one client's rerank and a single query's embedding, each beside the raw session's time for the same work.
func (s *session) latencies(ctx context.Context) error {
	var (
		rawAlone, rawSplit, one, oneShare                  []float64
		rawQuery, query, queryShare, beside, besideAllowed []float64
	)
	all := map[string]*benchmarks.Tally{}
	for i := range s.Rounds {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		alone, split, err := s.rawJobsTurn()
		if err != nil {
			return err
		}
		rerank, err := s.latencyTurn(s.pools.jobs, s.jobs, 0)
		if err != nil {
			return err
		}
		rawAlone, rawSplit = append(rawAlone, alone), append(rawSplit, split)
		one = append(one, quantile(rerank, 50))
		oneShare = append(oneShare, quantile(rerank, 50)/min(alone, split))
		merge(all, s.job.Name, rerank)

		single, err := s.rawQueriesTurn()
		if err != nil {
			return err
		}
		quiet, err := s.latencyTurn(s.pools.query, s.queries, 0)
		if err != nil {
			return err
		}
		loaded, err := s.latencyTurn(s.pools.query, s.queries, s.background)
		if err != nil {
			return err
		}
		rawQuery, query = append(rawQuery, single), append(query, quantile(quiet, 50))
		queryShare = append(queryShare, quantile(quiet, 50)/single)
		beside = append(beside, quantile(loaded, 50))
		allowed := s.slice.Seconds()*1e3 + 1.5*quantile(quiet, 50)
		besideAllowed = append(besideAllowed, quantile(loaded, 99)/allowed)
		merge(all, "quiet", quiet)
		merge(all, "loaded", loaded)
		s.say("round %d of %d: %s in %.0f ms, raw session %.0f; a query in %.1f ms, raw session %.1f; beside %d rerankers p50 %.1f, p99 %.1f",
			i+1, s.Rounds, s.job.Name, one[i], min(alone, split), query[i], single, s.background, beside[i], quantile(loaded, 99))
	}
	whole := func(section, name, key string, q float64, goal string) {
		s.report.Add(section, fmt.Sprintf("%s, p%.0f of all %d", name, q, all[key].Requests), "ms", goal, []float64{quantile(*all[key], q)})
	}
	sec := s.job.Name + ", 1 client"
	s.report.Add(sec, "raw session, rows alone", "ms", "", rawAlone)
	s.report.Add(sec, "raw session, one batch a stream", "ms", "", rawSplit)
	s.report.Add(sec, "server, over HTTP, p50", "ms", "", one)
	s.report.Add(sec, "server : raw session, turn by turn", "", "", oneShare)
	whole(sec, "server, over HTTP", s.job.Name, 99, "")
	sec = benchmarks.EmbedQuery.Name + ", 1 client"
	s.report.Add(sec, "raw session, one query on one stream", "ms", "", rawQuery)
	s.report.Add(sec, "server, over HTTP, p50", "ms", "", query)
	s.report.Add(sec, "server : raw session, turn by turn", "", "", queryShare)
	whole(sec, "server, over HTTP", "quiet", 99, "")
	sec = fmt.Sprintf("%s, 1 client, while %d clients rerank", benchmarks.EmbedQuery.Name, s.background)
	s.report.Add(sec, "server, over HTTP, p50", "ms", "", beside)
	whole(sec, "server, over HTTP", "loaded", 99, "")
	s.report.Add(sec, "p99 : (one slice + 1.5 × its p50 without others), turn by turn", "", "<= 1", besideAllowed)
	return nil
}

func quantile(t benchmarks.Tally, q float64) float64 {
	return float64(t.Latency.ValueAtQuantile(q)) / 1e3
}

func merge(all map[string]*benchmarks.Tally, key string, t benchmarks.Tally) {
	if all[key] == nil {
		all[key] = &t
		return
	}
	all[key].Add(t)
}

// rawJobsTurn gives the median milliseconds of a ten-row job on the raw session, in its two sensible arrangements.
func (s *session) rawJobsTurn() (alone, split float64, err error) {
	var times [2][]float64
	for range s.jobs {
		rows, err := s.rows(s.job, s.rerank.Encoder, 1)
		if err != nil {
			return 0, 0, err
		}
		ways := [2][]benchmarks.Batch{s.rerank.Alike(rows, 0), s.rerank.Split(rows)}
		if s.rerank.Single {
			ways[1] = ways[0]
		}
		for k, batches := range ways {
			if err := s.rerank.Warm(batches); err != nil {
				return 0, 0, err
			}
			took, err := s.rerank.Run(batches)
			if err != nil {
				return 0, 0, err
			}
			times[k] = append(times[k], took.Seconds()*1e3)
		}
	}
	return benchmarks.Median(times[0]), benchmarks.Median(times[1]), nil
}

// rawQueriesTurn gives the median milliseconds of one query on one stream.
func (s *session) rawQueriesTurn() (float64, error) {
	rows, err := s.rows(benchmarks.EmbedQuery, s.embed.Encoder, s.queries)
	if err != nil {
		return 0, err
	}
	if err := s.embed.Warm(s.embed.Alike(rows, 0)); err != nil {
		return 0, err
	}
	var times []float64
	for _, row := range rows {
		took, err := s.embed.Run([]benchmarks.Batch{{Rows: []ort.Row{row}, Cols: s.embed.Cols(row)}})
		if err != nil {
			return 0, err
		}
		times = append(times, took.Seconds()*1e3)
	}
	return benchmarks.Median(times), nil
}

// latencyTurn lets one client ask for what pool has, while others rerank mixed passages.
func (s *session) latencyTurn(pool *benchmarks.Pool, want, background int) (t benchmarks.Tally, err error) {
	if err := pool.Fill(int(100 * (s.ramp + s.latency).Seconds())); err != nil {
		return t, err
	}
	measure := s.latency
	var others *benchmarks.Driver
	if background > 0 {
		if err := s.pools.mixed.Fill(2 * background); err != nil {
			return t, err
		}
		others = benchmarks.Drive(s.server.URL, benchmarks.Load{Clients: background}, s.pools.mixed.Next)
		defer others.Stop()
		time.Sleep(s.ramp)
		measure *= 2
	}
	d := benchmarks.Drive(s.server.URL, benchmarks.Load{Clients: 1}, pool.Next)
	t = d.Measure(measure, want)
	d.Stop()
	if others != nil {
		if o := others.Stop(); o.Failed > 0 {
			return t, fmt.Errorf("%d requests failed beside, the first one: %w", o.Failed, o.FirstError)
		}
	}
	if t.Failed > 0 || t.Requests == 0 {
		return t, fmt.Errorf("%d requests were answered in %s and %d failed, the first one: %w", t.Requests, measure, t.Failed, t.FirstError)
	}
	return t, nil
}

// finish adds what the whole run cost.
func (s *session) finish() error {
	p, err := benchmarks.ReadProcess(s.server.PID())
	if err != nil {
		return err
	}
	s.report.Add("The whole run", "resident memory of the server, at its peak", "MB", "<= 700", []float64{float64(p.PeakRSS >> 20)})
	s.report.Add("The whole run", "threads of the server", "", "", []float64{float64(p.Threads)})
	return nil
}
