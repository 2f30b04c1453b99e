"""Generations of EvoTorch's runner on Gymnasium's CartPole-v1, driven over pipes: see validation/workers.py.

A line is the seconds of a generation over the environment steps it took.
"""

import json
import os
import sys
import time

import torch
from evotorch.algorithms import PGPE
from evotorch.neuroevolution import VecGymNE

NETWORK = "Linear(obs_length, 32) >> Tanh() >> Linear(32, 32) >> Tanh() >> Linear(32, act_length)"


def main() -> None:
    """Report, then run from the same center once for every line on stdin."""
    ask = json.loads(sys.argv[1])
    # What EvoTorch prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    problem = VecGymNE("CartPole-v1", NETWORK, num_episodes=ask["episodes"])
    search = PGPE(
        problem,
        popsize=ask["n"],
        center_learning_rate=0.0,
        stdev_learning_rate=0.0,
        stdev_init=0.1,
        center_init=torch.tensor(ask["center"]),
        optimizer="adam",
    )
    search.step()
    print(json.dumps({"torch": torch.__version__}), file=answers, flush=True)
    for _ in sys.stdin:
        before, start = search.status["total_interaction_count"], time.perf_counter()
        search.step()
        seconds = time.perf_counter() - start
        print(seconds / (search.status["total_interaction_count"] - before), file=answers, flush=True)


main()
