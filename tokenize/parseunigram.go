package tokenize

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"ragate/tokenize/internal/charsmap"
	"ragate/tokenize/internal/unigram"
)

// parseSentencePiece reads the parts of a Unigram file that differ from those of a WordPiece one.
func (t *Tokenizer) parseSentencePiece(root, model fields) error {
	if err := model.only("model", "Unigram", "type", "vocab", "unk_id", "byte_fallback"); err != nil {
		return err
	}
	var unk uint32
	var bytes bool
	if isNull(model["unk_id"]) {
		return &UnsupportedError{"model.unk_id", show(model["unk_id"]), "the id of a piece; without one the reference fails on unknown characters"}
	}
	for _, err := range []error{get(model, "model", "unk_id", &unk), getOptional(model, "model", "byte_fallback", &bytes)} {
		if err != nil {
			return err
		}
	}
	var v unigram.Vocabulary
	if isNull(model["vocab"]) {
		return &InvalidError{"model.vocab", "missing"}
	}
	v.Text = make([]byte, 0, len(model["vocab"])/3)
	if err := readPieces(model["vocab"], func(piece, score []byte) error {
		s, err := parseScore(score)
		v.Text = append(v.Text, piece...)
		v.Ends = append(v.Ends, uint32(len(v.Text)))
		v.Scores = append(v.Scores, s)
		return err
	}); err != nil {
		return &InvalidError{"model.vocab", err.Error()}
	}
	s, err := t.newSentencePiece(&v, int(unk), bytes)
	if err != nil {
		return &InvalidError{"model.unk_id", err.Error()}
	}
	if s.steps, err = parseSteps("normalizer", root["normalizer"], nil); err != nil {
		return err
	}
	if s.pre, err = parseMetaspace("pre_tokenizer", root["pre_tokenizer"]); err != nil {
		return err
	}
	s.setFast()
	return nil
}

func (t *Tokenizer) newSentencePiece(v *unigram.Vocabulary, unk int, bytes bool) (*sentencePiece, error) {
	m, err := unigram.New(v, unk, bytes)
	if err != nil {
		return nil, err
	}
	t.sp = &sentencePiece{model: m, space: t.table.isSpace}
	t.names = map[int32]string{}
	return t.sp, nil
}

// isSpace says whether the reference takes a character for white space.
func (t *charTable) isSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || r >= '\t' && r <= '\r'
	}
	return r >= 0x85 && t.space.has(r)
}

const knownSteps = "a Sequence of Precompiled, Replace, Strip and Prepend"

// parseSteps appends the steps of a normaliser.
func parseSteps(path string, b json.RawMessage, steps []step) ([]step, error) {
	if isNull(b) {
		return steps, nil
	}
	f, err := parseObject(path, b)
	if err != nil {
		return nil, err
	}
	var s step
	switch string(f["type"]) {
	case `"Sequence"`:
		var list []json.RawMessage
		if err := get(f, path, "normalizers", &list); err != nil {
			return nil, err
		}
		for i, one := range list {
			if steps, err = parseSteps(fmt.Sprintf("%s.normalizers[%d]", path, i), one, steps); err != nil {
				return nil, err
			}
		}
		return steps, f.only(path, "Sequence", "type", "normalizers")
	case `"Precompiled"`:
		var raw []byte // base64 in JSON
		if err := get(f, path, "precompiled_charsmap", &raw); err != nil {
			return nil, err
		}
		if err := f.only(path, "Precompiled", "type", "precompiled_charsmap"); err != nil {
			return nil, err
		}
		if s.chars, err = charsmap.Parse(raw); err != nil {
			return nil, &InvalidError{path + ".precompiled_charsmap", err.Error()}
		}
	case `"Replace"`:
		if err := s.parseReplace(path, f); err != nil {
			return nil, err
		}
	case `"Strip"`:
		for _, err := range []error{
			get(f, path, "strip_left", &s.left), get(f, path, "strip_right", &s.right), f.only(path, "Strip", "type", "strip_left", "strip_right"),
		} {
			if err != nil {
				return nil, err
			}
		}
		if !s.left && !s.right {
			return steps, nil
		}
	case `"Prepend"`:
		if err := get(f, path, "prepend", &s.prepend); err != nil {
			return nil, err
		}
		if err := f.only(path, "Prepend", "type", "prepend"); err != nil {
			return nil, err
		}
		if s.prepend == "" { // the reference loses the place of the first character
			return nil, &UnsupportedError{path + ".prepend", `""`, "a text, or no Prepend"}
		}
	default:
		return nil, &UnsupportedError{path + ".type", show(f["type"]), "with a Unigram model: " + knownSteps}
	}
	return append(steps, s), nil
}

