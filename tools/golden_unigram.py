#!/usr/bin/env python3
"""Makes the reference data of package tokenize for Unigram tokenizers, with the Python packages `tokenizers` and `sentencepiece`.

    golden_unigram.py classes
        tokenize/internal/graphemes/classes.txt: which code points the reference's grapheme clusters are made of, measured through
        its public functions.
    golden_unigram.py golden --tokenizer TOKENIZER.JSON
        tokenize/testdata/unigram.*: small tokenizers of every setting, and what the reference makes of texts and pairs with them.
        TOKENIZER.JSON is that of multilingual-e5-small; some of its pieces are kept.
    golden_unigram.py live --tokenizer TOKENIZER.JSON --texts TEXTS.JSON
        to standard output, for the test that runs it: what the reference makes of texts in many scripts, of every code point, of
        a list of texts (those of Cranfield), and of pairs that are too long. Each line is a case in JSON; "kind" says what it is of.

Run it from anywhere with a Python that has `tokenizers` (golden_tokens.VERSION); the files it writes are committed.
"""

import argparse
import gzip
import json
import pathlib
import random
import struct
import sys

import tokenizers
from tokenizers import Tokenizer, normalizers

import golden_tokens
from golden_tokens import HERE, VERSION, ranges

CODE_POINTS = golden_tokens.CODE_POINTS[1:]  # a NUL separates texts


def charsmap(keys, replacements):
    """A precompiled_charsmap whose keys are single bytes: a Darts double array of a root, its children, and their values."""
    units = [0] * 1024
    root = 256
    units[0] = root << 10
    for byte, value in keys.items():
        at, leaf = root ^ byte, 512 + byte
        units[at] = byte | 1 << 8 | (at ^ leaf) << 10
        units[leaf] = value | 1 << 31
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + replacements


def cluster_counts(texts):
    """For each text (without NUL), its number of clusters, counting one of six bytes and more by its characters.

    Every byte that a text can begin with is a key of the map, so that each cluster of less than six bytes becomes one "Z", and
    each character of longer ones too. A NUL is left alone, and no cluster goes on across one.
    """
    norm = normalizers.Precompiled(charsmap({b: 0 for b in range(1, 256)}, b"Z\0"))
    return [len(part) for part in norm.normalize_str("\0".join(texts)).split("\0")]


