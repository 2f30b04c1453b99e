"""Fitness and update of a generation on other devices: by how much they differ from those of one.

    python -m validation.invariance [--tiny] [--out FOLDER]

On 2 to all of the devices that are there, whatever they are; on 2 to 8 simulated devices of a CPU; and in 2 and 4
processes of these. validation.accelerator compares one device with the CPU.
"""

import itertools
import sys
from typing import Any, NamedTuple

import jax
import numpy as np

import shardes
from validation.command import command
from validation.measuring import Run, device, in_processes
from validation.scale import models

TOLERANCE = 1e-5
ON_ANOTHER_PLATFORM = 1e-4
"""Where exponentials and sines differ by a bit or two, of which a z-score of fitness makes some more."""
WHAT = (
    "how far fitness and updates on other devices are from those on one. fitness: the largest difference of a member's "
    "over the largest fitness, in three generations. sum: the largest difference of an entry's update over the largest "
    "of its leaf, where both sides tell the same fitness once. update: so over three generations, each side telling "
    "its own fitness, whose rounding a z-score multiplies by amplification, the largest fitness over the standard "
    "deviation. identical: in every bit, which deterministic=True promises on devices of one kind. sound: where "
    f"promised so, else fitness and sum within {TOLERANCE:g}, or {ON_ANOTHER_PLATFORM:g} beside a CPU, and update "
    "within 1 + amplification times as much"
)
STRATEGIES = models.STRATEGIES | {"IIDGaussian": shardes.IIDGaussian()}
MODES = (("A", False), ("B", False), ("A", True))
"""Placements, and whether deterministic, which is always under "A"."""
Leaves = list[np.ndarray[Any, Any]]


class Evolved(NamedTuple):
    """The fitness of three generations, how far they move every leaf, and how far a told fitness does."""

    fitness: np.ndarray[Any, Any]
    update: Leaves
    sum: Leaves


def run(tiny: bool) -> dict[str, Any]:
    """Real devices first, then simulated ones, then processes."""
    request = {"strategies": list(STRATEGIES), "modes": MODES, "d": 32, "layers": 2, "tokens": 16, "n": 30}
    layouts: tuple[tuple[int | None, int], ...] = ((None, 1), (8, 1), (4, 2), (2, 4))
    if tiny:
        request |= {"strategies": ["LowRank(1)"], "modes": MODES[1:], "d": 8, "tokens": 4}
        layouts = ((2, 1), (1, 2))
    rows = in_processes(measure, *(Run(request, devices, processes) for devices, processes in layouts))
    kinds = dict.fromkeys(row["device"] for row in rows)
    return {"environment": {"device": ", ".join(kinds)}, "sound": all(row["sound"] for row in rows), "rows": rows}


def measure(
    strategies: list[str],
    modes: list[tuple[str, bool]],
    d: int,
    layers: int,
    tokens: int,
    n: int,
    beside_cpu: bool = False,
) -> list[dict[str, Any]]:
    """A row a strategy, mode and number of devices, beside one device; in several processes, of all devices.

    Or of one device beside the CPU.
    """
    # By default some accelerators multiply in less than float32.
    jax.config.update("jax_default_matmul_precision", "highest")
    one, every = jax.local_devices()[:1], jax.devices()
    counts = range(2, len(every) + 1) if jax.process_count() == 1 else [len(every)]
    others = [one] if beside_cpu else [every[:count] for count in counts]
    beside = "a CPU" if beside_cpu else "one device"
    rows = []
    for name, (how, deterministic) in itertools.product(strategies, modes):
        options = {"how": how, "deterministic": deterministic, "d": d, "layers": layers, "tokens": tokens, "n": n}
        reference = evolved(name, jax.local_devices(backend="cpu")[:1] if beside_cpu else one, **options)
        for devices in others:
            rows.append(
                {
                    "device": device(),
                    "processes": jax.process_count(),
                    "devices": len(devices),
                    "beside": beside,
                    "strategy": name,
                    "how": how,
                    "deterministic": deterministic,
                    **compared(reference, evolved(name, devices, **options), beside, deterministic),
                }
            )
    return rows


