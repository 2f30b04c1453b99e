"""What is saved is what was loaded, bit for bit, and there is never half of it."""

import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

from shardes import zoo
from shardes.zoo import saving
from shardes.zoo.model import make_model

from .snapshots import CHECKPOINTS, copy

ALL = sorted(path.name for path in CHECKPOINTS.iterdir() if path.is_dir())
FOLDER = CHECKPOINTS / "qwen2-tiny-tied"


def same(one: object, other: object) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def held(folder: Path) -> dict[str, tuple[str, bytes]]:
    tensors = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "flax") as opened:
            for name in opened.keys():  # noqa: SIM118
                values = opened.get_tensor(name)
                tensors[name] = (values.dtype.name, np.asarray(values).tobytes())
    return tensors


@pytest.fixture(scope="module")
def model() -> zoo.Model:
    return zoo.load(FOLDER)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("max_shard_size", [5 * 10**9, 50_000])
def test_load_save_load(name: str, max_shard_size: int, tmp_path: Path) -> None:
    model = zoo.load(CHECKPOINTS / name)
    folder = zoo.save(model, model.params, tmp_path / "saved", max_shard_size=max_shard_size)
    assert held(folder) == held(CHECKPOINTS / name)
    again = zoo.load(folder)
    same(again.params, model.params)
    assert again.config == model.config
    assert again.defaults == model.defaults
    assert again.tokenizer.encode("Hello") == model.tokenizer.encode("Hello")
    assert dict(again.fields) == dict(model.fields) | {"torch_dtype": again.fields.get("torch_dtype")} or (
        "torch_dtype" not in model.fields
    )
    shards = sorted(folder.glob("*.safetensors"))
    assert (len(shards) > 1) == (folder / "model.safetensors.index.json").exists() == (max_shard_size == 50_000)
    for shard in shards:
        with safe_open(shard, "flax") as opened:
            assert opened.metadata()["format"] == "pt"
            assert len(opened.keys()) == 1 or shard.stat().st_size < max_shard_size + 10_000


@pytest.mark.parametrize("name", ["qwen2-tiny-tied", "qwen2-tiny-tied-v5config"])
def test_the_config_is_kept_but_for_the_dtype(name: str, tmp_path: Path) -> None:
    model = zoo.load(CHECKPOINTS / name, dtype="bfloat16")
    folder = zoo.save(model, model.params, tmp_path / "saved")
    before, after = (json.loads((place / "config.json").read_text()) for place in (CHECKPOINTS / name, folder))
    key = "dtype" if name.endswith("v5config") else "torch_dtype"
    assert after == before | {key: "bfloat16"}
    for file in ("generation_config.json", "tokenizer_config.json", "tokenizer.json"):
        assert json.loads((folder / file).read_text()) == json.loads((CHECKPOINTS / name / file).read_text())
    same(zoo.load(folder).params, model.params)


def test_the_master_of_a_strategy_can_be_saved(tmp_path: Path) -> None:
    model = zoo.load(CHECKPOINTS / "qwen2-tiny-untied-sharded")
    master = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) + 1e-6, model.params)
    again = zoo.load(zoo.save(model, master, tmp_path / "saved"))
    same(again.params, master)
    assert again.fields["torch_dtype"] == "float32"


def test_what_a_model_came_from_is_kept(model: zoo.Model, tmp_path: Path) -> None:
    import dataclasses

    source = dataclasses.replace(model.source, repo_id="org/name", commit="0" * 40, base=f"org/name@{'0' * 40}")
    first = zoo.load(zoo.save(dataclasses.replace(model, source=source), model.params, tmp_path / "first"))
    assert first.source.base == f"org/name@{'0' * 40}"
    again = zoo.load(zoo.save(first, first.params, tmp_path / "second", max_shard_size=50_000))
    assert again.source.base == first.source.base


def test_what_a_config_says_beside_is_kept(tmp_path: Path) -> None:
    source = copy(FOLDER, tmp_path / "source")
    config = json.loads((source / "config.json").read_text()) | {"mine": ["é", "\ud800", {"a": None}]}
    (source / "config.json").write_text(json.dumps(config))
    model = zoo.load(source)
    assert json.loads((zoo.save(model, model.params, tmp_path / "saved") / "config.json").read_text()) == config


