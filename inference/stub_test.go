package inference

// A device that is not there: sessions whose answers follow from the ids of a row alone, so that a lost, doubled or swapped row shows,
// and whose runs take as long as they are told to, in the fake time of a synctest bubble.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/tokenize"
)

// What becomes of a row.
const (
	rowGood = iota
	rowBad  // the whole run fails
	rowNaN  // its output is not finite
	rowFates
)

// Rows made without the tokenizer begin with a number of their own from firstSerial on, which says what becomes of them: the rest of
// its division by rowFates. A text's row says so by the words "bad" and "nan".
const (
	firstSerial = 1 << 16
	idBad       = 4
	idNaN       = 5
)

func fate(ids []int32) int {
	switch {
	case ids[0] >= firstSerial:
		return int(ids[0] % rowFates)
	case slices.Contains(ids, idBad):
		return rowBad
	case slices.Contains(ids, idNaN):
		return rowNaN
	}
	return rowGood
}

var (
	errBadRow     = errors.New("stub: a bad row")
	errTerminated = errors.New("stub: terminated")
)

// quantum is how often a run looks who shares its core.
const quantum = 100 * time.Microsecond

// stubModel is one model on the device and the session it runs in.
type stubModel struct {
	t        testing.TB
	form     models.Form
	width    int
	shape    shape
	budget   int           // padded tokens of a batch of more than one row, at most; 0: not checked
	perRun   time.Duration // a run takes this long, and
	perToken time.Duration // this long for each padded token
	onRun    func(rows []ort.Row, cols int)
	anyBatch bool // batches are not held against the rules
	oneCore  bool // runs at the same time share the speed of one

	newStreamErr func(n int) error // for the n-th stream
	warmErr      error
	answer       func(v []float32, rows []ort.Row, r int) // changes what row r of a run gets

	mu       sync.Mutex
	calls    int           // of Run, warming apart
	runs     int           // those that were not terminated
	ran      map[int32]int // by a row's first id: runs it was in
	answered map[int32]int // of them, those that gave it a result
	streams  []*stubStream
	closed   bool

	running atomic.Int64
}

func newStubModel(t testing.TB, form models.Form, width int, sh shape) *stubModel {
	return &stubModel{t: t, form: form, width: width, shape: sh, ran: map[int32]int{}, answered: map[int32]int{}}
}

func (m *stubModel) newStream() (runner, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newStreamErr != nil {
		if err := m.newStreamErr(len(m.streams)); err != nil {
			return nil, err
		}
	}
	s := &stubStream{model: m, terminated: make(chan struct{})}
	m.streams = append(m.streams, s)
	return s, nil
}

func (m *stubModel) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.t.Error("a session was closed twice")
	}
	for i, s := range m.streams {
		if !s.closed.Load() {
			m.t.Errorf("a session was closed before its stream %d", i)
		}
	}
	m.closed = true
	return nil
}

// stubStream is a runner of a stubModel.
type stubStream struct {
	model      *stubModel
	busy       atomic.Bool
	closed     atomic.Bool
	terminate  sync.Once
	terminated chan struct{}
	values     []float32
}

