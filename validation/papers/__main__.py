"""Measure what the papers report: results/papers/PART.json, with a plot of each beside it.

    python -m validation.papers [PART ...] [--tiny] [--out FOLDER]

On an accelerator the sizes are the papers' own.
"""

from validation.command import command
from validation.papers import alignment, throughput

if __name__ == "__main__":
    command(throughput, alignment)
