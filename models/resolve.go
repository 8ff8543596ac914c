package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ragate/models/graph"
	"ragate/models/hub"
	"ragate/models/internal/files"
)

// Resolve turns a reference into a manifest without a network: a catalogue name, `org/name[@revision][:file.onnx]`, or a folder. All
// files of the model are verified against their pins (catalogue or lock file); a local folder has none, and its hashes are taken as they
// are. What is not on this machine is a *NotPresentError: Pull fetches it.
func (s *Store) Resolve(ctx context.Context, ref string) (Manifest, error) {
	r, err := parseRef(ref)
	if err != nil {
		return Manifest{}, err
	}
	switch {
	case r.folder != "":
		return s.openLocal(r)
	case r.packaged:
		return s.openPackaged(r)
	}
	l, err := s.readLock()
	if err != nil {
		return Manifest{}, err
	}
	locked, ok := l.Models[r.key()]
	if !ok {
		return Manifest{}, &NotPresentError{What: "model " + ref, Dir: s.lockPath(), Fix: fmt.Sprintf("fetch it with `ragate models pull %s`", ref)}
	}
	c, err := s.hub()
	if err != nil {
		return Manifest{}, err
	}
	return s.openLocked(r, locked, c)
}

// Ensure is Resolve, and Pull when the model is not on this machine.
func (s *Store) Ensure(ctx context.Context, ref string, p Progress) (Manifest, error) {
	m, err := s.Resolve(ctx, ref)
	var absent *NotPresentError
	if errors.As(err, &absent) {
		return s.Pull(ctx, ref, p)
	}
	return m, err
}

// Pull fetches what is missing of a model and resolves it. A model of the hub is resolved to a commit at the first pull, recorded in the
// lock file with the sha256 of every file, and stays there. In offline mode a copy in the hub's cache is adopted the same way. A damaged
// copy is replaced. A local folder is only checked.
func (s *Store) Pull(ctx context.Context, ref string, p Progress) (Manifest, error) {
	return s.pull(ctx, ref, p, false)
}

// Update is Pull that asks the hub anew what the revision is, and moves the lock there.
func (s *Store) Update(ctx context.Context, ref string, p Progress) (Manifest, error) {
	return s.pull(ctx, ref, p, true)
}

func (s *Store) pull(ctx context.Context, ref string, p Progress, anew bool) (Manifest, error) {
	r, err := parseRef(ref)
	if err != nil {
		return Manifest{}, err
	}
	switch {
	case r.folder != "":
		return s.openLocal(r)
	case r.packaged:
		if err := s.setupPackaged(ctx, p, []Entry{*r.entry}); err != nil {
			return Manifest{}, err
		}
		return s.openPackaged(r)
	}
	l, err := s.readLock()
	if err != nil {
		return Manifest{}, err
	}
	locked, isLocked := l.Models[r.key()]
	c, err := s.hub()
	if err != nil {
		return Manifest{}, err
	}
	if isLocked && !anew {
		if err := fetchLocked(ctx, c, r, locked, p); err != nil {
			return Manifest{}, err
		}
		return s.openLocked(r, locked, c)
	}
	if c.Offline() {
		locked, err = adoptCached(c, r)
	} else {
		locked, err = fetchNew(ctx, c, r, p)
	}
	if err != nil {
		return Manifest{}, err
	}
	// Opened before it is recorded: a model that cannot be used must not be held on to.
	m, err := s.openLocked(r, locked, c)
	if err != nil {
		return Manifest{}, err
	}
	return m, s.writeLocked(ctx, r.key(), locked)
}

// wanted says which files of a repository belong to a model with that graph.
func wanted(graph string, paths []string) []string {
	data := externalData(graph, paths)
	var out []string
	for _, p := range paths {
		base, dir := path.Base(p), path.Dir(p)
		depth := strings.Count(p, "/")
		keep := false
		switch base {
		case "config.json":
			keep = depth <= 1 && dir != "openvino" // also those of modules, which modules.json may call anything: 1_Pooling, 2_Dense
		case tokenizerFile, sentencePieceFile, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt":
			keep = depth == 0 || dir == path.Dir(graph) || depth == 1 && strings.HasPrefix(dir, "0_")
		case "modules.json", "config_sentence_transformers.json", cardFile, GoldenFile:
			keep = depth == 0
		}
		if strings.HasPrefix(base, "sentence_") && strings.HasSuffix(base, "_config.json") {
			keep = keep || depth <= 1
		}
		if keep || p == graph || slices.Contains(data, p) {
			out = append(out, p)
		}
	}
	if slices.ContainsFunc(out, named(tokenizerFile)) {
		out = slices.DeleteFunc(out, named(sentencePieceFile)) // five megabytes that nothing would read
	}
	return out
}

