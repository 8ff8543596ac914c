package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ragate/server/openapi"
)

// The API's description: /openapi.json and the page /docs that shows it. Both are made once, with this server's limits.

// docFile is a file with its type and its entity tag.
type docFile struct {
	body        []byte
	contentType string
	etag        string
}

func newDocFile(body []byte, contentType string) docFile {
	sum := sha256.Sum256(body)
	return docFile{body: body, contentType: contentType, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// describe renders the document. That it can be is held by a test: the source is part of the program.
func describe(cfg Config) (docFile, error) {
	doc, err := openapi.Render(openapi.Values{
		Version: cfg.Version,
		Keys:    len(cfg.Keys) > 0,
		Numbers: map[string]int64{
			"max_body_bytes": cfg.MaxBodyBytes,
			"max_items":      int64(cfg.MaxItems),
			"max_documents":  int64(cfg.MaxDocuments),
			"max_history":    maxHistory,
			"max_depth":      maxDepth,
			"budget_ms":      max(1, cfg.Budget.Milliseconds()),
			"body_timeout_s": int64(cfg.BodyTimeout / time.Second),
		},
	})
	if err != nil {
		return docFile{}, fmt.Errorf("the API's description: %w", err)
	}
	return newDocFile(doc, "application/json"), nil
}

// pagePolicy lets the page load its own script and style and ask this server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// serveDoc makes the handler of a file. A client that has it already is told so; a cache must ask each time, since an upgrade changes it.
func (s *Server) serveDoc(f docFile) handler {
	return func(x *exchange) error {
		h := x.w.Header()
		h.Set("ETag", f.etag)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		if strings.HasPrefix(f.contentType, "text/html") {
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("Referrer-Policy", "no-referrer")
		}
		x.writeBy()
		if has(x.r.Header.Get("If-None-Match"), f.etag) {
			x.w.WriteHeader(http.StatusNotModified)
			return nil
		}
		h.Set("Content-Type", f.contentType)
		h.Set("Content-Length", strconv.Itoa(len(f.body)))
		x.w.WriteHeader(http.StatusOK)
		_, _ = x.w.Write(f.body) // a client that has left is seen by its context
		return nil
	}
}

// has reports whether a list of entity tags holds one, as RFC 9110 compares them for If-None-Match: weakly.
func has(list, etag string) bool {
	for _, t := range strings.Split(list, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == etag {
			return true
		}
	}
	return false
}
