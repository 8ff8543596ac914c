package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"

	"ragate/gates/evaluate"
	"ragate/gates/evaluate/report"
	"ragate/gates/policy"
	"ragate/gates/quality"
)

type calibrateCmd struct {
	Query  calibrateQueryCmd  `cmd:"" help:"Choose the query gate's threshold so that false bypass stays under a promise, on turns kept aside."`
	Chunks calibrateChunksCmd `cmd:"" help:"Choose the chunk gate's thresholds so that recall stays over a promise, on queries kept aside."`
}

// promiseFlags are what calibration promises with, and where the policy goes.
type promiseFlags struct {
	Confidence float64 `default:"0.95" placeholder:"P" help:"Confidence of the promise. ('${default}')"`
	HeldOut    float64 `name:"held-out" default:"0.5" placeholder:"SHARE" help:"Share of the data that the promise is checked on. ('${default}')"`
	Seed       uint64  `default:"1" placeholder:"N" help:"Of the split. ('${default}')"`
	Name       string  `default:"calibrated" placeholder:"NAME" help:"Name of the policy that is written. ('${default}')"`
	Out        string  `placeholder:"FILE" help:"Where the policy goes. Default: standard output."`
}

func (f promiseFlags) options() evaluate.CalibrateOptions {
	return evaluate.CalibrateOptions{Confidence: f.Confidence, HeldOut: f.HeldOut, Seed: f.Seed}
}

// finish writes report and policy, or the report alone when calibration was refused.
func (f promiseFlags) finish(rf reportFlags, r *report.Report, p policy.Policy, models string, refusal error, io streams) error {
	var refused *evaluate.RefusedError
	if refusal != nil && !errors.As(refusal, &refused) {
		return refusal
	}
	r.Refused = refused
	if err := rf.write(r, io.err); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	p.Name, p.CalibratedFor = f.Name, models
	if err := p.Validate(); err != nil {
		return err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(p); err != nil {
		return err
	}
	if f.Out == "" {
		_, err := io.out.Write(b.Bytes())
		return err
	}
	if err := os.WriteFile(f.Out, b.Bytes(), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.out, "policy %s written to %s; use it with --policies %s\n", p.Name, f.Out, f.Out)
	return err
}

type calibrateQueryCmd struct {
	storeFlags
	modelFlags
	gateFlags
	policyFlag
	queryDataFlags
	reportFlags
	promiseFlags
	MaxFalseBypass float64 `name:"max-false-bypass" default:"0.01" placeholder:"RATE" help:"Knowledge turns that may be bypassed, at most. ('${default}')"`
}

func (c calibrateQueryCmd) Run(ctx context.Context, io streams) error {
	turns, err := c.read()
	if err != nil {
		return err
	}
	d, k, err := openForGates(ctx, c.storeFlags, c.modelFlags, c.gateFlags, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	g, err := pickGate(k.gates.Query, c.Policy)
	if err != nil {
		return err
	}
	p, err := k.policyNamed(c.Policy)
	if err != nil {
		return err
	}
	got, ref, err := decideTurns(ctx, g, turns)
	if err != nil {
		return err
	}
	cal, refusal := evaluate.CalibrateQuery(got, c.MaxFalseBypass, c.options())
	r := &report.Report{Title: "Calibration of the query gate", Created: stamp(), Command: commandLine(os.Args[1:]), Calibration: cal, Facts: k.facts(c.Data, ref)}
	if cal != nil {
		p.Query.Semantic.Threshold = &cal.Threshold
	}
	return c.finish(c.reportFlags, r, p, k.models(), refusal, io)
}

type calibrateChunksCmd struct {
	storeFlags
	modelFlags
	gateFlags
	policyFlag
	chunkDataFlags
	reportFlags
	promiseFlags
	MinRecall float64 `name:"min-recall" default:"0.95" placeholder:"RATE" help:"Relevant chunks of a turn that must pass, at least, on average. ('${default}')"`
}

func (c calibrateChunksCmd) Run(ctx context.Context, io streams) error {
	set, err := c.read()
	if err != nil {
		return err
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
	p, err := k.policyNamed(c.Policy)
	if err != nil {
		return err
	}
	requests, err := c.retrieve(ctx, set, d)
	if err != nil {
		return err
	}
	turns, err := set.decide(ctx, requests, g)
	if err != nil {
		return err
	}
	cal, refusal := evaluate.CalibrateChunks(turns, c.MinRecall, c.options())
	r := &report.Report{Title: "Calibration of the chunk gate", Created: stamp(), Command: commandLine(os.Args[1:]), Calibration: cal, Facts: k.facts(c.Data, g.Policy())}
	if cal != nil {
		t := quality.Relevance(cal.Threshold)
		p.Chunks.Thresholds = quality.Thresholds{FAQ: t, Lookup: t, Broad: t, Comparison: t}
	}
	return c.finish(c.reportFlags, r, p, k.models(), refusal, io)
}
