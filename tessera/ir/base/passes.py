"""Passes: `Pass`, named by the path of its file, and `Stages`, which runs passes and exit verifiers of stages."""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, NoReturn, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.diagnostics import codes
from tessera.diagnostics.error import CompilationError, InternalError, TesseraError, find_nearest
from tessera.ir.base.compilation import without_collection
from tessera.ir.base.effects import check_order, steps_of
from tessera.ir.base.literal import LiteralError, Reader, is_placeholder, text_of
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.reproducers import write_reproducer
from tessera.ir.base.text import print_module
from tessera.ir.base.types import span_of
from tessera.ir.base.verify import Legality, verify
from tessera.types.frozen import frozen
from tessera.types.settings import Settings

_ROOTS = ("tessera.ir", "tessera.backends")


@frozen
class Pass(ABC):
    """One change of a module. `ir/graph/passes/fold_constants.py` holds `FoldConstants`, named `graph-fold-constants`.

    Fields are its options: what it is told (a machine, a chooser) and what a user may set. Those with a plain default
    can be written in a pipeline's text: `graph-fold-constants{limit = 64}`.
    """

    name: ClassVar[str] = ""
    is_lowering: ClassVar[bool] = False
    """Whether it takes all that passes before it chose as given, which a text need not have."""

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
        close = find_nearest(name, modules)
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


_KINDS = {"int": "an integer", "str": "a text in quotes", "bool": "true or false"}
"""Options that are of one type, and how it is written."""


def _with_options(cls: type[Pass], options: dict[str, Any]) -> Pass:
    known = [field.name for field in fields(cls)]
    for name in options:
        if name not in known:
            raise LiteralError(f"`{cls.name}` has no option `{name}`; it has {known}", 0)
    for name, kind in ((one.name, str(one.type)) for one in fields(cls)):
        if name in options and type(options[name]).__name__ != kind and kind in _KINDS:
            raise LiteralError(f"`{name}` of `{cls.name}` is {_KINDS[kind]}, got {options[name]!r}", 0)
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    if missing and not options.keys() >= set(missing):
        raise LiteralError(f"`{cls.name}` needs {', '.join(missing)}, which text cannot give", 0)
    return cls(**options)


def pipeline_text(passes: Sequence[Pass]) -> str:
    """What `parse_pipeline` reads."""
    return ",".join(one.text for one in passes)


# The runner: it times and dumps, and says whose fault a failure is.

_USER_ERRORS: dict[str, type[CompilationError]] = {
    "graph": codes.GraphVerifyError,
    "schedule": codes.ScheduleError,
    "tile": codes.TileVerifyError,
    "target": codes.TargetVerifyError,
}


@frozen
class Step:
    """One pass that ran: where, for how long, and how many ops it left."""

    stage: str
    name: str
    seconds: float
    ops: int


@frozen
class Snapshot:
    """The text after a pass; the first of a stage is named `input`."""

    stage: str
    name: str
    text: str


Visit: TypeAlias = "tuple[str, Sequence[Pass], Legality | None]"


