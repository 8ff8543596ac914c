// Command overload measures what a server does with more than it can do, over HTTP, with clients that come back when Retry-After tells them to:
// how much of its capacity it goes on to answer with, how many of those that come back get in, and what a client sees of another that floods. It
// prints a table and writes the figures as JSON. It fails when something could not be measured or an answer is wrong, and never
// because of a figure.
//
//	overload --ragate bin/ragate --data-dir .ragate [--out FILE] [--rounds N]
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"ragate/benchmarks"
	"ragate/benchmarks/program"
	"ragate/inference/ort"
	"ragate/models"
)

const (
	maxQueued     = 32_768 // tokens: a few seconds of work, so that a short run fills it
	closed        = 16     // clients of the closed loop that finds the capacity
	times         = 4      // of the capacity is what comes
	maxTries      = 5
	mostPerSecond = 1000 // requests that the closed loop may get answered
	lightRate     = 4    // requests a second of the client beside the flood
	warm          = 2 * time.Second
	capacityIn    = 6 * time.Second
	overloadIn    = 12 * time.Second
	lightIn       = 8 * time.Second

	floodKey, lightKey = "flood-key-0123456789abcdef", "light-key-0123456789abcdef"
)

var workload = benchmarks.Rerank4x64

func main() {
	f := program.Flags{Seed: 20240609, Rounds: 1}
	program.Main("overload", "overload.json", &f, func(ctx context.Context) error { return run(ctx, f) })
}

func run(ctx context.Context, given program.Flags) (err error) {
	dir, err := filepath.Abs(given.DataDir)
	if err != nil {
		return err
	}
	store := &models.Store{Dir: dir}
	version, err := runtimeVersion(store)
	if err != nil {
		return err
	}
	texts, encoder, err := benchmarks.OpenTexts(ctx, store, given.Seed)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "overload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	server, err := benchmarks.StartServer(ctx, benchmarks.ServerConfig{Program: given.Program, Log: filepath.Join(tmp, "log"), Key: lightKey,
		Args: []string{"--data-dir", dir, "--max-queued-tokens", strconv.Itoa(maxQueued), "--api-key", "flood:" + floodKey + ",light:" + lightKey}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	report := benchmarks.NewReport(given.Seed)
	report.Version, report.Runtime, report.Models = server.Info.Version, version, server.Info.Models
	report.Settings = map[string]any{"rounds": given.Rounds, "max_queued_tokens": maxQueued, "closed_loop_clients": closed, "times_capacity": times,
		"most_tries": maxTries, "overload_seconds": overloadIn.Seconds(), "light_requests_per_second": lightRate, "workload": workload.Name}
	b := &bench{url: server.URL, seed: given.Seed, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}},
		make: func() (benchmarks.Request, error) {
			return benchmarks.Dialect(benchmarks.Ragate).Request(encoder, workload.Write(texts))
		}}
	defer b.client.CloseIdleConnections()

	var f figures
	for range given.Rounds {
		if err := b.round(ctx, &f); err != nil {
			return err
		}
	}
	section := fmt.Sprintf("%d times capacity, clients that honour Retry-After, %s", times, workload.Name)
	report.Add(section, "capacity, closed loop", "tokens/s", "", f.capacity)
	report.Add(section, "answered", "tokens/s", "", f.goodput)
	report.Add(section, "answered : capacity", "", ">= 0.9", f.ratio)
	report.Add(section, "retries that were admitted, of those after Retry-After", "", ">= 0.9", f.redeemed)
	report.Add(section, "retries", "", "", f.retries)
	report.Add(section, "longest Retry-After", "s", "", f.longest)
	report.Add(section, "requests answered in the end, of those that came", "", "", f.answered)
	section = fmt.Sprintf("a client of %d requests a second beside a key that floods at %d times capacity", lightRate, times)
	report.Add(section, "median, unloaded", "ms", "", f.aloneP50)
	report.Add(section, "99th percentile, unloaded", "ms", "", f.aloneP99)
	report.Add(section, "median, beside the flood", "ms", "", f.besideP50)
	report.Add(section, "99th percentile, beside the flood", "ms", "", f.besideP99)
	report.Add(section, "its requests that were answered at the first try", "", ">= 0.99", f.besideOK)
	report.Add(section, "the flood's tries that were refused", "", "", f.floodRefused)
	if err := report.Print(os.Stdout); err != nil {
		return err
	}
	return report.Write(given.Out)
}

