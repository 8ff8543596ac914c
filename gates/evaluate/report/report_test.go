package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"ragate/gates/evaluate"
	"ragate/internal/page"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files")
	pages  = flag.String("pages", "", "a folder to write the pages to, for looking at them")
)

var none = math.NaN()

// hostile is a text as a data file may hold it: markup, a terminal's escape, a change of direction, broken UTF-8.
const hostile = "<script>alert(1)</script> \x1b[2J \u202e \xff & \"'`"

func queryTurns() []evaluate.QueryTurn {
	random := rand.New(rand.NewPCG(41, 0))
	var turns []evaluate.QueryTurn
	for i := range 1600 {
		t := evaluate.QueryTurn{Label: evaluate.Knowledge, Lang: []string{"en", "nl"}[i/3%2], Domain: fmt.Sprintf("topic %02d", i%17), Stage: "semantic", Score: random.NormFloat64()}
		if i%4 == 0 {
			t.Label, t.Domain, t.Score = evaluate.Chitchat, fmt.Sprintf("small talk %d", i%3), 2.5+random.NormFloat64()
		}
		t.Text = fmt.Sprintf("turn %d", i)
		t.Bypassed = t.Score >= 2.3
		if i%20 == 0 || i == 50 {
			t.Score, t.Stage, t.Bypassed = none, "pattern", true
		}
		turns = append(turns, t)
	}
	turns[1].Text, turns[1].Domain, turns[1].Bypassed, turns[1].Score = hostile, hostile, true, 9
	return turns
}

func chunkTurns() []evaluate.ChunkTurn {
	random := rand.New(rand.NewPCG(42, 0))
	var turns []evaluate.ChunkTurn
	for i := range 200 {
		t := evaluate.ChunkTurn{Query: fmt.Sprintf("query %d", i), Type: []string{"faq", "lookup", "broad", ""}[i%4], Threshold: 0.6}
		kept := 0
		for j := range 8 {
			grade := map[bool]int{true: random.IntN(3)}[j < 5]
			logit := random.NormFloat64()*2 + 2*float64(grade) - 2
			c := evaluate.Chunk{Grade: grade, Logit: logit, Relevance: 1 / (1 + math.Exp(-logit)), Similarity: 1 - float64(j)/10, Decision: evaluate.Dropped}
			if c.Relevance >= t.Threshold && kept < 5 {
				c.Decision = evaluate.Kept
				kept++
			}
			if j == 7 && i%5 == 0 {
				c = evaluate.Chunk{Grade: 1, Logit: none, Relevance: none, Similarity: 0.1, Decision: evaluate.Unscored}
			}
			t.Chunks = append(t.Chunks, c)
		}
		t.FallbackTriggered, t.Insufficient = kept < 2, kept == 0
		turns = append(turns, t)
	}
	return turns
}

// must fails the test on an error, and returns the value.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// reports are one of each kind.
func reports(t *testing.T) map[string]*Report {
	t.Helper()
	head := func(title string) *Report {
		return &Report{Title: title, Created: "2026-01-02T03:04:05Z", Command: "ragate eval --data turns.jsonl", Facts: []Fact{{Name: "Data", Value: "turns.jsonl, 1,600 turns"}, {Name: "Policy", Value: "default (8c1d)"}}}
	}
	q := head("Query gate")
	q.Query = must[*evaluate.QueryResult](t)(evaluate.Queries(queryTurns(), evaluate.QueryOptions{Examples: 5}))
	q.Advice = evaluate.AdviseQuery(q.Query)
	var pairs []evaluate.Pair
	for i := range 120 {
		after := map[bool]string{true: "bypass", false: "retrieve"}[i%9 == 0]
		pairs = append(pairs, evaluate.Pair{Kind: []string{"synonym", "framing"}[i%2], Label: "knowledge", Original: fmt.Sprint("turn ", i/3), Variant: fmt.Sprint("variant ", i), Before: "retrieve", After: after})
	}
	pairs[9].Variant = hostile
	q.Robustness = must[*evaluate.FlipResult](t)(evaluate.Flips(pairs, 0, 6))

	c := head("Chunk gate")
	c.Chunks = must[*evaluate.ChunkResult](t)(evaluate.Chunks(chunkTurns(), evaluate.ChunkOptions{TopK: 5, Examples: 5}))
	c.Advice = evaluate.AdviseChunks(c.Chunks)

	cal := head("Calibration of the query gate")
	cal.Calibration = must[*evaluate.Calibration](t)(evaluate.CalibrateQuery(queryTurns(), 0.05, evaluate.CalibrateOptions{Seed: 3}))

	recall := head("Calibration of the chunk gate")
	recall.Calibration = must[*evaluate.Calibration](t)(evaluate.CalibrateChunks(chunkTurns(), 0.8, evaluate.CalibrateOptions{}))

	ref := head("Refusal")
	_, err := evaluate.CalibrateQuery(queryTurns(), 0.001, evaluate.CalibrateOptions{})
	if !errors.As(err, &ref.Refused) {
		t.Fatal(err)
	}
	return map[string]*Report{"query": q, "chunks": c, "calibration": cal, "recall": recall, "refusal": ref, "empty": {}}
}

