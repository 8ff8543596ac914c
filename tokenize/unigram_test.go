package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The reference data is made by tools/golden_unigram.py with Hugging Face tokenizers.

// unigramFile is the file of a variant: that of testdata with some parts exchanged. The vocabulary keeps its text, since the last
// bits of the scores depend on how they are written.
func unigramFile(tb testing.TB, change map[string]json.RawMessage) []byte {
	tb.Helper()
	var root, model map[string]json.RawMessage
	decode := func(b []byte, into any) {
		if err := json.Unmarshal(b, into); err != nil {
			tb.Fatal(err)
		}
	}
	decode(readGzip(tb, "unigram.json.gz"), &root)
	decode(root["model"], &model)
	var normalizer struct {
		Normalizers []struct {
			Map string `json:"precompiled_charsmap"`
		}
	}
	decode(root["normalizer"], &normalizer)
	for name, value := range change {
		switch name {
		case "bytes":
			var b bytes.Buffer
			b.Write(bytes.TrimSuffix(model["vocab"], []byte("]")))
			for c := range 256 {
				if string(value) != `"some"` || c != 0xE2 {
					fmt.Fprintf(&b, `, ["<0x%02X>", -20.0]`, c)
				}
			}
			b.WriteByte(']')
			model["vocab"] = b.Bytes()
			model["byte_fallback"] = json.RawMessage(map[bool]string{true: "false", false: "true"}[string(value) == `"unused"`])
		case "unk":
			model["unk_id"] = value
		default:
			root[name] = bytes.ReplaceAll(value, []byte(`"charsmap"`), []byte(`"`+normalizer.Normalizers[0].Map+`"`))
		}
	}
	var err error
	if _, ok := change["model"]; !ok {
		if root["model"], err = json.Marshal(model); err != nil {
			tb.Fatal(err)
		}
	}
	b, err := json.Marshal(root)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func parseUnigram(tb testing.TB, change map[string]json.RawMessage) *Tokenizer {
	tb.Helper()
	tk, err := Parse(unigramFile(tb, change))
	if err != nil {
		tb.Fatal(err)
	}
	return tk
}

var smallUnigram struct {
	once sync.Once
	t    *Tokenizer
}

// xlm is a small tokenizer with the settings of multilingual-e5.
func xlm(tb testing.TB) *Tokenizer {
	tb.Helper()
	smallUnigram.once.Do(func() { smallUnigram.t = parseUnigram(tb, nil) })
	if smallUnigram.t == nil {
		tb.Fatal("unigram.json did not parse")
	}
	return smallUnigram.t
}

type unigramVariant struct {
	Name   string
	Change map[string]json.RawMessage
	Texts  []textCase
	Cuts   []cutCase
}

func TestUnigram(t *testing.T) {
	texts, cuts, fast := 0, 0, 0
	variants := readLines[unigramVariant](t, readGzip(t, "unigram.jsonl.gz"))
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			tk := parseUnigram(t, v.Change)
			escaping := tk.EscapeSpecial()
			if len(v.Texts) == 0 {
				t.Fatal("no cases")
			}
			for _, c := range v.Texts {
				runText(t, tk, escaping, c)
			}
			for _, c := range v.Cuts {
				runCut(t, tk, c)
			}
			texts, cuts = texts+len(v.Texts), cuts+len(v.Cuts)
			if tk.sp.fast && tk.cooked == nil {
				fast++
			}
		})
	}
	t.Logf("%d settings, %d of them on the fast path, %d texts, %d pairs", len(variants), fast, texts, cuts)
	if len(variants) < 60 || fast < 40 || texts < 7000 || cuts < 1000 {
		t.Errorf("only %d settings, %d fast, %d texts, %d pairs", len(variants), fast, texts, cuts)
	}
}

