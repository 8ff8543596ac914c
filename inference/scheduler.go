package inference

// The scheduler. One mutex guards everything here; nothing blocks while it is held: a worker waits for its wake-up channel outside, and
// a wake-up always finds room in it. Rows wait in lists, one per (lane, queue, padded length). A batch is opened by the oldest row of the
// client whose turn it is (fair.go) and filled with rows of the same padded length, then of ever less alike ones, as long as padding stays a
// small share. Which jobs are admitted is in admission.go.
//
// A row is owned by the scheduler while it waits, by one worker while it runs, and by nobody afterwards. A worker writes the results of
// its rows into their job, at places that are no other row's, and then calls finish; done is closed once, after the job's last row.
// The caller reads results only after that. A job whose caller left (its context ended) is never closed: a worker may still write to
// it, and nobody reads it.

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
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

	// minInteractiveTokens is the same for interactive rows, which are the shortest, and here wait for each other only. On two threads of one
	// core with avx512_bf16, where a slice is 64 tokens, 300 queries of 16 to 64 tokens ran at 153, 188, 206, 213 and 215 a second in
	// batches of one row, and of up to 64, 128, 256 and 512 tokens; with 16 clients that wait for their answers, 192 is the best.
	minInteractiveTokens = 192

	// When rows of unlike padded length are put together, at most one part in so many may be padding for it. A query's next longer
	// neighbour is often twice as long, and with one part in 8 more was lost on padding than was won by fewer runs.
	paddingShare            = 8
	paddingShareInteractive = 16

	// interactiveRun is how many interactive batches in a row a worker prefers to waiting bulk rows; the next one is bulk. It bounds
	// the bulk lane's wait under a flood of queries to 1/5 of the device instead of nothing.
	interactiveRun = 4

	// rateWeight is how far one full batch moves the measured rate: it follows a change of load within some tens of batches.
	rateWeight = 1.0 / 8

	// staleRate is how long a measured rate is believed without a batch to confirm it. Rows that would be late are not run, and then nothing
	// is measured: one slow second would keep a model from ever running again. So after this time one such row runs all the same, and
	// its batch moves the rate by staleWeight.
	staleRate   = time.Second
	staleWeight = 1.0 / 2

	// aloneWeight is how far a run beside which nothing ran moves the rate of such runs. They are rare.
	aloneWeight = 1.0 / 4

	// leastPace: no device runs 128 tokens in less, so a shorter time says nothing.
	leastPace = 100 * time.Microsecond
)

// longestPause is how many times as long as planned a batch may have taken to count for the rate: one that took longer did not compute, its
// machine stood still, and a rate that believed it would be wrong for many seconds. One such batch costs the rate a factor of 11.
const longestPause = 80

// errNotStarted is returned for requests that come before Start has made the workers.
var errNotStarted = errors.New("the inference engine has not started")

// errUnscored is the error of rows that a job's deadline left no time for.
var errUnscored = errors.New("there was no time for this row before the deadline")

// shape bounds the batches of one queue (one model).
type shape struct {
	pad     int // padded lengths are multiples of it
	maxRows int // 1: every row runs alone
	maxCols int // the longest sequence the model takes; padding stops there
}

// cols is the padded length of a row of n tokens. Where maxCols is no multiple of pad, the longest rows form a list of their own,
// which is no neighbour of any other: no row is ever padded to a length that is not a multiple, unless it always is.
func (s shape) cols(n int) int {
	c := (max(n, 1) + s.pad - 1) / s.pad * s.pad
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
	from  string // whose request it is

	// Results, written by workers at disjoint positions, by the rows' pos.
	values []float32 // len(rows) × width
	width  int
	errs   []error // len(rows); nil where the row is well, ErrClosed where shutdown cut it short, errUnscored where there was no time

	taken    []bool    // with a deadline: which rows left the queue
	deadline time.Time // rows that cannot be done by then are not run; zero: none

	// Guarded by the scheduler's mutex.
	client    *client
	waiting   int // rows still in the queue
	running   int // rows with a worker
	abandoned bool
	submitted time.Time
	queued    time.Duration // of the row that was taken last
	ran       time.Duration // of the batch that ended last
	first     time.Time     // when its first row was taken
	batches   int           // that ended
	last      Batch         // that ended last
	padded    int           // tokens that its rows had in their batches

	done chan struct{}
}

