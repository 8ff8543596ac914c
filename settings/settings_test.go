package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	count := Setting{Name: "count", Kind: Integer, Range: Range{Min: "1", Max: "10"}}
	orZero := Setting{Name: "or-zero", Kind: Integer, Range: Range{Min: "1", Zero: "the default"}}
	slice := Setting{Name: "slice", Kind: Duration, Range: Range{Min: "1ns"}}
	hour := Setting{Name: "hour", Kind: Duration, Range: Range{Max: "1h"}}
	on := Setting{Name: "on", Kind: Switch}
	level := Setting{Name: "level", Choices: []string{"debug", "info", "error"}}
	secret := Setting{Name: "secret", Kind: Integer, Secret: true}
	for _, c := range []struct {
		s    Setting
		text string
		want string // "" when it passes
	}{
		{count, "1", ""}, {count, "10", ""}, {count, "010", ""},
		{count, "0", "is 0: it must be at least 1 and at most 10"},
		{count, "11", "is 11: it must be at least 1 and at most 10"},
		{count, "", `is "": it must be a whole number, at least 1 and at most 10`},
		{count, "1.5", `is "1.5": it must be a whole number, at least 1 and at most 10`},
		{count, "1e3", `is "1e3": it must be a whole number, at least 1 and at most 10`},
		{count, "0x4", `is "0x4": it must be a whole number, at least 1 and at most 10`},
		{count, "1_0", `is "1_0": it must be a whole number, at least 1 and at most 10`},
		{count, "99999999999999999999", `is "99999999999999999999": it must be a whole number, at least 1 and at most 10`},
		{orZero, "0", ""}, {orZero, "7", ""},
		{orZero, "-1", "is -1: it must be at least 1, or 0 for the default"},
		{slice, "1ns", ""}, {slice, "1m30s", ""},
		{slice, "0s", "is 0s: it must be longer than 0"},
		{slice, "-5s", "is -5s: it must be longer than 0"},
		{slice, "20", `is "20": it must be a time with its unit, such as 20ms, 30s or 1m30s, longer than 0`},
		{hour, "1h", ""}, {hour, "61m", "is 61m: it must be at most 1h"},
		{on, "true", ""}, {on, "FALSE", ""}, {on, "1", ""}, {on, "no", ""},
		{on, "perhaps", `is "perhaps": it must be true or false`},
		{level, "info", ""},
		{level, "inof", `is "inof": it must be one of debug, info, error; did you mean info?`},
		{level, "loudest", `is "loudest": it must be one of debug, info, error`},
		{secret, "hunter2", "it must be a whole number"},
		{count, strings.Repeat("é", 100), `is "` + strings.Repeat("é", 40) + `" and more: it must be a whole number, at least 1 and at most 10`},
	} {
		got := ""
		if err := c.s.Check(c.text); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %q: %q, want %q", c.s.Name, c.text, got, c.want)
		}
	}
}

