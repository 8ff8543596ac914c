package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ragate/models"
)

func TestLanguagesOfTheCard(t *testing.T) {
	long := "---\nmodel-index:\n- name: x\n" + strings.Repeat("  - {task: [\n", 20_000) + "language: nl\nlicense: mit\n---\n"
	for card, want := range map[string]string{
		"---\nlanguage: en\n---\n":                                     "[en]",
		"---\nlanguage:\n- en\n- nl\n- pt-BR\nlicense: mit\n---\ntext": "[en nl pt-BR]",
		"---\nlanguage:\n  - multilingual\n  - af\n  - no\n---\n":      "[multilingual af no]",
		"---\nlanguage: Multilingual\n---\n":                           "[multilingual]",
		"---\r\nlicense: mit\r\nlanguage:\r\n- de\r\n- de\r\n---\r\n":  "[de]",
		"\xef\xbb\xbf---\nlanguage: [en, zh]\n---\n":                   "[en zh]",
		"---\nlanguage: [\n  \"en\",\n  'fr'\n]\nlicense: mit\n---\n":  "[en fr]",
		"---\nlanguage:\n# the one\n- en\n\n- es\n---\n":               "[en es]",
		long:                                     "[nl]", // what is broken elsewhere does not matter
		"---\nlanguage: english\n---\n":          "[]",
		"---\nlanguage:\n- code\n- en\n---\n":    "[en]",
		"---\nlanguage:\n- {a: b}\n- 7\n---\n":   "[]",
		"---\nlanguage: &a [*a]\n---\n":          "[]",
		"---\nlanguages: en\n---\n":              "[]",
		"---\nlicense: mit\n---\nlanguage: en\n": "[]", // prose
		"# A model\nlanguage: en\n":              "[]",
		"":                                       "[]",
		"---":                                    "[]",
		"---\nlanguage":                          "[]",
		"\xff\xfe---\nlanguage: en":              "[]",
	} {
		m, err := resolve(t, folder(t, "README.md", card, "config.json", `{"architectures":["BertModel"]}`, "1_Pooling/config.json", poolMean))
		if err != nil || fmt.Sprint(m.Languages) != want {
			t.Errorf("%.60q: %v, %v, want %s", card, m.Languages, err, want)
		}
	}
}

func TestLanguagesPrecedence(t *testing.T) {
	base := []string{"1_Pooling/config.json", poolMean, "config.json", `{"architectures":["BertModel"],"language":["fr"]}`}
	for _, c := range []struct {
		files []string
		want  string
	}{
		{nil, "[fr]"},
		{[]string{"README.md", "---\nlanguage: de\n---"}, "[de]"},
		{[]string{"README.md", "---\nlanguage: de\n---", models.OverrideFile, `{"languages":["nl","multilingual"]}`}, "[nl multilingual]"},
		{[]string{"README.md", "---\nlanguage: de\n---", models.OverrideFile, `{"languages":[]}`}, "[]"},
	} {
		m, err := resolve(t, folder(t, append(slices.Clone(base), c.files...)...))
		if err != nil || fmt.Sprint(m.Languages) != c.want {
			t.Errorf("%q: %v, %v, want %s", c.files, m.Languages, err, c.want)
		}
	}
	_, err := resolve(t, folder(t, models.OverrideFile, `{"languages":["en","english","x"]}`))
	if err == nil || !strings.Contains(err.Error(), "`languages[1]` is \"english\"; it must be a language tag") || !strings.Contains(err.Error(), "`languages[2]`") {
		t.Errorf("%v", err)
	}
	for _, e := range models.Catalogue() {
		if len(e.Languages) == 0 {
			t.Errorf("the catalogue does not say which languages %s is for", e.ID)
		}
	}
	list, err := (&models.Store{Dir: t.TempDir()}).List()
	if err != nil || len(list) == 0 {
		t.Fatal(err)
	}
	for _, l := range list {
		if len(l.Languages) == 0 {
			t.Errorf("%s is listed without its languages", l.ID)
		}
	}
}

// TestVerifyFindsTheGoldenFile: beside a model's files, or among the user's own for one of the hub, whose files are pinned.
func TestVerifyFindsTheGoldenFile(t *testing.T) {
	dir := folder(t, "1_Pooling/config.json", poolMean)
	st := &models.Store{Dir: t.TempDir()}
	rep, err := st.Verify(dir)
	if err != nil || rep.Err != nil || rep.Tokenizer != filepath.Join(dir, "tokenizer.json") || rep.Golden != "" {
		t.Errorf("without one: %+v, %v", rep, err)
	}
	golden := filepath.Join(dir, models.GoldenFile)
	if err := os.WriteFile(golden, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if rep, err := st.Verify(dir); err != nil || rep.Golden != golden {
		t.Errorf("%+v, %v", rep, err)
	}
	// A folder that cannot be used is told, as the server would tell it.
	if rep, err := st.Verify(folder(t, "tokenizer.json", "-")); err != nil || rep.Err == nil || rep.Tokenizer != "" || !strings.Contains(rep.Err.Error(), "there is no tokenizer.json") {
		t.Errorf("%+v, %v", rep, err)
	}
	if rep, err := st.Verify(folder(t, models.OverrideFile, `{"kind":"x"}`)); err != nil || rep.Err == nil || !strings.Contains(rep.Err.Error(), "`kind` is x") {
		t.Errorf("%+v, %v", rep, err)
	}
}
