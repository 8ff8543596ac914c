package inference

// The scheduler. One mutex guards everything here; no method blocks while holding it except by waiting on a worker's own wake-up
// channel outside it. Rows wait in FIFO lists, one per (lane, queue, padded length). A batch is opened by the oldest row and
// filled with rows of the same padded length, then of ever less alike ones, as long as padding stays a small share.
//
// A row is owned by the scheduler while it waits, by one worker while it runs, and by nobody afterwards; a job is owned by its caller. A
// worker touches a job only through finish, which closes job.done exactly once, after the last row.

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// defaultMaxQueuedTokens bounds what may wait: about a minute of work on two cores, and a few MB of ids.
	defaultMaxQueuedTokens = 262_144

	// defaultSlice is how long a bulk batch may take on one stream, so that a query's embedding waits no longer than that. Batches gain
	// little from being larger on a CPU: ten single rows of 128 tokens over two streams take 1.08 times one batch of ten.
	defaultSlice = 20 * time.Millisecond

	// minBatchTokens keeps a batch of short rows worth its fixed cost (about 1 ms a run) on a slow machine.
	minBatchTokens = 64

	// paddingShare: when rows of unlike padded length are put together, at most one part in so many may be padding for it.
	paddingShare = 8

	// interactiveRun is how many interactive batches in a row a worker prefers to waiting bulk rows; the next one is bulk. It bounds
	// the bulk lane's wait under a flood of queries to 1/5 of the device instead of nothing.
	interactiveRun = 4

	// rateWeight is how far one batch moves the measured rate: it follows a change of load within some tens of batches.
	rateWeight = 1.0 / 8
)

// shape bounds the batches of one queue (one model).
type shape struct {
	pad     int // padded lengths are multiples of it
	maxRows int // 1: every row runs alone
	maxCols int // the longest sequence the model takes; padding stops there
}

func (s shape) cols(n int) int {
	c := (n + s.pad - 1) / s.pad * s.pad
	if c > s.maxCols && n <= s.maxCols {
		c = s.maxCols
	}
	return c
}

// row is one sequence waiting to run.
type row struct {
	ids       []int32
	typeOneAt int
	job       *job
	pos       int // its place in the job
	seq       uint64
}

// job is one request's rows. Its caller reads the results after done is closed, never before.
type job struct {
	ctx   context.Context
	queue int
	lane  Lane
	rows  []row

	// Results, written by workers at disjoint positions, by the rows' pos.
	values []float32 // len(rows) × width
	width  int
	errs   []error // len(rows); nil where the row is well

	// Guarded by the scheduler's mutex.
	waiting   int // rows still in the queue
	running   int // rows with a worker
	abandoned bool
	submitted time.Time
	queued    time.Duration // of the row that was taken last
	ran       time.Duration // of the batch that ended last

	done chan struct{}
}

// batch is what a worker runs: rows of one queue, padded to cols.
type batch struct {
	queue  int
	lane   Lane
	rows   []row
	cols   int
	tokens int // useful ones
	own    int // the rows' padded lengths, had each run alone
	wait   time.Duration
	began  time.Time
}

// queue is what the scheduler knows of one model.
type queue struct {
	shape
	lists   [2]map[int]*fifo // lane → padded length → rows
	waiting int              // tokens
	rate    float64          // useful tokens per second of one worker; 0 before the first batch
}

type scheduler struct {
	max     int           // tokens that may wait
	budget  int           // padded tokens of a batch when a setting fixes it; 0: a slice of the measured rate
	slice   time.Duration // what a batch may take
	workers int

	mu       sync.Mutex
	queues   []*queue
	idle     []chan struct{} // workers waiting for rows, longest first
	seq      uint64
	waiting  int // tokens that wait
	rows     int // rows that wait
	inflight int // batches with workers
	streak   int // interactive batches since the last bulk one, while bulk rows waited
	closed   bool
	stopped  bool          // workers are to leave once the queue is empty
	drained  chan struct{} // closed when stopped and nothing waits or runs
}

