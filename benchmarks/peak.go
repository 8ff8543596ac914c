package benchmarks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/models/onnxpb"
)

// The arithmetic peak of a machine is what its runtime reaches on nothing but large matrix products: the same library, provider, number format,
// streams and threads that a model runs with, a chain of products big enough to keep every multiplier busy and small enough for the
// cache, and none of the work between. No model reaches it; how close one comes is what is left to gain.

const (
	peakSize   = 1024 // rows and columns of the weights: 4 MB in float32, 2 in bfloat16
	peakLayers = 8
	peakTokens = 256 // of a run: rows of the other operand
	peakRuns   = 20  // timed, of each stream; the best counts, so they are short: a moment without other programs is enough
)

// Peak is what a GEMM of the runtime reached.
type Peak struct {
	Provider   string  `json:"provider"`
	Arithmetic string  `json:"arithmetic"`
	Streams    int     `json:"streams"`
	Threads    int     `json:"threads"`
	FLOPS      float64 `json:"flops"` // operations per second, a multiplication and an addition being two
	How        string  `json:"how"`
}

// MeasurePeak measures it in the way that info says a model runs: in int8 the operands of every product are quantised before it, as a dynamically
// quantised model's are, and that counts as no operation.
func MeasurePeak(ctx context.Context, rt *ort.Runtime, info ModelInfo) (p Peak, err error) {
	arithmetic, quantised := ort.Arithmetic(info.Precision), false
	switch info.Precision {
	case "bf16", "fp32":
	case "int8", "int8-batched":
		arithmetic, quantised = ort.AsStored, true
	default:
		return p, fmt.Errorf("the model runs in %s, which this benchmark does not know", info.Precision)
	}
	p = Peak{Provider: info.Provider, Arithmetic: info.Precision, Streams: info.Streams, Threads: info.Threads,
		How: fmt.Sprintf("%d products of %d × %d by %d × %d with a ReLU after each, in one graph; the best of %d runs of all streams at once",
			peakLayers, peakTokens, peakSize, peakSize, peakSize, peakRuns)}
	dir, err := os.MkdirTemp("", "ragate-peak-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gemm.onnx")
	file, err := gemmGraph(peakSize, peakLayers, quantised)
	if err != nil {
		return p, err
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return p, err
	}
	inputs, outputs, err := rt.Describe(path)
	if err != nil {
		return p, err
	}
	binding := models.Binding{Output: outputs[0].Name, Form: models.FormTokens, Dimensions: gemmOut,
		Inputs: []models.InputBinding{{Name: inputs[0].Name, Role: models.InputIDs, Type: inputs[0].Type}}}
	s, err := rt.NewSession(ort.SessionConfig{GraphPath: path, Provider: ort.Provider(info.Provider), Arithmetic: arithmetic,
		Streams: info.Streams, Threads: info.Threads, Binding: binding, Output: outputs[0]})
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var streams []*ort.Stream
	for range info.Streams {
		st, err := s.NewStream()
		if err != nil {
			return p, err
		}
		defer st.Close()
		streams = append(streams, st)
	}
	rows := make([]ort.Row, 4)
	for i := range rows {
		ids := make([]int32, peakTokens/len(rows))
		for k := range ids {
			ids[k] = int32(k % gemmWords)
		}
		rows[i] = ort.Row{IDs: ids, TypeOneAt: len(ids)}
	}
	run := func() (time.Duration, error) {
		var wg sync.WaitGroup
		errs := make([]error, len(streams))
		began := time.Now()
		for i, st := range streams {
			wg.Go(func() { _, errs[i] = st.Run(rows, len(rows[0].IDs)) })
		}
		wg.Wait()
		return time.Since(began), errors.Join(errs...)
	}
	perRun := 2 * float64(peakTokens) * peakSize * (peakSize*peakLayers + gemmOut) * float64(len(streams))
	for i := range peakRuns + 2 { // the first ones compile the shape and place the weights
		if ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		took, err := run()
		if err != nil {
			return p, err
		}
		if i >= 2 {
			p.FLOPS = max(p.FLOPS, perRun/took.Seconds())
		}
	}
	return p, nil
}

