"""Every fault of a checkpoint is refused, in words that name the file, what is in it and what must be."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shardes import zoo
from shardes.zoo.errors import CheckpointError

from .snapshots import BAD, CHECKPOINTS, GOOD, Q_PROJ, copy, join, needs_peak, split

INDEX = "model.safetensors.index.json"
O_PROJ = "model.layers.0.self_attn.o_proj.weight"

# What every error must say, piece by piece: where, what was found, what is required.
REFUSALS = {
    "config-heads-not-divisible": ("config.json", "3", "4"),
    "config-missing": ("config.json is not in", "required"),
    "config-missing-key": ("config.json", "hidden_size is missing", "required"),
    "config-negative-size": ("config.json", "hidden_size is -32", "from 1 to"),
    "config-not-json": ("config.json is not JSON",),
    "config-unsupported-activation": ("config.json", "hidden_act is 'relu6ish'", "must be"),
    "config-unsupported-rope": ("config.json", "quantum", "must be"),
    "empty-file": ("model.safetensors has 0 bytes", "8 bytes"),
    "extra-layer": ("model.safetensors", "model.layers.1.", "unexpected"),
    "extra-tensor": ("model.safetensors", "model.layers.0.self_attn.mystery.weight is unexpected"),
    "header-length-beyond-file": ("model.safetensors", "header's length is", "bytes after it"),
    "header-length-huge": ("model.safetensors", f"header's length is {2**62}", "40944 bytes after it"),
    "header-not-json": ("model.safetensors", "header is not JSON"),
    "header-offsets-beyond-file": (f"model.safetensors: {Q_PROJ} has data_offsets", "must lie in the 39552 bytes"),
    "header-offsets-negative": (f"model.safetensors: {Q_PROJ} has data_offsets [-4096, ", "must lie in"),
    "header-offsets-overlap": ("model.safetensors: ", "must begin at"),
    "header-size-mismatch": (f"model.safetensors: {Q_PROJ} has", "bytes by its data_offsets, and must have"),
    "header-unknown-dtype": (f"model.safetensors: {Q_PROJ} has dtype F13", "F32, F16 or BF16"),
    "index-absolute-path": (f"{INDEX}: {O_PROJ} is in /etc/hostname", "file of the folder"),
    "index-missing-shard": ("model-00002-of-00002.safetensors is not in", "required"),
    "index-no-weight-map": (f"{INDEX}: weight_map is missing", "required"),
    "index-path-traversal": (f"{INDEX}: {O_PROJ} is in ../evil.safetensors", "file of the folder"),
    "index-tensor-not-listed": (f"{INDEX}: model.norm.weight is in no file", "model-00002-of-00002.safetensors"),
    "index-wrong-shard": (f"{INDEX}: {O_PROJ} is in model-00001", "lies in model-00002"),
    "int-weights": (f"model.safetensors: {Q_PROJ} has dtype I32", "F32, F16 or BF16"),
    "missing-bias": ("model.safetensors: model.layers.0.self_attn.k_proj.bias is missing", "shape [16]"),
    "missing-tensor": (f"model.safetensors: {Q_PROJ} is missing", "shape [32, 32]"),
    "nan-weights": ("model.safetensors: model.layers.0.self_attn.", "not finite", "must hold finite numbers"),
    "no-weights": ("has no weights", "model.safetensors or model.safetensors.index.json is required"),
    "pickle-only": ("pytorch_model.bin, which is never opened", "model.safetensors or"),
    "trailing-data": ("model.safetensors has 41016 bytes, and must have 40952", "64 after the last tensor"),
    "transposed-mlp": ("model.safetensors: model.layers.0.mlp.down_proj.weight has shape [48, 32]", "[32, 48]"),
    "truncated": ("model.safetensors: ", "data_offsets", "Get the file again"),
    "truncated-in-header": ("model.safetensors", "header's length is", "92 bytes after it"),
    "unknown-model-type": ("config.json: model_type is ", "must be one of"),
    "unsupported-architecture": ("config.json: model_type is 'bert'", "must be one of"),
    "wrong-shape": (f"model.safetensors: {Q_PROJ} has shape [32, 16]", "must have [32, 32]"),
}


def test_every_fault_is_listed() -> None:
    assert set(REFUSALS) == {path.name for path in BAD.iterdir() if path.is_dir()} - {"good-base"}


def test_the_sound_one_loads() -> None:
    model = zoo.load(GOOD)
    assert bool(jnp.isfinite(model.logits(model.params, np.arange(8)[None])).all())


@pytest.mark.parametrize("fault", REFUSALS)
def test_refused(fault: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        zoo.load(BAD / fault)
    assert [part for part in REFUSALS[fault] if part not in str(caught.value)] == [], str(caught.value)


def test_no_file_outside_the_folder_and_no_pickle_is_opened() -> None:
    # Hooks for audits cannot be removed: a process of their own.
    code = f"""
