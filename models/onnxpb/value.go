package onnxpb

// ValueInfo names an input, an output or an inner value and its type. It is immutable.
type ValueInfo struct {
	Name string
	// Kind is "tensor" or what else the value is ("sequence", "map", "optional", "sparse tensor", "opaque"); empty when the file does
	// not say. Elem and Dims are those of a tensor.
	Kind string
	Elem ElemType
	// Dims is the shape; nil with HasShape false means that even the rank is unknown.
	Dims     []Dim
	HasShape bool
	msg      []byte
}

// Dim is one dimension: a size, or a name that stands for one, or neither when nothing is known.
type Dim struct {
	Size  int64  // -1 when not fixed
	Param string // e.g. "batch_size"
}

func parseValueInfo(b []byte) (*ValueInfo, error) {
	v := &ValueInfo{msg: b}
	err := eachField("ValueInfoProto", b, func(f field) error {
		switch f.num {
		case 1:
			return f.str(&v.Name)
		case 2:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			return v.parseType(b)
		}
		return nil
	})
	return v, err
}

func (v *ValueInfo) parseType(b []byte) error {
	return eachField("TypeProto", b, func(f field) error {
		switch f.num {
		case 1:
			v.Kind = "tensor"
			b, err := f.bytes()
			if err != nil {
				return err
			}
			return v.parseTensorType(b)
		case 4:
			v.Kind = "sequence"
		case 5:
			v.Kind = "map"
		case 7:
			v.Kind = "opaque"
		case 8:
			v.Kind = "sparse tensor"
		case 9:
			v.Kind = "optional"
		}
		return nil
	})
}

func (v *ValueInfo) parseTensorType(b []byte) error {
	return eachField("TypeProto.Tensor", b, func(f field) error {
		switch f.num {
		case 1:
			var t int64
			err := f.int64(&t)
			v.Elem = ElemType(t)
			return err
		case 2:
			b, err := f.bytes()
			if err != nil {
				return err
			}
			v.HasShape = true
			return eachField("TensorShapeProto", b, func(f field) error {
				if f.num != 1 {
					return nil
				}
				b, err := f.bytes()
				if err != nil {
					return err
				}
				d := Dim{Size: -1}
				err = eachField("TensorShapeProto.Dimension", b, func(f field) error {
					switch f.num {
					case 1:
						return f.int64(&d.Size)
					case 2:
						return f.str(&d.Param)
					}
					return nil
				})
				v.Dims = append(v.Dims, d)
				return err
			})
		}
		return nil
	})
}
