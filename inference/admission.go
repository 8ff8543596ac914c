package inference

// Who may join the queue, and when who may not is told to come back.
//
// A client may hold as much as the queue's bound less half of what the others hold. So one alone has the whole bound M; n that all want
// more have 2M/(n+1) each; and all together hold less than 2M, as whoever was admitted last holds at most M - others/2. What is left of 2M
// is never nothing, and whoever comes with nothing waiting may take half of it at once: a client that floods can fill its own part only.
// Nothing admitted is ever thrown out.
//
// A job that its client may not hold even alone is large. One large job at a time may wait beside the queue, when nothing else of its client
// waits; it counts for nobody's limit but its client's.
//
// Who is refused is promised a place: the earliest whole second at which, at the rate at which the client's tokens leave the queue, the
// job will fit beside what waits and all that is promised already. A request is known again by a hash of its client and its tokens. New requests
// are refused while they would take a promised place; the one that it was promised to gets in, with some room beyond the limit
// for what went slower than foreseen. Clients that were refused together so come back one after the other. Before its time a request is told the
// same time again. A promise that is not taken up lapses after promiseGrace, and a client whose part of the queue runs low gets in with whatever
// comes: promises that nobody returns for cost no work.
//
// A large job that came back in time and did not fit has the next place reserved: no job of its client is admitted that would be waiting
// still when it comes again. Other large jobs wait for it to come, or for the promise to lapse.

import (
	"hash/maphash"
	"math"
	"slices"
	"time"
)

const (
	// promiseGrace is how late a request may come back: clients have timers of their own, and a network between.
	promiseGrace = 2 * time.Second
	// promiseEarly is how much too early it may come.
	promiseEarly = 100 * time.Millisecond
	// maxRetryAfter bounds what anybody is told. Beyond it nothing is promised.
	maxRetryAfter = time.Hour
	// maxPromises bounds the memory for open promises: some MB.
	maxPromises = 1 << 16

	// unmeasuredShare of the batches' own rate is what the queue is taken to drain at before that was measured.
	unmeasuredShare = 0.8
	// measuredShare of the measured rate is counted on: what is promised too late is made up for by new requests, which get in when the
	// queue runs low, and what is promised too early is not.
	measuredShare = 0.95
)

// promise is a place in the queue for one job at one time.
type promise struct {
	due    time.Duration // since the scheduler was made
	tokens int
}

// slot is what is promised for one second.
type slot struct {
	second int64 // since the scheduler was made
	tokens int
}

// book is what one client was promised, in order of time.
type book struct{ slots []slot }

func (b *book) empty() bool { return len(b.slots) == 0 }

// expire drops what was due too long ago.
func (b *book) expire(now time.Duration) {
	n := 0
	for n < len(b.slots) && time.Duration(b.slots[n].second+1)*time.Second+promiseGrace < now {
		n++
	}
	b.slots = slices.Delete(b.slots, 0, n)
	if len(b.slots) == 0 {
		b.slots = nil
	}
}

func (b *book) find(due time.Duration) (second int64, at int, ok bool) {
	second = int64(due / time.Second)
	at, ok = slices.BinarySearchFunc(b.slots, second, func(s slot, second int64) int { return int(s.second - second) })
	return second, at, ok
}

func (b *book) add(due time.Duration, tokens int) {
	second, at, ok := b.find(due)
	if !ok {
		b.slots = slices.Insert(b.slots, at, slot{second: second})
	}
	b.slots[at].tokens += tokens
}

func (b *book) take(due time.Duration, tokens int) {
	if _, at, ok := b.find(due); ok {
		if b.slots[at].tokens -= tokens; b.slots[at].tokens <= 0 {
			b.slots = slices.Delete(b.slots, at, at+1)
		}
	}
}

// promised is all of it.
func (b *book) promised() (tokens int) {
	for _, s := range b.slots {
		tokens += s.tokens
	}
	return tokens
}

// fit is the earliest whole second from now on from which on so many tokens, of which some wait, never exceed the limit, when rate tokens leave each second
// and what is promised comes at its time. 0 is now.
func (b *book) fit(now time.Duration, tokens, limit int, rate float64) int64 {
	if rate <= 0 {
		if tokens+b.promised() <= limit {
			return 0
		}
		return 1
	}
	k, held := 0.0, float64(tokens)
	at := 0.0 // when the slots counted so far have come
	for i := 0; ; i++ {
		next := math.Inf(1)
		if i < len(b.slots) {
			next = max(0, time.Duration(b.slots[i].second)*time.Second-now).Seconds()
		}
		if until := (held - float64(limit)) / rate; until > at && next > at {
			k = max(k, math.Ceil(min(until, next)))
		}
		if i == len(b.slots) {
			break
		}
		held += float64(b.slots[i].tokens)
		at = next
	}
	return int64(min(k, maxRetryAfter.Seconds()))
}

// after is the first whole second from k on for which no more is promised than fits at once: those who are refused in one moment come back in
// one moment.
func (b *book) after(now time.Duration, k int64, tokens, limit int) int64 {
	second, at, _ := b.find(now + time.Duration(k)*time.Second)
	for ; at < len(b.slots) && b.slots[at].second == second && b.slots[at].tokens+tokens > limit; at++ {
		second++
		k++
	}
	return k
}

// now is the time since the scheduler was made.
func (s *scheduler) now() time.Duration { return time.Since(s.epoch) }

