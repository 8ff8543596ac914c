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
)

// engineGrace is how much longer than the requests the engine may take to leave its native runs: one slice each, plus margin.
const engineGrace = 5 * time.Second

type serveCmd struct {
	storeFlags
	modelFlags
	gateFlags
	BudgetMS      int           `name:"budget-ms" env:"RAGATE_BUDGET_MS" default:"100" placeholder:"N" help:"Milliseconds of a gate's answer when the request names none. ('${default}')"`
	GateOverload  string        `name:"gate-on-overload" env:"RAGATE_GATE_ON_OVERLOAD" default:"safe" enum:"safe,refuse" help:"What a gate does when the queue is full: answer on the safe side, or refuse with 429. ('${default}')"`
	Listen        string        `env:"RAGATE_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address to listen on. ('${default}')"`
	APIKey        string        `name:"api-key" env:"RAGATE_API_KEY" placeholder:"KEYS" help:"Comma separated keys, each name:key or key. Needed to listen on anything but loopback."`
	MaxBodyBytes  int64         `env:"RAGATE_MAX_BODY_BYTES" default:"${maxBodyBytes}" placeholder:"N" help:"Bytes of one request. ('${default}')"`
	MaxItems      int           `env:"RAGATE_MAX_ITEMS" default:"${maxItems}" placeholder:"N" help:"Embedding inputs of one request. ('${default}')"`
	MaxDocuments  int           `env:"RAGATE_MAX_DOCUMENTS" default:"${maxDocuments}" placeholder:"N" help:"Documents, texts or chunks of one request. ('${default}')"`
	Truncate      bool          `env:"RAGATE_TRUNCATE" default:"true" negatable:"" help:"Cut longer texts, and say so; otherwise refuse them. (${default})"`
	ShutdownGrace time.Duration `env:"RAGATE_SHUTDOWN_GRACE" default:"30s" placeholder:"TIME" help:"How long requests in flight may take to finish after SIGTERM. ('${default}')"`
	LogFormat     string        `env:"RAGATE_LOG_FORMAT" default:"auto" enum:"auto,json,text" help:"Log lines: ${enum}; auto is text on a terminal, else json. ('${default}')"`
	LogLevel      string        `env:"RAGATE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"${enum}. ('${default}')"`
}

func (c serveCmd) Run(ctx context.Context, io streams) error {
	log := c.logger(io)
	cfg, err := c.serverConfig()
	if err := errors.Join(err, c.modelFlags.validate()); err != nil {
		return &usageError{err}
	}
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	srv, err := server.New(cfg, log)
	if err != nil {
		return &usageError{err}
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return usagef("address %s is taken by another process: stop it, or choose another by --listen or RAGATE_LISTEN", c.Listen)
		}
		return usagef("--listen (RAGATE_LISTEN) %q: %v; give HOST:PORT of this machine, such as 127.0.0.1:8080", c.Listen, err)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // from here on: one that comes during the start is served after it, and does not end the process
	defer signal.Stop(hangup)
	began := time.Now()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	log.Info("listening; the models are being loaded", "address", ln.Addr().String(), "version", version)

	d, err := openDevice(ctx, c.storeFlags, c.modelFlags, want{embedder: true, reranker: true}, srv.Observer(), &progressLine{w: io.err}, store, srv.SetStarting)
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
	engine := server.Engine{Stats: d.engine.Stats, Gates: keeper.gates}
	for _, m := range loaded {
		engine.Models = append(engine.Models, m)
		logModel(log, m.Info())
	}
	srv.SetReady(engine)
	log.Info("ready", "url", "http://"+ln.Addr().String(), "start_ms", time.Since(began).Milliseconds(), "resident_mb", residentMB())

	for running := true; running; {
		select {
		case <-ctx.Done():
			running = false
		case err := <-served:
			d.close(expired())
			return err
		case <-hangup:
			if set, err := keeper.gates.Reload(ctx); err != nil {
				log.Error("the references were not reloaded, the old ones stay in use", "error", err.Error())
			} else {
				log.Info("references reloaded", "version", set.Version, "references", set.References, "categories", set.Categories)
			}
		}
	}
	log.Info("stopping: requests in flight finish, new ones are refused", "grace", c.ShutdownGrace.String())
	return c.shutdown(log, srv, d, served)
}

// shutdown reverses the construction: refuse, drain, stop workers, close sessions, close the runtime. A second signal cuts it short.
func (c serveCmd) shutdown(log *slog.Logger, srv *server.Server, d *device, served <-chan error) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	grace, cancel := context.WithTimeout(context.Background(), c.ShutdownGrace)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := srv.Shutdown(grace)
		end := grace
		if err != nil {
			end = expired()
		}
		done <- errors.Join(err, d.close(end), <-served)
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
	case <-again:
		return errors.New("stopped by a second signal before requests in flight had finished")
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

func (c serveCmd) logger(io streams) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	o := &slog.HandlerOptions{Level: levels[c.LogLevel]} // the parser lets no other value through
	if c.LogFormat == "text" || c.LogFormat == "auto" && terminalOf(io.err) != nil {
		return slog.New(slog.NewTextHandler(io.err, o))
	}
	return slog.New(slog.NewJSONHandler(io.err, o))
}

func (c serveCmd) serverConfig() (server.Config, error) {
	cfg := server.DefaultConfig()
	cfg.Version = version
	cfg.MaxBodyBytes, cfg.MaxItems, cfg.MaxDocuments = c.MaxBodyBytes, c.MaxItems, c.MaxDocuments
	cfg.MaxTokens, cfg.Truncate = c.MaxTokens, c.Truncate
	cfg.Budget, cfg.RefuseOnOverload = time.Duration(c.BudgetMS)*time.Millisecond, c.GateOverload == "refuse"
	keys, err := server.ParseKeys(c.APIKey)
	if err != nil {
		err = fmt.Errorf("--api-key (RAGATE_API_KEY): %w", err)
	}
	cfg.Keys = keys
	errs := []error{err}
	if c.BudgetMS < 1 {
		errs = append(errs, fmt.Errorf("--budget-ms (RAGATE_BUDGET_MS) is %d: it must be at least 1", c.BudgetMS))
		cfg.Budget = server.DefaultBudget // said once
	}
	if c.MaxTokens < 0 {
		cfg.MaxTokens = 0 // modelFlags says it
	}
	if c.ShutdownGrace <= 0 {
		errs = append(errs, fmt.Errorf("--shutdown-grace (RAGATE_SHUTDOWN_GRACE) is %v: it must be longer than 0", c.ShutdownGrace))
	}
	if c.APIKey == "" && !loopback(c.Listen) {
		errs = append(errs, fmt.Errorf("--listen (RAGATE_LISTEN) %q reaches beyond this machine and no key is set: set RAGATE_API_KEY, or listen on 127.0.0.1", c.Listen))
	}
	return cfg, errors.Join(append(errs, cfg.Validate())...)
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
