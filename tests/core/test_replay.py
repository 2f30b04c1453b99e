"""A log of fitness rebuilds a run's params, is small, and is refused where it is not sound or not of the run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import ReplayError, ReplayLog

from .support import IDS, assert_identical, loss, make_es, make_params

GENERATIONS = 4


def make(devices=8, **options):
    return make_es("low_rank_1", 30, devices=devices, deterministic=True, **options)


def play(es, path, state, generations, step=None):
    step = step or es.step(loss)
    with ReplayLog(path, es, state) as log:
        for _ in range(generations):
            generation = int(state.generation)
            state, fitness = step(state, IDS)
            log.append(generation, fitness)
    return state


@pytest.fixture(scope="module")
def es():
    return make()


@pytest.fixture(scope="module")
def step(es):
    return es.step(loss)


@pytest.fixture
def played(es, step, tmp_path):
    """A log of four generations and the state after them."""
    state = play(es, tmp_path / "log", es.init(jax.random.key(5), make_params()), GENERATIONS, step)
    return tmp_path / "log", state


@pytest.mark.parametrize("devices", [1, 8])
def test_it_rebuilds_the_state_bitwise(played, devices):
    path, state = played
    other = make(devices)
    assert_identical(jax.device_get(shardes.replay(make_params(), ReplayLog(path, other))), jax.device_get(state))


def test_a_run_of_a_paper_fits_in_a_hundred_kilobytes(tmp_path):
    es = make_es("seed", 30, mirrored=False)
    state = es.init(jax.random.key(0), make_params())
    with ReplayLog(tmp_path / "log", es, state) as log:
        for generation in range(500):
            log.append(generation, np.zeros(30, np.float32))
    assert (tmp_path / "log").stat().st_size < 100_000
    assert sum(1 for _ in ReplayLog(tmp_path / "log", es)) == 500


def test_it_is_a_callback(es, played, tmp_path):
    path, state = played
    log = ReplayLog(tmp_path / "new" / "log", es, es.init(jax.random.key(5), make_params()))
    fit = functools.partial(shardes.fit, es, task=loss, data=IDS)
    half, _ = fit(es.init(jax.random.key(5), make_params()), generations=2, callbacks=[log])
    with pytest.raises(ReplayError, match=r"was opened to be read, and the run is at 2. Give it that state"):
        fit(half, generations=4, callbacks=[log])
    with pytest.raises(ReplayError, match=r"goes on with generation 0, and the run is at 2"):
        fit(half, generations=4, callbacks=[ReplayLog(tmp_path / "other", es, state._replace(generation=np.int32(0)))])
    fit(half, generations=4, callbacks=[ReplayLog(tmp_path / "new" / "log", es, half)])
    assert (tmp_path / "new" / "log").read_bytes() == path.read_bytes()


def test_groups_are_kept(tmp_path):
    es = make_es("seed", 4, shaping=shardes.shaping.group_relative)
    fitness = np.arange(12, dtype=np.float32).reshape(4, 3)
    with ReplayLog(tmp_path / "log", es, es.init(jax.random.key(0), make_params())) as log:
        log.append(0, fitness)
    np.testing.assert_array_equal(list(ReplayLog(tmp_path / "log", es)), [fitness])


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_torn_tail_is_dropped(es, played, cut):
    path, _ = played
    path.write_bytes(path.read_bytes()[:-cut])
    assert sum(1 for _ in ReplayLog(path, es)) == GENERATIONS - 1


def test_a_run_goes_on_where_it_was_resumed(es, step, played):
    """From the state after two generations: what came later is written anew, and the end is the unbroken run's."""
    path, state = played
    again = es.init(jax.random.key(5), make_params())
    for _ in range(2):
        again, _ = step(again, IDS)
    assert_identical(jax.device_get(play(es, path, again, 2, step)), jax.device_get(state))
    assert_identical(jax.device_get(shardes.replay(make_params(), ReplayLog(path, es))), jax.device_get(state))


@pytest.mark.parametrize("kept", [0, 20, 300])
def test_what_a_run_leaves_that_is_killed_at_once_is_no_obstacle(es, step, played, kept):
    path, state = played
    path.write_bytes(path.read_bytes()[:kept])
    state_again = play(es, path, es.init(jax.random.key(5), make_params()), GENERATIONS, step)
    assert_identical(jax.device_get(state_again), jax.device_get(state))


