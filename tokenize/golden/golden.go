// Package golden compares a tokenizer with what the reference implementation made of the same texts.
//
// Start with [Compare]. It is for a person's own check of a model (`ragate models verify`), and for tests; package tokenize proves itself on
// its own, larger data.
//
// A golden file has one JSON object a line, as tools/golden_tokens.py writes them for any tokenizer.json:
//
//	text, pair                the text, and the second one of a pair; both strings, pair null or absent for a text alone
//	want_ids                  the ids of the whole encoding, special tokens included
//	want_type_ids             its token types; absent: not compared
//	want_offsets              start and stop of each token in code points of text, [0,0] for special ones that were added; absent: not
//	                          compared. Only for a text alone and whole
//	max_length                tokens of the encoding at most; null, 0 or absent: no limit
//	strategy                  longest_first (default), only_first, only_second: what a limit cuts
//	side                      right (default), left: where it cuts
//	want_error                when not empty, the reference cannot cut to the limit; want_ids does not count then
//	name                      what the case is called in reports; absent: its line
//
// Other members are ignored. What it promises: every line is compared or is an error, and a file without a case is an error.
package golden

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"ragate/tokenize"
)

// MaxLine bounds a line of a golden file, in bytes.
const MaxLine = 64 << 20

// Case is one line.
type Case struct {
	Name        string   `json:"name"`
	Text        *string  `json:"text"`
	Pair        *string  `json:"pair"`
	MaxLength   int      `json:"max_length"`
	Strategy    string   `json:"strategy"`
	Side        string   `json:"side"`
	WantIDs     []int32  `json:"want_ids"`
	WantTypes   []int    `json:"want_type_ids"`
	WantOffsets [][2]int `json:"want_offsets"`
	WantError   string   `json:"want_error"`
}

// Difference is a case that came out otherwise.
type Difference struct {
	Line      int
	Name      string
	What      string // "ids", "token types", "offsets", "error"
	Got, Want string // from the first value that differs
	At        int    // its place in the encoding, from 0
}

func (d Difference) String() string {
	s := "line " + strconv.Itoa(d.Line)
	if d.Name != "" {
		s += fmt.Sprintf(" (%.60q)", d.Name)
	}
	if d.What == "error" {
		return fmt.Sprintf("%s: got %s, want %s", s, d.Got, d.Want)
	}
	return fmt.Sprintf("%s: %s differ from token %d on: got %s, want %s", s, d.What, d.At, d.Got, d.Want)
}

// Report is what came of a comparison.
type Report struct {
	Cases   int
	Pairs   int          // of them of two texts
	Cut     int          // of them with a limit
	Differ  int          // cases that came out otherwise
	Reports []Difference // the first of those
}

// maxReports is how many differences are told: the first ones show the kind of fault, all of them may be megabytes.
const maxReports = 10

// Compare tokenises every case of a golden file. The error is about the file: what cannot be read, with its line.
func Compare(t *tokenize.Tokenizer, file io.Reader) (Report, error) {
	var r Report
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, MaxLine)
	at := 0
	for lines.Scan() {
		at++
		line := bytes.TrimSpace(lines.Bytes())
		if at == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			continue
		}
		var c Case
		if err := json.Unmarshal(line, &c); err != nil {
			return r, fmt.Errorf("line %d: %w", at, err)
		}
		d, err := c.compare(t)
		if err != nil {
			return r, fmt.Errorf("line %d: %w", at, err)
		}
		r.Cases++
		if c.Pair != nil {
			r.Pairs++
		}
		if c.MaxLength > 0 {
			r.Cut++
		}
		if d == nil {
			continue
		}
		if r.Differ++; len(r.Reports) < maxReports {
			d.Line, d.Name = at, c.Name
			r.Reports = append(r.Reports, *d)
		}
	}
	if err := lines.Err(); err != nil {
		return r, fmt.Errorf("line %d: %w", at+1, err)
	}
	if r.Cases == 0 {
		return r, errors.New("it holds no case: there is nothing to compare with")
	}
	return r, nil
}

