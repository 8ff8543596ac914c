package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"ragate/gates"
	"ragate/gates/policy"
	"ragate/gates/quality"
	"ragate/gates/semantic"
	"ragate/inference"
)

// The two gates: POST /v1/gate/query and /v1/gate/chunks. A gate must never break the RAG behind it: what fails inside is answered with 200
// on the safe side, and says so. Bad requests are refused as elsewhere, and unknown fields too, since a misspelt setting would have no effect.

// Gates is what decides, by the policies' names. One is called policy.DefaultName.
type Gates struct {
	Query  map[string]*gates.QueryGate
	Chunks map[string]*gates.ChunkGate

	// Embedder and Reranker are the ids of the models that they use; "": the query gate decides by patterns alone, and there is no chunk gate.
	Embedder, Reranker string

	// Reload reads the reference queries again and swaps them in one step; on an error the old ones stay. nil: there is nothing to reload.
	Reload func(context.Context) (ReferenceSet, error)
}

// ReferenceSet describes the reference queries in use.
type ReferenceSet struct {
	Version, Fingerprint   string
	References, Categories int
}

// chunkMargin is what of a budget is kept for deciding and encoding, and for the last batch being a little later than estimated.
const chunkMargin = 4 * time.Millisecond

// named finds a policy's gate. "" is the default.
func named[G any](of map[string]G, name string) (G, error) {
	if name == "" {
		name = policy.DefaultName
	}
	if g, ok := of[name]; ok {
		return g, nil
	}
	var names []string
	for n := range of {
		names = append(names, n)
	}
	slices.Sort(names)
	known := "none"
	if len(names) > 0 {
		known = quoteAll(names)
	}
	var none G
	return none, refuse(kindPolicy, "policy", "`policy` %s is not loaded; loaded here: %s", quote(name), known)
}

// budget is when the answer must be there.
func (x *exchange) budget(f *fields) time.Duration {
	if ms := f.count("budget_ms", math.MaxInt32); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return x.s.cfg.Budget
}

func (s *Server) gateQuery(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return x.queryWithoutRoom(err)
	}
	f := readOnly(body, "", "query", "history", "memory_node_id", "return_history", "explain", "budget_ms", "policy")
	query := f.text("query")
	history := f.history("history")
	memory := f.optText("memory_node_id")
	withHistory := f.flag("return_history", false)
	explain := f.flag("explain", true)
	budget := x.budget(f)
	name := f.optText("policy")
	if f.bad != nil {
		return f.bad
	}
	g, err := named(x.gates.Query, name)
	if err != nil {
		return err
	}
	if err := x.holdEcho(body, withHistory); err != nil {
		return x.queryWithoutRoom(err)
	}
	ctx, cancel := context.WithDeadline(inference.WithClient(x.r.Context(), x.client()), x.begun.Add(budget))
	defer cancel()
	x.asked(query)
	began := time.Now()
	d := g.Decide(ctx, gates.QueryRequest{Text: query, History: history})
	x.traceQuery(&d, began, time.Now())
	if x.r.Context().Err() != nil {
		return context.Canceled
	}
	if d.Err != nil && s.cfg.RefuseOnOverload && isOverload(d.Err) {
		return d.Err
	}
	if memory != "" {
		d.Chain = append([]string{"memory: this server keeps no conversations"}, d.Chain...)
	}
	x.used(d.Model)
	x.stages = [2]stageTime{{"pattern", d.Times.Pattern}, {"similarity", d.Times.Similarity}}
	x.account(&d)
	if !explain { // the decision, its reason and what made it stay; the evidence goes
		d.Pattern, d.Semantic, d.Chain = nil, nil, nil
	}
	x.send(200, appendQueryDecision(make([]byte, 0, 1024), &d, x.gates.Embedder, history, withHistory))
	return nil
}

