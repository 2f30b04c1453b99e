"""A run that is saved and restored is the unbroken run, whatever ended it; what is not sound is refused."""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardes
from shardes.callbacks import Callback, Checkpoint, CheckpointError, JSONLLog

from .support import IDS, assert_identical, lenient, loss, make_es, make_params, slow, update


def make(devices=8, **options):
    return make_es("low_rank_1", 30, devices=devices, **{"deterministic": True, **options})


def first(es, key=5, seed=0):
    return es.init(jax.random.key(key), make_params(seed))


def play(es, state, generations, *callbacks):
    return shardes.fit(es, state, loss, data=IDS, generations=generations, callbacks=callbacks)[0]


@pytest.fixture(scope="module")
def es():
    return make()


@pytest.fixture(scope="module")
def unbroken(es):
    return jax.device_get(play(es, first(es), 10))


@pytest.fixture(scope="module")
def saved(es, tmp_path_factory):
    """A folder with the checkpoint of generation 5."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    play(es, first(es), 5, Checkpoint(folder))
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "checkpoints"))


@pytest.mark.parametrize("devices", [8, 1, pytest.param(3, marks=slow)])
def test_five_and_five_generations_are_ten(copy, unbroken, devices):
    es = make(devices)
    checkpoint = Checkpoint(copy)
    state = checkpoint.restore(es, first(es))
    assert int(state.generation) == 5
    assert state.params["embed"].sharding.device_set == set(es.mesh.devices.flat)
    assert_identical(jax.device_get(play(es, state, 10, checkpoint)), unbroken)
    assert_identical(jax.device_get(Checkpoint(copy).restore(es, first(es))), unbroken)


def test_not_deterministic_they_are_to_rounding(tmp_path):
    options = {"deterministic": False, "shaping": shardes.shaping.z_score, "lr": 0.005}
    ten = make(8, **options)
    unbroken = play(ten, first(ten), 10)
    play(ten, first(ten), 5, Checkpoint(tmp_path))
    one = make(1, **options)
    resumed = play(one, Checkpoint(tmp_path).restore(one, first(one)), 10)
    for given, expected in zip(
        update(make_params(), resumed.params), update(make_params(), unbroken.params), strict=True
    ):
        assert np.abs(given - expected).max() <= 1e-5 * np.abs(expected).max() + 10 * np.spacing(np.float32(2))


def test_all_of_a_state_is_kept(tmp_path):
    """The optimizer's state, the counters, an empty leaf, and dtypes that numpy does not know."""
    params = {**make_params(), "empty": jnp.zeros((0, 3)), "flag": jnp.array([True]), "half": jnp.ones(2, jnp.bfloat16)}
    es = make(lr=None, optimizer=lenient(optax.adamw(0.05)), freeze=lambda path: path in ("empty", "half"))
    state = es.init(jax.random.key(3), params)

    def broken(params, ids):
        value = loss(params, ids)
        return jnp.where(value > 0.4, jnp.nan, value)

    state, _ = shardes.fit(es, state, broken, data=IDS, generations=2, callbacks=[Checkpoint(tmp_path)])
    restored = Checkpoint(tmp_path).restore(es, es.init(jax.random.key(3), params))
    assert_identical(jax.device_get(restored), jax.device_get(state))
    assert int(restored.non_finite) + int(restored.skipped) > 0


KILLED = 600


def numbers(folder):
    return sorted(int(path.name) for path in folder.iterdir())


def test_the_latest_and_the_best_are_kept(es, tmp_path):
    play(es, first(es), 7, Checkpoint(tmp_path / "latest", every=2, keep_last=2))
    assert numbers(tmp_path / "latest") == [6, 7]
    means = []
    worse = iter(np.float32([5, 1, 2, 3, 4, 5, 6, 7]))

    def scaled(params, scale):
        return loss(params, IDS) + scale

    shardes.fit(
        es,
        first(es),
        scaled,
        data=worse,
        generations=8,
        callbacks=[
            Checkpoint(tmp_path / "best", every=1, keep_last=1, keep_best=2),
            lambda g: means.append(g.summary.mean),
        ],
    )
    best = sorted(int(i) + 1 for i in np.argsort(means)[:2])
    assert best == [2, 3]
    assert numbers(tmp_path / "best") == [*best, 8]


