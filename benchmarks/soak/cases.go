package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"ragate/benchmarks"
)

// testCase is one request whose right answer is known once it was asked alone.
type testCase struct {
	name   string
	method string
	path   string
	header http.Header // beside the content type; nil mostly
	body   []byte
	bad    bool // fails by design
	// read takes the answer apart. nil: the whole body counts, to the byte.
	read func(body []byte) (answer, error)

	status int    // as answered alone
	want   answer // likewise
}

// answer is what must be the same whoever shares a batch: words exactly, numbers within what batch mates may do.
type answer struct {
	exact   string
	vectors [][]float32 // compared by cosine
	logits  []float64
	cosines []float64 // similarities
	ranked  []int     // items, best first by logits; positions of logits that are equal within the tolerance may change places
}

// tolerance is what batch mates may do to an answer.
type tolerance struct{ cosine, logit float64 }

// gap is how far answers were seen apart.
type gap struct{ cosine, logit, similarity float64 }

func (g *gap) widen(o gap) {
	g.cosine, g.logit, g.similarity = max(g.cosine, o.cosine), max(g.logit, o.logit), max(g.similarity, o.similarity)
}

// similarityGap is how far a cosine between two texts may move when each vector moves by the tolerance: two unit vectors at cosine c of
// their places alone are sqrt(2-2c) off at most, and a product with another unit vector moves by no more than that.
func (t tolerance) similarityGap() float64 { return 2 * math.Sqrt(2*(1-t.cosine)) }

// compare holds an answer against the one that was given alone.
func (want *answer) compare(got *answer, tol tolerance) (gap, error) {
	var g gap
	if want.exact != got.exact {
		return g, fmt.Errorf("it says %.300q, alone %.300q", got.exact, want.exact)
	}
	if len(want.vectors) != len(got.vectors) || len(want.logits) != len(got.logits) || len(want.cosines) != len(got.cosines) || len(want.ranked) != len(got.ranked) {
		return g, fmt.Errorf("it has %d vectors, %d logits, %d similarities and ranks %d; alone %d, %d, %d and %d", len(got.vectors), len(got.logits),
			len(got.cosines), len(got.ranked), len(want.vectors), len(want.logits), len(want.cosines), len(want.ranked))
	}
	for i, v := range want.vectors {
		if len(v) != len(got.vectors[i]) {
			return g, fmt.Errorf("vector %d has %d values, alone %d", i, len(got.vectors[i]), len(v))
		}
		d := 1 - cosine(v, got.vectors[i])
		if g.cosine = max(g.cosine, d); !(d <= 1-tol.cosine) {
			return g, fmt.Errorf("vector %d has cosine %.7f to the one alone, at least %.7f was expected", i, 1-d, tol.cosine)
		}
	}
	for i, v := range want.logits {
		d := math.Abs(v - got.logits[i])
		if g.logit = max(g.logit, d); !(d <= tol.logit) {
			return g, fmt.Errorf("item %d has logit %v, alone %v; within %v was expected", i, got.logits[i], v, tol.logit)
		}
	}
	for i, v := range want.cosines {
		d := math.Abs(v - got.cosines[i])
		if g.similarity = max(g.similarity, d); !(d <= tol.similarityGap()) {
			return g, fmt.Errorf("similarity %d is %v, alone %v; within %v was expected", i, got.cosines[i], v, tol.similarityGap())
		}
	}
	for place, i := range want.ranked {
		if k := got.ranked[place]; k != i && !(math.Abs(want.logits[i]-want.logits[k]) <= 2*tol.logit) {
			return g, fmt.Errorf("item %d is at place %d, alone item %d, whose logit is %v away", k, place, i, want.logits[i]-want.logits[k])
		}
	}
	return g, nil
}

func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return dot / math.Sqrt(aa*bb)
}

// reading turns a decoder of one answer's JSON type into a read function.
func reading[T any](take func(v *T, a *answer) error) func([]byte) (answer, error) {
	return func(body []byte) (answer, error) {
		var v T
		var a answer
		if err := json.Unmarshal(body, &v); err != nil {
			return a, fmt.Errorf("%w in %.200q", err, body)
		}
		return a, take(&v, &a)
	}
}