func TestUnigramVocabulary(t *testing.T) {
	tk := xlm(t)
	if tk.PadID() != 1 || tk.SpecialCount(false) != 2 || tk.SpecialCount(true) != 4 {
		t.Errorf("pad %d, %d and %d special", tk.PadID(), tk.SpecialCount(false), tk.SpecialCount(true))
	}
	for id, want := range map[int32]string{0: "<s>", 2: "</s>", 5: ".", 6: "▁", int32(tk.VocabSize() - 1): "<mask>"} {
		if got, ok := tk.Token(id); !ok || got != want {
			t.Errorf("token %d is %q, %v", id, got, ok)
		}
	}
	for _, id := range []int32{-1, int32(tk.VocabSize())} {
		if got, ok := tk.Token(id); ok {
			t.Errorf("token %d is %q", id, got)
		}
	}
	e, err := tk.EncodePair("Hallo", "world", Options{})
	if err != nil || e.TypeOneAt != len(e.IDs) || e.IDs[0] != 0 || e.IDs[len(e.IDs)-1] != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if got := bert(t).PadID(); got != 0 {
		t.Errorf("BERT pads with %d", got)
	}
	padding := json.RawMessage(`{"strategy":"BatchLongest","pad_id":9,"pad_type_id":0,"pad_token":"</s>"}`)
	if got := parseUnigram(t, map[string]json.RawMessage{"padding": padding}).PadID(); got != 2 {
		t.Errorf("a file that names another token pads with %d", got)
	}
}

var unigramUnits = append(slices.Clone(repeated), "▁", "<mask>", " <mask>", "<mask", "  ", "a  b ", "ﬁ", "™", "क्ष", "สวัสดี", "🇩🇪", "e\u0301", "\u200d", "\U0001f468\u200d",
	"字 ", "\u0600", "the ", "in", "中文字符", "\u0915\u094d")

func TestUnigramLinearTime(t *testing.T) {
	size := 1 << 19 // a quarter of it is above what encoders keep memory for, so that both sizes are without; a megabyte is what TestUnigramLongWords takes
	if raceEnabled {
		size /= 16
	}
	few := []string{"a", " ", ".", "\u0301", "中", "😀", "a ", "ⲁ", "<mask>", "the "}
	for name, c := range map[string]struct {
		change map[string]json.RawMessage
		units  []string
	}{
		"words":           {nil, unigramUnits},
		"one word":        {map[string]json.RawMessage{"pre_tokenizer": json.RawMessage(`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":false}`)}, few},
		"bytes, one word": {map[string]json.RawMessage{"bytes": json.RawMessage("true"), "pre_tokenizer": json.RawMessage("null")}, few},
	} {
		tk := parseUnigram(t, c.change)
		dst := make([]int32, 0, 8*size+16)
		for _, unit := range c.units {
			t.Run(fmt.Sprintf("%s of %+q", name, unit), func(t *testing.T) {
				large := strings.Repeat(unit, size/len(unit))
				small := large[:len(large)/4] // quadratic time would be sixteen times as long
				grows(t, 9, func() { dst = tk.AppendIDs(dst[:0], small) }, func() { dst = tk.AppendIDs(dst[:0], large) })
				small, large = large[:len(large)/64], large[:len(large)/16]
				grows(t, 9, func() { tk.Tokens(small, true) }, func() { tk.Tokens(large, true) })
			})
		}
	}
}

// A megabyte of one character, and of other texts whose words do not end, comes out as its places do: by the two ways.
func TestUnigramLongWords(t *testing.T) {
	tk := parseUnigram(t, map[string]json.RawMessage{"bytes": json.RawMessage("true")})
	size := 1 << 20
	if raceEnabled {
		size /= 16
	}
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]rune, size/4)
	for i := range random {
		random[i] = []rune("aeint的一是不了人我在有他\u0301ⲁ")[rng.IntN(17)]
	}
	for _, text := range []string{strings.Repeat("a", size), strings.Repeat("中", size/3), strings.Repeat("a ", size/2), strings.Repeat("ⲁ", size/3),
		strings.Repeat("abcdefg", size/7), string(random)} {
		want := tk.sp.pieces(tk, text)
		got := tk.AppendIDs(nil, text)
		if len(got) != len(want) {
			t.Fatalf("%+q…: %d tokens, want %d", text[:12], len(got), len(want))
		}
		for i, id := range got {
			if id != want[i].id {
				t.Fatalf("%+q…: token %d is %d, want %d", text[:12], i, id, want[i].id)
			}
		}
	}
}

