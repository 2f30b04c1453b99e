"""The evolution strategy: init, ask, apply, tell, and a generation of them as one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardes import random, shaping
from shardes.arguments import check_arguments, check_perturbation, check_state, checked_fitness
from shardes.configuration import checksum, configuration
from shardes.descent import descend, shaped
from shardes.leaves import Leaves
from shardes.mesh import POPULATION, make_mesh
from shardes.placement import How, Measurement, Placement
from shardes.population import Population
from shardes.precision import at_least_float32
from shardes.processes import check_agreement, gather, on_own_devices, replicate
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
            "auto": the first generation outside `jax.jit` times both, a few times each, and all processes keep the
            faster one; `placement` says which it is and by how much.
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
        how: Literal["A", "B", "auto"] = "B",
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
        self._population = Population(strategy, n, mesh, member_chunk, deterministic)
        # Of this instance, so that what it compiled goes when it goes.
        self._ask = jax.jit(self._ask_eagerly)
        self._evaluate = jax.jit(self._evaluate_eagerly, static_argnums=(0, 1, 2))
        self._tell_under: dict[How, Any] = {how: jax.jit(partial(self._tell_eagerly, how)) for how in ("A", "B")}
        self._placement = Placement("A" if deterministic else how)
        self._tell = self._placement.program(self._tell_under.__getitem__)
        self._programs: dict[Any, Any] = {}

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
            leaves.scales(self.sigma)
        master = leaves.merge(
            jax.tree.map(lambda x: jnp.array(x, copy=True), params),
            [jnp.array(x, dtype=at_least_float32(jnp.result_type(x))) for x in leaves.select(params)],
        )
        opt_state = () if self.optimizer is None else self.optimizer.init(leaves.mask(leaves.select(master)))
        # Copied: an optimizer's state may share buffers with the params, and a donated state must own its own.
        opt_state = jax.tree.map(lambda x: jnp.array(x, copy=True), opt_state)
        state = ESState(master, opt_state, root, jnp.int32(0), jnp.int32(0), jnp.int32(0))
        if not self._is_of_one_process:
            check_agreement({**configuration(self), "key": str(np.asarray(root)), "params": checksum(master)})
        replicated: ESState = replicate(state, self._replicated)
        return replicated

    def ask(self, state: ESState) -> tuple[Perturbation, ESState]:
        """The next generation's perturbation, and the state that has moved on to it."""
        check_state(state)
        asked: tuple[Perturbation, ESState] = self._ask(state)
        return asked

    def _ask_eagerly(self, state: ESState) -> tuple[Perturbation, ESState]:
        leaves = Leaves(state.params, self.freeze)
        key = random.fold_in(state.key, state.generation)
        sigma = self.sigma(state.generation) if callable(self.sigma) else self.sigma
        sigma = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), sigma)
        leaves.scales(sigma)
        lr = None if self.lr is None else self._lr_at(state.generation)
        noise = self._population.draw(leaves, key) if self.strategy.keeps_noise else None
        pert = Perturbation(state.generation, key, sigma, lr, noise, self.strategy, self.n)
        return pert, state._replace(generation=state.generation + 1)

    def apply(
        self,
        function: Callable[..., Any],
        state: ESState,
        pert: Perturbation,
        in_axes: int | Sequence[int | None] | None = None,
        local: bool = False,
    ) -> Callable[..., Any]:
        """`function(params, *args)` for every member, as a function of `args`; outputs get a leading axis of n.

        A loss gives fitness of shape (n,) or (n, episodes). It is compiled once a function object: define it once, not
        anew in every generation. Arguments are shared by all members; one whose `in_axes` is 0, as in `jax.vmap`, has
        a leading axis of n, and every member sees its own entry.

        With `local` a process evaluates the members of `local_members` alone, whatever the others do, and they are the
        leading axis of arguments and outputs; `gather` brings the fitness together. In a run of one process these are
        all members. It is for what is stepped on the host, and not to be called inside `jax.jit`.
        """
        check_state(state)
        self._check_perturbation(pert)
        members = self.local_members.size if local else self.n
        params, alone = state.params, local and not self._is_of_one_process
        if alone:
            mesh = self._own.mesh
            params = on_own_devices(params, mesh, P())
            pert = dataclasses.replace(
                on_own_devices(dataclasses.replace(pert, noise=None), mesh, P()),
                noise=on_own_devices(pert.noise, mesh, P(POPULATION)),
            )

        def run(*args: Any) -> Any:
            axes = tuple(in_axes) if isinstance(in_axes, Sequence) else (in_axes,) * len(args)
            if len(axes) != len(args) or any(axis not in (None, 0) for axis in axes):
                raise ValueError(f"in_axes must be 0 or None for each of {len(args)} arguments, got {in_axes!r}.")
            for leaf in jax.tree.leaves([arg for arg, axis in zip(args, axes, strict=True) if axis == 0]):
                if np.shape(leaf)[:1] != (members,):
                    raise ValueError(
                        f"An argument with in_axes 0 needs a leading axis of {'' if local else 'n='}{members}, got "
                        f"shape {np.shape(leaf)}."
                    )
            return self._evaluate(function, axes, alone, params, pert, args)

        return run

    @property
    def placement(self) -> Measurement | None:
        """What `how="auto"` has measured; None before it has, and for another `how`."""
        return self._placement.measurement

    @cached_property
    def local_members(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Numbers of the members that `apply` with `local` evaluates in this process, ascending."""
        return self._own.members

    def gather(self, values: Any) -> np.ndarray[Any, Any]:
        """Values of all n members, such as fitness, from those that every process has of its `local_members`."""
        if np.shape(values)[:1] != self.local_members.shape:
            raise ValueError(
                f"values must have a leading axis of the {self.local_members.size} members of this process, got shape "
                f"{np.shape(values)}."
            )
        if self._is_of_one_process:
            return np.asarray(values)
        return gather(values, self._members_by_process)

    def _evaluate_eagerly(
        self, function: Any, in_axes: Any, local: bool, params: Any, pert: Perturbation, args: Any
    ) -> Any:
        leaves = Leaves(params, self.freeze)
        sigma = leaves.scales(pert.sigma)
        params = self._seen(params)
        population = self._own if local else self._population
        results = population.evaluate(function, leaves, params, sigma, pert.key, pert.noise, args, in_axes)
        if local or self._is_of_one_process:
            return results
        # What only some processes have could not be read.
        return jax.lax.with_sharding_constraint(results, self._replicated)

    def tell(self, state: ESState, pert: Perturbation, fitness: jax.Array) -> ESState:
        """The state after descending on the fitness of a generation, (n,) or (n, groups), lower is better.

        A fitness that is not finite counts as the worst of its generation (of its group). A generation without one
        finite fitness, or whose update is not finite, changes no params and counts as skipped. Raises TypeError below
        float32, ValueError for another shape.
        """
        check_state(state)
        self._check_perturbation(pert)
        if callable(fitness):
            raise TypeError("fitness must be an array, got a function. Call es.apply(loss, state, pert) on the batch.")
        told: ESState = self._tell(state, pert, fitness)
        return told

    def _tell_eagerly(self, how: How, state: ESState, pert: Perturbation, fitness: jax.Array) -> ESState:
        fitness = checked_fitness(fitness, self.n)
        leaves = Leaves(state.params, self.freeze)
        fitness = jax.lax.with_sharding_constraint(fitness, self._replicated)
        finite = jnp.isfinite(fitness)
        weights = self._apart(shaped(self.shaping, fitness, finite))
        sums = self._apart(self._population.contract(leaves, pert.key, pert.noise, weights, how))
        masters = leaves.select(state.params)
        gradient = [
            (total * (1 / (self.n * sigma))).astype(master.dtype)
            for total, sigma, master in zip(sums, leaves.scales(pert.sigma), masters, strict=True)
        ]
        updated, opt_state = self._apart(
            descend(self.optimizer, leaves, masters, self._apart(gradient), state.opt_state, pert.lr)
        )
        # Momentum and weight decay would move the params even where a generation says nothing.
        moves = [(jnp.isfinite(g) & jnp.isfinite(m)).all() for g, m in zip(gradient, updated, strict=True)]
        sound = jnp.any(finite) & jnp.stack(moves).all()
        updated, opt_state = jax.tree.map(
            lambda new, old: jnp.where(sound, new, old), (updated, opt_state), (masters, state.opt_state)
        )
        broken = jnp.sum(~finite.reshape(self.n, -1).all(axis=1), dtype=jnp.int32)
        told = state._replace(
            params=leaves.merge(state.params, updated),
            opt_state=opt_state,
            # Also where the state is one from before ask, so that no generation repeats the noise of another.
            generation=jnp.maximum(state.generation, pert.generation + 1),
            non_finite=state.non_finite + broken,
            skipped=state.skipped + (~sound).astype(jnp.int32),
        )
        replicated: ESState = jax.lax.with_sharding_constraint(told, self._replicated)
        return replicated

    def step(self, loss: Callable[..., jax.Array]) -> Callable[..., tuple[ESState, jax.Array]]:
        """A generation as one compiled program: `(state, *args) -> (state, fitness)`. The state is donated."""

        def under(how: How) -> Callable[..., tuple[ESState, jax.Array]]:
            @partial(jax.jit, donate_argnums=0)
            def step(state: ESState, *args: Any) -> tuple[ESState, jax.Array]:
                pert, state = self.ask(state)
                fitness = self.apply(loss, state, pert)(*args)
                return self._tell_under[how](state, pert, fitness), fitness

            return step

        return self._placement.program(under)

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

    def _check_perturbation(self, pert: Any) -> None:
        check_perturbation(pert, self.strategy, self.n, self.lr is not None)

    def _seen(self, params: Any) -> Any:
        """The params as the model sees them, unperturbed."""
        return params if self.compute_dtype is None else jax.tree.map(self._cast, params)

    def _cast(self, x: jax.Array) -> jax.Array:
        return x.astype(self.compute_dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    @cached_property
    def _own(self) -> Population:
        return self._population.of_process(jax.process_index())

    @cached_property
    def _members_by_process(self) -> list[np.ndarray[Any, np.dtype[np.intp]]]:
        return [self._population.of_process(i).members for i in range(jax.process_count())]

    @cached_property
    def _is_of_one_process(self) -> bool:
        return self._replicated.is_fully_addressable

    @property
    def _replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, P())
