package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ragate/gates/pattern"
	"ragate/gates/policy"
	"ragate/gates/semantic"
	"ragate/gates/textnorm"
)

// Stage names the part of the gate that decided.
type Stage string

const (
	StagePattern  Stage = "pattern"
	StageSemantic Stage = "semantic"
	StageDefault  Stage = "default" // no stage could decide; the turn retrieves
)

// References is a reference set with its vectors, ready to compare with.
type References struct {
	Index       *semantic.Index
	Fingerprint string // of the texts and of the model that embedded them
}

// embedAtOnce is how many references one call embeds: with all at once, a reload would make every other request wait for the last of them.
const embedAtOnce = 64

// EmbedReferences embeds a set, some references at a time. model names everything of the embedder that changes a vector, for the fingerprint.
func EmbedReferences(ctx context.Context, set *semantic.Set, e Embedder, model string) (*References, []float32, error) {
	var vectors []float32
	dim := 0
	for texts := range slices.Chunk(set.Texts(), embedAtOnce) {
		v, d, _, err := e.EmbedQueries(ctx, texts)
		if err != nil {
			return nil, nil, fmt.Errorf("embed the reference queries: %w", err)
		}
		if len(v) != len(texts)*d {
			return nil, nil, fmt.Errorf("embed the reference queries: %d values came for %d texts of %d dimensions", len(v), len(texts), d)
		}
		vectors, dim = append(vectors, v...), d
	}
	r, err := NewReferences(set, vectors, dim, model)
	if err != nil {
		return nil, nil, err
	}
	return r, vectors, nil
}

// NewReferences puts a set and its vectors together, as they come from a cache.
func NewReferences(set *semantic.Set, vectors []float32, dim int, model string) (*References, error) {
	index, err := semantic.NewIndex(set, vectors, dim)
	if err != nil {
		return nil, err
	}
	return &References{Index: index, Fingerprint: set.Fingerprint(model)}, nil
}

// QueryGate decides whether a turn needs retrieval. It is safe for concurrent use; SetReferences may be called at any time.
type QueryGate struct {
	policy      policy.Policy
	matcher     *pattern.Matcher
	embedder    Embedder
	clock       Clock
	memo        Memo // nil: none
	references  atomic.Pointer[reference]
	fingerprint []string
}

// reference is what one set of references makes of the policy.
type reference struct {
	*References
	method      semantic.Method
	fingerprint string // of the policy with these references
}

// NewQueryGate makes the gate of one policy. rules are the pattern files; embedder may be nil when the policy leaves the semantic layer
// out; parts identify the models, for the fingerprint. Errors: pattern.Errors, an unknown method.
func NewQueryGate(p policy.Policy, rules []pattern.File, e Embedder, clock Clock, parts ...string) (*QueryGate, error) {
	m, err := pattern.New(rules, pattern.Options{Length: p.Query.LengthRule, Glossary: p.Query.Glossary})
	if err != nil {
		return nil, err
	}
	parts = slices.Clone(parts) // the caller's array may have room behind them
	for _, f := range rules {
		parts = append(parts, string(f.Data))
	}
	g := &QueryGate{policy: p, matcher: m, embedder: e, clock: clock, fingerprint: parts}
	return g, g.SetReferences(nil)
}

// SetReferences swaps the references in one step; requests in flight finish with the old ones. nil leaves the semantic layer out, and so
// does a policy that has it off. On an error the old ones stay.
func (g *QueryGate) SetReferences(r *References) error {
	if g.policy.Query.Semantic.Off {
		r = nil
	}
	next := &reference{References: r, fingerprint: g.policy.Fingerprint(g.fingerprint...)}
	if r != nil {
		m, err := r.Index.Set().Method(g.policy.Query.Semantic.Method)
		if err != nil {
			return fmt.Errorf("policy %s: %w", g.policy.Name, err)
		}
		if t := g.policy.Query.Semantic.Threshold; t != nil {
			m.Threshold = *t
		}
		next.method = m
		next.fingerprint = g.policy.Fingerprint(append(slices.Clone(g.fingerprint), r.Fingerprint, fmt.Sprintf("%+v", m))...)
	}
	g.references.Store(next)
	return nil
}

// QueryRequest is one turn.
type QueryRequest struct {
	Text    string
	History []Turn // oldest first
}

// QueryDecision is what to do with a turn, and why. Stages that did not run are nil.
type QueryDecision struct {
	NeedsRetrieval bool
	Stage          Stage
	Reason         string
	Pattern        *pattern.Result
	Semantic       *semantic.Verdict
	Chain          []string // the stages that ran, in order, with what was wrong with each that failed
	Policy         PolicyRef
	Times          QueryTimes
	Model          ModelUse // of the embedder; zero when it was not asked
	Err            error    // why a stage failed; nil when none did
}

// PolicyRef names what decided.
type PolicyRef struct{ Name, Fingerprint string }

