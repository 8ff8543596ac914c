package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files writes files into a folder, by name and text.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadTurns(t *testing.T) {
	const two = `{"text":"what is VAT","label":"knowledge","lang":"en","category":"tax","more":[1]}` + "\n" +
		`{"text":"go on","label":"chitchat","history":[{"role":"user","content":"a"}]}`
	for name, text := range map[string]string{
		"plain": two, "crlf": strings.ReplaceAll(two, "\n", "\r\n") + "\r\n", "bom": "\xef\xbb\xbf" + two, "blank lines": "\n" + two + "\n\n \n", "gzip": zipped(t, two),
	} {
		turns, err := readTurns(filepath.Join(files(t, map[string]string{"d.jsonl": text}), "d.jsonl"))
		if err != nil || len(turns) != 2 || turns[0].text != "what is VAT" || turns[0].lang != "en" || turns[0].category != "tax" ||
			turns[1].label != "chitchat" || len(turns[1].history) != 1 || turns[1].history[0].Content != "a" {
			t.Errorf("%s: %+v, %v", name, turns, err)
		}
	}
	if turns, err := readTurns(filepath.Join(files(t, map[string]string{"d.jsonl.gz": zipped(t, two)}), "d.jsonl")); err != nil || len(turns) != 2 {
		t.Errorf("only d.jsonl.gz is there: %v, %v", turns, err)
	}
}

func TestReadTurnsRefuses(t *testing.T) {
	good := `{"text":"a","label":"knowledge"}` + "\n"
	for text, want := range map[string]string{
		"": "no turns", "\n \n": "no turns", good + `{"label":"knowledge"}`: "d.jsonl:2: text is missing", good + `{"text":null,"label":"knowledge"}`: ":2: text is missing",
		`{"text":"a"}`: `label is ""`, `{"text":"a","label":"Knowledge"}`: `label is "Knowledge"`, good + "{": "d.jsonl:2: no JSON object", `[{"text":"a"}]`: "an object was expected",
		`{"text":1,"label":"knowledge"}`: "text cannot be of type number", `{"text":"a","label":"knowledge","history":"b"}`: "history cannot be of type string",
		"{\"text\":\"caf\xe9\",\"label\":\"knowledge\"}": "not UTF-8", good + strings.Repeat("x", maxLine+2): "d.jsonl:2: the line is longer",
	} {
		want = strings.Replace(want, "an object was", "a JSON object was", 1)
		_, err := readTurns(filepath.Join(files(t, map[string]string{"d.jsonl": text}), "d.jsonl"))
		var u *usageError
		if err == nil || !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want a usage error with %q", text, err, want)
		}
	}
	if _, err := readTurns(t.TempDir()); err == nil {
		t.Error("a folder is read as turns")
	}
}

const (
	corpusText  = `{"_id":"d1","title":"","text":"one"}` + "\n" + `{"_id":2,"title":"Two","text":"more"}` + "\n" + `{"_id":"d3","title":"Three","text":"Three is here"}` + "\n"
	queriesText = `{"_id":"q1","text":"first"}` + "\n" + `{"_id":"q2","text":"second"}` + "\n" + `{"_id":"train","text":"of another split"}` + "\n"
	qrelsText   = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\t2\t0\ngone\td1\t1\n"
)

