"""`tessera run`: a Python file in several processes, each a rank of one world."""

from __future__ import annotations

import os
from collections.abc import Sequence

import typer

from tessera.diagnostics.error import TesseraError
from tessera.runtime.ranks.processes import MOST, launch


def start(file: str, argv: Sequence[str], ranks: int, seconds: float | None) -> int:
    """Run a file on each rank; 1 where one of them fails, which is told."""
    if not os.path.isfile(file):
        typer.echo(f"there is no file `{file}`", err=True)
        return 2
    if not 1 <= ranks <= MOST or (seconds is not None and seconds <= 0):
        typer.echo(f"`--ranks` is 1 to {MOST}, and `--timeout` above 0 s", err=True)
        return 2
    try:
        launch({"file": file, "argv": list(argv)}, ranks, seconds=seconds)
    except TesseraError as error:
        typer.echo(str(error.at(None)), err=True)
        return 1
    return 0
