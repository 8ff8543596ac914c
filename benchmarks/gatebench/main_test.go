package main

import (
	"encoding/json"
	"testing"
	"time"

	"ragate/benchmarks"
	"ragate/inference"
)

func TestPunctual(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		took []time.Duration
		want punctuality
	}{
		{[]time.Duration{50 * ms}, punctuality{50, 50, 1}},
		{[]time.Duration{110 * ms, 90 * ms, 110*ms + 1, 100 * ms}, punctuality{110, 110, 0.75}},
		{[]time.Duration{200 * ms, 300 * ms}, punctuality{300, 200, 0}},
	} {
		if got := punctual(c.took, 110*ms); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.took, got, c.want)
		}
	}
	var many []time.Duration
	for i := range 200 {
		many = append(many, time.Duration(200-i)*ms)
	}
	if got := punctual(many, 110*ms); got.p99 != 198 || got.within != 0.55 {
		t.Errorf("1…200 ms: %+v", got)
	}
}

// The bodies are the gates' own, and ask for every chunk to be told of.
func TestDialects(t *testing.T) {
	w := benchmarks.Work{Query: "q", Texts: []string{"a", "b"}}
	for _, c := range []struct {
		dialect          benchmarks.Dialect
		path, body, mark string
	}{
		{query, "/v1/gate/query", `{"budget_ms":600000,"query":"a"}`, `"stage":"semantic"`},
		{chunks(100), "/v1/gate/chunks", `{"budget_ms":100,"chunks":[{"id":0,"text":"a"},{"id":1,"text":"b"}],"explain":true,"query":"q","return_text":false}`, `"decision":`},
	} {
		path, body, mark := c.dialect(inference.KindReranker, w)
		b, err := json.Marshal(body)
		if err != nil || path != c.path || string(b) != c.body || mark != c.mark {
			t.Errorf("%s %s %s, %v", path, b, mark, err)
		}
	}
}
