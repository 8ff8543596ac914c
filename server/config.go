package server

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Defaults of a [Config]. Each bounds what one client can make the server hold.
const (
	DefaultMaxBodyBytes = 8 << 20 // bytes; 2,048 passages of 512 tokens are about 5 MiB
	DefaultMaxItems     = 2048    // embedding inputs per request: the limit OpenAI's clients batch to
	DefaultMaxDocuments = 1000    // documents, texts or chunks per request: the limit of Cohere's rerank API

	DefaultBudget = 100 * time.Millisecond // of a gate's answer: what a chat turn can spare unnoticed

	DefaultHeaderTimeout = 10 * time.Second // from the first byte to the end of the headers
	DefaultBodyTimeout   = 60 * time.Second // for the whole body: 8 MiB at about 1 Mbit/s
	DefaultWriteTimeout  = 60 * time.Second // for the whole answer, counted from when it is ready, so a long queue costs nothing of it
	DefaultIdleTimeout   = 120 * time.Second
	DefaultRetryAfter    = 5 * time.Second // advice on 503 while starting or draining

	maxHeaderBytes   = 64 << 10 // tokens of identity providers reach 16 KiB; Go's own default is 1 MiB
	maxMaxBodyBytes  = 4 << 30  // of the setting
	maxRequestIDSize = 128      // characters of a caller's X-Request-Id that is echoed
)

// Config is what a [Server] is told by whoever starts it. [DefaultConfig] is the place to begin: zero limits are errors, not defaults.
type Config struct {
	Version string // of the program, for /info and the metrics

	MaxBodyBytes int64 // of one request's body
	MaxItems     int   // embedding inputs of one request
	MaxDocuments int   // documents, texts or chunks of one request
	MaxTokens    int   // of one sequence; 0: the model's own limit, which also bounds a larger value
	Truncate     bool  // whether a longer text is cut when the request does not say; false refuses it

	Budget           time.Duration // of a gate's answer when the request names none
	RefuseOnOverload bool          // gates answer a full queue with 429 instead of the safe side

	Keys []Key // empty: no key is asked for

	HeaderTimeout time.Duration
	BodyTimeout   time.Duration
	WriteTimeout  time.Duration
	IdleTimeout   time.Duration
	RetryAfter    time.Duration // advice on 503 while starting or draining

	Settings Settings // how refusals name the limits
}

// Settings holds the names by which error messages call the limits, so that a caller knows what to change. They are only text here.
type Settings struct {
	MaxBodyBytes    string
	MaxItems        string
	MaxDocuments    string
	MaxTokens       string
	MaxQueuedTokens string
	Truncate        string
	Keys            string
}

// DefaultConfig returns the limits of the package's constants, truncation on and no keys.
func DefaultConfig() Config {
	return Config{
		Version:       "dev",
		MaxBodyBytes:  DefaultMaxBodyBytes,
		MaxItems:      DefaultMaxItems,
		MaxDocuments:  DefaultMaxDocuments,
		Truncate:      true,
		Budget:        DefaultBudget,
		HeaderTimeout: DefaultHeaderTimeout,
		BodyTimeout:   DefaultBodyTimeout,
		WriteTimeout:  DefaultWriteTimeout,
		IdleTimeout:   DefaultIdleTimeout,
		RetryAfter:    DefaultRetryAfter,
		Settings: Settings{
			MaxBodyBytes:    "RAGATE_MAX_BODY_BYTES (--max-body-bytes)",
			MaxItems:        "RAGATE_MAX_ITEMS (--max-items)",
			MaxDocuments:    "RAGATE_MAX_DOCUMENTS (--max-documents)",
			MaxTokens:       "RAGATE_MAX_TOKENS (--max-tokens)",
			MaxQueuedTokens: "RAGATE_MAX_QUEUED_TOKENS (--max-queued-tokens)",
			Truncate:        "RAGATE_TRUNCATE (--truncate)",
			Keys:            "RAGATE_API_KEY (--api-key)",
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
	positive(c.MaxItems >= 1, c.Settings.MaxItems, c.MaxItems)
	positive(c.MaxDocuments >= 1, c.Settings.MaxDocuments, c.MaxDocuments)
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
	errs = append(errs, validateKeys(c.Keys, c.Settings.Keys))
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
	var keys []Key
	for i, entry := range strings.Split(list, ",") {
		name, key, named := strings.Cut(entry, ":")
		if !named {
			name, key = fmt.Sprintf("key-%d", i+1), name
		}
		keys = append(keys, Key{Name: strings.TrimSpace(name), Key: strings.TrimSpace(key)})
	}
	if err := validateKeys(keys, "the key list"); err != nil {
		return nil, err
	}
	return keys, nil
}

// validateKeys checks that keys can be sent in a header and told apart in the log.
func validateKeys(keys []Key, setting string) error {
	var errs []error
	names, secrets := map[string]int{}, map[string]int{}
	for i, k := range keys {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: entry %d %s", setting, i+1, fmt.Sprintf(format, args...)))
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
			bad("has the name of entry %d", j+1)
		}
		if j, twice := secrets[k.Key]; twice && k.Key != "" {
			bad("is the same key as entry %d", j+1)
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
