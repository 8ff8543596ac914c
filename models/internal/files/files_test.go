package files_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ragate/models/internal/files"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := files.Write(filepath.Join(dir, "sub", "a"), []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "sub", "l")); err != nil {
		t.Fatal(err)
	}
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, example B.1
	for name, c := range map[string]struct {
		f    files.File
		want string // "" for ok, "absent", or a part of the message
	}{
		"ok":          {files.File{Path: "sub/a", Size: 3, SHA256: abc}, ""},
		"size":        {files.File{Path: "sub/a", Size: 4, SHA256: abc}, "size:3"},
		"hash":        {files.File{Path: "sub/a", Size: 3, SHA256: strings.Repeat("0", 64)}, "sha256:" + abc},
		"absent":      {files.File{Path: "sub/b", Size: 3, SHA256: abc}, "absent"},
		"link":        {files.File{Path: "sub/l", Link: "a"}, ""},
		"other link":  {files.File{Path: "sub/l", Link: "b"}, "link:a"},
		"absent link": {files.File{Path: "sub/m", Link: "a"}, "absent"},
	} {
		err := files.Check(dir, c.f)
		var wrong *files.MismatchError
		switch c.want {
		case "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case "absent":
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		default:
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestWriteReplacesInOneStep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		if err := files.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	if left, _ := files.List(dir); !slices.Equal(left, []string{"f"}) {
		t.Errorf("left: %q", left)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v: other users of the machine cannot read it", st.Mode(), err)
	}
}

func TestReplaceDir(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	for _, text := range []string{"one", "two"} {
		tmp := filepath.Join(dir, "tmp")
		if err := files.Write(filepath.Join(tmp, text), nil); err != nil {
			t.Fatal(err)
		}
		if err := files.ReplaceDir(tmp, target); err != nil {
			t.Fatal(err)
		}
		if list, _ := files.List(dir); !slices.Equal(list, []string{"target/" + text}) {
			t.Errorf("on disk: %q", list)
		}
	}
	// When the new folder cannot come, the old one stays.
	if err := files.ReplaceDir(filepath.Join(dir, "none"), target); err == nil {
		t.Error("no error for a folder that is not there")
	}
	if list, _ := files.List(dir); !slices.Equal(list, []string{"target/two"}) {
		t.Errorf("on disk: %q", list)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	unlock, err := files.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := files.Lock(ctx, path); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Fatalf("held, and the waiter gave up: %v", err)
	}
	var released atomic.Bool
	done := make(chan error)
	go func() {
		unlock, err := files.Lock(t.Context(), path)
		if err == nil {
			if !released.Load() {
				err = errors.New("held by two")
			}
			unlock()
		}
		done <- err
	}()
	released.Store(true)
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /dev/full, which only Linux has")
	}
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Write([]byte("x"))
	path := filepath.Join(t.TempDir(), "f")
	var full *files.DiskFullError
	if err = files.Full(err, path, 10); !errors.As(err, &full) || full.Free < 0 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error is %v", err)
	}
	for _, s := range []string{path, "10 bytes"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	if other := files.Full(fs.ErrNotExist, path, 10); other != fs.ErrNotExist {
		t.Errorf("another error became %v", other)
	}
}

func TestLocal(t *testing.T) {
	for p, want := range map[string]bool{"a": true, "a/b": true, "a/../b": true, "": false, "..": false, "../a": false, "/a": false, `a\b`: false, "a/../../b": false, "a\x00": false} {
		if got := files.Local(p); got != want {
			t.Errorf("Local(%q) is %v", p, got)
		}
	}
}

func TestListLeavesHiddenFoldersOut(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"b", "a/c", ".git/x", ".hidden"} {
		if err := files.Write(filepath.Join(dir, p), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := files.List(dir); err != nil || !slices.Equal(got, []string{".hidden", "a/c", "b"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := files.List(filepath.Join(dir, "none")); err != nil || got != nil {
		t.Errorf("a folder that is not there: %q, %v", got, err)
	}
}
