package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"ragate/models/onnxpb"
)

// How the cache stays right without locks: a rewritten model lies at dir/SOURCE-VERSION/HASH.onnx, HASH being its own sha256, and
// record.json beside it names HASH. Both are written to a temporary file and renamed into place, the model first. So a record only ever
// names a file that was complete, two processes that make the same thing replace a file by an equal one, and whatever a crash, a full
// disk or a bad sector left is seen by the hash and made again.

const (
	recordName = "record.json"
	tempPrefix = ".tmp-"
	// tempAge is how old a temporary file must be to be taken for a crashed process's: far longer than writing a model takes.
	tempAge = time.Hour
)

// Source is the model file a rewrite starts from.
type Source struct {
	Path   string
	SHA256 string // of the file, hex; checked when the file is read
}

// CacheEntry is a rewritten model on disk.
type CacheEntry struct {
	Path   string
	SHA256 string // of the file at Path, hex; checked just now
	Made   bool   // false when it was there already
}

// HashError is returned when the source file is not the one its hash names.
type HashError struct{ Path, Want, Got string }

func (e *HashError) Error() string {
	return fmt.Sprintf("%s has sha256 %s, not %s: it was changed or damaged; fetch it again", e.Path, e.Got, e.Want)
}

// CacheError is returned when a rewritten model cannot be kept.
type CacheError struct {
	Dir  string
	Size int64 // bytes to be written
	Err  error
}

func (e *CacheError) Error() string {
	return fmt.Sprintf("cannot keep a rewritten model of %d bytes in %s: %v; free space there or choose another folder", e.Size, e.Dir, e.Err)
}

func (e *CacheError) Unwrap() error { return e.Err }

// record is what lies beside a rewritten model.
type record struct {
	SHA256   string         `json:"sha256"`
	Size     int64          `json:"size"`
	Source   string         `json:"source_sha256"`
	Rewrite  string         `json:"rewrite"`
	External []externalFile `json:"external,omitempty"`
}

type externalFile struct {
	Location string `json:"location"`
	Size     int64  `json:"size"`
}

var keyPart = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Cached returns src as rewritten by rewrite, from dir when it was made before. version must name what rewrite does and change with it;
// several rewrites joined with "+" are one. What is found is checked against its recorded hash; what is missing or damaged is made again.
// External weight files of the source appear beside the result, as hard links where the file system allows and as copies elsewhere, so
// that the relative paths in the model hold.
//
// Processes may share dir. The errors are *HashError, *CacheError, what rewrite returns, and failures to read the source.
func Cached(dir string, src Source, version string, rewrite func(model []byte) ([]byte, error)) (CacheEntry, error) {
	if !keyPart.MatchString(src.SHA256) || !keyPart.MatchString(strings.ReplaceAll(version, "+", "_")) {
		return CacheEntry{}, fmt.Errorf("a cache key needs a hash and a version of letters, digits and ._+-, not %q and %q", src.SHA256, version)
	}
	dir = filepath.Join(dir, src.SHA256+"-"+version)
	if r, ok := lookup(dir); ok {
		return CacheEntry{Path: filepath.Join(dir, r.SHA256+".onnx"), SHA256: r.SHA256}, nil
	}
	model, err := os.ReadFile(src.Path)
	if err != nil {
		return CacheEntry{}, err
	}
	if got := hash(model); got != strings.ToLower(src.SHA256) {
		return CacheEntry{}, &HashError{Path: src.Path, Want: src.SHA256, Got: got}
	}
	out, err := rewrite(model)
	if err != nil {
		return CacheEntry{}, err
	}
	r := record{SHA256: hash(out), Size: int64(len(out)), Source: src.SHA256, Rewrite: version}
	locations, err := externalFiles(out)
	if err != nil {
		return CacheEntry{}, fmt.Errorf("the rewrite %s made an unreadable model of %s: %w", version, src.Path, err)
	}
	if err := store(dir, filepath.Dir(src.Path), out, &r, locations); err != nil {
		return CacheEntry{}, &CacheError{Dir: dir, Size: r.Size, Err: err}
	}
	return CacheEntry{Path: filepath.Join(dir, r.SHA256+".onnx"), SHA256: r.SHA256, Made: true}, nil
}

