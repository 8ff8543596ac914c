// Package hub fetches files of models from a Hugging Face hub (or a mirror that speaks its routes) into the cache layout that the
// hub's own libraries share, so that what they have fetched is used here and what is fetched here is seen by them.
//
// Start with New, then Client.Model for what a revision holds and Client.Fetch for a file. Which files a model needs, and which
// commit it stays at, is the caller's business (package models).
//
// It promises that a blob has the content its name states before it gets that name, that two processes fetch a file once, that a
// broken transfer goes on where it stopped, and that the token is sent to the endpoint's own scheme, host and port and nowhere else.
//
//	<CacheDir>/models--org--name/blobs/<etag>                     content; etag is the sha256 of a large file, the git blob hash of a small one
//	<CacheDir>/models--org--name/snapshots/<commit>/<path>        link to ../../blobs/<etag>
//	<CacheDir>/models--org--name/refs/<revision>                  the commit of a branch or tag when it was last asked for
//	<CacheDir>/.locks/models--org--name/<etag>.lock               held while a blob is written
package hub

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"ragate/models/internal/files"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

const (
	// DefaultAttempts bounds how often a request is made in a row without a byte of progress: about 30 s with DefaultBackoff.
	DefaultAttempts = 6
	// DefaultBackoff is the wait before the second attempt; it doubles with each further one, up to maxBackoff.
	DefaultBackoff = time.Second
	maxBackoff     = 30 * time.Second
	// DefaultStall is how long a transfer may stand still before it is taken for dead.
	DefaultStall = 30 * time.Second
)

// Config says where the hub is and who asks. Only CacheDir is required.
type Config struct {
	Endpoint  string // "" is DefaultEndpoint; a path in it is kept
	Token     string // "" asks without one
	TokenPath string // a file to take the token from when Token is ""; it need not exist
	CacheDir  string
	Offline   bool   // never use the network; ErrOffline instead
	UserAgent string // "" is "ragate"

	Transport http.RoundTripper // nil is net/http's default one
	Attempts  int               // 0 is DefaultAttempts
	Backoff   time.Duration     // 0 is DefaultBackoff
	Stall     time.Duration     // 0 is DefaultStall
}

