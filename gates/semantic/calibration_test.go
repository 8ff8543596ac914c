package semantic

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// calibratedFile is minimal with the methods given.
func calibratedFile(methods string) string {
	head, rest, _ := strings.Cut(minimal, "methods:\n")
	_, rest, _ = strings.Cut(rest, "categories:\n")
	return head + methods + "categories:\n" + rest
}

const twoCalibrations = `methods:
  default: contrast
  calibrations:
    - calibrated_for: first-model
      contrast: {threshold: 0.1}
    - calibrated_for: second-model
      contrast: {threshold: 0.2}
      top1: {threshold: 0.9}
`

func TestCalibrations(t *testing.T) {
	s := parse(t, calibratedFile(twoCalibrations))
	if s.CalibratedFor != "first-model" || !slices.Equal(s.Embedders(), []string{"first-model", "second-model"}) {
		t.Errorf("calibrated for %q, of %q", s.CalibratedFor, s.Embedders())
	}
	for _, c := range []struct {
		names     []string
		embedder  string
		threshold float64
		ok        bool
	}{
		{[]string{"first-model"}, "first-model", 0.1, true},
		{[]string{"org/second-model", "Second-Model"}, "second-model", 0.2, true},
		{[]string{"third"}, "first-model", 0.1, false},
		{nil, "first-model", 0.1, false},
	} {
		got, ok := s.For(c.names...)
		m, err := got.Method("")
		if ok != c.ok || err != nil || got.CalibratedFor != c.embedder || m.Threshold != c.threshold {
			t.Errorf("%q: %t, %q, %+v, %v", c.names, ok, got.CalibratedFor, m, err)
		}
	}
	if _, err := s.Method(Top1); err == nil {
		t.Error("the first calibration has the second's top1")
	}
	second, _ := s.For("second-model")
	if _, err := second.Method(Top1); err != nil || s.CalibratedFor != "first-model" {
		t.Errorf("%v; the set itself is calibrated for %q now", err, s.CalibratedFor)
	}
	if a, b := s.Fingerprint("m"), second.Fingerprint("m"); a != b {
		t.Error("another calibration asks for other vectors")
	}

	// A file that names no embedder has numbers for all.
	if s, ok := parse(t, minimal).For("anything"); !ok || s.CalibratedFor != "" || s.Embedders() != nil {
		t.Errorf("%t, %q, %q", ok, s.CalibratedFor, s.Embedders())
	}
	// The short form is one calibration.
	one := parse(t, strings.Replace(minimal, "default: contrast", "default: contrast\n  calibrated_for: only", 1))
	if _, ok := one.For("only"); !ok || one.CalibratedFor != "only" {
		t.Errorf("%t, %q", ok, one.CalibratedFor)
	}
	if _, ok := one.For("other"); ok {
		t.Error("the only calibration is for another embedder too")
	}
}

func TestCalibrationErrors(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no name", "calibrated_for: second-model\n      contrast", "contrast", "calibration 2: calibrated_for is missing"},
		{"twice", "second-model", "first-model", "calibration 2: there is one for first-model already"},
		{"no default", "contrast: {threshold: 0.2}", "margin: {threshold: 0.2}", `calibration 2: default is "contrast"`},
		{"a bad number", "threshold: 0.2", "threshold: 20", "calibration 2: contrast: threshold 20 is outside"},
		{"a method beside", "  calibrations:", "  top1: {threshold: 0.5}\n  calibrations:", "move it into a calibration"},
		{"an unknown field", "calibrated_for: second-model", "calibrated_by: second-model", "field calibrated_by not found"},
	} {
		data := strings.Replace(twoCalibrations, c.from, c.to, 1)
		if data == twoCalibrations {
			t.Fatalf("%s changes nothing", c.name)
		}
		s, err := Parse([]byte(calibratedFile(data)))
		var errs Errors
		if s != nil || !errors.As(err, &errs) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestRecalibrate: an embedder that the file does not know gets numbers in its own similarities, from the references alone. Here one whose
// similarities differ a fifth as much as the fixture's: the file's own numbers would bypass little.
func TestRecalibrate(t *testing.T) {
	set := defaultSet(t)
	v := fixture(t)
	// A constant direction of its own in every vector takes all similarities nearer to each other, as other models have them.
	squeezed := vectors{dim: v.dim + 1, rows: map[[8]byte][]float32{}}
	for h, row := range v.rows {
		out := make([]float32, v.dim+1)
		for i, x := range row {
			out[i] = x * float32(math.Sqrt(0.2))
		}
		out[v.dim] = float32(math.Sqrt(0.8))
		squeezed.rows[h] = out
	}
	x, err := squeezed.index(t, set).Recalibrate("squeezed")
	if err != nil {
		t.Fatal(err)
	}
	file, err := set.Method("")
	if err != nil {
		t.Fatal(err)
	}
	found, err := x.Set().Method("")
	if err != nil {
		t.Fatal(err)
	}
	if x.Set().CalibratedFor != "squeezed" || found.Threshold != carefulThreshold {
		t.Errorf("calibrated for %q, threshold %v", x.Set().CalibratedFor, found.Threshold)
	}
	var n, byFile, byFound, wrong int
	for _, m := range readMessages(t, "testdata/eval.jsonl") {
		f := x.Features(Query{Text: m.Text, Vector: squeezed.of(t, m.Text)})
		if m.Label != "chitchat" {
			if found.Decide(f).Bypass {
				wrong++
			}
			continue
		}
		n++
		if file.Decide(f).Bypass {
			byFile++
		}
		if found.Decide(f).Bypass {
			byFound++
		}
	}
	t.Logf("of %d chitchat turns %d bypass by the file's numbers, %d by those found; %d questions", n, byFile, byFound, wrong)
	if byFound < n*6/10 || byFile*3 > byFound*2 || wrong > 2 {
		t.Errorf("of %d chitchat turns %d bypass by the file's numbers, %d by those found; %d questions", n, byFile, byFound, wrong)
	}

	// A set without the combined method has the others set anew.
	plain := parse(t, strings.Replace(minimal, "  combined: {threshold: 0.9, top_k: 2, intercept: -1, weights: {top1: 2, novel_words: -1}}\n", "", 1))
	again, err := plane(t, plain, 0, 10, 40, 60, 90).Recalibrate("m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Set().Method(Combined); err == nil {
		t.Error("a method came that the file does not define")
	}
	if m, err := again.Set().Method(Contrast); err != nil || m.Threshold == 0.1 {
		t.Errorf("%+v, %v", m, err)
	}
}
