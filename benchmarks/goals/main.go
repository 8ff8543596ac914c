// Command goals prints what the project wants to reach beside what was measured. It reads what the other benchmarks wrote, measures nothing
// itself, and fails only when a file that is named cannot be read.
//
//	goals [--server FILE] [--wire FILE] [--rerank FILE] [--embed FILE]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"ragate/benchmarks"
	"ragate/benchmarks/harness"
)

func main() {
	server := flag.String("server", "", "what servebench wrote")
	wire := flag.String("wire", "", "what the benchmarks of package server printed")
	rerank := flag.String("rerank", "", "what ragate bench --against wrote, beside a reranking text-embeddings-inference")
	embed := flag.String("embed", "", "the same beside an embedding one")
	flag.Parse()
	if err := run(*server, *wire, *rerank, *embed); err != nil {
		fmt.Fprintln(os.Stderr, "goals:", err)
		os.Exit(1)
	}
}

func run(server, wire, rerank, embed string) error {
	var m harness.Measurements
	var errs []error
	if server != "" {
		b, err := os.ReadFile(server)
		if err == nil {
			m.Server = new(benchmarks.Report)
			err = json.Unmarshal(b, m.Server)
		}
		errs = append(errs, err)
	}
	if wire != "" {
		b, err := os.ReadFile(wire)
		m.Wire = string(b)
		errs = append(errs, err)
	}
	for file, to := range map[string]**harness.Result{rerank: &m.Rerank, embed: &m.Embed} {
		if file != "" {
			r, err := harness.ReadFile(file)
			*to = r
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return harness.WriteGoals(os.Stdout, harness.Goals(m))
}