// queryWithoutRoom answers a turn that finds no room in memory as one that finds none in the queue: on the safe side, for which nothing of
// the body need be known. Other errors, and this one where overload is to be refused, come back. The chunk gate has no such answer: its
// safe side is the caller's chunks, for which there is no room either, and an answer without them would lose them.
func (x *exchange) queryWithoutRoom(err error) error {
	var r *refusal
	if !errors.As(err, &r) || r.kind != kindMemory || x.s.cfg.RefuseOnOverload {
		return err
	}
	g, missing := named(x.gates.Query, "")
	if missing != nil {
		return err
	}
	x.drain()
	d := g.Undecided("other requests hold too much memory for this one", err)
	d.Times.Total = time.Since(x.begun)
	x.account(&d)
	x.send(200, appendQueryDecision(make([]byte, 0, 512), &d, x.gates.Embedder, nil, false))
	return nil
}

// account leaves a decision on a turn for the log and the metrics.
func (x *exchange) account(d *gates.QueryDecision) {
	x.log = append(x.log, slog.String("policy", d.Policy.Name), slog.String("stage", string(d.Stage)), slog.Bool("retrieval_bypassed", !d.NeedsRetrieval))
	if d.Err != nil {
		x.log = append(x.log, slog.String(stageError, d.Err.Error()))
	}
	x.s.metrics.gateQuery(x, *d)
}

// used leaves a gate's call on a model for the headers, the log and the metrics.
func (x *exchange) used(u gates.ModelUse) {
	x.model, x.items = u.Model, u.Items
	x.usage = inference.Usage{Tokens: u.Tokens, Cut: u.Cut, Reused: u.Reused, Similar: u.Similar}
	x.timing = inference.Timing{Tokenize: u.Tokenize, Queue: u.Queue, Inference: u.Inference}
}

// reloadReferences is POST /v1/gate/references/reload. It takes no body.
func (s *Server) reloadReferences(x *exchange) error {
	if x.gates.Reload == nil {
		return refuse(kindRoute, "", "this server has no reference queries to reload")
	}
	set, err := s.reload(x.r.Context(), x.gates)
	if isOverload(err) || errors.Is(err, inference.ErrClosed) || x.r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return err // nothing about the references
	}
	if err != nil {
		r := refuse(kindField, "", "the references were not reloaded, the old ones stay in use: %s", err)
		r.cause = err
		return r
	}
	x.log = append(x.log, slog.String("references_version", set.Version), slog.Int("references", set.References))
	b := appendString(append(make([]byte, 0, 256), `{"version":`...), set.Version)
	b = appendMember(b, "fingerprint", set.Fingerprint)
	b = appendInt(append(b, `,"references":`...), set.References)
	b = appendInt(append(b, `,"categories":`...), set.Categories)
	x.send(200, append(b, '}'))
	return nil
}

// stageError is the log's key for why a stage failed.
const stageError = "stage_error"

// ReloadReferences reads the reference queries again, as POST /v1/gate/references/reload does: for a signal. Before the server is ready there
// are none, which is an error.
func (s *Server) ReloadReferences(ctx context.Context) (ReferenceSet, error) {
	g := s.life.offered().Gates
	if g.Reload == nil {
		return ReferenceSet{}, errors.New("this server has no reference queries to reload")
	}
	return s.reload(ctx, g)
}

func (s *Server) reload(ctx context.Context, g Gates) (ReferenceSet, error) {
	set, err := g.Reload(ctx)
	s.Reloaded("references", err)
	return set, err
}

// Reloaded counts a reload of what the server was started with, named by a word.
func (s *Server) Reloaded(what string, err error) { s.metrics.reloaded(what, err) }

func isOverload(err error) bool {
	var o *inference.OverloadedError
	return errors.As(err, &o)
}

