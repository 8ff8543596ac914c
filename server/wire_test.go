package server

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ragate/inference"
)

var update = flag.Bool("update", false, "write the answers into testdata/*.golden; look at the difference")

// The golden files hold requests and the answers to them, one dialect a file. A block is
//
//	## what it shows
//	POST /path
//	Header: value            (any number; Content-Type defaults to application/json)
//	body                     (one line; or quoted: "…" in Go's syntax for bytes that text cannot hold)
//	-> status
//	Header: value            (those of answerHeaders that are there)
//	body                     (random ids replaced)
//
// Texts that begin with ! make the stub models fail, see failures.

var answerHeaders = []string{"Allow", "Retry-After", "Www-Authenticate", "X-Ragate-Truncated"}

var failures = map[string]error{
	"!overloaded": &inference.OverloadedError{Tokens: 900, Queued: 262000, Held: 261800, Limit: 262144, RetryAfter: 1200 * time.Millisecond},
	"!row":        &inference.RowError{Item: 1, Failed: 2, Err: errors.New("the session failed")},
	"!nan":        &inference.RowError{Item: 0, Failed: 1, Err: inference.ErrNotFinite},
	"!closed":     fmt.Errorf("embedding: %w", inference.ErrClosed),
	"!broken":     errors.New("a secret of the inside"),
}

func failOnCommand(_ context.Context, texts []string) (error, bool) {
	for _, t := range texts {
		if t == "!panic" {
			panic("told to")
		}
		if err, ok := failures[t]; ok {
			return err, true
		}
	}
	return nil, false
}

// do sends a request straight to the handler.
func do(s *Server, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	var r *http.Request
	if body == "" && method != http.MethodPost {
		r = httptest.NewRequest(method, path, nil)
	} else {
		r = httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// Fingerprints change with every word of the defaults.
var fingerprint = regexp.MustCompile(`"fingerprint":"[0-9a-f]{16}"`)

var uuid = regexp.MustCompile(`"id":"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"`)

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) < 5 {
		t.Fatalf("5 golden files or more were expected in testdata, not %v (%v)", files, err)
	}
	s, e, r, _ := gateServer(t, func(c *Config) { c.MaxItems, c.MaxDocuments, c.MaxBodyBytes, c.MaxTokens = 4, 3, 1000, 10 })
	e.before, r.before = failOnCommand, failOnCommand
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
			var out []string
			for _, block := range blocks {
				asked, want, _ := strings.Cut(block, "\n-> ")
				got := answer(t, s, asked)
				if got != want && !*update {
					t.Errorf("%s\ngot  %s\nwant %s", asked, got, want)
				}
				out = append(out, asked+"\n-> "+got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// answer sends the request of a golden block and writes its answer down, after checking what holds for every answer.
func answer(t *testing.T, s *Server, asked string) string {
	t.Helper()
	method, path, body, headers := parseAsked(t, asked)
	w := do(s, method, path, body, headers...)
	if w.Header().Get("X-Request-Id") == "" {
		t.Errorf("%s: no X-Request-Id", asked)
	}
	got := strconv.Itoa(w.Code)
	for _, name := range answerHeaders {
		if v := w.Header().Get(name); v != "" {
			got += "\n" + name + ": " + v
		}
	}
	if w.Body.Len() > 0 {
		if ct := w.Header().Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: Content-Type %q", asked, ct)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: the answer is not JSON: %s", asked, w.Body)
		}
		got += "\n" + fingerprint.ReplaceAllString(uuid.ReplaceAllString(w.Body.String(), `"id":"UUID"`), `"fingerprint":"F"`)
	}
	return got
}

// parseAsked reads the request of a golden block.
func parseAsked(t *testing.T, asked string) (method, path, body string, headers []string) {
	t.Helper()
	lines := strings.Split(asked, "\n")
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "## ") {
		t.Fatalf("a block of a golden file was expected, not %q", asked)
	}
	method, path, _ = strings.Cut(lines[1], " ")
	for _, line := range lines[2:] {
		name, value, ok := strings.Cut(line, ":")
		switch {
		case name == "quoted":
			var err error
			if body, err = strconv.Unquote(strings.TrimSpace(value)); err != nil {
				t.Fatalf("%s: %v", lines[0], err)
			}
		case ok && regexp.MustCompile(`^[A-Z][A-Za-z-]+$`).MatchString(name):
			headers = append(headers, name, strings.TrimSpace(value))
		default:
			body = line
		}
	}
	return method, path, body, headers
}

