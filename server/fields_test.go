package server

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"ragate/gates"
)

// FuzzWholeNumber: a number is whole exactly when rational arithmetic says so, and has that value.
func FuzzWholeNumber(f *testing.F) {
	for _, seed := range []string{"0", "-0", "1.5", "1.0e1", "0.99999999999999999999", "9223372036854775807", "-9223372036854775808", "1e-999", "1e19", "100e-2", "1E+0", "0e99", "12.30e1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := scanner{data: []byte(text)}
		if len(text) == 0 || text[0] != '-' && (text[0] < '0' || text[0] > '9') || s.number() != nil || s.pos != len(text) {
			return
		}
		got, ok := wholeNumber([]byte(text))
		if _, e, _ := strings.Cut(strings.ToLower(text), "e"); len(e) > 4 {
			if ok && got != 0 && !strings.Contains(e, "0") {
				t.Fatalf("%s is %d", text, got)
			}
			return // the oracle would write the number out
		}
		r, valid := new(big.Rat).SetString(text)
		if !valid {
			t.Fatalf("%q is a number here and not for math/big", text)
		}
		if want := r.IsInt() && r.Num().IsInt64(); ok != want || ok && got != r.Num().Int64() {
			t.Fatalf("%s is %d, %v; exactly it is %s", text, got, ok, r.RatString())
		}
	})
}

// members reads an object as encoding/json does, with exact keys of which the last counts. nil: it is none.
func members(data []byte) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if !utf8.Valid(data) || json.Unmarshal(data, &m) != nil {
		return nil
	}
	return m
}

// asText is the string that raw holds; false when it holds none.
func asText(raw json.RawMessage) (s string, ok bool) {
	ok = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
	return s, ok
}

func null(raw json.RawMessage) bool { return raw == nil || raw[0] == 'n' }

