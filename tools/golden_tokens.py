#!/usr/bin/env python3
"""Makes the reference data of package tokenize with the Python package `tokenizers`.

    golden_tokens.py tables
        tokenize/chartable.txt: what the reference does with each code point (removed, space, punctuation, decomposition,
        lower case, ...). The tables are measured through the reference's public functions, because its parts follow several
        old versions of Unicode that no single library has.
    golden_tokens.py golden --tokenizer TOKENIZER.JSON --cranfield FOLDER
        tokenize/testdata: what the reference makes of texts, code points, pairs and small tokenizers of other settings.
        TOKENIZER.JSON is that of e5-small-v2 (bert-base-uncased's vocabulary), FOLDER holds corpus.jsonl and queries.jsonl.

    golden_tokens.py model --tokenizer TOKENIZER.JSON [--texts FILE] [--offsets] --out tokens.golden.jsonl
        a golden file for any model, for `ragate models verify` to compare with: the ids of texts of many scripts, of pairs, and under
        limits. FILE adds texts of your own, one a line. Package tokenize/golden describes the file.

Run it from anywhere with a Python that has `tokenizers`; the files of the first two are committed and come from VERSION below.
"""

import argparse
import gzip
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

VERSION = "0.23.3"
HERE = pathlib.Path(__file__).resolve().parent.parent / "tokenize"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(values):
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def hex_range(a, b):
    return f"{a:x}" if a == b else f"{a:x}-{b:x}"


def bert(**on):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    flags.update(on)
    return normalizers.BertNormalizer(**flags).normalize_str


def combining_classes(nfd, decomposes):
    """The canonical combining class of every code point, seen through the order in which NFD leaves two of them.

    A code point of class k moves in front of a reference mark of class r > k > 0, and behind one of class r < k.
    The reference marks are one well-known mark per class that Unicode has.
    """
    known = {
        1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 10: 0x5B0, 11: 0x5B1, 12: 0x5B2, 13: 0x5B3, 14: 0x5B4, 15: 0x5B5, 16: 0x5B6,
        17: 0x5B7, 18: 0x5B8, 19: 0x5B9, 20: 0x5BB, 21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1, 25: 0x5C2, 26: 0xFB1E,
        27: 0x64B, 28: 0x64C, 29: 0x64D, 30: 0x64E, 31: 0x64F, 32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670, 36: 0x711,
        84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8, 122: 0xEC8, 129: 0xF71, 130: 0xF72, 132: 0xF74,
        202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A, 220: 0x316, 222: 0x59A, 224: 0x302E, 226: 0x1D16D, 228: 0x5AE,
        230: 0x300, 232: 0x315, 233: 0x35C, 234: 0x35D, 240: 0x345,
    }
    for j, a in known.items():
        for k, b in known.items():
            assert (nfd(chr(b) + chr(a)) != chr(b) + chr(a)) == (a != b and j < k), (a, b)
    low, high = chr(known[1]), chr(known[240])
    classes = {}
    for c in CODE_POINTS:
        if c in decomposes or 0xAC00 <= c < 0xD7A4:
            continue
        s = chr(c)
        after_low = nfd(s + low) != s + low  # class > 1
        before_high = nfd(high + s) != high + s  # 0 < class < 240
        if not after_low and not before_high:
            continue
        # The class is the one whose mark neither overtakes the code point nor is overtaken by it.
        fits = [k for k, m in known.items() if m != c and nfd(s + chr(m)) == s + chr(m) and nfd(chr(m) + s) == chr(m) + s]
        own = [k for k, m in known.items() if m == c]
        found = set(fits) | set(own)
        if len(found) != 1:
            sys.exit(f"U+{c:04X}: combining class not determined: {found}")
        classes[c] = found.pop()
    return classes


def word_characters():
    """Code points that the reference counts as part of a word (regex \\w) beside a single_word token."""
    t = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    t.add_tokens([AddedToken("~", single_word=True, normalized=False)])
    ids = [e.ids for e in t.encode_batch_fast([f"~{chr(c)}" for c in CODE_POINTS])]
    tilde = t.token_to_id("~")
    return {c for c, got in zip(CODE_POINTS, ids) if got[0] != tilde}