def test_it_says_where_to_begin(es, copy, tmp_path, unbroken):
    assert int(Checkpoint(tmp_path / "none").restore(es, first(es)).generation) == 0
    with pytest.raises(
        ValueError, match=r"has a checkpoint of generation 5, and the run is at 0. Begin with the state"
    ):
        play(es, first(es), 10, Checkpoint(copy))
    with pytest.raises(CheckpointError, match="has no checkpoint of generation 3"):
        Checkpoint(copy).restore(es, first(es), 3)
    with pytest.raises(CheckpointError, match="has no checkpoint of generation 3"):
        Checkpoint(tmp_path / "none").restore(es, first(es), 3)
    play(es, Checkpoint(copy).restore(es, first(es)), 10, Checkpoint(copy))
    assert int(Checkpoint(copy).restore(es, first(es)).generation) == 10
    again = Checkpoint(copy).restore(es, first(es), 5)
    assert_identical(jax.device_get(play(es, again, 10)), unbroken)


@pytest.mark.parametrize(
    ("other", "begin", "text"),
    [
        ({"lr": 0.2}, {}, "is of another configuration: lr is 0.1 there, and 0.2 here. Go on"),
        ({"deterministic": False}, {}, "is of another configuration: deterministic is True there"),
        ({}, {"key": 6}, "is of a run with another key"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(saved, other, begin, text):
    es = make(**other)
    with pytest.raises(CheckpointError, match=text):
        Checkpoint(saved).restore(es, first(es, **begin))


def test_a_checkpoint_of_other_params_is_refused(es, saved):
    params = {**make_params(), "gain": jnp.ones((1, 4))}
    with pytest.raises(
        CheckpointError, match=r"is of other params .*it has \[\".params\['gain'\]\", 'float32', \[4\]\], and"
    ):
        Checkpoint(saved).restore(es, es.init(jax.random.key(5), params))
    params = {**make_params(), "more": jnp.ones(1)}
    with pytest.raises(CheckpointError, match="is of other params"):
        Checkpoint(saved).restore(es, es.init(jax.random.key(5), params))


def outcome(function):
    """The reason of a CheckpointError and None, or an empty one and what the function returns."""
    try:
        return "", function()
    except CheckpointError as error:
        return str(error), None


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


# What orbax has begun to read when it meets the damage comes to a closed event loop.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", ["cut", "emptied", "removed", "a bit"])
def test_a_damaged_checkpoint_is_refused_or_whole(es, saved, tmp_path, damage):
    """Every file in turn: either the reason is said, or what is restored is what was saved."""
    expected = jax.device_get(Checkpoint(saved).restore(es, first(es)))
    refused = 0
    for i, file in enumerate(files_of(saved)):
        folder = Path(shutil.copytree(saved, tmp_path / str(i)))
        path = folder / file.relative_to(saved)
        content = path.read_bytes()
        if damage == "removed":
            path.unlink()
        elif damage == "a bit" and content:
            changed = bytearray(content)
            changed[len(content) // 2] ^= 1
            path.write_bytes(changed)
        else:
            path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
        reason, restored = outcome(lambda folder=folder: Checkpoint(folder).restore(es, first(es)))
        if restored is None:
            refused += 1
            assert str(folder) in reason
        elif int(restored.generation):
            assert_identical(jax.device_get(restored), expected)
    assert refused >= 3


def test_arrays_of_another_checkpoint_are_refused(es, tmp_path):
    """Every file is sound, every shape is right, and what is read is not what was described."""
    play(es, first(es), 2, Checkpoint(tmp_path, every=1))
    for name in ("1", "2"):
        shutil.move(tmp_path / name / "state", tmp_path / f"state of {name}")
    for name, other in (("1", "2"), ("2", "1")):
        shutil.move(tmp_path / f"state of {other}", tmp_path / name / "state")
    with pytest.raises(CheckpointError, match=r"2 is damaged: its checksum is another\. Delete it to go on"):
        Checkpoint(tmp_path).restore(es, first(es))


def test_a_checkpoint_is_of_its_generation_whatever_the_run_does_meanwhile(es, tmp_path):
    states = []
    checkpoint = Checkpoint(tmp_path, every=1, keep_last=5)
    play(es, first(es), 5, checkpoint, lambda generation: states.append(jax.device_get(generation.state)))
    for generation, state in enumerate(states, 1):
        assert_identical(jax.device_get(checkpoint.restore(es, first(es), generation)), state)


def test_logs_have_every_generation_of_a_checkpoint(es, tmp_path):
    """When it takes its place nothing of it is still to be written, though generations after it are on their way."""
    found = []

    class Look(Callback):
        def flush(self):
            found.append([len((tmp_path / "log").read_text().splitlines()), len(list(replay))])

    state = first(es)
    replay = shardes.ReplayLog(tmp_path / "replay", es, state)
    logs = [JSONLLog(tmp_path / "log"), replay]
    play(es, state, 6, *logs, Look(), Checkpoint(tmp_path / "checkpoints", every=2))
    assert found == [[2, 2], [4, 4], [6, 6]]


@pytest.mark.parametrize(
    "content", ["{}", "[]", "null", '{"format": "shardes checkpoint 1"}', "x", '{"format": 1e999}']
)
def test_a_description_that_is_none_is_refused(es, copy, content):
    (path,) = copy.rglob("run/metadata")
    path.write_text(content)
    with pytest.raises(CheckpointError, match=f"{copy}"):
        Checkpoint(copy).restore(es, first(es))


def test_arrays_larger_than_the_description_are_never_read(es, copy):
    (path,) = copy.rglob("run/metadata")
    run = json.loads(path.read_text())
    state = first(es)
    big = state._replace(params={**state.params, "gain": jnp.ones(5)})
    run["leaves"] = [[n, d, [5] if n == ".params['gain']" else s] for n, d, s in run["leaves"]]
    path.write_text(json.dumps(run))
    with pytest.raises(CheckpointError, match="is damaged: its arrays are not those that it lists"):
        Checkpoint(copy).restore(es, big)


@pytest.mark.parametrize("method", ["save", "wait_until_finished"])
def test_a_disk_that_is_full_is_said_and_what_is_whole_is_kept(es, copy, unbroken, monkeypatch, method):
    import orbax.checkpoint as ocp

    def full(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: No space left on device")

    state = Checkpoint(copy).restore(es, first(es))
    with monkeypatch.context() as patched:
        patched.setattr(ocp.CheckpointManager, method, full)
        with pytest.raises(
            CheckpointError, match=r"cannot be written to .*checkpoints: ValueError: RESOURCE_EXHAUSTED"
        ):
            play(es, state, 7, Checkpoint(copy, every=1))
    assert_identical(jax.device_get(play(es, Checkpoint(copy).restore(es, first(es), 5), 10)), unbroken)


def test_reading_disturbs_no_writer(es, copy):
    """What a run is writing at this moment is left alone by who looks at its checkpoints."""
    (copy / "7.orbax-checkpoint-tmp").mkdir()
    Checkpoint(copy).restore(es, first(es))
    assert (copy / "7.orbax-checkpoint-tmp").exists()
    play(es, Checkpoint(copy).restore(es, first(es)), 6, Checkpoint(copy))
    assert numbers(copy) == [5, 6]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"every": 0}, "every is 0, and must be an integer of at least 1"),
        ({"keep_last": 1.5}, "keep_last is 1.5"),
        ({"keep_best": -1}, "keep_best is -1, and must be an integer of at least 0"),
    ],
)
def test_numbers_that_are_none_are_refused(tmp_path, options, text):
    with pytest.raises(ValueError, match=text):
        Checkpoint(tmp_path, **options)


class Child:
    """`long_run.py` as a process of its own."""

    def __init__(self, folder, generations=12, devices=2, seconds=0.0, **options):
        arguments = [str(folder), str(generations), str(devices), str(seconds)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.core.long_run", *arguments],
            cwd=Path(__file__).parents[2],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
        )

    def read(self):
        """The lines that it prints until it ends, and what it says on stderr."""
        out, err = self.process.communicate(timeout=120)
        return out.splitlines(), err

    def wait_for(self, line):
        while (found := self.process.stdout.readline().strip()) != line:
            assert found, self.read()

    def end(self, number):
        self.process.send_signal(number)
        return self.read()


def check_files(folder, generations=12):
    """The log holds every generation once, and nothing half-written is left."""
    found = [json.loads(line)["generation"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert found == list(range(generations))
    assert numbers(folder / "checkpoints") == [generations - 2, generations]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    out, err = Child(folder).read()
    assert out[-1].startswith("ended generations 12 "), err
    check_files(folder)
    return out[-1]


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_saves_and_ends(tmp_path, undisturbed, number):
    child = Child(tmp_path, seconds=0.2)
    child.wait_for("generation 2")
    out, err = child.end(number)
    assert f"{number.name}: the run ends after this generation" in err
    assert child.process.returncode == (143 if number == signal.SIGTERM else 0)
    if number == signal.SIGINT:
        assert out[-1].startswith("ended SIGINT ")
    last = numbers(tmp_path / "checkpoints")[-1]
    assert 3 <= last <= 5
    out, _ = Child(tmp_path, devices=1).read()
    assert out[0] == f"begins at {last}"
    assert out[-1] == undisturbed
    check_files(tmp_path)


@slow
def test_a_terminal_that_hangs_up_ends_it_saved(tmp_path, undisturbed):
    """The live display can be drawn no more, and the run still ends well."""
    mine, its = os.openpty()
    looks = threading.Event()

    def look():
        while not looks.is_set():
            if select.select([mine], [], [], 0.1)[0]:
                os.read(mine, 2**16)

    child = Child(tmp_path, seconds=0.2, stderr=its, start_new_session=True)
    os.close(its)
    person = threading.Thread(target=look)
    person.start()
    child.wait_for("generation 2")
    looks.set()
    person.join()
    os.close(mine)
    child.read()
    assert child.process.returncode == 129
    assert 3 <= numbers(tmp_path / "checkpoints")[-1] <= 5
    assert Child(tmp_path).read()[0][-1] == undisturbed
    check_files(tmp_path)


@slow
def test_a_second_signal_ends_at_once(tmp_path):
    child = Child(tmp_path, seconds=30)
    child.wait_for("generation 0")
    child.process.send_signal(signal.SIGINT)
    while "Once more ends it at once" not in child.process.stderr.readline():
        pass
    # Within a second it would be the same.
    time.sleep(1.5)
    _, err = child.end(signal.SIGINT)
    assert "KeyboardInterrupt" in err
    assert numbers(tmp_path / "checkpoints") == []


@slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_survives_being_killed_at_any_moment(tmp_path, seed):
    """Ten times over, on one device or eight; then it ends as the run that nobody disturbed."""
    chosen, begins = random.Random(seed), [0]
    for _ in range(10):
        child = Child(tmp_path / "killed", KILLED, chosen.choice([1, 8]), seconds=0.01)
        begun = child.process.stdout.readline().split()
        assert begun[:2] == ["begins", "at"], child.read()
        begins.append(int(begun[2]))
        if chosen.random() < 0.8:
            # Once it has compiled, so that saves are among what is interrupted.
            assert child.process.stdout.readline().startswith("generation")
        time.sleep(chosen.uniform(0, 1))
        child.end(signal.SIGKILL)
        assert child.process.returncode == -signal.SIGKILL
    assert begins == sorted(begins)
    assert begins[-1] > 0
    killed, _ = Child(tmp_path / "killed", KILLED).read()
    whole, _ = Child(tmp_path / "whole", KILLED).read()
    assert killed[-1] == whole[-1]
    assert killed[-1].startswith(f"ended generations {KILLED} ")
    check_files(tmp_path / "killed", KILLED)
    assert (tmp_path / "killed" / "replay").read_bytes() == (tmp_path / "whole" / "replay").read_bytes()
