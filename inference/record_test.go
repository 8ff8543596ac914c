package inference

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ragate/models"
)

// A record has the times of a call as they were, and the batches that its rows shared with others.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun = 10 * time.Millisecond
		e, ms := started(t, EngineConfig{MaxBatchTokens: 64, MaxQueuedTokens: 200}, 1, m) // 4 rows of 16 padded tokens a batch
		defer closeNow(t, e)
		began := time.Now()
		var g sync.WaitGroup
		ask := func(delay time.Duration, ctx context.Context, docs ...string) *Record {
			r := &Record{}
			g.Go(func() {
				time.Sleep(delay)
				ms[0].Rerank(WithRecord(ctx, r), RerankRequest{Query: "w1", Documents: docs})
			})
			return r
		}
		long := make([]string, 60)
		for i := range long {
			long[i] = "w9"
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Millisecond, errors.New("left"))
		defer cancel()
		first := ask(0, t.Context(), "w2", "w3", "w4", "w5", "w6", "w7")                   // 4 rows, then 2
		second := ask(time.Millisecond, t.Context(), "w8")                                 // shares the second batch
		gone := ask(2*time.Millisecond, ctx, "w9")                                         // leaves before its turn
		refused := ask(2*time.Millisecond, t.Context(), long...)                           // more than the queue holds
		other := ask(2*time.Millisecond, WithRecord(t.Context(), &Record{}), words(0, 30)) // alone, as it is longer
		g.Wait()
		ms5 := func(n int) time.Time { return began.Add(time.Duration(n) * time.Millisecond) }
		one := func(name string, r *Record) Call {
			calls := r.Calls()
			if len(calls) != 1 {
				t.Fatalf("%s: %d calls", name, len(calls))
			}
			return calls[0]
		}
		c := one("first", first)
		want := Call{Model: "stub/0", Kind: KindReranker, Began: ms5(0), Submitted: ms5(0), FirstTaken: ms5(0), LastTaken: ms5(10), Done: ms5(20),
			Items: 6, Rows: 6, Tokens: 30, PaddedTokens: 96, Batches: 2, Batch: Batch{ID: 2, Rows: 3, Tokens: 15, PaddedTokens: 48}}
		if c != want {
			t.Errorf("first: %+v\nwant   %+v", c, want)
		}
		c = one("second", second)
		want = Call{Model: "stub/0", Kind: KindReranker, Began: ms5(1), Submitted: ms5(1), FirstTaken: ms5(10), LastTaken: ms5(10), Done: ms5(20),
			Items: 1, Rows: 1, Tokens: 5, PaddedTokens: 16, Batches: 1, Batch: Batch{ID: 2, Rows: 3, Tokens: 15, PaddedTokens: 48}}
		if c != want {
			t.Errorf("second: %+v\nwant    %+v", c, want)
		}
		if c = one("gone", gone); c.Err == nil || c.Err.Error() != "left" || c.Submitted != ms5(2) || !c.FirstTaken.IsZero() || c.Done != ms5(3) || c.Batches != 0 {
			t.Errorf("gone: %+v", c)
		}
		var over *OverloadedError
		if c = one("refused", refused); !errors.As(c.Err, &over) || !c.Submitted.IsZero() || c.Rows != 0 || c.Items != 60 || c.Done != ms5(2) {
			t.Errorf("refused: %+v", c)
		}
		if c = one("other", other); c.Err != nil || c.Batch.ID != 3 || c.Batch.Rows != 1 || c.FirstTaken != ms5(20) || c.Done != ms5(30) {
			t.Errorf("other: %+v", c)
		}
		if st := e.Stats(); st.Workers != 1 || st.Busy != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// The workers' gauge follows what runs.
func TestBusyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, anyRows)
		m.perRun = 10 * time.Millisecond
		e, ms := started(t, EngineConfig{}, 3, m)
		defer closeNow(t, e)
		var g sync.WaitGroup
		for range 2 {
			g.Go(func() { ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: []string{"w2"}}) })
			synctest.Wait()
		}
		if st := e.Stats(); st.Workers != 3 || st.Busy != 2 {
			t.Errorf("%+v, want 2 of 3 workers busy", st)
		}
		g.Wait()
	})
}

// Without a record a call allocates what it did before there were any.
func TestNoRecordCostsNothing(t *testing.T) {
	ctx := context.WithValue(t.Context(), struct{ int }{1}, 1)
	if n := testing.AllocsPerRun(1000, func() {
		if RecordOf(ctx) != nil {
			t.Error("there is a record")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
