package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"ragate/inference"
)

// What operators and orchestrators ask: /health, /ready, /metrics, /info. None of them touches the models or waits for work.

// health says that the process answers. It looks at nothing else, so that a busy server is never killed for being busy.
func (s *Server) health(x *exchange) error {
	x.send(http.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}

// ready says whether work is accepted, and if not why.
func (s *Server) ready(x *exchange) error {
	_, p, reason := s.life.now()
	if p == phaseReady {
		x.send(http.StatusOK, []byte(`{"status":"ready"}`))
		return nil
	}
	r := s.refusePhase(p, reason)
	if p == phaseDraining {
		reason = "the server is shutting down"
	}
	b := append(make([]byte, 0, 512), `{"status":`...)
	b = appendString(b, p.String())
	b = append(b, `,"reason":`...)
	b = appendString(b, reason)
	b = append(b, `,"error":`...)
	b = r.appendObject(b)
	x.w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(r.retryAfter), 10))
	x.send(http.StatusServiceUnavailable, append(b, '}'))
	return nil
}

func (s *Server) serveMetrics(x *exchange) error {
	x.writeBy()
	s.metrics.handler.ServeHTTP(x.w, x.r)
	return nil
}

// teiInfo holds the fields of TEI's /info under TEI's names, for the model that serves its routes, then this server's own.
type teiInfo struct {
	ModelID   string         `json:"model_id"`
	ModelSHA  *string        `json:"model_sha"` // the revision, as in TEI
	ModelType map[string]any `json:"model_type"`
	DType     string         `json:"model_dtype"`

	MaxConcurrentRequests int    `json:"max_concurrent_requests"` // requests of full length that the queue holds
	MaxInputLength        int    `json:"max_input_length"`
	MaxBatchTokens        int    `json:"max_batch_tokens"`
	MaxBatchRequests      *int   `json:"max_batch_requests"` // null: batches are bounded by tokens alone
	MaxClientBatchSize    int    `json:"max_client_batch_size"`
	AutoTruncate          bool   `json:"auto_truncate"`
	Version               string `json:"version"`

	Status string      `json:"status"`
	Limits limitsInfo  `json:"limits"`
	Models []modelInfo `json:"models"`
	Gates  gatesInfo   `json:"gates"`
	Memory *memoryInfo `json:"memory,omitempty"`
	Cache  *cacheInfo  `json:"cache,omitempty"`
}

// gatesInfo says which models the gates use. null: the query gate decides by patterns alone, or there is no chunk gate.
type gatesInfo struct {
	Query struct {
		Embedder *string `json:"embedder"`
	} `json:"query"`
	Chunks struct {
		Reranker *string `json:"reranker"`
	} `json:"chunks"`
}

func newGatesInfo(g Gates) gatesInfo {
	var out gatesInfo
	if g.Embedder != "" {
		out.Query.Embedder = &g.Embedder
	}
	if g.Reranker != "" {
		out.Chunks.Reranker = &g.Reranker
	}
	return out
}

// memoryInfo is the process's memory in units of 2^20 bytes.
type memoryInfo struct {
	ResidentMB int64 `json:"resident_mb"`
}

type limitsInfo struct {
	MaxBodyBytes    int64 `json:"max_body_bytes"`
	MaxItems        int   `json:"max_items"`
	MaxDocuments    int   `json:"max_documents"`
	MaxQueuedTokens int   `json:"max_queued_tokens,omitempty"`
}

type modelInfo struct {
	ID              string            `json:"id"`
	Aliases         []string          `json:"aliases,omitempty"`
	Source          string            `json:"source"`
	Kind            inference.Kind    `json:"kind"`
	Default         bool              `json:"default"` // it serves requests that name no model
	Revision        string            `json:"revision,omitempty"`
	SHA256          string            `json:"sha256"`
	Languages       []string          `json:"languages"` // empty: not stated
	Dimensions      int               `json:"dimensions,omitempty"`
	MaxTokens       int               `json:"max_tokens"`
	Pooling         string            `json:"pooling,omitempty"`
	Prompts         map[string]string `json:"prompts,omitempty"`
	Provider        string            `json:"provider"` // the one that runs
	Precision       string            `json:"precision"`
	DType           string            `json:"dtype"`
	Streams         int               `json:"streams"`
	Threads         int               `json:"threads"`
	BatchTokens     int               `json:"max_batch_tokens"`
	MemoryMB        int64             `json:"memory_mb,omitempty"` // by which the process grew while it was loaded
	BatchInvariance drift             `json:"batch_invariance"`
	Fidelity        *drift            `json:"fidelity,omitempty"`
	Warnings        []string          `json:"warnings"`
}

