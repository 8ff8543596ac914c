package server

import (
	"net/http"
	"slices"
	"strings"
)

// What pages of allowed origins may send, and what they may read of an answer.
const (
	corsMethods = "GET, HEAD, POST"
	corsHeaders = "Authorization, Content-Type, Traceparent, Tracestate, X-API-Key, X-Request-Id"
	corsExposed = "Retry-After, Server-Timing, X-Ragate-Truncated, X-Request-Id"
	corsMaxAge  = "600" // seconds that a browser may remember the answer to its question; ten minutes, as Chromium's upper bound is two hours
)

// cors lets pages of the configured origins read the answer. It returns true when the request was only a browser's question whether it
// may send another, which carries no key and is answered here.
func (s *Server) cors(x *exchange) (answered bool) {
	if len(s.cfg.CORSOrigins) == 0 {
		return false
	}
	h := x.w.Header()
	h.Add("Vary", "Origin")
	origin := x.r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.cfg.CORSOrigins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	x.w.WriteHeader(http.StatusNoContent)
	return true
}

// validOrigin reports whether s is an origin as browsers send it: scheme, host and perhaps a port, nothing behind.
func validOrigin(s string) bool {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "http://")
	}
	return ok && rest != "" && visibleASCII(rest) && !strings.ContainsAny(rest, "/?#@*,") && s == strings.ToLower(s)
}
