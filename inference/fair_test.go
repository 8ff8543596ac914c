package inference

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ragate/models"
)

// auditClients holds the clients' counters against the jobs that wait and how many rows of each do.
func (s *scheduler) auditClients(jobs map[*job]int) error {
	type count struct {
		rows   [2]int
		tokens int
	}
	counts := map[*client]count{}
	large := 0
	for j := range jobs {
		if s.clients[j.from] != j.client {
			return fmt.Errorf("a job of %q waits for a client that is not known", j.from)
		}
	}
	for _, q := range s.queues {
		for lane := range q.lists {
			for _, f := range q.lists[lane] {
				for _, part := range f.parts {
					for _, r := range part.rows[part.head:] {
						n := counts[part.client]
						n.rows[lane]++
						n.tokens += len(r.ids)
						counts[part.client] = n
						if r.job == s.large {
							large += len(r.ids)
						}
					}
				}
			}
		}
	}
	for name, c := range s.clients {
		if n := counts[c]; n.rows != c.rows || n.tokens != c.waiting || c.name != name {
			return fmt.Errorf("client %q counts %v rows of %d tokens, and has %v of %d", name, c.rows, c.waiting, n.rows, n.tokens)
		}
		for lane := range c.served {
			if c.served[lane] > s.ahead[lane] {
				return fmt.Errorf("client %q is ahead of who is furthest ahead", name)
			}
		}
	}
	if len(counts) != s.active {
		return fmt.Errorf("%d clients are counted and %d have rows", s.active, len(counts))
	}
	if s.large != nil && s.largeTokens != large || s.large == nil && large != 0 {
		return fmt.Errorf("a large job of %d tokens is counted, %d wait", s.largeTokens, large)
	}
	if rest := s.waiting - large; rest > 2*s.max {
		return fmt.Errorf("%d tokens wait, more than twice %d", rest, s.max)
	}
	promised := 0
	for _, c := range s.clients {
		promised += c.book.promised()
	}
	open := 0
	for _, p := range s.promises {
		open += p.tokens
	}
	if promised > open { // the promises of a second lapse in the book after the last of them has
		return fmt.Errorf("%d tokens stand in the books and %d are promised", promised, open)
	}
	return nil
}

// crowd lets clients send to a stub reranker of one worker, 10,000 padded tokens a second, in fake time.
type crowd struct {
	*testing.T
	e     *Engine
	model *Model
	o     *observer
	wg    sync.WaitGroup

	mu   sync.Mutex
	done map[string]*fortune // by client
}

// fortune is what became of one client's requests.
type fortune struct {
	answered, tokens  int // requests, and their tokens
	refused           int // tries
	retries, redeemed int // tries after a Retry-After that was waited for, and those that were admitted
	gaveUp            int
	longest           time.Duration // of those that were admitted at once
	tries             int           // most that a request took
}

func newCrowd(t *testing.T, maxQueued int) *crowd {
	m := newStubModel(t, models.FormScores, 1, anyRows)
	m.perToken = 100 * time.Microsecond
	o := &observer{}
	e, ms := started(t, EngineConfig{MaxQueuedTokens: maxQueued, MaxBatchTokens: 256, Observer: o}, 1, m)
	return &crowd{T: t, e: e, model: ms[0], o: o, done: map[string]*fortune{}}
}

// ask sends one request and, where it is refused, again when it is told to, up to tries times.
func (c *crowd) ask(ctx context.Context, client string, docs []string, tries int) {
	c.mu.Lock()
	f := c.done[client]
	if f == nil {
		f = &fortune{}
		c.done[client] = f
	}
	c.mu.Unlock()
	for try := 1; ; try++ {
		began := time.Now()
		got, err := c.model.Rerank(ctx, RerankRequest{Query: "w1", Documents: docs, Client: client})
		took := time.Since(began)
		var over *OverloadedError
		refused := errors.As(err, &over)
		c.mu.Lock()
		if try > 1 {
			f.retries++
			if !refused {
				f.redeemed++
			}
		}
		f.tries = max(f.tries, try)
		switch {
		case err == nil:
			f.answered++
			f.tokens += got.Usage.Tokens
			f.longest = max(f.longest, took)
		case refused:
			f.refused++
			if try == tries {
				f.gaveUp++
			}
		case ctx.Err() == nil:
			c.Error(err)
		}
		c.mu.Unlock()
		if !refused || try == tries {
			return
		}
		select {
		case <-time.After(over.RetryAfter):
		case <-ctx.Done():
			return
		}
	}
}

