package graph

import (
	"fmt"
	"slices"

	"ragate/models/onnxpb"
)

// PruneVersion names what PruneOutputs does; it changes whenever the bytes it makes do, so that cached results are not taken for new ones.
const PruneVersion = "prune-1"

// UnknownOutputError is returned when an output is asked for that the graph does not have.
type UnknownOutputError struct {
	Output string
	Have   []string
}

func (e *UnknownOutputError) Error() string {
	return fmt.Sprintf("the graph has no output %q; its outputs are %q", e.Output, e.Have)
}

// PruneReport is what PruneOutputs removed.
type PruneReport struct {
	Outputs      []string
	Nodes        int
	Initializers int
}

// PruneOutputs returns the model with only the outputs named, in the order the file has them, and without nodes, weights and shapes that
// served only the others. Inputs stay, used or not, since callers feed them by name. The errors are *UnknownOutputError and
// *onnxpb.SyntaxError; keeping no output at all is an error too.
func PruneOutputs(model []byte, keep ...string) ([]byte, PruneReport, error) {
	m, err := onnxpb.Parse(model)
	if err != nil {
		return nil, PruneReport{}, err
	}
	have := names(m.Graph.Outputs)
	for _, k := range keep {
		if !slices.Contains(have, k) {
			return nil, PruneReport{}, &UnknownOutputError{Output: k, Have: have}
		}
	}
	if len(keep) == 0 {
		return nil, PruneReport{}, fmt.Errorf("a graph needs at least one output; this one has %q", have)
	}
	var r PruneReport
	m.Graph.Outputs = slices.DeleteFunc(m.Graph.Outputs, func(v *onnxpb.ValueInfo) bool {
		gone := !slices.Contains(keep, v.Name)
		if gone {
			r.Outputs = append(r.Outputs, v.Name)
		}
		return gone
	})
	r.Nodes, r.Initializers = sweep(m.Graph)
	out, err := m.Append(nil)
	return out, r, err
}

// liveSet is what some outputs need.
type liveSet struct {
	values map[string]bool
	nodes  []bool // by position
}

func (l liveSet) count() (n int) {
	for _, ok := range l.nodes {
		if ok {
			n++
		}
	}
	return n
}

// live finds what the named outputs need.
func live(g *onnxpb.Graph, outputs []string) liveSet {
	l := liveSet{values: map[string]bool{}, nodes: make([]bool, len(g.Nodes))}
	maker := map[string]int{}
	for i, n := range g.Nodes {
		for _, o := range n.Outputs {
			maker[o] = i
		}
	}
	// A worklist instead of one pass backwards: it does not rely on the file's order being right.
	work := slices.Clone(outputs)
	for len(work) > 0 {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		if v == "" || l.values[v] {
			continue
		}
		l.values[v] = true
		if i, ok := maker[v]; ok && !l.nodes[i] {
			l.nodes[i] = true
			work = append(work, reads(g.Nodes[i])...)
		}
	}
	return l
}

// reads lists every value a node needs from its graph: its inputs and what its subgraphs mention. A subgraph's own values may be among
// them; names are unique across nested graphs, so that does no harm.
func reads(n *onnxpb.Node) []string {
	out := slices.Clone(n.Inputs)
	for _, a := range n.Attrs {
		for _, g := range a.Graphs {
			for _, inner := range g.Nodes {
				out = append(out, reads(inner)...)
			}
			out = append(out, names(g.Outputs)...)
		}
	}
	return out
}

// sweep removes nodes that no output needs, and then weights, shapes and annotations of values that are gone.
func sweep(g *onnxpb.Graph) (nodes, initializers int) {
	l := live(g, names(g.Outputs))
	nodes, initializers = len(g.Nodes), len(g.Initializers)
	exists := map[string]bool{}
	kept := make([]*onnxpb.Node, 0, l.count())
	for i, n := range g.Nodes {
		if l.nodes[i] {
			kept = append(kept, n)
			for _, o := range n.Outputs {
				exists[o] = true
			}
		}
	}
	g.Nodes = kept
	dead := map[string]bool{}
	g.Initializers = slices.DeleteFunc(g.Initializers, func(t *onnxpb.Tensor) bool {
		dead[t.Name] = !l.values[t.Name]
		exists[t.Name] = !dead[t.Name]
		return dead[t.Name]
	})
	// Before IR version 4 every initialiser is listed as an input too.
	g.Inputs = slices.DeleteFunc(g.Inputs, func(v *onnxpb.ValueInfo) bool { return dead[v.Name] })
	for _, v := range g.Inputs {
		exists[v.Name] = true
	}
	g.ValueInfos = slices.DeleteFunc(g.ValueInfos, func(v *onnxpb.ValueInfo) bool { return !exists[v.Name] })
	g.Annotations = slices.DeleteFunc(g.Annotations, func(a *onnxpb.Annotation) bool { return !exists[a.Tensor] })
	return nodes - len(g.Nodes), initializers - len(g.Initializers)
}