def tables():
    clean, chinese = bert(clean_text=True), bert(handle_chinese_chars=True)
    strip, lower = bert(strip_accents=True), bert(lowercase=True)
    nfd = normalizers.NFD().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str

    removed, cleaned_space, cjk, marks, punct, spaces = set(), set(), set(), set(), set(), set()
    decomposition, lowered = {}, {}
    for c in CODE_POINTS:
        s = chr(c)
        got = clean(s)
        if got == "":
            removed.add(c)
        elif got == " ":
            cleaned_space.add(c)
        else:
            assert got == s
        if chinese(s) != s:
            assert chinese(s) == f" {s} "
            cjk.add(c)
        d = nfd(s)
        if d != s:
            decomposition[c] = d
        elif strip(s) == "":
            marks.add(c)
        if lower(s) != s:
            lowered[c] = lower(s)
        parts = [p for p, _ in split(f"a{s}b")]
        if parts == ["a", "b"]:
            spaces.add(c)
        elif parts == ["a", s, "b"]:
            punct.add(c)
        else:
            assert parts == [f"a{s}b"]
    for c in CODE_POINTS:
        d = decomposition.get(c, chr(c))
        assert strip(chr(c)) == "".join(x for x in d if ord(x) not in marks)
    for c in range(0xAC00, 0xD7A4):  # Hangul syllables decompose by arithmetic (Unicode, section 3.12)
        lead, rest = divmod(c - 0xAC00, 588)
        vowel, tail = divmod(rest, 28)
        want = chr(0x1100 + lead) + chr(0x1161 + vowel) + (chr(0x11A7 + tail) if tail else "")
        assert decomposition.pop(c) == want
    classes = combining_classes(nfd, decomposition)
    assert cleaned_space | removed >= spaces and cleaned_space <= spaces

    out = [
        f"# What the reference does with each code point. Made by tools/golden_tokens.py from tokenizers {tokenizers.__version__};",
        "# read by chartable.go. Code points are hexadecimal; a-b is a range, both ends included.",
    ]

    def put(name, items):
        out.append(name)
        line = ""
        for item in items:
            if len(line) + len(item) > 130:
                out.append(" " + line)
                line = ""
            line += " " + item
        if line:
            out.append(" " + line)

    def put_set(name, values):
        put(name, [hex_range(a, b) for a, b in ranges(values)])

    out.append("\n# clean_text: removed")
    put_set("removed", removed)
    out.append("\n# white space: becomes a space under clean_text (unless removed), splits words")
    put_set("space", spaces)
    out.append("\n# handle_chinese_chars: a space on both sides")
    put_set("ideograph", cjk)
    out.append("\n# a word of its own")
    put_set("punct", punct)
    out.append("\n# strip_accents: removed after decomposition")
    put_set("nonspacing", marks)
    out.append("\n# part of a word beside an added token with single_word")
    put_set("word", word_characters())
    out.append("\n# canonical combining class (decimal) = its code points")
    by_class = {}
    for c, k in classes.items():
        by_class.setdefault(k, []).append(c)
    put("class", [f"{k}={','.join(hex_range(a, b) for a, b in ranges(v))}" for k, v in sorted(by_class.items())])
    out.append("\n# lower case: range, step, distance (decimal); or a code point = its several lower case characters")
    runs = []
    many = []
    for c, s in sorted(lowered.items()):
        if len(s) > 1:
            many.append(f"{c:x}={'+'.join(f'{ord(x):x}' for x in s)}")
            continue
        delta = ord(s) - c
        if runs:
            a, b, step, d = runs[-1]
            if d == delta and (c - b == step or a == b and c - b <= 2):
                runs[-1] = (a, c, c - b, d)
                continue
        runs.append((c, c, 1, delta))
    put("lower", [f"{hex_range(a, b)}/{step}:{d:+d}" for a, b, step, d in runs] + many)
    out.append("\n# canonical decomposition, in full; Hangul syllables are computed")
    put("nfd", [f"{c:x}={'+'.join(f'{ord(x):x}' for x in d)}" for c, d in sorted(decomposition.items())])
    path = HERE / "chartable.txt"
    path.write_text("\n".join(out) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def write_gz(name, data):
    """Writes a gzip file that is the same on every run."""
    path = HERE / "testdata" / name
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=9, mtime=0) as z:
        z.write(data)
    print(f"{path}: {len(data)} bytes, {path.stat().st_size} compressed")


def write_jsonl_gz(name, rows):
    write_gz(name, "".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in rows).encode())


