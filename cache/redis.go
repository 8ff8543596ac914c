package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Redis is asked from the request's path under a short time limit, and told of new values from a goroutine of its own. A breaker stands before
// both: after failuresToOpen failures in a row nothing is sent, and a third goroutine tries to reach the server again. So a dead Redis costs a
// call one atomic read.
//
// A look-up runs on a goroutine of its own, since a driver that dials, or waits for a connection, cannot be trusted to look at the clock
// everywhere. It works on memory of its own; whoever stops waiting for it leaves it to end by itself, and close waits for all of them.

// Defaults of a Remote.
const (
	// DefaultTimeout is some ten times what a Redis on the same network takes for 20 values, and a tenth of what it takes to compute them.
	DefaultTimeout = 5 * time.Millisecond
	// DefaultPrefix begins the keys, so that a Redis may be shared with other programs.
	DefaultPrefix = "ragate:"
)

const (
	valueVersion = 1 // of the bytes around a value in Redis
	checksumLen  = 8

	// mgetKeys is how many keys one command has: what a look-up has when its time is up is used, in steps of so many.
	mgetKeys = 64
	// lookupsAtOnce bounds the goroutines that may be left waiting for a slow server.
	lookupsAtOnce  = 64
	failuresToOpen = 3
	// The check after a failure waits this long, then twice as long each time, up to the most.
	minPause, maxPause = 500 * time.Millisecond, 30 * time.Second
	// dialTimeout bounds connecting, TLS included, which no request waits for.
	dialTimeout = 2 * time.Second

	// writeQueue values may wait to be written; more are dropped. writeBatch of them go at once, and may take writeTimeout.
	writeQueue   = 8192
	writeBatch   = 256
	writeTimeout = time.Second
)

// Remote says how to reach Redis or Valkey.
type Remote struct {
	// URL is redis://user:password@host:port/db, rediss:// for TLS, or unix://path.
	URL     string
	Prefix  string        // of the keys
	Timeout time.Duration // of a look-up, at most
	// Changed is told, from a goroutine of the cache's, when the server was reached or lost. It may be nil.
	Changed func(up bool, err error)
}

// Validate names everything that cannot be used. It never repeats the URL, which may hold a password.
func (r Remote) Validate() error {
	var errs []error
	if _, err := redis.ParseURL(r.URL); err != nil {
		errs = append(errs, errors.New("the URL of Redis cannot be read: it must be redis://, rediss:// or unix:// with user, password, address and database number"))
	}
	if r.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("the time limit of a look-up is %s: it must be positive", r.Timeout))
	}
	return errors.Join(errs...)
}

// RemoteStats is a snapshot of what became of the asking.
type RemoteStats struct {
	Address  string // without the password
	Up       bool   // false: it is not asked, until the check reaches it
	LastErr  string // of the last failure, "" before one
	Lookups  uint64 // commands' worth of look-ups that were sent
	Timeouts uint64 // look-ups that were not done in time
	Errors   uint64 // look-ups and writes that failed otherwise
	Skipped  uint64 // look-ups that were not sent, as the server was lost or too many waited
	Garbage  uint64 // values that were not what this version writes
	Written  uint64 // values
	Dropped  uint64 // values that were not written, as the queue was full or the server lost
}

// remote is one Redis.
type remote struct {
	client  *redis.Client
	prefix  string
	timeout time.Duration
	ttl     time.Duration
	changed func(bool, error)

	up       atomic.Bool
	failures atomic.Int32 // in a row
	lost     chan error   // wakes the check; room for one
	slots    chan struct{}
	writes   chan write
	lastErr  atomic.Pointer[string]

	n struct {
		lookups, timeouts, errors, skipped, garbage, written, dropped atomic.Uint64
	}

	cancel context.CancelFunc
	ctx    context.Context
	mu     sync.Mutex // guards closed against wg
	closed bool
	wg     sync.WaitGroup
}

type write struct {
	key   Key
	value []byte
}

// The driver logs each connection that it cannot make to the standard error stream, in a format of its own; here failures are counted, and
// Changed tells of them.
func init() { logging.Disable() }

