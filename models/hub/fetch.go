package hub

// How a blob comes to be: under its lock, bytes are appended to <etag>.incomplete, which survives a broken transfer and is gone on
// with by whoever asks next. When all are there they are hashed as one; a wrong hash removes the file, a right one renames it. A
// snapshot link is made after its blob.

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's own content hash: what the hub names small files by
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ragate/models/internal/files"
)

// Fetched is a file in the cache.
type Fetched struct {
	Path   string // in the snapshot of the commit
	Size   int64
	SHA256 string // hex, of the content as it is now
	Etag   string
	Cached bool // no byte was transferred
}

// Fetch makes a file of a commit available in the cache and returns its verified hash. A file already there (by whichever library) is
// verified and used. A content that is not what f and its etag state is a *files.MismatchError, and the file is removed.
func (c *Client) Fetch(ctx context.Context, id, commit string, f RemoteFile, p files.Progress) (Fetched, error) {
	if !ValidID(id) || !IsCommit(commit) || !files.Local(f.Path) {
		return Fetched{}, fmt.Errorf("cannot fetch %q of model %q at %q: not a path, a name and a full commit", f.Path, id, commit)
	}
	if f.Etag == "" {
		// In the cache under this commit already? Then its own name says the etag.
		if got, err := c.Cached(id, commit, f); err == nil {
			return got, nil
		}
		st, err := c.Stat(ctx, id, commit, f.Path)
		if err != nil {
			return Fetched{}, err
		}
		if f.SHA256 != "" && st.SHA256 != "" && f.SHA256 != st.SHA256 {
			return Fetched{}, &files.MismatchError{Path: f.Path, Want: "sha256:" + f.SHA256, Got: "sha256:" + st.SHA256, Source: c.cfg.Endpoint}
		}
		f.Etag = st.Etag
		if f.SHA256 == "" {
			f.SHA256 = st.SHA256
		}
		if f.Size < 0 {
			f.Size = st.Size
		}
	}
	if !etagPattern.MatchString(f.Etag) {
		return Fetched{}, fmt.Errorf("%q is no usable etag for %s of model %s", f.Etag, f.Path, id)
	}
	unlock, err := files.Lock(ctx, c.lockPath(id, f.Etag))
	if err != nil {
		return Fetched{}, err
	}
	defer unlock()

	blob := filepath.Join(c.Repo(id), "blobs", f.Etag)
	out := Fetched{Path: c.pointer(id, commit, f.Path), Etag: f.Etag}
	if _, err := os.Stat(blob); err == nil {
		if out.SHA256, out.Size, err = verify(blob, f); err == nil {
			out.Cached = true
			return out, link(blob, out.Path)
		}
		var wrong *files.MismatchError
		if !errors.As(err, &wrong) {
			return Fetched{}, err
		}
		// The name states a content that the file does not have: damaged, whoever wrote it.
		if err := os.Remove(blob); err != nil {
			return Fetched{}, errors.Join(wrong, err)
		}
	}
	if c.cfg.Offline {
		return Fetched{}, fmt.Errorf("%s of model %s at commit %s is not in %s: %w", f.Path, id, commit, c.cfg.CacheDir, ErrOffline)
	}
	if out.SHA256, out.Size, err = c.download(ctx, id, commit, f, blob, p); err != nil {
		return Fetched{}, err
	}
	return out, link(blob, out.Path)
}

// Cached is Fetch without a network: the file in the snapshot, verified against f and, if it is a link into the cache, the name of
// its blob. Absence satisfies fs.ErrNotExist. Nothing is removed.
func (c *Client) Cached(id, commit string, f RemoteFile) (Fetched, error) {
	if !ValidID(id) || !IsCommit(commit) || !files.Local(f.Path) {
		return Fetched{}, fs.ErrNotExist
	}
	p := c.pointer(id, commit, f.Path)
	if target, err := os.Readlink(p); err == nil && f.Etag == "" {
		// Only a link into our own blobs: some libraries link on to a store of theirs, whose names mean something else.
		if filepath.Base(filepath.Dir(target)) == "blobs" && etagPattern.MatchString(filepath.Base(target)) {
			f.Etag = filepath.Base(target)
		}
	}
	sum, size, err := verify(p, f)
	return Fetched{Path: p, Size: size, SHA256: sum, Etag: f.Etag, Cached: true}, err
}

