package inference

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ragate/inference/ort"
	"ragate/models"
)

var propertyRuns = flag.Int("property-runs", 150, "random schedules that TestNoRowIsLostDoubledOrSwapped plays")

// observer keeps what it is told.
type observer struct {
	mu  sync.Mutex
	all []BatchStats
}

func (o *observer) BatchDone(b BatchStats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, b)
}

func (o *observer) batches() []BatchStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

// TestNoRowIsLostDoubledOrSwapped plays random schedules of arrivals, cancellations, deadlines, rows that fail, and a shutdown at some
// moment that is graceful or not, and accounts for every row of every request.
func TestNoRowIsLostDoubledOrSwapped(t *testing.T) {
	for seed := range uint64(*propertyRuns) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { (&property{T: t, r: rand.New(rand.NewPCG(seed, 2))}).play() })
		})
		if t.Failed() {
			return
		}
	}
}

// property is one random schedule.
type property struct {
	*testing.T
	r        *rand.Rand
	stubs    []*stubModel
	models   []*Model
	engine   *Engine
	maxQueue int
	serial   int32

	graceful bool
	refusing atomic.Bool // requests may fail with ErrClosed from now on
	mu       sync.Mutex
	outcomes map[string]int
}

func (p *property) play() {
	r := p.r
	p.outcomes = map[string]int{}
	p.maxQueue = 200 + r.IntN(3000)
	cfg := EngineConfig{MaxQueuedTokens: p.maxQueue, Slice: time.Duration(5+r.IntN(30)) * time.Millisecond, Machine: Machine{CPUs: 2}}
	if r.IntN(2) == 0 {
		cfg.MaxBatchTokens = 32 + r.IntN(600)
	}
	workers := 1 + r.IntN(4)
	for _, form := range []models.Form{models.FormTokens, models.FormScores} {
		sh := shape{pad: []int{1, 8, 16}[r.IntN(3)], maxRows: noRowLimit, maxCols: 20 + r.IntN(150)}
		if r.IntN(4) == 0 {
			sh.maxRows = 1
		}
		width := 1
		if form == models.FormTokens {
			width = 3
		}
		m := newStubModel(p, form, width, sh)
		m.perRun, m.perToken = time.Duration(r.IntN(3))*time.Millisecond, time.Duration(r.IntN(100))*time.Microsecond
		m.budget = cfg.MaxBatchTokens
		p.stubs = append(p.stubs, m)
	}
	p.engine, p.models = stubEngine(cfg, workers, p.stubs...)
	for _, m := range p.models {
		if r.IntN(2) == 0 {
			m.limitStreams(1 + r.IntN(workers))
		}
	}
	if err := p.engine.Start(p.Context()); err != nil {
		p.Fatal(err)
	}

	var clients sync.WaitGroup
	for range 3 + r.IntN(12) {
		var plans []request
		for range 1 + r.IntN(8) {
			plans = append(plans, p.plan())
		}
		clients.Go(func() {
			for _, q := range plans {
				p.send(q)
			}
		})
	}
	// In the midst of it, from the outside.
	p.graceful = r.IntN(3) > 0
	when := time.Duration(r.IntN(300)) * time.Millisecond
	grace := time.Duration(r.IntN(10)) * time.Millisecond
	audits := r.IntN(20)
	var closing sync.WaitGroup
	closing.Go(func() {
		for range audits {
			time.Sleep(when / time.Duration(audits))
			p.engine.sched.mu.Lock()
			if err := p.engine.sched.audit(); err != nil {
				p.Error(err)
			}
			p.engine.sched.mu.Unlock()
		}
		if p.graceful {
			clients.Wait()
		}
		p.refusing.Store(true)
		ctx, cancel := context.WithTimeout(p.Context(), grace)
		defer cancel()
		err := p.engine.Close(ctx) // also after the last client there may be runs, for clients that left
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			p.Errorf("close: %v", err)
		}
	})
	clients.Wait()
	closing.Wait()

	s := p.engine.sched
	if err := s.audit(); err != nil {
		p.Error(err)
	}
	if s.rows != [2]int{} || s.waiting != 0 || s.inflight != 0 || len(s.idle) != 0 {
		p.Errorf("after Close: %v rows of %d tokens wait, %d batches run, %d workers idle", s.rows, s.waiting, s.inflight, len(s.idle))
	}
	for _, m := range p.stubs {
		if !m.closed {
			p.Error("a session was not closed")
		}
	}
	p.Log(p.outcomes)
}

