"""`@graph.kernel`: a function of whole tensors that writes its results to destinations, `C[:] = op.matmul(A, B)`.

The body is ops of the graph, not tiles: what is assigned to all of a destination is a result of the program, and which
kernels compute it is the compiler's to decide. Tensors do not change, so the call returns what was written, and a
tensor that it was given as a destination is donated.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, overload

import numpy as np

from tessera.api.jit import Jit
from tessera.compiler.options import Options, check_names
from tessera.diagnostics.codes import ArgumentError, DTypeError, EffectError, KernelError, ShapeError
from tessera.diagnostics.frames import guard_class
from tessera.frontend.arguments import check_callables
from tessera.frontend.bind import Signature
from tessera.frontend.functions.operands import is_tensor
from tessera.frontend.pytree import as_tuple
from tessera.frontend.trace import TracedFunction
from tessera.ir.base.dispatch import apply
from tessera.types.effect import Effects
from tessera.types.shape import TensorType

_ALLOWED = ("random", "memory")
"""Effects that a body may have: draws have keys, and memory is what it writes."""


class Destination:
    """A parameter that a body writes: `C[:] = value`, once and all of it; `C[:]` reads what is in it."""

    def __init__(self, name: str, given: Any = None) -> None:
        self._name, self._given, self._written = name, given, None

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape that it was given with."""
        return self._known.shape

    @property
    def dtype(self) -> Any:
        """The dtype that it was given with."""
        return self._known.dtype

    @property
    def _known(self) -> Any:
        found = self._given if self._written is None else self._written
        if found is None:
            raise KernelError(
                f"nothing says what `{self._name}` is before it is written: the call left it out",
                fix=f"give `{self._name}` a tensor at the call, or take the shape from an operand",
            )
        return found

    def __getitem__(self, index: Any) -> Any:
        return self._known[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        name = self._name
        if not _is_whole(index):
            raise KernelError(
                f"a destination is written as a whole, and this writes a part of `{name}`",
                fix=f"write `{name}[:] = {name}[:].at[...].set(value)`, or put the parts together with `ops.concat`",
            )
        if self._written is not None:
            raise KernelError(
                f"`{name}` is written twice, and only one of the two would be seen", fix="keep the value in a variable"
            )
        self._written = value if self._given is None else _fit(name, self._given, value)

    def __getattr__(self, name: str) -> NoReturn:
        raise KernelError(
            f"`{self._name}` is a destination, and this uses it as a tensor (`.{name}`)",
            fix=f"read it as `{self._name}[:]`",
        )

    def take(self) -> Any:
        """What was written; raises KernelError (T0206) where nothing was."""
        if self._written is None:
            raise KernelError(
                f"the body ends without writing `{self._name}`", fix=f"write `{self._name}[:] = ...` on every path"
            )
        return self._written


def _is_whole(index: Any) -> bool:
    parts: Sequence[Any] = as_tuple(index)
    return all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in parts)


def _fit(name: str, given: Any, value: Any) -> Any:
    """A value of the shape and dtype of its destination; numbers and tensors that broadcast to it are broadcast."""
    wanted = TensorType.of(given.shape, given.dtype)
    if not is_tensor(value):
        return apply("tgraph.full", (), {"value": value, "shape": wanted.shape, "dtype": wanted.dtype})
    found = TensorType.of(value.shape, value.dtype)
    if found.dtype != wanted.dtype:
        raise DTypeError(
            f"`{name}` is {wanted}, and what is written to it is {found}", fix=f"write `value.cast({wanted.dtype})`"
        )
    if found.shape == wanted.shape:
        return value
    tail = wanted.shape[wanted.rank - found.rank :] if found.rank <= wanted.rank else ()
    if found.rank > wanted.rank or any(
        own != dim and own.value != 1 for own, dim in zip(found.shape, tail, strict=True)
    ):
        raise ShapeError(
            f"`{name}` is {wanted}, and what is written to it is {found}",
            notes=("rule: a destination has the shape of what is written, or one that it broadcasts to",),
            fix=f"give `{name}` as {found}",
        )
    return value.broadcast_to(given.shape)


class _GraphJit(Jit):
    """A graph kernel as a jitted function, which holds it to what a kernel may do."""

    def _trace(self, signature: Signature) -> TracedFunction:
        traced = super()._trace(signature)
        others = Effects(traced.effects).without(_ALLOWED)
        if others:
            raise EffectError(
                f"a graph kernel writes its destinations and nothing else, and `{self.name}` has the effects {others}",
                fix="move what prints, communicates or keeps state out of the kernel, or decorate it with `jit`",
            )
        return traced


