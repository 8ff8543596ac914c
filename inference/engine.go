package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	SpareDir        string // where they are put when CacheDir cannot be written; whoever named it removes it after Close. "": nowhere
	MaxQueuedTokens int
	MaxBatchTokens  int           // padded tokens of one batch; 0: what one stream runs in a Slice
	Slice           time.Duration // what one batch may take
	EscapeSpecial   bool          // special tokens typed by users are plain text
	Memory          Memory        // remembers measurements from start to start; may be nil
	Observer        Observer      // may be nil
	Resident        func() int64  // the process's resident memory in bytes, for Info.Memory; nil: it is not measured
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

// Engine runs models on one device. Load models, Start, use them, Close; in that order. Each of these waits for the one before it.
type Engine struct {
	cfg      EngineConfig
	sched    *scheduler
	running  sync.WaitGroup
	tokenise *semaphore.Weighted // texts being tokenised at once: as many as CPUs

	mu      sync.Mutex // held by load, Start and Close from end to end
	started bool
	closed  bool
	cores   []*core // not changed after Start
	workers []*worker
}

// NewEngine makes an engine without models.
func NewEngine(cfg EngineConfig) *Engine {
	if cfg.Machine.CPUs < 1 {
		cfg.Machine.CPUs = 1
	}
	return &Engine{
		cfg: cfg, tokenise: semaphore.NewWeighted(int64(cfg.Machine.CPUs)),
		sched: newScheduler(cfg.MaxQueuedTokens, cfg.MaxBatchTokens, cfg.Slice),
	}
}

// DuplicateNameError is returned for a model that would be called what another one of the engine is.
type DuplicateNameError struct {
	Name    string
	Sources [2]string // of the two models
}

func (e *DuplicateNameError) Error() string {
	return fmt.Sprintf("two models are called %q: %s and %s", e.Name, e.Sources[0], e.Sources[1])
}

// checkNames refuses names that a loaded model has. Called with the mutex held.
func (e *Engine) checkNames(names []string, source string) error {
	for _, c := range e.cores {
		for _, n := range names {
			if n == c.info.ID || slices.Contains(c.info.Aliases, n) {
				return &DuplicateNameError{Name: n, Sources: [2]string{c.info.Source, source}}
			}
		}
	}
	return nil
}

// resident is the process's memory in bytes, 0 where nobody measures it.
func (e *Engine) resident() int64 {
	if e.cfg.Resident == nil {
		return 0
	}
	return e.cfg.Resident()
}

// add puts a loaded model on the engine, which closes its session from now on. Called with the mutex held.
func (e *Engine) add(c *core) {
	c.engine = e
	c.queue = e.sched.addQueue(c.shape(), c.plan.streams, c.measured.TokensPerSecond)
	e.cores = append(e.cores, c)
}

// Start makes the workers, lets each run the common shapes once, and begins to serve; requests that come earlier fail. ctx bounds the
// start alone. Models cannot be added afterwards. When it fails, only Close is left to do.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return ErrClosed
	case e.started:
		return errors.New("inference: the engine was started before")
	case len(e.cores) == 0:
		return errors.New("inference: no model is loaded")
	}
	e.started = true
	n := 1
	for _, c := range e.cores {
		n = max(n, c.plan.streams)
	}
	for range n {
		e.workers = append(e.workers, &worker{wake: make(chan struct{}, 1), engine: e})
	}
	for _, c := range e.cores {
		c.free = make(chan runner, c.plan.streams)
	}
	for i := range n {
		for _, c := range e.cores {
			if i >= c.plan.streams {
				continue
			}
			st, err := c.session.newStream()
			if err != nil {
				return fmt.Errorf("model %s: %w", c.info.ID, err)
			}
			c.streams = append(c.streams, st)
			c.free <- st
		}
	}
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return e.warm(ctx, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for q := range e.cores {
		if err := e.pace(ctx, q); err != nil {
			return err
		}
	}
	e.sched.start(n)
	for _, w := range e.workers {
		e.running.Go(w.work)
	}
	return nil
}

// paceRuns is how often each pace is measured at the start; the shortest time counts, as other programs only ever lengthen it.
const paceRuns = 3

// pace measures how fast a model runs on one worker alone and on all of them at once: where they share cores, that differs by up to their
// number. It costs some tens of milliseconds. The scheduler corrects both from then on.
func (e *Engine) pace(ctx context.Context, queue int) error {
	c := e.cores[queue]
	if len(c.streams) < 2 {
		return nil
	}
	var alone, beside time.Duration
	for range paceRuns {
		took, err := c.lap(ctx, c.streams[0])
		if err != nil {
			return err
		}
		alone = shorter(alone, took)
		var g errgroup.Group
		times := make([]time.Duration, len(c.streams))
		for i, st := range c.streams {
			g.Go(func() (err error) {
				times[i], err = c.lap(ctx, st)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		beside = shorter(beside, slices.Max(times))
	}
	e.sched.setPace(queue, c.lapCols(), alone, beside)
	return nil
}

// shorter is the shorter of two times, of which zero is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// Refuse makes every later request fail with ErrClosed; what was admitted still runs.
func (e *Engine) Refuse() { e.sched.refuse() }

// Close refuses new requests, lets what was admitted finish until ctx ends, then cuts it short (those requests fail with ErrClosed),
// and frees the sessions. It returns only when no native call is in flight. A second Close waits for the first and does nothing.
func (e *Engine) Close(ctx context.Context) error {
	e.sched.refuse() // at once, even while a Start is under way
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	if err := e.sched.stop(ctx); err != nil {
		errs = append(errs, fmt.Errorf("inference: cut short at shutdown: %w", err))
		e.sched.abort()
		for _, c := range e.cores {
			for _, st := range c.streams {
				errs = append(errs, st.Terminate())
			}
		}
	}
	e.running.Wait()
	for _, c := range e.cores {
		for _, st := range c.streams {
			errs = append(errs, st.Close())
		}
		errs = append(errs, c.session.Close())
	}
	return errors.Join(errs...)
}

// Stats is a snapshot of the queue.
func (e *Engine) Stats() Stats { return e.sched.stats() }