def uvarint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def id_list(ids):
    """A list of ids as the tests read it: its length and its elements as unsigned varints."""
    return uvarint(len(ids)) + b"".join(map(uvarint, ids))


def load(source):
    """The reference tokenizer without what ragate ignores on purpose."""
    t = Tokenizer.from_str(source)
    t.no_padding()
    t.no_truncation()
    return t


# Stretches of code points that random texts are made of, chosen for what the stages of the tokenizer do with them.
POOLS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "eeeeeeaaaaoooootttttnnnnnsssss",
    " \t\n\r  ",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "\x00\x01\x0b\x0c\x1c\x7f\x85\xa0\xad\u180e\u200b\u200d\u2028\u202f\u205f\u2060\u3000\ufeff\ufffd\ue000\U000e0041\U0010fffd",
    "\xc0\xc9\xd8\xdf\xe9\xf1\xfc\u0130\u0131\u0141\u0149\u01c5\u023a\u0345\u03a3\u03c2\u1e9e\u1e9b\u0390\u1f82\u1fbc\u2126\u212a\u212b\ufb01\u2167\u24b6",
    "\u0300\u0301\u0308\u0316\u0327\u0334\u0344\u0345\u0f71\u0f72\u0f73\u0f81\u05b0\u064b\u0670\u3099\u20d2",
    "\u302e\u302f\U0001d165\U0001d166\U0001d16d\U0001d15e\U0001d15f\U0001d1bb\u1b44\u1baa\u1bf2\ua953\ua9c0\u094d\u093c\U0001134d\U00016ff0\u0bcd\u0dca\u0ddd",
    "\uac00\ud55c\uad6d\ud7a3\u1100\u1161\u11a8\u1112\u11ab\u3131",
    "\u4e00\u4e2d\u6587\u9fff\u3400\uf900\ufa0e\ufaff\u3007\U00020000\U0002f800\U0002b81e\U0002b820\U0002ceb0",
    "\u304b\u304c\u30ac\u30fb\u30fc\uff01\uff21\uff71\uff9e\u3001\u3002",
    "\u0915\u0958\u093f\u0940\u09cb\u09be\u0b94\u0ccb\u0d4a\u0ddc\u0e01\u0e33\u0e48\u0f40\u0f77\u1026\u1039\u17d2\U0001112e\U000114bb\U00011938",
    "\u0430\u0439\u0451\u0407\u0490\u05d0\ufb2c\u0627\u0622\u06d5\u10a0\u1c90\u13a0\uab70\ua64a\U00010400\U0001e900\U00016e40\U00010d50",
    "\u2018\u2019\u201c\u2026\u20ac\u2260\u2122\xb2\xbd\u221e\u2190\U0001f600\U0001f468\u2764\ufe0f\U0001f3fd\u0378\U0001fb00\u2e43\u2e52",
]
PIECES = ["[SEP]", "[CLS]", "[MASK]", "[UNK]", "[PAD]", "[sep]", "[SEP", "SEP]", "[[SEP]]", "##ing", "##", "[MASK] [MASK]"]


def random_texts(rng, vocabulary, count, pieces=PIECES):
    words = [w[2:] if w.startswith("##") else w for w in vocabulary]
    texts = []
    for _ in range(count):
        out = []
        pools = rng.sample(POOLS, rng.randint(1, 4))
        for _ in range(rng.randint(1, 14)):
            kind = rng.random()
            if kind < 0.12:
                out.append(rng.choice(pieces))
            elif kind < 0.45:
                w = "".join(rng.choice(words) for _ in range(rng.choice([1, 1, 1, 2, 3])))
                out.append(rng.choice([w, w, w.upper(), w.title()]))
                if rng.random() < 0.6:
                    out.append(" ")
            elif kind < 0.47:
                out.append("".join(rng.choice(pools[0]) for _ in range(rng.choice([15, 16, 17, 33, 99, 100, 101, 130]))))
            elif kind < 0.50:
                out.append(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x30000)])))
            else:
                out.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 8))))
        texts.append("".join(out))
    return texts


def text_case(plain, escaped, text):
    e = plain.encode(text, add_special_tokens=False)
    case = {"text": text, "ids": e.ids, "at": [x for o in e.offsets for x in o]}
    other = escaped.encode(text, add_special_tokens=False).ids
    if other != e.ids:
        case["escaped"] = other
    return case


