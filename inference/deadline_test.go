package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/tokenize"
)

// perTokenReranker is a started engine of so many workers, whose reranker takes 1 ms a padded token and knows its rate where known is set.
func perTokenReranker(t *testing.T, workers int, known bool, cfg EngineConfig) (*Engine, *Model, *stubModel) {
	t.Helper()
	m := newStubModel(t, models.FormScores, 1, anyRows)
	m.perToken = time.Millisecond
	e, ms := started(t, cfg, workers, m)
	if known {
		e.sched.mu.Lock()
		e.sched.queues[0].rate, e.sched.queues[0].measured = 1000, time.Now()
		e.sched.mu.Unlock()
	}
	return e, ms[0], m
}

// sixteens are n documents, each of which is 16 tokens together with the query "w1".
func sixteens(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = words(from+20*i, 12)
	}
	return out
}

// auditIdle says what an engine without work still counts.
func auditIdle(t *testing.T, e *Engine) {
	t.Helper()
	e.sched.mu.Lock()
	defer e.sched.mu.Unlock()
	if err := e.sched.audit(); err != nil {
		t.Error(err)
	}
	if s := e.sched; s.rows != [2]int{} || s.waiting != 0 || s.inflight != 0 {
		t.Errorf("%v rows of %d tokens wait and %d batches run, with nothing asked", s.rows, s.waiting, s.inflight)
	}
}

func scoredAs(t *testing.T, query string, docs []string, got *Scores) {
	t.Helper()
	if len(got.Logits) != len(docs) {
		t.Fatalf("%d logits for %d documents", len(got.Logits), len(docs))
	}
	for i, d := range docs {
		want := stubLogit(pair(ids(query), ids(d)))
		if slices.Contains(got.Unscored, i) {
			want = float32(math.NaN())
		}
		if g := got.Logits[i]; g != want && !(g != g && want != want) {
			t.Errorf("document %d: logit %v, want %v", i, g, want)
		}
	}
	if !slices.IsSorted(got.Unscored) || len(slices.Compact(slices.Clone(got.Unscored))) != len(got.Unscored) {
		t.Errorf("unscored %v is not ascending, or lists one twice", got.Unscored)
	}
}

func TestWhatWouldBeLateIsNotRun(t *testing.T) {
	for _, workers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			// 20 ms slices of 1,000 tokens/s are under the least batch of 64 tokens, so four rows are a batch of 64 ms.
			e, m, stub := perTokenReranker(t, workers, true, EngineConfig{})
			defer closeNow(t, e)
			docs := sixteens(0, 30)
			began := time.Now()
			got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(100 * time.Millisecond)})
			if err != nil {
				t.Fatal(err)
			}
			scoredAs(t, "w1", docs, got)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("%d workers: answered after %v, and the rate was right", workers, took)
			}
			// 100 ms hold six rows of 16 ms a worker, whatever the batches.
			want := workers * 6
			if scored := len(docs) - len(got.Unscored); scored != want {
				t.Errorf("%d workers: %d documents were scored, want %d", workers, scored, want)
			}
			for k, i := range got.Unscored {
				if i != want+k {
					t.Errorf("%d workers: documents %v are unscored, not the last ones", workers, got.Unscored)
					break
				}
			}
			time.Sleep(time.Second)
			if stub.calls == 0 || len(stub.ran) != 1 { // all rows begin with [CLS]
				t.Errorf("%d runs", stub.calls)
			}
			auditIdle(t, e)
		})
	}
}

