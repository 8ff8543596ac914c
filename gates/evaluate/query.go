package evaluate

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Label says whether a turn needs retrieval.
type Label string

// Knowledge turns need retrieval, Chitchat turns do not.
const (
	Knowledge Label = "knowledge"
	Chitchat  Label = "chitchat"
)

// QueryTurn is one labelled turn and what the query gate did with it.
type QueryTurn struct {
	Text  string
	Label Label
	// Lang and Domain group turns: a language code, and a topic or intent. Empty is a group of its own.
	Lang, Domain string
	// Bypassed is the gate's decision, Stage the stage that made it ("pattern", "semantic", …).
	Bypassed bool
	Stage    string
	// Score is the method's number, higher = more of a bypass, where a threshold on it made the decision. NaN where it did not (a
	// pattern rule, a safe-side answer): such a turn keeps its decision at every threshold.
	Score float64
}

// Confusion counts turns by label and decision.
type Confusion struct {
	// ChitchatBypassed and KnowledgeRetrieved are right; KnowledgeBypassed costs a wrong answer, ChitchatRetrieved time.
	ChitchatBypassed   int `json:"chitchat_bypassed"`
	ChitchatRetrieved  int `json:"chitchat_retrieved"`
	KnowledgeBypassed  int `json:"knowledge_bypassed"`
	KnowledgeRetrieved int `json:"knowledge_retrieved"`
}

func (c *Confusion) add(label Label, bypassed bool) {
	switch {
	case label == Chitchat && bypassed:
		c.ChitchatBypassed++
	case label == Chitchat:
		c.ChitchatRetrieved++
	case bypassed:
		c.KnowledgeBypassed++
	default:
		c.KnowledgeRetrieved++
	}
}

func (c Confusion) rates(confidence float64) QueryRates {
	return QueryRates{
		Confusion:   c,
		Bypass:      ClopperPearson(c.ChitchatBypassed, c.ChitchatBypassed+c.ChitchatRetrieved, confidence),
		FalseBypass: ClopperPearson(c.KnowledgeBypassed, c.KnowledgeBypassed+c.KnowledgeRetrieved, confidence),
	}
}

// QueryRates is a confusion with its two rates.
type QueryRates struct {
	Confusion Confusion `json:"confusion"`
	// Bypass is the share of chitchat that skipped retrieval, FalseBypass the share of knowledge that did.
	Bypass      Proportion `json:"bypass"`
	FalseBypass Proportion `json:"false_bypass"`
}

// QueryGroup is the rates of the turns of one language, domain or stage.
type QueryGroup struct {
	Name string `json:"name"`
	QueryRates
}

// QueryResult is what [Queries] found.
type QueryResult struct {
	Turns      int        `json:"turns"`
	Confidence float64    `json:"confidence"`
	Overall    QueryRates `json:"overall"`
	// Bypassed is the share of all turns that skipped retrieval: what the gate saves on a mix like this one.
	Bypassed Proportion `json:"bypassed"`
	// Groups are in the order of their names.
	ByLanguage []QueryGroup `json:"by_language"`
	ByDomain   []QueryGroup `json:"by_domain"`
	ByStage    []QueryGroup `json:"by_stage"`
	// Scored counts turns that have a score; the fields below are empty where there are none of one of the labels.
	Scored int              `json:"scored"`
	ROC    []ROCPoint       `json:"roc,omitempty"`
	AUC    *float64         `json:"auc,omitempty"`
	AtRate []OperatingPoint `json:"at_false_bypass,omitempty"`
	// AtRateByLanguage has what each language would reach with a threshold of its own: languages that have scores of both labels, where there
	// are several languages.
	AtRateByLanguage []LanguagePoints `json:"at_false_bypass_by_language,omitempty"`
	// LeaveOneOut has one table per rate of [QueryOptions.FalseBypass].
	LeaveOneOut []LeaveOneOut `json:"leave_one_domain_out,omitempty"`
	// Scores is the histogram of scores by label.
	Scores *Histogram `json:"scores,omitempty"`
	// FalseBypasses and Missed are the turns decided wrongly: knowledge bypassed, highest score first, and chitchat retrieved,
	// lowest score first; at most [QueryOptions.Examples] of each.
	FalseBypasses []QueryExample `json:"false_bypasses,omitempty"`
	Missed        []QueryExample `json:"missed_chitchat,omitempty"`
	// DuplicateTexts counts turns whose text and label another turn before them has: intervals count them as independent.
	DuplicateTexts int `json:"duplicate_texts"`
}

