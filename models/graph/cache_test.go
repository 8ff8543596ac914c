package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childEnv makes the test binary a child process that calls Cached once and prints what came of it.
const childEnv = "RAGATE_GRAPH_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		child(mode)
		return
	}
	os.Exit(m.Run())
}

func child(mode string) {
	if mode == "full" {
		// The nearest to a full disk that needs no privileges: no file may grow past 100 bytes.
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: 100}); err != nil {
			fmt.Println("setrlimit:", err)
			return
		}
	}
	src := Source{Path: os.Args[2], SHA256: os.Args[3]}
	e, err := Cached(os.Args[1], src, WeightOnlyVersion, weightOnly)
	var ce *CacheError
	fmt.Println(filepath.Base(e.Path), err, errors.As(err, &ce))
}

func weightOnly(model []byte) ([]byte, error) {
	out, _, err := WeightOnly(model)
	return out, err
}

func source(t *testing.T, name string) Source {
	t.Helper()
	path := filepath.Join("testdata", name+".onnx")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Source{Path: path, SHA256: hash(b)}
}

// counted wraps weightOnly and counts its calls.
func counted(n *int) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		*n++
		return weightOnly(b)
	}
}

func mustCached(t *testing.T, dir string, src Source, rewrite func([]byte) ([]byte, error)) CacheEntry {
	t.Helper()
	e, err := Cached(dir, src, WeightOnlyVersion, rewrite)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(e.Path)
	if err != nil || hash(b) != e.SHA256 {
		t.Fatalf("%s is not what the entry says (%v)", e.Path, err)
	}
	return e
}

func TestCachedMakesOnce(t *testing.T) {
	dir, src := filepath.Join(t.TempDir(), "a", "b"), source(t, "uint8")
	calls := 0
	first := mustCached(t, dir, src, counted(&calls))
	second := mustCached(t, dir, src, counted(&calls))
	if calls != 1 || !first.Made || second.Made || first.Path != second.Path || first.SHA256 != second.SHA256 {
		t.Errorf("%d calls: %+v, %+v", calls, first, second)
	}
	b, _ := os.ReadFile(src.Path)
	want, _ := weightOnly(b)
	if first.SHA256 != hash(want) {
		t.Errorf("the cached file has sha256 %s, the rewrite %s", first.SHA256, hash(want))
	}
	// The source is not read on a hit, and another source or version is another entry.
	if e, err := Cached(dir, Source{Path: "gone.onnx", SHA256: src.SHA256}, WeightOnlyVersion, counted(&calls)); err != nil || e.Path != first.Path {
		t.Errorf("a hit reads its source: %v", err)
	}
	mustCached(t, dir, source(t, "no_zero"), counted(&calls))
	if _, err := Cached(dir, src, "other-1+"+WeightOnlyVersion, counted(&calls)); err != nil || calls != 3 {
		t.Errorf("%v, %d calls", err, calls)
	}
}

