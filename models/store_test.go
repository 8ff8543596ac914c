package models_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ragate/internal/hubtest"
	"ragate/models"
	"ragate/models/hub"
	"ragate/models/onnxpb"
)

const tiny = "acme/tiny-embedder"

// tinyRepo is a sentence-transformers repository as the hub has them, with files of no use here.
func tinyRepo(weights int) map[string][]byte {
	return map[string][]byte{
		"config.json":                       []byte(`{"model_type":"bert","architectures":["BertModel"],"hidden_size":384,"max_position_embeddings":512}`),
		"tokenizer.json":                    []byte(`{"model":{}}`),
		"tokenizer_config.json":             []byte(`{"model_max_length":512}`),
		"modules.json":                      []byte(modulesST),
		"1_Pooling/config.json":             []byte(poolMean),
		"sentence_bert_config.json":         []byte(`{"max_seq_length":256}`),
		"config_sentence_transformers.json": []byte(`{"prompts":{"query":"q: "}}`),
		"onnx/model.onnx":                   hubtest.ONNX(weights, ""),
		"onnx/model_qint8.onnx":             hubtest.ONNX(weights+1, ""),
		"model.safetensors":                 []byte("not wanted"),
		"README.md":                         []byte("---\nlicense: mit\nlanguage:\n- en\n- nl\ntags: [x]\n---\n# Tiny\n"),
		"openvino/config.json":              []byte("{}"),
		"pytorch_model.bin":                 []byte("not wanted"),
	}
}

func hubStore(t *testing.T, s *hubtest.Server) *models.Store {
	t.Helper()
	return &models.Store{Dir: t.TempDir(), Hub: hub.Config{Endpoint: s.URL, CacheDir: t.TempDir(), Backoff: time.Millisecond}}
}

func pull(t *testing.T, st *models.Store, ref string) models.Manifest {
	t.Helper()
	m, err := st.Pull(t.Context(), ref, nil)
	if err != nil {
		t.Fatalf("pull %s: %v", ref, err)
	}
	return m
}

