package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"ragate/server"
	"ragate/tracing"
)

// observeFlags choose what can be seen from outside beside metrics and the log.
type observeFlags struct {
	OTLPEndpoint string `name:"otlp-endpoint" env:"RAGATE_OTLP_ENDPOINT" placeholder:"URL" help:"Collector that traces are sent to by OTLP over HTTP, such as http://127.0.0.1:4318. Default: that of OTEL_EXPORTER_OTLP_ENDPOINT; without either none are made."`
	PprofListen  string `env:"RAGATE_PPROF_LISTEN" placeholder:"ADDR" help:"Loopback address that serves Go's profiles, such as 127.0.0.1:6060. Default: none."`
}

// flushTime is how long what is left of the traces may take to reach the collector at the end, within the grace period: a collector that is
// gone must not hold up a restart.
const flushTime = 5 * time.Second

// check reports every setting that cannot be used.
func (f observeFlags) check() []error {
	var errs []error
	if f.OTLPEndpoint != "" {
		if err := tracing.CheckEndpoint(f.OTLPEndpoint); err != nil {
			errs = append(errs, fmt.Errorf("--otlp-endpoint (RAGATE_OTLP_ENDPOINT) %w", err))
		}
	}
	if f.PprofListen == "" {
		return errs
	}
	const pprof = "--pprof-listen (RAGATE_PPROF_LISTEN)"
	if _, _, err := net.SplitHostPort(f.PprofListen); err != nil {
		errs = append(errs, fmt.Errorf("%s %q: %v; give HOST:PORT of this machine, such as 127.0.0.1:6060", pprof, f.PprofListen, err))
	} else if !loopback(f.PprofListen) {
		errs = append(errs, fmt.Errorf("%s %q reaches beyond this machine, and profiles are for nobody else: listen on 127.0.0.1, and come in by ssh or kubectl port-forward", pprof, f.PprofListen))
	}
	return errs
}

// wantTraces says whether traces are asked for, by the flag or by OpenTelemetry's own variables.
func (f observeFlags) wantTraces(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if f.OTLPEndpoint != "" {
		return true
	}
	return getenv("OTEL_TRACES_EXPORTER") != "none" && (getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

// observing is what observeFlags started.
type observing struct {
	tracer   *tracing.Tracer // nil: off
	profiles *http.Server    // nil: off
}

// observe starts what was asked for and puts it into the server's configuration.
func (f observeFlags) observe(ctx context.Context, cfg *server.Config, log *slog.Logger) (*observing, error) {
	o := &observing{}
	if f.wantTraces(os.Getenv) {
		var err error
		if o.tracer, err = tracing.Open(ctx, tracing.Config{Endpoint: f.OTLPEndpoint, Service: "ragate", Version: version, Log: log}); err != nil {
			return nil, usagef("traces: %v", err)
		}
		for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
			if p := os.Getenv(name); p != "" && p != "http/protobuf" {
				log.Warn("traces are sent as http/protobuf, the only protocol here: give the collector's port for it, which is 4318 by default", "variable", name, "value", p)
				break
			}
		}
		cfg.Tracing = server.Tracing{Provider: o.tracer.Provider(), Spans: func() (exported, failed, dropped uint64) {
			c := o.tracer.Counts()
			return c.Exported, c.Failed, c.Dropped
		}}
	}
	if f.PprofListen != "" {
		if err := o.serveProfiles(f.PprofListen, log); err != nil {
			o.close(expired())
			return nil, err
		}
	}
	return o, nil
}

// serveProfiles answers with Go's profiles on a listener of their own, which only this machine reaches.
func (o *observing) serveProfiles(address string, log *slog.Logger) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return usagef("--pprof-listen (RAGATE_PPROF_LISTEN) %q: %v; give HOST:PORT of this machine, such as 127.0.0.1:6060", address, err)
	}
	if a, ok := ln.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() { // a name may mean anything
		ln.Close()
		return usagef("--pprof-listen (RAGATE_PPROF_LISTEN) %q is %s, which reaches beyond this machine: listen on 127.0.0.1", address, ln.Addr())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	o.profiles = &http.Server{Handler: onlyLocalNames(mux), ReadHeaderTimeout: server.DefaultHeaderTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go o.profiles.Serve(ln) //nolint:errcheck // it ends when closed, and nothing depends on it
	log.Info("profiles are served", "url", "http://"+ln.Addr().String()+"/debug/pprof/")
	return nil
}

// onlyLocalNames refuses requests that were meant for another host: a web page may have its own name lead to this machine, and would then read
// what the browser is answered.
func onlyLocalNames(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "ask for localhost or 127.0.0.1: this listener serves nobody else", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// close sends what is left of the traces, while ctx lasts, and ends the profiles.
func (o *observing) close(ctx context.Context) error {
	if o == nil {
		return nil
	}
	if o.profiles != nil {
		o.profiles.Close()
	}
	if o.tracer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	return o.tracer.Close(ctx)
}
