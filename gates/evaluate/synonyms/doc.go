// Package synonyms rewords turns without changing what they ask, so that a gate can be asked the same thing twice.
//
// Start with [Default] and [Thesaurus.Reword]; hand the decisions on both texts to evaluate.Flips.
//
// What it promises: pure functions; the same text gives the same variants; everything between the replaced words stays byte for byte;
// a variant always differs from the text. What it is not for: expanding queries for retrieval, or judging whether two texts mean the
// same: the built-in lists are small, general, and written by hand in English and Dutch.
package synonyms
