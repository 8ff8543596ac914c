"""The client, blocking and asyncio, against a running server and against what can go wrong."""

from __future__ import annotations

import ast
import asyncio
import datetime
import importlib.resources
import math

import httpx
import pytest

import ragate_client
from ragate_client import (
    AsyncClient,
    Chunk,
    Client,
    MalformedAnswerError,
    StatusError,
    TimedOutError,
    Turn,
    UnreachableError,
    as_json_metadata,
)

CAPITAL = "What is the capital of France?"
CHUNKS = [
    Chunk("Cows eat grass.", id="cows", similarity=0.2),
    Chunk("Paris is the capital and largest city of France.", id=7, similarity=0.9, metadata={"page": 3}),
    "Bananas are rich in potassium.",
]


@pytest.fixture
def both(ragate, spoke_to):
    """Calls a method of the blocking and of the asyncio client, and checks that they agree."""

    def call(method, *args, **kwargs):
        with Client(ragate.url, gate_timeout=60) as client:
            one = getattr(client, method)(*args, **kwargs)

        async def other():
            async with AsyncClient(ragate.url, gate_timeout=60) as client:
                return await getattr(client, method)(*args, **kwargs)

        two = asyncio.run(other())
        assert type(one) is type(two)
        spoke_to("httpx")
        return one, two

    return call


def test_gate_query_small_talk(both):
    for d in both("gate_query", "bedankt!"):
        assert d.retrieval_bypassed and not d.needs_retrieval
        assert d.stage == "pattern" and d.pattern["rule"] == "nl.thanks" and d.chain == ("pattern",)
        assert d.reason and d.policy.name == "default" and d.policy.fingerprint
        assert d.timings_ms["total"] >= 0 and d.raw["retrieval_bypassed"] is True


def test_gate_query_question(both):
    for d in both("gate_query", "What is the notice period for a fixed-term contract?"):
        assert d.needs_retrieval and d.stage == "semantic"
        assert d.semantic["top"]["reference"] and d.pattern is None


def test_gate_query_history_changes_the_answer(both):
    history = [Turn("user", "What is VAT?"), {"role": "assistant", "content": "A tax on added value.", "name": "helper"}]
    assert all(d.needs_retrieval for d in both("gate_query", "why?"))
    assert all(d.retrieval_bypassed for d in both("gate_query", "why?", history))


def test_gate_chunks(both):
    for d in both("gate_chunks", CAPITAL, CHUNKS, min_chunks=1, explain=True, return_context=True):
        assert [(c.id, c.index, c.decision) for c in d.chunks] == [(7, 1, "kept")]
        best = d.chunks[0]
        assert best.relevance > 0.9 and math.isclose(best.relevance, 1 / (1 + math.exp(-best.logit)), rel_tol=1e-6)
        assert best.text == CHUNKS[1].text and best.metadata == {"page": 3} and best.reason
        assert sorted(c.index for c in d.dropped) == [0, 2] and all(c.reason and c.text is None for c in d.dropped)
        assert d.context == "[Source 1]: " + CHUNKS[1].text
        assert (d.stats.retrieved, d.stats.passed, d.stats.returned, d.stats.unscored) == (3, 1, 1, 0)
        assert d.stats.avg_relevance == best.relevance and not d.insufficient_context and not d.stats.fallback_triggered


def test_gate_chunks_fallback_and_settings(both):
    for d in both("gate_chunks", CAPITAL, CHUNKS, threshold=1.0, min_chunks=2, fallback="top", return_text=False):
        assert [c.decision for c in d.chunks] == ["fallback", "fallback"] and d.chunks[0].index == 1
        assert d.chunks[0].text is None and d.dropped == () and d.stats.threshold == 1.0 and d.stats.fallback_triggered


def test_gate_chunks_of_nothing(both):
    for d in both("gate_chunks", CAPITAL, []):
        assert d.chunks == () and d.insufficient_context and d.stats.avg_relevance is None


