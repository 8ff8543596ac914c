package gates

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ragate/gates/pattern"
	"ragate/gates/policy"
	"ragate/gates/quality"
	"ragate/gates/semantic"
)

// fakeClock moves by what is told to.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *fakeClock {
	return &fakeClock{now: time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)}
}

// fakeEmbedder puts texts of small talk on one axis and all others on another.
type fakeEmbedder struct {
	dim   int
	err   error
	times ModelUse
	clock *fakeClock
	takes time.Duration
	vec   []float32 // of every text, when set
	sizes []int     // of the calls
}

func (e *fakeEmbedder) EmbedQueries(ctx context.Context, texts []string) ([]float32, int, ModelUse, error) {
	e.sizes = append(e.sizes, len(texts))
	if e.clock != nil {
		e.clock.pass(e.takes)
	}
	if e.err != nil {
		return nil, 0, ModelUse{}, e.err
	}
	if ctx.Err() != nil {
		return nil, 0, ModelUse{}, context.Cause(ctx)
	}
	if e.vec != nil {
		return slices.Clone(e.vec), e.dim, e.times, nil
	}
	var out []float32
	for _, t := range texts {
		v := make([]float32, e.dim)
		v[1] = 1
		if strings.Contains(t, "wonderful") || strings.Contains(t, "shorter") {
			v[0], v[1] = 1, 0
		}
		out = append(out, v...)
	}
	return out, e.dim, e.times, nil
}

const referencesYAML = `version: "7"
conversational_words: {en: [please, again, shorter, wonderful, day, have, you]}
methods:
  default: top1
  calibrated_for: fake
  top1: {threshold: 0.9}
  contrast: {threshold: 0.5}
categories:
  - id: wishes
    kind: non_retrieval
    references: {en: [have a wonderful day]}
  - id: rents
    kind: knowledge
    references: {en: [what does the rent include]}
`

