package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ragate/inference"
)

// KServe's Open Inference Protocol, version 2, over HTTP: /v2, /v2/health/*, and /v2/models/M[/versions/V][/ready|/infer]. Texts go in as
// tensors of datatype BYTES, vectors and scores come out as FP32. Tensors are JSON: the binary extension is not spoken, and said so.

const (
	kserveVersion  = "1"           // of every model: one is loaded at a time, by its revision
	kservePlatform = "onnx_onnxv1" // the protocol's word for a model in ONNX
	kservePattern  = "/v2/models/*"
	maxTensors     = 16 // inputs or outputs that a request may list; models here take at most two
	pairGroups     = 16 // queries of one request whose documents are scored at the same time
)

// binaryHeader is what a request with tensors behind its JSON is known by.
const binaryHeader = "Inference-Header-Content-Length"

func (s *Server) kserveServer(x *exchange) error {
	b := appendString([]byte(`{"name":"ragate","version":`), s.cfg.Version)
	x.send(http.StatusOK, append(b, `,"extensions":[]}`...))
	return nil
}

func (s *Server) kserveLive(x *exchange) error {
	x.send(http.StatusOK, []byte(`{"live":true}`))
	return nil
}

func (s *Server) kserveReady(x *exchange) error {
	_, p, reason := s.life.now()
	if p != phaseReady {
		return s.refusePhase(p, reason)
	}
	x.send(http.StatusOK, []byte(`{"ready":true}`))
	return nil
}

// modelPath is what stands behind /v2/models/.
type modelPath struct {
	model   string
	version string // "" where none is named
	action  string // "" (metadata), "ready" or "infer"
}

// parseModelPath reads a path such as org/name/versions/1/infer. Ids hold slashes, escaped or not, so an id is read from the right; one
// that is loaded is itself, whatever its last word means elsewhere.
func parseModelPath(path string, loaded func(name string) bool) modelPath {
	p := modelPath{model: path}
	if loaded(p.model) {
		return p
	}
	for _, action := range []string{"ready", "infer"} {
		if name, ok := strings.CutSuffix(p.model, "/"+action); ok {
			p.model, p.action = name, action
			break
		}
	}
	if i := strings.LastIndex(p.model, "/versions/"); i >= 0 && !loaded(p.model) && !strings.Contains(p.model[i+len("/versions/"):], "/") {
		p.model, p.version = p.model[:i], p.model[i+len("/versions/"):]
	}
	return p
}

// kserveModel serves all that lies below /v2/models/.
func (s *Server) kserveModel(x *exchange) error {
	models, phase, reason := s.life.now()
	path, err := url.PathUnescape(x.param) // clients differ in whether they escape the id's slash
	if err != nil {
		path = x.param
	}
	p := parseModelPath(path, func(name string) bool {
		return place(models, name) >= 0
	})
	if p.action != "" {
		x.route += "/" + p.action // probes and work are told apart in the metrics
	}
	allow := "OPTIONS, GET, HEAD"
	if p.action == "infer" {
		allow = "OPTIONS, POST"
	}
	switch method := x.r.Method; {
	case method == http.MethodOptions:
		x.w.Header().Set("Allow", allow)
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	case !slices.Contains(strings.Split(allow, ", "), method):
		x.w.Header().Set("Allow", allow)
		return x.refuseMethod()
	case p.action == "infer":
		return s.working(func(x *exchange) error { return s.kserveInfer(x, p) })(x)
	case phase == phaseStarting || phase == phaseDraining && p.action == "ready":
		return s.refusePhase(phase, reason)
	}
	x.models = models
	m, err := x.named(p)
	if err != nil {
		return err
	}
	b := appendString([]byte(`{"name":`), m.info.ID)
	if p.action == "ready" {
		x.send(http.StatusOK, append(b, `,"ready":true}`...))
		return nil
	}
	b = append(b, `,"versions":["`+kserveVersion+`"],"platform":"`+kservePlatform+`","inputs":[`...)
	if m.info.Kind == inference.KindReranker {
		b = append(b, `{"name":"query","datatype":"BYTES","shape":[-1]},{"name":"documents","datatype":"BYTES","shape":[-1]}],`+
			`"outputs":[{"name":"score","datatype":"FP32","shape":[-1]}]}`...)
	} else {
		b = append(b, `{"name":"text","datatype":"BYTES","shape":[-1]}],"outputs":[{"name":"embedding","datatype":"FP32","shape":[-1,`...)
		b = append(appendInt(b, m.info.Dimensions), "]}]}"...)
	}
	x.send(http.StatusOK, b)
	return nil
}

