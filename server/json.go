package server

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is the JSON reader (RFC 8259). It works in two steps, so that a body which is not JSON (400) is told from one with wrong
// fields (422 on the TEI routes), and so that of duplicate keys the last counts whatever the earlier ones held:
//
//	scan   one pass over the whole body: grammar, depth, and where the values of the fields in question lie
//	value  typed readers over those places (fields.go)
//
// encoding/json is not used: it matches keys without regard to case, hides which item of a list was wrong, and has no depth limit
// of its own. The caller has checked that the bytes are UTF-8.

// maxDepth bounds nesting. The deepest body of any dialect has 5 levels; metadata that clients attach rarely passes 10.
const maxDepth = 64

// syntaxError says where a body stops being JSON.
type syntaxError struct {
	offset int // bytes
	what   string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("the body is not valid JSON: %s at byte %d", e.what, e.offset)
}

// scanner walks over JSON text and checks it. Its methods leave pos behind what they accepted.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) fail(what string) error { return &syntaxError{s.pos, what} }

// unexpected names what stands at pos where want was expected.
func (s *scanner) unexpected(want string) error {
	if s.pos >= len(s.data) {
		return s.fail("it ends where " + want + " was expected")
	}
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return s.fail(fmt.Sprintf("%s where %s was expected", strconv.QuoteRune(r), want))
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// next reports whether c is at pos, and steps over it.
func (s *scanner) next(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// value checks one value of any type that lies depth levels deep.
func (s *scanner) value(depth int) error {
	if s.pos >= len(s.data) {
		return s.unexpected("a value")
	}
	switch c := s.data[s.pos]; {
	case c == '"':
		_, err := s.str()
		return err
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth, nil)
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return s.unexpected("a value")
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.unexpected("a value")
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) number() error {
	s.next('-')
	if !s.next('0') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.next('.') && !s.digits() {
		return s.unexpected("a digit")
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if !s.next('+') {
			s.next('-')
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

// str checks a string and returns it as it stands, quotes included.
func (s *scanner) str() (raw []byte, err error) {
	start := s.pos
	s.pos++
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[start:s.pos], nil
		case c == '\\':
			s.pos++
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.fail(fmt.Sprintf("a control character (0x%02x) that must be escaped inside a string", c))
		default:
			s.pos++
		}
	}
	return nil, s.unexpected(`the end of a string (")`)
}

// escape checks what follows a backslash.
func (s *scanner) escape() error {
	if s.pos >= len(s.data) {
		return s.unexpected("an escaped character")
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if s.pos >= len(s.data) || !hexDigit(s.data[s.pos]) {
				return s.unexpected("a hexadecimal digit")
			}
			s.pos++
		}
		return nil
	}
	return s.unexpected("an escaped character")
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// object checks an object and hands each member to visit: its key as it stands in the text, and its value.
func (s *scanner) object(depth int, visit func(key, value []byte)) error {
	if depth >= maxDepth {
		return s.fail(fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	s.pos++
	s.space()
	if s.next('}') {
		return nil
	}
	for {
		if s.pos >= len(s.data) || s.data[s.pos] != '"' {
			return s.unexpected(`a field name in double quotes`)
		}
		key, err := s.str()
		if err != nil {
			return err
		}
		s.space()
		if !s.next(':') {
			return s.unexpected("':'")
		}
		s.space()
		start := s.pos
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if visit != nil {
			visit(key, s.data[start:s.pos])
		}
		s.space()
		if s.next('}') {
			return nil
		}
		if !s.next(',') {
			return s.unexpected("',' or '}'")
		}
		s.space()
	}
}

// array checks an array and hands each item's text to visit.
func (s *scanner) array(depth int, visit func(item []byte)) error {
	if depth >= maxDepth {
		return s.fail(fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	s.pos++
	s.space()
	if s.next(']') {
		return nil
	}
	for {
		start := s.pos
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if visit != nil {
			visit(s.data[start:s.pos])
		}
		s.space()
		if s.next(']') {
			return nil
		}
		if !s.next(',') {
			return s.unexpected("',' or ']'")
		}
		s.space()
	}
}

// scanObject checks that data is one JSON object with nothing behind it, and hands each member to visit.
// A body that is JSON but no object yields its type, such as "an array", and no error; for an object the type is "".
func scanObject(data []byte, visit func(key, value []byte)) (notObject string, err error) {
	s := scanner{data: data}
	s.space()
	if s.pos == len(s.data) {
		return "", s.unexpected("a JSON object")
	}
	if s.data[s.pos] == '{' {
		err = s.object(0, visit)
	} else {
		notObject = typeName(s.data[s.pos:])
		err = s.value(0)
	}
	if err != nil {
		return "", err
	}
	s.space()
	if s.pos < len(s.data) {
		return "", s.unexpected("the end of the body")
	}
	return notObject, nil
}

// typeName says with its article which type of value raw, checked before, is.
func typeName(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// unquote returns the text of a checked string. Half a surrogate pair, which no UTF-8 can hold, becomes U+FFFD.
func unquote(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return string(raw)
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i >= 0 {
		b.Write(raw[:i])
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				pair := utf8.RuneError
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					pair = utf16.DecodeRune(r, hex4(raw[2:]))
				}
				if r = pair; pair != utf8.RuneError {
					raw = raw[6:]
				}
			}
			b.WriteRune(r)
		default: // '"', '\\', '/'
			b.WriteByte(c)
		}
		i = bytes.IndexByte(raw, '\\')
	}
	b.Write(raw)
	return b.String()
}

// hex4 reads four checked hexadecimal digits.
func hex4(raw []byte) rune {
	var r rune
	for _, c := range raw[:4] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// keyIs reports whether a checked key, quotes included, is name.
func keyIs(key []byte, name string) bool {
	if bytes.IndexByte(key, '\\') >= 0 {
		return unquote(key) == name
	}
	return string(key[1:len(key)-1]) == name
}
