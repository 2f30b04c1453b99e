"""What `zoo.save` writes, as transformers reads it: results/transformers_roundtrip.json.

    python -m validation.transformers_roundtrip [--tiny] [--out FOLDER]

Every tiny checkpoint of the tests is loaded, moved by noise (no original file can serve instead), and saved, in one
file and in shards, as stored and in other dtypes. The two libraries must give the same logits in float32, the same
tokens, and the same chat. TRANSFORMERS_PYTHON may name an interpreter that has torch and transformers.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes import zoo
from validation.command import command
from validation.workers import transformers_python

HERE = Path(__file__).parent
CHECKPOINTS = HERE.parents[1] / "tests" / "zoo" / "checkpoints"
TEXT = "The quick brown fox, 12 dogs: Café 日本"
CHAT = [{"role": "user", "content": "What is 2+2?"}]
TOLERANCE = 1e-4
WHAT = (
    "what zoo.save writes, read by transformers: the largest difference of a logit, both in float32. sound: within the "
    "tolerance, with the same tokens and chat, and no tensor missing or too many"
)
PACKAGES = ("shardes-zoo", "safetensors", "tokenizers")


def save(name: str, dtype: str | None, shard: int, folder: Path) -> dict[str, Any]:
    """Save a checkpoint that has been moved, and say what the zoo makes of what was saved."""
    model = zoo.load(CHECKPOINTS / name, dtype=dtype)
    leaves, structure = jax.tree.flatten(model.params)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    moved = [
        leaf + (0.02 * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    zoo.save(model, jax.tree.unflatten(structure, moved), folder, max_shard_size=shard)
    again = zoo.load(folder, dtype="float32")
    ids = np.arange(40, dtype=np.int32).reshape(2, 20) * 7 % 470
    tokenizer = again.tokenizer
    np.save(folder.with_suffix(".ids.npy"), ids)
    np.save(folder.with_suffix(".ours.npy"), np.asarray(again.logits(again.params, jnp.asarray(ids))))
    return {"ids": tokenizer.encode(TEXT), "chat": tokenizer.chat(CHAT, add_generation_prompt=True)}


def run(tiny: bool) -> dict[str, Any]:
    """Save everything, have transformers read it, and compare; of one checkpoint if tiny."""
    theirs_python = transformers_python()
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in sorted(path.name for path in CHECKPOINTS.iterdir())[: 1 if tiny else None]:
            for dtype, shard in ((None, 5 * 10**9), ("float32", 60_000), ("bfloat16", 60_000), ("float16", 60_000)):
                case = f"{name}, {dtype or 'as stored'}, {'one file' if shard > 10**6 else 'shards'}"
                folder = Path(temporary) / str(len(cases))
                cases[case] = {"folder": folder, "ours": save(name, dtype, shard, folder)}
        request = {"folders": [str(case["folder"]) for case in cases.values()], "text": TEXT, "chat": CHAT}
        answer = subprocess.run(
            [theirs_python, HERE / "theirs.py"],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        theirs = json.loads(answer.stdout.splitlines()[-1])
        results = {}
        for (case, ours), read in zip(cases.items(), theirs["read"], strict=True):
            folder = ours["folder"]
            difference = np.load(folder.with_suffix(".ours.npy")) - np.load(folder.with_suffix(".theirs.npy"))
            results[case] = {
                "largest_difference": float(np.abs(difference).max()),
                "tensors_missing_or_unexpected": read["problems"],
                "same_tokens": read["ids"] == ours["ours"]["ids"],
                "same_chat": read["chat"] == ours["ours"]["chat"],
                "dtype": read["dtype"],
            }
    largest = max(result["largest_difference"] for result in results.values())
    sound = largest <= TOLERANCE and all(
        result["same_tokens"] and result["same_chat"] and not result["tensors_missing_or_unexpected"]
        for result in results.values()
    )
    return {"versions": theirs["versions"], "tolerance": TOLERANCE, "largest_difference": largest, "sound": sound,
            "cases": results}  # fmt: skip


def draw(found: dict[str, Any], figure: Any) -> None:
    """Largest differences, a column a checkpoint."""
    axes = figure.subplots()
    cases = [(*name.split(", ", 1), case["largest_difference"]) for name, case in found["cases"].items()]
    checkpoints = list(dict.fromkeys(checkpoint for checkpoint, *_ in cases))
    for kind in dict.fromkeys(kind for _, kind, _ in cases):
        own = [(checkpoints.index(checkpoint), difference) for checkpoint, of, difference in cases if of == kind]
        axes.plot(*zip(*own, strict=True), "o", alpha=0.6, label=kind)
    axes.axhline(found["tolerance"], color="gray", linestyle="--", label="tolerance")
    axes.set_xticks(range(len(checkpoints)), checkpoints, rotation=30, ha="right")
    axes.set(yscale="log", ylabel="largest difference of a logit")
    figure.legend(loc="outside upper center", ncols=3)


if __name__ == "__main__":
    command(sys.modules["__main__"])
