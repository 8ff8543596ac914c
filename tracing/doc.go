// Package tracing sends spans to a collector by OTLP over HTTP.
//
// Start here: [Open] makes a [Tracer]; its Provider makes spans, its Counts say what became of them, Close sends what is left.
//
// Not for: deciding what a span says. Whoever does the work names its spans and chooses their attributes.
//
// It promises that
//   - ending a span never waits: spans go through a queue of bounded length, and one that finds it full is dropped and counted;
//   - a collector that is away, slow or broken costs spans and nothing else, and is logged when it goes and when it is back;
//   - a trace that the caller began is sampled as the caller decided.
//
// The package reads no environment itself, but the exporter and the SDK below it do: the standard OTEL_EXPORTER_OTLP_* variables fill what
// [Config] leaves open, OTEL_TRACES_SAMPLER chooses which traces that begin here are kept, OTEL_BSP_* tune the batches, and OTEL_SERVICE_NAME
// and OTEL_RESOURCE_ATTRIBUTES name the process.
package tracing
