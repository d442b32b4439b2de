"""Plans that were tuned before: whose they are, and the code of a program under the one that is kept for it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from tessera.compiler.backend import manifest_of
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TuningError
from tessera.ir.base.compilation import knob_class
from tessera.ir.base.tape import POLICY, Tape, tape_hash
from tessera.types.settings import Settings, cache_location

if TYPE_CHECKING:
    from tessera.tuner.fallback import SafePlans
    from tessera.tuner.records import Plan, Signature

T = TypeVar("T")

FOLDER = "tuning"
"""The folder of the database, below that of the disk cache."""


def has_plans(tape: Tape | None = None) -> bool:
    """Whether anything was ever tuned by this user, or a plan is shipped for a program: else nobody pays for a look."""
    is_tuned = os.path.isdir(os.path.join(cache_location()[0], FOLDER))
    return is_tuned or (tape is not None and f"program_{tape_hash(tape)[:16]}" in _shipped_programs())


@cache
def _shipped_programs() -> frozenset[str]:
    """The names of programs that profiles of the package have plans for, by a file that takes nothing to read."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(package, "tuner", "profiles", "programs.txt"), encoding="utf-8") as file:
        return frozenset(file.read().split())


@cache
def _plans_of(path: str) -> SafePlans:
    from tessera.tuner.database import Database, default_database  # noqa: PLC0415 - sqlite, for few
    from tessera.tuner.fallback import SafePlans  # noqa: PLC0415

    return SafePlans(default_database() if path else Database(None))


def stored_plans() -> SafePlans:
    """The plans of this user's database, of which those that were found wrong are not given again.

    For who never tuned anything no database is made: there are those that are shipped.
    """
    return _plans_of(cache_location()[0] if has_plans() else "")


def forget_plans() -> None:
    """Look at all stored plans as if for the first time: those that were found wrong too."""
    _plans_of.cache_clear()


def program_signature(tape: Tape, options: Options, sizes: Mapping[str, int] | None = None) -> Signature:
    """Whose plan that of a whole program is: with `sizes`, of a call with them, its symbolic dims by their buckets.

    Without them it is that of the program's code, which serves every size: its plan is the one that the verdicts of
    all buckets agree on (`Database.lookup_shared`). Of a program without symbolic dims both are the same.
    """
    texts = _bucket_texts(tape, sizes) if sizes is not None else _every_text(tape)
    return signature_of(f"program_{tape_hash(tape)[:16]}", texts, tape, options)


def _every_text(tape: Tape) -> list[list[str]]:
    from tessera.tuner.shapes import EVERY_SIZE  # noqa: PLC0415 - see `_plans_of`

    shapes = [tape.types[value].shape for value in tape.inputs]
    return [[EVERY_SIZE if dim.symbols else str(dim) for dim in shape] for shape in shapes]


def group_signature(name: str, tape: Tape, sizes: Mapping[str, int], options: Options) -> Signature:
    """Whose plan that of a fusion group is: its body by its content, symbolic sizes by their buckets."""
    return signature_of(name, _bucket_texts(tape, sizes), tape, options)


def _bucket_texts(tape: Tape, sizes: Mapping[str, int]) -> list[list[str]]:
    from tessera.tuner.shapes import shape_signature  # noqa: PLC0415 - see `_plans_of`

    texts: list[list[str]] = []
    for value in tape.inputs:
        dims = tape.types[value].shape
        values = [dim.evaluate({name: sizes[name] for name in dim.symbols}) for dim in dims]
        symbolic = [axis for axis, dim in enumerate(dims) if dim.symbols]
        texts.append([shape_signature(values, symbolic)])
    return texts


def signature_of(name: str, shapes: Sequence[Sequence[str]], tape: Tape, options: Options) -> Signature:
    """A signature on this machine, by this compiler, under the policy of a program and the user's own options."""
    from tessera.runtime.ranks import world  # noqa: PLC0415 - see `_plans_of`
    from tessera.tuner.records import Signature  # noqa: PLC0415

    dtypes = dict.fromkeys(str(tape.types[value].dtype) for value in tape.inputs)
    policy = f"{sorted(tape.promises.get(POLICY, {}).items())} {replace(options, tuned=()).text}"
    ranks = world.size()
    return Signature(
        name,
        ";".join("x".join(shape) for shape in shapes),
        ",".join(dtypes),
        f"ranks{ranks}" if ranks > 1 else "",
        architecture(options),
        hashlib.sha256(policy.encode()).hexdigest()[:16],
        runtime_text(options),
    )


def architecture(options: Options) -> str:
    """The machine that code is for and measured on: a GPU by its architecture, a CPU by all that it can do.

    Of a CPU the instruction set stands in front of that, as in `cpu-avx512-1a2b3c4d`: shipped plans are for that.
    """
    from tessera.api.compilation import device_of, machine_text  # noqa: PLC0415 - it imports this

    manifest = manifest_of(options.backend)
    if manifest.asks_device:
        return str(device_of(manifest).architecture())
    text = machine_text()
    return f"{manifest.name}-{instruction_set(text)}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


_SETS = (("amx", "tiles: True"), ("avx512", " avx512f"), ("avx2", " avx2"), ("sve", " sve"), ("neon", " asimd"))
"""Instruction sets, the best first, by what says in the text of a machine that it has them."""


def instruction_set(machine: str) -> str:
    """The best instruction set of a machine by its text; its kind where it has none of those that are known.

    >>> instruction_set("x86_64 flags: fma avx2"), instruction_set("riscv64")
    ('avx2', 'riscv64')
    """
    return next((name for name, sign in _SETS if sign in machine), machine.split(maxsplit=1)[0])


def runtime_text(options: Options) -> str:
    """A hash of driver, runtime and compiler."""
    from tessera.api.compilation import compiler_text  # noqa: PLC0415 - it imports this
    from tessera.tuner.records import runtime_hash  # noqa: PLC0415 - see `_plans_of`

    parts = [compiler_text(), str(Settings.from_environment().threads)]
    if manifest_of(options.backend).asks_device:
        from tessera.runtime.devices.cuda.driver import driver  # noqa: PLC0415 - for a GPU alone

        parts.append(str(driver().version))
    return runtime_hash(*parts)


def load_under_plan(
    tape: Tape, options: Options, make: Callable[[Options], T], arithmetic: Callable[[Options], Mapping[str, int]]
) -> T:
    """What `make` gives under the plan that is kept for a program; under the safe one where there is none that is good.

    A plan that no longer fits the compiler, or whose code computes otherwise than that of the safe plan (a file that
    somebody wrote), is left, and said so once.
    """

    def compile_plan(plan: Plan) -> T:
        numeric = [name for name, _ in plan.choices if knob_class(name) == "numeric"]
        if numeric:
            raise TuningError(f"the plan that is kept changes bits: it chooses `{numeric[0]}`", fix="tune again")
        chosen = replace(options, tuned=plan.choices)
        made = make(chosen)
        if plan.choices and arithmetic(chosen) != arithmetic(options):
            from tessera.compiler.report import differences  # noqa: PLC0415 - it needs xDSL

            found = differences(arithmetic(options), arithmetic(chosen))
            raise TuningError(f"the plan that is kept changes bits: {found}", fix="tune again")
        return made

    return stored_plans().compile(program_signature(tape, options), compile_plan)[0]


def options_under_plan(tape: Tape, options: Options) -> Options:
    """The options that a program is compiled with: under the plan that is kept for it, where there is one."""
    if options.tuned or not has_plans(tape):
        return options
    return replace(options, tuned=stored_plans().plan_for(program_signature(tape, options)).choices)
