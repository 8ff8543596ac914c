package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ragate/inference"
	"ragate/inference/ort"
	"ragate/models"
	"ragate/settings"
)

// Which models are loaded, what they are called, and which of them does what. Everything here follows from the settings alone; files are
// opened when the models are loaded (engine.go).

// noModel is the value of a setting that asks for no model where another value, or none, would.
const noModel = "none"

// modelFields are what an entry of the setting models may hold. But for the first four they are the settings of the same names, for one
// model.
var modelFields = []settings.Setting{
	{Name: "name", Required: true, Unique: true, Help: "what requests call it, in `model`"},
	{Name: "kind", Required: true, Choices: []string{string(models.KindEmbedder), string(models.KindReranker)}, Help: "embedder or reranker"},
	{Name: "model", Required: true, Help: "a catalogue name, org/name[@revision] on the hub, or a folder"},
	{Name: "default", Kind: settings.Switch, Help: "it serves requests that name no model"},
	{Name: "provider", Choices: []string{"auto", "cpu", "openvino", "cuda", "tensorrt"}},
	{Name: "precision", Choices: []string{"auto", "fp32", "bf16", "int8", "int8-batched"}},
	{Name: "max-tokens", Kind: settings.Integer, Range: settings.Range{Min: "1", Zero: "the model's limit"}},
	{Name: "streams", Kind: settings.Integer, Range: settings.Range{Min: "1", Zero: "the default"}},
	{Name: "threads", Kind: settings.Integer, Range: settings.Range{Min: "1", Zero: "the default"}},
}

// chosen is one model that the settings ask for.
type chosen struct {
	name  string // "": it is called what its files are
	kind  models.Kind
	ref   string
	where string // what asks for it, for messages; "" for the two settings that always do
	own   bool   // nobody named it: a gate's by default, which clients are not offered
	set   inference.Settings

	ownTokens bool // set.MaxTokens is this model's alone, and not that of all
}

// String is what messages call it.
func (c chosen) String() string {
	if c.name != "" {
		return c.name
	}
	return c.ref
}

// lineup is all models that the settings ask for, and which of them does what: places in models, none where there is none.
type lineup struct {
	models                     []chosen
	embedder, reranker         int // for requests that name none
	gateEmbedder, gateReranker int
}

const none = -1

