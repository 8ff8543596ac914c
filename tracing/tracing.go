package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// DefaultMaxQueued is how many spans may wait for the collector: some 2 MB, and at 6 spans a request 10 s of 34 requests a second with a
// collector that answers nothing.
const DefaultMaxQueued = 2048

// tracesPath is where a collector takes traces, below the base URL: OTLP 1.0, "OTLP/HTTP request".
const tracesPath = "/v1/traces"

// Config says where spans go.
type Config struct {
	// Endpoint is the collector's base URL, such as http://127.0.0.1:4318; /v1/traces is added unless it ends so. "": the exporter's
	// own variables, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint  string
	Service   string // service.name, unless OTEL_SERVICE_NAME says otherwise
	Version   string // service.version
	MaxQueued int    // spans that may wait; 0: DefaultMaxQueued
	Log       *slog.Logger
}

// EndpointError is returned for an Endpoint that no span can be sent to.
type EndpointError struct{ Endpoint, Reason string }

func (e *EndpointError) Error() string {
	return fmt.Sprintf("%q %s: give the collector's base URL for OTLP over HTTP, such as http://127.0.0.1:4318", e.Endpoint, e.Reason)
}

// Tracer makes spans and sends them. It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	ledger   *ledger
}

// Counts says what became of the spans that ended.
type Counts struct {
	Exported uint64 // taken by the collector
	Failed   uint64 // sent in vain
	Dropped  uint64 // not sent, as the queue was full
}

// Open makes a tracer. It connects to nothing: a collector that is away is no error. Errors: *EndpointError, those of the exporter for
// settings it cannot read.
func Open(ctx context.Context, cfg Config) (*Tracer, error) {
	var o []otlptracehttp.Option
	if cfg.Endpoint != "" {
		u, err := parseEndpoint(cfg.Endpoint)
		if err != nil {
			return nil, err
		}
		o = append(o, otlptracehttp.WithEndpointURL(u))
	}
	exporter, err := otlptracehttp.New(ctx, o...)
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	return open(ctx, cfg, exporter)
}

// open is Open with an exporter of one's own.
func open(ctx context.Context, cfg Config, exporter sdk.SpanExporter) (*Tracer, error) {
	if cfg.MaxQueued <= 0 {
		cfg.MaxQueued = DefaultMaxQueued
	}
	// What stands later wins.
	res, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)),
		resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	l := &ledger{}
	queue := sdk.NewBatchSpanProcessor(&sender{SpanExporter: exporter, ledger: l, log: cfg.Log},
		sdk.WithMaxQueueSize(cfg.MaxQueued), sdk.WithMaxExportBatchSize(min(sdk.DefaultMaxExportBatchSize, cfg.MaxQueued)))
	return &Tracer{
		provider: sdk.NewTracerProvider(sdk.WithSpanProcessor(&door{queue, l, int64(cfg.MaxQueued)}), sdk.WithResource(res)),
		ledger:   l,
	}, nil
}

// CheckEndpoint says what is wrong with an Endpoint: an *EndpointError.
func CheckEndpoint(endpoint string) error {
	_, err := parseEndpoint(endpoint)
	return err
}

// parseEndpoint gives the URL that spans are posted to.
func parseEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", &EndpointError{"(not shown)", "is no URL"} // it may hold a password, and who knows where
	case u.Scheme != "http" && u.Scheme != "https":
		return "", &EndpointError{u.Redacted(), "does not begin with http:// or https://"}
	case u.Host == "":
		return "", &EndpointError{u.Redacted(), "names no host"}
	case u.User != nil:
		return "", &EndpointError{u.Redacted(), "holds a password, which belongs into OTEL_EXPORTER_OTLP_HEADERS"}
	case u.RawQuery != "" || u.Fragment != "":
		return "", &EndpointError{u.Redacted(), "has a query or a fragment"}
	}
	if !strings.HasSuffix(u.Path, tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	return u.String(), nil
}

// Provider makes the spans.
func (t *Tracer) Provider() trace.TracerProvider { return t.provider }

// Counts says what became of the spans so far.
func (t *Tracer) Counts() Counts {
	return Counts{Exported: t.ledger.exported.Load(), Failed: t.ledger.failed.Load(), Dropped: t.ledger.dropped.Load()}
}

// Close sends what waits until ctx ends. Spans that end later are lost.
func (t *Tracer) Close(ctx context.Context) error {
	before := t.Counts()
	if err := t.provider.Shutdown(ctx); err != nil {
		after := t.Counts()
		return fmt.Errorf("%d spans could not be delivered: %w", max(0, t.ledger.queued.Load())+int64(after.Failed-before.Failed), err)
	}
	return nil
}

// ledger is what both sides of the SDK's queue know: the door in front of it and the sender behind it. The queue itself drops silently.
type ledger struct {
	queued                    atomic.Int64 // spans that wait or are being sent
	exported, failed, dropped atomic.Uint64
}

// door lets in no more spans than the queue holds, and counts the others.
type door struct {
	sdk.SpanProcessor // the queue
	*ledger
	max int64
}

// OnEnd implements sdk.SpanProcessor.
func (d *door) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() { // recorded, but for nobody: the queue does not take it either
		return
	}
	if d.queued.Add(1) > d.max {
		d.queued.Add(-1)
		d.dropped.Add(1)
		return
	}
	d.SpanProcessor.OnEnd(s)
}

// sender counts what the exporter did.
type sender struct {
	sdk.SpanExporter
	*ledger
	log  *slog.Logger
	down bool // the last export failed, and the log says so; exports come one at a time
}

// ExportSpans implements sdk.SpanExporter. It returns no error: the SDK would give it to a handler that is the process's, not this tracer's.
func (s *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	s.queued.Add(-int64(len(spans))) // now, and not before: a batch that is being sent holds its memory
	switch {
	case err != nil:
		s.failed.Add(uint64(len(spans)))
		if !s.down {
			s.log.Warn("traces cannot be delivered; requests are not affected", "error", err.Error(), "spans_lost", len(spans))
		}
	default:
		s.exported.Add(uint64(len(spans)))
		if s.down {
			s.log.Info("traces are delivered again", "spans_failed", s.failed.Load(), "spans_dropped", s.dropped.Load())
		}
	}
	s.down = err != nil
	return nil
}
