package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ragate/benchmarks"
	"ragate/internal/testenv"
	"ragate/models"
)

// encoders are those of the real models.
func encoders(t *testing.T) Encoders {
	t.Helper()
	store := &models.Store{Dir: testenv.Store(t)}
	open := func(name string, kind models.Kind) *benchmarks.Encoder {
		m, err := store.Resolve(context.Background(), name)
		if err == nil {
			m, err = m.As(kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := benchmarks.NewEncoder(m)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	return Encoders{Embed: open(models.DefaultEmbedder, models.KindEmbedder), Rerank: open(models.DefaultReranker, models.KindReranker)}
}

// fake is a server in the bubble's time: it answers a rerank rightly, later or otherwise as serve says.
type fake struct {
	mu     sync.Mutex
	bodies []string
	serve  func(n int) (status int, wait time.Duration, answer string) // n counts requests from 1; answer "" is the right one
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.bodies = append(f.bodies, string(body))
	n := len(f.bodies)
	f.mu.Unlock()
	status, wait, answer := f.serve(n)
	if answer == "" {
		answer = rightRanking(body)
	}
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// rightRanking scores the documents of a rerank request: the one about vacation days best.
func rightRanking(body []byte) string {
	var q struct{ Documents []string }
	if err := json.Unmarshal(body, &q); err != nil {
		return err.Error()
	}
	var results []string
	for i, d := range q.Documents {
		score := -1
		if strings.Contains(d, "vacation") {
			score = 1
		}
		results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":%d}`, i, score))
	}
	return `{"results":[` + strings.Join(results, ",") + `],"usage":{"total_tokens":7}}`
}

func named(t *testing.T, workload, dialect string) (Workload, Dialect) {
	t.Helper()
	w, err := WorkloadNamed(workload)
	if err != nil {
		t.Fatal(err)
	}
	d, err := DialectNamed(dialect)
	if err != nil {
		t.Fatal(err)
	}
	return w, d
}

func config(t *testing.T, e Encoders, x Case, servers ...*fake) Config {
	t.Helper()
	_, d := named(t, x.Workload.Name, "ragate")
	c := Config{Rounds: 2, Window: 2 * time.Second, Warm: 500 * time.Millisecond, Ramp: 250 * time.Millisecond, Timeout: 5 * time.Second, Budget: DefaultBudget, Seed: 1,
		Encoders: e, TextsAre: "test", Cases: []Case{x},
		Texts: func(seed uint64) (*benchmarks.Texts, error) { return benchmarks.NewTexts(seed, e.Rerank.Count) }}
	for i, s := range servers {
		c.Targets = append(c.Targets, Target{Name: string(rune('A' + i)), URL: "http://server", Dialect: d, Transport: s})
	}
	return c
}

func TestAClosedLoopIsMeasuredAsItIs(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-10x128", "ragate")
	synctest.Test(t, func(t *testing.T) {
		s := &fake{serve: func(int) (int, time.Duration, string) { return 200, 100 * time.Millisecond, "" }}
		r, err := Run(t.Context(), config(t, e, Case{Workload: w, Clients: 4}, s))
		if err != nil {
			t.Fatal(err)
		}
		got := r.Cases[0].Sides[0]
		// Four clients at 100 ms each are 40 a second; so many begin in two windows of two seconds.
		if got.Requests != 160 || got.Items != 1600 || math.Abs(got.RequestsPerSecond.Value-40) > 1e-6 {
			t.Errorf("%d requests, %d items, %v a second; want 160, 1,600 and 40", got.Requests, got.Items, got.RequestsPerSecond)
		}
		if l := got.Latency; math.Abs(l.P50-100) > 0.2 || math.Abs(l.Max-100) > 0.2 {
			t.Errorf("latency %+v, want 100 ms", l)
		}
		if got.Failed() != 0 || got.Refused != 0 || got.UsageTokens != 7*160 || got.CountedTokens < 1200*160 || got.CountedTokens > 1280*160 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAWindowStaysOpenForRequestsThatAreLongerThanIt(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-10x128", "ragate")
	synctest.Test(t, func(t *testing.T) {
		s := &fake{serve: func(n int) (int, time.Duration, string) { return 200, 3 * time.Second, "" }}
		r, err := Run(t.Context(), config(t, e, Case{Workload: w, Clients: 2}, s))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Cases[0].Sides[0]; got.Requests < 2*leastRequests || math.Abs(got.RequestsPerSecond.Value-2.0/3) > 0.001 {
			t.Errorf("%d requests, %v a second; want 2/3", got.Requests, got.RequestsPerSecond)
		}
	})
}

// A server that stalls for a second while requests are due every 10 ms has a hundred slow ones. One client that waits for its answer sees
// one: that is the coordinated omission which arrivals at a rate are there to avoid.
func TestAStallIsInTheLatencyOfArrivalsAtARate(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-10x128", "ragate")
	stall := func(x Case) (late, requests int) {
		synctest.Test(t, func(t *testing.T) {
			var began time.Time
			s := &fake{}
			s.serve = func(n int) (int, time.Duration, string) {
				if n == 2 { // the first one is the known question
					began = time.Now()
				}
				from, to := 1500*time.Millisecond, 2500*time.Millisecond
				if at := time.Since(began); !began.IsZero() && at >= from && at < to {
					return 200, to - at + time.Millisecond, ""
				}
				return 200, time.Millisecond, ""
			}
			c := config(t, e, x, s)
			c.Rounds, c.Warm, c.Window = 1, 0, 4*time.Second
			r, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Cases[0].Sides[0]
			requests = got.Requests
			for _, q := range got.Spectrum {
				if q.MS <= 10 {
					late = int(math.Round((1 - q.Percent/100) * float64(got.Requests)))
				}
			}
			if got.Latency.Max < 900 {
				t.Errorf("%s: the longest latency is %v ms, of a stall of a second", x.load(), got.Latency.Max)
			}
			if x.Rate > 0 && got.Latency.P90 < 300 {
				t.Errorf("a quarter of the requests fell into the stall, and p90 is %v ms", got.Latency.P90)
			}
			if x.Rate == 0 && got.Latency.P99 > 10 {
				t.Errorf("one client met the stall once, and p99 is %v ms", got.Latency.P99)
			}
		})
		return late, requests
	}
	if late, n := stall(Case{Workload: w, Rate: 100}); n < 330 || n > 470 || late < 60 || late > 140 {
		t.Errorf("at a rate of 100: %d of %d requests late, want about 100 of 400", late, n)
	}
	stall(Case{Workload: w, Clients: 1})
}

func TestErrorsAreCountedByKindAndRefusalsApart(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-10x128", "ragate")
	synctest.Test(t, func(t *testing.T) {
		s := &fake{serve: func(n int) (int, time.Duration, string) {
			switch {
			case n == 1:
				return 200, 0, "" // the known question
			case n%5 == 1:
				return 429, 10 * time.Millisecond, "full"
			case n%5 == 2:
				return 500, 10 * time.Millisecond, "oh"
			case n%5 == 3:
				return 200, 10 * time.Millisecond, `{"results":[{"index":0,"relevance_score":1}]}`
			case n%25 == 4:
				return 200, time.Hour, ""
			}
			return 200, 10 * time.Millisecond, ""
		}}
		r, err := Run(t.Context(), config(t, e, Case{Workload: w, Rate: 50}, s))
		if err != nil {
			t.Fatal(err)
		}
		got := r.Cases[0].Sides[0]
		for _, kind := range []string{"status 500", "answer", "timeout"} {
			if got.Errors[kind] == 0 {
				t.Errorf("no error of kind %q: %v", kind, got.Errors)
			}
		}
		if len(got.Errors) != 3 || got.Refused == 0 || got.Requests == 0 || got.Example == "" {
			t.Errorf("%d right, %d refused, errors %v, example %q", got.Requests, got.Refused, got.Errors, got.Example)
		}
		if got.Latency.Max > 20 {
			t.Errorf("the longest latency of a right answer is %v ms, want 10: errors have none", got.Latency.Max)
		}
		if sum := got.Rounds[0].Failed + got.Rounds[1].Failed; sum != got.Failed() {
			t.Errorf("rounds have %d failures, all together %d", sum, got.Failed())
		}
	})
}

func TestAServerThatAnswersWronglyIsNotMeasured(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-10x128", "ragate")
	for name, c := range map[string]struct {
		answer string
		status int
		want   string
	}{
		"the unrelated first": {`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":0.5}]}`, 200, "answers wrongly"},
		"all alike":           {`{"results":[{"index":0,"relevance_score":1},{"index":1,"relevance_score":1}]}`, 200, "answers wrongly"},
		"no key":              {`{"error":"key"}`, 401, "status 401"},
		"one missing":         {`{"results":[{"index":1,"relevance_score":1}]}`, 200, "1 results for 2 items"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &fake{serve: func(int) (int, time.Duration, string) { return c.status, 0, c.answer }}
			if _, err := Run(t.Context(), config(t, e, Case{Workload: w, Clients: 1}, s)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want %q", name, err, c.want)
			}
		})
	}
}

func TestTwoServersTakeTurnsWithTheSameTexts(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-20-mixed", "ragate")
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var mu sync.Mutex
		server := func(name string, took time.Duration) *fake {
			return &fake{serve: func(int) (int, time.Duration, string) {
				mu.Lock()
				defer mu.Unlock()
				if len(order) == 0 || order[len(order)-1] != name {
					order = append(order, name)
				}
				return 200, took, ""
			}}
		}
		a, b := server("A", 50*time.Millisecond), server("B", 100*time.Millisecond)
		c := config(t, e, Case{Workload: w, Clients: 1}, a, b)
		c.Rounds = 4
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		// Warm-up of each, then A B, B A, A B, B A.
		if got := strings.Join(order, ""); got != "ABABABA" {
			t.Errorf("turns in the order %s", got)
		}
		for i, body := range b.bodies {
			if body != a.bodies[i] {
				t.Fatalf("request %d differs between the servers", i)
			}
		}
		seen := map[string]bool{}
		for _, body := range a.bodies[1:] {
			if seen[body] {
				t.Fatal("a request came twice")
			}
			seen[body] = true
		}
		for _, x := range r.Cases[0].Ratios {
			want := map[string]float64{"requests/s": 2, "latency p50": 0.5, "latency p95": 0.5}[x.Metric]
			if want != 0 && math.Abs(x.Ratio.Value/want-1) > 0.02 || x.Ratio.Low > x.Ratio.Value || x.Ratio.High < x.Ratio.Value {
				t.Errorf("%s: %+v, want %v", x.Metric, x.Ratio, want)
			}
		}
		if len(r.Cases[0].Ratios) < 3 {
			t.Errorf("ratios: %+v", r.Cases[0].Ratios)
		}
	})
}

// What the histogram says is held against the sorted latencies themselves.
func TestPercentilesAreThoseOfTheSamples(t *testing.T) {
	const n = 20_000
	rng := rand.New(rand.NewPCG(11, 12))
	begin := time.Unix(1000, 0)
	var samples []benchmarks.Sample
	var took []float64
	for i := range n {
		d := time.Duration(math.Exp(rng.NormFloat64()*1.5+3) * float64(time.Millisecond))
		due := begin.Add(time.Duration(i) * time.Millisecond)
		samples = append(samples, benchmarks.Sample{Due: due, Done: due.Add(d), Request: &benchmarks.Request{Items: 1, Tokens: 3}})
		took = append(took, d.Seconds()*1e3)
	}
	// Neither what was due before nor after is counted, however slow.
	for _, due := range []time.Time{begin.Add(-time.Nanosecond), begin.Add(n * time.Millisecond)} {
		samples = append(samples, benchmarks.Sample{Due: due, Done: due.Add(9 * time.Minute), Request: &benchmarks.Request{}})
	}
	w := window(samples, begin, begin.Add(n*time.Millisecond), false)
	s := side("A", []turn{w})
	slices.Sort(took)
	for _, c := range []struct {
		percent, got float64
	}{{50, s.Latency.P50}, {90, s.Latency.P90}, {95, s.Latency.P95}, {99, s.Latency.P99}, {99.9, s.Latency.P999}, {100, s.Latency.Max}} {
		want := took[int(math.Ceil(c.percent*n/100-1e-6))-1]
		if math.Abs(c.got/want-1) > 0.002 {
			t.Errorf("p%v is %v ms, of the sorted latencies %v", c.percent, c.got, want)
		}
	}
	if s.Requests != n || !slices.IsSortedFunc(s.Spectrum, func(a, b Quantile) int { return int(math.Copysign(1, a.MS-b.MS)) }) {
		t.Errorf("%d requests; spectrum %v", s.Requests, s.Spectrum)
	}
}

func TestShareOfARequestInAWindow(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		due, done    int
		closed, open float64
	}{
		{0, 1000, 1, 0}, {0, 999, 1, 1}, {-500, 500, 0.5, 1}, {500, 1500, 0.5, 0}, {-1000, 3000, 0.25, 0}, {-10, 0, 0, 1}, {1000, 1100, 0, 0}, {200, 200, 0, 1},
	} {
		x := benchmarks.Sample{Due: at(c.due), Done: at(c.done)}
		if got := share(x, at(0), at(1000), true); math.Abs(got-c.closed) > 1e-12 {
			t.Errorf("closed, %d to %d: %v, want %v", c.due, c.done, got, c.closed)
		}
		if got := share(x, at(0), at(1000), false); got != c.open {
			t.Errorf("open, %d to %d: %v, want %v", c.due, c.done, got, c.open)
		}
	}
}

func TestEstimates(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-3 }
	// Logarithms 0, ln 2, ln 4: mean ln 2, deviation ln 2; t of two degrees of freedom at 97.5 % is 4.3027.
	e := estimate([]float64{1, 2, 4})
	half := 4.302653 * math.Ln2 / math.Sqrt(3)
	if !near(e.Value, 2) || !near(e.Low, 2*math.Exp(-half)) || !near(e.High, 2*math.Exp(half)) {
		t.Errorf("%+v", e)
	}
	if e := estimate([]float64{3}); e.Value < 2.999 || e.Known() {
		t.Errorf("one value: %+v", e)
	}
	for _, v := range [][]float64{nil, {1, 0}, {math.NaN()}, {math.Inf(1)}, {-1}} {
		if e := estimate(v); e != nil {
			t.Errorf("%v: %+v, want none", v, e)
		}
	}
	if r := pairedRatio([]float64{2, 20, 200}, []float64{1, 10, 100}); !near(r.Value, 2) || !near(r.Low, 2) || !near(r.High, 2) {
		t.Errorf("paired: %+v: what both turns share does not widen the interval", r)
	}
	// Welch of ln{1, 4} and ln{1, 1, 1}: variance of the mean (ln 4)²/4 with one degree of freedom, t 12.706.
	r := separateRatio([]float64{1, 4}, []float64{1, 1, 1})
	half = 12.7062 * math.Log(4) / 2
	if !near(r.Value, 2) || math.Abs(math.Log(r.High/2)-half) > 0.01 {
		t.Errorf("separate: %+v, want a half width of %v in the logarithm", r, half)
	}
	if r := separateRatio([]float64{6}, []float64{2}); !near(r.Value, 3) || r.Known() {
		t.Errorf("separate, one turn each: %+v", r)
	}
}

func TestConfigReportsEveryField(t *testing.T) {
	w, d := named(t, "gate-query-mix", "tei")
	err := Config{Targets: []Target{{Dialect: d}}, Cases: []Case{{Workload: w}, {Workload: w, Rate: -1}}, Warm: -1}.Validate()
	for _, want := range []string{"0 rounds", "a window of", "a warm-up of", "a time-out of", "with 0 clients", "at -1 requests/s", "cannot be asked in dialect tei"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestACancelledRunEnds(t *testing.T) {
	e := encoders(t)
	w, _ := named(t, "rerank-10x128", "ragate")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(stop) })
		s := &fake{serve: func(int) (int, time.Duration, string) { return 200, 10 * time.Millisecond, "" }}
		if _, err := Run(ctx, config(t, e, Case{Workload: w, Clients: 2}, s)); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
	})
}

