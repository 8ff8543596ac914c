package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// OverrideFile is a file of the user's that declares what a model's own files lack or get wrong. For a local folder it stands among
// them; for a model of the hub in <ModelsDir>/<org>--<name>/. Its fields are those of override.
const OverrideFile = "ragate.json"

// override is the content of OverrideFile. Absent fields leave the model's own facts as they are.
type override struct {
	Kind       *Kind             `json:"kind"`
	Graph      *string           `json:"graph"` // the ONNX file to use, relative to the folder
	Pooling    *Pooling          `json:"pooling"`
	Normalize  *bool             `json:"normalize"`
	Languages  []string          `json:"languages"` // BCP 47 tags, or ["multilingual"]
	MaxTokens  *int              `json:"max_tokens"`
	Dimensions *int              `json:"dimensions"`
	Prompts    map[string]string `json:"prompts"`
	Output     *string           `json:"output"`
	Labels     *int              `json:"labels"`
	Relevant   *int              `json:"relevant"`
}

// readOverride returns a zero override when the file is absent. All faults of the file are reported at once.
func readOverride(dir string) (override, error) {
	var o override
	path := filepath.Join(dir, OverrideFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields() // a misspelt field would be silently without effect
	if err := dec.Decode(&o); err != nil {
		return o, fmt.Errorf("%s: %w", path, err)
	}
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s: `%s` is %v; it must be %s", path, field, value, want))
	}
	if o.Kind != nil && *o.Kind != KindEmbedder && *o.Kind != KindReranker {
		bad("kind", *o.Kind, "embedder or reranker")
	}
	if o.Pooling != nil && !slices.Contains(Poolings(), *o.Pooling) {
		bad("pooling", *o.Pooling, "one of "+poolingNames())
	}
	if o.MaxTokens != nil && *o.MaxTokens < 3 {
		bad("max_tokens", *o.MaxTokens, "at least 3: the special tokens of a text and one of its own")
	}
	if o.Dimensions != nil && *o.Dimensions < 1 {
		bad("dimensions", *o.Dimensions, "at least 1")
	}
	if o.Labels != nil && *o.Labels < 1 {
		bad("labels", *o.Labels, "at least 1")
	}
	if o.Relevant != nil && *o.Relevant != 0 && *o.Relevant != 1 {
		bad("relevant", *o.Relevant, "0 or 1")
	}
	for i, l := range o.Languages {
		if !isLanguage(l) {
			bad(fmt.Sprintf("languages[%d]", i), fmt.Sprintf("%q", l), "a language tag such as nl or pt-BR, or "+Multilingual)
		}
	}
	return o, errors.Join(errs...)
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func (o override) apply(m *Manifest) {
	set(&m.Kind, o.Kind)
	set(&m.Pooling, o.Pooling)
	set(&m.Normalize, o.Normalize)
	set(&m.MaxTokens, o.MaxTokens)
	set(&m.Dimensions, o.Dimensions)
	set(&m.Output, o.Output)
	set(&m.Labels, o.Labels)
	set(&m.Relevant, o.Relevant)
	if o.Languages != nil {
		m.Languages = o.Languages
	}
	if o.Prompts != nil {
		m.Prompts = o.Prompts
	}
}
