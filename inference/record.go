package inference

import (
	"context"
	"sync"
	"time"
)

// Record collects what became of the calls of models that are made under one context, with the times at which it did: for whoever
// shows it to a person. Put one into a context with [WithRecord]. Without one nothing is collected.
type Record struct {
	mu    sync.Mutex
	calls []Call
}

// Call is one Embed or Rerank.
type Call struct {
	Model string
	Kind  Kind
	Lane  Lane
	Err   error

	// In order. Of a call that failed, those that it did not come to are zero. A first row may run while the last one waits.
	Began      time.Time // waiting for a CPU, then tokenising
	Submitted  time.Time // its rows joined the queue
	FirstTaken time.Time // the first row left it for a worker
	LastTaken  time.Time
	Done       time.Time

	Items        int // texts or documents
	Rows         int // sequences that joined the queue
	Tokens       int // of its rows
	PaddedTokens int // that its rows had in their batches
	Batches      int // that its rows were in
	Batch        Batch
}

// Batch is the run that a call's rows ended in last, with whatever rows of other calls shared it.
type Batch struct {
	ID           uint64 // counts the batches of an engine from 1; calls with the same one shared it
	Rows         int
	Tokens       int
	PaddedTokens int
}

type recordKey struct{}

// WithRecord returns a context whose calls of models are collected in r.
func WithRecord(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// Add adds a call that has ended: for whoever runs it.
func (r *Record) Add(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// Calls returns what was collected so far, in the order in which the calls ended.
func (r *Record) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.calls...)
}

// record adds the call that j was made for to the context's record. The job may never have been submitted, and may have been given up while
// workers still write to its results; what is read here is guarded by the scheduler's mutex.
func (c *core) record(r *Record, j *job, began time.Time, items int, err error) {
	call := Call{Model: c.info.ID, Kind: c.info.Kind, Lane: j.lane, Err: err, Began: began, Done: time.Now(), Items: items}
	c.engine.sched.trail(j, &call)
	r.Add(call)
}

// RecordOf returns the context's record, nil where there is none.
func RecordOf(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}
