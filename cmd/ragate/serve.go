package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ragate/inference"
	"ragate/server"
	"ragate/server/certs"
)

// engineGrace is how much longer than the requests the engine may take to leave its native runs: one slice each, plus margin.
const engineGrace = 5 * time.Second

type serveCmd struct {
	serveFlags
}

func (c serveCmd) Run(ctx context.Context, io streams, given *given) error {
	log := c.logger(io)
	for _, w := range given.warnings {
		log.Warn("settings", "warning", w.Error())
	}
	keys, err := c.keys()
	if err != nil {
		return &usageError{err}
	}
	for _, w := range c.keyWarnings(keys) {
		log.Warn("settings", "warning", w)
	}
	cfg := c.serverConfig(keys)
	var cert *certs.Watcher
	if c.TLSCert != "" {
		if cert, err = certs.Open(c.certFiles(), log); err != nil {
			return &usageError{err}
		}
		cfg.TLS, cfg.CertificateExpiry = cert.TLS(), cert.Expires
	}
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	seen, err := c.observe(ctx, &cfg, log)
	if err != nil {
		return err
	}
	defer seen.close(expired()) // where a start fails; the shutdown has its own
	srv, err := server.New(cfg, log)
	if err != nil {
		return &usageError{err}
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return usagef("address %s is taken by another process: stop it, or choose another by --listen or RAGATE_LISTEN", c.Listen)
		}
		return listenError(c.Listen, err)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // from here on: one that comes during the start is served after it, and does not end the process
	defer signal.Stop(hangup)
	manager := managerFromEnv()
	tell := func(err error) {
		if err != nil {
			log.Warn("the service manager was not told", "error", err.Error())
		}
	}
	tell(manager.status("loading the models"))
	began := time.Now()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	log.Info("listening; the models are being loaded", "address", ln.Addr().String(), "version", version)
	context.AfterFunc(ctx, srv.Drain) // at once, whatever the code below is doing

	d, err := openDevice(ctx, c.storeFlags, c.modelFlags, want{embedder: true, reranker: true, gate: true}, log, srv.Observer(), &progressLine{w: io.err}, store, srv.SetStarting)
	if err != nil {
		srv.Shutdown(expired())
		<-served
		if ctx.Err() != nil {
			log.Info("stopped while starting")
			return nil
		}
		return err
	}
	srv.SetStarting("embedding the reference queries")
	keeper, err := openGates(ctx, c.gateFlags, filepath.Join(store.Dir, "references"), d, log)
	if err != nil {
		srv.Shutdown(expired())
		<-served
		err = errors.Join(err, d.close(expired()))
		if ctx.Err() != nil {
			log.Info("stopped while starting")
			return nil
		}
		return err
	}
	loaded := []*inference.Model{d.embedder, d.reranker}
	if d.gateEmbedder != d.embedder {
		loaded = append(loaded, d.gateEmbedder)
	}
	engine := server.Engine{Stats: d.engine.Stats, Gates: keeper.gates}
	for _, m := range loaded {
		engine.Models = append(engine.Models, m)
		logModel(log, m.Info())
	}
	srv.SetReady(engine)
	log.Info("ready", "url", c.scheme()+"://"+ln.Addr().String(), "start_ms", time.Since(began).Milliseconds(), "resident_mb", residentMB())
	tell(manager.ready())

	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case err := <-served:
			d.close(expired())
			return err
		case <-hangup:
			c.reload(ctx, log, srv, cert)
		}
	}
	tell(manager.stopping())
	log.Info("stopping: requests in flight finish, new ones are refused", "grace", c.ShutdownGrace.String())
	return c.shutdown(log, srv, d, seen, served)
}