@dataclass
class Stages:
    """The walk of one module through its stages.

    With `rebuild` (how to make the module again from its tape) the walk is quick: each stage is verified once, at its
    end, and only a failure is walked again, slowly, to find the pass and the text before it. Without, or with
    `TESSERA_VERIFY=1`, every pass is verified and its text kept until the next. `TESSERA_DUMP=dir` writes the text
    after each pass, `TESSERA_TIMING=1` prints a table at `finish`. With `keep_locations` texts say where ops came from.
    With `reads_text` the module is of a text, and no pass but those asked for has run: what a lowering makes of it may
    be more than a machine has, or lack what others choose, and is then refused like the text itself. `observe` is given
    the name of each pass and the module after it. `keep_snapshots` may name the passes of which the text is kept, and
    the entry of a stage as `schedule-input`: to print all of them takes twice as long as to compile.
    """

    rebuild: Callable[[], ModuleOp] | None = None
    keep_snapshots: bool | Collection[str] = False
    keep_locations: bool = False
    reads_text: bool = False
    observe: Callable[[str, ModuleOp], None] | None = None
    steps: list[Step] = field(default_factory=list[Step], init=False)
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot], init=False)
    _history: list[Visit] = field(default_factory=list["Visit"], init=False)

    def __post_init__(self) -> None:
        settings = Settings.from_environment()
        self._dump, self._timing = settings.dump_dir, settings.timing
        self._careful = self.rebuild is None or os.environ.get("TESSERA_VERIFY") == "1"

    def run(
        self,
        stage: str,
        passes: Sequence[Pass],
        module: ModuleOp,
        legality: Legality | None = None,
        *,
        are_verified: bool = False,
    ) -> None:
        """Take the module through a stage, in place; `are_verified` says that its passes verify what they make.

        Raises the stage's verify error when the module is wrong on entering the first stage (the user's mistake),
        InternalError naming the pass when it is wrong after one, and lets through what a pass says to the user.
        """
        if not self._history:
            check_entry(stage, module)
        self._history.append((stage, passes, legality))
        self._keep(stage, "input", module)
        with without_collection():
            for one in passes:
                self._run_pass(stage, one, module)
            self._verify_exit(stage, passes, module, legality, are_verified)

    def _run_pass(self, stage: str, one: Pass, module: ModuleOp) -> None:
        before = print_module(module, locations=True) if self._careful else None
        # By where it is from, as a text may go through passes of all stages as one.
        home = type(one).__module__
        is_of_graph = home.startswith("tessera.ir.graph.") or not home.startswith("tessera.")
        steps = steps_of(module) if self._careful and stage == "graph" and is_of_graph else None
        started = time.perf_counter()
        try:
            one.run(module)
            seconds = time.perf_counter() - started
            if self._careful:
                verify(module)
            if steps is not None:
                check_order(one.name, module, steps)
        except TesseraError:
            raise
        except OpError as error:
            if self.reads_text and one.is_lowering:
                raise refusal(error.op, f"`{one.name}` makes of this: {error.message}", _LOWERING_ADVICE) from error
            raise self._blame(stage, one, before, error) from error
        except Exception as error:
            if self.reads_text and (op := _with_placeholder(module)) is not None:
                advice = "run `graph-resolve-placeholders` before it"
                raise refusal(op, f"`{one.name}` takes no placeholder, and `{op.name}` has one", advice) from error
            raise self._blame(stage, one, before, error) from error
        ops = sum(1 for _ in module.walk()) if self._timing else 0
        self.steps.append(Step(stage, one.name, seconds, ops))
        self._keep(stage, one.name, module)
        if self.observe is not None:
            self.observe(one.name, module)

    def _verify_exit(
        self, stage: str, passes: Sequence[Pass], module: ModuleOp, legality: Legality | None, are_verified: bool
    ) -> None:
        started = time.perf_counter()
        try:
            if self._careful or not are_verified:
                verify(module)
            if legality is not None:
                legality.check(module)
        except OpError as error:
            raise self._blame(stage, passes[-1] if passes else None, None, error) from error
        self.steps.append(Step(stage, "exit", time.perf_counter() - started, 0))

    def _blame(self, stage: str, one: Pass | None, before: str | None, error: Exception) -> InternalError:
        """The error for a failure of ours; a quick walk is walked again to find the pass that did it."""
        if before is None and self.rebuild is not None:
            again = Stages(rebuild=None)
            module = self.rebuild()
            try:
                for past_stage, passes, legality in self._history:
                    again.run(past_stage, passes, module, legality)
            except InternalError as found:
                return found
        name = one.name if one is not None else stage
        message = error.message if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
        if before is None:
            return InternalError(message, where=name)
        command_passes = pipeline_text([one]) if one is not None else ""
        header = _reproducer_header(name, message, [past.text for _, passes, _ in self._history for past in passes])
        path = write_reproducer(name, ".mlir", f"{header}\n{before}")
        command = f"tessera-opt {path} -p '{command_passes}'" if path else ""
        return InternalError(message, where=name, reproducer=str(path or ""), command=command)

    @contextmanager
    def measure(self, stage: str, name: str) -> Generator[None]:
        """Time what is done to a program by other means than a pass."""
        started = time.perf_counter()
        yield
        self.steps.append(Step(stage, name, time.perf_counter() - started, 0))

    def _keep(self, stage: str, name: str, module: ModuleOp) -> None:
        is_kept = self.keep_snapshots
        if not isinstance(is_kept, bool):
            is_kept = (f"{stage}-input" if name == "input" else name) in is_kept
        if not is_kept and self._dump is None:
            return
        text = print_module(module, locations=self.keep_locations)
        if is_kept:
            self.snapshots.append(Snapshot(stage, name, text))
        if self._dump is not None:
            self._dump.mkdir(parents=True, exist_ok=True)
            number = len(list(self._dump.glob("*.mlir")))
            (self._dump / f"{number:03}-{stage}-{name.removeprefix(f'{stage}-')}.mlir").write_text(text)

    def finish(self) -> None:
        """Print the table of times where `TESSERA_TIMING=1` asks for it."""
        if self._timing:
            print(self.timing_table(), file=sys.stderr)

    def timing_table(self) -> str:
        """Milliseconds of every pass, in order, and their sum."""
        rows = [
            f"{step.seconds * 1e3:9.2f} ms  {step.stage:9} {step.name:32} {step.ops or '':>7}" for step in self.steps
        ]
        total = sum(step.seconds for step in self.steps) * 1e3
        return "\n".join([*rows, f"{total:9.2f} ms  in all"])


