package models

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ragate/models/internal/files"
)

// FileState is what Verify found of one file.
type FileState string

const (
	FileOK       FileState = "ok"
	FileMissing  FileState = "missing"
	FileChanged  FileState = "changed"
	FileExtra    FileState = "extra"    // not pinned, beside files that are: harmless, and worth knowing
	FileUnpinned FileState = "unpinned" // of a local folder: nothing to compare with
)

// FileReport is Verify's finding on one file. Want and Got are "sha256:…", "size:…" or "link:…".
type FileReport struct {
	Path      string
	State     FileState
	Want, Got string
}

// Report is Verify's finding on a model.
type Report struct {
	Model    string
	Source   Source
	Revision string
	Dir      string
	Files    []FileReport // sorted by path
	// Tokenizer is the model's tokenizer file, "" when the files are not as pinned, and Golden the reference that lies beside it (see
	// GoldenFile), "" for none.
	Tokenizer, Golden string
	// Err is why a model cannot be used although its files are as pinned.
	Err error
}

// OK reports whether every pinned file is there and as pinned.
func (r Report) OK() bool {
	return !slices.ContainsFunc(r.Files, func(f FileReport) bool { return f.State == FileMissing || f.State == FileChanged })
}

// Verify compares all files of a model with the catalogue or the lock file. A difference is in the report, not an error.
func (s *Store) Verify(ref string) (Report, error) {
	r, err := parseRef(ref)
	if err != nil {
		return Report{}, err
	}
	if r.folder != "" {
		return verifyLocal(r)
	}
	var pinned []files.File
	rep := Report{Model: r.name()}
	in := folderOf{id: r.name(), aliases: r.aliases(), entry: r.entry}
	if r.packaged {
		rep.Source, rep.Dir, rep.Revision = SourcePackage, s.modelDir(r.entry.ID), r.entry.Package.Wheel.Name+"-"+r.entry.Package.Wheel.Version
		pinned = r.entry.Package.Files
	} else {
		l, err := s.readLock()
		if err != nil {
			return Report{}, err
		}
		locked, ok := l.Models[r.key()]
		if !ok {
			return Report{}, &NotPresentError{What: "model " + ref, Dir: s.lockPath(), Fix: fmt.Sprintf("fetch it with `ragate models pull %s`", ref)}
		}
		c, err := s.hub()
		if err != nil {
			return Report{}, err
		}
		rep.Source, rep.Dir, rep.Revision = SourceHub, c.Snapshot(r.repo, locked.Commit), locked.Commit
		in.graph = locked.Graph
		for _, f := range locked.Files {
			pinned = append(pinned, f.File)
		}
	}
	if rep.Files, err = compare(rep.Dir, pinned); err != nil {
		return rep, err
	}
	in.dir = rep.Dir
	for _, f := range pinned {
		in.paths = append(in.paths, f.Path)
	}
	return rep, rep.findTokenizer(in, s.modelDir(r.name()))
}

// VerifyRuntime compares all files of the ONNX Runtime library with what was recorded when they were extracted.
func (s *Store) VerifyRuntime() (Report, error) {
	rt, ok := s.runtimeHere()
	if !ok {
		_, err := s.RuntimeLibrary()
		return Report{}, err
	}
	dir := s.runtimeDir(rt)
	rep := Report{Model: rt.wheel.String(), Source: SourcePackage, Revision: rt.wheel.Version, Dir: dir}
	pinned, err := readRuntimeRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		rep.Files = []FileReport{{Path: runtimeRecord, State: FileMissing}}
		return rep, nil
	}
	if err != nil {
		return Report{}, err
	}
	rep.Files, err = compare(dir, pinned)
	rep.Files = slices.DeleteFunc(rep.Files, func(f FileReport) bool { return f.Path == runtimeRecord })
	return rep, err
}

