package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Parse reads the bytes of a tokenizer.json. It returns an *UnsupportedError for a tokenizer that it cannot do exactly, and
// an *InvalidError for a broken file. The sections "padding" (but for the padding token's name), "truncation" and
// "decoder" are not looked at: they have no say in which ids a text has.
//
// Supported are WordPiece models with the BertNormalizer (any of its settings) or none and the BertPreTokenizer; Unigram models with
// sequences of Precompiled, Replace, Strip and Prepend, and with WhitespaceSplit and Metaspace (any of its settings); for both, added
// tokens of every kind, and templates whose token types are 0 and then 1.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	if !utf8.Valid(tokenizerJSON) {
		return nil, &InvalidError{Reason: "not UTF-8"}
	}
	root, err := parseObject("", tokenizerJSON)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{table: loadCharTable()}
	if v := root["version"]; v != nil && string(v) != `"1.0"` {
		return nil, &UnsupportedError{"version", show(v), `"1.0"`}
	}
	model, err := parseObject("model", root["model"])
	if err != nil {
		return nil, err
	}
	if string(model["type"]) == `"Unigram"` {
		err = t.parseSentencePiece(root, model)
	} else {
		err = t.parseBERT(root, model)
	}
	if err != nil {
		return nil, err
	}
	if err := t.parseAddedTokens(root["added_tokens"]); err != nil {
		return nil, err
	}
	if err := t.parsePostProcessor(root["post_processor"]); err != nil {
		return nil, err
	}
	t.setPad(root["padding"])
	if t.sp == nil {
		t.chars = newCharMap(t.norm, t.table, t.vocab)
		t.setASCII()
	}
	return t, nil
}

// setPad finds the padding token.
func (t *Tokenizer) setPad(padding json.RawMessage) {
	if f, err := parseObject("padding", padding); err == nil {
		var name string
		if json.Unmarshal(f["pad_token"], &name) == nil {
			if id := t.id(name); id >= 0 {
				t.pad = id
				return
			}
		}
	}
	for _, name := range []string{"[PAD]", "<pad>"} {
		if id := t.id(name); id >= 0 {
			t.pad = id
			return
		}
	}
}

// id is that of a token with the given spelling, or -1.
func (t *Tokenizer) id(name string) int32 {
	for _, m := range []*matcher{t.raw, t.cooked} {
		for i := 0; m != nil && i < len(m.tokens); i++ {
			if m.tokens[i].content == name {
				return m.tokens[i].id
			}
		}
	}
	return t.modelID(name)
}

// modelID is the id that the model itself gives a token, or -1.
func (t *Tokenizer) modelID(name string) int32 {
	if t.sp != nil {
		return t.sp.model.ID(name)
	}
	if id, ok := t.vocab.ids[name]; ok {
		return id
	}
	return -1
}

// fields are the members of a JSON object; names are compared exactly, as the reference does.
type fields map[string]json.RawMessage

func isNull(b json.RawMessage) bool { return b == nil || string(b) == "null" }

// show is a value for an error message.
func show(b json.RawMessage) string {
	if b == nil {
		return "missing"
	}
	const most = 80
	var c bytes.Buffer
	if json.Compact(&c, b) == nil && c.Len() <= most {
		return c.String()
	}
	return strings.ToValidUTF8(string(b[:min(len(b), most)]), "") + "…"
}

// get decodes a member that must be there.
func get[T any](f fields, path, name string, into *T) error {
	if isNull(f[name]) {
		return &InvalidError{path + "." + name, "missing"}
	}
	return getOptional(f, path, name, into)
}

// getOptional leaves into as it is when the member is missing or null.
func getOptional[T any](f fields, path, name string, into *T) error {
	if isNull(f[name]) {
		return nil
	}
	if err := json.Unmarshal(f[name], into); err != nil {
		return &InvalidError{path + "." + name, fmt.Sprintf("%s: %v", show(f[name]), err)}
	}
	return nil
}

// only refuses members that mean something this package does not know.
func (f fields) only(path, kind string, names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(names, name) {
			return &UnsupportedError{path + "." + name, show(f[name]), kind + " with " + strings.Join(names, ", ")}
		}
	}
	return nil
}

