// Package hubtest is a model hub for tests: it speaks the routes of the Hugging Face hub that package hub uses, with its redirects to
// a content store on another port, its headers and its error codes, and breaks where it is told to. It is imported by tests only.
package hubtest

import (
	"crypto/sha1" //nolint:gosec // git's content hash
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server is the hub and its content store. The fields are set before use or under Do.
type Server struct {
	URL string // the endpoint

	mu       sync.Mutex
	repos    map[string]*Repo
	requests []Request
	cdn      *httptest.Server
}

// Repo is a model's repository.
type Repo struct {
	Branches map[string]string            // branch or tag → commit
	Commits  map[string]map[string][]byte // commit → path → content
	Token    string                       // needed when not ""
	Gated    bool                         // the token must be Token, else GatedRepo instead of RepoNotFound

	NoBlobs bool              // the listing has names only, as some mirrors'
	Etags   map[string]string // path → etag given instead of the true one
	Fail    map[string][]int  // path → statuses of the next requests for its content, in order
	Cut     map[string][]int  // path → after how many bytes the next transfers break, in order
	Stall   map[string]int    // path → after how many bytes the transfer stands still until the client goes away
	Serve   map[string][]byte // path → content sent instead of the true one
	NoRange bool              // ranges are ignored
}

// Request is one request that came.
type Request struct {
	Store         bool // at the content store
	Method, Path  string
	Authorization string
	Range         string
}

// Start runs a hub until the test ends.
func Start(t testing.TB) *Server {
	s := &Server{repos: map[string]*Repo{}}
	hub := httptest.NewServer(http.HandlerFunc(s.hub))
	s.cdn = httptest.NewServer(http.HandlerFunc(s.store))
	s.URL = hub.URL
	t.Cleanup(func() {
		hub.CloseClientConnections()
		s.cdn.CloseClientConnections()
		hub.Close()
		s.cdn.Close()
	})
	return s
}

// Commit makes a commit id out of any text.
func Commit(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// GitSHA1 is the name git gives a content.
func GitSHA1(b []byte) string {
	h := sha1.New() //nolint:gosec // as above
	fmt.Fprintf(h, "blob %d\x00", len(b))
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

// SHA256 is lower-case hex.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Put adds a commit to a repository and points its main branch there. It returns the repository for further settings.
func (s *Server) Put(id, commit string, content map[string][]byte) *Repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[id]
	if r == nil {
		r = &Repo{Branches: map[string]string{}, Commits: map[string]map[string][]byte{}, Etags: map[string]string{},
			Fail: map[string][]int{}, Cut: map[string][]int{}, Stall: map[string]int{}, Serve: map[string][]byte{}}
		s.repos[id] = r
	}
	r.Commits[commit] = content
	r.Branches["main"] = commit
	return r
}

// Do changes settings while requests may be under way.
func (s *Server) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Requests returns what came since the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// large says which files the hub keeps in its content store.
func large(path string) bool {
	return strings.HasSuffix(path, ".onnx") || strings.Contains(path, ".onnx_data") || strings.HasSuffix(path, ".bin")
}

func (s *Server) log(store bool, r *http.Request) {
	s.requests = append(s.requests, Request{Store: store, Method: r.Method, Path: r.URL.Path,
		Authorization: r.Header.Get("Authorization"), Range: r.Header.Get("Range")})
}

func (s *Server) hub(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(false, r)
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/models/"); ok {
		id, rev, _ := strings.Cut(rest, "/revision/")
		s.listing(w, r, id, unescape(rev))
		return
	}
	id, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/resolve/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	rev, path, _ := strings.Cut(rest, "/")
	s.resolve(w, r, id, unescape(rev), unescape(path))
}

func unescape(s string) string {
	out, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return out
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

// find answers for what is not there or not allowed, and returns nil then.
func (s *Server) find(w http.ResponseWriter, r *http.Request, id, rev string) (*Repo, string) {
	repo := s.repos[id]
	auth := r.Header.Get("Authorization")
	switch {
	case repo == nil && auth == "":
		refuse(w, 401, "RepoNotFound", "Repository not found")
		return nil, ""
	case repo == nil:
		refuse(w, 404, "RepoNotFound", "Repository not found")
		return nil, ""
	case repo.Token != "" && auth != "Bearer "+repo.Token && repo.Gated && auth != "":
		refuse(w, 403, "GatedRepo", "Access to model "+id+" is restricted")
		return nil, ""
	case repo.Token != "" && auth != "Bearer "+repo.Token && repo.Gated:
		refuse(w, 401, "GatedRepo", "Access to model "+id+" is restricted")
		return nil, ""
	case repo.Token != "" && auth != "Bearer "+repo.Token:
		refuse(w, 401, "RepoNotFound", "Invalid username or password.")
		return nil, ""
	}
	commit := rev
	if c, ok := repo.Branches[rev]; ok {
		commit = c
	}
	if repo.Commits[commit] == nil {
		refuse(w, 404, "RevisionNotFound", "Invalid rev id: "+rev)
		return nil, ""
	}
	return repo, commit
}

func (s *Server) listing(w http.ResponseWriter, r *http.Request, id, rev string) {
	repo, commit := s.find(w, r, id, rev)
	if repo == nil {
		return
	}
	if status := next(repo.Fail, "api"); status != 0 {
		w.WriteHeader(status)
		return
	}
	type lfs struct {
		SHA256  string `json:"sha256"`
		Size    int    `json:"size"`
		Pointer int    `json:"pointerSize"`
	}
	type sibling struct {
		Name   string `json:"rfilename"`
		Size   *int   `json:"size,omitempty"`
		BlobID string `json:"blobId,omitempty"`
		LFS    *lfs   `json:"lfs,omitempty"`
	}
	var siblings []sibling
	for path, content := range repo.Commits[commit] {
		x := sibling{Name: path}
		if !repo.NoBlobs && r.URL.Query().Get("blobs") == "true" {
			n := len(content)
			x.Size, x.BlobID = &n, GitSHA1(content)
			if large(path) {
				x.BlobID = GitSHA1([]byte("pointer to " + path))
				x.LFS = &lfs{SHA256(content), n, 130}
			}
			if e := repo.Etags[path]; e != "" {
				x.BlobID = e
				if x.LFS != nil {
					x.LFS.SHA256 = e
				}
			}
		}
		siblings = append(siblings, x)
	}
	slices.SortFunc(siblings, func(a, b sibling) int { return strings.Compare(a.Name, b.Name) })
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"id": id, "sha": commit, "createdAt": "2021-07-01T08:00:00.000Z", "siblings": siblings})
}