const (
	gemmWords = 16 // rows of the table that ids choose from
	gemmOut   = 8  // columns of the result: few, so that nothing is spent on copying it
)

// gemmGraph writes a graph of matrix products: ids choose rows of a table, which are multiplied by one square matrix after another.
// The input is no constant and every weight is another, so that no optimiser computes anything beforehand.
// Quantised, each product is of int8 by int8: the operand's scale is found at run time, the weights have one of their own.
func gemmGraph(size, layers int, quantised bool) ([]byte, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	matrix := func(name string, rows, cols int) *onnxpb.Tensor {
		raw := make([]byte, 0, 4*rows*cols)
		for range rows * cols {
			// Of this spread, values keep their size from product to product behind a ReLU: no infinities, no denormal numbers.
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rng.NormFloat64()*math.Sqrt(2/float64(rows)))))
		}
		return onnxpb.NewTensor(name, onnxpb.Float32, []int64{int64(rows), int64(cols)}, raw)
	}
	const weightScale = 1.0 / 128
	small := func(name string, rows, cols int) *onnxpb.Tensor {
		raw := make([]byte, rows*cols)
		for i := range raw {
			v := rng.NormFloat64() * math.Sqrt(2/float64(rows)) / weightScale
			raw[i] = byte(int8(max(-127, min(127, math.Round(v)))))
		}
		return onnxpb.NewTensor(name, onnxpb.Int8, []int64{int64(rows), int64(cols)}, raw)
	}
	m, err := onnxpb.Parse(gemmFrame())
	if err != nil {
		return nil, err
	}
	g := m.Graph
	g.Initializers = append(g.Initializers, matrix("table", gemmWords, size))
	if quantised {
		g.Initializers = append(g.Initializers, onnxpb.NewTensor("weight_zero", onnxpb.Int8, nil, []byte{0}),
			onnxpb.NewTensor("weight_scale", onnxpb.Float32, nil, binary.LittleEndian.AppendUint32(nil, math.Float32bits(weightScale))))
	}
	g.Nodes = append(g.Nodes, onnxpb.NewNode("embed", "Gather", []string{"table", "input_ids"}, []string{"x0"}))
	for i := range layers {
		in, w, y, x := fmt.Sprintf("x%d", i), fmt.Sprintf("w%d", i), fmt.Sprintf("y%d", i), fmt.Sprintf("x%d", i+1)
		if quantised {
			part := func(name string) string { return name + w }
			g.Initializers = append(g.Initializers, small(w, size, size))
			g.Nodes = append(g.Nodes,
				onnxpb.NewNode(part("quantise"), "DynamicQuantizeLinear", []string{in}, []string{part("q"), part("scale"), part("zero")}),
				onnxpb.NewNode(part("product"), "MatMulInteger", []string{part("q"), w, part("zero"), "weight_zero"}, []string{part("sum")}),
				onnxpb.NewNode(part("cast"), "Cast", []string{part("sum")}, []string{part("float")}, onnxpb.IntAttr("to", int64(onnxpb.Float32))),
				onnxpb.NewNode(part("both"), "Mul", []string{part("scale"), "weight_scale"}, []string{part("scales")}),
				onnxpb.NewNode(part("scaled"), "Mul", []string{part("float"), part("scales")}, []string{y}))
		} else {
			g.Initializers = append(g.Initializers, matrix(w, size, size))
			g.Nodes = append(g.Nodes, onnxpb.NewNode("product"+w, "MatMul", []string{in, w}, []string{y}))
		}
		g.Nodes = append(g.Nodes, onnxpb.NewNode("relu"+w, "Relu", []string{y}, []string{x}))
	}
	g.Initializers = append(g.Initializers, matrix("out", size, gemmOut))
	g.Nodes = append(g.Nodes, onnxpb.NewNode("last", "MatMul", []string{fmt.Sprintf("x%d", layers), "out"}, []string{"last_hidden_state"}))
	return m.Append(nil)
}

