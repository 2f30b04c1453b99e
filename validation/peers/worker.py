"""One program in one environment, driven over pipes: compile, report, then run once for every line on stdin.

Runs under either package, whose import name is the same, so it uses nothing that is not in both.
"""

import json
import os
import sys
import time

ask = json.loads(sys.argv[1])
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ask['devices']}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import shardes  # noqa: E402
from shardes.nn import dense  # noqa: E402

SEQ = 32


def init(key, d):
    """A pre-norm transformer block of six square matrices."""
    matrices = {
        name: jax.random.normal(k, (d, d)) / d**0.5 for name, k in zip("qkvoud", jax.random.split(key, 6), strict=True)
    }
    return matrices | {"attention_norm": jnp.ones(d), "mlp_norm": jnp.ones(d)}


def norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def loss(params, batch):
    x, target = batch
    h = norm(x, params["attention_norm"])
    q, k, v = (dense(h, params[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / x.shape[-1] ** 0.5, axis=-1)
    x = x + dense(jnp.einsum("bqk,bkd->bqd", weights, v), params["o"])
    x = x + dense(jax.nn.gelu(dense(norm(x, params["mlp_norm"]), params["u"])), params["d"])
    return jnp.mean((x - target) ** 2)


def floor(params, batch, n, chunk):
    """Plain inference of n batches with the unperturbed weights, at most `chunk` at once: (function, arguments)."""
    mesh = jax.make_mesh((ask["devices"],), ("pop",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.PartitionSpec("pop")

    def local(params, batches):
        return jax.lax.map(lambda one: loss(params, one), batches, batch_size=min(chunk, n // ask["devices"]))

    specs = (jax.sharding.PartitionSpec(), split)
    run = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    batches = jax.tree.map(lambda x: jax.random.normal(jax.random.key(3), (n, *x.shape)), batch)
    return jax.jit(run), (params, batches)


def generation(params, batch, n):
    """One generation of the strategy that was asked for: (function, arguments)."""
    strategy = {
        "LowRank(1)": lambda: shardes.LowRank(r=1),
        "LowRank(4)": lambda: shardes.LowRank(r=4),
        "SeedRegenerated": lambda: shardes.SeedRegenerated(),
        "IIDGaussian": lambda: shardes.IIDGaussian(),
    }[ask["program"]]()
    es = shardes.ShardedES(
        shardes.Mirrored(strategy), n=n, sigma=1e-2, lr=1e-2, mesh=shardes.make_mesh(), how=ask["how"]
    )

    def run(state, batch):
        pert, state = es.ask(state)
        fitness = es.apply(loss, state, pert)(batch)
        return es.tell(state, pert, fitness), fitness

    return jax.jit(run), (es.init(jax.random.key(0), params), batch)


def block_of_layers(layers):
    """One low-rank generation of a byte_transformer: (function, arguments). This code only."""
    from shardes.zoo import byte_transformer

    config = byte_transformer.Config(d_model=64, n_layers=layers, n_heads=4, n_kv_heads=2, d_ff=128)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n=16, sigma=1e-2, lr=1e-2)
    state = es.init(jax.random.key(0), byte_transformer.init(jax.random.key(1), config))

    def run(state, batch):
        pert, state = es.ask(state)
        fitness = es.apply(lambda p, b: byte_transformer.loss(p, b, config), state, pert)(batch)
        return es.tell(state, pert, fitness), fitness

    return jax.jit(run), (state, jnp.zeros((2, 33), jnp.uint8))


def main():
    if ask["program"] == "layers":
        function, args = block_of_layers(ask["layers"])
    else:
        params = init(jax.random.key(0), ask["d"])
        shape = (ask["tokens"] // SEQ, SEQ, ask["d"])
        batch = tuple(jax.random.normal(jax.random.key(i), shape) for i in (1, 2))
        if ask["program"] == "floor":
            function, args = floor(params, batch, ask["n"], ask["chunk"])
        else:
            function, args = generation(params, batch, ask["n"])
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    start = time.perf_counter()
    compiled = function.lower(*args).compile()
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    report = {"compile_s": seconds, "temporary_bytes": memory.temp_size_in_bytes, "jax": jax.__version__}
    print(json.dumps(report), flush=True)
    jax.block_until_ready(compiled(*args))
    for _ in sys.stdin:
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        print(time.perf_counter() - start, flush=True)


main()