// named says of a path whether its last part is name.
func named(name string) func(string) bool {
	return func(p string) bool { return path.Base(p) == name }
}

// askedFile is the ONNX file a reference wants: its own, else the catalogue's.
func askedFile(r reference) string {
	if r.file == "" && r.entry != nil {
		return r.entry.HubFile
	}
	return r.file
}

// elsewhere adds to the error of a repository without an ONNX file where there is one.
func elsewhere(r reference, err error) error {
	var which *AmbiguousGraphError
	if errors.As(err, &which) && len(which.Choices) == 0 && r.entry != nil {
		which.Elsewhere = r.entry.Elsewhere
	}
	return err
}

// fetchNew asks what the revision holds now and fetches it.
func fetchNew(ctx context.Context, c *hub.Client, r reference, p Progress) (lockedBase, error) {
	m, err := c.Model(ctx, r.repo, r.revision)
	if err != nil {
		return lockedBase{}, err
	}
	byPath := map[string]hub.RemoteFile{}
	var paths []string
	for _, f := range m.Files {
		byPath[f.Path] = f
		paths = append(paths, f.Path)
	}
	onnx, err := chooseGraph(r.repo, paths, askedFile(r))
	if err != nil {
		return lockedBase{}, elsewhere(r, err)
	}
	want := wanted(onnx, paths)
	if !slices.ContainsFunc(want, named(tokenizerFile)) && !slices.ContainsFunc(want, named(sentencePieceFile)) {
		return lockedBase{}, &LoadError{Model: r.repo, Reason: "the repository has neither " + tokenizerFile + " nor " + sentencePieceFile, Fix: "use a model that has one"}
	}
	locked := lockedBase{Commit: m.Commit, Created: m.Created, Graph: onnx}
	get := func(name string) (hub.Fetched, error) {
		got, err := c.Fetch(ctx, r.repo, m.Commit, byPath[name], p)
		if err == nil {
			locked.Files = append(locked.Files, lockedFile{File: files.File{Path: name, Size: got.Size, SHA256: got.SHA256}, Etag: got.Etag})
		}
		return got, err
	}
	graphPath := ""
	for _, name := range want {
		got, err := get(name)
		if err != nil {
			return lockedBase{}, err
		}
		if name == onnx {
			graphPath = got.Path
		}
	}
	// The graph itself says for certain which files hold its weights.
	more, err := otherWeights(r, graphPath, onnx, want)
	if err != nil {
		return lockedBase{}, err
	}
	for _, name := range more {
		if _, ok := byPath[name]; !ok {
			return lockedBase{}, &LoadError{Model: r.repo, Path: onnx, Reason: fmt.Sprintf("its weights are in %s, which the repository does not have", name)}
		}
		if _, err := get(name); err != nil {
			return lockedBase{}, err
		}
	}
	slices.SortFunc(locked.Files, func(a, b lockedFile) int { return cmp.Compare(a.Path, b.Path) })
	return locked, c.SetRef(r.repo, r.revision, m.Commit)
}