// request is what a client is going to ask.
type request struct {
	model   int
	lane    Lane
	fates   []int
	lengths []int
	pause   time.Duration // before it
	end     string        // what ends its context: "", "cancel", "deadline", "before"
	after   time.Duration
}

func (p *property) plan() request {
	r := p.r
	q := request{model: r.IntN(2), lane: Lane(r.IntN(2)), pause: time.Duration(r.IntN(40)) * time.Millisecond}
	for range r.IntN(12) {
		fate := rowGood
		switch r.IntN(25) {
		case 0:
			fate = rowBad
		case 1:
			fate = rowNaN
		}
		q.fates = append(q.fates, fate)
		q.lengths = append(q.lengths, 1+r.IntN(p.stubs[q.model].shape.maxCols))
	}
	q.end = []string{"", "", "", "", "cancel", "deadline", "before"}[r.IntN(7)]
	q.after = time.Duration(r.IntN(60)) * time.Millisecond
	return q
}

func (p *property) job(ctx context.Context, q request) *job {
	m := p.models[q.model]
	j := &job{ctx: ctx, queue: m.core.queue, lane: q.lane, width: m.core.head.width}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, n := range q.lengths {
		ids := make([]int32, n)
		p.serial++
		ids[0] = firstSerial - firstSerial%rowFates + rowFates*p.serial + int32(q.fates[i])
		for k := range ids[1:] {
			ids[k+1] = p.serial + int32(k)
		}
		j.rows = append(j.rows, row{ids: ids, typeOneAt: i % (n + 1), pos: i})
	}
	return j
}

// send asks and accounts for every row.
func (p *property) send(q request) {
	time.Sleep(q.pause)
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	switch q.end {
	case "before":
		cancel()
	case "cancel":
		defer time.AfterFunc(q.after, cancel).Stop()
	case "deadline":
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, q.after)
		defer stop()
	}
	c, stub := p.models[q.model].core, p.stubs[q.model]
	j := p.job(ctx, q)
	tokens := 0
	for _, n := range q.lengths {
		tokens += n
	}
	refusing := p.refusing.Load()
	err := c.run(j, &Timing{})
	outcome := "answered"
	var over *OverloadedError
	switch {
	case err == nil:
		p.compare(q, j)
	case errors.As(err, &over):
		outcome = "overloaded"
		if over.Tokens != tokens || over.Queued == 0 || over.Queued+tokens <= p.maxQueue/2 || over.Limit != p.maxQueue || over.RetryAfter <= 0 {
			p.Errorf("refused with %+v, of %d tokens and a bound of %d", over, tokens, p.maxQueue)
		}
	case errors.Is(err, ErrClosed):
		outcome = "closed"
		if !p.refusing.Load() {
			p.Error("ErrClosed before Close")
		}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		outcome = "gave up"
	default:
		p.Errorf("a request failed with %v", err)
	}
	if err == nil && refusing {
		p.Error("a request was answered that came after Close had begun")
	}
	refused := outcome == "overloaded" || q.end == "before" || refusing
	for i, r := range j.rows {
		ran, answered := stub.served(r.ids[0])
		switch {
		case answered > 1:
			p.Errorf("a row was answered %d times", answered)
		case refused && ran > 0:
			p.Errorf("%s: a row ran, of a request that was never admitted", outcome)
		case err == nil && q.fates[i] != rowBad && answered != 1:
			p.Errorf("a row of an answered request was answered %d times", answered)
		case q.fates[i] == rowBad && ran > 2, q.fates[i] != rowBad && ran > 2:
			p.Errorf("a row ran %d times", ran)
		}
	}
	p.mu.Lock()
	p.outcomes[outcome]++
	p.mu.Unlock()
}

