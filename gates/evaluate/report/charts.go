package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"ragate/gates/evaluate"
	"ragate/internal/page"
)

// rocChart draws bypass over false bypass, the latter on a logarithmic axis: the part of interest is its first hundredth.
func rocChart(q *evaluate.QueryResult) chart {
	p := page.NewPlot("false bypass", "chitchat bypassed")
	// Zero has no logarithm: it is drawn where half a turn would be, in the axis's first decade.
	floor := math.Pow(10, math.Floor(math.Log10(0.5/float64(max(q.Overall.FalseBypass.Of, 1)))))
	points := make(plotter.XYs, len(q.ROC))
	for i, r := range q.ROC {
		points[i] = plotter.XY{X: max(r.FalseBypass, floor), Y: r.Bypass}
	}
	curve := page.Line(points, page.Series(0))
	curve.StepStyle = plotter.PostStep
	p.Add(curve)
	for _, at := range q.AtRate {
		if at.Limit > floor {
			p.Add(page.LimitLine(plotter.XYs{{X: at.Limit, Y: 0}, {X: at.Limit, Y: 1}}))
		}
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = floor, 1, 0, 1
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, page.DecadeTicks()
	p.Y.Tick.Marker = page.PercentTicks()
	says := "The share of chitchat bypassed for each rate of false bypass"
	for _, at := range q.AtRate {
		says += fmt.Sprintf("; %s at %s", percent(at.Bypass.Rate()), percent(at.Limit))
	}
	return chart{Title: "Bypass over false bypass", Says: says + " (dashed).", Plot: p, Height: 230}
}

// histogramChart draws the share of each label per bin, so that a rare label is seen beside a common one. Thresholds are marked.
func histogramChart(h *evaluate.Histogram, title string, marks []evaluate.OperatingPoint) chart {
	p := page.NewPlot(h.Field, "share of the label")
	top := 0.0
	for i, s := range h.Series {
		total := 0
		for _, c := range s.Counts {
			total += c
		}
		points := plotter.XYs{{X: h.Edges[0], Y: 0}}
		for bin, c := range s.Counts {
			y := float64(c) / float64(max(total, 1))
			top = max(top, y)
			points = append(points, plotter.XY{X: h.Edges[bin], Y: y}, plotter.XY{X: h.Edges[bin+1], Y: y})
		}
		points = append(points, plotter.XY{X: h.Edges[len(h.Edges)-1], Y: 0})
		l := page.Line(points, page.Series(i))
		p.Add(l)
		p.Legend.Add(fmt.Sprintf("%s (%d)", page.Visible(s.Label, 24), total), l)
	}
	for _, m := range marks {
		if m.Threshold != nil {
			p.Add(page.LimitLine(plotter.XYs{{X: *m.Threshold, Y: 0}, {X: *m.Threshold, Y: top}}))
		}
	}
	says := "How the " + h.Field + " is distributed for each label."
	if len(marks) > 0 {
		says = "How the " + h.Field + " is distributed for each label, with the best thresholds for each limit on false bypass (dashed)."
	}
	p.Legend.Top = true
	p.X.Min, p.X.Max = h.Edges[0], h.Edges[len(h.Edges)-1]
	// Room for the legend above the bars.
	p.Y.Min, p.Y.Max = 0, max(top, 1e-9)*(1.05+0.1*float64(len(h.Series)))
	p.Y.Tick.Marker = page.PercentTicks()
	return chart{Title: title, Says: says, Plot: p, Height: 230}
}

// interval is a row of a chart of rates with their intervals.
type interval struct {
	label string
	p     evaluate.Proportion
}

// intervals draws rows of a point and its interval, first row on top.
func intervals(p *plot.Plot, rows []interval, style draw.LineStyle, shift float64) *plotter.Scatter {
	points := make(plotter.XYs, len(rows))
	errors := make(plotter.XErrors, len(rows))
	for i, r := range rows {
		v := r.p.Rate()
		points[i] = plotter.XY{X: v, Y: float64(len(rows)-1-i) + shift}
		errors[i].Low, errors[i].High = v-r.p.Low, r.p.High-v
	}
	dots := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: style.Color, Radius: 2.2, Shape: draw.CircleGlyph{}}}
	if len(rows) > 0 {
		bars := &plotter.XErrorBars{XYs: points, XErrors: errors, LineStyle: draw.LineStyle{Color: style.Color, Width: 1.2}, CapWidth: 4}
		p.Add(bars, dots)
	}
	return dots
}