// batch is what a worker runs: rows of one queue, padded to cols.
type batch struct {
	id     uint64
	queue  int
	lane   Lane
	rows   []row
	cols   int
	tokens int // useful ones
	own    int // the rows' padded lengths, had each run alone
	wait   time.Duration
	began  time.Time

	deadline time.Time // the earliest of its rows' jobs; zero: none
	stale    bool      // it runs to measure the rate anew
	held     bool      // its first row is left waiting until nothing else runs
	alone    bool      // nothing else ran when it began
	serial   uint64    // of the batches begun so far
}

// queue is what the scheduler knows of one model.
type queue struct {
	shape
	streams int              // runs in flight at once, at most
	running int              // batches with workers
	lists   [2]map[int]*list // lane → padded length → rows
	waiting int              // tokens
	rate    float64          // useful tokens per second of one worker; 0 before the first batch
	padded  float64          // the same with padding, which is what a run's time goes by; 0 before the first batch
	alone   float64          // padded tokens per second of a worker while no other runs; 0 where that is not known

	measured time.Time // when a batch last moved the rates, or a row was let through to do so
}

type scheduler struct {
	max    int           // tokens that one client may have waiting while no other has
	budget int           // padded tokens of a batch when a setting fixes it; 0: a slice of the measured rate
	slice  time.Duration // what a batch may take

	mu       sync.Mutex
	workers  int // 0 before start
	queues   []*queue
	idle     []chan struct{} // workers waiting for rows, longest first
	seq      uint64
	formed   uint64 // batches
	waiting  int    // tokens that wait
	rows     [2]int // rows that wait, by lane
	inflight int    // batches with workers
	begun    uint64 // batches that were handed to workers
	streak   int    // interactive batches since the last bulk one, while bulk rows waited
	closed   bool
	stopped  bool          // workers are to leave once the queue is empty
	aborted  bool          // what ran when this was set may fail, because it was cut short
	drained  chan struct{} // closed when stopped and nothing waits or runs

	// Clients (fair.go).
	clients map[string]*client
	sweepAt int
	active  int       // clients with rows that wait
	virtual [2]uint64 // by lane: the virtual time of who opened the last batch
	ahead   [2]uint64 // by lane: the furthest that any client came
	drain   drain     // of all together

	// Admission (admission.go).
	epoch       time.Time
	seed        maphash.Seed
	promises    map[uint64]promise // by fingerprint
	lapseAt     int
	large       *job   // the one that waits beside the queue
	largeTokens int    // of it that wait still
	reserved    uint64 // fingerprint of the large job that comes next; 0: none
	reservedFor *client
	reservedDue time.Duration
}

// fifo is a queue of one client's rows with a moving head.
type fifo struct {
	client *client
	rows   []row
	head   int
}

func (f *fifo) empty() bool { return f.head == len(f.rows) }

func (f *fifo) push(r row) {
	if len(f.rows) == cap(f.rows) && f.head > len(f.rows)/2 {
		// Under a load that never lets the list run empty it would else grow for ever.
		n := copy(f.rows, f.rows[f.head:])
		clear(f.rows[n:])
		f.rows, f.head = f.rows[:n], 0
	}
	f.rows = append(f.rows, r)
}

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

func newScheduler(maxQueued, budget int, slice time.Duration) *scheduler {
	if maxQueued <= 0 {
		maxQueued = defaultMaxQueuedTokens
	}
	if slice <= 0 {
		slice = defaultSlice
	}
	return &scheduler{max: maxQueued, budget: max(budget, 0), slice: slice, drained: make(chan struct{}),
		clients: map[string]*client{}, promises: map[uint64]promise{}, epoch: time.Now(), seed: maphash.MakeSeed()}
}

