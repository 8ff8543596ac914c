package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ragate/models"
)

// series reads one series of /metrics; 0 where it is absent.
func (s *server) series(series string) float64 {
	s.t.Helper()
	for lines := bufio.NewScanner(bytes.NewReader(s.ask("/metrics", nil).body)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

func lookups(kind, result string) string {
	return fmt.Sprintf(`ragate_cache_lookups_total{kind="%s",result="%s"}`, kind, result)
}

// ran is how many rows went through the models.
func (s *server) ran() float64 {
	rows := 0.0
	for _, model := range []string{models.DefaultEmbedder, models.DefaultReranker, models.DefaultGateEmbedder} {
		rows += s.series(fmt.Sprintf("ragate_batch_rows_sum{model=%q}", model))
	}
	return rows
}

// passing is what of an answer is of one request only. Ids of chunks are not: they are the caller's.
var passing = regexp.MustCompile(`^\{"id":"[^"]*",|"timings_ms":\{[^}]*\}|"cache_hits":\d+`)

// lasting is an answer without it.
func lasting(r reply) string { return string(passing.ReplaceAll(r.body, nil)) }

type object = map[string]any

var cacheRequests = []struct {
	path string
	body object
	rows float64 // that run the first time
}{
	{"/v1/rerank", object{"query": "how does a heat pump work", "documents": []string{"A heat pump moves warmth.", "The port of Rotterdam.", "A heat pump moves warmth."}, "return_documents": true}, 2},
	{"/v1/rerank", object{"query": "how does a heat pump work", "documents": []string{"An oven is hot.", "The port of Rotterdam."}}, 1},
	{"/rerank", object{"query": "how does a heat pump work", "texts": []string{"The port of Rotterdam.", strings.Repeat("long ", 900)}, "raw_scores": true}, 1},
	{"/rerank", object{"query": "how does a heat pump work", "texts": []string{strings.Repeat("long ", 900)}, "truncation_direction": "Left"}, 1}, // another answer
	{"/v1/embeddings", object{"input": []string{"one", "two", "one", ""}}, 3},
	{"/v1/embeddings", object{"input": []string{"three", "one"}, "dimensions": 32}, 1},
	{"/v1/embeddings", object{"input": []string{"one"}, "input_type": "query"}, 1}, // another prefix
	{"/embed", object{"inputs": []string{"one", "two"}, "normalize": false}, 2},    // another vector
	{"/v1/gate/chunks", object{"query": "what is the notice period", "budget_ms": 60000, "explain": true, "chunks": []object{
		{"id": "a", "text": "Notice is one month."}, {"id": 7, "text": "The canteen opens at noon."}, {"text": "Notice is one month."}}}, 2},
	{"/v1/gate/chunks", object{"query": "what is the notice period", "budget_ms": 60000, "min_chunks": 3, "chunks": []object{
		{"id": "b", "text": "The canteen opens at noon."}, {"text": "Parking is free."}}}, 1},
	{"/v1/gate/query", object{"query": "what does the handbook say about parental leave", "budget_ms": 60000}, 1},
}

// TestCacheComputesOnce: with the cache every answer is the one without it, to the bit, and only what is new is computed.
func TestCacheComputesOnce(t *testing.T) {
	// int8 one row at a time: a score then depends on nothing else, and can be compared with that of another process.
	plain := start(t, environment(t, store(t)), "--precision", "int8")
	answers := make([]string, len(cacheRequests))
	for i, q := range cacheRequests {
		r := plain.ask(q.path, q.body)
		if r.status != 200 {
			t.Fatalf("%s: %v", q.path, r)
		}
		answers[i] = lasting(r)
	}
	if plain.series("ragate_cache_max_bytes") != 0 {
		t.Error("a server without a cache has its metrics")
	}
	plain.signal(15)
	plain.wait()

	s := start(t, environment(t, store(t), "RAGATE_SCORE_CACHE=on"), "--precision", "int8")
	for round := range 2 {
		for i, q := range cacheRequests {
			before := s.ran()
			r := s.ask(q.path, q.body)
			if got := lasting(r); got != answers[i] {
				t.Errorf("round %d, %s %d: with the cache\n%s\nand without\n%s", round, q.path, i, got, answers[i])
			}
			want := q.rows
			if round > 0 {
				want = 0
			}
			if got := s.ran() - before; got != want {
				t.Errorf("round %d, %s %d: %v rows ran, not %v", round, q.path, i, got, want)
			}
			if strings.HasSuffix(q.path, "/chunks") && round > 0 {
				d, err := decode[struct {
					Metadata struct {
						Hits, Retrieved int
						CacheHits       int `json:"cache_hits"`
						Chunks          int `json:"chunks_retrieved"`
					}
				}](r)
				if err != nil || d.Metadata.CacheHits != d.Metadata.Chunks {
					t.Errorf("cache_hits %d of %d chunks (%v)", d.Metadata.CacheHits, d.Metadata.Chunks, err)
				}
			}
		}
	}
	if got := s.series(lookups("decision", "hit")); got != 3 {
		t.Errorf("%v decisions were recalled, not 3", got)
	}
	info, err := decode[struct {
		Cache struct {
			Entries  int
			Bytes    int64
			MaxBytes int64 `json:"max_bytes"`
		}
	}](s.ask("/info", nil))
	if err != nil || info.Cache.Entries == 0 || info.Cache.Bytes <= 0 || info.Cache.MaxBytes != 64<<20 {
		t.Errorf("/info says %+v (%v)", info.Cache, err)
	}

	// Many at once: a text that nobody computed before runs once.
	before := s.ran()
	var wg sync.WaitGroup
	same := map[string]int{}
	var mu sync.Mutex
	for range 16 {
		wg.Go(func() {
			r, err := s.send("/v1/rerank", object{"query": "at once", "documents": []string{"first", "second", "third"}})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			same[lasting(r)]++
		})
	}
	wg.Wait()
	if got := s.ran() - before; got != 3 || len(same) != 1 {
		t.Errorf("%v rows ran for three texts, and %d different answers came", got, len(same))
	}
}

// TestCachePerKey: clients share answers, or do not, as the setting says.
func TestCachePerKey(t *testing.T) {
	for _, c := range []struct {
		args []string
		rows float64
	}{{nil, 2}, {[]string{"--cache-per-key"}, 4}} {
		s := start(t, environment(t, store(t), "RAGATE_SCORE_CACHE=on", "RAGATE_API_KEY=a:key-of-the-first-one,b:key-of-the-second"), append([]string{"--precision", "int8"}, c.args...)...)
		before := 0.0
		for i, key := range []string{"key-of-the-first-one", "key-of-the-second", "key-of-the-first-one"} {
			s.key = key
			if i == 0 {
				before = s.ran()
			}
			s.ask("/v1/rerank", object{"query": "secret plans", "documents": []string{"one", "two"}})
		}
		if got := s.ran() - before; got != c.rows {
			t.Errorf("%q: %v rows ran, not %v", c.args, got, c.rows)
		}
		s.signal(15)
		s.wait()
	}
}

// TestCacheSettings: what cannot be used is said, and no password with it.
func TestCacheSettings(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--score-cache", "yes"}, "--score-cache (RAGATE_SCORE_CACHE) is neither on nor off"},
		{[]string{"--score-cache", "http://u:hidden@h"}, "redis://, rediss:// or unix://"},
		{[]string{"--score-cache", "on", "--cache-similar", "0.5"}, "--cache-similar (RAGATE_CACHE_SIMILAR)"},
		{[]string{"--cache-similar", "0.9", "--score-cache", "off"}, "needs scores that are kept"},
		{[]string{"--cache-bytes", "10"}, "--cache-bytes"},
	} {
		r := command(t, environment(t, store(t)), "", append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		if r.code == 0 || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "hidden") {
			t.Errorf("%q: code %d, %s", c.args, r.code, r.stderr)
		}
	}
	r := command(t, environment(t, store(t), "RAGATE_SCORE_CACHE=rediss://me:hidden@cache.example:6380/2"), "", "config", "print", "--json")
	var all []struct {
		Name  string
		Value any
	}
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil && !strings.Contains(r.stdout, "cache.example:6380") {
		t.Fatalf("%v: %s %s", err, r.stdout, r.stderr)
	}
	if strings.Contains(r.stdout+r.stderr, "hidden") || !strings.Contains(r.stdout, "rediss://cache.example:6380/2") {
		t.Errorf("it prints %s %s", r.stdout, r.stderr)
	}
}
