package models

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// GoldenFile holds texts with the ids that the reference tokenizer gives them, to compare with. It lies in the model's folder, or for a
// model of the hub in the folder of its OverrideFile. Package tokenize/golden has the format.
const GoldenFile = "tokens.golden.jsonl"

// findTokenizer fills Tokenizer, Golden and Err for a model whose files are whole. user is where the user's own files lie.
func (r *Report) findTokenizer(in folderOf, user string) error {
	if !r.OK() {
		return nil
	}
	var err error
	if in.override, err = readOverride(user); err != nil {
		r.Err = &LoadError{Model: in.id, Reason: "the user's declarations cannot be used", Err: err}
		return nil
	}
	if in.graph != "" && user != in.dir {
		in.override.Graph = nil // the lock decides
	}
	m, err := readManifest(in)
	if err != nil {
		r.Err = err
		return nil
	}
	r.Tokenizer = m.TokenizerPath
	for _, dir := range []string{user, in.dir} {
		file := filepath.Join(dir, GoldenFile)
		switch _, err := os.Stat(file); {
		case err == nil:
			r.Golden = file
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}
