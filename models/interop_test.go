package models_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ragate/internal/hubtest"
	"ragate/models"
)

// Both directions with the hub's own Python library: it finds what was pulled here, and what it fetched is used here. Opt-in, because it
// needs that library: RAGATE_TEST_HF_PYTHON names a Python that has huggingface_hub.
func TestCacheIsSharedWithThePythonLibrary(t *testing.T) {
	python := os.Getenv("RAGATE_TEST_HF_PYTHON")
	if python == "" {
		t.Skip("opt-in: set RAGATE_TEST_HF_PYTHON to a python3 that has huggingface_hub")
	}
	s := hubtest.Start(t)
	commit := hubtest.Commit("one")
	repo := tinyRepo(100_000)
	s.Put(tiny, commit, repo)
	st := hubStore(t, s)
	m := pull(t, st, tiny)

	run := func(cache string, script string) map[string]any {
		t.Helper()
		cmd := exec.Command(python, "-c", script, tiny, commit)
		cmd.Env = append(os.Environ(), "HF_ENDPOINT="+s.URL, "HF_HUB_CACHE="+cache, "HF_HOME="+t.TempDir(), "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_XET=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		var answer map[string]any
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return answer
	}

	s.Requests()
	got := run(st.Hub.CacheDir, `
import json, sys
from huggingface_hub import scan_cache_dir, try_to_load_from_cache, hf_hub_download, snapshot_download
id, commit = sys.argv[1:]
scan = scan_cache_dir()
repos = {r.repo_id: r for r in scan.repos}
print(json.dumps({
    "warnings": [str(w) for w in scan.warnings],
    "commits": [r.commit_hash for r in repos[id].revisions],
    "refs": sorted(repos[id].refs),
    "files": repos[id].nb_files,
    "main": try_to_load_from_cache(id, "onnx/model.onnx"),
    "commit": try_to_load_from_cache(id, "1_Pooling/config.json", revision=commit),
    "local": hf_hub_download(id, "tokenizer.json", local_files_only=True),
    "snapshot": snapshot_download(id, local_files_only=True, allow_patterns=["*.json"]),
}))`)
	t.Logf("huggingface_hub sees %v", got)
	for what, want := range map[string]any{"main": m.GraphPath, "commit": filepath.Join(m.Dir, "1_Pooling", "config.json"), "local": m.TokenizerPath, "snapshot": m.Dir, "files": float64(8)} {
		if got[what] != want {
			t.Errorf("%s is %v, want %v", what, got[what], want)
		}
	}
	if w := got["warnings"].([]any); len(w) != 0 {
		t.Errorf("the library warns: %v", w)
	}
	if c := got["commits"].([]any); len(c) != 1 || c[0] != commit {
		t.Errorf("commits are %v", c)
	}
	if reqs := s.Requests(); len(reqs) != 0 {
		t.Errorf("the library asked %+v", reqs)
	}

	// The other way round: the library fetches from this hub, and nothing is transferred again.
	cache := t.TempDir()
	run(cache, `
import json, sys
from huggingface_hub import HfApi, hf_hub_download
id, commit = sys.argv[1:]
info = HfApi().model_info(id, revision="main", files_metadata=True)
assert info.sha == commit, info
want = [f.rfilename for f in info.siblings if f.rfilename.endswith(".json") or f.rfilename == "onnx/model.onnx"]
print(json.dumps({"paths": [hf_hub_download(id, name) for name in want]}))`)
	s.Requests()
	other := &models.Store{Dir: t.TempDir(), Hub: st.Hub}
	other.Hub.CacheDir = cache
	if m := pull(t, other, tiny); m.Revision != commit {
		t.Errorf("%+v", m)
	}
	for _, q := range s.Requests() {
		if !strings.HasPrefix(q.Path, "/api/") {
			t.Errorf("transferred again: %+v", q)
		}
	}
	other = &models.Store{Dir: t.TempDir(), Hub: other.Hub}
	other.Hub.Offline = true
	if m := pull(t, other, tiny); m.Revision != commit || len(s.Requests()) != 0 {
		t.Errorf("%+v", m)
	}
}
