package benchmarks

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReportPrintsAndKeepsTheSameFigures(t *testing.T) {
	r := NewReport(42)
	r.Version, r.Runtime = "v1", "1.24.1"
	r.Models = []ModelInfo{{ID: "org/name", Provider: "cpu", Precision: "fp32", Streams: 2, Threads: 1}}
	r.Add("A", "ratio", "", ">= 0.9", []float64{0.95, 0.85, 0.91})
	r.Add("A", "padding", "", "<= 0.08", []float64{0.1})
	r.Add("B", "rate", "tokens/s", "", []float64{5000, 6000})
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ragate v1", "seed 42", "org/name: cpu, fp32, 2 streams of 1 threads", "0.910  0.850 to 0.950    goal >= 0.9: reached",
		"goal <= 0.08: MISSED", "5500  5000 to 6000 tokens/s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	path := filepath.Join(t.TempDir(), "r.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if back.Schema != ReportSchema || back.Seed != 42 || len(back.Results) != 3 || back.Results[0].Median != 0.91 ||
		back.Machine.CPUs < 1 || back.Machine.CPU == "" || back.Machine.MemoryMB < 100 || back.Machine.Kernel == "" {
		t.Errorf("read back: %+v", back)
	}
}

func TestAnUnreadableGoalIsAnError(t *testing.T) {
	for _, goal := range []string{"about 3", ">= x", "> 1"} {
		if _, err := (Result{Goal: goal}).Met(); err == nil {
			t.Errorf("goal %q was taken", goal)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{7, 1, 3}, 3}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := Median(c.v); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.v, got, c.want)
		}
	}
}
