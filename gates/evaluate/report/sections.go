package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ragate/gates/evaluate"
	"ragate/internal/page"
)

// This file turns a report into sections of tables and charts, from which both the page and the terminal text are made.

// The parts of a page.
type (
	section = page.Section
	table   = page.Table
	column  = page.Column
	chart   = page.Chart
)

func left(name string) column  { return page.Left(name) }
func right(name string) column { return page.Right(name) }

// percent writes a fraction with three significant digits.
func percent(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(100*v, 'g', 3, 64) + " %"
}

// rate, span and share write a proportion: "2.5 %", "1.2–4.4 %", "12/480". Nothing is a dash.
func rate(p evaluate.Proportion) string { return percent(p.Rate()) }

func span(p evaluate.Proportion) string {
	if p.Of == 0 {
		return "–"
	}
	digits := func(v float64) string { return strconv.FormatFloat(100*v, 'g', 3, 64) }
	return digits(p.Low) + "–" + digits(p.High) + " %"
}

func share(p evaluate.Proportion) string { return fmt.Sprintf("%d/%d", p.Count, p.Of) }

func name(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func threshold(t *float64) string {
	if t == nil {
		return "none"
	}
	return strconv.FormatFloat(*t, 'g', 6, 64)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func (r *Report) sections() []section {
	var out []section
	if r.Calibration != nil {
		out = append(out, calibrated(r.Calibration))
	}
	if r.Refused != nil {
		out = append(out, refused(r.Refused))
	}
	if r.Query != nil {
		out = append(out, query(r.Query)...)
	}
	if r.Chunks != nil {
		out = append(out, chunks(r.Chunks)...)
	}
	if r.Robustness != nil {
		out = append(out, robustness(r.Robustness))
	}
	return out
}

// measure is the columns of a table of one rate per row.
func measure(first string) []column {
	return []column{left(first), right("Rate"), right("Interval"), right("Count")}
}

func measured(label string, p evaluate.Proportion) []string {
	return []string{label, rate(p), span(p), share(p)}
}

func query(q *evaluate.QueryResult) []section {
	overall := section{
		Title: "Query gate",
		Note: fmt.Sprintf("%d labelled turns, %d of them decided by a score. Intervals hold the true rate with %s confidence (Clopper-Pearson).",
			q.Turns, q.Scored, percent(q.Confidence)),
		Tables: []table{{
			Columns: measure("Rate of"),
			Rows: [][]string{
				measured("chitchat bypassed", q.Overall.Bypass),
				measured("knowledge bypassed (false bypass)", q.Overall.FalseBypass),
				measured("all turns bypassed", q.Bypassed),
			},
		}, {
			Title:   "Confusion",
			Columns: []column{left("Label"), right("Bypassed"), right("Retrieved")},
			Rows: [][]string{
				{"chitchat", strconv.Itoa(q.Overall.Confusion.ChitchatBypassed), strconv.Itoa(q.Overall.Confusion.ChitchatRetrieved)},
				{"knowledge", strconv.Itoa(q.Overall.Confusion.KnowledgeBypassed), strconv.Itoa(q.Overall.Confusion.KnowledgeRetrieved)},
			},
		}},
	}
	if q.ROC != nil {
		overall.Charts = append(overall.Charts, rocChart(q))
	}
	if q.Scores != nil {
		overall.Charts = append(overall.Charts, histogramChart(q.Scores, "Score by label", q.AtRate))
	}
	groups := section{Title: "Where it decides how", Tables: []table{
		groupTable("By language", "Language", q.ByLanguage),
		groupTable("By stage", "Stage", q.ByStage),
		groupTable("By domain, worst first", "Domain", worstFirst(q.ByDomain)),
	}}
	if c, ok := domainChart(q.ByDomain); ok {
		groups.Charts = append(groups.Charts, c)
	}
	out := []section{overall, groups}
	if len(q.AtRate) > 0 {
		out = append(out, limits(q))
	}
	if s := mistakes(q); len(s.Tables) > 0 {
		out = append(out, s)
	}
	return out
}

func groupColumns(first string) []column {
	return []column{left(first), right("Chitchat bypassed"), right("Interval"), right("Count"), right("False bypass"), right("Interval"), right("Count")}
}

func groupRow(n string, r evaluate.QueryRates) []string {
	return []string{name(n), rate(r.Bypass), span(r.Bypass), share(r.Bypass), rate(r.FalseBypass), span(r.FalseBypass), share(r.FalseBypass)}
}

func groupTable(title, first string, groups []evaluate.QueryGroup) table {
	t := table{Title: title, Columns: groupColumns(first), Long: len(groups) > page.LongTable}
	for _, g := range groups {
		t.Rows = append(t.Rows, groupRow(g.Name, g.QueryRates))
	}
	return t
}

// worse orders rates by how surely knowledge is bypassed, then by how little chitchat is.
func worse(a, b evaluate.QueryRates) int {
	return cmp.Or(cmp.Compare(b.FalseBypass.Low, a.FalseBypass.Low), cmp.Compare(b.FalseBypass.Count, a.FalseBypass.Count), cmp.Compare(a.Bypass.Rate(), b.Bypass.Rate()))
}

func worstFirst(groups []evaluate.QueryGroup) []evaluate.QueryGroup {
	sorted := slices.Clone(groups)
	slices.SortStableFunc(sorted, func(a, b evaluate.QueryGroup) int { return worse(a.QueryRates, b.QueryRates) })
	return sorted
}

func limits(q *evaluate.QueryResult) section {
	s := section{
		Title: "At fixed false bypass",
		Note: "The best threshold for a limit on false bypass, chosen and measured on all turns, and with each domain measured under the threshold chosen on all others. " +
			"The second is what to expect of topics that the data lacks.",
	}
	t := table{Columns: []column{right("Limit"), right("Threshold"), right("Bypass"), right("False bypass"), right("Bypass, domain left out"), right("Interval"), right("False bypass, left out"), right("Interval")}}
	for i, p := range q.AtRate {
		row := []string{percent(p.Limit), threshold(p.Threshold), rate(p.Bypass), rate(p.FalseBypass), "–", "–", "–", "–"}
		if i < len(q.LeaveOneOut) {
			o := q.LeaveOneOut[i].Overall
			copy(row[4:], []string{rate(o.Bypass), span(o.Bypass), rate(o.FalseBypass), span(o.FalseBypass)})
		}
		t.Rows = append(t.Rows, row)
	}
	s.Tables = append(s.Tables, t)
	if len(q.AtRateByLanguage) > 0 {
		t := table{Title: "Each language under a threshold of its own", Columns: []column{left("Language"), right("Limit"), right("Threshold"), right("Bypass"), right("Interval"), right("False bypass"), right("Interval")}}
		for _, l := range q.AtRateByLanguage {
			for _, p := range l.AtRate {
				t.Rows = append(t.Rows, []string{name(l.Lang), percent(p.Limit), threshold(p.Threshold), rate(p.Bypass), span(p.Bypass), rate(p.FalseBypass), span(p.FalseBypass)})
			}
		}
		s.Tables = append(s.Tables, t)
	}
	for _, l := range q.LeaveOneOut {
		t := table{
			Title:   "Each domain under the threshold of the others, at " + percent(l.Limit) + ", worst first",
			Columns: slices.Insert(groupColumns("Domain"), 1, right("Threshold")),
			Long:    true,
		}
		domains := slices.Clone(l.Domains)
		slices.SortStableFunc(domains, func(a, b evaluate.LeftOut) int { return worse(a.QueryRates, b.QueryRates) })
		for _, d := range domains {
			t.Rows = append(t.Rows, slices.Insert(groupRow(d.Domain, d.QueryRates), 1, threshold(d.Threshold)))
		}
		s.Tables = append(s.Tables, t)
	}
	return s
}

func mistakes(q *evaluate.QueryResult) section {
	s := section{Title: "Mistakes"}
	list := func(title string, examples []evaluate.QueryExample) {
		if len(examples) == 0 {
			return
		}
		t := table{Title: title, Columns: []column{right("Score"), left("Stage"), left("Language"), left("Domain"), left("Text")}}
		for _, e := range examples {
			t.Rows = append(t.Rows, []string{threshold(e.Score), name(e.Stage), name(e.Lang), name(e.Domain), e.Text})
		}
		s.Tables = append(s.Tables, t)
	}
	list("Knowledge that was bypassed", q.FalseBypasses)
	list("Chitchat that was retrieved for", q.Missed)
	return s
}

func chunks(c *evaluate.ChunkResult) []section {
	o := c.Overall
	context := "all given chunks"
	if c.TopK > 0 {
		context = fmt.Sprintf("the retriever's first %d chunks", c.TopK)
	}
	note := fmt.Sprintf("%d turns, %.4g chunks given and %.3g returned per turn on average. Grades from %d up count as relevant. Intervals have %s confidence; those over chunks allow for the chunks of one turn being alike (Korn-Graubard).",
		o.Turns, o.GivenPerTurn.Mean, o.ReturnedPerTurn.Mean, c.RelevantFrom, percent(c.Confidence))
	main := section{Title: "Chunk gate", Note: note, Tables: []table{
		{Columns: measure("Rate of"), Rows: [][]string{
			measured("relevant among given (precision without a gate)", o.RetrievedPrecision),
			measured("relevant among returned (precision)", o.Precision),
			measured("returned of relevant given (recall)", o.Recall),
			measured("relevant given and not returned (false negatives)", o.FalseNegative),
			measured("relevant among those over the threshold", o.KeptPrecision),
			measured("over the threshold of relevant given", o.KeptRecall),
		}},
		{Title: "Turns", Note: "Without the gate the context would be " + context + ".", Columns: measure("Rate of"), Rows: [][]string{
			measured("passed: enough chunks over the threshold", o.Passed),
			measured("fallback", o.Fallback),
			measured("abstained: insufficient context", o.Abstained),
			measured("no relevant chunk without the gate", o.NoAnswer.Without),
			measured("no relevant chunk with the gate", o.NoAnswer.With),
			measured("answer lost by the gate", o.NoAnswer.Raised),
			measured("answer gained by the gate", o.NoAnswer.Lowered),
		}},
		{Title: "Why relevant chunks were not returned", Columns: []column{left("Reason"), right("Chunks")}, Rows: [][]string{
			{"under the threshold", strconv.Itoa(o.LostTo.Threshold)},
			{"over it, but beyond the maximum, the token budget or a metadata rule", strconv.Itoa(o.LostTo.Limit)},
			{"not scored in time", strconv.Itoa(o.LostTo.Unscored)},
		}},
		rankingTable(c.NDCG),
	}}
	if c.Relevance != nil {
		main.Charts = append(main.Charts, histogramChart(c.Relevance, "Relevance by grade", nil))
	}
	if c.Logit != nil {
		main.Charts = append(main.Charts, histogramChart(c.Logit, "Logit by grade", nil))
	}
	types := table{Columns: []column{left("Query type"), right("Turns"), right("Precision"), right("Recall"), right("False negatives"), right("Interval"),
		right("Passed"), right("Fallback"), right("Abstained"), right("Answer lost")}}
	for _, g := range c.ByType {
		types.Rows = append(types.Rows, []string{name(g.Name), strconv.Itoa(g.Turns), rate(g.Precision), rate(g.Recall), rate(g.FalseNegative), span(g.FalseNegative),
			rate(g.Passed), rate(g.Fallback), rate(g.Abstained), rate(g.NoAnswer.Raised)})
	}
	out := []section{main, {Title: "By query type", Tables: []table{types}}}
	if len(c.ByType) > 0 {
		out[1].Charts = append(out[1].Charts, typeChart(c.ByType))
	}
	if len(c.Losses) > 0 {
		t := table{Columns: []column{right("Best relevant"), right("Threshold"), right("Relevant"), left("Type"), left("Query")}}
		for _, l := range c.Losses {
			t.Rows = append(t.Rows, []string{threshold(l.BestRelevant), threshold(&l.Threshold), fmt.Sprintf("%d of %d", l.Relevant, l.Given), name(l.Type), l.Query})
		}
		out = append(out, section{Title: "Turns that lost every relevant chunk", Tables: []table{t}})
	}
	return out
}

func rankingTable(n evaluate.NDCGResult) table {
	t := table{
		Title:   fmt.Sprintf("nDCG@%d (%s gain)", n.At, n.Gain),
		Note:    fmt.Sprintf("Mean over %d turns; %d without a relevant text are left out.", n.Before.N, n.Without),
		Columns: []column{left("Order"), right("nDCG"), right("Interval")},
	}
	for _, row := range []struct {
		label string
		mean  evaluate.Mean
	}{{"the retriever's", n.Before}, {"the gate's", n.After}, {"change", n.Change}} {
		t.Rows = append(t.Rows, []string{row.label, decimal(row.mean.Mean), decimal(row.mean.Low) + " to " + decimal(row.mean.High)})
	}
	return t
}

func robustness(f *evaluate.FlipResult) section {
	s := section{
		Title: "Robustness",
		Note:  fmt.Sprintf("%d pairs of a turn and the same turn reworded. Intervals have %s confidence and allow for the variants of one turn being alike.", f.Pairs, percent(f.Confidence)),
	}
	t := table{Columns: measure("Decisions that changed"), Rows: [][]string{measured("all", f.Flipped)}}
	for _, k := range f.ByKind {
		t.Rows = append(t.Rows, measured(name(k.Kind), k.Flipped))
	}
	flips := table{Title: "By direction", Columns: []column{left("Rewording"), left("Label"), left("From"), left("To"), right("Rate"), right("Interval"), right("Count")}}
	for _, d := range f.Flips {
		flips.Rows = append(flips.Rows, []string{name(d.Kind), name(d.Label), d.From, d.To, rate(d.Share), span(d.Share), share(d.Share)})
	}
	s.Tables = []table{t, flips}
	if len(f.Examples) > 0 {
		e := table{Title: "Examples", Columns: []column{left("From"), left("To"), left("Label"), left("Turn"), left("Reworded")}}
		for _, x := range f.Examples {
			turn := x.Original
			if x.Item != "" {
				turn += " [" + x.Item + "]"
			}
			e.Rows = append(e.Rows, []string{x.From, x.To, name(x.Label), turn, x.Variant})
		}
		s.Tables = append(s.Tables, e)
	}
	return s
}

// words for the two promises.
func failureName(p evaluate.Promise) string {
	if p.Metric == evaluate.MetricRecall {
		return "relevant chunks dropped"
	}
	return "knowledge bypassed (false bypass)"
}

func gainName(p evaluate.Promise) string {
	if p.Metric == evaluate.MetricRecall {
		return "other chunks dropped"
	}
	return "chitchat bypassed"
}

func methodName(method string) string {
	switch method {
	case evaluate.MethodClopperPearson:
		return "Clopper-Pearson"
	case evaluate.MethodBetting:
		return "betting bound, turns as trials"
	}
	return method
}

func calibrated(c *evaluate.Calibration) section {
	s := section{
		Title: "Calibration",
		Note: fmt.Sprintf("Threshold %s keeps %s. It was chosen on %d turns (seed %d) and judged on %d others, where its one-sided bound is %s (%s).",
			threshold(&c.Threshold), c.Promise, c.Selection, c.Seed, c.HeldOut, percent(c.Bound), methodName(c.Method)),
		Charts: []chart{curveChart(c.Promise, c.Curve, &c.Threshold)},
		Tables: []table{
			{Columns: measure("On the held-out part"), Rows: [][]string{measured(failureName(c.Promise), c.Failures), measured(gainName(c.Promise), c.Gain)}},
			curveTable(c.Promise, c.Curve),
		},
	}
	if len(c.ByLanguage) > 0 {
		t := groupTable("The held-out part by language", "Language", c.ByLanguage)
		t.Note = "One threshold serves all languages, and the promise is about all together. Calibrate on one language alone for a promise about it."
		s.Tables = slices.Insert(s.Tables, 1, t)
	}
	return s
}

func refused(e *evaluate.RefusedError) section {
	s := section{Title: "Calibration refused", Note: e.Error() + "."}
	if len(e.Curve) > 0 {
		s.Charts = []chart{curveChart(e.Promise, e.Curve, nil)}
		s.Tables = []table{curveTable(e.Promise, e.Curve)}
	}
	return s
}

func curveTable(p evaluate.Promise, curve []evaluate.CurvePoint) table {
	t := table{
		Title:   "What each threshold does on the held-out part, most careful first",
		Columns: []column{right("Threshold"), right(capital(gainName(p))), right(capital(failureName(p))), right("Bound"), left("Keeps the promise")},
		Long:    true,
	}
	for _, c := range curve {
		keeps := "no"
		if c.Keeps {
			keeps = "yes"
		}
		t.Rows = append(t.Rows, []string{threshold(&c.Threshold), percent(c.Gain), percent(c.Failure), percent(c.Bound), keeps})
	}
	return t
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
