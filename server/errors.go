package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"ragate/inference"
)

// kind is what went wrong with a request, whatever its dialect. It alone decides the status.
type kind uint8

const (
	kindBody         kind = iota // the body is not JSON: grammar, UTF-8, trailing data, content type, empty
	kindField                    // a field is missing, null or of the wrong type or value
	kindEmpty                    // a list without items
	kindRange                    // a number outside its range
	kindConflict                 // fields that exclude each other
	kindTokenIDs                 // token ids where text belongs
	kindTooLong                  // a text has more tokens than the limit and may not be cut
	kindBodyTooLarge             // more bytes than the limit
	kindTooMany                  // more items than the limit
	kindKey                      // no key, or a wrong one
	kindModel                    // no model of that name, or of that kind, is loaded
	kindPolicy                   // no policy of that name is loaded
	kindRoute                    // no such path
	kindMethod                   // the path has no such method
	kindOverloaded               // the queue is full
	kindMemory                   // other requests hold too much memory
	kindStarting                 // models are not loaded yet
	kindDraining                 // the server is shutting down
	kindTimeout                  // the client was too slow in sending
	kindGone                     // the client has left; nobody reads the answer
	kindFailed                   // the model failed
	kindInternal                 // the program failed
)

// kinds is the one table from a kind to its status and to the words each dialect has for it.
var kinds = [...]struct {
	status    int
	teiStatus int    // on the TEI routes, where it differs
	typ       string // OpenAI and Cohere: error.type
	code      string // OpenAI and Cohere: error.code; also the reason label of ragate_refusals_total
	teiType   string // TEI: error_type
}{
	kindBody:         {400, 0, "invalid_request_error", "invalid_body", "Validation"},
	kindField:        {400, 422, "invalid_request_error", "invalid_field", "Validation"},
	kindEmpty:        {400, 422, "invalid_request_error", "empty_list", "Empty"},
	kindRange:        {400, 0, "invalid_request_error", "out_of_range", "Validation"},
	kindConflict:     {400, 0, "invalid_request_error", "conflicting_fields", "Validation"},
	kindTokenIDs:     {400, 0, "invalid_request_error", "text_only", "Validation"},
	kindTooLong:      {413, 0, "invalid_request_error", "text_too_long", "Validation"},
	kindBodyTooLarge: {413, 0, "invalid_request_error", "body_too_large", "Validation"},
	kindTooMany:      {413, 0, "invalid_request_error", "too_many_items", "Validation"},
	kindKey:          {401, 0, "authentication_error", "invalid_api_key", "Unauthorized"},
	kindModel:        {404, 0, "invalid_request_error", "model_not_found", "Validation"},
	kindPolicy:       {404, 0, "invalid_request_error", "policy_not_found", "Validation"},
	kindRoute:        {404, 0, "invalid_request_error", "unknown_route", "Validation"},
	kindMethod:       {405, 0, "invalid_request_error", "method_not_allowed", "Validation"},
	kindOverloaded:   {429, 0, "rate_limit_error", "queue_full", "Overloaded"},
	kindMemory:       {429, 0, "rate_limit_error", "memory_full", "Overloaded"},
	kindStarting:     {503, 0, "server_error", "starting", "Unhealthy"},
	kindDraining:     {503, 0, "server_error", "draining", "Unhealthy"},
	kindTimeout:      {408, 0, "invalid_request_error", "body_timeout", "Validation"},
	kindGone:         {statusClientGone, 0, "invalid_request_error", "client_gone", "Validation"},
	kindFailed:       {500, 0, "server_error", "inference_failed", "Backend"},
	kindInternal:     {500, 0, "server_error", "internal_error", "Backend"},
}

// statusClientGone stands in the log and the metrics for a request whose client left before its answer; it is never sent.
const statusClientGone = 499

// refusal is an error as a client sees it.
type refusal struct {
	kind       kind
	field      string // of the body, such as "input" or "documents"; "" where none is to blame
	message    string
	logged     string        // the message without what it quotes of the request; "": it quotes nothing
	retryAfter time.Duration // more than 0: sent as Retry-After
	cause      error         // for the log, never sent
}

func (r *refusal) Error() string { return r.message }
func (r *refusal) Unwrap() error { return r.cause }

func refuse(k kind, field, format string, args ...any) *refusal {
	r := &refusal{kind: k, field: field, message: fmt.Sprintf(format, args...)}
	for i, a := range args {
		if _, ok := a.(given); ok {
			args = slices.Clone(args)
			for j := range args[i:] {
				if _, ok := args[i+j].(given); ok {
					args[i+j] = "…"
				}
			}
			r.logged = fmt.Sprintf(format, args...)
			break
		}
	}
	return r
}

// given is a part of a message that came with the request's body. The client is told it, the log is not: what should be a name may be a text.
type given string