// golden compares with a file of testdata line by line; -update rewrites it.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := "testdata/" + file
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			at := func(lines []string) string {
				if i < len(lines) {
					return lines[i]
				}
				return "(end)"
			}
			t.Errorf("%s differs from line %d on (-update rewrites it)\ngot  %q\nwant %q", path, i+1, at(g), at(w))
			return
		}
	}
}

func TestText(t *testing.T) {
	for kind, r := range reports(t) {
		var b bytes.Buffer
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, kind+".txt", b.Bytes())
		for _, c := range b.String() {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Errorf("%s: the terminal gets %U", kind, c)
			}
		}
	}
}

// The JSON names are a promise: the golden file holds every path of every report, without the numbers.
func TestJSONNames(t *testing.T) {
	paths := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			for _, e := range v {
				walk(path+"[]", e)
			}
			if len(v) == 0 {
				paths[path+"[]"] = true
			}
		default:
			paths[path] = true
		}
	}
	all := reports(t)
	for _, r := range all {
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		walk("", v)
		var back Report
		if err := json.Unmarshal(b.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := back.WriteJSON(&again); err != nil {
			t.Fatal(err)
		}
		var second any
		if err := json.Unmarshal(again.Bytes(), &second); err != nil || !reflect.DeepEqual(v, second) {
			t.Errorf("the JSON does not read back as it was written (%v)", err)
		}
	}
	if all["query"].Schema != "" {
		t.Error("writing changed the report")
	}
	sorted := make([]string, 0, len(paths))
	for p := range paths {
		sorted = append(sorted, p)
	}
	slices.Sort(sorted)
	golden(t, "names.txt", []byte(strings.Join(sorted, "\n")+"\n"))
}

var (
	reference = regexp.MustCompile(`(?i)\b(src|href|srcset|action|poster|data|xlink:href)\s*=|url\(|@import|https?:|//[a-z]`)
	svgs      = regexp.MustCompile(`(?s)<svg .*?</svg>`)
	unknown   = regexp.MustCompile(`#[0-9A-F]{6}`)
	variables = regexp.MustCompile(`var\((--[a-z0-9]+)\)`)
)

