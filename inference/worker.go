package inference

import (
	"context"
	"errors"
	"time"

	"ragate/inference/ort"
)

// runner is what a worker needs of a native stream; *ort.Stream is one. Run's output holds until the next Run.
type runner interface {
	Run(rows []ort.Row, cols int) (ort.Output, error)
	Terminate() error
	Close() error
}

// worker owns one stream of each model and runs batches on them, one at a time.
type worker struct {
	engine  *Engine
	wake    chan struct{}
	streams []runner // by queue
	rows    []row
	input   []ort.Row
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
		failed := w.run(c, b)
		took := time.Since(began)
		s.finish(b, took)
		if o := w.engine.cfg.Observer; o != nil {
			o.BatchDone(BatchStats{
				Model: c.info.ID, Kind: c.info.Kind, Lane: b.lane, Rows: len(b.rows), Tokens: b.tokens, PaddedTokens: len(b.rows) * b.cols,
				QueueWait: b.wait, Inference: took, Failed: failed,
			})
		}
		clear(w.rows) // the ids and jobs are their callers' again
	}
}

// run runs a batch and writes each row's result or error into its job. A batch that fails as a whole is run again row by row, so
// that only the row at fault fails. It returns how many rows failed.
func (w *worker) run(c *core, b batch) (failed int) {
	err := w.try(c, b.rows, b.cols, &failed)
	if err == nil {
		return failed
	}
	for i := range b.rows {
		one := b.rows[i : i+1]
		e := err
		if len(b.rows) > 1 {
			e = w.try(c, one, c.shape().cols(len(one[0].ids)), &failed)
		}
		if e != nil {
			failed++
			one[0].job.errs[one[0].pos] = e
		}
	}
	return failed
}

// try runs the rows as one batch. An error means that none of them has a result.
func (w *worker) try(c *core, rows []row, cols int, failed *int) error {
	w.input = w.input[:0]
	for _, r := range rows {
		w.input = append(w.input, ort.Row{IDs: r.ids, TypeOneAt: r.typeOneAt})
	}
	out, err := w.streams[c.queue].Run(w.input, cols)
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

// warmCols are the padded lengths that are run once before serving: each new shape costs tens of milliseconds on its first run.
var warmCols = []int{16, 32, 48, 64, 96, 128, 160, 192, 256}

// warm runs the common shapes on each of the worker's streams.
func (w *worker) warm(ctx context.Context) error {
	for q, c := range w.engine.cores {
		for _, cols := range warmCols {
			if cols > c.hardLimit {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			row := ort.Row{IDs: make([]int32, cols), TypeOneAt: cols}
			for i := range row.IDs {
				row.IDs[i] = c.warmID
			}
			if _, err := w.streams[q].Run([]ort.Row{row}, cols); err != nil {
				return errors.Join(errors.New("the first run of "+c.info.ID+" failed"), err)
			}
		}
	}
	return nil
}
