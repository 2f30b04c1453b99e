"""Train a small transformer on the bytes of this repository's LICENSE, without gradients.

    make quickstart                              rank-1 noise (EGGROLL)
    make quickstart ARGS="--strategy seed"       full-rank noise from seeds (Qiu et al. 2025)

Eight simulated CPU devices share the population; on a machine with accelerators the same program runs on those.
"""

import argparse
import math
import os
import sys
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # before JAX is imported

import jax
import jax.numpy as jnp
import numpy as np

import shardes
from shardes.zoo import byte_transformer

TEXT = Path(__file__).parents[2] / "LICENSE"
SEQ, SEQUENCES = 64, 4
NATS_PER_BIT = math.log(2)
STRATEGIES = {"lowrank": shardes.LowRank(r=1), "seed": shardes.SeedRegenerated()}


def main() -> None:
    """Train, report, and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="lowrank", help="the noise (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=600, help="how many (default: %(default)s)")
    parser.add_argument("--plot", type=Path, default=Path("quickstart.png"), help="the curve (default: %(default)s)")
    args = parser.parse_args()
    if args.generations < 1:
        parser.error(f"--generations must be at least 1, got {args.generations}")

    text = np.frombuffer(TEXT.read_bytes(), np.uint8)
    train, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    config = byte_transformer.Config(d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=64, context=SEQ)
    params = byte_transformer.init(jax.random.key(0), config)

    es = shardes.ShardedES(
        shardes.Mirrored(STRATEGIES[args.strategy]),  # the one argument that chooses the algorithm
        n=256,
        sigma=0.02,
        lr=lambda generation: 0.01 * (1 - generation / args.generations),
    )
    state = es.init(jax.random.key(1), params)
    step = es.step(partial(byte_transformer.loss, config=config))

    count = sum(x.size for x in jax.tree.leaves(params))
    print(f"text       {TEXT.name}, {len(text)} bytes: {len(train)} to train on, the last {len(held_out)} held out")
    print(f"model      byte_transformer, {count} parameters")
    print(f"strategy   {es.strategy}, {es.n} members a generation on {len(jax.devices())} devices")
    print("compiling  ...", flush=True)

    rng = np.random.default_rng(0)
    curve = []
    for generation in range(args.generations):
        starts = rng.integers(0, len(train) - SEQ, SEQUENCES)
        batch = jnp.asarray(np.stack([train[start : start + SEQ + 1] for start in starts]))
        state, fitness = step(state, batch)
        bits = np.asarray(fitness) / NATS_PER_BIT
        curve.append(bits.mean())
        if generation == 0:
            started = time.perf_counter()  # compiled by now
        else:
            rate = generation * es.n / (time.perf_counter() - started)
            scores = f"mean {bits.mean():.3f}  best {bits.min():.3f}"
            progress(generation, args.generations, f"{scores}  {rate:,.0f} members/s")

    score = jax.jit(lambda params, ids: byte_transformer.nll(params, ids, config).mean() / NATS_PER_BIT)
    unigram = np.bincount(train, minlength=256) / len(train)
    print(f"\n{'bits a byte':12s}{'trained':>9s}{'unigram':>9s}")
    for name, part in (("train", train), ("held out", held_out)):
        print(f"{name:12s}{float(score(state.params, windows(part))):9.3f}{code_length(part, unigram):9.3f}")
    sample = byte_transformer.sample(
        state.params, jnp.asarray(train[:SEQ]), jax.random.key(2), config, length=80, temperature=0.5
    )
    line = bytes(np.asarray(sample)[-80:]).decode("latin-1")
    print(f"sampled: {''.join(c if c.isprintable() else ' ' for c in line)}")
    plot(curve, entropy=code_length(train, unigram), strategy=str(es.strategy), path=args.plot)


def windows(text: np.ndarray) -> jax.Array:
    """The text cut into sequences that predict SEQ bytes each."""
    starts = range(0, len(text) - SEQ, SEQ)
    return jnp.asarray(np.stack([text[start : start + SEQ + 1] for start in starts]))


def code_length(text: np.ndarray, unigram: np.ndarray) -> float:
    """Bits a byte of a text under byte frequencies: of the text they come from, its unigram entropy."""
    return float(-np.log2(np.maximum(unigram[text], 1 / 2**16)).mean())


def progress(generation: int, generations: int, message: str) -> None:
    """A live line on a terminal, a line now and then elsewhere."""
    line = f"generation {generation + 1}/{generations}  bits a byte: {message}"
    if sys.stdout.isatty():
        print(f"\r\x1b[K{line}", end="", flush=True)
    elif generation % 50 == 49 or generation + 1 == generations:
        print(line, flush=True)


def plot(curve: list[float], entropy: float, strategy: str, path: Path) -> None:
    """The training curve as a PNG, where matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no curve: matplotlib is not installed (pip install matplotlib)")
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(curve) + 1), curve, color="C0", alpha=0.3, label="mean of the population, batch by batch")
    width = min(25, len(curve))
    smooth = np.convolve(curve, np.ones(width) / width, mode="valid")
    axes.plot(range(width, len(curve) + 1), smooth, color="C0", label=f"its mean over {width} generations")
    axes.axhline(entropy, color="gray", linestyle="--", label="unigram entropy of the text")
    axes.set(xlabel="generation", ylabel="bits a byte", title=f"A byte transformer trained by {strategy}")
    axes.legend()
    figure.savefig(path, dpi=150)
    print(f"curve: {path}")


if __name__ == "__main__":
    main()
