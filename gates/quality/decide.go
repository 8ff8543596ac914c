package quality

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Chunk is one retrieved chunk with what is known of it.
type Chunk struct {
	Text string
	// Similarity is the retriever's, for the order of scoring and of what was not scored; nil when not given. It is never compared
	// with a threshold. NaN and infinities count as not given.
	Similarity *float64
	// Metadata is what rules look at; nil when there is none.
	Metadata Fields
	// Logit is the score, when Scored. One that is not finite counts as a failed row: the chunk has no score.
	Logit  Logit
	Scored bool
	// Tokens of the whole text, for MaxContextTokens; 0 where it was never tokenised, and then it is estimated.
	Tokens int
	// Cut is how many of them the model did not read.
	Cut int
	// Windows says how many windows a long chunk was scored in, and Window which of them (from 0) gave Logit; 0 for one whole.
	Windows, Window int
}

// Outcome is what became of a chunk.
type Outcome string

const (
	Kept          Outcome = "kept"     // returned: it reached the threshold
	AddedFallback Outcome = "fallback" // returned because too few did
	Dropped       Outcome = "dropped"
	Unscored      Outcome = "unscored" // not returned, and there is no score to judge it by
)

// cause is why a chunk had its outcome; see [Decision.Reason].
type cause uint8

const (
	passed       cause = iota // Kept
	addedTop                  // AddedFallback: next best
	addedKeyword              // AddedFallback: BM25
	addedBlind                // AddedFallback: nothing was scored
	below                     // Dropped: under the threshold
	overMax                   // Dropped: passed, but max_chunks others are better
	overContext               // Dropped or Unscored: max_context_tokens is full
	byRule                    // Dropped
	notScored                 // Unscored
	rowFailed                 // Unscored: the model gave no number
)

// Result is the decision on one chunk.
type Result struct {
	Index     int // position in the caller's list
	Outcome   Outcome
	Scored    bool // a finite score is there; otherwise Relevance and Logit mean nothing
	Relevance Relevance
	Logit     Logit
	// Rule is the index in Params.Rules of the rule that dropped or demoted the chunk, -1 for none.
	Rule int

	cause       cause
	failed      bool
	bm25        float64
	contextUsed int // tokens that the context already held, for overContext
	chunk       *Chunk
}

// ScoredBy says what the returned order rests on.
type ScoredBy string

const (
	ByReranker   ScoredBy = "reranker"
	BySimilarity ScoredBy = "similarity" // nothing was scored; the retriever's similarity decided
	ByOrder      ScoredBy = "order"      // nothing was scored and no similarity given; the caller's order decided
)

// Stats describes a decision as a whole.
type Stats struct {
	// Filtered: scores were used.
	Filtered            bool
	Retrieved, Returned int
	// Passed counts all that reached the threshold, also those over the maximum and those that a rule dropped.
	Passed                                   int
	FallbackTriggered                        bool
	Threshold                                Relevance
	QueryType                                QueryType
	ScoredBy                                 ScoredBy
	Unscored                                 int // chunks that should have a score and have none
	Truncated                                int // chunks of which the model read only a part
	UnreadableTimes                          int // metadata fields that an older_than_days rule could not read as a time
	HasRelevance                             bool
	AvgRelevance, MinRelevance, MaxRelevance Relevance // over the returned chunks with a score; only with HasRelevance
}

// Decision is what becomes of all chunks.
type Decision struct {
	// Chunks are returned, best first: those that passed, then the fallback's, each by logit and then by index, demoted ones last; those
	// without a score behind, by similarity.
	Chunks []Result
	// Dropped are all others, in the same order, those that a rule dropped last.
	Dropped []Result
	// InsufficientContext tells the caller not to answer from these chunks, and InsufficientReason why.
	InsufficientContext bool
	InsufficientReason  string
	// ExpandedQuery is set by FallbackExpand.
	ExpandedQuery string
	// Context is the assembled context, when asked for.
	Context string
	Stats   Stats

	params  Params
	results []Result // Chunks and then Dropped
	reached int      // chunks that passed and that no rule dropped
}

// row is one chunk while ranks are being found.
type row struct {
	group      group
	index      int32
	rule       int32
	logit      float32
	scored     bool
	failed     bool
	fallback   bool
	relevance  float64
	similarity float64 // -Inf when not given
	bm25       float64
}

// group is the first key of the rank.
type group uint8

const (
	groupPassed group = iota
	groupPassedDemoted
	groupBelow
	groupBelowDemoted
	groupUnscored
	groupUnscoredDemoted
	groupRuledOut
)

// rank orders by group, then score before none, logit or similarity descending, index ascending. It is a total order, so the result does
// not depend on the sorting algorithm.
func rank(a, b row) int {
	switch {
	case a.group != b.group:
		return cmp.Compare(a.group, b.group)
	case a.scored != b.scored:
		if a.scored {
			return -1
		}
		return 1
	case a.scored && a.logit != b.logit:
		return cmp.Compare(b.logit, a.logit)
	case !a.scored && a.similarity != b.similarity:
		return cmp.Compare(b.similarity, a.similarity)
	}
	return cmp.Compare(a.index, b.index)
}

