package pattern

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

type turn struct {
	text    string
	context Context
}

// turns reads a list of messages, and fails when there are too few to say something.
func turns(t testing.TB, name string, least int) []turn {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []turn
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		rest, inside := strings.CutPrefix(line, "> ")
		list = append(list, turn{text: rest, context: Context{History: inside}})
	}
	if len(list) < least {
		t.Fatalf("%s holds %d messages, want at least %d", name, len(list), least)
	}
	return list
}

func defaultMatcher(t testing.TB) *Matcher {
	t.Helper()
	m, err := New(Default(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestShortQuestionsPassOn(t *testing.T) {
	m := defaultMatcher(t)
	for _, q := range turns(t, "short_questions.txt", 150) {
		if r, ok := m.Match(q.text, q.context); ok {
			t.Errorf("%q (%+v) bypasses by %s: %s", q.text, q.context, r.Rule, r.Reason)
		}
	}
}

func TestSmallTalkBypasses(t *testing.T) {
	m := defaultMatcher(t)
	for _, q := range turns(t, "small_talk.txt", 150) {
		r, ok := m.Match(q.text, q.context)
		if !ok {
			t.Errorf("%q (%+v) passes on: %q", q.text, q.context, r.Reason)
			continue
		}
		if r.Rule == "" || r.Reason == "" {
			t.Errorf("%q: rule %q, reason %q", q.text, r.Rule, r.Reason)
		}
	}
}

// TestSpelling has variants that look the same to a reader.
func TestSpelling(t *testing.T) {
	m := defaultMatcher(t)
	for rule, texts := range map[string][]string{
		"en.greeting":  {"hi", "Ｈｉ", "h\u200bi", "HI", "ＨＩ!!", "Hi 👋", "  hi  ", "h\u00adi", "hi\ufeff", "«hi»", "Hi :)", "hí"},
		"nl.thanks":    {"bedankt", "ＢＥＤＡＮＫＴ", "bedankt\u200b", "Bedankt!!!", "be\u00addankt", "bedankt 🙏🏽", "BEDANKT."},
		"en.thanks":    {"Tha\u00adnks!", "thanks", "Thanks…", "THANKS"},
		"en.affirm":    {"  ok  ", "OK", "o\u200dk", "ok 👍🏿", "Okay."},
		"en.wellbeing": {"How are you?", "how’s it going", "how's it going", "hows it going ?"},
		"nl.affirm":    {"oké", "oke\u0301", "OKÉ!"},
	} {
		for _, text := range texts {
			if r, ok := m.Match(text, Context{}); !ok || r.Rule != rule {
				t.Errorf("%q: %+v %t, want rule %s", text, r, ok, rule)
			}
		}
	}
}

// TestConformanceCases has the messages of the shared cases that wording alone must get right.
func TestConformanceCases(t *testing.T) {
	m := defaultMatcher(t)
	for _, text := range []string{"Hi", "ok", "bedankt", "yes", "thanks!", "goedemorgen", "How are you?"} {
		if r, ok := m.Match(text, Context{}); !ok {
			t.Errorf("%q passes on: %+v", text, r)
		}
	}
	for _, text := range []string{"VAT?", "pto policy", "what is our refund policy", "退款政策是什么？", "休假?", "sick pay", "Hi, what is our refund policy?",
		"thanks, and how many vacation days do I have left?", "ok so where is the expense form", "Goedemorgen, hoeveel vakantiedagen heb ik?",
		"history of the company", "okta login fails", "thanksgiving closing dates", "yesterday's incident report",
		"how many vacation days do employees get", "what is the notice period", strings.Repeat("travel ", 14000)} {
		if r, ok := m.Match(text, Context{}); ok {
			t.Errorf("%.60q bypasses: %+v", text, r)
		}
	}
	for _, text := range []string{"margins", "and the margins?", "by team"} {
		if r, ok := m.Match(text, Context{History: true}); ok {
			t.Errorf("%q bypasses inside a conversation: %+v", text, r)
		}
	}
}

func TestConversation(t *testing.T) {
	m := defaultMatcher(t)
	for _, c := range []struct {
		text     string
		context  Context
		bypass   bool
		retrieve bool
		rule     string
	}{
		{"go on", Context{History: true}, true, false, "en.follow_up"},
		{"go on", Context{}, false, true, "en.follow_up"},
		{"ok, waarom?", Context{}, false, true, "nl.follow_up"},
		{"waarom?", Context{History: true, AfterQuestion: true}, true, false, "nl.follow_up"},
		{"yes", Context{}, true, false, "en.affirm"},
		{"yes", Context{History: true}, true, false, "en.affirm"},
		{"yes", Context{History: true, AfterQuestion: true}, false, true, "en.affirm"},
		{"ja graag, bedankt", Context{History: true, AfterQuestion: true}, false, true, "nl.affirm"},
		{"no", Context{History: true, AfterQuestion: true}, true, false, "en.deny"},
		{"thanks", Context{History: true, AfterQuestion: true}, true, false, "en.thanks"},
		{"why thank you", Context{}, false, true, "en.follow_up"},
	} {
		r, ok := m.Match(c.text, c.context)
		if ok != c.bypass || r.Retrieve != c.retrieve || r.Rule != c.rule || r.Reason == "" {
			t.Errorf("%q in %+v: bypass %t, %+v", c.text, c.context, ok, r)
		}
	}
}

func TestLengthRule(t *testing.T) {
	strict, err := New(Default(), Options{Length: LengthStrict})
	if err != nil {
		t.Fatal(err)
	}
	off, err := New(Default(), Options{Length: LengthOff})
	if err != nil {
		t.Fatal(err)
	}
	glossary, err := New(Default(), Options{Glossary: []string{"Zyx", "uvo"}})
	if err != nil {
		t.Fatal(err)
	}
	m := defaultMatcher(t)
	for _, c := range []struct {
		m      *Matcher
		name   string
		text   string
		bypass bool
	}{
		{m, "default", "zyx", true}, {strict, "strict", "zyx", true}, {off, "off", "zyx", false}, {glossary, "glossary", "zyx", false}, {glossary, "glossary", "the UVO", false},
		{m, "default", "payroll", false}, {strict, "strict", "payroll", true}, {strict, "strict", "payrolls", false}, {off, "off", "hi", true},
		{strict, "strict", "VAT?", true}, {strict, "strict", "休假?", true}, {m, "default", "a 👋👋👋👋👋👋👋", false},
		{m, "default", "uvo", true}, {m, "default", "uvo!!!!", true}, {m, "default", "uvo 1", false}, {m, "default", "½ uvo", false},
		{m, "default", "qrs", false}, {m, "default", "UVO", false}, {m, "default", "thx pls", true},
	} {
		if r, ok := c.m.Match(c.text, Context{}); ok != c.bypass {
			t.Errorf("%s: %q bypass %t, want %t: %+v", c.name, c.text, ok, c.bypass, r)
		}
	}
	if r, ok := strict.Match("margins", Context{History: true}); !ok || r.Rule != RuleLength || !strings.Contains(r.Reason, "strict") {
		t.Errorf("strict inside a conversation: %+v %t", r, ok)
	}
}

// TestCapitals has words of rules that are acronyms when they are typed as such.
func TestCapitals(t *testing.T) {
	m := defaultMatcher(t)
	for text, want := range map[string]bool{"mdr": true, "MDR": false, "mdr !": true, "MDR?": false, "ok MDR": false, "OK MDR": true, "Danke, LG": true, "NP": true, "THANKS": true} {
		if r, ok := m.Match(text, Context{}); ok != want || r.Reason == "" {
			t.Errorf("%q: bypass %t, want %t: %+v", text, ok, want, r)
		}
	}
}

// TestFirstBytes checks the index over patterns: a text that a pattern matches begins with a byte that the pattern is listed under.
func TestFirstBytes(t *testing.T) {
	for source, want := range map[string]string{"he+y": "h", "(?:ab|[c-e]f)?g": "acdeg", "x*y": "xy", "(?i)k": "Kk", `\bz`: "z"} {
		var got []byte
		for b, begins := range firstBytes(source) {
			if begins && b < utf8.RuneSelf {
				got = append(got, byte(b))
			}
		}
		if string(got) != want {
			t.Errorf("%s may begin with %q, want %q", source, got, want)
		}
	}
	if !firstBytes("é")["é"[0]] {
		t.Error("a pattern that begins with a letter beyond ASCII is not listed under its first byte")
	}
}

func TestWithoutWords(t *testing.T) {
	m := defaultMatcher(t)
	for text, want := range map[string]bool{"": true, "   ": true, "👍": true, "...": true, "🙏🏽🙏🏽": true, "?": false, "???": false, "👍?": false, "？": false} {
		r, ok := m.Match(text, Context{})
		if ok != want || ok && r.Rule != RuleSymbols {
			t.Errorf("%q: %+v %t", text, r, ok)
		}
	}
}

// FuzzMatch checks what holds for any text: a message that bypasses by a phrase still does with another greeting in front of it, one with a
// question behind it never does, and spelling variants are equal.
func FuzzMatch(f *testing.F) {
	m := defaultMatcher(f)
	for _, s := range []string{"hi", "ok thanks", "VAT?", "hoe gaat het", "go on", "休假", "", "\xff", "a b c d e f g h i j k l m n o p q r s t u v w x y z"} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, history bool) {
		c := Context{History: history}
		r, ok := m.Match(s, c)
		if ok && r.Retrieve || ok && r.Rule == "" {
			t.Fatalf("%q: %+v", s, r)
		}
		if again, same := m.Match(s, c); again != r || same != ok {
			t.Fatalf("%q: %+v, then %+v", s, r, again)
		}
		if ok && r.Rule != RuleLength && r.Rule != RuleSymbols && len(strings.Fields(s)) < maxWords/2 && len(s) < maxBytes/2 {
			if r, ok := m.Match("hello. "+s, c); !ok {
				t.Fatalf("%q bypasses, and with a greeting it does not: %+v", s, r)
			}
		}
		if r, ok := m.Match(s+" where is the zyxwv form", c); ok {
			t.Fatalf("%q and a question bypass: %+v", s, r)
		}
		if r2, ok2 := m.Match("\u200b"+s+" ", c); ok2 != ok || r2.Rule != r.Rule {
			t.Fatalf("%q: %+v, with an invisible character %+v", s, r, r2)
		}
	})
}

// BenchmarkMatch decides over the two test sets and some long questions in turn, on one core.
func BenchmarkMatch(b *testing.B) {
	m := defaultMatcher(b)
	list := append(turns(b, "short_questions.txt", 150), turns(b, "small_talk.txt", 150)...)
	for _, q := range []string{"Hi, what is our refund policy?", "thanks, and how many vacation days do I have left?", "ok so where is the expense form",
		"Goedemorgen, hoeveel vakantiedagen heb ik nog dit jaar en vervallen ze?", "what is the notice period for a supplier contract that was signed before 2020"} {
		for range 40 {
			list = append(list, turn{text: q})
		}
	}
	bytes := 0
	for _, q := range list {
		bytes += len(q.text)
	}
	b.SetBytes(int64(bytes / len(list)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q := list[i%len(list)]
		m.Match(q.text, q.context)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// What is longer than anybody types is not even cleaned, and retrieves.
func TestHugeMessagesAreNotRead(t *testing.T) {
	m, err := New(Default(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	invisible := strings.Repeat("\u200b", 1000)
	if _, bypass := m.Match("hi"+invisible, Context{}); !bypass {
		t.Error("a greeting with invisible characters behind it retrieves")
	}
	if _, bypass := m.Match("hi"+strings.Repeat(invisible, 30), Context{}); bypass {
		t.Error("90 kB of invisible characters were read")
	}
	huge := strings.Repeat("é", 4<<20)
	if allocs := testing.AllocsPerRun(10, func() { m.Match(huge, Context{}) }); allocs > 0 {
		t.Errorf("a message of 8 MiB costs %v allocations", allocs)
	}
}
