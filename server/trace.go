package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"ragate/gates"
	"ragate/inference"
)

// Spans of requests. A request's own span lasts from its headers to the end of its answer; those below it are made when it is over, from
// the times that were taken anyway or, for calls of models, that the engine recorded. Names and numbers go into attributes, texts never.
// Probes and scrapes have no spans.

// Tracing is where spans go. The zero value makes none, and costs a request nothing.
type Tracing struct {
	Provider trace.TracerProvider
	// Spans counts what became of them, for the metrics; nil: nothing is known.
	Spans func() (exported, failed, dropped uint64)
}

// traced is what tracing knows of an exchange.
type traced struct {
	parent trace.SpanContext // the caller's; not valid where it sent none
	span   trace.Span        // nil when tracing is off, and for probes
	record *inference.Record // nil unless the span is kept
	told   bool              // the calls of models have their spans
}

// w3c reads traceparent and tracestate: W3C Trace Context.
var w3c = propagation.TraceContext{}

// startSpan begins the request's span, as a child of the caller's where it named one.
func (x *exchange) startSpan() {
	ctx := x.r.Context()
	if x.r.Header.Get("Traceparent") != "" {
		ctx = w3c.Extract(ctx, propagation.HeaderCarrier(x.r.Header))
		x.trace.parent = trace.SpanContextFromContext(ctx)
	}
	if x.s.tracer == nil || open[x.route] {
		return
	}
	method, name := x.r.Method, x.r.Method
	if !methods[method] {
		method, name = "_OTHER", "HTTP"
	}
	if x.route != unmatched {
		name += " " + x.route
	}
	ctx, x.trace.span = x.s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(x.begun), trace.WithAttributes(
		attribute.String("http.request.method", method),
		attribute.String("url.scheme", scheme(x)),
		attribute.String("ragate.request_id", x.id),
	))
	if x.trace.span.IsRecording() {
		if x.route != unmatched {
			x.trace.span.SetAttributes(attribute.String("http.route", x.route))
			if !strings.Contains(x.route, "*") { // any other path may hold anything
				x.trace.span.SetAttributes(attribute.String("url.path", x.route))
			}
		}
		x.trace.record = new(inference.Record)
		ctx = inference.WithRecord(ctx, x.trace.record)
	}
	x.r = x.r.WithContext(ctx)
}

func scheme(x *exchange) string {
	if x.r.TLS != nil {
		return "https"
	}
	return "http"
}

// endSpan ends the request's span. status is the one that the metrics count.
func (x *exchange) endSpan(status int) {
	span := x.trace.span
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if !x.trace.told {
		for _, c := range x.trace.record.Calls() {
			x.traceCall(x.r.Context(), c)
		}
	}
	span.SetAttributes(
		attribute.Int64("http.request.body.size", x.bytesIn),
		attribute.Int64("http.response.body.size", x.w.Size),
	)
	if status != statusClientGone { // which was never sent
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if x.key != "" {
		span.SetAttributes(attribute.String("ragate.key", x.key))
	}
	if x.model != "" {
		span.SetAttributes(attribute.String("ragate.model", x.model), attribute.Int("ragate.items", x.items))
	}
	if x.usage.Tokens > 0 {
		span.SetAttributes(attribute.Int("ragate.tokens", x.usage.Tokens), attribute.Int("ragate.items_cut", len(x.usage.Cut)))
	}
	for _, a := range x.log {
		if a.Key == stageError {
			continue // a sentence, and the stage's span has its kind
		}
		key := "ragate.gate." + a.Key
		switch a.Value.Kind() {
		case slog.KindString:
			span.SetAttributes(attribute.String(key, a.Value.String()))
		case slog.KindBool:
			span.SetAttributes(attribute.Bool(key, a.Value.Bool()))
		case slog.KindInt64:
			span.SetAttributes(attribute.Int64(key, a.Value.Int64()))
		}
	}
	if x.refusal != nil {
		span.SetAttributes(attribute.String("error.type", kinds[x.refusal.kind].code))
		if status >= 500 {
			span.SetStatus(codes.Error, kinds[x.refusal.kind].code)
		}
	}
}

// recording says whether spans below the request's are wanted.
func (x *exchange) recording() bool { return x.trace.record != nil }

// stage makes a span from from to to, and returns a context in which it is the parent.
func (x *exchange) stage(ctx context.Context, name string, from, to time.Time, attrs ...attribute.KeyValue) context.Context {
	ctx, span := x.s.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(to))
	return ctx
}

