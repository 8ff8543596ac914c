package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"ragate/gates/textnorm"
)

// ShortMessage is the length in characters under which the length rule applies. Eight is what the rule is known by: "payroll" has seven.
const ShortMessage = 8

const (
	// maxBytes bounds the messages that are looked at. The longest small talk in the rules has about 70; what is longer asks something.
	maxBytes = 400
	// maxRaw bounds what is cleaned to find that out: megabytes of it would take longer than a gate has.
	maxRaw = 64 << 10
	// minCapitals is the length in letters of the shortest word of a rule that capitals make an acronym of: "NP" and "KK" are typed so.
	minCapitals = 3
	// maxWords bounds the search over phrases for the same reason.
	maxWords = 24
)

// Names of the rules that are not written in a file.
const (
	RuleLength  = "length"  // the length rule
	RuleSymbols = "symbols" // nothing but emoji, punctuation or blanks, and no question mark
)

// LengthRule says what happens to messages under [ShortMessage] characters that no rule knows.
type LengthRule string

const (
	LengthDefault LengthRule = "default" // bypass unless something in it may be a subject
	LengthStrict  LengthRule = "strict"  // bypass
	LengthOff     LengthRule = "off"     // pass on
)

// Options are the settings of a matcher. The zero value is the default.
type Options struct {
	Length   LengthRule // empty means LengthDefault
	Glossary []string   // short words that are subjects, on top of those in the files
}

// Context is what the conversation before a message adds to it.
type Context struct {
	// History is true when there was any turn before this one.
	History bool
	// AfterQuestion is true when the last message before this one is the assistant's and asks something.
	AfterQuestion bool
}

// Result explains a decision.
type Result struct {
	Rule     string // id of the rule that decided, empty when none did
	Language string // of the rule; empty for the built-in ones
	Matched  string // the part of the normalised message that the rule matched
	Reason   string // one sentence
	// Retrieve is true when the layer is certain that the turn retrieves, so that later layers should not be asked: a follow-up without a
	// conversation, or a confirmation of what the assistant asked.
	Retrieve bool
}

// Matcher holds compiled rules.
type Matcher struct {
	length         LengthRule
	rules          []rule
	phrases        map[string]int // folded phrase → index in rules
	longest        int            // words in the longest phrase
	patterns       []wordPattern
	beginning      [256][]int // first byte of a text → indices of the patterns that may match it
	fillers        map[string]bool
	longestFiller  int
	conversational map[string]bool
	glossary       map[string]bool
}

type rule struct {
	id               string
	language         string
	about            string
	needsHistory     bool
	notAfterQuestion bool
}

type wordPattern struct {
	re   *regexp.Regexp
	rule int
}

// firstBytes returns the bytes that a text matched by the pattern may begin with. Past ASCII it does not look closely: every byte of
// UTF-8 beyond it may begin one then. source must compile.
func firstBytes(source string) (first [256]bool) {
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		panic("pattern: " + err.Error()) // the caller compiled it
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		panic("pattern: " + err.Error())
	}
	seen := make([]bool, len(prog.Inst))
	var walk func(pc uint32)
	walk = func(pc uint32) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		switch i := &prog.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			walk(i.Out)
			walk(i.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
			walk(i.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			for b := range first {
				first[b] = first[b] || b >= utf8.RuneSelf || i.MatchRune(rune(b))
			}
		}
	}
	walk(uint32(prog.Start))
	return first
}

// Rules returns the ids of the rules in the order in which they were read.
func (m *Matcher) Rules() []string {
	ids := make([]string, len(m.rules))
	for i, r := range m.rules {
		ids[i] = r.id
	}
	return ids
}

