package models_test

import (
	"errors"
	"strings"
	"testing"

	"ragate/models"
)

func info(name string, typ models.ElementType, shape ...int64) models.TensorInfo {
	return models.TensorInfo{Name: name, Type: typ, Shape: shape}
}

func bertInputs(typ models.ElementType) []models.TensorInfo {
	return []models.TensorInfo{info("input_ids", typ, -1, -1), info("attention_mask", typ, -1, -1), info("token_type_ids", typ, -1, -1)}
}

func TestCheckIO(t *testing.T) {
	mean := models.Manifest{ID: "m", Kind: models.KindEmbedder, Pooling: models.PoolMean, Dimensions: 384}
	undeclared := models.Manifest{ID: "m", Kind: models.KindEmbedder}
	none := models.Manifest{ID: "m", Kind: models.KindEmbedder, Pooling: models.PoolNone}
	rerank := models.Manifest{ID: "m", Kind: models.KindReranker, Relevant: 1}
	with := func(m models.Manifest, f func(*models.Manifest)) models.Manifest { f(&m); return m }
	in := bertInputs(models.Int64)
	hidden := info("last_hidden_state", models.Float32, -1, -1, 384)
	pooler := info("pooler_output", models.Float32, -1, 384)
	sentence := info("sentence_embedding", models.Float32, -1, 384)
	logits := info("logits", models.Float32, -1, 1)

	for name, c := range map[string]struct {
		m    models.Manifest
		in   []models.TensorInfo
		out  []models.TensorInfo
		want models.Binding // Inputs are compared apart
		says []string       // parts of the error; nil for none
	}{
		"e5: own pooling, although a two-dimensional output comes with it": {
			m: mean, in: in, out: []models.TensorInfo{hidden, info("1654", models.Float32, -1, 384)},
			want: models.Binding{Output: "last_hidden_state", Form: models.FormTokens, Dimensions: 384, Pooling: models.PoolMean}},
		"the order of outputs does not matter": {
			m: mean, in: in, out: []models.TensorInfo{pooler, hidden},
			want: models.Binding{Output: "last_hidden_state", Form: models.FormTokens, Dimensions: 384, Pooling: models.PoolMean}},
		"declared output": {
			m: with(mean, func(m *models.Manifest) { m.Output = "1654" }), in: in, out: []models.TensorInfo{hidden, info("1654", models.Float32, -1, 384)},
			want: models.Binding{Output: "1654", Form: models.FormVector, Dimensions: 384, Pooling: models.PoolNone}},
		"cls": {
			m: with(mean, func(m *models.Manifest) { m.Pooling = models.PoolCLS }), in: in, out: []models.TensorInfo{info("anything", models.Float32, -1, -1, 384)},
			want: models.Binding{Output: "anything", Form: models.FormTokens, Dimensions: 384, Pooling: models.PoolCLS}},
		"a whole pipeline, with its token vectors": {
			m: mean, in: in, out: []models.TensorInfo{info("token_embeddings", models.Float32, -1, -1, 384), sentence},
			want: models.Binding{Output: "token_embeddings", Form: models.FormTokens, Dimensions: 384, Pooling: models.PoolMean}},
		"already pooled, mean declared": {
			m: mean, in: in, out: []models.TensorInfo{sentence},
			want: models.Binding{Output: "sentence_embedding", Form: models.FormVector, Dimensions: 384, Pooling: models.PoolNone}},
		"already pooled, nothing declared": {
			m: undeclared, in: in, out: []models.TensorInfo{info("output_0", models.Float32, -1, 256)},
			want: models.Binding{Output: "output_0", Form: models.FormVector, Dimensions: 256, Pooling: models.PoolNone}},
		"pooling none": {
			m: none, in: in, out: []models.TensorInfo{hidden, pooler, info("vec", models.Float32, -1, 384)},
			want: models.Binding{Output: "vec", Form: models.FormVector, Dimensions: 384, Pooling: models.PoolNone}},
		"dimensions from the files": {
			m: mean, in: in, out: []models.TensorInfo{info("last_hidden_state", models.Float32, -1, -1, -1)},
			want: models.Binding{Output: "last_hidden_state", Form: models.FormTokens, Dimensions: 384, Pooling: models.PoolMean}},
		"layers after the pooling, in the graph": {
			m: with(mean, func(m *models.Manifest) { m.ExtraLayers, m.Dimensions = []string{"Dense"}, 0 }), in: in,
			out:  []models.TensorInfo{info("token_embeddings", models.Float32, -1, -1, 768), info("sentence_embedding", models.Float32, -1, 512)},
			want: models.Binding{Output: "sentence_embedding", Form: models.FormVector, Dimensions: 512, Pooling: models.PoolNone}},
		"one logit": {m: rerank, in: in, out: []models.TensorInfo{logits}, want: models.Binding{Output: "logits", Form: models.FormScores, Columns: 1}},
		"one logit, flat": {m: rerank, in: in, out: []models.TensorInfo{info("scores", models.Float32, -1)},
			want: models.Binding{Output: "scores", Form: models.FormScores, Columns: 1, Flat: true}},
		"two labels": {m: with(rerank, func(m *models.Manifest) { m.Relevant = 0 }), in: in, out: []models.TensorInfo{info("logits", models.Float32, -1, 2)},
			want: models.Binding{Output: "logits", Form: models.FormScores, Columns: 2}},
		"free last axis": {m: with(rerank, func(m *models.Manifest) { m.Labels = 1 }), in: in, out: []models.TensorInfo{info("logits", models.Float32, -1, -1)},
			want: models.Binding{Output: "logits", Form: models.FormScores, Columns: 1}},
		"logits among others": {m: rerank, in: in, out: []models.TensorInfo{info("hidden", models.Float32, -1, 768), logits},
			want: models.Binding{Output: "logits", Form: models.FormScores, Columns: 1}},

		"token vectors of a pooling nobody declared": {m: undeclared, in: in, out: []models.TensorInfo{hidden},
			says: []string{"no file says", "mean, cls, max, last, none", "ragate.json", "last_hidden_state float32[?, ?, 384]"}},
		"only BERT's pooler":                  {m: mean, in: in, out: []models.TensorInfo{pooler}, says: []string{"pooler", "last_hidden_state"}},
		"unknown pooling":                     {m: with(mean, func(m *models.Manifest) { m.Pooling = "weightedmean" }), in: in, out: []models.TensorInfo{hidden}, says: []string{"weightedmean", "mean, cls, max, last, none"}},
		"pooling none and token vectors only": {m: none, in: in, out: []models.TensorInfo{hidden}, says: []string{"declared as none"}},
		"layers after the pooling, not in the graph": {
			m: with(mean, func(m *models.Manifest) { m.ExtraLayers = []string{"Dense"} }), in: in, out: []models.TensorInfo{hidden}, says: []string{"Dense", "whole sentence-transformers pipeline"}},
		"layers after the pooling and an output that need not be theirs": {
			m: with(mean, func(m *models.Manifest) { m.ExtraLayers = []string{"Dense"} }), in: in, out: []models.TensorInfo{hidden, info("1654", models.Float32, -1, 384)}, says: []string{"Dense", "ragate.json"}},
		"half precision":             {m: mean, in: in, out: []models.TensorInfo{info("last_hidden_state", models.Float16, -1, -1, 384)}, says: []string{"no output is usable", "float16"}},
		"declared in half precision": {m: with(mean, func(m *models.Manifest) { m.Output = "x" }), in: in, out: []models.TensorInfo{info("x", models.Float16, -1, -1, 384)}, says: []string{"float16", "float32 can be read"}},
		"declared and absent":        {m: with(mean, func(m *models.Manifest) { m.Output = "x" }), in: in, out: []models.TensorInfo{hidden}, says: []string{`no output "x"`, "last_hidden_state"}},
		"another model's graph":      {m: with(mean, func(m *models.Manifest) { m.Dimensions = 768 }), in: in, out: []models.TensorInfo{hidden}, says: []string{"384", "768"}},
		"unknown dimensions": {m: with(mean, func(m *models.Manifest) { m.Dimensions = 0 }), in: in, out: []models.TensorInfo{info("last_hidden_state", models.Float32, -1, -1, -1)},
			says: []string{"how many dimensions", "ragate.json"}},
		"several token vectors":         {m: mean, in: in, out: []models.TensorInfo{info("a", models.Float32, -1, -1, 384), info("b", models.Float32, -1, -1, 384)}, says: []string{"several outputs", "`output`"}},
		"an embedder asked to rerank":   {m: rerank, in: in, out: []models.TensorInfo{hidden}, says: []string{"no output is usable", "[batch, 1]", "classification head"}},
		"a classifier":                  {m: rerank, in: in, out: []models.TensorInfo{info("logits", models.Float32, -1, 3)}, says: []string{"3 scores per pair"}},
		"two labels of unknown meaning": {m: with(rerank, func(m *models.Manifest) { m.Relevant = -1 }), in: in, out: []models.TensorInfo{info("logits", models.Float32, -1, 2)}, says: []string{"which one means relevant"}},
		"free last axis, no label count": {m: rerank, in: in, out: []models.TensorInfo{info("logits", models.Float32, -1, -1)},
			says: []string{"how many scores"}},
		"kind unknown":      {m: models.Manifest{ID: "m"}, in: in, out: []models.TensorInfo{hidden}, says: []string{"embedder or a reranker"}},
		"no attention mask": {m: mean, in: in[:1], out: []models.TensorInfo{hidden}, says: []string{`no input "attention_mask"`, "input_ids int64[?, ?]"}},
		"no ids":            {m: mean, in: in[1:], out: []models.TensorInfo{hidden}, says: []string{`no input "input_ids"`}},
		"no inputs":         {m: mean, out: []models.TensorInfo{hidden}, says: []string{"inputs: none"}},
		"an input nobody can supply": {m: mean, in: append(bertInputs(models.Int64), info("pixel_values", models.Float32, -1, 3, 224, 224)), out: []models.TensorInfo{hidden},
			says: []string{"pixel_values", "cannot be supplied", "pixel_values float32[?, 3, 224, 224]"}},
		"an input of floats":        {m: mean, in: []models.TensorInfo{in[0], info("attention_mask", models.Float32, -1, -1)}, out: []models.TensorInfo{hidden}, says: []string{"attention_mask", "float32", "int64 and int32"}},
		"an input of another rank":  {m: mean, in: []models.TensorInfo{info("input_ids", models.Int64, -1), in[1]}, out: []models.TensorInfo{hidden}, says: []string{"1 dimensions"}},
		"an input of a fixed shape": {m: mean, in: []models.TensorInfo{info("input_ids", models.Int64, 1, 128), in[1]}, out: []models.TensorInfo{hidden}, says: []string{"fixed shape", "dynamic", "input_ids int64[1, 128]"}},
	} {
		got, err := models.CheckIO(c.m, c.in, c.out)
		if c.says != nil {
			var ioErr *models.IOError
			if !errors.As(err, &ioErr) {
				t.Errorf("%s: %+v, %v", name, got, err)
				continue
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%s: %q does not say %q", name, err, s)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Inputs) != len(c.in) {
			t.Errorf("%s: inputs %+v", name, got.Inputs)
		}
		got.Inputs = nil
		if g, w := got, c.want; g.Output != w.Output || g.Form != w.Form || g.Dimensions != w.Dimensions || g.Pooling != w.Pooling || g.Columns != w.Columns || g.Relevant != w.Relevant || g.Flat != w.Flat {
			t.Errorf("%s: %+v, want %+v", name, g, w)
		}
	}
}

func TestInputsAreSentAsDeclared(t *testing.T) {
	m := models.Manifest{ID: "m", Kind: models.KindReranker}
	b, err := models.CheckIO(m, []models.TensorInfo{
		info("attention_mask", models.Int32, -1, -1), info("position_ids", models.Int64, -1, -1), info("input_ids", models.Int32, -1, -1),
	}, []models.TensorInfo{info("logits", models.Float32, -1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	want := []models.InputBinding{
		{Name: "attention_mask", Role: models.AttentionMask, Type: models.Int32},
		{Name: "position_ids", Role: models.PositionIDs, Type: models.Int64},
		{Name: "input_ids", Role: models.InputIDs, Type: models.Int32},
	}
	for i, w := range want {
		if b.Inputs[i] != w {
			t.Errorf("input %d is %+v, want %+v", i, b.Inputs[i], w)
		}
	}
	if b.Sends(models.TokenTypeIDs) || !b.Sends(models.PositionIDs) {
		t.Error("token types are sent though not declared, or positions are not")
	}
}

// The failure lists everything: a person must see at once what graph it is.
func TestIOErrorListsAllShapes(t *testing.T) {
	in := bertInputs(models.Int64)
	out := []models.TensorInfo{info("a", models.Float16, -1, 2), info("b", models.Int64, 4)}
	_, err := models.CheckIO(models.Manifest{ID: "org/name", Kind: models.KindReranker, GraphPath: "/x/model.onnx"}, in, out)
	for _, s := range []string{"org/name", "/x/model.onnx", "input_ids int64[?, ?]", "attention_mask int64[?, ?]", "token_type_ids int64[?, ?]", "a float16[?, 2]", "b int64[4]"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
}