// compare holds the results of a request that was answered against what its rows give.
func (p *property) compare(q request, j *job) {
	err := j.failure()
	var want *RowError
	v := make([]float32, p.stubs[q.model].width)
	for i, r := range j.rows {
		got := j.values[i*j.width : (i+1)*j.width]
		if q.fates[i] != rowGood {
			if want == nil {
				want = &RowError{Item: i, Err: ErrNotFinite}
				if q.fates[i] == rowBad {
					want.Err = errBadRow
				}
			}
			want.Failed++
			for _, x := range got {
				if x == x {
					p.Errorf("a failed row's result is %v", got)
				}
			}
			continue
		}
		stubVector(v, ort.Row{IDs: r.ids, TypeOneAt: r.typeOneAt})
		for k, x := range got {
			if math.Abs(float64(x-v[k])) > 1e-2 {
				p.Errorf("row %d of %d tokens: got %v, want %v", i, len(r.ids), got, v)
				break
			}
		}
	}
	var got *RowError
	switch {
	case want == nil && err != nil:
		p.Errorf("good rows failed: %v", err)
	case want != nil && (!errors.As(err, &got) || got.Item != want.Item || got.Failed != want.Failed || !errors.Is(got.Err, want.Err)):
		p.Errorf("got %v (%+v), want %+v", err, got, want)
	}
}

// started makes an engine of stubs and starts it; the test closes it.
func started(t *testing.T, cfg EngineConfig, workers int, stubs ...*stubModel) (*Engine, []*Model) {
	t.Helper()
	e, ms := stubEngine(cfg, workers, stubs...)
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, ms
}

func closeNow(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestAnIdleDeviceDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun = 7 * time.Millisecond
		e, ms := started(t, EngineConfig{}, 2, m)
		defer closeNow(t, e)
		for range 3 {
			synctest.Wait()
			began := time.Now()
			s, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"w2"}})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != m.perRun {
				t.Errorf("a request to an idle device took %v, its run takes %v", took, m.perRun)
			}
			if s.Timing.Queue != 0 || s.Timing.Inference != m.perRun {
				t.Errorf("timing %+v, want no wait and a run of %v", s.Timing, m.perRun)
			}
			time.Sleep(time.Second)
		}
	})
}

// A row that comes while the device is busy waits for one run and not longer, and those that come meanwhile share the next batch.
func TestRowsThatComeDuringARunShareTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observer
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun = 10 * time.Millisecond
		e, ms := started(t, EngineConfig{MaxBatchTokens: 4096, Observer: &o}, 1, m)
		defer closeNow(t, e)
		var g sync.WaitGroup
		for i := range 6 {
			g.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				began := time.Now()
				if _, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{words(10*i, 3)}}); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 20*time.Millisecond {
					t.Errorf("request %d took %v, two runs take 20 ms", i, took)
				}
			})
		}
		g.Wait()
		var rows []int
		for _, b := range o.batches() {
			rows = append(rows, b.Rows)
		}
		if !slices.Equal(rows, []int{1, 5}) {
			t.Errorf("batches of %v rows, want 1 and 5", rows)
		}
	})
}

func TestIdleWorkersAllGetToWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perToken = 100 * time.Microsecond
		e, ms := started(t, EngineConfig{MaxBatchTokens: 4096}, 3, m)
		defer closeNow(t, e)
		docs := slices.Repeat([]string{words(0, 60)}, 12) // 64 tokens with the query, 6.4 ms each
		synctest.Wait()                                   // all three wait for work
		began := time.Now()
		if _, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs}); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(began), 4*64*m.perToken; took != want {
			t.Errorf("12 rows took %v on three idle workers, want %v", took, want)
		}
	})
}

// TestAnInteractiveRowWaitsForOneSlice sends short queries at random moments into a flood of reranking.
func TestAnInteractiveRowWaitsForOneSlice(t *testing.T) {
	const (
		slice  = 20 * time.Millisecond
		perRun = time.Millisecond
		seed   = 11
	)
	t.Logf("seed %d", seed)
	for _, workers := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			var o observer
			emb, rr := newStubModel(t, models.FormVector, 4, anyRows), newStubModel(t, models.FormScores, 1, anyRows)
			for _, m := range []*stubModel{emb, rr} {
				m.perRun, m.perToken = perRun, 50*time.Microsecond
			}
			e, ms := started(t, EngineConfig{Slice: slice, Observer: &o, MaxQueuedTokens: 1 << 22}, workers, emb, rr)
			defer closeNow(t, e)
			ctx, stop := context.WithCancel(t.Context())
			var g sync.WaitGroup
			r := rand.New(rand.NewPCG(seed, uint64(workers)))
			for range 8 {
				docs := make([]string, 50)
				for i := range docs {
					docs[i] = words(r.IntN(stubWords), 10+r.IntN(200)) // none is longer than a slice
				}
				g.Go(func() {
					for ctx.Err() == nil {
						if _, err := ms[1].Rerank(ctx, RerankRequest{Query: "w1 w2", Documents: docs}); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}
			for range 200 {
				time.Sleep(time.Duration(20+r.IntN(80)) * time.Millisecond)
				got, err := ms[0].Embed(ctx, EmbedRequest{Texts: []string{words(r.IntN(stubWords), 5)}, Lane: LaneInteractive})
				if err != nil {
					t.Fatal(err)
				}
				if got.Timing.Queue > slice {
					t.Errorf("an interactive row waited %v, a slice is %v", got.Timing.Queue, slice)
				}
			}
			stop()
			g.Wait()
			var bulk int
			var took time.Duration
			for _, b := range o.batches() {
				if b.Lane == LaneBulk {
					bulk++
					took += b.Inference
				}
			}
			// Slices that are kept by running next to nothing would be no feat.
			if mean := took / time.Duration(bulk); mean < slice/2 {
				t.Errorf("%d bulk batches took %v in the mean, of a slice of %v", bulk, mean, slice)
			}
		})
	}
}

