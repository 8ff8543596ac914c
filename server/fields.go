package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fields reads the values of one JSON object. The first thing that is wrong is kept in bad and later reads yield zero values, so a
// handler reads all it needs and then looks once.
//
// The rules are the same for all: null counts as absent for an optional field and is refused for a required one; of duplicate keys the
// last counts; names are matched exactly; what is not asked for is ignored.
type fields struct {
	names  []string // the fields this reader may be asked for
	values [][]byte // beside names; nil where absent
	prefix string   // of the names in messages, such as "inputs."
	bad    *refusal

	foreign string // a field of another dialect's body that was seen, see signature
}

// signature holds the fields by which a body of another dialect is known, and where it belongs. It only serves hints.
var signature = map[string]string{
	"input":     "/v1/embeddings",
	"inputs":    "/embed",
	"texts":     "/rerank or /v2/embed",
	"documents": "/v1/rerank",
}

// readObject parses body, which must be one JSON object, for the given fields.
func readObject(body []byte, names ...string) *fields {
	f := &fields{names: names, values: make([][]byte, len(names))}
	notObject, err := scanObject(body, func(key, value []byte) {
		for i, name := range names {
			if keyIs(key, name) {
				f.values[i] = value
				return
			}
		}
		if f.foreign == "" && len(key) < 16 {
			if name := string(key[1 : len(key)-1]); signature[name] != "" {
				f.foreign = name
			}
		}
	})
	switch {
	case err != nil:
		f.bad = &refusal{kind: kindBody, message: err.Error()}
	case notObject != "":
		f.bad = refuse(kindField, "", "the body must be a JSON object with %s, not %s", quoteNames(names[:1]), notObject)
	}
	return f
}

func (f *fields) refuse(k kind, name, format string, args ...any) {
	if f.bad == nil {
		f.bad = refuse(k, f.prefix+name, "`%s%s` "+format, append([]any{f.prefix, name}, args...)...)
	}
}

// raw returns the value of a field as it stands in the body; nil where absent. Asking for a field that was not announced is a bug.
func (f *fields) raw(name string) []byte {
	for i, n := range f.names {
		if n == name {
			return f.values[i]
		}
	}
	panic("server: field " + name + " was not announced")
}

// has reports whether an optional field is there and not null.
func (f *fields) has(name string) bool {
	raw := f.raw(name)
	return raw != nil && raw[0] != 'n'
}

// required returns the raw value of a field that must be there, nil after refusing.
func (f *fields) required(name string) []byte {
	raw := f.raw(name)
	switch {
	case f.bad != nil:
		return nil
	case raw == nil && f.foreign != "":
		f.refuse(kindField, name, "is required; this body has `%s`, as POST %s takes it", f.foreign, signature[f.foreign])
		return nil
	case raw == nil:
		f.refuse(kindField, name, "is required")
		return nil
	case raw[0] == 'n':
		f.refuse(kindField, name, "is required and must not be null")
		return nil
	}
	return raw
}

// text reads a required string. Blank is allowed.
func (f *fields) text(name string) string {
	raw := f.required(name)
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		f.refuse(kindField, name, "must be a string, not %s", typeName(raw))
		return ""
	}
	return unquote(raw)
}

// optText reads an optional string; "" where absent.
func (f *fields) optText(name string) string {
	if !f.has(name) {
		return ""
	}
	return f.text(name)
}

// choice reads an optional string out of a list; fallback where absent.
func (f *fields) choice(name, fallback string, allowed ...string) string {
	if !f.has(name) {
		return fallback
	}
	v := f.text(name)
	for _, a := range allowed {
		if v == a {
			return a
		}
	}
	f.refuse(kindField, name, "is %s: it must be one of %s", quote(v), quoteAll(allowed))
	return fallback
}

// maxChoices bounds a list of choices; Cohere's API knows 6 embedding types.
const maxChoices = 32

