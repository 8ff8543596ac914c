"""LlamaIndex's OpenAIEmbedding, in the two majors that its other packages still differ on."""

import asyncio

import openai
import pytest
from llama_index.embeddings.openai import OpenAIEmbedding
from servers import EMBEDDER
from values import TEXTS, assert_vectors

pytestmark = pytest.mark.package("llama-index-embeddings-openai")


def embedding(server, **options):
    return OpenAIEmbedding(model_name=EMBEDDER, api_base=server.url + "/v1", api_key=server.client_key, **options)


def test_values(server, calls):
    e = embedding(server, embed_batch_size=5)
    assert_vectors(server, e.get_text_embedding_batch(TEXTS))
    assert_vectors(server, [e.get_query_embedding(TEXTS[0]), e.get_text_embedding(TEXTS[1])], TEXTS[:2])
    assert [c.items for c in calls()][:2] == [5, 3]


def test_async_and_dimensions(server):
    e = embedding(server, dimensions=64)
    assert_vectors(server, asyncio.run(e.aget_text_embedding_batch(TEXTS)), dimensions=64)


def test_errors(strict):
    with pytest.raises(openai.AuthenticationError):
        OpenAIEmbedding(model_name=EMBEDDER, api_base=strict.url + "/v1", api_key="a-wrong-one").get_text_embedding("a")
    with pytest.raises(openai.NotFoundError, match="is not loaded"):
        OpenAIEmbedding(model_name="nope", api_base=strict.url + "/v1", api_key=strict.key).get_text_embedding("a")
