"""The lines that docs/api.md shows for each client, taken from there and run."""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from servers import EMBEDDER, RERANKER
from values import SAME_COSINE, SAME_LOGIT, logit

DOCS = Path(__file__).resolve().parents[4] / "docs" / "api.md"


def code(text):
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ") or not line.strip()).strip()


def snippets():
    """The block that all begin with, and the lines of each client by its heading."""
    section = re.search(r"^## Clients\n(.*?)^## ", DOCS.read_text("utf-8"), re.M | re.S).group(1)
    head, *rest = re.split(r"^### (.*)\n", section, flags=re.M)
    return code(head), {name: code(text) for name, text in zip(rest[::2], rest[1::2]) if code(text)}


PREAMBLE, SNIPPETS = snippets()
# Heading: the packages that a snippet calls through, where they are not the heading's own.
PACKAGES = {"openai (npm)": "npm:openai", "cohere-ai (npm)": "npm:cohere-ai"}
# Those of each folder of packages; cohere and huggingface_hub are in both.
CURRENT = ["openai", "openai (npm)", "cohere", "cohere-ai (npm)", "huggingface_hub"]
FRAMEWORKS = [name for name in SNIPPETS if name not in CURRENT] + ["cohere", "huggingface_hub"]
assert len(SNIPPETS) >= 17 and set(CURRENT) <= set(SNIPPETS), list(SNIPPETS)


def pytest_generate_tests(metafunc):
    chosen = {"current": CURRENT, "frameworks": FRAMEWORKS}[metafunc.config.getoption("--list")]
    package = lambda name: PACKAGES.get(name, name.removeprefix("haystack: "))
    metafunc.parametrize("name", [pytest.param(n, marks=pytest.mark.package(package(n))) for n in chosen])


def run_python(text, url, key):
    names = {}
    exec(compile(PREAMBLE, "docs/api.md", "exec"), names)
    assert names["URL"] == "http://localhost:8080"
    names.update(URL=url, KEY=key)
    exec(compile(text, "docs/api.md", "exec"), names)
    return {k: names[k] for k in ("vectors", "ranked") if k in names}


def run_node(text, url, key, names):
    head = "".join(f"const {k} = {json.dumps(v)};\n" for k, v in {**names, "URL": url, "KEY": key}.items())
    imports = [line for line in text.splitlines() if line.startswith("import ")]
    rest = "\n".join(line for line in text.splitlines() if line not in imports)
    found = ", ".join(k for k in ("vectors", "ranked") if f"const {k} =" in text)
    program = "\n".join([*imports, head, rest, f"console.log(JSON.stringify({{ {found} }}));"])
    folder = os.environ["RAGATE_CLIENTS_NODE"]
    done = subprocess.run(["node", "--input-type=module", "-e", program], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_snippet(server, calls, name):
    names = {}
    exec(compile(PREAMBLE, "docs/api.md", "exec"), names)
    texts, query = names["texts"], names["query"]
    assert (names["EMBEDDER"], names["RERANKER"]) == (EMBEDDER, RERANKER)
    shared = {k: names[k] for k in ("EMBEDDER", "RERANKER", "query", "texts")}
    text = SNIPPETS[name]
    got = run_node(text, server.url, server.client_key, shared) if "(npm)" in name else run_python(text, server.url, server.client_key)
    assert got, "a snippet must make `vectors` or `ranked`"
    if "vectors" in got:
        plain = np.array(server.post("/embed", {"inputs": texts, "prompt_name": "passage"}))
        vectors = np.asarray(got["vectors"], np.float64)
        assert vectors.shape == plain.shape and (vectors * plain).sum(1).min() > SAME_COSINE
    if "ranked" in got:
        plain = server.post("/rerank", {"query": query, "texts": texts})
        ranked = [(texts.index(k) if isinstance(k, str) else k, s) for k, s in got["ranked"]]
        assert [i for i, _ in ranked] == [r["index"] for r in plain]
        assert all(abs(logit(s) - logit(r["score"])) < SAME_LOGIT for (_, s), r in zip(ranked, plain))
    assert all(c.status == 200 for c in calls()) and calls.seen
