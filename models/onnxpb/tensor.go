package onnxpb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Tensor is a TensorProto: an initialiser or the value of a Constant node. It is immutable.
type Tensor struct {
	Name     string
	Type     ElemType
	Dims     []int64 // empty for a scalar
	External External
	msg      []byte
	// Where the elements lie, when they lie in the file: raw, or one of the typed lists.
	raw    []byte
	hasRaw bool
	typed  []field
}

// External says where the elements lie when they are not in the model file. The zero value: they are in it.
type External struct {
	Location string // path relative to the model file's folder
	Offset   int64
	Length   int64 // 0: to the end of that file
}

// ErrExternal is returned when elements are asked for that lie in another file.
var ErrExternal = errors.New("the tensor's elements are in another file")

const (
	tensorDims     = 1
	tensorType     = 2
	tensorFloats   = 4
	tensorInt32s   = 5
	tensorStrings  = 6
	tensorInt64s   = 7
	tensorName     = 8
	tensorRaw      = 9
	tensorDoubles  = 10
	tensorUint64s  = 11
	tensorExternal = 13
	tensorLocation = 14
)

func parseTensor(b []byte) (*Tensor, error) {
	t := &Tensor{msg: b}
	var location int64
	var ext External
	err := eachField("TensorProto", b, func(f field) (err error) {
		switch f.num {
		case tensorDims:
			t.Dims, err = f.int64s(t.Dims)
		case tensorType:
			var v int64
			err = f.int64(&v)
			t.Type = ElemType(v)
		case tensorName:
			err = f.str(&t.Name)
		case tensorRaw:
			t.hasRaw = true
			t.raw, err = f.bytes()
		case tensorFloats, tensorInt32s, tensorInt64s, tensorStrings, tensorDoubles, tensorUint64s:
			t.typed = append(t.typed, f)
		case tensorLocation:
			err = f.int64(&location)
		case tensorExternal:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			k, v, err := entry(b)
			if err != nil {
				return err
			}
			switch k {
			case "location":
				ext.Location = v
			case "offset":
				_, err = fmt.Sscan(v, &ext.Offset)
			case "length":
				_, err = fmt.Sscan(v, &ext.Length)
			}
			return err
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if location == 1 {
		t.External = ext
		if ext.Location == "" {
			return nil, &SyntaxError{Message: "TensorProto", Err: fmt.Errorf("tensor %q is external but names no file", t.Name)}
		}
	}
	return t, nil
}

// NewTensor makes a tensor from its elements in ONNX's raw layout: row-major, little-endian.
func NewTensor(name string, typ ElemType, dims []int64, raw []byte) *Tensor {
	var b []byte
	for _, d := range dims {
		b = appendIntField(b, tensorDims, d)
	}
	b = appendIntField(b, tensorType, int64(typ))
	b = appendStringField(b, tensorName, name)
	// Of the elements one copy is held, the one in the message: a word table is 100 MB.
	b = slices.Grow(b, sizeBytesField(tensorRaw, len(raw)))
	b = appendBytesField(b, tensorRaw, raw)
	return &Tensor{Name: name, Type: typ, Dims: append([]int64(nil), dims...), msg: b, raw: b[len(b)-len(raw):], hasRaw: true}
}

// Reshaped returns a tensor of another name and shape over the same elements, wherever they lie. The element counts must be equal.
func (t *Tensor) Reshaped(name string, dims []int64) (*Tensor, error) {
	was, err := t.Len()
	if err != nil {
		return nil, err
	}
	if is, err := (&Tensor{Name: name, Dims: dims}).Len(); err != nil || is != was {
		return nil, fmt.Errorf("tensor %q of shape %v cannot take the shape %v", t.Name, t.Dims, dims)
	}
	var fs []field
	err = eachField("TensorProto", t.msg, func(f field) error {
		if f.num != tensorDims && f.num != tensorName {
			fs = append(fs, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range dims {
		fs = append(fs, field{num: tensorDims, raw: appendIntField(nil, tensorDims, d)})
	}
	fs = append(fs, field{num: tensorName, raw: appendStringField(nil, tensorName, name)})
	byNumber(fs)
	var b []byte
	for _, f := range fs {
		b = append(b, f.raw...)
	}
	return parseTensor(b)
}

// Len is the number of elements.
func (t *Tensor) Len() (int64, error) {
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 || d > 0 && n > math.MaxInt64/d {
			return 0, fmt.Errorf("tensor %q has the impossible shape %v", t.Name, t.Dims)
		}
		n *= d
	}
	return n, nil
}

// Data returns the elements in ONNX's raw layout: row-major, little-endian. It shares memory with the file where the file holds that
// layout. The length is checked against the shape. The error is ErrExternal for elements in another file.
func (t *Tensor) Data() ([]byte, error) {
	if t.External.Location != "" {
		return nil, fmt.Errorf("tensor %q (%s): %w", t.Name, t.External.Location, ErrExternal)
	}
	n, err := t.Len()
	if err != nil {
		return nil, err
	}
	bits := int64(t.Type.Bits())
	if bits == 0 {
		return nil, fmt.Errorf("tensor %q: elements of %v have no fixed size", t.Name, t.Type)
	}
	if n > math.MaxInt64/bits-8 {
		return nil, fmt.Errorf("tensor %q has the impossible shape %v", t.Name, t.Dims)
	}
	data := t.raw
	if !t.hasRaw {
		if data, err = t.unpack(); err != nil {
			return nil, err
		}
	}
	if want := (n*bits + 7) / 8; int64(len(data)) != want {
		return nil, fmt.Errorf("tensor %q of shape %v %v holds %d bytes, not %d", t.Name, t.Dims, t.Type, len(data), want)
	}
	return data, nil
}

// unpack turns a typed element list into the raw layout. The schema says which list holds which type.
func (t *Tensor) unpack() ([]byte, error) {
	var out []byte
	for _, f := range t.typed {
		switch {
		case f.num == tensorFloats && t.Type == Float32:
			vs, err := f.float32s(nil)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
			}
		case f.num == tensorInt32s, f.num == tensorInt64s, f.num == tensorUint64s:
			vs, err := f.int64s(nil)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				switch t.Type.Bits() {
				case 8:
					out = append(out, byte(v))
				case 16:
					out = binary.LittleEndian.AppendUint16(out, uint16(v))
				case 32:
					out = binary.LittleEndian.AppendUint32(out, uint32(v))
				case 64:
					out = binary.LittleEndian.AppendUint64(out, uint64(v))
				default:
					return nil, fmt.Errorf("tensor %q: %v in a list of integers is not supported", t.Name, t.Type)
				}
			}
		case f.num == tensorDoubles && t.Type == Float64:
			for b := f.val; len(b) > 0; {
				v, n := protowire.ConsumeFixed64(b)
				if n < 0 {
					return nil, protowire.ParseError(n)
				}
				out, b = binary.LittleEndian.AppendUint64(out, v), b[n:]
			}
		default:
			return nil, fmt.Errorf("tensor %q: elements of %v in field %d are not supported", t.Name, t.Type, f.num)
		}
	}
	return out, nil
}
