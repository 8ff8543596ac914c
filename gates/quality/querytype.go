package quality

import (
	"strings"
	"unicode"

	"ragate/gates/textnorm"
)

// QueryType is what kind of answer a query asks for. Each has its threshold in the policy.
type QueryType string

const (
	// FAQ asks how something works or whether something is allowed: "how do I reset my password", "mag ik parkeren".
	FAQ QueryType = "faq"
	// Lookup asks for one fact or names one thing: "who is the CFO", "INV-2024-001", "travel policy".
	Lookup QueryType = "lookup"
	// Broad asks for more than one passage can hold: "give me an overview of our pension plan".
	Broad QueryType = "broad"
	// Comparison puts two things side by side: "verschil tussen thuiswerken en telewerken".
	Comparison QueryType = "comparison"
)

// QueryTypes lists all types.
func QueryTypes() []QueryType { return []QueryType{FAQ, Lookup, Broad, Comparison} }

const (
	// readWords bounds what is read of a pasted document; what it asks stands at its beginning as a rule.
	readWords = 64
	// longWords is where a message holds more than one passage's worth of needs. Questions of people rarely pass 30 words.
	longWords = 40
	// shortWords is the most words of a search phrase.
	shortWords = 3
)

// ClassifyQuery returns a query's type, and which rule said so, for people. The first of these rules that fits decides:
//
//  1. A comparing phrase ("difference between", "vs", "vergeleken met"), or a choice ("which is cheaper, X or Y").
//  2. An encompassing phrase ("overview", "everything about", "vertel me over"), two or more questions, or over 40 words.
//  3. Search operators: words in quotes, field:value, AND/OR/NOT, an e-mail or web address, a code of letters and digits.
//  4. A question word that asks for a fact ("who", "when", "how many", "hoeveel", "wanneer", "combien", "cuándo").
//  5. Any other question word, an auxiliary in front ("can I", "mag ik"), or a question mark: faq.
//  6. Without a question: up to three words are a lookup, more are faq.
//
// Phrases are known in English, Dutch, German, French and Spanish, and are whole words. Greetings and courtesies in front are
// passed over ("hi, could you tell me when …"). A script without spaces between words has no phrases here; such a query is broad when long,
// lookup by its operators, else faq.
func ClassifyQuery(query string) (QueryType, string) {
	words := textnorm.Words(query)
	long := len(words) > longWords
	unspaced := textnorm.HasUnspacedScript(query)
	if unspaced { // each character was a word
		long = len(words) > 4*longWords
	}
	words = words[:min(len(words), readWords)]
	head := skipCourtesy(words)

	if p := findPhrase(words, comparing); p != "" {
		return Comparison, "compares: " + quote(p)
	}
	if p := choice(head); p != "" {
		return Comparison, "asks to choose: " + quote(p)
	}
	if p := findPhrase(words, encompassing); p != "" {
		return Broad, "asks for an overview: " + quote(p)
	}
	if len(head) > 0 && splitVerbs[head[0]] != "" && head[len(head)-1] == splitVerbs[head[0]] {
		return Broad, "asks for an overview: " + quote(head[0]+" … "+head[len(head)-1])
	}
	if manyQuestions(query) {
		return Broad, "asks several questions"
	}
	if long {
		return Broad, "is long enough to need several passages"
	}
	if p := operator(query); p != "" {
		return Lookup, "holds " + p
	}
	if len(head) > 0 {
		if p := leading(head, asking); p != "" { // "wie kann ich" is German for how, "wie" Dutch for who
			return FAQ, "begins with " + quote(p)
		}
		if p := leading(head, factual); p != "" {
			return Lookup, "asks for a fact: " + quote(p)
		}
	}
	if p := findPhrase(words, factualAnywhere); p != "" {
		return Lookup, "asks for a fact: " + quote(p)
	}
	if len(head) > 0 && askingWord[head[0]] {
		return FAQ, "begins with " + quote(head[0])
	}
	switch {
	case textnorm.HasQuestionMark(query):
		return FAQ, "is a question"
	case len(words) == 0:
		return FAQ, "holds no words"
	case len(words) <= shortWords && !unspaced:
		return Lookup, "is a search phrase of few words"
	}
	return FAQ, "is a statement"
}

