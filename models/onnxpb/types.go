package onnxpb

import "fmt"

// ElemType is a tensor's element type (TensorProto.DataType).
type ElemType int32

// The element types that have a name here; others print as their number.
const (
	Undefined ElemType = 0
	Float32   ElemType = 1
	Uint8     ElemType = 2
	Int8      ElemType = 3
	Uint16    ElemType = 4
	Int16     ElemType = 5
	Int32     ElemType = 6
	Int64     ElemType = 7
	String    ElemType = 8
	Bool      ElemType = 9
	Float16   ElemType = 10
	Float64   ElemType = 11
	Uint32    ElemType = 12
	Uint64    ElemType = 13
	BFloat16  ElemType = 16
	Uint4     ElemType = 21
	Int4      ElemType = 22
)

var elemTypes = map[ElemType]struct {
	name string
	bits int
}{
	Undefined: {"undefined", 0},
	Float32:   {"float32", 32}, Uint8: {"uint8", 8}, Int8: {"int8", 8}, Uint16: {"uint16", 16}, Int16: {"int16", 16},
	Int32: {"int32", 32}, Int64: {"int64", 64}, String: {"string", 0}, Bool: {"bool", 8}, Float16: {"float16", 16},
	Float64: {"float64", 64}, Uint32: {"uint32", 32}, Uint64: {"uint64", 64}, BFloat16: {"bfloat16", 16},
	14: {"complex64", 64}, 15: {"complex128", 128},
	17: {"float8e4m3fn", 8}, 18: {"float8e4m3fnuz", 8}, 19: {"float8e5m2", 8}, 20: {"float8e5m2fnuz", 8},
	Uint4: {"uint4", 4}, Int4: {"int4", 4}, 23: {"float4e2m1", 4}, 24: {"float8e8m0", 8}, 25: {"uint2", 2}, 26: {"int2", 2},
}

func (t ElemType) String() string {
	if e, ok := elemTypes[t]; ok {
		return e.name
	}
	return fmt.Sprintf("type %d", int32(t))
}

// Bits is the size of one element; 0 for strings and for types unknown here.
func (t ElemType) Bits() int { return elemTypes[t].bits }
