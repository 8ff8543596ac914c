package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// issued is a certificate with its key.
type issued struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
	keyPEM  []byte
}

// issue makes a certificate for 127.0.0.1 and localhost, signed by the issuer, nil for by itself.
func issue(t *testing.T, name string, until time.Time, by *issued) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-400 * 24 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, BasicConstraintsValid: true, IsCA: by == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{cert: cert, key: key,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})}
}

func nextYear() time.Time { return time.Now().Add(300 * 24 * time.Hour) }

// write puts files into a folder.
func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// logbook collects log lines.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func open(t *testing.T, f Files) (*Watcher, *logbook) {
	t.Helper()
	l := &logbook{}
	w, err := Open(f, slog.New(slog.NewTextHandler(l, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return w, l
}

// shake makes one handshake and returns what the client saw.
func shake(t *testing.T, w *Watcher, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", w.TLS())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c) //nolint:errcheck // the client says how it went
	}()
	c, err := tls.Dial("tcp", ln.Addr().String(), client)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	// With TLS 1.3 a client learns only when it reads that its certificate was refused.
	if _, err := c.Write([]byte("x")); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return c.ConnectionState(), nil
}

func trusting(a *issued) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}}
}

// again lets the watcher look at its files at the next handshake, as if a second had passed.
func again(w *Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = w.looked.Add(-2 * lookEvery)
}

func TestHandshake(t *testing.T) {
	dir, ca := t.TempDir(), issue(t, "authority", nextYear(), nil)
	server := issue(t, "first", nextYear(), ca)
	write(t, dir, map[string][]byte{"cert": append(server.certPEM, ca.certPEM...), "key": server.keyPEM})
	w, _ := open(t, Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")})
	st, err := shake(t, w, trusting(ca))
	if err != nil || st.NegotiatedProtocol != "h2" || st.Version != tls.VersionTLS13 || !st.PeerCertificates[0].Equal(server.cert) {
		t.Errorf("%v: %q, %x", err, st.NegotiatedProtocol, st.Version)
	}
	if !w.Expires().Equal(server.cert.NotAfter) {
		t.Errorf("expires %v, want %v", w.Expires(), server.cert.NotAfter)
	}
	old := trusting(ca)
	old.MaxVersion = tls.VersionTLS11
	old.MinVersion = tls.VersionTLS10
	if _, err := shake(t, w, old); err == nil {
		t.Error("a handshake with TLS 1.1 went through")
	}
	old.MaxVersion = tls.VersionTLS12
	if st, err := shake(t, w, old); err != nil || st.Version != tls.VersionTLS12 {
		t.Errorf("TLS 1.2: %v", err)
	}
}

// TestRenewal: new files are taken within a second, bad ones are said once and leave the old pair in use, and good ones after them are taken.
func TestRenewal(t *testing.T) {
	dir, ca := t.TempDir(), issue(t, "authority", nextYear(), nil)
	f := Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	put := func(i *issued) { write(t, dir, map[string][]byte{"cert": i.certPEM, "key": i.keyPEM}) }
	serving := func(w *Watcher, want *issued, when string) {
		t.Helper()
		st, err := shake(t, w, trusting(ca))
		if err != nil || !st.PeerCertificates[0].Equal(want.cert) {
			t.Errorf("%s: not the certificate of %s (%v)", when, want.cert.Subject.CommonName, err)
		}
	}
	first, second, third := issue(t, "first", nextYear(), ca), issue(t, "second, longer", nextYear().Add(time.Hour), ca), issue(t, "third", nextYear(), ca)
	put(first)
	w, log := open(t, f)
	put(second)
	serving(w, first, "within the second after the last look")
	again(w)
	serving(w, second, "after the second")
	if !w.Expires().Equal(second.cert.NotAfter) {
		t.Errorf("expires %v", w.Expires())
	}

	write(t, dir, map[string][]byte{"key": third.keyPEM}) // another pair's key
	for range 3 {
		again(w)
		serving(w, second, "with a key that does not fit")
	}
	if n := log.count("cannot be used"); n != 1 {
		t.Errorf("a bad pair was said %d times", n)
	}
	if err := w.Reload(); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("reloading a bad pair: %v", err)
	}
	os.Remove(f.Cert)
	again(w)
	serving(w, second, "without a certificate file")
	put(third)
	again(w)
	serving(w, third, "with a good pair again")

	put(first) // at once, when told
	if err := w.Reload(); err != nil {
		t.Fatal(err)
	}
	serving(w, first, "after a reload")

	// A renewal that swaps a symbolic link, as Kubernetes does with mounted secrets.
	for _, v := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "v1"), map[string][]byte{"cert": first.certPEM, "key": first.keyPEM})
	write(t, filepath.Join(dir, "v2"), map[string][]byte{"cert": third.certPEM, "key": third.keyPEM})
	link := filepath.Join(dir, "data")
	if err := os.Symlink("v1", link); err != nil {
		t.Fatal(err)
	}
	w, _ = open(t, Files{Cert: filepath.Join(link, "cert"), Key: filepath.Join(link, "key")})
	serving(w, first, "behind a link")
	if err := os.Symlink("v2", link+"-new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+"-new", link); err != nil {
		t.Fatal(err)
	}
	again(w)
	serving(w, third, "behind another link")
}

