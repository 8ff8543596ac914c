package semantic

import (
	"crypto/sha256"
	_ "embed" // references.yaml
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"ragate/gates/internal/yamltext"
	"ragate/gates/textnorm"
)

//go:embed references.yaml
var embedded []byte

// Default returns the reference file that comes with the program, in English and Dutch, calibrated for e5-small-v2 and
// multilingual-e5-small.
func Default() []byte { return slices.Clone(embedded) }

// Kind says what a category's references stand for.
type Kind string

const (
	NonRetrieval Kind = "non_retrieval" // turns that retrieval cannot help
	Knowledge    Kind = "knowledge"     // turns that need it
)

// Category is a named group of references.
type Category struct {
	ID    string
	Kind  Kind
	About string
	// NeedsHistory: the references bypass only inside a conversation, and count as knowledge outside of one.
	NeedsHistory bool
	// NotAfterQuestion: the references count as knowledge when the assistant's last message asked something.
	NotAfterQuestion bool
	// NearMiss: knowledge written near small talk on purpose, and of no one domain. [Fit] leaves such references out one by one.
	NearMiss bool
}

// Reference is one text of a category.
type Reference struct {
	Category int // index in Set.Categories
	Language string
	Text     string
}

// Set is a parsed reference file, with one of its calibrations in use: the first, until [Set.For] chooses another.
type Set struct {
	Version       string
	CalibratedFor string // model whose similarities the thresholds in use are in, "" where the file does not say
	Categories    []Category
	References    []Reference // in the order of the file

	conversational map[string]bool
	vocabulary     map[string]int    // word → non-retrieval references that hold it
	methods        map[string]Method // of the calibration in use
	defaultMethod  string
	calibrations   []calibration // of the file, in its order
}

// calibration is the methods as one embedder's similarities need them.
type calibration struct {
	embedder string // "": any
	methods  map[string]Method
}

// Error is one fault of a reference file.
type Error struct {
	Line   int // 0 when the fault has no place
	Where  string
	Reason string
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Where != "" {
		b.WriteString(e.Where + ": ")
	}
	return b.String() + e.Reason
}

// Errors are all faults that [Parse] found.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// Short names for what the files are made of.
type (
	text  = yamltext.Text
	texts = yamltext.Texts
)

type fileYAML struct {
	Version        text             `yaml:"version"`
	Conversational map[string]texts `yaml:"conversational_words"`
	Methods        methodsYAML      `yaml:"methods"`
	Categories     []categoryYAML   `yaml:"categories"`
}

type categoryYAML struct {
	ID               text             `yaml:"id"`
	Kind             text             `yaml:"kind"`
	About            text             `yaml:"about"`
	NeedsHistory     bool             `yaml:"needs_history"`
	NotAfterQuestion bool             `yaml:"not_after_question"`
	NearMiss         bool             `yaml:"near_miss"`
	References       map[string]texts `yaml:"references"`
}

type methodsYAML struct {
	Default         text              `yaml:"default"`
	Calibrations    []calibrationYAML `yaml:"calibrations"`
	calibrationYAML `yaml:",inline"`
}

type calibrationYAML struct {
	CalibratedFor   text           `yaml:"calibrated_for"`
	Top1            *thresholdYAML `yaml:"top1"`
	Margin          *thresholdYAML `yaml:"margin"`
	MarginReference *thresholdYAML `yaml:"margin_reference"`
	Contrast        *thresholdYAML `yaml:"contrast"`
	Combined        *combinedYAML  `yaml:"combined"`
}

type thresholdYAML struct {
	Threshold *float64 `yaml:"threshold"`
}

type combinedYAML struct {
	Threshold *float64           `yaml:"threshold"`
	TopK      int                `yaml:"top_k"`
	Intercept float64            `yaml:"intercept"`
	Weights   map[string]float64 `yaml:"weights"`
}

