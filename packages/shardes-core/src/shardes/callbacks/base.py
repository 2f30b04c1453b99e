"""What a callback is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from shardes.generation import Generation
from shardes.state import ESState

if TYPE_CHECKING:
    from shardes.es import ShardedES

__all__ = ["Callback", "Run", "is_writer"]


@dataclasses.dataclass
class Run:
    """A run of `shardes.fit`.

    Attributes:
        es: the evolution strategy.
        state: after the last generation that was begun.
        generations: the number at which it ends.
        callbacks: all of them.
        ended: why it has ended, as `History.ended` says; "error" when something raised; None while it runs.
    """

    es: ShardedES
    state: ESState
    generations: int
    callbacks: Sequence[Callback] = ()
    ended: str | None = None


class Callback:
    """Base of callbacks, whose methods do nothing. Any function of a `Generation` is a callback as well.

    In a run of many processes every process calls its own: what writes should do so where `is_writer()`.
    """

    def start(self, run: Run) -> None:
        """Before the first generation."""

    def generation(self, generation: Generation) -> bool | None:
        """After a generation was begun, whose numbers need not be there yet. True ends the run."""
        return None

    def flush(self) -> None:
        """Write what is still to be written of generations that were begun, since their state is being saved."""

    def end(self, run: Run) -> None:
        """After the last generation, whatever ended the run."""


def is_writer() -> bool:
    """Whether this process is the one that writes logs and checkpoints: process 0."""
    return jax.process_index() == 0
