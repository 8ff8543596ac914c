"""The openai package, sync and async."""

import asyncio
import base64

import numpy as np
import openai
import pytest
from conftest import STRICT_BYTES, STRICT_ITEMS
from servers import EMBEDDER, RERANKER, assert_retried
from values import LONG, TEXTS, TOKENS, assert_vectors

pytestmark = pytest.mark.package("openai")


def client(server, cls=openai.OpenAI, **options):
    return cls(base_url=server.url + "/v1", api_key=server.client_key, **options)


def vectors(answer):
    assert [d.index for d in answer.data] == list(range(len(answer.data)))
    return [d.embedding for d in answer.data]


def test_values(server, calls):
    answer = client(server).embeddings.create(model=EMBEDDER, input=TEXTS)
    assert_vectors(server, vectors(answer))
    assert answer.model == EMBEDDER and answer.object == "list"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(TOKENS[""])
    assert answer.model_extra["truncated"] == [LONG]
    assert [(c.route, c.items) for c in calls()] == [("/v1/embeddings", len(TEXTS))]


def test_async(server):
    async def go():
        async with client(server, openai.AsyncOpenAI) as c:
            return await asyncio.gather(*(c.embeddings.create(model=EMBEDDER, input=t) for t in TEXTS))

    assert_vectors(server, [vectors(a)[0] for a in asyncio.run(go())])


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_one_text(server, text):
    answer = client(server).embeddings.create(model=EMBEDDER, input=text)
    assert_vectors(server, vectors(answer), [text])
    assert answer.usage.prompt_tokens == TOKENS[""][TEXTS.index(text)]


def test_encodings(server):
    """Without encoding_format the package asks for base64 and decodes it."""
    c = client(server)
    default = vectors(c.embeddings.create(model=EMBEDDER, input=TEXTS[:3]))
    floats = vectors(c.embeddings.create(model=EMBEDDER, input=TEXTS[:3], encoding_format="float"))
    packed = vectors(c.embeddings.create(model=EMBEDDER, input=TEXTS[:3], encoding_format="base64"))
    assert_vectors(server, floats, TEXTS[:3])
    assert np.abs(np.array(default) - floats).max() < 1e-6
    assert np.abs(np.stack([np.frombuffer(base64.b64decode(p), "<f4") for p in packed]) - floats).max() < 1e-6


def test_dimensions(server):
    answer = client(server).embeddings.create(model=EMBEDDER, input=TEXTS, dimensions=64)
    assert_vectors(server, vectors(answer), dimensions=64)


@pytest.mark.parametrize("input_type, prefix", [("query", "query: "), ("passage", "passage: "), ("document", "passage: ")])
def test_prefixes(server, input_type, prefix):
    answer = client(server).embeddings.create(model=EMBEDDER, input=TEXTS, extra_body={"input_type": input_type})
    assert_vectors(server, vectors(answer), prefix=prefix)
    assert answer.usage.prompt_tokens == sum(TOKENS[prefix])


def test_many(server, calls):
    texts = [f"{i}: {TEXTS[i % 5]}" for i in range(130)]
    assert_vectors(server, vectors(client(server).embeddings.create(model="e5-small-v2", input=texts, user="u")), texts)
    assert [c.items for c in calls()] == [130]


def test_models(server):
    c = client(server)
    assert [(m.id, m.owned_by, m.object) for m in c.models.list()] == [
        (EMBEDDER, "intfloat", "model"), (RERANKER, "cross-encoder", "model"),
    ]
    for name, kind in ((EMBEDDER, "embedder"), (RERANKER, "reranker"), ("e5-small-v2", "embedder")):
        m = c.models.retrieve(name)
        assert m.kind == kind and m.max_tokens == 512 and m.created > 0
    with pytest.raises(openai.NotFoundError, match="loaded here"):
        c.models.retrieve("text-embedding-3-small")


def test_raw_response_has_the_headers(server):
    raw = client(server).embeddings.with_raw_response.create(
        model=EMBEDDER, input=TEXTS, extra_headers={"X-Request-Id": "an-id-of-the-caller"}
    )
    assert raw.headers["X-Request-Id"] == "an-id-of-the-caller" and raw.headers["X-Ragate-Truncated"] == "1"
    assert raw.parse().data[0].index == 0


TOO_LONG = "word " * 600
REFUSED = {
    "no key": (openai.AuthenticationError, 401, "invalid_api_key", "RAGATE_API_KEY", {}),
    "unknown model": (openai.NotFoundError, 404, "model_not_found", "is not loaded", {"model": "text-embedding-3-small"}),
    "reranker": (openai.BadRequestError, 400, "invalid_field", "is a reranker", {"model": RERANKER}),
    "empty list": (openai.BadRequestError, 400, "empty_list", "empty list", {"input": []}),
    "token ids": (openai.BadRequestError, 400, "text_only", "check_embedding_ctx_length=False", {"input": [[15339, 1917]]}),
    "null in the list": (openai.BadRequestError, 400, "invalid_field", r"input\[1\]", {"input": ["a", None]}),
    "dimensions": (openai.BadRequestError, 400, "out_of_range", "between 1 and 384", {"dimensions": 385}),
    "encoding": (openai.BadRequestError, 400, "invalid_field", "encoding_format", {"encoding_format": "hex"}),
    "too long": (openai.APIStatusError, 413, "text_too_long", "602 tokens", {"input": ["a", TOO_LONG]}),
    "too many": (openai.APIStatusError, 413, "too_many_items", f"{STRICT_ITEMS + 1} items", {"input": ["a"] * (STRICT_ITEMS + 1)}),
    "too large": (openai.APIStatusError, 413, "body_too_large", "RAGATE_MAX_BODY_BYTES", {"input": "a" * STRICT_BYTES}),
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("case", REFUSED)
def test_errors(strict, calls, case, asynchronous):
    cls, status, code, message, change = REFUSED[case]
    options = {"api_key": "a-wrong-one"} if case == "no key" else {"api_key": strict.key}
    request = {"model": EMBEDDER, "input": "a", "encoding_format": "float", **change}

    async def go():
        async with openai.AsyncOpenAI(base_url=strict.url + "/v1", **options) as c:
            await c.embeddings.create(**request)

    with pytest.raises(cls, match=message) as error:
        asyncio.run(go()) if asynchronous else openai.OpenAI(base_url=strict.url + "/v1", **options).embeddings.create(**request)
    assert (error.value.status_code, error.value.code) == (status, code) and error.value.request_id
    assert [c.status for c in calls()] == [status], "it must not be tried again"


def test_a_full_queue_is_a_rate_limit(strict):
    with strict.flooded(), pytest.raises(openai.RateLimitError, match="queue is full") as error:
        client(strict, max_retries=0).embeddings.create(model=EMBEDDER, input=["a " * 300])
    assert error.value.status_code == 429 and int(error.value.response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_retries_wait_as_told(strict, calls, asynchronous):
    request = {"model": EMBEDDER, "input": [TEXTS[1], "a " * 300]}

    async def go():
        async with client(strict, openai.AsyncOpenAI, max_retries=5) as c:
            return await c.embeddings.create(**request)

    with strict.flooded():
        answer = asyncio.run(go()) if asynchronous else client(strict, max_retries=5).embeddings.create(**request)
        assert_vectors(strict, vectors(answer)[:1], TEXTS[1:2])
    assert_retried(calls())
