package evaluate

import (
	"slices"
	"strings"
	"testing"
)

func codes(advice []Advice) (c []string) {
	for _, a := range advice {
		c = append(c, a.Code)
	}
	return c
}

func TestQueryAdvice(t *testing.T) {
	turns := func(n int, t QueryTurn) []QueryTurn { return slices.Repeat([]QueryTurn{t}, n) }
	right := func(n int, lang string) []QueryTurn {
		return turns(n, QueryTurn{Label: Knowledge, Lang: lang, Score: none})
	}
	wrong := func(n int, lang string) []QueryTurn {
		return turns(n, QueryTurn{Label: Knowledge, Lang: lang, Bypassed: true, Score: none})
	}
	chat := func(n int, bypassed bool) []QueryTurn {
		return turns(n, QueryTurn{Label: Chitchat, Lang: "en", Bypassed: bypassed, Score: none})
	}
	for name, c := range map[string]struct {
		turns []QueryTurn
		want  []string
		says  string
	}{
		"all well":     {slices.Concat(right(2000, "en"), chat(500, true)), nil, ""},
		"wrong often":  {slices.Concat(right(900, "en"), wrong(100, "en"), chat(500, true)), []string{"false_bypass_high"}, "keeps 10 % of knowledge turns from retrieval (at least 8.21 %)"},
		"too few":      {slices.Concat(right(100, "en"), chat(100, true)), []string{"false_bypass_uncertain"}, "0 of 100 knowledge turns were bypassed, which leaves a true rate of up to 3.62 % possible: about 299 knowledge turns"},
		"no knowledge": {chat(100, true), []string{"no_knowledge_turns"}, "add real questions"},
		"no chitchat":  {right(2000, "en"), []string{"no_chitchat_turns"}, "cannot show what the gate saves"},
		"little":       {slices.Concat(right(2000, "en"), chat(10, true)), []string{"little_to_save"}, "skips 0.498 % of retrievals"},
		"one language": {slices.Concat(right(9000, "en"), right(80, "nl"), wrong(20, "nl"), chat(900, true)), []string{"language_false_bypass"}, `language "nl" the gate keeps 20 %`},
		"one behind": {slices.Concat(right(9000, "en"), right(900, "nl"), chat(900, true), turns(60, QueryTurn{Label: Chitchat, Lang: "nl", Score: none}), turns(40, QueryTurn{Label: Chitchat, Lang: "nl", Bypassed: true, Score: none})),
			[]string{"language_behind"}, `In language "nl" 40 % of chitchat skips retrieval, against 100 % in "en"`},
		"one a little behind": {slices.Concat(right(9000, "en"), right(900, "nl"), chat(900, true), turns(20, QueryTurn{Label: Chitchat, Lang: "nl", Score: none}), turns(80, QueryTurn{Label: Chitchat, Lang: "nl", Bypassed: true, Score: none})), nil, ""},
	} {
		for i := range c.turns { // all different, so that duplicates do not speak up
			c.turns[i].Text = strings.Repeat("x", i%97) + string(rune(0x4e00+i))
		}
		r, err := Queries(c.turns, QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := AdviseQuery(r)
		if !slices.Equal(codes(got), c.want) {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
			continue
		}
		if len(got) > 0 && !strings.Contains(got[0].Text, c.says) {
			t.Errorf("%s: %s", name, got[0].Text)
		}
	}
	r, err := Queries(slices.Concat(right(2000, "en"), chat(500, true)), QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := codes(AdviseQuery(r)); !slices.Equal(got, []string{"duplicates"}) {
		t.Errorf("the same text 2,000 times: %v", got)
	}
}

func TestChunkAdvice(t *testing.T) {
	turn := func(chunks ...Chunk) ChunkTurn { return ChunkTurn{Threshold: 0.6, Chunks: chunks} }
	hit, lost := chunk(1, 0.9, 0.5, Kept), chunk(1, 0.2, 0.5, Dropped)
	noise, kept := chunk(0, 0.1, 0.6, Dropped), chunk(0, 0.8, 0.4, Kept)
	over := chunk(1, 0.7, 0.5, Dropped)
	late := Chunk{Grade: 1, Relevance: none, Logit: none, Similarity: 0.5, Decision: Unscored}
	for name, c := range map[string]struct {
		turn ChunkTurn
		want []string
		says string
	}{
		"all well":    {turn(hit, noise, noise, noise), nil, ""},
		"few":         {turn(hit, noise, noise), []string{"few_chunks"}, "Half of the turns bring 3 chunks or fewer"},
		"precise":     {turn(hit, hit, hit, hit), []string{"precise_already"}, "100 % of the retrieved chunks are relevant already"},
		"loses":       {turn(lost, noise, noise, noise), []string{"no_answer_raised"}, "takes every relevant chunk from 100 % of turns"},
		"nothing":     {turn(noise, noise, noise, noise), []string{"no_relevant_chunks"}, "check the labels"},
		"wrong model": {turn(hit, lost, lost, lost, noise, kept, kept, kept, kept, kept), []string{"precision_lowered"}, "does not fit this data"},
		"maximum":     {turn(hit, over, noise, noise), []string{"lost_to_maximum"}, "200 of 200 relevant chunks that were not returned had passed the threshold"},
		"time":        {turn(hit, late, noise, noise), []string{"lost_to_time"}, "200 of 400 relevant chunks were never scored"},
	} {
		r, err := Chunks(slices.Repeat([]ChunkTurn{c.turn}, 200), ChunkOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := AdviseChunks(r)
		if !slices.Equal(codes(got), c.want) {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
			continue
		}
		if len(got) > 0 && !strings.Contains(got[0].Text, c.says) {
			t.Errorf("%s: %s", name, got[0].Text)
		}
	}
	// A ranking that gets worse: the relevant chunk comes first by similarity and last by the reranker.
	worse := turn(chunk(1, 0.61, 0.9, Kept), chunk(0, 0.7, 0.5, Kept), chunk(0, 0.8, 0.4, Kept), chunk(0, 0.9, 0.3, Kept))
	r, err := Chunks(slices.Repeat([]ChunkTurn{worse}, 100), ChunkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := codes(AdviseChunks(r)); !slices.Equal(got, []string{"ranking_worse"}) {
		t.Errorf("%v with %+v", got, r.NDCG)
	}
}
