// Package models supplies models and the ONNX Runtime library, and knows what there is to know of a model without running it.
//
// Start with Store: Setup makes a fresh machine ready, Resolve turns a reference (a catalogue name, `org/name@revision` on the
// model hub, or a local folder) into a Manifest, and CheckIO decides, once a session is open, which inputs it is fed and which
// output is read. The sub-package graph rewrites ONNX files, hub speaks the hub's protocol, wheel opens Python packages.
//
// Not for running anything: sessions belong to inference/ort, text to tokenize.
//
// It promises that every file a Manifest names had the recorded or pinned sha256 when Resolve returned, that a reference once
// resolved on the hub stays at its commit until Update, and that nothing half-written is ever found under its final name. It reads
// no environment variable and prints nothing.
package models

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ragate/models/internal/files"
)

// Kind says what a model yields: a vector per text or a relevance logit per pair of texts.
type Kind string

const (
	KindUnknown  Kind = "" // the model's files do not say; Manifest.As settles it
	KindEmbedder Kind = "embedder"
	KindReranker Kind = "reranker"
)

// Pooling says how the token vectors of a text become one vector.
type Pooling string

const (
	PoolUndeclared Pooling = "" // no file says it
	PoolMean       Pooling = "mean"
	PoolCLS        Pooling = "cls"  // the first token's
	PoolMax        Pooling = "max"  // per dimension over the tokens that are not padding
	PoolLast       Pooling = "last" // the last token that is not padding
	PoolNone       Pooling = "none" // the graph pools itself and yields one vector per text
)

// Poolings are the declarations a model may make.
func Poolings() []Pooling { return []Pooling{PoolMean, PoolCLS, PoolMax, PoolLast, PoolNone} }

// Source says where a model's files came from.
type Source string

const (
	SourcePackage Source = "package" // out of a Python package, pinned in the catalogue
	SourceHub     Source = "hub"     // the model hub, pinned in the lock file
	SourceLocal   Source = "local"   // a folder of the user's, not pinned
)

// Manifest is everything the rest of the program needs to know of a model. It is a value: nobody changes it after Resolve.
type Manifest struct {
	ID       string   // org/name, or a local folder's name
	Aliases  []string // other names for it
	Kind     Kind
	Source   Source
	Revision string    // hub: the commit; package: name-version; local: ""
	Created  time.Time // as the hub states it; for a local folder the graph file's modification time

	Dir             string // folder that holds the files below
	GraphPath       string // the ONNX file
	GraphSHA256     string // hex
	ExternalData    []string
	TokenizerPath   string // tokenizer.json, or the sentencepiece.bpe.model of one that has none. Truncation and padding baked into it do not count: MaxTokens does
	TokenizerSHA256 string

	// LowerCase is tokenizer_config.json's do_lower_case, nil when absent. tokenizer.json decides; this is for reports only.
	LowerCase *bool

	MaxTokens  int               // tokens per sequence (or pair), special tokens included
	Heads      int               // of attention; 0 when no file says it
	Dimensions int               // of the vector, for embedders; 0 when no file says it (the session then does)
	Pooling    Pooling           // for embedders
	Normalize  bool              // scale the pooled vector to length 1
	Prompts    map[string]string // prompt name → prefix, e.g. "query" → "query: "; never nil

	// Languages are those that the model is for, as its card states them: BCP 47 tags, or Multilingual. Empty: not stated.
	Languages []string

	// Labels is the number of scores a reranker's head yields (config.json's num_labels), 0 when no file says it.
	// Relevant is the column that means "relevant" where there are two; -1 when the labels' names do not tell.
	Labels, Relevant int

	Output      string   // the graph's output to read, when declared; "" lets CheckIO decide
	ExtraLayers []string // sentence-transformers modules after pooling that the graph must hold itself, e.g. "Dense"
	ModelType   string   // config.json's model_type, "" when there is none

	DType   string // of the stored weights: float32, float16, int8, …; "" when unknown
	Dynamic bool   // activations are quantised while running (DynamicQuantizeLinear), so a row's result depends on its batch

	Notes []string // what had to be assumed, in sentences for `models inspect` and /info

	License string   // by its SPDX name, "" for models outside the catalogue
	Remarks []string // what the catalogue says about this copy and its use, in sentences for `models inspect`

	declaredTokens bool // MaxTokens is the user's own
}

// Names are the ID and the aliases.
func (m Manifest) Names() []string { return append([]string{m.ID}, m.Aliases...) }

// As returns the manifest with its kind settled, or an error when the model's own files contradict what it is wanted for.
func (m Manifest) As(kind Kind) (Manifest, error) {
	switch {
	case m.Kind == kind:
		return m, nil
	case m.Kind == KindUnknown:
		m.Notes = append(slices.Clone(m.Notes), fmt.Sprintf("no file says what kind of model this is; used as %s, as asked", kind))
		m.Kind = kind
		return m, nil
	}
	return m, &LoadError{Model: m.ID, Path: m.Dir, Reason: fmt.Sprintf("this model is of kind %s and was asked for as %s", m.Kind, kind),
		Fix: "name another model, or correct `kind` in " + OverrideFile + " if its files mislead"}
}

// LoadError is returned for a model whose files cannot be used. Reason says what is wrong, Fix what to do, when that is known.
type LoadError struct {
	Model  string
	Path   string // the file or folder at fault
	Reason string
	Fix    string
	Err    error
}

func (e *LoadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s: %s", e.Model, e.Reason)
	if e.Path != "" {
		fmt.Fprintf(&b, " (%s)", e.Path)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

func (e *LoadError) Unwrap() error { return e.Err }

// NotPresentError is returned when a model or the runtime is not on this machine and was not to be fetched.
type NotPresentError struct {
	What string // the model's reference, or the runtime's name
	Dir  string // where it was looked for
	Fix  string
	Err  error
}

func (e *NotPresentError) Error() string {
	msg := fmt.Sprintf("%s is not in %s; %s", e.What, e.Dir, e.Fix)
	if e.Err != nil {
		msg += fmt.Sprintf(" (%v)", e.Err)
	}
	return msg
}

func (e *NotPresentError) Unwrap() error { return e.Err }

type (
	// Progress is told how far the transfer of one file is.
	Progress = files.Progress
	// MismatchError is returned when a file's content is not the pinned one.
	MismatchError = files.MismatchError
	// DiskFullError is returned when a file does not fit on its disk.
	DiskFullError = files.DiskFullError
)
