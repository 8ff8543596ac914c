package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"ragate/gates"
	"ragate/gates/language"
	"ragate/gates/pattern"
	"ragate/gates/policy"
	"ragate/gates/semantic"
	"ragate/inference"
	"ragate/server"
)

// gateFlags choose how the gates decide.
type gateFlags struct {
	Policies   []string `env:"RAGATE_POLICIES" placeholder:"FILE" help:"Policy files (YAML). One named default replaces the built-in policy."`
	References string   `env:"RAGATE_REFERENCES" placeholder:"FILE" help:"Reference queries (YAML) of the query gate's semantic stage. Default: the built-in ones."`
	Rules      []string `env:"RAGATE_RULES" placeholder:"FILE" help:"Pattern files (YAML) of the query gate, one per language. Default: the built-in ones."`
	Language   string   `name:"gate-language" env:"RAGATE_GATE_LANGUAGE" default:"note" enum:"note,off" help:"What the chunk gate does about a query in a language that the reranker's card does not name: ${enum}. ('${default}')"`
}

// policies are the built-in policy and those of the files. The error names all files that cannot be used.
func (f gateFlags) policies() (map[string]policy.Policy, error) {
	policies := map[string]policy.Policy{policy.DefaultName: policy.Default()}
	from := map[string]string{}
	var errs []error
	for _, file := range f.Policies {
		b, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("--policies (RAGATE_POLICIES): %w", err))
			continue
		}
		p, err := policy.Parse(file, b)
		if err != nil {
			errs = append(errs, fmt.Errorf("--policies (RAGATE_POLICIES): %w", err))
			continue
		}
		if other := from[p.Name]; other != "" {
			errs = append(errs, fmt.Errorf("--policies (RAGATE_POLICIES): %s and %s are both named %s", other, file, p.Name))
			continue
		}
		policies[p.Name], from[p.Name] = p, file
	}
	return policies, errors.Join(errs...)
}

// rules are the pattern files, or the built-in ones. The error names all files that cannot be read.
func (f gateFlags) rules() ([]pattern.File, error) {
	if len(f.Rules) == 0 {
		return pattern.Default(), nil
	}
	var rules []pattern.File
	var errs []error
	for _, file := range f.Rules {
		b, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("--rules (RAGATE_RULES): %w", err))
			continue
		}
		rules = append(rules, pattern.File{Name: file, Data: b})
	}
	return rules, errors.Join(errs...)
}

// references are the reference queries, or the built-in ones.
func (f gateFlags) references() (*semantic.Set, error) {
	data := semantic.Default()
	if f.References != "" {
		b, err := os.ReadFile(f.References)
		if err != nil {
			return nil, fmt.Errorf("--references (RAGATE_REFERENCES): %w", err)
		}
		data = b
	}
	set, err := semantic.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("--references (RAGATE_REFERENCES): %w", err)
	}
	return set, nil
}

// checkFiles finds what is wrong in the files that the settings name.
func (f gateFlags) checkFiles() []error {
	policies, err := f.policies()
	errs := []error{err}
	rules, err := f.rules()
	errs = append(errs, err)
	if err == nil {
		for _, p := range policies {
			if _, err := pattern.New(rules, pattern.Options{Length: p.Query.LengthRule, Glossary: p.Query.Glossary}); err != nil {
				errs = append(errs, fmt.Errorf("--rules (RAGATE_RULES): %w", err))
				break // the files are the same for every policy
			}
		}
	}
	set, err := f.references()
	errs = append(errs, err)
	if err == nil {
		for name, p := range policies {
			if p.Query.Semantic.Off {
				continue
			}
			if _, err := set.Method(p.Query.Semantic.Method); err != nil {
				errs = append(errs, fmt.Errorf("policy %s: %w", name, err))
			}
		}
	}
	return errs
}

