package semantic

import (
	"maps"
	"strings"
	"testing"

	"ragate/gates/textnorm"
)

// TestHeldOutSets keeps the held-out sets what they are said to be: turns written without sight of the references, the rules and the
// other sets, and never used to tune any of them. A row that is added, dropped or labelled anew makes old figures incomparable, so
// the counts are fixed here. Two rows of a language are the same when they differ in case and punctuation only.
func TestHeldOutSets(t *testing.T) {
	type group struct{ lang, label string }
	for _, c := range []struct {
		path string
		want map[group]int
	}{
		{"testdata/heldout_nl.jsonl", map[group]int{
			{"nl", "chitchat"}: 597, {"nl", "knowledge"}: 725,
		}},
		{"testdata/heldout2_nl.jsonl", map[group]int{
			{"nl", "chitchat"}: 300, {"nl", "knowledge"}: 350,
		}},
		{"testdata/heldout_other.jsonl", map[group]int{
			{"de", "chitchat"}: 30, {"de", "knowledge"}: 30,
			{"fr", "chitchat"}: 30, {"fr", "knowledge"}: 30,
			{"es", "chitchat"}: 30, {"es", "knowledge"}: 30,
		}},
	} {
		got := map[group]int{}
		seen := map[string]string{}
		for _, m := range readMessages(t, c.path) {
			got[group{m.Lang, m.Label}]++
			if m.Text == "" || m.Text != strings.TrimSpace(m.Text) || m.Category == "" || m.Source != "ragate" {
				t.Errorf("%s: %+v: want a trimmed text, a category and the source ragate", c.path, m)
			}
			same := textnorm.Plain(m.Text)
			if same == "" { // a smiley
				same = m.Text
			}
			if first, ok := seen[m.Lang+same]; ok {
				t.Errorf("%s: %q repeats %q", c.path, m.Text, first)
			}
			seen[m.Lang+same] = m.Text
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: rows by language and label %v, want %v", c.path, got, c.want)
		}
	}
}
