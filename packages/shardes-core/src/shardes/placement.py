"""Where the update is contracted, and the measurement that decides it for `how="auto"`."""

from __future__ import annotations

import dataclasses
import logging
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

__all__ = ["How", "Measurement", "Placement"]

How = Literal["A", "B"]

_ROUNDS = 5
_logger = logging.getLogger("shardes")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Seconds of the same program under both placements, and the faster one."""

    how: How
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        other = "B" if self.how == "A" else "A"
        ratio = self.seconds[other] / self.seconds[self.how]
        return f'how="auto" takes "{self.how}", which is {ratio:.2f} times as fast as "{other}" here'


class Placement:
    """The placement of an evolution strategy: what it was given, or under "auto" the faster, once that is measured."""

    def __init__(self, how: Literal["A", "B", "auto"]) -> None:
        self.how: How | None = None if how == "auto" else how
        self.measurement: Measurement | None = None

    def program[**P, T](self, under: Callable[[How], Callable[P, T]]) -> Callable[P, T]:
        """A compiled program by its placement, as one that runs where it is to. The first call measures, if it must.

        It is not to be called inside `jax.jit` before that.
        """
        if self.how is not None:
            return under(self.how)
        programs: dict[How, Callable[P, T]] = {"A": under("A"), "B": under("B")}

        def run(*args: P.args, **named: P.kwargs) -> T:
            if self.how is None:
                self._measure(programs, args, named)
            assert self.how is not None
            return programs[self.how](*args, **named)

        return run

    def _measure(self, programs: Mapping[How, Callable[..., Any]], args: Any, named: Any) -> None:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, named))):
            raise ValueError(
                'how="auto" times both placements on real arrays, and is asked inside a traced function. Call es.tell, '
                'es.step or shardes.fit once outside jax.jit, or give how="A" or "B".'
            )
        seconds: dict[str, list[float]] = {how: [] for how in programs}
        for _ in range(1 + _ROUNDS):
            for how, program in programs.items():
                # A program may take the memory of what it is given.
                given = jax.block_until_ready(
                    jax.tree.map(lambda x: jnp.copy(x) if isinstance(x, jax.Array) else x, (args, named))
                )
                start = time.perf_counter()
                jax.block_until_ready(program(*given[0], **given[1]))
                seconds[how].append(time.perf_counter() - start)
        # The first round compiles.
        medians = {how: statistics.median(times[1:]) for how, times in seconds.items()}
        if jax.process_count() > 1:
            medians = {how: float(s) for how, s in multihost_utils.broadcast_one_to_all(medians).items()}
        self.how = "A" if medians["A"] <= medians["B"] else "B"
        self.measurement = Measurement(self.how, medians)
        _logger.info("%s", self.measurement)
