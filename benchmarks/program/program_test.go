package program

import (
	"flag"
	"io"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	read := func(f *Flags, args ...string) error {
		set := flag.NewFlagSet("x", flag.ContinueOnError)
		set.SetOutput(io.Discard)
		rounds := f.Rounds > 0
		define(set, "x.json", f)
		if err := set.Parse(args); err != nil {
			return err
		}
		return f.settle("x.json", rounds, set.Args())
	}
	f := Flags{Seed: 7, Rounds: 5}
	if err := read(&f); err != nil || f != (Flags{"bin/ragate", ".ragate", ".ragate/benchmarks/x.json", 7, 5}) {
		t.Errorf("%+v, %v", f, err)
	}
	f = Flags{Seed: 7, Rounds: 5}
	if err := read(&f, "--ragate", "p", "--data-dir", "d", "--seed", "8", "--rounds", "2"); err != nil || f != (Flags{"p", "d", "d/benchmarks/x.json", 8, 2}) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, c := range []struct {
		f    Flags
		args string
		want string
	}{{Flags{Rounds: 1}, "more", `unexpected argument "more"`}, {Flags{Rounds: 1}, "--rounds=0", "at least 1"}, {Flags{}, "--rounds=1", "not defined"}} {
		if err := read(&c.f, c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
