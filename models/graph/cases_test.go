package graph

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ragate/models/onnxpb"
)

// testCase is one of the hand-made graphs of testdata/make.py.
type testCase struct {
	Name   string
	Note   string
	X, Y   []float32
	XShape []int
	YShape []int
	// What a rewrite must report.
	MatMuls, Weights, PerChannel, Fused, Nodes int
	External                                   []string
	Interpret                                  *bool // false: it has operators that the interpreter below does not know
	Want                                       *struct{ Error, Node string }

	file []byte
}

func testCases(t testing.TB) []testCase {
	t.Helper()
	b, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cs []testCase
	if err := json.Unmarshal(b, &cs); err != nil {
		t.Fatal(err)
	}
	if len(cs) < 30 {
		t.Fatalf("only %d cases", len(cs))
	}
	for i := range cs {
		if cs[i].file, err = os.ReadFile(filepath.Join("testdata", cs[i].Name+".onnx")); err != nil {
			t.Fatal(err)
		}
	}
	return cs
}

func mustParse(t testing.TB, b []byte) *onnxpb.Model {
	t.Helper()
	m, err := onnxpb.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWeightOnlyRewrites(t *testing.T) {
	for _, c := range testCases(t) {
		if c.Want != nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			out, r, err := WeightOnly(c.file)
			if err != nil {
				t.Fatal(err)
			}
			weights := c.Weights
			if weights == 0 {
				weights = c.MatMuls
			}
			before := mustParse(t, c.file)
			want := Report{MatMuls: c.MatMuls, PerChannel: c.PerChannel, Fused: c.Fused, Weights: weights,
				NodesBefore: len(before.Graph.Nodes), NodesAfter: c.Nodes, ExternalData: c.External}
			if !reflect.DeepEqual(r, want) {
				t.Errorf("report %+v, want %+v", r, want)
			}
			m := mustParse(t, out)
			checkWhole(t, m)
			if !reflect.DeepEqual(names(m.Graph.Outputs), names(before.Graph.Outputs)) {
				t.Errorf("outputs %q became %q", names(before.Graph.Outputs), names(m.Graph.Outputs))
			}
			f, err := Inspect(out)
			if err != nil || f.DynamicallyQuantized {
				t.Errorf("still dynamic: %v, %v", f.DynamicOps, err)
			}
			if _, _, err := WeightOnly(out); !errors.Is(err, ErrNotDynamic) {
				t.Errorf("rewriting the result again: %v", err)
			}
			if c.Interpret == nil {
				checkOutput(t, m, c)
			}
			// Where somebody wants to run them: testdata/make.py check does.
			if dir := os.Getenv("RAGATE_TEST_KEEP"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, c.Name+".onnx"), out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestWeightOnlyRefuses(t *testing.T) {
	refused := 0
	for _, c := range testCases(t) {
		if c.Want == nil {
			continue
		}
		refused++
		out, _, err := WeightOnly(c.file)
		if err == nil || out != nil {
			t.Errorf("%s: not refused", c.Name)
			continue
		}
		var pattern *PatternError
		var opset *OpsetError
		switch c.Want.Error {
		case "not dynamic":
			if !errors.Is(err, ErrNotDynamic) {
				t.Errorf("%s: %v", c.Name, err)
			}
		case "pattern":
			if !errors.As(err, &pattern) || pattern.Node != c.Want.Node || !strings.Contains(err.Error(), pattern.Reason) {
				t.Errorf("%s: %v; want a PatternError that names %q", c.Name, err, c.Want.Node)
			}
		case "opset":
			if !errors.As(err, &opset) || *opset != (OpsetError{Node: c.Want.Node, Have: 11, Need: 13}) {
				t.Errorf("%s: %v", c.Name, err)
			}
		default:
			t.Errorf("%s: unknown expectation %q", c.Name, c.Want.Error)
		}
		t.Logf("%s: %v", c.Name, err)
	}
	if refused < 15 {
		t.Errorf("only %d cases that must be refused", refused)
	}
	_, _, err := WeightOnly([]byte("not a model"))
	var syntax *onnxpb.SyntaxError
	if !errors.As(err, &syntax) {
		t.Errorf("text: %v", err)
	}
}

func TestWeightOnlyIsDeterministicAndLeavesItsInputAlone(t *testing.T) {
	for _, c := range testCases(t) {
		was := slices.Clone(c.file)
		first, _, err := WeightOnly(c.file)
		for range 20 {
			again, _, err2 := WeightOnly(c.file)
			if !slices.Equal(first, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("%s: two results for one file (%v, %v)", c.Name, err, err2)
			}
		}
		if !slices.Equal(was, c.file) {
			t.Errorf("%s: the input changed", c.Name)
		}
	}
}

// checkWhole checks what every graph must hold: each value is made once and before it is used, each initialiser is used, and nothing is
// said about values that do not exist.
func checkWhole(t *testing.T, m *onnxpb.Model) {
	t.Helper()
	made := map[string]bool{"": true}
	used := map[string]bool{}
	for _, v := range m.Graph.Inputs {
		made[v.Name] = true
	}
	for _, ini := range m.Graph.Initializers {
		made[ini.Name] = true
	}
	nodes := map[string]bool{}
	for _, n := range m.Graph.Nodes {
		if nodes[n.Name] && n.Name != "" {
			t.Errorf("two nodes are named %q", n.Name)
		}
		nodes[n.Name] = true
		for _, i := range n.Inputs {
			if !made[i] {
				t.Errorf("node %q reads %q, which nothing before it makes", n.Name, i)
			}
		}
		for _, i := range reads(n) {
			used[i] = true
		}
		for _, o := range n.Outputs {
			if made[o] && o != "" {
				t.Errorf("node %q makes %q a second time", n.Name, o)
			}
			made[o] = true
		}
	}
	for _, o := range m.Graph.Outputs {
		used[o.Name] = true
		if !made[o.Name] {
			t.Errorf("nothing makes the output %q", o.Name)
		}
	}
	for _, ini := range m.Graph.Initializers {
		if !used[ini.Name] {
			t.Errorf("the initialiser %q is not used", ini.Name)
		}
	}
	for _, v := range m.Graph.ValueInfos {
		if !made[v.Name] {
			t.Errorf("a shape is given for %q, which does not exist", v.Name)
		}
	}
}

// checkOutput runs the graph with the interpreter and compares it with what numpy computed.
func checkOutput(t *testing.T, m *onnxpb.Model, c testCase) {
	t.Helper()
	v := values{"x": {c.XShape, c.X}}
	for _, n := range m.Graph.Nodes {
		v.run(t, m, n)
	}
	got := v["y"]
	if !slices.Equal(got.shape, c.YShape) {
		t.Fatalf("shape %v, want %v", got.shape, c.YShape)
	}
	for i := range c.Y {
		// Sums of a few dozen float32 products, in another order than numpy's.
		if d := math.Abs(float64(got.data[i] - c.Y[i])); d > 2e-6*(1+math.Abs(float64(c.Y[i]))) {
			t.Fatalf("element %d is %v, want %v", i, got.data[i], c.Y[i])
		}
	}
}

// array is a float32 tensor in row-major order.
type array struct {
	shape []int
	data  []float32
}

// values is a plain interpreter of the operators that rewritten graphs consist of: the reference for what they mean.
type values map[string]array

func (v values) run(t testing.TB, m *onnxpb.Model, n *onnxpb.Node) {
	t.Helper()
	get := func(i int) array {
		if a, ok := v[n.Input(i)]; ok {
			return a
		}
		return v.constant(t, m, n.Input(i))
	}
	switch n.Op {
	case "Constant", "Identity": // constants are looked up where they are used
		return
	case "DequantizeLinear":
		v[n.Output(0)] = dequantize(t, m, n)
	case "MatMul":
		v[n.Output(0)] = matMul(get(0), get(1))
	case "Add":
		v[n.Output(0)] = addBroadcast(get(0), get(1))
	case "Relu":
		a := get(0)
		out := array{a.shape, slices.Clone(a.data)}
		for i, x := range out.data {
			out.data[i] = max(x, 0)
		}
		v[n.Output(0)] = out
	default:
		t.Fatalf("the interpreter does not know %s", n.Op)
	}
}

// lookup finds an initialiser, or a Constant node's value, through Identity.
func lookupTensor(t testing.TB, m *onnxpb.Model, name string) *onnxpb.Tensor {
	t.Helper()
	for _, ini := range m.Graph.Initializers {
		if ini.Name == name {
			return ini
		}
	}
	for _, n := range m.Graph.Nodes {
		if n.Output(0) == name && n.Op == "Constant" {
			return n.Attr("value").Tensor
		}
		if n.Output(0) == name && n.Op == "Identity" {
			return lookupTensor(t, m, n.Input(0))
		}
	}
	t.Fatalf("no constant %q", name)
	return nil
}

func (v values) constant(t testing.TB, m *onnxpb.Model, name string) array {
	t.Helper()
	ini := lookupTensor(t, m, name)
	return array{shapeOf(ini), float32s(t, ini)}
}

func shapeOf(x *onnxpb.Tensor) []int {
	shape := make([]int, len(x.Dims))
	for i, d := range x.Dims {
		shape[i] = int(d)
	}
	return shape
}

func float32s(t testing.TB, x *onnxpb.Tensor) []float32 {
	t.Helper()
	b, err := x.Data()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// dequantize is ONNX's definition of DequantizeLinear: (x - zero point) * scale, the parameters being one for all or one per index of the
// axis. The difference of 8-bit integers is exact; the product is rounded once.
func dequantize(t testing.TB, m *onnxpb.Model, n *onnxpb.Node) array {
	t.Helper()
	x := lookupTensor(t, m, n.Input(0))
	xs, err := x.Data()
	if err != nil {
		t.Fatal(err)
	}
	scale := lookupTensor(t, m, n.Input(1))
	scales := float32s(t, scale)
	zeros := make([]byte, len(scales))
	if name := n.Input(2); name != "" {
		zero := lookupTensor(t, m, name)
		if zero.Type != x.Type || !slices.Equal(zero.Dims, scale.Dims) {
			t.Fatalf("node %q: zero point %v%v, scale %v, x %v", n.Name, zero.Type, zero.Dims, scale.Dims, x.Type)
		}
		if zeros, err = zero.Data(); err != nil {
			t.Fatal(err)
		}
	}
	inner := 1
	switch len(scale.Dims) {
	case 0:
	case 1:
		axis := int64(1)
		if a := n.Attr("axis"); a != nil {
			axis = a.Int
		}
		if scale.Dims[0] != x.Dims[axis] {
			t.Fatalf("node %q: %d scales for axis %d of %v", n.Name, scale.Dims[0], axis, x.Dims)
		}
		for _, d := range x.Dims[axis+1:] {
			inner *= int(d)
		}
	default:
		t.Fatalf("node %q: scale of shape %v", n.Name, scale.Dims)
	}
	integer := func(b byte) int32 {
		if x.Type == onnxpb.Int8 {
			return int32(int8(b))
		}
		return int32(b)
	}
	out := array{shapeOf(x), make([]float32, len(xs))}
	for i, b := range xs {
		p := i / inner % len(scales)
		out.data[i] = float32(integer(b)-integer(zeros[p])) * scales[p]
	}
	return out
}

// matMul multiplies the last two dimensions; the weight may be one for all or one per first index.
func matMul(a, b array) array {
	k, cols := b.shape[len(b.shape)-2], b.shape[len(b.shape)-1]
	rows := len(a.data) / k
	perWeight := rows
	if len(b.shape) == 3 {
		perWeight = rows / b.shape[0]
	}
	out := array{append(slices.Clone(a.shape[:len(a.shape)-1]), cols), make([]float32, rows*cols)}
	for r := range rows {
		w := b.data[r/perWeight*k*cols:]
		for c := range cols {
			sum := 0.0
			for i := range k {
				sum += float64(a.data[r*k+i]) * float64(w[i*cols+c])
			}
			out.data[r*cols+c] = float32(sum)
		}
	}
	return out
}

// addBroadcast adds arrays of one shape, or one that repeats along the other's last dimensions.
func addBroadcast(a, b array) array {
	if len(a.data) < len(b.data) {
		a, b = b, a
	}
	out := array{a.shape, slices.Clone(a.data)}
	for i := range out.data {
		out.data[i] += b.data[i%len(b.data)]
	}
	return out
}
