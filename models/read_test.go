package models_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ragate/internal/hubtest"
	"ragate/models"
)

// folder writes files (path, content, …) into a new folder; model.onnx and tokenizer.json are added unless given ("-" leaves one out).
func folder(t *testing.T, pairs ...string) string {
	t.Helper()
	content := map[string]string{"model.onnx": string(hubtest.ONNX(4, "")), "tokenizer.json": `{"truncation":{"max_length":128},"model":{}}`}
	for i := 0; i < len(pairs); i += 2 {
		content[pairs[i]] = pairs[i+1]
	}
	dir := t.TempDir()
	for p, c := range content {
		if c == "-" {
			continue
		}
		full := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(c), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func resolve(t *testing.T, ref string) (models.Manifest, error) {
	t.Helper()
	return (&models.Store{Dir: t.TempDir()}).Resolve(t.Context(), ref)
}

const (
	modulesST    = `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`
	modulesPlain = `[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`
	modulesDense = `[{"path":"0_Transformer","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"path":"2_Dense","type":"sentence_transformers.models.Dense"}]`
	poolMean     = `{"word_embedding_dimension":384,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":false,"pooling_mode_mean_sqrt_len_tokens":false}`
	poolCLS      = `{"word_embedding_dimension":1024,"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false,"include_prompt":true}`
)

func TestManifestFromTheModelsOwnFiles(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		check func(m models.Manifest) string // "" when right
	}{
		"all-MiniLM: 128 is baked into tokenizer.json, 512 in the tokenizer's settings, and 256 counts": {
			[]string{"config.json", `{"model_type":"bert","architectures":["BertModel"],"hidden_size":384,"max_position_embeddings":512}`,
				"tokenizer_config.json", `{"model_max_length":512,"do_lower_case":true}`, "modules.json", modulesST, "1_Pooling/config.json", poolMean,
				"sentence_bert_config.json", `{"max_seq_length":256,"do_lower_case":false}`},
			func(m models.Manifest) string {
				return differ("kind", m.Kind, models.KindEmbedder, "tokens", m.MaxTokens, 256, "pooling", m.Pooling, models.PoolMean, "normalize", m.Normalize, true,
					"dimensions", m.Dimensions, 384, "type", m.ModelType, "bert", "notes", len(m.Notes), 0, "prompts", len(m.Prompts), 0)
			}},
		"positions of RoBERTa's family start at 2": {
			[]string{"config.json", `{"model_type":"xlm-roberta","architectures":["XLMRobertaModel"],"hidden_size":1024,"num_attention_heads":16,"max_position_embeddings":8194}`,
				"tokenizer_config.json", `{"model_max_length":1000000000000000019884624838656}`, "1_Pooling/config.json", poolCLS},
			func(m models.Manifest) string {
				return differ("tokens", m.MaxTokens, 8192, "heads", m.Heads, 16, "pooling", m.Pooling, models.PoolCLS, "dimensions", m.Dimensions, 1024)
			}},
		"mpnet too, and the tokenizer says less than the positions": {
			[]string{"config.json", `{"model_type":"mpnet","architectures":["MPNetModel"],"max_position_embeddings":514}`, "tokenizer_config.json", `{"model_max_length":384}`, "1_Pooling/config.json", poolMean},
			func(m models.Manifest) string { return differ("tokens", m.MaxTokens, 384) }},
		"the position table bounds what sentence-transformers says": {
			[]string{"config.json", `{"model_type":"roberta","architectures":["RobertaModel"],"max_position_embeddings":514}`, "modules.json", modulesST, "1_Pooling/config.json", poolMean, "sentence_roberta_config.json", `{"max_seq_length":1024}`},
			func(m models.Manifest) string { return differ("tokens", m.MaxTokens, 512) }},
		"a null limit is none": {
			[]string{"config.json", `{"model_type":"bert","architectures":["BertModel"],"max_position_embeddings":512}`, "sentence_bert_config.json", `{"max_seq_length":null}`, "1_Pooling/config.json", poolMean},
			func(m models.Manifest) string { return differ("tokens", m.MaxTokens, 512) }},
		"no Normalize module: vectors stay as they are": {
			[]string{"modules.json", modulesPlain, "1_Pooling/config.json", poolMean},
			func(m models.Manifest) string {
				return differ("normalize", m.Normalize, false, "kind", m.Kind, models.KindEmbedder)
			}},
		"a Dense layer after the pooling": {
			[]string{"modules.json", modulesDense, "1_Pooling/config.json", poolMean, "0_Transformer/config.json", `{"model_type":"distilbert","dim":768,"n_heads":12,"max_position_embeddings":512}`,
				"0_Transformer/tokenizer.json", "{}", "tokenizer.json", "-", "0_Transformer/sentence_distilbert_config.json", `{"max_seq_length":128}`},
			func(m models.Manifest) string {
				return differ("layers", fmt.Sprint(m.ExtraLayers), "[Dense]", "dimensions", m.Dimensions, 0, "heads", m.Heads, 12, "tokens", m.MaxTokens, 128, "tokenizer", filepath.Base(filepath.Dir(m.TokenizerPath)), "0_Transformer", "type", m.ModelType, "distilbert")
			}},
		"prompts": {
			[]string{"config_sentence_transformers.json", `{"prompts":{"query":"Represent this: ","document":""},"default_prompt_name":null}`, "1_Pooling/config.json", poolMean},
			func(m models.Manifest) string {
				return differ("query", m.Prompts["query"], "Represent this: ", "document", fmt.Sprint(m.Prompts["document"]), "", "names", len(m.Prompts), 3)
			}},
		"a document prompt is the passage prompt": {
			[]string{"config_sentence_transformers.json", `{"prompts":{"query":"q: ","document":"d: "}}`},
			func(m models.Manifest) string { return differ("passage", m.Prompts["passage"], "d: ") }},
		"pooling in its newer spelling": {
			[]string{"1_Pooling/config.json", `{"word_embedding_dimension":8,"pooling_mode":"lasttoken"}`},
			func(m models.Manifest) string { return differ("pooling", m.Pooling, models.PoolLast) }},
		"a cross-encoder": {
			[]string{"config.json", `{"model_type":"bert","architectures":["BertForSequenceClassification"],"hidden_size":384,"id2label":{"0":"LABEL_0"},"max_position_embeddings":512}`},
			func(m models.Manifest) string {
				return differ("kind", m.Kind, models.KindReranker, "labels", m.Labels, 1, "dimensions", m.Dimensions, 0, "tokens", m.MaxTokens, 512)
			}},
		"two labels without names": {
			[]string{"config.json", `{"architectures":["BertForSequenceClassification"],"num_labels":2}`},
			func(m models.Manifest) string { return differ("labels", m.Labels, 2, "relevant", m.Relevant, 1) }},
		"two labels with names": {
			[]string{"config.json", `{"architectures":["BertForSequenceClassification"],"id2label":{"0":"Relevant","1":"irrelevant"}}`},
			func(m models.Manifest) string { return differ("labels", m.Labels, 2, "relevant", m.Relevant, 0) }},
		"two labels whose names do not tell": {
			[]string{"config.json", `{"architectures":["BertForSequenceClassification"],"id2label":{"0":"spam","1":"ham"}}`},
			func(m models.Manifest) string { return differ("labels", m.Labels, 2, "relevant", m.Relevant, -1) }},
		"nothing but the graph and the tokenizer": {
			nil,
			func(m models.Manifest) string {
				return differ("kind", m.Kind, models.KindUnknown, "tokens", m.MaxTokens, models.DefaultMaxTokens, "pooling", m.Pooling, models.PoolUndeclared, "notes", len(m.Notes), 2,
					"dtype", m.DType, "float32", "dynamic", m.Dynamic, false, "source", m.Source, models.SourceLocal)
			}},
		"the user's declarations win": {
			[]string{"config.json", `{"model_type":"bert","architectures":["BertModel"],"hidden_size":384}`, "1_Pooling/config.json", `{"pooling_mode_weightedmean_tokens":true}`,
				"ragate.json", `{"kind":"embedder","pooling":"mean","normalize":false,"max_tokens":100,"dimensions":12,"prompts":{"query":"x "},"output":"vec"}`},
			func(m models.Manifest) string {
				return differ("pooling", m.Pooling, models.PoolMean, "normalize", m.Normalize, false, "tokens", m.MaxTokens, 100, "dimensions", m.Dimensions, 12, "query", m.Prompts["query"], "x ", "output", m.Output, "vec")
			}},
	} {
		m, err := resolve(t, folder(t, c.files...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if wrong := c.check(m); wrong != "" {
			t.Errorf("%s: %s\n%+v", name, wrong, m)
		}
	}
}

// differ compares name, got, want triples.
func differ(triples ...any) string {
	var out []string
	for i := 0; i < len(triples); i += 3 {
		if triples[i+1] != triples[i+2] {
			out = append(out, fmt.Sprintf("%v is %v, want %v", triples[i], triples[i+1], triples[i+2]))
		}
	}
	return strings.Join(out, "; ")
}

func TestFoldersThatCannotBeLoaded(t *testing.T) {
	onnx := string(hubtest.ONNX(4, ""))
	for name, c := range map[string]struct {
		files []string
		says  []string
	}{
		"unknown pooling":                        {[]string{"1_Pooling/config.json", `{"pooling_mode_weightedmean_tokens":true}`}, []string{"weightedmean_tokens", "mean, cls, max, last, none", "1_Pooling"}},
		"concatenated pooling":                   {[]string{"1_Pooling/config.json", `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`}, []string{"pooling_mode_cls_token, pooling_mode_mean_tokens", "not supported"}},
		"no pooling":                             {[]string{"1_Pooling/config.json", `{}`}, []string{"no pooling", "mean, cls, max, last, none"}},
		"prompt left out":                        {[]string{"1_Pooling/config.json", `{"pooling_mode_mean_tokens":true,"include_prompt":false}`}, []string{"include_prompt"}},
		"pooling file missing":                   {[]string{"modules.json", modulesST}, []string{"1_Pooling/config.json", "not there"}},
		"a SentencePiece file of another family": {[]string{"tokenizer.json", "-", "sentencepiece.bpe.model", "x", "config.json", `{"model_type":"camembert"}`}, []string{"sentencepiece.bpe.model", "XLMRobertaTokenizer", `model_type "camembert"`, "save_pretrained"}},
		"the class wins over the architecture":   {[]string{"tokenizer.json", "-", "sentencepiece.bpe.model", "x", "config.json", `{"model_type":"xlm-roberta"}`, "tokenizer_config.json", `{"tokenizer_class":"CamembertTokenizer"}`}, []string{`tokenizer_class is "CamembertTokenizer"`}},
		"no tokenizer":                           {[]string{"tokenizer.json", "-"}, []string{"no tokenizer.json", "save_pretrained"}},
		"no graph":                               {[]string{"model.onnx", "-"}, []string{"no ONNX file"}},
		"several graphs":                         {[]string{"model.onnx", "-", "a.onnx", onnx, "b.onnx", onnx}, []string{"a.onnx, b.onnx", ":a.onnx"}},
		"not a graph":                            {[]string{"model.onnx", "<html>"}, []string{"graph cannot be read", "model.onnx"}},
		"empty graph":                            {[]string{"model.onnx", ""}, []string{"0 bytes"}},
		"weights missing":                        {[]string{"model.onnx", string(hubtest.ONNX(4, "model.onnx_data"))}, []string{"model.onnx_data", "not there"}},
		"weights elsewhere":                      {[]string{"model.onnx", string(hubtest.ONNX(4, "../../etc/passwd"))}, []string{"etc/passwd", "not a path"}},
		"malformed config":                       {[]string{"config.json", `{"hidden_size":"many"}`}, []string{"config.json", "hidden_size"}},
		"misspelt declaration":                   {[]string{"ragate.json", `{"poling":"mean"}`}, []string{"ragate.json", "poling"}},
		"impossible declarations":                {[]string{"ragate.json", `{"kind":"classifier","pooling":"sum","max_tokens":0,"dimensions":-1,"labels":0,"relevant":3}`}, []string{"kind", "classifier", "pooling", "sum", "max_tokens", "dimensions", "labels", "relevant"}},
	} {
		_, err := resolve(t, folder(t, c.files...))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, err, s)
			}
		}
	}
}