// lineup puts the settings together. The problems are all there are.
func (f modelFlags) lineup() (lineup, []settings.Problem) {
	l := lineup{embedder: none, reranker: none, gateEmbedder: none, gateReranker: none}
	problems := settings.Setting{Fields: modelFields}.CheckUnique(f.Models)
	fail := func(where, format string, args ...any) {
		problems = append(problems, settings.Problem{Where: where, Text: fmt.Sprintf(format, args...)})
	}
	marked := map[models.Kind]int{}
	for i, r := range f.Models {
		c := chosen{name: r.Values["name"], kind: models.Kind(r.Values["kind"]), ref: r.Values["model"], where: r.Where, set: f.overlaid(r)}
		_, c.ownTokens = r.Values["max-tokens"]
		l.models = append(l.models, c)
		if e, ok := catalogued(c.ref); ok && c.kind != models.KindUnknown && e.Kind != c.kind {
			fail(c.where, "%s: %s is %s, and kind says %s", c, e.ID, article(e.Kind), c.kind)
		}
		if c.name == noModel {
			fail(c.where, "the name %s stands for no model: choose another", noModel)
		}
		if !isOn(r.Values["default"]) {
			continue
		}
		if first, twice := marked[c.kind]; twice {
			fail(c.where, "%s is marked as the default %s, and so is %s (%s)", c, c.kind, l.models[first], l.models[first].where)
			continue
		}
		marked[c.kind] = i
	}
	for _, c := range l.models {
		for _, other := range l.models {
			if c.name != "" && canonical(c.name) == canonical(other.ref) && canonical(c.ref) != canonical(other.ref) {
				fail(c.where, "the name %s also means the model %s, which %s (%s) loads: choose another", c.name, other.ref, other, other.where)
				break
			}
		}
	}
	find := func(flag string, kind models.Kind, text string) (at int, loaded bool) {
		for i, c := range l.models {
			if c.name == text && c.kind != kind && c.kind != models.KindUnknown {
				fail("", "%s is %s, which is %s (%s): it must be %s", flag, text, article(c.kind), c.where, article(kind))
				return none, true
			}
			if c.name == text {
				return i, true
			}
		}
		at = slices.IndexFunc(l.models, func(c chosen) bool { return c.kind == kind && canonical(c.ref) == canonical(text) })
		return at, at >= 0
	}
	add := func(flag, where string, kind models.Kind, ref string) int {
		if e, ok := catalogued(ref); ok && e.Kind != kind {
			fail("", "%s is %s, which is %s: it must be %s", flag, ref, article(e.Kind), article(kind))
		}
		l.models = append(l.models, chosen{kind: kind, ref: ref, where: where, set: f.settings()})
		return len(l.models) - 1
	}
	for _, d := range []struct {
		name, flag, value string
		kind              models.Kind
		to                *int
	}{
		{"embedder", embedderFlag, f.Embedder, models.KindEmbedder, &l.embedder},
		{"reranker", rerankerFlag, f.Reranker, models.KindReranker, &l.reranker},
	} {
		listed := slices.IndexFunc(l.models, func(c chosen) bool { return c.kind == d.kind })
		explicit := f.explicit == nil || f.explicit(d.name)
		switch {
		case d.value == noModel && listed >= 0:
			fail("", "%s is %s, and --models (RAGATE_MODELS) lists %s (%s)", d.flag, noModel, l.models[listed], l.models[listed].where)
		case d.value == noModel:
		case len(f.Models) == 0 || explicit:
			at, loaded := find(d.flag, d.kind, d.value)
			if !loaded {
				at = add(d.flag, "", d.kind, d.value)
			}
			*d.to = at
		default:
			*d.to = listed
			if i, ok := marked[d.kind]; ok {
				*d.to = i
			}
		}
	}
	gateEmbedder := f.GateEmbedder
	if gateEmbedder == "" && len(f.Models) == 0 && canonical(f.Embedder) == models.DefaultEmbedder {
		gateEmbedder = models.DefaultGateEmbedder // who chooses models of their own gets these and no others
	}
	for _, g := range []struct {
		flag, value string
		kind        models.Kind
		fallback    int
		to          *int
	}{
		{gateEmbedderFlag, gateEmbedder, models.KindEmbedder, l.embedder, &l.gateEmbedder},
		{gateRerankerFlag, f.GateReranker, models.KindReranker, l.reranker, &l.gateReranker},
	} {
		switch g.value {
		case "":
			*g.to = g.fallback
		case noModel:
		default:
			at, loaded := find(g.flag, g.kind, g.value)
			if !loaded {
				at = add(g.flag, g.flag, g.kind, g.value)
			}
			if !loaded && g.flag == gateEmbedderFlag && f.GateEmbedder == "" {
				l.models[at].own = true
				l.models[at].set.Precision = unasked(f.Precision)
			}
			*g.to = at
		}
	}
	if len(l.models) == 0 {
		fail("", "no model is to be loaded: %s and %s are both %s", embedderFlag, rerankerFlag, noModel)
	}
	return l, problems
}

// unasked is the precision of a model that nobody named, where this is the one that was asked for: int8 is only for graphs that were quantised
// for it, as those that were named may be.
func unasked(p string) inference.Precision {
	switch p := inference.Precision(p); p {
	case inference.INT8, inference.INT8Batched:
		return inference.PrecisionAuto
	default:
		return p
	}
}

const (
	embedderFlag     = "--embedder (RAGATE_EMBEDDER)"
	rerankerFlag     = "--reranker (RAGATE_RERANKER)"
	gateEmbedderFlag = "--gate-embedder (RAGATE_GATE_EMBEDDER)"
	gateRerankerFlag = "--gate-reranker (RAGATE_GATE_RERANKER)"
)

// check finds what is wrong with the models asked for, taken together.
func (f modelFlags) check() []error {
	_, problems := f.lineup()
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errs
}

// tell says which settings were given a value, by flag, variable or file.
func (f *modelFlags) tell(given func(name string) bool) { f.explicit = given }

// overlaid are the settings of one entry of models: its own where it has them.
func (f modelFlags) overlaid(r settings.Record) inference.Settings {
	s := f.settings()
	if v, ok := r.Values["provider"]; ok {
		s.Provider = ort.Provider(v)
	}
	if v, ok := r.Values["precision"]; ok {
		s.Precision = inference.Precision(v)
	}
	for name, to := range map[string]*int{"max-tokens": &s.MaxTokens, "streams": &s.Streams, "threads": &s.Threads} {
		if v, ok := r.Values[name]; ok {
			*to, _ = strconv.Atoi(v) // it was checked
		}
	}
	return s
}

// isOn reads a switch that was checked.
func isOn(text string) bool {
	return !slices.Contains([]string{"", "false", "0", "no"}, strings.ToLower(text))
}

