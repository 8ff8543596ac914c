//go:build multilingual

package e2e

import (
	"slices"
	"strings"
	"testing"

	"ragate/internal/multilingual"
	"ragate/internal/testenv"
)

// The packaged multilingual embedder behind HTTP: vectors of 22 languages are the reference's, with the prefix that input_type asks for.
func TestMultilingualEmbeddings(t *testing.T) {
	texts := multilingual.Texts(t)
	ways := [][]string{{"--provider", "cpu"}, nil}
	for _, args := range ways {
		name := strings.Join(args, " ")
		if args == nil {
			name = "auto"
		}
		t.Run(name, func(t *testing.T) {
			srv := start(t, environment(t, store(t), "RAGATE_EMBEDDER=multilingual-e5-small"), args...)
			embedder, _ := srv.info()
			if embedder.ID != "intfloat/multilingual-e5-small" || len(embedder.Warnings) != 0 {
				t.Errorf("/info says %+v", embedder)
			}
			type vectors struct {
				Data []struct {
					Index     int
					Embedding []float32
				}
				Usage struct {
					PromptTokens int `json:"prompt_tokens"`
				}
			}
			worst, compared := 1.0, 0
			check := func(of []multilingual.Text) {
				input := make([]string, len(of))
				tokens := 0
				for i, x := range of {
					input[i] = x.Text
					tokens += len(x.IDs)
				}
				r, err := srv.send("/v1/embeddings", map[string]any{"model": "multilingual-e5-small", "input": input, "input_type": of[0].Prompt})
				if err != nil {
					t.Fatal(err)
				}
				got, err := decode[vectors](r)
				if err != nil || len(got.Data) != len(of) || got.Usage.PromptTokens != tokens {
					t.Fatalf("%d of %d vectors, %d of %d tokens: %v", len(got.Data), len(of), got.Usage.PromptTokens, tokens, err)
				}
				for i, x := range of {
					c := testenv.Cosine(got.Data[i].Embedding, x.Vector)
					worst = min(worst, c)
					compared++
					if !(c > 0.9997) || got.Data[i].Index != i {
						t.Errorf("%s %.30q: cosine to the reference is %.6f", x.Language, x.Text, c)
					}
				}
			}
			for _, prompt := range []string{"query", "passage"} {
				of := slices.DeleteFunc(slices.Clone(texts), func(x multilingual.Text) bool { return x.Prompt != prompt })
				check(of)
				check(of[:1])
			}
			if compared != len(texts)+2 {
				t.Errorf("%d vectors compared", compared)
			}
			t.Logf("%s %s: cosine %.6f at worst, %.0f MB resident", embedder.Provider, embedder.Precision, worst, srv.resident())
		})
	}
}
