package ort

// Ownership. A Session belongs to whoever made it and is only shared for reading: ONNX Runtime allows Run from several
// threads at once. Each of those threads (a worker) has a Stream of its own; a stream's tensors live in Go memory that the stream
// keeps, and the runtime reads them only inside Run. Close a session after its streams.

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	ortgo "github.com/yalue/onnxruntime_go"

	"ragate/models"
)

// Arithmetic is the number format that a session calculates in. Which graph it is given is the caller's business.
type Arithmetic string

const (
	// AsStored leaves the graph's own operators as they are: int8 kernels for a quantised graph, float32 otherwise.
	AsStored Arithmetic = "as-stored"
	Float32  Arithmetic = "fp32"
	BFloat16 Arithmetic = "bf16"
)

// SessionConfig is what a session is made from.
type SessionConfig struct {
	GraphPath  string
	Provider   Provider
	Arithmetic Arithmetic
	Streams    int               // runs in flight at once
	Threads    int               // compute threads of one run
	Binding    models.Binding    // which inputs are sent and which output is read
	Output     models.TensorInfo // of that output, from Describe
	// PadID is the token behind a row's end. The mask keeps it out of every sum, but graphs of the RoBERTa family count positions by it.
	PadID int32
}

// Session is a graph loaded on one execution provider.
type Session struct {
	rt      *Runtime
	s       *ortgo.DynamicAdvancedSession
	cfg     SessionConfig
	streams int
}

// Describe reads a graph's inputs and outputs from the runtime's own metadata, without optimising it.
func (r *Runtime) Describe(graphPath string) (inputs, outputs []models.TensorInfo, err error) {
	if err := r.retain(); err != nil {
		return nil, nil, err
	}
	defer r.release()
	r.onThread(func() { inputs, outputs, err = describe(graphPath) })
	return inputs, outputs, err
}

func describe(graphPath string) (inputs, outputs []models.TensorInfo, err error) {
	so, err := ortgo.NewSessionOptions()
	if err != nil {
		return nil, nil, fmt.Errorf("ort: session options: %w", err)
	}
	defer so.Destroy()
	if err := so.SetGraphOptimizationLevel(ortgo.GraphOptimizationLevelDisableAll); err != nil {
		return nil, nil, fmt.Errorf("ort: session options: %w", err)
	}
	in, out, err := ortgo.GetInputOutputInfoWithOptions(graphPath, so)
	if err != nil {
		return nil, nil, fmt.Errorf("ort: read %s: %w", graphPath, err)
	}
	return tensorInfos(in), tensorInfos(out), nil
}

var elementTypes = map[ortgo.TensorElementDataType]models.ElementType{
	ortgo.TensorElementDataTypeFloat: models.Float32, ortgo.TensorElementDataTypeFloat16: models.Float16, ortgo.TensorElementDataTypeBFloat16: "bfloat16",
	ortgo.TensorElementDataTypeDouble: "float64", ortgo.TensorElementDataTypeInt32: models.Int32, ortgo.TensorElementDataTypeInt64: models.Int64,
	ortgo.TensorElementDataTypeInt8: "int8", ortgo.TensorElementDataTypeUint8: "uint8", ortgo.TensorElementDataTypeInt16: "int16",
	ortgo.TensorElementDataTypeBool: "bool", ortgo.TensorElementDataTypeString: "string",
}

func tensorInfos(in []ortgo.InputOutputInfo) []models.TensorInfo {
	out := make([]models.TensorInfo, len(in))
	for i, x := range in {
		t, ok := elementTypes[x.DataType]
		if !ok {
			t = models.ElementType(x.DataType.String())
		}
		out[i] = models.TensorInfo{Name: x.Name, Type: t, Shape: x.Dimensions}
	}
	return out
}

// NewSession loads a graph. Errors: *ProviderError when the provider is missing or cannot take the whole graph; else the runtime's own.
func (r *Runtime) NewSession(cfg SessionConfig) (*Session, error) {
	if err := r.Check(cfg.Provider); err != nil {
		return nil, err
	}
	if cfg.Streams < 1 || cfg.Threads < 1 {
		return nil, fmt.Errorf("ort: %d streams of %d threads: both must be at least 1", cfg.Streams, cfg.Threads)
	}
	if cfg.Output.Name != cfg.Binding.Output {
		return nil, fmt.Errorf("ort: the output described is %q, and the one bound is %q", cfg.Output.Name, cfg.Binding.Output)
	}
	s := &Session{rt: r, cfg: cfg}
	if err := r.retain(); err != nil {
		return nil, err
	}
	names := make([]string, len(cfg.Binding.Inputs))
	for i, in := range cfg.Binding.Inputs {
		names[i] = in.Name
	}
	var err error
	r.onThread(func() {
		var so *ortgo.SessionOptions
		if so, err = sessionOptions(cfg); err != nil {
			return
		}
		defer so.Destroy()
		s.s, err = ortgo.NewDynamicAdvancedSession(cfg.GraphPath, names, []string{cfg.Binding.Output}, so)
	})
	if err != nil {
		r.release()
		var p *ProviderError
		if errors.As(err, &p) {
			return nil, err
		}
		if cfg.Provider != CPU {
			return nil, &ProviderError{Provider: cfg.Provider, Runtime: r.path, Err: err}
		}
		return nil, fmt.Errorf("ort: load %s: %w", cfg.GraphPath, err)
	}
	return s, nil
}

