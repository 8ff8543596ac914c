package semantic

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"strings"
	"testing"
)

// vectors holds what tools/gate_vectors.py wrote: a vector per text, found by the first 8 bytes of its sha256.
type vectors struct {
	dim  int
	rows map[[8]byte][]float32
}

func readVectors(t testing.TB, path string) vectors {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(z)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if len(data) < 16 || string(data[:4]) != "RGV1" || data[4] > 1 {
		t.Fatalf("%s is no file of tools/gate_vectors.py", path)
	}
	small := data[4] == 1
	dim, count := int(binary.LittleEndian.Uint32(data[8:])), int(binary.LittleEndian.Uint32(data[12:]))
	data = data[16:]
	v := vectors{dim: dim, rows: make(map[[8]byte][]float32, count)}
	size := 8 + 4*dim
	if small {
		size = 8 + 4 + dim
	}
	if len(data) != size*count {
		t.Fatalf("%s: %d bytes of rows, want %d", path, len(data), size*count)
	}
	for ; len(data) > 0; data = data[size:] {
		row := make([]float32, dim)
		scale := math.Float32frombits(binary.LittleEndian.Uint32(data[8:]))
		var sum float64
		for i := range row {
			if small {
				row[i] = scale * float32(int8(data[12+i]))
			} else {
				row[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[8+4*i:]))
			}
			sum += float64(row[i]) * float64(row[i])
		}
		for i := range row {
			row[i] /= float32(math.Sqrt(sum))
		}
		v.rows[[8]byte(data[:8])] = row
	}
	return v
}

// fixture is the vectors of the embedded references and of the turns in testdata, held-out ones excepted, by the embedder of the first
// calibration, rounded to 8 bits.
func fixture(t testing.TB) vectors { return readVectors(t, "testdata/vectors.bin.gz") }

func (v vectors) of(t testing.TB, text string) []float32 {
	t.Helper()
	h := sha256.Sum256([]byte(text))
	row := v.rows[[8]byte(h[:8])]
	if row == nil {
		t.Fatalf("no vector for %q: run tools/gate_vectors.py again, as its help says, after changing references or evaluation texts", text)
	}
	return row
}

// index makes an index of a set.
func (v vectors) index(t testing.TB, s *Set) *Index {
	t.Helper()
	flat := make([]float32, 0, len(s.References)*v.dim)
	for _, text := range s.Texts() {
		flat = append(flat, v.of(t, text)...)
	}
	x, err := NewIndex(s, flat, v.dim)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func defaultSet(t testing.TB) *Set {
	t.Helper()
	s, err := Parse(Default())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// message is a row of an evaluation set.
type message struct {
	Text     string `json:"text"`
	Label    string `json:"label"`
	Category string `json:"category"`
	Lang     string `json:"lang"`
	Source   string `json:"source"`
}

func readMessages(t testing.TB, path string) []message {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []message
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var m message
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, m)
	}
	if s.Err() != nil || len(list) == 0 {
		t.Fatalf("%s: %d rows, %v", path, len(list), s.Err())
	}
	return list
}
