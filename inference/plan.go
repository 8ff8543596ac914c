package inference

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ragate/inference/ort"
)

// Precision is the setting that says in which number format a model calculates.
type Precision string

const (
	PrecisionAuto Precision = "auto"
	// FP32 is float32 arithmetic. Quantised weights are multiplied out exactly.
	FP32 Precision = "fp32"
	// BF16 is bfloat16 matrix products through OpenVINO, on CPUs with AMX or avx512_bf16.
	BF16 Precision = "bf16"
	// INT8 runs a dynamically quantised graph as it is, one row per run, so that a row's activation scales are its own.
	INT8 Precision = "int8"
	// INT8Batched runs the same graph in batches. Faster, and a score then depends on who shares the batch.
	INT8Batched Precision = "int8-batched"
)

// Precisions lists the settings' values.
var Precisions = []Precision{PrecisionAuto, FP32, BF16, INT8, INT8Batched}

// ProviderAuto lets the engine choose the execution provider.
const ProviderAuto ort.Provider = "auto"

// Machine is what of the computer a plan depends on.
type Machine struct {
	Name string // of the processor; part of the key under which measurements are remembered
	CPUs int    // that this process may use
	BF16 bool   // AMX or avx512_bf16: bfloat16 products at more than float32's speed
}

// Settings are one model's wishes. Zero values mean: decide.
type Settings struct {
	Provider  ort.Provider
	Precision Precision
	MaxTokens int // tokens per sequence; bounded by the model's own limit
	Streams   int // runs in flight at once
	Threads   int // compute threads of one run

	// Names are what requests may call the model, its ID first. Empty: the manifest's ID and aliases. No two models of an engine share one.
	Names []string
}

const (
	// padMultiple is what sequence lengths are rounded up to. It keeps the number of shapes small (32 up to 512 tokens), and makes bf16
	// results independent of batch mates: with free lengths a pair's logit moved by 0.046, with multiples of 16 by at most 0.0014.
	padMultiple = 16

	// maxStreams: on a CPU, streams of one thread each beat one stream of many (1.2 to 1.3 times under load), but each holds its own
	// activations, and a long row on one core of many makes its caller wait; so from here on streams get more threads instead.
	maxStreams = 8

	// noRowLimit: the batch is bounded by tokens alone.
	noRowLimit = 1 << 30
)

// plan is one way to run a model.
type plan struct {
	provider   ort.Provider
	precision  Precision
	arithmetic ort.Arithmetic
	weightOnly bool // the graph is rewritten to weight-only quantisation first
	pad        int
	maxRows    int
	streams    int
	threads    int
	warnings   []string
}

// UnavailableError is returned when no provider can run a model as wished. Reasons has one sentence for each that was considered.
type UnavailableError struct {
	Provider  ort.Provider
	Precision Precision
	Reasons   []error
}

func (e *UnavailableError) Error() string {
	parts := make([]string, len(e.Reasons))
	for i, r := range e.Reasons {
		parts[i] = r.Error()
	}
	return fmt.Sprintf("provider %q with precision %q cannot run: %s", e.Provider, e.Precision, strings.Join(parts, "; "))
}

func (e *UnavailableError) Unwrap() []error { return e.Reasons }

// plans lists the ways to run a graph in order of preference, and why others are out. dynamic says that the graph quantises its
// activations while running; check says whether a provider's library is there. Pure: it tries nothing.
func plans(set Settings, m Machine, dynamic bool, check func(ort.Provider) error) (ways []plan, out []error, err error) {
	if set.Provider == "" {
		set.Provider = ProviderAuto
	}
	if set.Precision == "" {
		set.Precision = PrecisionAuto
	}
	if !slices.Contains(Precisions, set.Precision) {
		return nil, nil, fmt.Errorf("unknown precision %q; known: %q", set.Precision, Precisions)
	}
	providers := []ort.Provider{set.Provider}
	if set.Provider == ProviderAuto {
		providers = []ort.Provider{ort.CUDA, ort.OpenVINO, ort.CPU}
	} else if !slices.Contains(ort.Providers, set.Provider) {
		return nil, nil, fmt.Errorf("unknown execution provider %q; known: auto, %q", set.Provider, ort.Providers)
	}
	for _, p := range providers {
		if err := check(p); err != nil {
			out = append(out, err)
			continue
		}
		w, err := planFor(p, set, m, dynamic)
		if err != nil {
			out = append(out, err)
			continue
		}
		ways = append(ways, w)
	}
	if len(ways) == 0 {
		return nil, out, &UnavailableError{Provider: set.Provider, Precision: set.Precision, Reasons: out}
	}
	return ways, out, nil
}

// planFor decides for one provider.
func planFor(p ort.Provider, set Settings, m Machine, dynamic bool) (plan, error) {
	auto := set.Precision == PrecisionAuto
	precision := set.Precision
	if auto {
		switch {
		case p == ort.OpenVINO && m.BF16:
			precision = BF16
		case p == ort.OpenVINO && dynamic && set.Provider == ProviderAuto:
			// Without bf16 hardware the int8 kernels of the cpu provider are faster, one row at a time, than float32 here.
			return plan{}, errors.New("openvino: passed over, since this CPU has neither AMX nor avx512_bf16 and the graph is int8")
		case p == ort.CPU && dynamic:
			precision = INT8
		default:
			precision = FP32
		}
	}
	w := plan{provider: p, precision: precision, arithmetic: ort.Float32, weightOnly: dynamic, pad: padMultiple, maxRows: noRowLimit}
	switch precision {
	case BF16:
		if p != ort.OpenVINO {
			return plan{}, fmt.Errorf("%s: bf16 is run by the openvino provider only", p)
		}
		if !m.BF16 {
			return plan{}, fmt.Errorf("openvino: bf16 needs a CPU with AMX or avx512_bf16, and this one (%s) has neither; choose fp32 or int8", m.Name)
		}
		w.arithmetic = ort.BFloat16
	case INT8, INT8Batched:
		if p != ort.CPU {
			return plan{}, fmt.Errorf("%s: %s is run by the cpu provider only", p, precision)
		}
		if !dynamic {
			return plan{}, fmt.Errorf("cpu: %s needs a dynamically quantised graph, and this one is not; choose fp32 or bf16", precision)
		}
		w.arithmetic, w.weightOnly = ort.AsStored, false
		if precision == INT8 {
			w.pad, w.maxRows = 1, 1
		} else {
			w.warnings = append(w.warnings, "int8-batched: a score depends on which other texts share its batch; choose int8, bf16 or fp32 for thresholds that hold")
		}
	}
	w.streams, w.threads = split(p, set, m.CPUs)
	return w, nil
}

// split shares the CPUs out to streams and threads: as many streams as there may be, of as many threads each as use up the CPUs.
func split(p ort.Provider, set Settings, cpus int) (streams, threads int) {
	cpus = max(cpus, 1)
	streams, threads = set.Streams, set.Threads
	if streams < 1 && (p == ort.CUDA || p == ort.TensorRT) {
		streams = 1 // the device is one; batches fill it
	}
	switch {
	case streams < 1 && threads < 1:
		threads = (cpus + maxStreams - 1) / maxStreams
		streams = cpus / threads
	case streams < 1:
		streams = min(max(cpus/threads, 1), maxStreams)
	case threads < 1:
		threads = max(cpus/streams, 1)
	}
	return streams, threads
}
