"""A run whose perturbation drowns in bfloat16, and what `shardes.diagnose` says of it."""

import jax
import jax.numpy as jnp

import shardes
from shardes.zoo import transformer_block

key = jax.random.key(0)
params = transformer_block.init(key, d_model=16)
batch = transformer_block.make_batch(key, d_model=16, batch=2, seq=4)
es = shardes.ShardedES(
    shardes.Mirrored(shardes.SeedRegenerated()),
    n=32,
    sigma=1e-4,
    lr=1e-4,
    compute_dtype=jnp.bfloat16,
)
state = es.init(key, params)
diagnosis = shardes.diagnose(es, state, transformer_block.loss, batch)
print(diagnosis)