func references(t testing.TB, data, model string, e Embedder) *References {
	t.Helper()
	set, err := semantic.Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := EmbedReferences(t.Context(), set, e, model)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func queryGate(t testing.TB, p policy.Policy, e Embedder, c *fakeClock, r *References) *QueryGate {
	t.Helper()
	g, err := NewQueryGate(p, pattern.Default(), e, c.Now, "model-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetReferences(r); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestQueryStages(t *testing.T) {
	embedder := func() *fakeEmbedder { return &fakeEmbedder{dim: 4} }
	refs := references(t, referencesYAML, "m", embedder())
	spent, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	const far = "is parking part of the lease of the second floor"
	const near = "wonderful evening to everybody over there"
	off := policy.Default()
	off.Query.Semantic.Off = true
	for _, c := range []struct {
		name     string
		ctx      context.Context
		policy   policy.Policy
		embedder *fakeEmbedder
		none     bool // no references
		text     string
		history  []Turn
		retrieve bool
		stage    Stage
		chain    string
		reason   string
		failed   bool
		calls    int
	}{
		{name: "small talk by wording", text: "thanks!", stage: StagePattern, chain: "[pattern]", reason: "small talk"},
		{name: "wording needs no budget", ctx: spent, text: "bedankt", stage: StagePattern, chain: "[pattern]", reason: "small talk"},
		{name: "a confirmation of a question retrieves, by wording", text: "yes please", history: []Turn{{"user", "hi"}, {"assistant", "Shall I look it up?"}},
			retrieve: true, stage: StagePattern, chain: "[pattern]", reason: "answers a question of the assistant"},
		{name: "near small talk", text: near, stage: StageSemantic, chain: "[pattern semantic]", reason: "retrieval cannot help", calls: 1},
		{name: "near a question", text: far, retrieve: true, stage: StageSemantic, chain: "[pattern semantic]", reason: "under the threshold", calls: 1},
		{name: "content of its own in a conversation", text: "wonderful, and the parking garage", history: []Turn{{"user", "hi"}, {"assistant", "hello"}},
			retrieve: true, stage: StageSemantic, chain: "[pattern semantic]", reason: "content of its own", calls: 1},
		{name: "no references", none: true, text: near, retrieve: true, stage: StageDefault, chain: "[pattern]", reason: "no further stage"},
		{name: "the semantic layer is off", policy: off, text: near, retrieve: true, stage: StageDefault, chain: "[pattern]", reason: "no further stage"},
		{name: "the budget is spent before", ctx: spent, text: near, retrieve: true, stage: StageDefault, failed: true,
			chain: "[pattern semantic: the budget was spent before the semantic stage]", reason: "the turn retrieves"},
		{name: "the budget is spent during", embedder: &fakeEmbedder{dim: 4, err: fmt.Errorf("embed: %w", context.DeadlineExceeded)}, text: near, retrieve: true,
			stage: StageDefault, failed: true, chain: "[pattern semantic: the budget was spent while the query was embedded]", reason: "the turn retrieves", calls: 1},
		{name: "the embedder fails", embedder: &fakeEmbedder{dim: 4, err: errors.New("a secret")}, text: near, retrieve: true, stage: StageDefault,
			failed: true, chain: "[pattern semantic: the query could not be embedded]", reason: "could not be embedded, so the turn retrieves", calls: 1},
		{name: "the queue is full", embedder: &fakeEmbedder{dim: 4, err: fmt.Errorf("%w: a secret", ErrOverloaded)}, text: near, retrieve: true, stage: StageDefault,
			failed: true, chain: "[pattern semantic: the query could not be embedded, as the queue is full]", reason: "the queue is full", calls: 1},
		{name: "another model's dimensions", embedder: &fakeEmbedder{dim: 5}, text: near, retrieve: true, stage: StageDefault, failed: true,
			chain: "[pattern semantic: the query's vector and the references' are of different models]", reason: "different models", calls: 1},
		{name: "no values", embedder: &fakeEmbedder{dim: 4, vec: []float32{}}, text: near, retrieve: true, stage: StageDefault, failed: true,
			chain: "[pattern semantic: the query's vector and the references' are of different models]", reason: "different models", calls: 1},
		{name: "a vector that is not a number", embedder: &fakeEmbedder{dim: 4, vec: slices.Repeat([]float32{float32(math.NaN())}, 4)}, text: near,
			retrieve: true, stage: StageSemantic, chain: "[pattern semantic]", reason: "not a number", calls: 1},
		{name: "blank", text: " ", stage: StagePattern, chain: "[pattern]", reason: "no words"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			if c.policy.Name == "" {
				c.policy = policy.Default()
			}
			e := c.embedder
			if e == nil {
				e = embedder()
			}
			e.clock, e.takes = newClock(), 7*time.Millisecond
			r := refs
			if c.none {
				r = nil
			}
			d := queryGate(t, c.policy, e, e.clock, r).Decide(c.ctx, QueryRequest{Text: c.text, History: c.history})
			if d.NeedsRetrieval != c.retrieve || d.Stage != c.stage || fmt.Sprint(d.Chain) != c.chain || !strings.Contains(d.Reason, c.reason) {
				t.Errorf("got retrieve %v, stage %s, chain %q, reason %q", d.NeedsRetrieval, d.Stage, d.Chain, d.Reason)
			}
			if (d.Err != nil) != c.failed || strings.Contains(d.Reason+fmt.Sprint(d.Chain), "secret") {
				t.Errorf("err %v, reason %q, chain %q", d.Err, d.Reason, d.Chain)
			}
			if (d.Pattern != nil) != (d.Stage == StagePattern) || (d.Semantic != nil) != (d.Stage == StageSemantic) {
				t.Errorf("stage %s has pattern %v and semantic %v", d.Stage, d.Pattern, d.Semantic)
			}
			if len(e.sizes) != c.calls {
				t.Errorf("%d calls of the embedder, want %d", len(e.sizes), c.calls)
			}
			if want := time.Duration(c.calls) * e.takes; d.Times.Total != want || d.Policy.Name != "default" || len(d.Policy.Fingerprint) != 16 {
				t.Errorf("total %v, want %v; policy %+v", d.Times.Total, want, d.Policy)
			}
		})
	}
}

func TestQueryNeedsNoEmbedderWithoutReferences(t *testing.T) {
	c := newClock()
	g := queryGate(t, policy.Default(), nil, c, nil)
	if d := g.Decide(t.Context(), QueryRequest{Text: "is parking part of the lease"}); !d.NeedsRetrieval || d.Stage != StageDefault {
		t.Errorf("got %+v", d)
	}
}

func TestReferencesAreEmbeddedInPieces(t *testing.T) {
	set, err := semantic.Parse(semantic.Default())
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEmbedder{dim: 3}
	r, vectors, err := EmbedReferences(t.Context(), set, e, "m")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range e.sizes {
		if sum += n; n > embedAtOnce {
			t.Errorf("%d texts in one call", n)
		}
	}
	if sum != len(set.References) || len(vectors) != 3*sum || len(e.sizes) < 2 || r.Index.Dim() != 3 {
		t.Errorf("%d texts in %d calls, %d values", sum, len(e.sizes), len(vectors))
	}
	again, err := NewReferences(set, vectors, 3, "m")
	if err != nil || again.Fingerprint != r.Fingerprint {
		t.Errorf("from a cache: %v", err)
	}
	for _, bad := range []*fakeEmbedder{{dim: 3, err: errors.New("down")}, {dim: 3, vec: []float32{1, 0, 0}}} {
		if _, _, err := EmbedReferences(t.Context(), set, bad, "m"); err == nil {
			t.Error("a failed embedding gave references")
		}
	}
}

func TestBadReferencesKeepTheOldOnes(t *testing.T) {
	e := &fakeEmbedder{dim: 4}
	p := policy.Default()
	p.Query.Semantic.Method = semantic.Contrast
	g := queryGate(t, p, e, newClock(), references(t, referencesYAML, "m", e))
	before := g.Decide(t.Context(), QueryRequest{Text: "wonderful evening to everybody"})
	without := strings.Replace(referencesYAML, "  contrast: {threshold: 0.5}\n", "", 1)
	if err := g.SetReferences(references(t, without, "m", e)); err == nil || !strings.Contains(err.Error(), "default") || !strings.Contains(err.Error(), "contrast") {
		t.Errorf("a set without the policy's method: %v", err)
	}
	after := g.Decide(t.Context(), QueryRequest{Text: "wonderful evening to everybody"})
	if before.NeedsRetrieval || after.NeedsRetrieval || before.Policy != after.Policy || after.Semantic.Method != semantic.Contrast {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestThePolicysThresholdWins(t *testing.T) {
	e := &fakeEmbedder{dim: 4}
	high := 1.5
	p := policy.Default()
	p.Query.Semantic.Threshold = &high
	g := queryGate(t, p, e, newClock(), references(t, referencesYAML, "m", e))
	d := g.Decide(t.Context(), QueryRequest{Text: "wonderful evening to everybody"})
	if !d.NeedsRetrieval || d.Semantic.Threshold != high {
		t.Errorf("got %+v", d)
	}
}

// Whatever decides is in the fingerprint, and the same makes the same.
func TestFingerprints(t *testing.T) {
	e := &fakeEmbedder{dim: 4}
	refs := references(t, referencesYAML, "m", e)
	threshold := 0.8
	with := func(change func(*policy.Policy)) policy.Policy {
		p := policy.Default()
		change(&p)
		return p
	}
	query := func(p policy.Policy, rules []pattern.File, r *References, parts ...string) string {
		g, err := NewQueryGate(p, rules, e, newClock().Now, parts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.SetReferences(r); err != nil {
			t.Fatal(err)
		}
		return g.Decide(t.Context(), QueryRequest{Text: "hi"}).Policy.Fingerprint
	}
	rules := pattern.Default()
	changed := slices.Clone(rules)
	changed[0].Data = append(slices.Clone(changed[0].Data), "\n# a remark\n"...)
	seen := map[string]string{}
	for name, got := range map[string]string{
		"as it is":     query(policy.Default(), rules, refs, "model"),
		"no reference": query(policy.Default(), rules, nil, "model"),
		"references":   query(policy.Default(), rules, references(t, strings.Replace(referencesYAML, "day]}\n  - id: rents", "night]}\n  - id: rents", 1), "m", e), "model"),
		"embedder":     query(policy.Default(), rules, references(t, referencesYAML, "m2", e), "model"),
		"a weight":     query(policy.Default(), rules, references(t, strings.Replace(referencesYAML, "0.9}", "0.91}", 1), "m", e), "model"),
		"method":       query(with(func(p *policy.Policy) { p.Query.Semantic.Method = semantic.Contrast }), rules, refs, "model"),
		"threshold":    query(with(func(p *policy.Policy) { p.Query.Semantic.Threshold = &threshold }), rules, refs, "model"),
		"glossary":     query(with(func(p *policy.Policy) { p.Query.Glossary = []string{"btw"} }), rules, refs, "model"),
		"model":        query(policy.Default(), rules, refs, "model2"),
		"rules":        query(policy.Default(), changed, refs, "model"),
		"chunks":       NewChunkGate(policy.Default(), nil, newClock().Now, "model").Policy().Fingerprint,
		"floor":        NewChunkGate(with(func(p *policy.Policy) { p.Chunks.Floor = 0.1 }), nil, newClock().Now, "model").Policy().Fingerprint,
	} {
		if other := seen[got]; other != "" {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[got] = name
	}
	if a, b := query(policy.Default(), rules, refs, "model"), query(policy.Default(), rules, refs, "model"); a != b || seen[a] != "as it is" {
		t.Errorf("the same has two fingerprints: %s, %s", a, b)
	}
}

// Two gates made from one list of parts do not write into each other's.
func TestPartsAreTheGatesOwn(t *testing.T) {
	parts := append(make([]string, 0, 10), "model")
	make1 := func(rules []pattern.File) *QueryGate {
		g, err := NewQueryGate(policy.Default(), rules, nil, newClock().Now, parts...)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := make1(pattern.Default())
	before := first.Decide(t.Context(), QueryRequest{Text: "hi"}).Policy
	changed := pattern.Default()
	changed[0].Name = "another.yaml"
	make1(changed)
	if err := first.SetReferences(nil); err != nil {
		t.Fatal(err)
	}
	if after := first.Decide(t.Context(), QueryRequest{Text: "hi"}).Policy; after != before {
		t.Errorf("another gate changed the fingerprint from %v to %v", before, after)
	}
}

func TestReferencesAreSwappedWhileDeciding(t *testing.T) {
	var sets []*References
	e := &fakeEmbedder{dim: 4}
	for _, threshold := range []string{"0.90", "0.91"} {
		sets = append(sets, references(t, strings.Replace(referencesYAML, "0.9}", threshold+"}", 1), "m", e))
	}
	g := queryGate(t, policy.Default(), still{}, newClock(), sets[0])
	valid := map[PolicyRef]float64{}
	for i, s := range sets {
		if err := g.SetReferences(s); err != nil {
			t.Fatal(err)
		}
		valid[g.Decide(t.Context(), QueryRequest{Text: "wonderful evening to everybody"}).Policy] = []float64{0.9, 0.91}[i]
	}
	stop := make(chan struct{})
	var swapping, deciding sync.WaitGroup
	swapping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := g.SetReferences(sets[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		deciding.Go(func() {
			for range 300 {
				d := g.Decide(t.Context(), QueryRequest{Text: "wonderful evening to everybody"})
				if want, ok := valid[d.Policy]; !ok || d.Semantic == nil || d.Semantic.Threshold != want {
					t.Errorf("a decision of neither set: %+v", d)
				}
			}
		})
	}
	deciding.Wait()
	close(stop)
	swapping.Wait()
}

// still is an embedder without state.
type still struct{}

func (still) EmbedQueries(_ context.Context, texts []string) ([]float32, int, ModelUse, error) {
	return slices.Repeat([]float32{1, 0, 0, 0}, len(texts)), 4, ModelUse{}, nil
}

// fakeScorer gives each text the logit it has in the map.
type fakeScorer struct {
	logits map[string]float32
	err    error
	change func([]ChunkScore) []ChunkScore
	clock  *fakeClock

	calls   int
	query   string
	texts   []string
	options ScoreOptions
}

func (s *fakeScorer) Score(_ context.Context, query string, texts []string, o ScoreOptions) ([]ChunkScore, ModelUse, error) {
	s.calls++
	s.query, s.texts, s.options = query, texts, o
	if s.clock != nil {
		s.clock.pass(5 * time.Millisecond)
	}
	if s.err != nil {
		return nil, ModelUse{}, s.err
	}
	out := make([]ChunkScore, len(texts))
	for i, t := range texts {
		out[i] = ChunkScore{Logit: s.logits[t], Scored: true, Tokens: len(t)}
	}
	if s.change != nil {
		out = s.change(out)
	}
	return out, ModelUse{Inference: 3 * time.Millisecond}, nil
}

func chunksOf(texts ...string) []quality.Chunk {
	var out []quality.Chunk
	for _, t := range texts {
		out = append(out, quality.Chunk{Text: t})
	}
	return out
}

func similar(c []quality.Chunk, similarities ...float64) []quality.Chunk {
	for i := range similarities {
		c[i].Similarity = &similarities[i]
	}
	return c
}

func outcomes(d ChunkDecision) string {
	var b strings.Builder
	for _, list := range [][]quality.Result{d.Chunks, d.Dropped} {
		for _, r := range list {
			fmt.Fprintf(&b, "%d:%s ", r.Index, r.Outcome)
		}
		b.WriteString("| ")
	}
	return strings.TrimSuffix(b.String(), " | ")
}

func decide(t *testing.T, s *fakeScorer, p policy.Policy, r ChunkRequest) ChunkDecision {
	t.Helper()
	if s.clock == nil {
		s.clock = newClock()
	}
	if r.Query == "" {
		r.Query = "how do I park"
	}
	d, err := NewChunkGate(p, s, s.clock.Now, "model").Decide(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestChunksAreScoredBySimilarity(t *testing.T) {
	s := &fakeScorer{logits: map[string]float32{"a": 3, "b": -3, "c": 2, "d": 1}}
	deadline := newClock().now.Add(time.Second)
	d := decide(t, s, policy.Default(), ChunkRequest{Chunks: similar(chunksOf("a", "b", "c", "d"), 0.1, 0.9, 0.5), Deadline: deadline})
	if fmt.Sprint(s.texts) != "[b c a d]" || s.query != "how do I park" || s.calls != 1 || s.options != (ScoreOptions{Deadline: deadline}) {
		t.Errorf("scored %q with %+v", s.texts, s.options)
	}
	if got := outcomes(d); got != "0:kept 2:kept 3:kept | 1:dropped" {
		t.Errorf("got %s", got)
	}
	if d.Total != 5*time.Millisecond || d.Model.Inference != 3*time.Millisecond || d.Err != nil || d.Policy.Name != "default" || d.QueryTypeReason == "" {
		t.Errorf("got %+v", d)
	}
}

func TestChunkScorerFailures(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		reason string
	}{
		{"the queue is full", fmt.Errorf("%w: a secret", ErrOverloaded), "not scored: the queue is full"},
		{"the model fails", errors.New("a secret"), "not scored: the model could not be asked"},
		{"the time runs out", fmt.Errorf("a secret: %w", context.DeadlineExceeded), "not scored: the time ran out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, fallback := range []quality.Fallback{quality.FallbackTop, quality.FallbackKeyword, quality.FallbackExpand, quality.FallbackInsufficient} {
				s := &fakeScorer{err: c.err}
				d := decide(t, s, policy.Default(), ChunkRequest{Chunks: similar(chunksOf("a", "b", "c"), 0.1, 0.2, 0.3), Overrides: quality.Overrides{Fallback: &fallback}})
				if got := outcomes(d); got != "2:fallback 1:fallback | 0:unscored" {
					t.Errorf("%s: got %s", fallback, got)
				}
				if d.Stats.Filtered || d.Stats.Unscored != 3 || d.Stats.ScoredBy != quality.BySimilarity || !errors.Is(d.Err, c.err) {
					t.Errorf("%s: got %+v, %v", fallback, d.Stats, d.Err)
				}
				for _, list := range [][]quality.Result{d.Chunks, d.Dropped} {
					for _, r := range list {
						if reason := d.Reason(r); !strings.HasPrefix(reason, c.reason) || strings.Contains(reason, "secret") {
							t.Errorf("%s: reason %q", fallback, reason)
						}
					}
				}
			}
		})
	}
}

func TestPartialScores(t *testing.T) {
	logits := map[string]float32{"a": 3, "b": 2, "c": 1, "d": 4}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		change func([]ChunkScore) []ChunkScore
		want   string
		reason string // of the last
	}{
		{"the last had no time", func(s []ChunkScore) []ChunkScore { s[3] = ChunkScore{Tokens: 1}; return s },
			"0:kept 1:kept 2:kept | 3:unscored", "the time ran out"},
		{"one row failed", func(s []ChunkScore) []ChunkScore { s[0].Logit = nan; return s },
			"3:kept 1:kept 2:kept | 0:unscored", "the model gave no number"},
		{"one row is infinite", func(s []ChunkScore) []ChunkScore { s[1].Logit = float32(math.Inf(1)); return s },
			"3:kept 0:kept 2:kept | 1:unscored", "the model gave no number"},
		{"fewer than asked", func(s []ChunkScore) []ChunkScore { return s[:2] }, "0:kept 1:kept | 2:unscored 3:unscored", "the time ran out"},
		{"more than asked", func(s []ChunkScore) []ChunkScore { return append(s, s...) }, "3:kept 0:kept 1:kept 2:kept | ", ""},
		{"all rows failed", func(s []ChunkScore) []ChunkScore {
			for i := range s {
				s[i].Logit = nan
			}
			return s
		}, "0:fallback 1:fallback | 2:unscored 3:unscored", "the model gave no number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decide(t, &fakeScorer{logits: logits, change: c.change}, policy.Default(), ChunkRequest{Chunks: chunksOf("a", "b", "c", "d")})
			if got := outcomes(d); strings.TrimSpace(strings.TrimSuffix(got, "|")) != strings.TrimSpace(strings.TrimSuffix(c.want, "| ")) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if n := len(d.Dropped); n > 0 {
				if reason := d.Reason(d.Dropped[n-1]); !strings.Contains(reason, c.reason) {
					t.Errorf("reason %q", reason)
				}
			}
			if d.Err != nil {
				t.Errorf("err %v", d.Err)
			}
		})
	}
}

func TestChunksThatARuleDropsCostNoScoring(t *testing.T) {
	p := policy.Default()
	p.Chunks.Rules = []quality.Rule{
		{ID: "old", Field: "deprecated", Equals: true, Action: quality.ActionDrop},
		{ID: "age", Field: "updated_at", OlderThanDays: 30, Action: quality.ActionDrop},
		{ID: "draft", Field: "draft", Equals: true, Action: quality.ActionDemote},
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	chunks := chunksOf("a", "b", "c", "d")
	chunks[0].Metadata = quality.JSON(`{"deprecated": true}`)
	chunks[1].Metadata = quality.JSON(`{"draft": true}`)
	chunks[2].Metadata = quality.JSON(`{"updated_at": "2025-05-01"}`) // 31 days before the clock's day
	s := &fakeScorer{logits: map[string]float32{"a": 9, "b": 5, "c": 9, "d": 2}}
	d := decide(t, s, p, ChunkRequest{Chunks: chunks})
	if fmt.Sprint(s.texts) != "[b d]" {
		t.Errorf("scored %q", s.texts)
	}
	if got := outcomes(d); got != "3:kept 1:kept | 0:dropped 2:dropped" {
		t.Errorf("got %s", got)
	}
	if d.Stats.Unscored != 0 {
		t.Errorf("%d chunks are unscored, of which none was to be scored", d.Stats.Unscored)
	}
	s = &fakeScorer{}
	d = decide(t, s, p, ChunkRequest{Chunks: chunks[:1]})
	if s.calls != 0 || !d.InsufficientContext || len(d.Chunks) != 0 {
		t.Errorf("all dropped: %d calls, %+v", s.calls, d.Decision)
	}
}

func TestNoChunks(t *testing.T) {
	s := &fakeScorer{}
	d := decide(t, s, policy.Default(), ChunkRequest{})
	if s.calls != 0 || !d.InsufficientContext || d.Err != nil || d.Stats.Retrieved != 0 {
		t.Errorf("%d calls, %+v", s.calls, d)
	}
}

func TestLongChunksAreScoredAsAsked(t *testing.T) {
	for _, c := range []struct {
		policy, request quality.LongChunk
		want            bool
	}{{quality.LongTruncate, "", false}, {quality.LongMaxPassage, "", true}, {quality.LongTruncate, quality.LongMaxPassage, true}, {quality.LongMaxPassage, quality.LongTruncate, false}} {
		p := policy.Default()
		p.Chunks.LongChunk = c.policy
		r := ChunkRequest{Chunks: chunksOf("a")}
		if c.request != "" {
			r.Overrides.LongChunk = &c.request
		}
		s := &fakeScorer{logits: map[string]float32{"a": 3}, change: func(s []ChunkScore) []ChunkScore {
			s[0].Cut, s[0].Windows, s[0].Window = 7, 3, 1
			return s
		}}
		d := decide(t, s, p, r)
		if s.options.MaxPassage != c.want {
			t.Errorf("policy %s, request %q: MaxPassage %v", c.policy, c.request, s.options.MaxPassage)
		}
		if reason := d.Reason(d.Chunks[0]); !strings.Contains(reason, "window 2, the best of 3") || !strings.Contains(reason, "7 of its tokens") || d.Stats.Truncated != 1 {
			t.Errorf("reason %q, %d truncated", reason, d.Stats.Truncated)
		}
	}
}

func TestContradictionsAreErrors(t *testing.T) {
	two, one, above := 2, 1, quality.Relevance(1.5)
	for _, o := range []quality.Overrides{{MinChunks: &two, MaxChunks: &one}, {Threshold: &above}} {
		s := &fakeScorer{}
		if _, err := NewChunkGate(policy.Default(), s, newClock().Now).Decide(t.Context(), ChunkRequest{Chunks: chunksOf("a"), Overrides: o}); err == nil || s.calls > 0 {
			t.Errorf("%+v: %v after %d calls", o, err, s.calls)
		}
	}
}

// A system prompt is no conversation: a follow-up behind it alone retrieves, and it does not count as the last message.
func TestInstructionsAreNoConversation(t *testing.T) {
	e := &fakeEmbedder{dim: 4}
	g := queryGate(t, policy.Default(), e, newClock(), references(t, referencesYAML, "m", e))
	system := Turn{Role: "system", Content: "You are an assistant. May I help?"}
	said := Turn{Role: "user", Content: "what does the rent include"}
	asks := Turn{Role: "assistant", Content: "Do you want the list?"}
	for _, c := range []struct {
		text    string
		history []Turn
		bypass  bool
	}{
		{"go on", nil, false},
		{"go on", []Turn{system}, false},
		{"go on", []Turn{{Role: "Developer", Content: "x"}, {Role: "user", Content: " "}}, false},
		{"go on", []Turn{system, said}, true},
		{"yes", []Turn{said, asks}, false},
		{"yes", []Turn{said, asks, system}, false},
		{"yes", []Turn{said, system}, true},
	} {
		if d := g.Decide(t.Context(), QueryRequest{Text: c.text, History: c.history}); d.NeedsRetrieval == c.bypass {
			t.Errorf("%q after %v: %+v", c.text, c.history, d)
		}
	}
}

// The use of a chunk decision counts what was scored, and names what was cut by the places in the request.
func TestChunkUse(t *testing.T) {
	s := &fakeScorer{logits: map[string]float32{}, change: func(out []ChunkScore) []ChunkScore {
		out[0].Cut = 3 // the most similar one
		out[2].Scored = false
		return out
	}}
	d := decide(t, s, policy.Default(), ChunkRequest{Chunks: similar(chunksOf("a", "b", "c"), 0.1, 0.2, 0.3)})
	if d.Model.Items != 2 || !slices.Equal(d.Model.Cut, []int{2}) {
		t.Errorf("%d items, cut %v; want 2, [2]", d.Model.Items, d.Model.Cut)
	}
}
