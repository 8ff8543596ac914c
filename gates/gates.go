package gates

import (
	"context"
	"errors"
	"time"
)

// ErrOverloaded is what the errors of an [Embedder] or [Scorer] wrap when there is no room in its queue. Callers are told so; of any other
// error they are only told that there was one, as it may speak of the inside.
var ErrOverloaded = errors.New("the queue is full")

// Embedder turns queries into vectors.
type Embedder interface {
	// EmbedQueries returns one vector per text, row-major, dim floats each, of length 1.
	EmbedQueries(ctx context.Context, texts []string) (vectors []float32, dim int, u ModelUse, err error)
}

// Scorer scores chunks against a query.
type Scorer interface {
	// Score returns one score per text. Texts come in the order in which to score them while the time lasts; deadline is when the answer
	// must be there, zero for no limit. err is for a call of which nothing could be scored. The texts say what was scored and cut of them,
	// so the use need not.
	Score(ctx context.Context, query string, texts []string, o ScoreOptions) ([]ChunkScore, ModelUse, error)
}

// LanguageDetector tells the language of a query.
type LanguageDetector interface {
	// Language returns a BCP 47 tag, or "" when it is not sure.
	Language(query string) string
}

// ScoreOptions are the settings of one Score.
type ScoreOptions struct {
	Deadline   time.Time
	MaxPassage bool // score a long text in overlapping windows and take the best
}

// ChunkScore is what came of one text.
type ChunkScore struct {
	Logit           float32 // NaN when the row failed
	Scored          bool    // false: there was no time
	Partial         bool    // with MaxPassage: perhaps not every window has a score, as there was no time for it or it failed
	Tokens          int     // of the whole text
	Cut             int     // of them the model did not read
	Windows, Window int     // with MaxPassage: how many, and which gave Logit
}

// ModelUse is what a model call took.
type ModelUse struct {
	Model                      string // its id, "" when none ran
	Items                      int    // texts that ran
	Tokens                     int    // that ran, special ones included
	Cut                        []int  // of which texts of the call a part was not read
	Tokenize, Queue, Inference time.Duration
	Reused                     int // of the texts, those whose answers were known: they count in Items and Tokens, and did not run
	Similar                    int // of the texts, those with the score of a nearly equal query
}

// Memo keeps what was decided, so that equal questions are decided once. What it returns is shared: nobody changes it.
type Memo interface {
	// Recall returns the key of a question that is all of these parts, and what was decided on it, if that is known and may be used under ctx.
	Recall(ctx context.Context, parts []string) (key [32]byte, decision any, ok bool)
	// Remember keeps a decision that holds about so many bytes.
	Remember(key [32]byte, decision any, bytes int)
}

// Clock tells the time. The gates read no clock of their own.
type Clock func() time.Time

// Turn is one message of a conversation.
type Turn struct {
	Role    string // "user", "assistant", "tool"; "system" and "developer" are no part of the conversation
	Content string
}
