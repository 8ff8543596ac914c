package models

import (
	"os"
	"path/filepath"
	"testing"

	"ragate/models/hub"
	"ragate/models/internal/files"
)

const someCommit = "0123456789abcdef0123456789abcdef01234567"

// FuzzLock: whatever the lock file holds, it is refused, or every part of it that becomes a path stays inside and a new entry can be written.
func FuzzLock(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"version":1}`, `{"version":1,"models":null}`, `{"version":2,"models":{}}`, `{"version":1,"models":{"a/b@main:":null}}`,
		`{"version":1,"models":{"a/b@main:":{"commit":"` + someCommit + `","graph":"onnx/model.onnx","files":[{"path":"config.json","size":1,"sha256":"00"}]}}}`,
		`{"version":1,"models":{"a/b@main:":{"commit":"../../x","graph":"m","files":[]}}}`, `{"version":1,"models":{"a/b@main:":{"commit":"` + someCommit + `","graph":"/m"}}}`,
		`{"version":1,"models":{"a":{"commit":"` + someCommit + `","graph":"m","files":[{"path":"../x"}]}}}`, `{"version":1,"models":[]}`, `[]`, `{"version":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Store{Dir: dir}
		if err := os.WriteFile(s.lockPath(), data, 0o644); err != nil {
			t.Fatal(err)
		}
		l, err := s.readLock()
		if err != nil {
			return
		}
		for key, m := range l.Models {
			if !hub.IsCommit(m.Commit) || !files.Local(m.Graph) {
				t.Fatalf("%q: %s is at %q, %q", data, key, m.Commit, m.Graph)
			}
			for _, file := range m.Files {
				if !files.Local(file.Path) {
					t.Fatalf("%q: a file at %q", data, file.Path)
				}
			}
		}
		entry := lockedBase{Commit: someCommit, Graph: "model.onnx"}
		if err := s.writeLocked(t.Context(), "new/entry@main:", entry); err != nil {
			t.Fatalf("%q: writing an entry: %v", data, err)
		}
		again, err := s.readLock()
		if err != nil || again.Models["new/entry@main:"].Commit != someCommit {
			t.Fatalf("%q: reading it again: %v", data, err)
		}
		for key := range l.Models {
			if _, ok := again.Models[key]; !ok {
				t.Fatalf("%q: %s is lost", data, key)
			}
		}
	})
}

// FuzzManifest: whatever a model's own files say, they are refused, or yield limits that a model can be run with.
func FuzzManifest(f *testing.F) {
	embedder := []string{
		`{"architectures":["BertModel"],"hidden_size":384,"max_position_embeddings":512}`,
		`[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"path":"2","type":"x.Normalize"}]`,
		`{"word_embedding_dimension":384,"pooling_mode_mean_tokens":true}`, `{"max_seq_length":256}`, `{"prompts":{"query":"q: "}}`, `{"model_max_length":1e30}`,
	}
	f.Add(embedder[0], embedder[1], embedder[2], embedder[3], embedder[4], embedder[5], ``)
	f.Add(`{"architectures":["BertForSequenceClassification"],"id2label":{"0":"no","1":"yes"}}`, ``, ``, ``, ``, `{"model_max_length":512}`, `{"max_tokens":128}`)
	f.Add(`null`, `null`, `null`, `null`, `null`, `null`, `null`)
	f.Add(`{"num_labels":-1,"max_position_embeddings":-5}`, `[null]`, `{"word_embedding_dimension":-3}`, `{"max_seq_length":-1e99}`, `{"prompts":null}`, `{"model_max_length":-1}`, `{"kind":"embedder"}`)
	f.Add(embedder[0], `[{"path":"../../..","type":"a.Pooling"}]`, ``, `{"max_seq_length":0.5}`, ``, `{"model_max_length":0}`, `{"pooling":"cls","relevant":1,"labels":3}`)
	dir := f.TempDir()
	for _, name := range []string{"1_Pooling", "onnx"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	names := []string{"config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json", OverrideFile}
	f.Fuzz(func(t *testing.T, config, modules, pooling, sentence, prompts, tokenizer, declared string) {
		paths := []string{"onnx/model.onnx", "tokenizer.json"}
		for i, text := range []string{config, modules, pooling, sentence, prompts, tokenizer, declared} {
			path := filepath.Join(dir, filepath.FromSlash(names[i]))
			if text == "" { // the file is not there
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, names[i])
		}
		o, err := readOverride(dir)
		if err != nil {
			return
		}
		m, err := readManifest(folderOf{id: "some/model", dir: dir, paths: paths, override: o})
		if err != nil {
			return
		}
		if m.MaxTokens < 0 || m.MaxTokens > 1<<31 || m.GraphPath == "" || m.TokenizerPath == "" {
			t.Fatalf("limits of %+v", m)
		}
		for _, kind := range []Kind{KindEmbedder, KindReranker} {
			if as, err := m.As(kind); err == nil && as.MaxTokens < 1 {
				t.Fatalf("as %s it takes %d tokens: %+v", kind, as.MaxTokens, as)
			}
		}
	})
}
