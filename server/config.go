package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults of a [Config]. Each bounds what one client can make the server hold.
const (
	DefaultMaxBodyBytes = 8 << 20 // bytes; 2,048 passages of 512 tokens are about 5 MiB
	DefaultMaxItems     = 2048    // embedding inputs per request: the limit OpenAI's clients batch to
	DefaultMaxDocuments = 1000    // documents, texts or chunks per request: the limit of Cohere's rerank API

	// DefaultMaxInflightBytes of bodies, texts and vectors that all requests together hold: 14 bodies of the full size at once, or thousands of ordinary
	// ones. With what is garbage until the next collection the process takes about twice as much.
	DefaultMaxInflightBytes = 256 << 20

	DefaultBudget = 100 * time.Millisecond // of a gate's answer: what a chat turn can spare unnoticed

	DefaultHeaderTimeout = 10 * time.Second // from the first byte to the end of the headers
	DefaultBodyTimeout   = 60 * time.Second // for the whole body: 8 MiB at about 1 Mbit/s
	DefaultWriteTimeout  = 60 * time.Second // for the whole answer, counted from when it is ready, so a long queue costs nothing of it
	DefaultIdleTimeout   = 120 * time.Second
	DefaultRetryAfter    = 5 * time.Second // advice on 503 while starting or draining

	memoryRetry = 2 * time.Second // advice when requests hold too much memory: what a large body takes to be read, tokenised and refused or admitted

	DefaultMaxHeaderBytes = 64 << 10 // tokens of identity providers reach 16 KiB; Go's own default is 1 MiB

	maxMaxBodyBytes  = 4 << 30 // of the setting
	maxRequestIDSize = 128     // characters of a caller's X-Request-Id that is echoed
)

// Config is what a [Server] is told by whoever starts it. [DefaultConfig] is the place to begin: zero limits are errors, not defaults.
type Config struct {
	Version string // of the program, for /info and the metrics

	MaxBodyBytes     int64 // of one request's body
	MaxItems         int   // embedding inputs of one request
	MaxDocuments     int   // documents, texts or chunks of one request
	MaxHeaderBytes   int   // of one request's headers
	MaxInflightBytes int64 // that all requests together hold of bodies, texts and vectors; one that is alone may hold more
	MaxTokens        int   // of one sequence; 0: the model's own limit, which also bounds a larger value
	Truncate         bool  // whether a longer text is cut when the request does not say; false refuses it

	Budget           time.Duration // of a gate's answer when the request names none
	RefuseOnOverload bool          // gates answer a full queue with 429 instead of the safe side

	Keys []Key // empty: no key is asked for

	TLS               *tls.Config      // nil: plain HTTP
	CertificateExpiry func() time.Time // for the metrics; nil: there is none
	CORSOrigins       []string         // whose pages may call from a browser, such as https://app.example.org; empty: none

	HeaderTimeout time.Duration
	BodyTimeout   time.Duration
	WriteTimeout  time.Duration
	IdleTimeout   time.Duration
	RetryAfter    time.Duration // advice on 503 while starting or draining

	LogText bool    // log lines hold what was asked: queries and the first input, shortened. Off, they hold no text at all
	Tracing Tracing // zero: no spans

	Settings Settings // how refusals name the limits
}

// Settings holds the names by which error messages call the limits, so that a caller knows what to change. They are only text here.
type Settings struct {
	MaxBodyBytes     string
	MaxItems         string
	MaxDocuments     string
	MaxInflightBytes string
	MaxTokens        string
	MaxQueuedTokens  string
	Truncate         string
	Keys             string
	CORSOrigins      string
}

// DefaultConfig returns the limits of the package's constants, truncation on and no keys.
func DefaultConfig() Config {
	return Config{
		Version:          "dev",
		MaxBodyBytes:     DefaultMaxBodyBytes,
		MaxItems:         DefaultMaxItems,
		MaxDocuments:     DefaultMaxDocuments,
		MaxInflightBytes: DefaultMaxInflightBytes,
		MaxHeaderBytes:   DefaultMaxHeaderBytes,
		Truncate:         true,
		Budget:           DefaultBudget,
		HeaderTimeout:    DefaultHeaderTimeout,
		BodyTimeout:      DefaultBodyTimeout,
		WriteTimeout:     DefaultWriteTimeout,
		IdleTimeout:      DefaultIdleTimeout,
		RetryAfter:       DefaultRetryAfter,
		Settings: Settings{
			MaxBodyBytes:     "RAGATE_MAX_BODY_BYTES (--max-body-bytes)",
			MaxItems:         "RAGATE_MAX_ITEMS (--max-items)",
			MaxDocuments:     "RAGATE_MAX_DOCUMENTS (--max-documents)",
			MaxInflightBytes: "RAGATE_MAX_INFLIGHT_BYTES (--max-inflight-bytes)",
			MaxTokens:        "RAGATE_MAX_TOKENS (--max-tokens)",
			MaxQueuedTokens:  "RAGATE_MAX_QUEUED_TOKENS (--max-queued-tokens)",
			Truncate:         "RAGATE_TRUNCATE (--truncate)",
			Keys:             "RAGATE_API_KEY (--api-key)",
			CORSOrigins:      "RAGATE_CORS_ORIGIN (--cors-origin)",
		},
	}
}

