package inference

// Models of the XLM-R family as the hub has them, in small: positions that the graph counts by the padding id, weights in a second file
// behind a link, up to 8,192 tokens.

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ragate/inference/ort"
	"ragate/internal/testenv"
	"ragate/models"
	"ragate/models/onnxpb"
)

// tinyXLMR is one attention layer over the sum of word and position rows, of tinyWidth floats.
type tinyXLMR struct {
	words, positions []float32
	pad              int
}

const (
	tinyWidth     = 8
	tinyWords     = 30522 // the vocabulary of the tokenizer it borrows
	tinyAttention = 0.25  // what logits are multiplied by
)

func newTinyXLMR(positions, pad int) tinyXLMR {
	r := rand.New(rand.NewPCG(3, uint64(positions)))
	fill := func(rows int) []float32 {
		v := make([]float32, rows*tinyWidth)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	return tinyXLMR{words: fill(tinyWords), positions: fill(positions), pad: pad}
}

// write makes a model folder as the hub's cache has it: every file a link into another folder. kind decides the head.
func (x tinyXLMR) write(t *testing.T, kind models.Kind) string {
	t.Helper()
	raw := func(v []float32) (b []byte) {
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	ints := func(name string, v int64, dims ...int64) *onnxpb.Tensor {
		return onnxpb.NewTensor(name, onnxpb.Int64, dims, binary.LittleEndian.AppendUint64(nil, uint64(v)))
	}
	list := func(name string, v ...int64) *onnxpb.Tensor {
		var b []byte
		for _, i := range v {
			b = binary.LittleEndian.AppendUint64(b, uint64(i))
		}
		return onnxpb.NewTensor(name, onnxpb.Int64, []int64{int64(len(v))}, b)
	}
	float := func(name string, v float32) *onnxpb.Tensor {
		return onnxpb.NewTensor(name, onnxpb.Float32, nil, raw([]float32{v}))
	}
	g := onnxpb.NewGraph("tiny")
	op := func(name, op string, inputs []string, attrs ...onnxpb.Attr) {
		g.Nodes = append(g.Nodes, onnxpb.NewNode(name, op, inputs, []string{name}, attrs...))
	}
	words := raw(x.words)
	g.Initializers = []*onnxpb.Tensor{
		onnxpb.NewExternalTensor("words", onnxpb.Float32, []int64{tinyWords, tinyWidth}, onnxpb.External{Location: "model.onnx_data", Length: int64(len(words))}),
		onnxpb.NewTensor("position_embeddings", onnxpb.Float32, []int64{int64(len(x.positions) / tinyWidth), tinyWidth}, raw(x.positions)),
		ints("pad", int64(x.pad)), ints("one", 1), list("mask_shape", 0, 1, 1, -1), list("as_head", 0, 1, -1, tinyWidth), list("joined", 0, -1, tinyWidth), float("scale", tinyAttention), float("one_f", 1), float("far", -1e4),
	}
	batch, sequence := onnxpb.Dim{Size: -1, Param: "batch"}, onnxpb.Dim{Size: -1, Param: "sequence"}
	g.Inputs = []*onnxpb.ValueInfo{onnxpb.NewValueInfo("input_ids", onnxpb.Int64, batch, sequence), onnxpb.NewValueInfo("attention_mask", onnxpb.Int64, batch, sequence)}
	op("is_pad", "Equal", []string{"input_ids", "pad"})
	op("is_token", "Not", []string{"is_pad"})
	op("tokens", "Cast", []string{"is_token"}, onnxpb.IntAttr("to", int64(onnxpb.Int64)))
	op("count", "CumSum", []string{"tokens", "one"})
	op("counted", "Mul", []string{"count", "tokens"})
	op("place", "Add", []string{"counted", "pad"})
	op("word", "Gather", []string{"words", "input_ids"})
	op("position", "Gather", []string{"position_embeddings", "place"})
	op("sum", "Add", []string{"word", "position"})
	op("x", "Reshape", []string{"sum", "as_head"}) // [batch, 1, sequence, width], as graphs with several heads have it
	op("mask_row", "Reshape", []string{"attention_mask", "mask_shape"})
	op("mask_f", "Cast", []string{"mask_row"}, onnxpb.IntAttr("to", int64(onnxpb.Float32)))
	op("unmask", "Sub", []string{"one_f", "mask_f"})
	op("bias", "Mul", []string{"unmask", "far"})
	op("xt", "Transpose", []string{"x"}, onnxpb.IntsAttr("perm", 0, 1, 3, 2))
	op("products", "MatMul", []string{"x", "xt"})
	op("scaled", "Mul", []string{"products", "scale"})
	op("masked", "Add", []string{"scaled", "bias"})
	op("weights", "Softmax", []string{"masked"}, onnxpb.IntAttr("axis", -1))
	op("mixed", "MatMul", []string{"weights", "x"})
	op("last_hidden_state", "Reshape", []string{"mixed", "joined"})
	config := `{"model_type":"bert","architectures":["BertModel"],"hidden_size":8`
	if kind == models.KindReranker {
		g.Initializers = append(g.Initializers, ints("first", 0),
			onnxpb.NewTensor("classifier", onnxpb.Float32, []int64{tinyWidth, 1}, raw([]float32{1, -1, 1, -1, 1, -1, 1, -1})))
		op("cls", "Gather", []string{"last_hidden_state", "first"}, onnxpb.IntAttr("axis", 1))
		op("logits", "MatMul", []string{"cls", "classifier"})
		g.Outputs = []*onnxpb.ValueInfo{onnxpb.NewValueInfo("logits", onnxpb.Float32, batch, onnxpb.Dim{Size: 1})}
		config = `{"model_type":"bert","architectures":["BertForSequenceClassification"],"id2label":{"0":"LABEL_0"}`
	} else {
		g.Outputs = []*onnxpb.ValueInfo{onnxpb.NewValueInfo("last_hidden_state", onnxpb.Float32, batch, sequence, onnxpb.Dim{Size: tinyWidth})}
	}
	model, err := onnxpb.NewModel("test", 8, 17, g).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := os.ReadFile(filepath.Join(testenv.Store(t), "models", "intfloat--e5-small-v2", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, dir := t.TempDir(), t.TempDir()
	for name, content := range map[string][]byte{
		"model.onnx": model, "model.onnx_data": words, "tokenizer.json": tokenizer, "tokenizer_config.json": []byte(`{"model_max_length":8192}`),
		"config.json": []byte(config + `}`), "1_Pooling/config.json": []byte(`{"pooling_mode_mean_tokens":true}`),
	} {
		blob, link := filepath.Join(blobs, strings.ReplaceAll(name, "/", "-")), filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(blob, content, 0o644), os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(blob, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hidden is the model's answer, token by token, computed here in float64.
func (x tinyXLMR) hidden(ids []int32) [][]float64 {
	in := make([][]float64, len(ids))
	place := x.pad
	for i, id := range ids {
		place++
		in[i] = make([]float64, tinyWidth)
		for k := range in[i] {
			in[i][k] = float64(x.words[int(id)*tinyWidth+k] + x.positions[place*tinyWidth+k])
		}
	}
	out := make([][]float64, len(ids))
	logits := make([]float64, len(ids))
	for i := range in {
		most := math.Inf(-1)
		for j := range in {
			logits[j] = 0
			for k := range tinyWidth {
				logits[j] += in[i][k] * in[j][k]
			}
			logits[j] *= tinyAttention
			most = max(most, logits[j])
		}
		out[i] = make([]float64, tinyWidth)
		sum := 0.0
		for j := range in {
			w := math.Exp(logits[j] - most)
			sum += w
			for k := range tinyWidth {
				out[i][k] += w * in[j][k]
			}
		}
		for k := range tinyWidth {
			out[i][k] /= sum
		}
	}
	return out
}

// vector is the mean of hidden, of length 1.
func (x tinyXLMR) vector(ids []int32) []float64 {
	v := make([]float64, tinyWidth)
	for _, h := range x.hidden(ids) {
		for k := range v {
			v[k] += h[k]
		}
	}
	norm := 0.0
	for _, f := range v {
		norm += f * f
	}
	for k := range v {
		v[k] /= math.Sqrt(norm)
	}
	return v
}

func tinyEngine(t *testing.T, set Settings, load func(e *Engine) error) {
	t.Helper()
	e := NewEngine(EngineConfig{Runtime: openRuntime(t), CacheDir: t.TempDir(), Machine: ThisMachine(), Memory: memory{}})
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := load(e); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func resolved(t *testing.T, dir string) models.Manifest {
	t.Helper()
	m, err := (&models.Store{Dir: t.TempDir()}).Resolve(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// oneTokenWords is a text of n words that are one token each.
func oneTokenWords(n int, r *rand.Rand) string {
	list := []string{"the", "harbor", "of", "a", "city", "and", "river", "water", "light", "music", "green", "stone", "paper", "house", "winter"}
	out := make([]string, n)
	for i := range out {
		out[i] = list[r.IntN(len(list))]
	}
	return strings.Join(out, " ")
}

func TestLongTexts(t *testing.T) {
	const most = 8192
	x := newTinyXLMR(most+2, 0)
	m := resolved(t, x.write(t, models.KindEmbedder))
	if m.MaxTokens != most || len(m.ExternalData) != 1 {
		t.Fatalf("%d tokens, %q", m.MaxTokens, m.ExternalData)
	}
	r := rand.New(rand.NewPCG(1, 1))
	lengths := []int{1, 3, 14, 15, 40, 200, 513, 1500, 9000, 8190}
	var texts []string
	for _, n := range lengths {
		texts = append(texts, oneTokenWords(n, r))
	}
	wants := make([][]float64, len(texts))
	for _, provider := range []ort.Provider{ort.CPU, ort.OpenVINO} {
		t.Run(string(provider), func(t *testing.T) {
			var emb *Model
			tinyEngine(t, Settings{}, func(e *Engine) (err error) {
				emb, err = e.LoadEmbedder(t.Context(), m, Settings{Provider: provider, Precision: FP32, Streams: 1, Threads: 2})
				return err
			})
			ids := func(text string) []int32 {
				all := emb.core.tokenizer.AppendIDs(nil, text)
				return append(append([]int32{101}, all[:min(len(all), most-2)]...), 102)
			}
			together, err := emb.Embed(t.Context(), EmbedRequest{Texts: texts})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(together.Usage.Cut, []int{8}) || together.Usage.Tokens != 3+5+16+17+42+202+515+1502+most+most {
				t.Errorf("usage is %+v", together.Usage)
			}
			for i, text := range texts {
				alone, err := emb.Embed(t.Context(), EmbedRequest{Texts: []string{text}})
				if err != nil {
					t.Fatal(err)
				}
				if i == len(texts)-1 {
					break // the one before is as long, and a reference of 8,192 × 8,192 takes its time
				}
				if wants[i] == nil {
					wants[i] = x.vector(ids(text))
				}
				for k, w := range wants[i] {
					if a, b := float64(alone.Row(0)[k]), float64(together.Row(i)[k]); math.Abs(a-w) > 1e-4 || math.Abs(b-w) > 1e-4 {
						t.Errorf("%d words: dimension %d is %g alone and %g in company, not %g", lengths[i], k, a, b, w)
						break
					}
				}
			}
			var long *TooLongError
			if _, err := emb.Embed(t.Context(), EmbedRequest{Texts: texts[8:9], Truncation: Truncation{Refuse: true}}); !errors.As(err, &long) || long.Limit != most || long.Tokens != 9002 {
				t.Errorf("refusing a text of 9000 words: %v", err)
			}
		})
	}
}

// A document of 20,000 words in windows of all that 8,192 tokens leave beside the query: the best of them is its score.
func TestLongDocuments(t *testing.T) {
	const most = 8192
	x := newTinyXLMR(most+2, 0)
	m := resolved(t, x.write(t, models.KindReranker))
	var rr *Model
	tinyEngine(t, Settings{}, func(e *Engine) (err error) {
		rr, err = e.LoadReranker(t.Context(), m, Settings{Provider: ort.CPU, Streams: 1, Threads: 2})
		return err
	})
	r := rand.New(rand.NewPCG(2, 1))
	query, docs := "winter light on green water", []string{oneTokenWords(20_000, r), oneTokenWords(30, r), oneTokenWords(8_000, r)}
	scores, err := rr.Rerank(t.Context(), RerankRequest{Query: query, Documents: docs, Windows: true, Measure: true})
	if err != nil {
		t.Fatal(err)
	}
	q := rr.core.tokenizer.AppendIDs(nil, query)
	logit := func(doc []int32) float64 {
		row := append(append([]int32{101}, q...), 102)
		row = append(append(row, doc...), 102)
		return x.first(row)
	}
	room := most - 3 - len(q)
	for i, doc := range docs {
		ids := rr.core.tokenizer.AppendIDs(nil, doc)
		best := math.Inf(-1)
		if len(ids) <= room {
			best = logit(ids)
		} else {
			w := windows{room: room}
			for n, end := 0, 0; end < len(ids); n++ {
				at := w.from(n, len(ids))
				end = at + room
				best = max(best, logit(ids[at:end]))
			}
		}
		if got := float64(scores.Logits[i]); math.Abs(got-best) > 1e-3 {
			t.Errorf("document %d has the logit %g, not %g", i, got, best)
		}
	}
	if len(scores.Usage.Cut) != 0 {
		t.Errorf("cut: %v", scores.Usage.Cut)
	}
}

// first is the reranker's logit: of the first token's row only, so that long rows are cheap to check.
func (x tinyXLMR) first(ids []int32) float64 {
	in := make([][]float64, len(ids))
	for i, id := range ids {
		in[i] = make([]float64, tinyWidth)
		for k := range in[i] {
			in[i][k] = float64(x.words[int(id)*tinyWidth+k] + x.positions[(x.pad+1+i)*tinyWidth+k])
		}
	}
	most, sum, logit := math.Inf(-1), 0.0, 0.0
	products := make([]float64, len(ids))
	for j := range in {
		for k := range tinyWidth {
			products[j] += in[0][k] * in[j][k] * tinyAttention
		}
		most = max(most, products[j])
	}
	for j := range in {
		w := math.Exp(products[j] - most)
		sum += w
		for k := range tinyWidth {
			logit += w * in[j][k] * float64(1-2*(k%2))
		}
	}
	return logit / sum
}