// lookup reads the record in dir and tells whether what it names is there, whole.
func lookup(dir string) (record, bool) {
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return record{}, false
	}
	var r record
	if json.Unmarshal(b, &r) != nil || !keyPart.MatchString(r.SHA256) {
		return record{}, false
	}
	f, err := os.Open(filepath.Join(dir, r.SHA256+".onnx"))
	if err != nil {
		return record{}, false
	}
	defer f.Close()
	h := sha256.New()
	if n, err := io.Copy(h, f); err != nil || n != r.Size || hex.EncodeToString(h.Sum(nil)) != r.SHA256 {
		return record{}, false
	}
	for _, e := range r.External {
		st, err := os.Stat(filepath.Join(dir, e.Location))
		if err != nil || st.Size() != e.Size {
			return record{}, false
		}
	}
	return r, true
}

// store writes the model, its external files and then the record.
func store(dir, srcDir string, model []byte, r *record, locations []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	removeStale(dir)
	for _, l := range locations {
		size, err := placeExternal(srcDir, dir, l)
		if err != nil {
			return fmt.Errorf("external weights %s: %w", l, err)
		}
		r.External = append(r.External, externalFile{Location: l, Size: size})
	}
	if err := writeAtomic(filepath.Join(dir, r.SHA256+".onnx"), model); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(filepath.Join(dir, recordName), append(b, '\n'))
}

// removeStale deletes temporary files that a crashed process left.
func removeStale(dir string) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range es {
		if st, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), tempPrefix) && time.Since(st.ModTime()) > tempAge {
			os.Remove(filepath.Join(dir, e.Name())) // a failure costs only space, and the next store tries again
		}
	}
}

// writeAtomic makes path hold b, or leaves it as it was.
func writeAtomic(path string, b []byte) error {
	return replace(path, func(f *os.File) error {
		_, err := f.Write(b)
		return err
	})
}

// replace fills a temporary file beside path, brings it to the disk and renames it to path. On an error the temporary file is gone.
func replace(path string, fill func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// placeExternal makes the weights file of that relative location appear under dir and returns its size. A hard link costs no space. It is
// made to what a symbolic link in the source folder points to, since runtimes refuse external weights that lead out of the model's folder.
func placeExternal(srcDir, dir, location string) (int64, error) {
	if !filepath.IsLocal(location) {
		return 0, fmt.Errorf("the path leads out of the model's folder")
	}
	from, err := filepath.EvalSymlinks(filepath.Join(srcDir, location))
	if err != nil {
		return 0, err
	}
	st, err := os.Stat(from)
	if err != nil {
		return 0, err
	}
	to := filepath.Join(dir, location)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return 0, err
	}
	if have, err := os.Lstat(to); err == nil && os.SameFile(st, have) {
		return st.Size(), nil
	}
	// Linking to a temporary name first replaces what is there in one step.
	tmp := filepath.Join(filepath.Dir(to), fmt.Sprintf("%slink-%d-%d", tempPrefix, os.Getpid(), time.Now().UnixNano()))
	if os.Link(from, tmp) == nil {
		err := os.Rename(tmp, to)
		os.Remove(tmp) // renaming onto a link of the same file leaves it
		return st.Size(), err
	}
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	return st.Size(), replace(to, func(f *os.File) error {
		n, err := io.Copy(f, in)
		if err == nil && n != st.Size() {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// externalFiles lists the files a model keeps weights in, sorted.
func externalFiles(model []byte) ([]string, error) {
	m, err := onnxpb.Parse(model)
	if err != nil {
		return nil, err
	}
	var out []string
	var walk func(g *onnxpb.Graph)
	walk = func(g *onnxpb.Graph) {
		for _, t := range g.Initializers {
			if t.External.Location != "" {
				out = append(out, t.External.Location)
			}
		}
		for _, n := range g.Nodes {
			for _, a := range n.Attrs {
				if a.Tensor != nil && a.Tensor.External.Location != "" {
					out = append(out, a.Tensor.External.Location)
				}
				for _, sub := range a.Graphs {
					walk(sub)
				}
			}
		}
	}
	walk(m.Graph)
	slices.Sort(out)
	return slices.Compact(out), nil
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
