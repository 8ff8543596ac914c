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

func TestBasis(t *testing.T) {
	p, err := Parse("p.yaml", []byte("name: a\ncalibrated_for: {embedder: e1, references: r1}\nchunks: {space: relevance}\n"))
	if err != nil {
		t.Fatal(err)
	}
	running := Basis{Embedder: "e1", References: "r1", Rules: "p9", Reranker: "x9"}
	if d := p.CalibratedFor.Differences(running); d != nil {
		t.Errorf("the same embedder and references: %q", d)
	}
	running.Embedder, running.References = "e2", "r2"
	if d := p.CalibratedFor.Differences(running); len(d) != 2 || d[0] != "embedder e1, and e2 runs" || d[1] != "references r1, and r2 runs" {
		t.Errorf("others: %q", d)
	}
	if d := (Basis{}).Differences(running); d != nil {
		t.Errorf("nothing was calibrated: %q", d)
	}
}
