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
	reused *prometheus.CounterVec

	batchRows     *prometheus.HistogramVec
	batchTokens   *prometheus.CounterVec
	batchPadding  *prometheus.CounterVec
	batchFailed   *prometheus.CounterVec
	queueWait     *prometheus.HistogramVec
	inferenceTime *prometheus.HistogramVec

	gateQueries *prometheus.CounterVec
	gateTurns   *prometheus.CounterVec
	gateOutcome *prometheus.CounterVec
	gateCut     *prometheus.CounterVec
	gateStage   *prometheus.HistogramVec

	keyRequests *prometheus.CounterVec
	keyTokens   *prometheus.CounterVec

	reloads  *prometheus.CounterVec
	reloadAt *prometheus.GaugeVec

	modelInfo   *prometheus.GaugeVec
	modelTokens *prometheus.GaugeVec
	modelDrift  *prometheus.GaugeVec

	all []prometheus.Collector // of this server's own
}

// Buckets. Requests span a cached short query to 2,048 passages; the gates' budget of 0.1 s is a border of its own.
var (
	secondsBuckets = []float64{.001, .0025, .005, .01, .02, .035, .05, .075, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60}
	rowsBuckets    = []float64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256}
	// Stages of a gate take from some microseconds (patterns) to the budget; beyond 2.5 s it does not matter by how much.
	stageBuckets = []float64{.00001, .000025, .0001, .00025, .001, .0025, .005, .01, .02, .035, .05, .075, .1, .15, .25, .5, 1, 2.5}
)

func newMetrics(cfg Config, life *lifecycle) *metrics {
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
		tokens: counter("tokens_total", "Tokens of requests that succeeded, special tokens included, after cutting; those of answers from the cache count too. What ran is ragate_batch_tokens_total.", "model"),
		reused: counter("reused_items_total", "Of ragate_items_total, those that did not run: equal to one before, or scored like it was with a similar query.", "model", "how"),
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
		gateCut:     counter("gate_truncated_chunks_total", "Chunks of which the model read only a part.", "policy"),
		gateStage:   histogram("gate_stage_seconds", "Stages of a gate's decision that ran; total is the whole decision.", stageBuckets, "gate", "stage"),

		keyRequests: counter("key_requests_total", "Requests answered, by the name of the caller's key.", "key"),
		keyTokens:   counter("key_tokens_total", "Tokens as in ragate_tokens_total, by the name of the caller's key.", "key"),

		reloads:  counter("reloads_total", "Reloads of what the server was started with, by outcome: ok or failed.", "what", "outcome"),
		reloadAt: gauge("reload_success_timestamp_seconds", "When the last reload worked, in Unix time.", "what"),

		modelInfo: gauge("model_info", "1 for each loaded model, with what runs it.",
			"model", "kind", "revision", "sha256", "provider", "precision", "dtype"),
		modelTokens: gauge("model_max_tokens", "Tokens of the longest sequence.", "model"),
		modelDrift: gauge("model_drift", "Self-test: how far an answer moves when other texts share its batch (against batch), and how far it is from float32 on the cpu provider (against float32)."+
			" Measure logit: largest difference; cosine_distance: 1 - smallest cosine.", "model", "against", "measure"),
	}
	build := gauge("build_info", "1, with the program's version.", "version", "goversion")
	build.WithLabelValues(cfg.Version, runtime.Version()).Set(1)
	m.all = []prometheus.Collector{
		build, m.requests, m.duration, m.inFlight, m.refused, m.items, m.tokens, m.cut, m.reused, m.batchRows, m.batchTokens, m.batchPadding,
		m.batchFailed, m.queueWait, m.inferenceTime, m.gateQueries, m.gateTurns, m.gateOutcome, m.gateCut, m.gateStage, m.keyRequests, m.keyTokens,
		m.reloads, m.reloadAt, m.modelInfo, m.modelTokens, m.modelDrift, newGauges(life), newCacheGauges(life), newSpanCounts(cfg.Tracing.Spans),
	}
	m.registry.MustRegister(m.all...)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.setKeys(cfg.Keys)
	for _, outcome := range []string{"ok", "failed"} {
		m.reloads.WithLabelValues("references", outcome)
	}
	if cfg.CertificateExpiry != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ragate_tls_certificate_expiry_timestamp_seconds", Help: "When the TLS certificate in use ends, in seconds since 1970.",
		}, func() float64 { return float64(cfg.CertificateExpiry().Unix()) }))
	}
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// setKeys makes the series of keys exist before their first request, as a key that is never used is worth seeing too.
func (m *metrics) setKeys(keys []Key) {
	for _, k := range keys {
		m.keyRequests.WithLabelValues(k.Name)
		m.keyTokens.WithLabelValues(k.Name)
	}
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
	if x.key != "" {
		m.keyRequests.WithLabelValues(x.key).Inc()
	}
	if x.refusal != nil {
		m.refused.WithLabelValues(kinds[x.refusal.kind].code).Inc()
		return
	}
	if x.model != "" {
		m.items.WithLabelValues(x.model).Add(float64(x.items))
		m.tokens.WithLabelValues(x.model).Add(float64(x.usage.Tokens))
		m.cut.WithLabelValues(x.model).Add(float64(len(x.usage.Cut)))
		m.reused.WithLabelValues(x.model, "equal").Add(float64(x.usage.Reused))
		m.reused.WithLabelValues(x.model, "similar").Add(float64(x.usage.Similar))
		if x.key != "" {
			m.keyTokens.WithLabelValues(x.key).Add(float64(x.usage.Tokens))
		}
	}
}

