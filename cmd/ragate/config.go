package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
	"ragate/models/hub"
)

// storeFlags say where files are and how they are fetched.
type storeFlags struct {
	DataDir    string `name:"data-dir" env:"RAGATE_DATA_DIR" placeholder:"DIR" help:"Folder of the runtime, the models and caches. Default: .ragate in the clone, else the user's data folder."`
	ModelsDir  string `name:"models-dir" env:"RAGATE_MODELS_DIR" placeholder:"DIR" help:"Folder of the models. Default: models in the data folder."`
	OrtLibrary string `name:"ort-library" env:"RAGATE_ORT_LIBRARY" placeholder:"FILE" help:"ONNX Runtime library. Default: the one that setup fetched."`
}

// modelFlags choose models and how they run.
type modelFlags struct {
	Embedder        string        `env:"RAGATE_EMBEDDER" default:"${embedder}" placeholder:"MODEL" help:"Bi-encoder: a catalogue name, org/name[@revision] on the hub, or a folder. ('${default}')"`
	Reranker        string        `env:"RAGATE_RERANKER" default:"${reranker}" placeholder:"MODEL" help:"Cross-encoder, likewise. ('${default}')"`
	Provider        string        `env:"RAGATE_PROVIDER" default:"auto" enum:"auto,cpu,openvino,cuda,tensorrt" help:"Execution provider: ${enum}. One asked for by name that cannot run stops the start. ('${default}')"`
	Precision       string        `env:"RAGATE_PRECISION" default:"auto" enum:"auto,fp32,bf16,int8,int8-batched" help:"Arithmetic: ${enum}. ('${default}')"`
	MaxTokens       int           `env:"RAGATE_MAX_TOKENS" placeholder:"N" help:"Tokens per sequence or pair. Default, and the most: the model's."`
	MaxQueuedTokens int           `env:"RAGATE_MAX_QUEUED_TOKENS" default:"262144" placeholder:"N" help:"Tokens that may wait; a request beyond is refused whole. ('${default}')"`
	MaxBatchTokens  int           `env:"RAGATE_MAX_BATCH_TOKENS" placeholder:"N" help:"Padded tokens of one batch. Default: from the measured rate, so that a batch takes a slice."`
	Slice           time.Duration `env:"RAGATE_SLICE" default:"20ms" placeholder:"TIME" help:"How long one batch may take on one stream. ('${default}')"`
	Streams         int           `env:"RAGATE_STREAMS" placeholder:"N" help:"Runs in flight at once. Default: as many as CPUs, at most 8; 1 on a GPU."`
	Threads         int           `env:"RAGATE_THREADS" placeholder:"N" help:"Compute threads of one run. Default: CPUs divided by streams."`
	EscapeSpecial   bool          `env:"RAGATE_ESCAPE_SPECIAL" help:"Treat special tokens typed in a text as plain text."`
}

// dataDir finds the data folder: the setting, else .ragate of the clone that the program lies in or is run from, else the user's.
func (f storeFlags) dataDir() (string, error) {
	if f.DataDir != "" {
		return filepath.Abs(f.DataDir)
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			if root := filepath.Dir(filepath.Dir(real)); filepath.Base(filepath.Dir(real)) == "bin" && isClone(root) {
				return filepath.Join(root, ".ragate"), nil
			}
		}
	}
	if wd, err := os.Getwd(); err == nil {
		for dir := wd; ; dir = filepath.Dir(dir) {
			if isClone(dir) {
				return filepath.Join(dir, ".ragate"), nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if x := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(x) {
		return filepath.Join(x, "ragate"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usagef("no data folder: %v; name one by --data-dir or RAGATE_DATA_DIR", err)
	}
	return filepath.Join(home, ".local", "share", "ragate"), nil
}

// isClone says whether dir is the root of this project's source.
func isClone(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(b), "module ragate\n")
}

func (f storeFlags) store(progress io.Writer) (*models.Store, error) {
	dir, err := f.dataDir()
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir() // without one and without HF_HOME the hub's cache lies in the data folder
	h := hub.FromEnv(os.Getenv, home)
	h.UserAgent = "ragate/" + version
	return &models.Store{Dir: dir, ModelsDir: f.ModelsDir, PipOutput: progress, Hub: h}, nil
}

func (f storeFlags) library(s *models.Store) (string, error) {
	if f.OrtLibrary != "" {
		return f.OrtLibrary, nil
	}
	path, err := s.RuntimeLibrary()
	if err != nil {
		return "", err
	}
	rep, err := s.VerifyRuntime()
	if err != nil {
		return "", err
	}
	for _, file := range rep.Files {
		if file.State == models.FileMissing || file.State == models.FileChanged {
			return "", fmt.Errorf("ONNX Runtime in %s: %s is %s (sha256 %s wanted, %s found); run `ragate setup`", rep.Dir, file.Path, file.State, file.Want, file.Got)
		}
	}
	return path, nil
}

// validate reports every setting that cannot be used, at once.
func (f modelFlags) validate() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int
	}{
		{"--max-tokens (RAGATE_MAX_TOKENS)", f.MaxTokens}, {"--max-batch-tokens (RAGATE_MAX_BATCH_TOKENS)", f.MaxBatchTokens},
		{"--streams (RAGATE_STREAMS)", f.Streams}, {"--threads (RAGATE_THREADS)", f.Threads},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d: it must be at least 1, or 0 for the default", n.name, n.value))
		}
	}
	if f.MaxQueuedTokens < 1 {
		errs = append(errs, fmt.Errorf("--max-queued-tokens (RAGATE_MAX_QUEUED_TOKENS) is %d: it must be at least 1", f.MaxQueuedTokens))
	}
	if f.Slice <= 0 {
		errs = append(errs, fmt.Errorf("--slice (RAGATE_SLICE) is %v: it must be longer than 0", f.Slice))
	}
	if err := errors.Join(errs...); err != nil {
		return &usageError{err}
	}
	return nil
}

func (f modelFlags) settings() inference.Settings {
	return inference.Settings{
		Provider: ort.Provider(f.Provider), Precision: inference.Precision(f.Precision),
		MaxTokens: f.MaxTokens, Streams: f.Streams, Threads: f.Threads,
	}
}
