"""Servers for the tests, and the table of which package called them how often.

Every test says with `@pytest.mark.package("name", …)` (or `pytestmark`) which packages its requests go through; the server's log says
how many came. A run fails when a package of LISTS[--list] made no call, and when a test was skipped.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections import Counter
from pathlib import Path
from typing import Dict, List

import pytest

# Nothing here may look for a way out of this machine. LiteLLM also has the only copy of tiktoken's vocabulary that comes with a package.
os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    HAYSTACK_TELEMETRY_ENABLED="False",
    HF_HUB_DISABLE_TELEMETRY="1",
    LANGSMITH_TRACING="false",
    NO_PROXY="127.0.0.1",
    no_proxy="127.0.0.1",
)

for name in ("HF_TOKEN", "HF_ENDPOINT", "OPENAI_BASE_URL", "CO_API_URL"):  # what a person has set must not go to the tests' servers, nor them elsewhere
    os.environ.pop(name, None)

from servers import Server  # noqa: E402

CLIENTS = Path(__file__).resolve().parent.parent

# The packages that must have called the server, by the folder of packages that a run uses: `current` has the majors that the others do
# not allow yet.
LISTS = {
    "frameworks": [
        "cohere", "huggingface_hub", "langchain-openai", "langchain-cohere", "langchain-huggingface",
        "llama-index-embeddings-openai", "llama-index-embeddings-openai-like", "llama-index-embeddings-text-embeddings-inference",
        "llama-index-postprocessor-cohere-rerank", "llama-index-postprocessor-jinaai-rerank", "llama-index-postprocessor-tei-rerank",
        "litellm", "huggingface-api-haystack", "cohere-haystack", "jina-haystack",
    ],
    "current": ["openai", "cohere", "huggingface_hub", "llama-index-embeddings-openai", "npm:openai", "npm:cohere-ai"],
}

_calls: Dict[str, Counter] = {}  # by package: statuses of the calls that reached a server
_skipped: List[str] = []
_servers: List[Server] = []  # those running
_versions: Dict[str, str] = {}


def version(package: str) -> str:
    if package.startswith("npm:"):
        manifest = Path(os.environ["RAGATE_CLIENTS_NODE"]) / "node_modules" / package[4:] / "package.json"
        return json.loads(manifest.read_text("utf-8"))["version"]
    return importlib.metadata.version(package)


def _run(folder: Path, **settings: str):
    server = Server(folder, **settings)
    _versions["ragate"] = f"{server.version}, " + ", ".join(f"{m} in {p}" for m, p in server.precision.items())
    _servers.append(server)
    try:
        yield server
    finally:
        _servers.remove(server)
        server.stop()


@pytest.fixture(scope="session", params=["open", "keyed"])
def server(request, tmp_path_factory):
    """A server with its defaults: first one that asks for no key, then one that does."""
    key = {"key": "a-key-of-the-clients"} if request.param == "keyed" else {}
    yield from _run(tmp_path_factory.mktemp(request.param), **key)


STRICT_ITEMS, STRICT_DOCUMENTS, STRICT_BYTES = 16, 200, 1 << 20


@pytest.fixture(scope="session")
def strict(tmp_path_factory):
    """A server with a key, small limits and no cutting: for errors. What a cache knows would go past the full queue."""
    yield from _run(
        tmp_path_factory.mktemp("strict"), key="a-key-of-the-clients", RAGATE_TRUNCATE="false", RAGATE_MAX_ITEMS=str(STRICT_ITEMS),
        RAGATE_MAX_DOCUMENTS=str(STRICT_DOCUMENTS), RAGATE_MAX_BODY_BYTES=str(STRICT_BYTES), RAGATE_MAX_QUEUED_TOKENS="2048", RAGATE_SCORE_CACHE="off",
    )


@pytest.fixture
def calls():
    """Asks what the test has sent so far, at most once a test for all of it."""
    seen: List = []

    def ask():
        for s in _servers:
            seen.extend(s.calls())
        return list(seen)

    ask.seen = seen
    return ask


@pytest.fixture(autouse=True)
def _count(request, calls):
    names = [n for mark in request.node.iter_markers("package") for n in mark.args]
    assert names, "a test must say through which package it calls"
    for s in _servers:
        s.calls()  # not this test's
    yield
    sent = calls()
    for name in names:
        _calls.setdefault(name, Counter()).update(c.status for c in sent)
        _versions[name] = version(name)


def pytest_addoption(parser):
    parser.addoption("--list", choices=sorted(LISTS), help="the packages that must have called; none is asked for without")


def pytest_configure(config):
    config.addinivalue_line("markers", "package(name, …): the packages that the test's requests go through")


def pytest_runtest_logreport(report):
    if report.skipped:
        _skipped.append(report.nodeid)


def _missing(config) -> List[str]:
    chosen = config.getoption("--list")
    return [p for p in LISTS.get(chosen, []) if not _calls.get(p)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and (_missing(session.config) or _skipped):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    out = terminalreporter
    out.section("calls that reached ragate " + _versions.get("ragate", ""))
    out.write_line(f"{'package':<52}{'version':<12}{'calls':>6}{'served':>8}  refused")
    for package in sorted(set(_calls) | set(LISTS.get(config.getoption("--list"), []))):
        counts = _calls.get(package, Counter())
        refused = ", ".join(f"{n} × {status}" for status, n in sorted(counts.items()) if status >= 400)
        out.write_line(f"{package:<52}{_versions.get(package, '?'):<12}{sum(counts.values()):>6}{counts[200]:>8}  {refused}")
    if _missing(config):
        out.write_line(f"FAILED: no call from {', '.join(_missing(config))}", red=True)
    if _skipped:
        out.write_line(f"FAILED: skipped tests: {', '.join(_skipped)}", red=True)
