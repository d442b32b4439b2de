"""`KVCache`: keys and values that grow in place, and the capacity that a call needs before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64
from typing import Any

from tessera.api.eager import install
from tessera.diagnostics.codes import GuardError, ShapeError
from tessera.frontend import pytree
from tessera.frontend.concrete import is_concrete, is_tensor
from tessera.frontend.functions import creation
from tessera.frontend.functions.operands import as_tensor, dtype_of, rank_of
from tessera.frontend.size import dim_of
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import DONATED, Record, Tape
from tessera.runtime.donation import DonatingCall
from tessera.runtime.tensor import CODES, CONSUMED, Tensor, native
from tessera.types.annotation import TensorAnnotation, annotation_of
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i64
from tessera.types.frozen import frozen

# `KVCache`: keys and values of a sequence so far, as a typed state that attention reads and `append` grows.

install()  # caches grow eagerly too


class KVCache:
    """Keys `K` and values `V` [batch, heads, capacity, head dim], of which the first `length` count.

    A cache is a value: `append` and `prune` give a new one, and leave the old one as it is. What is beyond `length` is
    never read.

    Raises: GuardError (T0702) where `length` is known and not within the capacity: by `append`, or, under `jit`, by
    the call that passes the cache; one to which it is donated says so before it writes anything, unless it appends in
    a loop or prunes. A length in a GPU's memory is not waited for, and not checked.

    >>> cache = ts.KVCache.empty(1, 2, 16, 8)
    >>> cache.append(ts.ones((1, 2, 3, 8)), ts.ones((1, 2, 3, 8))).length
    Tensor([] i64, 3)
    """

    __slots__ = ("K", "V", "length")

    def __init__(self, keys: Any, values: Any, length: Any) -> None:
        self.K = keys  # pyright: ignore[reportConstantRedefinition] - the document's name
        self.V = values  # pyright: ignore[reportConstantRedefinition]
        self.length = length
        known = known_length(length)
        if known is not None:
            check_length(keys, known)

    def __class_getitem__(cls, items: Any) -> TensorAnnotation:
        return annotation_of(items, "KVCache")

    @staticmethod
    def empty(batch: Any, heads: Any, capacity: Any, head_dim: Any, dtype: Any = f32) -> KVCache:
        """A cache of this capacity that holds nothing."""
        shape = (batch, heads, capacity, head_dim)
        return KVCache(creation.zeros(shape, dtype), creation.zeros(shape, dtype), as_tensor(0, i64))

    @staticmethod
    def field_annotations(annotation: TensorAnnotation) -> list[TensorAnnotation]:
        """What `K`, `V` and `length` are declared to be by `KVCache[...]`."""
        stored = TensorAnnotation(annotation.dims, annotation.dtype, annotation.policy)
        return [stored, stored, TensorAnnotation((), i64)]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Batch, heads, capacity, head dim."""
        return self.K.shape

    @property
    def dtype(self) -> Any:
        """The element type of keys and values."""
        return dtype_of(self.K)

    def append(self, k: Any, v: Any) -> KVCache:
        """The cache with keys and values [batch, heads, new, head dim] after those it holds; they must fit."""
        for name, value in (("k", k), ("v", v)):
            _check(self, name, value)
        keys, values = dim_of(k.shape[2]), dim_of(v.shape[2])
        if (keys - values).value not in (0, None):
            raise ShapeError(
                f"`append` takes as many values as keys: `k.shape[2] = {keys}` and `v.shape[2] = {values}` differ"
            )
        return KVCache(*apply("kv_append", (self.K, self.V, self.length, k, v)))

    def prune(self, keep: int) -> KVCache:
        """The cache with its last `keep` positions alone, moved to the front."""
        return KVCache(*apply("kv_prune", (self.K, self.V, self.length), {"keep": keep}))

    def offload(self, into: str = "host") -> KVCache:
        """The same cache, offloaded to another memory; on a machine of one memory nothing moves."""
        return KVCache(*apply("kv_offload", (self.K, self.V, self.length), {"space": into}))

    def prefetch(self, into: str = "shared") -> KVCache:
        """The same cache, prefetched to where it is about to be read; on a machine of one memory nothing moves."""
        return KVCache(*apply("kv_prefetch", (self.K, self.V, self.length), {"space": into}))

    def __repr__(self) -> str:
        dims = ", ".join(f'"{size}"' if not isinstance(size, int) else str(size) for size in self.shape)
        length = self.length.item() if is_concrete(self.length) else self.length
        return f"KVCache[{dims}, {self.dtype}](length={length})"


def known_length(length: Any) -> int | None:
    """A length that is known here: not one of a trace, and not one in a GPU's memory, for which nobody should wait."""
    if is_tensor(length):
        if length.__class__.__module__.startswith("tessera.runtime.devices"):
            return None
        # Calls give caches back token by token: the number is read in place.
        return c_int64.from_address(length.address).value if length.dtype is i64 else int(length)
    if is_concrete(length) and getattr(length, "size", 1) != 1:
        raise ShapeError(
            f"a cache has one length, got {list(length.shape)} of them", fix="begin with `KVCache.empty(...)`"
        )
    return int(length) if isinstance(length, int) or is_concrete(length) else None


def check_length(keys: Any, length: int) -> None:
    """Refuse a cache whose length is beyond its capacity: rows were left out of it."""
    shape = getattr(keys, "shape", ())
    capacity = shape[2] if len(shape) == 4 else None
    if isinstance(capacity, int) and 0 <= length <= capacity:
        return
    if length < 0:
        raise GuardError(f"a cache has a length of at least 0, got {length}", fix="begin with `KVCache.empty(...)`")
    if isinstance(capacity, int) and length > capacity:
        raise GuardError(
            f"a cache with a capacity of {capacity} positions cannot hold {length}",
            notes=(f"rule: `length <= K.shape[2]`, and {length} > {capacity}",),
            fix=f"make it larger, as in `KVCache.empty(batch, heads, {length}, head_dim)`, or `prune` it first",
        )


