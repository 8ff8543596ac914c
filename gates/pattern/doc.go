// Package pattern recognises small talk by its wording: greetings, thanks, confirmations, farewells, one-word replies and questions
// about the assistant itself. It is the first layer of the query gate and needs no model.
//
// Start with [New] over [Default] or over rule files of your own, and ask [Matcher.Match] per message. It is not for deciding what a
// message means beyond that: a message that it does not know goes on to the semantic layer.
//
// What it promises:
//   - Only a whole message matches. Every word must belong to a phrase of the rules or to a filler between phrases, so a greeting in front
//     of a question, or a word that contains a greeting, never bypasses.
//   - Spelling does not matter where a reader would not see it: see package textnorm; accents and apostrophes are optional as well, an
//     umlaut may be "ae", "oe" or "ue", and an apostrophe a space. In patterns, which see messages without accents, that is for the rule's
//     author to allow for ("fue?r").
//   - The rules of all files apply to every message, since people mix languages. A word of one language that is a subject in another
//     ("bon", "toll", "note") stands in phrases of several words only. Three and more consonants in capitals
//     are an acronym (MDR), whatever a rule says of the word.
//   - The same message in the same context has the same answer. A Matcher does not change after New, and any number of goroutines may use it.
//   - A bad rule is an error that names file, line, rule and reason; all of them are reported at once ([Errors]). The examples and
//     counter-examples of every rule are checked by New, so a rule set that breaks its own promises does not load.
//
// # Rule files
//
// One YAML file per language:
//
//	language: nl
//	fillers: [daar, hoor]             words allowed between phrases and around them
//	conversational: [hallo, mooi]     words that the length rule does not take for a subject
//	glossary: [btw, cao]              short words that are subjects
//	rules:
//	  - id: nl.thanks                 language, point, name
//	    about: gratitude
//	    phrases: [bedankt, dank je]   matched word by word; several may follow each other
//	    patterns: ['be+dankt']        RE2 over the lower-cased text without punctuation; one word, or all the rest of the message
//	    needs_history: false          true: bypasses only inside a conversation, and outside of one sends the message to retrieval
//	    not_after_question: false     true: does not bypass when the assistant's last message asked something, since "yes" then means "do it"
//	    examples: ["bedankt!"]
//	    counter_examples: ["bedankt, en mijn verlof?"]
//
// # Length rule
//
// A message under [ShortMessage] characters bypasses unless it holds a question mark, a number, an acronym (in capitals, or of consonants
// alone), a character of a script that writes no spaces, a glossary word, a word of another alphabet, or any word of four letters and more
// that is not conversational. Inside a conversation every word must be conversational, because "tax" or "by team" leans on what was said before. [LengthStrict] is the bare rule.
package pattern