// flood keeps so many requests of one client going until the context ends.
func (c *crowd) flood(ctx context.Context, client string, callers, docs, length int) {
	for n := range callers {
		r := rand.New(rand.NewPCG(uint64(n), uint64(len(client))))
		c.wg.Go(func() {
			for ctx.Err() == nil {
				c.ask(ctx, client, someDocs(r, docs, length), 1000)
			}
		})
	}
}

func someDocs(r *rand.Rand, n, most int) []string {
	docs := make([]string, n)
	for i := range docs {
		docs[i] = words(r.IntN(stubWords), 1+r.IntN(most))
	}
	return docs
}

// arrive lets requests of a client come at a rate, whatever becomes of earlier ones.
func (c *crowd) arrive(ctx context.Context, client string, perSecond float64, tries, docs, length int) {
	r := rand.New(rand.NewPCG(9, uint64(len(client))))
	c.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(r.ExpFloat64() / perSecond * float64(time.Second))):
			}
			list := someDocs(r, docs, length)
			c.wg.Go(func() { c.ask(c.Context(), client, list, tries) })
		}
	})
}

// close waits for everybody and checks that nothing is left.
func (c *crowd) close() {
	c.wg.Wait()
	synctest.Wait()
	s := c.e.sched
	s.mu.Lock()
	if err := s.audit(); err != nil {
		c.Error(err)
	}
	if s.waiting != 0 || s.active != 0 || s.large != nil {
		c.Errorf("%d tokens of %d clients are left, a large job: %v", s.waiting, s.active, s.large != nil)
	}
	s.mu.Unlock()
	time.Sleep(2 * maxRetryAfter)
	s.mu.Lock()
	s.sweep()
	if len(s.clients) != 0 {
		c.Errorf("%d clients are remembered for nothing", len(s.clients))
	}
	s.mu.Unlock()
	closeNow(c.T, c.e)
}

// busy is the share of some time that the device ran.
func (c *crowd) busy(span time.Duration) float64 {
	var ran time.Duration
	for _, b := range c.o.batches() {
		ran += b.Inference
	}
	return float64(ran) / float64(span)
}

// A client that keeps the queue full delays another by the batch that runs, and for each of the other's own batches one in between.
func TestAFloodDelaysOthersByABatch(t *testing.T) {
	for _, floods := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, 20_000) // two seconds of work
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			for i := range floods {
				c.flood(ctx, fmt.Sprint("flood", i), 100, 20, 100)
			}
			time.Sleep(5 * time.Second)
			c.arrive(ctx, "light", 2, 1, 3, 100)
			c.close()
			light := c.done["light"]
			batch := 256 * 100 * time.Microsecond
			most := time.Duration(1+4*(floods+1)) * batch // three rows of up to 112 tokens may take three batches
			if light.refused > 0 || light.answered < 15 || light.longest > most {
				t.Errorf("beside %d floods: %+v, want none refused and none longer than %v", floods, *light, most)
			}
			if c.done["flood0"].refused == 0 {
				t.Error("the flood never filled its part of the queue")
			}
			t.Logf("%d floods: %+v (at most %v)", floods, *light, most)
		})
	}
}

// Clients that want more than their part get the same, whatever they send and with however many connections.
func TestEqualDemandGetsEqualParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 20_000)
		ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
		defer stop()
		c.flood(ctx, "a", 20, 40, 100)
		c.flood(ctx, "bb", 60, 10, 100)
		c.flood(ctx, "ccc", 200, 10, 100)
		c.close()
		total := 0
		for _, f := range c.done {
			total += f.tokens
		}
		for name, f := range c.done {
			if part := float64(f.tokens) / float64(total); part < 0.30 || part > 0.37 {
				t.Errorf("of three clients %s got %.3f of what ran", name, part)
			}
			t.Logf("%s: %+v", name, *f)
		}
	})
}

// Who was away has saved nothing: from its return on it gets its half, and not all until it has caught up.
func TestTimeAwayIsNotSaved(t *testing.T) {
	s := testScheduler(1<<20, 128, 1, anyRows)
	var serial int32
	send := func(client string, rows int) {
		lengths := make([]int, rows)
		for i := range lengths {
			lengths[i] = 64
		}
		j := newJob(t.Context(), 0, LaneBulk, &serial, lengths...)
		j.from = client
		if err := s.submit(j); err != nil {
			t.Fatal(err)
		}
	}
	run := func(batches int) map[string]int {
		got := map[string]int{}
		for range batches {
			b, ok := s.formNow()
			if !ok {
				t.Fatal("nothing waits")
			}
			for _, r := range b.rows {
				got[r.job.from]++
			}
			s.finish(b, time.Millisecond, 0)
		}
		return got
	}
	send("away", 2)
	send("stays", 1000)
	run(200)
	send("away", 100)
	if got := run(20); got["away"] < 19 || got["away"] > 22 {
		t.Errorf("in 20 batches of two rows after its return: %v", got)
	}
	// Nor does who was alone pay for it.
	send("new", 100)
	if got := run(30); got["new"] < 18 || got["new"] > 23 || got["stays"] < 18 {
		t.Errorf("in 30 batches of two rows of three clients: %v", got)
	}
}

