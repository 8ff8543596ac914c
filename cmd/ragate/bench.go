package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"ragate/benchmarks"
	"ragate/benchmarks/harness"
	"ragate/inference"
	"ragate/internal/page"
	"ragate/models"
)

// benchVars are the defaults that the flags' help names.
func benchVars() kong.Vars {
	var names []string
	for _, w := range harness.Workloads() {
		names = append(names, w.Name)
	}
	return kong.Vars{"workloads": strings.Join(names, ", "), "benchRounds": strconv.Itoa(harness.DefaultRounds), "benchSeed": strconv.Itoa(harness.DefaultSeed),
		"benchWindow": shortDuration(harness.DefaultWindow), "benchWarm": shortDuration(harness.DefaultWarm),
		"benchTimeout": shortDuration(harness.DefaultTimeout), "benchBudget": shortDuration(harness.DefaultBudget)}
}

type benchCmd struct {
	Run     benchRunCmd     `cmd:"" default:"withargs" help:"Drive a server with named workloads, and say how fast right answers come. This is what bench does when it is told nothing else."`
	Compare benchCompareCmd `cmd:"" help:"Hold one result against another: the first file's figures : the second's."`
}

// benchTarget names a server. Its flags exist twice, for the server measured and for the one it is measured against.
type benchTarget struct {
	URL       string `name:"url" placeholder:"URL" help:"The server, such as http://127.0.0.1:8080."`
	Start     string `placeholder:"PROGRAM" help:"Instead of --url: start this ragate on a free port, and end it afterwards."`
	ServeArgs string `name:"serve-args" placeholder:"ARGS" help:"Arguments of serve for --start, separated by spaces."`
	Dialect   string `default:"ragate" placeholder:"NAME" help:"How the server wants to be asked: ragate, tei, infinity, jina, cohere or openai. ('${default}')"`
	Model     string `placeholder:"NAME" help:"Model to ask the server for. Default: the request names none."`
	Key       string `placeholder:"KEY" help:"API key. --key-file keeps it out of the list of processes."`
	KeyFile   string `name:"key-file" placeholder:"FILE" help:"File whose first line is the API key."`
	KeyHeader string `name:"key-header" default:"Authorization" placeholder:"NAME" help:"Header of the key; in Authorization it stands behind Bearer. ('${default}')"`
	PID       int    `name:"pid" placeholder:"N" help:"Process of the server on this machine, for CPU time and memory, its children included. Default: known with --start."`
}

type benchRunCmd struct {
	storeFlags
	benchTarget
	Against benchTarget `embed:"" prefix:"against-" group:"The server to measure against, in turns"`

	Workload []string `placeholder:"NAME" help:"Workloads: ${workloads}; or all that the servers' dialects can ask for, which is the default."`
	Clients  []int    `placeholder:"N" help:"Clients that each send their next request when the last one is answered; several: one case each. Default: 1, unless --rate is given."`
	Rate     float64  `placeholder:"R" help:"Instead: requests per second, at random distances, whether or not earlier ones are answered."`

	Rounds  int           `default:"${benchRounds}" placeholder:"N" help:"Turns of each server. ('${default}')"`
	Window  time.Duration `default:"${benchWindow}" placeholder:"TIME" help:"Measured in each turn. ('${default}')"`
	Warm    time.Duration `default:"${benchWarm}" placeholder:"TIME" help:"Load before the first turn. ('${default}')"`
	Timeout time.Duration `default:"${benchTimeout}" placeholder:"TIME" help:"Of a request. ('${default}')"`
	Budget  time.Duration `default:"${benchBudget}" placeholder:"TIME" help:"Of a chunk gate's request. ('${default}')"`
	Seed    uint64        `default:"${benchSeed}" placeholder:"N" help:"Of texts and arrivals. ('${default}')"`
	Texts   string        `placeholder:"DIR" help:"Folder in BEIR's layout (corpus.jsonl, queries.jsonl) whose texts are used. Default: 300 abstracts and 223 questions of the Cranfield collection, which the program holds."`
	Ceiling string        `default:"auto" enum:"auto,on,off" help:"Measure the raw session and the arithmetic peak in the same run: ${enum}; auto is on with --start. The server must run on the same store. ('${default}')"`

	JSONFile string `name:"json" placeholder:"FILE" help:"Write the result as JSON."`
	HTMLFile string `name:"html" placeholder:"FILE" help:"Write the result as one self-contained page with plots."`
}

