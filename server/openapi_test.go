package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"ragate/internal/contract"
	"ragate/server/openapi"
)

// document fetches the description from a server.
func document(t *testing.T, s *Server, headers ...string) []byte {
	t.Helper()
	w := do(s, "GET", "/openapi.json", "", headers...)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("/openapi.json: %d %s", w.Code, w.Header())
	}
	return w.Body.Bytes()
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDocumentHead(t *testing.T) {
	for _, keys := range [][]Key{nil, {{"one", "k1"}}} {
		s, _, _ := stubServer(func(c *Config) { c.Keys, c.Version = keys, "v9.8.7" })
		doc := document(t, s, "X-API-Key", "k1")
		c := contract.New(t, doc)
		info, _ := c.At("info", "version")
		if c.Doc["openapi"] != "3.1.0" || info != "v9.8.7" {
			t.Errorf("openapi %q, version %q", c.Doc["openapi"], info)
		}
		if security := c.Doc["security"].([]any); (len(security) > 0) != (keys != nil) {
			t.Errorf("with the keys %v the document asks for %v", keys, security)
		}
		if bytes.Contains(doc, []byte("x-shared")) {
			t.Error("the blocks that are only there to be repeated are in the document")
		}
		ids := map[string]string{}
		for _, o := range c.Operations(t) {
			if at, twice := ids[o.ID]; twice || o.ID == "" {
				t.Errorf("%s %s has the operationId %q, as %s", o.Method, o.Path, o.ID, at)
			}
			ids[o.ID] = o.Method + " " + o.Path
		}
	}
}

// The examples in the document are what it says elsewhere that they are.
func TestDocumentExamples(t *testing.T) {
	s, _, _ := stubServer(nil)
	c := contract.New(t, document(t, s))
	seen := 0
	check := func(steps ...string) {
		content, _ := c.At(append(steps, "content")...)
		if content == nil {
			return
		}
		for mediaType := range content.(map[string]any) {
			media := append(slices.Clone(steps), "content", mediaType)
			_, schema := c.At(append(media, "schema")...)
			examples, _ := c.At(append(media, "examples")...)
			if examples == nil {
				continue
			}
			for name := range examples.(map[string]any) {
				value, _ := c.At(append(media, "examples", name, "value")...)
				if err := c.Valid(schema, mustJSON(t, value)); err != nil {
					t.Errorf("the example %s of %v: %v", name, steps, err)
				}
				seen++
			}
		}
	}
	for _, o := range c.Operations(t) {
		at := []string{"paths", o.Path, o.Method}
		check(append(slices.Clone(at), "requestBody")...)
		if body, _ := c.At(append(at, "requestBody")...); body != nil && len(o.Examples) == 0 {
			t.Errorf("%s has no example of a request", o.Path)
		}
		responses, _ := c.At(append(at, "responses")...)
		for status := range responses.(map[string]any) {
			check(append(slices.Clone(at), "responses", status)...)
		}
	}
	if seen < 100 {
		t.Errorf("only %d examples were looked at", seen)
	}
}

// modelOperations are those of the one route whose tail is read by hand.
var modelOperations = []string{
	"get /v2/models/{model}", "get /v2/models/{model}/versions/{version}", "get /v2/models/{model}/ready",
	"get /v2/models/{model}/versions/{version}/ready", "post /v2/models/{model}/infer", "post /v2/models/{model}/versions/{version}/infer",
}

// concrete is a path for the request of an operation.
func concrete(o contract.Operation) string {
	return strings.NewReplacer("{model}", "embedder", "{version}", "1").Replace(o.Path)
}

