package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"ragate/settings"
)

// parsed is what the sources of the settings came to.
type parsed struct {
	serve *serveCmd
	given *given
	err   error
}

// parse reads settings of serve. env holds NAME=VALUE; nothing of the tester's own settings is seen. file is the text of the settings file,
// "" for none.
func parse(t *testing.T, file string, env []string, args ...string) parsed {
	t.Helper()
	clearVariables(t)
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	ignoreEmptyVariables()
	if file != "" {
		path := filepath.Join(t.TempDir(), "r.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("RAGATE_CONFIG", path)
	}
	c, in := &cli{}, &intake{}
	p, err := newParser(c, in, streams{nil, &bytes.Buffer{}, &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := p.Parse(append([]string{"serve"}, args...))
	return parsed{&c.Serve, newGiven(in, k, err), err}
}

// clearVariables hides the tester's own settings until the test ends.
func clearVariables(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, envPrefix) {
			t.Setenv(name, "") // so that it is put back
			os.Unsetenv(name)
		}
	}
}

// sources are three different values of one setting, one for each source, and how the value is read back.
type sources struct {
	name, file, env, flag string
	get                   func(*serveCmd) any
	byDefault             any
	want                  [3]any // file, env, flag
}

// TestPrecedence: default, file, variable, flag; the later wins, for every kind of setting and every combination of sources.
func TestPrecedence(t *testing.T) {
	for _, s := range []sources{
		{"listen", "a:1", "b:2", "c:3", func(c *serveCmd) any { return c.Listen }, "127.0.0.1:8080", [3]any{"a:1", "b:2", "c:3"}},
		{"references", "a", "b", "c", func(c *serveCmd) any { return c.References }, "", [3]any{"a", "b", "c"}},
		{"precision", "fp32", "bf16", "int8", func(c *serveCmd) any { return c.Precision }, "auto", [3]any{"fp32", "bf16", "int8"}},
		{"max-items", "1", "2", "3", func(c *serveCmd) any { return fmt.Sprint(c.MaxItems) }, "2048", [3]any{"1", "2", "3"}},
		{"max-tokens", "1", "2", "3", func(c *serveCmd) any { return fmt.Sprint(c.MaxTokens) }, "0", [3]any{"1", "2", "3"}},
		{"max-body-bytes", "1", "2", "3", func(c *serveCmd) any { return fmt.Sprint(c.MaxBodyBytes) }, "8388608", [3]any{"1", "2", "3"}},
		{"slice", "1s", "2s", "3s", func(c *serveCmd) any { return c.Slice.String() }, "20ms", [3]any{"1s", "2s", "3s"}},
		{"truncate", "false", "true", "false", func(c *serveCmd) any { return c.Truncate }, true, [3]any{false, true, false}},
		{"truncate", "true", "false", "true", func(c *serveCmd) any { return c.Truncate }, true, [3]any{true, false, true}},
		{"escape-special", "true", "false", "true", func(c *serveCmd) any { return c.EscapeSpecial }, false, [3]any{true, false, true}},
		{"policies", "[a, 'b,c']", "d,e", "f", func(c *serveCmd) any { return fmt.Sprintf("%q", c.Policies) }, "[]", [3]any{`["a" "b,c"]`, `["d" "e"]`, `["f"]`}},
		{"api-key", "k1", "k2", "k3", func(c *serveCmd) any { return c.APIKey }, "", [3]any{"k1", "k2", "k3"}},
	} {
		for set := range 8 {
			var file string
			var env, args []string
			want, origin := s.byDefault, "default"
			if set&1 != 0 {
				file, want, origin = s.name+": "+s.file+"\n", s.want[0], "r.yaml:1"
			}
			if set&2 != 0 {
				env, want, origin = []string{"RAGATE_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_")) + "=" + s.env}, s.want[1], "environment"
			}
			if set&4 != 0 {
				args, want, origin = []string{"--" + s.name + "=" + s.flag}, s.want[2], "flag"
			}
			p := parse(t, file, env, args...)
			if p.err != nil {
				t.Fatalf("%s, %q %q %q: %v", s.name, file, env, args, p.err)
			}
			if got := s.get(p.serve); got != want {
				t.Errorf("%s, %q %q %q: %v, want %v", s.name, file, env, args, got, want)
			}
			for _, f := range settingsOf(p.given.ctx) {
				if got := p.given.in.originOf(p.given.ctx, f); f.Name == s.name && !strings.HasSuffix(got, origin) {
					t.Errorf("%s, %q %q %q: origin %s, want %s", s.name, file, env, args, got, origin)
				}
			}
		}
	}
}

