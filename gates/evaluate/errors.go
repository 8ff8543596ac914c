package evaluate

import (
	"fmt"
	"strings"
)

// InputError says which record cannot be used. Its fields hold the facts; nothing was computed.
type InputError struct {
	// Row is the record's index, −1 where the fault is not in one record.
	Row int
	// Field is the record's or option's name, Value what it held, Want what is allowed.
	Field, Value, Want string
}

func (e *InputError) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("%s is %s: want %s", e.Field, e.Value, e.Want)
	}
	return fmt.Sprintf("record %d: %s is %s: want %s", e.Row, e.Field, e.Value, e.Want)
}

// Promise is what a calibrated threshold is to keep.
type Promise struct {
	// Metric is "false_bypass" (at most Limit) or "recall" (at least Limit).
	Metric     string  `json:"metric"`
	Limit      float64 `json:"limit"`
	Confidence float64 `json:"confidence"`
}

func (p Promise) String() string {
	rel := "at most"
	if p.Metric == MetricRecall {
		rel = "at least"
	}
	return fmt.Sprintf("%s %s %s with %s confidence", strings.ReplaceAll(p.Metric, "_", " "), rel, percent(p.Limit), percent(p.Confidence))
}

// The metrics that a promise can be about.
const (
	MetricFalseBypass = "false_bypass"
	MetricRecall      = "recall"
)

// Why calibration refused.
const (
	// TooFewSamples: the held-out part is too small for the promise even if nothing in it fails.
	TooFewSamples = "too_few_samples"
	// NoThreshold: every threshold that does something breaks the promise.
	NoThreshold = "no_threshold"
	// NothingToGain: the promise can be kept, but only by a threshold that bypasses no chitchat or drops no chunk.
	NothingToGain = "nothing_to_gain"
)

// RefusedError is returned by [CalibrateQuery] and [CalibrateChunks] where no threshold keeps the promise. It holds the curve, so
// that the caller can show what could be had instead.
type RefusedError struct {
	Promise Promise `json:"promise"`
	// Reason is TooFewSamples, NoThreshold or NothingToGain.
	Reason string `json:"reason"`
	// HeldOut is the number of independent trials in the held-out part: knowledge turns, or turns with a relevant chunk.
	HeldOut int `json:"held_out"`
	// NeededHeldOut trials would do if none fails, NeededTotal are they over the held-out share. Both 0 where data is not what lacks.
	NeededHeldOut int `json:"needed_held_out,omitempty"`
	NeededTotal   int `json:"needed_total,omitempty"`
	// NeededAtRate is the total number of trials after which the most careful useful threshold would keep the promise if it goes on
	// failing at the rate seen; 0 where that rate is too high for any number.
	NeededAtRate int `json:"needed_at_rate,omitempty"`
	// BestBound is the bound of the most careful useful threshold.
	BestBound float64 `json:"best_bound"`
	// Curve has the thresholds that were looked at, most careful first.
	Curve []CurvePoint `json:"curve"`
}

func (e *RefusedError) Error() string {
	unit := "knowledge turns"
	if e.Promise.Metric == MetricRecall {
		unit = "turns with a relevant chunk"
	}
	switch e.Reason {
	case TooFewSamples:
		return fmt.Sprintf("cannot promise %s from %d held-out %s: even with no failure among them the bound is %s. At least %d held-out, %d in all, are needed; or ask for less",
			e.Promise, e.HeldOut, unit, percent(e.BestBound), e.NeededHeldOut, e.NeededTotal)
	case NothingToGain:
		return fmt.Sprintf("no useful threshold: %s is only kept by a threshold that leaves the gate without effect on these %d held-out %s; look at the curve, and ask for less or use another method",
			e.Promise, e.HeldOut, unit)
	}
	s := fmt.Sprintf("no threshold keeps %s: on %d held-out %s the most careful useful one has a bound of %s",
		e.Promise, e.HeldOut, unit, percent(e.BestBound))
	if e.NeededAtRate > 0 {
		return s + fmt.Sprintf(". At the rate seen, about %d such turns in all would show that it does", e.NeededAtRate)
	}
	return s + ". More data of this kind will not help: it fails too often; look at the curve, and ask for less or use another method"
}

// percent writes a fraction with the fewest digits that tell rates of gates apart: 1 %, 0.2 %, 99.5 %.
func percent(v float64) string { return fmt.Sprintf("%.3g %%", 100*v) }
