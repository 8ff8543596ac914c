package server

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ragate/gates"
	"ragate/gates/quality"
	"ragate/inference"
)

// metrics is one server's registry. Labels have few values by construction: routes are patterns, methods are those of HTTP, models
// are the loaded ones, reasons the codes of the kinds table. It is the inference.Observer of the server's engine.
type metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	refused  *prometheus.CounterVec

	items  *prometheus.CounterVec
	tokens *prometheus.CounterVec
	cut    *prometheus.CounterVec

	batchRows     *prometheus.HistogramVec
	batchTokens   *prometheus.CounterVec
	batchPadding  *prometheus.CounterVec
	batchFailed   *prometheus.CounterVec
	queueWait     *prometheus.HistogramVec
	inferenceTime *prometheus.HistogramVec

	gateQueries *prometheus.CounterVec
	gateTurns   *prometheus.CounterVec
	gateOutcome *prometheus.CounterVec

	modelInfo   *prometheus.GaugeVec
	modelTokens *prometheus.GaugeVec
}

// Buckets. Requests span a cached short query to 2,048 passages; the gates' budget of 0.1 s is a border of its own.
var (
	secondsBuckets = []float64{.001, .0025, .005, .01, .02, .035, .05, .075, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60}
	rowsBuckets    = []float64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256}
)

func newMetrics(version string, life *lifecycle, expiry func() time.Time) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ragate_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ragate_" + name, Help: help, Buckets: buckets}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ragate_" + name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),

		requests: counter("http_requests_total", "Requests answered. Status 499: the client left first.", "route", "method", "status"),
		duration: histogram("http_request_duration_seconds", "From a request's headers to the end of its answer.", secondsBuckets, "route"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ragate_http_requests_in_flight", Help: "Requests being answered."}),
		refused:  counter("refusals_total", "Requests answered with an error, by the error's code.", "reason"),

		items:  counter("items_total", "Texts embedded, documents scored and texts tokenised for requests that succeeded.", "model"),
		tokens: counter("tokens_total", "Tokens that ran for requests that succeeded, special tokens included, after cutting.", "model"),
		cut:    counter("truncated_items_total", "Texts or pairs of which tokens were removed.", "model"),

		batchRows:     histogram("batch_rows", "Rows of a batch.", rowsBuckets, "model"),
		batchTokens:   counter("batch_tokens_total", "Tokens of texts that went through the model.", "model"),
		batchPadding:  counter("batch_padding_tokens_total", "Padding that went through the model beside them: its share of both is the waste.", "model"),
		batchFailed:   counter("batch_failed_rows_total", "Rows that became errors.", "model"),
		queueWait:     histogram("queue_wait_seconds", "Wait of a batch's oldest row.", secondsBuckets, "model", "lane"),
		inferenceTime: histogram("inference_seconds", "One run of the model.", secondsBuckets, "model"),

		gateQueries: counter("gate_queries_total", "Turns that the query gate decided on.", "stage", "bypassed", "policy"),
		gateTurns: counter("gate_chunk_turns_total", "Turns that the chunk gate decided on: fallback says that too few chunks passed, insufficient that the context does not suffice.",
			"policy", "query_type", "fallback", "insufficient"),
		gateOutcome: counter("gate_chunks_total", "Chunks by what became of them.", "policy", "query_type", "outcome"),

		modelInfo: gauge("model_info", "1 for each loaded model, with what runs it.",
			"model", "kind", "revision", "sha256", "provider", "precision", "dtype"),
		modelTokens: gauge("model_max_tokens", "Tokens of the longest sequence.", "model"),
	}
	build := gauge("build_info", "1, with the program's version.", "version", "goversion")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, m.requests, m.duration, m.inFlight, m.refused, m.items, m.tokens, m.cut, m.batchRows, m.batchTokens, m.batchPadding,
		m.batchFailed, m.queueWait, m.inferenceTime, m.gateQueries, m.gateTurns, m.gateOutcome, m.modelInfo, m.modelTokens, newGauges(life),
	)
	if expiry != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ragate_tls_certificate_expiry_timestamp_seconds", Help: "When the TLS certificate in use ends, in seconds since 1970.",
		}, func() float64 { return float64(expiry().Unix()) }))
	}
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// methods are the values of the label method; anything else a client makes up is "other".
var methods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true}

