"""check_model: what it finds, where, and what it lets pass."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shardes import Stacked
from shardes.nn import check_model, dense, embed

X = jnp.ones(4)
IDS = jnp.asarray([0, 2], jnp.uint8)


def shape(*dimensions, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def check(model, *batch, w=None, **others):
    """What is found in a model of one matrix, given as `model(w, *batch)`."""
    params = {"w": shape(4, 4) if w is None else w, **others}
    return check_model(lambda params, *batch: model(params["w"], *batch), params, *batch)


class TestFindsEveryMisuse:
    MODELS = {  # noqa: RUF012
        "w @ x": lambda w, x: w @ x,
        "the operator matmul": lambda w, x: x @ w,
        "the operator mul": lambda w, x: jnp.expand_dims(x, 0) * w,
        "w * x": lambda w, x: w * 2,
        "x * w": lambda w, x: 2 * w,
        "x - w": lambda w, x: np.ones((4, 4), np.float32) - w,
        "-w": lambda w, x: -w,
        "abs(w)": lambda w, x: abs(w),
        "w < x": lambda w, x: w < 0,
        "w == x": lambda w, x: w == 0,
        "w[...]": lambda w, x: w[0],
        "iteration over w": lambda w, x: sum(row for row in w),
        "len(w)": lambda w, x: x * len(w),
        ".T": lambda w, x: w.T,
        ".reshape": lambda w, x: w.reshape(-1),
        ".astype": lambda w, x: w.astype(jnp.float32),
        ".at": lambda w, x: w.at[0].get(),
        ".sum": lambda w, x: w.sum(),
        "jax.numpy.asarray": lambda w, x: jnp.asarray(w),
        "jax.numpy.dot": lambda w, x: jnp.dot(x, w),
        "jax.numpy.einsum": lambda w, x: jnp.einsum("i,ij->j", x, w),
        "jax.numpy.take": lambda w, x: jnp.take(w, 0, axis=0),
        "jax.numpy.stack": lambda w, x: jnp.stack([w, w]),
        "jax.numpy.exp": lambda w, x: jnp.exp(w),
        "jax.numpy.linalg.norm": lambda w, x: jnp.linalg.norm(w),
        "jax.nn.relu": lambda w, x: jax.nn.relu(w),
        "jax.nn.softmax": lambda w, x: jax.nn.softmax(w),
        "jax.lax.dot": lambda w, x: lax.dot(x, w),
        "jax.lax.dot_general": lambda w, x: lax.dot_general(x, w, (((0,), (1,)), ((), ()))),
        "jax.lax.transpose": lambda w, x: lax.transpose(w, (1, 0)),
        "jax.lax.dynamic_slice": lambda w, x: lax.dynamic_slice(w, (0, 0), (1, 4)),
        "jax.lax.convert_element_type": lambda w, x: lax.convert_element_type(w, jnp.bfloat16),
        "numpy.asarray(w)": lambda w, x: x + np.asarray(w).sum(),
    }

    @pytest.mark.parametrize("operation", MODELS)
    def test_operation_and_place(self, operation):
        model = self.MODELS[operation]
        found = check(model, X)
        # What numpy is given carries no trace of the weight.
        misused = [finding for finding in found if finding.operation]
        assert [(f.leaf, f.shape, f.operation) for f in misused] == [("w", (4, 4), operation)]
        assert (misused[0].file, misused[0].line) == (__file__, inspect.getsourcelines(model)[1])

    @pytest.mark.parametrize(
        "wrap",
        [
            jax.jit,
            jax.checkpoint,
            lambda f: lambda w, x: lax.cond(x[0] > 0, f, f, w, x),
            lambda f: lambda w, x: jax.vmap(f, in_axes=(None, 0))(w, jnp.stack([x, x])),
            lambda f: (
                lambda w, x: lax.scan(lambda carry, w: (carry, f(w, x)), x, jax.tree.map(lambda a: a[None], w))[1]
            ),
            lambda f: lambda w, x: lax.while_loop(lambda c: c[1][0] < 0, lambda c: (c[0], f(*c)), (w, x))[1],
        ],
        ids=["jit", "checkpoint", "cond", "vmap", "scan", "while_loop"],
    )
    @pytest.mark.parametrize("bad", [lambda w, x: w.T @ x, lambda w, x: lax.dot(w, x)], ids=["method", "lax"])
    def test_within(self, wrap, bad):
        operations = [finding.operation for finding in check(wrap(bad), X)]
        assert operations in ([".T"], ["jax.lax.dot"])
        assert check(wrap(lambda w, x: dense(x, w)), X) == []


@jax.jit
def project(w, x):
    return w @ x


def test_a_function_jitted_before_hides_nothing():
    project(jnp.ones((4, 4)), X)
    for _ in range(2):
        assert [finding.operation for finding in check(project, X)] == ["w @ x"]


def test_all_in_one_pass():
    params = {
        "bias": shape(4),
        "blocks": Stacked(
            {"up": shape(3, 4, 4), "gain": shape(3, 4), "unread": shape(3, 4, 4), "unread_gain": shape(3, 4)}
        ),
        "embed": shape(9, 4),
        "first": shape(4, 4),
        "frozen": shape(4, 4, dtype=jnp.int32),
        "second": shape(4, 4),
        "third": shape(4, 4),
    }

    def block(x, layer):
        x = x * jnp.broadcast_to(layer["gain"], x.shape)
        return x + jnp.dot(x, layer["up"]), layer["unread"].shape[0]

    def model(params, ids):
        x = embed(params["embed"], ids)
        x = x @ params["first"]
        x = dense(x, params["second"]) + lax.dot(x, params["second"])
        x = x + params["first"][0][None] + params["bias"][None]
        x, _ = lax.scan(block, x, params["blocks"].layers)
        x = lax.dot(x, params["third"])
        return jnp.einsum("...d,vd->...v", x, params["embed"])

    found = [(finding.leaf, finding.operation) for finding in check_model(model, params, IDS)]
    assert found == [
        ("first", "the operator matmul"),
        ("second", "jax.lax.dot"),
        ("first", "w[...]"),
        ("blocks/layers/up", "jax.numpy.dot"),
        ("third", "jax.lax.dot"),
        ("embed", "jax.numpy.einsum"),
        ("blocks/layers/unread", None),
        ("blocks/layers/unread_gain", None),
    ]


def test_prints_what_to_do():
    def model(params, x):
        return params["w"] @ x

    line = inspect.getsourcelines(model)[1] + 1
    misuse, unread = check_model(model, {"w": shape(4, 4), "z": shape(3)}, X)
    assert str(misuse) == (
        f"The matrix 'w' of shape (4, 4) is reached by w @ x in {__file__}, line {line} "
        '(return params["w"] @ x): use shardes.nn.dense(x, w) for x @ w.T, or shardes.nn.embed(w, ids) for w[ids].'
    )
    assert str(unread) == (
        "The leaf 'z' of shape (3,) cannot influence the output: read it in the model, take it out of the params, or "
        "freeze it."
    )


class TestLetsPass:
    def test_tied_embedding(self):
        assert check(lambda w, ids: dense(embed(w, ids), w), IDS, w=shape(9, 4)) == []

    def test_vectors_scalars_and_larger_leaves(self):
        params = {"bias": shape(4), "scale": shape(), "kernel": shape(2, 4, 4), "number": 1.0}

        def model(p, x):
            return jnp.einsum("i,kij->kj", x, p["kernel"]) * p["scale"] * p["number"] + p["bias"][None]

        assert check_model(model, params, X) == []

    def test_stacked_matrices_under_vmap(self):
        params = Stacked({"w": shape(3, 4, 4)})
        assert check_model(lambda p, x: jax.vmap(dense, in_axes=(None, 0))(x, p.layers["w"]), params, X) == []

    def test_shape_and_dtype(self):
        assert check(lambda w, x: dense(x.astype(w.dtype), w) * w.shape[0] * w.ndim, X) == []

    def test_a_cast_of_all_params(self):
        def model(params, x):
            params = jax.tree.map(lambda a: a.astype(jnp.bfloat16), params)
            return dense(x.astype(jnp.bfloat16), params["w"])

        assert check_model(model, {"w": shape(4, 4)}, X) == []

    def test_integer_matrices(self):
        params = {"table": shape(4, 4, dtype=jnp.int32), "unread": shape(4, 4, dtype=jnp.int32), "b": shape(4)}
        assert check_model(lambda p, x: p["table"] @ jnp.ones(4, jnp.int32) + p["b"].astype(int), params, X) == []

    def test_frozen_leaves(self):
        params = {"frozen": {"w": shape(4, 4), "unread": shape(4)}, "w": shape(4, 4)}

        def model(params, x):
            return params["frozen"]["w"] @ dense(x, params["w"])

        assert len(check_model(model, params, X)) == 2
        assert check_model(model, params, X, freeze=lambda path: path.startswith("frozen/")) == []


class TestUnread:
    def unread(self, model, **params):
        found = check_model(model, params, X)
        assert all(finding.operation is None for finding in found)
        return [finding.leaf for finding in found]

    def test_what_is_computed_but_not_returned(self):
        def model(p, x):
            _ = dense(x, p["w"]) + p["b"]
            return dense(x, p["v"])

        assert self.unread(model, w=shape(4, 4), b=shape(4), v=shape(4, 4)) == ["b", "w"]

    def test_a_carry_that_reaches_no_output(self):
        def body(carry, layer):
            return (dense(carry[0], layer["w"]), carry[1] * layer["g"]), None

        def model(p, x):
            carry, _ = lax.scan(body, (x, x), p["blocks"].layers)
            return carry[0]

        assert self.unread(model, blocks=Stacked({"w": shape(3, 4, 4), "g": shape(3, 4)})) == ["blocks/layers/g"]

    def test_within_jit_and_checkpoint(self):
        @jax.checkpoint
        @jax.jit
        def inner(p, x):
            return dense(x, p["w"]), p["b"] * x

        assert self.unread(lambda p, x: inner(p, x)[0], w=shape(4, 4), b=shape(4)) == ["b"]

    def test_used_for_its_shape_alone(self):
        assert self.unread(lambda p, x: x + jnp.zeros_like(p["b"]), b=shape(4)) == ["b"]

    def test_constants_do_not_count_as_params(self):
        constant = jnp.arange(4.0)
        assert self.unread(lambda p, x: x * constant * p["b"], a=shape(4), b=shape(4), c=shape(4)) == ["a", "c"]


class TestArguments:
    def test_arrays_and_shapes_alike(self):
        def model(params, batch, scale):
            return dense(batch["x"], params["w"]) * scale

        w, x = shape(4, 4), shape(2, 4)
        for params in ({"w": w}, {"w": jnp.ones(w.shape)}, {"w": np.ones(w.shape, np.float32)}):
            for batch in ({"x": x}, {"x": jnp.ones(x.shape)}):
                assert check_model(model, params, batch, 2.0) == []

    def test_what_is_no_array_arrives_as_it_is(self):
        def model(params, x, mode, layers):
            assert mode == "twice"
            for _ in range(layers):
                x = dense(x, params["w"])
            return x

        assert check_model(model, {"w": shape(4, 4)}, X, "twice", 2) == []

    def test_partial_and_jitted_models(self):
        def model(params, x, scale):
            return dense(x, params["w"]) * scale

        assert check_model(jax.jit(functools.partial(model, scale=2.0)), {"w": shape(4, 4)}, X) == []


class TestErrorsOfTheModel:
    def test_are_its_own(self):
        def model(params, x):
            raise KeyError("own")

        with pytest.raises(KeyError, match="own") as raised:
            check_model(model, {"w": shape(4, 4)}, X)
        assert "check_model" not in str(raised.value.__notes__)

    def test_carry_what_was_found_before(self):
        def model(params, x):
            y = params["w"] @ x
            return y + jnp.ones(3)

        with pytest.raises(TypeError, match="incompatible shapes") as raised:
            check_model(model, {"w": shape(4, 4)}, X)
        assert "shardes.nn.check_model found: The matrix 'w'" in raised.value.__notes__[-1]

    def test_within_lax_are_its_own(self):
        with pytest.raises(ValueError, match="dimension_numbers"):
            check(lambda w, x: lax.dot(w, jnp.ones(3)), X)

    def test_of_a_seam(self):
        with pytest.raises(ValueError, match=r"dense\(x, w\) got x of shape \(4,\) and w of shape \(4, 3\)"):
            check(lambda w, x: dense(x, w), X, w=shape(4, 3))
