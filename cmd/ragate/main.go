// Command ragate serves a bi-encoder and a cross-encoder over HTTP, and runs them from the command line.
//
// This is the only package that reads flags, the environment and signals: it turns them into the configuration of the packages below
// and builds those in order. Each subcommand has a file; config.go holds the settings they share.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"ragate/gates/policy"
	"ragate/models"
	"ragate/server"
)

// version is set by the linker to the tag or commit that was built.
var version = "dev"

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command could not do its work
	exitUsage   = 2 // flags, environment or arguments are wrong; nothing was begun
)

type cli struct {
	Serve  serveCmd  `cmd:"" help:"Serve embeddings and reranking over HTTP."`
	Embed  embedCmd  `cmd:"" help:"Embed each line of standard input; prints one JSON array of numbers per line."`
	Rerank rerankCmd `cmd:"" help:"Score each line of standard input against a query; prints score, position and text, best first."`
	Gate   gateCmd   `cmd:"" help:"Decide: does a turn need retrieval, which chunks deserve the context."`
	Eval   evalCmd   `cmd:"" help:"Measure the gates on labelled data."`

	Calibrate calibrateCmd `cmd:"" help:"Choose thresholds that keep a promise, and write them as a policy."`

	Models  modelsCmd  `cmd:"" help:"List, fetch, check and look into models."`
	Setup   setupCmd   `cmd:"" help:"Fetch the ONNX Runtime library and the default models, checked by sha256. Does nothing when they are there."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// streams are what a command reads and writes; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ignoreEmptyVariables()
	os.Exit(run(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// ignoreEmptyVariables makes a variable that is set to nothing one that is not set: compose files pass on what their author left open.
func ignoreEmptyVariables() {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value == "" && strings.HasPrefix(name, "RAGATE_") {
			os.Unsetenv(name) //nolint:errcheck // it was just listed
		}
	}
}

func run(args []string, io streams) (code int) {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("ragate"),
		kong.Description("Decides what a RAG system should retrieve and keep: embeddings, reranking and gates, in one process on your own machine."),
		kong.Writers(io.out, io.err),
		kong.Vars{
			"policy":   policy.DefaultName,
			"embedder": models.DefaultEmbedder, "reranker": models.DefaultReranker,
			"maxBodyBytes": strconv.Itoa(server.DefaultMaxBodyBytes), "maxItems": strconv.Itoa(server.DefaultMaxItems),
			"maxDocuments": strconv.Itoa(server.DefaultMaxDocuments),
		},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(n int) { panic(exit(n)) }),
	)
	if err != nil {
		fmt.Fprintln(io.err, "ragate:", err)
		return exitUsage
	}
	defer func() { // --help ends the program from inside the parser
		switch e := recover().(type) {
		case nil:
		case exit:
			code = int(e)
		default:
			panic(e)
		}
	}()
	k, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(io.err, "ragate: %s (see ragate --help)\n", withVariable(err))
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal is not caught, unless the command does: it ends the program at once
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(io); err != nil {
		// One line, whatever the error's own shape.
		fmt.Fprintln(io.err, "ragate:", strings.ReplaceAll(err.Error(), "\n", "; "))
		var u *usageError
		if errors.As(err, &u) {
			return exitUsage
		}
		return exitFailure
	}
	return exitOK
}

// withVariable names the environment variable of the flag that a parse error begins with: the bad value may have come from there.
func withVariable(err error) string {
	msg := err.Error()
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return msg
	}
	for _, f := range parse.Context.Flags() {
		rest, ok := strings.CutPrefix(msg, "--"+f.Name)
		if ok && len(f.Envs) > 0 && (rest == "" || rest[0] == ' ' || rest[0] == ':') {
			return fmt.Sprintf("--%s (%s)%s", f.Name, f.Envs[0], rest)
		}
	}
	return msg
}

type exit int

// usageError is a setting or argument that cannot be used.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

type versionCmd struct{}

func (versionCmd) Run(io streams) error {
	_, err := fmt.Fprintln(io.out, "ragate", version)
	return err
}
