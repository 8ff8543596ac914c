package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"ragate/gates/evaluate"
)

// Charts are drawn by gonum/plot, which lays out axes, ticks and legends, and knows fixed colours only. They are drawn in the marker
// colours below, which no chart needs for themselves; svg then replaces them by names that the page's style sheet defines, once for
// light and once for dark.

// chart is a plot and what to call it.
type chart struct {
	Title string
	// Says tells in one sentence what is drawn, for those who do not see it.
	Says string
	plot *plot.Plot
	// height in points; the width is always chartWidth.
	height vg.Length
}

// chartWidth is a phone's width less margins: charts are scaled to the page, and text stays readable where they are drawn 1:1.
const chartWidth = 340

// marker returns the i-th marker colour.
func marker(i uint8) color.RGBA { return color.RGBA{R: 1, G: 2, B: 10 + i, A: 255} }

// Markers and what stands for them in the page.
const (
	inkMarker = iota
	gridMarker
	limitMarker
	firstSeries
	seriesColours = 5
)

// inPage maps what vgsvg writes to what the page wants.
func inPage() *strings.Replacer {
	pairs := []string{}
	colour := func(i int, value string) {
		m := marker(uint8(i))
		pairs = append(pairs, fmt.Sprintf("#%02X%02X%02X", m.R, m.G, m.B), value)
	}
	colour(inkMarker, "currentColor")
	colour(gridMarker, "var(--grid)")
	colour(limitMarker, "var(--limit)")
	for i := range seriesColours {
		colour(firstSeries+i, "var(--series"+strconv.Itoa(i+1)+")")
	}
	// The page's own font instead of the one whose widths the layout was made with; Arial's are the same.
	pairs = append(pairs, "font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "")
	return strings.NewReplacer(pairs...)
}

// SVG returns the chart as an element for the page.
func (c chart) SVG() (template.HTML, error) {
	canvas := vgsvg.New(chartWidth, c.height)
	// Tick labels at the ends of an axis stand out of the plot, and the reader's font may be wider than the one measured here.
	const margin = 14
	c.plot.Draw(draw.Crop(draw.New(canvas), 2, -margin, 0, -4))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	// The page needs neither the XML prologue nor the namespaces, and a size that follows the page.
	_, rest, found := strings.Cut(b.String(), "<svg ")
	_, body, closed := strings.Cut(rest, ">")
	if !found || !closed {
		return "", fmt.Errorf("chart %q: the plot has no svg element", c.Title)
	}
	head := fmt.Sprintf(`<svg viewBox="0 0 %d %g" role="img" aria-label="%s">`, chartWidth, c.height.Points(), html.EscapeString(c.Title+". "+c.Says))
	return template.HTML(head + inPage().Replace(strings.TrimSpace(body))), nil
}

// newPlot returns an empty plot with the page's text, and axes named.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	ink := marker(inkMarker)
	style := func(s *text.Style, size vg.Length) {
		s.Font = font.From(sans, size)
		s.Color = ink
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		style(&axis.Label.TextStyle, 11)
		style(&axis.Tick.Label, 10)
		axis.Color, axis.Tick.Color = ink, marker(gridMarker)
		axis.Padding = 2
	}
	style(&p.Legend.TextStyle, 10)
	p.Legend.ThumbnailWidth, p.Legend.Padding = 16, 4
	p.Legend.Left = true // then a wider font runs into empty space, not into the line samples
	p.X.Label.Text, p.Y.Label.Text = x, y
	grid := plotter.NewGrid()
	for _, l := range []*draw.LineStyle{&grid.Horizontal, &grid.Vertical} {
		l.Color, l.Width = marker(gridMarker), 0.5
	}
	p.Add(grid)
	return p
}

// series is the look of the i-th series: its colour, and dashes so that colour is not all that tells them apart.
func series(i int) draw.LineStyle {
	dashes := [][]vg.Length{nil, {5, 2}, {2, 2}, {7, 2, 2, 2}, {1, 2}}
	return draw.LineStyle{Color: marker(uint8(firstSeries + i%seriesColours)), Width: 1.6, Dashes: dashes[i%len(dashes)]}
}

func line(points plotter.XYs, style draw.LineStyle) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: style}
}

func limitLine(points plotter.XYs) *plotter.Line {
	return line(points, draw.LineStyle{Color: marker(limitMarker), Width: 1, Dashes: []vg.Length{3, 2}})
}

// percentTicks labels the default ticks of a fraction as percentages.
func percentTicks() plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := plot.DefaultTicks{}.Ticks(100*low, 100*high)
		for i, t := range ticks {
			if t.Label != "" {
				ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 4, 64) + " %"
			}
			ticks[i].Value /= 100
		}
		return ticks
	})
}

// decadeTicks marks every power of ten as a percentage.
func decadeTicks() plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
			v := math.Pow(10, e)
			if v >= low*0.999 && v <= high*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(100*v, 'g', 3, 64) + " %"})
			}
			for m := 2.0; m < 10; m++ {
				if v*m > low && v*m < high {
					ticks = append(ticks, plot.Tick{Value: v * m})
				}
			}
		}
		return ticks
	})
}