var readEmbeddings = reading(func(v *struct {
	Data []struct {
		Index     int             `json:"index"`
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
	Usage     json.RawMessage `json:"usage"`
	Truncated json.RawMessage `json:"truncated"`
}, a *answer) error {
	a.exact = string(v.Usage) + string(v.Truncated)
	for i, d := range v.Data {
		if d.Index != i {
			return fmt.Errorf("data[%d] has index %d", i, d.Index)
		}
		vec, err := readVector(d.Embedding)
		if err != nil {
			return err
		}
		a.vectors = append(a.vectors, vec)
	}
	return nil
})

// readVector reads a list of numbers, or their base64 form.
func readVector(raw json.RawMessage) (vec []float32, err error) {
	if raw[0] == '[' {
		return vec, json.Unmarshal(raw, &vec)
	}
	var b []byte // encoding/json reads a string into bytes as base64
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, err
	}
	for ; len(b) >= 4; b = b[4:] {
		vec = append(vec, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return vec, nil
}

var readVectors = reading(func(v *[][]float32, a *answer) error { a.vectors = *v; return nil })

var readCohereVectors = reading(func(v *struct {
	Embeddings struct {
		Float  [][]float32       `json:"float"`
		Base64 []json.RawMessage `json:"base64"`
	} `json:"embeddings"`
	Texts []string        `json:"texts"`
	Meta  json.RawMessage `json:"meta"`
}, a *answer) error {
	a.exact, a.vectors = strings.Join(v.Texts, "\n")+string(v.Meta), v.Embeddings.Float
	for i, raw := range v.Embeddings.Base64 {
		vec, err := readVector(raw)
		if err != nil {
			return err
		}
		if !slices.Equal(vec, v.Embeddings.Float[i]) {
			return fmt.Errorf("vector %d differs between float and base64", i)
		}
	}
	return nil
})

var readBareVectors = reading(func(v *struct {
	Embeddings [][]float32 `json:"embeddings"`
	Texts      []string    `json:"texts"`
}, a *answer) error {
	a.exact, a.vectors = strings.Join(v.Texts, "\n"), v.Embeddings
	return nil
})

type scored struct {
	Index    int     `json:"index"`
	Score    float64 `json:"relevance_score"`
	TEIScore float64 `json:"score"`
	Text     string  `json:"text"`
	Document *struct {
		Text string `json:"text"`
	} `json:"document"`
}

// readScores reads logits, best first, of n documents.
func readScores(list []scored, a *answer) error {
	a.logits = make([]float64, len(list))
	texts := make([]string, len(list))
	for i, s := range list {
		if s.Index < 0 || s.Index >= len(list) || slices.Contains(a.ranked, s.Index) {
			return fmt.Errorf("result %d has index %d", i, s.Index)
		}
		a.ranked = append(a.ranked, s.Index)
		a.logits[s.Index], texts[s.Index] = s.Score+s.TEIScore, s.Text
		if s.Document != nil {
			texts[s.Index] = s.Document.Text
		}
		if i > 0 && a.logits[s.Index] > a.logits[a.ranked[i-1]] {
			return fmt.Errorf("result %d is better than the one before it", i)
		}
	}
	a.exact += strings.Join(texts, "\n")
	return nil
}

var readCohereScores = reading(func(v *struct {
	Results   []scored        `json:"results"`
	Usage     json.RawMessage `json:"usage"`
	Truncated json.RawMessage `json:"truncated"`
}, a *answer) error {
	a.exact = string(v.Usage) + string(v.Truncated)
	return readScores(v.Results, a)
})

var readTEIScores = reading(func(v *[]scored, a *answer) error { return readScores(*v, a) })

var readSimilarities = reading(func(v *[]float64, a *answer) error { a.cosines = *v; return nil })

// readQueryGate reads a decision. The reason holds rounded similarities and is left out; a score within the tolerance of its threshold is not among the cases.
var readQueryGate = reading(func(v *struct {
	Needs    bool   `json:"needs_retrieval"`
	Bypassed bool   `json:"retrieval_bypassed"`
	Stage    string `json:"stage"`
	Pattern  struct {
		Rule string `json:"rule"`
	} `json:"pattern"`
	Semantic *struct {
		Score     float64 `json:"score"`
		Threshold float64 `json:"threshold"`
	} `json:"semantic"`
	Policy json.RawMessage `json:"policy"`
}, a *answer) error {
	if v.Needs == v.Bypassed {
		return fmt.Errorf("needs_retrieval and retrieval_bypassed are both %v", v.Needs)
	}
	a.exact = fmt.Sprintf("%v %s %s %s", v.Needs, v.Stage, v.Pattern.Rule, v.Policy)
	if v.Semantic != nil {
		a.cosines = []float64{v.Semantic.Score}
	}
	return nil
})

type judged struct {
	Index    int     `json:"index"`
	Logit    float64 `json:"logit"`
	Decision string  `json:"decision"`
}

type chunkAnswer struct {
	Chunks       []judged        `json:"chunks"`
	Dropped      []judged        `json:"dropped"`
	Insufficient bool            `json:"insufficient_context"`
	Metadata     map[string]any  `json:"metadata"`
	Policy       json.RawMessage `json:"policy"`
}

// readChunkGate reads a decision on chunks that were all scored.
var readChunkGate = reading(func(v *chunkAnswer, a *answer) error {
	all := slices.Concat(v.Chunks, v.Dropped)
	if v.Metadata["chunks_unscored"] != 0.0 || int(v.Metadata["chunks_retrieved"].(float64)) != len(all) {
		return fmt.Errorf("of %d chunks, %v were not scored", len(all), v.Metadata["chunks_unscored"])
	}
	a.logits = make([]float64, len(all))
	for _, c := range all {
		if c.Index < 0 || c.Index >= len(all) || slices.Contains(a.ranked, c.Index) {
			return fmt.Errorf("index %d is wrong or there twice", c.Index)
		}
		a.ranked = append(a.ranked, c.Index)
		a.logits[c.Index] = c.Logit
	}
	a.exact = fmt.Sprint(len(v.Chunks), v.Insufficient, v.Metadata["threshold"], v.Metadata["query_type"], v.Metadata["chunks_passed"], string(v.Policy))
	return nil
})

// readHurried reads a gate's decision that had no time: only its form is held.
var readHurried = reading(func(v *struct {
	Needs    *bool     `json:"needs_retrieval"`
	Bypassed *bool     `json:"retrieval_bypassed"`
	Chunks   *[]judged `json:"chunks"`
}, a *answer) error {
	switch {
	case v.Chunks != nil:
		return nil
	case v.Needs == nil || v.Bypassed == nil || *v.Needs == *v.Bypassed:
		return fmt.Errorf("it decides nothing")
	}
	return nil
})

// unhurried is a budget that no queue of these tests reaches.
const unhurried = 600_000

// writer makes the cases.
type writer struct {
	texts *benchmarks.Texts
	rng   *rand.Rand
}

// length draws a text's tokens, from 1 to 512: on a logarithmic scale, and more of the short ones. The mean is 45.
func (w *writer) length() int {
	u := w.rng.Float64()
	return int(math.Exp(u * u * math.Log(513)))
}

// batch draws how many texts a request has, from 1 to 64: n with a probability in proportion to n^-2.25. The mean is 2.2.
func (w *writer) batch() int {
	const sum = 1.4559 // of n^-2.25 for n up to 64
	u := w.rng.Float64() * sum
	for n := 1; n < 64; n++ {
		if u -= math.Pow(float64(n), -2.25); u < 0 {
			return n
		}
	}
	return 64
}

func (w *writer) passages(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.texts.Passage(w.length())
	}
	return out
}

type object = map[string]any

// good makes a request of kind n that is answered.
func (w *writer) good(n, batch int) *testCase {
	c := &testCase{method: "POST"}
	set := func(path string, body object, read func([]byte) (answer, error)) {
		c.path, c.read = path, read
		c.body, _ = json.Marshal(body) // strings and numbers only
	}
	texts := w.passages(batch)
	switch n % goodKinds {
	case 0:
		set("/v1/embeddings", object{"input": texts, "encoding_format": "base64", "input_type": "passage"}, readEmbeddings)
	case 1:
		set("/v1/embeddings", object{"input": texts, "dimensions": 96}, readEmbeddings)
	case 2:
		set("/v1/rerank", object{"query": w.texts.Query(), "documents": texts, "raw_scores": true}, readCohereScores)
	case 3:
		set("/v2/rerank", object{"query": w.texts.Query(), "documents": texts, "raw_scores": true, "return_documents": true, "max_tokens_per_doc": 100}, readCohereScores)
	case 4:
		set("/embed", object{"inputs": texts, "truncation_direction": "Left"}, readVectors)
	case 5:
		set("/", object{"inputs": texts, "normalize": false, "prompt_name": "query"}, readVectors)
	case 6:
		set("/rerank", object{"query": w.texts.Query(), "texts": texts, "raw_scores": true, "return_text": true}, readTEIScores)
	case 7:
		set("/similarity", object{"inputs": object{"source_sentence": w.texts.Query(), "sentences": texts}}, readSimilarities)
	case 8:
		set("/tokenize", object{"inputs": texts}, nil)
	case 9:
		set("/v1/embed", object{"texts": texts, "input_type": "search_document"}, readBareVectors)
	case 10:
		set("/v2/embed", object{"texts": texts, "input_type": "search_query", "embedding_types": []string{"float", "base64"}}, readCohereVectors)
	case 11:
		set("/v1/gate/query", object{"query": w.texts.Query(), "budget_ms": unhurried}, readQueryGate)
	case 12:
		small := []string{"thanks!", "good morning", "ok, got it", "bedankt", "what a lovely day it is"}
		set("/v1/gate/query", object{"query": small[w.rng.IntN(len(small))], "budget_ms": unhurried}, readQueryGate)
	case 13, 14:
		chunks := make([]object, len(texts))
		for i, text := range texts {
			chunks[i] = object{"id": i, "text": text, "similarity": w.rng.Float64()}
		}
		long := []string{"truncate", "max_passage"}[n%2]
		set("/v1/gate/chunks", object{"query": w.texts.Query(), "chunks": chunks, "budget_ms": unhurried, "explain": true, "return_text": false, "long_chunk": long}, readChunkGate)
	case 15:
		set("/v1/gate/chunks", object{"query": w.texts.Query(), "chunks": []object{{"text": texts[0]}}, "budget_ms": 1 + w.rng.IntN(20)}, readHurried)
	case 16:
		set("/v1/gate/query", object{"query": w.texts.Query(), "budget_ms": 1 + w.rng.IntN(10)}, readHurried)
	case 17:
		c.method = "GET"
		c.path = []string{"/v1/models", "/health", "/ready"}[w.rng.IntN(3)]
	}
	c.name = fmt.Sprintf("%s #%d", c.path, n)
	return c
}

const goodKinds = 18

// bad makes a request that is refused, in the nth way.
func (w *writer) bad(n int) *testCase {
	c := &testCase{method: "POST", bad: true}
	routes := []string{"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/v1/embed", "/v2/embed", "/", "/embed", "/rerank", "/similarity", "/tokenize", "/v1/gate/query", "/v1/gate/chunks"}
	c.path = routes[w.rng.IntN(len(routes))]
	text := w.texts.Passage(20)
	switch n % badKinds {
	case 0:
		c.body = []byte(`{"input":["` + text + `"`)
	case 1:
		c.body = []byte(`{"input":"` + text + `"} trailing`)
	case 2:
		c.body = []byte(strings.Repeat("[", 100_000))
	case 3:
		c.body = []byte("{\"query\":\"\xff\"}")
	case 4:
		c.body = nil
	case 5:
		c.body = []byte(`{"query":null,"input":null,"inputs":null,"texts":null}`)
	case 6:
		c.path, c.body = "/v1/embeddings", []byte(`{"input":"`+text+`","model":"no/such-model"}`)
	case 7:
		c.path, c.body = "/v1/embeddings", []byte(`{"input":[[1,2,3],[4,5]]}`)
	case 8:
		c.path, c.body = "/v1/embeddings", []byte(`{"input":[`+strings.TrimSuffix(strings.Repeat(`"a",`, 2049), ",")+`]}`)
	case 9:
		c.path, c.body = "/embed", []byte(`{"inputs":["short","`+w.texts.Passage(700)+`"],"truncate":false}`)
	case 10:
		c.path, c.body = "/v1/embeddings", []byte(`{"input":"`+text+`","dimensions":1e999}`)
	case 11:
		c.path = "/v1/nowhere"
		c.body = []byte("{}")
	case 12:
		c.method = "PUT"
		c.body = []byte("{}")
	case 13:
		c.header = http.Header{"Content-Encoding": {"gzip"}}
		c.body = []byte{0x1f, 0x8b, 0}
	case 14:
		c.header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
		c.body = []byte("input=" + text)
	case 15:
		c.path, c.body = "/v1/gate/chunks", []byte(`{"query":"a","chunks":[],"treshold":0.5}`)
	case 16:
		c.path, c.body = "/v1/gate/query", []byte(`{"query":"a","policy":"nobody's"}`)
	case 17:
		c.path, c.body = "/v2/rerank", []byte(`{"query":"a","documents":["`+text+`",{"title":"x"}]}`)
	case 18: // more than the limit, most of it behind the object
		c.path, c.body = "/tokenize", append([]byte(`{"inputs":"`+text+`"}`), bytes.Repeat([]byte(" "), 8<<20)...)
	}
	c.name = fmt.Sprintf("bad %s #%d", c.path, n)
	return c
}

const badKinds = 19