def test_a_run_that_begins_again_loses_nothing(es, step, played):
    """Generation 0 once more: what comes out the same stays, what does not goes, with all after it."""
    path, _ = played
    content = path.read_bytes()
    play(es, path, es.init(jax.random.key(5), make_params()), 2, step)
    assert path.read_bytes() == content
    with ReplayLog(path, es, es.init(jax.random.key(5), make_params())) as log:
        fitness = list(log)
        log.append(0, fitness[0])
        log.append(1, fitness[1] + 1)
    np.testing.assert_array_equal(list(ReplayLog(path, es)), [fitness[0], fitness[1] + 1])


def test_a_log_of_something_else_is_not_overwritten(es, played):
    path, _ = played
    with pytest.raises(ReplayError, match=r"is of a run with another key. Move it away"):
        ReplayLog(path, es, es.init(jax.random.key(6), make_params()))
    with pytest.raises(ReplayError, match=r"is of a run from other params. Move it away"):
        ReplayLog(path, es, es.init(jax.random.key(5), make_params(seed=1)))
    path.write_text("a diary\n")
    with pytest.raises(ReplayError, match="does not begin as a replay log"):
        ReplayLog(path, es, es.init(jax.random.key(5), make_params()))
    assert path.read_text() == "a diary\n"


def test_damage_before_the_end_is_refused(es, played):
    path, _ = played
    content = bytearray(path.read_bytes())
    content[content.index(b"\n") + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(ReplayError, match="damaged at generation 0, and records follow"):
        list(ReplayLog(path, es))


def test_records_out_of_order_are_refused(es, played):
    path, _ = played
    begin, size = path.read_bytes().index(b"\n") + 1, 8 + 4 * 30
    content = path.read_bytes()
    records = [content[i : i + size] for i in range(begin, len(content), size)]
    path.write_bytes(content[:begin] + records[0] + records[2] + records[1] + records[3])
    with pytest.raises(ReplayError, match="damaged at generation 1, and records follow"):
        list(ReplayLog(path, es))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lr": 0.2}, "lr is 0.1 there, and 0.2 here. Go on"),
        ({"sigma": 0.2}, "sigma is 0.1 there, and 0.2"),
        (
            {"shaping": shardes.shaping.z_score},
            "shaping is shardes.shaping.centered_ranks there, and",
        ),
        ({"freeze": lambda path: path == "gain"}, "freeze is"),
        ({"compute_dtype": jnp.bfloat16}, "compute_dtype is None there, and bfloat16 here"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_another_configuration_is_refused(played, options, text):
    with pytest.raises(ReplayError, match="is of another configuration: .*" + text):
        ReplayLog(played[0], make(**options))


def test_another_strategy_key_population_or_params_are_refused(es, played):
    path, _ = played
    with pytest.raises(ReplayError, match=r"strategy is .*r=1\)\) there, and .*r=4\)\) here"):
        ReplayLog(path, make_es("low_rank_4", 30, deterministic=True))
    with pytest.raises(ReplayError, match="does not begin as a replay log of 28 members does"):
        ReplayLog(path, make_es("low_rank_1", 28, deterministic=True))
    state = es.init(jax.random.key(6), make_params())
    with pytest.raises(ReplayError, match="another key"):
        ReplayLog(path, es, state._replace(generation=jnp.int32(2)))
    with pytest.raises(ReplayError, match=r"not those that the run of .* began with"):
        shardes.replay(make_params(seed=1), ReplayLog(path, es))
    state = es.init(jax.random.key(5), make_params())
    with pytest.raises(ReplayError, match="has 4 generations, and the state is at generation 9"):
        ReplayLog(path, es, state._replace(generation=jnp.int32(9)))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"[1]\n", b"\xff\n", b'{"format": "shardes replay 1"}\n', b"x" * 9]
)
def test_what_is_no_log_is_refused(es, tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(ReplayError, match="does not begin as a replay log of 30 members does"):
        ReplayLog(tmp_path / "log", es)
    with pytest.raises(ReplayError, match="cannot be read"):
        ReplayLog(tmp_path / "none", es)


def test_generations_are_appended_in_order(es, played):
    path, state = played
    with ReplayLog(path, es, state) as log:
        with pytest.raises(ReplayError, match="goes on with generation 4, got 7"):
            log.append(7, np.zeros(30))
        with pytest.raises(ReplayError, match=r"has fitness of shape \(30,\), got \(31,\)"):
            log.append(4, np.zeros(31))
    with pytest.raises(ReplayError, match="opened to be read"):
        ReplayLog(path, es).append(4, np.zeros(30))
