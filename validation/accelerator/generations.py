"""Whole generations of models with random weights on one device, and plain inference of as many sequences."""

from typing import Any

import jax
import jax.numpy as jnp

import shardes
from shardes.zoo import byte_transformer, qwen2
from shardes.zoo.fields import Fields
from validation.measuring import device, in_turn

STRATEGIES = {"LowRank(1)": shardes.LowRank(r=1), "SeedRegenerated": shardes.SeedRegenerated()}
QWEN2_05B = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
"""config.json of Qwen2.5-0.5B, as far as the zoo reads it."""
TINY = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1}  # fmt: skip


def measure(
    model: str, strategy: str, n: int, sequences: int, seq: int, repeats: int, tiny: bool
) -> list[dict[str, Any]]:
    """One row: bfloat16 compute over a float32 master, every member on the same `sequences`."""
    params, vocabulary, nll = {"byte transformer": small, "qwen2 0.5B": large}[model](tiny)
    ids = jax.random.randint(jax.random.key(2), (sequences, seq + 1), 0, vocabulary, jnp.int32)
    es = shardes.ShardedES(
        shardes.Mirrored(STRATEGIES[strategy]),
        n,
        sigma=1e-3,
        lr=1e-3,
        mesh=shardes.make_mesh(jax.devices()[:1]),
        compute_dtype=jnp.bfloat16,
    )
    state, program = es.init(jax.random.key(0), params), es.step(lambda params, ids: nll(params, ids).mean())
    step: Any = program.lower(state, ids).compile()
    every = jnp.tile(ids, (n, 1))
    plain = jax.jit(nll).lower(params, every).compile()

    def generation() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(step(state, ids))

    sides = {"generation": generation, "inference": lambda: jax.block_until_ready(plain(params, every))}
    seconds = in_turn(sides, repeats)
    stats = jax.devices()[0].memory_stats() or {}
    tokens = n * sequences * seq
    return [
        {
            "device": device(),
            "model": model,
            "params": sum(x.size for x in jax.tree.leaves(params)),
            "strategy": strategy,
            "n": n,
            "sequences": sequences,
            "seq": seq,
            "repeats": repeats,
            "seconds": seconds,
            "tokens_per_s": {name: tokens / own for name, own in seconds.items()},
            "speed": 100 * seconds["inference"] / seconds["generation"],
            "memory": {
                "state": sum(x.nbytes for x in jax.tree.leaves(state)),
                "temporary": step.memory_analysis().temp_size_in_bytes,
                "peak_of_process": stats.get("peak_bytes_in_use"),
            },
        }
    ]


def small(tiny: bool) -> tuple[Any, int, Any]:
    """A byte transformer of 10 million params: (params, size of the vocabulary, nll)."""
    sizes = {"d_model": 16, "n_layers": 2, "d_ff": 32} if tiny else {"d_model": 384, "n_layers": 6, "d_ff": 1024}
    config = byte_transformer.Config(n_heads=2 if tiny else 6, n_kv_heads=2, context=256, **sizes)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), byte_transformer.init(jax.random.key(1), config))
    return params, 256, lambda params, ids: byte_transformer.nll(params, ids, config)


def large(tiny: bool) -> tuple[Any, int, Any]:
    """Qwen2.5-0.5B's shape."""
    fields = QWEN2_05B | (TINY if tiny else {})
    config = qwen2.ARCHITECTURE.config(Fields(fields, "config.json"))
    params: dict[str, Any] = {}
    for i, tensor in enumerate(qwen2.ARCHITECTURE.tensors(config)):
        shape = tensor.shape if tensor.layers is None else (tensor.layers, *tensor.shape)
        at = params
        for key in tensor.leaf[:-1]:
            at = at.setdefault(key, {})
        scale = 0.02 * jax.random.normal(jax.random.key(i), shape, jnp.bfloat16)
        at[tensor.leaf[-1]] = scale if len(tensor.shape) > 1 else 1 + scale
    params["blocks"] = shardes.Stacked(params["blocks"])
    return params, fields["vocab_size"], lambda params, ids: qwen2.nll(params, ids, config)