def text_cases(source, seed, count, pieces=PIECES, vocabulary=None):
    plain, escaped = load(source), load(source)
    escaped.encode_special_tokens = True
    vocabulary = vocabulary or sorted(json.loads(source)["model"]["vocab"])
    cases = []
    for text in random_texts(random.Random(seed), vocabulary, count, pieces):
        try:
            cases.append(text_case(plain, escaped, text))
        except BaseException as e:
            if type(e).__name__ != "PanicException":  # the reference has no answer either
                raise
    return cases


def truncation_cases(source, lengths, limits, words=None):
    """Pairs of texts "w1 w2 w3 ..." and "x1 x2 ...", all tokens different, of every pair of lengths under every limit."""
    t = load(source)
    words = words or [w for w in sorted(json.loads(source)["model"]["vocab"]) if w.isascii() and w.isalpha() and w == w.lower()]
    rows = []
    for first in lengths:
        for second in [None] + lengths:
            a = " ".join(words[:first])
            b = second if second is None else " ".join(words[-second:] if second else [])
            for limit in limits:
                for strategy in ["longest_first", "only_first", "only_second"]:
                    for direction in ["right", "left"]:
                        special = t.num_special_tokens_to_add(second is not None)
                        if limit < special:
                            continue
                        t.enable_truncation(limit, strategy=strategy, direction=direction)
                        row = {"first": a, "max": limit, "strategy": strategy, "side": direction}
                        if b is not None:
                            row["second"] = b
                        try:
                            e = t.encode(a) if b is None else t.encode(a, b)
                            row["ids"], row["ones"] = e.ids, sum(e.type_ids)
                            assert e.type_ids == sorted(e.type_ids)
                        except Exception as err:  # the reference raises a bare Exception
                            row["error"] = str(err)
                        rows.append(row)
    return rows