// article is a kind behind its article.
func article(k models.Kind) string {
	if k == models.KindEmbedder {
		return "an " + string(k)
	}
	return "a " + string(k)
}

// catalogued finds the catalogue's entry of a reference without a revision or file.
func catalogued(ref string) (models.Entry, bool) {
	for _, e := range models.Catalogue() {
		if ref == e.ID || slices.Contains(e.Aliases, ref) {
			return e, true
		}
	}
	return models.Entry{}, false
}

// canonical is one spelling of all those of a reference.
func canonical(ref string) string {
	if e, ok := catalogued(ref); ok {
		return e.ID
	}
	return ref
}

// needed are the places of the models that a command loads: those for requests that name none, then the gates', then for a server all.
func (l lineup) needed(w want) []int {
	var out []int
	add := func(wanted bool, at int) {
		if wanted && at != none && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	add(w.embedder || w.all, l.embedder)
	add(w.reranker || w.all, l.reranker)
	add(w.gates || w.all, l.gateEmbedder)
	add(w.gates || w.all, l.gateReranker)
	for i := range l.models {
		add(w.all, i)
	}
	return out
}

// shown are the values of embedder and reranker under which the same models would serve requests that name none, were they set. They are what
// they say unless the setting models decides.
func (f modelFlags) shown(name, value string) string {
	if len(f.Models) == 0 || f.explicit == nil || f.explicit(name) {
		return value
	}
	l, problems := f.lineup()
	if len(problems) > 0 {
		return value
	}
	at := l.embedder
	if name == "reranker" {
		at = l.reranker
	}
	if at == none {
		return noModel
	}
	return l.models[at].String()
}

// checkTokens refuses limits that no model could keep: one model's beyond what its files and positions allow, and that of all models beyond
// every one's. As a bound for models of several lengths the latter may lie between them; models that take less keep their own. manifests are
// by the place in the lineup. The error names all.
func (l lineup) checkTokens(order []int, manifests map[int]models.Manifest) error {
	var errs []error
	common, longest := 0, 0 // the limit of all, and the most that a model under it takes
	for _, i := range order {
		m, ok := manifests[i]
		if !ok {
			continue
		}
		c := l.models[i]
		if !c.ownTokens {
			common, longest = c.set.MaxTokens, max(longest, m.MaxTokens)
			continue
		}
		if c.set.MaxTokens > m.MaxTokens {
			errs = append(errs, fmt.Errorf("%s: max-tokens of %s is %d, and the model takes at most %d: set %d or less, or 0 for the model's limit",
				c.where, c, c.set.MaxTokens, m.MaxTokens, m.MaxTokens))
		}
	}
	if longest > 0 && common > longest {
		errs = append(errs, fmt.Errorf("--max-tokens (RAGATE_MAX_TOKENS) is %d, and no model takes more than %d: set %d or less, or 0 for each model's limit", common, longest, longest))
	}
	return errors.Join(errs...)
}

// identityOf is what makes two models of a lineup the same one: loaded once, under both names.
type identityOf struct {
	graph            string
	kind             models.Kind
	provider         ort.Provider
	precision        inference.Precision
	maxTokens        int
	streams, threads int
}

// loading is one model to load, for one or more of the lineup.
type loading struct {
	manifest models.Manifest
	chosen   []int // places in the lineup
	names    []string
	set      inference.Settings
}

// loadings puts models of a lineup that are the same together, and names them: as their entries say, then by the names of their files where
// no other has them. manifests are by the place in the lineup; order is in what they are to be loaded.
func (l lineup) loadings(order []int, manifests map[int]models.Manifest) []loading {
	var out []loading
	at := map[identityOf]int{}
	taken := map[string]bool{}
	for _, i := range order {
		c, m := l.models[i], manifests[i]
		taken[c.name] = true
		id := identityOf{m.GraphPath, c.kind, c.set.Provider, c.set.Precision, c.set.MaxTokens, c.set.Streams, c.set.Threads}
		n, known := at[id]
		if !known {
			n = len(out)
			at[id] = n
			out = append(out, loading{manifest: m, set: c.set})
		}
		out[n].chosen = append(out[n].chosen, i)
		if c.name != "" {
			out[n].names = append(out[n].names, c.name)
		}
	}
	for i := range out {
		ld := &out[i]
		for _, name := range ld.manifest.Names() {
			if !taken[name] {
				taken[name] = true
				ld.names = append(ld.names, name)
			}
		}
		if len(ld.names) == 0 { // another has them all
			ld.names = []string{l.models[ld.chosen[0]].ref}
		}
		ld.set.Names = ld.names
	}
	return out
}
