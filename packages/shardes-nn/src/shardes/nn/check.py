"""Finds the weights that a model reaches without a seam, and those that it never reads, by tracing it once."""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from shardes.nn.probe import Probe, Recorder
from shardes.stacked import stacking_axes

__all__ = ["Finding", "check_model"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that `check_model` found, printed as a sentence that says what to do about it.

    Attributes:
        leaf: key path of the weight, such as `params['q']`.
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
                f"{self.leaf}, of shape {self.shape}, cannot influence the output: read it in the model, or take it "
                "out of the params."
            )
        source = linecache.getline(self.file, self.line).strip() if self.file and self.line else ""
        quoted = f" ({source})" if source else ""
        return (
            f"{self.leaf}, a matrix of shape {self.shape}, is reached by {self.operation} in {self.file}, line "
            f"{self.line}{quoted}: use shardes.nn.dense(x, w) for x @ w.T, or shardes.nn.embed(w, ids) for w[ids]."
        )


def check_model(model: Callable[..., Any], params: Any, *batch: Any) -> list[Finding]:
    """List what would keep a model from being perturbed, in the time that it takes to trace it.

    A matrix is a floating-point leaf of two axes, those of stacked layers not counted. It may be reached through
    `shardes.nn.dense` and `shardes.nn.embed` alone. Leaves of other dtypes are not perturbed and may be used freely.

    Args:
        model: a pure function `model(params, *batch)`.
        params: its params, arrays or `jax.ShapeDtypeStruct`s.
        *batch: its other arguments, likewise. What is no array is handed on as it is.

    Returns:
        A finding for every place where a matrix is reached without a seam, then one for every floating-point leaf that
        cannot influence the output. Empty when all is well. A matrix handed to a function of `jax.lax`, which takes
        arrays alone, is listed at the first such place.

    Raises:
        Exception: what the model itself raises, with the places found until then as a note.
    """
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
    names = ["params" + jax.tree_util.keystr(path) for path, _ in leaves]
    values = [leaf for _, leaf in leaves]
    floating = [hasattr(v, "dtype") and jnp.issubdtype(v.dtype, jnp.floating) for v in values]
    probed = [f and len(v.shape) - stacking_axes(path) == 2 for f, (path, v) in zip(floating, leaves, strict=True)]

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
        Finding(name, tuple(value.shape))
        for name, value, is_float, is_read in zip(names, values, floating, read[: len(values)], strict=True)
        if is_float and not is_read
    ]
    return _misuses(recorder, names, values) + unread


def _misuses(recorder: Recorder, names: list[str], values: list[Any]) -> list[Finding]:
    return [Finding(names[m.leaf], tuple(values[m.leaf].shape), m.operation, m.file, m.line) for m in recorder.misuses]
