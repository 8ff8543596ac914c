package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ragate/benchmarks/harness"
	"ragate/internal/testenv"
)

// benchRun is one call of the command.
func benchRun(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(append([]string{"bench"}, args...), streams{strings.NewReader(""), &o, &e})
	return code, o.String(), e.String()
}

// A program that is started, measured in turns with another, and ended; its results are read again and compared.
func TestBenchFromStartToComparison(t *testing.T) {
	store, dir := testenv.Store(t), t.TempDir()
	program, result, html, compared := testenv.Program(t), filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html"), filepath.Join(dir, "c.html")
	texts := filepath.Join(dir, "mine")
	if err := os.Mkdir(texts, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"corpus.jsonl":  `{"_id":"1","title":"","text":"the flow over a thin plate at an angle of attack was measured in a tunnel"}` + "\n" + `{"_id":"2","text":"heat transfer to a blunt body"}` + "\n",
		"queries.jsonl": `{"_id":"1","text":"how is lift measured"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(texts, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := benchRun("--data-dir", store, "--start", program, "--against-start", program, "--against-serve-args=--streams 1", "--workload", "embed-query", "--clients", "1,2",
		"--rounds", "2", "--window", "50ms", "--warm", "20ms", "--texts", texts, "--json", result, "--html", html)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"embed-query, 1 client", "embed-query, 2 clients", "A : B, turn by turn", "share of the raw session", "mine, 2 passages and 1 queries", "1 streams of"} {
		if !strings.Contains(out, want) {
			t.Errorf("the text lacks %q:\n%s", want, out)
		}
	}
	r, err := harness.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 2 || len(r.Cases[0].Sides) != 2 || len(r.Cases[0].Ratios) < 3 || r.Cases[0].OfRaw == nil || r.Seed != harness.DefaultSeed || r.Version != version ||
		r.Machine.CPUs < 1 || r.Runtime == "" || len(r.Servers) != 2 || r.Servers[1].Models[0].Streams != 1 || r.Cases[1].Sides[1].PeakMB < 100 || r.Cases[0].Sides[0].CPUPerRequest == nil {
		t.Errorf("%+v", r)
	}
	if page, err := os.ReadFile(html); err != nil || !bytes.Contains(page, []byte("<svg ")) {
		t.Errorf("the page: %v", err)
	}
	code, out, errs = benchRun("compare", result, result, "--html", compared)
	if code != exitOK || !strings.Contains(out, "no difference seen") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if page, err := os.ReadFile(compared); err != nil || !bytes.Contains(page, []byte("first : second")) {
		t.Errorf("the page: %v", err)
	}
}

func TestBenchRefuses(t *testing.T) {
	store, text := testenv.Store(t), filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	url := "http://127.0.0.1:9"
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "nothing to measure"},
		{"--url localhost:8080", "--url"},
		{"--url " + url + " --start x", "not both"},
		{"--url " + url + " --against-url x", "--against-url"},
		{"--url " + url + " --dialect soap", "there is no dialect"},
		{"--url " + url + " --against-url " + url + " --against-dialect soap", "--against-dialect"},
		{"--url " + url + " --workload nothing", "there is no workload"},
		{"--url " + url + " --workload gate-query-mix --dialect tei", "cannot be asked in dialect tei"},
		{"--url " + url + " --rate 3 --clients 2", "not both"},
		{"--url " + url + " --rate=-1", "more than 0"},
		{"--url " + url + " --clients 0", "0 clients"},
		{"--url " + url + " --rounds 0", "0 rounds"},
		{"--url " + url + " --serve-args=--streams", "for --start"},
		{"--url " + url + " --dialect tei --ceiling on", "--ceiling on"},
		{"--start x --dialect tei", "--start starts ragate"},
		{"--url " + url + " --key-file /no/such/file", "--key-file"},
		{"compare " + text + " " + text, "schema"},
		{"compare /no/such/file " + text, "no such file"},
	} {
		args := strings.Fields(c.args)
		if len(args) == 0 || args[0] != "compare" {
			args = append(args, "--data-dir", store)
		}
		if code, _, errs := benchRun(args...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("bench %s: exit code %d, %q; want %d and %q", c.args, code, errs, exitUsage, c.want)
		}
	}
	// A server that is not there is no matter of usage, nor one that is another, or says nothing.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }))
	defer other.Close()
	end := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer silent.Close()
	defer close(end)
	for _, c := range []struct{ args, want string }{
		{"--url " + url, "--url: Get"}, {"--url " + url, "refused"}, {"--url " + other.URL, "--dialect"}, {"--url " + silent.URL + " --timeout 50ms", "deadline"},
		{"--url " + other.URL + " --dialect tei --workload embed-query", "/embed (dialect tei)"}, {"--start /no/such/program", "the server to start"}, {"--start /bin/true", "without an error); its log: nothing"},
	} {
		if code, _, errs := benchRun(append(strings.Fields(c.args), "--data-dir", store)...); code != exitFailure || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, %q; want %q", c.args, code, errs, c.want)
		}
	}
}

func TestTheKeyIsNotInTheResult(t *testing.T) {
	old := os.Args
	defer func() { os.Args = old }()
	os.Args = []string{"ragate", "bench", "--key", "secret-1", "--against-key=secret-2"}
	c := benchRunCmd{benchTarget: benchTarget{Key: "secret-1"}, Against: benchTarget{Key: "secret-2"}}
	if got := c.commandLine(); got != "ragate bench --key … --against-key=…" {
		t.Errorf("%q", got)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("secret-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Args = []string{"ragate", "bench", "--serve-args=--api-key secret-3", "--key-file=" + file}
	c = benchRunCmd{benchTarget: benchTarget{KeyFile: file}}
	if got := c.commandLine(); strings.Contains(got, "secret-3") {
		t.Errorf("%q", got)
	}
	x, err := benchTarget{URL: "http://h/", Dialect: "tei", Key: "k", KeyHeader: "x-api-key"}.target("A", "--")
	if err != nil || x.URL != "http://h" || x.Header.Get("X-API-Key") != "k" {
		t.Errorf("%+v, %v", x, err)
	}
	if x, err = (benchTarget{URL: "http://h", Dialect: "tei", Key: "k", KeyHeader: "Authorization"}).target("A", "--"); err != nil || x.Header.Get("Authorization") != "Bearer k" {
		t.Errorf("%+v, %v", x, err)
	}
}