// fifo is a queue of rows with a moving head.
type fifo struct {
	rows []row
	head int
}

func (f *fifo) empty() bool { return f.head == len(f.rows) }

func (f *fifo) push(r row) { f.rows = append(f.rows, r) }

func (f *fifo) pop() row {
	r := f.rows[f.head]
	f.rows[f.head] = row{} // let the ids go
	f.head++
	if f.head == len(f.rows) {
		f.rows, f.head = f.rows[:0], 0
	}
	return r
}

// peek returns the first row. The list must not be empty.
func (f *fifo) peek() row { return f.rows[f.head] }

// remove takes a job's rows out and returns how many they were and their tokens.
func (f *fifo) remove(j *job) (rows, tokens int) {
	kept := f.rows[f.head:f.head]
	for _, r := range f.rows[f.head:] {
		if r.job == j {
			rows++
			tokens += len(r.ids)
		} else {
			kept = append(kept, r)
		}
	}
	clear(f.rows[f.head+len(kept):])
	f.rows = f.rows[:f.head+len(kept)]
	return rows, tokens
}

func newScheduler(maxQueued, budget, workers int, slice time.Duration) *scheduler {
	if maxQueued <= 0 {
		maxQueued = defaultMaxQueuedTokens
	}
	if slice <= 0 {
		slice = defaultSlice
	}
	return &scheduler{max: maxQueued, budget: budget, workers: max(workers, 1), slice: slice, drained: make(chan struct{})}
}

// addQueue registers a model and returns its queue's number.
func (s *scheduler) addQueue(sh shape) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, &queue{shape: sh, lists: [2]map[int]*fifo{{}, {}}})
	return len(s.queues) - 1
}