func openRemote(cfg Remote, ttl time.Duration) (*remote, error) {
	o, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return nil, cfg.Validate()
	}
	o.MaxRetries = -1 // a second try is not worth the wait
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, writeTimeout, writeTimeout, writeTimeout
	o.DialerRetries = 1
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns = 16, 2, 16
	r := &remote{client: redis.NewClient(o), prefix: cfg.Prefix, timeout: cfg.Timeout, ttl: ttl, changed: cfg.Changed,
		lost: make(chan error, 1), slots: make(chan struct{}, lookupsAtOnce), writes: make(chan write, writeQueue)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.wg.Add(2)
	go r.writer()
	go r.check()
	return r, nil
}

func (r *remote) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.up.Store(false)
	r.cancel()
	err := r.client.Close()
	r.wg.Wait()
	return err
}

// enter starts a piece of work that close waits for; false after close.
func (r *remote) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Add(1)
	return true
}

func (r *remote) name(k Key) string { return r.prefix + string(k[:]) }

// seal puts version and checksum around a value. The checksum covers the key: a value under another one is garbage too.
func seal(k Key, v []byte) []byte {
	b := make([]byte, 0, 1+len(v)+checksumLen)
	b = append(append(b, valueVersion), v...)
	sum := checksum(k, v)
	return append(b, sum[:checksumLen]...)
}

// open takes them off; nil where they are not right.
func open(k Key, b []byte) []byte {
	if len(b) < 1+checksumLen || b[0] != valueVersion {
		return nil
	}
	v := b[1 : len(b)-checksumLen : len(b)-checksumLen]
	sum := checksum(k, v)
	if !bytes.Equal(sum[:checksumLen], b[len(b)-checksumLen:]) {
		return nil
	}
	return v
}

func checksum(k Key, v []byte) [sha256.Size]byte {
	return Scope(k).Key(string(v))
}

// part is the answer to some of a look-up's keys.
type part struct {
	from   int
	values []any
	err    error
}

// get looks keys up: nil for what is not there, or not there in time. It takes the time limit at most, and no more than half of what is left
// until the deadline, so that there is time to compute what is missing.
func (r *remote) get(ctx context.Context, keys []Key, deadline time.Time) [][]byte {
	out := make([][]byte, len(keys))
	if !r.up.Load() {
		r.n.skipped.Add(1)
		return out
	}
	wait := r.timeout
	if !deadline.IsZero() {
		wait = min(wait, time.Until(deadline)/2)
	}
	if wait <= 0 {
		r.n.skipped.Add(1)
		return out
	}
	select {
	case r.slots <- struct{}{}:
	default:
		r.n.skipped.Add(1)
		return out
	}
	if !r.enter() {
		<-r.slots
		return out
	}
	r.n.lookups.Add(1)
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = r.name(k)
	}
	parts := make(chan part, (len(keys)+mgetKeys-1)/mgetKeys) // room for all: nobody may be reading any more
	limited, cancel := context.WithTimeout(r.ctx, wait)
	go func() {
		defer r.wg.Done()
		defer func() { <-r.slots }()
		defer cancel()
		defer close(parts)
		for from := 0; from < len(names); from += mgetKeys {
			values, err := r.client.MGet(limited, names[from:min(from+mgetKeys, len(names))]...).Result()
			parts <- part{from, values, err}
			if err != nil {
				return
			}
		}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	excused := wait < r.timeout // a limit that is shorter than usual says nothing about the server
	for {
		select {
		case p, more := <-parts:
			switch {
			case !more:
				r.worked()
				return out
			case p.err != nil:
				r.failed(p.err, excused)
				return out
			}
			excused = true
			for j, v := range p.values {
				if s, ok := v.(string); ok {
					if out[p.from+j] = open(keys[p.from+j], []byte(s)); out[p.from+j] == nil {
						r.n.garbage.Add(1)
					}
				}
			}
		case <-timer.C:
			r.failed(context.DeadlineExceeded, excused)
			return out
		case <-ctx.Done(): // nobody waits any more; that says nothing about Redis
			return out
		}
	}
}

// put has a value written some time, or drops it.
func (r *remote) put(k Key, v []byte) {
	if r.up.Load() {
		select {
		case r.writes <- write{k, v}:
			return
		default:
		}
	}
	r.n.dropped.Add(1)
}

