package semantic

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"ragate/gates/pattern"
	"ragate/gates/textnorm"
)

// The table of docs/gate-table.md is this test's output, over the vectors of one or more embedders:
//
//	for each: python3 tools/gate_vectors.py --embedder FOLDER --out NAME.bin gates/semantic/references.yaml \
//	    gates/semantic/testdata/*.jsonl DEV.jsonl CRANFIELD/queries.jsonl
//	go test ./gates/semantic -run TestTable -args -model multilingual-e5-small,e5-small-v2 -vectors A.bin,B.bin \
//	    -heldout testdata/heldout_nl.jsonl -dev DEV.jsonl -cranfield CRANFIELD/queries.jsonl -table docs/gate-table.md
//
// with absolute paths, as tests run in their package's folder.
//
// Without these flags it runs on the committed fixture of the first calibration, without the given file, and writes nothing. -refit finds
// the calibration anew from the references before measuring, and says what it is.
var (
	modelFlag     = flag.String("model", "", "the embedders of -vectors, comma separated")
	vectorsFlag   = flag.String("vectors", "", "vectors of the references and all evaluation texts, a file per model")
	devFlag       = flag.String("dev", "", "the given evaluation file")
	cranfieldFlag = flag.String("cranfield", "", "queries of Cranfield")
	heldOutFlag   = flag.String("heldout", "", "turns that nobody tuned on, comma separated files")
	refitFlag     = flag.Bool("refit", false, "find the calibrations anew")
	tableFlag     = flag.String("table", "", "where to write the table")
)

// contrastOf maps the evaluation domains to the contrast categories that are about them. Domains that are absent have none.
var contrastOf = map[string][]string{
	"hr": {"hr"}, "it": {"it_support"}, "finance": {"finance"}, "legal": {"legal"}, "retail": {"orders"}, "travel": {"travel"},
	"health": {"health"}, "engineering": {"science"}, "cooking": {"cooking"}, "municipal": {"public_services"}, "sports": {"sports"},
	"history": {"geography_history"}, "software": {"software_errors"}, "insurance": {"insurance"},
	"banking77": {"banking"}, "cranfield": {"science"},
}

// money is every contrast category that a question about banking could be near to.
var money = []string{"banking", "finance", "insurance", "orders", "account_admin", "vague_problem", "eligibility"}

// scored is a message with its features.
type scored struct {
	message
	features Features
	pattern  bool // the pattern layer bypasses it
}

type bench struct {
	model    string
	set      *Set // with the model's calibration
	vectors  vectors
	matcher  *pattern.Matcher
	messages []message
	known    map[string]bool // plain texts of the references; such messages prove nothing
}

// benches is a bench per model of the flags, or that of the fixture.
func benches(t testing.TB) []*bench {
	if *modelFlag == "" {
		return []*bench{newBench(t, defaultSet(t).CalibratedFor, fixture(t))}
	}
	files := strings.Split(*vectorsFlag, ",")
	var list []*bench
	for i, model := range strings.Split(*modelFlag, ",") {
		if i >= len(files) {
			t.Fatalf("no -vectors for %s", model)
		}
		list = append(list, newBench(t, model, readVectors(t, files[i])))
	}
	return list
}