// reload reads again what may change while the server runs. What cannot be used is said, and the old stays in use.
func (c serveCmd) reload(ctx context.Context, log *slog.Logger, srv *server.Server, cert *certs.Watcher) {
	if c.APIKeyFile != "" {
		keys, err := c.keys()
		if err == nil {
			err = srv.SetKeys(keys)
		}
		srv.Reloaded("keys", err)
		if err != nil {
			log.Error("the keys were not reloaded, the old ones stay in use", "error", oneLine(err))
		} else {
			log.Info("keys reloaded", "keys", len(keys))
			for _, w := range c.keyWarnings(keys) {
				log.Warn("settings", "warning", w)
			}
		}
	}
	if cert != nil {
		err := cert.Reload()
		srv.Reloaded("certificate", err)
		if err != nil {
			log.Error("the TLS certificate was not reloaded, the old one stays in use", "error", oneLine(err))
		} else {
			log.Info("TLS certificate reloaded", "expires", cert.Expires().UTC())
		}
	}
	if set, err := srv.ReloadReferences(ctx); err != nil {
		log.Error("the references were not reloaded, the old ones stay in use", "error", err.Error())
	} else {
		log.Info("references reloaded", "version", set.Version, "references", set.References, "categories", set.Categories)
	}
}

// shutdown reverses the construction: refuse, drain, stop workers, close sessions, close the runtime.
func (c serveCmd) shutdown(log *slog.Logger, srv *server.Server, d *device, seen *observing, served <-chan error) error {
	grace, cancel := context.WithTimeout(context.Background(), c.ShutdownGrace)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := srv.Shutdown(grace)
		end := grace
		if err != nil {
			end = expired()
		}
		err = errors.Join(err, d.close(end), <-served)
		if lost := seen.close(end); lost != nil {
			log.Warn("the last traces are lost", "error", lost.Error()) // no reason to call the end a failure
		}
		done <- err
	}()
	force := time.NewTimer(c.ShutdownGrace + engineGrace)
	defer force.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("shutdown: %w", err)
		}
		log.Info("stopped")
		return nil
	case <-force.C:
		return fmt.Errorf("a native run did not end within %s of the grace period", engineGrace)
	}
}

// expired is a context that has ended: whoever waits on it does not wait.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (c serverFlags) logger(io streams) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[c.LogLevel]} // the parser lets no other value through
	if c.LogFormat == "text" || c.LogFormat == "auto" && terminalOf(io.err) != nil {
		return slog.New(slog.NewTextHandler(io.err, o))
	}
	return slog.New(slog.NewJSONHandler(io.err, o))
}

func (c serveCmd) serverConfig(keys []server.Key) server.Config {
	cfg := server.DefaultConfig()
	cfg.Version, cfg.Keys, cfg.CORSOrigins = version, keys, c.CORSOrigin
	cfg.MaxBodyBytes, cfg.MaxItems, cfg.MaxDocuments, cfg.MaxHeaderBytes = c.MaxBodyBytes, c.MaxItems, c.MaxDocuments, c.MaxHeaderBytes
	cfg.MaxInflightBytes = c.MaxInflightBytes
	cfg.MaxTokens, cfg.Truncate = c.MaxTokens, c.Truncate
	cfg.Budget, cfg.RefuseOnOverload = time.Duration(c.BudgetMS)*time.Millisecond, c.GateOverload == "refuse"
	cfg.LogText = c.LogText
	cfg.HeaderTimeout, cfg.BodyTimeout, cfg.WriteTimeout, cfg.IdleTimeout = c.HeaderTimeout, c.BodyTimeout, c.WriteTimeout, c.IdleTimeout
	return cfg
}

// keys are those of the list and of the file.
func (c serverFlags) keys() ([]server.Key, error) {
	list, err := server.ParseKeys(c.APIKey)
	if err != nil {
		err = fmt.Errorf("--api-key (RAGATE_API_KEY): %w", err)
	}
	if c.APIKeyFile == "" {
		return list, err
	}
	text, e := os.ReadFile(c.APIKeyFile)
	if e != nil {
		return nil, errors.Join(err, fmt.Errorf("--api-key-file (RAGATE_API_KEY_FILE): %w", e))
	}
	file, e := server.ParseKeyFile(string(text))
	if e != nil {
		return nil, errors.Join(err, fmt.Errorf("--api-key-file (RAGATE_API_KEY_FILE) %s: %w", c.APIKeyFile, e))
	}
	if err != nil {
		return nil, err
	}
	keys, err := server.JoinKeys(list, file)
	if err != nil {
		return nil, fmt.Errorf("--api-key (RAGATE_API_KEY) and --api-key-file (RAGATE_API_KEY_FILE): %w", err)
	}
	return keys, nil
}

