// Package gates will hold the two decisions that ragate exists for: whether a turn needs retrieval, and which retrieved chunks deserve
// the context. It is pure: scores and a policy go in, a decision and its reason come out. It declares what it needs of models as
// interfaces and knows no HTTP, no runtime, no files and no clock.
//
// Nothing is here yet; the serving core below it is.
package gates
