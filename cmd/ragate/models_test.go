package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ragate/inference"
	"ragate/internal/testenv"
	"ragate/models"
)

// TestVerifyTokenizer holds the default model's own tokenizer against what the reference made of it, and against a file that is wrong.
func TestVerifyTokenizer(t *testing.T) {
	dir := testenv.Store(t)
	tokenizer := filepath.Join(dir, "models", "intfloat--e5-small-v2", "tokenizer.json")
	right := filepath.Join(testenv.ModuleRoot(t), "tokenize", "golden", "testdata", "bert_uncased.golden.jsonl")
	b, err := os.ReadFile(right)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wrong := write("wrong.jsonl", strings.Replace(string(b), "[101, ", "[102, ", 1))
	unigram := write("tokenizer.json", `{"version":"1.0","model":{"type":"BPE"}}`)
	for _, c := range []struct {
		name  string
		r     models.Report
		ok    bool
		words []string // in this order
	}{
		{"right", models.Report{Tokenizer: tokenizer, Golden: right}, true, []string{"ok", "the ids of all 377 cases", "275 pairs, 296 with a limit"}},
		{"wrong", models.Report{Tokenizer: tokenizer, Golden: wrong}, false, []string{"differs", "1 of 377 cases", "differs", `line 1 ("text 0"): ids differ from token 0 on: got [101 `, "want [102 "}},
		{"no golden file", models.Report{Tokenizer: tokenizer}, true, []string{"ok", "no tokens.golden.jsonl"}},
		{"an empty golden file", models.Report{Tokenizer: tokenizer, Golden: write("empty.jsonl", "")}, false, []string{"unusable", "empty.jsonl", "no case"}},
		{"refused", models.Report{Tokenizer: unigram, Golden: right}, false, []string{"refused", "model.type", "BPE", "not supported"}},
		{"a model that cannot be used", models.Report{Err: &models.LoadError{Model: "m", Reason: "there is no tokenizer.json"}}, false, []string{"unusable", "there is no tokenizer.json"}},
		{"the runtime", models.Report{}, true, nil},
	} {
		c.r.Model = "m"
		var out bytes.Buffer
		ok, err := verifyTokenizer(&out, c.r)
		if err != nil || ok != c.ok || len(c.words) == 0 && out.Len() > 0 {
			t.Errorf("%s: %t, %v\n%s", c.name, ok, err, &out)
		}
		rest := out.String()
		for _, w := range c.words {
			_, after, found := strings.Cut(rest, w)
			if !found {
				t.Errorf("%s: no %q in\n%s", c.name, w, &out)
			}
			rest = after
		}
	}
	if _, err := verifyTokenizer(&bytes.Buffer{}, models.Report{Tokenizer: tokenizer, Golden: filepath.Join(t.TempDir(), "gone")}); err == nil {
		t.Error("a golden file that is gone is no error")
	}
}

func TestShortLanguages(t *testing.T) {
	for want, tags := range map[string][]string{
		"-": nil, "en": {"en"}, "en,nl,de,fr": {"en", "nl", "de", "fr"}, "en,nl,de,fr,… (6)": {"en", "nl", "de", "fr", "es", "it"}, "multilingual": {"af", "multilingual"},
	} {
		if got := shortLanguages(tags); got != want {
			t.Errorf("%q: %s, want %s", tags, got, want)
		}
	}
}

func TestNoting(t *testing.T) {
	i := inference.Info{ID: "m", Languages: []string{"en"}}
	if l := (gateFlags{Language: "note"}).noting(i); l.Detector == nil || l.Model != "m" || len(l.Of) != 1 || l.Detector.Language("hoeveel kost het") != "nl" {
		t.Errorf("%+v", l)
	}
	if l := (gateFlags{Language: "off"}).noting(i); l.Detector != nil || len(l.Of) > 0 {
		t.Errorf("off: %+v", l)
	}
}

func TestPrintChunksSaysTheLanguage(t *testing.T) {
	var out bytes.Buffer
	err := printChunks(&out, []byte(`{"chunks":[{"index":0,"relevance":0.5,"decision":"kept","reason":"r"}],"metadata":{"language_note":"the query looks like Dutch"}}`))
	if want := "kept\t0\t0.5000\tr\nlanguage\tthe query looks like Dutch\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v, want %q", out.String(), err, want)
	}
}
