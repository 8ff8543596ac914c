package harness

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"ragate/benchmarks"
)

// turn is one server's window of one round.
type turn struct {
	Round
	items, usage, counted, unscored int
	errors, kinds                   map[string]int
	example                         string
	latency                         *hdrhistogram.Histogram
}

// window sums up the samples of requests that were due from begin to end. All of them must have ended, so that a slow answer is not left
// out for being slow. closed says that a fixed number of clients sent them.
func window(samples []benchmarks.Sample, begin, end time.Time, closed bool) turn {
	t := turn{errors: map[string]int{}, kinds: map[string]int{}, latency: benchmarks.NewLatencies()}
	var requests, tokens float64 // that were answered in the window
	for _, x := range samples {
		if x.Err == nil {
			part := share(x, begin, end, closed)
			requests += part
			tokens += part * float64(x.Request.Tokens)
		}
		if x.Due.Before(begin) || !x.Due.Before(end) {
			continue
		}
		var a *benchmarks.AnswerError
		switch {
		case x.Err == nil:
			t.Requests++
			t.items += x.Request.Items
			t.counted += x.Request.Tokens
			t.usage += x.Facts.Tokens
			t.unscored += x.Facts.Unscored
			if x.Facts.Kind != "" {
				t.kinds[x.Facts.Kind]++
			}
			benchmarks.RecordLatency(t.latency, x.Done.Sub(x.Due))
			continue
		case errors.As(x.Err, &a) && a.Refused():
			t.Refused++
			continue
		case a != nil:
			t.errors[a.Kind]++
		default:
			t.errors["other"]++
		}
		t.Failed++
		t.example = cmp.Or(t.example, x.Err.Error())
	}
	seconds := end.Sub(begin).Seconds()
	t.RequestsPerSecond, t.TokensPerSecond = requests/seconds, tokens/seconds
	t.P50, t.P95, t.P99 = milliseconds(t.latency, 50), milliseconds(t.latency, 95), milliseconds(t.latency, 99)
	return t
}

// share is how much of a request belongs to the window. In a closed loop that is the part of its time that lies in it: a window of few long
// requests would else gain or lose whole ones by chance. At a rate, where a request may have waited for others, it is all where it ended.
func share(x benchmarks.Sample, begin, end time.Time, closed bool) float64 {
	if !closed {
		if x.Done.Before(begin) || !x.Done.Before(end) {
			return 0
		}
		return 1
	}
	from, to := later(x.Due, begin), x.Done
	if end.Before(to) {
		to = end
	}
	whole := x.Done.Sub(x.Due)
	if whole <= 0 || !from.Before(to) {
		return 0
	}
	return float64(to.Sub(from)) / float64(whole)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func milliseconds(h *hdrhistogram.Histogram, percent float64) float64 {
	return float64(h.ValueAtQuantile(percent)) / 1e3
}

// spectrumPoints are where the distribution is kept: closer to 100 %, denser.
var spectrumPoints = []float64{0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92.5, 95, 96, 97, 98, 99, 99.5, 99.75, 99.9, 99.95, 99.99, 100}

// side puts the turns of a server together.
func side(server string, turns []turn) Side {
	s := Side{Server: server, Errors: map[string]int{}, Kinds: map[string]int{}}
	all := benchmarks.NewLatencies()
	var cpu []float64
	for _, t := range turns {
		s.Requests += t.Requests
		s.Items += t.items
		s.Refused += t.Refused
		s.Unscored += t.unscored
		s.UsageTokens += t.usage
		s.CountedTokens += t.counted
		s.Example = cmp.Or(s.Example, t.example)
		for k, n := range t.errors {
			s.Errors[k] += n
		}
		for k, n := range t.kinds {
			s.Kinds[k] += n
		}
		all.Merge(t.latency)
		s.Rounds = append(s.Rounds, t.Round)
		cpu = append(cpu, t.cpuPerRequest())
	}
	s.RequestsPerSecond = estimate(of(s.Rounds, func(r Round) float64 { return r.RequestsPerSecond }))
	s.TokensPerSecond = estimate(of(s.Rounds, func(r Round) float64 { return r.TokensPerSecond }))
	s.CPUPerRequest = estimate(cpu)
	if s.Requests == 0 {
		return s
	}
	s.Latency = Latency{P50: milliseconds(all, 50), P90: milliseconds(all, 90), P95: milliseconds(all, 95), P99: milliseconds(all, 99),
		P999: milliseconds(all, 99.9), Max: float64(all.Max()) / 1e3, Mean: all.Mean() / 1e3}
	for _, p := range spectrumPoints {
		// A percentile of fewer requests than it divides is the maximum again.
		if p < 100 && (100-p)*float64(s.Requests) < 100 {
			continue
		}
		s.Spectrum = append(s.Spectrum, Quantile{p, milliseconds(all, p)})
	}
	return s
}

func (r Round) cpuPerRequest() float64 { return r.ServerCPU / r.RequestsPerSecond }

func of(rounds []Round, f func(Round) float64) []float64 {
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = f(r)
	}
	return out
}

// metric is a figure of which ratios are formed.
type metric struct {
	name   string
	better string
	of     func(Round) float64
	least  int // requests that every round must have for it to mean anything
}

var metrics = []metric{
	{"requests/s", "higher", func(r Round) float64 { return r.RequestsPerSecond }, 1},
	{"tokens/s", "higher", func(r Round) float64 { return r.TokensPerSecond }, 1},
	{"latency p50", "lower", func(r Round) float64 { return r.P50 }, 1},
	{"latency p95", "lower", func(r Round) float64 { return r.P95 }, 20},
	{"latency p99", "lower", func(r Round) float64 { return r.P99 }, 100},
	{"server CPU time a request", "lower", Round.cpuPerRequest, 1},
}

// ratios are a : b of every metric that both have, by the given way to form one.
func ratios(a, b []Round, form func(a, b []float64) *Estimate) []Ratio {
	var out []Ratio
	for _, m := range metrics {
		few := func(r Round) bool { return r.Requests < m.least }
		if slices.ContainsFunc(a, few) || slices.ContainsFunc(b, few) {
			continue
		}
		if r := form(of(a, m.of), of(b, m.of)); r != nil {
			out = append(out, Ratio{m.name, r, m.better})
		}
	}
	return out
}
