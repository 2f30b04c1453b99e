"""The update does not depend on how many devices share the population, nor on which key implementation seeds it."""

import jax
import numpy as np
import pytest

from .support import KEYS, STRATEGIES, assert_identical, assert_same_run, every_placement, every_strategy, make_es
from .support import make_params, mesh_of, run, slow

SIZES = {"n=64": (64, True), "n=30": (30, True), "n=7 unmirrored": (7, False)}
FAST = {(8, "B", "n=30"), (2, "B", "n=7 unmirrored"), (8, "A", "n=30")}
CASES = [
    pytest.param(name, devices, how, *SIZES[size], id=f"{name}-{devices} devices-{how}-{size}",
                 marks=() if (devices, how, size) in FAST else slow)
    for name in STRATEGIES
    for size in SIZES
    for devices in (1, 2, 4, 8)
    for how in ("A", "B")
    if (devices, how) != (1, "B")
]  # fmt: skip


@pytest.mark.parametrize(("name", "devices", "how", "n", "mirrored"), CASES)
def test_runs_agree_with_one_device(name, devices, how, n, mirrored):
    assert_same_run(run(name, how, devices, n, mirrored), run(name, "B", 1, n, mirrored))


@pytest.mark.parametrize("key", KEYS)
@every_strategy
def test_runs_agree_for_every_key_implementation(name, key):
    assert_same_run(run(name, devices=8, key=key), run(name, devices=1, key=key))