// next takes the first element of a list of settings, zero when there is none.
func next(m map[string][]int, key string) int {
	if len(m[key]) == 0 {
		return 0
	}
	v := m[key][0]
	m[key] = m[key][1:]
	return v
}

func (s *Server) resolve(w http.ResponseWriter, r *http.Request, id, rev, path string) {
	repo, commit := s.find(w, r, id, rev)
	if repo == nil {
		return
	}
	content, ok := repo.Commits[commit][path]
	if !ok {
		refuse(w, 404, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	etag := GitSHA1(content)
	if large(path) {
		etag = SHA256(content)
	}
	if e := repo.Etags[path]; e != "" {
		etag = e
	}
	if large(path) {
		w.Header().Set("X-Linked-Etag", strconv.Quote(etag))
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		w.Header().Set("Etag", `"of the pointer"`)
		w.Header().Set("Location", s.cdn.URL+"/"+id+"/"+commit+"/"+path+"?signature=secret")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("Etag", `W/`+strconv.Quote(etag))
	s.content(w, r, repo, path, content)
}

func (s *Server) store(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(true, r)
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if len(parts) != 4 || r.URL.Query().Get("signature") != "secret" {
		w.WriteHeader(403)
		return
	}
	repo := s.repos[parts[0]+"/"+parts[1]]
	s.content(w, r, repo, parts[3], repo.Commits[parts[2]][parts[3]])
}

// content sends a file or the part of it that is asked for, or breaks as the repository's settings say. It unlocks while it waits.
func (s *Server) content(w http.ResponseWriter, r *http.Request, repo *Repo, path string, content []byte) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		return
	}
	if status := next(repo.Fail, path); status != 0 {
		w.WriteHeader(status)
		return
	}
	if c, ok := repo.Serve[path]; ok {
		content = c
	}
	status, start := http.StatusOK, 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start); err == nil && !repo.NoRange {
		if start >= len(content) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(content)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(content)-1, len(content)))
		content = content[start:]
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	if n, ok := repo.Stall[path]; ok {
		delete(repo.Stall, path)
		w.WriteHeader(status)
		w.Write(content[:min(n, len(content))])
		w.(http.Flusher).Flush()
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
		return
	}
	if n := next(repo.Cut, path); n > 0 {
		w.WriteHeader(status)
		w.Write(content[:min(n, len(content))])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	w.Write(content)
}