// What a batch takes along has its opener's length: a later document is scored before an earlier one only then.
func TestOrderOfImportanceWithUnlikeLengths(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 31))
			e, m, _ := perTokenReranker(t, 1, true, EngineConfig{MaxBatchTokens: 64 + r.IntN(200)})
			defer closeNow(t, e)
			var docs []string
			for i := range 20 {
				docs = append(docs, words(50*i, 1+r.IntN(100)))
			}
			began := time.Now()
			budget := time.Duration(50+r.IntN(600)) * time.Millisecond
			got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(budget)})
			if err != nil {
				t.Fatal(err)
			}
			scoredAs(t, "w1", docs, got)
			took := time.Since(began)
			if took > budget {
				t.Errorf("seed %d: answered after %v of %v", seed, took, budget)
			}
			// The first document that is unscored would not have fitted behind what ran.
			if len(got.Unscored) > 0 {
				first := anyRows.cols(len(ids(docs[got.Unscored[0]])) + 4)
				if left := budget - took; time.Duration(first)*time.Millisecond <= left {
					t.Errorf("seed %d: document %d of %d padded tokens is unscored with %v left", seed, got.Unscored[0], first, left)
				}
			}
			auditIdle(t, e)
		})
	}
}

// With a rate that is unknown or far too high, the answer waits for the batch that runs and for nothing else.
func TestTheAnswerWaitsForTheRunningBatchOnly(t *testing.T) {
	for _, rate := range []float64{0, 1e9} {
		synctest.Test(t, func(t *testing.T) {
			e, m, stub := perTokenReranker(t, 1, false, EngineConfig{MaxBatchTokens: 64})
			defer closeNow(t, e)
			e.sched.queues[0].rate = rate
			docs := sixteens(0, 12)
			began := time.Now()
			got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(10 * time.Millisecond)})
			if err != nil {
				t.Fatal(err)
			}
			scoredAs(t, "w1", docs, got)
			if took := time.Since(began); took != 64*time.Millisecond {
				t.Errorf("rate %v: answered after %v, the running batch took 64 ms", rate, took)
			}
			if len(got.Unscored) != 8 || stub.begun() != 1 {
				t.Errorf("rate %v: unscored %v after %d runs, want the last eight after one", rate, got.Unscored, stub.begun())
			}
			auditIdle(t, e)
		})
	}
}

func TestADeadlineThatHasPassedScoresNothing(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			e, m, stub := perTokenReranker(t, 1, known, EngineConfig{})
			defer closeNow(t, e)
			for _, windows := range []bool{false, true} {
				docs := sixteens(0, 5)
				began := time.Now()
				got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began, Measure: true, Windows: windows})
				if err != nil {
					t.Fatal(err)
				}
				scoredAs(t, "w1", docs, got)
				if len(got.Unscored) != 5 || len(got.Documents) != 5 || stub.begun() != 0 || !time.Now().Equal(began) {
					t.Errorf("unscored %v, %d runs, after %v", got.Unscored, stub.begun(), time.Since(began))
				}
			}
			auditIdle(t, e)
		})
	}
}

// A request that waits behind others for its turn to tokenise answers at its deadline, too.
func TestADeadlineEndsTheWaitForTheTokenizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, stub := perTokenReranker(t, 1, true, EngineConfig{Machine: Machine{CPUs: 1}})
		defer closeNow(t, e)
		if err := e.tokenise.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		defer e.tokenise.Release(1)
		began := time.Now()
		got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: sixteens(0, 3), Deadline: began.Add(30 * time.Millisecond)})
		if err != nil || !slices.Equal(got.Unscored, []int{0, 1, 2}) || len(got.Logits) != 3 || stub.begun() != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		if took := time.Since(began); took != 30*time.Millisecond {
			t.Errorf("answered after %v, want 30 ms", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := m.Rerank(ctx, RerankRequest{Query: "w1", Documents: sixteens(0, 3), Deadline: time.Now().Add(time.Minute)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that ends first: %v", err)
		}
	})
}

// Reading a megabyte takes longer than any budget; only what could be scored is read.
func TestTextsThatCannotBeScoredInTimeAreNotRead(t *testing.T) {
	m := newStubModel(t, models.FormScores, 1, anyRows)
	e, ms := started(t, EngineConfig{}, 1, m)
	defer closeNow(t, e)
	e.sched.queues[0].rate = 100 // tokens/s: two documents of 512 tokens are more than can be scored in ten seconds
	docs := slices.Repeat([]string{words(0, 600)}, 50)
	got, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: time.Now().Add(10 * time.Second), Measure: true})
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for i, d := range got.Documents {
		if d.Tokens > 0 {
			read++
		} else if !slices.Contains(got.Unscored, i) {
			t.Errorf("document %d was scored unread", i)
		}
	}
	if read < 2 || read > 5 {
		t.Errorf("%d documents were read, of which 20 s at 100 tokens/s hold four", read)
	}
	if len(got.Logits) != len(docs) {
		t.Errorf("%d logits", len(got.Logits))
	}
}

func TestWhatWaitsBehindOthersExpiresAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, stub := perTokenReranker(t, 1, true, EngineConfig{MaxBatchTokens: 160})
		defer closeNow(t, e)
		var g sync.WaitGroup
		slow := sixteens(0, 10)
		g.Go(func() {
			got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: slow})
			if err != nil || len(got.Unscored) > 0 {
				t.Errorf("without a deadline: %+v, %v", got, err)
				return
			}
			scoredAs(t, "w1", slow, got)
		})
		synctest.Wait() // it runs, for 160 ms
		began := time.Now()
		docs := sixteens(500, 7)
		got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(50 * time.Millisecond)})
		if err != nil || len(got.Unscored) != 7 {
			t.Errorf("got %+v, %v", got, err)
		}
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("answered after %v, want 50 ms: none of its rows ran", took)
		}
		if st := e.Stats(); st.QueuedRows != 0 || st.QueuedTokens != 0 {
			t.Errorf("it left %+v behind", st)
		}
		g.Wait()
		if stub.begun() != 1 {
			t.Errorf("%d runs, want the slow one", stub.begun())
		}
		auditIdle(t, e)
	})
}

func TestCancelAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, _ := perTokenReranker(t, 1, true, EngineConfig{})
		defer closeNow(t, e)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
		began := time.Now()
		_, err := m.Rerank(ctx, RerankRequest{Query: "w1", Documents: sixteens(0, 40), Deadline: began.Add(time.Second)})
		if !errors.Is(err, gone) || time.Since(began) != 20*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		synctest.Wait()
		if st := e.Stats(); st.QueuedRows != 0 || st.QueuedTokens != 0 {
			t.Errorf("it left %+v behind", st)
		}
		time.Sleep(5 * time.Second)
		auditIdle(t, e)
	})
}

func TestCloseAndDeadline(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			e, m, _ := perTokenReranker(t, 1, true, EngineConfig{MaxBatchTokens: 64})
			var g sync.WaitGroup
			g.Go(func() {
				docs := sixteens(0, 40)
				got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: time.Now().Add(300 * time.Millisecond)})
				switch {
				case grace == 0 && !errors.Is(err, ErrClosed):
					t.Errorf("cut short: %+v, %v", got, err)
				case grace > 0 && (err != nil || len(got.Unscored) != 40-18): // 18 rows of 16 ms
					t.Errorf("drained: %+v, %v", got, err)
				}
			})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), grace)
			defer cancel()
			if err := e.Close(ctx); err != nil && grace > 0 {
				t.Errorf("close: %v", err)
			}
			g.Wait()
			auditIdle(t, e)
		})
	}
}

