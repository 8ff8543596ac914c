package harness

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"ragate/benchmarks"
	"ragate/internal/page"
)

// This file turns results into pages: what is in the HTML is in the text too, charts aside.

// Page shows a result.
func (r *Result) Page() *page.Page {
	m := r.Machine
	p := &page.Page{Title: "ragate bench", Facts: []page.Fact{{Name: "measured", Value: r.Time.Format(time.RFC3339)}}}
	fact := func(name, format string, a ...any) {
		p.Facts = append(p.Facts, page.Fact{Name: name, Value: fmt.Sprintf(format, a...)})
	}
	if r.Command != "" {
		fact("command", "%s", r.Command)
	}
	version := r.Version
	if r.Commit != "" {
		version += ", commit " + r.Commit
	}
	fact("measured by", "ragate %s, %s", version, r.Go)
	fact("machine", "%s %s, %d CPUs, %d MB, Linux %s", m.CPU, strings.Join(m.BF16, "+"), m.CPUs, m.MemoryMB, m.Kernel)
	for _, s := range r.Servers {
		text := fmt.Sprintf("%s, dialect %s", s.URL, s.Dialect)
		if s.Version != "" {
			text += ", version " + s.Version
		}
		for _, x := range s.Models {
			text += fmt.Sprintf("; %s: %s, %s, %d streams of %d threads", x.ID, x.Provider, x.Precision, x.Streams, x.Threads)
		}
		fact("server "+s.Name, "%s", text)
	}
	set := r.Settings
	fact("settings", "seed %d, %d rounds of %g s after %g s of warm-up, texts from %s", r.Seed, set.Rounds, set.WindowSeconds, set.WarmSeconds, set.Texts)
	for _, x := range r.Peaks {
		fact("arithmetic peak", "%.3g operations/s in %s on %s, %d streams of %d threads: %s", x.FLOPS, x.Arithmetic, x.Provider, x.Streams, x.Threads, x.How)
	}
	for _, c := range r.Cases {
		for _, s := range c.Sides {
			if n := s.Failed(); n > 0 {
				p.Notes = append(p.Notes, fmt.Sprintf("%s, %s, %s: %d requests failed (%s), the first one: %.200s", c.Workload, c.Load(), s.Server, n, counts(s.Errors), s.Example))
			}
			if s.UsageTokens > 0 && s.UsageTokens != s.CountedTokens {
				p.Notes = append(p.Notes, fmt.Sprintf("%s, %s, %s: the server says it ran %d tokens, counted here are %d", c.Workload, c.Load(), s.Server, s.UsageTokens, s.CountedTokens))
			}
		}
		p.Sections = append(p.Sections, c.section())
	}
	return p
}

