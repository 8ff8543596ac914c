// Package reuse stands between whoever asks a model and the model, and answers from a cache what was computed before.
//
// Start at [New]: a [Model] is used like the one it was made of. Here it is decided what an answer depends on (its key) and which answers may
// be kept; where they are kept is package cache's matter.
//
// What it promises:
//   - An answer from the cache has the bits of the one that was computed first: logits, vectors, usage, which items were cut. What is missing
//     is computed in one call, in the order of the request and within its deadline.
//   - Kept is only what is whole: no row that failed, none that the time was too short for, none of which only some windows were read.
//   - Usage counts every item as if it had run, so that it does not depend on what others asked before; Usage.Reused says how many did not.
//   - Only [Model.RerankSimilar] ever answers with the score of another query, and only within one client's own queries.
package reuse
