// Package testenv finds what tests need outside their own package: the module's root and the store that `make setup` fills.
// A missing store fails the test; nothing is skipped.
package testenv

import (
	"os"
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