// named finds the model of a path among those loaded.
func (x *exchange) named(p modelPath) (loaded, error) {
	for _, m := range x.models {
		if !m.is(p.model) {
			continue
		}
		if p.version != "" && p.version != kserveVersion {
			return loaded{}, refuse(kindModel, "", "model %s has no version %s, only %s", strconv.Quote(m.info.ID), strconv.Quote(clip(p.version)), strconv.Quote(kserveVersion))
		}
		return m, nil
	}
	return loaded{}, refuse(kindModel, "", "model %s is not loaded; loaded here: %s", strconv.Quote(clip(p.model)), x.loadedIDs(""))
}

// kserveInfer is POST /v2/models/M/infer.
func (s *Server) kserveInfer(x *exchange, p modelPath) error {
	m, err := x.named(p)
	if err != nil {
		return err
	}
	if x.r.Header.Get(binaryHeader) != "" {
		return refuse(kindBody, "", "the request has tensors in binary form (header %s), which this server does not read: send their `data` as JSON (tritonclient: binary_data=False)", binaryHeader)
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	f := readObject(body, "id", "inputs", "outputs", "parameters")
	id := f.optText("id")
	in := f.optObject("parameters", slices.Concat([]string{"normalize", "input_type", "dimensions", "raw_scores", "max_tokens_per_doc"}, truncationFields)...)
	params := inferParameters{
		normalize: in.flag("normalize", true),
		inputType: in.choice("input_type", "", inputTypeNames...),
		dim:       in.count("dimensions", m.info.Dimensions),
		raw:       in.flag("raw_scores", false),
		perDoc:    in.count("max_tokens_per_doc", 0),
		trunc:     s.truncation(in),
	}
	if err := firstBad(f, in); err != nil {
		return err
	}
	answer := s.kserveEmbed
	if m.info.Kind == inference.KindReranker {
		answer = s.kserveRerank
	}
	b := appendString(append(make([]byte, 0, 1024), `{"model_name":`...), m.info.ID)
	b = append(b, `,"model_version":"`+kserveVersion+`"`...)
	if f.has("id") {
		b = appendMember(b, "id", id)
	}
	if b, err = answer(x, m, f, params, b); err != nil {
		return err
	}
	x.send(http.StatusOK, append(b, "]}]}"...))
	return nil
}

// inferParameters are the `parameters` of a request. All are read whatever the model, which uses those that mean something to its kind.
type inferParameters struct {
	normalize bool // embedders
	inputType string
	dim       int
	raw       bool // rerankers
	perDoc    int
	trunc     inference.Truncation
}

// kserveEmbed appends the output tensor of an embedder up to the end of its data.
func (s *Server) kserveEmbed(x *exchange, m loaded, f *fields, p inferParameters, b []byte) ([]byte, error) {
	in := f.tensors(bounds{s.cfg.MaxItems, s.cfg.Settings.MaxItems}, "text")
	f.outputs("embedding")
	if f.bad != nil {
		return nil, f.bad
	}
	texts := in["text"]
	if texts == nil {
		return nil, refuse(kindField, "inputs", "`inputs` has no tensor `text`: it is required")
	}
	x.item = itemOf("text", false)
	e, err := x.embed(m, inference.EmbedRequest{Texts: texts, Prompt: m.prompt(inputTypes[p.inputType]), SkipNormalize: !p.normalize, Truncation: p.trunc})
	if err != nil {
		return nil, err
	}
	shorten(e, p.dim, p.normalize)
	b = slices.Grow(b, answerBytes(128+len(texts)*vectorBytes*e.Dim))
	b = append(b, `,"outputs":[{"name":"embedding","datatype":"FP32","shape":[`...)
	b = append(appendInt(b, len(texts)), ',')
	b = append(appendInt(b, e.Dim), `],"data":[`...)
	for i, v := range e.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFloat32(b, v)
		if b, err = x.spill(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// kserveRerank appends the output tensor of a reranker up to the end of its data: a score for each document, in the caller's order.
func (s *Server) kserveRerank(x *exchange, m loaded, f *fields, p inferParameters, b []byte) ([]byte, error) {
	in := f.tensors(bounds{s.cfg.MaxDocuments, s.cfg.Settings.MaxDocuments}, "query", "documents", "text")
	f.outputs("score")
	if f.bad != nil {
		return nil, f.bad
	}
	queries, docs, name := in["query"], in["documents"], "documents"
	if docs == nil {
		docs, name = in["text"], "text"
	}
	switch {
	case queries == nil:
		return nil, refuse(kindField, "inputs", "`inputs` has no tensor `query`: it is required")
	case docs == nil:
		return nil, refuse(kindField, "inputs", "`inputs` has no tensor `documents` (or `text`): it is required")
	case in["documents"] != nil && in["text"] != nil:
		return nil, refuse(kindConflict, "inputs", "`inputs` has both `documents` and `text`, which mean the same: send one")
	case len(queries) != 1 && len(queries) != len(docs):
		return nil, refuse(kindField, "inputs", "`query` has %d texts and `%s` %d: send one query for all of them, or as many", len(queries), name, len(docs))
	}
	x.item = itemOf(name, false)
	scores, err := x.rerankPairs(m, queries, inference.RerankRequest{Documents: docs, MaxTokensPerDoc: p.perDoc, Truncation: p.trunc})
	if err != nil {
		return nil, err
	}
	b = append(b, `,"outputs":[{"name":"score","datatype":"FP32","shape":[`...)
	b = append(appendInt(b, len(docs)), `],"data":[`...)
	for i, logit := range scores.Logits {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendScore(b, logit, p.raw)
	}
	return b, nil
}

// rerankPairs scores each document against the query at its place, or against the only one. Documents of equal queries go to the model
// together. The first failure ends the rest, and the request has failed whole.
func (x *exchange) rerankPairs(m loaded, queries []string, req inference.RerankRequest) (*inference.Scores, error) {
	places := map[string][]int{}
	var distinct []string
	for i, q := range queries {
		if places[q] == nil {
			distinct = append(distinct, q)
		}
		places[q] = append(places[q], i)
	}
	if len(distinct) == 1 {
		req.Query = distinct[0]
		return x.rerank(m, req)
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		slots = make(chan struct{}, pairGroups)
		first error
		whole = &inference.Scores{Logits: make([]float32, len(queries))}
	)
	for _, q := range distinct {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil { // here nobody else would: it is one request's fault, not the server's
					mu.Lock()
					first = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
					mu.Unlock()
					cancel()
				}
				<-slots
			}()
			at := places[q]
			group := *x // of its own: a call leaves its figures in it
			group.r = x.r.WithContext(ctx)
			part := req
			part.Query, part.Documents = q, make([]string, len(at))
			for j, i := range at {
				part.Documents[j] = req.Documents[i]
			}
			s, err := group.rerank(m, part)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && first == nil:
				first = atPlaces(err, at)
				cancel()
			case err == nil:
				for j, i := range at {
					whole.Logits[i] = s.Logits[j]
				}
				for _, j := range s.Usage.Cut {
					whole.Usage.Cut = append(whole.Usage.Cut, at[j])
				}
				whole.Usage.Tokens += s.Usage.Tokens
				whole.Timing.Tokenize = max(whole.Timing.Tokenize, s.Timing.Tokenize)
				whole.Timing.Queue = max(whole.Timing.Queue, s.Timing.Queue)
				whole.Timing.Inference = max(whole.Timing.Inference, s.Timing.Inference)
			}
		})
	}
	wg.Wait()
	x.model, x.items = m.info.ID, len(queries)
	x.asked(distinct...)
	if first != nil {
		return nil, first
	}
	slices.Sort(whole.Usage.Cut)
	x.usage, x.timing = whole.Usage, whole.Timing
	return whole, nil
}