// TestAFloodOfQueriesDoesNotStarveBulk keeps more interactive rows waiting than the device can run.
func TestAFloodOfQueriesDoesNotStarveBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observer
		emb, rr := newStubModel(t, models.FormVector, 4, anyRows), newStubModel(t, models.FormScores, 1, anyRows)
		emb.perRun, rr.perRun = 5*time.Millisecond, 5*time.Millisecond
		// Batches of one row, so that the flood cannot be drunk up in one.
		e, ms := started(t, EngineConfig{MaxBatchTokens: 16, Observer: &o}, 1, emb, rr)
		defer closeNow(t, e)
		ctx, stop := context.WithCancel(t.Context())
		var g sync.WaitGroup
		for i := range 10 {
			g.Go(func() {
				for ctx.Err() == nil {
					ms[0].Embed(ctx, EmbedRequest{Texts: []string{words(i, 3)}, Lane: LaneInteractive})
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		docs := make([]string, 20)
		for i := range docs {
			docs[i] = words(i, 4)
		}
		began := time.Now()
		if _, err := ms[1].Rerank(ctx, RerankRequest{Query: "w1", Documents: docs}); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		stop()
		g.Wait()
		if most := time.Duration(len(docs)*(interactiveRun+1)+1) * 5 * time.Millisecond; took > most {
			t.Errorf("%d bulk rows took %v beside a flood of interactive ones; %d of %d batches make that %v at most", len(docs), took, 1, interactiveRun+1, most)
		}
		run := 0
		bulk := 0
		for _, b := range o.batches() {
			switch {
			case b.Lane == LaneBulk:
				if bulk > 0 && run != interactiveRun {
					t.Errorf("%d interactive batches between two bulk ones, want %d", run, interactiveRun)
				}
				run = 0
				bulk++
			default:
				run++
			}
		}
		if bulk != len(docs) {
			t.Errorf("%d bulk batches, want %d", bulk, len(docs))
		}
	})
}

// TestTheOldestRowsWaitIsBounded keeps the queue full with rows of every length. Whatever its length, a row waits no longer than
// running all that was ahead of it takes.
func TestTheOldestRowsWaitIsBounded(t *testing.T) {
	const maxQueued, perToken, seed = 4000, 50 * time.Microsecond, 5
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		var o observer
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun, m.perToken = time.Millisecond, perToken
		e, ms := started(t, EngineConfig{MaxQueuedTokens: maxQueued, Observer: &o}, 1, m)
		defer closeNow(t, e)
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		var g sync.WaitGroup
		var refused atomic.Int64
		for c := range 20 {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			g.Go(func() {
				for ctx.Err() == nil {
					docs := make([]string, 1+r.IntN(5))
					n := 5
					if r.IntN(10) == 0 {
						n = 400
					}
					for i := range docs {
						docs[i] = words(r.IntN(stubWords), 1+r.IntN(n))
					}
					_, err := ms[0].Rerank(ctx, RerankRequest{Query: "w1", Documents: docs})
					var over *OverloadedError
					if errors.As(err, &over) {
						refused.Add(1)
						time.Sleep(over.RetryAfter)
					}
				}
			})
		}
		g.Wait()
		var longest time.Duration
		rows := 0
		for _, b := range o.batches() {
			longest = max(longest, b.QueueWait)
			rows += b.Rows
		}
		// Ahead of a row is at most a full queue of the rows that pad most, 5 tokens to 16, and in the worst case each runs alone; and
		// a batch that ran already.
		const rowsAhead = maxQueued / 5
		most := rowsAhead*(16*perToken+time.Millisecond) + defaultSlice
		if longest > most {
			t.Errorf("of %d rows one waited %v, at most %v is explained by what was ahead", rows, longest, most)
		}
		if rows < 1000 || refused.Load() == 0 {
			t.Errorf("%d rows ran and %d requests were refused: the queue was not full", rows, refused.Load())
		}
		t.Logf("%d rows, longest wait %v of at most %v, %d refused", rows, longest, most, refused.Load())
	})
}

