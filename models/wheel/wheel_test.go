package wheel_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ragate/models/internal/files"
	"ragate/models/wheel"
)

// makeWheel writes a package file with the given members, in order, and returns its pin.
func makeWheel(t *testing.T, dir string, members ...string) (wheel.Wheel, string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		f, err := z.Create(members[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(members[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	w := wheel.Wheel{Name: "tiny", Version: "1.0", File: "tiny-1.0-py3-none-any.whl", SHA256: files.SHA256Of(b.Bytes()), Size: int64(b.Len()),
		Args: []string{"--only-binary=:all:", "--platform", "here"}}
	path := filepath.Join(dir, w.File)
	if err := files.Write(path, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	return w, path
}

// fakePython is a command that acts on `-m pip download … --dest DIR …` by a shell script; $DEST is set and all arguments are kept in
// args.txt beside it.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	text := `#!/bin/sh
printf '%s\n' "$@" > "$(dirname "$0")/args.txt"
DEST=
while [ $# -gt 0 ]; do case "$1" in --dest) DEST=$2; shift;; esac; shift; done
` + script + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGetAsksPipForExactlyThisFile(t *testing.T) {
	supply := t.TempDir()
	w, path := makeWheel(t, supply, "tiny/a.txt", "a")
	python := fakePython(t, `echo "Collecting tiny"; echo "a warning" >&2; cp "`+path+`" "$DEST/"`)
	var said bytes.Buffer
	tmp := t.TempDir()
	got, err := wheel.Source{Python: python, Output: &said}.Get(t.Context(), w, tmp)
	if err != nil || got != filepath.Join(tmp, w.File) {
		t.Fatalf("%q, %v", got, err)
	}
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(python), "args.txt"))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(string(raw))
	want := []string{"-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--dest", tmp, "--only-binary=:all:", "--platform", "here", "tiny==1.0"}
	if !slices.Equal(args, want) {
		t.Errorf("arguments are %q, want %q", args, want)
	}
	if s := said.String(); !strings.Contains(s, "Collecting tiny") || !strings.Contains(s, "a warning") {
		t.Errorf("pip's words are not shown: %q", s)
	}
	// Without somebody to show it to, pip is told to be silent.
	if _, err := (wheel.Source{Python: python}).Get(t.Context(), w, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(filepath.Join(filepath.Dir(python), "args.txt")); !strings.Contains(string(raw), "--quiet") {
		t.Errorf("arguments are %q", raw)
	}
}

func TestGetPrefersWhatWasPlacedByHand(t *testing.T) {
	dir := t.TempDir()
	w, path := makeWheel(t, dir, "tiny/a.txt", "a")
	src := wheel.Source{Python: "/no/such/python", Dir: dir}
	if got, err := src.Get(t.Context(), w, t.TempDir()); err != nil || got != path {
		t.Errorf("%q, %v", got, err)
	}
	w.SHA256 = strings.Repeat("0", 64)
	var wrong *files.MismatchError
	if _, err := src.Get(t.Context(), w, t.TempDir()); !errors.As(err, &wrong) || wrong.Removed {
		t.Errorf("a wrong file placed by hand: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the user's own file was touched: %v", err)
	}
}

func TestGetSaysWhatIsMissing(t *testing.T) {
	supply := t.TempDir()
	w, path := makeWheel(t, supply, "tiny/a.txt", "a")
	byHand := "/data/wheels"
	for name, c := range map[string]struct {
		python string
		says   []string
	}{
		"no python":  {"/no/such/python", []string{"Python 3", "python3-pip"}},
		"no pip":     {fakePython(t, `echo "/usr/bin/python3: No module named pip" >&2; exit 1`), []string{"has no pip", "python3-pip"}},
		"no network": {fakePython(t, `echo "ERROR: Could not find a version" >&2; exit 1`), []string{"network", "Could not find a version"}},
		"disk full":  {fakePython(t, `echo "OSError: [Errno 28] No space left on device" >&2; exit 2`), []string{"no space left"}},
		"other file": {fakePython(t, `cp "`+path+`" "$DEST/tiny-1.0-cp39.whl"`), []string{"tiny-1.0-cp39.whl", "instead of"}},
	} {
		_, err := wheel.Source{Python: c.python, Dir: byHand}.Get(t.Context(), w, t.TempDir())
		var supplyErr *wheel.SupplyError
		if !errors.As(err, &supplyErr) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range append(c.says, w.File, w.SHA256, byHand) {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, err, s)
			}
		}
	}
	// What pip brings is not what is pinned.
	tmp := t.TempDir()
	_, err := wheel.Source{Python: fakePython(t, `echo other > "$DEST/`+w.File+`"`), Dir: byHand}.Get(t.Context(), w, tmp)
	var wrong *files.MismatchError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), w.SHA256) {
		t.Errorf("wrong hash: %v", err)
	}
	if left, _ := files.List(tmp); len(left) != 0 {
		t.Errorf("the wrong file is left: %q", left)
	}
}

func TestGetCanBeInterrupted(t *testing.T) {
	w, _ := makeWheel(t, t.TempDir(), "tiny/a.txt", "a")
	started := filepath.Join(t.TempDir(), "started")
	python := fakePython(t, `touch "`+started+`"; trap 'exit 130' INT; while :; do sleep 0.05; done`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(started); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	if _, err := (wheel.Source{Python: python}).Get(ctx, w, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestExtract(t *testing.T) {
	dir := t.TempDir()
	_, path := makeWheel(t, dir, "p/lib/a.so", "library", "p/lib/a.so.1", "library", "p/doc/a.so", "library", "p/data/b.txt", "text", "p/skip.py", "code")
	out := filepath.Join(dir, "out")
	var seen []string
	list, err := wheel.Extract(path, out, func(m string) (string, bool) {
		return strings.TrimPrefix(m, "p/"), !strings.HasSuffix(m, ".py")
	}, progress(func(file string, done, total int64) { seen = append(seen, fmt.Sprintf("%s %d/%d", file, done, total)) }))
	if err != nil {
		t.Fatal(err)
	}
	lib := files.SHA256Of([]byte("library"))
	want := []files.File{
		{Path: "lib/a.so", Size: 7, SHA256: lib},
		{Path: "lib/a.so.1", Link: "a.so"},
		{Path: "doc/a.so", Size: 7, SHA256: lib}, // another folder: no link
		{Path: "data/b.txt", Size: 4, SHA256: files.SHA256Of([]byte("text"))},
	}
	if !slices.Equal(list, want) {
		t.Errorf("extracted %+v, want %+v", list, want)
	}
	for _, f := range want {
		if err := files.Check(out, f); err != nil {
			t.Error(err)
		}
	}
	if present, _ := files.List(out); len(present) != len(want) {
		t.Errorf("on disk: %q", present)
	}
	if len(seen) != 4 || seen[0] != "lib/a.so 7/7" {
		t.Errorf("progress: %q", seen)
	}
}

type progress func(file string, done, total int64)

func (f progress) Progress(file string, done, total int64) { f(file, done, total) }

func TestExtractRefuses(t *testing.T) {
	dir := t.TempDir()
	_, path := makeWheel(t, dir, "../evil", "x")
	all := func(m string) (string, bool) { return m, true }
	if _, err := wheel.Extract(path, filepath.Join(dir, "out"), all, nil); err == nil || !strings.Contains(err.Error(), "evil") {
		t.Errorf("a member that leaves the folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
		t.Error("it was written")
	}
	// A byte of the compressed content changed: the package's own checksum tells.
	_, path = makeWheel(t, dir, "a", strings.Repeat("ab", 5000))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[45] ^= 0xff
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := wheel.Extract(path, filepath.Join(dir, "out2"), all, nil); err == nil {
		t.Error("a damaged package is extracted")
	}
	if err := os.WriteFile(path, []byte("not a package"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := wheel.Extract(path, filepath.Join(dir, "out3"), all, nil); err == nil || !strings.Contains(err.Error(), "zip") {
		t.Errorf("no package at all: %v", err)
	}
}
