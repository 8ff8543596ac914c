package harness

import (
	"fmt"
	"slices"
	"strings"

	"ragate/benchmarks"
)

// CompareSchema names the JSON format of a comparison.
const CompareSchema = "ragate.bench.compare/1"

// Comparison holds one result against another.
type Comparison struct {
	Schema string `json:"schema"`
	First  string `json:"first"` // what the results are called
	Second string `json:"second"`
	// Differences are what was not alike beside the servers: ratios mean the less for each.
	Differences []string       `json:"differences,omitempty"`
	Cases       []ComparedCase `json:"cases"`
	// Unmatched are cases that only one of the results has.
	Unmatched []string `json:"unmatched,omitempty"`
}

// ComparedCase is a case that both results have.
type ComparedCase struct {
	Workload string  `json:"workload"`
	Clients  int     `json:"clients,omitempty"`
	Rate     float64 `json:"rate,omitempty"`
	First    Side    `json:"first"`
	Second   Side    `json:"second"`
	// Ratios are the first : the second. The runs share nothing, so the interval is that of separate samples, and does not know how the machine
	// changed between them.
	Ratios []Ratio `json:"ratios"`
}

// Compare holds the first server of one result against the first of another, case by case. An error: they have no case in common.
func Compare(firstName string, first *Result, secondName string, second *Result) (*Comparison, error) {
	c := &Comparison{Schema: CompareSchema, First: firstName, Second: secondName, Differences: differences(first, second)}
	same := func(a, b CaseResult) bool {
		return a.Workload == b.Workload && a.Clients == b.Clients && a.Rate == b.Rate
	}
	for _, a := range first.Cases {
		i := slices.IndexFunc(second.Cases, func(b CaseResult) bool { return same(a, b) })
		if i < 0 || len(a.Sides) == 0 || len(second.Cases[i].Sides) == 0 {
			c.Unmatched = append(c.Unmatched, fmt.Sprintf("%s, %s: only in %s", a.Workload, a.Load(), firstName))
			continue
		}
		x, y := a.Sides[0], second.Cases[i].Sides[0]
		c.Cases = append(c.Cases, ComparedCase{Workload: a.Workload, Clients: a.Clients, Rate: a.Rate, First: x, Second: y,
			Ratios: ratios(x.Rounds, y.Rounds, separateRatio)})
	}
	for _, b := range second.Cases {
		if !slices.ContainsFunc(first.Cases, func(a CaseResult) bool { return same(a, b) }) {
			c.Unmatched = append(c.Unmatched, fmt.Sprintf("%s, %s: only in %s", b.Workload, b.Load(), secondName))
		}
	}
	if len(c.Cases) == 0 {
		return nil, fmt.Errorf("%s and %s have no workload at the same load in common", firstName, secondName)
	}
	return c, nil
}

// differences lists what two runs ought to have in common and do not.
func differences(a, b *Result) (out []string) {
	say := func(what string, x, y any) {
		if x != y {
			out = append(out, fmt.Sprintf("%s: %v and %v", what, x, y))
		}
	}
	say("CPU", a.Machine.CPU, b.Machine.CPU)
	say("number of CPUs", a.Machine.CPUs, b.Machine.CPUs)
	say("bf16 instructions", strings.Join(a.Machine.BF16, "+"), strings.Join(b.Machine.BF16, "+"))
	say("kernel", a.Machine.Kernel, b.Machine.Kernel)
	say("seed", a.Seed, b.Seed)
	say("window in seconds", a.Settings.WindowSeconds, b.Settings.WindowSeconds)
	say("budget in ms", a.Settings.BudgetMS, b.Settings.BudgetMS)
	say("texts", a.Settings.Texts, b.Settings.Texts)
	dialect := func(r *Result) string {
		if len(r.Servers) == 0 {
			return ""
		}
		return r.Servers[0].Dialect
	}
	say("dialect", dialect(a), dialect(b))
	return out
}

// WriteFile keeps the comparison as JSON.
func (c *Comparison) WriteFile(path string) error { return benchmarks.WriteJSON(path, c) }
