package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"ragate/models/internal/files"
)

// Model is what a revision holds.
type Model struct {
	ID       string // as the hub spells it; differs from the one asked for when the model was renamed
	Revision string // as asked for
	Commit   string
	Created  time.Time // of the repository; zero when the hub does not say
	Files    []RemoteFile
}

// RemoteFile is one file of a commit.
type RemoteFile struct {
	Path string // slash-separated
	Size int64  // bytes, -1 when unknown
	// Etag names the blob in the cache: the sha256 of a large file, the git blob hash of a small one. "" means that the listing did
	// not say, and Fetch asks.
	Etag string
	// SHA256 is what the content must have, when it is known beforehand (large files, locked ones).
	SHA256 string
}

// StatusError is an answer of the hub that is not a success.
type StatusError struct {
	ID, Revision, Path string // what was asked for; Path is "" for the model itself
	Endpoint           string
	Status             int
	Code               string // the hub's own error code: RepoNotFound, GatedRepo, RevisionNotFound, EntryNotFound, …
	Message            string // the hub's own words
	Token              bool   // a token was sent
	retryAfter         time.Duration
}

func (e *StatusError) Error() string {
	what := fmt.Sprintf("model %s at revision %s", e.ID, e.Revision)
	if e.Path != "" {
		what = fmt.Sprintf("%s of model %s at revision %s", e.Path, e.ID, e.Revision)
	}
	var why string
	switch {
	case e.Code == "GatedRepo" || e.Status == http.StatusForbidden:
		why = "access is not granted: accept the model's terms on its page and set HF_TOKEN to a token of that account"
		if e.Token {
			why = "access is not granted to the account of HF_TOKEN: accept the model's terms on its page, and give the token read access to gated models"
		}
	case e.Code == "RevisionNotFound":
		why = "the model exists and has no such branch, tag or commit"
	case e.Status == http.StatusUnauthorized && e.Token:
		why = "HF_TOKEN was not accepted, or the model does not exist"
	case e.Status == http.StatusUnauthorized:
		why = "there is no such public model: check the name, or set HF_TOKEN if it is private or gated"
	case e.Status == http.StatusNotFound:
		why = "not found: check the name and the revision"
	case e.Status == http.StatusTooManyRequests:
		why = "the hub refuses for the number of requests; wait, or set HF_TOKEN"
	default:
		why = "the hub failed"
	}
	msg := fmt.Sprintf("%s: %s (status %d from %s", what, why, e.Status, e.Endpoint)
	if e.Message != "" {
		msg += ": " + e.Message
	}
	return msg + ")"
}