def evolved(
    strategy: str, devices: list[jax.Device], how: Any, deterministic: bool, d: int, layers: int, tokens: int, n: int
) -> Evolved:
    """What comes of three generations, and of one whose fitness is given, on some devices."""
    es = shardes.ShardedES(
        shardes.Mirrored(STRATEGIES[strategy]),
        n,
        sigma=0.1,
        lr=0.01,
        mesh=shardes.make_mesh(devices),
        # Ranks jump where two members are level to the last bit.
        shaping=shardes.shaping.z_score,
        how=how,
        deterministic=deterministic,
    )
    first, batch = jax.device_get((models.params(d, layers), models.batch(d, tokens)))

    def moved(state: shardes.ESState) -> Leaves:
        pairs = zip(jax.tree.leaves(first), jax.tree.leaves(jax.device_get(state.params)), strict=True)
        return [after.astype(np.float64) - before for before, after in pairs]

    @jax.jit
    def told(state: shardes.ESState, fitness: jax.Array) -> shardes.ESState:
        perturbation, state = es.ask(state)
        return es.tell(state, perturbation, fitness)

    same = told(es.init(jax.random.key(0), first), jax.random.normal(jax.random.key(3), n))
    state, step, fitness = es.init(jax.random.key(0), first), es.step(models.loss), []
    for _ in range(3):
        state, losses = step(state, batch)
        fitness.append(np.asarray(losses))
    return Evolved(np.stack(fitness), moved(state), moved(same))


def compared(one: Evolved, other: Evolved, beside: str, deterministic: bool) -> dict[str, Any]:
    """By how much fitness and updates differ, and whether that is as it should be."""

    def largest(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
        return float(np.abs(a - b).max() / np.abs(a).max())

    found = {
        "fitness": largest(one.fitness, other.fitness),
        "sum": max(map(largest, one.sum, other.sum)),
        "update": max(map(largest, one.update, other.update)),
        "amplification": float((np.abs(one.fitness).max(1) / one.fitness.std(1)).max()),
        "identical": all((a == b).all() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)),
    }
    tolerance = ON_ANOTHER_PLATFORM if beside == "a CPU" else TOLERANCE
    close = max(found["fitness"], found["sum"], found["update"] / (1 + found["amplification"])) <= tolerance
    sound = found["identical"] if deterministic and beside == "one device" else close
    return {**found, "sound": sound}


def draw(found: dict[str, Any], figure: Any) -> None:
    """Differences of the update over layouts, of the same fitness and of each side's own, a panel a mode."""
    rows = found["rows"]

    def layout(row: dict[str, Any]) -> str:
        return f"{row['processes']}x{row['devices'] // row['processes']}"

    layouts = list(dict.fromkeys(map(layout, rows)))
    modes = list(dict.fromkeys((row["how"], row["deterministic"]) for row in rows))
    panels = figure.subplots(1, len(modes), sharey=True, squeeze=False)[0]
    for axes, mode in zip(panels, modes, strict=True):
        for color, name in enumerate(dict.fromkeys(row["strategy"] for row in rows)):
            own = [row for row in rows if (row["strategy"], row["how"], row["deterministic"]) == (name, *mode)]
            where = [layouts.index(layout(row)) for row in own]
            axes.plot(where, [row["sum"] for row in own], "o-", color=f"C{color}", label=name)
            axes.plot(where, [row["update"] for row in own], "x:", color=f"C{color}")
        axes.set_xticks(range(len(layouts)), layouts, rotation=90)
        axes.set(title="deterministic" if mode[1] else f'how="{mode[0]}"')
        axes.axhline(TOLERANCE, color="gray", linestyle="--")
        axes.set_yscale("symlog", linthresh=1e-8)
        axes.set_ylim(0, 10 * TOLERANCE)
    figure.supxlabel("processes x devices")
    figure.supylabel("difference of the update, of its largest entry")
    axes.plot([], [], "ko-", label="told the same fitness")
    axes.plot([], [], "kx:", label="each its own")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)


if __name__ == "__main__":
    command(sys.modules["__main__"])