// stages observes the stages of a gate that ran.
func (m *metrics) stages(x *exchange, gate string, total time.Duration) {
	for _, s := range x.allStages() {
		if s.took > 0 {
			m.gateStage.WithLabelValues(gate, s.name).Observe(s.took.Seconds())
		}
	}
	m.gateStage.WithLabelValues(gate, "total").Observe(total.Seconds())
}

// gateQuery counts a decision of the query gate.
func (m *metrics) gateQuery(x *exchange, d gates.QueryDecision) {
	m.stages(x, "query", d.Times.Total)
	m.gateQueries.WithLabelValues(string(d.Stage), strconv.FormatBool(!d.NeedsRetrieval), d.Policy.Name).Inc()
}

// reloaded counts a reload.
func (m *metrics) reloaded(what string, err error) {
	if err != nil {
		m.reloads.WithLabelValues(what, "failed").Inc()
		return
	}
	m.reloads.WithLabelValues(what, "ok").Inc()
	m.reloadAt.WithLabelValues(what).SetToCurrentTime()
}

// gateChunks counts a decision of the chunk gate.
func (m *metrics) gateChunks(x *exchange, d gates.ChunkDecision) {
	m.stages(x, "chunks", d.Total)
	m.gateCut.WithLabelValues(d.Policy.Name).Add(float64(len(x.usage.Cut)))
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
	m.batchRows.WithLabelValues(b.Model).Observe(float64(b.Rows))
	m.batchTokens.WithLabelValues(b.Model).Add(float64(b.Tokens))
	m.batchPadding.WithLabelValues(b.Model).Add(float64(max(0, b.PaddedTokens-b.Tokens)))
	m.batchFailed.WithLabelValues(b.Model).Add(float64(b.Failed))
	m.queueWait.WithLabelValues(b.Model, laneName(b.Lane)).Observe(b.QueueWait.Seconds())
	m.inferenceTime.WithLabelValues(b.Model).Observe(b.Inference.Seconds())
}

// publish describes the loaded models, and makes their series exist before their first request.
func (m *metrics) publish(models []loaded, maxTokens int) {
	m.modelInfo.Reset()
	m.modelTokens.Reset()
	m.modelDrift.Reset()
	for _, l := range models {
		i := l.info
		m.modelInfo.WithLabelValues(i.ID, string(i.Kind), i.Revision, i.SHA256, i.Provider, i.Precision, i.DType).Set(1)
		m.modelTokens.WithLabelValues(i.ID).Set(float64(l.maxTokens(maxTokens)))
		for against, d := range map[string]inference.Drift{"batch": i.Drift, "float32": i.Fidelity} {
			switch {
			case d.Rows == 0: // not measured
			case i.Kind == inference.KindReranker:
				m.modelDrift.WithLabelValues(i.ID, against, "logit").Set(d.MaxLogit)
			default:
				m.modelDrift.WithLabelValues(i.ID, against, "cosine_distance").Set(1 - d.MinCosine)
			}
		}
		for _, c := range []*prometheus.CounterVec{m.items, m.tokens, m.cut, m.batchTokens, m.batchPadding, m.batchFailed} {
			c.WithLabelValues(i.ID)
		}
	}
}

func laneName(l inference.Lane) string {
	if l == inference.LaneInteractive {
		return "interactive"
	}
	return "bulk"
}

// spanCounts reads what became of the spans when the metrics are scraped.
type spanCounts struct {
	spans func() (exported, failed, dropped uint64)
	desc  *prometheus.Desc
}

func newSpanCounts(spans func() (exported, failed, dropped uint64)) *spanCounts {
	return &spanCounts{spans, prometheus.NewDesc("ragate_trace_spans_total",
		"Spans by what became of them: exported, failed (the collector did not take them), dropped (the queue for it was full). Absent while tracing is off.", []string{"outcome"}, nil)}
}

func (c *spanCounts) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *spanCounts) Collect(ch chan<- prometheus.Metric) {
	if c.spans == nil {
		return
	}
	exported, failed, dropped := c.spans()
	for outcome, n := range map[string]uint64{"exported": exported, "failed": failed, "dropped": dropped} {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n), outcome)
	}
}

// gauges reads the scheduler's state when the metrics are scraped.
type gauges struct {
	life                                                *lifecycle
	ready, tokens, rows, maxTokens, rate, workers, busy *prometheus.Desc
}

func newGauges(life *lifecycle) *gauges {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("ragate_"+name, help, nil, nil) }
	return &gauges{
		life:      life,
		ready:     desc("ready", "1 while work is accepted."),
		tokens:    desc("queue_tokens", "Tokens waiting in the queue."),
		rows:      desc("queue_rows", "Texts and pairs waiting in the queue."),
		maxTokens: desc("queue_max_tokens", "Tokens that one client may have waiting while no other has any."),
		rate:      desc("tokens_per_second", "Measured rate of useful tokens, from which Retry-After is computed."),
		workers:   desc("workers", "Workers that run batches: streams of the models."),
		busy:      desc("workers_busy", "Workers that are running one."),
	}
}

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.ready, g.tokens, g.rows, g.maxTokens, g.rate, g.workers, g.busy} {
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
		value(g.workers, float64(s.Workers))
		value(g.busy, float64(s.Busy))
	}
}
