"""Functions of attention, traced on the score of one query and one key, as score programs.

A function runs once on scalars. What depends on the score, or on where it is, becomes a line of its program; what does
not is computed outside, once, and captured: `table.mean()`, a size, a tensor that is cast. Everything a program can
compute is fused into the kernels of attention. What it cannot is refused, at its line: there is no slower form that
somebody would get without knowing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import (
    ArgumentError,
    BroadcastError,
    DTypeError,
    EffectError,
    ShapeError,
    TracingError,
)
from tessera.diagnostics.error import Span, user_span
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions import elementwise
from tessera.frontend.functions.indexing import getitem
from tessera.frontend.functions.operands import as_tensor, cast, constant, dtype_of, is_tensor, rank_of, shape_dims
from tessera.frontend.pytree import as_tuple
from tessera.frontend.shape_inference import Inference
from tessera.frontend.trace import Trace, TracedTensor
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.score_programs import INPUT_NAMES, Lines, ProgramWriter
from tessera.ir.tile.facets import Pointwise
from tessera.types.dtype import DType, bool_, i32, i64
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT
from tessera.types.shape import TensorType, is_refuted, text

_READS = ("tgraph.take", "tgraph.index_get")
_FIX = "compute it before, and let the function read it by index, as in `table[h, i]`"


@frozen
class _Read:
    """A captured tensor that some of its axes are indexed of: their indices, None for an axis that is whole."""

    capture: int
    places: tuple[int | None, ...]


class ScoreTracer:
    """The programs of one call of attention, and the tensors that they share."""

    def __init__(self, op: str, score: DType) -> None:
        self.op, self.score = op, score
        self.captures: list[Any] = []

    def capture(self, tensor: Any) -> int:
        """The number of a captured tensor."""
        for number, known in enumerate(self.captures):
            if known is tensor:
                return number
        self.captures.append(tensor)
        return len(self.captures) - 1

    def trace(self, name: str, function: Callable[..., Any], rows: Any = None) -> Lines:
        """The program of a function; `rows` is what is added to the index of a query, where that is not its own."""
        names = INPUT_NAMES if name == "score" else INPUT_NAMES[1:]
        _check_arity(self.op, name, function, names)
        outer = dispatch.tracing()
        trace = Trace(parent=outer if isinstance(outer, Trace) else None)
        trace.policy = trace.declared = SILENT
        dtypes = (self.score, i32, i32, i32, i32)[-len(names) :]
        tracers = [trace.add_input(own, TensorType((), dtype)) for own, dtype in zip(names, dtypes, strict=True)]
        before = len(trace.tape.inputs)
        with dispatch.record_on(trace):
            given = tracers
            if rows is not None:
                given = [*tracers[:-2], tracers[-2] + rows, tracers[-1]]
            result = self._result(name, function(*given))
        if trace.effects:
            _refuse_effects(self.op, name, trace)
        tape = trace.tape
        lifted = {item.value: item.tensor for item in trace.lifted.values()}
        numbers = dict(zip(tape.inputs[:before], range(5 - len(names), 5), strict=True))
        value = trace.value_of(result)
        lifted |= {item.value: item.tensor for item in trace.lifted.values()}
        return _Conversion(self, name, tape, numbers, lifted).convert(value)

    def _result(self, name: str, value: Any) -> Any:
        """What a function gives as a scalar tensor; raises where it is none, or of another dtype."""
        wanted, example = (self.score, "s") if name == "score" else (bool_, "i >= j")
        where = user_span()
        if is_traced_number(value):
            value = value.result()
        if isinstance(value, bool | int | float):
            is_right = isinstance(value, bool) if wanted is bool_ else not isinstance(value, bool)
            value = constant(value, wanted if is_right else dtype_of(as_tensor(value)))
        try:
            tensor = as_tensor(value)
        except Exception as error:
            raise TracingError(
                f"`{name}` of `{self.op}` gives one scalar, and this gives {value!r} of type `{type(value).__name__}`",
                span=where,
                fix=f"return a scalar of {wanted}, as in `{example}`",
            ) from error
        if tensor.shape != ():
            raise ShapeError(
                f"`{name}` of `{self.op}` gives one scalar for one query and one key, and this gives "
                f"{list(tensor.shape)} {dtype_of(tensor)}",
                span=where,
                notes=("`s`, `b`, `h`, `i` and `j` are scalars; captured tensors are read by index",),
                fix="index captured tensors with `b`, `h`, `i` and `j`, as in `table[h, i]`",
            )
        if dtype_of(tensor) is not wanted:
            advice = "compare, as in `i >= j`" if wanted is bool_ else f"cast it, as in `(...).cast({wanted})`"
            raise DTypeError(
                f"`{name}` of `{self.op}` gives {wanted} for scores of {self.score}, and this gives {dtype_of(tensor)}",
                span=where,
                fix=advice,
            )
        return tensor


def _check_arity(op: str, name: str, function: Callable[..., Any], names: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # one of Python's own does not say what it takes
    try:
        signature.bind(*names)
    except TypeError:
        listed = ", ".join(names)
        raise ArgumentError(
            f"`{name}` of `{op}` is called as `{name}({listed})`, with {len(names)} arguments, and "
            f"`{getattr(function, '__name__', name)}{signature}` does not take them",
            fix=f"write `{name}=lambda {listed}: ...`",
        ) from None


def _refuse_effects(op: str, name: str, trace: Trace) -> None:
    span = next(
        (record.span for record in trace.tape.records if REGISTRY[record.op].effects_for(record.attributes)),
        None,
    )
    raise EffectError(
        f"`{name}` of `{op}` has the effect {', '.join(sorted(trace.effects))}, and is run for scores in any order, "
        "or not at all where they are hidden",
        span=span,
        fix="do it before the call, and let the function read what it gives by index",
    )


class _Conversion:
    """A tape on scalars as lines: what depends on them, and tensors from outside for all that does not."""

    def __init__(
        self, tracer: ScoreTracer, name: str, tape: Tape, numbers: dict[int, int], lifted: dict[int, Any]
    ) -> None:
        self.tracer, self.name, self.tape = tracer, name, tape
        self.lines: dict[int, int | _Read] = dict(numbers)
        self.outer: dict[int, Any] = dict(lifted)
        self.makers = {result: record for record in tape.records for result in record.results}
        self.writer = _CapturingWriter(tracer)

    def convert(self, result: int) -> Lines:
        for record in list(self.tape.records):
            self._record(record)
        return self.writer.finish(self._line(result, None))

    def _is_inside(self, value: int) -> bool:
        return value in self.lines

    def _record(self, record: Record) -> None:
        if not any(self._is_inside(operand) for operand in record.operands):
            return  # computed outside, if anybody asks for it
        spec = REGISTRY[record.op]
        out = self.tape.types[record.results[0]] if record.results else None
        if record.op in _READS and record.attributes["mode"] in ("", "clip"):
            self.lines[record.results[0]] = self._read(record)
        elif isinstance(spec.lower, Pointwise) and not spec.lower.asks_where and out is not None and out.rank == 0:
            self.lines[record.results[0]] = self._compute(record, spec.lower, out)
        elif spec.decompose is not None and not record.bodies:
            self._decompose(record, spec)
        elif spec.moves_elements and out is not None and out.rank == 0:
            self.lines[record.results[0]] = self._line(record.operands[0], record.span)
        else:
            raise self._refusal(record, spec)

    def _refusal(self, record: Record, spec: OpSpec) -> Exception:
        """What says that an op is none of one score."""
        shapes = [self.tape.types[value] for value in record.operands]
        wide = next((one for one in shapes if one.rank), None)
        note = "a function of attention computes one score at a time, and is fused into its kernels"
        if wide is not None and isinstance(spec.lower, Pointwise):
            return ShapeError(
                f"`{spec.short_name}` in `{self.name}` of `{self.tracer.op}` is of one score, and an operand is {wide}",
                span=record.span,
                notes=(note,),
                fix="read captured tensors by index, as in `table[h, i]`",
            )
        return TracingError(
            f"`{spec.short_name}` in `{self.name}` of `{self.tracer.op}` is no function of one score",
            span=record.span,
            notes=(note,),
            fix=_FIX,
        )

    def _outside(self, value: int) -> Any:
        """A value that depends on no score, as a tensor of the trace around."""
        if value not in self.outer:
            record = self.makers[value]
            given = tuple(self._outside(operand) for operand in record.operands)
            short = record.op.partition(".")[2]
            made = as_tuple(apply(short, given, record.attributes))
            self.outer.update(zip(record.results, made, strict=True))
        return self.outer[value]

    def _line(self, value: int, span: Span | None) -> int:
        """A scalar as the number of a line."""
        known = self.lines.get(value)
        if isinstance(known, int):
            return known
        if isinstance(known, _Read):
            raise self._partial(value, span)
        record = self.makers.get(value)
        if record is not None and record.op == "tgraph.full" and value not in self.outer:
            made = self.writer.constant(record.attributes["value"], self.tape.types[value].dtype)
        elif self.tape.types[value].rank:
            raise self._partial(value, span)
        else:
            made = self.writer.load(self.tracer.capture(self._outside(value)), ())
        self.lines[value] = made
        return made

    def _partial(self, value: int, span: Span | None) -> Exception:
        return ShapeError(
            f"`{self.name}` of `{self.tracer.op}` computes one score, and this is {self.tape.types[value]}",
            span=span,
            notes=("a function of attention computes one score at a time, and is fused into its kernels",),
            fix="read captured tensors by index, as in `table[h, i]`",
        )

    def _read(self, record: Record) -> int | _Read:
        """An element of a captured tensor, or some of it where axes are left."""
        source, *indices = record.operands
        axes = [int(axis) for axis in record.attributes.get("axes", (record.attributes.get("axis"),))]
        known = self.lines.get(source)
        if isinstance(known, int):
            raise self._refusal(record, REGISTRY[record.op])
        if known is None:
            tensor = self._outside(source)
            known = _Read(self.tracer.capture(tensor), (None,) * self.tape.types[source].rank)
        places, free = list(known.places), [at for at, place in enumerate(known.places) if place is None]
        for axis, index in zip(axes, indices, strict=True):
            places[free[axis]] = self._line(index, record.span)
        if None in places:
            return _Read(known.capture, tuple(places))
        return self.writer.load(known.capture, [(0, place) for place in places])

    def _compute(self, record: Record, facet: Pointwise, out: TensorType) -> int:
        """An op on one element at a time: in the dtype of computation, and rounded as the op rounds."""
        writer = self.writer
        tiles = [self._line(operand, record.span) for operand in record.operands]
        wide = [writer.cast(tile, writer.dtypes[tile].compute) for tile in tiles]
        try:
            made = facet.block(writer, wide, record.attributes, out)
        except AttributeError as error:
            raise self._refusal(record, REGISTRY[record.op]) from error
        return writer.cast(made, out.dtype)

    def _decompose(self, record: Record, spec: OpSpec) -> None:
        """The ops that an op stands for, which are converted in its place."""
        from tessera.ir.graph.transforms.tape_builder import TapeBuilder  # noqa: PLC0415 - few functions need it

        builder, first = TapeBuilder(self.tape), len(self.tape.records)
        builder.follow(record)
        assert spec.decompose is not None
        made = as_tuple(spec.decompose(builder, record.operands, record.attributes))
        for added in self.tape.records[first:]:
            self.makers.update(dict.fromkeys(added.results, added))
        for added in self.tape.records[first:]:
            self._record(added)
        for result, value in zip(record.results, made, strict=True):
            if value in self.lines:
                self.lines[result] = self.lines[value]


class _CapturingWriter(ProgramWriter):
    """A writer whose captured tensors are those of a tracer, as many as there are by now."""

    def __init__(self, tracer: ScoreTracer) -> None:
        super().__init__(tracer.score, ())
        self.tracer = tracer

    def load(self, capture: int, indices: Sequence[tuple[int, Any]]) -> int:
        tensors = self.tracer.captures[len(self.captures) :]
        self.captures += [_type_of(tensor) for tensor in tensors]
        return super().load(capture, indices)


def _type_of(tensor: Any) -> TensorType:
    from tessera.frontend.subprograms import type_of  # noqa: PLC0415 - it traces functions itself

    return type_of(tensor) if not isinstance(tensor, TracedTensor) else tensor.type


# Whole calls.


def trace_functions(
    operands: Sequence[Any], length: Any, score: Any, mask: Any, *, causal: bool
) -> tuple[list[Any], dict[str, Lines]]:
    """The programs of a call of attention, as attributes, and what they read.

    `mask` is a function or a tensor; over a cache of `length` keys the last query is the last of them, and it is a
    function: which rows of a tensor would be those of the queries, nothing says.
    """
    (q, k), mask = operands[:2], adopt_operand(mask)
    tracer = ScoreTracer("attention", dtype_of(q).compute)
    for name, function in (("score", score), ("mask", mask)):
        if function is not None and not callable(function) and not (name == "mask" and is_tensor(function)):
            raise ArgumentError(
                f"`attention` takes `{name}` as a function{' or a tensor' * (name == 'mask')}, "
                f"got {function!r} of type `{type(function).__name__}`",
                fix=f"write `{name}=lambda {', '.join(INPUT_NAMES[name == 'mask' :])}: ...`",
            )
    if mask is not None and not callable(mask) and length is not None:
        raise TracingError(
            f"`attention` over a cache takes no tensor as a mask beside `score`, got {text(shape_dims(mask))}: "
            "it hides keys beyond `length`, and later ones with `causal=True`",
            notes=("queries of a cache count from its first key, wherever a tensor has their rows",),
            fix="write a function that reads it, as in `mask=lambda b, h, i, j: table[i, j]`",
        )
    rank = {rank_of(operand) for operand in operands}
    last = None
    if rank == {4} and (causal or length is not None):
        keys = as_tensor(k.shape[2], i64) if length is None else cast(length, i64)
        last = cast(elementwise.sub(keys, q.shape[2]), i32)  # where the first query is among the keys
    rows = last if length is not None else None
    if mask is not None and not callable(mask):
        if rank == {4}:
            _check_mask(q, k, mask)
        score, mask = _with_tensor(score, mask, dtype_of(q).compute)
    programs: dict[str, Lines] = {"score": (), "mask": ()}
    if score is not None:
        programs["score"] = tracer.trace("score", score, rows)
    if mask is not None or (causal and last is not None):
        programs["mask"] = tracer.trace("mask", _with_causal(mask, causal, last, rows), rows)
    return tracer.captures, programs


def _with_causal(mask: Callable[..., Any] | None, causal: bool, last: Any, rows: Any) -> Callable[..., Any]:
    """A mask that hides later keys too; the last query is aligned with the last key."""
    if not causal:
        assert mask is not None
        return mask

    def see(b: Any, h: Any, i: Any, j: Any) -> Any:
        is_seen = j <= (i + last if rows is None else i)
        return is_seen if mask is None else is_seen & mask(b, h, i, j)

    if mask is not None:
        _check_arity("attention", "mask", mask, INPUT_NAMES[1:])
    return see


def _check_mask(q: Any, k: Any, mask: Any) -> None:
    """Require that a tensor broadcasts to the scores: it is read by index, which nothing else checks."""
    trace, span = dispatch.tracing(), user_span()
    scores, shape = (*shape_dims(q)[:3], shape_dims(k)[2]), shape_dims(mask)
    for axis, (own, dim) in enumerate(zip(reversed(shape), reversed(scores), strict=False), 1):
        if own.value == 1 or own == dim:
            continue
        names = f"`scores.shape[{4 - axis}] = {dim}` and `mask.shape[{len(shape) - axis}] = {own}`"
        if isinstance(trace, Trace):
            own, dim = trace.resolve(own), trace.resolve(dim)
        if is_refuted(own, dim):
            raise BroadcastError(
                f"`attention` cannot broadcast {text(scores)} with {text(shape)}: {names} differ",
                span=span,
                notes=("scores are [batch, heads, queries, keys]",),
                fix="dims broadcast when they are equal, or when one of the mask is the number 1",
            )
        if isinstance(trace, Trace):
            context = Inference(trace, REGISTRY["tgraph.attention"], (), span)
            context.equal(dim, own, f"`attention` broadcasts {names}")


def _with_tensor(score: Callable[..., Any] | None, mask: Any, compute: DType) -> tuple[Any, Any]:
    """A tensor as a mask beside a score function: one of bools hides where it is false, others are added."""
    shape, is_bool = shape_dims(mask), dtype_of(mask).is_bool
    if len(shape) > 4:
        raise ShapeError(
            f"`attention` takes a mask that broadcasts to [batch, heads, queries, keys], got {text(shape)}",
            fix="pass a mask of at most four axes",
        )

    def read(b: Any, h: Any, i: Any, j: Any) -> Any:
        places = (b, h, i, j)[4 - len(shape) :]
        found = getitem(mask, tuple(0 if size.value == 1 else place for place, size in zip(places, shape, strict=True)))
        return found if is_bool else cast(found, compute)

    if is_bool:
        return score, read
    if score is not None:
        _check_arity("attention", "score", score, INPUT_NAMES)

    def add(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return (s if score is None else score(s, b, h, i, j)) + read(b, h, i, j)

    return add, None
