package harness

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"ragate/internal/page"
)

var reference = regexp.MustCompile(`(?i)\b(src|href|srcset|action|poster|data|xlink:href)\s*=|url\(|@import|//[a-z]`)

func TestPagesAreSelfContained(t *testing.T) {
	r := sample(t, 1.5)
	r.Command, r.Servers[0].URL = "ragate bench", "host" // an address in a text is no reference
	c, err := Compare("a.json", r, "b.json", sample(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		page   *page.Page
		charts int
		says   []string
	}{
		"result": {r.Page(), 3, []string{"rerank-10x128, 4 clients", "seed 7", "1e+12 operations/s", "A : B", "share of the raw session", "p99.9",
			"1 requests failed (status 500: 1)", "the server says it ran 5 tokens, counted here are 6"}},
		"comparison": {c.Page(), 3, []string{"first : second", "better", "a.json"}},
	} {
		var html, again, text bytes.Buffer
		if err := x.page.WriteHTML(&html); err != nil {
			t.Fatal(err)
		}
		if err := x.page.WriteHTML(&again); err != nil || !bytes.Equal(html.Bytes(), again.Bytes()) {
			t.Errorf("%s: two renderings differ, %v", name, err)
		}
		if err := x.page.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if m := reference.FindString(html.String()); m != "" {
			t.Errorf("%s: the page refers to something outside it: %q", name, m)
		}
		if strings.Contains(html.String(), "<script") || strings.ContainsRune(html.String()+text.String(), 0x1b) {
			t.Errorf("%s: what a server said is live", name)
		}
		if n := strings.Count(html.String(), "<svg "); n != x.charts || strings.Contains(html.String(), "NaN") || strings.Contains(html.String(), "Inf") {
			t.Errorf("%s: %d charts, want %d, with numbers only", name, n, x.charts)
		}
		for _, want := range x.says {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: the text lacks %q:\n%s", name, want, &text)
			}
		}
	}
}

// A result of one turn, without an answer, must be shown too.
func TestOddResultsAreShown(t *testing.T) {
	r := &Result{Cases: []CaseResult{{Workload: "w", Rate: 3, Sides: []Side{{Server: "A", Refused: 3, Rounds: []Round{{}}}}}}}
	var html, text bytes.Buffer
	if err := r.Page().WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if err := r.Page().WriteText(&text); err != nil || !strings.Contains(text.String(), "w, 3 requests/s") {
		t.Errorf("%v:\n%s", err, &text)
	}
	if strings.Contains(html.String()+text.String(), "NaN") {
		t.Errorf("%s", &text)
	}
}