func quote(s string) string { return "“" + s + "”" }

// phrases maps a phrase's first word to its rests, longest first; a rest of nothing is the word alone.
type phrases map[string][][]string

func newPhrases(list ...string) phrases {
	p := make(phrases, len(list))
	for _, text := range list {
		words := textnorm.Words(text)
		rests := append(p[words[0]], words[1:])
		for i := len(rests) - 1; i > 0 && len(rests[i]) > len(rests[i-1]); i-- {
			rests[i], rests[i-1] = rests[i-1], rests[i]
		}
		p[words[0]] = rests
	}
	return p
}

// at returns the phrase that words begin with.
func (p phrases) at(words []string) string {
	for _, rest := range p[words[0]] {
		if len(words) > len(rest) && equalWords(words[1:1+len(rest)], rest) {
			return strings.Join(words[:1+len(rest)], " ")
		}
	}
	return ""
}

func equalWords(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func findPhrase(words []string, p phrases) string {
	for i := range words {
		if found := p.at(words[i:]); found != "" {
			return found
		}
	}
	return ""
}

func leading(head []string, p phrases) string { return p.at(head) }

// skipCourtesy drops greetings and requests to be told from the front. A message of nothing else is left whole.
func skipCourtesy(words []string) []string {
	head := words
	for len(head) > 0 {
		p := courtesies.at(head)
		if p == "" {
			return head
		}
		head = head[strings.Count(p, " ")+1:]
	}
	return words
}

// choice finds "which … or …". Dutch "of" also means whether, so the question has to begin with a word that chooses.
func choice(head []string) string {
	if len(head) < 4 || !choosing[head[0]] {
		return ""
	}
	for _, w := range head[2 : len(head)-1] {
		if w == "or" || w == "of" && head[0][0] == 'w' && head[0] != "which" && head[0] != "what" || w == "oder" || w == "ou" || w == "o" {
			return head[0] + " … " + w
		}
	}
	return ""
}

// manyQuestions reports two or more questions of at least three words each.
func manyQuestions(query string) bool {
	questions, rest := 0, query
	for questions < 2 {
		i := strings.IndexAny(rest, "?？؟")
		if i < 0 {
			return false
		}
		if len(strings.Fields(rest[:i])) >= 3 {
			questions++
		}
		rest = strings.TrimLeft(rest[i:], "?？؟! ")
	}
	return true
}

// operator names the first search operator of query, as typed.
func operator(query string) string {
	text := textnorm.Clean(query)
	if len(text) > 4096 {
		text = text[:4096]
	}
	if i := strings.IndexAny(text, "\"“„«"); i >= 0 {
		rest := text[i+1:]
		if j := strings.IndexAny(rest, "\"”“»"); j > 0 && strings.TrimSpace(rest[:j]) != "" {
			return "words in quotes"
		}
	}
	for i, word := range strings.Fields(text) {
		switch word {
		case "AND", "OR", "NOT":
			if i > 0 {
				return "the operator " + word
			}
		}
		if name, value, ok := strings.Cut(word, ":"); ok && len(name) > 1 && value != "" && isASCIILetters(name) {
			return "a field: " + quote(word)
		}
		if at := strings.IndexByte(word, '@'); at > 0 && strings.IndexByte(word[at:], '.') > 1 {
			return "an address"
		}
		if isCode(word) {
			return "a code: " + quote(word)
		}
	}
	return ""
}

func isASCIILetters(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// isCode reports a word that mixes letters and digits as identifiers do: "INV-2024-001", "v2.3", "A4". An ordinal or a number
// with a unit behind it ("2nd", "30km", "8u") is no code: letters must come before a digit.
func isCode(word string) bool {
	letter, code := false, false
	for _, r := range strings.TrimRight(word, ".,;:!?)'\"") {
		switch {
		case r >= '0' && r <= '9':
			code = code || letter
		case unicode.IsLetter(r):
			if r > unicode.MaxLatin1 {
				return false
			}
			letter = true
		case strings.ContainsRune("-_./#", r):
		default:
			return false
		}
	}
	return code
}