func (c *Client) pointer(id, commit, file string) string {
	return filepath.Join(c.Snapshot(id, commit), filepath.FromSlash(file))
}

// hashes computes both names a content can have.
type hashes struct {
	sha256, git hash.Hash
}

// newHashes needs the size beforehand, because git hashes it first.
func newHashes(size int64) hashes {
	h := hashes{sha256: sha256.New(), git: sha1.New()} //nolint:gosec // as above
	fmt.Fprintf(h.git, "blob %d\x00", size)
	return h
}

func (h hashes) Write(p []byte) (int, error) {
	h.sha256.Write(p)
	h.git.Write(p)
	return len(p), nil
}

// verify hashes a file and compares it with all that is known of it: size, sha256 and what its etag states.
func verify(path string, f RemoteFile) (sum string, size int64, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", 0, err
	}
	size = st.Size()
	if f.Size >= 0 && size != f.Size {
		return "", size, &files.MismatchError{Path: path, Want: fmt.Sprintf("size:%d", f.Size), Got: fmt.Sprintf("size:%d", size)}
	}
	in, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	h := newHashes(size)
	var w io.Writer = h
	if !sha1Pattern.MatchString(f.Etag) {
		w = h.sha256 // half the work
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, in, make([]byte, 256<<10)); err != nil {
		return "", 0, err
	}
	sum = hex.EncodeToString(h.sha256.Sum(nil))
	want := f.SHA256
	if want == "" && sha256Pattern.MatchString(f.Etag) {
		want = f.Etag
	}
	if want != "" && sum != want {
		return sum, size, &files.MismatchError{Path: path, Want: "sha256:" + want, Got: "sha256:" + sum}
	}
	if sha1Pattern.MatchString(f.Etag) {
		if got := hex.EncodeToString(h.git.Sum(nil)); got != f.Etag {
			return sum, size, &files.MismatchError{Path: path, Want: "git-sha1:" + f.Etag, Got: "git-sha1:" + got}
		}
	}
	return sum, size, nil
}

// download fills blob. The caller holds its lock.
func (c *Client) download(ctx context.Context, id, commit string, f RemoteFile, blob string, p files.Progress) (sum string, size int64, err error) {
	part := blob + ".incomplete"
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		return "", 0, files.Full(err, blob, f.Size)
	}
	if have := sizeOf(part); f.Size > 0 {
		if free := files.Free(filepath.Dir(blob)); free >= 0 && free < f.Size-have {
			return "", 0, &files.DiskFullError{Path: blob, Need: f.Size - have, Free: free}
		}
	}
	// A resumed file whose beginning is wrong is worth one more try from nothing.
	for again := sizeOf(part) > 0; ; again = false {
		err := c.retry(ctx, c.cfg.Attempts, func() (bool, error) { return c.transfer(ctx, id, commit, f, part, p) })
		if err != nil {
			return "", 0, files.Full(err, blob, f.Size)
		}
		sum, size, err = verify(part, f)
		if err == nil {
			break
		}
		var wrong *files.MismatchError
		if errors.As(err, &wrong) {
			if rerr := os.Remove(part); rerr != nil {
				return "", 0, errors.Join(err, rerr)
			}
			if again {
				continue
			}
			wrong.Path, wrong.Removed, wrong.Source = f.Path, true, c.resolveURL(id, commit, f.Path)
		}
		return "", 0, err
	}
	return sum, size, os.Rename(part, blob)
}

func sizeOf(path string) int64 {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return 0
	}
	return st.Size()
}

