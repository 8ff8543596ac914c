"""The LiteLLM hook: in a real LiteLLM proxy process in front of a running server, and alone for each way a gate can fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict

import httpx
import pytest
from litellm.caching.caching import DualCache
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.utils import ProxyLogging
import litellm

from ragate_client.litellm import RagateQueryGate

QUESTION = "What is the notice period for a fixed-term contract?"
KEYS = ("retrieval_bypassed", "retrieval_stage", "retrieval_reason")


def user(text: Any) -> Dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> Dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture
def gate(ragate):
    return RagateQueryGate(ragate.url, deadline=60)


@pytest.fixture
def pre_call(monkeypatch, spoke_to):
    """Runs a request through LiteLLM's own pre-call machinery, with the hook as its only callback."""

    def run(gate: RagateQueryGate, data: Dict[str, Any], call_type: str = "acompletion") -> Dict[str, Any]:
        monkeypatch.setattr(litellm, "callbacks", [gate])

        async def go():
            logging_obj = ProxyLogging(user_api_key_cache=DualCache())
            return await logging_obj.pre_call_hook(UserAPIKeyAuth(api_key="sk-x"), data, call_type)

        out = asyncio.run(go())
        spoke_to("litellm")
        return out

    return run


def test_small_talk_is_bypassed(gate, pre_call):
    data = pre_call(gate, {"model": "m", "messages": [user("bedankt!")], "metadata": {"trace": "t"}})
    assert data["metadata"]["retrieval_bypassed"] is True and data["metadata"]["retrieval_stage"] == "pattern"
    assert "nl.thanks" in data["metadata"]["retrieval_reason"] and data["metadata"]["trace"] == "t"
    assert data["messages"] == [user("bedankt!")] and data["model"] == "m"


def test_a_question_is_not(gate, pre_call):
    data = pre_call(gate, {"messages": [{"role": "system", "content": "Be kind."}, user("hi"), assistant("hello"), user(QUESTION)]})
    assert data["metadata"]["retrieval_bypassed"] is False and data["metadata"]["retrieval_stage"] == "semantic"


def test_history_is_sent(gate, pre_call):
    assert pre_call(gate, {"messages": [user("why?")]})["metadata"]["retrieval_bypassed"] is False
    assert pre_call(gate, {"messages": [user(QUESTION), assistant("One month."), user("why?")]})["metadata"]["retrieval_bypassed"] is True
    system_is_no_history = {"messages": [{"role": "system", "content": "Be kind."}, user("why?")]}
    assert pre_call(gate, system_is_no_history)["metadata"]["retrieval_bypassed"] is False


def test_history_turns_bounds_it(ragate, pre_call):
    gate = RagateQueryGate(ragate.url, deadline=60, history_turns=0)
    assert pre_call(gate, {"messages": [user(QUESTION), assistant("One month."), user("why?")]})["metadata"]["retrieval_bypassed"] is False


