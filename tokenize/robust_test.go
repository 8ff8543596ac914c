package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fastest is the least time that f took in several runs: what is left after the noise of a busy machine.
func fastest(runs int, f func()) time.Duration {
	best := time.Duration(1<<63 - 1)
	for range runs {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return best
}

// grows asserts that f takes at most limit times as long on large as on small input. It tries again when it does not: only
// a ratio that stays is the code's and not the machine's.
func grows(t *testing.T, limit float64, small, large func()) {
	t.Helper()
	var ratio float64
	for range 5 {
		s := fastest(3, small)
		l := fastest(3, large)
		if ratio = float64(l) / float64(s); ratio <= limit {
			return
		}
	}
	t.Errorf("%.1f times as long, want at most %.1f", ratio, limit)
}

var repeated = []string{
	"a", "A", "7", " ", "\n", "\x00", "\x0b", "\x7f", ".", "[", "]", "#", "é", "İ", "ß", "ж", "\u0301", "\u0315\u0300", "\u302e\u302f",
	"\U0001d165", "\u0f71\u0f72", "가", "\u1100\u1161", "中", "か", "が", "ा", "ไ", "—", "’", "\u200b", "\u00a0", "\ufffd", "\xff", "\xe2\x80",
	"😀", "👨‍👩‍👧", "\U0001fbf9", "a ", "aa.", "dog ", "[MASK]", "[MASK", "[[MASK]]", "[SEP] ", "##", "aé", "ab中", "zq",
}

func TestLinearTime(t *testing.T) {
	megabyte := 1 << 20
	if raceEnabled {
		megabyte /= 32 // the detector is slow; linear time is shown by the runs without it
	}
	tk := bert(t)
	dst := make([]int32, 0, 2*megabyte+16)
	for _, unit := range repeated {
		t.Run(fmt.Sprintf("%+q", unit), func(t *testing.T) {
			one := strings.Repeat(unit, megabyte/len(unit))
			two := one + one
			grows(t, 4, func() { dst = tk.AppendIDs(dst[:0], one) }, func() { dst = tk.AppendIDs(dst[:0], two) })
			one, two = one[:len(one)/16], one[:len(one)/8]
			grows(t, 4, func() { tk.Tokens(one, true) }, func() { tk.Tokens(two, true) })
		})
	}
}

// What AppendIDsLimit does not return must not cost anything.
func TestLimitStopsReading(t *testing.T) {
	tk := bert(t)
	dst := make([]int32, 0, 512)
	for _, unit := range []string{"dog ", "中", "[MASK]", "é ", "don't ", "[ ", "unaffable "} {
		t.Run(unit, func(t *testing.T) {
			short := strings.Repeat(unit, 64<<10/len(unit))
			long := strings.Repeat(short, 128)
			many := func(text string) func() {
				return func() {
					for range 20 {
						var more bool
						if dst, more = tk.AppendIDsLimit(dst[:0], text, 512); !more || len(dst) != 512 {
							t.Fatal("not cut")
						}
					}
				}
			}
			grows(t, 3, many(short), many(long))
		})
	}
}

func TestAllocations(t *testing.T) {
	tk := bert(t)
	texts := append(cranfield(t)[:50], "", "x", "what is go", strings.Repeat("中文", 1000), strings.Repeat("!", 5000), strings.Repeat("가", 3000),
		strings.Repeat("a ", 9000), strings.Repeat("[MASK]", 500), strings.Repeat("zq", 800), strings.Repeat("Où l’été ", 300))
	for _, text := range texts {
		want := checkAllocations(t, tk, text, 2)
		row := make([]int32, 0, 2*len(want)+3)
		checkAllocs(t, "Single into sized memory", text, 0, func() { tk.Single(row, want, Options{MaxTokens: 512}) })
		checkAllocs(t, "Pair into sized memory", text, 0, func() { tk.Pair(row, want, want, Options{MaxTokens: 512}) })
	}
}

// checkAllocs asserts that f, which does something of a text, allocates at most so often.
func checkAllocs(t *testing.T, how, text string, most float64, f func()) {
	t.Helper()
	if raceEnabled {
		most++ // under the race detector, pools forget on purpose
	}
	if n := testing.AllocsPerRun(20, f); n > most {
		t.Errorf("%s of %q: %v allocations, want at most %v", how, text[:min(len(text), 30)], n, most)
	}
}

// checkAllocations asserts that the ids of a text are put into memory of their size without another allocation, and into new memory with
// at most so many. It returns the ids.
func checkAllocations(t *testing.T, tk *Tokenizer, text string, most float64) []int32 {
	t.Helper()
	want := tk.AppendIDs(nil, text)
	sized := make([]int32, 0, len(want))
	checkAllocs(t, "AppendIDs into sized memory", text, 0, func() { tk.AppendIDs(sized, text) })
	checkAllocs(t, "AppendIDsLimit into sized memory", text, 0, func() { tk.AppendIDsLimit(sized, text, len(want)) })
	cut := make([]int32, 0, len(want)/2)
	checkAllocs(t, "AppendIDsLimit into memory of the limit", text, 0, func() { tk.AppendIDsLimit(cut, text, len(want)/2) })
	checkAllocs(t, "AppendIDs", text, most, func() { tk.AppendIDs(nil, text) })
	return want
}

func TestMemoryIsTheCallers(t *testing.T) {
	tk := bert(t)
	buf := []int32{-1, -2, 0, 0, 0, 0, 0, 0, 0, 0}
	got, more := tk.AppendIDsLimit(buf[:2], "a b c d e f g", 3)
	if !slices.Equal(got[:2], []int32{-1, -2}) || len(got) != 5 || !more {
		t.Errorf("got %v, %v", got, more)
	}
	if &got[0] != &buf[0] || cap(got) != cap(buf) {
		t.Errorf("the memory that was given was not kept: capacity %d of %d", cap(got), cap(buf))
	}
	if !slices.Equal(buf[5:], make([]int32, 5)) {
		t.Errorf("wrote beyond the limit: %v", buf)
	}
}

func TestInvalidUTF8CountsAsReplacement(t *testing.T) {
	for name, tk := range map[string]*Tokenizer{"cleaning": bert(t), "keeping": parseEdited(t, "normalizer.clean_text", false)} {
		for _, c := range [][2]string{{"a\xffb", "a\ufffdb"}, {"\xe2\x80", "\ufffd\ufffd"}, {"x [SEP]\xf0\x9f", "x [SEP]\ufffd\ufffd"}, {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"}} {
			checkIDs(t, tk, c[0], tk.AppendIDs(nil, c[1]))
			if len(tk.Tokens(c[0], false)) != len(tk.Tokens(c[1], false)) {
				t.Errorf("%s: Tokens(%q)", name, c[0])
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	checkConcurrentUse(t, bert(t), 200)
}

// checkConcurrentUse asserts that texts have the same ids, each up to a limit, where several goroutines take so many of them at once.
func checkConcurrentUse(t *testing.T, tk *Tokenizer, rounds int) {
	t.Helper()
	texts := cranfield(t)[:40]
	want := make([][]int32, len(texts))
	for i, text := range texts {
		want[i] = tk.AppendIDs(nil, text)
	}
	var wg sync.WaitGroup
	for seed := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(seed)))
			for range rounds {
				i := rng.IntN(len(texts))
				limit := rng.IntN(len(want[i]) + 2)
				got, _ := tk.AppendIDsLimit(nil, texts[i], limit)
				if !slices.Equal(got, want[i][:min(limit, len(want[i]))]) {
					t.Errorf("text %d differs beside others", i)
				}
			}
		})
	}
	wg.Wait()
}

