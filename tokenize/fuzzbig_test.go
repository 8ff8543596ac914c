package tokenize

import (
	"encoding/json"
	"os"
	"testing"
)

func TestBigFuzz(t *testing.T) {
	b, err := os.ReadFile("/tmp/tok/fuzz/texts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	tk := bert(t)
	for _, c := range readLines[textCase](t, b) {
		runText(t, tk, tk.EscapeSpecial(), c)
	}
	b, _ = os.ReadFile("/tmp/tok/fuzz/variants.jsonl")
	type variant struct {
		Name      string
		Tokenizer json.RawMessage
		Texts     []textCase
	}
	for _, v := range readLines[variant](t, b) {
		t.Run(v.Name, func(t *testing.T) {
			tk, err := Parse(v.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range v.Texts {
				runText(t, tk, tk.EscapeSpecial(), c)
			}
		})
	}
}
