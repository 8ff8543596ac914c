package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"ragate/gates"
	"ragate/gates/policy"
	"ragate/gates/quality"
	"ragate/gates/semantic"
)

type gateCmd struct {
	Query  gateQueryCmd  `cmd:"" help:"Decide whether a turn needs retrieval."`
	Chunks gateChunksCmd `cmd:"" help:"Decide which chunks of a turn deserve the context: reads the body of POST /v1/gate/chunks from standard input."`
	Lint   gateLintCmd   `cmd:"" help:"Check the reference queries: duplicates, misplaced and dead ones, leave-one-out error."`
}

// openForGates opens models and gates for a command that a person waits for.
func openForGates(ctx context.Context, sf storeFlags, mf modelFlags, gf gateFlags, io streams) (*device, *gatekeeper, error) {
	store, err := sf.store(terminalOf(io.err))
	if err != nil {
		return nil, nil, err
	}
	log := commandLog(io)
	d, err := openDevice(ctx, sf, mf, want{embedder: true, reranker: true, gate: true}, log, nil, &progressLine{w: io.err}, store, func(string) {})
	if err != nil {
		return nil, nil, err
	}
	k, err := openGates(ctx, gf, filepath.Join(store.Dir, "references"), d, log)
	if err != nil {
		d.close(ctx)
		return nil, nil, err
	}
	return d, k, nil
}

// commandLog is where a command that a person waits for says what is odd.
func commandLog(io streams) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// policyFlag chooses the policy of a command.
type policyFlag struct {
	Policy string `default:"${policy}" placeholder:"NAME" help:"Name of the policy. ('${default}')"`
}

func pickGate[G any](of map[string]G, name string) (G, error) {
	g, ok := of[name]
	if !ok {
		return g, usagef("--policy is %q: no loaded policy has that name", name)
	}
	return g, nil
}

type gateQueryCmd struct {
	storeFlags
	modelFlags
	gateFlags
	policyFlag
	JSON bool   `help:"Print the decision as JSON."`
	Text string `arg:"" help:"The turn."`
}

