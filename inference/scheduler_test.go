package inference

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// audit holds a scheduler's counters against its lists. Called with its mutex held, or when nobody else uses it.
func (s *scheduler) audit() error {
	var rows [2]int
	tokens := 0
	jobs := map[*job]int{}
	for n, q := range s.queues {
		inQueue := 0
		for lane := range q.lists {
			for cols, f := range q.lists[lane] {
				if f.empty() || int(f.lane) != lane {
					return fmt.Errorf("queue %d lane %d keeps an empty list at %d, or another lane's", n, lane, cols)
				}
				seen := map[*client]bool{}
				for _, part := range f.parts {
					if part.empty() || seen[part.client] {
						return fmt.Errorf("queue %d lane %d list %d has a client twice, or for nothing", n, lane, cols)
					}
					seen[part.client] = true
					for k, r := range part.rows[part.head:] {
						switch {
						case r.job == nil || r.job.queue != n || int(r.job.lane) != lane || q.cols(len(r.ids)) != cols || r.job.client != part.client:
							return fmt.Errorf("queue %d lane %d list %d holds a row of another list", n, lane, cols)
						case k > 0 && part.rows[part.head+k-1].seq >= r.seq:
							return fmt.Errorf("queue %d lane %d list %d is out of order", n, lane, cols)
						}
						rows[lane]++
						inQueue += len(r.ids)
						jobs[r.job]++
					}
					for _, r := range append(slices.Clone(part.rows[:part.head]), part.rows[len(part.rows):cap(part.rows)]...) {
						if r.job != nil || r.ids != nil {
							return fmt.Errorf("queue %d lane %d list %d holds on to a row that left", n, lane, cols)
						}
					}
				}
				for _, part := range f.parts[len(f.parts):cap(f.parts)] {
					if part.client != nil || part.rows != nil {
						return fmt.Errorf("queue %d lane %d list %d holds on to a client's rows that left", n, lane, cols)
					}
				}
			}
		}
		if inQueue != q.waiting {
			return fmt.Errorf("queue %d counts %d tokens and holds %d", n, q.waiting, inQueue)
		}
		tokens += inQueue
	}
	if rows != s.rows || tokens != s.waiting {
		return fmt.Errorf("%v rows of %d tokens are counted, %v of %d wait", s.rows, s.waiting, rows, tokens)
	}
	for j, n := range jobs {
		if j.waiting != n || j.abandoned {
			return fmt.Errorf("a job counts %d waiting rows, has %d (abandoned: %v)", j.waiting, n, j.abandoned)
		}
	}
	return s.auditClients(jobs)
}

// newJob makes a job of rows of so many tokens. Their first ids count up from serial, in steps that keep every row good.
func newJob(ctx context.Context, queue int, lane Lane, serial *int32, lengths ...int) *job {
	j := &job{ctx: ctx, queue: queue, lane: lane, width: 1, rows: make([]row, len(lengths)), values: make([]float32, len(lengths))}
	for i, n := range lengths {
		j.rows[i] = row{ids: make([]int32, n), typeOneAt: n, pos: i}
		j.rows[i].ids[0] = firstSerial - firstSerial%rowFates + rowFates*(*serial+1)
		*serial++
	}
	return j
}

// formNow is next for one who must not wait.
func (s *scheduler) formNow() (batch, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.form(nil)
}

func lengthsOf(b batch) []int {
	var out []int
	for _, r := range b.rows {
		out = append(out, len(r.ids))
	}
	return out
}

func testScheduler(maxQueued, budget, workers int, shapes ...shape) *scheduler {
	s := newScheduler(maxQueued, budget, 0)
	for _, sh := range shapes {
		s.addQueue(sh, 1<<10, 10_000)
	}
	s.start(workers)
	return s
}

// TestSchedulerAgainstAModel drives a scheduler by hand through random submissions, cancellations, batches and ends, and checks every
// batch against what the rules allow.
func TestSchedulerAgainstAModel(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { modelRun(t, seed, 1+int(seed%4)) })
		if t.Failed() {
			return
		}
	}
}

// live is a row that waits, as the test sees it.
type live struct {
	row
	ahead  int // rows of its lane that waited when it came
	passed int // batches of its lane since
}

