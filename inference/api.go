package inference

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ragate/tokenize"
)

// Kind says what a model yields: a vector per text or a relevance logit per pair.
type Kind string

const (
	KindEmbedder Kind = "embedder"
	KindReranker Kind = "reranker"
)

// Lane orders work on the device. Interactive rows never wait behind more than one slice of bulk work.
type Lane uint8

const (
	LaneBulk        Lane = iota // embeddings of passages, reranking
	LaneInteractive             // a single short text somebody waits for
)

// Left and Right are the sides of a Truncation, for callers that know nothing of package tokenize.
const (
	Right = tokenize.Right
	Left  = tokenize.Left
)

// Truncation says what happens to a text (or pair) with more tokens than the limit.
// The zero value cuts at the model's limit, from the right.
type Truncation struct {
	Refuse    bool          // true: a longer input is a *TooLongError and nothing of the request runs
	Side      tokenize.Side // the side tokens are removed from
	MaxTokens int           // 0: the model's limit; a larger value is bounded by the model's
}

// EmbedRequest asks for one vector per text.
type EmbedRequest struct {
	Texts  []string
	Prompt string // "", or a name in Info.Prompts ("query", "passage"): its prefix goes in front of each text
	// SkipNormalize leaves the pooled vector as it is, where the model would scale it to length 1.
	SkipNormalize bool
	Truncation    Truncation
	Lane          Lane
	Client        string // whose request it is: the queue is shared out among clients
}

// Embeddings is a dense row-major matrix, one row of Dim values per text, in the order of the request.
type Embeddings struct {
	Dim    int
	Values []float32 // len(texts) * Dim; the row of a failed text is NaN
	Usage  Usage
	Timing Timing
}

// Row returns vector i, sharing memory with Values.
func (e *Embeddings) Row(i int) []float32 { return e.Values[i*e.Dim : (i+1)*e.Dim : (i+1)*e.Dim] }

// RerankRequest asks for one logit per document, each scored as the pair (Query, document).
type RerankRequest struct {
	Query           string
	Documents       []string
	MaxTokensPerDoc int // 0: no bound of its own; documents are cut to it before pairing
	Truncation      Truncation
	Lane            Lane
	Client          string // as EmbedRequest's

	// Deadline: documents that cannot be scored by then, at the measured rate, are left out and listed in Scores.Unscored; those that come
	// first are scored first, but for what a batch takes along of the same length. Zero: all are scored, however long it takes.
	Deadline time.Time
	// Windows scores a document that is longer than what fits beside the query in overlapping windows, and takes the best. At most
	// MaxWindows of them; what follows counts as cut. Not together with Truncation.Refuse or MaxTokensPerDoc, which it overrides.
	Windows bool
	// Measure fills Scores.Documents, for which each document is read to its end.
	Measure bool
}

// MaxWindows bounds the windows of one document: about 9,000 tokens for a model of 512.
const MaxWindows = 24

// Scores holds one logit per document, in the order of the request.
type Scores struct {
	Logits    []float32     // NaN where the row failed, or was not scored
	Unscored  []int         // ascending positions of the documents that the deadline left no time for
	Partial   []int         // with Windows: ascending positions of the documents of which there was time for some windows only
	Documents []DocumentUse // with Measure: one per document
	Usage     Usage
	Timing    Timing
}

// DocumentUse says how much of a document was read.
type DocumentUse struct {
	Tokens          int // of the whole document, without special tokens; 0 where the deadline left no time to read it
	Cut             int // of them the model did not read
	Windows, Window int // with Windows: how many the document was scored in, and which of them (from 0) gave its logit; 0 for one whole
}

// Usage counts what ran: tokens after cutting, special tokens included (for pairs: over all pairs), and which items were cut.
type Usage struct {
	Tokens int
	Cut    []int   // ascending positions of the items of which tokens were removed
	Items  []int32 // Tokens by item; shorter where the time was up before the last ones were read

	// Of the items, those that did not run, as their answers were known (see package reuse). They count in Tokens and Items as if they had.
	Reused  int
	Similar int // of those that did not run either, those with the score of a nearly equal query
}

// Timing is where a request's time went. Queue and Inference are those of its last row.
type Timing struct {
	Tokenize  time.Duration
	Queue     time.Duration
	Inference time.Duration
}

// Drift is how far a model's answer to one text moves when other texts share its batch, measured at start-up (or remembered
// from an earlier start with the same model, runtime and machine).
type Drift struct {
	MaxLogit  float64 // rerankers: largest difference of one pair's logit
	MinCosine float64 // embedders: smallest cosine of one text's vectors
	Rows      int     // how many rows were compared
}

