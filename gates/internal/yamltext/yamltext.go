// Package yamltext reads texts out of the gates' YAML files as they are written, with the line they stand on, so that faults can be named.
package yamltext

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Text is a scalar and the line it stands on. Every scalar is taken as written: an unquoted no is the word "no".
type Text struct {
	Value string
	Line  int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *Text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return WrongType(n, "a list or mapping where a text belongs")
	}
	t.Value, t.Line = n.Value, n.Line
	return nil
}

// WrongType is an error that the decoder collects, so that it goes on to find the others.
func WrongType(n *yaml.Node, reason string) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, reason)}}
}

// Texts is a list of scalars. It decodes item by item because the decoder drops nulls from lists, and null is a word too.
type Texts []Text

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *Texts) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return WrongType(n, "one value where a list belongs")
	}
	*t = make(Texts, len(n.Content))
	var all yaml.TypeError
	for i, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			all.Errors = append(all.Errors, fmt.Sprintf("line %d: a list or mapping where a text belongs", item.Line))
			continue
		}
		(*t)[i] = Text{item.Value, item.Line}
	}
	if len(all.Errors) > 0 {
		return &all
	}
	return nil
}
