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
	runtime  *ort.Runtime
	engine   *inference.Engine
	embedder *inference.Model // nil when not wanted
	reranker *inference.Model

	spare string // folder of rewritten graphs that the data folder could not take; "" before the engine is made

	gateEmbedder *inference.Model // the query gate's: the embedder, unless the settings name another
}

// want says which models a command needs.
type want struct{ embedder, reranker, gate bool }

// openDevice builds everything from the library up to warmed workers. step is told what is being done; progress shows downloads.
func openDevice(ctx context.Context, sf storeFlags, mf modelFlags, w want, log *slog.Logger, observer inference.Observer, p models.Progress, store *models.Store, step func(string)) (d *device, err error) {
	lib, err := sf.library(store)
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
	step("loading the ONNX Runtime library")
	if d.runtime, err = ort.Open(lib); err != nil {
		return d, err
	}
	d.spare = filepath.Join(os.TempDir(), "ragate-"+rand.Text())
	d.engine = inference.NewEngine(inference.EngineConfig{
		Runtime: d.runtime, Machine: inference.ThisMachine(), CacheDir: filepath.Join(store.Dir, "graphs"), SpareDir: d.spare,
		MaxQueuedTokens: mf.MaxQueuedTokens, MaxBatchTokens: mf.MaxBatchTokens, Slice: mf.Slice, EscapeSpecial: mf.EscapeSpecial,
		Memory: newMeasurements(filepath.Join(store.Dir, "measured.json"), log), Observer: observer,
	})
	type loader func(context.Context, models.Manifest, inference.Settings) (*inference.Model, error)
	load := func(ref string, f loader) (*inference.Model, error) {
		step("loading " + ref)
		m, err := store.Ensure(ctx, ref, p)
		if err != nil {
			return nil, err
		}
		return f(ctx, m, mf.settings())
	}
	if w.embedder {
		if d.embedder, err = load(mf.Embedder, d.engine.LoadEmbedder); err != nil {
			return d, err
		}
	}
	if w.reranker {
		if d.reranker, err = load(mf.Reranker, d.engine.LoadReranker); err != nil {
			return d, err
		}
	}
	if w.gate {
		if d.gateEmbedder = d.embedder; mf.GateEmbedder != "" && mf.GateEmbedder != mf.Embedder {
			if d.gateEmbedder, err = load(mf.GateEmbedder, d.engine.LoadEmbedder); err != nil {
				return d, fmt.Errorf("--gate-embedder (RAGATE_GATE_EMBEDDER): %w", err)
			}
		}
	}
	step("running the common shapes once")
	return d, d.engine.Start(ctx)
}

// close frees engine and runtime, in that order. It waits for native calls in flight; ctx bounds how long admitted work may go on.
func (d *device) close(ctx context.Context) error {
	var errs []error
	if d.engine != nil {
		errs = append(errs, d.engine.Close(ctx))
	}
	if d.runtime != nil {
		errs = append(errs, d.runtime.Close())
	}
	if d.spare != "" {
		errs = append(errs, os.RemoveAll(d.spare))
	}
	return errors.Join(errs...)
}
