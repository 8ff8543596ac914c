package tokenize

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// The reference data is made by tools/golden_tokens.py with Hugging Face tokenizers.

func readGzip(tb testing.TB, name string) []byte {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// readLines decodes a file of one JSON value a line.
func readLines[T any](tb testing.TB, b []byte) []T {
	tb.Helper()
	var out []T
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, len(b)+1)
	for s.Scan() {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			tb.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		tb.Fatal("no cases")
	}
	return out
}

var parsedBERT struct {
	once sync.Once
	t    *Tokenizer
}

// bert is the tokenizer of both default models.
func bert(tb testing.TB) *Tokenizer {
	tb.Helper()
	parsedBERT.once.Do(func() {
		t, err := Parse(readGzip(tb, "tokenizer.json.gz"))
		if err != nil {
			tb.Fatal(err)
		}
		parsedBERT.t = t
	})
	if parsedBERT.t == nil {
		tb.Fatal("tokenizer.json did not parse")
	}
	return parsedBERT.t
}

// checkIDs holds every way to the tokens of a text against want.
func checkIDs(t *testing.T, tk *Tokenizer, text string, want []int32) {
	t.Helper()
	got := tk.AppendIDs(nil, text)
	if !slices.Equal(got, want) {
		t.Errorf("AppendIDs(%+q) = %v, want %v", text, got, want)
		return
	}
	var ids []int32
	for _, p := range tk.pieces(text) {
		ids = append(ids, p.id)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("pieces(%+q) = %v, want %v", text, ids, want)
	}
}

// checkLimits holds AppendIDsLimit against want for every limit up to most and some around the end.
func checkLimits(t *testing.T, tk *Tokenizer, text string, want []int32, most int) {
	t.Helper()
	n := len(want)
	limits := []int{-1, n - 1, n, n + 1, unlimited}
	for i := range min(most, n) {
		limits = append(limits, i)
	}
	for _, limit := range limits {
		got, more := tk.AppendIDsLimit(nil, text, limit)
		keep := min(max(limit, 0), n)
		if !slices.Equal(got, want[:keep]) || more != (keep < n) {
			t.Errorf("AppendIDsLimit(%+q, %d) = %v, %v, want %v, %v", text, limit, got, more, want[:keep], keep < n)
			return
		}
	}
}

type namedCase struct {
	Name      string
	Text      string
	Pair      *string
	MaxLength int `json:"max_length"`
	Strategy  *string
	WantIDs   []int32 `json:"want_ids"`
	WantTypes []int   `json:"want_type_ids"`
	WantError string  `json:"want_error"`
}

func strategy(tb testing.TB, name string) Strategy {
	s, ok := map[string]Strategy{"longest_first": LongestFirst, "only_first": OnlyFirst, "only_second": OnlySecond}[name]
	if !ok {
		tb.Fatalf("unknown strategy %q", name)
	}
	return s
}

func TestNamedCases(t *testing.T) {
	b, err := os.ReadFile("testdata/bert_uncased_tokens.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	cases := readLines[namedCase](t, b)
	if len(cases) != 110 {
		t.Fatalf("%d cases", len(cases))
	}
	tk := bert(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			o := Options{MaxTokens: c.MaxLength}
			if c.Strategy != nil {
				o.Strategy = strategy(t, *c.Strategy)
			}
			ones := 0
			for _, x := range c.WantTypes {
				ones += x
			}
			want := cutCase{First: c.Text, Second: c.Pair, IDs: c.WantIDs, Ones: ones, Error: c.WantError}
			checkEncodings(t, tk, want, o)
			whole := tk.AppendIDs(nil, c.Text)
			checkIDs(t, tk, c.Text, whole)
			checkLimits(t, tk, c.Text, whole, 20)
			if c.Pair == nil && c.MaxLength == 0 {
				checkIDs(t, tk, c.Text, c.WantIDs[1:len(c.WantIDs)-1])
				var ids []int32
				for _, token := range tk.Tokens(c.Text, true) {
					ids = append(ids, token.ID)
				}
				if !slices.Equal(ids, c.WantIDs) {
					t.Errorf("Tokens: %v, want %v", ids, c.WantIDs)
				}
			}
		})
	}
}

type cutCase struct {
	First    string
	Second   *string
	Max      int
	Strategy string
	Side     string
	IDs      []int32
	Ones     int // how many have token type 1
	Error    string
}

// checkEncodings holds every way to an encoding against c.
func checkEncodings(t *testing.T, tk *Tokenizer, c cutCase, o Options) {
	t.Helper()
	a := tk.AppendIDs(nil, c.First)
	special := tk.SpecialCount(c.Second != nil)
	total := len(a) + special
	check := func(how string, e Encoding, err error, exact bool) {
		t.Helper()
		where := fmt.Sprintf("%s %+q %+v", how, c.First, o)
		if c.Error != "" {
			if _, ok := err.(*TruncationError); !ok {
				t.Errorf("%s: error %v, want a *TruncationError for %q", where, err, c.Error)
			}
			return
		}
		if err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		if !slices.Equal(e.IDs, c.IDs) {
			t.Errorf("%s = %v, want %v", where, e.IDs, c.IDs)
		}
		if e.TypeOneAt != len(c.IDs)-c.Ones {
			t.Errorf("%s: type 1 begins at %d of %d, want %d ones", where, e.TypeOneAt, len(e.IDs), c.Ones)
		}
		removed := total - len(c.IDs)
		if exact && e.Cut() != removed || e.Cut() > removed || e.Cut() == 0 != (removed == 0) || e.CutFirst < 0 || e.CutSecond < 0 {
			t.Errorf("%s: cut %d+%d, want %d", where, e.CutFirst, e.CutSecond, removed)
		}
	}
	if c.Second == nil {
		e, err := tk.Single(nil, a, o)
		check("Single", e, err, true)
		e, err = tk.Single(make([]int32, 3, 1000), a, o)
		check("Single into memory", e, err, true)
		e, err = tk.Encode(c.First, o)
		check("Encode", e, err, false)
		return
	}
	b := tk.AppendIDs(nil, *c.Second)
	total += len(b)
	e, err := tk.Pair(nil, a, b, o)
	check("Pair", e, err, true)
	e, err = tk.Pair(make([]int32, 3, 1000), a, b, o)
	check("Pair into memory", e, err, true)
	e, err = tk.EncodePair(c.First, *c.Second, o)
	check("EncodePair", e, err, false)
	b, more := tk.AppendIDsLimit(nil, *c.Second, tk.SecondLimit(len(a), o))
	e, err = tk.Pair(nil, a, b, o)
	check("Pair of a limited second text", e, err, !more)
}