def test_embed(both):
    texts = ["how long is the notice period", "the notice period is one month", "bananas are rich in potassium", ""]
    one, two = both("embed", texts)
    for e in (one, two):
        assert len(e.vectors) == 4 and {len(v) for v in e.vectors} == {384} and e.prompt_tokens > 10 and e.model
        assert all(math.isclose(sum(x * x for x in v), 1, abs_tol=1e-3) for v in e.vectors)
        near, far = (sum(a * b for a, b in zip(e.vectors[0], e.vectors[i])) for i in (1, 2))
        assert near > far
    (short,) = both("embed", texts[:1], dimensions=16, input_type="query")[0].vectors
    assert len(short) == 16


def test_embed_agrees_with_the_plain_route(ragate, both):
    text = "the notice period is one month"
    answer = httpx.post(ragate.url + "/v1/embeddings", json={"input": text, "input_type": "document"}, timeout=60).json()
    for e in both("embed", [text], input_type="document"):
        assert e.vectors[0] == pytest.approx(answer["data"][0]["embedding"], abs=1e-6)


def test_embed_says_what_was_cut(both):
    for e in both("embed", ["short", "word " * 2000]):
        assert e.truncated == (1,)


def test_rerank(both):
    documents = ["Cows eat grass.", "Paris is the capital of France.", "Bananas are yellow."]
    for r in both("rerank", CAPITAL, documents):
        assert r.results[0].index == 1 and sorted(x.index for x in r.results) == [0, 1, 2]
        assert [x.score for x in r.results] == sorted((x.score for x in r.results), reverse=True)
    assert len(both("rerank", CAPITAL, documents, top_n=1)[0].results) == 1
    assert both("rerank", CAPITAL, documents, raw_scores=True)[0].results[0].score > 1


def test_text_that_json_finds_hard(both):
    for query in ("\x00 zero?", "emoji 👋🏽 and ﬁ", "half a pair \ud83d of surrogates", '"quotes" and \\ and \u2028'):
        assert all(d.reason for d in both("gate_query", query))


def test_a_text_in_place_of_a_list_is_refused_here(ragate):
    with Client(ragate.url) as client:
        with pytest.raises(TypeError, match="list"):
            client.embed("text")
        with pytest.raises(TypeError, match="list"):
            client.rerank("q", "text")


def test_refusals_carry_the_servers_words(ragate):
    with Client(ragate.url) as client:
        with pytest.raises(StatusError) as e:
            client.gate_query("x", policy="nonesuch")
        assert e.value.status == 404 and "nonesuch" in e.value.message and e.value.request_id and not e.value.temporary
        with pytest.raises(StatusError) as e:
            client.gate_chunks("x", [{"text": "y", "colour": "red"}])
        assert e.value.status == 400 and e.value.code == "invalid_field" and "colour" in e.value.param
        with pytest.raises(StatusError) as e:
            client.rerank("x", [])
        assert e.value.code == "empty_list" and e.value.param == "documents"


def test_connections_are_reused(ragate):
    def connections(client) -> list:
        opened = []

        def trace(name, info):
            if name == "connection.connect_tcp.complete":
                opened.append(name)

        client._http.event_hooks = {"request": [lambda r: r.extensions.update(trace=trace)]}
        return opened

    with Client(ragate.url, gate_timeout=60) as client:
        opened = connections(client)
        for _ in range(5):
            client.gate_query("hello")
        assert len(opened) == 1


def test_an_http_client_of_ones_own_stays_open(ragate):
    with httpx.Client() as http:
        with Client(ragate.url, http=http, gate_timeout=60) as client:
            client.gate_query("hello")
        assert not http.is_closed


def test_api_key(start_ragate):
    server = start_ragate(RAGATE_API_KEY="web:correct-horse")
    with Client(server.url, api_key="correct-horse", gate_timeout=60) as client:
        assert client.gate_query("hello").retrieval_bypassed
    for key in (None, "wrong"):
        with Client(server.url, api_key=key) as client, pytest.raises(StatusError) as e:
            client.gate_query("hello")
        assert e.value.status == 401 and e.value.code == "invalid_api_key" and not e.value.temporary


def each_client(url: str, **settings):
    """Asks both clients one gate query; yields what each raised."""
    with Client(url, **settings) as client:
        yield lambda: client.gate_query("hello")

    async def ask():
        async with AsyncClient(url, **settings) as client:
            await client.gate_query("hello")

    yield lambda: asyncio.run(ask())


