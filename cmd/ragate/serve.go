package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"ragate/inference"
	"ragate/models"
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
	p, err := c.prepare(ctx, io, log)
	if err != nil {
		return err
	}
	defer p.seen.close(expired()) // where a start fails; the shutdown has its own
	ln, err := c.listen()
	if err != nil {
		return err
	}
	p.address = c.scheme() + "://" + ln.Addr().String()
	signal.Notify(p.hangup, syscall.SIGHUP) // from here on: one that comes during the start is served after it, and does not end the process
	defer signal.Stop(p.hangup)
	p.tell(p.manager.status("loading the models"))
	p.began = time.Now()
	go func() { p.served <- p.srv.Serve(ln) }()
	log.Info("listening; the models are being loaded", "address", ln.Addr().String(), "version", version)
	context.AfterFunc(ctx, p.srv.Drain) // at once, whatever the code below is doing

	d, err := c.start(ctx, p)
	if err != nil {
		p.srv.Shutdown(expired())
		<-p.served
		if ctx.Err() != nil {
			log.Info("stopped while starting")
			return nil
		}
		return err
	}
	p.tell(p.manager.ready())
	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case err := <-p.served:
			d.close(expired())
			return err
		case <-p.hangup:
			c.reload(ctx, p, d)
		}
	}
	p.tell(p.manager.stopping())
	log.Info("stopping: requests in flight finish, new ones are refused", "grace", c.ShutdownGrace.String())
	return c.shutdown(log, p.srv, d, p.seen, p.served)
}

// process is a server and what belongs to its process, before the models are there.
type process struct {
	log     *slog.Logger
	store   *models.Store
	srv     *server.Server
	cert    *certs.Watcher // nil: plain HTTP
	seen    *observing
	manager serviceManager
	bar     *progressLine

	address string // once it listens
	began   time.Time
	served  chan error     // how serving ended
	hangup  chan os.Signal // asks for a reload
}

// tell notes that the service manager could not be told something.
func (p *process) tell(err error) {
	if err != nil {
		p.log.Warn("the service manager was not told", "error", err.Error())
	}
}

// prepare makes the server, which listens to nothing yet. What the settings name and cannot be used is a usageError.
func (c serveCmd) prepare(ctx context.Context, io streams, log *slog.Logger) (*process, error) {
	p := &process{log: log, manager: managerFromEnv(), bar: &progressLine{w: io.err}, served: make(chan error, 1), hangup: make(chan os.Signal, 1)}
	keys, err := c.keys()
	if err != nil {
		return nil, &usageError{err}
	}
	for _, w := range c.keyWarnings(keys) {
		log.Warn("settings", "warning", w)
	}
	cfg := c.serverConfig(keys)
	if c.TLSCert != "" {
		if p.cert, err = certs.Open(c.certFiles(), log); err != nil {
			return nil, &usageError{err}
		}
		cfg.TLS, cfg.CertificateExpiry = p.cert.TLS(), p.cert.Expires
	}
	if p.store, err = c.store(terminalOf(io.err)); err != nil {
		return nil, err
	}
	if p.seen, err = c.observe(ctx, &cfg, log); err != nil {
		return nil, err
	}
	if p.srv, err = server.New(cfg, log); err != nil {
		return nil, errors.Join(&usageError{err}, p.seen.close(expired()))
	}
	return p, nil
}

// listen takes the address.
func (c serveCmd) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, usagef("address %s is taken by another process: stop it, or choose another by --listen or RAGATE_LISTEN", c.Listen)
	}
	if err != nil {
		return nil, listenError(c.Listen, err)
	}
	return ln, nil
}

// start loads the models, makes the gates and makes the server ready. When it fails, nothing of it is left.
func (c serveCmd) start(ctx context.Context, p *process) (*device, error) {
	d, err := openDevice(ctx, c.storeFlags, c.modelFlags, opening{want: want{all: true}, store: p.store, log: p.log,
		observer: p.srv.Observer(), progress: p.bar, step: p.srv.SetStarting})
	if err != nil {
		return nil, err
	}
	if d.keep, err = c.openCache(d, p.log); err != nil {
		return nil, errors.Join(err, d.close(expired()))
	}
	p.srv.SetStarting("embedding the reference queries")
	keeper, err := openGates(ctx, c.gateFlags, referenceCache(p.store).dir, d, d.keep, p.log)
	if err != nil {
		return nil, errors.Join(err, d.close(expired()))
	}
	for _, m := range d.models {
		logModel(p.log, m.Info())
	}
	p.srv.SetReady(d.served(keeper.gates))
	limit, from := memoryLimit(os.ReadFile)
	p.log.Info("ready", "url", p.address, "start_ms", time.Since(p.began).Milliseconds(), "models", len(d.models), "resident_mb", inMB(settledBytes()),
		"expected_mb", inMB(d.expected), "limit_mb", inMB(limit), "limit_from", from)
	return d, nil
}

// served is what a server is given of a device.
func (d *device) served(g server.Gates) server.Engine {
	e := server.Engine{Stats: d.engine.Stats, Gates: g, Resident: residentBytes}
	for _, m := range d.models {
		if served := d.keep.front(m); m == d.own {
			e.Unlisted = append(e.Unlisted, served)
		} else {
			e.Models = append(e.Models, served)
		}
	}
	if d.keep != nil {
		e.Cache = d.keep.stats
	}
	return e
}

// reload reads again what may change while the server runs. What cannot be used is said, and the old stays in use.
func (c serveCmd) reload(ctx context.Context, p *process, d *device) {
	log, srv, cert := p.log, p.srv, p.cert
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
	if d.gateEmbedder == nil {
		return // there are no references
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
	cfg.Truncate = c.Truncate // MaxTokens is each model's own: the engine holds requests to it
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
		"max_tokens", i.MaxTokens, "source", i.Source, "memory_mb", inMB(i.Memory), driftKey(i, "drift"), driftOf(i, i.Drift), driftKey(i, "fidelity"), driftOf(i, i.Fidelity))
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
