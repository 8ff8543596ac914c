package onnxpb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// files are the hand-made graphs that package graph is tested with: every field this package reads is in one of them.
func files(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../graph/testdata/*.onnx")
	if err != nil || len(paths) < 20 {
		t.Fatalf("found %d test graphs (%v), expected at least 20", len(paths), err)
	}
	out := map[string][]byte{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(p)] = b
	}
	return out
}

func mustParse(t testing.TB, b []byte) *Model {
	t.Helper()
	m, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustAppend(t testing.TB, m *Model) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUntouchedModelsComeBackByteForByte(t *testing.T) {
	for name, b := range files(t) {
		if got := mustAppend(t, mustParse(t, b)); !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes became %d others", name, len(b), len(got))
		}
	}
}

func TestAppendKeepsWhatIsInFront(t *testing.T) {
	m := mustParse(t, files(t)["uint8.onnx"])
	b, err := m.Append([]byte("front"))
	if err != nil || !bytes.HasPrefix(b, []byte("front")) || !bytes.Equal(b[5:], mustAppend(t, m)) {
		t.Fatalf("%v, %q…", err, b[:8])
	}
}

// Fields from a newer schema must survive at every level, the edited graph included.
func TestUnknownFieldsSurvive(t *testing.T) {
	unknown := func(mark string) []byte {
		b := protowire.AppendTag(nil, 900, protowire.BytesType)
		b = protowire.AppendString(b, mark)
		b = protowire.AppendTag(b, 901, protowire.VarintType)
		b = protowire.AppendVarint(b, 77)
		b = protowire.AppendTag(b, 902, protowire.StartGroupType)
		b = protowire.AppendTag(b, 1, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, 5)
		return protowire.AppendTag(b, 902, protowire.EndGroupType)
	}
	node := append(NewNode("n", "Relu", []string{"x"}, []string{"y"}).msg, unknown("node")...)
	tensor := append(NewTensor("w", Int8, []int64{1}, []byte{3}).msg, unknown("tensor")...)
	value := append(appendStringField(nil, 1, "y"), unknown("value")...)
	var graph []byte
	graph = append(graph, unknown("graph-first")...) // out of the usual order
	graph = appendBytesField(graph, graphOutput, value)
	graph = appendBytesField(graph, graphInitializer, tensor)
	graph = appendBytesField(graph, graphNode, node)
	graph = appendStringField(graph, graphName, "g")
	file := append(unknown("model"), appendBytesField(nil, modelGraph, graph)...)
	file = appendIntField(file, 1, 9)

	m := mustParse(t, file)
	if m.IRVersion != 9 || m.Graph.Name != "g" || m.Graph.Nodes[0].Op != "Relu" || m.Graph.Initializers[0].Name != "w" || m.Graph.Outputs[0].Name != "y" {
		t.Fatalf("read %+v", m)
	}
	m.Graph.Nodes = append(m.Graph.Nodes, NewNode("second", "Neg", []string{"y"}, []string{"z"}))
	out := mustAppend(t, m)
	for _, mark := range []string{"model", "graph-first", "node", "tensor", "value"} {
		if bytes.Count(out, unknown(mark)) != 1 {
			t.Errorf("the unknown fields of %s are there %d times", mark, bytes.Count(out, unknown(mark)))
		}
	}
	again := mustParse(t, out)
	if len(again.Graph.Nodes) != 2 || !bytes.Equal(mustAppend(t, again), out) {
		t.Error("the written file is not in its final order")
	}
}

func TestEveryTruncationIsASyntaxErrorOrAShorterModel(t *testing.T) {
	b := files(t)["consumers.onnx"]
	refused := 0
	for n := range b {
		m, err := Parse(b[:n])
		var syntax *SyntaxError
		switch {
		case err == nil:
			mustAppend(t, m)
		case errors.As(err, &syntax):
			refused++
			if syntax.Error() == "" || syntax.Message == "" {
				t.Fatalf("%d bytes: %#v", n, syntax)
			}
		default:
			t.Fatalf("%d bytes: %v is not a SyntaxError", n, err)
		}
	}
	if refused < len(b)*9/10 {
		t.Errorf("only %d of %d truncations were refused", refused, len(b))
	}
}

func TestParseRefuses(t *testing.T) {
	graph := appendBytesField(nil, modelGraph, nil)
	deep := []byte{}
	for range maxDepth + 2 {
		attr := appendBytesField(nil, attrGraph, deep)
		deep = appendBytesField(nil, graphNode, appendBytesField(nil, nodeAttr, attr))
	}
	external := appendIntField(appendStringField(nil, tensorName, "w"), tensorLocation, 1)
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":         {nil, nil},
		"text":          {[]byte("version https://git-lfs.github.com/spec/v1\n"), nil},
		"two graphs":    {append(graph, graph...), errTwice},
		"wrong type":    {appendIntField(nil, modelGraph, 4), errWireType},
		"deep":          {appendBytesField(nil, modelGraph, deep), errDepth},
		"external name": {appendBytesField(nil, modelGraph, appendBytesField(nil, graphInitializer, external)), nil},
	} {
		_, err := Parse(c.file)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseCopiesNoWeights(t *testing.T) {
	const size = 16 << 20
	big := appendBytesField(nil, graphInitializer, NewTensor("w", Int8, []int64{size}, make([]byte, size)).msg)
	file := appendBytesField(nil, modelGraph, big)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := mustParse(t, file)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("parsing a model of %d bytes allocated %d", size, got)
	}
	runtime.ReadMemStats(&before)
	mustAppend(t, m)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > size+size/8 {
		t.Errorf("writing a model of %d bytes allocated %d", size, got)
	}
}

func TestTensorData(t *testing.T) {
	typed := func(typ ElemType, num protowire.Number, list []byte, dims ...int64) *Tensor {
		var b []byte
		for _, d := range dims {
			b = appendIntField(b, tensorDims, d)
		}
		b = appendIntField(b, tensorType, int64(typ))
		tt, err := parseTensor(appendBytesField(b, num, list))
		if err != nil {
			t.Fatal(err)
		}
		return tt
	}
	varints := func(vs ...int64) (b []byte) {
		for _, v := range vs {
			b = protowire.AppendVarint(b, uint64(v))
		}
		return b
	}
	floats := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5))
	doubles := binary.LittleEndian.AppendUint64(nil, math.Float64bits(-2.25))
	for name, c := range map[string]struct {
		tensor *Tensor
		want   []byte
	}{
		"int8":    {typed(Int8, tensorInt32s, varints(-128, 127), 2), []byte{0x80, 0x7f}},
		"uint8":   {typed(Uint8, tensorInt32s, varints(255)), []byte{255}},
		"int16":   {typed(Int16, tensorInt32s, varints(-2), 1), []byte{0xfe, 0xff}},
		"float16": {typed(Float16, tensorInt32s, varints(0x3c00), 1), []byte{0x00, 0x3c}},
		"int32":   {typed(Int32, tensorInt32s, varints(-3), 1, 1), []byte{0xfd, 0xff, 0xff, 0xff}},
		"int64":   {typed(Int64, tensorInt64s, varints(-1), 1), bytes.Repeat([]byte{0xff}, 8)},
		"float32": {typed(Float32, tensorFloats, floats), floats},
		"float64": {typed(Float64, tensorDoubles, doubles, 1), doubles},
		"raw":     {NewTensor("r", Float32, []int64{1}, floats), floats},
		"int4":    {NewTensor("r", Int4, []int64{3}, []byte{0x21, 0x03}), []byte{0x21, 0x03}},
		"empty":   {NewTensor("r", Float32, []int64{0, 4}, nil), nil},
	} {
		got, err := c.tensor.Data()
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
	for name, bad := range map[string]*Tensor{
		"short":    NewTensor("r", Float32, []int64{2}, floats),
		"long":     NewTensor("r", Float32, nil, append(floats, 0)),
		"strings":  NewTensor("r", String, nil, nil),
		"huge":     NewTensor("r", Float32, []int64{math.MaxInt64, math.MaxInt64}, nil),
		"bits":     NewTensor("r", Float32, []int64{math.MaxInt64}, nil),
		"negative": NewTensor("r", Float32, []int64{-1}, nil),
		"field":    typed(Float32, tensorDoubles, doubles, 1),
		"external": {Name: "w", Type: Int8, External: External{Location: "w.bin"}},
	} {
		if got, err := bad.Data(); err == nil {
			t.Errorf("%s: %d bytes and no error", name, len(got))
		}
	}
	_, err := (&Tensor{Type: Int8, External: External{Location: "w.bin"}}).Data()
	if !errors.Is(err, ErrExternal) {
		t.Errorf("external: %v", err)
	}
}

func TestReshapedKeepsElements(t *testing.T) {
	was := NewTensor("s", Float32, []int64{1, 1}, []byte{1, 2, 3, 4})
	now, err := was.Reshaped("scalar", nil)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := now.Data(); err != nil || now.Name != "scalar" || len(now.Dims) != 0 || !bytes.Equal(data, []byte{1, 2, 3, 4}) {
		t.Errorf("%+v, %v, %v", now, data, err)
	}
	if was.Name != "s" || len(was.Dims) != 2 {
		t.Errorf("the source changed: %+v", was)
	}
	if _, err := was.Reshaped("two", []int64{2}); err == nil {
		t.Error("one element took the shape [2]")
	}
	m := mustParse(t, files(t)["external.onnx"])
	for _, tt := range m.Graph.Initializers {
		if tt.Name == "w_scale" {
			got, err := tt.Reshaped("other", nil)
			if err != nil || !reflect.DeepEqual(got.External, tt.External) || got.External.Location == "" || got.External.Length != 4 {
				t.Errorf("external: %+v became %+v (%v)", tt.External, got.External, err)
			}
		}
	}
}

func TestNewMessagesReadBack(t *testing.T) {
	n := NewNode("n", "DequantizeLinear", []string{"w", "", "z"}, []string{"y"}, IntAttr("axis", -1))
	got, err := parseNode(n.msg, 0)
	if err != nil || got.Name != "n" || got.Op != "DequantizeLinear" || got.Domain != "" ||
		!reflect.DeepEqual(got.Inputs, n.Inputs) || !reflect.DeepEqual(got.Outputs, n.Outputs) || got.Attr("axis") == nil || got.Attr("axis").Int != -1 {
		t.Errorf("node: %+v, %v", got, err)
	}
	if got.Attr("none") != nil || got.Input(1) != "" || got.Input(7) != "" || got.Output(1) != "" {
		t.Error("absent attributes, inputs or outputs are not absent")
	}
	w := NewTensor("w", Uint8, []int64{2, 1}, []byte{7, 9})
	gt, err := parseTensor(w.msg)
	if err != nil || gt.Name != "w" || gt.Type != Uint8 || !reflect.DeepEqual(gt.Dims, w.Dims) {
		t.Errorf("tensor: %+v, %v", gt, err)
	}
}

func TestTooLarge(t *testing.T) {
	// One quarter of a gigabyte nine times: the length counts, and nothing touches the memory.
	big := &Tensor{Name: "w", msg: make([]byte, 1<<28)}
	m := &Model{Graph: &Graph{Initializers: slices.Repeat([]*Tensor{big}, 9)}}
	_, err := m.Append(nil)
	var large *TooLargeError
	if !errors.As(err, &large) || large.Size < 9<<28 || large.Limit != math.MaxInt32 {
		t.Errorf("%v", err)
	}
}

// FuzzParse: whatever the bytes, reading them ends in a SyntaxError or in a model that is written and read again unchanged.
func FuzzParse(f *testing.F) {
	for _, b := range files(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("%v is not a SyntaxError", err)
			}
			return
		}
		for _, tt := range m.Graph.Initializers {
			if _, err := tt.Len(); err == nil {
				_, _ = tt.Data()
			}
		}
		once := mustAppend(t, m)
		if len(once) > len(b)+10 { // the graph's length may have been written with fewer bytes than needed; nothing else grows
			t.Fatalf("%d bytes became %d", len(b), len(once))
		}
		twice := mustAppend(t, mustParse(t, once))
		if !bytes.Equal(once, twice) {
			t.Fatal("writing is not stable")
		}
	})
}
