package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxProbeBody bounds what is read of an answer to a probe, in bytes; /ready answers in a few hundred.
const maxProbeBody = 4 << 10

// healthCmd is the probe for containers that hold no HTTP client.
type healthCmd struct {
	Ready   bool          `help:"Ask /ready, whether work is accepted, instead of /health, whether the process answers."`
	URL     string        `name:"url" placeholder:"URL" help:"Where the server is, such as https://host:8443. Default: --listen on this machine."`
	Listen  string        `env:"RAGATE_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address that the server listens on. ('${default}')"`
	TLSCert string        `name:"tls-cert" env:"RAGATE_TLS_CERT" placeholder:"FILE" help:"The server's certificate; where it is set, the probe speaks TLS."`
	Timeout time.Duration `default:"3s" placeholder:"TIME" help:"How long the server may take to answer. ('${default}')"`
}

// Run prints the answer. A server that does not answer, or with another status than 200, is an error: exit code 1.
func (c healthCmd) Run(ctx context.Context, out streams) error {
	base := c.URL
	if base == "" {
		var err error
		if base, err = probeURL(c.Listen, c.TLSCert != ""); err != nil {
			return err
		}
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("--url %q: give the scheme and the host, such as http://127.0.0.1:8080", base)
	}
	if c.Timeout <= 0 {
		return usagef("--timeout is %v: it must be longer than 0", c.Timeout)
	}
	path := "/health"
	if c.Ready {
		path = "/ready"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path, nil)
	if err != nil {
		return usagef("--url %q: %v", base, err)
	}
	client := http.Client{Transport: &http.Transport{
		// No proxy: the server is the one of this machine. Its certificate names the host that clients know, not the loopback address, so it
		// cannot be checked here; nothing secret is sent and nothing of the answer is trusted but that it came.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: c.URL == ""}, //nolint:gosec // see above
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	if err != nil {
		return fmt.Errorf("%s: the answer broke off: %w", req.URL, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", req.URL, resp.Status, strings.TrimSpace(string(body)))
	}
	_, err = fmt.Fprintln(out.out, strings.TrimSpace(string(body)))
	return err
}

// probeURL is where the server that listens on an address is reached from its own machine: an address that stands for every interface
// becomes loopback.
func probeURL(listen string, secure bool) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", usagef("--listen (RAGATE_LISTEN) %q: %v; give HOST:PORT", listen, err)
	}
	if port == "" || port == "0" {
		return "", usagef("--listen (RAGATE_LISTEN) %q names no port: give it, or the server's address by --url", listen)
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}