// errorShape checks the body of an error against its dialect and returns its message.
func errorShape(t *testing.T, d dialect, body []byte) string {
	t.Helper()
	var doc struct {
		Error     json.RawMessage `json:"error"`
		ErrorType *string         `json:"error_type"`
		Message   *string         `json:"message"`
		Detail    *string         `json:"detail"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("the error is not JSON: %v: %s", err, body)
	}
	if d == dialectTEI || d == dialectKServe {
		var msg string
		if json.Unmarshal(doc.Error, &msg) != nil || (doc.ErrorType == nil) == (d == dialectTEI) || msg == "" {
			t.Fatalf("not the shape of a TEI or KServe error: %s", body)
		}
		return msg
	}
	var e map[string]any
	if err := json.Unmarshal(doc.Error, &e); err != nil {
		t.Fatalf("not the shape of an error: %s", body)
	}
	for _, k := range []string{"message", "type", "code", "param"} {
		if _, ok := e[k]; !ok {
			t.Fatalf("error.%s is not there: %s", k, body)
		}
	}
	msg, _ := e["message"].(string)
	if d == dialectCohere && (doc.Message == nil || doc.Detail == nil || *doc.Message != msg || *doc.Detail != msg) {
		t.Fatalf("not the shape of a Cohere error: %s", body)
	}
	if msg == "" {
		t.Fatalf("an error without message: %s", body)
	}
	return msg
}

// Every kind of refusal must have a row in the table, and a status that its dialect's clients know.
func TestEveryKindHasItsRow(t *testing.T) {
	for k := kindBody; k <= kindInternal; k++ {
		row := kinds[k]
		if row.status < 400 || row.typ == "" || row.code == "" || row.teiType == "" {
			t.Errorf("kind %d has no full row: %+v", k, row)
		}
		for _, d := range []dialect{dialectOpenAI, dialectCohere, dialectTEI, dialectKServe} {
			errorShape(t, d, refuse(k, "a field", "a message").appendBody(nil, d))
		}
	}
	if len(kinds) != int(kindInternal)+1 {
		t.Errorf("%d rows for %d kinds", len(kinds), kindInternal+1)
	}
}

// What a body may say wrongly, on the routes of each dialect, with the words that the message must hold.
func TestRefusals(t *testing.T) {
	s, _, _ := stubServer(nil)
	const openai, cohere, tei = "/v1/embeddings", "/v1/rerank", "/embed"
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, c := range []struct {
		path, body string
		status     int
		words      []string
	}{
		// required fields
		{openai, `{}`, 400, []string{"`input`", "required"}},
		{openai, `{"input":null}`, 400, []string{"`input`", "null"}},
		{openai, `{"inputs":"a"}`, 400, []string{"`input`", "/embed"}},
		{openai, `{"Input":"a"}`, 400, []string{"`input`", "required"}},
		{openai, `{"query":"a","documents":["b"]}`, 400, []string{"`input`", "/v1/rerank"}},
		{cohere, `{"documents":["a"]}`, 400, []string{"`query`"}},
		{cohere, `{"query":null,"documents":["a"]}`, 400, []string{"`query`", "null"}},
		{cohere, `{"query":"a"}`, 400, []string{"`documents`"}},
		{cohere, `{"query":"a","documents":null}`, 400, []string{"`documents`", "null"}},
		{cohere, `{"query":"a","texts":["b"]}`, 400, []string{"`documents`", "`texts`", "/rerank"}},
		{"/v2/rerank", `{"query":"a"}`, 400, []string{"`documents`"}},
		{tei, `{}`, 422, []string{"`inputs`"}},
		{tei, `{"inputs":null}`, 422, []string{"`inputs`", "null"}},
		{tei, `{"input":"a"}`, 422, []string{"`inputs`", "/v1/embeddings"}},
		{"/", `{"input":"a"}`, 422, []string{"`inputs`"}},
		{"/", `{"inputs":{}}`, 422, []string{"inputs.source_sentence"}},
		{"/embed", `{"inputs":{"source_sentence":"a","sentences":["b"]}}`, 422, []string{"`inputs`", "an object"}},
		{"/rerank", `{"texts":["a"]}`, 422, []string{"`query`"}},
		{"/rerank", `{"query":"a"}`, 422, []string{"`texts`"}},
		{"/rerank", `{"query":"a","texts":null,"documents":null}`, 422, []string{"`texts`"}},
		{"/rerank", `{"query":"a","texts":["a"],"documents":["b"]}`, 400, []string{"`texts`", "`documents`"}},
		{"/similarity", `{"inputs":["a","b"]}`, 422, []string{"`inputs`", "source_sentence"}},
		{"/similarity", `{"inputs":{"sentences":["a"]}}`, 422, []string{"inputs.source_sentence"}},
		{"/similarity", `{"inputs":{"source_sentence":"a"}}`, 422, []string{"inputs.sentences"}},
		{"/tokenize", `{}`, 422, []string{"`inputs`"}},
		{"/v2/embed", `{"input":"a"}`, 400, []string{"`texts`"}},

		// empty lists
		{openai, `{"input":[]}`, 400, []string{"`input`", "empty"}},
		{cohere, `{"query":"a","documents":[ ]}`, 400, []string{"`documents`", "empty"}},
		{tei, `{"inputs":[]}`, 422, []string{"`inputs`", "empty"}},
		{"/rerank", `{"query":"a","texts":[]}`, 422, []string{"`texts`", "empty"}},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":[]}}`, 422, []string{"sentences", "empty"}},
		{"/tokenize", `{"inputs":[]}`, 422, []string{"`inputs`", "empty"}},
		{"/v1/embed", `{"texts":[]}`, 400, []string{"`texts`", "empty"}},

		// types, with the item's index
		{openai, `{"input":{}}`, 400, []string{"`input`", "an object"}},
		{openai, `{"input":true}`, 400, []string{"`input`", "a boolean"}},
		{openai, `{"input":["a",1]}`, 400, []string{"`input[1]`", "a number"}},
		{openai, `{"input":["a",null]}`, 400, []string{"`input[1]`", "null"}},
		{openai, `{"input":["a",["b"]]}`, 400, []string{"`input[1]`", "an array"}},
		{openai, `{"input":[1.5]}`, 400, []string{"`input[0]`", "a number"}},
		{openai, `{"input":"a","model":1}`, 400, []string{"`model`", "a number"}},
		{openai, `{"input":"a","encoding_format":1}`, 400, []string{"`encoding_format`"}},
		{openai, `{"input":"a","encoding_format":"hex"}`, 400, []string{"`encoding_format`", "hex", "float", "base64"}},
		{openai, `{"input":"a","input_type":"qery"}`, 400, []string{"`input_type`", "qery", "query", "passage", "document"}},
		{cohere, `{"query":1,"documents":["a"]}`, 400, []string{"`query`", "a number"}},
		{cohere, `{"query":"a","documents":"b"}`, 400, []string{"`documents`", "a string"}},
		{cohere, `{"query":"a","documents":["x",{"title":"x"}]}`, 400, []string{"documents[1].text", "required"}},
		{cohere, `{"query":"a","documents":["x",{"text":7}]}`, 400, []string{"documents[1].text", "a number"}},
		{cohere, `{"query":"a","documents":[null]}`, 400, []string{"documents[0]", "null"}},
		{cohere, `{"query":"a","documents":["x","y",1]}`, 400, []string{"documents[2]", "a number"}},
		{cohere, `{"query":"a","documents":["x"],"return_documents":"yes"}`, 400, []string{"`return_documents`", "a string"}},
		{tei, `{"inputs":1}`, 422, []string{"`inputs`", "a number"}},
		{tei, `{"inputs":["a",null]}`, 422, []string{"`inputs[1]`", "null"}},
		{tei, `{"inputs":"a","truncate":"yes"}`, 422, []string{"`truncate`", "a string"}},
		{tei, `{"inputs":"a","normalize":1}`, 422, []string{"`normalize`", "a number"}},
		{tei, `{"inputs":"a","truncation_direction":"Middle"}`, 422, []string{"`truncation_direction`", "Middle", "Left", "Right"}},
		{tei, `{"inputs":"a","prompt_name":"nope"}`, 422, []string{"`prompt_name`", "nope", "passage", "query"}},
		{"/rerank", `{"query":["a"],"texts":["b"]}`, 422, []string{"`query`", "an array"}},
		{"/rerank", `{"query":"a","texts":"b"}`, 422, []string{"`texts`", "a string"}},
		{"/rerank", `{"query":"a","texts":[{"text":"b"}]}`, 422, []string{"`texts[0]`", "an object"}},
		{"/rerank", `{"query":"a","documents":["x",null]}`, 400, []string{"documents[1]"}},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b",2]}}`, 422, []string{"inputs.sentences[1]"}},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b"]},"parameters":[]}`, 422, []string{"`parameters`"}},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b"]},"parameters":{"truncate":3}}`, 422, []string{"parameters.truncate"}},
		{"/tokenize", `{"inputs":"a","add_special_tokens":"no"}`, 422, []string{"`add_special_tokens`"}},
		{"/tokenize", `{"inputs":"a","prompt_name":"nope"}`, 422, []string{"`prompt_name`", "nope"}},
		{"/v2/embed", `{"texts":["a"],"embedding_types":["int8"]}`, 400, []string{"`embedding_types`", "int8", "float"}},
		{"/v2/embed", `{"texts":["a"],"truncate":"MIDDLE"}`, 400, []string{"`truncate`", "MIDDLE", "END"}},

		// numbers
		{openai, `{"input":"a","dimensions":0}`, 400, []string{"`dimensions`", "is 0", "8"}},
		{openai, `{"input":"a","dimensions":-1}`, 400, []string{"`dimensions`", "is -1", "8"}},
		{openai, `{"input":"a","dimensions":9}`, 400, []string{"`dimensions`", "is 9", "8"}},
		{openai, `{"input":"a","dimensions":"4"}`, 400, []string{"`dimensions`", "a string"}},
		{openai, `{"input":"a","dimensions":1.5}`, 400, []string{"`dimensions`", "1.5", "whole"}},
		{tei, `{"inputs":"a","dimensions":0}`, 400, []string{"`dimensions`", "is 0", "8"}},
		{tei, `{"inputs":"a","dimensions":1.5}`, 400, []string{"`dimensions`", "1.5", "8"}},
		{tei, `{"inputs":"a","dimensions":"4"}`, 422, []string{"`dimensions`", "a string"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":0}`, 400, []string{"`top_n`", "is 0"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":-1}`, 400, []string{"`top_n`", "is -1"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":1.5}`, 400, []string{"`top_n`", "1.5"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":"2"}`, 400, []string{"`top_n`", "a string"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":true}`, 400, []string{"`top_n`", "a boolean"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":1e400}`, 400, []string{"`top_n`", "1e400"}},
		{cohere, `{"query":"a","documents":["b"],"top_n":99999999999999999999}`, 400, []string{"`top_n`"}},
		{cohere, `{"query":"a","documents":["b"],"max_tokens_per_doc":0}`, 400, []string{"`max_tokens_per_doc`", "is 0"}},
		{cohere, `{"query":"a","documents":["b"],"max_tokens_per_doc":-1}`, 400, []string{"`max_tokens_per_doc`", "is -1"}},

		// token ids
		{openai, `{"input":[15339,1917]}`, 400, []string{"text", "check_embedding_ctx_length=False"}},
		{openai, `{"input":[[15339],[1917, 3]]}`, 400, []string{"text", "check_embedding_ctx_length=False"}},
		{tei, `{"inputs":[1,2]}`, 422, []string{"inputs[0]", "a number"}},
		{"/rerank", `{"query":"a","texts":[1]}`, 422, []string{"texts[0]", "a number"}},
		{"/tokenize", `{"inputs":[[1]]}`, 422, []string{"inputs[0]", "an array"}},

		// models
		{openai, `{"input":"a","model":"gpt-nope"}`, 404, []string{"gpt-nope", "stub/embedder"}},
		{cohere, `{"query":"a","documents":["b"],"model":"nope"}`, 404, []string{"nope", "stub/reranker"}},
		{openai, `{"input":"a","model":"stub/reranker"}`, 400, []string{"stub/reranker", "a reranker", "an embedder", "stub/embedder"}},
		{cohere, `{"query":"a","documents":["b"],"model":"embedder"}`, 400, []string{"embedder", "a reranker", "stub/reranker"}},

		// bodies that are not JSON, or no object
		{openai, ``, 400, []string{"empty"}},
		{openai, " \r\n\t", 400, []string{"empty"}},
		{openai, `null`, 400, []string{"object", "null"}},
		{openai, `[]`, 400, []string{"object", "an array"}},
		{openai, `"a"`, 400, []string{"object", "a string"}},
		{tei, ``, 400, []string{"empty"}},
		{tei, `null`, 422, []string{"`inputs`", "null"}},
		{tei, `[]`, 422, []string{"`inputs`", "an array"}},
		{tei, `[`, 400, []string{"byte 1"}},
		{openai, `{"input":"a"`, 400, []string{"byte 12"}},
		{openai, `{input:"a"}`, 400, []string{"byte 1", "double quotes"}},
		{openai, `{'input':'a'}`, 400, []string{"byte 1"}},
		{cohere, `{"query":"a","documents":["b",]}`, 400, []string{"byte 30"}},
		{tei, `{"inputs":NaN}`, 400, []string{"byte 10"}},
		{"/rerank", `hello`, 400, []string{"byte 0"}},
		{openai, `{"input":"a"} {"input":"b"}`, 400, []string{"byte 14", "end of the body"}},
		{openai, `{"input":"a"}x`, 400, []string{"byte 13"}},
		{tei, `{"inputs":"a"}]`, 400, []string{"byte 14"}},
		{cohere, `{"query":"a","documents":["b"]},`, 400, []string{"end of the body"}},
		{openai, "{\"input\":\"a\nb\"}", 400, []string{"control character", "0x0a"}},
		{openai, `{"input":"a\x"}`, 400, []string{"escaped"}},
		{openai, `{"input":"\u12g4"}`, 400, []string{"hexadecimal"}},
		{openai, `{"input":01}`, 400, []string{"byte 10"}},
		{openai, `{"input":"a","x":1.}`, 400, []string{"digit"}},
		{openai, `{"input":"a","x":-}`, 400, []string{"digit"}},
		{openai, `{"input":"a","x":1e}`, 400, []string{"digit"}},
		{openai, `{"input":"a","x":tru}`, 400, []string{"a value"}},
		{openai, "{\"input\":\"\xff\xfe\"}", 400, []string{"UTF-8", "offset 10", "0xff"}},
		{openai, "\ufeff{\"input\":\"a\"}", 400, []string{"byte-order mark"}},
		{cohere, "{\"query\":\"caf\xe9\",\"documents\":[\"x\"]}", 400, []string{"UTF-8", "offset 13"}},
		{tei, "{\"inputs\":\"\xed\xa0\x80\"}", 400, []string{"UTF-8", "offset 11"}},
		{openai, `{"input":` + deep + `}`, 400, []string{"nested deeper than 64"}},
		{tei, `{"inputs":"a","x":` + strings.Repeat(`{"a":`, 30000) + `1` + strings.Repeat(`}`, 30000) + `}`, 400, []string{"nested deeper than 64"}},

		// duplicates: the last counts
		{openai, `{"input":"a","input":1}`, 400, []string{"`input`"}},
		{openai, `{"input":"a","input":null}`, 400, []string{"`input`", "null"}},
	} {
		w := do(s, "POST", c.path, c.body)
		name := clip(c.path + " " + c.body)
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, c.status, w.Body)
			continue
		}
		d := dialectOf(c.path)
		if c.path == "/rerank" && strings.Contains(c.body, `"documents":["x",null]`) {
			d = dialectCohere
		}
		msg := errorShape(t, d, w.Body.Bytes())
		for _, word := range c.words {
			if !strings.Contains(msg, word) {
				t.Errorf("%s: %q is not in the message %q", name, word, msg)
			}
		}
		if len(msg) > 500 {
			t.Errorf("%s: a message of %d bytes repeats the body", name, len(msg))
		}
	}
}

