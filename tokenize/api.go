package tokenize

import "fmt"

// Side is the side of a text that truncation removes tokens from.
type Side uint8

const (
	Right Side = iota
	Left
)

// Strategy says which text of a pair gives up tokens when the pair is too long. A text on its own counts as the first.
type Strategy uint8

const (
	// LongestFirst shortens the longer text until the pair fits or both are equally long, then both alike; of an odd
	// number of tokens the text that was longer keeps the extra one (the second, when they were equally long).
	LongestFirst Strategy = iota
	OnlyFirst
	OnlySecond
)

func (s Strategy) String() string {
	switch s {
	case LongestFirst:
		return "longest first"
	case OnlyFirst:
		return "only first"
	case OnlySecond:
		return "only second"
	}
	return fmt.Sprintf("Strategy(%d)", uint8(s))
}

// Options bound an encoding. The zero value does not cut.
type Options struct {
	MaxTokens int // of the whole encoding, special tokens included; 0: no bound
	Strategy  Strategy
	Side      Side
}

// Encoding is a row for the model: the text's tokens (or both texts') with the special tokens around them.
type Encoding struct {
	IDs       []int32
	TypeOneAt int // IDs[TypeOneAt:] have token type 1, those before it type 0; len(IDs) when all have type 0

	// CutFirst and CutSecond count the tokens that were removed from the first and the second text. They are exact, except
	// where a text was not read to its end, because only its beginning could be kept: Encode does so with its text and
	// EncodePair with its second one. Then the count is a lower bound, and at least 1.
	CutFirst  int
	CutSecond int
}

// Cut is the number of tokens that were removed, 0 when the encoding is whole.
func (e *Encoding) Cut() int { return e.CutFirst + e.CutSecond }

// Token is one token of a text with its place in it.
type Token struct {
	ID      int32
	Text    string // the slice of the input; for a token that was added, its name ("[CLS]")
	Special bool   // added around the text; a special token that the text itself spells is a token of the text
	Start   int    // Unicode code points of the input; -1 for tokens that were added
	Stop    int
}

// UnsupportedError is returned by Parse for a tokenizer that this package cannot do exactly.
type UnsupportedError struct {
	Field     string // path in the tokenizer.json, as in "normalizer.type"
	Value     string // what stands there
	Supported string // what would do
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("tokenizer: %s is %s, which is not supported; supported: %s", e.Field, e.Value, e.Supported)
}

// InvalidError is returned by Parse for a file that is broken: not JSON, a field missing or contradicting another.
type InvalidError struct {
	Field  string // path in the tokenizer.json, or field of the ModelProto; "" for the whole file
	Reason string
}

func (e *InvalidError) Error() string {
	if e.Field == "" {
		return "tokenizer: " + e.Reason
	}
	return fmt.Sprintf("tokenizer: %s: %s", e.Field, e.Reason)
}

// LimitError is returned when Options.MaxTokens does not even hold the special tokens, or is negative.
type LimitError struct {
	MaxTokens int
	Special   int // tokens that the template adds
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("a limit of %d tokens does not hold the %d special tokens; give at least %d, or 0 for no limit",
		e.MaxTokens, e.Special, e.Special)
}

// TruncationError is returned when the strategy cannot bring an encoding under the limit: the one text that it may cut is
// missing or would have to give up all of its tokens.
type TruncationError struct {
	Strategy  Strategy
	MaxTokens int // the limit, special tokens included
	Tokens    int // of the uncut encoding, special tokens included
	Target    int // tokens of the text that the strategy may cut; 0 when there is no such text
}

func (e *TruncationError) Error() string {
	return fmt.Sprintf("%d tokens do not fit into %d by cutting %s: that text has only %d tokens; use longest first",
		e.Tokens, e.MaxTokens, e.Strategy, e.Target)
}
