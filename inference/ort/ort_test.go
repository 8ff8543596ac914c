package ort_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ragate/inference/ort"
	"ragate/internal/testenv"
	"ragate/models"
	"ragate/models/graph"
)

func library(t testing.TB) string {
	t.Helper()
	store := models.Store{Dir: testenv.Store(t)}
	path, err := store.RuntimeLibrary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func openRuntime(t testing.TB) *ort.Runtime {
	t.Helper()
	rt, err := ort.Open(library(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Errorf("close the runtime: %v", err)
		}
	})
	return rt
}

func reranker(t testing.TB) (models.Manifest, models.Binding, models.TensorInfo, *ort.Runtime) {
	t.Helper()
	rt := openRuntime(t)
	store := models.Store{Dir: testenv.Store(t)}
	m, err := store.Resolve(t.Context(), models.DefaultReranker)
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := rt.Describe(m.GraphPath)
	if err != nil {
		t.Fatal(err)
	}
	b, err := models.CheckIO(m, in, out)
	if err != nil {
		t.Fatal(err)
	}
	return m, b, out[0], rt
}

// pair is "what is the capital of france" with "paris is the capital of france."
var pair = ort.Row{
	IDs:       []int32{101, 2054, 2003, 1996, 3007, 1997, 2605, 102, 3000, 2003, 1996, 3007, 1997, 2605, 1012, 102},
	TypeOneAt: 8,
}

// unrelated is the same question with "bananas are rich in potassium."
var unrelated = ort.Row{
	IDs:       []int32{101, 2054, 2003, 1996, 3007, 1997, 2605, 102, 26191, 2024, 4138, 1999, 18044, 1012, 102},
	TypeOneAt: 8,
}

func TestDescribeReadsTheGraphsOwnMetadata(t *testing.T) {
	_, b, _, _ := reranker(t)
	if len(b.Inputs) != 3 || b.Output != "logits" || b.Columns != 1 {
		t.Errorf("binding of the default reranker: %+v; want three inputs and one column of logits", b)
	}
}

func TestSessionsAgreeAcrossProviders(t *testing.T) {
	m, b, out, rt := reranker(t)
	entry, err := graph.Cached(t.TempDir(), graph.Source{Path: m.GraphPath, SHA256: m.GraphSHA256}, graph.WeightOnlyVersion,
		func(model []byte) ([]byte, error) {
			out, _, err := graph.WeightOnly(model)
			return out, err
		})
	if err != nil {
		t.Fatal(err)
	}
	type way struct {
		provider   ort.Provider
		arithmetic ort.Arithmetic
		graph      string
		tolerance  float64
	}
	ways := []way{
		{ort.CPU, ort.Float32, entry.Path, 0},
		{ort.CPU, ort.AsStored, m.GraphPath, 1}, // int8 activations: another number, the same order
	}
	if rt.Check(ort.OpenVINO) == nil {
		ways = append(ways, way{ort.OpenVINO, ort.Float32, entry.Path, 1e-4})
	}
	var want [2]float32
	for i, w := range ways {
		s, err := rt.NewSession(ort.SessionConfig{GraphPath: w.graph, Provider: w.provider, Arithmetic: w.arithmetic, Streams: 2, Threads: 1, Binding: b, Output: out})
		if err != nil {
			t.Fatalf("%s %s: %v", w.provider, w.arithmetic, err)
		}
		st, err := s.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err == nil {
			t.Error("a session closed under an open stream")
		}
		var got [2]float32
		for k, r := range []ort.Row{pair, unrelated} {
			got1, err := st.Run([]ort.Row{r}, len(r.IDs))
			if err != nil {
				t.Fatalf("%s %s: %v", w.provider, w.arithmetic, err)
			}
			got[k] = got1.Values[0]
		}
		// In one batch, the second row padded by one token.
		both, err := st.Run([]ort.Row{pair, unrelated}, 16)
		if err != nil {
			t.Fatal(err)
		}
		if len(both.Values) != 2 || both.Shape[0] != 2 {
			t.Fatalf("%s: a batch of two gave shape %v", w.provider, both.Shape)
		}
		if w.arithmetic == ort.Float32 {
			for k := range got {
				if d := math.Abs(float64(got[k] - both.Values[k])); d > 2e-5 {
					t.Errorf("%s: row %d alone %v, in a batch %v", w.provider, k, got[k], both.Values[k])
				}
			}
		}
		if got[0] < 3 || got[1] > -3 {
			t.Errorf("%s %s: logits %v; want the answer far above the unrelated text", w.provider, w.arithmetic, got)
		}
		if i == 0 {
			want = got
		}
		for k := range got {
			if d := math.Abs(float64(got[k] - want[k])); d > w.tolerance {
				t.Errorf("%s %s: logit %d is %v, on the CPU provider in fp32 %v", w.provider, w.arithmetic, k, got[k], want[k])
			}
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTerminateEndsRuns(t *testing.T) {
	m, b, out, rt := reranker(t)
	s, err := rt.NewSession(ort.SessionConfig{GraphPath: m.GraphPath, Provider: ort.CPU, Arithmetic: ort.AsStored, Streams: 1, Threads: 1, Binding: b, Output: out})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	st, err := s.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Terminate(); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Run([]ort.Row{pair}, 16); err == nil {
		t.Error("a run after Terminate gave a result")
	}
}

func TestMissingProviderNamesItsLibrary(t *testing.T) {
	m, b, out, rt := reranker(t)
	_, err := rt.NewSession(ort.SessionConfig{GraphPath: m.GraphPath, Provider: ort.CUDA, Arithmetic: ort.Float32, Streams: 1, Threads: 1, Binding: b, Output: out})
	var p *ort.ProviderError
	if !errors.As(err, &p) {
		t.Fatalf("cuda without its library: %v", err)
	}
	if p.Missing == "" || !strings.Contains(err.Error(), p.Missing) || !strings.Contains(err.Error(), "cuda") {
		t.Errorf("the error does not name the library: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := ort.Open(filepath.Join(t.TempDir(), "libonnxruntime.so")); err == nil || !strings.Contains(err.Error(), "RAGATE_ORT_LIBRARY") {
		t.Errorf("a library that is not there: %v", err)
	}
	junk := filepath.Join(t.TempDir(), "libonnxruntime.so")
	if err := os.WriteFile(junk, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ort.Open(junk); err == nil {
		t.Error("a text file was loaded as a library")
	}
	rt := openRuntime(t)
	if _, err := ort.Open(rt.Path()); err == nil {
		t.Error("the library was opened twice")
	}
}