// FuzzFields: every typed reader agrees with encoding/json on what is there, and refuses exactly what is of another type.
func FuzzFields(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(`{"k":` + seed + `}`))
		f.Add([]byte(`{"k":[` + seed + `,"b"]}`))
		f.Add([]byte(`{"k":[{"text":` + seed + `},"b"]}`))
	}
	for _, seed := range []string{
		`{"k":1,"k":["a"]}`, `{"\u006b":["a"]}`, `{"k":[{"text":"a","text":"b","TEXT":"c"}]}`, `{"k":[" , ","]","[",""]}`, `{"k":[[1,2],[3]]}`, `{"k":[1,2.0,3e0]}`, `{"K":"a"}`,
		`{"k":[{"text":null}]}`, `{"k":[]}`, `{"k":[ ]}`, `{"k":"\ud83d\ude00\ud83d"}`, `{"k":true}`, `{"k":"float"}`,
	} {
		f.Add([]byte(seed))
	}
	const most = 8
	f.Fuzz(func(t *testing.T, body []byte) {
		want := members(body)
		read := func(get func(*fields)) *refusal {
			r := readObject(body, "k")
			if r.bad != nil {
				if want != nil && !strings.Contains(r.bad.message, "nested deeper") {
					t.Fatalf("%q: %v", body, r.bad)
				}
				return nil
			}
			get(r)
			if r.bad != nil && (len(r.bad.message) > 500 || !utf8.ValidString(r.bad.message)) {
				t.Fatalf("%q: the message is long or no UTF-8: %q", body, r.bad.message)
			}
			return r.bad
		}
		if readObject(body, "k").bad != nil || want == nil {
			read(func(*fields) {})
			return
		}
		raw := want["k"]
		check := func(what string, bad *refusal, ok bool) {
			if (bad == nil) != ok {
				t.Fatalf("%q read as %s: %v, and it is one: %v", body, what, bad, ok)
			}
		}

		text, isText := asText(raw)
		var s string
		check("text", read(func(r *fields) { s = r.text("k") }), isText)
		if isText && s != text {
			t.Fatalf("%q: %q, want %q", body, s, text)
		}
		check("optional text", read(func(r *fields) { s = r.optText("k") }), isText || null(raw))

		var flag, isFlag bool
		if !null(raw) {
			isFlag = json.Unmarshal(raw, &flag) == nil
		}
		var b bool
		check("flag", read(func(r *fields) { b = r.flag("k", true) }), isFlag || null(raw))
		if isFlag && b != flag || null(raw) && !b {
			t.Fatalf("%q: %v", body, b)
		}

		var items []json.RawMessage
		isList := !null(raw) && json.Unmarshal(raw, &items) == nil
		fits := isList && len(items) > 0 && len(items) <= most
		texts, documents := []string{}, []string{}
		allTexts, allDocuments := fits, fits
		for _, item := range items {
			s, ok := asText(item)
			texts, allTexts = append(texts, s), allTexts && ok
			if !ok && item[0] == '{' {
				s, ok = asText(members(item)["text"])
			}
			documents, allDocuments = append(documents, s), allDocuments && ok
		}
		var list []string
		same := func(want []string) {
			if len(list) != len(want) {
				t.Fatalf("%q: %q, want %q", body, list, want)
			}
			for i := range want {
				if list[i] != want[i] {
					t.Fatalf("%q: %q, want %q", body, list, want)
				}
			}
		}
		bad := read(func(r *fields) { list = r.texts("k", bounds{max: most}, false) })
		if check("list of texts", bad, allTexts); allTexts {
			same(texts)
		}
		if isList && len(items) > most && (bad == nil || bad.kind != kindTooMany || !strings.Contains(bad.message, strconv.Itoa(len(items)))) {
			t.Fatalf("%q: %d items: %v", body, len(items), bad)
		}
		if check("text or list", read(func(r *fields) { list = r.texts("k", bounds{max: most}, true) }), allTexts || isText); isText {
			same([]string{text})
		}
		if check("documents", read(func(r *fields) { list = r.documents("k", bounds{max: most}) }), allDocuments); allDocuments {
			same(documents)
		}

		var v float64
		isNumber := !null(raw) && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
		fitsFloat := isNumber && json.Unmarshal(raw, &v) == nil
		var n float64
		var there bool
		check("number", read(func(r *fields) { n, there = r.number("k") }), fitsFloat || null(raw))
		if fitsFloat && (n != v || !there) || null(raw) && there {
			t.Fatalf("%q: %v, %v, want %v", body, n, there, v)
		}
		read(func(r *fields) { r.noTokenIDs("k") })
		read(func(r *fields) { r.count("k", 7) })
		read(func(r *fields) { r.whole("k") })
		read(func(r *fields) { r.choice("k", "float", "float", "base64") })
		read(func(r *fields) { r.choices("k", "float", "base64") })
		read(func(r *fields) { r.object("k", "text").text("text") })
	})
}

