package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"ragate/models"
	"ragate/models/graph"
	"ragate/tokenize"
	"ragate/tokenize/golden"
)

type modelsCmd struct {
	List    modelsListCmd    `cmd:"" help:"List the catalogue and the models on this machine."`
	Pull    modelsPullCmd    `cmd:"" help:"Fetch a model and hold its commit and hashes from then on."`
	Verify  modelsVerifyCmd  `cmd:"" help:"Check every file of a model, or of all, against its recorded hash, and its tokenizer against the golden file beside it."`
	Inspect modelsInspectCmd `cmd:"" help:"Show what a model's files say: kind, limits, pooling, inputs, outputs, operators."`
}

type modelsListCmd struct {
	storeFlags
}

func (c modelsListCmd) Run(io streams) error {
	store, err := c.store(nil)
	if err != nil {
		return err
	}
	list, err := store.List()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MODEL\tKIND\tLANGUAGES\tSOURCE\tHERE\tLICENCE\tREVISION")
	for _, m := range list {
		here := "no"
		if m.Present {
			here = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.Kind, shortLanguages(m.Languages), m.Source, here, m.License, m.Revision)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range list {
		for _, remark := range m.Remarks {
			fmt.Fprintf(io.out, "%s: %s.\n", m.ID, remark)
		}
	}
	return nil
}

// shortLanguages fits a model's languages into a column.
func shortLanguages(tags []string) string {
	const most = 4
	switch {
	case len(tags) == 0:
		return "-"
	case slices.Contains(tags, models.Multilingual):
		return models.Multilingual
	case len(tags) > most:
		return fmt.Sprintf("%s,… (%d)", strings.Join(tags[:most], ","), len(tags))
	}
	return strings.Join(tags, ",")
}

type modelsPullCmd struct {
	storeFlags
	Update bool     `help:"Ask the hub anew what the revision is, and hold to the answer."`
	Models []string `arg:"" help:"Catalogue names or org/name[@revision][:file.onnx]."`
}

func (c modelsPullCmd) Run(ctx context.Context, io streams) error {
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	pull := store.Pull
	if c.Update {
		pull = store.Update
	}
	for _, ref := range c.Models {
		m, err := pull(ctx, ref, &progressLine{w: io.err})
		if err != nil {
			return err
		}
		fmt.Fprintf(io.out, "%s\t%s\t%s\n", m.ID, m.Revision, m.Dir)
	}
	return nil
}

type modelsVerifyCmd struct {
	storeFlags
	Models []string `arg:"" optional:"" help:"Which models. Default: the runtime and every model on this machine."`
}

func (c modelsVerifyCmd) Run(io streams) error {
	store, err := c.store(nil)
	if err != nil {
		return err
	}
	var reports []models.Report
	refs := c.Models
	if len(refs) == 0 {
		r, err := store.VerifyRuntime()
		if err != nil {
			return err
		}
		reports = append(reports, r)
		list, err := store.List()
		if err != nil {
			return err
		}
		for _, m := range list {
			if m.Present {
				refs = append(refs, m.ID)
			}
		}
	}
	for _, ref := range refs {
		r, err := store.Verify(ref)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	bad := 0
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	for _, r := range reports {
		for _, f := range r.Files {
			fmt.Fprintf(w, "%s\t%s\t%s", f.State, r.Model, f.Path)
			if f.State == models.FileChanged {
				fmt.Fprintf(w, "\twant %s, got %s", f.Want, f.Got)
			}
			fmt.Fprintln(w)
		}
		if !r.OK() {
			bad++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var wrong []string
	for _, r := range reports {
		ok, err := verifyTokenizer(io.out, r)
		if err != nil {
			return err
		}
		if !ok {
			wrong = append(wrong, r.Model)
		}
	}
	var errs []error
	if bad > 0 {
		errs = append(errs, fmt.Errorf("%d of %d are not as recorded: remove the changed files and fetch them again with `ragate models pull`, or `ragate setup`", bad, len(reports)))
	}
	if len(wrong) > 0 {
		errs = append(errs, fmt.Errorf("the tokenizer of %s gives other ids than the reference, or could not be used or compared: vectors and scores may be wrong, do not serve it before that is put right", strings.Join(wrong, ", ")))
	}
	if len(errs) == 2 {
		return fmt.Errorf("%w; %w", errs[0], errs[1])
	}
	return errors.Join(errs...)
}

// verifyTokenizer compares a model's tokenizer with the golden file beside it, and says what came of it. It is not ok when a case differs
// and when the tokenizer, or the golden file, cannot be used. A report without a tokenizer (the runtime's) says nothing.
func verifyTokenizer(w io.Writer, r models.Report) (ok bool, err error) {
	line := func(state, format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s  %s  %s\n", state, r.Model, fmt.Sprintf(format, args...))
		}
	}
	if r.Err != nil {
		line("unusable", "%v", r.Err)
		return false, err
	}
	if r.Tokenizer == "" {
		return true, nil
	}
	tk, fault := readTokenizer(r.Tokenizer)
	if fault != nil {
		line("refused", "%v", fault)
		return false, err
	}
	if r.Golden == "" {
		line("ok", "tokenizer: supported; no %s lies beside it to compare its ids with", models.GoldenFile)
		return true, err
	}
	f, fault := os.Open(r.Golden)
	if fault != nil {
		return false, fault
	}
	defer f.Close()
	rep, fault := golden.Compare(tk, f)
	switch {
	case fault != nil:
		line("unusable", "%s: %v", r.Golden, fault)
	case rep.Differ > 0:
		line("differs", "tokenizer: %d of %d cases of %s come out otherwise", rep.Differ, rep.Cases, r.Golden)
		for _, d := range rep.Reports {
			line("differs", "  %v", d)
		}
	default:
		line("ok", "tokenizer: the ids of all %d cases of %s (%d pairs, %d with a limit)", rep.Cases, models.GoldenFile, rep.Pairs, rep.Cut)
	}
	return fault == nil && rep.Differ == 0, err
}

// readTokenizer reads a tokenizer file as the server does.
func readTokenizer(path string) (*tokenize.Tokenizer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return tokenize.ParseFile(path, b)
}

type modelsInspectCmd struct {
	storeFlags
	Model string `arg:"" help:"A catalogue name, org/name[@revision], or a folder."`
}

func (c modelsInspectCmd) Run(ctx context.Context, io streams) error {
	store, err := c.store(terminalOf(io.err))
	if err != nil {
		return err
	}
	m, err := store.Resolve(ctx, c.Model)
	if err != nil {
		return err
	}
	facts, err := graph.InspectFile(m.GraphPath)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	line := func(key string, value any) { fmt.Fprintf(w, "%s\t%v\n", key, value) }
	line("id", m.ID)
	line("aliases", m.Aliases)
	line("kind", m.Kind)
	line("revision", m.Revision)
	line("graph", m.GraphPath)
	line("sha256", m.GraphSHA256)
	line("tokenizer", m.TokenizerPath)
	if _, err := readTokenizer(m.TokenizerPath); err != nil {
		line("refused", err)
	}
	languages := strings.Join(m.Languages, ", ")
	if languages == "" {
		languages = "not stated"
	}
	line("languages", languages)
	line("max tokens", m.MaxTokens)
	if m.Kind != models.KindReranker {
		line("dimensions", m.Dimensions)
		line("pooling", m.Pooling)
		line("normalize", m.Normalize)
		line("prompts", fmt.Sprintf("%q", m.Prompts))
	}
	if m.License != "" {
		line("licence", m.License)
	}
	for _, n := range m.Remarks {
		line("remark", n)
	}
	for _, n := range m.Notes {
		line("note", n)
	}
	line("producer", facts.Producer)
	line("opsets", facts.Opsets)
	line("weights", fmt.Sprintf("%v, %d parameters", facts.WeightType, facts.Parameters))
	line("dynamic int8", facts.DynamicallyQuantized)
	for _, in := range facts.Inputs {
		line("input", in)
	}
	for _, out := range facts.Outputs {
		line("output", out.Value)
	}
	line("nodes", facts.Nodes)
	return w.Flush()
}