// choices reads an optional list of strings out of those allowed; none where absent. One named twice counts once.
func (f *fields) choices(name string, allowed ...string) []string {
	if !f.has(name) {
		return nil
	}
	var out []string
	for _, v := range f.texts(name, bounds{max: maxChoices}, true) {
		if !slices.Contains(allowed, v) {
			f.refuse(kindField, name, "holds %s: it may hold %s", quote(v), quoteAll(allowed))
			return nil
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// flag reads an optional boolean; fallback where absent.
func (f *fields) flag(name string, fallback bool) bool {
	if !f.has(name) {
		return fallback
	}
	raw := f.raw(name)
	switch raw[0] {
	case 't':
		return true
	case 'f':
		return false
	}
	f.refuse(kindField, name, "must be true or false, not %s", typeName(raw))
	return fallback
}

// count reads an optional whole number of at least 1 and at most most (0: no upper bound); 0 where absent.
func (f *fields) count(name string, most int) int {
	if !f.has(name) {
		return 0
	}
	raw := f.raw(name)
	span := "at least 1"
	if most > 0 {
		span = fmt.Sprintf("between 1 and %d", most)
	}
	if t := typeName(raw); t != "a number" {
		f.refuse(kindField, name, "must be a whole number %s, not %s", span, t)
		return 0
	}
	n, whole := wholeNumber(raw)
	if !whole {
		f.refuse(kindRange, name, "is %s: it must be a whole number %s", clip(string(raw)), span)
		return 0
	}
	if n < 1 || most > 0 && n > int64(most) {
		f.refuse(kindRange, name, "is %s: it must be %s", clip(string(raw)), span)
		return 0
	}
	return int(min(n, math.MaxInt))
}

// wholeNumber reads a checked JSON number whose value is whole: 3, but also 3.0 and 3e0, as JSON does not tell them apart.
// What does not fit into 64 bits is not whole here: no field of any dialect means such a number. It reads decimals and not through a
// float64, for which 0.9999999999999999999 is 1 and 1e-999 is 0.
func wholeNumber(raw []byte) (n int64, ok bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(raw)), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	point := len(digits) - len(fraction) // how many of the digits, or zeros behind them, stand before the point
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return 0, true
	}
	e, err := strconv.ParseInt(cmp.Or(exponent, "0"), 10, 32) // beyond 32 bits it is saturated, and no body has as many digits
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	const most = 19 // digits of 64 bits
	if point += int(e); point < len(digits) || point > most {
		return 0, false
	}
	if negative {
		digits = "-" + digits
		point++
	}
	n, err = strconv.ParseInt(digits+strings.Repeat("0", point-len(digits)), 10, 64)
	return n, err == nil
}

// bounds are the limits of a list: at most max items, by the setting that says so ("" where none does).
type bounds struct {
	max     int
	setting string
}

// texts reads a required list of strings; single allows one string in place of the list.
func (f *fields) texts(name string, b bounds, single bool) []string {
	raw := f.required(name)
	if raw == nil {
		return nil
	}
	if raw[0] == '"' && single {
		return []string{unquote(raw)}
	}
	if raw[0] != '[' {
		want := "a list of strings"
		if single {
			want = "a string or " + want
		}
		f.refuse(kindField, name, "must be %s, not %s", want, typeName(raw))
		return nil
	}
	return f.list(name, raw, b, func(i int, item []byte) string {
		if item[0] != '"' {
			f.refuse(kindField, fmt.Sprintf("%s[%d]", name, i), "must be a string, not %s", typeName(item))
			return ""
		}
		return unquote(item)
	})
}

// documents reads a required list whose items are strings or objects with a string in `text`.
func (f *fields) documents(name string, b bounds) []string {
	raw := f.required(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		f.refuse(kindField, name, "must be a list of strings or of objects with `text`, not %s", typeName(raw))
		return nil
	}
	return f.list(name, raw, b, func(i int, item []byte) string {
		switch item[0] {
		case '"':
			return unquote(item)
		case '{':
			doc := readObject(item, "text")
			doc.prefix = fmt.Sprintf("%s%s[%d].", f.prefix, name, i)
			doc.foreign = ""
			text := doc.text("text")
			if doc.bad != nil && f.bad == nil {
				f.bad = doc.bad
			}
			return text
		}
		f.refuse(kindField, fmt.Sprintf("%s[%d]", name, i), "must be a string or an object with `text`, not %s", typeName(item))
		return ""
	})
}

// contents reads a required list of Cohere's embed inputs: objects whose `content` is a list of one part of text.
func (f *fields) contents(name string, b bounds) []string {
	raw := f.required(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		f.refuse(kindField, name, "must be a list of objects with `content`, not %s", typeName(raw))
		return nil
	}
	return f.list(name, raw, b, func(i int, item []byte) string {
		if item[0] != '{' {
			f.refuse(kindField, fmt.Sprintf("%s[%d]", name, i), "must be an object with `content`, not %s", typeName(item))
			return ""
		}
		in := readObject(item, "content")
		in.prefix, in.foreign = fmt.Sprintf("%s%s[%d].", f.prefix, name, i), ""
		text := in.part("content")
		if in.bad != nil && f.bad == nil {
			f.bad = in.bad
		}
		return text
	})
}

// part reads the one part of text of a `content`: of an image, or of several parts in one vector, this server knows nothing.
func (f *fields) part(name string) string {
	raw := f.required(name)
	if raw != nil && raw[0] != '[' {
		f.refuse(kindField, name, "must be a list of one part, not %s", typeName(raw))
		return ""
	}
	if raw == nil {
		return ""
	}
	parts := 0
	var text string
	s := scanner{data: raw}
	_ = s.array(0, func(item []byte) { // checked by the scan of the whole body
		if parts++; parts > 1 || f.bad != nil {
			return
		}
		if item[0] != '{' {
			f.refuse(kindField, name+"[0]", "must be an object with `type` and `text`, not %s", typeName(item))
			return
		}
		p := readObject(item, "type", "text")
		p.prefix, p.foreign = f.prefix+name+"[0].", ""
		if t := p.text("type"); p.bad == nil && t != "text" {
			p.refuse(kindField, "type", "is %s: this server embeds text only", quote(t))
		}
		text = p.text("text")
		if p.bad != nil {
			f.bad = p.bad
		}
	})
	if parts != 1 {
		f.refuse(kindField, name, "has %d parts: this server makes one vector of one text", parts)
	}
	return text
}

// list reads the items of a checked array. The count is known only at its end, so items past the limit are counted but not read.
func (f *fields) list(name string, raw []byte, b bounds, read func(i int, item []byte) string) []string {
	out := make([]string, 0, min(b.max, 1+bytes.Count(raw, []byte{','})))
	n := 0
	s := scanner{data: raw}
	_ = s.array(0, func(item []byte) { // checked by the scan of the whole body
		if n < b.max && f.bad == nil {
			out = append(out, read(n, item))
		}
		n++
	})
	switch {
	case n > b.max:
		f.bad = nil // the count is the better reason than what its first items are
		remedy := "send fewer"
		if b.setting != "" {
			remedy += ", or raise " + b.setting
		}
		f.refuse(kindTooMany, name, "has %d items, the limit is %d: %s", n, b.max, remedy)
		return nil
	case n == 0:
		f.refuse(kindEmpty, name, "is an empty list: it must hold at least one text")
		return nil
	}
	return out
}

// noTokenIDs refuses a field that holds token ids, as OpenAI's own API takes them, with the way out.
func (f *fields) noTokenIDs(name string) {
	if raw := f.raw(name); raw != nil && raw[0] == '[' && tokenIDs(raw) {
		f.refuse(kindTokenIDs, name, "holds token ids, but this server takes text only, as another tokenizer's ids mean nothing to its model;"+
			" in LangChain's OpenAIEmbeddings set check_embedding_ctx_length=False")
	}
}

// tokenIDs reports whether a checked array is what tokenizers make: whole numbers, or lists of them, and nothing else.
func tokenIDs(raw []byte) bool {
	ids, n := true, 0
	s := scanner{data: raw}
	_ = s.array(0, func(item []byte) {
		n++
		switch typeName(item) {
		case "a number":
			_, whole := wholeNumber(item)
			ids = ids && whole
		case "an array":
			ids = ids && (tokenIDs(item) || len(bytes.Trim(item, "[] \t\r\n")) == 0)
		default:
			ids = false
		}
	})
	return ids && n > 0
}

// object reads a required object for the given fields. What is wrong in it is wrong in f: look at f.bad after reading both.
func (f *fields) object(name string, names ...string) *fields {
	raw := f.required(name)
	if raw != nil && raw[0] != '{' {
		f.refuse(kindField, name, "must be an object with %s, not %s", quoteNames(names), typeName(raw))
		raw = nil
	}
	if raw == nil {
		return &fields{names: names, values: make([][]byte, len(names)), bad: f.bad}
	}
	in := readObject(raw, names...)
	in.prefix, in.foreign = f.prefix+name+".", ""
	return in
}

// optObject reads an optional object like object; where absent all its fields are.
func (f *fields) optObject(name string, names ...string) *fields {
	if !f.has(name) {
		return &fields{names: names, values: make([][]byte, len(names)), bad: f.bad}
	}
	return f.object(name, names...)
}

// firstBad returns the first refusal of several readers, nil when all is well.
func firstBad(readers ...*fields) error {
	for _, f := range readers {
		if f.bad != nil {
			return f.bad
		}
	}
	return nil
}

// quotedMax is how much of a caller's value an error message repeats, in bytes: enough for any model name, not for a text.
const quotedMax = 100

// clip shortens s for a message, at a character's border.
func clip(s string) string { return clipTo(s, quotedMax) }

// clipTo is clip at n bytes.
func clipTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// quote is a value of the caller's body in a message to it. What came in a header or a path is no text: strconv.Quote will do.
func quote(s string) given { return given(strconv.Quote(clip(s))) }

func quoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strconv.Quote(clip(s))
	}
	return strings.Join(out, ", ")
}

// quoteNames sets field names off as messages do: `a`, `b`.
func quoteNames(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
