package server

import "github.com/prometheus/client_golang/prometheus"

// CacheStats is what the engine's cache says of itself.
type CacheStats struct {
	Kinds            []CacheCounts
	Entries          int
	Bytes, MaxBytes  int64 // in process
	Evicted, Expired uint64
	Redis            *RedisStats // nil: in process alone
}

// CacheCounts are the look-ups of one kind of value: score, embedding or decision.
type CacheCounts struct {
	Kind                        string
	Hits, Shared, Misses, Joins uint64 // found in process, found in Redis, found nowhere; of the last, those that were not computed again
}

// RedisStats is how the shared part of the cache does.
type RedisStats struct {
	Address                            string // without the password
	Up                                 bool   // it is being asked
	LastError                          string
	Lookups, Timeouts, Errors, Skipped uint64
	Garbage, Written, Dropped          uint64
}

// cacheInfo is the cache in /info.
type cacheInfo struct {
	Entries  int        `json:"entries"`
	Bytes    int64      `json:"bytes"`
	MaxBytes int64      `json:"max_bytes"`
	Redis    *redisInfo `json:"redis,omitempty"`
}

type redisInfo struct {
	Address   string `json:"address"`
	Up        bool   `json:"up"`
	LastError string `json:"last_error,omitempty"`
}

func newCacheInfo(s *CacheStats) *cacheInfo {
	if s == nil {
		return nil
	}
	out := &cacheInfo{Entries: s.Entries, Bytes: s.Bytes, MaxBytes: s.MaxBytes}
	if r := s.Redis; r != nil {
		out.Redis = &redisInfo{r.Address, r.Up, r.LastError}
	}
	return out
}

// cacheGauges reads the cache when the metrics are scraped. Without a cache there are no series.
type cacheGauges struct {
	life                                                      *lifecycle
	lookups, entries, bytes, max, removed, up, redis, written *prometheus.Desc
}

func newCacheGauges(life *lifecycle) *cacheGauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ragate_cache_"+name, help, labels, nil)
	}
	return &cacheGauges{
		life: life,
		lookups: desc("lookups_total", "Look-ups by kind (score, embedding, decision) and result: hit (in process), shared (in Redis), miss, and joined: of the misses those that were being computed already.",
			"kind", "result"),
		entries: desc("entries", "Entries in process."),
		bytes:   desc("bytes", "Bytes of the entries in process, overhead included."),
		max:     desc("max_bytes", "Bytes that they may have."),
		removed: desc("removed_total", "Entries that went, by reason: evicted (no room) or expired.", "reason"),
		up:      desc("redis_up", "1 while Redis is asked; 0 after failures, until it is reached again."),
		redis: desc("redis_lookups_total", "Look-ups in Redis by result: sent, and of them timeout; error (writes too); skipped: not sent, as Redis was lost or too many waited; garbage: values that made no sense.",
			"result"),
		written: desc("redis_writes_total", "Values by what became of them: written, or dropped as Redis was lost, full or slow.", "result"),
	}
}

func (g *cacheGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.lookups, g.entries, g.bytes, g.max, g.removed, g.up, g.redis, g.written} {
		ch <- d
	}
}

func (g *cacheGauges) Collect(ch chan<- prometheus.Metric) {
	s := g.life.offered().cacheStats()
	if s == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, k := range s.Kinds {
		count(g.lookups, k.Hits, k.Kind, "hit")
		count(g.lookups, k.Shared, k.Kind, "shared")
		count(g.lookups, k.Misses, k.Kind, "miss")
		count(g.lookups, k.Joins, k.Kind, "joined")
	}
	gauge(g.entries, float64(s.Entries))
	gauge(g.bytes, float64(s.Bytes))
	gauge(g.max, float64(s.MaxBytes))
	count(g.removed, s.Evicted, "evicted")
	count(g.removed, s.Expired, "expired")
	r := s.Redis
	if r == nil {
		return
	}
	up := 0.0
	if r.Up {
		up = 1
	}
	gauge(g.up, up)
	for result, n := range map[string]uint64{"sent": r.Lookups, "timeout": r.Timeouts, "error": r.Errors, "skipped": r.Skipped, "garbage": r.Garbage} {
		count(g.redis, n, result)
	}
	count(g.written, r.Written, "written")
	count(g.written, r.Dropped, "dropped")
}
