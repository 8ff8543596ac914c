package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Reading a body safely: the byte limit counts every byte that comes, white space behind the object and chunked transfer included;
// a deadline bounds the whole of it; and a refused body is read on for a while, because a client that is still sending would
// otherwise see its connection reset in place of the refusal.

const (
	drainTimeout = 5 * time.Second // for reading on after a refusal
	firstRead    = freeBytes       // bytes allocated before any came: a claimed length alone must not cost memory
)

// bodyCharge is how many bytes a byte of a body is charged as: itself, and its share of the texts that are read from it.
const bodyCharge = 2

var bom = "\xef\xbb\xbf"

// readBody returns the whole body after checking its type, size and encoding. It does not check that it is JSON.
func (x *exchange) readBody() ([]byte, error) {
	r, limit := x.r, x.s.cfg.MaxBodyBytes
	if err := checkContentType(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, x.refuseBody(fmt.Sprintf("has %d bytes", r.ContentLength))
	}
	size := int64(firstRead)
	if r.ContentLength >= 0 && r.ContentLength < size {
		size = r.ContentLength
	}
	body := make([]byte, 0, size+1) // one more, so that the end is found without growing
	for {
		n, err := r.Body.Read(body[len(body):min(int64(cap(body)), limit+1)])
		body = body[:len(body)+n]
		x.bytesIn = int64(len(body))
		switch {
		case int64(len(body)) > limit:
			if whole := x.drain(); whole {
				return nil, x.refuseBody(fmt.Sprintf("has %d bytes", x.bytesIn))
			}
			return nil, x.refuseBody(fmt.Sprintf("has more than %d bytes", limit))
		case err == io.EOF:
			setReadDeadline(x.w, time.Time{}) // the handler may take as long as the queue is
			return body, checkText(body)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, refuse(kindTimeout, "", "the body did not arrive within %v: %d bytes came", x.s.cfg.BodyTimeout, len(body))
		case err != nil && r.Context().Err() == nil && !errors.Is(err, io.ErrUnexpectedEOF):
			return nil, &refusal{kind: kindBody, message: "the body could not be read: its chunks or its length are malformed", cause: err}
		case err != nil:
			return nil, &refusal{kind: kindGone, message: "the client left while sending", cause: err}
		}
		if len(body) == cap(body) {
			size := min(4*int64(cap(body)), limit+1)
			if r.ContentLength >= 0 {
				size = min(size, r.ContentLength+1) // the rest fits, so it is not copied once more
			}
			if err := x.hold(bodyCharge * (size - int64(cap(body)))); err != nil {
				return nil, err
			}
			grown := make([]byte, len(body), size)
			copy(grown, body)
			body = grown
		}
	}
}

func (x *exchange) refuseBody(size string) *refusal {
	return refuse(kindBodyTooLarge, "", "the body %s, the limit is %d bytes: send less at once, or raise %s",
		size, x.s.cfg.MaxBodyBytes, x.s.cfg.Settings.MaxBodyBytes)
}

// drain reads on and throws away what is left of a refused body, at most as much as the limit again, and reports whether that was all.
// A client that waits for leave to send (Expect: 100-continue) never gets it.
func (x *exchange) drain() (whole bool) {
	r := x.r
	if r.Body == nil || r.Body == http.NoBody || strings.EqualFold(r.Header.Get("Expect"), "100-continue") && x.bytesIn == 0 {
		return true
	}
	setReadDeadline(x.w, time.Now().Add(min(drainTimeout, x.s.cfg.BodyTimeout)))
	n, err := io.CopyN(io.Discard, r.Body, x.s.cfg.MaxBodyBytes+1)
	x.bytesIn += n
	return err == io.EOF
}

// setReadDeadline bounds reads of the connection; the zero time lifts the bound. Recorders in tests have none to set.
func setReadDeadline(w http.ResponseWriter, t time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(t)
}

// checkContentType accepts JSON and a missing type. Anything else is refused with the remedy: curl and browsers' forms send a form type
// by default, and a page of another origin may send those (and text/plain) without asking.
func checkContentType(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return refuse(kindBody, "", "the body is sent with Content-Encoding %s: send it uncompressed", strconv.Quote(clip(enc)))
	}
	full := h.Get("Content-Type")
	if full == "" {
		return nil
	}
	mediaType, params, _ := strings.Cut(full, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	if mediaType != "application/json" && !(strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")) {
		return refuse(kindBody, "", "the body is sent as %s: send JSON with the header Content-Type: application/json (curl: -H 'Content-Type: application/json')",
			strconv.Quote(clip(mediaType)))
	}
	for _, p := range strings.Split(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if strings.EqualFold(name, "charset") && !strings.EqualFold(value, "utf-8") && !strings.EqualFold(value, "utf8") && !strings.EqualFold(value, "us-ascii") {
			return refuse(kindBody, "", "the body is sent with charset %s: send it as application/json in UTF-8", strconv.Quote(clip(value)))
		}
	}
	return nil
}

// checkText refuses what cannot be JSON text before its grammar is looked at.
func checkText(body []byte) error {
	if strings.HasPrefix(string(body[:min(len(body), len(bom))]), bom) {
		return refuse(kindBody, "", "the body begins with a byte-order mark: send UTF-8 without one")
	}
	if utf8.Valid(body) {
		return checkNotEmpty(body)
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && size == 1 {
			return refuse(kindBody, "", "the body is not valid UTF-8: byte 0x%02x at offset %d", body[i], i)
		}
		i += size
	}
}

func checkNotEmpty(body []byte) error {
	for _, c := range body {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return nil
		}
	}
	return refuse(kindBody, "", "the body is empty: a JSON object was expected")
}
