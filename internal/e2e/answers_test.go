package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ragate/internal/testenv"
)

const (
	clients = 16 // requests in flight at once, in the crowded pass
	seed    = 20240613
	// resident at most in the default mode, the three models loaded and everything below served; after a first start, which measures each
	// model beside a second copy of it, 200 MB more than after later ones
	memoryMB = 1100
)

// tolerance is how far an answer may be from the reference.
type tolerance struct {
	element float64 // of a vector; 0: not compared
	cosine  float64 // at least
	logit   float64
}

// invariance is how far two answers to one text may be apart, whoever shared its batches.
var invariance = tolerance{cosine: 0.99999, logit: 0.005}

// mode is one way to start the server.
type mode struct {
	name      string
	args      []string
	precision string // as /info must publish it
	providers []string
	int8      bool // compared with the reference's int8 answers, else fp32
	near      tolerance
	step      int  // the passes of lists and of single inputs send every step-th; they come in no order of length
	noCrowd   bool // the crowd, where there is one, sends everything
	batched   bool // answers may depend on neighbours
	memoryMB  float64
}

var (
	nearFP32 = tolerance{element: 1e-4, cosine: 1 - 1e-6, logit: 1e-4}
	nearINT8 = tolerance{element: 1e-3, cosine: 1 - 1e-5, logit: 1e-3}
	nearBF16 = tolerance{cosine: 0.9997, logit: 0.15}
	// Batched int8 takes its activation scales from strangers; DESIGN measured 0.85 and 0.9956. This catches what is plainly wrong.
	nearBatched = tolerance{cosine: 0.97, logit: 3}
)

// modes lists the ways to run. The default is bf16 where the processor has it, else int8; the other of the two is then tested too, or is
// seen to be refused.
func modes(t *testing.T) []mode {
	bf16 := hasBF16(t)
	fp32 := mode{name: "fp32", args: []string{"--precision", "fp32"}, precision: "fp32", providers: []string{"openvino", "cuda", "cpu"}, near: nearFP32, step: 3}
	fp32CPU := mode{name: "fp32-cpu", args: []string{"--precision", "fp32", "--provider", "cpu"}, precision: "fp32", providers: []string{"cpu"}, near: nearFP32, step: 6, noCrowd: true}
	int8 := mode{name: "int8", args: []string{"--precision", "int8"}, precision: "int8", providers: []string{"cpu"}, int8: true, near: nearINT8, step: 3}
	batched := mode{name: "int8-batched", args: []string{"--precision", "int8-batched"}, precision: "int8-batched", providers: []string{"cpu"}, int8: true, near: nearBatched, batched: true, step: 6, noCrowd: true}
	auto := int8
	if bf16 {
		auto = mode{precision: "bf16", providers: []string{"openvino"}, near: nearBF16}
	}
	auto.name, auto.args, auto.step, auto.memoryMB = "auto", nil, 1, memoryMB
	if bf16 {
		return []mode{auto, fp32, fp32CPU, int8, batched}
	}
	return []mode{auto, fp32, fp32CPU, batched}
}

func TestAnswers(t *testing.T) {
	ref := loadReference(t)
	for _, m := range modes(t) {
		t.Run(m.name, func(t *testing.T) { testMode(t, ref, m) })
	}
	if hasBF16(t) {
		return
	}
	t.Run("bf16 is refused", func(t *testing.T) {
		got := command(t, environment(t, store(t)), "", "embed", "--precision", "bf16", "some text")
		if got.code != 1 || got.stdout != "" {
			t.Fatalf("exit code %d, output %q", got.code, got.stdout)
		}
		oneLine(t, got.stderr, `precision "bf16" cannot run`)
	})
}

