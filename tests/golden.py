"""Golden texts of errors, which were written by Python 3.11: later ones place some spans more narrowly."""

from __future__ import annotations

import re
import sys

_COLUMN = re.compile(r"(--> model\.py:\d+|at model\.py:\d+):\d+")
_MARKS = re.compile(r"^( *\| ) *\^+$", re.MULTILINE)


def comparable(text: str) -> str:
    """A text with its columns and marks on Python 3.11, and without them on later ones.

    There the code of a `with` statement or a generator is placed at its expression alone, and not at the whole of it.
    """
    if sys.version_info < (3, 12):
        return text
    return _MARKS.sub(r"\1^", _COLUMN.sub(r"\1", text))
