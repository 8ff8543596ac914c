package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func open4tests(t testing.TB, cfg Config) *Cache {
	t.Helper()
	if cfg.Bytes == 0 {
		cfg.Bytes = DefaultBytes
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func keysOf(s Scope, texts ...string) []Key {
	keys := make([]Key, len(texts))
	for i, text := range texts {
		keys[i] = s.Key(text)
	}
	return keys
}

// asker asks for texts, whose values are what they say, and notes what was computed.
type asker struct {
	c        *Cache
	computed atomic.Int64
	got      [][]byte
}

func valueOf(text string) []byte { return []byte("value of " + text) }

func (a *asker) ask(ctx context.Context, group string, texts ...string) error {
	a.got = make([][]byte, len(texts))
	return a.c.Do(ctx, Ask{Kind: Score, Keys: keysOf(NewScope("test"), texts...), Group: group}, func(i int, v []byte) bool {
		a.got[i] = v
		return true
	}, func(missing []int) ([][]byte, error) {
		out := make([][]byte, len(missing))
		for j, i := range missing {
			a.computed.Add(1)
			out[j] = valueOf(texts[i])
			a.got[i] = out[j]
		}
		return out, nil
	})
}

func (a *asker) check(t *testing.T, texts ...string) {
	t.Helper()
	for i, text := range texts {
		if !bytes.Equal(a.got[i], valueOf(text)) {
			t.Errorf("%q has %q", text, a.got[i])
		}
	}
}

func TestOnlyTheRestIsComputed(t *testing.T) {
	a := &asker{c: open4tests(t, Config{})}
	for step, c := range []struct {
		texts    []string
		computed int64
	}{
		{[]string{"a", "b", "a", ""}, 3}, // a twin is computed once
		{[]string{"a", "b", ""}, 3},
		{[]string{"c", "a", "d", "b"}, 5},
	} {
		if err := a.ask(t.Context(), "", c.texts...); err != nil {
			t.Fatal(err)
		}
		a.check(t, c.texts...)
		if got := a.computed.Load(); got != c.computed {
			t.Errorf("step %d: %d were computed so far, not %d", step, got, c.computed)
		}
	}
	s := a.c.Stats().Kinds[Score]
	if s.Hits != 5 || s.Misses != 6 || s.Joins != 1 || s.Shared != 0 {
		t.Errorf("counted %+v", s)
	}
}

func TestScopesAndTextsDoNotMix(t *testing.T) {
	seen := map[Key]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"a", "b", "c"}} {
		for _, text := range []string{"", "a", "bc", "abc"} {
			name := fmt.Sprintf("%q %q", parts, text)
			k := NewScope(parts...).Key(text)
			if other, ok := seen[k]; ok {
				t.Errorf("%s and %s have one key", name, other)
			}
			seen[k] = name
		}
	}
	long := string(make([]byte, 5000))
	if NewScope().Key(long) == NewScope().Key(long[1:]) {
		t.Error("long texts have one key")
	}
}

func TestEqualWorkInFlightIsDoneOnce(t *testing.T) {
	c := open4tests(t, Config{})
	var computed atomic.Int64
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			texts := make([]string, 20)
			for i := range texts {
				texts[i] = fmt.Sprint((i + g) % 20) // in another order each time
			}
			got := make([][]byte, len(texts))
			err := c.Do(t.Context(), Ask{Kind: Score, Keys: keysOf(NewScope(), texts...), Group: "one"}, func(i int, v []byte) bool {
				got[i] = v
				return true
			}, func(missing []int) ([][]byte, error) {
				out := make([][]byte, len(missing))
				for j, i := range missing {
					computed.Add(1)
					out[j] = valueOf(texts[i])
					got[i] = out[j]
				}
				time.Sleep(5 * time.Millisecond)
				return out, nil
			})
			if err != nil {
				t.Error(err)
			}
			for i := range texts {
				if !bytes.Equal(got[i], valueOf(texts[i])) {
					t.Errorf("%q has %q", texts[i], got[i])
				}
			}
		})
	}
	wg.Wait()
	if n := computed.Load(); n != 20 {
		t.Errorf("20 texts were computed %d times", n)
	}
}