// gatekeeper builds the gates and reloads their references.
type gatekeeper struct {
	flags    gateFlags
	cache    vectorCache
	log      *slog.Logger
	keep     *keeping         // what need not be computed twice; nil: nothing is kept
	embedder *inference.Model // the query gate's; nil where it decides by patterns alone
	policies map[string]policy.Policy
	gates    server.Gates
	one      sync.Mutex   // one reload at a time: two would mix their references among the policies
	running  policy.Basis // guarded by one once the gates are in use
}

// openGates reads policies, rules and references, embeds the references unless the cache has them, and makes the gates.
func openGates(ctx context.Context, f gateFlags, cacheDir string, d *device, keep *keeping, log *slog.Logger) (*gatekeeper, error) {
	policies, err := f.policies()
	if err != nil {
		return nil, &usageError{err}
	}
	rules, err := f.rules()
	if err != nil {
		return nil, &usageError{err}
	}
	k := &gatekeeper{flags: f, cache: vectorCache{cacheDir}, log: log, keep: keep, embedder: d.gateEmbedder, policies: policies,
		running: policy.Basis{Rules: policy.Fingerprint(textsOf(rules)...), Embedder: noModel, References: noModel, Reranker: noModel},
		gates:   server.Gates{Query: map[string]*gates.QueryGate{}, Chunks: map[string]*gates.ChunkGate{}}}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		p := policies[name]
		for _, w := range p.Chunks.Warnings() {
			log.Warn("policy", "policy", name, "warning", w)
		}
	}
	if err := k.makeQueryGates(rules); err != nil {
		return nil, err
	}
	k.makeChunkGates(d.gateReranker)
	said := []any{"policies", len(policies), "embedder", orNone(k.gates.Embedder), "reranker", orNone(k.gates.Reranker)}
	switch {
	case k.embedder != nil:
		set, err := k.reload(ctx)
		if err != nil {
			return nil, err
		}
		k.gates.Reload = k.reload
		said = append(said, "references", set.References, "categories", set.Categories)
	default:
		if err := k.checkAlone(); err != nil {
			return nil, err
		}
	}
	log.Info("gates ready", said...)
	return k, nil
}

// orNone is a model's name, or that there is none.
func orNone(name string) string {
	if name == "" {
		return noModel
	}
	return name
}

// makeQueryGates makes the query gate of each policy, without references.
func (k *gatekeeper) makeQueryGates(rules []pattern.File) error {
	var embedder gates.Embedder
	var parts []string
	if k.embedder != nil {
		info := k.embedder.Info()
		embedder, parts = gateModel{k.keep.front(k.embedder)}, []string{identity(info)}
		k.gates.Embedder, k.running.Embedder = info.ID, policy.Fingerprint(parts...)
	}
	for name, p := range k.policies {
		q, err := gates.NewQueryGate(p, rules, embedder, time.Now, parts...)
		if err != nil {
			return usagef("--rules (RAGATE_RULES): %v", err)
		}
		if k.keep != nil {
			q.SetMemo(k.keep.memo())
		}
		k.gates.Query[name] = q
	}
	return nil
}

// makeChunkGates makes the chunk gate of each policy; without a reranker there is none.
func (k *gatekeeper) makeChunkGates(reranker *inference.Model) {
	if reranker == nil {
		return
	}
	info := reranker.Info()
	part := identity(info)
	k.gates.Reranker, k.running.Reranker = info.ID, policy.Fingerprint(part)
	for name, p := range k.policies {
		g := gates.NewChunkGate(p, scoringModel{k.keep.front(reranker)}, time.Now, part).Noting(k.flags.noting(info))
		if k.keep != nil {
			g.SetMemo(k.keep.memo())
		}
		k.gates.Chunks[name] = g
	}
}

// checkAlone checks the policies where there are no references for want of an embedder.
func (k *gatekeeper) checkAlone() error {
	warnings, err := mismatches(k.policies, k.running)
	for _, w := range warnings {
		k.log.Warn(w)
	}
	return err
}

// noting says what a reranker is for, where a query in another language is to be noted.
func (f gateFlags) noting(i inference.Info) gates.Languages {
	if f.Language == "off" {
		return gates.Languages{}
	}
	return gates.Languages{Detector: language.Words{}, Model: i.ID, Of: i.Languages}
}