func similarityOf(c *Chunk) float64 {
	if c.Similarity == nil || math.IsNaN(*c.Similarity) || math.IsInf(*c.Similarity, 0) {
		return math.Inf(-1)
	}
	return *c.Similarity
}

// ScoringOrder appends to dst the indices of the chunks to score, most promising first: by the caller's similarity, and where
// it is not given behind those in the given order. Chunks that a rule drops are left out, since no score would bring them back.
func ScoringOrder(dst []int, p Params, chunks []Chunk, now time.Time) []int {
	start := len(dst)
	for i := range chunks {
		if r, _ := applyRules(p.Rules, chunks[i].Metadata, now); r == none || p.Rules[r].Action != ActionDrop {
			dst = append(dst, i)
		}
	}
	slices.SortStableFunc(dst[start:], func(a, b int) int {
		return cmp.Compare(similarityOf(&chunks[b]), similarityOf(&chunks[a]))
	})
	return dst
}

// Decide decides on every chunk. It does not keep or change chunks, but the decision's reasons read from them. now is for rules
// about age.
func Decide(p Params, query string, chunks []Chunk, now time.Time) Decision {
	p.MinChunks = max(0, p.MinChunks)
	p.MaxChunks = max(p.MinChunks, p.MaxChunks)
	d := Decision{params: p}
	d.Stats = Stats{Retrieved: len(chunks), Threshold: p.Threshold, QueryType: p.QueryType, ScoredBy: ByOrder}

	rows := d.rows(p, chunks, now)
	slices.SortFunc(rows, rank)
	eligible := len(rows)
	for eligible > 0 && rows[eligible-1].group == groupRuledOut {
		eligible--
	}
	reached := 0 // rows[:reached] passed and may be returned
	for reached < eligible && rows[reached].group <= groupPassedDemoted {
		reached++
	}
	kept := min(reached, p.MaxChunks)
	d.reached = reached

	// A fallback is marked behind those that passed; none of those is over the maximum then, which is at least the minimum.
	added := 0
	if d.Stats.FallbackTriggered = reached < p.MinChunks; d.Stats.FallbackTriggered {
		added = d.fallBack(query, chunks, rows[:eligible], reached)
		if p.Fallback == FallbackExpand && eligible > 0 {
			d.ExpandedQuery = expand(query, chunks, rows[:eligible])
		}
	}
	d.split(chunks, rows, kept, added)
	d.fitContext()
	d.finish(eligible)
	return d
}

// rows judges each chunk by itself, and counts.
func (d *Decision) rows(p Params, chunks []Chunk, now time.Time) []row {
	rows := make([]row, len(chunks))
	for i := range chunks {
		c, r := &chunks[i], &rows[i]
		rule, unreadable := applyRules(p.Rules, c.Metadata, now)
		*r = row{index: int32(i), rule: int32(rule), similarity: similarityOf(c)}
		d.Stats.UnreadableTimes += unreadable
		if c.Cut > 0 {
			d.Stats.Truncated++
		}
		if c.Scored && c.Logit.finite() {
			r.scored, r.logit, r.relevance = true, float32(c.Logit), float64(c.Logit.Relevance())
		} else {
			r.failed = c.Scored
		}
		pass := r.scored && Relevance(r.relevance) >= p.Threshold
		if pass {
			d.Stats.Passed++
		}
		switch {
		case pass:
			r.group = groupPassed
		case r.scored:
			r.group = groupBelow
		default:
			r.group = groupUnscored
		}
		if rule == none {
			// most chunks
		} else if p.Rules[rule].Action == ActionDrop {
			r.group = groupRuledOut
		} else {
			r.group++ // the same, demoted
		}
		switch {
		case r.group == groupRuledOut:
		case r.scored:
			d.Stats.Filtered, d.Stats.ScoredBy = true, ByReranker
		default:
			d.Stats.Unscored++
		}
	}
	if !d.Stats.Filtered && slices.ContainsFunc(rows, func(r row) bool { return !math.IsInf(r.similarity, -1) }) {
		d.Stats.ScoredBy = BySimilarity
	}
	return rows
}

// fallBack marks which of rows, which are in rank order and of which the first reached passed, are added, and returns how many.
func (d *Decision) fallBack(query string, chunks []Chunk, rows []row, reached int) int {
	candidates := rows[reached:]
	need := min(d.params.MinChunks-reached, len(candidates))
	switch {
	case !d.Stats.Filtered:
		// Nothing was scored: by similarity, whatever the fallback, since insufficient and keyword cannot know better.
	case d.params.Fallback == FallbackInsufficient:
		return 0
	case d.params.Fallback == FallbackKeyword:
		markKeyword(query, chunks, rows, reached, need)
		return need
	}
	for i := range need {
		candidates[i].fallback = true
	}
	return need
}

