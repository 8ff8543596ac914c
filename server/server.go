package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"ragate/inference"
	"ragate/server/openapi"
)

// Model is a loaded model as this package needs it. Which half of it works is said by its Info().Kind: Embed and Tokens of an embedder,
// Rerank and Tokens of a reranker are called, the other never.
type Model interface {
	Info() inference.Info
	inference.Embedder
	inference.Reranker
	inference.Tokenizer
}

// Engine is what the models' side offers once it is loaded and warmed.
type Engine struct {
	Models   []Model                // listed in this order; the first of each kind serves requests that name none
	Unlisted []Model                // behind them: loaded for a gate alone, in /info and usable by name, but not among those that clients are offered
	Stats    func() inference.Stats // for the metrics; nil: no queue gauges
	Gates    Gates                  // may be empty: then every policy is unknown
	Cache    func() CacheStats      // what need not be computed twice; nil: there is no cache
	Resident func() int64           // the process's resident memory in bytes, for /info; nil: it is not said
}

// cacheStats reads the cache's counters; nil where there is none.
func (e Engine) cacheStats() *CacheStats {
	if e.Cache == nil {
		return nil
	}
	s := e.Cache()
	return &s
}

// Server answers HTTP. It is safe for concurrent use. Make one with [New].
type Server struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	echo     *echo.Echo
	patterns map[string]bool // the routes' patterns: the values of the metrics' label
	http     *http.Server
	keys     atomic.Pointer[keyring]
	tracer   trace.Tracer // nil: off

	memory     budget
	tokenizing chan struct{} // bounds how many /tokenize requests hold their token lists at once

	life lifecycle
}

// New makes a server that is not ready: it answers /health, and work with 503 until [Server.SetReady]. It opens nothing and starts no
// goroutine. A Config that does not validate is an error that names every bad field.
func New(cfg Config, logger *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:        cfg,
		log:        logger,
		memory:     budget{limit: cfg.MaxInflightBytes},
		tokenizing: make(chan struct{}, tokenizeSlots),
		life:       lifecycle{reason: "the models are being loaded", idle: make(chan struct{})},
	}
	s.keys.Store(newKeyring(cfg.Keys))
	s.metrics = newMetrics(cfg, &s.life)
	if cfg.Tracing.Provider != nil {
		s.tracer = cfg.Tracing.Provider.Tracer("ragate/server", trace.WithInstrumentationVersion(cfg.Version))
	}
	doc, err := describe(cfg)
	if err != nil {
		return nil, err
	}
	s.echo = s.routes(doc)
	s.http = &http.Server{
		Handler:           s.echo,
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		TLSConfig:         cfg.TLS,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // TLS scans, resets: not a fault of this side
	}
	return s, nil
}

// Handler returns the whole API, for a listener of one's own or for tests.
func (s *Server) Handler() http.Handler { return s.echo }

// Observer returns what the engine tells of its batches; they become metrics.
func (s *Server) Observer() inference.Observer { return s.metrics }

// Serve answers on ln until Shutdown, then returns nil; any other end is an error. It closes ln. With Config.TLS it speaks HTTPS.
func (s *Server) Serve(ln net.Listener) error {
	serve := s.http.Serve
	if s.cfg.TLS != nil {
		serve = func(ln net.Listener) error { return s.http.ServeTLS(ln, "", "") }
	}
	if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// SetKeys replaces the keys that requests are asked for, from the next request on. Keys that cannot be used are an error, and so is an
// end to asking: the old ones stay.
func (s *Server) SetKeys(keys []Key) error {
	if len(keys) == 0 && len(*s.keys.Load()) > 0 {
		return errors.New("no key is left: a server that asks for keys goes on to do so")
	}
	if err := validateKeys(keys, func(i int) string { return fmt.Sprintf("entry %d", i+1) }); err != nil {
		return err
	}
	s.keys.Store(newKeyring(keys))
	s.metrics.setKeys(keys)
	return nil
}

// Shutdown drains, waits for the work in flight while the listener stays open (so that probes see /ready fail and stray clients get a
// 503 rather than a refused connection), then closes listener and connections. When ctx ends first, what still runs is cut off and
// ctx's error returned. The engine is not touched: close it after.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	select {
	case <-s.life.idle:
	case <-ctx.Done():
	}
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// SetStarting says on /ready what the start is waiting for. It has no effect once the server is ready or draining.
func (s *Server) SetStarting(reason string) { s.life.setStarting(reason) }

