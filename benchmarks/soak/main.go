// Command soak drives a ragate server with thousands of mixed requests and holds what must stay true under load: no answer differs from the one
// that the same request got alone, what fails by design fails as it did alone, and afterwards nothing is left behind: no queued row, no
// request in flight, no goroutine, no open file. The long form also holds that resident memory is flat after a warm-up.
//
// The mix: every dialect and both gates, texts of 1 to 512 tokens, 1 to 64 of them in a request, a fifth of the requests bad in one of many
// ways, clients that leave while they send, wait or read, budgets too short to keep, and reloads of the gate's references.
//
//	soak --ragate bin/ragate --data-dir .ragate [--short] [--requests N] [--out FILE]
//
// It prints a table, writes the figures as JSON, and exits with 1 when a claim does not hold. Speed is no claim.
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
	cfg := long
	var dataDir, out string
	isShort := flag.Bool("short", false, "1,500 requests, and memory is measured but not held")
	requests := flag.Int("requests", 0, "requests (default: 20,000, or 1,500 with --short)")
	flag.StringVar(&cfg.program, "ragate", "bin/ragate", "the program under test")
	flag.StringVar(&dataDir, "data-dir", ".ragate", "the store that `make setup` fills")
	flag.StringVar(&out, "out", "", "file for the figures as JSON (default: benchmarks/soak.json in the store)")
	flag.Uint64Var(&cfg.seed, "seed", cfg.seed, "of texts and order")
	minutes := flag.Int("minutes", 0, "stop sending after so many minutes, and judge what there is (default: no limit)")
	flag.IntVar(&cfg.clients, "clients", cfg.clients, "requests in flight")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "soak: unexpected argument %q; see soak -h\n", flag.Arg(0))
		os.Exit(2)
	}
	if *isShort {
		cfg = cfg.shortened()
	}
	if *requests > 0 {
		cfg.requests = *requests
	}
	cfg.dataDir, cfg.limit = dataDir, time.Duration(*minutes)*time.Minute
	if out == "" {
		out = filepath.Join(dataDir, "benchmarks", "soak.json")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, cfg, out); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func soak(ctx context.Context, cfg config, out string) error {
	r, err := run(ctx, cfg, os.Stderr)
	if err != nil {
		return err
	}
	if err := r.Print(os.Stdout); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := r.Write(out); err != nil {
		return err
	}
	fmt.Println("\n" + out)
	return verdict(r)
}
