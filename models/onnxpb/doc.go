// Package onnxpb reads ONNX model files and writes them back without losing anything.
//
// Start with [Parse]; change Model.Graph; write with [Model.Append]. It is not a general protobuf library, does not check that a graph is
// valid (types, shapes, topological order) and does not run anything; package graph, next door, knows what nodes mean.
//
// It works on the wire format itself, by the field numbers of the published schema (onnx.proto, ONNX IR version 3 and later), instead of
// generated structs, for three promises that rewriting needs:
//
//   - Nothing is lost. What a rewrite does not touch is written back as the bytes it was read from, fields unknown to this package included.
//   - Nothing is copied while reading: names aside, everything shares memory with the file, weights too. The caller must not change that
//     memory while a Model lives. Writing copies each byte once.
//   - The same input gives the same output bytes, in every build, so results can be cached by hash. Fields are written in the order of
//     their numbers, as protobuf libraries do: an untouched file comes back byte for byte.
//
// Messages below the graph ([Node], [Tensor], [ValueInfo]) are immutable once made; to change one, replace it. A Model, its Graph and its
// subgraphs may be read by many goroutines, and changed by one at a time.
package onnxpb
