package inference

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ragate/inference/ort"
)

// allThere has every provider's library, cpuOnly none but the runtime's own.
func allThere(ort.Provider) error { return nil }

func cpuOnly(p ort.Provider) error {
	if p == ort.CPU {
		return nil
	}
	return &ort.ProviderError{Provider: p, Missing: "lib" + string(p) + ".so", Runtime: "libonnxruntime.so"}
}

func withOpenVINO(p ort.Provider) error {
	if p == ort.OpenVINO {
		return nil
	}
	return cpuOnly(p)
}

// TestPlans lists every provider with every precision, on machines with and without bf16, for graphs that quantise while running and
// others. A way is written as provider/precision, with "+weights" where the graph is rewritten and "+rows" where rows run alone.
func TestPlans(t *testing.T) {
	const none = ""
	type row struct {
		provider  ort.Provider
		precision Precision
		// By machine and graph: bf16 and int8 graph, bf16 and float graph, no bf16 and int8 graph, neither.
		want [4]string
	}
	same := func(s string) [4]string { return [4]string{s, s, s, s} }
	for name, c := range map[string]struct {
		check func(ort.Provider) error
		rows  []row
	}{
		"with every library": {allThere, []row{
			{"auto", "auto", [4]string{
				"cuda/fp32+weights openvino/bf16+weights cpu/int8+rows", "cuda/fp32 openvino/bf16 cpu/fp32",
				"cuda/fp32+weights cpu/int8+rows", "cuda/fp32 openvino/fp32 cpu/fp32"}},
			{"auto", FP32, [4]string{
				"cuda/fp32+weights openvino/fp32+weights cpu/fp32+weights", "cuda/fp32 openvino/fp32 cpu/fp32",
				"cuda/fp32+weights openvino/fp32+weights cpu/fp32+weights", "cuda/fp32 openvino/fp32 cpu/fp32"}},
			{"auto", BF16, [4]string{"openvino/bf16+weights", "openvino/bf16", none, none}},
			{"auto", INT8, [4]string{"cpu/int8+rows", none, "cpu/int8+rows", none}},
			{"auto", INT8Batched, [4]string{"cpu/int8-batched", none, "cpu/int8-batched", none}},
			{"cpu", "auto", [4]string{"cpu/int8+rows", "cpu/fp32", "cpu/int8+rows", "cpu/fp32"}},
			{"cpu", FP32, [4]string{"cpu/fp32+weights", "cpu/fp32", "cpu/fp32+weights", "cpu/fp32"}},
			{"cpu", BF16, same(none)},
			{"cpu", INT8, [4]string{"cpu/int8+rows", none, "cpu/int8+rows", none}},
			{"cpu", INT8Batched, [4]string{"cpu/int8-batched", none, "cpu/int8-batched", none}},
			{"openvino", "auto", [4]string{"openvino/bf16+weights", "openvino/bf16", "openvino/fp32+weights", "openvino/fp32"}},
			{"openvino", FP32, [4]string{"openvino/fp32+weights", "openvino/fp32", "openvino/fp32+weights", "openvino/fp32"}},
			{"openvino", BF16, [4]string{"openvino/bf16+weights", "openvino/bf16", none, none}},
			{"openvino", INT8, same(none)},
			{"openvino", INT8Batched, same(none)},
			{"cuda", "auto", [4]string{"cuda/fp32+weights", "cuda/fp32", "cuda/fp32+weights", "cuda/fp32"}},
			{"cuda", FP32, [4]string{"cuda/fp32+weights", "cuda/fp32", "cuda/fp32+weights", "cuda/fp32"}},
			{"cuda", BF16, same(none)},
			{"cuda", INT8, same(none)},
			{"cuda", INT8Batched, same(none)},
			{"tensorrt", "auto", [4]string{"tensorrt/fp32+weights", "tensorrt/fp32", "tensorrt/fp32+weights", "tensorrt/fp32"}},
			{"tensorrt", FP32, [4]string{"tensorrt/fp32+weights", "tensorrt/fp32", "tensorrt/fp32+weights", "tensorrt/fp32"}},
			{"tensorrt", BF16, same(none)},
			{"tensorrt", INT8, same(none)},
			{"tensorrt", INT8Batched, same(none)},
		}},
		"with openvino's": {withOpenVINO, []row{
			{"", "", [4]string{"openvino/bf16+weights cpu/int8+rows", "openvino/bf16 cpu/fp32", "cpu/int8+rows", "openvino/fp32 cpu/fp32"}},
			{"cuda", "auto", same(none)},
			{"cuda", FP32, same(none)},
			{"tensorrt", "auto", same(none)},
		}},
		"with none": {cpuOnly, []row{
			{"auto", "auto", [4]string{"cpu/int8+rows", "cpu/fp32", "cpu/int8+rows", "cpu/fp32"}},
			{"auto", BF16, same(none)},
			{"openvino", "auto", same(none)},
		}},
	} {
		for _, r := range c.rows {
			for i, want := range r.want {
				m := Machine{Name: "a CPU", CPUs: 4, BF16: i < 2}
				dynamic := i%2 == 0
				where := fmt.Sprintf("%s: %q %q, bf16 %v, int8 graph %v", name, r.provider, r.precision, m.BF16, dynamic)
				ways, out, err := plans(Settings{Provider: r.provider, Precision: r.precision}, m, dynamic, c.check)
				var got []string
				for _, w := range ways {
					s := string(w.provider) + "/" + string(w.precision)
					if w.weightOnly {
						s += "+weights"
					}
					if w.maxRows == 1 {
						s += "+rows"
					}
					got = append(got, s)
					checkPlan(t, where, w, dynamic)
				}
				if s := strings.Join(got, " "); s != want {
					t.Errorf("%s: %q, want %q", where, s, want)
				}
				var un *UnavailableError
				switch {
				case want != none && err != nil:
					t.Errorf("%s: %v", where, err)
				case want == none && (!errors.As(err, &un) || len(un.Reasons) == 0 || len(un.Reasons) != len(out)):
					t.Errorf("%s: %v, want an UnavailableError with its reasons", where, err)
				}
			}
		}
	}
}

