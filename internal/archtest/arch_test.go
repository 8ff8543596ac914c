package archtest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ragate/internal/testenv"
)

// rule says what a folder may import. Paths are prefixes: "models" covers "models/hub".
type rule struct {
	folder string
	// own lists the project's packages it may import. Its own sub-packages are always allowed.
	own []string
	// modules lists the third-party modules it may import.
	modules []string
	// never lists standard packages that would mean it knows what it must not.
	never []string
	why   string
}

// rules is ordered: the first whose folder fits a package decides. Every package of the project must fit one.
var rules = []rule{
	{folder: "inference/ort", own: []string{"models"}, modules: []string{"github.com/yalue/onnxruntime_go"},
		never: []string{"net/http"},
		why:   "the only native code: sessions and tensors, not texts, queues or what an output means"},
	{folder: "inference", own: []string{"tokenize", "models", "simd"}, modules: []string{"golang.org/x/sync", "golang.org/x/sys"},
		never: []string{"net/http", "encoding/json", "flag"},
		why:   "texts to vectors and logits; wire formats, settings and thresholds belong above"},
	{folder: "tokenize/internal/trie", never: []string{"os", "encoding/json", "sync"},
		why: "keys to ids; it knows no text and no file"},
	{folder: "tokenize/internal/graphemes", never: []string{"os", "encoding/json"},
		why: "where characters begin, by a table; it knows no map and no token"},
	{folder: "tokenize/internal/charsmap", own: []string{"tokenize/internal/trie", "tokenize/internal/graphemes"},
		never: []string{"os", "encoding/json", "sync"},
		why:   "what characters become; it knows no tokens"},
	{folder: "tokenize/internal/unigram", own: []string{"tokenize/internal/trie"},
		never: []string{"os", "encoding/json", "sync"},
		why:   "words to pieces; it knows no text, no files, and leaves sharing to others"},
	{folder: "tokenize/internal/aligned", never: []string{"os", "encoding/json", "sync"},
		why: "texts and places; it knows no tokens"},
	{folder: "tokenize", modules: []string{"google.golang.org/protobuf"},
		never: []string{"os", "io/fs", "net", "net/http", "path/filepath"},
		why:   "bytes in, ids out; it does not know where files are"},
	{folder: "models", modules: []string{"google.golang.org/protobuf", "golang.org/x/sys", "go.yaml.in/yaml"},
		never: []string{"flag"},
		why:   "files and facts about them; it runs nothing"},
	{folder: "simd", modules: []string{"github.com/viterin"},
		never: []string{"context", "os", "net", "io"},
		why:   "arithmetic on slices of floats"},
	{folder: "internal/page", modules: []string{"gonum.org/v1/plot"},
		never: []string{"net", "net/http", "os", "time"},
		why:   "shows numbers as a page or as text; charts come from a library"},
	{folder: "gates/evaluate/report", own: []string{"gates/evaluate", "internal/page"}, modules: []string{"gonum.org/v1/plot"},
		never: []string{"net", "net/http", "os", "time"},
		why:   "says what package evaluate found; package page shows it"},
	{folder: "gates", own: []string{"simd"}, modules: []string{"golang.org/x/text", "go.yaml.in/yaml"},
		never: []string{"net", "net/http", "os", "io/fs"},
		why:   "decisions are pure functions of scores and policy"},
	{folder: "cache", modules: []string{"github.com/maypok86/otter/v2", "github.com/redis/go-redis/v9"},
		never: []string{"net/http", "os", "flag", "encoding/json"},
		why:   "bytes by keys, in process and in Redis; what they mean is known to those who ask"},
	{folder: "reuse", own: []string{"cache", "inference"},
		never: []string{"net", "net/http", "os", "flag", "encoding/json"},
		why:   "which answers of a model may be used again; it knows no routes and no settings"},
	{folder: "settings", modules: []string{"go.yaml.in/yaml"},
		never: []string{"os", "net", "net/http", "flag"},
		why:   "what settings may hold; it opens nothing and knows none by name"},
	{folder: "server/certs", never: []string{"net/http", "flag"},
		why: "certificate files and their renewal"},
	{folder: "server/openapi", modules: []string{"go.yaml.in/yaml"},
		never: []string{"net", "net/http", "os"},
		why:   "a document and a page; it serves nothing"},
	{folder: "server", own: []string{"inference", "gates"},
		modules: []string{"github.com/labstack/echo/v4", "github.com/prometheus", "github.com/google/uuid",
			"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/trace"},
		never: []string{"os/exec", "flag", "path/filepath"},
		why:   "wire formats and limits; it knows no tokens, tensors or files, and not where its spans go"},
	{folder: "tracing", modules: []string{"go.opentelemetry.io/otel"},
		never: []string{"os", "flag"},
		why:   "spans to a collector; what they say belongs to those who make them"},
	{folder: "cmd/ragate", own: []string{"server", "gates", "inference", "tokenize", "models", "simd", "settings", "tracing", "benchmarks", "internal/page", "cache", "reuse"},
		modules: []string{"github.com/alecthomas/kong", "golang.org/x/term", "golang.org/x/sync", "go.yaml.in/yaml"},
		why:     "construction and shutdown"},
	{folder: "benchmarks", own: []string{"inference", "models", "server", "tokenize", "simd", "internal/testenv", "internal/page"},
		modules: []string{"github.com/HdrHistogram", "golang.org/x/sys", "gonum.org/v1/gonum/stat", "gonum.org/v1/plot"},
		why:     "drives a running server; only cmd/ragate imports it, for the command that users measure with"},
	{folder: "internal/testenv", why: "finds what tests need; imported by tests only"},
	{folder: "internal/hubtest", own: []string{"models/onnxpb"}, why: "a model hub for tests, on loopback"},
	{folder: "internal/multilingual", why: "tests only: texts and the vectors they should have"},
	{folder: "internal/contract", modules: []string{"github.com/santhosh-tekuri/jsonschema"}, why: "tests only: it knows the API's document and no code of the server"},
	{folder: "internal/readme", own: []string{"internal/testenv"}, why: "tests only: it runs the commands of the documentation"},
	{folder: "internal/archtest", own: []string{"internal/testenv"}, why: "tests only"},
	{folder: "internal/e2e", own: []string{"internal/contract", "internal/multilingual", "internal/testenv"}, why: "tests only: it drives the built program from outside"},
	{folder: "tools", why: "scripts that make test data; nothing imports them"},
}

