package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ragate/gates"
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

// check finds what is wrong in the files that the settings name.
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

// gateModel is the embedder as the query gate needs it.
type gateModel struct{ m *inference.Model }

// EmbedQueries implements gates.Embedder. A single text is somebody waiting; many are references.
func (g gateModel) EmbedQueries(ctx context.Context, texts []string) ([]float32, int, gates.ModelTimes, error) {
	r := inference.EmbedRequest{Texts: texts, Lane: inference.LaneBulk}
	if len(texts) == 1 {
		r.Lane = inference.LaneInteractive
	}
	if _, ok := g.m.Info().Prompts["query"]; ok {
		r.Prompt = "query"
	}
	e, err := g.m.Embed(ctx, r)
	if err != nil {
		return nil, 0, gates.ModelTimes{}, modelError(err)
	}
	return e.Values, e.Dim, gates.ModelTimes(e.Timing), nil
}

// modelError lets the gates tell a full queue from other failures.
func modelError(err error) error {
	var o *inference.OverloadedError
	if errors.As(err, &o) {
		return fmt.Errorf("%w: %w", gates.ErrOverloaded, err)
	}
	return err
}

// scoringModel is the reranker as the chunk gate needs it.
type scoringModel struct{ m *inference.Model }

// Score implements gates.Scorer. A row that failed has the logit NaN; the others have theirs.
func (s scoringModel) Score(ctx context.Context, query string, texts []string, o gates.ScoreOptions) ([]gates.ChunkScore, gates.ModelTimes, error) {
	got, err := s.m.Rerank(ctx, inference.RerankRequest{Query: query, Documents: texts, Deadline: o.Deadline, Windows: o.MaxPassage, Measure: true})
	var row *inference.RowError
	if err != nil && !errors.As(err, &row) {
		return nil, gates.ModelTimes{}, modelError(err)
	}
	out := make([]gates.ChunkScore, len(texts))
	for i := range out {
		d := got.Documents[i]
		out[i] = gates.ChunkScore{Logit: got.Logits[i], Scored: true, Tokens: d.Tokens, Cut: d.Cut, Windows: d.Windows, Window: d.Window}
	}
	for _, i := range got.Unscored {
		out[i].Scored, out[i].Cut = false, 0
	}
	return out, gates.ModelTimes(got.Timing), nil
}

// identity names everything of a model that changes its answers.
func identity(i inference.Info) string {
	return strings.Join([]string{i.ID, i.SHA256, i.Provider, i.Precision, fmt.Sprint(i.MaxTokens), i.Prompts["query"]}, "|")
}

// gatekeeper builds the gates and reloads their references.
type gatekeeper struct {
	flags    gateFlags
	cacheDir string
	log      *slog.Logger
	embedder *inference.Model // the gate's
	reranker *inference.Model
	policies map[string]policy.Policy
	gates    server.Gates
	one      sync.Mutex // one reload at a time: two would mix their references among the policies
}

// openGates reads policies, rules and references, embeds the references unless the cache has them, and makes the gates.
func openGates(ctx context.Context, f gateFlags, cacheDir string, d *device, log *slog.Logger) (*gatekeeper, error) {
	k := &gatekeeper{flags: f, cacheDir: cacheDir, log: log, embedder: d.gateEmbedder, reranker: d.reranker,
		gates: server.Gates{Query: map[string]*gates.QueryGate{}, Chunks: map[string]*gates.ChunkGate{}}}
	policies, err := f.policies()
	if err != nil {
		return nil, &usageError{err}
	}
	rules, err := f.rules()
	if err != nil {
		return nil, &usageError{err}
	}
	k.policies = policies
	models := identity(d.gateEmbedder.Info()) + "||" + identity(d.reranker.Info())
	for name, p := range policies {
		if p.CalibratedFor != "" && p.CalibratedFor != fingerprintOf(models) {
			msg := fmt.Sprintf("policy %s was calibrated for models %s, and %s run: its thresholds may not mean what they did; calibrate it again", name, p.CalibratedFor, fingerprintOf(models))
			if p.OnMismatch == policy.MismatchRefuse {
				return nil, usagef("%s", msg)
			}
			log.Warn(msg)
		}
		for _, w := range p.Chunks.Warnings() {
			log.Warn("policy", "policy", name, "warning", w)
		}
		q, err := gates.NewQueryGate(p, rules, gateModel{d.gateEmbedder}, time.Now, models)
		if err != nil {
			return nil, usagef("--rules (RAGATE_RULES): %v", err)
		}
		k.gates.Query[name] = q
		k.gates.Chunks[name] = gates.NewChunkGate(p, scoringModel{d.reranker}, time.Now, models)
	}
	set, err := k.reload(ctx)
	if err != nil {
		return nil, err
	}
	k.gates.Reload = func(ctx context.Context) (server.ReferenceSet, error) { return k.reload(ctx) }
	log.Info("gates ready", "policies", len(policies), "references", set.References, "categories", set.Categories)
	return k, nil
}

// fingerprintOf shortens an identity for policy files.
func fingerprintOf(models string) string { return policy.Policy{}.Fingerprint(models) }

// reload reads the references and puts them into all gates, or leaves all as they are.
func (k *gatekeeper) reload(ctx context.Context) (server.ReferenceSet, error) {
	k.one.Lock()
	defer k.one.Unlock()
	set, err := k.set()
	if err != nil {
		return server.ReferenceSet{}, err
	}
	for name, p := range k.policies {
		if p.Query.Semantic.Off {
			continue
		}
		if _, err := set.Method(p.Query.Semantic.Method); err != nil {
			return server.ReferenceSet{}, usagef("policy %s: %v", name, err)
		}
	}
	model := identity(k.embedder.Info())
	refs, err := k.embedded(ctx, set, model)
	if err != nil {
		return server.ReferenceSet{}, err
	}
	for _, g := range k.gates.Query {
		if err := g.SetReferences(refs); err != nil { // not after the check above
			return server.ReferenceSet{}, err
		}
	}
	return server.ReferenceSet{Version: set.Version, Fingerprint: refs.Fingerprint, References: len(set.References), Categories: len(set.Categories)}, nil
}

// set reads the reference queries.
func (k *gatekeeper) set() (*semantic.Set, error) {
	set, err := k.flags.references()
	if err != nil {
		return nil, &usageError{err}
	}
	return set, nil
}

// embedded gives the references with their vectors: from the cache, or embedded now and put there.
func (k *gatekeeper) embedded(ctx context.Context, set *semantic.Set, model string) (*gates.References, error) {
	path := filepath.Join(k.cacheDir, set.Fingerprint(model)+".f32")
	dim := k.embedder.Info().Dimensions
	if v, ok := readVectors(path, len(set.References)*dim); ok {
		if r, err := gates.NewReferences(set, v, dim, model); err == nil {
			return r, nil
		}
	}
	r, v, err := gates.EmbedReferences(ctx, set, gateModel{k.embedder}, model)
	if err != nil {
		return nil, err
	}
	if err := writeVectors(path, v); err != nil {
		k.log.Warn("the references' vectors cannot be kept: the next start computes them again", "error", err.Error())
	}
	return r, nil
}

// readVectors reads n little-endian float32.
func readVectors(path string, n int) ([]float32, bool) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) != 4*n {
		return nil, false
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, true
}

func writeVectors(path string, v []float32) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return replaceFile(path, b)
}

// replaceFile writes a file in one step. A failure leaves what was there.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o644) // as the files of setup, which may have been another user's
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