// Every route is described, and nothing else; which ones need a key too.
func TestDocumentHasTheRoutes(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) { c.Keys = []Key{{"one", "k1"}} })
	c := contract.New(t, document(t, s, "X-API-Key", "k1"))
	routed := map[string]bool{}
	for _, o := range modelOperations {
		routed[o] = true
	}
	for _, r := range s.echo.Routes() {
		switch {
		case r.Path == kservePattern:
		case r.Method == http.MethodHead:
			if !slices.ContainsFunc(s.echo.Routes(), func(g *echo.Route) bool { return g.Path == r.Path && g.Method == http.MethodGet }) {
				t.Errorf("HEAD %s without GET", r.Path)
			}
		default:
			routed[strings.ToLower(r.Method)+" "+strings.ReplaceAll(r.Path, "*", "{model}")] = true
		}
	}
	for _, o := range c.Operations(t) {
		name := o.Method + " " + o.Path
		if !routed[name] {
			t.Errorf("%s is described, and there is no such route", name)
		}
		delete(routed, name)
		if o.Open != open[o.Path] {
			t.Errorf("%s: the document says that it is open: %v; the server: %v", name, o.Open, open[o.Path])
		}
		if says, _ := c.At("paths", o.Path, o.Method, "responses", "401"); (says != nil) == o.Open {
			t.Errorf("%s: a 401 is described: %v, while it is open: %v", name, says != nil, o.Open)
		}
		w := do(s, strings.ToUpper(o.Method), concrete(o), "")
		if (w.Code == 401) == o.Open {
			t.Errorf("%s without a key: %d", name, w.Code)
		}
		if err := c.Answer(o.Path, o.Method, w.Code, w.Header(), w.Body.Bytes()); err != nil {
			t.Errorf("%s without a key: %v", name, err)
		}
	}
	for r := range routed {
		t.Errorf("%s is not described", r)
	}
}

// What can go wrong on each route is described: the same mishaps for all, and each answer must be one of the document's.
func TestDocumentAllowsWhatGoesWrong(t *testing.T) {
	s, e, r, _ := gateServer(t, func(c *Config) { c.MaxItems, c.MaxDocuments, c.MaxBodyBytes = 4, 3, 4000 })
	c := contract.New(t, document(t, s))
	starting, err := New(DefaultConfig(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	draining, _, _ := stubServer(nil)
	draining.Drain()
	var fault error // of the models, now
	broken := func() {
		if fault == nil {
			panic("told to")
		}
	}
	e.before = func(context.Context, []string) (error, bool) { broken(); return fault, true }
	r.before = e.before

	statuses := map[string]map[int]bool{}
	for _, o := range c.Operations(t) {
		name := o.Method + " " + o.Path
		statuses[name] = map[int]bool{}
		try := func(what string, s *Server, body string, headers ...string) {
			t.Helper()
			w := do(s, strings.ToUpper(o.Method), concrete(o), body, headers...)
			if err := c.Answer(o.Path, o.Method, w.Code, w.Header(), w.Body.Bytes()); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			statuses[name][w.Code] = true
		}
		bodies := map[string]string{"": "", "nothing": `{}`, "a list": `[]`, "no JSON": `{`, "too much": strings.Repeat(" ", 5000),
			"an empty list":  `{"query":"q","input":[],"inputs":[],"texts":[],"documents":[],"chunks":[]}`,
			"too many":       `{"query":"q","input":["a","b","c","d","e"]}`,
			"wrong types":    `{"query":1,"input":1,"inputs":1,"texts":1,"documents":1,"chunks":1}`,
			"both shapes":    `{"query":"q","texts":["a"],"documents":["b"]}`,
			"another's body": `{"query":"q","documents":["b"],"model":"nobody"}`,
		}
		for example, body := range o.Examples {
			bodies[example] = string(body)
		}
		for what, body := range bodies {
			for _, fault = range []error{nil, failures["!overloaded"], failures["!row"], failures["!closed"], errors.New("an accident")} {
				try(what, s, body)
			}
			try(what+", while it starts", starting, body)
			try(what+", while it drains", draining, body)
			try(what+", with a form type", s, body, "Content-Type", "application/x-www-form-urlencoded")
		}
	}
	for name, want := range map[string][]int{
		"post /v1/embeddings": {400, 413, 429, 500, 503}, "post /rerank": {400, 404, 413, 422, 429, 500, 503}, "post /v2/embed": {400, 413, 429, 500, 503},
		"post /v2/models/{model}/infer": {400, 413, 429, 500, 503}, "get /ready": {200, 503}, "get /v1/models": {200, 503},
		"post /v1/gate/chunks": {200, 400, 413, 503}, "post /v1/gate/references/reload": {400, 429, 500, 503},
	} {
		for _, status := range want {
			if !statuses[name][status] {
				t.Errorf("%s: nothing here made it answer %d; there were %v", name, status, statuses[name])
			}
		}
	}
}

// Every answer of the golden files is one that the document allows.
func TestDocumentAllowsTheGoldenAnswers(t *testing.T) {
	s, e, r, _ := gateServer(t, func(c *Config) { c.MaxItems, c.MaxDocuments, c.MaxBodyBytes, c.MaxTokens = 4, 3, 1000, 10 })
	e.before, r.before = failOnCommand, failOnCommand
	c := contract.New(t, document(t, s))
	files, _ := filepath.Glob("testdata/*.golden")
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
			asked, _, _ := strings.Cut(block, "\n-> ")
			method, path, body, headers := parseAsked(t, asked)
			template := templateOf(path)
			if described, _ := c.At("paths", template, strings.ToLower(method)); described == nil {
				continue // an unknown route, another method, HEAD
			}
			w := do(s, method, path, body, headers...)
			seen++
			if err := c.Answer(template, method, w.Code, w.Header(), w.Body.Bytes()); err != nil {
				t.Errorf("%s\n%v", asked, err)
			}
		}
	}
	if seen < 80 {
		t.Errorf("only %d answers were looked at", seen)
	}
}

