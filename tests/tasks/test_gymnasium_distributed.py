"""Runs of real processes, each of which steps its own members: the bits of one process."""

import pytest

from tests.core.test_distributed import run

from . import many_processes


@pytest.mark.slow
def test_many_processes_are_bitwise_one():
    """Two of four devices against this one of eight; of the smaller population, one has no member."""
    code, lines, err = run(2, 4, "-m", "tests.tasks.many_processes")
    assert code == 0, err
    alone = [" ".join(map(str, (*case, many_processes.trained(*case)))) for case in many_processes.RUNS]
    names = tuple(name for name, *_ in many_processes.RUNS)
    assert [[line for line in of_one if line.startswith(names)] for of_one in lines] == [alone, alone]
