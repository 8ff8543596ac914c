package onnxpb

import "google.golang.org/protobuf/encoding/protowire"

// Node is a NodeProto: one operation. It is immutable.
type Node struct {
	Name    string
	Op      string
	Domain  string   // "" and "ai.onnx" are ONNX's own operators
	Inputs  []string // "" stands for an optional input that is absent
	Outputs []string
	Attrs   []Attr
	msg     []byte
}

// Attr is an AttributeProto. Only what rewriting needs is decoded: integers, one tensor and subgraphs.
type Attr struct {
	Name   string
	Int    int64
	Tensor *Tensor  // nil unless the attribute is a tensor
	Graphs []*Graph // the bodies of If, Loop, Scan
	msg    []byte
}

const (
	nodeInput  = 1
	nodeOutput = 2
	nodeName   = 3
	nodeOp     = 4
	nodeAttr   = 5
	nodeDomain = 7

	attrName   = 1
	attrInt    = 3
	attrTensor = 5
	attrGraph  = 6
	attrGraphs = 11
	attrType   = 20

	attrTypeInt = 2
)

func parseNode(b []byte, depth int) (*Node, error) {
	n := &Node{msg: b}
	err := eachField("NodeProto", b, func(f field) error {
		switch f.num {
		case nodeInput, nodeOutput:
			var s string
			if err := f.str(&s); err != nil {
				return err
			}
			if f.num == nodeInput {
				n.Inputs = append(n.Inputs, s)
			} else {
				n.Outputs = append(n.Outputs, s)
			}
		case nodeName:
			return f.str(&n.Name)
		case nodeOp:
			return f.str(&n.Op)
		case nodeDomain:
			return f.str(&n.Domain)
		case nodeAttr:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			a, err := parseAttr(b, depth)
			n.Attrs = append(n.Attrs, a)
			return err
		}
		return nil
	})
	return n, err
}

func parseAttr(b []byte, depth int) (Attr, error) {
	a := Attr{msg: b}
	err := eachField("AttributeProto", b, func(f field) error {
		switch f.num {
		case attrName:
			return f.str(&a.Name)
		case attrInt:
			return f.int64(&a.Int)
		case attrTensor, attrGraph, attrGraphs:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			if f.num == attrTensor {
				a.Tensor, err = parseTensor(b)
				return err
			}
			g, err := parseGraph(b, depth+1)
			a.Graphs = append(a.Graphs, g)
			return err
		}
		return nil
	})
	return a, err
}

// IntAttr makes an integer attribute.
func IntAttr(name string, v int64) Attr {
	b := appendStringField(nil, attrName, name)
	b = appendIntField(b, attrInt, v)
	b = protowire.AppendTag(b, attrType, protowire.VarintType)
	b = protowire.AppendVarint(b, attrTypeInt)
	return Attr{Name: name, Int: v, msg: b}
}

// NewNode makes a node of ONNX's own domain.
func NewNode(name, op string, inputs, outputs []string, attrs ...Attr) *Node {
	var b []byte
	for _, s := range inputs {
		b = appendStringField(b, nodeInput, s)
	}
	for _, s := range outputs {
		b = appendStringField(b, nodeOutput, s)
	}
	b = appendStringField(b, nodeName, name)
	b = appendStringField(b, nodeOp, op)
	for _, a := range attrs {
		b = appendBytesField(b, nodeAttr, a.msg)
	}
	return &Node{Name: name, Op: op, Inputs: inputs, Outputs: outputs, Attrs: attrs, msg: b}
}

// Input returns input i, or "" when the node has fewer or leaves it out.
func (n *Node) Input(i int) string {
	if i < len(n.Inputs) {
		return n.Inputs[i]
	}
	return ""
}

// Output returns output i, or "" when the node has fewer or leaves it out.
func (n *Node) Output(i int) string {
	if i < len(n.Outputs) {
		return n.Outputs[i]
	}
	return ""
}

// Attr returns the attribute of that name, or nil.
func (n *Node) Attr(name string) *Attr {
	for i := range n.Attrs {
		if n.Attrs[i].Name == name {
			return &n.Attrs[i]
		}
	}
	return nil
}