// FromEnv reads the hub's customary settings through getenv (os.Getenv in a program; libraries here never read the environment
// themselves): HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_HUB_OFFLINE. home is the user's home
// folder; "" where there is none, and then CacheDir stays empty unless a setting names it.
func FromEnv(getenv func(string) string, home string) Config {
	first := func(names ...string) string {
		for _, n := range names {
			if v := getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	path := func(p string) string {
		if p == "~" || strings.HasPrefix(p, "~/") {
			p = filepath.Join(home, strings.TrimPrefix(p, "~"))
		}
		return p
	}
	hfHome := path(getenv("HF_HOME"))
	if hfHome == "" {
		cache := path(getenv("XDG_CACHE_HOME"))
		if cache == "" && home != "" {
			cache = filepath.Join(home, ".cache")
		}
		if cache != "" {
			hfHome = filepath.Join(cache, "huggingface")
		}
	}
	c := Config{
		Endpoint:  getenv("HF_ENDPOINT"),
		Token:     strings.TrimSpace(first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")),
		TokenPath: path(getenv("HF_TOKEN_PATH")),
		CacheDir:  path(first("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")),
	}
	if c.CacheDir == "" && hfHome != "" {
		c.CacheDir = filepath.Join(hfHome, "hub")
	}
	if c.TokenPath == "" && hfHome != "" {
		c.TokenPath = filepath.Join(hfHome, "token")
	}
	switch strings.ToUpper(first("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")) {
	case "1", "ON", "YES", "TRUE":
		c.Offline = true
	}
	return c
}

// ErrOffline is returned for whatever would need the network while Config.Offline is set.
var ErrOffline = errors.New("offline mode is on (HF_HUB_OFFLINE)")

// Client talks to one hub and owns nothing but its connections. It may be used from many goroutines.
type Client struct {
	cfg      Config
	endpoint *url.URL
	http     *http.Client
	sleep    func(time.Duration) <-chan time.Time
}

// New checks the configuration. It makes no connection.
func New(cfg Config) (*Client, error) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = DefaultEndpoint
	}
	u, err := url.Parse(strings.TrimRight(cfg.Endpoint, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("hub endpoint %q (HF_ENDPOINT) is not of the form https://host", cfg.Endpoint)
	}
	if cfg.CacheDir == "" {
		return nil, errors.New("the hub's cache folder (HF_HOME or HF_HUB_CACHE) is not set")
	}
	if cfg.Token == "" && cfg.TokenPath != "" {
		if raw, err := os.ReadFile(cfg.TokenPath); err == nil {
			cfg.Token = strings.TrimSpace(string(raw))
		}
	}
	if strings.ContainsAny(cfg.Token, "\r\n") {
		return nil, errors.New("the hub token (HF_TOKEN) holds a line break")
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "ragate"
	}
	if cfg.Attempts == 0 {
		cfg.Attempts = DefaultAttempts
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = DefaultBackoff
	}
	if cfg.Stall == 0 {
		cfg.Stall = DefaultStall
	}
	base := cfg.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	c := &Client{cfg: cfg, endpoint: u, sleep: time.After}
	c.http = &http.Client{Transport: &authorizer{base: base, endpoint: u, token: cfg.Token}}
	return c, nil
}

// authorizer adds the token to requests for the endpoint itself and to no other. The header is set here, beneath the handling of
// redirects, so that no redirect can carry it elsewhere: net/http alone would pass it on to subdomains and to other ports.
type authorizer struct {
	base     http.RoundTripper
	endpoint *url.URL
	token    string
}

func (a *authorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" && r.URL.Scheme == a.endpoint.Scheme && strings.EqualFold(r.URL.Host, a.endpoint.Host) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.base.RoundTrip(r)
}

var (
	idPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
	etagPattern   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	sha1Pattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ValidID reports whether id can be a model's name on the hub: org/name, or name alone for the oldest.
func ValidID(id string) bool {
	return len(id) <= 96 && idPattern.MatchString(id) && !strings.Contains(id, "..") && !strings.Contains(id, "--")
}

// IsCommit reports whether a revision is a full commit, which never moves.
func IsCommit(revision string) bool { return commitPattern.MatchString(revision) }

// Offline reports whether the network is off limits.
func (c *Client) Offline() bool { return c.cfg.Offline }

// Repo is the cache folder of a model.
func (c *Client) Repo(id string) string {
	return filepath.Join(c.cfg.CacheDir, "models--"+strings.ReplaceAll(id, "/", "--"))
}

// Snapshot is the folder that holds the files of a commit by their own names.
func (c *Client) Snapshot(id, commit string) string {
	return filepath.Join(c.Repo(id), "snapshots", commit)
}

func (c *Client) lockPath(id, etag string) string {
	return filepath.Join(c.cfg.CacheDir, ".locks", filepath.Base(c.Repo(id)), etag+".lock")
}

// CachedCommit is the commit a revision had when it was last asked for on this machine, by any library that shares the cache.
func (c *Client) CachedCommit(id, revision string) (string, bool) {
	if IsCommit(revision) {
		_, err := os.Stat(c.Snapshot(id, revision))
		return revision, err == nil
	}
	if !files.Local(revision) {
		return "", false
	}
	raw, err := os.ReadFile(filepath.Join(c.Repo(id), "refs", filepath.FromSlash(revision)))
	commit := strings.TrimSpace(string(raw))
	return commit, err == nil && IsCommit(commit)
}

// CachedFiles lists the files of a commit that are on this machine, sorted.
func (c *Client) CachedFiles(id, commit string) ([]string, error) {
	return files.List(c.Snapshot(id, commit))
}

// SetRef records the commit of a branch or tag, as the hub's libraries do. A full commit needs no record.
func (c *Client) SetRef(id, revision, commit string) error {
	if IsCommit(revision) || !files.Local(revision) {
		return nil
	}
	path := filepath.Join(c.Repo(id), "refs", filepath.FromSlash(revision))
	if old, err := os.ReadFile(path); err == nil && string(old) == commit {
		return nil
	}
	return files.Write(path, []byte(commit))
}
