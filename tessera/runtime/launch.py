"""`LoadedExecutable`: an executable linked into this process, and its calls, fast or checked."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

from tessera.diagnostics.codes import GuardError, LoadError, OutOfMemoryError, RuntimeArgumentError
from tessera.diagnostics.error import InternalError
from tessera.runtime import arrays
from tessera.runtime.dlpack import new_capsule
from tessera.runtime.executable import Executable, Port
from tessera.runtime.loader import LinkedCode, host_architecture, link, missing_features
from tessera.runtime.native.support import Support
from tessera.runtime.tensor import CODES, MOST_BYTES, Tensor, native
from tessera.types.dim import parse_dim

CALLBACK, FAILED = "tessera_callback", -1
"""The name by which native code calls Python, and what its entry gives when that raised: see `callback.py`."""

_SCRATCH = 2  # the entry itself failed

# A capsule keeps the pointer to its name, not a copy.
_PROGRAM = ctypes.c_char_p(b"tessera.program")


class _Port(ctypes.Structure):
    """`%Port` of the native code."""

    _fields_ = [("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("item", ctypes.c_int64)]


class _Program(ctypes.Structure):
    """`%Program` of the native code."""

    _fields_ = [
        ("check", ctypes.c_void_p),
        ("shapes", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("entry", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("symbols", ctypes.c_int64),
        ("in_dims", ctypes.c_int64),
        ("out_dims", ctypes.c_int64),
        ("in_ports", ctypes.c_void_p),
        ("out_ports", ctypes.c_void_p),
        ("binding", ctypes.c_void_p),
        ("calls", ctypes.c_int64),
    ]


class _Record:
    """The native record of an executable and all that it points to; the builtin that uses it holds on to this."""

    __slots__ = ("binding", "callbacks", "code", "in_ports", "out_ports", "program")

    def __init__(self, executable: Executable, code: LinkedCode, callbacks: Any = None) -> None:
        self.code, self.callbacks = code, callbacks
        self.in_ports, self.out_ports = _ports(executable.inputs), _ports(executable.outputs)
        self.binding = (ctypes.c_int64 * max(1, len(executable.binding)))(*executable.binding)
        self.program = _Program(
            code.address("tessera_check"),
            code.address("tessera_shapes"),
            code.address("tessera_workspace"),
            code.address("tessera_entry"),
            len(executable.inputs),
            len(executable.outputs),
            len(executable.symbols),
            sum(port.rank for port in executable.inputs),
            sum(port.rank for port in executable.outputs),
            ctypes.addressof(self.in_ports),
            ctypes.addressof(self.out_ports),
            ctypes.addressof(self.binding),
            0,
        )


class LoadedExecutable:
    """An executable ready to run.

    `call` is a builtin for the common case: right number, dtypes, ranks and dims, contiguous tensors or NumPy arrays.
    It answers NotImplemented to anything else. Calling the object itself, or `run`, takes whatever can be made to fit
    (strided inputs are copied, and `copies` counts that) and explains what cannot.

    Raises: LoadError (T0704) if the objects cannot be linked; a call raises RuntimeArgumentError (T0701), GuardError
    (T0702), or OutOfMemoryError (T0707).
    """

    __slots__ = ("__weakref__", "_record", "call", "copies", "executable")

    def __init__(
        self,
        executable: Executable,
        symbols: Mapping[str, int] | None = None,
        functions: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Link an executable; `functions` are the Python functions that it calls, by slot."""
        _check_machine(executable)
        support = native(executable.support)
        arrays.attach(support)
        _install_reporter(support)
        table = {**support.code.symbols, **(symbols or {})}
        self.executable = executable
        self.copies = 0
        callbacks = None
        if "callbacks" in executable.metadata:
            from tessera.runtime.callback import Callbacks  # noqa: PLC0415 - few programs call back

            callbacks = Callbacks.of(executable.metadata, functions)
        if callbacks is not None:
            table[CALLBACK] = callbacks.address
        self._record = _Record(executable, link(executable.objects, table), callbacks)
        address = ctypes.addressof(self._record.program)
        capsule = new_capsule(address, _PROGRAM, None)
        self.call: Callable[..., Any] = support.dispatcher(capsule, self._record)
        if executable.metadata.get("donated") is not None:
            from tessera.runtime.donation import DonatingCall, Donation  # noqa: PLC0415 - few programs are given anything

            donation = Donation.of(executable)
            assert donation is not None
            self.call = DonatingCall(self.call, donation, argument_names(executable))
        _loaded[address] = self

    @property
    def symbols(self) -> Mapping[str, int]:
        """Where the functions of its code are."""
        return self._record.code.symbols

    @property
    def calls(self) -> int:
        """How often the entry has run."""
        return self._record.program.calls

    def __call__(self, *arguments: Any) -> Any:
        result = self.call(*arguments)
        return self.run(arguments) if result is NotImplemented else result

    def run(self, arguments: Sequence[Any]) -> Any:
        """Call with anything that holds elements; what does not fit is copied into form, or explained."""
        inputs = self.executable.inputs
        if len(arguments) != len(inputs):
            raise RuntimeArgumentError(f"expected {len(inputs)} arguments, got {len(arguments)}")
        tensors = [self._tensor(number, argument) for number, argument in enumerate(arguments)]
        self._check([tensor.shape for tensor in tensors])
        result = self.call(*tensors)
        if result is NotImplemented:
            raise InternalError("the native call path refused arguments that fit", where="runtime/launch.py")
        return result

    def _tensor(self, number: int, argument: Any) -> Tensor:
        """One argument as a contiguous tensor of the right dtype and rank."""
        port = self.executable.inputs[number]
        where = argument_text(number, port)
        if isinstance(argument, (bool, int, float)):
            if port.rank:
                raise RuntimeArgumentError(f"{where} is a number; expected a tensor {port}")
            return Tensor.of(argument, port.dtype)
        i4_bytes = port.dtype == "i4" and arrays.is_array(argument) and argument.dtype.name in ("int8", "int4")
        try:
            tensor = Tensor.of(argument, port.dtype if i4_bytes else None)
        except RuntimeArgumentError as error:
            raise RuntimeArgumentError(f"{where}: {error.message}", notes=error.notes, fix=error.fix) from None
        if tensor.dtype.name != port.dtype:
            raise RuntimeArgumentError(
                f"{where} has dtype {tensor.dtype}; the compiled function takes {port.dtype}",
                fix=f"convert it first: `.astype({port.dtype})`",
            )
        if tensor.ndim != port.rank:
            raise RuntimeArgumentError(
                f"{where} has rank {tensor.ndim}; the compiled function takes rank {port.rank}",
                notes=(f"it has shape {list(tensor.shape)}, and must be {port}",),
            )
        copied = tensor if tensor.is_contiguous and tensor.address % port.element.bytes == 0 else tensor.copy()
        # Tensor.of makes arrays contiguous by itself, so a copy shows in the address.
        if copied is not tensor or (arrays.is_array(argument) and tensor.address != _address(argument)):
            self.copies += 1
        return copied

    def _check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Each dim against its text, then the guards; the native check has the last word."""
        symbols = check_dims(self.executable, shapes)
        failed = self._native_check(list(symbols.values()), [dim for shape in shapes for dim in shape])
        if failed:
            raise guard_error(self.executable, failed - 1, symbols)

    def _native_check(self, symbols: list[int], dims: list[int]) -> int:
        check = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(self._record.program.check)
        values = (ctypes.c_int64 * max(1, len(symbols)))(*symbols)
        sizes = (ctypes.c_int64 * max(1, len(dims)))(*dims)
        return check(values, sizes)

    def failure(self, what: int, numbers: Sequence[int]) -> BaseException:
        """Why a call did not come to its end: an exception of a function it called, or want of memory."""
        if self._record.callbacks is not None and what == _SCRATCH and numbers[0] == FAILED:
            raised = self._record.callbacks.take_exception()
            if raised is not None:
                return raised
        return self.memory_error(what, numbers)

    def memory_error(self, what: int, numbers: Sequence[int]) -> OutOfMemoryError:
        """What there was no memory for: outputs (0), given the symbols; the workspace (1); a kernel's scratch (2)."""
        if what:
            name = ("temporaries of the compiled function", "working memory of a kernel")[what - 1]
            return OutOfMemoryError(f"no memory for {_bytes_text(numbers[0])} of {name}")
        symbols = dict(zip(self.executable.symbols, numbers, strict=True))
        parts: list[str] = []
        total = 0
        for port in self.executable.outputs:
            sizes = [_evaluate(text, symbols) for text in port.dims]
            total += port.element.bytes * math.prod(size or 1 for size in sizes)
            parts.append(f"{sizes} {port.dtype}")
        return OutOfMemoryError(
            f"no memory for {total} bytes of output: {', '.join(parts)}", notes=symbol_notes(symbols)
        )


