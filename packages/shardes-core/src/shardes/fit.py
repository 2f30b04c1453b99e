"""The training loop: generations of one compiled program, watched by callbacks."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes.arguments import check_state
from shardes.callbacks.base import Callback, Run
from shardes.counts import is_count
from shardes.distributed.loss import others_may_be_lost
from shardes.es import ShardedES
from shardes.generation import Generation, History, Summary
from shardes.interruption import Interruption
from shardes.program import Program
from shardes.state import ESState

__all__ = ["fit"]

# Generations that the host may be ahead of the devices.
_AHEAD = 2


def fit(
    es: ShardedES,
    state: ESState,
    task: Any,
    *,
    data: Any = None,
    generations: int,
    callbacks: Sequence[Callback | Callable[[Generation], Any]] = (),
) -> tuple[ESState, History]:
    """Train until `generations` generations are done, those of the state before it counted.

    The host hands generations out, at most two ahead of the devices, and waits for nothing that no callback asks for.
    Ctrl-C, SIGTERM or a terminal that hangs up ends the run after the generation that is running, callbacks and all;
    after SIGTERM the process then exits with 143, after SIGHUP with 129. A second one ends it at once. In a run of many
    processes every process calls `fit` alike, and what ends it in one ends it in all, a few generations later.

    Args:
        es: the evolution strategy.
        state: where to begin; it is copied, so that it may be used afterwards.
        task: a loss `(params, batch) -> fitness`, pure, or without data `params -> fitness`. Or a task with a method
            `evaluate(es, state, pert, key) -> fitness`, or `play(es, state, pert, key) -> (fitness, state)` where it
            changes frozen params as well; it is jitted unless its attribute `on_host` is true.
        data: the batch of every generation: arrays, of which a list is one batch, a function of the generation's
            number, or an iterator, which gives one a generation and at its end ends the run. In a run of many
            processes all give the same.
        generations: at which to end.
        callbacks: of `shardes.callbacks`, or functions of a `Generation`; one that returns True ends the run.

    Returns:
        The state, and the history of this call.

    Raises:
        TypeError, ValueError: an argument is not one of these.
        shardes.distributed.ProcessLostError: another process of the run has died.
        SystemExit: after SIGTERM and SIGHUP.
    """
    check_state(state)
    if not is_count(generations):
        raise ValueError(f"generations must be an integer of at least 1, got {generations!r}: the number to end at.")
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks must be a list, got {callbacks!r}. Put it in brackets.")
    watchers = [one if isinstance(one, Callback) else _Function(one) for one in callbacks]
    run = Run(es, jax.tree.map(jnp.copy, state), generations, watchers)
    program, batches = _program(es, task), _batches(data, int(state.generation))
    summaries: list[Summary] = []
    started = 0
    with Interruption() as interruption:
        try:
            for watcher in watchers:
                started += 1
                watcher.start(run)
            run.ended = _train(run, program, batches, watchers, interruption, summaries)
        except BaseException:
            run.ended = "error"
            raise
        finally:
            _end(watchers[:started], run)
    if interruption.received is not None and interruption.received != signal.SIGINT:
        sys.exit(128 + interruption.received)
    return run.state, History.of(summaries, run.ended)


def _train(
    run: Run,
    program: Program,
    batches: Iterator[tuple[Any, ...]],
    callbacks: Sequence[Callback],
    interruption: Interruption,
    summaries: list[Summary],
) -> str:
    """Go through generations, until the reason that is returned."""
    pending: deque[Generation] = deque()
    reason: str | None = None
    start = time.perf_counter()
    with others_may_be_lost():
        for number in range(int(run.state.generation), run.generations):
            batch = next(batches, None)
            if batch is None:
                reason = "data"
                break
            run.state, fitness, numbers = program(run.state, batch, reason is not None)
            pending.append(Generation(number, run.state, fitness, numbers, start))
            for callback in callbacks:
                if callback.generation(pending[-1]):
                    reason = reason or "callback"
            if interruption.received is not None:
                reason = signal.Signals(interruption.received).name
            over = reason is not None and not program.is_of_many
            if len(pending) > _AHEAD:
                generation = pending.popleft()
                summaries.append(generation.summary)
                # What any process of many wants, all see here in the same generation.
                over = over or generation.wants_end
            if over:
                reason = reason or "another process"
                break
        else:
            reason = "generations"
        summaries += [generation.summary for generation in pending]
    return reason


class _Function(Callback):
    """A function of a generation."""

    def __init__(self, function: Callable[[Generation], Any]) -> None:
        if not callable(function):
            raise TypeError(f"A callback must be a shardes.callbacks.Callback or a function, got {function!r}.")
        self.function = function

    def generation(self, generation: Generation) -> bool:
        # What a function happens to return, such as an array, is no wish to end.
        return self.function(generation) is True


def _program(es: ShardedES, task: Any) -> Program:
    """The program of a task, compiled once an evolution strategy."""
    if not callable(task) and not hasattr(task, "evaluate") and not hasattr(task, "play"):
        raise TypeError(f"task must be a loss, or have a method evaluate or play, got {task!r}.")
    if not isinstance(task, Hashable):
        raise TypeError(
            f"task must be hashable, got {task!r}. Of a dataclass, make it one with frozen=True or eq=False."
        )
    programs: dict[Any, Program] = es._programs
    if task not in programs:
        programs[task] = Program(es, task)
    return programs[task]


def _batches(data: Any, first: int) -> Iterator[tuple[Any, ...]]:
    """The arguments after the params, generation by generation."""
    if data is None:
        return itertools.repeat(())
    if isinstance(data, Iterator):
        return ((batch,) for batch in data)
    if callable(data):
        return ((data(number),) for number in itertools.count(first))
    for leaf in jax.tree.leaves(data):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | bool):
            raise TypeError(
                f"data must be arrays, a function of the generation, or an iterator, got {type(leaf).__name__}. Of "
                "something to iterate over, pass iter(...)."
            )
    return itertools.repeat((jax.tree.map(jnp.asarray, data),))


def _end(callbacks: Sequence[Callback], run: Run) -> None:
    """End every callback, even where one raises."""
    if callbacks:
        try:
            callbacks[0].end(run)
        finally:
            _end(callbacks[1:], run)
