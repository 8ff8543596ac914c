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
	// clientShare: a client may hold so many times what is free for large requests beside it. One alone so gets 3/4 of that part and leaves 1/4;
	// the next, beside it, 3/16. It is the dynamic threshold of shared-buffer switches (Choudhury and Hahne, 1998).
	clientShare = 3
)

// budget counts bytes against a limit. Safe for concurrent use.
type budget struct {
	mu    sync.Mutex
	limit int64
	held  int64
	of    map[string]int64 // bytes by client, of those that hold some
}

// take adds n bytes to what a request of the client holds, and reports whether there was room. Whoever holds all that is held gets it in any
// case: a body of the permitted size is never refused for being alone.
func (b *budget) take(client string, holds, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > holds {
		limit, large := b.limit, holds+n > smallBytes
		if large {
			limit -= limit / largeShare
		}
		free := limit - b.held - n
		if free < 0 || large && b.of[client]+n > clientShare*free {
			return false
		}
	}
	if b.of == nil {
		b.of = map[string]int64{}
	}
	b.held += n
	b.of[client] += n
	return true
}

func (b *budget) give(client string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.of[client] -= n; b.of[client] <= 0 {
		delete(b.of, client)
	}
}

// heldBy is what all requests hold, and what those of the client do.
func (b *budget) heldBy(client string) (all, own int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.of[client]
}

func (b *budget) inUse() int64 {
	all, _ := b.heldBy("")
	return all
}

// hold charges n more bytes to the exchange until it ends.
func (x *exchange) hold(n int64) error {
	if n <= 0 {
		return nil
	}
	client := x.client()
	if !x.s.memory.take(client, x.held, n) {
		all, own := x.s.memory.heldBy(client)
		r := refuse(kindMemory, "", "requests hold %d bytes in memory of at most %d, %d of them this client's, and this one needs %d more: try again in %d s, send less at once, or raise %s",
			all, x.s.memory.limit, own, n, wholeSeconds(memoryRetry), x.s.cfg.Settings.MaxInflightBytes)
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
		x.s.memory.give(x.client(), x.held)
		x.held = 0
	}
}
