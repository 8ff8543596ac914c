package inference

import (
	"context"
	"fmt"
	"time"

	"ragate/inference/ort"
)

// session is what an engine needs of a native session. Its streams are closed before it.
type session interface {
	newStream() (runner, error)
	Close() error
}

// nativeSession makes the runtime's sessions into ours.
type nativeSession struct{ *ort.Session }

func (s nativeSession) newStream() (runner, error) {
	st, err := s.NewStream()
	if err != nil {
		return nil, err
	}
	return st, nil
}

// runner is what a worker needs of a native stream; *ort.Stream is one. Run's output holds until the next Run. Terminate may be called
// while Run runs, which then fails as early as it can, and so does every later one.
type runner interface {
	Run(rows []ort.Row, cols int) (ort.Output, error)
	Terminate() error
	Close() error
}

// worker runs batches, one at a time, each on a free stream of its model.
type worker struct {
	engine *Engine
	wake   chan struct{}
	rows   []row
	input  []ort.Row
}

func (w *worker) work() {
	s := w.engine.sched
	for {
		b, ok := s.next(w.wake, w.rows)
		if !ok {
			return
		}
		w.rows = b.rows
		c := w.engine.cores[b.queue]
		began := time.Now()
		st := <-c.free // at once: the scheduler counts them
		failed := w.run(c, st, b)
		c.free <- st
		took := time.Since(began)
		if o := w.engine.cfg.Observer; o != nil {
			o.BatchDone(BatchStats{
				Model: c.info.ID, Kind: c.info.Kind, Lane: b.lane, Rows: len(b.rows), Tokens: b.tokens, PaddedTokens: len(b.rows) * b.cols,
				QueueWait: b.wait, Inference: took, Failed: failed,
			})
		}
		s.finish(b, took, failed)
		clear(w.rows) // the ids and jobs are their callers' again
		clear(w.input)
	}
}

// run runs a batch and writes each row's result or error into its job. A batch that fails as a whole is run again row by row, so
// that only the row at fault fails; not at shutdown, where it was the terminate flag. It returns how many rows failed.
func (w *worker) run(c *core, st runner, b batch) (failed int) {
	err := w.try(c, st, b.rows, b.cols, &failed)
	if err == nil {
		return failed
	}
	for i := range b.rows {
		one, e := b.rows[i:i+1], err
		j := one[0].job
		if len(b.rows) > 1 && !w.engine.sched.isAborted() && j.ctx.Err() == nil {
			e = w.try(c, st, one, c.shape().cols(len(one[0].ids)), &failed)
		}
		if e == nil {
			continue
		}
		if w.engine.sched.isAborted() {
			e = ErrClosed
		}
		failed++
		j.errs[one[0].pos] = e
	}
	return failed
}

// try runs the rows as one batch. An error means that none of them has a result.
func (w *worker) try(c *core, st runner, rows []row, cols int, failed *int) error {
	w.input = w.input[:0]
	for _, r := range rows {
		w.input = append(w.input, ort.Row{IDs: r.ids, TypeOneAt: r.typeOneAt})
	}
	out, err := st.Run(w.input, cols)
	if err == nil {
		err = c.head.check(out, len(rows), cols)
	}
	if err != nil {
		return err
	}
	for i, r := range rows {
		j := r.job
		if err := c.head.read(j.values[r.pos*j.width:(r.pos+1)*j.width], out, i, len(r.ids), cols); err != nil {
			*failed++
			j.errs[r.pos] = err
		}
	}
	return nil
}

// warmCols are the padded lengths that are run once before serving. A session's very first run costs about 60 ms more than its second,
// a new shape after that some 10 ms (measured with OpenVINO, bf16), so a few that span the range are enough.
var warmCols = []int{16, 64, 128}

// warm runs the common shapes on the i-th stream of each model.
func (e *Engine) warm(ctx context.Context, i int) error {
	for _, c := range e.cores {
		if i >= len(c.streams) {
			continue
		}
		for _, cols := range warmCols {
			if cols > c.hardLimit {
				break
			}
			if err := c.dry(ctx, c.streams[i], cols); err != nil {
				return err
			}
		}
	}
	return nil
}

// lapCols is the longest of the lengths that a model was warmed with, 0 where it takes none of them.
func (c *core) lapCols() int {
	n := 0
	for _, cols := range warmCols {
		if cols <= c.hardLimit {
			n = cols
		}
	}
	return n
}

// lap is how long a run of one row of lapCols takes on a stream.
func (c *core) lap(ctx context.Context, st runner) (time.Duration, error) {
	cols := c.lapCols()
	if cols == 0 {
		return 0, nil
	}
	began := time.Now()
	err := c.dry(ctx, st, cols)
	return time.Since(began), err
}

// dry runs one row of so many tokens, whatever they are.
func (c *core) dry(ctx context.Context, st runner, cols int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	row := ort.Row{IDs: make([]int32, cols), TypeOneAt: cols}
	if _, err := st.Run([]ort.Row{row}, cols); err != nil {
		return fmt.Errorf("model %s: a run of %d tokens before serving: %w", c.info.ID, cols, err)
	}
	return nil
}
