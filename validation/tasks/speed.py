"""Environment steps a second of whole generations, beside bare loops and a peer, a generation of each side in turn."""

import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import shardes
from shardes.tasks import suites
from validation.tasks.by_hand import Evolution
from validation.workers import ROOT, Worker, environment

WHAT = (
    "environment steps a second, as the median of generations of either side in turn, and our share of theirs. "
    "gymnasium: CartPole-v1's own vector environment stepped by a loop written by hand in numpy, noise, policies, "
    "ranks and update included, of a first generation, whose episodes are short, and of one that has learned. "
    "evotorch: its VecGymNE under PGPE on CartPole-v1 from the same centers, in one process as is its default. "
    "playground: CartpoleBalance by the bare rollout of one policy, under vmap, for as many episodes. evosax: Open_ES "
    "on that rollout, of equally many members, a generation compiled whole. Peers have environments of their own"
)
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "gymnasium", "playground", "mujoco", "mujoco-mjx")
EVOSAX, EVOTORCH = "0.3.2", "0.6.1"
HERE = Path(__file__).parent
LEARNED = 15
"""Generations after which almost every episode is of full length."""

Rows = list[dict[str, Any]]
Side = Callable[[], float]
"""A generation: how many environment steps it took."""


def measurements(tiny: bool) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """One a comparison; of the tiny ones none that installs a peer."""
    yield "gymnasium", functools.partial(gymnasium, *((8, 2, [0, 1], 1) if tiny else (256, 4, [0, LEARNED], 11)))
    yield "playground", functools.partial(playground, *((8, [5], 1) if tiny else (128, [100, 500, 1000], 7)))
    if not tiny:
        yield "evosax", functools.partial(evosax, 128, [500, 1000], 7)
        yield "evotorch", functools.partial(evotorch, 256, 4, [0], 5)


def gymnasium(n: int, episodes: int, learned: list[int], repeats: int) -> Rows:
    """After so many generations of learning."""
    rows = []
    for generations in learned:
        generation, layers = _cartpole(n, episodes, generations)
        by_hand = Evolution([(w.T, b) for w, b in layers], n, episodes, sigma=0.1, lr=0.0)
        rates = _in_turn({"shardes": generation, "by hand": by_hand.generation}, repeats)
        rows.append({"n": n, "episodes": episodes, "learned": generations, **rates})
    return rows


def evotorch(n: int, episodes: int, learned: list[int], repeats: int) -> Rows:
    """After so many generations of learning."""
    python = environment(ROOT / ".tools" / "evotorch", f"evotorch=={EVOTORCH}", f"gymnasium=={version('gymnasium')}")
    rows = []
    for generations in learned:
        generation, layers = _cartpole(n, episodes, generations)
        center = np.concatenate([x.reshape(-1) for pair in layers for x in pair]).tolist()
        with Worker(python, HERE / "evotorch_worker.py", {"n": n, "episodes": episodes, "center": center}) as worker:

            def theirs(worker: Worker = worker) -> float:
                start = time.perf_counter()
                worker.run()
                return (time.perf_counter() - start) / worker.seconds[-1]

            rates = _in_turn({"shardes": generation, "evotorch": theirs}, repeats)
        rows.append({"n": n, "episodes": episodes, "learned": generations, "evotorch": EVOTORCH, **rates})
    return rows


def _cartpole(n: int, episodes: int, learned: int) -> tuple[Side, list[Any]]:
    """A generation of ours after some that learned, and the policy's weights (out, in) and biases then."""
    task = suites.make("gymnasium:CartPole-v1", episodes=episodes)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n, sigma=0.1, optimizer=optax.adam(0.05))
    state = es.init(jax.random.key(0), task.init(jax.random.key(1)))
    if learned:
        state, _ = shardes.fit(es, state, task, generations=learned)

    def generation() -> float:
        pert, asked = es.ask(state)
        losses, asked = task.play(es, asked, pert, jax.random.key(0))
        jax.block_until_ready(es.tell(asked, pert, jnp.asarray(losses)))
        # Every step gives 1.
        return float(-np.sum(losses, dtype=np.float64))

    return generation, jax.device_get([(layer["w"], layer["b"]) for layer in state.params["layers"]])


def playground(n: int, lengths: list[int], repeats: int) -> Rows:
    """Of episodes of several lengths."""
    from validation.tasks.worker import bare, ours

    rows = []
    for length in lengths:
        sides = {"shardes": ours(n, length), "bare": bare(n, length)}
        rows.append({"n": n, "episode_length": length, **_in_turn(sides, repeats)})
    return rows


def evosax(n: int, lengths: list[int], repeats: int) -> Rows:
    """Of episodes of several lengths, in processes and environments of their own."""
    same = (f"{name}=={version(name)}" for name in PACKAGES if name != "gymnasium")
    theirs = environment(ROOT / ".tools" / "evosax", f"evosax=={EVOSAX}", *same)
    pythons = {"shardes": ("ours", Path(sys.executable)), "evosax": ("evosax", theirs)}
    rows = []
    for length in lengths:
        request = {"n": n, "length": length}
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(Worker(python, HERE / "worker.py", {"program": program, **request}))
                for name, (program, python) in pythons.items()
            }
            for _ in range(repeats):
                for worker in workers.values():
                    worker.run()
        rates = {name: n * length / statistics.median(worker.seconds) for name, worker in workers.items()}
        rows.append({"n": n, "episode_length": length, "evosax": EVOSAX, **_row(rates, repeats)})
    return rows


def _in_turn(sides: dict[str, Side], repeats: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(repeats + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            steps = side()
            # The first compiles.
            if i:
                rates[name].append(steps / (time.perf_counter() - start))
    return _row({name: statistics.median(found) for name, found in rates.items()}, repeats)


def _row(rates: dict[str, float], repeats: int) -> dict[str, Any]:
    ours, theirs = rates.values()
    return {"repeats": repeats, "steps_per_s": {k: round(v) for k, v in rates.items()}, "ratio": ours / theirs}


def draw(found: dict[str, Any], figure: Any) -> None:
    """Ratios, a bar a row."""
    asked = {"gymnasium": 0.8, "playground": 0.85, "evosax": 1.0, "evotorch": None}
    axes = figure.subplots()
    axes.set_yscale("log")
    labels = []
    for name, result in found.items():
        for row in result["rows"]:
            rival = list(row["steps_per_s"])[1]
            what = f"{row['episode_length']} steps" if "episode_length" in row else f"generation {row['learned']}"
            bar = axes.bar(len(labels), row["ratio"], 0.7, color=f"C{list(asked).index(name)}")
            axes.bar_label(bar, fmt="%.2f")
            if asked[name] is not None:
                axes.plot([len(labels) - 0.35, len(labels) + 0.35], [asked[name]] * 2, color="black", linewidth=1)
            labels.append(f"{rival}\n{what}")
    axes.set_xticks(range(len(labels)), labels, fontsize="small")
    axes.set_yticks(ticks := [0.5, 1, 2, 4], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(ylabel="steps a second over the other's; a line is a target")
