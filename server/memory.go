package server

import "sync"

// What requests hold in memory before and after the queue. The queue's token bound says nothing of bodies that are still being read, and
// nothing of vectors that a slow client takes its time to fetch: a few hundred clients with 8 MiB each would otherwise exhaust a machine
// on which no single request is too large. So every byte that grows with what a client sends is charged to one budget while it is held:
//
//	a body   twice its buffer: the bytes, and the texts read from it
//	vectors  4 bytes a value, from before they are computed until they are sent; their decimals are sent in pieces
//	gates    once or twice the body for the texts that come back
//
// A request that finds no room is refused at once and never waits: what would wait holds memory itself. Bytes are charged as they come,
// not as they are announced, so a claimed length alone takes nothing from others.

const (
	// freeBytes of every body are not charged: connections cost about as much anyhow.
	freeBytes = 4 << 10
	// smallBytes is what a request may hold and still count as small. The last eighth of the budget is for small requests, so that a gate
	// or a single query is answered while uploads fill the rest.
	smallBytes = 256 << 10
	largeShare = 8
)

// budget counts bytes against a limit. Safe for concurrent use.
type budget struct {
	mu    sync.Mutex
	limit int64
	held  int64
}

// take adds n bytes to what its caller holds, and reports whether there was room. Whoever holds all that is held gets it in any case: a
// body of the permitted size is never refused for being alone.
func (b *budget) take(holds, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit
	if holds+n > smallBytes {
		limit -= limit / largeShare
	}
	if b.held+n > limit && b.held > holds {
		return false
	}
	b.held += n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// hold charges n more bytes to the exchange until it ends.
func (x *exchange) hold(n int64) error {
	if n <= 0 {
		return nil
	}
	if !x.s.memory.take(x.held, n) {
		r := refuse(kindMemory, "", "other requests hold %d bytes in memory of at most %d, and this one needs %d more: try again in %d s, send less at once, or raise %s",
			x.s.memory.inUse(), x.s.memory.limit, n, wholeSeconds(memoryRetry), x.s.cfg.Settings.MaxInflightBytes)
		r.retryAfter = memoryRetry
		return r
	}
	x.held += n
	return nil
}

// holdEcho charges an answer that repeats the body's texts as often as there are true parts and is sent whole.
func (x *exchange) holdEcho(body []byte, parts ...bool) error {
	var n int64
	for _, echoed := range parts {
		if echoed && len(body) > flushBytes {
			n += int64(len(body))
		}
	}
	return x.hold(n)
}

// release gives back what the exchange holds.
func (x *exchange) release() {
	if x.held > 0 {
		x.s.memory.give(x.held)
		x.held = 0
	}
}
