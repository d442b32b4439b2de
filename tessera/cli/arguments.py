"""What a function is looked at with: the function that a command names, and arguments made up for it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import textwrap
import traceback
import typing
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tessera.api.jit import Jit, jit
from tessera.api.kernel import Kernel
from tessera.api.kv_cache import KVCache
from tessera.cli.module_slice import SLICES, forget, slice_module
from tessera.diagnostics.edit import source_lines
from tessera.diagnostics.error import TesseraError, user_span
from tessera.frontend.annotations import declared_form
from tessera.frontend.pytree import unflatten
from tessera.frontend.trace import TracedTensor
from tessera.ir.base.arrays import numpy_dtype
from tessera.types.annotation import TensorAnnotation
from tessera.types.dtype import BY_NAME, f32
from tessera.types.frozen import frozen

_SHAPE = re.compile(r"(?P<path>[\w.\[\]'\"]+)=(?P<dims>(?:\d+(?:x\d+)*)?)(?::(?P<dtype>\w+))?")
_STEP = re.compile(r"\.(?P<field>[^\W\d]\w*)|\[(?P<index>\d+)\]|\[(?P<quote>['\"]?)(?P<key>[^\W\d]\w*)(?P=quote)\]")
_EXAMPLE = "64x128"
_OWN = f"{Path(__file__).parent.parent}{os.sep}"
"""Where files of Tessera are: what is raised there is shown at the line that called it."""


_MADE = "@"
"""Before the name of what makes a value, as in `--value model=@make_model`."""


@frozen
class _Made:
    """A value that a function of a module makes, or that a name of it is."""

    name: str


class TargetError(Exception):
    """What was asked for is not a function that can be looked at; the message says why."""


@frozen
class Given:
    """What a command line says of arguments: shapes of tensors, sizes of named dims, Python values."""

    shapes: Sequence[str] = ()
    sizes: Sequence[str] = ()
    values: Sequence[str] = ()


@dataclass
class Arguments:
    """Arguments by name, and the size of each named dim; `chosen` are those that nobody asked for."""

    by_name: dict[str, Any] = field(default_factory=dict[str, Any])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    chosen: dict[str, int] = field(default_factory=dict[str, int])

    def size(self, name: str) -> int:
        """The size of a dim: different ones for different names, so that nothing is equal by accident."""
        if name not in self.sizes:
            self.sizes[name] = self.chosen[name] = 16 * (len(self.sizes) + 1)
        return self.sizes[name]

    def example(self, annotation: TensorAnnotation) -> Any:
        """A tensor, or a cache, as it is declared."""
        shape = [dim.evaluate({name: self.size(name) for name in dim.symbols}) for dim in annotation.dims]
        dtype = annotation.dtype or f32
        if annotation.head == "KVCache":
            batch, heads, capacity, head_dim = shape
            return KVCache.empty(batch, heads, capacity, head_dim, dtype)
        return np.zeros(shape, numpy_dtype(dtype))


@frozen
class Look:
    """How a command goes about its work: whether it executes modules whole, and whether it says what it is at.

    Progress goes to standard error, where that is a terminal or it is asked for.
    """

    executes: bool = False
    progress: bool | None = None

    def say(self, message: str) -> None:
        """Print what is being done."""
        if sys.stderr.isatty() if self.progress is None else self.progress:
            print(f"tessera: {message}", file=sys.stderr, flush=True)

    def find(self, target: str) -> Jit | Kernel:
        """The function or kernel that `module:function` or `file.py:function` names."""
        self.say(f"importing {target.partition(':')[0]}")
        function = find(target, executes=self.executes)
        found = SLICES.get(_module_name(target))
        if found is not None and found.skipped_lines:
            lines = ", ".join(map(str, found.skipped_lines[:8])) + ", ..." * (len(found.skipped_lines) > 8)
            noun = "line" if len(found.skipped_lines) == 1 else "lines"
            self.say(f"not executed of {Path(found.file).name}: {noun} {lines} (--execute executes all)")
        return function


def _module_name(target: str) -> str:
    module = target.partition(":")[0]
    return Path(module).stem if module.endswith(".py") else module


def load(target: str, *, executes: bool = False) -> Any:
    """The object that `module:name` names, whatever it is.

    Of the module only what the name needs is executed (`module_slice.py`), or with `executes` all of it.
    """
    module, _, name = target.partition(":")
    is_file = module.endswith(".py")
    if not name or not (is_file or all(part.isidentifier() for part in module.split("."))):
        raise TargetError(f"`{target}` must be module:function, such as `model:forward`")
    if is_file and not Path(module).is_file():
        raise TargetError(f"there is no file `{module}`")
    sys.path.insert(0, str(Path(module).parent) if is_file else "")
    module = _module_name(target)
    try:
        found: Any = importlib.import_module(module) if executes else _import_slice(module, name.split(".")[0])
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, SyntaxError) as error:
        raise TargetError(str(error)) from error
    except AttributeError as error:
        raise TargetError(f"{error}{_functions_of(sys.modules.get(module))}") from error
    return found


def find(target: str, *, executes: bool = False) -> Jit | Kernel:
    """The function or kernel that `module:function` names, jitted if it is neither."""
    found = load(target, executes=executes)
    module, name = _module_name(target), target.partition(":")[2]
    if isinstance(found, Jit | Kernel):
        return found
    if isinstance(found, type):
        raise TargetError(
            f"`{target}` is a class, and calling it makes an object; put one into the module, as in "
            f"`{name.lower()} = {name}(...)`, and name that or a method of it: `{module}:{name.lower()}`"
        )
    if not callable(found):
        raise TargetError(f"`{target}` is of type {type(found).__name__}, not a function")
    return jit(found)


def _import_slice(module: str, name: str) -> ModuleType:
    """A module with what one of its names needs; raises TargetError for what that itself raises."""
    spec = importlib.util.find_spec(module)
    found = None if spec is None else slice_module(module, spec)
    if found is None:
        return importlib.import_module(module)
    try:
        found.provide(name)
    except (ImportError, TesseraError):
        forget(found)
        raise
    except Exception as error:
        forget(found)
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == found.file]
        line = f":{frames[-1].lineno}" if frames else ""
        raise TargetError(
            f"{Path(found.file).name}{line} raised {type(error).__name__}: {error}; only what `{name}` needs was "
            "executed, and --execute executes the whole module"
        ) from error
    return found.module


def _functions_of(module: Any) -> str:
    """Which functions of a module can be looked at, as the end of a sentence."""
    sliced = SLICES.get(getattr(module, "__name__", ""))
    own = (
        sliced.functions
        if sliced is not None
        else [
            name
            for name, value in vars(module or object).items()
            if not name.startswith("_")
            and (isinstance(value, Jit | Kernel) or inspect.isfunction(value))
            and getattr(value, "__module__", None) == getattr(module, "__name__", "")
        ]
    )
    return f"; it has {', '.join(own)}" if own else ""


def arguments_for(function: Jit | Kernel, given: Given) -> Arguments:
    """An argument for each parameter: as given, or as it is declared, or its default.

    Raises TargetError for a parameter of which none is known, and for what is given to none.
    """
    shapes, values = _shapes(given.shapes, function), dict(_value(text) for text in given.values)
    arguments = Arguments(sizes=dict(_size(text) for text in given.sizes))
    asked = set(arguments.sizes)
    names: set[str] = set()
    for parameter, annotation in _declarations(function):
        name = parameter.name
        names |= _symbols(annotation)
        if name in values:
            value = values.pop(name)
            arguments.by_name[name] = _make_by_name(function, name, value) if isinstance(value, _Made) else value
        elif name in shapes:
            arguments.by_name[name] = _build(shapes.pop(name))
        elif (made := _make(annotation, arguments)) is not None:
            arguments.by_name[name] = made
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise TargetError(f"nothing says what `{name}` is; annotate it, or give {_suggest(function, parameter)}")
    unknown = sorted({*shapes, *values})
    if unknown:
        raise TargetError(f"the function has no parameter `{unknown[0]}`")
    if asked - names:
        raise TargetError(f"no annotation names a dim `{min(asked - names)}`; named are {', '.join(sorted(names))}")
    return arguments


def _make_by_name(function: Jit | Kernel, parameter: str, made: _Made) -> Any:
    """What a name stands for, called where it can be: of the function's module, or of another as `module:name`.

    So a function of modules, of optimizer states and of whatever else no shape describes is looked at.
    """
    home = getattr(getattr(function, "function", function), "__module__", "")
    module, name = made.name.split(":", 1) if ":" in made.name else (home, made.name)
    option = f"`--value {parameter}={_MADE}{made.name}`"
    if not name or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise TargetError(f"{option} names no function; write {parameter}={_MADE}make, or {_MADE}module:make")
    try:
        found: Any = _import_slice(module, name.split(".")[0])
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise TargetError(f"{option}: {error}") from error
    except AttributeError as error:
        raise TargetError(f"{option}: {error}{_functions_of(sys.modules.get(module))}") from error
    if not inspect.isroutine(found) and not isinstance(found, type):
        return found  # an object, and a module of layers can be called as well
    missing = [
        one.name
        for one in inspect.signature(found).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if missing:
        raise TargetError(
            f"{option}: `{name}` needs `{missing[0]}`, and is called without arguments; write a function that takes "
            f"none, as in `def make_{parameter}(): return {name}(...)`"
        )
    try:
        return found()
    except TesseraError:
        raise
    except Exception as error:
        raise TargetError(f"{option}: `{name}()` raised {type(error).__name__}: {error}") from error


def _declarations(function: Jit | Kernel) -> Iterator[tuple[inspect.Parameter, Any]]:
    """The parameters of a call, and what each is declared to be where that says something of tensors."""
    if isinstance(function, Kernel):
        known = {one.name: one.annotation for one in function.definition.inputs}
        yield from ((item, known.get(name)) for name, item in function.signature.parameters.items())
    else:
        for parameter in function.parameters:
            yield function.python_signature.parameters[parameter.name], parameter.annotation


def _symbols(annotation: Any) -> set[str]:
    if isinstance(annotation, TensorAnnotation):
        return {name for dim in annotation.dims for name in dim.symbols}
    form = declared_form(_element(annotation))
    return set() if form is None else {name for leaf in form[1] for dim in leaf.dims for name in dim.symbols}


def _element(annotation: Any) -> Any:
    """What a list is a list of; every other annotation is itself."""
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else annotation


def _make(annotation: Any, arguments: Arguments) -> Any:
    """A value as an annotation declares it, a list with one element; None where it does not say enough."""
    if isinstance(annotation, TensorAnnotation):
        return arguments.example(annotation)
    form = declared_form(_element(annotation))
    if form is None:
        return None
    value = unflatten(form[0], [arguments.example(leaf) for leaf in form[1]])
    return [value] if typing.get_origin(annotation) is list else value


def _suggest(function: Jit | Kernel, parameter: inspect.Parameter) -> str:
    """What to type: a shape for each part of the parameter that the source takes by name, or one for all of it."""
    name = parameter.name
    written = str(parameter.annotation)
    if written in ("int", "float", "bool", "str"):
        return f"--value {name}=..."
    target = getattr(function, "function", None)
    if _is_called(target, name):
        return f"what makes it: --value {name}={_MADE}make_{name}, with `def make_{name}():` in the module"
    head = written.split("[")[0].rsplit(".", 1)[-1].lower()
    first = {"dict": "[key]", "mapping": "[key]", "list": "[0]", "tuple": "[0]", "sequence": "[0]"}
    parts = [part for part in _parts_in_source(target, name) if re.search(r"[^\W\d]", part)]
    parts = parts or [first.get(head, "")]
    return " ".join(f"--shape '{name}{part}={_EXAMPLE}'" if part else f"--shape {name}={_EXAMPLE}" for part in parts)


def _is_called(function: Any, name: str) -> bool:
    """Whether a function's own source calls a parameter, as it does a module of layers."""
    try:
        tree = ast.parse(textwrap.dedent("".join(source_lines(function)[0])))
    except SyntaxError:
        return False
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(one, ast.Name) and one.id == name for one in calls)


