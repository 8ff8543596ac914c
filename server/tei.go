package server

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"ragate/inference"
)

// The dialect of Hugging Face's text-embeddings-inference: POST /embed (and /, its default task), /rerank, /similarity, /tokenize.
// Answers are bare arrays; a parsable body with wrong fields is a 422. TEI serves one model and has no name for it in a body; here a body
// may have `model`, as in the other dialects.

const (
	// tokenizeSlots bounds how many token lists exist at once: a body of 8 MiB can be 4 million tokens, about 200 MB while it is answered.
	tokenizeSlots = 2
)

// truncationFields are those of TEI by which a request says what happens to long texts.
var truncationFields = []string{"truncate", "truncation_direction"}

// truncation reads TEI's fields for long texts.
func (s *Server) truncation(f *fields) inference.Truncation {
	t := inference.Truncation{Refuse: !f.flag("truncate", s.cfg.Truncate)}
	// TEI writes Left and Right, Hugging Face's Python client left and right; an error shows TEI's.
	if side := f.choice("truncation_direction", "Right", "Left", "Right", "left", "right"); strings.EqualFold(side, "Left") {
		t.Side = inference.Left
	}
	return t
}

// embedOnlyFields and similarityFields are the fields of these bodies beside the truncation's.
var (
	embedOnlyFields  = []string{"inputs", "normalize", "prompt_name", "dimensions", "model"}
	similarityFields = []string{"inputs", "model", "parameters"}
)

func (s *Server) teiEmbed(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	return s.answerEmbed(x, readObject(body, slices.Concat(embedOnlyFields, truncationFields)...))
}

// teiRoot is /embed, and /similarity where inputs is an object: Hugging Face's clients send every task to the root.
func (s *Server) teiRoot(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	f := readObject(body, slices.Concat(embedOnlyFields, truncationFields, similarityFields[1:])...)
	if raw := f.raw("inputs"); raw != nil && raw[0] == '{' {
		return s.answerSimilarity(x, f)
	}
	return s.answerEmbed(x, f)
}

func (s *Server) answerEmbed(x *exchange, f *fields) error {
	texts := f.texts("inputs", bounds{s.cfg.MaxItems, s.cfg.Settings.MaxItems}, true)
	normalize := f.flag("normalize", true)
	prompt := f.optText("prompt_name")
	name := f.optText("model")
	trunc := s.truncation(f)
	if f.bad != nil {
		return f.bad
	}
	m, err := x.pick(inference.KindEmbedder, name)
	if err != nil {
		return err
	}
	dim := f.count("dimensions", m.info.Dimensions)
	if f.bad != nil {
		return f.bad
	}
	x.item = itemOf("inputs", f.raw("inputs")[0] == '"')
	e, err := x.embed(m, inference.EmbedRequest{Texts: texts, Prompt: prompt, SkipNormalize: !normalize, Truncation: trunc})
	if err != nil {
		return err
	}
	shorten(e, dim, normalize)
	b, err := x.vectors(make([]byte, 0, answerBytes(len(texts)*(2+vectorBytes*e.Dim))), e, "float")
	if err != nil {
		return err
	}
	x.send(200, b)
	return nil
}

// teiRerank serves both shapes that clients send to /rerank: the body's texts or documents decides.
func (s *Server) teiRerank(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	f := readObject(body, slices.Concat([]string{"texts", "return_text"}, truncationFields, rerankFields)...)
	switch {
	case f.bad != nil:
		return f.bad
	case f.has("texts") && f.has("documents"):
		return refuse(kindConflict, "texts", "the body has both `texts` and `documents`: send `texts` for an answer in TEI's shape, or `documents` for Cohere's")
	case f.has("documents"):
		x.dialect = dialectCohere
		return s.answerRerank(x, f, "1")
	}
	query := f.text("query")
	if !f.has("texts") {
		f.refuse(kindField, "texts", "is required (or `documents`, for an answer in Cohere's shape)")
	}
	texts := f.texts("texts", bounds{s.cfg.MaxDocuments, s.cfg.Settings.MaxDocuments}, false)
	raw := f.flag("raw_scores", false)
	withText := f.flag("return_text", false)
	name := f.optText("model")
	trunc := s.truncation(f)
	if f.bad != nil {
		return f.bad
	}
	m, err := x.pick(inference.KindReranker, name)
	if err != nil {
		return err
	}
	x.item = itemOf("texts", false)
	scores, err := x.rerank(m, inference.RerankRequest{Query: query, Documents: texts, Truncation: trunc})
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 16+48*len(texts)), '[')
	for i, r := range rank(scores.Logits, 0) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = appendInt(b, r.index)
		if withText {
			b = append(b, `,"text":`...)
			b = appendString(b, texts[r.index])
		}
		b = append(b, `,"score":`...)
		b = appendScore(b, r.logit, raw)
		b = append(b, '}')
		if b, err = x.spill(b); err != nil {
			return err
		}
	}
	x.send(200, append(b, ']'))
	return nil
}

