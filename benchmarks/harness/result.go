package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ragate/benchmarks"
)

// Schema names the JSON format. It changes when a field changes its meaning or goes away.
const Schema = "ragate.bench/1"

// Result is what a run found, with all that is needed to run it again.
type Result struct {
	Schema   string                 `json:"schema"`
	Time     time.Time              `json:"time"`
	Command  string                 `json:"command,omitempty"`
	Version  string                 `json:"version"` // of the program that measured
	Commit   string                 `json:"commit,omitempty"`
	Go       string                 `json:"go"`
	Runtime  string                 `json:"onnxruntime,omitempty"` // of the raw sessions, where they ran
	Machine  benchmarks.MachineInfo `json:"machine"`               // where the measuring ran
	Seed     uint64                 `json:"seed"`
	Settings Settings               `json:"settings"`
	Servers  []ServerFacts          `json:"servers"` // one, or the two that took turns
	Peaks    []benchmarks.Peak      `json:"peaks,omitempty"`
	Cases    []CaseResult           `json:"cases"`
}

// Settings are what the run was told.
type Settings struct {
	Rounds        int     `json:"rounds"`
	WindowSeconds float64 `json:"window_seconds"`
	WarmSeconds   float64 `json:"warm_seconds"` // before the first turn of a case
	RampSeconds   float64 `json:"ramp_seconds"` // before every window
	TimeoutSecs   float64 `json:"timeout_seconds"`
	BudgetMS      int     `json:"budget_ms"`
	Texts         string  `json:"texts"` // where they came from
}

// ServerFacts are what a server is, and what it says of itself.
type ServerFacts struct {
	Name    string                 `json:"name"`
	URL     string                 `json:"url"`
	Dialect string                 `json:"dialect"`
	Model   string                 `json:"model,omitempty"`   // that it was asked for
	Version string                 `json:"version,omitempty"` // from its /info
	Models  []benchmarks.ModelInfo `json:"models,omitempty"`  // from its /info
}

// CaseResult is one workload at one load.
type CaseResult struct {
	Workload string  `json:"workload"`
	Says     string  `json:"says"`
	Clients  int     `json:"clients,omitempty"` // closed loop
	Rate     float64 `json:"rate,omitempty"`    // open loop, requests per second
	Sides    []Side  `json:"sides"`             // in the order of Result.Servers
	// Ratios are the first server : the second, where there are two.
	Ratios []Ratio `json:"ratios,omitempty"`
	// RawTokens are what the raw session did at its best, between the server's turns, in tokens per second.
	RawTokens *Estimate `json:"raw_tokens_per_second,omitempty"`
	RawTurns  []float64 `json:"raw_turns,omitempty"`
	// OfRaw is the first server's share of that, turn by turn; OfPeak that of the machine's arithmetic peak.
	OfRaw  *Estimate `json:"of_raw,omitempty"`
	OfPeak float64   `json:"of_peak,omitempty"`
}

// Load says how requests came.
func (c CaseResult) Load() string { return Case{Clients: c.Clients, Rate: c.Rate}.load() }

// Ratio is one figure of two servers, or of two runs.
type Ratio struct {
	Metric string    `json:"metric"`
	Ratio  *Estimate `json:"ratio"`
	Better string    `json:"better"` // higher or lower
}

// Side is one server's part of a case.
type Side struct {
	Server   string         `json:"server"`
	Requests int            `json:"requests"` // due in a window and answered right
	Items    int            `json:"items"`
	Refused  int            `json:"refused"`           // answered 429
	Errors   map[string]int `json:"errors,omitempty"`  // by kind: connection, timeout, answer, status 500 …
	Example  string         `json:"example,omitempty"` // the first error's text
	Kinds    map[string]int `json:"kinds,omitempty"`   // answers by kind of decision
	Unscored int            `json:"unscored,omitempty"`

	Latency  Latency    `json:"latency_ms"`
	Spectrum []Quantile `json:"spectrum,omitempty"` // of the latency, for plots

	RequestsPerSecond *Estimate `json:"requests_per_second,omitempty"`
	TokensPerSecond   *Estimate `json:"tokens_per_second,omitempty"` // as the models see them, special tokens included
	UsageTokens       int       `json:"usage_tokens,omitempty"`      // that the server says it ran
	CountedTokens     int       `json:"counted_tokens"`              // of the same requests, as counted here
	CPUPerRequest     *Estimate `json:"cpu_seconds_per_request,omitempty"`
	PeakMB            int64     `json:"peak_rss_mb,omitempty"` // resident memory, at its most since the server began

	Rounds []Round `json:"rounds"`
}

// Failed is the number of requests without a right answer, refusals aside.
func (s Side) Failed() int {
	n := 0
	for _, v := range s.Errors {
		n += v
	}
	return n
}

// Latency is of right answers, in milliseconds, all rounds together.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Quantile is a point of the distribution.
type Quantile struct {
	Percent float64 `json:"percent"`
	MS      float64 `json:"ms"`
}

// Round is one turn.
type Round struct {
	Requests          int     `json:"requests"`
	Refused           int     `json:"refused,omitempty"`
	Failed            int     `json:"failed,omitempty"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	TokensPerSecond   float64 `json:"tokens_per_second"`
	P50               float64 `json:"p50_ms"`
	P95               float64 `json:"p95_ms"`
	P99               float64 `json:"p99_ms"`
	ServerCPU         float64 `json:"server_cpus"` // CPU seconds a second, children included
	ServerMB          int64   `json:"server_rss_mb,omitempty"`
	ClientCPU         float64 `json:"client_cpus"`
	OthersCPU         float64 `json:"others_cpus"` // of everything else on the machine, and what was stolen from it
}

// WriteFile keeps the result as JSON, in one step. It makes the folder where there is none.
func (r *Result) WriteFile(path string) error { return benchmarks.WriteJSON(path, r) }

// ReadFile reads what WriteFile wrote.
func ReadFile(path string) (*Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s has schema %q: this program reads %q, which ragate bench --json writes", filepath.Base(path), r.Schema, Schema)
	}
	return &r, nil
}