func (c benchRunCmd) Run(ctx context.Context, io streams) (err error) {
	store, err := c.store(nil)
	if err != nil {
		return err
	}
	cfg := harness.Config{Rounds: c.Rounds, Window: c.Window, Warm: c.Warm, Ramp: harness.DefaultRamp, Timeout: c.Timeout, Budget: c.Budget, Seed: c.Seed, Progress: io.err}
	if c.URL == "" && c.Start == "" {
		return usagef("nothing to measure: name a server by --url, or a program by --start")
	}
	if c.Ceiling == "on" && c.Dialect != "ragate" {
		return usagef("--ceiling on: only a server of dialect ragate says how it runs its models; this one is %s", c.Dialect)
	}
	targets := []benchTarget{c.benchTarget}
	names, prefixes := []string{"A"}, []string{"--", "--against-"}
	if c.Against.URL != "" || c.Against.Start != "" {
		targets, names = append(targets, c.Against), append(names, "B")
	}
	for i, t := range targets {
		x, err := t.target(names[i], prefixes[i])
		if err != nil {
			return err
		}
		cfg.Targets = append(cfg.Targets, x)
	}
	if cfg.Cases, err = c.cases(cfg.Targets); err != nil {
		return err
	}
	manifests, err := c.encoders(ctx, store, &cfg)
	if err != nil {
		return err
	}
	if err := c.texts(&cfg); err != nil {
		return err
	}
	// What has no address yet gets one when its program runs; all else must be right before that.
	if err := cfg.Validate(); err != nil {
		return &usageError{err}
	}
	infos := make([]benchmarks.ServerInfo, len(targets))
	for i, t := range targets {
		x := &cfg.Targets[i]
		if t.Start == "" {
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			infos[i], err = benchmarks.FetchInfo(limited, x.URL, x.Header)
			cancel()
			if err != nil && (x.Dialect.Name == "ragate" || ctx.Err() != nil) { // others may have no /info
				return fmt.Errorf("%surl: %w; is a ragate running there? Another server needs its %sdialect", prefixes[i], err, prefixes[i])
			}
			continue
		}
		started, end, err := startForBench(ctx, t, store.Dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		x.URL, x.PID, infos[i] = started.URL, started.PID(), started.Info
	}
	if c.Ceiling == "on" || c.Ceiling == "auto" && c.Start != "" {
		library, err := c.library(store)
		if err != nil {
			return err
		}
		if cfg.Ceiling, err = harness.OpenCeiling(ctx, library, filepath.Join(store.Dir, "graphs"), infos[0], manifests...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cfg.Ceiling.Close()) }()
	}
	r, err := harness.Run(ctx, cfg)
	if err != nil {
		return err
	}
	r.Time, r.Version, r.Commit, r.Go, r.Machine = time.Now(), version, commit(), runtime.Version(), benchmarks.Machine()
	r.Command = c.commandLine()
	for i := range r.Servers {
		r.Servers[i].Version, r.Servers[i].Models = infos[i].Version, infos[i].Models
	}
	if cfg.Ceiling != nil {
		r.Runtime = cfg.Ceiling.RuntimeVersion()
	}
	return showBench(io, r.Page(), r.WriteFile, c.JSONFile, c.HTMLFile)
}

