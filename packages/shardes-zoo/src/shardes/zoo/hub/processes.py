"""One process of a run does what all need, then the others do their part."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax

from shardes.zoo.errors import HubError

__all__ = ["first_of_all_processes"]

# A day: how long the first may download. One that has died ends the others by the heartbeat of jax.distributed.
_PATIENCE_MS = 24 * 60 * 60 * 1000
_calls = itertools.count()


def first_of_all_processes[T](first: Callable[[], T], told: Callable[[T], str], others: Callable[[str], T]) -> T:
    """Run `first` in process 0, then `others` in every other, with what `told` says of the first's result.

    Every process of the run must call it, in the same order. An error of the first is raised in all.
    """
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return first()
    store = _store()
    key = f"shardes.zoo/{next(_calls)}"
    if jax.process_index() == 0:
        message = "-process 0 was interrupted."
        try:
            result = first()
            message = f"+{told(result)}"
            return result
        except Exception as error:
            message = f"-{error}"
            raise
        finally:
            store.key_value_set(key, message)
    message = store.blocking_key_value_get(key, _PATIENCE_MS)
    if message[0] == "-":
        raise HubError(f"Process 0 failed to fetch for all: {message[1:]}")
    return others(message[1:])


def _store() -> Any:
    # Collectives of the backend would time out under a long download.
    from jax._src import distributed

    return distributed.global_state.client
