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
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	cfg := defaults
	flag.StringVar(&cfg.program, "ragate", "bin/ragate", "the program under test")
	flag.StringVar(&cfg.dataDir, "data-dir", ".ragate", "the store that `make setup` fills")
	flag.StringVar(&cfg.out, "out", "", "file for the figures as JSON (default: benchmarks/latest.json in the store)")
	flag.Uint64Var(&cfg.seed, "seed", cfg.seed, "of the texts")
	flag.IntVar(&cfg.rounds, "rounds", cfg.rounds, "times that each phase is run")
	flag.IntVar(&cfg.clients, "clients", cfg.clients, "of the throughput phase")
	flag.DurationVar(&cfg.window, "window", cfg.window, "of the throughput phase, in each round")
	flag.DurationVar(&cfg.slice, "slice", cfg.slice, "setting of the server")
	flag.BoolVar(&cfg.throughputOnly, "throughput-only", false, "leave the latency phases out")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "servebench: unexpected argument %q; see servebench -h\n", flag.Arg(0))
		os.Exit(2)
	}
	if cfg.out == "" {
		cfg.out = filepath.Join(cfg.dataDir, "benchmarks", "latest.json")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "servebench:", err)
		os.Exit(1)
	}
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
	if err := r.Write(cfg.out); err != nil {
		return err
	}
	fmt.Printf("\n%s in %s\n", cfg.out, time.Since(began).Round(time.Second))
	return nil
}
