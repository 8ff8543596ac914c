package server

import (
	"cmp"
	"net/url"
	"strconv"

	"ragate/inference"
)

// OpenAI's dialect: POST /v1/embeddings, with the fields by which Jina's clients, which call the same route, differ; GET /v1/models.

// inputTypes maps what clients send as input_type to the meaning whose prefix is added. OpenAI itself has no such field; NVIDIA's and
// Voyage's services use the first three names, Cohere's the others, of which the last two mean no prefix.
var inputTypes = map[string]string{
	"query":           "query",
	"passage":         "passage",
	"document":        "passage",
	"search_query":    "query",
	"search_document": "passage",
	"classification":  "",
	"clustering":      "",
}

var inputTypeNames = []string{"query", "passage", "document", "search_query", "search_document", "classification", "clustering"}

// jinaTasks maps what Jina calls task to an input_type. Its own models have an adapter for each; here the first pairs mean the prefixes.
var jinaTasks = map[string]string{
	"retrieval.query":   "query",
	"retrieval.passage": "passage",
	"code.query":        "query",
	"code.passage":      "passage",
	"text-matching":     "",
	"classification":    "",
	"clustering":        "",
	"separation":        "",
}

var jinaTaskNames = []string{"retrieval.query", "retrieval.passage", "code.query", "code.passage", "text-matching", "classification", "clustering", "separation"}

// encoding reads the format of the vectors: OpenAI's field, else one of Jina's two names for it, which may also be a list of one.
func encoding(f *fields) string {
	format := f.choice("encoding_format", "", "float", "base64")
	for _, name := range []string{"embedding_type", "encoding_type"} {
		types := f.choices(name, "float", "base64")
		if len(types) > 1 {
			f.refuse(kindField, name, "names %d formats: this route answers in one", len(types))
		}
		if format == "" && len(types) > 0 {
			format = types[0]
		}
	}
	return format
}

func (s *Server) openaiEmbeddings(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	f := readObject(body, "input", "model", "encoding_format", "dimensions", "input_type", "task", "embedding_type", "encoding_type")
	f.noTokenIDs("input")
	texts := f.texts("input", bounds{s.cfg.MaxItems, s.cfg.Settings.MaxItems}, true)
	name := f.optText("model")
	format := encoding(f)
	inputType := f.choice("input_type", "", inputTypeNames...)
	if task := f.choice("task", "", jinaTaskNames...); inputType == "" {
		inputType = jinaTasks[task]
	}
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
	x.item = itemOf("input", f.raw("input")[0] == '"')
	e, err := x.embed(m, inference.EmbedRequest{
		Texts:      texts,
		Prompt:     m.prompt(inputTypes[inputType]),
		Truncation: inference.Truncation{Refuse: !s.cfg.Truncate},
	})
	if err != nil {
		return err
	}
	shorten(e, dim, true)

	b := make([]byte, 0, answerBytes(256+len(texts)*(64+vectorBytes*e.Dim)))
	b = append(b, `{"object":"list","data":[`...)
	for i := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"object":"embedding","index":`...)
		b = appendInt(b, i)
		b = append(b, `,"embedding":`...)
		if format == "base64" {
			b = appendBase64(b, e.Row(i))
		} else {
			b = appendVector(b, e.Row(i))
		}
		b = append(b, '}')
		if b, err = x.spill(b); err != nil {
			return err
		}
	}
	b = append(b, `],"model":`...)
	b = appendString(b, m.info.ID)
	b = appendUsage(b, e.Usage)
	b = append(b, '}')
	x.send(200, b)
	return nil
}

// appendUsage appends the members `usage` and, where items were cut, `truncated` with their positions.
func appendUsage(b []byte, u inference.Usage) []byte {
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = appendInt(b, u.Tokens)
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, u.Tokens)
	b = append(b, '}')
	if len(u.Cut) > 0 {
		b = append(b, `,"truncated":`...)
		b = appendInts(b, u.Cut)
	}
	return b
}

func (s *Server) listModels(x *exchange) error {
	models, p, reason := s.life.now()
	if p == phaseStarting {
		return s.refusePhase(p, reason)
	}
	b := append(make([]byte, 0, 512), `{"object":"list","data":[`...)
	for i, m := range models {
		if m.unlisted {
			break // they come last
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendModel(b, m, isDefault(models, i))
	}
	x.send(200, append(b, "]}"...))
	return nil
}

func (s *Server) showModel(x *exchange) error {
	models, p, reason := s.life.now()
	if p == phaseStarting {
		return s.refusePhase(p, reason)
	}
	name, err := url.PathUnescape(x.param) // clients differ in whether they escape the id's slash
	if err != nil {
		name = x.param
	}
	if at := place(models, name); at >= 0 {
		x.send(200, s.appendModel(nil, models[at], isDefault(models, at)))
		return nil
	}
	x.models = models
	return refuse(kindModel, "model", "model %s is not loaded; loaded here: %s", strconv.Quote(clip(name)), x.loadedIDs(""))
}

// appendModel appends an entry of /v1/models. Only embedders have dimensions.
func (s *Server) appendModel(b []byte, m loaded, isDefault bool) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, m.info.ID)
	b = append(b, `,"object":"model","created":`...)
	b = appendInt(b, int(max(0, m.info.Created.Unix())))
	b = append(b, `,"owned_by":`...)
	b = appendString(b, owner(cmp.Or(m.info.Source, m.info.ID)))
	b = append(b, `,"kind":`...)
	b = appendString(b, string(m.info.Kind))
	b = strconv.AppendBool(append(b, `,"default":`...), isDefault)
	b = append(b, `,"max_tokens":`...)
	b = appendInt(b, m.maxTokens(s.cfg.MaxTokens))
	if m.info.Kind == inference.KindEmbedder {
		b = append(b, `,"dimensions":`...)
		b = appendInt(b, m.info.Dimensions)
	}
	b = append(b, `,"languages":[`...)
	for i, l := range m.info.Languages {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, l)
	}
	b = append(b, ']')
	return append(b, '}')
}
