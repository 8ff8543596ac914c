"""Running servers, what they answer without any client in between, and what their log says of who called."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

import httpx

START_TIMEOUT = 240  # seconds; a first start measures the machine
EMBEDDER = "intfloat/e5-small-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L12-v2"
HARNESS = "harness-"  # begins the request ids of what no client sent


class Call(NamedTuple):
    """A request that a client sent, as the server's log has it."""

    route: str
    status: int
    items: int
    time: float  # seconds, when it was answered
    error: str


def _seconds(time: str) -> float:
    """A time of the log (RFC 3339 in UTC, with up to 9 digits behind the second) as seconds since 1970."""
    whole, _, fraction = time.rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(whole + "+00:00").timestamp() + float("0." + (fraction or "0"))


def assert_retried(calls: List[Call]) -> None:
    """The client met a full queue, waited as long as Retry-After said, and was served.

    The refusal's message repeats the header's seconds. How long was waited is seen from the server's side; a client may wait longer.
    """
    refused = [c for c in calls if c.status == 429]
    assert refused and calls[-1].status == 200 and all(c.status == 429 for c in calls[:-1]), calls
    for before, after in zip(calls, calls[1:]):
        told = int(re.search(r"try again in (\d+) s", before.error).group(1))
        assert after.time - before.time >= 0.99 * told, calls


class Server:
    """A ragate process with real models. `key` is what clients must send, "" where none is asked for."""

    def __init__(self, folder: Path, key: str = "", **environment: str):
        binary, data = os.environ.get("RAGATE_BINARY"), os.environ.get("RAGATE_DATA_DIR")
        if not binary or not data:
            raise RuntimeError("RAGATE_BINARY and RAGATE_DATA_DIR must name the program and its data folder: run `make test-clients`")
        self.key = key
        if key:
            environment["RAGATE_API_KEY"] = f"clients:{key}"
        self.log = folder / "ragate.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [binary, "serve", "--listen", "127.0.0.1:0"], stdout=log, stderr=log,
                env={**os.environ, "RAGATE_LOG_FORMAT": "json", "RAGATE_LOG_LEVEL": "info", **environment},
            )
        try:
            self.url = self._await_ready()
            self.raw = httpx.Client(base_url=self.url, timeout=600, headers={"X-Request-Id": HARNESS, **self.auth})
            info = self.raw.get("/info").json()
            self.version = info["version"]
            self.precision = {m["id"]: m["precision"] for m in info["models"]}
        except BaseException:
            self._process.kill()  # nobody else has it yet
            self._process.wait()
            raise
        self._read = 0
        self._answers: Dict[str, Any] = {}

    @property
    def auth(self) -> Dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def client_key(self) -> str:
        """What to give to clients that insist on some key."""
        return self.key or "none"

    def _await_ready(self) -> str:
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end and self._process.poll() is None:
            for line in self.log.read_text("utf-8").splitlines():
                if '"msg":"ready"' in line:
                    return json.loads(line)["url"]
            time.sleep(0.05)
        raise RuntimeError(f"the server did not become ready:\n{self.log.read_text('utf-8')[-4000:]}")

    def post(self, path: str, body: Any) -> Any:
        """An answer without a client. It is asked for once: many tests compare with the same ones."""
        key = json.dumps([path, body])
        if key not in self._answers:
            response = self.raw.post(path, json=body)
            assert response.status_code == 200, response.text
            self._answers[key] = response.json()
        return self._answers[key]

    def metric(self, name: str) -> float:
        for line in httpx.get(self.url + "/metrics").text.splitlines():
            if line.startswith((name + " ", name + "{")):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"/metrics has no {name}")

    def calls(self) -> List[Call]:
        """What clients have sent since this was last asked. Waits for the log lines of requests that have been answered just now."""
        for _ in range(100):
            if self.metric("ragate_http_requests_in_flight") <= 1:  # the scrape itself
                break
            time.sleep(0.01)
        time.sleep(0.02)  # the line is written after the gauge went down
        data = self.log.read_bytes()
        end = data.rfind(b"\n") + 1
        fresh, self._read = data[self._read : end], end
        out = []
        for line in fresh.decode("utf-8").splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("msg") == "request" and not entry["request_id"].startswith(HARNESS):
                out.append(Call(entry["route"], entry["status"], entry.get("items", 0), _seconds(entry["time"]), entry.get("error", "")))
        return out

    @contextlib.contextmanager
    def flooded(self, documents: int = 40) -> Iterator[None]:
        """While this is open the queue is full of one large request; it empties by itself."""
        text = "the contract ends one month after notice was given in writing, " * 30
        body = {"query": "when does it end", "documents": [f"{i} {text}" for i in range(documents)]}
        answers: List[int] = []
        flood = threading.Thread(target=lambda: answers.append(self.raw.post("/v1/rerank", json=body).status_code))
        flood.start()
        for _ in range(1000):
            if self.metric("ragate_queue_tokens") > 8_000:
                break
            time.sleep(0.005)
        else:
            raise AssertionError("the flood did not fill the queue")
        try:
            yield
        finally:
            flood.join()
        assert answers == [200], "the flood itself must be served"

    def stop(self) -> None:
        self.raw.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=60)
