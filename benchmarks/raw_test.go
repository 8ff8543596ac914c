package benchmarks

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/internal/testenv"
	"ragate/models"
)

func encoder(t *testing.T, name string, kind models.Kind) *Encoder {
	t.Helper()
	m, err := (&models.Store{Dir: testenv.Store(t)}).Resolve(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.As(kind); err != nil {
		t.Fatal(err)
	}
	e, err := NewEncoder(m)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Rows have the lengths that the workload promises, as the real tokenizer counts them, and spread over the whole of its range.
func TestWorkloadsKeepTheirLengths(t *testing.T) {
	e := encoder(t, models.DefaultReranker, models.KindReranker)
	texts, err := NewTexts(1, e.Count)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Workload{Rerank10Mixed, Rerank10x128} {
		short, long, total := 1<<30, 0, 0
		const requests = 200
		for range requests {
			rows, err := e.Rows(w.Write(texts))
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != w.Texts {
				t.Fatalf("%s: %d rows", w.Name, len(rows))
			}
			for _, r := range rows {
				n := len(r.IDs)
				short, long, total = min(short, n), max(long, n), total+n
				if r.TypeOneAt <= 2 || r.TypeOneAt >= n {
					t.Fatalf("%s: the second text of a pair of %d tokens begins at %d", w.Name, n, r.TypeOneAt)
				}
			}
		}
		mean := float64(total) / float64(requests*w.Texts)
		// A long word may not fit into the rest, and a long query leaves no room for a short passage.
		if short < w.Low-12 || long > max(w.High, 60) || mean < 0.93*float64(w.Low+w.High)/2 || mean > 1.05*float64(w.Low+w.High)/2 {
			t.Errorf("%s: rows of %d to %d tokens, %.0f on average; want %d to %d", w.Name, short, long, mean, w.Low, w.High)
		}
	}
}

func TestRequestsHoldTheWork(t *testing.T) {
	e := encoder(t, models.DefaultReranker, models.KindReranker)
	work := Work{Query: "how thick is it", Texts: []string{"a \"thin\" plate", "a\nwing"}}
	r, err := Dialect(Ragate).Request(e, work)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Query     string
		Documents []string
		RawScores bool `json:"raw_scores"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	// [CLS] how thick is it [SEP] a " thin " plate [SEP], and [CLS] how thick is it [SEP] a wing [SEP]
	if r.Path != "/v1/rerank" || r.Items != 2 || r.Tokens != 12+9 || body.Query != work.Query || len(body.Documents) != 2 || body.Documents[0] != work.Texts[0] || !body.RawScores {
		t.Errorf("%s with %d items of %d tokens in all: %s", r.Path, r.Items, r.Tokens, r.Body)
	}

	e = encoder(t, models.DefaultEmbedder, models.KindEmbedder)
	r, err = Dialect(Ragate).Request(e, Work{Texts: []string{"how thick"}})
	if err != nil {
		t.Fatal(err)
	}
	// [CLS] query : how thick [SEP]
	if r.Path != "/v1/embeddings" || r.Items != 1 || r.Tokens != 6 || !bytes.Contains(r.Body, []byte(`"how thick"`)) {
		t.Errorf("%s with %d items of %d tokens: %s", r.Path, r.Items, r.Tokens, r.Body)
	}
}

func TestBatchesOfTheRawSession(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := &Raw{Pad: 16, Encoder: &Encoder{Manifest: models.Manifest{MaxTokens: 300}}, streams: make([]*ort.Stream, 2)}
	var rows []ort.Row
	for range 400 {
		rows = append(rows, ort.Row{IDs: make([]int32, 1+rng.IntN(300))})
	}
	count := func(batches []Batch) (n, tokens int) {
		for _, b := range batches {
			n += len(b.Rows)
			tokens += Tokens(b.Rows)
			for _, row := range b.Rows {
				if len(row.IDs) > b.Cols {
					t.Fatalf("a row of %d tokens is padded to %d", len(row.IDs), b.Cols)
				}
			}
		}
		return n, tokens
	}
	for _, budget := range []int{0, 256, 1024} {
		for _, single := range []bool{false, true} {
			r.Single = single
			batches := r.Alike(rows, budget)
			if n, tokens := count(batches); n != len(rows) || tokens != Tokens(rows) {
				t.Fatalf("budget %d: %d rows of %d tokens in the batches, want %d of %d", budget, n, tokens, len(rows), Tokens(rows))
			}
			together := false
			for _, b := range batches {
				together = together || len(b.Rows) > 1
				if len(b.Rows) > 1 && (len(b.Rows)*b.Cols > budget || single) {
					t.Errorf("budget %d, single %v: a batch of %d × %d", budget, single, len(b.Rows), b.Cols)
				}
				for _, row := range b.Rows {
					if r.Cols(row) != b.Cols {
						t.Errorf("a row of %d tokens is in a batch of %d", len(row.IDs), b.Cols)
					}
				}
			}
			if want := budget > 0 && !single; together != want {
				t.Errorf("budget %d, single %v: rows run together: %v", budget, single, together)
			}
		}
	}
	split := r.Split(rows[:7])
	if n, tokens := count(split); len(split) != 2 || n != 7 || tokens != Tokens(rows[:7]) || len(split[0].Rows)-len(split[1].Rows) > 1 {
		t.Errorf("seven rows over two streams: %d batches with %d rows of %d tokens", len(split), n, tokens)
	}
}

func TestRawRefusesAnotherModelThanTheServers(t *testing.T) {
	m := models.Manifest{ID: "org/name", GraphSHA256: "aa"}
	if _, err := OpenRaw(nil, "", m, ModelInfo{ID: "org/name", Kind: inference.KindReranker, SHA256: "bb"}); err == nil {
		t.Error("no error for a file of another hash")
	}
}
