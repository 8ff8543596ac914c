package models

import (
	"io"
	"path/filepath"
	"strings"

	"ragate/models/hub"
)

// Store is the folder that holds the runtime, packaged models and the lock file. Its fields are set before first use and not
// changed after; its methods may be called at once, also from several processes on one folder.
//
//	<Dir>/ort/<package-version>/lib/…      the ONNX Runtime library and its providers
//	<ModelsDir>/<org>--<name>/…            models out of packages, and ragate.json files for models of the hub
//	<Dir>/models.lock.json                 commit and sha256 of every file of the models of the hub
//	<Dir>/wheels/                          package files placed by hand, for machines without an index
type Store struct {
	Dir       string
	ModelsDir string      // "" is <Dir>/models
	Runtime   RuntimeKind // which build of ONNX Runtime; "" is RuntimeCPU

	Python string     // the command that has pip; "" is python3
	Hub    hub.Config // where models of the hub come from; hub.FromEnv fills it

	PipOutput io.Writer // pip's own progress and messages; nil: silent. Give it the terminal to see a progress bar
}

func (s *Store) modelsDir() string {
	if s.ModelsDir != "" {
		return s.ModelsDir
	}
	return filepath.Join(s.Dir, "models")
}

// modelDir is the folder of a model by its org/name.
func (s *Store) modelDir(id string) string {
	return filepath.Join(s.modelsDir(), strings.ReplaceAll(id, "/", "--"))
}

func (s *Store) hub() (*hub.Client, error) {
	cfg := s.Hub
	if cfg.CacheDir == "" {
		cfg.CacheDir = filepath.Join(s.Dir, "hub")
	}
	var err error
	if cfg.CacheDir, err = filepath.Abs(cfg.CacheDir); err != nil {
		return nil, err
	}
	return hub.New(cfg)
}
