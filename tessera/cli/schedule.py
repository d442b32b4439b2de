"""`tessera schedule export` and `apply`: the plan of a program as a file, and a program compiled by an edited one."""

# ruff: noqa: PLC0415 - what compiles is imported when it is asked for, so that `--help` is quick

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tessera.diagnostics.error import TesseraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tessera.compiler.options import Options
    from tessera.ir.base.tape import Tape

app = typer.Typer(help="The plan of a program as text: export it, edit it, compile by it.", no_args_is_help=True)

_TARGET = "The program, as `module:function` or `file.py:function`."
_SHAPE = "Shape of a parameter without an annotation: `x=64x128`, `x=64x128:bf16`, `params\\[w]=64x128`, `p.bias=128`."
_GPU = "Plan for a GPU, such as sm_90a, that need not be here; else for what the function is compiled for."
Target = Annotated[str, typer.Argument(help=_TARGET, metavar="MODULE:FUNCTION")]
Shapes = Annotated[list[str] | None, typer.Option("--shape", help=_SHAPE, metavar="NAME=SHAPE")]
Sizes = Annotated[list[str] | None, typer.Option("--size", help="Size of a dim that annotations name: `N=1024`.")]
_VALUE = "Python value of a parameter: `causal=True`; `model=@make` calls `make` of the module."
Values = Annotated[list[str] | None, typer.Option("--value", help=_VALUE)]
Architecture = Annotated[str, typer.Option(help=_GPU, metavar="GPU")]
Execute = Annotated[bool, typer.Option("--execute", help="Execute the whole module, not only what the function needs.")]
File = Annotated[str, typer.Argument(help="The file of the plan.", metavar="PLAN")]


@app.command("export")
def export(
    target: Target,
    out: Annotated[str, typer.Option("--out", "--output", "-o", help="The file; without it, standard output.")] = "",
    shape: Shapes = None,
    size: Sizes = None,
    value: Values = None,
    architecture: Architecture = "",
    execute: Execute = False,
) -> None:
    """Write the plan that a program is compiled by: groups, tiles with who chose them, pipelines, launch order.

    Example: `tessera schedule export examples.softmax:rows --size N=1024 --out plan.mlir`
    """
    with _Told("export"):
        from tessera.compiler.plan_text import export_plan, summarize

        tape, options = _find(target, (shape or (), size or (), value or ()), architecture, execute)
        text = export_plan(tape, options)
        if not out:
            typer.echo(text, nl=False)
            return
        Path(out).write_text(text, encoding="utf-8")
        typer.echo(f"{out}: {_count_text(len(summarize(text)), 'group')} of `{target}`")


@app.command("apply")
def apply(
    plan: File,
    target: Target,
    shape: Shapes = None,
    size: Sizes = None,
    value: Values = None,
    architecture: Architecture = "",
    execute: Execute = False,
) -> None:
    """Compile a program by a plan, and say what that has otherwise than the compiler's own.

    The code is kept in the cache: `fn.with_plan(text)` then runs it. A plan that cannot be carried out is refused at
    its line. Example: `tessera schedule apply plan.mlir examples.softmax:rows --size N=1024`
    """
    with _Told("apply", plan):
        from tessera.compiler.compile import lower
        from tessera.compiler.plan_text import apply_plan, code_digest, compare, export_plan, summarize

        _check_order(plan, target)
        text = Path(plan).read_text(encoding="utf-8", errors="replace")
        tape, options = _find(target, (shape or (), size or (), value or ()), architecture, execute)
        lowering = apply_plan(tape, options, text)
        typer.echo(f"{plan}: {_count_text(len(lowering.kernels), 'kernel')}, code {code_digest(lowering)[:16]}")
        # What was compiled, and not the text: what the text leaves out is chosen, and what it says is the plan's.
        done = export_plan(tape, replace(options, plan=text))
        for group in summarize(done):
            typer.echo(f"  {group}")
        is_same = code_digest(lowering) == code_digest(lower(tape, options))
        for line in _verdict(is_same, compare(done, export_plan(tape, options))):
            typer.echo(line)
        _keep(tape, replace(options, plan=text), architecture)


def _check_order(plan: str, target: str) -> None:
    """Raises TargetError where the function comes before the file of the plan."""
    from tessera.cli.arguments import TargetError

    if ":" in plan and not Path(plan).is_file() and (Path(target).is_file() or ":" not in target):
        raise TargetError(
            f"`{plan}` is no file, and `{target}` no function: the plan comes first, as in "
            f"`tessera schedule apply {target} {plan}`"
        )


def _verdict(is_same: bool, changed: Sequence[str]) -> list[str]:
    """What code by a plan is beside that by the compiler's own, and what the two plans differ in."""
    if not changed:
        other = "other code than by the own plan, of the same groups and choices"
        return ["the same code as by the compiler's own plan" if is_same else other]
    says = "other choices than in the own plan, without an effect" if is_same else "other code than by the own plan"
    return [says, *(f"  {line}" for line in changed)]


def _keep(tape: Tape, options: Options, architecture: str) -> None:
    """Compile to machine code, into the cache, where that is for a machine of here."""
    if architecture:
        return
    from tessera.api.compilation import load

    _, origin = load(tape, options)
    typer.echo(f"machine code: {origin.source} (key {origin.key[:16]})")


class _Told:
    """Within it, a mistake of the user's is printed at its line, and ends the command."""

    def __init__(self, command: str, file: str = "") -> None:
        self.command, self.file = command, file

    def __enter__(self) -> None:
        """Nothing to begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from tessera.cli.arguments import TargetError

        if isinstance(error, TargetError | OSError):
            typer.echo(f"tessera schedule {self.command}: {error}", err=True)
            raise typer.Exit(2) from None
        if isinstance(error, TesseraError):
            # A text has no name of its own: its lines are those of the file.
            typer.echo(error.render().replace("<plan>", self.file or "<plan>"), err=True)
            raise typer.Exit(1) from None


def _find(target: str, given: Sequence[Sequence[str]], architecture: str, executes: bool) -> tuple[Tape, Options]:
    """The program of a function for shapes, sizes and values, and the options that it is planned under."""
    from tessera.cli.arguments import Given, Look, looked_at
    from tessera.compiler.backend import backend_for_kind

    function = Look(executes, progress=False).find(target)
    tape, _, _ = looked_at(function, Given(*given))
    options: Options = function.options
    if architecture:
        options = replace(options, backend=backend_for_kind("gpu").name, features=(architecture,))
    return tape, options


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
