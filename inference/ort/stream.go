package ort

import (
	"fmt"

	ortgo "github.com/yalue/onnxruntime_go"

	"ragate/models"
)

// Row is one sequence (or pair) of a batch.
type Row struct {
	IDs       []int32
	TypeOneAt int // IDs[TypeOneAt:] carry token type id 1
}

// Output is a dense row-major float32 tensor. Values belong to the stream and hold until its next Run.
type Output struct {
	Shape  []int64
	Values []float32
}

// Stream is the buffers with which one goroutine runs a session. It is not safe for concurrent use, except Terminate.
type Stream struct {
	session *Session
	options *ortgo.RunOptions
	int64s  [][]int64 // per input, where declared int64
	int32s  [][]int32 // per input, where declared int32
	values  []float32
	shape   []int64
	inputs  []ortgo.Value
}

// NewStream makes the buffers for one worker. Close it before the session.
func (s *Session) NewStream() (*Stream, error) {
	o, err := ortgo.NewRunOptions()
	if err != nil {
		return nil, fmt.Errorf("ort: run options: %w", err)
	}
	n := len(s.cfg.Binding.Inputs)
	s.streams++
	return &Stream{session: s, options: o, int64s: make([][]int64, n), int32s: make([][]int32, n), inputs: make([]ortgo.Value, n)}, nil
}

// Run pads the rows to cols tokens, runs the graph and returns the output tensor. rows × cols is the batch's shape; no row may be
// longer than cols. It blocks until the runtime is done, also after Terminate.
func (st *Stream) Run(rows []Row, cols int) (Output, error) {
	cfg := &st.session.cfg
	shape := ortgo.NewShape(int64(len(rows)), int64(cols))
	defer func() {
		for i, v := range st.inputs {
			if v != nil {
				v.Destroy()
				st.inputs[i] = nil
			}
		}
	}()
	for i, in := range cfg.Binding.Inputs {
		var v ortgo.Value
		var err error
		if in.Type == models.Int32 {
			st.int32s[i] = fill(st.int32s[i], in.Role, rows, cols, cfg.PadID)
			v, err = ortgo.NewTensor(shape, st.int32s[i])
		} else {
			st.int64s[i] = fill(st.int64s[i], in.Role, rows, cols, cfg.PadID)
			v, err = ortgo.NewTensor(shape, st.int64s[i])
		}
		if err != nil {
			return Output{}, fmt.Errorf("ort: input %s: %w", in.Name, err)
		}
		st.inputs[i] = v
	}

	// Where the output's size follows from the batch's, the runtime writes into the stream's own memory; else it allocates.
	outputs := []ortgo.Value{nil}
	size := st.resultShape(len(rows), cols)
	if size > 0 {
		if cap(st.values) < size {
			st.values = make([]float32, size)
		}
		st.values = st.values[:size]
		t, err := ortgo.NewTensor(ortgo.Shape(st.shape), st.values)
		if err != nil {
			return Output{}, fmt.Errorf("ort: output %s: %w", cfg.Binding.Output, err)
		}
		outputs[0] = t
	}
	err := st.session.s.RunWithOptions(st.inputs, outputs, st.options)
	if outputs[0] != nil {
		defer outputs[0].Destroy()
	}
	if err != nil {
		return Output{}, fmt.Errorf("ort: run of %d × %d tokens: %w", len(rows), cols, err)
	}
	if size > 0 {
		return Output{Shape: st.shape, Values: st.values}, nil
	}
	t, ok := outputs[0].(*ortgo.Tensor[float32])
	if !ok {
		return Output{}, fmt.Errorf("ort: output %s is no float32 tensor", cfg.Binding.Output)
	}
	st.shape = append(st.shape[:0], t.GetShape()...)
	st.values = append(st.values[:0], t.GetData()...)
	return Output{Shape: st.shape, Values: st.values}, nil
}

// resultShape sets st.shape from the declared output and returns its size, or 0 when a dimension other than rows and cols is open.
func (st *Stream) resultShape(rows, cols int) int {
	declared := st.session.cfg.Output.Shape
	st.shape = append(st.shape[:0], int64(rows))
	size := rows
	for i, d := range declared {
		switch {
		case i == 0:
			continue
		case i == 1 && len(declared) == 3:
			d = int64(cols)
		case d <= 0:
			return 0
		}
		st.shape = append(st.shape, d)
		size *= int(d)
	}
	if len(declared) == 0 {
		return 0
	}
	return size
}

// fill writes one input tensor, row-major, rows × cols; pad is the token id behind a row's end.
func fill[T int32 | int64](dst []T, role models.InputRole, rows []Row, cols int, pad int32) []T {
	n := len(rows) * cols
	if cap(dst) < n {
		dst = make([]T, n)
	}
	dst = dst[:n]
	for r, row := range rows {
		line := dst[r*cols : (r+1)*cols]
		k := len(row.IDs)
		switch role {
		case models.InputIDs:
			for i, id := range row.IDs {
				line[i] = T(id)
			}
			for i := k; i < cols; i++ {
				line[i] = T(pad)
			}
		case models.AttentionMask:
			for i := range line {
				line[i] = 0
				if i < k {
					line[i] = 1
				}
			}
		case models.TokenTypeIDs:
			for i := range line {
				line[i] = 0
				if i >= row.TypeOneAt && i < k {
					line[i] = 1
				}
			}
		case models.PositionIDs:
			for i := range line {
				line[i] = T(i)
			}
		}
	}
	return dst
}

// Terminate makes a run in flight (and every later one) return early with an error. Safe from any goroutine.
func (st *Stream) Terminate() error { return st.options.Terminate() }

// Close frees the stream's native parts. No run may be in flight.
func (st *Stream) Close() error {
	if st.options == nil {
		return nil
	}
	err := st.options.Destroy()
	st.options = nil
	st.session.streams--
	return err
}