// gemmFrame is a model without nodes, by the field numbers of onnx.proto: version 8 of the format, operator set 17, ids in, vectors out.
func gemmFrame() []byte {
	message := func(field int, parts ...[]byte) []byte {
		var body []byte
		for _, p := range parts {
			body = append(body, p...)
		}
		return append(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field<<3|2)), uint64(len(body))), body...)
	}
	number := func(field int, v uint64) []byte {
		return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field<<3)), v)
	}
	text := func(field int, s string) []byte { return message(field, []byte(s)) }
	value := func(field int, name string, elem onnxpb.ElemType, dims ...[]byte) []byte {
		return message(field, text(1, name), message(2, message(1, number(1, uint64(elem)), message(2, dims...))))
	}
	free := func(name string) []byte { return message(1, text(2, name)) }
	graph := message(7, text(2, "gemm"), value(11, "input_ids", onnxpb.Int64, free("batch"), free("sequence")),
		value(12, "last_hidden_state", onnxpb.Float32, free("batch"), free("sequence"), message(1, number(1, gemmOut))))
	return append(append(number(1, 8), graph...), message(8, text(1, ""), number(2, 17))...)
}

// Cost is what one token costs a transformer: PerToken operations, and PerLength more for each token of its sequence (attention).
// A multiplication and an addition are two.
type Cost struct{ PerToken, PerLength float64 }

// Of is the operations of one token in a sequence of that many.
func (c Cost) Of(length float64) float64 { return c.PerToken + c.PerLength*length }

// GraphCost counts the matrix products of a graph: those with a weight of two dimensions, 2·rows·columns each, and those of two computed
// operands, which are attention's: 2·hidden for every token of the sequence. What runs once a row (pooler and classifier: all behind the choice of one
// token, and Gemm) is left out, and so is everything that is no product.
func GraphCost(file []byte) (Cost, error) {
	m, err := onnxpb.Parse(file)
	if err != nil {
		return Cost{}, err
	}
	weights := map[string][]int64{}
	for _, t := range m.Graph.Initializers {
		weights[t.Name] = t.Dims
	}
	made := map[string]*onnxpb.Node{}
	for _, n := range m.Graph.Nodes {
		for _, out := range n.Outputs {
			made[out] = n
		}
		if a := n.Attr("value"); n.Op == "Constant" && a != nil && a.Tensor != nil {
			weights[n.Output(0)] = a.Tensor.Dims
		}
	}
	dims := func(name string) []int64 { // of a weight, or of one that is only unpacked or turned
		for range 4 {
			if d, ok := weights[name]; ok {
				return d
			}
			n := made[name]
			if n == nil || n.Op != "DequantizeLinear" && n.Op != "Transpose" && n.Op != "Cast" && n.Op != "Identity" {
				return nil
			}
			name = n.Input(0)
		}
		return nil
	}
	// once holds what there is once a row.
	once := map[string]bool{}
	for _, n := range m.Graph.Nodes {
		given, all := 0, true
		for _, in := range n.Inputs {
			if _, weight := weights[in]; in != "" && !weight {
				given++
				all = all && once[in]
			}
		}
		_, table := weights[n.Input(0)]
		axis := n.Attr("axis")
		if given > 0 && all || n.Op == "Gather" && !table && axis != nil && axis.Int == 1 {
			for _, out := range n.Outputs {
				once[out] = true
			}
		}
	}
	var c Cost
	computed, hidden := 0, map[int64]int{}
	for _, n := range m.Graph.Nodes {
		if n.Op != "MatMul" && n.Op != "MatMulInteger" || once[n.Output(0)] {
			continue
		}
		switch d := dims(n.Input(1)); {
		case len(d) == 2:
			c.PerToken += 2 * float64(d[0]) * float64(d[1])
			hidden[d[0]]++
		case d == nil:
			computed++
		}
	}
	width, most := int64(0), 0
	for w, n := range hidden {
		if n > most || n == most && w < width {
			width, most = w, n
		}
	}
	if c.PerToken == 0 {
		return Cost{}, errors.New("benchmarks: the graph has no matrix product with a weight")
	}
	c.PerLength = float64(computed) * 2 * float64(width)
	return c, nil
}