func TestACancelledRequestReturnsAtOnceAndIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun = time.Second
		e, ms := started(t, EngineConfig{}, 1, m)
		defer closeNow(t, e)
		var g sync.WaitGroup
		ask := func(ctx context.Context) {
			if _, err := ms[0].Rerank(ctx, RerankRequest{Query: "w1", Documents: []string{"w2", "w3"}}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		g.Go(func() { ask(t.Context()) }) // keeps the device busy for its two rows
		synctest.Wait()
		cause := errors.New("the client hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		g.Go(func() {
			began := time.Now()
			_, err := ms[0].Rerank(ctx, RerankRequest{Query: "w1", Documents: []string{"w4", "w5", "w6"}})
			if !errors.Is(err, cause) {
				t.Errorf("a request whose context ended returned %v, want its cause", err)
			}
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("it returned after %v, its context ended after 100 ms", took)
			}
		})
		synctest.Wait()
		if st := e.Stats(); st.QueuedRows != 3 {
			t.Errorf("%d rows wait, want 3", st.QueuedRows)
		}
		time.Sleep(100 * time.Millisecond)
		cancel(cause)
		synctest.Wait()
		if st := e.Stats(); st.QueuedRows != 0 || st.QueuedTokens != 0 {
			t.Errorf("after it was cancelled %+v is left of it", st)
		}
		g.Wait()
		if m.runs != 1 {
			t.Errorf("%d runs, want the one that was not cancelled", m.runs)
		}
	})
}

// A caller that left while its rows run must not be written to: its results' memory is nobody's then. The race detector looks on.
func TestACallerMayLeaveDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormTokens, 4, anyRows)
		m.perRun = 50 * time.Millisecond
		e, ms := started(t, EngineConfig{}, 1, m)
		defer closeNow(t, e)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		got, err := ms[0].Embed(ctx, EmbedRequest{Texts: []string{"w1", "nan", "bad", "w2"}})
		if got != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v", got, err)
		}
		// The next one is not affected.
		if _, err := ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w3"}}); err != nil {
			t.Error(err)
		}
	})
}

func TestTheObserverHasSeenABatchBeforeItsCallersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observer
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun = time.Millisecond
		e, ms := started(t, EngineConfig{Observer: &o}, 1, m)
		defer closeNow(t, e)
		if _, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"nan", "bad", words(0, 20)}}); err == nil {
			t.Error("a row that is not finite gave no error")
		}
		want := []BatchStats{
			// Run as two, and then one by one.
			{Model: "stub/0", Kind: KindReranker, Rows: 2, Tokens: 10, PaddedTokens: 32, Inference: 3 * time.Millisecond, Failed: 2},
			{Model: "stub/0", Kind: KindReranker, Rows: 1, Tokens: 24, PaddedTokens: 32, QueueWait: 3 * time.Millisecond, Inference: time.Millisecond},
		}
		if got := o.batches(); !slices.Equal(got, want) {
			t.Errorf("the observer was told %+v, want %+v", got, want)
		}
	})
}

// Shutdown.

// busyEngine is an engine whose one worker runs a batch of a minute, two rows of one request, while another request's row waits. The
// channel gives the two requests' errors.
func busyEngine(t *testing.T) (*Engine, *stubModel, <-chan error) {
	m := newStubModel(t, models.FormScores, 1, anyRows)
	m.perRun = time.Minute
	e, ms := started(t, EngineConfig{MaxBatchTokens: 32}, 1, m)
	answers := make(chan error, 2)
	for _, docs := range [][]string{{"w2", "w3"}, {"w4"}} {
		go func() {
			_, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs})
			answers <- err
		}()
		synctest.Wait()
	}
	if st := e.Stats(); st.QueuedRows != 1 {
		t.Fatalf("%d rows wait, want 1", st.QueuedRows)
	}
	return e, m, answers
}

func TestCloseLetsAdmittedWorkFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, answers := busyEngine(t)
		if err := e.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		for range 2 {
			if err := <-answers; err != nil {
				t.Errorf("an admitted request failed: %v", err)
			}
		}
		if m.runs != 2 || !m.closed {
			t.Errorf("%d runs, closed: %v", m.runs, m.closed)
		}
	})
}

func TestCloseCutsShortWhenItsTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, answers := busyEngine(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := e.Close(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("close took %v of its second", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 rows wait and 1 batches run") {
			t.Errorf("close: %v", err)
		}
		for range 2 {
			err := <-answers
			var row *RowError
			if !errors.Is(err, ErrClosed) || errors.As(err, &row) {
				t.Errorf("a request that was cut short failed with %v, want ErrClosed and nothing about its rows", err)
			}
		}
		if m.runs != 0 || m.calls != 1 || !m.closed {
			t.Errorf("%d runs of %d ended well, closed: %v; want none of one", m.runs, m.calls, m.closed)
		}
	})
}

// A run that does not heed the terminate flag is waited for.
func TestCloseWaitsForTheNativeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.onRun = func([]ort.Row, int) { time.Sleep(10 * time.Second) }
		e, ms := started(t, EngineConfig{}, 1, m)
		go ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"w2"}})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := e.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("close returned after %v, the run ended after 10 s", took)
		}
	})
}

func TestRefuseKeepsWhatWasAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, answers := busyEngine(t)
		e.Refuse()
		if _, err := (&Model{core: e.cores[0]}).Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"w2"}}); !errors.Is(err, ErrClosed) {
			t.Errorf("a request after Refuse: %v", err)
		}
		for range 2 {
			if err := <-answers; err != nil {
				t.Errorf("an admitted request failed: %v", err)
			}
		}
		closeNow(t, e)
	})
}

func TestCloseFromSeveralGoroutines(t *testing.T) {
	m := newStubModel(t, models.FormScores, 1, anyRows)
	running := make(chan struct{})
	m.onRun = func([]ort.Row, int) { close(running) }
	m.perRun = 20 * time.Millisecond
	e, ms := started(t, EngineConfig{}, 1, m)
	var g sync.WaitGroup
	g.Go(func() {
		if _, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"w2"}}); err != nil {
			t.Errorf("an admitted request failed: %v", err)
		}
	})
	<-running
	for range 5 {
		g.Go(func() {
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
			// Each of them returns only when all is closed; the stub complains of a second close.
			if !m.closed {
				t.Error("a Close returned before the session was closed")
			}
		})
	}
	g.Wait()
}