// traceCall makes the spans of one call of a model: tokenize, queue, inference. queue ends when the last row is with a worker, inference
// begins when the first one is: in a request of several batches they overlap.
func (x *exchange) traceCall(ctx context.Context, c inference.Call) {
	end := func(t time.Time) time.Time { // of a stage that the call did not come out of
		if t.IsZero() {
			return c.Done
		}
		return t
	}
	var failed []attribute.KeyValue
	if c.Err != nil {
		failed = append(failed, attribute.String("error.type", errorType(c.Err)))
	}
	attrs := []attribute.KeyValue{attribute.String("ragate.model", c.Model), attribute.Int("ragate.items", c.Items)}
	if c.Submitted.IsZero() {
		x.stage(ctx, "tokenize", c.Began, c.Done, append(attrs, failed...)...)
		return
	}
	x.stage(ctx, "tokenize", c.Began, c.Submitted, attrs...)
	attrs = append(attrs[:1:1], attribute.String("ragate.lane", laneName(c.Lane)), attribute.Int("ragate.rows", c.Rows), attribute.Int("ragate.tokens", c.Tokens))
	if c.FirstTaken.IsZero() {
		x.stage(ctx, "queue", c.Submitted, c.Done, append(attrs, failed...)...)
		return
	}
	x.stage(ctx, "queue", c.Submitted, end(c.LastTaken), attrs...)
	x.stage(ctx, "inference", c.FirstTaken, c.Done, append(append(attrs,
		attribute.Int("ragate.padded_tokens", c.PaddedTokens),
		attribute.Int("ragate.batches", c.Batches),
		attribute.Int64("ragate.batch.id", int64(c.Batch.ID)),
		attribute.Int("ragate.batch.rows", c.Batch.Rows),
		attribute.Int("ragate.batch.tokens", c.Batch.Tokens),
		attribute.Int("ragate.batch.padded_tokens", c.Batch.PaddedTokens),
	), failed...)...)
}

// traceQuery makes the spans of a query gate's decision that ran from from to to.
func (x *exchange) traceQuery(d *gates.QueryDecision, from, to time.Time) {
	if !x.recording() {
		return
	}
	x.trace.told = true
	ctx, pattern := x.r.Context(), from.Add(d.Times.Pattern)
	x.stage(ctx, "gate.pattern", from, pattern)
	calls := x.trace.record.Calls()
	if len(calls) == 0 && d.Times.Similarity == 0 {
		return
	}
	ctx = x.stage(ctx, "gate.semantic", pattern, to, stageErrorType(d.Err)...)
	for _, c := range calls {
		x.traceCall(ctx, c)
	}
	if d.Times.Similarity > 0 {
		x.stage(ctx, "gate.similarity", to.Add(-d.Times.Similarity), to)
	}
}

// traceChunks makes the spans of a chunk gate's decision that ran from from to to.
func (x *exchange) traceChunks(d *gates.ChunkDecision, from, to time.Time) {
	if !x.recording() {
		return
	}
	x.trace.told = true
	ctx, deciding := x.r.Context(), to.Add(-d.Deciding)
	if calls := x.trace.record.Calls(); len(calls) > 0 {
		scoring := x.stage(ctx, "gate.score", from, deciding, append(stageErrorType(d.Err), attribute.Int("ragate.gate.chunks", d.Stats.Retrieved),
			attribute.Int("ragate.gate.chunks_unscored", d.Stats.Unscored))...)
		for _, c := range calls {
			x.traceCall(scoring, c)
		}
	}
	x.stage(ctx, "gate.decide", deciding, to)
}

func stageErrorType(err error) []attribute.KeyValue {
	if err == nil {
		return nil
	}
	return []attribute.KeyValue{attribute.String("error.type", errorType(err))}
}

// errorType names an error of a model call by a word of few: its sentence may be long, and differs from request to request.
func errorType(err error) string {
	var (
		tooLong *inference.TooLongError
		row     *inference.RowError
	)
	switch {
	case isOverload(err), errors.Is(err, gates.ErrOverloaded):
		return kinds[kindOverloaded].code
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return kinds[kindGone].code
	case errors.Is(err, inference.ErrClosed):
		return kinds[kindDraining].code
	case errors.As(err, &tooLong):
		return kinds[kindTooLong].code
	case errors.As(err, &row):
		return kinds[kindFailed].code
	}
	return "other"
}

// traceIDs are the ids that the log line has: of the request's span, or of the caller's where this server makes none.
func (x *exchange) traceIDs() trace.SpanContext {
	if x.trace.span != nil {
		return x.trace.span.SpanContext()
	}
	return x.trace.parent
}
