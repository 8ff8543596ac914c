"""huggingface_hub's InferenceClient, which sends every task to the root. Runs with the current major and with the one before."""

import asyncio

import numpy as np
import pytest
from conftest import STRICT_ITEMS
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from values import LONG, TEXTS, assert_vectors

pytestmark = pytest.mark.package("huggingface_hub")


def client(server, cls=InferenceClient):
    return cls(model=server.url, token=server.key or None)


def test_feature_extraction(server, calls):
    got = client(server).feature_extraction(TEXTS)
    assert got.dtype == np.float32
    assert_vectors(server, got)
    assert [(c.route, c.items) for c in calls()] == [("/", len(TEXTS))]


def test_one_text(server):
    assert_vectors(server, client(server).feature_extraction(TEXTS[2]), TEXTS[2:3])
    assert_vectors(server, client(server).feature_extraction(""), [""])


def test_base_url_of_embed(server):
    """An address of a route works as well as the server's."""
    assert_vectors(server, InferenceClient(model=server.url + "/embed", token=server.key or None).feature_extraction(TEXTS))


@pytest.mark.parametrize("name", ["query", "passage"])
def test_prompts(server, name):
    assert_vectors(server, client(server).feature_extraction(TEXTS, prompt_name=name), prefix=name + ": ")


def test_without_normalize(server):
    assert_vectors(server, client(server).feature_extraction(TEXTS, normalize=False), unit=False)
    assert_vectors(server, client(server).feature_extraction(TEXTS, normalize=True, truncate=True))


def test_truncation_direction(server):
    c = client(server)
    left = c.feature_extraction(TEXTS[LONG], truncate=True, truncation_direction="left")
    right = c.feature_extraction(TEXTS[LONG], truncate=True, truncation_direction="right")
    assert_vectors(server, right, [TEXTS[LONG]])
    plain = server.post("/embed", {"inputs": TEXTS[LONG], "truncation_direction": "Left"})
    assert np.dot(left[0], plain[0]) > 0.99999 > np.dot(left[0], right[0])
    with pytest.raises(HfHubHTTPError) as error:
        c.feature_extraction(TEXTS[LONG], truncate=False)
    assert error.value.response.status_code == 413 and "send `truncate`: true" in error.value.response.text


def test_dimensions(server):
    assert_vectors(server, client(server).feature_extraction(TEXTS, dimensions=64), dimensions=64)


def test_sentence_similarity(server):
    got = client(server).sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    rows = np.asarray(server.post("/embed", {"inputs": TEXTS}))
    assert np.abs(rows @ rows[0] - got).max() < 1e-3 and got[0] > 0.9999


def test_async(server):
    async def go():
        async with client(server, AsyncInferenceClient) as c:
            return await asyncio.gather(c.feature_extraction(TEXTS), c.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:]))

    got, similarities = asyncio.run(go())
    assert_vectors(server, got)
    assert len(similarities) == len(TEXTS) - 1


def test_many(server):
    texts = [f"{i}: {TEXTS[i % 5]}" for i in range(110)]
    assert_vectors(server, client(server).feature_extraction(texts), texts)


REFUSED = {
    "empty list": (422, "empty list", []),
    "too many": (413, f"{STRICT_ITEMS + 1} items", ["a"] * (STRICT_ITEMS + 1)),
    "too long": (413, "602 tokens", "word " * 600),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors(strict, case):
    status, message, inputs = REFUSED[case]
    with pytest.raises(HfHubHTTPError) as error:
        client(strict).feature_extraction(inputs)
    assert error.value.response.status_code == status and message in error.value.response.json()["error"]


def test_a_wrong_key(strict):
    with pytest.raises(HfHubHTTPError) as error:
        InferenceClient(model=strict.url, token="a-wrong-one").feature_extraction("a")
    assert error.value.response.status_code == 401 and error.value.response.json()["error_type"] == "Unauthorized"


def test_a_full_queue(strict):
    with strict.flooded(), pytest.raises(HfHubHTTPError) as error:
        client(strict).feature_extraction(["a " * 300])
    assert error.value.response.status_code == 429 and int(error.value.response.headers["Retry-After"]) >= 1
    assert error.value.response.json()["error_type"] == "Overloaded"