// rocChart draws bypass over false bypass, the latter on a logarithmic axis: the part of interest is its first hundredth.
func rocChart(q *evaluate.QueryResult) chart {
	p := newPlot("false bypass", "chitchat bypassed")
	// Zero has no logarithm: it is drawn where half a turn would be, in the axis's first decade.
	floor := math.Pow(10, math.Floor(math.Log10(0.5/float64(max(q.Overall.FalseBypass.Of, 1)))))
	points := make(plotter.XYs, len(q.ROC))
	for i, r := range q.ROC {
		points[i] = plotter.XY{X: max(r.FalseBypass, floor), Y: r.Bypass}
	}
	curve := line(points, series(0))
	curve.StepStyle = plotter.PostStep
	p.Add(curve)
	for _, at := range q.AtRate {
		if at.Limit > floor {
			p.Add(limitLine(plotter.XYs{{X: at.Limit, Y: 0}, {X: at.Limit, Y: 1}}))
		}
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = floor, 1, 0, 1
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decadeTicks()
	p.Y.Tick.Marker = percentTicks()
	says := "The share of chitchat bypassed for each rate of false bypass"
	for _, at := range q.AtRate {
		says += fmt.Sprintf("; %s at %s", percent(at.Bypass.Rate()), percent(at.Limit))
	}
	return chart{Title: "Bypass over false bypass", Says: says + " (dashed).", plot: p, height: 230}
}

// histogramChart draws the share of each label per bin, so that a rare label is seen beside a common one. Thresholds are marked.
func histogramChart(h *evaluate.Histogram, title string, marks []evaluate.OperatingPoint) chart {
	p := newPlot(h.Field, "share of the label")
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
		l := line(points, series(i))
		p.Add(l)
		p.Legend.Add(fmt.Sprintf("%s (%d)", visible(s.Label, 24), total), l)
	}
	for _, m := range marks {
		if m.Threshold != nil {
			p.Add(limitLine(plotter.XYs{{X: *m.Threshold, Y: 0}, {X: *m.Threshold, Y: top}}))
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
	p.Y.Tick.Marker = percentTicks()
	return chart{Title: title, Says: says, plot: p, height: 230}
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
		ticks[i] = plot.Tick{Value: float64(len(labels) - 1 - i), Label: visible(l, 22)}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = -0.6, float64(len(labels))-0.4
	p.X.Tick.Marker = percentTicks()
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
	p := newPlot("false bypass", "")
	intervals(p, rows, series(0), 0)
	labels := make([]string, len(rows))
	for i, r := range rows {
		labels[i] = r.label
	}
	labelRows(p, labels)
	p.X.Min = 0
	return chart{Title: title, Says: "The rate and its interval for each domain.", plot: p, height: 60 + 15*vg.Length(len(rows))}, true
}

// typeChart draws precision, recall and false negatives of each query type.
func typeChart(groups []evaluate.ChunkGroup) chart {
	p := newPlot("rate", "")
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
				drawn = intervals(p, []interval{{labels[at], r}}, series(i), float64(len(groups)-1-at)+0.25*float64(1-i))
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
	return chart{Title: "Rates by query type", Says: "Precision, recall and the share of turns that lost their answer, with intervals, for each query type.", plot: p, height: 90 + 34*vg.Length(len(groups))}
}

// curveChart draws what calibration saw: failures, their bound and the limit over what the thresholds gain.
func curveChart(promise evaluate.Promise, curve []evaluate.CurvePoint, chosen *float64) chart {
	recall := promise.Metric == evaluate.MetricRecall
	y, limit := "false bypass", promise.Limit
	if recall {
		y = "recall per turn"
	}
	p := newPlot(gainName(promise), y)
	rates, bounds := make(plotter.XYs, len(curve)), make(plotter.XYs, len(curve))
	high := limit
	for i, c := range curve {
		rates[i], bounds[i] = plotter.XY{X: c.Gain, Y: c.Failure}, plotter.XY{X: c.Gain, Y: c.Bound}
		if recall {
			rates[i].Y = 1 - c.Failure
		}
		high = max(high, c.Bound)
	}
	measuredLine, boundLine := line(rates, series(0)), line(bounds, series(1))
	limited := limitLine(plotter.XYs{{X: 0, Y: limit}, {X: 1, Y: limit}})
	p.Add(measuredLine, boundLine, limited)
	p.Legend.Add("measured", measuredLine)
	p.Legend.Add("bound", boundLine)
	p.Legend.Add("promise", limited)
	if chosen != nil {
		for _, c := range curve {
			if c.Threshold == *chosen {
				p.Add(&plotter.Scatter{XYs: plotter.XYs{{X: c.Gain, Y: c.Bound}}, GlyphStyle: draw.GlyphStyle{Color: marker(limitMarker), Radius: 3.5, Shape: draw.RingGlyph{}}})
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
	p.X.Tick.Marker, p.Y.Tick.Marker = percentTicks(), percentTicks()
	return chart{Title: "What each threshold costs and gains", Says: "The measured rate and its bound over the gain, with the promise as a line.", plot: p, height: 230}
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

// visible returns at most n characters of a label, without any that has no shape: what a font cannot draw has no place in a plot.
func visible(s string, n int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '·'
		}
		return r
	}, s))
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}
