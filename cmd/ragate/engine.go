package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
)

// device is the runtime with the models on it, ready to answer.
type device struct {
	runtime *ort.Runtime
	engine  *inference.Engine
	models  []*inference.Model // all that were loaded; those that serve requests without a name come first

	// nil where there is none, or none was wanted.
	embedder, reranker         *inference.Model // of requests that name none
	gateEmbedder, gateReranker *inference.Model
	own                        *inference.Model // the gate's by default, which no setting names

	expected int64    // bytes that the process is expected to take, see expectedBytes
	keep     *keeping // answers of the models; nil: none are kept
	spare    string   // folder of rewritten graphs that the data folder could not take; "" before the engine is made
}

// want says which models a command needs: those of requests that name none, the gates', or all.
type want struct{ embedder, reranker, gates, all bool }

// opening is what a device is opened with, beside the settings.
type opening struct {
	want     want
	store    *models.Store
	log      *slog.Logger
	observer inference.Observer // may be nil
	progress models.Progress
	step     func(string) // is told what is being done
}

// openDevice builds everything from the library up to warmed workers.
func openDevice(ctx context.Context, sf storeFlags, mf modelFlags, o opening) (d *device, err error) {
	line, problems := mf.lineup()
	if len(problems) > 0 { // of a command that checks nothing itself
		return nil, &usageError{problems[0]}
	}
	lib, err := sf.library(o.store)
	if err != nil {
		return nil, err
	}
	d = &device{}
	defer func() {
		if err != nil {
			d.close(context.Background())
			d = nil
		}
	}()
	order := line.needed(o.want)
	if len(order) == 0 {
		return d, usagef("the settings ask for no model that this command needs: see --models, --embedder and --reranker")
	}
	manifests, err := fetchModels(ctx, line, order, o)
	if err != nil {
		return d, err
	}
	if err := line.checkTokens(order, manifests); err != nil {
		return d, err
	}
	loads := line.loadings(order, manifests)
	expected, warning, err := fit(loads)
	if err != nil {
		return d, err
	}
	if d.expected = expected; warning != "" {
		o.log.Warn("memory", "warning", warning)
	}
	o.step("loading the ONNX Runtime library")
	if d.runtime, err = ort.Open(lib); err != nil {
		return d, err
	}
	d.spare = filepath.Join(os.TempDir(), "ragate-"+rand.Text())
	d.engine = inference.NewEngine(inference.EngineConfig{
		Runtime: d.runtime, Machine: inference.ThisMachine(), CacheDir: filepath.Join(o.store.Dir, "graphs"), SpareDir: d.spare,
		MaxQueuedTokens: mf.MaxQueuedTokens, MaxBatchTokens: mf.MaxBatchTokens, Slice: mf.Slice, EscapeSpecial: mf.EscapeSpecial,
		Memory: newMeasurements(filepath.Join(o.store.Dir, "measured.json"), o.log), Observer: o.observer, Resident: settledBytes,
	})
	if err := d.load(ctx, line, loads, o.step); err != nil {
		return d, err
	}
	if warning := d.longRows(loads); warning != "" {
		o.log.Warn("memory", "warning", warning)
	}
	o.step("running the common shapes once")
	return d, d.engine.Start(ctx)
}

// fetchModels makes the models' files ready, and returns their manifests by the place in the lineup. It names all that cannot be used.
func fetchModels(ctx context.Context, line lineup, order []int, o opening) (map[int]models.Manifest, error) {
	out := map[int]models.Manifest{}
	var errs []error
	for _, i := range order {
		c := line.models[i]
		o.step("looking for " + c.ref)
		m, err := o.store.Ensure(ctx, c.ref, o.progress)
		if err == nil {
			m, err = m.As(c.kind)
		}
		if err != nil {
			errs = append(errs, c.blame(err))
			continue
		}
		out[i] = m
	}
	return out, errors.Join(errs...)
}

// blame says what asked for a model that cannot be used.
func (c chosen) blame(err error) error {
	if c.where == "" {
		return err
	}
	return fmt.Errorf("%s: %w", c.where, err)
}

// load puts the models on the engine.
func (d *device) load(ctx context.Context, line lineup, loads []loading, step func(string)) error {
	by := map[int]*inference.Model{}
	for _, ld := range loads {
		c := line.models[ld.chosen[0]]
		step("loading " + c.String())
		load := d.engine.LoadEmbedder
		if c.kind == models.KindReranker {
			load = d.engine.LoadReranker
		}
		m, err := load(ctx, ld.manifest, ld.set)
		if err != nil {
			return c.blame(err)
		}
		d.models = append(d.models, m)
		if c.own { // no other is, and it is loaded for nothing else
			d.own = m
		}
		for _, i := range ld.chosen {
			by[i] = m
		}
	}
	d.embedder, d.reranker = by[line.embedder], by[line.reranker] // nothing stands at none
	d.gateEmbedder, d.gateReranker = by[line.gateEmbedder], by[line.gateReranker]
	return nil
}

// longRows warns where the longest rows that the models take may need more memory than there is. loads are in the order of models.
func (d *device) longRows(loads []loading) string {
	var all []attention
	for i, m := range d.models {
		info := m.Info()
		all = append(all, attention{info.ID, info.Provider, loads[i].manifest.Heads, info.MaxTokens, info.BatchTokens, info.Streams})
	}
	limit, from := memoryLimit(os.ReadFile)
	return judgeAttention(all, d.expected, limit, from)
}

// close frees engine and runtime, in that order. It waits for native calls in flight; ctx bounds how long admitted work may go on.
func (d *device) close(ctx context.Context) error {
	var errs []error
	if d.engine != nil {
		errs = append(errs, d.engine.Close(ctx))
	}
	if d.keep != nil {
		errs = append(errs, d.keep.cache.Close())
	}
	if d.runtime != nil {
		errs = append(errs, d.runtime.Close())
	}
	if d.spare != "" {
		errs = append(errs, os.RemoveAll(d.spare))
	}
	return errors.Join(errs...)
}
