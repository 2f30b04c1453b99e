"""Threefry words against their sources, normals against the inverse they approximate, keys of every kind."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from scipy.special import erfinv

from shardes import random

from .support import assert_identical, mesh_of

SHAPES = [(), (1,), (7,), (3, 4), (2, 3, 5)]


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_vectors_of_random123(key, counter, words):
    given = random.threefry2x32(jnp.array(key, jnp.uint32), *jnp.array(counter, jnp.uint32))
    assert tuple(map(int, given)) == words


def test_threefry_is_that_of_jax():
    key = jnp.array([123456789, 987654321], jnp.uint32)
    high, low = jax.random.bits(jax.random.key(0), (2, 1000), jnp.uint32)
    given = random.threefry2x32(key, high, low)
    expected = jax.extend.random.threefry_2x32(key, jnp.concatenate([high, low])).reshape(2, 1000)
    assert_identical(given, tuple(expected))


def test_fold_in_gives_the_words_of_the_counters():
    key = jnp.array([1, 2], jnp.uint32)
    keys = random.fold_in(key, np.arange(5), 3)
    high, low = jnp.arange(5, dtype=jnp.uint32), jnp.full(5, 3, jnp.uint32)
    assert_identical(keys, jnp.stack(random.threefry2x32(key, high, low), axis=-1))
    assert_identical(random.fold_in(key, jnp.int32(4)), random.fold_in(key, 4, 0))


@pytest.mark.parametrize("shape", SHAPES)
def test_an_entry_depends_on_key_row_and_column_alone(shape):
    key = jax.random.key(5)
    words = np.asarray(random.bits(key, shape)).reshape(-1, shape[-1] if shape else 1)
    whole = np.asarray(random.bits(key, (11, 13)))
    assert_identical(words, whole[: words.shape[0], : words.shape[1]])
    assert (random.bits(jax.random.key(6), (11, 13)) != whole).all()


@pytest.mark.parametrize("draw", [random.bits, random.normal])
def test_the_same_under_vmap_scan_jit_and_sharding(draw):
    keys = jax.random.split(jax.random.key(0), 16)

    @jax.jit
    def one(key):
        return draw(key, (3, 5))

    expected = jnp.stack([one(key) for key in keys])
    assert_identical(jax.jit(jax.vmap(one))(keys), expected)
    assert_identical(jax.jit(lambda keys: jax.lax.map(one, keys))(keys), expected)
    assert_identical(jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=5))(keys), expected)
    split = jax.device_put(keys, NamedSharding(mesh_of(8), P("pop")))
    assert_identical(jax.jit(jax.vmap(one))(split), expected)


@pytest.mark.parametrize("draw", [random.bits, random.normal])
def test_start_numbers_the_rows(draw):
    key = jax.random.key(5)
    assert_identical(draw(key, (2, 7), 3), draw(key, (5, 7))[3:])


def test_normal_is_the_inverse_of_its_uniforms(monkeypatch):
    """All 2**24 values of the 24 bits: the quantile to 2e-6, odd to the bit, so that the mean is exactly zero."""

    @jax.jit
    def normals(words):
        monkeypatch.setattr(random, "bits", lambda key, shape, start: words)
        return random.normal.__wrapped__(jax.random.key(0), words.shape)

    largest, square = 0.0, 0.0
    for start in range(0, 2**23, 2**20):
        steps = np.arange(start, start + 2**20, dtype=np.int64)
        positive = np.asarray(normals((steps << 8).astype(np.uint32)))
        negative = np.asarray(normals(((-1 - steps) << 8 | 255).astype(np.uint32)))
        assert_identical(negative, -positive)
        np.testing.assert_allclose(positive, np.sqrt(2) * erfinv((steps + 0.5) * 2.0**-23), rtol=0, atol=2e-6)
        largest, square = max(largest, positive.max()), square + np.square(positive, dtype=np.float64).sum()
    assert 5.4 < largest < 5.5
    assert abs(square / 2**23 - 1) < 1e-6


def test_root_key_is_the_same_for_a_key_and_its_data():
    key = jax.random.key(42)
    root = random.root_key(key)
    assert (root.shape, root.dtype) == ((2,), jnp.uint32)
    assert_identical(random.root_key(jax.random.key_data(key)), root)
    assert_identical(random.root_key(np.asarray(jax.random.key_data(key))), root)


def test_root_key_is_none_that_the_caller_draws_from():
    """Neither the key nor any that jax.random splits from it or folds into it."""
    key = jax.random.key(42)
    root = random.root_key(key)
    used = [jax.random.key_data(key)[None], jax.random.key_data(jax.random.split(key, 1000))]
    used.append(jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(1000))))
    assert not (jnp.concatenate(used) == root[None]).all(axis=1).any()


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_root_key_of_longer_keys_depends_on_all_their_words(impl):
    data = np.array([1, 2, 3, 4], np.uint32)
    roots = {tuple(np.asarray(random.root_key(data)))}
    assert_identical(random.root_key(jax.random.wrap_key_data(data, impl=impl)), random.root_key(data))
    for word in range(4):
        roots.add(tuple(np.asarray(random.root_key(data + np.eye(4, dtype=np.uint32)[word]))))
    assert len(roots) == 5


@pytest.mark.parametrize(
    "key",
    [0, None, [0, 1], jax.random.split(jax.random.key(0), 2), jnp.zeros((2, 2), jnp.uint32), jnp.zeros(2, jnp.int32),
     jnp.zeros(3, jnp.uint32), jnp.float32(0)],
    ids=["int", "None", "list", "two keys", "two raw keys", "int32", "three words", "a float"],
)  # fmt: skip
def test_what_is_not_one_key_is_refused(key):
    with pytest.raises(TypeError, match=r"A key must be one JAX key, got .* Pass jax\.random\.key\(0\)"):
        random.root_key(key)
