package synonyms

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestBuiltinList(t *testing.T) {
	list := Default()
	if got := list.Languages(); !slices.Equal(got, []string{"en", "nl"}) {
		t.Fatalf("languages %v", got)
	}
	for _, lang := range list.Languages() {
		if n := list.Groups(lang); n < 60 {
			t.Errorf("%s has %d groups", lang, n)
		}
		for key, targets := range list.languages[lang].synonyms.targets {
			for _, target := range targets {
				if phrase(target) == "" || phrase(target) == key {
					t.Errorf("%s: %q becomes %q", lang, key, target)
				}
			}
		}
	}
	if list.Groups("NL_be") != list.Groups("nl") || list.Groups("de") != 0 {
		t.Error("a tag with a region is not its language, or a missing language has groups")
	}
}

// The golden file was read line by line by a person: it shows what the list makes of sentences with traps in them.
func TestReworded(t *testing.T) {
	turns, err := os.ReadFile("testdata/turns.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := Default()
	var b strings.Builder
	lines := 0
	for line := range strings.Lines(string(turns)) {
		lang, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("%q has no tab", line)
		}
		lines++
		fmt.Fprintf(&b, "%s\t|%s|\n", lang, text)
		for _, v := range list.Reword(text, lang) {
			fmt.Fprintf(&b, "  %s\t|%s|", v.Kind, v.Text)
			for _, c := range v.Changes {
				fmt.Fprintf(&b, " %s→%s", c.From, c.To)
			}
			b.WriteByte('\n')
		}
	}
	if lines < 40 {
		t.Fatalf("only %d turns", lines)
	}
	const golden = "testdata/reworded.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("line %d of %s differs (-update rewrites it):\ngot  %q\nwant %q", i+1, golden, at(got, i), at(wanted, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

func TestArticles(t *testing.T) {
	for next, want := range map[string]string{"issue": "an", "vacation": "a", "hour": "an", "unit": "a", "unhappy": "an", "user manual": "a", "one": "a",
		"ATM": "an", "honest": "an", "European": "a", "intelligent": "an", "uninteresting": "an", "hi": "a"} {
		if got := articleFor("a", next); got != want {
			t.Errorf("%s %s, want %s", got, next, want)
		}
	}
	for _, c := range [][3]string{{"An", "car", "A"}, {"A", "issue", "An"}, {"A", "ISSUE", "AN"}, {"AN", "issue", "AN"}, {"the", "issue", ""}} {
		if got := articleFor(c[0], c[1]); got != c[2] {
			t.Errorf("%s before %s becomes %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestParseFaults(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []string
	}{
		"empty":    {"", []string{"word list is empty"}},
		"version":  {"version: 2", []string{"version is 2: this program reads version 1"}},
		"none":     {"version: 1", []string{"languages is empty"}},
		"field":    {"version: 1\nlanguages: {en: {synonym: {}}}", []string{"field synonym not found"}},
		"not yaml": {"\t", []string{"yaml"}},
		"all at once": {`
version: 1
languages:
  EN-gb: {}
  en:
    framings: ["Hi", "{text}", "Hi, {text}"]
    keep: [kept phrase, "!"]
    contractions: [a > b > c]
    synonyms:
      one: [buy]
      two: [sell = , big = large]
      three: [large = huge, "tiny = tiny", Kept  Phrase = other, x > ]
`, []string{
			"language EN-gb", `language en, "Hi": a framing has {text} once`, `language en, "{text}": a framing`, `group keep, "!": has no word`,
			`group contractions, "a > b > c": has > twice`, `group one, "buy": says no second word`, `group two, "sell =": has a place without a word`,
			`group two, "big = large": "large" stands on the left of another row`, `group three, "tiny = tiny": has "tiny" twice`,
			`group three, "Kept  Phrase = other": "Kept  Phrase" stands on the left of another row, or is to be kept`, `group three, "x >": has a place without a word`,
		}},
	} {
		_, err := Parse([]byte(c.yaml))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", name, err, want)
			}
		}
	}
	var fault *EntryError
	if _, err := Parse([]byte("version: 1\nlanguages: {en: {synonyms: {one: [buy]}}}")); !errors.As(err, &fault) || fault.Group != "one" || fault.Row != "buy" {
		t.Errorf("the fault does not name its place: %+v", fault)
	}
}

// Every source of a two-way row comes back to where it was.
func TestExchangeIsReversible(t *testing.T) {
	list := Default()
	checked := 0
	for code, l := range list.languages {
		for key, targets := range l.synonyms.targets {
			if len(targets) != 1 {
				continue
			}
			if back := l.synonyms.targets[phrase(targets[0])]; len(back) != 1 || phrase(back[0]) != key {
				continue // one way, or a row of three
			}
			there := list.Reword(key, code)[0]
			back := list.Reword(there.Text, code)[0]
			if there.Kind != Synonym || back.Kind != Synonym || phrase(back.Text) != key {
				t.Errorf("%s: %q becomes %q becomes %q", code, key, there.Text, back.Text)
			}
			checked++
		}
	}
	if checked < 200 {
		t.Errorf("only %d rows were checked", checked)
	}
}

func FuzzReword(f *testing.F) {
	list := Default()
	for _, s := range []string{"Where can I buy a holiday?", "a\x80 problem", "WHAT'S", "wi‑fi'", "e\u0301chec", "don’t  buy", "", "Ⱥ ST"} {
		f.Add(s, "en")
		f.Add(s, "nl")
	}
	f.Fuzz(func(t *testing.T, text, lang string) {
		variants := list.Reword(text, lang)
		again := list.Reword(text, lang)
		seen := map[string]bool{text: true}
		for i, v := range variants {
			if v.Text != again[i].Text || v.Kind != again[i].Kind {
				t.Fatalf("%q was reworded in two ways", text)
			}
			if seen[v.Text] {
				t.Fatalf("%q has the variant %q twice, or unchanged", text, v.Text)
			}
			seen[v.Text] = true
			if utf8.ValidString(text) && !utf8.ValidString(v.Text) {
				t.Fatalf("%q became invalid: %q", text, v.Text)
			}
			// The changes explain the difference: nothing but them, and articles before them, may differ.
			rest := v.Text
			for _, c := range v.Changes {
				_, after, found := strings.Cut(rest, c.To)
				if !found || !strings.Contains(text, c.From) {
					t.Fatalf("%q → %q does not hold the change %q → %q", text, v.Text, c.From, c.To)
				}
				rest = after
			}
			if len(v.Changes) > 0 && !strings.HasSuffix(text, rest) {
				t.Fatalf("%q → %q changed what comes after the last replaced word", text, v.Text)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(builtin)
	f.Add([]byte("version: 1\nlanguages: {en: {synonyms: {one: [buy = purchase]}, framings: ['a {text}']}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data)
		if err != nil {
			return
		}
		for _, lang := range list.Languages() {
			list.Reword("Buy a small thing, don't ask", lang)
		}
	})
}
