package quality

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Reason says in one sentence why r, a result of d, had its outcome, for a person who wants to change it.
func (d *Decision) Reason(r Result) string {
	var b strings.Builder
	b.Grow(160)
	p := &d.params
	relevance, threshold := pair(r.Relevance, p.Threshold)
	judged := func() {
		if !r.Scored {
			b.WriteString(d.whyUnscored(r))
			return
		}
		b.WriteString("relevance ")
		b.WriteString(relevance)
		d.window(&b, r)
	}
	ofThreshold := func(verb string) {
		b.WriteString(verb)
		b.WriteString(threshold)
		if p.ThresholdFrom != "" {
			b.WriteString(" of ")
			b.WriteString(p.ThresholdFrom)
		}
	}
	switch r.cause {
	case passed:
		judged()
		ofThreshold(reaches)
	case overMax:
		judged()
		ofThreshold(reaches)
		fmt.Fprintf(&b, ", but max_chunks %d are full of better ones", p.MaxChunks)
	case below:
		judged()
		ofThreshold(isUnder)
	case addedTop, addedKeyword:
		judged()
		if r.Scored {
			ofThreshold(isUnder)
		}
		fmt.Fprintf(&b, "; added because %d passed and min_chunks is %d, ", d.reached, p.MinChunks)
		switch {
		case r.cause == addedTop:
			b.WriteString("as one of the best of the rest")
		case r.bm25 > 0:
			b.WriteString("for the words it shares with the query (BM25 ")
			b.WriteString(strconv.FormatFloat(r.bm25, 'f', 2, 64))
			b.WriteString(")")
		default:
			b.WriteString("by rank, as it shares no word with the query")
		}
	case addedBlind:
		judged()
		by := "similarity"
		if d.Stats.ScoredBy == ByOrder {
			by = "the given order"
		}
		fmt.Fprintf(&b, "; nothing was, so the first %d by %s are returned unjudged", p.MinChunks, by)
	case overContext:
		judged()
		if r.Scored {
			ofThreshold(verdict(r.Relevance, p.Threshold))
		}
		fmt.Fprintf(&b, "; its %d tokens no longer fit into max_context_tokens %d, of which better chunks hold %d",
			tokensOf(r.chunk), p.MaxContextTokens, r.contextUsed)
	case notScored:
		judged()
		if !r.failed && p.WhyUnscored == "" {
			b.WriteString("; raise budget_ms or send fewer chunks to have all judged")
		}
	case byRule:
		rule := &p.Rules[r.Rule]
		fmt.Fprintf(&b, "rule %q drops it: %s", rule.ID, rule.condition())
		if r.Scored {
			b.WriteString("; relevance ")
			b.WriteString(relevance)
		}
	}
	if r.Rule >= 0 && r.cause != byRule {
		rule := &p.Rules[r.Rule]
		fmt.Fprintf(&b, "; rule %q puts it last: %s", rule.ID, rule.condition())
	}
	if r.Scored && r.chunk.Cut > 0 {
		fmt.Fprintf(&b, "; %d of its tokens were over the model's limit and not read", r.chunk.Cut)
	}
	if r.Scored && r.cause != byRule && p.Caveat != "" {
		b.WriteString("; ")
		b.WriteString(p.Caveat)
	}
	return b.String()
}

const (
	reaches = " reaches the threshold "
	isUnder = " is under the threshold "
)

func verdict(r, threshold Relevance) string {
	if r >= threshold {
		return reaches
	}
	return isUnder
}

func (d *Decision) window(b *strings.Builder, r Result) {
	if r.chunk.Windows > 1 {
		fmt.Fprintf(b, " (of window %d, the best of %d)", r.chunk.Window+1, r.chunk.Windows)
	}
}

func (d *Decision) whyUnscored(r Result) string {
	switch {
	case r.failed:
		return "not scored: the model gave no number for it"
	case d.params.WhyUnscored != "":
		return "not scored: " + d.params.WhyUnscored
	}
	return "not scored: the time ran out"
}

// condition says what the rule looked for.
func (r *Rule) condition() string {
	if r.OlderThanDays > 0 {
		return fmt.Sprintf("%s is older than %d days", r.Field, r.OlderThanDays)
	}
	return fmt.Sprintf("%s is %v", r.Field, r.Equals)
}

// insufficient says why the context does not suffice, or "".
func (d *Decision) insufficient(eligible int) string {
	p, s := &d.params, &d.Stats
	switch {
	case s.Retrieved == 0:
		return "no chunk was given"
	case eligible == 0:
		return "metadata rules dropped every chunk"
	case s.FallbackTriggered && p.Fallback == FallbackInsufficient:
		return fmt.Sprintf("%d of %d chunks passed, and min_chunks is %d", d.reached, s.Retrieved, p.MinChunks)
	case s.FallbackTriggered && s.HasRelevance && s.AvgRelevance < p.Floor:
		average, floor := pair(s.AvgRelevance, p.Floor)
		return fmt.Sprintf("the fallback's chunks have an average relevance of %s, under the floor %s", average, floor)
	case !s.Filtered && s.Returned == 0:
		return "nothing was scored, and min_chunks is 0, so nothing is returned"
	}
	return ""
}

// pair prints two numbers with three decimals, or in full where that would make different numbers look the same.
func pair(a, b Relevance) (string, string) {
	round := func(r Relevance) string {
		return strconv.FormatFloat(math.Round(float64(r)*1000)/1000, 'f', -1, 64)
	}
	x, y := round(a), round(b)
	if x == y && a != b {
		return number(float64(a)), number(float64(b))
	}
	return x, y
}
