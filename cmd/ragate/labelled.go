package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"ragate/gates"
	"ragate/gates/evaluate"
	"ragate/gates/quality"
)

// Labelled data, as people have it: lines of JSON with a byte-order mark or CRLF or gzip around them, and collections in BEIR's layout with
// their judgements in one file or in one for each split. What is wrong is named with its file and line.

// labelledTurn is a turn for the query gate.
type labelledTurn struct {
	text, label, lang, category string
	history                     []gates.Turn
}

// readTurns reads labelled turns, one JSON object a line.
func readTurns(file string) ([]labelledTurn, error) {
	var turns []labelledTurn
	err := eachLine(file, func(_ int, line []byte) error {
		var t struct {
			Text     *string
			Label    string
			Lang     string
			Category string
			History  []gates.Turn
		}
		if err := decodeLine(line, &t); err != nil {
			return err
		}
		if t.Text == nil {
			return errors.New("text is missing")
		}
		if t.Label != string(evaluate.Knowledge) && t.Label != string(evaluate.Chitchat) {
			return fmt.Errorf("label is %q: it must be knowledge or chitchat", t.Label)
		}
		turns = append(turns, labelledTurn{*t.Text, t.Label, t.Lang, t.Category, t.History})
		return nil
	})
	if err == nil && len(turns) == 0 {
		err = usagef("--data %s holds no turns", file)
	}
	return turns, err
}

// decodeLine reads one line's object, with errors that a person who wrote the file understands.
func decodeLine(line []byte, into any) error {
	err := json.Unmarshal(line, into)
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		return fmt.Errorf("a JSON object was expected, and this is of type %s", typ.Value)
	case errors.As(err, &typ):
		return fmt.Errorf("%s cannot be of type %s", strings.ToLower(typ.Field), typ.Value)
	case err != nil:
		return fmt.Errorf("no JSON object: %w", err)
	}
	return nil
}

// eachLine hands the lines of a file that are not blank to f, with their numbers. Errors name the line.
func eachLine(file string, f func(n int, line []byte) error) error {
	in, err := openData(file)
	if err != nil {
		return &usageError{err}
	}
	defer in.Close()
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for s.Scan() {
		n++
		line := s.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			return usagef("%s:%d: it is not UTF-8: convert the file", file, n)
		}
		if err := f(n, line); err != nil {
			return usagef("%s:%d: %v", file, n, err)
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return usagef("%s:%d: the line is longer than %d MiB", file, n+1, maxLine>>20)
	case err != nil:
		return usagef("%s: %v", file, err)
	}
	return nil
}

// openData opens a file; a compressed one, also where only FILE.gz is there, is read as what is in it.
func openData(file string) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		if z, e := os.Open(file + ".gz"); e == nil {
			f, err = z, nil
		}
	}
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(f)
	if head, _ := b.Peek(2); string(head) != "\x1f\x8b" {
		return readCloser{b, f}, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return readCloser{z, f}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// labelledChunk is a retrieved chunk with its grade: 0 is not relevant, higher the better.
type labelledChunk struct {
	id    string
	chunk quality.Chunk
	grade int
}

// labelledRequest is a query with what was retrieved for it.
type labelledRequest struct {
	query  string
	chunks []labelledChunk
	ideal  []int // grades of all that is relevant for the query, retrieved or not; nil where only the given chunks are known
}

// readRequests reads labelled requests, one JSON object a line: query, and chunks as POST /v1/gate/chunks takes them, each with relevant
// (true or false) or grade (a whole number).
func readRequests(file string) ([]labelledRequest, error) {
	var requests []labelledRequest
	err := eachLine(file, func(_ int, line []byte) error {
		var t struct {
			Query  *string
			Chunks []struct {
				ID         identifier
				Text       *string
				Similarity *float64
				Metadata   json.RawMessage
				Relevant   *bool
				Grade      *grade
			}
		}
		if err := decodeLine(line, &t); err != nil {
			return err
		}
		if t.Query == nil {
			return errors.New("query is missing")
		}
		r := labelledRequest{query: *t.Query}
		for i, c := range t.Chunks {
			one := labelledChunk{id: string(c.ID)}
			switch {
			case c.Text == nil:
				return fmt.Errorf("chunks[%d].text is missing", i)
			case c.Relevant == nil && c.Grade == nil:
				return fmt.Errorf("chunks[%d] has no label: relevant (true or false) or grade", i)
			case c.Grade != nil:
				one.grade = int(*c.Grade)
			case *c.Relevant:
				one.grade = 1
			}
			one.chunk = quality.Chunk{Text: *c.Text, Similarity: c.Similarity}
			if len(c.Metadata) > 0 {
				one.chunk.Metadata = quality.JSON(c.Metadata)
			}
			if one.id == "" {
				one.id = strconv.Itoa(i)
			}
			r.chunks = append(r.chunks, one)
		}
		requests = append(requests, r)
		return nil
	})
	if err == nil && len(requests) == 0 {
		err = usagef("--data %s holds no requests", file)
	}
	return requests, err
}

// identifier is an id that may be written as a text or as a number.
type identifier string

func (d *identifier) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(d))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return errors.New("an id must be a text or a number")
	}
	*d = identifier(n)
	return nil
}

