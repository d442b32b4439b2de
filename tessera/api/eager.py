"""Eager ops: each compiled once for its dtypes, ranks and attributes, with dynamic dims, then run natively."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NoReturn

from tessera.api.compilation import load
from tessera.api.other_names import advice_for
from tessera.compiler.backend import manifest_of
from tessera.compiler.options import Options, for_device
from tessera.diagnostics.codes import (
    AxisError,
    BroadcastError,
    GuardError,
    OperatorError,
    PositionError,
    RuntimeArgumentError,
    ShapeError,
    SpecializationError,
    TracingError,
)
from tessera.diagnostics.error import user_span
from tessera.frontend.arguments import check_attributes
from tessera.frontend.call_plans import note_program, plan_calls
from tessera.frontend.complex.parts import as_complex, check_dtype
from tessera.frontend.complex.tensor import (
    ComplexTensor,
    adopt_complex,
    holds_complex_numbers,
    is_complex_tensor,
    numbers_to_complex,
)
from tessera.frontend.concrete import (
    Tracer,
    adopt_all,
    common_device,
    concrete_dtype,
    concrete_type,
    copy_to_host,
    device_class,
    is_array,
    is_tensor,
    scalar_dtype,
)
from tessera.frontend.fixes import fixes_of
from tessera.frontend.functions import public
from tessera.frontend.functions.operands import dtype_of
from tessera.frontend.methods import TensorMethods
from tessera.frontend.pytree import as_tuple, is_sequence, static_key
from tessera.frontend.shape_inference import Facts
from tessera.frontend.trace import Trace, TracedTensor, leaked_tracer_error
from tessera.ir.base import dispatch
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.runtime import operators
from tessera.runtime.devices import Program
from tessera.runtime.foreign import adopt, is_foreign
from tessera.runtime.native.support import missing_source, set_object_compiler
from tessera.runtime.tensor import Tensor as Tensor
from tessera.types.complex_dtype import ComplexDType, c64, find_complex_dtype
from tessera.types.device import Device
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32, i4, parse_dtype
from tessera.types.shape import TensorType

# `tessera.Tensor` as users get it: with operators, and with someone to make its native support code.

_NAMES = (
    "add sub mul div floordiv mod pow matmul and or xor lshift rshift eq ne lt le gt ge neg pos abs invert"
    " getitem setitem delitem"
)


def _late(name: str) -> Any:
    """An operation that loads all functions when it is first used, and then stands aside."""

    def operation(*arguments: Any, **options: Any) -> Any:
        importlib.import_module("tessera.api.eager")  # its functions take this one's place in the table
        return operators.apply(name, *arguments, **options)

    return operation


def _support_target() -> tuple[Any, Any]:
    """The module that makes machine code, and what it makes the support code for."""
    machine_code = importlib.import_module("tessera.ir.target.machine_code")
    host = importlib.import_module("tessera.ir.target.architectures").host_architecture()
    return machine_code, machine_code.CodeTarget(host.triple, host.support_cpu)


def _compile_support(text: str) -> bytes:
    machine_code, target = _support_target()
    return machine_code.compile_text(text, target)


def begin_support() -> None:
    """Have the support code made, where there is none, while the caller does something else."""
    text = missing_source()
    if text is not None:
        machine_code, target = _support_target()
        machine_code.begin(text, target)


@cache
def prepare() -> None:
    """Let tensors have operators, and native support code where the cache has none; once in a process."""
    operators.set_operators({name: _late(name) for name in (*_NAMES.split(), "at", "T", "mT", *operators.METHODS)})
    set_object_compiler(_compile_support)


prepare()


PROGRAMS = 1024
"""How many programs of ops are kept; those not used for longest are dropped, and the disk cache still has them."""

_PROGRAMS: OrderedDict[Any, tuple[Program, bool] | None] = OrderedDict()
_UNKNOWN: Any = object()
_OPTIONS = Options()


def run_op(op: str, operands: Sequence[Any], attributes: Mapping[str, Any], options: Options | None = None) -> Any:
    """The result of one op on tensors with data."""
    operands = adopt_all(operands)
    rule = REGISTRY[op].attribute_rule
    decided = {} if rule is None else _decide_attributes(op, operands, attributes)
    attributes = {**attributes, **decided} if decided else attributes
    key: Any = (op, _forms(op, operands), _key_of(op, attributes) if attributes else ())
    if options is not None:
        key = (key, options)
    found = _lookup(key)
    if found is _UNKNOWN:
        options = _options_for(op, operands) if options is None else options
        made = _compile_dynamic(op, [_type_of(operand) for operand in operands], attributes, options)
        found = _keep(key, _with_numbers(made, operands))
    if found is None:
        # The rule of this op needs numbers, such as the two words of a key: then sizes are part of the program.
        types = [_type_of(operand) for operand in operands]
        key = (key, tuple(type.shape for type in types))
        found = _lookup(key)
        if found is _UNKNOWN:
            options = _options_for(op, operands) if options is None else options
            found = _keep(key, _with_numbers(_load_traced(_trace_op(op, types, attributes), options), operands))
    program, is_single = found
    try:
        call: Any = program.call
        result = call(*operands)
        if result is NotImplemented:
            call = None
            is_here = options is not None and manifest_of(options.backend).runs_in_host_memory
            result = program.run(copy_to_host(operands) if is_here else operands)
    except PositionError as error:
        raise error.at(user_span()) from None  # the program has the line that it was first called from
    except (RuntimeArgumentError, GuardError):
        # The program was made for other sizes: the rule of the op says what is wrong in the user's words.
        _trace_op(op, [_type_of(operand) for operand in operands], attributes)
        raise
    result = result if is_single else as_tuple(result)
    note_program(call, operands, result, is_single)
    return result


def run_at(device: Device, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """The result of one op, run on a device."""
    return run_op(op, operands, attributes, for_device(_OPTIONS, device))


def _options_for(op: str, operands: Sequence[Any]) -> Options:
    """Those of the device that the operands are on; raises DeviceError (T0720) where they are on two."""
    device = common_device(op, operands, _operand_names(op, len(operands)))
    return _OPTIONS if device is None else for_device(_OPTIONS, device)


def _with_numbers(made: tuple[Program, bool] | None, operands: Sequence[Any]) -> tuple[Program, bool] | None:
    """A program of a device beside whose tensors there are single numbers in host memory: it copies each once."""
    kind = device_class()
    if made is None or kind is None or len({isinstance(operand, kind) for operand in operands}) < 2:
        return made
    from tessera.runtime.devices.cuda.tensor import WithNumbers  # noqa: PLC0415 - only where there is a device

    return WithNumbers(made[0]), made[1]


def _key_of(op: str, attributes: Mapping[str, Any]) -> Any:
    try:
        return static_key(attributes)
    except TypeError:
        check_attributes(REGISTRY[op], attributes, user_span())  # says which one is not what it should be
        raise


def _decide_attributes(op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that sizes decide: a program is for all sizes that decide the same."""
    spec = REGISTRY[op]
    assert spec.attribute_rule is not None
    types = [_type_of(operand) for operand in operands]
    decided = spec.attribute_rule(types, spec.with_defaults(attributes))
    return {name: value for name, value in decided.items() if name not in attributes}