// commandLine is how the program was called, without the key.
func (c benchRunCmd) commandLine() string {
	line := "ragate " + strings.Join(os.Args[1:], " ")
	for _, t := range []benchTarget{c.benchTarget, c.Against} {
		if key, err := t.key(); err == nil && key != "" { // one that cannot be read was not used
			line = strings.ReplaceAll(line, key, "…")
		}
	}
	return line
}

// target checks the flags of one server; those of a program that is to be started leave the address open. prefix is the flags' own.
func (t benchTarget) target(name, prefix string) (harness.Target, error) {
	x := harness.Target{Name: name, URL: strings.TrimSuffix(t.URL, "/"), Model: t.Model, PID: t.PID}
	var err error
	if x.Dialect, err = harness.DialectNamed(t.Dialect); err != nil {
		return x, usagef("%sdialect: %v", prefix, err)
	}
	switch {
	case t.URL != "" && t.Start != "":
		return x, usagef("%surl and %sstart: a server is named or started, not both", prefix, prefix)
	case t.Start != "" && t.Dialect != "ragate":
		return x, usagef("%sstart starts ragate, which does not speak %s alone: leave %sdialect out", prefix, t.Dialect, prefix)
	case t.Start == "" && t.ServeArgs != "":
		return x, usagef("%sserve-args are for %sstart", prefix, prefix)
	case t.Start == "":
		if u, err := url.Parse(t.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return x, usagef("%surl %q: give the scheme and the host, such as http://127.0.0.1:8080", prefix, t.URL)
		}
	}
	key, err := t.key()
	if err != nil {
		return x, usagef("%skey-file: %v", prefix, err)
	}
	if key != "" {
		if http.CanonicalHeaderKey(t.KeyHeader) == "Authorization" {
			key = "Bearer " + key
		}
		x.Header = http.Header{http.CanonicalHeaderKey(t.KeyHeader): {key}}
	}
	return x, nil
}

// key is the one given, or the file's first line.
func (t benchTarget) key() (string, error) {
	if t.KeyFile == "" {
		return t.Key, nil
	}
	b, err := os.ReadFile(t.KeyFile)
	first, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(first), err
}

// cases are every workload at every load.
func (c benchRunCmd) cases(targets []harness.Target) ([]harness.Case, error) {
	var workloads []harness.Workload
	all := len(c.Workload) == 0
	for _, name := range c.Workload {
		if name == "all" {
			all = true
			continue
		}
		w, err := harness.WorkloadNamed(name)
		if err != nil {
			return nil, usagef("--workload: %v", err)
		}
		workloads = append(workloads, w)
	}
	if all {
		workloads = nil
		for _, w := range harness.Workloads() {
			can := true
			for _, t := range targets {
				can = can && t.Dialect.Does(w.Task)
			}
			if can {
				workloads = append(workloads, w)
			}
		}
	}
	if c.Rate != 0 && len(c.Clients) > 0 {
		return nil, usagef("--rate and --clients: requests come at a rate or from clients that wait for answers, not both")
	}
	clients := c.Clients
	if len(clients) == 0 {
		clients = []int{1}
	}
	var out []harness.Case
	for _, w := range workloads {
		if c.Rate != 0 {
			out = append(out, harness.Case{Workload: w, Rate: c.Rate})
			continue
		}
		for _, n := range clients {
			out = append(out, harness.Case{Workload: w, Clients: n})
		}
	}
	return out, nil
}

// encoders reads the tokenizers that texts are counted with, those of the default models, and returns the manifests of those that the cases need.
func (c benchRunCmd) encoders(ctx context.Context, store *models.Store, cfg *harness.Config) ([]models.Manifest, error) {
	var out []models.Manifest
	for _, x := range []struct {
		kind inference.Kind
		name string
		to   **benchmarks.Encoder
	}{{inference.KindEmbedder, models.DefaultEmbedder, &cfg.Encoders.Embed}, {inference.KindReranker, models.DefaultReranker, &cfg.Encoders.Rerank}} {
		m, err := store.Resolve(ctx, x.name)
		if err != nil {
			return nil, err
		}
		if m, err = m.As(models.Kind(x.kind)); err != nil {
			return nil, err
		}
		if *x.to, err = benchmarks.NewEncoder(m); err != nil {
			return nil, err
		}
		for _, k := range cfg.Cases {
			if k.Workload.Kind == x.kind && !k.Workload.Task.Gate() {
				out = append(out, m)
				break
			}
		}
	}
	return out, nil
}

