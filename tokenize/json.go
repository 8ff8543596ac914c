package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The files of large vocabularies have ten megabytes, which encoding/json reads several times over. So an object is taken apart
// here, and only its members are decoded.

// parseObject takes a JSON object apart. Members keep their text, and are checked when they are decoded.
func parseObject(field string, b []byte) (fields, error) {
	f, ok := splitObject(b)
	if ok {
		return f, nil
	}
	if field != "" && len(b) == 0 {
		return nil, &InvalidError{field, "missing"}
	}
	var broken *json.SyntaxError
	if err := json.Unmarshal(b, new(any)); errors.As(err, &broken) { // what is wrong with it, encoding/json says
		return nil, &InvalidError{field, fmt.Sprintf("not JSON: %v, at byte %d", err, broken.Offset)}
	}
	return nil, &InvalidError{field, "not a JSON object: " + show(b)}
}

// splitObject fails on what is not an object, and on objects that are broken.
func splitObject(b []byte) (fields, bool) {
	f := fields{}
	i := skipSpace(b, 0)
	if i == len(b) || b[i] != '{' {
		return nil, false
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return f, skipSpace(b, i+1) == len(b)
	}
	for {
		end, plain, ok := skipString(b, i)
		if !ok {
			return nil, false
		}
		name := string(b[i+1 : end-1])
		if !plain && json.Unmarshal(b[i:end], &name) != nil {
			return nil, false
		}
		if i = skipSpace(b, end); i == len(b) || b[i] != ':' {
			return nil, false
		}
		i = skipSpace(b, i+1)
		if end, ok = skipValue(b, i); !ok {
			return nil, false
		}
		f[name] = json.RawMessage(b[i:end])
		if i = skipSpace(b, end); i == len(b) {
			return nil, false
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return f, skipSpace(b, i+1) == len(b)
		default:
			return nil, false
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the end of the string at i, and whether it has no escapes.
func skipString(b []byte, i int) (end int, plain, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return 0, false, false
	}
	plain = true
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, plain, true
		case c == '\\':
			plain = false
			i++
		case c < 0x20:
			return 0, false, false
		}
	}
	return 0, false, false
}

// skipValue returns the end of the value at i, without a look at what is inside of it, but for strings and brackets.
func skipValue(b []byte, i int) (end int, ok bool) {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i, _, ok = skipString(b, i); !ok {
				return 0, false
			}
			if depth == 0 {
				return i, true
			}
		case '[', '{':
			depth++
			i++
		case ']', '}':
			if depth == 0 {
				return i, true // the end of a number, of the object around it
			}
			if depth--; depth == 0 {
				return i + 1, true
			}
			i++
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i, true
			}
			i++
		default:
			i++
		}
	}
	return 0, false
}

// readPieces reads a Unigram vocabulary, [["piece", score], ...]. add gets each piece, in memory that is only its for the call, and
// the text of its score.
func readPieces(b []byte, add func(piece, score []byte) error) error {
	fail := func(i int) error {
		return fmt.Errorf("not a list of pieces with scores, at byte %d of it", i)
	}
	i := skipSpace(b, 0)
	if i == len(b) || b[i] != '[' {
		return fail(i)
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' && skipSpace(b, i+1) == len(b) {
		return nil
	}
	for {
		if i == len(b) || b[i] != '[' {
			return fail(i)
		}
		i = skipSpace(b, i+1)
		end, plain, ok := skipString(b, i)
		if !ok {
			return fail(i)
		}
		piece := b[i+1 : end-1]
		if !plain {
			var s string
			if err := json.Unmarshal(b[i:end], &s); err != nil {
				return err
			}
			piece = []byte(s)
		}
		if i = skipSpace(b, end); i == len(b) || b[i] != ',' {
			return fail(i)
		}
		i = skipSpace(b, i+1)
		start := i
		for i < len(b) && (b[i]-'0' < 10 || b[i] == '-' || b[i] == '+' || b[i] == '.' || b[i]|0x20 == 'e') {
			i++
		}
		if err := add(piece, b[start:i]); err != nil {
			return err
		}
		if i = skipSpace(b, i); i == len(b) || b[i] != ']' {
			return fail(i)
		}
		if i = skipSpace(b, i+1); i == len(b) {
			return fail(i)
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case ']':
			if i = skipSpace(b, i+1); i < len(b) {
				return fail(i)
			}
			return nil
		default:
			return fail(i)
		}
	}
}
