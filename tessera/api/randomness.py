"""Random tensors from keys: the same key gives the same numbers, whatever the tiling, threads or machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tessera.api.collectives import axis_index
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend import scopes as scopes
from tessera.frontend.arguments import check_int, check_sequence, explain_wrong_calls
from tessera.frontend.call_plans import note_program
from tessera.frontend.functions.operands import (
    as_tensor,
    check_tensors,
    dims_of,
    is_tensor,
    promote_operands,
)
from tessera.frontend.size import Size
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import mesh_in_force
from tessera.types.dtype import f32, i64, parse_dtype, u32
from tessera.types.promotion import FLOATING

if TYPE_CHECKING:
    from tessera.runtime.run_record import RunRecord

_SEEDS = 1 << 64
_MOST_KEYS = 1 << 16  # each is an op of the program


def key(seed: int | None = None) -> Any:
    """A key from a seed: two 64-bit numbers that every random function takes.

    Without a seed it is another one at every run, which deterministic functions may not have; within
    `effects.seeded()` it is made from the seed given there.

    >>> ts.random.key(7).shape
    (2,)
    """
    if seed is None:
        return scopes.make_key()
    number = _seed("key", seed)
    from tessera.api.eager import Tensor  # noqa: PLC0415 - a key is a tensor with data

    return Tensor.of([number, 0], "u64")


def _seed(op: str, value: Any) -> int:
    number = check_int(op, "seed", value)
    if not 0 <= number < _SEEDS:
        raise ArgumentError(
            f"`{op}` takes `seed` from 0 to 2^64 - 1, got {number}", fix=f"write `seed % 2**64`, here {number % _SEEDS}"
        )
    return number


def run(seed: int | RunRecord | None = None) -> AbstractContextManager[RunRecord]:
    """A run with a recorded root seed, from which every key inside without a seed of its own is derived.

    Without a seed a new one is chosen, and recorded. A run with the seed of another, or with its record, draws what
    that one drew. Code without a run around it uses that of the process, `random.record()`.

    >>> with ts.random.run() as record:
    ...     first = ts.random.uniform(ts.random.key(), (2,))
    >>> with ts.random.run(record):
    ...     second = ts.random.uniform(ts.random.key(), (2,))
    >>> (first == second).tolist()
    [True, True]
    """
    from tessera.runtime import run_record  # noqa: PLC0415 - few programs have any

    if seed is None:
        return run_record.enter_run(run_record.RunRecord(int.from_bytes(os.urandom(8), "little")))
    root = seed.seed if isinstance(seed, run_record.RunRecord) else _seed("run", seed)
    return run_record.enter_run(run_record.RunRecord(root))


def record() -> RunRecord:
    """The record of the run that code stands in: its root seed, and how many keys were drawn from it."""
    from tessera.runtime import run_record  # noqa: PLC0415 - see above

    return run_record.current()


def _check_key(op: str, key: Any) -> None:
    if not is_tensor(key):
        raise ArgumentError(f"`{op}` takes a key, got {key!r}", fix="make one from a seed: `ts.random.key(0)`")


@explain_wrong_calls
def fold(key: Any, data: Any) -> Any:
    """A new key from a key and a number: a step, a layer, a site."""
    _check_key("fold", key)
    number = data if is_tensor(data) or isinstance(data, Size) else check_int("fold", "data", data)
    return apply("fold_key", (key, as_tensor(number, i64)))


@explain_wrong_calls
def stream(key: Any, function: Any, step: Any = 0, *, per: str | Sequence[str] = ()) -> Any:
    """The key of a stream of numbers: for a function, at a step, and on request for the ranks of mesh axes.

    `function` is a name or a function, `step` a number, that of a traced program too. Another seed, function or step is
    another stream. All ranks have the same one, and an element depends on its index in the whole, so that a sample is
    the same whatever is sharded. `per` names mesh axes: ranks that differ in their positions along these have streams
    of their own, as for noise that is not to be shared.

    >>> base = ts.random.key(7)
    >>> with ts.dist.mesh(dp=1):
    ...     noise = ts.random.stream(base, "noise", step=3, per="dp")
    >>> ts.random.uniform(noise, (2,)).shape
    (2,)

    Raises: ArgumentError (T0202) for an axis that the mesh does not have, and for a lambda, which has no name.
    """
    _check_key("stream", key)
    name = function if isinstance(function, str) else _name_of(function)
    if not is_tensor(step) and not isinstance(step, Size):
        step = check_int("stream", "step", step)
    made = fold(fold(key, _number_of(f"function {name}")), step)
    mesh = mesh_in_force()
    for axis in (per,) if isinstance(per, str) else check_sequence("stream", "per", per):
        if axis not in mesh.sizes:
            raise ArgumentError(
                f"`stream` is for each rank along `{axis}`, and what is in force is {mesh}",
                fix=f"call it within `with tessera.dist.mesh({axis}=...)`, or leave `per` out",
            )
        note_program(None, (), made, True)  # another rank calls it with the same arguments: there is no plan for it
        here = mesh.position(axis, world.rank())
        made = fold(
            fold(made, _number_of(f"axis {axis}")),
            axis_index(axis).astype(i64) if dispatch.tracing() is not None else here,
        )
    return made


def _number_of(text: str) -> int:
    """A number of 63 bits that stands for a text, in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _name_of(function: Any) -> str:
    """What tells functions apart from one process to another."""
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        raise ArgumentError(
            f"`stream` takes a function, or a name for one, got {function!r}", fix='write `stream(key, "dropout")`'
        )
    if name.endswith("<lambda>"):
        raise ArgumentError(
            "`stream` tells functions apart by their names, and a lambda has none",
            fix='give it one: `stream(key, "dropout")`',
        )
    # Processes that a program starts as ranks know its main module by another name.
    module = "__main__" if function.__module__ == "__mp_main__" else function.__module__
    return f"{module}.{name}"


