package benchmarks

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
)

// Bench is what a benchmark compares: a running server, and raw sessions of its models, on one store.
type Bench struct {
	Server        *Server
	Embed, Rerank *Raw
	Texts         *Texts
	Report        *Report // filled in with what runs

	runtime *ort.Runtime
	tmp     string
}

// OpenBench starts program on the store in dataDir, with args beside --data-dir, and opens the sessions. Whoever opens it closes it.
func OpenBench(ctx context.Context, program, dataDir string, seed uint64, args ...string) (b *Bench, err error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	store := &models.Store{Dir: dir}
	lib, err := store.RuntimeLibrary()
	if err != nil {
		return nil, err
	}
	b = &Bench{Report: NewReport(seed)}
	defer func() {
		if err != nil {
			err = b.Close(err)
			b = nil
		}
	}()
	if b.tmp, err = os.MkdirTemp("", "ragate-bench-"); err != nil {
		return b, err
	}
	config := ServerConfig{Program: program, Args: append([]string{"--data-dir", dir}, args...), Log: filepath.Join(b.tmp, "server.log")}
	if b.Server, err = StartServer(ctx, config); err != nil {
		return b, err
	}
	if b.runtime, err = ort.Open(lib); err != nil {
		return b, err
	}
	open := func(kind inference.Kind, name string) (*Raw, error) {
		info, err := b.Server.Info.Model(kind)
		if err != nil {
			return nil, err
		}
		m, err := store.Resolve(ctx, name)
		if err != nil {
			return nil, err
		}
		if m, err = m.As(models.Kind(kind)); err != nil {
			return nil, err
		}
		return OpenRaw(b.runtime, filepath.Join(dir, "graphs"), m, info)
	}
	if b.Rerank, err = open(inference.KindReranker, models.DefaultReranker); err != nil {
		return b, err
	}
	if b.Embed, err = open(inference.KindEmbedder, models.DefaultEmbedder); err != nil {
		return b, err
	}
	b.Report.Version, b.Report.Runtime, b.Report.Models = b.Server.Info.Version, b.runtime.Version(), b.Server.Info.Models
	b.Texts, err = NewTexts(seed, b.Rerank.Encoder.Count)
	return b, err
}

// OpenTexts is for a benchmark that runs no session of its own: texts measured by the default reranker of the store, and that model's encoder.
func OpenTexts(ctx context.Context, store *models.Store, seed uint64) (*Texts, *Encoder, error) {
	m, err := store.Resolve(ctx, models.DefaultReranker)
	if err != nil {
		return nil, nil, err
	}
	e, err := NewEncoder(m)
	if err != nil {
		return nil, nil, err
	}
	t, err := NewTexts(seed, e.Count)
	return t, e, err
}

// Close closes all in the reverse order. failed is the error that the benchmark ended with, nil where it did not: then the server's log goes too.
// It returns failed joined with what went wrong in closing.
func (b *Bench) Close(failed error) error {
	errs := []error{failed}
	for _, raw := range []*Raw{b.Embed, b.Rerank} {
		if raw != nil {
			errs = append(errs, raw.Close())
		}
	}
	if b.runtime != nil {
		errs = append(errs, b.runtime.Close())
	}
	if b.Server != nil {
		errs = append(errs, b.Server.Close())
	}
	err := errors.Join(errs...)
	if err == nil && b.tmp != "" {
		err = os.RemoveAll(b.tmp)
	}
	return err
}
