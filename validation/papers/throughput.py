"""EGGROLL's table: a linear layer evaluated under a perturbation for every row of a batch, beside plain inference."""

from typing import Any

import jax
import jax.numpy as jnp

import shardes
from shardes.nn import dense
from validation.measuring import Run, device, in_processes, in_turn

WHAT = (
    "seconds of a batch through a linear layer of d x d, each row of it a member of a mirrored population, and speed "
    "in per cent of plain inference of the batch, all sides in turn in one process, medians. drawn beforehand: "
    "es.apply of a given perturbation. drawn on the fly: es.ask and es.apply. generation: and es.tell, with the "
    "update. paper: what is reported of a GH200 at d=8192, batch 1024, bfloat16, updates left out"
)
PAPER = {
    "source": "EGGROLL, Sarkar et al. 2025, arXiv 2511.16652",
    "pure inference": 100,
    "EGGROLL, drawn beforehand": 91,
    "EGGROLL, drawn on the fly": 69,
    "PPO": 34,
    "OpenES": 0.41,
}
STRATEGIES = {
    "LowRank(1)": shardes.LowRank(r=1),
    "LowRank(4)": shardes.LowRank(r=4),
    "SeedRegenerated": shardes.SeedRegenerated(),
    "IIDGaussian": shardes.IIDGaussian(),
}
ROOM = 0.4
"""The part of a device's memory that noise may take."""
ON_A_CPU = 2**32
"""Bytes of it there."""


def run(tiny: bool) -> dict[str, Any]:
    """A process a strategy, or one for two tiny ones."""
    names = [["LowRank(1)", "SeedRegenerated"]] if tiny else [[name] for name in STRATEGIES]
    rows = in_processes(measure, *(Run({"strategies": some, "tiny": tiny}, None) for some in names))
    return {"environment": {"device": rows[0]["device"]}, "paper": PAPER, "rows": rows}


def measure(strategies: list[str], tiny: bool) -> list[dict[str, Any]]:
    """A row a strategy: of the paper's sizes on an accelerator, of smaller ones on a CPU."""
    if tiny:
        sizes: dict[str, Any] = {"d": 16, "batch": 8, "dtype": "float32"}
    elif jax.devices()[0].platform == "cpu":
        sizes = {"d": 512, "batch": 1024, "dtype": "float32"}
    else:
        sizes = {"d": 8192, "batch": 1024, "dtype": "bfloat16"}
    rows = []
    for name in strategies:
        loops = 16 if name.startswith("LowRank") and sizes["d"] == 8192 else 1
        rows.append(_row(name, **sizes, loops=loops, repeats=1 if tiny else 11 if name.startswith("LowRank") else 5))
    return rows


def _row(strategy: str, d: int, batch: int, dtype: str, loops: int, repeats: int) -> dict[str, Any]:
    """On one device: medians of `loops` evaluations in one program each, so that starting one weighs little."""
    row = {"device": device(), "strategy": strategy, "d": d, "batch": batch, "dtype": dtype}
    memory = jax.devices()[0].memory_stats() or {}
    needed, room = 4 * d * d * batch // 2, ROOM * memory.get("bytes_limit", ON_A_CPU / ROOM)
    if strategy == "IIDGaussian" and needed > room:
        return row | {"skipped": f"its noise takes {needed / 1e9:.0f} GB, and {room / 1e9:.0f} GB are free for it"}
    es = shardes.ShardedES(
        shardes.Mirrored(STRATEGIES[strategy]),
        batch,
        sigma=0.01,
        lr=0.01,
        mesh=shardes.make_mesh(jax.devices()[:1]),
        compute_dtype=jnp.dtype(dtype),
    )
    weight = jax.random.normal(jax.random.key(1), (d, d)) / d**0.5
    state = es.init(jax.random.key(0), {"w": weight})
    inputs = jax.random.normal(jax.random.key(2), (loops, batch, d), dtype)
    pert, _ = jax.block_until_ready(es.ask(state))

    def layer(params: Any, x: jax.Array) -> jax.Array:
        return dense(x[None], params["w"])[0]

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(layer(params, x).astype(jnp.float32)))

    def inference(params: Any, inputs: jax.Array) -> jax.Array:
        return jax.lax.map(lambda x: x @ params["w"].T, inputs)

    def beforehand(state: Any, inputs: jax.Array, pert: Any) -> jax.Array:
        return jax.lax.map(lambda x: es.apply(layer, state, pert, in_axes=0)(x), inputs)

    def on_the_fly(state: Any, inputs: jax.Array) -> Any:
        def one(state: Any, x: jax.Array) -> Any:
            pert, state = es.ask(state)
            return state, es.apply(layer, state, pert, in_axes=0)(x)

        return jax.lax.scan(one, state, inputs)[1]

    def generation(state: Any, inputs: jax.Array) -> Any:
        def one(state: Any, x: jax.Array) -> Any:
            pert, state = es.ask(state)
            fitness = es.apply(loss, state, pert, in_axes=0)(x)
            return es.tell(state, pert, fitness), fitness

        return jax.lax.scan(one, state, inputs)

    programs: dict[str, Any] = {
        "inference": (inference, {"w": weight.astype(dtype)}, inputs),
        "drawn beforehand": (beforehand, state, inputs, pert),
        "drawn on the fly": (on_the_fly, state, inputs),
        "generation": (generation, state, inputs),
    }
    if not es.strategy.keeps_noise:
        del programs["drawn beforehand"]
    sides, temporary = {}, {}
    for name, (function, *args) in programs.items():
        compiled = jax.jit(function).lower(*args).compile()
        sides[name] = lambda compiled=compiled, args=args: jax.block_until_ready(compiled(*args))
        temporary[name] = compiled.memory_analysis().temp_size_in_bytes
    seconds = {name: total / loops for name, total in in_turn(sides, repeats).items()}
    speed = {name: 100 * seconds["inference"] / own for name, own in seconds.items()}
    return row | {"loops": loops, "repeats": repeats, "seconds": seconds, "speed": speed, "temporary": temporary}


def draw(found: dict[str, Any], figure: Any) -> None:
    """Speeds, and the paper's beside them."""
    rows = found["rows"]
    sides = ("drawn beforehand", "drawn on the fly", "generation")
    groups = {row["strategy"]: row["speed"] for row in rows if "speed" in row}
    groups["EGGROLL,\nin its paper"] = {side: PAPER[f"EGGROLL, {side}"] for side in sides[:2]}
    groups["OpenES,\nin the same"] = {sides[1]: PAPER["OpenES"]}
    axes = figure.subplots()
    for i, side in enumerate(sides):
        own = [(at, speed[side]) for at, speed in enumerate(groups.values()) if side in speed]
        bars = axes.bar([at + 0.27 * i for at, _ in own], [speed for _, speed in own], 0.25, label=side)
        axes.bar_label(bars, fmt="%.3g", fontsize="small")
    axes.set_xticks([at + 0.27 for at in range(len(groups))], groups)
    axes.set(yscale="log", ylim=(0.05, 400), ylabel="speed, in per cent of plain inference")
    first = rows[0]
    axes.set_title(f"d={first['d']}, batch {first['batch']}, {first['dtype']}; the paper's: 8192, 1024, bfloat16")
    figure.legend(loc="outside lower center", ncols=3)
