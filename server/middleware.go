package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"ragate/inference"
)

// exchange is one request and its answer, with what the log line and the metrics will say of it. It belongs to the request's goroutine.
type exchange struct {
	s       *Server
	w       *echo.Response
	r       *http.Request
	route   string // the pattern, unmatched where there is none
	param   string // what matched the pattern's *
	dialect dialect
	id      string
	key     string // name of the caller's key
	begun   time.Time
	bytesIn int64 // of the body, as read
	held    int64 // bytes charged to the server's memory budget

	models []loaded // of the phase the request came in; set for work
	gates  Gates
	item   func(i int) string

	// What a handler that worked leaves for the log.
	model  string
	items  int
	usage  inference.Usage
	timing inference.Timing
	stages [2]stageTime // of a gate, beside those of the model: before them and after
	text   string       // what was asked, for a log that holds texts
	log    []slog.Attr  // of this route's own

	work  bool // it was admitted
	trace traced

	unsent  int // bytes that may be written before the write deadline moves
	refusal *refusal
	broken  bool // the refusal came when part of the answer was sent
}

type handler func(x *exchange) error

// client is who the queue takes the request to be of: the key's name, or where no key is asked for the host it came from. A proxy in
// front is one host, and so is a network of IPv6 addresses that one customer is commonly given.
func (x *exchange) client() string {
	if x.key != "" {
		return "key " + x.key
	}
	host, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		return x.r.RemoteAddr
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() && !a.Is4In6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return host
}

const exchangeKey = "exchange"

// unmatched is the route of paths that no pattern fits.
const unmatched = "unmatched"

func (s *Server) handle(h handler) echo.HandlerFunc {
	return func(c echo.Context) error { return h(c.Get(exchangeKey).(*exchange)) }
}

// open are the routes that ask for no key: probes and scrapers have none, and a browser cannot send one with the address of a page. The
// page itself is the same everywhere; it asks for a key to fetch the document with.
var open = map[string]bool{
	"/health": true, "/ready": true, "/metrics": true, "/v2/health/live": true, "/v2/health/ready": true,
	"/docs": true, "/docs/docs.js": true, "/docs/docs.css": true,
}

// around wraps every request, known route or not: id, key, panics, the error's body, metrics and the one log line.
func (s *Server) around(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		x := &exchange{s: s, w: c.Response(), r: r, begun: time.Now(), id: requestID(r.Header), dialect: dialectOf(r.URL.Path)}
		if x.route = c.Path(); !s.patterns[x.route] {
			x.route = unmatched
		}
		x.param = c.Param("*")
		x.startSpan()
		c.Set(exchangeKey, x)
		x.w.Header().Set("X-Request-Id", x.id)
		if r.ContentLength != 0 {
			setReadDeadline(x.w, x.begun.Add(s.cfg.BodyTimeout))
		}
		s.metrics.inFlight.Inc()
		defer func() {
			v := recover()
			if v != nil && v != http.ErrAbortHandler {
				x.fail(&refusal{kind: kindInternal, message: "the server failed on this request; its log has the cause under this request id",
					cause: fmt.Errorf("panic: %v\n%s", v, debug.Stack())})
			}
			s.metrics.inFlight.Dec()
			x.finish()
			if v == http.ErrAbortHandler || x.broken {
				panic(http.ErrAbortHandler) // closes the connection: a client must not take half an answer for a whole one
			}
		}()

		if s.cors(x) {
			return nil
		}
		var err error
		if name, ok := s.keys.Load().find(r.Header); ok || open[x.route] {
			x.key = name
			err = next(c)
		} else {
			x.w.Header().Set("WWW-Authenticate", `Bearer realm="ragate"`)
			err = refuse(kindKey, "", "a valid API key is needed: send it as `Authorization: Bearer KEY` or in `X-API-Key`; the keys are those of %s", s.cfg.Settings.Keys)
		}
		if err != nil {
			x.fail(x.classify(err))
		}
		return nil
	}
}

// working admits a request as work: it is refused unless the server is ready, and waited for when it shuts down.
func (s *Server) working(h handler) handler {
	return func(x *exchange) error {
		models, g, phase, reason := s.life.begin()
		if phase != phaseReady {
			return s.refusePhase(phase, reason)
		}
		defer s.life.end()
		defer x.release()
		x.models, x.gates, x.work = models, g, true
		return h(x)
	}
}