func counts(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s: %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

var sideColumns = []page.Column{page.Left("Server"), page.Right("Requests"), page.Right("Errors"), page.Right("429"), page.Right("requests/s"), page.Right("tokens/s"),
	page.Right("p50 ms"), page.Right("p90"), page.Right("p95"), page.Right("p99"), page.Right("p99.9"), page.Right("max"), page.Right("CPU s/request"), page.Right("peak MB")}

func (s Side) row(name string) []string {
	l := s.Latency
	ms := func(v float64) string {
		if s.Requests == 0 {
			return "–"
		}
		return benchmarks.Digits(v)
	}
	mb := "–"
	if s.PeakMB > 0 {
		mb = strconv.FormatInt(s.PeakMB, 10)
	}
	return []string{name, strconv.Itoa(s.Requests), strconv.Itoa(s.Failed()), strconv.Itoa(s.Refused), spread(s.RequestsPerSecond), spread(s.TokensPerSecond),
		ms(l.P50), ms(l.P90), ms(l.P95), ms(l.P99), ms(l.P999), ms(l.Max), spread(s.CPUPerRequest), mb}
}

func (c CaseResult) section() page.Section {
	s := page.Section{Title: c.Workload + ", " + c.Load(), Note: c.Says + "."}
	t := page.Table{Columns: sideColumns}
	for _, x := range c.Sides {
		t.Rows = append(t.Rows, x.row(x.Server))
		if len(x.Kinds) > 0 {
			s.Note += fmt.Sprintf(" %s decided by %s.", x.Server, counts(x.Kinds))
		}
		if x.Unscored > 0 {
			s.Note += fmt.Sprintf(" %s left %d of %d items without a score.", x.Server, x.Unscored, x.Items)
		}
	}
	s.Tables = append(s.Tables, t)
	if c.RawTokens != nil {
		t := page.Table{Title: "Floor and ceiling", Columns: []page.Column{page.Left("Of the first server"), page.Right("Value"), page.Right("95 % interval")}}
		add := func(name string, e *Estimate) {
			if e != nil {
				t.Rows = append(t.Rows, []string{name, benchmarks.Digits(e.Value), interval(e)})
			}
		}
		add("raw session at its best, tokens/s", c.RawTokens)
		add("share of the raw session, turn by turn", c.OfRaw)
		if c.OfPeak > 0 {
			t.Rows = append(t.Rows, []string{"share of the machine's arithmetic peak", benchmarks.Digits(c.OfPeak), ""})
		}
		s.Tables = append(s.Tables, t)
	}
	names := make([]string, len(c.Sides))
	for i, x := range c.Sides {
		names[i] = x.Server
	}
	if len(c.Ratios) > 0 {
		s.Tables = append(s.Tables, ratioTable(names[0]+" : "+names[1]+", turn by turn", c.Ratios))
	}
	s.Charts = append(s.Charts, charts(names, c.Sides)...)
	if len(c.Ratios) > 0 {
		s.Charts = append(s.Charts, ratioChart(names[0]+" : "+names[1], c.Ratios))
	}
	return s
}

// Page shows a comparison.
func (c *Comparison) Page() *page.Page {
	p := &page.Page{Title: "ragate bench compare", Facts: []page.Fact{{Name: "first", Value: c.First}, {Name: "second", Value: c.Second}}}
	for _, d := range c.Differences {
		p.Notes = append(p.Notes, "not alike: "+d)
	}
	p.Notes = append(p.Notes, c.Unmatched...)
	names := []string{c.First, c.Second}
	for _, x := range c.Cases {
		sides := []Side{x.First, x.Second}
		t := page.Table{Columns: sideColumns}
		for i, s := range sides {
			t.Rows = append(t.Rows, s.row(names[i]))
		}
		title := "first : second"
		p.Sections = append(p.Sections, page.Section{Title: x.Workload + ", " + Case{Clients: x.Clients, Rate: x.Rate}.load(),
			Note:   "The runs were at different times: their intervals do not know how the machine changed between them.",
			Tables: []page.Table{t, ratioTable(title, x.Ratios)}, Charts: append(charts(names, sides), ratioChart(title, x.Ratios))})
	}
	return p
}

func ratioTable(title string, ratios []Ratio) page.Table {
	t := page.Table{Title: title, Columns: []page.Column{page.Left("Of"), page.Right("Ratio"), page.Right("95 % interval"), page.Left("")}}
	for _, r := range ratios {
		t.Rows = append(t.Rows, []string{r.Metric, benchmarks.Digits(r.Ratio.Value), interval(r.Ratio), r.verdict()})
	}
	return t
}

// verdict says what the interval allows to be said.
func (r Ratio) verdict() string {
	higher, lower := r.Ratio.Low > 1, r.Ratio.High < 1
	switch {
	case !r.Ratio.Known():
		return "one turn: unknown"
	case !higher && !lower:
		return "no difference seen"
	case higher == (r.Better == "higher"):
		return "better"
	}
	return "worse"
}

func interval(e *Estimate) string {
	if e == nil || !e.Known() {
		return "–"
	}
	return benchmarks.Digits(e.Low) + " to " + benchmarks.Digits(e.High)
}

// spread writes a value and half its interval in percent.
func spread(e *Estimate) string {
	switch {
	case e == nil:
		return "–"
	case !e.Known():
		return benchmarks.Digits(e.Value)
	}
	return fmt.Sprintf("%s ±%.0f %%", benchmarks.Digits(e.Value), 100*(math.Sqrt(e.High/e.Low)-1))
}

// charts draw the latency's distribution and the turns.
func charts(names []string, sides []Side) []page.Chart {
	latency := page.NewPlot("percentile", "ms")
	turns := page.NewPlot("turn", "requests/s")
	top, tail, fastest, longest, drawn := 0.0, 1.0, 0.0, 1, false
	for i, s := range sides {
		var points, rates plotter.XYs
		for _, q := range s.Spectrum {
			if q.Percent < 100 {
				points = append(points, plotter.XY{X: nines(q.Percent), Y: q.MS})
				top, tail = max(top, q.MS), max(tail, nines(q.Percent))
			}
		}
		for k, r := range s.Rounds {
			rates = append(rates, plotter.XY{X: float64(k + 1), Y: r.RequestsPerSecond})
			fastest, longest = max(fastest, r.RequestsPerSecond), max(longest, k+1)
		}
		label := page.Visible(names[i], 30)
		if len(points) > 0 {
			l := page.Line(points, page.Series(i))
			latency.Add(l)
			latency.Legend.Add(label, l)
			drawn = true
		}
		if len(rates) > 0 {
			l := page.Line(rates, page.Series(i))
			dots := &plotter.Scatter{XYs: rates, GlyphStyle: draw.GlyphStyle{Color: page.Series(i).Color, Radius: 2.2, Shape: draw.CircleGlyph{}}}
			turns.Add(l, dots)
			turns.Legend.Add(label, l)
		}
	}
	if !drawn {
		return nil
	}
	room := 1.1 + 0.1*float64(len(sides)) // for the legend
	for _, x := range []struct {
		p   *plot.Plot
		top float64
	}{{latency, top}, {turns, fastest}} {
		x.p.Y.Min, x.p.Y.Max, x.p.Legend.Top = 0, max(x.top, 1e-9)*room, true
	}
	latency.X.Min, latency.X.Max = 0, tail
	var marks plot.ConstantTicks
	for _, percent := range []float64{0, 50, 90, 99, 99.9, 99.99} {
		if nines(percent) <= latency.X.Max {
			marks = append(marks, plot.Tick{Value: nines(percent), Label: strconv.FormatFloat(percent, 'g', -1, 64) + " %"})
		}
	}
	latency.X.Tick.Marker = marks
	var each plot.ConstantTicks
	for k := 1; k <= longest; k += max(1, longest/10) {
		each = append(each, plot.Tick{Value: float64(k), Label: strconv.Itoa(k)})
	}
	turns.X.Tick.Marker, turns.X.Min, turns.X.Max = each, 0.5, float64(longest)+0.5
	return []page.Chart{
		{Title: "Latency by percentile", Says: "Of right answers, counted from when the request was due.", Plot: latency, Height: 230},
		{Title: "Requests per second, turn by turn", Says: "Turns side by side saw the same machine.", Plot: turns, Height: 230},
	}
}

// nines puts a percentile on an axis that stretches the tail: 90 % is 1, 99 % is 2.
func nines(percent float64) float64 { return -math.Log10(1 - percent/100) }

// ratioChart draws ratios with their intervals beside 1.
func ratioChart(title string, ratios []Ratio) page.Chart {
	p := page.NewPlot("ratio", "")
	rows := len(ratios)
	low, high := 1.0, 1.0
	var marks plot.ConstantTicks
	for i, r := range ratios {
		e, y := r.Ratio, float64(rows-1-i)
		marks = append(marks, plot.Tick{Value: y, Label: page.Visible(r.Metric, 26)})
		low, high = min(low, e.Value), max(high, e.Value)
		style := page.Series(0)
		if e.Known() {
			low, high = min(low, e.Low), max(high, e.High)
			p.Add(page.Line(plotter.XYs{{X: e.Low, Y: y}, {X: e.High, Y: y}}, style))
		}
		p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: e.Value, Y: y}}, GlyphStyle: draw.GlyphStyle{Color: style.Color, Radius: 2.6, Shape: draw.CircleGlyph{}}})
	}
	p.Add(page.LimitLine(plotter.XYs{{X: 1, Y: -0.6}, {X: 1, Y: float64(rows) - 0.4}}))
	p.Y.Tick.Marker, p.Y.Min, p.Y.Max = marks, -0.6, float64(rows)-0.4
	p.X.Min, p.X.Max = low-0.05*(high-low)-0.01, high+0.05*(high-low)+0.01
	return page.Chart{Title: title, Says: "Each ratio with its 95 % interval; the dashed line is no difference.", Plot: p, Height: 60 + 18*vg.Length(rows)}
}
