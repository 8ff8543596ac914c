package language

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"ragate/gates/textnorm"
)

type turn struct {
	Text, Label, Category, Lang string
}

// turns are the gate's own turns of a language and label, from the sets that the semantic stage is measured on.
func turns(tb testing.TB, lang, label string) []string {
	tb.Helper()
	var texts []string
	for _, name := range []string{"eval.jsonl", "hard.jsonl"} {
		f, err := os.Open(filepath.Join("..", "semantic", "testdata", name))
		if err != nil {
			tb.Fatal(err)
		}
		s := bufio.NewScanner(f)
		for s.Scan() {
			var t turn
			if err := json.Unmarshal(s.Bytes(), &t); err != nil {
				tb.Fatal(err)
			}
			if t.Lang == lang && t.Label == label {
				texts = append(texts, t.Text)
			}
		}
		f.Close()
	}
	if len(texts) < 200 {
		tb.Fatalf("%d %s turns of %s: too few to say anything", len(texts), label, lang)
	}
	return texts
}

// TestRates holds what docs/gates.md says of the detector: no note on English turns, and one on most Dutch questions. A note that is false is worse
// than one that is missing.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		lang, label   string
		least, others float64 // shares that are told rightly, at least, and as another language, at most
	}{
		{"en", "knowledge", 0.85, 0.002},
		{"en", "chitchat", 0.8, 0.005},
		{"nl", "knowledge", 0.9, 0.005},
		{"nl", "chitchat", 0.7, 0.005}, // many are one short word, which tells nothing
	} {
		right, others := 0, map[string]string{}
		texts := turns(t, c.lang, c.label)
		for _, text := range texts {
			switch got := Detect(text); got {
			case c.lang:
				right++
			case "":
			default:
				others[text] = got
			}
		}
		rate := float64(right) / float64(len(texts))
		t.Logf("%s %s: %d turns, %.1f %% told, %d as another language", c.lang, c.label, len(texts), 100*rate, len(others))
		if rate < c.least || float64(len(others)) > c.others*float64(len(texts)) {
			t.Errorf("%s %s: %.3f told, want %.3f; as another language: %v", c.lang, c.label, rate, c.least, others)
		}
	}
}

