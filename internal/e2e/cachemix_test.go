package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mixed makes requests of few texts and all options that bear on an answer, so that nearly equal ones follow each other.
type mixed struct{ *rand.Rand }

func (m mixed) of(choices ...any) any { return choices[m.IntN(len(choices))] }

// some sets options, each in half of the requests.
func (m mixed) some(o object, options object) object {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if m.IntN(2) == 0 {
			o[name] = m.of(options[name].([]any)...)
		}
	}
	return o
}

func (m mixed) texts() []string {
	pool := []string{"Notice is one month.", "The canteen opens at noon.", "notice is one month.", "", "Parking is free on weekends, [SEP] and costs two euros else.",
		strings.Repeat("The lease ends with the month. ", 90), strings.Repeat("word ", 700) + "Notice is one month."}
	out := make([]string, 1+m.IntN(4))
	for i := range out {
		out[i] = pool[m.IntN(len(pool))]
	}
	return out
}

func (m mixed) query() string {
	return m.of("what is the notice period", "What is the notice period", "where can I park", "wat is de opzegtermijn van het contract").(string)
}

// next is a path with a body.
func (m mixed) next() (string, object) {
	cut := object{"truncate": []any{true, false}, "truncation_direction": []any{"Left", "Right"}}
	switch m.IntN(7) {
	case 0:
		return "/v1/embeddings", m.some(object{"input": m.texts()}, object{"dimensions": []any{8, 384}, "input_type": []any{"query", "passage"}, "encoding_format": []any{"base64"}})
	case 1:
		return "/embed", m.some(m.some(object{"inputs": m.texts()}, cut), object{"normalize": []any{true, false}, "prompt_name": []any{"query", "passage"}, "dimensions": []any{8}})
	case 2:
		return "/v2/embed", m.some(object{"texts": m.texts(), "embedding_types": []string{"float"}}, object{"input_type": []any{"search_query", "search_document"}, "truncate": []any{"NONE", "START", "END"}})
	case 3:
		return "/v2/rerank", m.some(object{"query": m.query(), "documents": m.texts()}, object{"max_tokens_per_doc": []any{4, 40}, "raw_scores": []any{true}, "top_n": []any{1, 2}, "return_documents": []any{true}})
	case 4:
		return "/rerank", m.some(m.some(object{"query": m.query(), "texts": m.texts()}, cut), object{"raw_scores": []any{true}, "return_text": []any{true}})
	case 5:
		return "/v1/gate/query", m.some(object{"query": m.query(), "budget_ms": 60_000}, object{"explain": []any{false}, "return_history": []any{true}, "history": []any{
			[]object{{"role": "assistant", "content": "Which contract?"}}, []object{{"role": "user", "content": "Hello."}}}})
	}
	var chunks []object
	for i, text := range m.texts() {
		chunks = append(chunks, m.some(object{"text": text}, object{"id": []any{i, "a", "b"}, "similarity": []any{0.1, 0.9}, "metadata": []any{object{"page": i}, object{}}}))
	}
	return "/v1/gate/chunks", m.some(object{"query": m.query(), "chunks": chunks, "budget_ms": 60_000}, object{"threshold": []any{0, 0.01, 0.9}, "min_chunks": []any{0, 1}, "max_chunks": []any{2, 3},
		"mode": []any{"everything"}, "fallback": []any{"top", "keyword", "expand", "insufficient"}, "long_chunk": []any{"truncate", "max_passage"}, "max_context_tokens": []any{6, 300},
		"return_context": []any{true}, "return_text": []any{false}, "explain": []any{true}})
}

func (s *server) mixAnswer(path string, body object) (string, error) {
	r, err := s.send(path, body)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s %s", r.status, r.header.Get("X-Ragate-Truncated"), lasting(r)), nil
}

// TestCacheNeverAnswersAnotherQuestion: over a random mix of nearly equal requests, one after the other and many at once, and between requests whose
// budget is too short, every answer has the bits of the one without a cache.
func TestCacheNeverAnswersAnotherQuestion(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := mixed{rand.New(rand.NewPCG(seed, 0))}
	const requests = 80
	type question struct {
		path, want string
		body       object
	}
	var all []question
	plain := start(t, environment(t, store(t)), "--precision", "int8")
	statuses := map[string]int{}
	for range requests {
		path, body := m.next()
		want, err := plain.mixAnswer(path, body)
		if err != nil {
			t.Fatal(err)
		}
		statuses[want[:3]]++
		all = append(all, question{path, want, body})
	}
	plain.signal(15)
	plain.wait()
	if statuses["200"] < requests/2 || statuses["413"] == 0 || statuses["200"]+statuses["413"]+statuses["400"] != requests {
		t.Fatalf("answers by status: %v", statuses)
	}

	s := start(t, environment(t, store(t), "RAGATE_SCORE_CACHE=on"), "--precision", "int8")
	check := func(q question) {
		got, err := s.mixAnswer(q.path, q.body)
		if err != nil {
			t.Error(err)
		} else if got != q.want {
			t.Errorf("%s %v: with the cache\n%.3000s\nand without\n%.3000s", q.path, q.body, got, q.want)
		}
	}
	for _, i := range m.Perm(requests) {
		if q := all[i]; strings.HasPrefix(q.path, "/v1/gate/") && m.IntN(2) == 0 {
			hasty := object{}
			for name, v := range q.body {
				hasty[name] = v
			}
			hasty["budget_ms"] = m.of(1, 10, 40)
			if _, err := s.send(q.path, hasty); err != nil {
				t.Fatal(err)
			}
		}
		check(all[i])
	}
	var clients sync.WaitGroup
	for range 2 {
		order := m.Perm(requests)
		clients.Go(func() {
			for _, i := range order {
				check(all[i])
			}
		})
	}
	clients.Wait()
	for _, kind := range []string{"score", "embedding", "decision"} {
		if s.series(lookups(kind, "hit")) == 0 {
			t.Errorf("no %s came from the cache", kind)
		}
	}
}
