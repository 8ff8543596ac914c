package graph

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"ragate/models/onnxpb"
)

// The rewrite, in ONNX's terms. What a quantiser makes of MatMul(x, W) for float x and W is
//
//	q, s, z = DynamicQuantizeLinear(x)            s, z: one scalar each, from the extremes of all of x
//	i       = MatMulInteger(q, Wq, z, Wz)         int32, exact
//	y       = Cast<float>(i) * (s * Ws)
//
// and, since q stands for (x/s + z) rounded, y is MatMul(x, (Wq - Wz) * Ws) but for that rounding. Exactly that is written instead:
//
//	W = DequantizeLinear(Wq, Ws, Wz)              (Wq - Wz) * Ws in float32: the subtraction is exact, the product rounded once
//	y = MatMul(x, W)
//
// y keeps its name, so whatever reads it needs no change, and Wq, Ws and Wz stay in the file as they are.

// WeightOnlyVersion names what WeightOnly does; it changes whenever the bytes it makes do, so that cached results are not taken for new ones.
const WeightOnlyVersion = "weightonly-1"

// ErrNotDynamic is returned by WeightOnly for a graph that has no dynamically quantised part: there is nothing to rewrite.
var ErrNotDynamic = errors.New("the graph is not dynamically quantised")

// PatternError is returned when a dynamically quantised part of the graph is not put together as WeightOnly knows it.
type PatternError struct {
	Node   string // name of the node, or of its first output where it has no name
	Op     string
	Reason string
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("node %q (%s) cannot be made weight-only: %s; use the model's float file, or run it as it is, one row at a time (precision int8)",
		e.Node, e.Op, e.Reason)
}

// OpsetError is returned when the graph's operator set is too old for what the rewrite needs.
type OpsetError struct {
	Node       string
	Have, Need int64
}

func (e *OpsetError) Error() string {
	return fmt.Sprintf("node %q has one scale per column, which needs ONNX opset %d; the model imports opset %d; convert it to %d or later",
		e.Node, e.Need, e.Have, e.Need)
}

// opsetPerAxis is the first operator set whose DequantizeLinear takes a scale per column.
const opsetPerAxis = 13

// Report is what WeightOnly did.
type Report struct {
	MatMuls      int // matrix products rewritten
	PerChannel   int // of them with one scale per column
	Fused        int // of them from operators of ONNX Runtime's own (com.microsoft)
	Weights      int // distinct weights dequantised; fewer than MatMuls where products share one
	NodesBefore  int
	NodesAfter   int
	ExternalData []string // the files that hold external weights, relative to the model's folder
}

// WeightOnly rewrites a dynamically quantised model so that only its weights are quantised. Every DynamicQuantizeLinear → MatMulInteger →
// Cast → Mul, and ONNX Runtime's fused forms of it (DynamicQuantizeMatMul, MatMulIntegerToFloat), becomes DequantizeLinear of the weight →
// MatMul. The weights stay integers in the file.
//
// Weights may be int8 or uint8, with one scale and zero point for all, or one per column, or no zero point.
//
// The errors are ErrNotDynamic, *PatternError, *OpsetError and *onnxpb.SyntaxError.
func WeightOnly(model []byte) ([]byte, Report, error) {
	m, err := onnxpb.Parse(model)
	if err != nil {
		return nil, Report{}, err
	}
	w := newRewriter(m)
	r, err := w.run()
	if err != nil {
		return nil, Report{}, err
	}
	out, err := m.Append(nil)
	return out, r, err
}

type rewriter struct {
	g         *onnxpb.Graph
	functions []*onnxpb.Function
	opset     int64
	makers    map[string]*onnxpb.Node
	readers   map[string][]*onnxpb.Node
	tensors   map[string]*onnxpb.Tensor
	outputs   map[string]bool
	taken     map[string]bool // names of values and nodes

	weights map[weightKey]string // the value that holds the dequantised weight
	shapes  map[shapeKey]string  // the initialiser made from a parameter to give it another shape
	report  Report
}

// shapeKey tells reshaped parameters apart.
type shapeKey struct {
	value   string
	columns int64 // -1: a scalar
}

// weightKey tells dequantised weights apart.
type weightKey struct{ weight, scale, zero string }