// classify turns any error of a handler into what the client is told. It is the only place that does.
func (x *exchange) classify(err error) *refusal {
	settings, item := x.s.cfg.Settings, x.item
	if item == nil {
		item = func(i int) string { return "item " + strconv.Itoa(i) }
	}
	var (
		known      *refusal
		tooLong    *inference.TooLongError
		overloaded *inference.OverloadedError
		row        *inference.RowError
		prompt     *inference.UnknownPromptError
		http_      *echo.HTTPError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooLong):
		remedy := "allow cutting with " + settings.Truncate
		switch x.dialect {
		case dialectTEI:
			remedy = "send `truncate`: true"
		case dialectKServe:
			remedy = "send `truncate`: true in `parameters`"
		}
		r := refuse(kindTooLong, "", "%s has %d tokens, the limit is %d tokens and cutting is refused: shorten it, or %s",
			item(tooLong.Item), tooLong.Tokens, tooLong.Limit, remedy)
		r.cause = err
		return r
	case errors.As(err, &overloaded):
		r := refuse(kindOverloaded, "", "the queue is full: %d tokens wait, %d of them this client's of at most %d, and this request has %d; try again in %d s, or raise %s",
			overloaded.Queued, overloaded.Held, overloaded.Limit, overloaded.Tokens, wholeSeconds(overloaded.RetryAfter), settings.MaxQueuedTokens)
		r.retryAfter, r.cause = max(overloaded.RetryAfter, 1), err
		return r
	case errors.As(err, &row):
		r := refuse(kindFailed, "", "the model failed on %s (%d of the request's items failed)", item(row.Item), max(row.Failed, 1))
		if errors.Is(err, inference.ErrNotFinite) {
			r.message = fmt.Sprintf("the model produced a value that is not finite for %s (%d of the request's items failed)", item(row.Item), max(row.Failed, 1))
		}
		r.cause = err
		return r
	case errors.As(err, &prompt):
		known := "none"
		if len(prompt.Known) > 0 {
			known = quoteAll(prompt.Known)
		}
		r := refuse(kindField, "prompt_name", "`prompt_name` %s is unknown; this model has %s", quote(prompt.Prompt), known)
		r.cause = err
		return r
	case errors.Is(err, inference.ErrClosed):
		r := x.s.refusePhase(phaseDraining, "")
		r.cause = err
		return r
	case errors.Is(err, context.Canceled) && x.r.Context().Err() != nil:
		return &refusal{kind: kindGone, message: "the client left before the answer", cause: err}
	case errors.As(err, &http_):
		switch http_.Code {
		case http.StatusNotFound:
			return refuse(kindRoute, "", "there is no route %s", clip(x.r.URL.Path))
		case http.StatusMethodNotAllowed:
			return x.refuseMethod()
		}
	}
	return &refusal{kind: kindInternal, message: "the server failed on this request; its log has the cause under this request id", cause: err}
}

// refuseMethod refuses a method that the path does not have; those it has are in the header Allow.
func (x *exchange) refuseMethod() *refusal {
	return refuse(kindMethod, "", "%s takes %s, not %s", clip(x.r.URL.Path), strings.TrimPrefix(x.w.Header().Get("Allow"), "OPTIONS, "), clip(x.r.Method))
}

// wholeSeconds rounds up, to at least 1: the unit of Retry-After.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// dialect is whose error body a route answers with.
type dialect uint8

const (
	dialectOpenAI dialect = iota
	dialectCohere
	dialectTEI
	dialectKServe
	dialectJina // of /v1/embeddings: OpenAI's body, and Jina's `detail`, which its clients read without looking whether it is there
)

// dialectOf says which dialect a path speaks, known or not; unknown paths get the OpenAI shape.
func dialectOf(path string) dialect {
	switch path {
	case "/", "/embed", "/rerank", "/similarity", "/tokenize":
		return dialectTEI
	case "/v1/rerank", "/v2/rerank", "/v1/embed", "/v2/embed":
		return dialectCohere
	case "/v1/embeddings":
		return dialectJina
	case "/v2", "/v2/health/live", "/v2/health/ready":
		return dialectKServe
	}
	if strings.HasPrefix(path, "/v2/models/") {
		return dialectKServe
	}
	return dialectOpenAI
}

func (r *refusal) status(d dialect) int {
	k := kinds[r.kind]
	if d == dialectTEI && k.teiStatus != 0 {
		return k.teiStatus
	}
	return k.status
}

// appendBody appends the error body of a dialect.
func (r *refusal) appendBody(dst []byte, d dialect) []byte {
	switch d {
	case dialectTEI:
		dst = append(dst, `{"error":`...)
		dst = appendString(dst, r.message)
		dst = append(dst, `,"error_type":`...)
		dst = appendString(dst, kinds[r.kind].teiType)
	case dialectKServe:
		dst = append(dst, `{"error":`...)
		dst = appendString(dst, r.message)
	case dialectCohere:
		dst = append(dst, `{"message":`...)
		dst = appendString(dst, r.message)
		dst = append(dst, `,"detail":`...)
		dst = appendString(dst, r.message)
		dst = append(dst, `,"error":`...)
		dst = r.appendObject(dst)
	default:
		dst = append(dst, `{"error":`...)
		dst = r.appendObject(dst)
		if d == dialectJina || r.kind == kindRoute { // an unknown route is most often a wrong base address in one of those clients
			dst = append(dst, `,"detail":`...)
			dst = appendString(dst, r.message)
		}
	}
	return append(dst, '}')
}

func (r *refusal) appendObject(dst []byte) []byte {
	dst = append(dst, `{"message":`...)
	dst = appendString(dst, r.message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, kinds[r.kind].typ)
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, kinds[r.kind].code)
	dst = append(dst, `,"param":`...)
	if r.field == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, r.field)
	}
	return append(dst, '}')
}
