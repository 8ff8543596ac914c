// Package semantic compares a message with reference queries and says whether retrieval could help it. It is the second layer of the
// query gate: package pattern knows wording, this one knows nearness in a bi-encoder's space. It sees vectors and never a model.
//
// Start with [Parse] over [Default] or a file of your own, embed [Set.Texts] as queries, make an [Index], and per message ask
// [Index.Features] and [Method.Decide]. [Fit] finds the coefficients of the combined method for another model, and [Lint] looks for
// references that hurt. It is not a general classifier: it only separates turns that retrieval cannot help from all others.
//
// What it promises:
//   - Only a score at or above the threshold bypasses. A NaN, or a message that is near nothing, retrieves.
//   - Inside a conversation a message with a content word of its own never bypasses, however near it is to a reference, and neither does a
//     bare question for a fact ("when?"). Outside of one, references that need a conversation ("shorter please") count for retrieval.
//   - A single word never bypasses: package pattern lists those that are small talk, and any other may be a subject ("pause", "AI").
//   - Features, decisions, fits and lints are pure functions: the same input gives the same output, bit for bit. Sets and indices do not
//     change once made, and any number of goroutines may use them.
//   - A bad reference file is reported whole: every fault with its line ([Errors]).
//
// # Reference files
//
//	version: "1"
//	conversational_words: {en: [again, please], nl: [nog, graag]}   words that are no content of their own
//	methods:
//	  default: combined
//	  calibrated_for: e5-small-v2                thresholds are in this model's similarities and mean nothing in another's
//	  top1: {threshold: 0.95}
//	  combined: {threshold: 0.95, top_k: 5, intercept: -17, weights: {top1: 20, contrast_mean: 100, novel_words: -1.2}}
//	categories:
//	  - id: thanks
//	    kind: non_retrieval                      or knowledge, the contrast
//	    about: gratitude
//	    needs_history: false                     true: bypasses only inside a conversation
//	    not_after_question: false                true: does not bypass when the assistant's last message asked something
//	    near_miss: false                         knowledge only: true for questions near small talk on purpose, see Fit
//	    references: {en: [thank you so much], nl: [hartelijk dank]}
//
// # Methods
//
// With s the cosines to all references, N the non-retrieval ones that the context allows and K all others:
//
//	top1              max s(N)
//	margin            max s(N) - max s(references of any other category than the one of max s(N))
//	margin_reference  the difference between the two nearest references; negative when the nearest is in K
//	contrast          max s(N) - max s(K)
//	contrast_mean     the same with the means of the top_k nearest instead of the maxima
//	novel_words       words of the message, from four letters on, numbers and acronyms, that no reference of N holds; at most 4
//	combined          1 / (1 + exp(-(intercept + Σ weight · feature))), read as the probability that retrieval cannot help
package semantic