func (c gateQueryCmd) Run(ctx context.Context, io streams) error {
	d, k, err := openForGates(ctx, c.storeFlags, c.modelFlags, c.gateFlags, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	g, err := pickGate(k.gates.Query, c.Policy)
	if err != nil {
		return err
	}
	got := g.Decide(ctx, gates.QueryRequest{Text: c.Text})
	if got.Err != nil {
		return got.Err
	}
	if c.JSON {
		return printJSON(io.out, struct {
			NeedsRetrieval    bool              `json:"needs_retrieval"`
			RetrievalBypassed bool              `json:"retrieval_bypassed"`
			Stage             gates.Stage       `json:"stage"`
			Reason            string            `json:"reason"`
			Semantic          *semantic.Verdict `json:"semantic,omitempty"`
			Policy            gates.PolicyRef   `json:"policy"`
		}{got.NeedsRetrieval, !got.NeedsRetrieval, got.Stage, got.Reason, got.Semantic, got.Policy})
	}
	verdict := "retrieve"
	if !got.NeedsRetrieval {
		verdict = "skip retrieval"
	}
	_, err = fmt.Fprintf(io.out, "%s\t%s\t%s\n", verdict, got.Stage, got.Reason)
	return err
}

type gateChunksCmd struct {
	storeFlags
	modelFlags
	gateFlags
	policyFlag
}

// turnFile is the input of gate chunks: the fields of the HTTP body that make sense without a clock.
type turnFile struct {
	Query            string             `json:"query"`
	Chunks           []turnChunk        `json:"chunks"`
	Threshold        *quality.Relevance `json:"threshold"`
	MinChunks        *int               `json:"min_chunks"`
	MaxChunks        *int               `json:"max_chunks"`
	Mode             *quality.Mode      `json:"mode"`
	Fallback         *quality.Fallback  `json:"fallback"`
	LongChunk        *quality.LongChunk `json:"long_chunk"`
	MaxContextTokens *int               `json:"max_context_tokens"`
}

type turnChunk struct {
	ID         json.RawMessage `json:"id"`
	Text       *string         `json:"text"`
	Similarity *float64        `json:"similarity"`
	Metadata   json.RawMessage `json:"metadata"`
}

func (c gateChunksCmd) Run(ctx context.Context, io streams) error {
	var t turnFile
	dec := json.NewDecoder(io.in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return usagef("standard input: %v; it takes the body of POST /v1/gate/chunks without budget_ms", err)
	}
	r := gates.ChunkRequest{Query: t.Query, Overrides: quality.Overrides{Threshold: t.Threshold, MinChunks: t.MinChunks, MaxChunks: t.MaxChunks,
		Mode: t.Mode, Fallback: t.Fallback, LongChunk: t.LongChunk, MaxContextTokens: t.MaxContextTokens}}
	for i, ch := range t.Chunks {
		if ch.Text == nil {
			return usagef("standard input: chunks[%d].text is required", i)
		}
		q := quality.Chunk{Text: *ch.Text, Similarity: ch.Similarity}
		if len(ch.Metadata) > 0 {
			q.Metadata = quality.JSON(ch.Metadata)
		}
		r.Chunks = append(r.Chunks, q)
	}
	d, k, err := openForGates(ctx, c.storeFlags, c.modelFlags, c.gateFlags, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	g, err := pickGate(k.gates.Chunks, c.Policy)
	if err != nil {
		return err
	}
	got, err := g.Decide(ctx, r)
	if err != nil {
		return &usageError{err}
	}
	if got.Err != nil {
		return got.Err
	}
	for _, list := range [][]quality.Result{got.Chunks, got.Dropped} {
		for _, one := range list {
			id := string(t.Chunks[one.Index].ID)
			if id == "" {
				id = fmt.Sprint(one.Index)
			}
			fmt.Fprintf(io.out, "%s\t%s\t%.4f\t%s\n", one.Outcome, id, float64(one.Relevance), got.Reason(one))
		}
	}
	if got.InsufficientContext {
		fmt.Fprintf(io.out, "insufficient context\t%s\n", got.InsufficientReason)
	}
	return nil
}

type gateLintCmd struct {
	storeFlags
	modelFlags
	References string `env:"RAGATE_REFERENCES" placeholder:"FILE" help:"Reference queries (YAML). Default: the built-in ones."`
	All        bool   `help:"List every finding instead of the first ones of each problem."`
}

// lintShown is how many findings of a problem are listed without --all.
const lintShown = 10

func (c gateLintCmd) Run(ctx context.Context, io streams) error {
	d, k, err := openForGates(ctx, c.storeFlags, c.modelFlags, gateFlags{References: c.References}, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	set, err := k.set()
	if err != nil {
		return err
	}
	refs, err := k.embedded(ctx, set, identity(d.gateEmbedder.Info()))
	if err != nil {
		return err
	}
	m, err := set.Method("")
	if err != nil {
		return err
	}
	rep := semantic.Lint(refs.Index, m, semantic.LintOptions{})
	counts := map[semantic.Problem]int{}
	for _, f := range rep.Findings {
		if counts[f.Problem]++; c.All || counts[f.Problem] <= lintShown {
			fmt.Fprintln(io.out, f)
		}
	}
	for p, n := range counts {
		if !c.All && n > lintShown {
			fmt.Fprintf(io.out, "%s: %d more (--all lists them)\n", p, n-lintShown)
		}
	}
	fmt.Fprintf(io.out, "%d references in %d categories; leave-one-out: %d tested, %d of the non-retrieval ones would retrieve, %d knowledge ones would be bypassed\n",
		len(set.References), len(set.Categories), rep.Tested, rep.Missed, rep.Bypassed)
	// The other findings are for a person to weigh; these two are never meant.
	if n := counts[semantic.Duplicate] + counts[semantic.Conflict]; n > 0 {
		return fmt.Errorf("%d references are there twice, or on both sides: remove one of each", n)
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// stamp is the time as reports show it.
func stamp() string { return time.Now().UTC().Format("2006-01-02 15:04 MST") }

// policyNamed finds a policy among the files, or the built-in one.
func (k *gatekeeper) policyNamed(name string) (policy.Policy, error) {
	p, ok := k.policies[name]
	if !ok {
		return p, usagef("--policy is %q: no loaded policy has that name", name)
	}
	return p, nil
}

// models is the fingerprint of the models that run, as policies state it.
func (k *gatekeeper) models() string {
	return fingerprintOf(identity(k.embedder.Info()) + "||" + identity(k.reranker.Info()))
}

// commandLine is how the program was called, for reports.
func commandLine(args []string) string { return "ragate " + strings.Join(args, " ") }
