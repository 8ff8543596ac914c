package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"ragate/internal/contract"
)

// Every request that the API's description gives as an example is sent to the real server, and each answer is what the description says.
func TestExamplesOfTheDescription(t *testing.T) {
	s := start(t, environment(t, store(t)))
	s.until("/ready", 200)
	get := func(method, path string, body []byte) (int, http.Header, []byte) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), s.url+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header, text
	}
	status, _, doc := get("get", "/openapi.json", nil)
	if status != 200 {
		t.Fatalf("/openapi.json: %d", status)
	}
	c := contract.New(t, doc)
	sent := 0
	for _, o := range c.Operations(t) {
		examples := o.Examples
		if len(examples) == 0 {
			examples = map[string][]byte{"": nil}
		}
		for name, body := range examples {
			for _, model := range []string{"e5-small-v2", "intfloat/e5-small-v2", "intfloat%2Fe5-small-v2"} {
				path := strings.NewReplacer("{model}", model, "{version}", "1").Replace(o.Path)
				status, header, text := get(o.Method, path, body)
				sent++
				if status != 200 {
					t.Errorf("%s %s, example %q: %d %.300s", o.Method, path, name, status, text)
				}
				if err := c.Answer(o.Path, o.Method, status, header, text); err != nil {
					t.Errorf("%s %s, example %q: %v", o.Method, path, name, err)
				}
				if path == o.Path {
					break // no model in it
				}
			}
		}
	}
	if sent < 60 {
		t.Errorf("only %d requests were sent", sent)
	}

	// The same texts have the same vectors and scores by the protocol's route as by the others.
	var vectors [][]float32
	_, _, text := get("post", "/embed", []byte(`{"inputs":["how do I park","leave"]}`))
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	flat := infer(t, get, "e5-small-v2", `{"inputs":[{"name":"text","datatype":"BYTES","shape":[2],"data":["how do I park","leave"]}]}`, 2, 384)
	for i, v := range flat {
		if d := v - float64(vectors[i/384][i%384]); d > 1e-3 || d < -1e-3 {
			t.Fatalf("element %d is %v by /infer and %v by /embed", i, v, vectors[i/384][i%384])
		}
	}
	scores := infer(t, get, "ms-marco-MiniLM-L-12-v2", `{"inputs":[{"name":"query","datatype":"BYTES","shape":[2],"data":["what is the capital of france","where do bananas grow"]},
		{"name":"documents","datatype":"BYTES","shape":[2],"data":["Paris is the capital of France.","Paris is the capital of France."]}]}`, 2)
	if scores[0] < 0.9 || scores[1] > 0.1 {
		t.Errorf("scores %v: the first query fits the document, the second does not", scores)
	}
}

// infer returns the data of a model's output, which must have the given shape.
func infer(t *testing.T, send func(method, path string, body []byte) (int, http.Header, []byte), model, body string, shape ...int) []float64 {
	t.Helper()
	status, _, text := send("post", "/v2/models/"+model+"/infer", []byte(body))
	var answer struct {
		Outputs []struct {
			Shape []int
			Data  []float64
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || status != 200 || len(answer.Outputs) != 1 {
		t.Fatalf("%d %v %.300s", status, err, text)
	}
	out, n := answer.Outputs[0], 1
	for i, d := range shape {
		if i >= len(out.Shape) || out.Shape[i] != d {
			t.Fatalf("the shape is %v, not %v", out.Shape, shape)
		}
		n *= d
	}
	if len(out.Data) != n {
		t.Fatalf("%d numbers for the shape %v", len(out.Data), shape)
	}
	return out.Data
}
