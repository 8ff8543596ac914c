package graph

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"ragate/internal/testenv"
	"ragate/models/onnxpb"
)

// The default models as supplied, by their sha256.
const (
	embedderSHA = "d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad"
	rerankerSHA = "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"
)

// model finds a model in the store by its hash, wherever the store keeps it.
func model(t testing.TB, sha string) (string, []byte) {
	t.Helper()
	store := testenv.Store(t)
	var path string
	var data []byte
	err := filepath.WalkDir(store, func(p string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(p) != ".onnx" {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) == sha {
			path, data = p, b
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if data == nil {
		t.Fatalf("no model with sha256 %s under %s: run `make setup` first", sha, store)
	}
	return path, data
}

// reference is what tools/rewrite_reference.py, which shares no code with this package, says about a model.
type reference struct {
	ModelSHA256 string `json:"model_sha256"`
	Weights     []struct {
		Name   string
		Shape  []int
		SHA256 string // of the dequantised float32 values, little-endian
	}
	Inputs []struct{ IDs []int64 }
	Dim    int
	Values []byte
}

func readReference(t testing.TB, name string) reference {
	t.Helper()
	var r reference
	if err := json.Unmarshal(testenv.Gunzip(t, filepath.Join("testdata", name)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRealModels(t *testing.T) {
	for _, c := range []struct {
		name, sha, reference    string
		matmuls                 int
		quantizers, nodesBefore int
		outputSHA               string
	}{
		{"e5-small-v2", embedderSHA, "embedder.json.gz", 73, 49, 1524, "944523a2802e4b13547a26ce13f7088db0ad83dc05cad7c95576fe9d48925311"},
		{"ms-marco-MiniLM-L-12-v2", rerankerSHA, "reranker.json.gz", 74, 50, 1530, "26c0a2b92b36efb58c809090989114128481a163d5e4e2c5ee16dafbbf9d4e15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, file := model(t, c.sha)
			if m := mustParse(t, file); !bytes.Equal(mustAppendModel(t, m), file) {
				t.Error("the untouched model does not come back byte for byte")
			}
			out, r, err := WeightOnly(file)
			if err != nil {
				t.Fatal(err)
			}
			// Per product Cast and both Muls go and DequantizeLinear comes; MatMulInteger becomes MatMul.
			want := Report{MatMuls: c.matmuls, Weights: c.matmuls, NodesBefore: c.nodesBefore, NodesAfter: c.nodesBefore - 2*c.matmuls - c.quantizers}
			if !reflect.DeepEqual(r, want) {
				t.Errorf("report %+v, want %+v", r, want)
			}
			if len(out) > len(file) {
				t.Errorf("the file grew from %d to %d bytes", len(file), len(out))
			}
			if sum := sha256.Sum256(out); hex.EncodeToString(sum[:]) != c.outputSHA {
				t.Errorf("the result has sha256 %x: when that is meant to change, so must WeightOnlyVersion (%s)", sum, WeightOnlyVersion)
			}
			before, after := mustParse(t, file), mustParse(t, out)
			checkWhole(t, after)
			checkFacts(t, file, out, c.matmuls)

			// Every initialiser is used and holds what it held.
			if len(after.Graph.Initializers) != len(before.Graph.Initializers) {
				t.Errorf("%d initialisers became %d", len(before.Graph.Initializers), len(after.Graph.Initializers))
			}
			for _, ini := range before.Graph.Initializers {
				if !sameTensor(t, ini, lookupTensor(t, after, ini.Name)) {
					t.Errorf("the initialiser %q changed", ini.Name)
				}
			}

			// Every weight that the new graph multiplies by is bit for bit what numpy makes of the stored integers.
			ref := readReference(t, c.reference)
			if ref.ModelSHA256 != c.sha || len(ref.Weights) != c.matmuls || len(ref.Inputs) != 50 {
				t.Fatalf("the reference is of %s with %d weights and %d inputs", ref.ModelSHA256, len(ref.Weights), len(ref.Inputs))
			}
			dequantizers := map[string]*onnxpb.Node{}
			multiplied := map[string]bool{}
			for _, n := range after.Graph.Nodes {
				switch n.Op {
				case "DequantizeLinear":
					dequantizers[n.Input(0)] = n
				case "MatMul":
					multiplied[n.Input(1)] = true
				}
			}
			for _, w := range ref.Weights {
				n := dequantizers[w.Name]
				if n == nil || !multiplied[n.Output(0)] {
					t.Fatalf("the weight %q is not dequantised and multiplied", w.Name)
				}
				got := dequantize(t, after, n)
				if !slices.Equal(got.shape, w.Shape) {
					t.Errorf("weight %q has shape %v, want %v", w.Name, got.shape, w.Shape)
				}
				raw := make([]byte, 0, 4*len(got.data))
				for _, v := range got.data {
					raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
				}
				if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != w.SHA256 {
					t.Errorf("weight %q does not dequantise to the reference's float32 values", w.Name)
				}
			}
		})
	}
}

func checkFacts(t *testing.T, file, out []byte, matmuls int) {
	t.Helper()
	before, err := Inspect(file)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Inspect(out)
	if err != nil {
		t.Fatal(err)
	}
	if !before.DynamicallyQuantized || before.DynamicOps["MatMulInteger"] != matmuls || after.DynamicallyQuantized {
		t.Errorf("dynamic before: %v, after: %v", before.DynamicOps, after.DynamicOps)
	}
	if after.WeightType != onnxpb.Int8 || !reflect.DeepEqual(before.WeightBytes, after.WeightBytes) {
		t.Errorf("weights %v became %v", before.WeightBytes, after.WeightBytes)
	}
	if !reflect.DeepEqual(before.Inputs, after.Inputs) || len(before.Inputs) != 3 || before.Inputs[0].String() != "input_ids: int64[batch_size, sequence]" {
		t.Errorf("inputs %v became %v", before.Inputs, after.Inputs)
	}
	if got := after.Ops["DequantizeLinear"]; got != matmuls+3 { // three of them dequantise the embeddings, before and after
		t.Errorf("%d DequantizeLinear", got)
	}
}

func TestPrunePooler(t *testing.T) {
	_, file := model(t, embedderSHA)
	f, err := Inspect(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Outputs) != 2 || f.Outputs[0].OnlyNodes != 0 || f.Outputs[1].Name != "1654" || f.Outputs[1].OnlyNodes == 0 {
		t.Fatalf("outputs %v", f.Outputs)
	}
	out, r, err := PruneOutputs(file, "last_hidden_state")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Outputs, []string{"1654"}) || r.Nodes != f.Outputs[1].OnlyNodes || r.Initializers != 4 || len(file)-len(out) < 384*384 {
		t.Errorf("%+v, %d bytes became %d", r, len(file), len(out))
	}
	m := mustParse(t, out)
	checkWhole(t, m)
	rewritten, _, err := WeightOnly(out)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := WeightOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	if other, _, err = PruneOutputs(other, "last_hidden_state"); err != nil || !bytes.Equal(rewritten, other) {
		t.Errorf("the two rewrites do not commute (%v)", err)
	}
}

func sameTensor(t *testing.T, a, b *onnxpb.Tensor) bool {
	t.Helper()
	x, err := a.Data()
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Data()
	if err != nil {
		t.Fatal(err)
	}
	return a.Type == b.Type && slices.Equal(a.Dims, b.Dims) && bytes.Equal(x, y)
}

func mustAppendModel(t testing.TB, m *onnxpb.Model) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func BenchmarkWeightOnly(b *testing.B) {
	_, file := model(b, rerankerSHA)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := WeightOnly(file); err != nil {
			b.Fatal(err)
		}
	}
}
