package graph

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzRewrite: whatever the model, looking at it and rewriting it ends in an error or in a model that can be read again.
func FuzzRewrite(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.onnx")
	if err != nil || len(paths) < 20 {
		f.Fatalf("%d models in testdata: %v", len(paths), err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 64<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, model []byte) {
		facts, err := Inspect(model)
		if err != nil {
			return
		}
		readable := func(how string, out []byte) {
			if _, err := Inspect(out); err != nil {
				t.Fatalf("%s made a model that cannot be read: %v", how, err)
			}
		}
		if out, _, err := WeightOnly(model); err == nil {
			readable("WeightOnly", out)
		}
		if out, _, err := UnpackNarrow(model); err == nil {
			readable("UnpackNarrow", out)
		}
		if len(facts.Outputs) > 0 {
			if out, _, err := PruneOutputs(model, facts.Outputs[0].Name); err == nil {
				readable("PruneOutputs", out)
			}
		}
		_, _ = externalFiles(model)
	})
}