// Parse reads a reference file. The error is an [Errors] with every fault.
func Parse(data []byte) (*Set, error) {
	p := &parser{set: &Set{conversational: map[string]bool{}, vocabulary: map[string]int{}}}
	var f fileYAML
	if p.decode(data, &f) {
		p.set.Version = f.Version.Value
		if f.Version.Value == "" {
			p.fail(1, "", `version is missing, for example: version: "1"`)
		}
		for _, lang := range slices.Sorted(maps.Keys(f.Conversational)) {
			for _, w := range f.Conversational[lang] {
				switch words := contentForms(w.Value); len(words) {
				case 1:
					p.set.conversational[words[0]] = true
				default:
					p.fail(w.Line, "conversational_words", "%q is not one word", w.Value)
				}
			}
		}
		p.categories(f.Categories)
		p.methods(&f.Methods)
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	p.set.learnVocabulary()
	return p.set, nil
}

type parser struct {
	set  *Set
	errs Errors
}

func (p *parser) fail(line int, where, format string, args ...any) {
	p.errs = append(p.errs, &Error{Line: line, Where: where, Reason: fmt.Sprintf(format, args...)})
}

func (p *parser) decode(data []byte, into *fileYAML) bool {
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	err := dec.Decode(into)
	var many *yaml.TypeError
	switch {
	case err == nil:
		return true
	case errors.Is(err, io.EOF):
		p.fail(0, "", "the file is empty")
	case errors.As(err, &many):
		for _, reason := range many.Errors {
			line, reason := splitLine(reason)
			reason, _, _ = strings.Cut(reason, " in type semantic.")
			reason, _, _ = strings.Cut(reason, " into semantic.")
			p.fail(line, "", "%s", reason)
		}
		return true // the rest was decoded, and has its own faults to report
	default:
		line, reason := splitLine(strings.TrimPrefix(err.Error(), "yaml: "))
		p.fail(line, "", "%s", reason)
	}
	return false
}

func (p *parser) categories(list []categoryYAML) {
	ids := map[string]int{}
	kinds := map[Kind]int{}
	for i := range list {
		c := &list[i]
		where := "category " + c.ID.Value
		if c.ID.Value == "" {
			where = fmt.Sprintf("category number %d", i+1)
			p.fail(c.Kind.Line, where, "id is missing")
		} else if line, twice := ids[c.ID.Value]; twice {
			p.fail(c.ID.Line, where, "the id is taken by the category at line %d", line)
		}
		ids[c.ID.Value] = c.ID.Line
		kind := Kind(c.Kind.Value)
		switch kind {
		case NonRetrieval:
			if c.NearMiss {
				p.fail(c.ID.Line, where, "near_miss belongs to knowledge categories")
			}
		case Knowledge:
			if c.NeedsHistory || c.NotAfterQuestion {
				p.fail(c.ID.Line, where, "needs_history and not_after_question belong to non_retrieval categories")
			}
		default:
			p.fail(c.ID.Line, where, "kind is %q, not non_retrieval or knowledge", c.Kind.Value)
		}
		index := len(p.set.Categories)
		p.set.Categories = append(p.set.Categories, Category{ID: c.ID.Value, Kind: kind, About: c.About.Value,
			NeedsHistory: c.NeedsHistory, NotAfterQuestion: c.NotAfterQuestion, NearMiss: c.NearMiss})
		n := 0
		for _, lang := range slices.Sorted(maps.Keys(c.References)) {
			if lang == "" {
				p.fail(c.ID.Line, where, "a language without a name")
			}
			for _, t := range c.References[lang] {
				if len(textnorm.Words(t.Value)) == 0 {
					p.fail(t.Line, where, "reference %q holds no words", t.Value)
					continue
				}
				p.set.References = append(p.set.References, Reference{Category: index, Language: lang, Text: t.Value})
				n++
			}
		}
		if n == 0 {
			p.fail(c.ID.Line, where, "no references")
		}
		if !c.NeedsHistory {
			kinds[kind]++
		}
	}
	for _, k := range []Kind{NonRetrieval, Knowledge} {
		if kinds[k] == 0 {
			p.fail(0, "categories", "no category of kind %s: both sides are needed to compare", k)
		}
	}
}

// methods reads the calibrations: a list of them, or the one that stands in its place.
func (p *parser) methods(y *methodsYAML) {
	s := p.set
	list := y.Calibrations
	switch one := &y.calibrationYAML; {
	case len(list) == 0:
		list = []calibrationYAML{*one}
	case *one != calibrationYAML{}:
		p.fail(y.Default.Line, "methods", "there are calibrations and a method or calibrated_for beside them: move it into a calibration")
	}
	seen := map[string]bool{}
	for i := range list {
		c := calibration{embedder: list[i].CalibratedFor.Value}
		where := "methods"
		if len(y.Calibrations) > 0 {
			where = fmt.Sprintf("methods: calibration %d", i+1)
			switch {
			case c.embedder == "":
				p.fail(y.Default.Line, where, "calibrated_for is missing: name the embedder, for example e5-small-v2")
			case seen[c.embedder]:
				p.fail(list[i].CalibratedFor.Line, where, "there is one for %s already", c.embedder)
			}
			seen[c.embedder] = true
		}
		c.methods = p.calibration(where, &list[i])
		s.calibrations = append(s.calibrations, c)
		if _, known := c.methods[y.Default.Value]; !known && len(p.errs) == 0 {
			p.fail(y.Default.Line, where, "default is %q, which the file does not define", y.Default.Value)
		}
	}
	s.defaultMethod = y.Default.Value
	s.use(s.calibrations[0])
}

// use makes a calibration the one that decides.
func (s *Set) use(c calibration) { s.CalibratedFor, s.methods = c.embedder, c.methods }

// For returns the set with the calibration for an embedder, known by any of names; the letters' case does not matter. ok is false when the file names
// embedders and none of these: the set's numbers mean nothing then, until [Index.Recalibrate] finds others. A file that names no embedder
// has numbers for all.
func (s *Set) For(names ...string) (set *Set, ok bool) {
	for _, c := range s.calibrations {
		if c.embedder == "" || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, c.embedder) }) {
			t := *s
			t.use(c)
			return &t, true
		}
	}
	return s, false
}

