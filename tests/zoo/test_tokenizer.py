"""Tokens and chat renderings are those of transformers."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.tokenizer_files import load_tokenizer, tokenizer_of

from .snapshots import CHECKPOINTS, copy

FOLDER = CHECKPOINTS / "qwen2-tiny-tied"
GOLDEN = json.loads((FOLDER / "tokenizer_golden.json").read_text())


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(FOLDER)


def test_special_tokens(tokenizer):
    assert (tokenizer.eos_id, tokenizer.pad_id, tokenizer.bos_id) == tuple(
        GOLDEN["special"][name] for name in ("eos", "pad", "bos")
    )
    assert len(tokenizer) == GOLDEN["len_tokenizer"]


@pytest.mark.parametrize("case", GOLDEN["strings"], ids=lambda case: repr(case["text"][:16]))
def test_strings(tokenizer, case):
    assert tokenizer.encode(case["text"]) == case["ids"]
    assert tokenizer.decode(case["ids"]) == case["decoded"]
    assert tokenizer.decode(np.asarray(case["ids"]), skip_special_tokens=True) == case["decoded_skip_special"]


@pytest.mark.parametrize("case", GOLDEN["chats"], ids=range(len(GOLDEN["chats"])))
def test_chats(tokenizer, case):
    text = tokenizer.chat(case["messages"], tools=case["tools"], add_generation_prompt=case["add_generation_prompt"])
    assert text == case["rendered"]
    assert tokenizer.encode(text, add_special_tokens=False) == case["ids"]


def test_batches_are_padded_on_the_left(tokenizer):
    texts = ["Hello, world!", "", "I'm"]
    ids, mask = tokenizer.encode_batch(texts)
    assert ids.dtype == mask.dtype == np.int32
    assert ids.shape == mask.shape == (3, 10)
    for text, row, real in zip(texts, ids, mask, strict=True):
        expected = tokenizer.encode(text)
        assert row[len(row) - len(expected) :].tolist() == expected
        assert (row[: len(row) - len(expected)] == tokenizer.pad_id).all()
        assert real.tolist() == [0] * (len(row) - len(expected)) + [1] * len(expected)


def test_a_batch_may_be_an_array(tokenizer):
    texts = ["Hello, world!", "I'm"]
    for expected, found in zip(tokenizer.encode_batch(texts), tokenizer.encode_batch(np.array(texts)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("texts", ["one", [], np.array([]), np.array([1, 2]), [("a", "b")], [b"a"]], ids=repr)
def test_a_batch_is_a_list(tokenizer, texts):
    with pytest.raises(ValueError, match="must be a list of at least one string"):
        tokenizer.encode_batch(texts)


def test_half_of_a_surrogate_pair_is_no_text(tokenizer):
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch(["whole", text])):
        with pytest.raises(ValueError, match="holds half of a surrogate pair"):
            encode(b"caf\xe9".decode(errors="surrogateescape"))
    assert tokenizer.decode(tokenizer.encode("\U0001f600")) == "\U0001f600"


def changed(tmp_path: Path, **fields) -> Path:
    folder = copy(FOLDER, tmp_path / "snapshot")
    config = json.loads((folder / "tokenizer_config.json").read_text()) | fields
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_file_beside_holds_the_template(tmp_path):
    folder = changed(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    assert load_tokenizer(folder).chat([{"role": "user", "content": "x"}]) == "x<|im_end|>"


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        # What is seen is what apply_chat_template of transformers 5.24.0 gave for these.
        ({"content": None, "tool_calls": [1], "name": "f"}, {"tool_calls": [1], "name": "f"}),
        (
            {"content": "a", "reasoning": "r"},
            {"thinking": "r", "content": "a", "reasoning": "r", "reasoning_content": "r"},
        ),
        ({"content": "a", "thinking": "t"}, {"thinking": "t", "content": "a", "reasoning_content": "t"}),
        (
            {"content": "a", "reasoning_content": "c", "thinking": None},
            {"thinking": "c", "content": "a", "reasoning_content": "c"},
        ),
        (
            {"thinking": "t", "reasoning_content": "c", "reasoning": ""},
            {"thinking": "t", "reasoning_content": "c", "reasoning": ""},
        ),
    ],
)
def test_messages_as_templates_see_them(message, seen, tokenizer):
    tokenizer = dataclasses.replace(tokenizer, chat_templates={"default": "{{ messages | tojson }}"})
    assert tokenizer.chat([message]) == json.dumps([seen])


def test_templates_by_name(tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    tokenizer = load_tokenizer(changed(tmp_path, chat_template=named))
    assert tokenizer.chat([]) == "plain"
    assert tokenizer.chat([], tools=[{}]) == "tools"
    assert tokenizer.chat([], template="tool_use") == "tools"
    with pytest.raises(CheckpointError, match=r"no chat template rag\. Choose another: default, tool_use\."):
        tokenizer.chat([], template="rag")


def test_no_template(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no chat template\. Encode a text of your own"):
        load_tokenizer(changed(tmp_path, chat_template=None)).chat([])


def test_no_tokenizer(tmp_path):
    folder = changed(tmp_path)
    (folder / "tokenizer.json").unlink()
    assert load_tokenizer(folder) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"eos_token": "<nowhere>"}, "eos_token is <nowhere>, which tokenizer.json does not have"),
        ({"eos_token": 3}, "eos_token is 3, and must be a string"),
        ({"chat_template": 3}, "chat_template is 3, and must be a string, or a list"),
        ({"chat_template": [{"name": "x"}]}, "must be a string, or a list of objects"),
    ],
)
def test_a_config_that_is_not_sound(fields, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(changed(tmp_path, **fields))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"model": 3}'])
def test_a_file_that_is_no_tokenizer(content, tmp_path):
    folder = changed(tmp_path)
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_tokenizer(folder)


def of_model(model, **parts):
    content = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
               "decoder": None, "truncation": None, "padding": None, "model": model} | parts  # fmt: skip
    return tokenizer_of({"tokenizer.json": json.dumps(content)}, Fields({}, "tokenizer_config.json"))


def test_what_breaks_the_library_when_it_is_used_is_an_error_of_the_zoo():
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "missing"}
    with pytest.raises(CheckpointError, match=r"tokenizer.json is no tokenizer that can encode"):
        of_model(words).encode("b")
    with pytest.raises(CheckpointError, match=r"tokenizer.json is no tokenizer that can encode"):
        of_model(words).encode_batch(["b"])
    large = of_model({"type": "WordLevel", "vocab": {"a": 2**32 - 1}, "unk_token": "a"})
    with pytest.raises(CheckpointError, match=r"has ids of 2\*\*31 or more"):
        large.encode_batch(["a"])


@pytest.mark.parametrize("token", [-1, 2**31, 2**40])
def test_ids_that_are_none_are_not_decoded(tokenizer, token):
    with pytest.raises(ValueError, match=r"and must be from 0 to 2\*\*31 - 1"):
        tokenizer.decode([5, token])


@pytest.mark.parametrize("ids", [[1.7], "12", ["1"], np.array([1.0])])
def test_what_is_no_integer_is_not_decoded(tokenizer, ids):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        tokenizer.decode(ids)