func (s *step) parseReplace(path string, f fields) error {
	var pattern struct{ String, Regex *string }
	for _, err := range []error{
		get(f, path, "pattern", &pattern), get(f, path, "content", &s.with), f.only(path, "Replace", "type", "pattern", "content"),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case pattern.String != nil && *pattern.String != "":
		s.find = findString(*pattern.String)
	case pattern.Regex != nil && *pattern.Regex == " {2,}":
		s.find, s.onlySpace = findSpaces(2), true
	case pattern.Regex != nil && *pattern.Regex == " +":
		s.find, s.onlySpace = findSpaces(1), true
	default:
		return &UnsupportedError{path + ".pattern", show(f["pattern"]), `a String, or one of the regular expressions " {2,}" and " +"`}
	}
	return nil
}

// parseMetaspace reads a pre-tokeniser.
func parseMetaspace(path string, b json.RawMessage) (metaspace, error) {
	const known = "with a Unigram model: Metaspace, WhitespaceSplit, or a Sequence of the second and then the first"
	var m metaspace
	if isNull(b) {
		return m, nil
	}
	f, err := parseObject(path, b)
	if err != nil {
		return m, err
	}
	switch string(f["type"]) {
	case `"Sequence"`:
		var list []json.RawMessage
		if err := get(f, path, "pretokenizers", &list); err != nil {
			return m, err
		}
		if err := f.only(path, "Sequence", "type", "pretokenizers"); err != nil {
			return m, err
		}
		for i, one := range list {
			at := fmt.Sprintf("%s.pretokenizers[%d]", path, i)
			next, err := parseMetaspace(at, one)
			if err != nil {
				return m, err
			}
			if m.mark != "" && (next.words || next.mark != "") {
				return m, &UnsupportedError{at, show(one), known}
			}
			m.words = m.words || next.words
			if next.mark != "" {
				words := m.words
				m = next
				m.words = words
			}
		}
		return m, nil
	case `"WhitespaceSplit"`:
		m.words = true
		return m, f.only(path, "WhitespaceSplit", "type")
	case `"Metaspace"`:
		return parseMark(path, f)
	}
	return m, &UnsupportedError{path + ".type", show(f["type"]), known}
}

// parseMark reads a Metaspace. Files of before prepend_scheme have add_prefix_space, which the reference takes for always and never.
func parseMark(path string, f fields) (metaspace, error) {
	m := metaspace{prepend: always, breaks: true}
	var named *string
	var legacy *bool
	var rep string
	for _, err := range []error{
		f.only(path, "Metaspace", "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"),
		get(f, path, "replacement", &m.mark), getOptional(f, path, "prepend_scheme", &named), getOptional(f, path, "split", &m.breaks),
		getOptional(f, path, "add_prefix_space", &legacy), getOptional(f, path, "str_rep", &rep),
	} {
		if err != nil {
			return m, err
		}
	}
	if utf8.RuneCountInString(m.mark) != 1 {
		return m, &InvalidError{path + ".replacement", show(f["replacement"]) + " is not one character"}
	}
	if r, _ := utf8.DecodeRuneInString(m.mark); loadCharTable().isSpace(r) {
		return m, &UnsupportedError{path + ".replacement", show(f["replacement"]), "a character that is not white space"}
	}
	if named != nil {
		switch *named {
		case "always":
		case "first":
			m.prepend = first
		case "never":
			m.prepend = never
		default:
			return m, &InvalidError{path + ".prepend_scheme", show(f["prepend_scheme"]) + " is not always, first or never"}
		}
	} else if f["prepend_scheme"] != nil {
		return m, &InvalidError{path + ".prepend_scheme", "null"}
	}
	if legacy != nil && !*legacy && m.prepend != never {
		return m, &InvalidError{path + ".add_prefix_space", "false contradicts prepend_scheme"}
	}
	return m, nil
}
