// Command metricnames holds PromQL against what a server exposes: dashboards (JSON), rules and adapter values (YAML) and documentation
// (Markdown, ```promql blocks). A metric that the server does not have, or a label that the metric does not have, is an error: such a
// panel would stay empty and such an alert silent.
//
//	metricnames -metrics FILE FILES...
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// fromScrape are the labels that Prometheus or Kubernetes' service discovery adds to every series.
var fromScrape = []string{"job", "instance", "namespace", "pod"}

// fromPrometheus are series that the scrape itself makes.
var fromPrometheus = map[string][]string{"up": nil}

func main() {
	metrics := flag.String("metrics", "", "what a server's /metrics answered")
	flag.Parse()
	if err := run(*metrics, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "metricnames:", err)
		os.Exit(1)
	}
}

func run(metrics string, paths []string) error {
	known, err := exposed(metrics)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("no files to check")
	}
	var errs []error
	for _, path := range paths {
		list, err := expressions(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(list) == 0 {
			errs = append(errs, fmt.Errorf("%s: no PromQL found", path))
		}
		used := map[string]bool{}
		for _, text := range list {
			for _, err := range check(text, known, used) {
				errs = append(errs, fmt.Errorf("%s: %w in\n\t%s", path, err, text))
			}
		}
		fmt.Printf("%s: %d expressions, %d metrics\n", path, len(list), len(used))
	}
	return errors.Join(errs...)
}

// exposed reads an exposition: series name → its labels. A histogram has the names of its parts.
func exposed(path string) (map[string][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(families) < 10 {
		return nil, fmt.Errorf("%s: only %d metrics: no server's answer", path, len(families))
	}
	out := map[string][]string{}
	for name, labels := range fromPrometheus {
		out[name] = labels
	}
	for name, family := range families {
		var labels []string
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if !slices.Contains(labels, l.GetName()) {
					labels = append(labels, l.GetName())
				}
			}
		}
		switch family.GetType() {
		case dto.MetricType_HISTOGRAM:
			out[name+"_bucket"] = append(slices.Clone(labels), "le")
			out[name+"_sum"], out[name+"_count"] = labels, labels
		case dto.MetricType_SUMMARY:
			out[name] = append(slices.Clone(labels), "quantile")
			out[name+"_sum"], out[name+"_count"] = labels, labels
		default:
			out[name] = labels
		}
	}
	return out, nil
}

// expressions finds the PromQL of a file.
func expressions(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc any
	switch filepath.Ext(path) {
	case ".json":
		err = json.Unmarshal(raw, &doc)
	case ".yaml", ".yml":
		err = yaml.Unmarshal(raw, &doc)
	case ".md":
		var out []string
		for _, m := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
			out = append(out, strings.TrimSpace(m[1]))
		}
		return out, nil
	default:
		return nil, errors.New("not a .json, .yaml or .md file")
	}
	if err != nil {
		return nil, err
	}
	var out []string
	walk(doc, func(key, value string) {
		switch key {
		case "expr", "seriesQuery":
			out = append(out, value)
		case "query": // of a dashboard's variable
			if m := regexp.MustCompile(`^label_values\((.*),\s*\w+\)$`).FindStringSubmatch(value); m != nil {
				out = append(out, m[1])
			}
		}
	})
	return out, nil
}

func walk(v any, see func(key, value string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range v {
				if !yield(k) {
					return
				}
			}
		}) {
			if s, ok := v[k].(string); ok {
				see(k, s)
			}
			walk(v[k], see)
		}
	case []any:
		for _, e := range v {
			walk(e, see)
		}
	}
}

// check parses one expression and returns what in it is unknown.
func check(text string, known map[string][]string, used map[string]bool) (errs []error) {
	// Grafana's own variable stands where PromQL wants a duration.
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(text, "$__rate_interval", "5m"))
	if err != nil {
		return []error{err}
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			labels, ok := known[n.Name]
			if !ok {
				errs = append(errs, fmt.Errorf("the server has no metric %q", n.Name))
				return nil
			}
			used[n.Name] = true
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(labels, m.Name) && !slices.Contains(fromScrape, m.Name) {
					errs = append(errs, fmt.Errorf("%s has no label %q, it has %q", n.Name, m.Name, labels))
				}
			}
		case *parser.AggregateExpr:
			have := slices.Clone(fromScrape)
			parser.Inspect(n.Expr, func(in parser.Node, _ []parser.Node) error {
				if s, ok := in.(*parser.VectorSelector); ok {
					have = append(have, known[s.Name]...)
				}
				return nil
			})
			for _, label := range n.Grouping {
				if !slices.Contains(have, label) {
					errs = append(errs, fmt.Errorf("nothing under the aggregation has the label %q", label))
				}
			}
		}
		return nil
	})
	return errs
}
