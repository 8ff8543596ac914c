package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"ragate/cache"
	"ragate/inference"
	"ragate/reuse"
	"ragate/server"
)

// cacheFlags say what is kept so that it need not be computed twice.
type cacheFlags struct {
	ScoreCache   string        `name:"score-cache" env:"RAGATE_SCORE_CACHE" default:"on" secret:"" placeholder:"WHERE" help:"Keep scores, vectors and gate decisions: on (in this process), off, or the URL of a Redis or Valkey that servers share beside that (redis://, rediss:// or unix://). ('${default}')"`
	CacheBytes   int64         `name:"cache-bytes" env:"RAGATE_CACHE_BYTES" range:"1048576.." default:"67108864" placeholder:"N" help:"Bytes of what is kept in this process, overhead included. ('${default}')"`
	CacheTTL     time.Duration `name:"cache-ttl" env:"RAGATE_CACHE_TTL" range:"1ms.." default:"1h" placeholder:"TIME" help:"How long it is kept. ('${default}')"`
	CachePerKey  bool          `name:"cache-per-key" env:"RAGATE_CACHE_PER_KEY" help:"Keep the answers of each API key (without keys, each address) apart: otherwise the time of an answer can tell one client that another sent this very text."`
	CacheTimeout time.Duration `name:"cache-timeout" env:"RAGATE_CACHE_TIMEOUT" range:"100us.." default:"5ms" placeholder:"TIME" help:"How long a request waits for Redis at most. ('${default}')"`
	CachePrefix  string        `name:"cache-prefix" env:"RAGATE_CACHE_PREFIX" default:"ragate:" placeholder:"TEXT" help:"Begins every key in Redis. ('${default}')"`
	CacheSimilar string        `name:"cache-similar" env:"RAGATE_CACHE_SIMILAR" default:"off" placeholder:"COSINE" help:"Let the chunk gate use a chunk's score with an earlier query of the same client whose cosine is at least this (0.8 to 1), or off. It changes scores; the documentation says by how much. Clients are then kept apart. ('${default}')"`
}

const (
	cacheOn, cacheOff = "on", "off"
	scoreCacheFlag    = "--score-cache (RAGATE_SCORE_CACHE)"
	cacheSimilarFlag  = "--cache-similar (RAGATE_CACHE_SIMILAR)"
	// minSimilar is a cosine below which queries have nothing to do with each other.
	minSimilar = 0.8
)

// config is the cache's; false where nothing is to be kept.
func (f cacheFlags) config() (cache.Config, bool) {
	c := cache.Config{Bytes: f.CacheBytes, TTL: f.CacheTTL}
	switch f.ScoreCache {
	case cacheOff:
		return c, false
	case cacheOn, "":
	default:
		c.Remote = &cache.Remote{URL: f.ScoreCache, Prefix: f.CachePrefix, Timeout: f.CacheTimeout}
	}
	return c, true
}

// similar is the least cosine of similar queries; 0: off.
func (f cacheFlags) similar() (float64, error) {
	if f.CacheSimilar == cacheOff || f.CacheSimilar == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(f.CacheSimilar, 64)
	if err != nil || !(v >= minSimilar && v <= 1) {
		return 0, fmt.Errorf("%s %q: it must be off, or a cosine within %v…1", cacheSimilarFlag, f.CacheSimilar, minSimilar)
	}
	return v, nil
}

// checkCache finds what is wrong with the settings of the cache. The URL is not repeated: it may hold a password.
func (c serveFlags) checkCache() []error {
	var errs []error
	cfg, on := c.cacheFlags.config()
	if on && cfg.Remote != nil {
		if err := cfg.Remote.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s is neither %s nor %s: %w", scoreCacheFlag, cacheOn, cacheOff, err))
		}
	}
	v, err := c.similar()
	switch {
	case err != nil:
		errs = append(errs, err)
	case v > 0 && !on:
		errs = append(errs, fmt.Errorf("%s needs scores that are kept: set %s to %s", cacheSimilarFlag, scoreCacheFlag, cacheOn))
	case v > 0:
		if l, problems := c.lineup(); len(problems) == 0 && l.gateEmbedder == none {
			errs = append(errs, fmt.Errorf("%s needs the gates' embedder, and %s loads none", cacheSimilarFlag, gateEmbedderFlag))
		}
	}
	return errs
}

