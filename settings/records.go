package settings

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Record is one entry of a Records setting: values by the names of its fields, every one of which its field can hold.
type Record struct {
	Where  string // "FILE:LINE", or the flag or variable with the entry's number
	Values map[string]string
}

// MarshalJSON leaves Where out, and orders by name.
func (r Record) MarshalJSON() ([]byte, error) { return json.Marshal(r.Values) }

// A record in a flag or variable is NAME=VALUE,NAME=VALUE; records are separated by semicolons or line ends. A backslash takes from the
// character behind it what it means.
const (
	betweenFields  = ","
	betweenRecords = ";\n"
)

// ParseRecords reads the text form of a Records setting. where names the flag or variable in problems and in the records. It returns the
// records that can be used, and every problem.
func (s Setting) ParseRecords(where, text string) ([]Record, []Problem) {
	var out []Record
	var problems []Problem
	n := 0
	for _, entry := range splitEscaped(text, betweenRecords) {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		n++
		r := reader{setting: s, where: fmt.Sprintf("%s: entry %d", where, n), values: map[string]string{}}
		for _, part := range splitEscaped(entry, betweenFields) {
			name, value, ok := strings.Cut(part, "=")
			name, value = strings.TrimSpace(unescape(name)), strings.TrimSpace(unescape(value))
			switch {
			case !ok && name == "":
			case !ok:
				r.fail(r.where, "holds %s: write NAME=VALUE, with commas between them", quote(name))
			default:
				r.field(r.where, name, value)
			}
		}
		problems = append(problems, r.end()...)
		out = append(out, Record{r.where, r.values})
	}
	return out, problems
}

// records reads the value of a Records setting from a file.
func (d *decoder) records(s Setting, line int, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		d.fail(line, "%s is %s: it must be a list of mappings", s.Name, shapes[n.Kind])
		return
	}
	v := Value{Line: line}
	for i, item := range n.Content {
		item = resolved(item)
		if item.Kind != yaml.MappingNode {
			d.fail(item.Line, "%s[%d] is %s: it must be a mapping, such as {%s}", s.Name, i, shapes[item.Kind], s.example())
			continue
		}
		at := func(line int) string { return d.file + ":" + strconv.Itoa(line) }
		r := reader{setting: s, where: at(item.Line), name: fmt.Sprintf("%s[%d]", s.Name, i), values: map[string]string{}}
		for k := 0; k+1 < len(item.Content); k += 2 {
			key, value := item.Content[k], resolved(item.Content[k+1])
			switch {
			case key.Kind != yaml.ScalarNode:
				r.fail(at(key.Line), "has a key that is %s: it must be the name of a field", shapeOf(key))
			case value.Kind != yaml.ScalarNode:
				r.seen = append(r.seen, strings.ReplaceAll(key.Value, "_", "-"))
				r.fail(at(value.Line), "%s is %s: it must be a single value", key.Value, shapeOf(value))
			case empty(value): // as good as absent
				r.field(at(key.Line), key.Value, "")
			default:
				r.field(at(key.Line), key.Value, value.Value)
			}
		}
		d.problems = append(d.problems, r.end()...)
		v.Records = append(v.Records, Record{r.where, r.values})
	}
	if v.Records != nil {
		d.values[s.Name] = v
	}
}

// CheckUnique finds values of Unique fields that more than one record has. It looks at all records in effect together, which may have come
// piece by piece: from a flag that is given more than once.
func (s Setting) CheckUnique(records []Record) []Problem {
	var out []Problem
	for _, f := range s.Fields {
		if !f.Unique {
			continue
		}
		first := map[string]string{}
		for _, r := range records {
			v := r.Values[f.Name]
			if v == "" {
				continue
			}
			if where, twice := first[v]; twice {
				out = append(out, Problem{r.Where, fmt.Sprintf("the %s %s is taken by %s already", f.Name, quote(v), where)})
				continue
			}
			first[v] = r.Where
		}
	}
	return out
}

// reader gathers the fields of one record.
type reader struct {
	setting  Setting
	where    string
	name     string // of the record in its file; "" where the place says it
	values   map[string]string
	seen     []string // fields that were given, whether or not their value can be used
	problems []Problem
}

func (r *reader) fail(where, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if r.name != "" {
		text = r.name + " " + text
	}
	r.problems = append(r.problems, Problem{where, text})
}

// field takes one field. Between - and _ in its name there is no difference. An empty value is as good as absent.
func (r *reader) field(where, name, value string) {
	var f *Setting
	var names []string
	for i := range r.setting.Fields {
		names = append(names, r.setting.Fields[i].Name)
		if strings.ReplaceAll(name, "_", "-") == r.setting.Fields[i].Name {
			f = &r.setting.Fields[i]
		}
	}
	if f == nil {
		text := fmt.Sprintf("has no field %s: it may have %s", quote(name), strings.Join(names, ", "))
		if near := Nearest(name, names); near != "" {
			text = fmt.Sprintf("has no field %s; did you mean %s?", quote(name), near)
		}
		r.fail(where, "%s", text)
		return
	}
	if slices.Contains(r.seen, f.Name) {
		r.fail(where, "%s is given twice", f.Name)
		return
	}
	if value == "" {
		return
	}
	r.seen = append(r.seen, f.Name)
	if err := f.Check(value); err != nil {
		r.fail(where, "%s %v", f.Name, err)
		return
	}
	r.values[f.Name] = value
}

// end adds what is missing, and returns all that is wrong.
func (r *reader) end() []Problem {
	for _, f := range r.setting.Fields {
		if f.Required && !slices.Contains(r.seen, f.Name) {
			r.fail(r.where, "has no %s: %s", f.Name, f.Help)
		}
	}
	return r.problems
}

// example is a record of the required fields, for messages.
func (s Setting) example() string {
	var parts []string
	for _, f := range s.Fields {
		if f.Required {
			parts = append(parts, f.Name+": …")
		}
	}
	return strings.Join(parts, ", ")
}

// splitEscaped cuts text at any of the separators that no backslash precedes; the parts keep their backslashes.
func splitEscaped(text, separators string) []string {
	var out []string
	begin := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case strings.IndexByte(separators, text[i]) >= 0:
			out = append(out, text[begin:i])
			begin = i + 1
		}
	}
	return append(out, text[begin:])
}

func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
