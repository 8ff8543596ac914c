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
	"time"

	"ragate/benchmarks/program"
)

func main() {
	cfg := long
	f := program.Flags{Seed: cfg.seed}
	isShort := flag.Bool("short", false, "1,500 requests, and memory is measured but not held")
	requests := flag.Int("requests", 0, "requests (default: 20,000, or 1,500 with --short)")
	minutes := flag.Int("minutes", 0, "stop sending after so many minutes, and judge what there is (default: no limit)")
	flag.IntVar(&cfg.clients, "clients", cfg.clients, "requests in flight")
	program.Main("soak", "soak.json", &f, func(ctx context.Context) error {
		if *isShort {
			cfg = cfg.shortened()
		}
		if *requests > 0 {
			cfg.requests = *requests
		}
		cfg.program, cfg.dataDir, cfg.seed, cfg.limit = f.Program, f.DataDir, f.Seed, time.Duration(*minutes)*time.Minute
		return soak(ctx, cfg, f.Out)
	})
}

func soak(ctx context.Context, cfg config, out string) error {
	r, err := run(ctx, cfg, os.Stderr)
	if err != nil {
		return err
	}
	if err := r.Print(os.Stdout); err != nil {
		return err
	}
	if err := r.Write(out); err != nil {
		return err
	}
	fmt.Println("\n" + out)
	return verdict(r)
}