// options are the case's, or what is wrong with them.
func (c *Case) options() (o tokenize.Options, err error) {
	o.MaxTokens = c.MaxLength
	switch c.Strategy {
	case "", "longest_first":
	case "only_first":
		o.Strategy = tokenize.OnlyFirst
	case "only_second":
		o.Strategy = tokenize.OnlySecond
	default:
		return o, fmt.Errorf("`strategy` is %.40q; it must be longest_first, only_first or only_second", c.Strategy)
	}
	switch c.Side {
	case "", "right":
	case "left":
		o.Side = tokenize.Left
	default:
		return o, fmt.Errorf("`side` is %.40q; it must be right or left", c.Side)
	}
	switch {
	case c.Text == nil:
		return o, errors.New("`text` is missing")
	case c.MaxLength < 0:
		return o, fmt.Errorf("`max_length` is %d; it must be at least 0", c.MaxLength)
	case c.WantIDs == nil && c.WantError == "":
		return o, errors.New("`want_ids` is missing")
	case c.WantTypes != nil && len(c.WantTypes) != len(c.WantIDs):
		return o, fmt.Errorf("`want_type_ids` has %d values and `want_ids` %d", len(c.WantTypes), len(c.WantIDs))
	case c.WantOffsets != nil && len(c.WantOffsets) != len(c.WantIDs):
		return o, fmt.Errorf("`want_offsets` has %d values and `want_ids` %d", len(c.WantOffsets), len(c.WantIDs))
	case c.WantOffsets != nil && (c.Pair != nil || c.MaxLength > 0):
		return o, errors.New("`want_offsets` is only for a text alone, without `max_length`")
	}
	return o, nil
}

// compare returns nil when all is as wanted.
func (c *Case) compare(t *tokenize.Tokenizer) (*Difference, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	var e tokenize.Encoding
	if c.Pair == nil {
		e, err = t.Encode(*c.Text, o)
	} else {
		e, err = t.EncodePair(*c.Text, *c.Pair, o)
	}
	switch {
	case err == nil && c.WantError != "":
		return &Difference{What: "error", Got: fmt.Sprintf("%d tokens", len(e.IDs)), Want: "the error " + strconv.Quote(c.WantError)}, nil
	case err != nil && c.WantError == "":
		return &Difference{What: "error", Got: "the error " + strconv.Quote(err.Error()), Want: fmt.Sprintf("%d tokens", len(c.WantIDs))}, nil
	case err != nil:
		return nil, nil
	}
	if d := differ("ids", e.IDs, c.WantIDs); d != nil {
		return d, nil
	}
	if c.WantTypes != nil {
		types := make([]int, len(e.IDs))
		for i := e.TypeOneAt; i < len(types); i++ {
			types[i] = 1
		}
		if d := differ("token types", types, c.WantTypes); d != nil {
			return d, nil
		}
	}
	if c.WantOffsets == nil {
		return nil, nil
	}
	places := make([][2]int, 0, len(c.WantOffsets))
	for _, token := range t.Tokens(*c.Text, true) {
		places = append(places, [2]int{max(0, token.Start), max(0, token.Stop)})
	}
	return differ("offsets", places, c.WantOffsets), nil
}

// differ returns nil for equal lists.
func differ[T comparable](what string, got, want []T) *Difference {
	if slices.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return &Difference{What: what, At: at, Got: from(got, at), Want: from(want, at)}
}

// from shows a list from a place on.
func from[T any](list []T, at int) string {
	const most = 8
	if at == len(list) {
		return "its end"
	}
	rest := list[at:]
	s := fmt.Sprint(rest[:min(len(rest), most)])
	if len(rest) > most {
		s = s[:len(s)-1] + fmt.Sprintf(" …] of %d", len(rest))
	}
	return s
}
