"""A small RAG loop behind both of ragate's gates.

It starts a server on a free port, embeds a few pages of an invented company's handbook, and goes through a conversation. For each
turn it prints whether retrieval was skipped and why; and where it was not, which chunks the chunk gate kept, which it
dropped, and why. No language model is involved: what is printed is what one would be given.

    make example                                             # the conversation below
    make example ASK='"When is payday?" "thanks!"'           # your own, turn by turn
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Dict, List, NamedTuple

from ragate_client import Chunk, ChunkDecision, Client, RagateError, Turn

TOP_K = 5

BUDGET_MS = 5000
"""For each gate's answer. A service would leave it at the server's 100 ms and take what was not scored by then as it comes; here
every run should print the same, on a busy laptop too."""

# A handbook's pages, cut into passages: id and text.
HANDBOOK: Dict[str, str] = {
    "leave-1": "Full-time employees get 25 days of paid leave a year. Part-time employees get a share of that in proportion to their hours.",
    "leave-2": "Up to five unused leave days move on to the next year. They lapse on 1 July, and are not paid out.",
    "leave-3": "Ask for leave in the staff portal at least two weeks ahead. Your team lead answers within three working days.",
    "sick-1": "Call your team lead before nine in the morning when you are ill. A doctor's note is needed from the third day on.",
    "pay-1": "Salaries are paid on the 25th of each month, or on the last working day before it.",
    "pay-2": "The yearly bonus depends on the company's result and is paid with the salary of March.",
    "travel-1": "Travel by train in second class is reimbursed in full. Taxis are reimbursed only after ten in the evening.",
    "travel-2": "Hotel nights are reimbursed up to 140 euros. Hand in receipts within 30 days of the trip.",
    "it-1": "A forgotten password is reset on the sign-in page. After five wrong tries the account is locked for an hour.",
    "it-2": "Report a lost laptop to the service desk at once, day or night, so that it can be wiped from afar.",
    "office-1": "The office is open from seven to eight on working days. Visitors sign in at the front desk and wear a badge.",
    "office-2": "The canteen serves lunch from half past eleven to two. Employees pay with their badge.",
}

CONVERSATION = [
    "Hi there!",
    "How many days of paid leave do I get in a year?",
    "and are unused leave days paid out?",
    "bedankt!",
    "Which hotel costs are reimbursed?",
    "How do I apply for a parking permit for my boat?",
    "ok, have a nice day",
]


class Passage(NamedTuple):
    id: str
    text: str
    vector: List[float]


class Server:
    """A ragate server on a free port of this machine, stopped at the end of the `with` block. Its log says where it listens."""

    def __init__(self, binary: Path):
        self._process = subprocess.Popen(
            [str(binary), "serve", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> str:
        assert self._process.stderr is not None
        seen = []
        for line in self._process.stderr:
            seen.append(line)
            if '"msg":"ready"' in line:
                # The rest of the log is read and dropped: a full pipe would stop the server.
                threading.Thread(target=self._process.stderr.read, daemon=True).start()
                return json.loads(line)["url"]
        self._process.wait()
        sys.exit(f"the server ended with {self._process.returncode} before it was ready:\n" + "".join(seen))

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)


def search(client: Client, passages: List[Passage], query: str) -> List[Chunk]:
    """The TOP_K nearest passages. Vectors have length 1, so the dot product is the cosine."""
    (vector,) = client.embed([query], input_type="query").vectors
    scored = [(sum(a * b for a, b in zip(vector, p.vector)), p) for p in passages]
    scored.sort(key=lambda s: -s[0])
    return [Chunk(p.text, id=p.id, similarity=similarity) for similarity, p in scored[:TOP_K]]


def show_chunks(found: List[Chunk], gated: ChunkDecision) -> None:
    for word, chunks in (("kept", gated.chunks), ("dropped", gated.dropped)):
        for c in chunks:
            name = word if c.decision in ("kept", "dropped") else f"{word} ({c.decision})"
            print(f"  {name} {c.id}, similarity {found[c.index].similarity:.2f}: {c.reason}")
    if gated.insufficient_context:
        print("  insufficient context: better to say that the handbook does not tell than to answer from these")


def converse(client: Client, messages: List[str]) -> None:
    vectors = client.embed(list(HANDBOOK.values()), input_type="document").vectors
    passages = [Passage(i, text, v) for (i, text), v in zip(HANDBOOK.items(), vectors)]
    print(f"{len(passages)} passages indexed\n")

    history: List[Turn] = []
    skipped = retrieved = dropped = 0
    for message in messages:
        print(f"> {message}")
        decision = client.gate_query(message, history, budget_ms=BUDGET_MS)
        if decision.retrieval_bypassed:
            skipped += 1
            print(f"  retrieval skipped by the {decision.stage} stage: {decision.reason}")
        else:
            print(f"  retrieval needed, says the {decision.stage} stage: {decision.reason}")
            found = search(client, passages, message)
            gated = client.gate_chunks(message, found, explain=True, budget_ms=BUDGET_MS)
            retrieved += len(found)
            dropped += len(gated.dropped)
            show_chunks(found, gated)
        print()
        history += [Turn("user", message), Turn("assistant", "(the model's answer)")]
    print(f"Retrieval skipped for {skipped} of {len(messages)} turns; {dropped} of {retrieved} retrieved chunks dropped.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", type=Path, metavar="FILE", help="the ragate program, to start a server of")
    where.add_argument("--url", help="a server that runs already")
    parser.add_argument("message", nargs="*", default=CONVERSATION, help="the conversation's user messages")
    args = parser.parse_args()
    try:
        if args.url:
            with Client(args.url) as client:
                converse(client, args.message)
        else:
            with Server(args.server) as url, Client(url) as client:
                converse(client, args.message)
    except RagateError as e:
        sys.exit(f"example: {e}")


if __name__ == "__main__":
    main()
