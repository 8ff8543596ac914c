// Package contract holds answers of a server against its OpenAPI document, for tests: statuses, headers, content types and bodies.
//
// Start here: [New] reads a document; [Contract.Operations] lists what it describes, with examples of requests; [Contract.Answer] says what
// of an answer the document does not allow.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Contract is a document of OpenAPI 3.1, whose schemas are JSON Schema 2020-12 as they stand.
type Contract struct {
	Doc      map[string]any
	compiler *jsonschema.Compiler
}

// New reads a document and fails the test unless each of its schemas is one.
func New(t testing.TB, doc []byte) *Contract {
	t.Helper()
	c := &Contract{compiler: jsonschema.NewCompiler()}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	c.Doc = v.(map[string]any)
	if err := c.compiler.AddResource("api.json", v); err != nil {
		t.Fatal(err)
	}
	for name := range c.Doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.compiler.Compile("api.json#/components/schemas/" + name); err != nil {
			t.Errorf("the schema %s: %v", name, err)
		}
	}
	return c
}

// At resolves a place in the document, through references, and returns its value and its last location; nil where there is none.
func (c *Contract) At(steps ...string) (value any, place string) {
	value, place = any(c.Doc), "#"
	for i := 0; ; i++ {
		for {
			ref, _ := value.(map[string]any)["$ref"].(string)
			if ref == "" {
				break
			}
			value, place = c.Doc, "#"
			for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
				value = value.(map[string]any)[step]
				place += "/" + step
			}
		}
		if i == len(steps) {
			return value, place
		}
		next, ok := value.(map[string]any)[steps[i]]
		if !ok {
			return nil, ""
		}
		value = next
		place += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(steps[i])
		if _, object := value.(map[string]any); !object {
			return value, place
		}
	}
}

// Valid checks a JSON text against the schema at a place.
func (c *Contract) Valid(place string, text []byte) error {
	// A place is a fragment of a URL: the braces of templates are escaped in it.
	schema, err := c.compiler.Compile("api.json" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(place))
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w: %.200s", err, text)
	}
	return schema.Validate(v)
}

// Answer says what of an answer the document does not allow for an operation.
func (c *Contract) Answer(path, method string, status int, h http.Header, body []byte) error {
	response := []string{"paths", path, strings.ToLower(method), "responses", strconv.Itoa(status)}
	answer, _ := c.At(response...)
	if answer == nil {
		return fmt.Errorf("the status %d is not described; body %.300s", status, body)
	}
	described, _ := answer.(map[string]any)["headers"].(map[string]any)
	for name := range described {
		header, _ := c.At(append(response, "headers", name)...)
		_, place := c.At(append(response, "headers", name, "schema")...)
		given := h.Get(name)
		if given == "" {
			if header.(map[string]any)["required"] == true {
				return fmt.Errorf("status %d: the header %s is missing", status, name)
			}
			continue
		}
		text, _ := json.Marshal(given)
		if kind, _ := c.At(append(response, "headers", name, "schema", "type")...); kind == "integer" {
			text = []byte(given)
		}
		if err := c.Valid(place, text); err != nil {
			return fmt.Errorf("status %d: the header %s is %q: %w", status, name, given, err)
		}
	}
	for _, name := range []string{"Retry-After", "X-Ragate-Truncated", "Server-Timing", "Etag", "Www-Authenticate"} {
		if h.Get(name) == "" {
			continue
		}
		known := false
		for d := range described {
			known = known || http.CanonicalHeaderKey(d) == name
		}
		if !known {
			return fmt.Errorf("status %d: the header %s is not described", status, name)
		}
	}
	content, _ := c.At(append(response, "content")...)
	if content == nil {
		if len(body) > 0 {
			return fmt.Errorf("status %d: a body where none is described", status)
		}
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("status %d: Content-Type %q: %w", status, h.Get("Content-Type"), err)
	}
	schema, place := c.At(append(response, "content", mediaType, "schema")...)
	if schema == nil {
		return fmt.Errorf("status %d: the type %s is not described", status, mediaType)
	}
	if mediaType != "application/json" {
		return nil
	}
	if err := c.Valid(place, body); err != nil {
		return fmt.Errorf("status %d: %w\nbody %.500s", status, err, body)
	}
	return nil
}

// Operation is one of the document's.
type Operation struct {
	Path, Method string // the path with its templates; the method in small letters
	ID           string
	Open         bool              // no key is asked for
	Examples     map[string][]byte // bodies of requests
}

// Operations lists all of the document, which must be many.
func (c *Contract) Operations(t testing.TB) []Operation {
	t.Helper()
	var out []Operation
	for path, item := range c.Doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			fields := op.(map[string]any)
			o := Operation{Path: path, Method: method, Examples: map[string][]byte{}}
			o.ID, _ = fields["operationId"].(string)
			if security, ok := fields["security"].([]any); ok {
				o.Open = len(security) == 0
			}
			examples, _ := c.At("paths", path, method, "requestBody", "content", "application/json", "examples")
			if examples != nil {
				for name := range examples.(map[string]any) {
					value, _ := c.At("paths", path, method, "requestBody", "content", "application/json", "examples", name, "value")
					text, err := json.Marshal(value)
					if err != nil {
						t.Fatal(err)
					}
					o.Examples[name] = text
				}
			}
			out = append(out, o)
		}
	}
	if len(out) < 30 {
		t.Fatalf("only %d operations are described", len(out))
	}
	return out
}
