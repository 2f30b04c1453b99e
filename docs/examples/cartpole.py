"""Train a policy on Gymnasium's CartPole-v1 until the population balances for 400 of 500 steps in the mean.

    python docs/examples/cartpole.py
    python docs/examples/cartpole.py --strategy seed      full-rank noise from seeds (Qiu et al. 2025)

The policy that comes out is then played for 20 fresh episodes.
"""

import argparse

import jax
import numpy as np
import optax

import shardes
from shardes.tasks.gymnasium import make

STRATEGIES = {"lowrank": shardes.LowRank(r=1), "seed": shardes.SeedRegenerated()}


def main() -> None:
    """Train, and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="lowrank", help="the noise (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (default: %(default)s)")
    parser.add_argument("--target", type=float, default=400, help="mean return to end at (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=100, help="at most (default: %(default)s)")
    args = parser.parse_args()

    task = make("CartPole-v1", episodes=2)
    es = shardes.ShardedES(shardes.Mirrored(STRATEGIES[args.strategy]), n=64, sigma=0.1, optimizer=optax.adam(0.05))
    start, of_policy, of_rest = jax.random.split(jax.random.key(args.seed), 3)
    state = es.init(start, task.init(of_policy))

    def report(generation: shardes.Generation) -> bool:
        mean = -generation.summary.mean
        print(f"generation {generation.number:3}  mean return {mean:5.1f}", flush=True)
        return mean >= args.target

    state, _ = shardes.fit(es, state, task, generations=args.generations, callbacks=[report])
    returns = [task.rollout(state.params, key).total for key in jax.random.split(of_rest, 20)]
    print(f"the policy {np.mean(returns):.1f} in the mean of 20 fresh episodes, {min(returns):.0f} at least")


if __name__ == "__main__":
    main()