// atPlaces gives an error about an item of a group the item's place in the request.
func atPlaces(err error, at []int) error {
	var long *inference.TooLongError
	var row *inference.RowError
	switch {
	case errors.As(err, &long):
		e := *long
		e.Item = at[e.Item]
		return &e
	case errors.As(err, &row):
		e := *row
		e.Item = at[e.Item]
		return &e
	}
	return err
}

// tensors reads `inputs` and returns the texts of each by its name; which ones must be there is for the caller to say.
func (f *fields) tensors(b bounds, names ...string) map[string][]string {
	out := map[string][]string{}
	f.objects("inputs", f.required("inputs"), func(i int, item []byte) {
		t := readObject(item, "name", "datatype", "shape", "data")
		t.prefix, t.foreign = fmt.Sprintf("inputs[%d].", i), ""
		name := t.text("name")
		if t.bad == nil && !slices.Contains(names, name) {
			t.refuse(kindField, "name", "is %s: this model takes %s", quote(name), quoteNames(names))
		}
		if t.bad == nil && out[name] != nil {
			t.refuse(kindConflict, "name", "is %s, as that of an earlier tensor", quote(name))
		}
		if kind := t.text("datatype"); t.bad == nil && kind != "BYTES" {
			t.refuse(kindField, "datatype", "is %s: texts are tensors of datatype BYTES", quote(kind))
		}
		shape := t.shape(b)
		texts := t.data(shape, b)
		if t.bad != nil {
			f.bad = t.bad
			return
		}
		out[name] = texts
	})
	return out
}

