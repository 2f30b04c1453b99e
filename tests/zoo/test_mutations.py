"""Changed bytes make a clean error or a sound model, and nothing else."""

import json
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from shardes import zoo

from .snapshots import CHECKPOINTS, GOOD, copy

pytestmark = pytest.mark.filterwarnings("error")


def attempt(folder: Path) -> bool:
    """Whether the folder loads; what it gives is finite."""
    try:
        model = zoo.load(folder)
    except zoo.ZooError as raised:
        error = str(raised)
    else:
        error = ""
    if error:
        assert len(error) < 2000
        return False
    assert all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in jax.tree.leaves(model.params))
    return True


def mutate(content: bytes, rng: random.Random, within: int) -> bytes:
    """Some bytes below `within` changed, removed, doubled, or the file cut off."""
    mutated = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(min(within, len(mutated)) or 1)
        kind = rng.randrange(8)
        if not mutated:
            break
        if kind < 3:
            mutated[at] = rng.randrange(256)
        elif kind == 3:
            mutated[at] ^= 1 << rng.randrange(8)
        elif kind == 4:
            mutated[at] = ord(rng.choice('0123456789[]{}",:-.eE'))
        elif kind == 5:
            del mutated[at : at + rng.randrange(1, 9)]
        elif kind == 6:
            mutated[at:at] = mutated[at : at + rng.randrange(1, 9)]
        else:
            mutated = mutated[: at + 1]
    return bytes(mutated)


@pytest.mark.parametrize("seed", range(4))
def test_bytes_of_weights(seed: int, tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    file = folder / "model.safetensors"
    content = file.read_bytes()
    rng = random.Random(seed)
    loaded = 0
    for i in range(500):
        # Most of it is data, which may be anything finite: the header is what can lie.
        file.write_bytes(mutate(content, rng, 8 if i % 10 == 0 else 1500 if i % 3 else len(content)))
        loaded += attempt(folder)
    assert 0 < loaded < 500


@pytest.mark.parametrize("seed", range(2))
def test_bytes_of_a_config(seed: int, tmp_path: Path) -> None:
    folder = copy(GOOD, tmp_path / "snapshot")
    file = folder / "config.json"
    content = file.read_bytes()
    rng = random.Random(seed)
    loaded = 0
    for _ in range(500):
        file.write_bytes(mutate(content, rng, len(content)))
        loaded += attempt(folder)
    assert 0 < loaded < 500


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31 - 1, 2**31, 2**63, 10**400, -0.0, 0.5, 1e-300, 1e300),
    *(float("nan"), float("inf"), "", "silu", "1", "\ud800", [], [1], [None], {}, {"rope_type": "yarn"}),
    *({"type": "linear", "factor": 0}, {"rope_theta": "x"}, ["full_attention"], ["sliding_attention"]),
)


@pytest.mark.parametrize("checkpoint", ["qwen2-tiny-odd-yarn", "qwen2-tiny-tied-v5config", "llama-tiny-rope-llama3"])
def test_values_of_a_config(checkpoint: str, tmp_path: Path) -> None:
    folder = copy(CHECKPOINTS / checkpoint, tmp_path / "snapshot")
    config = json.loads((folder / "config.json").read_text())
    rng = random.Random(0)
    loaded = 0
    for _ in range(200):
        changed = json.loads(json.dumps(config))
        for _ in range(rng.choice((1, 1, 2))):
            place = rng.choice([changed, *(value for value in changed.values() if isinstance(value, dict))])
            place[rng.choice([*place, "head_dim", "attention_bias", "layer_types", "rope_scaling"])] = rng.choice(
                VALUES
            )
        (folder / "config.json").write_text(json.dumps(changed))
        loaded += attempt(folder)
    assert 0 < loaded < 200


@pytest.mark.parametrize(
    "name", ["model.safetensors.index.json", "tokenizer_config.json", "tokenizer.json", "generation_config.json"]
)
def test_bytes_of_other_files(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = copy(CHECKPOINTS / "qwen2-tiny-untied-sharded", tmp_path / "snapshot")
    file = folder / name
    content = file.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        file.write_bytes(mutate(content, rng, len(content)))
        attempt(folder)