// What must be accepted although it looks odd.
func TestAccepted(t *testing.T) {
	s, e, r := stubServer(nil)
	for _, c := range []struct{ path, body string }{
		{"/v1/embeddings", `{"input":""}`},
		{"/v1/embeddings", `{"input":["a"," ",""]}`},
		{"/v1/embeddings", "\n {\"input\":\"a\"}\r\n\t "},
		{"/v1/embeddings", `{"input":1,"input":"a"}`},
		{"/v1/embeddings", `{"inp\u0075t":"a"}`},
		{"/v1/embeddings", `{"input":"a","user":7,"truncate":"END","foo":{"bar":[1,1e999]},"encoding_format":null,"dimensions":null,"model":null,"input_type":null}`},
		{"/v1/embeddings", `{"input":"a","model":"embedder"}`},
		{"/v1/embeddings", `{"input":"a","model":""}`},
		{"/v1/embeddings", `{"input":"a","dimensions":4.0}`},
		{"/v1/embeddings", `{"input":"a","dimensions":8e0}`},
		{"/v1/embeddings", `{"input":"a\u0000b"}`},
		{"/v1/embeddings", `{"input":"a","INPUT":1}`},
		{"/v1/rerank", `{"query":"","documents":[""]}`},
		{"/v1/rerank", `{"query":"a","documents":["b","c"],"top_n":9223372036854775807}`},
		{"/v1/rerank", `{"query":"a","documents":["b"],"top_n":null,"return_documents":null,"max_tokens_per_doc":null,"raw_scores":null,"rank_fields":["x"]}`},
		{"/v2/rerank", `{"query":"a","documents":[{"text":"b","metadata":{"a":[1,{"b":2}]}},"c"]}`},
		{"/embed", `{"inputs":"a","truncate":null,"truncation_direction":null,"normalize":null,"prompt_name":null,"dimensions":null}`},
		{"/rerank", `{"query":"a","texts":["b"],"documents":null}`},
		{"/rerank", `{"query":"a","documents":["b"],"texts":null}`},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":["b"]},"parameters":null}`},
	} {
		if w := do(s, "POST", c.path, c.body); w.Code != 200 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
	if len(e.embeds) == 0 || len(r.ranks) == 0 {
		t.Fatal("no request reached the models")
	}
}

// What reaches the models is what the body said.
func TestRequestsReachTheModels(t *testing.T) {
	s, e, r := stubServer(func(c *Config) { c.MaxTokens = 300 })
	embeds := []struct {
		path, body string
		want       inference.EmbedRequest
	}{
		{"/v1/embeddings", `{"input":["a\ud83d\ude00","\ud83d b","\ude00"]}`,
			inference.EmbedRequest{Texts: []string{"a😀", "\ufffd b", "\ufffd"}}},
		{"/v1/embeddings", `{"input":"\ud83d\u0041\"\\\/\b\f\n\r\t\u0000"}`,
			inference.EmbedRequest{Texts: []string{"\ufffdA\"\\/\b\f\n\r\t\x00"}, Lane: inference.LaneInteractive}},
		{"/v1/embeddings", `{"input":"a","input_type":"query"}`,
			inference.EmbedRequest{Texts: []string{"a"}, Prompt: "query", Lane: inference.LaneInteractive}},
		{"/v1/embeddings", `{"input":["a","b"],"input_type":"document"}`,
			inference.EmbedRequest{Texts: []string{"a", "b"}, Prompt: "passage"}},
		{"/v1/embeddings", `{"input":"` + strings.Repeat("x", interactiveBytes+1) + `","input_type":"passage"}`,
			inference.EmbedRequest{Texts: []string{strings.Repeat("x", interactiveBytes+1)}, Prompt: "passage"}},
		{"/embed", `{"inputs":["a","b"],"normalize":false,"truncate":false,"truncation_direction":"Left","prompt_name":"query"}`,
			inference.EmbedRequest{Texts: []string{"a", "b"}, Prompt: "query", SkipNormalize: true,
				Truncation: inference.Truncation{Refuse: true, Side: inference.Left}}},
		{"/", `{"inputs":"a"}`, inference.EmbedRequest{Texts: []string{"a"}, Lane: inference.LaneInteractive}},
		{"/similarity", `{"inputs":{"source_sentence":"s","sentences":["a","b"]},"parameters":{"truncate":false,"prompt_name":"passage"}}`,
			inference.EmbedRequest{Texts: []string{"s", "a", "b"}, Prompt: "passage", Truncation: inference.Truncation{Refuse: true}}},
		{"/v1/embed", `{"texts":["a","b"],"input_type":"search_document","truncate":"START"}`,
			inference.EmbedRequest{Texts: []string{"a", "b"}, Prompt: "passage", Truncation: inference.Truncation{Side: inference.Left}}},
		{"/v2/embed", `{"texts":["a","b"],"input_type":"classification","truncate":"NONE"}`,
			inference.EmbedRequest{Texts: []string{"a", "b"}, Truncation: inference.Truncation{Refuse: true}}},
	}
	for _, c := range embeds {
		c.want.Truncation.MaxTokens = 300
		e.embeds = nil
		w := do(s, "POST", c.path, c.body)
		if len(e.embeds) != 1 || !slices.Equal(e.embeds[0].Texts, c.want.Texts) || e.embeds[0].Prompt != c.want.Prompt ||
			e.embeds[0].SkipNormalize != c.want.SkipNormalize || e.embeds[0].Truncation != c.want.Truncation || e.embeds[0].Lane != c.want.Lane {
			t.Errorf("%s %s: %d, the model saw %+v, want %+v", c.path, c.body, w.Code, e.embeds, c.want)
		}
	}
	ranks := []struct {
		path, body string
		want       inference.RerankRequest
	}{
		{"/v1/rerank", `{"query":"q","documents":["a",{"text":"b"}],"max_tokens_per_doc":20,"top_n":1}`,
			inference.RerankRequest{Query: "q", Documents: []string{"a", "b"}, MaxTokensPerDoc: 20}},
		{"/rerank", `{"query":"q","documents":["a"],"max_tokens_per_doc":5}`,
			inference.RerankRequest{Query: "q", Documents: []string{"a"}, MaxTokensPerDoc: 5}},
		{"/rerank", `{"query":"q","texts":["a","a"],"truncate":false,"truncation_direction":"Left"}`,
			inference.RerankRequest{Query: "q", Documents: []string{"a", "a"}, Truncation: inference.Truncation{Refuse: true, Side: inference.Left}}},
	}
	for _, c := range ranks {
		c.want.Truncation.MaxTokens = 300
		r.ranks = nil
		w := do(s, "POST", c.path, c.body)
		if len(r.ranks) != 1 || r.ranks[0].Query != c.want.Query || !slices.Equal(r.ranks[0].Documents, c.want.Documents) ||
			r.ranks[0].MaxTokensPerDoc != c.want.MaxTokensPerDoc || r.ranks[0].Truncation != c.want.Truncation || r.ranks[0].Lane != c.want.Lane {
			t.Errorf("%s %s: %d, the model saw %+v, want %+v", c.path, c.body, w.Code, r.ranks, c.want)
		}
	}
}

// A model without prefixes takes input_type as the wish it cannot fulfil, not as an error.
func TestInputTypeWithoutPrompts(t *testing.T) {
	s, e, _ := stubServer(nil)
	e.info.Prompts = nil
	s.SetReady(Engine{Models: []Model{e}})
	if w := do(s, "POST", "/v1/embeddings", `{"input":"a","input_type":"query"}`); w.Code != 200 || e.embeds[0].Prompt != "" {
		t.Errorf("%d %s, prompt %q", w.Code, w.Body, e.embeds[0].Prompt)
	}
}

// Truncation by setting: a request that does not say is refused where the setting says so, and names item, tokens, limit and remedy.
func TestTruncateSetting(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) { c.Truncate = false })
	long := strings.Repeat("dog ", 700)
	for path, body := range map[string]string{
		"/v1/embeddings": `{"input":["short","` + long + `"]}`,
		"/v1/rerank":     `{"query":"q","documents":["short","` + long + `"]}`,
		"/embed":         `{"inputs":["short","` + long + `"]}`,
		"/rerank":        `{"query":"q","texts":["short","` + long + `"]}`,
		"/v2/embed":      `{"texts":["short","` + long + `"]}`,
	} {
		w := do(s, "POST", path, body)
		msg := errorShape(t, dialectOf(path), w.Body.Bytes())
		if w.Code != 413 || !strings.Contains(msg, "[1]") || !strings.Contains(msg, " 512 ") || !strings.Contains(msg, " 70") {
			t.Errorf("%s: %d %s", path, w.Code, msg)
		}
	}
	for path, body := range map[string]string{
		"/embed":    `{"inputs":"` + long + `","truncate":true}`,
		"/rerank":   `{"query":"q","texts":["` + long + `"],"truncate":true}`,
		"/v2/embed": `{"texts":["` + long + `"],"truncate":"END"}`,
	} {
		if w := do(s, "POST", path, body); w.Code != 200 || w.Header().Get("X-Ragate-Truncated") != "1" {
			t.Errorf("%s with truncate: %d %q", path, w.Code, w.Header().Get("X-Ragate-Truncated"))
		}
	}
}

