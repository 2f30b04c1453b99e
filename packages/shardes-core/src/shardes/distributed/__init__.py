"""Runs of many processes: `initialize` joins them, and `python -m shardes.distributed` starts some on this machine."""

from shardes.distributed.joining import initialize
from shardes.distributed.loss import ProcessLostError

__all__ = ["ProcessLostError", "initialize"]
