"""The population split over the mesh: directions drawn, members evaluated, noise contracted.

Directions are dealt out in order, equally many a device, padded with ghosts whose results are dropped. Every device
runs the same loop over chunks of its own directions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from shardes.leaves import Leaves
from shardes.mesh import POPULATION
from shardes.strategies import Strategy
from shardes.tracing import largest_value

__all__ = ["Population"]

_BLOCK = 2**16
"""Numbers of noise that a device contracts at once, where the params are not more: a matrix product runs at speed."""

_CACHE = 2**19
"""Bytes that the largest array of a chunk may take on a CPU, whose caches a whole population would overflow."""

_SHARE = 16
"""Or this part of the bytes of the params, which no cache holds: to read them anew for every chunk costs more."""


@dataclasses.dataclass(frozen=True)
class Population:
    """`n` members of a strategy on a mesh, evaluated `member_chunk` at a time by each device.

    A mesh may have only some of the devices that the whole population is split over: `places` says which, of how many.
    """

    strategy: Strategy
    n: int
    mesh: Mesh
    member_chunk: int | None
    deterministic: bool = False
    places: tuple[int, ...] | None = None
    split: int | None = None

    def of_process(self, process: int) -> Population:
        """The part of it that the devices of a process have."""
        axis = self.mesh.axis_names.index(POPULATION)
        line = np.moveaxis(self.mesh.devices, axis, 0).reshape(self.devices, -1)[:, 0]
        places = tuple(i for i, device in enumerate(line) if device.process_index == process)
        mesh = Mesh(line[list(places)], (POPULATION,), axis_types=(AxisType.Auto,))
        return dataclasses.replace(self, mesh=mesh, places=places, split=self.devices)

    @property
    def directions(self) -> int:
        """Directions of the whole population, ghosts not counted."""
        return self.n // len(self.strategy.signs)

    @property
    def devices(self) -> int:
        """Devices of the mesh that members are split over."""
        return int(self.mesh.shape[POPULATION])

    @property
    def local(self) -> int:
        """Directions of one device, ghosts counted."""
        return -(-self.directions // (self.split or self.devices))

    @property
    def members(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Numbers of the members on the mesh, ascending."""
        each = self.local * len(self.strategy.signs)
        places = np.arange(self.devices) if self.places is None else np.asarray(self.places, np.intp)
        numbers = (places[:, None] * each + np.arange(each)).reshape(-1)
        return numbers[numbers < self.n]

    def draw(self, leaves: Leaves, key: jax.Array) -> list[Any]:
        """Noise of every direction, the leading axis, split over the mesh."""

        def draw(key: jax.Array) -> list[Any]:
            return jax.vmap(lambda direction: leaves.noise(self.strategy, key, direction))(self._own_directions())

        return self._shard(draw, P(), P(POPULATION))(key)

    def evaluate(
        self,
        function: Callable[..., Any],
        leaves: Leaves,
        params: Any,
        sigma: list[jax.Array],
        key: jax.Array,
        noise: list[Any] | None,
        args: Sequence[Any],
        in_axes: Sequence[int | None],
    ) -> Any:
        """`function(params of a member, *args)` of every member on the mesh, which get a leading axis in the outputs.

        Arguments whose entry of `in_axes` is 0 have a leading axis of the members of their own.
        """
        signs = jnp.array(self.strategy.signs, jnp.float32)
        shared = [None if axis == 0 else arg for arg, axis in zip(args, in_axes, strict=True)]
        own = [arg if axis == 0 else None for arg, axis in zip(args, in_axes, strict=True)]

        def evaluate(params: Any, sigma: list[jax.Array], key: jax.Array, shared: Any, noise: Any, own: Any) -> Any:
            base = leaves.select(params)

            def of_direction(at: tuple[jax.Array, Any, Any]) -> Any:
                direction, noise, own = at
                if noise is None:
                    noise = leaves.noise(self.strategy, key, direction)

                def of_member(at: tuple[jax.Array, Any]) -> Any:
                    sign, own = at
                    shifted = leaves.shift(self.strategy, base, noise, [sign * scale for scale in sigma])
                    merged = (x if axis == 0 else s for x, s, axis in zip(own, shared, in_axes, strict=True))
                    return jax.tree.map(jnp.asarray, function(leaves.merge(params, shifted), *merged))

                return _map(of_member, (signs, own), 1 if self.member_chunk == 1 else signs.size)

            each = (self._own_directions(), noise, own)
            chunk = self._chunk(leaves, of_direction, each)
            results = _map_fixed(of_direction, each, chunk) if self.deterministic else _map(of_direction, each, chunk)
            return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), results)

        run = self._shard(evaluate, (P(), P(), P(), P(), P(POPULATION), P(POPULATION)), P(POPULATION))
        results = run(params, sigma, key, shared, noise, jax.tree.map(self._deal, own))
        return jax.tree.map(lambda x: x[: self.members.size], results)

    def contract(
        self, leaves: Leaves, key: jax.Array, noise: list[Any] | None, weights: jax.Array, how: str
    ) -> list[jax.Array]:
        """The sum over members of weight times sign times noise, float32, one array a trained leaf, on every device."""
        signs = jnp.array(self.strategy.signs, jnp.float32)
        weights = weights.astype(jnp.float32).reshape(self.directions, signs.size) @ signs
        weights = jnp.pad(weights, (0, self.local * self.devices - self.directions))

        def gather(key: jax.Array, _: None, weights: jax.Array) -> list[jax.Array]:
            return self._sum(leaves, key, None, lax.iota(jnp.uint32, self.directions), weights[: self.directions])

        def reduce(key: jax.Array, noise: list[Any] | None, weights: jax.Array) -> list[jax.Array]:
            own = lax.dynamic_slice_in_dim(weights, lax.axis_index(POPULATION) * self.local, self.local)
            total: list[jax.Array] = lax.psum(self._sum(leaves, key, noise, self._own_directions(), own), POPULATION)
            return total

        if how == "A":
            return self._shard(gather, (P(), P(), P()), P())(key, None, weights)
        return self._shard(reduce, (P(), P(POPULATION), P()), P())(key, noise, weights)

    def _sum(
        self, leaves: Leaves, key: jax.Array, noise: list[Any] | None, directions: jax.Array, weights: jax.Array
    ) -> list[jax.Array]:
        """The weighted sum over some directions on one device, a block of them at a time."""
        count = directions.size
        limit = self._given_chunk or self._block(leaves, key)
        size = -(-count // -(-count // limit))

        def add(total: list[jax.Array], block: jax.Array) -> tuple[list[jax.Array], None]:
            # The last block starts early where blocks do not divide the directions: what it repeats weighs nothing.
            start = jnp.minimum(block * size, count - size)

            def take(x: jax.Array) -> jax.Array:
                return lax.dynamic_slice_in_dim(x, start, size)

            weight = jnp.where(start + lax.iota(jnp.int32, size) >= block * size, take(weights), jnp.float32(0))
            drawn = jax.tree.map(take, noise)
            if drawn is None:
                drawn = jax.vmap(lambda direction: leaves.noise(self.strategy, key, direction))(take(directions))
            return [t + c for t, c in zip(total, leaves.contract(self.strategy, drawn, weight), strict=True)], None

        zeros = [jnp.zeros(leaf.stack + leaf.shape, jnp.float32) for leaf in leaves.trained]
        return lax.scan(add, zeros, lax.iota(jnp.int32, -(-count // size)))[0]

    def _chunk(self, leaves: Leaves, function: Callable[[Any], Any], each: Any) -> int:
        """Directions to evaluate at once, of the function of one and what is mapped over."""
        if self.known_chunk is not None:
            return self.known_chunk
        one = jax.make_jaxpr(function)(jax.tree.map(lambda x: x[0], each))
        params = 4 * sum(math.prod(leaf.stack + leaf.shape) for leaf in leaves.trained)
        return max(1, max(_CACHE, params // _SHARE) // max(1, largest_value(one)))

    @property
    def known_chunk(self) -> int | None:
        """Directions to evaluate at once; None on a CPU, where what is evaluated decides."""
        if self._given_chunk is not None:
            return self._given_chunk
        if self.deterministic:
            return 1
        return None if self.mesh.devices.flat[0].platform == "cpu" else self.local

    @property
    def _given_chunk(self) -> int | None:
        """Directions to hold at once, as the user or the strategy says."""
        if self.member_chunk is not None:
            return max(1, self.member_chunk // len(self.strategy.signs))
        return self.strategy.chunk

    def _block(self, leaves: Leaves, key: jax.Array) -> int:
        """Directions to contract at once: as many as have noise of about the size of the params."""
        one = jax.eval_shape(lambda: leaves.noise(self.strategy, key, jnp.uint32(0)))
        noise = sum(int(x.size) for x in jax.tree.leaves(one))
        params = sum(math.prod(leaf.stack + leaf.shape) for leaf in leaves.trained)
        return max(1, max(_BLOCK, params) // max(1, noise))

    def _own_directions(self) -> jax.Array:
        """Numbers of the directions of this device, inside `shard_map`."""
        place = lax.axis_index(POPULATION).astype(jnp.uint32)
        if self.places is not None:
            place = jnp.array(self.places, jnp.uint32)[place]
        return place * jnp.uint32(self.local) + lax.iota(jnp.uint32, self.local)

    def _deal(self, x: jax.Array) -> jax.Array:
        """Values of the members as (directions, signs, ...), the last member's repeated for ghosts."""
        members, count = self.local * self.devices * len(self.strategy.signs), self.members.size
        if count == 0:
            x = jnp.zeros((members, *x.shape[1:]), x.dtype)
        elif members != count:
            x = x[jnp.minimum(jnp.arange(members), count - 1)]
        return x.reshape(-1, len(self.strategy.signs), *x.shape[1:])

    def _shard[T](self, function: Callable[..., T], in_specs: Any, out_specs: Any) -> Callable[..., T]:
        # With check_vma=True, JAX refuses scans whose carry starts out replicated, which users' models have.
        split: Callable[..., T] = jax.shard_map(
            function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
        return split


def _map(function: Callable[[Any], Any], xs: Any, chunk: int) -> Any:
    """`function` over the leading axis, at most `chunk` entries at once, equally many each time but for the last."""
    count = len(jax.tree.leaves(xs)[0])
    if count == 1:
        return jax.tree.map(lambda x: x[None], function(jax.tree.map(lambda x: x[0], xs)))
    if chunk >= count:
        return jax.vmap(function)(xs)
    if chunk == 1:
        return lax.map(function, xs)
    rounds = -(-count // chunk)
    size = -(-count // rounds)
    # The last round starts early where rounds do not divide the count; what it repeats is dropped.
    starts = jnp.minimum(jnp.arange(rounds) * size, count - size)
    results = lax.map(
        lambda start: jax.vmap(function)(jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), xs)), starts
    )
    last = count - (rounds - 1) * size

    def join(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x[:-1].reshape(-1, *x.shape[2:]), x[-1, size - last :]])

    return jax.tree.map(join, results)


def _map_fixed(function: Callable[[Any], Any], xs: Any, chunk: int) -> Any:
    """`function` over the leading axis, exactly `chunk` entries at once whatever their number is.

    The compiler sees the same arithmetic for any count, and so rounds alike.
    """
    count = len(jax.tree.leaves(xs)[0])
    rounds = -(-count // chunk)

    def dealt(x: jax.Array) -> jax.Array:
        # What fills up the last round repeats the last entry, and is dropped.
        return x[jnp.minimum(jnp.arange(rounds * chunk), count - 1)].reshape(rounds, chunk, *x.shape[1:])

    def of_chunk(xs: Any) -> Any:
        # Nothing of the loop is fused into the function, which a loop of one round would be rid of.
        return lax.optimization_barrier(jax.vmap(function)(lax.optimization_barrier(xs)))

    results = lax.map(of_chunk, jax.tree.map(dealt, xs))
    return jax.tree.map(lambda x: x.reshape(rounds * chunk, *x.shape[2:])[:count], results)
