package quality

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Mode says how much the caller wants back.
type Mode string

const (
	// ModeDefault applies the threshold of the query's type and the policy's maximum.
	ModeDefault Mode = "default"
	// ModeEverything ("show me all about it") takes the policy's lower threshold and returns all that pass.
	ModeEverything Mode = "everything"
)

// Fallback says what to do when fewer than the minimum pass.
type Fallback string

const (
	// FallbackTop adds the best of those that did not pass.
	FallbackTop Fallback = "top"
	// FallbackKeyword adds those that share the most with the query's words (BM25).
	FallbackKeyword Fallback = "keyword"
	// FallbackExpand is FallbackTop, and gives a longer query to retrieve again with.
	FallbackExpand Fallback = "expand"
	// FallbackInsufficient adds nothing and says that the context does not suffice.
	FallbackInsufficient Fallback = "insufficient"
)

// LongChunk says how a chunk longer than the model's window is scored.
type LongChunk string

const (
	// LongTruncate scores the beginning.
	LongTruncate LongChunk = "truncate"
	// LongMaxPassage scores overlapping windows and takes the best; see [BestWindow].
	LongMaxPassage LongChunk = "max_passage"
)

// All is a maximum that lets every chunk through.
const All = math.MaxInt

// Defaults. The thresholds were chosen for MS MARCO cross-encoders, whose scores are mostly near 0 or near 1: between 0.4 and 0.8
// few chunks change sides. Broad questions get a lower one, because a chunk that answers a part of them scores lower.
const (
	DefaultThreshold           Relevance = 0.6
	DefaultBroadThreshold      Relevance = 0.4
	DefaultEverythingThreshold Relevance = 0.05
	// DefaultFloor is the average relevance under which a fallback's chunks are reported as insufficient context.
	DefaultFloor Relevance = 0.4
	// DefaultMinChunks keeps one wrong score from emptying the context.
	DefaultMinChunks = 2
	// DefaultMaxChunks is what retrievers for chat usually return; more dilutes the context.
	DefaultMaxChunks = 5
)

// A threshold outside this range gets a warning; see [Policy.Warnings].
const (
	usualLow  Relevance = 0.4
	usualHigh Relevance = 0.8
)

// Thresholds holds one threshold per type of query.
type Thresholds struct {
	FAQ        Relevance `yaml:"faq"`
	Lookup     Relevance `yaml:"lookup"`
	Broad      Relevance `yaml:"broad"`
	Comparison Relevance `yaml:"comparison"`
}

// For returns the threshold for queries of type t; an unknown type gets that of FAQ.
func (t Thresholds) For(q QueryType) Relevance {
	switch q {
	case Lookup:
		return t.Lookup
	case Broad:
		return t.Broad
	case Comparison:
		return t.Comparison
	}
	return t.FAQ
}

// Policy is the chunk gate's part of a policy file. [DefaultPolicy] is complete; a Policy is not changed after [Policy.Validate].
type Policy struct {
	// Space is the score space of all thresholds here; it must be stated.
	Space      Space      `yaml:"space"`
	Thresholds Thresholds `yaml:"thresholds"`
	// EverythingThreshold replaces Thresholds in [ModeEverything].
	EverythingThreshold Relevance `yaml:"everything_threshold"`
	MinChunks           int       `yaml:"min_chunks"`
	MaxChunks           int       `yaml:"max_chunks"`
	Mode                Mode      `yaml:"mode"`
	Fallback            Fallback  `yaml:"fallback"`
	LongChunk           LongChunk `yaml:"long_chunk"`
	// MaxContextTokens bounds the tokens of the returned chunks together; 0 means no bound.
	MaxContextTokens int `yaml:"max_context_tokens"`
	// Floor: a fallback whose chunks average less is reported as insufficient context.
	Floor Relevance `yaml:"insufficient_below"`
	Rules []Rule    `yaml:"rules"`
}

// DefaultPolicy returns the policy that applies where none was written.
func DefaultPolicy() Policy {
	return Policy{
		Space: SpaceRelevance,
		Thresholds: Thresholds{FAQ: DefaultThreshold, Lookup: DefaultThreshold, Broad: DefaultBroadThreshold,
			Comparison: DefaultThreshold},
		EverythingThreshold: DefaultEverythingThreshold,
		MinChunks:           DefaultMinChunks, MaxChunks: DefaultMaxChunks,
		Mode: ModeDefault, Fallback: FallbackTop, LongChunk: LongTruncate, Floor: DefaultFloor,
	}
}

