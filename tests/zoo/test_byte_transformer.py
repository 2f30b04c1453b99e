"""The byte transformer against its equations, written once more in numpy, and against what they imply."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import Stacked
from shardes.nn import StructuredWeight, check_model, dense, embed
from shardes.stacked import stacking_axes
from shardes.zoo import byte_transformer
from shardes.zoo.byte_transformer import Config
from shardes.zoo.decoder import rope

CONFIG = Config(d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=24, context=8, norm_eps=1e-3)
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 256, (3, 7)).astype(np.uint8)
logits = jax.jit(byte_transformer.logits, static_argnums=2)
nll = jax.jit(byte_transformer.nll, static_argnums=2)


def random_params(config=CONFIG):
    """Params without the symmetries of those of init."""
    shapes = jax.eval_shape(lambda: byte_transformer.init(jax.random.key(0), config))
    return jax.tree.map(lambda s: jnp.asarray(1 / 3 * RNG.normal(size=s.shape) + (s.ndim < 3) * 0.5, s.dtype), shapes)


PARAMS = random_params()


def reference_logits(params, ids, c):
    """One sequence in float64, layer by layer, head by head, position by position."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def norm(x, gain):
        return x / np.sqrt((x**2).mean() + c.norm_eps) * gain

    def turn(head, position):
        out = np.empty(c.head_dim)
        half = c.head_dim // 2
        for i in range(half):
            angle = position * c.rope_theta ** (-2 * i / c.head_dim)
            z = complex(head[i], head[i + half]) * np.exp(1j * angle)
            out[i], out[i + half] = z.real, z.imag
        return out

    x = [params["embed"][i] for i in ids]
    for layer in range(c.n_layers):
        attention, mlp = (
            {name: w[layer] for name, w in params["blocks"].layers[part].items()} for part in ("attention", "mlp")
        )
        h = [norm(v, attention["norm"]) for v in x]
        q, k, v = ([(attention[name] @ row).reshape(-1, c.head_dim) for row in h] for name in "qkv")
        for t in range(len(ids)):
            heads = []
            for head in range(c.n_heads):
                shared = head // (c.n_heads // c.n_kv_heads)
                scores = [turn(q[t][head], t) @ turn(k[s][shared], s) / np.sqrt(c.head_dim) for s in range(t + 1)]
                weights = np.exp(scores) / np.exp(scores).sum()
                heads.append(sum(weights[s] * v[s][shared] for s in range(t + 1)))
            x[t] = x[t] + attention["o"] @ np.concatenate(heads)
        for t in range(len(ids)):
            h_t = norm(x[t], mlp["norm"])
            gate = mlp["gate"] @ h_t
            x[t] = x[t] + mlp["down"] @ (gate / (1 + np.exp(-gate)) * (mlp["up"] @ h_t))
    return np.stack([params["embed"] @ norm(v, params["norm"]) for v in x])


REFERENCE = np.stack([reference_logits(PARAMS, ids, CONFIG) for ids in IDS])


class TestAgainstTheEquations:
    def test_logits(self):
        got = logits(PARAMS, IDS, CONFIG)
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, REFERENCE, rtol=1e-5, atol=1e-5)

    def test_nll(self):
        log_p = REFERENCE - np.log(np.exp(REFERENCE).sum(-1, keepdims=True))
        want = [-np.mean([log_p[b, t, IDS[b, t + 1]] for t in range(6)]) for b in range(3)]
        got = nll(PARAMS, IDS, CONFIG)
        np.testing.assert_allclose(got, want, rtol=1e-5)
        np.testing.assert_allclose(byte_transformer.loss(PARAMS, jnp.asarray(IDS), CONFIG), np.mean(want), rtol=1e-5)

    def test_bfloat16(self):
        params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
        got = logits(params, IDS, CONFIG)
        assert got.dtype == jnp.bfloat16
        assert np.abs(np.asarray(got, np.float32) - REFERENCE).max() < 0.05 * np.abs(REFERENCE).max()
        assert nll(params, IDS, CONFIG).dtype == jnp.float32
        np.testing.assert_allclose(nll(params, IDS, CONFIG), nll(PARAMS, IDS, CONFIG), rtol=0.02)