// FuzzChunks: chunks and turns are read as encoding/json reads them, what is echoed is what came, and what is not their form is refused by its place.
func FuzzChunks(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(`[{"text":` + seed + `}]`))
		f.Add([]byte(`[{"text":"a","id":` + seed + `},{"text":"b","similarity":` + seed + `,"metadata":` + seed + `}]`))
		f.Add([]byte(`[{"role":"user","content":` + seed + `}]`))
	}
	for _, seed := range []string{
		`[]`, `[ ]`, `null`, `{}`, `[{"text":"a","id":1e400,"metadata":{"a":{"b":[1,2]}},"similarity":-1e300}]`, `[{"text":"a","text":"b"}]`, `[{"id":"x","id":7,"text":"a"}]`,
		`[{"text":"a","nope":1}]`, `[{"\u0074ext":"a"}]`, `[{"role":"a","content":"b","name":"c"},{"role":"d","content":"e"}]`, `[{"text":"a","id":null,"metadata":null,"similarity":null}]`,
	} {
		f.Add([]byte(seed))
	}
	const most = 4
	f.Fuzz(func(t *testing.T, list []byte) {
		body := append(append([]byte(`{"k":`), list...), '}')
		outer := members(body)
		r := readObject(body, "k")
		if r.bad != nil || outer == nil || len(outer) != 1 {
			return // FuzzScan and FuzzFields look at those
		}
		var items []json.RawMessage
		isList := !null(outer["k"]) && json.Unmarshal(outer["k"], &items) == nil
		wellFormed := isList && len(items) <= most
		for _, item := range items {
			m := members(item)
			_, isText := asText(m["text"])
			ok := m != nil && isText
			for k := range m {
				ok = ok && (k == "id" || k == "text" || k == "similarity" || k == "metadata")
			}
			if id := m["id"]; !null(id) {
				ok = ok && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
			}
			if v := m["similarity"]; !null(v) {
				ok = ok && json.Unmarshal(v, new(float64)) == nil
			}
			if v := m["metadata"]; !null(v) {
				ok = ok && v[0] == '{'
			}
			wellFormed = wellFormed && ok
		}
		chunks := r.chunks("k", bounds{max: most})
		if (r.bad == nil) != wellFormed {
			t.Fatalf("%q: %v, and it is well formed: %v", body, r.bad, wellFormed)
		}
		if r.bad == nil {
			if len(chunks) != len(items) {
				t.Fatalf("%q: %d chunks", body, len(chunks))
			}
			for i, c := range chunks {
				m := members(items[i])
				if text, _ := asText(m["text"]); c.text != text {
					t.Fatalf("%q: text %q", items[i], c.text)
				}
				for _, echoed := range []struct {
					got  []byte
					want json.RawMessage
				}{{c.id, m["id"]}, {c.metadata, m["metadata"]}} {
					if null(echoed.want) != (echoed.got == nil) || !null(echoed.want) && !bytes.Equal(echoed.got, repaired(echoed.want)) {
						t.Fatalf("%q: %s is echoed as %q", items[i], echoed.want, echoed.got)
					}
				}
			}
		}

		h := readObject(body, "k")
		turns := h.history("k")
		wellFormed = null(outer["k"]) || isList && len(items) <= maxHistory
		var want []gates.Turn
		for _, item := range items {
			m := members(item)
			role, ok1 := asText(m["role"])
			content, ok2 := asText(m["content"])
			wellFormed = wellFormed && ok1 && ok2
			for name := range m {
				wellFormed = wellFormed && (name == "role" || name == "content")
			}
			want = append(want, gates.Turn{Role: role, Content: content})
		}
		if (h.bad == nil) != wellFormed {
			t.Fatalf("%q as turns: %v, and it is well formed: %v", body, h.bad, wellFormed)
		}
		if h.bad == nil && len(turns) != len(want) {
			t.Fatalf("%q: %d turns", body, len(turns))
		}
		for i := range turns {
			if h.bad == nil && turns[i] != want[i] {
				t.Fatalf("%q: turn %d is %q", body, i, turns[i])
			}
		}
		for _, bad := range []*refusal{r.bad, h.bad} {
			if bad != nil && (len(bad.message) > 600 || !utf8.ValidString(bad.message)) {
				t.Fatalf("%q: the message is long or no UTF-8: %q", body, bad.message)
			}
		}
	})
}

// FuzzKeys: a list of keys is refused, or each of its keys opens the server under its name, and nothing else does.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"", "a", "a:b", "a:b,c", " a : b , c ", ",", ":", "a:b:c", "é", "a,a", "x:a,y:a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		keys, err := ParseKeys(list)
		if err != nil {
			if keys != nil {
				t.Fatal("keys beside an error")
			}
			return
		}
		ring := newKeyring(keys)
		for _, k := range keys {
			if name, ok := ring.find(map[string][]string{"Authorization": {"Bearer " + k.Key}}); !ok || name != k.Name {
				t.Fatalf("%q: the key of %q opens as %q, %v", list, k.Name, name, ok)
			}
		}
		if _, ok := ring.find(map[string][]string{"X-Api-Key": {list + "x"}}); ok && len(keys) > 0 {
			t.Fatalf("%q: a wrong key opens", list)
		}
	})
}
