"""What the LangChain and LlamaIndex adapters do alike with their settings."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional

GATE_SETTINGS = (
    "threshold",
    "min_chunks",
    "max_chunks",
    "mode",
    "fallback",
    "long_chunk",
    "max_context_tokens",
    "budget_ms",
    "policy",
)


def gate_settings(adapter: Any) -> Dict[str, Any]:
    """The chunk gate's settings, from attributes of these names. The texts are not sent back: the adapters have them.
    Dropped chunks and their reasons are asked for only where someone looks at them."""
    settings = {name: getattr(adapter, name) for name in GATE_SETTINGS}
    return {**settings, "return_text": False, "explain": adapter.on_decision is not None}


def check_on_error(value: str) -> None:
    if value not in ("keep", "raise"):
        raise ValueError(f"on_error is {value!r}: `keep` or `raise`")


def similarity_of(score: Any) -> Optional[float]:
    """A retriever's score as JSON can carry it, or None."""
    if isinstance(score, bool) or not isinstance(score, (int, float)) and not hasattr(score, "__float__"):
        return None
    value = float(score)  # NumPy's too
    return value if math.isfinite(value) else None