func modelRun(t *testing.T, seed uint64, clients int) {
	r := rand.New(rand.NewPCG(seed, 1))
	maxQueued := 100 + r.IntN(4000)
	budget := 0
	if r.IntN(2) == 0 {
		budget = 16 + r.IntN(1000)
	}
	workers := 1 + r.IntN(4)
	var shapes []shape
	for range 1 + r.IntN(2) {
		sh := shape{pad: []int{1, 8, 16}[r.IntN(3)], maxRows: noRowLimit, maxCols: 16 + r.IntN(200)}
		if r.IntN(3) == 0 {
			sh.maxRows = 1 + r.IntN(3)
		}
		shapes = append(shapes, sh)
	}
	s := testScheduler(maxQueued, budget, workers, shapes...)

	var (
		serial    int32
		waiting   [2][]*live // by lane, in order
		running   []batch
		left      = map[*job]int{} // rows that have neither run nor been given up
		cancels   = map[*job]context.CancelFunc{}
		preferred int // interactive batches since the last bulk one, formed while bulk rows waited
		since     int // interactive batches since the last bulk one
	)
	sum := func() (n int) {
		for _, lane := range waiting {
			for _, w := range lane {
				n += len(w.ids)
			}
		}
		return n
	}
	forget := func(j *job) {
		for lane := range waiting {
			waiting[lane] = slices.DeleteFunc(waiting[lane], func(w *live) bool { return w.job == j })
		}
	}
	isDone := func(j *job) bool {
		select {
		case <-j.done:
			return true
		default:
			return false
		}
	}

	submit := func() {
		queue := r.IntN(len(shapes))
		lane := Lane(r.IntN(2))
		var lengths []int
		for range r.IntN(6) {
			lengths = append(lengths, 1+r.IntN(shapes[queue].maxCols))
		}
		if r.IntN(40) == 0 { // larger than the whole bound
			for n := 0; n <= maxQueued; n += shapes[queue].maxCols {
				lengths = append(lengths, shapes[queue].maxCols)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		j := newJob(ctx, queue, lane, &serial, lengths...)
		j.from = fmt.Sprint(r.IntN(clients))
		tokens := 0
		for _, n := range lengths {
			tokens += n
		}
		before, held, othersLarge := s.waiting, 0, 0
		if c := s.clients[j.from]; c != nil {
			held = c.waiting
		}
		if s.large != nil && s.large.from != j.from {
			othersLarge = s.largeTokens
		}
		most := maxQueued - (before-held-othersLarge)/2
		err := s.submit(j)
		fits := held+tokens <= most
		if tokens > most { // beside the queue
			fits = held == 0 && (s.large == nil || s.large == j)
		}
		var over *OverloadedError
		switch {
		case before == 0 && err != nil || held+tokens <= most/2 && err != nil:
			t.Fatalf("%d tokens refused with %d of %d queued: %v", tokens, held, most, err)
		case !fits && len(lengths) > 0 && !errors.As(err, &over):
			t.Fatalf("%d tokens admitted with %d of %d queued: %v", tokens, held, most, err)
		case err != nil:
			if !errors.As(err, &over) || over.Tokens != tokens || over.Queued != before || over.Held != held || over.Limit != most ||
				over.RetryAfter <= 0 || over.RetryAfter%time.Second != 0 || over.RetryAfter > 10*time.Minute {
				t.Fatalf("refusal of %d tokens with %d queued: %+v", tokens, before, err)
			}
			cancel()
			return
		}
		if len(lengths) == 0 && !isDone(j) {
			t.Fatal("a job without rows is not done")
		}
		left[j], cancels[j] = len(lengths), cancel
		for _, x := range j.rows {
			x.job = j
			waiting[lane] = append(waiting[lane], &live{row: x, ahead: len(waiting[lane])})
		}
	}

	form := func() {
		free := s.workers - s.inflight - 1
		served := map[*job]uint64{} // of the jobs' clients
		for lane := range waiting {
			for _, w := range waiting[lane] {
				served[w.job] = w.job.client.served[lane]
			}
		}
		counted := s.waiting // rows of jobs given up may be among them, until somebody notices
		b, ok := s.formNow()
		if ok == (len(waiting[0])+len(waiting[1]) == 0) {
			t.Fatalf("a batch was formed: %v; rows wait: %d bulk, %d interactive", ok, len(waiting[0]), len(waiting[1]))
		}
		if !ok {
			return
		}
		q := s.queues[b.queue]
		mine := waiting[b.lane]
		first := slices.IndexFunc(mine, func(w *live) bool { return w.job.client == b.rows[0].job.client })
		if b.rows[0].job != mine[first].job || b.rows[0].pos != mine[first].pos {
			t.Fatalf("a batch of lane %d is not opened by the oldest row of its client", b.lane)
		}
		for i, w := range mine {
			if x, y := served[w.job], served[b.rows[0].job]; x < y || x == y && i < first {
				t.Fatalf("a batch of lane %d is opened by a client that was served %d, while one waits that was served %d", b.lane, y, x)
			}
		}
		own, tokens, cols := 0, 0, 0
		for _, x := range b.rows {
			i := slices.IndexFunc(mine, func(w *live) bool { return w.job == x.job && w.pos == x.pos })
			if i < 0 {
				t.Fatal("a batch holds a row that does not wait")
			}
			if w := mine[i]; w.passed > w.ahead && clients == 1 {
				t.Fatalf("a row with %d rows ahead of it waited through %d batches of its lane", w.ahead, w.passed)
			}
			if x.job.queue != b.queue || &x.ids[0] != &mine[i].ids[0] {
				t.Fatal("a batch holds another model's row, or other ids")
			}
			mine = slices.Delete(mine, i, i+1)
			own += q.cols(len(x.ids))
			tokens += len(x.ids)
			cols = max(cols, q.cols(len(x.ids)))
		}
		for _, w := range mine {
			w.passed++
		}
		waiting[b.lane] = mine
		most, limit := s.sizeOf(q, b.lane), s.sizeOf(q, b.lane)
		if free > 0 {
			most = min(most, max(minBatchTokens, counted/(free+1)))
			limit = min(limit, max(minBatchTokens, (sum()+tokens)/(free+1)))
		}
		n := len(b.rows)
		padded := n * cols
		switch {
		case b.cols != cols || b.tokens != tokens || b.own != own:
			t.Fatalf("batch of %v: cols %d tokens %d own %d; want %d %d %d", lengthsOf(b), b.cols, b.tokens, b.own, cols, tokens, own)
		case n > q.maxRows:
			t.Fatalf("batch of %d rows, at most %d", n, q.maxRows)
		case n > 1 && padded > most:
			t.Fatalf("batch of %v padded to %d: more than %d", lengthsOf(b), cols, most)
		case (padded-own)*paddingShare > padded, b.lane == LaneInteractive && (padded-own)*paddingShareInteractive > padded:
			t.Fatalf("batch of %v padded to %d: %d of padding", lengthsOf(b), cols, padded-own)
		case n < q.maxRows && (n+1)*cols <= limit && slices.ContainsFunc(mine, func(w *live) bool {
			return w.job.queue == b.queue && q.cols(len(w.ids)) == cols
		}):
			t.Fatalf("batch of %v padded to %d leaves a row of its own length out, with %d allowed", lengthsOf(b), cols, limit)
		}
		switch other := waiting[1-b.lane]; {
		case b.lane == LaneBulk && len(other) > 0 && since < interactiveRun:
			t.Fatalf("a bulk batch after %d interactive ones, while interactive rows wait", since)
		case b.lane == LaneBulk:
			since, preferred = 0, 0
		default:
			since++
			if preferred++; len(other) == 0 {
				preferred = 0
			}
			if preferred > interactiveRun {
				t.Fatalf("%d interactive batches while bulk rows waited", preferred)
			}
		}
		running = append(running, b)
	}

	end := func() {
		if len(running) == 0 {
			return
		}
		i := r.IntN(len(running))
		b := running[i]
		running = slices.Delete(running, i, i+1)
		for _, x := range b.rows {
			if isDone(x.job) {
				t.Fatal("a job was done before its last row")
			}
			left[x.job]--
		}
		s.finish(b, time.Duration(1+r.IntN(40))*time.Millisecond, r.IntN(2))
		for _, x := range b.rows {
			if j := x.job; j.ctx.Err() == nil && isDone(j) != (left[j] == 0) {
				t.Fatalf("a job with %d rows to go is done: %v", left[j], isDone(j))
			}
		}
	}

	for range 200 {
		switch op := r.IntN(10); {
		case op < 4:
			submit()
		case op < 5: // a caller's context ends, and it is told now or some time later
			for j, cancel := range cancels {
				cancel()
				forget(j)
				if !isDone(j) && r.IntN(2) == 0 {
					if err := s.wait(j); !errors.Is(err, context.Canceled) {
						t.Fatalf("waiting for a job whose context ended: %v", err)
					}
				}
				delete(cancels, j)
				break
			}
		case op < 8:
			form()
		default:
			end()
		}
		if err := s.audit(); err != nil {
			t.Fatal(err)
		}
	}
	for len(waiting[0])+len(waiting[1]) > 0 {
		form()
	}
	for len(running) > 0 {
		end()
	}
	for j, cancel := range cancels {
		if !isDone(j) {
			t.Fatal("a job was never done")
		}
		cancel()
	}
	if st := s.stats(); st.QueuedRows != 0 || st.QueuedTokens != 0 {
		if b, ok := s.formNow(); ok { // only rows of jobs given up may be left, and they go now
			t.Fatalf("rows are left: %v", lengthsOf(b))
		}
	}
	if err := s.audit(); err != nil {
		t.Fatal(err)
	}
}

func TestColsPadsUpToTheModelsLimit(t *testing.T) {
	for _, c := range []struct {
		shape
		n, want int
	}{
		{shape{pad: 16, maxCols: 512}, 0, 16},
		{shape{pad: 16, maxCols: 512}, 1, 16},
		{shape{pad: 16, maxCols: 512}, 16, 16},
		{shape{pad: 16, maxCols: 512}, 17, 32},
		{shape{pad: 16, maxCols: 512}, 512, 512},
		{shape{pad: 16, maxCols: 500}, 496, 496},
		{shape{pad: 16, maxCols: 500}, 497, 500},
		{shape{pad: 1, maxCols: 512}, 17, 17},
		{shape{pad: 1, maxCols: 512}, 0, 1},
	} {
		if got := c.cols(c.n); got != c.want {
			t.Errorf("%+v: %d tokens are padded to %d, want %d", c.shape, c.n, got, c.want)
		}
	}
}

func TestABatchIsFilledByLength(t *testing.T) {
	for name, c := range map[string]struct {
		budget  int
		waiting []int
		want    []int
	}{
		"equal lengths":               {1000, []int{20, 20, 20}, []int{20, 20, 20}},
		"same padded length first":    {128, []int{20, 40, 30, 25, 17}, []int{20, 30, 25, 17}},
		"the budget ends it":          {96, []int{20, 20, 20, 20}, []int{20, 20, 20}},
		"an oversized row alone":      {64, []int{200, 200, 10}, []int{200}},
		"never joins":                 {64, []int{10, 200, 10}, []int{10, 10}},
		"the oldest opens":            {64, []int{200, 10, 10}, []int{200}},
		"unlike rows pad too much":    {1000, []int{16, 32, 64}, []int{16}},
		"a short one among long ones": {2000, []int{128, 128, 128, 128, 128, 128, 128, 20}, []int{128, 128, 128, 128, 128, 128, 128, 20}},
		"not among too few":           {2000, []int{128, 128, 128, 128, 20}, []int{128, 128, 128, 128}},
		"nearest first, shorter first": {2000, []int{112, 112, 112, 112, 112, 112, 112, 128, 96},
			[]int{112, 112, 112, 112, 112, 112, 112, 96, 128}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScheduler(1<<20, c.budget, 1, anyRows)
			var serial int32
			if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, c.waiting...)); err != nil {
				t.Fatal(err)
			}
			b, _ := s.formNow()
			if got := lengthsOf(b); !slices.Equal(got, c.want) {
				t.Errorf("of rows of %v tokens the batch took %v, want %v", c.waiting, got, c.want)
			}
		})
	}
}

