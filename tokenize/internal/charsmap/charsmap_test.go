package charsmap

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"
)

// build makes a map whose keys are single bytes, as tools/golden_unigram.py does.
func build(keys map[byte]uint32, replacements string) []byte {
	units := make([]uint32, 1024)
	const root = 256
	units[0] = root << 10
	for c, value := range keys {
		at, leaf := uint32(root^int(c)), uint32(512+int(c))
		units[at] = uint32(c) | 1<<8 | (at^leaf)<<10
		units[leaf] = value | 1<<31
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	return append(b, replacements...)
}

func walked(m *Map, text string) string {
	var b strings.Builder
	m.Walk(text, func(_, becomes string, _ bool) { b.WriteString(becomes) })
	return b.String()
}

func TestMap(t *testing.T) {
	m, err := Parse(build(map[byte]uint32{'a': 0, '\r': 3, 'x': 4}, "AB\x00\x00 \x00"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                    "",
		"bab":                 "bABb",
		"a\u0301b":            "ABb", // a cluster of three bytes is replaced as a whole
		"a\u0301\u0301\u0301": "AB\u0301\u0301\u0301",
		"\r\n\n":              "\n",
		"xx é":                "   é",
		"b\u0301":             "b\u0301",
	} {
		if got := string(m.Append(nil, text)); got != want || walked(m, text) != want {
			t.Errorf("%+q becomes %+q and %+q, want %+q", text, got, walked(m, text), want)
		}
	}
	if got := string(m.Append([]byte("."), "\xffa\xcc")); got != ".\ufffdAB\ufffd" {
		t.Errorf("not UTF-8: %+q", got)
	}
}

func TestBrokenMaps(t *testing.T) {
	good := build(map[byte]uint32{'a': 0}, "AB\x00")
	for name, b := range map[string][]byte{
		"short":                good[:3],
		"no units":             {0, 0, 0, 0, 0, 0, 0, 0},
		"too many units":       good[:2000],
		"replacements":         append(good[:len(good):len(good)], 0xff),
		"a replacement beyond": build(map[byte]uint32{'a': 4}, "AB\x00"),
		"a key of half a char": build(map[byte]uint32{0xE2: 0}, "AB\x00"),
		"a place within":       build(map[byte]uint32{'a': 1}, "é\x00"),
	} {
		if m, err := Parse(b); err == nil || m != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzMap(f *testing.F) {
	f.Add(build(map[byte]uint32{'a': 0, 'b': 1}, "AB\x00"), "ab\u0301 x")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		got := string(m.Append(nil, text))
		if !utf8.ValidString(got) {
			t.Fatalf("%+q becomes %+q", text, got)
		}
		if utf8.ValidString(text) && got != walked(m, text) {
			t.Fatalf("%+q becomes %+q and %+q", text, got, walked(m, text))
		}
	})
}
