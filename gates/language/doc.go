// Package language tells the language of a short query by its function words, and whether a model is for it.
//
// Start with [Detect]; [Covers] compares its answer with what a model's card states, and [Name] puts it into a sentence.
//
// It is for noting that a score may be wrong, so it rather says nothing than something false: it looks for words that no English text
// has, and one plain English word silences it. A query of bare nouns has no function words and gets no answer. It knows the languages of
// [Known], and other writing systems.
//
// Why no library: of those for Go, the accurate one (lingua-go) puts 97 MB of tables into the program, and the small one (whatlanggo) takes
// 2 % of English queries for another language at the setting where it finds two thirds of the Dutch ones. The price is the queries of bare
// nouns, of which the former tells most: see the table in docs/gates.md.
//
// What it promises: pure functions of any bytes, no panic, and a bounded time, since only the first [MaxBytes] of a text are looked at.
// What it is not for: long texts, telling close languages apart, languages that it does not know.
package language