// Info is what a loaded model publishes about itself.
type Info struct {
	ID         string   // what it is called here: org/name, unless Settings.Names says otherwise
	Aliases    []string // other names a request may use
	Source     string   // org/name of its files, or their folder's name
	Kind       Kind
	Revision   string
	SHA256     string // of the ONNX file as supplied, hex
	Created    time.Time
	Languages  []string // that the model is for: BCP 47 tags, or "multilingual"; empty: not stated
	Dimensions int      // embedders; 0 for rerankers
	MaxTokens  int
	Pooling    string            // embedders: mean, cls, …
	Prompts    map[string]string // prompt name → prefix

	Provider    string // the execution provider that runs the graph: cpu, openvino, cuda, tensorrt
	Precision   string // fp32, bf16, fp16, int8, int8-batched
	DType       string // of the stored weights: int8, float32, float16
	Streams     int    // runs that may be in flight at once
	Threads     int    // compute threads of one run
	BatchTokens int    // padded tokens of one batch, at most
	Drift       Drift  // between alone and among others
	Fidelity    Drift  // between what runs and float32 on the cpu provider; zero (not measured) where the cpu provider runs
	Memory      int64  // bytes by which the process's resident memory grew while it was loaded; 0: not measured, or not at all
	Warnings    []string

	// Fingerprint names everything on the model's side that an answer depends on: its files, how they are rewritten and run, the limit of
	// tokens, the prompts, runtime and processor. Equal ones compute the same.
	Fingerprint string
}

// Embedder turns texts into vectors.
type Embedder interface {
	Embed(ctx context.Context, r EmbedRequest) (*Embeddings, error)
}

// Reranker scores documents against a query.
type Reranker interface {
	Rerank(ctx context.Context, r RerankRequest) (*Scores, error)
}

// ErrClosed is returned for requests that come after Close began (the server is draining).
var ErrClosed = errors.New("the inference engine is shutting down")

// ErrNotFinite is the Err of a RowError whose output held NaN or an infinity.
var ErrNotFinite = errors.New("the model produced a value that is not finite")

// KindError is returned when a model is asked for what its kind does not do.
type KindError struct {
	Model        string
	Kind, Wanted Kind
}

func (e *KindError) Error() string {
	return fmt.Sprintf("model %s is of kind %s, not %s", e.Model, e.Kind, e.Wanted)
}

// TooLongError is returned when truncation is refused and an item has more tokens than the limit. Nothing was computed.
type TooLongError struct {
	Item   int // position in the request
	Tokens int // of the item, special tokens included
	Limit  int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("item %d has %d tokens, the limit is %d and truncation is refused", e.Item, e.Tokens, e.Limit)
}

// OverloadedError is returned when a request does not fit into the queue. Nothing of it was admitted.
type OverloadedError struct {
	Tokens     int           // of this request
	Queued     int           // tokens waiting when it came, all clients' together
	Held       int           // of them, of this request's client
	Limit      int           // what this client may have waiting, while the others have what they have
	RetryAfter time.Duration // whole seconds, after which there is a place for it if it comes again then
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("%d tokens wait, %d of them this client's, which may have %d waiting, and this request has %d", e.Queued, e.Held, e.Limit, e.Tokens)
}

// RowError names the first item of a request that failed. The results returned beside it hold the other rows.
type RowError struct {
	Item   int
	Failed int // how many items of the request failed
	Err    error
}

func (e *RowError) Error() string { return fmt.Sprintf("item %d: %v", e.Item, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

// UnknownPromptError is returned for a prompt name that the model does not define.
type UnknownPromptError struct {
	Prompt string
	Known  []string
}

func (e *UnknownPromptError) Error() string {
	return fmt.Sprintf("unknown prompt %q; this model has %q", e.Prompt, e.Known)
}

// Token is one token of a text, with its place in it.
type Token = tokenize.Token

// Tokenizer lists the tokens a model sees in a text.
type Tokenizer interface {
	// Tokens returns the text's tokens, uncut; special adds the model's own special tokens around them.
	Tokens(text string, special bool) []Token
}

// Stats is a snapshot of the scheduler's gauges.
type Stats struct {
	QueuedTokens    int
	QueuedRows      int
	MaxQueuedTokens int
	TokensPerSecond float64 // measured rate of useful tokens; 0 before the first batch
	Workers         int     // that run batches
	Busy            int     // of them, running one
}

// BatchStats describes one finished batch.
type BatchStats struct {
	Model        string
	Kind         Kind
	Lane         Lane
	Rows         int
	Tokens       int           // useful
	PaddedTokens int           // rows × padded length
	QueueWait    time.Duration // of its oldest row
	Inference    time.Duration
	Failed       int // rows that became errors
}

// Observer is told of each finished batch, from the worker's goroutine; it must not block.
type Observer interface {
	BatchDone(BatchStats)
}
