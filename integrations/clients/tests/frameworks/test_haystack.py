"""Haystack's components for Hugging Face (TEI), Cohere and Jina, sync and async."""

import asyncio

import pytest
from cohere.core.api_error import ApiError
from haystack import Document, Pipeline
from haystack.utils import Secret
from haystack_integrations.components.embedders.cohere import CohereDocumentEmbedder, CohereTextEmbedder
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPIDocumentEmbedder, HuggingFaceAPITextEmbedder
from haystack_integrations.components.embedders.jina import JinaDocumentEmbedder, JinaTextEmbedder
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from huggingface_hub.errors import HfHubHTTPError
from servers import EMBEDDER, RERANKER, assert_retried
from values import DOCUMENTS, QUERY, TEXTS, assert_ranking, assert_vectors

TEXT_DOCUMENTS = [Document(content=t, id=f"t{i}") for i, t in enumerate(TEXTS)]
DOCS = [Document(content=d, id=str(i)) for i, d in enumerate(DOCUMENTS)]


def secret(server):
    return Secret.from_token(server.client_key)


def both(component, **inputs):
    """What run and run_async answer."""

    async def go():
        return await component.run_async(**inputs)

    return [component.run(**inputs), asyncio.run(go())]


def vectors(out):
    return [d.embedding for d in out["documents"]]


def ranking(out):
    return [(d.id, d.score) for d in out["documents"]]


def tei(cls, server, **options):
    return cls(api_type="text_embeddings_inference", api_params={"url": server.url}, token=secret(server), **options)


@pytest.mark.package("huggingface-api-haystack")
class TestHuggingFace:
    def test_embedders(self, server, calls):
        for out in both(tei(HuggingFaceAPIDocumentEmbedder, server, normalize=True, batch_size=5), documents=TEXT_DOCUMENTS):
            assert_vectors(server, vectors(out))
        assert {c.route for c in calls()} == {"/"} and sorted(c.items for c in calls.seen) == [3, 3, 5, 5]
        for out in both(tei(HuggingFaceAPITextEmbedder, server, normalize=True, prefix="query: "), text=TEXTS[0]):
            assert_vectors(server, [out["embedding"]], TEXTS[:1], prefix="query: ")

    def test_they_do_not_normalize_by_default(self, server):
        assert_vectors(server, vectors(tei(HuggingFaceAPIDocumentEmbedder, server).run(documents=TEXT_DOCUMENTS)), unit=False)

    def test_ranker(self, server):
        for out in both(HuggingFaceTEIRanker(url=server.url, token=secret(server)), query=QUERY, documents=DOCS):
            assert_ranking(server, ranking(out))
        raw = HuggingFaceTEIRanker(url=server.url, token=secret(server), raw_scores=True, top_k=2).run(query=QUERY, documents=DOCS)
        plain = server.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "raw_scores": True})
        assert [d.id for d in raw["documents"]] == [str(r["index"]) for r in plain[:2]]
        assert abs(raw["documents"][0].score - plain[0]["score"]) < 0.005

    def test_errors(self, strict):
        with pytest.raises(HfHubHTTPError) as error:
            HuggingFaceAPITextEmbedder(
                api_type="text_embeddings_inference", api_params={"url": strict.url}, token=Secret.from_token("a-wrong-one")
            ).run(text="a")
        assert error.value.response.status_code == 401
        with pytest.raises(HfHubHTTPError) as error:
            tei(HuggingFaceAPITextEmbedder, strict, truncate=False).run(text="word " * 600)
        assert error.value.response.status_code == 413 and "602 tokens" in error.value.response.text
        with pytest.raises(Exception, match="401"):
            HuggingFaceTEIRanker(url=strict.url, token=Secret.from_token("a-wrong-one"), max_retries=1).run(query="a", documents=DOCS[:2])

    def test_ranker_tries_again_when_the_queue_is_full(self, strict, calls):
        """It waits by a schedule of its own (1, 2, 4 … seconds)."""
        ranker = HuggingFaceTEIRanker(url=strict.url, token=secret(strict), max_retries=8)
        with strict.flooded():
            ranker.run(query="a " * 250, documents=[Document(content="b")])
        statuses = [c.status for c in calls()]
        assert statuses[0] == 429 and statuses[-1] == 200


