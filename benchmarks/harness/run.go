package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"ragate/benchmarks"
)

// Target is a server.
type Target struct {
	Name    string // in tables
	URL     string // http://host:port
	Dialect Dialect
	Model   string      // name of the model to ask for, "" where the server has one only
	Header  http.Header // of every request: the key
	PID     int         // of its process, children counted too; 0 where it is not of this machine

	Transport http.RoundTripper // nil: connections of the run's own
}

// Case is a workload and how its requests come.
type Case struct {
	Workload Workload
	Clients  int     // closed loop: so many, each sending its next request when the last one is answered
	Rate     float64 // open loop, when it is not 0: requests per second, at exponentially distributed distances
}

func (c Case) load() string {
	if c.Rate > 0 {
		return fmt.Sprintf("%g requests/s", c.Rate)
	}
	if c.Clients == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", c.Clients)
}

// Defaults. A window of three seconds holds some ten answers of the slowest workload on two cores, and five rounds are what an interval needs.
const (
	DefaultRounds  = 5
	DefaultWindow  = 3 * time.Second
	DefaultWarm    = 2 * time.Second
	DefaultRamp    = 300 * time.Millisecond
	DefaultTimeout = time.Minute
	DefaultBudget  = 100 * time.Millisecond
	DefaultSeed    = 20240611
)

// A window of a closed loop stays open until this many requests have begun in it, and one for each client, but no longer than so many times its
// length. It is looked at in steps.
const (
	leastRequests = 3
	mostSpans     = 10
	spanSteps     = 20
)

// Config is one run.
type Config struct {
	Targets []Target // one, or two that take turns
	Cases   []Case
	Rounds  int
	Window  time.Duration // measured, in every turn
	Warm    time.Duration // load before the first turn of a case
	Ramp    time.Duration // load before every window
	Timeout time.Duration // of a request
	Budget  time.Duration // of the chunk gate's requests
	Seed    uint64        // of texts and arrivals

	Encoders Encoders
	Texts    func(seed uint64) (*benchmarks.Texts, error)
	TextsAre string // where they come from

	Ceiling  *Ceiling // nil: there is none
	Progress io.Writer
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var errs []error
	say := func(bad bool, format string, a ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	say(len(c.Targets) < 1 || len(c.Targets) > 2, "%d servers: one is measured, or two that take turns", len(c.Targets))
	say(len(c.Cases) == 0, "there is no workload")
	say(c.Rounds < 1, "%d rounds: there must be at least 1", c.Rounds)
	say(c.Window <= 0, "a window of %v: it must be longer than 0", c.Window)
	say(c.Warm < 0 || c.Ramp < 0, "a warm-up of %v and a ramp of %v: neither can be negative", c.Warm, c.Ramp)
	say(c.Timeout <= 0, "a time-out of %v: it must be longer than 0", c.Timeout)
	for _, x := range c.Cases {
		say(x.Rate == 0 && x.Clients < 1, "%s with %d clients: there must be at least 1", x.Workload.Name, x.Clients)
		say(x.Rate < 0, "%s at %g requests/s: it must be more than 0", x.Workload.Name, x.Rate)
		for _, t := range c.Targets {
			say(!t.Dialect.Does(x.Workload.Task), "%s (%s) cannot be asked in dialect %s", x.Workload.Name, x.Workload.Task, t.Dialect.Name)
		}
	}
	return errors.Join(errs...)
}

// Run measures. Its result has Cases, Seed and Settings filled in, and of Servers the names; the rest is the caller's to know. An error
// means that something could not be measured, or that an answer to the known question is wrong. Errors of single requests are counted
// in the result, unless a server fails all of them.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	res := &Result{Schema: Schema, Seed: c.Seed, Settings: Settings{Rounds: c.Rounds, WindowSeconds: c.Window.Seconds(), WarmSeconds: c.Warm.Seconds(),
		RampSeconds: c.Ramp.Seconds(), TimeoutSecs: c.Timeout.Seconds(), BudgetMS: int(c.Budget.Milliseconds()), Texts: c.TextsAre}}
	for _, t := range c.Targets {
		res.Servers = append(res.Servers, ServerFacts{Name: t.Name, URL: t.URL, Dialect: t.Dialect.Name, Model: t.Model})
	}
	for _, x := range c.Cases {
		r, err := c.measure(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", x.Workload.Name, x.load(), err)
		}
		res.Cases = append(res.Cases, r)
	}
	if c.Ceiling != nil {
		res.Peaks = c.Ceiling.peaks()
	}
	return res, nil
}

