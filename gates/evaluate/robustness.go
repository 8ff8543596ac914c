package evaluate

import (
	"cmp"
	"slices"
)

// Pair is one decision about a turn as it was written and about the same turn reworded.
type Pair struct {
	// Kind is how it was reworded ("synonym", "framing", …).
	Kind string
	// Original and Variant are the texts. Pairs of one original are one cluster for intervals: for the chunk gate, give one pair per
	// chunk with the query's texts, and the chunk's id as Item.
	Original, Variant string
	Item              string
	// Label groups pairs by what is at stake: "knowledge", "chitchat", "relevant", a query type.
	Label string
	// Before and After are the decisions: "retrieve" and "bypass", or "kept" and "dropped".
	Before, After string
}

// Flip counts the pairs of one kind and label whose decision went one way.
type Flip struct {
	Kind  string `json:"kind"`
	Label string `json:"label"`
	From  string `json:"from"`
	To    string `json:"to"`
	// Share is of the pairs of this kind and label that were decided From before.
	Share Proportion `json:"share"`
}

// FlipExample is a pair whose decision changed.
type FlipExample struct {
	Kind     string `json:"kind"`
	Label    string `json:"label,omitempty"`
	Original string `json:"original"`
	Variant  string `json:"variant"`
	Item     string `json:"item,omitempty"`
	From     string `json:"from"`
	To       string `json:"to"`
}

// FlipResult is what [Flips] found.
type FlipResult struct {
	Confidence float64 `json:"confidence"`
	// Pairs is how many were compared, Flipped the share of them whose decision changed.
	Pairs   int        `json:"pairs"`
	Flipped Proportion `json:"flipped"`
	// ByKind is the flipped share per way of rewording, in the order of the names.
	ByKind []FlipKind `json:"by_kind"`
	// Flips has every direction for every kind and label, ordered by kind, label, from and to; directions that never happened
	// are there with a count of 0 where the pairs had the decision it starts from and another one exists.
	Flips    []Flip        `json:"flips"`
	Examples []FlipExample `json:"examples,omitempty"`
}

// FlipKind is the flipped share of one way of rewording.
type FlipKind struct {
	Kind    string     `json:"kind"`
	Flipped Proportion `json:"flipped"`
}

// Flips counts the decisions that a rewording changed. Examples lists up to limit of them, spread over kinds, labels and directions.
// Intervals allow for the pairs of one original being alike. It returns an [*InputError] for no pairs and for a pair without a decision.
func Flips(pairs []Pair, confidence float64, limit int) (*FlipResult, error) {
	if confidence == 0 {
		confidence = DefaultConfidence
	}
	if err := checkConfidence(confidence); err != nil {
		return nil, err
	}
	if len(pairs) == 0 {
		return nil, &InputError{Row: -1, Field: "pairs", Value: "none", Want: "at least one reworded turn"}
	}
	type group struct{ kind, label, from string }
	decisions := map[string]bool{}
	members := map[group][]int{}
	kinds := map[string][]int{}
	all := make([]int, len(pairs))
	for i, p := range pairs {
		if p.Before == "" || p.After == "" {
			return nil, &InputError{Row: i, Field: "decision", Value: `""`, Want: "a decision before and after"}
		}
		all[i] = i
		decisions[p.Before], decisions[p.After] = true, true
		g := group{p.Kind, p.Label, p.Before}
		members[g] = append(members[g], i)
		kinds[p.Kind] = append(kinds[p.Kind], i)
	}
	// share is the clustered proportion of the pairs at the indexes for which hit is true.
	share := func(indexes []int, hit func(Pair) bool) Proportion {
		counts := map[string]*cluster{}
		var order []*cluster
		for _, i := range indexes {
			c := counts[pairs[i].Original]
			if c == nil {
				c = &cluster{}
				counts[pairs[i].Original] = c
				order = append(order, c)
			}
			c.of++
			if hit(pairs[i]) {
				c.count++
			}
		}
		parts := make([]cluster, len(order))
		for i, c := range order {
			parts[i] = *c
		}
		return clustered(parts, confidence)
	}
	flipped := func(p Pair) bool { return p.Before != p.After }
	r := &FlipResult{Confidence: confidence, Pairs: len(pairs), Flipped: share(all, flipped)}
	for kind, indexes := range kinds {
		r.ByKind = append(r.ByKind, FlipKind{Kind: kind, Flipped: share(indexes, flipped)})
	}
	slices.SortFunc(r.ByKind, func(a, b FlipKind) int { return cmp.Compare(a.Kind, b.Kind) })
	for g, indexes := range members {
		for to := range decisions {
			if to != g.from {
				r.Flips = append(r.Flips, Flip{Kind: g.kind, Label: g.label, From: g.from, To: to,
					Share: share(indexes, func(p Pair) bool { return p.After == to })})
			}
		}
	}
	slices.SortFunc(r.Flips, func(a, b Flip) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Label, b.Label), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	r.Examples = flipExamples(pairs, limit)
	return r, nil
}

// flipExamples takes flips in turn from each kind, label and direction, so that a common one does not crowd out a rare one.
func flipExamples(pairs []Pair, limit int) []FlipExample {
	type group struct{ kind, label, from, to string }
	var order []group
	queue := map[group][]FlipExample{}
	for _, p := range pairs {
		if p.Before == p.After {
			continue
		}
		g := group{p.Kind, p.Label, p.Before, p.After}
		if queue[g] == nil {
			order = append(order, g)
		}
		queue[g] = append(queue[g], FlipExample{Kind: p.Kind, Label: p.Label, Original: p.Original, Variant: p.Variant, Item: p.Item, From: p.Before, To: p.After})
	}
	var out []FlipExample
	for round := 0; len(out) < limit; round++ {
		before := len(out)
		for _, g := range order {
			if round < len(queue[g]) && len(out) < limit {
				out = append(out, queue[g][round])
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}
