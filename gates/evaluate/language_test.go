package evaluate

import (
	"math/rand/v2"
	"testing"
)

// bilingual are turns in two languages, of which the chitchat of the second scores lower.
func bilingual(random *rand.Rand) []QueryTurn {
	var turns []QueryTurn
	for i := range 4000 {
		t := QueryTurn{Label: Knowledge, Lang: "en", Domain: "d", Score: random.NormFloat64(), Stage: "semantic"}
		if i%2 == 1 {
			t.Lang = "nl"
		}
		if i%4 > 1 {
			t.Label, t.Score = Chitchat, t.Score+map[string]float64{"en": 4, "nl": 2}[t.Lang]
		}
		t.Bypassed = t.Score >= 3
		turns = append(turns, t)
	}
	return turns
}

// TestLanguages: each language's points are those of the language alone, and no language is singled out where there is one.
func TestLanguages(t *testing.T) {
	turns := bilingual(rand.New(rand.NewPCG(31, 0)))
	r, err := Queries(turns, QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.ByLanguage) != 2 || len(r.AtRateByLanguage) != 2 {
		t.Fatalf("%d languages, points for %d", len(r.ByLanguage), len(r.AtRateByLanguage))
	}
	for _, l := range r.AtRateByLanguage {
		var own []QueryTurn
		for _, turn := range turns {
			if turn.Lang == l.Lang {
				own = append(own, turn)
			}
		}
		alone, err := Queries(own, QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if alone.AtRateByLanguage != nil {
			t.Errorf("%s alone has points by language", l.Lang)
		}
		for i, p := range l.AtRate {
			want := alone.AtRate[i]
			if p.Bypass != want.Bypass || p.FalseBypass != want.FalseBypass || *p.Threshold != *want.Threshold {
				t.Errorf("%s at %v: %+v, alone %+v", l.Lang, p.Limit, p, want)
			}
			if p.FalseBypass.Rate() > p.Limit {
				t.Errorf("%s: %v bypassed at a limit of %v", l.Lang, p.FalseBypass.Rate(), p.Limit)
			}
		}
	}
	en, nl := r.AtRateByLanguage[0].AtRate[0].Bypass.Rate(), r.AtRateByLanguage[1].AtRate[0].Bypass.Rate()
	if !(en > 0.9 && nl > 0.2 && nl < 0.6) { // 4 and 2 standard deviations over a limit at 2.33
		t.Errorf("at 1 %%: %v of English chitchat and %v of Dutch", en, nl)
	}
}

// TestCalibratedLanguages: the held-out part by language adds up to the whole, both languages are in it evenly, and turns that no threshold
// decides keep their decision.
func TestCalibratedLanguages(t *testing.T) {
	turns := bilingual(rand.New(rand.NewPCG(32, 0)))
	for i := range turns {
		if i%40 == 2 { // English chitchat that a rule decided
			turns[i].Score, turns[i].Bypassed, turns[i].Stage = none, true, "pattern"
		}
	}
	c, err := CalibrateQuery(turns, 0.02, CalibrateOptions{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var sum Confusion
	for _, g := range c.ByLanguage {
		sum.ChitchatBypassed += g.Confusion.ChitchatBypassed
		sum.KnowledgeBypassed += g.Confusion.KnowledgeBypassed
		if n := g.Bypass.Of + g.FalseBypass.Of; n != c.HeldOut/2 {
			t.Errorf("%s: %d of %d held-out turns", g.Name, n, c.HeldOut)
		}
	}
	if len(c.ByLanguage) != 2 || sum.KnowledgeBypassed != c.Failures.Count || sum.ChitchatBypassed != c.Gain.Count {
		t.Errorf("%+v add up to %+v; all: %+v and %+v", c.ByLanguage, sum, c.Failures, c.Gain)
	}
	for i := range turns {
		turns[i].Lang = "en"
	}
	if c, err = CalibrateQuery(turns, 0.02, CalibrateOptions{Seed: 1}); err != nil || c.ByLanguage != nil {
		t.Errorf("one language: %+v, %v", c, err)
	}
}
