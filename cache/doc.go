// Package cache keeps what models computed, so that equal work is done once: in process, and shared among servers through Redis or Valkey.
//
// Start at [New] and [Cache.Do]. A key is a SHA-256 over everything that the value depends on (see [Scope]); what the bytes of a value mean
// is known to the caller alone. The package knows no models, no texts' meaning and no wire formats of ragate.
//
// What it promises:
//   - The memory of all entries together stays within Config.Bytes, overhead included, and no entry is served after Config.TTL.
//   - Equal keys of one group that are wanted at the same time are computed once. Whoever computes may fail or be cancelled: the others then
//     compute for themselves, and nobody waits longer than his patience.
//   - Redis never fails a call. Down, slow, full, with a wrong password or with values that make no sense it is a miss, and costs a call at
//     most Remote.Timeout; after some failures in a row it is not asked at all until a background check reaches it again.
//
// Ownership: a Cache owns its goroutines (Redis' writer and its check); [Cache.Close] ends them and waits. Values handed out are shared: whoever
// gets one must not change it.
package cache