// TestNegatedFlag: --no-truncate is a flag as any other.
func TestNegatedFlag(t *testing.T) {
	for _, c := range []struct {
		file string
		env  []string
		args []string
		want bool
	}{
		{"", nil, []string{"--no-truncate"}, false},
		{"truncate: true\n", []string{"RAGATE_TRUNCATE=true"}, []string{"--no-truncate"}, false},
		{"truncate: false\n", []string{"RAGATE_TRUNCATE=false"}, []string{"--truncate"}, true},
		{"truncate: false\n", nil, []string{"--no-truncate=false"}, true},
		{"truncate: false\n", nil, nil, false},
		{"truncate: no\n", []string{"RAGATE_TRUNCATE="}, nil, false}, // set to nothing is not set
	} {
		if p := parse(t, c.file, c.env, c.args...); p.err != nil || len(p.given.problems) > 0 || p.serve.Truncate != c.want {
			t.Errorf("%q %q %q: %v, want %v (%v, %v)", c.file, c.env, c.args, p.serve.Truncate, c.want, p.err, p.given.problems)
		}
	}
}

// TestEveryProblemAtOnce: of file, variables and flags, and of settings that do not fit together.
func TestEveryProblemAtOnce(t *testing.T) {
	p := parse(t, "max-items: 0\nmax-itms: 5\nslice: 7\n",
		[]string{"RAGATE_STREAMS=-1", "RAGATE_LOG_LEVEL=loud", "RAGATE_MAX_DOCUMENTS=x", "RAGATE_API_KEY=s3cret,s3cret"},
		"--threads=x", "--max-documents=5", "--budget-ms=0", "--tls-cert=a.pem", "--cors-origin=https://a.example/path")
	if p.err != nil {
		t.Fatal(p.err)
	}
	text := p.given.refusal(nil)
	for _, want := range []string{
		"r.yaml:1: max-items is 0: it must be at least 1", `r.yaml:2: there is no setting "max-itms"; did you mean max-items?`, `r.yaml:3: slice is "7"`,
		"RAGATE_STREAMS (--streams) is -1", `RAGATE_LOG_LEVEL (--log-level) is "loud": it must be one of debug, info, warn, error`,
		`RAGATE_MAX_DOCUMENTS (--max-documents) is "x"`, // although the flag wins over it
		`--threads (RAGATE_THREADS) is "x"`, "--budget-ms (RAGATE_BUDGET_MS) is 0", "entry 2 is the same key as entry 1",
		"--tls-cert (RAGATE_TLS_CERT) needs --tls-key (RAGATE_TLS_KEY) beside it", `"https://a.example/path" is no origin`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, strings.ReplaceAll(text, "; ", "\n"))
		}
	}
	if len(p.given.problems) != 11 {
		t.Errorf("%d problems, want 11:\n%s", len(p.given.problems), strings.ReplaceAll(text, "; ", "\n"))
	}
	if strings.Contains(text, "s3cret") {
		t.Error("a problem holds a key")
	}
	if p.serve.MaxDocuments != 5 || p.serve.Threads != 0 || p.serve.BudgetMS != 100 {
		t.Errorf("values that cannot be used must give way to the defaults: %d, %d, %d", p.serve.MaxDocuments, p.serve.Threads, p.serve.BudgetMS)
	}
}

