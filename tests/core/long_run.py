"""A run with everything on, for tests that interrupt it: `python long_run.py FOLDER GENERATIONS DEVICES SECONDS`.

It prints a line a generation, and at the end the checksum of its state.
"""

import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import shardes
from shardes.callbacks import Checkpoint, JSONLLog, Progress
from shardes.configuration import checksum

if sys.stderr.isatty():
    # What hangs up when it does, of a session that has none yet.
    os.close(os.open(os.ttyname(2), os.O_RDWR))

folder, generations, devices, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


def loss(params, scale):
    return jnp.sum((params["w"] - scale) ** 2) + jnp.sum(params["b"] ** 4)


def watch(generation):
    print("generation", generation.number, flush=True)
    time.sleep(seconds)


es = shardes.ShardedES(
    shardes.Mirrored(shardes.SeedRegenerated()),
    n=12,
    sigma=0.1,
    lr=0.05,
    mesh=shardes.make_mesh(jax.devices()[:devices]),
    deterministic=True,
)
checkpoint = Checkpoint(f"{folder}/checkpoints", every=2, keep_last=2)
state = es.init(jax.random.key(1), {"w": jnp.zeros((64, 65)), "b": jnp.ones(3)})
state = checkpoint.restore(es, state)
print("begins at", int(state.generation), flush=True)
Path(folder).mkdir(parents=True, exist_ok=True)
log = shardes.ReplayLog(f"{folder}/replay", es, state)
state, history = shardes.fit(
    es,
    state,
    loss,
    data=lambda generation: jnp.float32(generation % 3),
    generations=generations,
    callbacks=[checkpoint, JSONLLog(f"{folder}/log.jsonl"), log, Progress(), watch],
)
print("ended", history.ended, int(state.generation), checksum(state), flush=True)
