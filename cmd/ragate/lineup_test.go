package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ragate/inference"
	"ragate/models"
)

// describe is a lineup in short: the models, and of each role the place of its model.
func (l lineup) describe() string {
	var all []string
	for _, c := range l.models {
		all = append(all, fmt.Sprintf("%s=%s:%s", c.name, c.kind, c.ref))
	}
	return fmt.Sprintf("%s | %d %d %d %d", strings.Join(all, " "), l.embedder, l.reranker, l.gateEmbedder, l.gateReranker)
}

const (
	e5 = "intfloat/e5-small-v2"
	rr = "cross-encoder/ms-marco-MiniLM-L12-v2"
	ge = "intfloat/multilingual-e5-small"
)

// TestLineup: which models are loaded, and which does what, by the settings of all sources.
func TestLineup(t *testing.T) {
	const two = "models: [{name: a, kind: embedder, model: e5-small-v2}, {name: b, kind: embedder, model: org/b, default: true}, {name: r, kind: reranker, model: org/r}]\n"
	for _, c := range []struct {
		name, file string
		env, args  []string
		want       string
	}{
		{name: "the defaults", want: "=embedder:" + e5 + " =reranker:" + rr + " =embedder:" + ge + " | 0 1 2 1"},
		{name: "others", args: []string{"--embedder=org/e", "--reranker=org/r"}, want: "=embedder:org/e =reranker:org/r | 0 1 0 1"},
		{name: "a gate's own", args: []string{"--gate-embedder=org/g"}, want: "=embedder:" + e5 + " =reranker:" + rr + " =embedder:org/g | 0 1 2 1"},
		{name: "a gate's own that is the same", args: []string{"--gate-embedder=e5-small-v2"}, want: "=embedder:" + e5 + " =reranker:" + rr + " | 0 1 0 1"},
		{name: "a reranker of the gate's", args: []string{"--gate-reranker=org/g"}, want: "=embedder:" + e5 + " =reranker:" + rr + " =embedder:" + ge + " =reranker:org/g | 0 1 2 3"},
		{name: "no reranker", args: []string{"--reranker=none", "--gate-reranker=none"}, want: "=embedder:" + e5 + " =embedder:" + ge + " | 0 -1 1 -1"},
		{name: "models", file: two, want: "a=embedder:e5-small-v2 b=embedder:org/b r=reranker:org/r | 1 2 1 2"},
		{name: "models, the default by a variable", file: two, env: []string{"RAGATE_EMBEDDER=a"}, want: "a=embedder:e5-small-v2 b=embedder:org/b r=reranker:org/r | 0 2 0 2"},
		{name: "models, the default by its model", file: two + "embedder: " + e5, want: "a=embedder:e5-small-v2 b=embedder:org/b r=reranker:org/r | 0 2 0 2"},
		{name: "models, the default is one more", file: two, args: []string{"--reranker=" + rr}, want: "a=embedder:e5-small-v2 b=embedder:org/b r=reranker:org/r =reranker:" + rr + " | 1 3 1 3"},
		{name: "the gates by name", file: two + "gate-embedder: a\ngate-reranker: r\n", want: "a=embedder:e5-small-v2 b=embedder:org/b r=reranker:org/r | 1 2 0 2"},
		{name: "embedders only", file: "models: [{name: a, kind: embedder, model: org/a}]\ngate-reranker: none\n", want: "a=embedder:org/a | 0 -1 0 -1"},
		{name: "rerankers only", file: "models: [{name: r, kind: reranker, model: org/r}]\ngate-embedder: none\n", want: "r=reranker:org/r | -1 0 -1 0"},
		{name: "a variable", env: []string{"RAGATE_MODELS=name=a, kind=embedder, model=org/a;\nname=r,kind=reranker,model=./a\\,b\\;c"}, want: "a=embedder:org/a r=reranker:./a,b;c | 0 1 0 1"},
		{name: "a variable wins over the file", file: two, env: []string{"RAGATE_MODELS=name=x,kind=embedder,model=org/x;name=y,kind=reranker,model=org/y"}, want: "x=embedder:org/x y=reranker:org/y | 0 1 0 1"},
		{name: "flags win over the variable", env: []string{"RAGATE_MODELS=name=x,kind=embedder,model=org/x"}, args: []string{"--models=name=p,kind=embedder,model=org/p", "--models", "name=q,kind=reranker,model=org/q"},
			want: "p=embedder:org/p q=reranker:org/q | 0 1 0 1"},
	} {
		p := parse(t, c.file, c.env, c.args...)
		if p.err != nil || len(p.given.problems) > 0 {
			t.Errorf("%s: %v %v", c.name, p.err, p.given.problems)
			continue
		}
		l, _ := p.serve.lineup()
		if got := l.describe(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestModelSettings: an entry's own settings hold, and the general ones where it has none.
func TestModelSettings(t *testing.T) {
	p := parse(t, "models:\n  - {name: a, kind: embedder, model: org/a, provider: cpu, precision: fp32, max_tokens: 128, streams: 1, threads: 3}\n  - {name: b, kind: reranker, model: org/b, max-tokens: 0}\n"+
		"precision: bf16\nmax-tokens: 256\nstreams: 2\n", nil)
	l, problems := p.serve.lineup()
	if len(problems)+len(p.given.problems) > 0 || len(l.models) != 2 {
		t.Fatal(problems, p.given.problems, l.models)
	}
	want := []inference.Settings{{Provider: "cpu", Precision: "fp32", MaxTokens: 128, Streams: 1, Threads: 3}, {Provider: "auto", Precision: "bf16", MaxTokens: 0, Streams: 2}}
	for i, w := range want {
		if !reflect.DeepEqual(l.models[i].set, w) {
			t.Errorf("%s: %+v, want %+v", l.models[i], l.models[i].set, w)
		}
	}
}

// TestGateEmbedderThatNobodyNamedRuns: int8 cannot be asked of a graph that was not quantised for it. Who names the model gets the precision, or its
// refusal.
func TestGateEmbedderThatNobodyNamedRuns(t *testing.T) {
	for _, c := range []struct {
		args []string
		want inference.Precision
	}{
		{nil, "auto"}, {[]string{"--precision=int8"}, "auto"}, {[]string{"--precision=int8-batched"}, "auto"}, {[]string{"--precision=fp32"}, "fp32"}, {[]string{"--precision=bf16"}, "bf16"},
		{[]string{"--precision=int8", "--gate-embedder=" + ge}, "int8"},
	} {
		l, problems := parse(t, "", nil, c.args...).serve.lineup()
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if got := l.models[l.gateEmbedder]; got.ref != ge || got.set.Precision != c.want {
			t.Errorf("%q: the gate's embedder is %s in %s, not in %s", c.args, got, got.set.Precision, c.want)
		}
		if got := l.models[l.embedder].set.Precision; len(c.args) > 0 && !strings.HasSuffix(c.args[0], string(got)) {
			t.Errorf("%q: the embedder is in %s", c.args, got)
		}
	}
}

// TestModelProblems: everything that is wrong is named at once, with its place.
func TestModelProblems(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env, args  []string
		want       []string
	}{
		{"fields", "models:\n  - {name: a, kind: embeder, model: org/a}\n  - {name: b, kind: reranker, model: org/b, precison: fp32, streams: 0x}\n  - {kind: embedder, model: org/c, name: }\n  - x\n  -\n    name: [d]\n    kind: embedder\n    model: org/d\n" +
			"gate-reranker: b\n", nil, nil, []string{
			`r.yaml:2: models[0] kind is "embeder": it must be one of embedder, reranker; did you mean embedder?`,
			`r.yaml:3: models[1] has no field "precison"; did you mean precision?`, `r.yaml:3: models[1] streams is "0x"`, "r.yaml:4: models[2] has no name",
			"r.yaml:5: models[3] is a single value: it must be a mapping", "r.yaml:7: models[4] name is a list: it must be a single value"}},
		{"names", "models:\n- {name: a, kind: embedder, model: org/a}\n- {name: a, kind: reranker, model: org/b}\n- {name: none, kind: embedder, model: org/c}\n- {name: e5-small-v2, kind: embedder, model: org/d}\n- {name: e, kind: embedder, model: intfloat/e5-small-v2}\n", nil, nil,
			[]string{`r.yaml:3: the name "a" is taken by`, "r.yaml:4: the name none stands for no model", "r.yaml:5: the name e5-small-v2 also means the model intfloat/e5-small-v2, which e ("}},
		{"kinds and defaults", "models:\n- {name: a, kind: reranker, model: e5-small-v2}\n- {name: b, kind: embedder, model: org/b, default: true}\n- {name: c, kind: embedder, model: org/c, default: true}\n", nil, []string{"--gate-embedder=a", "--gate-reranker=e5-small-v2"},
			[]string{"r.yaml:2: a: intfloat/e5-small-v2 is an embedder, and kind says reranker", "r.yaml:4: c is marked as the default embedder, and so is b (",
				"--gate-embedder (RAGATE_GATE_EMBEDDER) is a, which is a reranker (", ""}},
		{"a variable", "", []string{"RAGATE_MODELS=name=a,kind=x,model=org/a;nonsense;name=b,name=c,kind=reranker,model=m"}, []string{"--gate-embedder=none"}, []string{
			`RAGATE_MODELS (--models): entry 1: kind is "x"`, `RAGATE_MODELS (--models): entry 2: holds "nonsense": write NAME=VALUE`, "entry 2: has no name", "entry 2: has no kind", "entry 2: has no model", "entry 3: name is given twice"}},
		{"no reranker for the chunk gate", "models: [{name: a, kind: embedder, model: org/a}]\n", nil, nil, []string{"no reranker is to be loaded, and the chunk gate needs one"}},
		{"no embedder for the query gate", "models: [{name: a, kind: reranker, model: org/a}]\n", nil, nil, []string{"no embedder is to be loaded, and the query gate needs one"}},
		{"nothing", "", nil, []string{"--embedder=none", "--reranker=none"}, []string{"no model is to be loaded"}},
		{"none beside some", "models: [{name: a, kind: embedder, model: org/a}, {name: r, kind: reranker, model: org/r}]\n", nil, []string{"--embedder=none"}, []string{"--embedder (RAGATE_EMBEDDER) is none, and --models (RAGATE_MODELS) lists a ("}},
	} {
		p := parse(t, c.file, c.env, c.args...)
		var got []string
		for _, problem := range p.given.problems {
			got = append(got, problem.Error())
		}
		all := strings.Join(got, "\n")
		for _, w := range c.want {
			if !strings.Contains(all, w) {
				t.Errorf("%s: %q is not in\n%s", c.name, w, all)
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(c.want), func(s string) bool { return s == "" })); len(got) != n {
			t.Errorf("%s: %d problems, want %d:\n%s", c.name, len(got), n, all)
		}
	}
}

// TestLoadings: the same files with the same settings are loaded once; every name is one model's.
func TestLoadings(t *testing.T) {
	manifest := func(id, graph string, aliases ...string) models.Manifest {
		return models.Manifest{ID: id, Aliases: aliases, GraphPath: graph}
	}
	one := manifest("org/one", "/one.onnx", "one")
	l := lineup{models: []chosen{
		{name: "a", kind: models.KindEmbedder, ref: "org/one"},
		{name: "b", kind: models.KindEmbedder, ref: "one", set: inference.Settings{Precision: "fp32"}},
		{name: "c", kind: models.KindEmbedder, ref: "one"},
		{kind: models.KindEmbedder, ref: "org/one@other"},
		{kind: models.KindReranker, ref: "org/two"},
	}}
	other := manifest("org/one", "/other.onnx", "one")
	got := l.loadings([]int{1, 0, 2, 3, 4}, map[int]models.Manifest{0: one, 1: one, 2: one, 3: other, 4: manifest("org/two", "/two.onnx")})
	want := [][]string{{"b", "org/one", "one"}, {"a", "c"}, {"org/one@other"}, {"org/two"}}
	if len(got) != len(want) {
		t.Fatalf("%d loadings, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		if !slices.Equal(got[i].names, w) || !slices.Equal(got[i].set.Names, w) {
			t.Errorf("loading %d has the names %q, want %q", i, got[i].names, w)
		}
	}
	if !slices.Equal(got[1].chosen, []int{0, 2}) || got[0].set.Precision != "fp32" {
		t.Errorf("%+v", got)
	}
}

// TestModelFieldsAreThoseOfTheSettings: an entry's provider, precision and so on take what the settings of these names take.
func TestModelFieldsAreThoseOfTheSettings(t *testing.T) {
	p := parse(t, "", nil)
	compared := 0
	for _, f := range settingsOf(p.given.ctx) {
		s, err := settingOf(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range modelFields {
			if m.Name == s.Name {
				compared++
				if m.Kind != s.Kind || m.Range != s.Range || !slices.Equal(m.Choices, s.Choices) {
					t.Errorf("%s: an entry takes %s, the setting %s", m.Name, m.Allowed(), s.Allowed())
				}
			}
		}
	}
	if compared != 5 {
		t.Errorf("%d fields are settings, too; want 5", compared)
	}
}

// TestPrintedModels: what config print prints of models gives the same lineup, defaults included.
func TestPrintedModels(t *testing.T) {
	clearVariables(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a default by its mark": "models: [{name: a, kind: embedder, model: org/a}, {name: b, kind: embedder, model: org/b, default: true}, {name: 'r;x', kind: reranker, model: 'f,g', streams: 2}]\n",
		"embedders only":        "models: [{name: a, kind: embedder, model: org/a}]\ngate-reranker: none\n",
	} {
		path := filepath.Join(dir, "first.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		printed := printConfig(t, "--config="+path)
		p, again := parse(t, text, nil), parse(t, printed, nil)
		if len(again.given.problems) > 0 {
			t.Fatalf("%s: %v in\n%s", name, again.given.problems, printed)
		}
		a, _ := p.serve.lineup()
		b, _ := again.serve.lineup()
		if a.describe() != b.describe() || !reflect.DeepEqual(a.models[len(a.models)-1].set, b.models[len(b.models)-1].set) {
			t.Errorf("%s:\n%s\n%s\nfrom\n%s", name, a.describe(), b.describe(), printed)
		}
	}
}

// fileTree is a machine of files by their absolute paths.
type fileTree map[string]string

func (f fileTree) read(path string) ([]byte, error) {
	if text, ok := f[path]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

func TestMemoryLimit(t *testing.T) {
	const machine = "MemTotal:       1048576 kB\nMemFree: 5 kB\n"
	for name, c := range map[string]struct {
		files fileTree
		limit int64
		from  string
	}{
		"nothing is said":        {fileTree{}, 0, ""},
		"a machine":              {fileTree{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/\n"}, 1 << 30, "the machine's memory"},
		"a container":            {fileTree{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20, "the control group's limit"},
		"no limit":               {fileTree{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n"}, 1 << 30, "the machine's memory"},
		"a service in a slice":   {fileTree{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/system.slice/ragate.service\n", "/sys/fs/cgroup/system.slice/ragate.service/memory.max": "max\n", "/sys/fs/cgroup/system.slice/memory.max": "1000\n"}, 1000, "the control group's limit"},
		"the host's path":        {fileTree{"/proc/self/cgroup": "0::/kubepods/pod1/abc\n", "/sys/fs/cgroup/memory.max": "2000\n"}, 2000, "the control group's limit"},
		"version 1":              {fileTree{"/proc/meminfo": machine, "/proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n0::/x\n", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "3000\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 3000, "the control group's limit"},
		"more than the machine":  {fileTree{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "99999999999\n"}, 1 << 30, "the machine's memory"},
		"files that say nothing": {fileTree{"/proc/meminfo": "x\n", "/proc/self/cgroup": "y\n"}, 0, ""},
	} {
		if limit, from := memoryLimit(c.files.read); limit != c.limit || from != c.from {
			t.Errorf("%s: %d by %q, want %d by %q", name, limit, from, c.limit, c.from)
		}
	}
}

func TestJudgeMemory(t *testing.T) {
	const mb = 1 << 20
	both := []footprint{{34 * mb, "int8", "auto"}, {34 * mb, "int8", "auto"}}
	if got := inMB(expectedBytes(both)); got != 150+2*34*6 {
		t.Errorf("both default models: %d MB", got)
	}
	for name, c := range map[string]struct {
		f    footprint
		want int64
	}{
		"int8":           {footprint{34 * mb, "int8", "int8"}, 150 + 34*2},
		"fp32 of int8":   {footprint{34 * mb, "int8", "fp32"}, 150 + 34*8},
		"float32":        {footprint{400 * mb, "float32", "auto"}, 150 + 100*8},
		"float16":        {footprint{200 * mb, "float16", "fp32"}, 150 + 100*8},
		"bf16 of floats": {footprint{400 * mb, "float32", "bf16"}, 150 + 100*6},
	} {
		if got := inMB(expectedBytes([]footprint{c.f})); got != c.want {
			t.Errorf("%s: %d MB, want %d", name, got, c.want)
		}
	}
	for _, c := range []struct {
		files, expected, limit int64
		warn, refuse           bool
	}{
		{70, 500, 0, false, false}, {70, 500, 600, false, false}, {70, 500, 550, true, false}, {70, 500, 300, true, false}, {700, 5000, 600, false, true}, {600, 5000, 600, true, false},
	} {
		warning, err := judgeMemory(c.files*mb, c.expected*mb, c.limit*mb, "the control group's limit")
		var full *MemoryError
		if (warning != "") != c.warn || errors.As(err, &full) != c.refuse {
			t.Errorf("%+v: %q, %v", c, warning, err)
		}
		for _, word := range []string{fmt.Sprint(c.limit), "the control group's limit"} {
			if text := warning + fmt.Sprint(err); (c.warn || c.refuse) && !strings.Contains(text, word) {
				t.Errorf("%+v: %q lacks %q", c, text, word)
			}
		}
	}
}

func TestLimitsBeyondTheModels(t *testing.T) {
	short, long := models.Manifest{MaxTokens: 512}, models.Manifest{MaxTokens: 8192}
	for name, c := range map[string]struct {
		models    []chosen
		manifests map[int]models.Manifest
		want      []string // all in the error; none: no error
	}{
		"no limit":                     {[]chosen{{}}, map[int]models.Manifest{0: short}, nil},
		"at the limit":                 {[]chosen{{set: inference.Settings{MaxTokens: 512}}}, map[int]models.Manifest{0: short}, nil},
		"beyond the only model's":      {[]chosen{{set: inference.Settings{MaxTokens: 513}}}, map[int]models.Manifest{0: short}, []string{"--max-tokens (RAGATE_MAX_TOKENS) is 513", "more than 512", "0 for each model's limit"}},
		"between two models":           {[]chosen{{set: inference.Settings{MaxTokens: 2048}}, {set: inference.Settings{MaxTokens: 2048}}}, map[int]models.Manifest{0: short, 1: long}, nil},
		"beyond both":                  {[]chosen{{set: inference.Settings{MaxTokens: 9000}}, {set: inference.Settings{MaxTokens: 9000}}}, map[int]models.Manifest{0: short, 1: long}, []string{"is 9000", "more than 8192"}},
		"one model's own":              {[]chosen{{name: "a", where: "models[0]", ownTokens: true, set: inference.Settings{MaxTokens: 1024}}, {}}, map[int]models.Manifest{0: short, 1: long}, []string{"models[0]: max-tokens of a is 1024", "at most 512", "512 or less"}},
		"one model's own, the model's": {[]chosen{{name: "a", where: "models[0]", ownTokens: true}, {}}, map[int]models.Manifest{0: short, 1: long}, nil},
		"a model that is not there":    {[]chosen{{set: inference.Settings{MaxTokens: 9000}}}, nil, nil},
	} {
		l := lineup{models: c.models}
		order := make([]int, len(c.models))
		for i := range order {
			order[i] = i
		}
		err := l.checkTokens(order, c.manifests)
		if (err != nil) != (len(c.want) > 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, word := range c.want {
			if !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("%s: %v lacks %q", name, err, word)
			}
		}
	}
	l, problems := parse(t, "models:\n  - {name: a, kind: embedder, model: org/a, max-tokens: 128}\n  - {name: b, kind: embedder, model: org/b}\nmax-tokens: 256\n", nil).serve.lineup()
	if len(problems) > 0 || len(l.models) != 2 || !l.models[0].ownTokens || l.models[1].ownTokens {
		t.Errorf("%v, %+v", problems, l.models)
	}
}

func TestJudgeAttention(t *testing.T) {
	const mb = 1 << 20
	bge := attention{model: "bge-m3", provider: "cpu", heads: 16, limit: 8192, batch: 4096, streams: 2}
	if got := bge.bytes(); got != 2*8192*mb {
		t.Errorf("%d MB", inMB(got))
	}
	small := attention{model: "e5", provider: "cpu", heads: 12, limit: 512, batch: 4096, streams: 2}
	if got := small.bytes(); got != 384*mb { // 8 rows at once
		t.Errorf("%d MB", inMB(got))
	}
	elsewhere, unknown := bge, bge
	elsewhere.provider, unknown.heads = "openvino", 0
	for name, c := range map[string]struct {
		all   []attention
		limit int64
		warn  bool
	}{
		"too long":         {[]attention{small, bge}, 16000, true},
		"enough":           {[]attention{small, bge}, 24000, false},
		"no limit known":   {[]attention{bge}, 0, false},
		"another provider": {[]attention{elsewhere}, 1000, false},
		"heads not known":  {[]attention{unknown}, 1000, false},
		"short rows":       {[]attention{small}, 2000, false},
	} {
		got := judgeAttention(c.all, 1200*mb, c.limit*mb, "the machine's memory")
		if (got != "") != c.warn {
			t.Errorf("%s: %q", name, got)
		}
		for _, word := range []string{"8192 tokens", "16384 MB", "2 streams of bge-m3", "1200 MB", "the machine's memory is 16000 MB", "--max-tokens (RAGATE_MAX_TOKENS)"} {
			if c.warn && !strings.Contains(got, word) {
				t.Errorf("%s: %q lacks %q", name, got, word)
			}
		}
	}
}
