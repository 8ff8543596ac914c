// Package tokenize turns text into the token ids that a BERT-family model was trained on.
//
// Start with [Parse], which reads the bytes of a tokenizer.json. For one text at a time use [Tokenizer.Encode] and
// [Tokenizer.EncodePair]. Servers that pair one query with many documents tokenise each text once with
// [Tokenizer.AppendIDs] or [Tokenizer.AppendIDsLimit] and then build every row from ids with [Tokenizer.Single] and
// [Tokenizer.Pair].
//
// What it promises: the ids are those of Hugging Face tokenizers for the same file, for every input, or Parse refuses the
// file and says which part it cannot do. A Tokenizer never changes after Parse and may be used by any number of goroutines.
// No text makes it fail or panic; time and memory grow linearly with the text, and with the tokens kept where only the
// first ones are asked for.
//
// Other families than WordPiece (BPE, Unigram, WordLevel) are refused.
//
// What it is not for: finding or fetching tokenizer files (it knows no files), forming batches, padding. The padding and
// truncation sections that some tokenizer.json files carry are ignored on purpose: limits belong to the caller.
package tokenize
