package inference

// Whose row is next. Start-time fair queueing, by batches: each client has, for each lane, a virtual time, which goes on by what is run
// for it. The next batch of a lane is opened by the client whose virtual time is least, with its oldest row; and so are places in a batch
// given away among rows of one padded length. Within a client rows of one length are first in, first out.
//
// What follows from it:
//   - Clients that always have rows waiting get equal parts of a lane, to within a batch or so, however many rows each has waiting.
//   - A client that comes back begins at the lane's virtual time: it neither lives on what it did not use nor pays for it, and its first
//     row opens a batch as soon as those have that had waited for their turn with just as little.
//   - A client may run ahead because its rows are of a length that suits the batches others open. It would then wait for all of them to
//     catch up with its rows of other lengths, so it is never charged more than leadBatches ahead.
//
// Lanes go before fairness: see interactiveRun.

import (
	"context"
	"time"
)

// leadBatches is how far a client may be ahead of its lane's virtual time, in batches. Where many clients wait, each is a batch ahead
// after its turn.
const leadBatches = 4

// client is who requests come from, as far as the queue is concerned. Guarded by the scheduler's mutex.
type client struct {
	name    string
	waiting int       // tokens
	rows    [2]int    // that wait, by lane
	served  [2]uint64 // virtual time by lane, in tokens as padded
	drain   drain
	book    book // what it was promised
}

func (c *client) idle() bool { return c.rows == [2]int{} }

// list holds the waiting rows of one model, lane and padded length: a fifo for each client that has some.
type list struct {
	lane  Lane
	parts []fifo // none is empty
	at    int    // the part that peek found
	own   [1]fifo
}

func newList(lane Lane) *list {
	l := &list{lane: lane}
	l.parts = l.own[:0] // most often there is one client
	return l
}

func (l *list) empty() bool { return len(l.parts) == 0 }

func (l *list) push(r row) {
	c := r.job.client
	for i := range l.parts {
		if l.parts[i].client == c {
			l.parts[i].push(r)
			return
		}
	}
	l.parts = append(l.parts, fifo{client: c})
	l.parts[len(l.parts)-1].push(r)
}

// peek returns the row whose turn it is. The list must not be empty.
func (l *list) peek() row {
	l.at = 0
	for i := 1; i < len(l.parts); i++ {
		if comesBefore(l.lane, l.parts[i].peek(), l.parts[l.at].peek()) {
			l.at = i
		}
	}
	return l.parts[l.at].peek()
}

// comesBefore says whether a's client has been served less, or as much and a is older.
func comesBefore(lane Lane, a, b row) bool {
	x, y := a.job.client.served[lane], b.job.client.served[lane]
	return x < y || x == y && a.seq < b.seq
}

// pop takes out the row that peek returned last, since when nothing was added or taken out.
func (l *list) pop() row {
	r := l.parts[l.at].pop()
	l.tidy(l.at)
	return r
}

// remove takes a job's rows out and returns how many they were and their tokens.
func (l *list) remove(j *job) (rows, tokens int) {
	for i := range l.parts {
		if l.parts[i].client == j.client {
			rows, tokens = l.parts[i].remove(j)
			l.tidy(i)
			break
		}
	}
	return rows, tokens
}

func (l *list) tidy(i int) {
	if l.parts[i].empty() {
		last := len(l.parts) - 1
		l.parts[i] = l.parts[last]
		l.parts[last] = fifo{}
		l.parts = l.parts[:last]
	}
}

// fewClients is the number of clients from which on those that left are looked for.
const fewClients = 64

// clientOf finds the client of a name, or makes it. Called with the mutex held.
func (s *scheduler) clientOf(name string) *client {
	c := s.clients[name]
	if c != nil {
		return c
	}
	if len(s.clients) >= max(s.sweepAt, fewClients) {
		s.sweep()
		s.sweepAt = 2 * len(s.clients) // a look at each is so paid by as many that came
	}
	c = &client{name: name}
	s.clients[name] = c
	return c
}

