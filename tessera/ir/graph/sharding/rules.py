"""The factor rule of each op: its own, or the one that its lowering implies.

Index maps say which dims belong together: one that an operand reads at a bare coordinate of the result, over its whole
extent, is a factor of both. Any other use of a coordinate (a window, a shift, an index that is computed) leaves the
dims whole. An op without a lowering is sharded after `decompose`; what is left has no rule and runs on whole operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from tessera.ir.base.spec import Attributes, OpSpec
from tessera.ir.graph.sharding.factors import FactorRule, Factors, RuleBuilder, check_rule
from tessera.ir.graph.transforms.tape_builder import load_rule
from tessera.ir.tile.facets import Assembly, Contraction, Gather, Pointwise, Reduction, View
from tessera.types.dim import Dim
from tessera.types.promotion import holds
from tessera.types.shape import Shape, TensorType

PACKAGE = "tessera.ir.graph.sharding"
Types = Sequence[TensorType]


def factor_rule(spec: OpSpec, operands: Types, results: Types, attributes: Attributes) -> FactorRule | None:
    """The factor rule of an op on such operands; None for one that has none and takes whole operands.

    Raises TypeError where the rule does not fit its op, which is ours to repair.
    """
    rule = _find_rule(spec, operands, results, attributes)
    if rule is None:
        return None
    check_rule(spec, rule, operands, results)
    linear = tuple(group for group in rule.linear if _keeps_terms(group, operands, results))
    return rule if linear == rule.linear else replace(rule, linear=linear)


def _keeps_terms(group: frozenset[int], operands: Types, results: Types) -> bool:
    """Whether terms of these operands may be terms of the results, as far as dtypes say.

    Integers are added modulo a power of two, which is a ring as long as the width stays the same: of terms that have
    wrapped (9 and -2 as u32) a wider integer makes another sum. Truths are no numbers.
    """
    types = [*(operands[at] for at in group), *results]
    if all(one.dtype.is_float for one in types):
        return True
    return not types[0].dtype.is_bool and all(one.dtype is types[0].dtype for one in types)


def _find_rule(spec: OpSpec, operands: Types, results: Types, attributes: Attributes) -> FactorRule | None:
    if spec.shard is not None:
        return load_rule(PACKAGE, spec.shard)(operands, results, attributes)
    if spec.region_names or not spec.effects <= {"random"}:
        return None
    match spec.lower:
        case Pointwise():
            return pointwise(spec, operands, results)
        case View():
            return _view(spec, operands, results, attributes)
        case Reduction():
            return _reduction(spec, operands, results, attributes)
        case Contraction():
            return _contraction(spec, operands, results, attributes)
        case Gather():
            maps = spec.lower.maps(operands, results, attributes)
            return _read_maps(spec, operands, results, maps)
        case Assembly():
            return _assembly(spec, operands, results, attributes)
        case _:
            return None


# Elements one at a time.

_LINEAR: dict[str, tuple[frozenset[int], ...]] = {
    "neg": (frozenset({0}),),
    "add": (frozenset({0, 1}),),
    "sub": (frozenset({0, 1}),),
    "mul": (frozenset({0}), frozenset({1})),
    "div": (frozenset({0}),),
    "where": (frozenset({1, 2}),),
}
"""The operands in which an op on elements is linear, jointly; a product is in each of its factors."""


def pointwise(spec: OpSpec, operands: Types, results: Types) -> FactorRule:
    """Trailing dims aligned; a dim of 1 is stretched. An op that asks where an element is takes whole tensors."""
    b = RuleBuilder()
    asks = isinstance(spec.lower, Pointwise) and spec.lower.asks_where
    whole = _asked_axes(spec, results[0].rank) if asks else ()
    own = b.dims_of(results[0], whole)
    rows: list[Factors] = []
    for type in operands:
        missing = results[0].rank - type.rank
        rows.append(
            tuple(
                own[missing + axis] if dim == results[0].shape[missing + axis] else ()
                for axis, dim in enumerate(type.shape)
            )
        )
    linear = _LINEAR.get(spec.short_name, ())
    if spec.short_name == "div" and not results[0].dtype.is_float:
        linear = ()
    if spec.short_name == "cast" and _widens(operands[0], results[0]):
        linear = (frozenset({0}),)
    return b.finish(rows, [own] * len(results), linear=linear)


def _asked_axes(spec: OpSpec, rank: int) -> Sequence[int]:
    """The dims along which an op's value depends on where it stands: the last two of a triangle, else all."""
    return range(max(rank - 2, 0), rank) if spec.short_name in ("tril", "triu") else range(rank)


def _widens(x: TensorType, out: TensorType) -> bool:
    """Whether a cast rounds nothing, and so is a sum of casts where its operand is a sum of floats."""
    return x.dtype.is_float and out.dtype.is_float and holds(out.dtype, x.dtype)


# Views, gathers and assemblies, by their index maps.