// SetReady begins to accept work for the engine's models. It has no effect once the server is draining.
func (s *Server) SetReady(e Engine) {
	models := make([]loaded, 0, len(e.Models)+len(e.Unlisted))
	for _, m := range e.Models {
		models = append(models, loaded{Model: m, info: m.Info()})
	}
	for _, m := range e.Unlisted {
		models = append(models, loaded{Model: m, info: m.Info(), unlisted: true})
	}
	s.metrics.publish(models, s.cfg.MaxTokens)
	s.life.setReady(models, e)
}

// Drain refuses new work with 503 and makes /ready fail; work in flight goes on. There is no way back.
func (s *Server) Drain() { s.life.drain() }

// phase is where a server stands between its start and its end. It only moves forward.
type phase uint8

const (
	phaseStarting phase = iota
	phaseReady
	phaseDraining
)

func (p phase) String() string { return [...]string{"starting", "ready", "draining"}[p] }

// lifecycle holds the phase, the models once there, and the count of work in flight, all under one lock: a request either
// sees the drain or is waited for.
type lifecycle struct {
	mu     sync.Mutex
	phase  phase
	reason string   // of phaseStarting
	models []loaded // those of engine, the unlisted ones last
	engine Engine
	work   int
	idle   chan struct{} // closed when draining and no work is left
}

func (l *lifecycle) setStarting(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reason = reason
}

func (l *lifecycle) setReady(models []loaded, e Engine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseDraining {
		return
	}
	l.phase, l.models, l.engine = phaseReady, models, e
}

func (l *lifecycle) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseDraining {
		return
	}
	l.phase = phaseDraining
	if l.work == 0 {
		close(l.idle)
	}
}

// begin admits a piece of work and returns the models it may use; unless the phase is ready it does not, and end must not be called.
func (l *lifecycle) begin() ([]loaded, Gates, phase, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseReady {
		l.work++
	}
	return l.models, l.engine.Gates, l.phase, l.reason
}

func (l *lifecycle) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work--
	if l.phase == phaseDraining && l.work == 0 {
		close(l.idle)
	}
}

func (l *lifecycle) now() ([]loaded, phase, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models, l.phase, l.reason
}

// offered is the engine that was handed over, the zero value before that.
func (l *lifecycle) offered() Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine
}

// snapshot returns the engine's gauges; false before it is there.
func (l *lifecycle) snapshot() (inference.Stats, bool) {
	e := l.offered()
	if e.Stats == nil {
		return inference.Stats{}, false
	}
	return e.Stats(), true
}

// routes builds the router: the table below is the whole API.
func (s *Server) routes(doc docFile) *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) { // errors are answered by s.around; this is what it could not
		s.log.LogAttrs(c.Request().Context(), slog.LevelError, "an error passed the handlers", slog.Any("error", err))
	}
	e.Use(s.around)

	get := func(path string, h handler) {
		e.GET(path, s.handle(h))
		e.HEAD(path, s.handle(h))
	}
	get("/health", s.health)
	get("/ready", s.ready)
	get("/metrics", s.serveMetrics)
	get("/info", s.info)
	get("/v1/models", s.listModels)
	get("/v1/models/*", s.showModel)

	post := func(path string, h handler) { e.POST(path, s.handle(s.working(h))) }
	post("/v1/embeddings", s.openaiEmbeddings)
	post("/v1/rerank", s.cohereRerank("1"))
	post("/v2/rerank", s.cohereRerank("2"))
	post("/v1/embed", s.cohereEmbed("1"))
	post("/v2/embed", s.cohereEmbed("2"))
	post("/", s.teiRoot)
	post("/embed", s.teiEmbed)
	post("/rerank", s.teiRerank)
	post("/similarity", s.teiSimilarity)
	post("/tokenize", s.teiTokenize)
	post("/v1/gate/query", s.gateQuery)
	post("/v1/gate/chunks", s.gateChunks)
	post("/v1/gate/references/reload", s.reloadReferences)

	get("/openapi.json", s.serveDoc(doc))
	get("/docs", s.serveDoc(newDocFile(openapi.Page("docs.html"), "text/html; charset=utf-8")))
	get("/docs/docs.js", s.serveDoc(newDocFile(openapi.Page("docs.js"), "text/javascript; charset=utf-8")))
	get("/docs/docs.css", s.serveDoc(newDocFile(openapi.Page("docs.css"), "text/css; charset=utf-8")))

	get("/v2", s.kserveServer)
	get("/v2/health/live", s.kserveLive)
	get("/v2/health/ready", s.kserveReady)
	e.Any(kservePattern, s.handle(s.kserveModel)) // ids hold slashes: what follows them decides which methods there are
	s.patterns = map[string]bool{}
	for _, r := range e.Routes() {
		s.patterns[r.Path] = true
	}
	return e
}