class TestProperties:
    def test_causal(self):
        changed = IDS.copy()
        changed[:, 4:] ^= 0xFF
        before, after = logits(PARAMS, IDS, CONFIG), logits(PARAMS, changed, CONFIG)
        np.testing.assert_array_equal(before[:, :4], after[:, :4])
        assert (before[:, 4:] != after[:, 4:]).any(axis=-1).all()

    def test_attention_depends_on_relative_positions_alone(self):
        config = Config(d_model=64, n_heads=2, n_kv_heads=1)
        q, k = RNG.normal(size=(2, config.head_dim)).astype(np.float32)
        rotation = rope.rotation(jnp.arange(40), config.decoder.rope)
        q_turned, k_turned = (rope.rotate(jnp.tile(v, (40, 1)), rotation) for v in (q, k))
        scores = np.asarray(q_turned @ k_turned.T)
        for offset in range(-39, 40):
            np.testing.assert_allclose(np.diag(scores, offset), np.diag(scores, offset)[0], atol=2e-5)
        np.testing.assert_allclose(scores[0, 0], q @ k, rtol=1e-5)

    def test_rotation_is_in_float32(self):
        cos, sin = rope.rotation(jnp.arange(300), CONFIG.decoder.rope)
        angles = np.arange(300)[:, None] * CONFIG.rope_theta ** (-np.arange(0, CONFIG.head_dim, 2) / CONFIG.head_dim)
        np.testing.assert_allclose(cos, np.cos(angles), atol=1e-4)
        np.testing.assert_allclose(sin, np.sin(angles), atol=1e-4)

    def test_grouped_queries_equal_repeated_keys_and_values(self):
        config = dataclasses.replace(CONFIG, n_kv_heads=CONFIG.n_heads)
        attention = dict(PARAMS["blocks"].layers["attention"])
        for name in "kv":
            heads = attention[name].reshape(2, CONFIG.n_kv_heads, CONFIG.head_dim, -1)
            attention[name] = jnp.repeat(heads, 2, axis=1).reshape(2, CONFIG.d_model, -1)
        params = PARAMS | {"blocks": Stacked(PARAMS["blocks"].layers | {"attention": attention})}
        np.testing.assert_allclose(logits(params, IDS, config), logits(PARAMS, IDS, CONFIG), rtol=1e-5, atol=1e-5)

    def test_leading_axes_and_integer_dtypes(self):
        want = logits(PARAMS, IDS, CONFIG)
        np.testing.assert_allclose(logits(PARAMS, IDS.astype(np.int32), CONFIG), want, rtol=1e-6)
        np.testing.assert_allclose(logits(PARAMS, IDS[0], CONFIG), want[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(logits(PARAMS, IDS[:, None], CONFIG)[:, 0], want, rtol=1e-5, atol=1e-5)

    def test_too_short_to_score(self):
        with pytest.raises(ValueError, match=r"ids of shape \(3, 1\), and needs sequences of at least two bytes"):
            byte_transformer.nll(PARAMS, IDS[:, :1], CONFIG)

    def test_ids_that_are_not_integers(self):
        with pytest.raises(TypeError, match="ids of dtype float32, and needs integers"):
            byte_transformer.logits(PARAMS, jnp.ones((2, 3)), CONFIG)


class TestInit:
    def test_first_predictions_are_nearly_uniform(self):
        params = byte_transformer.init(jax.random.key(0), Config())
        ids = RNG.integers(0, 256, (8, 33)).astype(np.uint8)
        assert abs(float(byte_transformer.loss(params, jnp.asarray(ids), Config())) - np.log(256)) < 0.1

    def test_shapes_and_dtypes(self):
        params = byte_transformer.init(jax.random.key(0), CONFIG)
        assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
        shapes = {
            jax.tree_util.keystr(path, simple=True, separator="/"): x.shape
            for path, x in jax.tree_util.tree_leaves_with_path(params)
        }
        assert shapes == {
            "embed": (256, 16),
            "norm": (16,),
            "blocks/layers/attention/norm": (2, 16),
            "blocks/layers/attention/q": (2, 16, 16),
            "blocks/layers/attention/k": (2, 8, 16),
            "blocks/layers/attention/v": (2, 8, 16),
            "blocks/layers/attention/o": (2, 16, 16),
            "blocks/layers/mlp/norm": (2, 16),
            "blocks/layers/mlp/gate": (2, 24, 16),
            "blocks/layers/mlp/up": (2, 24, 16),
            "blocks/layers/mlp/down": (2, 16, 24),
        }

    def test_leaves_and_layers_are_drawn_apart(self):
        params = byte_transformer.init(jax.random.key(0), CONFIG)
        matrices = [x[layer] for x in jax.tree.leaves(params["blocks"]) if x.ndim == 3 for layer in range(2)]
        firsts = {float(w[0, 0] / jnp.std(w)) for w in matrices}
        assert len(firsts) == len(matrices) == 14


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
        return dense(x, self.base) + dense(dense(x, self.b[None]), self.a[:, None])

    def rows(self, ids):
        return embed(self.base, ids) + dense(embed(self.a[:, None], ids), self.b[:, None])


class TestOnTheSeams:
    def test_check_model_finds_nothing(self):
        for model in (byte_transformer.logits, byte_transformer.nll, byte_transformer.loss):
            assert check_model(model, PARAMS, jnp.asarray(IDS), CONFIG) == []

    def test_members_with_structured_weights(self):
        def draw(*shape):
            return jnp.asarray(0.1 * RNG.normal(size=(2, *shape)), jnp.float32)

        def perturb(path, x):
            members = jnp.stack([x, x])
            if x.ndim - stacking_axes(path) != 2:
                return members + draw(*x.shape)
            return Outer(members, draw(*x.shape[:-1]), draw(*x.shape[:-2], x.shape[-1]))

        members = jax.tree_util.tree_map_with_path(perturb, PARAMS)
        formed = jax.tree.map(
            lambda w: w.base + w.a[..., :, None] * w.b[..., None, :] if isinstance(w, Outer) else w,
            members,
            is_leaf=lambda w: isinstance(w, Outer),
        )
        assert sum(isinstance(w, Outer) for w in jax.tree.leaves(members, is_leaf=lambda w: isinstance(w, Outer))) == 8
        run = jax.jit(jax.vmap(lambda params: byte_transformer.nll(params, jnp.asarray(IDS), CONFIG)))
        np.testing.assert_allclose(run(members), run(formed), rtol=1e-5)


class TestConfig:
    @pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Config)])
    @pytest.mark.parametrize("value", [0, -1, "8", None])
    def test_not_positive(self, field, value):
        with pytest.raises(
            ValueError, match=rf"{field} is {value!r}, and must be a positive (integer|number), such as"
        ):
            Config(**{field: value})

    def test_not_an_integer(self):
        with pytest.raises(ValueError, match=r"d_model is 64\.0, and must be a positive integer, such as 64"):
            Config(d_model=64.0)

    def test_heads_of_unequal_width(self):
        with pytest.raises(ValueError, match=r"d_model is 10 and n_heads is 4.*Choose a d_model that n_heads divides"):
            Config(d_model=10)

    def test_heads_of_odd_width(self):
        with pytest.raises(ValueError, match=r"d_model / n_heads is 3, and must be even.*that 8 divides"):
            Config(d_model=12)

    def test_unequal_groups(self):
        with pytest.raises(ValueError, match=r"n_heads is 4 and n_kv_heads is 3.*an n_kv_heads that divides n_heads"):
            Config(n_kv_heads=3)

    def test_is_a_static_argument(self):
        assert hash(Config()) == hash(Config())
        assert dataclasses.replace(Config(), d_model=32).head_dim == 8