def _coordinate_of(index: Dim) -> int | None:
    """The number of a bare coordinate `d<number>`."""
    name = index.symbol_name
    return int(name[1:]) if name is not None and name[:1] == "d" and name[1:].isdigit() else None


def _read_maps(spec: OpSpec, operands: Types, results: Types, maps: Sequence[Sequence[Dim]]) -> FactorRule:
    """Operands that are read at maps over the coordinates of one result; others are read nowhere."""
    b = RuleBuilder()
    out = results[0]
    bare: set[int] = set()
    used: set[str] = set()
    for type, indices in zip(operands, maps, strict=False):
        counts = Counter(_coordinate_of(index) for index in indices)
        for axis, index in enumerate(indices):
            at = _coordinate_of(index)
            if at is not None and counts[at] == 1 and type.shape[axis] == out.shape[at]:
                bare.add(at)
            else:
                used |= index.symbols
    # A dim that is read nowhere is cut where an attribute states its size.
    states = any(one.name == "shape" for one in spec.attributes)
    whole = [at for at in range(out.rank) if f"d{at}" in used or not (states or at in bare)]
    repeated = _repeated_axes(operands, maps, out, whole)
    own = [() if at in whole else dims for at, dims in enumerate(b.dims_of(out, whole))]
    for at, (_, outer) in repeated.items():
        own[at] = (b.new(outer), b.new(out.shape[at] // outer))
    rows: list[Factors] = []
    for number, type in enumerate(operands):
        if number >= len(maps):
            rows.append(tuple(() for _ in type.shape))
            continue
        row: list[tuple[int, ...]] = []
        for axis, index in enumerate(maps[number]):
            at = _coordinate_of(index)
            joined = next((own[one][:1] for one, (read, _) in repeated.items() if read == (number, axis)), ())
            row.append(own[at] if at is not None and at not in whole else joined)
        rows.append(tuple(row))
    ignored = frozenset(range(len(maps), len(operands)))  # they are there so that the op waits for them
    linear = _linear_of(spec, operands, results)
    return b.finish(rows, [tuple(own)] * len(results), linear=linear, ignored=ignored)


def _repeated_axes(
    operands: Types, maps: Sequence[Sequence[Dim]], out: TensorType, whole: Sequence[int]
) -> dict[int, tuple[tuple[int, int], Dim]]:
    """Result dims that repeat each element of a dim of the first operand: who reads them, and its size."""
    found: dict[int, tuple[tuple[int, int], Dim]] = {}
    for at in whole:
        readers = [
            (number, axis)
            for number, own in enumerate(maps)
            for axis, index in enumerate(own)
            if f"d{at}" in index.symbols
        ]
        if len(readers) != 1:
            continue
        number, axis = readers[0]
        size, given = operands[number].shape[axis].value, out.shape[at].value
        if not size or not given or given % size:
            continue
        if maps[number][axis] == Dim.symbol(f"d{at}") // (given // size) and size > 1:
            found[at] = (readers[0], Dim.constant(size))
    return found


def _linear_of(spec: OpSpec, operands: Types, results: Types) -> tuple[frozenset[int], ...]:
    """The operands in which an op is linear, as its derivative says."""
    if not results or results[0].dtype.is_bool or spec.transpose is None:
        return ()
    if spec.jvp == "multilinear":
        return tuple(frozenset({at}) for at in range(len(operands)))
    if spec.jvp == "first":
        return (frozenset({0}),)
    return (frozenset(range(len(operands))),) if spec.jvp == "linear" else ()


def _view(spec: OpSpec, operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    assert isinstance(spec.lower, View)
    if spec.short_name == "reshape":
        return reshape(operands, results, attributes)
    if len(results) != 1:
        return _parts(spec, operands, results, spec.lower.maps(operands[0], results, attributes))
    return _read_maps(spec, operands, results, spec.lower.maps(operands[0], results, attributes))


def _parts(spec: OpSpec, operands: Types, results: Types, maps: Sequence[Sequence[Dim]]) -> FactorRule:
    """Several results that are parts of one operand: along dims that each of them has whole."""
    b = RuleBuilder()
    (x,) = operands
    whole = [
        axis
        for axis in range(x.rank)
        if any(
            _coordinate_of(own[axis]) != axis or out.shape[axis] != x.shape[axis]
            for own, out in zip(maps, results, strict=True)
        )
    ]
    own = b.dims_of(x, whole)
    return b.finish([own], [own] * len(results), linear=_linear_of(spec, operands, results))


def reshape(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Both shapes cut into their common factors, from the outermost dim on, as far as they have any."""
    b = RuleBuilder()
    x, out = operands[0].shape, results[0].shape
    taken, given = [list[int]() for _ in x], [list[int]() for _ in out]
    if not any(dim.value == 0 for dim in (*x, *out)):
        _share_factors(b, x, out, taken, given)
    left, right = (tuple(map(tuple, own)) for own in (taken, given))
    return b.finish([left], [right], linear=(frozenset({0}),))


def _share_factors(b: RuleBuilder, x: Shape, out: Shape, taken: list[list[int]], given: list[list[int]]) -> None:
    left, right = ([(axis, dim) for axis, dim in enumerate(shape) if dim.value != 1] for shape in (x, out))
    while left and right:
        (axis, size), (at, other) = left[0], right[0]
        common = size if size == other else None
        if common is None and size.value is not None and other.value is not None:
            common = Dim.constant(gcd(size.value, other.value))
        if common is None or common.value == 1:
            # What is left of both is inside of what they share, and what follows is at other positions in each.
            for place, rest in ((taken[axis], size), (given[at], other)):
                place += [b.new(rest)] if place else []
            return
        factor = b.new(common)
        taken[axis].append(factor)
        given[at].append(factor)
        left[0], right[0] = (axis, size // common), (at, other // common)
        left, right = (own[1:] if own[0][1].value == 1 else own for own in (left, right))


# Reductions and contractions.


def _reduction(spec: OpSpec, operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    assert isinstance(spec.lower, Reduction)
    b = RuleBuilder()
    (x,) = operands
    axes, kind = spec.lower.axes(x, attributes), spec.lower.kind
    is_partial = kind in ("sum", "prod", "max", "min")
    own = b.dims_of(x, () if is_partial else axes)
    kept = [dims for axis, dims in enumerate(own) if axis not in axes]
    if attributes.get("keepdims"):
        kept = [() if axis in axes else dims for axis, dims in enumerate(own)]
    reduced = tuple((own[axis][0], kind) for axis in axes if own[axis])
    linear = (frozenset({0}),) if kind == "sum" else ()
    return b.finish([own], [tuple(kept)] * len(results), reduced=reduced, linear=linear, weight=1)


def _contraction(spec: OpSpec, operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Coordinates that operands read bare and whole are factors; those of K are summed."""
    assert isinstance(spec.lower, Contraction)
    if attributes.get("partial"):
        b = RuleBuilder()
        return b.finish([b.dims_of(one, range(one.rank)) for one in operands], [tuple(() for _ in results[0].shape)])
    maps = spec.lower.maps(operands, attributes)
    extents: dict[str, Dim] = {}
    for group, sizes in (("b", maps.batch), ("m", maps.m), ("n", maps.n), ("k", maps.k)):
        extents.update({f"{group}{at}": size for at, size in enumerate(sizes)})
    bent: set[str] = set()
    for type, indices in zip(operands, (maps.lhs, maps.rhs), strict=True):
        counts = Counter(index.symbol_name for index in indices)
        for axis, index in enumerate(indices):
            name = index.symbol_name
            if name is None or counts[name] != 1 or extents.get(name) != type.shape[axis]:
                bent |= index.symbols
    for _, index, _ in maps.windows:
        bent |= index.symbols
    b = RuleBuilder()
    names = {name: b.new(size) for name, size in extents.items() if name not in bent and size.value not in (0, 1)}
    rows = [
        tuple((names[name],) if (name := index.symbol_name) in names else () for index in indices)
        for indices in (maps.lhs, maps.rhs)
    ]
    outer = [name for name in extents if name[0] != "k"]
    result = tuple((names[name],) if name in names else () for name in outer)
    reduced = tuple((factor, "sum") for name, factor in names.items() if name[0] == "k")
    return b.finish(rows, [result], reduced=reduced, linear=(frozenset({0}), frozenset({1})), weight=1)


def _assembly(spec: OpSpec, operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Dims along which every box has the whole extent of the result."""
    assert isinstance(spec.lower, Assembly)
    b = RuleBuilder()
    (out,) = results
    pieces = spec.lower.pieces(operands, results, attributes)
    whole: set[int] = set()
    for piece in pieces:
        for at in range(out.rank):
            if piece.start[at].value != 0 or piece.extent[at] != out.shape[at]:
                whole.add(at)
        if piece.operand is None:
            continue
        counts = Counter(_coordinate_of(index) for index in piece.map)
        for axis, index in enumerate(piece.map):
            at = _coordinate_of(index)
            if at is None or counts[at] != 1 or operands[piece.operand].shape[axis] != out.shape[at]:
                whole |= {int(name[1:]) for name in index.symbols if name[:1] == "d" and name[1:].isdigit()}
    own = b.dims_of(out, sorted(whole))
    rows: list[Factors] = [tuple(() for _ in one.shape) for one in operands]
    for piece in pieces:
        if piece.operand is not None:
            places = [_coordinate_of(index) for index in piece.map]
            rows[piece.operand] = tuple(() if at is None else own[at] for at in places)
    linear: tuple[frozenset[int], ...] = (frozenset(range(len(operands))),) if operands else ()
    if spec.short_name in ("pad", "pad_gather") and attributes.get("value"):
        linear = ()
    return b.finish(rows, [own], linear=() if out.dtype.is_bool else linear)
