package report

import (
	"io"

	"ragate/internal/page"
)

// WriteHTML writes the report as one page without any reference to something outside it. Nothing is written when it fails to render.
func (r *Report) WriteHTML(w io.Writer) error { return r.page().WriteHTML(w) }

// WriteText writes the report for a terminal: tables of aligned columns, no colours, no plots. Long tables are cut and say so.
func (r *Report) WriteText(w io.Writer) error { return r.page().WriteText(w) }

func (r *Report) page() *page.Page {
	p := &page.Page{Title: r.Title, Fallback: "ragate report", Facts: r.facts(), Sections: r.sections()}
	for _, a := range r.Advice {
		p.Notes = append(p.Notes, a.Text)
	}
	return p
}

// facts returns when, how and what, in one list.
func (r *Report) facts() []Fact {
	var out []Fact
	if r.Created != "" {
		out = append(out, Fact{Name: "Created", Value: r.Created})
	}
	if r.Command != "" {
		out = append(out, Fact{Name: "Command", Value: r.Command})
	}
	return append(out, r.Facts...)
}
