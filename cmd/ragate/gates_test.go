package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ragate/gates/evaluate"
	"ragate/gates/policy"
	"ragate/gates/quality"
	"ragate/gates/semantic"
	"ragate/inference"
)

func keep(t *testing.T, c vectorCache, name string, v []float32) {
	t.Helper()
	if err := c.write(name, v); err != nil {
		t.Fatal(err)
	}
}

func TestVectorCache(t *testing.T) {
	c := vectorCache{filepath.Join(t.TempDir(), "references")}
	v := []float32{1, -0.5, float32(math.Inf(1)), 0}
	keep(t, c, "a", v)
	if got, ok := c.read("a", 4); !ok || fmt.Sprint(got) != fmt.Sprint(v) {
		t.Errorf("%v %t", got, ok)
	}
	if _, ok := c.read("a", 5); ok {
		t.Error("a file of another length was read")
	}
	if _, ok := c.read("b", 4); ok {
		t.Error("a file that is not there was read")
	}
}

// The sets that were used last stay, and nothing else in the folder is touched.
func TestVectorCacheKeepsTheLastUsed(t *testing.T) {
	c := vectorCache{t.TempDir()}
	other := filepath.Join(c.dir, "notes.txt")
	if err := os.WriteFile(other, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	for i := range cachedSets {
		name := fmt.Sprint("old", i)
		keep(t, c, name, []float32{1})
		if err := os.Chtimes(c.path(name), past, past.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := c.read("old0", 1); !ok { // the oldest, but used just now
		t.Fatal("old0 is gone before there were too many")
	}
	keep(t, c, "new", []float32{1})
	for name, stays := range map[string]bool{"new": true, "old0": true, "old1": false, "old2": true} {
		if _, err := os.Stat(c.path(name)); (err == nil) != stays {
			t.Errorf("%s: %v, want it kept: %t", name, err, stays)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

func TestCheckPolicies(t *testing.T) {
	set, err := semantic.Parse(semantic.Default())
	if err != nil {
		t.Fatal(err)
	}
	model := inference.Info{Source: "intfloat/e5-small-v2"}
	running := policy.Basis{Embedder: "e1", References: "r1", Rules: "p1", Reranker: "x1"}
	with := func(change func(*policy.Policy)) map[string]policy.Policy {
		p := policy.Default()
		change(&p)
		return map[string]policy.Policy{p.Name: p}
	}
	threshold := 0.5
	for _, c := range []struct {
		name     string
		policies map[string]policy.Policy
		model    inference.Info
		warn     string
		refuse   string
	}{
		{"the default", with(func(*policy.Policy) {}), model, "", ""},
		{"calibrated on this", with(func(p *policy.Policy) { p.CalibratedFor = running }), model, "", ""},
		{"other references", with(func(p *policy.Policy) { p.CalibratedFor.References = "r2" }), model, "references r2, and r1 runs", ""},
		{"another reranker, refused", with(func(p *policy.Policy) { p.CalibratedFor.Reranker, p.OnMismatch = "x2", policy.MismatchRefuse }), model, "", "reranker x2, and x1 runs"},
		{"an unknown method", with(func(p *policy.Policy) { p.Query.Semantic.Method = "magic" }), model, "", "magic"},
		{"an unknown method, off", with(func(p *policy.Policy) { p.Query.Semantic = policy.Semantic{Method: "magic", Off: true} }), model, "", ""},
		{"another embedder", with(func(*policy.Policy) {}), inference.Info{Source: "a/b"}, "thresholds for multilingual-e5-small and e5-small-v2 and none for a/b", ""},
		{"the multilingual embedder", with(func(*policy.Policy) {}), inference.Info{Source: "intfloat/multilingual-e5-small"}, "", ""},
		{"a folder known by an alias", with(func(*policy.Policy) {}), inference.Info{Source: "/m", Aliases: []string{"E5-small-v2"}}, "", ""},
		{"another embedder, a threshold of its own", with(func(p *policy.Policy) { p.Query.Semantic.Threshold = &threshold }), inference.Info{Source: "a/b"}, "", ""},
	} {
		warnings, err := checkPolicies(c.policies, set, running, c.model)
		if got := strings.Join(warnings, "|"); (c.warn == "") != (got == "") || !strings.Contains(got, c.warn) {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.warn)
		}
		if (err == nil) != (c.refuse == "") || err != nil && !strings.Contains(err.Error(), c.refuse) {
			t.Errorf("%s: %v, want %q", c.name, err, c.refuse)
		}
	}
}

// TestIdentityIsOfTheFiles: what a model is called changes no fingerprint, and so no calibration; what it computes does.
func TestIdentityIsOfTheFiles(t *testing.T) {
	one := inference.Info{ID: "org/one", Source: "org/one", SHA256: "aa", Precision: "bf16", MaxTokens: 512}
	renamed, exact := one, one
	renamed.ID, renamed.Aliases, exact.Precision = "small", []string{"org/one"}, "fp32"
	if identity(one) != identity(renamed) || identity(one) == identity(exact) {
		t.Errorf("%q, %q, %q", identity(one), identity(renamed), identity(exact))
	}
	if !slices.Contains(modelNames(renamed), "one") || slices.Contains(modelNames(renamed), "two") {
		t.Error("a renamed model is known by the name of its files")
	}
}

func TestCalibratedPolicies(t *testing.T) {
	running := policy.Basis{Embedder: "e1", References: "r1", Rules: "p1", Reranker: "x1"}
	before := policy.Default()
	q := calibratedQuery(before, &evaluate.Calibration{Threshold: 0.8}, "combined", running)
	if *q.Query.Semantic.Threshold != 0.8 || q.Query.Semantic.Method != "combined" || q.CalibratedFor != (policy.Basis{Embedder: "e1", References: "r1", Rules: "p1"}) {
		t.Errorf("%+v", q)
	}
	c := calibratedChunks(q, &evaluate.Calibration{Threshold: 0.01}, running)
	if c.Chunks.Thresholds.For(quality.Broad) != 0.01 || c.Chunks.EverythingThreshold != 0.01 || c.CalibratedFor != running {
		t.Errorf("%+v", c)
	}
	if c = calibratedChunks(q, &evaluate.Calibration{Threshold: 0.3}, running); c.Chunks.EverythingThreshold != quality.DefaultEverythingThreshold {
		t.Errorf("everything mode asks for %v", c.Chunks.EverythingThreshold)
	}
	if calibratedQuery(before, nil, "", running).Fingerprint() != before.Fingerprint() || calibratedChunks(before, nil, running).Fingerprint() != before.Fingerprint() {
		t.Error("a refusal changed the policy")
	}
}

func TestThresholdScore(t *testing.T) {
	if s := thresholdScore(&semantic.Verdict{Score: 0.4}); s != 0.4 {
		t.Error(s)
	}
	for _, v := range []*semantic.Verdict{nil, {Score: 0.4, Guarded: true}} {
		if s := thresholdScore(v); !math.IsNaN(s) {
			t.Errorf("%+v: %v", v, s)
		}
	}
}

func TestPromiseFlags(t *testing.T) {
	good := promiseFlags{Confidence: 0.95, HeldOut: 0.5, Name: "mine"}
	if err := good.check("--min-recall", 0.9); err != nil {
		t.Error(err)
	}
	bad := promiseFlags{Confidence: 1, HeldOut: math.NaN(), Name: "a b"}
	err := bad.check("--min-recall", 0)
	for _, want := range []string{"--min-recall is 0", "--confidence is 1", "--held-out is NaN", `--name is "a b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestWithDefault(t *testing.T) {
	for body, want := range map[string]string{
		`{"query":"a"}`:                `{"policy":"p","query":"a"}`,
		`{"policy":null}`:              `{"policy":"p"}`,
		`{"policy":"q","id":1.50}`:     `{"policy":"q","id":1.50}`,
		`{"a":12345678901234567890.0}`: `{"a":12345678901234567890.0,"policy":"p"}`,
		`[1]`:                          `[1]`, `{`: `{`, ``: ``, `null`: `null`,
	} {
		if got := withDefault([]byte(body), "policy", "p"); string(got) != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestPrintAnswers(t *testing.T) {
	var b bytes.Buffer
	if err := printQuery(&b, []byte(`{"needs_retrieval":false,"stage":"pattern","reason":"small talk"}`)); err != nil || b.String() != "skip retrieval\tpattern\tsmall talk\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	b.Reset()
	if err := printChunks(&b, []byte(`{"chunks":[{"id":7,"index":1,"relevance":0.5,"decision":"kept","reason":"r"}],"dropped":[{"index":0,"decision":"unscored","reason":"s"}],
		"insufficient_context":true,"insufficient_reason":"why","expanded_query":"a b","context":"[Source 1]: x"}`)); err != nil ||
		b.String() != "kept\t7\t0.5000\tr\nunscored\t0\t-\ts\ninsufficient context\twhy\nretrieve again with\ta b\n\n[Source 1]: x\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if printChunks(&b, []byte("{")) == nil {
		t.Error("half an answer was printed")
	}
}

func TestRefusalOf(t *testing.T) {
	body := func(status int) []byte {
		b, err := json.Marshal(map[string]any{"error": map[string]string{"message": fmt.Sprint("status ", status)}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for status, usage := range map[int]bool{400: true, 404: true, 413: true, 500: false, 503: false} {
		err := refusalOf(status, body(status))
		_, is := err.(*usageError)
		if is != usage || err.Error() != fmt.Sprint("status ", status) {
			t.Errorf("%d: %v, usage %t", status, err, is)
		}
	}
}
