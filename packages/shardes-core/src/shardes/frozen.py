"""How params say that a subtree does not train."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

__all__ = ["Frozen", "is_frozen"]


@jax.tree_util.register_pytree_with_keys_class
class Frozen:
    """A subtree whose leaves are neither perturbed nor drawn for nor updated: what a model carries beside its weights.

    Such are the statistics by which a policy normalises its observations. A model reads it through `tree`. What lies
    in params of one's own choosing, such as every norm, is better frozen by the argument `freeze` of `ShardedES`.
    """

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def __repr__(self) -> str:
        return f"Frozen({self.tree!r})"

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any]], None]:
        return ((_FrozenKey("tree"), self.tree),), None

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.tree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Iterable[Any]) -> Frozen:
        return cls(*children)


class _FrozenKey(jax.tree_util.GetAttrKey):  # type: ignore[misc]
    """Marks in a key path that what follows does not train."""


def is_frozen(path: Iterable[Any]) -> bool:
    """Whether the leaf at a key path lies under a `Frozen`."""
    return any(isinstance(key, _FrozenKey) for key in path)