def variants(big):
    """Small tokenizers of other settings, each with cases. A vocabulary stands in the first row that has it."""
    base = json.loads(big)
    base["padding"] = base["truncation"] = None
    vocabulary = base["model"]["vocab"]
    keep = [w for w, i in sorted(vocabulary.items(), key=lambda x: x[1]) if i <= 103 and w[0] == "[" and "unused" not in w or 999 <= i < 2600 or w[:2] == "##" and len(w) <= 4]
    keep += ["The", "Paris", "USA", "\u0130", "\u00e9", "##\u00e9", "caf\u00e9", "\u0307", "##\u0301", "a\x01b", "foo bar", "##"]
    base["model"]["vocab"] = {w: i for i, w in enumerate(dict.fromkeys(keep))}
    ids = base["model"]["vocab"]
    for a in base["added_tokens"]:
        a["id"] = ids[a["content"]]
    for s in base["post_processor"]["special_tokens"].values():
        s["ids"] = [ids[s["id"]]]

    def token(content, **flags):
        return dict(dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False), **flags)

    def bert(**flags):
        def change(t):
            t["normalizer"].update(flags)
        return change

    def cased(t):
        t["normalizer"].update(lowercase=False)

    def add(*tokens):
        def change(t):
            t["added_tokens"] += tokens
        return change

    def processor(p):
        def change(t):
            t["post_processor"] = p
        return change

    def model(**fields):
        def change(t):
            t["model"].update(fields)
        return change

    def no_normalizer(t):
        t["normalizer"] = None

    def continuing(t):
        words = {(w[2:] + "@" if w.startswith("##") and len(w) > 2 else w): i for w, i in t["model"]["vocab"].items()}
        t["model"].update(continuing_subword_prefix="", vocab={w: i for i, w in enumerate(words)})
        for a in t["added_tokens"]:
            a["id"] = t["model"]["vocab"][a["content"]]
        for s in t["post_processor"]["special_tokens"].values():
            s["ids"] = [t["model"]["vocab"][s["id"]]]

    def piece(kind, name, type_id):
        return {kind: {"id": name, "type_id": type_id}}

    several = {
        "type": "TemplateProcessing",
        "single": [piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0)],
        "pair": [piece("SpecialToken", "[CLS]", 0), piece("Sequence", "B", 0), piece("SpecialToken", "[SEP]", 0),
                 piece("SpecialToken", "both", 1), piece("Sequence", "A", 1)],
        "special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [ids["[CLS]"]], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [ids["[SEP]"]], "tokens": ["[SEP]"]},
            "both": {"id": "both", "ids": [ids["[MASK]"], ids["[PAD]"]], "tokens": ["[MASK]", "[PAD]"]},
        },
    }
    extra = ["foo", "foobar", "FooBar", "Caf\u00e9", "hello world", "<ent>", "<ent", "\u4e2d\u6587", "_x_", " foo ", "\u302e", "foofoo"]
    flagged = [
        token("<ent>", lstrip=True), token("<ent", rstrip=True), token("foo", single_word=True), token("foobar"),
        token("\u4e2d\u6587", lstrip=True, rstrip=True), token("_x_", single_word=True, special=True, lstrip=True),
    ]
    normalized = [
        token("FooBar", normalized=True), token("Caf\u00e9", normalized=True, single_word=True), token("hello world", normalized=True, rstrip=True),
        token("<ent>", normalized=True, lstrip=True, special=True), token("foo"), token("\u4e2d\u6587", normalized=True),
    ]
    shared = None
    for name, changes in [
        ("as it is", []),
        ("cased", [cased]),
        ("cased, accents stripped", [bert(lowercase=False, strip_accents=True)]),
        ("lower case, accents kept", [bert(strip_accents=False)]),
        ("controls kept", [bert(clean_text=False)]),
        ("controls and case kept", [bert(clean_text=False, lowercase=False)]),
        ("ideographs not split", [bert(handle_chinese_chars=False)]),
        ("nothing but stripping", [bert(clean_text=False, handle_chinese_chars=False, lowercase=False, strip_accents=True)]),
        ("no normalizer", [no_normalizer]),
        ("words of at most 5", [model(max_input_chars_per_word=5)]),
        ("words of at most 0", [model(max_input_chars_per_word=0)]),
        ("words of at most 1000", [model(max_input_chars_per_word=1000)]),
        ("added tokens", [add(*flagged)]),
        ("added tokens, cased", [add(*flagged), cased]),
        ("normalized added tokens", [add(*normalized)]),
        ("normalized added tokens, cased", [add(*normalized), cased]),
        ("added tokens of white space", [add(token(" foo", lstrip=True, rstrip=True), token("  ", rstrip=True), token("\t", lstrip=True))]),
        ("many added tokens", [add(*[token(c + "0") for c in "abcdefgh"])]),
        ("BertProcessing", [processor({"type": "BertProcessing", "sep": ["[SEP]", ids["[SEP]"]], "cls": ["[CLS]", ids["[CLS]"]]})]),
        ("no processor", [processor(None)]),
        ("another template", [processor(several)]),
        ("no prefix", [continuing]),
    ]:
        t = json.loads(json.dumps(base))
        for change in changes:
            change(t)
        source = json.dumps(t)
        pieces = PIECES + (extra if any(x in name for x in ["added", "no prefix"]) else [])
        row = {}
        if (own := t["model"].pop("vocab")) != shared:
            row["vocab"] = shared = own
        yield row | {
            "name": name,
            "tokenizer": t,
            "texts": text_cases(source, f"variant {name}", 150, pieces),
            "cuts": truncation_cases(source, [0, 1, 3, 6], [3, 4, 7, 8]),
        }


def golden(args):
    source = pathlib.Path(args.tokenizer).read_text()
    write_gz("tokenizer.json.gz", source.encode())
    t = load(source)

    folder = pathlib.Path(args.cranfield)
    texts = []
    for name in ["corpus.jsonl", "queries.jsonl"]:
        for line in (folder / name).read_text().splitlines():
            row = json.loads(line)
            texts.append("\n".join(row[k] for k in ["title", "text"] if row.get(k)))
    assert len(texts) > 1000 and not any("\x1e" in x for x in texts)
    write_gz("cranfield.txt.gz", "\x1e".join(texts).encode())
    write_gz("cranfield.ids.gz", b"".join(id_list(e.ids) for e in t.encode_batch(texts, add_special_tokens=False)))

    points = [c for c in CODE_POINTS if c < 0x20000]
    out = bytearray()
    for shape in ["{}", "a{}b"]:
        for e in t.encode_batch([shape.format(chr(c)) for c in points], add_special_tokens=False):
            out += id_list(e.ids)
    write_gz("codepoints.ids.gz", bytes(out))

    write_jsonl_gz("texts.jsonl.gz", text_cases(source, "texts", 2500))
    lengths = [0, 1, 2, 3, 5, 8, 9, 12, 13, 20, 40]
    write_jsonl_gz("cuts.jsonl.gz", truncation_cases(source, lengths, [2, 3, 4, 5, 8, 15, 16, 17, 31]))
    write_jsonl_gz("variants.jsonl.gz", variants(source))