// refusePhase is the refusal of a server that is not ready.
func (s *Server) refusePhase(p phase, reason string) *refusal {
	r := refuse(kindDraining, "", "the server is shutting down: send the request to another, or again later")
	if p == phaseStarting {
		r = refuse(kindStarting, "", "the server is starting: %s; try again in %d s", reason, wholeSeconds(s.cfg.RetryAfter))
	}
	r.retryAfter = s.cfg.RetryAfter
	return r
}

// fail answers with a refusal, unless an answer has begun.
func (x *exchange) fail(r *refusal) {
	x.refusal = r
	if x.w.Committed {
		x.broken = true
		return
	}
	if r.kind != kindGone && r.kind != kindTimeout {
		x.drain()
	}
	h := x.w.Header()
	if r.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(wholeSeconds(r.retryAfter), 10))
	}
	x.send(r.status(x.dialect), r.appendBody(make([]byte, 0, 512), x.dialect))
}

// send writes a whole JSON answer, or the last piece of one that spill has begun.
func (x *exchange) send(status int, body []byte) {
	if !x.w.Committed {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		x.begin(status)
	}
	_ = x.write(body) // a client that has left is seen by its context
}

// flushBytes is how much of an answer is held at once.
const flushBytes = 64 << 10

// spill sends the answer made so far where it has grown, and returns the memory for what comes next. Nothing can be refused afterwards, so it is
// called when only encoding is left. An error means that the client takes no more.
func (x *exchange) spill(b []byte) ([]byte, error) {
	if len(b) < flushBytes {
		return b, nil
	}
	if !x.w.Committed {
		x.begin(http.StatusOK)
	}
	if err := x.write(b); err != nil {
		return nil, &refusal{kind: kindGone, message: "the client left, or took too long, before the end of the answer", cause: err}
	}
	return b[:0], nil
}

// begin sends the headers of a JSON answer.
func (x *exchange) begin(status int) {
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	if x.work {
		h.Set(serverTimingHeader, x.serverTiming())
	}
	if n := len(x.usage.Cut); n > 0 {
		h.Set("X-Ragate-Truncated", strconv.Itoa(n))
	}
	x.writeBy()
	x.w.WriteHeader(status)
}

// writeUnit is how much of an answer a client must take within WriteTimeout. Time is given by the unit and not by the write: a client that
// takes a few bytes before each deadline would else keep an answer for hours.
const writeUnit = 8 << 20

// write sends bytes of an answer that has begun.
func (x *exchange) write(piece []byte) error {
	if x.unsent -= len(piece); x.unsent < 0 {
		x.writeBy()
	}
	_, err := x.w.Write(piece)
	return err
}

// writeBy gives the client WriteTimeout from now to take the next writeUnit.
func (x *exchange) writeBy() {
	x.unsent = writeUnit
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.s.cfg.WriteTimeout))
}

const serverTimingHeader = "Server-Timing"

// serverTiming is where the time of a request went so far, in milliseconds: W3C Server Timing. Stages that did not run are left out, the
// total never.
func (x *exchange) serverTiming() string {
	b := make([]byte, 0, 128)
	add := func(name string, d time.Duration) {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, name...), ";dur="...)
		b = strconv.AppendFloat(b, max(0, float64(d)/float64(time.Millisecond)), 'f', 3, 64)
	}
	for _, s := range x.allStages() {
		if s.took > 0 {
			add(s.name, s.took)
		}
	}
	add("total", time.Since(x.begun))
	return string(b)
}

// allStages lists the stages in the order in which they run, with no time for those that did not.
func (x *exchange) allStages() [5]stageTime {
	return [5]stageTime{x.stages[0], {"tokenize", x.timing.Tokenize}, {"queue", x.timing.Queue}, {"inference", x.timing.Inference}, x.stages[1]}
}

// asked keeps the first of the texts for a log that holds some.
func (x *exchange) asked(texts ...string) {
	if x.s.cfg.LogText && len(texts) > 0 {
		x.text = clipTo(texts[0], loggedMax)
	}
}