// Jobs with and without deadlines, callers that leave, good and bad rows, a graceful end or not: nothing is lost or doubled, rows without
// time are named as such, and nobody waits past the deadline and the batches that ran then.
func TestDeadlinesAmongOthers(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { deadlineRun(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func deadlineRun(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 32))
	sh := shape{pad: []int{1, 8, 16}[r.IntN(3)], maxRows: noRowLimit, maxCols: 20 + r.IntN(100)}
	if r.IntN(4) == 0 {
		sh.maxRows = 1
	}
	m := newStubModel(t, models.FormScores, 1, sh)
	m.perRun, m.perToken = time.Duration(r.IntN(3))*time.Millisecond, time.Duration(1+r.IntN(100))*time.Microsecond
	cfg := EngineConfig{MaxQueuedTokens: 200 + r.IntN(4000), Slice: time.Duration(5+r.IntN(30)) * time.Millisecond, Machine: Machine{CPUs: 2}}
	e, ms := stubEngine(cfg, 1+r.IntN(3), m)
	if r.IntN(2) == 0 {
		e.sched.queues[0].rate = float64(1 + r.IntN(100_000))
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var serial int32
	var mu sync.Mutex
	outcomes := map[string]int{}
	cut := r.IntN(4) == 0
	var g sync.WaitGroup
	for range 20 {
		lengths := make([]int, r.IntN(15))
		for i := range lengths {
			lengths[i] = 1 + r.IntN(sh.maxCols)
		}
		ctx, cancel := context.WithCancel(t.Context())
		pause, leave := time.Duration(r.IntN(60))*time.Millisecond, r.IntN(5) == 0
		stay := time.Duration(r.IntN(40)) * time.Millisecond
		budget := time.Duration(-1)
		if r.IntN(3) > 0 {
			budget = time.Duration(r.IntN(50)) * time.Millisecond
		}
		j := newJob(ctx, 0, Lane(r.IntN(2)), &serial, lengths...)
		if r.IntN(10) == 0 && len(lengths) > 0 {
			j.rows[0].ids[0]++ // a bad row
		}
		longest := m.perRun + m.perToken*time.Duration(1<<14) // more than any batch and its repetitions take
		g.Go(func() {
			defer cancel()
			time.Sleep(pause)
			if leave {
				time.AfterFunc(stay, cancel)
			}
			began := time.Now()
			if budget >= 0 {
				j.deadline = began.Add(budget)
			}
			err := ms[0].core.run(j, &Timing{})
			took := time.Since(began)
			outcome := "answered"
			var over *OverloadedError
			switch {
			case errors.As(err, &over):
				outcome = "overloaded"
			case errors.Is(err, ErrClosed):
				if outcome = "closed"; !cut {
					t.Error("closed before its time")
				}
			case err != nil && ctx.Err() != nil:
				outcome = "left"
			case err != nil:
				t.Errorf("failed with %v", err)
			default:
				unscored := 0
				for i, row := range j.rows {
					ran, answered := m.served(row.ids[0])
					switch j.errs[i] {
					case nil:
						if answered != 1 {
							t.Errorf("a row with a result was answered %d times", answered)
						}
					case errUnscored:
						if unscored++; ran != 0 || budget < 0 {
							t.Errorf("an unscored row ran %d times, budget %v", ran, budget)
						}
					case errBadRow:
						if fate(row.ids) != rowBad {
							t.Error("a good row failed")
						}
					default:
						t.Errorf("row error %v", j.errs[i])
					}
				}
				if unscored > 0 {
					outcome = "answered in part"
				}
				if budget >= 0 && took > budget+longest {
					t.Errorf("answered after %v of %v", took, budget)
				}
			}
			mu.Lock()
			outcomes[outcome]++
			mu.Unlock()
		})
	}
	for range r.IntN(10) {
		time.Sleep(7 * time.Millisecond)
		e.sched.mu.Lock()
		if err := e.sched.audit(); err != nil {
			t.Error(err)
		}
		e.sched.mu.Unlock()
	}
	if !cut {
		g.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	_ = e.Close(ctx)
	g.Wait()
	auditIdle(t, e)
	t.Log(seed, outcomes)
}

// windowsOf are the rows that a document of n tokens beside a query of q should be scored in, by the rule as documented: the room beside
// the query, of which the next window repeats a fourth, the last one ending with the document.
func windowsOf(query, doc []int32, limit int) (rows []ort.Row, cut int) {
	room := limit - 3 - len(query)
	if len(doc) <= room {
		return []ort.Row{pair(query, doc)}, 0
	}
	for at := 0; len(rows) < MaxWindows; at += room - room/4 {
		if at+room >= len(doc) {
			return append(rows, pair(query, doc[len(doc)-room:])), 0
		}
		rows = append(rows, pair(query, doc[at:at+room]))
		cut = len(doc) - at - room
	}
	return rows, cut
}

func TestWindows(t *testing.T) {
	m := newStubModel(t, models.FormScores, 1, shape{pad: 8, maxRows: noRowLimit, maxCols: 100})
	m.anyBatch = true
	e, ms := started(t, EngineConfig{}, 2, m)
	defer closeNow(t, e)
	room := 100 - 3 - 10
	stride := room - room/4
	last := room + (MaxWindows-1)*stride // the most that windows hold
	lengths := []int{0, 1, room - 1, room, room + 1, room + stride - 1, room + stride, room + stride + 1, last - 1, last, last + 1, last + 1000}
	query := words(0, 10)
	var docs []string
	for i, n := range lengths {
		docs = append(docs, words(100+7*i, n))
	}
	for _, side := range []tokenize.Side{Right, Left} {
		for _, perDoc := range []int{0, 5} { // is overridden
			got, err := ms[0].Rerank(t.Context(), RerankRequest{Query: query, Documents: docs, Windows: true, Measure: true,
				MaxTokensPerDoc: perDoc, Truncation: Truncation{Side: side}})
			if err != nil {
				t.Fatal(err)
			}
			bare, err := ms[0].Rerank(t.Context(), RerankRequest{Query: query, Documents: docs, Windows: true, Truncation: Truncation{Side: side}})
			if err != nil || !slices.Equal(bare.Logits, got.Logits) || bare.Documents != nil {
				t.Errorf("without Measure: %v, %v, want %v", bare, err, got.Logits)
			}
			tokens, wantCut := 0, []int(nil)
			for i, n := range lengths {
				rows, cut := windowsOf(ids(query), ids(docs[i]), 100)
				best, logit := 0, stubLogit(rows[0])
				for k, row := range rows {
					tokens += len(row.IDs)
					if l := stubLogit(row); l > logit {
						best, logit = k, l
					}
				}
				want := DocumentUse{Tokens: n, Cut: cut, Window: best}
				if len(rows) > 1 {
					want.Windows = len(rows)
				}
				if got.Logits[i] != logit || got.Documents[i] != want {
					t.Errorf("%d tokens: logit %v and %+v, want %v and %+v", n, got.Logits[i], got.Documents[i], logit, want)
				}
				if cut > 0 {
					wantCut = append(wantCut, i)
				}
			}
			if got.Usage.Tokens != tokens || !slices.Equal(got.Usage.Cut, wantCut) || len(got.Unscored) > 0 {
				t.Errorf("usage %+v, want %d tokens and %v cut; unscored %v", got.Usage, tokens, wantCut, got.Unscored)
			}
		}
	}
}

// Beside a query that nearly fills the model there are no windows: documents are cut as ever, and counted.
func TestWindowsAreOffBesideALongQuery(t *testing.T) {
	m := newStubModel(t, models.FormScores, 1, shape{pad: 8, maxRows: noRowLimit, maxCols: 100})
	e, ms := started(t, EngineConfig{}, 1, m)
	defer closeNow(t, e)
	docs := []string{words(500, 5), words(600, 200)}
	for q := 60; q < 130; q += 3 {
		query := words(0, q)
		got, err := ms[0].Rerank(t.Context(), RerankRequest{Query: query, Documents: docs, Windows: true, Measure: true})
		if err != nil {
			t.Fatal(err)
		}
		if room := 100 - 3 - q; room >= minWindow {
			if got.Documents[1].Windows < 2 {
				t.Errorf("query of %d: %+v, want windows", q, got.Documents[1])
			}
			continue
		}
		for i, d := range docs {
			enc, err := stubTokenizer().Pair(nil, ids(query), ids(d), tokenize.Options{MaxTokens: 100})
			if err != nil {
				t.Fatal(err)
			}
			want := DocumentUse{Tokens: len(ids(d)), Cut: enc.CutSecond}
			if got.Documents[i] != want || got.Logits[i] != stubLogit(ort.Row{IDs: enc.IDs, TypeOneAt: enc.TypeOneAt}) {
				t.Errorf("query of %d, document %d: %+v, want %+v", q, i, got.Documents[i], want)
			}
		}
	}
}

func TestMeasureIsExact(t *testing.T) {
	m := reranker(t)
	for _, side := range []tokenize.Side{Right, Left} {
		for _, perDoc := range []int{0, 1, 18, 35, 60} {
			for _, q := range []int{0, 1, 18, 36, 90} {
				query := words(0, q)
				lengths := []int{0, 1, 17, 18, 19, 35, 36, 37, 91, 2000}
				var docs []string
				for _, n := range lengths {
					docs = append(docs, words(300, n))
				}
				r := RerankRequest{Query: query, Documents: docs, MaxTokensPerDoc: perDoc, Truncation: Truncation{Side: side}}
				plain, err := m.Rerank(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				r.Measure = true
				got, err := m.Rerank(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(plain.Logits, got.Logits) || plain.Usage.Tokens != got.Usage.Tokens || !slices.Equal(plain.Usage.Cut, got.Usage.Cut) {
					t.Errorf("side %d, %d per document, query of %d: Measure changes the answer: %+v, %+v", side, perDoc, q, plain, got)
				}
				for i, n := range lengths {
					kept := n
					if perDoc > 0 {
						kept = min(n, perDoc)
					}
					enc, err := stubTokenizer().Pair(nil, ids(query), ids(docs[i])[:kept], tokenize.Options{MaxTokens: 40})
					if err != nil {
						t.Fatal(err)
					}
					if want := (DocumentUse{Tokens: n, Cut: n - kept + enc.CutSecond}); got.Documents[i] != want {
						t.Errorf("side %d, %d per document, query of %d, %d tokens: %+v, want %+v", side, perDoc, q, n, got.Documents[i], want)
					}
				}
			}
		}
	}
}

// A window that fails is its document's failure; the document's other windows still count, and a document is counted once.
func TestAFailedWindowNamesItsDocument(t *testing.T) {
	m := newStubModel(t, models.FormScores, 1, shape{pad: 8, maxRows: noRowLimit, maxCols: 50})
	m.anyBatch = true
	e, ms := started(t, EngineConfig{}, 1, m)
	defer closeNow(t, e)
	docs := []string{words(0, 300), strings.Repeat("nan ", 300), words(100, 100) + "nan " + words(200, 100), "bad", words(300, 3)}
	got, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Windows: true, Measure: true})
	var row *RowError
	if !errors.As(err, &row) || row.Item != 1 || row.Failed != 3 || !errors.Is(err, ErrNotFinite) {
		t.Fatalf("got %v (%+v), want document 1 as the first of 3", err, row)
	}
	for i, fails := range []bool{false, true, false, true, false} {
		if l := got.Logits[i]; (l != l) != fails {
			t.Errorf("document %d has the logit %v", i, l)
		}
	}
	if len(got.Unscored) > 0 {
		t.Errorf("failed documents are listed as unscored: %v", got.Unscored)
	}
}

func TestWindowsAndADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStubModel(t, models.FormScores, 1, shape{pad: 16, maxRows: noRowLimit, maxCols: 48})
		m.perToken = time.Millisecond
		e, ms := started(t, EngineConfig{MaxBatchTokens: 48}, 1, m)
		defer closeNow(t, e)
		e.sched.queues[0].rate, e.sched.queues[0].measured = 1000, time.Now()
		docs := []string{words(0, 100), words(200, 100), words(400, 100)} // three windows of 44 each
		got, err := ms[0].Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Windows: true, Measure: true, Deadline: time.Now().Add(200 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		// Four windows fit: the first document whole, and one of the second, which is better than nothing.
		first, _ := windowsOf(ids("w1"), ids(docs[1]), 48)
		if !slices.Equal(got.Unscored, []int{2}) || got.Logits[1] != stubLogit(first[0]) {
			t.Errorf("unscored %v, logits %v, want the third, and %v for the second", got.Unscored, got.Logits, stubLogit(first[0]))
		}
		if v := got.Logits[2]; v == v {
			t.Errorf("an unscored document has the logit %v", v)
		}
		// What is in no window that ran was not read.
		if !slices.Equal(got.Usage.Cut, []int{1}) || got.Documents[0].Cut != 0 || got.Documents[1].Cut != 100-44 || got.Documents[2].Cut != 0 {
			t.Errorf("cut %v, %+v, want 56 tokens of the second document", got.Usage.Cut, got.Documents)
		}
		auditIdle(t, e)
	})
}

func TestUnreadTokens(t *testing.T) {
	const seed = 3
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		w := windows{room: minWindow + r.IntN(50)}
		tokens := w.room + 1 + r.IntN(6*w.room)
		read := make([]bool, tokens)
		var errs []error
		for end := 0; end < tokens; end = w.from(len(errs)-1, tokens) + w.room {
			errs = append(errs, []error{nil, errUnscored, errBadRow}[r.IntN(3)])
			if k := len(errs) - 1; errs[k] != errUnscored {
				for i := range w.room {
					read[w.from(k, tokens)+i] = true
				}
			}
		}
		want := 0
		for _, ok := range read {
			if !ok {
				want++
			}
		}
		if got := w.unread(errs, tokens); got != want {
			t.Fatalf("windows of %d in %d tokens, %v: %d unread, want %d", w.room, tokens, errs, got, want)
		}
	}
}

