// Package openapi holds the description of the HTTP API and the page that shows it.
//
// Start here: [Render] makes the document that a server serves, with that server's limits in it; [Page] has the files of the page. The
// document is written by hand in openapi.yaml. What it says is held true by the server's tests: routes, statuses, bodies and examples.
//
// Not for: validating requests. The server's own readers do that, and say what is wrong.
package openapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var source []byte

//go:embed docs.html docs.js docs.css
var files embed.FS

// Page returns a file of the page: docs.html, docs.js or docs.css. It panics for another name.
func Page(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return b
}

// Values is what a server says of itself in the document.
type Values struct {
	Version string
	Keys    bool             // whether keys are configured; without, the document says that none is needed
	Numbers map[string]int64 // limits, by the names of the document's <placeholders>; each must be used
}

// shared is the member that only holds blocks for others to repeat.
const shared = "x-shared"

var placeholder = regexp.MustCompile(`<([a-z_]+)>`)

// Render returns the document as JSON, members in the order of the source. A placeholder without a value is an error, and so is a value
// without a placeholder.
func Render(v Values) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(source, &doc); err != nil {
		return nil, fmt.Errorf("reading openapi.yaml: %w", err)
	}
	r := renderer{values: v, used: map[string]bool{}}
	r.node(doc.Content[0], true)
	for name := range maps.Keys(v.Numbers) {
		if !r.used[name] {
			r.errs = append(r.errs, fmt.Errorf("nothing in openapi.yaml says <%s>", name))
		}
	}
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	return r.out.Bytes(), nil
}

type renderer struct {
	values Values
	used   map[string]bool
	out    bytes.Buffer
	errs   []error
}

// node writes a node; top is that of the whole document.
func (r *renderer) node(n *yaml.Node, top bool) {
	switch n.Kind {
	case yaml.AliasNode:
		r.node(n.Alias, false)
	case yaml.SequenceNode:
		r.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				r.out.WriteByte(',')
			}
			r.node(item, false)
		}
		r.out.WriteByte(']')
	case yaml.MappingNode:
		r.out.WriteByte('{')
		first := true
		for _, m := range r.members(n) {
			if top && m.key == shared {
				continue
			}
			if !first {
				r.out.WriteByte(',')
			}
			first = false
			r.json(m.key)
			r.out.WriteByte(':')
			if top && m.key == "security" && !r.values.Keys {
				r.out.WriteString("[]")
				continue
			}
			r.node(m.value, false)
		}
		r.out.WriteByte('}')
	default:
		r.scalar(n)
	}
}

type member struct {
	key   string
	value *yaml.Node
}

// members lists a mapping's members. Those that << brings in stand where it does, and a member of the mapping's own wins over them.
func (r *renderer) members(n *yaml.Node) []member {
	own := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		own[n.Content[i].Value] = true
	}
	var out []member
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			out = append(out, member{key.Value, value})
			continue
		}
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		for _, m := range r.members(value) {
			if !own[m.key] {
				out = append(out, m)
			}
		}
	}
	return out
}

func (r *renderer) scalar(n *yaml.Node) {
	if n.Tag != "!!str" && n.Tag != "!!timestamp" {
		var v any
		if err := n.Decode(&v); err != nil {
			r.errs = append(r.errs, fmt.Errorf("openapi.yaml:%d: %w", n.Line, err))
		}
		r.json(v)
		return
	}
	whole := placeholder.FindString(n.Value) == n.Value && n.Value != ""
	text := placeholder.ReplaceAllStringFunc(n.Value, func(p string) string {
		name := p[1 : len(p)-1]
		if name == "version" {
			whole = false
			return r.values.Version
		}
		v, ok := r.values.Numbers[name]
		if !ok {
			r.errs = append(r.errs, fmt.Errorf("openapi.yaml:%d: there is no value for %s; there are %q", n.Line, p, slices.Sorted(maps.Keys(r.values.Numbers))))
		}
		r.used[name] = true
		return strconv.FormatInt(v, 10)
	})
	if whole {
		r.out.WriteString(text)
		return
	}
	r.json(text)
}

func (r *renderer) json(v any) {
	enc := json.NewEncoder(&r.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		r.errs = append(r.errs, err)
		return
	}
	r.out.Truncate(r.out.Len() - 1) // the encoder ends with a line feed
}
