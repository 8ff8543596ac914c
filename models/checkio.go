package models

import (
	"fmt"
	"slices"
	"strings"
)

// ElementType is a tensor's element type by ONNX Runtime's lower-case name without decoration: int32, int64, float32, float16, …
type ElementType string

const (
	Int32   ElementType = "int32"
	Int64   ElementType = "int64"
	Float32 ElementType = "float32"
	Float16 ElementType = "float16"
)

// TensorInfo is what an open session says of one input or output. A dimension of -1 is free.
type TensorInfo struct {
	Name  string
	Type  ElementType
	Shape []int64
}

func (t TensorInfo) String() string {
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		if dims[i] = "?"; d >= 0 {
			dims[i] = fmt.Sprint(d)
		}
	}
	return fmt.Sprintf("%s %s[%s]", t.Name, t.Type, strings.Join(dims, ", "))
}

// InputRole is what an input is filled with; every one is [batch, sequence].
type InputRole uint8

const (
	InputIDs      InputRole = iota // token ids
	AttentionMask                  // 1 for tokens, 0 for padding
	TokenTypeIDs                   // 0, and 1 for a pair's second text
	PositionIDs                    // 0, 1, 2, …
)

// inputRoles maps the names that exporters give to inputs.
var inputRoles = map[string]InputRole{
	"input_ids": InputIDs, "attention_mask": AttentionMask, "token_type_ids": TokenTypeIDs, "position_ids": PositionIDs,
}

// InputBinding is one input to send, in the session's own order.
type InputBinding struct {
	Name string
	Role InputRole
	Type ElementType // Int32 or Int64, as declared
}

// Form is the shape of the output that is read.
type Form uint8

const (
	FormTokens Form = iota // [batch, sequence, Dimensions]: to be pooled
	FormVector             // [batch, Dimensions]: one vector per text
	FormScores             // [batch, Columns] or, with Flat, [batch]
)

// Binding says how a session is fed and read.
type Binding struct {
	Inputs     []InputBinding
	Output     string // name of the output to read; float32
	Form       Form
	Dimensions int     // FormTokens, FormVector: floats per vector
	Pooling    Pooling // FormTokens: mean, cls, max or last; FormVector: none
	// FormScores: Columns is 1 or 2. With 2 the logit is column Relevant minus the other one: the sigmoid of the difference is the
	// softmax of the two.
	Columns, Relevant int
	Flat              bool // the scores come as [batch] instead of [batch, 1]
}

// Sends reports whether an input of the role is declared.
func (b Binding) Sends(role InputRole) bool {
	return slices.ContainsFunc(b.Inputs, func(in InputBinding) bool { return in.Role == role })
}

// IOError is returned when a graph's inputs or outputs do not fit the manifest. It lists all of them.
type IOError struct {
	Model           string
	Graph           string
	Reason          string
	Fix             string // may be ""
	Inputs, Outputs []TensorInfo
}

func (e *IOError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s: %s", e.Model, e.Reason)
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	list := func(what string, ts []TensorInfo) {
		fmt.Fprintf(&b, "; %s: ", what)
		for i, t := range ts {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(t.String())
		}
		if len(ts) == 0 {
			b.WriteString("none")
		}
	}
	list("inputs", e.Inputs)
	list("outputs", e.Outputs)
	if e.Graph != "" {
		fmt.Fprintf(&b, " (%s)", e.Graph)
	}
	return b.String()
}

// CheckIO decides how the session of a model is fed and read, from the session's own metadata. The manifest's kind must be settled.
// Every refusal is an *IOError.
func CheckIO(m Manifest, inputs, outputs []TensorInfo) (Binding, error) {
	c := &ioCheck{m: m, inputs: inputs, outputs: outputs}
	var b Binding
	if err := c.bindInputs(&b); err != nil {
		return Binding{}, err
	}
	var err error
	switch m.Kind {
	case KindEmbedder:
		err = c.bindEmbedder(&b)
	case KindReranker:
		err = c.bindReranker(&b)
	default:
		err = c.fail("no file says whether this is an embedder or a reranker", "set `kind` in "+OverrideFile+" beside its files")
	}
	if err != nil {
		return Binding{}, err
	}
	return b, nil
}

type ioCheck struct {
	m               Manifest
	inputs, outputs []TensorInfo
}

func (c *ioCheck) fail(reason, fix string) error {
	return &IOError{Model: c.m.ID, Graph: c.m.GraphPath, Reason: reason, Fix: fix, Inputs: c.inputs, Outputs: c.outputs}
}

