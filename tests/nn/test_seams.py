"""dense and embed against numpy, for arrays and for a structured weight."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.nn import StructuredWeight, dense, embed

TOLERANCE = {jnp.float32: 1e-6, jnp.bfloat16: 2e-2}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(eq=False)
class Outer(StructuredWeight):
    """The matrix `base + outer(a, b)`."""

    base: jax.Array
    a: jax.Array
    b: jax.Array

    @property
    def shape(self):
        return self.base.shape

    @property
    def dtype(self):
        return self.base.dtype

    def apply(self, x):
        along = jnp.einsum("...i,i->...", x, self.b)
        return dense(x, self.base) + jnp.expand_dims(along, -1) * self.a.reshape((1,) * (x.ndim - 1) + (-1,))

    def rows(self, ids):
        return self.base[ids] + jnp.expand_dims(self.a[ids], -1) * self.b.reshape((1,) * ids.ndim + (-1,))


def draw(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def outer(*stack, dtype=jnp.float32):
    shapes = ((*stack, 5, 4), (*stack, 5), (*stack, 4))
    return Outer(*(draw(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes, start=1)))


def formed(w):
    """The matrix in float64, whatever its kind."""
    if not isinstance(w, Outer):
        return np.asarray(w, np.float64)
    base, a, b = (np.asarray(x, np.float64) for x in (w.base, w.a, w.b))
    return base + a[..., :, None] * b[..., None, :]


def check(got, want, dtype):
    assert got.dtype == dtype
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("make", [lambda dtype: draw(5, 4, seed=1, dtype=dtype), lambda dtype: outer(dtype=dtype)])
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
class TestAgainstNumpy:
    @pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
    def test_dense(self, make, dtype, transform, lead):
        w, x = make(dtype), draw(*lead, 4, dtype=dtype)
        check(transform(dense)(x, w), np.asarray(x, np.float64) @ formed(w).T, dtype)

    @pytest.mark.parametrize("ids", [2, [4, 0, 4], [[1, 2], [3, 0]]])
    @pytest.mark.parametrize("integer", [jnp.uint8, jnp.int32])
    def test_embed(self, make, dtype, transform, ids, integer):
        w, ids = make(dtype), jnp.asarray(ids, integer)
        check(transform(embed)(w, ids), formed(w)[np.asarray(ids)], dtype)


@pytest.mark.parametrize("w", [draw(3, 5, 4, seed=1), outer(3)], ids=["array", "structured"])
class TestStackedLayers:
    def test_vmap(self, w):
        x = draw(3, 2, 4)
        check(jax.vmap(dense)(x, w), np.einsum("lbi,loi->lbo", x, formed(w)), jnp.float32)
        ids = jnp.asarray([[0, 4], [1, 1], [2, 3]])
        check(jax.vmap(embed)(w, ids), np.stack([formed(w)[i, ids[i]] for i in range(3)]), jnp.float32)

    def test_scan(self, w):
        x = draw(2, 4)
        _, got = jax.lax.scan(lambda x, w: (x, dense(x, w)), x, w)
        check(got, np.einsum("bi,loi->lbo", x, formed(w)), jnp.float32)

    def test_stack_must_be_sliced(self, w):
        with pytest.raises(ValueError, match=r"dense\(x, w\) got a weight of shape \(3, 5, 4\).*lax\.scan"):
            dense(draw(4), w)
        with pytest.raises(ValueError, match=r"embed\(table, ids\) got a weight of shape \(3, 5, 4\).*lax\.scan"):
            embed(w, jnp.asarray([0]))


def test_dense_contracts_without_a_transpose():
    jaxpr = jax.make_jaxpr(dense)(draw(3, 4), draw(5, 4))
    assert [equation.primitive.name for equation in jaxpr.eqns] == ["dot_general"]


def test_dense_promotes_as_numpy_does():
    x, w = draw(3, 4), draw(5, 4, dtype=jnp.bfloat16)
    with pytest.raises(jax.dtypes.TypePromotionError):
        dense(x, w)
    with jax.numpy_dtype_promotion("standard"):
        assert dense(x, w).dtype == jnp.float32


def test_numpy_arrays_are_arrays():
    x, w = np.ones((3, 4), np.float32), np.ones((5, 4), np.float32)
    np.testing.assert_array_equal(dense(x, w), np.full((3, 5), 4))
    np.testing.assert_array_equal(embed(w, np.asarray([1])), np.ones((1, 4)))


@pytest.mark.parametrize("w", [draw(5, 4), outer()], ids=["array", "structured"])
class TestErrors:
    def test_dense_of_another_width(self, w):
        with pytest.raises(ValueError, match=r"x of shape \(2, 3\) and w of shape \(5, 4\).*last axis is 4"):
            dense(draw(2, 3), w)

    def test_dense_of_a_scalar(self, w):
        with pytest.raises(ValueError, match=r"x of shape \(\) and w of shape \(5, 4\)"):
            dense(jnp.float32(1), w)

    def test_embed_of_floats(self, w):
        with pytest.raises(TypeError, match=r"ids of dtype float32, and needs integers.*astype"):
            embed(w, draw(3))


def test_dense_of_a_vector():
    with pytest.raises(ValueError, match=r"got a weight of shape \(4,\), and needs a matrix of shape \(out, in\)"):
        dense(draw(3, 4), draw(4))


def test_dense_with_its_arguments_swapped():
    with pytest.raises(shardes.StructuredWeightError, match=r"shardes\.nn\.dense\(x, w\)"):
        dense(outer(), draw(3, 4))
