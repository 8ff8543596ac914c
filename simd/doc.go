// Package simd compares one vector, or a batch of them, with many reference vectors: dot products, cosines and the best k.
//
// Start with [New] or [Wrap], [Matrix.Normalized] where cosines are wanted, and [Matrix.AppendTopK]. It is exact search over what fits in
// memory, some hundred thousand rows at most; it is not an approximate index, and it does not know what the vectors mean.
//
// It promises:
//   - The score of a row depends on the row and the query alone: not on its place in the matrix, on other rows or on how many queries are
//     asked at once. Equal rows have equal scores, bit for bit, and the lower index wins.
//   - Queries allocate nothing once warm: results are appended to the caller's memory.
//   - Reading is safe from any number of goroutines. Whoever changes a matrix must be alone with it.
//
// What unusual numbers mean:
//   - The zero vector has cosine 0 to everything, itself included, and normalising leaves it zero.
//   - A vector with a NaN or an infinity in it has no direction: its cosines are NaN, and so are all its elements once normalised.
//   - A dot product follows IEEE 754 in float32: it may overflow to an infinity, and is NaN when a NaN or 0·∞ or ∞-∞ is in it. Cosine and
//     Normalize neither overflow nor underflow.
//   - A NaN score never beats a number: NaN rows come last in a top k, and only when there are too few others.
//
// Lengths that do not fit together are programming errors and panic, as an index out of range does.
//
// The kernels are vek's (AVX2 and FMA) where the processor has them and plain Go elsewhere; the two agree within float32 rounding.
package simd