// runtimeVersion asks the library that the server will load.
func runtimeVersion(store *models.Store) (string, error) {
	lib, err := store.RuntimeLibrary()
	if err != nil {
		return "", err
	}
	rt, err := ort.Open(lib)
	if err != nil {
		return "", err
	}
	return rt.Version(), rt.Close()
}

type figures struct {
	capacity, goodput, ratio, redeemed, retries, longest, answered   []float64
	aloneP50, aloneP99, besideP50, besideP99, besideOK, floodRefused []float64
}

type bench struct {
	url    string
	make   func() (benchmarks.Request, error)
	seed   uint64
	client *http.Client
}

func (b *bench) round(ctx context.Context, f *figures) error {
	capacity, requests, err := b.capacity()
	if err != nil {
		return err
	}
	over := stream{key: floodKey, rate: times * requests, tries: maxTries, span: overloadIn}
	light := stream{key: lightKey, rate: lightRate, tries: 1, span: lightIn}
	flood := stream{key: floodKey, rate: times * requests, tries: 1, span: warm + lightIn}
	var ready [4][]benchmarks.Request
	for i, s := range []stream{over, light, light, flood} {
		if ready[i], err = b.ready(s); err != nil {
			return err
		}
	}
	got, err := b.open(ctx, over, ready[0])
	if err != nil {
		return err
	}
	goodput := got.tokensBetween(warm, overloadIn)
	f.capacity, f.goodput, f.ratio = append(f.capacity, capacity), append(f.goodput, goodput), append(f.ratio, goodput/capacity)
	f.redeemed, f.retries = append(f.redeemed, float64(got.redeemed)/float64(got.retries)), append(f.retries, float64(got.retries))
	f.longest, f.answered = append(f.longest, got.longest.Seconds()), append(f.answered, float64(len(got.answers))/float64(got.came))

	alone, err := b.open(ctx, light, ready[1])
	if err != nil {
		return err
	}
	var flooded *tally
	ended := make(chan error, 1)
	go func() {
		var err error
		flooded, err = b.open(ctx, flood, ready[3])
		ended <- err
	}()
	time.Sleep(warm) // the flood fills its part
	beside, err := b.open(ctx, light, ready[2])
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	f.aloneP50, f.aloneP99 = append(f.aloneP50, alone.took(0.5)), append(f.aloneP99, alone.took(0.99))
	f.besideP50, f.besideP99 = append(f.besideP50, beside.took(0.5)), append(f.besideP99, beside.took(0.99))
	f.besideOK = append(f.besideOK, float64(len(beside.answers))/float64(beside.came))
	f.floodRefused = append(f.floodRefused, float64(flooded.refused)/float64(flooded.came))
	return nil
}