func (c Config) say(format string, a ...any) {
	if c.Progress != nil {
		fmt.Fprintf(c.Progress, format+"\n", a...)
	}
}

// runner is one server in one case.
type runner struct {
	Config
	Case
	target *Target
	source *Source
	pool   benchmarks.Pool
	client *http.Client
	meter  benchmarks.Meter
	rate   float64 // requests per second as last seen
	length struct{ sum, tokens float64 }
	broken error // what the source said when it could not write a request
	turns  []turn
}

func (c Config) measure(ctx context.Context, x Case) (CaseResult, error) {
	out := CaseResult{Workload: x.Workload.Name, Says: x.Workload.Says, Clients: x.Clients, Rate: x.Rate}
	if x.Rate > 0 {
		out.Clients = 0
	}
	var runners []*runner
	for i := range c.Targets {
		r, err := c.prepare(ctx, x, &c.Targets[i])
		if err != nil {
			return out, err
		}
		defer r.client.CloseIdleConnections()
		runners = append(runners, r)
	}
	var raw []float64
	var apart *Source // the raw session's rows are its own, so that both servers still get the same texts
	if c.Ceiling != nil {
		texts, err := c.Texts(c.Seed + 1)
		if err != nil {
			return out, err
		}
		apart = &Source{Texts: texts, Encoders: c.Encoders}
	}
	for round := range c.Rounds {
		if c.Ceiling != nil {
			v, err := c.Ceiling.raw(ctx, x.Workload, apart)
			if err != nil {
				return out, err
			}
			if v > 0 {
				raw = append(raw, v)
			}
		}
		// Who goes first changes, so that neither always comes after the other.
		for i := range runners {
			r := runners[(i+round)%len(runners)]
			t, err := r.turn(ctx, c.Window, round)
			if err != nil {
				return out, err
			}
			r.turns = append(r.turns, t)
			c.say("%s, %s, round %d of %d: %s %.4g requests/s, p50 %.4g ms, %d failed, %d refused; others took %.2f CPUs",
				x.Workload.Name, x.load(), round+1, c.Rounds, r.target.Name, t.RequestsPerSecond, t.P50, t.Failed, t.Refused, t.OthersCPU)
		}
	}
	for _, r := range runners {
		s := side(r.target.Name, r.turns)
		if s.Requests == 0 && s.Refused == 0 {
			return out, fmt.Errorf("%s gave no right answer to a request that was due in a window; %d failed%s: a longer --window may help", r.target.Name, s.Failed(), example(s))
		}
		if r.target.PID != 0 {
			p, err := benchmarks.ReadTree(r.target.PID)
			if err != nil {
				return out, err
			}
			s.PeakMB = p.PeakRSS >> 20
		}
		out.Sides = append(out.Sides, s)
	}
	if len(runners) == 2 {
		out.Ratios = ratios(out.Sides[0].Rounds, out.Sides[1].Rounds, pairedRatio)
	}
	if len(raw) > 0 {
		out.RawTurns, out.RawTokens = raw, estimate(raw)
		out.OfRaw = pairedRatio(of(out.Sides[0].Rounds, func(r Round) float64 { return r.TokensPerSecond }), raw)
	}
	if c.Ceiling != nil && out.Sides[0].TokensPerSecond != nil {
		out.OfPeak = c.Ceiling.ofPeak(x.Workload, out.Sides[0].TokensPerSecond.Value, runners[0].meanLength())
	}
	return out, nil
}

