package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

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

// check reports every flag that cannot be used, before anything is loaded. promise is the command's own, limit its value.
func (f promiseFlags) check(promise string, limit float64) error {
	var errs []error
	for _, n := range []struct {
		name  string
		value float64
	}{{promise, limit}, {"--confidence", f.Confidence}, {"--held-out", f.HeldOut}} {
		if !(n.value > 0 && n.value < 1) {
			errs = append(errs, fmt.Errorf("%s is %v: it must be between 0 and 1, neither of them", n.name, n.value))
		}
	}
	p := policy.Default()
	p.Name = f.Name
	if err := p.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--%w", err))
	}
	if len(errs) == 0 {
		return nil
	}
	return &usageError{errors.Join(errs...)}
}

func (f promiseFlags) options() evaluate.CalibrateOptions {
	return evaluate.CalibrateOptions{Confidence: f.Confidence, HeldOut: f.HeldOut, Seed: f.Seed}
}

// finish writes report and policy, or the report alone when calibration was refused.
func (f promiseFlags) finish(rf reportFlags, r *report.Report, p policy.Policy, refusal error, io streams) error {
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
	p.Name = f.Name
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
	gateSetup
	queryDataFlags
	reportFlags
	promiseFlags
	MaxFalseBypass float64 `name:"max-false-bypass" default:"0.01" placeholder:"RATE" help:"Knowledge turns that may be bypassed, at most. ('${default}')"`
}

func (c calibrateQueryCmd) Run(ctx context.Context, io streams) error {
	if err := c.check("--max-false-bypass", c.MaxFalseBypass); err != nil {
		return err
	}
	turns, err := readTurns(c.Data)
	if err != nil {
		return err
	}
	s, err := c.open(ctx, io)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	got, err := decideTurns(ctx, s.query, turns)
	if err != nil {
		return err
	}
	cal, refusal := evaluate.CalibrateQuery(got.turns, c.MaxFalseBypass, c.options())
	r := s.report("Calibration of the query gate", c.Data, got.policy)
	r.Calibration = cal
	return c.finish(c.reportFlags, r, calibratedQuery(s.policy, cal, got.method, s.keeper.running), refusal, io)
}

// calibratedQuery is p with the threshold, the method in whose scale it is, and what it rests on.
func calibratedQuery(p policy.Policy, cal *evaluate.Calibration, method string, running policy.Basis) policy.Policy {
	if cal == nil {
		return p
	}
	p.Query.Semantic.Method, p.Query.Semantic.Threshold = method, &cal.Threshold
	p.CalibratedFor.Embedder, p.CalibratedFor.References, p.CalibratedFor.Rules = running.Embedder, running.References, running.Rules
	return p
}

type calibrateChunksCmd struct {
	gateSetup
	chunkDataFlags
	reportFlags
	promiseFlags
	MinRecall float64 `name:"min-recall" default:"0.95" placeholder:"RATE" help:"Relevant chunks of a turn that must pass, at least, on average. ('${default}')"`
}

func (c calibrateChunksCmd) Run(ctx context.Context, io streams) error {
	if err := c.check("--min-recall", c.MinRecall); err != nil {
		return err
	}
	data, err := c.read()
	if err != nil {
		return err
	}
	s, err := c.open(ctx, io)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := s.needChunks(); err != nil {
		return err
	}
	requests, err := c.get(ctx, data, s.embedder)
	if err != nil {
		return err
	}
	turns, err := decideRequests(ctx, s.chunks, requests)
	if err != nil {
		return err
	}
	cal, refusal := evaluate.CalibrateChunks(turns, c.MinRecall, c.options())
	r := s.report("Calibration of the chunk gate", c.Data, s.chunks.Policy())
	r.Calibration = cal
	return c.finish(c.reportFlags, r, calibratedChunks(s.policy, cal, s.keeper.running), refusal, io)
}

// calibratedChunks is p with the threshold for every type of query, since it was chosen over all of them, and what it rests on. The mode that
// wants more stays below it.
func calibratedChunks(p policy.Policy, cal *evaluate.Calibration, running policy.Basis) policy.Policy {
	if cal == nil {
		return p
	}
	t := quality.Relevance(cal.Threshold)
	p.Chunks.Thresholds = quality.Thresholds{FAQ: t, Lookup: t, Broad: t, Comparison: t}
	p.Chunks.EverythingThreshold = min(p.Chunks.EverythingThreshold, t)
	p.CalibratedFor.Reranker = running.Reranker
	return p
}

// stamp is the time as reports show it.
func stamp() string { return time.Now().UTC().Format("2006-01-02 15:04 MST") }
