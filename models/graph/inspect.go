package graph

import (
	"fmt"
	"slices"
	"strings"

	"ragate/models/internal/files"
	"ragate/models/onnxpb"
)

// Facts is what a model file says about itself.
type Facts struct {
	Producer  string // and its version
	IRVersion int64
	Opsets    []onnxpb.Opset // sorted by domain
	Metadata  map[string]string

	Inputs  []Value // what a run must be given: inputs that have no initialiser
	Outputs []Output

	Nodes int            // subgraphs included
	Ops   map[string]int // how many nodes per operator; of other domains than ONNX's own as "domain:Op"

	WeightType   onnxpb.ElemType           // the element type most bytes of the weights have
	WeightBytes  map[onnxpb.ElemType]int64 // initialisers and constants, external ones included
	Parameters   int64                     // elements of them all
	Positions    int64                     // rows of the table of learned positions; 0 when none is seen. See positionRows
	ExternalData []string                  // the files that hold external weights, relative to the model's folder, sorted

	// DynamicallyQuantized: the graph chooses the scale of its activations at run time, from the whole batch. Scores then depend on what
	// shares the batch.
	DynamicallyQuantized bool
	DynamicOps           map[string]int // the operators that make it so
}

// Value is an input's or output's name, element type and shape.
type Value struct {
	Name string
	Kind string // "tensor", or what else it is
	Elem onnxpb.ElemType
	// Dims is the shape; HasShape false means that not even the rank is known.
	Dims     []onnxpb.Dim
	HasShape bool
}

// String writes the value as name: type[dims], e.g. "input_ids: int64[batch_size, sequence]".
func (v Value) String() string {
	if v.Kind != "tensor" {
		return v.Name + ": " + v.Kind
	}
	if !v.HasShape {
		return fmt.Sprintf("%s: %v[…]", v.Name, v.Elem)
	}
	dims := make([]string, len(v.Dims))
	for i, d := range v.Dims {
		switch {
		case d.Size >= 0:
			dims[i] = fmt.Sprint(d.Size)
		case d.Param != "":
			dims[i] = d.Param
		default:
			dims[i] = "?"
		}
	}
	return fmt.Sprintf("%s: %v[%s]", v.Name, v.Elem, strings.Join(dims, ", "))
}

// Output is an output and what it costs.
type Output struct {
	Value
	// OnlyNodes is how many nodes compute nothing but this output: what PruneOutputs removes when this one is dropped and the others kept.
	OnlyNodes int
}

// Inspect reads the facts of a model file. The error is a *onnxpb.SyntaxError.
func Inspect(model []byte) (*Facts, error) {
	m, err := onnxpb.Parse(model)
	if err != nil {
		return nil, err
	}
	f := &Facts{
		Producer:    strings.TrimSpace(m.Producer + " " + m.ProducerVersion),
		IRVersion:   m.IRVersion,
		Metadata:    map[string]string{},
		Ops:         map[string]int{},
		WeightBytes: map[onnxpb.ElemType]int64{},
		DynamicOps:  map[string]int{},
	}
	f.Opsets = slices.Clone(m.Opsets)
	slices.SortFunc(f.Opsets, func(a, b onnxpb.Opset) int { return strings.Compare(a.Domain, b.Domain) })
	for _, e := range m.Metadata {
		f.Metadata[e.Key] = e.Value
	}
	initial := map[string]bool{}
	for _, t := range m.Graph.Initializers {
		initial[t.Name] = true
	}
	for _, v := range m.Graph.Inputs {
		if !initial[v.Name] {
			f.Inputs = append(f.Inputs, value(v))
		}
	}
	all := live(m.Graph, names(m.Graph.Outputs))
	for i, v := range m.Graph.Outputs {
		others := slices.Delete(names(m.Graph.Outputs), i, i+1)
		f.Outputs = append(f.Outputs, Output{Value: value(v), OnlyNodes: all.count() - live(m.Graph, others).count()})
	}
	if err := f.walk(m.Graph); err != nil {
		return nil, err
	}
	for _, fn := range m.Functions {
		for _, n := range fn.Nodes {
			f.node(n)
		}
	}
	slices.Sort(f.ExternalData)
	f.ExternalData = slices.Compact(f.ExternalData)
	var most int64
	for t := onnxpb.ElemType(0); t < 64; t++ { // in a fixed order, so that a tie has one answer
		if n := f.WeightBytes[t]; n > most {
			most, f.WeightType = n, t
		}
	}
	f.DynamicallyQuantized = len(f.DynamicOps) > 0
	return f, nil
}

// InspectFile is Inspect of the file at path, which is mapped and not read: weights of a gigabyte must not become garbage of the heap.
// Its error names the path.
func InspectFile(path string) (*Facts, error) {
	var f *Facts
	err := files.Map(path, func(b []byte) (err error) {
		if f, err = Inspect(b); err != nil { // no part of the facts points into the mapping: names are copied
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Facts) walk(g *onnxpb.Graph) error {
	for _, t := range g.Initializers {
		if err := f.tensor(t); err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		f.node(n)
		for _, a := range n.Attrs {
			if a.Tensor != nil && n.Op == "Constant" {
				if err := f.tensor(a.Tensor); err != nil {
					return err
				}
			}
			for _, sub := range a.Graphs {
				if err := f.walk(sub); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (f *Facts) node(n *onnxpb.Node) {
	f.Nodes++
	f.Ops[opName(n)]++
	if isDynamic(n) {
		f.DynamicOps[opName(n)]++
	}
}

func (f *Facts) tensor(t *onnxpb.Tensor) error {
	n, err := t.Len()
	if err != nil {
		return err
	}
	f.Parameters += n
	f.Positions = max(f.Positions, positionRows(t))
	f.WeightBytes[t.Type] += (n*int64(t.Type.Bits()) + 7) / 8
	if t.External.Location != "" {
		f.ExternalData = append(f.ExternalData, t.External.Location)
	}
	return nil
}

// positionRows is the number of positions in a table of them: [positions, width], or [1, positions, width], by the name that PyTorch's
// modules, and so exporters, give it. 0 for any other tensor.
func positionRows(t *onnxpb.Tensor) int64 {
	if rank := len(t.Dims); strings.Contains(t.Name, "position_embeddings") && (rank == 2 || rank == 3 && t.Dims[0] == 1) && t.Dims[rank-1] > 1 {
		return t.Dims[rank-2]
	}
	return 0
}

func value(v *onnxpb.ValueInfo) Value {
	return Value{Name: v.Name, Kind: v.Kind, Elem: v.Elem, Dims: v.Dims, HasShape: v.HasShape}
}

func names(vs []*onnxpb.ValueInfo) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = v.Name
	}
	return out
}

// domain is the operator's domain with ONNX's own, which has two spellings, as "".
func domain(n *onnxpb.Node) string {
	if n.Domain == "ai.onnx" {
		return ""
	}
	return n.Domain
}

// opName is the operator's name, with its domain in front unless that is ONNX's own.
func opName(n *onnxpb.Node) string {
	if d := domain(n); d != "" {
		return d + ":" + n.Op
	}
	return n.Op
}

// isDynamic tells operators that quantise activations with a scale found at run time, or multiply by what such an operator made.
// ConvInteger and the quantised attention and recurrent layers belong here too, though only the matrix products can be rewritten.
func isDynamic(n *onnxpb.Node) bool {
	switch opName(n) {
	case "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger",
		"com.microsoft:DynamicQuantizeMatMul", "com.microsoft:MatMulIntegerToFloat",
		"com.microsoft:DynamicQuantizeLSTM", "com.microsoft:QAttention":
		return true
	}
	return false
}
