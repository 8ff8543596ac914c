//go:build multilingual

package inference

import (
	"slices"
	"sync"
	"testing"

	"ragate/inference/ort"
	"ragate/internal/multilingual"
	"ragate/internal/testenv"
)

// The packaged model's vectors are those of the float32 reference, to what its int8 weights cost (0.99988 at worst), in every arithmetic
// that runs it; a text's vector is the same alone and in company, whatever it is padded to.
func TestMultilingualVectors(t *testing.T) {
	m := manifest(t, "multilingual-e5-small")
	texts := multilingual.Texts(t)
	ways := []Settings{{Provider: ort.CPU}, {Provider: ort.OpenVINO, Precision: FP32}}
	if ThisMachine().BF16 {
		ways = append(ways, Settings{Provider: ort.OpenVINO, Precision: BF16})
	}
	for _, set := range ways {
		t.Run(string(set.Provider)+" "+string(set.Precision), func(t *testing.T) {
			var emb *Model
			tinyEngine(t, set, func(e *Engine) (err error) {
				emb, err = e.LoadEmbedder(t.Context(), m, set)
				return err
			})
			if pad := emb.core.config.PadID; pad != 1 {
				t.Errorf("padding is token %d", pad)
			}
			if i := emb.Info(); i.Drift.MinCosine < 0.99999 || set.Provider != ort.CPU && i.Fidelity.MinCosine < 0.9995 || len(i.Warnings) != 0 || i.DType != "int8" {
				t.Errorf("self-test: drift %+v, fidelity %+v, warnings %q", i.Drift, i.Fidelity, i.Warnings)
			}
			one := func(x multilingual.Text) []float32 {
				got, err := emb.Embed(t.Context(), EmbedRequest{Texts: []string{x.Text}, Prompt: x.Prompt})
				if err != nil {
					t.Error(err)
					return make([]float32, 384)
				}
				if got.Usage.Tokens != len(x.IDs) {
					t.Errorf("%s %.30q: %d tokens, not %d", x.Language, x.Text, got.Usage.Tokens, len(x.IDs))
				}
				return got.Row(0)
			}
			alone := make([][]float32, len(texts))
			worst := 1.0
			for i, x := range texts {
				alone[i] = one(x)
				worst = min(worst, testenv.Cosine(alone[i], x.Vector))
				if c := testenv.Cosine(alone[i], x.Vector); !(c > 0.9997) {
					t.Errorf("%s %.30q: cosine to the reference is %.6f", x.Language, x.Text, c)
				}
			}
			dutch, english := slices.IndexFunc(texts, func(x multilingual.Text) bool { return x.Text == "bedankt voor je hulp" }),
				slices.IndexFunc(texts, func(x multilingual.Text) bool { return x.Text == "thanks for your help" })
			if c := testenv.Cosine(alone[dutch], alone[english]); c < 0.94 || c > 0.95 {
				t.Errorf("thanks in Dutch and in English are %.4f apart, not 0.944", c)
			}
			// Everybody at once, and in one request per prompt.
			var wg sync.WaitGroup
			drift := make([]float64, len(texts))
			for i, x := range texts {
				wg.Go(func() { drift[i] = testenv.Cosine(one(x), alone[i]) })
			}
			wg.Wait()
			for _, prompt := range []string{"query", "passage"} {
				var list []string
				var at []int
				for i, x := range texts {
					if x.Prompt == prompt {
						list, at = append(list, x.Text), append(at, i)
					}
				}
				got, err := emb.Embed(t.Context(), EmbedRequest{Texts: list, Prompt: prompt})
				if err != nil {
					t.Fatal(err)
				}
				for k, i := range at {
					drift[i] = min(drift[i], testenv.Cosine(got.Row(k), alone[i]))
				}
			}
			if d := slices.Min(drift); !(d > 0.99999) {
				t.Errorf("in company a vector moved to a cosine of %.7f", d)
			}
			t.Logf("to the reference %.6f, in company %.7f", worst, slices.Min(drift))
		})
	}
}
