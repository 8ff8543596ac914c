package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ragate/models/hub"
	"ragate/models/internal/files"
)

// lockVersion is the format of the lock file. A newer one is refused: an older program must not drop what it does not know.
const lockVersion = 1

// lockFile records to which commit each reference of the hub was resolved, and what its files held then. It is meant to be kept under
// version control by whoever wants the same model everywhere.
type lockFile struct {
	Version int                   `json:"version"`
	Models  map[string]lockedBase `json:"models"` // "org/name@revision:graph" as in hubRef.key
}

type lockedBase struct {
	// No endpoint: a lock file may come from somebody else, and must not decide where the token is sent. The hashes hold anywhere.
	Commit  string       `json:"commit"`
	Created time.Time    `json:"created,omitzero"` // the repository, as the hub states it
	Graph   string       `json:"graph"`            // the ONNX file
	Files   []lockedFile `json:"files"`            // sorted by path
}

type lockedFile struct {
	files.File
	Etag string `json:"etag,omitempty"` // names the blob in the hub's cache
}

func (s *Store) lockPath() string { return filepath.Join(s.Dir, "models.lock.json") }

func (s *Store) readLock() (lockFile, error) {
	l := lockFile{Version: lockVersion, Models: map[string]lockedBase{}}
	raw, err := os.ReadFile(s.lockPath())
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return l, fmt.Errorf("%s: %w; mend it, or delete it to resolve every model anew", s.lockPath(), err)
	}
	if l.Version != lockVersion {
		return l, fmt.Errorf("%s has format %d and this program knows %d; use a newer ragate", s.lockPath(), l.Version, lockVersion)
	}
	if l.Models == nil { // "models": null
		l.Models = map[string]lockedBase{}
	}
	for key, m := range l.Models {
		if !hub.IsCommit(m.Commit) { // it becomes part of a path
			return l, fmt.Errorf("%s: %s: %q is not a full commit; mend it, or delete the entry to resolve the model anew", s.lockPath(), key, m.Commit)
		}
		if !files.Local(m.Graph) {
			return l, fmt.Errorf("%s: %s: %q is not a path inside the model", s.lockPath(), key, m.Graph)
		}
		for _, f := range m.Files {
			if !files.Local(f.Path) {
				return l, fmt.Errorf("%s: %s: %q is not a path inside the model", s.lockPath(), key, f.Path)
			}
		}
	}
	return l, nil
}

// writeLocked replaces one entry. Several processes may do so at once.
func (s *Store) writeLocked(ctx context.Context, key string, m lockedBase) error {
	unlock, err := files.Lock(ctx, filepath.Join(s.Dir, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	l, err := s.readLock()
	if err != nil {
		return err
	}
	l.Models[key] = m
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return err
	}
	return files.Write(s.lockPath(), b.Bytes())
}