// sweep forgets clients of which nothing is left to know: no row waits, no promise is open, and the lanes have caught up with them.
func (s *scheduler) sweep() {
	now := s.now()
	for name, c := range s.clients {
		c.book.expire(now)
		caught := true
		for lane := range s.rows {
			caught = caught && (s.rows[lane] == 0 || c.served[lane] <= s.virtual[lane])
		}
		if c.idle() && caught && c.book.empty() {
			delete(s.clients, name)
		}
	}
}

// enter counts the rows of a job that was admitted, before they are in the lists. Called with the mutex held.
func (s *scheduler) enter(j *job, tokens int) {
	c, lane := j.client, j.lane
	if s.rows[lane] == 0 {
		s.virtual[lane] = s.ahead[lane] // whoever was ahead has kept nobody waiting
	}
	if c.rows[lane] == 0 {
		c.served[lane] = max(c.served[lane], s.virtual[lane])
	}
	if c.idle() {
		s.active++
	}
	c.waiting += tokens
	c.rows[lane] += len(j.rows)
}

// leave counts rows of a job that have left the lists, for a worker or for good. Called with the mutex held.
func (s *scheduler) leave(j *job, rows, tokens int) {
	c := j.client
	c.waiting -= tokens
	c.rows[j.lane] -= rows
	if j == s.large {
		s.largeTokens -= tokens
		if j.waiting == 0 {
			s.large = nil
		}
	}
	if rows > 0 && c.idle() {
		s.active--
		c.drain.pause()
		if s.active == 0 {
			s.drain.pause()
		}
	}
}

// charge counts a row that a worker takes, of so many tokens as padded alone, in a batch of up to limit. Called with the mutex held, before the row is
// in the batch and after its job knows of it.
func (s *scheduler) charge(b *batch, r row, cols, limit int) {
	c, lane := r.job.client, b.lane
	if len(b.rows) == 0 {
		s.virtual[lane] = max(s.virtual[lane], c.served[lane])
	}
	most := s.virtual[lane] + leadBatches*uint64(max(limit, cols))
	c.served[lane] = max(c.served[lane], min(c.served[lane]+uint64(cols), most))
	s.ahead[lane] = max(s.ahead[lane], c.served[lane])
	s.drain.took(len(r.ids), b.began)
	c.drain.took(len(r.ids), b.began)
	s.leave(r.job, 1, len(r.ids))
}

// drain measures how fast waiting tokens are taken by workers, over spans of drainSpan in which some always wait. It is what Retry-After
// goes by: the batches' own rate leaves out what tokenising, refusing and answering take of the CPUs.
type drain struct {
	since  time.Time // zero: nothing waits
	tokens int       // taken since then
	rate   float64   // tokens per second; 0 before the first span
	at     time.Time // when the rate was measured
}

const (
	drainSpan  = time.Second
	drainFresh = 10 * time.Second // how long a rate is believed

	// drainWeight is how far one span moves the rate: it follows a change of load within seconds, and promises of a minute ahead do not
	// go by one second's luck.
	drainWeight = 1.0 / 4
)

func (d *drain) took(tokens int, now time.Time) {
	switch span := now.Sub(d.since); {
	case d.since.IsZero():
		d.since, d.tokens = now, 0
	case span >= drainSpan:
		rate := float64(d.tokens) / span.Seconds()
		if d.fresh(now) > 0 {
			rate = d.rate + (rate-d.rate)*drainWeight
		}
		d.rate, d.at, d.since, d.tokens = rate, now, now, 0
	}
	d.tokens += tokens
}

func (d *drain) pause() { d.since = time.Time{} }

// fresh is the measured rate; 0 when there is none, or it is old.
func (d *drain) fresh(now time.Time) float64 {
	if d.rate > 0 && now.Sub(d.at) <= drainFresh {
		return d.rate
	}
	return 0
}

type clientKey struct{}

// WithClient returns a context whose requests are a client's: for callers between which and the model are others that know of no clients.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

// ClientOf returns the name given with [WithClient], "" where there is none.
func ClientOf(ctx context.Context) string {
	name, _ := ctx.Value(clientKey{}).(string)
	return name
}
