package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"ragate/inference/ort"
	"ragate/models"
	"ragate/models/graph"
	"ragate/tokenize"
)

// core is what both kinds of model have in common.
type core struct {
	engine    *Engine
	queue     int // in the scheduler and among the engine's cores
	info      Info
	plan      plan
	manifest  models.Manifest
	session   session
	streams   []runner          // all of the session's, from Start on
	free      chan runner       // those that no worker runs on; the scheduler hands out no more batches than there are streams
	config    ort.SessionConfig // of the session
	tokenizer *tokenize.Tokenizer
	head      head
	limit     int // tokens per sequence that requests are held to
	hardLimit int // that the model takes at all
	measured  Measured
}

func (c *core) shape() shape {
	return shape{pad: c.plan.pad, maxRows: c.plan.maxRows, maxCols: c.hardLimit}
}

// Model is a loaded bi-encoder or cross-encoder. Which of Embed and Rerank works is said by Info().Kind.
type Model struct{ core *core }

// LoadEmbedder puts a bi-encoder on the engine. ctx bounds the loading: it is looked at between the native calls, of which none takes
// longer than reading the model. Errors: *models.LoadError, *models.IOError, *UnavailableError, those of tokenize.Parse, ctx's.
func (e *Engine) LoadEmbedder(ctx context.Context, m models.Manifest, set Settings) (*Model, error) {
	c, err := e.load(ctx, m, models.KindEmbedder, set)
	if err != nil {
		return nil, err
	}
	return &Model{core: c}, nil
}

// LoadReranker puts a cross-encoder on the engine. Errors as LoadEmbedder's.
func (e *Engine) LoadReranker(ctx context.Context, m models.Manifest, set Settings) (*Model, error) {
	c, err := e.load(ctx, m, models.KindReranker, set)
	if err != nil {
		return nil, err
	}
	return &Model{core: c}, nil
}

