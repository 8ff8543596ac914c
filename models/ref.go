package models

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ragate/models/hub"
)

// DefaultRevision is asked for when a reference names none.
const DefaultRevision = "main"

// reference is a parsed model reference. A folder is local; a repo is the hub's unless packaged.
type reference struct {
	text  string // as written
	entry *Entry // the catalogue's, when it knows the model

	repo     string // org/name on the hub; "" for a local folder
	revision string // never "" with repo
	file     string // ONNX file asked for
	packaged bool   // the package's copy is meant

	folder string // absolute; "" unless local
}

// key names a reference of the hub in the lock file.
func (r reference) key() string {
	k := r.repo + "@" + r.revision
	if r.file != "" {
		k += ":" + r.file
	}
	return k
}

// name is what the model is called in lists and messages.
func (r reference) name() string {
	switch {
	case r.folder != "":
		return filepath.Base(r.folder)
	case r.entry != nil:
		return r.entry.ID
	}
	return r.repo
}

func (r reference) aliases() []string {
	if r.entry == nil {
		return nil
	}
	return r.entry.Aliases
}

// ReferenceError is returned for a reference that names nothing.
type ReferenceError struct {
	Reference string
	Reason    string
}

func (e *ReferenceError) Error() string {
	var ids []string
	for _, c := range Catalogue() {
		ids = append(ids, c.ID)
	}
	return fmt.Sprintf("model %q: %s; name one of the built-in models (%s), a model of the hub (org/name, org/name@revision, org/name@revision:file.onnx) or a folder (./folder)",
		e.Reference, e.Reason, strings.Join(ids, ", "))
}

// parseRef reads a reference:
//
//	e5-small-v2                      a catalogue name; its package's copy, where it has one
//	org/name[@revision][:file.onnx]  a model of the hub, a catalogue name with a revision or file included
//	./folder, /folder, folder/x.onnx a local folder, or one ONNX file in it
//
// A catalogue name comes before a folder of that name, a folder that exists before a model of the hub.
func parseRef(text string) (reference, error) {
	r := reference{text: text}
	bad := func(format string, args ...any) (reference, error) {
		return reference{}, &ReferenceError{Reference: text, Reason: fmt.Sprintf(format, args...)}
	}
	if strings.TrimSpace(text) == "" {
		return bad("it is empty")
	}
	base, file, hasFile := strings.Cut(text, ":")
	base, revision, hasRevision := strings.Cut(base, "@")
	explicit := strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || text == "." || text == ".."
	if !explicit {
		if e, ok := lookup(base); ok {
			r.entry, r.repo, r.revision, r.file = &e, e.ID, revision, file
			r.packaged = e.Package != nil && !hasRevision && !hasFile
		}
	}
	if r.entry == nil {
		st, err := os.Stat(text)
		switch {
		case err == nil && st.IsDir():
			r.folder = text
		case err == nil && strings.HasSuffix(text, ".onnx"):
			r.folder, r.file = filepath.Dir(text), filepath.Base(text)
		case err == nil:
			return bad("it is a file that is neither a folder nor ONNX")
		case explicit:
			return bad("there is no such folder")
		}
		if r.folder != "" {
			if r.folder, err = filepath.Abs(r.folder); err != nil {
				return reference{}, err
			}
			return r, nil
		}
		if !hub.ValidID(base) || !strings.Contains(base, "/") {
			return bad("unknown")
		}
		r.repo, r.revision, r.file = base, revision, file
	}
	if hasRevision && revision == "" {
		return bad("the revision behind @ is empty")
	}
	if hasFile && !strings.HasSuffix(file, ".onnx") {
		return bad("the file behind the colon (%q) does not end in .onnx", file)
	}
	if r.revision == "" {
		r.revision = DefaultRevision
	}
	return r, nil
}
