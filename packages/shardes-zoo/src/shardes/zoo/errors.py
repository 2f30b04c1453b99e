"""What the zoo raises, so that one `except` catches all of it."""

__all__ = ["CheckpointError", "HubError", "ZooError"]


class ZooError(Exception):
    """A model cannot be had, with what was found, what is required and what to do about it."""


class CheckpointError(ZooError):
    """A checkpoint's files are not what they must be: config, weights or tokenizer."""


class HubError(ZooError):
    """A repository or a file of it cannot be had from the Hub or its cache."""
