package benchmarks

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// transport answers in the bubble's time, without connections.
type transport func(r *http.Request) (status int, body string)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body.Close()
	status, body := f(r)
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func oneItem() Request {
	return Request{Path: "/x", Body: []byte("{}"), Items: 2, Tokens: 30, Mark: []byte("score")}
}

func TestClosedLoopKeepsItsClientsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, most atomic.Int64
		d := Drive("http://server", Load{Clients: 4, Transport: transport(func(*http.Request) (int, string) {
			most.Store(max(most.Load(), inFlight.Add(1)))
			time.Sleep(100 * time.Millisecond)
			inFlight.Add(-1)
			return 200, "score score"
		})}, oneItem)
		time.Sleep(250 * time.Millisecond) // the window's borders are then no answer's moment
		w := d.Measure(time.Second, 1)
		all := d.Stop()
		if w.Requests != 40 || w.Items != 80 || w.Tokens != 1200 || w.Failed != 0 {
			t.Errorf("in a second of 4 clients at 100 ms: %+v; want 40 requests, 80 items, 1,200 tokens", w)
		}
		if p50, p99 := w.Latency.ValueAtQuantile(50), w.Latency.ValueAtQuantile(99); p50/1000 != 100 || p99/1000 != 100 {
			t.Errorf("latency p50 %d and p99 %d µs, want 100,000", p50, p99)
		}
		if all.Requests != 52 { // until 1.25 s, and those in flight then
			t.Errorf("%d requests in all, want 52", all.Requests)
		}
		if most.Load() != 4 {
			t.Errorf("%d requests in flight, want 4", most.Load())
		}
	})
}

func TestMeasureWaitsForEnoughAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Drive("http://server", Load{Clients: 1, Transport: transport(func(*http.Request) (int, string) {
			time.Sleep(time.Second)
			return 200, "score score"
		})}, oneItem)
		if w := d.Measure(500*time.Millisecond, 3); w.Requests < 3 {
			t.Errorf("%d answers, want 3", w.Requests)
		}
		began := time.Now()
		if w := d.Measure(100*time.Millisecond, 3); w.Requests != 1 || time.Since(began) > 2*time.Second {
			t.Errorf("%d answers in %s; it ought to give up after ten times 100 ms", w.Requests, time.Since(began))
		}
		d.Stop()
	})
}

func TestOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, stall, long = 100, time.Second, 4 * time.Second
		began := time.Now()
		var arrived atomic.Int64
		d := Drive("http://server", Load{Rate: rate, Seed: 5, Transport: transport(func(*http.Request) (int, string) {
			arrived.Add(1)
			if since := time.Since(began); since < stall { // nothing is answered in the first second
				time.Sleep(stall - since)
			}
			return 200, "score score"
		})}, oneItem)
		time.Sleep(stall - time.Nanosecond)
		synctest.Wait()
		if n := arrived.Load(); n < 70 || n > 130 { // three standard deviations of a Poisson process
			t.Errorf("%d requests arrived in a second that nothing was answered in, want about %d", n, rate)
		}
		time.Sleep(long - stall)
		all := d.Stop()
		if n := all.Requests; n < 340 || n > 460 {
			t.Errorf("%d requests in %s, want about 400", n, long)
		}
		if worst := time.Duration(all.Latency.Max()) * time.Microsecond; worst < 900*time.Millisecond {
			t.Errorf("the longest latency is %s: the stall of %s is not in it", worst, stall)
		}
	})
}

func TestFailedRequestsAreCountedApart(t *testing.T) {
	for name, f := range map[string]func() (int, string){
		"status":       func() (int, string) { return 429, "queue full" },
		"item missing": func() (int, string) { return 200, "score" },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			d := Drive("http://server", Load{Clients: 1, Transport: transport(func(*http.Request) (int, string) {
				time.Sleep(time.Second)
				if n++; n > 1 {
					return f()
				}
				return 200, "score score"
			})}, oneItem)
			time.Sleep(2500 * time.Millisecond)
			all := d.Stop()
			if all.Requests != 1 || all.Failed != 2 || (all.Refused == 2) != (name == "status") || all.Tokens != 30 || all.FirstError == nil || all.Latency.TotalCount() != 1 {
				t.Errorf("%s: %+v, want 1 answer and 2 failures with an error", name, all)
			}
		})
	}
}

