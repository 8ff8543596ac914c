// Package testenv finds what tests need outside their own package: the module's root, the store that `make setup` fills, and the program;
// and it has the few functions that tests of many packages share.
// A missing store fails the test; nothing is skipped.
package testenv

import (
	"compress/gzip"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// ModuleRoot is the folder that holds go.mod.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("testenv: no caller information")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Store is the data folder with the ONNX Runtime library and the default models: RAGATE_DATA_DIR, else .ragate in the module's root.
func Store(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("RAGATE_DATA_DIR")
	if dir == "" {
		dir = filepath.Join(ModuleRoot(t), ".ragate")
	}
	if _, err := os.Stat(filepath.Join(dir, "models")); err != nil {
		t.Fatalf("testenv: no models in %s: run `make setup` first (%v)", dir, err)
	}
	return dir
}

// Gunzip is what a gzipped file holds.
func Gunzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}

// Cosine of two vectors of any length but zero, in float64.
func Cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

// Program builds cmd/ragate for the test and returns the file.
func Program(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ragate")
	build := exec.Command("go", "build", "-o", file, "./cmd/ragate")
	build.Dir = ModuleRoot(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}
