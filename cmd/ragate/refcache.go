package main

import (
	"cmp"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ragate/models"
)

// vectorCache keeps the vectors of reference sets in a folder, one file a set: its fingerprint, and n little-endian float32. It is only a
// cache: a file that is missing, short or not writable means that the set is embedded again.
type vectorCache struct{ dir string }

// referenceCache is the cache in a store.
func referenceCache(s *models.Store) vectorCache {
	return vectorCache{filepath.Join(s.Dir, "references")}
}

// cachedSets is how many sets are kept: the one that runs, and those that somebody who compares models or references goes back to.
const cachedSets = 8

const vectorExt = ".f32"

func (c vectorCache) path(fingerprint string) string {
	return filepath.Join(c.dir, fingerprint+vectorExt)
}

// read returns the n values of a set, and makes it the one that was used last.
func (c vectorCache) read(fingerprint string, n int) ([]float32, bool) {
	path := c.path(fingerprint)
	b, err := os.ReadFile(path)
	if err != nil || len(b) != 4*n {
		return nil, false
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	now := time.Now()
	os.Chtimes(path, now, now) //nolint:errcheck // another user's file goes by the time it was written
	return v, true
}

// write keeps a set, and removes those beyond cachedSets that were not used for longest.
func (c vectorCache) write(fingerprint string, v []float32) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	if err := replaceFile(c.path(fingerprint), b); err != nil {
		return err
	}
	c.prune()
	return nil
}

func (c vectorCache) prune() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type file struct {
		name string
		used time.Time
	}
	var files []file
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), vectorExt) {
			files = append(files, file{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.name, b.name)) })
	for _, f := range files[min(len(files), cachedSets):] {
		os.Remove(filepath.Join(c.dir, f.name))
	}
}

// replaceFile writes a file in one step. A failure leaves what was there.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o644) // as the files of setup, which may have been another user's
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
