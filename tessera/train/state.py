"""`State`: everything that a training step changes, as one tree of tensors, and where those are."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from tessera.api.eager import install
from tessera.api.placement import stream
from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.frames import guard_class
from tessera.frontend import pytree
from tessera.frontend.concrete import is_concrete, is_tensor
from tessera.frontend.functions.operands import as_tensor, cast
from tessera.frontend.pytree import flatten, leaf_names, unflatten
from tessera.runtime.foreign import adopt
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import i64
from tessera.types.frozen import frozen

install()  # states are made eagerly

FIELDS = ("params", "opt_state", "step", "key", "average", "extra")


@guard_class
@frozen
class State:
    """What a training step takes and gives back: parameters, the optimizer's state, the step count and the root key.

    A tree: `ts.jit(step, donate={"state"})` updates all of it in place. `step` is an i64 scalar, not a Python number,
    which would be another program at each step. `average` is that of an `optim.ema`, if there is one, `extra` whatever
    else a step carries, as running means. The key never changes: a step derives its own of it.

    >>> optimizer = ts.optim.sgd(0.1)
    >>> state = ts.train.State.init({"w": ts.ones((2,))}, optimizer, key=7)
    >>> state.step, state.params["w"]
    (Tensor([] i64, 0), Tensor([2] f32, [1, 1]))
    """

    params: Any
    opt_state: Any
    step: Any
    key: Any
    average: Any = None
    extra: Any = None

    @staticmethod
    def init(
        params: Any,
        optimizer: Any = None,
        *,
        key: Any = 0,
        average: Any = None,
        extra: Any = None,
        copy: bool = True,
        recipe: Any = None,
    ) -> State:
        """The state that training starts with; `key` is a seed, or a key of `ts.random.key`.

        Parameters and `extra` are copied, so that the ones given stay usable when a step consumes the state;
        `copy=False` saves that memory. With a `recipe` of `ts.dist.recipe`, the state has this rank's parts of whole
        parameters. Raises ArgumentError (T0202) where buffers of modules are among the parameters,
        or one tensor is there twice, as that of a layer in two fields of a model: an update would make two of it.
        """
        _check_buffers(params)
        _check_shared(params)
        held = _own(params, always=copy) if recipe is None else recipe.take(params)
        trained = held if recipe is None else recipe.state_params(held)
        opt_state = None if optimizer is None else optimizer.init(trained)
        made = None if average is None else average.init(held)
        return own_memory(State(held, opt_state, as_tensor(0, i64), _key_of(key), made, _own(extra, always=copy)))

    def replace(self, **changes: Any) -> State:
        """The same state with other fields.

        >>> state = ts.train.State.init({"w": ts.ones((2,))})
        >>> state.replace(extra=ts.zeros((1,))).extra
        Tensor([1] f32, [0])
        """
        unknown = [name for name in changes if name not in FIELDS]
        if unknown:
            raise ArgumentError(f"a state has no field `{unknown[0]}`", fix=f"its fields are {', '.join(FIELDS)}")
        return replace(self, **changes)  # pyright: ignore[reportArgumentType] - `frozen` makes a dataclass

    def __repr__(self) -> str:
        leaves = [leaf for leaf in flatten(self)[0] if hasattr(leaf, "nbytes")]
        step = int(self.step) if is_concrete(self.step) else self.step
        return f"State(step {step}, {len(leaves)} tensors, {sum(leaf.nbytes for leaf in leaves)} bytes)"


def _split(state: State) -> tuple[Sequence[Any], Hashable]:
    return [getattr(state, name) for name in FIELDS], None


def _join(_: Hashable, children: Sequence[Any]) -> State:
    # Traces and programs make states of their values: the step is whatever they give.
    return State(*children)


pytree.register(State, _split, _join, fields=FIELDS)


def _key_of(key: Any) -> Any:
    if isinstance(key, int) and not isinstance(key, bool):
        from tessera.api.randomness import key as make_key  # noqa: PLC0415 - as `ts.random` itself loads it

        return make_key(key)
    if getattr(key, "shape", None) != (2,):
        raise ArgumentError(f"a state takes a key or a seed, got {key!r}", fix="write `key=ts.random.key(0)`")
    return as_tensor(key)


def _check_buffers(params: Any) -> None:
    """Raises ArgumentError (T0202) where an optimizer would train running means and the like."""
    modules = sys.modules.get("tessera.nn.module")  # where it is not loaded, there are no modules
    buffers = modules.split_buffers(params)[1] if modules is not None else None
    leaves, form = flatten(buffers)
    if leaves:
        raise ArgumentError(
            f"`{leaf_names(form)[0]}` is a buffer, and no parameter that an optimizer may change",
            fix="write `params, buffers = ts.nn.split_buffers(model)`, and `State.init(params, ..., extra=buffers)`",
        )


def _check_shared(params: Any) -> None:
    """Raises ArgumentError (T0202) where one tensor has two names: gradients and updates know it as two."""
    leaves, form = flatten(params)
    seen: dict[int, str] = {}
    for leaf, name in zip(leaves, leaf_names(form), strict=True):
        first = seen.setdefault(id(leaf), name) if is_concrete(leaf) else name
        if first != name:
            raise ArgumentError(
                f"`{first}` and `{name}` are one tensor, of which an update would make two",
                notes=("rule: parameters are a tree of values; what is used twice is one field of it",),
                fix="keep the layer in one field and call it twice, as `Embedding.attend` ties weights; where two are "
                "meant, copy one: `x.copy()`",
            )


def _own(tree: Any, *, always: bool) -> Any:
    """A tree whose arrays are tensors; with `always`, all in memory of their own."""
    leaves, form = flatten(tree, keep_order=True)
    made: list[Any] = []
    for leaf in leaves:
        tensor = as_tensor(leaf) if is_concrete(leaf) and not is_tensor(leaf) else leaf
        made.append(tensor.copy() if always and is_tensor(tensor) else tensor)
    return unflatten(form, made)


def own_memory(tree: Any) -> Any:
    """A tree no two tensors of which share memory, nor scalars any with other trees: all of it may be donated.

    What is in the tree twice, as parameters that an average starts with, is copied the second time.
    """
    leaves, form = flatten(tree, keep_order=True)
    seen: set[tuple[type[Any], int]] = set()
    made: list[Any] = []
    for leaf in leaves:
        one: Any = leaf
        if is_tensor(leaf):
            is_shared = leaf.nbytes and (leaf.__class__, leaf.address) in seen
            one = leaf.copy() if is_shared or leaf.nbytes <= _SMALL else leaf
            seen.add((one.__class__, one.address))
        made.append(one)
    return unflatten(form, made)


_SMALL = 16
"""Bytes up to which a tensor is copied anyway: constants that an optimizer was made with start every state."""


def to_host(leaf: Any) -> Tensor:
    """A copy of a tensor in host memory that nothing else writes."""
    return leaf.cpu() if hasattr(leaf, "give_to") else Tensor.of(leaf).copy()


# Batches come from the host, and a step takes tensors of one memory.


def find_on_device(tree: Any) -> Any:
    """The first tensor of a tree that is on a GPU, or None where all are in host memory."""
    return next((leaf for leaf in flatten(tree)[0] if hasattr(leaf, "give_to")), None)


def move_batch(batch: Any, like: Any) -> Any:
    """A batch whose tensors are on the device of `like`, as a step takes them; with None, as it is."""
    if like is None:
        return batch
    leaves, form = flatten(batch, keep_order=True)
    is_moved = [is_concrete(leaf) and not hasattr(leaf, "give_to") for leaf in leaves]
    return unflatten(
        form, [_copy_beside(leaf, like) if own else leaf for leaf, own in zip(leaves, is_moved, strict=True)]
    )


def _copy_beside(leaf: Any, like: Any) -> Any:
    # A copy from the host waits for its stream: in one of its own it goes on beside the step that is running. Calls
    # are replayed with tensors of their own stream, so one more copy, within the device, takes it there.
    with stream("batches"):
        made = like.__class__.of(adopt(leaf))
    return made if made.stream == like.stream else made.copy()


def find_nonfinite(tree: Any) -> str | None:
    """The name of the first tensor of a tree that has a NaN or an infinity, or None.

    >>> find_nonfinite({"a": ts.ones((2,)), "b": ts.array([1.0, float("nan")])})
    'b'
    """
    import numpy as np  # noqa: PLC0415 - states are trained without it

    leaves, form = flatten(tree, keep_order=True)
    for leaf, name in zip(leaves, leaf_names(form), strict=True):
        if is_tensor(leaf) and leaf.dtype.is_float and not np.isfinite(np.asarray(leaf)).all():
            return name
    return None


def step_of(state: Any) -> int:
    """How many steps a state has taken, where it counts them in a field `step`; else 0."""
    found: Any = getattr(state, "step", None)
    return int(found) if isinstance(found, int) or is_concrete(found) else 0


def cast_like(value: Tensor, like: Any) -> Any:
    """A tensor on the host in the place of another: on its device, in its dtype."""
    made = cast(value, like.dtype) if value.dtype != like.dtype else value
    return like.__class__.of(made) if hasattr(like, "give_to") else made
