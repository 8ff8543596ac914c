package server

import (
	"slices"

	"ragate/inference"
)

// Cohere's dialect: POST /v1/rerank and /v2/rerank, and POST /rerank when its body has documents, which Jina, LiteLLM and vLLM share;
// POST /v1/embed and /v2/embed.

// unitDocuments is how many documents of one query Cohere bills as one search unit.
const unitDocuments = 100

// rerankFields are the fields of a Cohere rerank body.
var rerankFields = []string{"query", "documents", "model", "top_n", "return_documents", "max_tokens_per_doc", "raw_scores"}

// cohereRerank makes the handler of one version of the route; the versions differ only in what `meta` says.
func (s *Server) cohereRerank(version string) handler {
	return func(x *exchange) error {
		body, err := x.readBody()
		if err != nil {
			return err
		}
		return s.answerRerank(x, readObject(body, rerankFields...), version)
	}
}

// answerRerank serves a Cohere body whose fields have been found.
func (s *Server) answerRerank(x *exchange, f *fields, version string) error {
	query := f.text("query")
	docs := f.documents("documents", bounds{s.cfg.MaxDocuments, s.cfg.Settings.MaxDocuments})
	name := f.optText("model")
	top := f.count("top_n", 0)
	perDoc := f.count("max_tokens_per_doc", 0)
	withText := f.flag("return_documents", false)
	raw := f.flag("raw_scores", false)
	if f.bad != nil {
		return f.bad
	}
	m, err := x.pick(inference.KindReranker, name)
	if err != nil {
		return err
	}
	x.item = itemOf("documents", false)
	scores, err := x.rerank(m, inference.RerankRequest{
		Query:           query,
		Documents:       docs,
		MaxTokensPerDoc: perDoc,
		Truncation:      inference.Truncation{Refuse: !s.cfg.Truncate},
	})
	if err != nil {
		return err
	}

	b := append(make([]byte, 0, 512+64*len(docs)), `{"id":`...)
	b = appendString(b, newID())
	b = append(b, `,"model":`...)
	b = appendString(b, m.info.ID)
	b = append(b, `,"results":[`...)
	for i, r := range rank(scores.Logits, top) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = appendInt(b, r.index)
		b = append(b, `,"relevance_score":`...)
		b = appendScore(b, r.logit, raw)
		if withText {
			b = append(b, `,"document":{"text":`...)
			b = appendString(b, docs[r.index])
			b = append(b, '}')
		}
		b = append(b, '}')
		if b, err = x.spill(b); err != nil {
			return err
		}
	}
	b = append(b, ']')
	b = appendUsage(b, scores.Usage)
	b = append(b, `,"meta":{"api_version":{"version":`...)
	b = appendString(b, version)
	b = append(b, `},"billed_units":{"search_units":`...)
	b = appendInt(b, (len(docs)+unitDocuments-1)/unitDocuments)
	x.send(200, append(b, "}}}"...))
	return nil
}

// embedFields are the fields of a Cohere embed body. Cohere's output_dimension is what OpenAI calls dimensions.
var embedFields = []string{"texts", "model", "input_type", "embedding_types", "truncate", "output_dimension"}

// embedTexts reads the texts of an embed body and says in which field they are: version 2 also takes `inputs`, made for texts and images.
func (s *Server) embedTexts(f *fields, version string) (field string, texts []string) {
	b := bounds{s.cfg.MaxItems, s.cfg.Settings.MaxItems}
	if version == "1" || !f.has("inputs") {
		return "texts", f.texts("texts", b, false)
	}
	if f.has("texts") {
		f.bad = refuse(kindConflict, "inputs", "the body has both `texts` and `inputs`: send one of them")
	}
	return "inputs", f.contents("inputs", b)
}

// cohereEmbed makes the handler of one version of Cohere's embed route. Version 1 without embedding_types answers a bare list of
// vectors and says so in response_type, by which Cohere's clients choose how to read it.
func (s *Server) cohereEmbed(version string) handler {
	names := embedFields
	if version != "1" {
		names = append(slices.Clone(embedFields), "inputs")
	}
	return func(x *exchange) error {
		body, err := x.readBody()
		if err != nil {
			return err
		}
		f := readObject(body, names...)
		source, texts := s.embedTexts(f, version)
		name := f.optText("model")
		inputType := f.choice("input_type", "", inputTypeNames...)
		types := f.choices("embedding_types", "float", "base64")
		cut := f.choice("truncate", "", "NONE", "START", "END")
		if f.bad != nil {
			return f.bad
		}
		m, err := x.pick(inference.KindEmbedder, name)
		if err != nil {
			return err
		}
		dim := f.count("output_dimension", m.info.Dimensions)
		if f.bad != nil {
			return f.bad
		}
		trunc := inference.Truncation{Refuse: cut == "NONE" || cut == "" && !s.cfg.Truncate}
		if cut == "START" {
			trunc.Side = inference.Left
		}
		x.item = itemOf(source, false)
		e, err := x.embed(m, inference.EmbedRequest{Texts: texts, Prompt: m.prompt(inputTypes[inputType]), Truncation: trunc})
		if err != nil {
			return err
		}
		shorten(e, dim, true)

		bare := version == "1" && len(types) == 0
		if len(types) == 0 {
			types = []string{"float"}
		}
		b := append(make([]byte, 0, answerBytes(512+len(body)+len(types)*len(texts)*(2+vectorBytes*e.Dim))), `{"id":`...)
		b = appendString(b, newID())
		if version == "1" {
			b = append(b, `,"response_type":`...)
			if bare {
				b = append(b, `"embeddings_floats"`...)
			} else {
				b = append(b, `"embeddings_by_type"`...)
			}
		}
		b = append(b, `,"embeddings":`...)
		if bare {
			if b, err = x.vectors(b, e, "float"); err != nil {
				return err
			}
		} else {
			b = append(b, '{')
			for i, t := range types {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendString(b, t)
				b = append(b, ':')
				if b, err = x.vectors(b, e, t); err != nil {
					return err
				}
			}
			b = append(b, '}')
		}
		b = append(b, `,"texts":[`...)
		for i, text := range texts {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, text)
			if b, err = x.spill(b); err != nil {
				return err
			}
		}
		b = append(b, ']')
		if len(e.Usage.Cut) > 0 {
			b = append(b, `,"truncated":`...)
			b = appendInts(b, e.Usage.Cut)
		}
		b = append(b, `,"meta":{"api_version":{"version":`...)
		b = appendString(b, version)
		b = append(b, `},"billed_units":{"input_tokens":`...)
		b = appendInt(b, e.Usage.Tokens)
		x.send(200, append(b, "}}}"...))
		return nil
	}
}

// vectors appends a list of all vectors in the format float or base64, and sends what it has when that grows.
func (x *exchange) vectors(b []byte, e *inference.Embeddings, format string) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i := 0; i*e.Dim < len(e.Values); i++ {
		if i > 0 {
			b = append(b, ',')
		}
		if format == "base64" {
			b = appendBase64(b, e.Row(i))
		} else {
			b = appendVector(b, e.Row(i))
		}
		if b, err = x.spill(b); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}
