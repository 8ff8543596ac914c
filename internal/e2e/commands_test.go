package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script/*.txtar. Beside the commands of testscript they have
//
//	fails CODE ARGS...   runs ragate, which must exit with CODE, print nothing on standard output, and on standard error one line
//
// and see $STORE, the data folder that setup filled, $BIN, the folder that holds ragate alone, and $BROKEN, one whose python3 fails.
func TestScripts(t *testing.T) {
	data, bin := store(t), filepath.Dir(program(t))
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("BIN", bin)
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("STORE", data)
			e.Setenv("RAGATE_DATA_DIR", data)
			broken := filepath.Join(e.WorkDir, "broken")
			e.Setenv("BROKEN", broken)
			if err := os.Mkdir(broken, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(broken, "python3"), []byte("#!/bin/sh\necho python3 was asked >&2\nexit 7\n"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"fails": fails},
	})
}

func fails(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: fails CODE ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec("ragate", args[1:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("ragate %q: %v", args[1:], err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("standard output: %s", out)
	}
	// `serve` has said that it listens when a library or model turns out to be missing.
	lines := splitLines(ts.ReadFile("stderr"))
	if len(lines) > 0 && strings.HasPrefix(lines[0], "{") && strings.Contains(lines[0], `"msg":"listening; the models are being loaded"`) {
		lines = lines[1:]
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "ragate: ") {
		ts.Fatalf("standard error is not one line of ragate's: %q", lines)
	}
}

// oneLine fails the test unless text is one line of the program's that holds every part.
func oneLine(t *testing.T, text string, parts ...string) {
	t.Helper()
	text = strings.TrimSuffix(text, "\n")
	if !strings.HasPrefix(text, "ragate: ") || strings.Contains(text, "\n") {
		t.Errorf("not one line of ragate's: %q", text)
	}
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the line lacks %q: %q", p, text)
		}
	}
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func lastLine(text string) string {
	lines := splitLines(text)
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}
