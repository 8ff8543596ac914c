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
	ConfigFile string `name:"config" env:"RAGATE_CONFIG" placeholder:"FILE" help:"YAML file of settings, named like the flags. Variables win over it, flags over both."`

	Serve  serveCmd  `cmd:"" help:"Serve embeddings and reranking over HTTP."`
	Embed  embedCmd  `cmd:"" help:"Embed each line of standard input; prints one JSON array of numbers per line."`
	Rerank rerankCmd `cmd:"" help:"Score each line of standard input against a query; prints score, position and text, best first."`
	Gate   gateCmd   `cmd:"" help:"Decide: does a turn need retrieval, which chunks deserve the context."`
	Eval   evalCmd   `cmd:"" help:"Measure the gates on labelled data."`

	Calibrate calibrateCmd `cmd:"" help:"Choose thresholds that keep a promise, and write them as a policy."`

	Bench benchCmd `cmd:"" help:"Measure a running server of this or another kind, or two of them in turns, or compare two results."`

	Models  modelsCmd  `cmd:"" help:"List, fetch, check and look into models."`
	Setup   setupCmd   `cmd:"" help:"Fetch the ONNX Runtime library and the default models, checked by sha256. Does nothing when they are there."`
	Health  healthCmd  `cmd:"" help:"Ask a running server whether it answers, or accepts work; exit code 0 says yes."`
	Config  configCmd  `cmd:"" help:"Check the settings, or print the ones in effect."`
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
	c, in := cli{}, &intake{}
	parser, err := newParser(&c, in, io)
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
	given := newGiven(in, k, err)
	if err == nil && len(given.problems) > 0 && !given.tolerated() || err != nil {
		fmt.Fprintf(io.err, "ragate: %s (see ragate --help)\n", given.refusal(err))
		return exitUsage
	}
	ctx, stop := untilSignalled(io.err)
	defer stop()
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(given)
	if !given.sayWarnings {
		for _, w := range given.warnings {
			fmt.Fprintln(io.err, "ragate:", w.Error())
		}
	}
	if err := k.Run(io); err != nil {
		fmt.Fprintln(io.err, "ragate:", oneLine(err))
		var u *usageError
		if errors.As(err, &u) {
			return exitUsage
		}
		return exitFailure
	}
	return exitOK
}

// newParser makes the parser of the command line and of the environment. in is told what their values are, and adds the file's.
func newParser(c *cli, in *intake, io streams) (*kong.Kong, error) {
	return kong.New(c, append(in.options(),
		kong.Name("ragate"),
		kong.Description("Decides what a RAG system should retrieve and keep: embeddings, reranking and gates, in one process on your own machine."),
		kong.Writers(io.out, io.err),
		kong.Vars{
			"policy":   policy.DefaultName,
			"embedder": models.DefaultEmbedder, "reranker": models.DefaultReranker, "gate_embedder": models.DefaultGateEmbedder,
			"maxBodyBytes": strconv.Itoa(server.DefaultMaxBodyBytes), "maxItems": strconv.Itoa(server.DefaultMaxItems),
			"maxInflightBytes": strconv.Itoa(server.DefaultMaxInflightBytes),
			"maxDocuments":     strconv.Itoa(server.DefaultMaxDocuments), "maxHeaderBytes": strconv.Itoa(server.DefaultMaxHeaderBytes),
			"headerTimeout": shortDuration(server.DefaultHeaderTimeout), "bodyTimeout": shortDuration(server.DefaultBodyTimeout),
			"writeTimeout": shortDuration(server.DefaultWriteTimeout), "idleTimeout": shortDuration(server.DefaultIdleTimeout),
		},
		benchVars(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(n int) { panic(exit(n)) }),
	)...)
}

// oneLine is an error's text on one line, whatever its own shape.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// untilSignalled returns a context that the first SIGTERM or interrupt ends. A second one ends the program at once, whatever it does:
// native code that is being loaded or run cannot be told to stop. stop gives both back their usual meaning.
func untilSignalled(stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals, stopped := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer cancel()
		for range 2 {
			select {
			case <-signals:
				if ctx.Err() != nil {
					fmt.Fprintln(stderr, "ragate: ended by a second signal before the work in flight had finished")
					os.Exit(exitFailure)
				}
				cancel()
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
	}
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
