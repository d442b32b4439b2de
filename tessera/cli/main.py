"""The `tessera` command: each subcommand imports what it needs when it is asked for, so `--help` is quick."""

# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tessera.cli.schedule import app as schedule_app
from tessera.diagnostics.error import find_nearest


class Command(TyperCommand):
    """A command that answers an option which it does not have with the one that is meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            wrong: str | None = getattr(error, "option_name", None)
            if type(error).__name__ == "NoSuchOption" and wrong is not None:  # Typer brings its own click
                own = [name for one in self.params for name in one.opts if name.startswith("--")]
                meant = _OTHER_OPTIONS.get(wrong, "")
                near = [meant] if meant in own else find_nearest(wrong, own, cutoff=0.5)
                vars(error)["possibilities"] = near or [*own, "--help"]
            raise


_OTHER_OPTIONS = {
    **dict.fromkeys(("--html", "--out", "--page", "--file", "-o"), "--output"),
    **dict.fromkeys(("--arch", "--gpu", "--sm", "--target", "--device", "--backend"), "--architecture"),
    **dict.fromkeys(("--dim", "--dims", "-n"), "--size"),
    **dict.fromkeys(("--arg", "--args", "--input"), "--value"),
    **dict.fromkeys(("--verbose", "-v"), "--progress"),
}
"""What other tools call options."""

app = typer.Typer(
    name="tessera",
    help="Tessera: a tile-first language and optimizing compiler for deep learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


@app.callback()
def _read_options(
    _: Annotated[bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version)] = False,
) -> None:
    """Tessera: a tile-first language and optimizing compiler for deep learning."""


_TARGET = "What to look at, as `module:function` or `file.py:function`: a jitted function, a kernel or a plain one."
_TUNED = "What to tune, as `module:function` or `file.py:function`: a jitted function; kernels have `@kernel.autotune`."
_EXECUTE = "Execute the whole module; else only what the function needs of it, and no top-level work, is."
_PROGRESS = "Whether to say on standard error what is being done."
_SHAPE = "Shape of a parameter without an annotation: `x=64x128`, `x=64x128:bf16`, `params\\[w]=64x128`, `p.bias=128`."
_SIZE = "Size of a dim that annotations name: `N=1024`."
_VALUE = "Python value of a parameter: `causal=True`; `model=@make` calls `make` of the module."
Target = Annotated[str, typer.Argument(help=_TARGET, metavar="MODULE:FUNCTION")]
Shapes = Annotated[list[str] | None, typer.Option("--shape", help=_SHAPE, metavar="NAME=SHAPE")]
Sizes = Annotated[list[str] | None, typer.Option("--size", help=_SIZE, metavar="DIM=NUMBER")]
Execute = Annotated[bool, typer.Option("--execute", help=_EXECUTE)]
Progress = Annotated[bool, typer.Option("--progress/--quiet", help=_PROGRESS)]
Values = Annotated[list[str] | None, typer.Option("--value", help=_VALUE, metavar="NAME=VALUE")]


@app.command(cls=Command)
def explain(
    code: Annotated[
        str,
        typer.Argument(
            help="An error code or class, such as T0101 or ShapeError; without one, all are listed.",
            metavar="[CODE]",
            show_default=False,
        ),
    ] = "",
    list_all: Annotated[bool, typer.Option("--list", help="List every code with its one-line meaning.")] = False,
) -> None:
    """Explain an error: the rule, a program that breaks it, and the fix."""
    from rich.console import Console
    from rich.markdown import Markdown

    from tessera.diagnostics.codes import all_codes
    from tessera.diagnostics.codes import explain as page_of

    if list_all or not code:
        for name, cls in all_codes().items():
            print(f"{name}  {cls.__name__:<24}{(cls.__doc__ or '').splitlines()[0]}")
        return
    try:
        page = page_of(code)
    except KeyError as error:
        Console(stderr=True, highlight=False).print(f"error: {error.args[0]}", markup=False)
        raise typer.Exit(1) from None
    console = Console()
    if console.is_terminal:
        console.print(Markdown(page))
    else:
        print(page, end="")


@app.command(cls=Command)
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, to paste into a bug report.")] = False,
) -> None:
    """Say what this machine can do, and which parts of Tessera can use it."""
    from tessera.cli.doctor import show

    raise typer.Exit(show(as_json=as_json))


@app.command(cls=Command)
def inspect(
    target: Target,
    shape: Shapes = None,
    size: Sizes = None,
    value: Values = None,
    output: Annotated[str, typer.Option(help="The file that the page is written to.", metavar="FILE")] = "inspect.html",
    rows: Annotated[int, typer.Option(help="Most lines of a cell in the terminal; the page has all.")] = 24,
    architecture: Annotated[str, typer.Option(help="The GPU of PTX and occupancy; `none` for neither.")] = "sm_90a",
    execute: Execute = False,
    progress: Progress = True,
) -> None:
    """Show a function at all four levels of IR, side by side.

    Also writes a page where a click on a line lights up what it came from and became, with the cost of each kernel, its
    LLVM and its PTX. Example: `tessera inspect examples.softmax:by_hand`
    """
    from tessera.cli.arguments import Given, Look
    from tessera.cli.show import show_levels

    given, gpu = Given(shape or (), size or (), value or ()), "" if architecture == "none" else architecture
    raise typer.Exit(show_levels(target, given, output, rows, gpu, Look(execute, progress)))


@app.command(cls=Command)
def profile(
    target: Target,
    shape: Shapes = None,
    size: Sizes = None,
    value: Values = None,
    output: Annotated[str, typer.Option(help="The folder that files are written to.", metavar="FOLDER")] = "profile",
    execute: Execute = False,
    progress: Progress = True,
) -> None:
    """Run a function, and show where its time and memory went.

    Prints each kernel with its share of the roofline, and writes a page, a trace for Perfetto, tables and a flame
    graph. Example: `tessera profile examples.softmax:by_hand --size N=1024`
    """
    from tessera.cli.arguments import Given, Look
    from tessera.cli.show import show_profile

    given = Given(shape or (), size or (), value or ())
    raise typer.Exit(show_profile(target, given, output, Look(execute, progress)))


@app.command(cls=Command)
def tune(
    target: Annotated[str, typer.Argument(help=_TUNED, metavar="[MODULE:FUNCTION]", show_default=False)] = "",
    shape: Shapes = None,
    size: Sizes = None,
    value: Values = None,
    budget: Annotated[float, typer.Option(help="Seconds that it takes at most.", metavar="SECONDS")] = 60.0,
    mode: Annotated[str, typer.Option(help="exhaustive, random, hyperband, evolutionary or hybrid.")] = "hybrid",
    threshold: Annotated[float, typer.Option(help="By how much a plan has to be faster: 0.07 is 7 %.")] = 0.07,
    output: Annotated[str, typer.Option(help="The folder that reports are written to.", metavar="FOLDER")] = "tuning",
    retune: Annotated[bool, typer.Option("--again", help="Measure what was tuned before, too.")] = False,
    export: Annotated[str, typer.Option(help="Write all plans that are kept to a file.", metavar="FILE")] = "",
    imported: Annotated[str, typer.Option("--import", help="Keep the plans of a file.", metavar="FILE")] = "",
    execute: Execute = False,
    progress: Progress = True,
) -> None:
    """Measure other plans for a function, and keep the one that pays: the same bits, in less time.

    Ctrl-C keeps the best so far. Later calls, in any process, use what is kept and measure nothing.
    Example: `tessera tune examples.softmax:by_hand --size N=1024 --budget 60`
    """
    from tessera.cli.arguments import Given, Look
    from tessera.cli.tune import Settings, exchange, show_tuning

    if export or imported or not target:
        raise typer.Exit(exchange(target, export, imported))
    given, settings = Given(shape or (), size or (), value or ()), Settings(mode, budget, threshold, output, retune)
    raise typer.Exit(show_tuning(target, given, settings, Look(execute, progress)))


@app.command(cls=Command)
def lint(
    target: Target,
    shape: Shapes = None,
    size: Sizes = None,
    value: Values = None,
    architecture: Annotated[str, typer.Option(help="The GPU to compile for; none need be here.")] = "sm_90a",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    execute: Execute = False,
    progress: Progress = True,
) -> None:
    """Say what each kernel takes of a GPU, and where it waits.

    Registers, shared memory, occupancy, bank conflicts, the roofline that bounds it; no GPU is needed.
    Example: `tessera lint examples.softmax:rows --size N=1024`
    """
    from tessera.cli.arguments import Given, Look
    from tessera.cli.show import show_lint

    given, look = Given(shape or (), size or (), value or ()), Look(execute, progress and not as_json)
    raise typer.Exit(show_lint(target, given, architecture, as_json=as_json, look=look))


_PLANNED = (
    "What to plan: a shipped model (`llama-3-70b`), a file of numbers (`model.toml`), or `module:name` of an `nn` "
    "model, of a function that makes one, or of its `GPTConfig`; no weights are allocated for the latter two."
)


@app.command(cls=Command)
def plan(
    model: Annotated[str, typer.Argument(help=_PLANNED, metavar="MODEL")],
    topology: Annotated[
        str, typer.Option(help="A topology file, or a shipped one: h100, h200, laptop.", metavar="FILE")
    ] = "h100",
    mesh: Annotated[str, typer.Option(help="Sizes of mesh axes; without it, all are searched.", metavar="AXES")] = "",
    ranks: Annotated[int, typer.Option(help="Devices that a search divides; all of the topology where 0.")] = 0,
    batch: Annotated[int, typer.Option(help="Sequences of a step, of all ranks.")] = 0,
    microbatch: Annotated[int, typer.Option(help="Sequences of one forward.")] = 1,
    sequence: Annotated[int, typer.Option(help="Tokens of a sequence; those of the model where 0.")] = 0,
    schedule: Annotated[str, typer.Option(help="1f1b or interleaved.")] = "1f1b",
    chunks: Annotated[int, typer.Option(help="Stages of a rank, for interleaved.")] = 1,
    zero: Annotated[int, typer.Option(help="The stage of ZeRO, 0 to 3.")] = 1,
    recompute: Annotated[str, typer.Option(help="none, selective or full.")] = "none",
    output: Annotated[str, typer.Option(help="The file that the page is written to.", metavar="FILE")] = "plan.html",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    execute: Execute = False,
    progress: Progress = True,
) -> None:
    """Simulate a training step on a described cluster: its time, bubble, memory and bytes per link.

    With `--mesh` one plan; without it, the plans that fit and the fastest of them. Also writes a page with the timeline
    of a step. Example: `tessera plan llama-3-405b --mesh dp=64,tp=8,pp=16 --batch 2048 --topology h100`
    """
    from tessera.cli.arguments import Look
    from tessera.cli.plan import PlanOptions, show_plan

    options = PlanOptions(mesh, ranks, batch, microbatch, sequence, schedule, chunks, zero, recompute, output, as_json)
    raise typer.Exit(show_plan(model, topology, options, Look(execute, progress and not as_json)))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="The Python file; what follows it are its own arguments.")],
    ranks: Annotated[int, typer.Option(help="How many processes run it.")] = 2,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that a collective waits for a rank that does not come.")
    ] = None,
) -> None:
    """Run a file in several processes, each a rank: collectives of a mesh run between them.

    Example: `tessera run --ranks 2 examples/ranks.py`
    """
    import os

    from tessera.api.collectives import table_for
    from tessera.diagnostics.error import TesseraError
    from tessera.runtime.ranks.processes import MOST, launch

    if not os.path.isfile(file):
        typer.echo(f"there is no file `{file}`", err=True)
        raise typer.Exit(2)
    if not 1 <= ranks <= MOST or (timeout is not None and timeout <= 0):
        typer.echo(f"`--ranks` is 1 to {MOST}, and `--timeout` above 0 s", err=True)
        raise typer.Exit(2)
    try:
        launch({"file": file, "argv": list(context.args)}, ranks, seconds=timeout, table=table_for(ranks))
    except TesseraError as error:
        typer.echo(str(error.at(None)), err=True)
        raise typer.Exit(1) from None


cache = typer.Typer(help="The cache of compiled code on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@cache.command("show", cls=Command)
def cache_show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say where the cache is and how full."""
    import json
    import time

    from tessera.diagnostics.error import format_count
    from tessera.runtime.cache import default_store

    store = default_store()
    usage = store.usage()
    days = None if usage.oldest is None else max(0.0, time.time() - usage.oldest) / 86400
    plans = _count_plans()
    if as_json:
        found = {"folder": store.folder, "entries": usage.entries, "bytes": usage.bytes, "limit": store.limit}
        found["plans"] = plans
        typer.echo(json.dumps({**found, "oldest_days": None if days is None else round(days, 2)}))
        return
    typer.echo(f"folder   {store.folder}")
    typer.echo(f"entries  {usage.entries}")
    typer.echo(f"size     {_size(usage.bytes)} of {_size(store.limit)} (TESSERA_CACHE_BYTES)")
    if days is not None:
        typer.echo(f"oldest   last used {days:.1f} days ago; when it is full, those unused for longest are removed")
    if plans:
        typer.echo(f"plans    {format_count(plans, 'tuned plan')}, which `tessera cache clear` leaves")


