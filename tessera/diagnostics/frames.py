"""Frames of Tessera in tracebacks: they are hidden where an error leaves the public interface.

Between a user's line and the message that it gets stand up to twenty frames of the compiler, and none of them is theirs
to mend. So every public function catches what leaves it, takes its own frames out of the traceback and raises the error
again, which adds none: a bare `raise` goes on with the traceback that the exception has. Everything that reads the
traceback of an exception then shows the user's lines alone: the prompt, notebooks, pytest, `pdb.post_mortem`.
Functions of the user that Tessera calls keep their frames. `TESSERA_FULL_TRACEBACK=1` hides nothing.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import _GeneratorContextManager  # pyright: ignore[reportPrivateUsage]
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from tessera.diagnostics.calls import explain_call
from tessera.diagnostics.error import TesseraError, is_ours

C = TypeVar("C", bound=type[Any])

_OFF = ("", "0", "false", "no", "off")
_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul"
_OTHERS = (
    "eq ne lt le gt ge neg abs invert getitem setitem delitem class_getitem init new call get enter exit"
    " iter len bool int float complex index contains format getattr array array_ufunc array_function dlpack"
)
_DUNDERS = frozenset(
    f"__{name}__" for names in (_OPERATORS, _OPERATORS.replace(" ", " r"), "radd", _OTHERS) for name in names.split()
)
"""What Python calls for an operator, a statement or a function of a user."""


def hide_frames(error: BaseException) -> None:
    """Take Tessera's frames out of the traceback of an error and of all that it is chained to.

    An error that is nobody's mistake but ours, raised in here and no `TesseraError`, keeps all of them.
    """
    if os.environ.get("TESSERA_FULL_TRACEBACK", "").strip().lower() not in _OFF:
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if _is_of_user(one):
            one.__traceback__ = _without_ours(one.__traceback__)
            _drop_inner_context(one)
        waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]


def _is_of_user(error: BaseException) -> bool:
    """Whether an error is about the user's program: one of ours that says so, or any other raised outside of here."""
    if isinstance(error, TesseraError):
        return True
    frames = list(_entries(error.__traceback__))
    if not frames:
        return False
    last = frames[-1].tb_frame
    # Python raises for a call that does not fit in the frame of who calls, and we for a name that is not here.
    is_call = isinstance(error, TypeError) and last.f_globals is globals()
    is_name = isinstance(error, AttributeError) and (last.f_code.co_name == "__getattr__" or error.obj is None)
    return not _is_hidden(last) or is_call or is_name


def _drop_inner_context(error: BaseException) -> None:
    """Errors that we caught on the way to a better one are not what the user's code was handling."""
    context = error.__context__
    while (
        context is not None
        and context is not error.__cause__
        and context.__traceback__ is not None
        and all(_is_hidden(entry.tb_frame) for entry in _entries(context.__traceback__))
    ):
        context = context.__context__
    if context is not error.__context__:
        suppress = error.__suppress_context__
        error.__context__ = context
        error.__suppress_context__ = suppress


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    kept = [entry for entry in _entries(trace) if not _is_hidden(entry.tb_frame)]
    for at, entry in enumerate(kept):
        entry.tb_next = kept[at + 1] if at + 1 < len(kept) else None
    return kept[0] if kept else None


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_hidden(frame: FrameType) -> bool:
    # Generated methods have no file, and the globals of the module that their class is in.
    module = str(frame.f_globals.get("__name__", ""))
    return is_ours(frame.f_code.co_filename) or module == "tessera" or module.startswith("tessera.")


def guard(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """A public function: no frames of ours in its errors, nor in those of a scope it gives, and wrong calls explained.

    `name` is what users call it, where that is not its own.
    """
    if not isinstance(function, FunctionType):
        return function
    unquote_annotations(function)
    if is_guarded(function):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            made = function(*args, **kwargs)
        except Exception as error:
            try:
                raise explain_call(function, args, kwargs, error, name)
            except Exception as explained:
                hide_frames(explained)
                raise
        if made.__class__ is _GeneratorContextManager:
            made.__class__ = _Scope
        # A decorator, or a user's function that one of ours wraps.
        elif made.__class__ is FunctionType and is_ours(made.__code__.co_filename):
            return guard(made)
        return made

    return call


class _Written(str):
    """An annotation as it was written: `help` shows the `repr` of annotations, which for a string has quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def unquote_annotations(function: Callable[..., Any]) -> None:
    """Let `help` and `inspect.signature` show annotations as they are written."""
    annotations = getattr(function, "__annotations__", {})
    annotations.update({name: _Written(text) for name, text in annotations.items() if type(text) is str})


def is_guarded(function: Any) -> bool:
    """Whether a function hides frames itself."""
    return "hide_frames" in function.__code__.co_names


class _Scope(_GeneratorContextManager[Any]):
    """A scope of ours (`with device(...)`), whose errors show no frames of ours."""

    def __enter__(self) -> Any:
        try:
            return super().__enter__()
        except Exception as error:
            hide_frames(error)
            raise

    def __exit__(
        self, typ: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return super().__exit__(typ, value, traceback)
        except Exception as raised:
            hide_frames(raised)
            raise


_GUARDED: set[type[Any]] = set()


def guard_class(cls: C) -> C:
    """A public class, with its methods and operators guarded; also those that it has from base classes of ours."""
    for base in cls.__mro__:
        if base in _GUARDED or not base.__module__.startswith("tessera."):
            continue
        _GUARDED.add(base)
        for name, item in list(vars(base).items()):
            if name.startswith("_") and name not in _DUNDERS:
                continue
            inner: Any = getattr(item, "__func__", None)
            shown = base.__name__ if name in ("__init__", "__new__") else f"{base.__name__}.{name}"
            if isinstance(item, FunctionType):
                setattr(base, name, guard(item, shown))
            elif isinstance(inner, FunctionType):  # a static method, or one of the class
                kind = staticmethod if type(item) is staticmethod else classmethod
                setattr(base, name, kind(guard(inner, shown)))
    return cls


def guard_public(namespace: MutableMapping[str, Any], names: Any) -> None:
    """Guard the public functions and classes of a module, in place; a facade, which has no others, lists them alone."""
    if namespace.get("__all__") is names:
        namespace["__dir__"] = lambda: sorted({*names, *(name for name in namespace if name.startswith("__"))})
    for name in names:
        item = namespace.get(name)
        if isinstance(item, FunctionType):
            namespace[name] = guarded = guard(item)
            # Pickle finds a function where it was defined.
            home = vars(sys.modules[item.__module__])
            if home.get(item.__name__) is item:
                home[item.__name__] = guarded
        elif item is not None:
            cls: type[Any] = item if isinstance(item, type) else type(item)
            # Errors are values here: nothing that they do fails.
            guard_class(cls if not issubclass(cls, BaseException) else object)
