// Command servebench measures a ragate server against the raw session: the same model on the same plan, in one run on one machine,
// the two taking turns. It prints a table and writes the figures as JSON. It fails when something could not be measured or the server's
// answers are wrong, and never because of a figure: those depend on the machine.
//
//	servebench --ragate bin/ragate --data-dir .ragate [--out FILE] [--rounds N]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"ragate/benchmarks/program"
)

func main() {
	cfg := defaults
	flag.IntVar(&cfg.clients, "clients", cfg.clients, "of the throughput phase")
	flag.DurationVar(&cfg.window, "window", cfg.window, "of the throughput phase, in each round")
	flag.DurationVar(&cfg.slice, "slice", cfg.slice, "setting of the server")
	flag.BoolVar(&cfg.throughputOnly, "throughput-only", false, "leave the latency phases out")
	program.Main("servebench", "latest.json", &cfg.Flags, func(ctx context.Context) error { return bench(ctx, cfg) })
}

func bench(ctx context.Context, cfg config) error {
	began := time.Now()
	r, err := run(ctx, cfg, os.Stderr)
	if err != nil {
		return err
	}
	if err := r.Print(os.Stdout); err != nil {
		return err
	}
	if err := r.Write(cfg.Out); err != nil {
		return err
	}
	fmt.Printf("\n%s in %s\n", cfg.Out, time.Since(began).Round(time.Second))
	return nil
}