def classes():
    """Each probe is a text in which only the class of a code point decides whether two clusters are one. Where both would have
    fewer than six bytes, that shows in their number; longer ones get an accent (U+0300, two bytes) behind the second."""
    grave, zwj, trademark = "\u0300", "\u200d", "\u2122"
    lead, vowel, tail = "\u1100", "\u1160", "\u11a8"
    ka, virama = "\u0915", "\u094d"

    def where(points, probe, want):
        points = sorted(points)
        return {c for c, n in zip(points, cluster_counts([probe(chr(c)) for c in points])) if n == want}

    everything = set(CODE_POINTS)
    joins = where(everything, lambda x: "a" + x, 1)
    rest = everything - joins
    control = where(rest, lambda x: x + grave + "\u0301", 2)
    rest -= control
    prepend = where(rest, lambda x: x + "a", 1)
    rest -= prepend
    jamo = {c for c in rest if len(chr(c).encode()) == 3}
    after_l = where(jamo, lambda x: lead + x + grave, 3)
    after_v = where(jamo, lambda x: vowel + x + grave, 3)
    after_t = where(jamo, lambda x: tail + x + grave, 3)
    before_v = where(jamo, lambda x: x + vowel + grave, 3)
    before_t = where(jamo, lambda x: x + tail + grave, 3)
    syllables = set(range(0xAC00, 0xAC00 + 11172))
    assert after_l & before_t - after_v == syllables and before_v & syllables == set(range(0xAC00, 0xAC00 + 11172, 28))
    extend = where(joins, lambda x: trademark + x + zwj + trademark + grave, 5)
    pictographic = where(rest, lambda x: x + zwj + trademark + grave, 4)
    consonant = where(rest, lambda x: x + virama + ka + grave, 4)
    linker = where(joins, lambda x: ka + x + ka + grave, 4)
    conjunct = where(joins, lambda x: ka + virama + x + ka + grave, 5)
    assert linker < conjunct and {0x0A, 0x0D} < control
    assert cluster_counts(["\r\n", "\n\r", "\r\r"]) == [1, 2, 2]
    # Regional indicators have four bytes: nothing shorter than six is made of two of them, so the standard's range is taken, and
    # checked by what follows three of them.
    flags = range(0x1F1E6, 0x1F200)
    assert not joins & set(flags) and not pictographic & set(flags)
    parts = {
        "cr": {0x0D}, "lf": {0x0A}, "control": control - {0x0A, 0x0D} | {0}, "extend": extend, "zwj": {0x200D},
        "spacing": joins - extend - {0x200D}, "prepend": prepend,
        "l": after_l & before_v - before_t, "v": after_l & after_v & before_v, "t": after_t - after_l,
        "regional": set(flags), "pictographic": pictographic, "consonant": consonant, "linker": linker, "conjunct": conjunct,
    }
    names = [n for n in parts if n not in ("linker", "conjunct")]
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            assert not parts[a] & parts[b], (a, b)
    out = [
        "# What the reference's grapheme clusters are made of (Unicode Standard Annex 29), without Hangul syllables, which are computed.",
        f"# Made by tools/golden_unigram.py from tokenizers {tokenizers.__version__}; read by graphemes.go. Code points are hexadecimal;",
        "# a-b is a range, both ends included. linker and conjunct, of Indic conjuncts, go beside another class.",
    ]
    for name, points in parts.items():
        out += ["", name]
        line = ""
        for first, last in ranges(points):
            item = f" {first:x}" if first == last else f" {first:x}-{last:x}"
            if len(line) + len(item) > 130:
                out.append(" " + line)
                line = ""
            line += item
        out.append(" " + line)
    path = HERE / "internal/graphemes/classes.txt"
    path.write_text("\n".join(out) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


MARK = "\u2581"
PIECES = ["<s>", "</s>", "<mask>", " <mask> ", "<unk>", "<pad>", MARK, MARK + MARK, "<mask", "<0x41>", "\r\n", "  ", "   ", "\t ", "\u3000",
          "e\u0301", "\ufb01\u0301", "\u2122\u0301", "\u2122\u200d\u2122\u0300", "\u00b4", "\u00a8 ", "\x01", "\x01 ", " \x01",
          "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea\U0001f1eb", "\u2764\ufe0f\u200d\U0001f525", "\u0915\u094d\u0937\u0300",
          "\u1100\u1161\u11a8", "\u1100\uac00\u11a8", "\u0600a", "\u0e33", "\ufdfa", "caf", "\ufb03", "\uff76\uff9e", "\u1e9b\u0323", "\u0344", "ab"]


def small(big):
    """A tokenizer with some of the pieces: the commonest ones, and of the others every thirtieth."""
    t = json.loads(big)
    pieces = t["model"]["vocab"]
    mask = pieces[-1]
    t["model"]["vocab"] = [p for i, p in enumerate(pieces[:-1]) if i < 2500 or i % 60 == 0] + [mask]
    t["padding"] = t["truncation"] = None
    for a in t["added_tokens"]:
        a["id"] = [p for p, _ in t["model"]["vocab"]].index(a["content"])
    return t


def variants(base):
    """Settings, each as the parts of the file that differ from the base. "charsmap" stands for the base's."""
    precompiled = {"type": "Precompiled", "precompiled_charsmap": "charsmap"}
    runs = lambda content: {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content}
    every = lambda content: {"type": "Replace", "pattern": {"Regex": " +"}, "content": content}
    string = lambda what, content: {"type": "Replace", "pattern": {"String": what}, "content": content}
    strip = lambda left, right: {"type": "Strip", "strip_left": left, "strip_right": right}
    sequence = lambda *n: {"normalizer": {"type": "Sequence", "normalizers": list(n)}}
    mark = lambda **more: dict({"type": "Metaspace", "replacement": MARK}, **more)
    pre = lambda *p: {"pre_tokenizer": p[0] if len(p) == 1 else {"type": "Sequence", "pretokenizers": list(p)}}
    words = {"type": "WhitespaceSplit"}
    token = lambda content, **flags: dict(
        dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False), **flags)
    add = lambda *tokens: {"added_tokens": base["added_tokens"] + list(tokens)}
    ids = {p: i for i, (p, _) in enumerate(base["model"]["vocab"])}
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]], "trim_offsets": False, "add_prefix_space": True}
    yield "as it is", {}
    yield "only the map", {"normalizer": precompiled}
    yield "no normalizer", {"normalizer": None}
    yield "an empty sequence", sequence()
    for scheme in ["always", "first", "never"]:
        for split in [True, False]:
            yield f"{scheme}, split {split}", pre(mark(prepend_scheme=scheme, split=split))
            yield f"words, {scheme}, split {split}", pre(words, mark(prepend_scheme=scheme, split=split))
            yield f"{scheme}, split {split}, runs become a mark", sequence(precompiled, strip(False, True), runs(MARK)) | pre(mark(prepend_scheme=scheme, split=split))
            yield f"{scheme}, split {split}, stripped left", sequence(precompiled, runs(" "), strip(True, False)) | pre(mark(prepend_scheme=scheme, split=split))
            yield f"words, {scheme}, split {split}, no map", {"normalizer": None} | pre(words, mark(prepend_scheme=scheme, split=split))
    yield "of old: a prefix", pre(mark(add_prefix_space=True))
    yield "of old: words and a prefix", pre(words, mark(add_prefix_space=True, str_rep=MARK))
    yield "of old: no prefix", pre(mark(add_prefix_space=False, prepend_scheme="never"))
    yield "no pre-tokenizer", {"pre_tokenizer": None}
    yield "only words", pre(words)
    yield "a sequence of one", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [mark()]}}
    yield "another mark", pre(mark(replacement="_"))
    yield "stripped, then runs", sequence(precompiled, strip(True, True), runs(MARK))
    yield "runs, then stripped", sequence(precompiled, runs(MARK), strip(True, True))
    yield "runs vanish", sequence(precompiled, runs(""))
    yield "runs vanish, first", sequence(precompiled, runs("")) | pre(mark(prepend_scheme="first"))
    yield "every run is a mark", sequence(precompiled, every(MARK), strip(False, True))
    yield "runs twice", sequence(precompiled, runs("   "), runs(" "), every("  "))
    yield "strings replaced", sequence(string("e", "\u00e9e"), precompiled, string("ab", ""), string("\u00e9", "e\u0301"))
    yield "prepended", sequence(precompiled, {"type": "Prepend", "prepend": MARK + "x"}, string(" ", MARK)) | pre(mark(prepend_scheme="never"))
    yield "bytes", {"bytes": True}
    yield "bytes, never", {"bytes": True} | pre(mark(prepend_scheme="never", split=False))
    yield "some bytes", {"bytes": "some"}
    yield "no fallback but bytes", {"bytes": "unused"}
    yield "unknown is another piece", {"unk": ids["a"]}
    yield "added tokens", add(token("<ent>", lstrip=True), token("<ent", rstrip=True), token("caf", single_word=True), token("ab", special=True),
                              token(MARK), token("\ufb01", lstrip=True, rstrip=True))
    yield "added tokens, words", add(token("<ent>", lstrip=True), token("caf", single_word=True, rstrip=True), token("ab")) | pre(words, mark())
    yield "added tokens of white space", add(token(" caf", lstrip=True, rstrip=True), token("  ", rstrip=True), token("\t", lstrip=True))
    yield "normalized added tokens", add(token("\ufb01", normalized=True), token("ab", normalized=True, lstrip=True, rstrip=True),
                                         token("Caf\u00e9  x", normalized=True), token("caf", normalized=True, single_word=True), token("<ent>"))
    yield "RobertaProcessing", {"post_processor": roberta}
    yield "no processor", {"post_processor": None}


