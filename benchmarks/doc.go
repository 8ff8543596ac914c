// Package benchmarks drives a running server over HTTP and compares it with what the same machine could do without one.
// Of the program, only cmd/ragate imports it and what lies below it, for the command that users measure with.
//
// Start at servebench, behind `make bench`, or at package harness, which is `ragate bench`; both are built from what is here: Texts writes unique
// texts of known length (corpus.go), a Workload turns them into requests (workload.go), a Driver sends those in a closed loop or at a rate and
// keeps the latencies (load.go), a Server is the process under test (server.go), Raw is the same model on the same plan without a server (raw.go),
// MeasurePeak is what the machine multiplies at most (peak.go), and a Meter tells what all cost in CPU time and memory (meter.go). A Report is printed as a
// table and kept as JSON (report.go).
//
// servebench knows this server's insides: padding, batches, the share of the raw session. harness knows any server from outside, and holds two
// against each other. Beside them lie gatebench, for the gates, overload, for what becomes of more requests than can be answered, soak, the program
// behind `make soak`, which measures no speed, but whether answers stay right and nothing is left behind under thousands of mixed requests, and goals, which
// prints what is wanted beside what was measured. What these programs share is package program.
//
// Not for microbenchmarks: those lie beside the code they measure, in *_timing_test.go files.
//
// What it promises: every text of a run is different, and its tokens are counted by the model's own tokenizer before the clock starts;
// what a phase is said to have computed is held against the server's own count, exactly; a share is always that of neighbours in
// time, because machines are noisy and minutes apart say little.
package benchmarks