func TestARowLeftOfAnAbandonedJobDoesNotPassOthers(t *testing.T) {
	s := testScheduler(1000, 1000, 1, anyRows)
	var serial int32
	gone, cancel := context.WithCancel(t.Context())
	for _, j := range []*job{
		newJob(gone, 0, LaneBulk, &serial, 10),
		newJob(t.Context(), 0, LaneBulk, &serial, 100), // the oldest that somebody waits for
		newJob(t.Context(), 0, LaneBulk, &serial, 10),
	} {
		if err := s.submit(j); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	b, ok := s.formNow()
	if got := lengthsOf(b); !ok || !slices.Equal(got, []int{100}) {
		t.Errorf("the batch took rows of %v tokens, want the one of 100", got)
	}
	if st := s.stats(); st.QueuedTokens != 10 || st.QueuedRows != 1 {
		t.Errorf("left: %+v, want one row of 10 tokens", st)
	}
}

// A gap in the interactive lane's preference must not be used up by rows that nobody waits for.
func TestAbandonedBulkRowsDoNotEndTheBulkLanesTurn(t *testing.T) {
	s := testScheduler(100_000, 64, 1, anyRows)
	var serial int32
	gone, cancel := context.WithCancel(t.Context())
	for range 10 {
		if err := s.submit(newJob(t.Context(), 0, LaneInteractive, &serial, 60)); err != nil {
			t.Fatal(err)
		}
	}
	for _, ctx := range []context.Context{gone, t.Context()} {
		if err := s.submit(newJob(ctx, 0, LaneBulk, &serial, 60)); err != nil {
			t.Fatal(err)
		}
	}
	var lanes []Lane
	for range interactiveRun {
		b, _ := s.formNow()
		lanes = append(lanes, b.lane)
	}
	cancel()
	b, _ := s.formNow()
	if lanes = append(lanes, b.lane); !slices.Equal(lanes, []Lane{1, 1, 1, 1, 0}) {
		t.Errorf("batches of the lanes %v, want four interactive ones and then bulk", lanes)
	}
}

// Of a job whose context ended some rows were dropped and others run to their end. It must not look as if it had been answered.
func TestAJobGivenUpIsNeverDone(t *testing.T) {
	for range 50 { // of two ways out of a select one is taken at random
		s := testScheduler(1000, 16, 1, anyRows)
		var serial int32
		ctx, cancel := context.WithCancel(t.Context())
		j := newJob(ctx, 0, LaneBulk, &serial, 10, 10)
		if err := s.submit(j); err != nil {
			t.Fatal(err)
		}
		b, _ := s.formNow()
		cancel()
		if _, ok := s.formNow(); ok {
			t.Fatal("a row ran that nobody waits for")
		}
		s.finish(b, time.Millisecond, 0)
		if err := s.wait(j); !errors.Is(err, context.Canceled) {
			t.Fatalf("one row of two ran, and waiting for them gave %v", err)
		}
	}
}

func TestWorkersShareWhatWaits(t *testing.T) {
	s := testScheduler(1<<20, 1<<20, 2, anyRows)
	var serial int32
	if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, slices.Repeat([]int{128}, 10)...)); err != nil {
		t.Fatal(err)
	}
	first, _ := s.formNow()
	second, _ := s.formNow()
	if len(first.rows) != 5 || len(second.rows) != 5 {
		t.Errorf("two idle workers took %d and %d rows of ten", len(first.rows), len(second.rows))
	}
	// With the other worker busy there is nobody to share with.
	if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, slices.Repeat([]int{128}, 10)...)); err != nil {
		t.Fatal(err)
	}
	s.finish(first, time.Millisecond, 0)
	if b, _ := s.formNow(); len(b.rows) != 10 {
		t.Errorf("the only free worker took %d rows of ten", len(b.rows))
	}
}