// sessionOptions turns a config into the runtime's options. The caller destroys them.
func sessionOptions(cfg SessionConfig) (so *ortgo.SessionOptions, err error) {
	so, err = ortgo.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("ort: session options: %w", err)
	}
	defer func() {
		if err != nil {
			so.Destroy()
			so, err = nil, fmt.Errorf("ort: session options: %w", err)
		}
	}()
	// Spinning threads would take the cores that other streams and the HTTP side need. Arena and pattern are off because with
	// ever new shapes both only grow: resident memory has to stay flat.
	if err = errors.Join(
		so.SetLogSeverityLevel(ortgo.LoggingLevelError),
		so.SetIntraOpNumThreads(cfg.Threads),
		so.SetInterOpNumThreads(1),
		so.SetCpuMemArena(false),
		so.SetMemPattern(false),
		so.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		so.AddSessionConfigEntry("session.inter_op.allow_spinning", "0"),
	); err != nil {
		return so, err
	}
	if cfg.Provider == CPU {
		if cfg.Arithmetic == BFloat16 {
			return so, errors.New("the cpu provider has no bf16 arithmetic")
		}
		if cfg.Arithmetic == Float32 {
			// Weights that are stored in int8 are then multiplied out once, while loading, and not in every run: of multilingual-e5-small a
			// query of 16 tokens took 19 ms instead of 79, for 86 MB more. No other use of such operators is left in a graph that runs so.
			if err = so.AddSessionConfigEntry("session.disable_quant_qdq", "1"); err != nil {
				return so, err
			}
		}
		return so, nil
	}
	// With this entry a node that the provider does not take is an error instead of a silent run on the CPU provider.
	if err = so.AddSessionConfigEntry("session.disable_cpu_ep_fallback", "1"); err != nil {
		return so, err
	}
	switch cfg.Provider {
	case OpenVINO:
		var options map[string]string
		if options, err = openVINOOptions(cfg); err == nil {
			err = so.AppendExecutionProviderOpenVINO(options)
		}
	case CUDA:
		if cfg.Arithmetic == BFloat16 {
			return so, errors.New("bf16 is the openvino provider's; cuda runs fp32")
		}
		// Shape arithmetic runs on the host by design there, so the no-fallback rule cannot hold node by node.
		err = so.AddSessionConfigEntry("session.disable_cpu_ep_fallback", "0")
		var o *ortgo.CUDAProviderOptions
		if err == nil {
			if o, err = ortgo.NewCUDAProviderOptions(); err == nil {
				defer o.Destroy()
				// TF32 products keep 10 bits of the mantissa; the provider's default would then be reported as fp32.
				if err = o.Update(map[string]string{"use_tf32": "0"}); err != nil {
					return so, err
				}
				err = so.AppendExecutionProviderCUDA(o)
			}
		}
	case TensorRT:
		err = so.AddSessionConfigEntry("session.disable_cpu_ep_fallback", "0")
		var o *ortgo.TensorRTProviderOptions
		if err == nil {
			if o, err = ortgo.NewTensorRTProviderOptions(); err == nil {
				defer o.Destroy()
				err = so.AppendExecutionProviderTensorRT(o)
			}
		}
	}
	if err != nil {
		err = &ProviderError{Provider: cfg.Provider, Err: err}
	}
	return so, err
}

// openVINOOptions are the provider's own. load_config holds the JSON text itself: given a path, the provider falls back to the CPU
// provider with no more than a log line.
func openVINOOptions(cfg SessionConfig) (map[string]string, error) {
	hint := map[Arithmetic]string{BFloat16: "bf16", Float32: "f32"}[cfg.Arithmetic]
	if hint == "" {
		return nil, fmt.Errorf("the openvino provider runs fp32 or bf16 here, not %s", cfg.Arithmetic)
	}
	properties := map[string]string{
		"INFERENCE_PRECISION_HINT": hint,
		"NUM_STREAMS":              strconv.Itoa(cfg.Streams),
		"INFERENCE_NUM_THREADS":    strconv.Itoa(cfg.Streams * cfg.Threads),
		// Left at its default, the plug-in quantises activations to int8 in groups of 32 wherever weights are int8: faster, but then "fp32"
		// would be off by 0.1 in the logit (measured), and the precision reported would not be the one that ran.
		"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
		// Pinned threads of two processes meet on the same cores; the operating system places them better on shared machines.
		"ENABLE_CPU_PINNING": "NO",
	}
	text, err := json.Marshal(map[string]any{"CPU": properties})
	if err != nil {
		return nil, err
	}
	return map[string]string{"device_type": "CPU", "load_config": string(text)}, nil
}

// Config is what the session was made from.
func (s *Session) Config() SessionConfig { return s.cfg }

// Close frees the session. Its streams must be closed by then.
func (s *Session) Close() error {
	if s.streams > 0 {
		return fmt.Errorf("ort: %d streams of the session are still open", s.streams)
	}
	if s.s == nil {
		return nil
	}
	var err error
	s.rt.onThread(func() { err = s.s.Destroy() })
	s.s = nil
	s.rt.release()
	return err
}