// product is a quantised matrix product as found: y = MatMul(x, dequantised weight) + bias.
type product struct {
	name        string
	x           string
	weight      string
	scale, zero string // zero is "" when absent
	bias        string // "" when absent
	y           string
	replaces    *onnxpb.Node // the node whose place the new ones take
	drop        *onnxpb.Node // the node that made y, nil when that is replaces
	fused       bool         // found as one operator of ONNX Runtime's own
}

func newRewriter(m *onnxpb.Model) *rewriter {
	w := &rewriter{
		g:         m.Graph,
		functions: m.Functions,
		makers:    map[string]*onnxpb.Node{},
		readers:   map[string][]*onnxpb.Node{},
		tensors:   map[string]*onnxpb.Tensor{},
		outputs:   map[string]bool{},
		taken:     map[string]bool{},
		weights:   map[weightKey]string{},
		shapes:    map[shapeKey]string{},
	}
	for _, o := range m.Opsets {
		if o.Domain == "" || o.Domain == "ai.onnx" {
			w.opset = o.Version
		}
	}
	for _, t := range w.g.Initializers {
		w.tensors[t.Name] = t
	}
	for _, o := range w.g.Outputs {
		w.outputs[o.Name] = true
	}
	for _, n := range w.g.Nodes {
		for _, o := range n.Outputs {
			if o != "" {
				w.makers[o] = n
			}
		}
		for _, i := range reads(n) {
			if i != "" {
				w.readers[i] = append(w.readers[i], n)
			}
		}
		// A constant node and a second name for a weight are as good as an initialiser.
		switch {
		case opName(n) == "Constant" && n.Attr("value") != nil && n.Attr("value").Tensor != nil:
			w.tensors[n.Output(0)] = n.Attr("value").Tensor
		case opName(n) == "Identity" && w.tensors[n.Input(0)] != nil:
			w.tensors[n.Output(0)] = w.tensors[n.Input(0)]
		}
	}
	w.takeNames(w.g)
	return w
}

func (w *rewriter) takeNames(g *onnxpb.Graph) {
	for _, t := range g.Initializers {
		w.taken[t.Name] = true
	}
	for _, v := range g.Inputs {
		w.taken[v.Name] = true
	}
	for _, n := range g.Nodes {
		w.taken[n.Name] = true
		for _, o := range n.Outputs {
			w.taken[o] = true
		}
		for _, a := range n.Attrs {
			for _, sub := range a.Graphs {
				w.takeNames(sub)
			}
		}
	}
}

// fresh returns base, or base with a number when a value or node has that name already.
func (w *rewriter) fresh(base string) string {
	name := base
	for i := 2; w.taken[name]; i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	w.taken[name] = true
	return name
}

func (w *rewriter) run() (Report, error) {
	w.report.NodesBefore = len(w.g.Nodes)
	dynamic := false
	for _, f := range w.functions {
		for _, n := range f.Nodes {
			if isDynamic(n) {
				return Report{}, refuse(n, "it is in the model's own function %q", f.Name)
			}
		}
	}
	for _, n := range w.g.Nodes {
		dynamic = dynamic || isDynamic(n)
		if inner := nestedDynamic(n); inner != nil {
			return Report{}, refuse(inner, "it is in a subgraph of node %q", label(n))
		}
	}
	if !dynamic {
		return Report{}, ErrNotDynamic
	}
	var out []*onnxpb.Node
	dropped := map[*onnxpb.Node]bool{}
	for _, n := range w.g.Nodes {
		p, err := w.match(n)
		if err != nil {
			return Report{}, err
		}
		if p == nil {
			out = append(out, n)
			continue
		}
		if p.drop != nil {
			dropped[p.drop] = true
		}
		if out, err = w.rewrite(out, p); err != nil {
			return Report{}, err
		}
	}
	w.g.Nodes = slices.DeleteFunc(out, func(n *onnxpb.Node) bool { return dropped[n] })
	sweep(w.g)
	if err := w.leftOver(); err != nil {
		return Report{}, err
	}
	w.report.NodesAfter = len(w.g.Nodes)
	for _, t := range w.g.Initializers {
		if t.External.Location != "" {
			w.report.ExternalData = append(w.report.ExternalData, t.External.Location)
		}
	}
	slices.Sort(w.report.ExternalData)
	w.report.ExternalData = slices.Compact(w.report.ExternalData)
	return w.report, nil
}

