package semantic

import (
	"slices"
	"strings"
	"unicode"

	"ragate/gates/textnorm"
)

// maxNovel bounds the novel_words feature: the fifth unknown word says no more than the fourth, and long messages should not drown the
// other features.
const maxNovel = 4

// contentForms returns the words of text as they are compared: normalised, and without apostrophes, which many leave out.
func contentForms(text string) []string {
	words := textnorm.Words(text)
	for i, w := range words {
		if strings.Contains(w, "'") {
			words[i] = strings.ReplaceAll(w, "'", "")
		}
	}
	return words
}

// acronyms returns the acronyms of text in the form of contentForms, or nil.
func acronyms(text string) []string {
	if !textnorm.HasAcronym(text) {
		return nil
	}
	var found []string
	for _, part := range strings.Fields(textnorm.Clean(text)) {
		if textnorm.IsAcronym(part) {
			found = append(found, contentForms(part)...)
		}
	}
	return found
}

// novel counts those of the words of text that no non-retrieval reference holds. own takes the text's own words out of the vocabulary once,
// for texts that are themselves among the references.
func (s *Set) novel(text string, words []string, own bool) int {
	if textnorm.HasUnspacedScript(text) {
		return maxNovel // no reference is in such a script, and its words cannot be counted
	}
	known := 1
	if own {
		known = 2
	}
	n := 0
	seen := func(w string) bool { return s.vocabulary[w] >= known }
	short := acronyms(text)
	for _, w := range words {
		if !seen(w) && countsAsSubject(w, short) {
			n++
		}
	}
	return min(n, maxNovel)
}

// countsAsSubject reports whether w could name a subject: four letters or more, a digit, or an acronym.
func countsAsSubject(w string, acronyms []string) bool {
	letters := 0
	for _, r := range w {
		switch {
		case unicode.IsNumber(r):
			return true
		case unicode.IsLetter(r):
			letters++
		}
	}
	if letters >= 4 {
		return true
	}
	for _, a := range acronyms {
		if a == w {
			return true
		}
	}
	return false
}

// content returns those of the words of a message that are content of its own: all that the set does not list as conversational. A single
// letter is not. A bare question for a fact ("when?", "which ones?", "sinds wanneer?") has its question word for content, as the answer is
// not in the conversation; one that speaks to the assistant ("who are you") is small talk or not by its nearness.
func (s *Set) content(words []string) []string {
	var content []string
	for _, w := range words {
		if s.conversational[w] || len(w) == 1 && !unicode.IsDigit(rune(w[0])) {
			continue
		}
		content = append(content, w)
	}
	if content == nil && !slices.ContainsFunc(words, func(w string) bool { return secondPerson[w] }) {
		if i := slices.IndexFunc(words, func(w string) bool { return factWords[w] }); i >= 0 {
			content = words[i : i+1]
		}
	}
	return content
}

// Question words that ask for a fact, and words that speak to somebody, in the languages of the embedded references. A language that is
// not here needs neither: its question words are content unless its own file calls them conversational.
var (
	factWords = set("who", "whom", "whose", "when", "where", "which", "much", "many",
		"wie", "wiens", "wanneer", "waar", "welk", "welke", "hoeveel", "hoelang", "sinds")
	secondPerson = set("you", "your", "youre", "yours", "yourself", "u", "ya", "je", "jij", "jou", "jouw", "jullie", "uw")
)

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}
