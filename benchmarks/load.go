package benchmarks

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
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
}

// openIdle is how many connections an open loop keeps: a server that falls behind has many requests in flight.
const openIdle = 256

// Latencies are kept in microseconds, to three digits, up to ten minutes.
const (
	maxLatency    = 10 * time.Minute
	latencyDigits = 3
)

// Tally counts answered requests.
type Tally struct {
	Requests   int
	Failed     int // not among Requests
	FirstError error
	Items      int
	Tokens     int
	Latency    *hdrhistogram.Histogram // microseconds
}

func newTally() Tally {
	return Tally{Latency: hdrhistogram.New(1, maxLatency.Microseconds(), latencyDigits)}
}

// Add puts another tally of the same kind of load in.
func (t *Tally) Add(o Tally) {
	t.Requests += o.Requests
	t.Failed += o.Failed
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
		if t.FirstError == nil {
			t.FirstError = err
		}
		return
	}
	t.Requests++
	t.Items += r.Items
	t.Tokens += r.Tokens
	t.Latency.RecordValue(min(took, maxLatency).Microseconds())
}

// Driver sends requests from Drive to Stop. Its goroutines are its own.
type Driver struct {
	url    string
	client *http.Client
	quit   chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	next   func() Request
	all    Tally
	window *Tally // nil while nothing is measured
}

// Drive begins to send what next gives to the server at url ("http://host:port"). next is never called twice at once; what it takes is
// the driver's delay, so it had better hand out requests that are ready.
func Drive(url string, load Load, next func() Request) *Driver {
	n := max(load.Clients, 1)
	if load.Transport == nil {
		idle := n
		if load.Rate > 0 {
			idle = openIdle
		}
		load.Transport = &http.Transport{MaxIdleConns: idle, MaxIdleConnsPerHost: idle, DisableCompression: true}
	}
	d := &Driver{url: url, next: next, all: newTally(), quit: make(chan struct{}), client: &http.Client{Transport: load.Transport}}
	if load.Rate > 0 {
		d.wg.Go(func() { d.open(load) })
		return d
	}
	for range n {
		d.wg.Go(func() {
			var buf bytes.Buffer
			for !d.stopped() {
				r := d.take()
				d.send(r, time.Now(), &buf)
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

// send sends one request and counts its answer. due is when its time began.
func (d *Driver) send(r Request, due time.Time, buf *bytes.Buffer) {
	err := func() error {
		answer, err := d.client.Post(d.url+r.Path, "application/json", bytes.NewReader(r.Body))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		buf.Reset()
		if _, err := io.Copy(buf, answer.Body); err != nil {
			return err
		}
		return r.check(answer.StatusCode, buf.Bytes())
	}()
	took := time.Since(due)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all.record(&r, took, err)
	if d.window != nil {
		d.window.record(&r, took, err)
	}
	if err != nil && d.all.Failed > 100 && !d.stopped() {
		close(d.quit) // a server that is gone would be asked as fast as the machine can
	}
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

// Next takes one; where none is ready, it makes one (some 100 microseconds of the client's time). Errors of Make are those of the
// tokenizer on the corpus, which Fill would have had too: an empty request then fails at the server.
func (p *Pool) Next() Request {
	if len(p.ready) == 0 {
		r, err := p.Make()
		if err != nil {
			return Request{Path: "/"}
		}
		return r
	}
	r := p.ready[len(p.ready)-1]
	p.ready = p.ready[:len(p.ready)-1]
	return r
}