// Texts of several windows, whose borders fall anywhere: both ways to their ids must agree, and limits must not matter.
func TestUnigramWindows(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	units := append(slices.Clone(unigramUnits), " ", " ", "  ", "\n", "\t", "a", "b", " x", "een woord ", "<mask>", "<ent>", "caf ", "e\u0301\u0301\u0301", "\r\n")
	for _, v := range readLines[unigramVariant](t, readGzip(t, "unigram.jsonl.gz")) {
		tk := parseUnigram(t, v.Change)
		for range 12 {
			few := make([]string, 1+rng.IntN(5))
			for i := range few {
				few[i] = units[rng.IntN(len(units))]
			}
			var b strings.Builder
			for size := 1 + rng.IntN(5*window); b.Len() < size; {
				b.WriteString(few[rng.IntN(len(few))])
			}
			text := b.String()
			var want []int32
			for _, p := range tk.pieces(text) {
				want = append(want, p.id)
			}
			if got := tk.AppendIDs(nil, text); !slices.Equal(got, want) {
				t.Fatalf("%s, of %+q: %d ids, want %d", v.Name, few, len(got), len(want))
			}
			checkLimits(t, tk, text, want, 0)
			limit := rng.IntN(len(want) + 1)
			if got, more := tk.AppendIDsLimit(nil, text, limit); !slices.Equal(got, want[:limit]) || more != (limit < len(want)) {
				t.Fatalf("%s, of %+q: the first %d", v.Name, few, limit)
			}
		}
	}
}

// What AppendIDsLimit does not return must not cost anything, where the beginning does not depend on the end.
func TestUnigramLimitStopsReading(t *testing.T) {
	tk := xlm(t)
	dst := make([]int32, 0, 512)
	for _, unit := range []string{"dog ", "今天天气很好", "<mask>", "été ", "don't ", "< ", "Сегодня ", "สวัสดีชาวโลก"} {
		t.Run(unit, func(t *testing.T) {
			short := strings.Repeat(unit, 64<<10/len(unit))
			long := strings.Repeat(short, 64)
			many := func(text string) func() {
				return func() {
					for range 5 {
						var more bool
						if dst, more = tk.AppendIDsLimit(dst[:0], text, 512); !more || len(dst) != 512 {
							t.Fatal("not cut")
						}
					}
				}
			}
			grows(t, 4, many(short), many(long))
		})
	}
}

func TestUnigramMemoryIsTheCallers(t *testing.T) {
	tk := xlm(t)
	buf := []int32{-1, -2, 0, 0, 0, 0, 0, 0, 0, 0}
	got, more := tk.AppendIDsLimit(buf[:2], "a b c d e f g", 3)
	if !slices.Equal(got[:2], []int32{-1, -2}) || len(got) != 5 || !more || &got[0] != &buf[0] || cap(got) != cap(buf) {
		t.Errorf("got %v, %v", got, more)
	}
	if !slices.Equal(buf[5:], make([]int32, 5)) {
		t.Errorf("wrote beyond the limit: %v", buf)
	}
}