func compare(dir string, pinned []files.File) ([]FileReport, error) {
	present, err := files.List(dir)
	if err != nil {
		return nil, err
	}
	var out []FileReport
	known := map[string]bool{OverrideFile: true, GoldenFile: true}
	for _, f := range pinned {
		known[f.Path] = true
		fr := FileReport{Path: f.Path, State: FileOK}
		err := files.Check(dir, f)
		var wrong *MismatchError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fr.State, fr.Want = FileMissing, "sha256:"+f.SHA256
		case errors.As(err, &wrong):
			fr.State, fr.Want, fr.Got = FileChanged, wrong.Want, wrong.Got
		case err != nil:
			return nil, err
		}
		out = append(out, fr)
	}
	for _, p := range present {
		if !known[p] {
			out = append(out, FileReport{Path: p, State: FileExtra})
		}
	}
	slices.SortFunc(out, func(a, b FileReport) int { return cmp.Compare(a.Path, b.Path) })
	return out, nil
}

func verifyLocal(r reference) (Report, error) {
	rep := Report{Model: r.name(), Source: SourceLocal, Dir: r.folder}
	paths, err := files.List(r.folder)
	if err != nil {
		return Report{}, err
	}
	onnx, err := chooseGraph(r.name(), paths, r.file)
	if err != nil {
		return Report{}, err
	}
	for _, p := range wanted(onnx, paths) {
		sum, _, err := files.SHA256(filepath.Join(r.folder, filepath.FromSlash(p)))
		if err != nil {
			return Report{}, err
		}
		rep.Files = append(rep.Files, FileReport{Path: p, State: FileUnpinned, Got: "sha256:" + sum})
	}
	return rep, rep.findTokenizer(folderOf{id: r.name(), dir: r.folder, paths: paths, graph: r.file}, r.folder)
}

// Listed is one line of List.
type Listed struct {
	Reference string // what to give to Resolve, Pull and Verify
	ID        string
	Aliases   []string
	Kind      Kind     // KindUnknown for models outside the catalogue: only reading their files tells
	Languages []string // likewise; see Manifest.Languages
	Source    Source
	Revision  string // the commit or the package; "" when not fetched yet
	Default   bool   // served when nothing else is asked for
	Present   bool   // all files are there, by name and size
	Dir       string
	Bytes     int64    // of all its files; 0 when unknown
	License   string   // by its SPDX name; "" for models outside the catalogue
	Remarks   []string // what to know before choosing it, in sentences: which weights, what its licence asks, where its ONNX export is
}

// List returns the catalogue and all locked models: what is here and what could be.
func (s *Store) List() ([]Listed, error) {
	l, err := s.readLock()
	if err != nil {
		return nil, err
	}
	c, err := s.hub()
	if err != nil {
		return nil, err
	}
	here := func(x *Listed, pinned []files.File) {
		x.Present = len(pinned) > 0
		for _, f := range pinned {
			x.Bytes += f.Size
			if files.CheckSize(x.Dir, f) != nil {
				x.Present = false
			}
		}
	}
	var out []Listed
	listed := map[string]bool{}
	fromLock := func(x Listed, repo string, locked lockedBase) Listed {
		x.Revision, x.Dir = locked.Commit, c.Snapshot(repo, locked.Commit)
		var pinned []files.File
		for _, f := range locked.Files {
			pinned = append(pinned, f.File)
		}
		here(&x, pinned)
		return x
	}
	for _, e := range Catalogue() {
		x := Listed{Reference: e.ID, ID: e.ID, Aliases: e.Aliases, Kind: e.Kind, Languages: e.Languages, Source: SourceHub, Default: isDefault(e.ID), License: e.License,
			Remarks: e.remarks(e.Package != nil)}
		if e.Package != nil {
			x.Source, x.Revision, x.Dir = SourcePackage, e.Package.Wheel.Name+"-"+e.Package.Wheel.Version, s.modelDir(e.ID)
			here(&x, e.Package.Files)
		} else {
			key := e.ID + "@" + DefaultRevision
			if locked, ok := l.Models[key]; ok {
				listed[key] = true
				x = fromLock(x, e.ID, locked)
			}
		}
		out = append(out, x)
	}
	for _, key := range slices.Sorted(maps.Keys(l.Models)) {
		if listed[key] {
			continue
		}
		repo, _, _ := strings.Cut(key, "@")
		x := Listed{Reference: key, ID: repo, Source: SourceHub}
		if e, ok := lookup(repo); ok {
			x.Aliases, x.Kind, x.Languages, x.License, x.Remarks = e.Aliases, e.Kind, e.Languages, e.License, e.remarks(false)
		}
		out = append(out, fromLock(x, repo, l.Models[key]))
	}
	return out, nil
}
