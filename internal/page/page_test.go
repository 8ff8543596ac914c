package page

import (
	"bytes"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// Every text of a page may come from data: titles, names and cells alike.
func TestNothingInAPageIsLive(t *testing.T) {
	const bad = "x\x1b[31m<script>alert(1)</script>\u202e"
	p := NewPlot(Visible(bad, 20), "y")
	l := Line(plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}}, Series(0))
	p.Add(l, LimitLine(plotter.XYs{{X: 0, Y: 1}, {X: 1, Y: 1}}))
	p.Legend.Add(Visible(bad, 20), l)
	table := Table{Title: bad, Note: bad, Columns: []Column{Left(bad), Right(bad)}, Rows: [][]string{{bad, bad}}}
	long := table
	for range LongTable {
		long.Rows = append(long.Rows, []string{"a", "b"})
	}
	long.Long = true
	x := &Page{Title: bad, Facts: []Fact{{bad, bad}}, Notes: []string{bad},
		Sections: []Section{{Title: bad, Note: bad, Charts: []Chart{{Title: bad, Says: bad, Plot: p, Height: 200}}, Tables: []Table{table, long}}}}
	var html, text bytes.Buffer
	if err := x.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if err := x.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(html.String()+text.String(), "\x1b\u202e") || strings.Contains(html.String(), "<script") {
		t.Errorf("something of the data is live:\n%s", &text)
	}
	if n := strings.Count(html.String(), "alert(1)"); n < 14 {
		t.Errorf("the bad text is shown %d times: some of it was lost", n)
	}
	if !strings.Contains(text.String(), "… and 1 more") {
		t.Errorf("the long table was not cut:\n%s", &text)
	}
}

func TestThePageWithoutATitleHasOne(t *testing.T) {
	var html bytes.Buffer
	if err := (&Page{Fallback: "a report"}).WriteHTML(&html); err != nil || !strings.Contains(html.String(), "<title>a report</title>") {
		t.Errorf("%v: %.300s", err, &html)
	}
}
