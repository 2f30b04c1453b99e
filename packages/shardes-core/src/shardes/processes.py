"""What the processes of one run tell each other: that they agree, and the values of members from all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardes.mesh import POPULATION

__all__ = ["check_agreement", "from_first", "gather", "on_own_devices", "replicate"]

Array = np.ndarray[Any, Any]


def check_agreement(values: Mapping[str, str]) -> None:
    """Raise ValueError in every process unless all have the same values under these names."""
    own = np.stack([np.frombuffer(hashlib.sha256(value.encode()).digest(), np.uint8) for value in values.values()])
    everyone = multihost_utils.process_allgather(own)
    for process, entry in np.argwhere((everyone != everyone[0]).any(axis=-1)):
        name, value = list(values.items())[entry]
        raise ValueError(
            f"{name} of process {process} is not that of process 0; here, in process {jax.process_index()}, it is "
            f"{value}. Every process must be given the same."
        )


def replicate(tree: Any, sharding: NamedSharding) -> Any:
    """A tree of arrays on every device of a sharding, from the same values in every process."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def place(x: Any) -> jax.Array:
        value = np.asarray(x)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(place, tree)


def on_own_devices(tree: Any, mesh: Mesh, spec: P) -> Any:
    """What a tree of global arrays holds on the devices of a mesh of this process, as arrays on that mesh."""

    def part(x: jax.Array) -> jax.Array:
        data = {shard.device: shard.data for shard in x.addressable_shards}
        arrays = [data[device] for device in mesh.devices.flat]
        shape = x.shape if spec == P() else (sum(len(a) for a in arrays), *x.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, spec), arrays)

    assert spec in (P(), P(POPULATION))
    return jax.tree.map(part, tree)


def from_first(
    leaves: Sequence[Array] | None, failure: str, like: Sequence[jax.Array]
) -> tuple[list[Array] | None, str]:
    """The arrays that process 0 has, or None, and what it says has failed, in every process.

    All know by `like` what the arrays are.
    """
    text = failure.encode()[: 2**12]
    sizes = np.array([leaves is not None, len(text)], np.int32)
    given, length = multihost_utils.broadcast_one_to_all(sizes).tolist()
    told = multihost_utils.broadcast_one_to_all(np.frombuffer(text.ljust(length, b" ")[:length], np.uint8))
    failure = np.asarray(told).tobytes().decode(errors="replace")
    if not given:
        return None, failure
    own = [np.zeros(x.shape, x.dtype) for x in like] if leaves is None else leaves
    # As bytes, since a broadcast is a sum.
    sent = multihost_utils.broadcast_one_to_all([np.frombuffer(x.tobytes(), np.uint8) for x in own])
    arrays = [np.frombuffer(np.asarray(x).tobytes(), y.dtype).reshape(y.shape) for x, y in zip(sent, own, strict=True)]
    return arrays, failure


def gather(values: Any, members: Sequence[Array]) -> Array:
    """Values of all members from those that each process has, whose numbers `members` says, one array a process."""
    own = np.asarray(values)
    padded = np.zeros((max(map(len, members)), *own.shape[1:]), own.dtype)
    padded[: len(own)] = own
    everyone = multihost_utils.process_allgather(padded)
    gathered = np.zeros((sum(map(len, members)), *own.shape[1:]), own.dtype)
    for numbers, rows in zip(members, everyone, strict=True):
        gathered[numbers] = rows[: len(numbers)]
    return gathered