// forbidden edges that a prefix in a rule would allow.
var forbidden = []struct{ from, to, why string }{
	{"server", "inference/ort", "the server must not know the runtime"},
	{"gates", "inference", "gates declare the interfaces they need"},
}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Module     *struct{ Path string }
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports,Module", "./...")
	cmd.Dir = testenv.ModuleRoot(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 8 {
		t.Fatalf("go list found %d packages: this test would check nothing", len(all))
	}
	return all
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func TestImportsPointDown(t *testing.T) {
	checked := 0
	for _, p := range list(t) {
		folder := strings.TrimPrefix(p.ImportPath, "ragate/")
		i := slices.IndexFunc(rules, func(r rule) bool { return within(folder, r.folder) })
		if i < 0 {
			t.Errorf("%s fits no rule: say in the table what it owns and what it may import", p.ImportPath)
			continue
		}
		r := rules[i]
		for _, imp := range p.Imports {
			checked++
			own, ok := strings.CutPrefix(imp, "ragate/")
			switch {
			case ok:
				if within(own, r.folder) {
					continue
				}
				for _, f := range forbidden {
					if within(folder, f.from) && within(own, f.to) {
						t.Errorf("%s imports %s: %s", p.ImportPath, imp, f.why)
					}
				}
				if !slices.ContainsFunc(r.own, func(a string) bool { return within(own, a) }) {
					t.Errorf("%s imports %s, but %s may import only %q of the project: %s", p.ImportPath, imp, r.folder, r.own, r.why)
				}
			case strings.Contains(strings.Split(imp, "/")[0], "."):
				if !slices.ContainsFunc(r.modules, func(m string) bool { return within(imp, m) }) {
					t.Errorf("%s imports %s, but %s may import only the modules %q: %s", p.ImportPath, imp, r.folder, r.modules, r.why)
				}
			case slices.Contains(r.never, imp):
				t.Errorf("%s imports %s, which %s must not know: %s", p.ImportPath, imp, r.folder, r.why)
			}
		}
	}
	if checked < 100 {
		t.Fatalf("only %d imports were looked at", checked)
	}
}

// TestOnlyTheCommandReadsTheEnvironment finds calls of os.Getenv and its like outside cmd/ and outside tests.
func TestOnlyTheCommandReadsTheEnvironment(t *testing.T) {
	files := 0
	for _, p := range list(t) {
		folder := strings.TrimPrefix(p.ImportPath, "ragate/")
		if within(folder, "cmd") || within(folder, "internal") {
			continue
		}
		files += len(p.GoFiles) + len(p.CgoFiles)
		forbidCalls(t, p, "os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Args"},
			"only cmd/ reads the environment and arguments; take a field of a config struct")
	}
	if files < 20 {
		t.Fatalf("only %d files were looked at", files)
	}
}