// match tells whether n is a quantised matrix product and finds its parts.
func (w *rewriter) match(n *onnxpb.Node) (*product, error) {
	switch opName(n) {
	case "MatMulInteger":
		return w.matchMatMulInteger(n)
	case "com.microsoft:MatMulIntegerToFloat": // (A, B, a_scale, b_scale, a_zero?, b_zero?, bias?)
		x, err := w.source(n, n.Input(0), n.Input(4))
		if err != nil {
			return nil, err
		}
		if w.makers[n.Input(2)] != w.makers[n.Input(0)] || w.makers[n.Input(2)].Output(1) != n.Input(2) {
			return nil, refuse(n, "its scale %q is not that of its first operand", n.Input(2))
		}
		return &product{name: n.Name, x: x, weight: n.Input(1), scale: n.Input(3), zero: n.Input(5), bias: n.Input(6),
			y: n.Output(0), replaces: n, fused: true}, nil
	case "com.microsoft:DynamicQuantizeMatMul": // (A, B, b_scale, b_zero?, bias?)
		return &product{name: n.Name, x: n.Input(0), weight: n.Input(1), scale: n.Input(2), zero: n.Input(3), bias: n.Input(4),
			y: n.Output(0), replaces: n, fused: true}, nil
	}
	return nil, nil
}

func (w *rewriter) matchMatMulInteger(n *onnxpb.Node) (*product, error) {
	x, err := w.source(n, n.Input(0), n.Input(2))
	if err != nil {
		return nil, err
	}
	quantizer := w.makers[n.Input(0)]
	cast, err := w.onlyReader(n, "Cast")
	if err != nil {
		return nil, err
	}
	if to := cast.Attr("to"); to == nil || onnxpb.ElemType(to.Int) != onnxpb.Float32 {
		return nil, refuse(cast, "it does not cast to float32")
	}
	mul, err := w.onlyReader(cast, "Mul")
	if err != nil {
		return nil, err
	}
	scales := other(mul, cast.Output(0))
	if scales == "" {
		return nil, refuse(mul, "it multiplies the product by itself")
	}
	scaleMul := w.makers[scales]
	if scaleMul == nil || opName(scaleMul) != "Mul" {
		return nil, refuse(mul, "its factor %q is not the product of two scales", scales)
	}
	scale := other(scaleMul, quantizer.Output(1))
	if scale == "" {
		return nil, refuse(scaleMul, "it does not multiply the scale %q of the activations by one of the weight", quantizer.Output(1))
	}
	return &product{name: n.Name, x: x, weight: n.Input(1), scale: scale, zero: n.Input(3),
		y: mul.Output(0), replaces: n, drop: mul}, nil
}

// source finds the float value behind a dynamically quantised operand of n, whose zero point must be the operand's own.
func (w *rewriter) source(n *onnxpb.Node, operand, zero string) (string, error) {
	q := w.makers[operand]
	if q == nil || opName(q) != "DynamicQuantizeLinear" || q.Output(0) != operand {
		return "", refuse(n, "its first operand %q is not made by DynamicQuantizeLinear", operand)
	}
	if zero == "" || q.Output(2) != zero {
		return "", refuse(n, "its first operand's zero point %q is not %q, made by the same DynamicQuantizeLinear", zero, q.Output(2))
	}
	return q.Input(0), nil
}

// onlyReader returns the one node that reads n's output, which must be an op.
func (w *rewriter) onlyReader(n *onnxpb.Node, op string) (*onnxpb.Node, error) {
	out := n.Output(0)
	rs := w.readers[out]
	if w.outputs[out] {
		return nil, refuse(n, "its result %q is an output of the graph", out)
	}
	if len(rs) == 0 {
		return nil, refuse(n, "nothing reads its result %q", out)
	}
	for _, r := range rs {
		if opName(r) != op || !slices.Contains(r.Inputs, out) {
			return nil, refuse(n, "its result %q is read by node %q (%s), where only %s is expected", out, label(r), opName(r), op)
		}
	}
	if len(rs) > 1 {
		return nil, refuse(n, "its result %q is read %d times, where one %s is expected", out, len(rs), op)
	}
	return rs[0], nil
}

