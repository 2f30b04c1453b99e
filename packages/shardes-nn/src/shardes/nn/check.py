"""Finds the weights that a model reaches without a seam, and those that it never reads, by tracing it once."""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from shardes.frozen import is_frozen
from shardes.nn.probe import Probe, Recorder
from shardes.stacked import stacking_axes

__all__ = ["Finding", "check_model"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that `check_model` found, printed as a sentence that says what to do about it.

    Attributes:
        leaf: path of the weight, such as "blocks/layers/q", as `freeze` of `shardes.ShardedES` is given it.
        shape: its shape, stacking axes in front.
        operation: what the model did with the matrix; None for a weight that it never reads.
        file: file of the model where it did so.
        line: line in that file.
    """

    leaf: str
    shape: tuple[int, ...]
    operation: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.operation is None:
            return (
                f"The leaf {self.leaf!r} of shape {self.shape} cannot influence the output: read it in the model, take "
                "it out of the params, or freeze it."
            )
        source = linecache.getline(self.file, self.line).strip() if self.file and self.line else ""
        quoted = f" ({source})" if source else ""
        return (
            f"The matrix {self.leaf!r} of shape {self.shape} is reached by {self.operation} in {self.file}, line "
            f"{self.line}{quoted}: use shardes.nn.dense(x, w) for x @ w.T, or shardes.nn.embed(w, ids) for w[ids]."
        )


def check_model(
    model: Callable[..., Any], params: Any, *batch: Any, freeze: Callable[[str], bool] | None = None
) -> list[Finding]:
    """List what would keep a model from being perturbed, in the time that it takes to trace it.

    A matrix is a floating-point leaf of two axes, those of stacked layers not counted. It may be reached through
    `shardes.nn.dense` and `shardes.nn.embed` alone. Frozen leaves, and those of other dtypes, are not perturbed: they
    may be used freely, or not at all.

    Args:
        model: a pure function `model(params, *batch)`.
        params: its params, arrays or `jax.ShapeDtypeStruct`s.
        *batch: its other arguments, likewise. What is no array is handed on as it is.
        freeze: whether the leaf at a path is frozen, as for `shardes.ShardedES`; what lies under `shardes.Frozen` is.

    Returns:
        A finding for every place where a matrix is reached without a seam, then one for every floating-point leaf that
        cannot influence the output. Empty when all is well. A matrix handed to a function of `jax.lax`, which takes
        arrays alone, is listed at the first such place. Arithmetic through `jax.tree` functions, which take a weight
        apart, is not seen.

    Raises:
        Exception: what the model itself raises, with the places found until then as a note.
    """
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    values = [leaf for _, leaf in leaves]
    frozen = [
        is_frozen(path) or (freeze is not None and freeze(name)) for (path, _), name in zip(leaves, names, strict=True)
    ]
    trained = [
        jnp.issubdtype(jax.dtypes.result_type(value), jnp.floating) and not kept
        for value, kept in zip(values, frozen, strict=True)
    ]
    probed = [t and np.ndim(v) - stacking_axes(path) == 2 for t, (path, v) in zip(trained, leaves, strict=True)]

    batch_values, batch_treedef = jax.tree.flatten(batch)
    traced = {i: v for i, v in enumerate(batch_values) if hasattr(v, "dtype") and hasattr(v, "shape")}
    recorder = Recorder()

    def trace() -> Any:
        def run(values: list[Any], traced: dict[int, Any]) -> Any:
            wrapped = [Probe(v, i, recorder) if probed[i] else v for i, v in enumerate(values)]
            arguments = [traced.get(i, v) for i, v in enumerate(batch_values)]
            return model(jax.tree.unflatten(treedef, wrapped), *jax.tree.unflatten(batch_treedef, arguments))

        return jax.make_jaxpr(run)(values, traced).jaxpr

    jaxpr = None
    while jaxpr is None:
        try:
            jaxpr = trace()
        except Exception as error:
            misuse = recorder.refused_by_lax()
            if misuse is None:
                for finding in _misuses(recorder, names, values):
                    error.add_note(f"shardes.nn.check_model found: {finding}")
                raise
            recorder.add(misuse)
            probed[misuse.leaf] = False

    _, read = dce_jaxpr(jaxpr, True)
    unread = [
        Finding(name, np.shape(value))
        for name, value, is_trained, is_read in zip(names, values, trained, read[: len(values)], strict=True)
        if is_trained and not is_read
    ]
    return _misuses(recorder, names, values) + unread


def _misuses(recorder: Recorder, names: list[str], values: list[Any]) -> list[Finding]:
    return [Finding(names[m.leaf], np.shape(values[m.leaf]), m.operation, m.file, m.line) for m in recorder.misuses]
