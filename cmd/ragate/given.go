package main

import (
	"errors"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"ragate/settings"
)

// given is what the sources of the settings say, beside the values themselves, which are in the command.
type given struct {
	in       *intake
	ctx      *kong.Context // nil when the command line could not be understood
	problems []settings.Problem
	warnings []settings.Problem

	sayWarnings bool // the command says the warnings itself
}

// checker is a command whose settings are checked together, too.
type checker interface{ check() []error }

// listener is a command to which it matters whether a value was given or is the default.
type listener interface {
	tell(given func(name string) bool)
}

// tolerant is a command that runs although settings cannot be used: it is there to say so.
type tolerant interface{ tolerant() }

// newGiven gathers what is wrong once the parser is through. failure is the parser's own error.
func newGiven(in *intake, ctx *kong.Context, failure error) *given {
	g := &given{in: in, ctx: ctx}
	from := ctx
	var parse *kong.ParseError
	if errors.As(failure, &parse) {
		from = parse.Context
	}
	if from == nil {
		return g
	}
	g.problems = in.problems(from)
	if ctx == nil {
		return g
	}
	if len(settingsOf(ctx)) > 0 {
		g.warnings = settings.Unknown(os.Environ(), envPrefix, variables(ctx.Model))
	}
	if node := ctx.Selected(); node != nil {
		command := node.Target.Addr().Interface()
		if c, ok := command.(listener); ok {
			c.tell(func(name string) bool { return in.isGiven(ctx, name) })
		}
		if c, ok := command.(checker); ok {
			for _, err := range c.check() {
				for _, text := range apart(err) {
					g.problems = append(g.problems, settings.Problem{Text: text})
				}
			}
		}
		switch command.(type) {
		case *serveCmd, tolerant:
			g.sayWarnings = true
		}
	}
	return g
}

// apart are the errors that were joined into one, each on one line. An indented line goes on with the one before.
func apart(err error) []string {
	if err == nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(err.Error()) {
		text := strings.TrimSpace(line)
		if len(out) > 0 && strings.HasPrefix(line, " ") {
			out[len(out)-1] += " " + text
		} else {
			out = append(out, text)
		}
	}
	return out
}

// tolerated says whether the chosen command runs in spite of problems.
func (g *given) tolerated() bool {
	if node := g.ctx.Selected(); node != nil {
		_, ok := node.Target.Addr().Interface().(tolerant)
		return ok
	}
	return false
}

// refusal is everything that is wrong, on one line.
func (g *given) refusal(failure error) string {
	var all []string
	if failure != nil {
		all = append(all, oneLine(failure))
	}
	for _, p := range g.problems {
		all = append(all, p.Error())
	}
	return strings.Join(all, "; ")
}

// variables are the names of all variables that the program reads.
func variables(app *kong.Application) []string {
	names := []string{envPrefix + "CONFIG"}
	for _, s := range allSettings(app) {
		names = append(names, s.Env)
	}
	return names
}