// other returns the operand of a two-operand node that is not known; "" when neither or both are.
func other(n *onnxpb.Node, known string) string {
	a, b := n.Input(0), n.Input(1)
	switch {
	case a == known && b != known:
		return b
	case b == known && a != known:
		return a
	}
	return ""
}

// rewrite appends the nodes that take p's place.
func (w *rewriter) rewrite(out []*onnxpb.Node, p *product) ([]*onnxpb.Node, error) {
	weight := w.tensors[p.weight]
	if weight == nil {
		return nil, refuse(p.replaces, "its weight %q is computed while running, not a constant", p.weight)
	}
	if weight.Type != onnxpb.Int8 && weight.Type != onnxpb.Uint8 {
		return nil, refuse(p.replaces, "its weight %q is %v, not int8 or uint8", p.weight, weight.Type)
	}
	dq, perChannel, err := w.parameters(p, weight)
	if err != nil {
		return nil, err
	}
	w.report.MatMuls++
	if perChannel {
		w.report.PerChannel++
	}
	if p.fused {
		w.report.Fused++
	}
	dequantized, ok := w.weights[dq]
	if !ok {
		dequantized = w.fresh(p.weight + "_dequantized")
		w.weights[dq] = dequantized
		w.report.Weights++
		inputs := []string{dq.weight, dq.scale}
		if dq.zero != "" {
			inputs = append(inputs, dq.zero)
		}
		var attrs []onnxpb.Attr
		if perChannel {
			attrs = append(attrs, onnxpb.IntAttr("axis", int64(len(weight.Dims)-1)))
		}
		out = append(out, onnxpb.NewNode(w.fresh(p.weight+"_DequantizeLinear"), "DequantizeLinear", inputs, []string{dequantized}, attrs...))
	}
	if p.bias == "" {
		return append(out, onnxpb.NewNode(p.name, "MatMul", []string{p.x, dequantized}, []string{p.y})), nil
	}
	sum := w.fresh(p.y + "_unbiased")
	return append(out,
		onnxpb.NewNode(p.name, "MatMul", []string{p.x, dequantized}, []string{sum}),
		onnxpb.NewNode(w.fresh(p.name+"_bias"), "Add", []string{sum, p.bias}, []string{p.y})), nil
}

// parameters brings scale and zero point into the shapes DequantizeLinear wants: both scalars, or both one value per column. Exporters
// write a scalar as shape [] or [1], and may give only one of the two per column.
func (w *rewriter) parameters(p *product, weight *onnxpb.Tensor) (k weightKey, perChannel bool, err error) {
	k.weight = p.weight
	scale := w.tensors[p.scale]
	if scale == nil {
		return k, false, refuse(p.replaces, "the scale %q of its weight is computed while running, not a constant", p.scale)
	}
	if scale.Type != onnxpb.Float32 {
		return k, false, refuse(p.replaces, "the scale %q of its weight is %v, not float32", p.scale, scale.Type)
	}
	rank := len(weight.Dims)
	if rank < 2 {
		return k, false, refuse(p.replaces, "its weight %q has shape %v, not a matrix", p.weight, weight.Dims)
	}
	columns := weight.Dims[rank-1]
	scaleEach, err := perColumn(p, scale, weight, max(1, rank-1)) // with as many dimensions as the weight it could add one to the result
	if err != nil {
		return k, false, err
	}
	var zero *onnxpb.Tensor
	zeroEach := false
	if p.zero != "" {
		if zero = w.tensors[p.zero]; zero == nil {
			return k, false, refuse(p.replaces, "the zero point %q of its weight is computed while running, not a constant", p.zero)
		}
		if zero.Type != weight.Type {
			return k, false, refuse(p.replaces, "the zero point %q is %v and its weight %v", p.zero, zero.Type, weight.Type)
		}
		if zeroEach, err = perColumn(p, zero, weight, rank); err != nil {
			return k, false, err
		}
	}
	perChannel = scaleEach || zeroEach
	if perChannel && w.opset < opsetPerAxis {
		return k, false, &OpsetError{Node: label(p.replaces), Have: w.opset, Need: opsetPerAxis}
	}
	var dims []int64
	if perChannel {
		dims = []int64{columns}
	}
	if k.scale, err = w.shaped(p, p.scale, scale, dims); err != nil {
		return k, false, err
	}
	if zero != nil {
		k.zero, err = w.shaped(p, p.zero, zero, dims)
	}
	return k, perChannel, err
}

