"""The mesh that a population is split over."""

import jax
import pytest
from jax.sharding import AxisType

import shardes


def test_every_device_by_default():
    mesh = shardes.make_mesh()
    assert mesh.axis_names == ("pop",)
    assert list(mesh.devices.flat) == jax.devices()
    assert shardes.ShardedES(shardes.IIDGaussian(), 4, sigma=0.1, lr=0.1).mesh == mesh


def test_chosen_devices_in_their_order():
    chosen = [jax.devices()[i] for i in (3, 1, 2)]
    assert list(shardes.make_mesh(chosen).devices.flat) == chosen


def test_shardings_stay_out_of_the_types_of_a_model():
    assert shardes.make_mesh().axis_types == (AxisType.Auto,)


def test_no_device_is_refused():
    with pytest.raises(ValueError, match="A mesh needs at least one device, got none"):
        shardes.make_mesh([])