func TestCachedMakesDamagedFilesAgain(t *testing.T) {
	src := source(t, "uint8")
	for name, damage := range map[string]func(t *testing.T, model, record string){
		"truncated":       func(t *testing.T, model, _ string) { check(t, os.Truncate(model, 100)) },
		"empty":           func(t *testing.T, model, _ string) { check(t, os.Truncate(model, 0)) },
		"gone":            func(t *testing.T, model, _ string) { check(t, os.Remove(model)) },
		"a folder":        func(t *testing.T, model, _ string) { check(t, os.Remove(model)); check(t, os.Mkdir(model, 0o755)) },
		"record gone":     func(t *testing.T, _, record string) { check(t, os.Remove(record)) },
		"record cut":      func(t *testing.T, _, record string) { check(t, os.Truncate(record, 20)) },
		"record of other": func(t *testing.T, _, record string) { replaceText(t, record, `"size": `, `"size": 1`) },
		"record leads out": func(t *testing.T, _, record string) {
			check(t, os.WriteFile(record, []byte(`{"sha256":"../../../x","size":1}`), 0o644))
		},
		"one bit": func(t *testing.T, model, _ string) {
			b, err := os.ReadFile(model)
			check(t, err)
			b[len(b)/2] ^= 4
			check(t, os.WriteFile(model, b, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, calls := t.TempDir(), 0
			first := mustCached(t, dir, src, counted(&calls))
			damage(t, first.Path, filepath.Join(filepath.Dir(first.Path), recordName))
			if name == "a folder" {
				// What cannot be replaced is an error, not a wrong file.
				var ce *CacheError
				if _, err := Cached(dir, src, WeightOnlyVersion, counted(&calls)); !errors.As(err, &ce) {
					t.Errorf("%v", err)
				}
				return
			}
			second := mustCached(t, dir, src, counted(&calls))
			if calls != 2 || !second.Made || second.SHA256 != first.SHA256 {
				t.Errorf("%d calls, %+v", calls, second)
			}
			noTemporaryFiles(t, dir)
		})
	}
}

func TestCachedRefuses(t *testing.T) {
	dir, src := t.TempDir(), source(t, "uint8")
	var he *HashError
	wrong := Source{Path: src.Path, SHA256: strings.Repeat("0", 64)}
	if _, err := Cached(dir, wrong, "v", weightOnly); !errors.As(err, &he) || he.Got != src.SHA256 || he.Want != wrong.SHA256 {
		t.Errorf("wrong hash: %v", err)
	}
	if _, err := Cached(dir, Source{Path: "gone.onnx", SHA256: src.SHA256}, "v", weightOnly); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no source: %v", err)
	}
	var pe *PatternError
	if _, err := Cached(dir, source(t, "two_activations"), "v", weightOnly); !errors.As(err, &pe) {
		t.Errorf("refused rewrite: %v", err)
	}
	if _, err := Cached(dir, src, "v", func([]byte) ([]byte, error) { return []byte("x"), nil }); err == nil {
		t.Error("an unreadable result was kept")
	}
	for _, version := range []string{"", "a/b", "../x"} {
		if _, err := Cached(dir, src, version, weightOnly); err == nil {
			t.Errorf("version %q was taken", version)
		}
	}
	if es, err := os.ReadDir(dir); err != nil || len(es) != 0 {
		t.Errorf("refused rewrites left %v (%v)", es, err)
	}
	file := filepath.Join(dir, "file")
	check(t, os.WriteFile(file, nil, 0o644))
	var ce *CacheError
	if _, err := Cached(file, src, "v", weightOnly); !errors.As(err, &ce) || ce.Size == 0 || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in the folder's place: %v", err)
	}
}

func TestCachedBringsExternalWeights(t *testing.T) {
	// The source is laid out as the hub's cache does it: the names are symbolic links into another folder.
	root := t.TempDir()
	blobs, snapshot, cache := filepath.Join(root, "blobs"), filepath.Join(root, "snapshot"), filepath.Join(root, "cache")
	check(t, os.Mkdir(blobs, 0o755))
	check(t, os.Mkdir(snapshot, 0o755))
	for _, f := range []string{"external.onnx", "external.data"} {
		b, err := os.ReadFile(filepath.Join("testdata", f))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(blobs, "blob-"+f), b, 0o644))
		check(t, os.Symlink(filepath.Join("..", "blobs", "blob-"+f), filepath.Join(snapshot, f)))
	}
	src := source(t, "external")
	src.Path = filepath.Join(snapshot, "external.onnx")
	calls := 0
	e := mustCached(t, cache, src, counted(&calls))
	placed := filepath.Join(filepath.Dir(e.Path), "external.data")
	st, err := os.Lstat(placed)
	check(t, err)
	blob, err := os.Stat(filepath.Join(blobs, "blob-external.data"))
	check(t, err)
	if !st.Mode().IsRegular() || !os.SameFile(st, blob) {
		t.Errorf("%s is %v and not the weights themselves", placed, st.Mode())
	}
	if e := mustCached(t, cache, src, counted(&calls)); e.Made {
		t.Error("made again")
	}
	// Weights that are gone or cut are seen and placed again.
	check(t, os.Remove(placed))
	if e := mustCached(t, cache, src, counted(&calls)); !e.Made || calls != 2 {
		t.Errorf("%+v after %d calls", e, calls)
	}
	check(t, os.Remove(placed))
	check(t, os.WriteFile(placed, []byte("cut"), 0o644))
	mustCached(t, cache, src, counted(&calls))
	got, err := os.ReadFile(placed)
	check(t, err)
	want, err := os.ReadFile("testdata/external.data")
	check(t, err)
	if calls != 3 || !bytes.Equal(got, want) {
		t.Errorf("%d calls, %d bytes of %d", calls, len(got), len(want))
	}
	noTemporaryFiles(t, cache)

	check(t, os.Remove(filepath.Join(snapshot, "external.data")))
	var ce *CacheError
	if _, err := Cached(filepath.Join(root, "other"), src, "v", weightOnly); !errors.As(err, &ce) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing weights: %v", err)
	}
	if _, err := placeExternal(snapshot, cache, "../blobs/blob-external.data"); err == nil {
		t.Error("a path out of the model's folder was taken")
	}
}