// keyWarnings says what is unwise about keys that can be used.
func (c serverFlags) keyWarnings(keys []server.Key) []string {
	var out []string
	if names := server.GuessableKeys(keys); len(names) > 0 {
		out = append(out, fmt.Sprintf("keys shorter than 16 characters can be guessed: %s", strings.Join(names, ", ")))
	}
	if len(keys) == 0 && c.TLSClientCA == "" && c.AllowNoKey && !loopback(c.Listen) {
		out = append(out, fmt.Sprintf("no key is asked for on %s: whoever reaches the address is served", c.Listen))
	}
	if c.APIKeyFile != "" {
		if st, err := os.Stat(c.APIKeyFile); err == nil && st.Mode().Perm()&0o004 != 0 {
			out = append(out, fmt.Sprintf("%s can be read by every user of this machine (mode %04o): chmod o-r it", c.APIKeyFile, st.Mode().Perm()))
		}
	}
	return out
}

func (c serverFlags) certFiles() certs.Files {
	return certs.Files{Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA}
}

func (c serverFlags) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// check finds what is wrong with the settings taken together, each of them being right by itself.
func (c serverFlags) check() []error {
	var errs []error
	keys, err := c.keys()
	if err != nil {
		errs = append(errs, err)
	}
	if err == nil && len(keys) == 0 && c.TLSClientCA == "" && !c.AllowNoKey && !loopback(c.Listen) {
		errs = append(errs, fmt.Errorf("--listen (RAGATE_LISTEN) %q reaches beyond this machine and no key is set: set RAGATE_API_KEY, or listen on 127.0.0.1 (RAGATE_ALLOW_NO_KEY=true serves whoever comes)", c.Listen))
	}
	for _, need := range []struct{ has, lacks, name, other string }{
		{c.TLSCert, c.TLSKey, "--tls-cert (RAGATE_TLS_CERT)", "--tls-key (RAGATE_TLS_KEY)"},
		{c.TLSKey, c.TLSCert, "--tls-key (RAGATE_TLS_KEY)", "--tls-cert (RAGATE_TLS_CERT)"},
		{c.TLSClientCA, c.TLSCert, "--tls-client-ca (RAGATE_TLS_CLIENT_CA)", "--tls-cert (RAGATE_TLS_CERT)"},
	} {
		if need.has != "" && need.lacks == "" {
			errs = append(errs, fmt.Errorf("%s needs %s beside it", need.name, need.other))
		}
	}
	cors := server.DefaultConfig()
	cors.CORSOrigins = c.CORSOrigin
	if err := cors.Validate(); err != nil {
		errs = append(errs, err)
	}
	return append(errs, c.observeFlags.check()...)
}

// loopback says whether only this machine can reach the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // net.Listen will say what is wrong with it
	}
	ip := net.ParseIP(strings.TrimSuffix(host, "."))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func logModel(log *slog.Logger, i inference.Info) {
	log.Info("model loaded", "model", i.ID, "kind", string(i.Kind), "provider", i.Provider, "precision", i.Precision, "streams", i.Streams, "threads", i.Threads,
		"max_tokens", i.MaxTokens, driftKey(i, "drift"), driftOf(i, i.Drift), driftKey(i, "fidelity"), driftOf(i, i.Fidelity))
	for _, w := range i.Warnings {
		log.Warn("model", "model", i.ID, "warning", w)
	}
}

// driftKey and driftOf log of a drift what means something for the model's kind.
func driftKey(i inference.Info, name string) string {
	if i.Kind == inference.KindReranker {
		return name + "_logit"
	}
	return name + "_cosine"
}

func driftOf(i inference.Info, d inference.Drift) float64 {
	if i.Kind == inference.KindReranker {
		return d.MaxLogit
	}
	return d.MinCosine
}

// residentMB is the process's resident memory, 0 where the system does not say.
func residentMB() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * os.Getpagesize() >> 20
}