func (s *stubStream) Run(rows []ort.Row, cols int) (ort.Output, error) {
	m := s.model
	if !s.busy.CompareAndSwap(false, true) {
		m.t.Error("two runs at once on one stream")
	}
	defer s.busy.Store(false)
	if s.closed.Load() {
		m.t.Error("a run on a closed stream")
	}
	warming := rows[0].IDs[0] == 0
	if warming && m.warmErr != nil {
		return ort.Output{}, m.warmErr
	}
	if !warming {
		if !m.anyBatch {
			m.check(rows, cols)
		}
		m.mu.Lock()
		m.calls++
		m.mu.Unlock()
		if m.onRun != nil {
			m.onRun(rows, cols)
		}
		took := m.perRun + m.perToken*time.Duration(len(rows)*cols)
		if m.oneCore {
			m.running.Add(1)
			for left := took; left > 0; left -= quantum / time.Duration(m.running.Load()) {
				time.Sleep(quantum)
			}
			m.running.Add(-1)
			took = 0
		}
		if took > 0 {
			timer := time.NewTimer(took)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-s.terminated:
			}
		}
	}
	select {
	case <-s.terminated:
		return ort.Output{}, errTerminated
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if warming {
		return s.output(rows, cols), nil
	}
	m.runs++
	fails := false
	for _, r := range rows {
		m.ran[r.IDs[0]]++
		fails = fails || fate(r.IDs) == rowBad
	}
	if fails {
		return ort.Output{}, errBadRow
	}
	for _, r := range rows {
		m.answered[r.IDs[0]]++
	}
	return s.output(rows, cols), nil
}

// output lays the rows' vectors out in the model's form. What lies behind a row's tokens is NaN: it must take no part.
func (s *stubStream) output(rows []ort.Row, cols int) ort.Output {
	m := s.model
	s.values = s.values[:0]
	v := make([]float32, m.width)
	for i, r := range rows {
		stubVector(v, r)
		if fate(r.IDs) == rowNaN {
			v[m.width-1] = float32(math.NaN())
		}
		if m.answer != nil {
			m.answer(v, rows, i)
		}
		if m.form != models.FormTokens {
			s.values = append(s.values, v...)
			continue
		}
		for t := range cols {
			for _, x := range v {
				if t < len(r.IDs) { // the mean over the tokens is x
					x += float32(2*t - len(r.IDs) + 1)
				} else {
					x = float32(math.NaN())
				}
				s.values = append(s.values, x)
			}
		}
	}
	shape := []int64{int64(len(rows)), int64(m.width)}
	if m.form == models.FormTokens {
		shape = slices.Insert(shape, 1, int64(cols))
	}
	return ort.Output{Shape: shape, Values: s.values}
}

// check holds a batch against the rules.
func (m *stubModel) check(rows []ort.Row, cols int) {
	own := 0
	for _, r := range rows {
		if len(r.IDs) > cols {
			m.t.Errorf("a row of %d tokens in a batch padded to %d", len(r.IDs), cols)
		}
		own += m.shape.cols(len(r.IDs))
	}
	padded := len(rows) * cols
	if len(rows) > m.shape.maxRows {
		m.t.Errorf("a batch of %d rows, at most %d are allowed", len(rows), m.shape.maxRows)
	}
	if len(rows) > 1 && m.budget > 0 && padded > m.budget {
		m.t.Errorf("a batch of %d × %d tokens, the budget is %d", len(rows), cols, m.budget)
	}
	if (padded-own)*paddingShare > padded {
		m.t.Errorf("of %d tokens in a batch %d are padding beyond the rows' own", padded, padded-own)
	}
	if cols%m.shape.pad != 0 && cols != m.shape.maxCols {
		m.t.Errorf("a batch is padded to %d, no multiple of %d", cols, m.shape.pad)
	}
}

// begun is how many runs have begun.
func (m *stubModel) begun() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// served is how often the row with this first id was in a run, and in how many it got a result.
func (m *stubModel) served(first int32) (ran, answered int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ran[first], m.answered[first]
}

func (s *stubStream) Terminate() error {
	s.terminate.Do(func() { close(s.terminated) })
	return nil
}

func (s *stubStream) Close() error {
	if s.busy.Load() {
		s.model.t.Error("a stream was closed during a run")
	}
	if s.closed.Swap(true) {
		s.model.t.Error("a stream was closed twice")
	}
	return nil
}