// addQueue registers a model, which can have so many runs in flight, and returns its queue's number. rate is the token rate of one worker while no other
// runs, where it is known: 0 else.
func (s *scheduler) addQueue(sh shape, streams int, rate float64) int {
	if !(rate > 0) || math.IsInf(rate, 1) { // it comes from a file
		rate = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, &queue{shape: sh, streams: max(streams, 1), rate: rate, alone: rate, lists: [2]map[int]*list{{}, {}}})
	return len(s.queues) - 1
}

// setPace tells how long a run of so many padded tokens takes a worker while no other runs, and beside all others.
func (s *scheduler) setPace(queue, tokens int, alone, beside time.Duration) {
	if alone < leastPace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	q.alone = float64(tokens) / alone.Seconds()
	q.padded = float64(tokens) / max(alone, beside).Seconds()
	q.rate = q.padded
}

// start opens the queue for jobs, which so many workers will take.
func (s *scheduler) start(workers int) {
	s.mu.Lock()
	s.workers = max(workers, 1)
	s.mu.Unlock()
}

// submit admits all rows of the job or none. Errors: *OverloadedError, ErrClosed, errNotStarted, the context's.
func (s *scheduler) submit(j *job) error {
	tokens := 0
	for _, r := range j.rows {
		tokens += len(r.ids)
	}
	if j.ctx.Err() != nil {
		return context.Cause(j.ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.workers == 0 {
		return errNotStarted
	}
	j.client = s.clientOf(j.from)
	if over := s.admit(j, tokens); over != nil {
		return over
	}
	j.done = make(chan struct{})
	j.submitted = time.Now()
	j.waiting = len(j.rows)
	j.errs = make([]error, len(j.rows))
	if !j.deadline.IsZero() {
		j.taken = make([]bool, len(j.rows))
	}
	if len(j.rows) == 0 {
		close(j.done)
		return nil
	}
	q := s.queues[j.queue]
	s.enter(j, tokens)
	for _, r := range j.rows {
		s.seq++
		r.seq, r.job = s.seq, j
		cols := q.cols(len(r.ids))
		f := q.lists[j.lane][cols]
		if f == nil {
			f = newList(j.lane)
			q.lists[j.lane][cols] = f
		}
		f.push(r)
	}
	q.waiting += tokens
	s.waiting += tokens
	s.rows[j.lane] += len(j.rows)
	s.wake(len(j.rows))
	return nil
}

// drop gives a job up: its waiting rows will not run. Rows already with a worker end there, unheard. Called with the mutex held.
func (s *scheduler) drop(j *job) {
	j.abandoned = true
	s.unqueue(j)
}

// expire ends what waits of a job whose time is up; its rows with a worker are still waited for. Called with the mutex held.
func (s *scheduler) expire(j *job) {
	for i := range j.errs {
		if !j.taken[i] && j.errs[i] == nil {
			j.errs[i] = errUnscored
		}
	}
	if j.waiting > 0 {
		s.unqueue(j)
		j.closeIfDone()
	}
}

// unqueue takes the waiting rows of a job out of the lists. Called with the mutex held.
func (s *scheduler) unqueue(j *job) {
	if j.waiting == 0 {
		return
	}
	q := s.queues[j.queue]
	for cols, f := range q.lists[j.lane] {
		rows, tokens := f.remove(j)
		j.waiting -= rows
		s.leave(j, rows, tokens)
		s.rows[j.lane] -= rows
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
		s.idle = slices.Delete(s.idle, 0, 1)
		c <- struct{}{} // has room for one: a worker lists itself at most once, and takes its wake-up before it does so again
	}
}

// next hands a worker its next batch; it waits until there is one. false: the scheduler has stopped and nothing waits. mine is the
// worker's own wake-up channel, of capacity one. rows is reused for the batch.
func (s *scheduler) next(mine chan struct{}, rows []row) (batch, bool) {
	for {
		s.mu.Lock()
		b, ok := s.form(rows[:0])
		if ok {
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

// form takes the next batch off the queues: of the preferred lane, opened by the row whose turn it is. Called with the mutex held.
func (s *scheduler) form(rows []row) (batch, bool) {
	for s.rows[LaneBulk]+s.rows[LaneInteractive] > 0 {
		lane := LaneInteractive
		if s.rows[LaneInteractive] == 0 || s.rows[LaneBulk] > 0 && s.streak >= interactiveRun {
			lane = LaneBulk
		}
		queue, cols, j := s.foremost(lane)
		if j == nil { // all of the lane's models run as often as they can
			lane = LaneBulk + LaneInteractive - lane
			queue, cols, j = s.foremost(lane)
		}
		if j == nil {
			return batch{}, false // the worker that ends one of them looks again
		}
		if j.ctx.Err() != nil {
			s.drop(j) // its caller hears of it from the context
			continue
		}
		b := batch{queue: queue, lane: lane, rows: rows, cols: cols, began: time.Now()}
		s.fill(&b)
		if b.held {
			return batch{}, false // the worker that ends last looks again
		}
		if len(b.rows) == 0 {
			continue // its context ended just now, or its time
		}
		s.begun++
		b.serial, b.alone = s.begun, s.inflight == 0
		s.inflight++
		s.queues[queue].running++
		if lane == LaneInteractive && s.rows[LaneBulk] > 0 {
			s.streak++
		} else {
			s.streak = 0
		}
		s.formed++
		b.id = s.formed
		return b, true
	}
	return batch{}, false
}

// foremost finds the row of a lane whose turn it is: the oldest of the client that was served least, of the models that have a stream free.
// j is nil where there is none. No list is empty.
func (s *scheduler) foremost(lane Lane) (queue, cols int, j *job) {
	var best row
	for n, q := range s.queues {
		if q.running >= q.streams {
			continue
		}
		for c, f := range q.lists[lane] {
			if r := f.peek(); j == nil || comesBefore(lane, r, best) {
				queue, cols, j, best = n, c, r.job, r
			}
		}
	}
	return queue, cols, j
}

// fill moves rows of the batch's queue into it: from the list at its length first, then from the lists of nearest length.
func (s *scheduler) fill(b *batch) {
	q := s.queues[b.queue]
	limit := s.batchTokens(q, b.lane)
	cols := b.cols
	s.take(b, q, cols, limit)
	for d := q.pad; d < q.maxCols; d += q.pad {
		if n := len(b.rows); n == 0 || n == q.maxRows || (n+1)*b.cols > limit {
			return
		}
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
	share := paddingShare
	if b.lane == LaneInteractive {
		share = paddingShareInteractive
	}
	for !f.empty() && len(b.rows) < q.maxRows {
		r := f.peek()
		j := r.job
		if j.ctx.Err() != nil {
			s.drop(j)
			continue
		}
		width := max(b.cols, cols)
		padded := (len(b.rows) + 1) * width
		if len(b.rows) > 0 && (padded > limit || (padded-b.own-cols)*share > padded) {
			break
		}
		if q.late(b, j, padded, max(q.padded, q.rate)) {
			switch {
			case len(b.rows) > 0: // in a smaller batch it may be in time
				return
			case !q.late(b, j, padded, s.aloneRate(q)) && s.inflight == 0: // nothing else runs, so it is
			case !q.late(b, j, padded, s.aloneRate(q)) && s.rows[LaneBulk]+s.rows[LaneInteractive] == j.waiting:
				b.held = true // it may be, once what runs has ended; nobody waits behind it
				return
			case q.tryAgain(b, j, s.slice):
				b.stale = true
			default:
				s.expire(j) // a shorter row of it might just fit; the rows come in the order of what matters, so the rest is not tried
				return
			}
		}
		f.pop()
		j.waiting--
		j.running++
		if j.taken != nil {
			j.taken[r.pos] = true
			b.deadline = earlier(b.deadline, j.deadline)
		}
		j.queued = b.began.Sub(j.submitted)
		if j.first.IsZero() {
			j.first = b.began
		}
		s.charge(b, r, cols, limit)
		s.rows[b.lane]--
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

// aloneRate is what one worker does while no other runs, in padded tokens per second: more than beside others where they share a core, and at
// most what all do together. Called with the mutex held.
func (s *scheduler) aloneRate(q *queue) float64 {
	shared := max(q.padded, q.rate)
	return min(max(shared, q.alone), shared*float64(s.workers))
}

// late says whether a batch of so many padded tokens would end, at this rate, after the deadline of the job or of the batch so far.
func (q *queue) late(b *batch, j *job, padded int, rate float64) bool {
	deadline := earlier(b.deadline, j.deadline)
	if deadline.IsZero() {
		return false
	}
	var takes time.Duration
	if rate > 0 {
		takes = time.Duration(float64(padded) / rate * float64(time.Second))
	}
	return b.began.Add(takes).After(deadline)
}

// tryAgain says whether a row that would be late is to run, because the rate that says so is stale. Where less than a slice is left, most
// rows are late at any rate.
func (q *queue) tryAgain(b *batch, j *job, slice time.Duration) bool {
	if b.began.Sub(q.measured) < staleRate || j.deadline.Sub(b.began) < slice {
		return false
	}
	q.measured = b.began
	return true
}

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// batchTokens is the padded size a batch may have: the setting, or what one worker runs in a slice, but no more than a fair share
// of what waits while other workers are free.
func (s *scheduler) batchTokens(q *queue, lane Lane) int {
	limit := s.sizeOf(q, lane)
	if free := s.workers - s.inflight - 1; free > 0 {
		limit = min(limit, max(minBatchTokens, s.waiting/(free+1)))
	}
	return limit
}

// sizeOf is the setting, or a slice's worth of tokens.
func (s *scheduler) sizeOf(q *queue, lane Lane) int {
	if s.budget > 0 {
		return s.budget
	}
	least := minBatchTokens
	if lane == LaneInteractive {
		least = minInteractiveTokens
	}
	return max(least, int(q.rate*s.slice.Seconds()))
}

// sliceTokens is sizeOf for those outside.
func (s *scheduler) sliceTokens(queue int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeOf(s.queues[queue], LaneBulk)
}

// rateOf is the measured rate of all of a model's streams together, in useful tokens per second; 0 before the first batch.
func (s *scheduler) rateOf(queue int) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	return q.rate * float64(s.runsOf(q))
}

// runsOf is how many runs of a model can be in flight. Called with the mutex held.
func (s *scheduler) runsOf(q *queue) int { return min(q.streams, s.workers) }

// finish ends a batch that took so long on the device. Results and failures of its rows, failed in number, are in their jobs already.
func (s *scheduler) finish(b batch, took time.Duration, failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inflight--
	q := s.queues[b.queue]
	if q.running--; q.waiting > 0 && q.running == q.streams-1 && q.streams < s.workers {
		s.wake(1) // its rows kept nobody awake while all its streams were busy, and this worker may find others first
	}
	if failed == 0 { // a run that broke off says nothing of the rate, and one that was repeated row by row neither
		weight := rateWeight
		if b.stale {
			weight = staleWeight
		}
		padded := len(b.rows) * b.cols
		if s.workers > 1 && b.alone && s.begun == b.serial {
			// Beside others it would have taken between as long and as many times as long as there are workers. So it says nothing of the
			// shared rates while they lie in between.
			q.alone = learn(q.alone, padded, took, s.slice, aloneWeight)
			q.padded = learn(max(q.padded, q.rate), padded, within(took, s.workers, padded, max(q.padded, q.rate)), s.slice, weight)
			q.rate = learn(q.rate, b.tokens, within(took, s.workers, b.tokens, q.rate), s.slice, weight)
		} else {
			q.padded = learn(max(q.padded, q.rate), padded, took, s.slice, weight)
			q.rate = learn(q.rate, b.tokens, took, s.slice, weight)
		}
		q.measured = time.Now()
	}
	for _, r := range b.rows {
		r.job.running--
		r.job.ran = took
		r.job.padded += b.cols
		if r.job.last.ID != b.id {
			r.job.batches++
			r.job.last = Batch{ID: b.id, Rows: len(b.rows), Tokens: b.tokens, PaddedTokens: len(b.rows) * b.cols}
		}
		r.job.closeIfDone()
	}
	s.leaveIfDone()
}

// within is the time that so many tokens take at the rate, but no less than took and no more than that many times took.
func within(took time.Duration, times, tokens int, rate float64) time.Duration {
	if rate == 0 {
		return took
	}
	expected := time.Duration(float64(tokens) / rate * float64(time.Second))
	return min(max(expected, took), took*time.Duration(times))
}

// learn moves a measured rate by one batch, a full one by weight. What is averaged is the time of a token and not its inverse, so that a batch which took
// far too long shortens the next ones at once. A batch counts by the square of how much of a slice it filled, once because it holds
// so much less to learn from and once because more of its time is fixed cost: a stream of lone short queries, which run at an eighth of
// the rate, would else shrink the batches of everybody.
func learn(rate float64, tokens int, took, slice time.Duration, weight float64) float64 {
	if took <= 0 || tokens <= 0 {
		return rate
	}
	perToken := took.Seconds() / float64(tokens)
	if rate == 0 {
		return 1 / perToken
	}
	full := min(1, float64(tokens)/(rate*slice.Seconds()))
	before := 1 / rate
	perToken = min(perToken, before*longestPause)
	return 1 / (before + (perToken-before)*weight*full*full)
}

// closeIfDone tells the job's caller after its last row. Called with the mutex held, once for each row that ends.
func (j *job) closeIfDone() {
	if j.running == 0 && j.waiting == 0 && !j.abandoned {
		close(j.done)
	}
}

// wait blocks until the job is done or its context ends; then the job is given up and the context's error returned. At its deadline the
// job's waiting rows are given up, and those with a worker waited for.
func (s *scheduler) wait(j *job) error {
	var expired <-chan time.Time
	if !j.deadline.IsZero() {
		t := time.NewTimer(time.Until(j.deadline))
		defer t.Stop()
		expired = t.C
	}
	for waiting := true; waiting; {
		select {
		case <-j.done:
			return nil
		case <-expired:
			expired = nil
			s.mu.Lock()
			s.expire(j)
			s.leaveIfDone()
			s.mu.Unlock()
		case <-j.ctx.Done():
			waiting = false
		}
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
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.drained: // with nothing left to do, a context that has ended is no failure
		return nil
	default:
	}
	return fmt.Errorf("%d rows wait and %d batches run still: %w", s.rows[LaneBulk]+s.rows[LaneInteractive], s.inflight, context.Cause(ctx))
}

// abort ends every waiting row with ErrClosed; batches with workers are not touched, but may fail from now on without fault of theirs.
func (s *scheduler) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.aborted = true, true
	for _, q := range s.queues {
		for lane := range q.lists {
			for cols, f := range q.lists[lane] {
				for !f.empty() {
					r := f.peek()
					f.pop()
					s.rows[lane]--
					s.waiting -= len(r.ids)
					q.waiting -= len(r.ids)
					r.job.waiting--
					s.leave(r.job, 1, len(r.ids))
					r.job.errs[r.pos] = ErrClosed
					r.job.closeIfDone()
				}
				delete(q.lists[lane], cols)
			}
		}
	}
	s.leaveIfDone()
}

// isAborted says whether running batches are being cut short.
func (s *scheduler) isAborted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aborted
}

// leaveIfDone tells stop when nothing is left. Called with the mutex held.
func (s *scheduler) leaveIfDone() {
	if s.stopped && s.rows == [2]int{} && s.inflight == 0 {
		select {
		case <-s.drained:
		default:
			close(s.drained)
		}
	}
}

// trail fills in what the scheduler knows of the call that a job was made for.
func (s *scheduler) trail(j *job, c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.submitted.IsZero() {
		return // refused, or never sent here
	}
	c.Submitted, c.FirstTaken = j.submitted, j.first
	if !j.first.IsZero() {
		c.LastTaken = j.submitted.Add(j.queued)
	}
	c.Rows, c.PaddedTokens, c.Batches, c.Batch = len(j.rows), j.padded, j.batches, j.last
	for _, r := range j.rows {
		c.Tokens += len(r.ids)
	}
}

func (s *scheduler) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{QueuedTokens: s.waiting, QueuedRows: s.rows[LaneBulk] + s.rows[LaneInteractive], MaxQueuedTokens: s.max, Workers: s.workers, Busy: s.inflight}
	for _, q := range s.queues {
		out.TokensPerSecond = max(out.TokensPerSecond, q.rate*float64(s.runsOf(q)))
	}
	return out
}