def test_models_that_were_made_here(tmp_path: Path) -> None:
    config = zoo.byte_transformer.Config(d_model=16, n_heads=2, n_kv_heads=1, d_ff=24)
    params = zoo.byte_transformer.init(jax.random.key(0), config)
    made = zoo.byte_transformer.model(params, config)
    again = zoo.load(zoo.save(made, params, tmp_path / "bytes", max_shard_size=2_000))
    same(again.params, params)
    assert again.config == config
    assert (again.source.repo_id, again.source.base) == (None, None)
    text = "Café\n\x00😀"
    assert again.tokenizer.encode(text) == list(text.encode())
    ids = np.asarray(again.tokenizer.encode(text))[None]
    np.testing.assert_array_equal(again.nll(again.params, ids), zoo.byte_transformer.nll(params, ids, config))

    params = zoo.transformer_block.init(jax.random.key(0), 8)
    made = zoo.transformer_block.model(params, zoo.transformer_block.Config(8))
    again = zoo.load(zoo.save(made, params, tmp_path / "block"))
    same(again.params, params)
    with pytest.raises(
        zoo.ZooError, match=r"transformer_block is no model of tokens, .* shardes\.zoo\.transformer_block"
    ):
        again.nll(again.params, ids)
    with pytest.raises(zoo.ZooError, match="config of qwen2 cannot be written from here"):
        make_model(zoo.load(FOLDER).architecture, params, None)


def changed(params: dict, **leaves: object) -> dict:
    return {**params, **leaves}