// LanguagePoints is one language at each rate of [QueryOptions.FalseBypass].
type LanguagePoints struct {
	Lang   string           `json:"lang"`
	AtRate []OperatingPoint `json:"at_false_bypass"`
}

// QueryExample is one turn shown as an example.
type QueryExample struct {
	Text   string   `json:"text"`
	Lang   string   `json:"lang,omitempty"`
	Domain string   `json:"domain,omitempty"`
	Stage  string   `json:"stage,omitempty"`
	Score  *float64 `json:"score,omitempty"`
}

// QueryOptions are options of [Queries]; the zero value is ready to use.
type QueryOptions struct {
	// Confidence of intervals, DefaultConfidence where 0.
	Confidence float64
	// FalseBypass are the rates at which bypass is stated, DefaultFalseBypassRates where nil.
	FalseBypass []float64
	// Examples bounds the examples per kind, DefaultExamples where 0; negative: none.
	Examples int
}

// DefaultExamples is enough to see a pattern in the mistakes and short enough to read.
const DefaultExamples = 20

// DefaultFalseBypassRates are one wrong answer in a hundred and in five hundred: what an internal tool and what a careful one allow.
func DefaultFalseBypassRates() []float64 { return []float64{0.01, 0.002} }

func (o *QueryOptions) fill() error {
	if o.Confidence == 0 {
		o.Confidence = DefaultConfidence
	}
	if err := checkConfidence(o.Confidence); err != nil {
		return err
	}
	if o.FalseBypass == nil {
		o.FalseBypass = DefaultFalseBypassRates()
	}
	for _, r := range o.FalseBypass {
		if !(r >= 0 && r < 1) {
			return &InputError{Row: -1, Field: "false-bypass rate", Value: format(r), Want: "0 or more and under 1"}
		}
	}
	if o.Examples == 0 {
		o.Examples = DefaultExamples
	}
	return nil
}

func checkConfidence(c float64) error {
	if !(c > 0 && c < 1) {
		return &InputError{Row: -1, Field: "confidence", Value: format(c), Want: "between 0 and 1, such as 0.95"}
	}
	return nil
}

