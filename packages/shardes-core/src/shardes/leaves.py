"""The leaves of a model: which are trained, how they are stacked, and a strategy mapped over them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardes import random
from shardes.frozen import is_frozen
from shardes.stacked import stacking_axes
from shardes.strategies import Strategy

__all__ = ["Leaf", "Leaves"]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf. `shape` leaves out the stacking axes `stack`; `stream` numbers the noise of its first layer."""

    path: str
    stack: tuple[int, ...]
    shape: tuple[int, ...]
    stream: int
    trained: bool

    @property
    def layers(self) -> int:
        """Number of layers; 1 for a leaf that is not stacked."""
        return math.prod(self.stack)


class Leaves:
    """The leaves of params of one structure; a strategy's noise, shift and contraction mapped over the trained ones.

    Weights and scales are lists with one entry a trained leaf, noise is one with an entry a shape.
    """

    def __init__(self, params: Any, freeze: Callable[[str], bool] | None = None) -> None:
        described, structure = jax.tree_util.tree_flatten_with_path(params)
        self.structure: Any = structure
        self.all: list[Leaf] = []
        stream = 0
        for path, value in described:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            axes = stacking_axes(path)
            if np.ndim(value) < axes:
                raise ValueError(
                    f"The leaf {name!r} of shape {np.shape(value)} lies under {axes} shardes.Stacked and so needs at "
                    f"least {axes} axes. Stack its layers on the leading axis, or move it out of Stacked."
                )
            dtype = jax.dtypes.result_type(value)
            frozen = is_frozen(path) or (freeze is not None and freeze(name))
            if jnp.issubdtype(dtype, jnp.complexfloating) and not frozen:
                raise ValueError(
                    f"The leaf {name!r} is {dtype}, and only real leaves can be trained. Split it into two real "
                    "leaves, or freeze it."
                )
            stack, shape = np.shape(value)[:axes], np.shape(value)[axes:]
            if 0 in stack:
                raise ValueError(
                    f"The leaf {name!r} of shape {np.shape(value)} lies under shardes.Stacked and has no layers. Leave "
                    "it out of params."
                )
            self.all.append(Leaf(name, stack, shape, stream, jnp.issubdtype(dtype, jnp.floating) and not frozen))
            stream += math.prod(stack)
        self.trained = [leaf for leaf in self.all if leaf.trained]

    def select(self, tree: Any) -> list[Any]:
        """The entries of a params-shaped tree at the trained leaves."""
        flat = self.structure.flatten_up_to(tree)
        return [value for leaf, value in zip(self.all, flat, strict=True) if leaf.trained]

    def scales(self, sigma: Any) -> list[Any]:
        """Sigma of each trained leaf, from one number or a params-shaped tree of them.

        Raises ValueError when it is neither.
        """
        structure = jax.tree.structure(sigma)
        if any(np.ndim(scale) for scale in jax.tree.leaves(sigma)):
            raise ValueError(f"sigma must give scalars, got shapes {jax.tree.map(np.shape, sigma)}.")
        if jax.tree_util.treedef_is_leaf(structure):
            return [sigma] * len(self.trained)
        if structure != self.structure:
            raise ValueError(
                f"sigma must be one number or a tree of the structure of params, {self.structure}, got {structure}."
            )
        return self.select(sigma)

    def merge(self, tree: Any, trained: Sequence[Any]) -> Any:
        """The params-shaped tree with its trained leaves replaced."""
        replacements = iter(trained)
        flat = self.structure.flatten_up_to(tree)
        return self.structure.unflatten(
            [next(replacements) if leaf.trained else value for leaf, value in zip(self.all, flat, strict=True)]
        )

    def mask(self, trained: Sequence[Any]) -> Any:
        """A params-shaped tree of the trained leaves, with None, an empty subtree, at the others."""
        return self.merge(self.structure.unflatten([None] * len(self.all)), trained)

    def noise(self, strategy: Strategy, key: jax.Array, direction: jax.Array) -> list[Any]:
        """One direction's noise, from the generation's raw key: an entry a shape, all layers of such leaves in front.

        Every layer of every leaf draws from a key of its own; those of one shape draw together, which compiles faster.
        """
        groups = list(self._alike.items())
        streams = [np.concatenate([leaf.stream + np.arange(leaf.layers) for leaf in leaves]) for _, leaves in groups]
        # One call makes the keys of all shapes: threefry is the bulk of what there is to compile.
        keys = random.fold_in(key, np.concatenate(streams), direction)
        ends = np.cumsum([len(of_shape) for of_shape in streams])

        def draw(shape: tuple[int, ...], keys: jax.Array) -> Any:
            typed = jax.random.wrap_key_data(keys, impl="threefry2x32")
            return jax.vmap(lambda key: strategy.noise(key, shape))(typed)

        # A strategy's own arithmetic on threefry words, fused into what consumes it, can take XLA minutes to compile.
        noise: list[Any] = lax.optimization_barrier(
            [draw(shape, own) for (shape, _), own in zip(groups, jnp.split(keys, ends[:-1]), strict=True)]
        )
        return noise

    def shift(self, strategy: Strategy, weights: list[Any], noise: list[Any], scales: list[Any]) -> list[Any]:
        """Every weight shifted by its scale times its noise."""

        def of_layer(leaf: Leaf, scale: Any, weight: jax.Array, noise: Any) -> Any:
            shifted = strategy.shift(weight, noise, scale)
            _check_shape(strategy, "shift", shifted, leaf)
            return shifted

        return [
            _over_stack(partial(of_layer, leaf, scale), leaf)(weight, noise)
            for leaf, weight, noise, scale in zip(self.trained, weights, self._by_leaf(noise), scales, strict=True)
        ]

    def contract(self, strategy: Strategy, noise: list[Any], weights: jax.Array) -> list[jax.Array]:
        """The weighted sum over directions, the leading axis of the noise."""

        def of_layer(leaf: Leaf, noise: Any) -> jax.Array:
            total = strategy.contract(noise, weights)
            _check_shape(strategy, "contract", total, leaf)
            return total

        return [
            _over_stack(partial(of_layer, leaf), leaf, axis=1)(noise)
            for leaf, noise in zip(self.trained, self._by_leaf(noise, axis=1), strict=True)
        ]

    @property
    def _alike(self) -> dict[tuple[int, ...], list[Leaf]]:
        """The trained leaves by their shape."""
        shapes = dict.fromkeys(leaf.shape for leaf in self.trained)
        return {shape: [leaf for leaf in self.trained if leaf.shape == shape] for shape in shapes}

    def _by_leaf(self, noise: list[Any], axis: int = 0) -> list[Any]:
        """The noise of every trained leaf, its stacking axes at `axis`, where the layers of its shape were."""
        found = {}
        for drawn, leaves in zip(noise, self._alike.values(), strict=True):
            start = 0
            for leaf in leaves:
                found[leaf.stream] = jax.tree.map(partial(_layers_of, leaf, start, axis), drawn)
                start += leaf.layers
        return [found[leaf.stream] for leaf in self.trained]


def _check_shape(strategy: Strategy, method: str, value: Any, leaf: Leaf) -> None:
    if getattr(value, "shape", None) != leaf.shape:
        raise ValueError(
            f"{method} of {strategy!r} gave {type(value).__name__} of shape {getattr(value, 'shape', None)} for the "
            f"leaf {leaf.path!r}, and must give the shape of the leaf without stacking axes, {leaf.shape}."
        )


def _over_stack(function: Callable[..., Any], leaf: Leaf, axis: int = 0) -> Callable[..., Any]:
    """`function` of one layer, mapped over a leaf's stacking axes."""
    for _ in leaf.stack:
        function = jax.vmap(function, in_axes=axis)
    return function


def _layers_of(leaf: Leaf, start: int, axis: int, drawn: jax.Array) -> jax.Array:
    """The noise of one leaf among that of all of its shape, whose layers are numbered on an axis."""
    own = lax.slice_in_dim(drawn, start, start + leaf.layers, axis=axis)
    return own.reshape(drawn.shape[:axis] + leaf.stack + drawn.shape[axis + 1 :])
