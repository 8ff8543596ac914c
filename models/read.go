package models

// This file turns the files of a model's folder into a Manifest. The order of precedence, for every field: ragate.json, then what
// the model's files state, then the catalogue, then a stated assumption (Manifest.Notes). Two exceptions: the catalogue's kind and
// output come before the files', because an entry names one model whose kind is known.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultMaxTokens is assumed when no file states a limit: BERT's position table, which most models of this size have.
const DefaultMaxTokens = 512

// AmbiguousGraphError is returned when a model has several ONNX files and none of the usual names.
type AmbiguousGraphError struct {
	Model   string
	Asked   string   // the file asked for, "" when none was
	Choices []string // all ONNX files, sorted
	// Elsewhere is a repository that has an ONNX export of this model, when the catalogue knows one and this has none.
	Elsewhere string
}

func (e *AmbiguousGraphError) Error() string {
	switch {
	case len(e.Choices) == 0 && e.Elsewhere != "":
		return fmt.Sprintf("model %s has no ONNX file in its own repository; %s has an export of it: name that model instead", e.Model, e.Elsewhere)
	case len(e.Choices) == 0:
		return fmt.Sprintf("model %s has no ONNX file; export it (for example with optimum) or name a repository that has one", e.Model)
	case e.Asked != "":
		return fmt.Sprintf("model %s has no ONNX file %q; it has %s", e.Model, e.Asked, strings.Join(e.Choices, ", "))
	}
	return fmt.Sprintf("model %s has several ONNX files (%s); choose one by writing its name behind a colon, %s:%s", e.Model, strings.Join(e.Choices, ", "), e.Model, e.Choices[0])
}

// chooseGraph picks the ONNX file among a model's files (slash-separated paths). asked is a path or a base name.
func chooseGraph(model string, paths []string, asked string) (string, error) {
	var onnx []string
	for _, p := range paths {
		if strings.HasSuffix(p, ".onnx") {
			onnx = append(onnx, p)
		}
	}
	slices.Sort(onnx)
	if asked != "" {
		if slices.Contains(onnx, asked) {
			return asked, nil
		}
		byBase := slices.DeleteFunc(slices.Clone(onnx), func(p string) bool { return path.Base(p) != asked })
		if len(byBase) == 1 {
			return byBase[0], nil
		}
		return "", &AmbiguousGraphError{Model: model, Asked: asked, Choices: onnx}
	}
	for _, usual := range []string{"onnx/model.onnx", "model.onnx"} {
		if slices.Contains(onnx, usual) {
			return usual, nil
		}
	}
	if len(onnx) == 1 {
		return onnx[0], nil
	}
	return "", &AmbiguousGraphError{Model: model, Choices: onnx}
}

