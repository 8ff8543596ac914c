package semantic

import (
	"cmp"
	"fmt"
	"slices"

	"ragate/gates/textnorm"
)

// LintOptions are the settings of [Lint].
type LintOptions struct {
	// Duplicate is the cosine from which two references count as the same. 0 means DefaultDuplicate.
	Duplicate float64
	// Neighbours is how many of the nearest references of a message matter: a reference that is never among them is dead. 0 means
	// DefaultTopK, what the combined method averages.
	Neighbours int
	// Gap is how much nearer another category must be before a reference counts as misplaced. 0 means DefaultGap; negative means none.
	Gap float64
}

// DefaultGap is what the similarities of e5-small-v2 move by with a synonym. Categories of one side overlap (a compliment is often also an
// acknowledgement), which does no harm, so smaller differences would drown the findings that matter.
const DefaultGap = 0.03

// DefaultDuplicate is a cosine that e5-small-v2 gives to pairs that differ in punctuation or an article, and to no others of the embedded
// set that a reader would tell apart.
const DefaultDuplicate = 0.985

// Problem names a fault that [Lint] looks for.
type Problem string

const (
	Duplicate  Problem = "duplicate"   // the same text, or nearly, twice in one category
	Conflict   Problem = "conflict"    // the same text, or nearly, on both sides
	WrongSide  Problem = "wrong_side"  // nearer to a reference of the other kind than to any of its own kind
	OtherOwner Problem = "other_owner" // nearer to another category than to its own
	Dead       Problem = "dead"        // never among the nearest of any other reference
)

// Finding is one fault of a set, from the reference's point of view.
type Finding struct {
	Problem    Problem
	Category   string
	Reference  string
	Other      string // category of the reference it was compared with, where there is one
	OtherText  string
	Similarity float64 // to it
	Own        float64 // to the nearest of its own category (wrong_side: of its own kind), where that matters
}

func (f Finding) String() string {
	switch f.Problem {
	case Duplicate, Conflict:
		return fmt.Sprintf("%s: %q (%s) and %q (%s), cosine %.4f", f.Problem, f.Reference, f.Category, f.OtherText, f.Other, f.Similarity)
	case Dead:
		return fmt.Sprintf("%s: %q (%s) is among the nearest of no other reference", f.Problem, f.Reference, f.Category)
	}
	own := "category"
	if f.Problem == WrongSide {
		own = "kind"
	}
	return fmt.Sprintf("%s: %q (%s) is nearer to %q (%s), cosine %.4f, than to its own %s, %.4f", f.Problem, f.Reference, f.Category, f.OtherText, f.Other, f.Similarity, own, f.Own)
}

// LintReport is what [Lint] found.
type LintReport struct {
	Findings []Finding // by problem, then category, then text
	// Tested references were decided by the method as if they were messages, each without itself in the set; Missed of the non-retrieval
	// ones would retrieve and Bypassed of the knowledge ones would not. Those that need a conversation are left out.
	Tested, Missed, Bypassed int
	// Errors lists the categories with wrong decisions, worst first.
	Errors []CategoryError
}

// CategoryError counts a category's wrong leave-one-out decisions.
type CategoryError struct {
	Category      string
	Wrong, Tested int
}

