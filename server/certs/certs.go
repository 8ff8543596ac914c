// Package certs keeps a server's TLS certificate as its files are: it sees that they have changed, and takes the new ones when they are
// good. Start at [Open]; [Watcher.TLS] is what a listener needs. It starts no goroutine: files are looked at when a handshake comes.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is how often the files are looked at, at most: often enough for a renewal, seldom enough to cost nothing under load.
	lookEvery = time.Second
	// warnBefore is how long before its end a certificate is warned of: renewals by ACME are due 30 days before, so by then two have failed.
	warnBefore = 14 * 24 * time.Hour
	// warnEvery is how often that is said.
	warnEvery = 24 * time.Hour
)

// Files are where certificate, key and authorities lie, each in PEM.
type Files struct {
	Cert     string // the server's certificate, followed by the chain up to its root
	Key      string
	ClientCA string // authorities of the clients' certificates; "": none is asked for
}

// Watcher holds the certificate in use. It is safe for concurrent use.
type Watcher struct {
	files   Files
	log     *slog.Logger
	now     func() time.Time // of the calendar, for expiry
	current atomic.Pointer[state]

	mu     sync.Mutex // held while the files are looked at or read
	looked time.Time  // zero: not yet
	seen   [3]mark    // of the files that were read last, good or not
	warned time.Time
}

// state is what one reading of the files gave.
type state struct {
	config  *tls.Config
	expires time.Time
}

// mark tells one state of a file from another.
type mark struct {
	info os.FileInfo
	err  error
}

// Open reads the files. The errors name the file and what is wrong with it.
func Open(f Files, log *slog.Logger) (*Watcher, error) {
	w := &Watcher{files: f, log: log, now: time.Now}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = w.marks()
	if err := w.read(); err != nil {
		return nil, err
	}
	w.looked = time.Now()
	return w, nil
}

// TLS is the configuration of a listener: TLS 1.2 or later, HTTP/2 and HTTP/1.1, always with the certificate in use.
func (w *Watcher) TLS() *tls.Config {
	c := w.current.Load().config.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		w.look()
		return w.current.Load().config, nil
	}
	return c
}

// Expires is when the certificate in use ends, or the first of its chain to do so.
func (w *Watcher) Expires() time.Time { return w.current.Load().expires }

// Reload reads the files now. When it fails, what was in use stays in use.
func (w *Watcher) Reload() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = w.marks()
	return w.read()
}

// look reads the files again when they have changed. A pair that cannot be used is said once, and the old one stays.
func (w *Watcher) look() {
	if !w.mu.TryLock() { // somebody else looks; a handshake need not wait for it
		return
	}
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.looked) < lookEvery { // by the monotonic clock: one that is set does not stop the looking
		return
	}
	w.looked = now
	if marks := w.marks(); !same(marks, w.seen) {
		w.seen = marks
		if err := w.read(); err != nil {
			w.log.Error("the new TLS certificate cannot be used, the old one stays in use", "error", err.Error())
			return
		}
		w.log.Info("TLS certificate read again", "expires", w.Expires().UTC())
		return
	}
	w.warn()
}

func (w *Watcher) marks() (m [3]mark) {
	for i, path := range []string{w.files.Cert, w.files.Key, w.files.ClientCA} {
		if path != "" {
			m[i].info, m[i].err = os.Stat(path)
		}
	}
	return m
}

func same(a, b [3]mark) bool {
	for i := range a {
		x, y := a[i], b[i]
		if (x.info == nil) != (y.info == nil) || (x.err == nil) != (y.err == nil) {
			return false
		}
		if x.info != nil && (!os.SameFile(x.info, y.info) || x.info.Size() != y.info.Size() || !x.info.ModTime().Equal(y.info.ModTime())) {
			return false
		}
	}
	return true
}

// read replaces the state by what the files hold. Called with the mutex held.
func (w *Watcher) read() error {
	s, err := load(w.files)
	if err != nil {
		return err
	}
	w.current.Store(s)
	w.warned = time.Time{}
	w.warn()
	return nil
}

// load reads and checks the files.
func load(f Files) (*state, error) {
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate: %w", err)
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("the TLS key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	s := &state{config: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
	}}
	for _, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("the TLS certificate %s: %w", f.Cert, err)
		}
		if s.expires.IsZero() || c.NotAfter.Before(s.expires) {
			s.expires = c.NotAfter
		}
	}
	if f.ClientCA == "" {
		return s, nil
	}
	authorities, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("the authorities of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes.TrimSpace(authorities)) {
		return nil, fmt.Errorf("the authorities of client certificates: %s holds no PEM certificate", f.ClientCA)
	}
	s.config.ClientCAs, s.config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return s, nil
}

// Check reads the files as [Open] does, and returns what is wrong with them, and what will soon be.
func Check(f Files, now time.Time) (warning string, err error) {
	s, err := load(f)
	if err != nil {
		return "", err
	}
	return expiry(s.expires, now), nil
}

// warn says that the certificate ends soon, once a day. Called with the mutex held.
func (w *Watcher) warn() {
	now := w.now()
	text := expiry(w.Expires(), now)
	if text == "" || !w.warned.IsZero() && now.Sub(w.warned) < warnEvery {
		return
	}
	w.warned = now
	w.log.LogAttrs(context.Background(), slog.LevelWarn, text, slog.String("certificate", w.files.Cert), slog.Time("expires", w.Expires().UTC()))
}

// expiry says that a certificate ends soon or has ended, "" when it does not.
func expiry(end, now time.Time) string {
	switch left := end.Sub(now); {
	case left <= 0:
		return "the TLS certificate has expired: clients refuse it; renew it"
	case left < warnBefore:
		return fmt.Sprintf("the TLS certificate expires in %d days: renew it", int(left/(24*time.Hour)))
	}
	return ""
}
