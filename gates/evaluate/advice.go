package evaluate

import "fmt"

// Advice is one sentence that a person can act on, with a code for programs.
type Advice struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// The limits at which advice is given.
const (
	// FewChunks: of so few chunks a gate with a minimum of two can leave out one at best.
	FewChunks = 3
	// HighPrecision: where so much of what is retrieved is relevant, dropping chunks costs more answers than it saves tokens.
	HighPrecision = 0.90
	// CostlyNoAnswer: one turn in twenty losing its answer is what users notice.
	CostlyNoAnswer = 0.05
	// CostlyFalseBypass is the rate above which a query gate costs more in wrong answers than it saves, whatever the traffic.
	CostlyFalseBypass = 0.01
	// LittleChitchat: below this share of turns bypassed there is hardly anything to save.
	LittleChitchat = 0.02
	// LanguageBehind: a language of which surely less than this share of another's chitchat is recognised lacks something.
	LanguageBehind = 0.75
)

// mostBypassed returns the group whose chitchat surely bypasses most.
func mostBypassed(groups []QueryGroup) (best QueryGroup) {
	for _, g := range groups {
		if g.Bypass.Of > 0 && g.Bypass.Low >= best.Bypass.Low {
			best = g
		}
	}
	return best
}

// AdviseQuery says what the numbers mean for running the query gate. It returns nothing where there is nothing to say.
func AdviseQuery(r *QueryResult) []Advice {
	var out []Advice
	add := func(code, text string, args ...any) { out = append(out, Advice{code, fmt.Sprintf(text, args...)}) }
	f := r.Overall.FalseBypass
	switch {
	case f.Of == 0:
		add("no_knowledge_turns", "The data has no knowledge turns, so nothing can be said about false bypass: add real questions before trusting the gate.")
	case f.Low > CostlyFalseBypass:
		add("false_bypass_high", "The gate keeps %s of knowledge turns from retrieval (at least %s): raise the threshold, or calibrate with a false-bypass limit; until then it is not justified.", percent(f.Rate()), percent(f.Low))
	case f.High > CostlyFalseBypass:
		add("false_bypass_uncertain", "%d of %d knowledge turns were bypassed, which leaves a true rate of up to %s possible: about %d knowledge turns without a false bypass would show that it is under %s.",
			f.Count, f.Of, percent(f.High), SamplesNeeded(0, CostlyFalseBypass, r.Confidence), percent(CostlyFalseBypass))
	}
	if b := r.Overall.Bypass; b.Of == 0 {
		add("no_chitchat_turns", "The data has no chitchat, so it cannot show what the gate saves.")
	} else if r.Bypassed.High < LittleChitchat {
		add("little_to_save", "On turns like these the gate skips %s of retrievals (at most %s): it is hardly worth its risk unless retrieval is very expensive.", percent(r.Bypassed.Rate()), percent(r.Bypassed.High))
	}
	for _, g := range r.ByLanguage {
		if g.FalseBypass.Low > CostlyFalseBypass && len(r.ByLanguage) > 1 {
			add("language_false_bypass", "In language %q the gate keeps %s of knowledge turns from retrieval (at least %s): give it references and rules of its own, or leave the gate off there.", g.Name, percent(g.FalseBypass.Rate()), percent(g.FalseBypass.Low))
		}
	}
	if best := mostBypassed(r.ByLanguage); len(r.ByLanguage) > 1 {
		for _, g := range r.ByLanguage {
			if g.Bypass.Of > 0 && g.Bypass.High < LanguageBehind*best.Bypass.Low {
				add("language_behind", "In language %q %s of chitchat skips retrieval, against %s in %q: the embedder or the references know it less; give it references and rules of its own, or the gate an embedder of more languages.",
					g.Name, percent(g.Bypass.Rate()), percent(best.Bypass.Rate()), best.Name)
			}
		}
	}
	if r.DuplicateTexts*10 > r.Turns {
		add("duplicates", "%d of %d turns repeat an earlier text. Intervals count each as independent: if they are copies and not traffic, they are too narrow.", r.DuplicateTexts, r.Turns)
	}
	return out
}

// AdviseChunks says where the chunk gate is not justified, and what its numbers mean. It returns nothing where there is nothing to say.
func AdviseChunks(r *ChunkResult) []Advice {
	var out []Advice
	add := func(code, text string, args ...any) { out = append(out, Advice{code, fmt.Sprintf(text, args...)}) }
	if r.MedianGiven <= FewChunks {
		add("few_chunks", "Half of the turns bring %.4g chunks or fewer (%d or fewer are too few to choose from): a chunk gate is not justified. Hand them all on, or retrieve more and let the gate choose.", r.MedianGiven, FewChunks)
	}
	o := r.Overall
	if p := o.RetrievedPrecision; p.Of > 0 && p.Rate() > HighPrecision {
		add("precise_already", "%s of the retrieved chunks are relevant already (%s to %s): a chunk gate is not justified, as it can only lose relevant ones.", percent(p.Rate()), percent(p.Low), percent(p.High))
	}
	if p := o.NoAnswer.Raised; p.Of > 0 && p.Rate() > CostlyNoAnswer {
		add("no_answer_raised", "The gate takes every relevant chunk from %s of turns (%s to %s): lower the threshold, raise the minimum, or calibrate with a least recall.", percent(p.Rate()), percent(p.Low), percent(p.High))
	}
	if o.Recall.Of == 0 {
		add("no_relevant_chunks", "No given chunk is labelled relevant, so recall, false negatives and the price in answers cannot be said: check the labels and the lowest relevant grade.")
	} else if o.Precision.Of > 0 && o.Precision.High < o.RetrievedPrecision.Low {
		add("precision_lowered", "What the gate returns is less relevant (%s) than what it was given (%s): the reranker does not fit this data; do not use the gate with it.", percent(o.Precision.Rate()), percent(o.RetrievedPrecision.Rate()))
	}
	if n := r.NDCG; n.Change.N > 1 && n.Change.High < 0 {
		add("ranking_worse", "Reranking lowers nDCG@%d from %.3f to %.3f: the reranker does not fit this data; keep the retriever's order.", n.At, n.Before.Mean, n.After.Mean)
	}
	if l := o.LostTo; l.Limit > l.Threshold && l.Limit > 0 {
		add("lost_to_maximum", "%d of %d relevant chunks that were not returned had passed the threshold: the maximum number of chunks, the token budget or a metadata rule costs more recall than the threshold does.", l.Limit, l.Limit+l.Threshold+l.Unscored)
	}
	if l := o.LostTo; o.FalseNegative.Of > 0 && 20*l.Unscored > o.FalseNegative.Of {
		add("lost_to_time", "%d of %d relevant chunks were never scored for want of time: raise the budget or give fewer chunks.", l.Unscored, o.FalseNegative.Of)
	}
	return out
}