// parseAddedTokens gives each token its id by the reference's rule: the vocabulary's, or else the next free one; the id in
// the file is not used.
func (t *Tokenizer) parseAddedTokens(b json.RawMessage) error {
	size := len(t.names) // of the model's vocabulary
	if t.sp != nil {
		size = t.sp.model.Len()
	}
	t.size = size
	if isNull(b) {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return &InvalidError{"added_tokens", err.Error()}
	}
	next := int32(size)
	byContent := map[string]int{}
	var tokens []addedToken
	for i, item := range list {
		path := fmt.Sprintf("added_tokens[%d]", i)
		f, err := parseObject(path, item)
		if err != nil {
			return err
		}
		if err := f.only(path, "a token", "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"); err != nil {
			return err
		}
		var a addedToken
		for _, err := range []error{
			get(f, path, "content", &a.content), get(f, path, "single_word", &a.singleWord), get(f, path, "lstrip", &a.lstrip),
			get(f, path, "rstrip", &a.rstrip), get(f, path, "normalized", &a.normalized), get(f, path, "special", &a.special),
		} {
			if err != nil {
				return err
			}
		}
		if a.content == "" {
			continue
		}
		if at, ok := byContent[a.content]; ok { // the later entry counts
			a.id = tokens[at].id
			a.special = a.special || tokens[at].special
			tokens[at] = a
			continue
		}
		id := t.modelID(a.content)
		if id < 0 {
			if _, taken := t.Token(next); taken {
				return &UnsupportedError{path, show(item), "added tokens beside a vocabulary without gaps"}
			}
			id = next
			next++
		}
		a.id = id
		t.names[id] = a.content
		byContent[a.content] = len(tokens)
		tokens = append(tokens, a)
	}
	t.size = int(next)

	var raw, cooked []addedToken
	var rawPatterns, cookedPatterns []string
	seen := map[string]string{}
	for _, a := range tokens {
		if !a.normalized {
			raw, rawPatterns = append(raw, a), append(rawPatterns, a.content)
			continue
		}
		p := t.normalized(a.content)
		if len(p) == 0 {
			return &UnsupportedError{"added_tokens", fmt.Sprintf("%q, of which nothing is left when it is normalised", a.content), "others"}
		}
		if other, ok := seen[p]; ok {
			return &UnsupportedError{"added_tokens", fmt.Sprintf("%q beside %q, which are the same when normalised", a.content, other),
				"one of them"}
		}
		seen[p] = a.content
		cooked, cookedPatterns = append(cooked, a), append(cookedPatterns, p)
	}
	var err error
	if t.raw, err = newMatcher(raw, rawPatterns, t.table); err != nil {
		return err
	}
	t.cooked, err = newMatcher(cooked, cookedPatterns, t.table)
	return err
}

// normalized is what becomes of a text.
func (t *Tokenizer) normalized(text string) string {
	if t.sp != nil {
		return t.sp.normalized(text, 0).String()
	}
	var p []byte
	a := aligner{norm: t.norm, table: t.table, yield: func(c alignedChar) { p = utf8.AppendRune(p, c.r) }}
	a.normalize(text, 0)
	return string(p)
}

func (t *Tokenizer) parsePostProcessor(b json.RawMessage) error {
	if isNull(b) {
		t.single = template{parts: [][]int32{nil, nil}, zeroTexts: 1}
		t.pair = template{parts: [][]int32{nil, nil, nil}, zeroTexts: 1}
		return nil
	}
	const path = "post_processor"
	f, err := parseObject(path, b)
	if err != nil {
		return err
	}
	switch kind := string(f["type"]); kind {
	case `"TemplateProcessing"`:
		return t.parseTemplates(f)
	case `"BertProcessing"`, `"RobertaProcessing"`:
		roberta := kind == `"RobertaProcessing"`
		if roberta {
			// What trim_offsets does to the places of tokens needs a vocabulary over bytes.
			var trim, space bool
			for _, err := range []error{
				f.only(path, "RobertaProcessing", "type", "sep", "cls", "trim_offsets", "add_prefix_space"),
				get(f, path, "trim_offsets", &trim), get(f, path, "add_prefix_space", &space),
			} {
				if err != nil {
					return err
				}
			}
			if trim {
				return &UnsupportedError{path + ".trim_offsets", "true", "false"}
			}
		} else if err := f.only(path, "BertProcessing", "type", "sep", "cls"); err != nil {
			return err
		}
		sep, err := t.parseSpecial(f, "sep")
		if err != nil {
			return err
		}
		cls, err := t.parseSpecial(f, "cls")
		if err != nil {
			return err
		}
		t.single = template{parts: [][]int32{{cls}, {sep}}, zeroSpecial: 2, zeroTexts: 1}
		if roberta {
			t.pair = template{parts: [][]int32{{cls}, {sep, sep}, {sep}}, zeroSpecial: 4, zeroTexts: 2}
			return nil
		}
		t.pair = template{parts: [][]int32{{cls}, {sep}, {sep}}, zeroSpecial: 2, zeroTexts: 1}
		return nil
	default:
		return &UnsupportedError{path + ".type", show(f["type"]), "TemplateProcessing, BertProcessing, RobertaProcessing, or no post-processor"}
	}
}

