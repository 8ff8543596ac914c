"""langchain-openai, langchain-cohere and langchain-huggingface."""

import asyncio
import os
from pathlib import Path

import cohere
import litellm
import openai
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_core.documents import Document
from langchain_huggingface import HuggingFaceEndpointEmbeddings
from langchain_openai import OpenAIEmbeddings
from servers import EMBEDDER, RERANKER, assert_retried
from values import DOCUMENTS, QUERY, TEXTS, assert_ranking, assert_vectors, by_text


def openai_embeddings(server, **options):
    options = {"check_embedding_ctx_length": False, "api_key": server.client_key, **options}
    return OpenAIEmbeddings(model=EMBEDDER, base_url=server.url + "/v1", **options)


@pytest.mark.package("langchain-openai")
class TestOpenAI:
    def test_values(self, server, calls):
        e = openai_embeddings(server, chunk_size=3)
        assert_vectors(server, e.embed_documents(TEXTS))
        assert [c.items for c in calls()] == [3, 3, 2]
        assert_vectors(server, [e.embed_query(TEXTS[0])], TEXTS[:1])

    def test_async(self, server):
        e = openai_embeddings(server)

        async def go():
            return await e.aembed_documents(TEXTS), await e.aembed_query(TEXTS[0])

        documents, query = asyncio.run(go())
        assert_vectors(server, documents)
        assert_vectors(server, [query], TEXTS[:1])

    def test_dimensions_and_prefix(self, server):
        assert_vectors(server, openai_embeddings(server, dimensions=64).embed_documents(TEXTS), dimensions=64)
        prefixed = openai_embeddings(server, model_kwargs={"extra_body": {"input_type": "query"}})
        assert_vectors(server, prefixed.embed_documents(TEXTS), prefix="query: ")

    def test_token_ids_are_refused_with_the_switch(self, strict, calls, monkeypatch):
        """By default it sends tiktoken's ids: the error must name the switch that stops that."""
        vocabulary = Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers"
        assert (vocabulary / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").exists(), "litellm no longer brings cl100k_base"
        monkeypatch.setitem(os.environ, "TIKTOKEN_CACHE_DIR", str(vocabulary))
        e = openai_embeddings(strict, check_embedding_ctx_length=True)
        with pytest.raises(openai.BadRequestError, match="text only.*set check_embedding_ctx_length=False"):
            e.embed_query(TEXTS[0])
        assert "holds token ids" in calls()[0].error

    def test_errors(self, strict):
        with pytest.raises(openai.AuthenticationError):
            openai_embeddings(strict, api_key="a-wrong-one").embed_query("a")
        with pytest.raises(openai.BadRequestError, match="empty list"):
            openai_embeddings(strict).client.create(input=[], model=EMBEDDER)
        with pytest.raises(openai.APIStatusError, match="limit is 512 tokens"):
            openai_embeddings(strict).embed_query("word " * 600)

    def test_retries_wait_as_told(self, strict, calls):
        e = openai_embeddings(strict, max_retries=5)
        with strict.flooded():
            e.embed_documents(["a " * 300])
        assert_retried(calls())


@pytest.mark.package("langchain-cohere")
class TestCohere:
    def test_embeddings(self, server):
        e = CohereEmbeddings(model=EMBEDDER, cohere_api_key=server.client_key, base_url=server.url)
        assert_vectors(server, e.embed_documents(TEXTS), prefix="passage: ")
        assert_vectors(server, [e.embed_query(TEXTS[0])], TEXTS[:1], prefix="query: ")
        assert_vectors(server, asyncio.run(e.aembed_documents(TEXTS)), prefix="passage: ")

    def test_rerank(self, server):
        r = CohereRerank(model=RERANKER, cohere_api_key=server.client_key, base_url=server.url, top_n=len(DOCUMENTS))
        assert_ranking(server, [(x["index"], x["relevance_score"]) for x in r.rerank(DOCUMENTS, QUERY)])
        assert_ranking(server, [(x["index"], x["relevance_score"]) for x in r.rerank(DOCUMENTS, QUERY, top_n=2)], top=2)
        kept = r.compress_documents([Document(page_content=d, metadata={"n": i}) for i, d in enumerate(DOCUMENTS)], QUERY)
        assert_ranking(server, [(d.metadata["n"], d.metadata["relevance_score"]) for d in kept])
        kept = asyncio.run(r.acompress_documents([Document(page_content=d) for d in DOCUMENTS], QUERY))
        assert_ranking(server, by_text((d.page_content, d.metadata["relevance_score"]) for d in kept))

    def test_errors(self, strict):
        rerank = lambda key, model: CohereRerank(model=model, cohere_api_key=key, base_url=strict.url).rerank(["a"], "a")
        with pytest.raises(cohere.UnauthorizedError):
            rerank("a-wrong-one", RERANKER)
        with pytest.raises(cohere.NotFoundError, match="is not loaded"):
            rerank(strict.key, "rerank-v3.5")


@pytest.mark.package("langchain-huggingface")
def test_huggingface(server):
    """It refuses addresses as a model's name, so the client is put in."""
    e = HuggingFaceEndpointEmbeddings(model=EMBEDDER)
    e.client = InferenceClient(model=server.url, token=server.key or None)
    e.async_client = AsyncInferenceClient(model=server.url, token=server.key or None)
    assert_vectors(server, e.embed_documents(TEXTS))
    assert_vectors(server, [e.embed_query(TEXTS[0])], TEXTS[:1])
    e.model_kwargs = {"prompt_name": "passage"}
    assert_vectors(server, asyncio.run(e.aembed_documents(TEXTS)), prefix="passage: ")