// transfer appends what is missing to part, in one request. It reports whether any byte came.
func (c *Client) transfer(ctx context.Context, id, commit string, f RemoteFile, part string, p files.Progress) (progress bool, err error) {
	have := sizeOf(part)
	if f.Size >= 0 && have > f.Size {
		if err := os.Remove(part); err != nil {
			return false, err
		}
		have = 0
	}
	if f.Size > 0 && have == f.Size {
		return false, nil // all there, only the hash is missing
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := &stallGuard{cancel: cancel, after: c.cfg.Stall}
	stall.timer = time.AfterFunc(c.cfg.Stall, stall.fire)
	defer stall.timer.Stop()

	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := c.do(ctx, http.MethodGet, c.resolveURL(id, commit, f.Path), header)
	if err != nil {
		return false, stall.explain(err)
	}
	defer resp.Body.Close()
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	switch resp.StatusCode {
	case http.StatusPartialContent:
		var start int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &start); err != nil || start != have {
			return false, fmt.Errorf("%s: asked for bytes from %d, got %q", f.Path, have, resp.Header.Get("Content-Range"))
		}
	case http.StatusOK: // the whole file, whatever was asked for
		have = 0
		flags |= os.O_TRUNC
	case http.StatusRequestedRangeNotSatisfiable:
		// More is here than the file has: start again.
		if err := os.Remove(part); err != nil {
			return false, err
		}
		return false, fmt.Errorf("%s: the part fetched earlier is longer than the file: %w", f.Path, io.ErrUnexpectedEOF)
	default:
		return false, c.status(resp, id, commit, f.Path)
	}
	total := f.Size
	if total < 0 && resp.ContentLength >= 0 {
		total = have + resp.ContentLength
	}
	out, err := os.OpenFile(part, flags, 0o644)
	if err != nil {
		return false, err
	}
	src := io.Reader(resp.Body)
	if total >= 0 {
		src = io.LimitReader(src, total-have+1) // one more than it should have is enough to fail the size check
	}
	w := &meter{out: out, stall: stall, file: f.Path, done: have, total: total, to: p}
	n, err := io.CopyBuffer(w, struct{ io.Reader }{src}, make([]byte, 256<<10))
	if serr := out.Sync(); err == nil {
		err = serr
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk):
		return n > 0, err
	case err != nil:
		return n > 0, &brokenError{stall.explain(err)}
	}
	if total >= 0 && have+n < total {
		return n > 0, fmt.Errorf("%s: %d of %d bytes came: %w", f.Path, have+n, total, io.ErrUnexpectedEOF)
	}
	return n > 0, nil
}

// stallGuard ends a transfer that stands still.
type stallGuard struct {
	cancel context.CancelCauseFunc
	after  time.Duration
	timer  *time.Timer
	mu     sync.Mutex
	fired  bool
}

func (s *stallGuard) fire() {
	s.mu.Lock()
	s.fired = true
	s.mu.Unlock()
	s.cancel(&stalledError{s.after})
}

// explain replaces the cancellation that fire caused by its reason.
func (s *stallGuard) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fired && errors.Is(err, context.Canceled) {
		return &stalledError{s.after}
	}
	return err
}

// meter writes to the file, reports progress and keeps the stall timer from firing.
type meter struct {
	out         *os.File
	stall       *stallGuard
	file        string
	done, total int64
	to          files.Progress
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.out.Write(b)
	m.done += int64(n)
	m.stall.timer.Reset(m.stall.after)
	if m.to != nil {
		m.to.Progress(m.file, m.done, m.total)
	}
	return n, err
}

// link puts a relative link to a blob into a snapshot, replacing a wrong one in one step.
func link(blob, pointer string) error {
	if err := os.MkdirAll(filepath.Dir(pointer), 0o755); err != nil {
		return files.Full(err, pointer, 0)
	}
	target, err := filepath.Rel(filepath.Dir(pointer), blob)
	if err != nil {
		return err
	}
	if old, err := os.Readlink(pointer); err == nil && old == target {
		return nil
	}
	tmp := pointer + ".link-" + strings.ReplaceAll(filepath.Base(blob), ".", "-")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return files.Full(err, pointer, 0)
	}
	return os.Rename(tmp, pointer)
}