// TestHandshakesDuringRenewals: under the race detector, from many clients.
func TestHandshakesDuringRenewals(t *testing.T) {
	dir, ca := t.TempDir(), issue(t, "authority", nextYear(), nil)
	pairs := []*issued{issue(t, "one", nextYear(), ca), issue(t, "two", nextYear(), ca)}
	put := func(i *issued) { write(t, dir, map[string][]byte{"cert": i.certPEM, "key": i.keyPEM}) }
	put(pairs[0])
	w, _ := open(t, Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if _, err := shake(t, w, trusting(ca)); err != nil {
					t.Error(err)
				}
				again(w)
			}
		})
	}
	for i := range 20 {
		put(pairs[i%2])
		w.Reload() //nolint:errcheck // the files may be half written by the next turn's standards; handshakes must work all the same
	}
	wg.Wait()
}

func TestClientCertificates(t *testing.T) {
	dir, ca, other := t.TempDir(), issue(t, "authority", nextYear(), nil), issue(t, "other authority", nextYear(), nil)
	server := issue(t, "server", nextYear(), ca)
	write(t, dir, map[string][]byte{"cert": server.certPEM, "key": server.keyPEM, "ca": ca.certPEM})
	f := Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "ca")}
	w, _ := open(t, f)
	with := func(by *issued) *tls.Config {
		c := trusting(ca)
		if by != nil {
			i := issue(t, "client", nextYear(), by)
			pair, err := tls.X509KeyPair(i.certPEM, i.keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return c
	}
	if _, err := shake(t, w, with(ca)); err != nil {
		t.Errorf("a client of the authority: %v", err)
	}
	if _, err := shake(t, w, with(nil)); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if _, err := shake(t, w, with(other)); err == nil {
		t.Error("a client of another authority was let in")
	}
	write(t, dir, map[string][]byte{"ca": other.certPEM})
	again(w)
	if _, err := shake(t, w, with(other)); err != nil {
		t.Errorf("after the authority changed: %v", err)
	}
	if _, err := shake(t, w, with(ca)); err == nil {
		t.Error("a client of the former authority was let in")
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	dir, ca := t.TempDir(), issue(t, "authority", nextYear(), nil)
	a, b := issue(t, "a", nextYear(), ca), issue(t, "b", nextYear(), ca)
	write(t, dir, map[string][]byte{"a": a.certPEM, "a.key": a.keyPEM, "b.key": b.keyPEM, "text": []byte("no PEM here"), "empty": nil})
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		f    Files
		want string
	}{
		{Files{Cert: at("absent"), Key: at("a.key")}, "absent"},
		{Files{Cert: at("a"), Key: at("absent")}, "absent"},
		{Files{Cert: at("a"), Key: at("b.key")}, "does not match"},
		{Files{Cert: at("text"), Key: at("a.key")}, at("text")},
		{Files{Cert: at("empty"), Key: at("a.key")}, at("empty")},
		{Files{Cert: at("a"), Key: at("text")}, at("text")},
		{Files{Cert: dir, Key: at("a.key")}, dir},
		{Files{Cert: at("a"), Key: at("a.key"), ClientCA: at("text")}, at("text") + " holds no PEM certificate"},
		{Files{Cert: at("a"), Key: at("a.key"), ClientCA: at("absent")}, "absent"},
	} {
		_, err := Open(c.f, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.f, err, c.want)
		}
		if _, err2 := Check(c.f, time.Now()); err2 == nil || err == nil || err2.Error() != err.Error() {
			t.Errorf("Check says %v, Open %v", err2, err)
		}
	}
}

// TestExpiryIsWarnedOf: from 14 days before, once a day, and at once for a new certificate; the chain counts too.
func TestExpiryIsWarnedOf(t *testing.T) {
	dir, ca := t.TempDir(), issue(t, "authority", nextYear(), nil)
	end := time.Now().Add(20 * 24 * time.Hour).Truncate(time.Second)
	i := issue(t, "server", end, ca)
	write(t, dir, map[string][]byte{"cert": i.certPEM, "key": i.keyPEM})
	w, log := open(t, Files{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")})
	now := time.Now()
	w.now = func() time.Time { return now }
	for _, step := range []struct {
		at   time.Time
		text string
		want int
	}{
		{end.Add(-warnBefore), "expires in", 0},
		{end.Add(-warnBefore + time.Minute), "expires in 13 days", 1},
		{end.Add(-warnBefore + time.Hour), "expires in", 1},
		{end.Add(-warnBefore + 25*time.Hour), "expires in 12 days", 1},
		{end.Add(time.Minute), "has expired", 1},
	} {
		now = step.at
		again(w)
		w.look()
		if n := log.count(step.text); n != step.want {
			t.Errorf("%v before the end: %q was said %d times, want %d", end.Sub(now), step.text, n, step.want)
		}
	}

	early := issue(t, "early", time.Now().Add(24*time.Hour), nil)
	write(t, dir, map[string][]byte{"cert": append(i.certPEM, early.certPEM...)})
	warning, err := Check(w.files, time.Now())
	if err != nil || !strings.Contains(warning, "expires in 0 days") {
		t.Errorf("a chain whose authority ends tomorrow: %q, %v", warning, err)
	}
}
