package quality

import (
	"strings"
	"testing"
)

func TestClassifyQuery(t *testing.T) {
	for _, c := range []struct {
		query string
		want  QueryType
	}{
		// comparison
		{"What is the difference between parental leave and care leave?", Comparison},
		{"OAuth vs. SAML", Comparison},
		{"compare plan A with plan B", Comparison},
		{"Is the new laptop better than the old one?", Comparison},
		{"which is cheaper, the train or the car?", Comparison},
		{"pros and cons of remote work", Comparison},
		{"Wat is het verschil tussen een vast en een tijdelijk contract?", Comparison},
		{"Vergelijk de twee pensioenregelingen", Comparison},
		{"voor- en nadelen van leasen", Comparison},
		{"Welke is goedkoper, trein of auto?", Comparison},
		{"Unterschied zwischen Urlaub und Sonderurlaub", Comparison},
		{"Quelle est la différence entre CDD et CDI ?", Comparison},
		{"¿Cuál es la diferencia entre los dos planes?", Comparison},
		{"Hi, could you tell me which is larger, Mars or Venus?", Comparison},
		// broad
		{"Give me an overview of our pension plan", Broad},
		{"tell me about the onboarding process", Broad},
		{"Can you summarize the security policy?", Broad},
		{"What do we know about churn?", Broad},
		{"list all public holidays", Broad},
		{"Vat het thuiswerkbeleid samen", Broad},
		{"Geef een overzicht van alle verzekeringen", Broad},
		{"vertel me over de bonusregeling", Broad},
		{"Alles over ziekteverzuim", Broad},
		{"Fasse die Reiserichtlinie zusammen", Broad},
		{"Alles über Elternzeit", Broad},
		{"Donne-moi un résumé de la politique de voyage", Broad},
		{"resumen del plan de pensiones", Broad},
		{"Where can I park my car? And how do I get a badge?", Broad},
		{strings.Repeat("our customer wrote that the machine stopped ", 6), Broad},
		// lookup
		{"who is the CFO?", Lookup},
		{"When does the canteen close?", Lookup},
		{"how many vacation days do employees get", Lookup},
		{"Hi! How much is the travel allowance?", Lookup},
		{"I'd like to know when my contract ends", Lookup},
		{"and where is the printer", Lookup},
		{"Hoeveel vakantiedagen heb ik?", Lookup},
		{"Tot wanneer kan ik declareren?", Lookup},
		{"Welke datum is de borrel?", Lookup},
		{"kun je me vertellen wie mijn leidinggevende is", Lookup},
		{"Wann endet die Probezeit?", Lookup},
		{"Wie viele Urlaubstage habe ich?", Lookup},
		{"Combien de jours de congé ?", Lookup},
		{"¿Cuándo es la reunión?", Lookup},
		{"INV-2024-001", Lookup},
		{"status of ticket ABC123", Lookup},
		{`the page that says "annual leave policy"`, Lookup},
		{"author:smith budget", Lookup},
		{"parking AND bicycle", Lookup},
		{"mails to jan@example.org yesterday", Lookup},
		{"travel policy", Lookup},
		{"verlof", Lookup},
		// faq
		{"How do I reset my password?", FAQ},
		{"how to request leave", FAQ},
		{"Can I work from abroad?", FAQ},
		{"what does the warranty cover", FAQ},
		{"Why was my claim refused?", FAQ},
		{"Hoe vraag ik verlof aan?", FAQ},
		{"Mag ik mijn hond meenemen naar kantoor?", FAQ},
		{"Wat is de opzegtermijn?", FAQ},
		{"Wie kann ich mein Passwort ändern?", FAQ},
		{"Comment demander un congé ?", FAQ},
		{"¿Cómo pido vacaciones?", FAQ},
		{"my laptop does not start any more", FAQ},
		{"Do I keep my 2nd monitor?", FAQ},
		{"parking?", FAQ},
		{"年休はどうやって申請しますか", FAQ},
		{"", FAQ},
		{"👍", FAQ},
	} {
		got, reason := ClassifyQuery(c.query)
		if got != c.want {
			t.Errorf("%q is %s (%s), want %s", c.query, got, reason, c.want)
		}
		if reason == "" {
			t.Errorf("%q: no reason", c.query)
		}
	}
	for query, want := range map[string]string{
		"OAuth versus SAML":                  "compares: “versus”",
		"hoeveel kost het":                   "asks for a fact: “hoeveel”",
		"Vat dit samen":                      "asks for an overview: “vat … samen”",
		"show me ticket:4711":                "holds a field: “ticket:4711”",
		"Welke is beter, A of B?":            "asks to choose: “welke … of”",
		strings.Repeat("word ", longWords):   "is a statement",
		strings.Repeat("word ", longWords+1): "is long enough to need several passages",
		strings.Repeat("休", 4*longWords):     "is a statement",
		strings.Repeat("休", 4*longWords+1):   "is long enough to need several passages",
	} {
		if _, reason := ClassifyQuery(query); reason != want {
			t.Errorf("%q %s, want %s", query, reason, want)
		}
	}
}

func TestQueryTypesHaveThresholds(t *testing.T) {
	th := Thresholds{FAQ: 0.1, Lookup: 0.2, Broad: 0.3, Comparison: 0.4}
	seen := make(map[Relevance]bool)
	for _, q := range QueryTypes() {
		seen[th.For(q)] = true
	}
	if len(seen) != 4 {
		t.Errorf("types share thresholds: %v", seen)
	}
	if th.For("") != 0.1 {
		t.Error("an unknown type does not get that of faq")
	}
}

func FuzzClassifyQuery(f *testing.F) {
	f.Add("which is cheaper, A or B? And why is that so?")
	f.Add("vat samen \"x\" a:b AND v2 @. ¿")
	f.Fuzz(func(t *testing.T, query string) {
		q, reason := ClassifyQuery(query)
		if DefaultPolicy().Thresholds.For(q) == 0 || reason == "" {
			t.Errorf("%q: %q, %q", query, q, reason)
		}
		if again, _ := ClassifyQuery(query); again != q {
			t.Errorf("%q: %q and %q", query, q, again)
		}
	})
}
