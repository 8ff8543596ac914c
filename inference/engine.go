package inference

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"ragate/inference/ort"
)

// EngineConfig is what an engine is made from. Zero values of the numbers mean the defaults.
type EngineConfig struct {
	Runtime         *ort.Runtime
	Machine         Machine
	CacheDir        string // where rewritten graphs are kept
	MaxQueuedTokens int
	MaxBatchTokens  int           // padded tokens of one batch; 0: what one stream runs in a Slice
	Slice           time.Duration // what one batch may take
	EscapeSpecial   bool          // special tokens typed by users are plain text
	Memory          Memory        // remembers measurements from start to start; may be nil
	Observer        Observer      // may be nil
}

// Measured is what an engine finds out about a model on a machine.
type Measured struct {
	Drift           Drift
	Fidelity        Drift   // to float32 on the cpu provider
	TokensPerSecond float64 // of one stream
}

// Memory keeps measurements. The key names model, precision, runtime and machine.
type Memory interface {
	Recall(key string) (Measured, bool)
	Remember(key string, m Measured)
}

// Engine runs models on one device. Load models, Start, use them, Close; in that order.
type Engine struct {
	cfg      EngineConfig
	sched    *scheduler
	cores    []*core
	workers  []*worker
	running  sync.WaitGroup
	tokenise *semaphore.Weighted // texts being tokenised at once: as many as CPUs
	closed   bool
}

// NewEngine makes an engine without models.
func NewEngine(cfg EngineConfig) *Engine {
	if cfg.Machine.CPUs < 1 {
		cfg.Machine.CPUs = 1
	}
	return &Engine{cfg: cfg, tokenise: semaphore.NewWeighted(int64(cfg.Machine.CPUs))}
}

// Start makes the workers, lets each run the common shapes once, and begins to serve. Models cannot be added afterwards.
func (e *Engine) Start(ctx context.Context) error {
	if len(e.cores) == 0 {
		return errors.New("inference: no model is loaded")
	}
	n := 1
	for _, c := range e.cores {
		n = max(n, c.plan.streams)
	}
	e.sched = newScheduler(e.cfg.MaxQueuedTokens, e.cfg.MaxBatchTokens, n, e.cfg.Slice)
	for _, c := range e.cores {
		c.queue = e.sched.addQueue(shape{pad: c.plan.pad, maxRows: c.plan.maxRows, maxCols: c.hardLimit})
		e.sched.queues[c.queue].rate = c.measured.TokensPerSecond
		c.sched = e.sched
	}
	for range n {
		w := &worker{wake: make(chan struct{}, 1), engine: e}
		for _, c := range e.cores {
			st, err := c.session.NewStream()
			if err != nil {
				return err
			}
			w.streams = append(w.streams, st)
		}
		e.workers = append(e.workers, w)
	}
	var g errgroup.Group
	for _, w := range e.workers {
		g.Go(func() error { return w.warm(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, w := range e.workers {
		e.running.Add(1)
		go func() {
			defer e.running.Done()
			w.work()
		}()
	}
	return nil
}

// Refuse makes every later request fail with ErrClosed; what was admitted still runs.
func (e *Engine) Refuse() {
	if e.sched != nil {
		e.sched.refuse()
	}
}

// Close refuses new requests, lets what was admitted finish until ctx ends, then cuts it short, and frees the sessions. It returns
// only when no native call is in flight.
func (e *Engine) Close(ctx context.Context) error {
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	if e.sched != nil {
		if err := e.sched.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("inference: cut short at shutdown: %w", err))
			e.sched.abort(ErrClosed)
			for _, w := range e.workers {
				for _, st := range w.streams {
					errs = append(errs, st.Terminate())
				}
			}
		}
		e.running.Wait()
	}
	for _, w := range e.workers {
		for _, st := range w.streams {
			errs = append(errs, st.Close())
		}
	}
	for _, c := range e.cores {
		errs = append(errs, c.session.Close())
	}
	return errors.Join(errs...)
}

// Stats is a snapshot of the queue.
func (e *Engine) Stats() Stats {
	if e.sched == nil {
		return Stats{}
	}
	return e.sched.stats()
}