def _lookup(key: Any) -> Any:
    found = _PROGRAMS.get(key, _UNKNOWN)
    if found is not _UNKNOWN:
        try:
            _PROGRAMS.move_to_end(key)
        except KeyError:
            return found  # another thread has just dropped it, which is no reason not to use it
    return found


def _keep(key: Any, made: Any) -> Any:
    _PROGRAMS[key] = made
    while len(_PROGRAMS) > PROGRAMS:
        _PROGRAMS.popitem(last=False)
    return made


def _forms(op: str, operands: Sequence[Any]) -> tuple[Any, ...]:
    """What a program is made for: dtypes, ranks, and which dims are the 1 that may stretch."""
    if len(operands) == 1 and not _keeps_ones(op, 1):
        dtype, ones = _form(operands[0])
        return dtype, len(ones)
    return tuple([_form(operand) for operand in operands])


@cache
def _keeps_ones(op: str, count: int) -> bool:
    """Whether a dim of 1 means something else than another size: next to other operands, or to a given shape."""
    return count > 1 or any(attribute.kind == "dims" for attribute in REGISTRY[op].attributes)


def _form(operand: Any) -> tuple[str, tuple[bool, ...]]:
    dtype = concrete_dtype(operand)
    if dtype is None:
        _type_of(operand)
    ones = tuple([size == 1 for size in operand.shape])
    # What runs on a device is another program.
    return f"gpu {dtype}" if operand.__class__ is device_class() else str(dtype), ones


def _type_of(operand: Any) -> TensorType:
    if isinstance(operand, TracedTensor):
        raise leaked_tracer_error(operand)
    found = concrete_type(operand)
    if found is None:
        dtype_of(operand)  # says what it is instead of a tensor
    assert found is not None, "`dtype_of` refuses what is no tensor"
    return found


