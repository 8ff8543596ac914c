package benchmarks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Load is how requests come.
type Load struct {
	Clients int // closed loop: each sends its next request when the last one is answered
	// Rate: open loop, requests per second at exponentially distributed distances, whether or not earlier ones are answered; Clients is ignored
	// then. Latency counts from when a request was due, so that a server which stalls does not hide it by slowing its clients down.
	Rate float64
	Seed uint64 // of the distances

	Transport http.RoundTripper // nil: connections of the driver's own, kept alive
	Header    http.Header       // of every request, beside the content type
	Timeout   time.Duration     // of one request; 0: none

	// Observe is told of every request when it has ended, one at a time, in the order of the ends.
	Observe func(Sample)
}

// Sample is one request that has ended.
type Sample struct {
	Due, Done time.Time // when its time began, and when the last byte of its answer had come
	Request   *Request
	Facts     Facts // of a right answer
	Err       error // an *AnswerError where there is no right answer
}

// Facts are what an answer says of itself.
type Facts struct {
	Tokens   int    // that the server says it ran; 0 where it does not say
	Unscored int    // items without a score, where an answer may have such
	Kind     string // of decision, "" where there is one kind
}

// AnswerError is returned for a request without a right answer.
type AnswerError struct {
	Kind   string // "connection", "timeout", "answer" for a wrong one, or "status 503" and so on
	Status int    // 0 where there was none
	Err    error
}

func (e *AnswerError) Error() string { return e.Err.Error() }
func (e *AnswerError) Unwrap() error { return e.Err }

// Refused says that the server is alive and too busy: it answered 429.
func (e *AnswerError) Refused() bool { return e.Status == http.StatusTooManyRequests }

// backOff is how long a client of a closed loop waits after a refusal that names no time, and mostBackOff the most that it waits when told to:
// without a pause it would ask for refusals as fast as the machine can.
const (
	backOff     = 50 * time.Millisecond
	mostBackOff = time.Second
)

// tooManyInARow is how many requests may fail one after another, refusals aside, until the driver gives up: a server that is gone would be
// asked as fast as the machine can.
const tooManyInARow = 100

// openIdle is how many connections an open loop keeps: a server that falls behind has many requests in flight.
const openIdle = 256

// NewTransport makes connections for the load, kept alive.
func (l Load) NewTransport() *http.Transport {
	idle := max(l.Clients, 1)
	if l.Rate > 0 {
		idle = openIdle
	}
	return &http.Transport{MaxIdleConns: idle, MaxIdleConnsPerHost: idle, DisableCompression: true}
}

// maxLatency is the longest that is told from longer ones.
const maxLatency = 10 * time.Minute

// NewLatencies makes an empty histogram of latencies: in microseconds, to three digits.
func NewLatencies() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency.Microseconds(), 3) }

// RecordLatency counts one.
func RecordLatency(h *hdrhistogram.Histogram, took time.Duration) {
	h.RecordValue(min(took, maxLatency).Microseconds()) //nolint:errcheck // it is in range
}

// Tally counts answered requests.
type Tally struct {
	Requests   int
	Failed     int // not among Requests
	Refused    int // of Failed: answered 429
	FirstError error
	Items      int
	Tokens     int
	Latency    *hdrhistogram.Histogram // microseconds
}

func newTally() Tally {
	return Tally{Latency: NewLatencies()}
}

// Add puts another tally of the same kind of load in.
func (t *Tally) Add(o Tally) {
	t.Requests += o.Requests
	t.Failed += o.Failed
	t.Refused += o.Refused
	if t.FirstError == nil {
		t.FirstError = o.FirstError
	}
	t.Items += o.Items
	t.Tokens += o.Tokens
	t.Latency.Merge(o.Latency)
}

func (t *Tally) record(r *Request, took time.Duration, err error) {
	if err != nil {
		t.Failed++
		var a *AnswerError
		if errors.As(err, &a) && a.Refused() {
			t.Refused++
		}
		if t.FirstError == nil {
			t.FirstError = err
		}
		return
	}
	t.Requests++
	t.Items += r.Items
	t.Tokens += r.Tokens
	RecordLatency(t.Latency, took)
}

// Driver sends requests from Drive to Stop. Its goroutines are its own.
type Driver struct {
	url    string
	client *http.Client
	load   Load
	quit   chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	next   func() Request
	all    Tally
	window *Tally // nil while nothing is measured
	streak int    // failures in a row
}

// Drive begins to send what next gives to the server at url ("http://host:port"). next is never called twice at once; what it takes is
// the driver's delay, so it had better hand out requests that are ready.
func Drive(url string, load Load, next func() Request) *Driver {
	if load.Transport == nil {
		load.Transport = load.NewTransport()
	}
	d := &Driver{url: url, load: load, next: next, all: newTally(), quit: make(chan struct{}),
		client: &http.Client{Transport: load.Transport, Timeout: load.Timeout}}
	if load.Rate > 0 {
		d.wg.Go(func() { d.open(load) })
		return d
	}
	for range max(load.Clients, 1) {
		d.wg.Go(func() {
			var buf bytes.Buffer
			for !d.stopped() {
				r := d.take()
				if wait := d.send(r, time.Now(), &buf); wait > 0 {
					select {
					case <-d.quit:
					case <-time.After(wait):
					}
				}
			}
		})
	}
	return d
}

