package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"

	"ragate/gates/evaluate"
)

//go:embed page.html
var page string

// WriteHTML writes the report as one page without any reference to something outside it. Nothing is written when it fails to render.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{"plain": plain}).Parse(page)
	if err != nil {
		return err
	}
	title := r.Title
	if title == "" {
		title = "ragate report"
	}
	var b bytes.Buffer
	if err := t.Execute(&b, struct {
		Title    string
		Facts    []Fact
		Advice   []evaluate.Advice
		Sections []section
	}{title, r.facts(), r.Advice, r.sections()}); err != nil {
		return err
	}
	_, err = b.WriteTo(w)
	return err
}
