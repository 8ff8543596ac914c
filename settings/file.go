package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a settings file: 1 MiB is a thousand times what all settings take.
const maxFile = 1 << 20

// Value is what a file says of one setting.
type Value struct {
	Text    string   // of every kind but List and Records
	List    []string // of a List
	Records []Record // of Records
	Line    int
}

// Problem is one thing that is wrong with the settings. Where is "FILE:LINE", "FILE" or the name of a variable or flag.
type Problem struct {
	Where string
	Text  string
}

func (p Problem) Error() string {
	if p.Where == "" {
		return p.Text
	}
	return p.Where + ": " + p.Text
}

// Decode reads a settings file: one YAML mapping whose keys are the names of settings. A key without a value is as good as absent, as an
// empty variable is. It returns every value that can be used, and every problem; name is what the problems call the file.
func Decode(name string, data []byte, known []Setting) (map[string]Value, []Problem) {
	d := decoder{file: name, values: map[string]Value{}, known: map[string]Setting{}}
	for _, s := range known {
		d.known[s.Name] = s
		d.names = append(d.names, s.Name)
	}
	if root := d.parse(data); root != nil {
		d.mapping(root)
	}
	return d.values, d.problems
}

type decoder struct {
	file     string
	known    map[string]Setting
	names    []string
	values   map[string]Value
	problems []Problem
}

func (d *decoder) fail(line int, format string, args ...any) {
	where := d.file
	if line > 0 {
		where += ":" + strconv.Itoa(line)
	}
	d.problems = append(d.problems, Problem{where, fmt.Sprintf(format, args...)})
}

// yamlLine finds the line in a message of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?:found )?(.*)`)

// parse returns the file's mapping, nil when there is a problem.
func (d *decoder) parse(data []byte) *yaml.Node {
	const byteOrderMark = "\ufeff"
	switch {
	case len(data) > maxFile:
		d.fail(0, "is %d bytes long: it must be at most %d", len(data), maxFile)
		return nil
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		d.fail(1, "begins with the byte order mark of UTF-16: save it as UTF-8")
		return nil
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark)) // some editors write one before UTF-8
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			d.fail(1+bytes.Count(data[:at], []byte("\n")), "is not UTF-8 (byte 0x%02x): save it as UTF-8", data[at])
			return nil
		}
		at += size
	}
	decode := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := decode.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && doc.IsZero() {
		d.fail(0, "holds no settings: write some, leave the file out, or put {} into it")
		return nil
	}
	if err != nil {
		line, text := 1, err.Error() // the parser names no line when it is the first
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			text = m[2]
			if n, err := strconv.Atoi(m[1]); err == nil {
				line = n
			}
		}
		d.fail(line, "is not YAML: %s", text)
		return nil
	}
	if decode.Decode(&more) == nil {
		d.fail(more.Line, "holds a second document: one file holds one set of settings")
	}
	root := &doc
	if root.Kind == yaml.DocumentNode {
		root = root.Content[0]
	}
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		d.fail(0, "holds no settings: write some, leave the file out, or put {} into it")
		return nil
	}
	if root.Kind != yaml.MappingNode {
		d.fail(root.Line, "is %s: it must be a mapping, one `name: value` a line", shapes[root.Kind])
		return nil
	}
	return root
}

var shapes = map[yaml.Kind]string{yaml.ScalarNode: "a single value", yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping", yaml.AliasNode: "an alias"}

func (d *decoder) mapping(root *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.fail(key.Line, "a key is %s: it must be the name of a setting", shapes[key.Kind])
			continue
		}
		s, ok := d.known[key.Value]
		if !ok {
			text := "there is no setting " + quote(key.Value)
			if near := Nearest(key.Value, d.names); near != "" {
				text += "; did you mean " + near + "?"
			}
			d.fail(key.Line, "%s", text)
			continue
		}
		if first, twice := seen[s.Name]; twice {
			d.fail(key.Line, "%s is set on line %d already", s.Name, first)
			continue
		}
		seen[s.Name] = key.Line
		d.value(s, key.Line, resolved(value))
	}
}

// value reads one setting's value.
func (d *decoder) value(s Setting, line int, n *yaml.Node) {
	if empty(n) {
		return
	}
	if s.Kind == Records {
		d.records(s, line, n)
		return
	}
	if s.Kind == List && n.Kind == yaml.SequenceNode {
		v := Value{Line: line, List: []string{}}
		for i, item := range n.Content {
			item = resolved(item)
			if item.Kind != yaml.ScalarNode || empty(item) {
				d.fail(item.Line, "%s[%d] is %s: it must be a text", s.Name, i, shapeOf(item))
				continue
			}
			v.List = append(v.List, item.Value)
		}
		if len(v.List) > 0 {
			d.values[s.Name] = v
		}
		return
	}
	if n.Kind != yaml.ScalarNode {
		want := map[Kind]string{Text: "a text", Integer: "a whole number", Duration: "a time", Switch: "true or false", List: "a list of texts"}[s.Kind]
		d.fail(line, "%s is %s: it must be %s", s.Name, shapes[n.Kind], want)
		return
	}
	if s.Kind == Switch && (n.Value == "0" || n.Value == "1") { // numbers mean on and off where everything is text, but not here
		d.fail(line, "%s is %s: it must be true or false", s.Name, quote(n.Value))
		return
	}
	if err := s.Check(n.Value); err != nil {
		d.fail(line, "%s %v", s.Name, err)
		return
	}
	if s.Kind == List {
		d.values[s.Name] = Value{Line: line, List: strings.Split(n.Value, ",")}
		return
	}
	d.values[s.Name] = Value{Line: line, Text: n.Value}
}

// resolved is what an alias stands for, and any other node itself.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// empty says whether a value is as good as absent.
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || n.Value == "")
}

func shapeOf(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return "empty"
	}
	return shapes[n.Kind]
}

// notOurs matches variables that Kubernetes puts into every container for each Service: a Service named like the prefix looks like a setting.
var notOurs = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Unknown finds variables that begin with the prefix and name no known setting. environ is as os.Environ gives it. Variables that
// Kubernetes makes of Services are left out.
func Unknown(environ []string, prefix string, known []string) []Problem {
	is := map[string]bool{}
	for _, k := range known {
		is[k] = true
	}
	var out []Problem
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, prefix) || is[name] || notOurs.MatchString(name) {
			continue
		}
		text := "there is no such setting"
		if near := Nearest(strings.TrimPrefix(name, prefix), trimmed(known, prefix)); near != "" {
			text += "; did you mean " + prefix + near + "?"
		}
		out = append(out, Problem{name, text})
	}
	return out
}

// trimmed are the names without the prefix, which would make all of them look alike.
func trimmed(names []string, prefix string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.TrimPrefix(n, prefix)
	}
	return out
}
