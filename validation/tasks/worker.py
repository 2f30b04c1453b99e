"""A generation on Playground's CartpoleBalance, ours or evosax's, driven over pipes: see validation/workers.py."""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

HIDDEN = (32, 32)
Generation = Callable[[], float]
"""A generation, done when it returns: how many steps it took."""


def ours(n: int, length: int) -> Generation:
    """Of this library, one program."""
    import optax

    import shardes
    from shardes.tasks import playground

    task = playground.make("CartpoleBalance", episode_length=length, hidden=HIDDEN)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), n, sigma=0.1, optimizer=optax.adam(0.05))
    state = es.init(jax.random.key(0), task.init(jax.random.key(1)))

    @jax.jit
    def generation(state: Any) -> Any:
        pert, state = es.ask(state)
        losses, state = task.play(es, state, pert, jax.random.key(2))
        return es.tell(state, pert, losses)

    return _run(generation, state, n * length)


def bare(n: int, length: int) -> Generation:
    """Of one policy, as many episodes as there are members."""
    rollout, params = _rollout(length)
    keys = jax.random.split(jax.random.key(2), n)
    return _run(jax.jit(lambda params: jax.vmap(rollout, (None, 0))(params, keys)), params, n * length)


def evosax(n: int, length: int) -> Generation:
    """Of evosax's Open_ES, with the same noise scale, optimizer and shaping, one program."""
    import optax
    from evosax.algorithms import Open_ES
    from evosax.core.fitness_shaping import centered_rank_fitness_shaping_fn

    rollout, params = _rollout(length)
    es = Open_ES(
        n,
        params,
        optimizer=optax.adam(0.05),
        std_schedule=optax.constant_schedule(0.1),
        fitness_shaping_fn=centered_rank_fitness_shaping_fn,
    )
    state = es.init(jax.random.key(0), params, es.default_params)

    @jax.jit
    def generation(state: Any) -> Any:
        asking, episode, telling = jax.random.split(jax.random.key(1), 3)
        population, state = es.ask(asking, state, es.default_params)
        returns = jax.vmap(rollout, (0, None))(population, episode)
        return es.tell(telling, population, -returns, state, es.default_params)

    return _run(generation, state, n * length)


def _rollout(length: int) -> tuple[Callable[..., Any], Any]:
    """`(params, key) -> return` of an MLP, without what guards ours, and first params."""
    from mujoco_playground import registry

    environment = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    sizes = (environment.observation_size, *HIDDEN, environment.action_size)
    params = [
        (jax.random.normal(jax.random.key(i), (into, out)) / into**0.5, jnp.zeros(out))
        for i, (into, out) in enumerate(itertools.pairwise(sizes))
    ]

    def rollout(params: Any, key: jax.Array) -> jax.Array:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            state, total = carry
            x = state.obs
            for w, b in params:
                x = jnp.tanh(x @ w + b)
            after = environment.step(state, x)
            return (after, total + jnp.where(state.done, 0, after.reward)), None

        return jax.lax.scan(step, (environment.reset(key), jnp.float32(0)), None, length)[0][1]

    return rollout, params


def _run(program: Callable[[Any], Any], state: Any, steps: int) -> Generation:
    """From the same state every time."""

    def generation() -> float:
        jax.block_until_ready(program(state))
        return float(steps)

    return generation


def main() -> None:
    """Compile, report, then run once for every line on stdin."""
    ask = json.loads(sys.argv[1])
    # What Playground prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    generation = {"ours": ours, "evosax": evosax}[ask["program"]](ask["n"], ask["length"])
    generation()
    print(json.dumps({"jax": jax.__version__}), file=answers, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        generation()
        print(time.perf_counter() - start, file=answers, flush=True)


if __name__ == "__main__":
    main()
