package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Kind says what a value is, for the counters.
type Kind uint8

const (
	Score Kind = iota
	Embedding
	Decision // see Memo
	kinds
)

func (k Kind) String() string { return [...]string{"score", "embedding", "decision"}[k] }

// Defaults of a Config.
const (
	// DefaultBytes holds about 250,000 scores, or 35,000 vectors of 384 numbers: small beside a model, and an hour of a busy gate.
	DefaultBytes = 64 << 20
	// DefaultTTL bounds for how long the hash of a text stays in memory; values themselves never grow wrong, as their key names all they rest on.
	DefaultTTL = time.Hour
	// MinBytes is the least that a cache makes sense with.
	MinBytes = 1 << 20
)

// memoShare is the part of the bytes that whole decisions may take: one in so many. They are few and large, and each saves little beside
// the scores it rests on.
const memoShare = 8

// Config says how much is kept, and where.
type Config struct {
	Bytes  int64         // of all entries in process, overhead included
	TTL    time.Duration // after which an entry is no longer served; in Redis as well. What comes from there is kept for another TTL
	Remote *Remote       // nil: in process alone
	// Elapsed is the time since any fixed moment; nil: the machine's.
	Elapsed func() time.Duration
}

// Validate names everything that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if c.Bytes < MinBytes {
		errs = append(errs, fmt.Errorf("the bound is %d bytes: it must be at least %d", c.Bytes, MinBytes))
	}
	if c.TTL <= 0 {
		errs = append(errs, fmt.Errorf("the TTL is %s: it must be positive", c.TTL))
	}
	if c.Remote != nil {
		errs = append(errs, c.Remote.Validate())
	}
	return errors.Join(errs...)
}

// Cache holds values by their keys. It is safe for concurrent use. Make one with [New].
type Cache struct {
	values *local[[]byte]
	memo   *local[any]
	remote *remote // nil: none
	max    int64

	mu      sync.Mutex
	flights map[flightKey]*flight

	counts [kinds]counters
}

type counters struct {
	hits, shared, joins, misses atomic.Uint64
}

// flightKey: a group waits for its own work only.
type flightKey struct {
	group string
	key   Key
}

// flight is a value that somebody is computing.
type flight struct {
	done  chan struct{}
	value []byte // set before done is closed; nil: whoever computed it has none
}

// New makes a cache and starts what keeps it in touch with Redis, which need not be there. Errors: Validate's, a URL that cannot be read.
func New(cfg Config) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Elapsed == nil {
		began := time.Now()
		cfg.Elapsed = func() time.Duration { return time.Since(began) }
	}
	c := &Cache{max: cfg.Bytes, flights: map[flightKey]*flight{}}
	var err error
	if c.values, err = newLocal[[]byte](cfg.Bytes-cfg.Bytes/memoShare, cfg.TTL, cfg.Elapsed); err != nil {
		return nil, err
	}
	if c.memo, err = newLocal[any](cfg.Bytes/memoShare, cfg.TTL, cfg.Elapsed); err != nil {
		return nil, err
	}
	if cfg.Remote != nil {
		if c.remote, err = openRemote(*cfg.Remote, cfg.TTL); err != nil {
			c.values.close()
			c.memo.close()
			return nil, err
		}
	}
	return c, nil
}

// Close ends the goroutines and the connections. What Redis was not told yet is lost. Calls in flight go on, without Redis.
func (c *Cache) Close() error {
	c.values.close()
	c.memo.close()
	if c.remote != nil {
		return c.remote.close()
	}
	return nil
}

// Ask is what one call of Do wants.
type Ask struct {
	Kind Kind
	Keys []Key
	// Group is whose work this call may wait for: that of calls with the same group. A call never waits in the queue of another client.
	Group string
	// Patience is until when it waits for them at the latest; then it computes for itself. Zero: for as long as they take.
	Patience time.Time
}