// TestBadFileOfSettings: what cannot be read is one problem that names the file.
func TestBadFileOfSettings(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "absent.yaml"), dir} {
		p := parse(t, "", []string{"RAGATE_CONFIG=" + path})
		if len(p.given.problems) != 1 || !strings.Contains(p.given.problems[0].Error(), path) || !strings.Contains(p.given.problems[0].Error(), "--config (RAGATE_CONFIG)") {
			t.Errorf("%s: %v", path, p.given.problems)
		}
	}
}

// TestProblemsOfOtherCommands: a variable that another command alone would read does not stop this one.
func TestProblemsOfOtherCommands(t *testing.T) {
	clearVariables(t)
	t.Setenv("RAGATE_MAX_ITEMS", "x")
	var out, errs bytes.Buffer
	if code := run([]string{"version"}, streams{nil, &out, &errs}); code != exitOK || errs.Len() > 0 {
		t.Errorf("version: %d, %s", code, errs.String())
	}
	if code := run([]string{"config", "print"}, streams{nil, &out, &errs}); code != exitUsage || !strings.Contains(errs.String(), "RAGATE_MAX_ITEMS") {
		t.Errorf("config print: %d, %s", code, errs.String())
	}
}

// TestMisspeltVariables are told of, and stop nothing.
func TestMisspeltVariables(t *testing.T) {
	p := parse(t, "", []string{"RAGATE_MAX_ITEM=5", "RAGATE_PORT=tcp://10.0.0.1:80"})
	if len(p.given.problems) != 0 || len(p.given.warnings) != 1 || !strings.Contains(p.given.warnings[0].Error(), "did you mean RAGATE_MAX_ITEMS?") {
		t.Errorf("problems %v, warnings %v", p.given.problems, p.given.warnings)
	}
}

// printConfig runs config print.
func printConfig(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(append([]string{"config", "print"}, args...), streams{nil, &out, &errs}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out.String()
}

// TestPrintedConfigIsAConfig: what config print prints is a file that gives the same settings, from the file; no key is in it.
func TestPrintedConfigIsAConfig(t *testing.T) {
	clearVariables(t)
	t.Setenv("RAGATE_API_KEY", "desk:first-secret,second-secret")
	t.Setenv("RAGATE_REFERENCES", "yes") // a text that YAML would take for something else
	first := printConfig(t, "--policies=a.yaml,b: c.yaml", "--no-truncate", "--slice=1500us", "--max-items=7", "--cors-origin=https://a.example", "--score-cache=off")
	if strings.Contains(first, "secret") || !strings.Contains(first, "# api-key: (set, 2 keys)  # environment") {
		t.Errorf("keys: %s", first)
	}
	path := filepath.Join(t.TempDir(), "printed.yaml")
	if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Unsetenv("RAGATE_REFERENCES")
	second := printConfig(t, "--config="+path)
	values := func(text string) (out []string) {
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, "  # ")
			out = append(out, line)
		}
		return out
	}
	a, b := values(first), values(second)
	if len(a) < 30 || strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Errorf("printed:\n%s\nfrom that file:\n%s", first, second)
	}
	for _, line := range []string{"truncate: false", "slice: 1.5ms", "max-items: 7", `score-cache: "off"`, `policies: ["a.yaml","b: c.yaml"]`, `references: "yes"`} {
		if !strings.Contains(second, line+"  # "+path+":") {
			t.Errorf("%q is not from the file in:\n%s", line, second)
		}
	}

	var asJSON struct {
		Settings []printed `json:"settings"`
	}
	if err := json.Unmarshal([]byte(printConfig(t, "--json", "--config="+path)), &asJSON); err != nil {
		t.Fatal(err)
	}
	if len(asJSON.Settings) != len(a) {
		t.Errorf("JSON lists %d settings, YAML %d", len(asJSON.Settings), len(a))
	}
	for _, s := range asJSON.Settings {
		if s.Name == "max-items" && (s.Value != 7.0 || s.Variable != "RAGATE_MAX_ITEMS" || s.Kind != "integer" || s.Origin != path+":"+s.Origin[strings.LastIndex(s.Origin, ":")+1:]) {
			t.Errorf("%+v", s)
		}
		if s.Name == "api-key" && (s.Value != "(set, 2 keys)" || !s.Secret) {
			t.Errorf("%+v", s)
		}
	}
}