def _compile_dynamic(
    op: str, types: Sequence[TensorType], attributes: Mapping[str, Any], options: Options
) -> tuple[Program, bool] | None:
    """The op for all sizes, or None where its shape rule does not hold for all; wrong sizes raise, in numbers."""
    names = _operand_names(op, len(types))
    keeps_ones = _keeps_ones(op, len(types))
    checked = Trace(facts=Facts())
    checked.is_eager = True
    checked.record(op, [checked.add_input(name, type) for name, type in zip(names, types, strict=True)], attributes)
    free = [
        TensorType(
            tuple(
                dim if keeps_ones and dim.value == 1 else Dim.symbol(f"{names[at]}_{axis}")
                for axis, dim in enumerate(type.shape)
            ),
            type.dtype,
        )
        for at, type in enumerate(types)
    ]
    try:
        traced = _trace_op(op, free, attributes)
    except (ShapeError, BroadcastError, AxisError, SpecializationError, TracingError):
        # Sizes that do hold for these operands were just traced: what fails is the rule for all sizes. A program that
        # cannot be compiled is no such reason, and is not compiled again for every size.
        return None
    return _load_traced(traced, options)


def _load_traced(traced: tuple[Tape, bool], options: Options) -> tuple[Program, bool]:
    tape, is_single = traced
    return load(tape, options)[0], is_single


def _trace_op(op: str, types: Sequence[TensorType], attributes: Mapping[str, Any]) -> tuple[Tape, bool]:
    trace = Trace(facts=Facts())
    trace.is_eager = True
    inputs: list[TracedTensor] = []
    for name, type in zip(_operand_names(op, len(types)), types, strict=True):
        trace.facts.anchor(type)
        inputs.append(trace.add_input(name, type))
    with dispatch.record_on(trace):
        result = trace.record(op, inputs, attributes)
    is_single = not is_sequence(result)
    return trace.finish(as_tuple(result)), is_single


def _operand_names(op: str, count: int) -> list[str]:
    """A name for each operand; a last one that stands for several is numbered."""
    *names, last = [*(name.rstrip("*") for name in REGISTRY[op].operands), ""]
    if REGISTRY[op].is_variadic:
        last = names.pop()
    return [names[at] if at < len(names) else f"{last}_{at - len(names)}" for at in range(count)]


def array(values: Any, dtype: Any = None) -> Any:
    """A new tensor in host memory: of numbers, nested lists of them, or a copy of an array or any library's tensor.

    It is converted to `dtype` where one is given, as `ops.cast` converts; numbers of lists must be values of it. Of
    lists, floats are f32, integers i64 and complex numbers c64. `asarray` shares memory instead.

    >>> ts.array([1, 2, 3])
    Tensor([3] i64, [1, 2, 3])
    >>> ts.array(ts.array([1.5, 2.5]), "bf16").dtype
    bf16
    >>> ts.array([1, 2j])
    ComplexTensor([2] c64, [1+0j, 0+2j])
    """
    made = asarray(values, dtype)
    if isinstance(made, ComplexTensor):
        parts = copy_to_host((made.real, made.imag))
        is_shared = made is values or parts[0] is values
        return ComplexTensor(*(part.copy() if is_shared else part for part in parts))
    (here,) = copy_to_host((made,))
    shares = here is made and (made is values or is_array(values) or is_foreign(values) or _has_buffer(values))
    return made.copy() if shares else here


def _refuse_tracers(values: Any) -> None:
    if isinstance(values, Tracer):
        raise RuntimeArgumentError("`array` takes data, and a traced tensor has none", fix="use the tensor itself")
    if is_sequence(values) and any(isinstance(one, Tracer) for one in values):
        advice = "make one tensor of several, as in `tessera.ops.stack([a, b])`"
        raise RuntimeArgumentError(
            "`array` takes data, and a traced tensor of the list has none",
            fix=lambda span: fixes_of("operands").numpy_fix(span, advice),
        )


def asarray(values: Any, dtype: Any = None) -> Any:
    """A tensor that shares the memory of an array, or of a tensor of any library, where it can; of numbers, a new one.

    What has to be converted to `dtype`, or is not contiguous, is copied. A tensor of a GPU stays there.

    >>> x = ts.array([1.0, 2.0])
    >>> ts.asarray(x) is x, ts.asarray(x, "f64") is x
    (True, False)
    """
    _refuse_tracers(values)
    if values.__class__ is not Tensor or dtype is not None:
        made = _as_complex(values, dtype)
        if made is not None:
            return made
    wanted = None if dtype is None else parse_dtype(dtype)
    if _is_plain(values):
        return Tensor.of(values, wanted or _natural_dtype(values))
    if wanted is i4 and is_array(values) and values.dtype.name in ("int8", "int4"):
        return Tensor.of(values, wanted)
    made = adopt(values)
    made = made if is_tensor(made) else Tensor.of(made)
    if wanted is None or made.dtype is wanted:
        return made
    with dispatch.suspend_traces():
        return public.cast(made, wanted)