def _parts_in_source(function: Any, name: str) -> list[str]:
    """The parts that a function's own source takes of a parameter, in order: `params["w"]` is `[w]`.

    Loops over it are followed: of `for layer in params: x @ layer["w"]` it is `[0][w]`.
    """
    try:
        tree = ast.parse(textwrap.dedent("".join(source_lines(function)[0])))
    except SyntaxError:
        return []
    paths = {name: ""}
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            _follow(node.target, node.iter, paths)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript | ast.Attribute)]
    nodes.sort(key=lambda node: (node.lineno, node.end_col_offset or 0))
    found = [path for node in nodes if (path := _path_of(node, paths))]
    unique = list(dict.fromkeys(found))
    return [path for path in unique if not any(other != path and other.startswith(path) for other in unique)]


def _follow(target: ast.expr, value: ast.expr, paths: dict[str, str]) -> None:
    """Note what the names of a loop stand for: the first item of what it is over."""
    match target, value:
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[given]):
            _follow(inner, given, paths)
        case _, _ if (path := _path_of(value, paths)) is not None:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            ends = [f"[{at}]" for at in range(len(names))] if isinstance(target, ast.Tuple) else [""]
            paths |= {
                one.id: f"{path}[0]{end}" for one, end in zip(names, ends, strict=True) if isinstance(one, ast.Name)
            }
        case _:
            return