func (c *ioCheck) bindInputs(b *Binding) error {
	for _, in := range c.inputs {
		role, ok := inputRoles[in.Name]
		if !ok {
			return c.fail(fmt.Sprintf("the graph wants an input %q, which cannot be supplied", in.Name),
				"what can be supplied is input_ids, attention_mask, token_type_ids and position_ids; export the model without caches, pixels or decoder inputs")
		}
		if in.Type != Int32 && in.Type != Int64 {
			return c.fail(fmt.Sprintf("the input %q is of type %s; int64 and int32 can be supplied", in.Name, in.Type), "")
		}
		if len(in.Shape) != 2 {
			return c.fail(fmt.Sprintf("the input %q has %d dimensions instead of [batch, sequence]", in.Name, len(in.Shape)), "")
		}
		if in.Shape[0] >= 0 || in.Shape[1] >= 0 {
			return c.fail(fmt.Sprintf("the input %q has a fixed shape", in.Name), "export the model with dynamic batch and sequence axes")
		}
		b.Inputs = append(b.Inputs, InputBinding{Name: in.Name, Role: role, Type: in.Type})
	}
	for _, need := range []struct {
		role InputRole
		name string
	}{{InputIDs, "input_ids"}, {AttentionMask, "attention_mask"}} {
		if !b.Sends(need.role) {
			return c.fail(fmt.Sprintf("the graph has no input %q", need.name), "without it rows of different length cannot share a batch")
		}
	}
	return nil
}

// declared returns the output the manifest names, ok false when it names none.
func (c *ioCheck) declared() (t TensorInfo, ok bool, err error) {
	if c.m.Output == "" {
		return TensorInfo{}, false, nil
	}
	i := slices.IndexFunc(c.outputs, func(t TensorInfo) bool { return t.Name == c.m.Output })
	if i < 0 {
		return TensorInfo{}, false, c.fail(fmt.Sprintf("the graph has no output %q, which the model's description names", c.m.Output), "correct `output` in "+OverrideFile)
	}
	if t = c.outputs[i]; t.Type != Float32 {
		return TensorInfo{}, false, c.fail(fmt.Sprintf("the output %q is of type %s; float32 can be read", t.Name, t.Type), "export the model with float32 inputs and outputs")
	}
	return t, true, nil
}

// pick returns the outputs of float32 with the given rank, a preferred name alone when it is among them.
func (c *ioCheck) pick(rank int, preferred ...string) []TensorInfo {
	var found []TensorInfo
	for _, t := range c.outputs {
		if t.Type == Float32 && len(t.Shape) == rank && t.Shape[0] < 0 {
			found = append(found, t)
		}
	}
	for _, name := range preferred {
		if i := slices.IndexFunc(found, func(t TensorInfo) bool { return t.Name == name }); i >= 0 {
			return found[i : i+1]
		}
	}
	return found
}

// Names that exporters give to the vector a whole sentence-transformers pipeline yields.
var sentenceOutputs = []string{"sentence_embedding", "sentence_embeddings", "text_embeds", "embeddings", "dense_vecs"}

// BERT's pooler was trained for next-sentence prediction; reading it as an embedding is the classic silent error.
func isPooler(t TensorInfo) bool { return t.Name == "pooler_output" }

func (c *ioCheck) bindEmbedder(b *Binding) error {
	m := c.m
	if m.Pooling != PoolUndeclared && !slices.Contains(Poolings(), m.Pooling) {
		return c.fail(fmt.Sprintf("unknown pooling %q; known are %s", m.Pooling, poolingNames()), "")
	}
	out, ok, err := c.declared()
	if err != nil {
		return err
	}
	if !ok {
		if out, err = c.chooseEmbedderOutput(); err != nil {
			return err
		}
	}
	width := int64(-1)
	switch len(out.Shape) {
	case 3:
		if m.Pooling == PoolNone {
			return c.fail(fmt.Sprintf("the output %q holds token vectors and the declared pooling is none", out.Name), "declare one of "+poolingNames())
		}
		if m.Pooling == PoolUndeclared {
			return c.fail(fmt.Sprintf("no file says how the token vectors of %q become one vector", out.Name), "set `pooling` in "+OverrideFile+" to one of "+poolingNames())
		}
		b.Form, b.Pooling, width = FormTokens, m.Pooling, out.Shape[2]
	case 2:
		b.Form, b.Pooling, width = FormVector, PoolNone, out.Shape[1]
	default:
		return c.fail(fmt.Sprintf("the output %q is neither [batch, sequence, dimensions] nor [batch, dimensions]", out.Name), "")
	}
	b.Output = out.Name
	switch {
	case width < 0 && m.Dimensions == 0:
		return c.fail(fmt.Sprintf("neither the output %q nor a file says how many dimensions a vector has", out.Name), "set `dimensions` in "+OverrideFile)
	case width < 0:
		width = int64(m.Dimensions)
	case m.Dimensions != 0 && width != int64(m.Dimensions):
		return c.fail(fmt.Sprintf("the output %q has %d dimensions and the model's files say %d", out.Name, width, m.Dimensions), "the graph may belong to another model")
	}
	b.Dimensions = int(width)
	return nil
}

