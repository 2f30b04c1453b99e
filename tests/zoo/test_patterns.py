"""The patterns of known tokenizers are taken, and those that backtrack without end are not."""

import pytest

from shardes.zoo.errors import CheckpointError
from shardes.zoo.snapshot.patterns import _Reader, check_pattern

WORDS = r"[^\r\n\p{L}\p{N}]?"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        # GPT-2, Llama 3, the same with possessive repeats, o200k, BLOOM, DeepSeek, and digits in groups of three.
        (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", 1011),
        (rf"{SHORT}|{WORDS}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}", 2015),
        (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|\s++$|\s*[\r\n]|\s+(?!\S)|\s", 2009),
        (rf"{WORDS}{UPPER}*{LOWER}+{SHORT}?|{WORDS}{UPPER}+{LOWER}*{SHORT}?|{SPACES}", 4021),
        (r" ?[^(\s|[.,!?…。，、।۔،])]+", 2),  # noqa: RUF001
        (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[一-龥぀-ゟ゠-ヿ]+", 2),  # noqa: RUF001
        (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", 3003),
        (r" {2,}", 1),
        (rf"{WORDS}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|{SPACES}", 2010),
        (r"(\[[^\]]+]|Br?|N|\%[0-9]{2})", 1004),
    ],
)
def test_what_known_tokenizers_have(pattern, steps):
    check_pattern(pattern, "tokenizer.json")
    assert _Reader(pattern).whole().steps == steps


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("abc", 1),
        ("a*", 1),
        ("a*b", 1001),
        ("a?b", 2),
        ("a+b", 1000),
        ("a{3}b", 1),
        ("a{2,5}b", 4),
        ("a{5,2}b", 4),
        ("a{,5}b", 6),
        ("a{,}b", 1),
        ("a*+b", 1),
        ("a*?b", 1002),
        ("(?>a*)b", 1),
        ("(?=a*b)", 1001),
        ("(?<!a|b)", 2),
        ("a*b*", 2),
        ("(?:a|b)c", 2),
        ("(?:a|b){3}c", 8),
        ("(?:a|b){3}", 8),
        ("(?:abc)*d", 1001),
        ("(?<name>a?)b", 2),
        ("(?i)a?b|c?d", 4),
        ("a(?i)b?|c?d", 4),
        ("(?i-m:a?)b", 2),
        ("", 1),
        ("|", 2),
        (r"[[:alpha:]&&[^\]\b]]?\x{4e00}", 2),
    ],
)
def test_steps(pattern, steps):
    assert _Reader(pattern).whole().steps == steps


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a|aa)+$",
        "(?:.|.){20}(?<=b)",
        ".*.*(?<=b)",
        "(?:.*.*(?<=b))*",
        "(?:(?:a?){50}){50}b",
        "(?=.*.*(?<=b))",
        "(?>.*.*(?<=b))x",
        "a?" * 40 + "a" * 40,
        ".*?.*?$",
        "a**b",
        "a{1,9}+b",
        "(?i).*|.*.*$",
    ],
)
def test_what_backtracks_too_much(pattern):
    with pytest.raises(CheckpointError, match=r"x: the pattern .* may try \S+ ways at one place .* at most 8192"):
        check_pattern(pattern, "x")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(a)\1", r"has '\\\\1', which is not known here"),
        (r"(?<x>a)\k<x>", "not known here"),
        (r"(?<x>a\g<x>?)", "not known here"),
        ("(?~a)", "not known here"),
        ("(?(1)a|b)", "not known here"),
        ("(?x)a # b", "not known here"),
        ("(?#a)", "not known here"),
        ("(*FAIL)", "not known here"),
        (r"\Qa*\E", "not known here"),
        ("a)", r"has '\)'"),
        ("*a", r"has '\*a'"),
        ("(a", "ends too early"),
        ("[a", "ends too early"),
        ("\\", "has "),
        ("[]a]", "a class that begins with ]"),
        ("a" * 9000, "has 9000 characters, and must have at most 8192"),
        ("(?:" * 2000 + ")" * 2000, "nested too deeply"),
        ("[" * 8000, "nested too deeply"),
    ],
)
def test_what_is_not_known(pattern, message):
    with pytest.raises(CheckpointError, match=message):
        check_pattern(pattern, "x")