// externalData lists the files that hold a graph's weights outside it, by the names exporters give them.
func externalData(graph string, paths []string) []string {
	var out []string
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(p, graph); ok && (strings.HasPrefix(rest, "_data") || strings.HasPrefix(rest, ".data")) {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// The model's own files, as far as they matter here. Pointers tell "absent" from zero.
type (
	configJSON struct {
		ModelType     string         `json:"model_type"`
		Architectures []string       `json:"architectures"`
		MaxPositions  float64        `json:"max_position_embeddings"`
		NPositions    float64        `json:"n_positions"`
		Heads         int            `json:"num_attention_heads"`
		NHeads        int            `json:"n_heads"` // DistilBERT
		NHead         int            `json:"n_head"`  // GPT-2's name
		HiddenSize    int            `json:"hidden_size"`
		Dim           int            `json:"dim"`    // DistilBERT
		NEmbd         int            `json:"n_embd"` // GPT-2's names, used by some BERT descendants
		NumLabels     int            `json:"num_labels"`
		ID2Label      map[string]any `json:"id2label"`
		Language      any            `json:"language"` // no standard field; some exporters write what the card says
	}
	tokenizerConfigJSON struct {
		MaxLength *float64 `json:"model_max_length"` // 1e30 means unknown
		LowerCase *bool    `json:"do_lower_case"`
		Class     string   `json:"tokenizer_class"`
	}
	moduleJSON struct {
		Path string `json:"path"`
		Type string `json:"type"` // "sentence_transformers.models.Pooling"
	}
	sentenceJSON struct {
		MaxSeqLength *float64 `json:"max_seq_length"`
	}
	promptsJSON struct {
		Prompts map[string]string `json:"prompts"`
	}
)

// folderOf is what readManifest is told of a model.
type folderOf struct {
	id       string
	aliases  []string
	dir      string   // absolute
	paths    []string // the model's files in dir, slash-separated
	graph    string   // the ONNX file asked for, "" for the usual choice
	entry    *Entry   // nil for models outside the catalogue
	override override
}

// readManifest fills everything but the hashes, the source, the revision and the date.
func readManifest(in folderOf) (Manifest, error) {
	r := &reader{in: in}
	m := Manifest{ID: in.id, Aliases: in.aliases, Dir: in.dir, Relevant: 1}
	fail := func(path, reason, fix string, err error) (Manifest, error) {
		return Manifest{}, &LoadError{Model: in.id, Path: path, Reason: reason, Fix: fix, Err: err}
	}

	asked := in.graph
	if asked == "" && in.override.Graph != nil {
		asked = *in.override.Graph
	}
	graph, err := chooseGraph(in.id, in.paths, asked)
	if err != nil {
		return Manifest{}, err
	}
	m.GraphPath = filepath.Join(in.dir, filepath.FromSlash(graph))

	var modules []moduleJSON
	hasModules := r.json("modules.json", &modules)
	base := "" // folder of the transformer's own files
	for _, mod := range modules {
		if moduleName(mod.Type) == "Transformer" {
			base = mod.Path
		}
	}
	var cfg configJSON
	if p, ok := r.first("config.json", base, "", path.Dir(graph)); ok {
		r.json(p, &cfg)
	}
	var tcfg tokenizerConfigJSON
	if p, ok := r.first("tokenizer_config.json", base, "", path.Dir(graph)); ok {
		r.json(p, &tcfg)
	}
	m.ModelType, m.LowerCase = cfg.ModelType, tcfg.LowerCase

	const saveFast = "save the model's fast tokenizer beside it (transformers: AutoTokenizer.from_pretrained(…).save_pretrained(folder))"
	tok, ok := r.first(tokenizerFile, base, "", path.Dir(graph))
	if !ok {
		if tok, ok = r.first(sentencePieceFile, base, "", path.Dir(graph)); !ok {
			return fail(in.dir, "there is no "+tokenizerFile, saveFast, nil)
		}
		if r.err == nil && !xlmRoberta(cfg, tcfg) {
			return fail(filepath.Join(in.dir, filepath.FromSlash(tok)), fmt.Sprintf(
				"there is no %s, and %s can be read for the tokenizer class XLMRobertaTokenizer only: tokenizer_class is %q, model_type %q", tokenizerFile, sentencePieceFile, tcfg.Class, cfg.ModelType), saveFast, nil)
		}
	}
	m.TokenizerPath = filepath.Join(in.dir, filepath.FromSlash(tok))

	m.Kind = kindOf(cfg, hasModules, r.has("1_Pooling/config.json"))
	m.Heads = max(cfg.Heads, cfg.NHeads, cfg.NHead, 0)
	m.Dimensions = max(cfg.HiddenSize, cfg.Dim, cfg.NEmbd)
	m.Labels, m.Relevant = labelsOf(cfg)
	r.pipeline(&m, modules, hasModules)
	r.prompts(&m)
	r.languages(&m, cfg)
	r.maxTokens(&m, cfg, tcfg, base)
	if r.err != nil {
		return fail("", "its files cannot be read", "", r.err)
	}
	in.override.apply(&m)
	m.declaredTokens = in.override.MaxTokens != nil
	if m.declaredTokens && m.MaxTokens > r.positions {
		return Manifest{}, m.tooManyTokens(r.positions)
	}
	// Prompt names differ between families; a request may use either.
	if p, ok := m.Prompts["document"]; ok && m.Prompts["passage"] == "" {
		m.Prompts = maps.Clone(m.Prompts)
		m.Prompts["passage"] = p
	}
	if m.Prompts == nil {
		m.Prompts = map[string]string{}
	}
	if m.Kind == KindReranker {
		m.Dimensions, m.Pooling, m.Normalize = 0, PoolUndeclared, false
		return m, nil
	}
	if m.Kind == KindEmbedder {
		m.Labels, m.Relevant = 0, 0
	}
	if m.Pooling != PoolUndeclared && !slices.Contains(Poolings(), m.Pooling) {
		return fail(r.poolingFile, fmt.Sprintf("unknown pooling %q", m.Pooling), "known are "+poolingNames()+"; set `pooling` in "+OverrideFile+" if one of them is right", nil)
	}
	return m, nil
}

// A model's tokenizer is the first of these files that it has.
const (
	tokenizerFile     = "tokenizer.json"
	sentencePieceFile = "sentencepiece.bpe.model"
)

// xlmRoberta says whether a model's ids are those that XLMRobertaTokenizer makes of a sentencepiece.bpe.model. Other families (CamemBERT,
// mBART) have files of that name and number the pieces in another way. The class decides; where none is stated, the architecture does.
func xlmRoberta(cfg configJSON, tcfg tokenizerConfigJSON) bool {
	if tcfg.Class != "" {
		return strings.TrimSuffix(tcfg.Class, "Fast") == "XLMRobertaTokenizer"
	}
	return cfg.ModelType == "xlm-roberta" || cfg.ModelType == "xlm-roberta-xl"
}

// reader reads the files of one folder and keeps the first error, so that absent files need no handling.
type reader struct {
	in          folderOf
	err         error
	poolingFile string
	positions   int // tokens that config.json says there are positions for; the largest int when it does not
}

func (r *reader) has(p string) bool { return slices.Contains(r.in.paths, p) }

// first returns the first of name in the given folders that exists.
func (r *reader) first(name string, dirs ...string) (string, bool) {
	for _, d := range dirs {
		if p := path.Join(d, name); r.has(p) {
			return p, true
		}
	}
	return "", false
}

// json decodes a file if it is there.
func (r *reader) json(p string, into any) bool {
	if r.err != nil || !r.has(p) {
		return false
	}
	full := filepath.Join(r.in.dir, filepath.FromSlash(p))
	raw, err := os.ReadFile(full)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: %w", full, err)
		}
		r.err = err
		return false
	}
	return true
}

