package page

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
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
)

// Charts are drawn by gonum/plot, which lays out axes, ticks and legends, and knows fixed colours only. They are drawn in the marker
// colours below, which no chart needs for themselves; svg then replaces them by names that the page's style sheet defines, once for
// light and once for dark.

// Chart is a plot and what to call it.
type Chart struct {
	Title string
	// Says tells in one sentence what is drawn, for those who do not see it.
	Says string
	Plot *plot.Plot
	// Height in points; the width is always Width.
	Height vg.Length
}

// Width is a phone's width less margins: charts are scaled to the page, and text stays readable where they are drawn 1:1.
const Width = 340

// Marker returns the i-th marker colour.
func Marker(i uint8) color.RGBA { return color.RGBA{R: 1, G: 2, B: 10 + i, A: 255} }

// Markers and what stands for them in the page.
const (
	Ink = iota
	Grid
	Limit
	firstSeries
	seriesColours = 5
)

// inPage maps what vgsvg writes to what the page wants.
func inPage() *strings.Replacer {
	pairs := []string{}
	colour := func(i int, value string) {
		m := Marker(uint8(i))
		pairs = append(pairs, fmt.Sprintf("#%02X%02X%02X", m.R, m.G, m.B), value)
	}
	colour(Ink, "currentColor")
	colour(Grid, "var(--grid)")
	colour(Limit, "var(--limit)")
	for i := range seriesColours {
		colour(firstSeries+i, "var(--series"+strconv.Itoa(i+1)+")")
	}
	// The page's own font instead of the one whose widths the layout was made with; Arial's are the same.
	pairs = append(pairs, "font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "")
	return strings.NewReplacer(pairs...)
}

// SVG returns the chart as an element for the page.
func (c Chart) SVG() (template.HTML, error) {
	canvas := vgsvg.New(Width, c.Height)
	// Tick labels at the ends of an axis stand out of the plot, and the reader's font may be wider than the one measured here.
	const margin = 14
	c.Plot.Draw(draw.Crop(draw.New(canvas), 2, -margin, 0, -4))
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
	head := fmt.Sprintf(`<svg viewBox="0 0 %d %g" role="img" aria-label="%s">`, Width, c.Height.Points(), html.EscapeString(Plain(c.Title+". "+c.Says)))
	return template.HTML(head + inPage().Replace(strings.TrimSpace(body))), nil
}

// NewPlot returns an empty plot with the page's text, and axes named.
func NewPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	ink := Marker(Ink)
	style := func(s *text.Style, size vg.Length) {
		s.Font = font.From(sans, size)
		s.Color = ink
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		style(&axis.Label.TextStyle, 11)
		style(&axis.Tick.Label, 10)
		axis.Color, axis.Tick.Color = ink, Marker(Grid)
		axis.Padding = 2
	}
	style(&p.Legend.TextStyle, 10)
	p.Legend.ThumbnailWidth, p.Legend.Padding = 16, 4
	p.Legend.Left = true // then a wider font runs into empty space, not into the line samples
	p.X.Label.Text, p.Y.Label.Text = x, y
	grid := plotter.NewGrid()
	for _, l := range []*draw.LineStyle{&grid.Horizontal, &grid.Vertical} {
		l.Color, l.Width = Marker(Grid), 0.5
	}
	p.Add(grid)
	return p
}

// Series is the look of the i-th series: its colour, and dashes so that colour is not all that tells them apart.
func Series(i int) draw.LineStyle {
	dashes := [][]vg.Length{nil, {5, 2}, {2, 2}, {7, 2, 2, 2}, {1, 2}}
	return draw.LineStyle{Color: Marker(uint8(firstSeries + i%seriesColours)), Width: 1.6, Dashes: dashes[i%len(dashes)]}
}

func Line(points plotter.XYs, style draw.LineStyle) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: style}
}

func LimitLine(points plotter.XYs) *plotter.Line {
	return Line(points, draw.LineStyle{Color: Marker(Limit), Width: 1, Dashes: []vg.Length{3, 2}})
}

// PercentTicks labels the default ticks of a fraction as percentages.
func PercentTicks() plot.Ticker {
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

// DecadeTicks marks every power of ten as a percentage.
func DecadeTicks() plot.Ticker {
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

// Visible returns at most n characters of a label, without any that has no shape: what a font cannot draw has no place in a plot.
func Visible(s string, n int) string {
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