_OF_TENSORS = {*dir(TracedTensor), "items", "keys", "values", "get"}


def _path_of(node: ast.expr, paths: Mapping[str, str]) -> str | None:
    """The part of a parameter that an expression is; None where it is none."""
    match node:
        case ast.Name(id=name):
            return paths.get(name)
        case ast.Attribute(value=inner, attr=field) if field not in _OF_TENSORS:
            base = _path_of(inner, paths)
            return None if base is None else f"{base}.{field}"
        case ast.Subscript(value=inner, slice=index):
            base = _path_of(inner, paths)
            match index:
                case _ if base is None:
                    return None
                case ast.Slice():
                    return base
                case ast.Constant(value=str(key)) if key.isidentifier():
                    return f"{base}[{key}]"
                case ast.Constant(value=int(number)):
                    return f"{base}[{number}]"
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
                    return f"{base}[0]"
                case _:
                    return None
        case _:
            return None


def _shapes(texts: Sequence[str], function: Jit | Kernel) -> dict[str, dict[tuple[tuple[str, Any], ...], Any]]:
    """Of each parameter, its tensors by the steps that lead to them; none lead to the parameter itself."""
    found: dict[str, dict[tuple[tuple[str, Any], ...], Any]] = {}
    for text in texts:
        match = _SHAPE.fullmatch(text)
        if match is None or (match["dtype"] or "f32") not in BY_NAME:
            raise TargetError(f"`{text}` is no shape; write name={_EXAMPLE}, or name={_EXAMPLE}:bf16")
        name = re.match(r"\w*", match["path"])
        path = match["path"][len(name[0]) if name else 0 :]
        steps = tuple(_steps(path, text))
        keys = "".join(_parts_in_source(getattr(function, "function", None), name[0])) if name else ""
        # `params.w` is what a shell takes without quotes: it is the key of a dict where the source takes that.
        steps = tuple(("key" if kind == "field" and f"[{one}]" in keys else kind, one) for kind, one in steps)
        dims = [int(dim) for dim in match["dims"].split("x") if dim]
        array = np.zeros(dims, numpy_dtype(BY_NAME[match["dtype"] or "f32"]))
        found.setdefault(name[0] if name else "", {})[steps] = array
    return found


