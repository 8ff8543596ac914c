"""The openai and cohere-ai packages of npm, run by node (node/calls.mjs)."""

import base64
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import STRICT_ITEMS
from servers import EMBEDDER, RERANKER, assert_retried
from values import DOCUMENTS, LONG, QUERY, TEXTS, TOKENS, assert_ranking, assert_vectors

OPENAI = pytest.mark.package("npm:openai")
COHERE = pytest.mark.package("npm:cohere-ai")


def node(client, options, *calls):
    """What the calls, each (method, argument…), answered: a value, or a dict with `error`."""
    request = {"client": client, "options": options, "calls": [{"method": m, "args": args} for m, *args in calls]}
    script = Path(os.environ["RAGATE_CLIENTS_NODE"]) / "calls.mjs"  # beside node_modules, where node looks for packages
    done = subprocess.run(["node", str(script)], input=json.dumps(request), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [o.get("value", o) for o in json.loads(done.stdout)]


def openai(server, *calls, **options):
    return node("openai", {"baseURL": server.url + "/v1", "apiKey": server.client_key, **options}, *calls)


def cohere(server, client, *calls, **options):
    return node(client, {"environment": server.url, "token": server.client_key, **options}, *calls)


def vectors(answer):
    assert [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    return [d["embedding"] for d in answer["data"]]


@OPENAI
def test_embeddings(server):
    many = [f"{i}: {TEXTS[i % 5]}" for i in range(110)]
    create = lambda **body: ("embeddings.create", {"model": EMBEDDER, "input": TEXTS, **body})
    default, floats, packed, short, prefixed, one, blank, long = openai(
        server, create(), create(encoding_format="float"), create(encoding_format="base64"), create(dimensions=64),
        create(input_type="query"), create(input=TEXTS[4]), create(input=""), create(input=many),
    )
    assert_vectors(server, vectors(default))  # it asks for base64 and decodes it
    assert_vectors(server, vectors(floats))
    assert_vectors(server, [np.frombuffer(base64.b64decode(v), "<f4") for v in vectors(packed)])
    assert_vectors(server, vectors(short), dimensions=64)
    assert_vectors(server, vectors(prefixed), prefix="query: ")
    assert_vectors(server, vectors(one), TEXTS[4:5])
    assert_vectors(server, vectors(blank), [""])
    assert_vectors(server, vectors(long), many)
    assert default["usage"] == {"prompt_tokens": sum(TOKENS[""]), "total_tokens": sum(TOKENS[""])} and default["truncated"] == [LONG]


@OPENAI
def test_models(server):
    models, embedder, reranker, unknown = openai(
        server, ("models.list",), ("models.retrieve", EMBEDDER), ("models.retrieve", RERANKER), ("models.retrieve", "nope")
    )
    assert [m["id"] for m in models] == [EMBEDDER, RERANKER] and [embedder, reranker] == models
    assert unknown["error"]["name"] == "NotFoundError" and "is not loaded" in unknown["error"]["message"]


REFUSED = {
    "unknown model": ("NotFoundError", 404, "model_not_found", {"model": "text-embedding-3-small"}),
    "empty list": ("BadRequestError", 400, "empty_list", {"input": []}),
    "token ids": ("BadRequestError", 400, "text_only", {"input": [15339, 1917]}),
    "dimensions": ("BadRequestError", 400, "out_of_range", {"dimensions": 385}),
    "too long": ("APIError", 413, "text_too_long", {"input": ["a", "word " * 600]}),
    "too many": ("APIError", 413, "too_many_items", {"input": ["a"] * (STRICT_ITEMS + 1)}),
}


@OPENAI
def test_errors(strict, calls):
    got = openai(strict, *(("embeddings.create", {"model": EMBEDDER, "input": "a", **change}) for *_, change in REFUSED.values()))
    assert [(g["error"]["name"], g["error"]["status"], g["error"]["code"]) for g in got] == [r[:3] for r in REFUSED.values()]
    (wrong,) = openai(strict, ("embeddings.create", {"model": EMBEDDER, "input": "a"}), apiKey="a-wrong-one")
    assert wrong["error"]["name"] == "AuthenticationError" and wrong["error"]["status"] == 401
    assert len(calls()) == len(REFUSED) + 1, "nothing must be tried again"


@OPENAI
def test_a_full_queue(strict, calls):
    request = ("embeddings.create", {"model": EMBEDDER, "input": ["a " * 300]})
    with strict.flooded(documents=80):  # node needs its time to start
        refused, served = openai(strict, (*request, {"maxRetries": 0}), (*request, {"maxRetries": 5}))
    assert refused["error"]["name"] == "RateLimitError" and refused["error"]["status"] == 429
    assert len(served["data"][0]["embedding"]) == 384
    assert_retried(calls()[1:])


@COHERE
@pytest.mark.parametrize("client", ["CohereClient", "CohereClientV2"])
def test_cohere(server, client):
    ranked, embedded = cohere(
        server, client,
        ("rerank", {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS}),
        ("embed", {"model": EMBEDDER, "texts": TEXTS, "inputType": "search_query", "embeddingTypes": ["float"]}),
    )
    assert_ranking(server, [(r["index"], r["relevanceScore"]) for r in ranked["results"]])
    assert_vectors(server, embedded["embeddings"]["float"], prefix="query: ")
    assert embedded["meta"]["billedUnits"]["inputTokens"] == sum(TOKENS["query: "])


@COHERE
@pytest.mark.parametrize("client", ["CohereClient", "CohereClientV2"])
def test_cohere_errors(strict, client):
    rerank = ("rerank", {"model": RERANKER, "query": "a", "documents": ["a"]})
    unknown, empty, long = cohere(
        strict, client,
        ("rerank", {**rerank[1], "model": "rerank-v3.5"}), ("rerank", {**rerank[1], "documents": []}), ("rerank", {**rerank[1], "documents": ["word " * 600]}),
    )
    assert (unknown["error"]["name"], unknown["error"]["status"]) == ("NotFoundError", 404)
    assert (empty["error"]["name"], empty["error"]["status"]) == ("BadRequestError", 400)
    assert long["error"]["status"] == 413 and "512 tokens" in long["error"]["message"]
    (wrong,) = cohere(strict, client, rerank, token="a-wrong-one")
    assert (wrong["error"]["name"], wrong["error"]["status"]) == ("UnauthorizedError", 401)


@COHERE
def test_cohere_full_queue(strict, calls):
    request = ("rerank", {"model": RERANKER, "query": "a", "documents": ["a " * 300]})
    with strict.flooded(documents=80):  # node needs its time to start
        refused, served = cohere(strict, "CohereClientV2", (*request, {"maxRetries": 0}), (*request, {"maxRetries": 5}))
    assert (refused["error"]["name"], refused["error"]["status"]) == ("TooManyRequestsError", 429)
    assert len(served["results"]) == 1
    assert_retried(calls()[1:])
