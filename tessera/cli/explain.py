"""`tessera explain`: an error's page in the terminal, or the list of codes."""

from __future__ import annotations

from rich.console import Console
from rich.markdown import Markdown

from tessera.diagnostics.codes import all_codes, explain


def show_page(code: str) -> int:
    """Print the page of `code`; 1 when there is none, else 0."""
    try:
        page = explain(code)
    except KeyError as error:
        Console(stderr=True, highlight=False).print(f"error: {error.args[0]}", markup=False)
        return 1
    console = Console()
    if console.is_terminal:
        console.print(Markdown(page))
    else:
        print(page, end="")
    return 0


def list_codes() -> None:
    """Print every code, its class and its meaning."""
    for code, cls in all_codes().items():
        print(f"{code}  {cls.__name__:<24}{(cls.__doc__ or '').splitlines()[0]}")