// withoutPassword is a value of the setting as it may be printed.
func withoutPassword(text string) string {
	if text == cacheOn || text == cacheOff {
		return text
	}
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String() // no query: it may hold a password too
	}
	return "(set)"
}

// keeping is the cache with the models that answer from it.
type keeping struct {
	cache     *cache.Cache
	perClient bool
	fronts    map[*inference.Model]*reuse.Model
}

// openCache puts a cache before the device's models; nil where nothing is to be kept. A Redis that is not there is only logged.
func (c serveFlags) openCache(d *device, log *slog.Logger) (*keeping, error) {
	cfg, on := c.cacheFlags.config()
	if !on {
		return nil, nil
	}
	if cfg.Remote != nil {
		cfg.Remote.Changed = func(up bool, err error) {
			if up {
				log.Info("the shared cache is in use", "redis", withoutPassword(c.ScoreCache))
				return
			}
			log.Warn("the shared cache is not in use: what it may hold is computed again", "redis", withoutPassword(c.ScoreCache), "error", err.Error())
		}
	}
	min, err := c.similar()
	if err != nil {
		return nil, &usageError{err}
	}
	store, err := cache.New(cfg)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", scoreCacheFlag, err)}
	}
	k := &keeping{cache: store, perClient: c.CachePerKey || min > 0, fronts: map[*inference.Model]*reuse.Model{}}
	for _, m := range d.models {
		k.fronts[m] = reuse.New(m, store, reuse.Options{PerClient: k.perClient})
	}
	if reranker := k.fronts[d.gateReranker]; min > 0 && reranker != nil && d.gateEmbedder != nil {
		var seed [32]byte
		rand.Read(seed[:]) // never fails
		embedder := gateModel{k.front(d.gateEmbedder)}
		reranker.AllowSimilar(func(ctx context.Context, query, client string) ([]float32, error) {
			v, _, _, err := embedder.EmbedQueries(inference.WithClient(ctx, client), []string{query})
			return v, err
		}, d.gateEmbedder.Info().Dimensions, min, seed)
	}
	return k, nil
}

// front is the model to ask: the one with the cache before it, or m itself where nothing is kept.
func (k *keeping) front(m *inference.Model) reuse.Inner {
	if k != nil {
		if f := k.fronts[m]; f != nil {
			return f
		}
	}
	return m
}

// memo is where the gates keep their decisions.
func (k *keeping) memo() decisions { return decisions{k} }

// decisions implements gates.Memo.
type decisions struct{ *keeping }

func (d decisions) Recall(ctx context.Context, parts []string) ([32]byte, any, bool) {
	owner := ""
	if d.perClient {
		owner = inference.ClientOf(ctx)
	}
	s := cache.NewScope(append([]string{"decision", owner}, parts...)...)
	v, ok := d.cache.Recall(cache.Key(s))
	return s, v, ok
}

func (d decisions) Remember(key [32]byte, v any, bytes int) { d.cache.Remember(key, v, bytes) }

// stats is the cache's for the server.
func (k *keeping) stats() server.CacheStats {
	s := k.cache.Stats()
	out := server.CacheStats{Entries: s.Entries, Bytes: s.Bytes, MaxBytes: s.MaxBytes, Evicted: s.Evicted, Expired: s.Expired}
	for _, c := range s.Kinds {
		out.Kinds = append(out.Kinds, server.CacheCounts{Kind: c.Kind.String(), Hits: c.Hits, Shared: c.Shared, Misses: c.Misses, Joins: c.Joins})
	}
	if r := s.Remote; r != nil {
		out.Redis = &server.RedisStats{Address: r.Address, Up: r.Up, LastError: r.LastErr, Lookups: r.Lookups, Timeouts: r.Timeouts,
			Errors: r.Errors, Skipped: r.Skipped, Garbage: r.Garbage, Written: r.Written, Dropped: r.Dropped}
	}
	return out
}