# Texts for a model of any family: scripts, and what tokenizers trip over.
MODEL_TEXTS = [
    "What is the notice period for a rental contract?", "Wat is de opzegtermijn van een huurcontract?", "Wie hoch ist die K\u00fcndigungsfrist f\u00fcr die Stra\u00dfe?",
    "Quel est le d\u00e9lai de pr\u00e9avis\u202f? C\u2019est l\u2019\u0153uvre de No\u00ebl.", "\u00bfCu\u00e1l es el plazo de preaviso, se\u00f1or?", "Qual \u00e8 il termine di preavviso?", "Qual \u00e9 o prazo? N\u00e3o sei.",
    "Jaki jest okres wypowiedzenia? \u0141\u00f3d\u017a", "Jak\u00e1 je v\u00fdpov\u011bdn\u00ed lh\u016fta? \u017dlu\u0165ou\u010dk\u00fd k\u016f\u0148", "\u0130stanbul'da ka\u00e7 g\u00fcn? I\u015f\u0131k", "Vuk\u0107evi\u0107, \u010capljina \u0111",
    "\u00deetta er \u00edslenska: \u00e6\u00f0i", "S\u00e5 ska vi s\u00e4ga \u00f6", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5 \u1f08\u03b8\u03ae\u03bd\u03b7\u03c2", "\u041a\u0430\u043a\u043e\u0439 \u0441\u0440\u043e\u043a? \u0451\u0436\u0438\u043a \u0439\u043e\u0434", "\u042f\u043a\u0438\u0439 \u0441\u0442\u0440\u043e\u043a? \u0457\u0457 \u0491\u0430\u043d\u043e\u043a",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u0645\u0627 \u0647\u064a \u0645\u062f\u0629 \u0627\u0644\u0625\u0634\u0639\u0627\u0631\u061f \u0643\u064e\u062a\u064e\u0628\u064e", "\u0641\u0627\u0631\u0633\u06cc \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0928\u094b\u091f\u093f\u0938 \u0915\u0940 \u0905\u0935\u0927\u093f \u0915\u094d\u092f\u093e \u0939\u0948?", "\u09a8\u09cb\u099f\u09bf\u09b6", "\u0b95\u0bbe\u0bb2\u0bae\u0bcd \u0b8e\u0ba9\u0bcd\u0ba9?",
    "\u0c28\u0c4b\u0c1f\u0c40\u0c38\u0c41", "\u0e23\u0e30\u0e22\u0e30\u0e40\u0e27\u0e25\u0e32\u0e41\u0e08\u0e49\u0e07\u0e01\u0e35\u0e48\u0e27\u0e31\u0e19", "\u10e0\u10d0\u10db\u10d3\u10d4\u10dc\u10d8 \u10d3\u10e6\u10d4\u10d0?", "\u053b\u0576\u0579\u055e\u057a\u0565\u057d \u0565\u057d", "\u1240\u1295 \u12f5\u1275 \u1290\u12cd", "\u179f\u17bd\u179f\u17d2\u178f\u17b8", "\u1019\u103c\u1014\u103a\u1019\u102c",
    "\u901a\u77e5\u671f\u662f\u591a\u4e45\uff1f", "\u89e3\u7d04\u306e\u901a\u77e5\u671f\u9593\u306f\uff1f \u304c \u304b\u3099 \uff76\uff9e", "\ud1b5\uc9c0 \uae30\uac04\uc740? \u1112\u1161\u11ab", "\U00020000\U0002a6d6", "Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u", "Ti\u0065\u0302\u0301ng",
    "", " ", "  two  spaces  ", "\ttab\nline\r\nend", "\u00a0no-break\u2003em\u3000wide", "a\u200bb\u200db\u2060c\ufeffd", "soft\u00adhyphen", "\u202eright to left\u202c", "a\u0000b\u0007c\u001b[0m",
    "\ufb01nd \ufb03x \u2167 \u2460 \u00bd \u00b2 \u2122", "\uff28\uff25\uff2c\uff2c\uff2f \uff11\uff12\uff13", "e\u0301 \u00e9 E\u0301 \u00c9 \u0130 i\u0307", "h\u0337\u0317e\u0335l\u0336l\u0335o", "\U0001d525\U0001d522\U0001d529\U0001d529\U0001d52c",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1f3\U0001f1f1 \u2764\ufe0f 1\ufe0f\u20e3", "\ue000\uf8ff \U000f0000", "\ufffd\ufffe", "don't can't won't it's 'tis", "U.S.A. e.g. 3.14 1,000,000 50% $9.99 \u20ac5",
    "snake_case camelCase kebab-case a/b/c C:\\path", "https://example.org/a?b=c&d=%20#e user@example.org", "if (a >= b && c != d) { return x[0]; }", "{\"json\": [1, null]}", "<s> </s> <unk> <pad> <mask>", "[CLS] [SEP] [UNK] [PAD] [MASK]",
    "<|endoftext|> <bos> <eos>", "\u2581under \u2581\u2581", "##ing ##", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ha" * 150, "\u00e9" * 120, "\u4e2d" * 60, "word " * 80, "!?!?...,,;;::--__", "\u201cquotes\u201d \u2018single\u2019 \u00abguillemets\u00bb \u2014 dash\u2026",
]
MODEL_PAIRS = [
    ("What is the notice period?", "The notice period is two months."), ("Wat is de opzegtermijn?", "De opzegtermijn bedraagt twee maanden."), ("\u901a\u77e5\u671f\uff1f", "\u4e24\u4e2a\u6708\u3002"),
    ("", ""), ("a", ""), ("", "b"), (" a ", " b "), ("[SEP] </s>", "<s> [CLS]"), ("one two three four five six seven", "eins zwei drei vier f\u00fcnf sechs sieben acht neun zehn " * 4),
    ("een twee drie " * 20, "one"), ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\ufb03x"),
]


