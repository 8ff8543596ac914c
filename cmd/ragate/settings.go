package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"ragate/settings"
)

// Settings come from the defaults, a YAML file, the environment and the flags; the later wins. The parser of the command line knows all
// but the file, and stops at the first value it cannot read. The intake stands between: as the parser's mapper of values it judges each
// text by the settings package, notes what is wrong, and lets the parser go on with the default; as its resolver it hands in the file's
// values where no variable is set (the parser itself would let them win over variables).

// envPrefix begins the name of every variable that is a setting.
const envPrefix = "RAGATE_"

// intake collects what the sources of the settings say, while the parser runs.
type intake struct {
	stage stage
	found []finding
	file  struct {
		name   string // "" while no file is read
		values map[string]settings.Value
	}
	faults []settings.Problem // of the file
}

// stage is where the values come from that the parser hands over at the moment.
type stage uint8

const (
	fromFlags stage = iota
	fromEnvironment
	fromFile
)

// finding is a value that cannot be used, of a flag that the chosen command may not have.
type finding struct {
	flag    *kong.Flag
	problem settings.Problem
}

// options make a parser work with the intake.
func (in *intake) options() []kong.Option {
	plain := kong.NewRegistry().RegisterDefaults()
	text := func(v any) kong.Mapper { return mapper{in, plain.ForType(reflect.TypeOf(v))} }
	return []kong.Option{
		kong.KindMapper(reflect.String, text("")),
		kong.KindMapper(reflect.Int, text(0)),
		kong.KindMapper(reflect.Int64, text(int64(0))),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), text(time.Duration(0))),
		kong.TypeMapper(reflect.TypeFor[[]settings.Record](), recordsMapper{in}),
		kong.KindMapper(reflect.Bool, switchMapper{text(false).(mapper)}),
		kong.WithBeforeReset(func(*kong.Context) error { in.stage = fromEnvironment; return nil }),
		kong.WithBeforeResolve(in.readFile),
	}
}

// mapper reads the text of one flag, variable or key.
type mapper struct {
	in    *intake
	plain kong.Mapper // the parser's own, for what is no setting and for its complaints about what is not there
}

type switchMapper struct{ mapper }

// IsBool implements kong.BoolMapper.
func (switchMapper) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (m mapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token, flag := ctx.Scan.Peek(), ctx.Value.Flag
	given := token.IsValue()
	if target.Kind() == reflect.Bool {
		given = token.Type == kong.FlagValueToken // a switch needs no value
	}
	if flag == nil || !given || target.Type() != flag.Target.Type() {
		return m.plain.Decode(ctx, target)
	}
	s, err := settingOf(flag)
	if err != nil {
		return err
	}
	text := token.String()
	if err := s.Check(text); err != nil {
		where := m.in.origin(flag)
		m.in.found = append(m.in.found, finding{flag, settings.Problem{Text: where + " " + err.Error()}})
		if text = flag.Default; !flag.HasDefault {
			ctx.Scan.Pop()
			target.SetZero()
			return nil
		}
	}
	if s.Kind == settings.Integer { // the parser takes other bases than ten, too
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		ctx.Scan.Pop()
		target.SetInt(n)
		return nil
	}
	ctx.Scan.Pop()
	return m.plain.Decode(ctx.WithScanner(kong.ScanAsType(kong.FlagValueToken, text)), target)
}

// recordsMapper reads records: texts of a flag, which may be given more than once, or of a variable; what the file says, as it is.
type recordsMapper struct{ in *intake }

// Decode implements kong.Mapper.
func (m recordsMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token := ctx.Scan.Pop()
	records, ok := token.Value.([]settings.Record)
	if !ok {
		if token.IsEOL() {
			return fmt.Errorf("missing value, expecting %q", "name=N,kind=K,model=M;…")
		}
		s, err := settingOf(ctx.Value.Flag)
		if err != nil {
			return err
		}
		var problems []settings.Problem
		records, problems = s.ParseRecords(m.in.origin(ctx.Value.Flag), token.String())
		for _, p := range problems {
			m.in.found = append(m.in.found, finding{ctx.Value.Flag, p})
		}
	}
	target.Set(reflect.AppendSlice(target, reflect.ValueOf(records)))
	return nil
}

// origin names the flag whose value is being read by the name under which the value was given, and by its other one.
func (in *intake) origin(flag *kong.Flag) string {
	switch dashed := "--" + flag.Name; {
	case len(flag.Envs) == 0:
		return dashed
	case in.stage == fromEnvironment:
		return fmt.Sprintf("%s (%s)", flag.Envs[0], dashed)
	default:
		return fmt.Sprintf("%s (%s)", dashed, flag.Envs[0])
	}
}

