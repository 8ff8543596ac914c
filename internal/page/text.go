package page

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCell is how many characters of a text a terminal table shows.
const maxCell = 72

// WriteText writes the page for a terminal: tables of aligned columns, no colours, no plots. Long tables are cut and say so. Anything
// in the data that a terminal would obey instead of show is escaped.
func (p *Page) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	if p.Title != "" {
		fmt.Fprintf(b, "%s\n%s\n", Plain(p.Title), strings.Repeat("=", utf8.RuneCountInString(Plain(p.Title))))
	}
	for _, f := range p.Facts {
		fmt.Fprintf(b, "%s: %s\n", Plain(f.Name), Plain(f.Value))
	}
	for _, n := range p.Notes {
		fmt.Fprintf(b, "! %s\n", Plain(n))
	}
	for _, s := range p.Sections {
		title := Plain(s.Title)
		fmt.Fprintf(b, "\n%s\n%s\n", title, strings.Repeat("-", utf8.RuneCountInString(title)))
		if s.Note != "" {
			fmt.Fprintf(b, "%s\n", Plain(s.Note))
		}
		for _, t := range s.Tables {
			b.WriteByte('\n')
			writeTable(b, t)
		}
	}
	return b.Flush()
}

// Writes to a bufio.Writer keep their first error for Flush, which reports it.
func writeTable(b *bufio.Writer, t Table) {
	if t.Title != "" {
		fmt.Fprintf(b, "%s\n", Plain(t.Title))
	}
	if t.Note != "" {
		fmt.Fprintf(b, "%s\n", Plain(t.Note))
	}
	rows, left := t.Rows, 0
	if t.Long && len(rows) > LongTable {
		rows, left = rows[:LongTable], len(rows)-LongTable
	}
	lines := [][]string{make([]string, len(t.Columns))}
	for i, c := range t.Columns {
		lines[0][i] = Plain(c.Name)
	}
	for _, row := range rows {
		line := make([]string, len(row))
		for i, cell := range row {
			line[i] = shorten(Plain(cell))
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(t.Columns))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var out strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			out.WriteString("  ")
			if t.Columns[i].Number {
				out.WriteString(pad + cell)
			} else {
				out.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(out.String(), " "))
		b.WriteByte('\n')
	}
	if left > 0 {
		fmt.Fprintf(b, "  … and %d more, which the JSON and the page have\n", left)
	}
}

func shorten(s string) string {
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	return string([]rune(s)[:maxCell-1]) + "…"
}

// Plain returns s with everything escaped that is not seen but obeyed: control sequences, line breaks, characters that change the
// writing direction, broken UTF-8. The joiners inside emoji and in scripts that need them stay.
func Plain(s string) string {
	const nonJoiner, joiner = '\u200c', '\u200d'
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r), r == nonJoiner, r == joiner:
			b.WriteRune(r)
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