def test_unreachable(closed_url):
    for ask in each_client(closed_url):
        with pytest.raises(UnreachableError, match=closed_url):
            ask()


def test_timeout(broken):
    server = broken(body=b"{}", delay=30)
    for ask in each_client(server.url, gate_timeout=0.2):
        with pytest.raises(TimedOutError):
            ask()


GOOD = b'{"needs_retrieval":true,"retrieval_bypassed":false,"stage":"default","reason":"r"}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>welcome</html>",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b"\xff\xfe",
        GOOD.replace(b"false", b"true"),
        GOOD.replace(b"true", b'"true"'),
        GOOD.replace(b'"r"', b"null"),
        GOOD.replace(b"}", b',"chain":{}}'),
    ],
    ids=range(11),
)
def test_malformed_answers(broken, body):
    server = broken(body=body)
    for ask in each_client(server.url):
        with pytest.raises(MalformedAnswerError, match="/v1/gate/query"):
            ask()
    assert server.calls == 2


def test_a_newer_servers_fields_are_no_fault(broken):
    with Client(broken(body=GOOD.replace(b"}", b',"weather":"fine"}')).url) as client:
        assert client.gate_query("hello").raw["weather"] == "fine"


@pytest.mark.parametrize(
    "body",
    [
        b'{"data":[],"model":"m","usage":{"prompt_tokens":1}}',
        b'{"data":[{"index":1,"embedding":[1]}],"model":"m","usage":{"prompt_tokens":1}}',
        b'{"data":[{"index":0,"embedding":"AAA="}],"model":"m","usage":{"prompt_tokens":1}}',
        b'{"data":[{"index":0,"embedding":["x"]}],"model":"m","usage":{"prompt_tokens":1}}',
    ],
    ids=("none", "place", "bytes", "text"),
)
def test_malformed_embeddings(broken, body):
    with Client(broken(body=body).url) as client, pytest.raises(MalformedAnswerError):
        client.embed(["x"])


@pytest.mark.parametrize("place", [-1, 2, 0.5, None, True], ids=str)
def test_an_index_that_was_not_sent_is_malformed(broken, place):
    body = f'{{"results":[{{"index":{str(place).lower().replace("none", "null")},"relevance_score":1}}],"model":"m","usage":{{"prompt_tokens":1}}}}'
    with Client(broken(body=body.encode()).url) as client, pytest.raises(MalformedAnswerError):
        client.rerank("q", ["a", "b"])


@pytest.mark.parametrize(
    "status, body, message",
    [
        (502, b"<html>bad gateway</html>", "bad gateway"),
        (500, b'{"error":{"message":"boom","code":"inference_failed","param":null}}', "boom"),
        (503, b'{"error":"no object"}', "no object"),
        (302, b"", "Found"),
    ],
)
def test_statuses(broken, status, body, message):
    server = broken(status=status, body=body, headers={"Retry-After": "7"})
    for ask in each_client(server.url):
        with pytest.raises(StatusError, match=message) as e:
            ask()
        assert e.value.status == status and e.value.temporary == (status >= 500) and e.value.retry_after == 7


def test_as_json_metadata():
    class Thing:
        pass

    itself: list = []
    itself.append(itself)
    given = {"s": "x", "n": 1, "none": None, "day": datetime.date(2024, 2, 29), "nan": math.nan, "thing": Thing(), "list": [1, Thing()], 3: "x"}
    assert as_json_metadata(given) == {"s": "x", "n": 1, "none": None, "day": "2024-02-29", "list": [1]}
    assert "itself" in as_json_metadata({"itself": itself})


def test_metadata_rules_see_dates(both):
    metadata = as_json_metadata({"updated_at": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)})
    for d in both("gate_chunks", CAPITAL, [Chunk("Paris is the capital of France.", metadata=metadata)]):
        assert d.chunks[0].metadata == {"updated_at": "2020-01-01T00:00:00+00:00"}


def test_the_package_is_typed_and_its_syntax_is_python_3_9():
    root = importlib.resources.files(ragate_client)
    assert (root / "py.typed").is_file()
    sources = [f for f in root.iterdir() if f.name.endswith(".py")]
    assert len(sources) >= 8
    for f in sources:
        ast.parse(f.read_text(), filename=f.name, feature_version=(3, 9))