// sharedCore is perTokenReranker with two workers on one core: a row of 16 tokens takes 16 ms alone and 32 ms beside another one. Batches are
// single rows.
func sharedCore(t *testing.T, alone float64) (*Engine, *Model, *stubModel) {
	e, m, stub := perTokenReranker(t, 2, false, EngineConfig{MaxBatchTokens: 16})
	stub.oneCore = true
	e.sched.mu.Lock()
	q := e.sched.queues[0]
	q.rate, q.padded, q.alone, q.measured = 490, 490, alone, time.Now()
	e.sched.mu.Unlock()
	return e, m, stub
}

// Where two workers share a core, a row may be in time alone that would be late beside another one.
func TestTheLastRowRunsAlone(t *testing.T) {
	for _, c := range []struct {
		alone  float64 // what is known
		want   int     // documents scored within 90 ms
		answer time.Duration
	}{
		{960, 5, 80 * time.Millisecond}, // two by two until 64 ms, then one
		{1e9, 5, 80 * time.Millisecond}, // no faster than all workers together
		{0, 4, 64 * time.Millisecond},   // not known
		{490, 4, 64 * time.Millisecond}, // the workers have a core each
		{300, 4, 64 * time.Millisecond}, // never slower than beside others
		{700, 5, 80 * time.Millisecond}, // 23 ms
		{600, 4, 64 * time.Millisecond}, // 27 ms
	} {
		synctest.Test(t, func(t *testing.T) {
			e, m, _ := sharedCore(t, c.alone)
			defer closeNow(t, e)
			docs := sixteens(0, 12)
			began := time.Now()
			got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(90 * time.Millisecond)})
			if err != nil {
				t.Fatal(err)
			}
			scoredAs(t, "w1", docs, got)
			if took := time.Since(began).Round(time.Millisecond); took != c.answer || len(docs)-len(got.Unscored) != c.want || got.Unscored[0] != c.want {
				t.Errorf("alone %v tokens/s: unscored %v after %v, want the first %d scored after %v", c.alone, got.Unscored, took, c.want, c.answer)
			}
			auditIdle(t, e)
		})
	}
}