// QueryTimes is where the time went.
type QueryTimes struct {
	Pattern, Similarity, Total time.Duration
}

// Decide runs the stages until one is sure. ctx bounds the time; when it ends, the turn retrieves. Decide never fails: a stage that does
// is named in the decision.
func (g *QueryGate) Decide(ctx context.Context, r QueryRequest) (d QueryDecision) {
	began := g.clock()
	ref := g.references.Load()
	d.Policy = PolicyRef{g.policy.Name, ref.fingerprint}
	defer func() { d.Times.Total = g.clock().Sub(began) }()

	turns := conversation(r.History)
	history, asked := len(turns) > 0, afterQuestion(turns)
	found, bypass := g.matcher.Match(r.Text, pattern.Context{History: history, AfterQuestion: asked})
	d.Times.Pattern = g.clock().Sub(began)
	d.Chain = append(d.Chain, string(StagePattern))
	if bypass || found.Retrieve {
		d.NeedsRetrieval, d.Stage, d.Reason, d.Pattern = !bypass, StagePattern, found.Reason, &found
		return d
	}
	d.NeedsRetrieval = true
	if ref.References == nil || g.embedder == nil {
		d.Stage, d.Reason = StageDefault, "no rule for small talk matches, and this policy has no further stage"
		return d
	}
	fail := func(why string, err error) QueryDecision {
		d.Stage, d.Err = StageDefault, err
		d.Reason = why + ", so the turn retrieves"
		d.Chain = append(d.Chain, fmt.Sprintf("%s: %s", StageSemantic, why))
		return d
	}
	if ctx.Err() != nil {
		return fail("the budget was spent before the semantic stage", context.Cause(ctx))
	}
	var key [32]byte
	if g.memo != nil {
		// Of the conversation nothing else is looked at.
		k, known, ok := g.memo.Recall(ctx, []string{"query 1", ref.fingerprint, r.Text, strconv.FormatBool(history), strconv.FormatBool(asked)})
		if ok {
			v := known.(remembered)
			d.Model = v.model
			return d.judged(v.verdict)
		}
		key = k
	}
	vectors, dim, use, err := g.embedder.EmbedQueries(ctx, []string{r.Text})
	d.Model = use
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fail("the budget was spent while the query was embedded", err)
	case errors.Is(err, ErrOverloaded):
		return fail("the query could not be embedded, as the queue is full", err)
	case err != nil:
		return fail("the query could not be embedded", err)
	case dim != ref.Index.Dim() || len(vectors) != dim:
		return fail("the query's vector and the references' are of different models",
			fmt.Errorf("%d values of %d dimensions, and references of %d", len(vectors), dim, ref.Index.Dim()))
	}
	compared := g.clock()
	v := ref.method.Decide(ref.Index.Features(semantic.Query{Text: r.Text, Vector: vectors, History: history, AfterQuestion: asked}))
	d.Times.Similarity = g.clock().Sub(compared)
	if g.memo != nil {
		use.Tokenize, use.Queue, use.Inference, use.Reused = 0, 0, 0, use.Items
		g.memo.Remember(key, remembered{v, use}, 1024+len(v.Reason))
	}
	return d.judged(v)
}

// remembered is what the semantic stage said.
type remembered struct {
	verdict semantic.Verdict
	model   ModelUse
}

// judged is the decision by the semantic stage.
func (d QueryDecision) judged(v semantic.Verdict) QueryDecision {
	d.Chain = append(d.Chain, string(StageSemantic))
	d.NeedsRetrieval, d.Stage, d.Reason, d.Semantic = !v.Bypass, StageSemantic, v.Reason, &v
	return d
}

// SetMemo makes the gate remember what its semantic stage said. It must be called before the gate is used.
func (g *QueryGate) SetMemo(m Memo) { g.memo = m }

// Undecided is the decision on a turn that could not be looked at, for callers that have no room or no time for it: it retrieves, as this
// policy's. why is the beginning of a sentence, err its cause.
func (g *QueryGate) Undecided(why string, err error) QueryDecision {
	return QueryDecision{NeedsRetrieval: true, Stage: StageDefault, Reason: why + ", so the turn retrieves", Chain: []string{why},
		Policy: PolicyRef{g.policy.Name, g.references.Load().fingerprint}, Err: err}
}

// conversation returns the turns in which something was said: not those that instruct the model, which many callers send with every turn.
func conversation(history []Turn) []Turn {
	var said []Turn
	for _, t := range history {
		if !strings.EqualFold(t.Role, "system") && !strings.EqualFold(t.Role, "developer") && strings.TrimSpace(t.Content) != "" {
			said = append(said, t)
		}
	}
	return said
}

// afterQuestion says whether the last message is the assistant's and asks something.
func afterQuestion(history []Turn) bool {
	if len(history) == 0 {
		return false
	}
	last := history[len(history)-1]
	return strings.EqualFold(last.Role, "assistant") && textnorm.HasQuestionMark(last.Content)
}
