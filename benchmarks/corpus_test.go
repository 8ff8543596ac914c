package benchmarks

import (
	"strings"
	"testing"
)

// words counts words: enough of a tokenizer for texts that are made of words.
func words(text string) int { return len(strings.Fields(text)) }

func newTexts(t *testing.T, seed uint64) *Texts {
	t.Helper()
	x, err := NewTexts(seed, words)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestCorpusIsWhatTheDocumentationSays(t *testing.T) {
	x := newTexts(t, 1)
	if len(x.starts) != 300 || len(x.queries) != 223 || len(x.words) != 60_607 {
		t.Errorf("%d passages of %d words and %d queries; want 300, 60,607 and 223", len(x.starts), len(x.words), len(x.queries))
	}
}

func TestTextsAreUniqueAndOfTheWantedLength(t *testing.T) {
	x := newTexts(t, 7)
	seen := map[string]bool{}
	for range 2000 {
		n := x.Between(20, 300)
		p := x.Passage(n)
		if got := words(p); got != n {
			t.Fatalf("a passage of %d words was wanted, this has %d: %q", n, got, p)
		}
		for _, text := range []string{p, x.Query()} {
			first, _, _ := strings.Cut(text, " ")
			if seen[first] {
				t.Fatalf("two texts begin with %q", first)
			}
			seen[first] = true
		}
	}
}

func TestShortPassageIsStillAText(t *testing.T) {
	x := newTexts(t, 7)
	for _, n := range []int{-5, 0, 1} {
		if p := x.Passage(n); words(p) != 1 {
			t.Errorf("Passage(%d) = %q, want its unique word alone", n, p)
		}
	}
}

func TestTheSeedDecides(t *testing.T) {
	write := func(seed uint64) (out []string) {
		x := newTexts(t, seed)
		for range 20 {
			out = append(out, x.Passage(50), x.Query())
		}
		return out
	}
	a, b, other := strings.Join(write(3), "\n"), strings.Join(write(3), "\n"), strings.Join(write(4), "\n")
	if a != b {
		t.Error("the same seed gave other texts")
	}
	if a == other {
		t.Error("another seed gave the same texts")
	}
}