import os, sys
from pathlib import Path
from shardes import zoo
try:
    zoo.load({str(GOOD)!r})
except Exception:
    raise
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
for fault in sorted(os.listdir({str(BAD)!r})):
    if fault.startswith(("index", "pickle", "unknown")):
        del opened[:]
        try:
            zoo.load(Path({str(BAD)!r}) / fault)
        except zoo.CheckpointError:
            folder = os.path.join({str(BAD)!r}, fault)
            outside = [p for p in opened if not p.startswith(folder + os.sep) and not p.isdigit()]
            assert not outside, (fault, outside)
            assert not [p for p in opened if p.endswith((".bin", ".py"))], (fault, opened)
        else:
            raise SystemExit(fault + " was loaded")
print("checked")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout == "checked\n", result.stderr


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    outside = (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(outside)
    with pytest.raises(CheckpointError, match=r"model\.safetensors in .* is a link to .*elsewhere.* must lie in"):
        zoo.load(folder)


def test_links_of_the_cache_are_followed_and_others_are_not(tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    folder = copy(GOOD, repo / "snapshots" / "1234")
    (repo / "blobs").mkdir()
    blob = (folder / "model.safetensors").rename(repo / "blobs" / "1234")
    (folder / "model.safetensors").symlink_to("../../blobs/1234")
    zoo.load(folder)
    blob.rename(repo / "1234")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("../../1234")
    with pytest.raises(CheckpointError, match="must lie in the folder"):
        zoo.load(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_what_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(CheckpointError, match=f"{name} in .* is not a regular file"):
        zoo.load(folder)


def change_header(folder: Path, change) -> Path:  # type: ignore[no-untyped-def]
    file = folder / "model.safetensors"
    header, data = split(file.read_bytes())
    file.write_bytes(join(change(header) or header, data))
    return folder


def test_a_gap_is_refused(tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    change_header(folder, lambda header: header.pop(Q_PROJ) and None)
    with pytest.raises(CheckpointError, match="leaves a gap before it"):
        zoo.load(folder)


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")

    def twice(header: dict) -> bytes:
        return (
            json.dumps(header)[:-1].encode() + b', "model.norm.weight": ' + json.dumps(header[Q_PROJ]).encode() + b"}"
        )

    change_header(folder, twice)
    with pytest.raises(CheckpointError, match=r"names model\.norm\.weight twice"):
        zoo.load(folder)


@pytest.mark.parametrize("shape", [[1] * 16 + [32, 32], [-32, -32], [32.0, 32], 1024, "32", [True, 1024]])
def test_a_shape_is_a_few_sizes(shape: object, tmp_path: Path) -> None:
    folder = change_header(copy(GOOD, tmp_path / "snapshot"), lambda header: header[Q_PROJ].update(shape=shape))
    with pytest.raises(CheckpointError, match=r"q_proj\.weight has shape .* must have at most 16 sizes, none negative"):
        zoo.load(folder)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("place", [0, -1])
def test_no_value_that_is_not_finite_is_missed(value: float, dtype: object, place: int, tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: np.asarray(tensor).astype(dtype) for name, tensor in tensors.items()}
    tensors[Q_PROJ].reshape(-1)[1] = np.finfo(np.float16).max
    save_file(tensors, folder / "model.safetensors")
    zoo.load(folder)
    tensors[Q_PROJ].reshape(-1)[place] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"{re.escape(Q_PROJ)} holds {value} \(1 of 1024 values"):
        zoo.load(folder)


def test_a_folder_without_weights_that_cannot_be_listed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(zoo.CheckpointError, match=r"no-weights has no weights: model\.safetensors or .* is required"):
        zoo.load(BAD / "no-weights")


def test_an_index_names_no_tensor_that_is_not_there(tmp_path: Path) -> None:
    folder = copy(BAD / "index-wrong-shard", tmp_path / "snapshot")
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] |= {O_PROJ: "model-00002-of-00002.safetensors", "more": "model-00001-of-00002.safetensors"}
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"more is in model-00001-of-00002\.safetensors by weight_map, and"):
        zoo.load(folder)
    del index["weight_map"]["more"]
    (folder / INDEX).write_text(json.dumps(index))
    zoo.load(folder)


def test_metadata_must_be_strings(tmp_path: Path) -> None:
    folder = change_header(copy(GOOD, tmp_path / "snapshot"), lambda header: header.update(__metadata__={"a": 1}))
    with pytest.raises(CheckpointError, match=r"__metadata__ is .* must be an object of strings"):
        zoo.load(folder)


def test_layers_stored_in_two_dtypes_need_a_choice(tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "snapshot")
    name = "model.layers.1.self_attn.q_proj.weight"
    file = folder / "model.safetensors"
    header, data = split(file.read_bytes())
    parts, start = {}, 0
    for key, entry in sorted(
        ((k, e) for k, e in header.items() if k != "__metadata__"), key=lambda pair: pair[1]["data_offsets"]
    ):
        content = data[slice(*entry["data_offsets"])]
        if key == name:
            content = np.frombuffer(content, np.float32).astype(np.float16).tobytes()
            entry["dtype"] = "F16"
        entry["data_offsets"] = [start, start + len(content)]
        parts[key], start = content, start + len(content)
    file.write_bytes(join(header, b"".join(parts.values())))
    with pytest.raises(CheckpointError, match=rf"{re.escape(name)} has dtype F16, and .*\.0\..* has F32.*dtype="):
        zoo.load(folder)
    assert zoo.load(folder, dtype="float32").params["blocks"].layers


def test_values_too_large_for_the_dtype_asked_for_are_refused(tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    file = folder / "model.safetensors"
    header, data = split(file.read_bytes())
    data = bytearray(data)
    start = header[Q_PROJ]["data_offsets"][0]
    data[start : start + 4] = np.float32(1e6).tobytes()
    file.write_bytes(join(header, bytes(data)))
    with pytest.raises(CheckpointError, match=rf"{re.escape(Q_PROJ)} holds values too large for float16"):
        zoo.load(folder, dtype="float16")
    zoo.load(folder, dtype="bfloat16")


LYING = """
import sys
from shardes import zoo
from tests.zoo.snapshots import GOOD, peak
zoo.load(GOOD)
before = peak()
for folder in sys.argv[1:]:
    try:
        zoo.load(folder)
    except zoo.CheckpointError:
        pass
    else:
        raise SystemExit(folder + " was loaded")
print(peak() - before)
"""


@needs_peak
def test_what_lies_about_sizes_allocates_nothing(tmp_path: Path) -> None:
    folders = []

    def made(name: str) -> Path:
        folders.append(copy(GOOD, tmp_path / name))
        return folders[-1]

    huge = 2**31 - 1
    for name in ("num_hidden_layers", "vocab_size", "hidden_size", "intermediate_size"):
        folder = made(name)
        config = json.loads((folder / "config.json").read_text()) | {name: huge}
        (folder / "config.json").write_text(json.dumps(config))
    change_header(made("shape"), lambda header: header[Q_PROJ].update(shape=[huge, huge]))
    change_header(made("rank"), lambda header: header[Q_PROJ].update(shape=[huge] * 10**5))
    change_header(made("zeros"), lambda header: header[Q_PROJ].update(shape=[0, 2**62], data_offsets=[0, 0]))
    change_header(made("offsets"), lambda header: header[Q_PROJ].update(data_offsets=[0, 2**62]))
    change_header(made("nested"), lambda header: b"[" * 10**6)
    file = made("sparse") / "model.safetensors"
    with open(file, "wb") as opened:
        opened.write((2**34).to_bytes(8, "little"))
        opened.truncate(2**35)
    folders += [BAD / "header-length-huge", BAD / "header-length-beyond-file"]
    result = subprocess.run(
        [sys.executable, "-c", LYING, *map(str, folders)],
        **{"cwd": Path(__file__).parents[2], "capture_output": True, "text": True, "timeout": 120},
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 30_000_000
