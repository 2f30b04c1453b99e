"""What every process of a run does for test_distributed.py: `many_processes.py FOLDER`, run by the launcher.

It prints what it finds as lines "name value", which the test compares between processes and with one process.
"""

import hashlib
import statistics
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.callbacks import Checkpoint, EarlyStop, JSONLLog
from shardes.configuration import checksum
from tests.core.support import IDS, loss, make_params

STRATEGIES = {
    "low_rank": shardes.Mirrored(shardes.LowRank(r=1)),
    "seed": shardes.SeedRegenerated(),
    "iid": shardes.Mirrored(shardes.IIDGaussian()),
}


def make(strategy="low_rank", **options):
    options = {"sigma": 0.1, "lr": 0.1, "deterministic": True, **options}
    return shardes.ShardedES(STRATEGIES[strategy], 30, **options)


def begin(es, key=5):
    return es.init(jax.random.key(key), make_params())


def of_bytes(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def stepped(strategy, **options):
    """The fitness and the state of three generations of ask, apply and tell, the second stepped on the host."""
    es = make(strategy, **options)
    state, told = begin(es), []
    for generation in range(3):
        pert, state = es.ask(state)
        if generation == 1:
            mine = es.apply(loss, state, pert, local=True)(IDS)
            assert mine.shape == es.local_members.shape
            fitness = es.gather(mine)
        else:
            fitness = es.apply(loss, state, pert)(IDS)
        state = es.tell(state, pert, fitness)
        told.append(np.asarray(fitness))
    return np.stack(told), state


def own_inputs(strategy):
    """Every member sees its own input, on the whole mesh and on that of a process."""
    es = make(strategy)
    pert, state = es.ask(begin(es))

    def scaled(params, ids, scale):
        return loss(params, ids) * scale

    scales = 1 + np.arange(30, dtype=np.float32)
    whole = es.apply(scaled, state, pert, in_axes=(None, 0))(IDS, scales)
    mine = es.apply(scaled, state, pert, in_axes=(None, 0), local=True)(IDS, scales[es.local_members])
    np.testing.assert_array_equal(es.gather(mine), np.asarray(whole))
    return np.asarray(whole)


def whole():
    """The fitness of as many members as devices hold without padding, which every process can read."""
    es = shardes.ShardedES(STRATEGIES["low_rank"], 32, sigma=0.1, lr=0.1, deterministic=True)
    pert, state = es.ask(begin(es))
    return np.asarray(es.apply(loss, state, pert)(IDS))


def measured():
    """What is kept by processes of which each has measured another placement to be faster."""
    seconds = iter([1.0, 2.0] if jax.process_index() == 0 else [2.0, 1.0])
    es = make(deterministic=False, how="auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "median", lambda _: next(seconds))
        es.step(loss)(begin(es), IDS)
    return es.placement


def logged(folder):
    """A run with everything on, broken and resumed; only process 0 has the folder."""
    es = make()
    if jax.process_index() > 0:
        folder = folder / "not here"
    log, checkpoint = JSONLLog(folder / "log.jsonl"), Checkpoint(folder / "checkpoints", every=2)
    state = checkpoint.restore(es, begin(es))
    replay = shardes.ReplayLog(folder / "replay", es, state)
    shardes.fit(es, state, loss, data=IDS, generations=3, callbacks=[log, checkpoint, replay])
    state = checkpoint.restore(es, begin(es))
    replay = shardes.ReplayLog(folder / "replay", es, state)
    state, history = shardes.fit(es, state, loss, data=IDS, generations=6, callbacks=[log, checkpoint, replay])
    return state, history


def logged_by_hand(folder):
    """Every process appends, as a loop of one's own has it; only process 0 has the folder."""
    es = make()
    state, step = begin(es), es.step(loss)
    if jax.process_index() > 0:
        folder = folder / "not here"
    with shardes.ReplayLog(folder / "by hand", es, state) as log:
        for generation in range(2):
            state, fitness = step(state, IDS)
            log.append(generation, fitness)
    return state


def ended():
    """What only one process wants ends all, in the same generation."""
    es = make()
    last = jax.process_count() - 1
    state, history = shardes.fit(
        es,
        begin(es),
        loss,
        data=IDS,
        generations=40,
        callbacks=[lambda generation: generation.number == 3 and jax.process_index() == last],
    )
    _, stopped = shardes.fit(es, begin(es), loss, data=IDS, generations=40, callbacks=[EarlyStop(target=1e9)])
    return int(state.generation), len(stopped), history.ended


def refused(function):
    try:
        function()
    except ValueError as error:
        return str(error)
    return "not refused"


def main(folder):
    shardes.distributed.initialize()
    process = jax.process_index()
    for strategy in STRATEGIES:
        fitness, state = stepped(strategy)
        print("stepped", strategy, of_bytes(fitness), checksum(state))
        print("inputs", strategy, of_bytes(own_inputs(strategy)))
    _, state = stepped("seed", deterministic=False, how="auto", shaping=shardes.shaping.z_score, lr=0.005)
    print("auto", of_bytes(state.params["embed"]))
    print("measured", measured())
    print("whole", of_bytes(whole()))
    state, history = logged(folder)
    print("logged", checksum(state), of_bytes(history.mean))
    print("logged_by_hand", checksum(logged_by_hand(folder)))
    print("ended", *ended())
    es = make(lr=0.1 + process)
    print("refused", refused(lambda: begin(es)))
    print("refused", refused(lambda: begin(make(), key=process)))
    moved = {**make_params(), "gain": jnp.full(4, 1.0 + process)}
    print("refused", refused(lambda: make().init(jax.random.key(0), moved)))
    print("members", *es.local_members)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
