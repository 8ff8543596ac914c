package benchmarks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
	"ragate/tokenize"
)

// Workload is a named kind of request.
type Workload struct {
	Name  string
	Kind  inference.Kind
	Texts int // of a request: documents, or inputs
	// Low and High bound the tokens of a row as the model sees it, drawn evenly: of a pair with its query and special tokens, or of a text with its
	// prefix and special tokens. 0: the text is a query of the corpus.
	Low, High int
}

// The workloads that results are recorded under. A name once used is never given to another mix.
var (
	Rerank10Mixed = Workload{Name: "rerank-10-mixed", Kind: inference.KindReranker, Texts: 10, Low: 20, High: 300}
	Rerank10x128  = Workload{Name: "rerank-10x128", Kind: inference.KindReranker, Texts: 10, Low: 120, High: 128}
	Rerank4x64    = Workload{Name: "rerank-4x64", Kind: inference.KindReranker, Texts: 4, Low: 56, High: 72}
	EmbedQuery    = Workload{Name: "embed-query", Kind: inference.KindEmbedder, Texts: 1}
)

// Work is what one request asks for.
type Work struct {
	Query string // rerank only
	Texts []string
}

// Write makes one request's texts.
func (w Workload) Write(t *Texts) Work {
	var out Work
	extra := 4 // tokens of a row that are not the text's: [CLS] passage : text [SEP]
	if w.Kind == inference.KindReranker {
		out.Query = t.Query()
		extra = t.count(out.Query) + 3 // [CLS] query [SEP] text [SEP]
	}
	for range w.Texts {
		if w.High == 0 {
			out.Texts = append(out.Texts, t.Query())
			continue
		}
		out.Texts = append(out.Texts, t.Passage(t.Between(w.Low, w.High)-extra))
	}
	return out
}

// Encoder turns work into the rows that a model sees.
type Encoder struct {
	Tokenizer *tokenize.Tokenizer
	Manifest  models.Manifest
	Prompt    string // name of the prefix that the embedding requests ask for
}

// NewEncoder reads the model's tokenizer.
func NewEncoder(m models.Manifest) (*Encoder, error) {
	text, err := os.ReadFile(m.TokenizerPath)
	if err != nil {
		return nil, err
	}
	t, err := tokenize.ParseFile(m.TokenizerPath, text)
	if err != nil {
		return nil, err
	}
	return &Encoder{Tokenizer: t, Manifest: m, Prompt: "query"}, nil
}

// Count is the number of tokens of a text on its own, without special ones.
func (e *Encoder) Count(text string) int { return len(e.Tokenizer.AppendIDs(nil, text)) }

// Rows are the work's sequences, cut at the model's limit.
func (e *Encoder) Rows(w Work) ([]ort.Row, error) {
	o := tokenize.Options{MaxTokens: e.Manifest.MaxTokens}
	query := e.Tokenizer.AppendIDs(nil, w.Query)
	rows := make([]ort.Row, len(w.Texts))
	for i, text := range w.Texts {
		var enc tokenize.Encoding
		var err error
		if e.Manifest.Kind == models.KindReranker {
			enc, err = e.Tokenizer.Pair(nil, query, e.Tokenizer.AppendIDs(nil, text), o)
		} else {
			enc, err = e.Tokenizer.Single(nil, e.Tokenizer.AppendIDs(nil, e.Manifest.Prompts[e.Prompt]+text), o)
		}
		if err != nil {
			return nil, err
		}
		rows[i] = ort.Row{IDs: enc.IDs, TypeOneAt: enc.TypeOneAt}
	}
	return rows, nil
}

// Request is one HTTP request, ready to be sent, and what its answer must hold.
type Request struct {
	Path   string
	Body   []byte
	Items  int    // answers
	Mark   []byte // what stands in the answer once for each item
	Tokens int    // that the model sees, special tokens included

	// Read, where it is given, looks into an answer of status 200 in place of Mark: it must hold the right number of finite values.
	Read func(answer []byte) (Facts, error)
}

// Dialect says how this project's server wants to be asked, by a program that knows its insides. Those of other servers, and answers that are
// looked into, are package harness's.
type Dialect func(k inference.Kind, w Work) (path string, body any, mark string)

// Ragate asks for raw scores on the Cohere route, and for a query's vector in base64 on the OpenAI route.
func Ragate(k inference.Kind, w Work) (path string, body any, mark string) {
	if k == inference.KindReranker {
		return "/v1/rerank", map[string]any{"query": w.Query, "documents": w.Texts, "raw_scores": true}, `"relevance_score"`
	}
	return "/v1/embeddings", map[string]any{"input": w.Texts, "input_type": "query", "encoding_format": "base64"}, `"embedding":"`
}

// Request writes the HTTP request for some work.
func (d Dialect) Request(e *Encoder, w Work) (Request, error) {
	path, body, mark := d(inference.Kind(e.Manifest.Kind), w)
	r := Request{Path: path, Items: len(w.Texts), Mark: []byte(mark)}
	var err error
	if r.Body, err = json.Marshal(body); err != nil {
		return r, err
	}
	rows, err := e.Rows(w)
	if err != nil {
		return r, err
	}
	r.Tokens = Tokens(rows)
	return r, nil
}

// Tokens is the sum of the rows' lengths.
func Tokens(rows []ort.Row) int {
	n := 0
	for _, r := range rows {
		n += len(r.IDs)
	}
	return n
}

// check holds an answer against its request without decoding it: a JSON decoder in the client would take CPU time from the server.
func (r *Request) check(status int, answer []byte) error {
	if status != 200 {
		return fmt.Errorf("%s: status %d: %.200s", r.Path, status, answer)
	}
	if n := bytes.Count(answer, r.Mark); n != r.Items {
		return fmt.Errorf("%s: %d items in the answer, not %d: %.200s", r.Path, n, r.Items, answer)
	}
	return nil
}