// perColumn tells a parameter with one value per column of the weight from one with a single value, and refuses others and those with more
// than maxRank dimensions.
func perColumn(p *product, t, weight *onnxpb.Tensor, maxRank int) (bool, error) {
	single := true
	for _, d := range t.Dims {
		single = single && d == 1
	}
	columns := weight.Dims[len(weight.Dims)-1]
	switch n := len(t.Dims); {
	case n > maxRank:
	case single:
		return false, nil
	case t.Dims[n-1] == columns && !slices.ContainsFunc(t.Dims[:n-1], func(d int64) bool { return d != 1 }):
		return true, nil
	}
	return false, refuse(p.replaces, "the parameter %q has shape %v, which is neither one value nor [%d], one per column of its weight", t.Name, t.Dims, columns)
}

// shaped returns the name of a value with t's elements and the shape dims, making an initialiser when t, known as name, has another one.
// A single value is repeated where dims wants one per column.
func (w *rewriter) shaped(p *product, name string, t *onnxpb.Tensor, dims []int64) (string, error) {
	if slices.Equal(t.Dims, dims) {
		return name, nil
	}
	key, suffix := shapeKey{name, -1}, "_scalar"
	if len(dims) > 0 {
		key.columns, suffix = dims[0], "_columns"
	}
	if made, ok := w.shapes[key]; ok {
		return made, nil
	}
	n, err := t.Len()
	if err != nil {
		return "", err
	}
	made := w.fresh(name + suffix)
	var nt *onnxpb.Tensor
	if len(dims) == 0 || n == dims[0] {
		nt, err = t.Reshaped(made, dims)
	} else {
		var one []byte
		if one, err = t.Data(); err == nil {
			nt = onnxpb.NewTensor(made, t.Type, dims, bytes.Repeat(one, int(dims[0])))
		}
	}
	if err != nil {
		return "", refuse(p.replaces, "its parameter %q cannot be given the shape %v: %v", name, dims, err)
	}
	w.shapes[key] = made
	w.g.Initializers = append(w.g.Initializers, nt)
	return made, nil
}

func refuse(n *onnxpb.Node, format string, args ...any) error {
	return &PatternError{Node: label(n), Op: opName(n), Reason: fmt.Sprintf(format, args...)}
}

// leftOver explains a dynamic operator that no rewrite removed. A quantiser is left over because of what reads it, so what reads it is named
// first where that is itself such an operator.
func (w *rewriter) leftOver() error {
	var quantizer *onnxpb.Node
	for _, n := range w.g.Nodes {
		switch {
		case opName(n) == "DynamicQuantizeLinear":
			quantizer = n
		case isDynamic(n):
			return refuse(n, "only matrix products with a constant weight can be")
		}
	}
	if quantizer == nil {
		return nil
	}
	for _, o := range quantizer.Outputs {
		if w.outputs[o] {
			return refuse(quantizer, "its result %q is an output of the graph", o)
		}
		for _, r := range w.g.Nodes {
			if o != "" && slices.Contains(reads(r), o) {
				return refuse(quantizer, "its result %q is read by node %q (%s)", o, label(r), opName(r))
			}
		}
	}
	return refuse(quantizer, "it is still needed")
}

// label names a node: by its name, or by its first output where it has none, as old exporters leave it.
func label(n *onnxpb.Node) string {
	if n.Name != "" {
		return n.Name
	}
	return n.Output(0)
}

// nestedDynamic finds a dynamically quantised operator in n's subgraphs.
func nestedDynamic(n *onnxpb.Node) *onnxpb.Node {
	for _, a := range n.Attrs {
		for _, g := range a.Graphs {
			for _, inner := range g.Nodes {
				if isDynamic(inner) {
					return inner
				}
				if found := nestedDynamic(inner); found != nil {
					return found
				}
			}
		}
	}
	return nil
}
