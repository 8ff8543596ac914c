package hubtest

import "encoding/binary"

// ONNX makes a small but valid ONNX file: input_ids in, last_hidden_state out, and one float weight of the given length, which lies in
// the file named external when that is not "".
func ONNX(weights int, external string) []byte {
	varint := func(field int, v uint64) []byte {
		return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field<<3)), v)
	}
	bytes := func(field int, parts ...[]byte) []byte {
		var body []byte
		for _, p := range parts {
			body = append(body, p...)
		}
		out := binary.AppendUvarint(nil, uint64(field<<3|2))
		return append(binary.AppendUvarint(out, uint64(len(body))), body...)
	}
	str := func(field int, s string) []byte { return bytes(field, []byte(s)) }
	value := func(field int, name string, elem uint64, dims ...string) []byte {
		var shape [][]byte
		for _, d := range dims {
			shape = append(shape, bytes(1, str(2, d)))
		}
		return bytes(field, str(1, name), bytes(2, bytes(1, varint(1, elem), bytes(2, shape...))))
	}
	tensor := [][]byte{varint(1, uint64(weights)), varint(2, 1), str(8, "w")}
	if external == "" {
		tensor = append(tensor, bytes(9, make([]byte, 4*weights)))
	} else {
		tensor = append(tensor, bytes(13, str(1, "location"), str(2, external)), varint(14, 1))
	}
	node := bytes(1, str(1, "w"), str(2, "last_hidden_state"), str(4, "Identity"))
	graph := bytes(7, node, str(2, "g"), bytes(5, tensor...), value(11, "input_ids", 7, "batch", "sequence"), value(12, "last_hidden_state", 1, "batch", "sequence"))
	opset := bytes(8, str(1, ""), varint(2, 17))
	out := varint(1, 8)
	out = append(out, graph...)
	return append(out, opset...)
}