// A row is not held back for running alone while somebody waits behind it.
func TestNobodyWaitsForARowToRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, _ := sharedCore(t, 980)
		defer closeNow(t, e)
		var g sync.WaitGroup
		began := time.Now()
		g.Go(func() {
			got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: sixteens(0, 12), Deadline: began.Add(90 * time.Millisecond)})
			if err != nil || len(got.Unscored) != 8 {
				t.Errorf("got %+v, %v", got, err)
			}
			if took := time.Since(began).Round(time.Millisecond); took != 64*time.Millisecond {
				t.Errorf("answered after %v, want 64 ms", took)
			}
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
		docs := sixteens(500, 4)
		got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs})
		if err != nil {
			t.Fatal(err)
		}
		scoredAs(t, "w1", docs, got)
		if took := time.Since(began).Round(time.Millisecond); took != 128*time.Millisecond {
			t.Errorf("the one behind was answered after %v, want 128 ms: the device was never idle", took)
		}
		g.Wait()
		auditIdle(t, e)
	})
}

// What a lone run takes is learned from lone runs, and they do not make the others' rate look higher than it is.
func TestTheRateOfLoneRunsIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, _ := sharedCore(t, 0)
		defer closeNow(t, e)
		for range 20 {
			if _, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: sixteens(0, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		e.sched.mu.Lock()
		q := e.sched.queues[0]
		alone, padded, rate := q.alone, q.padded, q.rate
		e.sched.mu.Unlock()
		if math.Abs(alone-1000) > 20 || math.Abs(padded-490) > 15 || math.Abs(rate-490) > 15 {
			t.Errorf("alone %v tokens/s, else %v and %v; want 1000 and as before, 490", alone, padded, rate)
		}
		docs := sixteens(0, 12)
		got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: time.Now().Add(90 * time.Millisecond)})
		if err != nil || len(got.Unscored) != 7 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestDocumentOf(t *testing.T) {
	rowsOf := []int{0, 1, 4, 5, 9}
	var got []int
	for row := range 9 {
		got = append(got, documentOf(rowsOf, row))
	}
	if want := []int{0, 1, 1, 1, 2, 3, 3, 3, 3}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A rate that was measured while something else held the machine says that no row fits any more. It is not believed for ever.
func TestAStaleRateIsMeasuredAnew(t *testing.T) {
	for _, workers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			e, m, stub := perTokenReranker(t, workers, true, EngineConfig{})
			defer closeNow(t, e)
			e.sched.queues[0].rate, e.sched.queues[0].padded = 50, 50 // a row of 16 tokens takes 16 ms, and is thought to take 320
			e.sched.queues[0].measured = time.Now()
			var scored []int
			for range 40 {
				docs := sixteens(0, 10)
				began := time.Now()
				got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(100 * time.Millisecond)})
				if err != nil {
					t.Fatal(err)
				}
				scoredAs(t, "w1", docs, got)
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("answered after %v", took)
				}
				scored = append(scored, len(docs)-len(got.Unscored))
				time.Sleep(200 * time.Millisecond)
			}
			if scored[0] != 0 || scored[3] != 0 {
				t.Errorf("%d workers: %v were scored, at first nothing was to be", workers, scored)
			}
			if want := min(10, 6*workers) - 1; scored[39] < want { // nearly what the true rate lets through
				t.Errorf("%d workers: after ten seconds %v were scored, want %d", workers, scored, want)
			}
			calls := stub.begun()
			// A budget of less than a slice tries nothing.
			e.sched.queues[0].rate, e.sched.queues[0].padded = 50, 50
			time.Sleep(time.Minute)
			if got, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: sixteens(0, 3), Deadline: time.Now().Add(19 * time.Millisecond)}); err != nil ||
				len(got.Unscored) != 3 || stub.begun() != calls {
				t.Errorf("with 19 ms: %+v, %v, %d runs", got, err, stub.begun()-calls)
			}
			auditIdle(t, e)
		})
	}
}

// While it is stale, one row a second runs too long at most, and nobody else waits for it.
func TestAStaleRateThatWasRightCostsOneRowASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m, stub := perTokenReranker(t, 2, true, EngineConfig{})
		defer closeNow(t, e)
		docs := []string{words(0, 200), words(300, 200)} // 208 ms each
		late := 0
		for range 50 {
			began := time.Now()
			if _, err := m.Rerank(t.Context(), RerankRequest{Query: "w1", Documents: docs, Deadline: began.Add(100 * time.Millisecond)}); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > 100*time.Millisecond {
				late++
			}
			time.Sleep(100*time.Millisecond - time.Since(began)%(100*time.Millisecond))
		}
		if late < 3 || late > 6 || stub.begun() != late {
			t.Errorf("%d of 50 answers in five seconds were late, by %d runs", late, stub.begun())
		}
		auditIdle(t, e)
	})
}
