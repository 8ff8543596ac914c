package policy

import (
	"strings"
	"testing"
)

func TestAbsentFieldsAreTheDefaults(t *testing.T) {
	p, err := Parse("p.yaml", []byte("name: strict\nchunks: {space: relevance, thresholds: {faq: 0.7}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Name, want.Chunks.Thresholds.FAQ = "strict", 0.7
	if p.Fingerprint() != want.Fingerprint() {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	_, err := Parse("bad.yaml", []byte("name: 'a b'\non_mismatch: panic\nquery: {length_rule: loose, semantic: {threshold: .nan}}\nchunks: {space: logit, min_chunks: 7}\n"))
	if err == nil {
		t.Fatal("a policy full of faults was accepted")
	}
	for _, want := range []string{"bad.yaml", `"a b"`, "panic", "loose", "semantic.threshold", "logit", "min_chunks 7"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\ntreshold: 1\n": "treshold", "": "empty", "name: a\n---\nname: b\n": "more than one", "- a": "cannot unmarshal",
	} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want an error with %q", text, err, want)
		}
	}
}

func TestFingerprintTellsPartsApart(t *testing.T) {
	p := Default()
	seen := map[string][]string{}
	for _, parts := range [][]string{nil, {""}, {"a", "b"}, {"ab"}, {"a", "", "b"}, {"b", "a"}} {
		f := p.Fingerprint(parts...)
		if seen[f] != nil {
			t.Errorf("%q and %q have one fingerprint", parts, seen[f])
		}
		seen[f] = append(parts, "seen")
	}
	q := p
	q.Query.Glossary = []string{"btw"}
	if p.Fingerprint() == q.Fingerprint() {
		t.Error("another glossary, the same fingerprint")
	}
}
