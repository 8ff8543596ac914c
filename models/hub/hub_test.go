package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ragate/internal/hubtest"
	"ragate/models/hub"
	"ragate/models/internal/files"
)

const id = "acme/tiny"

// content is n bytes that look random and are the same in every run.
func content(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

func repo() map[string][]byte {
	return map[string][]byte{
		"config.json":           []byte(`{"model_type":"bert"}`),
		"1_Pooling/config.json": []byte(`{"pooling_mode_mean_tokens":true}`),
		"empty.json":            {},
		"onnx/model.onnx":       content(3<<20, 7),
	}
}

func client(t *testing.T, s *hubtest.Server, change ...func(*hub.Config)) *hub.Client {
	t.Helper()
	cfg := hub.Config{Endpoint: s.URL, CacheDir: t.TempDir(), Backoff: time.Millisecond, Stall: 10 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	c, err := hub.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// remote lists the repository and returns one file of it.
func remote(t *testing.T, c *hub.Client, path string) (hub.Model, hub.RemoteFile) {
	t.Helper()
	m, err := c.Model(t.Context(), id, "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		if f.Path == path {
			return m, f
		}
	}
	t.Fatalf("%s is not listed: %+v", path, m.Files)
	return m, hub.RemoteFile{}
}

func TestFetchFillsTheHubsOwnLayout(t *testing.T) {
	s := hubtest.Start(t)
	commit := hubtest.Commit("one")
	want := repo()
	s.Put(id, commit, want)
	c := client(t, s)
	m, err := c.Model(t.Context(), id, "main")
	if err != nil {
		t.Fatal(err)
	}
	if m.Commit != commit || m.Created.IsZero() || len(m.Files) != len(want) {
		t.Fatalf("listing is %+v", m)
	}
	for _, f := range m.Files {
		got, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
		if err != nil {
			t.Fatalf("%s: %v", f.Path, err)
		}
		b, err := os.ReadFile(got.Path)
		if err != nil || !bytes.Equal(b, want[f.Path]) || got.Cached {
			t.Fatalf("%s: cached %v, %v, content equal: %v", f.Path, got.Cached, err, bytes.Equal(b, want[f.Path]))
		}
		if got.SHA256 != hubtest.SHA256(want[f.Path]) || got.Size != int64(len(want[f.Path])) {
			t.Errorf("%s: reported as %+v", f.Path, got)
		}
		etag := hubtest.GitSHA1(want[f.Path])
		if f.Path == "onnx/model.onnx" {
			etag = hubtest.SHA256(want[f.Path])
		}
		link, err := os.Readlink(filepath.Join(c.Repo(id), "snapshots", commit, f.Path))
		up := strings.Repeat("../", 2+strings.Count(f.Path, "/"))
		if err != nil || link != up+"blobs/"+etag {
			t.Errorf("%s links to %q (%v), want %q", f.Path, link, err, up+"blobs/"+etag)
		}
	}
	if err := c.SetRef(id, "main", commit); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.CachedCommit(id, "main"); !ok || got != commit {
		t.Errorf("refs/main is %q, %v", got, ok)
	}
	// Nothing but the layout is left, and a second time nothing is transferred.
	left, err := files.List(filepath.Join(c.Repo(id), "blobs"))
	if err != nil || len(left) != len(want) {
		t.Errorf("blobs are %q (%v)", left, err)
	}
	s.Requests()
	for _, f := range m.Files {
		if got, err := c.Fetch(t.Context(), id, m.Commit, f, nil); err != nil || !got.Cached {
			t.Errorf("second fetch of %s: cached %v, %v", f.Path, got.Cached, err)
		}
	}
	if reqs := s.Requests(); len(reqs) != 0 {
		t.Errorf("second fetch asked %+v", reqs)
	}
}

func TestListingWithoutHashesAsksPerFile(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	s.Put(id, hubtest.Commit("one"), want).NoBlobs = true
	c := client(t, s)
	for path := range want {
		m, f := remote(t, c, path)
		if f.Etag != "" {
			t.Fatalf("the listing gave the etag %q", f.Etag)
		}
		got, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
		if err != nil || got.SHA256 != hubtest.SHA256(want[path]) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	st, err := c.Stat(t.Context(), id, hubtest.Commit("one"), "onnx/model.onnx")
	if err != nil || st.Etag != hubtest.SHA256(want["onnx/model.onnx"]) || st.Size != int64(len(want["onnx/model.onnx"])) || st.SHA256 != st.Etag {
		t.Errorf("stat of a large file: %+v, %v", st, err)
	}
}

func TestResumeAfterTheConnectionBreaks(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	r := s.Put(id, hubtest.Commit("one"), want)
	c := client(t, s)
	m, f := remote(t, c, "onnx/model.onnx")
	s.Do(func() { r.Cut[f.Path] = []int{1 << 20, 100_000} })
	s.Requests()
	var last, total int64
	got, err := c.Fetch(t.Context(), id, m.Commit, f, progress(func(_ string, done, n int64) {
		if done < last {
			t.Errorf("progress went back from %d to %d", last, done)
		}
		last, total = done, n
	}))
	if err != nil || got.SHA256 != hubtest.SHA256(want[f.Path]) {
		t.Fatalf("%+v, %v", got, err)
	}
	if last != f.Size || total != f.Size {
		t.Errorf("progress ended at %d of %d, size is %d", last, total, f.Size)
	}
	var ranges []string
	for _, q := range s.Requests() {
		if q.Store {
			ranges = append(ranges, q.Range)
		}
	}
	if want := fmt.Sprintf("[ bytes=%d- bytes=%d-]", 1<<20, 1<<20+100_000); fmt.Sprint(ranges) != want {
		t.Errorf("ranges asked: %v, want %v", ranges, want)
	}
}

func TestResumeByALaterProcess(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	r := s.Put(id, hubtest.Commit("one"), want)
	cache := t.TempDir()
	once := client(t, s, func(c *hub.Config) { c.CacheDir, c.Attempts = cache, 1 })
	m, f := remote(t, once, "onnx/model.onnx")
	s.Do(func() { r.Cut[f.Path] = []int{2 << 20} })
	if _, err := once.Fetch(t.Context(), id, m.Commit, f, nil); err == nil || !strings.Contains(err.Error(), "broke") {
		t.Fatalf("a broken transfer and no further attempt: %v", err)
	}
	part := filepath.Join(once.Repo(id), "blobs", f.Etag+".incomplete")
	if st, err := os.Stat(part); err != nil || st.Size() != 2<<20 {
		t.Fatalf("what came is not kept: %v", err)
	}
	s.Requests()
	if _, err := client(t, s, func(c *hub.Config) { c.CacheDir = cache }).Fetch(t.Context(), id, m.Commit, f, nil); err != nil {
		t.Fatal(err)
	}
	reqs := s.Requests()
	if last := reqs[len(reqs)-1]; last.Range != fmt.Sprintf("bytes=%d-", 2<<20) {
		t.Errorf("asked for %q", last.Range)
	}
	if _, err := os.Stat(part); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the part is left: %v", err)
	}
}

func TestPartThatIsNotABeginning(t *testing.T) {
	for name, prepare := range map[string]func(f hub.RemoteFile, r *hubtest.Repo) []byte{
		"other bytes":    func(f hub.RemoteFile, r *hubtest.Repo) []byte { return content(1000, 99) },
		"longer":         func(f hub.RemoteFile, r *hubtest.Repo) []byte { return content(int(f.Size)+5, 99) },
		"as long":        func(f hub.RemoteFile, r *hubtest.Repo) []byte { return content(int(f.Size), 99) },
		"ranges ignored": func(f hub.RemoteFile, r *hubtest.Repo) []byte { r.NoRange = true; return content(1000, 99) },
		"size not known": func(f hub.RemoteFile, r *hubtest.Repo) []byte { r.NoBlobs = true; return content(int(f.Size)+5, 99) },
	} {
		t.Run(name, func(t *testing.T) {
			s := hubtest.Start(t)
			want := repo()
			r := s.Put(id, hubtest.Commit("one"), want)
			c := client(t, s)
			m, f := remote(t, c, "onnx/model.onnx")
			part := filepath.Join(c.Repo(id), "blobs", f.Etag+".incomplete")
			if err := files.Write(part, prepare(f, r)); err != nil {
				t.Fatal(err)
			}
			if r.NoBlobs {
				f.Size = -1
			}
			got, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
			if err != nil || got.SHA256 != hubtest.SHA256(want[f.Path]) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestWrongContent(t *testing.T) {
	for _, path := range []string{"onnx/model.onnx", "config.json"} {
		for name, change := range map[string]func([]byte) []byte{
			"one bit":  func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b },
			"too long": func(b []byte) []byte { return append(bytes.Clone(b), 'x') },
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				s := hubtest.Start(t)
				want := repo()
				r := s.Put(id, hubtest.Commit("one"), want)
				c := client(t, s)
				m, f := remote(t, c, path)
				s.Do(func() { r.Serve[path] = change(want[path]) })
				_, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
				var wrong *files.MismatchError
				if !errors.As(err, &wrong) || !wrong.Removed || wrong.Source == "" {
					t.Fatalf("error is %v", err)
				}
				if name == "one bit" && !strings.HasSuffix(wrong.Want, f.Etag) {
					t.Errorf("%v does not name the hash wanted", err)
				}
				if left, _ := files.List(filepath.Join(c.Repo(id))); len(left) != 0 {
					t.Errorf("left in the cache: %q", left)
				}
			})
		}
	}
}

func TestDamagedBlobIsReplaced(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	s.Put(id, hubtest.Commit("one"), want)
	c := client(t, s)
	m, f := remote(t, c, "config.json")
	got, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(got.Path, []byte(`{"model_type":"best"}`), 0o644); err != nil { // through the link, into the blob
		t.Fatal(err)
	}
	if _, err := c.Cached(id, m.Commit, f); err == nil {
		t.Error("a damaged file counts as cached")
	}
	got, err = c.Fetch(t.Context(), id, m.Commit, f, nil)
	if err != nil || got.Cached || got.SHA256 != hubtest.SHA256(want["config.json"]) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestServerErrorsAreRetried(t *testing.T) {
	s := hubtest.Start(t)
	r := s.Put(id, hubtest.Commit("one"), repo())
	r.Fail["api"] = []int{500, 503}
	r.Fail["config.json"] = []int{502, 429, 504}
	c := client(t, s)
	m, f := remote(t, c, "config.json")
	if _, err := c.Fetch(t.Context(), id, m.Commit, f, nil); err != nil {
		t.Fatal(err)
	}
	s.Do(func() { r.Fail["1_Pooling/config.json"] = []int{500, 500, 500, 500, 500, 500, 500} })
	_, f = remote(t, c, "1_Pooling/config.json")
	_, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
	var status *hub.StatusError
	if !errors.As(err, &status) || status.Status != 500 || !strings.Contains(err.Error(), "6 attempts") {
		t.Errorf("error is %v", err)
	}
}

func TestStalledTransferGoesOn(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	r := s.Put(id, hubtest.Commit("one"), want)
	c := client(t, s, func(c *hub.Config) { c.Stall = 200 * time.Millisecond })
	m, f := remote(t, c, "onnx/model.onnx")
	s.Do(func() { r.Stall[f.Path] = 1 << 20 })
	if got, err := c.Fetch(t.Context(), id, m.Commit, f, nil); err != nil || got.SHA256 != hubtest.SHA256(want[f.Path]) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	s := hubtest.Start(t)
	s.Put(id, hubtest.Commit("one"), repo())
	gated := s.Put("acme/gated", hubtest.Commit("two"), repo())
	gated.Token, gated.Gated = "secret", true
	private := s.Put("acme/private", hubtest.Commit("three"), repo())
	private.Token = "secret"
	for _, c := range []struct {
		id, rev, token string
		status         int
		says           []string
	}{
		{"acme/none", "main", "", 401, []string{"acme/none", "no such public model", "HF_TOKEN"}},
		{"acme/none", "main", "any", 404, []string{"acme/none", "not found"}},
		{id, "v9", "", 404, []string{id, "v9", "no such branch, tag or commit"}},
		{"acme/gated", "main", "", 401, []string{"accept the model's terms", "HF_TOKEN"}},
		{"acme/gated", "main", "other", 403, []string{"accept the model's terms", "account of HF_TOKEN"}},
		{"acme/private", "main", "", 401, []string{"HF_TOKEN"}},
		{"acme/private", "main", "other", 401, []string{"HF_TOKEN was not accepted"}},
	} {
		s.Requests()
		_, err := client(t, s, func(cfg *hub.Config) { cfg.Token = c.token }).Model(t.Context(), c.id, c.rev)
		var status *hub.StatusError
		if !errors.As(err, &status) || status.Status != c.status {
			t.Errorf("%s@%s with %q: %v", c.id, c.rev, c.token, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s@%s with %q: %q does not say %q", c.id, c.rev, c.token, err, s)
			}
		}
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%s@%s: asked %d times", c.id, c.rev, n)
		}
	}
	// A file that the commit lacks.
	c := client(t, s)
	_, err := c.Fetch(t.Context(), id, hubtest.Commit("one"), hub.RemoteFile{Path: "none.json", Size: -1}, nil)
	var status *hub.StatusError
	if !errors.As(err, &status) || status.Code != "EntryNotFound" || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("missing file: %v", err)
	}
}

func TestTokenGoesToTheEndpointOnly(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	s.Put(id, hubtest.Commit("one"), want).Token = "secret"
	c := client(t, s, func(c *hub.Config) { c.Token = "secret" })
	m, f := remote(t, c, "onnx/model.onnx")
	if _, err := c.Fetch(t.Context(), id, m.Commit, f, nil); err != nil {
		t.Fatal(err)
	}
	var hubs, stores int
	for _, q := range s.Requests() {
		if q.Store {
			stores++
			if q.Authorization != "" {
				t.Errorf("the content store was sent %q", q.Authorization)
			}
			continue
		}
		hubs++
		if q.Authorization != "Bearer secret" {
			t.Errorf("the hub was sent %q for %s", q.Authorization, q.Path)
		}
	}
	if hubs < 2 || stores < 1 {
		t.Errorf("%d requests to the hub, %d to the store: nothing was shown", hubs, stores)
	}
}

// A redirect to a subdomain is where net/http itself would pass the token on.
func TestTokenIsNotSentToSubdomains(t *testing.T) {
	seen := map[string]string{}
	trip := roundTripper(func(r *http.Request) (*http.Response, error) {
		seen[r.URL.Host] = r.Header.Get("Authorization")
		rec := httptest.NewRecorder()
		if r.URL.Host == "hub.test" {
			rec.Header().Set("Location", "https://cdn.hub.test/x")
			rec.WriteHeader(302)
		} else {
			rec.WriteString("content")
		}
		return rec.Result(), nil
	})
	c, err := hub.New(hub.Config{Endpoint: "https://hub.test", Token: "secret", CacheDir: t.TempDir(), Transport: trip})
	if err != nil {
		t.Fatal(err)
	}
	f := hub.RemoteFile{Path: "x", Size: 7, Etag: hubtest.GitSHA1([]byte("content"))}
	if _, err := c.Fetch(t.Context(), id, hubtest.Commit("one"), f, nil); err != nil {
		t.Fatal(err)
	}
	if seen["hub.test"] != "Bearer secret" {
		t.Errorf("the endpoint was sent %q", seen["hub.test"])
	}
	if a, ok := seen["cdn.hub.test"]; !ok || a != "" {
		t.Errorf("the subdomain was asked: %v, and sent %q", ok, a)
	}
	// From https to http: refused, token or not.
	c, err = hub.New(hub.Config{Endpoint: "https://hub.test", CacheDir: t.TempDir(), Attempts: 1, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		if r.URL.Scheme == "https" {
			rec.Header().Set("Location", "http://hub.test/x")
			rec.WriteHeader(302)
		}
		return rec.Result(), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(t.Context(), id, hubtest.Commit("one"), f, nil); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("downgrade: %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type progress func(file string, done, total int64)

func (f progress) Progress(file string, done, total int64) { f(file, done, total) }

func TestOffline(t *testing.T) {
	s := hubtest.Start(t)
	want := repo()
	s.Put(id, hubtest.Commit("one"), want)
	cache := t.TempDir()
	online := client(t, s, func(c *hub.Config) { c.CacheDir = cache })
	m, f := remote(t, online, "config.json")
	if _, err := online.Fetch(t.Context(), id, m.Commit, f, nil); err != nil {
		t.Fatal(err)
	}
	_, other := remote(t, online, "onnx/model.onnx")
	s.Requests()
	off := client(t, s, func(c *hub.Config) { c.CacheDir, c.Offline = cache, true })
	if got, err := off.Fetch(t.Context(), id, m.Commit, f, nil); err != nil || !got.Cached {
		t.Errorf("what is cached: %+v, %v", got, err)
	}
	if got, err := off.Cached(id, m.Commit, hub.RemoteFile{Path: "config.json", Size: -1}); err != nil || got.Etag != f.Etag || got.SHA256 != hubtest.SHA256(want["config.json"]) {
		t.Errorf("what is cached, by its path alone: %+v, %v", got, err)
	}
	for what, err := range map[string]error{
		"listing": second(off.Model(t.Context(), id, "main")),
		"fetch":   second(off.Fetch(t.Context(), id, m.Commit, other, nil)),
		"stat":    second(off.Stat(t.Context(), id, m.Commit, "config.json")),
	} {
		if !errors.Is(err, hub.ErrOffline) || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if reqs := s.Requests(); len(reqs) != 0 {
		t.Errorf("offline, and asked %+v", reqs)
	}
}

func second[T any](_ T, err error) error { return err }

func TestDiskFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /dev/full, which only Linux has")
	}
	s := hubtest.Start(t)
	s.Put(id, hubtest.Commit("one"), repo())
	c := client(t, s)
	m, f := remote(t, c, "onnx/model.onnx")
	// A device that is always full, where the part would be.
	blobs := filepath.Join(c.Repo(id), "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(blobs, f.Etag+".incomplete")); err != nil {
		t.Fatal(err)
	}
	s.Requests()
	_, err := c.Fetch(t.Context(), id, m.Commit, f, nil)
	var full *files.DiskFullError
	if !errors.As(err, &full) || !errors.Is(err, unix.ENOSPC) || full.Need != f.Size {
		t.Errorf("error is %v", err)
	}
	if n := len(s.Requests()); n > 2 {
		t.Errorf("asked %d times for what cannot be written", n)
	}
	// Known beforehand.
	f.Size = 1 << 60
	f.Etag = hubtest.SHA256([]byte("huge"))
	if _, err := c.Fetch(t.Context(), id, m.Commit, f, nil); !errors.As(err, &full) || full.Free <= 0 {
		t.Errorf("error is %v", err)
	}
}

func TestCancel(t *testing.T) {
	s := hubtest.Start(t)
	r := s.Put(id, hubtest.Commit("one"), repo())
	c := client(t, s)
	m, f := remote(t, c, "onnx/model.onnx")
	s.Do(func() { r.Stall[f.Path] = 1 << 20 })
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Fetch(ctx, id, m.Commit, f, progress(func(string, int64, int64) { cancel() }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

// Names from the hub become paths: none may leave the cache.
func TestHostileNames(t *testing.T) {
	s := hubtest.Start(t)
	r := s.Put(id, hubtest.Commit("one"), map[string][]byte{"../../evil": []byte("x")})
	c := client(t, s)
	if _, err := c.Model(t.Context(), id, "main"); err == nil || !strings.Contains(err.Error(), "evil") {
		t.Errorf("a path that leaves the folder: %v", err)
	}
	s.Do(func() {
		r.Commits[hubtest.Commit("one")] = map[string][]byte{"config.json": []byte("{}")}
		r.Etags["config.json"] = "../../../evil"
	})
	m, f := remote(t, c, "config.json")
	if _, err := c.Fetch(t.Context(), id, m.Commit, f, nil); err == nil || !strings.Contains(err.Error(), "etag") {
		t.Errorf("an etag that leaves the folder: %v", err)
	}
	for _, bad := range []string{"", "/", "a/b/c", "../x", "a/..", "org/na me", "org/name?x", "-/x", strings.Repeat("a", 97), "a--b/c"} {
		if hub.ValidID(bad) {
			t.Errorf("%q counts as a model's name", bad)
		}
	}
	for _, good := range []string{"org/name", "intfloat/e5-small-v2", "sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-m3", "0x/y_z.1"} {
		if !hub.ValidID(good) {
			t.Errorf("%q does not count as a model's name", good)
		}
	}
}

// Two processes that want the same file at once transfer it once.
func TestTwoProcesses(t *testing.T) {
	if os.Getenv("RAGATE_HUB_TEST") != "" {
		c, err := hub.New(hub.Config{Endpoint: os.Getenv("RAGATE_HUB_TEST"), CacheDir: os.Getenv("RAGATE_HUB_TEST_CACHE")})
		if err != nil {
			t.Fatal(err)
		}
		m, f := remote(t, c, "onnx/model.onnx")
		if _, err := c.Fetch(t.Context(), id, m.Commit, f, nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	s := hubtest.Start(t)
	want := repo()
	s.Put(id, hubtest.Commit("one"), want)
	cache := t.TempDir()
	var procs []*exec.Cmd
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTwoProcesses$", "-test.v")
		cmd.Env = append(os.Environ(), "RAGATE_HUB_TEST="+s.URL, "RAGATE_HUB_TEST_CACHE="+cache)
		out := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		procs = append(procs, cmd)
	}
	for _, p := range procs {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s", err, p.Stdout)
		}
	}
	var transfers int
	for _, q := range s.Requests() {
		if q.Store && q.Method == http.MethodGet {
			transfers++
		}
	}
	if transfers != 1 {
		t.Errorf("%d transfers", transfers)
	}
}

func TestFromEnv(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == k {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		env  func(string) string
		want hub.Config
	}{
		{env(), hub.Config{CacheDir: "/u/.cache/huggingface/hub", TokenPath: "/u/.cache/huggingface/token"}},
		{env("XDG_CACHE_HOME", "/c"), hub.Config{CacheDir: "/c/huggingface/hub", TokenPath: "/c/huggingface/token"}},
		{env("HF_HOME", "~/hf", "XDG_CACHE_HOME", "/c", "HF_TOKEN", " t\n"), hub.Config{CacheDir: "/u/hf/hub", TokenPath: "/u/hf/token", Token: "t"}},
		{env("HF_HOME", "/hf", "HF_HUB_CACHE", "/cache", "HF_TOKEN_PATH", "/t", "HF_ENDPOINT", "https://mirror.test", "HF_HUB_OFFLINE", "yes"),
			hub.Config{CacheDir: "/cache", TokenPath: "/t", Endpoint: "https://mirror.test", Offline: true}},
		{env("HF_HUB_OFFLINE", "0"), hub.Config{CacheDir: "/u/.cache/huggingface/hub", TokenPath: "/u/.cache/huggingface/token"}},
	} {
		if got := hub.FromEnv(c.env, "/u"); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
	// Nothing relative to wherever the process happens to run.
	if got := hub.FromEnv(env(), ""); got != (hub.Config{}) {
		t.Errorf("without a home folder: got %+v, want nothing set", got)
	}
}

func TestTokenFile(t *testing.T) {
	s := hubtest.Start(t)
	s.Put(id, hubtest.Commit("one"), repo()).Token = "stored"
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("stored\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, s, func(c *hub.Config) { c.TokenPath = path }).Model(t.Context(), id, "main"); err != nil {
		t.Error(err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []hub.Config{
		{},
		{CacheDir: "x", Endpoint: "hub.test"},
		{CacheDir: "x", Endpoint: "ftp://hub.test"},
		{CacheDir: "x", Endpoint: "https://user:pass@hub.test"},
		{CacheDir: "x", Token: "a\r\nX-Evil: 1"},
	} {
		if _, err := hub.New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
