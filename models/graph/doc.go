// Package graph looks into ONNX models and rewrites them.
//
// Start with [Inspect] for what a file takes, yields and is made of, and [WeightOnly] to turn a dynamically quantised model, whose answer
// to one text moves with the texts that share its batch, into one with the same int8 weights and float arithmetic, whose answer does not.
// [UnpackNarrow] stores the few weights that are too narrow to gain from integers as floats. [PruneOutputs] drops outputs nobody reads and
// what computed only them. [Cached] keeps the result of a rewrite on disk. It is not a graph
// optimiser: fusing and folding are left to the runtime, which does them for the machine it finds.
//
// It promises:
//   - A rewrite is exact or refused. Every weight the new graph multiplies by is the very float32 that dequantising the stored integer
//     gives (see [WeightOnly]). A graph that is put together in a way this package does not know is a [*PatternError] that names the
//     node; nothing is guessed.
//   - The same file in gives the same bytes out, whatever the build or machine.
//   - Input files are never changed. Nothing is read but the bytes given; weights in external files are neither read nor copied by a
//     rewrite.
//
// Functions are pure and may be called from many goroutines. They hold the input, and what they return besides.
package graph
