package tokenize

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"ragate/tokenize/internal/charsmap"
	"ragate/tokenize/internal/unigram"
)

// ParseFile reads a tokenizer file by its name: one that ends in .model with ParseSentencePiece, any other with Parse.
func ParseFile(name string, data []byte) (*Tokenizer, error) {
	if strings.HasSuffix(name, ".model") {
		return ParseSentencePiece(data)
	}
	return Parse(data)
}

// ParseSentencePiece reads the bytes of a sentencepiece.bpe.model of the XLM-RoBERTa family, for models that come without a
// tokenizer.json. It returns an *UnsupportedError for a model that it cannot do exactly, and an *InvalidError for a broken file; the
// fields that they name are those of the message ModelProto.
//
// The result is the tokenizer that transformers makes of the file (XLMRobertaConverter in its convert_slow_tokenizer.py), not
// SentencePiece itself: ids begin with <s>, <pad>, </s> and <unk>, as in fairseq, go on with the file's pieces behind its own first
// three, and end with <mask>; the character map, removal of white space at the end, and one mark for every run of spaces follow.
func ParseSentencePiece(model []byte) (*Tokenizer, error) {
	p, err := readModelProto(model)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{table: loadCharTable()}
	var v unigram.Vocabulary
	for _, name := range []string{"<s>", "<pad>", "</s>", "<unk>"} {
		v.Add(name, 0)
	}
	type token struct {
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		Left       bool   `json:"lstrip"`
		Right      bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	var added []token
	for i, piece := range p.pieces {
		if i >= 3 {
			v.Add(piece.text, piece.score)
		}
		if piece.kind == controlPiece || piece.kind == userPiece {
			added = append(added, token{Content: piece.text, Special: piece.kind == controlPiece})
		}
	}
	v.Add("<mask>", 0)
	for _, name := range []string{"<s>", "<pad>", "</s>", "<unk>"} {
		added = append(added, token{Content: name, Special: true})
	}
	added = append(added, token{Content: "<mask>", Left: true, Special: true})

	s, err := t.newSentencePiece(&v, 3, false)
	if err != nil {
		return nil, &InvalidError{"pieces", err.Error()}
	}
	if len(p.charsmap) > 0 {
		m, err := charsmap.Parse(p.charsmap)
		if err != nil {
			return nil, &InvalidError{"normalizer_spec.precompiled_charsmap", err.Error()}
		}
		s.steps = append(s.steps, step{chars: m})
	}
	const mark = "▁"
	s.steps = append(s.steps, step{right: true}, step{find: findSpaces(2), with: mark, onlySpace: true})
	s.pre = metaspace{mark: mark, prepend: always, breaks: true}
	s.setFast()

	list, err := json.Marshal(added)
	if err != nil {
		return nil, &InvalidError{"pieces", err.Error()}
	}
	if err := t.parseAddedTokens(list); err != nil {
		return nil, err
	}
	const bos, eos = 0, 2
	t.single = template{parts: [][]int32{{bos}, {eos}}, zeroSpecial: 2, zeroTexts: 1}
	t.pair = template{parts: [][]int32{{bos}, {eos, eos}, {eos}}, zeroSpecial: 4, zeroTexts: 2}
	t.setPad(nil)
	return t, nil
}

// The parts of a ModelProto (sentencepiece_model.proto) that decide about ids.
type modelProto struct {
	pieces   []protoPiece
	charsmap []byte
}

type protoPiece struct {
	text  string
	score float64
	kind  uint64
}

const (
	controlPiece = 3
	userPiece    = 4

	unigramModel = 1 // TrainerSpec.ModelType
)

func readModelProto(b []byte) (*modelProto, error) {
	p := &modelProto{}
	kind, suffix, prefix, escape := uint64(unigramModel), uint64(0), uint64(1), uint64(1)
	err := eachField("", b, func(num protowire.Number, value []byte, n uint64) error {
		switch num {
		case 1:
			piece := protoPiece{kind: 1}
			err := eachField("pieces", value, func(num protowire.Number, value []byte, n uint64) error {
				switch num {
				case 1:
					piece.text = string(value)
				case 2:
					piece.score = float64(math.Float32frombits(uint32(n)))
				case 3:
					piece.kind = n
				}
				return nil
			})
			if math.IsNaN(piece.score) || math.IsInf(piece.score, 0) {
				return &InvalidError{"pieces", fmt.Sprintf("the score of %q is %v", piece.text, piece.score)}
			}
			p.pieces = append(p.pieces, piece)
			return err
		case 2:
			return eachField("trainer_spec", value, func(num protowire.Number, _ []byte, n uint64) error {
				switch num {
				case 3:
					kind = n
				case 24:
					suffix = n
				}
				return nil
			})
		case 3:
			return eachField("normalizer_spec", value, func(num protowire.Number, value []byte, n uint64) error {
				switch num {
				case 2:
					p.charsmap = value
				case 3:
					prefix = n
				case 5:
					escape = n
				}
				return nil
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case kind != unigramModel:
		return nil, &UnsupportedError{"trainer_spec.model_type", fmt.Sprint(kind), "1 (UNIGRAM)"}
	case suffix != 0:
		return nil, &UnsupportedError{"trainer_spec.treat_whitespace_as_suffix", "true", "false"}
	case prefix != 1 || escape != 1:
		return nil, &UnsupportedError{"normalizer_spec", "without add_dummy_prefix or escape_whitespaces", "both"}
	case len(p.pieces) < 3:
		return nil, &InvalidError{"pieces", fmt.Sprintf("%d of them, less than <unk>, <s> and </s>", len(p.pieces))}
	}
	for i, want := range []string{"<unk>", "<s>", "</s>"} {
		if got := p.pieces[i].text; got != want {
			return nil, &UnsupportedError{fmt.Sprintf("pieces[%d]", i), fmt.Sprintf("%q", got), fmt.Sprintf("%q, as in the XLM-RoBERTa family", want)}
		}
	}
	return p, nil
}

// eachField calls f for the fields of a message: with the bytes of one that has a length, with the number of any other.
func eachField(message string, b []byte, f func(num protowire.Number, value []byte, n uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return &InvalidError{message, protowire.ParseError(n).Error()}
		}
		b = b[n:]
		var value []byte
		var number uint64
		switch typ {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			number = uint64(v)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return &InvalidError{message, protowire.ParseError(n).Error()}
		}
		b = b[n:]
		if err := f(num, value, number); err != nil {
			return err
		}
	}
	return nil
}
