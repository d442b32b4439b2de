"""The `tessera` command: each subcommand imports what it needs when it is asked for, so `--help` is quick."""

# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="tessera",
    help="Tessera: a tile-first language and optimizing compiler for deep learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


_TARGET = "What to look at, as `module:function`, such as `examples.softmax:by_hand`."
_SHAPE = "A parameter's shape: `x=64x128` or `x=64x128:bf16`; once for each parameter without an annotation."


@app.command()
def explain(
    code: Annotated[str, typer.Argument(help="An error code, such as T0101; see `--list`.", show_default=False)] = "",
    list_all: Annotated[bool, typer.Option("--list", help="List every code with its one-line meaning.")] = False,
) -> None:
    """Tell the long story of an error: what the rule is, a program that breaks it, and the cure."""
    from tessera.cli.explain import list_codes, show_page

    if list_all or not code:
        list_codes()
    else:
        raise typer.Exit(show_page(code))


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, to paste into a bug report.")] = False,
) -> None:
    """Say what this machine can do, and which parts of Tessera can use it."""
    from tessera.cli.doctor import show

    raise typer.Exit(show(as_json=as_json))


@app.command()
def inspect(
    target: Annotated[str, typer.Argument(help=_TARGET)],
    shape: Annotated[list[str] | None, typer.Option(help=_SHAPE)] = None,
    output: Annotated[str, typer.Option(help="The file that the page is written to.")] = "inspect.html",
    rows: Annotated[int, typer.Option(help="Most lines of a cell in the terminal; the page has all.")] = 24,
) -> None:
    """Show a function at all four levels side by side, and write a page where a click lights up a line everywhere."""
    from tessera.cli.inspect import show

    raise typer.Exit(show(target, shape or (), output, rows))


@app.command()
def lint(
    target: Annotated[str, typer.Argument(help=_TARGET)],
    shape: Annotated[list[str] | None, typer.Option(help=_SHAPE)] = None,
    architecture: Annotated[str, typer.Option(help="The GPU to compile for; none need be here.")] = "sm_90a",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what each kernel takes of a GPU (registers, shared memory, occupancy), and where lanes wait for a bank."""
    from tessera.cli.lint import show

    raise typer.Exit(show(target, shape or (), architecture, as_json=as_json))


cache = typer.Typer(help="The cache of compiled code on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@cache.command("show")
def cache_show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say where the cache is and how full."""
    from tessera.cli.cache import show

    raise typer.Exit(show(as_json=as_json))


@cache.command("clear")
def cache_clear() -> None:
    """Remove every entry; what is wanted again is compiled again."""
    from tessera.cli.cache import clear

    raise typer.Exit(clear())


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version

    typer.echo(version("tessera"))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
