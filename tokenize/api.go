package tokenize

// Side is the side of a text that truncation removes tokens from.
type Side uint8

const (
	Right Side = iota
	Left
)

// Token is one token of a text with its place in it.
type Token struct {
	ID      int32
	Text    string // the slice of the input; for a special token its name ("[CLS]")
	Special bool
	Start   int // Unicode code points of the input; -1 for special tokens that were added
	Stop    int
}
