"""`fit` is a loop over `step`: the same states, watched without waiting, ended when asked."""

import contextlib
import dataclasses
import functools
import io
import os
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.callbacks import Callback

from .support import IDS, assert_identical, loss, make_es, make_params


@pytest.fixture(scope="module")
def es():
    return make_es("low_rank_1", 30, deterministic=True)


@functools.cache
def data(generation):
    return np.roll(IDS, generation)


def first(es, key=5):
    return es.init(jax.random.key(key), make_params())


@pytest.fixture(scope="module")
def played(es):
    """States, and fitness, of six generations of `step`."""
    step, state, states, fitness = es.step(loss), first(es), [], []
    for generation in range(6):
        state, losses = step(state, data(generation))
        states.append(jax.device_get(state))
        fitness.append(np.asarray(losses))
    return states, fitness


class Recorder(Callback):
    def __init__(self, end_at=None):
        self.end_at = end_at
        self.calls = []
        self.states = {}
        self.over = []
        self.seen = []

    def start(self, run):
        self.calls.append("start")

    def generation(self, generation):
        self.calls.append(generation.number)
        self.states[generation.number] = jax.device_get(generation.state)
        self.seen.append(generation)
        self.over.append([one.is_over for one in self.seen])
        return generation.number == self.end_at

    def end(self, run):
        self.calls.append(run.ended)


def test_it_is_the_loop_over_step(es, played):
    states, fitness = played
    recorder, begin = Recorder(), first(es)
    state, _ = shardes.fit(es, begin, loss, data=data, generations=6, callbacks=[recorder])
    assert_identical(jax.device_get(state), states[-1])
    for generation, expected in enumerate(states):
        assert_identical(recorder.states[generation], expected)
    assert recorder.calls == ["start", *range(6), "generations"]
    for generation, seen in enumerate(recorder.seen):
        np.testing.assert_array_equal(seen.fitness, fitness[generation])
    # What was given is still there.
    assert_identical(jax.device_get(begin), jax.device_get(first(es)))


def test_the_history_is_that_of_the_fitness(es, played):
    states, fitness = played
    _, history = shardes.fit(es, first(es), loss, data=data, generations=6)
    assert len(history) == 6
    assert history.ended == "generations"
    np.testing.assert_array_equal(history.generation, range(6))
    for name, of in {"mean": np.mean, "best": np.min, "std": np.std}.items():
        np.testing.assert_allclose(getattr(history, name), [of(f.astype(np.float64)) for f in fitness], rtol=1e-5)
    before = [jax.device_get(first(es)), *states[:-1]]

    def norm(tree):
        leaves = [x for x in jax.tree.leaves(tree) if np.issubdtype(x.dtype, np.floating)]
        return np.sqrt(sum(np.sum(np.square(x, dtype=np.float64)) for x in leaves))

    ratios = [
        norm(jax.tree.map(lambda a, b: a - b, new.params, old.params)) / norm(old.params)
        for new, old in zip(states, before, strict=True)
    ]
    np.testing.assert_allclose(history.update_ratio, ratios, rtol=1e-5)
    np.testing.assert_array_equal(history.non_finite, 0)
    assert (np.diff(history.seconds) >= 0).all()


def test_members_that_are_not_finite_are_counted_and_left_out(es, played):
    limit = float(np.median(played[1][0]))

    def broken(params, ids):
        value = loss(params, ids)
        return jnp.where(value > limit, jnp.nan, value)

    fitness = []
    _, history = shardes.fit(
        es, first(es), broken, data=IDS, generations=2, callbacks=[lambda g: fitness.append(np.asarray(g.fitness))]
    )
    finite = [f[np.isfinite(f)] for f in fitness]
    assert all(0 < len(f) < 30 for f in finite)
    np.testing.assert_array_equal(history.non_finite, [30 - len(f) for f in finite])
    np.testing.assert_allclose(history.mean, [f.mean() for f in finite], rtol=1e-5)
    np.testing.assert_allclose(history.best, [f.min() for f in finite])
    np.testing.assert_allclose(history.std, [f.std() for f in finite], rtol=1e-5)
    _, history = shardes.fit(es, first(es), lambda params, ids: loss(params, ids) * jnp.nan, data=IDS, generations=1)
    assert np.isnan([history.mean[0], history.best[0], history.std[0]]).all()
    assert history.non_finite[0] == 30


def test_groups_count_as_their_mean():
    es = make_es("seed", 4, shaping=shardes.shaping.group_relative)
    fitness = []

    def losses(params, ids):
        return jnp.stack([loss(params, ids), 2 * loss(params, ids)])

    _, history = shardes.fit(
        es, first(es), losses, data=IDS, generations=1, callbacks=[lambda g: fitness.append(np.asarray(g.fitness))]
    )
    assert fitness[0].shape == (4, 2)
    np.testing.assert_allclose(history.best, fitness[0].mean(axis=1).min(), rtol=1e-5)


