package openapi

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

var numbers = map[string]int64{
	"max_body_bytes": 1, "max_items": 2, "max_documents": 3, "max_history": 4, "max_depth": 5, "budget_ms": 6, "body_timeout_s": 7,
}

func TestRender(t *testing.T) {
	doc, err := Render(Values{Version: `v1 "quoted" <b>`, Numbers: numbers})
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Info  struct{ Version, Description string }
		Paths map[string]any
	}
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	if v.Info.Version != `v1 "quoted" <b>` || !strings.Contains(v.Info.Description, "at most 1 bytes") || len(v.Paths) < 30 {
		t.Errorf("%q, %d paths", v.Info, len(v.Paths))
	}
	// Members stand as in the source, so that a reader of the JSON finds its way.
	at := -1
	for _, member := range []string{`"openapi":`, `"info":`, `"servers":`, `"tags":`, `"/v1/gate/query":`, `"/v1/embeddings":`, `"/docs":`, `"components":`} {
		i := strings.Index(string(doc), member)
		if i <= at {
			t.Errorf("%s is at %d, behind what follows it in the source", member, i)
		}
		at = i
	}
}

// A comma in a text without quotes would end it in YAML, and the rest become a member without a value.
func TestNoMemberWithoutValue(t *testing.T) {
	doc, err := Render(Values{Numbers: numbers})
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		seen++
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				if name != "value" { // of an example: as the server answers
					walk(at+"/"+name, member)
				}
			}
		case []any:
			for _, item := range v {
				if item != nil { // an alternative of an enum
					walk(at, item)
				}
			}
		case nil:
			t.Errorf("%s has no value", at)
		}
	}
	walk("", v)
	if seen < 2000 {
		t.Errorf("only %d places were looked at", seen)
	}
}

func TestRenderRefuses(t *testing.T) {
	fewer := maps.Clone(numbers)
	delete(fewer, "max_items")
	more := maps.Clone(numbers)
	more["max_luck"] = 7
	for word, n := range map[string]map[string]int64{"no value for <max_items>": fewer, "nothing in openapi.yaml says <max_luck>": more} {
		if _, err := Render(Values{Numbers: n}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %q", err, word)
		}
	}
}