// drift is how far an answer was seen to move when other texts shared its batch; of the first two the one of the model's kind.
type drift struct {
	MaxLogit  *float64 `json:"max_logit,omitempty"`
	MinCosine *float64 `json:"min_cosine,omitempty"`
	Rows      int      `json:"rows"`
}

func newDrift(k inference.Kind, from inference.Drift) drift {
	d := drift{Rows: from.Rows}
	if k == inference.KindReranker {
		d.MaxLogit = &from.MaxLogit
	} else {
		d.MinCosine = &from.MinCosine
	}
	return d
}

// newFidelity is how far the answers are from float32's on the cpu provider; nil where that was not measured.
func newFidelity(i inference.Info) *drift {
	if i.Fidelity.Rows == 0 {
		return nil
	}
	d := newDrift(i.Kind, i.Fidelity)
	return &d
}

// isDefault says whether the model at that place is the first of its kind.
func isDefault(models []loaded, at int) bool {
	return !slices.ContainsFunc(models[:at], func(m loaded) bool { return m.info.Kind == models[at].info.Kind })
}

// inMB is a number of bytes in units of 2^20.
func inMB(bytes int64) int64 { return (bytes + 1<<19) >> 20 }

func (s *Server) info(x *exchange) error {
	models, p, reason := s.life.now()
	if len(models) == 0 {
		return s.refusePhase(p, reason)
	}
	stats, _ := s.life.snapshot()
	main := models[0]
	for _, m := range models {
		if m.info.Kind == inference.KindEmbedder {
			main = m
			break
		}
	}
	out := teiInfo{
		ModelID:               main.info.ID,
		ModelType:             map[string]any{"embedding": map[string]string{"pooling": main.info.Pooling}},
		DType:                 main.info.DType,
		MaxConcurrentRequests: max(1, stats.MaxQueuedTokens/max(1, main.maxTokens(s.cfg.MaxTokens))),
		MaxInputLength:        main.maxTokens(s.cfg.MaxTokens),
		MaxBatchTokens:        main.info.BatchTokens,
		MaxClientBatchSize:    s.cfg.MaxItems,
		AutoTruncate:          s.cfg.Truncate,
		Version:               s.cfg.Version,
		Status:                p.String(),
		Limits: limitsInfo{
			MaxBodyBytes:    s.cfg.MaxBodyBytes,
			MaxItems:        s.cfg.MaxItems,
			MaxDocuments:    s.cfg.MaxDocuments,
			MaxQueuedTokens: stats.MaxQueuedTokens,
		},
	}
	e := s.life.offered()
	out.Cache, out.Gates = newCacheInfo(e.cacheStats()), newGatesInfo(e.Gates)
	if e.Resident != nil {
		if n := e.Resident(); n > 0 {
			out.Memory = &memoryInfo{inMB(n)}
		}
	}
	if main.info.Revision != "" {
		out.ModelSHA = &main.info.Revision
	}
	if main.info.Kind == inference.KindReranker {
		out.ModelType = map[string]any{"reranker": map[string]any{"id2label": map[string]string{"0": "LABEL_0"}, "label2id": map[string]int{"LABEL_0": 0}}}
	}
	for at, m := range models {
		i := m.Info()
		out.Models = append(out.Models, modelInfo{
			ID: i.ID, Aliases: i.Aliases, Source: i.Source, Kind: i.Kind, Default: isDefault(models, at), MemoryMB: inMB(i.Memory), Revision: i.Revision, SHA256: i.SHA256, Languages: append([]string{}, i.Languages...),
			Dimensions: i.Dimensions, MaxTokens: m.maxTokens(s.cfg.MaxTokens), Pooling: i.Pooling, Prompts: i.Prompts,
			Provider: i.Provider, Precision: i.Precision, DType: i.DType, Streams: i.Streams, Threads: i.Threads, BatchTokens: i.BatchTokens,
			BatchInvariance: newDrift(i.Kind, i.Drift), Fidelity: newFidelity(i), Warnings: append([]string{}, i.Warnings...),
		})
	}
	b, err := json.Marshal(out)
	if err != nil { // a drift that is not finite
		return fmt.Errorf("describing the models: %w", err)
	}
	x.send(http.StatusOK, b)
	return nil
}