func TestWhichGraph(t *testing.T) {
	one, two := string(hubtest.ONNX(4, "")), string(hubtest.ONNX(5, ""))
	dir := folder(t, "model.onnx", one, "onnx/model.onnx", two, "onnx/model_int8.onnx", one)
	for ref, want := range map[string]string{
		dir:                                 "onnx/model.onnx",
		filepath.Join(dir, "model.onnx"):    "model.onnx",
		filepath.Join(dir, "onnx") + "/../": "onnx/model.onnx",
	} {
		m, err := resolve(t, ref)
		if err != nil || m.GraphPath != filepath.Join(dir, want) {
			t.Errorf("%s: %s, %v", ref, m.GraphPath, err)
			continue
		}
		b, err := os.ReadFile(m.GraphPath)
		if err != nil || m.GraphSHA256 != hubtest.SHA256(b) {
			t.Errorf("%s: sha256 is %s (%v)", ref, m.GraphSHA256, err)
		}
	}
	// External data is found by what the graph says.
	dir = folder(t, "model.onnx", string(hubtest.ONNX(4, "weights.bin")), "weights.bin", strings.Repeat("x", 16))
	m, err := resolve(t, dir)
	if err != nil || !slices.Equal(m.ExternalData, []string{filepath.Join(dir, "weights.bin")}) {
		t.Errorf("external data: %q, %v", m.ExternalData, err)
	}
	if m.ID != filepath.Base(dir) || m.Created.IsZero() {
		t.Errorf("%+v", m)
	}
}