// submit admits all rows of the job or none. Errors: *OverloadedError, ErrClosed.
func (s *scheduler) submit(j *job) error {
	tokens := 0
	for _, r := range j.rows {
		tokens += len(r.ids)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	// A job larger than the whole queue is let in when nothing waits: refusing it for ever would be worse.
	if s.waiting > 0 && s.waiting+tokens > s.max {
		return &OverloadedError{Tokens: tokens, Queued: s.waiting, Limit: s.max, RetryAfter: s.retryAfter(tokens)}
	}
	j.done = make(chan struct{})
	j.submitted = time.Now()
	j.waiting = len(j.rows)
	j.errs = make([]error, len(j.rows))
	if len(j.rows) == 0 {
		close(j.done)
		return nil
	}
	q := s.queues[j.queue]
	for _, r := range j.rows {
		s.seq++
		r.seq, r.job = s.seq, j
		cols := q.cols(len(r.ids))
		f := q.lists[j.lane][cols]
		if f == nil {
			f = &fifo{}
			q.lists[j.lane][cols] = f
		}
		f.push(r)
	}
	q.waiting += tokens
	s.waiting += tokens
	s.rows += len(j.rows)
	s.wake(len(j.rows))
	return nil
}

// retryAfter is when the queue will have drained enough for a job of so many tokens: the excess as a share of the time that all
// waiting work takes at the measured rates. Called with the mutex held.
func (s *scheduler) retryAfter(tokens int) time.Duration {
	var seconds float64
	for _, q := range s.queues {
		if q.waiting > 0 {
			if q.rate == 0 {
				return time.Second
			}
			seconds += float64(q.waiting) / (q.rate * float64(s.workers))
		}
	}
	excess := min(s.waiting, s.waiting+tokens-s.max)
	return time.Duration(seconds * float64(excess) / float64(s.waiting) * float64(time.Second))
}

// drop gives a job up: its waiting rows will not run. Rows already with a worker end there, unheard. Called with the mutex held.
func (s *scheduler) drop(j *job) {
	j.abandoned = true
	if j.waiting == 0 {
		return
	}
	q := s.queues[j.queue]
	for cols, f := range q.lists[j.lane] {
		rows, tokens := f.remove(j)
		j.waiting -= rows
		s.rows -= rows
		s.waiting -= tokens
		q.waiting -= tokens
		if f.empty() {
			delete(q.lists[j.lane], cols)
		}
	}
}

// wake lets up to n idle workers look for rows. Called with the mutex held.
func (s *scheduler) wake(n int) {
	for ; n > 0 && len(s.idle) > 0; n-- {
		c := s.idle[0]
		s.idle = s.idle[1:]
		c <- struct{}{} // has room for one, and a worker is listed at most once
	}
}

// next hands a worker its next batch; it waits until there is one. false: the scheduler has stopped and nothing waits. mine is the
// worker's own wake-up channel, of capacity one. rows is reused for the batch.
func (s *scheduler) next(mine chan struct{}, rows []row) (batch, bool) {
	for {
		s.mu.Lock()
		b, ok := s.form(rows[:0])
		if ok {
			s.inflight++
			s.mu.Unlock()
			return b, true
		}
		if s.stopped {
			s.leaveIfDone()
			s.mu.Unlock()
			return batch{}, false
		}
		s.idle = append(s.idle, mine)
		s.mu.Unlock()
		<-mine
	}
}

// form takes the next batch off the queues. Called with the mutex held.
func (s *scheduler) form(rows []row) (batch, bool) {
	for {
		lane, queue, cols, ok := s.pick()
		if !ok {
			return batch{}, false
		}
		b := batch{queue: queue, lane: lane, rows: rows, cols: cols, began: time.Now()}
		s.fill(&b, cols)
		if len(b.rows) > 0 { // else all of the list's jobs were given up
			return b, true
		}
	}
}

// pick chooses the lane by preference and in it the oldest row, which opens the batch.
func (s *scheduler) pick() (lane Lane, queue, cols int, ok bool) {
	iq, ic, interactive := s.oldest(LaneInteractive)
	bq, bc, bulk := s.oldest(LaneBulk)
	switch {
	case interactive && bulk && s.streak >= interactiveRun:
		s.streak = 0
		return LaneBulk, bq, bc, true
	case interactive:
		if bulk {
			s.streak++
		} else {
			s.streak = 0
		}
		return LaneInteractive, iq, ic, true
	case bulk:
		s.streak = 0
		return LaneBulk, bq, bc, true
	}
	return 0, 0, 0, false
}

// oldest finds the row of a lane that came first. Only heads need a look.
func (s *scheduler) oldest(lane Lane) (queue, cols int, ok bool) {
	var seq uint64
	for n, q := range s.queues {
		for c, f := range q.lists[lane] {
			if r := f.peek(); !ok || r.seq < seq {
				queue, cols, seq, ok = n, c, r.seq, true
			}
		}
	}
	return queue, cols, ok
}

// fill moves rows of one queue into the batch: from the list at cols first, then from the lists of nearest length.
func (s *scheduler) fill(b *batch, cols int) {
	q := s.queues[b.queue]
	limit := s.batchTokens(q)
	s.take(b, q, cols, limit)
	for d := q.pad; d < q.maxCols && len(b.rows) > 0 && len(b.rows) < q.maxRows; d += q.pad {
		s.take(b, q, cols-d, limit)
		s.take(b, q, cols+d, limit)
	}
}

// take moves rows of the list at cols into the batch while its size and its padding allow; the batch's first row always fits.
func (s *scheduler) take(b *batch, q *queue, cols, limit int) {
	f := q.lists[b.lane][cols]
	if f == nil {
		return
	}
	for !f.empty() && len(b.rows) < q.maxRows {
		r := f.peek()
		j := r.job
		if j.ctx.Err() != nil {
			s.drop(j) // its caller hears of it from the context
			continue
		}
		width := max(b.cols, cols)
		padded := (len(b.rows) + 1) * width
		if len(b.rows) > 0 && (padded > limit || (padded-b.own-cols)*paddingShare > padded) {
			break
		}
		f.pop()
		j.waiting--
		j.running++
		j.queued = b.began.Sub(j.submitted)
		s.rows--
		s.waiting -= len(r.ids)
		q.waiting -= len(r.ids)
		b.cols = width
		b.own += cols
		b.tokens += len(r.ids)
		b.wait = max(b.wait, j.queued)
		b.rows = append(b.rows, r)
	}
	if f.empty() {
		delete(q.lists[b.lane], cols)
	}
}

// batchTokens is the padded size a batch may have: the setting, or what one worker runs in a slice, but no more than a fair share
// of what waits while other workers are free.
func (s *scheduler) batchTokens(q *queue) int {
	limit := s.sizeOf(q)
	if free := s.workers - s.inflight - 1; free > 0 {
		limit = min(limit, max(minBatchTokens, s.waiting/(free+1)))
	}
	return limit
}

// sizeOf is the setting, or a slice's worth of tokens.
func (s *scheduler) sizeOf(q *queue) int {
	if s.budget > 0 {
		return s.budget
	}
	return max(minBatchTokens, int(q.rate*s.slice.Seconds()))
}

// sliceTokens is sizeOf for those outside.
func (s *scheduler) sliceTokens(queue int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeOf(s.queues[queue])
}

// finish ends a batch that took so long on the device. Results and failures of its rows are in their jobs already.
func (s *scheduler) finish(b batch, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inflight--
	if took > 0 && b.tokens > 0 {
		q := s.queues[b.queue]
		r := float64(b.tokens) / took.Seconds()
		if q.rate == 0 {
			q.rate = r
		} else {
			q.rate += (r - q.rate) * rateWeight
		}
	}
	for _, r := range b.rows {
		r.job.running--
		r.job.ran = took
		r.job.closeIfDone()
	}
	s.leaveIfDone()
}

func (j *job) closeIfDone() {
	if j.running == 0 && j.waiting == 0 && !j.abandoned {
		close(j.done)
	}
}

// wait blocks until the job is done or its context ends; then the job is given up and the context's error returned.
func (s *scheduler) wait(j *job) error {
	select {
	case <-j.done:
		return nil
	case <-j.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-j.done: // it ended in the same moment
		return nil
	default:
	}
	s.drop(j)
	s.leaveIfDone()
	return context.Cause(j.ctx)
}

// refuse makes every later submit fail with ErrClosed.
func (s *scheduler) refuse() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
}

