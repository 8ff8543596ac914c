// Package textnorm brings messages that look alike to the same text, so that a rule written for "hi" also meets "ＨＩ!!",
// "h\u200bi" and "Hi 👋".
//
// Start with [Normalize] for comparing, [Bare] for matching a whole message against a phrase, [Words] for counting words.
// [HasDigit], [HasAcronym], [HasQuestionMark] and [HasUnspacedScript] ask about the message as it was typed: hand them the
// original text, since casing is gone after Normalize.
//
// The forms build on each other, and each accepts the result of an earlier one and gives the same as for the original:
//
//	Clean      NFKC; format characters, controls and keycap marks out; whitespace collapsed and trimmed
//	Normalize  Clean, then full case folding
//	Bare       Normalize, then emoji and punctuation off both ends
//	Plain      Normalize, then emoji and punctuation out everywhere; what is left are words with single spaces between
//
// What it promises: pure functions of any bytes (invalid UTF-8 becomes U+FFFD), no panic, time and memory linear in the text.
// What it is not for: tokenising for a model (package tokenize), stemming, spelling, transliteration.
package textnorm