// checkPlan holds a way against what its precision means.
func checkPlan(t *testing.T, where string, w plan, dynamic bool) {
	t.Helper()
	arithmetic := map[Precision]ort.Arithmetic{FP32: ort.Float32, BF16: ort.BFloat16, INT8: ort.AsStored, INT8Batched: ort.AsStored}[w.precision]
	if w.arithmetic != arithmetic {
		t.Errorf("%s: %s runs as %s", where, w.precision, w.arithmetic)
	}
	if asStored := arithmetic == ort.AsStored; w.weightOnly != (dynamic && !asStored) {
		t.Errorf("%s: %s, rewritten to weight-only: %v", where, w.precision, w.weightOnly)
	}
	if alone := w.maxRows == 1; alone != (w.precision == INT8) || alone != (w.pad == 1) {
		t.Errorf("%s: %s in batches of %d rows padded to %d", where, w.precision, w.maxRows, w.pad)
	}
	if warned := len(w.warnings) > 0; warned != (w.precision == INT8Batched) {
		t.Errorf("%s: %s warns %q", where, w.precision, w.warnings)
	}
	if w.streams < 1 || w.threads < 1 {
		t.Errorf("%s: %d streams of %d threads", where, w.streams, w.threads)
	}
}

func TestPlansSayWhy(t *testing.T) {
	m := Machine{Name: "Old CPU", CPUs: 2}
	for _, c := range []struct {
		set     Settings
		dynamic bool
		check   func(ort.Provider) error
		want    []string
	}{
		{Settings{Provider: ort.CUDA}, true, cpuOnly, []string{"libcuda.so", "cuda"}},
		{Settings{Provider: ort.OpenVINO, Precision: BF16}, true, allThere, []string{"bf16", "AMX", "avx512_bf16", "Old CPU", "fp32"}},
		{Settings{Provider: ort.CPU, Precision: BF16}, true, allThere, []string{"bf16", "openvino"}},
		{Settings{Precision: BF16}, true, withOpenVINO, []string{"libcuda.so", "AMX", "cpu: bf16"}},
		{Settings{Precision: INT8}, false, allThere, []string{"int8 needs a dynamically quantised graph", "fp32"}},
		{Settings{Provider: "vulkan"}, true, allThere, []string{"vulkan", "auto", "openvino", "cpu"}},
		{Settings{Precision: "fp64"}, true, allThere, []string{"fp64", "int8-batched", "bf16"}},
	} {
		_, _, err := plans(c.set, m, c.dynamic, c.check)
		if err == nil {
			t.Errorf("%+v: no error", c.set)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q, without %q", c.set, err, part)
			}
		}
	}
	// A provider that is missing is found behind the sentence.
	_, _, err := plans(Settings{Provider: ort.CUDA}, m, true, cpuOnly)
	var p *ort.ProviderError
	if !errors.As(err, &p) || p.Missing != "libcuda.so" {
		t.Errorf("cuda by name: %v", err)
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		provider         ort.Provider
		set              Settings
		cpus             int
		streams, threads int
	}{
		{ort.CPU, Settings{}, 0, 1, 1},
		{ort.CPU, Settings{}, 1, 1, 1},
		{ort.OpenVINO, Settings{}, 2, 2, 1},
		{ort.OpenVINO, Settings{}, 8, 8, 1},
		{ort.OpenVINO, Settings{}, 12, 6, 2}, // not 8 of 1, with four CPUs idle
		{ort.OpenVINO, Settings{}, 16, 8, 2},
		{ort.OpenVINO, Settings{}, 96, 8, 12},
		{ort.CPU, Settings{Streams: 3}, 8, 3, 2},
		{ort.CPU, Settings{Streams: 16}, 4, 16, 1},
		{ort.CPU, Settings{Threads: 4}, 8, 2, 4},
		{ort.CPU, Settings{Threads: 4}, 2, 1, 4},
		{ort.CPU, Settings{Threads: 1}, 64, 8, 1},
		{ort.CPU, Settings{Streams: 5, Threads: 7}, 2, 5, 7},
		{ort.CUDA, Settings{}, 16, 1, 16},
		{ort.TensorRT, Settings{Streams: 2}, 16, 2, 8},
	} {
		s, n := split(c.provider, c.set, c.cpus)
		if s != c.streams || n != c.threads {
			t.Errorf("%s, %+v on %d CPUs: %d streams of %d threads, want %d of %d", c.provider, c.set, c.cpus, s, n, c.streams, c.threads)
		}
	}
	for cpus := 1; cpus <= 256; cpus++ {
		if s, n := split(ort.CPU, Settings{}, cpus); s > maxStreams || s*n > cpus || cpus-s*n >= s && cpus > 1 && s*n < cpus*3/4 {
			t.Errorf("%d CPUs: %d streams of %d threads", cpus, s, n)
		}
	}
}

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.CPUs < 1 || m.Name == "" {
		t.Errorf("this machine: %+v", m)
	}
	if !slices.Contains(Precisions, PrecisionAuto) || len(Precisions) != 5 {
		t.Errorf("precisions: %q", Precisions)
	}
}
