"""What `zoo.load` takes for a name, how it reads, and what it gives."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from shardes import zoo
from shardes.zoo import loading
from shardes.zoo.architectures import architecture_of
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot import tensors
from shardes.zoo.snapshot.tensors import leaf_of

from .snapshots import CHECKPOINTS, GOOD, copy, join, needs_peak, split

ALL = sorted(path.name for path in CHECKPOINTS.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_every_tensor_is_where_it_belongs(name: str, dtype: str | None) -> None:
    model = zoo.load(CHECKPOINTS / name, dtype=dtype)
    stored = {}
    for file in (CHECKPOINTS / name).glob("*.safetensors"):
        with safe_open(file, "flax") as opened:
            stored |= {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
    for tensor in model.architecture.tensors(model.config):
        leaf = leaf_of(model.params, tensor.leaf)
        for i, tensor_name in enumerate(tensor.names):
            found, expected = leaf if tensor.layers is None else leaf[i], stored.pop(tensor_name)
            assert found.dtype == (expected.dtype if dtype is None else jnp.dtype(dtype))
            np.testing.assert_array_equal(found, expected.astype(found.dtype))
    assert not stored


def test_what_is_read_is_what_jax_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    empty = tensors._empty

    def remember(*arguments: object) -> np.ndarray:
        made.append(empty(*arguments))
        return made[-1]

    monkeypatch.setattr(tensors, "_empty", remember)
    model = zoo.load(CHECKPOINTS / "llama-tiny")
    held = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(model.params)}
    assert held == {array.ctypes.data for array in made}
    assert not any(leaf.committed for leaf in jax.tree.leaves(model.params))


def test_a_model_says_what_it_is() -> None:
    folder = CHECKPOINTS / "qwen2-tiny-tied"
    model = zoo.load(str(folder))
    assert model.source.folder == folder
    assert (model.source.repo_id, model.source.commit) == (None, None)
    assert model.architecture.model_type == "qwen2"
    assert model.fields == json.loads((folder / "config.json").read_text())
    assert model.defaults.eos_token_id == (479, 477)
    assert model.defaults.pad_token_id == 477
    assert "qwen2, " in repr(model)
    assert hash(model) == hash(model)


def test_ends_come_from_the_config_where_generation_says_nothing(tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "snapshot")
    (folder / "generation_config.json").unlink()
    assert zoo.load(folder).defaults.eos_token_id == (479,)
    assert zoo.load(folder).defaults.pad_token_id is None


def test_ends_outside_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "snapshot")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [477, 10**6], "pad_token_id": 10**6}))
    model = zoo.load(folder)
    assert (model.defaults.eos_token_id, model.defaults.pad_token_id) == ((477,), None)
    assert model.generate(model.params, np.arange(4)[None], max_new_tokens=1).shape == (1, 5)
    assert model.generation_fields["pad_token_id"] == 10**6


@pytest.mark.parametrize("value", ["2", -2, [1, None], 1.5, True])
def test_ends_that_are_no_ids_are_refused(value: object, tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "snapshot")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(zoo.CheckpointError, match=r"generation_config\.json: eos_token_id is .* must be a token id"):
        zoo.load(folder)


def test_generation_ends_and_pads_as_the_checkpoint_says() -> None:
    folder = CHECKPOINTS / "qwen2-tiny-tied"
    model = zoo.load(folder)
    golden = np.load(folder / "golden.npz")
    prompt = golden["input_ids"]
    plain = model.generate(model.params, prompt, max_new_tokens=32, eos_token_id=None)
    np.testing.assert_array_equal(plain, golden["gen_ids"])
    ended = np.asarray(model.generate(model.params, prompt, max_new_tokens=32))
    for row, whole in zip(ended, np.asarray(plain), strict=True):
        new = whole[prompt.shape[1] :]
        ends = np.flatnonzero(np.isin(new, model.defaults.eos_token_id))
        stop = prompt.shape[1] + (ends[0] + 1 if ends.size else len(new))
        np.testing.assert_array_equal(row[:stop], whole[:stop])
        assert (row[stop:] == 477).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen2.5-0.5b-instrct", r"is no model of the zoo.*Near it: qwen2\.5-0\.5b-instruct"),
        ("nothing/like/this", "no folder, and no id of a repository, which is owner/name"),
        ("./nothing", "no folder"),
        ("", "no folder"),
        (Path("nothing/here"), "no folder"),
    ],
)
def test_a_name_that_stands_for_nothing(name: str, message: str) -> None:
    with pytest.raises(zoo.ZooError, match=message):
        zoo.load(name)


def test_a_folder_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy(GOOD, tmp_path / "Qwen" / "Qwen2.5-0.5B")
    monkeypatch.chdir(tmp_path)
    assert zoo.load("Qwen/Qwen2.5-0.5B").source.repo_id is None


def test_a_bundled_model_may_be_missing() -> None:
    with pytest.raises(zoo.ZooError, match="comes with the package, and is not in this installation"):
        loading._bundled("nothing")


def test_a_folder_has_no_revision() -> None:
    with pytest.raises(zoo.ZooError, match=r"revision is 'main', and .* is no repository"):
        zoo.load(GOOD, revision="main")


@pytest.mark.parametrize("dtype", ["float64", "int32", jnp.float8_e4m3fn, "half of it", 3])
def test_a_dtype_that_params_cannot_have(dtype: object) -> None:
    with pytest.raises(ValueError, match="must be one of float32, bfloat16, float16"):
        zoo.load(GOOD, dtype=dtype)


def test_leftovers_are_passed_over(tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / "llama-tiny", tmp_path / "snapshot")
    file = folder / "model.safetensors"
    header, data = split(file.read_bytes())
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
        **{"dtype": "F32", "shape": [8]},
        "data_offsets": [len(data), len(data) + 32],
    }
    file.write_bytes(join(header, data + b"\xff" * 32))
    zoo.load(folder)


IMPORT = """
import sys, shardes.zoo
print([name for name in ("huggingface_hub", "tokenizers", "jinja2", "safetensors", "typer") if name in sys.modules])
"""


def test_the_import_is_light() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"


PEAK = """
import sys
from pathlib import Path
import jax
from shardes import zoo
from tests.zoo.snapshots import peak
folder = Path(sys.argv[1])
zoo.load(sys.argv[2])
before = peak()
model = zoo.load(folder)
jax.block_until_ready(model.params)
print((peak() - before) / (folder / "model.safetensors").stat().st_size)
"""


@pytest.mark.slow
@needs_peak
def test_loading_takes_little_more_memory_than_the_file_has(tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "large")
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 4, "vocab_size": 400_000}
    config |= {"intermediate_size": 200_000}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {}
    model = zoo.load(GOOD)
    fields = Fields(config, "config.json")
    for tensor in model.architecture.tensors(architecture_of(fields).config(fields)):
        shapes |= dict.fromkeys(tensor.names, tensor.shape)
    header, start = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, start + size]}
        start += size
    (folder / "model.safetensors").write_bytes(join(header, b""))
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(len(join(header, b"")) + start)
    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder), str(GOOD)],
        **{"cwd": Path(__file__).parents[2], "capture_output": True, "text": True, "timeout": 120},
    )
    assert result.returncode == 0, result.stderr
    assert 0.9 < float(result.stdout) < 1.3


def with_a_head(folder: Path, head: np.ndarray) -> Path:
    """The tied checkpoint with a head beside its embedding."""
    copy(CHECKPOINTS / "qwen2-tiny-tied", folder)
    held = load_file(folder / "model.safetensors")
    save_file(held | {"lm_head.weight": head}, folder / "model.safetensors")
    return folder


def test_a_head_beside_a_tied_embedding_must_be_its_copy(tmp_path: Path) -> None:
    embedding = load_file(CHECKPOINTS / "qwen2-tiny-tied" / "model.safetensors")["model.embed_tokens.weight"]
    plain = zoo.load(CHECKPOINTS / "qwen2-tiny-tied").params
    given = zoo.load(with_a_head(tmp_path / "same", embedding)).params
    assert jax.tree.structure(given) == jax.tree.structure(plain)
    other = embedding.copy()
    other[-1, -1] += 1
    with pytest.raises(zoo.CheckpointError, match=r"lm_head.weight differs from model.embed_tokens.weight, and must"):
        zoo.load(with_a_head(tmp_path / "other", other))
    for name, odd in (("short", embedding[:-1]), ("integers", embedding.astype(np.int32))):
        with pytest.raises(zoo.CheckpointError, match=r"lm_head.weight has dtype .*, and must be a copy of model"):
            zoo.load(with_a_head(tmp_path / name, np.ascontiguousarray(odd)))


def test_sizes_beyond_any_file_are_refused_in_few_words(tmp_path: Path) -> None:
    copy(GOOD, tmp_path / "model")
    entry = f'{{"x": {{"dtype": "F32", "shape": [{"1" + "0" * 4000}], "data_offsets": [0, 4]}}}}'.encode()
    (tmp_path / "model" / "model.safetensors").write_bytes(len(entry).to_bytes(8, "little") + entry + b"1234")
    with pytest.raises(zoo.CheckpointError, match=r"and must have at most .* sizes, none negative") as caught:
        zoo.load(tmp_path / "model")
    assert len(str(caught.value)) < 1000


def test_half_of_a_surrogate_pair_is_no_token(tmp_path: Path) -> None:
    copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"eos_token": "\\ud800"}')
    with pytest.raises(zoo.CheckpointError, match=r"eos_token is .*, and must be a string"):
        zoo.load(tmp_path / "model")


JSON = {
    "twice": ('{"a": 1, "model_type": "qwen2", "a": 2}', "names a twice, and must name everything once"),
    "twice below": ('{"model_type": "llama", "rope_scaling": {"b": 1, "b": 1}}', "names b twice"),
    "utf-16": ("{}".encode("utf-16"), "is not UTF-8"),
    "utf-32": ("{}".encode("utf-32"), "is not UTF-8"),
    "utf-16 without a mark": ("{}".encode("utf-16-le"), "is not JSON"),
    "a byte order mark": ("{}".encode("utf-8-sig"), "begins with a byte order mark, and must be UTF-8 without one"),
    "a list": ("[]", "holds a list, and must hold an object"),
    "nothing": ("", "is not JSON"),
    "deep": ("[" * 10**6, "is not JSON"),
}


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "an index"])
@pytest.mark.parametrize("fault", JSON)
def test_json_that_has_more_than_one_meaning_or_none_is_refused(name: str, fault: str, tmp_path: Path) -> None:
    index = name == "an index"
    folder = copy(CHECKPOINTS / ("qwen2-tiny-untied-sharded" if index else "qwen2-tiny-tied"), tmp_path / "snapshot")
    file = folder / ("model.safetensors.index.json" if index else name)
    content, message = JSON[fault]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(zoo.CheckpointError, match=f"{file.name} {message}"):
        zoo.load(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "snapshot")
    opened = os.open

    def refuse(path: Path, *arguments: int) -> int:
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(zoo.CheckpointError, match=f"{name} in .* cannot be read: Permission denied. See to its perm"):
        zoo.load(folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_searched(tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "snapshot")
    folder.chmod(0o600)
    try:
        with pytest.raises(zoo.CheckpointError, match=r"config\.json in .* cannot be read: Permission denied"):
            zoo.load(folder)
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("traced", [False, True], ids=["called", "traced"])
@pytest.mark.parametrize("name", ["logits", "nll", "generate"])
def test_functions_refuse_params_of_another_model(name: str, traced: bool) -> None:
    model = zoo.load(CHECKPOINTS / "qwen2-tiny-tied")
    params = model.params
    options = {"max_new_tokens": 1} if name == "generate" else {}

    def function(params: object) -> object:
        return getattr(model, name)(params, np.arange(4)[None], **options)

    run = jax.jit(function) if traced else function
    run(params)
    for other, message in (
        ({}, r"params have no embed, blocks/layers/attention/norm, .* and \d+ more, which this model needs"),
        ({key: value for key, value in params.items() if key != "norm"}, "params have no norm, which this model needs"),
        (params | {"blocks": params["blocks"].layers}, "params have no blocks/layers/attention/norm"),
        (params | {"head": params["embed"]}, "params have head, which this model has not"),
        (zoo.load(CHECKPOINTS / "llama-tiny").params, "params have no blocks/layers/attention/q_bias"),
        (jax.tree.map(lambda leaf: leaf[None], params), r"embed has shape \(1, .*\), and must have \("),
    ):
        with pytest.raises(zoo.ZooError, match=message):
            run(other)