// Do gives each key its value. accept is called once for each that is there already, in process, in Redis, or in the hands of another call of the
// same group, with its position in Keys; false says that the value makes no sense, and then it is computed. For all others compute is called with
// their ascending positions, once or a few times; it returns a value for each position, nil for what must not be
// kept. What it computed it uses itself: accept is not told of it. An error of compute ends the call and is returned; so is ctx's. Neither
// function is called from two goroutines at once.
func (c *Cache) Do(ctx context.Context, a Ask, accept func(i int, value []byte) bool, compute func(missing []int) ([][]byte, error)) error {
	n := &c.counts[a.Kind]
	missing, twins := c.lookLocal(a, accept)
	take, fill := accept, compute
	var known map[int][]byte // with twins: the values as they come, since the cache may have let go of one before its twin asks
	if len(twins) > 0 {
		known = map[int][]byte{}
		take = func(i int, v []byte) bool {
			known[i] = v
			return accept(i, v)
		}
		fill = func(at []int) ([][]byte, error) {
			values, err := compute(at)
			for j, v := range values {
				known[at[j]] = v
			}
			return values, err
		}
	}
	if len(missing) > 0 && c.remote != nil {
		missing = c.lookRemote(ctx, a, missing, take)
	}
	n.misses.Add(uint64(len(missing) + len(twins)))
	if err := c.fly(ctx, a, missing, take, fill); err != nil {
		return err
	}
	var left []int
	for _, t := range twins {
		if v := known[t.of]; v != nil && accept(t.at, v) {
			n.joins.Add(1)
		} else {
			left = append(left, t.at)
		}
	}
	if len(left) == 0 {
		return nil
	}
	_, err := compute(left)
	return err
}

// fly computes what is missing, or gets it from those of the group who are computing it.
func (c *Cache) fly(ctx context.Context, a Ask, missing []int, accept func(int, []byte) bool, compute func([]int) ([][]byte, error)) error {
	for round := 0; len(missing) > 0; round++ {
		// Twice: in the second round one of those whose leader failed leads. After that each computes by itself, as a text that fails would
		// otherwise be tried by one after the other while all wait.
		var err error
		if missing, err = c.flyOrJoin(ctx, a, missing, accept, compute, round < 2); err != nil {
			return err
		}
	}
	return nil
}

// twin is a position whose key is that of an earlier one.
type twin struct{ at, of int }

// lookLocal splits the keys into those that are there, which it hands over, those that are missing, and those that are missing a second time.
func (c *Cache) lookLocal(a Ask, accept func(int, []byte) bool) (missing []int, twins []twin) {
	n := &c.counts[a.Kind]
	var first map[Key]int
	for i, k := range a.Keys {
		if v, ok := c.values.get(k); ok && accept(i, v) {
			n.hits.Add(1)
			continue
		}
		if len(a.Keys) > 1 {
			if first == nil {
				first = make(map[Key]int, len(a.Keys)-i)
			}
			if of, ok := first[k]; ok {
				twins = append(twins, twin{i, of})
				continue
			}
			first[k] = i
		}
		missing = append(missing, i)
	}
	return missing, twins
}

// lookRemote hands over what Redis has, and returns what is still missing.
func (c *Cache) lookRemote(ctx context.Context, a Ask, missing []int, accept func(int, []byte) bool) []int {
	keys := make([]Key, len(missing))
	for j, i := range missing {
		keys[j] = a.Keys[i]
	}
	values := c.remote.get(ctx, keys, a.Patience)
	left := missing[:0]
	for j, i := range missing {
		if v := values[j]; v != nil {
			if accept(i, v) {
				c.counts[a.Kind].shared.Add(1)
				c.values.set(a.Keys[i], v, len(v))
				continue
			}
			c.remote.n.garbage.Add(1)
		}
		left = append(left, i)
	}
	return left
}

