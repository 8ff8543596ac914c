// Package tokenize turns text into the token ids that a model of the BERT or XLM-RoBERTa family was trained on.
//
// Start with [Parse], which reads the bytes of a tokenizer.json, or [ParseSentencePiece] where a model has none. For one text at a time
// use [Tokenizer.Encode] and [Tokenizer.EncodePair]. Servers that pair one query with many documents tokenise each text once with
// [Tokenizer.AppendIDs] or [Tokenizer.AppendIDsLimit] and then build every row from ids with [Tokenizer.Single] and
// [Tokenizer.Pair].
//
// What it promises: the ids are those of Hugging Face tokenizers for the same file, for every input, or Parse refuses the
// file and says which part it cannot do. A Tokenizer never changes after Parse and may be used by any number of goroutines.
// No text makes it fail or panic; time and memory grow linearly with the text, and with the tokens kept where only the
// first ones are asked for.
//
// Other families than WordPiece and Unigram (BPE, WordLevel) are refused. With a Unigram tokenizer the first tokens of a text can
// depend on its end, where a word does not end before; then that much is read even if only the first tokens are asked for.
//
// The files are named after what they are for: wordpiece*.go and parsewordpiece.go for the one family, unigram*.go, sentencepiece.go and
// parseunigram.go for the other; what both share (added tokens, templates, properties of characters) has neither in its name. Each family has
// two ways with the same ids: a fast one over the text in one pass (wordpiecerun.go, unigramrun.go), and the reference's steps one by one, which keep places.
//
// What it is not for: finding or fetching tokenizer files (it knows no files), forming batches, padding. The padding and
// truncation sections that some tokenizer.json files carry are ignored on purpose, but for the padding token: limits belong to the caller.
package tokenize
