"""Train the byte transformer that the package bundles: python zoo/byte-transformer/train.py

Adam on the documentation of the Python language (text.txt), some twenty minutes on two busy cores. It is a base model
to fine-tune without gradients; it writes the snapshot into the package and its bits a byte into validation/results/.
"""

import argparse
import json
import math
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from shardes import zoo
from shardes.zoo import byte_transformer

ROOT = Path(__file__).parents[2]
TEXT = Path(__file__).parent / "text.txt"
SNAPSHOT = ROOT / "packages/shardes-zoo/src/shardes/zoo/bundled/byte-transformer"
RESULTS = ROOT / "validation/results/byte_transformer.json"
CONFIG = byte_transformer.Config(d_model=128, n_layers=4, n_heads=4, n_kv_heads=2, d_ff=384, context=128)
SEQ, SEQUENCES, HELD_OUT = 128, 16, 20
NATS_PER_BIT = math.log(2)


def main() -> None:
    """Train, save, and say how good it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="optimizer steps (default: %(default)s)")
    args = parser.parse_args()
    text = np.frombuffer(TEXT.read_bytes(), np.uint8)
    train, held_out = text[: -len(text) // HELD_OUT], text[-len(text) // HELD_OUT :]

    params = byte_transformer.init(jax.random.key(0), CONFIG)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, args.steps // 20, args.steps, 1e-5)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.05))
    opt_state = optimizer.init(params)
    loss = partial(byte_transformer.loss, config=CONFIG)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params, opt_state, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    rng = np.random.default_rng(0)
    started, recent = time.perf_counter(), []
    for i in range(args.steps):
        starts = rng.integers(0, len(train) - SEQ, SEQUENCES)
        batch = jnp.asarray(np.stack([train[start : start + SEQ + 1] for start in starts]))
        params, opt_state, value = step(params, opt_state, batch)
        recent.append(float(value) / NATS_PER_BIT)
        if i % 100 == 99:
            minutes = (time.perf_counter() - started) / 60
            print(f"step {i + 1}/{args.steps}  bits a byte {np.mean(recent[-100:]):.3f}  {minutes:.1f} min", flush=True)

    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)  # as it is stored
    score = jax.jit(lambda ids: byte_transformer.nll(params, ids, CONFIG).mean() / NATS_PER_BIT)
    unigram = np.bincount(train, minlength=256) / len(train)
    result = {
        "what": "bits a byte of the bundled byte-transformer, in bfloat16, on windows of SEQ bytes",
        "text_bytes": len(text),
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "steps": args.steps,
        "seq": SEQ,
        "minutes": round((time.perf_counter() - started) / 60, 1),
        "train": round(float(score(windows(train[: len(held_out)]))), 3),
        "held_out": round(float(score(windows(held_out))), 3),
        "held_out_under_byte_frequencies": round(float(-np.log2(np.maximum(unigram[held_out], 2**-16)).mean()), 3),
    }
    zoo.save(byte_transformer.model(params, CONFIG), params, SNAPSHOT)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def windows(text: np.ndarray) -> jax.Array:
    """The text cut into sequences that predict SEQ bytes each."""
    starts = range(0, len(text) - SEQ, SEQ)
    return jnp.asarray(np.stack([text[start : start + SEQ + 1] for start in starts]))


if __name__ == "__main__":
    main()
