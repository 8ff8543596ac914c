package harness

import (
	"ragate/benchmarks"
	"ragate/inference"
	"ragate/inference/ort"
)

// Task is what a request asks for.
type Task string

const (
	EmbedQueries  Task = "embed queries"
	EmbedPassages Task = "embed passages"
	Rerank        Task = "rerank"
	GateQuery     Task = "query gate"
	GateChunks    Task = "chunk gate"
)

// Workload is a named kind of request.
type Workload struct {
	benchmarks.Workload
	Task Task
	Says string // what it is, in a few words
}

// Gate says whether a gate is asked: its answer is bounded by its budget, or made without a model.
func (t Task) Gate() bool { return t == GateQuery || t == GateChunks }

// smallTalkEvery: one turn of so many at the query gate is small talk.
const smallTalkEvery = 4

// Workloads are all there are. A name once used is never given to another mix.
func Workloads() []Workload {
	embedder, reranker := inference.KindEmbedder, inference.KindReranker
	return []Workload{
		{benchmarks.EmbedQuery, EmbedQueries, "one question of 5 to 50 tokens"},
		{benchmarks.Workload{Name: "embed-32", Kind: embedder, Texts: 32, Low: 64, High: 192}, EmbedPassages, "32 passages of 64 to 192 tokens"},
		{benchmarks.Rerank10x128, Rerank, "10 pairs of 120 to 128 tokens"},
		{benchmarks.Workload{Name: "rerank-20-mixed", Kind: reranker, Texts: 20, Low: 20, High: 300}, Rerank, "20 pairs of 20 to 300 tokens"},
		{benchmarks.Workload{Name: "gate-query-mix", Kind: embedder, Texts: 1}, GateQuery, "a turn: three questions to one of small talk"},
		{benchmarks.Workload{Name: "gate-chunks-20x128", Kind: reranker, Texts: 20, Low: 120, High: 128}, GateChunks, "20 chunks of 120 to 128 tokens with the query, and a budget"},
	}
}

// WorkloadNamed finds a workload.
func WorkloadNamed(name string) (Workload, error) {
	return find("workload", name, Workloads(), func(w Workload) string { return w.Name })
}

// smallTalk is what the pattern stage takes by its wording. It is the same for everybody and says so little that it repeats; no model sees it.
var smallTalk = []string{
	"thanks", "thank you", "hello", "hi", "good morning", "bye", "ok", "great, thanks", "how are you", "see you later", "bedankt", "hallo", "dank je wel", "tot ziens",
}

// Encoders count tokens and write the rows of the raw sessions. They are the two models' own.
type Encoders struct{ Embed, Rerank *benchmarks.Encoder }

// of gives the workload's encoder, with the prefix of its task.
func (e Encoders) of(w Workload) *benchmarks.Encoder {
	if w.Kind == inference.KindReranker {
		return e.Rerank
	}
	x := *e.Embed
	if x.Prompt = "query"; w.Task == EmbedPassages {
		x.Prompt = "passage"
	}
	return &x
}

// prefix is what the model wants in front of each text of the workload, "" where it wants nothing.
func (e Encoders) prefix(w Workload) string {
	if w.Kind == inference.KindReranker {
		return ""
	}
	x := e.of(w)
	return x.Manifest.Prompts[x.Prompt]
}

// Source writes the requests of one server. The same seed gives the same texts. Not safe for concurrent use.
type Source struct {
	Texts    *benchmarks.Texts
	Encoders Encoders
	Target   *Target
	BudgetMS int // of the chunk gate's requests

	turns int
}

// Next writes a request. mean is the length of the sequence that a token of it is in, on average: what attention costs grows with it.
func (s *Source) Next(w Workload) (r benchmarks.Request, mean float64, err error) {
	work := w.Write(s.Texts)
	ask := Question{Model: s.Target.Model, Query: work.Query, Texts: work.Texts, Passages: w.Task == EmbedPassages, BudgetMS: s.BudgetMS}
	if s.turns++; w.Task == GateQuery && s.turns%smallTalkEvery == 0 {
		ask.Texts = []string{smallTalk[s.turns/smallTalkEvery%len(smallTalk)]}
		r, err = s.Target.Dialect.request(w.Task, ask, "")
		return r, 0, err
	}
	if r, err = s.Target.Dialect.request(w.Task, ask, s.Encoders.prefix(w)); err != nil {
		return r, 0, err
	}
	rows, err := s.Encoders.of(w).Rows(work)
	if err != nil {
		return r, 0, err
	}
	r.Tokens = benchmarks.Tokens(rows)
	return r, meanLength(rows), nil
}

// meanLength is the length of the row that a token is in, on average over tokens.
func meanLength(rows []ort.Row) float64 {
	tokens, squares := 0, 0
	for _, r := range rows {
		tokens += len(r.IDs)
		squares += len(r.IDs) * len(r.IDs)
	}
	return float64(squares) / float64(max(tokens, 1))
}