// readFile reads the settings file, when one is named, and makes the parser ask it. It is called before the parser resolves flags, once
// for every part of the command.
func (in *intake) readFile(ctx *kong.Context) error {
	in.stage = fromFile
	if in.file.name != "" || len(settingsOf(ctx)) == 0 {
		return nil
	}
	name := fileNamed(ctx)
	if name == "" {
		return nil
	}
	in.file.name = name
	data, err := os.ReadFile(name)
	if err != nil {
		in.faults = append(in.faults, settings.Problem{Text: fmt.Sprintf("--config (%sCONFIG): %v", envPrefix, err)})
		return nil
	}
	in.file.values, in.faults = settings.Decode(name, data, allSettings(ctx.Model))
	ctx.AddResolver(kong.ResolverFunc(func(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		v, ok := in.file.values[flag.Name]
		if !ok || len(flag.Envs) == 0 || isSet(flag) {
			return nil, nil
		}
		if v.Records != nil {
			return v.Records, nil
		}
		if v.List != nil {
			list := make([]any, len(v.List))
			for i, text := range v.List {
				list[i] = text
			}
			return list, nil
		}
		return v.Text, nil
	}))
	return nil
}

// problems returns what is wrong with the settings of the chosen command: of its flags and variables, and of the whole file.
func (in *intake) problems(ctx *kong.Context) []settings.Problem {
	chosen := map[*kong.Flag]bool{}
	for _, f := range ctx.Flags() {
		chosen[f] = true
	}
	var out []settings.Problem
	for _, f := range in.found {
		if chosen[f.flag] {
			out = append(out, f.problem)
		}
	}
	return append(slices.Clone(in.faults), out...)
}

// configFlag is the name of the flag that names the file. It is no setting: a file cannot name itself.
const configFlag = "config"

// fileNamed is the settings file as flag or variable name it.
func fileNamed(ctx *kong.Context) string {
	for _, f := range ctx.Flags() {
		if f.Name == configFlag {
			name, _ := ctx.FlagValue(f).(string)
			return name
		}
	}
	return ""
}

// isSetting says whether a flag is a setting: one that may also come from the environment and the file.
func isSetting(f *kong.Flag) bool { return len(f.Envs) > 0 && f.Name != configFlag }

// isSet says whether a variable gives the flag a value.
func isSet(f *kong.Flag) bool {
	return slices.ContainsFunc(f.Envs, func(name string) bool { _, ok := os.LookupEnv(name); return ok })
}

// settingsOf are the settings of the chosen command, in the order of its flags.
func settingsOf(ctx *kong.Context) []*kong.Flag {
	var out []*kong.Flag
	for _, f := range ctx.Flags() {
		if isSetting(f) {
			out = append(out, f)
		}
	}
	return out
}

// allSettings are the settings of all commands: a file may be shared by all of them.
func allSettings(app *kong.Application) []settings.Setting {
	var out []settings.Setting
	seen := map[string]bool{}
	kong.Visit(app.Node, func(v kong.Visitable, next kong.Next) error { //nolint:errcheck // the function returns no error
		if f, ok := v.(*kong.Flag); ok && isSetting(f) && !seen[f.Name] {
			seen[f.Name] = true
			if s, err := settingOf(f); err == nil { // else the parser says it
				out = append(out, s)
			}
		}
		return next(nil)
	})
	return out
}

// settingOf describes a flag. Beside the parser's own tags it has range (MIN..MAX), zero (what 0 means) and secret.
func settingOf(f *kong.Flag) (settings.Setting, error) {
	s := settings.Setting{Name: f.Name, Default: f.Default, Help: f.Help, Secret: f.Tag.Has("secret")}
	if len(f.Envs) > 0 {
		s.Env = f.Envs[0]
	}
	if f.Enum != "" {
		s.Choices = strings.Split(f.Enum, ",")
	}
	switch t := f.Target.Type(); {
	case t == reflect.TypeFor[time.Duration]():
		s.Kind = settings.Duration
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		s.Kind = settings.Integer
	case t.Kind() == reflect.Bool:
		s.Kind = settings.Switch
	case t == reflect.TypeFor[[]settings.Record]():
		s.Kind, s.Fields = settings.Records, modelFields // there is one such setting
	case t.Kind() == reflect.Slice:
		s.Kind = settings.List
	}
	var err error
	if s.Range, err = settings.ParseRange(f.Tag.Get("range"), f.Tag.Get("zero")); err != nil {
		return s, fmt.Errorf("flag %s: %w", f.Name, err)
	}
	return s, nil
}

// valueOf is a flag's value as text, or as texts for a list.
func valueOf(v reflect.Value) (text string, list []string) {
	switch x := v.Interface().(type) {
	case []string:
		return "", x
	case []settings.Record:
		return "", nil // see shown
	case time.Duration:
		return shortDuration(x), nil
	default:
		return fmt.Sprint(x), nil
	}
}

// shortDuration leaves out the zeros at the end: 1m rather than 1m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		text = cut + "m"
	}
	if cut, ok := strings.CutSuffix(text, "h0m"); ok {
		text = cut + "h"
	}
	return text
}

// isGiven says whether a setting has a value other than its default, by its name.
func (in *intake) isGiven(ctx *kong.Context, name string) bool {
	for _, f := range ctx.Flags() {
		if f.Name == name {
			return in.originOf(ctx, f) != "default"
		}
	}
	return false
}

// origin of a setting's effective value.
func (in *intake) originOf(ctx *kong.Context, f *kong.Flag) string {
	for _, p := range ctx.Path {
		if p.Flag == f && !p.Resolved {
			return "flag"
		}
	}
	if isSet(f) {
		return "environment"
	}
	if v, ok := in.file.values[f.Name]; ok {
		return fmt.Sprintf("%s:%d", in.file.name, v.Line)
	}
	return "default"
}