// outputs checks `outputs`, the tensors that a request wants; a model here has one, which absence and an empty list ask for too.
func (f *fields) outputs(name string) {
	if !f.has("outputs") {
		return
	}
	if raw := f.raw("outputs"); raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return
	}
	f.objects("outputs", f.raw("outputs"), func(i int, item []byte) {
		o := readObject(item, "name")
		o.prefix, o.foreign = fmt.Sprintf("outputs[%d].", i), ""
		if v := o.text("name"); o.bad == nil && v != name {
			o.refuse(kindField, "name", "is %s: this model's output is `%s`", quote(v), name)
		}
		f.bad = o.bad
	})
}

// objects reads a list of at most maxTensors objects; nil is a list that was refused.
func (f *fields) objects(name string, raw []byte, read func(i int, item []byte)) {
	if raw == nil || f.bad != nil {
		return
	}
	if raw[0] != '[' {
		f.refuse(kindField, name, "must be a list of tensors, not %s", typeName(raw))
		return
	}
	n := 0
	s := scanner{data: raw}
	_ = s.array(0, func(item []byte) { // checked by the scan of the whole body
		switch {
		case f.bad != nil:
		case n == maxTensors:
			f.refuse(kindTooMany, name, "has more than %d tensors, the limit", maxTensors)
		case item[0] != '{':
			f.refuse(kindField, fmt.Sprintf("%s[%d]", name, n), "must be an object that describes a tensor, not %s", typeName(item))
		default:
			read(n, item)
		}
		n++
	})
	if n == 0 {
		f.refuse(kindEmpty, name, "is an empty list: it must hold at least one tensor")
	}
}

// shape reads the shape of a tensor of texts: [n], or [n,1] as some clients write a column.
func (f *fields) shape(b bounds) []int {
	raw := f.required("shape")
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		f.refuse(kindField, "shape", "must be a list of whole numbers, not %s", typeName(raw))
		return nil
	}
	var dims []int
	s := scanner{data: raw}
	_ = s.array(0, func(item []byte) {
		n, whole := int64(0), false
		if typeName(item) == "a number" {
			n, whole = wholeNumber(item)
		}
		if !whole || n < 0 {
			f.refuse(kindField, "shape", "holds %s: it must be whole numbers of at least 0", given(clip(string(item))))
			n = 0
		}
		dims = append(dims, int(min(n, math.MaxInt32)))
	})
	switch {
	case f.bad != nil:
	case len(dims) == 0 || len(dims) > 2 || len(dims) == 2 && dims[1] != 1:
		f.refuse(kindField, "shape", "is %s: a tensor of texts is [n] or [n,1]", clip(string(raw)))
	case dims[0] == 0:
		f.refuse(kindEmpty, "shape", "is %s: it must hold at least one text", clip(string(raw)))
	case dims[0] > b.max:
		f.refuse(kindTooMany, "shape", "has %d items, the limit is %d: send fewer, or raise %s", dims[0], b.max, b.setting)
	}
	return dims
}

// data reads the texts of a tensor in row-major order, flat or nested as its shape says.
func (f *fields) data(shape []int, b bounds) []string {
	raw := f.required("data")
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		f.refuse(kindField, "data", "must be a list of strings, not %s", typeName(raw))
		return nil
	}
	texts := make([]string, 0, shape[0])
	n := 0
	s := scanner{data: raw}
	_ = s.array(0, func(item []byte) {
		at := "data[" + strconv.Itoa(n) + "]"
		n++
		if n > shape[0] || f.bad != nil {
			return
		}
		if item[0] == '[' && len(shape) == 2 {
			cells := 0
			inner := scanner{data: item}
			_ = inner.array(0, func(cell []byte) { cells, item = cells+1, cell })
			if cells != 1 {
				f.refuse(kindField, at, "has %d items, its row of the shape has 1", cells)
				return
			}
			at += "[0]"
		}
		if item[0] != '"' {
			f.refuse(kindField, at, "must be a string, not %s", typeName(item))
			return
		}
		texts = append(texts, unquote(item))
	})
	if f.bad == nil && n != shape[0] {
		f.refuse(kindField, "data", "has %d items, the shape says %d", n, shape[0])
	}
	return texts
}
