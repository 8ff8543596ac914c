package graph

import (
	"bytes"
	"math"
	"os"
	"slices"
	"testing"

	"ragate/models/onnxpb"
)

// Every weight of the hand-made graphs has fewer than 16 columns.
func TestUnpackNarrowWritesWhatDequantizeLinearYields(t *testing.T) {
	// Left alone: a weight from a Constant node, one with three dimensions, one in another file.
	leftAlone := []string{"constants", "batched_weight", "external"}
	unpacked := 0
	for _, c := range testCases(t) {
		if c.Want != nil {
			continue
		}
		packed, r, err := WeightOnly(c.file)
		check(t, err)
		out, n, err := UnpackNarrow(packed)
		check(t, err)
		if slices.Contains(leftAlone, c.Name) {
			if n != 0 || !bytes.Equal(out, packed) {
				t.Errorf("%s: %d weights unpacked", c.Name, n)
			}
			continue
		}
		if n != r.Weights {
			t.Errorf("%s: %d of %d weights unpacked", c.Name, n, r.Weights)
		}
		unpacked += n
		before, after := mustParse(t, packed), mustParse(t, out)
		checkWhole(t, after)
		for _, d := range before.Graph.Nodes {
			if d.Op != "DequantizeLinear" {
				continue
			}
			want, got := dequantize(t, before, d), lookupTensor(t, after, d.Output(0))
			if !slices.Equal(shapeOf(got), want.shape) || !slices.EqualFunc(float32s(t, got), want.data, sameBits) {
				t.Errorf("%s: %q is not what the graph dequantised", c.Name, d.Output(0))
			}
		}
		if c.Interpret == nil {
			checkOutput(t, after, c)
		}
		if again, n, err := UnpackNarrow(out); err != nil || n != 0 || !bytes.Equal(again, out) {
			t.Errorf("%s: a second time unpacks %d (%v)", c.Name, n, err)
		}
	}
	if unpacked < 10 {
		t.Errorf("only %d weights in all", unpacked)
	}
	if _, _, err := UnpackNarrow([]byte("no model")); err == nil {
		t.Error("text was taken for a model")
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

func TestUnpackNarrowOnRealModels(t *testing.T) {
	for _, c := range []struct {
		sha  string
		want []string // the weights unpacked
	}{
		{embedderSHA, nil},
		{rerankerSHA, []string{"classifier.weight_quantized_dequantized"}}, // 384 × 1
	} {
		_, file := model(t, c.sha)
		packed, _, err := WeightOnly(file)
		check(t, err)
		out, n, err := UnpackNarrow(packed)
		check(t, err)
		if n != len(c.want) || n == 0 && !bytes.Equal(out, packed) {
			t.Errorf("%d weights unpacked, want %q", n, c.want)
		}
		m := mustParse(t, out)
		checkWhole(t, m)
		for _, name := range c.want {
			if x := lookupTensor(t, m, name); x.Type != onnxpb.Float32 || !slices.Equal(x.Dims, []int64{384, 1}) {
				t.Errorf("%q is %v%v", name, x.Type, x.Dims)
			}
		}
	}
}

// A graph without a quantised weight comes back as it is.
func TestUnpackNarrowLeavesFloatGraphsAlone(t *testing.T) {
	file, err := os.ReadFile("testdata/float.onnx")
	check(t, err)
	if out, n, err := UnpackNarrow(file); err != nil || n != 0 || !bytes.Equal(out, file) {
		t.Errorf("%d, %v", n, err)
	}
}
