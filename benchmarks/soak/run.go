package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ragate/benchmarks"
	"ragate/inference"
	"ragate/models"
)

// config is one run.
type config struct {
	program, dataDir string
	seed             uint64
	requests         int
	good, bad        int // different requests of each sort
	clients          int
	reload           int     // requests from one reload to the next
	sample           int     // requests from one look at memory to the next
	warm             float64 // share of the requests before memory is looked at
	holdMemory       bool
	limit            time.Duration // no request is sent after it; 0: none
}

var long = config{seed: 20240609, requests: 20_000, good: 180, bad: 57, clients: 8, reload: 500, sample: 20, warm: 0.25, holdMemory: true}

// shortened is the form for continuous integration.
func (c config) shortened() config {
	c.requests, c.good, c.bad, c.reload, c.sample, c.holdMemory = 1500, 108, 57, 150, 5, false
	return c
}

// What clients do beside asking and waiting, by the share of requests.
const (
	badShare    = 0.20
	cancelShare = 0.05 // leave at any time until cancelWithin has passed
	uploadShare = 0.02 // leave half way through the body
)

const (
	cancelWithin = 60 * time.Millisecond
	patience     = 5 * time.Minute  // for one answer: it catches what hangs
	settling     = 30 * time.Second // for what is left behind to go away
)

// allowed is how far apart an answer alone and one among others may be. Weights are read as float32 or bfloat16 and padded lengths are multiples of
// 16: then a logit moves by 0.0014 at most (docs/design.md). A server whose own measurement says more is allowed that, and says so in /info.
var allowed = tolerance{cosine: 0.99999, logit: 0.005}

// counters are what a run counts, under one lock.
type counters struct {
	sync.Mutex
	answered, failed, cancelled, refused int
	wrong                                []string // the first of them
	wrongs                               int
	gap                                  gap
	memory, inGo                         []sample // resident bytes, and those of them that are Go's
}

