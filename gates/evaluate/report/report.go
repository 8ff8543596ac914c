package report

import (
	"encoding/json"
	"io"

	"ragate/gates/evaluate"
	"ragate/internal/page"
)

// Schema names the JSON format. It changes when a field changes its meaning or goes away.
const Schema = "ragate.report/1"

// Report is one evaluation or calibration. Every part may be absent.
type Report struct {
	// Schema is set by WriteJSON.
	Schema string `json:"schema"`
	Title  string `json:"title"`
	// Created is when the report was made, as it is to be shown; Command what made it.
	Created string `json:"created,omitempty"`
	Command string `json:"command,omitempty"`
	// Facts say what was measured: data, policy and fingerprint, models, settings.
	Facts []Fact `json:"facts,omitempty"`

	Advice      []evaluate.Advice      `json:"advice,omitempty"`
	Query       *evaluate.QueryResult  `json:"query,omitempty"`
	Chunks      *evaluate.ChunkResult  `json:"chunks,omitempty"`
	Robustness  *evaluate.FlipResult   `json:"robustness,omitempty"`
	Calibration *evaluate.Calibration  `json:"calibration,omitempty"`
	Refused     *evaluate.RefusedError `json:"refused,omitempty"`
}

// Fact is a name and a value.
type Fact = page.Fact

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	out := *r
	out.Schema = Schema
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