func textsOf(files []pattern.File) []string {
	texts := make([]string, len(files))
	for i, f := range files {
		texts[i] = string(f.Data)
	}
	return texts
}

// reload reads the references and puts them into all gates, or leaves all as they are.
func (k *gatekeeper) reload(ctx context.Context) (server.ReferenceSet, error) {
	k.one.Lock()
	defer k.one.Unlock()
	set, err := k.flags.references()
	if err != nil {
		return server.ReferenceSet{}, &usageError{err}
	}
	running := k.running
	running.References = policy.Fingerprint(set.Fingerprint("")) // the model has a part of its own
	warnings, err := checkPolicies(k.policies, set, running, k.embedder.Info())
	if err != nil {
		return server.ReferenceSet{}, err
	}
	for _, w := range warnings {
		k.log.Warn(w)
	}
	refs, err := embedReferences(ctx, set, k.embedder, k.cache, k.log)
	if err != nil {
		return server.ReferenceSet{}, err
	}
	for _, g := range k.gates.Query {
		if err := g.SetReferences(refs); err != nil { // not after the check
			return server.ReferenceSet{}, err
		}
	}
	k.running = running
	return server.ReferenceSet{Version: set.Version, Fingerprint: refs.Fingerprint, References: len(set.References), Categories: len(set.Categories)}, nil
}

// checkPolicies refuses references that lack a policy's method, and policies that were calibrated on something else than runs, or warns of
// them where the policy says so. It also warns of references that have no thresholds for the embedder.
func checkPolicies(policies map[string]policy.Policy, set *semantic.Set, running policy.Basis, embedder inference.Info) (warnings []string, err error) {
	bare := false // a policy takes the set's own threshold
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if s := policies[name].Query.Semantic; !s.Off {
			if _, err := set.Method(s.Method); err != nil {
				return nil, usagef("policy %s: %v", name, err)
			}
			bare = bare || s.Threshold == nil
		}
	}
	if warnings, err = mismatches(policies, running); err != nil {
		return nil, err
	}
	if w := uncalibrated(set, embedder); bare && w != "" {
		warnings = append(warnings, w)
	}
	return warnings, nil
}

// mismatches finds policies that were calibrated on something else than runs: an error where the policy says so, else a warning.
func mismatches(policies map[string]policy.Policy, running policy.Basis) (warnings []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		p := policies[name]
		d := p.CalibratedFor.Differences(running)
		if len(d) == 0 {
			continue
		}
		msg := fmt.Sprintf("policy %s was calibrated for %s: its thresholds may not mean what they did; calibrate it again", name, strings.Join(d, "; "))
		if p.OnMismatch == policy.MismatchRefuse {
			return nil, usagef("%s, or set on_mismatch: warn", msg)
		}
		warnings = append(warnings, msg)
	}
	return warnings, nil
}

// embedReferences gives a set with its vectors, from the cache, or embedded now and put there, and with the numbers that fit the embedder.
func embedReferences(ctx context.Context, set *semantic.Set, embedder *inference.Model, cache vectorCache, log *slog.Logger) (*gates.References, error) {
	info := embedder.Info()
	model := identity(info)
	fingerprint := set.Fingerprint(model)
	set, known := set.For(modelNames(info)...)
	calibrated := func(r *gates.References) (*gates.References, error) {
		if known {
			return r, nil
		}
		var err error
		r.Index, err = r.Index.Recalibrate(info.ID)
		return r, err
	}
	if v, ok := cache.read(fingerprint, len(set.References)*info.Dimensions); ok {
		if r, err := gates.NewReferences(set, v, info.Dimensions, model); err == nil {
			return calibrated(r)
		}
	}
	r, v, err := gates.EmbedReferences(ctx, set, gateModel{embedder}, model)
	if err != nil {
		return nil, err
	}
	if err := cache.write(fingerprint, v); err != nil {
		log.Warn("the references' vectors cannot be kept: the next start computes them again", "error", err.Error())
	}
	return calibrated(r)
}
