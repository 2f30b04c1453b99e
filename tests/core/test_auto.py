"""`how="auto"` times both placements on the real program, keeps the faster, and says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import placement
from shardes.callbacks import Progress

from .programs import collectives_in
from .support import IDS, assert_identical, loss, make_es, make_params


class Clock:
    """Time that passes when a program says so."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(placement, "time", clock)
    return clock


def timed(clock, seconds):
    """Programs of both placements that take given seconds, and the log of their calls."""
    calls = []

    def under(how):
        remaining = iter(seconds[how])

        def program(x):
            calls.append(how)
            clock.now += next(remaining)
            return x + (1.0 if how == "A" else 2.0)

        return program

    return under, calls


@pytest.mark.parametrize(
    ("a", "b", "faster", "ratio"),
    [
        # The first call compiles, and a slow one is no median.
        ([90, 2, 2, 2, 2, 50], [1, 3, 3, 3, 3, 3], "A", "1.50"),
        ([1, 3, 3, 3, 3, 3], [90, 1, 1, 1, 1, 50], "B", "3.00"),
        # The first does not count where it is fast, either.
        ([1, 3, 3, 3, 1, 1], [9, 2, 2, 2, 2, 2], "B", "1.50"),
        ([1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], "A", "1.00"),
    ],
)
def test_the_faster_is_kept(clock, a, b, faster, ratio, caplog):
    chosen = placement.Placement("auto")
    under, calls = timed(clock, {"A": [*a, 7, 7], "B": [*b, 7, 7]})
    program = chosen.program(under)
    with caplog.at_level("INFO", logger="shardes"):
        assert program(jnp.float32(0)) == (1 if faster == "A" else 2)
    other = "B" if faster == "A" else "A"
    said = f'how="auto" takes "{faster}", which is {ratio} times as fast as "{other}" here'
    assert str(chosen.measurement) == said
    assert said in caplog.text
    assert calls == ["A", "B"] * 6 + [faster]
    program(jnp.float32(0))
    assert calls[-1] == faster
    assert len(calls) == 14


def test_every_process_keeps_what_the_first_has_measured(clock, monkeypatch):
    measured = []

    def first(medians):
        measured.append(medians)
        return {"A": np.float32(3), "B": np.float32(2)}

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(placement.multihost_utils, "broadcast_one_to_all", first)
    chosen = placement.Placement("auto")
    under, calls = timed(clock, {"A": [1] * 7, "B": [2] * 7})
    chosen.program(under)(jnp.float32(0))
    assert measured == [{"A": 1, "B": 2}]
    assert chosen.measurement == placement.Measurement("B", {"A": 3, "B": 2})
    assert calls[-1] == "B"


@pytest.mark.parametrize("faster", ["A", "B"])
def test_all_programs_of_an_es_run_under_what_was_kept(faster):
    es = make_es("low_rank_1", 8, how="auto", lr=0.005, shaping=shardes.shaping.z_score)
    es._placement.how = faster
    reference = make_es("low_rank_1", 8, how=faster, lr=0.005, shaping=shardes.shaping.z_score)
    states = []
    for one in (es, reference):
        state, _ = one.step(loss)(one.init(jax.random.key(0), make_params()), IDS)
        pert, state = one.ask(state)
        state = one.tell(state, pert, one.apply(loss, state, pert)(IDS))
        state, _ = shardes.fit(one, state, loss, data=IDS, generations=3)
        states.append(jax.device_get(state))
    assert_identical(*states)


def test_the_real_programs_are_timed(capsys):
    """The two differ in their collectives, the measurement is of the step's own, and a donated state is not harmed."""
    es = make_es("low_rank_1", 8, how="auto")
    programs = {}
    original = es._placement._measure

    def measure(under, args, named):
        for how, program in under.items():
            programs[how] = collectives_in(program.lower(*args).compile())
        original(under, args, named)

    es._placement._measure = measure
    assert es.placement is None
    shardes.fit(
        es, es.init(jax.random.key(0), make_params()), loss, data=IDS, generations=2, callbacks=[Progress(every=0)]
    )
    assert programs["A"] != programs["B"]
    assert set(es.placement.seconds) == {"A", "B"}
    assert capsys.readouterr().err.splitlines()[0] == str(es.placement)


def test_inside_a_traced_function_there_is_nothing_to_time():
    es = make_es("low_rank_1", 8, how="auto")
    state = es.init(jax.random.key(0), make_params())

    @jax.jit
    def traced(state):
        pert, state = es.ask(state)
        return es.tell(state, pert, es.apply(loss, state, pert)(IDS))

    with pytest.raises(ValueError, match=r'how="auto" times both placements on real arrays, .* give how="A" or "B"'):
        traced(state)
    es.step(loss)(state, IDS)
    traced(es.init(jax.random.key(0), make_params()))


def test_a_deterministic_run_has_nothing_to_choose():
    es = make_es("low_rank_1", 8, how="auto", deterministic=True)
    es.step(loss)(es.init(jax.random.key(0), make_params()), IDS)
    assert es.placement is None