_loaded: WeakValueDictionary[int, LoadedExecutable] = WeakValueDictionary()


def kernel_at(address: int) -> tuple[str, str] | None:
    """The name of a kernel of any program that is loaded, by its address, and the lines that it comes from."""
    for program in list(_loaded.values()):
        for name, start in program.symbols.items():
            if start == address:
                return name, _lines_of(name, program.executable.metadata.get("report", {}))
    return None


def _lines_of(kernel: str, report: Any) -> str:
    """The lines of a program that a kernel comes from, as its report has them."""
    groups: Any = cast("Any", report).get("groups", ()) if isinstance(report, dict) else ()
    texts = [str(line).rpartition(" at ")[2] for line in groups if str(line).startswith(f"{kernel}: ")]
    return " and ".join(dict.fromkeys(texts))


def _report(address: int, what: int, numbers: tuple[int, ...]) -> None:
    """Called by native code when there is no memory for a call, or a function that it called has raised."""
    found = _loaded.get(address)
    if found is None:
        raise OutOfMemoryError("no memory for a compiled function that is being let go")
    raise found.failure(what, numbers)


def _bytes_text(count: int) -> str:
    return f"{count} bytes" if 0 <= count < MOST_BYTES else f"more than {MOST_BYTES} bytes"


def _check_machine(executable: Executable) -> None:
    host_architecture()
    features = executable.metadata.get("features", ())
    if not isinstance(features, list | tuple) or not all(isinstance(one, str) for one in cast("Any", features)):
        raise LoadError("executable is damaged: its `features` are no names", span=None)
    missing = missing_features(cast("Sequence[str]", features))
    if missing:
        raise LoadError(
            f"executable was made for a CPU with {', '.join(missing)}, which this one lacks",
            span=None,
            fix="compile it here, or for a CPU with less",
        )