func (c *ioCheck) chooseEmbedderOutput() (TensorInfo, error) {
	m := c.m
	tokens := c.pick(3, "last_hidden_state", "token_embeddings")
	vectors := c.pick(2, sentenceOutputs...)
	one := func(what string, ts []TensorInfo) (TensorInfo, error) {
		if len(ts) > 1 {
			return TensorInfo{}, c.fail(fmt.Sprintf("several outputs could be the %s", what), "name one as `output` in "+OverrideFile)
		}
		return ts[0], nil
	}
	// What the graph pools itself.
	wholeOnly := len(m.ExtraLayers) > 0 || m.Pooling == PoolNone
	if wholeOnly {
		vectors = slices.DeleteFunc(slices.Clone(vectors), isPooler)
		if len(vectors) == 0 {
			reason := "the pooling is declared as none, and no output is [batch, dimensions]"
			if len(m.ExtraLayers) > 0 {
				reason = fmt.Sprintf("the model has layers after its pooling (%s) and the graph does not hold them: no output is [batch, dimensions]", strings.Join(m.ExtraLayers, ", "))
			}
			return TensorInfo{}, c.fail(reason, "export the whole sentence-transformers pipeline")
		}
		if len(m.ExtraLayers) > 0 && !slices.Contains(sentenceOutputs, vectors[0].Name) {
			return TensorInfo{}, c.fail(fmt.Sprintf("the model has layers after its pooling (%s) and no output is named as the result of them", strings.Join(m.ExtraLayers, ", ")),
				"name it as `output` in "+OverrideFile)
		}
		return one("sentence vector", vectors)
	}
	// Own pooling wins wherever it is declared and possible: a second, two-dimensional output is often BERT's pooler.
	if m.Pooling != PoolUndeclared && len(tokens) > 0 {
		return one("token vectors", tokens)
	}
	named := len(vectors) == 1 && slices.Contains(sentenceOutputs, vectors[0].Name)
	usable := slices.DeleteFunc(slices.Clone(vectors), isPooler)
	switch {
	case named:
		return vectors[0], nil
	case len(tokens) > 0: // pooling undeclared: the caller's check of the rank refuses with the list
		return one("token vectors", tokens)
	case len(usable) > 0:
		return one("sentence vector", usable)
	case len(vectors) > 0:
		return TensorInfo{}, c.fail("the only output that holds vectors is BERT's pooler, which is not an embedding", "export the model with last_hidden_state; or, if it was trained so, name the output in "+OverrideFile)
	}
	return TensorInfo{}, c.fail("no output is usable: an embedder needs float32 [batch, sequence, dimensions] or [batch, dimensions]", "")
}

func (c *ioCheck) bindReranker(b *Binding) error {
	m := c.m
	out, ok, err := c.declared()
	if err != nil {
		return err
	}
	if !ok {
		found := c.pick(2, "logits")
		if len(found) == 0 {
			found = c.pick(1, "logits")
		}
		if len(found) == 0 {
			return c.fail("no output is usable: a reranker needs float32 [batch, 1] or [batch]", "export the model with its classification head")
		}
		if len(found) > 1 {
			return c.fail("several outputs could be the scores", "name one as `output` in "+OverrideFile)
		}
		out = found[0]
	}
	b.Output, b.Form, b.Columns = out.Name, FormScores, 1
	switch len(out.Shape) {
	case 1:
		b.Flat = true
		return nil
	case 2:
	default:
		return c.fail(fmt.Sprintf("the output %q is not [batch, 1] or [batch]", out.Name), "")
	}
	columns := out.Shape[1]
	if columns < 0 {
		// A free last axis: the files must say what it is.
		if columns = int64(m.Labels); columns == 0 {
			return c.fail(fmt.Sprintf("neither the output %q nor a file says how many scores a pair gets", out.Name), "set `labels` in "+OverrideFile)
		}
	}
	switch columns {
	case 1:
	case 2:
		if m.Relevant != 0 && m.Relevant != 1 {
			return c.fail("two scores per pair, and no file says which one means relevant", "set `relevant` to 0 or 1 in "+OverrideFile)
		}
		b.Columns, b.Relevant = 2, m.Relevant
	default:
		return c.fail(fmt.Sprintf("the output %q has %d scores per pair; a reranker has one, or two of which one means relevant", out.Name, columns), "this looks like a classifier for another task")
	}
	return nil
}

func poolingNames() string {
	var names []string
	for _, p := range Poolings() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}
