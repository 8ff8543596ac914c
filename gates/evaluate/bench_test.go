package evaluate

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A whole evaluation of a file like the largest public ones: 12,000 turns of 100 domains, with both leave-one-out tables.
func BenchmarkQueries(b *testing.B) {
	random := rand.New(rand.NewPCG(51, 0))
	turns := gaussianTurns(random, 10_000, 2_300)
	for i := range turns {
		turns[i].Domain = fmt.Sprint(i % 100)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Queries(turns, QueryOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
