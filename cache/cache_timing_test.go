package cache

import (
	"fmt"
	"strings"
	"testing"
)

func texts(n, bytes int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strings.Repeat(fmt.Sprintf("passage %d of many. ", i), bytes/18)[:bytes]
	}
	return out
}

// 20 chunks of 600 bytes: hashed, looked up, all there.
func BenchmarkHits(b *testing.B) {
	c := open4tests(b, Config{})
	t := texts(20, 600)
	run := func(s Scope) {
		keys := make([]Key, len(t))
		for i := range t {
			keys[i] = s.Key(t[i])
		}
		c.Do(b.Context(), Ask{Kind: Score, Keys: keys}, func(int, []byte) bool { return true }, func(m []int) ([][]byte, error) {
			out := make([][]byte, len(m))
			for i := range out {
				out[i] = make([]byte, 21)
			}
			return out, nil
		})
	}
	run(NewScope("q"))
	b.ReportAllocs()
	for b.Loop() {
		run(NewScope("q"))
	}
}

// The same with nothing there: hashed, looked up, flown, kept, beside whatever the computing takes.
func BenchmarkMisses(b *testing.B) {
	c := open4tests(b, Config{})
	t := texts(20, 600)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		s := NewScope("q", fmt.Sprint(n))
		keys := make([]Key, len(t))
		for i := range t {
			keys[i] = s.Key(t[i])
		}
		c.Do(b.Context(), Ask{Kind: Score, Keys: keys}, func(int, []byte) bool { return true }, func(m []int) ([][]byte, error) {
			out := make([][]byte, len(m))
			for i := range out {
				out[i] = make([]byte, 21)
			}
			return out, nil
		})
	}
}
