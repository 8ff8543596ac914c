package tokenize

import (
	"slices"
	"testing"
	"unicode/utf8"
)

// checkText holds the properties that every text has under every tokenizer.
func checkText(t *testing.T, tk *Tokenizer, text string, limit int) []int32 {
	t.Helper()
	ids := tk.AppendIDs(nil, text)
	for _, id := range ids {
		if _, ok := tk.Token(id); !ok {
			t.Fatalf("%+q has the unknown id %d", text, id)
		}
	}
	if tk.sp == nil && len(ids) > 4*len(text)+1 { // a Unigram file may say that a character becomes any number of them
		t.Fatalf("%+q has %d tokens", text, len(ids))
	}
	keep := min(max(limit, 0), len(ids))
	if got, more := tk.AppendIDsLimit(nil, text, limit); !slices.Equal(got, ids[:keep]) || more != (keep < len(ids)) {
		t.Fatalf("the first %d of %+q: %v, %v; of %v", limit, text, got, more, ids)
	}
	tokens := tk.Tokens(text, false)
	if len(tokens) != len(ids) {
		t.Fatalf("Tokens(%+q): %d, want %d", text, len(tokens), len(ids))
	}
	runes := []rune(text)
	for i, token := range tokens {
		if token.ID != ids[i] || token.Start < 0 || token.Stop < token.Start || token.Stop > len(runes) {
			t.Fatalf("token %d of %+q: %+v, want id %d", i, text, token, ids[i])
		}
		if utf8.ValidString(text) && token.Text != string(runes[token.Start:token.Stop]) {
			t.Fatalf("token %d of %+q: %+v", i, text, token)
		}
	}
	return ids
}

func FuzzText(f *testing.F) {
	for i, text := range []string{"", "hello world", "naïve résumé", "[SEP] [MASK]x", "\u302e\u0301a", "한국어 中文", "x\x00y\xff", "İSTANBUL Σς"} {
		f.Add(text, i-1)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		tk := bert(t)
		ids := checkText(t, tk, text, limit)
		checkText(t, tk.EscapeSpecial(), text, limit)
		e, err := tk.Encode(text, Options{})
		if err != nil || !slices.Equal(e.IDs, slices.Concat([]int32{101}, ids, []int32{102})) || e.TypeOneAt != len(e.IDs) || e.Cut() != 0 {
			t.Fatalf("Encode(%+q): %+v, %v", text, e, err)
		}
	})
}

func FuzzPair(f *testing.F) {
	for i, text := range []string{"", "what is go", "a b c d e f g h i j", "中文 [SEP]"} {
		f.Add(text, "go is a language", 8+i, byte(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, first, second string, limit int, how byte, left bool) {
		tk := bert(t)
		o := Options{MaxTokens: limit, Strategy: Strategy(how % 3)}
		if left {
			o.Side = Left
		}
		a, b := tk.AppendIDs(nil, first), tk.AppendIDs(nil, second)
		p, err := tk.Pair(nil, a, b, o)
		e, err2 := tk.EncodePair(first, second, o)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("Pair: %v, EncodePair: %v", err, err2)
		}
		if err != nil {
			return
		}
		if !slices.Equal(p.IDs, e.IDs) || p.TypeOneAt != e.TypeOneAt || e.Cut() > p.Cut() || (e.Cut() == 0) != (p.Cut() == 0) {
			t.Fatalf("Pair: %+v, EncodePair: %+v", p, e)
		}
		if limit > 0 && len(p.IDs) > limit || len(p.IDs)+p.Cut() != len(a)+len(b)+3 || p.CutFirst < 0 || p.CutSecond < 0 {
			t.Fatalf("%d tokens under %d, cut %d of %d+%d", len(p.IDs), limit, p.Cut(), len(a), len(b))
		}
		// The pair is its parts.
		a, b = cut(a, len(a)-p.CutFirst, o.Side), cut(b, len(b)-p.CutSecond, o.Side)
		if want := slices.Concat([]int32{101}, a, []int32{102}, b, []int32{102}); !slices.Equal(p.IDs, want) || p.TypeOneAt != len(a)+2 {
			t.Fatalf("Pair: %+v, want %v", p, want)
		}
		s, err := tk.Single(nil, b, Options{})
		if err != nil || !slices.Equal(s.IDs[1:], p.IDs[p.TypeOneAt:]) {
			t.Fatalf("Single: %+v, %v", s, err)
		}
	})
}

// FuzzParse: whatever the file says, it is refused or it works.
func FuzzParse(f *testing.F) {
	f.Add([]byte(smallTokenizer), "a foo [X] é中")
	f.Add([]byte(`{"model":{"type":"WordPiece"}}`), "")
	f.Add([]byte(smallUnigramFile), "a  foo <m> é中")
	f.Fuzz(func(t *testing.T, source []byte, text string) {
		tk, err := Parse(source)
		if err != nil {
			if tk != nil {
				t.Fatal("a tokenizer and an error")
			}
			return
		}
		checkText(t, tk, text, len(text)/2)
		checkText(t, tk.EscapeSpecial(), text, 1)
		if _, err := tk.EncodePair(text, text, Options{MaxTokens: 20}); err != nil {
			if _, ok := err.(*LimitError); !ok {
				t.Fatal(err)
			}
		}
	})
}

const smallTokenizer = `{"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":0,"content":"[X]","single_word":false,"lstrip":true,"rstrip":true,"normalized":false,"special":true},
 {"id":9,"content":"Foo","single_word":true,"lstrip":false,"rstrip":false,"normalized":true,"special":false}],
"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
"pre_tokenizer":{"type":"BertPreTokenizer"},
"post_processor":{"type":"BertProcessing","sep":["[X]",0],"cls":["[X]",0]},
"decoder":null,
"model":{"type":"WordPiece","unk_token":"[U]","continuing_subword_prefix":"##","max_input_chars_per_word":10,
 "vocab":{"[X]":0,"[U]":1,"a":2,"##a":3,"é":4,"e":5,"##\u0301":6,"中":7}}}`

const smallUnigramFile = `{"version":"1.0","padding":{"pad_token":"<m>"},
"added_tokens":[{"id":1,"content":"<m>","single_word":false,"lstrip":true,"rstrip":true,"normalized":false,"special":true},
 {"id":9,"content":"foo","single_word":true,"lstrip":false,"rstrip":false,"normalized":true,"special":false}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":""},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "},
 {"type":"Replace","pattern":{"String":"é"},"content":"e"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":"Prepend","prepend":"_"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true}]},
"post_processor":{"type":"RobertaProcessing","sep":["<m>",1],"cls":["<m>",1],"trim_offsets":false,"add_prefix_space":true},
"decoder":null,
"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0],["<m>",0],["a",-1.5],["aa",-2.25e0],["_",-3],["_a",-1],["<0xC3>",-9]]}}`
