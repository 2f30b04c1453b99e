"""Every wrong argument is refused with what was given and what is needed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardes
from shardes import IIDGaussian, LowRank, Mirrored, SeedRegenerated, ShardedES, Stacked

from .support import make_es

PARAMS = {"w": jnp.zeros((3, 4)), "b": jnp.zeros(3)}
NAN, INF = float("nan"), float("inf")


def construct(strategy=IIDGaussian(), n=8, **options):  # noqa: B008
    return ShardedES(
        strategy, n, **{"sigma": 0.1, **({} if {"lr", "optimizer"} & {*options} else {"lr": 0.1}), **options}
    )


def init(params=PARAMS, key=None, **options):
    return make_es(**options).init(jax.random.key(0) if key is None else key, params)


def ask(**options):
    es = make_es(**options)
    return es, *es.ask(es.init(jax.random.key(0), PARAMS))


def tell(fitness, **options):
    es, pert, state = ask(**options)
    return es.tell(state, pert, fitness)


def apply(in_axes, *args):
    es, pert, state = ask()
    return es.apply(lambda params, *args: 0.0, state, pert, in_axes)(*args)


@pytest.mark.parametrize("strategy", [LowRank, IIDGaussian, "low_rank", None, abs], ids=repr)
def test_strategy(strategy):
    with pytest.raises(
        TypeError, match=r"strategy must be a shardes.Strategy, got .* Pass an instance, such as LowRank\(r=1\)"
    ):
        construct(strategy)


@pytest.mark.parametrize("n", [0, -2, 2.0, True, "8", None])
def test_n(n):
    with pytest.raises(ValueError, match=f"n must be an integer of at least 1, got {n!r}"):
        construct(n=n)


def test_odd_n_of_mirrored_members():
    with pytest.raises(ValueError, match=r"n must be a multiple of 2 for Mirrored\(.*\), .* got 7. Use n=8"):
        construct(Mirrored(IIDGaussian()), n=7)


@pytest.mark.parametrize(
    "sigma", [0, 0.0, -0.1, NAN, INF, "0.1", np.ones(3), {"w": 0.1, "b": 0.0}, {"w": NAN, "b": 1.0}], ids=repr
)
def test_sigma(sigma):
    with pytest.raises(ValueError, match=r"sigma must be finite and above 0 .*, one number or one a leaf, got"):
        construct(sigma=sigma)


@pytest.mark.parametrize(
    "sigma", [{"w": 0.1}, {"w": 0.1, "b": 0.1, "c": 0.1}, [0.1, 0.1], {"w": 0.1, "b": [0.1]}], ids=repr
)
def test_structure_of_sigma(sigma):
    with pytest.raises(ValueError, match=r"sigma must be one number or a tree of the structure of params"):
        init(sigma=sigma)
    with pytest.raises(ValueError, match=r"sigma must be one number or a tree of the structure of params"):
        ask(sigma=lambda generation: sigma)


def test_neither_lr_nor_optimizer_and_both():
    with pytest.raises(ValueError, match=r"Give lr, for plain SGD, or optimizer, and not both; got neither"):
        construct(lr=None)
    with pytest.raises(ValueError, match=r"Give lr, for plain SGD, or optimizer, and not both; got both"):
        construct(lr=0.1, optimizer=optax.sgd(0.1))


def test_schedules_that_give_no_scalar():
    with pytest.raises(ValueError, match=r"sigma must give scalars, got shapes \(3,\)"):
        ask(sigma=lambda generation: jnp.ones(3))
    with pytest.raises(ValueError, match=r"An lr schedule must give a scalar, got shape \(3,\)"):
        ask(lr=lambda generation: jnp.ones(3))


@pytest.mark.parametrize("lr", [NAN, INF, -0.1, "fast", 1j, np.ones(3)], ids=repr)
def test_lr(lr):
    with pytest.raises(ValueError, match=r"lr must be a finite number of at least 0 or a schedule, got .*the negative"):
        construct(lr=lr)


@pytest.mark.parametrize("optimizer", ["adam", optax.adam, 0.1], ids=["name", "class", "number"])
def test_optimizer(optimizer):
    with pytest.raises(TypeError, match=r"optimizer must have init and update, as optax's have, got"):
        construct(optimizer=optimizer)


def test_mesh_without_the_population_axis():
    with pytest.raises(
        ValueError, match=r"""The mesh has axes \('x',\) and needs one named "pop". Use shardes.make_mesh"""
    ):
        construct(mesh=jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)))


def test_mesh_with_axes_that_are_not_auto():
    with pytest.raises(ValueError, match=r"The mesh has axes of types .* and needs them Auto.* Use shardes.make_mesh"):
        construct(mesh=jax.make_mesh((8,), ("pop",), axis_types=(jax.sharding.AxisType.Explicit,)))


@pytest.mark.parametrize("mesh", [8, jax.devices()], ids=["a count", "devices"])
def test_mesh_that_is_none(mesh):
    with pytest.raises(TypeError, match=r"mesh must be a jax.sharding.Mesh, got .* Use shardes.make_mesh\(\)"):
        construct(mesh=mesh)


@pytest.mark.parametrize("how", ["C", "a", None, 0])
def test_how(how):
    with pytest.raises(ValueError, match=f'how must be "A", "B" or "auto", got {how!r}'):
        construct(how=how)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True])
def test_member_chunk(chunk):
    with pytest.raises(ValueError, match=f"member_chunk must be an integer of at least 1 or None, got {chunk!r}"):
        construct(member_chunk=chunk)


def test_shaping():
    with pytest.raises(
        TypeError, match=r"shaping must be a function such as shardes.shaping.centered_ranks, got 'ranks'"
    ):
        construct(shaping="ranks")


@pytest.mark.parametrize("dtype", [jnp.int32, bool, jnp.complex64])
def test_compute_dtype(dtype):
    with pytest.raises(ValueError, match=r"compute_dtype must be a float dtype, got"):
        construct(compute_dtype=dtype)


@pytest.mark.parametrize("r", [0, -1, 1.0, None])
def test_rank(r):
    with pytest.raises(ValueError, match=f"r must be an integer of at least 1, got {r!r}: the rank"):
        LowRank(r)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, None])
def test_directions_regenerated_at_once(chunk):
    with pytest.raises(ValueError, match=f"chunk must be an integer of at least 1, got {chunk!r}: directions"):
        SeedRegenerated(chunk=chunk)


def test_mirrored():
    with pytest.raises(
        TypeError, match=r"Mirrored needs a strategy, got .*LowRank.* Pass one, as in Mirrored\(LowRank"
    ):
        Mirrored(LowRank)
    with pytest.raises(ValueError, match=r"already has signs \(1.0, -1.0\). Mirror it once"):
        Mirrored(Mirrored(LowRank(1)))


@pytest.mark.parametrize("key", [0, None, jax.random.split(jax.random.key(0), 2), jnp.zeros((4, 2), jnp.uint32)],
                         ids=["a seed", "None", "two keys", "four raw keys"])  # fmt: skip
def test_key(key):
    es = make_es()
    with pytest.raises(TypeError, match=r"A key must be one JAX key, got .* Pass jax\.random\.key\(0\)"):
        es.init(key, PARAMS)


@pytest.mark.parametrize("params", [{}, {"ids": jnp.arange(3)}, {"flag": True, "n": 3}], ids=repr)
def test_params_without_a_float_leaf(params):
    with pytest.raises(
        ValueError, match=r"params must have at least one float leaf that is not frozen, got .* Convert"
    ):
        init(params)


def test_complex_leaf():
    with pytest.raises(ValueError, match=r"The leaf 'c' is complex64, and only real leaves can be trained. Split it"):
        init({**PARAMS, "c": jnp.zeros(2, jnp.complex64)})


def test_stacked_leaf_with_too_few_axes():
    with pytest.raises(
        ValueError, match=r"'blocks/layers' of shape \(\) lies under 1 shardes.Stacked .* Stack its layers"
    ):
        init({**PARAMS, "blocks": Stacked(jnp.float32(1))})


def test_freeze():
    with pytest.raises(TypeError, match=r"freeze must be a function of a path, such as .*, got 'norm'"):
        construct(freeze="norm")


def test_freeze_that_matches_nothing_or_everything():
    with pytest.raises(ValueError, match=r"freeze matches none of the leaves \['b', 'w'\]. Leave it out, or mend"):
        init(freeze=lambda path: path == "weights")
    with pytest.raises(ValueError, match=r"params must have at least one float leaf .* \['b', 'w'\]. .* freeze fewer"):
        init(freeze=lambda path: True)


@pytest.mark.parametrize("shape", [(7,), (9,), (1,), (), (8, 2, 2), (2, 8)])
def test_shape_of_fitness(shape):
    with pytest.raises(ValueError, match=r"fitness must have shape \(n,\) or \(n, groups\) with n=8, got \("):
        tell(jnp.zeros(shape))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_fitness_below_float32(dtype):
    with pytest.raises(TypeError, match=r"fitness must be float32 or wider, got .* Reduce the loss in float32"):
        tell(jnp.zeros(8, dtype))


@pytest.mark.parametrize("dtype", [jnp.int32, bool])
def test_fitness_that_is_not_float(dtype):
    with pytest.raises(TypeError, match=r"fitness must be float32 or wider, got .* Return a float loss"):
        tell(jnp.zeros(8, dtype))


@pytest.mark.parametrize(
    "beside", [lambda x: None, lambda x: (x, x), lambda x: {"loss": x}], ids=["None", "pair", "dict"]
)
def test_a_loss_with_something_beside_it(beside):
    es = make_es(n=2)
    state = es.init(jax.random.key(0), PARAMS)
    with pytest.raises(TypeError, match=r"fitness must be an array, got (NoneType|tuple|dict). Return the loss, and"):
        es.step(lambda params: beside(jnp.sum(params["w"])))(state)


def test_perturbation_of_another_es():
    es = make_es()
    state = es.init(jax.random.key(0), PARAMS)
    for other in (make_es(n=34), make_es("seed"), make_es(optimizer=optax.sgd(0.1))):
        pert, _ = other.ask(other.init(jax.random.key(0), PARAMS))
        with pytest.raises(ValueError, match=r"The perturbation is one of .*, and this ES is .* with n=8 and an lr"):
            es.tell(state, pert, jnp.zeros(8))
        with pytest.raises(ValueError, match=r"The perturbation is one of .*, and this ES is .* with n=8 and an lr"):
            es.apply(lambda params: 0.0, state, pert)()


def test_arguments_in_the_wrong_place():
    es, pert, state = ask()
    with pytest.raises(TypeError, match=r"A key must be one JAX key, got dict"):
        es.init(PARAMS, jax.random.key(0))
    with pytest.raises(TypeError, match=r"state must be an ESState, as init, ask and tell give it, got dict"):
        es.ask(PARAMS)
    with pytest.raises(TypeError, match=r"pert must be a Perturbation, as ask gives it, got Array"):
        es.tell(state, jnp.zeros(8), pert)
    with pytest.raises(TypeError, match=r"fitness must be an array, got a function. Call es.apply"):
        es.tell(state, pert, es.apply(lambda params, x: x, state, pert))
    with pytest.raises(TypeError, match=r"state must be an ESState"):
        es.apply(lambda params: 0.0, pert, state)


class Wrong(shardes.Strategy):
    """Gives what it is made with in the place of noise, of a shifted weight and of a sum."""

    def __init__(self, noise=lambda shape: jnp.zeros(shape), **methods):
        self.of_shape = noise
        vars(self).update(methods)

    def noise(self, key, shape):
        return self.of_shape(shape)


@pytest.mark.parametrize(
    "noise", [lambda shape: jnp.float32(1), lambda shape: jnp.ones(1), lambda shape: None], ids=range(3)
)
def test_noise_of_another_shape(noise):
    es = construct(Wrong(noise), mesh=shardes.make_mesh(jax.devices()[:1]))
    state = es.init(jax.random.key(0), {"w": jnp.zeros((3, 4))})
    pert, state = es.ask(state)
    with pytest.raises(ValueError, match=r"Wrong.noise gave .* for a leaf of shape \(3, 4\). Return an array"):
        es.apply(lambda params: params["w"].sum(), state, pert)()


@pytest.mark.parametrize("method", ["shift", "contract"])
def test_a_method_of_a_strategy_that_gives_another_shape(method):
    es = construct(Wrong(**{method: lambda *args: jnp.ones((4, 3))}), mesh=shardes.make_mesh(jax.devices()[:1]))
    state = es.init(jax.random.key(0), {"w": jnp.zeros((3, 4))})
    pert, state = es.ask(state)
    with pytest.raises(ValueError, match=rf"{method} of .* gave .* of shape \(4, 3\) for the leaf 'w', and must give"):
        es.tell(state, pert, es.apply(lambda params: params["w"].sum(), state, pert)())


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True])
def test_chunk_of_a_strategy_of_the_user(chunk):
    with pytest.raises(ValueError, match=r"chunk of .* must be an integer of at least 1 or None, got"):
        construct(Wrong(chunk=chunk))


@pytest.mark.parametrize("value", [True, None], ids=str)
def test_what_is_no_number(value):
    with pytest.raises(ValueError, match="r must be an integer of at least 1, got"):
        LowRank(value)
    with pytest.raises(ValueError, match=r"sigma must be finite and above 0"):
        construct(sigma=value)
    with pytest.raises(ValueError, match=r"An lr schedule must give a scalar, got None|lr must be a finite number"):
        ask(lr=(lambda generation: None) if value is None else value)


def test_integers_of_numpy_are_integers():
    assert LowRank(np.int64(2)).r == SeedRegenerated(np.int32(2)).chunk == construct(n=np.int64(2)).n == 2


def test_fitness_of_no_episodes_and_layers_of_which_there_are_none():
    with pytest.raises(ValueError, match=r"fitness must have shape \(n,\) or \(n, groups\) with n=8, got \(8, 0\)"):
        tell(jnp.zeros((8, 0)))
    es, pert, state = ask()
    assert es.apply(lambda params: jnp.zeros(0), state, pert)().shape == (8, 0)
    with pytest.raises(ValueError, match=r"The leaf 'b/layers' of shape \(0, 4\) lies under shardes.Stacked and has"):
        init({"w": jnp.zeros((3, 4)), "b": Stacked(jnp.zeros((0, 4)))})


def test_what_a_program_was_compiled_for_is_fixed():
    es = make_es()
    with pytest.raises(
        AttributeError, match=r"sigma is fixed, since compiled programs hold it. Make another ShardedES"
    ):
        es.sigma = 0.2


@pytest.mark.parametrize(
    "shaping", [lambda f: f[:4], lambda f: f[:, None], lambda f: f.mean(), lambda f: f], ids=range(4)
)
def test_shape_of_weights(shaping):
    with pytest.raises(ValueError, match=r"shaping must return one weight a member, shape \(8,\), got \(.*\(8, 2\)"):
        tell(jnp.zeros((8, 2)), shaping=shaping)


def test_group_relative_without_groups():
    with pytest.raises(ValueError, match=r"group_relative needs fitness of shape \(n, groups\), got \(8,\)"):
        tell(jnp.zeros(8), shaping=shardes.shaping.group_relative)


@pytest.mark.parametrize(
    ("in_axes", "args"), [((0,), 2), ((0, None, None), 2), (1, 1), ((0, 1), 2), (-1, 1), ([None], 0)], ids=repr
)
def test_in_axes(in_axes, args):
    with pytest.raises(ValueError, match=f"in_axes must be 0 or None for each of {args} arguments, got"):
        apply(in_axes, *[jnp.zeros((8, 8))] * args)


@pytest.mark.parametrize("shape", [(7,), (), (1, 8)])
def test_input_a_member_without_an_axis_of_n(shape):
    with pytest.raises(ValueError, match=r"An argument with in_axes 0 needs a leading axis of n=8, got shape"):
        apply(0, {"good": jnp.zeros(8), "bad": jnp.zeros(shape)})
