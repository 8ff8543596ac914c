package onnxpb

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// SyntaxError says where a file stops being a readable ONNX model.
type SyntaxError struct {
	Message string // the protobuf message that could not be read, e.g. "NodeProto"
	Offset  int    // bytes into that message
	Field   int    // number of the field that starts there, 0 when its tag is unreadable
	Err     error
}

func (e *SyntaxError) Error() string {
	if e.Field == 0 {
		return fmt.Sprintf("not a readable ONNX model: %s, byte %d: %v", e.Message, e.Offset, e.Err)
	}
	return fmt.Sprintf("not a readable ONNX model: %s, field %d at byte %d: %v", e.Message, e.Field, e.Offset, e.Err)
}

func (e *SyntaxError) Unwrap() error { return e.Err }

var (
	errWireType = errors.New("the field does not have the wire type of the schema")
	errTwice    = errors.New("the field is there twice")
	errDepth    = errors.New("subgraphs are nested too deeply")
)

// maxDepth bounds how deep subgraphs may nest. Real graphs stay below 4; the bound keeps a hostile file from exhausting the stack.
const maxDepth = 32

// field is one field of a message as it stands in the file.
type field struct {
	num protowire.Number
	typ protowire.Type
	raw []byte // tag and value
	val []byte // a length-delimited field's content, else the value without its tag
}

// eachField calls f for every field of msg in order.
func eachField(message string, msg []byte, f func(field) error) error {
	for at := 0; at < len(msg); {
		num, typ, n := protowire.ConsumeTag(msg[at:])
		if n < 0 {
			return &SyntaxError{Message: message, Offset: at, Err: protowire.ParseError(n)}
		}
		m := protowire.ConsumeFieldValue(num, typ, msg[at+n:])
		if m < 0 {
			return &SyntaxError{Message: message, Offset: at, Field: int(num), Err: protowire.ParseError(m)}
		}
		fd := field{num: num, typ: typ, raw: msg[at : at+n+m : at+n+m], val: msg[at+n : at+n+m : at+n+m]}
		if typ == protowire.BytesType {
			fd.val, _ = protowire.ConsumeBytes(fd.val)
			fd.val = fd.val[:len(fd.val):len(fd.val)]
		}
		if err := f(fd); err != nil {
			var inner *SyntaxError
			if errors.As(err, &inner) {
				return err
			}
			return &SyntaxError{Message: message, Offset: at, Field: int(num), Err: err}
		}
		at += n + m
	}
	return nil
}

// bytes returns the content of a length-delimited field.
func (f field) bytes() ([]byte, error) {
	if f.typ != protowire.BytesType {
		return nil, errWireType
	}
	return f.val, nil
}

func (f field) str(dst *string) error {
	b, err := f.bytes()
	*dst = string(b)
	return err
}

func (f field) int64(dst *int64) error {
	if f.typ != protowire.VarintType {
		return errWireType
	}
	v, _ := protowire.ConsumeVarint(f.val)
	*dst = int64(v)
	return nil
}

// int64s appends a repeated integer field, packed or not.
func (f field) int64s(dst []int64) ([]int64, error) {
	switch f.typ {
	case protowire.VarintType:
		v, _ := protowire.ConsumeVarint(f.val)
		return append(dst, int64(v)), nil
	case protowire.BytesType:
		for b := f.val; len(b) > 0; {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return dst, protowire.ParseError(n)
			}
			dst, b = append(dst, int64(v)), b[n:]
		}
		return dst, nil
	}
	return dst, errWireType
}

// float32s appends a repeated float field, packed or not.
func (f field) float32s(dst []float32) ([]float32, error) {
	if f.typ != protowire.Fixed32Type && f.typ != protowire.BytesType {
		return dst, errWireType
	}
	for b := f.val; len(b) > 0; {
		v, n := protowire.ConsumeFixed32(b)
		if n < 0 {
			return dst, protowire.ParseError(n)
		}
		dst, b = append(dst, math.Float32frombits(v)), b[n:]
	}
	return dst, nil
}

// entry reads a StringStringEntryProto.
func entry(b []byte) (key, value string, err error) {
	err = eachField("StringStringEntryProto", b, func(f field) error {
		switch f.num {
		case 1:
			return f.str(&key)
		case 2:
			return f.str(&value)
		}
		return nil
	})
	return key, value, err
}

func appendBytesField(dst []byte, num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), b)
}

func appendStringField(dst []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

func appendIntField(dst []byte, num protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), uint64(v))
}

// sizeBytesField is the length of a length-delimited field with n bytes of content.
func sizeBytesField(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

// byNumber orders the fields of a message as protobuf libraries write them; fields of one number keep their order.
func byNumber(fs []field) {
	slices.SortStableFunc(fs, func(a, b field) int { return int(a.num) - int(b.num) })
}
