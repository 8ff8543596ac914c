package wheel_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ragate/models/wheel"
)

func zipped(f *testing.F, members ...string) []byte {
	f.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		m, err := w.Create(members[i])
		if err == nil {
			_, err = m.Write([]byte(members[i+1]))
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}

// FuzzExtract: whatever the archive, nothing is written outside of the folder, and what is said to be written is there.
func FuzzExtract(f *testing.F) {
	f.Add(zipped(f, "a/b.txt", "hello", "a/c.txt", "hello", "d", ""))
	f.Add(zipped(f, "../out", "x"))
	f.Add(zipped(f, "/etc/out", "x", "a/../../out", "y"))
	f.Add(zipped(f, "a", "x", "a/b", "y", "a", "z"))
	f.Add(zipped(f, "dir/", "", `c:\x`, "x", "a//b", "y", "a\x00b", "z", strings.Repeat("n", 300), "long"))
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		path, dir := filepath.Join(root, "x.whl"), filepath.Join(root, "in", "side")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := zip.NewReader(bytes.NewReader(data), int64(len(data))); err == nil {
			total := uint64(0)
			for _, m := range r.File {
				total += m.UncompressedSize64
			}
			if total > 1<<20 { // wheels are pinned by hash; what a stranger's would unpack to is not of interest
				return
			}
		}
		got, err := wheel.Extract(path, dir, func(member string) (string, bool) { return member, true }, nil)
		if err == nil {
			for _, file := range got {
				st, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(file.Path)))
				if err != nil || file.Link == "" && st.Size() != file.Size || (file.Link != "") != (st.Mode()&fs.ModeSymlink != 0) {
					t.Fatalf("%+v is not there: %v", file, err)
				}
			}
		}
		_ = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || at == path {
				return err
			}
			if rel, err := filepath.Rel(dir, at); err != nil || !filepath.IsLocal(rel) {
				t.Fatalf("%s was written", at)
			}
			if real, err := filepath.EvalSymlinks(at); err == nil && !strings.HasPrefix(real, root) {
				t.Fatalf("%s leads to %s", at, real)
			}
			return nil
		})
	})
}
