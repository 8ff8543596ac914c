package cache

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// What an entry costs beside its value: key, node, a place in the hash table and in the eviction and expiry lists; and what the allocator rounds
// up, at most an eighth. Measured at 185 bytes in all for a value of 21, and 1,969 for one of 1,541 (TestBytesAreReal); rounded up, since the
// bound is a promise.
const (
	entryBytes  = 224
	roundingOff = 8
)

// local is a map with a bound on its bytes and an age at which entries end. Which go first is decided by how often and how lately they were
// asked for (W-TinyLFU), so that a long list of texts that are seen once does not push out what is asked for again and again.
type local[V any] struct {
	entries *otter.Cache[Key, sized[V]]
	evicted atomic.Uint64
	expired atomic.Uint64
}

// sized is a value with the bytes it holds.
type sized[V any] struct {
	value V
	bytes uint32
}

// clock adapts a function to the library's clock.
type clock struct{ elapsed func() time.Duration }

func (c clock) NowNano() int64 { return int64(c.elapsed()) }

// Tick is for clean-ups between uses, which need not follow the clock of a test.
func (clock) Tick(d time.Duration) <-chan time.Time { return time.Tick(d) }

func newLocal[V any](bytes int64, ttl time.Duration, elapsed func() time.Duration) (*local[V], error) {
	l := &local[V]{}
	entries, err := otter.New(&otter.Options[Key, sized[V]]{
		MaximumWeight:    uint64(bytes),
		Weigher:          func(_ Key, v sized[V]) uint32 { return v.bytes },
		ExpiryCalculator: otter.ExpiryWriting[Key, sized[V]](ttl),
		Clock:            clock{elapsed},
		OnAtomicDeletion: func(e otter.DeletionEvent[Key, sized[V]]) {
			switch e.Cause {
			case otter.CauseOverflow:
				l.evicted.Add(1)
			case otter.CauseExpiration:
				l.expired.Add(1)
			}
		},
		Logger: &otter.NoopLogger{}, // it speaks of loaders and refreshes, of which there are none
	})
	l.entries = entries
	return l, err
}

func (l *local[V]) get(k Key) (V, bool) {
	e, ok := l.entries.GetIfPresent(k)
	return e.value, ok
}

// set keeps v, which holds so many bytes. One that is larger than the whole bound is not kept.
func (l *local[V]) set(k Key, v V, bytes int) {
	weight := uint64(bytes+bytes/roundingOff) + entryBytes
	if weight > l.entries.GetMaximum() || weight > math.MaxUint32 {
		return
	}
	l.entries.Set(k, sized[V]{v, uint32(weight)})
}

func (l *local[V]) close() { l.entries.StopAllGoroutines() }