def patched(base, change):
    """The file that a variant stands for."""
    t = dict(base)
    model = dict(t["model"])
    for name, value in change.items():
        if name == "bytes":
            missing = 0xE2 if value == "some" else -1
            model["vocab"] = model["vocab"] + [[f"<0x{b:02X}>", -20.0] for b in range(256) if b != missing]
            model["byte_fallback"] = value != "unused"
        elif name == "unk":
            model["unk_id"] = value
        else:
            t[name] = value
    t["model"] = model
    text = json.dumps(t, ensure_ascii=False)
    return text.replace('"charsmap"', json.dumps(charsmap_of(base)))


def charsmap_of(t):
    return t["normalizer"]["normalizers"][0]["precompiled_charsmap"]


def plain_words(t, vocabulary):
    """Words of one token each."""
    words = [p[1:] for p in vocabulary if p[0] == MARK and len(p) > 3 and p[1:].isascii() and p[1:].isalpha()]
    return [w for w in sorted(words) if len(t.encode(" " + w, add_special_tokens=False).ids) == 1 == len(t.encode(w, add_special_tokens=False).ids)]


def golden(args):
    big = pathlib.Path(args.tokenizer).read_text()
    base = small(big)
    source = json.dumps(base, ensure_ascii=False)
    golden_tokens.write_gz("unigram.json.gz", source.encode())
    pieces = [p for p, _ in base["model"]["vocab"]]
    vocabulary = sorted(p.replace(MARK, " ") for p in pieces if p[0] != "<")
    rows = []
    for name, change in variants(base):
        text = patched(base, change)
        count = 500 if name == "as it is" else 120
        t = golden_tokens.load(text)
        rows.append({
            "name": name, "change": change,
            "texts": golden_tokens.text_cases(text, f"unigram {name}", count, PIECES, vocabulary),
            "cuts": golden_tokens.truncation_cases(text, [0, 1, 3, 6], [4, 5, 8, 9], plain_words(t, pieces)) if "rocess" in name or name == "as it is" else [],
        })
    golden_tokens.write_jsonl_gz("unigram.jsonl.gz", rows)
    sentencepiece_golden()


