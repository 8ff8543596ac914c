// Package policy reads the file in which an operator states how the gates decide.
//
// Start with [Parse] over a YAML file, or [Default]. [Policy.Fingerprint] identifies a policy together with the models and references it
// runs on, so that an answer can be traced to what made it, and a policy calibrated on other models can be told apart.
//
// What it promises: absent fields have the defaults of the gates' own packages; every fault of a file is reported, not only the first; an
// unknown field is a fault, since a misspelt setting would silently have no effect.
package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"

	"go.yaml.in/yaml/v3"

	"ragate/gates/pattern"
	"ragate/gates/quality"
)

// DefaultName is the policy that requests get when they name none.
const DefaultName = "default"

// Mismatch says what to do with a policy that was calibrated on other models than those that run.
type Mismatch string

const (
	MismatchWarn   Mismatch = "warn"
	MismatchRefuse Mismatch = "refuse" // the start fails
)

// Policy is one policy file.
type Policy struct {
	Name string `yaml:"name"`
	// CalibratedFor is what the thresholds were calibrated on, and OnMismatch what to do when something else runs.
	CalibratedFor Basis          `yaml:"calibrated_for"`
	OnMismatch    Mismatch       `yaml:"on_mismatch"`
	Query         Query          `yaml:"query"`
	Chunks        quality.Policy `yaml:"chunks"`
}

// Basis is what the meaning of thresholds rests on, by fingerprints ([Fingerprint]); "" is not known, and fits anything. The query gate's
// threshold rests on embedder, references and rules, those of the chunk gate on the reranker.
type Basis struct {
	Embedder   string `yaml:"embedder,omitempty"`
	References string `yaml:"references,omitempty"`
	Rules      string `yaml:"rules,omitempty"`
	Reranker   string `yaml:"reranker,omitempty"`
}

// Differences names the parts of b that are not those that run, one phrase each.
func (b Basis) Differences(running Basis) []string {
	var out []string
	for _, part := range []struct{ name, was, is string }{
		{"embedder", b.Embedder, running.Embedder}, {"references", b.References, running.References},
		{"rules", b.Rules, running.Rules}, {"reranker", b.Reranker, running.Reranker},
	} {
		if part.was != "" && part.was != part.is {
			out = append(out, fmt.Sprintf("%s %s, and %s runs", part.name, part.was, part.is))
		}
	}
	return out
}

// Query is the query gate's part.
type Query struct {
	LengthRule pattern.LengthRule `yaml:"length_rule"`
	Glossary   []string           `yaml:"glossary"` // short words that are subjects here
	Semantic   Semantic           `yaml:"semantic"`
}

// Semantic is the layer that compares with reference queries.
type Semantic struct {
	// Off leaves the layer out: what no pattern matches retrieves.
	Off bool `yaml:"off"`
	// Method is a name of package semantic; "" is the default of the reference file.
	Method string `yaml:"method"`
	// Threshold is in the method's own scale; absent means the one of the reference file.
	Threshold *float64 `yaml:"threshold"`
}

// Default is the policy that holds where no file was given.
func Default() Policy {
	return Policy{Name: DefaultName, OnMismatch: MismatchWarn, Query: Query{LengthRule: pattern.LengthDefault}, Chunks: quality.DefaultPolicy()}
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Parse reads a policy file. file is its name, for errors.
func Parse(file string, data []byte) (Policy, error) {
	p := Default()
	p.Name = ""
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return Policy{}, fmt.Errorf("%s: %w", file, err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Policy{}, fmt.Errorf("%s: it holds more than one document; give each policy a file", file)
	}
	if err := p.Validate(); err != nil {
		return Policy{}, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// Validate reports everything that is wrong with p, joined.
func (p Policy) Validate() error {
	var errs []error
	if !nameForm.MatchString(p.Name) {
		errs = append(errs, fmt.Errorf("name is %q: give it 1 to 64 letters, digits, points, dashes or underscores", p.Name))
	}
	switch p.OnMismatch {
	case MismatchWarn, MismatchRefuse:
	default:
		errs = append(errs, fmt.Errorf("on_mismatch is %q: it must be warn or refuse", p.OnMismatch))
	}
	switch p.Query.LengthRule {
	case pattern.LengthDefault, pattern.LengthStrict, pattern.LengthOff:
	default:
		errs = append(errs, fmt.Errorf("query.length_rule is %q: it must be default, strict or off", p.Query.LengthRule))
	}
	if t := p.Query.Semantic.Threshold; t != nil && (math.IsNaN(*t) || math.IsInf(*t, 0)) {
		errs = append(errs, fmt.Errorf("query.semantic.threshold is %v: it must be a number", *t))
	}
	errs = append(errs, p.Chunks.Validate())
	return errors.Join(errs...)
}

// Fingerprint identifies the policy as it runs: its own content, and whatever else decides with it (models' hashes and precision, the
// references' fingerprint, the rules' text), in the order given.
func (p Policy) Fingerprint(parts ...string) string {
	content, err := json.Marshal(p)
	if err != nil { // a Policy holds nothing that JSON cannot
		panic("policy: " + err.Error())
	}
	return Fingerprint(append([]string{"ragate policy 2", string(content)}, parts...)...)
}

// Fingerprint identifies a list of texts in 16 hexadecimal digits.
func Fingerprint(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