def model_cases(t, texts, offsets):
    def case(name, text, pair=None, limit=None, strategy=None, side=None):
        row = {"name": name, "text": text, "pair": pair, "max_length": limit, "strategy": strategy, "side": side}
        t.no_truncation()
        if limit is not None:
            t.enable_truncation(limit, strategy=strategy, direction=side)
        try:
            e = t.encode(text) if pair is None else t.encode(text, pair)
        except Exception as err:  # the reference raises a bare Exception
            return row | {"want_error": str(err)}
        row |= {"want_ids": e.ids, "want_type_ids": e.type_ids}
        if offsets and pair is None and limit is None:
            row["want_offsets"] = e.offsets
        return row

    for i, text in enumerate(texts):
        yield case(f"text {i}", text)
    for i, (a, b) in enumerate(MODEL_PAIRS):
        yield case(f"pair {i}", a, b)
    special = t.num_special_tokens_to_add(True)
    for limit in [special + 1, special + 2, 16, 33]:
        for side in ["right", "left"]:
            for i, text in enumerate([texts[0], texts[1], "", "word " * 80]):
                yield case(f"text {i} in {limit}, {side}", text, None, limit, "longest_first", side)
            for strategy in ["longest_first", "only_first", "only_second"]:
                for i, (a, b) in enumerate(MODEL_PAIRS):
                    yield case(f"pair {i} in {limit}, {strategy}, {side}", a, b, limit, strategy, side)


def model(args):
    t = Tokenizer.from_file(args.tokenizer)
    t.no_padding()
    texts = list(MODEL_TEXTS)
    if args.texts:
        texts += [x for x in pathlib.Path(args.texts).read_text(encoding="utf-8").split("\n") if x]
    rows = list(model_cases(t, texts, args.offsets))
    pathlib.Path(args.out).write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
    print(f"{args.out}: {len(rows)} cases by tokenizers {tokenizers.__version__}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    commands.add_parser("tables")
    g = commands.add_parser("golden")
    g.add_argument("--tokenizer", required=True)
    g.add_argument("--cranfield", required=True)
    m = commands.add_parser("model")
    m.add_argument("--tokenizer", required=True)
    m.add_argument("--texts", help="texts of your own, one a line")
    m.add_argument("--offsets", action="store_true", help="also the place of each token")
    m.add_argument("--out", required=True)
    args = p.parse_args()
    if args.command == "model":
        return model(args)
    if tokenizers.__version__ != VERSION:
        sys.exit(f"tokenizers {tokenizers.__version__} is installed, the committed files come from {VERSION}: pip install tokenizers=={VERSION}")
    if args.command == "tables":
        tables()
    else:
        golden(args)


if __name__ == "__main__":
    main()
