package graph

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ragate/models/onnxpb"
)

func inspectCase(t *testing.T, name string) *Facts {
	t.Helper()
	f, err := InspectFile(filepath.Join("testdata", name+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestInspect(t *testing.T) {
	f := inspectCase(t, "int8_bias")
	want := &Facts{
		Producer:  "make.py",
		IRVersion: 7,
		Opsets:    []onnxpb.Opset{{Version: 14}},
		Metadata:  map[string]string{},
		Inputs:    []Value{{Name: "x", Kind: "tensor", Elem: onnxpb.Float32, Dims: []onnxpb.Dim{{Size: -1, Param: "b"}, {Size: 8}}, HasShape: true}},
		Outputs: []Output{{Value: Value{Name: "y", Kind: "tensor", Elem: onnxpb.Float32, Dims: []onnxpb.Dim{{Size: -1, Param: "b"}, {Size: 6}}, HasShape: true},
			OnlyNodes: 6}},
		Nodes:                6,
		Ops:                  map[string]int{"DynamicQuantizeLinear": 1, "MatMulInteger": 1, "Cast": 1, "Mul": 2, "Add": 1},
		WeightType:           onnxpb.Int8,
		WeightBytes:          map[onnxpb.ElemType]int64{onnxpb.Int8: 49, onnxpb.Float32: 28},
		Parameters:           56,
		DynamicallyQuantized: true,
		DynamicOps:           map[string]int{"DynamicQuantizeLinear": 1, "MatMulInteger": 1},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("\n%+v, want\n%+v", f, want)
	}
	if got := f.Inputs[0].String() + ", " + f.Outputs[0].String(); got != "x: float32[b, 8], y: float32[b, 6]" {
		t.Error(got)
	}
}

func TestInspectFindsWhatIsHidden(t *testing.T) {
	if f := inspectCase(t, "old_inputs"); len(f.Inputs) != 1 || f.Inputs[0].Name != "x" {
		t.Errorf("initialisers are taken for inputs: %v", f.Inputs)
	}
	if f := inspectCase(t, "external"); !slices.Equal(f.ExternalData, []string{"external.data"}) || f.WeightBytes[onnxpb.Int8] != 64*6+1 {
		t.Errorf("external: %v, %v", f.ExternalData, f.WeightBytes)
	}
	if f := inspectCase(t, "constants"); f.WeightBytes[onnxpb.Int8] != 49 {
		t.Errorf("constant nodes: %v", f.WeightBytes)
	}
	if f := inspectCase(t, "inside_subgraph"); f.DynamicOps["MatMulInteger"] != 2 || f.Nodes != 11 {
		t.Errorf("subgraph: %d nodes, %v", f.Nodes, f.DynamicOps)
	}
	if f := inspectCase(t, "inside_function"); !f.DynamicallyQuantized || f.Ops["local:Dense"] != 1 {
		t.Errorf("function: %v", f.Ops)
	}
	if f := inspectCase(t, "fused_dynamic"); f.Ops["com.microsoft:DynamicQuantizeMatMul"] != 1 || !f.DynamicallyQuantized || len(f.Opsets) != 2 || f.Opsets[0].Domain != "" {
		t.Errorf("fused: %v, %v", f.Ops, f.Opsets)
	}
	if f := inspectCase(t, "float"); f.DynamicallyQuantized || f.WeightType != onnxpb.Float32 {
		t.Errorf("float: %v", f)
	}
	if f := inspectCase(t, "integer_output"); f.Outputs[0].OnlyNodes != 3 || f.Outputs[1].OnlyNodes != 0 {
		t.Errorf("outputs: %v", f.Outputs)
	}
}

func TestInspectFileNamesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.onnx")
	check(t, os.WriteFile(path, []byte("<html>"), 0o644))
	var syntax *onnxpb.SyntaxError
	if _, err := InspectFile(path); !errors.As(err, &syntax) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := InspectFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestValueString(t *testing.T) {
	for want, v := range map[string]Value{
		"a: int64[…]":       {Name: "a", Kind: "tensor", Elem: onnxpb.Int64},
		"a: float16[]":      {Name: "a", Kind: "tensor", Elem: onnxpb.Float16, HasShape: true},
		"a: float32[?, 3]":  {Name: "a", Kind: "tensor", Elem: onnxpb.Float32, HasShape: true, Dims: []onnxpb.Dim{{Size: -1}, {Size: 3}}},
		"a: sequence":       {Name: "a", Kind: "sequence"},
		"a: type 99[n]":     {Name: "a", Kind: "tensor", Elem: 99, HasShape: true, Dims: []onnxpb.Dim{{Size: -1, Param: "n"}}},
		"a: float8e5m2[0]":  {Name: "a", Kind: "tensor", Elem: 19, HasShape: true, Dims: []onnxpb.Dim{{Size: 0}}},
		"a: uint4[1, 2, 3]": {Name: "a", Kind: "tensor", Elem: onnxpb.Uint4, HasShape: true, Dims: []onnxpb.Dim{{Size: 1}, {Size: 2}, {Size: 3}}},
	} {
		if got := v.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPruneOutputs(t *testing.T) {
	file, err := os.ReadFile("testdata/integer_output.onnx")
	check(t, err)
	out, r, err := PruneOutputs(file, "m_int")
	check(t, err)
	m := mustParse(t, out)
	checkWhole(t, m)
	// What is left is the quantiser and the integer product; the Muls, the Cast and the weight's scale served the other output.
	if !reflect.DeepEqual(r, PruneReport{Outputs: []string{"y"}, Nodes: 3, Initializers: 1}) || len(m.Graph.Nodes) != 2 {
		t.Errorf("%+v, %d nodes", r, len(m.Graph.Nodes))
	}
	if same, r, err := PruneOutputs(file, "m_int", "y"); err != nil || !slices.Equal(same, file) || r.Nodes != 0 || r.Outputs != nil {
		t.Errorf("keeping all: %+v, %v", r, err)
	}
	var unknown *UnknownOutputError
	if _, _, err := PruneOutputs(file, "y", "z"); !errors.As(err, &unknown) || unknown.Output != "z" || !slices.Equal(unknown.Have, []string{"y", "m_int"}) {
		t.Errorf("unknown: %v", err)
	}
	if _, _, err := PruneOutputs(file); err == nil {
		t.Error("a graph without outputs was made")
	}
	// A value that only a subgraph reads is needed.
	sub, err := os.ReadFile("testdata/subgraph_reader.onnx")
	check(t, err)
	if out, r, err := PruneOutputs(sub, "y"); err != nil || r.Nodes != 0 || !slices.Equal(out, sub) {
		t.Errorf("subgraph: %+v, %v", r, err)
	}
	// Initialisers that were inputs too go in both places.
	old, err := os.ReadFile("testdata/old_inputs.onnx")
	check(t, err)
	out, r, err = PruneOutputs(old, "y")
	check(t, err)
	if r.Initializers != 1 || len(mustParse(t, out).Graph.Inputs) != 4 {
		t.Errorf("old inputs: %+v", r)
	}
}