func TestAListThatNeverRunsEmptyStaysSmall(t *testing.T) {
	var f fifo
	next, want := uint64(0), uint64(0)
	for range 100 {
		f.push(row{seq: next, ids: []int32{1}})
		next++
	}
	for range 100_000 {
		f.push(row{seq: next, ids: []int32{1}})
		next++
		if r := f.pop(); r.seq != want {
			t.Fatalf("row %d came out, want %d", r.seq, want)
		}
		want++
	}
	if cap(f.rows) > 1024 {
		t.Errorf("a list of 100 rows holds room for %d", cap(f.rows))
	}
}

func TestTheRateFollowsFullBatches(t *testing.T) {
	const slice = 20 * time.Millisecond
	run := func(rate float64, tokens int, took time.Duration, times int) float64 {
		for range times {
			rate = learn(rate, tokens, took, slice, rateWeight)
		}
		return rate
	}
	if got := run(0, 500, 50*time.Millisecond, 1); got != 10_000 {
		t.Errorf("after the first batch, of 500 tokens in 50 ms: %v tokens/s", got)
	}
	if got := run(10_000, 200, 10*time.Millisecond, 60); got < 19_000 || got > 20_000 {
		t.Errorf("after 60 full batches of 20,000 tokens/s: %v", got)
	}
	if got := run(20_000, 8, 3*time.Millisecond, 300); got < 15_000 {
		t.Errorf("after 300 lone short rows of 2,667 tokens/s the rate is %v; they are mostly fixed cost", got)
	}
	if got := run(20_000, 400, 2*time.Second, 1); got > 2_000 {
		t.Errorf("after a batch that took 100 times as long as planned the rate is %v", got)
	}
	if got := run(20_000, 400, 3*time.Minute, 1); got < 1_800 || got > 2_000 {
		t.Errorf("after a batch during which the machine stood still for minutes the rate is %v", got)
	}
	for _, got := range []float64{run(20_000, 400, 0, 3), run(20_000, 0, time.Second, 3)} {
		if got != 20_000 {
			t.Errorf("a batch of no time or no tokens moved the rate to %v", got)
		}
	}
}

