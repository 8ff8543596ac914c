package quality

import (
	"fmt"
	"math"
)

// Logit is what the cross-encoder gives for one pair of query and chunk: any real number, higher is better.
type Logit float32

// Relevance is a logit's sigmoid, 0 to 1. Thresholds and floors are relevances. The types differ so that a threshold cannot
// meet a logit or a vector similarity by accident.
type Relevance float64

// Relevance returns the sigmoid 1/(1+e^-l) in float64, applied to the float32 logit as it is: the number to print, unrounded, and
// the number that is compared with a threshold, so that a printed relevance sent back as a threshold is met exactly. It never
// decreases when the logit grows (around 0, where float64 is hardly finer than float32, all 5·10⁸ logits were tried). NaN stays
// NaN.
func (l Logit) Relevance() Relevance {
	x := float64(l)
	if x >= 0 {
		return Relevance(1 / (1 + math.Exp(-x)))
	}
	e := math.Exp(x) // keeps all digits of a small relevance
	return Relevance(e / (1 + e))
}

func (l Logit) finite() bool { return !math.IsNaN(float64(l)) && !math.IsInf(float64(l), 0) }

// Space names what kind of number a threshold is compared with.
type Space string

const (
	// SpaceRelevance is the sigmoid of a cross-encoder's logit, the only space of this package's thresholds.
	SpaceRelevance Space = "relevance"
	// SpaceLogit is the cross-encoder's logit itself.
	SpaceLogit Space = "logit"
	// SpaceSimilarity is the cosine of two embeddings, what a vector store returns.
	SpaceSimilarity Space = "similarity"
)

// SpaceError says that a policy's thresholds belong to another space than the scores that they would judge.
type SpaceError struct {
	Field     string
	Got, Want Space
}

func (e *SpaceError) Error() string {
	hint := "calibrate the thresholds on " + string(e.Want)
	switch {
	case e.Got == "":
		return fmt.Sprintf("%s is missing: thresholds mean nothing without their score space; state %s: %s", e.Field, e.Field, e.Want)
	case e.Got == SpaceLogit && e.Want == SpaceRelevance:
		hint = "convert each threshold with 1/(1+e^-x)"
	case e.Got == SpaceSimilarity:
		hint = "a vector similarity says little about relevance; calibrate on " + string(e.Want)
	}
	return fmt.Sprintf("%s is %q, but the chunk gate compares thresholds with %s: %s", e.Field, e.Got, e.Want, hint)
}