@cache.command("clear")
def cache_clear() -> None:
    """Remove every entry; what is wanted again is compiled again. Tuned plans stay."""
    from tessera.diagnostics.error import format_count
    from tessera.runtime.cache import default_store

    removed = default_store().clear()
    typer.echo(f"removed {format_count(removed.entries, 'entry', 'entries')}, {_size(removed.bytes)}")
    if plans := _count_plans():
        stays = f"{format_count(plans, 'tuned plan')} {'stays' if plans == 1 else 'stay'}"
        typer.echo(f"{stays}: `ts.autotune.cache.clear()` forgets all, `tessera tune --again` measures one anew")


def _count_plans() -> int:
    """Plans of groups and programs that were tuned; nothing is made where there are none."""
    from tessera.api.stored_plans import has_plans

    if not has_plans():
        return 0
    from tessera.tuner.database import default_database

    return len(default_database().entries())


def _size(count: int) -> str:
    """Bytes as people read them.

    >>> _size(512), _size(1536), _size(4 << 30)
    ('512 B', '1.5 KiB', '4.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


@app.command(cls=Command)
def version() -> None:
    """Print the version."""
    from tessera import __version__

    typer.echo(__version__)


app.add_typer(schedule_app, name="schedule")


def main() -> None:
    """Run the command line; an error of the user's is printed as one, without a traceback."""
    try:
        app()
    except Exception as error:
        from tessera.diagnostics.error import TesseraError

        if not isinstance(error, TesseraError):
            raise
        typer.echo(str(error.at(None)), err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