// thresholds lists the policy's thresholds with their names in the file.
func (p *Policy) thresholds() [4]struct {
	field string
	value Relevance
} {
	t := &p.Thresholds
	return [...]struct {
		field string
		value Relevance
	}{{"thresholds.faq", t.FAQ}, {"thresholds.lookup", t.Lookup}, {"thresholds.broad", t.Broad}, {"thresholds.comparison", t.Comparison}}
}

// Validate reports everything that is wrong with p, joined; each part is a [RangeError], [ChoiceError], [MinMaxError],
// [SpaceError] or [RuleError].
func (p *Policy) Validate() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if p.Space != SpaceRelevance {
		add(&SpaceError{Field: "space", Got: p.Space, Want: SpaceRelevance})
	}
	for _, t := range p.thresholds() {
		add(checkUnit("policy", t.field, t.value))
	}
	add(checkUnit("policy", "everything_threshold", p.EverythingThreshold))
	add(checkUnit("policy", "insufficient_below", p.Floor))
	add(checkAtLeast("policy", "min_chunks", p.MinChunks, 0))
	add(checkAtLeast("policy", "max_chunks", p.MaxChunks, 1))
	if p.MaxChunks >= 1 { // otherwise the line above has said it
		add(checkMinMax("policy", p.MinChunks, p.MaxChunks))
	}
	add(checkAtLeast("policy", "max_context_tokens", p.MaxContextTokens, 0))
	add(checkChoice("policy", "mode", p.Mode, ModeDefault, ModeEverything))
	add(checkChoice("policy", "fallback", p.Fallback, FallbackTop, FallbackKeyword, FallbackExpand, FallbackInsufficient))
	add(checkChoice("policy", "long_chunk", p.LongChunk, LongTruncate, LongMaxPassage))
	errs = appendRuleErrors(errs, p.Rules)
	return errors.Join(errs...)
}

// Warnings says, one sentence each, which thresholds are allowed but unusual, and what to expect of them. The threshold of
// everything mode is low on purpose and never warned about.
func (p *Policy) Warnings() []string {
	var all []string
	for _, t := range p.thresholds() {
		switch {
		case t.value < usualLow:
			all = append(all, fmt.Sprintf("%s is %v, under %v: expect chunks that share a topic with the query but do not answer it, "+
				"and hardly any fallback or abstention", t.field, t.value, usualLow))
		case t.value > usualHigh:
			all = append(all, fmt.Sprintf("%s is %v, over %v: expect relevant chunks to be dropped, and the fallback or "+
				"insufficient_context for many queries that the documents do answer", t.field, t.value, usualHigh))
		}
	}
	return all
}

// Overrides is what one request says. A nil field was not given.
type Overrides struct {
	Threshold        *Relevance
	MinChunks        *int
	MaxChunks        *int
	Mode             *Mode
	Fallback         *Fallback
	LongChunk        *LongChunk
	MaxContextTokens *int
	ReturnContext    bool
}

// Params is what holds for one request. [Resolve] makes it.
type Params struct {
	Threshold     Relevance
	ThresholdFrom string // "the request", "everything mode", "the policy for broad queries": completes "threshold 0.6 of …"
	MinChunks     int
	MaxChunks     int // at least MinChunks; All for no bound
	Mode          Mode
	Fallback      Fallback
	LongChunk     LongChunk
	// MaxContextTokens is 0 for no bound.
	MaxContextTokens int
	ReturnContext    bool
	Floor            Relevance
	QueryType        QueryType
	Rules            []Rule
	// Caveat is what every reason that rests on a score says at its end: why the scores are doubtful. The caller sets it.
	Caveat string
	// WhyUnscored completes "not scored: …" for chunks without a score. Empty means that time ran out. The caller sets it where
	// it knows better, as when the model failed.
	WhyUnscored string
}