// Match decides whether text needs no retrieval by its wording alone. When it is false, the Result says why where that is known.
func (m *Matcher) Match(text string, c Context) (Result, bool) {
	if len(text) > maxRaw || len(text) > maxBytes && len(textnorm.Clean(text)) > maxBytes {
		return Result{Reason: "the message is longer than small talk"}, false
	}
	line := fold(textnorm.Plain(text))
	if line == "" {
		if textnorm.HasQuestionMark(text) {
			return Result{Reason: "a question mark alone may ask about what was said"}, false
		}
		return Result{Rule: RuleSymbols, Matched: strings.TrimSpace(text), Reason: "the message holds no words"}, true
	}
	found, ok := m.cover(line, c)
	switch {
	case ok:
		if w := m.acronym(text, line); w != "" {
			return Result{Reason: fmt.Sprintf("%s reads as an acronym", w)}, false
		}
		r := m.rules[found.rule]
		return Result{Rule: r.id, Language: r.language, Matched: line[found.from:found.to],
			Reason: fmt.Sprintf("the whole message is small talk: %q is in rule %s", line[found.from:found.to], r.id)}, true
	case found.blocked == needsHistory:
		r := m.rules[found.rule]
		return Result{Rule: r.id, Language: r.language, Matched: line[found.from:found.to], Retrieve: true,
			Reason: fmt.Sprintf("%q asks for more of an answer, and there is no conversation before it", line[found.from:found.to])}, false
	case found.blocked == afterQuestion:
		r := m.rules[found.rule]
		return Result{Rule: r.id, Language: r.language, Matched: line[found.from:found.to], Retrieve: true,
			Reason: fmt.Sprintf("%q answers a question of the assistant, which may need the documents", line[found.from:found.to])}, false
	}
	return m.short(text, line, c)
}

// acronym returns a word of consonants that is typed in capitals and matters to a rule, or nothing: "mdr" laughs in French, MDR is a
// regulation. In a message that is all capitals, more than one word is a raised voice.
func (m *Matcher) acronym(text, line string) string {
	if strings.Contains(line, " ") && !strings.ContainsFunc(text, unicode.IsLower) {
		return ""
	}
	for w := range strings.FieldsSeq(text) {
		if !textnorm.IsAcronym(w) {
			continue
		}
		if word := fold(textnorm.Plain(w)); len(word) >= minCapitals && withoutVowels(word) && !m.fillers[word] {
			return w
		}
	}
	return ""
}

// short applies the length rule.
func (m *Matcher) short(text, line string, c Context) (Result, bool) {
	if m.length == LengthOff || textnorm.Len(text) >= ShortMessage {
		return Result{}, false
	}
	bypass := Result{Rule: RuleLength, Matched: line, Reason: fmt.Sprintf("the message is under %d characters and names no subject", ShortMessage)}
	if m.length == LengthStrict {
		bypass.Reason = fmt.Sprintf("the message is under %d characters (length_rule: strict)", ShortMessage)
		return bypass, true
	}
	pass := func(format string, args ...any) (Result, bool) {
		return Result{Reason: "short, but " + fmt.Sprintf(format, args...)}, false
	}
	switch {
	case textnorm.HasQuestionMark(text):
		return pass("it holds a question mark")
	case textnorm.HasDigit(text):
		return pass("it holds a number")
	case textnorm.HasUnspacedScript(text):
		return pass("in its script a few characters say much")
	case textnorm.HasAcronym(text): // "IT" too; a shouted "HEY" is a phrase, and was found before
		return pass("it holds an acronym")
	}
	for w := range strings.SplitSeq(line, " ") {
		switch {
		case m.glossary[w]:
			return pass("%q is in the glossary", w)
		case m.conversational[w]:
		case c.History:
			return pass("%q may lean on the conversation", w)
		case letters(w) >= 4:
			return pass("%q is no conversational word", w)
		case withoutVowels(w):
			return pass("%q reads as an abbreviation", w)
		case strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }):
			return pass("%q is written with a sign", w) // "c++"
		case foreign(w):
			return pass("%q is not in the Latin alphabet", w)
		}
	}
	return bypass, true
}

// withoutVowels reports whether w is two or three ASCII consonants: an acronym typed in lower case ("bhv", "lpg"), as no word is. Those of
// chat ("thx") are phrases or conversational words.
func withoutVowels(w string) bool {
	if len(w) < 2 {
		return false
	}
	for i := range len(w) {
		if w[i] < 'a' || w[i] > 'z' || strings.IndexByte("aeiouy", w[i]) >= 0 {
			return false
		}
	}
	return true
}

// letters counts the letters of w.
func letters(w string) int {
	n := 0
	for _, r := range w {
		if unicode.IsLetter(r) {
			n++
		}
	}
	return n
}

