"""A run of many processes: fine-tune the bundled byte-transformer on the text of LICENSE, saved as it goes.

    python docs/examples/many_hosts.py --out run
    python -m shardes.distributed --processes 2 docs/examples/many_hosts.py --out run --distributed

The second starts two processes on this machine; on a cluster the launch files of docs/examples/launch start them.
Started again, it goes on from the latest checkpoint, on as many hosts as there are then. Only process 0 writes.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shardes
from shardes import zoo
from shardes.callbacks import Checkpoint, JSONLLog, Progress

LICENSE = Path(__file__).parents[2] / "LICENSE"
SEQ, SEQUENCES = 64, 4


def main() -> None:
    """Train until the generations are done, those of earlier starts counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints and log")
    parser.add_argument("--generations", type=int, default=200, help="at which to end (default: %(default)s)")
    parser.add_argument("-n", type=int, default=64, help="members of the population (default: %(default)s)")
    parser.add_argument("--distributed", action="store_true", help="join the other processes of this cluster")
    args = parser.parse_args()
    if args.distributed:
        shardes.distributed.initialize()  # before JAX is asked for its devices

    model = zoo.load("byte-transformer")
    text = np.frombuffer(LICENSE.read_bytes(), np.uint8)

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        return model.nll(params, ids).mean()

    def batch(generation: int) -> np.ndarray:  # the same in every process
        starts = np.random.default_rng(generation).integers(0, len(text) - SEQ, SEQUENCES)
        return np.stack([text[start : start + SEQ + 1] for start in starts])

    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n=args.n, sigma=0.01, lr=0.0005)
    checkpoint = Checkpoint(args.out / "checkpoints", every=10)
    state = checkpoint.restore(es, es.init(jax.random.key(0), model.params))
    state, history = shardes.fit(
        es,
        state,
        loss,
        data=batch,
        generations=args.generations,
        callbacks=[checkpoint, JSONLLog(args.out / "log.jsonl"), Progress()],
    )
    if jax.process_index() == 0:
        where = f"{jax.device_count()} devices of {jax.process_count()} processes"
        print(f"{int(state.generation)} generations done, {len(history)} of them now, on {where}")


if __name__ == "__main__":
    main()