// moduleName cuts "sentence_transformers.models.Pooling" to "Pooling".
func moduleName(typ string) string { return typ[strings.LastIndex(typ, ".")+1:] }

func kindOf(cfg configJSON, hasModules, hasPooling bool) Kind {
	for _, a := range cfg.Architectures {
		if strings.HasSuffix(a, "ForSequenceClassification") {
			return KindReranker
		}
	}
	if hasModules || hasPooling {
		return KindEmbedder
	}
	for _, a := range cfg.Architectures {
		// An encoder without a task's head: BertModel, XLMRobertaModel, …
		if strings.HasSuffix(a, "Model") || strings.HasSuffix(a, "ForMaskedLM") {
			return KindEmbedder
		}
	}
	return KindUnknown
}

// labelsOf returns the number of scores and, where there are two, which one means relevant.
func labelsOf(cfg configJSON) (labels, relevant int) {
	labels = cfg.NumLabels
	if len(cfg.ID2Label) > 0 {
		labels = len(cfg.ID2Label)
	}
	if labels != 2 || len(cfg.ID2Label) == 0 {
		return labels, 1 // trainers' convention
	}
	yes := -1
	for id, label := range cfg.ID2Label {
		name := strings.ToLower(fmt.Sprint(label))
		switch name {
		case "label_1", "1", "relevant", "true", "yes", "positive", "entailment", "duplicate", "paraphrase":
			switch {
			case yes >= 0:
				return labels, -1
			case id == "0":
				yes = 0
			case id == "1":
				yes = 1
			}
		}
	}
	return labels, yes
}

