package inference

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ragate/models"
)

// A model of one stream has one run in flight, however many workers there are, and the others run what there is of other models meanwhile.
// The stub fails the test when two runs share a stream.
func TestAModelOfOneStreamKeepsNobodyElseWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newStubModel(t, models.FormTokens, 3, anyRows)
		slow.perRun = time.Second
		quick := newStubModel(t, models.FormScores, 1, anyRows)
		quick.perRun = 10 * time.Millisecond
		e, m := stubEngine(EngineConfig{MaxBatchTokens: 16, Machine: Machine{CPUs: 3}}, 3, slow, quick)
		m[0].limitStreams(1)
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(slow.streams); n != 1 {
			t.Errorf("the model has %d streams, want 1", n)
		}
		began := time.Now()
		var slowly, quickly time.Duration
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := m[0].Embed(t.Context(), EmbedRequest{Texts: []string{words(0, 9), words(20, 9), words(40, 9), words(60, 9)}}); err != nil {
				t.Error(err)
			}
			slowly = time.Since(began)
		})
		wg.Go(func() {
			time.Sleep(time.Millisecond) // behind the others, in the queue and in who is served least
			docs := make([]string, 20)
			for i := range docs {
				docs[i] = words(7*i, 6)
			}
			if _, err := m[1].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs}); err != nil {
				t.Error(err)
			}
			quickly = time.Since(began)
		})
		wg.Wait()
		if slowly != 4*time.Second {
			t.Errorf("four runs of a second on one stream took %v", slowly)
		}
		if want := time.Millisecond + 10*10*time.Millisecond; quickly != want {
			t.Errorf("twenty runs of 10 ms on the two workers that are left took %v, want %v", quickly, want)
		}
		if rate := e.sched.rateOf(0); rate > 2*e.sched.queues[0].rate {
			t.Errorf("the rate of the model's one stream is %v, of the model %v", e.sched.queues[0].rate, rate)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A stream that becomes free is used although the worker that used it takes other rows: nobody was woken for those that waited for it.
func TestAFreedStreamIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := newStubModel(t, models.FormTokens, 3, anyRows)
		limited.perRun = 100 * time.Millisecond
		other := newStubModel(t, models.FormScores, 1, anyRows)
		other.perRun = time.Second
		e, m := stubEngine(EngineConfig{MaxBatchTokens: 16, Machine: Machine{CPUs: 2}}, 2, limited, other)
		m[0].limitStreams(1)
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		began := time.Now()
		var took time.Duration
		wg.Go(func() {
			if _, err := m[0].Embed(t.Context(), EmbedRequest{Texts: []string{words(0, 9), words(20, 9)}, Client: "a"}); err != nil {
				t.Error(err)
			}
			took = time.Since(began)
		})
		wg.Go(func() {
			time.Sleep(99 * time.Millisecond)
			if _, err := m[1].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{words(3, 6), words(9, 6)}, Client: "b"}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if took > 1300*time.Millisecond {
			t.Errorf("two runs of 100 ms, beside runs of a second on the other worker, took %v", took)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Names are one model's each.
func TestNamesAreOneModels(t *testing.T) {
	e, _ := stubEngine(EngineConfig{}, 1, newStubModel(t, models.FormTokens, 3, anyRows))
	e.cores[0].info.Aliases = []string{"other"}
	for _, names := range [][]string{{"stub/0"}, {"x", "other"}} {
		var twice *DuplicateNameError
		if err := e.checkNames(names, "org/x"); !errors.As(err, &twice) || !slices.Contains(names, twice.Name) {
			t.Errorf("%q: %v", names, err)
		}
	}
	if err := e.checkNames([]string{"x"}, "org/x"); err != nil {
		t.Error(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
