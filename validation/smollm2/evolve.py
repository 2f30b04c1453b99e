"""Ten generations of ES on a snapshot, eight members: evolve.py FOLDER COMPUTE_DTYPE. Prints one line of JSON."""

import json
import resource
import statistics
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import shardes
from shardes import zoo

LICENSE = Path(__file__).parents[2] / "LICENSE"
TOKENS, SIGMA, LR = 128, 1e-3, 1e-6


def main() -> None:
    """Load, evolve, report."""
    folder, dtype = sys.argv[1:]
    model = zoo.load(folder)
    ids = jnp.asarray(np.asarray(model.tokenizer.encode(LICENSE.read_text())[:TOKENS], np.int32))[None]
    es = shardes.ShardedES(
        shardes.Mirrored(shardes.LowRank(r=1)), n=8, sigma=SIGMA, lr=LR, compute_dtype=jnp.dtype(dtype)
    )
    state = es.init(jax.random.key(0), model.params)
    step = es.step(lambda params, batch: model.nll(params, batch).mean())
    score = jax.jit(lambda params: model.nll(params, ids).mean())
    before, seconds, curve = float(score(state.params)), [], []
    for _ in range(11):
        started = time.perf_counter()
        state, fitness = step(state, ids)
        jax.block_until_ready((state, fitness))
        seconds.append(time.perf_counter() - started)
        curve.append(round(float(fitness.mean()), 4))
        if len(seconds) == 10:
            after = float(score(state.params))
    print(json.dumps({
        "n": es.n,
        "tokens": TOKENS,
        "sigma": SIGMA,
        "lr": LR,
        "compile_and_first_generation_s": round(seconds[0], 2),
        "generation_s": round(statistics.median(seconds[1:]), 3),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "nll_before": round(before, 4),
        "nll_after": round(after, 4),
        "members_mean": curve[:10],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
