package onnxpb

import (
	"io"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file makes models from nothing; the rest of the package reads them and writes them again.

const (
	modelIRVersion = 1
	modelProducer  = 2
	modelOpset     = 8

	attrFloat     = 2
	attrInts      = 8
	attrTypeFloat = 1
	attrTypeInts  = 7
)

// NewModel makes a model of ONNX's own operators at version opset, around g.
func NewModel(producer string, irVersion, opset int64, g *Graph) *Model {
	var o []byte // domain "" is left out
	o = appendIntField(o, 2, opset)
	return &Model{
		IRVersion: irVersion, Producer: producer, Opsets: []Opset{{Version: opset}}, Graph: g,
		rest: []field{
			{num: modelIRVersion, raw: appendIntField(nil, modelIRVersion, irVersion)},
			{num: modelProducer, raw: appendStringField(nil, modelProducer, producer)},
			{num: modelOpset, raw: appendBytesField(nil, modelOpset, o)},
		},
	}
}

// NewGraph makes a graph without nodes.
func NewGraph(name string) *Graph {
	return &Graph{Name: name, rest: []field{{num: graphName, raw: appendStringField(nil, graphName, name)}}}
}

// NewValueInfo names a tensor, its element type and its shape.
func NewValueInfo(name string, elem ElemType, dims ...Dim) *ValueInfo {
	var shape []byte
	for _, d := range dims {
		var one []byte
		if d.Size >= 0 {
			one = appendIntField(one, 1, d.Size)
		} else if d.Param != "" {
			one = appendStringField(one, 2, d.Param)
		}
		shape = appendBytesField(shape, 1, one)
	}
	tensor := appendIntField(nil, 1, int64(elem))
	tensor = appendBytesField(tensor, 2, shape)
	b := appendStringField(nil, 1, name)
	b = appendBytesField(b, 2, appendBytesField(nil, 1, tensor))
	return &ValueInfo{Name: name, Kind: "tensor", Elem: elem, Dims: dims, HasShape: true, msg: b}
}

// FloatAttr makes an attribute of one float32.
func FloatAttr(name string, v float32) Attr {
	b := appendStringField(nil, attrName, name)
	b = protowire.AppendTag(b, attrFloat, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, math.Float32bits(v))
	b = appendIntField(b, attrType, attrTypeFloat)
	return Attr{Name: name, msg: b}
}

// IntsAttr makes an attribute of a list of integers.
func IntsAttr(name string, vs ...int64) Attr {
	b := appendStringField(nil, attrName, name)
	for _, v := range vs {
		b = appendIntField(b, attrInts, v)
	}
	b = appendIntField(b, attrType, attrTypeInts)
	return Attr{Name: name, msg: b}
}

// WriteTo writes the model's file, the bytes that Append makes, without a copy of it in memory. The errors are a *TooLargeError before
// the first byte, and w's.
func (m *Model) WriteTo(w io.Writer) (n int64, err error) {
	if _, err := m.size(); err != nil {
		return 0, err
	}
	write := func(b []byte) {
		if err == nil {
			var k int
			k, err = w.Write(b)
			n += int64(k)
		}
	}
	i := 0
	for ; i < len(m.rest) && m.rest[i].num < modelGraph; i++ {
		write(m.rest[i].raw)
	}
	write(protowire.AppendVarint(protowire.AppendTag(nil, modelGraph, protowire.BytesType), uint64(m.Graph.size())))
	var head []byte
	m.Graph.fields(func(num protowire.Number, msg, raw []byte) {
		if raw != nil {
			write(raw)
			return
		}
		head = protowire.AppendVarint(protowire.AppendTag(head[:0], num, protowire.BytesType), uint64(len(msg)))
		write(head)
		write(msg)
	})
	for ; i < len(m.rest); i++ {
		write(m.rest[i].raw)
	}
	return n, err
}

// NewExternalTensor makes a tensor whose elements lie in another file.
func NewExternalTensor(name string, typ ElemType, dims []int64, at External) *Tensor {
	var b []byte
	for _, d := range dims {
		b = appendIntField(b, tensorDims, d)
	}
	b = appendIntField(b, tensorType, int64(typ))
	b = appendStringField(b, tensorName, name)
	for _, e := range []Entry{{"location", at.Location}, {"offset", strconv.FormatInt(at.Offset, 10)}, {"length", strconv.FormatInt(at.Length, 10)}} {
		if e.Key == "length" && at.Length == 0 {
			continue
		}
		b = appendBytesField(b, tensorExternal, appendStringField(appendStringField(nil, 1, e.Key), 2, e.Value))
	}
	b = appendIntField(b, tensorLocation, 1)
	return &Tensor{Name: name, Type: typ, Dims: append([]int64(nil), dims...), External: at, msg: b}
}