func (s *Server) teiSimilarity(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	return s.answerSimilarity(x, readObject(body, similarityFields...))
}

func (s *Server) answerSimilarity(x *exchange, f *fields) error {
	in := f.object("inputs", "source_sentence", "sentences")
	source := in.text("source_sentence")
	sentences := in.texts("sentences", bounds{s.cfg.MaxItems, s.cfg.Settings.MaxItems}, false)
	params := f.optObject("parameters", slices.Concat([]string{"prompt_name"}, truncationFields)...)
	prompt := params.optText("prompt_name")
	trunc := s.truncation(params)
	name := f.optText("model")
	if err := firstBad(f, in, params); err != nil {
		return err
	}
	m, err := x.pick(inference.KindEmbedder, name)
	if err != nil {
		return err
	}
	x.item = func(i int) string {
		if i == 0 {
			return "`inputs.source_sentence`"
		}
		return "`inputs.sentences[" + strconv.Itoa(i-1) + "]`"
	}
	e, err := x.embed(m, inference.EmbedRequest{Texts: append([]string{source}, sentences...), Prompt: prompt, Truncation: trunc})
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 16+16*len(sentences)), '[')
	for i := range sentences {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFloat32(b, cosine(e.Row(0), e.Row(i+1)))
	}
	x.send(200, append(b, ']'))
	return nil
}

// teiTokenize lists the tokens that a model sees: the embedder where none is named (the reranker, where it is alone). Nothing is cut.
func (s *Server) teiTokenize(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	f := readObject(body, "inputs", "add_special_tokens", "prompt_name", "model")
	texts := f.texts("inputs", bounds{s.cfg.MaxItems, s.cfg.Settings.MaxItems}, true)
	special := f.flag("add_special_tokens", true)
	prompt := f.optText("prompt_name")
	name := f.optText("model")
	if f.bad != nil {
		return f.bad
	}
	m, err := x.pickAny(name)
	if err != nil {
		return err
	}
	prefix, ok := m.info.Prompts[prompt]
	if prompt != "" && !ok {
		return &inference.UnknownPromptError{Prompt: prompt, Known: slices.Sorted(maps.Keys(m.info.Prompts))}
	}
	ctx := x.r.Context()
	select {
	case s.tokenizing <- struct{}{}:
		defer func() { <-s.tokenizing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	x.model, x.items = m.info.ID, len(texts)
	x.asked(texts...)

	began := time.Now()
	defer func() {
		if x.recording() {
			x.stage(x.r.Context(), "tokenize", began, time.Now(), attribute.String("ragate.model", x.model), attribute.Int("ragate.items", x.items))
		}
	}()
	b := append(make([]byte, 0, 1024), '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, t := range m.Tokens(prefix+text, special) {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendToken(b, t)
			x.timing.Tokenize = time.Since(began) // for the headers, which go out with the first piece
			if b, err = x.spill(b); err != nil {
				return err
			}
		}
		b = append(b, ']')
	}
	b = append(b, ']')
	x.timing.Tokenize = time.Since(began)
	x.send(200, b)
	return nil
}

// appendToken appends a token; special tokens that were added stand nowhere in the text and have null for their place, as in TEI.
func appendToken(b []byte, t inference.Token) []byte {
	b = append(b, `{"id":`...)
	b = appendInt(b, int(t.ID))
	b = append(b, `,"text":`...)
	b = appendString(b, t.Text)
	b = append(b, `,"special":`...)
	b = strconv.AppendBool(b, t.Special)
	if t.Start < 0 {
		return append(b, `,"start":null,"stop":null}`...)
	}
	b = append(b, `,"start":`...)
	b = appendInt(b, t.Start)
	b = append(b, `,"stop":`...)
	b = appendInt(b, t.Stop)
	return append(b, '}')
}