func format(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// checkTurns reports the first record without a usable label or score.
func checkTurns(turns []QueryTurn) error {
	if len(turns) == 0 {
		return &InputError{Row: -1, Field: "data", Value: "empty", Want: "at least one labelled turn"}
	}
	for i, t := range turns {
		if t.Label != Knowledge && t.Label != Chitchat {
			return &InputError{Row: i, Field: "label", Value: strconv.Quote(string(t.Label)), Want: `"knowledge" or "chitchat"`}
		}
		if math.IsInf(t.Score, 0) {
			return &InputError{Row: i, Field: "score", Value: format(t.Score), Want: "a finite number, or NaN where no threshold decided"}
		}
	}
	return nil
}

// Queries tabulates what the query gate did. It returns an [*InputError] for a record or option that cannot be used.
func Queries(turns []QueryTurn, o QueryOptions) (*QueryResult, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := checkTurns(turns); err != nil {
		return nil, err
	}
	r := &QueryResult{Turns: len(turns), Confidence: o.Confidence}
	var all Confusion
	type key struct {
		label Label
		text  string
	}
	seen := make(map[key]bool, len(turns))
	for _, t := range turns {
		all.add(t.Label, t.Bypassed)
		if !math.IsNaN(t.Score) {
			r.Scored++
		}
		k := key{t.Label, t.Text}
		if seen[k] {
			r.DuplicateTexts++
		}
		seen[k] = true
	}
	r.Overall = all.rates(o.Confidence)
	r.Bypassed = ClopperPearson(all.ChitchatBypassed+all.KnowledgeBypassed, len(turns), o.Confidence)
	r.ByLanguage = groupBy(turns, o.Confidence, func(t *QueryTurn) string { return t.Lang })
	r.ByDomain = groupBy(turns, o.Confidence, func(t *QueryTurn) string { return t.Domain })
	r.ByStage = groupBy(turns, o.Confidence, func(t *QueryTurn) string { return t.Stage })
	r.FalseBypasses = examples(turns, Knowledge, true, o.Examples)
	r.Missed = examples(turns, Chitchat, false, o.Examples)

	s := newSweep(turns)
	if s.scored[Knowledge] == 0 || s.scored[Chitchat] == 0 {
		return r, nil
	}
	r.ROC = s.roc(maxROCPoints)
	auc := s.auc()
	r.AUC = &auc
	r.Scores = queryHistogram(turns)
	for _, rate := range o.FalseBypass {
		r.AtRate = append(r.AtRate, s.at(rate, o.Confidence))
	}
	r.AtRateByLanguage = languagePoints(turns, r.ByLanguage, o)
	r.LeaveOneOut = leaveOneOut(turns, o.FalseBypass, o.Confidence)
	return r, nil
}

// languagePoints gives each language the thresholds that are best for it.
func languagePoints(turns []QueryTurn, languages []QueryGroup, o QueryOptions) []LanguagePoints {
	if len(languages) < 2 {
		return nil
	}
	sorted := byScore(turns)
	var out []LanguagePoints
	for _, g := range languages {
		s := sweepOf(sorted, func(t *QueryTurn) bool { return t.Lang == g.Name })
		if s.scored[Knowledge] == 0 || s.scored[Chitchat] == 0 {
			continue
		}
		p := LanguagePoints{Lang: g.Name}
		for _, rate := range o.FalseBypass {
			p.AtRate = append(p.AtRate, s.at(rate, o.Confidence))
		}
		out = append(out, p)
	}
	return out
}

// groupBy returns the rates per value of name, in the order of the names.
func groupBy(turns []QueryTurn, confidence float64, name func(*QueryTurn) string) []QueryGroup {
	counts := map[string]*Confusion{}
	for i := range turns {
		n := name(&turns[i])
		if counts[n] == nil {
			counts[n] = &Confusion{}
		}
		counts[n].add(turns[i].Label, turns[i].Bypassed)
	}
	groups := make([]QueryGroup, 0, len(counts))
	for n, c := range counts {
		groups = append(groups, QueryGroup{Name: n, QueryRates: c.rates(confidence)})
	}
	slices.SortFunc(groups, func(a, b QueryGroup) int { return cmp.Compare(a.Name, b.Name) })
	return groups
}

// examples returns up to limit turns of a label with a decision, the worst mistakes first: bypassed ones by falling score, retrieved
// ones by rising score. Turns without a score come first, as a rule that is wrong is wrong every time.
func examples(turns []QueryTurn, label Label, bypassed bool, limit int) []QueryExample {
	var picked []*QueryTurn
	for i := range turns {
		if turns[i].Label == label && turns[i].Bypassed == bypassed {
			picked = append(picked, &turns[i])
		}
	}
	slices.SortStableFunc(picked, func(a, b *QueryTurn) int {
		// cmp.Compare orders NaN before every number.
		if an, bn := math.IsNaN(a.Score), math.IsNaN(b.Score); an || bn || !bypassed {
			return cmp.Compare(a.Score, b.Score)
		}
		return cmp.Compare(b.Score, a.Score)
	})
	var out []QueryExample
	for _, t := range picked[:min(len(picked), max(limit, 0))] {
		e := QueryExample{Text: t.Text, Lang: t.Lang, Domain: t.Domain, Stage: t.Stage}
		if !math.IsNaN(t.Score) {
			score := t.Score
			e.Score = &score
		}
		out = append(out, e)
	}
	return out
}