// TestJoining: who waits for whom, and what becomes of those who wait.
func TestJoining(t *testing.T) {
	key := keysOf(NewScope(), "text")
	errBroken := errors.New("broken")
	for _, c := range []struct {
		name     string
		group    string        // of the second call; the first is of group a
		patience time.Duration // of the second
		fails    error         // the first one's end
		computes bool          // whether the second computes
		after    time.Duration // when the second has its answer
	}{
		{name: "equal work is waited for", group: "a", after: 10 * time.Second},
		{name: "another group's is not", group: "b", computes: true},
		{name: "a failure is the leader's alone", group: "a", fails: errBroken, computes: true, after: 10 * time.Second},
		{name: "so is its cancellation", group: "a", fails: context.Canceled, computes: true, after: 10 * time.Second},
		{name: "patience ends", group: "a", patience: 3 * time.Second, computes: true, after: 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache, err := New(Config{Bytes: DefaultBytes, TTL: DefaultTTL})
				if err != nil {
					t.Fatal(err)
				}
				defer cache.Close()
				nothing := func(int, []byte) bool { return true }
				go func() {
					err := cache.Do(context.Background(), Ask{Keys: key, Group: "a"}, nothing, func([]int) ([][]byte, error) {
						time.Sleep(10 * time.Second)
						return [][]byte{[]byte("first")}, c.fails
					})
					if !errors.Is(err, c.fails) {
						t.Errorf("the first ended with %v", err)
					}
				}()
				synctest.Wait()
				began := time.Now()
				ask := Ask{Keys: key, Group: c.group}
				if c.patience > 0 {
					ask.Patience = began.Add(c.patience)
				}
				var value []byte
				computed := false
				err = cache.Do(context.Background(), ask, func(_ int, v []byte) bool { value = v; return true }, func([]int) ([][]byte, error) {
					computed, value = true, []byte("second")
					return [][]byte{value}, nil
				})
				want := "first"
				if c.computes {
					want = "second"
				}
				if err != nil || computed != c.computes || string(value) != want || time.Since(began) != c.after {
					t.Errorf("error %v, computed %t, value %q after %s", err, computed, value, time.Since(began))
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestWaitingEndsWithItsContext: whoever waits for another's work can leave.
func TestWaitingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Config{Bytes: DefaultBytes, TTL: DefaultTTL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		key := keysOf(NewScope(), "text")
		go c.Do(context.Background(), Ask{Keys: key}, nil, func([]int) ([][]byte, error) {
			time.Sleep(time.Minute)
			return [][]byte{{1}}, nil
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		err = c.Do(ctx, Ask{Keys: key}, nil, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("it ended with %v after %s", err, time.Since(began))
		}
		time.Sleep(time.Hour)
	})
}

// TestAPanicLeavesNobodyWaiting: the flights of a call that panics end.
func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	a := &asker{c: open4tests(t, Config{})}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic went missing")
			}
		}()
		a.c.Do(t.Context(), Ask{Keys: keysOf(NewScope("test"), "x")}, nil, func([]int) ([][]byte, error) { panic("here") })
	}()
	if err := a.ask(t.Context(), "", "x"); err != nil || a.computed.Load() != 1 {
		t.Errorf("error %v, computed %d", err, a.computed.Load())
	}
}

