"""Rotary frequencies against their formulas, pair by pair, and what turning implies."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from shardes.zoo.decoder import rope

DIM, THETA, FACTOR, ORIGINAL = 16, 5000.0, 6.0, 48
PLAIN = [THETA ** (-2 * i / DIM) for i in range(DIM // 2)]


def test_default():
    np.testing.assert_allclose(rope.default(DIM, THETA).frequencies, PLAIN, rtol=1e-12)


def test_linear():
    got = rope.linear(DIM, THETA, FACTOR)
    np.testing.assert_allclose(got.frequencies, [f / FACTOR for f in PLAIN], rtol=1e-12)
    assert got.scale == 1


def test_llama3():
    low, high = 1.5, 3.0
    want = []
    for f in PLAIN:
        wavelength = 2 * math.pi / f
        if wavelength < ORIGINAL / high:
            want.append(f)
        elif wavelength > ORIGINAL / low:
            want.append(f / FACTOR)
        else:
            smooth = (ORIGINAL / wavelength - low) / (high - low)
            want.append((1 - smooth) * f / FACTOR + smooth * f)
    assert 0 < sum(w == f for w, f in zip(want, PLAIN, strict=True)) < DIM // 2
    np.testing.assert_allclose(rope.llama3(DIM, THETA, FACTOR, low, high, ORIGINAL).frequencies, want, rtol=1e-12)


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn(truncate):
    fast, slow = 3.0, 0.5

    def pair(turns):
        return DIM * math.log(ORIGINAL / (2 * math.pi * turns)) / (2 * math.log(THETA))

    first, last = (math.floor(pair(fast)), math.ceil(pair(slow))) if truncate else (pair(fast), pair(slow))
    want = []
    for i, f in enumerate(PLAIN):
        ramp = min(max((i - max(first, 0)) / (min(last, DIM - 1) - max(first, 0)), 0), 1)
        want.append(f / FACTOR * ramp + f * (1 - ramp))
    got = rope.yarn(DIM, THETA, FACTOR, ORIGINAL, fast=fast, slow=slow, truncate=truncate)
    np.testing.assert_allclose(got.frequencies, want, rtol=1e-12)
    assert got.scale == pytest.approx(0.1 * math.log(FACTOR) + 1)
    assert rope.yarn(DIM, THETA, FACTOR, ORIGINAL, scale=1.25).scale == 1.25
    assert rope.yarn(DIM, THETA, 0.5, ORIGINAL).scale == 1


def test_yarn_whose_bounds_meet():
    assert np.isfinite(rope.yarn(4, 2.0, 4.0, 2).frequencies).all()


def test_angles_are_in_float32_and_scaled():
    cos, sin = rope.rotation(jnp.arange(3000)[None], rope.Rope(tuple(PLAIN), 1.5))
    angles = np.arange(3000)[None, :, None] * np.asarray(PLAIN)
    assert cos.dtype == sin.dtype == jnp.float32
    np.testing.assert_allclose(cos, 1.5 * np.cos(angles), atol=5e-4)
    np.testing.assert_allclose(sin, 1.5 * np.sin(angles), atol=5e-4)


def test_rotate_turns_the_same_entry_of_the_two_halves():
    x = jnp.arange(8, dtype=jnp.float32).reshape(1, 8)
    angles = jnp.array([0.1, 0.2, 0.3, 0.4])
    got = np.asarray(rope.rotate(x, (jnp.cos(angles), jnp.sin(angles))))[0]
    turned = (np.arange(4) + 1j * np.arange(4, 8)) * np.exp(1j * np.asarray(angles))
    np.testing.assert_allclose(got, np.concatenate([turned.real, turned.imag]), rtol=1e-6, atol=1e-6)
    assert rope.rotate(x.astype(jnp.bfloat16), (jnp.cos(angles), jnp.sin(angles))).dtype == jnp.bfloat16