def _check(cache: KVCache, name: str, value: Any) -> None:
    dtype_of(value)
    if rank_of(value) != 4:
        raise ShapeError(f"`append` takes `{name}` [batch, heads, new, head dim], got {rank_of(value)} dims")
    for axis, what in ((0, "batch"), (1, "heads"), (3, "head dim")):
        held, new = dim_of(cache.shape[axis]), dim_of(value.shape[axis])
        if (held - new).value not in (0, None):
            raise ShapeError(
                f"`append` takes `{name}` of the cache's {what}: `cache.shape[{axis}] = {held}` and "
                f"`{name}.shape[{axis}] = {new}` differ"
            )


def _split(cache: KVCache) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return (cache.K, cache.V, cache.length), ("K", "V", "length")


pytree.register(KVCache, _split, lambda _, children: KVCache(*children), fields=("K", "V", "length"))


# Caches that are donated to a call: whether their capacity suffices is known before anything is written.

_I64 = CODES[i64]
_MOVES = ("tgraph.kv_offload", "tgraph.kv_prefetch")


@frozen
class _Growth:
    """A cache that a program gives back longer: the numbers of its arguments, how much, and where sizes are read.

    `known` is how much, and `capacity` the positions of the cache, where the program has them as numbers.
    """

    keys: int
    length: int
    more: Dim
    known: int | None
    capacity: int | None
    sizes: Mapping[str, tuple[int, int]]

    def after(self, tensors: Sequence[Any]) -> int | None:
        """The length afterwards; None where it is in a GPU's memory, for which nobody should wait."""
        before = known_length(tensors[self.length])
        if before is None or self.known is not None:
            return None if before is None else before + (self.known or 0)
        return before + self.more.evaluate({name: tensors[at].shape[axis] for name, (at, axis) in self.sizes.items()})


@frozen
class Capacity:
    """What a program appends to caches that are donated to it."""

    growths: tuple[_Growth, ...]

    def is_enough(self, tensors: Sequence[Any]) -> bool:
        """Whether all of it fits; raises DonatedError (T0713) for a cache that is consumed."""
        for one in self.growths:
            length = tensors[one.length]
            if one.known is not None and one.capacity is not None and length.__class__ is Tensor:
                # All but one number is known of the program: it is read in place.
                facts = native().describe(length._handle)
                if facts[1] == _I64 and not facts[4] & CONSUMED:
                    if c_int64.from_address(facts[0]).value + one.known > one.capacity:
                        return False
                    continue
            keys = tensors[one.keys]
            if getattr(keys, "address", None) is None or len(keys.shape) != 4:
                return False
            after = one.after(tensors)
            if after is not None and after > keys.shape[2]:
                return False
        return True

    def check(self, tensors: Sequence[Any]) -> None:
        """Raises GuardError (T0702) where something does not fit; the cache is still whole."""
        if self.is_enough(tensors):
            return
        for one in self.growths:
            after = one.after(tensors)
            if after is not None:
                check_length(tensors[one.keys], after)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a program, which leaves calls beyond the capacity to the checked path; on a GPU nobody knows."""
        if not isinstance(call, DonatingCall):
            return call

        def call_with_capacity(*tensors: Any) -> Any:
            return call(*tensors) if self.is_enough(tensors) else NotImplemented

        return call_with_capacity


def needed_capacity(tape: Tape) -> Capacity | None:
    """What a program appends to caches among its arguments that are donated; None where that is nothing."""
    given, numbers = tape.promises[DONATED], {value: number for number, value in enumerate(tape.inputs)}
    found = dict(numbers)  # keys and lengths by the argument that they come from
    grown: dict[int, _Growth] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for number, value in enumerate(tape.inputs):
        for axis, dim in enumerate(tape.types[value].shape):
            sizes.setdefault(str(dim), (number, axis))
    for record in tape.records:
        if record.op in _MOVES:
            for operand, result in zip(record.operands, record.results, strict=True):
                found.update({result: found[operand]} if operand in found else {})
                grown.update({result: grown[operand]} if operand in grown else {})
        elif record.op == "tgraph.kv_append":
            _grow(tape, record, found, grown, sizes)
    growths = tuple(grown[value] for value in tape.outputs if value in grown and grown[value].keys in given)
    return Capacity(growths) if growths else None


def _grow(
    tape: Tape, record: Record, found: dict[int, int], grown: dict[int, _Growth], sizes: Mapping[str, tuple[int, int]]
) -> None:
    """Note the results of an `append`, where its cache comes from arguments and its sizes are theirs."""
    keys, length, new = record.operands[0], record.operands[2], record.operands[3]
    more = tape.types[new].shape[2]
    if length in grown:
        more = grown[length].more + more
    if keys not in found or length not in found or not more.symbols <= sizes.keys():
        return
    found[record.results[0]], found[record.results[2]] = found[keys], found[length]
    read = {name: sizes[name] for name in more.symbols}
    capacity = tape.types[tape.inputs[found[keys]]].shape[2].value
    grown[record.results[2]] = _Growth(found[keys], found[length], more, more.value, capacity, read)


def with_donation_note(result: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """What makes a result, of a program that arguments are donated to: where it refuses, they are gone already."""

    def result_with_note(outputs: Sequence[Any]) -> Any:
        try:
            return result(outputs)
        except GuardError as error:
            gone = "this was seen after the run: what `donate` names was donated to the call, and is gone"
            raise error.with_notes(gone) from None

    return result_with_note