func TestDriverGivesUpOnAServerThatIsGone(t *testing.T) {
	d := Drive("http://127.0.0.1:1", Load{Clients: 3}, oneItem)
	d.wg.Wait() // by itself
	if all := d.Stop(); all.Failed < 100 || all.Failed > 110 {
		t.Errorf("%d failed requests, want little more than 100", all.Failed)
	}
}

func TestTalliesAddUp(t *testing.T) {
	a, b := newTally(), newTally()
	r := oneItem()
	a.record(&r, time.Millisecond, nil)
	b.record(&r, 3*time.Millisecond, nil)
	b.record(&r, time.Hour, fmt.Errorf("gone"))
	a.Add(b)
	if a.Requests != 2 || a.Failed != 1 || a.Tokens != 60 || a.Items != 4 || a.FirstError == nil || a.Latency.TotalCount() != 2 {
		t.Errorf("%+v", a)
	}
}

func TestPoolHandsOutWhatIsReadyFirst(t *testing.T) {
	made := 0
	p := Pool{Make: func() (Request, error) { made++; return Request{Tokens: made}, nil }}
	if err := p.Fill(3); err != nil || made != 3 {
		t.Fatalf("%d made, %v", made, err)
	}
	seen := map[int]bool{}
	for range 5 {
		seen[p.Next().Tokens] = true
	}
	if len(seen) != 5 || made != 5 {
		t.Errorf("of 5 requests %d differ, and %d were made", len(seen), made)
	}
}

// A closed loop does not ask for refusals as fast as it can: it waits as long as it is told to, though not for ever.
func TestAClientOfAClosedLoopWaitsAfterARefusal(t *testing.T) {
	for after, want := range map[string]time.Duration{"": backOff, "1": time.Second, "3600": mostBackOff, "soon": backOff} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			d := Drive("http://server", Load{Clients: 1, Transport: retryAfter{transport(func(*http.Request) (int, string) {
				at = append(at, time.Now())
				return 429, "queue full"
			}), after}}, oneItem)
			time.Sleep(2500 * time.Millisecond)
			all := d.Stop()
			if all.Refused != all.Failed || all.Refused != len(at) || len(at) < 2 {
				t.Fatalf("%+v of %d requests", all, len(at))
			}
			if got := at[len(at)-1].Sub(at[len(at)-2]); got != want {
				t.Errorf("Retry-After %q: came back after %v, want %v", after, got, want)
			}
		})
	}
}

// retryAfter puts a header on answers.
type retryAfter struct {
	http.RoundTripper
	seconds string
}

func (r retryAfter) RoundTrip(ask *http.Request) (*http.Response, error) {
	a, err := r.RoundTripper.RoundTrip(ask)
	if err == nil {
		a.Header = http.Header{"Retry-After": {r.seconds}}
	}
	return a, err
}

// The time to look into an answer is the client's, not the server's; and the observer is told of every request, with its kind of failure.
func TestTheObserverIsToldOfEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []Sample
		n := 0
		d := Drive("http://server", Load{Clients: 1, Timeout: 2 * time.Second, Header: http.Header{"X-Api-Key": {"k"}}, Observe: func(x Sample) { seen = append(seen, x) },
			Transport: transport(func(r *http.Request) (int, string) {
				if r.Header.Get("X-API-Key") != "k" || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("headers %v", r.Header)
				}
				time.Sleep(100 * time.Millisecond)
				if n++; n == 2 {
					return 503, "starting"
				}
				return 200, "yes"
			})}, func() Request {
			return Request{Path: "/x", Items: 1, Read: func(b []byte) (Facts, error) {
				time.Sleep(time.Second) // the clock has stopped
				if n == 3 {
					return Facts{}, fmt.Errorf("wrong")
				}
				return Facts{Tokens: 5}, nil
			}}
		})
		time.Sleep(2250 * time.Millisecond) // three and a half requests
		d.Stop()
		if len(seen) < 3 {
			t.Fatalf("%d requests were seen", len(seen))
		}
		for i, want := range []string{"", "status 503", "answer"} {
			x := seen[i]
			var a *AnswerError
			if took := x.Done.Sub(x.Due); took != 100*time.Millisecond {
				t.Errorf("request %d took %v", i, took)
			}
			if errors.As(x.Err, &a) != (want != "") || a != nil && a.Kind != want {
				t.Errorf("request %d: %v, want kind %q", i, x.Err, want)
			}
		}
		if seen[0].Facts.Tokens != 5 || seen[0].Request.Items != 1 {
			t.Errorf("%+v", seen[0])
		}
	})
}