def _install_reporter(support: Support) -> None:
    # `_report` is a module's function: it lives as long as anything can be called.
    support.environment.report = id(_report)


def _ports(ports: Sequence[Port]) -> ctypes.Array[_Port]:
    records = [_Port(CODES[port.element], port.rank, port.element.bytes) for port in ports]
    return (_Port * max(1, len(records)))(*records)


# The sizes of a call against what an executable says of them, in words; native code compares the same numbers.


def argument_names(executable: Executable) -> list[str]:
    """What errors call the arguments."""
    return [port.name or f"argument {at}" for at, port in enumerate(executable.inputs)]


def argument_text(number: int, port: Port) -> str:
    """An argument by its number, and by its name where it has one."""
    return f"argument {number}" + (f" (`{port.name}`)" if port.name else "")


def check_dims(executable: Executable, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The value of each symbol; raises RuntimeArgumentError (T0701) where a size is not what they make it."""
    dims = [dim for shape in shapes for dim in shape]
    symbols = {name: dims[index] for name, index in zip(executable.symbols, executable.binding, strict=True)}
    for number, (shape, port) in enumerate(zip(shapes, executable.inputs, strict=True)):
        for axis, (size, text) in enumerate(zip(shape, port.dims, strict=True)):
            expected = _evaluate(text, symbols)
            if expected is not None and expected != size:
                rule = text if text == str(expected) else f"{text} = {expected}"
                raise RuntimeArgumentError(
                    f"{argument_text(number, port)} has size {size} in dim {axis}; expected {rule}",
                    notes=(f"it has shape {list(shape)}, and must be {port}", *symbol_notes(symbols)),
                )
    return symbols


def guard_error(executable: Executable, number: int, symbols: Mapping[str, int]) -> GuardError:
    """The error for a guard that does not hold, by its number."""
    if not 0 <= number < len(executable.guards):
        return GuardError(f"guard {number} of the compiled function failed", notes=symbol_notes(symbols))
    guard = executable.guards[number]
    left, right = (f"`{text}`{_value(text, _evaluate(text, symbols))}" for text in (guard.left, guard.right))
    return GuardError(f"{guard.what}: {left} and {right} must agree", notes=symbol_notes(symbols))


def symbol_notes(symbols: Mapping[str, int]) -> tuple[str, ...]:
    """The note that says what symbols are here; none without symbols."""
    shown = ", ".join(f"`{name}` = {value}" for name, value in symbols.items())
    return (f"here {shown}",) if shown else ()


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _evaluate(text: str, symbols: Mapping[str, int]) -> int | None:
    """The value of a dim's text; None where it names what is no symbol of the executable."""
    try:
        dim = parse_dim(text)
    except ValueError:
        return None
    return dim.evaluate(symbols) if dim.symbols <= symbols.keys() else None


def _value(text: str, value: int | None) -> str:
    return "" if value is None or text == str(value) else f" (= {value})"