// Content types: JSON in any spelling and none at all pass; what forms and curl send by default is told what to do.
func TestContentType(t *testing.T) {
	s, _, _ := stubServer(nil)
	for _, ct := range []string{"", "application/json", "application/json; charset=utf-8", "application/JSON;charset=UTF-8",
		`application/json; charset="utf-8"`, "application/vnd.api+json", "application/json;"} {
		if w := do(s, "POST", "/v1/embeddings", `{"input":"a"}`, "Content-Type", ct); w.Code != 200 {
			t.Errorf("%q: %d %s", ct, w.Code, w.Body)
		}
	}
	for _, ct := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "application/xml",
		"application/json; charset=utf-16", "json"} {
		for path, body := range map[string]string{"/v1/embeddings": `{"input":"a"}`, "/embed": `{"inputs":"a"}`} {
			w := do(s, "POST", path, body, "Content-Type", ct)
			if msg := errorShape(t, dialectOf(path), w.Body.Bytes()); w.Code != 400 || !strings.Contains(msg, "application/json") {
				t.Errorf("%s as %q: %d %s", path, ct, w.Code, msg)
			}
		}
	}
	if w := do(s, "POST", "/embed", `{"inputs":"a"}`, "Content-Encoding", "gzip"); w.Code != 400 || !strings.Contains(w.Body.String(), "uncompressed") {
		t.Errorf("gzip: %d %s", w.Code, w.Body)
	}
}

