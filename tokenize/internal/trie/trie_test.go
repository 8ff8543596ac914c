package trie

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTrie(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, size := range []int{0, 1, 2, 300, 20000} {
		var keys []Key
		want := map[string]int32{}
		for i := range size {
			b := make([]byte, 1+rng.IntN(6))
			for j := range b {
				b[j] = byte(rng.IntN(256) & (0x0f | rng.IntN(256)))
			}
			keys = append(keys, Key{string(b), int32(i)})
			want[string(b)] = int32(i)
		}
		tr, err := New(keys)
		if err != nil {
			t.Fatal(err)
		}
		for key, id := range want {
			text := key + string(byte(rng.IntN(256)))
			longest := ""
			for n := range len(text) + 1 {
				if _, ok := want[text[:n]]; ok {
					longest = text[:n]
				}
			}
			if got, n := tr.Longest([]byte(text)); n != len(longest) || got != want[longest] {
				t.Fatalf("%d keys: %q in %q", size, text[:n], text)
			}
			node, got := tr.Root(), int32(-1)
			for i := range len(key) {
				var ok bool
				if node, got, ok = tr.Step(node, key[i]); !ok {
					t.Fatalf("%q is not found", key)
				}
			}
			if got != id {
				t.Fatalf("%q is %d, want %d", key, got, id)
			}
		}
	}
}

func BenchmarkNew(b *testing.B) {
	var keys []Key
	for i := range 50000 {
		keys = append(keys, Key{strings.Repeat(fmt.Sprint(i*7919%100003), 2), int32(i)})
	}
	for b.Loop() {
		if _, err := New(keys); err != nil {
			b.Fatal(err)
		}
	}
}
