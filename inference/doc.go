// Package inference turns texts into vectors and pairs into relevance logits, for many callers at once.
//
// Start at NewEngine: one engine is one device. LoadEmbedder and LoadReranker put models on it; their Embed and Rerank may be
// called from any number of goroutines. A request is tokenised on the caller's goroutine, admitted whole or refused, cut into
// rows that wait in the scheduler (scheduler.go), run in batches by the workers (worker.go), pooled or read (head.go), and
// returned through the call that asked.
//
// Not for HTTP, thresholds or sigmoids of a policy: scores leave as logits, vectors as float32.
//
// What it promises: a request is never half admitted; rows come back in the caller's order; a row that fails does not touch its
// batch mates; a text's answer does not depend on who else is asking, except in the precision `int8-batched`, which says so; a
// call whose context ends returns at once and its rows are not run.
package inference
