"""What processes tell each other, with threads in their place; tests of many processes run the rest."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import processes

MEMBERS = [np.arange(0, 3), np.arange(3, 5), np.arange(5, 5)]


@pytest.fixture
def in_each(monkeypatch):
    """Runs a function of the process's number in all of three processes, and gives what each returns or raises."""
    count = len(MEMBERS)
    barrier, local = threading.Barrier(count, timeout=60), threading.local()
    given = [None] * count

    def exchange(value):
        given[local.process] = value
        barrier.wait()
        everyone = list(given)
        barrier.wait()
        return everyone

    monkeypatch.setattr(processes.multihost_utils, "process_allgather", lambda x: np.stack(exchange(x)))
    monkeypatch.setattr(processes.multihost_utils, "broadcast_one_to_all", lambda tree: exchange(tree)[0])
    monkeypatch.setattr(jax, "process_index", lambda: local.process)

    def run(function):
        results = [None] * count

        def of(process):
            local.process = process
            try:
                results[process] = function(process)
            except ValueError as error:
                results[process] = str(error)

        threads = [threading.Thread(target=of, args=(process,)) for process in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    return run


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_gather_puts_the_values_of_all_members_in_order(in_each, shape):
    everyone = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    for gathered in in_each(lambda process: processes.gather(everyone[MEMBERS[process]], MEMBERS)):
        np.testing.assert_array_equal(gathered, everyone)
        assert gathered.dtype == np.float32


def test_agreement(in_each):
    assert in_each(lambda process: processes.check_agreement({"n": "8", "lr": "0.1"})) == [None] * 3


@pytest.mark.parametrize("differs", [1, 2])
@pytest.mark.parametrize("name", ["n", "lr"])
def test_the_first_process_that_differs_is_named_in_all(in_each, differs, name):
    def check(process):
        processes.check_agreement({"n": "8", "lr": "0.1", **({name: "other"} if process == differs else {})})

    for process, said in enumerate(in_each(check)):
        here = "other" if process == differs else {"n": "8", "lr": "0.1"}[name]
        assert said == (
            f"{name} of process {differs} is not that of process 0; here, in process {process}, it is {here}. Every "
            "process must be given the same."
        )


LEAVES = [np.arange(6, dtype=np.int32).reshape(2, 3), np.array([0.1, np.nan], jnp.bfloat16), np.float32(-0.0)]


def test_what_the_first_has_all_get_to_the_last_bit(in_each):
    like = [jnp.zeros(np.shape(x), x.dtype) for x in LEAVES]
    for arrays, failure in in_each(lambda p: processes.from_first(None if p else LEAVES, "", like)):
        assert failure == ""
        for given, expected in zip(arrays, LEAVES, strict=True):
            assert (given.shape, given.dtype) == (np.shape(expected), expected.dtype)
            assert given.tobytes() == expected.tobytes()


@pytest.mark.parametrize("failure", ["", "No checkpoint: ä", "x" * 5000])
def test_why_the_first_has_none_all_are_told(in_each, failure):
    for arrays, told in in_each(lambda p: processes.from_first(None, "" if p else failure, [jnp.zeros(2)])):
        assert arrays is None
        assert told == failure[:4096]
