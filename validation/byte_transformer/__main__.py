"""Bits a byte of the bundled byte-transformer: results/byte_transformer.json.

    python -m validation.byte_transformer [--tiny] [--out FOLDER]

zoo/byte-transformer/train.py trains it, on all of the text but the last twentieth, and says in how many steps and
minutes.
"""

import json
import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes import zoo
from validation.command import RESULTS, command
from validation.workers import ROOT

WHAT = (
    "bits a byte of the bundled byte-transformer, in bfloat16, on windows of seq bytes: of the first of what it was "
    "trained on, and of as much that it was not; steps and minutes: of its training"
)
PACKAGES = ("shardes-zoo",)
TEXT = ROOT / "zoo" / "byte-transformer" / "text.txt"
SEQ, HELD_OUT = 128, 20


def run(tiny: bool) -> dict[str, Any]:
    """Of the first windows alone if tiny."""
    text = np.frombuffer(TEXT.read_bytes(), np.uint8)
    train, held_out = text[: -len(text) // HELD_OUT], text[-len(text) // HELD_OUT :]
    model = zoo.load("byte-transformer")
    trained = json.loads((RESULTS / "byte_transformer.json").read_text())
    length = 8 * SEQ if tiny else len(held_out)

    @jax.jit
    def bits(ids: jax.Array) -> jax.Array:
        return model.nll(model.params, ids).mean() / math.log(2)

    frequencies = np.bincount(train, minlength=256) / len(train)
    return {
        "text_bytes": len(text),
        "parameters": sum(x.size for x in jax.tree.leaves(model.params)),
        "steps": trained["steps"],
        "seq": SEQ,
        "minutes": trained["minutes"],
        "train": round(float(bits(windows(train[:length]))), 3),
        "held_out": round(float(bits(windows(held_out[:length]))), 3),
        "held_out_under_byte_frequencies": round(float(-np.log2(np.maximum(frequencies[held_out], 2**-16)).mean()), 3),
    }


def windows(text: np.ndarray[Any, Any]) -> jax.Array:
    """The text cut into sequences that predict SEQ bytes each."""
    starts = range(0, len(text) - SEQ, SEQ)
    return jnp.asarray(np.stack([text[start : start + SEQ + 1] for start in starts]))


def draw(found: dict[str, Any], figure: Any) -> None:
    """Bits a byte, a bar a text."""
    bits = {
        "held out,\nby frequencies of bytes": found["held_out_under_byte_frequencies"],
        "held out": found["held_out"],
        "trained on": found["train"],
    }
    axes = figure.subplots()
    axes.bar_label(axes.bar(list(bits), list(bits.values()), 0.6), fmt="%.2f")
    axes.set(ylabel="bits a byte")


if __name__ == "__main__":
    command(sys.modules["__main__"])