// markKeyword marks the need rows behind the first reached that BM25 puts highest; equal ones by rank. Those that passed are part
// of the collection that the statistics come from.
func markKeyword(query string, chunks []Chunk, rows []row, reached, need int) {
	texts := make([]string, len(rows))
	for i := range rows {
		texts[i] = chunks[rows[i].index].Text
	}
	scores := BM25(query, texts)
	order := make([]int, 0, len(rows)-reached)
	for i := reached; i < len(rows); i++ {
		rows[i].bm25 = scores[i]
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for _, i := range order[:need] {
		rows[i].fallback = true
	}
}

// expand learns from the best of rows, which are in rank order.
func expand(query string, chunks []Chunk, rows []row) string {
	var feedback [expandTexts]Feedback
	n := 0
	for _, r := range rows[:min(len(rows), expandTexts)] {
		feedback[n] = Feedback{Text: chunks[r.index].Text, Weight: r.relevance}
		n++
	}
	return ExpandQuery(query, feedback[:n])
}

// split fills the decision's two lists from rows in rank order: the first kept of them and the added, and all others.
func (d *Decision) split(chunks []Chunk, rows []row, kept, added int) {
	// One array: the end of the returned is the beginning of the dropped, and fitContext only moves the border.
	results := make([]Result, 0, len(rows))
	for i, r := range rows {
		switch {
		case i < kept:
			results = append(results, r.result(chunks, Kept, passed))
		case r.fallback:
			c := addedTop
			if !d.Stats.Filtered {
				c = addedBlind
			} else if d.params.Fallback == FallbackKeyword {
				c = addedKeyword
			}
			results = append(results, r.result(chunks, AddedFallback, c))
		}
	}
	returned := len(results)
	for i, r := range rows {
		switch {
		case i < kept || r.fallback:
		case r.group == groupRuledOut:
			results = append(results, r.result(chunks, Dropped, byRule))
		case r.group <= groupPassedDemoted:
			results = append(results, r.result(chunks, Dropped, overMax))
		case r.scored:
			results = append(results, r.result(chunks, Dropped, below))
		default:
			results = append(results, r.result(chunks, Unscored, notScored))
		}
	}
	d.Chunks, d.Dropped = results[:returned:returned], results[returned:]
	d.results = results
}

func (r *row) result(chunks []Chunk, o Outcome, c cause) Result {
	return Result{Index: int(r.index), Outcome: o, Scored: r.scored, Relevance: Relevance(r.relevance), Logit: Logit(r.logit),
		Rule: int(r.rule), cause: c, failed: r.failed, bm25: r.bm25, chunk: &chunks[r.index]}
}

// fitContext ends the returned list before the first chunk that does not fit; the best one always fits.
func (d *Decision) fitContext() {
	limit := d.params.MaxContextTokens
	if limit <= 0 || len(d.Chunks) == 0 {
		return
	}
	used, fit := tokensOf(d.Chunks[0].chunk), 1
	for fit < len(d.Chunks) {
		t := tokensOf(d.Chunks[fit].chunk)
		if used > limit || t > limit-used {
			break
		}
		used += t
		fit++
	}
	for i := fit; i < len(d.Chunks); i++ {
		r := &d.results[i]
		if r.Outcome = Dropped; !r.Scored {
			r.Outcome = Unscored
		}
		r.cause, r.contextUsed = overContext, used
	}
	d.Chunks, d.Dropped = d.results[:fit:fit], d.results[fit:]
}

// finish fills what is said about the returned chunks together.
func (d *Decision) finish(eligible int) {
	s := &d.Stats
	s.Returned = len(d.Chunks)
	scored, sum := 0, 0.0
	for i := range d.Chunks {
		r := &d.Chunks[i]
		if !r.Scored {
			continue
		}
		if scored == 0 {
			s.MinRelevance, s.MaxRelevance = r.Relevance, r.Relevance
		}
		s.MinRelevance, s.MaxRelevance = min(s.MinRelevance, r.Relevance), max(s.MaxRelevance, r.Relevance)
		sum += float64(r.Relevance)
		scored++
	}
	if scored > 0 {
		s.HasRelevance = true
		// Rounding can put the mean of equal numbers beside them.
		s.AvgRelevance = min(max(Relevance(sum/float64(scored)), s.MinRelevance), s.MaxRelevance)
	}
	d.InsufficientReason = d.insufficient(eligible)
	d.InsufficientContext = d.InsufficientReason != ""
	if d.params.ReturnContext {
		texts := make([]string, len(d.Chunks))
		for i := range d.Chunks {
			texts[i] = d.Chunks[i].chunk.Text
		}
		d.Context = AssembleContext(texts)
	}
}

// Detached is the decision without the caller's chunks: it reads like d and holds none of their texts.
func (d Decision) Detached() Decision {
	results := make([]Result, 0, len(d.Chunks)+len(d.Dropped))
	chunks := make([]Chunk, 0, cap(results))
	for _, list := range [][]Result{d.Chunks, d.Dropped} {
		for _, r := range list {
			c := *r.chunk
			c.Tokens, c.Text, c.Metadata, c.Similarity = tokensOf(r.chunk), "", nil, nil
			chunks = append(chunks, c)
			r.chunk = &chunks[len(chunks)-1]
			results = append(results, r)
		}
	}
	n := len(d.Chunks)
	d.Chunks, d.Dropped, d.results = results[:n:n], results[n:], results
	return d
}
