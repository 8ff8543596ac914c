// Package quality decides which of the retrieved chunks deserve the context.
//
// Start with [Resolve], which puts a request's [Overrides] on a [Policy] and gives [Params]; the query's type for it comes from
// [ClassifyQuery]. [ScoringOrder] says which chunks to score, in which order, while the time lasts. [Decide] then turns scores
// into a [Decision]: what to return best first, what to drop, and why ([Decision.Reason]).
//
// What it promises: pure functions. Equal arguments give equal answers; no clock is read (now is an argument), nothing is
// written, no text and no number makes it panic. Every chunk is in exactly one of the decision's two lists. A chunk without a
// finite score never passes.
//
// The errors are not symmetric: a dropped chunk that was needed costs the answer, a kept one that was not costs a few tokens. So
// whatever is unknown is kept where there is room: a date that cannot be read matches no rule, a chunk that was not scored can be
// returned as fallback.
//
// What it is not for: scoring (package gates declares who does that), reading policies from files, cutting long chunks into
// windows (only [BestWindow] is here), JSON of the HTTP route.
package quality
