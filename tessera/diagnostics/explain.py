"""The long story of an error code: its page in `docs/errors`, which holds a failing program and its cure."""

from __future__ import annotations

from pathlib import Path

from tessera.diagnostics.codes import all_codes


def pages_folder() -> Path:
    """Where the pages are: beside this file when installed, in `docs/errors` in a checkout."""
    installed = Path(__file__).parent / "pages"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "docs" / "errors"


def explain(code: str) -> str:
    """The page of `code`, in Markdown; small letters and a bare number (`101`) will do.

    Raises KeyError, naming the nearest codes, when there is none.
    """
    name = code.strip().upper().removeprefix("T").rjust(4, "0")
    name = f"T{name}"
    known = all_codes()
    if name not in known:
        alike = [other for other in known if other[:3] == name[:3]] or sorted({other[:3] + "xx" for other in known})
        raise KeyError(
            f"no error has the code `{code}`; there are {', '.join(alike)}; `tessera explain` lists them all"
        )
    return (pages_folder() / f"{name}.md").read_text(encoding="utf-8")
