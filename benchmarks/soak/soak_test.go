package main

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ragate/benchmarks"
	"ragate/internal/testenv"
)

func TestSlope(t *testing.T) {
	line := func(rise, noise float64) []sample {
		rng := rand.New(rand.NewPCG(1, 1))
		out := make([]sample, 400)
		for i := range out {
			x := float64(i * 50)
			out[i] = sample{x, 500e6*(1+rise*(x-10_000)) + noise*(rng.Float64()-0.5)}
		}
		return out
	}
	for _, c := range []struct{ rise, noise float64 }{{0, 0}, {1e-6, 0}, {-2e-6, 1e6}, {0, 20e6}, {5e-7, 5e6}} {
		rise, half, err := slope(line(c.rise, c.noise))
		if err != nil || math.Abs(rise-c.rise) > half+1e-9 {
			t.Errorf("a rise of %g with noise of %g: %g ± %g, %v", c.rise, c.noise, rise, half, err)
		}
		if c.noise == 0 && half > 1e-9 || c.noise > 0 && !(half > 0) {
			t.Errorf("a rise of %g with noise of %g: ± %g", c.rise, c.noise, half)
		}
	}
	// Samples that resemble their neighbours, as memory does: steps of 40 samples. Over raw samples the interval would be some six times as narrow.
	steps := line(0, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	var level float64
	for i := range steps {
		if i%40 == 0 {
			level = 50e6 * (rng.Float64() - 0.5)
		}
		steps[i].y += level
	}
	if rise, half, err := slope(steps); err != nil || math.Abs(rise) > half {
		t.Errorf("steps without a rise: %g ± %g, %v", rise, half, err)
	}
	if _, _, err := slope(line(0, 0)[:30]); err == nil {
		t.Error("30 samples are taken for enough")
	}
}

func TestCompareFindsWhatDiffers(t *testing.T) {
	tol := tolerance{cosine: 0.99999, logit: 0.005}
	base := func() answer {
		return answer{exact: "a", vectors: [][]float32{{0.6, 0.8}}, logits: []float64{1, 3, 2}, cosines: []float64{0.5}, ranked: []int{1, 2, 0}}
	}
	want, same := base(), base()
	if g, err := want.compare(&same, tol); err != nil || g != (gap{1 - cosine(want.vectors[0], same.vectors[0]), 0, 0}) {
		t.Errorf("the same answer: %v, %v", g, err)
	}
	near := base()
	near.vectors[0][0] += 1e-4
	near.logits[0] += 0.004
	near.cosines[0] += 0.001
	if g, err := want.compare(&near, tol); err != nil || g.logit < 0.0039 || g.cosine == 0 || g.similarity < 0.0009 {
		t.Errorf("an answer within what is allowed: %+v, %v", g, err)
	}
	for name, change := range map[string]func(*answer){
		"words":              func(a *answer) { a.exact = "b" },
		"a vector":           func(a *answer) { a.vectors[0][0] = 0.7 },
		"NaN":                func(a *answer) { a.vectors[0][0] = float32(math.NaN()) },
		"dimensions":         func(a *answer) { a.vectors[0] = a.vectors[0][:1] },
		"a logit":            func(a *answer) { a.logits[1] += 0.006 },
		"no logit":           func(a *answer) { a.logits[1] = math.NaN() },
		"similarity":         func(a *answer) { a.cosines[0] += 0.1 },
		"order":              func(a *answer) { a.ranked = []int{2, 1, 0} },
		"a vector's absence": func(a *answer) { a.vectors = nil },
		"swapped items":      func(a *answer) { a.logits[0], a.logits[2] = a.logits[2], a.logits[0] },
	} {
		got := base()
		change(&got)
		if _, err := want.compare(&got, tol); err == nil {
			t.Errorf("%s: no difference was found", name)
		}
	}
}

func TestReaders(t *testing.T) {
	for name, c := range map[string]struct {
		read func([]byte) (answer, error)
		good string
		bad  []string
	}{
		"embeddings": {readEmbeddings, `{"data":[{"index":0,"embedding":[0.5,1]},{"index":1,"embedding":"AAAAPwAAgD8="}],"usage":{"total_tokens":3}}`,
			[]string{`{"data":[{"index":1,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":"?"}]}`, `{`}},
		"scores":     {readTEIScores, `[{"index":1,"score":2},{"index":0,"score":-1}]`, []string{`[{"index":0,"score":1},{"index":0,"score":1}]`, `[{"index":0,"score":1},{"index":1,"score":2}]`, `[{"index":7,"score":1}]`}},
		"query gate": {readQueryGate, `{"needs_retrieval":true,"retrieval_bypassed":false,"stage":"semantic","semantic":{"score":0.1}}`, []string{`{"needs_retrieval":true,"retrieval_bypassed":true}`}},
		"chunk gate": {readChunkGate, `{"chunks":[{"index":1,"logit":2}],"dropped":[{"index":0,"logit":1}],"metadata":{"chunks_unscored":0,"chunks_retrieved":2}}`,
			[]string{`{"chunks":[{"index":1}],"metadata":{"chunks_unscored":0,"chunks_retrieved":1}}`, `{"chunks":[{"index":0}],"metadata":{"chunks_unscored":1,"chunks_retrieved":1}}`}},
		"both": {readCohereVectors, `{"embeddings":{"float":[[0.5,1]],"base64":["AAAAPwAAgD8="]},"texts":["a"]}`, []string{`{"embeddings":{"float":[[0.5,2]],"base64":["AAAAPwAAgD8="]}}`}},
	} {
		a, err := c.read([]byte(c.good))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, v := range a.vectors {
			if v[0] != 0.5 || v[1] != 1 {
				t.Errorf("%s: vector %v", name, v)
			}
		}
		for _, bad := range c.bad {
			if _, err := c.read([]byte(bad)); err == nil {
				t.Errorf("%s: %s was taken", name, bad)
			}
		}
	}
}

func TestTheMixIsWhatItClaims(t *testing.T) {
	texts, err := benchmarks.NewTexts(1, func(s string) int { return len(strings.Fields(s)) })
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{texts: texts, rng: rand.New(rand.NewPCG(1, 2))}
	low, high, few, many := 1000, 0, 1000, 0
	for range 20_000 {
		n, b := w.length(), w.batch()
		low, high, few, many = min(low, n), max(high, n), min(few, b), max(many, b)
	}
	if low != 1 || high < 480 || high > 512 || few != 1 || many != 64 {
		t.Errorf("lengths from %d to %d, batches from %d to %d", low, high, few, many)
	}
	paths := map[string]bool{}
	for i := range goodKinds {
		c := w.good(i, 3)
		paths[c.path] = true
		if c.method == "POST" && !json.Valid(c.body) {
			t.Errorf("%s: the body is no JSON", c.name)
		}
	}
	for _, p := range []string{"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/v1/embed", "/v2/embed", "/", "/embed", "/rerank", "/similarity", "/tokenize", "/v1/gate/query", "/v1/gate/chunks"} {
		if !paths[p] {
			t.Errorf("nothing asks %s", p)
		}
	}
	seen := map[string]bool{}
	for i := range badKinds {
		c := w.bad(i)
		key := c.method + string(c.body[:min(len(c.body), 40)])
		if seen[key] || c.method == "" {
			t.Errorf("%s is as another", c.name)
		}
		seen[key] = true
	}
}

// A small run with the real program and models: every claim holds, and a claim that does not is found.
func TestSmallRun(t *testing.T) {
	store := testenv.Store(t)
	program := testenv.Program(t)
	cfg := long.shortened()
	cfg.program, cfg.dataDir, cfg.requests, cfg.good, cfg.bad, cfg.reload, cfg.sample = program, store, 250, 2*goodKinds, badKinds, 60, 2
	var said bytes.Buffer
	r, err := run(t.Context(), cfg, &said)
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if err := verdict(r); err != nil {
		t.Errorf("%v\n%s", err, &said)
	}
	for _, x := range r.Results {
		if x.Name == "wrong answers" {
			x.Rounds, x.Median = []float64{1}, 1
			r.Results = append(r.Results, x)
		}
		if (x.Name == "right answers" || x.Name == "failures by design, as expected" || x.Name == "left by the client") && x.Median < 5 {
			t.Errorf("%s: %v of %d requests", x.Name, x.Median, cfg.requests)
		}
	}
	if verdict(r) == nil {
		t.Error("a wrong answer passes")
	}
}