def sentencepiece_golden():
    """A small SentencePiece model, and the tokenizer that transformers' XLMRobertaConverter (convert_slow_tokenizer.py) makes of one:
    its normalizer, pre_tokenizer, vocab, unk_id and post_processor, and the added tokens of XLMRobertaTokenizer."""
    import io

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import AddedToken, Regex, models, pre_tokenizers, processors

    passages = gzip.open(HERE / "testdata/cranfield.txt.gz", "rt", newline="").read().split("\x1e")[:600]
    lines = [line for text in passages for line in text.split("\n") if line] + SCRIPTS * 20
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, vocab_size=1600, model_type="unigram", normalization_rule_name="nmt_nfkc",
        character_coverage=0.9995, user_defined_symbols=["<ent>"], num_threads=1, minloglevel=2)
    golden_tokens.write_gz("spm.model.gz", out.getvalue())
    proto = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(p.piece, p.score) for p in proto.pieces[3:]] + [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=False))
    t.add_tokens([AddedToken(p.piece, normalized=False, special=p.type == 3) for p in proto.pieces if p.type in (3, 4)])
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), MARK)])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    t.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)])
    # The scores go by value: written and read again, they would lose a bit.
    rows = []
    vocabulary = sorted(p.replace(MARK, " ") for p, _ in vocab if p[0] != "<")
    texts = golden_tokens.random_texts(random.Random("spm"), vocabulary, 1500, PIECES + ["<ent>"]) + SCRIPTS + passages[:100]
    for text in texts:
        e = t.encode(text, add_special_tokens=False)
        row = {"text": text, "ids": e.ids, "at": [x for o in e.offsets for x in o]}
        t.encode_special_tokens = True
        if (other := t.encode(text, add_special_tokens=False).ids) != e.ids:
            row["escaped"] = other
        t.encode_special_tokens = False
        rows.append(row)
    golden_tokens.write_jsonl_gz("spm.jsonl.gz", rows)


