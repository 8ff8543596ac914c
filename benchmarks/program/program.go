// Package program is what the benchmark programs share: their common flags, signals, and how they end. Each is a main function that
// defines flags of its own, if any, and calls [Main].
package program

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Flags are those of every benchmark. Their values before Main are the defaults.
type Flags struct {
	Program string // ragate, under test
	DataDir string // the store that `make setup` fills
	Out     string // file for the figures as JSON
	Seed    uint64 // of texts and arrivals
	Rounds  int    // times that each phase is run; 0: the benchmark has no rounds
}

// Main reads the command line, runs the benchmark until it ends or is interrupted, and ends the process: with 0, with 1 and the
// error, or with 2 when the flags are wrong. file is the name of the figures' file in the store's folder of benchmarks.
func Main(name, file string, f *Flags, run func(context.Context) error) {
	rounds := f.Rounds > 0
	define(flag.CommandLine, file, f)
	flag.Parse()
	if err := f.settle(file, rounds, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v; see %s -h\n", name, err, name)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func define(set *flag.FlagSet, file string, f *Flags) {
	set.StringVar(&f.Program, "ragate", "bin/ragate", "the program under test")
	set.StringVar(&f.DataDir, "data-dir", ".ragate", "the store that make setup fills")
	set.StringVar(&f.Out, "out", "", "file for the figures as JSON (default: benchmarks/"+file+" in the store)")
	set.Uint64Var(&f.Seed, "seed", f.Seed, "of texts and arrivals")
	if f.Rounds > 0 {
		set.IntVar(&f.Rounds, "rounds", f.Rounds, "times that each phase is run")
	}
}

// settle fills in what follows from the flags, and refuses what cannot be used.
func (f *Flags) settle(file string, rounds bool, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if rounds && f.Rounds < 1 {
		return fmt.Errorf("--rounds is %d: it must be at least 1", f.Rounds)
	}
	if f.Out == "" {
		f.Out = filepath.Join(f.DataDir, "benchmarks", file)
	}
	return nil
}
