"""A tokenizer.json that would have the library abort, hang or fill the memory is refused, and what is real is not."""

import copy
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot import tokenizer_growth
from shardes.zoo.snapshot.tokenizer_limits import check_tokenizer

from . import tokenizer_mutations
from .tokenizer_mutations import (
    BPE,
    LEVEL,
    METASPACE,
    SEEDS,
    TEMPLATE,
    UNIGRAM,
    WORDPIECE,
    charsmap,
    replace,
    sequence,
    used,
    whole,
)


@pytest.mark.parametrize("name", SEEDS)
def test_what_the_library_writes_is_used(name):
    assert used(SEEDS[name])


def special(count, ids):
    pieces = [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * count
    token = {"id": "<s>", "ids": [0] * ids, "tokens": ["<s>"] * ids}
    return TEMPLATE | {"single": [*pieces, *TEMPLATE["single"]], "special_tokens": {"<s>": token}}


def nested(name, step, depth):
    return sequence(name, *[nested(name, step, depth - 1)] * 2) if depth else step


DOUBLE = replace("a", "aa")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"normalizer": sequence("normalizers", *[DOUBLE] * 24)}, r"make a text 1\.68e\+07 times as long to encode it"),
        ({"normalizer": nested("normalizers", DOUBLE, 4)}, r"6\.55e\+04 times as long"),
        ({"normalizer": sequence("normalizers", *[DOUBLE] * 1999)}, "inf times as long"),
        (
            {"pre_tokenizer": sequence("pretokenizers", *[{"type": "Whitespace"}] * 4096)},
            "has 4097 steps, and must",
        ),
        ({"normalizer": replace("a", "a" * 257)}, "257 times as long"),
        ({"normalizer": replace("", "a" * 128)}, "257 times as long"),
        ({"normalizer": replace("x*", "a" * 128, "Regex")}, "257 times as long"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 256}}, "257 times as long"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap("b", "a" * 257)}}, "257 times"),
        ({"normalizer": sequence("normalizers", *[{"type": "ByteLevel"}] * 24)}, "times as long"),
        ({"normalizer": sequence("normalizers", *[replace("a", "ﷺ"), {"type": "NFKC"}] * 24)}, "times as long"),
        ({"pre_tokenizer": sequence("pretokenizers", *[LEVEL] * 24)}, "times as long to encode it"),
        ({"pre_tokenizer": sequence("pretokenizers", *[METASPACE] * 24)}, "times as long"),
        ({"post_processor": TEMPLATE | {"single": TEMPLATE["single"] * 999}}, "999 times as long to encode it"),
        ({"post_processor": TEMPLATE | {"pair": TEMPLATE["pair"] * 999}}, r"2e\+03 times as long"),
        ({"post_processor": special(1025, 1)}, "single is .* a template with at most 1024 special tokens"),
        ({"post_processor": special(1, 1025)}, "at most 1024 special tokens"),
        (
            {"normalizer": replace("a", "aaaa"), "pre_tokenizer": sequence("pretokenizers", *[METASPACE] * 7)},
            "512 times as long",
        ),
        ({"decoder": sequence("decoders", *[DOUBLE] * 24)}, "times as long to decode it"),
        ({"decoder": replace("x*", "a" * 128, "Regex")}, "257 times as long to decode it"),
        ({"decoder": sequence("decoders", *[{"type": "BPEDecoder", "suffix": ""}] * 9)}, "to decode it"),
        ({"decoder": sequence("decoders", *[SEEDS["words"]["decoder"]] * 9)}, "to decode it"),
        ({"decoder": sequence("decoders", *[SEEDS["bert"]["decoder"]] * 9)}, "to decode it"),
        ({"normalizer": replace("(a+)+$", "", "Regex")}, "normalizer: pattern: the pattern .* ways at one place"),
        ({"decoder": replace("(a+)+$", "", "Regex")}, "decoder: pattern: the pattern .* ways at one place"),
        (
            {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}},
            "pre_tokenizer: pattern: the pattern .* ways at one place",
        ),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "//////8="}}, "must be a map of sentencepiece"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "must be a map of sentencepiece"),
        ({"normalizer": {"type": "Bomb"}}, "normalizer: type is 'Bomb', and must be one of BertNormalizer, "),
        ({"normalizer": {}}, "normalizer: type is missing"),
        ({"normalizer": sequence("normalizers", [])}, "normalizers is .*, and must be a list of objects"),
        ({"model": WORDPIECE | {"max_input_chars_per_word": 2**40}}, "and must be an integer from 0 to 1000"),
        ({"model": BPE | {"vocab": {"a" * 4097: 0}}}, "model has a token of 4097 characters, a{50}, and must"),
        ({"model": UNIGRAM | {"vocab": [["a" * 257, 0.0]]}}, "model has a token of 257 characters"),
        ({"model": BPE | {"end_of_word_suffix": "a" * 4097}}, "model has a token of 4097 characters"),
        ({"model": BPE | {"continuing_subword_prefix": "a" * 4097}}, "model has a token of 4097 characters"),
        # The library aborts where the prefix ends within a character.
        ({"model": BPE | {"continuing_subword_prefix": "#", "merges": [["a", "é"]]}}, "that begins with #"),
        ({"model": BPE | {"continuing_subword_prefix": "#", "merges": ["a é"]}}, "that begins with #"),
        ({"model": BPE | {"continuing_subword_prefix": "#", "merges": [["a"]]}}, "that begins with #"),
        ({"added_tokens": [{"id": 0, "content": "a" * 4097}]}, "added_tokens has a token of 4097 characters"),
        (
            {"normalizer": replace("a", "a" * 256), "added_tokens": [{"id": 0, "content": "a" * 4000}] * 9},
            r"added_tokens of up to 9\.22e\+06 characters, normalised, and must have at most 8388608",
        ),
    ],
)
def test_what_asks_for_too_much(parts, message):
    with pytest.raises(CheckpointError, match=message):
        check_tokenizer(json.dumps(whole(**parts)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[" * 99999, "is not JSON: maximum recursion depth"),
        ('{"normalizer": {"type": "Sequence", "normalizers": [' * 9999, "is not JSON"),
        ('{"normalizer": null, "normalizer": {"type": "Bomb"}}', "is not JSON: an object has a name twice"),
        ("[]", "holds a list, and must hold an object"),
        ('{"normalizer": []}', "normalizer is .*, and must be an object"),
    ],
    ids=range(6),
)
def test_what_is_no_object(content, message):
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json.* {message}"):
        check_tokenizer(content)


@pytest.mark.parametrize(("name", "steps"), [("normalizer", "normalizers"), ("decoder", "decoders")])
def test_steps_nested_too_deeply(name, steps):
    # JSON as deep as this is still parsed.
    content = f'{{"{name}": ' + f'{{"type": "Sequence", "{steps}": [' * 450 + "]}" * 450 + "}"
    with pytest.raises(CheckpointError, match=r"tokenizer\.json has steps within steps, nested too deeply"):
        check_tokenizer(content)


# Those that become more characters in some form, and some that do not.
CHARACTERS = [
    character
    for character in map(chr, [*range(0xD800), *range(0xE000, 0x30000)])
    if len(unicodedata.normalize("NFKD", character)) > 1 or len(character.lower()) > 1 or ord(character) % 500 == 0
]


@pytest.mark.parametrize("kind", [kind for kind, rule in tokenizer_growth.NORMALIZERS.items() if not callable(rule)])
def test_the_growth_of_a_normalizer_is_no_less_than_the_real(kind):
    from tokenizers import normalizers

    normalizer = getattr(normalizers, kind)()
    assert max(len(normalizer.normalize_str(text)) for text in CHARACTERS) <= tokenizer_growth.NORMALIZERS[kind]


@pytest.mark.parametrize("pattern", ["a", "ab", "", "a|x*", "x*", "(?=a)"])
def test_the_growth_of_a_replacement_is_no_less_than_the_real(pattern):
    from tokenizers import Regex, decoders, normalizers

    text, content = "ab" * 5, "12345"
    kinds = ["Regex"] if set(pattern) & set("*?") else ["Regex", "String"]
    for kind in kinds:
        found = pattern if kind == "String" else Regex(pattern)
        growth = tokenizer_growth.growth(Fields(replace(pattern, content, kind), ""), tokenizer_growth.NORMALIZERS)
        assert len(normalizers.Replace(found, content).normalize_str(text)) <= growth * len(text)
        assert len(decoders.Replace(found, content).decode([text])) <= growth * len(text)


@pytest.mark.parametrize("name", ["decoder", "pre_tokenizer"])
def test_the_growth_of_other_steps_is_no_less_than_the_real(name):
    from tokenizers import Tokenizer

    rules = {"decoder": tokenizer_growth.DECODERS, "pre_tokenizer": tokenizer_growth.PRE_TOKENIZERS}[name]
    for seed in SEEDS.values():
        if seed[name] is None:
            continue
        content = copy.deepcopy(seed) | {"normalizer": None, "added_tokens": []}
        backend = Tokenizer.from_str(json.dumps(content))
        growth = tokenizer_growth.growth(Fields(seed[name], ""), rules)
        for text in ("abé", "a b c", "𐀀", "12"):
            if name == "decoder":
                found = backend.decoder.decode(list(text))
            else:
                found = "".join(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
            assert len(found) <= growth * len(text)


@pytest.mark.slow
def test_changed_tokenizers_are_used_or_refused():
    # An abort would end this process.
    done = subprocess.run(
        [sys.executable, str(Path(tokenizer_mutations.__file__)), "0", "600"],
        **{"capture_output": True, "text": True, "timeout": 300},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100
