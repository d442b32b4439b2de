"""What makes `x + y`, `x[0]` and `x.sum()` work on tensors: a table of operations that the layer above fills in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tessera.diagnostics.codes import OperatorError
from tessera.types.device import Device, cpu

Operation = Callable[..., Any]

_table: dict[str, Operation] = {}

_DTYPES = {
    "double": "f64",
    "float": "f32",
    "half": "f16",
    "bfloat16": "bf16",
    "long": "i64",
    "int": "i32",
    "short": "i16",
    "char": "i8",
    "byte": "u8",
}

OTHER_NAMES: Mapping[str, str] = {
    **{name: f"cast(tessera.{dtype})" for name, dtype in _DTYPES.items()},
    "amax": "max(axis)",
    "amin": "min(axis)",
    "dim": "ndim",
    "expand_as": "broadcast_to(y.shape)",
    "flat": "reshape(-1)",
    "ndimension": "ndim",
    "nelement": "size",
    "numel": "size",
    "permute": "transpose(...)",
    "repeat_interleave": "repeat(2, axis=0)",
    "reshape_as": "reshape(y.shape)",
    "stride": "strides",
    "swapdims": "swapaxes(0, 1)",
    "t": "T",
    "type": "cast(dtype)",
    "type_as": "cast(y.dtype)",
    "unflatten": "reshape(...)",
    "unsqueeze": "expand_dims(axis)",
    "view": "reshape(...)",
    "view_as": "reshape(y.shape)",
}
"""What other libraries call methods that tensors here have by another name."""

_GRADIENTS = "write `tessera.grad(f)(x)`, where `f` gives a scalar: derivatives are of functions"
_UNCHANGED = "tensors do not change, so that it can be used as it is"

ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("backward", "grad", "requires_grad", "requires_grad_", "retain_grad"), _GRADIENTS),
    **dict.fromkeys(("data", "real"), "use the tensor itself"),
    "detach": "write `tessera.stop_gradient(x)`",
    **dict.fromkeys(("clone", "copy", "contiguous"), _UNCHANGED),
    "block_until_ready": "on a CPU results are ready; for a GPU, write `tessera.cuda.synchronize()`",
    "bool": "compare it, as in `x != 0`",
    "copy_": "tensors do not change: write `x = y`",
    "cpu": "it is in host memory already",
    "cuda": "write `tessera.cuda.array(x)`",
    "element_size": "write `x.dtype.bits // 8`",
    "fill": "write `tessera.ops.full_like(x, value)`, which is a new tensor",
    "is_cuda": "write `x.device`",
    "itemsize": "write `x.dtype.bits // 8`",
    "movedim": "write `tessera.ops.transpose(x, axes)`",
    "put": "write `x = x.at[indices].set(values)`",
    "select": "write an index, as in `x[0]`",
    "to": "write `x.cast(dtype)` for another dtype, `tessera.cuda.array(x)` for a GPU, and `x.cpu()` for host memory",
    "unbind": "write `[x[i] for i in range(x.shape[0])]`",
    "zero": "write `tessera.ops.zeros_like(x)`, which is a new tensor",
}
"""What other libraries have as methods, and the advice here."""


class NoAttribute:
    """The sentence about a name that tensors do not have, with what to write instead where that is known.

    It is made when it is shown: many who ask for a name only ask whether it is there.
    """

    __slots__ = ("name", "owner", "what")

    def __init__(self, what: str, name: str, owner: type[Any]) -> None:
        self.what, self.name, self.owner = what, name, owner

    def __str__(self) -> str:
        name, bare = self.name, self.name.rstrip("_")
        if bare == name or name.startswith("_") or name in ELSEWHERE:
            advice = _advice_for(name, self.owner)
        else:  # how torch names what works in place
            is_method = hasattr(self.owner, bare)
            found = f"write `x = x.{bare}(...)`" if is_method else _advice_for(bare, self.owner)
            advice = f"tensors do not change: {found}" if found else ""
        return f"{self.what} has no attribute `{name}`{advice and f': {advice}'}"

    __repr__ = __str__


def _advice_for(name: str, owner: type[Any]) -> str:
    if name.startswith("_"):
        return ""
    if advice := ELSEWHERE.get(name):
        return advice
    if other := OTHER_NAMES.get(name):
        return f"write `x.{other}`"
    function = _table.get(name)
    if function is not None and not hasattr(owner, name):
        return f"write `{_call_text(name, function)}`"
    return advice_for(name)


def advice_for(name: str) -> str:
    """What to write instead of a function of another library; empty where nobody knows."""
    return apply("advice", name) if "advice" in _table else ""


def _call_text(name: str, function: Operation) -> str:
    """A call of a function of ours with all that it needs, the tensor by the name `x`."""
    import inspect  # noqa: PLC0415 - for errors alone

    items = inspect.signature(function).parameters.values()
    names = [one.name for one in items if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    names = names if "x" in names else ["x", *names[1:]]
    return f"tessera.ops.{name}({', '.join(names)})"


def set_operators(operations: Mapping[str, Operation]) -> None:
    """Say how operations are carried out, by name; each takes the tensor first, as the method does.

    Binary operators ask for `add sub mul div floordiv mod pow matmul and or xor lshift rshift eq ne lt le gt ge`,
    unary ones for `neg pos abs invert`, subscripts for `getitem`, iteration for `getitem` too; every other name is a
    method (`sum`, `reshape`, `astype`) or, where `Operators` says so, a property (`T`).
    """
    _table.update(operations)


def apply(name: str, *arguments: Any, **options: Any) -> Any:
    """Carry out an operation; raises OperatorError (T0706) when the table does not have it."""
    operation = _table.get(name)
    if operation is None:
        fix = None if _table else "`import tessera` brings them"
        raise OperatorError(f"nothing here carries out `{name}` on tensors", fix=fix)
    return operation(*arguments, **options)


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        operation = _table.get(name)
        return apply(name, self, other) if operation is None else operation(self, other)

    return method


def _matmul(self: Any, other: Any) -> Any:
    # What has products of its own (a quantized tensor) is asked by Python next.
    if other.__class__ is not self.__class__ and getattr(other, "has_matmul", False):
        return NotImplemented
    return apply("matmul", self, other)


def _reflect(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return apply(name, other, self)

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return apply(name, self)

    return method


METHODS: list[str] = []
"""The methods of tensors that the table carries out."""


def _method(name: str) -> Callable[..., Any]:
    METHODS.append(name)

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return apply(name, self, *arguments, **options)

    method.__name__ = name
    method.__doc__ = f"The graph op `{name}` of this tensor."
    return method


def without_tensors(value: Any, kind: type[Any]) -> Any:
    """Arguments of a NumPy function, with the arrays that share their memory in place of tensors of that kind."""
    if isinstance(value, (list, tuple)):
        items = [without_tensors(item, kind) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: without_tensors(item, kind) for key, item in cast("dict[Any, Any]", value).items()}
    return value.numpy() if isinstance(value, kind) else value


class Operators:
    """Python's operators and the usual methods, each looked up in the table; numbers of tensors of one element."""

    __slots__ = ()

    # NumPy arrays leave `array + tensor` to the tensor.
    __array_priority__ = 1000.0

    __add__, __radd__ = _binary("add"), _reflect("add")
    __sub__, __rsub__ = _binary("sub"), _reflect("sub")
    __mul__, __rmul__ = _binary("mul"), _reflect("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflect("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflect("floordiv")
    __mod__, __rmod__ = _binary("mod"), _reflect("mod")
    __pow__, __rpow__ = _binary("pow"), _reflect("pow")
    __matmul__, __rmatmul__ = _matmul, _reflect("matmul")
    __and__, __rand__ = _binary("and"), _reflect("and")
    __or__, __ror__ = _binary("or"), _reflect("or")
    __xor__, __rxor__ = _binary("xor"), _reflect("xor")
    __lshift__, __rlshift__ = _binary("lshift"), _reflect("lshift")
    __rshift__, __rrshift__ = _binary("rshift"), _reflect("rshift")
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")
    __neg__, __pos__, __abs__, __invert__ = _unary("neg"), _unary("pos"), _unary("abs"), _unary("invert")

    def __eq__(self, other: object) -> Any:
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return apply("ne", self, other)

    # Equality is elementwise, so identity is what a tensor can be found by.
    __hash__ = object.__hash__

    __getitem__ = _binary("getitem")

    def __setitem__(self, index: Any, value: Any) -> None:
        apply("setitem", self, index)

    def __delitem__(self, index: Any) -> None:
        apply("delitem", self)

    @property
    def ndim(self: Any) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def size(self: Any) -> int:
        """How many elements."""
        return math.prod(self.shape)

    def __len__(self: Any) -> int:
        if not self.shape:
            raise OperatorError("a tensor of rank 0 has no length", fix="`x.size` is 1")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __bool__(self: Any) -> bool:
        return bool(self.item())

    def __int__(self: Any) -> int:
        return int(self.item())

    def __float__(self: Any) -> float:
        return float(self.item())

    def __complex__(self: Any) -> complex:
        return complex(self.item())

    def __index__(self: Any) -> int:
        value = self.item()
        if isinstance(value, float):
            raise OperatorError(f"a tensor of {self.dtype} is not an index", fix="cast it: `x.cast(tessera.i64)`")
        return int(value)

    def __format__(self: Any, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __array_function__(self, function: Any, _: Any, inputs: Any, options: Any) -> Any:
        """NumPy's functions take a tensor for the array that `numpy` gives, and give arrays."""
        kind = type(self)
        return function(*without_tensors(inputs, kind), **without_tensors(options, kind))

    if not TYPE_CHECKING:  # a checker would take it to mean that every name is there

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(NoAttribute("a tensor", name, type(self)), name=name, obj=self)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The array API standard on tensors: `tessera.xp`."""
        return apply("array_namespace", api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The tensor on a device."""
        return apply("to_device", self, device, stream=stream)

    @property
    def device(self) -> Device:
        """Where the elements are, and what is made of them is computed: `cpu`, or `gpu[n]`."""
        return cpu

    @property
    def at(self) -> Any:
        """What gives new tensors with elements replaced: `x.at[index].set(values)`, and `add`, `mul`, `max`, `min`."""
        return apply("at", self)

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name for it)
        """All axes in reverse order."""
        return apply("T", self)

    @property
    def mT(self) -> Any:  # noqa: N802 (NumPy's name for it)
        """The last two axes exchanged."""
        return apply("mT", self)

    def __round__(self: Any, decimals: int = 0) -> Any:
        return apply("round", self, decimals)

    def __divmod__(self, other: Any) -> Any:
        return apply("floordiv", self, other), apply("mod", self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return apply("floordiv", other, self), apply("mod", other, self)

    reshape, transpose, squeeze, expand = (_method(name) for name in ("reshape", "transpose", "squeeze", "expand"))
    astype, broadcast_to, flatten = (_method(name) for name in ("astype", "broadcast_to", "flatten"))
    cast, swapaxes, expand_dims = (_method(name) for name in ("cast", "swapaxes", "expand_dims"))
    ravel, repeat, diagonal, trace = (_method(name) for name in ("ravel", "repeat", "diagonal", "trace"))
    take, dot, abs, clamp = (_method(name) for name in ("take", "dot", "abs", "clamp"))
    sum, prod, max, min, mean = (_method(name) for name in ("sum", "prod", "max", "min", "mean"))
    var, std, any, all = (_method(name) for name in ("var", "std", "any", "all"))
    argmax, argmin, cumsum, cumprod = (_method(name) for name in ("argmax", "argmin", "cumsum", "cumprod"))
    sort, argsort = _method("sort"), _method("argsort")
    exp, log, sqrt, tanh, round, clip = (_method(name) for name in ("exp", "log", "sqrt", "tanh", "round", "clip"))