// parseSpecial reads a ["[SEP]", 102].
func (t *Tokenizer) parseSpecial(f fields, name string) (int32, error) {
	path := "post_processor." + name
	var two []json.RawMessage
	if err := get(f, "post_processor", name, &two); err != nil {
		return 0, err
	}
	var content string
	var id int32
	if len(two) != 2 || json.Unmarshal(two[0], &content) != nil || json.Unmarshal(two[1], &id) != nil {
		return 0, &InvalidError{path, show(f[name]) + " is not a token and its id"}
	}
	return id, t.known(path, id)
}

func (t *Tokenizer) known(path string, id int32) error {
	if _, ok := t.Token(id); !ok {
		return &InvalidError{path, fmt.Sprintf("no token has the id %d", id)}
	}
	return nil
}

type templatePiece struct {
	Sequence *struct {
		ID   string `json:"id"`
		Type uint32 `json:"type_id"`
	}
	SpecialToken *struct {
		ID   string `json:"id"`
		Type uint32 `json:"type_id"`
	}
}

func (t *Tokenizer) parseTemplates(f fields) error {
	const path = "post_processor"
	if err := f.only(path, "TemplateProcessing", "type", "single", "pair", "special_tokens"); err != nil {
		return err
	}
	var single, pair []templatePiece
	var specials map[string]struct {
		IDs []int32 `json:"ids"`
	}
	for _, err := range []error{get(f, path, "single", &single), get(f, path, "pair", &pair), get(f, path, "special_tokens", &specials)} {
		if err != nil {
			return err
		}
	}
	ids := map[string][]int32{}
	for name, s := range specials {
		for _, id := range s.IDs {
			if err := t.known(path+".special_tokens."+name, id); err != nil {
				return err
			}
		}
		ids[name] = s.IDs
	}
	var err error
	if t.single, err = makeTemplate(path+".single", show(f["single"]), single, ids, "A"); err != nil {
		return err
	}
	t.pair, err = makeTemplate(path+".pair", show(f["pair"]), pair, ids, "A", "B")
	return err
}

// makeTemplate wants each of the texts once.
func makeTemplate(path, value string, pieces []templatePiece, specials map[string][]int32, texts ...string) (template, error) {
	t := template{parts: [][]int32{nil}}
	var order []string
	ones := false // type 1 has begun
	for _, p := range pieces {
		var kind uint32
		switch {
		case p.Sequence != nil:
			kind = p.Sequence.Type
		case p.SpecialToken != nil:
			kind = p.SpecialToken.Type
		default:
			return t, &InvalidError{path, "a piece is neither a Sequence nor a SpecialToken"}
		}
		if kind > 1 || kind == 0 && ones {
			return t, &UnsupportedError{path, value, "token type 0 and, behind it, 1"}
		}
		ones = kind == 1
		if p.Sequence != nil {
			order = append(order, p.Sequence.ID)
			t.parts = append(t.parts, nil)
			if !ones {
				t.zeroTexts++
			}
			continue
		}
		ids, ok := specials[p.SpecialToken.ID]
		if !ok {
			return t, &InvalidError{path, fmt.Sprintf("%q is not among the special_tokens", p.SpecialToken.ID)}
		}
		last := len(t.parts) - 1
		t.parts[last] = append(t.parts[last], ids...)
		if !ones {
			t.zeroSpecial += len(ids)
		}
	}
	t.swapped = len(order) == 2 && order[0] == "B"
	if slices.Sort(order); !slices.Equal(order, texts) {
		return t, &UnsupportedError{path, value, "each text once: " + strings.Join(texts, ", ")}
	}
	return t, nil
}
