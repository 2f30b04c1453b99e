"""The page of a diagnosis: its numbers are those of the generation, and every trouble has its advice."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardes
from shardes import IIDGaussian, LowRank, Mirrored, SeedRegenerated
from shardes.diagnosis.program import computes_in, cost

from .support import (
    IDS,
    assert_identical,
    lenient,
    make_es,
    make_params,
    materialize,
    mesh_of,
    seen_params,
    slow,
    update,
)
from .support import loss as model_loss

QUADRATIC = {"w": jnp.linspace(-1.0, 1.0, 24).reshape(4, 6), "b": jnp.linspace(0.5, 1.5, 8)}
TARGET = jnp.full((8,), 0.25)


def quadratic(params, target):
    w, b = params["w"].astype(jnp.float32), params["b"].astype(jnp.float32)
    return jnp.mean(w**2) + jnp.mean((b - target) ** 2)


def small_es(**options):
    options = {"strategy": Mirrored(SeedRegenerated()), "n": 64, "sigma": 0.05, "lr": 0.02, **options}
    return shardes.ShardedES(mesh=mesh_of(1), **options)


ES = small_es()


def diagnosed(loss=quadratic, *batch, es=ES, params=QUADRATIC, **state):
    given = es.init(jax.random.key(0), params)._replace(**{name: jnp.int32(x) for name, x in state.items()})
    return shardes.diagnose(es, given, loss, *(batch or (TARGET,)))


def advice(diagnosis, name):
    """The advice of a line of the page, on one line; what is marked is what is an alarm."""
    text = str(diagnosis)
    (mark, found) = re.search(rf"^([! ]) {name} (.*?)(?=^[! ] \S|\Z)", text, re.MULTILINE | re.DOTALL).groups()
    assert (mark == "!") == (name in diagnosis.alarms)
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) <= 50
    return " ".join(found.split())


def episodes(params, ids):
    return model_loss(params, ids) * jnp.array([1.0, 2.0, 4.0])


LAYOUTS = {
    "low_rank_1": {"devices": 8},
    "low_rank_4": {"n": 30, "optimizer": lenient(optax.adam(0.01)), "deterministic": True},
    "iid": {"mirrored": False, "n": 13, "devices": 2, "how": "A", "sigma": optax.exponential_decay(0.1, 10, 0.5)},
    "seed": {"compute_dtype": jnp.bfloat16, "lr": lambda generation: 0.1, "freeze": lambda path: "embed" in path},
    "user_dense": {"sigma": jax.tree.map(lambda x: 0.05 * (1 + x.ndim), make_params()), "member_chunk": 4},
    "user_structured": {"shaping": shardes.shaping.group_relative, "lr": 0.02},
}

PATHS = ("blocks/layers/b", "blocks/layers/w", "embed", "gain", "target")


@pytest.mark.parametrize("name", [x if x == "low_rank_1" else pytest.param(x, marks=slow) for x in LAYOUTS])
def test_numbers_are_those_of_the_generation(name):
    es = make_es(name, **{"n": 64, **LAYOUTS[name]})
    state = es.init(jax.random.key(0), make_params())
    before = jax.device_get(state)
    loss = episodes if name == "user_structured" else model_loss
    diagnosis = shardes.diagnose(es, state, loss, IDS)
    assert_identical(jax.device_get(state), before)
    assert diagnosis.alarms == (), diagnosis

    pert, asked = es.ask(state)
    fitness = np.asarray(es.apply(loss, asked, pert)(IDS), np.float64)
    scores = fitness.reshape(es.n, -1).mean(axis=1)
    told = es.tell(asked, pert, fitness.astype(np.float32))
    assert diagnosis.distinct == np.unique(scores.astype(np.float32)).size
    assert diagnosis.non_finite == 0
    assert diagnosis.spread == pytest.approx(scores.std(), rel=1e-3)
    if es.compute_dtype is None:
        assert diagnosis.step == np.spacing(np.float32(np.abs(scores).mean()))

    leaves = dict(zip(PATHS, jax.tree.leaves(state.params), strict=True))
    trained = {path: np.asarray(x, np.float64) for path, x in leaves.items() if path not in diagnosis.held}
    assert diagnosis.trained == sum(x.size for x in trained.values())
    assert diagnosis.params == sum(x.size for x in leaves.values())
    change, norm = (
        np.sqrt(sum((x**2).sum() for x in xs)) for xs in (update(state.params, told.params), trained.values())
    )
    assert diagnosis.update_ratio == pytest.approx(change / norm, rel=1e-3)

    # The direction measured is the first, that of member 0.
    members = jax.tree.leaves(es.apply(seen_params, asked, pert)())
    seen = {path: x for path, x in zip(PATHS, members, strict=True) if path in diagnosis.rounded_away_by_leaf}
    same = {path: np.asarray(x[0] == leaves[path].astype(x.dtype)).mean() for path, x in seen.items()}
    assert diagnosis.rounded_away_by_leaf == pytest.approx(same)
    assert set(same) == set(trained) - ({"blocks/layers/w", "embed"} if name.startswith("low_rank") else set())


def test_a_healthy_generation_gives_no_alarm():
    diagnosis = diagnosed()
    assert diagnosis.alarms == ()
    assert (diagnosis.distinct, diagnosis.directions, diagnosis.trained, diagnosis.drawn) == (64, 32, 32, 32)
    assert "nothing is wrong" in str(diagnosis)
    for name in ("distinct fitness", "fitness spread", "perturbation lost", "cosine to gradient", "update to weights"):
        assert "Fine" in advice(diagnosis, name)


def test_a_constant_loss():
    diagnosis = diagnosed(lambda params, target: jnp.sum(target))
    assert (diagnosis.distinct, diagnosis.spread, diagnosis.update_ratio) == (1, 0, 0)
    assert diagnosis.alarms == ("distinct fitness", "update to weights")
    assert "does not read its params" in advice(diagnosis, "distinct fitness")
    assert "see distinct fitness" in advice(diagnosis, "update to weights")


def test_a_score_of_zero_or_one():
    diagnosis = diagnosed(lambda params, target: jnp.where(params["w"].mean() > 0, 1.0, 0.0))
    assert diagnosis.distinct == 2
    assert diagnosis.alarms == ("distinct fitness",)
    assert "2 of 64" in advice(diagnosis, "distinct fitness")
    assert "graded loss" in advice(diagnosis, "distinct fitness")


def test_fitness_that_is_not_finite():
    diagnosis = diagnosed(lambda params, target: jnp.log(params["w"].mean()))
    assert diagnosis.non_finite + diagnosis.distinct == 64
    assert 16 < diagnosis.non_finite < 48
    assert diagnosis.alarms == ("non-finite fitness",)
    assert "overflow" in advice(diagnosis, "non-finite fitness")
    lost = diagnosed(lambda params, target: jnp.nan * params["w"].mean())
    assert (lost.distinct, lost.non_finite, lost.update_skipped) == (0, 64, True)
    assert "Skipped" in advice(lost, "update to weights")


def test_fitness_that_is_mostly_rounding():
    diagnosis = diagnosed(lambda params, target: 2.0**17 + quadratic(params, target))
    assert (diagnosis.step, diagnosis.step_dtype) == (2.0**-6, "float32")
    assert "fitness spread" in diagnosis.alarms
    assert "steps of float32" in advice(diagnosis, "fitness spread")


def test_a_loss_that_is_reduced_in_bfloat16():
    def narrow(params, target):
        return (1 + quadratic(params, target)).astype(jnp.bfloat16).astype(jnp.float32)

    diagnosis = diagnosed(narrow)
    assert (diagnosis.step, diagnosis.step_dtype) == (2.0**-6, "bfloat16")
    assert "reduce the loss in float32" in advice(diagnosis, "fitness spread")
    # It computes in bfloat16 as well, and what it returns is float32 all the same.
    wide = diagnosed(lambda params, target: narrow(params, target) * 1e-4 + quadratic(params, target))
    assert wide.step_dtype == "float32"


def test_a_perturbation_that_bfloat16_rounds_away():
    diagnosis = diagnosed(es=small_es(sigma=1e-5, compute_dtype=jnp.bfloat16))
    assert diagnosis.rounded_away > 0.9
    assert diagnosis.rounded_away_by_leaf["b"] == 1
    assert "perturbation lost" in diagnosis.alarms
    assert "Raise sigma" in advice(diagnosis, "perturbation lost")


@pytest.mark.parametrize(("sigma", "drowned"), [(0.1, False), (1e-6, True)])
def test_a_perturbation_of_activations_that_bfloat16_rounds_away(sigma, drowned):
    narrow, wide = (make_es("low_rank_1", 64, devices=1, sigma=sigma, compute_dtype=x) for x in (jnp.bfloat16, None))
    diagnosis = diagnosed(model_loss, IDS, es=narrow, params=make_params())
    assert ("fitness spread" in diagnosis.alarms) == drowned
    fitness = []
    for es in (narrow, wide):
        pert, state = es.ask(es.init(jax.random.key(0), make_params()))
        fitness.append(np.asarray(es.apply(model_loss, state, pert)(IDS)))
    assert (np.corrcoef(*fitness)[0, 1] < 0.5) == drowned
    assert ("steps of bfloat16, in which the model computes" in advice(diagnosis, "fitness spread")) == drowned


def test_a_leaf_whose_perturbation_is_rounded_away():
    params = {**QUADRATIC, "b": QUADRATIC["b"] + 1000}
    diagnosis = diagnosed(params=params, es=small_es(compute_dtype=jnp.bfloat16))
    assert diagnosis.rounded_away_by_leaf == pytest.approx({"w": 0, "b": 1}, abs=0.05)
    assert diagnosis.rounded_away == pytest.approx(0.25, abs=0.05)
    assert "'b' loses 100%" in advice(diagnosis, "perturbation lost") or "most in 'b'" in str(diagnosis)


@pytest.mark.parametrize(
    ("lr", "words", "alarm"), [(1e-9, "Too small", True), (2e-6, "Small", False), (10.0, "Large", True)]
)
def test_an_update_of_the_wrong_size(lr, words, alarm):
    diagnosis = diagnosed(es=small_es(lr=lr))
    assert diagnosis.alarms == ("update to weights",) * alarm
    assert words in advice(diagnosis, "update to weights")
    assert (f"(now {lr:.2g})" in advice(diagnosis, "update to weights")) == alarm
    assert (diagnosis.update_vanished > 0.9) == (words == "Too small")
    assert (diagnosis.update_ratio > 0.1) == (words == "Large")


def test_params_that_are_zero_have_no_ratio():
    diagnosis = diagnosed(params=jax.tree.map(jnp.zeros_like, QUADRATIC))
    assert diagnosis.update_ratio is None
    assert diagnosis.alarms == ()
    assert "No ratio" in advice(diagnosis, "update to weights")


CAPTURED = np.ones((8, 2**16), np.float32)


def test_data_that_the_loss_captured():
    held = jnp.ones((2**18,))

    def capturing(params, target):
        inner = jax.jit(lambda: jnp.mean(CAPTURED * target[:, None]))
        return quadratic(params, target) + inner() + jnp.mean(held)

    diagnosis = diagnosed(capturing)
    found = [(constant.name, constant.shape, constant.dtype, constant.nbytes) for constant in diagnosis.constants]
    assert found == [("CAPTURED", (8, 2**16), "float32", 2**21), ("held", (2**18,), "float32", 2**20)]
    assert diagnosis.alarms == ("captured constants",)
    assert "closes over CAPTURED float32[8, 65536] and 1 more" in advice(diagnosis, "captured constants")
    assert "as an argument" in advice(diagnosis, "captured constants")
    passed = diagnosed(lambda params, target, data: quadratic(params, target) + 0 * jnp.mean(data), TARGET, CAPTURED)
    assert passed.constants == ()


def test_frozen_and_integer_leaves_are_named():
    params = {**QUADRATIC, "ids": jnp.arange(8)}
    diagnosis = diagnosed(params=params, es=small_es(freeze=lambda path: path == "w"))
    assert (diagnosis.trained, diagnosis.params, diagnosis.held) == (8, 40, ("ids", "w"))
    assert diagnosis.alarms == ()
    assert advice(diagnosis, "params perturbed").startswith("20.00% 8 of 40. Frozen or not float: ids, w.")


def test_too_few_members():
    diagnosis = diagnosed(
        lambda params, target: jnp.mean(params["w"] ** 2), params={"w": jnp.ones(2**15)}, es=small_es(n=4, lr=1e-4)
    )
    assert diagnosis.cosine == pytest.approx(np.sqrt(2 / (2**15 + 3)))
    assert diagnosis.alarms == ("cosine to gradient",)
    assert "2 directions in 32,768 dimensions" in advice(diagnosis, "cosine to gradient")
    # 0.1^2 = m / (m + d + 1).
    assert diagnosis.n_for_alignment == pytest.approx(2 * (2**15 + 1) / 99, abs=2)
    assert f"raise n ({diagnosis.n_for_alignment:,} gives 0.1)" in advice(diagnosis, "cosine to gradient")


def test_one_member_says_nothing_of_the_gradient():
    diagnosis = diagnosed(es=small_es(strategy=IIDGaussian(), n=1))
    assert diagnosis.cosine == 0
    assert "No two members to compare" in advice(diagnosis, "distinct fitness")


def test_generations_that_were_lost():
    diagnosis = diagnosed(generation=7, skipped=2, non_finite=130)
    assert (diagnosis.generation, diagnosis.past_skipped, diagnosis.past_non_finite) == (7, 2, 130)
    assert diagnosis.alarms == ("earlier generations",)
    assert "Of 7 generations 2 changed no params, and 130 members" in advice(diagnosis, "earlier generations")


def test_flops_of_loops():
    def layers(params, x):
        def layer(x, _):
            return jax.lax.fori_loop(0, 3, lambda _, x: x @ params["w"], x), None

        return jnp.mean(jax.lax.scan(layer, x, None, length=5)[0])

    def until(params, x):
        return jnp.mean(jax.lax.while_loop(lambda x: jnp.mean(x) > 1e6, lambda x: x @ params["w"], x))

    params, x = {"w": jnp.eye(64) / 2}, jnp.ones((16, 64))
    product = 2 * 16 * 64 * 64
    diagnosis = diagnosed(layers, x, params=params)
    assert diagnosis.flops == pytest.approx(15 * product, rel=0.05)
    assert not diagnosis.flops_at_least
    diagnosis = diagnosed(until, x, params=params)
    assert diagnosis.flops == pytest.approx(product, rel=0.05)
    assert "At least" in advice(diagnosis, "compute a member")


def test_flops_without_loops_are_counted_once():
    traced = jax.make_jaxpr(jax.jit(lambda x, w: jax.jit(jnp.matmul)(x, w)))(jnp.ones((3, 5)), jnp.ones((5, 7)))
    assert cost(traced) == (2 * 3 * 5 * 7, False)


def test_inner_programs_are_read_as_well():
    def halved(x):
        return jax.lax.while_loop(lambda x: jnp.mean(x) > 1, lambda x: x / 2, x.astype(jnp.bfloat16)).astype(x.dtype)

    traced = jax.make_jaxpr(jax.jit(jax.jit(halved)))(jnp.ones(3))
    assert cost(traced)[1]
    assert jnp.dtype(jnp.bfloat16) in computes_in(traced)


@pytest.mark.parametrize(("options", "at_once"), [({"member_chunk": 8}, 8), ({"member_chunk": 1}, 1), ({}, None)])
def test_memory_is_shared_by_the_members_that_are_held_at_once(options, at_once):
    def wide(params, target):
        return quadratic(params, target) + jnp.mean(jnp.sort(jnp.tanh(jnp.outer(params["b"], jnp.arange(4096.0)))) ** 2)

    diagnosis = diagnosed(wide, es=small_es(strategy=Mirrored(IIDGaussian()), **options))
    assert (diagnosis.members_a_device, diagnosis.members_at_once) == (64, at_once)
    if at_once:
        assert diagnosis.temporary_bytes / at_once >= 4 * 8 * 4096
        assert f"{at_once} at once: " in advice(diagnosis, "temporary memory")


def outer(key):
    left, right = jax.random.split(key)
    return jnp.outer(jax.random.normal(left, (16,)), jax.random.normal(right, (24,)))


GRADIENTS = {"spread out": lambda key: jax.random.normal(key, (16, 24)), "of rank one": outer}


@pytest.mark.parametrize("gradient", [pytest.param("spread out", marks=slow), "of rank one"])
@pytest.mark.parametrize("mirrored", [True, pytest.param(False, marks=slow)], ids=["mirrored", "one sign"])
@pytest.mark.parametrize(
    "strategy", [SeedRegenerated(chunk=64), LowRank(1), pytest.param(LowRank(4), marks=slow)], ids=repr
)
def test_the_expected_cosine_is_the_one_of_a_linear_loss(strategy, mirrored, gradient):
    gradient = {"w": GRADIENTS[gradient](jax.random.key(1)), "b": jax.random.normal(jax.random.key(2), (20,))}

    def linear(params, gradient):
        return sum(jnp.sum(materialize(params[name]) * gradient[name]) for name in gradient)

    es = shardes.ShardedES(
        Mirrored(strategy) if mirrored else strategy, 128, sigma=1.0, lr=1.0, mesh=mesh_of(1),
        shaping=shardes.shaping.centered,
    )  # fmt: skip
    state, step = es.init(jax.random.key(3), jax.tree.map(jnp.zeros_like, gradient)), es.step(linear)
    expected = shardes.diagnose(es, state, linear, gradient)
    g, cosines = np.concatenate([x.ravel() for x in jax.tree.leaves(gradient)]), []
    for _ in range(200):
        before = jax.device_get(state.params)
        state, _ = step(state, gradient)
        moved = -np.concatenate([x.ravel() for x in update(before, jax.device_get(state.params))])
        cosines.append(moved @ g / np.linalg.norm(moved) / np.linalg.norm(g))
    measured, error = np.mean(cosines), np.std(cosines) / np.sqrt(200)
    assert expected.cosine == pytest.approx(measured, abs=4 * error, rel=0.02)
    assert expected.drawn == (404 if isinstance(strategy, SeedRegenerated) else 20 + 40 * strategy.r)
    if strategy == LowRank(1):
        # Neither full rank's cosine nor that of as many dimensions as there are numbers drawn.
        directions = 64 if mirrored else 127
        for dimension in (expected.trained, expected.drawn):
            assert measured != pytest.approx(np.sqrt(directions / (directions + dimension + 1)), rel=0.05)


def test_the_readme_prints_a_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "packages/shardes-core/README.md").read_text()
    exec("".join(re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)), {})
    assert capsys.readouterr().out.startswith("Generation 200 of Mirrored(inner=SeedRegenerated(chunk=1)), n=64: ")


# A process of two, with a device each: the fields of the diagnosis, as a program would read them.
PROCESS = """
import sys, jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import jax.numpy as jnp, shardes

