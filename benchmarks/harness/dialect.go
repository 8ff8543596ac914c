package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ragate/benchmarks"
)

// Question is what is asked, in no dialect.
type Question struct {
	Model    string // that the server is asked for, "" where it has one only
	Query    string // of a rerank or of chunks
	Texts    []string
	Passages bool // embed as passages, not as queries
	BudgetMS int  // of chunks
}

// Answer is what was answered, with values for each item in the order of the question.
type Answer struct {
	Scores  []float64   // NaN where an item has none, which only the chunk gate's may
	Vectors [][]float32 // of equal length
	Facts   benchmarks.Facts
}

// Dialect is how a server wants to be asked, and how its answers are read.
type Dialect struct {
	Name string
	// prefixed: the server adds the model's prefix for the kind of text itself. Others get texts that begin with it, so that all run the same.
	prefixed bool
	calls    map[Task]call
}

type call struct {
	path string
	body func(Question) any
	read func(n int, answer []byte) (Answer, error)
}

type object = map[string]any

// Dialects are all there are.
func Dialects() []Dialect {
	// Embeddings of both kinds are asked for in one way.
	embedding := func(c call) map[Task]call { return map[Task]call{EmbedQueries: c, EmbedPassages: c} }
	modelled := func(q Question, o object) object {
		if q.Model != "" {
			o["model"] = q.Model
		}
		return o
	}
	openAI := func(q Question) any {
		return modelled(q, object{"input": q.Texts, "encoding_format": "float"})
	}
	documents := func(q Question) any { return modelled(q, object{"query": q.Query, "documents": q.Texts}) }

	ragate := embedding(call{"/v1/embeddings", func(q Question) any {
		kind := "query"
		if q.Passages {
			kind = "passage"
		}
		return modelled(q, object{"input": q.Texts, "input_type": kind, "encoding_format": "base64"})
	}, readEmbeddings})
	ragate[Rerank] = call{"/v1/rerank", func(q Question) any {
		return modelled(q, object{"query": q.Query, "documents": q.Texts, "raw_scores": true})
	}, readRanking}
	ragate[GateQuery] = call{"/v1/gate/query", func(q Question) any {
		return object{"query": q.Texts[0]}
	}, readTurn}
	ragate[GateChunks] = call{"/v1/gate/chunks", func(q Question) any {
		chunks := make([]object, len(q.Texts))
		for i, t := range q.Texts {
			chunks[i] = object{"id": i, "text": t}
		}
		return object{"query": q.Query, "chunks": chunks, "budget_ms": q.BudgetMS, "explain": true, "return_text": false}
	}, readChunks}

	tei := embedding(call{"/embed", func(q Question) any { return object{"inputs": q.Texts, "truncate": true} }, readTEIVectors})
	tei[Rerank] = call{"/rerank", func(q Question) any {
		return object{"query": q.Query, "texts": q.Texts, "raw_scores": true, "truncate": true}
	}, readTEIRanking}

	infinity := embedding(call{"/embeddings", openAI, readEmbeddings})
	infinity[Rerank] = call{"/rerank", documents, readRanking}

	jina := embedding(call{"/v1/embeddings", openAI, readEmbeddings})
	jina[Rerank] = call{"/v1/rerank", documents, readRanking}

	cohere := embedding(call{"/v2/embed", func(q Question) any {
		kind := "search_query"
		if q.Passages {
			kind = "search_document"
		}
		return modelled(q, object{"texts": q.Texts, "input_type": kind, "embedding_types": []string{"float"}})
	}, readCohereVectors})
	cohere[Rerank] = call{"/v2/rerank", documents, readRanking}

	return []Dialect{
		{"ragate", true, ragate}, // this project's own, gates included
		{"tei", false, tei},      // text-embeddings-inference
		{"infinity", false, infinity},
		{"jina", false, jina},    // Jina's shape
		{"cohere", true, cohere}, // Cohere's shape
		{"openai", false, embedding(call{"/v1/embeddings", openAI, readEmbeddings})}, // OpenAI's, as vLLM and others have them
	}
}

// DialectNamed finds a dialect.
func DialectNamed(name string) (Dialect, error) {
	return find("dialect", name, Dialects(), func(d Dialect) string { return d.Name })
}

// find looks for an item by its name; what the items are is for the error.
func find[T any](what, name string, all []T, nameOf func(T) string) (T, error) {
	var names []string
	for _, x := range all {
		if nameOf(x) == name {
			return x, nil
		}
		names = append(names, nameOf(x))
	}
	var none T
	return none, fmt.Errorf("there is no %s %q; there are %s", what, name, strings.Join(names, ", "))
}

// Does says whether the dialect can ask for a task.
func (d Dialect) Does(t Task) bool { return d.calls[t].body != nil }