def _steps(path: str, text: str) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise TargetError(
                f"`{text}` names no part; write `params[w]={_EXAMPLE}`, `layers[0]=...` or `p.weight=...`"
            )
        kind = step.lastgroup if step.lastgroup != "quote" else "key"
        value = step["field"] or step["key"] or int(step["index"])
        yield str(kind), value
        at = step.end()


def _build(parts: Mapping[tuple[tuple[str, Any], ...], Any]) -> Any:
    """The value whose parts are given: dicts for keys, lists for numbers, named tuples for fields."""
    if () in parts:
        if len(parts) > 1:
            raise TargetError("a parameter is one tensor or has parts, not both")
        return parts[()]
    inner: dict[tuple[str, Any], dict[tuple[tuple[str, Any], ...], Any]] = {}
    for (first, *tail), array in parts.items():
        inner.setdefault(first, {})[tuple(tail)] = array
    kinds = {kind for kind, _ in inner}
    if len(kinds) > 1:
        raise TargetError("the parts of one container are all keys, all numbers or all fields")
    children = {key: _build(tails) for (_, key), tails in inner.items()}
    if kinds == {"key"}:
        return children
    if kinds == {"index"}:
        if sorted(children) != list(range(len(children))):
            raise TargetError(f"the parts of a list are counted from 0 without gaps, got {sorted(children)}")
        return [children[number] for number in sorted(children)]
    fields: Any = namedtuple("Parts", list(children))  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]
    return fields(**children)