// sample is a result with everything in it, names that try to get out of the page included.
func sample(t *testing.T, factor float64) *Result {
	t.Helper()
	round := func(x float64) Round {
		return Round{Requests: 120, RequestsPerSecond: 40 * x, TokensPerSecond: 4000 * x, P50: 25 / x, P95: 30 / x, P99: 40 / x, ServerCPU: 1.5, ServerMB: 500}
	}
	of := func(name string, x float64) Side {
		s := Side{Server: name, Requests: 360, Items: 3600, Refused: 2, Errors: map[string]int{"status 500": 1}, Example: "<script>alert(1)</script>", Kinds: map[string]int{"semantic": 3},
			Latency: Latency{P50: 25, P90: 30, P95: 31, P99: 40, P999: 50, Max: 51, Mean: 26}, Spectrum: []Quantile{{0, 20}, {50, 25}, {90, 30}, {99, 40}, {100, 51}},
			RequestsPerSecond: estimate([]float64{40 * x, 41 * x, 42 * x}), TokensPerSecond: estimate([]float64{1, 2}), UsageTokens: 5, CountedTokens: 6, PeakMB: 512,
			Rounds: []Round{round(x), round(1.02 * x), round(1.01 * x)}}
		return s
	}
	a, b := of("A", factor), of("B\x1b[31m", 1)
	return &Result{Schema: Schema, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: `ragate bench --url "http://x"`, Version: "v1", Commit: "abc", Go: "go1", Runtime: "1.24",
		Machine: benchmarks.MachineInfo{CPU: "CPU", CPUs: 2, MemoryMB: 1}, Seed: 7, Settings: Settings{Rounds: 3, WindowSeconds: 3, Texts: "test"},
		Servers: []ServerFacts{{Name: "A", URL: "host", Dialect: "ragate", Version: "v1", Models: []benchmarks.ModelInfo{{ID: "m", Provider: "cpu"}}}, {Name: "B", URL: "other", Dialect: "tei"}},
		Peaks:   []benchmarks.Peak{{Provider: "cpu", Arithmetic: "fp32", FLOPS: 1e12, How: "so"}},
		Cases: []CaseResult{{Workload: "rerank-10x128", Says: "ten pairs", Clients: 4, Sides: []Side{a, b}, Ratios: ratios(a.Rounds, b.Rounds, pairedRatio),
			RawTokens: estimate([]float64{5000, 5100}), RawTurns: []float64{5000, 5100}, OfRaw: estimate([]float64{0.9, 0.95}), OfPeak: 0.4}}}
}