// Lint compares every reference with every other. It takes memory for one row of similarities and time quadratic in the references: half
// a second for two thousand.
func Lint(x *Index, m Method, o LintOptions) LintReport {
	if o.Duplicate == 0 {
		o.Duplicate = DefaultDuplicate
	}
	if o.Neighbours == 0 {
		o.Neighbours = DefaultTopK
	}
	o.Neighbours = min(o.Neighbours, MaxTopK)
	if o.Gap == 0 {
		o.Gap = DefaultGap
	}
	gap := float32(max(o.Gap, 0))
	s := x.set
	var report LintReport
	used := make([]bool, len(s.References))
	plain := make([]string, len(s.References))
	for i, r := range s.References {
		plain[i] = textnorm.Plain(r.Text)
	}
	wrong := map[string]*CategoryError{}
	var sims []float32
	for i, r := range s.References {
		c := s.Categories[r.Category]
		sims = x.matrix.AppendDots(sims[:0], x.matrix.Row(i))
		own, other := none, none     // nearest of its category, and of any other
		same, opposite := none, none // nearest of its kind, and of the other
		for j, v := range sims {
			q := s.References[j]
			if j == i {
				continue
			}
			if q.Category == r.Category {
				if v > own.value {
					own = candidate{v, j, q.Category}
				}
			} else if v > other.value {
				other = candidate{v, j, q.Category}
			}
			d := s.Categories[q.Category]
			if d.Kind == c.Kind {
				if v > same.value {
					same = candidate{v, j, q.Category}
				}
			} else if v > opposite.value {
				opposite = candidate{v, j, q.Category}
			}
			if i < j && (plain[i] == plain[j] || float64(v) >= o.Duplicate) {
				problem := Duplicate
				switch {
				case d.Kind != c.Kind || d.NeedsHistory != c.NeedsHistory:
					problem = Conflict
				case plain[i] != plain[j] && q.Category != r.Category:
					continue // neighbours across two categories of one side do no harm
				}
				report.add(problem, c, r, d, q, float64(v), 0)
			}
		}
		misplaced := func(p Problem, rival, own candidate) {
			if own.row >= 0 && rival.row >= 0 && rival.value > own.value+gap {
				q := s.References[rival.row]
				report.add(p, c, r, s.Categories[q.Category], q, float64(rival.value), float64(own.value))
			}
		}
		misplaced(WrongSide, opposite, same)
		misplaced(OtherOwner, other, own)
		x.markNearest(sims, i, o.Neighbours, used)

		if c.NeedsHistory {
			continue
		}
		q := Query{Text: r.Text, Vector: x.matrix.Row(i)}
		f := x.features(sims, q, skip{row: i, category: -1})
		f.NovelWords = s.novel(r.Text, contentForms(r.Text), c.Kind == NonRetrieval)
		e := wrong[c.ID]
		if e == nil {
			e = &CategoryError{Category: c.ID}
			wrong[c.ID] = e
		}
		e.Tested++
		report.Tested++
		switch bypass := m.Decide(f).Bypass; {
		case c.Kind == NonRetrieval && !bypass:
			e.Wrong++
			report.Missed++
		case c.Kind == Knowledge && bypass:
			e.Wrong++
			report.Bypassed++
		}
	}
	for i, r := range s.References {
		if !used[i] {
			report.add(Dead, s.Categories[r.Category], r, Category{}, Reference{}, 0, 0)
		}
	}
	order := []Problem{Conflict, Duplicate, WrongSide, OtherOwner, Dead}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Problem), slices.Index(order, b.Problem)), cmp.Compare(a.Category, b.Category), cmp.Compare(a.Reference, b.Reference))
	})
	for _, e := range wrong {
		if e.Wrong > 0 {
			report.Errors = append(report.Errors, *e)
		}
	}
	slices.SortFunc(report.Errors, func(a, b CategoryError) int {
		return cmp.Or(cmp.Compare(b.Wrong*a.Tested, a.Wrong*b.Tested), cmp.Compare(a.Category, b.Category))
	})
	return report
}

func (l *LintReport) add(p Problem, c Category, r Reference, d Category, q Reference, sim, own float64) {
	l.Findings = append(l.Findings, Finding{Problem: p, Category: c.ID, Reference: r.Text, Other: d.ID, OtherText: q.Text, Similarity: sim, Own: own})
}

// markNearest marks the references of each kind that are among the k nearest of reference i.
func (x *Index) markNearest(sims []float32, i, k int, used []bool) {
	var near, far side
	for j, v := range sims {
		switch {
		case j == i:
		case x.set.Categories[x.set.References[j].Category].Kind == NonRetrieval:
			near.offer(v, j)
		default:
			far.offer(v, j)
		}
	}
	for _, s := range []*side{&near, &far} {
		for _, row := range s.rows[:min(k, s.n)] {
			used[row] = true
		}
	}
}
