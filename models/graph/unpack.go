package graph

import (
	"encoding/binary"
	"math"

	"ragate/models/onnxpb"
)

// UnpackVersion names what UnpackNarrow does; it changes whenever the bytes it makes do.
const UnpackVersion = "unpack-1"

// narrowColumns is the number of columns under which a dequantised weight is stored as float32. A cross-encoder's classifier has one
// column; there is nothing to gain from keeping it in int8 (1.5 kB here), and OpenVINO 2025.4's CPU plug-in loses its scale when the
// graph is compiled for more than one stream: logits then came out 1,800 times too large (measured on this very model).
const narrowColumns = 16

// UnpackNarrow replaces every DequantizeLinear of a constant int8 or uint8 matrix of fewer than 16 columns by its result, a float32
// initialiser: (weight − zero point) × scale, with one scale for all or one per column. It returns how many it replaced; with none the
// model comes back as it is. Weights in external files are left alone. The error is a *onnxpb.SyntaxError.
func UnpackNarrow(model []byte) ([]byte, int, error) {
	m, err := onnxpb.Parse(model)
	if err != nil {
		return nil, 0, err
	}
	constants := map[string]*onnxpb.Tensor{}
	for _, t := range m.Graph.Initializers {
		constants[t.Name] = t
	}
	var kept []*onnxpb.Node
	for _, n := range m.Graph.Nodes {
		if opName(n) == "DequantizeLinear" {
			if t := unpacked(n, constants); t != nil {
				m.Graph.Initializers = append(m.Graph.Initializers, t)
				continue
			}
		}
		kept = append(kept, n)
	}
	replaced := len(m.Graph.Nodes) - len(kept)
	if replaced == 0 {
		return model, 0, nil
	}
	m.Graph.Nodes = kept
	sweep(m.Graph)
	out, err := m.Append(nil)
	return out, replaced, err
}

// unpacked is what n yields, or nil when n is not of the kind described at UnpackNarrow.
func unpacked(n *onnxpb.Node, constants map[string]*onnxpb.Tensor) *onnxpb.Tensor {
	w, scale, zero := constants[n.Input(0)], constants[n.Input(1)], constants[n.Input(2)]
	if w == nil || scale == nil || n.Input(2) != "" && zero == nil || len(w.Dims) != 2 || w.Dims[1] >= narrowColumns || scale.Type != onnxpb.Float32 {
		return nil
	}
	var value func(byte) float32
	switch w.Type {
	case onnxpb.Int8:
		value = func(b byte) float32 { return float32(int8(b)) }
	case onnxpb.Uint8:
		value = func(b byte) float32 { return float32(b) }
	default:
		return nil
	}
	data, err := w.Data()
	if err != nil {
		return nil
	}
	scales, err := scale.Data()
	if err != nil {
		return nil
	}
	var zeros []byte
	if zero != nil {
		if zeros, err = zero.Data(); err != nil {
			return nil
		}
	}
	columns := int(w.Dims[1])
	axis := int64(1)
	if a := n.Attr("axis"); a != nil {
		axis = a.Int
	}
	each := func(count int) bool { return count == columns && (axis == 1 || axis == -1) }
	if k := len(scales) / 4; k != 1 && !each(k) {
		return nil
	}
	if k := len(zeros); k > 1 && !each(k) {
		return nil
	}
	pick := func(count, i int) int {
		if count == 1 {
			return 0
		}
		return i % columns
	}
	raw := make([]byte, 0, 4*len(data))
	for i, b := range data {
		v := value(b)
		if len(zeros) > 0 {
			v -= value(zeros[pick(len(zeros), i)])
		}
		v *= math.Float32frombits(binary.LittleEndian.Uint32(scales[4*pick(len(scales)/4, i):]))
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return onnxpb.NewTensor(n.Output(0), onnxpb.Float32, w.Dims, raw)
}
