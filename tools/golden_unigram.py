#!/usr/bin/env python3
"""Makes the reference data of package tokenize for Unigram tokenizers, with the Python packages `tokenizers` and `sentencepiece`.

    golden_unigram.py classes
        tokenize/internal/graphemes/classes.txt: which code points the reference's grapheme clusters are made of, measured through
        its public functions.

Run it from anywhere with a Python that has `tokenizers` (VERSION below); the files it writes are committed.
"""

import argparse
import pathlib
import struct
import sys

import tokenizers
from tokenizers import normalizers

VERSION = "0.23.3"
HERE = pathlib.Path(__file__).resolve().parent.parent / "tokenize"
CODE_POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


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


def ranges(values):
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def main():
    if tokenizers.__version__ != VERSION:
        sys.exit(f"tokenizers {tokenizers.__version__} is installed, the committed files come from {VERSION}: pip install tokenizers=={VERSION}")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    commands.add_parser("classes")
    args = p.parse_args()
    if args.command == "classes":
        classes()


if __name__ == "__main__":
    main()