def test_parts(gate, pre_call):
    text = {"type": "text", "text": "bedankt!"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert pre_call(gate, {"messages": [user([text])]})["metadata"]["retrieval_bypassed"] is True
    data = pre_call(gate, {"messages": [user([text, image])]})
    assert data["metadata"]["retrieval_bypassed"] is False and "no text" in data["metadata"]["retrieval_reason"]


def test_a_tools_result_belongs_to_the_turn_before(gate, pre_call):
    messages = [user("bedankt!"), assistant(None), {"role": "tool", "tool_call_id": "1", "content": "22 degrees"}]
    assert pre_call(gate, {"messages": messages})["metadata"]["retrieval_bypassed"] is True
    anthropic = [user("bedankt!"), assistant("let me see"), user([{"type": "tool_result", "tool_use_id": "1", "content": "22"}])]
    data = pre_call(gate, {"messages": anthropic, "litellm_metadata": {}}, "anthropic_messages")
    assert data["litellm_metadata"]["retrieval_bypassed"] is True


@pytest.mark.parametrize("messages", [[], [assistant("hi")], [{"role": "system", "content": "x"}], [None], [user(None)]], ids=str)
def test_no_user_message_means_retrieve(gate, pre_call, messages):
    data = pre_call(gate, {"messages": messages})
    assert data["metadata"]["retrieval_bypassed"] is False and data["metadata"]["retrieval_stage"] == "default"


def test_what_the_caller_claims_is_overwritten(gate, pre_call):
    data = pre_call(gate, {"messages": [user(QUESTION)], "metadata": {"retrieval_bypassed": True}})
    assert data["metadata"]["retrieval_bypassed"] is False


def test_metadata_that_is_none(gate, pre_call):
    assert pre_call(gate, {"messages": [user("hi")], "metadata": None})["metadata"]["retrieval_bypassed"] is True


def test_responses_and_anthropic_keep_it_from_the_provider(gate, pre_call):
    for call_type, body in (("aresponses", {"input": "bedankt!"}), ("aresponses", {"input": [user("bedankt!")]}), ("anthropic_messages", {"messages": [user("bedankt!")]})):
        data = pre_call(gate, {**body, "metadata": {"user_id": "u"}, "litellm_metadata": {"a": 1}}, call_type)
        assert data["litellm_metadata"]["retrieval_bypassed"] is True and data["metadata"] == {"user_id": "u"}


def test_other_calls_are_left_alone(gate, pre_call):
    for call_type in ("aembedding", "atext_completion"):
        assert pre_call(gate, {"input": "hi", "prompt": "hi"}, call_type) == {"input": "hi", "prompt": "hi"}


GOOD = b'{"needs_retrieval":true,"retrieval_bypassed":false,"stage":"default","reason":"r"}'
FAILURES = {
    "timeout": dict(body=GOOD.replace(b"true", b"false"), delay=30),
    "status 500": dict(status=500, body=b"boom"),
    "status 503": dict(status=503, body=b"", headers={"Retry-After": "1"}),
    "status 429": dict(status=429, body=b'{"error":{"message":"full","code":"queue_full","param":null}}'),
    "status 401": dict(status=401, body=b'{"error":{"message":"wrong key","code":"invalid_api_key","param":null}}'),
    "malformed": dict(body=b"<html>"),
    "malformed, no decision": dict(body=b'{"retrieval_bypassed":true}'),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failing_gate_lets_the_call_go_on(broken, pre_call, caplog, kind):
    server = broken(**FAILURES[kind])
    gate = RagateQueryGate(server.url, deadline=0.3 if kind == "timeout" else 60)
    with caplog.at_level(logging.INFO, "ragate_client"):
        for _ in range(3):
            data = pre_call(gate, {"messages": [user("bedankt!")]})
            assert data["messages"] == [user("bedankt!")]
            assert data["metadata"]["retrieval_bypassed"] is False and data["metadata"]["retrieval_stage"] == "default"
            assert kind.partition(",")[0] in data["metadata"]["retrieval_reason"]
    assert server.calls == 3
    (record,) = [r for r in caplog.records if r.name == "ragate_client.litellm"]
    assert record.levelno == (logging.ERROR if kind == "status 401" else logging.WARNING)


def test_a_gate_that_is_gone(closed_url, pre_call, caplog):
    gate = RagateQueryGate(closed_url, deadline=60)
    for _ in range(3):
        data = pre_call(gate, {"messages": [user("bedankt!")]})
        assert data["metadata"]["retrieval_bypassed"] is False and "unreachable" in data["metadata"]["retrieval_reason"]
    assert len([r for r in caplog.records if r.name == "ragate_client.litellm"]) == 1


def test_the_log_tells_the_recovery(ragate, closed_url, pre_call, caplog):
    gate = RagateQueryGate(closed_url, deadline=60)
    pre_call(gate, {"messages": [user("hi")]})
    gate._base_url = ragate.url  # the same hook, now with a server at its address; a new loop takes a new client
    for _ in range(2):
        assert pre_call(gate, {"messages": [user("hi")]})["metadata"]["retrieval_bypassed"] is True
    lines = [r.getMessage() for r in caplog.records if r.name == "ragate_client.litellm"]
    assert len(lines) == 2 and "answers again after 1" in lines[1]


def test_a_slow_drip_is_late_all_the_same(pre_call):
    """Each byte in time, the whole answer not: the deadline is for the whole."""

    async def drip(reader, writer):
        try:
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def go():
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        data = await RagateQueryGate(url, deadline=0.5).async_pre_call_hook(None, None, {"messages": [user("hi")]}, "acompletion")
        server.close()
        return data

    data = asyncio.run(asyncio.wait_for(go(), 30))
    assert data["metadata"]["retrieval_bypassed"] is False and "timeout" in data["metadata"]["retrieval_reason"]


def test_bad_settings():
    for settings in ({"deadline": 0}, {"history_turns": -1}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            RagateQueryGate(**settings)


class Proxy:
    """A LiteLLM proxy process with the hook and a recorder behind it, in front of a model whose answers LiteLLM makes up."""

    def __init__(self, folder: Path, gate_url: str):
        self.key = "sk-" + secrets.token_hex(16)
        self.log, self._seen = folder / "proxy.log", folder / "seen.jsonl"
        (folder / "hook.py").write_text(
            f"""
import json
from litellm.integrations.custom_logger import CustomLogger
from ragate_client.litellm import RagateQueryGate

gate = RagateQueryGate({gate_url!r}, deadline=60)

class Recorder(CustomLogger):
    # Runs after the gate, as a retrieval hook would.
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        metadata = data["metadata"] if "litellm_metadata" not in data else data["litellm_metadata"]
        with open({str(self._seen)!r}, "a") as f:
            f.write(json.dumps({{"call_type": call_type, **{{k: metadata[k] for k in {KEYS!r}}}}}) + "\\n")
        return data

recorder = Recorder()
"""
        )
        (folder / "config.yaml").write_text(
            """
model_list:
  - model_name: fake
    litellm_params: {model: openai/fake, api_key: none, mock_response: "a made-up answer"}
litellm_settings:
  callbacks: [hook.gate, hook.recorder]
"""
        )
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "LITELLM_MASTER_KEY": self.key}
        environment.pop("DATABASE_URL", None)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "litellm.proxy.proxy_cli", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
                + ["--telemetry", "False"],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + 180
        while True:
            try:
                if httpx.get(self.url + "/health/liveliness").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                pytest.fail(f"LiteLLM's proxy did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.2)

    def post(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """Sends a call; returns what the recorder saw of it."""
        before = len(self._lines())
        answer = httpx.post(self.url + path, json={"model": "fake", **body}, headers={"Authorization": f"Bearer {self.key}"}, timeout=60)
        assert answer.status_code == 200 and "a made-up answer" in answer.text, answer.text
        lines = self._lines()
        assert len(lines) == before + 1
        return json.loads(lines[-1])

    def _lines(self) -> list:
        return self._seen.read_text().splitlines() if self._seen.exists() else []

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def test_in_a_running_proxy(start_ragate, tmp_path, spoke_to):
    server = start_ragate(RAGATE_BUDGET_MS="20000")
    (tmp_path / "proxy").mkdir()
    proxy = Proxy(tmp_path / "proxy", server.url)
    try:
        thanks = [user(QUESTION), assistant("One month."), user("bedankt!")]
        seen = proxy.post("/v1/chat/completions", {"messages": thanks})
        assert seen["call_type"] == "acompletion" and seen["retrieval_bypassed"] is True and seen["retrieval_stage"] == "pattern"
        seen = proxy.post("/v1/chat/completions", {"messages": [user(QUESTION)]})
        assert seen["retrieval_bypassed"] is False and seen["retrieval_stage"] == "semantic"
        assert proxy.post("/v1/responses", {"input": "bedankt!"})["retrieval_bypassed"] is True
        assert proxy.post("/v1/messages", {"messages": thanks, "max_tokens": 9})["retrieval_bypassed"] is True
        assert "ragate gave no decision" not in proxy.log.read_text()

        server.stop()
        for _ in range(3):
            seen = proxy.post("/v1/chat/completions", {"messages": thanks})
            assert seen["retrieval_bypassed"] is False and "unreachable" in seen["retrieval_reason"]
        assert proxy.log.read_text().count("ragate gave no decision") == 1
    finally:
        proxy.stop()
    spoke_to("litellm")