// flyOrJoin computes what nobody of the group is computing and, with join, waits for the rest. It returns what is still missing.
func (c *Cache) flyOrJoin(ctx context.Context, a Ask, missing []int, accept func(int, []byte) bool, compute func([]int) ([][]byte, error), join bool) ([]int, error) {
	n := &c.counts[a.Kind]
	if !join {
		values, err := compute(missing)
		if err == nil {
			c.keep(a, missing, values)
		}
		return nil, err
	}
	led := make([]int, 0, len(missing))
	own := make([]*flight, 0, len(missing))
	type joined struct {
		at     int
		flight *flight
	}
	var others []joined
	c.mu.Lock()
	for _, i := range missing {
		k := flightKey{a.Group, a.Keys[i]}
		if f := c.flights[k]; f != nil {
			others = append(others, joined{i, f})
			continue
		}
		f := &flight{done: make(chan struct{})}
		c.flights[k] = f
		led, own = append(led, i), append(own, f)
	}
	c.mu.Unlock()

	err := func() error {
		var values [][]byte
		defer func() { c.land(a, led, own, values) }() // also when compute panics: nobody may be left waiting
		// A flight that ended since the look-up left its value behind.
		values = make([][]byte, len(led))
		var todo, places []int
		for j, i := range led {
			if v, ok := c.values.get(a.Keys[i]); ok && accept(i, v) {
				values[j] = v
				n.joins.Add(1)
			} else {
				todo, places = append(todo, i), append(places, j)
			}
		}
		if len(todo) == 0 {
			return nil
		}
		got, err := compute(todo)
		if err != nil {
			return err
		}
		c.keep(a, todo, got)
		for t, v := range got {
			values[places[t]] = v
		}
		return nil
	}()
	if err != nil || len(others) == 0 {
		return nil, err
	}

	var late <-chan time.Time
	if !a.Patience.IsZero() {
		t := time.NewTimer(time.Until(a.Patience))
		defer t.Stop()
		late = t.C
	}
	left := missing[:0]
	for _, o := range others {
		select {
		case <-o.flight.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late:
			closed := make(chan time.Time)
			close(closed)
			late = closed // for all others as well
		}
		select {
		case <-o.flight.done:
			if o.flight.value != nil && accept(o.at, o.flight.value) {
				n.joins.Add(1)
				continue
			}
		default: // the patience ended
		}
		left = append(left, o.at)
	}
	return left, nil
}

// keep stores what was computed.
func (c *Cache) keep(a Ask, at []int, values [][]byte) {
	for j, v := range values {
		if v == nil {
			continue
		}
		k := a.Keys[at[j]]
		c.values.set(k, v, len(v))
		if c.remote != nil {
			c.remote.put(k, v)
		}
	}
}

// land ends the flights, whose values have been kept before: whoever comes now finds the one or the other.
func (c *Cache) land(a Ask, led []int, own []*flight, values [][]byte) {
	c.mu.Lock()
	for _, i := range led {
		delete(c.flights, flightKey{a.Group, a.Keys[i]})
	}
	c.mu.Unlock()
	for j, f := range own {
		if j < len(values) {
			f.value = values[j]
		}
		close(f.done)
	}
}

// Peek returns a value that is there in process. It counts as nothing.
func (c *Cache) Peek(k Key) ([]byte, bool) { return c.values.get(k) }

// Recall returns what Remember kept under the key.
func (c *Cache) Recall(k Key) (any, bool) {
	v, ok := c.memo.get(k)
	if ok {
		c.counts[Decision].hits.Add(1)
	} else {
		c.counts[Decision].misses.Add(1)
	}
	return v, ok
}

// Remember keeps a value of about so many bytes, in process alone. Whoever recalls it gets the same value, and must not change what it points to.
func (c *Cache) Remember(k Key, v any, bytes int) { c.memo.set(k, v, bytes) }

// KindStats counts look-ups of one kind. Hits, Shared, Joins and Misses add up to all of them, but that one which joined was a miss before.
type KindStats struct {
	Kind   Kind
	Hits   uint64 // found in process
	Shared uint64 // found in Redis
	Misses uint64 // found nowhere
	Joins  uint64 // of the misses, those that another call or position was computing and that were not computed again
}

// Stats is a snapshot of the counters.
type Stats struct {
	Kinds    []KindStats
	Entries  int
	Bytes    int64 // of the entries, overhead included
	MaxBytes int64
	Evicted  uint64 // entries that went for want of room
	Expired  uint64
	Remote   *RemoteStats // nil: none
}

// Stats reads the counters.
func (c *Cache) Stats() Stats {
	s := Stats{MaxBytes: c.max,
		Entries: c.values.entries.EstimatedSize() + c.memo.entries.EstimatedSize(),
		Bytes:   int64(c.values.entries.WeightedSize() + c.memo.entries.WeightedSize()),
		Evicted: c.values.evicted.Load() + c.memo.evicted.Load(), Expired: c.values.expired.Load() + c.memo.expired.Load()}
	for k := range kinds {
		n := &c.counts[k]
		s.Kinds = append(s.Kinds, KindStats{Kind: k, Hits: n.hits.Load(), Shared: n.shared.Load(), Misses: n.misses.Load(), Joins: n.joins.Load()})
	}
	if c.remote != nil {
		r := c.remote.stats()
		s.Remote = &r
	}
	return s
}