func (c *counters) fault(format string, args ...any) {
	c.Lock()
	defer c.Unlock()
	c.wrongs++
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

type runner struct {
	config
	server *benchmarks.Server
	client *http.Client
	cases  []*testCase // the good ones, then the bad ones
	tol    tolerance
	counters
}

func run(ctx context.Context, cfg config, progress io.Writer) (report *benchmarks.Report, err error) {
	dir, err := filepath.Abs(cfg.dataDir)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "soak-")
	if err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	logFile := filepath.Join(tmp, "server.log")
	r := &runner{config: cfg, tol: allowed, client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: cfg.clients, DisableCompression: true}}}
	say("starting %s", cfg.program)
	if r.server, err = benchmarks.StartServer(ctx, benchmarks.ServerConfig{Program: cfg.program, Args: []string{"--data-dir", dir}, Log: logFile}); err != nil {
		return nil, err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, r.server.Close())
		}
		if err == nil {
			err = os.RemoveAll(tmp)
		}
	}()
	if err := r.write(ctx, dir); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.serial(ctx); err != nil {
		return nil, err
	}
	say("%d requests answered one after another in %s", len(r.cases), time.Since(began).Round(time.Second))

	before, err := r.settle(nil)
	if err != nil {
		return nil, err
	}
	began = time.Now()
	sent, reloads, err := r.load(ctx, say)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := r.settle(before)
	if err != nil {
		return nil, err
	}
	closed = true
	stop := r.server.Close()
	if stop != nil {
		r.fault("SIGTERM: %v", stop)
	}
	errorLines, reloaded, err := readLog(logFile)
	if err != nil {
		return nil, err
	}
	if reloads > 0 && reloaded == 0 {
		r.fault("the log has no reload, %d were asked for", reloads)
	}
	for _, line := range errorLines {
		r.fault("the log has an error: %.300s", line)
	}
	for _, w := range r.wrong {
		say("WRONG: %s", w)
	}

	report = benchmarks.NewReport(cfg.seed)
	report.Version, report.Models = r.server.Info.Version, r.server.Info.Models
	report.Settings = map[string]any{
		"requests": sent, "different_good": cfg.good, "different_bad": cfg.bad, "clients": cfg.clients, "reload_every": cfg.reload,
		"bad_share": badShare, "cancel_share": cancelShare, "upload_share": uploadShare, "warm_share": cfg.warm,
		"allowed_cosine": r.tol.cosine, "allowed_logit": r.tol.logit,
	}
	one := func(section, name, unit, goal string, v float64) { report.Add(section, name, unit, goal, []float64{v}) }
	const answers, left, memory = "Answers under load against the same requests alone", "What is left behind", "Resident memory after the warm-up"
	one(answers, "wrong answers", "requests", "<= 0", float64(r.wrongs))
	one(answers, "right answers", "requests", "", float64(r.answered))
	one(answers, "failures by design, as expected", "requests", "", float64(r.failed))
	one(answers, "left by the client", "requests", "", float64(r.cancelled))
	one(answers, "refused as the queue or memory was full", "requests", "", float64(r.refused))
	one(answers, "reloads of the references, in the log", "reloads", "", float64(reloaded))
	one(answers, "largest distance of a vector (1 - cosine)", "", "", r.gap.cosine)
	one(answers, "largest distance of a logit", "", "", r.gap.logit)
	one(answers, "largest distance of a similarity", "", "", r.gap.similarity)
	one(answers, "time", "s", "", took.Seconds())
	for _, g := range gauges {
		goal := "<= 0"
		if g.base {
			goal = fmt.Sprintf("<= %g", before[g.metric]+g.slack)
		}
		one(left, g.metric, "", goal, after[g.metric])
	}
	warm := int(cfg.warm * float64(sent))
	afterWarm := func(all []sample) []sample {
		return slices.DeleteFunc(slices.Clone(all), func(s sample) bool { return s.x < float64(warm) })
	}
	samples, inGo := afterWarm(r.memory), afterWarm(r.inGo)
	rise, half, err := slope(samples)
	if err != nil {
		return nil, err
	}
	const unit, per = "% per 10,000 requests", 10_000 * 100
	goal := ""
	if cfg.holdMemory {
		goal = "<= 1"
	}
	one(memory, "slope, absolute value", unit, goal, math.Abs(rise)*per)
	one(memory, "slope", unit, "", rise*per)
	one(memory, "slope, lower end of the 95 % confidence interval", unit, "", (rise-half)*per)
	one(memory, "slope, upper end of the 95 % confidence interval", unit, "", (rise+half)*per)
	// Which part it is: Go's, whose garbage follows the load, or the runtime's, where a leak would be.
	native := make([]sample, len(samples))
	for i := range samples {
		native[i] = sample{samples[i].x, samples[i].y - inGo[i].y}
	}
	if rise, half, err = slope(native); err != nil {
		return nil, err
	}
	one(memory, "slope of what is not Go's", unit, "", rise*per)
	one(memory, "half width of its 95 % confidence interval", unit, "", half*per)
	mb := make([]float64, len(samples))
	for i, s := range samples {
		mb[i] = s.y / 1e6
	}
	report.Add(memory, "resident memory", "MB", "", slices.Clone(mb))
	for i, s := range inGo {
		mb[i] = s.y / 1e6
	}
	report.Add(memory, "of it Go's", "MB", "", slices.Clone(mb))
	return report, nil
}

// verdict is an error that names every claim which does not hold.
func verdict(r *benchmarks.Report) error {
	var errs []error
	held := 0
	for _, x := range r.Results {
		met, err := x.Met()
		if err == nil && !met {
			err = fmt.Errorf("%s is %g, %s was claimed", x.Name, x.Median, x.Goal)
		}
		if x.Goal != "" {
			held++
		}
		errs = append(errs, err)
	}
	if held == 0 {
		errs = append(errs, errors.New("nothing was held"))
	}
	return errors.Join(errs...)
}

