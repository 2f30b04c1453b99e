"""Fine-tune a zoo model on a text file without gradients, and save it.

    python docs/examples/finetune.py                                          the bundled byte-transformer, on LICENSE
    python docs/examples/finetune.py --model smollm2-135m --text notes.txt    any model of the zoo, on a text of yours

Scores are bits a token: the held-out end of the text is never trained on.
"""

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # before JAX is imported

import jax
import jax.numpy as jnp
import numpy as np

import shardes
from shardes import zoo

LICENSE = Path(__file__).parents[2] / "LICENSE"
NATS_PER_BIT = math.log(2)


def main() -> None:
    """Load, score, train, score again, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="byte-transformer", help="name, Hub id or folder (default: %(default)s)")
    parser.add_argument("--text", type=Path, default=LICENSE, help="UTF-8 text (default: LICENSE)")
    parser.add_argument("--save", type=Path, default=Path("finetuned"), help="where to (default: %(default)s)")
    parser.add_argument("--generations", type=positive, default=200, help="how many (default: %(default)s)")
    parser.add_argument("-n", type=int, default=64, help="members of the population (default: %(default)s)")
    parser.add_argument("--sigma", type=float, default=0.01, help="size of a perturbation (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=0.0005, help="step size at the start (default: %(default)s)")
    parser.add_argument("--seq", type=positive, default=64, help="tokens a sequence (default: %(default)s)")
    parser.add_argument("--sequences", type=positive, default=8, help="sequences a generation (default: %(default)s)")
    args = parser.parse_args()

    try:
        model = zoo.load(args.model)
        text = args.text.read_text(encoding="utf-8")
    except (zoo.ZooError, OSError, UnicodeError) as error:
        parser.error(str(error))
    if model.tokenizer is None:
        parser.error(f"{args.model} has no tokenizer.json, which text needs")
    ids = np.asarray(model.tokenizer.encode(text))
    train, held_out = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    if len(held_out) <= args.seq:
        parser.error(f"{args.text} has {len(ids)} tokens, and needs more than {10 * args.seq}: a tenth is held out")

    es = shardes.ShardedES(
        shardes.Mirrored(shardes.LowRank(r=1)),
        n=args.n,
        sigma=args.sigma,
        lr=lambda generation: args.lr * (1 - generation / args.generations),
    )
    state = es.init(jax.random.key(0), model.params)

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        return model.nll(params, ids).mean() / NATS_PER_BIT

    score = jax.jit(lambda params: loss(params, windows(held_out, args.seq)))

    count = sum(x.size for x in jax.tree.leaves(model.params))
    print(f"model     {args.model}, {count:,} parameters")
    print(f"text      {args.text}, {len(ids)} tokens: {len(train)} to train on, the last {len(held_out)} held out")
    before = float(score(state.params))
    print(f"held out  {before:.3f} bits a token before", flush=True)

    def batch(generation: int) -> jax.Array:
        starts = np.random.default_rng(generation).integers(0, len(train) - args.seq, args.sequences)
        return jnp.asarray(np.stack([train[start : start + args.seq + 1] for start in starts]))

    progress = shardes.callbacks.Progress(tokens=args.seq * args.sequences)
    state, _ = shardes.fit(es, state, loss, data=batch, generations=args.generations, callbacks=[progress])
    after = float(score(state.params))
    print(f"held out  {after:.3f} bits a token after")
    if not after < before:
        print(f"worse     by {after - before:.3f} bits: try a smaller --lr or --sigma, or more members with -n")
    tuned = jax.tree.map(lambda new, old: new.astype(old.dtype), state.params, model.params)
    try:
        folder = zoo.save(model, tuned, args.save)
    except zoo.ZooError as error:
        print(f"not saved {error}")
        folder = zoo.save(model, tuned, tempfile.mkdtemp(prefix="finetuned-"))
    print(f"saved     {folder}: load it with shardes.zoo.load({str(folder)!r})")


def positive(text: str) -> int:
    """An argument that counts something."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


def windows(ids: np.ndarray, seq: int) -> jax.Array:
    """The tokens cut into sequences that predict `seq` each."""
    starts = range(0, len(ids) - seq, seq)
    return jnp.asarray(np.stack([ids[start : start + seq + 1] for start in starts]))


if __name__ == "__main__":
    main()
