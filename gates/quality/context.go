package quality

import (
	"strconv"
	"strings"
)

// AssembleContext joins texts, best first, into the block that goes in front of a language model: "[Source 1]: …", numbered by
// rank from 1, with a blank line between. No text gives "".
func AssembleContext(texts []string) string {
	const open, close, between = "[Source ", "]: ", "\n\n"
	size := 0
	for _, t := range texts {
		size += len(open) + len(close) + len(between) + len("9999") + len(t)
	}
	var b strings.Builder
	b.Grow(size)
	for i, t := range texts {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(open)
		b.WriteString(strconv.Itoa(i + 1))
		b.WriteString(close)
		b.WriteString(t)
	}
	return b.String()
}

// bytesPerToken is used only for a chunk whose tokens were never counted. WordPiece spends about four bytes of English on a
// token; three errs on the side of staying within the caller's limit.
const bytesPerToken = 3

func tokensOf(c *Chunk) int {
	if c.Tokens > 0 {
		return c.Tokens
	}
	return (len(c.Text) + bytesPerToken - 1) / bytesPerToken
}
