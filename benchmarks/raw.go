package benchmarks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/models/graph"
)

// Raw is a model on the plan that a server runs it on (graph, provider, arithmetic, streams, threads), with nothing around it: no HTTP, no
// queue, no tokenizing. It is the ceiling that the server is measured against.
type Raw struct {
	Encoder *Encoder
	Pad     int  // padded lengths are multiples of it
	Single  bool // rows must run alone
	session *ort.Session
	streams []*ort.Stream
	width   int // floats of a row's answer that Logit reads
}

// OpenRaw loads the model as info says the server runs it. graphs is the folder of rewritten graphs; the server must have made its own
// there already, so that both run the very same file.
func OpenRaw(rt *ort.Runtime, graphs string, m models.Manifest, info ModelInfo) (*Raw, error) {
	if m.GraphSHA256 != info.SHA256 {
		return nil, fmt.Errorf("%s: the server runs the file %s, the store has %s", m.ID, info.SHA256, m.GraphSHA256)
	}
	encoder, err := NewEncoder(m)
	if err != nil {
		return nil, err
	}
	r := &Raw{Pad: 16, Encoder: encoder}
	facts, err := graph.InspectFile(m.GraphPath)
	if err != nil {
		return nil, err
	}
	inputs, outputs, err := rt.Describe(m.GraphPath)
	if err != nil {
		return nil, err
	}
	binding, err := models.CheckIO(m, inputs, outputs)
	if err != nil {
		return nil, err
	}
	r.width = binding.Columns
	output := slices.IndexFunc(outputs, func(t models.TensorInfo) bool { return t.Name == binding.Output })
	cfg := ort.SessionConfig{
		Provider: ort.Provider(info.Provider), Streams: info.Streams, Threads: info.Threads, Binding: binding, Output: outputs[output],
	}
	var versions []string
	switch info.Precision {
	case "bf16":
		cfg.Arithmetic = ort.BFloat16
	case "fp32":
		cfg.Arithmetic = ort.Float32
	case "int8", "int8-batched":
		cfg.Arithmetic = ort.AsStored
		if r.Single = info.Precision == "int8"; r.Single {
			r.Pad = 1
		}
	default:
		return nil, fmt.Errorf("%s: the server runs it in %s, which this benchmark does not know", m.ID, info.Precision)
	}
	if facts.DynamicallyQuantized && cfg.Arithmetic != ort.AsStored {
		versions = append(versions, graph.WeightOnlyVersion, graph.UnpackVersion)
	}
	if len(facts.Outputs) > 1 {
		versions = append(versions, graph.PruneVersion+"-"+binding.Output)
	}
	cfg.GraphPath = m.GraphPath
	if len(versions) > 0 {
		entry, err := graph.Cached(graphs, graph.Source{Path: m.GraphPath, SHA256: m.GraphSHA256}, strings.Join(versions, "+"), func([]byte) ([]byte, error) {
			return nil, fmt.Errorf("%s has no graph rewritten by %q: the server makes another one than this benchmark expects", graphs, versions)
		})
		if err != nil {
			return nil, err
		}
		cfg.GraphPath = entry.Path
	}
	if r.session, err = rt.NewSession(cfg); err != nil {
		return nil, err
	}
	for range info.Streams {
		st, err := r.session.NewStream()
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.streams = append(r.streams, st)
	}
	return r, nil
}

// Close frees the session.
func (r *Raw) Close() error {
	var errs []error
	for _, st := range r.streams {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, r.session.Close())...)
}

// Streams is how many runs may be in flight at once.
func (r *Raw) Streams() int { return len(r.streams) }

// Batch is rows that run together.
type Batch struct {
	Rows []ort.Row
	Cols int // padded length
}

// Cols is the padded length of a row.
func (r *Raw) Cols(row ort.Row) int {
	return min((len(row.IDs)+r.Pad-1)/r.Pad*r.Pad, r.Encoder.Manifest.MaxTokens)
}

// Alike puts rows of equal padded length together, up to the given number of padded tokens a batch and at least one row: what a server
// would do that could choose from endlessly many rows. The longest come first, so that streams end at about the same time. With
// budget 0 every row runs alone.
func (r *Raw) Alike(rows []ort.Row, budget int) []Batch {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b ort.Row) int { return cmp.Compare(r.Cols(b), r.Cols(a)) })
	var out []Batch
	for _, row := range sorted {
		cols := r.Cols(row)
		if n := len(out) - 1; n >= 0 && !r.Single && out[n].Cols == cols && (len(out[n].Rows)+1)*cols <= budget {
			out[n].Rows = append(out[n].Rows, row)
			continue
		}
		out = append(out, Batch{Rows: []ort.Row{row}, Cols: cols})
	}
	slices.SortStableFunc(out, func(a, b Batch) int { return cmp.Compare(len(b.Rows)*b.Cols, len(a.Rows)*a.Cols) })
	return out
}

// Split deals rows out evenly, one batch per stream, padded to the longest: the fewest runs.
func (r *Raw) Split(rows []ort.Row) []Batch {
	out := make([]Batch, min(len(r.streams), len(rows)))
	for i, row := range rows {
		b := &out[i%len(out)]
		b.Rows = append(b.Rows, row)
		b.Cols = max(b.Cols, r.Cols(row))
	}
	return out
}

// Run runs the batches, each stream taking the next when it is done with one, and returns the time from first to last.
func (r *Raw) Run(batches []Batch) (time.Duration, error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(r.streams))
	began := time.Now()
	for i, st := range r.streams[:min(len(r.streams), len(batches))] {
		wg.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(batches) {
					return
				}
				if _, err := st.Run(batches[k].Rows, batches[k].Cols); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), errors.Join(errs...)
}

// Within is how many rows of the batches so many streams finish in the given time, each taking the next batch when it is done with one.
func (r *Raw) Within(batches []Batch, streams int, budget time.Duration) (rows int, err error) {
	var next, done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(r.streams))
	began := time.Now()
	for i, st := range r.streams[:min(streams, len(r.streams))] {
		wg.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(batches) || time.Since(began) >= budget {
					return
				}
				if _, err := st.Run(batches[k].Rows, batches[k].Cols); err != nil {
					errs[i] = err
					return
				}
				if time.Since(began) <= budget {
					done.Add(int64(len(batches[k].Rows)))
				}
			}
		})
	}
	wg.Wait()
	return int(done.Load()), errors.Join(errs...)
}

// Warm runs every shape of the batches once on each stream: the first run of a shape costs tens of milliseconds.
func (r *Raw) Warm(batches []Batch) error {
	seen := map[[2]int]bool{}
	var shapes []Batch
	for _, b := range batches {
		if k := [2]int{len(b.Rows), b.Cols}; !seen[k] {
			seen[k] = true
			shapes = append(shapes, b)
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(r.streams))
	for i, st := range r.streams {
		wg.Go(func() {
			for _, b := range shapes {
				if _, err := st.Run(b.Rows, b.Cols); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Logit is a reranker's answer to one row.
func (r *Raw) Logit(row ort.Row) (float32, error) {
	out, err := r.streams[0].Run([]ort.Row{row}, r.Cols(row))
	if err != nil {
		return 0, err
	}
	if r.width != 1 || len(out.Values) != 1 {
		return 0, fmt.Errorf("%s: an answer of shape %v is not one logit", r.Encoder.Manifest.ID, out.Shape)
	}
	return out.Values[0], nil
}
