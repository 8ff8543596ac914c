"""Real servers for the tests, and the report of what they spoke to.

RAGATE_BINARY names the program, RAGATE_DATA_DIR the folder with its models; `make test-integrations` sets both. With --complete a run
fails unless every package and the server were really spoken to and nothing was skipped.
"""

from __future__ import annotations

import http.server
import importlib.metadata
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Dict, List, Optional

import httpx
import pytest

# LiteLLM would otherwise fetch its price list when it is imported, here and in the proxies that tests start.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

START_TIMEOUT = 240  # seconds; a first start measures the machine
PACKAGES = ("httpx", "litellm", "langchain-core", "llama-index-core")

# What the tests of this session used: filled by the fixtures, read by the report.
_requests: Dict[str, int] = {}
_versions: Dict[str, str] = {}
_used: Dict[str, int] = {}
_skipped: List[str] = []
_ran: List[str] = []


class Ragate:
    """A running server. Its log goes to a file; the first lines say where it listens."""

    def __init__(self, folder: Path, **environment: str):
        binary, data = os.environ.get("RAGATE_BINARY"), os.environ.get("RAGATE_DATA_DIR")
        if not binary or not data:
            pytest.fail("RAGATE_BINARY and RAGATE_DATA_DIR must name the program and its data folder: run `make test-integrations`")
        self.log = folder / "ragate.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [binary, "serve", "--listen", "127.0.0.1:0"], env={**os.environ, **environment}, stdout=log, stderr=log
            )
        self.url = self._await_ready()
        try:
            info = httpx.get(self.url + "/info", headers=_key(environment)).json()
            self.version, self.models = info["version"], [m["id"] for m in info["models"]]
        except BaseException:
            self.stop()  # nobody else has it yet
            raise

    def _await_ready(self) -> str:
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end and self._process.poll() is None:
            for line in self.log.read_text().splitlines():
                if '"msg":"ready"' in line:
                    return json.loads(line)["url"]
            time.sleep(0.1)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        pytest.fail(f"the server did not become ready:\n{self.log.read_text()[-4000:]}")

    def requests(self) -> Dict[str, int]:
        """Successful requests so far, by route."""
        counts: Dict[str, int] = {}
        for line in httpx.get(self.url + "/metrics").text.splitlines():
            if line.startswith("ragate_http_requests_total") and 'status="200"' in line:
                route = re.search(r'route="([^"]*)"', line).group(1)
                if route.startswith("/v1/"):
                    counts[route] = counts.get(route, 0) + int(float(line.rsplit(" ", 1)[1]))
        return counts

    def stop(self) -> None:
        if self._process.poll() is None:
            try:
                for route, n in self.requests().items():
                    _requests[route] = _requests.get(route, 0) + n
            except httpx.HTTPError:
                pass  # it stops all the same
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=60)


def _key(environment: Dict[str, str]) -> Dict[str, str]:
    """The header for a server with a key, which stands behind its name there."""
    key = environment.get("RAGATE_API_KEY", "").rpartition(":")[2]
    return {"Authorization": f"Bearer {key}"} if key else {}


@pytest.fixture(scope="session")
def ragate(tmp_path_factory):
    """The server that most tests share."""
    server = Ragate(tmp_path_factory.mktemp("ragate"), RAGATE_BUDGET_MS="20000")
    _versions["ragate"] = f"{server.version} at {server.url}, models {', '.join(server.models)}"
    yield server
    server.stop()


@pytest.fixture
def start_ragate(tmp_path):
    """Starts servers of a test's own."""
    started: List[Ragate] = []

    def start(**environment: str) -> Ragate:
        started.append(Ragate(tmp_path, **environment))
        return started[-1]

    yield start
    for server in started:
        server.stop()


class Broken:
    """A server that answers every POST with the same status and body, after a delay. Nothing stands in for ragate but its failures."""

    def __init__(self, status: int, body: bytes, delay: float, headers: Dict[str, str]):
        self.calls = 0
        self._released = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.calls += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                if delay:
                    outer._released.wait(delay)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    pass  # the client gave up, as some tests want it to

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def broken():
    started: List[Broken] = []

    def start(status: int = 200, body: bytes = b"", delay: float = 0, headers: Optional[Dict[str, str]] = None) -> Broken:
        started.append(Broken(status, body, delay, headers or {}))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def closed_url():
    """An address where nothing listens: a port that was free a moment ago."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


@pytest.fixture
def spoke_to():
    """Notes that a test went through a real package, after it did."""

    def note(package: str) -> None:
        _versions[package] = importlib.metadata.version(package)
        _used[package] = _used.get(package, 0) + 1

    return note


def pytest_addoption(parser):
    parser.addoption("--complete", action="store_true", help="fail unless every package and the server were spoken to")


def pytest_runtest_logreport(report):
    if report.skipped:
        _skipped.append(report.nodeid)
    elif report.when == "call" and report.passed:
        _ran.append(report.nodeid)


def _missing() -> List[str]:
    missing = [p for p in PACKAGES if not _used.get(p)]
    if not sum(_requests.values()):
        missing.append("a ragate server")
    if not _ran:
        missing.append("any passing test")
    return missing


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if session.config.getoption("--complete") and exitstatus == 0 and (_missing() or _skipped):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    out = terminalreporter
    out.section("spoke to")
    for package in PACKAGES:
        if _used.get(package):
            out.write_line(f"{package} {_versions[package]}: spoken to {_used[package]} times")
    if _requests:
        out.write_line(f"ragate {_versions.get('ragate', 'with a key')}")
        out.write_line(f"  {sum(_requests.values())} answers: " + ", ".join(f"{n} of {r}" for r, n in sorted(_requests.items())))
    if config.getoption("--complete"):
        if _missing():
            out.write_line(f"FAILED: nothing spoke to {', '.join(_missing())}", red=True)
        if _skipped:
            out.write_line(f"FAILED: skipped tests: {', '.join(_skipped)}", red=True)
