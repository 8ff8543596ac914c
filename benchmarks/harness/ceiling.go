package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ragate/benchmarks"
	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
)

// DefaultRawWindow is about how long the raw session's turn lasts: half a server's, since its work is already there when the clock starts.
const DefaultRawWindow = 1500 * time.Millisecond

// rawBudgets are the padded tokens of the raw session's batches that are tried; 0 runs every row alone. Larger ones gain nothing on a CPU.
var rawBudgets = []int{0, 256, 512}

// Ceiling is what the first server is held against: raw sessions of its models, which do nothing but run rows, and the arithmetic peak of
// the machine. Whoever opens it closes it.
type Ceiling struct {
	Window time.Duration // of the raw session's turn, about

	runtime *ort.Runtime
	ends    map[inference.Kind]*ceiling
}

type ceiling struct {
	raw     *benchmarks.Raw
	cost    benchmarks.Cost
	peak    benchmarks.Peak
	budgets map[string]int     // the best of rawBudgets, by workload
	rates   map[string]float64 // tokens per second as last seen
}

// OpenCeiling opens sessions of models, as info says the server runs them, from the store that it runs on.
// graphs is its folder of rewritten graphs. There is a session for each of the manifests.
func OpenCeiling(ctx context.Context, library, graphs string, info benchmarks.ServerInfo, manifests ...models.Manifest) (c *Ceiling, err error) {
	c = &Ceiling{Window: DefaultRawWindow, ends: map[inference.Kind]*ceiling{}}
	if c.runtime, err = ort.Open(library); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	for _, m := range manifests {
		kind := inference.Kind(m.Kind)
		how, err := info.Model(kind)
		if err != nil {
			return c, err
		}
		end := &ceiling{budgets: map[string]int{}, rates: map[string]float64{}}
		// The peak first: it needs memory of its own, which is given back.
		if end.peak, err = benchmarks.MeasurePeak(ctx, c.runtime, how); err != nil {
			return c, fmt.Errorf("the arithmetic peak: %w", err)
		}
		if end.raw, err = benchmarks.OpenRaw(c.runtime, graphs, m, how); err != nil {
			return c, err
		}
		c.ends[kind] = end
		file, err := os.ReadFile(m.GraphPath)
		if err != nil {
			return c, err
		}
		if end.cost, err = benchmarks.GraphCost(file); err != nil {
			return c, fmt.Errorf("%s: %w", m.ID, err)
		}
	}
	return c, nil
}

// Close frees sessions and runtime.
func (c *Ceiling) Close() error {
	var errs []error
	for _, e := range c.ends {
		if e.raw != nil {
			errs = append(errs, e.raw.Close())
		}
	}
	return errors.Join(append(errs, c.runtime.Close())...)
}

// RuntimeVersion is ONNX Runtime's.
func (c *Ceiling) RuntimeVersion() string { return c.runtime.Version() }

// peaks are the machine's, one for each way in which the models run.
func (c *Ceiling) peaks() []benchmarks.Peak {
	var out []benchmarks.Peak
	for _, kind := range []inference.Kind{inference.KindEmbedder, inference.KindReranker} {
		if e := c.ends[kind]; e != nil && !slices.Contains(out, e.peak) {
			out = append(out, e.peak)
		}
	}
	return out
}

// end is the ceiling of a workload; nil where there is none, as for a gate.
func (c *Ceiling) end(w Workload) *ceiling {
	if w.Task.Gate() {
		return nil
	}
	return c.ends[w.Kind]
}

// raw is the raw session's turn: tokens per second on rows of the workload, in the batches that suit it best. 0 where there is no session.
func (c *Ceiling) raw(ctx context.Context, w Workload, s *Source) (float64, error) {
	e := c.end(w)
	if e == nil {
		return 0, nil
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	encoder := s.Encoders.of(w)
	rows := func(enough int) (out []ort.Row, err error) { // of whole requests, so many tokens
		for tokens := 0; tokens < enough; {
			r, err := encoder.Rows(w.Write(s.Texts))
			if err != nil {
				return nil, err
			}
			out = append(out, r...)
			tokens += benchmarks.Tokens(r)
		}
		return out, nil
	}
	run := func(rows []ort.Row, budget int) (float64, error) {
		batches := e.raw.Alike(rows, budget)
		if err := e.raw.Warm(batches); err != nil {
			return 0, err
		}
		took, err := e.raw.Run(batches)
		return float64(benchmarks.Tokens(rows)) / took.Seconds(), err
	}
	if e.rates[w.Name] == 0 {
		// The batch size is chosen once, beforehand: the best of several in each turn would be the one that was disturbed least.
		some, err := rows(256)
		if err != nil {
			return 0, err
		}
		rate, err := run(some, 0)
		if err != nil {
			return 0, err
		}
		if some, err = rows(int(rate * c.Window.Seconds() / 3)); err != nil {
			return 0, err
		}
		tried := rawBudgets
		if e.raw.Single {
			tried = rawBudgets[:1]
		}
		rates := map[int]float64{}
		for _, budget := range tried {
			for range 2 {
				v, err := run(some, budget)
				if err != nil {
					return 0, err
				}
				rates[budget] = max(rates[budget], v)
			}
		}
		best := slices.MaxFunc(tried, func(a, b int) int { return cmp.Compare(rates[a], rates[b]) })
		e.budgets[w.Name], e.rates[w.Name] = best, rates[best]
	}
	some, err := rows(int(e.rates[w.Name] * c.Window.Seconds()))
	if err != nil {
		return 0, err
	}
	rate, err := run(some, e.budgets[w.Name])
	if err == nil {
		e.rates[w.Name] = rate
	}
	return rate, err
}

// ofPeak is the share of the arithmetic peak that tokens per second in sequences of a mean length are; 0 where it is not known.
func (c *Ceiling) ofPeak(w Workload, tokens, length float64) float64 {
	e := c.end(w)
	if e == nil {
		return 0
	}
	return tokens * e.cost.Of(length) / e.peak.FLOPS
}