// Model asks the hub what a revision (branch, tag or commit) holds now.
func (c *Client) Model(ctx context.Context, id, revision string) (Model, error) {
	if !ValidID(id) {
		return Model{}, fmt.Errorf("%q is not a model's name on the hub (org/name)", id)
	}
	if c.cfg.Offline {
		return Model{}, fmt.Errorf("model %s at revision %s: %w", id, revision, ErrOffline)
	}
	u := c.url("api", "models", id, "revision", url.PathEscape(revision)) + "?blobs=true"
	var answer struct {
		ID       string    `json:"id"`
		SHA      string    `json:"sha"`
		Created  time.Time `json:"createdAt"`
		Siblings []struct {
			Name   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	err := c.retry(ctx, c.questions(), func() (bool, error) {
		resp, err := c.do(ctx, http.MethodGet, u, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return false, c.status(resp, id, revision, "")
		}
		// A listing with tens of thousands of files stays under this; more is not a model.
		if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(&answer); err != nil {
			return false, fmt.Errorf("the answer of %s about model %s: %w", c.cfg.Endpoint, id, err)
		}
		return false, nil
	})
	if err != nil {
		return Model{}, err
	}
	if !IsCommit(answer.SHA) {
		return Model{}, fmt.Errorf("%s names %q as the commit of model %s at revision %s", c.cfg.Endpoint, answer.SHA, id, revision)
	}
	m := Model{ID: answer.ID, Revision: revision, Commit: answer.SHA, Created: answer.Created}
	if m.ID == "" {
		m.ID = id
	}
	for _, s := range answer.Siblings {
		if !files.Local(s.Name) {
			return Model{}, fmt.Errorf("model %s holds a file named %q, which is not a path", id, s.Name)
		}
		f := RemoteFile{Path: s.Name, Size: -1, Etag: s.BlobID}
		if s.Size != nil {
			f.Size = *s.Size
		}
		if s.LFS != nil && sha256Pattern.MatchString(s.LFS.SHA256) {
			f.Etag, f.SHA256, f.Size = s.LFS.SHA256, s.LFS.SHA256, s.LFS.Size
		}
		m.Files = append(m.Files, f)
	}
	return m, nil
}

// Stat asks for a file's etag and size without its content.
func (c *Client) Stat(ctx context.Context, id, commit, file string) (RemoteFile, error) {
	f := RemoteFile{Path: file, Size: -1}
	if c.cfg.Offline {
		return f, fmt.Errorf("%s of model %s: %w", file, id, ErrOffline)
	}
	err := c.retry(ctx, c.questions(), func() (bool, error) {
		// The store that the hub redirects to knows neither the etag nor the commit: the first answer counts.
		resp, err := c.do(context.WithValue(ctx, noRedirects{}, true), http.MethodHead, c.resolveURL(id, commit, file), nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 400 {
			return false, c.status(resp, id, commit, file)
		}
		if got := resp.Header.Get("X-Repo-Commit"); got != "" && got != commit {
			return false, fmt.Errorf("%s answers with commit %s instead of %s for %s of model %s", c.cfg.Endpoint, got, commit, file, id)
		}
		etag := resp.Header.Get("X-Linked-Etag")
		size := resp.Header.Get("X-Linked-Size")
		if etag == "" {
			etag = resp.Header.Get("Etag")
		}
		if size == "" && resp.StatusCode == http.StatusOK {
			size = resp.Header.Get("Content-Length")
		}
		f.Etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
		if n, err := strconv.ParseInt(size, 10, 64); err == nil {
			f.Size = n
		}
		if !etagPattern.MatchString(f.Etag) {
			return false, fmt.Errorf("%s gives no usable etag (%q) for %s of model %s", c.cfg.Endpoint, etag, file, id)
		}
		if sha256Pattern.MatchString(f.Etag) {
			f.SHA256 = f.Etag
		}
		return false, nil
	})
	return f, err
}

type noRedirects struct{}

// url joins already escaped path segments to the endpoint.
func (c *Client) url(segments ...string) string {
	return strings.TrimRight(c.endpoint.String(), "/") + "/" + strings.Join(segments, "/")
}

func (c *Client) resolveURL(id, revision, file string) string {
	parts := strings.Split(path.Clean(file), "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return c.url(id, "resolve", url.PathEscape(revision), strings.Join(parts, "/"))
}

// do sends one request. The caller closes the body.
func (c *Client) do(ctx context.Context, method, u string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	// A compressed answer would have another length than the file.
	req.Header.Set("Accept-Encoding", "identity")
	client := *c.http
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > 10 {
			return errors.New("more than 10 redirects")
		}
		if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return fmt.Errorf("redirected from https to %s", req.URL.Scheme)
		}
		// A renamed model is redirected within the endpoint, by a relative path: that one is followed.
		if ctx.Value(noRedirects{}) != nil && req.URL.Host != c.endpoint.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return client.Do(req)
}

// status reads an unsuccessful answer.
func (c *Client) status(resp *http.Response, id, revision, file string) error {
	e := &StatusError{ID: id, Revision: revision, Path: file, Endpoint: c.cfg.Endpoint, Status: resp.StatusCode,
		Code: resp.Header.Get("X-Error-Code"), Message: resp.Header.Get("X-Error-Message"), Token: c.cfg.Token != ""}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.retryAfter = time.Duration(n) * time.Second
	}
	return e
}

// stalledError is a transfer without a byte for the stall time.
type stalledError struct{ after time.Duration }

func (e *stalledError) Error() string   { return fmt.Sprintf("no data for %v", e.after) }
func (e *stalledError) Timeout() bool   { return true }
func (e *stalledError) Temporary() bool { return true }

// brokenError is a transfer that ended before its time.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "the connection broke: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// temporary reports whether the same request may succeed later.
func temporary(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Status >= 500 || status.Status == http.StatusTooManyRequests || status.Status == http.StatusRequestTimeout
	}
	var broken *brokenError
	var netErr net.Error // *url.Error is one too, whatever it wraps
	var urlErr *url.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &broken), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return true
	case errors.As(err, &urlErr):
		// A name that does not resolve, a certificate that does not hold and a forbidden redirect will not mend themselves.
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			return false
		}
		var op *net.OpError
		return errors.As(err, &op) || urlErr.Timeout() || errors.Is(urlErr.Err, io.EOF)
	case errors.As(err, &netErr):
		return netErr.Timeout() // a full disk's errno is a net.Error as well
	}
	return false
}

// questions is the number of attempts for requests that somebody waits for without seeing a file grow.
func (c *Client) questions() int { return min(c.cfg.Attempts, 3) }

// retry runs op until it succeeds, fails for good, or has failed that many times in a row without progress. op says whether it made any.
func (c *Client) retry(ctx context.Context, attempts int, op func() (progress bool, err error)) error {
	failed := 0
	for {
		progress, err := op()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if progress {
			failed = 0
		}
		failed++
		if !temporary(err) {
			return err
		}
		if failed >= attempts {
			return fmt.Errorf("gave up after %d attempts: %w", failed, err)
		}
		wait := min(c.cfg.Backoff<<(failed-1), maxBackoff)
		wait += time.Duration(rand.Int64N(int64(wait)/4 + 1)) // apart from others that failed at the same moment
		var status *StatusError
		if errors.As(err, &status) && status.retryAfter > 0 {
			wait = min(status.retryAfter, 2*time.Minute)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.sleep(wait):
		}
	}
}