func TestReadCollection(t *testing.T) {
	for name, qrels := range map[string]map[string]string{
		"one file":         {"qrels.tsv": qrelsText},
		"the split":        {"qrels/test.tsv": qrelsText, "qrels/train.tsv": "query-id\tcorpus-id\tscore\ntrain\td1\t1\n"},
		"the only split":   {"qrels/dev.tsv": qrelsText},
		"gzip":             {"qrels/test.tsv.gz": zipped(t, qrelsText)},
		"no header, crlf":  {"qrels.tsv": "q1\td1\t2\r\nq2\t2\t0\r\n"},
		"TREC's columns":   {"qrels.tsv": "q1 0 d1 2\nq2 0 2 0\n"},
		"grades as floats": {"qrels.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2.0\nq2\t2\t0.0\n"},
	} {
		qrels["corpus.jsonl"], qrels["queries.jsonl"] = corpusText, queriesText
		c, err := readCollection(files(t, qrels), "test")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(c.ids, []string{"d1", "2", "d3"}) || !slices.Equal(c.texts, []string{"one", "Two. more", "Three is here"}) ||
			!slices.Equal(c.querys, []string{"first", "second"}) || c.grades["q1"]["d1"] != 2 || c.grades["q2"]["2"] != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestReadCollectionRefuses(t *testing.T) {
	for _, c := range []struct {
		change map[string]string
		want   string
	}{
		{map[string]string{"corpus.jsonl": corpusText + `{"_id":"d1","text":"again"}`}, `corpus.jsonl:4: _id "d1" is that of line 1 too`},
		{map[string]string{"corpus.jsonl": `{"text":"one"}`}, "corpus.jsonl:1: _id is missing"},
		{map[string]string{"corpus.jsonl": `{"_id":true,"text":"one"}`}, "must be a text or a number"},
		{map[string]string{"queries.jsonl": `{"_id":"q1"}`}, "queries.jsonl:1: text is missing"},
		{map[string]string{"corpus.jsonl": ""}, "0 texts"},
		{map[string]string{"qrels.tsv": "query-id\tcorpus-id\tscore\nother\td1\t1\n"}, "judges 0"},
		{map[string]string{"qrels.tsv": qrelsText + "q1\td2\n"}, "qrels.tsv:5: 2 columns"},
		{map[string]string{"qrels.tsv": qrelsText + "q1\td2\t0.5\n"}, "whole number"},
		{map[string]string{"qrels.tsv": qrelsText + "q1\td2\tNaN\n"}, "whole number"},
		{map[string]string{"qrels.tsv": "\x00", "qrels/a.tsv": qrelsText, "qrels/b.tsv": qrelsText}, ""},
	} {
		texts := map[string]string{"corpus.jsonl": corpusText, "queries.jsonl": queriesText, "qrels.tsv": qrelsText}
		for name, text := range c.change {
			texts[name] = text
		}
		if c.want == "" { // no qrels.tsv, and two splits of other names
			delete(texts, "qrels.tsv")
			c.want = `--split is "test"`
		}
		if _, err := readCollection(files(t, texts), "test"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.change, err, c.want)
		}
	}
	if _, err := readCollection(filepath.Join(t.TempDir(), "nowhere"), "test"); err == nil {
		t.Error("a folder that is not there is read")
	}
}

func TestReadRequests(t *testing.T) {
	dir := files(t, map[string]string{"r.jsonl": `{"query":"a","chunks":[{"id":7,"text":"x","relevant":true,"metadata":{"k":1}},{"text":"y","grade":2,"similarity":0.5},{"text":"z","relevant":false}]}` +
		"\n" + `{"query":"b","chunks":[]}`})
	got, err := readRequests(filepath.Join(dir, "r.jsonl"))
	if err != nil || len(got) != 2 || len(got[0].chunks) != 3 || got[0].ideal != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []struct {
		id    string
		grade int
	}{{"7", 1}, {"1", 2}, {"2", 0}} {
		if c := got[0].chunks[i]; c.id != want.id || c.grade != want.grade {
			t.Errorf("chunk %d: %+v, want %+v", i, c, want)
		}
	}
	if c := got[0].chunks; c[0].chunk.Metadata == nil || c[0].chunk.Similarity != nil || *c[1].chunk.Similarity != 0.5 {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{
		`{"chunks":[]}`: "query is missing", `{"query":"a","chunks":[{"relevant":true}]}`: "chunks[0].text is missing", `{"query":"a","chunks":[{"text":"b"}]}`: "chunks[0] has no label",
		`{"query":"a","chunks":[{"text":"b","grade":1.5}]}`: "whole number", "": "no requests",
	} {
		if _, err := readRequests(filepath.Join(files(t, map[string]string{"r.jsonl": text}), "r.jsonl")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
