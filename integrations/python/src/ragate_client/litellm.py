"""A hook for the LiteLLM proxy: asks the query gate before each chat call, and notes the answer in the call's metadata.

Put an instance into a module beside the proxy's config.yaml and name it there:

    # gate.py
    from ragate_client.litellm import RagateQueryGate
    gate = RagateQueryGate("http://127.0.0.1:8080")

    # config.yaml
    litellm_settings:
      callbacks: [gate.gate]

What comes after the hook (a retrieval hook, a custom logger) reads from `data["metadata"]`:

    retrieval_bypassed  True: this turn needs no retrieval
    retrieval_stage     what decided: pattern, semantic, …; `default` when nothing did
    retrieval_reason    a sentence

The routes of Anthropic and of OpenAI's responses pass their `metadata` on to the provider; there the proxy keeps its own under
`litellm_metadata`, and so does this hook.

It promises to let every call go on. When the gate is down or slow, answers nonsense or refuses, `retrieval_bypassed` is False, with the
reason, and the log says so once. Calls that are no conversation (embeddings, images, plain completions) are left alone.

Not for calls through LiteLLM's SDK: only its proxy runs pre-call hooks. And LiteLLM runs a pre-call hook only where the object's
own class defines it: a subclass has to define `async_pre_call_hook` again, if only to call this one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Dict, List, Optional, Tuple

from litellm.integrations.custom_logger import CustomLogger

from .client import DEFAULT_BASE_URL, AsyncClient
from .errors import MalformedAnswerError, RagateError, TimedOutError
from .failopen import OutageLog
from .types import QueryDecision, Turn

logger = logging.getLogger("ragate_client.litellm")

DEFAULT_GATE_DEADLINE = 0.5
"""Seconds that a call may be held up. The gate answers within its budget of 100 ms; beyond that retrieving is cheaper than waiting."""

DEFAULT_HISTORY_TURNS = 10
"""Earlier messages that are sent. The gate wants to know what a follow-up follows, not the whole conversation."""

MAX_TURN_CHARACTERS = 4000
"""Of an earlier message. Beyond the model's window a text changes nothing, and a pasted book should not travel with each call."""

_CHAT = {"completion", "acompletion"}
_RESPONSES = {"responses", "aresponses"}
_ANTHROPIC = {"anthropic_messages", "aanthropic_messages"}


class RagateQueryGate(CustomLogger):
    """deadline: seconds from asking to the answer, all together. The rest is as for `AsyncClient` and its `gate_query`."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        *,
        api_key: Optional[str] = None,
        policy: Optional[str] = None,
        budget_ms: Optional[int] = None,
        deadline: float = DEFAULT_GATE_DEADLINE,
        history_turns: int = DEFAULT_HISTORY_TURNS,
    ):
        super().__init__()
        if deadline <= 0:
            raise ValueError(f"deadline is {deadline}: seconds over 0")
        if history_turns < 0:
            raise ValueError(f"history_turns is {history_turns}: 0 or more")
        self._base_url = base_url
        self._api_key = api_key
        self._policy = policy
        self._budget_ms = budget_ms
        self._deadline = deadline
        self._history_turns = history_turns
        self._outage = OutageLog(logger, "The call goes on and should retrieve")
        self._client: Optional[AsyncClient] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Dict[str, Any], call_type: str) -> Dict[str, Any]:
        conversation = _conversation(data, call_type)
        if conversation is None:
            return data
        query, history, why_not = conversation
        if query is None:
            decision = _retrieve(why_not)
        else:
            decision = await self._ask(query, history[max(0, len(history) - self._history_turns) :])
        metadata = _metadata(data, call_type)
        metadata["retrieval_bypassed"] = decision.retrieval_bypassed
        metadata["retrieval_stage"] = decision.stage
        metadata["retrieval_reason"] = decision.reason
        return data

    async def _ask(self, query: str, history: List[Turn]) -> QueryDecision:
        try:
            decision = await asyncio.wait_for(
                self._connected().gate_query(query, history, policy=self._policy, budget_ms=self._budget_ms), self._deadline
            )
        except asyncio.TimeoutError:
            e: RagateError = TimedOutError(f"no answer from {self._base_url} within {self._deadline} s")
        except RagateError as err:
            e = err
        except Exception as err:  # a fault of ours must not stop the call either
            logger.debug("the gate's client failed", exc_info=True)
            e = MalformedAnswerError(f"{type(err).__name__}: {err}")
        else:
            self._outage.answered()
            return decision
        self._outage.failed(e)
        return _retrieve(f"the gate gave no decision ({e.kind}), so retrieve")

    def _connected(self) -> AsyncClient:
        """The client of the running loop. Connections cannot move between loops, and tests and embedders of the proxy have several."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = AsyncClient(self._base_url, api_key=self._api_key, gate_timeout=self._deadline)
            self._loop = loop
        return self._client


def _retrieve(reason: str) -> QueryDecision:
    return QueryDecision(needs_retrieval=True, stage="default", reason=reason)


def _metadata(data: Dict[str, Any], call_type: str) -> Dict[str, Any]:
    """The dict that the proxy logs and keeps to itself; made where the request has none."""
    key = "metadata" if call_type in _CHAT or "litellm_metadata" not in data else "litellm_metadata"
    metadata = data.get(key)
    if not isinstance(metadata, dict):
        metadata = data[key] = {}
    return metadata


def _conversation(data: Dict[str, Any], call_type: str) -> Optional[Tuple[Optional[str], List[Turn], str]]:
    """The last user message and what was said before it, or a reason why there is none to ask about. None: no conversation at all."""
    if call_type in _CHAT or call_type in _ANTHROPIC:
        messages = data.get("messages")
    elif call_type in _RESPONSES:
        messages = data.get("input")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
    else:
        return None
    if not isinstance(messages, list):
        return None
    said = [m for m in messages if isinstance(m, dict) and m.get("role") in ("user", "assistant")]
    # A user message without any text is a tool's result in Anthropic's shape: the turn it belongs to began earlier.
    for at in range(len(said) - 1, -1, -1):
        if said[at]["role"] != "user":
            continue
        text, only_text, tool = _text(said[at].get("content"))
        if tool and not text:
            continue
        if not only_text:
            return None, [], "the message has parts that are no text, which the gate cannot judge, so retrieve"
        return text, _history(said[:at]), ""
    return None, [], "there is no user message to judge, so retrieve"


def _history(said: List[Dict[str, Any]]) -> List[Turn]:
    turns = []
    for m in said:
        text, _, _ = _text(m.get("content"))
        if text:
            turns.append(Turn(m["role"], text[:MAX_TURN_CHARACTERS]))
    return turns


def _text(content: Any) -> Tuple[str, bool, bool]:
    """A message's text; whether that is all there is; whether it holds a tool's result."""
    if isinstance(content, str):
        return content, True, False
    if not isinstance(content, list):
        return "", False, False
    texts, only_text, tool = [], True, False
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, dict) and kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "tool_result":
            tool = True
        else:
            only_text = False
    return "\n".join(texts), only_text, tool