func runCut(t *testing.T, tk *Tokenizer, c cutCase) {
	t.Helper()
	side := map[string]Side{"left": Left, "right": Right}[c.Side]
	checkEncodings(t, tk, c, Options{MaxTokens: c.Max, Strategy: strategy(t, c.Strategy), Side: side})
}

func TestCuts(t *testing.T) {
	cases := readLines[cutCase](t, readGzip(t, "cuts.jsonl.gz"))
	failing := 0
	for _, c := range cases {
		runCut(t, bert(t), c)
		if c.Error != "" {
			failing++
		}
	}
	if failing == 0 || failing == len(cases) {
		t.Errorf("%d of %d cases are errors", failing, len(cases))
	}
}

type textCase struct {
	Text    string
	IDs     []int32
	At      []int   // start and stop of every token
	Escaped []int32 // the ids with special tokens in the text escaped, where they differ
}

func runText(t *testing.T, tk, escaping *Tokenizer, c textCase) {
	t.Helper()
	checkIDs(t, tk, c.Text, c.IDs)
	checkLimits(t, tk, c.Text, c.IDs, 40)
	if c.Escaped == nil {
		c.Escaped = c.IDs
	}
	checkIDs(t, escaping, c.Text, c.Escaped)
	checkLimits(t, escaping, c.Text, c.Escaped, 5)

	runes := []rune(c.Text)
	var at []int
	for _, token := range tk.Tokens(c.Text, false) {
		at = append(at, token.Start, token.Stop)
		if token.Special || token.Text != string(runes[token.Start:token.Stop]) {
			t.Errorf("Tokens(%+q): %+v", c.Text, token)
		}
	}
	if !slices.Equal(at, c.At) {
		t.Errorf("places of Tokens(%+q) %v: %v, want %v", c.Text, c.IDs, at, c.At)
	}
}

func TestTexts(t *testing.T) {
	tk := bert(t)
	for _, c := range readLines[textCase](t, readGzip(t, "texts.jsonl.gz")) {
		runText(t, tk, tk.EscapeSpecial(), c)
	}
}

func TestVariants(t *testing.T) {
	type variant struct {
		Name      string
		Tokenizer map[string]any // without its vocabulary
		Vocab     map[string]int // that of the variant before, when it has none
		Texts     []textCase
		Cuts      []cutCase
	}
	var vocab map[string]int
	for _, v := range readLines[variant](t, readGzip(t, "variants.jsonl.gz")) {
		t.Run(v.Name, func(t *testing.T) {
			if v.Vocab != nil {
				vocab = v.Vocab
			}
			v.Tokenizer["model"].(map[string]any)["vocab"] = vocab
			source, err := json.Marshal(v.Tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			tk, err := Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			if len(v.Texts) == 0 || len(v.Cuts) == 0 {
				t.Fatal("no cases")
			}
			escaping := tk.EscapeSpecial()
			for _, c := range v.Texts {
				runText(t, tk, escaping, c)
			}
			for _, c := range v.Cuts {
				runCut(t, tk, c)
			}
		})
	}
}

// idLists reads lists of ids, each its length and elements as unsigned varints.
func idLists(tb testing.TB, b []byte) [][]int32 {
	tb.Helper()
	var out [][]int32
	for len(b) > 0 {
		count, n := binary.Uvarint(b)
		b = b[n:]
		ids := make([]int32, count)
		for i := range ids {
			id, n := binary.Uvarint(b)
			if n <= 0 {
				tb.Fatal("id lists end early")
			}
			ids[i] = int32(id)
			b = b[n:]
		}
		out = append(out, ids)
	}
	return out
}

func cranfield(tb testing.TB) []string {
	tb.Helper()
	return strings.Split(string(readGzip(tb, "cranfield.txt.gz")), "\x1e")
}

func TestCranfield(t *testing.T) {
	tk := bert(t)
	texts, want := cranfield(t), idLists(t, readGzip(t, "cranfield.ids.gz"))
	if len(texts) != len(want) || len(texts) < 1000 {
		t.Fatalf("%d texts, %d lists", len(texts), len(want))
	}
	for i, text := range texts {
		checkIDs(t, tk, text, want[i])
		checkLimits(t, tk, text, want[i], 3)
	}
}

func TestCodePoints(t *testing.T) {
	tk := bert(t)
	want := idLists(t, readGzip(t, "codepoints.ids.gz"))
	at := 0
	for _, shape := range []string{"%c", "a%cb"} {
		for c := rune(0); c < 0x20000; c++ {
			if !utf8.ValidRune(c) {
				continue
			}
			if at == len(want) {
				t.Fatal("the file is too short")
			}
			checkIDs(t, tk, fmt.Sprintf(shape, c), want[at])
			at++
		}
	}
	if at != len(want) {
		t.Errorf("%d lists of %d used", at, len(want))
	}
}
