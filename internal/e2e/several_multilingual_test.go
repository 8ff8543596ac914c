//go:build multilingual

package e2e

import (
	"fmt"
	"sync"
	"testing"

	"ragate/internal/multilingual"
	"ragate/internal/testenv"
)

// TestSeveralModelsMultilingual: the multilingual embedder beside the English one and the reranker, whose tokenizers, vocabularies and padding differ, under load over
// all of them at once: every answer is the reference's.
func TestSeveralModelsMultilingual(t *testing.T) {
	ref, texts := loadReference(t), multilingual.Texts(t)
	srv := start(t, environment(t, store(t), "RAGATE_MODELS=name=en,kind=embedder,model=e5-small-v2;name=ml,kind=embedder,model=multilingual-e5-small;"+
		"name=rr,kind=reranker,model=cross-encoder/ms-marco-MiniLM-L12-v2"))
	english := &session{srv: srv, ref: ref, mode: modes(t)[0], embedder: "en", reranker: "rr"}
	var load sync.WaitGroup
	var crowd error
	load.Go(func() { crowd = english.crowd() })

	const askers = 4
	failures := make(chan error, askers*len(texts))
	for n := range askers {
		load.Go(func() {
			for i := range texts {
				x := texts[(i+n*len(texts)/askers)%len(texts)]
				r, err := srv.send("/v1/embeddings", map[string]any{"model": "ml", "input": []string{x.Text}, "input_type": x.Prompt})
				if err != nil {
					failures <- err
					continue
				}
				got, err := decode[struct {
					Model string
					Data  []struct{ Embedding []float32 }
					Usage struct {
						PromptTokens int `json:"prompt_tokens"`
					}
				}](r)
				switch {
				case err != nil:
					failures <- err
				case len(got.Data) != 1 || got.Model != "ml" || got.Usage.PromptTokens != len(x.IDs):
					failures <- fmt.Errorf("%s %.30q: %d vectors of %s, %d of %d tokens", x.Language, x.Text, len(got.Data), got.Model, got.Usage.PromptTokens, len(x.IDs))
				default:
					if c := testenv.Cosine(got.Data[0].Embedding, x.Vector); !(c > 0.9997) {
						failures <- fmt.Errorf("%s %.30q: cosine to the reference is %.6f", x.Language, x.Text, c)
					}
				}
			}
		})
	}
	load.Wait()
	close(failures)
	if crowd != nil {
		t.Error(crowd)
	}
	for err := range failures {
		t.Error(err)
	}
	english.report(t)
}
