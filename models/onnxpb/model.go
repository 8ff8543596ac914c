package onnxpb

import (
	"bytes"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Model is a ModelProto. Only Graph may be changed; the other exported fields tell what the file says.
type Model struct {
	IRVersion       int64
	Producer        string
	ProducerVersion string
	Opsets          []Opset
	Metadata        []Entry
	Functions       []*Function // operators defined in the file itself
	Graph           *Graph
	rest            []field // everything but the graph, in order of number
}

// Opset is a set of operators the model imports; Domain "" is ONNX's own.
type Opset struct {
	Domain  string
	Version int64
}

// Entry is a key and its value.
type Entry struct{ Key, Value string }

// Function is a FunctionProto, an operator defined by a graph in the file.
type Function struct {
	Name, Domain string
	Nodes        []*Node
}

// Graph is a GraphProto. Its lists may be changed and are written in their order.
type Graph struct {
	Name         string
	Nodes        []*Node // in an order in which values are made before they are used
	Initializers []*Tensor
	Inputs       []*ValueInfo
	Outputs      []*ValueInfo
	ValueInfos   []*ValueInfo
	Annotations  []*Annotation
	rest         []field // every other field, in order of number
}

// Annotation is a TensorAnnotation: quantisation parameters noted beside a tensor. It is immutable.
type Annotation struct {
	Tensor string
	msg    []byte
}

const (
	modelGraph = 7

	graphNode        = 1
	graphName        = 2
	graphInitializer = 5
	graphInput       = 11
	graphOutput      = 12
	graphValueInfo   = 13
	graphAnnotation  = 14
)

// maxMessage is protobuf's bound on one message; ONNX Runtime and every protobuf library refuse a longer file. Larger models keep their
// weights in a second file.
const maxMessage = math.MaxInt32

// TooLargeError is returned when the model written would not be a legal protobuf message.
type TooLargeError struct{ Size, Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the model is %d bytes long, protobuf files end at %d; keep its weights in an external data file", e.Size, e.Limit)
}

// Parse reads a model. The result shares memory with file. The error is a *SyntaxError.
func Parse(file []byte) (*Model, error) {
	m := &Model{}
	err := eachField("ModelProto", file, func(f field) error {
		if f.num == modelGraph {
			b, err := f.bytes()
			if err != nil {
				return err
			}
			if m.Graph != nil {
				return errTwice
			}
			m.Graph, err = parseGraph(b, 0)
			return err
		}
		m.rest = append(m.rest, f)
		switch f.num {
		case 1:
			return f.int64(&m.IRVersion)
		case 2:
			return f.str(&m.Producer)
		case 3:
			return f.str(&m.ProducerVersion)
		case 8, 14, 25:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			switch f.num {
			case 8:
				var o Opset
				o, err = parseOpset(b)
				m.Opsets = append(m.Opsets, o)
			case 14:
				var e Entry
				e.Key, e.Value, err = entry(b)
				m.Metadata = append(m.Metadata, e)
			case 25:
				var fn *Function
				fn, err = parseFunction(b)
				m.Functions = append(m.Functions, fn)
			}
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if m.Graph == nil {
		return nil, &SyntaxError{Message: "ModelProto", Offset: len(file), Err: fmt.Errorf("it ends without a graph")}
	}
	byNumber(m.rest)
	return m, nil
}

func parseOpset(b []byte) (o Opset, err error) {
	err = eachField("OperatorSetIdProto", b, func(f field) error {
		switch f.num {
		case 1:
			return f.str(&o.Domain)
		case 2:
			return f.int64(&o.Version)
		}
		return nil
	})
	return o, err
}

func parseFunction(b []byte) (*Function, error) {
	fn := &Function{}
	err := eachField("FunctionProto", b, func(f field) error {
		switch f.num {
		case 1:
			return f.str(&fn.Name)
		case 10:
			return f.str(&fn.Domain)
		case 7:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			n, err := parseNode(b, 0)
			fn.Nodes = append(fn.Nodes, n)
			return err
		}
		return nil
	})
	return fn, err
}

func parseGraph(b []byte, depth int) (*Graph, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	g := &Graph{}
	err := eachField("GraphProto", b, func(f field) error {
		switch f.num {
		case graphNode, graphInitializer, graphInput, graphOutput, graphValueInfo, graphAnnotation:
		case graphName:
			g.rest = append(g.rest, f)
			return f.str(&g.Name)
		default:
			g.rest = append(g.rest, f)
			return nil
		}
		b, err := f.bytes()
		if err != nil {
			return err
		}
		switch f.num {
		case graphNode:
			var n *Node
			n, err = parseNode(b, depth)
			g.Nodes = append(g.Nodes, n)
		case graphInitializer:
			var t *Tensor
			t, err = parseTensor(b)
			g.Initializers = append(g.Initializers, t)
		case graphAnnotation:
			a := &Annotation{msg: b}
			err = eachField("TensorAnnotation", b, func(f field) error {
				if f.num == 1 {
					return f.str(&a.Tensor)
				}
				return nil
			})
			g.Annotations = append(g.Annotations, a)
		default:
			var v *ValueInfo
			v, err = parseValueInfo(b)
			switch f.num {
			case graphInput:
				g.Inputs = append(g.Inputs, v)
			case graphOutput:
				g.Outputs = append(g.Outputs, v)
			default:
				g.ValueInfos = append(g.ValueInfos, v)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	byNumber(g.rest)
	return g, nil
}

// fields lists the graph's fields in the order they are written: by number, each repeated one where its first would stand.
func (g *Graph) fields(yield func(num protowire.Number, msg []byte, raw []byte)) {
	i := 0
	until := func(num protowire.Number) {
		for ; i < len(g.rest) && g.rest[i].num < num; i++ {
			yield(g.rest[i].num, nil, g.rest[i].raw)
		}
	}
	until(graphNode)
	for _, n := range g.Nodes {
		yield(graphNode, n.msg, nil)
	}
	until(graphInitializer)
	for _, t := range g.Initializers {
		yield(graphInitializer, t.msg, nil)
	}
	until(graphInput)
	for _, v := range g.Inputs {
		yield(graphInput, v.msg, nil)
	}
	until(graphOutput)
	for _, v := range g.Outputs {
		yield(graphOutput, v.msg, nil)
	}
	until(graphValueInfo)
	for _, v := range g.ValueInfos {
		yield(graphValueInfo, v.msg, nil)
	}
	until(graphAnnotation)
	for _, a := range g.Annotations {
		yield(graphAnnotation, a.msg, nil)
	}
	until(protowire.MaxValidNumber + 1)
}

func (g *Graph) size() (n int) {
	g.fields(func(num protowire.Number, msg, raw []byte) {
		if raw != nil {
			n += len(raw)
		} else {
			n += sizeBytesField(num, len(msg))
		}
	})
	return n
}

// Append writes the model's file after dst. The error is a *TooLargeError.
func (m *Model) Append(dst []byte) ([]byte, error) {
	total, err := m.size()
	if err != nil {
		return dst, err
	}
	if cap(dst)-len(dst) < total { // once, to the size: slices.Grow takes the memory twice under the race detector
		dst = append(make([]byte, 0, len(dst)+total), dst...)
	}
	b := bytes.NewBuffer(dst)
	_, err = m.WriteTo(b) // a buffer takes everything
	return b.Bytes(), err
}

// size is the length of the model's file. The error is a *TooLargeError.
func (m *Model) size() (int, error) {
	total := sizeBytesField(modelGraph, m.Graph.size())
	for _, f := range m.rest {
		total += len(f.raw)
	}
	if total > maxMessage {
		return 0, &TooLargeError{Size: int64(total), Limit: maxMessage}
	}
	return total, nil
}
