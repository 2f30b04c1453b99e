"""Runs of many processes: `initialize` joins them, and `python -m shardes.distributed` starts some on this machine."""

from shardes.distributed.joining import initialize

__all__ = ["initialize"]
