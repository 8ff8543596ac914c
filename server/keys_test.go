package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseKeyFile(t *testing.T) {
	got, err := ParseKeyFile("\ufeff# keys of the desk\r\n\r\n  desk : first-key  \nsecond-key\n\t# no key\nbatch:a:b,c\n")
	want := []Key{{"desk", "first-key"}, {"line-4", "second-key"}, {"batch", "a:b,c"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for text, words := range map[string][]string{
		"": {"holds no key"}, "# only this\n\n": {"holds no key"},
		"a:top\nb:top\n": {"line 2", "same key as line 1"}, "a:x\n\na:y": {"line 3", "name of line 1"}, "a:\n": {"line 1", "empty"}, ":x": {"line 1", "name"},
		"a:to p\nb:é\nc:\x00": {"line 1", "line 2", "line 3", "visible ASCII"},
	} {
		_, err := ParseKeyFile(text)
		if err == nil {
			t.Errorf("%q passed", text)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "top") {
				t.Errorf("%q: %v; %q was expected, and no key", text, err, w)
			}
		}
	}
}

func TestJoinKeys(t *testing.T) {
	list := []Key{{"a", "secret-1"}, {"b", "secret-2"}}
	if got, err := JoinKeys(list, []Key{{"c", "secret-3"}}); err != nil || len(got) != 3 || len(list) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	_, err := JoinKeys(list, []Key{{"a", "secret-4"}, {"d", "secret-2"}})
	if err == nil || !strings.Contains(err.Error(), `named "a"`) || !strings.Contains(err.Error(), `"d" of the file is the same as "b"`) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	if got := GuessableKeys([]Key{{"short", strings.Repeat("x", 15)}, {"long", strings.Repeat("x", 16)}}); !slices.Equal(got, []string{"short"}) {
		t.Errorf("guessable: %v", got)
	}
}

// TestSetKeys: from the next request on the new keys count and no other; what cannot be used changes nothing.
func TestSetKeys(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) { c.Keys = []Key{{"a", "one"}} })
	status := func(key string) int { return do(s, "GET", "/v1/models", "", "Authorization", "Bearer "+key).Code }
	if status("one") != 200 || status("two") != 401 {
		t.Error("before")
	}
	if err := s.SetKeys([]Key{{"b", "two"}}); err != nil {
		t.Fatal(err)
	}
	if status("one") != 401 || status("two") != 200 {
		t.Error("the new keys do not count, or the old still do")
	}
	for _, bad := range [][]Key{nil, {{"c", ""}}, {{"c", "x"}, {"c", "y"}}} {
		if err := s.SetKeys(bad); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if status("two") != 200 || status("") != 401 {
		t.Error("keys that cannot be used changed something")
	}
	open, _, _ := stubServer(nil)
	if err := open.SetKeys(nil); err != nil {
		t.Errorf("no keys where there were none: %v", err)
	}
}

func TestCORS(t *testing.T) {
	const origin = "https://app.example.org"
	s, _, _ := stubServer(func(c *Config) {
		c.Keys, c.CORSOrigins = []Key{{"a", "one"}}, []string{origin, "http://localhost:3000"}
	})
	ask := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type"}

	// The browser's question carries no key.
	w := do(s, "OPTIONS", "/v1/rerank", "", append([]string{"Origin", origin}, ask...)...)
	if h := w.Header(); w.Code != 204 || h.Get("Access-Control-Allow-Origin") != origin || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") || h.Get("Vary") != "Origin" || w.Body.Len() != 0 {
		t.Errorf("the question: %d %v", w.Code, h)
	}
	// The request itself needs one, and the page may read the refusal.
	w = do(s, "GET", "/v1/models", "", "Origin", origin)
	if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != origin {
		t.Errorf("without key: %d %v", w.Code, w.Header())
	}
	w = do(s, "GET", "/v1/models", "", "Origin", "http://localhost:3000", "Authorization", "Bearer one")
	if w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "http://localhost:3000" || !strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), "X-Request-Id") {
		t.Errorf("with key: %d %v", w.Code, w.Header())
	}
	for _, stranger := range []string{"https://evil.example", "https://app.example.org.evil.example", "http://app.example.org", "null", ""} {
		w = do(s, "OPTIONS", "/v1/rerank", "", append([]string{"Origin", stranger}, ask...)...)
		if w.Code == 204 || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: %d %v", stranger, w.Code, w.Header())
		}
	}
	// Nothing of it by default.
	closed, _, _ := stubServer(nil)
	w = do(closed, "OPTIONS", "/v1/rerank", "", append([]string{"Origin", origin}, ask...)...)
	if w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Access-Control-Allow-Methods") != "" || w.Header().Get("Vary") != "" {
		t.Errorf("by default: %d %v", w.Code, w.Header())
	}
	for _, bad := range []string{"*", "app.example.org", "https://a.example/", "https://a.example/x", "https://*.example", "https://A.example", "https://", "ftp://a.example", "null", ""} {
		c := DefaultConfig()
		c.CORSOrigins = []string{bad}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "RAGATE_CORS_ORIGIN") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestHTTPS: both HTTP versions over TLS, the certificate's end in the metrics, and Go's own answer to plain HTTP.
func TestHTTPS(t *testing.T) {
	unused := httptest.NewUnstartedServer(nil)
	unused.StartTLS() // for its certificate
	defer unused.Close()
	end := time.Unix(2_000_000_000, 0)
	s, _, _ := stubServer(func(c *Config) {
		c.TLS, c.CertificateExpiry = &tls.Config{Certificates: unused.TLS.Certificates}, func() time.Time { return end }
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	for version, transport := range map[string]*http.Transport{
		"HTTP/1.1": {TLSClientConfig: unused.Client().Transport.(*http.Transport).TLSClientConfig.Clone()},
		"HTTP/2.0": {TLSClientConfig: unused.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), ForceAttemptHTTP2: true},
	} {
		transport.TLSClientConfig.NextProtos = nil
		client := &http.Client{Transport: transport}
		r, err := client.Post("https://"+ln.Addr().String()+"/embed", "application/json", strings.NewReader(`{"inputs":"a"}`))
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != 200 || r.Proto != version {
			t.Errorf("%s: %s %d %s, %v", version, r.Proto, r.StatusCode, b, err)
		}
		transport.CloseIdleConnections()
	}
	if w := do(s, "GET", "/metrics", ""); !strings.Contains(w.Body.String(), "\nragate_tls_certificate_expiry_timestamp_seconds 2e+09\n") {
		t.Error("the metrics lack the certificate's end")
	}
	r, err := http.Get("http://" + ln.Addr().String() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if r.StatusCode != 400 || !strings.Contains(string(b), "HTTP request to an HTTPS server") {
		t.Errorf("plain HTTP: %d %s", r.StatusCode, b)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	plain, _, _ := stubServer(nil)
	if w := do(plain, "GET", "/metrics", ""); strings.Contains(w.Body.String(), "ragate_tls") {
		t.Error("a server without TLS has a certificate's end")
	}
}