// Limits of lists: exactly the limit passes, one more is refused with count, limit and setting, whatever the items are.
func TestItemLimits(t *testing.T) {
	s, e, r := stubServer(func(c *Config) { c.MaxItems, c.MaxDocuments = 32, 16 })
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for _, c := range []struct {
		path, body, item string
		limit            int
		setting          string
	}{
		{"/v1/embeddings", `{"input":%s}`, `"t"`, 32, "RAGATE_MAX_ITEMS"},
		{"/v1/embed", `{"texts":%s}`, `"t"`, 32, "RAGATE_MAX_ITEMS"},
		{"/embed", `{"inputs":%s}`, `"a,b,c"`, 32, "RAGATE_MAX_ITEMS"},
		{"/similarity", `{"inputs":{"source_sentence":"a","sentences":%s}}`, `"t"`, 32, "RAGATE_MAX_ITEMS"},
		{"/tokenize", `{"inputs":%s}`, `"t"`, 32, "RAGATE_MAX_ITEMS"},
		{"/v1/rerank", `{"query":"a","documents":%s}`, `{"text":"t"}`, 16, "RAGATE_MAX_DOCUMENTS"},
		{"/rerank", `{"query":"a","texts":%s}`, `"t"`, 16, "RAGATE_MAX_DOCUMENTS"},
		{"/rerank", `{"query":"a","documents":%s}`, `"t"`, 16, "RAGATE_MAX_DOCUMENTS"},
	} {
		if w := do(s, "POST", c.path, fmt.Sprintf(c.body, list(c.limit, c.item))); w.Code != 200 {
			t.Errorf("%s with exactly %d: %d %s", c.path, c.limit, w.Code, w.Body)
		}
		e.embeds, r.ranks = nil, nil
		w := do(s, "POST", c.path, fmt.Sprintf(c.body, list(c.limit+1, c.item)))
		for _, word := range []string{" " + strconv.Itoa(c.limit+1) + " ", " " + strconv.Itoa(c.limit) + ":", c.setting} {
			if w.Code != 413 || !strings.Contains(w.Body.String(), word) || strings.Contains(w.Body.String(), "byte") {
				t.Errorf("%s with %d: %d %s, %q was expected", c.path, c.limit+1, w.Code, w.Body, word)
			}
		}
		if len(e.embeds)+len(r.ranks) != 0 {
			t.Errorf("%s: a refused request reached a model", c.path)
		}
	}
}

