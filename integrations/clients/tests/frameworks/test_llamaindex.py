"""LlamaIndex's OpenAI-like and TEI embeddings, and its Cohere, Jina and TEI rerankers."""

import asyncio

import openai
import pytest
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TEIRerank
from servers import EMBEDDER, RERANKER
from values import DOCUMENTS, QUERY, TEXTS, assert_ranking, assert_vectors

# Its default node template would put a key before the text.
NODES = [NodeWithScore(node=TextNode(text=d, id_=str(i)), score=0.5) for i, d in enumerate(DOCUMENTS)]


def ranking(nodes):
    return [(n.node.node_id, n.score) for n in nodes]


@pytest.mark.package("llama-index-embeddings-openai-like")
def test_openai_like(server, calls):
    e = OpenAILikeEmbedding(model_name=EMBEDDER, api_base=server.url + "/v1", api_key=server.client_key, embed_batch_size=100)
    assert_vectors(server, e.get_text_embedding_batch(TEXTS))
    assert_vectors(server, asyncio.run(e.aget_text_embedding_batch(TEXTS)))
    assert_vectors(server, [e.get_query_embedding(TEXTS[0])], TEXTS[:1])
    texts = [f"{i}: {TEXTS[i % 5]}" for i in range(110)]
    calls.seen.clear()
    assert_vectors(server, e.get_text_embedding_batch(texts), texts)
    assert [c.items for c in calls()][-2:] == [100, 10]


@pytest.mark.package("llama-index-embeddings-openai-like")
def test_openai_like_errors(strict):
    with pytest.raises(openai.AuthenticationError):
        OpenAILikeEmbedding(model_name=EMBEDDER, api_base=strict.url + "/v1", api_key="a-wrong-one").get_text_embedding("a")
    with pytest.raises(openai.APIStatusError, match="512 tokens"):
        OpenAILikeEmbedding(model_name=EMBEDDER, api_base=strict.url + "/v1", api_key=strict.key).get_text_embedding("word " * 600)


@pytest.mark.package("llama-index-embeddings-text-embeddings-inference")
def test_tei_embeddings(server):
    e = TextEmbeddingsInference(model_name=EMBEDDER, base_url=server.url, auth_token=server.key or None, embed_batch_size=3)
    assert_vectors(server, e.get_text_embedding_batch(TEXTS))
    assert_vectors(server, asyncio.run(e.aget_text_embedding_batch(TEXTS)))
    prefixed = TextEmbeddingsInference(
        model_name=EMBEDDER, base_url=server.url, auth_token=server.key or None, query_instruction="query:", text_instruction="passage:"
    )
    assert_vectors(server, prefixed.get_text_embedding_batch(TEXTS[:5]), TEXTS[:5], prefix="passage: ")
    assert_vectors(server, [prefixed.get_query_embedding(TEXTS[0])], TEXTS[:1], prefix="query: ")


@pytest.mark.package("llama-index-embeddings-text-embeddings-inference")
def test_tei_embeddings_errors(strict):
    """It does not look at the status: what it raises says nothing, but it does raise."""
    for e, text in (
        (TextEmbeddingsInference(model_name=EMBEDDER, base_url=strict.url, auth_token="a-wrong-one"), "a"),
        (TextEmbeddingsInference(model_name=EMBEDDER, base_url=strict.url, auth_token=strict.key, truncate_text=False), "word " * 600),
    ):
        with pytest.raises(KeyError):
            e.get_text_embedding(text)


@pytest.mark.package("llama-index-postprocessor-cohere-rerank")
def test_cohere_rerank(server):
    r = CohereRerank(model=RERANKER, api_key=server.client_key, base_url=server.url, top_n=len(NODES))
    assert_ranking(server, ranking(r.postprocess_nodes(NODES, query_str=QUERY)))
    assert_ranking(server, ranking(asyncio.run(r.apostprocess_nodes(NODES, query_str=QUERY))))


@pytest.mark.package("llama-index-postprocessor-cohere-rerank")
def test_cohere_rerank_errors(strict):
    with pytest.raises(Exception, match="is not loaded"):
        CohereRerank(model="rerank-v3.5", api_key=strict.key, base_url=strict.url, max_retries=1).postprocess_nodes(NODES[:2], query_str="a")


@pytest.mark.package("llama-index-postprocessor-jinaai-rerank")
@pytest.mark.parametrize("path", ["", "/v1"])
def test_jina_rerank(server, path):
    r = JinaRerank(model=RERANKER, api_key=server.client_key, base_url=server.url + path, top_n=4)
    assert_ranking(server, ranking(r.postprocess_nodes(NODES, query_str=QUERY)), top=4)


@pytest.mark.package("llama-index-postprocessor-jinaai-rerank")
def test_jina_rerank_errors(strict):
    """It raises what the body's `detail` says."""
    rerank = lambda key, **options: JinaRerank(api_key=key, base_url=strict.url + "/v1", **options).postprocess_nodes(NODES[:2], query_str="a")
    with pytest.raises(RuntimeError, match="RAGATE_API_KEY"):
        rerank("a-wrong-one", model=RERANKER)
    with pytest.raises(RuntimeError, match="is not loaded"):
        rerank(strict.key, model="jina-reranker-v2-base-multilingual")


@pytest.mark.package("llama-index-postprocessor-tei-rerank")
def test_tei_rerank(server):
    r = TEIRerank(model_name=RERANKER, base_url=server.url, auth_token=server.auth.get("Authorization"), top_n=4)
    assert_ranking(server, ranking(r.postprocess_nodes(NODES, query_str=QUERY)), top=4)


@pytest.mark.package("llama-index-postprocessor-tei-rerank")
def test_tei_rerank_errors(strict):
    with pytest.raises(Exception):
        TEIRerank(model_name=RERANKER, base_url=strict.url, auth_token="Bearer a-wrong-one").postprocess_nodes(NODES[:2], query_str="a")