// stop refuses new jobs, lets what waits run, and returns when nothing is left, or when ctx ends.
func (s *scheduler) stop(ctx context.Context) error {
	s.mu.Lock()
	s.closed, s.stopped = true, true
	s.leaveIfDone()
	s.wake(len(s.idle))
	s.mu.Unlock()
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("%d rows wait and %d batches run still: %w", s.rows, s.inflight, context.Cause(ctx))
	}
}

// abort ends every waiting job with err; batches with workers are not touched.
func (s *scheduler) abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		for lane := range q.lists {
			for cols, f := range q.lists[lane] {
				for !f.empty() {
					r := f.pop()
					s.rows--
					s.waiting -= len(r.ids)
					q.waiting -= len(r.ids)
					r.job.waiting--
					r.job.errs[r.pos] = err
					r.job.closeIfDone()
				}
				delete(q.lists[lane], cols)
			}
		}
	}
	s.leaveIfDone()
}

func (s *scheduler) leaveIfDone() {
	if s.stopped && s.rows == 0 && s.inflight == 0 {
		select {
		case <-s.drained:
		default:
			close(s.drained)
		}
	}
}

func (s *scheduler) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{QueuedTokens: s.waiting, QueuedRows: s.rows, MaxQueuedTokens: s.max}
	for _, q := range s.queues {
		out.TokensPerSecond = max(out.TokensPerSecond, q.rate*float64(s.workers))
	}
	return out
}
