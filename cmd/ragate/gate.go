package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"ragate/gates/semantic"
	"ragate/server"
)

type gateCmd struct {
	Query  gateQueryCmd  `cmd:"" help:"Decide whether a turn needs retrieval."`
	Chunks gateChunksCmd `cmd:"" help:"Decide which chunks of a turn deserve the context: reads the body of POST /v1/gate/chunks from standard input."`
	Lint   gateLintCmd   `cmd:"" help:"Check the reference queries: duplicates, misplaced and dead ones, leave-one-out error."`
}

type gateQueryCmd struct {
	gateSetup
	JSON bool   `help:"Print the answer as POST /v1/gate/query gives it."`
	Text string `arg:"" help:"The turn."`
}

func (c gateQueryCmd) Run(ctx context.Context, io streams) error {
	s, err := c.open(ctx, io)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	body, err := json.Marshal(map[string]string{"query": c.Text, "policy": c.Policy})
	if err != nil {
		return err
	}
	got, err := s.ask(ctx, "/v1/gate/query", body)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := fmt.Fprintf(io.out, "%s\n", got)
		return err
	}
	return printQuery(io.out, got)
}

// printQuery writes an answer of the query gate as one line: verdict, stage, reason.
func printQuery(w io.Writer, answer []byte) error {
	var a struct {
		Needs  bool `json:"needs_retrieval"`
		Stage  string
		Reason string
	}
	if err := decodeJSON(answer, &a); err != nil {
		return err
	}
	verdict := "retrieve"
	if !a.Needs {
		verdict = "skip retrieval"
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\n", verdict, a.Stage, a.Reason)
	return err
}

type gateChunksCmd struct {
	gateSetup
	JSON bool `help:"Print the answer as POST /v1/gate/chunks gives it."`
}

func (c gateChunksCmd) Run(ctx context.Context, io streams) error {
	body, err := readTurn(io.in)
	if err != nil {
		return err
	}
	body = withDefault(body, "policy", c.Policy)
	if !c.JSON {
		body = withDefault(body, "explain", true)
	}
	s, err := c.open(ctx, io)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	got, err := s.ask(ctx, "/v1/gate/chunks", body)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := fmt.Fprintf(io.out, "%s\n", got)
		return err
	}
	return printChunks(io.out, got)
}

// readTurn reads a body from standard input, at most as large as the server takes.
func readTurn(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, server.DefaultMaxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), nil
}

// withDefault adds a field to a body that has none of the name. A body that is no object stays as it is: the server says what is wrong.
func withDefault(body []byte, name string, value any) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return body
	}
	if raw, ok := fields[name]; ok && string(raw) != "null" {
		return body
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return body
	}
	fields[name] = raw
	out, err := json.Marshal(fields)
	if err != nil {
		return body
	}
	return out
}

// printChunks writes an answer of the chunk gate as lines: decision, id (or else index), relevance (- without one), reason; then what there
// is to say of the whole.
func printChunks(w io.Writer, answer []byte) error {
	type chunk struct {
		ID        json.RawMessage
		Index     int
		Relevance *float64
		Decision  string
		Reason    string
	}
	var a struct {
		Chunks, Dropped []chunk
		Insufficient    bool   `json:"insufficient_context"`
		Why             string `json:"insufficient_reason"`
		Expanded        string `json:"expanded_query"`
		Context         string
		Metadata        struct {
			LanguageNote string `json:"language_note"`
		}
	}
	if err := decodeJSON(answer, &a); err != nil {
		return err
	}
	var b bytes.Buffer
	for _, c := range append(a.Chunks, a.Dropped...) {
		id, relevance := string(c.ID), "-"
		if id == "" {
			id = fmt.Sprint(c.Index)
		}
		if c.Relevance != nil {
			relevance = fmt.Sprintf("%.4f", *c.Relevance)
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", c.Decision, id, relevance, c.Reason)
	}
	if a.Insufficient {
		fmt.Fprintf(&b, "insufficient context\t%s\n", a.Why)
	}
	if note := a.Metadata.LanguageNote; note != "" {
		fmt.Fprintf(&b, "language\t%s\n", note)
	}
	if a.Expanded != "" {
		fmt.Fprintf(&b, "retrieve again with\t%s\n", a.Expanded)
	}
	if a.Context != "" {
		fmt.Fprintf(&b, "\n%s\n", a.Context)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// decodeJSON reads what this program wrote.
func decodeJSON(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
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
	set, err := gateFlags{References: c.References}.references()
	if err != nil {
		return &usageError{err}
	}
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	d, err := openForCommand(ctx, c.storeFlags, c.modelFlags, want{gates: true}, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	if d.gateEmbedder == nil {
		return usagef("the query gate has no embedder to check the references with: see --gate-embedder")
	}
	refs, err := embedReferences(ctx, set, d.gateEmbedder, referenceCache(store), commandLog(io))
	if err != nil {
		return err
	}
	m, err := refs.Index.Set().Method("")
	if err != nil {
		return err
	}
	return printLint(io.out, set, semantic.Lint(refs.Index, m, semantic.LintOptions{}), c.All)
}

// printLint lists the findings, and fails when references are there twice: the other findings are for a person to weigh, these are never meant.
func printLint(w io.Writer, set *semantic.Set, rep semantic.LintReport, all bool) error {
	counts := map[semantic.Problem]int{}
	for _, f := range rep.Findings {
		if counts[f.Problem]++; all || counts[f.Problem] <= lintShown {
			fmt.Fprintln(w, f)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[p]; !all && n > lintShown {
			fmt.Fprintf(w, "%s: %d more (--all lists them)\n", p, n-lintShown)
		}
	}
	for i, e := range rep.Errors {
		if !all && i == lintShown {
			break
		}
		fmt.Fprintf(w, "leave-one-out: %d of %d of %s decided wrongly\n", e.Wrong, e.Tested, e.Category)
	}
	fmt.Fprintf(w, "%d references in %d categories; leave-one-out: %d tested, %d of the non-retrieval ones would retrieve, %d knowledge ones would be bypassed\n",
		len(set.References), len(set.Categories), rep.Tested, rep.Missed, rep.Bypassed)
	if n := counts[semantic.Duplicate] + counts[semantic.Conflict]; n > 0 {
		return fmt.Errorf("%d references are there twice, or on both sides: remove one of each", n)
	}
	return nil
}
