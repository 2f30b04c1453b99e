"""Contents of tokenizer.json as the library writes them, and changes of them; run as a script, uses changed ones."""

import base64
import copy
import json
import random
import struct
import sys
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.tokenizer_files import tokenizer_of

Content = dict[str, Any]


def replace(pattern: str, content: str, kind: str = "String") -> Content:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(name: str, *steps: Content) -> Content:
    return {"type": "Sequence", name: list(steps)}


def charsmap(*texts: str) -> str:
    """The map of sentencepiece that makes the first text of "a"."""
    units = [0] * 512
    units[0], units[ord("a") ^ 1], units[ord("a")] = 1 << 10, ord("a") | 1 << 8 | 1 << 10, 1 << 31
    blob = struct.pack("<513I", 2048, *units) + "".join(f"{text}\0" for text in texts).encode()
    return base64.b64encode(blob).decode()


VOCAB = {"<s>": 0, "</s>": 1, "[UNK]": 2, "<0x41>": 3} | {c: 4 + i for i, c in enumerate("abcdefgh▁ĠÃ©<>0x")}
VOCAB |= {token: 20 + i for i, token in enumerate(("ab", "abc", "▁a", "##a", "a##a", "aa"))}
BPE: Content = {
    "type": "BPE", "dropout": None, "unk_token": "<s>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
    "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": VOCAB,
    "merges": [["a", "b"], ["ab", "c"], ["▁", "a"]],
}  # fmt: skip
WORDPIECE: Content = {
    "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
    "vocab": VOCAB,
}  # fmt: skip
UNIGRAM: Content = {
    "type": "Unigram", "unk_id": 0, "byte_fallback": True,
    "vocab": [["<unk>", 0.0], ["a", -1.5], ["ab", -2.0], ["▁", -3.0], ["<0x41>", -9.0]],
}  # fmt: skip
WORDLEVEL: Content = {"type": "WordLevel", "vocab": VOCAB, "unk_token": "<s>"}
ADDED = [
    {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": True, "normalized": False,
     "special": True},
    {"id": 30, "content": "ab c", "single_word": True, "lstrip": True, "rstrip": False, "normalized": True,
     "special": False},
]  # fmt: skip
LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
TEMPLATE: Content = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
}


def whole(**parts: Any) -> Content:
    none = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"), None)
    return {"version": "1.0", "added_tokens": ADDED, **none, "model": BPE, **parts}


SEEDS: dict[str, Content] = {
    "llama 2": whole(
        normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
        post_processor=TEMPLATE,
        decoder=sequence(
            "decoders",
            replace("▁", " "),
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ),
    ),
    "gemma": whole(
        normalizer=replace(" ", "▁"),
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    ),
    "roberta": whole(
        normalizer={"type": "NFC"},
        pre_tokenizer=sequence(
            "pretokenizers",
            {"type": "Digits", "individual_digits": True},
            {"type": "Split", "pattern": {"Regex": r"\s+(?!\S)|\w+"}, "behavior": "Isolated", "invert": False},
            LEVEL,
            {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "FixedLength", "length": 3},
            {"type": "CharDelimiterSplit", "delimiter": "b"},
        ),
        post_processor={
            "type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": True,
            "add_prefix_space": True,
        },
        decoder=LEVEL,
    ),
    "t5": whole(
        model=UNIGRAM,
        normalizer=sequence(
            "normalizers",
            {"type": "Precompiled", "precompiled_charsmap": charsmap("ab", "ﷺ" * 18)},
            {"type": "Strip", "strip_left": False, "strip_right": True},
            replace(" {2,}", "▁", "Regex"),
        ),
        pre_tokenizer=METASPACE,
        post_processor=sequence("processors", TEMPLATE, LEVEL),
        decoder=METASPACE,
    ),
    "bert": whole(
        model=WORDPIECE,
        normalizer={
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor={"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    ),
    "words": whole(
        model=WORDLEVEL,
        normalizer=sequence(
            "normalizers", {"type": "NFKC"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Nmt"}
        ),
        pre_tokenizer=sequence(
            "pretokenizers", {"type": "Whitespace"}, {"type": "UnicodeScripts"}, {"type": "WhitespaceSplit"}
        ),
        decoder={"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "|", "cleanup": True},
    ),
    "prefixed": whole(
        model=BPE | {"continuing_subword_prefix": "##", "merges": [["a", "##a"]]},
        normalizer={"type": "ByteLevel"},
        decoder={"type": "BPEDecoder", "suffix": "</w>"},
        truncation={"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "a",
        },
    ),
}  # fmt: skip
EXTREMES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 255, 2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**30, 0.0, -0.5, 1e308, -1e308, "",
    "a", " ", "é", "ﷺ", "▁", "##", "a" * 300, "a" * 5000, "\0", "<0xZZ>", "<0x", "(a|b)*$", r"\s+", ".", "(?i)", "$0",
    [], {}, [[]], ["a", "b"], ["a"], ["", ""], {"String": ""}, {"Regex": ""}, {"Regex": "x*"}, {"Regex": "(?=a)"},
    {"Fixed": 2**40},
]  # fmt: skip
TEXTS = ["ab c abc  12é", "a" * 2000 + " b" * 500, "ﷺ é\u0301 İ中 \t\r\n<s>ab c</s>" * 20, "", "x.y,z!" * 100]


def places(value: Any) -> list[tuple[Any, Any]]:
    """The containers in a value with their keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def mutated(seed: int) -> Content:
    rng = random.Random(seed)
    content = copy.deepcopy(rng.choice(list(SEEDS.values())))
    pool = [container[key] for container, key in places(list(SEEDS.values()))]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        container, key = rng.choice(places(content))
        value, kind = container[key], rng.randrange(10)
        if kind < 5:
            container[key] = rng.choice([other for other in EXTREMES if type(other) is type(value)] or EXTREMES)
        elif kind < 7:
            container[key] = copy.deepcopy(rng.choice([other for other in pool if type(other) is type(value)]))
        elif kind == 7:
            container[key] = copy.deepcopy(rng.choice(EXTREMES + pool))
        elif isinstance(value, list):
            container[key] = value * rng.choice((2, 3, 24))
        elif isinstance(value, dict) and "type" in value:
            name = rng.choice(("normalizers", "pretokenizers", "decoders", "processors"))
            container[key] = sequence(name, *[value] * rng.choice((1, 2, 10, 24)))
        else:
            del container[key]
    return content


def used(content: Content) -> bool:
    """Whether a tokenizer can be made, and used or not."""
    try:
        tokenizer = tokenizer_of({"tokenizer.json": json.dumps(content)}, Fields({}, "tokenizer_config.json"))
        for text in TEXTS:
            tokenizer.encode(text)
            tokenizer.encode_batch([text, "a"])
        for ids in ([0, 1, 2, 24, 25, 28], [*range(60)] * 50, []):
            tokenizer.decode(ids)
    except CheckpointError as raised:
        error = str(raised)
    else:
        error = ""
    assert len(error) < 2000
    return not error


if __name__ == "__main__":
    print(sum(used(mutated(seed)) for seed in range(int(sys.argv[1]), int(sys.argv[2]))))