// Validate reports every field that cannot be served with, all at once; nil when there is none.
func (c Config) Validate() error {
	var errs []error
	positive := func(ok bool, what string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: it must be at least 1", what, value))
		}
	}
	positive(c.MaxBodyBytes >= 1, c.Settings.MaxBodyBytes, c.MaxBodyBytes)
	if c.MaxBodyBytes > maxMaxBodyBytes {
		errs = append(errs, fmt.Errorf("%s is %d: it must be at most %d, since a body is held in memory whole", c.Settings.MaxBodyBytes, c.MaxBodyBytes, int64(maxMaxBodyBytes)))
	}
	positive(c.MaxInflightBytes >= 1, c.Settings.MaxInflightBytes, c.MaxInflightBytes)
	positive(c.MaxItems >= 1, c.Settings.MaxItems, c.MaxItems)
	positive(c.MaxDocuments >= 1, c.Settings.MaxDocuments, c.MaxDocuments)
	positive(c.MaxHeaderBytes >= 1, "MaxHeaderBytes", c.MaxHeaderBytes)
	if c.MaxTokens < 0 {
		errs = append(errs, fmt.Errorf("%s is %d: it must be 0 (the model's limit) or more", c.Settings.MaxTokens, c.MaxTokens))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Budget", c.Budget}, {"HeaderTimeout", c.HeaderTimeout}, {"BodyTimeout", c.BodyTimeout}, {"WriteTimeout", c.WriteTimeout},
		{"IdleTimeout", c.IdleTimeout}, {"RetryAfter", c.RetryAfter},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %v: it must be longer than 0", d.name, d.value))
		}
	}
	for _, o := range c.CORSOrigins {
		if !validOrigin(o) {
			errs = append(errs, fmt.Errorf("%s: %s is no origin: give scheme, host and port as browsers send them, such as https://app.example.org", c.Settings.CORSOrigins, quote(o)))
		}
	}
	errs = append(errs, validateKeys(c.Keys, func(i int) string { return fmt.Sprintf("%s: entry %d", c.Settings.Keys, i+1) }))
	return errors.Join(errs...)
}

// Key is one API key; its name, never the key, appears in the log.
type Key struct {
	Name string
	Key  string
}

// ParseKeys reads the comma separated form of a key list: `name:key` or `key`, white space around each ignored. A key without a name
// is called key-1, key-2 and so on by its place. The first colon separates, so a bare key cannot hold one.
// An empty list is no keys; every bad entry is reported, by its place and never by its text.
func ParseKeys(list string) ([]Key, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	entries := strings.Split(list, ",")
	keys := make([]Key, len(entries))
	for i, e := range entries {
		keys[i] = parseKey(e, fmt.Sprintf("key-%d", i+1))
	}
	if err := validateKeys(keys, func(i int) string { return fmt.Sprintf("the key list: entry %d", i+1) }); err != nil {
		return nil, err
	}
	return keys, nil
}

// ParseKeyFile is [ParseKeys] for the text of a file with one entry a line. Blank lines and those that begin with # do not count. A key
// without a name is called line-1, line-2 and so on by its line. A file without a key is an error: it was named in order to hold one.
func ParseKeyFile(text string) ([]Key, error) {
	var keys []Key
	var lines []int
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") { // some editors write a byte order mark
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		keys, lines = append(keys, parseKey(line, fmt.Sprintf("line-%d", i+1))), append(lines, i+1)
	}
	if len(keys) == 0 {
		return nil, errors.New("holds no key: write one a line, `name:key` or `key`")
	}
	if err := validateKeys(keys, func(i int) string { return fmt.Sprintf("line %d", lines[i]) }); err != nil {
		return nil, err
	}
	return keys, nil
}

func parseKey(entry, unnamed string) Key {
	name, key, named := strings.Cut(entry, ":")
	if !named {
		name, key = unnamed, name
	}
	return Key{Name: strings.TrimSpace(name), Key: strings.TrimSpace(key)}
}

// JoinKeys puts the keys of a list and of a file together. A name or key that is in both is an error, which names it and no key.
func JoinKeys(list, file []Key) ([]Key, error) {
	var errs []error
	for _, f := range file {
		for _, l := range list {
			if l.Name == f.Name {
				errs = append(errs, fmt.Errorf("two keys are named %s, one in the list and one in the file", quote(f.Name)))
			}
			if l.Key == f.Key {
				errs = append(errs, fmt.Errorf("the key %s of the file is the same as %s of the list", quote(f.Name), quote(l.Name)))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return append(slices.Clone(list), file...), nil
}

// GuessableKeys returns the names of keys that are shorter than 16 characters: 16 letters and digits at random are 95 bits, beyond trying.
func GuessableKeys(keys []Key) []string {
	const long = 16
	var names []string
	for _, k := range keys {
		if len(k.Key) < long {
			names = append(names, k.Name)
		}
	}
	return names
}

// validateKeys checks that keys can be sent in a header and told apart in the log. where says where a key stands.
func validateKeys(keys []Key, where func(i int) string) error {
	var errs []error
	names, secrets := map[string]int{}, map[string]int{}
	place := func(i int) string { // of an earlier one: "entry 2", "line 7"
		w := strings.Fields(where(i))
		return strings.Join(w[len(w)-2:], " ")
	}
	for i, k := range keys {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s %s", where(i), fmt.Sprintf(format, args...)))
		}
		if k.Key == "" {
			bad("is empty")
		} else if !visibleASCII(k.Key) {
			bad("holds characters that a header cannot carry: use visible ASCII without spaces")
		}
		if k.Name == "" {
			bad("has no name before its colon")
		}
		if j, twice := names[k.Name]; twice && k.Name != "" {
			bad("has the name of %s", place(j))
		}
		if j, twice := secrets[k.Key]; twice && k.Key != "" {
			bad("is the same key as %s", place(j))
		}
		names[k.Name], secrets[k.Key] = i, i
	}
	return errors.Join(errs...)
}

// visibleASCII reports whether s holds only characters from ! to ~.
func visibleASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
