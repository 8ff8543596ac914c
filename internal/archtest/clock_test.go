package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ragate/internal/testenv"
)

// strips are the methods and functions that make of a time one without its monotonic reading, or that count in wall-clock time. Budgets,
// waits and rates come from readings that keep it, so that a clock set back or forth while the server runs moves none of them.
var strips = map[string]bool{"Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true, "UTC": true, "Local": true, "In": true, "Round": true,
	"Truncate": true, "AddDate": true, "Date": true}

// wallClock are the places that mean the calendar.
var wallClock = map[string]string{
	"server/openai.go:appendModel":      "the date of a model's release, as OpenAI's API has it",
	"server/certs/certs.go:look":        "the dates of a certificate",
	"server/certs/certs.go:warn":        "the dates of a certificate",
	"server/metrics.go:newMetrics":      "when the certificate ends, for a scraper",
	"gates/quality/rules.go:applyRules": "the age of a document in days",
	"gates/quality/rules.go:timeOf":     "a document's date, as its metadata has it",
}

// Packages that wait, count time or keep deadlines use the monotonic clock alone.
func TestAClockThatJumpsMovesNothing(t *testing.T) {
	root := testenv.ModuleRoot(t)
	files := 0
	for _, folder := range []string{"inference", "server", "gates"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			var imported []string
			for _, i := range f.Imports {
				p, _ := strconv.Unquote(i.Path.Value)
				imported = append(imported, filepath.Base(p))
			}
			if !slices.Contains(imported, "time") {
				return nil
			}
			files++
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			for _, decl := range f.Decls {
				where := "package"
				if fn, ok := decl.(*ast.FuncDecl); ok {
					where = fn.Name.Name
				}
				ast.Inspect(decl, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					sel, ok := call.Fun.(*ast.SelectorExpr)
					if !ok || !strips[sel.Sel.Name] {
						return true
					}
					if x, ok := sel.X.(*ast.Ident); ok && x.Name != "time" && slices.Contains(imported, x.Name) {
						return true // math.Round, unicode.In
					}
					if _, ok := wallClock[filepath.ToSlash(rel)+":"+where]; !ok {
						t.Errorf("%s: %s calls %s, which knows no monotonic clock: use time.Since, time.Until or Sub, or say in wallClock why the calendar is meant",
							set.Position(call.Pos()), where, sel.Sel.Name)
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 10 {
		t.Errorf("only %d files that know the time were looked at", files)
	}
}