// loggedMax is how much of a text a log line repeats, in bytes: enough to know a question by.
const loggedMax = 200

// finish counts the request, ends its span and writes its log line. No text appears in it unless the setting asks for that: what a refusal
// quotes of the request is left out too, as a text may stand where a name belongs.
func (x *exchange) finish() {
	took := time.Since(x.begun)
	status, level := x.w.Status, slog.LevelInfo
	if x.refusal != nil && x.refusal.kind == kindGone {
		status = statusClientGone
	}
	x.s.metrics.requestDone(x, status, took)
	x.endSpan(status)
	switch {
	case open[x.route] && (x.refusal == nil || x.refusal.retryAfter > 0):
		level = slog.LevelDebug // probes and scrapes come every few seconds, also while the server starts
	case status >= 500 && (x.refusal == nil || x.refusal.retryAfter == 0):
		level = slog.LevelError
	case status >= 500 || status == http.StatusTooManyRequests:
		level = slog.LevelWarn
	}
	ctx := x.r.Context()
	if !x.s.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 24)
	attrs = append(attrs,
		slog.String("request_id", x.id),
		slog.String("method", clip(x.r.Method)),
		slog.String("route", x.route),
		slog.Int("status", status),
		slog.Float64("duration_ms", milliseconds(took)),
		slog.String("remote", x.r.RemoteAddr),
		slog.Int64("bytes_in", x.bytesIn),
		slog.Int64("bytes_out", x.w.Size),
	)
	if ids := x.traceIDs(); ids.IsValid() {
		attrs = append(attrs, slog.String("trace_id", ids.TraceID().String()), slog.String("span_id", ids.SpanID().String()))
	}
	if x.key != "" {
		attrs = append(attrs, slog.String("key", x.key))
	}
	if x.model != "" {
		attrs = append(attrs, slog.String("model", x.model), slog.Int("items", x.items))
	}
	if x.usage.Tokens > 0 {
		attrs = append(attrs, slog.Int("tokens", x.usage.Tokens), slog.Int("items_cut", len(x.usage.Cut)))
	}
	for _, s := range x.allStages() {
		if s.took > 0 {
			attrs = append(attrs, slog.Float64(s.name+"_ms", milliseconds(s.took)))
		}
	}
	attrs = append(attrs, x.log...)
	if x.text != "" {
		attrs = append(attrs, slog.String("text", x.text))
	}
	if x.refusal != nil {
		message := x.refusal.message
		if x.refusal.logged != "" && !x.s.cfg.LogText {
			message = x.refusal.logged
		}
		attrs = append(attrs, slog.String("refused", kinds[x.refusal.kind].code), slog.String("error", message))
		if x.refusal.cause != nil && level == slog.LevelError {
			attrs = append(attrs, slog.String("cause", x.refusal.cause.Error()))
		}
	}
	x.s.log.LogAttrs(ctx, level, "request", attrs...)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// requestID returns the caller's id when it is one: visible ASCII of a bounded length. Otherwise it makes one.
func requestID(h http.Header) string {
	if id := h.Get("X-Request-Id"); id != "" && len(id) <= maxRequestIDSize && visibleASCII(id) {
		return id
	}
	return newID()
}

// newID returns 128 random bits in the text form of a UUID version 4.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// keyring compares a caller's key with all keys in constant time: hashes have one length, and every key is compared each time.
type keyring []struct {
	name string
	hash [sha256.Size]byte
}

func newKeyring(keys []Key) *keyring {
	ring := make(keyring, len(keys))
	for i, k := range keys {
		ring[i].name, ring[i].hash = k.Name, sha256.Sum256([]byte(k.Key))
	}
	return &ring
}

// find returns the name of the key that a request carries; true with no name where no key is asked for.
func (ring keyring) find(h http.Header) (name string, ok bool) {
	if len(ring) == 0 {
		return "", true
	}
	for _, given := range []string{bearer(h.Get("Authorization")), h.Get("X-API-Key")} {
		hash := sha256.Sum256([]byte(given))
		for _, k := range ring {
			if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
				name, ok = k.name, true
			}
		}
	}
	return name, ok
}

// bearer returns the token of an Authorization header, "" for another scheme. No key is empty, so "" matches none.
func bearer(authorization string) string {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