// A text longer than the limit beside one that is not, the first of a pair alone beyond it, and empty ones.
func TestUnusualPairs(t *testing.T) {
	tk := bert(t)
	long := strings.Repeat("dog ", 2000)
	for _, c := range []struct {
		first, second string
		want          int
	}{{long, "cat", 512}, {"cat", long, 512}, {long, long, 512}, {long, "", 512}, {"", long, 512}, {"", "", 3}} {
		for _, side := range []Side{Right, Left} {
			e, err := tk.EncodePair(c.first, c.second, Options{MaxTokens: 512, Side: side})
			if err != nil || len(e.IDs) != c.want {
				t.Errorf("%.5q %.5q: %d tokens, %v", c.first, c.second, len(e.IDs), err)
			}
		}
	}
}

func TestLimitErrors(t *testing.T) {
	tk := bert(t)
	for _, limit := range []int{-1, 1} {
		_, err := tk.Encode("a", Options{MaxTokens: limit})
		var le *LimitError
		if !errors.As(err, &le) || le.MaxTokens != limit || le.Special != 2 {
			t.Errorf("%d: %v", limit, err)
		}
		if _, err = tk.Pair(nil, nil, nil, Options{MaxTokens: limit}); !errors.As(err, &le) || le.Special != 3 {
			t.Errorf("%d: %v", limit, err)
		}
	}
	if _, err := tk.Encode("a b c", Options{MaxTokens: 2}); err != nil {
		t.Errorf("no room for text: %v", err)
	}
}

