//go:build !race

package tokenize

import (
	"strings"
	"testing"
)

// Not under the race detector, where pools forget on purpose.

func TestUnigramAllocations(t *testing.T) {
	tk := xlm(t)
	escaping := tk.EscapeSpecial()
	texts := append(cranfield(t)[:50], "", "x", "what is go", strings.Repeat("中文", 1000), strings.Repeat("!", 5000), strings.Repeat("가", 3000),
		strings.Repeat("a ", 9000), strings.Repeat("<mask>", 500), strings.Repeat("zq", 800), strings.Repeat("Où l’été ", 300), strings.Repeat("a   b", 900),
		strings.Repeat("ⲁ", 500), strings.Repeat("ﷺ", 500))
	for _, text := range texts {
		want := tk.AppendIDs(nil, text)
		name := text[:min(len(text), 30)]
		check := func(how string, most float64, f func()) {
			t.Helper()
			if n := testing.AllocsPerRun(20, f); n > most {
				t.Errorf("%s of %q: %v allocations, want at most %v", how, name, n, most)
			}
		}
		sized := make([]int32, 0, len(want))
		check("AppendIDs into sized memory", 0, func() { tk.AppendIDs(sized, text) })
		check("AppendIDsLimit into sized memory", 0, func() { tk.AppendIDsLimit(sized, text, len(want)) })
		cut := make([]int32, 0, len(want)/2)
		check("AppendIDsLimit into memory of the limit", 0, func() { tk.AppendIDsLimit(cut, text, len(want)/2) })
		check("AppendIDs", 4, func() { tk.AppendIDs(nil, text) })
		check("Encode", 4, func() { tk.Encode(text, Options{MaxTokens: 512}) })
		check("AppendIDs, escaping", 4, func() { escaping.AppendIDs(nil, text) })
	}
}