// A row of a length that nobody else has runs, though its client is ahead because its other rows suit everybody's batches.
func TestAClientsLeadIsBounded(t *testing.T) {
	s := testScheduler(1<<20, 1024, 1, anyRows)
	var serial int32
	send := func(client string, lengths ...int) {
		j := newJob(t.Context(), 0, LaneBulk, &serial, lengths...)
		j.from = client
		if err := s.submit(j); err != nil {
			t.Fatal(err)
		}
	}
	many := make([]int, 20_000)
	for i := range many {
		many[i] = 16
	}
	send("suits", append([]int{400}, many...)...)
	for n := range 1000 {
		send("opens", 16)
		b, _ := s.formNow()
		for _, r := range b.rows {
			if len(r.ids) == 400 {
				return
			}
		}
		s.finish(b, time.Millisecond, 0)
		if n > leadBatches*1024/16+10 {
			break
		}
	}
	t.Error("the row never ran")
}

// At four times what the device can do, whoever comes back when told to gets in, and the device does nothing less for it.
func TestHonouredRetriesGetIn(t *testing.T) {
	for name, q := range map[string]struct {
		max     int
		clients []string
	}{"one client": {20_000, []string{"a"}}, "three": {40_000, []string{"a", "bb", "ccc"}}, "a short queue": {3_000, []string{"a"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, q.max)
				const span = 20 * time.Second
				ctx, stop := context.WithTimeout(t.Context(), span)
				defer stop()
				for _, client := range q.clients { // a request is 10 rows of 55 tokens on average, padded to 62: 16 a second can be done
					c.arrive(ctx, client, 4*16/float64(len(q.clients)), 5, 10, 100)
				}
				time.Sleep(span)
				busy := c.busy(span)
				c.close()
				var all fortune
				for _, f := range c.done {
					all.answered += f.answered
					all.retries += f.retries
					all.redeemed += f.redeemed
					all.gaveUp += f.gaveUp
					all.tries = max(all.tries, f.tries)
				}
				share := float64(all.redeemed) / float64(all.retries)
				t.Logf("busy %.3f, %.3f of %d retries got in, %+v", busy, share, all.retries, all)
				if busy < 0.97 || share < 0.95 || all.retries < 500 {
					t.Errorf("the device ran %.3f of the time, and %.3f of %d retries got in", busy, share, all.retries)
				}
			})
		})
	}
}

// Places promised to clients that never come cost the device nothing.
func TestPromisesThatNobodyTakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 5_000)
		const span = 30 * time.Second
		ctx, stop := context.WithTimeout(t.Context(), span)
		defer stop()
		c.arrive(ctx, "a", 4*16, 1, 10, 100)
		time.Sleep(span)
		if busy := c.busy(span); busy < 0.97 {
			t.Errorf("the device ran %.3f of the time", busy)
		}
		c.close()
	})
}

// A job larger than the queue comes in though its own client, and others, keep the queue full; it keeps nobody else out.
func TestALargeJobIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 10_000)
		ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
		defer stop()
		c.flood(ctx, "own", 50, 10, 100)
		c.flood(ctx, "other", 50, 10, 100)
		time.Sleep(5 * time.Second)
		r := rand.New(rand.NewPCG(1, 1))
		for _, client := range []string{"own", "other", "third"} {
			docs := someDocs(r, 300, 100)
			c.wg.Go(func() {
				began := time.Now()
				for try := 1; ; try++ {
					_, err := c.model.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Client: client})
					var over *OverloadedError
					if !errors.As(err, &over) {
						t.Logf("the large job of %s came in at try %d, and was answered after %v: %v", client, try, time.Since(began), err)
						if try > 6 {
							t.Errorf("the large job of %s came in at try %d only", client, try)
						}
						return
					}
					if over.Tokens <= 10_000 {
						t.Errorf("%d tokens are not large", over.Tokens)
					}
					time.Sleep(over.RetryAfter)
				}
			})
		}
		time.Sleep(time.Second)
		c.arrive(ctx, "light", 2, 1, 3, 100)
		c.close()
		if light := c.done["light"]; light.refused > 0 || light.longest > time.Second {
			t.Errorf("beside it: %+v", *light)
		}
	})
}

func TestBeforeItsTimeARequestIsToldTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheduler(1000, 0, 1, anyRows)
		var serial int32
		send := func(first int32, n int) *OverloadedError {
			serial = first
			var over *OverloadedError
			if err := s.submit(newJob(t.Context(), 0, LaneBulk, &serial, n)); err != nil && !errors.As(err, &over) {
				t.Fatal(err)
			}
			return over
		}
		s.queues[0].rate = 100 // 80 tokens a second, before it is measured
		send(1, 1000)
		for i, want := range []time.Duration{2, 4, 6} { // 160 tokens each
			if over := send(int32(10+i), 160); over == nil || over.RetryAfter != want*time.Second || over.Held != 1000 || over.Limit != 1000 {
				t.Fatalf("refusal %d: %+v, want %d s", i, over, want)
			}
		}
		time.Sleep(2500 * time.Millisecond)
		if over := send(12, 160); over == nil || over.RetryAfter != 4*time.Second {
			t.Errorf("2.5 s later the last one is told %+v, want 4 s", over)
		}
		b, _ := s.formNow() // room for six of them
		s.finish(b, time.Millisecond, 0)
		for i := range 6 {
			send(int32(20+i), 160)
		}
		time.Sleep(1500 * time.Millisecond)
		if over := send(11, 160); over != nil {
			t.Errorf("at its time: %+v", over)
		}
		if over := send(11, 160); over == nil {
			t.Error("a promise was taken up twice")
		}
	})
}

func TestBookFits(t *testing.T) {
	const now = 10*time.Second + 300*time.Millisecond
	for name, c := range map[string]struct {
		slots  []slot
		tokens int
		rate   float64
		want   int64
	}{
		"room":                              {nil, 1000, 100, 0},
		"the excess at the rate":            {nil, 1250, 100, 3},
		"behind what is promised":           {[]slot{{11, 200}, {13, 100}}, 1100, 100, 4},
		"now, as promises come much later":  {[]slot{{30, 900}}, 900, 100, 0},
		"not now, as it takes their place":  {[]slot{{12, 500}}, 900, 100, 4},
		"overdue promises may come any day": {[]slot{{9, 300}}, 900, 100, 2},
		"unknown rate":                      {nil, 1001, 0, 1},
		"unknown rate, room":                {nil, 1000, 0, 0},
		"never":                             {nil, 1 << 40, 1, 3600},
	} {
		b := book{slots: c.slots}
		if got := b.fit(now, c.tokens, 1000, c.rate); got != c.want {
			t.Errorf("%s: %d s, want %d", name, got, c.want)
		}
	}
	b := book{}
	for i := range 3 {
		b.add(time.Duration(12-i)*time.Second, 10)
		b.add(time.Duration(12-i)*time.Second+time.Millisecond, 10)
	}
	b.take(11*time.Second, 20)
	if len(b.slots) != 2 || b.promised() != 40 || b.slots[0] != (slot{10, 20}) {
		t.Errorf("%+v", b)
	}
	if got := b.after(0, 10, 990, 1000); got != 11 {
		t.Errorf("a full second is followed by second %d", got)
	}
	b.expire(12*time.Second + promiseGrace)
	if len(b.slots) != 1 {
		t.Errorf("after the first has lapsed: %+v", b)
	}
	b.expire(time.Minute)
	if !b.empty() || b.slots != nil {
		t.Errorf("after all have lapsed: %+v", b)
	}
}

// Clients that left are forgotten, and their promises.
func TestManyClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheduler(1000, 0, 1, anyRows)
		var serial int32
		for n := range 20_000 {
			j := newJob(t.Context(), 0, LaneBulk, &serial, 30)
			j.from = fmt.Sprint(n)
			if err := s.submit(j); err != nil {
				t.Fatal(err)
			}
			if n%20 == 0 { // and refused ones
				for range 40 {
					j := newJob(t.Context(), 0, LaneBulk, &serial, 30)
					j.from = fmt.Sprint(n)
					s.submit(j)
				}
			}
			for s.waiting > 500 {
				b, _ := s.formNow()
				s.finish(b, time.Millisecond, 0)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if len(s.clients) > 500 || len(s.promises) > 2000 {
			t.Errorf("%d clients and %d promises are remembered", len(s.clients), len(s.promises))
		}
		if err := s.audit(); err != nil {
			t.Error(err)
		}
	})
}
