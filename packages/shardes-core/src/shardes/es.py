"""The evolution strategy: init, ask, apply, tell, and a generation of them as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardes import random, shaping
from shardes.arguments import check_arguments
from shardes.leaves import Leaves
from shardes.mesh import make_mesh
from shardes.population import Population
from shardes.precision import at_least_float32
from shardes.state import ESState, Optimizer, Perturbation
from shardes.strategies import Strategy

__all__ = ["ShardedES"]


class ShardedES:
    """An evolution strategy whose population is split over a mesh.

    The update is `theta <- theta - lr / (n sigma) sum_i w_i eps_i`: fitness is a loss, `w` is the shaped fitness and
    `eps` has unit scale.

    Args:
        strategy: the perturbation, such as `Mirrored(LowRank(r=1))`.
        n: members a generation; any number on any number of devices, even under `Mirrored`.
        sigma: scale of the perturbation: a positive number, a params-shaped tree of them (one a leaf), or a schedule
            `generation -> sigma`.
        lr: learning rate of plain SGD: a number or a schedule. Give this or `optimizer`.
        optimizer: an optax gradient transformation, run on the float32 master; it descends.
        mesh: a mesh with an axis "pop"; every device by default.
        shaping: fitness to weights, from `shardes.shaping` or your own: (n,) or (n, groups) to (n,).
        how: where the update is contracted. "B": every device contracts its own members, then one all-reduce the size
            of the params. "A": every device contracts the whole population, and only fitness crosses the wire.
        member_chunk: members that a device evaluates at once. By default as the strategy says, else all of its own, or
            on a CPU as many as its caches hold. It bounds memory, and changes results by reassociation alone.
        compute_dtype: dtype of the float params that the model sees; that of the master by default.
        deterministic: fitness and update are bitwise the same on any number of devices and processes, at the cost of
            what `how="A"` costs, which it implies, and of evaluating `member_chunk` members at once, never more; by
            default those of one direction.
        freeze: whether the leaf at a path such as "blocks/layers/norm" is left as it is: neither perturbed nor drawn
            for nor updated. Leaves that are not float never train.

    Raises:
        TypeError, ValueError: an argument is not one of these; the message says what is needed.
    """

    def __init__(
        self,
        strategy: Strategy,
        n: int,
        *,
        sigma: Any,
        lr: float | Callable[[jax.Array], Any] | None = None,
        optimizer: Optimizer | None = None,
        mesh: Mesh | None = None,
        shaping: shaping.Shaping = shaping.centered_ranks,
        how: Literal["A", "B"] = "B",
        member_chunk: int | None = None,
        compute_dtype: Any = None,
        deterministic: bool = False,
        freeze: Callable[[str], bool] | None = None,
    ) -> None:
        mesh = make_mesh() if mesh is None else mesh
        check_arguments(strategy, n, sigma, lr, optimizer, mesh, shaping, how, member_chunk, compute_dtype, freeze)
        self.strategy = strategy
        self.n = n
        self.sigma = sigma
        self.lr = lr
        self.optimizer = optimizer
        self.mesh = mesh
        self.shaping = shaping
        self.how = how
        self.compute_dtype = compute_dtype
        self.deterministic = deterministic
        self.freeze = freeze
        self._population = Population(strategy, n, self.mesh, member_chunk, deterministic)
        # Of this instance, so that what it compiled goes when it goes.
        self._ask = jax.jit(self._ask_eagerly)
        self._evaluate = jax.jit(self._evaluate_eagerly, static_argnums=(0, 1))
        self._tell = jax.jit(self._tell_eagerly)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            raise AttributeError(f"{name} is fixed, since compiled programs hold it. Make another ShardedES.")
        super().__setattr__(name, value)

    def init(self, key: jax.Array, params: Any) -> ESState:
        """The first state: a float32 master of `params`, copied, on every device of the mesh.

        `key` is one JAX key of any implementation. Raises ValueError when there is nothing to train.
        """
        root = random.root_key(key)
        leaves = Leaves(params, self.freeze)
        paths = [leaf.path for leaf in leaves.all]
        if not leaves.trained:
            raise ValueError(
                f"params must have at least one float leaf that is not frozen, got {paths}. Convert a leaf to a float "
                "dtype, or freeze fewer."
            )
        if self.freeze is not None and not any(map(self.freeze, paths)):
            raise ValueError(f"freeze matches none of the leaves {paths}. Leave it out, or mend its condition.")
        if not callable(self.sigma):
            self._sigma_of(leaves, self.sigma)
        master = leaves.merge(
            jax.tree.map(lambda x: jnp.array(x, copy=True), params),
            [jnp.array(x, dtype=at_least_float32(jnp.result_type(x))) for x in leaves.select(params)],
        )
        opt_state = () if self.optimizer is None else self.optimizer.init(leaves.mask(leaves.select(master)))
        # Copied: an optimizer's state may share buffers with the params, and a donated state must own its own.
        opt_state = jax.tree.map(lambda x: jnp.array(x, copy=True), opt_state)
        state = ESState(master, opt_state, root, jnp.int32(0), jnp.int32(0), jnp.int32(0))
        replicated: ESState = jax.device_put(state, self._replicated)
        return replicated

    def ask(self, state: ESState) -> tuple[Perturbation, ESState]:
        """The next generation's perturbation, and the state that has moved on to it."""
        self._check_state(state)
        asked: tuple[Perturbation, ESState] = self._ask(state)
        return asked

    def _ask_eagerly(self, state: ESState) -> tuple[Perturbation, ESState]:
        leaves = Leaves(state.params, self.freeze)
        key = random.fold_in(state.key, state.generation)
        sigma = self.sigma(state.generation) if callable(self.sigma) else self.sigma
        sigma = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), sigma)
        self._sigma_of(leaves, sigma)
        lr = None if self.lr is None else self._lr_at(state.generation)
        noise = self._population.draw(leaves, key) if self.strategy.keeps_noise else None
        pert = Perturbation(key, sigma, lr, noise, self.strategy, self.n)
        return pert, state._replace(generation=state.generation + 1)

    def apply(
        self,
        function: Callable[..., Any],
        state: ESState,
        pert: Perturbation,
        in_axes: int | Sequence[int | None] | None = None,
    ) -> Callable[..., Any]:
        """`function(params, *args)` for every member, as a function of `args`; outputs get a leading axis of n.

        A loss gives fitness of shape (n,) or (n, episodes). It is compiled once a function object: define it once, not
        anew in every generation. Arguments are shared by all members; one whose `in_axes` is 0, as in `jax.vmap`, has
        a leading axis of n, and every member sees its own entry.
        """
        self._check_state(state)
        self._check_perturbation(pert)

        def run(*args: Any) -> Any:
            axes = tuple(in_axes) if isinstance(in_axes, Sequence) else (in_axes,) * len(args)
            if len(axes) != len(args) or any(axis not in (None, 0) for axis in axes):
                raise ValueError(f"in_axes must be 0 or None for each of {len(args)} arguments, got {in_axes!r}.")
            for leaf in jax.tree.leaves([arg for arg, axis in zip(args, axes, strict=True) if axis == 0]):
                if np.shape(leaf)[:1] != (self.n,):
                    raise ValueError(
                        f"An argument with in_axes 0 needs a leading axis of n={self.n}, got shape {np.shape(leaf)}."
                    )
            return self._evaluate(function, axes, state.params, pert, args)

        return run

    def _evaluate_eagerly(self, function: Any, in_axes: Any, params: Any, pert: Perturbation, args: Any) -> Any:
        leaves = Leaves(params, self.freeze)
        sigma = self._sigma_of(leaves, pert.sigma)
        if self.compute_dtype is not None:
            params = jax.tree.map(self._cast, params)
        return self._population.evaluate(function, leaves, params, sigma, pert.key, pert.noise, args, in_axes)

    def tell(self, state: ESState, pert: Perturbation, fitness: jax.Array) -> ESState:
        """The state after descending on the fitness of a generation, (n,) or (n, groups), lower is better.

        A fitness that is not finite counts as the worst of its generation (of its group). A generation without one
        finite fitness, or whose update is not finite, changes no params and counts as skipped. Raises TypeError below
        float32, ValueError for another shape.
        """
        self._check_state(state)
        self._check_perturbation(pert)
        if callable(fitness):
            raise TypeError("fitness must be an array, got a function. Call es.apply(loss, state, pert) on the batch.")
        told: ESState = self._tell(state, pert, fitness)
        return told

    def _tell_eagerly(self, state: ESState, pert: Perturbation, fitness: jax.Array) -> ESState:
        fitness = jnp.asarray(fitness)
        self._check_fitness(fitness)
        leaves = Leaves(state.params, self.freeze)
        fitness = jax.lax.with_sharding_constraint(fitness, self._replicated)
        finite = jnp.isfinite(fitness)
        worst = jnp.max(jnp.where(finite, fitness, -jnp.inf), axis=0, keepdims=True)
        worst = jnp.where(jnp.isfinite(worst), worst, 0)
        weights = jnp.asarray(self.shaping(jnp.where(finite, fitness, worst)))
        if weights.shape != (self.n,):
            raise ValueError(
                f"shaping must return one weight a member, shape ({self.n},), got {weights.shape} for fitness of shape "
                f"{fitness.shape}."
            )
        sums = self._apart(self._population.contract(leaves, pert.key, pert.noise, self._apart(weights), self.how))
        scales = self._sigma_of(leaves, pert.sigma)
        masters = leaves.select(state.params)
        gradient = [
            (total * (1 / (self.n * sigma))).astype(master.dtype)
            for total, sigma, master in zip(sums, scales, masters, strict=True)
        ]
        updated, opt_state = self._descend(leaves, masters, self._apart(gradient), state.opt_state, pert.lr)
        updated, opt_state = self._apart((updated, opt_state))
        # Momentum and weight decay would move the params even where a generation says nothing.
        moves = [(jnp.isfinite(g) & jnp.isfinite(m)).all() for g, m in zip(gradient, updated, strict=True)]
        sound = jnp.any(finite) & jnp.stack(moves).all()
        updated, opt_state = jax.tree.map(
            lambda new, old: jnp.where(sound, new, old), (updated, opt_state), (masters, state.opt_state)
        )
        broken = jnp.sum(~finite.reshape(self.n, -1).all(axis=1), dtype=jnp.int32)
        params = leaves.merge(state.params, updated)
        told = state._replace(
            params=params,
            opt_state=opt_state,
            non_finite=state.non_finite + broken,
            skipped=state.skipped + (~sound).astype(jnp.int32),
        )
        replicated: ESState = jax.lax.with_sharding_constraint(told, self._replicated)
        return replicated

    def step(self, loss: Callable[..., jax.Array]) -> Callable[..., tuple[ESState, jax.Array]]:
        """A generation as one compiled program: `(state, *args) -> (state, fitness)`. The state is donated."""

        @partial(jax.jit, donate_argnums=0)
        def step(state: ESState, *args: Any) -> tuple[ESState, jax.Array]:
            pert, state = self.ask(state)
            fitness = self.apply(loss, state, pert)(*args)
            return self.tell(state, pert, fitness), fitness

        return step

    def _descend(
        self, leaves: Leaves, masters: list[Any], gradient: list[Any], opt_state: Any, lr: jax.Array | None
    ) -> tuple[list[Any], Any]:
        if self.optimizer is None:
            assert lr is not None
            return [m - lr.astype(g.dtype) * g for m, g in zip(masters, gradient, strict=True)], opt_state
        updates, opt_state = self.optimizer.update(leaves.mask(gradient), opt_state, leaves.mask(masters))
        return [m + u.astype(m.dtype) for m, u in zip(masters, leaves.select(updates), strict=True)], opt_state

    def _lr_at(self, generation: jax.Array) -> jax.Array:
        lr = self.lr(generation) if callable(self.lr) else self.lr
        if lr is None or np.shape(lr):
            given = "None" if lr is None else f"shape {np.shape(lr)}"
            raise ValueError(f"An lr schedule must give a scalar, got {given}.")
        return jnp.asarray(lr, jnp.float32)

    def _apart[T](self, values: T) -> T:
        """The values; in a deterministic run not fused with what follows, so that every program rounds alike."""
        apart: T = jax.lax.optimization_barrier(values) if self.deterministic else values
        return apart

    def _sigma_of(self, leaves: Leaves, sigma: Any) -> list[Any]:
        """Sigma of each trained leaf."""
        structure = jax.tree.structure(sigma)
        if any(np.ndim(scale) for scale in jax.tree.leaves(sigma)):
            raise ValueError(f"sigma must give scalars, got shapes {jax.tree.map(np.shape, sigma)}.")
        if jax.tree_util.treedef_is_leaf(structure):
            return [sigma] * len(leaves.trained)
        if structure != leaves.structure:
            raise ValueError(
                f"sigma must be one number or a tree of the structure of params, {leaves.structure}, got {structure}."
            )
        return leaves.select(sigma)

    def _check_fitness(self, fitness: jax.Array) -> None:
        if not jnp.issubdtype(fitness.dtype, jnp.floating):
            raise TypeError(f"fitness must be float32 or wider, got {fitness.dtype}. Return a float loss.")
        if jnp.finfo(fitness.dtype).bits < 32:
            raise TypeError(
                f"fitness must be float32 or wider, got {fitness.dtype}: below it a population's losses collapse to a "
                "few ties. Reduce the loss in float32."
            )
        if fitness.ndim not in (1, 2) or fitness.shape[0] != self.n or fitness.shape[-1] == 0:
            raise ValueError(f"fitness must have shape (n,) or (n, groups) with n={self.n}, got {fitness.shape}.")

    def _check_state(self, state: Any) -> None:
        if not isinstance(state, ESState):
            raise TypeError(f"state must be an ESState, as init, ask and tell give it, got {type(state).__name__}.")

    def _check_perturbation(self, pert: Any) -> None:
        if not isinstance(pert, Perturbation):
            raise TypeError(f"pert must be a Perturbation, as ask gives it, got {type(pert).__name__}.")
        if (pert.strategy, pert.n) != (self.strategy, self.n) or (pert.lr is None) != (self.lr is None):
            raise ValueError(
                f"The perturbation is one of {pert.strategy!r} with n={pert.n}, and this ES is {self.strategy!r} with "
                f"n={self.n} and {'an optimizer' if self.lr is None else 'an lr'}. Ask this ES for one."
            )

    def _cast(self, x: jax.Array) -> jax.Array:
        return x.astype(self.compute_dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    @property
    def _replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, P())
