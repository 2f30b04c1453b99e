"""Callbacks of `shardes.fit`: what watches a run, writes it down, and ends it."""

from shardes.callbacks.base import Callback, Run
from shardes.callbacks.checkpoint import Checkpoint
from shardes.callbacks.early_stop import EarlyStop
from shardes.callbacks.jsonl_log import JSONLLog
from shardes.callbacks.progress import Progress
from shardes.callbacks.storage import CheckpointError
from shardes.callbacks.tensorboard import TensorBoard

__all__ = ["Callback", "Checkpoint", "CheckpointError", "EarlyStop", "JSONLLog", "Progress", "Run", "TensorBoard"]