// grade is a whole number, perhaps written as 1.0.
type grade int

func (g *grade) UnmarshalJSON(b []byte) (err error) {
	*g, err = parseGrade(string(b))
	return err
}

func parseGrade(text string) (grade, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > 1e6 {
		return 0, fmt.Errorf("a grade of %q: it must be a whole number", text)
	}
	return grade(v), nil
}

// collection is a labelled collection of texts: the queries that are judged, and every text.
type collection struct {
	ids, texts       []string
	queryIDs, querys []string
	grades           map[string]map[string]int // query → text → grade
}

// readCollection reads BEIR's layout: corpus.jsonl, queries.jsonl, and qrels.tsv or qrels/SPLIT.tsv. Queries that nothing judges belong to
// another split, and are left out.
func readCollection(dir, split string) (*collection, error) {
	c := &collection{grades: map[string]map[string]int{}}
	var err error
	if c.ids, c.texts, err = readDocuments(filepath.Join(dir, "corpus.jsonl")); err != nil {
		return nil, err
	}
	queryIDs, queries, err := readDocuments(filepath.Join(dir, "queries.jsonl"))
	if err != nil {
		return nil, err
	}
	file, err := judgements(dir, split)
	if err != nil {
		return nil, err
	}
	if err := eachLine(file, c.judge); err != nil {
		return nil, err
	}
	for i, id := range queryIDs {
		if c.grades[id] != nil {
			c.queryIDs, c.querys = append(c.queryIDs, id), append(c.querys, queries[i])
		}
	}
	if len(c.texts) == 0 || len(c.querys) == 0 {
		return nil, usagef("--data %s: %d texts, %d queries, and %s judges %d of them: nothing to measure", dir, len(c.texts), len(queries), file, len(c.querys))
	}
	return c, nil
}

// judgements finds the file of a collection's judgements: qrels.tsv, else that of the split, else the only one there is.
func judgements(dir, split string) (string, error) {
	flat := filepath.Join(dir, "qrels.tsv")
	found, err := filepath.Glob(filepath.Join(dir, "qrels", "*.tsv*"))
	if err != nil || len(found) == 0 {
		return flat, nil // what is wrong with it is said when it is read
	}
	if _, err := os.Stat(flat); err == nil {
		return flat, nil
	}
	var names []string
	for _, f := range found {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(f), ".gz"), ".tsv")
		if name == split || len(found) == 1 {
			return f, nil
		}
		names = append(names, name)
	}
	return "", usagef("--split is %q: %s has judgements for %s", split, dir, strings.Join(names, ", "))
}

// judge reads a line of judgements: query, text and grade, with TREC's unused second column or without.
func (c *collection) judge(n int, line []byte) error {
	parts := strings.Split(string(line), "\t")
	if len(parts) == 1 {
		parts = strings.Fields(parts[0])
	}
	if len(parts) == 4 {
		parts = []string{parts[0], parts[2], parts[3]}
	}
	if len(parts) != 3 {
		return fmt.Errorf("%d columns: it must have query-id, corpus-id and score, separated by tabs", len(parts))
	}
	g, err := parseGrade(strings.TrimSpace(parts[2]))
	if err != nil {
		if n == 1 { // a header
			return nil
		}
		return err
	}
	if c.grades[parts[0]] == nil {
		c.grades[parts[0]] = map[string]int{}
	}
	c.grades[parts[0]][parts[1]] = int(g)
	return nil
}

// readDocuments reads texts with their ids; a title goes in front of its text unless the text begins with it.
func readDocuments(file string) (ids, texts []string, err error) {
	lines := map[string]int{}
	err = eachLine(file, func(n int, line []byte) error {
		var d struct {
			ID    identifier `json:"_id"`
			Title string
			Text  *string
		}
		if err := decodeLine(line, &d); err != nil {
			return err
		}
		switch id := string(d.ID); {
		case id == "":
			return errors.New("_id is missing")
		case d.Text == nil:
			return errors.New("text is missing")
		case lines[id] > 0:
			return fmt.Errorf("_id %q is that of line %d too", id, lines[id])
		default:
			lines[id] = n
		}
		text := *d.Text
		if d.Title != "" && !strings.HasPrefix(text, d.Title) {
			text = d.Title + ". " + text
		}
		ids, texts = append(ids, string(d.ID)), append(texts, text)
		return nil
	})
	return ids, texts, err
}