// Resolve puts a request's settings on a policy, for a query of type q. What the request says wins. It fails with
// [Policy.Validate]'s errors when p is not valid, and with a [RangeError], [ChoiceError] or [MinMaxError] that names the
// request's field. When the request gives only one of minimum and maximum, the policy's other one is bent to fit.
func Resolve(p Policy, o Overrides, q QueryType) (Params, error) {
	if err := p.Validate(); err != nil {
		return Params{}, err
	}
	if err := o.validate(); err != nil {
		return Params{}, err
	}
	r := Params{
		MinChunks: p.MinChunks, MaxChunks: p.MaxChunks,
		Mode:             or(o.Mode, p.Mode),
		Fallback:         or(o.Fallback, p.Fallback),
		LongChunk:        or(o.LongChunk, p.LongChunk),
		MaxContextTokens: or(o.MaxContextTokens, p.MaxContextTokens),
		ReturnContext:    o.ReturnContext, Floor: p.Floor, QueryType: q, Rules: p.Rules,
	}
	everything := r.Mode == ModeEverything
	switch {
	case o.Threshold != nil:
		r.Threshold, r.ThresholdFrom = *o.Threshold, "the request"
	case everything:
		r.Threshold, r.ThresholdFrom = p.EverythingThreshold, "everything mode"
	default:
		r.Threshold, r.ThresholdFrom = p.Thresholds.For(q), "the policy for "+string(q)+" queries"
	}
	if everything {
		r.MaxChunks = All
	}
	if o.MaxChunks != nil {
		r.MaxChunks = *o.MaxChunks
		r.MinChunks = min(r.MinChunks, r.MaxChunks)
	}
	if o.MinChunks != nil {
		r.MinChunks = *o.MinChunks
		r.MaxChunks = max(r.MaxChunks, r.MinChunks)
	}
	return r, nil
}

func or[T any](given *T, otherwise T) T {
	if given != nil {
		return *given
	}
	return otherwise
}

func (o *Overrides) validate() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if o.Threshold != nil {
		add(checkUnit("request", "threshold", *o.Threshold))
	}
	if o.MinChunks != nil {
		add(checkAtLeast("request", "min_chunks", *o.MinChunks, 0))
	}
	if o.MaxChunks != nil {
		add(checkAtLeast("request", "max_chunks", *o.MaxChunks, 1))
		if o.MinChunks != nil && *o.MaxChunks >= 1 {
			add(checkMinMax("request", *o.MinChunks, *o.MaxChunks))
		}
	}
	if o.MaxContextTokens != nil {
		add(checkAtLeast("request", "max_context_tokens", *o.MaxContextTokens, 1))
	}
	if o.Mode != nil {
		add(checkChoice("request", "mode", *o.Mode, ModeDefault, ModeEverything))
	}
	if o.Fallback != nil {
		add(checkChoice("request", "fallback", *o.Fallback, FallbackTop, FallbackKeyword, FallbackExpand, FallbackInsufficient))
	}
	if o.LongChunk != nil {
		add(checkChoice("request", "long_chunk", *o.LongChunk, LongTruncate, LongMaxPassage))
	}
	return errors.Join(errs...)
}

// RangeError says that a number is outside what its field allows.
type RangeError struct {
	Source   string // "request" or "policy"
	Field    string
	Value    float64 // may be NaN
	Min, Max float64 // inclusive; Max is +Inf where there is no upper bound
}

func (e *RangeError) Error() string {
	value, low := number(e.Value), number(e.Min)
	if math.IsInf(e.Max, 1) {
		return fmt.Sprintf("%s is %s in the %s: it must be at least %s", e.Field, value, e.Source, low)
	}
	return fmt.Sprintf("%s is %s in the %s: it must be within %s…%s", e.Field, value, e.Source, low, number(e.Max))
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// ChoiceError says that a word is none of those that its field knows.
type ChoiceError struct {
	Source  string // "request" or "policy"
	Field   string
	Value   string
	Allowed []string
}

func (e *ChoiceError) Error() string {
	return fmt.Sprintf("%s is %q in the %s: it must be one of %s", e.Field, e.Value, e.Source, strings.Join(e.Allowed, ", "))
}

// MinMaxError says that one source asks for a minimum above its maximum.
type MinMaxError struct {
	Source               string // "request" or "policy"
	MinChunks, MaxChunks int
}

func (e *MinMaxError) Error() string {
	return fmt.Sprintf("min_chunks %d is above max_chunks %d in the %s: lower min_chunks or raise max_chunks", e.MinChunks, e.MaxChunks, e.Source)
}

func checkUnit(source, field string, v Relevance) error {
	if v >= 0 && v <= 1 { // false for NaN
		return nil
	}
	return &RangeError{Source: source, Field: field, Value: float64(v), Min: 0, Max: 1}
}

func checkAtLeast(source, field string, v, least int) error {
	if v >= least {
		return nil
	}
	return &RangeError{Source: source, Field: field, Value: float64(v), Min: float64(least), Max: math.Inf(1)}
}

func checkMinMax(source string, least, most int) error {
	if least <= most {
		return nil
	}
	return &MinMaxError{Source: source, MinChunks: least, MaxChunks: most}
}

func checkChoice[T ~string](source, field string, v T, allowed ...T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	return &ChoiceError{Source: source, Field: field, Value: string(v), Allowed: words}
}
