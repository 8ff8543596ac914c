package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// said counts the log lines with that message.
func (s *server) said(msg string) int {
	n := 0
	for _, text := range splitLines(s.log()) {
		var fields map[string]any
		if json.Unmarshal([]byte(text), &fields) == nil && fields["msg"] == msg {
			n++
		}
	}
	return n
}

// putFile writes a file as a careful operator does: in one step.
func putFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// certificate makes a certificate that signs itself, and its key.
func certificate(t *testing.T, name string, until time.Time) (cert *x509.Certificate, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// TestOperations: one server over HTTPS, whose certificate and keys change while it runs.
func TestOperations(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, keys := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "keys")
	first, certPEM, keyPEM := certificate(t, "first", time.Now().Add(10*24*time.Hour))
	putFile(t, certFile, certPEM)
	putFile(t, keyFile, keyPEM)
	putFile(t, keys, []byte("# two of them\ndesk:first-key-of-the-desk\nsecond-key-without-name\n"))
	config := filepath.Join(dir, "ragate.yaml")
	putFile(t, config, []byte(fmt.Sprintf("tls-cert: %s\ntls-key: %s\napi-key-file: %s\nmax-items: 3\n", certFile, keyFile, keys)))

	s := launch(t, environment(t, store(t), "RAGATE_API_KEY=env:key-of-the-environment"), "--config", config)
	s.url = strings.Replace(s.url, "http://", "https://", 1)
	pool := x509.NewCertPool()
	pool.AddCert(first)
	// Without kept connections every request is a handshake.
	s.via = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	if url := s.line("ready")["url"].(string); url != s.url {
		t.Errorf("the log says %s, want %s", url, s.url)
	}
	end := float64(first.NotAfter.Unix())
	if m := string(s.ask("/metrics", nil).body); !strings.Contains(m, fmt.Sprintf("\nragate_tls_certificate_expiry_timestamp_seconds %g\n", end)) {
		t.Error("/metrics does not say when the certificate ends")
	}
	if !strings.Contains(s.log(), "the TLS certificate expires in 9 days") {
		t.Error("a certificate that ends in ten days was not warned of")
	}

	status := func(key string) int {
		s.t.Helper()
		s.key = key
		return s.ask("/v1/models", nil).status
	}
	for key, want := range map[string]int{"first-key-of-the-desk": 200, "second-key-without-name": 200, "key-of-the-environment": 200, "": 401, "# two of them": 401} {
		if got := status(key); got != want {
			t.Errorf("key %q: %d, want %d", key, got, want)
		}
	}
	for _, name := range []string{`"key":"desk"`, `"key":"line-3"`, `"key":"env"`} {
		if !strings.Contains(s.log(), name) {
			t.Errorf("the log lacks %s", name)
		}
	}

	// A setting of the file counts.
	s.key = "first-key-of-the-desk"
	if r := s.ask("/embed", map[string]any{"inputs": []string{"a", "b", "c", "d"}}); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("four inputs: %v", r)
	}

	// Other keys and another certificate, by signal.
	second, certPEM, keyPEM := certificate(t, "second", time.Now().Add(300*24*time.Hour))
	pool.AddCert(second)
	putFile(t, keys, []byte("desk:another-key-of-the-desk\n"))
	putFile(t, certFile, certPEM)
	putFile(t, keyFile, keyPEM)
	s.signal(syscall.SIGHUP)
	s.line("references reloaded")
	for key, want := range map[string]int{"another-key-of-the-desk": 200, "first-key-of-the-desk": 401, "second-key-without-name": 401, "key-of-the-environment": 200} {
		if got := status(key); got != want {
			t.Errorf("after the reload, key %q: %d, want %d", key, got, want)
		}
	}
	served := func() string {
		t.Helper()
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{RootCAs: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := served(); got != "second" {
		t.Errorf("after the reload the certificate is %s", got)
	}

	// Files that cannot be used change nothing, and are said.
	putFile(t, keys, []byte("desk:\n"))
	putFile(t, keyFile, []byte("no key"))
	s.signal(syscall.SIGHUP)
	s.line("the keys were not reloaded, the old ones stay in use")
	s.line("the TLS certificate was not reloaded, the old one stays in use")
	if got := status("another-key-of-the-desk"); got != 200 || served() != "second" {
		t.Errorf("with files that cannot be used: %d", got)
	}

	// A renewal without a signal is seen at a handshake, a second after the last look at the latest.
	_, certPEM, keyPEM = certificate(t, "third", time.Now().Add(300*24*time.Hour))
	if !pool.AppendCertsFromPEM(certPEM) {
		t.Fatal("no certificate")
	}
	putFile(t, certFile, certPEM)
	putFile(t, keyFile, keyPEM)
	for deadline := time.Now().Add(patience); served() != "third"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate was not taken")
		}
	}
	for _, secret := range []string{"key-of-the-desk", "second-key-without-name", "key-of-the-environment"} {
		if strings.Contains(s.log(), secret) {
			t.Errorf("the log holds the key %s", secret)
		}
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestStopDuringTheFirstStart: in each step of a first start a signal ends it with exit code 0, and what was not measured is not kept.
func TestStopDuringTheFirstStart(t *testing.T) {
	for _, step := range []string{"loading cross-encoder", "running the common shapes", "embedding the reference queries"} {
		t.Run(step, func(t *testing.T) {
			s := launch(t, environment(t, privateStore(t)))
			for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				r := s.ask("/ready", nil)
				if strings.Contains(string(r.body), step) {
					break
				}
				if r.status == http.StatusOK { // the step passed between two looks; the signal must do its work all the same
					t.Logf("the step %q was not met", step)
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the start does not come to %q: %v", step, r)
				}
			}
			s.signal(syscall.SIGTERM)
			if code := s.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if s.said("ready") != 0 && s.said("stopped") != 1 || s.said("ready") == 0 && s.said("stopped while starting") != 1 {
				t.Errorf("the log:\n%s", s.log())
			}
		})
	}
}

