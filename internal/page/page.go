// Package page shows findings to people: facts, tables and charts, as one self-contained HTML page or as plain text for a terminal.
//
// Start with [Page]: fill in what there is and call WriteHTML or WriteText. A chart is a gonum plot, begun with [NewPlot].
//
// What it promises: the same page gives the same bytes. The HTML holds everything it needs: it runs no script, and its content policy
// forbids it to fetch anything. It follows the reader's light or dark setting, and fits a screen of 390 px. Texts from the data are
// escaped in the page, and cannot move the cursor of a terminal. What it is not for: computing numbers, files, and clocks.
package page

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var layout string

// Page is what is shown. Every part may be absent.
type Page struct {
	Title    string
	Fallback string // title of the HTML page where Title is ""
	Facts    []Fact
	Notes    []string // what the reader must not miss
	Sections []Section
}

// Fact is a name and a value.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Section is a heading with what stands under it.
type Section struct {
	Title  string
	Note   string
	Charts []Chart
	Tables []Table
}

// Table is rows of as many cells as there are columns.
type Table struct {
	Title   string
	Note    string
	Columns []Column
	Rows    [][]string
	// Long tables are folded in the page and cut in the terminal.
	Long bool
}

// LongTable is the number of rows from which a table had better be long; the terminal shows no more of it.
const LongTable = 12

// Column is one column's heading.
type Column struct {
	Name string
	// Number columns are aligned to the right.
	Number bool
}

// Left and Right are a column of texts and one of numbers.
func Left(name string) Column  { return Column{name, false} }
func Right(name string) Column { return Column{name, true} }

// WriteHTML writes the page without any reference to something outside it. Nothing is written when it fails to render.
func (p *Page) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{"plain": Plain}).Parse(layout)
	if err != nil {
		return err
	}
	shown := *p
	if shown.Title == "" {
		shown.Title = p.Fallback
	}
	var b bytes.Buffer
	if err := t.Execute(&b, shown); err != nil {
		return err
	}
	_, err = b.WriteTo(w)
	return err
}