func (m *metrics) requestDone(x *exchange, status int, took time.Duration) {
	method := x.r.Method
	if !methods[method] {
		method = "other"
	}
	m.requests.WithLabelValues(x.route, method, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(x.route).Observe(took.Seconds())
	if x.refusal != nil {
		m.refused.WithLabelValues(kinds[x.refusal.kind].code).Inc()
		return
	}
	if x.model != "" {
		m.items.WithLabelValues(x.model).Add(float64(x.items))
		m.tokens.WithLabelValues(x.model).Add(float64(x.usage.Tokens))
		m.cut.WithLabelValues(x.model).Add(float64(len(x.usage.Cut)))
	}
}

// gateChunks counts a decision of the chunk gate.
func (m *metrics) gateChunks(d gates.ChunkDecision) {
	kind := string(d.Stats.QueryType)
	m.gateTurns.WithLabelValues(d.Policy.Name, kind, strconv.FormatBool(d.Stats.FallbackTriggered), strconv.FormatBool(d.InsufficientContext)).Inc()
	for _, list := range [][]quality.Result{d.Chunks, d.Dropped} {
		for _, r := range list {
			m.gateOutcome.WithLabelValues(d.Policy.Name, kind, string(r.Outcome)).Inc()
		}
	}
}

// BatchDone implements inference.Observer.
func (m *metrics) BatchDone(b inference.BatchStats) {
	lane := "bulk"
	if b.Lane == inference.LaneInteractive {
		lane = "interactive"
	}
	m.batchRows.WithLabelValues(b.Model).Observe(float64(b.Rows))
	m.batchTokens.WithLabelValues(b.Model).Add(float64(b.Tokens))
	m.batchPadding.WithLabelValues(b.Model).Add(float64(max(0, b.PaddedTokens-b.Tokens)))
	m.batchFailed.WithLabelValues(b.Model).Add(float64(b.Failed))
	m.queueWait.WithLabelValues(b.Model, lane).Observe(b.QueueWait.Seconds())
	m.inferenceTime.WithLabelValues(b.Model).Observe(b.Inference.Seconds())
}

// publish describes the loaded models, and makes their series exist before their first request.
func (m *metrics) publish(models []loaded, maxTokens int) {
	m.modelInfo.Reset()
	m.modelTokens.Reset()
	for _, l := range models {
		i := l.info
		m.modelInfo.WithLabelValues(i.ID, string(i.Kind), i.Revision, i.SHA256, i.Provider, i.Precision, i.DType).Set(1)
		m.modelTokens.WithLabelValues(i.ID).Set(float64(l.maxTokens(maxTokens)))
		for _, c := range []*prometheus.CounterVec{m.items, m.tokens, m.cut, m.batchTokens, m.batchPadding, m.batchFailed} {
			c.WithLabelValues(i.ID)
		}
	}
}

// gauges reads the scheduler's state when the metrics are scraped.
type gauges struct {
	life                                 *lifecycle
	ready, tokens, rows, maxTokens, rate *prometheus.Desc
}

func newGauges(life *lifecycle) *gauges {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("ragate_"+name, help, nil, nil) }
	return &gauges{
		life:      life,
		ready:     desc("ready", "1 while work is accepted."),
		tokens:    desc("queue_tokens", "Tokens waiting in the queue."),
		rows:      desc("queue_rows", "Texts and pairs waiting in the queue."),
		maxTokens: desc("queue_max_tokens", "Tokens that may wait before requests are refused."),
		rate:      desc("tokens_per_second", "Measured rate of useful tokens, from which Retry-After is computed."),
	}
}

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.ready, g.tokens, g.rows, g.maxTokens, g.rate} {
		ch <- d
	}
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	value := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	_, p, _ := g.life.now()
	if p == phaseReady {
		value(g.ready, 1)
	} else {
		value(g.ready, 0)
	}
	if s, ok := g.life.snapshot(); ok {
		value(g.tokens, float64(s.QueuedTokens))
		value(g.rows, float64(s.QueuedRows))
		value(g.maxTokens, float64(s.MaxQueuedTokens))
		value(g.rate, s.TokensPerSecond)
	}
}
