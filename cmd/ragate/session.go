package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"ragate/gates"
	"ragate/gates/policy"
	"ragate/server"
)

// gateSetup is what every command on the gates takes: where models are, how they run, how the gates decide and by which policy.
type gateSetup struct {
	storeFlags
	modelFlags
	gateFlags
	Policy string `default:"${policy}" placeholder:"NAME" help:"Name of the policy. ('${default}')"`
}

// session is models and gates, open for one command.
type session struct {
	*device
	keeper *gatekeeper
	policy policy.Policy // the chosen one, with its gates
	query  *gates.QueryGate
	chunks *gates.ChunkGate
}

// open opens models and gates for a command that a person waits for. An unknown policy is found before the models are loaded.
func (c gateSetup) open(ctx context.Context, io streams) (*session, error) {
	policies, err := c.policies()
	if err != nil {
		return nil, &usageError{err}
	}
	p, ok := policies[c.Policy]
	if !ok {
		return nil, usagef("--policy is %q: no loaded policy has that name", c.Policy)
	}
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return nil, err
	}
	o := commandOpening(io, store, want{embedder: true, gates: true})
	d, err := openDevice(ctx, c.storeFlags, c.modelFlags, o)
	if err != nil {
		return nil, err
	}
	k, err := openGates(ctx, c.gateFlags, referenceCache(store).dir, d, nil, o.log)
	if err != nil {
		return nil, errors.Join(err, d.close(expired()))
	}
	return &session{device: d, keeper: k, policy: p, query: k.gates.Query[c.Policy], chunks: k.gates.Chunks[c.Policy]}, nil
}

// needChunks refuses a command on the chunk gate where there is none.
func (s *session) needChunks() error {
	if s.chunks == nil {
		return usagef("there is no chunk gate: the settings give it no reranker (--gate-reranker, --reranker, --models)")
	}
	return nil
}

// commandLog is where a command that a person waits for says what is odd.
func commandLog(io streams) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// patience is the budget of a gate on the command line, where a person waits for all of the answer. A body's own budget_ms wins.
const patience = time.Hour

// ask sends a body to a route of a server in this process, so that a command reads and writes just what the HTTP API does. A refusal is an
// error: of usage when the body is at fault.
func (s *session) ask(ctx context.Context, path string, body []byte) ([]byte, error) {
	cfg := server.DefaultConfig()
	cfg.Version, cfg.Budget = version, patience
	srv, err := server.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	srv.SetReady(s.served(s.keeper.gates))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	w := &answer{header: http.Header{}}
	srv.Handler().ServeHTTP(w, r)
	if w.status == http.StatusOK {
		return w.body.Bytes(), nil
	}
	return nil, refusalOf(w.status, w.body.Bytes())
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// refusalOf is the error that a refusal on the gates' routes stands for.
func refusalOf(status int, body []byte) error {
	var e struct {
		Error struct{ Message string }
	}
	if err := decodeJSON(body, &e); err != nil {
		return fmt.Errorf("status %d: %w", status, err)
	}
	if status >= 400 && status < 500 {
		return usagef("%s", e.Error.Message)
	}
	return errors.New(e.Error.Message)
}