// TestRatesUnseen: on turns that the lists were not written with the rate is that of queries with a function word.
func TestRatesUnseen(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "semantic", "testdata", "heldout_nl.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, told, others := 0, 0, 0
	for s := bufio.NewScanner(f); s.Scan(); {
		var x turn
		if err := json.Unmarshal(s.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		if x.Label != "knowledge" {
			continue
		}
		n++
		switch Detect(x.Text) {
		case "":
		case "nl":
			told++
		default:
			others++
		}
	}
	t.Logf("%d Dutch questions: %.1f %% told, %d as another language", n, 100*float64(told)/float64(n), others)
	if n < 400 || float64(told) < 0.55*float64(n) || float64(others) > 0.01*float64(n) {
		t.Errorf("%d questions, %d told, %d as another language", n, told, others)
	}
}

func TestDetect(t *testing.T) {
	for want, texts := range map[string][]string{
		"nl": {"Wat is de opzegtermijn van een huurcontract?", "hoeveel vakantiedagen heb ik", "Hoe lang is de garantie op een wasmachine?", "WAAR VIND IK HET FORMULIER", "ik zoek de handleiding van de CV-ketel"},
		"de": {"Wie viel Urlaub habe ich pro Jahr?", "Was kostet der Versand nach Österreich?", "Wer ist für Datenschutz zuständig?", "Kann ich die Bestellung noch stornieren?"},
		"fr": {"Combien de jours de congé ai-je par an ?", "Quels sont les frais de livraison ?", "Puis-je encore annuler ma commande ?", "Qu’est-ce que c’est qu’une franchise ?"},
		"es": {"¿Cuánto cuesta el envío?", "Cómo restablezco mi contraseña", "¿Hay descuento para estudiantes?"},
		"it": {"Quanti giorni di ferie ho all'anno?", "Come posso reimpostare la password?", "Dove trovo gli orari della biblioteca?"},
		"pt": {"Quantos dias de férias tenho por ano?", "Onde encontro o horário da biblioteca?", "Posso ainda cancelar o meu pedido?"},
		"en": {"what is the notice period?", "How do I get to the airport from Den Haag?", "can I change my working hours"},
		"":   {"", " ", "?", "42", "btw", "AI", "remote desktop", "opening hours", "refund policy laptop", "12345678", "\xff\xfe\xfd", "hm hm hm"},
		// Names, borrowings and abbreviations in an English query are not its language.
		"~": {"Los Angeles hotel", "Van Gogh museum", "Ursula von der Leyen speech", "et al citation style", "Die Hard cast", "El Niño effects", "MIT licence text", "UW admission",
			"dos attack mitigation", "de facto standard", "soup du jour recipe", "Vincent van der Berg invoice", "Côte d'Ivoire visa", "per diem rates", "déjà vu causes", "à la carte menu prices",
			"carpe diem meaning", "Der Spiegel archive", "Le Monde subscription", "Les Misérables summary", "non-disclosure agreement", "ai model pricing", "café con leche calories",
			"La Paz altitude", "Rio de Janeiro weather", "Van den Heuvel tax report", "open invoices over 60 days", "pour over coffee", "laptop fan noise", "ten rooms on sale", "what does 'niet van toepassing' mean on the form?", "SAP und support",
			"Mercedes-Benz der Stern history", "São Paulo airport", "mit opencourseware", "bin lookup table", "Den Haag parking", "als research news", "en suite room", "via app or website",
			// One word of another language is a word, a name or an abbreviation of English, whether or not a list knows it.
			"car rental prices", "soy milk protein content", "hay fever season", "word count tool", "Wilt Chamberlain points", "toe pain treatment", "op amp circuit design", "Mein Kampf author",
			"über driver app", "Mir space station", "dir command Windows", "OB GYN clinic", "Aus Open tennis", "CES 2024 dates", "Elle magazine subscription", "sous vide recipe", "raison d'être synonym",
			"mai tai recipe", "num lock key", "SEM versus SEO", "NAS drive setup", "ES modules bundler", "hasta la vista baby", "Mia Hamm goals", "Uno rules cards", "Sia songs", "Wil Wheaton", "zit removal",
			"Hun empire history", "par excellence", "encore performance dates", "pendant light installation", "Durante film list", "todo list app", "ISSO certification", "Hij electronics", "Zum restaurant"},
		"und-Cyrl": {"Какой срок уведомления?", "Який строк попередження?"}, "und-Arab": {"ما هي مدة الإشعار؟"}, "zh": {"通知期是多久?"}, "ja": {"解約の通知期間は?"},
		"ko": {"통지 기간은 얼마나 됩니까?"}, "el": {"Ποια είναι η προθεσμία;"}, "he": {"מה תקופת ההודעה?"}, "th": {"ระยะเวลาแจ้ง"}, "und-Deva": {"नोटिस की अवधि क्या है?"},
	} {
		for _, text := range texts {
			got := Detect(text)
			if want == "~" {
				if got != "" && got != "en" {
					t.Errorf("Detect(%q) = %q: it is English", text, got)
				}
			} else if got != want {
				t.Errorf("Detect(%q) = %q, want %q", text, got, want)
			}
		}
	}
	// A word or two of another language in an English question, and the other way round.
	for text, want := range map[string]string{
		"how do I say 'where is the station' in Dutch":                  "en",
		"wat betekent 'out of office' in het rooster van onze afdeling": "nl",
		"москва what time is it there and when does it open":            "en",
	} {
		if got := Detect(text); got != want {
			t.Errorf("Detect(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestDetectLooksAtABoundedPart(t *testing.T) {
	long := strings.Repeat("ö", MaxBytes) + " wat is de opzegtermijn van het contract"
	if got := Detect(long); got != "" {
		t.Errorf("what is behind %d bytes decided: %q", MaxBytes, got)
	}
	for n := MaxBytes - 3; n < MaxBytes+4; n++ {
		if got := head(strings.Repeat("a", n) + "é€🙂"); len(got) > MaxBytes || !utf8.ValidString(got) {
			t.Errorf("%d: %d bytes, valid: %v", n, len(got), utf8.ValidString(got))
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		languages []string
		tag       string
		want      bool
	}{
		{nil, "nl", true}, // nothing is stated
		{[]string{"en"}, "", true},
		{[]string{"en"}, "en", true},
		{[]string{"en-GB"}, "en", true},
		{[]string{"EN"}, "en", true},
		{[]string{"en"}, "nl", false},
		{[]string{"en", "nl"}, "nl", true},
		{[]string{"de", "fr"}, "en", false},
		{[]string{Multilingual}, "nl", true},
		{[]string{"Multilingual"}, "und-Cyrl", true},
		{[]string{"en"}, "und-Cyrl", false},
		{[]string{"en", "ru"}, "und-Cyrl", true},
		{[]string{"en", "zh"}, "und-Cyrl", false},
		{[]string{"fa"}, "und-Arab", true},
		{[]string{"zh-Hant"}, "zh", true},
		{[]string{"en", "zh"}, "ja", false},
		{[]string{"en"}, "zh", false},
	} {
		if got := Covers(c.languages, c.tag); got != c.want {
			t.Errorf("Covers(%q, %q) = %v", c.languages, c.tag, got)
		}
	}
}

func TestNames(t *testing.T) {
	for want, tags := range map[string][]string{
		"":                       nil,
		"English":                {"en"},
		"English and Dutch":      {"en", "nl"},
		"English, German and zz": {"en", "de", "zz"},
		"English, Dutch, German, French, Spanish and 2 others": {"en-US", "nl", "de", "fr", "es", "it", "pt"},
		"a language in Cyrillic script":                        {"und-Cyrl"},
	} {
		if got := Names(tags); got != want {
			t.Errorf("Names(%q) = %q, want %q", tags, got, want)
		}
	}
	for _, tag := range Known() {
		if Name(tag) == tag {
			t.Errorf("%s has no name", tag)
		}
	}
	for _, s := range scripts[1:] {
		if Name(s.tag) == s.tag {
			t.Errorf("%s has no name", s.tag)
		}
	}
}

// TestLexicon: a list that holds nothing, or a word in a form that no text has, would tell nothing.
func TestLexicon(t *testing.T) {
	if Known()[english] != "en" || Known()[spanish] != "es" || len(known) > half || 2*half > 16 {
		t.Fatalf("the bits of %q", Known())
	}
	for _, l := range known {
		words := strings.Fields(l.words)
		if len(words) < 60 {
			t.Errorf("%s has %d words", l.tag, len(words))
		}
		for _, w := range append(words, strings.Fields(l.particles)...) {
			if got := textnorm.Words(w); !slices.Equal(got, []string{w}) {
				t.Errorf("%s: the text %q has the words %q", l.tag, w, got)
			}
		}
	}
}

func BenchmarkDetect(b *testing.B) {
	texts := append(turns(b, "nl", "knowledge"), turns(b, "en", "knowledge")...)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Detect(texts[i%len(texts)])
	}
}

func BenchmarkDetectLong(b *testing.B) {
	text := strings.Repeat("what does the contract say about the notice period of ", 200)
	for b.Loop() {
		Detect(text)
	}
}

func FuzzDetect(f *testing.F) {
	for _, s := range []string{"", "wat is dit", "\xff", "¿", strings.Repeat("de ", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Detect(s)
		if got != "" && Name(got) == got {
			t.Errorf("%q has no name", got)
		}
		if !Covers([]string{Multilingual}, got) || got != "" && !Covers([]string{got}, got) {
			t.Errorf("%q is not covered by itself", got)
		}
	})
}
