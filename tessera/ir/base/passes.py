"""`Pass`: a frozen dataclass that changes a module; its name is the path of its file, and the folder is the list."""

from __future__ import annotations

import importlib
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.literal import LiteralError, Reader, text_of
from tessera.ir.base.op import SpecOp
from tessera.types.frozen import frozen

_ROOTS = ("tessera.ir", "tessera.backends")


@frozen
class Pass(ABC):
    """One change of a module. `ir/graph/passes/fold_constants.py` holds `FoldConstants`, named `graph-fold-constants`.

    Fields are its options: what it is told (a machine, a chooser) and what a user may set. Those with a plain default
    can be written in a pipeline's text: `graph-fold-constants{limit = 64}`.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.name = pass_name(cls.__module__)

    @abstractmethod
    def run(self, module: ModuleOp) -> None:
        """Change the module in place."""

    @property
    def text(self) -> str:
        """The pass as a pipeline's text names it, options that differ from their defaults included."""
        changed = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.default is not MISSING
            and getattr(self, field.name) != field.default
            # What a compilation gives a pass beside its options (a library, a machine) has no text.
            and isinstance(getattr(self, field.name), bool | int | float | str | tuple)
        }
        return f"{self.name}{text_of(changed)}" if changed else self.name


def pass_name(module: str) -> str:
    """The name of the pass in a file: its stage and the file's name, with dashes.

    >>> pass_name("tessera.ir.graph.passes.fold_constants")
    'graph-fold-constants'
    """
    parts = module.split(".")
    return "-".join((*parts[-3:-2], parts[-1])).replace("_", "-") if "passes" in parts[:-1] else parts[-1]


@frozen
class KernelPass(Pass):
    """A pass over the kernels of a module, one by one; `kernel` is the name of their op."""

    kernel: ClassVar[str] = "ttile.kernel"

    def run(self, module: ModuleOp) -> None:
        for op in list(module.ops):
            if isinstance(op, SpecOp) and op.name == self.kernel:
                self.run_kernel(op)

    @abstractmethod
    def run_kernel(self, kernel: SpecOp) -> None:
        """Change the kernel in place, or raise."""


@lru_cache(maxsize=1)
def pass_modules() -> dict[str, str]:
    """Every pass there is, by name, and the module that holds it; nothing is imported for it but its folder."""
    found: dict[str, str] = {}
    for root in _ROOTS:
        for folder in _pass_folders(root):
            for module in pkgutil.iter_modules(importlib.import_module(folder).__path__):
                path = f"{folder}.{module.name}"
                found[pass_name(path)] = path
    return dict(sorted(found.items()))


def _pass_folders(root: str) -> Iterator[str]:
    for stage in pkgutil.iter_modules(importlib.import_module(root).__path__):
        if stage.ispkg:
            package = importlib.import_module(f"{root}.{stage.name}")
            if any(part.name == "passes" and part.ispkg for part in pkgutil.iter_modules(package.__path__)):
                yield f"{root}.{stage.name}.passes"


def find_pass(name: str) -> type[Pass]:
    """The class of a pass; raises KeyError with the names there are."""
    modules = pass_modules()
    if name not in modules:
        close = get_close_matches(name, modules, 1)
        hint = f", did you mean `{close[0]}`?" if close else ""
        raise KeyError(f"there is no pass `{name}`{hint}; there are {', '.join(modules)}")
    try:
        module = importlib.import_module(modules[name])
    except TypeError as error:
        if "frozen dataclass" not in str(error):
            raise
        raise TypeError(f"decorate the pass of {modules[name]} by `@frozen` of tessera.types.frozen") from error
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Pass) and value.__module__ == module.__name__
    ]
    assert len(own) == 1, f"{modules[name]} must hold one pass, and holds {len(own)}"
    return own[0]


_NAME = re.compile(r"[A-Za-z0-9_-]+")


def parse_pipeline(text: str) -> list[Pass]:
    """The passes of `a,b{option = 1},c`; raises KeyError for a name there is not, ValueError for other mistakes."""
    reader = Reader(text)
    found: list[Pass] = []
    while True:
        name = reader.match(_NAME)
        if name is None:
            raise reader.fail("the name of a pass")
        cls = find_pass(name.group())
        options: dict[str, Any] = reader.entries(lambda _: "any") if reader.sees("{") else {}
        found.append(_with_options(cls, options))
        if not reader.takes(","):
            break
    reader.space()
    if reader.at != len(text):
        raise reader.fail("`,`")
    return found


def _with_options(cls: type[Pass], options: dict[str, Any]) -> Pass:
    known = [field.name for field in fields(cls)]
    for name in options:
        if name not in known:
            raise LiteralError(f"`{cls.name}` has no option `{name}`; it has {known}", 0)
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    if missing and not options.keys() >= set(missing):
        raise LiteralError(f"`{cls.name}` needs {', '.join(missing)}, which text cannot give", 0)
    return cls(**options)


def pipeline_text(passes: Sequence[Pass]) -> str:
    """What `parse_pipeline` reads."""
    return ",".join(one.text for one in passes)
