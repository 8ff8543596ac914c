package settings

import "strings"

// Nearest returns the known name that a misspelt one was probably meant to be, "" when none is near. Case and the choice between - and _
// are no difference; beyond that, two letters in five may be wrong, at most three of them. Of equally near ones the first is taken.
func Nearest(name string, known []string) string {
	best, least := "", 4
	plain := fold(name)
	for _, k := range known {
		f := fold(k)
		d := distance(plain, f)
		if d < least && d <= max(1, min(len(plain), len(f))*2/5) {
			best, least = k, d
		}
	}
	return best
}

func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b, by bytes, no byte being touched
// twice: the "optimal string alignment" distance (Boytsov, ACM Journal of Experimental Algorithmics 16, 2011, section 2).
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			now[j] = min(replace, last[j]+1, now[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