def check_entry(stage: str, module: ModuleOp) -> None:
    """Verify a module that comes from outside: a failure is the user's, and is shown at its source."""
    try:
        verify(module)
    except OpError as error:
        raise user_error(stage, error) from error


def user_error(stage: str, error: OpError) -> CompilationError:
    """A verifier's failure as an error of the user's, at the op or, where that has no span, the nearest with one."""
    kind = _USER_ERRORS.get(stage, codes.GraphVerifyError)
    span = next(filter(None, map(span_of, _ops_near(error.op))), None)
    return kind(error.message, span=span, fix=error.advice or None)


def _ops_near(op: Operation) -> Iterator[Operation]:
    """An op, those around it, those inside it, then all of its module."""
    at, root = op, op
    while (outer := root.parent_op()) is not None:
        yield root
        root = outer
    yield from at.walk()
    yield from root.walk()


STAGE_OF_DIALECT = {
    "tgraph": "graph",
    "tsched": "schedule",
    "tessera": "schedule",
    "ttile": "tile",
    "ttarget": "target",
}


_LOWERING_ADVICE = "run the passes before it, which choose what fits, or change what the text chooses"


def refusal(op: Operation, message: str, advice: str = "") -> CompilationError:
    """The verify error of an op's stage."""
    return user_error(STAGE_OF_DIALECT.get(op.name.split(".", 1)[0], "graph"), OpError(op, message, advice))


def _with_placeholder(module: ModuleOp) -> Operation | None:
    """The first op of a text with a value that nobody has said yet."""
    found = (op for op in module.walk() for one in op.properties.values() if is_placeholder(getattr(one, "data", None)))
    return next(found, None)


def refuse(op: Operation, message: str, advice: str = "") -> NoReturn:
    """Raise the verify error of an op's stage: it is right by itself, and not what a pass takes."""
    raise refusal(op, message, advice)


def _reproducer_header(name: str, message: str, passes: Sequence[str]) -> str:
    versions = f"tessera {_version('tessera')}, xdsl {_version('xdsl')}, llvmlite {_version('llvmlite')}"
    lines = [
        f"Failed in {name}: {message}",
        f"Pipeline: {','.join(passes)}",
        f"Versions: {versions}, python {platform.python_version()}, {platform.machine()}",
    ]
    return "\n".join(f"// {line}" for text in lines for line in text.splitlines())


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - loads half of `email`

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