SCRIPTS = """Latin: Kunt u mij vertellen hoe ik mijn wachtwoord opnieuw instel? Où est l'hôtel, s'il vous plaît ? Straße, Größe, ÆØÅ, żółć, řeřicha, İstanbul, đặc biệt
Greek: Καλημέρα κόσμε, τι κάνεις; ἀρχῇ
Cyrillic: Сегодня хорошая погода, и мы идём гулять. Щоденник її ґанок, ђак
Armenian: Բարեւ աշխարհ, ինչպե՞ս ես
Georgian: გამარჯობა მსოფლიო ᲒᲐᲛᲐᲠᲯᲝᲑᲐ
Hebrew: שָׁלוֹם עולם, מה שלומך
Arabic: مرحبا بالعالم، كيف حالك؟ ﷺ ﻻ لا إِنَّ اللّٰه
Persian: سلام دنیا، می‌روم
Urdu: ہیلو دنیا، آپ کیسے ہیں؟
Syriac: ܫܠܡܐ ܥܠܡܐ
Thaana: ހެލޯ ދުނިޔެ
Devanagari: नमस्ते दुनिया, क्षत्रिय ज्ञान हिन्दी में
Bengali: ওহে বিশ্ব, কেমন আছেন? ক্ষ
Gurmukhi: ਸਤਿ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨੀਆ
Gujarati: નમસ્તે વિશ્વ, ક્ષ
Odia: ନମସ୍କାର ବିଶ୍ୱ
Tamil: வணக்கம் உலகம், ஸ்ரீ கௌ
Telugu: హలో ప్రపంచం, క్షమించండి
Kannada: ಹಲೋ ವಿಶ್ವ, ಕ್ಷಮಿಸಿ
Malayalam: ഹലോ വേൾഡ്, ക്ഷമിക്കണം
Sinhala: හෙලෝ වර්ල්ඩ්, ශ්‍රී ලංකා
Thai: สวัสดีชาวโลก น้ำใจ กำลังทำงาน
Lao: ສະບາຍດີຊາວໂລກ ນ້ຳ
Tibetan: བཀྲ་ཤིས་བདེ་ལེགས། ཨོཾ
Myanmar: မင်္ဂလာပါကမ္ဘာလောက
Khmer: សួស្តី​ពិភពលោក
Hangul: 안녕하세요 세계 한국어, 안녕 (decomposed)
Han: 今天天气很好，我们去公园散步。漢字 𠮷野家
Kana: こんにちは世界、カタカナ、ｶﾀｶﾅ、が ぱ ヷ
Ethiopic: ሰላም ለዓለም
Cherokee: ᎣᏏᏲ ᎡᎶᎯ
Canadian: ᐊᐃᖓᐃ ᓄᓇᕐᔪᐊᖅ
Mongolian: ᠰᠠᠢᠨ ᠪᠠᠢᠨᠠ ᠤᠤ
Tifinagh: ⴰⵣⵓⵍ ⴰⵎⴰⴹⴰⵍ
Yi: ꆈꌠꉙ
Runes: ᚠᚢᚦᚨᚱᚲ
Gothic: 𐌲𐌿𐍄𐌹𐍃𐌺
Emoji: 👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷🇳 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ ☎️ 🤷🏽‍♀️ ™️ ©️
Compatibility: ﬁ ﬀ ﬃ Ⅷ ㎏ ① ½ ａｂｃ　ＡＢＣ ｶﾞ ㋿ ﷺ ｆｕｌｌ ℌ 𝕳𝖊𝖑𝖑𝖔 ²³ ª º … ‥ ″ ⑴ ㈱
Marks: é ế ą̊ Z̸̢͖ͪa͉͟l͚̈́g̷̖o ̀alone à̖̀ ﬁ́ ™́ ㎏̈
Space:   two  three   tab	line
crlf
nbsp en em　ideographic​zero‌width‍ﻩ﻿bom end  """.splitlines()