// request writes the HTTP request. prefix is put in front of texts to embed where the server does not do so. Its Tokens are left to the caller.
func (d Dialect) request(t Task, q Question, prefix string) (benchmarks.Request, error) {
	c, ok := d.calls[t]
	if !ok {
		return benchmarks.Request{}, fmt.Errorf("dialect %s has no way to ask for: %s", d.Name, t)
	}
	if !d.prefixed && prefix != "" {
		texts := make([]string, len(q.Texts))
		for i, text := range q.Texts {
			texts[i] = prefix + text
		}
		q.Texts = texts
	}
	n := len(q.Texts)
	r := benchmarks.Request{Path: c.path, Items: n, Read: func(answer []byte) (benchmarks.Facts, error) {
		a, err := c.read(n, answer)
		return a.Facts, err
	}}
	var err error
	r.Body, err = json.Marshal(c.body(q))
	return r, err
}

// usage is what OpenAI-shaped answers say of tokens.
type usage struct {
	Total  int `json:"total_tokens"`
	Prompt int `json:"prompt_tokens"`
}

func (u usage) tokens() int { return max(u.Total, u.Prompt) }

// vector is an embedding as a list of numbers, or as base64 of little-endian float32. Decoding refuses what is no finite number.
type vector []float32

var (
	errNoNumber = errors.New("a vector has a value that is no finite number")
	errNoVector = errors.New("a vector is neither a list of numbers nor base64 of float32")
)

func (v *vector) UnmarshalJSON(b []byte) error {
	if len(b) < 2 {
		return errNoVector
	}
	inner := bytes.TrimSpace(b[1 : len(b)-1])
	switch b[0] {
	case '[':
		for len(inner) > 0 {
			number := inner
			if i := bytes.IndexByte(inner, ','); i >= 0 {
				number, inner = inner[:i], inner[i+1:]
			} else {
				inner = nil
			}
			x, err := strconv.ParseFloat(string(bytes.TrimSpace(number)), 32)
			if err != nil {
				return errNoNumber
			}
			*v = append(*v, float32(x))
		}
		return nil
	case '"':
		text := string(inner)
		if strings.ContainsRune(text, '\\') { // some write a slash as \/
			if err := json.Unmarshal(b, &text); err != nil {
				return errNoVector
			}
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw)%4 != 0 {
			return errNoVector
		}
		for ; len(raw) > 0; raw = raw[4:] {
			x := math.Float32frombits(binary.LittleEndian.Uint32(raw))
			if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
				return errNoNumber
			}
			*v = append(*v, x)
		}
		return nil
	}
	return errNoVector
}

// vectors checks that there is one vector for each of n items, all of one length, none of them nothing but zeros.
func vectors(n int, list []vector, facts benchmarks.Facts) (Answer, error) {
	if len(list) != n {
		return Answer{}, fmt.Errorf("%d vectors for %d texts", len(list), n)
	}
	a := Answer{Facts: facts}
	for i, v := range list {
		switch {
		case len(v) == 0 || len(v) != len(list[0]):
			return Answer{}, fmt.Errorf("vector %d has %d values, the first one %d", i, len(v), len(list[0]))
		case !slices.ContainsFunc(v, func(x float32) bool { return x != 0 }):
			return Answer{}, fmt.Errorf("vector %d has nothing but zeros", i)
		}
		a.Vectors = append(a.Vectors, v)
	}
	return a, nil
}

// placed puts items at their index and refuses one that is outside, or there twice.
func placed[T any](n int, items []T, index func(T) *int) ([]T, error) {
	out, there := make([]T, n), make([]bool, n)
	if len(items) != n {
		return nil, fmt.Errorf("%d results for %d items", len(items), n)
	}
	for _, x := range items {
		i := index(x)
		switch {
		case i == nil:
			return nil, errors.New("a result has no index")
		case *i < 0 || *i >= n:
			return nil, fmt.Errorf("a result has index %d of %d items", *i, n)
		case there[*i]:
			return nil, fmt.Errorf("index %d is there twice", *i)
		}
		out[*i], there[*i] = x, true
	}
	return out, nil
}

func readEmbeddings(n int, answer []byte) (Answer, error) {
	type item struct {
		Index     *int
		Embedding vector
	}
	var got struct {
		Data  []item
		Usage usage
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Answer{}, err
	}
	items, err := placed(n, got.Data, func(x item) *int { return x.Index })
	if err != nil {
		return Answer{}, err
	}
	list := make([]vector, n)
	for i, x := range items {
		list[i] = x.Embedding
	}
	return vectors(n, list, benchmarks.Facts{Tokens: got.Usage.tokens()})
}

func readTEIVectors(n int, answer []byte) (Answer, error) {
	var list []vector
	if err := json.Unmarshal(answer, &list); err != nil {
		return Answer{}, err
	}
	return vectors(n, list, benchmarks.Facts{})
}

func readCohereVectors(n int, answer []byte) (Answer, error) {
	var got struct{ Embeddings struct{ Float []vector } }
	if err := json.Unmarshal(answer, &got); err != nil {
		return Answer{}, err
	}
	return vectors(n, got.Embeddings.Float, benchmarks.Facts{})
}

