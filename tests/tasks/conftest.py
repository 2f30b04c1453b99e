"""What the tests of several suites share."""

import jax
import pytest


@pytest.fixture(scope="module")
def not_strict():
    """For simulators whose own code mixes dtypes and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
