package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ragate/internal/testenv"
)

// inputs is what is sent; tools/reference.py made it from a fixed seed.
type inputs struct {
	Texts []string             `json:"texts"`
	Pairs []queryWithDocuments `json:"pairs"`
}

type queryWithDocuments struct {
	Query     string   `json:"query"`
	Documents []string `json:"documents"`
}

// answers are the reference's for texts or pairs, in the order of the inputs.
type answers struct {
	tokens     []int // that the model sees, special tokens included
	width      int
	int8, fp32 []float32 // width values per input
}

func row(values []float32, i, width int) []float32 { return values[i*width : (i+1)*width] }

// reference is what the server must answer.
type reference struct {
	inputs  inputs
	pairs   []pair // of inputs, one by one
	vectors answers
	logits  answers
}

// pair is one query with one document.
type pair struct{ query, document int }

func readInputs(t *testing.T, path string) inputs {
	t.Helper()
	var in inputs
	if err := json.Unmarshal(testenv.Gunzip(t, path), &in); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return in
}

// loadReference has tools/reference.py compute the answers, on this machine and with the very models that are served. What it computed
// is kept in the store under a hash of all it depends on.
func loadReference(t *testing.T) *reference {
	t.Helper()
	root, data := testenv.ModuleRoot(t), store(t)
	packages := filepath.Join(data, "python")
	if _, err := os.Stat(filepath.Join(packages, "onnxruntime")); err != nil {
		t.Fatalf("no Python packages for the reference in %s: run `make setup-reference` (%v)", packages, err)
	}
	folders := []string{filepath.Join(data, "models", "intfloat--e5-small-v2"), filepath.Join(data, "models", "cross-encoder--ms-marco-MiniLM-L12-v2")}
	list := filepath.Join(root, "internal", "e2e", "testdata", "inputs.json.gz")
	script := filepath.Join(root, "tools", "reference.py")

	hash := sha256.New()
	fmt.Fprintln(hash, cpu(t)) // kernels differ between processors
	needed := []string{list, script, filepath.Join(root, "tools", "rewrite_reference.py"), filepath.Join(root, "tools", "requirements.txt")}
	for _, f := range folders {
		needed = append(needed, filepath.Join(f, "model.onnx"), filepath.Join(f, "tokenizer.json"))
	}
	for _, name := range needed {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(one.Sum(nil))
	}
	out := filepath.Join(data, "reference", hex.EncodeToString(hash.Sum(nil))+".json")
	if _, err := os.Stat(out); err != nil {
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		cmd := exec.CommandContext(t.Context(), "python3", script, "answers", "--embedder", folders[0], "--reranker", folders[1], "--inputs", list, "--out", out)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("the reference: %v\n%s", err, said)
		}
		t.Logf("the reference took %.0f s; kept in %s", time.Since(began).Seconds(), out)
	}
	return readReference(t, readInputs(t, list), out)
}

func cpu(t *testing.T) string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "" // not Linux: the store does not move between machines of different processors either
	}
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("model name")) {
			return string(line)
		}
	}
	return ""
}

func readReference(t *testing.T, in inputs, path string) *reference {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type stored struct {
		Tokens []int  `json:"tokens"`
		Width  int    `json:"width"`
		INT8   string `json:"int8"`
		FP32   string `json:"fp32"`
	}
	var file struct {
		Versions map[string]string `json:"versions"`
		Texts    stored            `json:"texts"`
		Pairs    stored            `json:"pairs"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	r := &reference{inputs: in}
	for q, p := range in.Pairs {
		for d := range p.Documents {
			r.pairs = append(r.pairs, pair{q, d})
		}
	}
	read := func(s stored, want int) answers {
		a := answers{tokens: s.Tokens, width: s.Width, int8: floats(t, s.INT8), fp32: floats(t, s.FP32)}
		if want < 200 || len(a.tokens) != want || len(a.int8) != want*a.width || len(a.fp32) != want*a.width {
			t.Fatalf("%s: %d inputs, %d token counts, %d and %d values of width %d", path, want, len(a.tokens), len(a.int8), len(a.fp32), a.width)
		}
		return a
	}
	r.vectors, r.logits = read(file.Texts, len(in.Texts)), read(file.Pairs, len(r.pairs))
	return r
}

func floats(t *testing.T, text string) []float32 {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
