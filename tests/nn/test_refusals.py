"""A structured weight refuses whatever an array can do, and says which seam to use."""

import copy
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import StructuredWeight, StructuredWeightError


@jax.tree_util.register_pytree_node_class
class Opaque(StructuredWeight):
    """A matrix of which nothing is known but its shape."""

    shape = (4, 4)
    dtype = jnp.float32

    def apply(self, x):
        raise NotImplementedError

    def rows(self, ids):
        raise NotImplementedError

    def tree_flatten(self):
        return (), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls()


@pytest.mark.parametrize("name", ["shape", "dtype", "apply", "rows"])
def test_a_weight_that_leaves_something_out(name):
    said = {key: value for key, value in vars(Opaque).items() if key in {"shape", "dtype", "apply", "rows"} - {name}}
    with pytest.raises(TypeError, match=f"abstract class Incomplete without an implementation for .*'{name}'"):
        type("Incomplete", (StructuredWeight,), said)()


BINARY = [
    operator.add, operator.sub, operator.mul, operator.matmul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, divmod,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
UNARY = [
    operator.neg, operator.pos, operator.abs, operator.invert, operator.index, float, int, complex, bool, round, len,
    iter, list,
]  # fmt: skip
ATTRIBUTES = [
    "T", "mT", "at", "astype", "reshape", "ravel", "flatten", "transpose", "sum", "mean", "max", "min", "dot", "take",
    "squeeze", "swapaxes", "copy", "size", "real",
]  # fmt: skip
FUNCTIONS = {
    "jnp.asarray": lambda w: jnp.asarray(w),
    "jnp.array": lambda w: jnp.array([w, w]),
    "jnp.add": lambda w: jnp.add(w, 1.0),
    "jnp.dot": lambda w: jnp.dot(jnp.ones(4), w),
    "jnp.matmul": lambda w: jnp.matmul(jnp.ones(4), w),
    "jnp.einsum": lambda w: jnp.einsum("i,ij->j", jnp.ones(4), w),
    "jnp.take": lambda w: jnp.take(w, jnp.asarray([0]), axis=0),
    "jnp.sum": lambda w: jnp.sum(w),
    "jnp.transpose": lambda w: jnp.transpose(w),
    "jnp.reshape": lambda w: jnp.reshape(w, -1),
    "jnp.where": lambda w: jnp.where(jnp.ones((4, 4), bool), w, 0.0),
    "jnp.concatenate": lambda w: jnp.concatenate([w, w]),
    "jax.nn.relu": lambda w: jax.nn.relu(w),
    "np.asarray": lambda w: np.asarray(w),
    "np.dot": lambda w: np.dot(np.ones(4), w),
    "np.sum": lambda w: np.sum(w),
}
OTHERS = {"array": jnp.ones((4, 4)), "numpy": np.ones((4, 4), np.float32), "number": 2, "weight": Opaque()}
NAMES_THE_SEAMS = r"shape \(4, 4\) is a Opaque.*shardes\.nn\.dense\(x, w\).*shardes\.nn\.embed\(w, ids\)"


def refused():
    return pytest.raises(StructuredWeightError, match=NAMES_THE_SEAMS)


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("operation", BINARY, ids=lambda f: f.__name__)
def test_binary_operators(operation, other):
    with refused():
        operation(Opaque(), other)
    with refused():
        operation(other, Opaque())


def test_in_place_operators():
    other = jnp.ones((4, 4))
    with refused():
        other += Opaque()


@pytest.mark.parametrize("operation", UNARY, ids=lambda f: f.__name__)
def test_unary_operators(operation):
    with refused():
        operation(Opaque())


@pytest.mark.parametrize("index", [0, slice(None), jnp.asarray([1, 2]), None, ..., (0, 1)], ids=str)
def test_indexing(index):
    with refused():
        Opaque()[index]


def test_membership():
    with refused():
        1.0 in Opaque()  # noqa: B015


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_attributes_of_an_array(attribute):
    with refused():
        getattr(Opaque(), attribute)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions(function):
    with refused():
        function(Opaque())


def test_is_not_hashable():
    with pytest.raises(TypeError, match="unhashable"):
        hash(Opaque())


def test_other_attributes_are_missing():
    with pytest.raises(AttributeError, match="'Opaque' object has no attribute 'wieght'"):
        _ = Opaque().wieght


def test_what_needs_no_values_works():
    w = Opaque()
    assert (w.shape, w.ndim, w.dtype) == ((4, 4), 2, jnp.float32)
    assert isinstance(copy.copy(w), Opaque)
    assert "Opaque" in repr(w)


def test_a_subclass_must_say_both():
    with pytest.raises(TypeError, match="rows"):
        type("Half", (StructuredWeight,), {"shape": (1, 1), "dtype": None, "apply": None})()
