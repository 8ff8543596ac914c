package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// jsonSeeds are texts at the borders of the grammar, for the table and for the fuzzers.
var jsonSeeds = []string{
	`{}`, `[]`, `null`, `true`, `false`, `0`, `-0`, `-`, `01`, `1.`, `.5`, `1.5e+3`, `1e`, `1E-400`, `1e400`, `123456789012345678901234567890`,
	`""`, `"a`, `"\u00e9\ud83d\ude00"`, `"\ud83d"`, `"\udc00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\u12"`, `"\x"`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"",
	` { "a" : [ 1 , 2 ] , "b" : { } } `, `{"a":1,}`, `{"a"}`, `{"a":}`, `{,}`, `[,]`, `[1,]`, `[1 2]`, `{"a":1 "b":2}`, `{1:2}`, `{"a":1}}`, `{"a":1}]`,
	`tru`, `truee`, `nulll`, `NaN`, `Infinity`, `'a'`, `{"a":'b'}`, `// c`, `{"a":1}//c`, "\u00a0{}", "\ufeff{}", `{"input":"a"}`, "\t\r\n {}\n",
	`{"a":"\"\\\/\b\f\n\r\t"}`, `[[[[[[]]]]]]`, `{"":{"":{"":0}}}`, strings.Repeat("[", 64) + strings.Repeat("]", 64),
}

// sameAsReference compares the scanner with encoding/json: they accept the same texts (up to maxDepth), and find the same members.
func sameAsReference(t *testing.T, data []byte) {
	t.Helper()
	var keys []string
	var values [][]byte
	notObject, err := scanObject(data, func(key, value []byte) {
		keys = append(keys, unquote(key))
		values = append(values, value)
	})
	if !utf8.Valid(data) {
		return // the scanner is only given UTF-8; here it must merely not panic
	}
	if err != nil && strings.Contains(err.Error(), "nested deeper") {
		return
	}
	if want := json.Valid(data); (err == nil) != want {
		t.Fatalf("%q: scan says %v, encoding/json says %v", data, err, want)
	}
	if err != nil || notObject != "" {
		return
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for i, k := range keys {
		got[k] = values[i] // the last counts, as in the reference
	}
	if len(got) != len(want) {
		t.Fatalf("%q: members %q, want %d", data, keys, len(want))
	}
	for k, raw := range want {
		if !bytes.Equal(got[k], raw) {
			t.Fatalf("%q: %q is %s, want %s", data, k, got[k], raw)
		}
		if raw[0] == '"' {
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			if u := unquote(raw); u != s {
				t.Fatalf("%s is %q, want %q", raw, u, s)
			}
		}
	}
}

func TestScanAgreesWithReference(t *testing.T) {
	for _, seed := range jsonSeeds {
		sameAsReference(t, []byte(seed))
		sameAsReference(t, []byte(`{"k":`+seed+`}`))
		sameAsReference(t, []byte(`{"k":[1,`+seed+`],"l":2}`))
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(seed))
		f.Add([]byte(`{"k":` + seed + `}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsReference(t, data) })
}

func TestDepthIsBoundedExactly(t *testing.T) {
	nest := func(n int) []byte { return []byte(`{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`) }
	if _, err := scanObject(nest(maxDepth), nil); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	if _, err := scanObject(nest(maxDepth+1), nil); err == nil {
		t.Errorf("%d levels passed", maxDepth+1)
	}
}

func TestWholeNumber(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "7": 7, "-3": -3, "7.0": 7, "7e0": 7, "70E-1": 7, "1.5e1": 15, "9223372036854775807": 1<<63 - 1, "9007199254740992.0": 1 << 53, "9223372036854775807.0": 1<<63 - 1, "-9223372036854775808": -1 << 63, "0e999999999999": 0, "0.000e-5": 0,
		"100e-2": 1, "1000000000000000000000e-20": 10, "0.0000000000000000000012E22": 12, "-1.0e+3": -1000,
	} {
		if got, ok := wholeNumber([]byte(text)); !ok || got != want {
			t.Errorf("%s is %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"0.99999999999999999999999999", "1.00000000000000000000000000001", "1e-999", "1e99999999999999999999", "1e-99999999999999999999", "-9223372036854775809", "9007199254740993.5", "1.5", "-0.1", "1e-1", "1e400", "-1e400", "9223372036854775808", "99999999999999999999", "1e19", "1e300"} {
		if got, ok := wholeNumber([]byte(text)); ok {
			t.Errorf("%s passed as %d", text, got)
		}
	}
}

// A field that was not announced is a bug of this package and must show at once.
func TestUnannouncedFieldPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("asking for an unannounced field went through")
		}
	}()
	readObject([]byte(`{"a":1}`), "a").raw("b")
}

// A message repeats only the beginning of what a client sent.
func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat("é", 5000)
	f := readObject([]byte(`{"encoding_format":"`+long+`"}`), "encoding_format")
	f.choice("encoding_format", "float", "float", "base64")
	if f.bad == nil || len(f.bad.message) > 300 || !utf8.ValidString(f.bad.message) {
		t.Errorf("%v", f.bad)
	}
}

func BenchmarkReadObject(b *testing.B) {
	body := []byte(`{"model":"m","input":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("The contract may be ended \\u00e9 ", 16)+`",`, 256), ",") + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		f := readObject(body, "input", "model", "encoding_format", "dimensions", "input_type")
		if got := f.texts("input", bounds{max: 2048}, true); len(got) != 256 || f.bad != nil {
			b.Fatal(len(got), f.bad)
		}
	}
}

func BenchmarkReadObjectReference(b *testing.B) {
	body := []byte(`{"model":"m","input":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("The contract may be ended \\u00e9 ", 16)+`",`, 256), ",") + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var doc struct {
			Input []string `json:"input"`
			Model string   `json:"model"`
		}
		if err := json.Unmarshal(body, &doc); err != nil || len(doc.Input) != 256 {
			b.Fatal(err)
		}
	}
}