// capacity is what a closed loop gets answered, in tokens and requests per second.
func (b *bench) capacity() (tokens, requests float64, err error) {
	t := &tally{}
	ready, err := b.ready(stream{rate: mostPerSecond, span: warm + capacityIn})
	if err != nil {
		return 0, 0, err
	}
	pool := make(chan benchmarks.Request, len(ready))
	for _, r := range ready {
		pool <- r
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for range closed {
		wg.Go(func() {
			for time.Since(begun) < warm+capacityIn && t.firstError() == nil {
				select {
				case r := <-pool:
					b.send(t, begun, stream{key: floodKey, tries: 1}, r)
				default:
					t.mu.Lock()
					t.err = errors.New("more requests were answered than had been made: raise mostPerSecond")
					t.mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for _, a := range t.answers {
		if a.at >= warm && a.at < warm+capacityIn {
			n++
		}
	}
	if t.refused > 0 || n == 0 {
		t.err = errors.Join(t.err, fmt.Errorf("a closed loop of %d clients was refused %d times, and got %d answers", closed, t.refused, n))
	}
	return t.tokensBetween(warm, warm+capacityIn), float64(n) / capacityIn.Seconds(), t.err
}

// stream is how requests of one client come: at a rate, at exponentially distributed distances, whatever becomes of earlier ones.
type stream struct {
	key   string
	rate  float64
	tries int // for each, with the waits that Retry-After asks for in between
	span  time.Duration
}

type answer struct {
	at, took time.Duration // since the stream began; since the request came
	tokens   int
}

// tally is what became of a stream.
type tally struct {
	mu                sync.Mutex
	came, refused     int
	retries, redeemed int // tries after a wait, and those of them that were admitted
	longest           time.Duration
	answers           []answer
	err               error // the first that was no refusal
}

func (t *tally) firstError() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// tokensBetween is the rate of tokens that were answered in that time.
func (t *tally) tokensBetween(from, to time.Duration) float64 {
	n := 0
	for _, a := range t.answers {
		if a.at >= from && a.at < to {
			n += a.tokens
		}
	}
	return float64(n) / (to - from).Seconds()
}

// took is a quantile of the answers' times in ms, of which there are some.
func (t *tally) took(q float64) float64 {
	var all []float64
	for _, a := range t.answers {
		all = append(all, a.took.Seconds()*1e3)
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1)+0.5)]
}

// open sends the requests of a stream, which are ready before the clock runs, and waits for the last of them.
func (b *bench) open(ctx context.Context, s stream, ready []benchmarks.Request) (*tally, error) {
	t := &tally{}
	rng := rand.New(rand.NewPCG(b.seed, uint64(len(ready))))
	begun := time.Now()
	due := begun
	var wg sync.WaitGroup
	for _, r := range ready {
		due = due.Add(time.Duration(rng.ExpFloat64() / s.rate * float64(time.Second)))
		if due.Sub(begun) >= s.span || t.firstError() != nil {
			break
		}
		select {
		case <-ctx.Done():
			return t, context.Cause(ctx)
		case <-time.After(time.Until(due)):
		}
		t.mu.Lock()
		t.came++
		t.mu.Unlock()
		wg.Go(func() { b.send(t, begun, s, r) })
	}
	wg.Wait()
	if t.err == nil && len(t.answers) == 0 {
		t.err = errors.New("nothing was answered")
	}
	return t, t.err
}

// ready makes enough requests for a stream.
func (b *bench) ready(s stream) ([]benchmarks.Request, error) {
	out := make([]benchmarks.Request, int(1.2*s.rate*s.span.Seconds())+20)
	for i := range out {
		var err error
		if out[i], err = b.make(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (b *bench) send(t *tally, begun time.Time, s stream, r benchmarks.Request) {
	came := time.Now()
	for try := 1; ; try++ {
		status, after, body, err := b.post(s.key, r)
		refused := err == nil && status == http.StatusTooManyRequests
		if err == nil && !refused {
			if n := bytes.Count(body, r.Mark); status != http.StatusOK || n != r.Items {
				err = fmt.Errorf("%s: status %d, %d of %d items: %.300s", r.Path, status, n, r.Items, body)
			}
		}
		if refused && after <= 0 {
			err = fmt.Errorf("%s: refused without Retry-After: %.300s", r.Path, body)
		}
		t.mu.Lock()
		if try > 1 {
			t.retries++
			if err == nil && !refused {
				t.redeemed++
			}
		}
		switch {
		case err != nil:
			if t.err == nil {
				t.err = err
			}
		case refused:
			t.refused++
			t.longest = max(t.longest, after)
		default:
			t.answers = append(t.answers, answer{time.Since(begun), time.Since(came), r.Tokens})
		}
		t.mu.Unlock()
		if !refused || err != nil || try == s.tries {
			return
		}
		time.Sleep(after)
	}
}

func (b *bench) post(key string, r benchmarks.Request) (status int, after time.Duration, body []byte, err error) {
	ask, err := http.NewRequest(http.MethodPost, b.url+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return 0, 0, nil, err
	}
	ask.Header.Set("Content-Type", "application/json")
	ask.Header.Set("Authorization", "Bearer "+key)
	got, err := b.client.Do(ask)
	if err != nil {
		return 0, 0, nil, err
	}
	defer got.Body.Close()
	body, err = io.ReadAll(got.Body)
	seconds, _ := strconv.Atoi(got.Header.Get("Retry-After")) // absent or no number: 0, which the caller refuses
	return got.StatusCode, time.Duration(seconds) * time.Second, body, err
}
