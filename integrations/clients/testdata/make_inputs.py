"""Writes inputs.json, the texts and pairs that all clients send: `python3 make_inputs.py`, then

    PYTHONPATH="$RAGATE_DATA_DIR/python" python3 tools/reference.py answers \
        --embedder "$RAGATE_DATA_DIR/models/intfloat--e5-small-v2" \
        --reranker "$RAGATE_DATA_DIR/models/cross-encoder--ms-marco-MiniLM-L12-v2" \
        --inputs integrations/clients/testdata/inputs.json --out integrations/clients/testdata/answers.json

computes the reference answers, without any of the server's code.
"""

import json
import pathlib

# No line breaks: LlamaIndex and LangChain replace them before they send.
TEXTS = [
    "how long is the notice period",
    "The notice period of a fixed-term contract is one month.",
    "Wat is het verschil tussen bruto en netto?",
    "東京は日本の首都です。",
    "naïve café, ﬁne Å 👩🏽‍🚀",
    "",
    " ",
    "a long text, cut at the limit: " + "the contract ends one month after notice was given in writing, " * 60,
]
PREFIXES = ["", "query: ", "passage: "]
QUERY = "what is the capital of france"
DOCUMENTS = [
    "Bananas are rich in potassium.",
    "Paris is the capital and most populous city of France.",
    "Lyon is a large city in France.",
    "パリはフランスの首都です。",
    "",
    "Paris. " + "It has many museums, parks, bridges and railway stations. " * 60,
    "Paris is the capital and most populous city of France.",
]

if __name__ == "__main__":
    inputs = {"texts": [p + t for p in PREFIXES for t in TEXTS], "pairs": [{"query": QUERY, "documents": DOCUMENTS}]}
    out = pathlib.Path(__file__).with_name("inputs.json")
    out.write_text(json.dumps(inputs, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