func TestUnigramInvalidUTF8CountsAsReplacement(t *testing.T) {
	for _, change := range []map[string]json.RawMessage{nil, {"normalizer": json.RawMessage("null")}} {
		tk := parseUnigram(t, change)
		for _, c := range [][2]string{{"a\xffb", "a\ufffdb"}, {"\xe2\x80", "\ufffd\ufffd"}, {"x </s>\xf0\x9f", "x </s>\ufffd\ufffd"},
			{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"}, {"\xff\u0301 x", "\ufffd\u0301 x"}, {"e\xcc", "e\ufffd"}} {
			checkIDs(t, tk, c[0], tk.AppendIDs(nil, c[1]))
			a, b := tk.Tokens(c[0], false), tk.Tokens(c[1], false)
			for i := range a {
				if a[i].Start != b[i].Start || a[i].Stop != b[i].Stop {
					t.Errorf("Tokens(%q): %+v, want the places of %+v", c[0], a[i], b[i])
				}
			}
		}
	}
}

func TestUnigramConcurrentUse(t *testing.T) {
	checkConcurrentUse(t, xlm(t), 100)
}

func FuzzUnigram(f *testing.F) {
	variants := readLines[unigramVariant](f, readGzip(f, "unigram.jsonl.gz"))
	tokenizers := make([]*Tokenizer, len(variants))
	for i, text := range []string{"", "hello world", "naïve résumé", "</s> <mask>x", "\u302e\u0301a", "한국어 中文", "x\x00y\xff", "  ﬁ\u0301  ", "™\u200d™\u0300", "▁▁ a"} {
		f.Add(text, i-1, byte(7*i))
	}
	f.Fuzz(func(t *testing.T, text string, limit int, which byte) {
		i := int(which) % len(variants)
		if tokenizers[i] == nil {
			tokenizers[i] = parseUnigram(t, variants[i].Change)
		}
		tk := tokenizers[i]
		ids := tk.AppendIDs(nil, text)
		var plain []int32
		for _, p := range tk.pieces(text) {
			plain = append(plain, p.id)
		}
		if !slices.Equal(ids, plain) {
			t.Fatalf("%s: %+q: %v, by the plain way %v", variants[i].Name, text, ids, plain)
		}
		keep := min(max(limit, 0), len(ids))
		if got, more := tk.AppendIDsLimit(nil, text, limit); !slices.Equal(got, ids[:keep]) || more != (keep < len(ids)) {
			t.Fatalf("the first %d of %+q: %v, %v; of %v", limit, text, got, more, ids)
		}
		chars := len([]rune(text))
		for _, token := range tk.Tokens(text, false) {
			if _, ok := tk.Token(token.ID); !ok || token.Start < 0 || token.Stop < token.Start || token.Stop > chars {
				t.Fatalf("%+q: %+v", text, token)
			}
		}
		if _, err := tk.EscapeSpecial().EncodePair(text, text, Options{MaxTokens: 20}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestUnigramRefusals(t *testing.T) {
	if _, err := Parse(unigramFile(t, nil)); err != nil {
		t.Fatal(err)
	}
	type obj = map[string]any
	type list = []any
	norm := func(n obj) obj { return obj{"normalizer": n} }
	seq := func(n ...any) obj { return obj{"normalizer": obj{"type": "Sequence", "normalizers": n}} }
	pre := func(p obj) obj { return obj{"pre_tokenizer": p} }
	model := func(m obj) obj {
		all := obj{"type": "Unigram", "unk_id": 0, "vocab": list{list{"<unk>", 0}, list{"a", -1}}}
		maps.Copy(all, m)
		return obj{"model": all, "added_tokens": nil, "post_processor": nil}
	}
	for _, c := range []struct {
		change obj
		field  string // of an *UnsupportedError; "!" and the field of an *InvalidError; "" when it is accepted
	}{
		{model(nil), ""},
		{model(obj{"unk_id": nil}), "model.unk_id"},
		{model(obj{"unk_id": 2}), "!model.unk_id"},
		{model(obj{"unk_id": -1}), "!model.unk_id"},
		{model(obj{"vocab": nil}), "!model.vocab"},
		{model(obj{"vocab": obj{}}), "!model.vocab"},
		{model(obj{"vocab": list{list{"a"}}}), "!model.vocab"},
		{model(obj{"vocab": list{list{"a", "b"}}}), "!model.vocab"},
		{model(obj{"vocab": list{list{1, 1}}}), "!model.vocab"},
		{model(obj{"vocab": list{}}), "!model.unk_id"},
		{model(obj{"byte_fallback": 3}), "!model.byte_fallback"},
		{model(obj{"alpha": 0.1}), "model.alpha"},
		{norm(obj{"type": "NFKC"}), "normalizer.type"},
		{norm(obj{"type": "BertNormalizer"}), "normalizer.type"},
		{seq(obj{"type": "Lowercase"}), "normalizer.normalizers[0].type"},
		{seq(obj{"type": "Strip", "strip_left": false, "strip_right": true}, obj{"type": "Nmt"}), "normalizer.normalizers[1].type"},
		{norm(obj{"type": "Precompiled", "precompiled_charsmap": "AAA"}), "!normalizer.precompiled_charsmap"},
		{norm(obj{"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}), "!normalizer.precompiled_charsmap"},
		{norm(obj{"type": "Precompiled"}), "!normalizer.precompiled_charsmap"},
		{norm(obj{"type": "Replace", "pattern": obj{"Regex": "\\s+"}, "content": " "}), "normalizer.pattern"},
		{norm(obj{"type": "Replace", "pattern": obj{"String": ""}, "content": " "}), "normalizer.pattern"},
		{norm(obj{"type": "Replace", "pattern": obj{"String": "a"}}), "!normalizer.content"},
		{norm(obj{"type": "Strip"}), "!normalizer.strip_left"},
		{norm(obj{"type": "Prepend"}), "!normalizer.prepend"},
		{norm(obj{"type": "Prepend", "prepend": ""}), "normalizer.prepend"},
		{pre(obj{"type": "ByteLevel"}), "pre_tokenizer.type"},
		{pre(obj{"type": "Metaspace"}), "!pre_tokenizer.replacement"},
		{pre(obj{"type": "Metaspace", "replacement": "ab"}), "!pre_tokenizer.replacement"},
		{pre(obj{"type": "Metaspace", "replacement": " "}), "pre_tokenizer.replacement"},
		{pre(obj{"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}), "!pre_tokenizer.prepend_scheme"},
		{pre(obj{"type": "Metaspace", "replacement": "_", "add_prefix_space": false}), "!pre_tokenizer.add_prefix_space"},
		{pre(obj{"type": "Metaspace", "replacement": "_", "more": 1}), "pre_tokenizer.more"},
		{pre(obj{"type": "Sequence", "pretokenizers": list{obj{"type": "Metaspace", "replacement": "_"}, obj{"type": "WhitespaceSplit"}}}), "pre_tokenizer.pretokenizers[1]"},
		{obj{"post_processor": obj{"type": "RobertaProcessing", "sep": list{"</s>", 2}, "cls": list{"<s>", 0}, "trim_offsets": true, "add_prefix_space": true}}, "post_processor.trim_offsets"},
	} {
		change := map[string]json.RawMessage{}
		for name, value := range c.change {
			change[name], _ = json.Marshal(value)
		}
		tk, err := Parse(unigramFile(t, change))
		got := refusedField(err)
		if got != c.field || (tk == nil) != (c.field != "") {
			t.Errorf("%v: error %v (%q), want one about %q", c.change, err, got, c.field)
		}
	}
}

// Other families are refused by the part that says so, with the reason.
func TestOtherFamiliesAreRefused(t *testing.T) {
	for _, kind := range []string{"BPE", "WordLevel"} {
		_, err := Parse([]byte(`{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel"},"post_processor":null,
			"model":{"type":"` + kind + `","vocab":{},"merges":[]}}`))
		var u *UnsupportedError
		if !errors.As(err, &u) || u.Field != "model.type" || !strings.Contains(u.Value, kind) || !strings.Contains(u.Supported, "WordPiece and Unigram") ||
			!strings.Contains(u.Supported, "wrong ids") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Scores are read as the reference reads them, to the last bit. The right column is what it makes of the left one.
func TestScores(t *testing.T) {
	for _, c := range []struct {
		text string
		want float64
	}{
		{"0", 0}, {"-0.0", 0}, {"1", 1}, {"-7.4715776443481445", -7.471577644348144}, {"-7.7206902503967285", -7.720690250396728},
		{"-20.3647518157959", -20.3647518157959}, {"1e2", 100}, {"1.5E-3", 0.0015}, {"-12e+1", -120},
	} {
		if got, err := parseScore([]byte(c.text)); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "Inf", "NaN", "1e999", "1 ", "--1", "1.2.3"} {
		if got, err := parseScore([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