def live(args):
    out = sys.stdout
    t = golden_tokens.load(pathlib.Path(args.tokenizer).read_text())
    pieces = [t.id_to_token(i) for i in range(t.get_vocab_size())]

    def put(kind, **row):
        out.write(json.dumps({"kind": kind, **row}, ensure_ascii=False, separators=(",", ":")) + "\n")

    def put_texts(kind, texts):
        escaped = golden_tokens.load(pathlib.Path(args.tokenizer).read_text()) if kind == "texts" else None
        if escaped:
            escaped.encode_special_tokens = True
        for start in range(0, len(texts), 20000):
            batch = texts[start:start + 20000]
            for text, e in zip(batch, t.encode_batch(batch, add_special_tokens=False)):
                row = {"text": text, "ids": e.ids, "at": [x for o in e.offsets for x in o]}
                if escaped and (other := escaped.encode(text, add_special_tokens=False).ids) != e.ids:
                    row["escaped"] = other
                put(kind, **row)

    texts = []
    for line in SCRIPTS:
        name, _, text = line.partition(": ")
        texts += [text, text.replace(" ", ""), "a" + text + "b", text + "\x00" + text, text[::-1]]
        texts += [text[i:] for i in range(1, min(len(text), 12))]
    vocabulary = sorted(p.replace(MARK, " ") for p in pieces if p and p[0] != "<")
    texts += golden_tokens.random_texts(random.Random("unigram live"), vocabulary, 6000, PIECES)
    texts += [c * n for c in ["a", " ", "\t", MARK, "\u4e2d", "\u0301", "\U0001f600", "\x01", "ab", "a ", "\u304c", "zq"] for n in [1, 2, 3, 100, 5000, 20000]]
    put_texts("texts", texts)
    points = [c for c in golden_tokens.CODE_POINTS if c < 0x20000]
    put_texts("points", [chr(c) for c in points])
    put_texts("inside", [f"a{chr(c)}b" for c in points])
    put_texts("accented", [f"{chr(c)}\u0301 {chr(c)}\u0300\u0300" for c in points])
    put_texts("cranfield", json.loads(pathlib.Path(args.texts).read_text()))
    for row in golden_tokens.truncation_cases(pathlib.Path(args.tokenizer).read_text(), [0, 1, 2, 3, 5, 8, 9, 12, 13, 20, 40],
                                              [4, 5, 8, 15, 16, 17, 31], plain_words(t, pieces)):
        put("cuts", **row)


def main():
    if tokenizers.__version__ != VERSION:
        sys.exit(f"tokenizers {tokenizers.__version__} is installed, the committed files come from {VERSION}: pip install tokenizers=={VERSION}")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    commands.add_parser("classes")
    g = commands.add_parser("golden")
    g.add_argument("--tokenizer", required=True)
    g = commands.add_parser("live")
    g.add_argument("--tokenizer", required=True)
    g.add_argument("--texts", required=True)
    args = p.parse_args()
    {"classes": lambda _: classes(), "golden": golden, "live": live}[args.command](args)


if __name__ == "__main__":
    main()
