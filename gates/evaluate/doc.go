// Package evaluate measures the two gates on labelled turns and chooses their thresholds.
//
// Start with [Queries] and [Chunks], which turn records of what a gate did into tables; [LeaveOneDomainOut] and [ROC] for what a
// threshold would do on domains it was not chosen on; [Flips] for which decisions a rewording changes; [CalibrateQuery] and
// [CalibrateChunks] for a threshold with a promise. Package evaluate/report prints the results, package evaluate/synonyms makes
// reworded turns.
//
// What it promises: pure functions of their arguments. The same records, options and seed give the same result; inputs are never
// changed; nothing is read but the arguments. Every rate of a table comes with its counts and an interval: Clopper-Pearson, which is
// exact, where the trials are independent; Korn-Graubard where they come in clusters (the chunks of one turn stand or fall together),
// which holds about what it says. A calibrated
// threshold breaks its promise with a probability of at most 1 − confidence, over random draws of labelled turns like those given;
// it says nothing about turns of another kind, which is what [LeaveOneDomainOut] is for.
//
// What it is not for: running a gate, reading files, fitting a method's weights, and deciding anything about a live request.
//
// Rates are fractions of 1. Scores are oriented: a query score is higher the more the turn looks like one that needs no retrieval,
// a chunk's relevance is higher the better. Thresholds are inclusive: a score equal to the threshold passes. NaN never passes.
package evaluate