func labelRows(p *plot.Plot, labels []string) {
	ticks := make(plot.ConstantTicks, len(labels))
	for i, l := range labels {
		ticks[i] = plot.Tick{Value: float64(len(labels) - 1 - i), Label: page.Visible(l, 22)}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = -0.6, float64(len(labels))-0.4
	p.X.Tick.Marker = page.PercentTicks()
}

// maxDomains is how many domains a chart shows.
const maxDomains = 15

// domainChart draws the false bypass of the domains with the highest bounds.
func domainChart(groups []evaluate.QueryGroup) (chart, bool) {
	var rows []interval
	for _, g := range groups {
		if g.FalseBypass.Of > 0 {
			rows = append(rows, interval{name(g.Name), g.FalseBypass})
		}
	}
	if len(rows) < 2 {
		return chart{}, false
	}
	slices.SortStableFunc(rows, func(a, b interval) int {
		return cmp.Or(cmp.Compare(b.p.Low, a.p.Low), cmp.Compare(b.p.High, a.p.High))
	})
	title := "False bypass by domain"
	if len(rows) > maxDomains {
		title = fmt.Sprintf("False bypass of the %d worst of %d domains", maxDomains, len(rows))
		rows = rows[:maxDomains]
	}
	p := page.NewPlot("false bypass", "")
	intervals(p, rows, page.Series(0), 0)
	labels := make([]string, len(rows))
	for i, r := range rows {
		labels[i] = r.label
	}
	labelRows(p, labels)
	p.X.Min = 0
	return chart{Title: title, Says: "The rate and its interval for each domain.", Plot: p, Height: 60 + 15*vg.Length(len(rows))}, true
}

// typeChart draws precision, recall and false negatives of each query type.
func typeChart(groups []evaluate.ChunkGroup) chart {
	p := page.NewPlot("rate", "")
	labels := make([]string, len(groups))
	for i, g := range groups {
		labels[i] = name(g.Name)
	}
	for i, s := range []struct {
		name string
		of   func(evaluate.ChunkRates) evaluate.Proportion
	}{
		{"precision", func(r evaluate.ChunkRates) evaluate.Proportion { return r.Precision }},
		{"recall", func(r evaluate.ChunkRates) evaluate.Proportion { return r.Recall }},
		{"answer lost", func(r evaluate.ChunkRates) evaluate.Proportion { return r.NoAnswer.Raised }},
	} {
		var drawn *plotter.Scatter
		for at, g := range groups { // rows without a rate stay empty
			if r := s.of(g.ChunkRates); r.Of > 0 {
				drawn = intervals(p, []interval{{labels[at], r}}, page.Series(i), float64(len(groups)-1-at)+0.25*float64(1-i))
			}
		}
		if drawn != nil {
			p.Legend.Add(s.name, drawn)
		}
	}
	labelRows(p, labels)
	p.Legend.Top = true
	p.Y.Max += 0.5 + 0.3*float64(len(groups))/2 // room for the legend
	p.X.Min, p.X.Max = 0, 1
	return chart{Title: "Rates by query type", Says: "Precision, recall and the share of turns that lost their answer, with intervals, for each query type.", Plot: p, Height: 90 + 34*vg.Length(len(groups))}
}

// curveChart draws what calibration saw: failures, their bound and the limit over what the thresholds gain.
func curveChart(promise evaluate.Promise, curve []evaluate.CurvePoint, chosen *float64) chart {
	recall := promise.Metric == evaluate.MetricRecall
	y, limit := "false bypass", promise.Limit
	if recall {
		y = "recall per turn"
	}
	p := page.NewPlot(gainName(promise), y)
	rates, bounds := make(plotter.XYs, len(curve)), make(plotter.XYs, len(curve))
	high := limit
	for i, c := range curve {
		rates[i], bounds[i] = plotter.XY{X: c.Gain, Y: c.Failure}, plotter.XY{X: c.Gain, Y: c.Bound}
		if recall {
			rates[i].Y = 1 - c.Failure
		}
		high = max(high, c.Bound)
	}
	measuredLine, boundLine := page.Line(rates, page.Series(0)), page.Line(bounds, page.Series(1))
	limited := page.LimitLine(plotter.XYs{{X: 0, Y: limit}, {X: 1, Y: limit}})
	p.Add(measuredLine, boundLine, limited)
	p.Legend.Add("measured", measuredLine)
	p.Legend.Add("bound", boundLine)
	p.Legend.Add("promise", limited)
	if chosen != nil {
		for _, c := range curve {
			if c.Threshold == *chosen {
				p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: c.Gain, Y: c.Bound}}, GlyphStyle: draw.GlyphStyle{Color: page.Marker(page.Limit), Radius: 3.5, Shape: draw.RingGlyph{}}})
			}
		}
	}
	p.X.Min, p.X.Max, p.Y.Min = 0, 1, 0
	if recall {
		p.Y.Max = 1
	} else {
		// Past five times the promise the curve only flattens what matters.
		p.Y.Max = min(high, 5*limit) * 1.02
		p.Legend.Top = true
		measuredLine.XYs, boundLine.XYs = under(measuredLine.XYs, p.Y.Max), under(boundLine.XYs, p.Y.Max)
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = page.PercentTicks(), page.PercentTicks()
	return chart{Title: "What each threshold costs and gains", Says: "The measured rate and its bound over the gain, with the promise as a line.", Plot: p, Height: 230}
}

// under cuts a rising curve where it leaves the plot.
func under(points plotter.XYs, top float64) plotter.XYs {
	for i, p := range points {
		if p.Y > top {
			return points[:i]
		}
	}
	return points
}
