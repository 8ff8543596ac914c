package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"ragate/gates"
	"ragate/gates/evaluate"
	"ragate/gates/evaluate/report"
	"ragate/gates/evaluate/synonyms"
	"ragate/gates/quality"
	"ragate/gates/semantic"
	"ragate/inference"
	"ragate/simd"
)

type evalCmd struct {
	Query  evalQueryCmd  `cmd:"" help:"Measure the query gate on labelled turns."`
	Chunks evalChunksCmd `cmd:"" help:"Measure the chunk gate on a labelled collection."`
}

// evalWorkers is how many turns are decided at once: enough to keep every stream busy with full batches.
const evalWorkers = 16

// reportFlags say where the report goes.
type reportFlags struct {
	JSONFile string `name:"json" placeholder:"FILE" help:"Write the report as JSON."`
	HTMLFile string `name:"html" placeholder:"FILE" help:"Write the report as one self-contained page."`
}

func (f reportFlags) write(r *report.Report, out io.Writer) error {
	for _, target := range []struct {
		file  string
		write func(io.Writer) error
	}{{f.JSONFile, r.WriteJSON}, {f.HTMLFile, r.WriteHTML}} {
		if target.file == "" {
			continue
		}
		w, err := os.Create(target.file)
		if err != nil {
			return err
		}
		if err := target.write(w); err != nil {
			w.Close()
			return fmt.Errorf("%s: %w", target.file, err)
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	return r.WriteText(out)
}

// queryDataFlags name the labelled turns.
type queryDataFlags struct {
	Data string `required:"" placeholder:"FILE" help:"Labelled turns, one JSON object a line: text, label (knowledge or chitchat), and optionally lang, category, history."`
}

// labelledTurn is one line of the data.
type labelledTurn struct {
	Text     string       `json:"text"`
	Label    string       `json:"label"`
	Lang     string       `json:"lang"`
	Category string       `json:"category"`
	History  []gates.Turn `json:"history"`
}

func (f queryDataFlags) read() ([]labelledTurn, error) {
	var turns []labelledTurn
	err := eachLine(f.Data, func(n int, line []byte) error {
		var t labelledTurn
		if err := json.Unmarshal(line, &t); err != nil {
			return err
		}
		if t.Label != string(evaluate.Knowledge) && t.Label != string(evaluate.Chitchat) {
			return fmt.Errorf("label is %q: it must be knowledge or chitchat", t.Label)
		}
		turns = append(turns, t)
		return nil
	})
	if err == nil && len(turns) == 0 {
		err = usagef("--data %s holds no turns", f.Data)
	}
	return turns, err
}

// eachLine reads a file of JSON lines. Errors name the line.
func eachLine(file string, f func(n int, line []byte) error) error {
	r, err := os.Open(file)
	if err != nil {
		return &usageError{err}
	}
	defer r.Close()
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; s.Scan(); n++ {
		if len(strings.TrimSpace(s.Text())) == 0 {
			continue
		}
		if err := f(n, s.Bytes()); err != nil {
			return usagef("%s:%d: %v", file, n, err)
		}
	}
	return s.Err()
}

type evalQueryCmd struct {
	storeFlags
	modelFlags
	gateFlags
	policyFlag
	queryDataFlags
	reportFlags
	Robustness bool `help:"Decide each turn again in other words, and report whose decisions flip."`
}

func (c evalQueryCmd) Run(ctx context.Context, io streams) error {
	turns, err := c.read()
	if err != nil {
		return err
	}
	d, k, err := openForGates(ctx, c.storeFlags, c.modelFlags, c.gateFlags, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	g, err := pickGate(k.gates.Query, c.Policy)
	if err != nil {
		return err
	}
	got, ref, err := decideTurns(ctx, g, turns)
	if err != nil {
		return err
	}
	res, err := evaluate.Queries(got, evaluate.QueryOptions{})
	if err != nil {
		return err
	}
	r := &report.Report{Title: "Query gate", Created: stamp(), Command: commandLine(os.Args[1:]), Query: res, Advice: evaluate.AdviseQuery(res), Facts: k.facts(c.Data, ref)}
	if c.Robustness {
		if r.Robustness, err = flips(ctx, g, turns, got); err != nil {
			return err
		}
	}
	return c.write(r, io.out)
}

// decideTurns runs the gate over the turns, many at once.
func decideTurns(ctx context.Context, g *gates.QueryGate, turns []labelledTurn) ([]evaluate.QueryTurn, gates.PolicyRef, error) {
	out := make([]evaluate.QueryTurn, len(turns))
	var ref gates.PolicyRef
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(evalWorkers)
	for i, t := range turns {
		group.Go(func() error {
			d := g.Decide(ctx, gates.QueryRequest{Text: t.Text, History: t.History})
			if d.Err != nil {
				return fmt.Errorf("turn %d: %w", i+1, d.Err)
			}
			out[i] = evaluate.QueryTurn{Text: t.Text, Label: evaluate.Label(t.Label), Lang: t.Lang, Domain: t.Category,
				Bypassed: !d.NeedsRetrieval, Stage: string(d.Stage), Score: thresholdScore(d.Semantic)}
			if i == 0 {
				ref = d.Policy
			}
			return nil
		})
	}
	return out, ref, group.Wait()
}

// thresholdScore is the score that a threshold decides on, NaN where another threshold would not change the decision: no semantic stage ran,
// or one of its guards spoke.
func thresholdScore(v *semantic.Verdict) float64 {
	if v == nil || v.Top.Kind != semantic.NonRetrieval || v.Score >= v.Threshold && !v.Bypass {
		return math.NaN()
	}
	return v.Score
}

// flips decides every turn in other words.
func flips(ctx context.Context, g *gates.QueryGate, turns []labelledTurn, before []evaluate.QueryTurn) (*evaluate.FlipResult, error) {
	word := map[bool]string{true: "bypass", false: "retrieve"}
	var again []labelledTurn
	var pairs []evaluate.Pair
	thesaurus := synonyms.Default()
	for i, t := range turns {
		for _, v := range thesaurus.Reword(t.Text, t.Lang) {
			again = append(again, labelledTurn{Text: v.Text, Label: t.Label, Lang: t.Lang, Category: t.Category, History: t.History})
			pairs = append(pairs, evaluate.Pair{Kind: v.Kind, Original: t.Text, Variant: v.Text, Label: t.Label, Before: word[before[i].Bypassed]})
		}
	}
	after, _, err := decideTurns(ctx, g, again)
	if err != nil {
		return nil, err
	}
	for i := range pairs {
		pairs[i].After = word[after[i].Bypassed]
	}
	return evaluate.Flips(pairs, evaluate.DefaultConfidence, evaluate.DefaultExamples)
}

// facts are what a report says of its circumstances.
func (k *gatekeeper) facts(data string, ref gates.PolicyRef) []report.Fact {
	e, r := k.embedder.Info(), k.reranker.Info()
	return []report.Fact{
		{Name: "data", Value: filepath.Base(data)}, {Name: "policy", Value: ref.Name + " " + ref.Fingerprint},
		{Name: "embedder", Value: fmt.Sprintf("%s, %s on %s", e.ID, e.Precision, e.Provider)},
		{Name: "reranker", Value: fmt.Sprintf("%s, %s on %s", r.ID, r.Precision, r.Provider)},
		{Name: "models", Value: k.models()}, {Name: "version", Value: version},
	}
}

// chunkDataFlags name the labelled collection.
type chunkDataFlags struct {
	Data     string `required:"" placeholder:"DIR" help:"Labelled collection in BEIR's layout: corpus.jsonl, queries.jsonl and qrels.tsv."`
	Retrieve int    `default:"20" placeholder:"K" help:"Chunks retrieved for each query with the embedder. ('${default}')"`
	Limit    int    `placeholder:"N" help:"Only the first N queries."`
}

type evalChunksCmd struct {
	storeFlags
	modelFlags
	gateFlags
	policyFlag
	chunkDataFlags
	reportFlags
	Robustness bool   `help:"Ask each query again in other words, and report which chunks' decisions flip."`
	Lang       string `default:"en" placeholder:"LANG" help:"Language of the queries, for --robustness. ('${default}')"`
	TopK       int    `name:"top-k" default:"5" placeholder:"K" help:"Chunks that would be the context without a gate. ('${default}')"`
}

func (c evalChunksCmd) Run(ctx context.Context, io streams) error {
	set, err := c.read()
	if err != nil {
		return err
	}
	d, k, err := openForGates(ctx, c.storeFlags, c.modelFlags, c.gateFlags, io)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	g, err := pickGate(k.gates.Chunks, c.Policy)
	if err != nil {
		return err
	}
	requests, err := c.retrieve(ctx, set, d)
	if err != nil {
		return err
	}
	turns, err := set.decide(ctx, requests, g)
	if err != nil {
		return err
	}
	res, err := evaluate.Chunks(turns, evaluate.ChunkOptions{TopK: c.TopK})
	if err != nil {
		return err
	}
	r := &report.Report{Title: "Chunk gate", Created: stamp(), Command: commandLine(os.Args[1:]), Chunks: res, Advice: evaluate.AdviseChunks(res), Facts: k.facts(c.Data, g.Policy())}
	if c.Robustness {
		if r.Robustness, err = set.flips(ctx, requests, turns, g, c.Lang); err != nil {
			return err
		}
	}
	return c.write(r, io.out)
}

// flips asks every query again in other words, with the chunks that were retrieved for it as it was written.
func (c *collection) flips(ctx context.Context, requests []request, before []evaluate.ChunkTurn, g *gates.ChunkGate, lang string) (*evaluate.FlipResult, error) {
	word := map[bool]string{true: "kept", false: "dropped"}
	thesaurus := synonyms.Default()
	var again []request
	var pairs []evaluate.Pair
	for i, r := range requests {
		for _, v := range thesaurus.Reword(c.querys[r.query], lang) {
			r := r
			r.text = v.Text
			again = append(again, r)
			for k, ch := range before[i].Chunks {
				label := "not relevant"
				if ch.Grade > 0 {
					label = "relevant"
				}
				pairs = append(pairs, evaluate.Pair{Kind: v.Kind, Original: c.querys[r.query], Variant: v.Text, Item: c.ids[r.rows[k]], Label: label,
					Before: word[ch.Decision.Returned()]})
			}
		}
	}
	after, err := c.decide(ctx, again, g)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, t := range after {
		for _, ch := range t.Chunks {
			pairs[n].After = word[ch.Decision.Returned()]
			n++
		}
	}
	return evaluate.Flips(pairs, evaluate.DefaultConfidence, evaluate.DefaultExamples)
}

// collection is a labelled collection of texts.
type collection struct {
	ids, texts       []string
	queryIDs, querys []string
	grades           map[string]map[string]int // query → text → grade
}

func (f chunkDataFlags) read() (*collection, error) {
	if f.Retrieve < 1 {
		return nil, usagef("--retrieve is %d: it must be at least 1", f.Retrieve)
	}
	c := &collection{grades: map[string]map[string]int{}}
	type document struct {
		ID    string `json:"_id"`
		Title string `json:"title"`
		Text  string `json:"text"`
	}
	read := func(name string, f func(document)) error {
		return eachLine(name, func(_ int, line []byte) error {
			var d document
			if err := json.Unmarshal(line, &d); err != nil {
				return err
			}
			f(d)
			return nil
		})
	}
	if err := read(filepath.Join(f.Data, "corpus.jsonl"), func(d document) {
		text := d.Text
		if d.Title != "" && !strings.HasPrefix(d.Text, d.Title) {
			text = d.Title + ". " + d.Text
		}
		c.ids, c.texts = append(c.ids, d.ID), append(c.texts, text)
	}); err != nil {
		return nil, err
	}
	if err := read(filepath.Join(f.Data, "queries.jsonl"), func(d document) {
		c.queryIDs, c.querys = append(c.queryIDs, d.ID), append(c.querys, d.Text)
	}); err != nil {
		return nil, err
	}
	err := eachLine(filepath.Join(f.Data, "qrels.tsv"), func(n int, line []byte) error {
		parts := strings.Split(string(line), "\t")
		if n == 1 && len(parts) > 0 && parts[0] == "query-id" {
			return nil
		}
		if len(parts) != 3 {
			return fmt.Errorf("%d columns: it must have query-id, corpus-id and score, separated by tabs", len(parts))
		}
		grade, err := strconv.Atoi(parts[2])
		if err != nil {
			return fmt.Errorf("score is %q: it must be a whole number", parts[2])
		}
		if c.grades[parts[0]] == nil {
			c.grades[parts[0]] = map[string]int{}
		}
		c.grades[parts[0]][parts[1]] = grade
		return nil
	})
	if err == nil && (len(c.ids) == 0 || len(c.querys) == 0) {
		err = usagef("--data %s holds no texts or no queries", f.Data)
	}
	if f.Limit > 0 && f.Limit < len(c.querys) {
		c.queryIDs, c.querys = c.queryIDs[:f.Limit], c.querys[:f.Limit]
	}
	return c, err
}

// request is one query with what was retrieved for it.
type request struct {
	query        int    // in the collection
	text         string // as it is asked
	rows         []int  // of the texts, best first
	similarities []float64
}

// retrieve finds the texts nearest to each query with the embedder.
func (f chunkDataFlags) retrieve(ctx context.Context, c *collection, d *device) ([]request, error) {
	embed := func(texts []string, prompt string) (*simd.Matrix, error) {
		m := simd.New(d.embedder.Info().Dimensions, 0)
		m.Grow(len(texts))
		if _, ok := d.embedder.Info().Prompts[prompt]; !ok {
			prompt = ""
		}
		for at := 0; at < len(texts); at += commandBatch {
			e, err := d.embedder.Embed(ctx, inference.EmbedRequest{Texts: texts[at:min(at+commandBatch, len(texts))], Prompt: prompt})
			if err != nil {
				return nil, err
			}
			for i := range len(e.Values) / e.Dim {
				m.Append(e.Row(i))
			}
		}
		return m, nil
	}
	corpus, err := embed(c.texts, "passage")
	if err != nil {
		return nil, err
	}
	queries, err := embed(c.querys, "query")
	if err != nil {
		return nil, err
	}
	out := make([]request, len(c.querys))
	for i := range out {
		out[i] = request{query: i, text: c.querys[i]}
		for _, m := range corpus.AppendTopK(nil, queries.Row(i), f.Retrieve) {
			out[i].rows, out[i].similarities = append(out[i].rows, m.Index), append(out[i].similarities, float64(m.Score))
		}
	}
	return out, nil
}

// evalTurns is how many turns of the chunk gate are decided at once; each is many rows.
const evalTurns = 4

// decide lets the gate decide on each request, without a budget.
func (c *collection) decide(ctx context.Context, requests []request, g *gates.ChunkGate) ([]evaluate.ChunkTurn, error) {
	turns := make([]evaluate.ChunkTurn, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(evalTurns)
	for i, q := range requests {
		group.Go(func() error {
			r := gates.ChunkRequest{Query: q.text}
			t := evaluate.ChunkTurn{Query: q.text}
			grades := c.grades[c.queryIDs[q.query]]
			for k, at := range q.rows {
				r.Chunks = append(r.Chunks, quality.Chunk{Text: c.texts[at], Similarity: &q.similarities[k]})
				t.Chunks = append(t.Chunks, evaluate.Chunk{Similarity: q.similarities[k], Grade: grades[c.ids[at]], Relevance: math.NaN(), Logit: math.NaN()})
			}
			for _, grade := range grades {
				t.Ideal = append(t.Ideal, grade)
			}
			got, err := g.Decide(ctx, r)
			if err != nil {
				return err
			}
			if got.Err != nil {
				return got.Err
			}
			t.Type, t.Threshold = string(got.Stats.QueryType), float64(got.Stats.Threshold)
			t.FallbackTriggered, t.Insufficient = got.Stats.FallbackTriggered, got.InsufficientContext
			for _, list := range [][]quality.Result{got.Chunks, got.Dropped} {
				for _, one := range list {
					ch := &t.Chunks[one.Index]
					ch.Decision = evaluate.Decision(one.Outcome)
					if one.Scored {
						ch.Relevance, ch.Logit = float64(one.Relevance), float64(one.Logit)
					}
				}
			}
			turns[i] = t
			return nil
		})
	}
	return turns, group.Wait()
}
