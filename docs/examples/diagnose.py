"""A run whose perturbation drowns in bfloat16, and what `shardes.diagnose` says of it."""

import jax
import jax.numpy as jnp

import shardes
from shardes.zoo import transformer_block

params = transformer_block.init(jax.random.key(0), d_model=16)
batch = transformer_block.make_batch(
    jax.random.key(1), d_model=16, batch=2, seq=4
)
es = shardes.ShardedES(
    shardes.Mirrored(shardes.SeedRegenerated()),
    n=32,
    sigma=1e-4,
    lr=1e-4,
    compute_dtype=jnp.bfloat16,
)
diagnosis = shardes.diagnose(
    es, es.init(jax.random.key(2), params), transformer_block.loss, batch
)
print(diagnosis)
