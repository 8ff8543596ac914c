// Package gates makes the two decisions that ragate exists for: whether a turn needs retrieval at all ([QueryGate]), and which retrieved
// chunks deserve the context ([ChunkGate]).
//
// Start at [NewQueryGate] and [NewChunkGate]. This package runs the stages in order and falls to the safe side when one fails; each stage is
// a package of its own: pattern (wording), semantic (nearness to reference queries), quality (scores of chunks), policy (the
// settings), language (which one a query is in), evaluate (how good the decisions are), textnorm (what of a spelling counts).
//
// Not for HTTP, models or files: what the gates need of a model they declare here as interfaces ([Embedder], [Scorer]), and they are
// handed times and deadlines.
//
// What it promises: errors are not symmetric, so whatever is unknown retrieves, or keeps. A failed stage, a spent budget or a full queue is
// an answer on the safe side that says so, not an error. A decision is a pure function of scores and policy.
package gates