// texts says where texts come from.
func (c benchRunCmd) texts(cfg *harness.Config) error {
	count := cfg.Encoders.Rerank.Count
	cfg.TextsAre = "the program's own part of Cranfield"
	cfg.Texts = func(seed uint64) (*benchmarks.Texts, error) { return benchmarks.NewTexts(seed, count) }
	if c.Texts == "" {
		return nil
	}
	_, passages, err := readDocuments(filepath.Join(c.Texts, "corpus.jsonl"))
	if err != nil {
		return err
	}
	_, queries, err := readDocuments(filepath.Join(c.Texts, "queries.jsonl"))
	if err != nil {
		return err
	}
	cfg.TextsAre = fmt.Sprintf("%s, %d passages and %d queries", filepath.Base(c.Texts), len(passages), len(queries))
	cfg.Texts = func(seed uint64) (*benchmarks.Texts, error) {
		return benchmarks.NewTextsOf(seed, passages, queries, count)
	}
	return nil
}

// startForBench starts a server on the store. end ends it and removes its log.
func startForBench(ctx context.Context, t benchTarget, dir string) (s *benchmarks.Server, end func() error, err error) {
	key, err := t.key()
	if err != nil {
		return nil, nil, err
	}
	tmp, err := os.MkdirTemp("", "ragate-bench-")
	if err != nil {
		return nil, nil, err
	}
	args := append([]string{"--data-dir", dir}, strings.Fields(t.ServeArgs)...)
	s, err = benchmarks.StartServer(ctx, benchmarks.ServerConfig{Program: t.Start, Args: args, Log: filepath.Join(tmp, "server.log"), Key: key})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the server to start: %w", err), os.RemoveAll(tmp))
	}
	return s, func() error {
		err := s.Close()
		if err == nil {
			err = os.RemoveAll(tmp)
		}
		return err
	}, nil
}

// commit is what the program was built from, "" where the build does not say.
func commit() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range b.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", with changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

type benchCompareCmd struct {
	First  string `arg:"" help:"A result that bench wrote with --json."`
	Second string `arg:"" help:"Another one."`

	JSONFile string `name:"json" placeholder:"FILE" help:"Write the comparison as JSON."`
	HTMLFile string `name:"html" placeholder:"FILE" help:"Write the comparison as one self-contained page with plots."`
}

func (c benchCompareCmd) Run(io streams) error {
	first, err := harness.ReadFile(c.First)
	if err != nil {
		return &usageError{err}
	}
	second, err := harness.ReadFile(c.Second)
	if err != nil {
		return &usageError{err}
	}
	x, err := harness.Compare(filepath.Base(c.First), first, filepath.Base(c.Second), second)
	if err != nil {
		return &usageError{err}
	}
	return showBench(io, x.Page(), x.WriteFile, c.JSONFile, c.HTMLFile)
}

// showBench writes the files that are asked for, and prints the page as text.
func showBench(io streams, p *page.Page, writeJSON func(string) error, jsonFile, htmlFile string) error {
	if jsonFile != "" {
		if err := writeJSON(jsonFile); err != nil {
			return err
		}
	}
	if htmlFile != "" {
		f, err := os.Create(htmlFile)
		if err != nil {
			return err
		}
		if err := errors.Join(p.WriteHTML(f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", htmlFile, err)
		}
	}
	return p.WriteText(io.out)
}