// TestTwoSignalsWhileStarting: the second ends the process at once, with exit code 1 and one line, whatever the start is doing.
func TestTwoSignalsWhileStarting(t *testing.T) {
	s := launch(t, environment(t, privateStore(t)))
	s.signal(syscall.SIGTERM)
	s.signal(syscall.SIGINT) // two of one kind, so close to each other, would arrive as one
	if code := s.wait(); code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, s.log())
	}
	oneLine(t, lastLine(s.log()), "second signal")
}

// TestFullDisk: a start that cannot write a single byte to any file serves all the same, and says what it could not keep.
func TestFullDisk(t *testing.T) {
	dir := privateStore(t)
	s := launchUnder(t, []string{"sh", "-c", `ulimit -f 0; exec "$0" "$@"`}, environment(t, dir))
	s.line("ready")
	for path, body := range map[string]map[string]any{
		"/embed":         {"inputs": "a text"},
		"/rerank":        {"query": "a text", "texts": []string{"another"}},
		"/v1/gate/query": {"query": "what is our refund policy", "budget_ms": 60_000},
	} {
		if r := s.ask(path, body); r.status != http.StatusOK {
			t.Errorf("%s: %v", path, r)
		}
	}
	log := s.log()
	for _, want := range []string{"cannot keep a rewritten model", "file too large", "the self-test's result cannot be kept", "the references' vectors cannot be kept"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestReadOnlyDataFolder: the same when the caches' places are taken by files of another kind, for which no user may write there either.
func TestReadOnlyDataFolder(t *testing.T) {
	dir := privateStore(t)
	for _, name := range []string{"graphs", "references"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "measured.json", "in-the-way"), 0o700); err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	s := start(t, append(environment(t, dir), "TMPDIR="+temporary))
	if r := s.ask("/rerank", map[string]any{"query": "a text", "texts": []string{"another"}}); r.status != http.StatusOK {
		t.Errorf("/rerank: %v", r)
	}
	if _, reranker := s.info(); reranker.Provider == "openvino" && !strings.Contains(strings.Join(reranker.Warnings, "\n"), "cannot keep a rewritten model") {
		t.Errorf("/info does not warn: %q", reranker.Warnings)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the server left %v in the folder for temporary files (%v)", left, err)
	}
}

// modelFolder is a folder of its own with the files of a model of the store.
func modelFolder(t *testing.T, name string) string {
	t.Helper()
	from, to := filepath.Join(store(t), "models", name), filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestModelRemovedWhileRunning: a server whose model's files are gone serves on, and reloads what it can.
func TestModelRemovedWhileRunning(t *testing.T) {
	folder := modelFolder(t, "intfloat--e5-small-v2")
	dir := privateStore(t)
	s := start(t, environment(t, dir), "--embedder", folder)
	ask := func() reply { return s.ask("/embed", map[string]any{"inputs": "a text of some length"}) }
	before := ask()
	for _, path := range []string{folder, filepath.Join(dir, "graphs"), filepath.Join(dir, "models")} {
		if err := os.RemoveAll(path); err != nil { // of the models it is the link that goes
			t.Fatal(err)
		}
	}
	s.signal(syscall.SIGHUP)
	s.line("references reloaded")
	if after := ask(); before.status != http.StatusOK || after.status != http.StatusOK || string(after.body) != string(before.body) {
		t.Errorf("before %v\nafter %v", before, after)
	}
	if r := s.ask("/rerank", map[string]any{"query": "a", "texts": []string{strings.Repeat("a longer text than any so far ", 60)}}); r.status != http.StatusOK {
		t.Errorf("/rerank: %v", r)
	}
}

// TestGateEmbedder: the query gate may have an embedder of its own, which is loaded beside the others.
func TestGateEmbedder(t *testing.T) {
	folder := modelFolder(t, "intfloat--e5-small-v2")
	s := start(t, environment(t, privateStore(t), "RAGATE_GATE_EMBEDDER="+folder))
	i, err := decode[info](s.ask("/info", nil))
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Models) != 3 || i.Models[2].Kind != "embedder" || i.Models[2].ID == i.Models[0].ID {
		t.Errorf("/info lists %+v", i.Models)
	}
	r := s.ask("/v1/gate/query", map[string]any{"query": "what does our refund policy say about opened boxes?", "budget_ms": 60_000})
	if r.status != http.StatusOK || !strings.Contains(string(r.body), `"semantic"`) {
		t.Errorf("the gate: %v", r)
	}
	// The model of /embed is the embedder, that of the gate its own: each has counted one text.
	s.ask("/embed", map[string]any{"inputs": "a text"})
	for series, want := range map[string]string{i.Models[0].ID: "1", i.Models[2].ID: "1"} {
		if m := string(s.ask("/metrics", nil).body); !strings.Contains(m, fmt.Sprintf("\nragate_items_total{model=%q} %s\n", series, want)) {
			t.Errorf("/metrics does not count %s items of %s", want, series)
		}
	}
}

// TestStartsThatFail: each is an exit code and one clear line that names what is at fault.
func TestStartsThatFail(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	whole := modelFolder(t, "intfloat--e5-small-v2")
	folder := func(name string, change func(files string)) string {
		t.Helper()
		if err := os.CopyFS(at(name), os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		change(at(name))
		return at(name)
	}
	rewrite := func(file string, change func([]byte) []byte) func(string) {
		return func(dir string) {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink("loop", at("loop")); err != nil {
		t.Fatal(err)
	}
	putFile(t, at("file"), []byte("no folder"))
	putFile(t, at("library.so"), []byte("no library"))
	_, certPEM, keyPEM := certificate(t, "a", time.Now().Add(time.Hour))
	putFile(t, at("crt"), certPEM)
	putFile(t, at("key"), keyPEM)
	_, _, other := certificate(t, "b", time.Now().Add(time.Hour))
	putFile(t, at("other"), other)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"no such library", []string{"--ort-library", at("nowhere.so")}, 1, []string{"nowhere.so", "RAGATE_ORT_LIBRARY"}},
		{"a library that is none", []string{"--ort-library", at("library.so")}, 1, []string{"library.so"}},
		{"an address that is taken", []string{"--listen", taken.Addr().String()}, 2, []string{taken.Addr().String(), "taken", "--listen"}},
		{"an address of another machine", []string{"--listen", "192.0.2.1:8080", "--allow-no-key"}, 2, []string{"192.0.2.1:8080", "--listen"}},
		{"no such model folder", []string{"--embedder", at("nowhere")}, 1, []string{at("nowhere"), "no such folder"}},
		{"a model folder that is a file", []string{"--embedder", at("file")}, 1, []string{at("file")}},
		{"a model folder that cannot be read", []string{"--embedder", at("loop")}, 1, []string{at("loop")}},
		{"a model cut short", []string{"--embedder", folder("short", rewrite("model.onnx", func(b []byte) []byte { return b[:len(b)/2] }))}, 1, []string{"model.onnx"}},
		{"a model that is text", []string{"--embedder", folder("text", rewrite("model.onnx", func([]byte) []byte { return []byte("version https://git-lfs") }))}, 1, []string{"model.onnx"}},
		{"an empty model", []string{"--embedder", folder("empty", rewrite("model.onnx", func([]byte) []byte { return nil }))}, 1, []string{"model.onnx"}},
		{"a tokenizer cut short", []string{"--embedder", folder("tokenizer", rewrite("tokenizer.json", func(b []byte) []byte { return b[:len(b)/2] }))}, 1, []string{"tokenizer.json"}},
		{"a folder without a tokenizer", []string{"--embedder", folder("none", func(dir string) { os.Remove(filepath.Join(dir, "tokenizer.json")) })}, 1, []string{"tokenizer.json"}},
		{"a model of the other kind", []string{"--reranker", whole}, 1, []string{"embedder"}},
		{"a gate embedder of the other kind", []string{"--gate-embedder", "cross-encoder/ms-marco-MiniLM-L12-v2"}, 2, []string{"--gate-embedder", "reranker"}},
		{"a TLS key of another certificate", []string{"--tls-cert", at("crt"), "--tls-key", at("other")}, 2, []string{at("crt"), at("other"), "match"}},
		{"no TLS key", []string{"--tls-cert", at("crt")}, 2, []string{"--tls-cert", "--tls-key"}},
		{"no such TLS file", []string{"--tls-cert", at("crt"), "--tls-key", at("absent")}, 2, []string{at("absent")}},
		{"a settings file that is none", []string{"--config", at("file")}, 2, []string{at("file")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The last --listen counts.
			r := command(t, environment(t, store(t)), "", append([]string{"serve", "--log-format=json", "--log-level=error", "--listen", "127.0.0.1:0"}, c.args...)...)
			if r.code != c.code || r.stdout != "" {
				t.Errorf("exit code %d, want %d; output %q", r.code, c.code, r.stdout)
			}
			oneLine(t, r.stderr, c.says...)
			if strings.Contains(r.stderr, "goroutine") {
				t.Errorf("a stack: %s", r.stderr)
			}
		})
	}
}
