//go:build multilingual

package tokenize

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"ragate/internal/testenv"
)

// multilingualModel is the folder of multilingual-e5-small in the store, which `make setup-multilingual` fills.
const multilingualModel = "models/intfloat--multilingual-e5-small"

func multilingualFile(tb testing.TB) (path string, b []byte) {
	tb.Helper()
	path = filepath.Join(testenv.Store(tb), multilingualModel, "tokenizer.json")
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("run `make setup-multilingual` first: %v", err)
	}
	return path, b
}

// The 250,002 pieces of multilingual-e5 against Hugging Face tokenizers, which runs beside: texts in some forty scripts, random ones,
// every code point up to U+1FFFF in three places, all of Cranfield, and pairs that are too long.
func TestMultilingualTokens(t *testing.T) {
	path, source := multilingualFile(t)
	tk, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	if tk.VocabSize() != 250002 || tk.PadID() != 1 || !tk.sp.fast {
		t.Fatalf("%d tokens, padding %d, fast %v", tk.VocabSize(), tk.PadID(), tk.sp.fast)
	}
	t.Logf("the model takes %.1f MB, its character map %.1f MB", float64(tk.sp.model.Bytes())/1e6, float64(tk.sp.chars.Bytes())/1e6)
	passages := filepath.Join(t.TempDir(), "cranfield.json")
	b, err := json.Marshal(cranfield(t))
	if err == nil {
		err = os.WriteFile(passages, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(testenv.ModuleRoot(t), "tools", "golden_unigram.py"), "live", "--tokenizer", path, "--texts", passages)
	packages := filepath.Join(testenv.Store(t), "python")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "TOKENIZERS_PARALLELISM=false", "PYTHONIOENCODING=utf-8")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("python3: %v", err)
	}
	escaping := tk.EscapeSpecial()
	counts := map[string]int{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c struct {
			Kind string
			textCase
			cutCase
		}
		var kind struct{ Kind string }
		if err := json.Unmarshal(lines.Bytes(), &kind); err != nil {
			t.Fatal(err)
		}
		counts[kind.Kind]++
		if kind.Kind == "cuts" {
			if err := json.Unmarshal(lines.Bytes(), &c.cutCase); err != nil {
				t.Fatal(err)
			}
			runCut(t, tk, c.cutCase)
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &c.textCase); err != nil {
			t.Fatal(err)
		}
		runText(t, tk, escaping, c.textCase)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the reference did not finish (install its packages with `make setup-reference`): %v", err)
	}
	t.Logf("cases: %v", counts)
	for kind, least := range map[string]int{"texts": 6500, "points": 129024, "inside": 129024, "accented": 129024, "cranfield": 1600, "cuts": 5000} {
		if counts[kind] < least {
			t.Errorf("%d cases of %s, want at least %d", counts[kind], kind, least)
		}
	}
}

// What a tokenizer keeps in memory is its pieces, not the file.
func TestMultilingualMemory(t *testing.T) {
	_, source := multilingualFile(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tk, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	const most = 20 << 20
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > most {
		t.Errorf("%d bytes are kept, want at most %d", kept, most)
	} else {
		t.Logf("%.1f MB are kept", float64(kept)/1e6)
	}
	runtime.KeepAlive(tk)
	runtime.KeepAlive(source)
}

func BenchmarkMultilingual(b *testing.B) {
	_, source := multilingualFile(b)
	tk, err := Parse(source)
	if err != nil {
		b.Fatal(err)
	}
	mixed := mixedTexts(b)
	b.Run("AppendIDs", func(b *testing.B) { benchmarkTexts(b, mixed, tk.AppendIDs) })
	b.Run("Encode", func(b *testing.B) {
		benchmarkTexts(b, mixed, func(_ []int32, text string) []int32 {
			e, err := tk.Encode(text, Options{MaxTokens: 512})
			if err != nil {
				b.Fatal(err)
			}
			return e.IDs
		})
	})
	b.Run("Parse", func(b *testing.B) {
		b.SetBytes(int64(len(source)))
		for b.Loop() {
			if _, err := Parse(source); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// mixedTexts are those of a list in a JSON file that RAGATE_BENCH_TEXTS names, as tools/bench_tokenizer.py does; else those of Cranfield.
func mixedTexts(b *testing.B) []string {
	texts := cranfield(b)
	if path := os.Getenv("RAGATE_BENCH_TEXTS"); path != "" {
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &texts)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return texts
}