// pipeline reads what sentence-transformers does with the token vectors.
func (r *reader) pipeline(m *Manifest, modules []moduleJSON, hasModules bool) {
	e := r.in.entry
	m.Normalize = true
	poolingPath := ""
	if hasModules {
		m.Normalize = false
		for _, mod := range modules {
			switch name := moduleName(mod.Type); name {
			case "Transformer":
			case "Pooling":
				poolingPath = path.Join(mod.Path, "config.json")
			case "Normalize":
				m.Normalize = true
			case "Dropout": // does nothing at inference
			default:
				m.ExtraLayers = append(m.ExtraLayers, name)
			}
		}
	} else if r.has("1_Pooling/config.json") {
		poolingPath = "1_Pooling/config.json"
	}
	if e != nil {
		m.Kind = e.Kind
		m.Output = e.Output
		if m.Dimensions == 0 {
			m.Dimensions = e.Dimensions
		}
		if m.Labels == 0 {
			m.Labels = e.Labels
		}
		if !hasModules {
			m.Normalize = e.Normalize
		}
		m.Pooling = e.Pooling
	}
	if poolingPath == "" {
		if e == nil && !hasModules && m.Kind != KindReranker {
			m.Notes = append(m.Notes, "no file says whether vectors are scaled to length 1; they are")
		}
		return
	}
	pooling := map[string]any{}
	if !r.json(poolingPath, &pooling) {
		if r.err == nil {
			r.err = fmt.Errorf("modules.json names %s and the file is not there: %w", poolingPath, fs.ErrNotExist)
		}
		return
	}
	r.poolingFile = filepath.Join(r.in.dir, filepath.FromSlash(poolingPath))
	p, err := poolingOf(pooling)
	if err != nil && (r.in.override.Pooling == nil) {
		r.err = fmt.Errorf("%s: %w", r.poolingFile, err)
		return
	}
	m.Pooling = p
	if n, ok := pooling["word_embedding_dimension"].(float64); ok && len(m.ExtraLayers) == 0 {
		m.Dimensions = int(n)
	}
	if len(m.ExtraLayers) > 0 {
		m.Dimensions = 0 // a later layer may change it; the graph's own output says
	}
}

// poolingOf reads sentence-transformers' description: flags named pooling_mode_…, or pooling_mode in newer versions.
func poolingOf(cfg map[string]any) (Pooling, error) {
	names := map[string]Pooling{
		"pooling_mode_cls_token": PoolCLS, "pooling_mode_mean_tokens": PoolMean, "pooling_mode_max_tokens": PoolMax, "pooling_mode_lasttoken": PoolLast,
		"cls": PoolCLS, "mean": PoolMean, "max": PoolMax, "lasttoken": PoolLast, "last": PoolLast,
	}
	var on []string
	for key, value := range cfg {
		if v, ok := value.(bool); ok && v && strings.HasPrefix(key, "pooling_mode_") {
			on = append(on, key)
		}
	}
	if len(on) == 0 {
		switch v := cfg["pooling_mode"].(type) {
		case string:
			on = []string{v}
		case []any:
			for _, x := range v {
				on = append(on, fmt.Sprint(x))
			}
		}
	}
	slices.Sort(on)
	if v, ok := cfg["include_prompt"].(bool); ok && !v {
		return "", errors.New("the pooling leaves the prompt's own tokens out (include_prompt is false), which is not supported")
	}
	switch {
	case len(on) == 0:
		return "", fmt.Errorf("it declares no pooling; known are %s", poolingNames())
	case len(on) > 1:
		return "", fmt.Errorf("it concatenates several poolings (%s), which is not supported; known are %s", strings.Join(on, ", "), poolingNames())
	}
	p, ok := names[on[0]]
	if !ok {
		return "", fmt.Errorf("unknown pooling %q; known are %s", strings.TrimPrefix(on[0], "pooling_mode_"), poolingNames())
	}
	return p, nil
}