func TestARememberedRateThatCannotBeIsForgotten(t *testing.T) {
	s := newScheduler(0, 0, 0)
	inf := 1e308
	for _, rate := range []float64{-5, 0, inf * 10, inf*10 - inf*10} {
		n := s.addQueue(anyRows, 1<<10, rate)
		if got := s.queues[n].rate; got != 0 || s.sliceTokens(n) != minBatchTokens {
			t.Errorf("rate %v is kept as %v and gives batches of %d tokens, want 0 and %d", rate, got, s.sliceTokens(n), minBatchTokens)
		}
	}
}

func TestFailedBatchesDoNotCountForTheRate(t *testing.T) {
	s := testScheduler(1<<20, 0, 1, anyRows)
	var serial int32
	if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, 100)); err != nil {
		t.Fatal(err)
	}
	b, _ := s.formNow()
	s.finish(b, time.Microsecond, 1)
	if got := s.stats().TokensPerSecond; got != 10_000 {
		t.Errorf("a batch that broke off after a microsecond moved the rate to %v tokens/s", got)
	}
}

func TestSubmitRefusesWhatCannotRun(t *testing.T) {
	var serial int32
	s := newScheduler(0, 0, 0)
	s.addQueue(anyRows, 1<<10, 0)
	if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, 5)); !errors.Is(err, errNotStarted) {
		t.Errorf("before the start: %v", err)
	}
	s.start(1)
	cause := errors.New("the client hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := s.submit(newJob(ctx, 0, LaneBulk, &serial, 5)); !errors.Is(err, cause) {
		t.Errorf("with a context that has ended: %v, want its cause", err)
	}
	s.refuse()
	if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, 5)); !errors.Is(err, ErrClosed) {
		t.Errorf("after refuse: %v", err)
	}
	other := testScheduler(0, 0, 1, anyRows)
	if err := other.stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := other.submit(newJob(t.Context(), 0, LaneBulk, &serial, 5)); !errors.Is(err, ErrClosed) {
		t.Errorf("after stop: %v", err)
	}
	if st := s.stats(); st.QueuedRows != 0 || st.QueuedTokens != 0 {
		t.Errorf("refused jobs left %+v", st)
	}
}

func TestStopWithNothingLeftIsNoFailure(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // the two ways out of a select are taken at random
		s := testScheduler(0, 0, 1, anyRows)
		if err := s.stop(ended); err != nil {
			t.Fatalf("stop of an idle scheduler with a context that has ended: %v", err)
		}
	}
}
