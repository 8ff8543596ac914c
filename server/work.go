package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ragate/inference"
)

// The calls on models that all dialects share. Each leaves in the exchange what the log line and the metrics say of it.

// interactiveBytes is the longest text that counts as somebody waiting for a single query's vector; about 200 tokens.
const interactiveBytes = 1024

// loaded is a model with what it said of itself when it was handed over.
type loaded struct {
	Model
	info     inference.Info
	unlisted bool // see Engine.Unlisted
}

func (m loaded) is(name string) bool {
	return m.info.ID == name || slices.Contains(m.info.Aliases, name)
}

// place is where the model of that id or alias stands, -1 where none does.
func place(models []loaded, name string) int {
	return slices.IndexFunc(models, func(m loaded) bool { return m.is(name) })
}

// maxTokens is the longest sequence the model is given here.
func (m loaded) maxTokens(setting int) int {
	if setting > 0 && setting < m.info.MaxTokens {
		return setting
	}
	return m.info.MaxTokens
}

// pick finds the model a request asks for: by id or alias, or the first of its kind where it names none (absent or "").
func (x *exchange) pick(kind inference.Kind, name string) (loaded, error) {
	var fits []string
	for _, m := range x.models {
		switch {
		case name != "" && m.is(name) && m.info.Kind != kind:
			return loaded{}, refuse(kindField, "model", "`model` %s is %s: this route needs %s, of which %s is loaded",
				quote(name), withArticle(m.info.Kind), withArticle(kind), x.loadedIDs(kind))
		case m.info.Kind != kind:
			continue
		case name == "" || m.is(name):
			return m, nil
		}
		fits = append(fits, m.info.ID)
	}
	if len(fits) == 0 {
		return loaded{}, refuse(kindModel, "model", "no %s is loaded, only %s", kind, x.loadedIDs(""))
	}
	return loaded{}, refuse(kindModel, "model", "`model` %s is not loaded; loaded here: %s", quote(name), quoteAll(fits))
}

// pickAny finds a model of any kind by id or alias; where none is named the first embedder, or the first model where there is none.
func (x *exchange) pickAny(name string) (loaded, error) {
	if name == "" && len(x.models) > 0 {
		if m, err := x.pick(inference.KindEmbedder, ""); err == nil {
			return m, nil
		}
		return x.models[0], nil
	}
	if at := place(x.models, name); at >= 0 {
		return x.models[at], nil
	}
	return loaded{}, refuse(kindModel, "model", "`model` %s is not loaded; loaded here: %s", quote(name), x.loadedIDs(""))
}

func withArticle(k inference.Kind) string {
	if k == inference.KindEmbedder {
		return "an " + string(k)
	}
	return "a " + string(k)
}

// loadedIDs lists the ids of a kind's models, or of all for "".
func (x *exchange) loadedIDs(kind inference.Kind) string {
	var ids []string
	for _, m := range x.models {
		if kind == "" || m.info.Kind == kind {
			ids = append(ids, m.info.ID)
		}
	}
	if len(ids) == 0 {
		return "none"
	}
	return quoteAll(ids)
}

// prompt resolves the meaning of a text (query or passage) to the name the model has for its prefix; "" where it has none.
func (m loaded) prompt(meaning string) string {
	names := []string{meaning}
	if meaning == "passage" {
		names = append(names, "document")
	}
	for _, name := range names {
		if _, ok := m.info.Prompts[name]; ok {
			return name
		}
	}
	return ""
}

// embed runs an embedding request and checks that every number of the answer is one.
func (x *exchange) embed(m loaded, req inference.EmbedRequest) (*inference.Embeddings, error) {
	req.Truncation.MaxTokens, req.Client = x.s.cfg.MaxTokens, x.client()
	if len(req.Texts) == 1 && len(req.Texts[0]) <= interactiveBytes {
		req.Lane = inference.LaneInteractive
	}
	if err := x.hold(4 * int64(len(req.Texts)) * int64(m.info.Dimensions)); err != nil {
		return nil, err
	}
	x.model, x.items = m.info.ID, len(req.Texts)
	x.asked(req.Texts...)
	e, err := m.Embed(x.r.Context(), req)
	if err != nil {
		return nil, err
	}
	if len(e.Values) != len(req.Texts)*e.Dim {
		return nil, fmt.Errorf("%s returned %d values for %d texts of %d dimensions", m.info.ID, len(e.Values), len(req.Texts), e.Dim)
	}
	if err := allFinite(e.Values, e.Dim); err != nil {
		return nil, err
	}
	x.usage, x.timing = e.Usage, e.Timing
	return e, nil
}