// A contract that accepts anything would prove nothing.
func TestContractRefuses(t *testing.T) {
	s, _, _ := stubServer(nil)
	c := contract.New(t, document(t, s))
	whole := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}}
	without := http.Header{"Content-Type": {"application/json"}}
	busy := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}, "Retry-After": {"soon"}}
	tei := `{"error":"e","error_type":"Validation"}`
	for _, wrong := range []struct {
		path   string
		status int
		h      http.Header
		body   string
		word   string
	}{
		{"/embed", 418, whole, `{}`, "not described"},
		{"/embed", 200, whole, `[[1,"2"]]`, "want number"},
		{"/embed", 200, whole, `{"embeddings":[]}`, "want array"},
		{"/embed", 200, without, `[[1]]`, "X-Request-Id"},
		{"/embed", 400, whole, `{"error":{"message":"m"}}`, "want string"},
		{"/embed", 400, busy, tei, "Retry-After"},
		{"/embed", 429, whole, tei, "Retry-After"},
		{"/embed", 429, busy, tei, "Retry-After"},
		{"/embed", 200, http.Header{"Content-Type": {"text/plain"}, "X-Request-Id": {"r"}}, `[[1]]`, "text/plain"},
		{"/v1/rerank", 200, whole, `{"results":[]}`, "missing properties"},
	} {
		err := c.Answer(wrong.path, "post", wrong.status, wrong.h, []byte(wrong.body))
		if err == nil || !strings.Contains(err.Error(), wrong.word) {
			t.Errorf("%s %d %s: %v, want a word of %q", wrong.path, wrong.status, wrong.body, err, wrong.word)
		}
	}
	if err := c.Answer("/embed", "post", 200, whole, []byte(`[[1,2.5]]`)); err != nil {
		t.Error(err)
	}
}

var modelTail = regexp.MustCompile(`^/v2/models/.+?(/versions/[^/]+)?(/ready|/infer)?$`)

// templateOf is the document's path for a request's.
func templateOf(path string) string {
	if name, ok := strings.CutPrefix(path, "/v1/models/"); ok && name != "" {
		return "/v1/models/{model}"
	}
	m := modelTail.FindStringSubmatch(path)
	switch {
	case m == nil:
		return path
	case m[1] != "":
		return "/v2/models/{model}/versions/{version}" + m[2]
	}
	return "/v2/models/{model}" + m[2]
}

