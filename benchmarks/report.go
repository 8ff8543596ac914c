package benchmarks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ReportSchema is the number of the JSON's layout; it changes when a field changes its meaning.
const ReportSchema = 1

// Report is what a run found, with all that is needed to run it again.
type Report struct {
	Schema   int            `json:"schema"`
	Time     time.Time      `json:"time"`
	Version  string         `json:"version"` // of the server: tag or commit
	Go       string         `json:"go"`
	Runtime  string         `json:"onnxruntime"`
	Machine  MachineInfo    `json:"machine"`
	Seed     uint64         `json:"seed"`
	Settings map[string]any `json:"settings"`
	Models   []ModelInfo    `json:"models"`
	Results  []Result       `json:"results"`
}

// MachineInfo is where it ran.
type MachineInfo struct {
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"`           // that this process may use
	BF16     []string `json:"bf16,omitempty"` // which of AMX and avx512_bf16 it has
	MemoryMB int64    `json:"memory_mb"`
	Kernel   string   `json:"kernel"`
}

// Result is one figure: the median of its rounds.
type Result struct {
	Section string    `json:"section"`
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Rounds  []float64 `json:"rounds"`
	Goal    string    `json:"goal,omitempty"` // as in ">= 0.9"
}

// NewReport fills in what is known before anything ran.
func NewReport(seed uint64) *Report {
	r := &Report{Schema: ReportSchema, Time: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), Seed: seed, Settings: map[string]any{}}
	r.Machine = Machine()
	return r
}

// Machine looks at where this process runs.
func Machine() MachineInfo {
	m := MachineInfo{CPUs: runtime.GOMAXPROCS(0), CPU: runtime.GOARCH}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			key, value, _ := strings.Cut(s.Text(), ":")
			switch strings.TrimSpace(key) {
			case "model name":
				m.CPU = strings.TrimSpace(value)
			case "flags":
				m.BF16 = nil
				for _, f := range strings.Fields(value) {
					if f == "amx_bf16" || f == "avx512_bf16" {
						m.BF16 = append(m.BF16, f)
					}
				}
			}
		}
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		m.MemoryMB = int64(uint64(si.Totalram) * uint64(si.Unit) >> 20)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// Add appends a figure. goal is "" or a comparison with a number, as in ">= 0.9". Rounds that are not numbers (a division by
// nothing) are an error of the caller's and shown as such.
func (r *Report) Add(section, name, unit, goal string, rounds []float64) {
	r.Results = append(r.Results, Result{
		Section: section, Name: name, Unit: unit, Goal: goal, Rounds: rounds,
		Median: Median(rounds), Min: slices.Min(rounds), Max: slices.Max(rounds),
	})
}

// Met says whether the figure reaches its goal; true without one.
func (x Result) Met() (bool, error) {
	if x.Goal == "" {
		return true, nil
	}
	var op string
	var v float64
	if _, err := fmt.Sscan(x.Goal, &op, &v); err != nil {
		return false, fmt.Errorf("goal %q of %s: %w", x.Goal, x.Name, err)
	}
	switch op {
	case ">=":
		return x.Median >= v, nil
	case "<=":
		return x.Median <= v, nil
	}
	return false, fmt.Errorf("goal %q of %s: it begins with neither >= nor <=", x.Goal, x.Name)
}

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "ragate %s, %s, ONNX Runtime %s, seed %d, %s\n", r.Version, r.Go, r.Runtime, r.Seed, r.Time.Format(time.RFC3339))
	fmt.Fprintf(w, "%s %s, %d CPUs, %d MB, Linux %s\n", m.CPU, strings.Join(m.BF16, "+"), m.CPUs, m.MemoryMB, m.Kernel)
	for _, x := range r.Models {
		fmt.Fprintf(w, "%s: %s, %s, %d streams of %d threads\n", x.ID, x.Provider, x.Precision, x.Streams, x.Threads)
	}
	section := ""
	for _, x := range r.Results {
		if x.Section != section {
			section = x.Section
			fmt.Fprintf(w, "\n%-66s %10s  %s\n", section, "median", "lowest to highest round")
		}
		met, err := x.Met()
		if err != nil {
			return err
		}
		goal := ""
		if x.Goal != "" {
			verdict := "reached"
			if !met {
				verdict = "MISSED"
			}
			goal = fmt.Sprintf("   goal %s: %s", x.Goal, verdict)
		}
		fmt.Fprintf(w, "  %-64s %10s  %s to %s %s%s\n", x.Name, Digits(x.Median), Digits(x.Min), Digits(x.Max), x.Unit, goal)
	}
	return nil
}

// Digits writes three digits that matter, and no exponent where a person would write none.
func Digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1 || a == 0:
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// Write keeps the report as JSON, in one step. It makes the folder where there is none.
func (r *Report) Write(path string) error { return WriteJSON(path, r) }

// WriteJSON writes figures to a file in one step, so that there is never half of it, and makes its folder where there is none.
func WriteJSON(path string, figures any) error {
	b, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Median of at least one value; of an even number the mean of the middle two.
func Median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Mean is the arithmetic mean of v, which must not be empty.
func Mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