// Embedders returns the names of the embedders that the file has a calibration for.
func (s *Set) Embedders() []string {
	var names []string
	for _, c := range s.calibrations {
		if c.embedder != "" {
			names = append(names, c.embedder)
		}
	}
	return names
}

func (p *parser) calibration(where string, y *calibrationYAML) map[string]Method {
	methods := map[string]Method{}
	simple := func(name string, t *thresholdYAML) {
		switch {
		case t == nil:
		case t.Threshold == nil:
			p.fail(0, where+": "+name, "threshold is missing")
		case !(math.Abs(*t.Threshold) <= 2):
			p.fail(0, where+": "+name, "threshold %v is outside -2…2, the range of differences of cosines", *t.Threshold)
		default:
			methods[name] = Method{Name: name, Threshold: *t.Threshold}
		}
	}
	simple(Top1, y.Top1)
	simple(Margin, y.Margin)
	simple(MarginReference, y.MarginReference)
	simple(Contrast, y.Contrast)
	if c := y.Combined; c != nil {
		ok := true
		bad := func(format string, args ...any) { ok = false; p.fail(0, where+": "+Combined, format, args...) }
		m := Method{Name: Combined, Combination: Combination{TopK: c.TopK, Intercept: c.Intercept}}
		switch {
		case c.Threshold == nil:
			bad("threshold is missing")
		case !(*c.Threshold > 0 && *c.Threshold < 1):
			bad("threshold %v is outside 0…1, a probability", *c.Threshold)
		default:
			m.Threshold = *c.Threshold
		}
		if c.TopK < 1 || c.TopK > MaxTopK {
			bad("top_k %d is outside 1…%d", c.TopK, MaxTopK)
		}
		if len(c.Weights) == 0 {
			bad("weights are missing")
		}
		for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
			i := slices.Index(featureNames[:], name)
			if i < 0 {
				bad("unknown feature %q; there are %s", name, strings.Join(featureNames[:], ", "))
				continue
			}
			if w := c.Weights[name]; math.IsNaN(w) || math.IsInf(w, 0) {
				bad("the weight of %s is %v", name, w)
			}
			m.Combination.Weights[i] = c.Weights[name]
		}
		if math.IsNaN(c.Intercept) || math.IsInf(c.Intercept, 0) {
			bad("intercept is %v", c.Intercept)
		}
		if ok {
			methods[Combined] = m
		}
	}
	return methods
}

// learnVocabulary counts the words of the non-retrieval references.
func (s *Set) learnVocabulary() {
	for _, r := range s.References {
		if s.Categories[r.Category].Kind != NonRetrieval {
			continue
		}
		words := contentForms(r.Text)
		slices.Sort(words)
		for _, w := range slices.Compact(words) {
			s.vocabulary[w]++
		}
	}
}

// Texts returns the texts to embed, as queries, in the order that [NewIndex] expects their vectors.
func (s *Set) Texts() []string {
	texts := make([]string, len(s.References))
	for i, r := range s.References {
		texts[i] = r.Text
	}
	return texts
}

// Method returns a method of the file by name; "" is the file's default.
func (s *Set) Method(name string) (Method, error) {
	if name == "" {
		name = s.defaultMethod
	}
	m, ok := s.methods[name]
	if !ok {
		return Method{}, fmt.Errorf("the references define no method %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(s.methods)), ", "))
	}
	return m, nil
}

// Without returns the set less some categories, for measuring what is left of the gate in a domain that it has no references for.
func (s *Set) Without(ids ...string) *Set {
	t := *s
	t.Categories, t.References, t.vocabulary = nil, nil, map[string]int{}
	place := make([]int, len(s.Categories))
	for i, c := range s.Categories {
		place[i] = -1
		if !slices.Contains(ids, c.ID) {
			place[i] = len(t.Categories)
			t.Categories = append(t.Categories, c)
		}
	}
	for _, r := range s.References {
		if r.Category = place[r.Category]; r.Category >= 0 {
			t.References = append(t.References, r)
		}
	}
	t.learnVocabulary()
	return &t
}

// Fingerprint identifies the vectors of the set under a model: equal fingerprints mean equal texts, in the same order, of the same
// categories. model names everything of the embedder that changes a vector: file hash, precision, prefix.
func (s *Set) Fingerprint(model string) string {
	h := sha256.New()
	write := func(t string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(t)))
		h.Write(n[:])
		io.WriteString(h, t)
	}
	write("ragate references 1")
	write(model)
	write(s.Version)
	for _, r := range s.References {
		c := s.Categories[r.Category]
		write(c.ID)
		write(string(c.Kind))
		write(fmt.Sprint(c.NeedsHistory, c.NotAfterQuestion))
		write(r.Language)
		write(r.Text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// splitLine takes the line number off an error of the decoder.
func splitLine(message string) (line int, reason string) {
	head, rest, found := strings.Cut(message, ": ")
	if n, err := fmt.Sscanf(head, "line %d", &line); !found || n != 1 || err != nil {
		return 0, message
	}
	return line, rest
}
