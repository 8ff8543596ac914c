package main

import (
	"context"
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
	Chunks evalChunksCmd `cmd:"" help:"Measure the chunk gate on a labelled collection, or on labelled requests."`
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

// report begins the report on a session's data.
func (s *session) report(title, data string, decidedBy gates.PolicyRef) *report.Report {
	b := s.keeper.running
	return &report.Report{Title: title, Created: stamp(), Command: "ragate " + strings.Join(os.Args[1:], " "), Facts: []report.Fact{
		{Name: "data", Value: filepath.Base(data)}, {Name: "policy", Value: decidedBy.Name + " " + decidedBy.Fingerprint},
		{Name: "embedder", Value: described(s.gateEmbedder, b.Embedder)},
		{Name: "reranker", Value: described(s.gateReranker, b.Reranker)},
		{Name: "references", Value: b.References}, {Name: "rules", Value: b.Rules}, {Name: "version", Value: version},
	}}
}

// described is a gate's model in a report.
func described(m *inference.Model, fingerprint string) string {
	if m == nil {
		return noModel
	}
	i := m.Info()
	return fmt.Sprintf("%s, %s on %s (%s)", i.Source, i.Precision, i.Provider, fingerprint)
}

// queryDataFlags name the labelled turns.
type queryDataFlags struct {
	Data string `required:"" placeholder:"FILE" help:"Labelled turns, one JSON object a line: text, label (knowledge or chitchat), and optionally lang, category, history."`
}

type evalQueryCmd struct {
	gateSetup
	queryDataFlags
	reportFlags
	Robustness bool `help:"Decide each turn again in other words, and report whose decisions flip."`
}

func (c evalQueryCmd) Run(ctx context.Context, io streams) error {
	turns, err := readTurns(c.Data)
	if err != nil {
		return err
	}
	s, err := c.open(ctx, io)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	got, err := decideTurns(ctx, s.query, turns)
	if err != nil {
		return err
	}
	res, err := evaluate.Queries(got.turns, evaluate.QueryOptions{})
	if err != nil {
		return err
	}
	r := s.report("Query gate", c.Data, got.policy)
	r.Query, r.Advice = res, evaluate.AdviseQuery(res)
	if c.Robustness {
		if r.Robustness, err = flips(ctx, s.query, turns, got.turns); err != nil {
			return err
		}
	}
	return c.write(r, io.out)
}

// decided is what the query gate made of labelled turns.
type decided struct {
	turns  []evaluate.QueryTurn
	policy gates.PolicyRef
	method string // of the semantic stage, "" where it decided nothing
}

// decideTurns runs the gate over the turns, many at once.
func decideTurns(ctx context.Context, g *gates.QueryGate, turns []labelledTurn) (decided, error) {
	decisions := make([]gates.QueryDecision, len(turns))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(evalWorkers)
	for i, t := range turns {
		group.Go(func() error {
			decisions[i] = g.Decide(ctx, gates.QueryRequest{Text: t.text, History: t.history})
			if err := decisions[i].Err; err != nil {
				return fmt.Errorf("turn %d: %w", i+1, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return decided{}, err
	}
	var out decided
	for i, d := range decisions {
		t := turns[i]
		out.turns = append(out.turns, evaluate.QueryTurn{Text: t.text, Label: evaluate.Label(t.label), Lang: t.lang, Domain: t.category,
			Bypassed: !d.NeedsRetrieval, Stage: string(d.Stage), Score: thresholdScore(d.Semantic)})
		out.policy = d.Policy
		if d.Semantic != nil {
			out.method = d.Semantic.Method
		}
	}
	return out, nil
}

// thresholdScore is the score that a threshold decides on, NaN where another threshold would not change the decision: no semantic stage ran,
// or one of its guards spoke.
func thresholdScore(v *semantic.Verdict) float64 {
	if v == nil || v.Guarded {
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
		for _, v := range thesaurus.Reword(t.text, t.lang) {
			again = append(again, labelledTurn{text: v.Text, label: t.label, lang: t.lang, category: t.category, history: t.history})
			pairs = append(pairs, evaluate.Pair{Kind: v.Kind, Original: t.text, Variant: v.Text, Label: t.label, Before: word[before[i].Bypassed]})
		}
	}
	after, err := decideTurns(ctx, g, again)
	if err != nil {
		return nil, err
	}
	for i := range pairs {
		pairs[i].After = word[after.turns[i].Bypassed]
	}
	return evaluate.Flips(pairs, evaluate.DefaultConfidence, evaluate.DefaultExamples)
}

// chunkDataFlags name the labelled requests.
type chunkDataFlags struct {
	Data     string `required:"" placeholder:"PATH" help:"A folder in BEIR's layout: corpus.jsonl, queries.jsonl and qrels.tsv or qrels/SPLIT.tsv. Or a file of requests, one JSON object a line: query, and chunks of text and relevant (true or false) or grade."`
	Split    string `default:"test" placeholder:"NAME" help:"Judgements of a folder that has several: qrels/NAME.tsv. ('${default}')"`
	Retrieve int    `default:"20" placeholder:"K" help:"Chunks retrieved for each query of a folder with the embedder. ('${default}')"`
	Limit    int    `placeholder:"N" help:"Only the first N queries."`
}

// source is labelled requests, or a collection to retrieve them from.
type source struct {
	requests   []labelledRequest
	collection *collection
}

func (f chunkDataFlags) read() (source, error) {
	if f.Retrieve < 1 {
		return source{}, usagef("--retrieve is %d: it must be at least 1", f.Retrieve)
	}
	if f.Limit < 0 {
		return source{}, usagef("--limit is %d: it must be at least 1", f.Limit)
	}
	info, err := os.Stat(f.Data)
	if err != nil {
		return source{}, usagef("--data: %v", err)
	}
	if !info.IsDir() {
		requests, err := readRequests(f.Data)
		if f.Limit > 0 {
			requests = requests[:min(f.Limit, len(requests))]
		}
		return source{requests: requests}, err
	}
	c, err := readCollection(f.Data, f.Split)
	if err == nil && f.Limit > 0 {
		n := min(f.Limit, len(c.querys))
		c.queryIDs, c.querys = c.queryIDs[:n], c.querys[:n]
	}
	return source{collection: c}, err
}

// get returns the requests; for a collection they are the texts nearest to each query by the embedder.
func (f chunkDataFlags) get(ctx context.Context, from source, embedder *inference.Model) ([]labelledRequest, error) {
	c := from.collection
	if c == nil {
		return from.requests, nil
	}
	if embedder == nil {
		return nil, usagef("there is no embedder to retrieve the collection's documents with: see --embedder and --models")
	}
	corpus, err := embedAll(ctx, embedder, c.texts, "passage")
	if err != nil {
		return nil, err
	}
	queries, err := embedAll(ctx, embedder, c.querys, "query")
	if err != nil {
		return nil, err
	}
	out := make([]labelledRequest, len(c.querys))
	for i, text := range c.querys {
		grades := c.grades[c.queryIDs[i]]
		r := labelledRequest{query: text, ideal: []int{}}
		for _, g := range grades {
			r.ideal = append(r.ideal, g)
		}
		for _, m := range corpus.AppendTopK(nil, queries.Row(i), f.Retrieve) {
			similarity := float64(m.Score)
			r.chunks = append(r.chunks, labelledChunk{id: c.ids[m.Index], grade: grades[c.ids[m.Index]],
				chunk: quality.Chunk{Text: c.texts[m.Index], Similarity: &similarity}})
		}
		out[i] = r
	}
	return out, nil
}

// embedAll embeds texts in requests of commandBatch, with the prompt where the model has it.
func embedAll(ctx context.Context, m *inference.Model, texts []string, prompt string) (*simd.Matrix, error) {
	if _, ok := m.Info().Prompts[prompt]; !ok {
		prompt = ""
	}
	all := simd.New(m.Info().Dimensions, 0)
	all.Grow(len(texts))
	for at := 0; at < len(texts); at += commandBatch {
		e, err := m.Embed(ctx, inference.EmbedRequest{Texts: texts[at:min(at+commandBatch, len(texts))], Prompt: prompt})
		if err != nil {
			return nil, err
		}
		for i := range len(e.Values) / e.Dim {
			all.Append(e.Row(i))
		}
	}
	return all, nil
}

type evalChunksCmd struct {
	gateSetup
	chunkDataFlags
	reportFlags
	Robustness bool   `help:"Ask each query again in other words, and report which chunks' decisions flip."`
	Lang       string `default:"en" placeholder:"LANG" help:"Language of the queries, for --robustness. ('${default}')"`
	TopK       int    `name:"top-k" default:"5" placeholder:"K" help:"Chunks that would be the context without a gate. ('${default}')"`
}

func (c evalChunksCmd) Run(ctx context.Context, io streams) error {
	if c.TopK < 1 {
		return usagef("--top-k is %d: it must be at least 1", c.TopK)
	}
	data, err := c.read()
	if err != nil {
		return err
	}
	s, err := c.open(ctx, io)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := s.needChunks(); err != nil {
		return err
	}
	requests, err := c.get(ctx, data, s.embedder)
	if err != nil {
		return err
	}
	turns, err := decideRequests(ctx, s.chunks, requests)
	if err != nil {
		return err
	}
	res, err := evaluate.Chunks(turns, evaluate.ChunkOptions{TopK: c.TopK})
	if err != nil {
		return err
	}
	r := s.report("Chunk gate", c.Data, s.chunks.Policy())
	r.Chunks, r.Advice = res, evaluate.AdviseChunks(res)
	if c.Robustness {
		if r.Robustness, err = chunkFlips(ctx, s.chunks, requests, turns, c.Lang); err != nil {
			return err
		}
	}
	return c.write(r, io.out)
}

// chunkFlips asks every query again in other words, with the chunks that were retrieved for it as it was written.
func chunkFlips(ctx context.Context, g *gates.ChunkGate, requests []labelledRequest, before []evaluate.ChunkTurn, lang string) (*evaluate.FlipResult, error) {
	word := map[bool]string{true: "kept", false: "dropped"}
	label := map[bool]string{true: "relevant", false: "not relevant"}
	thesaurus := synonyms.Default()
	var again []labelledRequest
	var pairs []evaluate.Pair
	for i, r := range requests {
		for _, v := range thesaurus.Reword(r.query, lang) {
			again = append(again, labelledRequest{query: v.Text, chunks: r.chunks, ideal: r.ideal})
			for k, ch := range before[i].Chunks {
				pairs = append(pairs, evaluate.Pair{Kind: v.Kind, Original: r.query, Variant: v.Text, Item: r.chunks[k].id, Label: label[ch.Grade > 0],
					Before: word[ch.Decision.Returned()]})
			}
		}
	}
	after, err := decideRequests(ctx, g, again)
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

// evalTurns is how many turns of the chunk gate are decided at once; each is many rows.
const evalTurns = 4

// decideRequests lets the gate decide on each request, without a budget.
func decideRequests(ctx context.Context, g *gates.ChunkGate, requests []labelledRequest) ([]evaluate.ChunkTurn, error) {
	turns := make([]evaluate.ChunkTurn, len(requests))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(evalTurns)
	for i, q := range requests {
		group.Go(func() (err error) {
			if turns[i], err = decideRequest(ctx, g, q); err != nil {
				err = fmt.Errorf("query %s: %w", strconv.Quote(q.query), err)
			}
			return err
		})
	}
	return turns, group.Wait()
}

func decideRequest(ctx context.Context, g *gates.ChunkGate, q labelledRequest) (evaluate.ChunkTurn, error) {
	r := gates.ChunkRequest{Query: q.query}
	t := evaluate.ChunkTurn{Query: q.query, Ideal: q.ideal}
	for _, c := range q.chunks {
		similarity := math.NaN()
		if c.chunk.Similarity != nil {
			similarity = *c.chunk.Similarity
		}
		r.Chunks = append(r.Chunks, c.chunk)
		t.Chunks = append(t.Chunks, evaluate.Chunk{Similarity: similarity, Grade: c.grade, Relevance: math.NaN(), Logit: math.NaN()})
	}
	got, err := g.Decide(ctx, r)
	if err != nil {
		return t, err
	}
	if got.Err != nil {
		return t, got.Err
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
	return t, nil
}