def _size(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"([^\W\d]\w*)=(\d+)", text)
    if match is None:
        raise TargetError(f"`{text}` is no size of a dim; write N=1024")
    return match[1], int(match[2])


def _value(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise TargetError(f"`{text}` is no value of a parameter; write causal=True")
    if value.startswith(_MADE):
        return name, _Made(value.removeprefix(_MADE))
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # a text without its quotes, which shells take away


def looked_at(function: Jit | Kernel, given: Given) -> tuple[Any, str, dict[str, int]]:
    """The function as a tape, what there is to say of the sizes it has there, and the sizes that were asked for.

    What its module called already, and nothing on the command line describes, is taken as it was called last.
    """
    try:
        arguments = arguments_for(function, given)
    except TargetError:
        if given != Given() or not function.cache_info().size:
            raise
        return function.trace().tape, "looked at as it was called last", {}
    asked = {name: size for name, size in arguments.sizes.items() if name not in arguments.chosen}
    return trace_call(function, arguments), sizes_text(function, arguments), asked


def trace_call(function: Jit | Kernel, arguments: Arguments) -> Any:
    """The function as a tape, for such arguments."""
    positional, named = arrange(function, arguments)
    return call_described(lambda: function.trace(*positional, **named).tape)


def arrange(function: Jit | Kernel, arguments: Arguments) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as a call has them, by position and by name."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter, _ in _declarations(function):
        if parameter.name in arguments.by_name:
            value = arguments.by_name[parameter.name]
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
    return positional, named


def call_described(work: Callable[[], Any]) -> Any:
    """What `work` gives; raises TargetError for what the function itself raises, with what to write.

    An error that is about the call as a whole has no span: its line would be of the command.
    """
    try:
        return work()
    except TesseraError as error:
        if error.span is not None and error.span == user_span():
            raise error.at(None) from error
        raise
    except Exception as error:
        raise TargetError(_describe_raised(error)) from error


def _describe_raised(error: Exception) -> str:
    """What the function itself raised, where, and which part of its arguments nobody described."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OWN)]
    location = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    message = f"the function raised {type(error).__name__}{location}: {error}"
    if not isinstance(error, KeyError | AttributeError | IndexError):
        return message
    missing = f"[{error.args[0]}]" if isinstance(error, KeyError) else f".{getattr(error, 'name', None) or 'part'}"
    return f"{message}; if that is a part of a parameter, say what it is, as in --shape 'params{missing}=64x128'"


def sizes_text(function: Jit | Kernel, arguments: Arguments) -> str:
    """Which sizes were made up, where they matter: a kernel takes some of them as numbers."""
    if not isinstance(function, Kernel) or not arguments.chosen:
        return ""
    sizes = ", ".join(f"{name} = {size}" for name, size in arguments.chosen.items())
    return f"looked at with {sizes}; for others, --size {next(reversed(arguments.chosen))}=1024"