// TestGatesReadNoClock: a decision that looks at the clock cannot be replayed. The time is an argument.
func TestGatesReadNoClock(t *testing.T) {
	files := 0
	for _, p := range list(t) {
		if !within(strings.TrimPrefix(p.ImportPath, "ragate/"), "gates") {
			continue
		}
		files += len(p.GoFiles)
		forbidCalls(t, p, "time", []string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick", "AfterFunc"},
			"the gates know no clock; take the time, or a function that tells it, as an argument")
	}
	if files == 0 {
		t.Fatal("no file of the gates was looked at")
	}
}

// calendar are the files that may turn a time into a number or strip it of its monotonic reading, and why. Everything else measures
// durations, which must not jump when somebody sets the clock.
var calendar = map[string]string{
	"server/openai.go":        "the created field of a model",
	"server/metrics.go":       "the end of a certificate",
	"server/certs/certs.go":   "the end of a certificate, for the log",
	"models/resolve.go":       "the age of a local model's file, for the created field",
	"models/graph/cache.go":   "a number for the name of a temporary file",
	"gates/quality/rules.go":  "dates in the metadata of chunks",
	"cmd/ragate/calibrate.go": "the date of a report",
	"cmd/ragate/serve.go":     "the end of a certificate, for the log",
	"benchmarks/report.go":    "the date of a report",

	"benchmarks/servebench/main.go": "a duration, rounded for its reader",
	"benchmarks/soak/run.go":        "durations, rounded for their reader",
}

// stripping are the methods of a time whose results know no monotonic clock. Durations have Round and Truncate too.
var stripping = []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "In", "Round", "Truncate", "AddDate"}

// TestDurationsAreMonotonic finds times that follow a clock that is set. Budgets, waits and rates
// come from readings that do not, so that a clock set back or forth while the server runs moves none of them.
func TestDurationsAreMonotonic(t *testing.T) {
	root, used, files := testenv.ModuleRoot(t), map[string]bool{}, 0
	for _, p := range list(t) {
		for _, name := range append(slices.Clone(p.GoFiles), p.CgoFiles...) {
			path := filepath.Join(p.Dir, name)
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			imported := map[string]bool{}
			for _, i := range f.Imports {
				what, _ := strconv.Unquote(i.Path.Value)
				imported[filepath.Base(what)] = true
			}
			if imported["time"] {
				files++
			}
			file, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			file = filepath.ToSlash(file)
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains(stripping, sel.Sel.Name) {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && imported[x.Name] {
					return true // math.Round, unicode.In; time.Unix makes a date of a number
				}
				if !imported["time"] && slices.Contains([]string{"Round", "Truncate"}, sel.Sel.Name) {
					return true // of a buffer or a file
				}
				if used[file] = true; calendar[file] == "" {
					t.Errorf("%s: %s follows a clock that is set: measure durations by time.Since and Sub, or say in the table why this is a date", set.Position(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
	if files < 40 {
		t.Errorf("only %d files that know the time were looked at", files)
	}
	for file := range calendar {
		if !used[file] {
			t.Errorf("the table has %s, which no longer needs it", file)
		}
	}
}

// forbidCalls reports every use of names of a standard package in p's files.
func forbidCalls(t *testing.T, p pkg, from string, names []string, why string) {
	t.Helper()
	for _, name := range append(slices.Clone(p.GoFiles), p.CgoFiles...) {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == from && slices.Contains(names, sel.Sel.Name) {
				t.Errorf("%s: %s.%s: %s", set.Position(n.Pos()), from, sel.Sel.Name, why)
			}
			return true
		})
	}
}

// TestTableNamesFoldersThatExist keeps the table from going stale.
func TestTableNamesFoldersThatExist(t *testing.T) {
	root := testenv.ModuleRoot(t)
	for _, r := range rules {
		if _, err := os.Stat(filepath.Join(root, r.folder)); err != nil {
			t.Errorf("the table has %s, which is gone", r.folder)
		}
	}
}

// `make test-multilingual` runs the tests that are named so: one with another name under the tag would never run.
func TestMultilingualTestsAreNamedSo(t *testing.T) {
	root := testenv.ModuleRoot(t)
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(src), "//go:build multilingual\n") {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(src), -1) {
			found++
			if !strings.Contains(m[1], "Multilingual") {
				t.Errorf("%s: %s is behind the tag and its name does not hold the word Multilingual", path, m[1])
			}
		}
		return nil
	})
	if err != nil || found < 4 {
		t.Errorf("%d tests behind the tag: %v", found, err)
	}
}