// stubVector fills v with what follows from a row: whole numbers up to 2000 in size, another set for nearly any other row.
func stubVector(v []float32, r ort.Row) {
	h := uint64(14695981039346656037)
	for i, id := range append([]int32{int32(r.TypeOneAt)}, r.IDs...) {
		h = (h ^ uint64(uint32(id)) ^ uint64(i)<<40) * 1099511628211
	}
	for i := range v {
		h = (h ^ h>>29 ^ uint64(i)) * 0xbf58476d1ce4e5b9
		v[i] = float32(int(h>>40)%4001 - 2000)
	}
}

// stubWords is how many words the stub tokenizer knows: w0, w1, …
const stubWords = 2000

// stubTokenizer reads "w7 w12" as two tokens, with "query:" and such before them.
var stubTokenizer = sync.OnceValue(func() *tokenize.Tokenizer {
	vocab := map[string]int{}
	for _, w := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "bad", "nan", "query", "passage", ":"} { // bad is idBad, nan is idNaN
		vocab[w] = len(vocab)
	}
	for i := range stubWords {
		vocab[fmt.Sprintf("w%d", i)] = len(vocab)
	}
	special := func(name string, typeID int) map[string]any {
		return map[string]any{"SpecialToken": map[string]any{"id": name, "type_id": typeID}}
	}
	text := func(name string, typeID int) map[string]any {
		return map[string]any{"Sequence": map[string]any{"id": name, "type_id": typeID}}
	}
	b, err := json.Marshal(map[string]any{
		"version":       "1.0",
		"normalizer":    map[string]any{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
		"pre_tokenizer": map[string]any{"type": "BertPreTokenizer"},
		"model": map[string]any{"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100},
		"post_processor": map[string]any{
			"type":   "TemplateProcessing",
			"single": []any{special("[CLS]", 0), text("A", 0), special("[SEP]", 0)},
			"pair":   []any{special("[CLS]", 0), text("A", 0), special("[SEP]", 0), text("B", 1), special("[SEP]", 1)},
			"special_tokens": map[string]any{
				"[CLS]": map[string]any{"id": "[CLS]", "ids": []int{vocab["[CLS]"]}, "tokens": []string{"[CLS]"}},
				"[SEP]": map[string]any{"id": "[SEP]", "ids": []int{vocab["[SEP]"]}, "tokens": []string{"[SEP]"}},
			},
		},
	})
	if err != nil {
		panic(err)
	}
	t, err := tokenize.Parse(b)
	if err != nil {
		panic(err)
	}
	return t
})

// words is a text of n tokens of the stub tokenizer, beginning with word number from.
func words(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "w%d ", (from+i)%stubWords)
	}
	return b.String()
}

// stubEngine puts stub models on an engine with so many workers. The caller starts and closes it.
func stubEngine(cfg EngineConfig, workers int, stubs ...*stubModel) (*Engine, []*Model) {
	e := NewEngine(cfg)
	var out []*Model
	for i, m := range stubs {
		c := &core{
			tokenizer: stubTokenizer(), session: m, hardLimit: m.shape.maxCols, limit: m.shape.maxCols,
			plan: plan{pad: m.shape.pad, maxRows: m.shape.maxRows, streams: workers},
			head: head{form: m.form, width: m.width, columns: m.width, normalize: m.form != models.FormScores, pooling: models.PoolMean},
			info: Info{ID: fmt.Sprintf("stub/%d", i), Kind: KindEmbedder, MaxTokens: m.shape.maxCols,
				Prompts: map[string]string{"query": "query: ", "passage": "passage: "}},
		}
		if m.form == models.FormScores {
			c.info.Kind, c.head.width = KindReranker, 1
		}
		e.mu.Lock()
		e.add(c)
		e.mu.Unlock()
		out = append(out, &Model{core: c})
	}
	return e, out
}

// limitStreams gives a stub model fewer streams than the engine has workers. Before Start.
func (m *Model) limitStreams(n int) {
	m.core.plan.streams = n
	m.core.engine.sched.queues[m.core.queue].streams = n
}

// anyRows is a shape that bounds nothing.
var anyRows = shape{pad: 16, maxRows: noRowLimit, maxCols: 512}
