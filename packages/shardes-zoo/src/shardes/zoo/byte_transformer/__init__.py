"""A decoder over bytes: RMSNorm, RoPE, SwiGLU, grouped-query attention, tied embedding, layers stacked and scanned."""

from shardes.zoo.byte_transformer.config import Config
from shardes.zoo.byte_transformer.modeling import init, logits, loss, nll
from shardes.zoo.byte_transformer.sampling import sample

__all__ = ["Config", "init", "logits", "loss", "nll", "sample"]