// foreign reports whether w holds a letter that no rule file of a Latin alphabet could list.
func foreign(w string) bool {
	return strings.ContainsFunc(w, func(r rune) bool { return r >= utf8.RuneSelf && unicode.IsLetter(r) && !unicode.Is(unicode.Latin, r) })
}

// fold removes what people leave out when they type in a hurry, accents and apostrophes, from a text of [textnorm.Plain].
func fold(s string) string {
	ascii, plain := true, true
	for i := range len(s) {
		ascii = ascii && s[i] < utf8.RuneSelf
		plain = plain && s[i] != '\'' && s[i] != '-'
	}
	if !ascii {
		var b strings.Builder
		b.Grow(len(s))
		for _, r := range norm.NFD.String(s) {
			if !unicode.Is(unicode.Mn, r) {
				b.WriteRune(r)
			}
		}
		// Recomposed, so that letters other than the stripped ones (Hangul) keep their usual form.
		s = norm.NFC.String(b.String())
	}
	if !plain {
		s = strings.ReplaceAll(s, "'", "")
	}
	return s
}

type blocked uint8

const (
	notBlocked blocked = iota
	needsHistory
	afterQuestion
)

// covering is how a message was, or would have been, covered by phrases.
type covering struct {
	rule     int // of the longest phrase in it
	from, to int // that phrase, in bytes of the line
	blocked  blocked
}

// state is the best covering of the line up to one word; longest < 0 means that it cannot be covered.
type state struct {
	covering
	longest int // bytes of the longest phrase, 0 when only fillers were used
}

// cover finds phrases that make up the whole line. When the only way uses a rule that the context does not allow, ok is false and the
// covering says which.
func (m *Matcher) cover(line string, c Context) (found covering, ok bool) {
	var starts [maxWords + 1]int // where words begin; starts[n] is one past the line's end plus a space
	n := 0
	for i := 0; i < len(line); {
		if n == maxWords {
			return covering{}, false
		}
		starts[n] = i
		n++
		if j := strings.IndexByte(line[i:], ' '); j >= 0 {
			i += j + 1
		} else {
			i = len(line)
		}
	}
	starts[n] = len(line) + 1
	var best [maxWords + 1]state
	for i := 1; i <= n; i++ {
		best[i].longest = -1
	}
	// Blocked rules are followed as well, but any covering without them wins.
	step := func(from, to, rule int) {
		s := best[from]
		start, end := starts[from], starts[to]-1
		if size := end - start; rule >= 0 {
			b := m.blocks(rule, c)
			// A blocked rule is named before any other, since it decides; else the longest phrase is.
			if b > s.blocked || b == s.blocked && size > s.longest {
				s.covering, s.longest = covering{rule: rule, from: start, to: end, blocked: b}, size
			}
		}
		if t := best[to]; t.longest < 0 || s.blocked < t.blocked || s.blocked == t.blocked && s.longest > t.longest {
			best[to] = s
		}
	}
	for i := range n {
		if best[i].longest < 0 {
			continue
		}
		for j := i + 1; j <= n && j-i <= max(m.longest, m.longestFiller); j++ {
			part := line[starts[i] : starts[j]-1]
			if r, known := m.phrases[part]; known {
				step(i, j, r)
			}
			if m.fillers[part] {
				step(i, j, -1)
			}
		}
		m.matchPatterns(line[starts[i]:], func(r int) { step(i, n, r) })
		if i+1 < n {
			m.matchPatterns(line[starts[i]:starts[i+1]-1], func(r int) { step(i, i+1, r) })
		}
	}
	end := best[n]
	if end.longest <= 0 {
		return covering{}, false
	}
	return end.covering, end.blocked == notBlocked
}

// matchPatterns calls hit with the rule of each pattern that matches all of s, which is not empty. Most words begin like no pattern, and
// an expression costs far more than a look at one byte.
func (m *Matcher) matchPatterns(s string, hit func(rule int)) {
	for _, i := range m.beginning[s[0]] {
		if p := &m.patterns[i]; p.re.MatchString(s) {
			hit(p.rule)
		}
	}
}

func (m *Matcher) blocks(i int, c Context) blocked {
	switch r := &m.rules[i]; {
	case r.needsHistory && !c.History:
		return needsHistory
	case r.notAfterQuestion && c.AfterQuestion:
		return afterQuestion
	}
	return notBlocked
}
