// Package benchmarks drives a running server over HTTP and compares it with what the same machine could do without one.
// Nobody imports it.
package benchmarks
