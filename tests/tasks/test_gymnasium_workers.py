"""The processes that step environments: they fail with a name, and are gone however this one goes on or ends."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from shardes.tasks import TaskError
from shardes.tasks.gymnasium import workers
from shardes.tasks.gymnasium.workers import Workers

from . import stubs
from .test_gymnasium import asked, played, task  # noqa: F401

ROOT = Path(__file__).parents[2]


def started(name="StubNever-v0", count=5, processes=2, **options):
    return Workers(gymnasium.spec(name), options, (), count, processes)


def pids(some):
    return [worker.process.pid for worker in some._workers]


def is_gone(pid):
    """Whether a process has ended, within ten seconds; one that nobody has waited for counts."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_what_is_active_alone_is_stepped():
    some = started()
    some.reset(np.arange(5))
    actions = np.array([0, 1, 1])
    observations, rewards, ended = some.step(np.array([0, 1, 4]), actions)
    np.testing.assert_array_equal(observations, [[1, 1]] * 3)
    np.testing.assert_array_equal(rewards, [1, 1, 1])
    assert not ended.any()
    observations, _, _ = some.step(np.array([1, 2]), actions[:2])
    np.testing.assert_array_equal(observations[:, 0], [2, 1])
    observations, _, _ = some.step(np.array([3, 4]), actions[:2])
    np.testing.assert_array_equal(observations[:, 0], [1, 2])
    some.close()


def test_workers_end_when_closed_and_when_forgotten():
    some = started()
    gone = pids(some)
    assert len(gone) == 2
    some.close()
    assert all(map(is_gone, gone))
    some.close()

    some = started()
    gone = pids(some)
    del some
    gc.collect()
    assert all(map(is_gone, gone))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("StubRaises-v0", r"(?s)steps 3 of StubRaises-v0, has failed.*in fail.*the simulator has a bug"),
        ("StubDies-v0", r"Worker 0 of 2, which steps 3 of StubDies-v0, ended by SIGKILL"),
        ("StubExits-v0", r"Worker 0 of 2, which steps 3 of StubExits-v0, ended with status 7"),
        ("StubHangs-v0", r"Worker 0 of 2, which steps 3 of StubHangs-v0, has not answered for 0.5 seconds"),
    ],
)
def test_what_goes_wrong_in_a_worker_is_named_and_all_are_gone(monkeypatch, name, text):
    some = started(name)
    gone = pids(some)
    some.reset(np.arange(5))
    actions = np.zeros(5, int)
    some.step(np.arange(5), actions)
    some.step(np.arange(5), actions)
    if name == "StubHangs-v0":
        monkeypatch.setattr(workers, "_PATIENCE", 0.5)
    with pytest.raises(TaskError, match=text):
        some.step(np.arange(5), actions)
    assert all(map(is_gone, gone))


def test_an_environment_that_cannot_be_made_in_a_worker_says_why():
    with pytest.raises(TaskError, match=r"(?s)StubNever-v0, has failed.*unexpected keyword argument|TypeError"):
        Workers(gymnasium.spec("StubNever-v0"), {}, [lambda environment: stubs.fail(environment)], 2, 1)


def test_a_task_goes_on_with_new_workers_after_an_error(task, monkeypatch):  # noqa: F811
    one = task("StubNever-v0", vectorization="async")
    np.testing.assert_array_equal(played(one)[0], -45)
    first = pids(one._kept[1])
    np.testing.assert_array_equal(played(one)[0], -45)
    assert pids(one._kept[1]) == first
    os.kill(first[-1], signal.SIGKILL)
    with pytest.raises(TaskError, match="SIGKILL"):
        played(one)
    assert one._kept is None
    assert all(map(is_gone, first))
    np.testing.assert_array_equal(played(one)[0], -45)


def test_an_interruption_ends_the_workers(task):  # noqa: F811
    one = task("StubNever-v0", vectorization="async")
    played(one)
    gone = pids(one._kept[1])
    es, state, pert = asked(one)
    kept = one._kept[1]
    receive, calls = kept._answer, []

    def interrupt(worker):
        calls.append(worker)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return receive(worker)

    kept._answer = interrupt
    with pytest.raises(KeyboardInterrupt):
        one.evaluate(es, state, pert, jax.random.key(0))
    assert all(map(is_gone, gone))
    np.testing.assert_array_equal(played(one)[0], -45)


SCRIPT = """
import os, signal, sys, time
import gymnasium, jax, numpy as np
from gymnasium import spaces
import shardes
from shardes.tasks.gymnasium import make

class Mine(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        if END.startswith("SIG"):
            print("stepping", flush=True)
            time.sleep(600)
        return np.zeros(2, np.float32), 1.0, False, False, {}

END = sys.argv[1]
gymnasium.register("Mine-v0", Mine, max_episode_steps=3)
task = make("Mine-v0", vectorization="async")
es = shardes.ShardedES(shardes.LowRank(r=1), 4, sigma=0.1, lr=0.1)
pert, state = es.ask(es.init(jax.random.key(0), task.init(jax.random.key(0))))
workers = task._environments(4)
print(*(worker.process.pid for worker in workers._workers), flush=True)
print(task.evaluate(es, state, pert, jax.random.key(0)).sum(), flush=True)
if END == "error":
    raise ValueError("mine")
if END == "exit":
    os._exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["end", "error", "exit", "SIGINT", "SIGKILL"])
def test_workers_of_a_script_without_a_guard_end_with_it(tmp_path, end):
    """Of an environment of the script itself; killed while they are in the midst of a step."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, script, end],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    gone = [int(pid) for pid in process.stdout.readline().split()]
    if end.startswith("SIG"):
        assert process.stdout.readline().startswith("stepping")
        # As a terminal does, to all of the group.
        os.killpg(process.pid, signal.Signals[end])
    out, err = process.communicate(timeout=120)
    assert gone, err
    if not end.startswith("SIG"):
        assert out == "-12.0\n", err
        assert process.returncode == {"end": 0, "error": 1, "exit": 3}[end]
    assert err.count("Traceback") == (end in ("error", "SIGINT")), err
    assert all(map(is_gone, gone))