func newBench(t testing.TB, model string, v vectors) *bench {
	b := &bench{model: model, vectors: v, known: map[string]bool{}}
	set, calibrated := defaultSet(t).For(model)
	if b.set = set; !calibrated || *refitFlag {
		x, err := b.vectors.index(t, b.set).Recalibrate(model)
		if err != nil {
			t.Fatal(err)
		}
		b.set = x.Set()
		for _, name := range methodNames {
			m, err := b.set.Method(name)
			t.Logf("%s: %+v, %v", model, m, err)
		}
	}
	for _, text := range b.set.Texts() {
		b.known[textnorm.Plain(text)] = true
	}
	for _, file := range []string{"eval.jsonl", "tune_nl.jsonl"} {
		b.messages = append(b.messages, readMessages(t, "testdata/"+file)...)
	}
	if *heldOutFlag != "" {
		for _, file := range strings.Split(*heldOutFlag, ",") {
			for _, m := range readMessages(t, file) {
				m.Source = heldOut
				b.messages = append(b.messages, m)
			}
		}
	}
	if *devFlag != "" {
		for _, m := range readMessages(t, *devFlag) {
			if m.Label != "chitchat" {
				m.Category = "banking77"
			}
			b.messages = append(b.messages, m)
		}
	}
	if *cranfieldFlag != "" {
		for _, m := range readMessages(t, *cranfieldFlag) {
			b.messages = append(b.messages, message{Text: m.Text, Label: "knowledge", Category: "cranfield", Lang: "en", Source: "cranfield"})
		}
	}
	var err error
	if b.matcher, err = pattern.New(pattern.Default(), pattern.Options{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// heldOut marks turns that nobody tuned on.
const heldOut = "held out"

var methodNames = []string{Top1, Margin, MarginReference, Contrast, Combined}

// score computes features under a set.
func (b *bench) score(t testing.TB, s *Set, keep func(message) bool) []scored {
	x := b.vectors.index(t, s)
	var list []scored
	for _, m := range b.messages {
		if !keep(m) || b.known[textnorm.Plain(m.Text)] {
			continue
		}
		_, hit := b.matcher.Match(m.Text, pattern.Context{})
		list = append(list, scored{message: m, pattern: hit, features: x.Features(Query{Text: m.Text, Vector: b.vectors.of(t, m.Text)})})
	}
	if len(list) == 0 {
		t.Fatal("no messages")
	}
	return list
}

// run decides over a set of messages with both layers.
func (b *bench) run(t testing.TB, path string, history bool, keep func(message) bool) (n, byPattern, both int) {
	t.Helper()
	x := b.vectors.index(t, b.set)
	m, err := b.set.Method("")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readMessages(t, path) {
		if !keep(r) {
			continue
		}
		n++
		_, hit := b.matcher.Match(r.Text, pattern.Context{History: history})
		v := m.Decide(x.Features(Query{Text: r.Text, Vector: b.vectors.of(t, r.Text), History: history}))
		if hit {
			byPattern++
		}
		if hit || v.Bypass {
			both++
		}
		if (hit || v.Bypass) && knowledge(r) {
			t.Logf("%s: %q bypasses (wording: %t): %s", path, r.Text, hit, v.Reason)
		}
	}
	return n, byPattern, both
}

func (b *bench) hard(t testing.TB, keep func(message) bool) (n, byPattern, both int) {
	return b.run(t, "testdata/hard.jsonl", false, keep)
}

func (b *bench) followUps(t testing.TB, lang string, content bool) (n, byPattern, both int) {
	return b.run(t, "testdata/follow_ups.jsonl", true, func(m message) bool { return m.Lang == lang && knowledge(m) == content })
}

func chitchat(m message) bool  { return m.Label == "chitchat" }
func knowledge(m message) bool { return !chitchat(m) }

func scores(list []scored, m Method, keep func(message) bool) []float64 {
	var out []float64
	for _, s := range list {
		if keep(s.message) {
			out = append(out, m.Score(&s.features))
		}
	}
	slices.Sort(out)
	return out
}

// atRate returns the share of positives above the threshold that lets through at most a share of the negatives.
func atRate(positives, negatives []float64, rate float64) float64 {
	threshold := negatives[len(negatives)-1-int(rate*float64(len(negatives)))]
	n := 0
	for _, p := range positives {
		if p > threshold {
			n++
		}
	}
	return float64(n) / float64(len(positives))
}

// decided counts bypasses at the default: by the semantic layer alone and with the pattern layer in front.
func decided(list []scored, m Method, keep func(message) bool) (n, semantic, both int) {
	for _, s := range list {
		if !keep(s.message) {
			continue
		}
		n++
		v := m.Decide(s.features)
		if v.Bypass {
			semantic++
		}
		if v.Bypass || s.pattern {
			both++
		}
	}
	return n, semantic, both
}

// group is a set of messages that a row of the table is about.
type group struct {
	name string
	keep func(message) bool
	min  [2]float64 // chitchat bypass at 1 % and 0.2 %, domains left out, below which the first model's default method fails the test
}

func groups() []group {
	from := func(source, lang string) func(message) bool {
		return func(m message) bool { return m.Source == source && m.Lang == lang }
	}
	list := []group{
		{"own, English", from("ragate", "en"), [2]float64{0.90, 0.85}},
		{"own, Dutch", from("ragate", "nl"), [2]float64{0.90, 0.85}},
		{"tuning, Dutch", from("ragate-tune", "nl"), [2]float64{0.90, 0.75}},
	}
	if *heldOutFlag != "" {
		list = append(list, group{"held out, Dutch", from(heldOut, "nl"), [2]float64{0.75, 0}})
	}
	if *devFlag != "" {
		list = append(list, group{"given file, English", func(m message) bool { return m.Source == "clinc150" || m.Source == "banking77" }, [2]float64{0.90, 0.80}})
	}
	return list
}

func and(fs ...func(message) bool) func(message) bool {
	return func(m message) bool {
		for _, f := range fs {
			if !f(m) {
				return false
			}
		}
		return true
	}
}

// measured is a bench with its scores.
type measured struct {
	*bench
	def    Method
	full   []scored
	unseen unseenScores
}

func TestTable(t *testing.T) {
	var list []measured
	for _, b := range benches(t) {
		def, err := b.set.Method("")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, measured{b, def, b.score(t, b.set, func(message) bool { return true }), b.leaveDomainsOut(t)})
	}
	best := list[0]
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	p("# What the query gate bypasses\n")
	p("Output of `go test ./gates/semantic -run TestTable`; its head says how to make it. References: version %s, %d of %d categories.", best.set.Version, len(best.set.References), len(best.set.Categories))
	p("Models with `query: `, their weights in float32. Rows: own (gates/semantic/testdata/eval.jsonl), tuning (tune_nl.jsonl), held out")
	p("(heldout_nl.jsonl) and the given file (CLINC150's small talk in English, BANKING77's questions). The coefficients come from the references")
	p("alone. What the rows did decide, held-out ones excepted: references were added where own, tuning and given rows were decided wrongly, and the")
	p("thresholds are the lowest of two digits where at most 0.11 %% of the given file's questions bypass; for e5-small-v2 moreover at most 0.4 %% with")
	p("their domain unseen, and of our own questions no more than with version 2. Of the held-out rows the counts by category were known when version")
	p("3 got references for the kinds of small talk that did worst there, and its sums at two thresholds, 0.81 and the present one, when the rule for")
	p("multilingual-e5-small was chosen; no reference was written in sight of a row. So what to expect on other wording is what the held-out rows say,")
	p("or a little less. Rows that are word for word a reference (\"tell me a joke\") are left out everywhere.\n")
	tableOfModels(t, p, list)
	tableOfMethods(t, p, list)
	tableOfDefault(t, p, best)
	tableOfMistakable(t, p, list)
	tableOfFollowUps(t, p, list)
	tableOfCategories(p, best)
	if *tableFlag != "" {
		if err := os.WriteFile(*tableFlag, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("\n" + out.String())
}

type printer func(format string, args ...any)

func percent(x float64) string { return fmt.Sprintf("%.1f", 100*x) }

func share(k, n int) string { return fmt.Sprintf("%d (%.2f %%)", k, 100*float64(k)/float64(n)) }

// tableOfModels compares the models at their defaults, both layers.
func tableOfModels(t *testing.T, p printer, list []measured) {
	p("## Per language and embedder\n")
	p("The default policy, wording and semantic layer together. The first embedder is the gate's default.\n")
	p("| Embedder | Threshold | Rows | Chitchat bypassed | False bypass | False bypass, domain unseen |")
	p("|---|---|---|---|---|---|")
	for _, m := range list {
		for _, g := range groups() {
			n, _, both := decided(m.full, m.def, and(g.keep, chitchat))
			kn, _, kBoth := decided(m.full, m.def, and(g.keep, knowledge))
			un, unBoth, _ := m.unseen.decided(and(g.keep, knowledge))
			p("| %s | %v | %s | %s | %s | %s |", m.model, m.def.Threshold, g.name, of(both, n), of(kBoth, kn), of(unBoth, un))
			if m.model == list[0].model && float64(kBoth) > 0.01*float64(kn) {
				t.Errorf("%s, %s: %d of %d knowledge turns bypassed, want at most 1 %%", m.model, g.name, kBoth, kn)
			}
			if m.model == list[0].model && float64(both) < 0.75*float64(n) {
				t.Errorf("%s, %s: only %d of %d chitchat turns bypassed, want 75 %%", m.model, g.name, both, n)
			}
		}
	}
}

func of(k, n int) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d (%.2f %%)", k, n, 100*float64(k)/float64(n))
}

// tableOfMethods compares methods at the same share of false bypasses.
func tableOfMethods(t *testing.T, p printer, list []measured) {
	p("\n## Chitchat bypassed at a fixed share of false bypasses\n")
	p("Semantic layer alone, threshold set on the same rows, percent; in brackets with every contrast reference left out that is about the")
	p("domain of the question (each domain in turn; for the given file all that is about money), coefficients fitted again without them.\n")
	p("| Embedder | Method | Rows | at 1 %% | at 0.5 %% | at 0.2 %% |")
	p("|---|---|---|---|---|---|")
	for _, m := range list {
		for _, name := range methodNames {
			method, err := m.set.Method(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups() {
				pos, neg := scores(m.full, method, and(g.keep, chitchat)), scores(m.full, method, and(g.keep, knowledge))
				line := fmt.Sprintf("| %s | %s | %s |", m.model, name, g.name)
				for i, rate := range []float64{0.01, 0.005, 0.002} {
					left := m.unseen.atRate(g.keep, name, rate)
					line += fmt.Sprintf(" %s (%s) |", percent(atRate(pos, neg, rate)), percent(left))
					if m.model == list[0].model && name == m.def.Name && i != 1 && left < g.min[i/2] {
						t.Errorf("%s on %s, unseen domains: %.1f %% of chitchat at %v %% false bypass, want %.0f %%", name, g.name, 100*left, 100*rate, 100*g.min[i/2])
					}
				}
				p("%s", line)
			}
		}
	}
}

// tableOfDefault shows what one model's default does, by the domain of the questions.
func tableOfDefault(t *testing.T, p printer, m measured) {
	p("\n## The default: %s, %s at %v\n", m.model, m.def.Name, m.def.Threshold)
	p("| Rows | Turns | bypassed by wording | by the semantic layer | by both | by both, domain unseen |")
	p("|---|---|---|---|---|---|")
	row := func(name string, keep func(message) bool, limit float64) {
		n, sem, both := decided(m.full, m.def, keep)
		byPattern := 0
		for _, s := range m.full {
			if keep(s.message) && s.pattern {
				byPattern++
			}
		}
		left := "–"
		if un, unBoth, ok := m.unseen.decided(keep); ok {
			left = share(unBoth, un)
			if limit > 0 && float64(unBoth) > limit*float64(un) {
				t.Errorf("%s, unseen: %d of %d knowledge turns bypassed, want at most %.1f %%", name, unBoth, un, 100*limit)
			}
		}
		if limit > 0 && float64(both) > limit*float64(n) {
			t.Errorf("%s: %d of %d knowledge turns bypassed, want at most %.1f %%", name, both, n, 100*limit)
		}
		p("| %s | %d | %s | %s | %s | %s |", name, n, share(byPattern, n), share(sem, n), share(both, n), left)
	}
	for _, g := range groups() {
		row("chitchat: "+g.name, and(g.keep, chitchat), 0)
	}
	for _, g := range groups() {
		row("knowledge: "+g.name, and(g.keep, knowledge), 0.01)
	}
	tuned := func(m message) bool { return m.Source != "ragate-tune" && m.Source != heldOut }
	var domains []string
	for _, s := range m.full {
		if knowledge(s.message) && tuned(s.message) && !slices.Contains(domains, s.Category) {
			domains = append(domains, s.Category)
		}
	}
	for _, d := range domains {
		name := "knowledge: " + d
		if len(contrastOf[d]) == 0 {
			name += " (no contrast category)"
		}
		row(name, and(knowledge, tuned, func(m message) bool { return m.Category == d }), 0.02)
	}
	if len(domains) < 12 {
		t.Errorf("%d domains of knowledge, want at least 12", len(domains))
	}
}

// tableOfMistakable is about turns that were written to be mistaken.
func tableOfMistakable(t *testing.T, p printer, list []measured) {
	p("\n## Turns written to be mistaken\n")
	p("Questions in the words of small talk (\"where are you located\", \"who do I call\", \"no hot water in the flat\") and small talk in unusual words.\n")
	p("| Embedder | Rows | Turns | bypassed by wording | by both |")
	p("|---|---|---|---|---|")
	for _, m := range list {
		for _, l := range []string{"en", "nl"} {
			for _, side := range []struct {
				name string
				keep func(message) bool
				// most is the share of knowledge that may bypass, least the share of chitchat that must: what was reached when the
				// references were frozen, less a turn or two.
				most, least float64
			}{{"questions", knowledge, 0.035, 0}, {"small talk", chitchat, 1, 0.85}} {
				n, byPattern, both := m.hard(t, func(x message) bool { return x.Lang == l && side.keep(x) })
				p("| %s | %s, %s | %d | %d | %d (%.1f %%) |", m.model, side.name, l, n, byPattern, both, 100*float64(both)/float64(n))
				if s := float64(both) / float64(n); m.model == list[0].model && (s > side.most || s < side.least) {
					t.Errorf("hard %s, %s: %.1f %% bypassed, want %.1f…%.0f %%", side.name, l, 100*s, 100*side.least, 100*side.most)
				}
			}
		}
	}
}

// tableOfFollowUps is about turns inside a conversation.
func tableOfFollowUps(t *testing.T, p printer, list []measured) {
	p("\n## Inside a conversation\n")
	p("| Embedder | Follow-ups | Turns | bypassed by wording | by both |")
	p("|---|---|---|---|---|")
	for _, m := range list {
		for _, l := range []string{"en", "nl"} {
			for _, content := range []bool{true, false} {
				n, byPattern, both := m.followUps(t, l, content)
				name := "without content of their own, "
				if content {
					name = "with content of their own, "
				}
				p("| %s | %s%s | %d | %d | %d |", m.model, name, l, n, byPattern, both)
				switch {
				case n < 20:
					t.Errorf("only %d follow-ups %s%s", n, name, l)
				case content && both > 0:
					t.Errorf("%s: %d follow-ups with content (%s) bypass", m.model, both, l)
				case !content && both < n*3/4:
					t.Errorf("%s: only %d of %d follow-ups without content (%s) bypass", m.model, both, n, l)
				}
			}
		}
	}
}

// tableOfCategories counts one model's chitchat by what it is about.
func tableOfCategories(p printer, m measured) {
	p("\n## Chitchat by category, default, both layers\n")
	head, rule := "| Category |", "|---|"
	for _, g := range groups() {
		head, rule = head+" "+g.name+" |", rule+"---|"
	}
	p("%s", head)
	p("%s", rule)
	var cats []string
	for _, s := range m.full {
		if chitchat(s.message) && !slices.Contains(cats, s.Category) {
			cats = append(cats, s.Category)
		}
	}
	for _, c := range cats {
		line := "| " + c + " |"
		for _, g := range groups() {
			cell := "–"
			if n, _, both := decided(m.full, m.def, and(g.keep, chitchat, func(m message) bool { return m.Category == c })); n > 0 {
				cell = fmt.Sprintf("%d of %d", both, n)
			}
			line += " " + cell + " |"
		}
		p("%s", line)
	}
}

// unseenScores are knowledge turns scored without the references of their domain, and chitchat scored by the same sets.
type unseenScores struct {
	def    Method
	scores []unseenRow
}

type unseenRow struct {
	message
	byMethod map[string]float64
	bypass   bool
}

// leaveDomainsOut scores every knowledge turn with the contrast references of its own domain left out and the combination fitted again,
// and all chitchat with the hardest of these sets, the one without anything about money.
func (b *bench) leaveDomainsOut(t testing.TB) unseenScores {
	def, err := b.set.Method("")
	if err != nil {
		t.Fatal(err)
	}
	u := unseenScores{def: def}
	groups := map[string][]string{}
	for _, m := range b.messages {
		if knowledge(m) {
			drop := contrastOf[m.Category]
			if m.Category == "banking77" {
				drop = money
			}
			groups[m.Category] = drop
		}
	}
	groups[""] = money // chitchat
	type fitted struct {
		set         *Set
		combination Combination
	}
	fits := map[string]fitted{} // domains without a contrast category share one
	for _, d := range sortedKeys(groups) {
		key := strings.Join(groups[d], " ")
		if _, known := fits[key]; !known {
			s := b.set.Without(groups[d]...)
			c, _, err := Fit(b.vectors.index(t, s), FitOptions{})
			if err != nil {
				t.Fatal(err)
			}
			fits[key] = fitted{s, c}
		}
		s, c := fits[key].set, fits[key].combination
		for _, row := range b.score(t, s, func(m message) bool { return d == "" && chitchat(m) || knowledge(m) && m.Category == d }) {
			r := unseenRow{message: row.message, byMethod: map[string]float64{}}
			for _, name := range methodNames {
				m := Method{Name: name, Threshold: def.Threshold, Combination: c}
				r.byMethod[name] = m.Score(&row.features)
				if name == def.Name {
					r.bypass = m.Decide(row.features).Bypass || row.pattern
				}
			}
			u.scores = append(u.scores, r)
		}
	}
	return u
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (u unseenScores) atRate(keep func(message) bool, name string, rate float64) float64 {
	var pos, neg []float64
	for _, r := range u.scores {
		if keep(r.message) {
			if chitchat(r.message) {
				pos = append(pos, r.byMethod[name])
			} else {
				neg = append(neg, r.byMethod[name])
			}
		}
	}
	slices.Sort(neg)
	if len(neg) == 0 || len(pos) == 0 {
		return math.NaN()
	}
	return atRate(pos, neg, rate)
}

func (u unseenScores) decided(keep func(message) bool) (n, both int, ok bool) {
	for _, r := range u.scores {
		if keep(r.message) {
			n++
			if r.bypass {
				both++
			}
		}
	}
	return n, both, n > 0
}

// TestFit says what Fit finds, and that the coefficients of the file are these, for every calibration of it.
func TestFit(t *testing.T) {
	set := defaultSet(t)
	files := map[string]string{"multilingual-e5-small": "testdata/vectors.bin.gz", "e5-small-v2": "testdata/vectors_en.bin.gz"}
	if *modelFlag != "" {
		for i, model := range strings.Split(*modelFlag, ",") {
			files[model] = strings.Split(*vectorsFlag, ",")[i]
		}
	}
	for _, model := range set.Embedders() {
		t.Run(model, func(t *testing.T) { testFit(t, model, readVectors(t, files[model])) })
	}
}

func testFit(t *testing.T, model string, v vectors) {
	set, _ := defaultSet(t).For(model)
	x := v.index(t, set)
	c, r, err := Fit(x, FitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("intercept %.2f, weights %v of %v, on %d non-retrieval and %d knowledge references", c.Intercept, c.Weights, FeatureNames(), r.NonRetrieval, r.Knowledge)
	m, err := set.Method(Combined)
	if err != nil {
		t.Fatal(err)
	}
	for _, threshold := range []float64{0.8, 0.9, 0.95, 0.97, 0.99, m.Threshold} {
		n, k := r.Bypassed(threshold)
		t.Logf("threshold %.2f: %.1f %% of non-retrieval, %.2f %% of knowledge references", threshold, 100*n, 100*k)
	}
	const tolerance = 0.02 // the fixture's 8 bits move the coefficients by less than 1 %
	differs := func(got, want float64) bool { return math.Abs(got-want) > tolerance*math.Abs(want) }
	for i, name := range FeatureNames() {
		if differs(m.Combination.Weights[i], c.Weights[i]) {
			t.Errorf("weight of %s: the file has %v, Fit finds %v", name, m.Combination.Weights[i], c.Weights[i])
		}
	}
	if differs(m.Combination.Intercept, c.Intercept) || m.Combination.TopK != c.TopK {
		t.Errorf("the file has intercept %v and top_k %d, Fit finds %v and %d", m.Combination.Intercept, m.Combination.TopK, c.Intercept, c.TopK)
	}
	// Most of these are near misses, or have lost their domain: it is far more than of questions, which TestTable counts.
	if _, k := r.Bypassed(m.Threshold); k > 0.035 {
		t.Errorf("%.2f %% of knowledge references bypass when their category is left out, want at most 3.5 %%", 100*k)
	}
	again, err := x.Recalibrate("another")
	if err != nil {
		t.Fatal(err)
	}
	if again.Set().CalibratedFor != "another" || x.Set().CalibratedFor != model {
		t.Errorf("calibrated for %q, and before for %q", again.Set().CalibratedFor, x.Set().CalibratedFor)
	}
	for _, name := range methodNames {
		before, err1 := set.Method(name)
		after, err2 := again.Set().Method(name)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if name == Combined {
			if after.Threshold != carefulThreshold || after.Combination != c {
				t.Errorf("recalibrated: %+v, Fit finds %+v", after, c)
			}
		} else if math.Abs(after.Threshold-before.Threshold) > 0.002 {
			t.Errorf("%s: the file has a threshold of %v, recalibration finds %v", name, before.Threshold, after.Threshold)
		}
	}
	if _, k := r.Bypassed(carefulThreshold); k > 0.015 {
		t.Errorf("the careful threshold lets %.2f %% of the knowledge references through, want at most 1.5 %%", 100*k)
	}
}
