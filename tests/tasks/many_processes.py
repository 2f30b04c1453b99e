"""What every process of a run does for test_gymnasium_distributed.py: prints what it finds as "name value"."""

import hashlib
import sys

import jax
import numpy as np

import shardes
from shardes.configuration import checksum
from shardes.tasks.gymnasium import make

from . import stubs


def of_bytes(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def trained(name, n, mode):
    """The fitness and the state of three generations, normalised."""
    task = make(name, episodes=2, normalize=True, vectorization=mode)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n, sigma=0.3, lr=0.1, deterministic=True)
    state = es.init(jax.random.key(0), task.init(jax.random.key(1)))
    fitness = []
    state, _ = shardes.fit(
        es, state, task, generations=3, callbacks=[lambda generation: fitness.append(np.asarray(generation.fitness))]
    )
    task.close()
    return f"{of_bytes(np.stack(fitness))} {checksum(state)}"


RUNS = [("StubNoisy-v0", 10, "sync"), ("StubNoisy-v0", 2, "async"), ("CartPole-v1", 12, None)]

if __name__ == "__main__":
    shardes.distributed.initialize()
    assert stubs.STUBS
    for run in RUNS:
        print(*run, trained(*run), flush=True)
    sys.exit()