@explain_wrong_calls
def split(key: Any, count: int = 2) -> tuple[Any, ...]:
    """Several keys from one, none of which repeats another's numbers."""
    _check_key("split", key)
    number = check_int("split", "count", count)
    if not 0 <= number <= _MOST_KEYS:
        raise ArgumentError(
            f"`split` takes `count` from 0 to {_MOST_KEYS}, got {number}", fix="fold in a number for each"
        )
    return tuple(fold(key, number) for number in range(number))


@explain_wrong_calls
def bits(key: Any, shape: Any, dtype: Any = u32) -> Any:
    """Unsigned integers, each equally likely."""
    _check_key("bits", key)
    return apply("random_bits", (key,), {"shape": dims_of(shape), "dtype": parse_dtype(dtype)})


@explain_wrong_calls
def uniform(key: Any, shape: Any, *, low: float = 0.0, high: float = 1.0, dtype: Any = f32) -> Any:
    """Uniformly distributed numbers in `low..high`, without `high`.

    >>> ts.random.uniform(ts.random.key(0), (2, 3)).shape
    (2, 3)
    """
    _check_key("uniform", key)
    ends = {"low": low, "high": high}
    return apply("uniform", (key,), {"shape": dims_of(shape), **ends, "dtype": parse_dtype(dtype)})


@explain_wrong_calls
def normal(key: Any, shape: Any, *, mean: float = 0.0, std: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers of the normal distribution."""
    _check_key("normal", key)
    form = {"mean": mean, "std": std}
    return apply("normal", (key,), {"shape": dims_of(shape), **form, "dtype": parse_dtype(dtype)})


@explain_wrong_calls
def bernoulli(key: Any, p: float, shape: Any) -> Any:
    """True with probability `p`."""
    _check_key("bernoulli", key)
    return apply("bernoulli", (key,), {"shape": dims_of(shape), "p": p})


@explain_wrong_calls
def dropout(x: Any, key: Any, rate: float) -> Any:
    """`x` with a share `rate` of its elements zero and the others scaled up to keep the mean."""
    check_tensors(x)
    _check_key("dropout", key)
    return apply("dropout", (*promote_operands("dropout", (x,), FLOATING), key), {"rate": rate})