// otherWeights lists the files beside the graph that hold weights of it and are not among have, by the graph's own word: exporters name
// them as they like.
func otherWeights(r reference, graphPath, onnx string, have []string) (names []string, err error) {
	facts, _, err := inspect(graphPath)
	if err != nil {
		return nil, &LoadError{Model: r.repo, Path: graphPath, Reason: "not an ONNX file", Err: err}
	}
	for _, name := range facts.ExternalData {
		if name = path.Join(path.Dir(onnx), name); !slices.Contains(have, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// fetchLocked makes every locked file present again at its commit.
func fetchLocked(ctx context.Context, c *hub.Client, r reference, locked lockedBase, p Progress) error {
	for _, f := range locked.Files {
		rf := hub.RemoteFile{Path: f.Path, Size: f.Size, Etag: f.Etag, SHA256: f.SHA256}
		if _, err := c.Cached(r.repo, locked.Commit, rf); err == nil {
			continue
		}
		if _, err := c.Fetch(ctx, r.repo, locked.Commit, rf, p); err != nil {
			var status *hub.StatusError
			if errors.As(err, &status) && status.Status == 404 {
				return fmt.Errorf("%w; the lock file %s holds the model at commit %s: `ragate models pull --update %s` moves it", err, "models.lock.json", locked.Commit, r.text)
			}
			return err
		}
	}
	return nil
}

// adoptCached locks the copy that the hub's cache has, in offline mode.
func adoptCached(c *hub.Client, r reference) (lockedBase, error) {
	absent := func(err error) (lockedBase, error) {
		return lockedBase{}, &NotPresentError{What: fmt.Sprintf("model %s at revision %s", r.repo, r.revision), Dir: c.Repo(r.repo),
			Fix: "unset HF_HUB_OFFLINE and pull it once, or copy a hub cache that has it", Err: errors.Join(hub.ErrOffline, err)}
	}
	commit, ok := c.CachedCommit(r.repo, r.revision)
	if !ok {
		return absent(nil)
	}
	paths, err := c.CachedFiles(r.repo, commit)
	if err != nil {
		return lockedBase{}, err
	}
	onnx, err := chooseGraph(r.repo, paths, askedFile(r))
	if err != nil {
		return absent(elsewhere(r, err))
	}
	locked := lockedBase{Commit: commit, Graph: onnx}
	want := wanted(onnx, paths)
	more, err := otherWeights(r, filepath.Join(c.Snapshot(r.repo, commit), filepath.FromSlash(onnx)), onnx, want)
	if err != nil {
		return lockedBase{}, err
	}
	for _, name := range append(want, more...) {
		got, err := c.Cached(r.repo, commit, hub.RemoteFile{Path: name, Size: -1})
		if err != nil {
			return absent(err)
		}
		locked.Files = append(locked.Files, lockedFile{File: files.File{Path: name, Size: got.Size, SHA256: got.SHA256}, Etag: got.Etag})
	}
	return locked, nil
}

// openLocked verifies a model of the hub against its lock and reads it.
func (s *Store) openLocked(r reference, locked lockedBase, c *hub.Client) (Manifest, error) {
	dir := c.Snapshot(r.repo, locked.Commit)
	list := make([]files.File, len(locked.Files))
	for i, f := range locked.Files {
		list[i] = f.File
	}
	paths, err := checkPins(r, dir, list)
	if err != nil {
		return Manifest{}, err
	}
	o, err := readOverride(s.modelDir(r.repo))
	if err != nil {
		return Manifest{}, &LoadError{Model: r.name(), Reason: "the user's declarations cannot be used", Err: err}
	}
	o.Graph = nil // the lock decides
	m, err := readManifest(folderOf{id: r.name(), aliases: r.aliases(), dir: dir, paths: paths, graph: locked.Graph, entry: r.entry, override: o})
	if err != nil {
		return Manifest{}, err
	}
	m.Source, m.Revision, m.Created = SourceHub, locked.Commit, locked.Created
	if m.Created.IsZero() && r.entry != nil {
		m.Created = r.entry.Created
	}
	return finish(r, m, list)
}

// openPackaged verifies a model out of a package against the catalogue and reads it.
func (s *Store) openPackaged(r reference) (Manifest, error) {
	e := r.entry
	dir, err := filepath.Abs(s.modelDir(e.ID))
	if err != nil {
		return Manifest{}, err
	}
	paths, err := checkPins(r, dir, e.Package.Files)
	if err != nil {
		return Manifest{}, err
	}
	o, err := readOverride(dir)
	if err != nil {
		return Manifest{}, &LoadError{Model: e.ID, Reason: "the user's declarations cannot be used", Err: err}
	}
	m, err := readManifest(folderOf{id: e.ID, aliases: e.Aliases, dir: dir, paths: paths, entry: e, override: o})
	if err != nil {
		return Manifest{}, err
	}
	m.Source, m.Created = SourcePackage, e.Created
	m.Revision = e.Package.Wheel.Name + "-" + e.Package.Wheel.Version
	return finish(r, m, e.Package.Files)
}

// openLocal reads a folder of the user's.
func (s *Store) openLocal(r reference) (Manifest, error) {
	paths, err := files.List(r.folder)
	if err != nil {
		return Manifest{}, err
	}
	o, err := readOverride(r.folder)
	if err != nil {
		return Manifest{}, &LoadError{Model: r.name(), Reason: "the user's declarations cannot be used", Err: err}
	}
	entry, err := recognise(r, paths, o)
	if err != nil {
		return Manifest{}, err
	}
	m, err := readManifest(folderOf{id: r.name(), dir: r.folder, paths: paths, graph: r.file, entry: entry, override: o})
	if err != nil {
		return Manifest{}, err
	}
	st, err := os.Stat(m.GraphPath)
	if err != nil {
		return Manifest{}, err
	}
	m.Source, m.Created = SourceLocal, st.ModTime().UTC()
	return finish(r, m, nil)
}

// recognise finds the catalogue's entry for a copied folder by the graph's content, so that a copy of a packaged model, whose files lack
// its pooling and prompts, means what the original means. The hash is taken only where the size fits.
func recognise(r reference, paths []string, o override) (*Entry, error) {
	asked := r.file
	if asked == "" && o.Graph != nil {
		asked = *o.Graph
	}
	onnx, err := chooseGraph(r.name(), paths, asked)
	if err != nil {
		return nil, err
	}
	for _, e := range Catalogue() {
		if e.Package == nil {
			continue
		}
		for _, f := range e.Package.Files {
			if strings.HasSuffix(f.Path, ".onnx") && files.Check(r.folder, files.File{Path: onnx, Size: f.Size, SHA256: f.SHA256}) == nil {
				return &e, nil
			}
		}
	}
	return nil, nil
}

func damaged(r reference, err error) error {
	return &LoadError{Model: r.name(), Reason: "its files are not the pinned ones", Err: err, Fix: fmt.Sprintf("`ragate models pull %s` replaces them", r.text)}
}

// checkPins verifies a model's files and returns their paths. Of ONNX files only the size is compared: finish hashes the one that is
// used, and hashing a gigabyte twice is felt.
func checkPins(r reference, dir string, list []files.File) (paths []string, err error) {
	for _, f := range list {
		if strings.HasSuffix(f.Path, ".onnx") {
			err = files.CheckSize(dir, f)
		} else {
			err = files.Check(dir, f)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fix := fmt.Sprintf("fetch it with `ragate models pull %s`", r.text)
			if r.packaged {
				fix += ", or all that a fresh machine needs with `ragate setup`"
			}
			return nil, &NotPresentError{What: f.Path + " of model " + r.name(), Dir: dir, Fix: fix, Err: err}
		case err != nil:
			return nil, damaged(r, err)
		}
		paths = append(paths, f.Path)
	}
	return paths, nil
}

// finish fills the hashes, compares the graph's with its pin, and reads what the graph file says of itself.
func finish(r reference, m Manifest, pinned []files.File) (Manifest, error) {
	facts, sum, err := inspect(m.GraphPath)
	if sum != "" { // a graph that is not the pinned one need not be readable either
		for _, f := range pinned {
			if full := filepath.Join(m.Dir, filepath.FromSlash(f.Path)); full == m.GraphPath && f.SHA256 != sum {
				return Manifest{}, damaged(r, &MismatchError{Path: full, Want: "sha256:" + f.SHA256, Got: "sha256:" + sum})
			}
		}
	}
	if err != nil {
		return Manifest{}, &LoadError{Model: m.ID, Path: m.GraphPath, Reason: "the graph cannot be read", Err: err}
	}
	if err := m.boundByPositions(facts.Positions); err != nil {
		return Manifest{}, err
	}
	if r.entry != nil {
		m.License, m.Remarks = r.entry.License, r.entry.remarks(r.packaged)
	}
	m.GraphSHA256 = sum
	m.DType, m.Dynamic = facts.DType, facts.Dynamic
	m.ExternalData = nil
	for _, name := range facts.ExternalData {
		p := filepath.Join(filepath.Dir(m.GraphPath), filepath.FromSlash(name))
		if _, err := os.Stat(p); err != nil {
			return Manifest{}, &LoadError{Model: m.ID, Path: m.GraphPath, Reason: fmt.Sprintf("its weights are in %s, which is not there", name), Err: err}
		}
		m.ExternalData = append(m.ExternalData, p)
	}
	if m.TokenizerSHA256, _, err = files.SHA256(m.TokenizerPath); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// graphFacts is what is kept of graph.Facts.
type graphFacts struct {
	DType        string
	Dynamic      bool
	Positions    int64
	ExternalData []string
}

// inspect hashes a graph file and reads what it says of itself; the hash is set also when the content cannot be
// understood. Nothing returned points into the mapping.
func inspect(file string) (out graphFacts, sum string, err error) {
	err = files.Map(file, func(b []byte) error {
		if len(b) == 0 || len(b) > 1<<31 {
			return fmt.Errorf("%d bytes cannot be an ONNX file, which has at most 2 GiB; larger weights stand beside it", len(b))
		}
		sum = files.SHA256Of(b)
		facts, err := graph.Inspect(b)
		if err != nil {
			return err
		}
		out = graphFacts{DType: strings.Clone(facts.WeightType.String()), Dynamic: facts.DynamicallyQuantized, Positions: facts.Positions}
		for _, name := range facts.ExternalData {
			if !files.Local(name) {
				return fmt.Errorf("its weights are in %q, which is not a path beside it", name)
			}
			out.ExternalData = append(out.ExternalData, strings.Clone(name))
		}
		return nil
	})
	if err != nil {
		return graphFacts{}, sum, err
	}
	return out, sum, nil
}
