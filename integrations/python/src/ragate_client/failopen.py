"""What the adapters share for failing open: saying so in the log, once per outage rather than once per request."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Dict

from .errors import RagateError, StatusError

REMIND_AFTER = 300.0
"""Seconds after which an outage that goes on is logged again. Long enough not to fill a log, short enough to be found in it."""


class OutageLog:
    """Logs the first failure of each kind, then one reminder per REMIND_AFTER with how often it happened, and the recovery.

    A failure that only a change of configuration ends (a wrong key, an unknown policy) is an error, the others are warnings.
    Safe for use by several threads.
    """

    def __init__(self, logger: logging.Logger, what_now: str, clock: Callable[[], float] = time.monotonic):
        """what_now: what happens instead, for the message."""
        self._logger = logger
        self._what_now = what_now
        self._clock = clock
        self._lock = threading.Lock()
        self._said: Dict[str, float] = {}
        self._failures = 0

    def failed(self, e: RagateError) -> None:
        with self._lock:
            self._failures += 1
            n, now = self._failures, self._clock()
            last = self._said.get(e.kind)
            if last is not None and now - last < REMIND_AFTER:
                return
            self._said[e.kind] = now
        level = logging.ERROR if isinstance(e, StatusError) and not e.temporary else logging.WARNING
        again = "" if n == 1 else f" ({n} failures since it last answered)"
        self._logger.log(level, "ragate gave no decision: %s. %s; further failures of this kind are not logged%s", e, self._what_now, again)

    def answered(self) -> None:
        if not self._failures:  # the ordinary case takes no lock; a stale read costs one message at most
            return
        with self._lock:
            n, self._failures = self._failures, 0
            self._said.clear()
        if n:
            self._logger.warning("ragate answers again after %d failures", n)