def test_params_of_another_model_are_refused(model: zoo.Model, tmp_path: Path) -> None:
    params = model.params
    for other, message in (
        (changed(params, more=params["norm"]), "params have more, which this model has not"),
        ({key: value for key, value in params.items() if key != "norm"}, "params have no norm, which this model needs"),
        (changed(params, norm=params["norm"][:-1]), r"norm has shape \(63,\), and must have \(64,\)"),
        (changed(params, norm=params["norm"][None]), r"norm has shape \(1, 64\)"),
        (changed(params, norm=params["norm"].astype(jnp.int32)), "norm has dtype int32"),
        (changed(params, norm=params["norm"].at[0].set(jnp.nan)), "norm holds values that are not finite"),
    ):
        with pytest.raises(zoo.ZooError, match=message):
            zoo.save(model, other, tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_a_snapshot_is_replaced_and_nothing_else(model: zoo.Model, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    zoo.save(model, model.params, folder, max_shard_size=50_000)
    zoo.save(model, model.params, folder)
    assert not list(folder.glob("model-*"))
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(zoo.ZooError, match=r"holds notes\.txt, which is of no snapshot and would be lost"):
        zoo.save(model, model.params, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    with pytest.raises(zoo.ZooError, match="is not a folder"):
        zoo.save(model, model.params, folder / "notes.txt")
    with pytest.raises(zoo.ZooError, match="is not a folder, or lies in what is none"):
        zoo.save(model, model.params, folder / "notes.txt" / "below")


def test_what_comes_while_a_snapshot_is_written_is_not_lost(
    model: zoo.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = zoo.save(model, model.params, tmp_path / "saved")
    write = saving._write

    def write_while_notes_come(*arguments: Any) -> None:
        write(*arguments)
        (folder / "notes.txt").write_text("mine")

    monkeypatch.setattr(saving, "_write", write_while_notes_come)
    with pytest.raises(zoo.ZooError, match=r"holds notes\.txt, which is of no snapshot"):
        zoo.save(model, model.params, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_failure_leaves_what_was_there(model: zoo.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = zoo.save(model, model.params, tmp_path / "saved")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(zoo.ZooError, match="cannot be written: No space left on device"):
        zoo.save(model, jax.tree.map(jnp.zeros_like, model.params), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


SAVE_AND_SAVE = """
import sys
import jax
from shardes import zoo
model = zoo.load(sys.argv[1])
other = jax.tree.map(lambda leaf: 2 * leaf, model.params)
while True:
    zoo.save(model, other, sys.argv[2], max_shard_size=50_000)
    print("saved", flush=True)
    zoo.save(model, model.params, sys.argv[2])
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new_snapshot(model: zoo.Model, tmp_path: Path) -> None:
    """Ten times two savers to one folder, each killed at a random moment after its first save."""
    folder = tmp_path / "saved"
    rng = random.Random(0)
    states = {np.asarray(scale * model.params["embed"]).tobytes() for scale in (1, 2)}
    for _ in range(10):
        command = [sys.executable, "-c", SAVE_AND_SAVE, str(FOLDER), str(folder)]
        savers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        saved = [saver.stdout is not None and saver.stdout.readline() for saver in savers]
        for saver in savers:
            time.sleep(rng.uniform(0, 0.1))
            saver.kill()
            saver.communicate()
        assert saved == [b"saved\n"] * 2
        assert np.asarray(zoo.load(folder).params["embed"]).tobytes() in states
    zoo.save(model, model.params, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_savers_to_one_folder_do_not_disturb_each_other(model: zoo.Model, tmp_path: Path) -> None:
    def save_often(max_shard_size: int) -> None:
        for _ in range(5):
            zoo.save(model, model.params, tmp_path / "saved", max_shard_size=max_shard_size)

    with ThreadPoolExecutor() as pool:
        list(pool.map(save_often, [30_000, 50_000, 5 * 10**9]))
    same(zoo.load(tmp_path / "saved").params, model.params)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_folder_may_be_replaced_while_it_is_listed(
    model: zoo.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = zoo.save(model, model.params, tmp_path / "saved", max_shard_size=50_000)
    is_of_a_snapshot = saving._is_of_a_snapshot

    def replace(name: str) -> bool:
        monkeypatch.undo()
        zoo.save(model, model.params, folder)
        return is_of_a_snapshot(name)

    monkeypatch.setattr(saving, "_is_of_a_snapshot", replace)
    zoo.save(model, model.params, folder)
    same(zoo.load(folder).params, model.params)


@pytest.mark.parametrize("folder", [".", "", "..", "new/..", "../work/", "/"])
def test_the_working_directory_is_not_replaced(
    folder: str, model: zoo.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(zoo.ZooError, match=r"is or holds the working directory, .* Choose a folder in it"):
        zoo.save(model, model.params, folder)


@pytest.mark.parametrize("folder", ["saved/", "new/../saved", "../work/./saved", "link"])
def test_a_folder_by_another_name(
    folder: str, model: zoo.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to("saved")
    monkeypatch.chdir(work)
    for _ in range(2):
        assert zoo.save(model, model.params, folder) == work / "saved"
        same(zoo.load(work / "saved").params, model.params)
    assert sorted(path.name for path in work.iterdir()) == ["link", "saved"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a mount point")
def test_a_mount_point_is_not_replaced(model: zoo.Model) -> None:
    with pytest.raises(zoo.ZooError, match=r"/proc is where a file system is mounted, .* Choose a folder in it"):
        zoo.save(model, model.params, "/proc")


@pytest.mark.parametrize("size", [0, -1, "5GB", 5e9, None])
def test_a_shard_has_a_size(size: Any, model: zoo.Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"max_shard_size is {size!r}, and must be a positive integer, of bytes"):
        zoo.save(model, model.params, tmp_path / "saved", max_shard_size=size)


def test_modes_are_those_of_new_files(model: zoo.Model, tmp_path: Path) -> None:
    folder = zoo.save(model, model.params, tmp_path / "saved")
    (tmp_path / "plain").mkdir()
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode
    copy(folder, tmp_path / "copied")


def test_float64_of_numpy_is_refused_since_it_could_not_be_loaded(model: zoo.Model, tmp_path: Path) -> None:
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params)
    with pytest.raises(zoo.ZooError, match=r"has dtype float64, and must have one of float32, bfloat16, float16"):
        zoo.save(model, wide, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.slow
def test_a_full_disk_is_an_error_of_the_zoo(model: zoo.Model, tmp_path: Path) -> None:
    """As a limit on the size of files makes it, in a process of its own."""
    script = f"""
import resource, signal
from shardes import zoo
model = zoo.load({str(FOLDER)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    zoo.save(model, model.params, {str(tmp_path / "saved")!r})
except zoo.ZooError as error:
    print("refused:", error)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert found.stdout.startswith("refused: "), found.stderr
    assert "cannot be written" in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_files_can_be_read_by_whom_the_umask_lets(model: zoo.Model, tmp_path: Path) -> None:
    folder = zoo.save(model, model.params, tmp_path / "saved")
    (tmp_path / "plain").write_text("")
    assert {path.stat().st_mode for path in folder.iterdir()} == {(tmp_path / "plain").stat().st_mode}
