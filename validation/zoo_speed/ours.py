"""One task of the zoo, driven over pipes: report, then run once for every line on stdin."""

import json
import resource
import sys
import time

import jax
import jax.numpy as jnp

import shardes
from shardes import zoo

ask = json.loads(sys.argv[1])


def memory():
    """Peak resident bytes so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load():
    """How long loading takes and what it adds to the peak of memory, once."""
    jax.block_until_ready(jnp.zeros(1) + 1)
    import shardes.zoo.hub.fetching
    import shardes.zoo.loading  # noqa: F401

    before, start = memory(), time.perf_counter()
    jax.block_until_ready(zoo.load(ask["folder"]).params)
    return {"load_s": time.perf_counter() - start, "peak_bytes_over_baseline": memory() - before}


def compile_qwen2():
    """Compile seconds of a rank-1 generation of a Qwen2-shaped model, once."""
    from shardes.zoo import qwen2
    from shardes.zoo.fields import Fields

    fields = {
        "model_type": "qwen2",
        "hidden_act": "silu",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": ask["layers"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    }
    architecture = qwen2.ARCHITECTURE
    config = architecture.config(Fields(fields, "config.json"))
    params = {"blocks": {}}
    for tensor in architecture.tensors(config):
        shape = tensor.shape if tensor.layers is None else (tensor.layers, *tensor.shape)
        at = params
        for key in tensor.leaf[:-1]:
            at = at.setdefault(key, {})
        at[tensor.leaf[-1]] = jnp.ones(shape)
    params["blocks"] = shardes.Stacked(params["blocks"])
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n=16, sigma=1e-2, lr=1e-2)
    state = es.init(jax.random.key(0), params)
    step = es.step(lambda params, ids: architecture.nll(params, ids, config).mean())
    start = time.perf_counter()
    step.lower(state, jnp.zeros((2, 33), jnp.int32)).compile()
    return {"compile_s": time.perf_counter() - start}


def main():
    if ask["task"] in ("load", "compile"):
        print(json.dumps(load() if ask["task"] == "load" else compile_qwen2()), flush=True)
        return
    model = zoo.load(ask["folder"], dtype=jnp.float32)
    batch, prompt = ask["batch"], ask["prompt"]
    ids = jnp.arange(batch * prompt, dtype=jnp.int32).reshape(batch, prompt) % ask["ids"]
    options = {"max_new_tokens": ask["new_tokens"], "eos_token_id": None, "pad_token_id": 0}
    if ask["task"] == "prefill":
        logits = jax.jit(model.logits)
        run = lambda: logits(model.params, ids)  # noqa: E731
    elif ask["task"] == "decode":
        generate = jax.jit(lambda params, ids: model.generate(params, ids, **options))
        run = lambda: generate(model.params, ids)  # noqa: E731
    else:
        es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n=batch, sigma=1e-3, lr=1e-3)
        state = es.init(jax.random.key(0), model.params)
        pert, _ = es.ask(state)
        generate = jax.jit(
            lambda state, pert, ids: es.apply(
                lambda params, row: model.generate(params, row[None], **options)[0], state, pert, in_axes=0
            )(ids)
        )
        run = lambda: generate(state, pert, ids)  # noqa: E731
    jax.block_until_ready(run())
    print(json.dumps({"jax": jax.__version__}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        jax.block_until_ready(run())
        print(time.perf_counter() - start, flush=True)


main()
