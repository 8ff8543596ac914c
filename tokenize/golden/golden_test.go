package golden

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ragate/internal/testenv"
	"ragate/tokenize"
)

// bert is the tokenizer of both default models.
func bert(t *testing.T) *tokenize.Tokenizer {
	t.Helper()
	tk, err := tokenize.Parse(testenv.Gunzip(t, filepath.Join("..", "testdata", "tokenizer.json.gz")))
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

// TestFilesOfTheReference: the file that tools/golden_tokens.py made, and the one that package tokenize is tested with.
func TestFilesOfTheReference(t *testing.T) {
	tk := bert(t)
	for name, want := range map[string]Report{
		filepath.Join("testdata", "bert_uncased.golden.jsonl"):       {Cases: 377, Pairs: 275, Cut: 296},
		filepath.Join("..", "testdata", "bert_uncased_tokens.jsonl"): {Cases: 110, Pairs: 26, Cut: 27},
	} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Compare(tk, bytes.NewReader(b))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
		for _, part := range []string{"want_type_ids", "want_error", `"max_length": 1`} {
			if !bytes.Contains(b, []byte(part)) {
				t.Errorf("%s has no case with %s", name, part)
			}
		}
	}
}

func TestDifferences(t *testing.T) {
	tk := bert(t)
	for _, c := range []struct{ line, want string }{
		{`{"text":"hello world","want_ids":[101,7592,2088,102],"want_type_ids":[0,0,0,0],"want_offsets":[[0,0],[0,5],[6,11],[0,0]]}`, ""},
		{`{"text":"hello","pair":"world","want_ids":[101,7592,102,2088,102],"want_type_ids":[0,0,0,1,1]}`, ""},
		{`{"text":"hello world","max_length":3,"strategy":"longest_first","side":"left","want_ids":[101,2088,102]}`, ""},
		{`{"text":"hello world","max_length":3,"want_ids":[101,7592,102]}`, ""},
		{`{"text":"hello","max_length":3,"strategy":"only_second","want_ids":[101,7592,102]}`, ""},
		{`{"text":"hello world","max_length":3,"strategy":"only_second","want_error":"no second"}`, ""},
		{`{"name":"greeting","text":"hello world","want_ids":[101,7592,2089,102]}`, `line 1 ("greeting"): ids differ from token 2 on: got [2088 102], want [2089 102]`},
		{`{"text":"hello world","want_ids":[101,7592,2088]}`, `line 1: ids differ from token 3 on: got [102], want its end`},
		{`{"text":"hello","want_ids":[101,7592,102,0]}`, `line 1: ids differ from token 3 on: got its end, want [0]`},
		{`{"text":"hello","pair":"world","want_ids":[101,7592,102,2088,102],"want_type_ids":[0,0,1,1,1]}`, `line 1: token types differ from token 2 on: got [0 1 1], want [1 1 1]`},
		{`{"text":"hello","want_ids":[101,7592,102],"want_offsets":[[0,0],[0,4],[0,0]]}`, `line 1: offsets differ from token 1 on: got [[0 5] [0 0]], want [[0 4] [0 0]]`},
		{`{"text":"hello world","max_length":3,"strategy":"only_second","want_ids":[101,7592,102]}`, `line 1: got the error "`},
		{`{"text":"hello","want_error":"cannot"}`, `line 1: got 3 tokens, want the error "cannot"`},
		{`{"text":"a b c d e f g h i j k l","want_ids":[]}`, `ids differ from token 0 on: got [101 1037 1038 1039 1040 1041 1042 1043 …] of 14, want its end`},
	} {
		r, err := Compare(tk, strings.NewReader(c.line))
		switch {
		case err != nil || r.Cases != 1:
			t.Errorf("%s: %+v, %v", c.line, r, err)
		case c.want == "" && r.Differ != 0:
			t.Errorf("%s: %v", c.line, r.Reports)
		case c.want != "" && (r.Differ != 1 || len(r.Reports) != 1 || !strings.Contains(r.Reports[0].String(), c.want)):
			t.Errorf("%s: %+v, want %s", c.line, r, c.want)
		}
	}
	many := strings.Repeat(`{"text":"hello","want_ids":[1]}`+"\n\n", 30)
	if r, err := Compare(tk, strings.NewReader("\xef\xbb\xbf"+many)); err != nil || r.Cases != 30 || r.Differ != 30 || len(r.Reports) != maxReports || r.Reports[1].Line != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestBrokenFiles(t *testing.T) {
	tk := bert(t)
	const good = `{"text":"hello","want_ids":[101,7592,102]}` + "\n"
	for content, want := range map[string]string{
		"":                                      "no case",
		"\n \n":                                 "no case",
		good + "{":                              "line 2: ",
		good + `{"want_ids":[1]}`:               "line 2: `text` is missing",
		good + `{"text":"a"}`:                   "`want_ids` is missing",
		good + `{"text":null,"want_ids":[1]}`:   "`text` is missing",
		`{"text":"a","want_ids":[1.5]}`:         "line 1: ",
		`{"text":"a","want_ids":[99999999999]}`: "line 1: ",
		`{"text":"a","want_ids":[1],"strategy":"do_not_truncate"}`:          "`strategy` is \"do_not_truncate\"; it must be",
		`{"text":"a","want_ids":[1],"side":"up"}`:                           "`side` is \"up\"; it must be",
		`{"text":"a","want_ids":[1],"max_length":-1}`:                       "`max_length` is -1; it must be at least 0",
		`{"text":"a","want_ids":[1],"want_type_ids":[0,0]}`:                 "`want_type_ids` has 2 values and `want_ids` 1",
		`{"text":"a","want_ids":[1],"want_offsets":[]}`:                     "`want_offsets` has 0 values and `want_ids` 1",
		`{"text":"a","pair":"b","want_ids":[1],"want_offsets":[[0,0]]}`:     "`want_offsets` is only for a text alone",
		`{"text":"a","max_length":9,"want_ids":[1],"want_offsets":[[0,0]]}`: "`want_offsets` is only for a text alone",
	} {
		if _, err := Compare(tk, strings.NewReader(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	if _, err := Compare(tk, io.MultiReader(strings.NewReader(good), failing{})); err == nil || !strings.Contains(err.Error(), "line 2: the disk is gone") {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, fmt.Errorf("the disk is gone") }
