"""The loss of a process of the run: how the others find it out, and what they then say and exit with."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator

import jax

__all__ = ["ADVICE", "EXIT_CODE", "ProcessLostError", "is_loss", "others_may_be_lost", "say_when_cut_off"]

EXIT_CODE = 75
"""What a process exits with that cannot go on without another: EX_TEMPFAIL of sysexits.h, try again."""

ADVICE = "Restart all from the last checkpoint."


class ProcessLostError(RuntimeError):
    """Another process of the run has died."""


def is_loss(error: BaseException) -> bool:
    """Whether an error is one by which JAX's collectives tell that another process is gone."""
    if isinstance(error, ProcessLostError):
        return True
    if jax.process_count() == 1:
        return False
    if isinstance(error, jax.errors.JaxRuntimeError):
        return not str(error).startswith("RESOURCE_EXHAUSTED")
    return isinstance(error, ValueError) and "Gloo" in str(error)


@contextlib.contextmanager
def others_may_be_lost() -> Iterator[None]:
    """Raise ProcessLostError for what JAX raises when another process is gone."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if not is_loss(error):
            raise
        raise ProcessLostError(
            f"Process {jax.process_index()} of {jax.process_count()} cannot go on, as when another has died. {ADVICE}"
        ) from error


def say_when_cut_off() -> Callable[[], None]:
    """Have a shell say on stderr that all must be restarted if this process ends without calling what is returned.

    JAX aborts a process from within when process 0 is gone, which no code of this process outlives.
    """
    if os.name != "posix":
        return lambda: None
    told, tell = os.pipe()
    text = f"shardes.distributed: process {jax.process_index()} of {jax.process_count()} was cut off. {ADVICE}"
    subprocess.Popen(
        ["/bin/sh", "-c", f'read -r _ || echo "{text}" >&2'],
        stdin=told,
        stdout=subprocess.DEVNULL,
        # A signal to all of a terminal or a job is not for it.
        start_new_session=True,
    )
    os.close(told)

    def well() -> None:
        with contextlib.suppress(OSError):
            os.write(tell, b"\n")

    return well
