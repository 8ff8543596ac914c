package graphemes

import (
	"slices"
	"testing"
)

func clusters(text string) (out []string) {
	var s State
	last := 0
	for i, c := range text {
		if s.Next(ClassOf(c)) && i > 0 {
			out = append(out, text[last:i])
			last = i
		}
	}
	return append(out, text[last:])
}

// One example or more for each rule of the annex.
func TestRules(t *testing.T) {
	for _, want := range [][]string{
		{"a", "b"}, {"\r\n", "\n", "\r", "\r"}, {"a", "\x01", "\u0301"}, {"\u1100\u1161\u11a8", "\u1100"}, {"가\u11a8", "각", "\u1161"}, {"각\u11a8"},
		{"e\u0301\u0301", "\u200b", "\u0301"}, {"a\u200d", "b"}, {"ก\u0e33"}, {"\u0600a", "b"}, {"क्ष", "क"}, {"क्\u200dष", "क\u093c", "क"},
		{"👨\u200d👩\u200d👧", "👨"}, {"👨🏽\u200d👩", "a\u200d", "👩"}, {"👨\u200d\u200d", "👩"}, {"🇩🇪", "🇫🇷", "🇳"}, {"\u0600🇩🇪", "🇫🇷"}, {"™\u200d™\u0300"},
	} {
		text := ""
		for _, c := range want {
			text += c
		}
		if got := clusters(text); !slices.Equal(got, want) {
			t.Errorf("%+q, want %+q", got, want)
		}
	}
}

// What is certain without what stands before must be so with it.
func TestBreaksIsCertain(t *testing.T) {
	samples := []rune("a\r\n\x01\u0301\u200d\u0903\u0600\u1100\u1161\u11a8가각🇩👨क\u094d\u093c")
	for _, a := range samples {
		for _, b := range samples {
			for _, c := range samples {
				for _, d := range samples {
					var s State
					for _, r := range []rune{a, b, c} {
						s.Next(ClassOf(r))
					}
					if begins := s.Next(ClassOf(d)); Breaks(ClassOf(c), ClassOf(d)) && !begins {
						t.Fatalf("%U %U %U %U", a, b, c, d)
					}
				}
			}
		}
	}
}