// TestEverySettingIsWellFormed: a range that cannot be read would only show when somebody sets a value out of it.
func TestEverySettingIsWellFormed(t *testing.T) {
	p := parse(t, "", nil)
	flags := settingsOf(p.given.ctx)
	if len(flags) < 35 {
		t.Fatalf("only %d settings", len(flags))
	}
	for _, f := range flags {
		s, err := settingOf(f)
		if err != nil {
			t.Error(err)
			continue
		}
		if want := envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")); s.Env != want {
			t.Errorf("--%s has the variable %s, not %s", s.Name, s.Env, want)
		}
		if strings.HasSuffix(s.Env, "_PORT") || strings.HasSuffix(s.Env, "_SERVICE_HOST") {
			t.Errorf("%s is a name that Kubernetes gives to variables of its own", s.Env)
		}
		if s.Kind != settings.List && s.Default != "" {
			if err := s.Check(s.Default); err != nil {
				t.Errorf("the default of --%s %v", s.Name, err)
			}
		}
		for _, text := range []string{"-1", "0", "1", "0s", "1h"} {
			_ = s.Check(text) // panics on an end that cannot be read
		}
	}
}

var update = flag.Bool("update", false, "write the table of docs/configuration.md anew")

// TestConfigurationPage: the table of settings in docs/configuration.md is made from the flags. go test ./cmd/ragate -update writes it.
func TestConfigurationPage(t *testing.T) {
	clearVariables(t)
	p, err := newParser(&cli{}, &intake{}, streams{})
	if err != nil {
		t.Fatal(err)
	}
	var serve *kong.Node
	for _, n := range p.Model.Children {
		if n.Name == "serve" {
			serve = n
		}
	}
	var table strings.Builder
	group := ""
	for _, f := range serve.Flags {
		if !isSetting(f) {
			continue
		}
		if f.Group != nil && f.Group.Title != group {
			group = f.Group.Title
			fmt.Fprintf(&table, "\n### %s\n\n| Key and flag | Variable | Takes | Default | Meaning |\n|---|---|---|---|---|\n", group)
		}
		s, err := settingOf(f)
		if err != nil {
			t.Fatal(err)
		}
		fallback := "–"
		if s.Default != "" {
			fallback = "`" + s.Default + "`"
		}
		help, _, _ := strings.Cut(f.Help, " ('") // the help names the default once more
		help, _, _ = strings.Cut(help, " (true)")
		fmt.Fprintf(&table, "| `%s` | `%s` | %s | %s | %s |\n", s.Name, s.Env, s.Allowed(), fallback, strings.ReplaceAll(help, "|", "\\|"))
	}
	const file, begin, end = "../../docs/configuration.md", "<!-- settings: made from the flags -->\n", "<!-- end of settings -->\n"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks around the table", file)
	}
	want := table.String() + "\n"
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not that of the flags: run go test ./cmd/ragate -run ConfigurationPage -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestExampleOfTheConfigurationPage: the file that the page shows is one that can be used.
func TestExampleOfTheConfigurationPage(t *testing.T) {
	b, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```yaml\n")
	text, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("no example")
	}
	p := parse(t, text, []string{"RAGATE_API_KEY_FILE="})
	for _, problem := range p.given.problems {
		if !strings.Contains(problem.Error(), "no such file") { // the example's files are the reader's
			t.Error(problem)
		}
	}
	if len(p.given.in.file.values) < 8 {
		t.Errorf("only %d settings in the example", len(p.given.in.file.values))
	}
}