func TestDocsFiles(t *testing.T) {
	s, _, _ := stubServer(nil)
	elsewhere := regexp.MustCompile(`(?i)https?:|src="//|href="//|\burl\(["'a-z]|@import|\bimport[ ({]|innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|style=|\son[a-z]+="`)
	for _, c := range []struct{ path, contentType string }{
		{"/docs", "text/html; charset=utf-8"}, {"/docs/docs.js", "text/javascript; charset=utf-8"}, {"/docs/docs.css", "text/css; charset=utf-8"},
	} {
		w := do(s, "GET", c.path, "")
		if w.Code != 200 || w.Header().Get("Content-Type") != c.contentType || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", c.path, w.Code, w.Header())
		}
		for _, line := range strings.Split(w.Body.String(), "\n") {
			if elsewhere.MatchString(strings.ReplaceAll(line, "new URL(", "")) {
				t.Errorf("%s loads from elsewhere, or makes markup of text: %s", c.path, line)
			}
		}
		if n := w.Body.Len(); n == 0 || n > 40000 {
			t.Errorf("%s has %d bytes", c.path, n)
		}
	}
	policy := do(s, "GET", "/docs", "").Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
	// What the page loads is there, as it names it.
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(string(openapi.Page("docs.html")), -1) {
		if m[1] == "data:," {
			continue
		}
		if w := do(s, "GET", "/"+m[1], ""); w.Code != 200 {
			t.Errorf("the page names %s: %d", m[1], w.Code)
		}
	}
}

func TestDocsAreRevalidated(t *testing.T) {
	s, _, _ := stubServer(nil)
	other, _, _ := stubServer(func(c *Config) { c.MaxItems++ })
	for _, path := range []string{"/openapi.json", "/docs"} {
		w := do(s, "GET", path, "")
		tag := w.Header().Get("ETag")
		if !regexp.MustCompile(`^"[0-9a-f]{16}"$`).MatchString(tag) || w.Header().Get("Cache-Control") != "no-cache" {
			t.Fatalf("%s: %v", path, w.Header())
		}
		for given, want := range map[string]int{tag: 304, `"x", ` + tag: 304, "W/" + tag: 304, "*": 304, `"x"`: 200, "": 200} {
			w := do(s, "GET", path, "", "If-None-Match", given)
			if w.Code != want || w.Header().Get("ETag") != tag || want == 304 && (w.Body.Len() > 0 || w.Header().Get("Content-Type") != "") {
				t.Errorf("%s with If-None-Match %s: %d, want %d; %v", path, given, w.Code, want, w.Header())
			}
		}
	}
	if a, b := do(s, "GET", "/openapi.json", "").Header().Get("ETag"), do(other, "GET", "/openapi.json", "").Header().Get("ETag"); a == b {
		t.Error("another limit has the same tag")
	}
}

// The limits in the document are the server's own, by the names of its settings.
func TestDocumentSaysTheLimits(t *testing.T) {
	s, _, _ := stubServer(func(c *Config) {
		c.MaxItems, c.MaxDocuments, c.MaxBodyBytes, c.Budget, c.BodyTimeout = 1234, 567, 891011, 77*time.Millisecond, 41*time.Second
	})
	doc := string(document(t, s))
	for _, want := range []string{`"maxItems":1234`, `"maxItems":567`, "at most 891011 bytes", `"default":77`, "within 41 s", fmt.Sprintf(`"maxItems":%d`, maxHistory),
		"at most " + strconv.Itoa(maxDepth) + " levels", fmt.Sprintf(`"maxItems":%d`, maxTensors), fmt.Sprintf(`"maxLength":%d`, maxRequestIDSize)} {
		if !strings.Contains(doc, want) {
			t.Errorf("%q is not in the document", want)
		}
	}
	settings := DefaultConfig().Settings
	for _, setting := range []string{settings.MaxItems, settings.MaxDocuments, settings.MaxBodyBytes, settings.Truncate} {
		if name, _, _ := strings.Cut(setting, " "); !strings.Contains(doc, name) {
			t.Errorf("%s is not in the document", name)
		}
	}
	for k := range kinds {
		if code := kinds[k].code; kind(k) != kindGone && !strings.Contains(doc, "`"+code+"`") {
			t.Errorf("the code %s is not in the document's table", code)
		}
	}
}
