package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"ragate/models"
	"ragate/models/graph"
)

type modelsCmd struct {
	List    modelsListCmd    `cmd:"" help:"List the catalogue and the models on this machine."`
	Pull    modelsPullCmd    `cmd:"" help:"Fetch a model and hold its commit and hashes from then on."`
	Verify  modelsVerifyCmd  `cmd:"" help:"Check every file of a model, or of all, against its recorded hash."`
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
	fmt.Fprintln(w, "MODEL\tKIND\tSOURCE\tHERE\tREVISION")
	for _, m := range list {
		here := "no"
		if m.Present {
			here = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.ID, m.Kind, m.Source, here, m.Revision)
	}
	return w.Flush()
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
	if bad > 0 {
		return fmt.Errorf("%d of %d are not as recorded: remove the changed files and fetch them again with `ragate models pull`, or `ragate setup`", bad, len(reports))
	}
	return nil
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
	line("max tokens", m.MaxTokens)
	if m.Kind != models.KindReranker {
		line("dimensions", m.Dimensions)
		line("pooling", m.Pooling)
		line("normalize", m.Normalize)
		line("prompts", fmt.Sprintf("%q", m.Prompts))
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
