package quality

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Action is what a metadata rule does with a chunk that it matches.
type Action string

const (
	// ActionDrop keeps the chunk out of the context whatever its score, fallback included.
	ActionDrop Action = "drop"
	// ActionDemote puts the chunk behind the others that passed (or did not), so that a maximum cuts it first.
	ActionDemote Action = "demote"
)

// Rule drops or demotes chunks by a field of their metadata, because relevance cannot see that a page is outdated. It has one
// condition: Equals or OlderThanDays.
type Rule struct {
	// ID is named in reasons.
	ID string `yaml:"id"`
	// Field is a key of the metadata; "a.b" is also key b within object a.
	Field string `yaml:"field"`
	// Equals is a string, a bool or a number. Kinds are not converted: true is not "true".
	Equals any `yaml:"equals"`
	// OlderThanDays matches a time before now by more than so many days of 24 hours. The field holds RFC 3339, a date, or Unix
	// seconds (milliseconds from 10¹¹ on); without a zone it is UTC.
	OlderThanDays int    `yaml:"older_than_days"`
	Action        Action `yaml:"action"`
}

// Fields looks up a metadata field. The value is a string, a bool, nil, a number of any kind (also one that spells itself, like
// json.Number), or something that no rule matches.
type Fields interface {
	Lookup(field string) (value any, ok bool)
}

// JSON is metadata as it came over the wire. It is read only where a rule asks.
type JSON []byte

// Lookup finds field among the keys of the object, then as a path with points. Anything but an object has no fields. Numbers come
// as json.Number.
func (j JSON) Lookup(field string) (any, bool) {
	for raw, path := []byte(j), field; ; {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return nil, false
		}
		if value, ok := object[path]; ok {
			dec := json.NewDecoder(bytes.NewReader(value))
			dec.UseNumber()
			var v any
			err := dec.Decode(&v)
			return v, err == nil
		}
		head, rest, ok := strings.Cut(path, ".")
		if !ok {
			return nil, false
		}
		raw, path = object[head], rest
	}
}

// RuleError says what is wrong with one rule of a policy.
type RuleError struct {
	Index   int // position in the list
	ID      string
	Problem string // completes "rule 3 (old): …"
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("rules[%d] (%q): %s", e.Index, e.ID, e.Problem)
}

// maxDays is ten thousand years: more is a unit mistaken, and time arithmetic past it is not.
const maxDays = 3_652_425

func appendRuleErrors(errs []error, rules []Rule) []error {
	seen := make(map[string]int, len(rules))
	for i, r := range rules {
		bad := func(format string, args ...any) {
			errs = append(errs, &RuleError{Index: i, ID: r.ID, Problem: fmt.Sprintf(format, args...)})
		}
		if first, dup := seen[r.ID]; r.ID == "" {
			bad("id is missing: reasons name the rule by it")
		} else if dup {
			bad("id is already that of rules[%d]", first)
		} else {
			seen[r.ID] = i
		}
		if r.Field == "" {
			bad("field is missing")
		}
		if r.Action != ActionDrop && r.Action != ActionDemote {
			bad("action is %q: it must be one of %s, %s", r.Action, ActionDrop, ActionDemote)
		}
		switch {
		case r.OlderThanDays < 0 || r.OlderThanDays > maxDays:
			bad("older_than_days is %d: it must be within 1…%d", r.OlderThanDays, maxDays)
		case r.Equals == nil && r.OlderThanDays == 0:
			bad("it has no condition: give equals or older_than_days")
		case r.Equals != nil && r.OlderThanDays != 0:
			bad("it has two conditions: make two rules of equals and older_than_days")
		}
		if _, ok := scalarOf(r.Equals); r.Equals != nil && !ok {
			bad("equals is a %T: it must be text, a number, true or false (quote dates)", r.Equals)
		}
	}
	return errs
}

// applyRules returns the rule that decides on a chunk, or none: the first that drops, else the first that demotes. unreadable
// counts the fields that were there and should have been times.
func applyRules(rules []Rule, fields Fields, now time.Time) (rule int, unreadable int) {
	rule = none
	if fields == nil {
		return none, 0
	}
	for i := range rules {
		r := &rules[i]
		if rule != none && r.Action != ActionDrop {
			continue
		}
		value, ok := fields.Lookup(r.Field)
		if !ok {
			continue
		}
		matches := false
		if r.OlderThanDays > 0 {
			t, err := timeOf(value)
			if err != nil {
				unreadable++
				continue
			}
			matches = t.Before(now.AddDate(0, 0, -r.OlderThanDays))
		} else {
			matches = equal(r.Equals, value)
		}
		if matches {
			if rule = i; r.Action == ActionDrop {
				return rule, unreadable
			}
		}
	}
	return rule, unreadable
}

// none stands for no rule.
const none = -1

// scalar is a value that a rule can compare: one of its parts is set.
type scalar struct {
	kind  byte // 's', 'b', 'i' integer, 'f' other number
	text  string
	truth bool
	whole int64
	float float64
}

func scalarOf(v any) (scalar, bool) {
	switch v := v.(type) {
	case string:
		return scalar{kind: 's', text: v}, true
	case bool:
		return scalar{kind: 'b', truth: v}, true
	case int:
		return scalar{kind: 'i', whole: int64(v)}, true
	case int64:
		return scalar{kind: 'i', whole: v}, true
	case uint64:
		if v > math.MaxInt64 {
			return floatScalar(float64(v))
		}
		return scalar{kind: 'i', whole: int64(v)}, true
	case float64:
		return floatScalar(v)
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return scalar{kind: 'i', whole: n}, true
		}
		f, err := v.Float64()
		if err != nil {
			return scalar{}, false
		}
		return floatScalar(f)
	}
	return scalar{}, false
}

func floatScalar(f float64) (scalar, bool) {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 { // 2.0 equals 2
		return scalar{kind: 'i', whole: int64(f)}, true
	}
	return scalar{kind: 'f', float: f}, !math.IsNaN(f)
}

func equal(a, b any) bool {
	x, okX := scalarOf(a)
	y, okY := scalarOf(b)
	return okX && okY && x == y
}

// layouts that a time field may have, besides Unix numbers. The zone-less ones are read as UTC.
var layouts = []string{time.RFC3339, time.DateOnly, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00"}

var errNoTime = errors.New("not a time")

// unixMillis is where a Unix number starts to mean milliseconds: in seconds it would be the year 5138.
const unixMillis = 1e11

func timeOf(v any) (time.Time, error) {
	s, ok := scalarOf(v)
	if !ok {
		if t, is := v.(time.Time); is {
			return t, nil
		}
		return time.Time{}, errNoTime
	}
	seconds := s.float
	switch s.kind {
	case 's':
		text := strings.TrimSpace(s.text)
		for _, layout := range layouts {
			if t, err := time.Parse(layout, text); err == nil {
				return t, nil
			}
		}
		return time.Time{}, errNoTime
	case 'i':
		seconds = float64(s.whole)
	case 'b':
		return time.Time{}, errNoTime
	}
	if math.Abs(seconds) >= unixMillis {
		seconds /= 1000
	}
	if math.Abs(seconds) >= unixMillis { // past year 5138 even so: neither unit
		return time.Time{}, errNoTime
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC(), nil
}