@pytest.mark.package("cohere-haystack")
class TestCohere:
    def test_embedders(self, server):
        options = {"api_key": secret(server), "model": EMBEDDER, "api_base_url": server.url}
        for out in both(CohereDocumentEmbedder(batch_size=5, **options), documents=TEXT_DOCUMENTS):
            assert_vectors(server, vectors(out), prefix="passage: ")
        for out in both(CohereTextEmbedder(**options), text=TEXTS[0]):
            assert_vectors(server, [out["embedding"]], TEXTS[:1], prefix="query: ")
            assert out["meta"]["api_version"]["version"] == "2"

    def test_ranker(self, server):
        ranker = CohereRanker(api_key=secret(server), model=RERANKER, api_base_url=server.url, top_k=len(DOCS))
        for out in both(ranker, query=QUERY, documents=DOCS):
            assert_ranking(server, ranking(out))
        assert_ranking(server, ranking(ranker.run(query=QUERY, documents=DOCS, top_k=2)), top=2)

    def test_errors(self, strict):
        with pytest.raises(Exception, match="RAGATE_API_KEY"):
            CohereRanker(api_key=Secret.from_token("a-wrong-one"), model=RERANKER, api_base_url=strict.url).run(query="a", documents=DOCS[:2])
        with pytest.raises(ApiError, match="is not loaded"):
            CohereRanker(api_key=secret(strict), api_base_url=strict.url).run(query="a", documents=DOCS[:2])

    def test_in_a_pipeline_with_retries(self, strict, calls):
        p = Pipeline()
        p.add_component("ranker", CohereRanker(api_key=secret(strict), model=RERANKER, api_base_url=strict.url))
        with strict.flooded():
            out = p.run({"ranker": {"query": QUERY, "documents": [*DOCS[:3], Document(content="a " * 300)]}})
        assert out["ranker"]["documents"][0].id == "1"
        assert_retried(calls())


@pytest.mark.package("jina-haystack")
class TestJina:
    def test_embedders(self, server):
        """Their base_url is the route's own address."""
        options = {"api_key": secret(server), "model": EMBEDDER, "base_url": server.url + "/v1/embeddings"}
        for out in both(JinaDocumentEmbedder(batch_size=5, **options), documents=TEXT_DOCUMENTS):
            assert_vectors(server, vectors(out))
        for out in both(JinaTextEmbedder(**options), text=TEXTS[0]):
            assert_vectors(server, [out["embedding"]], TEXTS[:1])
            assert out["meta"]["model"] == EMBEDDER and out["meta"]["usage"]["total_tokens"] == 8

    def test_tasks(self, server):
        options = {"api_key": secret(server), "model": EMBEDDER, "base_url": server.url + "/v1/embeddings", "late_chunking": False}
        documents = JinaDocumentEmbedder(task="retrieval.passage", **options).run(documents=TEXT_DOCUMENTS)
        assert_vectors(server, vectors(documents), prefix="passage: ")
        query = JinaTextEmbedder(task="retrieval.query", **options).run(text=TEXTS[0])
        assert_vectors(server, [query["embedding"]], TEXTS[:1], prefix="query: ")
        same = JinaDocumentEmbedder(task="text-matching", dimensions=64, **options).run(documents=TEXT_DOCUMENTS)
        assert_vectors(server, vectors(same), dimensions=64)

    def test_ranker(self, server):
        ranker = JinaRanker(api_key=secret(server), model=RERANKER, base_url=server.url + "/v1/rerank")
        for out in both(ranker, query=QUERY, documents=DOCS):
            assert_ranking(server, ranking(out))
            assert out["meta"]["model"] == RERANKER and out["meta"]["usage"]["total_tokens"] > 0
        assert_ranking(server, ranking(ranker.run(query=QUERY, documents=DOCS, top_k=2)), top=2)
        assert [d.id for d in ranker.run(query=QUERY, documents=DOCS, score_threshold=0.9)["documents"]][0] == "1"

    def test_errors(self, strict):
        """They raise what the body's `detail` says."""
        def embed(key=strict.key, path="/v1/embeddings", **options):
            options = {"model": EMBEDDER, **options}
            JinaTextEmbedder(api_key=Secret.from_token(key), base_url=strict.url + path, **options).run(text="a")

        with pytest.raises(RuntimeError, match="RAGATE_API_KEY"):
            embed("a-wrong-one")
        with pytest.raises(RuntimeError, match="is not loaded"):
            embed(model="jina-embeddings-v3")
        with pytest.raises(RuntimeError, match="`task` is"):
            embed(task="retrieval")
        with pytest.raises(RuntimeError, match="there is no route /v1/embedding"):
            embed(path="/v1/embedding")
        with pytest.raises(RuntimeError, match="is not loaded"):
            JinaRanker(api_key=secret(strict), base_url=strict.url + "/v1/rerank").run(query="a", documents=DOCS[:2])