// write makes the cases.
func (r *runner) write(ctx context.Context, dir string) error {
	texts, _, err := benchmarks.OpenTexts(ctx, &models.Store{Dir: dir}, r.seed)
	if err != nil {
		return err
	}
	w := &writer{texts: texts, rng: rand.New(rand.NewPCG(r.seed, 2))}
	for i := range r.good {
		n := w.batch()
		switch i { // the ends are among them whatever is drawn
		case 0, 6: // an embedding and a rerank request
			n = 64
		case 13: // a chunk gate's
			n = 40
		}
		r.cases = append(r.cases, w.good(i, n))
	}
	for i := range r.bad {
		r.cases = append(r.cases, w.bad(i))
	}
	for _, k := range []inference.Kind{inference.KindEmbedder, inference.KindReranker} {
		if _, err := r.server.Info.Model(k); err != nil {
			return err
		}
	}
	return nil
}

// serial asks every case once, alone, and keeps what is answered as the truth.
func (r *runner) serial(ctx context.Context) error {
	for _, c := range r.cases {
		status, body, err := r.send(ctx, c, bytes.NewReader(c.body))
		if err != nil {
			return fmt.Errorf("%s, alone: %w", c.name, err)
		}
		if c.bad != (status >= 400 && status < 500) || !c.bad && status != 200 {
			return fmt.Errorf("%s, alone: status %d: %.300s", c.name, status, body)
		}
		c.status = status
		if c.want, err = c.take(body); err != nil {
			return fmt.Errorf("%s, alone: %w", c.name, err)
		}
	}
	return nil
}

func (c *testCase) take(body []byte) (answer, error) {
	if c.read == nil {
		return answer{exact: string(body)}, nil
	}
	return c.read(body)
}

func (r *runner) send(ctx context.Context, c *testCase, body io.Reader) (status int, answer []byte, err error) {
	q, err := http.NewRequestWithContext(ctx, c.method, r.server.URL+c.path, body)
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	for k, v := range c.header {
		q.Header[k] = v
	}
	p, err := r.client.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer p.Body.Close()
	answer, err = io.ReadAll(p.Body)
	if p.StatusCode == http.StatusTooManyRequests && p.Header.Get("Retry-After") == "" {
		err = errors.Join(err, errors.New("429 without Retry-After"))
	}
	return p.StatusCode, answer, err
}