func TestParseRange(t *testing.T) {
	if r, err := ParseRange("1..5", "all"); err != nil || r != (Range{"1", "5", "all"}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := ParseRange("..5", ""); err != nil || r != (Range{"", "5", ""}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := ParseRange("", ""); err != nil || r != (Range{}) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ParseRange("1-5", ""); err == nil {
		t.Error("a range without dots passed")
	}
}

func TestNearest(t *testing.T) {
	known := []string{"max-items", "max-documents", "max-tokens", "listen", "slice", "streams", "threads", "api-key", "api-key-file", "tls-key", "log-level"}
	for name, want := range map[string]string{
		"max-itms": "max-items", "max_items": "max-items", "MAX_ITEMS": "max-items", "maxitems": "max-items", "max-tiems": "max-items",
		"max-document": "max-documents", "lisen": "listen", "sclie": "slice", "api-keys": "api-key", "apikeyfile": "api-key-file",
		"loglevel": "log-level", "tls-key-file": "api-key-file", "x": "", "": "", "completely-different": "", "li": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"ca", "abc", 3}, {"abcd", "acbd", 1},
	} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// known are settings of every kind.
var known = []Setting{
	{Name: "listen"}, {Name: "level", Choices: []string{"info", "warn"}}, {Name: "items", Kind: Integer, Range: Range{Min: "1"}},
	{Name: "slice", Kind: Duration}, {Name: "truncate", Kind: Switch}, {Name: "policies", Kind: List}, {Name: "key", Secret: true},
}

func TestDecode(t *testing.T) {
	got, problems := Decode("r.yaml", []byte("\ufeff# a comment\nlisten: 127.0.0.1:80\nlevel: &l warn\nitems: 7\nslice: 20ms\ntruncate: False\n"+
		"policies:\n  - a.yaml\n  - 'b,c.yaml'\nkey: 0123\n"), known)
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	want := map[string]Value{
		"listen": {Text: "127.0.0.1:80", Line: 2}, "level": {Text: "warn", Line: 3}, "items": {Text: "7", Line: 4}, "slice": {Text: "20ms", Line: 5},
		"truncate": {Text: "False", Line: 6}, "policies": {List: []string{"a.yaml", "b,c.yaml"}, Line: 7}, "key": {Text: "0123", Line: 10},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// What is set to nothing is not set, as with variables; one text is a list with commas.
	got, problems = Decode("r.yaml", []byte("listen:\nitems: ~\nslice: ''\npolicies: a,b\n"), known)
	if len(problems) != 0 || len(got) != 1 || !slices.Equal(got["policies"].List, []string{"a", "b"}) {
		t.Errorf("%v, %v", got, problems)
	}
	if got, problems = Decode("r.yaml", []byte("{}"), known); len(got) != 0 || len(problems) != 0 {
		t.Errorf("{}: %v, %v", got, problems)
	}
}

func TestDecodeReportsEverything(t *testing.T) {
	for text, want := range map[string][]string{
		"":                              {"r.yaml: holds no settings: write some, leave the file out, or put {} into it"},
		"# only this\n":                 {"r.yaml: holds no settings: write some, leave the file out, or put {} into it"},
		"---\n~\n":                      {"r.yaml: holds no settings: write some, leave the file out, or put {} into it"},
		"- a\n- b\n":                    {"r.yaml:1: is a list: it must be a mapping, one `name: value` a line"},
		"\njust text\n":                 {"r.yaml:2: is a single value: it must be a mapping, one `name: value` a line"},
		"\xff\xfel\x00":                 {"r.yaml:1: begins with the byte order mark of UTF-16: save it as UTF-8"},
		"listen: a\nlevel: \xe9\n":      {"r.yaml:2: is not UTF-8 (byte 0xe9): save it as UTF-8"},
		"listen: [\n":                   {"r.yaml:1: is not YAML: "},
		"listen: a: b\n":                {"r.yaml:1: is not YAML: "},
		"listen: a\n\tlevel: info\n":    {"r.yaml:2: is not YAML: "},
		"listen: a\n---\nlevel: info\n": {"r.yaml:2: holds a second document"},
		"lisen: x\nitems: 0\nitems: 5\nslice: 20\ntruncate: 1\nlevel: wran\npolicies: [a, {b: c}, '']\nkey: [a]\nlisten: {a: b}\n[a]: b\nsomething: else\n": {
			`r.yaml:1: there is no setting "lisen"; did you mean listen?`,
			"r.yaml:2: items is 0: it must be at least 1",
			"r.yaml:3: items is set on line 2 already",
			`r.yaml:4: slice is "20": it must be a time with its unit, such as 20ms, 30s or 1m30s`,
			`r.yaml:5: truncate is "1": it must be true or false`,
			`r.yaml:6: level is "wran": it must be one of info, warn; did you mean warn?`,
			"r.yaml:7: policies[1] is a mapping: it must be a text",
			"r.yaml:7: policies[2] is empty: it must be a text",
			"r.yaml:8: key is a list: it must be a text",
			"r.yaml:9: listen is a mapping: it must be a text",
			"r.yaml:10: a key is a list: it must be the name of a setting",
			`r.yaml:11: there is no setting "something"`,
		},
		"<<: {listen: a}\n":                       {`r.yaml:1: there is no setting "<<"`},
		"listen: " + strings.Repeat("x", maxFile): {"r.yaml: is 1048584 bytes long: it must be at most 1048576"},
	} {
		_, problems := Decode("r.yaml", []byte(text), known)
		if len(problems) != len(want) {
			t.Errorf("%.40q: %d problems, want %d: %v", text, len(problems), len(want), problems)
			continue
		}
		for i, p := range problems {
			if !strings.HasPrefix(p.Error(), want[i]) || strings.Contains(p.Error(), "\n") {
				t.Errorf("%.40q: %q, want %q", text, p.Error(), want[i])
			}
		}
	}
}

// FuzzDecode: no file makes the decoder panic, and every value that it hands out passes the setting's own check.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "listen: a", "items: 5\nitems: 6", "policies: [a, b]", "a: &a [*a]", "<<: *x", "? [x]\n: y", "truncate: yes", "---\n---\n", "key: !!binary aGk="} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, problems := Decode("f", data, known)
		for _, p := range problems {
			if p.Text == "" || p.Where == "" {
				t.Errorf("an empty problem: %+v", p)
			}
		}
		for _, s := range known {
			if v, ok := values[s.Name]; ok {
				if v.List != nil != (s.Kind == List) {
					t.Errorf("%s: %+v", s.Name, v)
				}
				if err := s.Check(v.Text); err != nil && s.Kind != List {
					t.Errorf("%s was handed out: %v", s.Name, err)
				}
			}
		}
	})
}

func TestUnknown(t *testing.T) {
	names := []string{"APP_MAX_ITEMS", "APP_LISTEN", "APP_DATA_DIR"}
	environ := []string{"PATH=/bin", "APP_LISTEN=x", "APP_MAX_ITEM=3", "APP_WHATEVER=1", "APPLE=1",
		// what Kubernetes makes of Services named app and app-cache
		"APP_SERVICE_HOST=10.0.0.1", "APP_SERVICE_PORT=80", "APP_SERVICE_PORT_HTTP=80", "APP_PORT=tcp://10.0.0.1:80", "APP_PORT_8080_TCP=tcp://10.0.0.1:80",
		"APP_PORT_8080_TCP_PROTO=tcp", "APP_PORT_8080_TCP_PORT=8080", "APP_PORT_8080_TCP_ADDR=10.0.0.1", "APP_CACHE_SERVICE_HOST=10.0.0.2", "APP_CACHE_PORT=tcp://x"}
	got := Unknown(environ, "APP_", names)
	want := []string{"APP_MAX_ITEM: there is no such setting; did you mean APP_MAX_ITEMS?", "APP_WHATEVER: there is no such setting"}
	if len(got) != len(want) || got[0].Error() != want[0] || got[1].Error() != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
}
