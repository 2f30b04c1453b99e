"""Measure how the library scales: results/scale/PART.json, with a plot of each beside it.

    python -m validation.scale [PART ...] [--tiny] [--out FOLDER]

Every measurement has fresh processes of its own, one after another.
"""

from validation.command import command
from validation.scale import checkpoints, determinism, loop, memory, placements, replays

if __name__ == "__main__":
    command(memory, loop, checkpoints, replays, determinism, placements)
