package onnxpb

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// What is built reads back as it was meant, and is written alike in both ways.
func TestBuild(t *testing.T) {
	g := NewGraph("g")
	g.Inputs = []*ValueInfo{NewValueInfo("x", Int64, Dim{Size: -1, Param: "batch"}, Dim{Size: -1}, Dim{Size: 3})}
	g.Outputs = []*ValueInfo{NewValueInfo("y", Float32)}
	g.Initializers = []*Tensor{
		NewTensor("w", Int8, []int64{2, 2}, []byte{1, 2, 3, 255}),
		NewExternalTensor("far", Float32, []int64{5}, External{Location: "w.bin", Offset: 8, Length: 20}),
		NewExternalTensor("all", Float32, []int64{7}, External{Location: "w.bin"}),
	}
	g.Nodes = []*Node{NewNode("n", "Op", []string{"x", "", "w"}, []string{"y"}, FloatAttr("epsilon", 1e-12), IntsAttr("perm", 0, -2, 1), IntAttr("axis", -1))}
	model := NewModel("maker", 8, 17, g)
	file, err := model.Append([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	n, err := model.WriteTo(&written)
	if err != nil || n != int64(written.Len()) || "before"+written.String() != string(file) {
		t.Errorf("WriteTo wrote %d of %d bytes, and %t of Append's: %v", n, written.Len(), "before"+written.String() == string(file), err)
	}
	m, err := Parse(written.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if m.IRVersion != 8 || m.Producer != "maker" || !reflect.DeepEqual(m.Opsets, []Opset{{Version: 17}}) || m.Graph.Name != "g" {
		t.Errorf("%+v", m)
	}
	if v := m.Graph.Inputs[0]; v.Kind != "tensor" || v.Elem != Int64 || !reflect.DeepEqual(v.Dims, []Dim{{Size: -1, Param: "batch"}, {Size: -1}, {Size: 3}}) {
		t.Errorf("input %+v", v)
	}
	if v := m.Graph.Outputs[0]; v.Elem != Float32 || !v.HasShape || v.Dims != nil {
		t.Errorf("output %+v", v)
	}
	if b, err := m.Graph.Initializers[0].Data(); err != nil || !bytes.Equal(b, []byte{1, 2, 3, 255}) {
		t.Errorf("%v, %v", b, err)
	}
	for i, want := range []External{{Location: "w.bin", Offset: 8, Length: 20}, {Location: "w.bin"}} {
		x := m.Graph.Initializers[1+i]
		if _, err := x.Data(); x.External != want || !errors.Is(err, ErrExternal) {
			t.Errorf("%+v, %v", x.External, err)
		}
	}
	n0 := m.Graph.Nodes[0]
	if n0.Op != "Op" || !reflect.DeepEqual(n0.Inputs, []string{"x", "", "w"}) || len(n0.Attrs) != 3 || n0.Attr("axis").Int != -1 {
		t.Errorf("%+v", n0)
	}
	broken := errors.New("full")
	if _, err := model.WriteTo(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