func TestPullAndResolve(t *testing.T) {
	s := hubtest.Start(t)
	commit := hubtest.Commit("one")
	repo := tinyRepo(1000)
	s.Put(tiny, commit, repo)
	st := hubStore(t, s)
	var absent *models.NotPresentError
	if _, err := st.Resolve(t.Context(), tiny); !errors.As(err, &absent) || !strings.Contains(err.Error(), "ragate models pull "+tiny) {
		t.Errorf("not pulled yet: %v", err)
	}
	if reqs := s.Requests(); len(reqs) != 0 {
		t.Errorf("Resolve asked %+v", reqs)
	}
	m := pull(t, st, tiny)
	if wrong := differ("id", m.ID, tiny, "kind", m.Kind, models.KindEmbedder, "source", m.Source, models.SourceHub, "revision", m.Revision, commit, "tokens", m.MaxTokens, 256,
		"pooling", m.Pooling, models.PoolMean, "normalize", m.Normalize, true, "query", m.Prompts["query"], "q: ", "graph", m.GraphSHA256, hubtest.SHA256(repo["onnx/model.onnx"]),
		"tokenizer", m.TokenizerSHA256, hubtest.SHA256(repo["tokenizer.json"]), "dtype", m.DType, "float32", "year", m.Created.Year(), 2021, "languages", strings.Join(m.Languages, " "), "en nl"); wrong != "" {
		t.Errorf("%s\n%+v", wrong, m)
	}
	for _, q := range s.Requests() {
		for _, no := range []string{"safetensors", ".bin", "qint8"} {
			if strings.Contains(q.Path, no) {
				t.Errorf("fetched %s", q.Path)
			}
		}
	}
	// From now on nobody is asked.
	again, err := st.Resolve(t.Context(), tiny)
	if err != nil || again.GraphPath != m.GraphPath || again.Revision != m.Revision {
		t.Errorf("%+v, %v", again, err)
	}
	pull(t, st, tiny)
	if reqs := s.Requests(); len(reqs) != 0 {
		t.Errorf("asked again: %+v", reqs)
	}
	rep, err := st.Verify(tiny)
	if err != nil || !rep.OK() || len(rep.Files) < 8 || rep.Revision != commit {
		t.Errorf("%+v, %v", rep, err)
	}
	list, err := st.List()
	i := slices.IndexFunc(list, func(l models.Listed) bool { return l.ID == tiny })
	if err != nil || i < 0 || !list[i].Present || list[i].Revision != commit || list[i].Bytes == 0 {
		t.Errorf("%+v, %v", list, err)
	} else if _, err := st.Resolve(t.Context(), list[i].Reference); err != nil {
		t.Errorf("the listed reference %q: %v", list[i].Reference, err)
	}
	// The lock file holds commit and hashes.
	raw, err := os.ReadFile(filepath.Join(st.Dir, "models.lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{commit, m.GraphSHA256, m.TokenizerSHA256, `"onnx/model.onnx"`} {
		if !bytes.Contains(raw, []byte(want)) {
			t.Errorf("the lock file does not hold %s:\n%s", want, raw)
		}
	}
}

func TestABranchThatMovesIsNotFollowed(t *testing.T) {
	s := hubtest.Start(t)
	one, two := hubtest.Commit("one"), hubtest.Commit("two")
	s.Put(tiny, one, tinyRepo(1000))
	st := hubStore(t, s)
	first := pull(t, st, tiny)
	s.Put(tiny, two, tinyRepo(2000))
	if m := pull(t, st, tiny); m.Revision != one || m.GraphSHA256 != first.GraphSHA256 {
		t.Errorf("pulled again: %s", m.Revision)
	}
	// Also when the cache is gone: the locked commit is fetched.
	if err := os.RemoveAll(st.Hub.CacheDir); err != nil {
		t.Fatal(err)
	}
	var absent *models.NotPresentError
	if _, err := st.Resolve(t.Context(), tiny); !errors.As(err, &absent) {
		t.Errorf("the cache is gone: %v", err)
	}
	if m, err := st.Ensure(t.Context(), tiny, nil); err != nil || m.Revision != one {
		t.Errorf("fetched anew: %s, %v", m.Revision, err)
	}
	// A commit, a branch and a file are references of their own.
	if m := pull(t, st, tiny+"@"+two); m.Revision != two {
		t.Errorf("asked for %s, got %s", two, m.Revision)
	}
	m, err := st.Update(t.Context(), tiny, nil)
	if err != nil || m.Revision != two || m.GraphSHA256 == first.GraphSHA256 {
		t.Errorf("updated to %s, %v", m.Revision, err)
	}
	if m, err := st.Resolve(t.Context(), tiny); err != nil || m.Revision != two {
		t.Errorf("after the update: %s, %v", m.Revision, err)
	}
	if m, err := st.Resolve(t.Context(), tiny+"@"+two); err != nil || m.Revision != two {
		t.Errorf("by commit: %s, %v", m.Revision, err)
	}
}

// Somebody replaced the content behind a commit, or the lock file came from elsewhere: the lock's hash decides.
func TestContentThatDiffersFromTheLock(t *testing.T) {
	s := hubtest.Start(t)
	commit := hubtest.Commit("one")
	s.Put(tiny, commit, tinyRepo(1000))
	st := hubStore(t, s)
	m := pull(t, st, tiny)
	if err := os.RemoveAll(st.Hub.CacheDir); err != nil {
		t.Fatal(err)
	}
	other := tinyRepo(1000)
	graph := bytes.Clone(other["onnx/model.onnx"])
	graph[len(graph)-100] ^= 1
	other["onnx/model.onnx"] = graph
	s.Put(tiny, commit, other)
	_, err := st.Pull(t.Context(), tiny, nil)
	var wrong *models.MismatchError
	if !errors.As(err, &wrong) || !wrong.Removed || wrong.Want != "sha256:"+m.GraphSHA256 || wrong.Got != "sha256:"+hubtest.SHA256(graph) {
		t.Errorf("error is %v", err)
	}
	// And a file changed on disk.
	s.Put(tiny, commit, tinyRepo(1000))
	m = pull(t, st, tiny)
	if err := os.WriteFile(m.TokenizerPath, []byte(`{"model":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var load *models.LoadError
	if _, err := st.Resolve(t.Context(), tiny); !errors.As(err, &load) || !errors.As(err, &wrong) || !strings.Contains(err.Error(), "models pull "+tiny) {
		t.Errorf("error is %v", err)
	}
	if rep, err := st.Verify(tiny); err != nil || rep.OK() {
		t.Errorf("%+v, %v", rep, err)
	}
	pull(t, st, tiny)
	if rep, err := st.Verify(tiny); err != nil || !rep.OK() {
		t.Errorf("after the repair: %+v, %v", rep, err)
	}
}

func TestACommitThatIsGone(t *testing.T) {
	s := hubtest.Start(t)
	s.Put(tiny, hubtest.Commit("one"), tinyRepo(1000))
	st := hubStore(t, s)
	pull(t, st, tiny)
	if err := os.RemoveAll(st.Hub.CacheDir); err != nil {
		t.Fatal(err)
	}
	r := s.Put(tiny, hubtest.Commit("two"), tinyRepo(2000))
	s.Do(func() { delete(r.Commits, hubtest.Commit("one")) })
	if _, err := st.Pull(t.Context(), tiny, nil); err == nil || !strings.Contains(err.Error(), "--update") || !strings.Contains(err.Error(), hubtest.Commit("one")) {
		t.Errorf("error is %v", err)
	}
}

func TestOfflineFromTheCacheOfOthers(t *testing.T) {
	s := hubtest.Start(t)
	commit := hubtest.Commit("one")
	s.Put(tiny, commit, tinyRepo(1000))
	first := hubStore(t, s)
	m := pull(t, first, tiny)
	// Another store on the same machine: it has no lock file, only the shared cache.
	other := &models.Store{Dir: t.TempDir(), Hub: first.Hub}
	other.Hub.Offline = true
	s.Requests()
	got, err := other.Pull(t.Context(), tiny, nil)
	if err != nil || got.Revision != commit || got.GraphSHA256 != m.GraphSHA256 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := other.Resolve(t.Context(), tiny); err != nil || got.Revision != commit {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = other.Pull(t.Context(), "acme/absent", nil)
	var absent *models.NotPresentError
	if !errors.As(err, &absent) || !errors.Is(err, hub.ErrOffline) || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") || !strings.Contains(err.Error(), "acme/absent") {
		t.Errorf("error is %v", err)
	}
	// A file of it is damaged: it is not adopted.
	if err := os.WriteFile(m.TokenizerPath, []byte(`{"model":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	third := &models.Store{Dir: t.TempDir(), Hub: other.Hub}
	if _, err := third.Pull(t.Context(), tiny, nil); err == nil || !strings.Contains(err.Error(), "git-sha1:") {
		t.Errorf("a damaged copy: %v", err)
	}
	if reqs := s.Requests(); len(reqs) != 0 {
		t.Errorf("offline, and asked %+v", reqs)
	}
}

// What the hub's own library fetched is used: online, too, no byte is transferred twice.
func TestFilesInTheCacheAreNotFetchedAgain(t *testing.T) {
	s := hubtest.Start(t)
	s.Put(tiny, hubtest.Commit("one"), tinyRepo(1000))
	first := hubStore(t, s)
	pull(t, first, tiny)
	s.Requests()
	pull(t, &models.Store{Dir: t.TempDir(), Hub: first.Hub}, tiny)
	for _, q := range s.Requests() {
		if !strings.HasPrefix(q.Path, "/api/") {
			t.Errorf("asked %+v", q)
		}
	}
}

func TestWhichFileOfARepository(t *testing.T) {
	s := hubtest.Start(t)
	repo := tinyRepo(1000)
	s.Put(tiny, hubtest.Commit("one"), repo)
	st := hubStore(t, s)
	for _, ref := range []string{tiny + ":model_qint8.onnx", tiny + "@main:onnx/model_qint8.onnx"} {
		if m := pull(t, st, ref); m.GraphSHA256 != hubtest.SHA256(repo["onnx/model_qint8.onnx"]) {
			t.Errorf("%s gave %s", ref, m.GraphPath)
		}
	}
	var which *models.AmbiguousGraphError
	if _, err := st.Pull(t.Context(), tiny+":none.onnx", nil); !errors.As(err, &which) || !strings.Contains(err.Error(), "onnx/model.onnx, onnx/model_qint8.onnx") {
		t.Errorf("error is %v", err)
	}
	several := tinyRepo(1000)
	several["onnx/a.onnx"] = several["onnx/model.onnx"]
	delete(several, "onnx/model.onnx")
	s.Put("acme/several", hubtest.Commit("x"), several)
	if _, err := st.Pull(t.Context(), "acme/several", nil); !errors.As(err, &which) || !strings.Contains(err.Error(), "acme/several:onnx/a.onnx") {
		t.Errorf("error is %v", err)
	}
	s.Put("acme/noonnx", hubtest.Commit("y"), map[string][]byte{"tokenizer.json": []byte("{}")})
	if _, err := st.Pull(t.Context(), "acme/noonnx", nil); !errors.As(err, &which) || !strings.Contains(err.Error(), "no ONNX file") {
		t.Errorf("error is %v", err)
	}
	s.Put("acme/notok", hubtest.Commit("z"), map[string][]byte{"model.onnx": hubtest.ONNX(4, "")})
	if _, err := st.Pull(t.Context(), "acme/notok", nil); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("error is %v", err)
	}
	// None of the refused is held on to.
	raw, err := os.ReadFile(filepath.Join(st.Dir, "models.lock.json"))
	if err != nil || bytes.Contains(raw, []byte("several")) || bytes.Contains(raw, []byte("notok")) {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestWeightsBesideTheGraph(t *testing.T) {
	s := hubtest.Start(t)
	repo := tinyRepo(1000)
	repo["onnx/model.onnx"] = hubtest.ONNX(4, "model.onnx_data")
	repo["onnx/model.onnx_data"] = []byte("0123456789abcdef")
	repo["onnx/odd.onnx"] = hubtest.ONNX(4, "weights.bin")
	repo["onnx/weights.bin"] = []byte("fedcba9876543210")
	s.Put(tiny, hubtest.Commit("one"), repo)
	st := hubStore(t, s)
	for ref, want := range map[string]string{tiny: "model.onnx_data", tiny + ":odd.onnx": "weights.bin"} {
		m := pull(t, st, ref)
		if len(m.ExternalData) != 1 || filepath.Base(m.ExternalData[0]) != want {
			t.Errorf("%s: %q", ref, m.ExternalData)
			continue
		}
		if b, err := os.ReadFile(m.ExternalData[0]); err != nil || !bytes.Equal(b, repo["onnx/"+want]) {
			t.Errorf("%s: %v", ref, err)
		}
		if rep, err := st.Verify(ref); err != nil || !slices.ContainsFunc(rep.Files, func(f models.FileReport) bool { return f.Path == "onnx/"+want && f.State == models.FileOK }) {
			t.Errorf("%s: %+v, %v", ref, rep, err)
		}
	}
}

// The catalogue's facts join what the repository says.
func TestCatalogueModelsOfTheHub(t *testing.T) {
	s := hubtest.Start(t)
	repo := tinyRepo(1000)
	delete(repo, "config_sentence_transformers.json")
	s.Put("intfloat/e5-small-v2", hubtest.Commit("one"), repo)
	s.Put("cross-encoder/ms-marco-MiniLM-L6-v2", hubtest.Commit("two"), map[string][]byte{
		"config.json":    []byte(`{"model_type":"bert","architectures":["BertForSequenceClassification"],"id2label":{"0":"LABEL_0"},"max_position_embeddings":512}`),
		"tokenizer.json": []byte(`{"model":{}}`), "onnx/model.onnx": hubtest.ONNX(9, ""), "onnx/model_O4.onnx": hubtest.ONNX(8, ""),
	})
	st := hubStore(t, s)
	m := pull(t, st, "e5-small-v2@main")
	if wrong := differ("id", m.ID, "intfloat/e5-small-v2", "source", m.Source, models.SourceHub, "query", m.Prompts["query"], "query: ", "output", m.Output, "last_hidden_state", "tokens", m.MaxTokens, 256); wrong != "" {
		t.Error(wrong)
	}
	m = pull(t, st, "ms-marco-MiniLM-L-6-v2")
	if wrong := differ("id", m.ID, "cross-encoder/ms-marco-MiniLM-L6-v2", "kind", m.Kind, models.KindReranker, "tokens", m.MaxTokens, 512, "labels", m.Labels, 1); wrong != "" {
		t.Error(wrong)
	}
	if !slices.Contains(m.Names(), "cross-encoder/ms-marco-MiniLM-L-6-v2") {
		t.Errorf("names are %q", m.Names())
	}
	// Without a revision the packaged copy is meant, and it is not there.
	var absent *models.NotPresentError
	if _, err := st.Resolve(t.Context(), "e5-small-v2"); !errors.As(err, &absent) || !strings.Contains(err.Error(), "ragate setup") {
		t.Errorf("error is %v", err)
	}
}

func TestDeclarationsForAModelOfTheHub(t *testing.T) {
	s := hubtest.Start(t)
	s.Put(tiny, hubtest.Commit("one"), tinyRepo(1000))
	st := hubStore(t, s)
	dir := filepath.Join(st.Dir, "models", "acme--tiny-embedder")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, models.OverrideFile), []byte(`{"pooling":"cls","max_tokens":64}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if m := pull(t, st, tiny); m.Pooling != models.PoolCLS || m.MaxTokens != 64 {
		t.Errorf("%+v", m)
	}
}

func TestLockFileOfANewerProgram(t *testing.T) {
	st := &models.Store{Dir: t.TempDir()}
	path := filepath.Join(st.Dir, "models.lock.json")
	for content, says := range map[string]string{
		`{"version":2,"models":{}}`: "format 2",
		`{"version":1,`:             "models.lock.json",
		`{"version":1,"models":{"a/b@main":{"commit":"` + hubtest.Commit("x") + `","graph":"m.onnx","files":[{"path":"../../x"}]}}}`: "../../x",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Resolve(t.Context(), "a/b"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", content, err)
		}
	}
}

func TestProgressOfAPull(t *testing.T) {
	s := hubtest.Start(t)
	repo := tinyRepo(100_000)
	s.Put(tiny, hubtest.Commit("one"), repo)
	last := map[string][2]int64{}
	if _, err := hubStore(t, s).Pull(t.Context(), tiny, progress(func(file string, done, total int64) { last[file] = [2]int64{done, total} })); err != nil {
		t.Fatal(err)
	}
	n := int64(len(repo["onnx/model.onnx"]))
	if last["onnx/model.onnx"] != [2]int64{n, n} || len(last) < 8 {
		t.Errorf("%v", last)
	}
}

type progress func(file string, done, total int64)

func (f progress) Progress(file string, done, total int64) { f(file, done, total) }

// Two processes pull the same model, and a third another one, into one store and one cache.
func TestPullsByProcessesAtOnce(t *testing.T) {
	if os.Getenv("RAGATE_PULL_TEST") != "" {
		st := &models.Store{Dir: os.Getenv("RAGATE_PULL_DIR"), Hub: hub.Config{Endpoint: os.Getenv("RAGATE_PULL_TEST"), CacheDir: os.Getenv("RAGATE_PULL_CACHE")}}
		pull(t, st, os.Getenv("RAGATE_PULL_REF"))
		return
	}
	s := hubtest.Start(t)
	s.Put(tiny, hubtest.Commit("one"), tinyRepo(500_000))
	s.Put("acme/other", hubtest.Commit("two"), tinyRepo(400_000))
	st := hubStore(t, s)
	var procs []*exec.Cmd
	for _, ref := range []string{tiny, tiny, "acme/other"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPullsByProcessesAtOnce$")
		cmd.Env = append(os.Environ(), "RAGATE_PULL_TEST="+s.URL, "RAGATE_PULL_DIR="+st.Dir, "RAGATE_PULL_CACHE="+st.Hub.CacheDir, "RAGATE_PULL_REF="+ref)
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
	transfers := map[string]int{}
	for _, q := range s.Requests() {
		if q.Method == http.MethodGet && (q.Store || strings.Contains(q.Path, "/resolve/") && !strings.HasSuffix(q.Path, ".onnx")) {
			transfers[q.Path]++
		}
	}
	for path, n := range transfers {
		if n != 1 {
			t.Errorf("%s was transferred %d times", path, n)
		}
	}
	if len(transfers) < 10 {
		t.Errorf("only %d transfers: nothing was shown", len(transfers))
	}
	raw, err := os.ReadFile(filepath.Join(st.Dir, "models.lock.json"))
	var lock struct {
		Models map[string]json.RawMessage `json:"models"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &lock)
	}
	if err != nil || len(lock.Models) != 2 {
		t.Errorf("the lock file holds %d models (%v): %s", len(lock.Models), err, raw)
	}
	for _, ref := range []string{tiny, "acme/other"} {
		if _, err := st.Resolve(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// xlmrRepo is a repository as those of the XLM-R family look: positions that begin at 2, no token types.
func xlmrRepo(arch string, positions int, more map[string][]byte) map[string][]byte {
	repo := map[string][]byte{
		"config.json":           fmt.Appendf(nil, `{"model_type":"xlm-roberta","architectures":[%q],"max_position_embeddings":%d,"hidden_size":1024,"pad_token_id":1,"id2label":{"0":"LABEL_0"}}`, arch, positions),
		"tokenizer.json":        []byte(`{"model":{"type":"Unigram"}}`),
		"tokenizer_config.json": []byte(`{"model_max_length":8192}`),
	}
	maps.Copy(repo, more)
	return repo
}

func TestXLMRModelsOfTheHub(t *testing.T) {
	s := hubtest.Start(t)
	put := func(id string, repo map[string][]byte) { s.Put(id, hubtest.Commit(id), repo) }
	sentence := map[string][]byte{
		"modules.json":          []byte(`[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},{"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`),
		"1_Pooling/config.json": []byte(`{"word_embedding_dimension":1024,"pooling_mode_cls_token":true}`),
		"onnx/model.onnx":       hubtest.ONNX(4, "Constant_7_attr__value"),
		// Beside the name that exporters give, a file that only the graph names.
		"onnx/Constant_7_attr__value": []byte("0123456789abcdef"), "onnx/model.onnx_data": []byte("weights"),
	}
	put("BAAI/bge-m3", xlmrRepo("XLMRobertaModel", 8194, sentence))
	put("BAAI/bge-reranker-v2-m3", xlmrRepo("XLMRobertaForSequenceClassification", 8194, nil))
	put("onnx-community/bge-reranker-v2-m3-ONNX", xlmrRepo("XLMRobertaForSequenceClassification", 8194, map[string][]byte{
		"onnx/model.onnx": hubtest.ONNX(4, "model.onnx_data"), "onnx/model.onnx_data": []byte("0123456789abcdef"), "onnx/model_int8.onnx": hubtest.ONNX(5, ""),
	}))
	put("jinaai/jina-reranker-v2-base-multilingual", xlmrRepo("XLMRobertaForSequenceClassification", 1026, map[string][]byte{"onnx/model.onnx": hubtest.ONNX(6, "")}))
	put("intfloat/multilingual-e5-base", xlmrRepo("XLMRobertaModel", 514, map[string][]byte{"onnx/model.onnx": hubtest.ONNX(7, "")}))
	put("intfloat/multilingual-e5-small", map[string][]byte{
		"config.json": []byte(`{"model_type":"bert","architectures":["BertModel"],"max_position_embeddings":512,"hidden_size":384}`), "tokenizer.json": []byte(`{}`),
		"onnx/model.onnx": hubtest.ONNX(8, ""),
	})
	st := hubStore(t, s)

	m := pull(t, st, "bge-m3")
	if wrong := differ("tokens", m.MaxTokens, 8192, "pooling", m.Pooling, models.PoolCLS, "dimensions", m.Dimensions, 1024, "normalize", m.Normalize, true,
		"licence", m.License, "MIT", "weights", len(m.ExternalData), 1, "prompts", len(m.Prompts), 0, "output", m.Output, ""); wrong != "" {
		t.Error(wrong)
	}
	// The same files, found in the cache by a machine without a network and without a lock file.
	offline := &models.Store{Dir: t.TempDir(), Hub: hub.Config{CacheDir: st.Hub.CacheDir, Offline: true}}
	if m := pull(t, offline, "bge-m3"); len(m.ExternalData) != 1 {
		t.Errorf("offline: %+v", m)
	}
	if rep, err := offline.Verify("bge-m3"); err != nil || !slices.ContainsFunc(rep.Files, func(f models.FileReport) bool {
		return f.Path == "onnx/Constant_7_attr__value" && f.State == models.FileOK
	}) {
		t.Errorf("offline: %+v, %v", rep, err)
	}

	var which *models.AmbiguousGraphError
	if _, err := st.Pull(t.Context(), "BAAI/bge-reranker-v2-m3", nil); !errors.As(err, &which) || !strings.Contains(err.Error(), "onnx-community/bge-reranker-v2-m3-ONNX has an export") {
		t.Errorf("error is %v", err)
	}
	m = pull(t, st, "onnx-community/bge-reranker-v2-m3-ONNX")
	if wrong := differ("kind", m.Kind, models.KindReranker, "tokens", m.MaxTokens, 8192, "labels", m.Labels, 1, "file", filepath.Base(m.GraphPath), "model_int8.onnx", "weights", len(m.ExternalData), 0); wrong != "" {
		t.Error(wrong)
	}
	m = pull(t, st, "onnx-community/bge-reranker-v2-m3-ONNX:onnx/model.onnx")
	if wrong := differ("weights", len(m.ExternalData), 1, "tokens", m.MaxTokens, 8192); wrong != "" {
		t.Error(wrong)
	}
	m = pull(t, st, "jina-reranker-v2-base-multilingual")
	if wrong := differ("tokens", m.MaxTokens, 1024, "licence", m.License, "CC-BY-NC-4.0", "remarks", len(m.Remarks), 1); wrong != "" || !strings.Contains(m.Remarks[0], "commercial") {
		t.Errorf("%s, %q", wrong, m.Remarks)
	}
	m = pull(t, st, "multilingual-e5-base")
	if wrong := differ("tokens", m.MaxTokens, 512, "query", m.Prompts["query"], "query: ", "passage", m.Prompts["passage"], "passage: ", "pooling", m.Pooling, models.PoolMean); wrong != "" {
		t.Error(wrong)
	}
	// The original, beside the package's copy of the same name.
	m = pull(t, st, "multilingual-e5-small@main")
	if wrong := differ("source", m.Source, models.SourceHub, "tokens", m.MaxTokens, 512, "remarks", len(m.Remarks), 0, "licence", m.License, "MIT"); wrong != "" {
		t.Error(wrong)
	}
	list, err := st.List()
	if err != nil {
		t.Fatal(err)
	}
	for ref, says := range map[string]string{"intfloat/multilingual-e5-small": "rounded from the 4 bits", "BAAI/bge-reranker-v2-m3": "no ONNX file", "jinaai/jina-reranker-v2-base-multilingual": "CC-BY-NC-4.0"} {
		if !slices.ContainsFunc(list, func(l models.Listed) bool {
			return l.Reference == ref && l.License != "" && len(l.Remarks) == 1 && strings.Contains(l.Remarks[0], says)
		}) {
			t.Errorf("the list says nothing of %q about %s", says, ref)
		}
	}
}

// No setting gets a model beyond its position table.
func TestPositionsBoundTheLimit(t *testing.T) {
	model := func(config, declared string, positions int64) (models.Manifest, error) {
		dir := t.TempDir()
		g := onnxpb.NewGraph("g")
		g.Initializers = []*onnxpb.Tensor{onnxpb.NewTensor("roberta.embeddings.position_embeddings.weight", onnxpb.Float32, []int64{positions, 2}, make([]byte, 8*positions))}
		g.Outputs = []*onnxpb.ValueInfo{onnxpb.NewValueInfo("logits", onnxpb.Float32, onnxpb.Dim{Size: -1}, onnxpb.Dim{Size: 1})}
		raw, err := onnxpb.NewModel("test", 8, 17, g).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{"model.onnx": raw, "tokenizer.json": []byte("{}"), "config.json": []byte(config), models.OverrideFile: []byte(declared)} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return (&models.Store{Dir: t.TempDir()}).Resolve(t.Context(), dir)
	}
	const xlmr = `{"model_type":"xlm-roberta","architectures":["XLMRobertaForSequenceClassification"],"max_position_embeddings":514}`
	for _, c := range []struct {
		config, declared string
		rows             int64
		tokens, notes    int
		refused          string
	}{
		{xlmr, `{"kind":"reranker"}`, 514, 512, 0, ""},
		{xlmr, `{"kind":"reranker","max_tokens":512}`, 514, 512, 0, ""},
		{xlmr, `{"kind":"reranker","max_tokens":513}`, 514, 0, 0, "`max_tokens` in ragate.json is 513 and the model has positions for 512 tokens"},
		{`{"model_type":"bert","architectures":["BertForSequenceClassification"],"max_position_embeddings":512}`, `{"kind":"reranker","max_tokens":512}`, 512, 512, 0, ""},
		// The graph's own table, where config.json says more than there is, or nothing.
		{`{"model_type":"xlm-roberta","architectures":["XLMRobertaForSequenceClassification"],"max_position_embeddings":8194}`, `{"kind":"reranker"}`, 514, 512, 1, ""},
		{`{"model_type":"xlm-roberta","architectures":["XLMRobertaForSequenceClassification"]}`, `{"kind":"reranker"}`, 130, 128, 2, ""}, // and that 512 was assumed
		{`{}`, `{"kind":"reranker","max_tokens":8192}`, 512, 0, 0, "positions for 512 tokens"},
	} {
		m, err := model(c.config, c.declared, c.rows)
		var load *models.LoadError
		switch {
		case c.refused != "":
			if !errors.As(err, &load) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s with %s and %d rows: %v", c.config, c.declared, c.rows, err)
			}
		case err != nil || m.MaxTokens != c.tokens || len(m.Notes) != c.notes:
			t.Errorf("%s with %s and %d rows: %d tokens, %q, %v", c.config, c.declared, c.rows, m.MaxTokens, m.Notes, err)
		}
	}
}

// TestVerifyFindsTheGoldenFileOfAModelOfTheHub: its folder is the hub's cache, so the user's file lies where the user's declarations do.
func TestVerifyFindsTheGoldenFileOfAModelOfTheHub(t *testing.T) {
	s := hubtest.Start(t)
	s.Put(tiny, hubtest.Commit("one"), tinyRepo(1000))
	st := hubStore(t, s)
	m := pull(t, st, tiny)
	own := filepath.Join(st.Dir, "models", "acme--tiny-embedder")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join(own, models.GoldenFile)
	if err := os.WriteFile(golden, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	rep, err := st.Verify(tiny)
	if err != nil || !rep.OK() || rep.Err != nil || rep.Golden != golden || rep.Tokenizer != m.TokenizerPath {
		t.Errorf("%+v, %v", rep, err)
	}
	// One that is damaged is not looked into.
	if err := os.WriteFile(m.TokenizerPath, []byte(`{"model":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if rep, err := st.Verify(tiny); err != nil || rep.OK() || rep.Tokenizer != "" || rep.Golden != "" {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A model that has a SentencePiece file alone is read with it; beside a tokenizer.json it is not fetched.
func TestSentencePieceOfTheHub(t *testing.T) {
	s := hubtest.Start(t)
	only := xlmrRepo("XLMRobertaModel", 514, map[string][]byte{"onnx/model.onnx": hubtest.ONNX(7, ""), "sentencepiece.bpe.model": []byte("pieces")})
	both := maps.Clone(only)
	delete(only, "tokenizer.json")
	s.Put("acme/only", hubtest.Commit("only"), only)
	s.Put("acme/both", hubtest.Commit("both"), both)
	classed := maps.Clone(only)
	classed["config.json"] = []byte(`{"model_type":"bert","architectures":["BertModel"]}`)
	classed["tokenizer_config.json"] = []byte(`{"tokenizer_class":"XLMRobertaTokenizer"}`)
	s.Put("acme/classed", hubtest.Commit("classed"), classed)
	st := hubStore(t, s)
	for ref, want := range map[string]string{"acme/only": "sentencepiece.bpe.model", "acme/both": "tokenizer.json", "acme/classed": "sentencepiece.bpe.model"} {
		if m := pull(t, st, ref); filepath.Base(m.TokenizerPath) != want {
			t.Errorf("%s is read with %s, want %s", ref, m.TokenizerPath, want)
		}
	}
	for _, r := range s.Requests() {
		if strings.Contains(r.Path, "both") && strings.Contains(r.Path, "sentencepiece") {
			t.Errorf("fetched in vain: %s", r.Path)
		}
	}
}