func appendQueryDecision(b []byte, d *gates.QueryDecision, embedder string, history []gates.Turn, withHistory bool) []byte {
	b = append(b, `{"needs_retrieval":`...)
	b = strconv.AppendBool(b, d.NeedsRetrieval)
	b = append(b, `,"retrieval_bypassed":`...)
	b = strconv.AppendBool(b, !d.NeedsRetrieval)
	b = appendMember(b, "stage", string(d.Stage))
	b = appendMember(b, "reason", d.Reason)
	if p := d.Pattern; p != nil {
		b = append(b, `,"pattern":{"rule":`...)
		b = appendString(b, p.Rule)
		b = appendMember(b, "matched", p.Matched)
		b = append(b, '}')
	}
	if v := d.Semantic; v != nil {
		b = append(b, `,"semantic":{"method":`...)
		b = appendString(b, v.Method)
		for _, hit := range []struct {
			name string
			semantic.Hit
		}{{"top", v.Top}, {"runner_up", v.RunnerUp}} {
			if hit.Category == "" {
				continue // a vector that is not a number is near nothing
			}
			b = append(append(append(b, `,"`...), hit.name...), `":{"category":`...)
			b = appendString(b, hit.Category)
			b = appendMember(b, "reference", hit.Reference)
			b = appendNumber(append(b, `,"similarity":`...), hit.Similarity)
			b = append(b, '}')
		}
		b = appendNumber(append(b, `,"score":`...), v.Score)
		b = appendNumber(append(b, `,"margin":`...), v.Margin)
		b = appendNumber(append(b, `,"threshold":`...), v.Threshold)
		b = append(b, '}')
	}
	if d.Chain != nil {
		b = append(b, `,"chain":[`...)
		for i, s := range d.Chain {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, s)
		}
		b = append(b, ']')
	}
	if withHistory {
		b = append(b, `,"conversation_history":[`...)
		for i, t := range history {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"role":`...)
			b = appendString(b, t.Role)
			b = appendMember(b, "content", t.Content)
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	b = appendPolicy(b, d.Policy, "embedder", embedder)
	t, m := d.Times, d.Model
	return append(appendTimings(b, []stageTime{{"pattern", t.Pattern}, {"tokenize", m.Tokenize}, {"queue", m.Queue}, {"inference", m.Inference}, {"similarity", t.Similarity}, {"total", t.Total}}), '}')
}

func (s *Server) gateChunks(x *exchange) error {
	body, err := x.readBody()
	if err != nil {
		return err
	}
	f := readOnly(body, "", "query", "chunks", "threshold", "min_chunks", "max_chunks", "mode", "fallback", "long_chunk", "max_context_tokens",
		"return_context", "budget_ms", "return_text", "explain", "policy")
	query := f.text("query")
	chunks := f.chunks("chunks", bounds{s.cfg.MaxDocuments, s.cfg.Settings.MaxDocuments})
	o := quality.Overrides{ReturnContext: f.flag("return_context", false)}
	if v, ok := f.number("threshold"); ok {
		t := quality.Relevance(v + 0) // -0 becomes 0
		o.Threshold = &t
	}
	o.MinChunks, o.MaxChunks, o.MaxContextTokens = f.whole("min_chunks"), f.whole("max_chunks"), f.whole("max_context_tokens")
	o.Mode = optWord[quality.Mode](f, "mode")
	o.Fallback = optWord[quality.Fallback](f, "fallback")
	o.LongChunk = optWord[quality.LongChunk](f, "long_chunk")
	budget := x.budget(f)
	withText := f.flag("return_text", true)
	explain := f.flag("explain", false)
	name := f.optText("policy")
	if f.bad != nil {
		return f.bad
	}
	if len(x.gates.Chunks) == 0 && len(x.gates.Query) > 0 {
		return refuse(kindModel, "", "this server has no chunk gate: it was given no reranker for it; loaded here: %s", x.loadedIDs(""))
	}
	g, err := named(x.gates.Chunks, name)
	if err != nil {
		return err
	}
	if err := x.holdEcho(body, withText, o.ReturnContext); err != nil {
		return err
	}
	r := gates.ChunkRequest{Query: query, Chunks: make([]quality.Chunk, len(chunks)), Overrides: o, Deadline: x.begun.Add(budget - min(chunkMargin, budget/2))}
	for i, c := range chunks {
		r.Chunks[i] = quality.Chunk{Text: c.text, Similarity: c.similarity}
		if c.metadata != nil {
			r.Chunks[i].Metadata = quality.JSON(c.metadata)
		}
	}
	x.item = itemOf("chunks", false)
	x.asked(query)
	began := time.Now()
	d, err := g.Decide(inference.WithClient(x.r.Context(), x.client()), r)
	if err != nil {
		return refuseOverride(err)
	}
	x.traceChunks(&d, began, time.Now())
	if x.r.Context().Err() != nil {
		return context.Canceled
	}
	if d.Err != nil && s.cfg.RefuseOnOverload && isOverload(d.Err) {
		return d.Err
	}
	x.used(d.Model)
	x.stages[1] = stageTime{"decide", d.Deciding}
	x.log = append(x.log, slog.String("policy", d.Policy.Name), slog.Int("chunks", len(chunks)), slog.Int("chunks_returned", d.Stats.Returned),
		slog.Int("chunks_unscored", d.Stats.Unscored), slog.Bool("fallback", d.Stats.FallbackTriggered), slog.Bool("insufficient_context", d.InsufficientContext))
	if d.Err != nil {
		x.log = append(x.log, slog.String(stageError, d.Err.Error()))
	}
	s.metrics.gateChunks(x, d)
	x.send(200, appendChunkDecision(make([]byte, 0, 2048+len(body)), &d, x.gates.Reranker, chunks, withText, o.ReturnContext, explain))
	return nil
}

// refuseOverride turns a contradiction in the request into its refusal.
func refuseOverride(err error) error {
	var rng *quality.RangeError
	var choice *quality.ChoiceError
	var minMax *quality.MinMaxError
	r := &refusal{message: strings.ReplaceAll(err.Error(), "\n", "; ")} // all of them
	if errors.As(err, &choice) {                                        // which quotes the word
		r.logged = "`" + choice.Field + "` is none of the words that are known"
	}
	switch {
	case errors.As(err, &rng):
		r.kind, r.field = kindRange, rng.Field
	case choice != nil:
		r.kind, r.field = kindField, choice.Field
	case errors.As(err, &minMax):
		r.kind, r.field = kindConflict, "min_chunks"
	default:
		return err
	}
	return r
}

func appendChunkDecision(b []byte, d *gates.ChunkDecision, reranker string, chunks []chunk, withText, withContext, explain bool) []byte {
	list := func(results []quality.Result, whole bool) {
		b = append(b, '[')
		for i, r := range results {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '{')
			if id := chunks[r.Index].id; id != nil {
				b = append(append(append(b, `"id":`...), id...), ',')
			}
			b = appendInt(append(b, `"index":`...), r.Index)
			if whole {
				if withText {
					b = appendMember(b, "text", chunks[r.Index].text)
				}
				if m := chunks[r.Index].metadata; m != nil {
					b = append(append(b, `,"metadata":`...), m...)
				}
			}
			if r.Scored {
				b = appendFloat64(append(b, `,"relevance":`...), float64(r.Relevance))
				b = appendFloat32(append(b, `,"logit":`...), float32(r.Logit))
			}
			b = appendMember(b, "decision", string(r.Outcome))
			b = appendMember(b, "reason", d.Reason(r))
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	b = append(b, `{"chunks":`...)
	list(d.Chunks, true)
	if explain {
		b = append(b, `,"dropped":`...)
		list(d.Dropped, false)
	}
	b = strconv.AppendBool(append(b, `,"insufficient_context":`...), d.InsufficientContext)
	if d.InsufficientReason != "" {
		b = appendMember(b, "insufficient_reason", d.InsufficientReason)
	}
	if withContext {
		b = appendMember(b, "context", d.Context)
	}
	if d.ExpandedQuery != "" {
		b = appendMember(b, "expanded_query", d.ExpandedQuery)
	}
	s := d.Stats
	b = strconv.AppendBool(append(b, `,"metadata":{"filtered":`...), s.Filtered)
	for _, n := range []struct {
		name  string
		value int
	}{{"chunks_retrieved", s.Retrieved}, {"chunks_passed", s.Passed}, {"chunks_returned", s.Returned}, {"chunks_unscored", s.Unscored},
		{"chunks_truncated", s.Truncated}, {"cache_hits", d.Model.Reused}} {
		b = appendInt(append(append(append(b, `,"`...), n.name...), `":`...), n.value)
	}
	if n := d.Model.Similar; n > 0 {
		b = appendInt(append(b, `,"cache_similar":`...), n)
	}
	b = strconv.AppendBool(append(b, `,"fallback_triggered":`...), s.FallbackTriggered)
	if s.HasRelevance {
		b = appendFloat64(append(b, `,"avg_relevance":`...), float64(s.AvgRelevance))
		b = appendFloat64(append(b, `,"min_relevance":`...), float64(s.MinRelevance))
		b = appendFloat64(append(b, `,"max_relevance":`...), float64(s.MaxRelevance))
	}
	b = appendFloat64(append(b, `,"threshold":`...), float64(s.Threshold))
	b = appendMember(b, "query_type", string(s.QueryType))
	b = appendMember(b, "scored_by", string(s.ScoredBy))
	if d.QueryLanguage != "" {
		b = appendMember(b, "query_language", d.QueryLanguage)
	}
	if d.LanguageNote != "" {
		b = appendMember(b, "language_note", d.LanguageNote)
	}
	b = append(b, '}')
	b = appendPolicy(b, d.Policy, "reranker", reranker)
	return append(appendTimings(b, []stageTime{{"tokenize", d.Model.Tokenize}, {"queue", d.Model.Queue}, {"inference", d.Model.Inference},
		{"decide", d.Deciding}, {"total", d.Total}}), '}')
}

type stageTime struct {
	name string
	took time.Duration
}

// appendTimings appends the stages in milliseconds; a stage that did not run took no time and is left out, the total never.
func appendTimings(b []byte, stages []stageTime) []byte {
	b = append(b, `,"timings_ms":{`...)
	first := true
	for _, s := range stages {
		if s.took <= 0 && s.name != "total" {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), s.name...), `":`...)
		b = strconv.AppendFloat(b, max(0, float64(s.took)/float64(time.Millisecond)), 'f', 3, 64)
	}
	return append(b, '}')
}

// appendPolicy appends what decided: the policy, and the model that it uses, where there is one.
func appendPolicy(b []byte, p gates.PolicyRef, role, model string) []byte {
	b = append(b, `,"policy":{"name":`...)
	b = appendString(b, p.Name)
	b = appendMember(b, "fingerprint", p.Fingerprint)
	if model != "" {
		b = appendMember(b, role, model)
	}
	return append(b, '}')
}

// appendMember appends ,"name":"value".
func appendMember(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendString(b, value)
}

// appendNumber appends a number, or null for what JSON has no number for.
func appendNumber(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	return appendFloat64(b, v)
}

// chunk is one item of `chunks`, as it came. id and metadata go back as they are.
type chunk struct {
	id         []byte // JSON, nil where absent
	text       string
	similarity *float64
	metadata   []byte // JSON, nil where absent
}

// chunks reads the list of chunks, which may be empty: a retriever that found nothing is no fault of the caller's.
func (f *fields) chunks(name string, b bounds) []chunk {
	raw := f.required(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		f.refuse(kindField, name, "must be a list of objects with `text`, not %s", typeName(raw))
		return nil
	}
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return []chunk{}
	}
	var out []chunk
	f.list(name, raw, b, func(i int, item []byte) string {
		at := fmt.Sprintf("%s[%d]", name, i)
		if item[0] != '{' {
			f.refuse(kindField, at, "must be an object with `text`, not %s", typeName(item))
			return ""
		}
		c := readOnly(item, f.prefix+at+".", "id", "text", "similarity", "metadata")
		one := chunk{text: c.text("text")}
		if id := c.raw("id"); id != nil && id[0] != 'n' {
			if t := typeName(id); t != "a string" && t != "a number" {
				c.refuse(kindField, "id", "must be a string or a number, not %s", t)
			}
			one.id = repaired(id)
		}
		if v, ok := c.number("similarity"); ok {
			one.similarity = &v
		}
		if m := c.raw("metadata"); m != nil && m[0] != 'n' {
			if m[0] != '{' {
				c.refuse(kindField, "metadata", "must be an object, not %s", typeName(m))
			}
			one.metadata = repaired(m)
		}
		if c.bad != nil && f.bad == nil {
			f.bad = c.bad
		}
		out = append(out, one)
		return ""
	})
	return out
}

// repaired returns a checked value that goes back to the caller, with U+FFFD for each half of a surrogate pair: no UTF-8 can hold one, and
// strict readers refuse a whole answer for it. All else stays as it was written; raw is not changed.
func repaired(raw []byte) []byte {
	const escape = len(`\uXXXX`)
	out := raw
	for i := 0; i < len(raw)-1; {
		switch {
		case raw[i] != '\\':
			i++
			continue
		case raw[i+1] != 'u':
			i += 2
			continue
		}
		r, next := hex4(raw[i+2:]), raw[i+escape:]
		switch {
		case !utf16.IsSurrogate(r):
		case bytes.HasPrefix(next, []byte(`\u`)) && utf16.DecodeRune(r, hex4(next[2:])) != utf8.RuneError:
			i += escape
		default:
			if &out[0] == &raw[0] {
				out = bytes.Clone(raw)
			}
			copy(out[i:], `\ufffd`)
		}
		i += escape
	}
	return out
}

// maxHistory bounds the turns of a conversation; the gate looks at the last ones.
const maxHistory = 1000

// history reads an optional list of turns.
func (f *fields) history(name string) []gates.Turn {
	if !f.has(name) {
		return nil
	}
	raw := f.raw(name)
	if raw[0] != '[' {
		f.refuse(kindField, name, "must be a list of objects with `role` and `content`, not %s", typeName(raw))
		return nil
	}
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return nil
	}
	var out []gates.Turn
	f.list(name, raw, bounds{max: maxHistory}, func(i int, item []byte) string {
		at := fmt.Sprintf("%s[%d]", name, i)
		if item[0] != '{' {
			f.refuse(kindField, at, "must be an object with `role` and `content`, not %s", typeName(item))
			return ""
		}
		t := readOnly(item, f.prefix+at+".", "role", "content")
		out = append(out, gates.Turn{Role: t.text("role"), Content: t.text("content")})
		if t.bad != nil && f.bad == nil {
			f.bad = t.bad
		}
		return ""
	})
	return out
}

// number reads an optional number; false where absent.
func (f *fields) number(name string) (float64, bool) {
	if !f.has(name) {
		return 0, false
	}
	raw := f.raw(name)
	if t := typeName(raw); t != "a number" {
		f.refuse(kindField, name, "must be a number, not %s", t)
		return 0, false
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		f.refuse(kindRange, name, "is %s: no number of 64 bits is that large", clip(string(raw)))
		return 0, false
	}
	return v, true
}

// whole reads an optional whole number of any size; nil where absent.
func (f *fields) whole(name string) *int {
	if !f.has(name) {
		return nil
	}
	raw := f.raw(name)
	if t := typeName(raw); t != "a number" {
		f.refuse(kindField, name, "must be a whole number, not %s", t)
		return nil
	}
	n, ok := wholeNumber(raw)
	if !ok || n > math.MaxInt32 || n < math.MinInt32 {
		f.refuse(kindRange, name, "is %s: it must be a whole number within 32 bits", clip(string(raw)))
		return nil
	}
	v := int(n)
	return &v
}

// optWord reads an optional string of a type of its own; which words are allowed is checked where they mean something.
func optWord[T ~string](f *fields, name string) *T {
	if !f.has(name) {
		return nil
	}
	v := T(clip(f.text(name))) // what is longer is no word, and would be repeated in the refusal
	return &v
}

// readOnly is readObject for bodies in which an unknown field is refused. prefix is the place of an object inside the body.
func readOnly(body []byte, prefix string, names ...string) *fields {
	f := readObject(body, names...)
	f.prefix = prefix
	if prefix != "" {
		f.foreign = "" // a hint about whole bodies
	}
	if f.bad != nil {
		return f
	}
	_, _ = scanObject(body, func(key, _ []byte) { // checked by readObject
		if name := unquote(key); !slices.Contains(names, name) {
			if f.bad == nil {
				f.bad = refuse(kindField, f.prefix+clip(name), "`%s%s` is unknown; this object may have %s", f.prefix, given(clip(name)), quoteNames(names))
			}
		}
	})
	return f
}