func TestResultsRoundTrip(t *testing.T) {
	want := sample(t, 1.5)
	path := filepath.Join(t.TempDir(), "new", "r.json")
	if err := want.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if !bytes.Equal(a, b) || len(a) < 1000 {
		t.Errorf("written %s\nread %s", a, b)
	}
	other := *want
	other.Schema = "ragate.bench/9"
	if err := other.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "ragate.bench/9") {
		t.Errorf("another schema: %v", err)
	}
}

func TestCompare(t *testing.T) {
	a, b := sample(t, 2), sample(t, 1)
	b.Seed, b.Machine.CPU = 8, "another"
	b.Cases = append(b.Cases, CaseResult{Workload: "embed-query", Clients: 1, Sides: b.Cases[0].Sides})
	c, err := Compare("a.json", a, "b.json", b)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Cases) != 1 || len(c.Unmatched) != 1 || !strings.Contains(c.Unmatched[0], "embed-query, 1 client: only in b.json") {
		t.Errorf("%d cases, unmatched %v", len(c.Cases), c.Unmatched)
	}
	if d := strings.Join(c.Differences, "; "); d != "CPU: CPU and another; seed: 7 and 8" {
		t.Errorf("differences %q", d)
	}
	want := map[string]struct {
		value   float64
		verdict string
	}{"requests/s": {2, "better"}, "tokens/s": {2, "better"}, "latency p50": {0.5, "better"}, "latency p95": {0.5, "better"}, "latency p99": {0.5, "better"},
		"server CPU time a request": {0.5, "better"}}
	if len(c.Cases[0].Ratios) != len(want) {
		t.Errorf("ratios: %+v", c.Cases[0].Ratios)
	}
	for _, r := range c.Cases[0].Ratios {
		if w := want[r.Metric]; math.Abs(r.Ratio.Value-w.value) > 1e-9 || r.verdict() != w.verdict || !r.Ratio.Known() {
			t.Errorf("%s: %+v, %s", r.Metric, r.Ratio, r.verdict())
		}
	}
	back, err := Compare("b.json", b, "a.json", a)
	if err != nil || back.Cases[0].Ratios[0].verdict() != "worse" {
		t.Errorf("the other way round: %v", err)
	}
	same, err := Compare("a", a, "a", a)
	if err != nil || same.Cases[0].Ratios[0].verdict() != "no difference seen" || len(same.Differences) != 0 {
		t.Errorf("with itself: %+v, %v", same, err)
	}
	b.Cases = b.Cases[1:]
	if _, err := Compare("a", a, "b", b); err == nil {
		t.Error("results without a common case were compared")
	}
}
