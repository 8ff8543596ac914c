// Package files holds the few file operations that every supply of models needs: hashing, replacing a file or folder in one
// step, and a lock between processes. It promises that a path it wrote is either absent, the old content or the whole new content.
package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// File is one file of a set, by its slash-separated path inside it.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Link   string `json:"link,omitempty"` // target of a symbolic link; then Size and SHA256 are not set
}

// MismatchError is returned when a file's content is not the one asked for.
type MismatchError struct {
	Path      string
	Want, Got string // with the algorithm in front: "sha256:…", "git-sha1:…", "size:…"
	Removed   bool   // the file was deleted so that the next attempt starts afresh
	Source    string // where the bytes came from, if known
}

func (e *MismatchError) Error() string {
	msg := fmt.Sprintf("%s: content is %s, want %s", e.Path, e.Got, e.Want)
	if e.Source != "" {
		msg += " (from " + e.Source + ")"
	}
	if e.Removed {
		msg += "; the file was removed, run again to fetch it anew"
	}
	return msg
}

// DiskFullError is returned when a file does not fit on its disk.
type DiskFullError struct {
	Path string
	Need int64 // bytes still to write; 0 when unknown
	Free int64 // bytes free for this user; -1 when unknown
}

func (e *DiskFullError) Error() string {
	msg := "no space left on the disk of " + e.Path
	if e.Need > 0 {
		msg += fmt.Sprintf(": %d bytes are still needed", e.Need)
	}
	if e.Free >= 0 {
		msg += fmt.Sprintf(", %d are free", e.Free)
	}
	return msg + "; free some or choose another folder"
}

func (e *DiskFullError) Unwrap() error { return unix.ENOSPC }

// Full turns an error that says the disk is full into a *DiskFullError and returns any other unchanged.
func Full(err error, path string, need int64) error {
	var done *DiskFullError
	if err == nil || errors.As(err, &done) {
		return err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &DiskFullError{Path: path, Need: need, Free: Free(filepath.Dir(path))}
	}
	return err
}

// Free is the number of bytes this user may still write in dir, -1 when it cannot be told.
func Free(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the field types differ between systems
}

// SHA256 hashes a file's content, following links. It returns lower-case hex and the number of bytes.
func SHA256(path string) (sum string, size int64, err error) {
	return Sum(path, sha256.New())
}

// Sum hashes a file's content with h, which may already hold a prefix.
func Sum(path string, h hash.Hash) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	size, err = io.CopyBuffer(struct{ io.Writer }{h}, f, make([]byte, 256<<10))
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// Check compares a file under dir with what is recorded of it. A difference is a *MismatchError, absence satisfies fs.ErrNotExist.
func Check(dir string, f File) error {
	path := filepath.Join(dir, filepath.FromSlash(f.Path))
	if f.Link != "" {
		got, err := os.Readlink(path)
		if err != nil {
			return err
		}
		if got != f.Link {
			return &MismatchError{Path: path, Want: "link:" + f.Link, Got: "link:" + got}
		}
		return nil
	}
	// The size costs nothing and names a cut file as what it is.
	if err := CheckSize(dir, f); err != nil {
		return err
	}
	sum, _, err := SHA256(path)
	if err != nil {
		return err
	}
	if sum != f.SHA256 {
		return &MismatchError{Path: path, Want: "sha256:" + f.SHA256, Got: "sha256:" + sum}
	}
	return nil
}

// CheckSize is Check without the content: of a file that is not a link, only presence and size are compared.
func CheckSize(dir string, f File) error {
	path := filepath.Join(dir, filepath.FromSlash(f.Path))
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if f.Link == "" && st.Size() != f.Size {
		return &MismatchError{Path: path, Want: fmt.Sprintf("size:%d", f.Size), Got: fmt.Sprintf("size:%d", st.Size())}
	}
	return nil
}

// List returns the slash-separated paths of all files and links below dir, sorted; nil when dir is not there. Hidden folders are left out:
// a user's model folder is often a checkout.
func List(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != dir && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out = append(out, filepath.ToSlash(rel))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return out, err
}

// Write replaces path with data in one step and makes it durable before it is visible.
func Write(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Full(err, path, int64(len(data)))
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return Full(err, path, int64(len(data)))
	}
	defer os.Remove(tmp.Name()) // after the rename there is nothing left to remove
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return Full(err, path, int64(len(data)))
}

// ReplaceDir moves the finished folder tmp to dir, which may exist. Both must be on one disk. Between the removal of the old
// folder and the rename, dir is absent; it is never half of one and half of the other.
func ReplaceDir(tmp, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	old := ""
	if _, err := os.Lstat(dir); err == nil {
		// A rename first: removing in place would leave half a folder if the process ends now.
		old = filepath.Join(filepath.Dir(tmp), filepath.Base(tmp)+".old")
		if err := os.Rename(dir, old); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		if old != "" {
			_ = os.Rename(old, dir)
		}
		return err
	}
	if old != "" {
		return os.RemoveAll(old)
	}
	return nil
}

// Lock takes the lock file at path, creating it, and waits for other processes (and other holders in this one) until ctx is done.
// The lock is advisory (flock); it ends with the process. The file stays: deleting it would let two processes hold it.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, Full(err, path, 0)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o664)
	if err != nil {
		return nil, Full(err, path, 0)
	}
	// Polling, because a blocking flock cannot be interrupted by ctx. The wait is for downloads: 50 ms is nothing beside them.
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing the only descriptor releases the lock
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for %s, which another process holds: %w", path, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Local reports whether a slash-separated path from elsewhere stays inside the folder it is joined to.
func Local(path string) bool {
	return path != "" && !strings.ContainsAny(path, "\\\x00") && filepath.IsLocal(filepath.FromSlash(path))
}

// Progress is told how far the transfer of one file is. Calls for one transfer come in order and from one goroutine at a time;
// the last has done == total. total is -1 while unknown.
type Progress interface {
	Progress(file string, done, total int64)
}

// SHA256Of is the lower-case hex sha256 of b.
func SHA256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Map hands over what a file holds without reading it: weights of a gigabyte must not become garbage of the heap. The bytes are there until
// use returns, whose error it returns as it is; an empty file has none.
func Map(path string, use func(b []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		return use(nil)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return &fs.PathError{Op: "mmap", Path: path, Err: err}
	}
	defer unix.Munmap(b) //nolint:errcheck // nothing to do about it
	return use(b)
}