// load sends all requests. Which ones, and what their clients do, is drawn from the seed and the request's number alone.
func (r *runner) load(ctx context.Context, say func(string, ...any)) (sent, reloads int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range r.clients {
		wg.Go(func() {
			for i := range next {
				r.one(ctx, i)
			}
		})
	}
	began := time.Now()
	sent = r.requests
	for i := range r.requests {
		if r.limit > 0 && time.Since(began) > r.limit {
			sent = i
			break
		}
		if i%r.sample == 0 {
			m, err := r.server.Metrics()
			if err != nil {
				cancel(err)
				break
			}
			r.Lock()
			r.memory = append(r.memory, sample{float64(i), m["process_resident_memory_bytes"]})
			r.inGo = append(r.inGo, sample{float64(i), m["go_memstats_sys_bytes"] - m["go_memstats_heap_released_bytes"]})
			r.Unlock()
		}
		if i > 0 && i%r.reload == 0 {
			reloads++
			if err := syscall.Kill(r.server.PID(), syscall.SIGHUP); err != nil {
				cancel(err)
				break
			}
		}
		if i > 0 && i%max(1, r.requests/20) == 0 {
			m, err := r.server.Metrics()
			if err != nil {
				cancel(err)
				break
			}
			say("%d requests in %s: resident %.0f MB, of it in the Go heap %.0f MB", i, time.Since(began).Round(time.Second),
				m["process_resident_memory_bytes"]/1e6, m["go_memstats_heap_inuse_bytes"]/1e6)
		}
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	wg.Wait()
	return sent, reloads, context.Cause(ctx)
}

// one sends request i and looks at its answer.
func (r *runner) one(ctx context.Context, i int) {
	rng := rand.New(rand.NewPCG(r.seed, 1000+uint64(i)))
	c := r.cases[rng.IntN(r.good)]
	if rng.Float64() < badShare {
		c = r.cases[r.good+rng.IntN(r.bad)]
	}
	leaves := false
	var body io.Reader = bytes.NewReader(c.body)
	switch u := rng.Float64(); {
	case u < cancelShare:
		leaves = true
		limited, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(cancelWithin))))
		defer cancel()
		ctx = limited
	case u < cancelShare+uploadShare && len(c.body) > 1:
		leaves = true
		body = io.MultiReader(bytes.NewReader(c.body[:len(c.body)/2]), brokenReader{})
	}
	status, text, err := r.send(ctx, c, body)
	if err != nil {
		if !leaves && ctx.Err() == nil {
			r.fault("%s: %v", c.name, err)
		} else {
			r.Lock()
			r.cancelled++
			r.Unlock()
		}
		return
	}
	if status == http.StatusTooManyRequests {
		r.Lock()
		r.refused++
		r.Unlock()
		return
	}
	if status != c.status {
		r.fault("%s: status %d, alone %d: %.300s", c.name, status, c.status, text)
		return
	}
	got, err := c.take(text)
	if err != nil {
		r.fault("%s: %v", c.name, err)
		return
	}
	g, err := c.want.compare(&got, r.tol)
	if err != nil {
		r.fault("%s: %v", c.name, err)
		return
	}
	r.Lock()
	defer r.Unlock()
	r.gap.widen(g)
	if c.bad {
		r.failed++
	} else {
		r.answered++
	}
}

// brokenReader is the end of a body that does not come.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the client leaves") }

// gauges are what must be as before once all is answered; slack is for the runtime's own.
var gauges = []struct {
	metric string
	base   bool // as many as before; else none
	slack  float64
}{
	{"ragate_queue_tokens", false, 0},
	{"ragate_queue_rows", false, 0},
	{"ragate_http_requests_in_flight", true, 0}, // the one that asks
	{"go_goroutines", true, 2},                  // the collector's workers come and go
	{"process_open_fds", true, 2},
}

// settle closes the client's connections, waits until the gauges are what they were before, and returns them. before nil: it waits
// until they do not change.
func (r *runner) settle(before map[string]float64) (map[string]float64, error) {
	r.client.CloseIdleConnections()
	runtime.GC()
	var last map[string]float64
	for end := time.Now().Add(settling); ; time.Sleep(200 * time.Millisecond) {
		m, err := r.server.Metrics()
		if err != nil {
			return nil, err
		}
		now, done := map[string]float64{}, true
		for _, g := range gauges {
			v, ok := m[g.metric]
			if !ok {
				return nil, fmt.Errorf("the server's metrics have no %s", g.metric)
			}
			now[g.metric] = v
			switch {
			case before != nil && g.base:
				done = done && v <= before[g.metric]+g.slack
			case before != nil || !g.base:
				done = done && v == 0
			default:
				done = done && last != nil && last[g.metric] == v
			}
		}
		if done || time.Now().After(end) {
			return now, nil
		}
		last = now
	}
}

// readLog returns the lines of level ERROR, and how many reloads there were.
func readLog(path string) (errorLines []string, reloads int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.Contains(line, `"level":"ERROR"`), strings.Contains(line, "panic:"), strings.Contains(line, "goroutine "):
			errorLines = append(errorLines, line)
		case strings.Contains(line, `"msg":"references reloaded"`):
			reloads++
		}
	}
	return errorLines, reloads, nil
}