// ranked is a result of any reranker. JSON has no number that is not finite; null and a missing score stay nil.
type ranked struct {
	Index     *int
	Score     *float64
	Relevance *float64 `json:"relevance_score"`
}

func ranking(n int, list []ranked, facts benchmarks.Facts) (Answer, error) {
	items, err := placed(n, list, func(x ranked) *int { return x.Index })
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Facts: facts}
	for i, x := range items {
		score := x.Score
		if score == nil {
			score = x.Relevance
		}
		if score == nil {
			return Answer{}, fmt.Errorf("item %d has no score", i)
		}
		a.Scores = append(a.Scores, *score)
	}
	return a, nil
}

func readRanking(n int, answer []byte) (Answer, error) {
	var got struct {
		Results []ranked
		Usage   usage
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Answer{}, err
	}
	return ranking(n, got.Results, benchmarks.Facts{Tokens: got.Usage.tokens()})
}

func readTEIRanking(n int, answer []byte) (Answer, error) {
	var list []ranked
	if err := json.Unmarshal(answer, &list); err != nil {
		return Answer{}, err
	}
	return ranking(n, list, benchmarks.Facts{})
}

// safeStage is the stage of a decision that no stage made: the gate had no time or no room.
const safeStage = "default"

func readTurn(_ int, answer []byte) (Answer, error) {
	var got struct {
		Needs *bool `json:"needs_retrieval"`
		Stage string
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Answer{}, err
	}
	if got.Needs == nil || got.Stage == "" {
		return Answer{}, errors.New("a decision without needs_retrieval or stage")
	}
	a := Answer{Scores: []float64{0}, Facts: benchmarks.Facts{Kind: got.Stage}}
	if *got.Needs {
		a.Scores[0] = 1
	}
	if got.Stage == safeStage {
		a.Facts.Unscored = 1
	}
	return a, nil
}

func readChunks(n int, answer []byte) (Answer, error) {
	type chunk struct {
		Index     *int
		Relevance *float64
	}
	var got struct{ Chunks, Dropped []chunk }
	if err := json.Unmarshal(answer, &got); err != nil {
		return Answer{}, err
	}
	items, err := placed(n, append(got.Chunks, got.Dropped...), func(c chunk) *int { return c.Index })
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	for i, c := range items {
		switch {
		case c.Relevance == nil:
			a.Facts.Unscored++
			a.Scores = append(a.Scores, math.NaN())
			continue
		case *c.Relevance < 0 || *c.Relevance > 1:
			return Answer{}, fmt.Errorf("chunk %d has relevance %v", i, *c.Relevance)
		}
		a.Scores = append(a.Scores, *c.Relevance)
	}
	return a, nil
}

// The question whose answer is known: any model worth the name knows which text is about it.
const (
	knownQuery     = "how many vacation days do employees get"
	knownUnrelated = "Bananas are rich in potassium."
	knownRelated   = "Full-time employees receive 25 vacation days per calendar year."
)

// mostAnswer bounds what is read of one answer outside the driver: 64 MiB.
const mostAnswer = 64 << 20

// Probe asks the known question and says what is wrong with the answer. prefix is as in Source.
func (t *Target) Probe(ctx context.Context, client *http.Client, task Task, prefix string) error {
	q := Question{Model: t.Model, Query: knownQuery, Texts: []string{knownUnrelated, knownRelated}, BudgetMS: 60_000, Passages: task == EmbedPassages}
	switch task {
	case EmbedQueries, EmbedPassages:
		q.Texts = append(q.Texts, knownQuery)
	case GateQuery:
		q.Texts = []string{knownQuery}
	}
	r, err := t.Dialect.request(task, q, prefix)
	if err != nil {
		return err
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return err
	}
	for name, values := range t.Header {
		ask.Header[name] = values
	}
	ask.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(ask)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", t.Name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("%s: %s: the answer broke off: %w", t.Name, r.Path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s (dialect %s): status %d: %.300s", t.Name, r.Path, t.Dialect.Name, resp.StatusCode, body)
	}
	a, err := t.Dialect.calls[task].read(r.Items, body)
	if err != nil {
		return fmt.Errorf("%s: %s (dialect %s): %w: %.300s", t.Name, r.Path, t.Dialect.Name, err, body)
	}
	unrelated, related := 0.0, 1.0
	switch task {
	case EmbedQueries, EmbedPassages:
		unrelated, related = cosine(a.Vectors[2], a.Vectors[0]), cosine(a.Vectors[2], a.Vectors[1])
	case GateQuery:
		related = a.Scores[0] // 1 where the turn retrieves
	default:
		unrelated, related = a.Scores[0], a.Scores[1]
	}
	if !(related > unrelated) {
		return fmt.Errorf("%s: %s answers wrongly: to %q it puts %q (%.4g) not before %q (%.4g); how fast it is means nothing",
			t.Name, r.Path, knownQuery, knownRelated, related, knownUnrelated, unrelated)
	}
	return nil
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}
