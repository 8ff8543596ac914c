"""When the adapters' log speaks, on a clock of the test's own."""

from __future__ import annotations

import logging

from ragate_client import StatusError, TimedOutError, UnreachableError
from ragate_client.failopen import REMIND_AFTER, OutageLog


def test_once_per_kind_then_a_reminder_then_the_recovery(caplog):
    now = [1000.0]
    log = OutageLog(logging.getLogger("t"), "All is kept", clock=lambda: now[0])
    log.answered()
    for _ in range(4):
        log.failed(UnreachableError("refused"))
    assert len(caplog.records) == 1 and "refused" in caplog.text and "All is kept" in caplog.text
    log.failed(TimedOutError("late"))
    log.failed(StatusError(401, "wrong key", "invalid_api_key"))
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING", "ERROR"]
    now[0] += REMIND_AFTER - 1
    log.failed(UnreachableError("refused"))
    assert len(caplog.records) == 3
    now[0] += 1
    log.failed(UnreachableError("refused"))
    assert len(caplog.records) == 4 and "8 failures" in caplog.records[-1].getMessage()
    log.answered()
    log.answered()
    assert len(caplog.records) == 5 and "after 8 failures" in caplog.records[-1].getMessage()
    log.failed(UnreachableError("refused again"))
    assert len(caplog.records) == 6
