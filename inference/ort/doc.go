// Package ort owns everything native: the ONNX Runtime library, its sessions and its tensors.
//
// Start at Open, which loads the shared library once for the process; Runtime.NewSession loads a graph on one execution
// provider; Session.NewStream hands out the buffers that one goroutine runs it with. The package knows token ids and
// shapes; it does not know texts, queues, or what an output means.
//
// What it promises:
//
//   - The provider asked for is the provider that runs. A provider that the library lacks, or that cannot take every node of
//     the graph, is an error that names what is missing; nothing falls back silently.
//   - A Stream's buffers belong to the stream. Run returns only when the runtime has let go of them, and Terminate is the
//     only way to cut a run short.
//   - Close releases streams, then the session, then the library's environment, in that order.
package ort
