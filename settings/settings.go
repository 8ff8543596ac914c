// Package settings says what the settings of a program may hold, and reads them from a YAML file, whatever else they may also come from.
//
// Start at [Setting]: its Check judges a value as text, the form in which files, variables and flags all give it, so that one value is
// refused in the same words wherever it stands. [Decode] reads a file, [Unknown] finds misspelt variables, [Nearest] says what was meant.
// Nothing here opens files, reads the environment or knows a setting by name; every function reports all faults, not the first.
package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is what a setting holds.
type Kind uint8

// The kinds.
const (
	Text     Kind = iota
	Integer       // 64 bits, decimal
	Duration      // as time.ParseDuration reads it
	Switch        // true or false
	List          // texts; in a variable or flag separated by commas
	Records       // mappings of the setting's fields
)

func (k Kind) String() string {
	return [...]string{"text", "integer", "duration", "switch", "list", "records"}[k]
}

// Setting is one setting: its names, and what it may hold.
type Setting struct {
	Name    string // of the flag without its dashes, and of the key in a file
	Env     string // of the variable; "" when there is none
	Kind    Kind
	Default string // as text; "" when it is not set unless somebody sets it
	Help    string
	Secret  bool // never shown

	Choices []string // of a Text: nothing else is allowed; empty: anything is
	Range   Range    // of an Integer or Duration

	Fields []Setting // of Records: what each may hold; of these, Name, Kind, Help, Choices, Range and the two below count

	Required bool // of a field: every record has it
	Unique   bool // of a field: no two records have the same value
}

// Range bounds a number, both ends included. An empty end does not bound.
type Range struct {
	Min, Max string // as text of the setting's kind
	Zero     string // what 0 means, when 0 is allowed although it lies outside; "" when it is not
}

// ParseRange reads "MIN..MAX", either of which may be left out. zero becomes Range.Zero.
func ParseRange(text, zero string) (Range, error) {
	low, high, ok := strings.Cut(text, "..")
	if text != "" && !ok {
		return Range{}, fmt.Errorf("range %q has no two dots", text)
	}
	return Range{Min: low, Max: high, Zero: zero}, nil
}

// ValueError is a value that a setting cannot hold.
type ValueError struct {
	Value   string // "" for a secret
	Allowed string // "it must be ..."
}

func (e *ValueError) Error() string {
	if e.Value == "" {
		return e.Allowed
	}
	return "is " + e.Value + ": " + e.Allowed
}

// Check says whether the setting can hold what text stands for. The error is a *ValueError.
func (s Setting) Check(text string) error {
	bad := func(shown, allowed string) error {
		if s.Secret {
			shown = ""
		}
		return &ValueError{Value: shown, Allowed: "it must be " + allowed}
	}
	switch s.Kind {
	case Integer:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return bad(quote(text), "a whole number"+s.within(", "))
		}
		if !s.contains(n, func(end string) (int64, error) { return strconv.ParseInt(end, 10, 64) }) {
			return bad(text, strings.TrimSpace(s.within("")))
		}
	case Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return bad(quote(text), "a time with its unit, such as 20ms, 30s or 1m30s"+s.within(", "))
		}
		if !s.contains(int64(d), func(end string) (int64, error) { d, err := time.ParseDuration(end); return int64(d), err }) {
			return bad(text, strings.TrimSpace(s.within("")))
		}
	case Switch:
		if _, ok := switches[strings.ToLower(text)]; !ok {
			return bad(quote(text), "true or false")
		}
	case Text:
		if len(s.Choices) > 0 && !slices.Contains(s.Choices, text) {
			allowed := "one of " + strings.Join(s.Choices, ", ")
			if near := Nearest(text, s.Choices); near != "" {
				allowed += "; did you mean " + near + "?"
			}
			return bad(quote(text), allowed)
		}
	case List, Records: // see ParseRecords
	}
	return nil
}

// switches are the words for on and off: those that the command line's parser takes.
var switches = map[string]bool{"true": true, "1": true, "yes": true, "false": false, "0": false, "no": false}

// contains says whether v lies in the range, whose ends are read by parse. An end that cannot be read is a fault of the program.
func (s Setting) contains(v int64, parse func(string) (int64, error)) bool {
	if v == 0 && s.Range.Zero != "" {
		return true
	}
	end := func(text string) int64 {
		n, err := parse(text)
		if err != nil {
			panic(fmt.Sprintf("settings: the range of %s: %v", s.Name, err))
		}
		return n
	}
	return (s.Range.Min == "" || v >= end(s.Range.Min)) && (s.Range.Max == "" || v <= end(s.Range.Max))
}

// smallest is the least duration there is: as a lower end it means "longer than 0".
const smallest = "1ns"

// within describes the range after the separator, "" when there is none.
func (s Setting) within(separator string) string {
	r := s.Range
	low, high := "at least "+r.Min, "at most "+r.Max
	if s.Kind == Duration && r.Min == smallest {
		low = "longer than 0"
	}
	var text string
	switch {
	case r.Min != "" && r.Max != "":
		text = low + " and " + high
	case r.Min != "":
		text = low
	case r.Max != "":
		text = high
	default:
		return ""
	}
	if r.Zero != "" {
		text += ", or 0 for " + r.Zero
	}
	return separator + text
}

// Allowed describes what the setting takes, for documentation.
func (s Setting) Allowed() string {
	if len(s.Choices) > 0 {
		return strings.Join(s.Choices, ", ")
	}
	kind := map[Kind]string{Text: "text", Integer: "integer", Duration: "duration", Switch: "true, false", List: "list", Records: "list of mappings"}[s.Kind]
	return kind + s.within(", ")
}

// quote shows a value, cut where it is long.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		cut := most
		for cut > 0 && text[cut]&0xc0 == 0x80 {
			cut--
		}
		return strconv.Quote(text[:cut]) + " and more"
	}
	return strconv.Quote(text)
}