// limit is what a client may hold.
func (s *scheduler) limit(c *client) int {
	others := s.waiting - c.waiting
	if s.large != nil && s.large.client != c {
		others -= s.largeTokens
	}
	return s.max - others/2
}

// rateFor is how many of a client's tokens will leave the queue each second: no fewer than its fair part, and more where it has been getting
// more. 0 where nothing is known.
func (s *scheduler) rateFor(c *client) float64 {
	now := time.Now()
	all := measuredShare * s.drain.fresh(now)
	if all == 0 {
		all = unmeasuredShare * s.nominal()
	}
	n := s.active
	if c.idle() {
		n++
	}
	return max(all/float64(max(n, 1)), min(measuredShare*c.drain.fresh(now), all))
}

// nominal is the rate of the batches that ran, for the mix of models that waits; 0 where one has not run yet.
func (s *scheduler) nominal() float64 {
	var seconds, longest float64 // with every worker busy, and of the one model whose streams need the longest
	for _, q := range s.queues {
		if q.waiting > 0 {
			if q.rate == 0 {
				return 0
			}
			seconds += float64(q.waiting) / (q.rate * float64(s.workers))
			longest = max(longest, float64(q.waiting)/(q.rate*float64(s.runsOf(q))))
		}
	}
	seconds = max(seconds, longest)
	if seconds == 0 {
		return 0
	}
	return float64(s.waiting) / seconds
}

// admit says whether a job of so many tokens may join the queue; nil: it may. Called with the mutex held.
func (s *scheduler) admit(j *job, tokens int) *OverloadedError {
	c := j.client
	limit := s.limit(c)
	if c.book.empty() && c.waiting+tokens <= limit || len(j.rows) == 0 {
		return nil
	}
	now := s.now()
	c.book.expire(now)
	if s.reserved != 0 && now > s.reservedDue+promiseGrace {
		s.reserved = 0
	}
	key := s.fingerprint(j)
	p, known := s.promises[key]
	if known {
		delete(s.promises, key)
		c.book.take(p.due, p.tokens)
		known = now <= p.due+promiseGrace
	}
	inTime := known && now >= p.due-promiseEarly
	large := tokens > limit
	fits := false
	rate := s.rateFor(c)
	var k int64
	if large {
		free := s.large == nil && (s.reserved == 0 || s.reserved == key)
		fits = free && (c.idle() || inTime && s.reserved == key && c.waiting <= limit/2)
		if !fits {
			k = max(1, c.book.fit(now, c.waiting, 0, rate))
			if s.large != nil {
				k = max(k, s.large.client.book.fit(now, s.large.client.waiting, 0, s.rateFor(s.large.client)))
			}
			if s.reserved != 0 && s.reserved != key {
				k = max(k, wholeSecondsUp(s.reservedDue-now)+1)
			}
		}
	} else {
		k = c.book.fit(now, c.waiting+tokens, limit, rate)
		fits = k == 0 || c.waiting+tokens <= limit/2 || c.idle() // its part runs low
		if s.reserved != 0 && s.reservedFor == c {
			left := s.reservedDue - now
			if at := c.book.fit(now, c.waiting+tokens, 0, rate); time.Duration(at)*time.Second > left {
				fits = false
				k = max(k, wholeSecondsUp(left)+1)
			}
		} else if inTime { // half of what is left of twice the bound stays for those who have nothing here
			fits = fits || c.waiting+tokens <= s.max+s.max/4 && s.waiting-s.largeTokens+tokens <= s.max+s.max*3/4
		}
	}
	if fits {
		if s.reserved == key {
			s.reserved = 0
		}
		if large {
			s.large, s.largeTokens = j, tokens
		}
		return nil
	}
	after := time.Duration(c.book.after(now, max(k, 1), tokens, max(limit, tokens))) * time.Second
	if known && !inTime {
		after = time.Duration(wholeSecondsUp(p.due-now)) * time.Second
	} else {
		if large && inTime && s.reserved == 0 {
			s.reserved = key
		}
		p = promise{due: now + after, tokens: tokens}
		if s.reserved == key {
			s.reservedFor, s.reservedDue = c, p.due
		}
	}
	if after < maxRetryAfter && s.roomForPromise(now) {
		s.promises[key] = p
		c.book.add(p.due, p.tokens)
	}
	return &OverloadedError{Tokens: tokens, Queued: s.waiting, Held: c.waiting, Limit: max(limit, 0), RetryAfter: after}
}

// wholeSecondsUp rounds up to whole seconds, at least one.
func wholeSecondsUp(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// roomForPromise forgets promises that lapsed, when there are many, and says whether one more can be kept.
func (s *scheduler) roomForPromise(now time.Duration) bool {
	if len(s.promises) >= max(s.lapseAt, fewClients) {
		for key, p := range s.promises {
			if now > p.due+promiseGrace+time.Second { // as the book does
				delete(s.promises, key)
			}
		}
		s.lapseAt = 2 * len(s.promises)
	}
	return len(s.promises) < maxPromises
}

// fingerprint is the same for a request that is sent again by the same client.
func (s *scheduler) fingerprint(j *job) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(s.seed, j.client.name)
	mix := func(v uint64) {
		h = (h ^ v) * odd
		h ^= h >> 29
	}
	mix(uint64(j.queue))
	for _, r := range j.rows {
		mix(uint64(len(r.ids)) << 32)
		for _, id := range r.ids {
			mix(uint64(uint32(id)))
		}
	}
	if h == 0 {
		h = 1 // 0 says that nothing is reserved
	}
	return h
}
