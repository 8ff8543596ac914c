// Package multilingual holds what tests of the packaged multilingual model compare with: texts in 22 languages with their token ids and
// vectors, computed in float32 by tools/multilingual_vectors.py from the package's own weights, without any code of this project.
package multilingual

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

//go:embed testdata/vectors.jsonl
var vectors []byte

// Text is one text and what the model makes of it.
type Text struct {
	Language string
	Prompt   string // query or passage; its prefix is not in Text, but in IDs
	Text     string
	IDs      []int32   // with the special tokens, cut at 512
	Vector   []float32 // of length 1
}

// Texts are all of them. They are at least 30, in at least 20 languages.
func Texts(t testing.TB) []Text {
	t.Helper()
	var out []Text
	languages := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(vectors))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Text
			Vector string
		}
		raw, err := []byte(nil), json.Unmarshal(lines.Bytes(), &line)
		if err == nil {
			raw, err = base64.StdEncoding.DecodeString(line.Vector)
		}
		if err == nil && len(raw) != 4*384 {
			err = fmt.Errorf("a vector of %d bytes", len(raw))
		}
		if err != nil {
			t.Fatalf("multilingual: line %d: %v", len(out)+1, err)
		}
		for i := range 384 {
			line.Text.Vector = append(line.Text.Vector, math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		languages[line.Language] = true
		out = append(out, line.Text)
	}
	if err := lines.Err(); err != nil || len(out) < 30 || len(languages) < 20 {
		t.Fatalf("multilingual: %d texts in %d languages: %v", len(out), len(languages), err)
	}
	return out
}