func TestReferences(t *testing.T) {
	for ref, says := range map[string]string{
		"":                      "empty",
		"no-such-model":         "unknown",
		"./none":                "no such folder",
		"/none/at/all":          "no such folder",
		"a/b/c":                 "unknown",
		"org/name@":             "revision",
		"org/name:file.txt":     ".onnx",
		"e5-small-v2:file":      ".onnx",
		"intfloat/e5-small-v2@": "revision",
	} {
		_, err := resolve(t, ref)
		var refErr *models.ReferenceError
		if !errors.As(err, &refErr) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), models.DefaultEmbedder) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	// Well-formed, and not here.
	for _, ref := range []string{"e5-small-v2", "E5-Small-V2", "org/name", "org/name@v1:model.onnx", "all-MiniLM-L6-v2", "intfloat/e5-small-v2@main", "intfloat/e5-small-v2@refs/pr/3"} {
		_, err := resolve(t, ref)
		var absent *models.NotPresentError
		if !errors.As(err, &absent) || !strings.Contains(err.Error(), "ragate models pull "+ref) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestAs(t *testing.T) {
	unknown := models.Manifest{ID: "m"}
	m, err := unknown.As(models.KindReranker)
	if err != nil || m.Kind != models.KindReranker || len(m.Notes) != 1 || len(unknown.Notes) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := m.As(models.KindReranker); err != nil {
		t.Error(err)
	}
	var load *models.LoadError
	if _, err := m.As(models.KindEmbedder); !errors.As(err, &load) || !strings.Contains(err.Error(), "reranker") || !strings.Contains(err.Error(), "embedder") {
		t.Errorf("error is %v", err)
	}
}

func TestCatalogue(t *testing.T) {
	names := map[string]string{}
	for _, e := range models.Catalogue() {
		for _, n := range append([]string{e.ID}, e.Aliases...) {
			if other, ok := names[strings.ToLower(n)]; ok {
				t.Errorf("%q names %s and %s", n, other, e.ID)
			}
			names[strings.ToLower(n)] = e.ID
		}
		if e.Kind == models.KindUnknown || e.MaxTokens == 0 || e.License == "" || (e.Kind == models.KindEmbedder) != (e.Dimensions > 0 && e.Pooling != "") {
			t.Errorf("%s: incomplete: %+v", e.ID, e)
		}
		// Of a model of the hub, the hub says the date.
		if e.Package != nil && (len(e.Package.Wheel.SHA256) != 64 || e.Created.IsZero() || (e.Package.Convert == nil) != (len(e.Package.Source) == 0)) {
			t.Errorf("%s: not pinned", e.ID)
		}
		if e.Package == nil && (e.HubFile == "") == (e.Elsewhere == "") {
			t.Errorf("%s: the file to take is %q, elsewhere %q", e.ID, e.HubFile, e.Elsewhere)
		}
	}
	for _, n := range []string{"e5-small-v2", "intfloat/e5-small-v2", "ms-marco-minilm-l-12-v2", "cross-encoder/ms-marco-minilm-l-12-v2", "cross-encoder/ms-marco-minilm-l12-v2", "cross-encoder/ms-marco-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2",
		"multilingual-e5-small", "intfloat/multilingual-e5-base", "intfloat/multilingual-e5-large", "bge-m3", "baai/bge-reranker-v2-m3", "jinaai/jina-reranker-v2-base-multilingual"} {
		if names[n] == "" {
			t.Errorf("no %s in %q", n, slices.Sorted(maps.Keys(names)))
		}
	}
	// The copy is the caller's.
	models.Catalogue()[0].Aliases[0] = "changed"
	models.Catalogue()[0].Prompts["query"] = "changed"
	if e := models.Catalogue()[0]; e.Aliases[0] == "changed" || e.Prompts["query"] == "changed" {
		t.Error("a caller changed the catalogue")
	}
}