func TestVocabulary(t *testing.T) {
	tk := bert(t)
	if tk.VocabSize() != 30522 || tk.SpecialCount(false) != 2 || tk.SpecialCount(true) != 3 {
		t.Errorf("%d tokens, %d and %d special", tk.VocabSize(), tk.SpecialCount(false), tk.SpecialCount(true))
	}
	for id, want := range map[int32]string{0: "[PAD]", 101: "[CLS]", 2129: "how", 30521: "##～"} {
		if got, ok := tk.Token(id); !ok || got != want {
			t.Errorf("token %d is %q, %v", id, got, ok)
		}
	}
	for _, id := range []int32{-1, 30522} {
		if got, ok := tk.Token(id); ok {
			t.Errorf("token %d is %q", id, got)
		}
	}
}

func TestTokens(t *testing.T) {
	tk := bert(t)
	got := tk.Tokens("Zürich [SEP] 😀x", true)
	want := []Token{
		{101, "[CLS]", true, -1, -1}, {10204, "Zürich", false, 0, 6}, {102, "[SEP]", false, 7, 12}, {100, "😀x", false, 13, 15},
		{102, "[SEP]", true, -1, -1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := tk.Tokens("", false); len(got) != 0 || got == nil {
		t.Errorf("no text: %#v", got)
	}
}

// smallSource is tokenizer.json with the first 1200 tokens of its vocabulary.
var smallSource struct {
	once sync.Once
	json []byte
}

// edited is smallSource with the field at path (dots between names) replaced; a nil value removes it.
func edited(tb testing.TB, path string, value any) []byte {
	tb.Helper()
	smallSource.once.Do(func() {
		var root map[string]any
		if err := json.Unmarshal(readGzip(tb, "tokenizer.json.gz"), &root); err != nil {
			tb.Fatal(err)
		}
		vocab := root["model"].(map[string]any)["vocab"].(map[string]any)
		for token, id := range vocab {
			if id.(float64) >= 1200 {
				delete(vocab, token)
			}
		}
		smallSource.json, _ = json.Marshal(root)
	})
	var root map[string]any
	if err := json.Unmarshal(smallSource.json, &root); err != nil {
		tb.Fatal(err)
	}
	at := root
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		at = at[name].(map[string]any)
	}
	if last := names[len(names)-1]; value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	b, err := json.Marshal(root)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func parseEdited(tb testing.TB, path string, value any) *Tokenizer {
	tb.Helper()
	tk, err := Parse(edited(tb, path, value))
	if err != nil {
		tb.Fatal(err)
	}
	return tk
}

// refusedField is the field of an *UnsupportedError, "!" and that of an *InvalidError, or "" for any other error and none.
func refusedField(err error) string {
	var unsupported *UnsupportedError
	var invalid *InvalidError
	switch {
	case errors.As(err, &unsupported):
		return unsupported.Field
	case errors.As(err, &invalid):
		return "!" + invalid.Field
	}
	return ""
}

func TestRefusals(t *testing.T) {
	if _, err := Parse(edited(t, "version", "1.0")); err != nil {
		t.Fatal(err) // else all of what follows would fail for this reason
	}
	type obj = map[string]any
	type list = []any
	added := func(content string, more obj) list {
		a := obj{"id": 0, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
		for k, v := range more {
			if a[k] = v; v == nil {
				delete(a, k)
			}
		}
		return list{a}
	}
	seq := func(id string, kind int) obj { return obj{"Sequence": obj{"id": id, "type_id": kind}} }
	for _, c := range []struct {
		path  string
		value any
		field string // of an *UnsupportedError; "!" and the field of an *InvalidError
	}{
		{"version", "2.0", "version"},
		{"model.type", "BPE", "model.type"},
		{"model.type", "WordLevel", "model.type"},
		{"model.extra", 1, "model.extra"},
		{"model.vocab", obj{"a": 0}, "!model.unk_token"},
		{"model.vocab", obj{"[UNK]": -1}, "!model.vocab"},
		{"model.vocab", obj{"[UNK]": 1, "a": 1}, "!model.vocab"},
		{"model.vocab", obj{"[UNK]": 1 << 40}, "!model.vocab"},
		{"model.vocab", obj{"[UNK]": 1.5}, "!model.vocab"},
		{"model.vocab", nil, "!model.vocab"},
		{"model.unk_token", nil, "!model.unk_token"},
		{"model.unk_token", 3, "!model.unk_token"},
		{"model.continuing_subword_prefix", nil, "!model.continuing_subword_prefix"},
		{"model.max_input_chars_per_word", -5, "!model.max_input_chars_per_word"},
		{"model", nil, "!model"},
		{"normalizer.type", "NFC", "normalizer.type"},
		{"normalizer", obj{"type": "Sequence", "normalizers": list{}}, "normalizer.type"},
		{"normalizer.lowercase", "yes", "!normalizer.lowercase"},
		{"normalizer.clean_text", nil, "!normalizer.clean_text"},
		{"normalizer.more", true, "normalizer.more"},
		{"normalizer", 7, "!normalizer"},
		{"pre_tokenizer", nil, "pre_tokenizer"},
		{"pre_tokenizer.type", "Whitespace", "pre_tokenizer.type"},
		{"pre_tokenizer.more", 1, "pre_tokenizer.more"},
		{"post_processor.type", "ByteLevel", "post_processor.type"},
		{"post_processor.single", list{seq("B", 0)}, "post_processor.single"},
		{"post_processor.single", list{seq("A", 0), seq("A", 0)}, "post_processor.single"},
		{"post_processor.pair", list{seq("A", 0)}, "post_processor.pair"},
		{"post_processor.pair", list{seq("A", 1), seq("B", 0)}, "post_processor.pair"},
		{"post_processor.pair", list{seq("A", 0), seq("B", 2)}, "post_processor.pair"},
		{"post_processor.pair", list{seq("A", 0), obj{}, seq("B", 1)}, "!post_processor.pair"},
		{"post_processor.pair", list{seq("A", 0), obj{"SpecialToken": obj{"id": "no", "type_id": 0}}, seq("B", 1)}, "!post_processor.pair"},
		{"post_processor.special_tokens", obj{"[CLS]": obj{"ids": list{99999}}, "[SEP]": obj{"ids": list{102}}}, "!post_processor.special_tokens.[CLS]"},
		{"post_processor", obj{"type": "BertProcessing", "sep": list{"[SEP]", 99999}, "cls": list{"[CLS]", 101}}, "!post_processor.sep"},
		{"post_processor", obj{"type": "BertProcessing", "sep": list{"[SEP]"}, "cls": list{"[CLS]", 101}}, "!post_processor.sep"},
		{"added_tokens", obj{}, "!added_tokens"},
		{"added_tokens", list{3}, "!added_tokens[0]"},
		{"added_tokens", added("x", obj{"special": nil}), "!added_tokens[0].special"},
		{"added_tokens", added("x", obj{"odd": 1}), "added_tokens[0].odd"},
		{"added_tokens", added("\u0301", obj{"normalized": true}), "added_tokens"},
		{"added_tokens", append(added("Q q", obj{"normalized": true}), added("q q", obj{"normalized": true})...), "added_tokens"},
	} {
		tk, err := Parse(edited(t, c.path, c.value))
		got := refusedField(err)
		if got != c.field || tk != nil {
			t.Errorf("%s = %v: error %v (%q), want one about %q", c.path, c.value, err, got, c.field)
		}
	}
	for text, want := range map[string]string{
		"":                                     "tokenizer: not JSON: unexpected end of JSON input, at byte 0",
		"{":                                    "tokenizer: not JSON: unexpected end of JSON input, at byte 1",
		"{\"version\": \"1.0\" \"model\": {}}": "tokenizer: not JSON: invalid character '\"' after object key:value pair, at byte 19",
		"[]":                                   "tokenizer: not a JSON object: []",
		"null":                                 "tokenizer: not a JSON object: null",
		"3":                                    "tokenizer: not a JSON object: 3",
		"{\"model\": \"\xff\"}":                "tokenizer: not UTF-8",
		"{}":                                   "tokenizer: model: missing",
		"{\"model\": null}":                    "tokenizer: model: not a JSON object: null",
		"{\"model\": [1, 2]}":                  "tokenizer: model: not a JSON object: [1,2]",
	} {
		if tk, err := Parse([]byte(text)); err == nil || tk != nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The file has both sections: they must not matter.
func TestPaddingAndTruncationAreIgnored(t *testing.T) {
	source := readGzip(t, "tokenizer.json.gz")
	if !strings.Contains(string(source), `"Fixed":512`) && !strings.Contains(string(source), `"Fixed": 512`) {
		t.Fatal("the file has lost its padding section: this test shows nothing")
	}
	tk := bert(t)
	e, err := tk.Encode(strings.Repeat("dog ", 600), Options{})
	if err != nil || len(e.IDs) != 602 || e.Cut() != 0 {
		t.Errorf("%d tokens, %v", len(e.IDs), err)
	}
	if e, err = tk.Encode("dog", Options{}); err != nil || len(e.IDs) != 3 {
		t.Errorf("%d tokens, %v", len(e.IDs), err)
	}
}
