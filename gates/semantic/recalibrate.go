package semantic

import (
	"fmt"
	"maps"
	"slices"
)

// simpleShare is the share of knowledge references, each compared with the set without its category, that a recalibrated simple method
// lets through: what the embedded file's thresholds let through too. With references of its domain to be near to, far less of a question
// passes.
const simpleShare = 0.005

// carefulThreshold is the combined method's threshold for an embedder that nobody measured. It lets 0.8 % of the knowledge references
// through with multilingual-e5-small and 0.9 % with e5-small-v2; the measured ones are bolder.
const carefulThreshold = 0.95

// Recalibrate returns the index with methods that fit its vectors, found from the references alone: the combination is that of [Fit] with
// a careful threshold, and each simple method has the lowest threshold
// that lets at most one in two hundred knowledge references through. It is for an embedder that the file has no calibration for, named
// for the messages.
func (x *Index) Recalibrate(embedder string) (*Index, error) {
	methods := maps.Clone(x.set.methods)
	if m, ok := methods[Combined]; ok {
		c, _, err := Fit(x, FitOptions{})
		if err != nil {
			return nil, fmt.Errorf("fit the references' methods to %s: %w", embedder, err)
		}
		m.Combination, m.Threshold = c, carefulThreshold
		methods[Combined] = m
	}
	scores := map[string][]float64{}
	for i := range x.set.References {
		f, kind, ok := x.leaveOut(i)
		if !ok || kind != Knowledge {
			continue
		}
		for name, m := range methods {
			scores[name] = append(scores[name], m.Score(&f))
		}
	}
	for name, m := range methods {
		if name != Combined && len(scores[name]) > 0 {
			slices.Sort(scores[name])
			last := len(scores[name]) - 1
			// Inclusive thresholds: just above the first score that must not pass.
			m.Threshold = scores[name][last-int(simpleShare*float64(last+1))] + 1e-6
			methods[name] = m
		}
	}
	set := *x.set
	set.use(calibration{embedder: embedder, methods: methods})
	return &Index{set: &set, matrix: x.matrix, blocks: x.blocks}, nil
}