def loss(params, target):
    return jnp.mean((params["w"] - target) ** 2)

es = shardes.ShardedES(shardes.Mirrored(shardes.IIDGaussian()), n=14, sigma=0.1, lr=0.1)
print(vars(shardes.diagnose(es, es.init(jax.random.key(0), {"w": jnp.ones((4, 6))}), loss, 0.25)))
"""


@slow
def test_every_process_of_several_has_the_same_page():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, address, str(i)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for i in range(2)
    ]
    try:
        pages = [process.communicate(timeout=120)[0].splitlines()[-1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    assert pages[0] == pages[1]
    assert "'distinct': 14, 'non_finite': 0" in pages[0]
    assert "'members_a_device': 8" in pages[0]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (lambda es, state: (state, es, quadratic, TARGET), TypeError, "needs a shardes.ShardedES first, got ESState"),
        (
            lambda es, state: (es, state, 1.0, TARGET),
            TypeError,
            "loss must be a function .* got float",
        ),
        (lambda es, state: (es, state, quadratic), TypeError, "missing 1 required positional argument: 'target'"),
        (lambda es, state: (es, None, quadratic, TARGET), TypeError, "state must be an ESState"),
        (lambda es, state: (es, state, lambda p, t: (p["b"].mean(), 0), TARGET), TypeError, "one array.* got tuple"),
        (lambda es, state: (es, state, lambda p, t: p["w"], TARGET), ValueError, r"fitness must have shape \(n,\)"),
        (
            lambda es, state: (es, state, lambda p, t: jnp.bfloat16(0), TARGET),
            TypeError,
            "float32 or wider",
        ),
    ],
)
def test_errors(arguments, error, match):
    with pytest.raises(error, match=match):
        shardes.diagnose(*arguments(ES, ES.init(jax.random.key(0), QUADRATIC)))