// rerank scores a query's documents and checks that every logit is a number.
func (x *exchange) rerank(m loaded, req inference.RerankRequest) (*inference.Scores, error) {
	req.Truncation.MaxTokens, req.Client = x.s.cfg.MaxTokens, x.client()
	x.model, x.items = m.info.ID, len(req.Documents)
	x.asked(req.Query)
	s, err := m.Rerank(x.r.Context(), req)
	if err != nil {
		return nil, err
	}
	if len(s.Logits) != len(req.Documents) {
		return nil, fmt.Errorf("%s returned %d logits for %d documents", m.info.ID, len(s.Logits), len(req.Documents))
	}
	if err := allFinite(s.Logits, 1); err != nil {
		return nil, err
	}
	x.usage, x.timing = s.Usage, s.Timing
	return s, nil
}

// allFinite names the first row of dim values that JSON could not hold. Engines report such rows themselves; this keeps the promise
// that no answer is ever invalid JSON.
func allFinite(values []float32, dim int) error {
	for i, v := range values {
		if v-v != 0 {
			return &inference.RowError{Item: i / dim, Failed: 1, Err: inference.ErrNotFinite}
		}
	}
	return nil
}

// shorten keeps the first dim values of each row, scaled to length 1 again where normalize is set. It reuses e's memory.
func shorten(e *inference.Embeddings, dim int, normalize bool) {
	if dim == 0 || dim >= e.Dim {
		return
	}
	rows := len(e.Values) / e.Dim
	for i := range rows {
		row := e.Values[i*dim : (i+1)*dim]
		copy(row, e.Values[i*e.Dim:])
		if !normalize {
			continue
		}
		var sum float64
		for _, v := range row {
			sum += float64(v) * float64(v)
		}
		if sum == 0 {
			continue // nothing is left of this vector to scale
		}
		scale := 1 / math.Sqrt(sum)
		for j, v := range row {
			row[j] = float32(float64(v) * scale)
		}
	}
	e.Dim, e.Values = dim, e.Values[:rows*dim]
}

// ranked is one document's place in an answer.
type ranked struct {
	index int
	logit float32
}

// rank orders documents best first, as [inference.Order] does. top bounds the result; 0 keeps all.
func rank(logits []float32, top int) []ranked {
	order := inference.Order(logits)
	if top > 0 && top < len(order) {
		order = order[:top]
	}
	out := make([]ranked, len(order))
	for i, at := range order {
		out[i] = ranked{at, logits[at]}
	}
	return out
}

// appendScore appends a document's relevance in 0…1, or its logit where raw.
func appendScore(dst []byte, logit float32, raw bool) []byte {
	if raw {
		return appendFloat32(dst, logit)
	}
	return appendFloat64(dst, inference.Sigmoid(logit))
}

// cosine is the dot product over the lengths of two vectors; 0 where one has no length.
func cosine(a, b []float32) float32 {
	var dot, aa, bb float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return float32(dot / math.Sqrt(aa*bb))
}

// itemOf names position i of a list field; a single text has no position.
func itemOf(field string, single bool) func(i int) string {
	return func(i int) string {
		if single {
			return "`" + field + "`"
		}
		return "`" + field + "[" + strconv.Itoa(i) + "]`"
	}
}

// vectorBytes is what a dimension takes in an answer, in bytes, for sizing buffers: -0.012345678 and a comma.
const vectorBytes = 13

// answerBytes is what to allocate for an answer of about so many bytes: a larger one is sent in pieces, of which the last item may stick out.
func answerBytes(whole int) int { return min(whole, flushBytes+flushBytes/4) }

// owner is the part of a model's id before its slash.
func owner(id string) string {
	if name, _, ok := strings.Cut(id, "/"); ok {
		return name
	}
	return "ragate"
}