func (e *Engine) load(ctx context.Context, m models.Manifest, kind models.Kind, set Settings) (*core, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if e.started {
		return nil, fmt.Errorf("model %s: the engine has started; load models before", m.ID)
	}
	m, err := m.As(kind)
	if err != nil {
		return nil, err
	}
	names := set.Names
	if len(names) == 0 {
		names = m.Names()
	}
	if err := e.checkNames(names, m.ID); err != nil {
		return nil, err
	}
	before := e.resident()
	text, err := os.ReadFile(m.TokenizerPath)
	if err != nil {
		return nil, &models.LoadError{Model: m.ID, Path: m.TokenizerPath, Reason: "the tokenizer cannot be read", Err: err}
	}
	tok, err := tokenize.ParseFile(m.TokenizerPath, text)
	if err != nil {
		return nil, &models.LoadError{Model: m.ID, Path: m.TokenizerPath, Reason: "the tokenizer cannot be used", Err: err}
	}
	if e.cfg.EscapeSpecial {
		tok = tok.EscapeSpecial()
	}
	facts, err := graph.InspectFile(m.GraphPath)
	if err != nil {
		return nil, &models.LoadError{Model: m.ID, Path: m.GraphPath, Reason: "the ONNX file cannot be read", Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, warning, err := e.placed(m)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		m.Notes = append(slices.Clone(m.Notes), warning)
	}
	inputs, outputs, err := e.cfg.Runtime.Describe(m.GraphPath)
	if err != nil {
		return nil, &models.LoadError{Model: m.ID, Path: m.GraphPath, Reason: "ONNX Runtime does not load the graph", Err: err}
	}
	binding, err := models.CheckIO(m, inputs, outputs)
	if err != nil {
		return nil, err
	}

	c := &core{engine: e, manifest: m, tokenizer: tok, hardLimit: m.MaxTokens, limit: m.MaxTokens}
	if set.MaxTokens > 0 {
		c.limit = min(c.limit, set.MaxTokens)
	}
	if special := tok.SpecialCount(kind == models.KindReranker); c.limit <= special {
		return nil, fmt.Errorf("model %s: a limit of %d tokens leaves no room beside its %d special tokens; raise --max-tokens", m.ID, c.limit, special)
	}
	c.head = head{form: binding.Form, pooling: binding.Pooling, width: binding.Dimensions, columns: binding.Columns, relevant: binding.Relevant, normalize: m.Normalize}
	if binding.Form == models.FormScores {
		c.head.width = 1
	}
	i := slices.IndexFunc(outputs, func(t models.TensorInfo) bool { return t.Name == binding.Output })
	if err := e.openSession(ctx, c, set, facts, binding, outputs[i]); err != nil {
		return nil, err
	}
	c.info = Info{
		ID: names[0], Aliases: slices.Clone(names[1:]), Source: m.ID, Kind: Kind(kind), Revision: m.Revision, SHA256: m.GraphSHA256, Created: m.Created,
		Languages: m.Languages, MaxTokens: c.limit, Prompts: m.Prompts,
		Provider: string(c.plan.provider), Precision: string(c.plan.precision), DType: facts.WeightType.String(),
		Streams: c.plan.streams, Threads: c.plan.threads, Warnings: append(slices.Clone(m.Notes), c.plan.warnings...),
	}
	if kind == models.KindEmbedder {
		c.info.Dimensions = binding.Dimensions
		c.info.Pooling = string(m.Pooling)
	}
	c.info.Fingerprint = c.fingerprint()
	c.info.Drift, c.info.Fidelity = c.measured.Drift, c.measured.Fidelity
	c.info.Memory = max(0, e.resident()-before)
	e.add(c)
	return c, nil
}

// openSession takes the first way of the plan that works. With provider `auto` the ways that fail become warnings.
func (e *Engine) openSession(ctx context.Context, c *core, set Settings, facts *graph.Facts, binding models.Binding, output models.TensorInfo) error {
	ways, out, err := plans(set, e.cfg.Machine, facts.DynamicallyQuantized, e.cfg.Runtime.Check)
	if err != nil {
		return fmt.Errorf("model %s: %w", c.manifest.ID, err)
	}
	var failed []error
	for _, w := range ways {
		if err := ctx.Err(); err != nil {
			return err
		}
		path, warning, err := e.graphFor(ctx, c.manifest, w, facts, binding)
		if err == nil {
			err = e.open(ctx, c, w, ort.SessionConfig{
				GraphPath: path, Provider: w.provider, Arithmetic: w.arithmetic, Streams: w.streams, Threads: w.threads,
				Binding: binding, Output: output, PadID: c.tokenizer.PadID(),
			})
		}
		if err == nil {
			if warning != "" {
				c.plan.warnings = append(c.plan.warnings, warning)
			}
			for _, f := range failed {
				c.plan.warnings = append(c.plan.warnings, f.Error())
			}
			return nil
		}
		if ctx.Err() != nil { // the way did not fail
			return ctx.Err()
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("model %s: %w", c.manifest.ID,
		&UnavailableError{Provider: set.Provider, Precision: set.Precision, Reasons: append(out, failed...)})
}

// open makes the session of one plan and lets it show that it computes the right thing.
func (e *Engine) open(ctx context.Context, c *core, w plan, cfg ort.SessionConfig) error {
	s, err := e.cfg.Runtime.NewSession(cfg)
	if err != nil {
		return err
	}
	c.session, c.config, c.plan = nativeSession{s}, cfg, w
	if err := c.measure(ctx); err != nil {
		return errors.Join(fmt.Errorf("%s: self-test: %w", w.provider, err), s.Close())
	}
	return nil
}

// graphFor gives the file that a plan runs: the model's own, or one rewritten from it and kept by its hash. Where it cannot be kept, it is
// made in the spare folder, and the warning says so.
func (e *Engine) graphFor(ctx context.Context, m models.Manifest, w plan, facts *graph.Facts, binding models.Binding) (path, warning string, err error) {
	type rewrite struct {
		version string
		apply   func(model []byte) ([]byte, error)
	}
	var steps []rewrite
	if w.weightOnly {
		steps = append(steps, rewrite{graph.WeightOnlyVersion, func(model []byte) ([]byte, error) {
			out, _, err := graph.WeightOnly(model)
			return out, err
		}}, rewrite{graph.UnpackVersion, func(model []byte) ([]byte, error) {
			out, _, err := graph.UnpackNarrow(model)
			return out, err
		}})
	}
	if len(facts.Outputs) > 1 { // a pooler whose output nobody reads costs time all the same
		steps = append(steps, rewrite{graph.PruneVersion + "-" + fileSafe(binding.Output), func(model []byte) ([]byte, error) {
			out, _, err := graph.PruneOutputs(model, binding.Output)
			return out, err
		}})
	}
	if len(steps) == 0 {
		return m.GraphPath, "", nil
	}
	versions := make([]string, len(steps))
	for i, s := range steps {
		versions[i] = s.version
	}
	path, warning, err = e.rewritten(m, strings.Join(versions, "+"), func(model []byte) (out []byte, err error) {
		out = model
		for _, s := range steps {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if out, err = s.apply(out); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
	var full *graph.CacheError
	if !errors.As(err, &full) {
		return path, warning, err
	}
	if !w.weightOnly { // pruning only saves time: the model's own graph computes the same
		return m.GraphPath, err.Error() + "; the model runs with its unused outputs", nil
	}
	return "", "", err
}

// rewritten gives the model's graph as apply makes it, kept in the cache's folder by its hash and version. Where it cannot be kept there, it
// is made in the spare folder, and the warning says so; a *graph.CacheError says that neither takes it.
func (e *Engine) rewritten(m models.Manifest, version string, apply func(model []byte) ([]byte, error)) (path, warning string, err error) {
	src := graph.Source{Path: m.GraphPath, SHA256: m.GraphSHA256}
	entry, err := graph.Cached(e.cfg.CacheDir, src, version, apply)
	var full *graph.CacheError
	if err == nil || !errors.As(err, &full) || e.cfg.SpareDir == "" {
		return entry.Path, "", err
	}
	entry, spare := graph.Cached(e.cfg.SpareDir, src, version, apply)
	if spare != nil {
		return "", "", errors.Join(err, spare)
	}
	return entry.Path, err.Error() + "; until then every start makes it anew, in the folder for temporary files", nil
}

// placedVersion names the graphs that are kept only to have their weights beside them.
const placedVersion = "placed-1"

// placed makes sure that the files which hold a graph's weights lie in its own folder: the runtime refuses weights that a link leads out of
// it, and the hub's cache consists of such links. They are linked anew, or copied to another disk, beside a copy of the graph, which
// without its weights is small.
func (e *Engine) placed(m models.Manifest) (models.Manifest, string, error) {
	outside := false
	for _, p := range m.ExternalData {
		st, err := os.Lstat(p)
		if err != nil {
			return m, "", &models.LoadError{Model: m.ID, Path: p, Reason: "the weights beside the graph cannot be read", Err: err}
		}
		outside = outside || st.Mode()&os.ModeSymlink != 0
	}
	if !outside {
		return m, "", nil
	}
	path, warning, err := e.rewritten(m, placedVersion, func(model []byte) ([]byte, error) { return model, nil })
	if err != nil {
		return m, "", &models.LoadError{Model: m.ID, Path: m.GraphPath, Reason: "its weights cannot be put beside the graph", Err: err}
	}
	m.GraphPath = path
	return m, warning, nil
}

// fileSafe keeps of a tensor's name what may stand in a file name.
func fileSafe(s string) string {
	out := []byte(s)
	for i, b := range out {
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '_' && b != '.' {
			out[i] = '_'
		}
	}
	return string(out)
}

// Info describes the model as it runs.
func (m *Model) Info() Info { return m.core.describe() }

func (c *core) describe() Info {
	i := c.info
	i.BatchTokens = c.engine.sched.sliceTokens(c.queue)
	return i
}

// Tokens lists the tokens of a text, uncut.
func (m *Model) Tokens(text string, special bool) []Token {
	return m.core.tokenizer.Tokens(text, special)
}

// cutLimit is the number of tokens a request's rows are held to.
func (c *core) cutLimit(t Truncation) int {
	if t.MaxTokens > 0 {
		return min(t.MaxTokens, c.limit)
	}
	return c.limit
}

// Embed computes one vector per text. Errors: *KindError, *TooLongError, *OverloadedError, *UnknownPromptError, *RowError (beside the rows that
// worked), ErrClosed, the context's.
func (m *Model) Embed(ctx context.Context, r EmbedRequest) (_ *Embeddings, err error) {
	c := m.core
	if c.info.Kind != KindEmbedder {
		return nil, &KindError{Model: c.info.ID, Kind: c.info.Kind, Wanted: KindEmbedder}
	}
	prefix, ok := c.info.Prompts[r.Prompt]
	if !ok && r.Prompt != "" {
		return nil, &UnknownPromptError{Prompt: r.Prompt, Known: sortedKeys(c.info.Prompts)}
	}
	out := &Embeddings{Dim: c.head.width}
	j := &job{ctx: ctx, queue: c.queue, lane: r.Lane, rows: make([]row, 0, len(r.Texts)), width: c.head.width, from: r.Client}
	began := time.Now()
	if rec := RecordOf(ctx); rec != nil {
		defer func() { c.record(rec, j, began, len(r.Texts), err) }()
	}
	limit := c.cutLimit(r.Truncation)
	o := tokenize.Options{MaxTokens: limit, Side: r.Truncation.Side}
	if r.Truncation.Refuse {
		o.MaxTokens = 0
	}
	keep := limit // tokens of a text that can matter: reading stops there
	if r.Truncation.Refuse || r.Truncation.Side == tokenize.Left {
		keep = math.MaxInt
	}
	err = c.onCPU(ctx, func() error {
		for i, text := range r.Texts {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			ids, more := c.tokenizer.AppendIDsLimit(nil, prefix+text, keep)
			enc, err := c.tokenizer.Single(nil, ids, o)
			if err != nil {
				return err
			}
			if r.Truncation.Refuse && len(enc.IDs) > limit {
				return &TooLongError{Item: i, Tokens: len(enc.IDs), Limit: limit}
			}
			j.add(i, enc, more, &out.Usage)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Timing.Tokenize = time.Since(began)
	if err := c.run(j, &out.Timing); err != nil {
		return nil, err
	}
	out.Values = j.values
	if c.head.normalize && !r.SkipNormalize {
		for i := range r.Texts {
			normalize(out.Row(i))
		}
	}
	if failed := j.failure(); failed != nil {
		return out, failed
	}
	return out, nil
}

// Rerank computes one logit per document. Errors as Embed's. Documents without time are no error.
func (m *Model) Rerank(ctx context.Context, r RerankRequest) (_ *Scores, err error) {
	c := m.core
	if c.info.Kind != KindReranker {
		return nil, &KindError{Model: c.info.ID, Kind: c.info.Kind, Wanted: KindReranker}
	}
	out := &Scores{}
	if r.Measure {
		out.Documents = make([]DocumentUse, len(r.Documents))
	}
	j := &job{ctx: ctx, queue: c.queue, lane: r.Lane, rows: make([]row, 0, len(r.Documents)), width: 1, deadline: r.Deadline, from: r.Client}
	var w windows
	began := time.Now()
	if rec := RecordOf(ctx); rec != nil {
		defer func() { c.record(rec, j, began, len(r.Documents), err) }()
	}
	read := 0 // documents that were tokenised before the time was up
	slot, cancel := ctx, context.CancelFunc(func() {})
	if !r.Deadline.IsZero() {
		slot, cancel = context.WithDeadline(ctx, r.Deadline)
	}
	err = c.onCPU(slot, func() (err error) {
		w, read, err = c.pairs(ctx, r, j, out)
		return err
	})
	cancel()
	if err != nil && (ctx.Err() != nil || r.Deadline.IsZero() || !errors.Is(err, context.DeadlineExceeded)) {
		return nil, err // else the deadline came before this request's turn: nothing of it is scored
	}
	out.Timing.Tokenize = time.Since(began)
	if err := c.run(j, &out.Timing); err != nil {
		return nil, err
	}
	failed := j.failure()
	out.Logits = j.values
	if rowsOf := w.rowsOf; rowsOf != nil {
		out.Logits = bestWindows(j, rowsOf, out.Documents)
		if failed != nil { // the failure names a row; its document is what the caller knows
			failed.Item, failed.Failed = documentOf(rowsOf, failed.Item), 0
		}
		for i := range read {
			errs := j.errs[rowsOf[i]:rowsOf[i+1]]
			switch {
			case !slices.ContainsFunc(errs, func(err error) bool { return err != errUnscored }):
				out.Unscored = append(out.Unscored, i)
				continue
			case slices.ContainsFunc(errs, func(err error) bool { return err != nil && err != errUnscored }):
				failed.Failed++
			}
			if slices.Contains(errs, errUnscored) {
				out.cut(i, w.unread(errs, w.tokens[i]))
				out.Partial = append(out.Partial, i)
			}
		}
	} else {
		for i, err := range j.errs {
			if err == errUnscored {
				out.Unscored = append(out.Unscored, i)
			}
		}
	}
	for i := read; i < len(r.Documents); i++ {
		out.Logits = append(out.Logits, float32(math.NaN()))
		out.Unscored = append(out.Unscored, i)
	}
	if failed != nil {
		return out, failed
	}
	return out, nil
}

// cut notes that so many tokens of document i were not read.
func (s *Scores) cut(i, tokens int) {
	if tokens == 0 {
		return
	}
	if s.Documents != nil {
		s.Documents[i].Cut = tokens
	}
	if at, found := slices.BinarySearch(s.Usage.Cut, i); !found {
		s.Usage.Cut = slices.Insert(s.Usage.Cut, at, i)
	}
}

// pairs tokenises the query once and each document once, and adds their rows to the job. It reads documents only while what it has read
// could still be scored by the deadline, and returns how many it read.
func (c *core) pairs(ctx context.Context, r RerankRequest, j *job, out *Scores) (w windows, read int, err error) {
	limit := c.cutLimit(r.Truncation)
	o := tokenize.Options{MaxTokens: limit, Side: r.Truncation.Side}
	if r.Truncation.Refuse {
		o.MaxTokens = 0
	}
	// Of the query all tokens count: which of two long texts is the longer decides who keeps the odd token.
	query := c.tokenizer.AppendIDs(nil, r.Query)
	room := limit - c.tokenizer.SpecialCount(true) - len(query) // for a document beside the whole query
	windowed := r.Windows && room >= minWindow
	w.room = room
	keep := c.tokenizer.SecondLimit(len(query), o) // tokens of a document that can matter: reading stops there
	perDoc := r.MaxTokensPerDoc
	switch {
	case r.Measure || windowed:
		keep = math.MaxInt
	case perDoc > 0 && r.Truncation.Side != tokenize.Left:
		keep = min(keep, perDoc)
	}
	rate := c.engine.sched.rateOf(c.queue)
	half := time.Now().Add(time.Until(r.Deadline) / 2)
	for i, text := range r.Documents {
		if !r.Deadline.IsZero() {
			// Twice of what fits at the measured rate is read, as the rate may be too low. Where it is unknown, half of the time is
			// left for scoring.
			last := half
			if rate > 0 {
				last = r.Deadline.Add(-time.Duration(float64(out.Usage.Tokens) / (2 * rate) * float64(time.Second)))
			}
			if !time.Now().Before(last) {
				break
			}
		}
		read = i + 1
		if err := ctx.Err(); err != nil {
			return w, i, context.Cause(ctx)
		}
		doc, more := c.tokenizer.AppendIDsLimit(nil, text, keep)
		if out.Documents != nil {
			out.Documents[i].Tokens = len(doc)
		}
		if windowed {
			w.rowsOf, w.tokens = append(w.rowsOf, len(j.rows)), append(w.tokens, len(doc))
			if len(doc) > room {
				cut, err := c.addWindows(j, i, query, doc, &w, o, &out.Usage)
				if err != nil {
					return w, i, err
				}
				if out.Documents != nil {
					out.Documents[i].Windows = len(j.rows) - w.rowsOf[i]
				}
				out.cut(i, cut)
				continue
			}
		}
		whole := len(doc)
		if !windowed && perDoc > 0 && whole > perDoc {
			more = true
			if r.Truncation.Side == tokenize.Left {
				doc = doc[whole-perDoc:]
			} else {
				doc = doc[:perDoc]
			}
		}
		enc, err := c.tokenizer.Pair(nil, query, doc, o)
		if err != nil {
			return w, i, err
		}
		if r.Truncation.Refuse && len(enc.IDs) > limit {
			return w, i, &TooLongError{Item: i, Tokens: len(enc.IDs), Limit: limit}
		}
		j.add(i, enc, more, &out.Usage)
		if out.Documents != nil {
			out.Documents[i].Cut = whole - len(doc) + enc.CutSecond
		}
	}
	if windowed {
		w.rowsOf = append(w.rowsOf, len(j.rows))
	}
	return w, read, nil
}

const (
	// minWindow is the least room that windows make sense in: beside a query that fills the model, a document is cut instead.
	minWindow = 32
	// windowOverlap is the part of a window that the next one repeats, so that a passage at a border is whole in one of them.
	windowOverlap = 4
)

// windows is what of a job's rows are windows of which document. The zero value: none, each row is a document.
type windows struct {
	rowsOf []int // the first row of each document, and behind the last the number of rows
	tokens []int // of each document, without special tokens
	room   int   // of one window
}

// from is where window k of a document that is longer than one begins. The last one ends with the document.
func (w *windows) from(k, tokens int) int {
	return min(k*(w.room-w.room/windowOverlap), tokens-w.room)
}

// unread is how many tokens of a document are in no window that there was time for.
func (w *windows) unread(errs []error, tokens int) int {
	read, end := 0, 0
	for k, err := range errs {
		if err != errUnscored {
			from := w.from(k, tokens)
			read, end = read+from+w.room-max(from, end), from+w.room
		}
	}
	return tokens - read
}

// addWindows adds the rows of a document that is longer than room. It returns how many tokens no window holds.
func (c *core) addWindows(j *job, i int, query, doc []int32, w *windows, o tokenize.Options, u *Usage) (cut int, err error) {
	end := 0
	for n := 0; n < MaxWindows && end < len(doc); n++ {
		at := w.from(n, len(doc))
		end = at + w.room
		enc, err := c.tokenizer.Pair(nil, query, doc[at:end], o)
		if err != nil {
			return 0, err
		}
		j.add(i, enc, false, u)
	}
	return len(doc) - end, nil
}

// bestWindows is each document's best logit: NaN where no window has one.
func bestWindows(j *job, rowsOf []int, use []DocumentUse) []float32 {
	logits := make([]float32, len(rowsOf)-1)
	for i := range logits {
		logits[i] = float32(math.NaN())
		for k, v := range j.values[rowsOf[i]:rowsOf[i+1]] {
			if j.errs[rowsOf[i]+k] == nil && (math.IsNaN(float64(logits[i])) || v > logits[i]) {
				logits[i] = v
				if use != nil {
					use[i].Window = k
				}
			}
		}
	}
	return logits
}

// documentOf is the document that a row belongs to.
func documentOf(rowsOf []int, row int) int {
	i, found := slices.BinarySearch(rowsOf, row)
	if !found {
		i--
	}
	return i
}

// onCPU runs the tokenising part of a request while no more of them run than there are CPUs.
func (c *core) onCPU(ctx context.Context, f func() error) error {
	if err := c.engine.tokenise.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer c.engine.tokenise.Release(1)
	return f()
}

// add appends a row of item i.
func (j *job) add(i int, enc tokenize.Encoding, more bool, u *Usage) {
	j.rows = append(j.rows, row{ids: enc.IDs, typeOneAt: enc.TypeOneAt, pos: len(j.rows)})
	u.Tokens += len(enc.IDs)
	for len(u.Items) <= i {
		u.Items = append(u.Items, 0)
	}
	u.Items[i] += int32(len(enc.IDs))
	if more || enc.Cut() > 0 {
		u.Cut = append(u.Cut, i)
	}
}

// run takes the job through the scheduler. Errors of single rows are left in the job.
func (c *core) run(j *job, t *Timing) error {
	j.values = make([]float32, len(j.rows)*j.width)
	if err := c.engine.sched.submit(j); err != nil {
		return err
	}
	if err := c.engine.sched.wait(j); err != nil {
		return err
	}
	if slices.Contains(j.errs, ErrClosed) {
		return ErrClosed // shutdown cut it short: that is nothing about its rows
	}
	t.Queue, t.Inference = j.queued, j.ran
	return nil
}

// failure makes the job's row errors into one. Failed rows are NaN in the values, and so are those without time, which are no failures.
// nil when there are none.
func (j *job) failure() *RowError {
	var first *RowError
	for i, err := range j.errs {
		if err == nil {
			continue
		}
		for k := range j.width {
			j.values[i*j.width+k] = float32(math.NaN())
		}
		if err == errUnscored {
			continue
		}
		if first == nil {
			first = &RowError{Item: i, Err: err}
		}
		first.Failed++
	}
	return first
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