def _as_complex(values: Any, dtype: Any) -> ComplexTensor | None:
    """A complex tensor of complex values, or of any where the dtype is complex; None for all others."""
    wanted = find_complex_dtype(dtype)
    if is_complex_tensor(values):
        made: ComplexTensor = adopt_complex(values)
        if dtype is None or wanted is made.dtype:
            return made
        with dispatch.suspend_traces():
            return as_complex(made, check_dtype("array", wanted or parse_dtype(dtype)))
    if isinstance(values, complex | list | tuple) and (wanted is not None or holds_complex_numbers(values)):
        check_dtype("array", wanted or (c64 if dtype is None else parse_dtype(dtype)))
        return numbers_to_complex(values, wanted or c64)
    if wanted is None:
        return None
    with dispatch.suspend_traces():
        return as_complex(asarray(values), wanted)


def _has_buffer(values: Any) -> bool:
    return isinstance(values, bytes | bytearray | memoryview)


def _is_plain(values: Any) -> bool:
    # A `float64` of NumPy is a float too, and has a dtype of its own.
    return isinstance(values, bool | int | float | list | tuple) and not is_array(values)


def _natural_dtype(values: Any) -> DType:
    """The dtype of nested lists of numbers: the widest kind that one of them has."""
    if not is_sequence(values):
        return scalar_dtype(values) if isinstance(values, bool | int | float) else f32
    kinds = [_natural_dtype(item) for item in as_tuple(values)] or [f32]
    return max(kinds, key=lambda dtype: ("bool", "int", "float").index(dtype.kind))


def zeros(shape: Any, dtype: DType | ComplexDType | str = "f32") -> Any:
    """A tensor of zeros.

    >>> ts.zeros((2,))
    Tensor([2] f32, [0, 0])
    """
    return public.zeros(shape, dtype)


def ones(shape: Any, dtype: DType | ComplexDType | str = "f32") -> Any:
    """A tensor of ones."""
    return public.ones(shape, dtype)


def full(shape: Any, value: Any, dtype: DType | ComplexDType | str | None = None) -> Any:
    """A tensor of one value."""
    return public.full(shape, value, dtype)


def arange(start: Any, stop: Any = None, step: int = 1, dtype: DType | str = "i64") -> Any:
    """Integers from `start` up to and without `stop`."""
    return public.arange(start, stop, step, dtype)


_OPERATOR_NAMES = {
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "shift_left",
    "rshift": "shift_right",
    "invert": "bitwise_not",
}


def _same(x: Any) -> Any:
    return x


def _refuse_assignment(x: Any, index: Any) -> NoReturn:
    raise OperatorError(
        f"tensors do not change, and this assigns to elements of a tensor {TensorType.of(x.shape, x.dtype)}",
        fix=lambda span: fixes_of("assignments").assignment_fix(span, index, x),
    )


def _refuse_deletion(x: Any) -> NoReturn:
    raise OperatorError(
        f"tensors do not change, and this deletes elements of a tensor {TensorType.of(x.shape, x.dtype)}",
        fix=lambda span: fixes_of("assignments").deletion_fix(span, x),
    )


_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def _array_namespace(api_version: str | None) -> Any:
    """The array API namespace; raises ValueError for a version that it does not follow."""
    if api_version is not None and api_version not in _API_VERSIONS:
        raise ValueError(f"`tessera.xp` follows the array API of {_API_VERSIONS[-1]}, not of {api_version!r}")
    return importlib.import_module("tessera.xp")


def _to_device(x: Any, device: Any, *, stream: Any = None) -> Any:
    """A tensor on a device; it has no streams that a user could name."""
    if stream is not None:
        raise RuntimeArgumentError(f"`to_device` takes no stream, got {stream!r}", fix="pass `stream=None`")
    if isinstance(x, Tracer) or str(device) == str(x.device):
        return x
    if str(device) == "cpu":
        return copy_to_host((x,))[0]
    return importlib.import_module("tessera.cuda").array(x)


def install() -> None:
    """Let ops run eagerly, and tensors have their operators and methods."""
    dispatch.install(run_op)
    dispatch.install_on_device(run_at)
    table: dict[str, Any] = {name: function for name, function in vars(public).items() if callable(function)}
    methods = {name: item for name, item in vars(TensorMethods).items() if not name.startswith("_")}
    table |= {name: item.fget if isinstance(item, property) else item for name, item in methods.items()}
    table |= {name: getattr(public, function) for name, function in _OPERATOR_NAMES.items()}
    table |= {name: plan_calls(table[name]) for name in _NAMES.split() if name in table}
    table |= {"pos": _same, "setitem": _refuse_assignment, "delitem": _refuse_deletion}
    table |= {"array_namespace": _array_namespace, "to_device": _to_device}
    table["advice"] = partial(advice_for, "tessera.ops")
    operators.set_operators(table)


install()
