"""examples/rag runs, and prints what was skipped and what was dropped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "rag" / "main.py"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def turns(out: str) -> dict:
    """The printed conversation: each message with what came under it."""
    return {m.group(1): m.group(2) for m in re.finditer(r"^> (.*)\n((?:  .*\n)+)", out, re.M)}


def test_the_conversation(ragate):
    said = turns(run("--url", ragate.url))
    assert len(said) == 7
    for message in ("Hi there!", "bedankt!", "ok, have a nice day"):
        assert "retrieval skipped" in said[message] and "dropped" not in said[message]
    leave = said["How many days of paid leave do I get in a year?"]
    assert "retrieval needed" in leave and re.search(r"  kept leave-1, similarity 0\.\d\d: relevance", leave) and "  dropped " in leave
    assert "kept leave-2" in said["and are unused leave days paid out?"]
    assert "kept travel-2" in said["Which hotel costs are reimbursed?"]
    boat = said["How do I apply for a parking permit for my boat?"]
    assert "retrieval needed" in boat and "insufficient context" in boat


def test_starting_its_own_server():
    out = run("--server", os.environ["RAGATE_BINARY"], "When is payday?", "thanks!")
    said = turns(out)
    assert "pay-1" in said["When is payday?"] and "retrieval skipped by the pattern stage" in said["thanks!"]
    assert re.search(r"Retrieval skipped for 1 of 2 turns; \d of 5 retrieved chunks dropped\.", out)


def test_what_cannot_run_says_so(closed_url):
    done = subprocess.run([sys.executable, str(EXAMPLE), "--url", closed_url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and closed_url in done.stderr and "Traceback" not in done.stderr