func (r *remote) worked() { r.failures.Store(0) }

// failed counts a look-up that did not work. excused: that is no sign of a dead server, as a part of the answers came in time.
func (r *remote) failed(err error, excused bool) {
	if r.ctx.Err() != nil {
		return
	}
	if isTimeout(err) {
		r.n.timeouts.Add(1)
	} else {
		r.n.errors.Add(1)
	}
	r.note(err)
	if excused {
		return
	}
	if r.failures.Add(1) >= failuresToOpen {
		r.open(err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

func (r *remote) note(err error) {
	s := err.Error()
	r.lastErr.Store(&s)
}

// open stops the asking.
func (r *remote) open(err error) {
	if r.up.CompareAndSwap(true, false) {
		select {
		case r.lost <- err:
		default:
		}
	}
}

// check reaches the server at the start and whenever it was lost.
func (r *remote) check() {
	defer r.wg.Done()
	for {
		pause := minPause
		for told := false; ; {
			err := r.reach()
			if err == nil {
				break
			}
			if r.ctx.Err() != nil {
				return
			}
			r.note(err)
			if !told {
				r.tell(false, err)
				told = true
			}
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, maxPause)
		}
		r.failures.Store(0)
		r.up.Store(true)
		r.tell(true, nil)
		select {
		case <-r.ctx.Done():
			return
		case err := <-r.lost:
			r.tell(false, err)
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(minPause):
			}
		}
	}
}

func (r *remote) tell(up bool, err error) {
	if r.changed != nil {
		r.changed(up, err)
	}
}

// reach says whether the server answers as fast as a look-up needs it. The first command may have to connect, so the second one counts.
func (r *remote) reach() error {
	ctx, cancel := context.WithTimeout(r.ctx, dialTimeout)
	defer cancel()
	if err := r.client.Ping(ctx).Err(); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(r.ctx, r.timeout)
	defer cancel()
	return r.client.MGet(ctx, r.prefix+"check").Err()
}

// writer writes what put has queued, as much at once as is there.
func (r *remote) writer() {
	defer r.wg.Done()
	batch := make([]write, 0, writeBatch)
	for {
		batch = batch[:0]
		select {
		case <-r.ctx.Done():
			return
		case w := <-r.writes:
			batch = append(batch, w)
		}
		for full := false; !full && len(batch) < writeBatch; {
			select {
			case w := <-r.writes:
				batch = append(batch, w)
			default:
				full = true
			}
		}
		if !r.up.Load() {
			r.n.dropped.Add(uint64(len(batch)))
			continue
		}
		r.write(batch)
	}
}

// write sends a batch. A refusal of the server's (it is full, or read-only) leaves the look-ups alone; a connection that fails does not.
func (r *remote) write(batch []write) {
	ctx, cancel := context.WithTimeout(r.ctx, writeTimeout)
	defer cancel()
	pipe := r.client.Pipeline()
	for _, w := range batch {
		pipe.Set(ctx, r.name(w.key), seal(w.key, w.value), r.ttl)
	}
	answers, err := pipe.Exec(ctx)
	if r.ctx.Err() != nil {
		return
	}
	ok := 0
	for _, a := range answers {
		if a.Err() == nil {
			ok++
		}
	}
	r.n.written.Add(uint64(ok))
	r.n.dropped.Add(uint64(len(batch) - ok))
	if err == nil {
		return
	}
	r.n.errors.Add(1)
	r.note(err)
	var refused redis.Error
	if errors.As(err, &refused) {
		select { // it would refuse the next ones too
		case <-r.ctx.Done():
		case <-time.After(minPause):
		}
		return
	}
	if r.failures.Add(1) >= failuresToOpen {
		r.open(err)
	}
}

func (r *remote) stats() RemoteStats {
	o := r.client.Options()
	s := RemoteStats{Address: o.Addr, Up: r.up.Load(), Lookups: r.n.lookups.Load(), Timeouts: r.n.timeouts.Load(), Errors: r.n.errors.Load(),
		Skipped: r.n.skipped.Load(), Garbage: r.n.garbage.Load(), Written: r.n.written.Load(), Dropped: r.n.dropped.Load()}
	if e := r.lastErr.Load(); e != nil {
		s.LastErr = *e
	}
	return s
}
