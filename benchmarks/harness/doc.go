// Package harness is what `ragate bench` does: it drives one running server, or two in turns, with a named workload, and says how fast right
// answers come.
//
// Start at [Run]. A [Workload] says what is asked for, a [Dialect] how a server wants to be asked and how its answer is looked into, a [Target] is
// a server, and a [Case] a workload at a number of clients or at a rate. Run gives a [Result], which is kept as JSON, shown as text or as one
// HTML page, and held against another by [Compare].
//
// What it promises: every text is different, so that no cache of texts or scores helps, and two servers that take turns get the same ones.
// At a rate, a request's time counts from when it was due, not from when a stalled server let it go. An answer counts when it has the right
// number of finite values, each item once; anything else is an error, and errors have no latency. Before the clock starts, a question whose
// answer is known must be answered right. A ratio of two servers comes from turns that lie side by side, with its confidence interval,
// because machines are noisy and minutes apart say little.
//
// Not for what only a server itself can tell (padding, batches): that is servebench's, next door.
package harness