func (r *reader) prompts(m *Manifest) {
	var p promptsJSON
	r.json("config_sentence_transformers.json", &p)
	m.Prompts = map[string]string{}
	if r.in.entry != nil {
		maps.Copy(m.Prompts, r.in.entry.Prompts)
	}
	for name, prefix := range p.Prompts {
		// Newer versions write empty query and document prompts into every model; those say nothing.
		if prefix != "" || m.Prompts[name] == "" {
			m.Prompts[name] = prefix
		}
	}
}

// positionsOffset lists the families whose position table starts at padding_idx + 1 = 2, so that two of its rows are never reached.
var positionsOffset = []string{"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text", "xmod", "luke", "ibert", "esm"}

// firstPosition is the row of the position table that the first token takes.
func firstPosition(modelType string) int {
	if slices.Contains(positionsOffset, modelType) {
		return 2
	}
	return 0
}

// boundByPositions holds MaxTokens against the rows of the graph's own position table, 0 when it shows none. A limit that the user
// declared is refused; one that the files state is lowered and noted.
func (m *Manifest) boundByPositions(rows int64) error {
	most := int(rows) - firstPosition(m.ModelType)
	if rows == 0 || most < 1 || m.MaxTokens <= most {
		return nil
	}
	if m.declaredTokens {
		return m.tooManyTokens(most)
	}
	m.Notes = append(m.Notes, fmt.Sprintf("its files state a limit of %d tokens, and the graph's position table holds %d; that is the limit", m.MaxTokens, most))
	m.MaxTokens = most
	return nil
}

func (m *Manifest) tooManyTokens(most int) error {
	return &LoadError{Model: m.ID, Path: m.GraphPath, Reason: fmt.Sprintf("`max_tokens` in %s is %d and the model has positions for %d tokens", OverrideFile, m.MaxTokens, most),
		Fix: fmt.Sprintf("set it to %d or less", most)}
}

// maxTokens takes sentence-transformers' own limit where there is one, else the catalogue's, else the smaller of the tokenizer's and
// the position table's; the position table bounds all of them. Limits baked into tokenizer.json never count.
func (r *reader) maxTokens(m *Manifest, cfg configJSON, tcfg tokenizerConfigJSON, base string) {
	const unknown = 1e6 // larger "limits" are placeholders: transformers writes 1e30
	positions := max(cfg.MaxPositions, cfg.NPositions)
	if positions > 2 {
		positions -= float64(firstPosition(cfg.ModelType))
	}
	if positions <= 0 || positions > unknown {
		positions = math.Inf(1)
	}
	limit := math.Inf(1)
	sentence := false
	for _, family := range []string{"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"} {
		p, ok := r.first("sentence_"+family+"_config.json", base, "")
		var s sentenceJSON
		if ok && r.json(p, &s) && s.MaxSeqLength != nil && *s.MaxSeqLength > 0 {
			limit, sentence = *s.MaxSeqLength, true
			break
		}
	}
	if !sentence {
		if e := r.in.entry; e != nil && e.MaxTokens > 0 {
			limit = float64(e.MaxTokens)
		} else if v := tcfg.MaxLength; v != nil && *v > 0 && *v <= unknown {
			limit = *v
		}
	}
	if r.positions = math.MaxInt; !math.IsInf(positions, 1) {
		r.positions = int(positions)
	}
	limit = min(limit, positions)
	if math.IsInf(limit, 1) {
		limit = DefaultMaxTokens
		m.Notes = append(m.Notes, fmt.Sprintf("no file states a token limit; %d is assumed (set `max_tokens` in %s)", DefaultMaxTokens, OverrideFile))
	}
	m.MaxTokens = int(limit)
}