@guard_class
class GraphKernel:
    """A graph kernel: call it with operands and destinations, and it returns what was written."""

    def __init__(self, function: Callable[..., Any], options: Options | None = None) -> None:
        check_callables("graph.kernel", function=function)
        functools.update_wrapper(self, function)
        self.function, self.name, self.options = function, function.__name__, options or Options()
        self.signature = inspect.signature(function)
        self.writes = _destinations_of(function, self.signature)
        self._made: dict[tuple[bool, bool], Jit] = {}

    def as_jit(self, *, is_given: bool = True, donates: bool = False) -> Jit:
        """The kernel as a jitted function, with destinations among its parameters or without."""
        if (is_given, donates) not in self._made:
            run = self._with_destinations(is_given)
            donated = self.writes if donates else ()
            self._made[is_given, donates] = _GraphJit(run, options=self.options, donate=donated)
        return self._made[is_given, donates]

    def _with_destinations(self, is_given: bool) -> Callable[..., Any]:
        function, writes = self.function, self.writes
        kept = [one for one in self.signature.parameters.values() if is_given or one.name not in writes]
        signature = self.signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            places = {name: Destination(name, bound.arguments.get(name)) for name in writes}
            returned = function(**{**bound.arguments, **places})
            if returned is not None:
                raise KernelError(
                    f"`{function.__name__}` returns a value, and a graph kernel writes its results",
                    fix=f"write `{writes[0]}[:] = ...`, and return nothing",
                )
            results = tuple(places[name].take() for name in writes)
            return results[0] if len(results) == 1 else results

        vars(run)["__signature__"] = signature
        return run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = self._bind(args, kwargs)
        found = [name for name in self.writes if name in given]
        if not found:
            return self.as_jit(is_given=False)(**given)
        self._check_operands(given)
        arrays = {name: given[name] for name in found if isinstance(given[name], np.ndarray)}
        result = self.as_jit(donates=not arrays)(**given)
        for name, value in zip(self.writes, result if len(self.writes) > 1 else (result,), strict=True):
            if name in arrays:
                np.copyto(arrays[name], np.asarray(value))
        return result

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name; raises ArgumentError (T0202) where some destinations are left out and some are not."""
        try:
            given = dict(self.signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            raise ArgumentError(f"`{self.name}{self.signature}` is called otherwise: {error}") from None
        missing = [name for name in self.writes if name not in given]
        if missing and len(missing) < len(self.writes):
            raise ArgumentError(
                f"`{self.name}` writes {', '.join(self.writes)}, and the call gives no `{missing[0]}`",
                fix="give all destinations, or none: their shapes are then those of what is written",
            )
        return given

    def _check_operands(self, given: Mapping[str, Any]) -> None:
        """Raise EffectError (T0108) for memory that would be both read and written."""
        for name in self.writes:
            for other, value in given.items():
                if other != name and value is given[name]:
                    raise EffectError(
                        f"`{name}` and `{other}` of `{self.name}` are one tensor, which would be read and written",
                        fix=f"leave `{name}` out, so that the result has memory of its own, or give it another tensor",
                    )

    def trace(self, /, *args: Any, **kwargs: Any) -> TracedFunction:
        """What the kernel does for such arguments; nothing is compiled or run."""
        return self._looked_at(args, kwargs).trace(**self._bind(args, kwargs))

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kernel at every level of IR, as text, for such arguments."""
        return self._looked_at(args, kwargs).lower(**self._bind(args, kwargs))

    def schedule(self, /, *args: Any, **kwargs: Any) -> str:
        """The plan that the kernel is compiled by, for such arguments."""
        return self._looked_at(args, kwargs).schedule(**self._bind(args, kwargs))

    def _looked_at(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Jit:
        return self.as_jit(is_given=any(name in self._bind(args, kwargs) for name in self.writes))

    def __repr__(self) -> str:
        return f"<graph kernel {self.name}{self.signature}, which writes {', '.join(self.writes)}>"


def _destinations_of(function: Callable[..., Any], signature: inspect.Signature) -> tuple[str, ...]:
    """The parameters that a body assigns to; raises KernelError (T0206) where there are none."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        raise KernelError(
            f"the source of `{function.__name__}` is not at hand, and says what it writes",
            fix="define the kernel in a file, not in a text that is executed",
        ) from None
    stored = set(_stored_names(tree))
    found = tuple(name for name in signature.parameters if name in stored)
    if not found:
        raise KernelError(
            f"`{function.__name__}` writes to none of its parameters {', '.join(signature.parameters)}",
            fix="write `C[:] = ...` to a parameter `C`, or decorate a function that returns its results with `jit`",
        )
    return found


def _stored_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.value.id


@overload
def kernel(function: Callable[..., Any], /) -> GraphKernel: ...


@overload
def kernel(function: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], GraphKernel]: ...


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """A function of whole tensors that writes its results to some of its parameters: `C[:] = ops.matmul(A, B)`.

    Called with a tensor for each destination it returns what was written: such a tensor is donated, as
    `jit(donate=...)` says, and its memory may be the result's. A NumPy array is written in place as well. Without
    destinations results have the shapes of what is written. Inside `jit` the body is part of the program. `C[:]` reads
    a destination that was given, so that `C[:] += ops.matmul(A, B)` adds to it. Further keywords are options of the
    compiler.

    Raises: KernelError (T0206) for a destination that is not written, written twice or in part; ShapeError (T0101) and
    DTypeError (T0102) for a value that does not fit it; EffectError (T0108) for a body with other effects, and for a
    tensor that is an operand and a destination.

    >>> @ts.graph.kernel
    ... def gemm(A, B, C):
    ...     C[:] = ts.ops.matmul(A, B)
    >>> gemm(ts.ones((2, 3)), ts.ones((3, 2)), ts.zeros((2, 2)))
    Tensor([2, 2] f32, [[3, 3], [3, 3]])
    """
    check_names(options)
    settings = Options.of(**options)

    def decorate(target: Callable[..., Any]) -> GraphKernel:
        return GraphKernel(target, settings)

    return decorate if function is None else decorate(function)
