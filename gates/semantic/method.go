package semantic

import (
	"fmt"
	"math"
	"strings"
)

// Names of the methods.
const (
	Top1            = "top1"
	Margin          = "margin"
	MarginReference = "margin_reference"
	Contrast        = "contrast"
	Combined        = "combined"
)

// featureNames are the features that a combination may weigh, in the order of [Combination.Weights].
var featureNames = [...]string{"top1", "margin", "margin_reference", "contrast", "contrast_mean", "novel_words"}

// FeatureNames returns the names of the features that a combination may weigh, in the order of [Combination.Weights].
func FeatureNames() []string { return featureNames[:] }

// Combination is the calibrated function of the combined method.
type Combination struct {
	TopK      int // references averaged on each side for contrast_mean
	Intercept float64
	Weights   [len(featureNames)]float64
}

// vector returns the features in the order of featureNames.
func (f *Features) vector(topK int) [len(featureNames)]float64 {
	return [...]float64{f.Top1, f.Margin, f.MarginReference, f.Contrast, f.near.mean(topK) - f.far.mean(topK), float64(f.NovelWords)}
}

// ContrastMean is the difference between the means of the k nearest references of each side.
func (f *Features) ContrastMean(k int) float64 { return f.near.mean(k) - f.far.mean(k) }

// Probability is the logistic function of the weighted features.
func (c *Combination) Probability(f *Features) float64 {
	z := c.Intercept
	for i, v := range f.vector(c.TopK) {
		if c.Weights[i] != 0 { // so that a NaN in an unused feature does not spread
			z += c.Weights[i] * v
		}
	}
	return 1 / (1 + math.Exp(-z))
}

// Method turns features into a decision. A set's file defines the methods ([Set.Method]); a policy may change their threshold.
type Method struct {
	Name        string
	Threshold   float64 // inclusive; in the method's own scale
	Combination Combination
}

// Verdict is a decision and what it was made of.
type Verdict struct {
	Bypass    bool
	Method    string
	Score     float64
	Threshold float64
	Margin    float64 // between the best non-retrieval reference and the best of any other category
	Top       Hit     // the nearest reference of either kind
	RunnerUp  Hit     // the nearest of another category
	Reason    string  // one sentence
	// Guarded: the message would retrieve at any threshold.
	Guarded bool
}

// Score returns the method's score: larger means that retrieval helps less.
func (m *Method) Score(f *Features) float64 {
	switch m.Name {
	case Top1:
		return f.Top1
	case Margin:
		return f.Margin
	case MarginReference:
		return f.MarginReference
	case Contrast:
		return f.Contrast
	case Combined:
		return m.Combination.Probability(f)
	}
	return math.Inf(-1) // a method without a name never bypasses
}

// Decide applies the threshold and the guards of the package documentation.
func (m *Method) Decide(f Features) Verdict {
	v := Verdict{Method: m.Name, Score: m.Score(&f), Threshold: m.Threshold, Margin: f.Margin, Top: f.Top, RunnerUp: f.RunnerUp}
	guard := f.guard()
	v.Guarded = guard != ""
	switch {
	case f.near.n == 0 || v.Score != v.Score:
		v.Guarded = true
		v.Reason = "the message could not be compared: its vector is not a number"
	case !(v.Score >= m.Threshold):
		v.Reason = fmt.Sprintf("%s %.3f is under the threshold %.3f; nearest is %q of %s", m.Name, v.Score, m.Threshold, f.Top.Reference, f.Top.Category)
		if f.NeedsHistory {
			v.Reason += "; " + guard
		}
	case v.Guarded:
		v.Reason = guard
	default:
		v.Bypass = true
		v.Reason = fmt.Sprintf("retrieval cannot help: %s %.3f reaches the threshold %.3f; nearest is %q of %s", m.Name, v.Score, m.Threshold, f.Top.Reference, f.Top.Category)
	}
	return v
}

// guard says why a message retrieves whatever its score, "" where its score decides.
func (f *Features) guard() string {
	switch {
	case f.NeedsHistory:
		return "it reads as a follow-up, and there is no conversation before it"
	case f.Top.Kind != NonRetrieval:
		return fmt.Sprintf("nearest is %q of %s, a question for the documents", f.Top.Reference, f.Top.Category)
	case f.History && len(f.Content) > 0:
		return "inside a conversation it brings content of its own: " + strings.Join(f.Content[:min(3, len(f.Content))], ", ")
	case f.OneWord:
		return fmt.Sprintf("a single word that no rule for small talk knows may be a subject; nearest is %q of %s", f.Top.Reference, f.Top.Category)
	}
	return ""
}
