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
		checkAllocations(t, tk, text, 4)
		checkAllocs(t, "Encode", text, 4, func() { tk.Encode(text, Options{MaxTokens: 512}) })
		checkAllocs(t, "AppendIDs, escaping", text, 4, func() { escaping.AppendIDs(nil, text) })
	}
}