// An engine that breaks its promise of finite numbers must not make the server break its promise of JSON.
func TestNotFinite(t *testing.T) {
	s, e, r := stubServer(nil)
	nan := float32(0)
	nan /= nan
	e.vector = make([]float32, stubDim)
	e.vector[3] = nan
	r.logits = []float32{1, nan}
	for path, body := range map[string]string{
		"/v1/embeddings": `{"input":["a"]}`, "/embed": `{"inputs":["a"]}`, "/v2/embed": `{"texts":["a"]}`,
		"/similarity": `{"inputs":{"source_sentence":"a","sentences":["b"]}}`,
		"/v1/rerank":  `{"query":"a","documents":["x","y"]}`, "/rerank": `{"query":"a","texts":["x","y"]}`,
	} {
		w := do(s, "POST", path, body)
		if msg := errorShape(t, dialectOf(path), w.Body.Bytes()); w.Code != 500 || !strings.Contains(msg, "not finite") {
			t.Errorf("%s: %d %s", path, w.Code, msg)
		}
	}
}

// Scores are ordered by the float32 logit where sigmoids saturate, equal ones by index; the sigmoid is applied once.
func TestSaturatedScoresKeepTheirOrder(t *testing.T) {
	s, _, r := stubServer(nil)
	r.logits = []float32{40, 41, -120, 40, 0}
	var got struct {
		Results []struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
		} `json:"results"`
	}
	w := do(s, "POST", "/v1/rerank", `{"query":"q","documents":["a","b","c","d","e"]}`)
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 0, 3, 4, 2} {
		if got.Results[i].Index != want {
			t.Errorf("place %d has index %d, want %d", i, got.Results[i].Index, want)
		}
	}
	if got.Results[0].Score != 1 || got.Results[3].Score != 0.5 || got.Results[4].Score <= 0 || got.Results[4].Score > 1e-50 {
		t.Errorf("scores %+v", got.Results)
	}
}
