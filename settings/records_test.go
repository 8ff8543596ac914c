package settings

import (
	"fmt"
	"strings"
	"testing"
)

var shelves = Setting{Name: "shelves", Kind: Records, Fields: []Setting{
	{Name: "name", Required: true, Unique: true, Help: "what it is called"}, {Name: "max-books", Kind: Integer, Range: Range{Min: "1"}}, {Name: "tall", Kind: Switch},
}}

// TestParseRecords: the text form, with what a value may hold.
func TestParseRecords(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", " ;\n; ": "[]",
		"name=a":                           "[map[name:a]]",
		" name = a , max_books=3;name=b\n": "[map[max-books:3 name:a] map[name:b]]",
		`name=a\,b\;c\\d,tall=yes`:         `[map[name:a,b;c\d tall:yes]]`,
		"name=a=b,max-books=":              "[map[name:a=b]]",
	} {
		records, problems := shelves.ParseRecords("V", text)
		var got []map[string]string
		for _, r := range records {
			got = append(got, r.Values)
		}
		if len(problems) > 0 || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, want %s (%v)", text, got, want, problems)
		}
	}
	_, problems := shelves.ParseRecords("V", "x;max-books=0,name=a;nam=b,tall=2")
	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	want := []string{`V: entry 1: holds "x": write NAME=VALUE, with commas between them`, "V: entry 1: has no name: what it is called", "V: entry 2: max-books is 0: it must be at least 1",
		`V: entry 3: has no field "nam"; did you mean name?`, `V: entry 3: tall is "2": it must be true or false`, "V: entry 3: has no name: what it is called"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDecodeRecords: the same from a file, with the line of each fault; names that are taken twice.
func TestDecodeRecords(t *testing.T) {
	values, problems := Decode("f", []byte("shelves:\n- &one {name: a, max-books: 3}\n- name: b\n  tall: true\n- *one\n"), []Setting{shelves})
	if got := values["shelves"]; len(problems) > 0 || len(got.Records) != 3 || got.Line != 1 || got.Records[1].Where != "f:3" || got.Records[2].Values["max-books"] != "3" {
		t.Errorf("%+v %v", got, problems)
	}
	twice := shelves.CheckUnique(values["shelves"].Records)
	if len(twice) != 1 || twice[0].Error() != `f:2: the name "a" is taken by f:2 already` {
		t.Errorf("%v", twice)
	}
	for text, want := range map[string]string{
		"shelves: 3":                          "f:1: shelves is a single value: it must be a list of mappings",
		"shelves: {name: a}":                  "f:1: shelves is a mapping: it must be a list of mappings",
		"shelves:\n- name: a\n  nome: b":      `f:3: shelves[0] has no field "nome"; did you mean name?`,
		"shelves:\n- name: a\n  weight: b":    `f:3: shelves[0] has no field "weight": it may have name, max-books, tall`,
		"shelves:\n- name: a\n  tall: [1]":    "f:3: shelves[0] tall is a list: it must be a single value",
		"shelves:\n- max-books: 3":            "f:2: shelves[0] has no name: what it is called",
		"shelves:\n- name: a\n- a":            "f:3: shelves[1] is a single value: it must be a mapping, such as {name: …}",
		"shelves:\n- {name: a, name: b}":      "f:2: shelves[0] name is given twice",
		"shelves:\n- {name: a, [x]: b}":       "f:2: shelves[0] has a key that is a list: it must be the name of a field",
		"shelves:\n- {name: a, max_books: x}": `f:2: shelves[0] max-books is "x": it must be a whole number, at least 1`,
	} {
		_, problems := Decode("f", []byte(text), []Setting{shelves})
		if len(problems) != 1 || problems[0].Error() != want {
			t.Errorf("%q: %v, want %s", text, problems, want)
		}
	}
	if values, problems := Decode("f", []byte("shelves:\n"), []Setting{shelves}); len(values)+len(problems) > 0 {
		t.Errorf("an empty key: %v %v", values, problems)
	}
}