func TestCachedRemovesWhatCrashesLeft(t *testing.T) {
	dir, src := t.TempDir(), source(t, "uint8")
	e := mustCached(t, dir, src, weightOnly)
	old, young := filepath.Join(filepath.Dir(e.Path), tempPrefix+"old"), filepath.Join(filepath.Dir(e.Path), tempPrefix+"young")
	check(t, os.WriteFile(old, []byte("x"), 0o644))
	check(t, os.WriteFile(young, []byte("x"), 0o644))
	past := time.Now().Add(-2 * tempAge)
	check(t, os.Chtimes(old, past, past))
	check(t, os.Remove(e.Path))
	mustCached(t, dir, src, weightOnly)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one, perhaps another process's: %v", err)
	}
}

func TestCachedIsSafeAcrossProcessesAndGoroutines(t *testing.T) {
	dir, src := t.TempDir(), source(t, "consumers")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var got []string
	for range 6 {
		wg.Go(func() {
			line := runChild(t, "plain", dir, src)
			mu.Lock()
			got = append(got, line)
			mu.Unlock()
		})
		wg.Go(func() {
			e, err := Cached(dir, src, WeightOnlyVersion, weightOnly)
			mu.Lock()
			got = append(got, fmt.Sprintln(filepath.Base(e.Path), err, false))
			mu.Unlock()
		})
	}
	wg.Wait()
	e := mustCached(t, dir, src, weightOnly)
	want := fmt.Sprintln(filepath.Base(e.Path), nil, false)
	if len(got) != 12 || slices.ContainsFunc(got, func(s string) bool { return s != want }) || e.Made {
		t.Errorf("%q, want %q from all", got, want)
	}
	noTemporaryFiles(t, dir)
	if es, _ := os.ReadDir(filepath.Dir(e.Path)); len(es) != 2 {
		t.Errorf("files: %v", es)
	}
}

func TestCachedOnAFullDisk(t *testing.T) {
	dir, src := t.TempDir(), source(t, "uint8")
	line := runChild(t, "full", dir, src)
	if !strings.Contains(line, "cannot keep a rewritten model of ") || !strings.Contains(line, dir) || !strings.HasSuffix(line, " true\n") {
		t.Errorf("%q", line)
	}
	noTemporaryFiles(t, dir)
	if e := mustCached(t, dir, src, weightOnly); !e.Made {
		t.Error("the failed attempt left a hit")
	}
}

func TestRecordSaysWhereAFileCameFrom(t *testing.T) {
	src := source(t, "uint8")
	e := mustCached(t, t.TempDir(), src, weightOnly)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(e.Path), recordName))
	check(t, err)
	var r map[string]any
	check(t, json.Unmarshal(b, &r))
	if r["sha256"] != e.SHA256 || r["source_sha256"] != src.SHA256 || r["rewrite"] != WeightOnlyVersion {
		t.Errorf("%s", b)
	}
}

func runChild(t *testing.T, mode, dir string, src Source) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Error(err)
		return ""
	}
	cmd := exec.Command(exe, dir, src.Path, src.SHA256)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func noTemporaryFiles(t *testing.T, dir string) {
	t.Helper()
	check(t, filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s was left", p)
		}
		return err
	}))
}

func replaceText(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	check(t, os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