func testMode(t *testing.T, ref *reference, m mode) {
	t.Logf("seed %d", seed)
	srv := start(t, environment(t, store(t)), m.args...)
	checkInfo(t, srv, m)
	s := &session{srv: srv, ref: ref, mode: m}

	began := time.Now()
	pass := func(name string, run func() error) {
		t.Helper()
		if err := run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%-16s %6.1f s, resident %.0f MB", name, time.Since(began).Seconds(), srv.resident())
		began = time.Now()
	}
	pass("lists", s.lists)
	pass("alone", s.alone)
	if !m.noCrowd {
		pass("crowd of 16", s.crowd)
	}
	s.report(t)
	if rss := srv.resident(); m.memoryMB > 0 && rss > m.memoryMB {
		t.Errorf("%.0f MB are resident, allowed are %.0f", rss, m.memoryMB)
	}
	srv.signal(syscall.SIGTERM)
	if code := srv.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// checkInfo compares what /info publishes with what was asked for.
func checkInfo(t *testing.T, srv *server, m mode) {
	t.Helper()
	embedder, reranker := srv.info()
	for _, i := range []modelInfo{embedder, reranker} {
		if i.Precision != m.precision || !slices.Contains(m.providers, i.Provider) {
			t.Errorf("%s runs in %s on %s; want %s on one of %q", i.ID, i.Precision, i.Provider, m.precision, m.providers)
		}
		if i.BatchInvariance.Rows < 2 {
			t.Errorf("%s: batch_invariance was measured over %d rows", i.ID, i.BatchInvariance.Rows)
		}
		if warned := len(i.Warnings) > 0; warned != m.batched {
			t.Errorf("%s: warnings %q", i.ID, i.Warnings)
		}
	}
	cosine, logit := embedder.BatchInvariance.MinCosine, reranker.BatchInvariance.MaxLogit
	if cosine == nil || logit == nil {
		t.Fatal("/info lacks batch_invariance.min_cosine of the embedder or .max_logit of the reranker")
	}
	t.Logf("%s on %s and %s; published drift: cosine %.7f, logit %.6f", m.precision, embedder.Provider, reranker.Provider, *cosine, *logit)
	if held := *cosine > invariance.cosine && *logit < invariance.logit; held == m.batched {
		t.Errorf("published drift: cosine %v, logit %v; a mode whose answers depend on neighbours: %v", *cosine, *logit, m.batched)
	}
}

// session sends the inputs to one server and compares every answer, from any goroutine.
type session struct {
	srv  *server
	ref  *reference
	mode mode

	embedder, reranker string // asked for by these names; "": the default ones

	mu         sync.Mutex
	first      map[string][]float32 // the first answer to each input
	answers    int
	element    extreme // distance to the reference, of vectors
	cosine     extreme // 1 - cosine
	logit      extreme
	moved      extreme // 1 - cosine to the first answer
	movedLogit extreme
	failures   []string
}

// extreme is the largest distance seen, and the input behind it. Once NaN it stays NaN.
type extreme struct {
	distance float64
	input    string
}

func (e *extreme) add(distance float64, input string) {
	if distance > e.distance || math.IsNaN(distance) {
		*e = extreme{distance, input}
	}
}

func (e extreme) String() string {
	if e.input == "" {
		return "0"
	}
	return fmt.Sprintf("%.2g (%s)", e.distance, e.input)
}

func (s *session) fail(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

// text compares the vector of text i.
func (s *session) text(i int, got []float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, name := s.ref.vectors.fp32, fmt.Sprintf("text %d (%d tokens)", i, s.ref.vectors.tokens[i])
	if s.mode.int8 {
		want = s.ref.vectors.int8
	}
	if len(got) != s.ref.vectors.width {
		s.fail("%s: %d values", name, len(got))
		return
	}
	expected := row(want, i, s.ref.vectors.width)
	for j := range got {
		d := math.Abs(float64(got[j]) - float64(expected[j]))
		s.element.add(d, name)
		if limit := s.mode.near.element; limit > 0 && !(d <= limit) {
			s.fail("%s: element %d is %v, the reference %v", name, j, got[j], expected[j])
		}
	}
	loss := 1 - testenv.Cosine(got, expected)
	s.cosine.add(loss, name)
	if !(loss <= 1-s.mode.near.cosine) {
		s.fail("%s: cosine to the reference is 1-%.2g", name, loss)
	}
	if before := s.remember(name, got); before != nil {
		loss := 1 - testenv.Cosine(got, before)
		s.moved.add(loss, name)
		if !s.mode.batched && !(loss <= 1-invariance.cosine) {
			s.fail("%s: cosine to its first answer is 1-%.2g", name, loss)
		}
	}
}

// pair compares the logit of pair i.
func (s *session) pair(i int, got float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, name := s.ref.logits.fp32[i], fmt.Sprintf("pair %d (%d tokens)", i, s.ref.logits.tokens[i])
	if s.mode.int8 {
		want = s.ref.logits.int8[i]
	}
	d := math.Abs(got - float64(want))
	s.logit.add(d, fmt.Sprintf("%s, logit %.4f", name, want))
	if !(d <= s.mode.near.logit) {
		s.fail("%s: logit %v, the reference %v", name, got, want)
	}
	if before := s.remember(name, []float32{float32(got)}); before != nil {
		d := math.Abs(got - float64(before[0]))
		s.movedLogit.add(d, name)
		if !s.mode.batched && !(d <= invariance.logit) {
			s.fail("%s: logit %v, its first %v", name, got, before[0])
		}
	}
}

// remember counts an answer and returns the first one to the same input, nil when this is it.
func (s *session) remember(name string, got []float32) []float32 {
	s.answers++
	if s.first == nil {
		s.first = map[string][]float32{}
	}
	before := s.first[name]
	if before == nil {
		s.first[name] = got
	}
	return before
}

func (s *session) report(t *testing.T) {
	t.Helper()
	t.Logf("%d answers. To the reference: element %v, 1-cosine %v, logit %v. Among neighbours: 1-cosine %v, logit %v",
		s.answers, s.element, s.cosine, s.logit, s.moved, s.movedLogit)
	if len(s.failures) > 0 {
		t.Errorf("%d comparisons failed; the first:", len(s.failures))
		for _, f := range s.failures[:min(len(s.failures), 10)] {
			t.Error(f)
		}
	}
}

// embed sends texts in one request.
func (s *session) embed(items []int) error {
	texts := make([]string, len(items))
	for n, i := range items {
		texts[n] = s.ref.inputs.Texts[i]
	}
	var input any = texts
	if len(texts) == 1 {
		input = texts[0]
	}
	r, err := s.srv.send("/embed", map[string]any{"inputs": input, "normalize": true, "model": s.embedder})
	if err != nil {
		return err
	}
	got, err := decode[[][]float32](r)
	if err != nil {
		return err
	}
	if len(got) != len(items) {
		return fmt.Errorf("%d vectors for %d texts", len(got), len(items))
	}
	for n, i := range items {
		s.text(i, got[n])
	}
	return nil
}

// rerank sends pairs of one query in one request.
func (s *session) rerank(items []int) error {
	query, tokens := s.ref.pairs[items[0]].query, 0
	documents := make([]string, len(items))
	for n, i := range items {
		p := s.ref.pairs[i]
		documents[n] = s.ref.inputs.Pairs[query].Documents[p.document]
		tokens += s.ref.logits.tokens[i]
	}
	r, err := s.srv.send("/v1/rerank", map[string]any{"query": s.ref.inputs.Pairs[query].Query, "documents": documents, "raw_scores": true, "model": s.reranker})
	if err != nil {
		return err
	}
	got, err := decode[struct {
		Results []struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
		} `json:"results"`
		Usage struct {
			Total int `json:"total_tokens"`
		} `json:"usage"`
	}](r)
	if err != nil {
		return err
	}
	if len(got.Results) != len(items) || got.Usage.Total != tokens {
		return fmt.Errorf("query %d: %d results and %d tokens; want %d and %d", query, len(got.Results), got.Usage.Total, len(items), tokens)
	}
	seen := make([]bool, len(items))
	for n, x := range got.Results {
		if x.Index < 0 || x.Index >= len(items) || seen[x.Index] {
			return fmt.Errorf("query %d: index %d is out of place", query, x.Index)
		}
		if n > 0 && x.Score > got.Results[n-1].Score {
			return fmt.Errorf("query %d: result %d is better than the one before it", query, n)
		}
		seen[x.Index] = true
		s.pair(items[x.Index], x.Score)
	}
	return nil
}

// byQuery groups the pairs by their query.
func (s *session) byQuery() [][]int {
	out := make([][]int, len(s.ref.inputs.Pairs))
	for i, p := range s.ref.pairs {
		out[p.query] = append(out[p.query], i)
	}
	return out
}

// lists sends texts in one request and each query with its documents in another, one after the other.
func (s *session) lists() error {
	var texts []int
	for i := 0; i < len(s.ref.inputs.Texts); i += s.mode.step {
		texts = append(texts, i)
	}
	if err := s.embed(texts); err != nil {
		return err
	}
	queries := s.byQuery()
	for i := 0; i < len(queries); i += s.mode.step {
		if err := s.rerank(queries[i]); err != nil {
			return err
		}
	}
	return nil
}

// alone sends one input at a time. Without companions only one core works, so this is the slow part.
func (s *session) alone() error {
	for i := 0; i < len(s.ref.inputs.Texts); i += s.mode.step {
		if err := s.embed([]int{i}); err != nil {
			return err
		}
	}
	for i := 0; i < len(s.ref.pairs); i += s.mode.step {
		if err := s.rerank([]int{i}); err != nil {
			return err
		}
	}
	return nil
}

// crowd sends everything once more from 16 clients at once, in lists of random size and order, texts between pairs.
func (s *session) crowd() error {
	rnd := rand.New(rand.NewPCG(seed, 0))
	type request struct {
		send  func([]int) error
		items []int
	}
	var requests []request
	deal := func(items []int, most int, send func([]int) error) {
		rnd.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		for len(items) > 0 {
			n := min(1+rnd.IntN(most), len(items))
			requests = append(requests, request{send, items[:n]})
			items = items[n:]
		}
	}
	texts := make([]int, len(s.ref.inputs.Texts))
	for i := range texts {
		texts[i] = i
	}
	deal(texts, 12, s.embed)
	for _, items := range s.byQuery() {
		deal(items, len(items), s.rerank)
	}
	rnd.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	if len(requests) < 2*clients {
		return fmt.Errorf("%d requests are no crowd of %d clients", len(requests), clients)
	}

	queue := make(chan request, len(requests))
	for _, r := range requests {
		queue <- r
	}
	close(queue)
	errs := make(chan error, clients)
	for range clients {
		go func() {
			var err error
			for r := range queue {
				if err == nil {
					err = r.send(r.items)
				}
			}
			errs <- err
		}()
	}
	var first error
	for range clients {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// TestCommandsAnswerLikeTheServer compares `ragate embed` and `ragate rerank` with the same reference, in fp32.
func TestCommandsAnswerLikeTheServer(t *testing.T) {
	ref := loadReference(t)
	env := environment(t, store(t))

	// Texts of one line, of which `embed` makes one each; the first as an argument too.
	var items []int
	stdin := ""
	for i, text := range ref.inputs.Texts {
		if len(items) < 20 && oneLineOfText(text) && ref.vectors.tokens[i] < 200 {
			items = append(items, i)
			stdin += text + "\n"
		}
	}
	s := &session{ref: ref, mode: mode{near: nearFP32}}
	for _, run := range []struct {
		args  []string
		stdin string
		items []int
	}{
		{nil, stdin, items},
		{[]string{"--", ref.inputs.Texts[items[0]], ref.inputs.Texts[items[1]]}, "ignored\n", items[:2]},
	} {
		got := command(t, env, run.stdin, append([]string{"embed", "--precision", "fp32"}, run.args...)...)
		if got.code != 0 || got.stderr != "" {
			t.Fatalf("embed: exit code %d: %s", got.code, got.stderr)
		}
		lines := splitLines(got.stdout)
		if len(lines) != len(run.items) {
			t.Fatalf("embed: %d lines for %d texts", len(lines), len(run.items))
		}
		for n, line := range lines {
			var v []float32
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("embed: line %d: %v", n+1, err)
			}
			s.text(run.items[n], v)
		}
	}

	q := slices.IndexFunc(ref.inputs.Pairs, func(p queryWithDocuments) bool {
		return p.Query != "" && !slices.ContainsFunc(p.Documents, func(d string) bool { return !oneLineOfText(d) })
	})
	if q < 0 {
		t.Fatal("every query has a document of several lines")
	}
	documents := ref.inputs.Pairs[q].Documents
	items = s.byQuery()[q]
	stdin = ""
	for _, d := range documents {
		stdin += d + "\n"
	}
	got := command(t, env, stdin, "rerank", "--precision", "fp32", "--json", "--top-n", "5", "--", ref.inputs.Pairs[q].Query)
	lines := splitLines(got.stdout)
	if got.code != 0 || len(lines) != 5 {
		t.Fatalf("rerank: exit code %d, %d lines: %s", got.code, len(lines), got.stderr)
	}
	last := math.Inf(1)
	for _, line := range lines {
		var x struct {
			Index int      `json:"index"`
			Score float64  `json:"relevance_score"`
			Logit *float64 `json:"logit"`
			Text  string   `json:"text"`
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil || x.Logit == nil {
			t.Fatalf("rerank: %v in %s", err, line)
		}
		if *x.Logit > last || x.Text != documents[x.Index] || math.Abs(x.Score-1/(1+math.Exp(-*x.Logit))) > 1e-6 {
			t.Errorf("rerank: out of order, of another text, or not the sigmoid of its logit: %s", line)
		}
		last = *x.Logit
		s.pair(items[x.Index], *x.Logit)
	}
	s.report(t)
}

func oneLineOfText(s string) bool { return s != "" && !strings.ContainsAny(s, "\r\n") }

// TestInputType: --input-type puts the model's own prefix in front.
func TestInputType(t *testing.T) {
	env := environment(t, store(t))
	var vectors [][]float32
	for _, args := range [][]string{{"--input-type", "query", "what is lift?"}, {"query: what is lift?", "what is lift?"}} {
		got := command(t, env, "", append([]string{"embed", "--precision", "fp32"}, args...)...)
		for _, line := range splitLines(got.stdout) {
			var v []float32
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			vectors = append(vectors, v)
		}
	}
	if len(vectors) != 3 {
		t.Fatalf("%d vectors", len(vectors))
	}
	if like, unlike := testenv.Cosine(vectors[0], vectors[1]), testenv.Cosine(vectors[0], vectors[2]); like < nearFP32.cosine || unlike > 0.999 {
		t.Errorf("cosine with the typed prefix %v, without one %v", like, unlike)
	}
}