func TestWhatIsNotToBeKeptIsComputedAgain(t *testing.T) {
	c := open4tests(t, Config{})
	n := 0
	for range 3 {
		err := c.Do(t.Context(), Ask{Keys: keysOf(NewScope(), "x")}, func(int, []byte) bool { return true }, func([]int) ([][]byte, error) {
			n++
			return [][]byte{nil}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != 3 {
		t.Errorf("computed %d times, not 3", n)
	}
}

// TestRefusedValuesAreMisses: a value of which the caller can make nothing is computed.
func TestRefusedValuesAreMisses(t *testing.T) {
	a := &asker{c: open4tests(t, Config{})}
	if err := a.ask(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := a.c.Do(t.Context(), Ask{Keys: keysOf(NewScope("test"), "x")}, func(int, []byte) bool { return false }, func([]int) ([][]byte, error) {
		n++
		return [][]byte{nil}, nil
	})
	if err != nil || n != 1 {
		t.Errorf("error %v, computed %d times", err, n)
	}
}

func TestEntriesEndWithTheirTime(t *testing.T) {
	var now atomic.Int64
	a := &asker{c: open4tests(t, Config{TTL: time.Hour, Elapsed: func() time.Duration { return time.Duration(now.Load()) }})}
	for _, c := range []struct {
		at       time.Duration
		computed int64
	}{{0, 1}, {time.Hour - time.Second, 1}, {time.Hour + time.Second, 2}, {2 * time.Hour, 2}, {4 * time.Hour, 3}} {
		now.Store(int64(c.at))
		if err := a.ask(t.Context(), "", "x"); err != nil {
			t.Fatal(err)
		}
		if got := a.computed.Load(); got != c.computed {
			t.Errorf("at %s: computed %d times, not %d", c.at, got, c.computed)
		}
	}
	a.c.Remember(NewScope().Key("y"), 1, 10)
	now.Add(int64(2 * time.Hour))
	if _, ok := a.c.Recall(NewScope().Key("y")); ok {
		t.Error("a decision outlives its time")
	}
}

// TestBytesAreReal: the bound holds while many more entries come than fit, and what the heap grows by is no more.
func TestBytesAreReal(t *testing.T) {
	for _, size := range []int{21, 1541} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			const bound = 16 << 20
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c := open4tests(t, Config{Bytes: bound})
			s := NewScope("fill")
			most := int64(0)
			n := 4 * bound / (size + entryBytes)
			for i := range n {
				k := s.Key(fmt.Sprint(i))
				c.keep(Ask{Keys: []Key{k}}, []int{0}, [][]byte{make([]byte, size)})
				if i%64 == 0 {
					c.Remember(k, make([]byte, size), size)
				}
				if i%1000 == 0 {
					most = max(most, c.Stats().Bytes)
				}
			}
			c.values.entries.CleanUp()
			st := c.Stats()
			runtime.GC()
			runtime.ReadMemStats(&after)
			heap := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d entries of %d: %d bytes counted, at most %d; %d on the heap, %d each", st.Entries, n, st.Bytes, most, heap, heap/int64(st.Entries))
			if st.Bytes > bound || st.Bytes < bound/2 {
				t.Errorf("%d bytes are counted within a bound of %d", st.Bytes, bound)
			}
			// While others write, the library may be behind by its write buffer.
			if most > bound+bound/8 {
				t.Errorf("%d bytes were counted at a time, of %d", most, bound)
			}
			if heap > bound+bound/16 {
				t.Errorf("the heap grew by %d for a bound of %d", heap, bound)
			}
			if st.Evicted == 0 {
				t.Error("nothing was evicted")
			}
			runtime.KeepAlive(c)
		})
	}
}

// TestTooLargeIsNotKept: one value beyond the bound does not push out all others.
func TestTooLargeIsNotKept(t *testing.T) {
	c := open4tests(t, Config{Bytes: MinBytes})
	k := NewScope().Key("small")
	c.keep(Ask{Keys: []Key{k}}, []int{0}, [][]byte{{1}})
	c.keep(Ask{Keys: keysOf(NewScope(), "large")}, []int{0}, [][]byte{make([]byte, 2*MinBytes)})
	if _, ok := c.Peek(k); !ok {
		t.Error("the small one is gone")
	}
	if _, ok := c.Peek(NewScope().Key("large")); ok {
		t.Error("the large one is there")
	}
}

func TestValidateNamesAll(t *testing.T) {
	err := Config{Remote: &Remote{URL: "http://user:secret@x"}}.Validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	for _, want := range []string{"the bound is 0 bytes", "the TTL is 0s", "URL of Redis", "look-up is 0s"} {
		if !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if bytes.Contains([]byte(err.Error()), []byte("secret")) {
		t.Errorf("the password is in %q", err)
	}
}

func TestSealedValues(t *testing.T) {
	k, v := NewScope("s").Key("t"), []byte("some value")
	good := seal(k, v)
	if got := open(k, good); !bytes.Equal(got, v) {
		t.Fatalf("%q came back", got)
	}
	if open(NewScope("s").Key("u"), good) != nil {
		t.Error("another key's value is taken")
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if open(k, bad) != nil {
			t.Errorf("with byte %d wrong it is taken", i)
		}
		if open(k, good[:i]) != nil {
			t.Errorf("the first %d bytes are taken", i)
		}
	}
}
