package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"sync"

	"ragate/inference"
)

// measurements remembers self-test results in a JSON file, so that a second start need not repeat them. Losing the file costs
// a second of start-up, so every fault of it is treated as having no memory, and said.
type measurements struct {
	path string
	log  *slog.Logger
	mu   sync.Mutex
}

func newMeasurements(path string, log *slog.Logger) *measurements {
	return &measurements{path: path, log: log}
}

func (m *measurements) read() map[string]inference.Measured {
	all := map[string]inference.Measured{}
	if b, err := os.ReadFile(m.path); err == nil {
		if json.Unmarshal(b, &all) != nil || all == nil { // nil: the file says null
			all = map[string]inference.Measured{}
		}
	}
	return all
}

// Recall implements inference.Memory.
func (m *measurements) Recall(key string) (inference.Measured, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.read()[key]
	return v, ok
}

// Remember implements inference.Memory. The file is replaced in one step; of two processes that write at once one wins.
func (m *measurements) Remember(key string, v inference.Measured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.read()
	all[key] = v
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return
	}
	if err := replaceFile(m.path, append(b, '\n')); err != nil {
		m.log.Warn("the self-test's result cannot be kept: the next start repeats it", "error", err.Error())
	}
}