// A Close that has to wait for a Start refuses requests at once all the same.
func TestCloseRefusesBeforeItWaits(t *testing.T) {
	e, ms := started(t, EngineConfig{}, 1, newStubModel(t, models.FormVector, 2, anyRows))
	e.mu.Lock() // as Start does
	closed := make(chan error)
	go func() { closed <- e.Close(t.Context()) }()
	for {
		_, err := ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w1"}})
		if errors.Is(err, ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e.mu.Unlock()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestTheEngineIsUsedInOrder(t *testing.T) {
	ask := func(m *Model) error {
		_, err := m.Embed(t.Context(), EmbedRequest{Texts: []string{"w1"}})
		return err
	}
	t.Run("before the start", func(t *testing.T) {
		e, ms := stubEngine(EngineConfig{}, 1, newStubModel(t, models.FormVector, 2, anyRows))
		if err := ask(ms[0]); !errors.Is(err, errNotStarted) {
			t.Errorf("a request before the start: %v", err)
		}
		if ms[0].Info().BatchTokens != minBatchTokens || e.Stats().QueuedRows != 0 {
			t.Errorf("info %+v, stats %+v", ms[0].Info(), e.Stats())
		}
		closeNow(t, e)
		if !e.cores[0].session.(*stubModel).closed {
			t.Error("the session of an engine that never started was not closed")
		}
		if err := ask(ms[0]); !errors.Is(err, ErrClosed) {
			t.Errorf("a request after Close: %v", err)
		}
	})
	t.Run("without models", func(t *testing.T) {
		e := NewEngine(EngineConfig{})
		if err := e.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no model") {
			t.Errorf("start without models: %v", err)
		}
		closeNow(t, e)
	})
	t.Run("twice", func(t *testing.T) {
		e, ms := started(t, EngineConfig{}, 1, newStubModel(t, models.FormVector, 2, anyRows))
		if err := e.Start(t.Context()); err == nil {
			t.Error("a second start gave no error")
		}
		if _, err := e.LoadEmbedder(t.Context(), models.Manifest{ID: "late"}, Settings{}); err == nil || !strings.Contains(err.Error(), "started") {
			t.Errorf("loading after the start: %v", err)
		}
		if err := ask(ms[0]); err != nil {
			t.Error(err)
		}
		closeNow(t, e)
		closeNow(t, e)
		if err := e.Start(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("start after Close: %v", err)
		}
		if _, err := e.LoadReranker(t.Context(), models.Manifest{ID: "late"}, Settings{}); !errors.Is(err, ErrClosed) {
			t.Errorf("loading after Close: %v", err)
		}
	})
	t.Run("refused before the start", func(t *testing.T) {
		e, ms := stubEngine(EngineConfig{}, 1, newStubModel(t, models.FormVector, 2, anyRows))
		e.Refuse()
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := ask(ms[0]); !errors.Is(err, ErrClosed) {
			t.Errorf("a request to an engine that refuses: %v", err)
		}
		closeNow(t, e)
	})
}

// After a start that failed halfway, Close frees what there is: the stubs complain of a session that is closed before its streams.
func TestAFailedStartLeaksNothing(t *testing.T) {
	fault := errors.New("out of memory")
	for name, spoil := range map[string]func(first, second *stubModel){
		"a stream of the second model": func(_, m *stubModel) {
			m.newStreamErr = func(n int) error {
				if n == 1 {
					return fault
				}
				return nil
			}
		},
		"the first run": func(_, m *stubModel) { m.warmErr = fault },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newStubModel(t, models.FormVector, 2, anyRows), newStubModel(t, models.FormScores, 1, anyRows)
			spoil(a, b)
			e, ms := stubEngine(EngineConfig{}, 3, a, b)
			if err := e.Start(t.Context()); !errors.Is(err, fault) || !strings.Contains(err.Error(), "stub/1") {
				t.Errorf("start: %v, want the fault and the model's name", err)
			}
			if _, err := ms[0].Embed(t.Context(), EmbedRequest{Texts: []string{"w1"}}); !errors.Is(err, errNotStarted) {
				t.Errorf("a request after a start that failed: %v", err)
			}
			closeNow(t, e)
			if !a.closed || !b.closed {
				t.Error("a session was not closed")
			}
		})
	}
	t.Run("its context", func(t *testing.T) {
		e, _ := stubEngine(EngineConfig{}, 2, newStubModel(t, models.FormVector, 2, anyRows))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Start(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("start with a context that has ended: %v", err)
		}
		closeNow(t, e)
	})
}

// TestCloseAtAnyMoment lets clients run on real threads and closes in their midst, for the race detector.
func TestCloseAtAnyMoment(t *testing.T) {
	for i := range 30 {
		emb, rr := newStubModel(t, models.FormTokens, 4, anyRows), newStubModel(t, models.FormScores, 1, anyRows)
		e, ms := started(t, EngineConfig{MaxQueuedTokens: 500, MaxBatchTokens: 128}, 3, emb, rr)
		var g sync.WaitGroup
		for c := range 8 {
			g.Go(func() {
				for k := 0; ; k++ {
					ctx, cancel := context.WithCancel(t.Context())
					if k%3 == 0 {
						go cancel()
					}
					var err error
					if c%2 == 0 {
						_, err = ms[0].Embed(ctx, EmbedRequest{Texts: []string{words(k, 5), words(k, 30)}, Lane: Lane(k % 2)})
					} else {
						_, err = ms[1].Rerank(ctx, RerankRequest{Query: "w1", Documents: []string{words(k, 5), "bad", words(k, 40)}, Lane: Lane(k % 2)})
					}
					cancel()
					var over *OverloadedError
					var row *RowError
					switch {
					case errors.Is(err, ErrClosed):
						return
					case err == nil, errors.Is(err, context.Canceled), errors.As(err, &over), errors.As(err, &row) && errors.Is(err, errBadRow):
					default:
						t.Errorf("a request failed with %v", err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(i%5) * time.Millisecond / 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*time.Millisecond)
		if err := e.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		g.Wait()
		if err := e.sched.audit(); err != nil {
			t.Error(err)
		}
	}
}