def test_it_waits_for_no_generation_but_the_last_but_two(es):
    recorder = Recorder()
    recorder.states = type("Nothing", (dict,), {"__setitem__": lambda *_: None})()
    shardes.fit(es, first(es), loss, data=data, generations=6, callbacks=[recorder])
    for number, over in enumerate(recorder.over):
        assert over == [one < number - 2 for one in range(number + 1)]


def test_a_generation_is_compiled_once(es):
    traced = []

    def counted(params, ids):
        traced.append(1)
        return loss(params, ids)

    state, _ = shardes.fit(es, first(es), counted, data=data, generations=3)
    once, program = len(traced), es._programs[counted]
    state, _ = shardes.fit(es, state, counted, data=data, generations=6)
    assert len(traced) == once
    assert es._programs[counted] is program
    assert int(state.generation) == 6


def test_a_run_goes_on_from_its_state(es, played):
    state, history = shardes.fit(es, first(es), loss, data=data, generations=4)
    state, history = shardes.fit(es, state, loss, data=data, generations=6)
    assert_identical(jax.device_get(state), played[0][-1])
    np.testing.assert_array_equal(history.generation, [4, 5])
    again, history = shardes.fit(es, state, loss, data=data, generations=6)
    assert_identical(jax.device_get(again), played[0][-1])
    assert len(history) == 0


@pytest.mark.parametrize(
    "kind", ["function", "iterator", "arrays"], ids=["a function", "an iterator", "the same arrays"]
)
def test_kinds_of_data(es, kind):
    given = {"function": lambda g: IDS, "iterator": iter([IDS] * 3), "arrays": IDS}[kind]
    state, _ = shardes.fit(es, first(es), loss, data=given, generations=3)
    reference, _ = shardes.fit(es, first(es), lambda params: loss(params, IDS), generations=3)
    assert_identical(jax.device_get(state), jax.device_get(reference))


def test_a_run_ends_with_its_data(es):
    state, history = shardes.fit(es, first(es), loss, data=iter([IDS] * 4), generations=10)
    assert (int(state.generation), len(history), history.ended) == (4, 4, "data")


def test_what_can_only_be_iterated_over_is_no_data(es):
    with pytest.raises(TypeError, match=r"data must be arrays, a function .* got range. Of something to iterate over"):
        shardes.fit(es, first(es), loss, data=range(3), generations=10)


def test_a_callback_ends_a_run(es, played):
    recorder = Recorder(end_at=2)
    state, history = shardes.fit(es, first(es), loss, data=data, generations=6, callbacks=[recorder])
    assert_identical(jax.device_get(state), played[0][2])
    assert recorder.calls == ["start", 0, 1, 2, "callback"]
    assert (len(history), history.ended) == (3, "callback")
    _, history = shardes.fit(es, first(es), loss, data=data, generations=6, callbacks=[lambda g: g.number == 4])
    assert len(history) == 5
    _, history = shardes.fit(es, first(es), loss, data=data, generations=6, callbacks=[lambda g: g.fitness])
    assert len(history) == 6