func example(s Side) string {
	if s.Example == "" {
		return ""
	}
	return ", the first one: " + s.Example
}

// prepare asks the known question and warms the server.
func (c Config) prepare(ctx context.Context, x Case, t *Target) (*runner, error) {
	texts, err := c.Texts(c.Seed)
	if err != nil {
		return nil, err
	}
	r := &runner{Config: c, Case: x, target: t, meter: benchmarks.Meter{PID: t.PID},
		source: &Source{Texts: texts, Encoders: c.Encoders, Target: t, BudgetMS: int(c.Budget.Milliseconds())}}
	transport := t.Transport
	if transport == nil {
		transport = benchmarks.Load{Clients: x.Clients, Rate: x.Rate}.NewTransport()
	}
	r.client = &http.Client{Transport: transport, Timeout: c.Timeout}
	r.pool.Make = func() (benchmarks.Request, error) {
		q, length, err := r.source.Next(x.Workload)
		if err != nil {
			r.broken = errors.Join(r.broken, err)
			return q, err
		}
		r.length.sum += length * float64(q.Tokens)
		r.length.tokens += float64(q.Tokens)
		return q, nil
	}
	if err := t.Probe(ctx, r.client, x.Workload.Task, c.Encoders.prefix(x.Workload)); err != nil {
		return nil, err
	}
	if c.Warm > 0 {
		w, err := r.turn(ctx, c.Warm, -1)
		if err != nil {
			return nil, err
		}
		r.rate = w.RequestsPerSecond
	}
	return r, nil
}

func (r *runner) meanLength() float64 { return r.length.sum / max(r.length.tokens, 1) }

// turn drives the server for a ramp and a window, and waits for the last answer.
func (r *runner) turn(ctx context.Context, span time.Duration, round int) (turn, error) {
	// Requests are written beforehand as far as the last turn tells how many there will be; the rest is written under way.
	expect := r.rate
	if r.Rate > 0 {
		expect = r.Rate
	}
	if err := r.pool.Fill(2*max(r.Clients, 1) + int(1.2*expect*(span+r.Ramp).Seconds())); err != nil {
		return turn{}, err
	}
	runtime.GC() // the texts' garbage had better not be collected in the window
	var samples []benchmarks.Sample
	var taken atomic.Int64
	seed := rand.NewPCG(r.Seed, uint64(round+1)).Uint64()
	d := benchmarks.Drive(r.target.URL, benchmarks.Load{Clients: r.Clients, Rate: r.Case.Rate, Seed: seed, Transport: r.client.Transport, Header: r.target.Header,
		Timeout: r.Timeout, Observe: func(x benchmarks.Sample) { samples = append(samples, x) }},
		func() benchmarks.Request { taken.Add(1); return r.pool.Next() })
	var before, after benchmarks.Reading
	err := func() (err error) {
		if err := pause(ctx, r.Ramp); err != nil {
			return err
		}
		if before, err = r.meter.Read(); err != nil {
			return err
		}
		already := taken.Load()
		for open := time.Duration(0); ; {
			if err := pause(ctx, span/spanSteps); err != nil {
				return err
			}
			// Where a request lasts longer than the window, the window lasts longer.
			open += span / spanSteps
			if open >= span && (r.Case.Rate > 0 || taken.Load()-already >= int64(max(leastRequests, r.Clients)) || open >= mostSpans*span) {
				break
			}
		}
		after, err = r.meter.Read()
		return err
	}()
	d.Stop() // from here on samples are complete, and this goroutine's
	if err = errors.Join(err, r.broken); err != nil {
		return turn{}, err
	}
	t := window(samples, before.At, after.At, r.Case.Rate == 0)
	spent := after.Since(before)
	t.ServerCPU, t.ClientCPU, t.OthersCPU = spent.Server/spent.Seconds, spent.Client/spent.Seconds, spent.Others/spent.Seconds
	t.ServerMB = after.Server.RSS >> 20
	if t.RequestsPerSecond > 0 {
		r.rate = t.RequestsPerSecond
	}
	return t, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