func TestPage(t *testing.T) {
	charts := map[string]int{"query": 3, "chunks": 3, "calibration": 1, "recall": 1, "refusal": 1, "empty": 0}
	for kind, r := range reports(t) {
		var b, again bytes.Buffer
		if err := errors.Join(r.WriteHTML(&b), r.WriteHTML(&again)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Errorf("%s: two renderings differ", kind)
		}
		html := b.String()
		if *pages != "" {
			if err := os.WriteFile(*pages+"/"+kind+".html", b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if m := reference.FindString(html); m != "" {
			t.Errorf("%s: the page refers to something outside it: %q", kind, m)
		}
		if strings.Contains(html, "<script") || strings.ContainsRune(html, 0x1b) {
			t.Errorf("%s: the data's markup is live", kind)
		}
		found := svgs.FindAllString(html, -1)
		if len(found) != charts[kind] {
			t.Errorf("%s: %d charts, want %d", kind, len(found), charts[kind])
		}
		for _, svg := range found {
			if err := wellFormed(svg); err != nil {
				t.Errorf("%s: %v in %.120s", kind, err, svg)
			}
			if m := unknown.FindString(svg); m != "" {
				t.Errorf("%s: the fixed colour %s does not follow the theme", kind, m)
			}
			if !strings.Contains(svg, `role="img" aria-label="`) || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("%s: %.200s", kind, svg)
			}
		}
		light, dark, ok := strings.Cut(html, "prefers-color-scheme: dark")
		if !ok {
			t.Fatal("no dark scheme")
		}
		for _, v := range variables.FindAllStringSubmatch(html, -1) {
			if !strings.Contains(light, v[1]+":") || !strings.Contains(dark, v[1]+":") {
				t.Errorf("%s: %s is not defined for light and dark", kind, v[1])
			}
		}
	}
}

func wellFormed(s string) error {
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		if _, err := d.Token(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestTextIsAligned(t *testing.T) {
	r := reports(t)["query"]
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "  ") && len([]rune(line)) > 200 {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
	}
	if !strings.Contains(b.String(), "… and 9 more, which the JSON and the page have") {
		t.Error("the long table of domains was not cut")
	}
}

// Small and odd results must render too: one turn, one domain, no relevant chunk, all scores alike.
func TestOddReports(t *testing.T) {
	one := []evaluate.QueryTurn{{Text: "a", Label: evaluate.Knowledge, Score: 1}, {Text: "b", Label: evaluate.Chitchat, Score: 1}}
	chunkless := []evaluate.ChunkTurn{{Query: "q", Threshold: 0.5}}
	unscored := []evaluate.ChunkTurn{{Query: "q", Threshold: 0.5, Chunks: []evaluate.Chunk{{Grade: 1, Relevance: none, Logit: none, Similarity: none, Decision: evaluate.Unscored}}}}
	alike := []evaluate.ChunkTurn{{Query: "q", Chunks: []evaluate.Chunk{{Grade: -1, Relevance: 0.5, Decision: evaluate.Kept}}}}
	for name, r := range map[string]*Report{
		"two turns":  {Query: must[*evaluate.QueryResult](t)(evaluate.Queries(one, evaluate.QueryOptions{}))},
		"one turn":   {Query: must[*evaluate.QueryResult](t)(evaluate.Queries(one[:1], evaluate.QueryOptions{}))},
		"no chunk":   {Chunks: must[*evaluate.ChunkResult](t)(evaluate.Chunks(chunkless, evaluate.ChunkOptions{}))},
		"no score":   {Chunks: must[*evaluate.ChunkResult](t)(evaluate.Chunks(unscored, evaluate.ChunkOptions{}))},
		"all alike":  {Chunks: must[*evaluate.ChunkResult](t)(evaluate.Chunks(alike, evaluate.ChunkOptions{}))},
		"no curve":   {Refused: &evaluate.RefusedError{Reason: evaluate.NothingToGain}},
		"zero value": {Query: &evaluate.QueryResult{}, Chunks: &evaluate.ChunkResult{}, Robustness: &evaluate.FlipResult{}, Calibration: &evaluate.Calibration{}},
	} {
		var b bytes.Buffer
		if err := errors.Join(r.WriteHTML(&b), r.WriteText(io.Discard), r.WriteJSON(io.Discard)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, svg := range svgs.FindAllString(b.String(), -1) {
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("%s: a chart has a coordinate that is no number", name)
			}
		}
	}
}

// failing is a writer that breaks after some bytes.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return f.left, errors.New("disk full")
	}
	f.left -= len(p)
	return len(p), nil
}

func TestWriteErrorsAreReported(t *testing.T) {
	r := reports(t)["query"]
	for name, write := range map[string]func(io.Writer) error{"JSON": r.WriteJSON, "HTML": r.WriteHTML, "text": r.WriteText} {
		if err := write(&failing{left: 100}); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add(hostile)
	f.Add("gewone tekst, 日本語")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range page.Plain(s) {
			if !unicode.IsPrint(r) && r != '\u200c' && r != '\u200d' || r == unicode.ReplacementChar && !strings.ContainsRune(s, unicode.ReplacementChar) {
				t.Fatalf("%q reaches the terminal as %q", s, page.Plain(s))
			}
		}
		if ascii := page.Visible(s, 10); len([]rune(ascii)) > 10 {
			t.Fatalf("%q is %d characters long", ascii, len([]rune(ascii)))
		}
	})
}

func TestSameReportTwice(t *testing.T) {
	if !reflect.DeepEqual(reports(t)["chunks"], reports(t)["chunks"]) {
		t.Error("the same turns gave two reports")
	}
}
