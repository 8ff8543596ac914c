package inference

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"ragate/inference/ort"
	"ragate/models"
)

// instant answers at once, with a tensor made before.
type instant struct{ values []float32 }

func (s *instant) newStream() (runner, error) { return s, nil }
func (s *instant) Run(rows []ort.Row, cols int) (ort.Output, error) {
	return ort.Output{Values: s.values[:len(rows)]}, nil
}
func (s *instant) Terminate() error { return nil }
func (s *instant) Close() error     { return nil }

// instantEngine has workers and a reranker that takes no time: what is left is the scheduler.
func instantEngine(b testing.TB, workers, budget int) (*Engine, *core) {
	b.Helper()
	e := NewEngine(EngineConfig{MaxBatchTokens: budget, MaxQueuedTokens: 1 << 30})
	c := &core{
		tokenizer: stubTokenizer(), session: &instant{values: make([]float32, 4096)}, hardLimit: 512, limit: 512,
		plan: plan{pad: 16, maxRows: noRowLimit, streams: workers}, head: head{form: models.FormScores, width: 1, columns: 1},
		info: Info{ID: "instant", Kind: KindReranker},
	}
	e.add(c)
	if err := e.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Close(b.Context()); err != nil {
			b.Error(err)
		}
	})
	return e, c
}

// jobOf makes a job of rows of 10 to 200 tokens, as rerank requests have.
func jobOf(tb testing.TB, rows int, seed uint64) *job {
	r := rand.New(rand.NewPCG(seed, 4))
	j := &job{ctx: tb.Context(), width: 1}
	for i := range rows {
		j.rows = append(j.rows, row{ids: make([]int32, 10+r.IntN(191)), pos: i})
	}
	return j
}

// BenchmarkScheduler is the way of a row from submission over batch and worker back to its caller, without tokenising and running. ns/op
// is per row. A run of such a row takes milliseconds: this has to stay below a hundredth of it.
func BenchmarkScheduler(b *testing.B) {
	for _, rows := range []int{1, 10, 100} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("rows=%d/callers=%d", rows, callers), func(b *testing.B) {
				_, c := instantEngine(b, 2, 512)
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var g sync.WaitGroup
				b.ResetTimer()
				for seed := range callers {
					g.Go(func() {
						proto := jobOf(b, rows, uint64(seed))
						for left.Add(int64(-rows)) > int64(-rows) {
							j := *proto
							if err := c.run(&j, &Timing{}); err != nil {
								b.Error(err)
							}
						}
					})
				}
				g.Wait()
			})
		}
	}
}

// BenchmarkFormUnderLoad forms batches off a queue that holds 16,000 rows of all lengths.
func BenchmarkFormUnderLoad(b *testing.B) {
	for name, sh := range map[string]shape{"padded": anyRows, "alone": {pad: 1, maxRows: 1, maxCols: 512}} {
		b.Run(name, func(b *testing.B) {
			s := newScheduler(1<<30, 512, 0)
			s.addQueue(sh, 1<<10, 0)
			s.start(1)
			b.ReportAllocs()
			rows, left := 0, 0
			for b.Loop() {
				if left < 16_000 {
					b.StopTimer()
					j := jobOf(b, 32_000, uint64(rows))
					if err := s.submit(j); err != nil {
						b.Fatal(err)
					}
					left += len(j.rows)
					b.StartTimer()
				}
				batch, _ := s.formNow()
				rows += len(batch.rows)
				left -= len(batch.rows)
				s.finish(batch, 0, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
		})
	}
}

// BenchmarkPoolMean pools a text of 128 tokens of 384 dimensions; MB/s counts the token vectors read.
func BenchmarkPoolMean(b *testing.B) {
	tokens := make([]float32, 128*384)
	for i := range tokens {
		tokens[i] = float32(i%97) / 97
	}
	dst := make([]float32, 384)
	b.SetBytes(int64(4 * len(tokens)))
	b.ReportAllocs()
	for b.Loop() {
		pool(dst, tokens, models.PoolMean)
	}
}

func BenchmarkNormalize(b *testing.B) {
	v := make([]float32, 384)
	for i := range v {
		v[i] = float32(i%97) / 97
	}
	b.SetBytes(int64(4 * len(v)))
	b.ReportAllocs()
	for b.Loop() {
		normalize(v)
	}
}

// TestAllocationsOfARequest bounds what the way through the scheduler allocates, for a request of one row and for each further one.
func TestAllocationsOfARequest(t *testing.T) {
	_, c := instantEngine(t, 1, 4096)
	count := func(rows int) float64 {
		proto := jobOf(t, rows, 1)
		return testing.AllocsPerRun(200, func() {
			j := *proto
			if err := c.run(&j, &Timing{}); err != nil {
				t.Error(err)
			}
		})
	}
	one, many := count(1), count(33)
	t.Logf("%v allocations for one row, %v for 33", one, many)
	if one > 8 {
		t.Errorf("a request of one row allocates %v times", one)
	}
	if more := (many - one) / 32; more > 1.5 {
		t.Errorf("each further row allocates %v times", more)
	}
}
