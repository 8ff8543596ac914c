package tokenize

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// The reference data is made by tools/golden_unigram.py: a SentencePiece model, trained there, against the tokenizer that
// transformers' converter would make of it.
func TestSentencePiece(t *testing.T) {
	tk, err := ParseSentencePiece(readGzip(t, "spm.model.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if !tk.sp.fast || tk.PadID() != 1 {
		t.Errorf("fast %v, padding %d", tk.sp.fast, tk.PadID())
	}
	cases := readLines[textCase](t, readGzip(t, "spm.jsonl.gz"))
	if len(cases) < 1500 {
		t.Fatalf("%d cases", len(cases))
	}
	escaping := tk.EscapeSpecial()
	for _, c := range cases {
		runText(t, tk, escaping, c)
	}
	e, err := tk.EncodePair("", "", Options{})
	if err != nil || !slices.Equal(e.IDs, []int32{0, 2, 2, 2}) || e.TypeOneAt != 4 {
		t.Errorf("%+v, %v", e, err)
	}
	if name, _ := tk.Token(int32(tk.VocabSize() - 1)); name != "<mask>" {
		t.Errorf("the last token is %q", name)
	}
}

// The name of a file decides how it is read.
func TestParseFile(t *testing.T) {
	for name, data := range map[string][]byte{"sentencepiece.bpe.model": readGzip(t, "spm.model.gz"), "tokenizer.json": readGzip(t, "unigram.json.gz")} {
		var invalid *InvalidError
		if _, err := ParseFile("folder/"+name, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		other := map[bool]string{true: "tokenizer.json", false: "sentencepiece.bpe.model"}[name == "sentencepiece.bpe.model"]
		if _, err := ParseFile(other, data); !errors.As(err, &invalid) {
			t.Errorf("%s as %s: %v", name, other, err)
		}
	}
}

func TestSentencePieceRefusals(t *testing.T) {
	model := readGzip(t, "spm.model.gz")
	varint := func(outer, inner protowire.Number, v uint64) []byte {
		b := protowire.AppendVarint(protowire.AppendTag(nil, inner, protowire.VarintType), v)
		return protowire.AppendBytes(protowire.AppendTag(nil, outer, protowire.BytesType), b)
	}
	for _, c := range []struct {
		model []byte
		field string // of an *UnsupportedError; "!" and that of an *InvalidError
	}{
		{slices.Concat(model, varint(2, 3, 2)), "trainer_spec.model_type"},
		{slices.Concat(model, varint(2, 24, 1)), "trainer_spec.treat_whitespace_as_suffix"},
		{slices.Concat(model, varint(3, 3, 0)), "normalizer_spec"},
		{slices.Concat(varint(1, 3, 1), model), "pieces[0]"},
		{nil, "!pieces"},
		{model[:len(model)/2], "!"},
		{[]byte("not a model"), "!"},
	} {
		tk, err := ParseSentencePiece(c.model)
		got := refusedField(err)
		if got != c.field || tk != nil {
			t.Errorf("%d bytes: error %v (%q), want one about %q", len(c.model), err, got, c.field)
		}
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add([]byte("\n\n\n\x05<unk>\x15\x00\x00\x00\x00"), "a")
	f.Fuzz(func(t *testing.T, model []byte, text string) {
		tk, err := ParseSentencePiece(model)
		if err != nil {
			if tk != nil {
				t.Fatal("a tokenizer and an error")
			}
			return
		}
		checkText(t, tk, text, len(text)/2)
	})
}