func (d *Driver) open(load Load) {
	rng := rand.New(rand.NewPCG(load.Seed, 1))
	due := time.Now()
	for {
		due = due.Add(time.Duration(rng.ExpFloat64() / load.Rate * float64(time.Second)))
		select {
		case <-d.quit:
			return
		case <-time.After(time.Until(due)):
		}
		r, at := d.take(), due
		d.wg.Go(func() { d.send(r, at, new(bytes.Buffer)) })
	}
}

func (d *Driver) stopped() bool {
	select {
	case <-d.quit:
		return true
	default:
		return false
	}
}

func (d *Driver) take() Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next()
}

// send sends one request and counts its answer. due is when its time began. The result is how long its sender had better wait.
func (d *Driver) send(r Request, due time.Time, buf *bytes.Buffer) (wait time.Duration) {
	x := Sample{Due: due, Request: &r}
	var refused *http.Response
	x.Done, x.Facts, refused, x.Err = d.ask(&r, buf)
	took := x.Done.Sub(due)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all.record(&r, took, x.Err)
	if d.window != nil {
		d.window.record(&r, took, x.Err)
	}
	if d.load.Observe != nil {
		d.load.Observe(x)
	}
	switch {
	case refused != nil:
		wait = backOff
		if s, err := strconv.Atoi(refused.Header.Get("Retry-After")); err == nil {
			wait = min(max(time.Duration(s)*time.Second, backOff), mostBackOff)
		}
	case x.Err != nil:
		if d.streak++; d.streak > tooManyInARow && !d.stopped() {
			close(d.quit)
		}
	default:
		d.streak = 0
	}
	return wait
}

// ask sends one request. done is when the answer had come; looking into it is not the server's time.
func (d *Driver) ask(r *Request, buf *bytes.Buffer) (done time.Time, facts Facts, refused *http.Response, err error) {
	failed := func(kind string, status int, err error) error {
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) && timeout.Timeout() {
			kind = "timeout"
		}
		return &AnswerError{Kind: kind, Status: status, Err: err}
	}
	ask, err := http.NewRequest(http.MethodPost, d.url+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return time.Now(), facts, nil, failed("connection", 0, err)
	}
	for name, values := range d.load.Header {
		ask.Header[name] = values
	}
	ask.Header.Set("Content-Type", "application/json")
	answer, err := d.client.Do(ask)
	if err != nil {
		return time.Now(), facts, nil, failed("connection", 0, err)
	}
	defer answer.Body.Close()
	buf.Reset()
	_, err = io.Copy(buf, answer.Body)
	done = time.Now()
	switch {
	case err != nil:
		return done, facts, nil, failed("connection", answer.StatusCode, err)
	case answer.StatusCode != http.StatusOK:
		if answer.StatusCode == http.StatusTooManyRequests {
			refused = answer
		}
		return done, facts, refused, failed(fmt.Sprintf("status %d", answer.StatusCode), answer.StatusCode, r.check(answer.StatusCode, buf.Bytes()))
	case r.Read != nil:
		facts, err = r.Read(buf.Bytes())
	default:
		err = r.check(answer.StatusCode, buf.Bytes())
	}
	if err != nil {
		return done, facts, nil, &AnswerError{Kind: "answer", Status: answer.StatusCode, Err: err}
	}
	return done, facts, nil, nil
}

// Measure counts the answers that come during the given time, and longer until there are as many as wanted, but not beyond ten times as
// long.
func (d *Driver) Measure(t time.Duration, want int) Tally {
	w := newTally()
	d.mu.Lock()
	d.window = &w
	d.mu.Unlock()
	end := time.Now().Add(10 * t)
	for ; ; t /= 2 {
		time.Sleep(max(t, 10*time.Millisecond))
		d.mu.Lock()
		if w.Requests+w.Failed >= want || !time.Now().Before(end) {
			d.window = nil
			d.mu.Unlock()
			return w
		}
		d.mu.Unlock()
	}
}

// Stop sends no more requests, waits for the answers to those in flight, and returns the tally of all since Drive.
func (d *Driver) Stop() Tally {
	d.mu.Lock()
	if !d.stopped() {
		close(d.quit)
	}
	d.mu.Unlock()
	d.wg.Wait()
	d.client.CloseIdleConnections()
	return d.all
}

// Pool hands out requests that were made before the clock started. Not safe for concurrent use.
type Pool struct {
	Make  func() (Request, error)
	ready []Request
}

// Fill makes requests until n are ready.
func (p *Pool) Fill(n int) error {
	for len(p.ready) < n {
		r, err := p.Make()
		if err != nil {
			return err
		}
		p.ready = append(p.ready, r)
	}
	return nil
}

// Next takes the one that was made first; where none is ready, it makes one (some 100 microseconds of the client's time). Errors of Make are those of the
// tokenizer on the corpus, which Fill would have had too: an empty request then fails at the server.
func (p *Pool) Next() Request {
	if len(p.ready) == 0 {
		r, err := p.Make()
		if err != nil {
			return Request{Path: "/"}
		}
		return r
	}
	r := p.ready[0]
	p.ready = p.ready[1:]
	return r
}
