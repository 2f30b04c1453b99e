"""The mesh: every device on one axis, over which the population is split."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh

__all__ = ["POPULATION", "make_mesh"]

POPULATION = "pop"
"""Name of the mesh axis that the population is split over."""


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of `devices` on one axis, "pop"; by default every device of every process."""
    chosen = jax.devices() if devices is None else list(devices)
    if not chosen:
        raise ValueError("A mesh needs at least one device, got none. Leave `devices` out to use every device.")
    # Explicit axes, the default of jax.make_mesh, would put shardings into the types of a user's model.
    return jax.make_mesh((len(chosen),), (POPULATION,), axis_types=(AxisType.Auto,), devices=chosen)