def test_callbacks_end_whatever_happens(es):
    class Broken(Callback):
        def generation(self, generation):
            raise OSError("the disk is full")

        def end(self, run):
            raise RuntimeError("this too")

    before, after = Recorder(), Recorder()
    with pytest.raises(RuntimeError, match="this too"):
        shardes.fit(es, first(es), loss, data=data, generations=6, callbacks=[before, Broken(), after])
    assert before.calls == ["start", 0, "error"]
    assert after.calls == ["start", "error"]
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError):
        shardes.fit(es, first(es), loss, data=lambda g: IDS if g < 2 else 1 // 0, generations=6, callbacks=[recorder])
    assert recorder.calls == ["start", 0, 1, "error"]


@contextlib.contextmanager
def handlers_kept():
    """The handlers of signals after are those before, and ones of the test's own."""
    mine = {number: lambda *_: None for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: signal.signal(number, handler) for number, handler in mine.items()}
    try:
        yield
        assert {number: signal.getsignal(number) for number in mine} == mine
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def kill_at(generation, number, times=1):
    def callback(one):
        if one.number == generation:
            for _ in range(times):
                os.kill(os.getpid(), number)

    return callback


class Gone(io.StringIO):
    """A stderr whose terminal is gone."""

    def write(self, text):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("terminal", ["there", "gone"])
def test_a_signal_ends_a_run_with_its_state(es, played, monkeypatch, capsys, terminal):
    """One that comes at once again, as from a launcher, is the same one."""
    if terminal == "gone":
        monkeypatch.setattr("sys.stderr", Gone())
    recorder = Recorder()
    with handlers_kept():
        state, history = shardes.fit(
            es,
            first(es),
            loss,
            data=data,
            generations=6,
            callbacks=[kill_at(2, signal.SIGINT, times=2), recorder],
        )
    assert_identical(jax.device_get(state), played[0][2])
    assert (history.ended, recorder.calls[-1]) == ("SIGINT", "SIGINT")
    if terminal == "there":
        assert "SIGINT: the run ends after this generation" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_after_other_signals_the_process_exits(es, number, code):
    recorder = Recorder()
    with handlers_kept(), pytest.raises(SystemExit) as exit:
        shardes.fit(es, first(es), loss, data=data, generations=6, callbacks=[kill_at(1, number), recorder])
    assert exit.value.code == code
    assert recorder.calls == ["start", 0, 1, number.name]


def test_what_is_ignored_stays_so(es):
    """As by nohup."""
    with handlers_kept():
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        shown = []
        _, history = shardes.fit(
            es,
            first(es),
            loss,
            data=data,
            generations=6,
            callbacks=[kill_at(1, signal.SIGHUP), lambda _: shown.append(signal.getsignal(signal.SIGHUP))],
        )
        signal.signal(signal.SIGHUP, before)
    assert history.ended == "generations"
    assert set(shown) == {signal.SIG_IGN}


def test_handlers_are_given_back_when_something_raises(es):
    with handlers_kept(), pytest.raises(ZeroDivisionError):
        shardes.fit(es, first(es), loss, data=lambda generation: 1 // 0, generations=6)


def test_a_run_in_a_thread_leaves_signals_alone(es, played):
    states = []
    thread = threading.Thread(
        target=lambda: states.append(shardes.fit(es, first(es), loss, data=data, generations=6)[0])
    )
    with handlers_kept():
        thread.start()
        thread.join()
    assert_identical(jax.device_get(states[0]), played[0][-1])


@dataclasses.dataclass
class Unhashable:
    """A task as one might write it."""

    def evaluate(self, es, state, pert, key): ...


class Task:
    """A task that is no loss: its episodes come from the key."""

    def __init__(self, on_host):
        self.on_host = on_host
        self.keys = []

    def evaluate(self, es, state, pert, key):
        assert isinstance(key, jax.core.Tracer) != self.on_host
        if self.on_host:
            self.keys.append(np.asarray(jax.random.key_data(key)).tolist())
        ids = jax.random.randint(key, (2, 5), 0, 16)
        return es.apply(lambda params, ids: jnp.stack([loss(params, one) for one in ids]), state, pert)(ids)


def test_a_task_runs_in_the_program_or_on_the_host():
    es = make_es("low_rank_1", 6, deterministic=True, shaping=shardes.shaping.group_relative)
    inside, _ = shardes.fit(es, first(es), Task(on_host=False), generations=3)
    host = Task(on_host=True)
    outside, history = shardes.fit(es, first(es), host, generations=3)
    # Of two programs, which need not round alike.
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), inside, outside)
    assert len({tuple(key) for key in host.keys}) == 3
    assert len(history) == 3


class Counting:
    """A task that keeps in the frozen params how many members it has seen."""

    def __init__(self, on_host):
        self.on_host = on_host

    def play(self, es, state, pert, key):
        fitness = es.apply(lambda params: loss(params["model"], IDS), state, pert)()
        seen = state.params["seen"].tree + fitness.size
        return fitness, state._replace(params={**state.params, "seen": shardes.Frozen(seen)})


@pytest.mark.parametrize("on_host", [False, True])
def test_a_task_may_change_what_does_not_train(on_host):
    es = make_es("low_rank_1", 6, deterministic=True)
    state = es.init(jax.random.key(5), {"model": make_params(), "seen": shardes.Frozen(jnp.int32(0))})
    state, _ = shardes.fit(es, state, Counting(on_host), generations=3)
    assert int(state.params["seen"].tree) == 18
    assert (state.params["model"]["gain"] != make_params()["gain"]).all()


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"generations": 0}, ValueError, "generations must be an integer of at least 1, got 0"),
        ({"generations": 2.5}, ValueError, "generations must be an integer"),
        ({"task": 3}, TypeError, "task must be a loss, or have a method evaluate or play, got 3"),
        ({"task": Unhashable()}, TypeError, r"task must be hashable, got Unhashable\(\)\. .* frozen=True or eq=False"),
        ({"callbacks": Recorder()}, TypeError, "callbacks must be a list, got .*Recorder.* Put it in brackets"),
        ({"callbacks": ["progress"]}, TypeError, "A callback must be a .*Callback or a function, got 'progress'"),
        ({"state": 1}, TypeError, "state must be an ESState"),
    ],
)
def test_what_is_refused(es, options, kind, text):
    given = {"state": first(es), "task": loss, "data": IDS, "generations": 1, **options}
    with pytest.raises(kind, match=text):
        shardes.fit(es, given.pop("state"), given.pop("task"), **given)
